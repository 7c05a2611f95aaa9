/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every error the service can answer, as one table: its code string, HTTP status, default message and hint. All of them
 * have one shape, {"error": {"code", "message", "hint", "ran"}}. Cases that programs need not tell apart share a code, and
 * then the status too; what they tell people differs. Pure.
 */
#ifndef WEIR_API_ERROR_H
#define WEIR_API_ERROR_H

#include <jansson.h>
#include <stdbool.h>

enum error_case {
	ERROR_NONE,
	ERROR_INVALID_REQUEST,
	ERROR_PARAMETER,
	ERROR_FRAMING,
	ERROR_UNSUPPORTED_LANGUAGE,
	ERROR_TIMEOUT_RANGE,
	ERROR_RESERVED_NAME,
	ERROR_PATH_ESCAPES,
	ERROR_FILE_CONFLICT,
	ERROR_SESSION_BUSY,
	ERROR_UNAUTHORIZED,
	ERROR_FORBIDDEN,
	ERROR_NOT_FOUND, /* a session */
	ERROR_NO_PATH,
	ERROR_NO_RUN,
	ERROR_NO_AGENT,
	ERROR_UNKNOWN_TOOL,
	ERROR_METHOD,
	ERROR_SLOW_REQUEST,
	ERROR_TOO_LARGE,
	ERROR_MEDIA_TYPE,
	ERROR_HEADERS,
	ERROR_QUOTA,
	ERROR_SESSIONS,
	ERROR_AUDIT_READS,
	ERROR_NO_SANDBOX,
	ERROR_TOOL_NOT_READY,
	ERROR_NOT_READY,
	ERROR_OVERLOADED,
	ERROR_STOPPING,
	ERROR_SANDBOX,
	ERROR_POLICY_ONLY,
	ERROR_TOOLS,
	ERROR_AUDITOR,
	ERROR_INTERNAL,
	ERROR_CANCELLED,
	ERROR_CASES,
};

struct api_error {
	enum error_case kase;
	bool ran;	   /* whether any user code may have run */
	char message[384]; /* UTF-8 */
	char hint[256];	   /* in place of the case's own; "": that one */
};

/* The fixed part of a case. */
struct error_row {
	int status;
	const char *code;    /* stable, for programs */
	const char *message; /* default; NULL when each use has its own */
	const char *hint;
	unsigned retry_after_s; /* `Retry-After`, 0 for none */
};
const struct error_row *error_row(enum error_case kase);

/* Fills `e`: `fmt` NULL takes the case's own message. `ran` is set to false, the hint to the case's own. */
void error_set(struct api_error *e, enum error_case kase, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Gives `e`, which error_set() has filled, a hint that fits better than its case's own. */
void error_set_hint(struct api_error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Static, or inside `e`. */
const char *error_hint(const struct api_error *e);

/* The body. New reference, NULL when out of memory. */
json_t *error_json(const struct api_error *e);

#endif
