/* SPDX-License-Identifier: Apache-2.0 */
/* What a check has to say. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auditor/verify_internal.h"

#define TEXT_MAX 512

const char *const verify_kind_names[VERIFY_KINDS] = {
    [VERIFY_CHANGED] = "changed",     [VERIFY_REMOVED] = "removed",
    [VERIFY_REORDERED] = "reordered", [VERIFY_INSERTED] = "inserted",
    [VERIFY_TRUNCATED] = "truncated", [VERIFY_ROLLED_BACK] = "rolled-back",
    [VERIFY_UNSIGNED] = "unsigned",   [VERIFY_BAD_SIGNATURE] = "bad-signature",
    [VERIFY_BROKEN] = "broken",	      [VERIFY_DAMAGED] = "damaged",
    [VERIFY_OTHER_KEY] = "other-key", [VERIFY_EXPECTED] = "expected-missing",
};
const char *const verify_note_names[NOTED_NOTES] = {
    [NOTED_LATE] = "late",	 [NOTED_WAITING] = "waiting", [NOTED_ADOPTED] = "adopted", [NOTED_PRUNED] = "pruned",
    [NOTED_NO_HEAD] = "no-head", [NOTED_SKIPPED] = "skipped", [NOTED_COPY] = "copy",
};

/* What no check of these files can tell. */
static const char *const cannot[] = {
    "who is root on this host has the key and the head: they can write another history that fits. The journal of the service "
    "(\"the chain is at n=..., hash ...\") and the audit_hash in answers that clients kept are out of their reach: "
    "--expect HASH compares one",
    "what never got to the record: it begins with what the kernel reported, and says itself what was lost",
    "what is under no hash yet, or never will be: runs without an entry, records of no run since the last entry, records "
    "behind a "
    "run's sum (their numbers are above): whoever can write the database could have written those",
};

struct verify_report *verify_report_new(void)
{
	struct verify_report *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	r->findings = json_array();
	r->notes = json_array();
	return r->findings && r->notes ? r : verify_report_free(r);
}

struct verify_report *verify_report_free(struct verify_report *r)
{
	if (r) {
		json_decref(r->findings);
		json_decref(r->notes);
	}
	free(r);
	return NULL;
}

/* What the database holds may be anything, and a terminal obeys control characters. */
static void plain(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

static void say(json_t *list, uint64_t *omitted, const char *kind, uint64_t n, const char *run_id, const char *fmt, va_list ap)
{
	char text[TEXT_MAX], id[IPC_ID_MAX];
	json_t *one;

	if (json_array_size(list) >= VERIFY_LISTED_MAX) {
		++*omitted;
		return;
	}
	vsnprintf(text, sizeof text, fmt, ap);
	snprintf(id, sizeof id, "%s", run_id ? run_id : "");
	plain(text);
	plain(id);
	one = json_pack("{s:s, s:o, s:s?, s:s}", "kind", kind, "n", n ? json_integer((json_int_t)n) : json_null(), "run_id",
			id[0] ? id : NULL, "text", text);
	if (json_array_append_new(list, one) < 0)
		++*omitted;
}

void verify_find(struct verify_report *r, enum verify_kind kind, uint64_t n, const char *run_id, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(r->findings, &r->findings_omitted, verify_kind_names[kind], n, run_id, fmt, ap);
	va_end(ap);
	r->found[kind]++;
}

void verify_note(struct verify_report *r, enum verify_note kind, uint64_t n, const char *run_id, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(r->notes, &r->notes_omitted, verify_note_names[kind], n, run_id, fmt, ap);
	va_end(ap);
}

bool verify_intact(const struct verify_report *r)
{
	for (int i = 0; i < VERIFY_KINDS; i++)
		if (r->found[i])
			return false;
	return true;
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *hash_json(const uint8_t hash[CHAIN_HASH])
{
	char hex[2 * CHAIN_HASH + 1];

	chain_hex(hash, hex);
	return json_string(hex);
}

static json_t *expected_json(const struct verify_report *r)
{
	json_t *all = json_array();

	for (size_t i = 0; i < r->expected_count; i++) {
		const struct verify_expected *x = &r->expected[i];

		json_array_append_new(all, json_pack("{s:o, s:o, s:s?, s:o}", "hash", hash_json(x->hash), "n",
						     x->n ? number(x->n) : json_null(), "run_id", x->run[0] ? x->run : NULL,
						     "pruned_by", x->pruned_by ? number(x->pruned_by) : json_null()));
	}
	return all;
}

static json_t *unvouched_json(const struct verify_report *r)
{
	return json_pack("{s:o, s:o, s:o, s:o}", "running", number(r->running), "ended", number(r->ended), "records",
			 number(r->nobodys), "late", number(r->late));
}

static json_t *last_json(const struct verify_report *r)
{
	if (!r->last)
		return json_null();
	return json_pack("{s:o, s:o, s:b}", "n", number(r->last), "hash", hash_json(r->last_hash), "signed", r->last_signed);
}

static json_t *head_json(const struct verify_report *r)
{
	if (!r->has_head)
		return json_null();
	return json_pack("{s:o, s:o}", "n", number(r->head.n), "hash", hash_json(r->head.hash));
}

static json_t *texts(const char *const *list, size_t count)
{
	json_t *all = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(all, json_string(list[i]));
	return all;
}

json_t *verify_report_json(const struct verify_report *r)
{
	return json_pack(
	    "{s:b, s:O, s:o, s:O, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "intact", verify_intact(r),
	    "findings", r->findings, "findings_omitted", number(r->findings_omitted), "notes", r->notes, "notes_omitted",
	    number(r->notes_omitted), "entries", number(r->entries), "signed", number(r->signatures), "runs", number(r->runs),
	    "records", number(r->records), "first", r->first ? number(r->first) : json_null(), "last", last_json(r), "head",
	    head_json(r), "key_id", r->has_key ? hash_json(r->key_id) : json_null(), "expected", expected_json(r), "adopted",
	    number(r->adopted), "unvouched", unvouched_json(r), "cannot", texts(cannot, sizeof cannot / sizeof cannot[0]));
}
