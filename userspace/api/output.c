/* SPDX-License-Identifier: Apache-2.0 */
/* The pipes of a run: what is kept of them, and what is only counted. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/runclient_priv.h"
#include "core/limits.h"

/* What is kept grows from here, doubling, to its cap: most runs print little. */
#define OUT_FIRST 4096
/* Reads from one pipe before the others get their turn. */
#define READ_BATCH 8
/* A cell that has ended is frozen, and what a pipe holds is all there is; this much more would be a writer that is not. */
#define DRAIN_BYTES (2u << 20)

void run_tell_progress(struct run *run)
{
	if (run->request.progress && run->state >= RUN_RUNNING)
		run->request.progress(run->request.ctx, &run->result);
}

/* Makes room to keep more, up to the cap. Returns how much can be read into the kept buffer, 0 at the cap or without memory. */
static size_t keep_room(struct run *run, enum run_stream s)
{
	struct run_result *r = &run->result;
	size_t room = run->out_room[s], cap = s == RUN_RESULT ? RUN_RESULT_BYTES : run->request.output_bytes;

	if (r->out_len[s] < room)
		return room - r->out_len[s];
	if (room >= cap)
		return 0;
	room = room ? room * 2 : OUT_FIRST;
	if (room > cap)
		room = cap;
	{
		char *grown = realloc(r->out[s], room);

		if (!grown)
			return 0; /* counted as cut; ends the run like the cap does */
		r->out[s] = grown;
	}
	run->out_room[s] = room;
	return room - r->out_len[s];
}

/* `n` bytes more, behind what is kept. Of a result its frame's header is none of it: that is between us and the harness. */
static void note_read(struct run *run, enum run_stream s, size_t n, bool kept)
{
	static const enum content_kind kinds[RUN_PIPES] = {
	    [RUN_STDOUT] = CONTENT_STDOUT, [RUN_STDERR] = CONTENT_STDERR, [RUN_RESULT] = CONTENT_RESULT};
	size_t from = run->result.out_len[s], head = s == RUN_RESULT ? sizeof(struct result_header) : 0;
	size_t skip = from < head ? head - from : 0;

	if (skip > n)
		skip = n;
	if (kept)
		content_add(&run->content, kinds[s], run->result.out[s] + from + skip, n - skip);
	else
		content_count(&run->content, kinds[s], n);
}

enum read_result { READ_MORE, READ_EMPTY, READ_END };

static enum read_result read_once(struct runclient *rc, struct run *run, enum run_stream s)
{
	struct run_result *r = &run->result;
	size_t room = keep_room(run, s);
	ssize_t n;

	do
		n = read(run->fds[s], room ? r->out[s] + r->out_len[s] : rc->scratch, room ? room : sizeof rc->scratch);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return READ_EMPTY;
	if (n <= 0) {
		if (s == RUN_RESULT)
			r->result_ended = n == 0;
		return READ_END;
	}
	r->out_bytes[s] += (uint64_t)n;
	note_read(run, s, (size_t)n, room > 0);
	if (room) {
		r->out_len[s] += (size_t)n;
		return READ_MORE;
	}
	if (s == RUN_RESULT)
		return READ_END; /* no result any more, whatever follows: closing the pipe is the end of it for its writer */
	if (run->first_over < 0)
		run->first_over = (int)s;
	if (run->state == RUN_RUNNING)
		run_ask_kill(rc, run, RUN_END_OUTPUT);
	return READ_MORE;
}

bool output_read(struct runclient *rc, struct run *run, enum run_stream s)
{
	size_t before = run->result.out_len[s];
	enum read_result got = READ_MORE;

	for (int i = 0; i < READ_BATCH && got == READ_MORE; i++)
		got = read_once(rc, run, s);
	if (run->result.out_len[s] > before)
		run_tell_progress(run);
	return got == READ_END;
}

void output_drain(struct runclient *rc, struct run *run)
{
	const struct run_result *r = &run->result;
	size_t before = r->out_len[RUN_STDOUT] + r->out_len[RUN_STDERR];

	for (int s = 0; s < RUN_STREAMS; s++) {
		uint64_t bytes = r->out_bytes[s];

		while (run->fds[s] >= 0 && r->out_bytes[s] - bytes < DRAIN_BYTES &&
		       read_once(rc, run, (enum run_stream)s) == READ_MORE)
			;
	}
	if (r->out_len[RUN_STDOUT] + r->out_len[RUN_STDERR] > before)
		run_tell_progress(run);
}

void output_add_timeout_words(struct run *run)
{
	struct run_result *r = &run->result;
	size_t len = r->out_len[RUN_STDERR];
	char *grown = realloc(r->out[RUN_STDERR], len + 64);

	if (!grown)
		return; /* termination says the same */
	if (len > 0 && grown[len - 1] != '\n')
		grown[len++] = '\n';
	len += (size_t)sprintf(grown + len, "timed out after %us", run->request.timeout_s);
	r->out[RUN_STDERR] = grown;
	r->out_len[RUN_STDERR] = len;
}
