/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/governed.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "supervisor/internal.h"
#include "supervisor/leftover.h"

#define CHECK_NS 2000000000ull /* how often the kernel is asked whether the programs are effective */
#define REMOVE_TRIES 200       /* of 5 ms: exiting tasks leave a cgroup a little after they are reaped */

struct governed {
	struct supervisor *s;
	const struct command *command;
	struct box *box; /* NULL once released */
	struct source keeper;
	bool ended, unshielded;
	bool settled; /* its connections hold nothing any more */
	bool hurry;   /* asked to stop when the command was gone already */
	int status;
	uint64_t checked_ns;
};

/* ---- signals ---- */

static const int passed_on[] = {SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
static const int asks_to_stop[] = {SIGTERM, SIGINT, SIGQUIT};

static sigset_t taken_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++)
		sigaddset(&set, passed_on[i]);
	return set;
}

void governed_block_signals(void)
{
	sigset_t set = taken_signals();

	sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Once the command runs a signal is its own business; before that, it is about us. */
static int refuse_when_stopped(struct err *e)
{
	sigset_t pending;

	if (sigpending(&pending) < 0)
		return err_errno(e, errno, "process", "look for signals");
	for (size_t i = 0; i < sizeof asks_to_stop / sizeof asks_to_stop[0]; i++)
		if (sigismember(&pending, asks_to_stop[i]))
			return err_set(e, EINTR, "process", "SIG%s came before the command was started",
				       sigabbrev_np(asks_to_stop[i]));
	return 0;
}

static bool asks_us_to_stop(int signo)
{
	for (size_t i = 0; i < sizeof asks_to_stop / sizeof asks_to_stop[0]; i++)
		if (asks_to_stop[i] == signo)
			return true;
	return false;
}

static void on_signal(struct supervisor *s, struct source *src, uint32_t events)
{
	struct governed *g = src->owner;
	struct signalfd_siginfo si;

	(void)events;
	while (read(src->fd, &si, sizeof si) == (ssize_t)sizeof si) {
		/* What a terminal sends, it sends to the command as well: we share its process group. */
		bool from_terminal = si.ssi_code == SI_KERNEL;

		if (si.ssi_signo == SIGHUP) {
			slot_reload(s);
			return; /* whoever sends it without end must not keep us from the rest; the next one wakes us again */
		}
		if (g->ended)
			g->hurry = g->hurry || asks_us_to_stop((int)si.ssi_signo);
		else if (!from_terminal)
			(void)syscall(SYS_pidfd_send_signal, g->box->pidfd.fd, (int)si.ssi_signo, NULL, 0);
	}
}

static int watch_signals(struct governed *g, struct err *e)
{
	struct supervisor *s = g->s;
	sigset_t set = taken_signals();
	int rc;

	source_close(s, &s->signal_src);
	s->signal_src = (struct source){.fn = on_signal, .owner = g, .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};
	rc = s->signal_src.fd < 0 ? -errno : source_add(s, &s->signal_src, EPOLLIN);
	return rc < 0 ? err_errno(e, -rc, "process", "watch for signals") : 0;
}

/* ---- the policy ---- */

int governed_check(const struct inforce *policy, const struct command *c, struct err *e)
{
	const struct policy *p = policy->policy;

	if (p->loopback == WEIR_LOOPBACK_SELF)
		return err_set(e, ENOTSUP, "--policy",
			       "\"loopback\": \"self\" is for sandboxes, whose loopback is their own; this host's is not the "
			       "command's: leave it out, and write rules for 127.0.0.0/8 and ::1");
	if ((p->sockets.families & POLICY_AF_PACKET) && (c->caps >> CAP_NET_RAW & 1))
		return err_set(
		    e, ENOTSUP, "--policy",
		    "packet sockets with net_raw send frames below the place where the policy judges: leave \"packet\" "
		    "out of /sockets/families, or net_raw out of --keep-caps");
	return 0;
}

static struct governed *governed_of(const struct supervisor *s)
{
	return s->signal_src.owner;
}

static bool same_limits(const struct policy_limits *a, const struct policy_limits *b)
{
	return a->memory_bytes == b->memory_bytes && a->cpu_percent == b->cpu_percent && a->processes == b->processes &&
	       a->open_files == b->open_files;
}

/* A policy read again: refused when a command can't have it. Filter and limits were given at the start, and stay. */
static int admit(struct supervisor *s, enum slot slot, const struct inforce *fresh, struct err *e)
{
	const struct governed *g = governed_of(s);
	struct filter_host filter;
	int rc = governed_check(fresh, g->command, e);

	if (rc == 0)
		rc = filter_host_compile(fresh->policy, &filter, e);
	if (rc < 0)
		return rc;
	if (!filter_host_equal(&filter, g->command->filter))
		log_warn(
		    "the command keeps the system call filter it was started with: what changed in mode, sockets, listen or "
		    "syscalls is for the next start");
	if (!same_limits(&fresh->policy->limits, &s->inforce[slot].policy->limits))
		log_warn("the command keeps the limits it was started with: new ones are for the next start");
	filter_host_clear(&filter);
	return 0;
}

/* ---- up to the running command ---- */

static int do_cgroup2(struct governed *g, struct err *e)
{
	return cgroup_box_make_v2(&g->box->cgroup, &g->s->cgroups, g->box->id, e);
}

static int do_limits(struct governed *g, struct err *e)
{
	const struct policy_limits *l = &g->s->inforce[SLOT_SNIPPET].policy->limits;
	const struct cgroup_limits limits = {
	    .memory_bytes = l->memory_bytes, .cpu_percent = l->cpu_percent, .pids = l->processes};
	int rc = cgroup_box_limit_v2(&g->box->cgroup, &g->s->cgroups, &limits, e);

	return rc < 0 ? rc : cgroup_box_make_v1(&g->box->cgroup, &g->s->cgroups, &limits, e);
}

static void on_keeper(struct supervisor *s, struct source *src, uint32_t events)
{
	(void)events;
	source_close(s, src);
	/* Without it nobody would end the command if we were killed. */
	if (!s->fatal)
		s->fatal = err_set(&s->fatal_err, EPIPE, "keeper", "the process that keeps the command's cgroup is gone");
}

static int do_keeper(struct governed *g, struct err *e)
{
	_cleanup_fd_ int fd = openat(g->box->cgroup.v2_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return err_errno(e, errno, "keeper", "open the cgroup's kill file");
	rc = ipc_send(g->keeper.fd, GOVERNED_KEEP, 1, &fd, 1);
	return rc < 0 ? err_errno(e, -rc, "keeper", "hand over the cgroup's kill file") : 0;
}

static int do_policy_entry(struct governed *g, struct err *e)
{
	int rc = guard_set_sandbox(g->s->guard, g->box->cgroup.id, 0, 0, e);

	g->box->guarded = rc == 0;
	return rc < 0 ? rc : metered_add(g->s, g->box, e);
}

static int do_policy_effective(struct governed *g, struct err *e)
{
	return guard_verify(g->s->guard, g->box->cgroup.v2_fd, e);
}

static const struct {
	enum command_step step;
	int (*fn)(struct governed *g, struct err *e);
} steps[] = {
    {COMMAND_CGROUP2, do_cgroup2},
    {COMMAND_LIMITS, do_limits},
    {COMMAND_KEEPER, do_keeper},
    {COMMAND_POLICY_ENTRY, do_policy_entry},
    {COMMAND_POLICY_EFFECTIVE, do_policy_effective},
};

static uint64_t microseconds(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

/* False: it has not ended yet. */
static bool reap(struct governed *g, int flags)
{
	struct rusage used;
	pid_t got;

	do
		got = wait4(g->box->init_pid, &g->status, flags, &used);
	while (got < 0 && errno == EINTR);
	if (got == 0)
		return false;
	if (got > 0)
		g->box->rusage_cpu_us = microseconds(&used.ru_utime) + microseconds(&used.ru_stime);
	g->ended = true;
	return true;
}

static void on_pidfd(struct supervisor *s, struct source *src, uint32_t events)
{
	struct governed *g = src->owner;

	(void)events;
	if (!reap(g, WNOHANG))
		return;
	source_close(s, src);
}

/* The arguments may hold what nobody else should read: the record has the first, and a hash of all. */
static void note_command(const struct command *c, struct note *n)
{
	__typeof__(n->begin.command) *ret = &n->begin.command;
	gnutls_hash_hd_t hash;

	if (!c->argv[0] || gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) < 0) {
		log_error("the command's hash can't be made: it is not in the record");
		return;
	}
	for (char *const *arg = c->argv; *arg; arg++)
		(void)gnutls_hash(hash, *arg, strlen(*arg) + 1);
	gnutls_hash_deinit(hash, ret->sha256);
	ret->known = 1;
	ret->path_cut = strlen(c->argv[0]) >= sizeof ret->path;
	snprintf(ret->path, sizeof ret->path, "%s", c->argv[0]);
}

static void note_begin(struct governed *g)
{
	const struct policy_limits *l = &g->s->inforce[SLOT_SNIPPET].policy->limits;
	struct note n;

	note_init(&n, NOTE_RUN_BEGIN, g->box);
	slot_name(&g->s->inforce[SLOT_SNIPPET], &n.begin.policy);
	memcpy(n.begin.caller, g->box->caller, sizeof n.begin.caller);
	note_command(g->command, &n);
	snprintf(n.begin.boot_id, sizeof n.begin.boot_id, "%s", boot_id());
	n.begin.memory_bytes = l->memory_bytes;
	n.begin.cpu_percent = (uint32_t)l->cpu_percent;
	n.begin.processes = (uint32_t)l->processes;
	n.begin.open_files = (uint32_t)l->open_files;
	notes_push(g->s, &n);
	timeline_begin(g->s, g->box);
}

static int start(struct governed *g, struct err *e)
{
	struct command_process p = {.pidfd = -1};
	struct box *b = g->box;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sizeof steps / sizeof steps[0]; i++)
		if (!command_hook(g->command, steps[i].step, &rc, e))
			rc = steps[i].fn(g, e);
	if (rc == 0)
		rc = refuse_when_stopped(e);
	b->opened_ns = now_ns();
	if (rc == 0)
		rc = command_start(g->command, &b->cgroup, &p, e);
	if (rc < 0)
		return rc;
	g->unshielded = p.unshielded;
	b->init_pid = p.pid;
	b->ran = b->begun = true;
	b->state = BOX_RUNNING;
	b->pidfd = (struct source){.fn = on_pidfd, .owner = g, .fd = p.pidfd};
	note_begin(g);
	rc = source_add(g->s, &b->pidfd, EPOLLIN);
	return rc < 0 ? err_errno(e, -rc, "process", "watch the command") : 0;
}

static int make_box(struct governed *g, const char *caller, struct err *e)
{
	struct box *b = calloc(1, sizeof *b);

	if (!b)
		return err_set(e, ENOMEM, "process", "out of memory");
	box_init(b);
	snprintf(b->id, sizeof b->id, "%.47s", g->s->instance);
	snprintf(b->project, sizeof b->project, GOVERNED_PROJECT);
	snprintf(b->caller, sizeof b->caller, "%s", caller);
	TAILQ_INSERT_TAIL(&g->s->boxes, b, link);
	g->box = b;
	return 0;
}

static int watch_keeper(struct governed *g, int fd, struct err *e)
{
	int rc;

	g->keeper = (struct source){.fn = on_keeper, .owner = g, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)};
	rc = g->keeper.fd < 0 ? -errno : source_add(g->s, &g->keeper, 0); /* its end is all that is waited for */
	return rc < 0 ? err_errno(e, -rc, "keeper", "watch the keeper") : 0;
}

