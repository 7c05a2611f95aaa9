/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/decode.h"

#include <string.h>

#include "core/limits.h"

#define ERRNO_MAX 4095	     /* of the kernel's */
#define FILTER_MAX 4096	     /* instructions of a seccomp filter: BPF_MAXINSNS */
#define FILES_MAX (1u << 20) /* descriptors; far above what a policy may ask */
#define ROOT_UID 0u

static bool ended(const char *text, size_t size)
{
	return memchr(text, 0, size) != NULL;
}

static bool is_flag(uint32_t value)
{
	return value <= 1;
}

static bool is_project(const char *text, size_t size)
{
	size_t n;

	if (!ended(text, size))
		return false;
	n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
	return n > 0 && !text[n];
}

bool caller_ok(const char *text, size_t size)
{
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:,._@-";

	return ended(text, size) && text[0] && !text[strspn(text, set)];
}

/* Of a run, a session, or a cell of one. */
static bool is_run_id(const char *text, size_t size)
{
	return ended(text, size) && text[0] && !text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.")];
}

const char *ask_problem(const struct ask *a)
{
	switch (a->type) {
	case ASK_SANDBOX:
		if (!is_flag(a->session))
			return "session";
		if (!is_project(a->project, sizeof a->project))
			return "project";
		/* A tool's sandbox is for one call. */
		if (a->agent[0] && (a->session || !is_project(a->agent, sizeof a->agent)))
			return "agent";
		/* No run without a name in its record for who asked for it. */
		return caller_ok(a->caller, sizeof a->caller) ? NULL : "caller";
	case ASK_START:
		if (a->timeout_s < LIMIT_TIMEOUT_MIN_S || a->timeout_s > LIMIT_CELL_TIMEOUT_MAX_S)
			return "timeout_s";
		return caller_ok(a->caller, sizeof a->caller) ? NULL : "caller";
	case ASK_USAGE:
		return is_run_id(a->run_id, sizeof a->run_id) ? NULL : "run_id";
	case ASK_KILL:
		return a->reason == RUN_END_OUTPUT || a->reason == RUN_END_CANCELLED ? NULL : "reason";
	case ASK_COLLECTED:
	case ASK_CLOSE:
	case ASK_POOL:
	case ASK_METRICS:
		return NULL;
	default:
		return "type";
	}
}

const char *collect_problem(const struct collect *c)
{
	if (!is_flag(c->have_manifest))
		return "have_manifest";
	if (!is_flag(c->want_manifest))
		return "want_manifest";
	return c->digest_count <= COLLECT_DIGESTS_MAX ? NULL : "digest_count";
}

const char *init_report_problem(const struct init_report *r)
{
	if (!ended(r->detail, sizeof r->detail))
		return "detail";
	switch (r->type) {
	case REPORT_PROBED:
		for (int i = 0; i < PLAN_PROBES; i++)
			if (r->probe_errno[i] < 0 || r->probe_errno[i] > ERRNO_MAX)
				return "probe_errno";
		return NULL;
	case REPORT_FAILED:
		if (r->step <= STEP_NONE || r->step >= STEP_COUNT)
			return "step";
		return r->error >= 0 && r->error <= ERRNO_MAX ? NULL : "error";
	case REPORT_STARTED:
		return r->error >= 0 && r->error <= ERRNO_MAX ? NULL : "error";
	case REPORT_TAP:
		return NULL;
	case REPORT_EXITED:
		/* Ended, be it by a signal: what waitpid() says of one that is stopped or goes on is no end. */
		return r->status >= 0 && r->status <= 0xffff && (r->status & 0x7f) != 0x7f ? NULL : "status";
	default:
		return "type";
	}
}

const char *refused_calls_problem(const struct refused_calls *c)
{
	uint8_t seen[FILTER_NUMBERS / 8] = {0};

	if (c->used > sizeof c->of / sizeof c->of[0])
		return "used";
	for (uint32_t i = 0; i < c->used; i++) {
		const struct refused_call *call = &c->of[i];

		if (call->number >= FILTER_NUMBERS || seen[call->number / 8] & 1u << call->number % 8)
			return "number";
		seen[call->number / 8] |= (uint8_t)(1u << call->number % 8);
		if (call->error < 1 || call->error > ERRNO_MAX)
			return "error";
		if (call->first_ns > call->last_ns)
			return "first_ns";
	}
	return NULL;
}

