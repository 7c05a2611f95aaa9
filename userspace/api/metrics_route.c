/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /metrics. The supervisor and the auditor are asked for theirs once, however many ask for them meanwhile: all get the
 * same. One of them that does not answer is told by its weir_process_up, and its figures are not there.
 */
#include <stdlib.h>
#include <string.h>

#include "api/metrics_text.h"
#include "api/server.h"
#include "core/limits.h"
#include "core/log.h"

#define STATS_ANSWER_S 2

struct scrape {
	struct server *server;
	struct exchange *waiting; /* all are suspended, so none of them goes away meanwhile */
	unsigned open;		  /* questions */
	struct metrics *supervisor;
	json_t *auditor;
};

static unsigned count_waiting(const struct server *s)
{
	unsigned n = s->quota.queued;

	for (const struct conn *c = s->conns; c; c = c->next)
		n += c->exchange && c->exchange->slot.state == QUOTA_PARKED;
	return n;
}

static void reply(struct exchange *x, const char *text, size_t len)
{
	char *copy = text ? malloc(len) : NULL;

	if (copy) {
		memcpy(copy, text, len);
		x->text_type = METRICS_TYPE;
	}
	exchange_reply_text(x, 200, copy, len);
}

static void finish(struct scrape *sc)
{
	struct server *s = sc->server;
	const struct metrics_view view = {
	    .supervisor = sc->supervisor,
	    .auditor = sc->auditor,
	    .counts = &s->counts,
	    .has_collector = s->config->collector_fd >= 0,
	    .collector_up = runclient_collector_up(s->runs),
	    .connections = s->conn_count,
	    .followers = s->followers,
	    .waiting = count_waiting(s),
	    .request_bytes = s->requests.total,
	    .answer_bytes = s->answers.total,
	};
	size_t len = 0;
	char *text = metrics_text(&view, &len);
	struct exchange *x;

	s->scrape = NULL;
	while ((x = sc->waiting)) {
		sc->waiting = x->scrape;
		x->scrape = NULL;
		reply(x, text, len);
	}
	free(text);
	free(sc->supervisor);
	json_decref(sc->auditor);
	free(sc);
}

static void on_supervisor(void *ctx, const struct metrics *m)
{
	struct scrape *sc = ctx;

	sc->supervisor = m ? malloc(sizeof *m) : NULL;
	if (sc->supervisor)
		memcpy(sc->supervisor, m, sizeof *m);
	if (--sc->open == 0)
		finish(sc);
}

static void on_auditor(void *ctx, int status, const char *text, size_t len)
{
	struct scrape *sc = ctx;

	if (status == 0)
		sc->auditor = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(sc->auditor)) {
		json_decref(sc->auditor);
		sc->auditor = NULL;
	}
	if (--sc->open == 0)
		finish(sc);
}

static void begin(struct server *s, struct scrape *sc)
{
	const struct query q = {.type = QUERY_STATS};

	sc->server = s;
	s->scrape = sc;
	/* Held open until both were tried: neither answers before this returns. */
	if (runclient_ask_metrics(s->runs, on_supervisor, sc) == 0)
		sc->open++;
	if (runclient_query(s->runs, &q, STATS_ANSWER_S, on_auditor, sc, NULL) == 0)
		sc->open++;
	if (sc->open == 0)
		finish(sc);
}

void handle_metrics(struct server *s, struct exchange *x)
{
	struct scrape *sc = s->scrape;

	if (sc) {
		x->scrape = sc->waiting;
		sc->waiting = x;
		return;
	}
	sc = calloc(1, sizeof *sc);
	if (!sc) {
		exchange_reply_case(x, ERROR_INTERNAL, NULL);
		return;
	}
	sc->waiting = x;
	begin(s, sc);
}
