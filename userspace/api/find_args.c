/* SPDX-License-Identifier: Apache-2.0 */
#include "api/find_args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auditor/record.h"
#include "core/cleanup.h"
#include "core/limits.h"
#include "core/rfc3339.h"
#include "core/where.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define VALUE_MAX 1024 /* bytes of a value, encoded */
#define SHOWN_MAX 60   /* of a value that is told back */

static const char *const verdicts[WEIR_VERDICT_COUNT] = {
    [WEIR_DENY] = "denied", [WEIR_ALLOW] = "allowed", [WEIR_WOULD_DENY] = "would_deny"};

enum parameter {
	PARAM_SINCE,
	PARAM_UNTIL,
	PARAM_PROJECT,
	PARAM_POLICY,
	PARAM_CALLER,
	PARAM_AGENT,
	PARAM_DESTINATION,
	PARAM_VERDICT,
	PARAM_END,
	PARAM_LIMIT,
	PARAM_CURSOR,
	PARAM_TYPE,
	PARAM_AFTER,
	PARAMS
};
#define BOTH (FIND_SEARCH | FIND_STREAM)
static const struct find_parameter table[PARAMS] = {
    [PARAM_SINCE] = {.name = "since",
		     .routes = FIND_SEARCH,
		     .type = "string",
		     .format = "date-time",
		     .description = "runs that began then or later: RFC 3339, or a date alone for its midnight in UTC"},
    [PARAM_UNTIL] = {.name = "until",
		     .routes = FIND_SEARCH,
		     .type = "string",
		     .format = "date-time",
		     .description = "runs that began before that"},
    [PARAM_PROJECT] = {.name = "project", .routes = BOTH, .type = "string", .description = "of that project"},
    [PARAM_POLICY] = {.name = "policy", .routes = FIND_SEARCH, .type = "string", .description = "under a policy of that name"},
    [PARAM_CALLER] = {.name = "caller",
		      .routes = FIND_SEARCH,
		      .type = "string",
		      .description = "that this one asked for, whole: `token:` and the token's id, for example"},
    [PARAM_AGENT] = {.name = "agent",
		     .routes = FIND_SEARCH,
		     .type = "string",
		     .description = "that are calls of that agent's tools"},
    [PARAM_DESTINATION] = {.name = "destination",
			   .routes = BOTH,
			   .type = "string",
			   .description =
			       "with an attempt to reach that address or DNS name; a `*` at its end or its beginning "
			       "stands for the rest"},
    [PARAM_VERDICT] = {.name = "verdict",
		       .routes = BOTH,
		       .type = "string",
		       .values = verdicts,
		       .value_count = COUNT(verdicts),
		       .description = "with an attempt that had one of these verdicts"},
    [PARAM_END] = {.name = "end",
		   .routes = FIND_SEARCH,
		   .type = "string",
		   .values = run_end_names,
		   .value_count = RUN_END_COUNT,
		   .description = "that ended in one of these ways"},
    [PARAM_LIMIT] = {.name = "limit",
		     .routes = FIND_SEARCH,
		     .type = "integer",
		     .min = 1,
		     .max = LIMIT_AUDIT_SEARCH,
		     .description = "how many at most"},
    [PARAM_CURSOR] = {.name = "cursor",
		      .routes = FIND_SEARCH,
		      .type = "string",
		      .description = "`next` of the answer before: those that follow it"},
    [PARAM_TYPE] = {.name = "type",
		    .routes = FIND_STREAM,
		    .type = "string",
		    .values = record_type_names,
		    .value_count = RECORD_TYPE_COUNT,
		    .description = "records of these types"},
    [PARAM_AFTER] = {.name = "after",
		     .routes = FIND_STREAM,
		     .type = "string",
		     .description =
			 "records after the one of that number, its `id`; 0: from the oldest on. Without it, and without "
			 "a Last-Event-ID, from now on"},
};

const struct find_parameter *find_parameters(size_t *ret_count)
{
	*ret_count = PARAMS;
	return table;
}

/* ---- values ---- */

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Into `ret`, of at least strlen(text) + 1 bytes. False: a % without two digits, or a control character. */
static bool decode(const char *text, char *ret)
{
	for (; *text; text++) {
		int c = (unsigned char)*text;

		if (c == '%') {
			int high = hex(text[1]), low = high < 0 ? -1 : hex(text[2]);

			if (low < 0)
				return false;
			c = high << 4 | low;
			text += 2;
		}
		if (c < 0x20 || c == 0x7f)
			return false;
		*ret++ = (char)c;
	}
	*ret = 0;
	return true;
}

static int expected(const char *where, const char *what, const char *found, struct api_error *e)
{
	bool cut = strlen(found) > SHOWN_MAX;

	error_set(e, ERROR_PARAMETER, "at \"%s\": expected %s, found \"%.*s%s\"", where, what, SHOWN_MAX, found,
		  cut ? "..." : "");
	return -EINVAL;
}

int find_args_number(const char *text, const char *where, uint64_t *ret, struct api_error *e)
{
	size_t n = strspn(text, "0123456789");

	/* The largest of all means something else (FOLLOW), and no record has that number. */
	if (n == 0 || n > 18 || text[n])
		return expected(where, "a number of up to 18 digits", text, e);
	*ret = strtoull(text, NULL, 10);
	return 0;
}

