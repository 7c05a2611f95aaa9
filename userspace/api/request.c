/* SPDX-License-Identifier: Apache-2.0 */
#include "api/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/request_priv.h"
#include "core/envname.h"
#include "core/limits.h"
#include "core/utf8.h"

/* ---- errors ---- */

int request_refuse(struct parse *p, const char *where, const char *fmt, ...)
{
	char what[192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	/* The JSON pointer of the document itself is the empty string, which nobody reads as a place. */
	error_set(p->error, ERROR_INVALID_REQUEST, "at \"%s\"%s: %s", where, *where ? "" : " (the whole body)", what);
	return -1;
}

int request_too_large(struct parse *p, const char *fmt, ...)
{
	char what[192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	error_set(p->error, ERROR_TOO_LARGE, "%s", what);
	return -1;
}

int request_no_memory(struct parse *p)
{
	error_set(p->error, ERROR_INTERNAL, NULL);
	return -1;
}

void request_point(char where[WHERE_MAX], const char *parent, const char *token, size_t len)
{
	snprintf(where, WHERE_MAX, "%s", parent);
	jtext_point(where, WHERE_MAX, token, len);
}

void request_point_index(char where[WHERE_MAX], const char *parent, size_t index)
{
	char token[24];

	snprintf(token, sizeof token, "%zu", index);
	request_point(where, parent, token, strlen(token));
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

/* ---- objects ---- */

static const struct {
	const char *type;
	enum jtext_kind kind;
	const char *expected;
} types[] = {
    {"string", JTEXT_STRING, "a string"},
    {"array", JTEXT_ARRAY, "an array"},
    {"object", JTEXT_OBJECT, "an object"},
};

static int check_type(struct parse *p, const char *where, const struct request_member *m, const struct jtext *value)
{
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		if (strcmp(types[i].type, m->type) != 0 || types[i].kind == value->kind)
			continue;
		if (m->value)
			return request_refuse(p, where, "expected the string \"%s\", found %s", m->value,
					      jtext_kind_names[value->kind]);
		return request_refuse(p, where, "expected %s, found %s", types[i].expected, jtext_kind_names[value->kind]);
	}
	return 0;
}

static void list_names(const struct request_member *table, size_t count, bool one_of, char *ret, size_t size)
{
	size_t used = 0;

	*ret = 0;
	for (size_t i = 0; i < count && used < size; i++)
		if (!one_of || table[i].one_of)
			used += (size_t)snprintf(ret + used, size - used, "%s%s", used ? ", " : "", table[i].name);
}

static int check_present(struct parse *p, const char *where, const struct request_member *table, size_t count,
			 const struct jtext *values)
{
	unsigned choices = 0, chosen = 0;
	char inner[WHERE_MAX], names[128];

	for (size_t i = 0; i < count; i++) {
		choices += table[i].one_of;
		chosen += table[i].one_of && values[i].text;
		if (!table[i].required || values[i].text)
			continue;
		request_point(inner, where, table[i].name, strlen(table[i].name));
		return request_refuse(p, inner, "expected %s %s, found no such member",
				      strchr("aeiou", table[i].type[0]) ? "an" : "a", table[i].type);
	}
	if (choices == 0 || chosen == 1)
		return 0;
	list_names(table, count, true, names, sizeof names);
	return request_refuse(p, where, "expected exactly one of %s, found %s", names, chosen == 0 ? "none" : "more");
}

int request_read_members(struct parse *p, const char *where, const struct jtext *object, const struct request_member *table,
			 size_t count, struct jtext *ret)
{
	struct jtext name = {.kind = JTEXT_STRING}, value;
	char inner[WHERE_MAX], names[128];
	const char *at = NULL;

	memset(ret, 0, count * sizeof *ret);
	if (object->kind != JTEXT_OBJECT)
		return request_refuse(p, where, "expected %s, found %s", *where ? "an object" : "a JSON object",
				      jtext_kind_names[object->kind]);
	while (jtext_next(object, &at, &name, &value)) {
		size_t i = 0;

		while (i < count && !jtext_is(&name, table[i].name))
			i++;
		request_point(inner, where, name.text + 1, name.len - 2);
		if (i == count) {
			list_names(table, count, false, names, sizeof names);
			request_refuse(p, inner, "expected one of %s, found an unknown name", names);
			if (p->unknown)
				p->unknown(p, &name);
			return -1;
		}
		/* As the table spells it: the body may have escapes in it. */
		request_point(inner, where, table[i].name, strlen(table[i].name));
		if (ret[i].text)
			return request_refuse(p, inner, "expected each name once, found it again");
		if (check_type(p, inner, &table[i], &value) < 0)
			return -1;
		ret[i] = value;
	}
	return check_present(p, where, table, count, ret);
}

/* ---- the members of POST /v1/execute ---- */

enum member { MEMBER_CODE, MEMBER_LANGUAGE, MEMBER_TIMEOUT, MEMBER_FILES, MEMBER_STDIN, MEMBER_ENV, MEMBER_SESSION, MEMBERS };

#define LANGUAGE                                                                                                               \
	{                                                                                                                      \
		.name = "language", .type = "string", .value = "python",                                                       \
		.description = "the language of the code; there is one",                                                       \
	}
static const struct request_member execute_members[MEMBERS] = {
    [MEMBER_CODE] = {.name = "code",
		     .type = "string",
		     .required = true,
		     .max = LIMIT_CODE_BYTES,
		     .description = "what to run, byte for byte: as the script main.py, or as the next cell of a session"},
    [MEMBER_LANGUAGE] = LANGUAGE,
    [MEMBER_TIMEOUT] = {.name = "timeout_s",
			.type = "integer",
			.min = LIMIT_TIMEOUT_MIN_S,
			.max = LIMIT_CELL_TIMEOUT_MAX_S,
			.preset = LIMIT_TIMEOUT_DEFAULT_S,
			.description = "seconds until the run is ended; never clamped"},
    [MEMBER_FILES] = {.name = "files",
		      .type = "array",
		      .max = LIMIT_FILES_IN,
		      .items = request_file_members,
		      .item_count = FILE_MEMBERS,
		      .description = "files that are in the working directory when the code starts"},
    [MEMBER_STDIN] = {.name = "stdin",
		      .type = "string",
		      .max = LIMIT_STDIN_BYTES,
		      .description = "standard input, then its end; without it, it is at its end from the start"},
    [MEMBER_ENV] = {.name = "env",
		    .type = "object",
		    .max = LIMIT_ENV_NAMES,
		    .description = "environment variables, beside and over those that are there"},
    [MEMBER_SESSION] = {.name = "session_id",
			.type = "string",
			.max = IPC_ID_MAX - 1,
			.description = "run as the next cell of this session, instead of in a sandbox of its own"},
};
static const struct request_member session_members[] = {LANGUAGE};
#undef LANGUAGE

const struct request_member *request_members(enum request_body body, size_t *ret_count)
{
	switch (body) {
	case REQUEST_BODY_EXECUTE:
		*ret_count = MEMBERS;
		return execute_members;
	case REQUEST_BODY_CALL:
		*ret_count = CALL_MEMBERS;
		return request_call_members;
	case REQUEST_BODY_MCP:
		*ret_count = MCP_MEMBERS;
		return request_mcp_members;
	case REQUEST_BODY_SESSION:
		break;
	}
	*ret_count = sizeof session_members / sizeof *session_members;
	return session_members;
}

static int take_code(struct parse *p, const char *where, const struct jtext *value)
{
	(void)where;
	p->parts.code = jtext_string_in_place(p->body, value, &p->parts.code_len);
	if (p->parts.code_len > LIMIT_CODE_BYTES)
		return request_too_large(p, "code is %zu bytes, over the limit of %d bytes", p->parts.code_len,
					 LIMIT_CODE_BYTES);
	return 0;
}

static int take_language(struct parse *p, const char *where, const struct jtext *value)
{
	char shown[128];
	const char *text;
	size_t len;

	(void)where;
	if (jtext_is(value, "python"))
		return 0;
	text = jtext_string_in_place(p->body, value, &len);
	show(text, len, shown, sizeof shown);
	error_set(p->error, ERROR_UNSUPPORTED_LANGUAGE, "unsupported language \"%s\"", shown);
	return -1;
}

int request_take_timeout(struct parse *p, const struct jtext *value, unsigned most)
{
	bool ok = value->kind == JTEXT_NUMBER && value->len <= 9;
	unsigned n = 0;

	/* Digits only: 1.0 and 1e1 are numbers that JSON calls equal to integers, but not what a careful client sends. */
	for (size_t i = 0; ok && i < value->len; i++) {
		ok = value->text[i] >= '0' && value->text[i] <= '9';
		n = n * 10 + (unsigned)(value->text[i] - '0');
	}
	if (!ok || n < LIMIT_TIMEOUT_MIN_S || n > most) {
		error_set(p->error, ERROR_TIMEOUT_RANGE, "timeout_s must be between %d and %u", LIMIT_TIMEOUT_MIN_S, most);
		return -1;
	}
	p->timeout_s = n;
	return 0;
}

static int take_timeout(struct parse *p, const char *where, const struct jtext *value)
{
	(void)where;
	return request_take_timeout(p, value, p->parts.session ? LIMIT_CELL_TIMEOUT_MAX_S : LIMIT_TIMEOUT_MAX_S);
}

static int take_stdin(struct parse *p, const char *where, const struct jtext *value)
{
	(void)where;
	p->parts.stdin_text = jtext_string_in_place(p->body, value, &p->parts.stdin_len);
	if (p->parts.stdin_len > LIMIT_STDIN_BYTES)
		return request_too_large(p, "stdin is %zu bytes, over the limit of %d bytes", p->parts.stdin_len,
					 LIMIT_STDIN_BYTES);
	return 0;
}

static int check_name(struct parse *p, const char *where, const char *name, size_t len)
{
	char shown[256];

	switch (envname_check(name, len)) {
	case ENVNAME_OK:
		return 0;
	case ENVNAME_EMPTY:
		return request_refuse(p, where, "expected a variable's name, found an empty one");
	case ENVNAME_EQUALS:
		return request_refuse(p, where, "expected a variable's name without =");
	case ENVNAME_CONTROL:
		return request_refuse(p, where, "expected a variable's name without control characters");
	case ENVNAME_RESERVED:
		break;
	}
	show(name, len, shown, sizeof shown);
	error_set(p->error, ERROR_RESERVED_NAME, "%s is reserved by the platform", shown);
	return -1;
}

static bool env_has(const struct parse *p, const char *name, size_t len)
{
	const char *at = p->parts.env, *end = at + p->parts.env_len;

	for (; at < end; at += strlen(at) + 1)
		if (!strncmp(at, name, len) && at[len] == '=')
			return true;
	return false;
}

static int take_variable(struct parse *p, const char *parent, const struct jtext *name, const struct jtext *value)
{
	char where[WHERE_MAX], *end;
	const char *name_text, *text;
	size_t name_len, len;

	request_point(where, parent, name->text + 1, name->len - 2);
	if (value->kind != JTEXT_STRING)
		return request_refuse(p, where, "expected a string, found %s", jtext_kind_names[value->kind]);
	name_text = jtext_string_in_place(p->body, name, &name_len);
	text = jtext_string_in_place(p->body, value, &len);
	if (check_name(p, where, name_text, name_len) < 0)
		return -1;
	if (memchr(text, 0, len))
		return request_refuse(p, where, "expected a value without NUL");
	if (name_len + len + 2 > LIMIT_ENV_BYTES - p->parts.env_len)
		return request_too_large(p, "env is over the limit of %d bytes, = and an end for each counted",
					 LIMIT_ENV_BYTES);
	if (env_has(p, name_text, name_len))
		return request_refuse(p, where, "expected each name once, found it again");
	end = p->env + p->parts.env_len;
	memcpy(end, name_text, name_len);
	end[name_len] = '=';
	memcpy(end + name_len + 1, text, len);
	end[name_len + 1 + len] = 0;
	p->parts.env_len += name_len + len + 2;
	return 0;
}

static int take_env(struct parse *p, const char *where, const struct jtext *object)
{
	struct jtext name = {.kind = JTEXT_STRING}, value;
	const char *at = NULL;

	p->parts.env = p->env = malloc(LIMIT_ENV_BYTES);
	if (!p->env)
		return request_no_memory(p);
	for (int count = 0; jtext_next(object, &at, &name, &value); count++) {
		if (count == LIMIT_ENV_NAMES)
			return request_too_large(p, "env is over the limit of %d names", LIMIT_ENV_NAMES);
		if (take_variable(p, where, &name, &value) < 0)
			return -1;
	}
	return 0;
}

/* Ids are what the service made itself: letters, digits, "-" and ".". Nothing else can be one; then `session_id` stays "". */
static int take_session(struct parse *p, const char *where, const struct jtext *value)
{
	static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
	const char *text;
	size_t len;

	(void)where;
	text = jtext_string_in_place(p->body, value, &len);
	p->parts.session = true;
	if (len >= sizeof p->session_id)
		return 0;
	for (size_t i = 0; i < len; i++)
		if (!memchr(set, text[i], sizeof set - 1))
			return 0;
	memcpy(p->session_id, text, len);
	p->session_id[len] = 0;
	return 0;
}

/* In the order in which they are read: whether there is a session decides about the deadline. */
static const struct {
	enum member member;
	int (*take)(struct parse *p, const char *where, const struct jtext *value);
} takers[] = {
    {MEMBER_LANGUAGE, take_language}, {MEMBER_SESSION, take_session},	  {MEMBER_TIMEOUT, take_timeout},
    {MEMBER_CODE, take_code},	      {MEMBER_FILES, request_take_files}, {MEMBER_STDIN, take_stdin},
    {MEMBER_ENV, take_env},
};

int request_read_body(struct parse *p, size_t len, const struct request_member *table, size_t count, struct jtext *ret)
{
	struct err err = {0};
	struct jtext root;

	if (len == 0)
		return request_refuse(p, "", "expected a JSON object, found nothing");
	if (jtext_check(p->body, len, LIMIT_JSON_DEPTH, &err) < 0) {
		request_refuse(p, err.where, "%s", err.msg);
		error_set_hint(p->error, "the body is no JSON that can be read: let a JSON library write it, quotes and all");
		return -1;
	}
	root = jtext_root(p->body, len);
	return request_read_members(p, "", &root, table, count, ret);
}

static int parse_execute(struct parse *p, size_t len, struct execute_request *ret)
{
	struct jtext values[MEMBERS];

	if (request_read_body(p, len, execute_members, MEMBERS, values) < 0)
		return -1;
	for (size_t i = 0; i < sizeof takers / sizeof *takers; i++) {
		const struct jtext *value = &values[takers[i].member];
		char where[WHERE_MAX];

		request_point(where, "", execute_members[takers[i].member].name,
			      strlen(execute_members[takers[i].member].name));
		if (value->text && takers[i].take(p, where, value) < 0)
			return -1;
	}
	if (p->parts.session && !*p->session_id) {
		error_set(p->error, ERROR_NOT_FOUND, NULL);
		return -1;
	}
	if (payload_make(&ret->payload, &p->parts) < 0)
		return request_no_memory(p);
	ret->timeout_s = p->timeout_s;
	memcpy(ret->session_id, p->session_id, sizeof ret->session_id);
	return 0;
}

int request_parse_execute(char *body, size_t len, struct execute_request *ret, struct api_error *ret_error)
{
	struct parse p = {.body = body, .error = ret_error, .timeout_s = LIMIT_TIMEOUT_DEFAULT_S};
	int r = parse_execute(&p, len, ret);

	free(p.files);
	free(p.env);
	return r;
}

int request_parse_session(char *body, size_t len, struct api_error *ret_error)
{
	struct parse p = {.body = body, .error = ret_error};
	struct jtext language = {0};

	if (len == 0)
		return 0;
	if (request_read_body(&p, len, session_members, 1, &language) < 0)
		return -1;
	return language.text ? take_language(&p, "/language", &language) : 0;
}
