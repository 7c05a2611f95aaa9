/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attachment.json: what each member is called, and where in the struct it lives. One table is written from and read by, so that
 * a file holds every member once, and nothing else.
 */
#include "attach/attachment.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/utf8.h"

#define WHERE "attachment"

enum kind {
	TEXT,	   /* char[size] */
	U64,	   /* uint64_t */
	COUNT,	   /* size_t */
	UINT,	   /* unsigned, uint32_t, int: of `size` bytes */
	FLAG,	   /* bool */
	BYTES,	   /* uint8_t[size], as hexadecimal digits */
	NAME,	   /* an enum (four bytes), as one of `names` */
	OBJECT,	   /* `members`, of the same struct */
	RESOLVERS, /* the lists, each with its own count */
	FOUND,
	FOREIGN,
	SOCKETS,
};

struct member {
	const char *name;
	enum kind kind;
	size_t offset, size;
	const struct member *members;
	const char *const *names;
	size_t name_count;
};

#define AT(type, field) offsetof(type, field), sizeof(((type *)0)->field), NULL, NULL, 0
#define OF(field) AT(struct attachment, field)
#define ALSO(table) 0, 0, table, NULL, 0
#define ONE_OF(field, list, n) offsetof(struct attachment, field), sizeof(((struct attachment *)0)->field), NULL, list, n

static const struct member target_members[] = {
    {"kind", NAME, ONE_OF(target.kind, target_kind_names, TARGET_KINDS)},
    {"ref", TEXT, OF(target.ref)},
    {"cgroup", TEXT, OF(target.path)},
    {"cgroup_id", U64, OF(target.id)},
    {"level", UINT, OF(target.level)},
    {0},
};

static const struct member policy_members[] = {
    {"source", TEXT, OF(policy)},
    {"name", TEXT, OF(policy_name)},
    {"sha256", BYTES, OF(policy_hash)},
    {"generation", UINT, OF(generation)},
    {0},
};

static const struct member canary_members[] = {
    {"proven", FLAG, OF(canary.proven)},
    {"attempts", UINT, OF(canary.attempts)},
    {"denied", UINT, OF(canary.denied)},
    {"would_deny", UINT, OF(canary.would_deny)},
    {"leaf", TEXT, OF(canary.leaf)},
    {"why", TEXT, OF(canary.why)},
    {0},
};

static const struct member members[] = {
    {"id", TEXT, OF(id)},
    {"target", OBJECT, ALSO(target_members)},
    {"parent", FLAG, OF(parent)},
    {"unknown_passes", FLAG, OF(unknown_passes)},
    {"policy", OBJECT, ALSO(policy_members)},
    {"resolvers", RESOLVERS, OF(resolvers)},
    {"force", FLAG, OF(force)},
    {"coverage", NAME, ONE_OF(coverage, coverage_names, 3)},
    {"found", FOUND, OF(found)},
    {"canary", OBJECT, ALSO(canary_members)},
    {"attached_ns", U64, OF(attached_ns)},
    {"gone_ns", U64, OF(gone_ns)},
    {"record", UINT, OF(record)},
    {"foreign", FOREIGN, OF(foreign)},
    {"sockets_beyond", COUNT, OF(sockets_beyond)},
    {"sockets", SOCKETS, ALSO(NULL)},
    {0},
};

#define SOCK(field) AT(struct open_socket, field)
static const struct member socket_members[] = {
    {"pid", UINT, SOCK(pid)},
    {"comm", TEXT, SOCK(comm)},
    {"family", UINT, SOCK(family)},
    {"protocol", UINT, SOCK(protocol)},
    {"state", UINT, SOCK(state)},
    {"local", BYTES, SOCK(local)},
    {"local_port", UINT, SOCK(local_port)},
    {"remote", BYTES, SOCK(remote)},
    {"remote_port", UINT, SOCK(remote_port)},
    {"elsewhere", FLAG, SOCK(elsewhere)},
    {"connected", FLAG, SOCK(connected)},
    {"verdict", UINT, SOCK(verdict)},
    {0},
};

/* ---- to text ---- */

/*
 * What is not UTF-8 can't stand in JSON: names that strangers chose are told with a sign in its place, which is longer; and
 * what comes back must fit where it came from.
 */
static json_t *text_json(const char *text, size_t max)
{
	size_t len = 0;
	_cleanup_free_ char *clean = utf8_replace(text, strnlen(text, max), &len);

	return clean ? json_stringn(clean, utf8_cut(clean, len, max - 1)) : NULL;
}

