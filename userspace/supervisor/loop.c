/* SPDX-License-Identifier: Apache-2.0 */
/* Start, loop and end of the supervisor. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "blobs.h"
#include "core/cleanup.h"
#include "core/log.h"
#include "filter.h"
#include "ipc/decode.h"
#include "supervisor/attached.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

#define RING_BUDGET 1024 /* events a turn, so that a flood delays no deadline */
#define TRASH_RETRY_NS 20000000ull
#define GUARD_CHECK_NS 2000000000ull
#define ASKS_A_TURN 64
#define STOP_MS 5000
#define CHILD_WAIT 50
#define CHILD_WAIT_US 10000
#define DRAIN_NS 10000000000ull

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

int source_add(struct supervisor *s, struct source *src, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, src->fd, &ev) < 0 ? -errno : 0;
}

void source_close(struct supervisor *s, struct source *src)
{
	if (src->fd < 0)
		return;
	(void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, src->fd, NULL);
	close(src->fd);
	src->fd = -1;
}

/* ---- clients ---- */

static void client_gone(struct supervisor *s, struct client *c)
{
	pool_forget_client(s, c);
	source_close(s, &c->src);
	c->open = false;
}

void client_tell(struct client *c, const struct tell *t, const int *fds, size_t nfds)
{
	int rc = c && c->open && !c->hung ? ipc_send(c->src.fd, t, sizeof *t, fds, nfds) : 0;

	/* One that is gone is told by the end of its stream. */
	if (rc < 0 && rc != -EPIPE)
		c->hung = true;
}

/* Not where it is noticed, deep inside what is being done for it. */
static void close_hung_clients(struct supervisor *s)
{
	for (unsigned i = 0; i < s->client_count; i++)
		if (s->clients[i].open && s->clients[i].hung) {
			log_error("a client does not take what it is told: its connection is closed");
			client_gone(s, &s->clients[i]);
		}
}

static void start_run(struct supervisor *s, struct client *c, const struct ask *a)
{
	struct box *b = box_by_req(s, c, a->req);
	uint32_t most_s;

	if (!b)
		return; /* ended in the meantime: its end has been told */
	most_s = b->t->call ? LIMIT_CALL_TIMEOUT_MAX_S : b->session ? LIMIT_CELL_TIMEOUT_MAX_S : LIMIT_TIMEOUT_MAX_S;
	/* The client checked this; so do we, since it is we who hold the sandbox. */
	if (a->timeout_s > most_s) {
		box_end(s, b, RUN_END_BROKEN);
		return;
	}
	b->timeout_s = a->timeout_s;
	memcpy(b->cell_caller, a->caller, sizeof b->cell_caller);
	box_event(s, b, BOX_START);
}

static void kill_run(struct supervisor *s, struct client *c, const struct ask *a)
{
	struct box *b;

	if (pool_withdraw(s, c, a->req))
		return;
	b = box_by_req(s, c, a->req);
	if (b)
		box_interrupt(s, b, (enum run_end)a->reason);
}

static void close_session(struct supervisor *s, struct client *c, const struct ask *a)
{
	struct box *b;

	if (pool_withdraw(s, c, a->req))
		return;
	b = box_by_req(s, c, a->req);
	if (b)
		sup_session_close(s, b);
}

static void collected(struct supervisor *s, struct client *c, const struct ask *a)
{
	struct box *b = box_by_req(s, c, a->req);

	if (b && b->session)
		box_event(s, b, BOX_COLLECTED);
}

static void tell_pool(struct supervisor *s, struct client *c, const struct ask *a)
{
	struct tell t = {.type = TELL_POOL, .req = a->req};

	pool_state(s, &t.pool);
	client_tell(c, &t, NULL, 0);
}

/* Whoever asks a service that has none is told so at once. */
static void decline(struct client *c, const struct ask *a)
{
	struct tell t = {.type = TELL_FAIL, .req = a->req, .fail.code = ENOTSUP};

	snprintf(t.fail.layer, sizeof t.fail.layer, FAIL_POLICY_ONLY);
	snprintf(t.fail.text, sizeof t.fail.text,
		 "this service runs with --policy-only: it puts policies on what already runs, and has no sandboxes");
	client_tell(c, &t, NULL, 0);
}

