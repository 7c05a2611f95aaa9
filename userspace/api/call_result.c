/* SPDX-License-Identifier: Apache-2.0 */
#include "api/call_result.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/jcheck.h"
#include "core/jtext.h"
#include "core/limits.h"

#define RESULT_ERROR_TYPE "ToolResultError"

/* An error in our own words. */
static int in_our_words(struct call_result *ret, const char *type, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int in_our_words(struct call_result *ret, const char *type, const char *fmt, ...)
{
	va_list ap;

	*ret = (struct call_result){.outcome = CALL_RAISED};
	va_start(ap, fmt);
	vsnprintf(ret->words, sizeof ret->words, fmt, ap);
	va_end(ap);
	ret->type = (struct call_text){type, strlen(type)};
	ret->message = (struct call_text){ret->words, strlen(ret->words)};
	ret->traceback = (struct call_text){"", 0};
	return 0;
}

static int no_result(struct call_result *ret, const char *why)
{
	return in_our_words(ret, RESULT_ERROR_TYPE, "the result channel holds what is no result: %s", why);
}

/* Whether the content is JSON of this kind. Returns 0, -ENOMEM, or -EINVAL and has filled *ret. */
static int check_json(const char *text, size_t len, enum jcheck_kind kind, struct call_result *ret)
{
	const char *why;
	size_t at;
	int r = jcheck(text, len, LIMIT_RESULT_DEPTH, kind, &why, &at);

	if (r == -EINVAL)
		in_our_words(ret, RESULT_ERROR_TYPE, "the result channel holds what is no result: %s, at byte %zu", why, at);
	return r;
}

static int read_error(char *text, size_t len, struct call_result *ret)
{
	static const char *const names[] = {"type", "message", "traceback"};
	struct call_text *const texts[] = {&ret->type, &ret->message, &ret->traceback};
	struct jtext root, name = {.kind = JTEXT_STRING}, value;
	const char *at = NULL;
	size_t count = 0;
	int r = check_json(text, len, JCHECK_OBJECT, ret);

	if (r < 0)
		return r == -EINVAL ? 0 : r;
	root = jtext_root(text, len);
	*ret = (struct call_result){.outcome = CALL_RAISED, .told = true};
	while (jtext_next(&root, &at, &name, &value)) {
		size_t i = 0;

		while (i < 3 && !jtext_is(&name, names[i]))
			i++;
		if (i == 3 || value.kind != JTEXT_STRING)
			return no_result(ret, "an error with other members than the strings type, message and traceback");
		texts[i]->text = jtext_string_in_place(text, &value, &texts[i]->len);
		count++; /* none is there twice: that has been checked */
	}
	return count == 3 ? 0 : no_result(ret, "an error without all of type, message and traceback");
}

static int read_value(const char *text, size_t len, struct call_result *ret)
{
	int r = check_json(text, len, JCHECK_ANY, ret);

	if (r == 0)
		*ret = (struct call_result){.outcome = CALL_RETURNED, .value = {text, len}};
	return r == -EINVAL ? 0 : r;
}

/* The one frame, and nothing but it. */
static int read_frame(char *data, size_t len, bool ended, struct call_result *ret)
{
	struct result_header h;
	size_t have;

	if (len < sizeof h)
		return no_result(ret, "less than a frame's header");
	memcpy(&h, data, sizeof h);
	data += sizeof h;
	have = len - sizeof h;
	if (h.magic != RESULT_MAGIC || h.kind == RESULT_NONE || h.kind >= RESULT_KINDS)
		return no_result(ret, "no frame's header");
	if (h.len > LIMIT_RESULT_BYTES)
		return in_our_words(
		    ret, RESULT_ERROR_TYPE,
		    "the result channel holds what is no result: result too large (%llu bytes), over the limit of %d bytes",
		    (unsigned long long)h.len, LIMIT_RESULT_BYTES);
	if (have != h.len)
		return no_result(ret, have < h.len ? "a frame that is cut short" : "more than one frame");
	if (!ended)
		return no_result(ret, "a frame without the stream's end");
	switch ((enum result_kind)h.kind) {
	case RESULT_VALUE:
		return read_value(data, have, ret);
	case RESULT_ERROR:
		return read_error(data, have, ret);
	default:
		break;
	}
	*ret = (struct call_result){.outcome = CALL_UNKNOWN};
	return have == 0 ? 0 : no_result(ret, "a frame that should be empty");
}

static int ended_by_signal(const struct tell_end *end, struct call_result *ret)
{
	const char *name = sigabbrev_np(end->signal);

	if (name)
		return in_our_words(ret, "ToolEndedError", "tool ended without returning a value (signal SIG%s)", name);
	return in_our_words(ret, "ToolEndedError", "tool ended without returning a value (signal %d)", end->signal);
}

int call_result_read(struct run_result *r, struct call_result *ret)
{
	const struct tell_end *end = &r->end;

	switch ((enum run_end)end->end) {
	case RUN_END_SIGNAL:
		return ended_by_signal(end, ret);
	case RUN_END_TIMEOUT:
		return in_our_words(ret, "ToolTimeoutError", "timed out after %us", r->timeout_s);
	case RUN_END_MEMORY:
		return in_our_words(ret, "ToolMemoryError", "%s", end->detail);
	case RUN_END_OUTPUT:
		return in_our_words(ret, "ToolOutputError", "%s", end->detail);
	case RUN_END_CANCELLED:
	case RUN_END_BROKEN:
	case RUN_END_COUNT:
		return in_our_words(ret, "ToolCancelledError", "the call was ended before the tool returned");
	case RUN_END_EXIT:
		break;
	}
	if (r->out_len[RUN_RESULT] == 0)
		return in_our_words(ret, "ToolEndedError", "tool ended without returning a value (exit code %d)",
				    (int)end->exit_code);
	return read_frame(r->out[RUN_RESULT], r->out_len[RUN_RESULT], r->result_ended, ret);
}
