/* SPDX-License-Identifier: Apache-2.0 */
/* What the run used of what it might use, and how far the sources of each figure agree. */
#include <string.h>

#include "report/page.h"
#include "report/parts.h"

/* ---- two sources ---- */

static double apart(double a, double b)
{
	return a > b ? a - b : b - a;
}

/* CPU time: both measure the same, one at each task's end and one in its cgroup. */
static enum agreement compare_cpu(double value, double checked)
{
	double d = apart(value, checked);

	return d < 0.1 ? AGREE_SAME : d <= 5 || d <= value * 0.02 ? AGREE_NEAR : AGREE_DIFFER;
}

/*
 * Memory: the largest process is a part of the whole, but for pages that it shares and that are charged to somebody else: an
 * interpreter's, of which each sandbox is a copy. No more than so many are that.
 */
#define SHARED_PAGES_MAX (256.0 * 1024 * 1024)

static enum agreement compare_memory(double value, double checked)
{
	return checked <= value * 1.02 + SHARED_PAGES_MAX ? AGREE_BOUND : AGREE_DIFFER;
}

/* Output: what was written to anything at all is at least what came out of the pipes. */
static enum agreement compare_output(double value, double checked)
{
	return checked >= value ? AGREE_BOUND : AGREE_DIFFER;
}

/* Network: listed flows are all there is, unless some are not listed, which is said elsewhere. */
static enum agreement compare_net(double value, double checked)
{
	return checked == value ? AGREE_SAME : checked < value ? AGREE_BOUND : AGREE_DIFFER;
}

const struct figure figures[FIGURES] = {
    {"CPU time", "CPU time", "cpu_ms", true, compare_cpu, NULL},
    {"Peak memory", "peak memory", "memory_peak_bytes", false, compare_memory,
     "one process at its largest, pages that it shares included"},
    {"Output", "output", "output_bytes", false, compare_output, "an upper bound: whatever was written to anything"},
    {"Bytes sent", "bytes sent", "net_bytes", false, compare_net, "of the flows that are listed"},
};

enum agreement figure_agreement(const struct figure *f, const json_t *run)
{
	const json_t *use = member(member(run, "usage"), f->member), *checked = member(use, "checked");

	if (!has_number(use, "value") || !has_number(checked, "value"))
		return AGREE_UNKNOWN;
	return f->compare(member_number(use, "value"), member_number(checked, "value"));
}

static const char *amount(char *ret, const struct figure *f, const json_t *from)
{
	if (!has_number(from, "value"))
		return "not measured";
	return f->is_time ? words_ms(ret, member_number(from, "value")) : words_bytes(ret, member_count(from, "value"));
}

/* Exactly, where the amount beside it is rounded. */
static void source_cell(struct html *h, const struct figure *f, const json_t *from)
{
	html(h, "<td>%s", amount(WORDS_ROOM, f, from));
	if (!f->is_time && member_count(from, "value") >= 1024)
		html(h, "<br><span class=\"soft\">%s bytes</span>", COUNT(member_count(from, "value")));
	if (member_text(from, "source")[0])
		html(h, "<br><span class=\"soft\">%s</span>", member_text(from, "source"));
	html(h, "</td>");
}

static void difference_cell(struct html *h, const struct figure *f, const json_t *run)
{
	const json_t *use = member(member(run, "usage"), f->member);
	enum agreement agreement = figure_agreement(f, run);
	double value = member_number(use, "value"), checked = member_number(member(use, "checked"), "value"),
	       d = apart(value, checked);
	const char *sign = checked >= value ? "+" : "−", *text = f->is_time ? MS(d) : BYTES((uint64_t)d);

	if (agreement == AGREE_UNKNOWN) {
		html(h, "<td>can’t be checked</td></tr>\n");
		return;
	}
	html(h, "<td>");
	if (agreement == AGREE_DIFFER)
		html(h, "<span class=\"differs\">differs</span><br>");
	if (d > 0)
		html(h, "%s%s", sign, text);
	else
		html(h, "none");
	if (d > 0 && value > 0)
		html(h, " (%s%.1f %%)", sign, d * 100 / value);
	if (f->bound && d > 0)
		html(h, "<br><span class=\"soft\">%s</span>", f->bound);
	html(h, "</td></tr>\n");
}

static void sources_table(struct html *h, const json_t *run)
{
	static const char *const heads[] = {"Figure", "As recorded", "Second source", "Difference", NULL};
	const json_t *usage = member(run, "usage");

	if (!json_is_object(usage))
		return;
	html(h, "<h3>Both sources of each figure</h3>\n");
	table_open(h, "Each figure, the source that it is checked against, and how far they are apart", heads);
	for (size_t i = 0; i < FIGURES; i++) {
		const json_t *use = member(usage, figures[i].member);

		if (!json_is_object(use))
			continue;
		html(h, "<tr><th scope=\"row\">%s</th>", figures[i].title);
		source_cell(h, &figures[i], use);
		source_cell(h, &figures[i], member(use, "checked"));
		difference_cell(h, &figures[i], run);
	}
	table_close(h);
}

/* ---- limits ---- */