int governed_new(struct governed **ret, const struct governed_config *config, int auditor_fd, struct err *e)
{
	struct governed *g = calloc(1, sizeof *g);
	int rc;

	if (g)
		g->s = supervisor_alloc(config->instance);
	if (!g || !g->s) {
		free(g);
		close(auditor_fd);
		inforce_clear(config->policy);
		return err_set(e, ENOMEM, "process", "out of memory");
	}
	g->command = config->command;
	g->keeper.fd = -1;
	g->s->inforce[SLOT_SNIPPET] = *config->policy;
	memset(config->policy, 0, sizeof *config->policy);
	g->s->config.key_dir_fd = config->key_dir_fd;
	g->s->chain_untold = true;
	g->s->admit = admit;
	rc = instance_open(g->s, auditor_fd, e);
	if (rc == 0)
		rc = watch_signals(g, e);
	if (rc == 0)
		rc = slot_apply(g->s, e);
	if (rc == 0)
		rc = slot_watch(g->s, e);
	if (rc == 0)
		rc = watch_keeper(g, config->keeper_fd, e);
	if (rc == 0)
		rc = make_box(g, config->caller, e);
	if (rc == 0)
		rc = start(g, e);
	if (rc < 0) {
		governed_free(g, NULL);
		return rc;
	}
	*ret = g;
	return 0;
}

