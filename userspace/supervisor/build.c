/* SPDX-License-Identifier: Apache-2.0 */
/* From nothing to a sandbox at its gate: the supervisor's steps of the plan, in the plan's order. */
#include "supervisor/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "ipc/decode.h"

#define ENDED_EARLY "the interpreter ended before it was ready"
#define CARRY_S 20   /* for a carrier to be there: each takes milliseconds, and they are started one after the other */
#define ID_RANDOM 13 /* base 36: 67 bits */

/* The child's ends, only between CHANNELS and CLONE. */
struct channels {
	int control, request, gate, out, err, result;
	int tasks[CG_CONTROLLERS];
	int task_count;
};

static void channels_init(struct channels *c)
{
	c->control = c->request = c->gate = c->out = c->err = c->result = -1;
	c->task_count = 0;
}

static void channels_close(struct channels *c)
{
	cleanup_fdp(&c->control);
	cleanup_fdp(&c->request);
	cleanup_fdp(&c->gate);
	cleanup_fdp(&c->out);
	cleanup_fdp(&c->err);
	cleanup_fdp(&c->result);
	while (c->task_count)
		close(c->tasks[--c->task_count]);
}

void box_fail(struct supervisor *s, struct box *b, enum plan_step step, int error, const char *text)
{
	/* What is being killed, be it thrown away on purpose, fails no more. */
	if (b->failed_step != STEP_NONE || b->state >= BOX_ENDING)
		return;
	b->failed_step = step;
	b->failed_errno = error ? error : EIO;
	snprintf(b->failed_text, sizeof b->failed_text, "%.255s", text);
	box_event(s, b, BOX_FAILED);
}

/* When it has to be ready. */
static uint64_t ready_by(const struct supervisor *s, const struct box *b)
{
	const unsigned call_s = s->config.call_ready_s ? s->config.call_ready_s : LIMIT_CALL_READY_S;

	return b->made_ns + (b->t->call ? call_s : LIMIT_READY_S) * 1000000000ull;
}

void box_made(struct supervisor *s, struct box *b)
{
	s->making -= b->in_making;
	b->in_making = false;
}

static int random_id(struct box *b)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	unsigned char raw[ID_RANDOM * 2];
	uint32_t uid;
	size_t n = (size_t)snprintf(b->id, sizeof b->id, "sandbox-");
	size_t used = 0;

	if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw || getrandom(&uid, sizeof uid, 0) != (ssize_t)sizeof uid)
		return -errno;
	/* Two bytes a digit: the bias of 65536 mod 36 is below one part in a thousand. */
	for (; used < ID_RANDOM; used++)
		b->id[n + used] = digits[(raw[2 * used] << 8 | raw[2 * used + 1]) % 36];
	b->id[n + used] = 0;
	b->uid = UID_SANDBOX_FIRST + uid % UID_SANDBOX_COUNT;
	return 0;
}

static bool uid_taken(const struct supervisor *s, const struct box *b)
{
	const struct box *other;

	TAILQ_FOREACH (other, &s->boxes, link)
		if (other != b && other->uid == b->uid)
			return true;
	/* What carried its packets may not be dead yet. */
	TAILQ_FOREACH (other, &s->trash, link)
		if (other->uid == b->uid)
			return true;
	return false;
}

/* ---- the steps ---- */

struct build {
	struct supervisor *s;
	struct box *b;
	struct channels ch;
};

static const struct tightening *tight_of(const struct build *x)
{
	return &x->s->tight[x->b->t->slot];
}

static int do_cgroup2(struct build *x, struct err *e)
{
	return cgroup_box_make_v2(&x->b->cgroup, &x->s->cgroups, x->b->id, e);
}

static int do_cgroup2_limits(struct build *x, struct err *e)
{
	return cgroup_box_limit_v2(&x->b->cgroup, &x->s->cgroups, &tight_of(x)->cgroup, e);
}

static int do_cgroup1(struct build *x, struct err *e)
{
	return cgroup_box_make_v1(&x->b->cgroup, &x->s->cgroups, &tight_of(x)->cgroup, e);
}

