/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session runs one cell at a time. The others wait in its line, in the order in which they came, each in one of its
 * project's waiting places; only the first of a line asks for one of the places of those that run, and only when the session
 * is idle. A line is there as long as somebody stands in it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/server.h"

struct cell_line {
	struct cell_line *prev, *next;
	struct exchange *first, *last; /* all of one session and project */
	bool alive;		       /* while the lines are compared with the sessions there are */
};

int cells_enter(struct server *s, struct exchange *x, struct session *session)
{
	struct cell_line *line = session->owner;

	if (!line) {
		line = calloc(1, sizeof *line);
		if (!line)
			return -ENOMEM;
		line->next = s->lines;
		if (line->next)
			line->next->prev = line;
		s->lines = line;
		session->owner = line;
	}
	x->line = line;
	x->line_prev = line->last;
	*(line->last ? &line->last->line_next : &line->first) = x;
	line->last = x;
	return 0;
}

void cells_leave(struct exchange *x)
{
	struct cell_line *line = x->line;
	struct session *session;

	if (!line)
		return;
	*(x->line_prev ? &x->line_prev->line_next : &line->first) = x->line_next;
	*(x->line_next ? &x->line_next->line_prev : &line->last) = x->line_prev;
	x->line = NULL;
	x->line_prev = x->line_next = NULL;
	if (line->first)
		return;
	/* One that is ending is not found, and its `owner` is not looked at again. */
	session = session_of(x, x->execute.session_id);
	if (session)
		session->owner = NULL;
	*(line->prev ? &line->prev->next : &x->server->lines) = line->next;
	if (line->next)
		line->next->prev = line->prev;
	free(line);
}

static void start(struct server *s, struct exchange *x, struct session *session)
{
	cells_leave(x);
	execute_start(s, x, session);
}

void cells_next(struct server *s, struct session *session)
{
	struct cell_line *line;

	while (!s->stopping && session->state == SESSION_IDLE && (line = session->owner)) {
		struct exchange *x = line->first;

		if (x->slot.state != QUOTA_PARKED || quota_unpark(&s->quota, &x->slot) == 0)
			return; /* it waits for its project's other runs */
		start(s, x, session);
	}
}

void cells_start(struct server *s, struct exchange *x)
{
	struct session *session = session_of(x, x->execute.session_id);

	if (!session) {
		execute_answer_waiting(s, x, ERROR_NOT_FOUND, NULL);
		return;
	}
	start(s, x, session);
	cells_next(s, session); /* when it could not be started */
}

static void dismiss(struct server *s, struct cell_line *line)
{
	bool more = true;

	while (more) {
		struct exchange *x = line->first;

		more = line->last != x; /* the line goes with the last of it */
		cells_leave(x);
		quota_leave(&s->quota, &x->slot);
		exchange_reply_case(x, ERROR_NOT_FOUND, NULL);
	}
}

void cells_on_session(void *ctx, struct session *session)
{
	struct server *s = ctx;

	if (session && s->stopping) {
		runclient_session_close(s->runs, session);
		return;
	}
	if (session) {
		cells_next(s, session);
		return;
	}
	/* Some session is gone: whichever has a line and is not there any more. */
	for (session = runclient_session_next(s->runs, NULL); session; session = runclient_session_next(s->runs, session))
		if (session->owner && (session->state == SESSION_IDLE || session->state == SESSION_BUSY))
			((struct cell_line *)session->owner)->alive = true;
	for (struct cell_line *line = s->lines, *next; line; line = next) {
		next = line->next;
		if (!line->alive)
			dismiss(s, line);
		else
			line->alive = false;
	}
}
