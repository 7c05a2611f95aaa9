/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/call: a tool of the token's agent, in a sandbox of that agent's image. Waiting and running are execute.c's. */
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/call_result.h"
#include "api/server.h"
#include "core/limits.h"

/*
 * It is the sandbox that says so, where the agent's modules have been imported: so it counts as one in which something ran, and
 * its record is named, since the answer has none of what it did.
 */
static void unknown_tool(const struct exchange *x, const struct run_result *result, struct api_error *ret_error)
{
	error_set(ret_error, ERROR_UNKNOWN_TOOL, "unknown tool \"%s\"", x->tool);
	error_set_hint(ret_error, "%s. GET /v1/runs/%s has what its sandbox did", error_row(ERROR_UNKNOWN_TOOL)->hint,
		       result->grant.run_id);
	ret_error->ran = result->ran;
}

bool call_make_answer(struct exchange *x, struct run_result *result, struct api_error *ret_error)
{
	struct call_result call;

	if (call_result_read(result, &call) < 0) {
		error_set(ret_error, ERROR_INTERNAL, NULL);
		ret_error->ran = true;
		return false;
	}
	if (call.outcome == CALL_UNKNOWN) {
		unknown_tool(x, result, ret_error);
		return false;
	}
	if (answer_make_call(&x->answer, result, &call) == 0)
		return true;
	answer_error(result, ret_error);
	return false;
}

/* The name as it is in the request: it has no NUL and no other control character. NULL without memory. */
static char *tool_name(const struct payload *p)
{
	struct request_header h;

	memcpy(&h, p->data, sizeof h);
	return strndup(p->data + sizeof h, h.code_len);
}

/* A token of every scope that is nobody's: the development token. */
static void refuse_without_agent(struct exchange *x)
{
	struct api_error e;

	error_set(&e, ERROR_FORBIDDEN, NULL);
	error_set_hint(
	    &e, "this token is no agent's: `weir agent env NAME` prints one that is, of an agent that `weir agent ls` lists");
	exchange_reply_error(x, &e);
}

void handle_call(struct server *s, struct exchange *x)
{
	struct call_request request = {0};
	struct api_error e;

	if (!*x->who.agent) {
		refuse_without_agent(x);
		return;
	}
	if (request_parse_call(x->body, x->body_len, &request, &e) < 0) {
		exchange_reply_error(x, &e);
		return;
	}
	x->execute = (struct execute_request){.payload = request.payload, .timeout_s = request.timeout_s};
	x->wants_events = false; /* a call has one answer, whatever its client would accept */
	x->tool = tool_name(&x->execute.payload);
	if (x->tool)
		execute_enter(s, x);
	else
		exchange_reply_case(x, ERROR_INTERNAL, NULL);
}