bool governed_unshielded(const struct governed *g)
{
	return g->unshielded;
}

/* ---- while it runs ---- */

static void check(struct governed *g)
{
	struct supervisor *s = g->s;
	struct err e;

	if (s->refresh_ns && s->refresh_ns <= now_ns())
		slot_refresh(s);
	if (now_ns() - g->checked_ns < CHECK_NS)
		return;
	g->checked_ns = now_ns();
	/* The host's addresses tell us when they change; its list of name servers has to be looked at. */
	slot_check_resolvers(s);
	/* Links can be detached behind our back: then nothing may go on as if they were there. */
	if (!s->fatal && guard_verify(s->guard, g->box->cgroup.v2_fd, &e) < 0)
		s->fatal = err_set(&s->fatal_err, e.code, "policy", "the command was ended: %.200s", e.msg);
}

static void turn(struct supervisor *s, int wait_ms)
{
	struct epoll_event ev;
	/* One at a time: a handler may close another's descriptor. Level-triggered, so the rest come again at once. */
	int n = epoll_wait(s->epoll_fd, &ev, 1, wait_ms);
	struct source *src = ev.data.ptr;

	if (n < 0 && errno != EINTR)
		s->fatal = err_errno(&s->fatal_err, errno, "process", "wait for events");
	if (n == 1)
		src->fn(s, src, ev.events);
}

