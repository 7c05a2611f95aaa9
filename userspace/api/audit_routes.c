/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/audit: runs, by what they did. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/server.h"
#include "core/limits.h"

struct reading {
	struct find_args *args;
	enum find_route route;
	struct api_error *e;
	int r;
};

static enum MHD_Result read_parameter(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct reading *r = ctx;

	(void)kind;
	r->r = find_args_take(r->args, r->route, name, value, r->e);
	return r->r < 0 ? MHD_NO : MHD_YES;
}

int audit_read_args(struct exchange *x, enum find_route route, struct find_args *ret, struct api_error *e)
{
	struct reading r = {.args = ret, .route = route, .e = e};

	MHD_get_connection_values(x->mhd, MHD_GET_ARGUMENT_KIND, read_parameter, &r);
	return r.r;
}

static bool may_read(struct server *s, struct exchange *x)
{
	char text[128];

	x->read = reads_begin(&s->reads, x->who.scopes & SCOPE_REVIEWER ? "" : x->who.project);
	if (x->read >= 0)
		return true;
	snprintf(text, sizeof text, "no more than %d audit records are read at once, and of one project %d while others read",
		 LIMIT_AUDIT_READS, READS_SHARE);
	exchange_reply_case(x, ERROR_AUDIT_READS, text);
	return false;
}

void audit_was_read(struct exchange *x)
{
	reads_end(&x->server->reads, x->read);
}

void audit_record_missing(struct exchange *x, int status)
{
	if (status == EAGAIN)
		exchange_reply_case(x, ERROR_AUDIT_READS, "too many audit records are being read at once");
	else if (status == ENOENT)
		exchange_reply_case(x, ERROR_NO_RUN, NULL);
	else if (status == ETIMEDOUT && *x->param)
		exchange_reply_case(x, ERROR_AUDITOR, "the end of this run has not been recorded");
	else
		exchange_reply_case(x, ERROR_AUDITOR, "the auditor does not answer");
}

void audit_reply(void *ctx, int status, const char *text, size_t len)
{
	struct exchange *x = ctx;
	char *copy;

	audit_was_read(x);
	if (status != 0) {
		audit_record_missing(x, status);
		return;
	}
	copy = malloc(len + 1);
	if (copy) {
		memcpy(copy, text, len);
		copy[len] = '\n'; /* as every other answer ends */
	}
	exchange_reply_text(x, 200, copy, len + 1);
}

void audit_ask(struct server *s, struct exchange *x, const struct query *q, void (*done)(void *, int, const char *, size_t))
{
	if (!may_read(s, x))
		return;
	if (runclient_query(s->runs, q, AUDIT_ANSWER_S, done, x, NULL) < 0) {
		audit_was_read(x);
		exchange_reply_case(x, ERROR_AUDITOR, "the auditor is gone");
	}
}

void handle_audit_search(struct server *s, struct exchange *x)
{
	struct query q = {.type = QUERY_SEARCH}; /* only reviewers come here, and they see every project's */
	struct find_args args = {0};
	struct api_error e;

	if (audit_read_args(x, FIND_SEARCH, &args, &e) < 0) {
		exchange_reply_error(x, &e);
		return;
	}
	q.find = args.find;
	audit_ask(s, x, &q, audit_reply);
}
