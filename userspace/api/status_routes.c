/* SPDX-License-Identifier: Apache-2.0 */
/* The routes that only report: the process, the pool, the record, and what the service is. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/describe.h"
#include "api/server.h"
#include "auditor/store.h"
#include "auditor/view.h"
#include "core/limits.h"

void handle_healthz(struct server *s, struct exchange *x)
{
	(void)s;
	exchange_reply_json(x, 200, json_pack("{s:s}", "status", "ok"));
}

/* With --policy-only. */
static void reply_not_in_force(struct exchange *x, const char *what)
{
	struct api_error e;

	error_set(&e, ERROR_NOT_READY, "%s", what);
	error_set_hint(&e, "`weir status` says what is wrong with each, and what mends it");
	exchange_reply_error(x, &e);
}

void handle_readyz(struct server *s, struct exchange *x)
{
	const struct tell_pool *p = runclient_pool(s->runs);
	const bool without_sandboxes = s->config->collector_fd < 0; /* and so without files of theirs */

	if (!p)
		exchange_reply_case(x, ERROR_NOT_READY, "the supervisor has not reported yet");
	else if (!p->ready && without_sandboxes)
		reply_not_in_force(x, p->not_ready);
	else if (!p->ready)
		exchange_reply_case(x, ERROR_NOT_READY, *p->not_ready ? p->not_ready : "the supervisor is not ready");
	else if (!runclient_auditor_up(s->runs))
		exchange_reply_case(x, ERROR_NOT_READY, "the auditor is gone");
	else if (!without_sandboxes && !runclient_collector_up(s->runs))
		exchange_reply_case(x, ERROR_NOT_READY, "the collector is gone");
	else
		exchange_reply_json(x, 200, json_pack("{s:s}", "status", "ready"));
}

/* ---- GET /v1/pool ---- */

static json_t *wait_ms(uint32_t us, size_t count)
{
	if (count == 0)
		return json_null();
	return us % 1000 ? json_real((double)us / 1000) : json_integer(us / 1000);
}

static json_t *waits_json(const struct waits *w)
{
	struct waits_summary sum;

	waits_sum_up(w, &sum);
	return json_pack("{s:I, s:o, s:o, s:o, s:o}", "count", (json_int_t)sum.count, "p50", wait_ms(sum.p50, sum.count), "p90",
			 wait_ms(sum.p90, sum.count), "p99", wait_ms(sum.p99, sum.count), "max", wait_ms(sum.max, sum.count));
}

static void on_pool(void *ctx, const struct tell_pool *p)
{
	struct exchange *x = ctx;
	struct server *s = x->server;

	if (!p) {
		exchange_reply_case(x, ERROR_SANDBOX, "the supervisor does not answer");
		return;
	}
	exchange_reply_json(x, 200,
			    json_pack("{s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:o}", "size", (int)p->size, "warm", (int)p->warm,
				      "starting", (int)p->starting, "in_use", (int)p->in_use, "waiting",
				      (json_int_t)p->waiting + s->quota.queued, "served", (json_int_t)p->served, "misses",
				      (json_int_t)p->misses, "wait_ms", waits_json(&s->waits)));
}

void handle_pool(struct server *s, struct exchange *x)
{
	if (runclient_ask_pool(s->runs, on_pool, x) < 0)
		exchange_reply_case(x, ERROR_SANDBOX, "the supervisor is gone");
}

/* ---- GET /v1/runs/{run_id} and …/audit ---- */

static void reply_run(struct exchange *x, json_t *record)
{
	audit_was_read(x);
	exchange_reply_json(x, 200, record);
}

/* It may have ended since the auditor spoke: then that is the answer, and the next one will know more. */
static void on_usage(void *ctx, const struct tell_usage *now)
{
	struct exchange *x = ctx;
	json_t *record = x->record;
	uint64_t output;
	bool known;

	x->record = NULL;
	if (now && now->there) {
		known = runclient_output(x->server->runs, x->param, &output);
		if (view_put_live(record, now, known ? &output : NULL) < 0) {
			json_decref(record);
			record = NULL;
		}
	}
	reply_run(x, record);
}

static bool goes_on(const json_t *record)
{
	const char *state = json_string_value(json_object_get(record, "state"));

	return state && !strcmp(state, store_state_names[STORE_RUNNING]);
}

static void on_run(void *ctx, int status, const char *text, size_t len)
{
	struct exchange *x = ctx;
	json_t *record;

	if (status != 0) {
		audit_was_read(x);
		audit_record_missing(x, status);
		return;
	}
	record = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(record)) {
		json_decref(record);
		audit_was_read(x);
		exchange_reply_case(x, ERROR_AUDITOR, "the auditor's answer can't be read");
		return;
	}
	json_object_del(record, "events");
	/* The auditor has found out whose it is, and that the asker may know of it. */
	x->record = goes_on(record) ? record : NULL;
	if (!x->record || runclient_ask_usage(x->server->runs, x->param, on_usage, x) < 0) {
		x->record = NULL;
		reply_run(x, record);
	}
}

static void ask_record(struct server *s, struct exchange *x, void (*done)(void *, int, const char *, size_t))
{
	/* A reviewer sees every project's; for others a run of another project, or another agent's call, does not exist. */
	bool reviewer = x->who.scopes & SCOPE_REVIEWER;
	struct query q = {.type = QUERY_RUN};
	struct find_args none = {0};
	struct api_error e;

	if (audit_read_args(x, FIND_NONE, &none, &e) < 0) {
		exchange_reply_error(x, &e);
		return;
	}
	snprintf(q.run_id, sizeof q.run_id, "%s", x->param);
	snprintf(q.project, sizeof q.project, "%s", reviewer ? "" : x->who.project);
	snprintf(q.agent, sizeof q.agent, "%s", reviewer ? "" : x->who.agent);
	audit_ask(s, x, &q, done);
}

void handle_run(struct server *s, struct exchange *x)
{
	ask_record(s, x, on_run);
}

void handle_run_audit(struct server *s, struct exchange *x)
{
	ask_record(s, x, audit_reply);
}

/* ---- what the service is ---- */

void handle_limits(struct server *s, struct exchange *x)
{
	(void)s;
	exchange_reply_json(x, 200, describe_limits());
}

void handle_openapi(struct server *s, struct exchange *x)
{
	struct described_route *described;
	size_t count;
	const struct route *routes = route_table(&count);

	(void)s;
	described = calloc(count, sizeof *described);
	for (size_t i = 0; described && i < count; i++)
		described[i] = (struct described_route){.method = routes[i].method,
							.pattern = routes[i].pattern,
							.summary = routes[i].summary,
							.scopes = routes[i].scopes,
							.max_body = routes[i].max_body};
	exchange_reply_json(x, 200, described ? describe_openapi(described, count) : NULL);
	free(described);
}
