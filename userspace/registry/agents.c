/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/agents.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/envname.h"
#include "core/jtext.h"
#include "core/utf8.h"

#define VERSION 1

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define LETTERS LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
#define DIGITS "0123456789"

static int no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "", "out of memory");
}

/* ---- what may stand in an entry ---- */

/* How many bytes at the start of `text` are an identifier. */
static size_t identifier(const char *text)
{
	return strspn(text, LETTERS) ? strspn(text, LETTERS DIGITS) : 0;
}

bool agent_module_ok(const char *module)
{
	const char *p = module;
	size_t n;

	if (strlen(module) >= AGENT_MODULE_MAX)
		return false;
	while ((n = identifier(p)) > 0 && p[n] == '.')
		p += n + 1;
	return n > 0 && !p[n];
}

int agent_entry_add_module(struct agent_entry *a, const char *module, struct err *e)
{
	size_t bytes = strlen(module);
	void *more;

	if (!agent_module_ok(module))
		return err_set(
		    e, EINVAL, "",
		    "\"%.40s\" is no module's name: identifiers (A-Z a-z 0-9 _) with dots between, less than %d bytes", module,
		    AGENT_MODULE_MAX);
	for (size_t i = 0; i < a->module_count; i++)
		if (!strcmp(a->modules[i], module))
			return err_set(e, EINVAL, "", "the module %s is there twice", module);
	if (a->module_count == LIMIT_AGENT_TOOLS)
		return err_set(e, E2BIG, "", "an agent has at most %d modules", LIMIT_AGENT_TOOLS);
	for (size_t i = 0; i < a->module_count; i++)
		bytes += strlen(a->modules[i]) + 1;
	if (bytes > LIMIT_AGENT_TOOLS_BYTES)
		return err_set(e, E2BIG, "", "the names of an agent's modules have at most %d bytes together",
			       LIMIT_AGENT_TOOLS_BYTES);
	more = realloc(a->modules, (a->module_count + 1) * sizeof *a->modules);
	if (!more)
		return no_memory(e);
	a->modules = more;
	snprintf(a->modules[a->module_count++], AGENT_MODULE_MAX, "%s", module);
	return 0;
}

static int check_name(const char *name, struct err *e)
{
	size_t len = strlen(name);

	if (envname_check(name, len) == ENVNAME_RESERVED)
		return err_set(e, EINVAL, "", "%.80s is reserved by the platform", name);
	if (!len || identifier(name) != len)
		return err_set(e, EINVAL, "", "\"%.40s\" is no variable's name: A-Z a-z 0-9 _, no digit first", name);
	return 0;
}

/* How many there are; whether one has that name. */
static size_t count_variables(const struct agent_entry *a, const char *name, bool *ret_known)
{
	size_t n = 0, len = strlen(name);

	*ret_known = false;
	for (const char *p = a->variables; p && *p; p += strlen(p) + 1, n++)
		*ret_known = *ret_known || (!strncmp(p, name, len) && p[len] == '=');
	return n;
}

static bool is_utf8(const char *text)
{
	bool valid = true;

	for (size_t i = 0, len = strlen(text); valid && i < len;)
		i += utf8_next(text + i, len - i, &valid);
	return valid;
}

int agent_entry_add_variable(struct agent_entry *a, const char *name, const char *value, struct err *e)
{
	size_t used = a->variables ? a->variables_len - 1 : 0, need = strlen(name) + strlen(value) + 2;
	int rc = check_name(name, e);
	bool known;
	char *more;

	if (rc < 0)
		return rc;
	if (count_variables(a, name, &known) == LIMIT_AGENT_VARIABLES)
		return err_set(e, E2BIG, "", "an agent has at most %d variables", LIMIT_AGENT_VARIABLES);
	if (known)
		return err_set(e, EINVAL, "", "%s is there twice", name);
	if (!is_utf8(value))
		return err_set(e, EINVAL, "", "the value of %s is not UTF-8", name);
	if (used + need > LIMIT_AGENT_VARIABLES_BYTES)
		return err_set(e, E2BIG, "", "an agent's variables have over %d bytes: names, values, and two more for each",
			       LIMIT_AGENT_VARIABLES_BYTES);
	more = realloc(a->variables, used + need + 1);
	if (!more)
		return no_memory(e);
	sprintf(more + used, "%s=%s", name, value);
	more[used + need] = 0;
	a->variables = more;
	a->variables_len = used + need + 1;
	return 0;
}

/* An entry always has the variables' end. */
static int end_variables(struct agent_entry *a, struct err *e)
{
	if (a->variables)
		return 0;
	a->variables = calloc(1, 1);
	a->variables_len = 1;
	return a->variables ? 0 : no_memory(e);
}

void agent_entry_clear(struct agent_entry *a)
{
	free(a->modules);
	free(a->variables);
	memset(a, 0, sizeof *a);
}

/* ---- the table ---- */

static bool is_same(const struct agent_entry *a, const char *project, const char *name)
{
	return !strcmp(a->project, project) && !strcmp(a->name, name);
}

