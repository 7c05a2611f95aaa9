/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP clients for the api tests: libcurl for what clients do, a bare socket for what they should not. */
#ifndef WEIR_TESTS_API_CLIENT_H
#define WEIR_TESTS_API_CLIENT_H

#include <jansson.h>
#include <stddef.h>

#include "rig.h"

struct reply {
	long status;
	char *body, *head; /* NUL-terminated */
	size_t body_len, head_len;
	json_t *json; /* NULL when the body is none */
	double seconds;
	int error; /* a CURLcode */
};

struct call {
	const char *method, *path;
	const char *token;     /* NULL: the right one; "": none */
	const char *header[4]; /* more of them */
	const char *body;      /* NULL: none */
	size_t body_len;       /* 0: strlen(body) */
	int chunked;
};

/* The reply, to be given back to reply_free(). */
struct reply call(struct rig *r, struct call c);
void reply_free(struct reply *reply);

/* POST /v1/execute with this code, quoted as it must be. */
struct reply execute(struct rig *r, const char *code);
/* A request body with `code` of any bytes of valid UTF-8, and optionally more members. malloc'd. */
char *execute_body(const char *code, size_t len, const char *more);

/* Checks status and the whole error shape; frees the reply. `message` NULL: any. */
void expect_error(struct reply reply, long status, const char *code, const char *message);

/* One string or integer inside a JSON document by path "a.b"; asserts that it is there. */
const char *text_at(const json_t *json, const char *path);
json_int_t number_at(const json_t *json, const char *path);

/* `count` POSTs of the same body at once, over as many connections. `each` sees every reply. */
void execute_many(struct rig *r, const char *body, size_t count, void (*each)(void *ctx, struct reply *reply), void *ctx);

/* A bare connection. */
int raw_connect(struct rig *r);
/* One that takes no more than about `room` bytes before somebody reads them. */
int raw_connect_room(struct rig *r, int room);
void raw_send(int fd, const char *text, size_t len);
/* Reads until the end of stream or `ms` without a byte. malloc'd, NUL-terminated. */
char *raw_read(int fd, int ms);
/* A complete execute request as bytes. malloc'd. */
char *raw_request(const char *version, const char *code, const char *headers);
/* The same with more members in its body, as execute_body() takes them. */
char *raw_request_more(const char *version, const char *code, const char *more, const char *headers);

/* Reads until the end of stream or `ms` without a byte, and how much it was. malloc'd, NUL-terminated. */
char *raw_read_all(int fd, int ms, size_t *ret_len);

/* An answer of server-sent events, or one that turned out not to be one. */
struct event {
	char name[16];
	json_t *data;
};
struct heard {
	long status;
	char *head;
	bool chunked, whole; /* `whole`: not chunked, or the last chunk was there */
	bool cut;	     /* bytes are left that are no event */
	struct event *events;
	size_t count, comments;
	char *text[2]; /* of all events of a stream, put together */
	size_t text_len[2];
	json_t *plain; /* the body when it is no stream */
};
/* Takes the bytes. */
struct heard hear_bytes(char *bytes, size_t len);
/* Reads as raw_read(), to the end of the connection. */
struct heard hear(int fd, int ms);
/* Data of the last event; asserts that it has this name. */
const json_t *last_event(const struct heard *h, const char *name);
void heard_free(struct heard *h);

#endif
