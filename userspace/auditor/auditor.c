/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/auditor.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "auditor/client.h"
#include "auditor/confine.h"
#include "kernel/confine.h"
#include "auditor/record.h"
#include "auditor/store.h"
#include "core/limits.h"
#include "core/log.h"

#define NOTE_BATCH 256	   /* notes written with one lock and one write */
#define NOTE_BATCHES 64	   /* in one turn: more than the connection can hold */
#define SYNC_EVERY_MS 1000 /* how much a power cut may cost */
#define GRACE_MS 3000	   /* for clients after the supervisor has gone: longer than a summary may wait */
#define LOG_EVERY_MS 1000  /* a failing disk is said again and again, but not for every record */

struct auditor {
	int epoll;
	int supervisor; /* -1 once it has gone */
	bool flushed;	/* it said NOTE_FLUSH before */
	struct store *store;
	struct client *clients;	   /* AUDITOR_CLIENTS_MAX */
	size_t nclients, next_run; /* next_run: whose whole record is answered next */
	uint64_t refused;	   /* bad notes since the last gap record about them */
	int64_t sync_at, quit_at, log_at;
};

static int64_t now_ms(void)
{
	struct timespec ts = {0};

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void log_failure(struct auditor *a, const struct err *e)
{
	int64_t now = now_ms();

	if (now < a->log_at)
		return;
	a->log_at = now + LOG_EVERY_MS;
	log_error("%s; %llu records are lost so far", e->msg, (unsigned long long)store_stats(a->store)->unwritten);
}

static void sync_record(struct auditor *a)
{
	struct err e;

	if (a->refused) {
		/* Here and not at once, so that a flood of them makes one record a second. */
		store_begin(a->store);
		store_append_gap(a->store, RECORD_GAP_REFUSED, a->refused, "notes that were not well-formed");
		a->refused = 0;
		if (store_commit(a->store, &e) < 0)
			log_failure(a, &e);
	}
	if (store_sync(a->store, &e) < 0)
		log_error("%s", e.msg);
	a->sync_at = INT64_MAX;
}

static void supervisor_gone(struct auditor *a)
{
	sync_record(a);
	(void)epoll_ctl(a->epoll, EPOLL_CTL_DEL, a->supervisor, NULL);
	close(a->supervisor);
	a->supervisor = -1;
	a->quit_at = now_ms() + GRACE_MS;
}

/* One note into the open batch. Returns false when the connection is over. */
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
		return true;
	}
	if (note->type == NOTE_FLUSH) {
		a->flushed = true;
		return false;
	}
	store_append(a->store, note);
	return true;
}

/* One batch. Returns whether there may be more. */
static bool read_notes(struct auditor *a)
{
	bool more = true, full = true;
	struct note note;
	struct err e;

	store_begin(a->store);
	for (int i = 0; more && i < NOTE_BATCH; i++) {
		ssize_t n = ipc_recv(a->supervisor, &note, sizeof note, NULL, NULL);

		if (n == -EAGAIN) {
			full = false;
			break;
		}
		more = take_note(a, &note, n);
	}
	if (store_commit(a->store, &e) < 0)
		log_failure(a, &e);
	if ((store_dirty(a->store) || a->refused) && a->sync_at == INT64_MAX)
		a->sync_at = now_ms() + SYNC_EVERY_MS;
	if (!more)
		supervisor_gone(a);
	return more && full;
}

static void drop_client(struct auditor *a, struct client *c, int why)
{
	if (why == -EPROTO || why == -EMSGSIZE)
		log_warn("a client sent what is no query: its connection is closed");
	else if (why != -EPIPE)
		log_warn("a client's connection is closed: error %d", -why);
	(void)epoll_ctl(a->epoll, EPOLL_CTL_DEL, c->fd, NULL);
	client_close(c);
}

/* What was tried goes before what is asked: so that nobody can keep attempts out of the record by reading it. */
static void read_all_notes(struct auditor *a)
{
	for (int i = 0; i < NOTE_BATCHES && a->supervisor >= 0 && read_notes(a); i++)
		;
}

/* At most one whole record a turn, each client in its turn. */
static void answer_one_run(struct auditor *a)
{
	for (size_t i = 0; i < a->nclients; i++) {
		struct client *c = &a->clients[(a->next_run + i) % a->nclients];
		int r = client_answer_run(c, a->store);

		if (r < 0)
			drop_client(a, c, r);
		if (r != 0) {
			a->next_run = (a->next_run + i + 1) % a->nclients;
			return;
		}
	}
}

static bool runs_wait(const struct auditor *a)
{
	for (size_t i = 0; i < a->nclients; i++)
		if (client_run_waits(&a->clients[i]))
			return true;
	return false;
}

/* Brings what epoll watches in line with what each client can do, and answers what can be answered. */
static void pump_clients(struct auditor *a)
{
	for (size_t i = 0; i < a->nclients; i++) {
		struct client *c = &a->clients[i];
		struct epoll_event ev = {.data.u64 = i + 1};
		int r;

		if (c->fd < 0)
			continue;
		r = client_pump(c, a->store, now_ms());
		if (r < 0) {
			drop_client(a, c, r);
			continue;
		}
		ev.events = client_events(c);
		if (ev.events != c->watched && epoll_ctl(a->epoll, EPOLL_CTL_MOD, c->fd, &ev) == 0)
			c->watched = ev.events;
	}
}