const char *gate_report_problem(const struct gate_report *r)
{
	switch (r->type) {
	case GATE_READY:
	case GATE_PLACED:
		if (r->value != 0)
			return "value";
		return r->index == 0 ? NULL : "index";
	case GATE_LOADED:
		if (r->value < 0 || r->value > 1)
			return "value";
		return r->index == 0 ? NULL : "index";
	case GATE_REFUSED:
		if (r->value < 1 || r->value > ERRNO_MAX)
			return "value";
		return r->index < LIMIT_FILES_IN ? NULL : "index";
	case GATE_FAILED:
		if (r->value < 0 || r->value > ERRNO_MAX)
			return "value";
		return r->index == 0 ? NULL : "index";
	case GATE_DONE:
		if (r->value < 0 || r->value > 255)
			return "value";
		return r->index == 0 ? NULL : "index";
	default:
		return "type";
	}
}

/* A relative path that never leads out of where it starts. */
static bool stays_below(const char *path)
{
	if (!path[0] || path[0] == '/')
		return false;
	for (size_t len; *path; path += len + (path[len] == '/')) {
		len = strcspn(path, "/");
		if (len == 2 && !strncmp(path, "..", 2))
			return false;
	}
	return true;
}

/* An address, or none. It becomes a line of a file. */
static bool is_resolver(const char *text, size_t size)
{
	return ended(text, size) && !text[strspn(text, "0123456789abcdefABCDEF.:")];
}

/* Becomes a word of a command line, with "," between names and ":" after them. */
static bool is_modules(const char *text, size_t size)
{
	if (!ended(text, size) || !text[0])
		return false;
	for (; *text; text++)
		if ((unsigned char)*text <= ' ' || *text == ':')
			return false;
	return true;
}

static bool is_path(const char *text, size_t size)
{
	return ended(text, size) && text[0] == '/';
}

/* "NAME=VALUE", each ended by NUL, then one more. */
static bool is_variables(const char *at, size_t size)
{
	const char *end = at + size;

	while (at < end && *at) {
		const char *nul = memchr(at, 0, (size_t)(end - at));

		if (!nul || *at == '=' || !memchr(at, '=', (size_t)(nul - at)))
			return false;
		at = nul + 1;
	}
	return at < end;
}

/* What a plan says of a tool call; NULL when it is fine. */
static const char *call_problem(const struct init_plan *p)
{
	if (!is_flag(p->call))
		return "call";
	/* A snippet has no way out. */
	if (!is_flag(p->way_out) || (p->way_out && !p->call))
		return "way_out";
	if (!is_flag(p->ipv6))
		return "ipv6";
	for (size_t i = 0; i < sizeof p->resolvers / sizeof p->resolvers[0]; i++)
		if (!is_resolver(p->resolvers[i], sizeof p->resolvers[i]))
			return "resolvers";
	if (!ended(p->program, sizeof p->program))
		return "program";
	if (!p->call)
		return NULL;
	if (!is_path(p->program, sizeof p->program))
		return "program";
	if (!is_modules(p->modules, sizeof p->modules))
		return "modules";
	if (p->workdir[0] && !is_path(p->workdir, sizeof p->workdir))
		return "workdir";
	return is_variables(p->variables, sizeof p->variables) ? NULL : "variables";
}

const char *init_plan_problem(const struct init_plan *p)
{
	const struct {
		bool fine;
		const char *member;
	} rows[] = {
	    {p->magic == PLAN_MAGIC, "magic"},
	    {p->uid != ROOT_UID && p->uid != UINT32_MAX, "uid"},
	    {p->gid != ROOT_UID && p->gid != UINT32_MAX, "gid"},
	    {p->init_uid != ROOT_UID && p->init_uid != UINT32_MAX && p->init_uid != p->uid, "init_uid"},
	    {p->nofile > 0 && p->nofile <= FILES_MAX, "nofile"},
	    {p->v1_count <= PLAN_V1_MAX, "v1_count"},
	    {p->filter_len > 0 && p->filter_len <= FILTER_MAX, "filter_len"},
	    {p->own_filter_len > 0 && p->own_filter_len <= FILTER_MAX, "own_filter_len"},
	    {p->tmpfs_bytes > 0, "tmpfs_bytes"},
	    {p->tmpfs_inodes > 0, "tmpfs_inodes"},
	    {ended(p->stage, sizeof p->stage) && p->stage[0] == '/', "stage"},
	    {ended(p->overlay, sizeof p->overlay), "overlay"},
	    {ended(p->root, sizeof p->root) && stays_below(p->root), "root"},
	    {is_flag(p->etc_below), "etc_below"},
	    {ended(p->interpreter, sizeof p->interpreter) && p->interpreter[0] == '/', "interpreter"},
	    {p->fault < STEP_COUNT, "fault"},
	    {p->skip < STEP_COUNT, "skip"},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (!rows[i].fine)
			return rows[i].member;
	return call_problem(p);
}
