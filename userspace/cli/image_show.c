/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/image_show.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/token_show.h"
#include "core/cleanup.h"
#include "oci.h"

#define SHORT_HEX 12
#define USERS_SHOWN 5

const char *image_size_text(char buf[IMAGE_SIZE_TEXT], uint64_t bytes)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	double n = (double)bytes;
	size_t unit = 0;

	while (n >= 1024 && unit < sizeof units / sizeof units[0] - 1) {
		n /= 1024;
		unit++;
	}
	snprintf(buf, IMAGE_SIZE_TEXT, unit && n < 10 ? "%.1f %s" : "%.0f %s", n, units[unit]);
	return buf;
}

char *image_names_text(const char *block, size_t len)
{
	char *text = malloc(2 * len + 1); /* a comma and a blank for a NUL */
	size_t used = 0;

	if (!text)
		return NULL;
	text[0] = 0;
	for (const char *at = NULL; (at = image_variables_next(block, len, at));) {
		size_t n = strcspn(at, "=");

		used += (size_t)sprintf(text + used, "%s%.*s", used ? ", " : "", (int)n, at);
	}
	return text;
}

size_t image_users(const struct agent_table *agents, const char *digest, char *ret, size_t size)
{
	size_t count = 0, used = 0;

	ret[0] = 0;
	for (size_t i = 0; i < agents->count; i++) {
		const struct agent_entry *a = &agents->entries[i];

		if (strcmp(a->digest, digest) != 0)
			continue;
		if (count++ < USERS_SHOWN && used < size)
			used += (size_t)snprintf(ret + used, size - used, "%s%s/%s", used ? ", " : "", a->project, a->name);
	}
	if (count > USERS_SHOWN && used < size)
		snprintf(ret + used, size - used, " and %zu more", count - USERS_SHOWN);
	return count;
}

/* ---- for machines ---- */

static json_t *names_json(const struct image_entry *entry)
{
	json_t *list = json_array();

	for (size_t i = 0; i < entry->name_count; i++)
		json_array_append_new(list, json_string(entry->names[i]));
	return list;
}

static json_t *variables_json(const struct image_entry *entry)
{
	json_t *object = json_object();

	for (const char *at = NULL; (at = image_variables_next(entry->variables, entry->variables_len, at));) {
		size_t n = strcspn(at, "=");
		char *name = strndup(at, n);

		if (name)
			json_object_set_new(object, name, json_string(at + n + 1));
		free(name);
	}
	return object;
}

static json_t *withheld_json(const struct image_entry *entry)
{
	json_t *list = json_array();

	for (const char *at = NULL; (at = image_variables_next(entry->withheld, entry->withheld_len, at));)
		json_array_append_new(list, json_string(at));
	return list;
}

static json_t *users_json(const struct agent_table *agents, const char *digest)
{
	json_t *list = json_array();

	for (size_t i = 0; i < agents->count; i++)
		if (!strcmp(agents->entries[i].digest, digest))
			json_array_append_new(list, json_pack("{s:s, s:s}", "project", agents->entries[i].project, "name",
							      agents->entries[i].name));
	return list;
}

json_t *image_json(const struct image_entry *entry, const struct agent_table *agents, bool present)
{
	char digest[sizeof "sha256:" + IMAGE_HEX];

	snprintf(digest, sizeof digest, "sha256:%s", entry->digest);
	return json_pack("{s:s, s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:{s:s, s:s, s:s}, s:s, s:o, s:o, s:o, s:b}", "digest",
			 digest, "names", names_json(entry), "kind", entry->kind, "source", entry->source, "imported",
			 token_time_text((char[TOKEN_TIME_LEN]){0}, entry->imported_s), "bytes", (json_int_t)entry->bytes,
			 "entries", (json_int_t)entry->entries, "left_out", (json_int_t)entry->left_out, "python", "version",
			 entry->python.version, "executable", entry->python.executable, "site", entry->python.site, "workdir",
			 entry->workdir, "variables", variables_json(entry), "withheld", withheld_json(entry), "agents",
			 users_json(agents, entry->digest), "present", present);
}

static int list_json(const struct image_table *t, const struct agent_table *agents, const char *images, struct err *e)
{
	json_t *list = json_array();

	for (size_t i = 0; i < t->count; i++)
		json_array_append_new(list, image_json(&t->entries[i], agents, oci_is_unpacked(images, t->entries[i].digest)));
	return token_print_json(json_pack("{s:o}", "images", list), e);
}

/* ---- for people ---- */

static const char *names_of(const struct image_entry *entry, char buf[IMAGE_NAMES * IMAGE_NAME_MAX + 32])
{
	size_t used = 0;

	snprintf(buf, 32, "-");
	for (size_t i = 0; i < entry->name_count; i++)
		used += (size_t)sprintf(buf + used, "%s%s", i ? "," : "", entry->names[i]);
	return buf;
}
#define NAMES(entry) names_of((entry), (char[IMAGE_NAMES * IMAGE_NAME_MAX + 32]){0})

/* To the minute. */
static const char *short_time(char buf[TOKEN_TIME_LEN], int64_t t)
{
	token_time_text(buf, t);
	if (t) {
		buf[strcspn(buf, "T")] = ' ';
		buf[strlen("2026-11-29 12:00")] = 0;
	}
	return buf;
}

static void widen(int *width, const char *text)
{
	int n = (int)strlen(text);

	*width = n > *width ? n : *width;
}

int image_list(const struct image_table *t, const struct agent_table *agents, const char *images, const char *state_dir,
	       bool json, struct err *e)
{
	int names = 5, version = 6; /* their headings */

	if (json)
		return list_json(t, agents, images, e);
	if (!t->count) {
		bool usual = !strcmp(state_dir, DEFAULT_STATE_DIR);

		fprintf(stderr, "weir: no images in %s; `weir image import PATH%s%s` brings one in\n", state_dir,
			usual ? "" : " --state-dir ", usual ? "" : state_dir);
		return 0;
	}
	for (size_t i = 0; i < t->count; i++) {
		widen(&names, NAMES(&t->entries[i]));
		widen(&version, t->entries[i].python.version);
	}
	printf("%-*s  %-*s  %-*s  %8s  %-16s  %s\n", names, "NAMES", SHORT_HEX, "DIGEST", version, "PYTHON", "SIZE",
	       "IMPORTED (UTC)", "AGENTS");
	for (size_t i = 0; i < t->count; i++) {
		const struct image_entry *entry = &t->entries[i];
		char users[1024];
		size_t count = image_users(agents, entry->digest, users, sizeof users);

		printf("%-*s  %.*s  %-*s  %8s  %-16s  %s\n", names, NAMES(entry), SHORT_HEX, entry->digest, version,
		       entry->python.version, image_size_text((char[IMAGE_SIZE_TEXT]){0}, entry->bytes),
		       short_time((char[TOKEN_TIME_LEN]){0}, entry->imported_s), count ? users : "-");
	}
	if (cli_flush(e) < 0)
		return -e->code;
	for (size_t i = 0; i < t->count; i++)
		if (!oci_is_unpacked(images, t->entries[i].digest))
			fprintf(stderr, "weir: the files of %.*s are not in %s any more: import it again\n", SHORT_HEX,
				t->entries[i].digest, images);
	return 0;
}
