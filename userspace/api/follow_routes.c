/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/audit/stream: records, as they are written. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/server.h"
#include "auditor/auditor.h"
#include "core/limits.h"

/* Records in one batch: what the auditor finds and this process writes out in one go. */
#define BATCH 64
#define ANSWER_S (AUDITOR_FOLLOW_WAIT_MS / 1000 + AUDIT_ANSWER_S)

/* There is no more of it. Where a reader can go on is told. */
static void end(struct exchange *x, const char *reason)
{
	struct follow *f = x->follow;
	uint64_t after;

	if (f->over)
		return;
	follow_cut(f);
	after = f->args.find.after;
	(void)follow_add_last(f, "end",
			      json_pack("{s:s, s:o}", "reason", reason, "after",
					after == UINT64_MAX ? json_null() : json_integer((json_int_t)after)));
	x->conn->deadline_ns = clock_now_ns() + LIMIT_TRANSFER_S * SECOND_NS;
	exchange_stream_more(x);
}

static void fail(struct exchange *x, const char *why)
{
	struct api_error e;

	error_set(&e, ERROR_AUDITOR, "%s", why);
	(void)follow_add_last(x->follow, "error", error_json(&e));
	x->conn->deadline_ns = clock_now_ns() + LIMIT_TRANSFER_S * SECOND_NS;
	exchange_stream_more(x);
}

static void ask(struct exchange *x);

static void on_records(void *ctx, int status, const char *text, size_t len)
{
	struct exchange *x = ctx;
	struct follow *f = x->follow;

	f->request = 0;
	if (f->over || !x->conn)
		return;
	if (status != 0) {
		fail(x, status == ETIMEDOUT ? "the auditor does not answer" : "the auditor can't be asked");
		return;
	}
	if (follow_add(f, text, len) < 0) {
		fail(x, "the auditor's answer can't be read");
		return;
	}
	f->given_ns = clock_now_ns();
	if (f->at < f->len)
		exchange_stream_more(x);
	else
		ask(x);
}

static void ask(struct exchange *x)
{
	struct query q = {.type = QUERY_FOLLOW}; /* only reviewers come here, and they see every project's */
	struct follow *f = x->follow;

	q.find = f->args.find;
	q.find.limit = BATCH;
	if (runclient_query(x->server->runs, &q, ANSWER_S, on_records, x, &f->request) < 0)
		fail(x, "the auditor is gone");
}

ssize_t follow_read(struct exchange *x, char *buf, size_t max)
{
	struct follow *f = x->follow;
	size_t n = f->len - f->at;

	if (n > max)
		n = max;
	if (n > 0) {
		memcpy(buf, f->text + f->at, n);
		f->at += n;
		return (ssize_t)n;
	}
	if (f->over)
		return STREAM_READ_END;
	free(f->text);
	f->text = NULL;
	f->len = f->at = 0;
	if (!f->request)
		ask(x);
	return f->at < f->len ? follow_read(x, buf, max) : 0;
}

void follow_probe(struct exchange *x)
{
	if (!x->follow->over && follow_add_comment(x->follow) == 0)
		exchange_stream_more(x);
}

void follow_hung_up(struct exchange *x)
{
	x->follow->at = x->follow->len; /* nobody reads the rest */
	x->follow->over = true;
	exchange_stream_more(x);
}

void follow_sweep(struct server *s, struct exchange *x, uint64_t now)
{
	/* A batch is read within that, whatever a connection may do for longer. */
	const unsigned take_s = s->config->follow_take_s ? s->config->follow_take_s : LIMIT_CONNECTION_IDLE_S / 2;
	const struct follow *f = x->follow;

	if (s->stopping)
		end(x, "stopping");
	else if (f->at < f->len && now >= f->given_ns + take_s * SECOND_NS)
		end(x, "slow");
	else if (x->suspended && now >= x->last_event_ns + LIMIT_KEEP_ALIVE_S * SECOND_NS)
		follow_probe(x);
}

void follow_release(struct exchange *x)
{
	if (!x->follow)
		return;
	if (x->follow->request)
		runclient_forget(x->server->runs, x->follow->request);
	follow_clear(x->follow);
	free(x->follow);
	x->follow = NULL;
	x->server->followers--;
}

/* What a client that lost its connection sends by itself. It wins over the address, which is the one of the first time. */
static int read_last_id(struct exchange *x, struct find_args *args, struct api_error *e)
{
	const char *id = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Last-Event-ID");

	if (!id || !*id)
		return 0;
	args->has_after = true;
	return find_args_number(id, "Last-Event-ID", &args->find.after, e);
}

void handle_audit_stream(struct server *s, struct exchange *x)
{
	struct find_args args = {0};
	struct api_error e;
	char text[96];

	if (audit_read_args(x, FIND_STREAM, &args, &e) < 0 || read_last_id(x, &args, &e) < 0) {
		exchange_reply_error(x, &e);
		return;
	}
	if (s->followers >= LIMIT_AUDIT_STREAMS) {
		snprintf(text, sizeof text, "no more than %d clients follow the record at once", LIMIT_AUDIT_STREAMS);
		exchange_reply_case(x, ERROR_AUDIT_READS, text);
		return;
	}
	x->follow = runclient_auditor_up(s->runs) ? calloc(1, sizeof *x->follow) : NULL;
	if (!x->follow) {
		exchange_reply_case(x, ERROR_AUDITOR, "the auditor is gone");
		return;
	}
	s->followers++;
	if (!args.has_after)
		args.find.after = UINT64_MAX;
	x->follow->args = args;
	x->follow->named = args.find.after;
	x->follow->given_ns = clock_now_ns();
	(void)follow_add_comment(x->follow); /* the client sees at once that it is heard */
	exchange_stream_at_once(x);
}
