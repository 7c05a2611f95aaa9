/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of the record: what strangers chose stays text, what is missing is said first, and sentences say what the numbers say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "report/places.h"
#include "report/html.h"
#include "report/parts.h"
#include "report/report.h"
#include "report/words.h"

#define FIXTURES "tests/report/fixtures/"

static const struct report_about about = {.version = "test", .made = "2026-11-30T12:00:00.000000000Z", .place = ""};

static json_t *load(const char *path)
{
	json_error_t error;
	json_t *json = json_load_file(path, 0, &error);

	if (!json)
		fail_msg("%s: %s", path, error.text);
	return json;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%.4000s", part, text);
}

static void assert_lacks(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" in:\n%.4000s", part, strstr(text, part));
}

/* ---- the writer ---- */

static char *escaped(const char *text)
{
	struct html h = {0};
	char *done;

	html(&h, "%s", text);
	done = html_take(&h, NULL);
	assert_non_null(done);
	return done;
}

static void test_escapes(void **state)
{
	static const struct {
		const char *text, *written;
	} rows[] = {
	    {"plain", "plain"},
	    {"", ""},
	    {NULL, ""},
	    {"<b a=\"1\" c='2'>&amp;", "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;"},
	    {"a\tb\nc\r\x1b[31m\x7f", "a\\u{9}b\\u{a}c\\u{d}\\u{1b}[31m\\u{7f}"},
	    {"\xc2\x85\xc2\xa0\xc2\xad", "\\u{85}\xc2\xa0\\u{ad}"},
	    {"\xe2\x80\xaegpj.exe", "\\u{202e}gpj.exe"}, /* right-to-left override */
	    {"a\xe2\x80\x8b\xe2\x81\xa6z", "a\\u{200b}\\u{2066}z"},
	    {"\xf3\xa0\x81\xa1", "\\u{e0061}"}, /* a tag character */
	    {"\xef\xbf\xbe", "\\u{fffe}"},
	    {"\xf0\x9f\x98\x80 \xc3\xa9", "\xf0\x9f\x98\x80 \xc3\xa9"},
	    {"\xff"
	     "a\xc3(\xed\xa0\x80\xc0\xbc",
	     "\xef\xbf\xbd"
	     "a\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char *written = escaped(rows[i].text);

		assert_string_equal(written, rows[i].written);
		free(written);
	}
}

/* No byte string at all gets a character of markup through. */
static void test_any_bytes(void **state)
{
	uint32_t seed = 12345;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		char text[40], *written;
		size_t len = round % 39;

		for (size_t i = 0; i < len; i++) {
			seed = seed * 1664525 + 1013904223;
			text[i] = (char)(seed >> 24 ? seed >> 24 : 1);
		}
		text[len] = '\0';
		written = escaped(text);
		assert_null(strpbrk(written, "<>\"'\n\r\t\x1b\x7f"));
		free(written);
	}
}

static void test_templates(void **state)
{
	struct html h = {0};
	size_t len = 0;
	char *text;

	(void)state;
	html(&h, "<i a=\"%s\">%d %u %zu %lld %llu %.2f %%</i>", "\"", -1, 2u, (size_t)3, -4LL, 5ULL, 6.255);
	html_literal(&h, "<p>50%</p>");
	html_lines(&h, "a\n\t<b>\x01");
	text = html_take(&h, &len);
	assert_string_equal(text, "<i a=\"&quot;\">-1 2 3 -4 5 6.25 %</i><p>50%</p>a\n\t&lt;b&gt;\\u{1}");
	assert_int_equal(len, strlen(text));
	free(text);
	html(&h, "%x", 1u); /* one that there is not */
	assert_null(html_take(&h, NULL));
	text = html_take(&h, &len); /* it begins anew, empty */
	assert_string_equal(text, "");
	free(text);
}

/* Nobody writes around it: the functions behind the macros are named in html.c and html.h alone, and nothing else writes. */
static void test_nothing_writes_around(void **state)
{
	static const char *const forbidden[] = {"html_template_", "html_literal_", "->text", "fwrite", "json_dump", "strcat"};
	glob_t files;

	(void)state;
	assert_int_equal(glob("userspace/report/*.c", 0, NULL, &files), 0);
	assert_true(files.gl_pathc > 10);
	for (size_t i = 0; i < files.gl_pathc; i++) {
		static char text[1 << 18];
		FILE *f = fopen(files.gl_pathv[i], "r");

		assert_non_null(f);
		text[fread(text, 1, sizeof text - 1, f)] = '\0';
		fclose(f);
		for (size_t k = 0; k < sizeof forbidden / sizeof *forbidden && !strstr(files.gl_pathv[i], "/html.c"); k++)
			if (strstr(text, forbidden[k]))
				fail_msg("%s has %s", files.gl_pathv[i], forbidden[k]);
	}
	globfree(&files);
}

