/* SPDX-License-Identifier: Apache-2.0 */
#include "core/policy_read.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/jtext.h"

/*
 * Appends the pointer to `at`. Control characters become '?': the pointer ends up in logs and on terminals. Only a key that is
 * none of the language's can be too long to fit: jtext_point() then shows that it was cut.
 */
static void spot_point(char *where, size_t size, const struct spot *at)
{
	char token[64];
	size_t n = 0;

	if (!at->up)
		return;
	spot_point(where, size, at->up);
	if (!at->key)
		snprintf(token, sizeof token, "%zu", at->index);
	else
		for (const char *c = at->key; *c && n + 1 < sizeof token; c++)
			token[n++] = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
	if (at->key)
		token[n] = '\0';
	/* C1 controls, two bytes each. */
	for (char *c = token; at->key && *c; c++)
		if ((unsigned char)c[0] == 0xc2 && (unsigned char)c[1] >= 0x80 && (unsigned char)c[1] < 0xa0)
			c[0] = c[1] = '?';
	jtext_point(where, size, token, strlen(token));
}

int spot_fail(const struct spot *at, struct err *e, int code, const char *fmt, ...)
{
	char where[sizeof e->where] = "", msg[sizeof e->msg];
	va_list ap;

	spot_point(where, sizeof where, at);
	va_start(ap, fmt);
	vsnprintf(msg, sizeof msg, fmt, ap);
	va_end(ap);
	return err_set(e, code, where, "%s", msg);
}

int spot_wrong_kind(const struct spot *at, struct err *e, const char *what, const json_t *v)
{
	static const char *const kinds[] = {
	    [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list", [JSON_STRING] = "a string", [JSON_INTEGER] = "a number",
	    [JSON_REAL] = "a fraction",	 [JSON_TRUE] = "true",	  [JSON_FALSE] = "false",     [JSON_NULL] = "null",
	};

	return spot_fail(at, e, EINVAL, "must be %s, and is %s", what, kinds[json_typeof(v)]);
}

static const struct key *key_find(const struct key *keys, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

static int unknown_key(const struct spot *at, const char *what, const struct key *keys, size_t count, struct err *e)
{
	char list[200];
	size_t n = 0;

	for (size_t i = 0; i < count && n < sizeof list; i++)
		n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", keys[i].name);
	return spot_fail(at, e, EINVAL, "is not a key of %s; its keys are %s", what, list);
}

int read_object(const json_t *v, const struct spot *at, const char *what, const struct key *keys, size_t key_count, void *into,
		struct err *e)
{
	const char *name;
	json_t *member;

	if (!json_is_object(v))
		return spot_wrong_kind(at, e, "an object", v);
	/* The macro's iterator takes no const; nothing is written. */
	json_object_foreach((json_t *)v, name, member)
	{
		struct spot here = {.up = at, .key = name};

		if (!key_find(keys, key_count, name))
			return unknown_key(&here, what, keys, key_count, e);
	}
	for (size_t i = 0; i < key_count; i++) {
		struct spot here = {.up = at, .key = keys[i].name};
		int rc;

		member = json_object_get(v, keys[i].name);
		if (!member && keys[i].required)
			return spot_fail(at, e, EINVAL, "\"%s\" is missing", keys[i].name);
		rc = member ? keys[i].read(member, &here, &keys[i], (char *)into + keys[i].field, e) : 0;
		if (rc < 0)
			return rc;
	}
	return 0;
}

void words_list(char *ret, size_t size, const struct word *words)
{
	size_t n = 0;

	ret[0] = '\0';
	for (size_t i = 0; words[i].text && n < size; i++)
		n += (size_t)snprintf(ret + n, size - n, "%s\"%s\"",
				      i == 0		  ? ""
				      : words[i + 1].text ? ", "
							  : " or ",
				      words[i].text);
}

static int word_value(const json_t *v, const struct spot *at, const struct word *words, uint32_t *ret, struct err *e)
{
	const char *s = json_string_value(v);
	char list[160];

	for (size_t i = 0; s && words[i].text; i++) {
		if (strcmp(words[i].text, s) != 0)
			continue;
		*ret = words[i].value;
		return 0;
	}
	words_list(list, sizeof list, words);
	return s ? spot_fail(at, e, EINVAL, "must be %s", list) : spot_wrong_kind(at, e, list, v);
}

int read_word(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	uint32_t value = 0;
	uint8_t byte;
	int rc = word_value(v, at, key->arg, &value, e);

	if (rc < 0)
		return rc;
	byte = (uint8_t)value; /* a bool is a byte too, and gets 0 or 1 */
	memcpy(field, &byte, 1);
	return 0;
}
_Static_assert(sizeof(bool) == 1, "read_word() writes one byte");

int read_word_set(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	uint32_t set = 0, value = 0;

	if (!json_is_array(v))
		return spot_wrong_kind(at, e, "a list of words", v);
	for (size_t i = 0; i < json_array_size(v); i++) {
		struct spot here = {.up = at, .index = i};
		int rc = word_value(json_array_get(v, i), &here, key->arg, &value, e);

		if (rc < 0)
			return rc;
		set |= value;
	}
	*(uint32_t *)field = set;
	return 0;
}

int read_bool(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	(void)key;
	if (!json_is_boolean(v))
		return spot_wrong_kind(at, e, "true or false", v);
	*(bool *)field = json_is_true(v);
	return 0;
}

int read_number(const json_t *v, const struct spot *at, const struct range *range, uint64_t *ret, struct err *e)
{
	json_int_t n;

	if (!json_is_integer(v)) {
		char what[80];

		snprintf(what, sizeof what, "a whole number from %llu to %llu", (unsigned long long)range->min,
			 (unsigned long long)range->max);
		return spot_wrong_kind(at, e, what, v);
	}
	n = json_integer_value(v);
	if (n < 0 || (uint64_t)n < range->min || (uint64_t)n > range->max)
		return spot_fail(at, e, EINVAL, "must be from %llu to %llu, and is %lld", (unsigned long long)range->min,
				 (unsigned long long)range->max, (long long)n);
	*ret = (uint64_t)n;
	return 0;
}

int read_u64(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	return read_number(v, at, key->arg, field, e);
}

int read_u32(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	uint64_t n = 0;
	int rc = read_number(v, at, key->arg, &n, e);

	if (rc == 0)
		*(uint32_t *)field = (uint32_t)n;
	return rc;
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

int read_name(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);

	(void)key;
	if (!s)
		return spot_wrong_kind(at, e, "a string", v);
	if (n == 0)
		return spot_fail(at, e, EINVAL, "must not be empty");
	if (n >= POLICY_NAME_MAX)
		return spot_fail(at, e, EINVAL, "has %zu bytes; at most %d are allowed", n, POLICY_NAME_MAX - 1);
	for (size_t i = 0; i < n; i++)
		if (!is_name_char(s[i]) || (i == 0 && (s[i] == '-' || s[i] == '.')))
			return spot_fail(at, e, EINVAL,
					 "may hold letters, digits, '-', '_' and '.', and starts with a letter, digit or '_'");
	memcpy(field, s, n + 1);
	return 0;
}

/* ---- the document ---- */

static int fail_at(struct err *e, int code, int line, int column, const char *msg)
{
	char where[32];

	snprintf(where, sizeof where, "%d:%d", line, column);
	return err_set(e, code, where, "%s", msg);
}

/*
 * The parser calls itself once per level and has a bound of its own that is far above ours. This only counts brackets outside
 * strings: whether they match is the parser's business.
 */
static int check_depth(const char *text, size_t len, unsigned max, struct err *e)
{
	int line = 1, column = 0;
	bool in_string = false;
	unsigned depth = 0;
	char msg[64];

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '\n') {
			line++;
			column = 0;
			continue;
		}
		column += ((unsigned char)c & 0xc0) != 0x80; /* characters, not bytes */
		if (in_string && c == '\\' && i + 1 < len && text[i + 1] != '\n') {
			column += ((unsigned char)text[++i] & 0xc0) != 0x80;
		} else if (c == '"') {
			in_string = !in_string;
		} else if (!in_string && (c == '{' || c == '[')) {
			if (++depth <= max)
				continue;
			snprintf(msg, sizeof msg, "nested deeper than %u levels", max);
			return fail_at(e, E2BIG, line, column, msg);
		} else if (!in_string && (c == '}' || c == ']') && depth > 0) {
			depth--;
		}
	}
	return 0;
}