static json_t *hex_json(const uint8_t *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	char text[2 * 64];

	for (size_t i = 0; i < n && i < sizeof text / 2; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	return json_stringn(text, 2 * n);
}

static uint64_t load_uint(const void *at, size_t size)
{
	uint8_t one;
	uint16_t two;
	uint32_t four;

	switch (size) {
	case 1:
		memcpy(&one, at, 1);
		return one;
	case 2:
		memcpy(&two, at, 2);
		return two;
	default:
		memcpy(&four, at, 4);
		return four;
	}
}

static json_t *struct_json(const struct member *m, const void *base);

static json_t *resolvers_json(const struct attachment *a)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < a->resolver_count; i++)
		json_array_append_new(list, text_json(a->resolvers[i], sizeof a->resolvers[i]));
	return list;
}

static json_t *found_json(const struct coverage_found *f)
{
	json_t *list = json_array();

	for (unsigned w = 0; list && w < WEAKNESSES; w++)
		if (f->weak & 1u << w)
			json_array_append_new(list, json_pack("{ss*so}", "name", weakness_rows[w].name, "detail",
							      text_json(f->detail[w], sizeof f->detail[w])));
	return list;
}

static json_t *foreign_json(const struct attachment *a)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < a->foreign_count; i++)
		json_array_append_new(list, json_integer(a->foreign[i]));
	return list;
}

static json_t *sockets_json(const struct attachment *a)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < a->socket_count; i++)
		json_array_append_new(list, struct_json(socket_members, &a->sockets[i]));
	return list;
}

static json_t *member_json(const struct member *m, const void *base)
{
	const void *at = (const char *)base + m->offset;
	size_t count;
	uint64_t u64;

	switch (m->kind) {
	case TEXT:
		return text_json(at, m->size);
	case U64:
		memcpy(&u64, at, sizeof u64);
		return json_integer((json_int_t)u64);
	case COUNT:
		memcpy(&count, at, sizeof count);
		return json_integer((json_int_t)count);
	case UINT:
		return json_integer((json_int_t)load_uint(at, m->size));
	case FLAG:
		return json_boolean(*(const bool *)at);
	case BYTES:
		return hex_json(at, m->size);
	case NAME:
		return json_string(m->names[load_uint(at, 4)]);
	case OBJECT:
		return struct_json(m->members, base);
	case RESOLVERS:
		return resolvers_json(base);
	case FOUND:
		return found_json(at);
	case FOREIGN:
		return foreign_json(base);
	case SOCKETS:
		return sockets_json(base);
	}
	return NULL;
}

static json_t *struct_json(const struct member *m, const void *base)
{
	json_t *o = json_object();

	for (; o && m->name; m++)
		if (json_object_set_new(o, m->name, member_json(m, base)) < 0) {
			json_decref(o);
			return NULL;
		}
	return o;
}

char *attachment_text(const struct attachment *a)
{
	json_t *o = struct_json(members, a);
	char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;

	json_decref(o);
	return text;
}

/* ---- and back ---- */

/* Where in the document, and what was expected there. */
struct place {
	char at[96];
	struct err *e;
};

static int expected(const struct place *p, const char *name, const char *what)
{
	return err_set(p->e, EINVAL, WHERE, "%s/%s: expected %s", p->at, name, what);
}

static int take_struct(const struct member *m, const json_t *o, void *base, const struct place *p);

static int take_text(const struct member *m, const json_t *v, char *to, const struct place *p)
{
	if (!json_is_string(v) || json_string_length(v) >= m->size)
		return err_set(p->e, EINVAL, WHERE, "%s/%s: expected a string of at most %zu bytes", p->at, m->name,
			       m->size - 1);
	memset(to, 0, m->size);
	memcpy(to, json_string_value(v), json_string_length(v));
	return 0;
}

static int take_number(const struct member *m, const json_t *v, uint64_t max, uint64_t *ret, const struct place *p)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max)
		return err_set(p->e, EINVAL, WHERE, "%s/%s: expected a whole number from 0 to %llu", p->at, m->name,
			       (unsigned long long)max);
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