/* ---- pages ---- */

static char *page_of(const json_t *fixture)
{
	char *page;

	if (json_object_get(fixture, "runs")) {
		struct report_period *p = report_period_new();
		const json_t *run;
		size_t i;

		json_array_foreach(json_object_get(fixture, "runs"), i, run)
		{
			assert_int_equal(report_period_add(p, run), 0);
		}
		page = report_period_page(p, json_object_get(fixture, "period"), &about, NULL);
		report_period_free(p);
	} else {
		page = report_run(json_object_get(fixture, "run"), json_object_get(fixture, "policies"), &about, NULL);
	}
	assert_non_null(page);
	return page;
}

/* All tags with their attributes' names, values taken out; every one has to be closed and its values quoted. malloc'd. */
static char *skeleton(const char *page)
{
	char *ret = malloc(strlen(page) + 1), *to = ret;
	bool tag = false, value = false;

	assert_non_null(ret);
	for (; *page; page++) {
		if (value) {
			value = *page != '"';
			continue;
		}
		if (*page == '<') {
			assert_false(tag);
			tag = true;
		}
		if (tag && *page == '"')
			value = true;
		if (tag)
			*to++ = *page;
		if (*page == '>')
			tag = false;
	}
	assert_false(tag || value);
	*to = '\0';
	return ret;
}

/* Calls fn with each string below `json` and the place that it can be replaced at. */
static void each_string(json_t *json, void (*fn)(void *ctx, json_t *string), void *ctx)
{
	const char *name;
	json_t *value;
	size_t i;

	if (json_is_string(json))
		fn(ctx, json);
	json_object_foreach(json, name, value)
	{
		each_string(value, fn, ctx);
	}
	json_array_foreach(json, i, value)
	{
		each_string(value, fn, ctx);
	}
}

static const char hostile[] =
    "</td></title></svg></pre><evil a=\"\"' evil=1 evil>&#60;evil&lt; --><script>evil\xe2\x80\xae\n%s%n";
static const char harmless[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

struct attack {
	json_t *fixture;
	unsigned tried;
};

/* Puts the one and the other into this place: the markup must be the same. */
static void attack(void *ctx, json_t *string)
{
	struct attack *a = ctx;
	char *was = strdup(json_string_value(string)), *pages[2], *markup[2];

	for (int i = 0; i < 2; i++) {
		assert_int_equal(json_string_set(string, i ? hostile : harmless), 0);
		pages[i] = page_of(a->fixture);
		markup[i] = skeleton(pages[i]);
	}
	if (strcmp(markup[0], markup[1]) != 0)
		fail_msg("other markup when \"%s\" is hostile", was);
	assert_lacks(pages[1], "<evil");
	assert_lacks(pages[1], "\xe2\x80\xae");
	assert_int_equal(json_string_set(string, was), 0);
	for (int i = 0; i < 2; i++) {
		free(pages[i]);
		free(markup[i]);
	}
	free(was);
	a->tried++;
}

static void poison(void *ctx, json_t *string)
{
	assert_int_equal(json_string_set(string, ctx), 0);
}

static void test_hostile_text(void **state)
{
	static const char *const fixtures[] = {FIXTURES "tool-call.json", FIXTURES "lost.json", FIXTURES "attached.json",
					       FIXTURES "period.json"};

	(void)state;
	for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
		struct attack a = {.fixture = load(fixtures[i])};
		char *page, *markup;

		each_string(a.fixture, attack, &a);
		assert_true(a.tried > 50);
		/* .. and everywhere at once. */
		each_string(a.fixture, poison, (void *)hostile);
		page = page_of(a.fixture);
		markup = skeleton(page);
		assert_lacks(markup, "evil");
		free(page);
		free(markup);
		json_decref(a.fixture);
	}
}

