/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as what passes between the supervisor, init and the harness: struct init_report, struct gate_report, struct init_plan,
 * struct refused_calls.
 * Which one the first byte says; the rest is the message, padded with zeros. What is not refused is used as its receiver does.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/limits.h"
#include "init_env.c" /* what makes the environment of a plan: a part of weir-init, which is a program of its own */
#include "ipc/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
	if (!truth)
		abort();
}

static void fill(void *message, size_t len, const uint8_t *data, size_t size)
{
	memset(message, 0, len);
	memcpy(message, data, size < len ? size : len);
}

static void init_says(const uint8_t *data, size_t size)
{
	struct init_report r;
	char text[200];

	fill(&r, sizeof r, data, size);
	if (init_report_problem(&r))
		return;
	switch ((enum init_report_type)r.type) {
	case REPORT_PROBED:
		for (int i = 0; i < PLAN_PROBES; i++)
			require(strerror(r.probe_errno[i]) != NULL);
		return;
	case REPORT_FAILED:
		require(plan_steps[r.step].layer && plan_steps[r.step].what);
		snprintf(text, sizeof text, "%s: %s: %s", plan_steps[r.step].what, r.detail, strerror(r.error));
		require(text[0]);
		return;
	case REPORT_STARTED:
	case REPORT_TAP:
		return;
	case REPORT_EXITED:
		require(WIFEXITED(r.status) || (WIFSIGNALED(r.status) && WTERMSIG(r.status) > 0));
		return;
	}
	abort();
}

static void harness_says(const uint8_t *data, size_t size)
{
	struct gate_report r;

	fill(&r, sizeof r, data, size);
	if (gate_report_problem(&r))
		return;
	require(r.value >= 0 && r.index < LIMIT_FILES_IN);
	switch ((enum gate_report_type)r.type) {
	case GATE_READY:
	case GATE_PLACED:
		return;
	case GATE_LOADED:
		require(r.value <= 1 && r.index == 0);
		return;
	case GATE_REFUSED:
		require(r.value != 0 && strerror(r.value) != NULL);
		return;
	case GATE_FAILED:
		require(r.index == 0 && strerror(r.value) != NULL);
		return;
	case GATE_DONE:
		require(r.value <= 255);
		return;
	}
	abort();
}

/* As the supervisor reads it: each is one record, by its number. */
static void init_counts(const uint8_t *data, size_t size)
{
	struct refused_calls c;

	fill(&c, sizeof c, data, size);
	if (refused_calls_problem(&c))
		return;
	require(c.used <= LIMIT_AUDIT_SYSCALLS);
	for (uint32_t i = 0; i < c.used; i++) {
		require(c.of[i].number < FILTER_NUMBERS && c.of[i].error > 0 && strerror((int)c.of[i].error) != NULL);
		for (uint32_t k = 0; k < i; k++)
			require(c.of[k].number != c.of[i].number);
	}
}

/* What a tool's plan adds, of whichever kind the plan is: texts end, and the environment is one that a program can be given. */
static void called(const struct init_plan *p)
{
	char **environment = init_environment(p);
	size_t count = 0;

	for (; environment[count]; count++)
		require(strchr(environment[count], '=') > environment[count]);
	require(count >= 18 && (p->call || count == 18));
	require(p->call || !p->way_out);
	if (!p->call)
		return;
	require(p->program[0] == '/' && p->modules[0] && strlen(p->modules) < sizeof p->modules);
	require(!strpbrk(p->modules, ": \n") && strlen(p->workdir) < sizeof p->workdir);
	for (int i = 0; i < 3; i++)
		require(strlen(p->resolvers[i]) < sizeof p->resolvers[i] && !strpbrk(p->resolvers[i], " \n#"));
}

/* As mounts and exec do: each is put below or behind something. */
static void init_hears(const uint8_t *data, size_t size)
{
	struct init_plan p;
	char path[sizeof p.stage + sizeof p.root + 16];

	fill(&p, sizeof p, data, size);
	if (init_plan_problem(&p))
		return;
	require((size_t)snprintf(path, sizeof path, "%s/%s/etc", p.stage, p.root) < sizeof path);
	require(path[0] == '/' && !strstr(p.root, "/../") && strncmp(p.root, "../", 3) != 0);
	require(strlen(p.overlay) < sizeof p.overlay && p.interpreter[0] == '/');
	require(p.uid && p.gid && p.init_uid && p.v1_count <= PLAN_V1_MAX && p.filter_len <= 4096 && p.own_filter_len <= 4096);
	require(p.fault == STEP_NONE || plan_steps[p.fault].name);
	require(p.skip == STEP_NONE || plan_steps[p.skip].name);
	called(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const kinds[])(const uint8_t *, size_t) = {init_says, harness_says, init_hears, init_counts};

	if (size)
		kinds[data[0] % 4](data + 1, size - 1);
	return 0;
}