static int take_uint(const struct member *m, const json_t *v, void *to, const struct place *p)
{
	static const uint64_t max[] = {[1] = UINT8_MAX, [2] = UINT16_MAX, [4] = UINT32_MAX};
	uint64_t n = 0;
	int rc = take_number(m, v, max[m->size], &n, p);
	const uint8_t one = (uint8_t)n;
	const uint16_t two = (uint16_t)n;
	const uint32_t four = (uint32_t)n;

	if (rc == 0)
		memcpy(to, m->size == 1 ? (const void *)&one : m->size == 2 ? (const void *)&two : &four, m->size);
	return rc;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int take_bytes(const struct member *m, const json_t *v, uint8_t *to, const struct place *p)
{
	const char *text = json_string_value(v);
	bool good = text && json_string_length(v) == 2 * m->size;

	for (size_t i = 0; good && i < m->size; i++) {
		int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

		good = high >= 0 && low >= 0;
		to[i] = good ? (uint8_t)(high << 4 | low) : 0;
	}
	return good ? 0 : err_set(p->e, EINVAL, WHERE, "%s/%s: expected %zu hexadecimal digits", p->at, m->name, 2 * m->size);
}

static int take_name(const struct member *m, const json_t *v, void *to, const struct place *p)
{
	const char *text = json_string_value(v);

	for (uint32_t i = 0; text && i < m->name_count; i++)
		if (m->names[i] && !strcmp(text, m->names[i])) {
			memcpy(to, &i, sizeof i);
			return 0;
		}
	return expected(p, m->name, "one of the known words");
}

static int take_resolvers(const struct member *m, const json_t *v, struct attachment *a, const struct place *p)
{
	const struct member each = {m->name, TEXT, 0, sizeof a->resolvers[0], NULL, NULL, 0};
	int rc = 0;

	if (!json_is_array(v) || json_array_size(v) > ATTACHED_RESOLVERS)
		return expected(p, m->name, "a list of at most three addresses");
	for (size_t i = 0; rc == 0 && i < json_array_size(v); i++)
		rc = take_text(&each, json_array_get(v, i), a->resolvers[i], p);
	a->resolver_count = json_array_size(v);
	return rc;
}

static int weakness_by_name(const char *name)
{
	for (int w = 0; w < WEAKNESSES; w++)
		if (weakness_rows[w].name && !strcmp(name, weakness_rows[w].name))
			return w;
	return -1;
}

static int take_found(const struct member *m, const json_t *v, struct coverage_found *f, const struct place *p)
{
	const json_t *each;
	size_t i;

	if (!json_is_array(v))
		return expected(p, m->name, "a list");
	json_array_foreach(v, i, each)
	{
		const json_t *name = json_object_get(each, "name"), *detail = json_object_get(each, "detail");
		int w = json_is_string(name) ? weakness_by_name(json_string_value(name)) : -1;

		if (w < 0 || !json_is_string(detail) || json_object_size(each) != 2 ||
		    json_string_length(detail) >= sizeof f->detail[0])
			return expected(p, m->name, "objects with the name of a weakness, and its detail");
		f->weak |= 1u << w;
		snprintf(f->detail[w], sizeof f->detail[w], "%s", json_string_value(detail));
	}
	return 0;
}

static int take_foreign(const struct member *m, const json_t *v, struct attachment *a, const struct place *p)
{
	if (!json_is_array(v) || json_array_size(v) > FOREIGN_MAX)
		return expected(p, m->name, "a short list of numbers");
	for (size_t i = 0; i < json_array_size(v); i++) {
		uint64_t id = 0;
		int rc = take_number(m, json_array_get(v, i), UINT32_MAX, &id, p);

		if (rc < 0)
			return rc;
		a->foreign[i] = (unsigned)id;
	}
	a->foreign_count = json_array_size(v);
	return 0;
}

/* Those members index tables of names. */
static int check_socket(const struct open_socket *k, const struct place *p)
{
	if (k->family != 0 && k->family != 4 && k->family != 6)
		return expected(p, "family", "0, 4 or 6");
	return k->verdict < WEIR_VERDICT_COUNT ? 0 : expected(p, "verdict", "a whole number from 0 to 2");
}

static int take_sockets(const struct member *m, const json_t *v, struct attachment *a, const struct place *p)
{
	struct place inner = {.e = p->e};
	int rc = 0;

	if (!json_is_array(v) || json_array_size(v) > INSPECT_SOCKETS_MAX)
		return expected(p, m->name, "a list of sockets");
	if (!json_array_size(v))
		return 0;
	a->sockets = calloc(json_array_size(v), sizeof *a->sockets);
	if (!a->sockets)
		return err_set(p->e, ENOMEM, WHERE, "out of memory");
	for (size_t i = 0; rc == 0 && i < json_array_size(v); i++) {
		snprintf(inner.at, sizeof inner.at, "/sockets/%zu", i);
		rc = take_struct(socket_members, json_array_get(v, i), &a->sockets[i], &inner);
		if (rc == 0)
			rc = check_socket(&a->sockets[i], &inner);
	}
	a->socket_count = json_array_size(v);
	return rc;
}

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "both are read as one");

