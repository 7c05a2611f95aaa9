/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include <errno.h>
#include <signal.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <time.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "api/confine.h"
#include "kernel/confine.h"
#include "api/server.h"
#include "core/limits.h"

/* After SIGTERM open runs have LIMIT_DRAIN_S to end by themselves; then so long for killing and answering them. */
#define CANCEL_S 3
/* When the supervisor is gone there is nothing to wait for but the last answers' way out. */
#define LOST_S 2
/* fds beside connections and sandboxes: standard streams, peers, epoll sets, and what is on its way to be closed. */
#define OTHER_FDS 64
/* Of a sandbox: its request socket, its output, its directory, and what the collector sends or a session's last cell left. */
#define SANDBOX_FDS 6
#define EVENTS 64

struct loop {
	struct server server;
	enum source http, runs, signal; /* what their epoll events point to */
	int signal_fd;
	uint64_t sweep_ns;
	uint64_t cancel_ns, end_ns; /* of an orderly end; 0: not stopping */
	int status;
};

static int loop_add(struct loop *l, int fd, enum source *source, enum source value)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = source};

	*source = value;
	return epoll_ctl(l->server.epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

/*
 * As many connections and sandboxes as the limit on open files has room for; it is raised as far as it goes. A grant that found
 * no room for its fds would be lost, and the supervisor's connection with it, so it is not asked for.
 */
static void divide_files(struct server *s, unsigned *ret_connections)
{
	struct rlimit rl;
	rlim_t connections = LIMIT_CONNECTIONS, sandboxes = LIMIT_SANDBOXES;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		rl.rlim_max = 256;
	rl.rlim_cur = rl.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &rl);
	if (rl.rlim_max < OTHER_FDS + connections + SANDBOX_FDS * sandboxes) {
		rlim_t room = rl.rlim_max > OTHER_FDS + 64 ? rl.rlim_max - OTHER_FDS : 64;

		if (connections > room / 4)
			connections = room / 4;
		if (sandboxes > (room - connections) / SANDBOX_FDS)
			sandboxes = (room - connections) / SANDBOX_FDS;
		log_warn("RLIMIT_NOFILE of %llu leaves room for %llu connections and %llu sandboxes, not %d and %d",
			 (unsigned long long)rl.rlim_max, (unsigned long long)connections, (unsigned long long)sandboxes,
			 LIMIT_CONNECTIONS, LIMIT_SANDBOXES);
	}
	*ret_connections = s->conns_max = (unsigned)connections;
	s->sandboxes_max = (unsigned)sandboxes;
}

static int setup(struct loop *l, const struct api_config *config, struct err *e)
{
	struct server *s = &l->server;
	const int keep[] = {config->listen_fd, config->supervisor_fd, config->auditor_fd, config->collector_fd};
	unsigned connections;
	sigset_t mask;
	int r;

	s->config = config;
	/* Bodies and answers are large and short-lived: each a mapping of its own, gone when it is freed. Else glibc moves the
	 * bound up with the first of them, and what they leave in the heap depends on the order in which they went. */
	(void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
	s->requests.max = config->bodies_bytes ? config->bodies_bytes : LIMIT_BODIES_BYTES;
	s->requests.owner_max = config->project_bodies_bytes ? config->project_bodies_bytes : LIMIT_PROJECT_BODIES_BYTES;
	r = confine_fds("api", keep, sizeof keep / sizeof *keep, e);
	if (r < 0)
		return r;
	divide_files(s, &connections);
	/* Both read a file, which is not possible later. */
	tzset();
	json_object_seed(0);
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return err_errno(e, errno, "api", "signals");
	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	if (sigprocmask(SIG_SETMASK, &mask, NULL) < 0)
		return err_errno(e, errno, "api", "signals");
	/* A connection that is reset between its event and accept() must not make us wait for the next one. */
	if (fcntl(config->listen_fd, F_SETFL, O_NONBLOCK) < 0)
		return err_errno(e, errno, "api", "listening socket");
	l->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->signal_fd < 0 || s->epoll_fd < 0)
		return err_errno(e, errno, "api", "event loop");
	r = api_confine(config->uid, config->gid, 0, e);
	if (r == 0)
		r = runclient_new(config->supervisor_fd, config->auditor_fd, config->collector_fd, &s->runs, e);
	if (r == 0)
		r = http_start(s, config->listen_fd, connections, e);
	if (r < 0)
		return r;
	runclient_on_session(s->runs, cells_on_session, s);
	runclient_keep_content(s->runs, config->audit_content);
	if ((r = loop_add(l, s->http_fd, &l->http, SOURCE_HTTP)) < 0 ||
	    (r = loop_add(l, runclient_fd(s->runs), &l->runs, SOURCE_RUNS)) < 0 ||
	    (r = loop_add(l, l->signal_fd, &l->signal, SOURCE_SIGNAL)) < 0)
		return err_errno(e, -r, "api", "event loop");
	return 0;
}

