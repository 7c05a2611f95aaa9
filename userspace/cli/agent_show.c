/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/agent_show.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/token_mint.h"
#include "cli/token_show.h"
#include "core/cleanup.h"

#define DIGEST_SHOWN 12

static json_t *modules_json(const struct agent_entry *a)
{
	json_t *j = json_array();

	for (size_t i = 0; i < a->module_count; i++)
		json_array_append_new(j, json_string(a->modules[i]));
	return j;
}

static json_t *names_json(const struct agent_entry *a)
{
	json_t *j = json_array();

	for (const char *p = a->variables; p && *p; p += strlen(p) + 1)
		json_array_append_new(j, json_stringn(p, strcspn(p, "=")));
	return j;
}

static json_t *agent_json(const struct agent_entry *a)
{
	json_t *j = json_object();

	json_object_set_new(j, "name", json_string(a->name));
	json_object_set_new(j, "project", json_string(a->project));
	json_object_set_new(j, "image", json_string(a->image));
	json_object_set_new(j, "digest", json_sprintf("sha256:%s", a->digest));
	json_object_set_new(j, "tools", modules_json(a));
	json_object_set_new(j, "variables", names_json(a));
	json_object_set_new(j, "added", json_string(token_time_text((char[TOKEN_TIME_LEN]){0}, a->added_s)));
	return j;
}

int agent_show_added(const struct agent_entry *a, const struct image_entry *image, bool json, struct err *e)
{
	if (json) {
		json_t *j = agent_json(a);

		json_object_set_new(j, "python", json_string(image->python.version));
		return token_print_json(j, e);
	}
	printf("%s (project %s): image %s, sha256:%s, Python %s, tools in", a->name, a->project, a->image, a->digest,
	       image->python.version);
	for (size_t i = 0; i < a->module_count; i++)
		printf("%s %s", i ? "," : "", a->modules[i]);
	putchar('\n');
	return cli_flush(e);
}

/* ---- list ---- */

static bool is_listed(const struct agent_list *l, const struct agent_entry *a)
{
	return !l->project || !strcmp(a->project, l->project);
}

size_t agent_list_count(const struct agent_list *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->agents->count; i++)
		n += is_listed(l, &l->agents->entries[i]);
	return n;
}

static bool is_there(const struct agent_list *l, const struct agent_entry *a)
{
	for (size_t i = 0; i < l->images->count; i++)
		if (!strcmp(l->images->entries[i].digest, a->digest))
			return true;
	return false;
}

static unsigned tokens_of(const struct agent_list *l, const struct agent_entry *a)
{
	return token_count_agents(l->tokens, a->project, a->name, l->now_s);
}

static int print_json(const struct agent_list *l, struct err *e)
{
	json_t *all = json_array(), *top = json_object();

	for (size_t i = 0; i < l->agents->count; i++) {
		const struct agent_entry *a = &l->agents->entries[i];
		json_t *j;

		if (!is_listed(l, a))
			continue;
		j = agent_json(a);
		json_object_set_new(j, "image_present", json_boolean(is_there(l, a)));
		json_object_set_new(j, "tokens", json_integer(tokens_of(l, a)));
		json_array_append_new(all, j);
	}
	json_object_set_new(top, "agents", all);
	return token_print_json(top, e);
}

static void widen(int *width, const char *text)
{
	int n = (int)strlen(text);

	*width = n > *width ? n : *width;
}

static void print_row(const struct agent_list *l, const struct agent_entry *a, const int widths[3])
{
	char added[TOKEN_TIME_LEN];

	token_time_text(added, a->added_s);
	added[strcspn(added, "T")] = 0;
	printf("%-*s  %-*s  %-*s  %-*.*s  %-6u  %-11s  ", widths[0], a->name, widths[1], a->project, widths[2], a->image,
	       DIGEST_SHOWN, DIGEST_SHOWN, a->digest, tokens_of(l, a), added);
	for (size_t i = 0; i < a->module_count; i++)
		printf("%s%s", i ? ", " : "", a->modules[i]);
	puts(is_there(l, a) ? "" : "  (its image is gone: import it again)");
}

static int print_table(const struct agent_list *l, struct err *e)
{
	int widths[3] = {5, 7, 5}; /* of the headings */

	if (!agent_list_count(l))
		return 0;
	for (size_t i = 0; i < l->agents->count; i++) {
		widen(&widths[0], l->agents->entries[i].name);
		widen(&widths[1], l->agents->entries[i].project);
		widen(&widths[2], l->agents->entries[i].image);
	}
	printf("%-*s  %-*s  %-*s  %-*s  %-6s  %-11s  %s\n", widths[0], "AGENT", widths[1], "PROJECT", widths[2], "IMAGE",
	       DIGEST_SHOWN, "DIGEST", "TOKENS", "ADDED (UTC)", "TOOLS");
	for (size_t i = 0; i < l->agents->count; i++)
		if (is_listed(l, &l->agents->entries[i]))
			print_row(l, &l->agents->entries[i], widths);
	return cli_flush(e);
}

int agent_show_list(const struct agent_list *l, bool json, struct err *e)
{
	return json ? print_json(l, e) : print_table(l, e);
}
