/* SPDX-License-Identifier: Apache-2.0 */
#include "api/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/utf8.h"

/* The contract's error table. Messages in it are exact: clients and tests compare them. */
static const struct error_row rows[ERROR_CASES] = {
    [ERROR_NONE] = {200, "none", "no error", "", 0},
    [ERROR_INVALID_REQUEST] = {400, "invalid_request", NULL,
			       "what follows `at` is a JSON pointer: /a/0/b is `b` of the first element of `a`", 0},
    [ERROR_PARAMETER] =
	{400, "invalid_request", NULL,
	 "what follows `at` is a parameter of the query; docs/api.md and GET /openapi.json have those of this route", 0},
    [ERROR_FRAMING] = {400, "invalid_http", NULL, "send either a Content-Length or chunks, never both", 0},
    [ERROR_UNSUPPORTED_LANGUAGE] = {400, "unsupported_language", NULL, "leave `language` out or set it to \"python\"", 0},
    [ERROR_TIMEOUT_RANGE] = {400, "invalid_timeout", NULL, "send an integer number of seconds, or leave `timeout_s` out", 0},
    [ERROR_RESERVED_NAME] = {400, "reserved_name", NULL, "give the variable another name", 0},
    [ERROR_PATH_ESCAPES] = {502, "path_escapes", "file path escapes working directory",
			    "name files relative to the working directory, without links on the way", 0},
    [ERROR_FILE_CONFLICT] =
	{409, "file_conflict", NULL,
	 "something in the session's working directory is in the way; remove it in a cell, or use another path", 0},
    [ERROR_SESSION_BUSY] = {409, "session_busy", "the session is busy with another cell",
			    "a session runs one cell at a time; nothing of this one ran: it is safe to try again", 1},
    [ERROR_UNAUTHORIZED] =
	{401, "unauthorized", "missing or invalid project token",
	 "redeploy the agent to get a current one: `weir agent env NAME` prints it, `weir agent ls` shows whether "
	 "the agent is still there. Any other program: `weir token mint --project NAME`. It is sent as "
	 "`Authorization: Bearer TOKEN`",
	 0},
    [ERROR_FORBIDDEN] = {403, "forbidden", "missing or invalid project token",
			 "the token is valid, but its scope does not cover this route", 0},
    [ERROR_NOT_FOUND] = {404, "not_found", "not found",
			 "a session that has ended, a mistyped id, or another project's: open a new one with POST /v1/sessions",
			 0},
    [ERROR_NO_PATH] = {404, "not_found", "not found",
		       "GET /openapi.json lists the paths; none has a slash at its end or two in a row", 0},
    [ERROR_NO_RUN] = {404, "not_found", "not found",
		      "ids are the `run_id` of answers, and only a run of the token's own project is found", 0},
    [ERROR_NO_AGENT] =
	{404, "no_agent", "there is no such agent",
	 "the token is for an agent that is not registered, or whose image is gone: `weir agent ls` lists those there "
	 "are, `weir agent add` registers one",
	 0},
    [ERROR_UNKNOWN_TOOL] =
	{404, "unknown_tool", NULL,
	 "name it MODULE:NAME, with a module that `weir agent ls` lists; a name alone is looked for in each of them, in order. "
	 "`python -m weir.agent --check` says what is missing",
	 0},
    [ERROR_METHOD] = {405, "method_not_allowed", NULL, "the `Allow` header lists the methods of this path", 0},
    [ERROR_SLOW_REQUEST] = {408, "request_timeout", "the request did not arrive in time",
			    "send it again over a faster connection", 0},
    [ERROR_TOO_LARGE] = {413, "too_large", NULL, "send less in one request, or in several; GET /v1/limits lists the limits", 0},
    [ERROR_MEDIA_TYPE] = {415, "unsupported_media_type", NULL, "send `Content-Type: application/json`, and no Content-Encoding",
			  0},
    [ERROR_HEADERS] = {431, "headers_too_large", NULL, "send fewer or shorter headers", 0},
    [ERROR_QUOTA] = {429, "quota_exceeded", NULL, "wait for earlier runs to end, then try again", 2},
    [ERROR_SESSIONS] =
	{429, "quota_exceeded", NULL,
	 "end one with DELETE /v1/sessions/{session_id}, or wait until one ends by itself; GET /v1/sessions lists them", 30},
    [ERROR_AUDIT_READS] = {429, "quota_exceeded", NULL, "others are reading, perhaps of other projects: try again", 1},
    [ERROR_NO_SANDBOX] = {503, "no_sandbox", "no warm sandbox pod available, try again shortly",
			  "nothing ran: it is safe to try again", 5},
    [ERROR_TOOL_NOT_READY] =
	{503, "tool_not_ready", NULL,
	 "nothing was called: it is safe to try again. What takes so long is mostly the import of the agent's "
	 "modules, once for each sandbox",
	 5},
    [ERROR_NOT_READY] = {503, "not_ready", NULL, "nothing runs before the policy is verified in force and the pool is warm", 1},
    [ERROR_OVERLOADED] = {503, "overloaded", NULL, "try again when fewer requests are being sent", 1},
    [ERROR_STOPPING] = {503, "stopping", "the service is shutting down", "nothing ran: it is safe to try again", 5},
    [ERROR_SANDBOX] = {500, "sandbox_failed", NULL, "`weir doctor` shows what this host can enforce", 0},
    [ERROR_POLICY_ONLY] =
	{500, "policy_only",
	 "there are no sandboxes here: this service runs with --policy-only, and puts policies on what already runs",
	 "nothing ran, and trying again is of no use: ask a service that was started without --policy-only", 0},
    [ERROR_TOOLS] =
	{500, "tools_failed", NULL,
	 "nothing was called. The process ended while it imported the agent's modules, in a sandbox like that of a call", 0},
    [ERROR_AUDITOR] = {500, "audit_unavailable", NULL, "the record is written by another process; look at the service's log",
		       0},
    [ERROR_INTERNAL] = {500, "internal", "out of memory or a fault of the service", "look at the service's log", 0},
    [ERROR_CANCELLED] = {500, "cancelled", "the run was withdrawn before it started", "nothing ran: it is safe to try again",
			 0},
};