struct row {
	const char *what;
	bool known;	    /* there is a figure of its use */
	double used, limit; /* limit 0: none */
	const char *used_text, *limit_text;
};

static void bar(struct html *h, double share)
{
	double width = share > 1 ? 100 : share * 100;

	html(h,
	     "<svg class=\"bar\" viewBox=\"0 0 100 6\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"track\" "
	     "width=\"100\" height=\"6\"/><rect class=\"%s\" width=\"%.2f\" height=\"6\"/></svg>",
	     share >= 1 ? "full" : "fill", width > 0 && width < 0.5 ? 0.5 : width);
}

static void limit_row(struct html *h, struct row r)
{
	if (!r.known && r.limit <= 0)
		return;
	html(h, "<tr><th scope=\"row\">%s</th><td class=\"number\">%s</td><td class=\"number\">%s</td>", r.what,
	     r.known ? r.used_text : "not measured", r.limit > 0 ? r.limit_text : "none of its own");
	if (!r.known || r.limit <= 0) {
		html(h, "<td class=\"number\"></td><td></td></tr>\n");
		return;
	}
	html(h, "<td class=\"number\">%.1f %%</td><td>", r.used * 100 / r.limit);
	bar(h, r.used / r.limit);
	html(h, "</td></tr>\n");
}

/* The most processes at once of those moments that were looked at. */
static uint64_t most_processes(const json_t *run)
{
	const json_t *sample;
	uint64_t most = 0;
	size_t i;

	json_array_foreach(member(run, "timeline"), i, sample)
	{
		if (member_count(sample, "processes") > most)
			most = member_count(sample, "processes");
	}
	return most;
}

static void bytes_row(struct html *h, const char *what, const json_t *use, uint64_t limit)
{
	limit_row(h, (struct row){what, has_number(use, "value"), (double)member_count(use, "value"), (double)limit,
				  BYTES(member_count(use, "value")), BYTES(limit)});
}

static void limits_table(struct html *h, const json_t *run)
{
	static const char *const heads[] = {"What", "#Used", "#Limit", "#Share", "Of the limit", NULL};
	const json_t *limits = member(run, "limits"), *usage = member(run, "usage"), *cpu = member(usage, "cpu_ms");
	double took = member_number(run, "duration_ms"), percent = took > 0 ? member_number(cpu, "value") * 100 / took : 0;
	uint64_t deadline = member_count(limits, "timeout_s"), most = most_processes(run);
	char percent_text[WORDS_MAX], percent_limit[WORDS_MAX];

	if (!deadline)
		deadline = member_count(run, "timeout_s");
	snprintf(percent_text, sizeof percent_text, "%.0f %% of a CPU", percent);
	snprintf(percent_limit, sizeof percent_limit, "%s %%", COUNT(member_count(limits, "cpu_percent")));
	table_open(h, "What was used of what may be used", heads);
	limit_row(h, (struct row){"Time", has_number(run, "duration_ms"), took, (double)deadline * 1000, MS(took),
				  SOME(deadline, "second", "seconds")});
	limit_row(h, (struct row){"CPU, on average", has_number(cpu, "value") && took > 0, percent,
				  (double)member_count(limits, "cpu_percent"), percent_text, percent_limit});
	bytes_row(h, "Memory, at its peak", member(usage, "memory_peak_bytes"), member_count(limits, "memory_bytes"));
	bytes_row(h, "Output", member(usage, "output_bytes"), member_count(limits, "output_bytes"));
	limit_row(h, (struct row){"Processes and threads at once, as sampled", most > 0, (double)most,
				  (double)member_count(limits, "processes"), COUNT(most),
				  COUNT(member_count(limits, "processes"))});
	limit_row(h, (struct row){"Open files of one process", false, 0, (double)member_count(limits, "open_files"), "",
				  COUNT(member_count(limits, "open_files"))});
	table_close(h);
}

static void packets_row(struct html *h, const char *verdict, const json_t *packets)
{
	if (!json_is_object(packets))
		return;
	html(h, "<tr><td>");
	verdict_badge(h, verdict);
	html(h, "</td><td class=\"number\">%s</td><td class=\"number\">%s</td></tr>\n", COUNT(member_count(packets, "packets")),
	     COUNT(member_count(packets, "bytes")));
}

static void packets_table(struct html *h, const json_t *run)
{
	static const char *const heads[] = {"Verdict", "#Packets", "#Bytes", NULL};
	const json_t *packets = member(run, "packets");

	if (!json_is_object(packets))
		return;
	html(h, "<h3>Packets</h3>\n");
	table_open(h, "Packets on their way out, as the packet hook counted them", heads);
	packets_row(h, "denied", member(packets, "denied"));
	packets_row(h, "would_deny", member(packets, "would_deny"));
	packets_row(h, "allowed", member(packets, "allowed"));
	table_close(h);
}

void part_use(struct html *h, const json_t *run)
{
	if (!json_is_object(member(run, "usage")) && !json_is_object(member(run, "limits")))
		return;
	section_open(h, "use", "Use and limits");
	limits_table(h, run);
	sources_table(h, run);
	packets_table(h, run);
	section_close(h);
}