/* No new connection, no new run; what waits in line is sent away; what runs gets `drain_s`. */
static void stop(struct loop *l, unsigned drain_s, int status)
{
	struct server *s = &l->server;
	uint64_t now = clock_now_ns();
	MHD_socket fd;

	if (s->stopping)
		return;
	s->stopping = true;
	l->status = status;
	l->cancel_ns = now + drain_s * SECOND_NS;
	l->end_ns = l->cancel_ns + (drain_s ? CANCEL_S : LOST_S) * SECOND_NS;
	fd = MHD_quiesce_daemon(s->http);
	if (fd != MHD_INVALID_SOCKET)
		close(fd);
	for (struct conn *c = s->conns; c; c = c->next)
		if (c->exchange)
			execute_sweep(s, c->exchange, now);
	sessions_close(s, false);
}

static void sweep(struct loop *l, uint64_t now)
{
	struct server *s = &l->server;

	/* Nothing in here frees a connection: that is the daemon's part, later. */
	for (struct conn *c = s->conns; c; c = c->next)
		conn_sweep(c, now);
	conns_make_room(s, now);
	if (s->stopping && l->cancel_ns && now >= l->cancel_ns) {
		l->cancel_ns = 0;
		runclient_cancel_all(s->runs);
		sessions_close(s, true);
	}
	l->sweep_ns = now + SECOND_NS;
}

/* Runs the daemon until it has nothing more to do at once. */
static void run_http(struct server *s)
{
	MHD_UNSIGNED_LONG_LONG wait;
	int rounds = 0;

	do {
		s->resumed = false;
		MHD_run(s->http);
	} while ((s->resumed || (MHD_get_timeout(s->http, &wait) == MHD_YES && wait == 0)) && ++rounds < 16);
}

static int wait_ms(struct loop *l)
{
	MHD_UNSIGNED_LONG_LONG wait = 0;
	uint64_t now = clock_now_ns();
	uint64_t ms = l->sweep_ns > now ? (l->sweep_ns - now) / 1000000 + 1 : 0;

	if (l->server.resumed)
		return 0;
	if (MHD_get_timeout(l->server.http, &wait) == MHD_YES && wait < ms)
		ms = wait;
	return (int)ms;
}

static void turn(struct loop *l)
{
	struct server *s = &l->server;
	struct epoll_event events[EVENTS];
	struct signalfd_siginfo info;
	int n = epoll_wait(s->epoll_fd, events, EVENTS, wait_ms(l));

	/* Connections first: running the daemon may free those that later events of this batch point to. */
	for (int i = 0; i < n; i++)
		if (*(enum source *)events[i].data.ptr == SOURCE_CONN)
			conn_event(events[i].data.ptr, events[i].events);
	if (runclient_step(s->runs) < 0 && !s->stopping) {
		log_error("the supervisor is gone: stopping");
		stop(l, 0, 1);
	}
	if (read(l->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
		log_info("signal %u: stopping", info.ssi_signo);
		stop(l, LIMIT_DRAIN_S, 0);
	}
	run_http(s);
	if (clock_now_ns() >= l->sweep_ns)
		sweep(l, clock_now_ns());
}

static void teardown(struct loop *l)
{
	struct server *s = &l->server;

	/* Ends the runs that are left; their connections are resumed, as the daemon demands of one who stops it. */
	s->runs = runclient_free(s->runs);
	if (s->http) {
		run_http(s);
		MHD_stop_daemon(s->http);
	}
	if (s->epoll_fd > 0)
		close(s->epoll_fd);
	if (l->signal_fd > 0)
		close(l->signal_fd);
}

int api_main(const struct api_config *config)
{
	struct loop l = {.status = 0};
	struct err e = {0};

	log_init("api", config->log_level);
	if (setup(&l, config, &e) < 0) {
		log_error("%s: %s", e.where, e.msg);
		teardown(&l);
		return 1;
	}
	log_info("serving as uid %u", (unsigned)config->uid);
	while (!l.server.stopping || (l.server.exchanges > 0 && clock_now_ns() < l.end_ns))
		turn(&l);
	teardown(&l);
	return l.status;
}
