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

struct box *box_by_req(struct supervisor *s, const struct client *c, uint64_t req)
{
	struct box *b;

	TAILQ_FOREACH (b, &s->boxes, link)
		if (b->client == c && b->req == req)
			return b;
	return NULL;
}

struct box *box_by_cgroup(struct supervisor *s, uint64_t cgroup)
{
	struct box *b;

	TAILQ_FOREACH (b, &s->boxes, link)
		if (b->cgroup.id == cgroup)
			return b;
	return NULL;
}

/* ---- actions ---- */

static void do_grant(struct supervisor *s, struct box *b)
{
	struct tell t = {.type = TELL_GRANT, .req = b->req};
	const int fds[] = {b->request, b->out, b->err};

	b->deadline_ns = now_ns() + LIMIT_HANDOVER_S * 1000000000ull;
	snprintf(t.grant.sandbox_id, sizeof t.grant.sandbox_id, "%s", b->id);
	snprintf(t.grant.run_id, sizeof t.grant.run_id, "%s", b->id);
	snprintf(t.grant.python, sizeof t.grant.python, "%s", s->python.version);
	client_tell(b->client, &t, fds, 3);
	cleanup_fdp(&b->request);
	cleanup_fdp(&b->out);
	cleanup_fdp(&b->err);
	b->request = b->out = b->err = -1;
}

/* The programs were effective when it was built; that may be hours ago, and links can be detached. */
static bool still_guarded(struct supervisor *s, struct box *b)
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

	if (!still_guarded(s, b))
		return;

	/* The clock starts before the gate opens: a deadline is never late because of us. */
	b->opened_ns = now_ns();
	b->deadline_ns = b->opened_ns + b->timeout_s * 1000000000ull;
	if (send(b->gate.fd, &go, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
		box_end(s, b, RUN_END_BROKEN);
		return;
	}
	b->ran = true;
	s->served++;
	note_init(&n, NOTE_RUN_BEGIN, b);
	slot_name(&s->inforce, &n.begin.policy);
	n.begin.timeout_s = b->timeout_s;
	snprintf(n.begin.python, sizeof n.begin.python, "%s", s->python.version);
	notes_push(s, &n);
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
}

/* Every process is in the pid namespace and that is empty; this asks the cgroup as well, and insists. */
void box_confirm_empty(struct box *b)
{
	for (int i = 0; i < 200 && b->cgroup.v2_fd >= 0; i++) {
		if (cgroup_box_populated(&b->cgroup) != 1)
			return;
		cgroup_box_kill(&b->cgroup);
		usleep(1000);
	}
	if (b->cgroup.v2_fd >= 0)
		log_error("%s: its cgroup still has a process", b->id);
}

/* From what was seen, in order of what counts more, to the answer's words. */
static void describe_end(const struct box *b, const struct cgroup_usage *u, struct tell_end *t)
{
	enum run_end end = b->end_known ? b->end : RUN_END_EXIT;

	if (!b->ran)
		end = RUN_END_BROKEN;
	else if (u->oom_kills && (end == RUN_END_EXIT || end == RUN_END_MEMORY))
		end = RUN_END_MEMORY;
	else if (!b->end_known && !b->have_status)
		end = RUN_END_SIGNAL;
	if (end == RUN_END_EXIT && b->have_status && WIFSIGNALED(b->status))
		end = RUN_END_SIGNAL;
	t->end = end;
	t->ran = b->ran;
	switch (end) {
	case RUN_END_EXIT:
		t->exit_code = WEXITSTATUS(b->status);
		break;
	case RUN_END_SIGNAL:
		t->signal = b->have_status ? WTERMSIG(b->status) : SIGKILL;
		t->exit_code = 128 + t->signal;
		if (!b->have_status)
			snprintf(t->detail, sizeof t->detail, "killed from outside the sandbox");
		break;
	case RUN_END_TIMEOUT:
		t->signal = SIGKILL;
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
		t->signal = SIGKILL;
		t->exit_code = 128 + SIGKILL;
		break;
	case RUN_END_BROKEN:
		if (b->failed_step) {
			snprintf(t->layer, sizeof t->layer, "%s", plan_steps[b->failed_step].layer);
			snprintf(t->detail, sizeof t->detail, "%.127s", b->failed_text);
		}
		break;
	case RUN_END_COUNT:
		break;
	}
}

/* Final counts of every listed flow, which also frees its place in the kernel's map. */
void box_report_flows(struct supervisor *s, struct box *b)
{
	for (unsigned i = 0; i < b->flow_count; i++) {
		struct note n;

		note_init(&n, NOTE_FLOW, b);
		n.flow.key = b->flows[i];
		slot_judged(s, &n.flow.key, &n.judged);
		if (guard_get_flow(s->guard, &b->flows[i], &n.flow.count) < 0)
			continue;
		notes_push(s, &n);
		guard_del_flow(s->guard, &b->flows[i]);
	}
}