static void on_client(struct supervisor *s, struct source *src, uint32_t events)
{
	struct client *c = src->owner;

	(void)events;
	/* A bounded number: a client that asks without end must not keep deadlines from being met. */
	for (int i = 0; i < ASKS_A_TURN && c->open; i++) {
		struct ask a;
		ssize_t n = ipc_recv(src->fd, &a, sizeof a, NULL, NULL);
		const char *why;

		if (n == -EAGAIN)
			return;
		if (n != (ssize_t)sizeof a) {
			client_gone(s, c);
			return;
		}
		why = ask_problem(&a);
		if (why) {
			log_error("a client sent a message of type %u whose %s is wrong: its connection is closed", a.type,
				  why);
			client_gone(s, c);
			return;
		}
		switch ((enum ask_type)a.type) {
		case ASK_SANDBOX:
			if (s->config.policy_only)
				decline(c, &a);
			else
				pool_ask(s, c, &a);
			break;
		case ASK_START:
			start_run(s, c, &a);
			break;
		case ASK_KILL:
			kill_run(s, c, &a);
			break;
		case ASK_COLLECTED:
			collected(s, c, &a);
			break;
		case ASK_CLOSE:
			close_session(s, c, &a);
			break;
		case ASK_POOL:
			tell_pool(s, c, &a);
			break;
		case ASK_METRICS:
			metrics_tell(s, c, a.req);
			break;
		case ASK_USAGE:
			usage_tell(s, c, &a);
			break;
		case ASK_NONE:
			break;
		}
	}
}

int supervisor_add_client(struct supervisor *s, int fd, struct err *e)
{
	struct client *c = &s->clients[s->client_count];
	int rc;

	if (s->client_count == SUPERVISOR_CLIENTS_MAX) {
		close(fd);
		return err_set(e, E2BIG, "supervisor", "too many clients");
	}
	c->src = (struct source){.fn = on_client, .owner = c, .fd = fd};
	rc = source_add(s, &c->src, EPOLLIN);
	if (rc < 0)
		return err_errno(e, -rc, "supervisor", "watch a client");
	c->open = true;
	s->client_count++;
	return 0;
}

void supervisor_watch_child(struct supervisor *s, pid_t pid, const char *name)
{
	if (s->child_count < sizeof s->children / sizeof s->children[0]) {
		s->children[s->child_count].pid = pid;
		s->children[s->child_count++].name = name;
	}
}

/* A stop in order: the api takes no more, lets what runs end for a while, and hangs up; then there is no client left. */
static void drain(struct supervisor *s)
{
	if (s->drain_until_ns) {
		s->stopping = true; /* asked twice: at once */
		return;
	}
	s->drain_until_ns = now_ns() + DRAIN_NS;
	for (unsigned i = 0; i < s->child_count; i++)
		if (s->children[i].pid > 0 && !strcmp(s->children[i].name, "api"))
			kill(s->children[i].pid, SIGTERM);
	if (!s->child_count)
		s->stopping = true;
}

/* One that has ended and was not known to: its place, or -1. */
static int child_ended(struct supervisor *s, int *ret_status)
{
	for (unsigned i = 0; i < s->child_count; i++) {
		if (s->children[i].pid <= 0 || waitpid(s->children[i].pid, ret_status, WNOHANG) != s->children[i].pid)
			continue;
		s->children[i].pid = 0;
		return (int)i;
	}
	return -1;
}

/*
 * The others leave in order when one of them has died, and may be gone before the kernel has told of the death: so after one
 * that left in order we look for a moment for the one that did not.
 */
