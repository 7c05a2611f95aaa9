/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader of many runs must know before the rest. */
#include <string.h>

#include "report/checked.h"
#include "report/page.h"
#include "report/period.h"

/* A list whose heading is written with its first item. */
static void item(struct html *h, size_t *count)
{
	if (!(*count)++)
		html(h,
		     "<aside class=\"notice warn\" aria-labelledby=\"missing\">\n<h2 id=\"missing\">What this report does not "
		     "show</h2>\n<ul>\n");
	html(h, "<li>");
}

#define ITEM(h, count, ...) (item(h, &(count)), html(h, __VA_ARGS__), html(h, "</li>\n"))

static void notices_of(struct html *h, const json_t *period, size_t *count)
{
	static const struct {
		const char *kind, *words;
	} kinds[] = {{"gap", "A gap in the record"}, {"break", "The chain is broken"}};
	const json_t *row;
	size_t i;

	json_array_foreach(member(period, "notices"), i, row)
	{
		for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
			if (strcmp(member_text(row, "kind"), kinds[k].kind) != 0)
				continue;
			item(h, count);
			html(h, "%s, ", kinds[k].words);
			moment(h, member_text(row, "time"));
			html(h, ": %s</li>\n", member_text(row, "text"));
		}
	}
	if (json_is_true(member(period, "notices_more")))
		ITEM(h, *count, "There are more such entries than are listed here; narrow the time.");
}

static const struct {
	const char *reason, *words;
} prune_reasons[] = {{"age", "older than what is kept"},
		     {"project", "the project had more than its share"},
		     {"room", "the whole record was at its limit"}};
#define PRUNE_REASONS (sizeof prune_reasons / sizeof *prune_reasons)

const char *period_prune_words(const char *reason)
{
	for (size_t i = 0; i < PRUNE_REASONS; i++)
		if (!strcmp(reason, prune_reasons[i].reason))
			return prune_reasons[i].words;
	return reason;
}

/* Whether it removed runs that this page might have had: of the project, and begun in the time, that was asked for. */
static bool was_of_this(const json_t *prune, const json_t *period)
{
	const char *project = member_text(period, "project"), *of = member_text(prune, "project"),
		   *newest = member_text(prune, "newest");

	if (strcmp(member_text(prune, "kind"), "prune") != 0 || !member_count(prune, "runs"))
		return false;
	if (project[0] && of[0] && strcmp(project, of) != 0)
		return false;
	/* Both in UTC, and of one form as far as the second: their order as text is that of time. */
	return !newest[0] || strncmp(newest, member_text(period, "since"), strlen("2026-11-30T12:00:00")) >= 0;
}

static void removed(struct html *h, const json_t *period, size_t *count)
{
	for (size_t k = 0; k < PRUNE_REASONS; k++) {
		uint64_t runs = 0;
		const json_t *row;
		size_t i;

		json_array_foreach(member(period, "notices"), i, row)
		{
			if (was_of_this(row, period) && !strcmp(member_text(row, "reason"), prune_reasons[k].reason))
				runs += member_count(row, "runs");
		}
		if (runs)
			ITEM(h, *count,
			     "%s removed from the record (%s): what %s did is not on this page. <a "
			     "href=\"#evidence\">When, and of which project</a>.",
			     SOME(runs, "run was", "runs were"), prune_reasons[k].words, runs == 1 ? "it" : "they");
	}
}

static void nothing_missing(struct html *h, const struct report_period *p, const json_t *period)
{
	if (!p->sums[SUM_RUNS])
		html(h, "<aside class=\"notice\" aria-labelledby=\"missing\">\n<h2 id=\"missing\">What this says</h2>\n"
			"<p>That the record has no run of this time, and no more: not that none was made. What runs without "
			"Weir, or "
			"with another state directory, is not in it.</p>\n</aside>\n");
	else if (checked_result(member(period, "checked")) == CHECKED_GOOD)
		html(h,
		     "<aside class=\"notice\" aria-labelledby=\"missing\">\n<h2 id=\"missing\">Nothing is known to be "
		     "missing</h2>\n"
		     "<p>Every attempt that the kernel counted for these runs is listed, and each run is in the signed chain: "
		     "hashes, signatures and the digests over their records were checked when this page was made.</p>\n"
		     "</aside>\n");
}

void period_missing(struct html *h, const struct report_period *p, const json_t *period)
{
	size_t count = 0;

	if (checked_result(member(period, "checked")) == CHECKED_NOT)
		ITEM(h, count,
		     "Whether the record is what was written was not checked when this page was made (%s): <code>weir audit "
		     "verify</code> does.",
		     checked_problem(member(period, "checked")));
	if (p->not_read)
		ITEM(h, count, "%s not read, the oldest: a page of an attachment’s record has at most %d.",
		     SOME(p->not_read, "part was", "parts were"), REPORT_RUNS_MAX);
	if (member_count(period, "limit"))
		ITEM(h, count, "There are older runs: only the newest %s were to be read.",
		     COUNT(member_count(period, "limit")));
	if (p->runs_left_out)
		ITEM(h, count,
		     "%s in the sums and not listed: a page has at most %d, for each project the same share of them. <a "
		     "href=\"#left-out\">Which project’s</a>.",
		     SOME(p->runs_left_out, "run is", "runs are"), REPORT_RUNS_MAX);
	if (p->destinations_left_out)
		ITEM(h, count,
		     "%s in the sums and not listed: a page has at most %d, for each project the same share of them, and of "
		     "that for each run. <a href=\"#left-out\">Which project’s</a>.",
		     SOME(p->destinations_left_out, "denied destination is", "denied destinations are"),
		     REPORT_DESTINATIONS_MAX);
	if (p->thinned)
		ITEM(
		    h, count,
		    "More destinations were denied than are kept in mind while a page is made: in projects that have some left "
		    "out, the others may have been tried more often than is listed.");
	if (p->sums[SUM_LOST])
		ITEM(h, count, "%s counted and not listed: where they went is not known.",
		     SOME(p->sums[SUM_LOST], "attempt is", "attempts are"));
	if (p->unwritten)
		ITEM(h, count, "%s could not be written.", SOME(p->unwritten, "record", "records"));
	if (p->gaps)
		ITEM(h, count, "%s in the records of these runs: see the report of each.", SOME(p->gaps, "gap is", "gaps are"));
	if (p->interrupted)
		ITEM(h, count, "%s no end on record: Weir itself stopped while they ran.",
		     SOME(p->interrupted, "run has", "runs have"));
	if (p->running)
		ITEM(h, count, "%s not ended when this report was made.", SOME(p->running, "run had", "runs had"));
	if (p->unchained)
		ITEM(h, count, "%s not in the chain of hashes: a change of them would leave no trace.",
		     SOME(p->unchained, "ended run is", "ended runs are"));
	if (p->late)
		ITEM(h, count, "%s after their runs were summed up: no entry of the chain vouches for them.",
		     SOME(p->late, "record came", "records came"));
	if (p->is_unsigned)
		ITEM(h, count, "%s no signature.", SOME(p->is_unsigned, "entry in the chain has", "entries in the chain have"));
	removed(h, period, &count);
	notices_of(h, period, &count);
	if (count)
		html(h, "</ul>\n</aside>\n");
	else
		nothing_missing(h, p, period);
}
