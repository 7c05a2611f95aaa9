/* SPDX-License-Identifier: Apache-2.0 */
/* What the service answers, and to whom. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/server.h"
#include "core/cleanup.h"
#include "core/limits.h"

static void reply_case(struct server *s, struct exchange *x, enum error_case kase, const char *message)
{
	struct api_error e;

	if (message)
		error_set(&e, kase, "%s", message);
	else
		error_set(&e, kase, NULL);
	exchange_reply_error(s, x, &e);
}

/* ---- POST /v1/execute ---- */

static void on_granted(void *ctx)
{
	struct exchange *x = ctx;

	quota_granted(&x->slot);
}

static void on_done(void *ctx, const struct run_result *result)
{
	struct exchange *x = ctx;
	struct server *s = x->conn->server;
	struct api_error e;
	json_t *body = NULL;

	x->run = 0;
	if (result->outcome == RUN_DONE && !x->gone)
		body = answer_result(result);
	if (body) {
		exchange_reply_json(s, x, 200, body);
		return;
	}
	answer_error(result, &e);
	exchange_reply_error(s, x, &e);
}

static void execute_start(struct server *s, struct exchange *x)
{
	struct run_request request = {.project = x->who.project,
				      .code = TAKE_PTR(x->execute.code),
				      .code_len = x->execute.code_len,
				      .timeout_s = x->execute.timeout_s,
				      .arrived_ns = x->arrived_ns,
				      .granted = on_granted,
				      .done = on_done,
				      .ctx = x};
	struct api_error e;
	int r = runclient_start(s->runs, &request, &x->run);

	if (r == 0)
		return;
	if (r == -EPIPE)
		error_set(&e, ERROR_SANDBOX, "sandbox failed at layer supervisor: it is gone");
	else
		error_set(&e, ERROR_INTERNAL, NULL);
	exchange_reply_error(s, x, &e);
}

void execute_next(struct server *s)
{
	struct quota_slot *slot;

	while (!s->stopping && (slot = quota_next(&s->quota)))
		execute_start(s, (struct exchange *)((char *)slot - offsetof(struct exchange, slot)));
}

void execute_answer_waiting(struct server *s, struct exchange *x, enum error_case kase)
{
	/* Out of the line first: an answered exchange that is still in it would be given a run, and be freed under that. */
	quota_leave(&s->quota, &x->slot);
	reply_case(s, x, kase, NULL);
}

/* A request that its project's own other runs keep from even asking waits no longer than one that asked. */
void execute_expire(struct server *s, struct exchange *x, uint64_t now)
{
	if (x->state != EXCHANGE_WAIT || x->slot.state != QUOTA_QUEUED)
		return;
	if (s->stopping)
		execute_answer_waiting(s, x, ERROR_STOPPING);
	else if (now >= x->arrived_ns + LIMIT_POOL_WAIT_S * SECOND_NS)
		execute_answer_waiting(s, x, ERROR_NO_SANDBOX);
}

void execute_release(struct server *s, struct exchange *x)
{
	/*
	 * Here, when the answer has been sent, and not when the run ended: answers are the largest thing a project can make
	 * this process hold, and a client that reads them slowly holds up nobody but its own project.
	 */
	quota_leave(&s->quota, &x->slot);
	free(x->execute.code);
}

static void handle_execute(struct server *s, struct exchange *x)
{
	struct api_error e;
	int r;

	if (request_parse_execute(x->body, x->body_len, &x->execute, &e) < 0) {
		exchange_reply_error(s, x, &e);
		return;
	}
	s->bodies_bytes -= x->body_room;
	free(x->body);
	x->body = NULL;
	x->body_len = x->body_room = 0;
	r = quota_enter(&s->quota, &x->slot, x->who.project);
	if (r == -EDQUOT) {
		error_set(&e, ERROR_QUOTA, "project %s is over its quota of %d waiting runs", x->who.project,
			  LIMIT_PROJECT_WAITING);
		exchange_reply_error(s, x, &e);
	} else if (r < 0) {
		reply_case(s, x, ERROR_INTERNAL, NULL);
	} else if (r == 1) {
		execute_start(s, x);
	}
}

/* ---- the others ---- */

static void handle_healthz(struct server *s, struct exchange *x)
{
	exchange_reply_json(s, x, 200, json_pack("{s:s}", "status", "ok"));
}

static void handle_readyz(struct server *s, struct exchange *x)
{
	const struct tell_pool *p = runclient_pool(s->runs);

	if (!p)
		reply_case(s, x, ERROR_NOT_READY, "the supervisor has not reported yet");
	else if (!p->ready)
		reply_case(s, x, ERROR_NOT_READY, *p->not_ready ? p->not_ready : "the supervisor is not ready");
	else if (!runclient_auditor_up(s->runs))
		reply_case(s, x, ERROR_NOT_READY, "the auditor is gone");
	else
		exchange_reply_json(s, x, 200, json_pack("{s:s}", "status", "ready"));
}

