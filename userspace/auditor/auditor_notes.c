/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor says: into the record, and what has ended into the chain. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "auditor/auditor.h"
#include "auditor/auditor_internal.h"
#include "auditor/record.h"
#include "core/clock.h"
#include "core/log.h"

#define NOTE_BATCH 256	     /* notes written with one lock and one write */
#define NOTE_BATCHES 8	     /* in one turn: whoever waits for the sum of a run does not wait for the end of a flood */
#define SYNC_EVERY_MS 1000   /* how much a power cut may cost */
#define GRACE_MS 3000	     /* for clients after the supervisor has gone: longer than a summary may wait */
#define SIGN_MS 2000	     /* for signatures at the end */
#define LOG_EVERY_MS 1000    /* a failing disk is said again and again, but not for every record */
#define LEFT_EVERY_MS 16000  /* between looks for runs that another auditor left unfinished .. */
#define LEFT_MARGIN_MS 15000 /* .. which it would have finished by then */
#define LEFT_BATCH 64
#define FINISH_BATCH 32
#define OVER_EVERY_MS 100 /* pruning, while there is too much of what can't go yet */

int64_t auditor_now_ms(void)
{
	struct timespec ts = {0};

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

uint64_t auditor_wall_ns(void)
{
	return clock_wall_ns();
}

static void log_failure(struct auditor *a, const struct err *e)
{
	int64_t now = auditor_now_ms();

	if (now < a->log_at)
		return;
	a->log_at = now + LOG_EVERY_MS;
	log_error("%s; %llu records are lost so far", e->msg, (unsigned long long)store_stats(a->store)->unwritten);
}

void auditor_begin(struct auditor *a)
{
	if (!a->batch)
		store_begin(a->store);
	a->batch = true;
}

/* Whether everything in it is kept. */
bool auditor_commit(struct auditor *a)
{
	struct err e;
	int r = 0;

	if (!a->batch)
		return true;
	a->batch = false;
	r = store_commit(a->store, &e);
	if (r < 0) {
		log_failure(a, &e);
		asking_lost(&a->asking, auditor_now_ms());
	}
	a->last_seq = store_stats(a->store)->last_seq;
	auditor_wrote(a);
	/* What is too much goes before it is so much that nothing more can be written. */
	if (!a->pruning && a->heard_head && store_is_over(a->store) && a->pruned_ms + OVER_EVERY_MS < a->prune_at)
		a->prune_at = a->pruned_ms + OVER_EVERY_MS;
	return r == 0;
}

void auditor_wrote(struct auditor *a)
{
	if (store_dirty(a->store) && a->sync_at == INT64_MAX)
		a->sync_at = auditor_now_ms() + SYNC_EVERY_MS;
}

void auditor_owes(struct auditor *a)
{
	if (a->sync_at == INT64_MAX)
		a->sync_at = auditor_now_ms() + SYNC_EVERY_MS;
}

/* Here and not at once, so that a flood of them makes one record a second. */
static void append_gaps(struct auditor *a)
{
	if (!a->refused && !a->late)
		return;
	auditor_begin(a);
	if (a->refused)
		store_append_gap(a->store, RECORD_GAP_REFUSED, a->refused, "notes that were not well-formed");
	if (a->late)
		store_append_gap(
		    a->store, RECORD_GAP_LATE, a->late,
		    "runs whose client told what it saw after they were summed up without: it is not in the record");
	a->refused = a->late = 0;
	auditor_commit(a);
}

void auditor_sync(struct auditor *a)
{
	struct err e;

	append_gaps(a);
	if (store_sync(a->store, &e) < 0)
		log_error("%s", e.msg);
	a->sync_at = INT64_MAX;
	a->asking.look = true; /* only what is durable is asked for */
}

/* ---- runs that have ended: summed up, chained, signed ---- */

/* False: it can't be summed up. Whoever looks for those that are left tries again. */
static bool finish(struct auditor *a, const char *run_id)
{
	int64_t now = auditor_now_ms();
	uint8_t hash[CHAIN_HASH];
	int r;

	if (store_run_hash(a->store, run_id, hash) == 0)
		return true;
	auditor_begin(a);
	r = store_finish(a->store, run_id);
	a->asking.look = true;
	if (r < 0 && now >= a->log_at) {
		a->log_at = now + LOG_EVERY_MS;
		log_error("can't sum up the run %s: %s; it is tried again, and the others go on", run_id, strerror(-r));
	}
	return r == 0;
}

/* In pieces: what others want of the record meanwhile does not wait for all of them. */
bool auditor_finish_ended(struct auditor *a, int64_t now)
{
	const char *id = NULL;

	for (int i = 0; i < FINISH_BATCH && (id = ending_take(a->ending, now)); i++)
		finish(a, id);
	auditor_commit(a);
	return id != NULL;
}

/* A window, and the whole of a session, have no client that waits for them. */
static bool has_no_client(const struct note *note)
{
	return note->type == NOTE_WINDOW_END || (note->end.cell && strcmp(note->run_id, note->sandbox_id) == 0);
}

/* Into the open batch. */
static void has_ended(struct auditor *a, const struct note *note)
{
	a->ends++;
	if (has_no_client(note)) {
		finish(a, note->run_id);
		return;
	}
	if (ending_add(a->ending, note->run_id, auditor_now_ms() + AUDITOR_CONTENT_WAIT_MS))
		return;
	finish(a, ending_take(a->ending, INT64_MAX));
	(void)ending_add(a->ending, note->run_id, auditor_now_ms() + AUDITOR_CONTENT_WAIT_MS);
}

/*
 * Those of an auditor that died: all that had ended when this one started if it was alone then, else those that the one they
 * are of would have finished. A piece of them.
 */
void auditor_finish_left(struct auditor *a)
{
	static char ids[LEFT_BATCH][IPC_ID_MAX];
	uint64_t before = auditor_wall_ns() - (uint64_t)LEFT_MARGIN_MS * 1000000;
	size_t n;

	if (store_alone(a->store) && before < a->started_ns)
		before = a->started_ns;
	n = store_unfinished(a->store, before, a->left_skip, ids, LEFT_BATCH);
	for (size_t i = 0; i < n; i++)
		a->left_skip += !finish(a, ids[i]);
	/* What could not be done is tried again later, not in a circle. */
	if (auditor_commit(a) && n == LEFT_BATCH) {
		a->left_at = auditor_now_ms();
		return;
	}
	a->left_at = auditor_now_ms() + LEFT_EVERY_MS;
	a->left_skip = 0;
}

/* NOTE_HEAD, between batches; and NOTE_SIGNED, of which there may be many at once. */
static void hear_keeper(struct auditor *a, const struct note *note)
{
	struct err e;
	int r;

	if (note->type == NOTE_SIGNED) {
		auditor_begin(a);
		r = asking_signed(&a->asking, a->store, note, auditor_now_ms(), &e);
		if (a->pruning)
			a->prune_at = auditor_now_ms();
	} else {
		auditor_commit(a);
		r = asking_head(&a->asking, a->store, &note->head, auditor_now_ms(), &e);
	}
	if (note->type == NOTE_HEAD && !a->heard_head) {
		a->heard_head = true;
		a->left_at = a->prune_at = auditor_now_ms();
	}
	if (r == STORE_BROKEN)
		log_error("the record is not the one that was signed last: see `weir audit verify`; it goes on behind a break");
	else if (r == STORE_ADOPTED)
		log_warn(
		    "the record has entries that nobody had signed when this service started: they are taken over as such");
	else if (r < 0)
		log_error("%s", e.msg);
	auditor_wrote(a);
}

/* ---- notes ---- */

static void supervisor_gone(struct auditor *a)
{
	while (auditor_finish_ended(a, INT64_MAX))
		;
	auditor_sync(a);
	(void)epoll_ctl(a->epoll, EPOLL_CTL_DEL, a->supervisor, NULL);
	close(a->supervisor);
	a->supervisor = -1;
	a->quit_at = auditor_now_ms() + GRACE_MS;
}

static void keep(struct auditor *a, const struct note *note)
{
	auditor_begin(a);
	store_append(a->store, note);
	if (note->type == NOTE_RUN_END || note->type == NOTE_WINDOW_END)
		has_ended(a, note);
}

/* One note. Returns false when the connection is over. */
static bool take_note(struct auditor *a, const struct note *note, ssize_t n)
{
	const char *problem;

	if (n == 0)
		return false;
	if (n != sizeof *note || note->type == NOTE_NONE || note->type > NOTE_FLUSH) {
		/* Out of step with our own supervisor: nothing it says from here on would mean what it seems to. */
		log_error("the supervisor sent what is no note (%zd bytes): its connection is closed", n);
		a->refused++;
		return false;
	}
	problem = record_note_problem(note);
	if (problem) {
		if (a->refused++ == 0)
			log_error("a note of type %u was refused: bad %s", note->type, problem);
	} else if (note->type == NOTE_FLUSH) {
		a->flushed = true;
		a->flush_until = auditor_now_ms() + SIGN_MS;
	} else if (note->type == NOTE_HEAD || note->type == NOTE_SIGNED) {
		hear_keeper(a, note);
	} else {
		keep(a, note);
	}
	return true;
}

/* One batch. Returns whether there may be more. */
static bool read_notes(struct auditor *a)
{
	bool more = true, full = true;
	struct note note;

	for (int i = 0; more && i < NOTE_BATCH; i++) {
		ssize_t n = ipc_recv(a->supervisor, &note, sizeof note, NULL, NULL);

		if (n == -EAGAIN) {
			full = false;
			break;
		}
		more = take_note(a, &note, n);
	}
	auditor_commit(a);
	if (a->refused)
		auditor_owes(a);
	if (!more)
		supervisor_gone(a);
	return more && full;
}

/* After NOTE_FLUSH: the supervisor answers what it is still asked for, and takes our end of stream for the end of it all. */
void auditor_flush(struct auditor *a)
{
	struct chain_head end;

	if (!a->flushed || a->supervisor < 0)
		return;
	while (auditor_finish_ended(a, INT64_MAX))
		;
	if (store_head(a->store, &end) == 0 && end.n != a->flushed_n) {
		auditor_sync(a);
		a->flushed_n = end.n;
	}
	asking_send(&a->asking, a->store, a->supervisor, auditor_now_ms());
	if (!asking_waits(&a->asking) || auditor_now_ms() >= a->flush_until)
		supervisor_gone(a);
}

/*
 * What was tried goes before what is asked: so that nobody can keep attempts out of the record by reading it. Room for it goes
 * before both.
 */
void auditor_read_notes(struct auditor *a)
{
	for (int i = 0; i < NOTE_BATCHES && a->supervisor >= 0 && read_notes(a); i++)
		if (a->heard_head && a->prune_at <= auditor_now_ms())
			return;
}
