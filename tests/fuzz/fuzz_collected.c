/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as the collector's account of a working directory: refused, or read to the end within their bounds and told as an
 * answer that parses, with every path and every byte in it. Seeds: corpus/collected.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "core/base64.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok)
{
	if (!ok)
		abort();
}

static void check_file(const json_t *told, const struct collected_entry *e, const char *path, const char *content)
{
	const json_t *told_path = json_object_get(told, "path"), *told_content = json_object_get(told, "content_base64");
	char *text = malloc(BASE64_LEN(e->size) + 1);

	need(json_string_length(told_path) == e->path_len && !memcmp(json_string_value(told_path), path, e->path_len));
	base64_encode(text, content, e->size);
	need(json_string_length(told_content) == BASE64_LEN(e->size));
	need(!memcmp(json_string_value(told_content), text, BASE64_LEN(e->size)));
	need((uint64_t)json_integer_value(json_object_get(told, "size")) == e->size);
	free(text);
}

static void check_skipped(const json_t *told, const struct collected_entry *e)
{
	need(json_string_length(json_object_get(told, "path")) >= e->path_len);
	need(!strcmp(json_string_value(json_object_get(told, "reason")), skip_names[e->kind]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run_result r = {.files = {.data = (char *)data, .len = size}};
	size_t at = 0, files = 0, skipped = 0, len;
	struct collected_entry e;
	const char *path, *content;
	json_t *answer;
	char *text;

	if (!run_files_ok((const char *)data, size))
		return 0;
	text = answer_result(&r, &len);
	need(text && memchr(text, '\n', len) == text + len - 1);
	answer = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	need(answer);
	while (run_files_next(&r.files, &at, &e, &path, &content))
		if (e.kind == COLLECTED_FILE)
			check_file(json_array_get(json_object_get(answer, "files"), files++), &e, path, content);
		else
			check_skipped(json_array_get(json_object_get(answer, "files_skipped"), skipped++), &e);
	need(at == size && json_array_size(json_object_get(answer, "files")) == files &&
	     json_array_size(json_object_get(answer, "files_skipped")) == skipped);
	json_decref(answer);
	free(text);
	return 0;
}