/* Whatever is missing or of another type, there is a page, and its markup is whole. */
static void break_members(json_t *fixture, json_t *at, unsigned *tried)
{
	json_t *const values[] = {json_null(),	json_integer(-7), json_string("x"),
				  json_array(), json_object(),	  json_real(1e300)};
	const char *name;
	json_t *value;
	void *tmp;
	size_t i;

	json_object_foreach_safe(at, tmp, name, value)
	{
		json_t *was = json_incref(value);

		for (i = 0; i < sizeof values / sizeof *values; i++) {
			char *page, *markup;

			json_object_set(at, name, values[i]);
			page = page_of(fixture);
			markup = skeleton(page);
			assert_has(markup, "</html>");
			free(page);
			free(markup);
			++*tried;
		}
		json_object_set_new(at, name, was);
		break_members(fixture, was, tried);
	}
	json_array_foreach(at, i, value)
	{
		if (i < 2) /* the others are of the same kind */
			break_members(fixture, value, tried);
	}
	for (i = 0; i < sizeof values / sizeof *values; i++)
		json_decref(values[i]);
}

static void test_broken_records(void **state)
{
	static const char *const fixtures[] = {FIXTURES "tool-call.json", FIXTURES "attached.json", FIXTURES "period.json"};

	(void)state;
	for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
		json_t *fixture = load(fixtures[i]);
		unsigned tried = 0;

		break_members(fixture, fixture, &tried);
		assert_true(tried > 200);
		json_decref(fixture);
	}
}

/* ---- what is missing ---- */

static void set(json_t *run, const char *path, const char *json)
{
	char name[64];
	const char *dot;
	json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);

	assert_non_null(value);
	while ((dot = strchr(path, '.'))) {
		snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
		run = json_object_get(run, name);
		path = dot + 1;
	}
	assert_int_equal(json_object_set_new(run, path, value), 0);
}

/* Each loss that a record can tell of takes the calm sentence away and is told itself. */
static void test_every_loss_is_told(void **state)
{
	static const struct {
		const char *path, *value, *told;
	} rows[] = {
	    {"state", "\"interrupted\"", "The run was interrupted"},
	    {"state", "\"running\"", "had not ended when this report was made"},
	    {"state", "\"unknown\"", "had not ended when this report was made"},
	    {"egress.lost", "5",
	     "5 of 54 attempts to reach the network are counted and not listed: where they went is not known"},
	    {"egress.lost", "1", "1 of 54 attempts to reach the network is counted and not listed: where it went is not known"},
	    {"egress.events_missing", "12", "12 events of the kernel’s did not arrive"},
	    {"records_unwritten", "2", "2 records could not be written"},
	    {"events_omitted", "7", "7 records of attempts did not fit"},
	    {"policy_changes_omitted", "3", "3 entries are left out of a list: policy_changes_omitted"},
	    {"execs.unlisted", "1", "1 program was started and counted, and not listed"},
	    {"execs", "{\"count\": null, \"unlisted\": null, \"programs\": []}", "Which programs were started is not known"},
	    {"execs.programs_omitted", "72", "72 entries are left out of a list: programs_omitted"},
	    {"refused_syscalls.calls_omitted", "1", "1 entry is left out of a list: calls_omitted"},
	    {"refused_syscalls", "null", "Which system calls were refused is not known"},
	    {"gaps",
	     "[{\"since\": \"2026-11-30T11:00:00.000000000Z\", \"text\": \"nobody wrote\", \"attempts\": 4, \"denied\": 3}]",
	     "nobody wrote (4 attempts, 3 denied)"},
	    {"drift",
	     "[{\"time\": \"2026-11-30T11:00:00.000000000Z\", \"name\": \"links\", \"over\": false, \"text\": \"a link is "
	     "gone\"}]",
	     "(links): a link is gone"},
	    {"usage.cpu_ms.checked.value", "500", "The two sources of CPU time differ by more than they may"},
	    {"usage.output_bytes.checked.value", "3", "The two sources of output differ by more than they may"},
	    {"usage.memory_peak_bytes.checked.value", "999999999",
	     "The two sources of peak memory differ by more than they may"},
	    {"usage.net_bytes.checked.value", "99999999", "The two sources of bytes sent differ by more than they may"},
	    {"chain", "null", "The run is not in the chain of hashes"},
	    {"chain.signed", "false", "Its entry in the chain is not signed"},
	    {"target", "{\"coverage\": \"partial\"}", "coverage: partial"},
	    {"counters_readable", "false", "The kernel’s counters could not be read at the end"},
	    {"checked", "null", "Whether the record is what was written was not checked when this page was made (nobody did)"},
	    {"checked", "{\"problem\": \"there is no key\"}", "was not checked when this page was made (there is no key)"},
	    {"checked", "{\"intact\": false, \"findings\": [{\"kind\": \"changed\", \"n\": 77, \"text\": \"it was altered\"}]}",
	     "Nothing that was found is about this run"},
	    {"checked", "{\"intact\": false, \"findings\": [], \"findings_omitted\": 9}", "9 findings about something else"},
	    {"late", "[{\"type\": \"run_end\", \"seq\": 9}]", "1 record came after the run was summed up"},
	};
	static const char calm[] = "Nothing is known to be missing";
	json_t *fixture = load(FIXTURES "tool-call.json");
	char *page = page_of(fixture);

	(void)state;
	assert_has(page, calm);
	free(page);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		json_t *copy = json_deep_copy(fixture);

		set(json_object_get(copy, "run"), rows[i].path, rows[i].value);
		page = page_of(copy);
		assert_has(page, rows[i].told);
		assert_lacks(page, calm);
		/* Above everything else. */
		assert_true(strstr(page, rows[i].told) < strstr(page, "Who ran what</h2>"));
		free(page);
		json_decref(copy);
	}
	json_decref(fixture);
}

