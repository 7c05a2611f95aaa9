/* SPDX-License-Identifier: Apache-2.0 */
/* What there is, and who may use it. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/server.h"
#include "core/limits.h"

/* ---- the table ---- */

/* What an agent's token can do, besides its own route, is what its project's can. */
#define PROJECT (SCOPE_PROJECT | SCOPE_AGENT)

static const struct route routes[] = {
    {"POST", "/v1/execute", PROJECT, LIMIT_BODY_BYTES, handle_execute,
     "run one Python snippet in a single-use sandbox, or a cell of a session"},
    {"POST", "/v1/call", SCOPE_AGENT, LIMIT_CALL_BODY_BYTES, handle_call,
     "run one tool of the token's agent in a single-use sandbox of its image"},
    {"POST", "/v1/sessions", PROJECT, LIMIT_SESSION_BODY_BYTES, handle_session_open, "open a session"},
    {"GET", "/v1/sessions", PROJECT, 0, handle_session_list, "the project's sessions"},
    {"GET", "/v1/sessions/{session_id}", PROJECT, 0, handle_session_get, "one session"},
    {"DELETE", "/v1/sessions/{session_id}", PROJECT, 0, handle_session_delete, "end a session"},
    {"POST", "/mcp", PROJECT, LIMIT_MCP_BODY_BYTES, handle_mcp, "one message of the Model Context Protocol"},
    {"GET", "/v1/pool", SCOPE_OPERATOR, 0, handle_pool, "pool status"},
    {"GET", "/v1/runs/{run_id}", PROJECT | SCOPE_REVIEWER, 0, handle_run, "what one run did"},
    {"GET", "/v1/runs/{run_id}/audit", PROJECT | SCOPE_REVIEWER, 0, handle_run_audit, "everything one run tried"},
    {"GET", "/v1/audit", SCOPE_REVIEWER, 0, handle_audit_search, "runs of every project, by what they did"},
    {"GET", "/v1/audit/stream", SCOPE_REVIEWER, 0, handle_audit_stream, "records of every project, as they are written"},
    {"GET", "/metrics", SCOPE_OPERATOR, 0, handle_metrics, "the service's figures, for Prometheus"},
    {"GET", "/v1/limits", SCOPE_ALL, 0, handle_limits, "every limit of the service"},
    {"GET", "/openapi.json", SCOPE_ALL, 0, handle_openapi, "this interface"},
    {"GET", "/healthz", 0, 0, handle_healthz, "the process serves"},
    {"GET", "/readyz", 0, 0, handle_readyz, "policy verified in force and pool warm"},
    {"*", NULL, SCOPE_ALL, 0, NULL, "anything else"},
};
#define ROUTES (sizeof routes / sizeof *routes)

const struct route *route_table(size_t *ret_count)
{
	*ret_count = ROUTES - 1;
	return routes;
}

static bool id_ok(const char *text, size_t len)
{
	static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";

	if (len == 0 || len >= IPC_ID_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!memchr(set, text[i], sizeof set - 1))
			return false;
	return true;
}

/* Whether `path` is of the form `pattern`; the variable segment goes to `param`. */
static bool path_matches(const char *pattern, const char *path, char param[IPC_ID_MAX])
{
	while (*pattern) {
		size_t len;

		if (*pattern != '{') {
			if (*pattern++ != *path++)
				return false;
			continue;
		}
		len = strcspn(path, "/");
		if (!id_ok(path, len))
			return false;
		memcpy(param, path, len);
		param[len] = 0;
		path += len;
		pattern = strchr(pattern, '}') + 1;
	}
	return *path == 0;
}

struct bearers {
	unsigned count;
	const char *value;
};

static enum MHD_Result find_bearer(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct bearers *b = ctx;

	(void)kind;
	if (!strcasecmp(name, MHD_HTTP_HEADER_AUTHORIZATION)) {
		b->count++;
		b->value = value;
	}
	return MHD_YES;
}

static bool authenticate(const struct server *s, struct exchange *x)
{
	const struct api_config *config = s->config;
	struct bearers b = {0};
	uint8_t digest[TOKEN_DIGEST_LEN];
	const char *token;
	size_t len;

	MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, find_bearer, &b);
	if (b.count != 1 || !b.value || !token_from_header(b.value, &token, &len))
		return false;
	token_digest(token, len, digest);
	if (config->has_dev_token && token_digest_equal(digest, config->dev_token_sha256)) {
		snprintf(x->who.project, sizeof x->who.project, "dev");
		snprintf(x->who.id, sizeof x->who.id, "dev");
		x->who.scopes = SCOPE_ALL;
		return true;
	}
	return config->tokens && tokens_find(config->tokens, digest, (int64_t)time(NULL), &x->who);
}

void exchange_caller(const struct exchange *x, char ret[IPC_CALLER_MAX])
{
	snprintf(ret, IPC_CALLER_MAX, "token:%s", x->who.id);
}

/* The message is that of a token which is none: clients know it so. The hint says what is different here. */
static void forbid(struct exchange *x)
{
	char scopes[64] = "";
	size_t used = 0;

	exchange_refuse(x, ERROR_FORBIDDEN, NULL);
	for (size_t i = 0; i < TOKEN_SCOPES; i++)
		if (x->route->scopes & token_scope_names[i].bit)
			used += (size_t)snprintf(scopes + used, sizeof scopes - used, "%s%s", used ? " or " : "",
						 token_scope_names[i].name);
	error_set_hint(&x->error, "%s: it takes one of scope %s%s", error_row(ERROR_FORBIDDEN)->hint, scopes,
		       x->route->scopes & SCOPE_AGENT ? ": `weir agent env NAME` prints one" : "");
}

void route_exchange(struct server *s, struct exchange *x, const char *method, const char *path)
{
	/* libmicrohttpd answers HEAD with the headers of GET and no body by itself. */
	const char *wanted = !strcmp(method, "HEAD") ? "GET" : method;
	const struct route *same_path = NULL;
	size_t used = 0;

	/* The form that is meant for proxies, which every server has to understand. */
	if (!strncasecmp(path, "http://", 7) || !strncasecmp(path, "https://", 8)) {
		path = strchr(strchr(path, ':') + 3, '/');
		if (!path)
			path = "/";
	}
	x->route = &routes[ROUTES - 1];
	for (size_t i = 0; i + 1 < ROUTES; i++) {
		if (!path_matches(routes[i].pattern, path, x->param))
			continue;
		same_path = &routes[i];
		if (!strcmp(routes[i].method, wanted))
			x->route = &routes[i];
		used += (size_t)snprintf(x->allow + used, sizeof x->allow - used, "%s%s%s", used ? ", " : "", routes[i].method,
					 strcmp(routes[i].method, "GET") ? "" : ", HEAD");
	}
	/* Who it is comes before what is there: without a token nobody learns which paths exist. */
	if ((!same_path || same_path->scopes) && !authenticate(s, x)) {
		*x->allow = 0;
		exchange_refuse(x, ERROR_UNAUTHORIZED, NULL);
		return;
	}
	if (!same_path) {
		exchange_refuse(x, ERROR_NO_PATH, NULL);
		return;
	}
	if (x->route == &routes[ROUTES - 1]) {
		exchange_refuse(x, ERROR_METHOD, "%.16s is not a method of this path", method);
		return;
	}
	*x->allow = 0;
	if (x->route->scopes && !(x->route->scopes & x->who.scopes))
		forbid(x);
}
