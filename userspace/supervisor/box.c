/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a sandbox after it was built: the actions behind the table in core/lifecycle.c. */
#include "supervisor/internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"

#define OOM_RECHECK_NS 5000000ull
#define HURRY_NS 20000000ull /* ordinary processes are dead long before */

struct box *box_by_req(struct supervisor *s, const struct client *c, uint64_t req)
{
	struct box *b;

	TAILQ_FOREACH (b, &s->boxes, link)
		if (b->client == c && b->req == req)
			return b;
	return NULL;
}

struct box *box_by_cgroup(const struct supervisor *s, uint64_t cgroup)
{
	struct box *b;

	TAILQ_FOREACH (b, &s->boxes, link)
		if (b->cgroup.id == cgroup || (b->way.cgroup.id && b->way.cgroup.id == cgroup))
			return b;
	return NULL;
}

enum slot box_slot(const struct box *b, uint64_t cgroup)
{
	if (!b || !b->t)
		return SLOT_SNIPPET;
	return b->cgroup.id == cgroup ? b->t->slot : SLOT_CARRIER;
}

void box_note_begin(struct supervisor *s, const struct box *b, struct note *n)
{
	const struct box_template *t = b->t;

	slot_name(&s->inforce[t->slot], &n->begin.policy);
	memcpy(n->begin.caller, b->caller, sizeof n->begin.caller);
	snprintf(n->begin.python, sizeof n->begin.python, "%s", template_python(t));
	snprintf(n->begin.boot_id, sizeof n->begin.boot_id, "%s", boot_id());
	n->begin.memory_bytes = b->memory_bytes;
	n->begin.output_bytes = t->call ? LIMIT_CALL_OUTPUT_BYTES : LIMIT_OUTPUT_BYTES;
	n->begin.cpu_percent = s->tight[t->slot].cgroup.cpu_percent;
	n->begin.processes = s->tight[t->slot].cgroup.pids - SANDBOX_PIDS_OWN;
	n->begin.open_files = s->tight[t->slot].open_files;
	if (!t->call)
		return;
	snprintf(n->begin.agent, sizeof n->begin.agent, "%s", t->agent);
	snprintf(n->begin.image, sizeof n->begin.image, "sha256:%s", t->digest);
}

/* ---- actions ---- */

/* A tool's, that has rested since its modules were imported. */
static void wake(struct supervisor *s, struct box *b)
{
	int rc;

	account_grant(s, b);
	rc = cgroup_box_freeze(&b->cgroup, false);
	if (rc == 0)
		return;
	log_error("%s: it can't be thawed: %s", b->id, strerror(-rc));
	box_end(s, b, RUN_END_BROKEN);
}

static void do_grant(struct supervisor *s, struct box *b)
{
	struct tell t = {.type = TELL_GRANT, .req = b->req};
	int *const fds[IPC_FDS_MAX] = {&b->request, &b->out, &b->err, &b->workdir, &b->result};
	const int count = b->t->call ? IPC_FDS_MAX : IPC_FDS_MAX - 1; /* only a tool has a result */
	int sent[IPC_FDS_MAX];

	b->deadline_ns = now_ns() + LIMIT_HANDOVER_S * 1000000000ull;
	snprintf(t.grant.sandbox_id, sizeof t.grant.sandbox_id, "%s", b->id);
	snprintf(t.grant.run_id, sizeof t.grant.run_id, "%s", b->id);
	snprintf(t.grant.python, sizeof t.grant.python, "%s", template_python(b->t));
	if (b->t->call) {
		t.grant.build_us = (b->verified_ns - b->made_ns) / 1000;
		t.grant.load_us = (b->loaded_ns - b->verified_ns) / 1000;
		t.grant.waited_us = b->waited_us;
	}
	for (int i = 0; i < count; i++)
		sent[i] = *fds[i];
	client_tell(b->client, &t, sent, (size_t)count);
	for (int i = 0; i < count; i++) {
		cleanup_fdp(fds[i]);
		*fds[i] = -1;
	}
	if (b->t->call)
		wake(s, b);
	else
		cpus_take(s, b); /* a tool has the time of more than one */
}

