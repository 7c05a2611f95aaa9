/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader must know before the rest: no sign of success may stand above a record that has holes. */
#include <string.h>

#include "report/checked.h"
#include "report/page.h"
#include "report/parts.h"

/* A list whose heading is written with its first item. */
struct list {
	struct html *h;
	size_t count;
};

static void item(struct list *l)
{
	if (!l->count++)
		html(l->h,
		     "<aside class=\"notice warn\" aria-labelledby=\"missing\">\n<h2 id=\"missing\">What this record does not "
		     "show</h2>\n<ul>\n");
	html(l->h, "<li>");
}

#define ITEM(l, ...) (item(l), html((l)->h, __VA_ARGS__), html((l)->h, "</li>\n"))

static void say_end(struct list *l, const json_t *run)
{
	const char *state = member_text(run, "state");

	if (!strcmp(state, "interrupted"))
		ITEM(l, "The run was interrupted: the Weir that ran it stopped before it ended. What happened after the last "
			"record "
			"is not known; the figures are those of the records that are there.");
	else if (strcmp(state, "ended") != 0)
		ITEM(l, "The run had not ended when this report was made: every figure is one so far.");
	if (json_is_false(member(run, "counters_readable")))
		ITEM(l, "The kernel’s counters could not be read at the end: the sums are of listed attempts alone.");
}

static void say_lost(struct list *l, const json_t *run)
{
	const json_t *egress = member(run, "egress");
	uint64_t lost = member_count(egress, "lost"), unwritten = member_count(run, "records_unwritten"),
		 omitted = member_count(run, "events_omitted"), missing = member_count(egress, "events_missing");

	if (lost)
		ITEM(l, "%s of %s to reach the network %s counted and not listed: where %s is not known.", COUNT(lost),
		     SOME(member_count(egress, "attempts"), "attempt", "attempts"), lost == 1 ? "is" : "are",
		     lost == 1 ? "it went" : "they went");
	if (missing)
		ITEM(l, "%s of the kernel’s did not arrive: its numbers have holes. What they told of is counted.",
		     SOME(missing, "event", "events"));
	if (unwritten)
		ITEM(l, "%s could not be written.", SOME(unwritten, "record", "records"));
	if (omitted)
		ITEM(l, "%s of attempts did not fit into the list.", SOME(omitted, "record", "records"));
}

/* Members "…_omitted" say how much of a list is left out of it, whatever the list. */
static void say_omitted_of(struct list *l, const json_t *object)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)object, name, value)
	{
		size_t len = strlen(name);

		if (len <= 8 || strcmp(name + len - 8, "_omitted") != 0 || !strcmp(name, "events_omitted"))
			continue;
		if (json_integer_value(value) > 0)
			ITEM(l, "%s left out of a list: %s.", SOME(member_count(object, name), "entry is", "entries are"),
			     name);
	}
}

static void say_omitted(struct list *l, const json_t *run)
{
	say_omitted_of(l, run);
	say_omitted_of(l, member(run, "execs"));
	say_omitted_of(l, member(run, "refused_syscalls"));
}

static void say_programs(struct list *l, const json_t *run)
{
	uint64_t unlisted = member_count(member(run, "execs"), "unlisted");
	const json_t *refused = member(run, "refused_syscalls");
	/* Of a workload that has another's filter, or none, nobody ever counts them. */
	bool ended = json_is_object(member(run, "termination")), filtered = !json_is_object(member(run, "target"));

	if (unlisted)
		ITEM(l, "%s started and counted, and not listed.", SOME(unlisted, "program was", "programs were"));
	if (ended && json_is_null(member(member(run, "execs"), "count")))
		ITEM(l, "Which programs were started is not known: nobody counted them.");
	if (ended && filtered && json_is_null(refused))
		ITEM(l, "Which system calls were refused is not known: nobody counted them.");
}

static void say_gaps(struct list *l, const json_t *run)
{
	const json_t *row;
	size_t i;

	json_array_foreach(member(run, "gaps"), i, row)
	{
		const char *since = member_text(row, "since");

		item(l);
		html(l->h, "A gap in the record");
		if (since[0]) {
			html(l->h, " since ");
			moment(l->h, since);
		}
		html(l->h, ": %s", member_text(row, "text"));
		if (has_number(row, "attempts"))
			html(l->h, " (%s, %s denied)", SOME(member_count(row, "attempts"), "attempt", "attempts"),
			     COUNT(member_count(row, "denied")));
		html(l->h, "</li>\n");
	}
}

