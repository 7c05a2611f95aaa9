/* SPDX-License-Identifier: Apache-2.0 */
/* Many runs folded into what a page can show: sums, a row for each run, one for each destination that a project was denied. */
#include "report/period.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/words.h"

const char *const sum_names[SUMS] = {"runs", "attempts", "denied", "would_deny", "allowed", "lost"};

struct report_period *report_period_new(void)
{
	struct report_period *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->runs = json_object();
	p->projects = json_object();
	p->policies = json_object();
	p->ends = json_object();
	p->destinations = json_object();
	p->left_out = json_object();
	p->use = json_object();
	return p->use && p->runs && p->projects && p->policies && p->ends && p->destinations && p->left_out
		   ? p
		   : report_period_free(p);
}

struct report_period *report_period_free(struct report_period *p)
{
	if (!p)
		return NULL;
	json_decref(p->runs);
	json_decref(p->projects);
	json_decref(p->policies);
	json_decref(p->ends);
	json_decref(p->destinations);
	json_decref(p->left_out);
	json_decref(p->use);
	free(p);
	return NULL;
}

int period_count(json_t *object, const char *name, uint64_t n)
{
	const uint64_t sum = member_count(object, name) + n;

	return json_object_set_new(object, name, json_integer((json_int_t)sum));
}

/* What one run adds to the sums of whatever it belongs to. */
static void sums_of(const json_t *run, uint64_t ret[SUMS])
{
	const json_t *egress = member(run, "egress");

	ret[SUM_RUNS] = 1;
	for (int i = SUM_ATTEMPTS; i < SUMS; i++)
		ret[i] = member_count(egress, sum_names[i]);
}

json_t *period_group(json_t *groups, const char *name)
{
	json_t *group;

	if (!json_object_get(groups, name) && json_object_size(groups) >= PERIOD_GROUPS_MAX)
		name = "all others";
	group = json_object_get(groups, name);
	if (group)
		return group;
	group = json_object();
	return json_object_set_new_nocheck(groups, name, group) < 0 ? NULL : group;
}

static int add_to_group(json_t *groups, const char *name, const uint64_t sums[SUMS])
{
	json_t *group = period_group(groups, name);
	int bad = !group;

	for (int i = 0; i < SUMS && !bad; i++)
		bad = period_count(group, sum_names[i], sums[i]);
	return bad;
}

/* Of a row, beside what it shows: what places_sort() goes by. Its project and count are members of every row. */
static int rate(struct report_period *p, json_t *row, uint64_t part, unsigned kind)
{
	return json_object_set_new(row, "part", json_integer((json_int_t)part)) |
	       json_object_set_new(row, "kind", json_integer((json_int_t)kind)) |
	       json_object_set_new(row, "order", json_integer((json_int_t)p->order++));
}

/* ---- destinations ---- */

static const char *const destination_members[] = {"verdict", "protocol", "address", "port", "dns_name", "rule_name", "reason"};
#define DESTINATION_MEMBERS (sizeof destination_members / sizeof *destination_members)

/* Denied before what is only watched, and with a name, which is where data leaves in, before without: lower is first. */
static unsigned kind_of(const json_t *event)
{
	return (strcmp(member_text(event, "verdict"), "denied") != 0) * 2U + (member_text(event, "dns_name")[0] == '\0');
}

static json_t *new_destination(struct report_period *p, const json_t *event, const json_t *run)
{
	json_t *row = json_object(), *value;
	int bad = row ? 0 : -1;

	for (size_t i = 0; i < DESTINATION_MEMBERS && !bad; i++)
		if ((value = json_object_get(event, destination_members[i])))
			bad = json_object_set(row, destination_members[i], value);
	bad |= json_object_set_new(row, "project", json_string(member_text(run, "project"))) |
	       json_object_set_new(row, "run_ids", json_array()) | rate(p, row, p->sums[SUM_RUNS], kind_of(event));
	if (bad) {
		json_decref(row);
		return NULL;
	}
	return row;
}

/* Once a run, however many of its events are of this destination: they come together. */
static int name_run(json_t *row, const char *run_id)
{
	json_t *ids = json_object_get(row, "run_ids");

	if (!strcmp(member_text(row, "last_run"), run_id))
		return 0;
	if (json_array_size(ids) < PERIOD_RUNS_NAMED && json_array_append_new(ids, json_string(run_id)) < 0)
		return -1;
	return json_object_set_new(row, "last_run", json_string(run_id)) | period_count(row, "runs", 1);
}

static int widen_time(json_t *row, const json_t *event)
{
	const char *first = member_text(event, "first"), *last = member_text(event, "last"), *was;
	int bad = 0;

	/* All of one form and in UTC: their order as text is that of time. */
	was = member_text(row, "first");
	if (first[0] && (!was[0] || strcmp(first, was) < 0))
		bad |= json_object_set(row, "first", json_object_get(event, "first"));
	was = member_text(row, "last");
	if (last[0] && strcmp(last, was) > 0)
		bad |= json_object_set(row, "last", json_object_get(event, "last"));
	return bad;
}

/* Of the same project and the same in all that the page shows of it. No text that the record can have is as long as `size`. */
static void destination_key(char *ret, size_t size, const json_t *event, const json_t *run)
{
	int at = snprintf(ret, size, "%s|", member_text(run, "project"));

	for (size_t i = 0; i < DESTINATION_MEMBERS && at >= 0 && (size_t)at < size; i++) {
		const json_t *value = member(event, destination_members[i]);

		at += snprintf(ret + at, size - (size_t)at, "%s%lld|", json_is_string(value) ? json_string_value(value) : "",
			       json_is_integer(value) ? (long long)json_integer_value(value) : -1LL);
	}
}

