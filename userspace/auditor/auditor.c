/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/auditor.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auditor/auditor_internal.h"
#include "auditor/confine.h"
#include "kernel/confine.h"
#include "core/limits.h"
#include "core/log.h"

#define LOOK_EVERY_MS 250 /* at what others have written, while somebody follows the record */
#define PRUNE_EVERY_MS 10000
#define HEAD_WAIT_MS 1000 /* the first thing that a supervisor says is where the signed chain ends */

/* ---- clients ---- */

static void drop_client(struct auditor *a, struct client *c, int why)
{
	if (why == -EPROTO || why == -EMSGSIZE)
		log_warn("a client sent what is no query: its connection is closed");
	else if (why != -EPIPE)
		log_warn("a client's connection is closed: error %d", -why);
	(void)epoll_ctl(a->epoll, EPOLL_CTL_DEL, c->fd, NULL);
	client_close(c);
}

/* At most one long answer a turn, each client in its turn. */
static void answer_one(struct auditor *a)
{
	for (size_t i = 0; i < a->nclients; i++) {
		struct client *c = &a->clients[(a->next_slow + i) % a->nclients];
		int r = client_answer_slow(c, a->store, a->last_seq, auditor_now_ms());

		if (r < 0)
			drop_client(a, c, r);
		if (r != 0) {
			a->next_slow = (a->next_slow + i + 1) % a->nclients;
			return;
		}
	}
}

static bool answers_wait(const struct auditor *a)
{
	for (size_t i = 0; i < a->nclients; i++)
		if (client_slow_waits(&a->clients[i], a->last_seq, auditor_now_ms()))
			return true;
	return false;
}

static bool anybody_follows(const struct auditor *a)
{
	for (size_t i = 0; i < a->nclients; i++)
		if (a->clients[i].nfollows)
			return true;
	return false;
}

/* One batch for all that can be completed now. */
static void complete_runs(struct auditor *a)
{
	for (size_t i = 0; i < a->nclients; i++) {
		if (!client_completes(&a->clients[i], a->store, a->ends))
			continue;
		auditor_begin(a);
		a->late += client_complete(&a->clients[i], a->store);
		a->asking.look = true;
	}
	auditor_commit(a);
	if (a->late)
		auditor_owes(a);
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
		r = client_pump(c, a->store, auditor_now_ms());
		if (r < 0) {
			drop_client(a, c, r);
			continue;
		}
		ev.events = client_events(c);
		if (ev.events != c->watched && epoll_ctl(a->epoll, EPOLL_CTL_MOD, c->fd, &ev) == 0)
			c->watched = ev.events;
	}
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int wait_ms(const struct auditor *a)
{
	int64_t at = least(a->sync_at, a->quit_at), now = auditor_now_ms();

	at = least(at, least(a->prune_at, a->left_at));
	at = least(at, ending_deadline(a->ending));
	if (a->supervisor >= 0)
		at = least(at, asking_deadline(&a->asking));
	if (a->flushed && a->supervisor >= 0)
		at = least(at, a->flush_until);
	if (anybody_follows(a))
		at = least(at, a->look_at);
	for (size_t i = 0; i < a->nclients; i++)
		if (a->clients[i].fd >= 0)
			at = least(at, client_deadline(&a->clients[i]));
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
		r = client_read(c, auditor_now_ms());
	else if (events & (EPOLLHUP | EPOLLERR))
		r = -EPIPE;
	if (r < 0)
		drop_client(a, c, r);
}

/* A piece of what is too old or too much, and again at once while there is more of it. */
static void prune(struct auditor *a)
{
	struct err e;
	int r = store_prune(a->store, auditor_wall_ns(), &e);

	if (r < 0)
		log_error("%s", e.msg);
	a->asking.look = true;
	a->prune_at = auditor_now_ms() + (r == STORE_PRUNED ? 0 : PRUNE_EVERY_MS);
	auditor_wrote(a);
	a->pruned_ms = auditor_now_ms();
	a->pruning = r == STORE_PRUNE_WAITS;
	/* What is signed is durable, and what is too much does not wait for the next second. */
	if (a->pruning && a->sync_at != INT64_MAX)
		auditor_sync(a);
}

/* What is to be done now and then. */
static void look_after(struct auditor *a)
{
	int64_t now = auditor_now_ms();

	(void)auditor_finish_ended(a, now); /* the rest in the next turn, which comes at once */
	if (now >= a->left_at)
		auditor_finish_left(a);
	if (now >= a->prune_at)
		prune(a);
	if (now >= a->sync_at)
		auditor_sync(a);
	if (anybody_follows(a) && now >= a->look_at) {
		a->last_seq = store_last_seq(a->store);
		a->look_at = now + LOOK_EVERY_MS;
	}
	if (a->supervisor >= 0)
		asking_send(&a->asking, a->store, a->supervisor, now);
}

static void loop(struct auditor *a)
{
	while (a->supervisor >= 0 || (anybody_left(a) && auditor_now_ms() < a->quit_at)) {
		struct epoll_event events[1 + AUDITOR_CLIENTS_MAX];
		int n = epoll_wait(a->epoll, events, 1 + AUDITOR_CLIENTS_MAX, answers_wait(a) ? 0 : wait_ms(a));

		for (int i = 0; i < n; i++) {
			if (events[i].data.u64 > 0)
				client_ready(a, events[i].data.u64 - 1, events[i].events);
			else if (a->supervisor >= 0)
				auditor_read_notes(a);
		}
		complete_runs(a);
		look_after(a);
		auditor_flush(a);
		pump_clients(a);
		answer_one(a);
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
	a->ending = calloc(1, sizeof *a->ending);
	if (a->epoll < 0 || !a->clients || !a->ending)
		return err_errno(e, errno, "audit", "can't set up the loop");
	r = watch(a->epoll, a->supervisor, 0, e);
	for (size_t i = 0; r == 0 && i < config->clients; i++) {
		client_init(&a->clients[i], config->client_fds[i], config->opts.content);
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
	return store_open(&a->store, dir, &config->opts, e);
}

int auditor_main(const struct auditor_config *config)
{
	struct auditor a = {.epoll = -1,
			    .supervisor = config->supervisor_fd,
			    .ends = 1,
			    .sync_at = auditor_now_ms(), /* what one that was killed left is signed when it is durable */
			    .quit_at = INT64_MAX,
			    .left_at = auditor_now_ms() + HEAD_WAIT_MS,
			    .prune_at = auditor_now_ms() + HEAD_WAIT_MS};
	struct err e;

	log_init("auditor", LOG_LVL_INFO);
	/*
	 * Before the record is opened, which is the moment in which what was interrupted ended: those wait, since what the
	 * supervisor's sweep finds of them is still to come.
	 */
	a.started_ns = auditor_wall_ns();
	if (start(&a, config, &e) < 0) {
		log_error("can't start: %s", e.msg);
		free(a.clients);
		free(a.ending);
		return 1;
	}
	auditor_wrote(&a);
	loop(&a);
	for (size_t i = 0; i < a.nclients; i++)
		client_close(&a.clients[i]);
	free(a.clients);
	free(a.ending);
	a.store = store_free(a.store);
	return a.flushed ? 0 : 1;
}
