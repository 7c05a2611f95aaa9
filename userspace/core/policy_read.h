/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading JSON values into structs, for the files policy*.c and sysgroups.c. A value is read together with its place in the
 * document, a chain of `struct spot` on the callers' stacks: an error spells it as a JSON pointer.
 */
#ifndef WEIR_CORE_POLICY_READ_H
#define WEIR_CORE_POLICY_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "core/err.h"
#include "core/policy.h"

/* The root has neither key nor a spot above. */
struct spot {
	const struct spot *up;
	const char *key; /* NULL: an array's element, `index` */
	size_t index;
};

/* err_set() with the pointer to `at`. */
int spot_fail(const struct spot *at, struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* "must be WHAT, and is a number". */
int spot_wrong_kind(const struct spot *at, struct err *e, const char *what, const json_t *v);

/* One key of an object, and how its value gets into the struct that the object is read into. */
struct key {
	const char *name;
	bool required;
	int (*read)(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
	size_t field;	 /* offset in the struct */
	const void *arg; /* what `read` makes of it */
};

/*
 * Reads an object. `what` names it in messages ("a rule"). Keys are read in the table's order; one that is not in the table is
 * an error, so that a misspelt rule is never a rule that silently does nothing.
 */
int read_object(const json_t *v, const struct spot *at, const char *what, const struct key *keys, size_t key_count, void *into,
		struct err *e);

/* Words and their values. The table ends with a NULL word. */
struct word {
	const char *text;
	uint32_t value;
};

/* "a", "b" or "c" into `ret`, cut where there is no more room. */
void words_list(char *ret, size_t size, const struct word *words);

/* Rows of a table of keys. A field: uint8_t or bool with `arg` = words; uint32_t, the values of a list of words or'ed. */
int read_word(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
int read_word_set(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
int read_bool(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);

/* A whole number within a range. A field: uint64_t or uint32_t with `arg` = struct range. */
struct range {
	uint64_t min, max;
};
int read_u32(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
int read_u64(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
int read_number(const json_t *v, const struct spot *at, const struct range *range, uint64_t *ret, struct err *e);

/* Into char[POLICY_NAME_MAX]: what is safe in a file name, a log line and a URL. */
int read_name(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);

/* JSON as a tree. `depth` is checked before anything is built; errors are in words of our own, with line and column. */
int read_document(const char *text, size_t len, unsigned depth, json_t **ret, struct err *e);

/* policy_rules.c and policy_parts.c: readers of single keys of a policy; `field` is the struct policy (offset 0). */
int policy_read_rules(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
int policy_read_nat64(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
int policy_read_packets(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
int policy_read_sockets(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
int policy_read_syscalls(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
int policy_read_limits(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);
int policy_read_audit(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e);

/* Frees what policy_read_rules() allocated. */
void policy_free_rules(struct policy_rule *rules, size_t count);

static inline void cleanup_jsonp(json_t **j)
{
	json_decref(*j);
}
#define _cleanup_json_ __attribute__((cleanup(cleanup_jsonp)))

#define READ_COUNT(a) (sizeof(a) / sizeof(a)[0])

#endif
