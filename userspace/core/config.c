/* SPDX-License-Identifier: Apache-2.0 */
#include "core/config.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/jtext.h"
#include "core/limits.h"
#include "core/listen.h"

#define DEPTH 8 /* levels: three are meant */
#define PATH_BYTES 4095
#define DENIES_ALL "snippet" /* the shipped policy */

#define AT(field) offsetof(struct config, field)
const struct config_row config_keys[CONFIG_KEYS] = {
    [CONFIG_LISTEN] = {NULL, "listen", "--listen", CONFIG_ADDRESS, AT(listen), 0, 0, "127.0.0.1:8380", false},
    [CONFIG_PLAINTEXT] = {NULL, "plaintext", "--plaintext", CONFIG_FLAG, AT(plaintext), 0, 0, "false", false},
    [CONFIG_TLS_CERTIFICATE] = {"tls", "certificate", "--tls-cert", CONFIG_PATH, AT(tls_certificate), 0, 0, NULL, true},
    [CONFIG_TLS_KEY] = {"tls", "key", "--tls-key", CONFIG_PATH, AT(tls_key), 0, 0, NULL, true},
    [CONFIG_STATE_DIR] = {NULL, "state_dir", "--state-dir", CONFIG_PATH, AT(state_dir), 0, 0, "/var/lib/weir", false},
    [CONFIG_POLICY] = {NULL, "policy", "--policy", CONFIG_NAME_OR_PATH, AT(policy), 0, 0, "snippet", false},
    [CONFIG_POOL_SIZE] = {"pool", "size", "--pool", CONFIG_COUNT, AT(pool_size), 1, LIMIT_SANDBOXES / 2, "3", false},
    [CONFIG_PYTHON] = {"snippet", "python", "--python", CONFIG_NAME_OR_PATH, AT(python), 0, 0, NULL, false},
    [CONFIG_IMAGE] = {"snippet", "image", "--image", CONFIG_PATH, AT(image), 0, 0, NULL, false},
    [CONFIG_TOOL_EGRESS] = {"tool_calls", "allow_internet_egress", "--no-internet-egress", CONFIG_FLAG, AT(tool_egress), 0, 0,
			    "true", false},
    [CONFIG_TOOL_POLICY] = {"tool_calls", "policy", "--tool-policy", CONFIG_NAME_OR_PATH, AT(tool_policy), 0, 0, "tool-call",
			    false},
    [CONFIG_AUDIT_DAYS] = {"audit", "keep_days", "--audit-keep-days", CONFIG_COUNT, AT(audit_days), 1, 3650, "30", false},
    [CONFIG_AUDIT_MIB] = {"audit", "max_mib", "--audit-max-mib", CONFIG_COUNT, AT(audit_mib), 16, 1 << 20, "1024", false},
    [CONFIG_AUDIT_PROJECT_MIB] = {"audit", "project_mib", "--audit-project-mib", CONFIG_COUNT, AT(audit_project_mib), 1,
				  1 << 20, "256", false},
    [CONFIG_AUDIT_CONTENT] = {"audit", "content", "--audit-content", CONFIG_FLAG, AT(audit_content), 0, 0, "false", false},
    [CONFIG_BPF_RUN_TIME] = {"metrics", "bpf_run_time", "--metrics-bpf-run-time", CONFIG_FLAG, AT(bpf_run_time), 0, 0, "false",
			     false},
};

/* A group may be spelled as the right column has it; then so are the names in it. */
static const struct {
	const char *name, *too;
} spellings[] = {{"tool_calls", "toolCalls"}, {"allow_internet_egress", "allowInternetEgress"}};

_Static_assert(LIMIT_POOL_SIZE == 3 && LIMIT_AUDIT_KEEP_S == 30 * 86400 && LIMIT_AUDIT_BYTES == 1024LL << 20 &&
		   LIMIT_AUDIT_PROJECT_BYTES == 256LL << 20,
	       "the table's own defaults");

const char *const config_source_names[] = {[CONFIG_DEFAULT] = "default", [CONFIG_FILE] = "file", [CONFIG_OPTION] = "option"};

/* ---- values ---- */

static void *field(const struct config *c, enum config_key key)
{
	return (char *)c + config_keys[key].offset;
}

static bool is_text(enum config_key key)
{
	return config_keys[key].kind != CONFIG_FLAG && config_keys[key].kind != CONFIG_COUNT;
}

