/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a tool call: which tool, and its arguments, which are looked at as little as their safety allows. */
#include <errno.h>
#include <string.h>

#include "api/request_priv.h"
#include "core/jcheck.h"
#include "core/limits.h"

const struct request_member request_call_members[CALL_MEMBERS] = {
    [CALL_NAME] = {.name = "name",
		   .type = "string",
		   .required = true,
		   .max = LIMIT_CALL_NAME_BYTES,
		   .description =
		       "the tool: MODULE:NAME, or a name alone, which is looked for in the agent's modules in their order"},
    [CALL_ARGUMENTS] = {.name = "arguments",
			.type = "object",
			.required = true,
			.any = true,
			.description = "what it is called with, by name; handed over byte for byte"},
    [CALL_TIMEOUT] = {.name = "timeout_s",
		      .type = "integer",
		      .min = LIMIT_TIMEOUT_MIN_S,
		      .max = LIMIT_CALL_TIMEOUT_MAX_S,
		      .preset = LIMIT_CALL_TIMEOUT_DEFAULT_S,
		      .description = "seconds until the call is ended; never clamped"},
};

/* C0, DEL, and C1 as UTF-8 has it: none of them is in a name that anybody could have written. */
static bool has_control(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c < 0x20 || c == 0x7f || (c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] < 0xa0))
			return true;
	}
	return false;
}

static int take_name(struct parse *p, const struct jtext *value)
{
	p->parts.code = jtext_string_in_place(p->body, value, &p->parts.code_len);
	if (p->parts.code_len == 0)
		return request_refuse(p, "/name", "expected a tool's name, found an empty one");
	if (p->parts.code_len > LIMIT_CALL_NAME_BYTES)
		return request_refuse(p, "/name", "expected a tool's name of at most %d bytes, found %zu",
				      LIMIT_CALL_NAME_BYTES, p->parts.code_len);
	if (has_control(p->parts.code, p->parts.code_len))
		return request_refuse(p, "/name", "expected a tool's name without control characters");
	return 0;
}

/* Where the byte at `place` is, as a JSON pointer below `parent`: the member or element that it belongs to, and in there on. */
static void point_at(char where[WHERE_MAX], struct jtext value, const char *place)
{
	bool found = true;

	while (found && (value.kind == JTEXT_OBJECT || value.kind == JTEXT_ARRAY)) {
		struct jtext name = {.kind = JTEXT_STRING}, inner;
		const char *at = NULL;
		size_t index = 0;

		found = false;
		while (!found && jtext_next(&value, &at, &name, &inner)) {
			char parent[WHERE_MAX];

			found = place < inner.text + inner.len;
			if (!found) {
				index++;
				continue;
			}
			memcpy(parent, where, sizeof parent);
			if (value.kind == JTEXT_OBJECT)
				request_point(where, parent, name.text + 1, name.len - 2);
			else
				request_point_index(where, parent, index);
			if (place < inner.text)
				return; /* at the name itself */
			value = inner;
		}
	}
}

static int take_arguments(struct parse *p, const struct jtext *value)
{
	char where[WHERE_MAX] = "/arguments";
	const char *why;
	size_t at;
	int r = jcheck(value->text, value->len, LIMIT_JSON_DEPTH - 1, JCHECK_OBJECT, &why, &at);

	if (r == -ENOMEM)
		return request_no_memory(p);
	if (r < 0) {
		point_at(where, *value, value->text + at);
		return request_refuse(p, where, "expected JSON that every parser reads alike, found %s", why);
	}
	p->parts.stdin_text = value->text;
	p->parts.stdin_len = value->len;
	return 0;
}

/* Names that are not there on purpose. */
static void hint_at_the_token(struct parse *p, const struct jtext *name)
{
	static const char *const names[] = {"agent", "image"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (jtext_is(name, names[i]))
			error_set_hint(
			    p->error,
			    "leave `%s` out: the agent is the token's, and its image the one that is registered for it",
			    names[i]);
}

static int parse_call(struct parse *p, size_t len, struct call_request *ret)
{
	struct jtext values[CALL_MEMBERS];

	if (request_read_body(p, len, request_call_members, CALL_MEMBERS, values) < 0)
		return -1;
	if (take_name(p, &values[CALL_NAME]) < 0)
		return -1;
	if (values[CALL_TIMEOUT].text && request_take_timeout(p, &values[CALL_TIMEOUT], LIMIT_CALL_TIMEOUT_MAX_S) < 0)
		return -1;
	if (take_arguments(p, &values[CALL_ARGUMENTS]) < 0)
		return -1;
	p->parts.call = true;
	if (payload_make(&ret->payload, &p->parts) < 0)
		return request_no_memory(p);
	ret->timeout_s = p->timeout_s;
	return 0;
}

int request_parse_call(char *body, size_t len, struct call_request *ret, struct api_error *ret_error)
{
	struct parse p = {
	    .body = body, .error = ret_error, .unknown = hint_at_the_token, .timeout_s = LIMIT_CALL_TIMEOUT_DEFAULT_S};

	return parse_call(&p, len, ret);
}