static void kill_all(struct governed *g)
{
	struct box *b = g->box;
	int rc = cgroup_box_kill(&b->cgroup);

	if (rc < 0 && rc != -ENOENT)
		log_error("%s: kill the cgroup: %s", b->id, strerror(-rc));
	if (b->ran && !g->ended) {
		(void)syscall(SYS_pidfd_send_signal, b->pidfd.fd, SIGKILL, NULL, 0);
		(void)reap(g, 0);
	}
	box_confirm_empty(b);
}

/* Nobody is left to send anything, but the kernel sends what its connections still hold. The programs judge it until then. */
static void settle(struct governed *g)
{
	struct supervisor *s = g->s;
	struct leftover l = {.cgroup = g->box->cgroup.id};
	int wait_ms;

	if (g->settled || !g->box->ran)
		return;
	g->settled = true;
	while ((wait_ms = leftover_round(&l, s->inforce[SLOT_SNIPPET].image, g->hurry || s->fatal)) > 0) {
		uint64_t until = now_ns() + (uint64_t)wait_ms * 1000000;

		check(g);
		for (uint64_t now = now_ns(); now < until && !s->fatal; now = now_ns())
			turn(s, (int)((until - now + 999999) / 1000000));
	}
}

static void describe_end(const struct governed *g, struct tell_end *t)
{
	bool by_signal = WIFSIGNALED(g->status);

	t->ran = true;
	t->end = g->s->fatal ? RUN_END_BROKEN : by_signal ? RUN_END_SIGNAL : RUN_END_EXIT;
	t->signal = by_signal ? WTERMSIG(g->status) : 0;
	t->exit_code = by_signal ? 128 + t->signal : WEXITSTATUS(g->status);
	if (g->s->fatal) {
		snprintf(t->layer, sizeof t->layer, "%.23s", g->s->fatal_err.where);
		snprintf(t->detail, sizeof t->detail, "%.127s", g->s->fatal_err.msg);
	}
}