static int take_moment(const char *where, const char *value, uint64_t *ret, struct api_error *e)
{
	_cleanup_free_ char *text = strdup(value);
	char *at;

	/* What was a plus has become a blank on the way, unless its client wrote %2B. Behind a time a blank can be nothing
	 * else. */
	at = text ? strchr(text, ':') : NULL;
	at = at ? strchr(at, ' ') : NULL;
	if (at)
		*at = '+';
	if (!text || rfc3339_parse(text, ret) < 0)
		return expected(where, "a time like 2026-11-30T09:05:00Z, or a date", value, e);
	return 0;
}

static int take_text(const char *where, const char *value, char *ret, size_t size, struct api_error *e)
{
	if (strlen(value) >= size) {
		error_set(e, ERROR_PARAMETER, "at \"%s\": it has %zu bytes, over the limit of %zu bytes", where, strlen(value),
			  size - 1);
		return -EINVAL;
	}
	memcpy(ret, value, strlen(value) + 1);
	return 0;
}

/* Names are compared without regard to case, and are kept in lower case. */
static int take_destination(const char *where, const char *value, struct find *f, struct api_error *e)
{
	int r = take_text(where, value, f->destination, sizeof f->destination, e);

	if (r < 0)
		return r;
	if (where_problem(value))
		return expected(where, WHERE_TAKES, value, e);
	for (char *c = f->destination; *c; c++)
		if (*c >= 'A' && *c <= 'Z')
			*c |= 0x20;
	return 0;
}

/* Which of the values a word of `len` bytes is; their number when it is none. */
static size_t which(const struct find_parameter *p, const char *word, size_t len)
{
	size_t i = 0;

	while (i < p->value_count && !(p->values[i] && strlen(p->values[i]) == len && !memcmp(p->values[i], word, len)))
		i++;
	return i;
}

static int take_words(const struct find_parameter *p, const char *where, const char *value, unsigned *ret, struct api_error *e)
{
	char names[256] = "one or more, with commas between, of ";
	size_t used = strlen(names);
	unsigned bits = 0;

	for (size_t i = 0; i < p->value_count && used < sizeof names; i++)
		if (p->values[i])
			used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", p->values[i]);
	for (const char *at = value;; at++) {
		size_t len = strcspn(at, ","), i = which(p, at, len);

		if (i == p->value_count)
			return expected(where, names, value, e);
		bits |= 1u << i;
		at += len;
		if (!*at)
			break;
	}
	*ret = bits;
	return 0;
}

static int take_limit(const struct find_parameter *p, const char *where, const char *value, uint32_t *ret, struct api_error *e)
{
	char what[64];
	uint64_t n = 0;

	snprintf(what, sizeof what, "an integer from %ld to %ld", p->min, p->max);
	if (find_args_number(value, where, &n, e) < 0 || n < (uint64_t)p->min || n > (uint64_t)p->max)
		return expected(where, what, value, e);
	*ret = (uint32_t)n;
	return 0;
}

static int take_value(struct find_args *a, enum parameter which_one, const char *where, const char *value, struct api_error *e)
{
	const struct find_parameter *p = &table[which_one];
	struct find *f = &a->find;

	switch (which_one) {
	case PARAM_SINCE:
		return take_moment(where, value, &f->since_ns, e);
	case PARAM_UNTIL:
		return take_moment(where, value, &f->until_ns, e);
	case PARAM_PROJECT:
		return take_text(where, value, f->project, sizeof f->project, e);
	case PARAM_POLICY:
		return take_text(where, value, f->policy, sizeof f->policy, e);
	case PARAM_CALLER:
		return take_text(where, value, f->caller, sizeof f->caller, e);
	case PARAM_AGENT:
		return take_text(where, value, f->agent, sizeof f->agent, e);
	case PARAM_DESTINATION:
		return take_destination(where, value, f, e);
	case PARAM_VERDICT:
		return take_words(p, where, value, &f->verdicts, e);
	case PARAM_END:
		return take_words(p, where, value, &f->ends, e);
	case PARAM_LIMIT:
		return take_limit(p, where, value, &f->limit, e);
	case PARAM_TYPE:
		return take_words(p, where, value, &a->types, e);
	case PARAM_CURSOR:
	case PARAM_AFTER:
		a->has_after = true;
		return find_args_number(value, where, &f->after, e);
	case PARAMS:
		break;
	}
	return -EINVAL;
}

static int unknown(enum find_route route, const char *name, struct api_error *e)
{
	char names[160] = "";
	size_t used = 0;

	for (size_t i = 0; i < PARAMS; i++)
		if (table[i].routes & route)
			used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", table[i].name);
	error_set(e, ERROR_PARAMETER, "at \"?%.40s\": there is no such parameter here; %s%s", name,
		  used ? "those are " : "this route takes none", names);
	return -EINVAL;
}

int find_args_take(struct find_args *a, enum find_route route, const char *name, const char *value, struct api_error *e)
{
	char where[32], text[VALUE_MAX + 1];
	size_t i = 0;

	while (i < PARAMS && !((table[i].routes & route) && !strcmp(table[i].name, name)))
		i++;
	if (i == PARAMS)
		return unknown(route, name, e);
	snprintf(where, sizeof where, "?%s", name);
	if (a->seen & 1u << i) {
		error_set(e, ERROR_PARAMETER, "at \"%s\": it is there twice: keep one", where);
		return -EINVAL;
	}
	a->seen |= 1u << i;
	if (!value || !*value)
		return expected(where, "a value", "", e);
	if (strlen(value) > VALUE_MAX || !decode(value, text) || !*text)
		return expected(where, "text without control characters, percent-encoded where need be", value, e);
	return take_value(a, (enum parameter)i, where, text, e);
}