/* When what began in row `from` was over again; "" when that is not on record. */
static const char *over_again(const json_t *drift, size_t from)
{
	const char *name = member_text(json_array_get(drift, from), "name");

	for (size_t i = from + 1; i < json_array_size(drift); i++) {
		const json_t *row = json_array_get(drift, i);

		if (json_is_true(member(row, "over")) && !strcmp(member_text(row, "name"), name))
			return member_text(row, "time");
	}
	return "";
}

static void say_drift(struct list *l, const json_t *run)
{
	const json_t *drift = member(run, "drift"), *row;
	size_t i;

	json_array_foreach(drift, i, row)
	{
		const char *until = over_again(drift, i);

		if (json_is_true(member(row, "over")))
			continue;
		item(l);
		html(l->h, "From ");
		moment(l->h, member_text(row, "time"));
		if (until[0]) {
			html(l->h, " to ");
			moment(l->h, until);
		} else {
			html(l->h, " on");
		}
		html(l->h, " something was not as it should be (%s): %s</li>\n", member_text(row, "name"),
		     member_text(row, "text"));
	}
}

static void say_sources(struct list *l, const json_t *run)
{
	for (size_t i = 0; i < FIGURES; i++)
		if (figure_agreement(&figures[i], run) == AGREE_DIFFER)
			ITEM(l, "The two sources of %s differ by more than they may: see <a href=\"#use\">use and limits</a>.",
			     figures[i].name);
}

static void say_chain(struct list *l, const json_t *run)
{
	const json_t *chain = member(run, "chain");

	if (!json_is_object(member(run, "termination")))
		return;
	if (!json_is_object(chain))
		ITEM(l, "The run is not in the chain of hashes: a change of this record would leave no trace.");
	else if (!json_is_true(member(chain, "signed")))
		ITEM(l, "Its entry in the chain is not signed: whoever may write the record could have made it.");
}

/* Whoever can write the record can write behind an entry as well: only what the entry has a digest of is vouched for. */
static void say_late(struct list *l, const json_t *run)
{
	uint64_t n = json_array_size(member(run, "late")) + member_count(run, "late_omitted");

	if (n)
		ITEM(l, "%s after the run was summed up: no entry of the chain vouches for %s, and no figure here has what %s.",
		     SOME(n, "record came", "records came"), n == 1 ? "it" : "them", n == 1 ? "it says" : "they say");
}

static void say_unchecked(struct list *l, const json_t *run)
{
	const json_t *checked = member(run, "checked");

	if (checked_result(checked) == CHECKED_NOT)
		ITEM(l,
		     "Whether the record is what was written was not checked when this page was made (%s): <code>weir audit "
		     "verify</code> does.",
		     checked_problem(checked));
}

static void say_coverage(struct list *l, const json_t *run)
{
	const json_t *target = member(run, "target");
	const char *coverage = member_text(target, "coverage");

	if (coverage[0] && strcmp(coverage, "full") != 0)
		ITEM(l,
		     "The policy does not hold for everything that the workload can do (coverage: %s): see "
		     "<a href=\"#target\">what has the policy</a>.",
		     coverage);
}

void part_missing(struct html *h, const json_t *run)
{
	static void (*const sayers[])(struct list *, const json_t *) = {say_unchecked, say_end,	  say_lost,  say_omitted,
									say_programs,  say_gaps,  say_drift, say_sources,
									say_coverage,  say_chain, say_late};
	struct list l = {.h = h};

	for (size_t i = 0; i < sizeof sayers / sizeof *sayers; i++)
		sayers[i](&l, run);
	if (l.count) {
		html(h, "</ul>\n</aside>\n");
		return;
	}
	if (checked_result(member(run, "checked")) == CHECKED_BAD)
		return;
	html(h,
	     "<aside class=\"notice\" aria-labelledby=\"missing\">\n<h2 id=\"missing\">Nothing is known to be missing</h2>\n"
	     "<p>Every attempt that the kernel counted is listed, no figure is contradicted by its second source, and the run "
	     "is "
	     "in the signed chain: its hash, its signature and the digest over its records were checked when this page was "
	     "made. "
	     "What no record can prove is said under <a href=\"#evidence\">evidence</a>.</p>\n</aside>\n");
}
