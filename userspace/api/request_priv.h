/* SPDX-License-Identifier: Apache-2.0 */
/* What request.c, request_files.c and request_call.c share. */
#ifndef WEIR_API_REQUEST_PRIV_H
#define WEIR_API_REQUEST_PRIV_H

#include "api/request.h"
#include "core/jtext.h"

/* Room for a JSON pointer in a message; a longer one is cut. */
#define WHERE_MAX 96

/* One body being read. Strings in `parts` are where they stood in it, their escapes undone. */
struct parse {
	char *body;
	struct api_error *error;
	void (*unknown)(struct parse *p, const struct jtext *name); /* may give the error of an unknown name a hint; or NULL */
	struct payload_parts parts;
	char *env;		    /* malloc'd: what parts.env points to */
	struct payload_file *files; /* malloc'd: what parts.files points to */
	uint32_t timeout_s;
	char session_id[IPC_ID_MAX];
};

/* Each fills the error and returns -1. `where` is a JSON pointer. */
int request_refuse(struct parse *p, const char *where, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int request_too_large(struct parse *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int request_no_memory(struct parse *p);

/* One step deeper: what is called `token`, or stands at `index`, in what `parent` points to. */
void request_point(char where[WHERE_MAX], const char *parent, const char *token, size_t len);
void request_point_index(char where[WHERE_MAX], const char *parent, size_t index);

/*
 * Reads the members of an object against `table`: names, repetitions, what is required, and types (an integer's is left to
 * its handler). Values go to `ret`, one for each row, with a NULL text where a member is absent.
 */
int request_read_members(struct parse *p, const char *where, const struct jtext *object, const struct request_member *table,
			 size_t count, struct jtext *ret);

enum file_member { FILE_PATH, FILE_CONTENT, FILE_CONTENT_BASE64, FILE_MEMBERS };
extern const struct request_member request_file_members[FILE_MEMBERS];

/* The body as an object's members, as request_read_members() reads them. */
int request_read_body(struct parse *p, size_t len, const struct request_member *table, size_t count, struct jtext *ret);

/* A deadline: an integer of seconds up to `most`. Sets p->timeout_s. */
int request_take_timeout(struct parse *p, const struct jtext *value, unsigned most);

enum call_member { CALL_NAME, CALL_ARGUMENTS, CALL_TIMEOUT, CALL_MEMBERS };
extern const struct request_member request_call_members[CALL_MEMBERS];

/* Of a message of the Model Context Protocol; mcp_message.c reads it. */
enum mcp_member { MCP_JSONRPC, MCP_ID, MCP_METHOD, MCP_PARAMS, MCP_MEMBERS };
extern const struct request_member request_mcp_members[MCP_MEMBERS];

/* The member `files`: an array. */
int request_take_files(struct parse *p, const char *where, const struct jtext *value);

#endif