static int add_destination(struct report_period *p, const json_t *event, const json_t *run)
{
	char key[1600];
	json_t *row;

	destination_key(key, sizeof key, event, run);
	row = json_object_get(p->destinations, key);
	if (!row) {
		if (json_object_size(p->destinations) >= PERIOD_DESTINATIONS_KEPT) {
			p->thinned = true;
			if (period_thin(p, &p->destinations, PERIOD_DESTINATIONS_KEPT / 2) < 0)
				return -1;
		}
		row = new_destination(p, event, run);
		if (!row || json_object_set_new_nocheck(p->destinations, key, row) < 0)
			return -1;
	}
	return period_count(row, "count", member_count(event, "count")) | name_run(row, member_text(run, "run_id")) |
	       widen_time(row, event);
}

static int add_denied(struct report_period *p, const json_t *run)
{
	const json_t *event;
	size_t i;
	int bad = 0;

	json_array_foreach(member(run, "events"), i, event)
	{
		if (strcmp(member_text(event, "verdict"), "allowed") != 0)
			bad |= add_destination(p, event, run);
	}
	return bad;
}

/* ---- runs ---- */

/* Nothing was denied and nothing is missing. */
static bool is_quiet(const json_t *run)
{
	const json_t *egress = member(run, "egress");

	return !member_count(egress, "denied") && !member_count(egress, "would_deny") && !member_count(egress, "lost");
}

static int add_row(struct report_period *p, const json_t *run)
{
	static const char *const members[] = {"run_id", "project", "agent",	  "policy",	 "state",     "began", "ended",
					      "egress", "chain",   "termination", "duration_ms", "exit_code", "usage"};
	json_t *row = json_object(), *value;
	int bad = row ? 0 : -1;

	for (size_t i = 0; i < sizeof members / sizeof *members && !bad; i++)
		if ((value = json_object_get(run, members[i])))
			bad = json_object_set(row, members[i], value);
	if (!bad)
		bad = rate(p, row, p->sums[SUM_RUNS], is_quiet(run));
	if (bad) {
		json_decref(row);
		return -1;
	}
	if (json_object_set_new_nocheck(p->runs, member_text(run, "run_id"), row) < 0)
		return -1;
	return json_object_size(p->runs) < PERIOD_RUNS_KEPT ? 0 : period_thin(p, &p->runs, REPORT_RUNS_MAX);
}

static void count_states(struct report_period *p, const json_t *run)
{
	const json_t *chain = member(run, "chain");
	uint64_t n = member_count(chain, "n");
	bool ended = json_is_object(member(run, "termination"));

	p->interrupted += !strcmp(member_text(run, "state"), "interrupted");
	p->running += !strcmp(member_text(run, "state"), "running");
	p->unchained += ended && !json_is_object(chain);
	p->is_unsigned += json_is_object(chain) && !json_is_true(member(chain, "signed"));
	p->unwritten += member_count(run, "records_unwritten");
	p->late += json_array_size(member(run, "late")) + member_count(run, "late_omitted");
	p->gaps += json_array_size(member(run, "gaps"));
	if (n && (!p->first_n || n < p->first_n))
		p->first_n = n;
	if (n > p->last_n)
		p->last_n = n;
}

static const json_t *used(const json_t *run, const char *what)
{
	return member(member(member(run, "usage"), what), "value");
}

/* What was measured of a run; what was not is in no sum, and the number of runs says so. */
static int add_use(struct report_period *p, const json_t *run)
{
	const json_t *cpu = used(run, "cpu_ms"), *memory = used(run, "memory_peak_bytes"), *net = used(run, "net_bytes");
	json_t *group = period_group(p->use, member_text(run, "project"));
	int bad = !group;

	if (bad)
		return bad;
	bad |= period_count(group, "measured", json_is_number(cpu) && json_is_number(memory) && json_is_number(net));
	bad |= json_object_set_new(group, "cpu_ms", json_real(member_number(group, "cpu_ms") + json_number_value(cpu)));
	bad |= period_count(group, "net_bytes", json_is_number(net) ? (uint64_t)json_number_value(net) : 0);
	if (json_number_value(memory) > member_number(group, "memory_peak_bytes"))
		bad |= json_object_set(group, "memory_peak_bytes", (json_t *)memory);
	return bad;
}

int report_period_add(struct report_period *p, const json_t *run)
{
	const char *end = member_text(member(run, "termination"), "reason");
	uint64_t sums[SUMS];
	int bad = 0;

	sums_of(run, sums);
	for (int i = 0; i < SUMS; i++)
		p->sums[i] += sums[i];
	count_states(p, run);
	bad |= add_row(p, run);
	bad |= add_to_group(p->projects, member_text(run, "project"), sums);
	bad |= add_to_group(p->policies, member_text(run, "policy"), sums);
	bad |= add_to_group(p->ends, end[0] ? end : member_text(run, "state"), sums);
	bad |= add_use(p, run);
	bad |= add_denied(p, run);
	return bad ? -ENOMEM : 0;
}

void report_period_not_read(struct report_period *p, uint64_t runs)
{
	p->not_read += runs;
}