static int do_policy_entry(struct build *x, struct err *e)
{
	int rc = guard_set_sandbox(x->s->guard, x->b->cgroup.id, x->b->t->slot, WEIR_SB_PROBE | WEIR_SB_OWN_NET, e);

	x->b->guarded = rc == 0;
	return rc < 0 ? rc : metered_add(x->s, x->b, e);
}

static int do_policy_effective(struct build *x, struct err *e)
{
	return guard_verify(x->s->guard, x->b->cgroup.v2_fd, e);
}

static int pair(int type, int *ours, int *theirs, const char *what, struct err *e)
{
	int sv[2];

	/* Theirs blocks: init and the harness have nothing else to do. */
	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sv) < 0 || fcntl(sv[0], F_SETFL, O_NONBLOCK) < 0)
		return err_errno(e, errno, "channels", "make the %s", what);
	*ours = sv[0];
	*theirs = sv[1];
	return 0;
}

static int out_pipe(int *ours, int *theirs, const char *what, struct err *e)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0 || fcntl(p[0], F_SETFL, O_NONBLOCK) < 0)
		return err_errno(e, errno, "channels", "make the %s", what);
	*ours = p[0];
	*theirs = p[1];
	return 0;
}

static int do_channels(struct build *x, struct err *e)
{
	struct box *b = x->b;
	const int on = 1;
	int rc = pair(SOCK_SEQPACKET, &b->control.fd, &x->ch.control, "control socket", e);

	if (rc == 0)
		rc = pair(SOCK_SEQPACKET, &b->gate.fd, &x->ch.gate, "gate", e);
	if (rc == 0)
		rc = pair(SOCK_STREAM, &b->request, &x->ch.request, "request socket", e);
	if (rc == 0)
		rc = out_pipe(&b->out, &x->ch.out, "output pipes", e);
	if (rc == 0)
		rc = out_pipe(&b->err, &x->ch.err, "output pipes", e);
	if (rc == 0 && b->t->call)
		rc = out_pipe(&b->result, &x->ch.result, "result pipe", e);
	if (rc == 0)
		rc = refused_make(b, e);
	/* /dev/stdout opens the pipe anew, which asks who owns it. */
	if (rc == 0 && (fchown(x->ch.out, b->uid, b->uid) < 0 || fchown(x->ch.err, b->uid, b->uid) < 0))
		rc = err_errno(e, errno, "channels", "give the output pipes to the sandbox");
	/* The gate's first message tells us the payload's pid, from the kernel. */
	if (rc == 0 && setsockopt(b->gate.fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0)
		rc = err_errno(e, errno, "channels", "ask for credentials");
	if (rc == 0) {
		rc = cgroup_box_tasks(&b->cgroup, x->ch.tasks, e);
		x->ch.task_count = rc < 0 ? 0 : rc;
	}
	return rc < 0 ? rc : 0;
}

static int do_way_out(struct build *x, struct err *e)
{
	return wayout_make(x->s, x->b, e);
}

/* In the child, before exec: puts exactly the descriptors of enum init_fd in place. Async-signal-safe calls only. */
static void __attribute__((noreturn)) become_init(const struct build *x)
{
	const struct supervisor *s = x->s;
	int want[INIT_FD_END], high[INIT_FD_END], n = 0;
	char *const argv[] = {(char *)"weir-init", NULL};
	char *const envp[] = {NULL};
	int program = fcntl(s->init_fd, F_DUPFD_CLOEXEC, 200);
	sigset_t none;

	want[n++] = x->ch.control;
	want[n++] = tight_of(x)->filter_fd;
	want[n++] = s->own_filter_fd;
	want[n++] = x->ch.request;
	want[n++] = x->ch.gate;
	want[n++] = x->ch.out;
	want[n++] = x->ch.err;
	want[n++] = x->ch.result >= 0 ? x->ch.result : s->own_filter_fd; /* a snippet's place is held, and nobody uses it */
	want[n++] = refused_fd(x->b);
	for (int i = 0; i < x->ch.task_count; i++)
		want[n++] = x->ch.tasks[i];
	for (int i = 0; i < n; i++)
		high[i] = fcntl(want[i], F_DUPFD_CLOEXEC, 100);
	for (int i = 0; i < n; i++)
		if (high[i] < 0 || dup2(high[i], INIT_FD_CONTROL + i) < 0)
			_exit(125);
	/* Our terminal, log or whatever 0-2 are stays outside; init itself writes nothing there. */
	for (int i = 0; i < 3; i++)
		close(i);
	/* Ours are all close-on-exec; a library's might not be. */
	if (program < 0 || syscall(SYS_close_range, INIT_FD_CONTROL + n, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		_exit(125);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	syscall(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH);
	_exit(125);
}

static int do_clone(struct build *x, struct err *e)
{
	struct box *b = x->b;
	int pidfd = -1;
	struct clone_args args = {
	    /* The other namespaces are made by init itself: they take a millisecond, and here that would be everybody's. */
	    .flags = CLONE_NEWPID | CLONE_PIDFD | CLONE_INTO_CGROUP,
	    .pidfd = (uint64_t)(uintptr_t)&pidfd,
	    .exit_signal = SIGCHLD,
	    .cgroup = (uint64_t)b->cgroup.v2_fd,
	};
	long pid = syscall(SYS_clone3, &args, sizeof args);

	if (pid == 0)
		become_init(x);
	if (pid < 0)
		return err_errno(e, errno, "namespaces", "clone init into its pid namespace and cgroup");
	b->init_pid = (pid_t)pid;
	b->pidfd.fd = pidfd;
	return 0;
}

static void plan_call(const struct supervisor *s, const struct box *b, struct init_plan *p)
{
	const struct box_template *t = b->t;

	p->call = 1;
	p->tmpfs_bytes = LIMIT_CALL_TMPFS_BYTES;
	p->tmpfs_inodes = LIMIT_CALL_TMPFS_INODES;
	memcpy(p->modules, t->modules, sizeof p->modules);
	memcpy(p->workdir, t->workdir, sizeof p->workdir);
	memcpy(p->variables, t->variables, sizeof p->variables);
	wayout_plan(s, b, p);
}

static int do_plan(struct build *x, struct err *e)
{
	const struct supervisor *s = x->s;
	const struct tightening *tight = tight_of(x);
	struct init_plan p = {
	    .magic = PLAN_MAGIC,
	    .uid = x->b->uid,
	    .gid = x->b->uid,
	    .init_uid = UID_INIT,
	    .nofile = tight->open_files,
	    .v1_count = (uint32_t)x->ch.task_count,
	    .filter_len = tight->filter_len,
	    .own_filter_len = s->own_filter_len,
	    .tmpfs_bytes = LIMIT_TMPFS_BYTES,
	    .tmpfs_inodes = LIMIT_TMPFS_INODES,
	    .fault = s->config.fault,
	    .skip = s->config.skip,
	};
	int rc;

	snprintf(p.stage, sizeof p.stage, "%s", x->b->t->stage);
	image_plan(x->b->t->image, &p);
	if (x->b->t->call)
		plan_call(s, x->b, &p);
	rc = ipc_send(x->b->control.fd, &p, sizeof p, NULL, 0);
	return rc < 0 ? err_errno(e, -rc, "init", "hand the plan to init") : 0;
}

static const struct {
	int (*fn)(struct build *x, struct err *e);
	enum plan_step step;
	bool way_out; /* only of those that have one */
} steps[] = {
    {do_cgroup2, STEP_CGROUP2, false},
    {do_cgroup2_limits, STEP_CGROUP2_LIMITS, false},
    {do_cgroup1, STEP_CGROUP1, false},
    {do_policy_entry, STEP_POLICY_ENTRY, false},
    {do_policy_effective, STEP_POLICY_EFFECTIVE, false},
    {do_channels, STEP_CHANNELS, false},
    {do_way_out, STEP_WAY_OUT, true},
    {do_clone, STEP_CLONE, false},
    {do_plan, STEP_PLAN, false},
};

/* Whether a test has the step fail or left out: *rc is then what comes of it. */
static bool hook(const struct supervisor *s, enum plan_step step, int *rc, struct err *e)
{
	*rc = 0;
#ifdef WEIR_TEST_HOOKS
	if (s->config.fault == step) {
		*rc = err_set(e, EIO, plan_steps[step].layer, "made to fail by a test");
		return true;
	}
	return s->config.skip == step;
#else
	(void)s;
	(void)step;
	(void)e;
	return false;
#endif
}

/* A step of the supervisor that comes after init was started. */
static int late_step(struct supervisor *s, struct box *b, enum plan_step step, int (*fn)(void *arg, struct err *e), void *arg)
{
	struct err e = {0};
	int rc = 0;

	if (!hook(s, step, &rc, &e))
		rc = fn(arg, &e);
	if (rc < 0)
		box_fail(s, b, step, e.code, e.msg);
	return rc;
}

/* ---- what init and the harness say ---- */

struct late {
	struct supervisor *s;
	struct box *b;
	const struct init_report *report;
	int *tap;  /* -1 once it is somebody else's */
	bool sent; /* LOAD: the harness was told */
};

static int do_probe_count(void *arg, struct err *e)
{
	struct late *l = arg;

	return verify_probes(l->s, l->b, l->report->probe_errno, e);
}

static int do_carry(void *arg, struct err *e)
{
	struct late *l = arg;
	int tap = *l->tap;

	*l->tap = -1;
	return wayout_carry(l->s, l->b, tap, e);
}

static int do_load(void *arg, struct err *e)
{
	struct late *l = arg;
	const char load = GATE_LOAD;

	l->sent = true;
	if (send(l->b->gate.fd, &load, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
		return err_errno(e, errno, "tools", "tell the interpreter to import its modules");
	return 0;
}

static int do_ready(void *arg, struct err *e)
{
	(void)arg;
	(void)e;
	return 0; /* hearing from the harness is the step */
}

static int do_verify(void *arg, struct err *e)
{
	struct late *l = arg;
	int rc = verify_payload(l->s, l->b, e);

	return rc < 0 ? rc : verify_workdir(l->b, e);
}

/* Before they are verified: what is then found true is true of this very process and directory, whatever their names say. */
static int hold(struct box *b)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	_cleanup_fd_ int root = -1;
	char path[64];

	b->main_fd = (int)syscall(SYS_pidfd_open, b->payload_pid, 0);
	if (b->main_fd < 0)
		return -errno;
	/* Init's own root is what every process in there sees, and init runs nobody's code but ours. */
	snprintf(path, sizeof path, "/proc/%d/root", b->init_pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	b->workdir = (int)syscall(SYS_openat2, root, SANDBOX_WORKDIR + 1, &how, sizeof how);
	return b->workdir < 0 ? -errno : 0;
}

static void maybe_ready(struct supervisor *s, struct box *b)
{
	struct late l = {.s = s, .b = b};
	int rc;

	if (!b->started || !b->at_gate || b->state != BOX_BUILDING || late_step(s, b, STEP_READY, do_ready, &l) < 0)
		return;
	rc = hold(b);
	if (rc < 0) {
		box_fail(s, b, STEP_VERIFY, -rc, "the payload and its working directory can't be opened");
		return;
	}
	if (late_step(s, b, STEP_VERIFY, do_verify, &l) < 0)
		return;
	b->verified_ns = now_ns();
	box_event(s, b, b->t->call ? BOX_LOAD : BOX_READY);
}

/* ---- an agent's modules ---- */

void box_say_loading(const struct box *b, char ret[96])
{
	const char *modules = b->t->modules;
	size_t first = strcspn(modules, ",");
	unsigned more = 0;

	for (const char *p = modules; (p = strchr(p, ',')); p++)
		more++;
	if (more)
		snprintf(ret, 96, "importing %.*s and %u more", (int)(first < 60 ? first : 60), modules, more);
	else
		snprintf(ret, 96, "importing %.*s", (int)(first < 60 ? first : 60), modules);
}

void box_say_slow(const struct box *b, char ret[256])
{
	char what[96] = "making the sandbox";

	if (b->state == BOX_LOADING)
		box_say_loading(b, what);
	else if (b->way.asked && !b->way.ready)
		snprintf(what, sizeof what, "starting what carries its packets");
	else if (b->started)
		snprintf(what, sizeof what, "starting the interpreter");
	snprintf(ret, 256, "%s: %u s", what, (unsigned)((now_ns() - b->made_ns) / 1000000000ull));
}

void box_loading_died(struct box *b)
{
	if (b->failed_step != STEP_NONE)
		return;
	b->failed_step = STEP_LOAD;
	b->failed_errno = ECHILD;
}

static void loaded(struct supervisor *s, struct box *b, bool well)
{
	b->loaded_ns = now_ns();
	b->t->not_ahead = !well;
	box_event(s, b, BOX_LOADED);
}

void box_load(struct supervisor *s, struct box *b)
{
	struct late l = {.s = s, .b = b};

	pool_weigh_loading(s, b);
	account_load(s, b);
	if (late_step(s, b, STEP_LOAD, do_load, &l) == 0 && !l.sent)
		loaded(s, b, true); /* left out by a test */
}

/* ---- a tool's way out ---- */

void box_carried(struct supervisor *s, struct box *b)
{
	int rc;

	if (b->state != BOX_BUILDING)
		return;
	b->deadline_ns = ready_by(s, b);
	rc = ipc_send(b->control.fd, "g", 1, NULL, 0);
	if (rc < 0)
		box_fail(s, b, STEP_CARRY, -rc, "init went away");
}

static void tap_came(struct supervisor *s, struct box *b, int tap)
{
	struct late l = {.s = s, .b = b, .tap = &tap};
	const uint64_t by = now_ns() + CARRY_S * 1000000000ull;
	int rc;

	/* What is left takes no time of ours, and may take its own: snippets are built meanwhile. */
	box_made(s, b);
	if (by < b->deadline_ns)
		b->deadline_ns = by;
	rc = late_step(s, b, STEP_CARRY, do_carry, &l);
	if (rc == 0 && tap >= 0)
		box_carried(s, b); /* left out by a test */
	cleanup_fdp(&tap);
}

static void probed(struct supervisor *s, struct box *b, const struct init_report *r)
{
	struct late l = {.s = s, .b = b, .report = r};
	struct err e = {0};
	int rc;

	if (late_step(s, b, STEP_PROBE_COUNT, do_probe_count, &l) < 0)
		return;
	b->probed = true;
	/* Replacing the entry clears the probe flag and sets every counter to zero: from here on attempts are the run's. */
	rc = guard_set_sandbox(s->guard, b->cgroup.id, b->t->slot, WEIR_SB_OWN_NET, &e);
	if (rc == 0)
		rc = ipc_send(b->control.fd, "g", 1, NULL, 0);
	if (rc < 0)
		box_fail(s, b, STEP_PROBE_COUNT, -rc, e.msg[0] ? e.msg : "init went away");
}

static void init_failed(struct supervisor *s, struct box *b, const struct init_report *r)
{
	char text[200];

	snprintf(text, sizeof text, "%s%s%s: %s", plan_steps[r->step].what, r->detail[0] ? ": " : "", r->detail,
		 strerror(r->error));
	box_fail(s, b, (enum plan_step)r->step, r->error, text);
}

static void init_exited(struct supervisor *s, struct box *b, const struct init_report *r)
{
	b->rusage_cpu_us = r->cpu_us;
	/* A session that dies while its cell's end is being told: the cell had an end of its own. */
	if (!b->have_status) {
		b->status = r->status;
		b->have_status = true;
		b->ended_ns = now_ns();
	}
	if (b->state == BOX_BUILDING)
		box_fail(s, b, STEP_READY, EPIPE, ENDED_EARLY);
	if (b->state == BOX_LOADING)
		box_loading_died(b);
	box_event(s, b, BOX_MAIN_EXIT);
}

static void hear_init(struct supervisor *s, struct box *b, const struct init_report *r, int *fd)
{
	/* What is being killed takes no further step. */
	if (b->state >= BOX_ENDING && r->type != REPORT_EXITED)
		return;
	switch (r->type) {
	case REPORT_TAP:
		if (!b->way.wanted || b->way.asked || b->probed || *fd < 0)
			break;
		tap_came(s, b, *fd);
		*fd = -1;
		return;
	case REPORT_PROBED:
		probed(s, b, r);
		return;
	case REPORT_FAILED:
		init_failed(s, b, r);
		return;
	case REPORT_STARTED:
		b->started = true;
		refused_started(b, r->error);
		if (b->t->call)
			box_made(s, b); /* what is left is up to the image's own interpreter, which may take its time */
		maybe_ready(s, b);
		return;
	case REPORT_EXITED:
		init_exited(s, b, r);
		return;
	default:
		break;
	}
	box_fail(s, b, STEP_PLAN, EBADMSG, "init sent what no init sends");
}

/* Handles one message of init's; false when there was none. */
static bool read_control(struct supervisor *s, struct box *b)
{
	struct init_report r;
	const char *why;
	int fd = -1;
	size_t fds = 1;
	ssize_t n = b->control.fd < 0 ? 0 : ipc_recv(b->control.fd, &r, sizeof r, &fd, &fds);

	if (n == -EAGAIN)
		return false;
	if (n != (ssize_t)sizeof r) {
		cleanup_fdp(&fd);
		/* The end of init is told by its pidfd; here there is nothing more to hear. */
		source_close(s, &b->control);
		return false;
	}
	why = init_report_problem(&r);
	if (why)
		box_fail(s, b, STEP_PLAN, EBADMSG, why);
	else
		hear_init(s, b, &r, &fd);
	cleanup_fdp(&fd);
	return true;
}

static void on_control(struct supervisor *s, struct source *src, uint32_t events)
{
	(void)events;
	read_control(s, src->owner);
}

/*
 * One message from the gate: 1, 0 when there was none, -EPIPE at its end, -EBADMSG when it is no word of the protocol or not
 * the payload's own. What else came with it, descriptors say, is closed by the kernel: there is no room for it.
 */
static int read_gate(const struct box *b, struct gate_report *ret, pid_t *ret_pid)
{
	union {
		char buf[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {ret, sizeof *ret};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof control.buf};
	ssize_t n = recvmsg(b->gate.fd, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	const struct cmsghdr *c;

	/* It ended without reading our last word. The kernel says so first, and once; what it has said itself comes after. */
	if (n < 0 && errno == ECONNRESET)
		n = recvmsg(b->gate.fd, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	c = n < 0 ? NULL : CMSG_FIRSTHDR(&mh);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0 || (n == 0 && !c)) /* an empty message has its sender's credentials */
		return -EPIPE;
	if (n != (ssize_t)sizeof *ret || (mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || !c || c->cmsg_level != SOL_SOCKET ||
	    c->cmsg_type != SCM_CREDENTIALS || gate_report_problem(ret))
		return -EBADMSG;
	*ret_pid = ((const struct ucred *)CMSG_DATA(c))->pid;
	return 1;
}

/* Before there is a run: a warm or granted sandbox whose harness is gone, or does not behave like one, is worth nothing. */
static void gate_lost(struct supervisor *s, struct box *b, int error)
{
	if (b->state == BOX_LOADING && error == -EPIPE)
		return; /* main is ending, and init will say how; one that only closed the gate is waited for in vain */
	if (b->state == BOX_LOADING) {
		box_fail(s, b, STEP_LOAD, EBADMSG, "the interpreter sent what no harness sends while it imported modules");
		return;
	}
	if (b->state != BOX_BUILDING) {
		/* It was fine once; somebody outside killed it. No build has failed. */
		if (b->begun && !b->why[0])
			snprintf(b->why, sizeof b->why, "its interpreter said what no harness says");
		if (b->state != BOX_ENDING)
			log_warn("%s: died while %s", b->id, box_state_names[b->state]);
		box_event(s, b, BOX_FAILED);
		return;
	}
	/* A step that failed in pid 2 was reported before it ended: the report is in the socket, and says more. */
	while (read_control(s, b))
		;
	box_fail(s, b, STEP_READY, EPIPE, ENDED_EARLY);
}

static void gate_refused(struct supervisor *s, struct box *b, const struct gate_report *r)
{
	b->refused_errno = r->value;
	b->refused_index = r->index;
	b->ran = false; /* the gate may be open already; the harness never looked */
	box_event(s, b, BOX_REFUSED);
}

/* Its exit status alone would look like the run's own. */
static void harness_failed(struct supervisor *s, struct box *b, const struct gate_report *r)
{
	char text[128];

	snprintf(text, sizeof text, "the harness could not take the request: %s",
		 r->value ? strerror(r->value) : "out of memory?");
	b->ran = false; /* the gate may be open already; the harness never looked */
	box_fail(s, b, STEP_EXEC, r->value, text);
}

static void on_gate(struct supervisor *s, struct source *src, uint32_t events)
{
	struct box *b = src->owner;
	struct gate_report r;
	pid_t pid = 0;
	int rc = read_gate(b, &r, &pid);

	(void)events;
	if (rc == 0)
		return;
	if (rc == 1 && r.type == GATE_READY && !b->at_gate) {
		b->payload_pid = pid;
		b->at_gate = true;
		maybe_ready(s, b);
		return;
	}
	/* Whoever else got hold of the gate: it is not his. */
	if (rc == 1 && pid != b->payload_pid)
		rc = -EBADMSG;
	if (rc == 1 && r.type == GATE_LOADED && b->state == BOX_LOADING) {
		loaded(s, b, r.value == 0);
		return;
	}
	if (rc == 1 && b->session) {
		sup_session_hears(s, b, &r);
		return;
	}
	/* A tool's interpreter is its author's, who must not make a call that has run look like one that has not. */
	if (rc == 1 && b->t->call && (r.type != GATE_FAILED || b->begun))
		rc = -EBADMSG;
	if (rc == 1 && r.type == GATE_REFUSED && b->client) {
		gate_refused(s, b, &r);
		return;
	}
	if (rc == 1 && r.type == GATE_FAILED && b->client) {
		harness_failed(s, b, &r);
		return;
	}
	source_close(s, src);
	if (b->session && rc == -EPIPE)
		sup_session_gate_closed(s, b);
	else if (b->session)
		sup_session_goes_wrong(s, b, "its interpreter sent what no harness sends");
	else if (rc != -EPIPE || !b->ran) /* the harness closes its end when the code starts */
		gate_lost(s, b, rc);
}

static void on_pidfd(struct supervisor *s, struct source *src, uint32_t events)
{
	struct box *b = src->owner;
	siginfo_t si = {0};

	(void)events;
	/* Init is pid 1 of its namespace: this returns only when everything in there is dead and reaped. */
	if (waitid(P_PIDFD, (id_t)src->fd, &si, WEXITED | WNOHANG) < 0 || si.si_pid == 0)
		return;
	/* What init said last may still be in the socket. */
	while (read_control(s, b))
		;
	if (b->state == BOX_BUILDING && b->failed_step == STEP_NONE) {
		b->failed_step = STEP_PLAN;
		b->failed_errno = EIO;
		snprintf(b->failed_text, sizeof b->failed_text,
			 si.si_code == CLD_EXITED ? "init ended before the sandbox was ready"
						  : "init was killed at birth; if the cgroup that Weir runs in was ever killed "
						    "through cgroup.kill, start Weir from another one");
	}
	if (b->state == BOX_LOADING)
		box_loading_died(b);
	if (!b->ended_ns)
		b->ended_ns = now_ns();
	source_close(s, src);
	box_event(s, b, BOX_EMPTY);
}

static void on_oom(struct supervisor *s, struct source *src, uint32_t events)
{
	struct box *b = src->owner;
	uint64_t count;

	(void)events;
	if (read(src->fd, &count, sizeof count) != (ssize_t)sizeof count)
		return;
	/* The event says "full"; the kill, if there is one, is counted a moment later. */
	b->oom_checks = 10;
	box_check_oom(s, b);
}

static int listen_to(struct supervisor *s, struct box *b)
{
	struct {
		struct source *src;
		void (*fn)(struct supervisor *, struct source *, uint32_t);
	} rows[] = {{&b->pidfd, on_pidfd}, {&b->control, on_control}, {&b->gate, on_gate}, {&b->oom, on_oom}};
	int rc = 0;

	b->oom.fd = b->cgroup.oom_event;
	for (size_t i = 0; rc == 0 && i < sizeof rows / sizeof rows[0]; i++) {
		rows[i].src->fn = rows[i].fn;
		rows[i].src->owner = b;
		if (rows[i].src->fd >= 0)
			rc = source_add(s, rows[i].src, EPOLLIN);
		b->watched = b->watched || (rc == 0 && i == 0);
	}
	return rc;
}

static void build_failed(struct supervisor *s, struct box *b)
{
	/* With an init there is a death to wait for; without one, it is over. */
	if (b->watched) {
		box_event(s, b, BOX_FAILED);
		return;
	}
	if (b->init_pid > 0) {
		(void)syscall(SYS_pidfd_send_signal, b->pidfd.fd, SIGKILL, NULL, 0);
		waitpid(b->init_pid, NULL, 0);
	}
	box_event(s, b, BOX_EMPTY);
}

static bool named(const struct supervisor *s, struct box *b)
{
	do
		if (random_id(b) < 0)
			return false;
	while (uid_taken(s, b));
	return true;
}

static void set_out(struct supervisor *s, struct box_template *t, struct box *b)
{
	b->t = t;
	b->made_ns = now_ns();
	b->deadline_ns = ready_by(s, b);
	b->memory_bytes = s->tight[t->slot].cgroup.memory_bytes;
	b->way.wanted = t->call && s->config.tool_egress;
	snprintf(b->project, sizeof b->project, "%s", t->project); /* of a snippet's: known when it is granted */
	b->state = BOX_BUILDING;
	b->in_making = true;
	s->making++;
	s->counts[b->state]++;
	t->counts[b->state]++;
	TAILQ_INSERT_TAIL(&s->boxes, b, link);
}

bool box_build(struct supervisor *s, struct box_template *t)
{
	struct box *b = calloc(1, sizeof *b);
	struct build x = {.s = s, .b = b};
	struct err e = {0};
	int rc = 0;

	if (!b)
		return false;
	channels_init(&x.ch);
	box_init(b);
	if (!named(s, b)) {
		free(b);
		return false;
	}
	set_out(s, t, b);
	for (size_t i = 0; rc == 0 && i < sizeof steps / sizeof steps[0]; i++) {
		if (steps[i].way_out && !b->way.wanted)
			continue;
		if (!hook(s, steps[i].step, &rc, &e))
			rc = steps[i].fn(&x, &e);
		if (rc < 0) {
			b->failed_step = steps[i].step;
			b->failed_errno = e.code ? e.code : -rc;
			snprintf(b->failed_text, sizeof b->failed_text, "%.255s", e.msg);
		}
	}
	channels_close(&x.ch);
	if (rc == 0 && (rc = listen_to(s, b)) < 0) {
		b->failed_step = STEP_CHANNELS;
		b->failed_errno = -rc;
		snprintf(b->failed_text, sizeof b->failed_text, "watch the sandbox: %s", strerror(-rc));
	}
	if (rc < 0)
		build_failed(s, b);
	return true;
}