static int take_member(const struct member *m, const json_t *v, void *base, const struct place *p)
{
	void *at = (char *)base + m->offset;
	struct place inner = {.e = p->e};
	uint64_t n = 0;
	int rc;

	switch (m->kind) {
	case TEXT:
		return take_text(m, v, at, p);
	case U64:
	case COUNT:
		rc = take_number(m, v, INT64_MAX, &n, p);
		memcpy(at, &n, sizeof n);
		return rc;
	case UINT:
		return take_uint(m, v, at, p);
	case FLAG:
		if (!json_is_boolean(v))
			return expected(p, m->name, "true or false");
		*(bool *)at = json_is_true(v);
		return 0;
	case BYTES:
		return take_bytes(m, v, at, p);
	case NAME:
		return take_name(m, v, at, p);
	case OBJECT:
		snprintf(inner.at, sizeof inner.at, "%.60s/%.30s", p->at, m->name);
		return take_struct(m->members, v, base, &inner);
	case RESOLVERS:
		return take_resolvers(m, v, base, p);
	case FOUND:
		return take_found(m, v, at, p);
	case FOREIGN:
		return take_foreign(m, v, base, p);
	case SOCKETS:
		return take_sockets(m, v, base, p);
	}
	return -EINVAL;
}

static const struct member *find_member(const struct member *m, const char *name)
{
	for (; m->name; m++)
		if (!strcmp(m->name, name))
			return m;
	return NULL;
}

static int take_struct(const struct member *m, const json_t *o, void *base, const struct place *p)
{
	const char *key;
	json_t *v;
	int rc = 0;

	if (!json_is_object(o))
		return err_set(p->e, EINVAL, WHERE, "%s: expected an object", p->at[0] ? p->at : "/");
	json_object_foreach((json_t *)o, key, v)
	{
		if (!find_member(m, key))
			return err_set(p->e, EINVAL, WHERE, "%s/%.40s: there is no such member", p->at, key);
	}
	for (; rc == 0 && m->name; m++) {
		v = json_object_get(o, m->name);
		rc = v ? take_member(m, v, base, p) : expected(p, m->name, "to be there");
	}
	return rc;
}

static bool goes_up(const char *path)
{
	for (const char *at = path; (at = strstr(at, "/..")); at += 3)
		if (!at[3] || at[3] == '/')
			return true;
	return false;
}

/* What the members say together. */
static int check_sense(const struct attachment *a, struct err *e)
{
	const char *wrong = NULL;

	if (a->target.path[0] != '/' || !a->target.path[1] || goes_up(a->target.path))
		wrong = "/target/cgroup: expected a path below the root";
	else if (!a->target.id || !a->target.level)
		wrong = "/target: expected the cgroup's id and depth";
	else if (a->parent != (a->target.kind == TARGET_PARENT))
		wrong = "/parent: expected what /target/kind says";
	else if (!a->parent && (!a->policy_name[0] || !a->generation))
		wrong = "/policy: expected its name and generation";
	return wrong ? err_set(e, EINVAL, WHERE, "%s", wrong) : 0;
}

static int take_all(const json_t *o, bool with_sockets, struct attachment *a, struct err *e)
{
	const struct place root = {.e = e};
	int rc = take_struct(members, o, a, &root);

	if (rc == 0)
		rc = check_sense(a, e);
	if (rc < 0)
		return rc;
	a->target.fd = -1;
	workload_of_path(a->target.path, &a->target.workload);
	if (!with_sockets)
		attachment_clear(a);
	return 0;
}

int attachment_parse(const char *text, size_t len, bool with_sockets, struct attachment *ret, struct err *e)
{
	json_error_t why;
	json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	struct attachment *a = calloc(1, sizeof *a);
	int rc;

	if (!a)
		rc = err_set(e, ENOMEM, WHERE, "out of memory");
	else if (!o)
		rc = err_set(e, EINVAL, WHERE, "line %d: %.120s", why.line, why.text);
	else
		rc = take_all(o, with_sockets, a, e);
	json_decref(o);
	if (rc == 0)
		*ret = *a;
	else if (a)
		attachment_clear(a);
	free(a);
	return rc;
}