const struct agent_entry *agent_table_find(const struct agent_table *t, const char *project, const char *name)
{
	for (size_t i = 0; i < t->count; i++)
		if (is_same(&t->entries[i], project, name))
			return &t->entries[i];
	return NULL;
}

int agent_table_put(struct agent_table *t, struct agent_entry *entry, struct err *e)
{
	struct agent_entry *place = (struct agent_entry *)agent_table_find(t, entry->project, entry->name), *more;
	int rc = end_variables(entry, e);

	if (rc < 0)
		return rc;
	if (!place && t->count == LIMIT_AGENTS)
		return err_set(e, E2BIG, "", "a service knows at most %d agents", LIMIT_AGENTS);
	if (!place) {
		more = realloc(t->entries, (t->count + 1) * sizeof *more);
		if (!more)
			return no_memory(e);
		t->entries = more;
		place = &more[t->count++];
	} else {
		agent_entry_clear(place);
	}
	*place = *entry;
	memset(entry, 0, sizeof *entry);
	return 0;
}

void agent_table_remove(struct agent_table *t, size_t index)
{
	agent_entry_clear(&t->entries[index]);
	t->count--;
	memmove(&t->entries[index], &t->entries[index + 1], (t->count - index) * sizeof t->entries[0]);
}

void agent_table_clear(struct agent_table *t)
{
	for (size_t i = 0; i < t->count; i++)
		agent_entry_clear(&t->entries[i]);
	free(t->entries);
	memset(t, 0, sizeof *t);
}

/* ---- reading ---- */

/* A JSON pointer. */
struct place {
	char text[64];
};

static struct place under(const struct place *p, const char *name)
{
	struct place below = *p;

	jtext_point(below.text, sizeof below.text, name, strlen(name));
	return below;
}

static struct place element(const struct place *p, size_t index)
{
	char number[24];

	snprintf(number, sizeof number, "%zu", index);
	return under(p, number);
}

static int wrong(struct err *e, const struct place *p, const char *expected)
{
	return err_set(e, EINVAL, p->text, "expected %s", expected);
}

/* Whether an object has these members and no other. */
static int check_members(const json_t *object, const char *const *names, size_t count, const struct place *p, struct err *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return wrong(e, p, "an object");
	json_object_foreach((json_t *)object, key, value)
	{
		bool known = false;

		for (size_t i = 0; i < count; i++)
			known = known || !strcmp(key, names[i]);
		if (!known)
			return err_set(e, EINVAL, under(p, key).text, "there is no such key");
	}
	for (size_t i = 0; i < count; i++)
		if (!json_object_get(object, names[i]))
			return err_set(e, EINVAL, p->text, "\"%s\" is missing", names[i]);
	return 0;
}

/* Printable text is enough: it is for people. */
static bool image_ok(const char *text)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return false;
	return len > 0 && len < IMAGE_NAME_MAX;
}

static bool digest_ok(const char *text)
{
	return strlen(text) == IMAGE_HEX && strspn(text, "0123456789abcdef") == IMAGE_HEX;
}

static const struct text_member {
	const char *name;
	size_t offset, size;
	bool (*ok)(const char *text);
	const char *expected;
} texts[] = {
#define TEXT(field, ok, expected)                                                                                              \
	{                                                                                                                      \
#field, offsetof(struct agent_entry, field), sizeof(((struct agent_entry *)0)->field), ok, expected            \
	}
    TEXT(name, token_project_ok, "an agent's name: a-z, 0-9 and -, not - first, at most 63 characters"),
    TEXT(project, token_project_ok, "a project's name: a-z, 0-9 and -, not - first, at most 63 characters"),
    TEXT(digest, digest_ok, "64 digits of lower-case hex"),
    TEXT(image, image_ok, "the name of an image, less than 128 bytes without control characters"),
#undef TEXT
};

static int read_texts(const json_t *j, struct agent_entry *a, const struct place *p, struct err *e)
{
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		const char *text = json_string_value(json_object_get(j, texts[i].name));
		struct place here = under(p, texts[i].name);

		if (!text || !texts[i].ok(text))
			return wrong(e, &here, texts[i].expected);
		snprintf((char *)a + texts[i].offset, texts[i].size, "%s", text);
	}
	return 0;
}

/* An error of agent_entry_add_*() gets its place. */
static int at(struct err *e, const struct place *p, int rc)
{
	if (rc < 0 && e)
		snprintf(e->where, sizeof e->where, "%s", p->text);
	return rc;
}

