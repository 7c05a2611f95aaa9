/* SPDX-License-Identifier: Apache-2.0 */
/* By what somebody can check that this is the record that was written. */
#include "report/checked.h"
#include "report/page.h"
#include "report/parts.h"

static void signature_fact(struct html *h, const json_t *chain)
{
	if (!json_is_object(chain))
		fact(h, "Chain", "this run is not in it");
	else
		fact(h, "Signature",
		     json_is_true(member(chain, "signed")) ? "signed by the supervisor’s key (Ed25519)"
							   : "none: not signed, or not signed yet");
}

/* What of it was looked at while the page was made, and what there was to compare it with. */
static void checked_fact(struct html *h, const json_t *checked)
{
	static const char *const words[] = {
	    [CHECKED_NOT] = "not when this page was made",
	    [CHECKED_GOOD] = "when this page was made: the chain’s hashes, this entry’s signature and the digest over its "
			     "records; nothing was found",
	    [CHECKED_BAD] = "when this page was made: what was found stands at the top",
	};

	fact(h, "Checked", words[checked_result(checked)]);
	if (checked_result(checked) != CHECKED_NOT && !json_is_object(member(checked, "head")))
		fact(h, "Not compared", "where the chain should end: audit-head was not there");
}

static void how_to_check(struct html *h, const char *hash)
{
	html(h, "<h3>How to check</h3>\n<ul>\n");
	if (hash[0])
		html(h,
		     "<li>On the host: <code class=\"long\">weir audit verify --expect %s</code> says whether this entry, the "
		     "whole chain "
		     "and every record under it are as they were written.</li>\n"
		     "<li>Compare the hash with what the caller got: <code>audit_hash</code> in the answer to the run. It "
		     "leaves the "
		     "host before anybody can come back and change the record.</li>\n"
		     "<li>The service writes the end of the chain into its log (<code>journalctl</code>): a copy of that kept "
		     "elsewhere "
		     "shows a record that was rolled back.</li>\n",
		     hash);
	else
		html(h, "<li>The run has no hash: <code>weir audit verify</code> checks the chain, and this run is not in "
			"it.</li>\n");
	html(h, "</ul>\n");
}

static void limits_of_proof(struct html *h)
{
	html(h, "<h3>What this can’t prove</h3>\n<ul>\n"
		"<li>Whoever is root on the host has the key, and can write another history and sign it. Only a hash or a "
		"chain end that "
		"was kept elsewhere shows that.</li>\n"
		"<li>A chain says that nothing was changed since it was written, not that what was written is all that "
		"happened: what was "
		"lost on the way is counted and said at the top.</li>\n"
		"<li>This page is a copy and not itself signed. Check the record that it names.</li>\n</ul>\n");
}

void part_evidence(struct html *h, const json_t *run)
{
	const json_t *chain = member(run, "chain");
	const char *hash = member_text(run, "audit_hash");

	if (!hash[0])
		hash = member_text(chain, "hash");
	section_open(h, "evidence", "Evidence");
	html(h, "<dl class=\"facts one\">\n");
	fact_code(h, "Hash of the entry", hash);
	if (has_number(chain, "n"))
		html(h, "<div><dt>Entry</dt><dd>number %s of the chain</dd></div>\n", COUNT(member_count(chain, "n")));
	signature_fact(h, chain);
	fact_code(h, "Signature, bytes", member_text(chain, "signature"));
	fact_code(h, "Key’s SHA-256", member_text(chain, "key_id"));
	if (has_number(chain, "records"))
		html(h, "<div><dt>Records</dt><dd>%s</dd></div>\n", COUNT(member_count(chain, "records")));
	fact_code(h, "Digest over them", member_text(chain, "records_sha256"));
	fact_code(h, "Policy’s SHA-256", member_text(run, "policy_hash"));
	fact_code(h, "Boot", member_text(run, "boot_id"));
	checked_fact(h, member(run, "checked"));
	html(h, "</dl>\n");
	how_to_check(h, hash);
	limits_of_proof(h);
	section_close(h);
}