static void child_check(struct supervisor *s)
{
	int status, of = child_ended(s, &status);

	if (of < 0)
		return;
	for (int i = 0; i < CHILD_WAIT && status == 0 && !s->drain_until_ns; i++) {
		int other_status, other = child_ended(s, &other_status);

		if (other >= 0 && other_status != 0) {
			of = other;
			status = other_status;
		} else if (other < 0) {
			usleep(CHILD_WAIT_US);
		}
	}
	if (!s->drain_until_ns && !s->fatal)
		s->fatal = err_set(&s->fatal_err, ECHILD, s->children[of].name, "the %s process ended (%s %d)",
				   s->children[of].name, WIFSIGNALED(status) ? "signal" : "status",
				   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void on_signal(struct supervisor *s, struct source *src, uint32_t events)
{
	struct signalfd_siginfo si;

	(void)events;
	while (read(src->fd, &si, sizeof si) == (ssize_t)sizeof si) {
		/* Asked for by somebody. The kernel sends one too when a terminal is closed: that is a stop. */
		if (si.ssi_signo == SIGHUP && si.ssi_code != SI_KERNEL) {
			slot_reload(s);
			attached_recheck(s);
			return; /* whoever sends it without end must not keep us from the rest; the next one wakes us again */
		}
		if (si.ssi_signo != SIGCHLD) {
			drain(s);
			continue;
		}
		/* Inits are reaped through their pidfds; here we look only for our own processes. */
		child_check(s);
	}
}

static void on_ring(struct supervisor *s, struct source *src, uint32_t events)
{
	(void)src;
	(void)events;
	notes_drain_ring(s, RING_BUDGET);
}

/* ---- start ---- */

static int make_init_fd(int *ret, struct err *e)
{
	struct blob b = blob_init();
	int fd = memfd_create("weir-init", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);

	/* Kernels before 6.3 do not know MFD_EXEC: there every memfd may be executed. */
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("weir-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return err_errno(e, errno, "init", "make a memfd for weir-init");
	errno = ENOSPC; /* what a short write means, which sets none itself */
	if (write(fd, b.data, b.len) != (ssize_t)b.len || fchmod(fd, 0500) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0) {
		int rc = err_errno(e, errno, "init", "put weir-init into a memfd");

		close(fd);
		return rc;
	}
	*ret = fd;
	return 0;
}

static int make_epoll(struct supervisor *s, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->signal_src.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	s->signal_src.fn = on_signal;
	if (s->epoll_fd < 0 || s->signal_src.fd < 0 || source_add(s, &s->signal_src, EPOLLIN) < 0)
		return err_errno(e, errno, "supervisor", "make the event loop");
	return 0;
}

static bool have_bpffs(void)
{
	struct statfs fs;

	return statfs(BPFFS, &fs) == 0 && fs.f_type == BPF_FS_MAGIC;
}

static int make_guard(struct supervisor *s, struct err *e)
{
	struct guard_opts opts = {.pin_dir = s->pin_dir, .cgroup_fd = s->cgroups.v2_fd, .level = s->cgroups.level};
	bool was_there = have_bpffs();
	int rc = guard_create(&s->guard, &opts, e);

	if (!was_there && have_bpffs()) {
		/* Noted for `weir uninstall`: a mount that the host had is not ours to take away. */
		int fd = open(BPFFS_NOTE, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		if (fd < 0)
			log_warn("uninstall will leave " BPFFS " mounted: %s", strerror(errno));
		else
			close(fd);
	}
	if (rc < 0)
		return rc;
	s->ring_src.fd = dup(guard_ring_fd(s->guard));
	s->ring_src.fn = on_ring;
	if (s->ring_src.fd < 0 || source_add(s, &s->ring_src, EPOLLIN) < 0)
		return err_errno(e, errno, "policy", "watch the ring");
	return 0;
}

/* Mounts of ours are nobody else's business, and the host's do not come to us later. */
static int own_mounts(struct err *e)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return errno == EINVAL
			   ? err_set(
				 e, EINVAL, "mounts",
				 "the root directory is not a mount point (a chroot?): bind it onto itself first, or run Weir "
				 "outside")
			   : err_errno(e, errno, "mounts", "enter a mount namespace (needs root)");
	return 0;
}

/* A sandbox takes up to twenty descriptors here; the soft limit is made for programs with a handful of files. */
static void raise_open_files(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return;
	r.rlim_cur = r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) < 0)
		log_warn("the limit of open files stays: %s", strerror(errno));
}

/* What every service has, whatever it does. Takes auditor_fd. */
static int open_loop(struct supervisor *s, int auditor_fd, struct err *e)
{
	int rc = make_epoll(s, e);

	if (rc == 0)
		rc = notes_new(s, auditor_fd, e);
	else if (auditor_fd >= 0)
		close(auditor_fd);
	if (rc == 0)
		metrics_open(s);
	/* Before any other note: who writes, and where the chain ends. */
	return rc == 0 ? signer_open(s, e) : rc;
}

int instance_open(struct supervisor *s, int auditor_fd, struct err *e)
{
	struct cgroup_host host;
	_cleanup_fd_ int global = -1;
	int rc = open_loop(s, auditor_fd, e);

	if (rc == 0)
		rc = cgroup_host_find(&host, e);
	if (rc == 0)
		rc = supervisor_lock(&global, e);
	if (rc == 0)
		rc = sweep_claim(s, e);
	if (rc == 0) {
		s->cgroups.host = host;
		rc = sweep_dead(s, e);
	}
	if (rc == 0) {
		rc = cgroup_instance_open(&s->cgroups, &host, s->instance, e);
		s->have_cgroups = rc == 0;
	}
	/* From here on this instance can be told from a dead one by its own lock. */
	cleanup_fdp(&global);
	global = -1;
	if (rc == 0)
		rc = make_guard(s, e); /* before our own mount namespace: a bpffs mounted here is the host's too */
	if (rc == 0)
		rc = metered_open(s, e);
	return rc;
}

static int set_up(struct supervisor *s, int auditor_fd, struct err *e)
{
	int rc;

	raise_open_files();
	rc = instance_open(s, auditor_fd, e);
	if (rc == 0)
		rc = slot_apply(s, e);
	if (rc == 0)
		rc = slot_watch(s, e);
	for (enum slot slot = SLOT_SNIPPET; rc == 0 && slot <= SLOT_TOOL; slot++)
		if (s->inforce[slot].policy)
			rc = tighten_make(&s->tight[slot], slot, &s->inforce[slot], e);
	if (rc == 0)
		rc = wayout_open(s, e);
	if (rc == 0)
		rc = make_init_fd(&s->init_fd, e);
	if (rc == 0)
		rc = filter_compile(FILTER_INIT, &s->own_filter_fd, &s->own_filter_len, e);
	if (rc == 0)
		rc = template_open_registry(s, e);
	if (rc == 0)
		rc = own_mounts(e);
	if (rc == 0)
		rc = template_open(s, e);
	if (rc == 0 && s->config.attached)
		rc = attached_open(s, e);
	return rc;
}

/*
 * Without sandboxes: its own name, since two services must not write one record, and nothing in the kernel. What an ordinary
 * service left under that name is swept; what others left is theirs, or their next start's.
 */
static int set_up_policy_only(struct supervisor *s, int auditor_fd, struct err *e)
{
	_cleanup_fd_ int global = -1;
	struct err inner;
	int rc;

	raise_open_files();
	rc = open_loop(s, auditor_fd, e);
	if (rc == 0)
		rc = supervisor_lock(&global, e);
	if (rc == 0)
		rc = sweep_claim(s, e);
	if (rc == 0)
		rc = sweep_own(s, e);
	if (rc == 0)
		rc = slot_watch(s, e);
	/* What it is for, the record of denials, it can do with fewer rights; each window says that nothing was metered. */
	if (rc == 0 && metered_open(s, &inner) < 0)
		log_error("%s: %s; windows of attachments have no CPU time, memory and programs of eBPF's", inner.where,
			  inner.msg);
	return rc < 0 ? rc : attached_open(s, e);
}

struct supervisor *supervisor_alloc(const char *instance)
{
	struct supervisor *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->lock_fd = s->epoll_fd = s->signal_fd = s->init_fd = s->own_filter_fd = s->state_fd = -1;
	s->signal_src.fd = s->ring_src.fd = s->meter_src.fd = s->auditor_src.fd = s->addresses_src.fd = s->gateway_src.fd = -1;
	s->config.gateway_fd = s->config.key_dir_fd = -1;
	for (int slot = 0; slot < SLOTS; slot++)
		tighten_init(&s->tight[slot]);
	tighten_init(&s->next_tight);
	TAILQ_INIT(&s->templates);
	TAILQ_INIT(&s->boxes);
	TAILQ_INIT(&s->trash);
	snprintf(s->instance, sizeof s->instance, "%s", instance);
	snprintf(s->pin_dir, sizeof s->pin_dir, PIN_DIR "/%s", s->instance);
	snprintf(s->run_dir, sizeof s->run_dir, RUN_DIR "/%s", s->instance);
	return s;
}

static void take_policy(struct inforce *ret, struct inforce *from)
{
	if (!from)
		return;
	*ret = *from;
	*from = (struct inforce){0};
}

int supervisor_new(struct supervisor **ret, const struct supervisor_config *config, int auditor_fd, struct err *e)
{
	struct supervisor *s = supervisor_alloc(config->instance);
	int rc;

	if (!s) {
		inforce_clear(config->policy);
		inforce_clear(config->tool_policy);
		return err_set(e, ENOMEM, "supervisor", "out of memory");
	}
	s->config = *config;
	s->config.policy = s->config.tool_policy = NULL;
	take_policy(&s->inforce[SLOT_SNIPPET], config->policy);
	take_policy(&s->inforce[SLOT_TOOL], config->tool_policy);
	if (!config->tool_policy || !config->tool_egress) {
		s->config.tool_egress = false;
		s->config.gateway_fd = -1;
	}
	s->admit = tighten_admit;
	s->admitted = tighten_admitted;
	rc = s->config.policy_only ? set_up_policy_only(s, auditor_fd, e) : set_up(s, auditor_fd, e);
	if (rc < 0) {
		supervisor_free(s, NULL);
		return rc;
	}
	*ret = s;
	return 0;
}

const char *supervisor_python(const struct supervisor *s)
{
	return template_python(s->snippets);
}

const char *supervisor_warning(const struct supervisor *s, size_t i)
{
	return s->snippets ? image_warning(s->snippets->image, i) : NULL;
}

/* ---- loop ---- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static int next_timeout_ms(const struct supervisor *s)
{
	uint64_t at = pool_wake_ns(s), now = now_ns();
	const struct box *b;

	TAILQ_FOREACH (b, &s->boxes, link)
		at = earlier(earlier(earlier(at, b->deadline_ns), b->life_ns), b->oom_check_ns);
	if (!TAILQ_EMPTY(&s->trash))
		at = earlier(at, now + TRASH_RETRY_NS);
	at = earlier(at, s->drain_until_ns);
	at = earlier(at, s->guard_checked_ns + GUARD_CHECK_NS);
	at = earlier(at, s->refresh_ns);
	at = earlier(at, attached_wake_ns(s));
	at = earlier(at, timeline_wake_ns(s));
	if (!at)
		return -1;
	return at <= now ? 0 : (int)((at - now + 999999) / 1000000);
}

static void check_deadlines(struct supervisor *s)
{
	uint64_t now = now_ns();
	struct box *b = TAILQ_FIRST(&s->boxes), *next;

	for (; b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (b->oom_check_ns && b->oom_check_ns <= now)
			box_check_oom(s, b);
		if (b->life_ns && b->life_ns <= now)
			sup_session_outlived(s, b);
		if (b->deadline_ns && b->deadline_ns <= now)
			box_expired(s, b);
	}
}

/*
 * Ready means that the policy is in force, and that is asked of the kernel again and again: links can be detached behind our
 * back. A sandbox that waits is then worth nothing, and is replaced; building another fails and says why.
 */
static void check_guard(struct supervisor *s)
{
	struct box *b, *next;
	struct err e;

	if (now_ns() - s->guard_checked_ns < GUARD_CHECK_NS)
		return;
	s->guard_checked_ns = now_ns();
	slot_check_resolvers(s);
	if (s->config.policy_only)
		return; /* there is none of our own */
	if (guard_verify(s->guard, s->cgroups.v2_fd, &e) == 0) {
		s->unguarded = false;
		return;
	}
	if (!s->unguarded)
		log_error("policy: %s", e.msg);
	s->unguarded = true;
	for (b = TAILQ_FIRST(&s->boxes); b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (b->state == BOX_WARM || b->state == BOX_LOADING)
			box_event(s, b, BOX_KILL);
	}
}

static bool clients_left(const struct supervisor *s)
{
	for (unsigned i = 0; i < s->client_count; i++)
		if (s->clients[i].open)
			return true;
	return s->client_count == 0;
}

static void turn(struct supervisor *s, int timeout_ms)
{
	struct epoll_event ev;
	/* One at a time: a handler may close another's descriptor or free the sandbox that it is part of. Level-triggered, so
	 * the rest come again at once, in turn. */
	int n = epoll_wait(s->epoll_fd, &ev, 1, timeout_ms);
	struct source *src = ev.data.ptr;

	if (n < 0 && errno != EINTR)
		s->fatal = err_errno(&s->fatal_err, errno, "supervisor", "wait for events");
	if (n == 1)
		src->fn(s, src, ev.events);
}

/* What clients ask comes before what can wait: a run whose code is there must not wait for the next sandbox to be started. */
static void hear_clients(struct supervisor *s)
{
	for (unsigned i = 0; i < s->client_count; i++)
		if (s->clients[i].open)
			on_client(s, &s->clients[i].src, 0);
}

int supervisor_run(struct supervisor *s, struct err *e)
{
	pool_tell(s, true);
	while (!s->stopping && !s->fatal && clients_left(s) && !(s->drain_until_ns && now_ns() >= s->drain_until_ns)) {
		check_guard(s);
		if (s->refresh_ns && now_ns() >= s->refresh_ns)
			slot_refresh(s);
		hear_clients(s);
		attached_tick(s);
		timeline_tick(s);
		policy_text_tick(s);
		signer_tell(s, false);
		template_tend(s);
		pool_fill(s);
		pool_tell(s, false);
		/* The last client may just have hung up: then nothing is waited for. */
		turn(s, clients_left(s) ? next_timeout_ms(s) : 0);
		check_deadlines(s);
		close_hung_clients(s);
		trash_empty(s);
	}
	/* A client that hung up without being asked to has died: its status comes a moment after its socket's end. */
	for (int i = 0; i < CHILD_WAIT && s->child_count && !s->fatal && !s->stopping && !s->drain_until_ns; i++) {
		on_signal(s, &s->signal_src, 0);
		if (!s->fatal)
			usleep(CHILD_WAIT_US);
	}
	if (s->child_count && !s->fatal && !s->stopping && !s->drain_until_ns)
		s->fatal = err_set(&s->fatal_err, EPIPE, "api", "the api hung up");
	if (s->fatal && e)
		*e = s->fatal_err;
	return s->fatal;
}

/* ---- end ---- */

static void end_all(struct supervisor *s)
{
	uint64_t until = now_ns() + STOP_MS * 1000000ull;
	struct box *b, *next;

	s->stopping = true;
	for (b = TAILQ_FIRST(&s->boxes); b; b = next) {
		next = TAILQ_NEXT(b, link);
		/* When it is we who failed, that is no cancelled run: the client must hear it. */
		box_end(s, b, s->fatal ? RUN_END_BROKEN : RUN_END_CANCELLED);
	}
	while ((!TAILQ_EMPTY(&s->boxes) || !TAILQ_EMPTY(&s->trash)) && now_ns() < until) {
		turn(s, 20);
		trash_empty(s);
	}
	if (!TAILQ_EMPTY(&s->boxes))
		log_error("a sandbox does not end");
}

static void first_error(int *rc, struct err *e, int got, const struct err *got_e)
{
	if (got < 0 && *rc == 0) {
		*rc = got;
		if (e)
			*e = *got_e;
	}
}

int supervisor_free(struct supervisor *s, struct err *e)
{
	_cleanup_fd_ int global = -1;
	struct cgroup_swept swept;
	struct err tmp;
	struct note n;
	int rc = 0;

	if (!s)
		return 0;
	if (s->guard && s->notes) {
		end_all(s);
		notes_drain_all(s);
	}
	attached_close(s);
	if (s->notes && s->auditor_src.fd >= 0) {
		note_init(&n, NOTE_FLUSH, NULL);
		notes_push(s, &n);
		notes_finish(s);
	}
	signer_close(s);
	notes_free(s);
	metrics_free(s);
	for (unsigned i = 0; i < s->client_count; i++)
		source_close(s, &s->clients[i].src);
	wayout_close(s);
	source_close(s, &s->ring_src);
	source_close(s, &s->meter_src);
	s->meter = meter_free(s->meter);
	source_close(s, &s->auditor_src);
	source_close(s, &s->signal_src);
	slot_free(s);
	cleanup_fdp(&s->epoll_fd);
	if (s->have_cgroups) {
		first_error(&rc, e, cgroup_instance_sweep(&s->cgroups.host, s->instance, NULL, NULL, &swept, &tmp), &tmp);
		guard_free(s->guard);
		/* Something may still be alive in there: then the programs go on judging it. */
		if (rc == 0)
			first_error(&rc, e, guard_unpin(s->pin_dir, &tmp), &tmp);
		cgroup_instance_close(&s->cgroups);
		/* Under the lock, so that `weir` itself does not vanish under one that is just being made. */
		first_error(&rc, e, supervisor_lock(&global, &tmp), &tmp);
		first_error(&rc, e, cgroup_instance_remove(&s->cgroups.host, s->instance, &tmp), &tmp);
	}
	template_close(s);
	cleanup_fdp(&s->init_fd);
	for (int slot = 0; slot < SLOTS; slot++)
		tighten_clear(&s->tight[slot]);
	cleanup_fdp(&s->own_filter_fd);
	if (s->lock_fd >= 0) {
		char path[192];

		snprintf(path, sizeof path, "%s/state-dir", s->run_dir);
		unlink(path);
		snprintf(path, sizeof path, "%s/lock", s->run_dir);
		unlink(path);
		rmdir(s->run_dir);
		close(s->lock_fd);
	}
	free(s);
	return rc;
}
