/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/cleanup.h"
#include "core/utf8.h"

#define NAMED 5 /* files of a long list */
#define NAME_BYTES 64

void run_report_attempts(const struct run_result *r)
{
	json_t *summary, *first;
	const char *name, *address;

	if (!r->end.attempts)
		return;
	summary = r->summary ? json_loadb(r->summary, r->summary_len, 0, NULL) : NULL;
	first = json_array_get(json_object_get(json_object_get(summary, "egress"), "destinations"), 0);
	name = json_string_value(json_object_get(first, "dns_name"));
	address = json_string_value(json_object_get(first, "address"));
	fprintf(stderr, "weir: %llu %s to reach the network, %llu denied", (unsigned long long)r->end.attempts,
		r->end.attempts == 1 ? "attempt" : "attempts", (unsigned long long)r->end.denied);
	if (r->end.would_deny)
		fprintf(stderr, ", %llu would be denied", (unsigned long long)r->end.would_deny);
	if (address)
		fprintf(stderr, "; first: %s %s port %lld%s%s", json_string_value(json_object_get(first, "protocol")), address,
			(long long)json_integer_value(json_object_get(first, "port")), name ? ", name " : "", name ? name : "");
	fprintf(stderr, " (--json lists them)\n");
	json_decref(summary);
}

/* A stranger's name for a terminal: nothing in it moves the cursor, and it is not long. Valid UTF-8. */
static void print_name(const char *path, size_t len)
{
	size_t shown = utf8_cut(path, len, NAME_BYTES), n;

	for (size_t at = 0; at < shown; at += n) {
		const unsigned char *c = (const unsigned char *)path + at;
		bool valid;

		n = utf8_next(path + at, shown - at, &valid);
		if (c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0))
			for (size_t i = 0; i < n; i++)
				fprintf(stderr, "\\x%02x", c[i]);
		else
			fwrite(c, 1, n, stderr);
	}
	fputs(shown < len ? "\xe2\x80\xa6" : "", stderr);
}

static void print_size(uint64_t bytes)
{
	if (bytes < 1024)
		fprintf(stderr, " (%llu bytes)", (unsigned long long)bytes);
	else if (bytes < 1 << 20)
		fprintf(stderr, " (%llu KiB)", (unsigned long long)(bytes + 512) >> 10);
	else
		fprintf(stderr, " (%.1f MiB)", (double)bytes / (1 << 20));
}

void run_report_files(const struct run_result *r)
{
	unsigned files = 0, skipped = r->files.skipped_unlisted, named = 0;
	struct collected_entry e;
	const char *path, *content;

	if (r->files.problem)
		fprintf(stderr, "weir: files in the working directory could not be read: %s\n", r->files.problem);
	for (size_t at = 0; run_files_next(&r->files, &at, &e, &path, &content);)
		*(e.kind == COLLECTED_FILE ? &files : &skipped) += 1;
	if (!files && !skipped)
		return;
	if (files)
		fprintf(stderr, "weir: %u %s left in the working directory", files, files == 1 ? "file" : "files");
	else
		fprintf(stderr, "weir: no file to be had from the working directory");
	for (size_t at = 0; named < NAMED && run_files_next(&r->files, &at, &e, &path, &content);) {
		if (e.kind != COLLECTED_FILE)
			continue;
		fputs(named++ ? ", " : ": ", stderr);
		print_name(path, e.path_len);
		print_size(e.size);
	}
	if (named < files)
		fprintf(stderr, ", and %u more", files - named);
	if (skipped)
		fprintf(stderr, "; %u skipped", skipped);
	fprintf(stderr, files ? " (--json has their content)\n" : " (--json says why)\n");
}
