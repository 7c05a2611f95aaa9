/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as notes, a run of them: refused, or a line that parses, can be found again by its head, and folds into answers.
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
	static char line[RECORD_LINE_MAX];
	struct record_head head;
	json_t *body, *record;
	size_t len;

	if (record_note_problem(note) || note->type == NOTE_FLUSH)
		return;
	body = record_body(note);
	len = body ? record_line(line, sizeof line, 7, body) : 0;
	if (len < 2 || line[len - 1] != '\n' || memchr(line, '\n', len - 1))
		abort();
	if (!record_head_parse(&head, line, len - 1) || head.seq != 7 || strcmp(head.run_id, note->run_id) != 0)
		abort();
	record = json_loadb(line, len - 1, JSON_REJECT_DUPLICATES, NULL);
	if (!record || view_add(view, record) < 0)
		abort();
	json_decref(record);
	json_decref(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct view *view = view_new();
	json_t *summary, *run;
	struct query query = {0};

	memcpy(&query, data, size < sizeof query ? size : sizeof query);
	(void)client_query_problem(&query);
	for (size_t at = 0; at < size; at += sizeof(struct note)) {
		struct note note = {0};

		memcpy(&note, data + at, size - at < sizeof note ? size - at : sizeof note);
		fold(view, &note);
	}
	summary = view_summary(view);
	run = view_run(view, "ended");
	if (!summary || !run)
		abort();
	json_decref(summary);
	json_decref(run);
	view_free(view);
	return 0;
}
