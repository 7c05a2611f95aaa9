/* SPDX-License-Identifier: Apache-2.0 */
/* The policy in words, and whole. */
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/policy.h"
#include "core/policy_words.h"
#include "report/page.h"
#include "report/parts.h"

#define PLACES_SHOWN 24 /* of one rule; the document below has all */

static void words(struct html *h, const struct policy *policy)
{
	_cleanup_free_ char *text = policy_words(policy, PLACES_SHOWN);
	char *at = text, *line;

	if (!text) {
		h->failed = true;
		return;
	}
	if (policy->description[0])
		html(h, "<p>“%s”</p>\n", policy->description);
	html(h, "<ul>\n");
	while ((line = strsep(&at, "\n")))
		if (*line)
			html(h, "<li>%s</li>\n", line);
	html(h, "</ul>\n");
}

/* One policy by its hash. The document is checked against it by whoever stored it; here it is only read. */
static void one_policy(struct html *h, const char *hash, const json_t *policies)
{
	const char *text = json_string_value(member(policies, hash));
	struct policy *policy = NULL;
	struct err e;

	if (!text) {
		html(h, "<p>The record does not have this document: it is longer than what a record keeps, or older than such "
			"records. Its hash tells which file it was.</p>\n");
		return;
	}
	if (policy_parse(text, strlen(text), &policy, &e) < 0)
		html(h, "<p>This version of Weir can’t read the document (%s).</p>\n", e.msg);
	else
		words(h, policy);
	policy_free(policy);
	html(h, "<details>\n<summary>The whole document</summary>\n<pre>");
	html_lines(h, text);
	html(h, "</pre>\n</details>\n");
}

static void policy_facts(struct html *h, const json_t *policy)
{
	html(h, "<dl class=\"facts one\">\n");
	fact(h, "Policy", member_text(policy, "policy"));
	if (has_number(policy, "policy_generation"))
		html(h, "<div><dt>Generation</dt><dd>%lld</dd></div>\n", member_int(policy, "policy_generation"));
	fact_code(h, "SHA-256", member_text(policy, "policy_hash"));
	html(h, "</dl>\n");
}

/* Whether the words of this hash were said already: of the run, or of an earlier change. */
static bool said_before(const json_t *run, const json_t *changes, size_t before, const char *hash)
{
	if (!strcmp(member_text(run, "policy_hash"), hash))
		return true;
	for (size_t i = 0; i < before; i++)
		if (!strcmp(member_text(json_array_get(changes, i), "policy_hash"), hash))
			return true;
	return false;
}

void part_policy(struct html *h, const json_t *run, const json_t *policies)
{
	const json_t *changes = member(run, "policy_changes"), *change;
	size_t i;

	if (!member_text(run, "policy")[0])
		return;
	section_open(h, "policy", "The policy");
	policy_facts(h, run);
	html(h, "<h3>In words</h3>\n");
	one_policy(h, member_text(run, "policy_hash"), policies);
	json_array_foreach(changes, i, change)
	{
		html(h, "<h3>From ");
		moment(h, member_text(change, "time"));
		html(h, " on</h3>\n<p>%s</p>\n",
		     strcmp(member_text(change, "reason"), "addresses")
			 ? "The operator had the document read again."
			 : "The host’s addresses or name servers changed, which a set of the policy holds.");
		policy_facts(h, change);
		if (said_before(run, changes, i, member_text(change, "policy_hash")))
			html(h, "<p>The document is one that was in force before, word for word.</p>\n");
		else
			one_policy(h, member_text(change, "policy_hash"), policies);
	}
	section_close(h);
}