static int read_modules(const json_t *list, struct agent_entry *a, const struct place *p, struct err *e)
{
	size_t i;
	json_t *value;

	if (!json_is_array(list) || json_array_size(list) == 0)
		return wrong(e, p, "an array with a module or more");
	json_array_foreach(list, i, value)
	{
		struct place here = element(p, i);
		int rc;

		if (!json_is_string(value))
			return wrong(e, &here, "a string");
		rc = at(e, &here, agent_entry_add_module(a, json_string_value(value), e));
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_variables(const json_t *object, struct agent_entry *a, const struct place *p, struct err *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return wrong(e, p, "an object");
	json_object_foreach((json_t *)object, key, value)
	{
		struct place here = under(p, key);
		int rc;

		if (!json_is_string(value))
			return wrong(e, &here, "a string");
		rc = at(e, &here, agent_entry_add_variable(a, key, json_string_value(value), e));
		if (rc < 0)
			return rc;
	}
	return end_variables(a, e);
}

static int read_added(const json_t *j, struct agent_entry *a, const struct place *p, struct err *e)
{
	if (!json_is_integer(j) || json_integer_value(j) < 0)
		return wrong(e, p, "seconds since 1970");
	a->added_s = json_integer_value(j);
	return 0;
}

static int read_entry(const json_t *j, struct agent_entry *a, const struct place *p, struct err *e)
{
	static const char *const names[] = {"name", "project", "digest", "image", "modules", "variables", "added"};
	const struct place modules = under(p, "modules"), variables = under(p, "variables"), added = under(p, "added");
	int rc = check_members(j, names, sizeof names / sizeof names[0], p, e);

	if (rc == 0)
		rc = read_texts(j, a, p, e);
	if (rc == 0)
		rc = read_added(json_object_get(j, "added"), a, &added, e);
	if (rc == 0)
		rc = read_modules(json_object_get(j, "modules"), a, &modules, e);
	if (rc == 0)
		rc = read_variables(json_object_get(j, "variables"), a, &variables, e);
	return rc;
}

static int read_agents(const json_t *list, struct agent_table *t, const struct place *p, struct err *e)
{
	size_t i;
	json_t *value;

	if (!json_is_array(list))
		return wrong(e, p, "an array");
	json_array_foreach(list, i, value)
	{
		struct agent_entry a = {0};
		struct place here = element(p, i);
		int rc = read_entry(value, &a, &here, e);

		if (rc == 0 && agent_table_find(t, a.project, a.name))
			rc = err_set(e, EINVAL, here.text, "the agent %s of project %s is there twice", a.name, a.project);
		if (rc == 0)
			rc = at(e, &here, agent_table_put(t, &a, e));
		agent_entry_clear(&a);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_table(const json_t *root, struct agent_table *t, struct err *e)
{
	static const char *const names[] = {"version", "agents"};
	const struct place top = {""}, version = under(&top, "version"), agents = under(&top, "agents");
	int rc = check_members(root, names, sizeof names / sizeof names[0], &top, e);

	if (rc < 0)
		return rc;
	if (json_integer_value(json_object_get(root, "version")) != VERSION)
		return wrong(e, &version, "1, the only version that this Weir knows");
	return read_agents(json_object_get(root, "agents"), t, &agents, e);
}

int agent_table_parse(const char *text, size_t len, struct agent_table *ret, struct err *e)
{
	struct agent_table t = {0};
	json_error_t je;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
	int rc;

	if (!root && json_error_code(&je) == json_error_out_of_memory)
		return no_memory(e);
	if (!root)
		return err_set(e, EINVAL, "", "line %d: %s", je.line, je.text);
	rc = read_table(root, &t, e);
	json_decref(root);
	if (rc < 0)
		agent_table_clear(&t);
	else
		*ret = t;
	return rc;
}

/* ---- writing ---- */

static json_t *variables_json(const struct agent_entry *a)
{
	json_t *j = json_object();

	for (const char *p = a->variables; j && p && *p; p += strlen(p) + 1) {
		_cleanup_free_ char *name = strndup(p, strcspn(p, "="));

		if (!name || json_object_set_new(j, name, json_string(p + strlen(name) + 1)) < 0) {
			json_decref(j);
			return NULL;
		}
	}
	return j;
}

static json_t *entry_json(const struct agent_entry *a)
{
	json_t *j = json_object(), *modules = json_array();
	int rc = 0;

	for (size_t i = 0; i < a->module_count; i++)
		rc |= json_array_append_new(modules, json_string(a->modules[i]));
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		rc |= json_object_set_new(j, texts[i].name, json_string((const char *)a + texts[i].offset));
	rc |= json_object_set_new(j, "modules", modules);
	rc |= json_object_set_new(j, "variables", variables_json(a));
	rc |= json_object_set_new(j, "added", json_integer(a->added_s));
	if (rc == 0)
		return j;
	json_decref(j);
	return NULL;
}

char *agent_table_text(const struct agent_table *t, size_t *ret_len)
{
	json_t *root = json_object(), *list = json_array();
	char *text = NULL;
	int rc = 0;

	for (size_t i = 0; i < t->count; i++)
		rc |= json_array_append_new(list, entry_json(&t->entries[i]));
	rc |= json_object_set_new(root, "version", json_integer(VERSION));
	rc |= json_object_set_new(root, "agents", list);
	if (rc == 0)
		text = json_dumps(root, JSON_INDENT(1));
	json_decref(root);
	if (text)
		*ret_len = strlen(text);
	return text;
}
