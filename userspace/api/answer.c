/* SPDX-License-Identifier: Apache-2.0 */
#include "api/answer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/limits.h"
#include "core/utf8.h"

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

/* Microseconds as milliseconds, without the digits a double would invent. */
static json_t *ms(uint64_t us)
{
	return us % 1000 ? json_real((double)us / 1000) : json_integer((json_int_t)(us / 1000));
}

/* One figure and where it comes from; a figure without a source was not measured, and is null. */
static json_t *figure(json_t *value, const char *source)
{
	if (!*source) {
		json_decref(value);
		value = json_null();
	}
	return json_pack("{s:o, s:o}", "value", value, "source", text_or_null(source));
}

static json_t *stream_text(const struct run_result *r, enum run_stream which)
{
	size_t len = 0;
	_cleanup_free_ char *text = utf8_replace(r->out[which] ? r->out[which] : "", r->out_len[which], &len);

	/* Not checked again: utf8_replace() has made it valid. */
	return text ? json_stringn_nocheck(text, len) : NULL;
}

static json_t *termination(const struct tell_end *end)
{
	const char *abbreviation = end->signal > 0 ? sigabbrev_np(end->signal) : NULL;
	char name[32] = "";

	if (abbreviation)
		snprintf(name, sizeof name, "SIG%s", abbreviation);
	else if (end->signal > 0)
		snprintf(name, sizeof name, "SIG%d", end->signal); /* real-time signals have no abbreviation */
	return json_pack("{s:s, s:o, s:s}", "reason", run_end_names[end->end], "signal", text_or_null(name), "detail",
			 end->detail);
}

static json_t *usage(const struct run_result *r)
{
	const struct tell_end *end = &r->end;
	uint64_t written = r->out_bytes[RUN_STDOUT] + r->out_bytes[RUN_STDERR];

	return json_pack("{s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o}}", "cpu_ms", figure(ms(end->cpu_us), end->cpu_source),
			 "memory_peak_bytes", figure(json_integer((json_int_t)end->memory_peak), end->memory_source),
			 "output_bytes", figure(json_integer((json_int_t)written), "pipe reader"), "net_bytes",
			 figure(json_integer((json_int_t)end->net_bytes), "cgroup_skb"), "stages", "queue_ms", ms(r->queue_us),
			 "send_ms", ms(r->send_us), "run_ms", ms(end->duration_us), "collect_ms", ms(r->collect_us));
}

/*
 * The auditor's words, or, when it did not answer, the supervisor's exact counters with an empty list: then the detail of
 * every attempt is lost, and the answer says so rather than looking like a quiet run.
 */
static json_t *egress(const struct run_result *r)
{
	const struct tell_end *end = &r->end;
	json_t *told = NULL;

	if (r->egress)
		told = json_loadb(r->egress, r->egress_len, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(told) && json_is_array(json_object_get(told, "destinations")))
		return told;
	json_decref(told);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:[]}", "attempts", (json_int_t)end->attempts, "denied",
			 (json_int_t)end->denied, "allowed", (json_int_t)end->allowed, "would_deny",
			 (json_int_t)end->would_deny, "inbound", (json_int_t)end->inbound, "lost", (json_int_t)end->attempts,
			 "destinations");
}

json_t *answer_result(const struct run_result *r)
{
	const struct tell_end *end = &r->end;

	return json_pack("{s:s, s:s, s:o, s:o, s:i, s:I, s:o, s:b, s:I, s:I, s:o, s:o, s:s}", "sandbox_id", r->grant.sandbox_id,
			 "run_id", r->grant.run_id, "stdout", stream_text(r, RUN_STDOUT), "stderr", stream_text(r, RUN_STDERR),
			 "exit_code", (int)end->exit_code, "duration_ms", (json_int_t)(end->duration_us / 1000), "termination",
			 termination(end), "truncated", r->truncated, "stdout_bytes", (json_int_t)r->out_bytes[RUN_STDOUT],
			 "stderr_bytes", (json_int_t)r->out_bytes[RUN_STDERR], "usage", usage(r), "egress", egress(r), "python",
			 r->grant.python);
}

void answer_error(const struct run_result *r, struct api_error *ret_error)
{
	switch (r->outcome) {
	case RUN_BUSY:
		error_set(ret_error, ERROR_NO_SANDBOX, NULL);
		break;
	case RUN_GONE:
		error_set(ret_error, ERROR_CANCELLED, NULL);
		break;
	case RUN_DONE:
		error_set(ret_error, ERROR_INTERNAL, NULL); /* the answer itself could not be made */
		break;
	case RUN_FAILED:
		if (r->ran)
			error_set(ret_error, ERROR_SANDBOX, "the run was lost (%s): %s", r->fail.layer, r->fail.text);
		else
			error_set(ret_error, ERROR_SANDBOX, "sandbox failed at layer %s: %s", r->fail.layer, r->fail.text);
		break;
	}
	ret_error->ran = r->ran;
}

struct text {
	char *data;
	size_t len, room;
};

static int append(const char *data, size_t len, void *ctx)
{
	struct text *t = ctx;

	if (t->room - t->len <= len) {
		size_t room = (t->room + len) * 2;
		char *grown = realloc(t->data, room);

		if (!grown)
			return -1;
		t->data = grown;
		t->room = room;
	}
	memcpy(t->data + t->len, data, len);
	t->len += len;
	return 0;
}

char *answer_text(const json_t *value, size_t *ret_len)
{
	struct text t = {0};

	/* 15 digits: 1.234 as it was put in, not as the nearest double is spelt. */
	if (!value || json_dump_callback(value, append, &t, JSON_REAL_PRECISION(15)) < 0 || append("\n", 1, &t) < 0) {
		free(t.data);
		return NULL;
	}
	t.data[t.len] = 0; /* append() always leaves room */
	*ret_len = t.len;
	return t.data;
}