static void on_pool(void *ctx, const struct tell_pool *p)
{
	struct exchange *x = ctx;
	struct server *s = x->conn->server;

	if (!p) {
		reply_case(s, x, ERROR_SANDBOX, "the supervisor does not answer");
		return;
	}
	exchange_reply_json(s, x, 200,
			    json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I}", "size", (int)p->size, "warm", (int)p->warm,
				      "starting", (int)p->starting, "in_use", (int)p->in_use, "waiting", (int)p->waiting,
				      "served", (json_int_t)p->served, "misses", (json_int_t)p->misses));
}

static void handle_pool(struct server *s, struct exchange *x)
{
	if (runclient_ask_pool(s->runs, on_pool, x) < 0)
		reply_case(s, x, ERROR_SANDBOX, "the supervisor is gone");
}

static void on_audit(void *ctx, int status, const char *text, size_t len)
{
	struct exchange *x = ctx;
	struct server *s = x->conn->server;
	char *copy;

	s->audit_reads--;
	if (status == EAGAIN) {
		reply_case(s, x, ERROR_QUOTA, "too many audit records are being read at once");
	} else if (status == ENOENT) {
		reply_case(s, x, ERROR_NOT_FOUND, NULL);
	} else if (status != 0) {
		reply_case(s, x, ERROR_AUDITOR,
			   status == ETIMEDOUT ? "the end of this run has not been recorded" : "the auditor does not answer");
	} else {
		copy = malloc(len + 1);
		if (copy) {
			memcpy(copy, text, len);
			copy[len] = '\n'; /* as every other answer ends */
		}
		exchange_reply_text(s, x, 200, copy, len + 1);
	}
}

static void handle_run_audit(struct server *s, struct exchange *x)
{
	/* A reviewer sees every project's; for others a run of another project does not exist. */
	const char *project = x->who.scopes & SCOPE_REVIEWER ? "" : x->who.project;

	char text[96];

	if (s->audit_reads >= LIMIT_AUDIT_READS) {
		snprintf(text, sizeof text, "no more than %d audit records are read at once", LIMIT_AUDIT_READS);
		reply_case(s, x, ERROR_QUOTA, text);
		return;
	}
	s->audit_reads++;
	if (runclient_audit(s->runs, x->param, project, on_audit, x) < 0) {
		s->audit_reads--;
		reply_case(s, x, ERROR_AUDITOR, "the auditor is gone");
	}
}

/* ---- the table ---- */

static const struct route routes[] = {
    {"POST", "/v1/execute", SCOPE_PROJECT, LIMIT_BODY_BYTES, handle_execute, "run one Python snippet in a single-use sandbox"},
    {"GET", "/v1/pool", SCOPE_OPERATOR, 0, handle_pool, "pool status"},
    {"GET", "/v1/runs/{run_id}/audit", SCOPE_PROJECT | SCOPE_REVIEWER, 0, handle_run_audit, "everything one run tried"},
    {"GET", "/healthz", 0, 0, handle_healthz, "the process serves"},
    {"GET", "/readyz", 0, 0, handle_readyz, "policy verified in force and pool warm"},
    {"*", NULL, SCOPE_ALL, 0, NULL, "anything else"},
};
#define ROUTES (sizeof routes / sizeof *routes)

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
	struct bearers b = {0};
	uint8_t digest[TOKEN_DIGEST_LEN];
	const char *token;
	size_t len;

	MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, find_bearer, &b);
	if (b.count != 1 || !b.value || !token_from_header(b.value, &token, &len) || !s->config->has_dev_token)
		return false;
	token_digest(token, len, digest);
	if (!token_digest_equal(digest, s->config->dev_token_sha256))
		return false;
	snprintf(x->who.project, sizeof x->who.project, "dev");
	x->who.scopes = SCOPE_ALL;
	return true;
}

void route_exchange(struct server *s, struct exchange *x, const char *method, const char *path)
{
	/* libmicrohttpd answers HEAD with the headers of GET and no body by itself. */
	const char *wanted = !strcmp(method, "HEAD") ? "GET" : method;
	const struct route *same_path = NULL;
	size_t used = 0;

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
		exchange_refuse(x, ERROR_NOT_FOUND, NULL);
		return;
	}
	if (x->route == &routes[ROUTES - 1]) {
		exchange_refuse(x, ERROR_METHOD, "%.16s is not a method of this path", method);
		return;
	}
	*x->allow = 0;
	if (x->route->scopes && !(x->route->scopes & x->who.scopes))
		exchange_refuse(x, ERROR_FORBIDDEN, NULL);
}