static int wait_ms(const struct auditor *a)
{
	int64_t at = a->sync_at < a->quit_at ? a->sync_at : a->quit_at, now = now_ms();

	for (size_t i = 0; i < a->nclients; i++)
		if (a->clients[i].fd >= 0 && client_deadline(&a->clients[i]) < at)
			at = client_deadline(&a->clients[i]);
	if (at == INT64_MAX)
		return -1;
	return at <= now ? 0 : (int)(at - now);
}

static bool anybody_left(const struct auditor *a)
{
	for (size_t i = 0; i < a->nclients; i++)
		if (a->clients[i].fd >= 0)
			return true;
	return false;
}

static void client_ready(struct auditor *a, size_t i, uint32_t events)
{
	struct client *c = &a->clients[i];
	int r = 0;

	if (i >= a->nclients || c->fd < 0)
		return;
	if (events & EPOLLIN)
		r = client_read(c, a->store, now_ms());
	else if (events & (EPOLLHUP | EPOLLERR))
		r = -EPIPE;
	if (r < 0)
		drop_client(a, c, r);
}

static void loop(struct auditor *a)
{
	while (a->supervisor >= 0 || (anybody_left(a) && now_ms() < a->quit_at)) {
		struct epoll_event events[1 + AUDITOR_CLIENTS_MAX];
		int n = epoll_wait(a->epoll, events, 1 + AUDITOR_CLIENTS_MAX, runs_wait(a) ? 0 : wait_ms(a));

		for (int i = 0; i < n; i++) {
			if (events[i].data.u64 > 0)
				client_ready(a, events[i].data.u64 - 1, events[i].events);
			else if (a->supervisor >= 0)
				read_all_notes(a);
		}
		if (now_ms() >= a->sync_at)
			sync_record(a);
		pump_clients(a);
		answer_one_run(a);
		pump_clients(a);
	}
}

static int watch(int epoll, int fd, uint64_t who, struct err *e)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = who};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? err_errno(e, errno, "audit", "can't watch a connection") : 0;
}

static int setup_loop(struct auditor *a, const struct auditor_config *config, struct err *e)
{
	int r;

	a->epoll = epoll_create1(EPOLL_CLOEXEC);
	a->clients = calloc(AUDITOR_CLIENTS_MAX, sizeof *a->clients);
	if (a->epoll < 0 || !a->clients)
		return err_errno(e, errno, "audit", "can't set up the loop");
	r = watch(a->epoll, a->supervisor, 0, e);
	for (size_t i = 0; r == 0 && i < config->clients; i++) {
		client_init(&a->clients[i], config->client_fds[i]);
		a->clients[i].watched = EPOLLIN;
		a->nclients++;
		r = watch(a->epoll, config->client_fds[i], i + 1, e);
	}
	return r;
}

/* Everything up to the first record, in the order that leaves the least to do as root. */
static int start(struct auditor *a, const struct auditor_config *config, struct err *e)
{
	int keep[2 + AUDITOR_CLIENTS_MAX], dir = -1, r;
	size_t n = 0;

	if (config->clients < 1 || config->clients > AUDITOR_CLIENTS_MAX)
		return err_set(e, EINVAL, "audit", "the auditor serves 1 to %d clients", AUDITOR_CLIENTS_MAX);
	/* Only the supervisor ends an audit: a terminal's ^C or a service manager's stop goes to every process at once, and
	 * what the dying runs still do belongs in the record. SIGXFSZ and SIGPIPE would turn an error into a death. */
	for (const int *sig = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ, 0}; *sig; sig++)
		(void)signal(*sig, SIG_IGN);
	(void)umask(077);
	json_object_seed(0); /* opens the random device, which is out of reach later */
	r = confine_directory(&dir, config->dir_fd, AUDITOR_DIR, config->uid, config->gid, e);
	if (r < 0)
		return r;
	keep[n++] = dir;
	keep[n++] = config->supervisor_fd;
	for (size_t i = 0; i < config->clients; i++)
		keep[n++] = config->client_fds[i];
	r = confine_fds("audit", keep, n, e);
	if (r == 0)
		r = setup_loop(a, config, e);
	if (r == 0)
		r = auditor_confine(config->uid, config->gid, e);
	if (r < 0)
		return r;
	return store_open(&a->store, dir, LIMIT_AUDIT_FILE_BYTES, e);
}

int auditor_main(const struct auditor_config *config)
{
	struct auditor a = {.epoll = -1, .supervisor = config->supervisor_fd, .sync_at = INT64_MAX, .quit_at = INT64_MAX};
	const struct store_stats *stats;
	struct err e;

	log_init("auditor", LOG_LVL_INFO);
	if (start(&a, config, &e) < 0) {
		log_error("can't start: %s", e.msg);
		free(a.clients);
		return 1;
	}
	stats = store_stats(a.store);
	if (stats->torn)
		log_warn("the record ended in a cut-off line, which was removed");
	if (stats->unreadable)
		log_warn("%llu lines of the record can't be read", (unsigned long long)stats->unreadable);
	if (store_dirty(a.store))
		a.sync_at = now_ms() + SYNC_EVERY_MS;
	loop(&a);
	for (size_t i = 0; i < a.nclients; i++)
		client_close(&a.clients[i]);
	free(a.clients);
	a.store = store_free(a.store);
	return a.flushed ? 0 : 1;
}