/* ---- sentences ---- */

/* A record that was changed is told before anything that it says, and no page of it is a calm one. */
static void test_findings(void **state)
{
	json_t *fixture = load(FIXTURES "lost.json");
	char *page = page_of(fixture);

	(void)state;
	assert_has(page, "The record is not what was written");
	assert_has(page, "<strong>changed</strong>");
	assert_has(page, "1 finding about something else in the record");
	assert_lacks(page, "sandbox-another");
	assert_true(strstr(page, "its records are not what was hashed") < strstr(page, "What this record does not show"));
	assert_has(page, "what was found stands at the top");
	free(page);
	json_decref(fixture);
}

static void test_verdicts(void **state)
{
	static const struct {
		const char *run, *verdict;
	} rows[] = {
	    {"{\"policy\": \"snippet\", \"egress\": {\"attempts\": 0}}", "No attempt to reach the network."},
	    {"{\"policy\": \"snippet\", \"egress\": {\"attempts\": 3, \"denied\": 3}}",
	     "3 attempts to reach the network, all denied by policy snippet."},
	    {"{\"policy\": \"snippet\", \"egress\": {\"attempts\": 1, \"denied\": 1}}",
	     "1 attempt to reach the network, denied by policy snippet."},
	    {"{\"policy\": \"open\", \"egress\": {\"attempts\": 2, \"allowed\": 2}}",
	     "2 attempts to reach the network, both allowed by policy open."},
	    {"{\"policy\": \"p\", \"egress\": {\"attempts\": 1204, \"denied\": 4, \"allowed\": 1200}}",
	     "1,204 attempts to reach the network, judged by policy p: 4 denied, 1,200 allowed."},
	    {"{\"policy\": \"watch\", \"egress\": {\"attempts\": 2, \"would_deny\": 1, \"allowed\": 1}}",
	     "2 attempts to reach the network, judged by policy watch: 1 let through that an enforced policy would have "
	     "denied, 1 "
	     "allowed."},
	    {"{\"policy\": \"a\", \"policy_changes\": [{}], \"egress\": {\"attempts\": 2, \"denied\": 2}}",
	     "2 attempts to reach the network, both denied by the policies in force, a first."},
	    {"{\"policy\": \"a\", \"egress\": {\"attempts\": 2, \"denied\": 2, \"inbound\": 1, \"exact\": false}}",
	     "2 attempts to reach the network so far, both denied by policy a; 1 packet from outside refused."},
	    {"{\"policy\": \"a\", \"egress\": {\"attempts\": 3, \"denied\": 3}, \"target\": {\"canary\": {\"attempts\": 2}}}",
	     "3 attempts to reach the network, all denied by policy a; 2 of them Weir’s own, to try the policy."},
	    {"{}", "No attempt to reach the network."},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		json_t *run = json_loads(rows[i].run, 0, NULL);
		char *verdict = words_verdict(run);

		assert_string_equal(verdict, rows[i].verdict);
		free(verdict);
		json_decref(run);
	}
}