static void report(struct governed *g, uint64_t ended_ns)
{
	struct supervisor *s = g->s;
	uint64_t oom_kills;
	struct note n;

	note_init(&n, NOTE_RUN_END, g->box);
	describe_end(g, &n.end);
	n.end.duration_us = (ended_ns - g->box->opened_ns) / 1000;
	account_end(s, g->box, &n.end, &oom_kills);
	if (oom_kills && !n.end.detail[0])
		snprintf(n.end.detail, sizeof n.end.detail, "the policy's memory limit was exceeded");
	n.end.meter.syscalls_refused = n.end.meter.syscalls_interrupted = REFUSED_UNKNOWN;
	timeline_end(s, g->box);
	account_dropped(g->box, &n.end.meter);
	notes_push(s, &n);
	notes_flush(s);
}

static int wait_ms(const struct supervisor *s)
{
	const int most = s->refresh_ns ? 100 : (int)(CHECK_NS / 1000000);
	const uint64_t look = timeline_wake_ns(s), now = now_ns();

	if (!look || look >= now + (uint64_t)most * 1000000)
		return most;
	return look > now ? (int)((look - now) / 1000000) + 1 : 0;
}

int governed_wait(struct governed *g, int *ret_status, struct err *e)
{
	struct supervisor *s = g->s;
	uint64_t ended_ns;

	while (!g->ended && !s->fatal) {
		check(g);
		timeline_tick(s);
		if (!s->fatal)
			turn(s, wait_ms(s));
	}
	ended_ns = now_ns();
	kill_all(g);
	settle(g);
	report(g, ended_ns);
	if (s->fatal) {
		if (e)
			*e = s->fatal_err;
		return s->fatal;
	}
	*ret_status = g->status;
	return 0;
}

/* ---- the end ---- */

static void remove_cgroup(struct governed *g)
{
	for (int i = 0; i < REMOVE_TRIES; i++) {
		int rc = cgroup_box_remove(&g->box->cgroup, &g->s->cgroups);

		if (rc == 0)
			return;
		if (rc != -EBUSY)
			break;
		usleep(5000);
	}
	log_error("%s: its cgroup can't be removed yet; the next start of Weir will", g->box->id);
}

static void release_box(struct governed *g)
{
	struct supervisor *s = g->s;
	struct box *b = g->box;
	struct err e;

	if (!b)
		return;
	kill_all(g);
	settle(g);
	source_close(s, &b->pidfd);
	if (b->guarded && guard_del_sandbox(s->guard, b->cgroup.id, &e) < 0)
		log_error("%s: its policy entry stays: %s", b->id, e.msg);
	metered_remove(s, b);
	remove_cgroup(g);
	TAILQ_REMOVE(&s->boxes, b, link);
	timeline_drop(b);
	free(b->flows);
	free(b);
	g->box = NULL;
}

int governed_free(struct governed *g, struct err *e)
{
	int rc;

	if (!g)
		return 0;
	release_box(g);
	source_close(g->s, &g->keeper);
	rc = supervisor_free(g->s, e);
	free(g);
	return rc;
}
