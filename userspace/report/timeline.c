/* SPDX-License-Identifier: Apache-2.0 */
/* How its use went: four small drawings over the same time, and the numbers they are drawn from as a table. */
#include <string.h>

#include "report/page.h"
#include "report/parts.h"

#define MOMENTS_MAX 512

/* Of one drawing, in its own units; y from 0 to `top`. */
#define LEFT 2.0
#define RIGHT 398.0
#define UPPER 22.0
#define LOWER 122.0

struct moments {
	size_t count;
	double ms[MOMENTS_MAX + 1]; /* [0] is the beginning */
	const json_t *of[MOMENTS_MAX + 1];
	double end_ms;
};

struct drawing {
	const char *id, *title;
	const char *member, *second; /* the line, and a dashed one below it; second may be NULL */
	const char *second_name;
	bool is_rate; /* milliseconds of CPU since the moment before, drawn in per cent of one CPU */
	bool is_bytes;
	bool from_zero;	  /* a sum: 0 at the beginning */
	const char *what; /* after the number, e.g. "attempts" */
};

static const struct drawing drawings[] = {
    {"cpu", "CPU", "cpu_ms", NULL, NULL, true, false, true, "% of one CPU"},
    {"memory", "Memory", "memory_bytes", NULL, NULL, false, true, false, ""},
    {"attempts", "Attempts to reach the network, so far", "attempts", "denied", "denied", false, false, true, "attempts"},
    {"refused", "Refused system calls, so far", "refused", NULL, NULL, false, false, true, "refused"},
};
#define DRAWINGS (sizeof drawings / sizeof *drawings)

static void read_moments(struct moments *m, const json_t *run)
{
	const json_t *sample;
	size_t i;

	m->count = 1;
	json_array_foreach(member(run, "timeline"), i, sample)
	{
		double at = member_number(sample, "at_ms");

		/* Times that do not grow can't be drawn; the table has them. */
		if (m->count > MOMENTS_MAX || at <= m->ms[m->count - 1])
			continue;
		m->ms[m->count] = at;
		m->of[m->count++] = sample;
	}
	m->end_ms = m->ms[m->count - 1];
}

static double value_at(const struct moments *m, const struct drawing *d, const char *name, size_t i)
{
	double value = member_number(m->of[i], name), before = member_number(m->of[i - 1], name);

	if (!d->is_rate)
		return value;
	return value > before ? (value - before) * 100 / (m->ms[i] - m->ms[i - 1]) : 0;
}

/* The least round number that is not below: of bytes 1, 1.25 or 1.5 times a power of two, else 1, 2 or 5 of ten. */
static double round_up(double value, bool is_bytes)
{
	static const double tens[] = {1, 2, 5, 10}, twos[] = {1, 1.25, 1.5, 2};
	const double *steps = is_bytes ? twos : tens;
	double unit = is_bytes ? 1024 : 1, base = is_bytes ? 2 : 10;

	while (unit * base < value)
		unit *= base;
	for (size_t i = 0; i < 3; i++)
		if (steps[i] * unit >= value)
			return steps[i] * unit;
	return steps[3] * unit;
}

static const char *value_text(char *ret, const struct drawing *d, double value)
{
	if (d->is_bytes)
		return words_bytes(ret, (uint64_t)value);
	if (d->is_rate)
		snprintf(ret, WORDS_MAX, "%.0f %s", value, d->what);
	else
		snprintf(ret, WORDS_MAX, "%s %s", COUNT((uint64_t)value), d->what);
	return ret;
}
#define VALUE(d, value) value_text(WORDS_ROOM, (d), (value))

static double x_of(const struct moments *m, double ms)
{
	return LEFT + (RIGHT - LEFT) * ms / m->end_ms;
}

static double y_of(double value, double top)
{
	return LOWER - (LOWER - UPPER) * (value > top ? top : value) / top;
}

/* A rate holds for the time since the moment before and makes steps; everything else is a level at a moment. */
static void points(struct html *h, const struct moments *m, const struct drawing *d, const char *name, double top)
{
	if (d->from_zero && !d->is_rate)
		html(h, "%.1f,%.1f ", x_of(m, 0), y_of(0, top));
	for (size_t i = 1; i < m->count; i++) {
		double y = y_of(value_at(m, d, name, i), top);

		if (d->is_rate)
			html(h, "%.1f,%.1f ", x_of(m, m->ms[i - 1]), y);
		html(h, "%.1f,%.1f ", x_of(m, m->ms[i]), y);
	}
}

static double first_x(const struct moments *m, const struct drawing *d)
{
	return d->from_zero ? x_of(m, 0) : x_of(m, m->ms[1]);
}