static void test_endings(void **state)
{
	static const struct {
		const char *run, *ending;
	} rows[] = {
	    {"{\"state\": \"ended\", \"exit_code\": 0, \"termination\": {\"reason\": \"exit\", \"signal\": null, \"detail\": "
	     "\"\"}}",
	     "It ended by itself, exit code 0."},
	    {"{\"state\": \"ended\", \"exit_code\": 139, \"termination\": {\"reason\": \"signal\", \"signal\": \"SIGSEGV\"}}",
	     "It was ended by a signal, SIGSEGV, exit code 139."},
	    {"{\"state\": \"ended\", \"exit_code\": -1, \"termination\": {\"reason\": \"timeout\", \"detail\": \"timed out "
	     "after 20s\"}}",
	     "It was stopped at its deadline, exit code -1 (timed out after 20s)."},
	    {"{\"state\": \"ended\", \"session\": true, \"termination\": {\"reason\": \"cancelled\", \"signal\": \"SIGKILL\"}}",
	     "It ended when it was closed, or its client left."},
	    {"{\"state\": \"ended\", \"termination\": {\"reason\": \"hour\"}}",
	     "This part of the record ends after an hour; the next goes on from there."},
	    {"{\"state\": \"ended\", \"termination\": {\"reason\": \"moonlight\"}}",
	     "It ended for a reason that this version of Weir does not know (moonlight)."},
	    {"{\"state\": \"running\", \"termination\": null}", "It has not ended: it was running when this report was made."},
	    {"{\"state\": \"interrupted\", \"termination\": null}",
	     "It has no end on record: Weir itself stopped while it ran, and what it did after the last record is not known."},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		json_t *run = json_loads(rows[i].run, 0, NULL);
		char *ending = words_ending(run);

		assert_string_equal(ending, rows[i].ending);
		free(ending);
		json_decref(run);
	}
}

static void test_numbers(void **state)
{
	(void)state;
	assert_string_equal(COUNT(0), "0");
	assert_string_equal(COUNT(999), "999");
	assert_string_equal(COUNT(1000), "1,000");
	assert_string_equal(COUNT(UINT64_MAX), "18,446,744,073,709,551,615");
	assert_string_equal(BYTES(1), "1 byte");
	assert_string_equal(BYTES(1023), "1023 bytes");
	assert_string_equal(BYTES(1536), "1.5 KiB");
	assert_string_equal(BYTES(512ULL << 20), "512 MiB");
	assert_string_equal(BYTES(UINT64_MAX), "16 EiB");
	assert_string_equal(MS(38.25), "38.2 ms");
	assert_string_equal(MS(1204), "1.20 s");
	assert_string_equal(MS(3723000), "62 min 3 s");
	assert_string_equal(TIME("2026-11-30T11:36:27.123456789Z"), "2026-11-30 11:36:27.123");
	assert_string_equal(TIME("2026-11-30T11:36:27Z"), "2026-11-30 11:36:27");
	assert_string_equal(TIME("yesterday"), "yesterday");
}

/* ---- many runs ---- */

/* One event of a run: `name` may be NULL. */
static json_t *denied(int port, const char *name, int count)
{
	return json_pack("{s:s, s:s, s:s, s:i, s:s?, s:i}", "verdict", "denied", "protocol", "udp", "address", "192.0.2.1",
			 "port", port, "dns_name", name, "count", count);
}

/* A run with these events, which are taken. */
static void add_run(struct report_period *p, const char *project, int number, json_t *events)
{
	char run_id[32];
	const json_t *event;
	json_t *run;
	json_int_t attempts = 0;
	size_t i;

	json_array_foreach(events, i, event)
	{
		attempts += json_integer_value(json_object_get(event, "count"));
	}
	snprintf(run_id, sizeof run_id, "%s-%d", project, number);
	run = json_pack("{s:s, s:s, s:s, s:{s:I, s:I}, s:o}", "run_id", run_id, "project", project, "state", "ended", "egress",
			"attempts", attempts, "denied", attempts, "events", events);
	assert_non_null(run);
	assert_int_equal(report_period_add(p, run), 0);
	json_decref(run);
}

/* So many destinations, each tried once. */
static json_t *flood(int from, int count)
{
	json_t *events = json_array();

	for (int i = 0; i < count; i++)
		json_array_append_new(events, denied(from + i, NULL, 1));
	return events;
}

static char *page_of_period(struct report_period *p)
{
	char *page = report_period_page(p, NULL, &about, NULL);

	assert_non_null(page);
	report_period_free(p);
	return page;
}

static size_t times_in(const char *text, const char *part)
{
	size_t n = 0;

	for (const char *at = text; (at = strstr(at, part)); at++)
		n++;
	return n;
}

