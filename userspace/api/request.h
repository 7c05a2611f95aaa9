/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of requests: bytes of a stranger in, a checked request or one error out. Strict: an unknown, repeated or ill-typed
 * member refuses the whole request, nothing is clamped, coerced or ignored. Pure.
 */
#ifndef WEIR_API_REQUEST_H
#define WEIR_API_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/error.h"
#include "api/payload.h"

struct execute_request {
	struct payload payload;	     /* code, standard input, environment and files, ready to be sent */
	uint32_t timeout_s;	     /* within the limits table; a session's cell has a higher one */
	char session_id[IPC_ID_MAX]; /* "" for single use; only its characters are checked */
};

/*
 * The body of `POST /v1/execute`. It is read in place: what `body` holds afterwards means nothing, and no second copy of its
 * strings is made but the payload. Returns 0 and fills *ret (the payload is the caller's), or -1 and fills *ret_error.
 */
int request_parse_execute(char *body, size_t len, struct execute_request *ret, struct api_error *ret_error);

struct call_request {
	struct payload payload; /* name and arguments, ready to be sent; the arguments byte for byte */
	uint32_t timeout_s;
};

/* The body of `POST /v1/call`. As request_parse_execute(). */
int request_parse_call(char *body, size_t len, struct call_request *ret, struct api_error *ret_error);

/* The body of `POST /v1/sessions`: nothing, or an object that may name the language. Returns as above. */
int request_parse_session(char *body, size_t len, struct api_error *ret_error);

/* One member of a request's object: what the parser demands of it and what /openapi.json says of it. */
struct request_member {
	const char *name, *type; /* of JSON Schema: "string", "integer", "array" (of objects), "object"; "*": any */
	bool required;
	bool one_of;	   /* exactly one of the members so marked must be there */
	bool base64;	   /* a string that stands for bytes */
	bool any;	   /* an object whose members may be called and hold whatever they like; else they are strings */
	const char *value; /* the only string it may be; NULL: any */
	long long min,
	    max;	  /* an integer's value; bytes of a string's text, elements, members: at most `max`. 0: not told here */
	long long preset; /* an integer's value when it is absent */
	const struct request_member *items; /* the members of an array's objects */
	size_t item_count;
	const char *description;
};

enum request_body { REQUEST_BODY_EXECUTE, REQUEST_BODY_SESSION, REQUEST_BODY_CALL, REQUEST_BODY_MCP };
/* The members of a body, *ret_count of them. Static. */
const struct request_member *request_members(enum request_body body, size_t *ret_count);

#endif