static void report_run(struct supervisor *s, struct box *b)
{
	struct tell t = {.type = TELL_END, .req = b->req};
	struct weir_sandbox counters = {0};
	struct cgroup_usage u;
	struct note n;
	struct err e;

	cgroup_box_usage(&b->cgroup, &s->cgroups, &u);
	if (b->guarded) {
		/* What the ring still holds is this run's too: out with it before the end is told. */
		notes_drain_all(s);
		if (guard_get_sandbox(s->guard, b->cgroup.id, &counters, &e) < 0)
			log_error("%s: its counters can't be read: %s", b->id, e.msg);
	}
	describe_end(b, &u, &t.end);
	t.end.duration_us = b->ended_ns > b->opened_ns ? (b->ended_ns - b->opened_ns) / 1000 : 0;
	t.end.cpu_us = u.cpu_us > b->cpu_base_us ? u.cpu_us - b->cpu_base_us : 0;
	t.end.memory_peak = u.memory_peak;
	snprintf(t.end.cpu_source, sizeof t.end.cpu_source, "%s", u.cpu_source);
	snprintf(t.end.memory_source, sizeof t.end.memory_source, "%s", u.memory_source);
	t.end.attempts = counters.attempts;
	t.end.denied = counters.denied;
	t.end.allowed = counters.allowed;
	t.end.would_deny = counters.would_deny;
	t.end.inbound = counters.inbound;
	t.end.unlisted = counters.unlisted;
	t.end.net_bytes = counters.bytes;
	if (b->ran) {
		box_report_flows(s, b);
		note_init(&n, NOTE_RUN_END, b);
		n.end = t.end;
		notes_push(s, &n);
	}
	client_tell(b->client, &t, NULL, 0);
}

static void report_failure(struct supervisor *s, struct box *b)
{
	struct tell_fail *f = &s->last_fail;
	enum plan_step step = b->failed_step ? b->failed_step : STEP_PLAN;

	memset(f, 0, sizeof *f);
	f->code = (uint32_t)b->failed_errno;
	snprintf(f->layer, sizeof f->layer, "%s", plan_steps[step].layer);
	snprintf(f->step, sizeof f->step, "%s", plan_steps[step].name);
	snprintf(f->text, sizeof f->text, "%s", b->failed_text[0] ? b->failed_text : plan_steps[step].what);
	log_error("no sandbox: layer %s, step %s: %s", f->layer, f->step, f->text);
	pool_build_failed(s);
}

static void release(struct supervisor *s, struct box *b)
{
	struct err e;

	source_close(s, &b->control);
	source_close(s, &b->gate);
	source_close(s, &b->pidfd);
	source_close(s, &b->oom);
	b->cgroup.oom_event = -1;
	cleanup_fdp(&b->request);
	cleanup_fdp(&b->out);
	cleanup_fdp(&b->err);
	b->request = b->out = b->err = -1;
	if (b->guarded && guard_del_sandbox(s->guard, b->cgroup.id, &e) < 0)
		log_error("%s: its policy entry stays: %s", b->id, e.msg);
	TAILQ_REMOVE(&s->boxes, b, link);
	s->counts[BOX_GONE]--;
	if (cgroup_box_remove(&b->cgroup, &s->cgroups) < 0)
		TAILQ_INSERT_TAIL(&s->trash, b, link);
	else
		free(b);
}

static void do_finish(struct supervisor *s, struct box *b, enum box_state from)
{
	bool building = from == BOX_BUILDING || b->failed_step != STEP_NONE;

	box_confirm_empty(b);
	if (b->client)
		report_run(s, b);
	else if (building && !s->stopping)
		report_failure(s, b);
	release(s, b);
}

void trash_empty(struct supervisor *s)
{
	struct box *b = TAILQ_FIRST(&s->trash), *next;

	for (; b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (cgroup_box_remove(&b->cgroup, &s->cgroups) == 0) {
			TAILQ_REMOVE(&s->trash, b, link);
			free(b);
		}
	}
}

/* ---- the machine ---- */

void box_event(struct supervisor *s, struct box *b, enum box_event event)
{
	enum box_state from = b->state;
	struct box_transition t = box_next(from, event);

	s->counts[from]--;
	s->counts[t.next]++;
	b->state = t.next;
	switch (t.action) {
	case BOX_DO_NOTHING:
		break;
	case BOX_DO_OFFER: {
		struct cgroup_usage u;

		cgroup_box_usage(&b->cgroup, &s->cgroups, &u);
		b->cpu_base_us = u.cpu_us;
		b->deadline_ns = 0;
		s->failures = 0;
		pool_offer(s, b);
		break;
	}
	case BOX_DO_GRANT:
		do_grant(s, b);
		break;
	case BOX_DO_OPEN_GATE:
		do_open_gate(s, b);
		break;
	case BOX_DO_REFUSE:
		log_error("%s: %s while %s: killed", b->id, box_event_names[event], box_state_names[from]);
		do_kill(s, b);
		break;
	case BOX_DO_KILL:
		b->deadline_ns = 0;
		do_kill(s, b);
		break;
	case BOX_DO_FINISH:
		do_finish(s, b, from); /* frees b */
		break;
	}
}

void box_end(struct supervisor *s, struct box *b, enum run_end end)
{
	if (!b->end_known && !b->have_status) {
		b->end = end;
		b->end_known = true;
	}
	box_event(s, b, BOX_KILL);
}

void box_check_oom(struct supervisor *s, struct box *b)
{
	struct cgroup_usage u;

	cgroup_box_usage(&b->cgroup, &s->cgroups, &u);
	if (u.oom_kills) {
		b->oom_checks = 0;
		b->oom_check_ns = 0;
		box_end(s, b, RUN_END_MEMORY);
		return;
	}
	b->oom_check_ns = b->oom_checks-- > 0 ? now_ns() + OOM_RECHECK_NS : 0;
}
