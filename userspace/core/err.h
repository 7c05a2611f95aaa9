/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One error type for all of user space: an errno, where it is, and a sentence for a person.
 *
 * Contract of every fallible function: it takes `struct err *` last, returns 0 or a negative errno, and touches the
 * struct only on failure. Results leave through `ret_*` parameters, which are touched only on success.
 */
#ifndef WEIR_CORE_ERR_H
#define WEIR_CORE_ERR_H

struct err {
	int code;	/* positive errno */
	char where[64]; /* layer name, JSON pointer or line:column; "" when it adds nothing */
	char msg[1024]; /* a sentence, no newline; says what would mend it where we know. One that is longer loses its middle */
};

/* Fills `e` (which may be NULL) and returns -code. The message should not repeat strerror(code); see err_errno(). */
int err_set(struct err *e, int code, const char *where, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* As err_set(), with ": <strerror(code)>" appended: for failed system calls. */
int err_errno(struct err *e, int code, const char *where, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Puts "<prefix>: " before the message, keeping code and place. Returns -code. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