/* The programs were effective when it was built; that may be hours ago, and links can be detached. */
bool box_still_guarded(struct supervisor *s, struct box *b)
{
	struct err e;

	if (guard_verify(s->guard, b->cgroup.v2_fd, &e) == 0)
		return true;
	log_error("%s: not started: %s", b->id, e.msg);
	box_fail(s, b, STEP_POLICY_EFFECTIVE, e.code, e.msg);
	return false;
}

static void do_open_gate(struct supervisor *s, struct box *b)
{
	const char go = GATE_OPEN;
	struct note n;

	if (!box_still_guarded(s, b))
		return;
	if (!pool_fit(b)) {
		/* Nothing ran, and the client is told so: it may try another. */
		log_warn("%s: died between its grant and its start", b->id);
		box_end(s, b, RUN_END_BROKEN);
		return;
	}

	/* The clock starts before the gate opens: a deadline is never late because of us. */
	b->opened_ns = now_ns();
	b->deadline_ns = b->opened_ns + b->timeout_s * 1000000000ull;
	if (send(b->gate.fd, &go, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
		box_end(s, b, RUN_END_BROKEN);
		return;
	}
	b->ran = b->begun = true;
	timeline_begin(s, b);
	b->t->served++;
	note_init(&n, NOTE_RUN_BEGIN, b);
	box_note_begin(s, b, &n);
	n.begin.timeout_s = b->timeout_s;
	notes_push(s, &n);
	metered_tell_parked(s, b);
}

static void do_kill(struct supervisor *s, struct box *b)
{
	int rc = cgroup_box_kill(&b->cgroup);

	(void)s;
	/* Init is pid 1 of the namespace: with it goes everything, also where the cgroup has no kill file. */
	if (b->pidfd.fd >= 0 && syscall(SYS_pidfd_send_signal, b->pidfd.fd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
		log_error("%s: kill init: %s", b->id, strerror(errno));
	if (rc < 0 && rc != -ENOENT)
		log_error("%s: kill the cgroup: %s", b->id, strerror(-rc));
	wayout_kill(b);
}

static void confirm_empty(const struct cgroup_box *cgroup)
{
	for (int i = 0; i < 200 && cgroup->v2_fd >= 0; i++) {
		if (cgroup_box_populated(cgroup) != 1)
			return;
		cgroup_box_kill(cgroup);
		usleep(1000);
	}
	if (cgroup->v2_fd >= 0)
		log_error("%s: its cgroup still has a process", cgroup->name);
}

/*
 * Every process is in the pid namespace and that is empty; this asks the cgroup as well, and insists. A carrier runs nobody's
 * code but ours and has nothing more to carry: when it is slow to die its directory is the trash's.
 */
void box_confirm_empty(struct box *b)
{
	confirm_empty(&b->cgroup);
	wayout_kill(b);
}

/* From what was seen, in order of what counts more. */
static enum run_end cause(const struct box *b, uint64_t oom_kills, bool ran)
{
	enum run_end end = b->end_known ? b->end : RUN_END_EXIT;

	if (!ran)
		return b->end_known && b->session && end == RUN_END_CANCELLED ? end : RUN_END_BROKEN;
	if (oom_kills && (end == RUN_END_EXIT || end == RUN_END_MEMORY))
		return RUN_END_MEMORY;
	if (!b->end_known && (!b->have_status || WIFSIGNALED(b->status)))
		return RUN_END_SIGNAL;
	return end;
}

/* .. to the answer's words. */
void box_describe(const struct box *b, uint64_t oom_kills, bool ran, struct tell_end *t)
{
	/* What stops a run; a cell that let itself be interrupted was not killed. */
	const int stop = b->session && (!t->over || b->have_status) ? SIGINT : SIGKILL;

	t->end = cause(b, oom_kills, ran);
	t->ran = ran;
	t->refused_errno = (uint32_t)b->refused_errno;
	t->refused_index = b->refused_index;
	snprintf(t->detail, sizeof t->detail, "%s", b->why);
	switch ((enum run_end)t->end) {
	case RUN_END_EXIT:
		t->exit_code = WEXITSTATUS(b->status);
		break;
	case RUN_END_SIGNAL:
		t->signal = b->have_status && WIFSIGNALED(b->status) ? WTERMSIG(b->status) : SIGKILL;
		t->exit_code = 128 + t->signal;
		if (!b->have_status && !t->detail[0])
			snprintf(t->detail, sizeof t->detail, "killed from outside the sandbox");
		break;
	case RUN_END_TIMEOUT:
		t->signal = stop;
		t->exit_code = -1;
		snprintf(t->detail, sizeof t->detail, "timed out after %us", b->timeout_s);
		break;
	case RUN_END_MEMORY:
		t->signal = SIGKILL;
		t->exit_code = 128 + SIGKILL;
		snprintf(t->detail, sizeof t->detail, "memory limit of %llu MiB exceeded",
			 (unsigned long long)(b->memory_bytes >> 20));
		break;
	case RUN_END_OUTPUT:
	case RUN_END_CANCELLED:
		t->signal = stop;
		t->exit_code = 128 + SIGKILL;
		break;
	case RUN_END_BROKEN:
		if (b->failed_step) {
			snprintf(t->layer, sizeof t->layer, "%s", plan_steps[b->failed_step].layer);
			snprintf(t->detail, sizeof t->detail, "%.127s", b->failed_text);
		} else if (b->session && !b->refused_errno) {
			snprintf(t->layer, sizeof t->layer, "session");
		}
		break;
	case RUN_END_COUNT:
		break;
	}
}

/* A tool's, whose modules have tried something before anybody called it: that has to be in the record of some run, its own. */
static bool begin_belated(struct supervisor *s, struct box *b)
{
	struct note n;

	if (!b->t->call || b->begun || !account_tried(s, b))
		return false;
	note_init(&n, NOTE_RUN_BEGIN, b);
	box_note_begin(s, b, &n);
	notes_push(s, &n);
	metered_drain(s);
	metered_tell_parked(s, b);
	return true;
}

static void report_run(struct supervisor *s, struct box *b)
{
	struct tell t = {.type = TELL_END, .req = b->req, .end.over = 1};
	bool recorded = begin_belated(s, b) || b->begun;
	uint64_t oom_kills;
	struct note n;

	account_end(s, b, &t.end, &oom_kills);
	box_describe(b, oom_kills, b->ran, &t.end);
	t.end.duration_us = b->ended_ns > b->opened_ns ? (b->ended_ns - b->opened_ns) / 1000 : 0;
	timeline_end(s, b); /* before what was refused begins anew */
	refused_report(s, b, &t.end.meter);
	account_dropped(b, &t.end.meter);
	metrics_run_ended(s, b, &t.end);
	if (recorded) {
		note_init(&n, NOTE_RUN_END, b);
		n.end = t.end;
		notes_push(s, &n);
	}
	client_tell(b->client, &t, NULL, 0);
}

/* A tool's that nobody got. */
static void report_unused(struct supervisor *s, struct box *b)
{
	uint64_t oom_kills;
	struct note n;

	if (!begin_belated(s, b))
		return;
	note_init(&n, NOTE_RUN_END, b);
	n.end.over = 1;
	account_end(s, b, &n.end, &oom_kills);
	refused_report(s, b, &n.end.meter);
	account_dropped(b, &n.end.meter);
	box_describe(b, oom_kills, false, &n.end);
	if (b->failed_step == STEP_NONE) {
		n.end.end = RUN_END_CANCELLED;
		snprintf(n.end.detail, sizeof n.end.detail, "let go before it was called");
	}
	notes_push(s, &n);
}

/* How main ended while it imported an agent's modules. */
static void say_how_loading_ended(struct supervisor *s, struct box *b)
{
	char what[96], *text = b->failed_text;
	const size_t size = sizeof b->failed_text;
	struct cgroup_usage u;

	box_say_loading(b, what);
	cgroup_box_usage(&b->cgroup, &s->cgroups, &u);
	if (u.oom_kills) {
		b->failed_errno = ENOMEM;
		snprintf(text, size, "%s: memory limit of %llu MiB exceeded", what,
			 (unsigned long long)(b->memory_bytes >> 20));
	} else if (b->have_status && WIFSIGNALED(b->status)) {
		const char *name = sigabbrev_np(WTERMSIG(b->status));

		snprintf(text, size, "%s: the interpreter was ended by signal %s%s", what, name ? "SIG" : "",
			 name ? name : "of no name");
	} else if (b->have_status) {
		snprintf(text, size, "%s: the interpreter ended with exit code %d", what, WEXITSTATUS(b->status));
	} else {
		snprintf(text, size, "%s: killed from outside the sandbox", what);
	}
}

static void report_failure(struct supervisor *s, struct box *b)
{
	struct tell_fail *f = &b->t->last_fail;
	enum plan_step step = b->failed_step ? b->failed_step : STEP_PLAN;

	memset(f, 0, sizeof *f);
	f->code = (uint32_t)b->failed_errno;
	snprintf(f->layer, sizeof f->layer, "%s", plan_steps[step].layer);
	snprintf(f->step, sizeof f->step, "%s", plan_steps[step].name);
	snprintf(f->text, sizeof f->text, "%s", b->failed_text[0] ? b->failed_text : plan_steps[step].what);
	b->t->not_ahead = b->t->call;
	log_error("no sandbox: layer %s, step %s: %s", f->layer, f->step, f->text);
	pool_build_failed(s, b->t);
}

void box_init(struct box *b)
{
	cgroup_box_init(&b->cgroup);
	cgroup_box_init(&b->way.cgroup);
	b->pidfd.fd = b->control.fd = b->gate.fd = b->oom.fd = b->frozen.fd = -1;
	b->request = b->out = b->err = b->workdir = b->result = b->main_fd = b->cpu = -1;
}

/* Its directories: false when one of them would not go yet. */
static bool remove_cgroups(struct supervisor *s, struct box *b)
{
	/* Both are tried. */
	bool way = wayout_remove(s, b) == 0, own = cgroup_box_remove(&b->cgroup, &s->cgroups) == 0;

	return way && own;
}

static void box_free(struct box *b)
{
	timeline_drop(b);
	refused_drop(b);
	free(b->flows);
	free(b);
}

/* What the kernel lists of it and is not remembered here. */
static void forget_flows(struct supervisor *s, const struct box *b)
{
	if (!b->flows_forgotten)
		return;
	(void)guard_sweep_flows(s->guard, b->cgroup.id);
	if (b->way.cgroup.id)
		(void)guard_sweep_flows(s->guard, b->way.cgroup.id);
}

static void release(struct supervisor *s, struct box *b)
{
	int *const fds[] = {&b->request, &b->out, &b->err, &b->workdir, &b->result, &b->main_fd};
	struct err e;

	if (b->client)
		pool_gone(s, b);
	cpus_give_back(s, b);
	source_close(s, &b->control);
	source_close(s, &b->gate);
	source_close(s, &b->pidfd);
	source_close(s, &b->oom);
	source_close(s, &b->frozen);
	b->cgroup.oom_event = -1;
	for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
		cleanup_fdp(fds[i]);
		*fds[i] = -1;
	}
	forget_flows(s, b);
	if (b->guarded && guard_del_sandbox(s->guard, b->cgroup.id, &e) < 0)
		log_error("%s: its policy entry stays: %s", b->id, e.msg);
	metered_remove(s, b);
	TAILQ_REMOVE(&s->boxes, b, link);
	s->counts[BOX_GONE]--;
	b->t->counts[BOX_GONE]--;
	b->t = NULL; /* it may go before the directories do */
	if (remove_cgroups(s, b))
		box_free(b);
	else
		TAILQ_INSERT_TAIL(&s->trash, b, link);
}

static void do_finish(struct supervisor *s, struct box *b, enum box_state from)
{
	bool building = from == BOX_BUILDING || from == BOX_LOADING || b->failing || b->failed_step != STEP_NONE;

	b->t->failing -= b->failing;
	box_confirm_empty(b);
	if (b->failed_step == STEP_LOAD && b->failed_errno == ECHILD)
		say_how_loading_ended(s, b);
	if (b->client && b->session)
		sup_session_finish(s, b);
	else if (b->client)
		report_run(s, b);
	else
		report_unused(s, b);
	if (!b->client && building && !s->stopping && !b->t->retired)
		report_failure(s, b);
	release(s, b);
}

void trash_empty(struct supervisor *s)
{
	struct box *b = TAILQ_FIRST(&s->trash), *next;

	for (; b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (remove_cgroups(s, b)) {
			TAILQ_REMOVE(&s->trash, b, link);
			box_free(b);
		}
	}
}

/* ---- the machine ---- */

/* Its modules have run, and nobody has called: nothing of it moves until somebody does. */
static void rest(struct supervisor *s, struct box *b)
{
	int rc = cgroup_box_freeze(&b->cgroup, true);

	if (rc == 0)
		return;
	log_error("%s: it can't be frozen: %s", b->id, strerror(-rc));
	box_event(s, b, BOX_FAILED);
}

static void do_offer(struct supervisor *s, struct box *b)
{
	/* What was spent before the gate is the set-up's, not the run's. What a tool's modules have tried by now is its own. */
	if (!b->t->call)
		account_begin(s, b);
	b->deadline_ns = 0;
	b->t->failures = 0;
	pool_offer(s, b);
	if (b->t->call && b->state == BOX_WARM)
		rest(s, b);
}

static void do_open(struct supervisor *s, struct box *b)
{
	do_grant(s, b);
	sup_session_open(s, b);
}

static void do_end(struct supervisor *s, struct box *b)
{
	b->deadline_ns = now_ns() + HURRY_NS;
	b->life_ns = 0;
	b->pausing = false;
	do_kill(s, b);
}

static void refuse(struct supervisor *s, struct box *b, enum box_event event, enum box_state from)
{
	log_error("%s: %s while %s: killed", b->id, box_event_names[event], box_state_names[from]);
	if (b->session && !b->why[0])
		snprintf(b->why, sizeof b->why, "its interpreter spoke out of turn");
	do_end(s, b);
}

static void (*const actions[])(struct supervisor *s, struct box *b) = {
    [BOX_DO_NOTHING] = NULL,
    [BOX_DO_LOAD] = box_load,
    [BOX_DO_OFFER] = do_offer,
    [BOX_DO_GRANT] = do_grant,
    [BOX_DO_OPEN] = do_open,
    [BOX_DO_OPEN_GATE] = do_open_gate,
    [BOX_DO_AWAIT] = sup_session_await,
    [BOX_DO_DECLINE] = sup_session_decline,
    [BOX_DO_FREEZE] = sup_session_freeze,
    [BOX_DO_OPEN_CELL] = sup_session_open_cell,
    [BOX_DO_INTERRUPT] = sup_session_interrupt,
    [BOX_DO_PAUSE] = sup_session_pause,
    [BOX_DO_RESUME] = sup_session_resume,
    [BOX_DO_KILL] = do_end,
    [BOX_DO_FINISH] = NULL, /* these two want to know more */
    [BOX_DO_REFUSE] = NULL,
};

void box_event(struct supervisor *s, struct box *b, enum box_event event)
{
	enum box_state from = b->state;
	struct box_transition t = box_next(from, event);

	s->counts[from]--;
	s->counts[t.next]++;
	b->t->counts[from]--;
	b->t->counts[t.next]++;
	b->state = t.next;
	if (t.next != BOX_BUILDING)
		box_made(s, b);
	if (from == BOX_WARM && (event == BOX_FAILED || event == BOX_MAIN_EXIT || event == BOX_EMPTY))
		pool_warm_died(s, b->t);
	if ((from == BOX_BUILDING || from == BOX_LOADING) && t.next == BOX_ENDING &&
	    (event != BOX_KILL || b->failed_step != STEP_NONE)) {
		b->failing = true;
		b->t->failing++;
	}
	if (t.action == BOX_DO_FINISH)
		do_finish(s, b, from); /* frees b */
	else if (actions[t.action])
		actions[t.action](s, b);
	else if (t.action == BOX_DO_REFUSE)
		refuse(s, b, event, from);
}

void box_end(struct supervisor *s, struct box *b, enum run_end end)
{
	if (!b->end_known && !b->have_status) {
		b->end = end;
		b->end_known = true;
	}
	box_event(s, b, BOX_KILL);
}

void box_interrupt(struct supervisor *s, struct box *b, enum run_end end)
{
	if (!b->session) {
		box_end(s, b, end);
		return;
	}
	if (!b->asked)
		return; /* the cell has ended in the meantime, and that was told */
	if (!b->end_known && !b->have_status) {
		b->end = end;
		b->end_known = true;
	}
	box_event(s, b, BOX_INTERRUPT);
}

/*
 * A killed task first ends the system call that it is in, and a long one takes CPU time: with one CPU's share for a few hundred
 * of them that would be minutes. What is dying is not held to its share any more.
 */
static void hurry(struct supervisor *s, struct box *b)
{
	cgroup_box_unleash(&b->cgroup, &s->cgroups);
	if (b->way.cgroup.v2_fd >= 0)
		cgroup_box_unleash(&b->way.cgroup, &s->cgroups);
}

static void not_ready(struct supervisor *s, struct box *b)
{
	enum plan_step step = b->state == BOX_LOADING ? STEP_LOAD : STEP_READY;
	char text[256] = "the sandbox was not ready in time";

	if (b->t->call)
		box_say_slow(b, text);
	if (b->state == BOX_BUILDING && b->way.asked && !b->way.ready)
		step = STEP_CARRY;
	box_fail(s, b, step, ETIMEDOUT, text);
}

void box_expired(struct supervisor *s, struct box *b)
{
	b->deadline_ns = 0;
	if (b->state == BOX_BUILDING || b->state == BOX_LOADING)
		not_ready(s, b);
	else if (b->state == BOX_ENDING)
		hurry(s, b);
	else if (b->session)
		sup_session_expired(s, b);
	else
		box_end(s, b, RUN_END_TIMEOUT);
}

unsigned boxes_in_use(const struct supervisor *s)
{
	unsigned n = s->counts[BOX_ENDING];

	for (int i = BOX_CLAIMED; i < BOX_ENDING; i++)
		n += s->counts[i];
	return n;
}

void box_check_oom(struct supervisor *s, struct box *b)
{
	struct cgroup_usage u;

	cgroup_box_usage(&b->cgroup, &s->cgroups, &u);
	if (u.oom_kills) {
		b->oom_checks = 0;
		b->oom_check_ns = 0;
		if (b->state == BOX_LOADING)
			box_loading_died(b);
		box_end(s, b, RUN_END_MEMORY);
		return;
	}
	b->oom_check_ns = b->oom_checks-- > 0 ? now_ns() + OOM_RECHECK_NS : 0;
}
