/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of images and of agents: whatever stands in a file is refused, or is a table that is the same after it was written
 * and read again, and in which everything that can be asked for is found. The first byte says which. Seeds: corpus/registry.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "registry/agents.h"
#include "registry/images.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void images(const char *text, size_t len)
{
	struct image_table t = {0}, again = {0};
	struct err e = {0};
	size_t n = 0, n2 = 0;
	char *out, *out2;

	if (image_table_parse(text, len, &t, &e) < 0) {
		if (!e.code || !e.msg[0])
			abort();
		return;
	}
	out = image_table_text(&t, &n);
	if (!out || image_table_parse(out, n, &again, &e) < 0)
		abort();
	out2 = image_table_text(&again, &n2);
	if (!out2 || n != n2 || memcmp(out, out2, n) != 0)
		abort();
	for (size_t i = 0; i < t.count; i++) {
		const struct image_entry *entry = &t.entries[i];

		if (!image_variables_ok(entry->variables, entry->variables_len) ||
		    (entry->workdir[0] && !image_workdir_ok(entry->workdir)) ||
		    image_table_find(&t, entry->digest, &e) != entry)
			abort();
		for (size_t k = 0; k < entry->name_count; k++)
			if (!image_name_ok(entry->names[k]) || image_table_find(&t, entry->names[k], &e) != entry)
				abort();
	}
	free(out);
	free(out2);
	image_table_clear(&t);
	image_table_clear(&again);
}

static void agents(const char *text, size_t len)
{
	struct agent_table t = {0}, again = {0};
	struct err e = {0};
	size_t n = 0, n2 = 0;
	char *out, *out2;

	if (agent_table_parse(text, len, &t, &e) < 0) {
		if (!e.code || !e.msg[0])
			abort();
		return;
	}
	out = agent_table_text(&t, &n);
	if (!out || agent_table_parse(out, n, &again, &e) < 0)
		abort();
	out2 = agent_table_text(&again, &n2);
	if (!out2 || n != n2 || memcmp(out, out2, n) != 0)
		abort();
	for (size_t i = 0; i < t.count; i++) {
		const struct agent_entry *a = &t.entries[i];

		if (!image_digest_ok(a->digest) || agent_table_find(&t, a->project, a->name) != a)
			abort();
		for (size_t k = 0; k < a->module_count; k++)
			if (!agent_module_ok(a->modules[k]))
				abort();
	}
	free(out);
	free(out2);
	agent_table_clear(&t);
	agent_table_clear(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size && data[0] == 'a')
		agents((const char *)data + 1, size - 1);
	else if (size)
		images((const char *)data + 1, size - 1);
	return 0;
}