static void axes(struct html *h, const struct moments *m, const struct drawing *d, double top)
{
	html(h, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", LEFT, UPPER - 6, VALUE(d, top));
	html(h, "<path class=\"grid\" d=\"M%.1f %.1fH%.1fM%.1f %.1fH%.1f\"/>\n", LEFT, UPPER, RIGHT, LEFT, (UPPER + LOWER) / 2,
	     RIGHT);
	html(h, "<path class=\"axis\" d=\"M%.1f %.1fH%.1f\"/>\n", LEFT, LOWER, RIGHT);
	html(h, "<text x=\"%.1f\" y=\"%.1f\">0</text>\n", LEFT, LOWER + 15);
	html(h, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", (LEFT + RIGHT) / 2, LOWER + 15,
	     MS(m->end_ms / 2));
	html(h, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", RIGHT, LOWER + 15, MS(m->end_ms));
}

/* Only where it is near enough to say something: a line far above everything would flatten the rest. */
static void limit_line(struct html *h, const struct drawing *d, double limit, double top)
{
	if (limit <= 0 || limit > top)
		return;
	html(h,
	     "<path class=\"limit\" d=\"M%.1f %.1fH%.1f\"/>\n<text class=\"denied\" x=\"%.1f\" y=\"%.1f\" "
	     "text-anchor=\"end\">limit %s"
	     "</text>\n",
	     LEFT, y_of(limit, top), RIGHT, RIGHT, y_of(limit, top) - 6, VALUE(d, limit));
}

static void lines(struct html *h, const struct moments *m, const struct drawing *d, double top)
{
	html(h, "<polygon class=\"area\" points=\"%.1f,%.1f ", first_x(m, d), LOWER);
	points(h, m, d, d->member, top);
	html(h, "%.1f,%.1f\"/>\n<polyline class=\"line\" points=\"", RIGHT, LOWER);
	points(h, m, d, d->member, top);
	html(h, "\"/>\n");
	if (!d->second)
		return;
	html(h, "<polyline class=\"line denied\" points=\"");
	points(h, m, d, d->second, top);
	html(h, "\"/>\n");
}

static double highest(const struct moments *m, const struct drawing *d, size_t *ret_at)
{
	double high = 0;

	*ret_at = m->count - 1;
	for (size_t i = 1; i < m->count; i++) {
		double value = value_at(m, d, d->member, i);

		if (value > high) {
			high = value;
			*ret_at = i;
		}
	}
	return high;
}

static double limit_of(const struct drawing *d, const json_t *run)
{
	return d->is_bytes  ? member_number(member(run, "limits"), "memory_bytes")
	       : d->is_rate ? member_number(member(run, "limits"), "cpu_percent")
			    : 0;
}

static void description(struct html *h, const struct moments *m, const struct drawing *d, double high, size_t at)
{
	html(h, "<desc id=\"chart-%s-text\">Over %s; ", d->id, MS(m->end_ms));
	if (d->from_zero && !d->is_rate)
		html(h, "%s in the end", VALUE(d, high));
	else
		html(h, "at most %s, reached at %s", VALUE(d, high), MS(m->ms[at]));
	if (d->second)
		html(h, ", %s of them %s", COUNT(member_count(m->of[m->count - 1], d->second)), d->second_name);
	html(h, ". The table below has the numbers.</desc>\n");
}

static void drawing(struct html *h, const struct moments *m, const struct drawing *d, const json_t *run)
{
	double limit = limit_of(d, run), high, top;
	size_t at;

	high = highest(m, d, &at);
	top = round_up(high > 0 ? high : 1, d->is_bytes);
	if (limit > top && limit < high * 2)
		top = limit;
	html(h, "<figure>\n<figcaption>%s", d->title);
	if (d->second)
		html(h, " <span class=\"soft\">(dashed: %s)</span>", d->second_name);
	html(h,
	     "</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 400 142\" role=\"img\" aria-labelledby=\"chart-%s "
	     "chart-%s-text\">\n<title id=\"chart-%s\">%s</title>\n",
	     d->id, d->id, d->id, d->title);
	description(h, m, d, high, at);
	axes(h, m, d, top);
	lines(h, m, d, top);
	limit_line(h, d, limit, top);
	html(h, "</svg>\n</figure>\n");
}

static void table(struct html *h, const json_t *run)
{
	static const char *const heads[] = {
	    "#Since the beginning", "#CPU time so far",	     "#Memory", "#Processes and threads", "#Attempts so far",
	    "#Denied so far",	    "#Calls refused so far", NULL};
	const json_t *sample;
	size_t i;

	html(h, "<details>\n<summary>The same as a table</summary>\n");
	table_open(h, "Moments of the run", heads);
	json_array_foreach(member(run, "timeline"), i, sample)
	{
		html(h,
		     "<tr><th scope=\"row\" class=\"number\">%s</th><td class=\"number\">%s</td><td class=\"number\">%s</td>",
		     MS(member_number(sample, "at_ms")), MS(member_number(sample, "cpu_ms")),
		     BYTES(member_count(sample, "memory_bytes")));
		html(h, "<td class=\"number\">%s</td>",
		     member_count(sample, "processes") ? COUNT(member_count(sample, "processes")) : "not known");
		html(h, "<td class=\"number\">%s</td><td class=\"number\">%s</td><td class=\"number\">%s</td></tr>\n",
		     COUNT(member_count(sample, "attempts")), COUNT(member_count(sample, "denied")),
		     COUNT(member_count(sample, "refused")));
	}
	table_close(h);
	html(h, "</details>\n");
}

void part_timeline(struct html *h, const json_t *run)
{
	struct moments m = {0};

	section_open(h, "timeline", "Over time");
	read_moments(&m, run);
	if (m.count < 2) {
		html(h, "<p>There are no moments on record: the run was too short for them, or nobody looked.</p>\n");
		section_close(h);
		return;
	}
	html(h, "<div class=\"charts\">\n");
	for (size_t i = 0; i < DRAWINGS; i++)
		drawing(h, &m, &drawings[i], run);
	html(h, "</div>\n");
	table(h, run);
	section_close(h);
}
