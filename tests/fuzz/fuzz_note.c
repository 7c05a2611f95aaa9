/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as notes, a run of them: refused, or printable text that parses and folds into answers and into what the chain has.
 * Input: notes back to back, the last one padded with zeros; the same bytes are also tried as a query. Seeds: corpus/note.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "auditor/client.h"
#include "auditor/record.h"
#include "auditor/view.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fold(struct view *view, const struct note *note)
{
	json_t *body, *record;
	char *text;

	if (record_note_problem(note) || record_type_of(note) == RECORD_OTHER)
		return;
	body = record_body(note);
	text = json_dumps(body, JSON_COMPACT);
	if (!text)
		abort();
	for (const char *p = text; *p; p++)
		if (*p < ' ' || *p > '~')
			abort();
	record = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	if (!record || view_add(view, record) < 0)
		abort();
	json_decref(record);
	json_decref(body);
	free(text);
}

/* What a client says it saw, as a record among the others. */
static void tell(struct view *view, const struct content_told *told)
{
	json_t *content;

	if (record_content_problem(told))
		return;
	content = record_content("r", "s", "p", told);
	if (!content || view_add(view, content) < 0)
		abort();
	json_decref(content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct view *view = view_new();
	json_t *summary, *run, *chained;
	struct query query = {0};

	memcpy(&query, data, size < sizeof query ? size : sizeof query);
	(void)client_query_problem(&query);
	tell(view, &query.content);
	for (size_t at = 0; at < size; at += sizeof(struct note)) {
		struct note note = {0};

		memcpy(&note, data + at, size - at < sizeof note ? size - at : sizeof note);
		fold(view, &note);
	}
	summary = view_summary(view);
	run = view_run(view, "ended");
	chained = view_chained(view, 7, "");
	if (!summary || !run || !chained)
		abort();
	json_decref(chained);
	json_decref(summary);
	json_decref(run);
	view_free(view);
	return 0;
}
