/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy document is one JSON object. Each key has a row in `keys` with its reader; a key without a row is an error, so
 * that a misspelt rule is never a rule that silently does nothing.
 */
#include "core/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "core/cleanup.h"
#include "core/limits.h"

static void cleanup_jsonp(json_t **j)
{
	json_decref(*j);
}
#define _cleanup_json_ __attribute__((cleanup(cleanup_jsonp)))

/* How much of a client's own text an error repeats. */
#define QUOTED_MAX 40

/*
 * A key as a JSON pointer component, in what room there is. Control characters become '?': the pointer ends up in logs and
 * on terminals.
 */
static void pointer_to(char *ret, size_t size, const char *key)
{
	size_t n = 0;

	ret[n++] = '/';
	for (; *key && n + 3 < size; key++) {
		unsigned char c = (unsigned char)*key;

		if (c == '~' || c == '/') {
			ret[n++] = '~';
			ret[n++] = c == '~' ? '0' : '1';
		} else {
			ret[n++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
		}
	}
	/* Not in the middle of a character of several bytes. */
	while (*key && n > 1 && ((unsigned char)ret[n - 1] & 0xc0) == 0x80)
		n--;
	if (*key && n > 1 && (unsigned char)ret[n - 1] >= 0xc0)
		n--;
	ret[n] = '\0';
}

static int want_string(const json_t *v, const char *where, struct err *e)
{
	return json_is_string(v) ? 0 : err_set(e, EINVAL, where, "must be a string");
}

/* Printable ASCII that is safe in a file name, a log line and a URL. */
static int is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

static int read_name(const json_t *v, struct policy *p, struct err *e)
{
	const char *s = json_string_value(v);
	size_t i, n;

	if (want_string(v, "/name", e) < 0)
		return -EINVAL;
	n = json_string_length(v);
	if (n == 0)
		return err_set(e, EINVAL, "/name", "must not be empty");
	if (n >= POLICY_NAME_MAX)
		return err_set(e, EINVAL, "/name", "has %zu bytes; at most %d are allowed", n, POLICY_NAME_MAX - 1);
	for (i = 0; i < n; i++)
		if (!is_name_char(s[i]) || (i == 0 && (s[i] == '-' || s[i] == '.')))
			return err_set(e, EINVAL, "/name",
				       "may hold letters, digits, '-', '_' and '.', and starts with a letter, digit or '_'");
	memcpy(p->name, s, n);
	p->name[n] = '\0';
	return 0;
}

/* For people; nothing is made of it. */
static int read_description(const json_t *v, struct policy *p, struct err *e)
{
	(void)p;
	return want_string(v, "/description", e);
}

static int read_default(const json_t *v, struct policy *p, struct err *e)
{
	const char *s = json_string_value(v);

	if (want_string(v, "/default", e) < 0)
		return -EINVAL;
	if (!strcmp(s, "deny"))
		p->image.default_verdict = WEIR_DENY;
	else if (!strcmp(s, "allow"))
		p->image.default_verdict = WEIR_ALLOW;
	else
		return err_set(e, EINVAL, "/default", "must be \"deny\" or \"allow\"");
	return 0;
}

static int read_mode(const json_t *v, struct policy *p, struct err *e)
{
	(void)p;
	if (want_string(v, "/mode", e) < 0)
		return -EINVAL;
	if (strcmp(json_string_value(v), "enforce"))
		return err_set(e, EINVAL, "/mode", "must be \"enforce\"");
	return 0;
}

static const struct key {
	const char *name;
	int required;
	int (*read)(const json_t *v, struct policy *p, struct err *e);
} keys[] = {
    {"name", 1, read_name},
    {"description", 0, read_description},
    {"default", 1, read_default},
    {"mode", 0, read_mode},
};
#define KEYS (sizeof keys / sizeof *keys)

static int check_keys(json_t *doc, struct err *e)
{
	const char *name;
	json_t *v;

	json_object_foreach(doc, name, v)
	{
		char where[QUOTED_MAX];
		size_t i;

		for (i = 0; i < KEYS && strcmp(keys[i].name, name); i++)
			;
		if (i < KEYS)
			continue;
		pointer_to(where, sizeof where, name);
		return err_set(e, EINVAL, where, "is not a key of a policy");
	}
	return 0;
}

static int read_keys(json_t *doc, struct policy *p, struct err *e)
{
	size_t i;
	int rc;

	for (i = 0; i < KEYS; i++) {
		const json_t *v = json_object_get(doc, keys[i].name);

		if (!v && keys[i].required)
			return err_set(e, EINVAL, "", "\"%s\" is missing", keys[i].name);
		rc = v ? keys[i].read(v, p, e) : 0;
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Only the place is the parser's: its text quotes the document. */
static int syntax_error(const json_error_t *je, struct err *e)
{
	char where[32];

	snprintf(where, sizeof where, "%d:%d", je->line, je->column);
	switch (json_error_code(je)) {
	case json_error_duplicate_key:
		return err_set(e, EINVAL, where, "a key is there twice");
	case json_error_invalid_utf8:
		return err_set(e, EINVAL, where, "not UTF-8");
	case json_error_null_character:
	case json_error_null_byte_in_key:
		return err_set(e, EINVAL, where, "a NUL character");
	case json_error_premature_end_of_input:
		return err_set(e, EINVAL, where, "the document ends too early");
	case json_error_end_of_input_expected:
		return err_set(e, EINVAL, where, "something follows the document");
	case json_error_stack_overflow:
		return err_set(e, EINVAL, where, "nested too deeply");
	case json_error_out_of_memory:
		return err_set(e, ENOMEM, where, "out of memory");
	default:
		return err_set(e, EINVAL, where, "not valid JSON");
	}
}

int policy_parse(const char *text, size_t len, struct policy *ret, struct err *e)
{
	_cleanup_json_ json_t *doc = NULL;
	struct policy p = {.image.present = 1};
	json_error_t je;
	int rc;

	if (len > LIMIT_POLICY_BYTES)
		return err_set(e, EFBIG, "", "the document has %zu bytes; at most %d are allowed", len, LIMIT_POLICY_BYTES);
	doc = json_loadb(text ? text : "", len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if (!doc)
		return syntax_error(&je, e);
	if (!json_is_object(doc))
		return err_set(e, EINVAL, "", "a policy is a JSON object");
	rc = check_keys(doc, e);
	if (rc == 0)
		rc = read_keys(doc, &p, e);
	if (rc == 0)
		*ret = p;
	return rc;
}