static void test_period_is_bounded(void **state)
{
	struct report_period *p = report_period_new();
	char *page;

	(void)state;
	for (int i = 0; i < REPORT_RUNS_MAX + 5; i++)
		add_run(p, "p", i, json_pack("[o]", denied(1, NULL, 2)));
	page = page_of_period(p);
	assert_has(page, "1,005 runs made 2,010 attempts to reach the network: 2,010 denied, 0 allowed.");
	assert_has(page, "5 runs are in the sums and not listed");
	assert_has(page, "<tr><th scope=\"row\">p</th><td class=\"number\">5</td><td class=\"number\">0</td>");
	assert_int_equal(times_in(page, "<tr id=\"run-p-"), REPORT_RUNS_MAX);
	assert_has(page, "<tr id=\"run-p-0\">");
	assert_has(page, "<tr id=\"run-p-999\">");
	free(page);
}

static void test_period_destinations_are_bounded(void **state)
{
	struct report_period *p = report_period_new();
	char *page;

	(void)state;
	add_run(p, "p", 1, flood(0, REPORT_DESTINATIONS_MAX + 3));
	page = page_of_period(p);
	assert_has(page, "3 denied destinations are in the sums and not listed");
	assert_has(page, "<td class=\"number\">0</td><td class=\"number\">3</td><td class=\"number\">3</td>");
	assert_int_equal(times_in(page, "<tr class=\"denied\">"), REPORT_DESTINATIONS_MAX);
	assert_lacks(page, "kept in mind");
	free(page);
}

static void test_period_most_tried_first(void **state)
{
	struct report_period *p = report_period_new();
	const char *most, *some, *least;
	char *page;

	(void)state;
	add_run(p, "a", 2, json_pack("[o, o]", denied(1001, "one.example", 1), denied(1002, NULL, 7)));
	add_run(p, "b", 1, json_pack("[o]", denied(1003, NULL, 50)));
	page = page_of_period(p);
	most = strstr(page, "port 1003");
	some = strstr(page, "port 1002");
	least = strstr(page, "port 1001");
	assert_true(most && some && least && most < some && some < least);
	assert_lacks(page, "left-out");
	free(page);
}

/* The same destination of two projects is two rows: whose it was is what a reviewer asks. */
static void test_period_projects_apart(void **state)
{
	struct report_period *p = report_period_new();
	char *page;

	(void)state;
	add_run(p, "a", 1, json_pack("[o]", denied(1001, NULL, 3)));
	add_run(p, "b", 1, json_pack("[o]", denied(1001, NULL, 4)));
	add_run(p, "b", 0, json_pack("[o]", denied(1001, NULL, 5)));
	page = page_of_period(p);
	assert_int_equal(times_in(page, "port 1001"), 2);
	assert_has(page, "<td class=\"number\">9</td>");
	free(page);
}

/* What one project does, as often and as lately as it likes, takes no row from another's. */
static void test_period_flood_of_another_project(void **state)
{
	struct report_period *p = report_period_new();
	char *page;

	(void)state;
	for (int i = 0; i < 3; i++)
		add_run(p, "loud", 100 - i, flood(2000 * (i + 1), 1024));
	add_run(p, "quiet", 1, json_pack("[o, o]", denied(53, "hunter2.exfil.example.com", 1), denied(81, NULL, 50)));
	page = page_of_period(p);
	assert_has(page, "hunter2.exfil.example.com");
	assert_has(page, "port 81<");
	assert_has(page, "2,074 denied destinations are in the sums and not listed");
	assert_has(page, "<tr><th scope=\"row\">loud</th><td class=\"number\">0</td><td class=\"number\">2,074</td>"
			 "<td class=\"number\">2,074</td></tr>");
	assert_lacks(strstr(page, "id=\"left-out\""), "<th scope=\"row\">quiet</th>");
	free(page);
}

/* Nor one run of a project from another, nor within a run what has no name from what has. */
static void test_period_flood_of_another_run(void **state)
{
	struct report_period *p = report_period_new();
	json_t *both = flood(10000, 1500);
	char *page;

	(void)state;
	add_run(p, "one", 3, flood(2000, 1024));
	json_array_append_new(both, denied(53, "hunter2.exfil.example.com", 1));
	add_run(p, "one", 2, both);
	add_run(p, "one", 1, json_pack("[o]", denied(81, NULL, 1)));
	page = page_of_period(p);
	assert_has(page, "hunter2.exfil.example.com");
	assert_has(page, "port 81<");
	free(page);
}

