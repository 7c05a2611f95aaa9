/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/config_show.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>

#include "cli/config_load.h"

#define WIDTH 33 /* of the longest pointer */

/* An option may hold bytes that are not UTF-8. */
static json_t *in_json(const char *text)
{
	json_t *j = json_string(text);

	return j ? j : json_string("(not UTF-8)");
}

/* As the file would have it; null for what nobody says and what has no default. */
static json_t *value(const struct config *c, enum config_key key)
{
	const char *field = (const char *)c + config_keys[key].offset, *text = config_text(c, key);

	if (config_keys[key].kind == CONFIG_FLAG)
		return json_boolean(*(const bool *)field);
	if (config_keys[key].kind == CONFIG_COUNT)
		return json_integer(*(const unsigned *)field);
	return text ? in_json(text) : json_null();
}

static int show_json(const struct config *c, bool policy_only)
{
	json_t *values = json_object(), *sources = json_object(), *top = json_object();
	int rc;

	for (enum config_key key = 0; key < CONFIG_KEYS; key++) {
		const struct config_row *row = &config_keys[key];
		json_t *group = row->group ? json_object_get(values, row->group) : values;
		char pointer[CONFIG_POINTER_MAX];

		if (!group) {
			group = json_object();
			json_object_set_new(values, row->group, group);
		}
		json_object_set_new(group, row->name, value(c, key));
		config_pointer(key, pointer);
		json_object_set_new(sources, pointer, json_string(config_source_names[c->from[key]]));
	}
	json_object_set_new(top, "file", c->file ? json_string(c->file) : json_null());
	json_object_set_new(top, "configuration", values);
	json_object_set_new(top, "sources", sources);
	json_object_set_new(top, "tool_policy_in_force", policy_only ? json_null() : in_json(config_tool_policy(c)));
	json_object_set_new(top, "policy_only", json_boolean(policy_only));
	rc = json_dumpf(top, stdout, JSON_INDENT(2));
	json_decref(top);
	return putchar('\n') == EOF ? -1 : rc;
}

static void show_text(const struct config *c, bool policy_only)
{
	printf("file: %s\n\n", c->file ? c->file : "none (there is no " CONFIG_FILE_DEFAULT ")");
	for (enum config_key key = 0; key < CONFIG_KEYS; key++) {
		json_t *j = value(c, key);
		char pointer[CONFIG_POINTER_MAX];

		config_pointer(key, pointer);
		printf("%-*s  %-7s  ", WIDTH, pointer, config_source_names[c->from[key]]);
		json_dumpf(j, stdout, JSON_ENCODE_ANY);
		putchar('\n');
		json_decref(j);
	}
	if (policy_only)
		printf(
		    "\n--policy-only: there are no sandboxes, so what is said of them (policies, pool, snippets, tools) is not "
		    "used\n");
	else if (!c->tool_egress)
		printf("\ntools have no way out: the policy that they are under is \"%s\", which denies everything\n",
		       config_tool_policy(c));
	printf("\nnot tried: whether the address is free%s\n", policy_only ? "" : ", and whether the interpreter runs");
}

int config_show(const struct config *c, bool policy_only, bool json, struct err *e)
{
	int rc = 0;

	if (json)
		rc = show_json(c, policy_only);
	else
		show_text(c, policy_only);
	if (fflush(stdout) == EOF || ferror(stdout) || rc < 0)
		return err_set(e, EIO, "", "can't write to standard output");
	return 0;
}