const char *config_text(const struct config *c, enum config_key key)
{
	return is_text(key) ? *(char **)field(c, key) : NULL;
}

void config_pointer(enum config_key key, char ret[CONFIG_POINTER_MAX])
{
	const struct config_row *row = &config_keys[key];

	snprintf(ret, CONFIG_POINTER_MAX, "%s%s/%s", row->group ? "/" : "", row->group ? row->group : "", row->name);
}

const char *config_tool_policy(const struct config *c)
{
	return c->tool_egress ? c->tool_policy : DENIES_ALL;
}

static int no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "", "out of memory");
}

/* Checks a text by the key's kind, and takes a copy. */
static int set_text(struct config *c, enum config_key key, const char *text, const char *where, struct err *e)
{
	struct listen_address address;
	char **to = field(c, key), *copy;
	int rc;

	if (!*text)
		return err_set(e, EINVAL, where, "it is empty: name something, or leave it out");
	if (strlen(text) > PATH_BYTES)
		return err_set(e, ENAMETOOLONG, where, "it has over %d bytes", PATH_BYTES);
	for (const char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return err_set(e, EINVAL, where, "it holds a control character");
	if (config_keys[key].kind == CONFIG_ADDRESS && (rc = listen_parse(text, &address, e)) < 0) {
		if (e)
			snprintf(e->where, sizeof e->where, "%s", where);
		return rc;
	}
	copy = strdup(text);
	if (!copy)
		return no_memory(e);
	free(*to);
	*to = copy;
	return 0;
}

/* Digits only: 3.0 and 3e0 are numbers that JSON calls equal to an integer, but not what a careful person writes. */
static int set_count(struct config *c, enum config_key key, const char *text, size_t len, const char *where, struct err *e)
{
	const struct config_row *row = &config_keys[key];
	bool ok = len > 0 && len <= 9 && (len == 1 || text[0] != '0');
	long n = 0;

	for (size_t i = 0; ok && i < len; i++) {
		ok = text[i] >= '0' && text[i] <= '9';
		n = n * 10 + (text[i] - '0');
	}
	if (!ok || n < row->min || n > row->max)
		return err_set(e, EINVAL, where, "expected an integer from %ld to %ld, found %.*s", row->min, row->max,
			       (int)(len > 40 ? 40 : len), text);
	*(unsigned *)field(c, key) = (unsigned)n;
	return 0;
}

/* ---- the document ---- */

static const struct {
	enum jtext_kind kind; /* of a flag, either of two */
	const char *expected;
} kinds[] = {
    [CONFIG_ADDRESS] = {JTEXT_STRING, "a string"}, [CONFIG_FLAG] = {JTEXT_TRUE, "true or false"},
    [CONFIG_PATH] = {JTEXT_STRING, "a string"},	   [CONFIG_NAME_OR_PATH] = {JTEXT_STRING, "a string"},
    [CONFIG_COUNT] = {JTEXT_NUMBER, "an integer"},
};

static int wrong_kind(const char *where, const char *expected, const struct jtext *v, struct err *e)
{
	return err_set(e, EINVAL, where, "expected %s, found %s", expected, jtext_kind_names[v->kind]);
}

static int read_value(struct config *c, enum config_key key, const struct jtext *v, const char *where, struct err *e)
{
	enum config_kind kind = config_keys[key].kind;
	_cleanup_free_ char *text = NULL;
	size_t len = 0;

	if (kind == CONFIG_FLAG && (v->kind == JTEXT_TRUE || v->kind == JTEXT_FALSE)) {
		*(bool *)field(c, key) = v->kind == JTEXT_TRUE;
		return 0;
	}
	if (v->kind != kinds[kind].kind)
		return wrong_kind(where, kinds[kind].expected, v, e);
	if (kind == CONFIG_COUNT)
		return set_count(c, key, v->text, v->len, where, e);
	text = jtext_string(v, &len);
	if (!text)
		return no_memory(e);
	if (strlen(text) != len)
		return err_set(e, EINVAL, where, "it holds a NUL character");
	return set_text(c, key, text, where, e);
}

static bool same_group(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

/* Where in the document an object is: which group (NULL: outside of all), in which of its spellings, and its pointer. */
struct place {
	const char *group;
	bool too; /* the second one */
	const char *at;
};

/* NULL: there is no second spelling. */
static const char *second_spelling(const char *name)
{
	for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++)
		if (!strcmp(name, spellings[i].name))
			return spellings[i].too;
	return NULL;
}

static const char *spelled(const char *name, bool too)
{
	const char *second = too ? second_spelling(name) : NULL;

	return second ? second : name;
}

/* The names an object may have, for who has used another. */
static void list_names(const struct place *p, char *ret, size_t size)
{
	const char *last = NULL;
	size_t used = 0;

	ret[0] = 0;
	for (size_t i = 0; i < CONFIG_KEYS && used < size; i++) {
		const struct config_row *row = &config_keys[i];
		const char *name = p->group || !row->group ? spelled(row->name, p->too) : row->group;

		if ((p->group && !same_group(p->group, row->group)) || (last && !strcmp(last, name)))
			continue;
		used += (size_t)snprintf(ret + used, size - used, "%s%s", used ? ", " : "", name);
		last = name;
	}
}

/* What a name in an object is. */
struct meaning {
	size_t key;	    /* of a group: its first; CONFIG_KEYS: nothing */
	bool is_group, too; /* `too`: a group in its second spelling */
};

static struct meaning by_name(const struct place *p, const struct jtext *name)
{
	for (size_t i = 0; i < CONFIG_KEYS; i++) {
		const struct config_row *row = &config_keys[i];

		if (!p->group && row->group) {
			const char *second = second_spelling(row->group);
			bool too = second && jtext_is(name, second);

			if (too || jtext_is(name, row->group))
				return (struct meaning){i, true, too};
		} else if (same_group(p->group, row->group) && jtext_is(name, spelled(row->name, p->too))) {
			return (struct meaning){i, false, false};
		}
	}
	return (struct meaning){CONFIG_KEYS, false, false};
}

/* Which keys and groups an object has had, and which of them in the second spelling. */
struct seen {
	uint32_t keys, too;
};

static int note_seen(struct seen *seen, const struct meaning *m, const char *where, struct err *e)
{
	const struct config_row *row = &config_keys[m->key];
	uint32_t bit = 1u << m->key;

	if (seen->keys & bit && m->too != !!(seen->too & bit))
		return err_set(e, EINVAL, where,
			       "this is \"/%s\" in another spelling, and that is there too: keep one of the two",
			       spelled(row->group, !m->too));
	if (seen->keys & bit)
		return err_set(e, EINVAL, where, "this key is there twice: keep one");
	seen->keys |= bit;
	seen->too |= m->too ? bit : 0;
	return 0;
}

static int unknown(const struct place *p, const struct jtext *name, struct err *e)
{
	char where[64], names[160];

	snprintf(where, sizeof where, "%s", p->at);
	jtext_point(where, sizeof where, name->text + 1, name->len - 2);
	list_names(p, names, sizeof names);
	return err_set(e, EINVAL, where, "there is no such key; those here are %s", names);
}

static int read_object(struct config *c, const struct jtext *object, const struct place *p, struct err *e)
{
	struct jtext name = {.kind = JTEXT_STRING}, value;
	struct seen seen = {0, 0};
	const char *next = NULL;

	if (object->kind != JTEXT_OBJECT)
		return wrong_kind(p->at, "an object", object, e);
	while (jtext_next(object, &next, &name, &value)) {
		struct meaning m = by_name(p, &name);
		const struct config_row *row = &config_keys[m.key];
		char where[64];
		int rc;

		if (m.key == CONFIG_KEYS)
			return unknown(p, &name, e);
		snprintf(where, sizeof where, "%s/%s", p->at,
			 m.is_group ? spelled(row->group, m.too) : spelled(row->name, p->too));
		rc = note_seen(&seen, &m, where, e);
		if (rc == 0 && m.is_group)
			rc = read_object(c, &value, &(struct place){row->group, m.too, where}, e);
		else if (rc == 0 && (rc = read_value(c, (enum config_key)m.key, &value, where, e)) == 0)
			c->from[m.key] = CONFIG_FILE;
		if (rc < 0)
			return rc;
	}
	for (size_t i = 0; p->group && i < CONFIG_KEYS; i++)
		if (config_keys[i].required && same_group(p->group, config_keys[i].group) && !(seen.keys & 1u << i))
			return err_set(e, EINVAL, p->at, "\"%s\" is missing", config_keys[i].name);
	return 0;
}

static int parse(const char *text, size_t len, struct config *c, struct err *e)
{
	struct jtext root;
	int rc;

	if (len > LIMIT_CONFIG_BYTES)
		return err_set(e, EFBIG, "", "it has over %d bytes", LIMIT_CONFIG_BYTES);
	if (len == 0)
		return err_set(e, EINVAL, "", "it is empty: {} says nothing and is enough");
	rc = jtext_check(text, len, DEPTH, e);
	if (rc < 0)
		return rc;
	root = jtext_root(text, len);
	return read_object(c, &root, &(struct place){NULL, false, ""}, e);
}

int config_parse(const char *text, size_t len, struct config *c, struct err *e)
{
	int rc = parse(text, len, c, e);

	/* A name may hold DEL as it is; the place is for terminals. */
	for (char *p = rc < 0 ? e->where : NULL; p && *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	return rc;
}

/* ---- options, defaults ---- */

static int set_from_text(struct config *c, enum config_key key, const char *text, const char *where, struct err *e)
{
	switch (config_keys[key].kind) {
	case CONFIG_FLAG:
		*(bool *)field(c, key) = strcmp(text, "false") != 0;
		return 0;
	case CONFIG_COUNT:
		return set_count(c, key, text, strlen(text), where, e);
	default:
		return set_text(c, key, text, where, e);
	}
}

int config_option(struct config *c, enum config_key key, const char *text, struct err *e)
{
	const struct config_row *row = &config_keys[key];
	bool flag = row->kind == CONFIG_FLAG, by_default = flag && !strcmp(row->fallback, "true");
	int rc = set_from_text(c, key, flag ? by_default ? "false" : "true" : text, row->option, e);

	if (rc == 0)
		c->from[key] = CONFIG_OPTION;
	return rc;
}

static int take_over(struct config *c, const struct config *from, enum config_key key, struct err *e)
{
	if (is_text(key))
		return set_text(c, key, config_text(from, key), config_keys[key].option, e);
	if (config_keys[key].kind == CONFIG_FLAG)
		*(bool *)field(c, key) = *(bool *)field(from, key);
	else
		*(unsigned *)field(c, key) = *(unsigned *)field(from, key);
	return 0;
}

/* An interpreter belongs to the image that it is in: another image does not have it there. */
static void drop_python(struct config *c, const struct config *over)
{
	if (over->from[CONFIG_IMAGE] == CONFIG_DEFAULT)
		return;
	free(c->python);
	c->python = NULL;
	c->from[CONFIG_PYTHON] = CONFIG_DEFAULT;
}

int config_merge(struct config *c, const struct config *over, struct err *e)
{
	drop_python(c, over);
	for (enum config_key key = 0; key < CONFIG_KEYS; key++) {
		int rc = 0;

		if (over->from[key] != CONFIG_DEFAULT) {
			rc = take_over(c, over, key, e);
			c->from[key] = over->from[key];
		} else if (c->from[key] == CONFIG_DEFAULT && config_keys[key].fallback) {
			rc = set_from_text(c, key, config_keys[key].fallback, "", e);
		}
		if (rc < 0)
			return rc;
	}
	return 0;
}

int config_check(const struct config *c, struct err *e)
{
	/* Not when neither was asked for: the default of one project fits what is allowed in all, whatever that is. */
	if (c->audit_project_mib > c->audit_mib && c->from[CONFIG_AUDIT_PROJECT_MIB] != CONFIG_DEFAULT)
		return err_set(e, EINVAL, "--audit-project-mib",
			       "one project may not have more of the record (%u MiB) than there is in all (%u MiB)",
			       c->audit_project_mib, c->audit_mib);
	if (!c->tls_certificate != !c->tls_key)
		return err_set(e, EINVAL, c->tls_key ? "--tls-key" : "--tls-cert",
			       "a certificate and its key come together: say %s too", c->tls_key ? "--tls-cert" : "--tls-key");
	if (c->tls_key && c->plaintext)
		return err_set(e, EINVAL, "--plaintext",
			       "there is a TLS certificate, so nothing is sent in plain text: take out one of the two");
	return 0;
}

void config_clear(struct config *c)
{
	for (enum config_key key = 0; key < CONFIG_KEYS; key++)
		if (is_text(key))
			free(*(char **)field(c, key));
	free(c->file);
	memset(c, 0, sizeof *c);
}