/* Nor what has a name from what has none: a name costs a program nothing. */
static void test_period_flood_of_names(void **state)
{
	struct report_period *p = report_period_new();
	json_t *events = json_array();
	char *page;

	(void)state;
	for (int i = 0; i < 1500; i++) {
		char name[32];

		snprintf(name, sizeof name, "n%d.example", i);
		json_array_append_new(events, denied(53, name, 2));
	}
	json_array_append_new(events, denied(81, NULL, 1));
	add_run(p, "one", 1, events);
	page = page_of_period(p);
	assert_has(page, "port 81<");
	free(page);
}

static void test_period_flood_of_runs(void **state)
{
	struct report_period *p = report_period_new();
	char *page;

	(void)state;
	for (int i = 5000; i > 1000; i--)
		add_run(p, "loud", i, json_array());
	add_run(p, "loud", 7, json_pack("[o]", denied(81, NULL, 1)));
	add_run(p, "quiet", 1, json_array());
	page = page_of_period(p);
	assert_has(page, "<tr id=\"run-quiet-1\">");
	assert_has(page, "<tr id=\"run-loud-7\">"); /* the oldest, and the only one with something denied */
	assert_has(page, "<tr id=\"run-loud-5000\">");
	assert_int_equal(times_in(page, "<tr id=\"run-"), REPORT_RUNS_MAX);
	assert_has(page, "3,002 runs are in the sums and not listed");
	free(page);
}

/* More than is kept while runs are added: said, others' still there, and every attempt in the sums. */
static void test_period_beyond_what_is_kept(void **state)
{
	struct report_period *p = report_period_new();
	char *page;

	(void)state;
	for (int i = 0; i < 20; i++)
		add_run(p, "loud", 100 - i, flood(1024 * i, 1024));
	add_run(p, "quiet", 1, json_pack("[o]", denied(53, "hunter2.exfil.example.com", 1)));
	page = page_of_period(p);
	assert_has(page, "hunter2.exfil.example.com");
	assert_has(page, "kept in mind");
	assert_has(page, "20,481 denied");
	assert_has(page, "<td class=\"number\">19,481</td></tr>");
	free(page);
}

/* Of any rows and any number of places: nobody has two more than somebody else who goes short. */
static void test_fair(void **state)
{
	static const char *const groups[] = {"a", "b", "c"};
	struct places_row rows[400];

	(void)state;
	srand(7);
	for (size_t i = 0; i < 400; i++) /* the most by far are a's */
		rows[i] = (struct places_row){.group = groups[rand() % 20 ? 0 : 1 + rand() % 2],
					      .part = (uint64_t)(rand() % 3),
					      .kind = (uint64_t)(rand() % 4),
					      .count = (uint64_t)(rand() % 9),
					      .order = i};
	places_sort(rows, 400);
	for (size_t places = 0; places <= 400; places++) {
		size_t has[3] = {0}, wants[3] = {0};

		for (size_t i = 0; i < 400; i++) {
			has[*rows[i].group - 'a'] += i < places;
			wants[*rows[i].group - 'a']++;
		}
		for (size_t a = 0; a < 3; a++)
			for (size_t b = 0; b < 3; b++)
				assert_true(has[a] <= has[b] + 1 || has[b] == wants[b]);
	}
}

static void test_period_folds(void **state)
{
	json_t *fixture = load(FIXTURES "period.json");
	char *page = page_of(fixture);

	(void)state;
	assert_has(page, "Runs since <time datetime=\"2026-11-30T00:00:00Z\">");
	assert_has(page, "A gap in the record, ");
	assert_has(page, "12 runs of project notebook with 340 records, 1.2 MiB: older than what is kept");
	assert_has(page, "12 runs were removed from the record (older than what is kept): what they did is not on this page");
	assert_true(strstr(page, "12 runs were removed") < strstr(page, "<h2>Sums") || !strstr(page, "<h2>Sums"));
	assert_has(page, "The record is not what was written");
	assert_has(page, "its records are not what was hashed");
	assert_has(page, "3 findings more");
	assert_has(page, "The chain is broken, ");
	assert_has(page, "1 entry in the chain has no signature.");
	assert_has(page, "1 run has no end on record");
	assert_lacks(page, "Nothing is known to be missing");
	free(page);
	json_decref(fixture);
}