/* Only the place is the parser's: its text quotes the document. */
static int syntax_error(const json_error_t *je, struct err *e)
{
	static const struct {
		enum json_error_code code;
		int error;
		const char *msg;
	} rows[] = {
	    {json_error_duplicate_key, EINVAL, "a key is there twice"},
	    {json_error_invalid_utf8, EINVAL, "not UTF-8"},
	    {json_error_null_character, EINVAL, "a NUL character"},
	    {json_error_null_byte_in_key, EINVAL, "a NUL character"},
	    {json_error_premature_end_of_input, EINVAL, "the document ends too early"},
	    {json_error_end_of_input_expected, EINVAL, "something follows the document"},
	    {json_error_stack_overflow, EINVAL, "nested too deeply"},
	    {json_error_numeric_overflow, EINVAL, "a number that is too large"},
	    {json_error_out_of_memory, ENOMEM, "out of memory"},
	};
	enum json_error_code code = json_error_code(je);
	char text[200];

	for (size_t i = 0; i < READ_COUNT(rows); i++)
		if (rows[i].code == code)
			return fail_at(e, rows[i].error, je->line, je->column, rows[i].msg);
	/* What the parser missed, and near what: an operator's own document, but still not to be obeyed by a terminal. */
	snprintf(text, sizeof text, "not valid JSON: %.140s", je->text);
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
			*p = '?';
	return fail_at(e, EINVAL, je->line, je->column, text);
}

int read_document(const char *text, size_t len, unsigned depth, json_t **ret, struct err *e)
{
	json_error_t je;
	json_t *doc;
	int rc = check_depth(text, len, depth, e);

	if (rc < 0)
		return rc;
	doc = json_loadb(text ? text : "", len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if (!doc)
		return syntax_error(&je, e);
	*ret = doc;
	return 0;
}
