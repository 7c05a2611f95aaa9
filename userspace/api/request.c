/* SPDX-License-Identifier: Apache-2.0 */
#include "api/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/jtext.h"
#include "core/limits.h"
#include "core/utf8.h"

/* The JSON pointer of the document itself is the empty string, which nobody reads as a place. */
static int refuse(struct api_error *e, const char *where, const char *what)
{
	if (*where)
		error_set(e, ERROR_INVALID_REQUEST, "at \"%s\": %s", where, what);
	else
		error_set(e, ERROR_INVALID_REQUEST, "at \"\" (the whole body): %s", what);
	return -1;
}

static int refuse_kind(struct api_error *e, const char *name, const char *expected, const struct jtext *found)
{
	char where[64] = "", what[96];

	jtext_point(where, sizeof where, name, strlen(name));
	snprintf(what, sizeof what, "expected %s, found %s", expected, jtext_kind_names[found->kind]);
	return refuse(e, where, what);
}

static int no_memory(struct api_error *e)
{
	error_set(e, ERROR_INTERNAL, NULL);
	return -1;
}

static int take_code(const struct jtext *value, struct execute_request *ret, struct api_error *e)
{
	if (value->kind != JTEXT_STRING)
		return refuse_kind(e, "code", "a string", value);
	ret->code = jtext_string(value, &ret->code_len);
	if (!ret->code)
		return no_memory(e);
	if (ret->code_len > LIMIT_CODE_BYTES) {
		error_set(e, ERROR_TOO_LARGE, "code is %zu bytes, over the limit of %d bytes", ret->code_len, LIMIT_CODE_BYTES);
		return -1;
	}
	return 0;
}

/* A stranger's text for a message: short, on one line, control characters visible. */
static void show(const char *text, size_t len, char *ret, size_t size)
{
	size_t used = 0, i = 0;

	while (i < len && used + 16 < size) {
		bool valid;
		size_t n = utf8_next(text + i, len - i, &valid);

		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
			used += (size_t)snprintf(ret + used, size - used, "\\u%04x", (unsigned char)text[i]);
		} else {
			memcpy(ret + used, text + i, n);
			used += n;
		}
		i += n;
	}
	snprintf(ret + used, size - used, "%s", i < len ? "\xe2\x80\xa6" : "");
}

static int take_language(const struct jtext *value, struct execute_request *ret, struct api_error *e)
{
	_cleanup_free_ char *text = NULL;
	char shown[128];
	size_t len;

	(void)ret;
	if (value->kind != JTEXT_STRING)
		return refuse_kind(e, "language", "the string \"python\"", value);
	if (jtext_is(value, "python"))
		return 0;
	text = jtext_string(value, &len);
	if (!text)
		return no_memory(e);
	show(text, len, shown, sizeof shown);
	error_set(e, ERROR_UNSUPPORTED_LANGUAGE, "unsupported language \"%s\"", shown);
	return -1;
}

static int take_timeout(const struct jtext *value, struct execute_request *ret, struct api_error *e)
{
	unsigned long n = 0;
	bool ok = value->kind == JTEXT_NUMBER && value->len <= 9;

	/* Digits only: 1.0 and 1e1 are numbers that JSON calls equal to integers, but not what a careful client sends. */
	for (size_t i = 0; ok && i < value->len; i++) {
		ok = value->text[i] >= '0' && value->text[i] <= '9';
		n = n * 10 + (unsigned long)(value->text[i] - '0');
	}
	if (!ok || n < LIMIT_TIMEOUT_MIN_S || n > LIMIT_TIMEOUT_MAX_S) {
		error_set(e, ERROR_TIMEOUT_RANGE, "timeout_s must be between %d and %d", LIMIT_TIMEOUT_MIN_S,
			  LIMIT_TIMEOUT_MAX_S);
		return -1;
	}
	ret->timeout_s = (uint32_t)n;
	return 0;
}

/* Every member the contract has. Those without a handler are refused by name: silence would look like support. */
static const struct member {
	const char *name;
	bool required;
	int (*take)(const struct jtext *value, struct execute_request *ret, struct api_error *e);
} members[] = {
    {"code", true, take_code},
    {"language", false, take_language},
    {"timeout_s", false, take_timeout},
    {"files", false, NULL},
    {"stdin", false, NULL},
    {"env", false, NULL},
    {"session_id", false, NULL},
};
#define MEMBERS (sizeof members / sizeof *members)

static int take_member(const struct jtext *name, const struct jtext *value, unsigned *seen, struct execute_request *ret,
		       struct api_error *e)
{
	for (size_t i = 0; i < MEMBERS; i++) {
		char where[64] = "";

		if (!jtext_is(name, members[i].name))
			continue;
		jtext_point(where, sizeof where, members[i].name, strlen(members[i].name));
		if (*seen & 1u << i)
			return refuse(e, where, "expected each name once, found it again");
		*seen |= 1u << i;
		if (!members[i].take) {
			error_set(e, ERROR_UNSUPPORTED_FIELD, "at \"%s\": this version does not support `%s`", where,
				  members[i].name);
			return -1;
		}
		return members[i].take(value, ret, e);
	}
	{
		char where[64] = "";

		jtext_point(where, sizeof where, name->text + 1, name->len - 2);
		return refuse(e, where, "expected one of code, language, timeout_s, found an unknown name");
	}
}

static int parse(const char *body, size_t len, struct execute_request *ret, struct api_error *e)
{
	struct jtext root, name = {.kind = JTEXT_STRING}, value;
	const char *at = NULL;
	struct err err = {0};
	unsigned seen = 0;

	if (len == 0)
		return refuse(e, "", "expected a JSON object, found nothing");
	if (jtext_check(body, len, LIMIT_JSON_DEPTH, &err) < 0)
		return refuse(e, err.where, err.msg);
	root = jtext_root(body, len);
	if (root.kind != JTEXT_OBJECT) {
		char what[64];

		snprintf(what, sizeof what, "expected a JSON object, found %s", jtext_kind_names[root.kind]);
		return refuse(e, "", what);
	}
	while (jtext_next(&root, &at, &name, &value))
		if (take_member(&name, &value, &seen, ret, e) < 0)
			return -1;
	for (size_t i = 0; i < MEMBERS; i++) {
		char where[64] = "";

		if (!members[i].required || seen & 1u << i)
			continue;
		jtext_point(where, sizeof where, members[i].name, strlen(members[i].name));
		return refuse(e, where, "expected a string, found no such member");
	}
	return 0;
}

int request_parse_execute(const char *body, size_t len, struct execute_request *ret, struct api_error *ret_error)
{
	struct execute_request request = {.timeout_s = LIMIT_TIMEOUT_DEFAULT_S};

	if (parse(body, len, &request, ret_error) < 0) {
		free(request.code);
		return -1;
	}
	*ret = request;
	return 0;
}