static char *page_of_one(const char *period_text, int runs)
{
	struct report_period *p = report_period_new();
	json_t *period = json_loads(period_text, 0, NULL);
	char *page;

	assert_non_null(period);
	for (int i = 0; i < runs; i++) {
		json_t *run =
		    json_pack("{s:s, s:s, s:s, s:{s:i}, s:{s:i, s:s, s:b}, s:{s:s}, s:{s:{s:f}, s:{s:i}, s:{s:i}}}", "run_id",
			      i ? "two" : "one", "project", "p", "state", "ended", "egress", "attempts", 0, "chain", "n", i + 1,
			      "hash", "00", "signed", 1, "termination", "reason", "exit", "usage", "cpu_ms", "value", 1500.0,
			      "memory_peak_bytes", "value", (i + 1) * 1048576, "net_bytes", "value", 512);

		assert_non_null(run);
		assert_int_equal(report_period_add(p, run), 0);
		json_decref(run);
	}
	page = report_period_page(p, period, &about, NULL);
	assert_non_null(page);
	report_period_free(p);
	json_decref(period);
	return page;
}

#define CHECKED "\"checked\": {\"intact\": true, \"findings\": []}"
#define SINCE "\"since\": \"2026-11-30T00:00:00.000000000Z\""
#define PRUNE(project, newest)                                                                                                 \
	"\"notices\": [{\"kind\": \"prune\", \"reason\": \"project\", \"project\": \"" project                                 \
	"\", \"runs\": 5, \"newest\": \"" newest "\"}]"

/* A page is calm when there is something to be calm about. */
static void test_period_is_calm(void **state)
{
	static const struct {
		const char *period;
		int runs;
		const char *told; /* NULL: it is calm */
	} rows[] = {
	    {"{" CHECKED "}", 2, NULL},
	    {"{}", 2, "was not checked when this page was made (nobody did)"},
	    {"{\"checked\": {\"intact\": false, \"findings\": []}}", 2, "The record is not what was written"},
	    {"{" CHECKED "}", 0, "not that none was made"},
	    {"{" CHECKED ", \"limit\": 2}", 2, "only the newest 2 were to be read"},
	    {"{" CHECKED ", " SINCE ", " PRUNE("p", "2026-11-30T11:00:00Z") "}", 2,
	     "5 runs were removed from the record (the project had more than its share)"},
	    {"{" CHECKED ", " SINCE ", " PRUNE("p", "2026-11-29T11:00:00Z") "}", 2, NULL},
	    {"{" CHECKED ", \"project\": \"p\", " PRUNE("q", "2026-11-30T11:00:00Z") "}", 2, NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char *page = page_of_one(rows[i].period, rows[i].runs);

		if (rows[i].told) {
			assert_has(page, rows[i].told);
			assert_lacks(page, "Nothing is known to be missing");
		} else {
			assert_has(page, "Nothing is known to be missing");
		}
		free(page);
	}
}

static void test_period_sums_use(void **state)
{
	char *page = page_of_one("{}", 2);

	(void)state;
	assert_has(page, "<tr><th scope=\"row\">p</th><td class=\"number\">2</td><td class=\"number\">3.00 s</td>"
			 "<td class=\"number\">2 MiB</td><td class=\"number\">1 KiB</td></tr>");
	free(page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_escapes),
	    cmocka_unit_test(test_any_bytes),
	    cmocka_unit_test(test_templates),
	    cmocka_unit_test(test_nothing_writes_around),
	    cmocka_unit_test(test_hostile_text),
	    cmocka_unit_test(test_broken_records),
	    cmocka_unit_test(test_every_loss_is_told),
	    cmocka_unit_test(test_findings),
	    cmocka_unit_test(test_verdicts),
	    cmocka_unit_test(test_endings),
	    cmocka_unit_test(test_numbers),
	    cmocka_unit_test(test_period_is_bounded),
	    cmocka_unit_test(test_period_destinations_are_bounded),
	    cmocka_unit_test(test_period_most_tried_first),
	    cmocka_unit_test(test_period_projects_apart),
	    cmocka_unit_test(test_period_flood_of_another_project),
	    cmocka_unit_test(test_period_flood_of_another_run),
	    cmocka_unit_test(test_period_flood_of_names),
	    cmocka_unit_test(test_period_flood_of_runs),
	    cmocka_unit_test(test_period_beyond_what_is_kept),
	    cmocka_unit_test(test_fair),
	    cmocka_unit_test(test_period_folds),
	    cmocka_unit_test(test_period_is_calm),
	    cmocka_unit_test(test_period_sums_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
