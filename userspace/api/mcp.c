/* SPDX-License-Identifier: Apache-2.0 */
/* POST /mcp: headers and body to mcp_read(), and what it decides done. */
#include <string.h>
#include <strings.h>

#include "api/server.h"

/* A header that is there twice is read differently by different readers: it is refused. */
struct seen {
	struct mcp_headers mcp;
	const char *origin, *host, *repeated;
	bool accepts, accept_there;
};

static enum MHD_Result see_header(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct seen *seen = ctx;
	const struct {
		const char *name, **value;
	} single[] = {{"MCP-Protocol-Version", &seen->mcp.version},
		      {"Mcp-Method", &seen->mcp.method},
		      {"Mcp-Name", &seen->mcp.name},
		      {MHD_HTTP_HEADER_ORIGIN, &seen->origin},
		      {MHD_HTTP_HEADER_HOST, &seen->host}};

	(void)kind;
	if (!value)
		value = "";
	for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
		if (strcasecmp(name, single[i].name) != 0)
			continue;
		if (*single[i].value)
			seen->repeated = single[i].name;
		*single[i].value = value;
	}
	if (!strcasecmp(name, MHD_HTTP_HEADER_ACCEPT)) { /* several lines are one list */
		seen->accept_there = true;
		seen->accepts = seen->accepts || mcp_accepts_json(value);
	}
	return MHD_YES;
}

static void refuse(struct exchange *x, int status, enum mcp_error code, const char *message)
{
	size_t len = 0;
	char *text = mcp_error(NULL, code, message, NULL, &len);

	exchange_reply_text(x, status, text, len);
}

void mcp_reply_error(struct exchange *x, const struct api_error *e)
{
	size_t len = 0;
	char *text = mcp_answer_error(x->mcp, e, &len);

	exchange_reply_text(x, 200, text, len);
}

static void run(struct server *s, struct exchange *x, const struct mcp_plan *plan)
{
	struct api_error e;

	x->mcp = plan->call;
	x->wants_events = false; /* every client of this protocol says that it could take them */
	if (request_parse_execute(plan->arguments, plan->arguments_len, &x->execute, &e) < 0)
		exchange_reply_error(x, &e);
	else
		execute_enter(s, x);
}

void handle_mcp(struct server *s, struct exchange *x)
{
	static char nothing[1];
	struct seen seen = {0};
	struct mcp_plan plan;

	MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, see_header, &seen);
	if (seen.repeated) {
		refuse(x, 400, MCP_INVALID_REQUEST, "a header is there twice that may be there once");
		return;
	}
	if (seen.origin && !mcp_origin_ok(seen.origin, seen.host)) {
		refuse(x, 403, MCP_INVALID_REQUEST,
		       "pages of this Origin may not use this service: only those of the same machine may");
		return;
	}
	if (seen.accept_there && !seen.accepts) {
		refuse(x, 406, MCP_INVALID_REQUEST, "the Accept header has to take application/json");
		return;
	}
	mcp_read(x->body ? x->body : nothing, x->body_len, &seen.mcp, &plan);
	switch (plan.step) {
	case MCP_REPLY:
		exchange_reply_text(x, plan.status, plan.text, plan.text_len);
		break;
	case MCP_ACCEPT:
		exchange_reply_text(x, 202, strdup(""), 0);
		break;
	case MCP_RUN:
		run(s, x, &plan);
		break;
	}
}