const struct error_row *error_row(enum error_case kase)
{
	return &rows[(unsigned)kase < ERROR_CASES ? kase : ERROR_INTERNAL];
}

/* It may quote what a client sent, and be cut by its buffer: what is no UTF-8 would make the whole answer unwritable. */
static void make_utf8(char *text)
{
	size_t len = strlen(text);

	for (size_t at = 0; at < len;) {
		bool valid = true;
		size_t n = utf8_next(text + at, len - at, &valid);

		if (!valid)
			memset(text + at, '?', n);
		at += n;
	}
}

void error_set(struct api_error *e, enum error_case kase, const char *fmt, ...)
{
	va_list ap;

	e->kase = kase;
	e->ran = false;
	*e->hint = 0;
	if (!fmt) {
		const char *own = error_row(kase)->message;

		snprintf(e->message, sizeof e->message, "%s", own ? own : error_row(kase)->code);
		return;
	}
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof e->message, fmt, ap);
	va_end(ap);
	make_utf8(e->message);
}

void error_set_hint(struct api_error *e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->hint, sizeof e->hint, fmt, ap);
	va_end(ap);
	make_utf8(e->hint);
}

const char *error_hint(const struct api_error *e)
{
	return *e->hint ? e->hint : error_row(e->kase)->hint;
}

json_t *error_json(const struct api_error *e)
{
	const struct error_row *row = error_row(e->kase);

	return json_pack("{s:{s:s, s:s, s:s, s:b}}", "error", "code", row->code, "message", e->message, "hint", error_hint(e),
			 "ran", e->ran);
}
