/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Model Context Protocol over streamable HTTP: one JSON-RPC message of a stranger in, what is to be done with it out, and
 * the answers. One tool, run_python, which is POST /v1/execute for single use. No session and no state: every message stands
 * for itself, so both kinds of revision can be served side by side, those that begin with `initialize` and the newest, whose
 * requests say in their _meta (and again in headers) what they are. Pure; mcp.c is the service's part.
 *
 *   mcp_message.c   a message, read and decided upon
 *   mcp_about.c     what the server says of itself: revisions, instructions, the tool
 *   mcp_answer.c    the result of a call, from a run or from what went wrong
 *   mcp_headers.c   who may ask, and what can be answered
 */
#ifndef WEIR_API_MCP_H
#define WEIR_API_MCP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "api/answer.h"
#include "api/error.h"

/* A request that is to be answered. */
struct mcp_call {
	bool modern; /* of a revision whose results say what they are */
	char id[];   /* as the client wrote it: JSON, NUL-terminated */
};

/* Of a request's headers, each NULL when it is not there. Borrowed. */
struct mcp_headers {
	const char *version; /* MCP-Protocol-Version */
	const char *method;  /* Mcp-Method */
	const char *name;    /* Mcp-Name */
};

enum mcp_step {
	MCP_REPLY,  /* `text`, with `status` */
	MCP_ACCEPT, /* a notification: 202, without a body */
	MCP_RUN,    /* run_python is called */
};

struct mcp_plan {
	enum mcp_step step;
	int status;
	char *text; /* MCP_REPLY: malloc'd, NULL when there is no memory for it */
	size_t text_len;
	struct mcp_call *call; /* MCP_RUN: malloc'd */
	char *arguments;       /* MCP_RUN: a body for request_parse_execute(), inside the message */
	size_t arguments_len;
};

/* Reads one message and fills *ret; nothing of it is the caller's to free but `text` or `call`. */
void mcp_read(char *body, size_t len, const struct mcp_headers *headers, struct mcp_plan *ret);

/*
 * The result of a call whose code ran (RUN_DONE), as answer_make() makes that of POST /v1/execute: returns 0 or -ENOMEM,
 * borrows the result's buffers.
 */
int mcp_answer_make(struct answer_body *a, const struct mcp_call *call, const struct run_result *result);

/*
 * The result of a call that did not come to that. It is a result and no error of the protocol, since what a model can do about
 * it (mend its arguments, try again) it can only do when its client shows it. malloc'd, NULL when there is no memory.
 */
char *mcp_answer_error(const struct mcp_call *call, const struct api_error *e, size_t *ret_len);

/* An error of the protocol; `call` NULL when it is not known whose. Takes `data`, which may be NULL. Returns as above. */
enum mcp_error {
	MCP_PARSE_ERROR = -32700,
	MCP_INVALID_REQUEST = -32600,
	MCP_METHOD_NOT_FOUND = -32601,
	MCP_INVALID_PARAMS = -32602,
	MCP_HEADER_MISMATCH = -32020,
	MCP_UNSUPPORTED_VERSION = -32022,
};
char *mcp_error(const struct mcp_call *call, enum mcp_error code, const char *message, json_t *data, size_t *ret_len);

/* Whether the value of an Accept header takes application/json. */
bool mcp_accepts_json(const char *accept);

/*
 * Whether a page of this Origin may ask a service that it knows as `host` (the Host header, or NULL). A name is no proof: who
 * rebinds one to our address sends it in both. So: loopback, or the very address, without a name, that the page came from.
 */
bool mcp_origin_ok(const char *origin, const char *host);

#endif
