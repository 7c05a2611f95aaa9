/* SPDX-License-Identifier: Apache-2.0 */
#include "api/follow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auditor/record.h"
#include "core/cleanup.h"

#define DATA_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(12))

/* Behind what is left of the text; what has been read of it goes. */
static int append(struct follow *f, const char *text, size_t len)
{
	size_t left = f->len - f->at;
	char *grown = malloc(left + len + 1);

	if (!grown)
		return -ENOMEM;
	if (left)
		memcpy(grown, f->text + f->at, left);
	memcpy(grown + left, text, len);
	grown[left + len] = 0;
	free(f->text);
	f->text = grown;
	f->len = left + len;
	f->at = 0;
	return 0;
}

static bool wanted(const struct follow *f, const char *type)
{
	for (unsigned i = 0; i < RECORD_TYPE_COUNT; i++)
		if (record_type_names[i] && !strcmp(record_type_names[i], type))
			return !f->args.types || f->args.types & 1u << i;
	return false;
}

/* False: it is none. A type that this version has no name for is told by nobody: types are a table. */
static bool put_record(struct follow *f, FILE *to, const json_t *record)
{
	const json_t *seq = json_object_get(record, "seq");
	const char *type = json_string_value(json_object_get(record, "type"));
	_cleanup_free_ char *data = NULL;

	if (!json_is_integer(seq) || !type)
		return false;
	if (!wanted(f, type))
		return true;
	data = json_dumps(record, DATA_FLAGS);
	if (!data)
		return false;
	f->named = (uint64_t)json_integer_value(seq);
	fprintf(to, "id: %llu\nevent: %s\ndata: %s\n\n", (unsigned long long)f->named, type, data);
	return true;
}

static int put_records(struct follow *f, const json_t *records)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0, i;
	FILE *to = open_memstream(&text, &len);
	const json_t *record;
	bool ok = true;

	if (!to)
		return -ENOMEM;
	json_array_foreach(records, i, record) ok = ok && put_record(f, to, record);
	if (fclose(to) != 0)
		return -ENOMEM;
	if (!ok)
		return -EPROTO;
	return len ? append(f, text, len) : 0;
}

int follow_add(struct follow *f, const char *answer, size_t len)
{
	json_t *json = json_loadb(answer, len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *records = json_object_get(json, "records"), *cursor = json_object_get(json, "cursor");
	int r = -EPROTO;

	if (json_is_array(records) && json_is_integer(cursor) && json_integer_value(cursor) >= 0) {
		bool first = f->args.find.after == UINT64_MAX;

		f->before = f->args.find.after;
		r = put_records(f, records);
		f->args.find.after = (uint64_t)json_integer_value(cursor);
		if (first)
			f->named = f->args.find.after - 1; /* nobody knows it yet: the next comment says it */
	}
	json_decref(json);
	return r;
}

int follow_add_comment(struct follow *f)
{
	char text[96] = ": keep-alive\n\n";

	/* An event without data is none, but its id counts. */
	if (f->named != f->args.find.after && f->args.find.after != UINT64_MAX) {
		f->named = f->args.find.after;
		snprintf(text, sizeof text, ": keep-alive\nid: %llu\n\n", (unsigned long long)f->named);
	}
	return append(f, text, strlen(text));
}

int follow_add_last(struct follow *f, const char *event, json_t *data)
{
	_cleanup_free_ char *json = data ? json_dumps(data, DATA_FLAGS) : NULL, *text = NULL;
	int n = json ? asprintf(&text, "event: %s\ndata: %s\n\n", event, json) : -1;

	json_decref(data);
	f->over = true;
	return n < 0 ? -ENOMEM : append(f, text, (size_t)n);
}

/* Where the event that is being read ends. */
static size_t event_end(const struct follow *f)
{
	size_t from = f->at < 2 ? 0 : f->at - 2;
	const char *end = f->at ? memmem(f->text + from, f->len - from, "\n\n", 2) : NULL;

	return end ? (size_t)(end - f->text) + 2 : f->at;
}

void follow_cut(struct follow *f)
{
	size_t end;

	if (!f->text)
		return;
	end = event_end(f);
	if (end == f->len)
		return;
	f->args.find.after = f->before;
	/* Of the last event that goes out whole, the id is where a reader has to go on. */
	for (const char *at = f->text + end; at-- > f->text;)
		if (!strncmp(at, "id: ", 4) && (at == f->text || at[-1] == '\n')) {
			f->args.find.after = strtoull(at + 4, NULL, 10);
			break;
		}
	f->len = end;
}

void follow_clear(struct follow *f)
{
	free(f->text);
	*f = (struct follow){0};
}
