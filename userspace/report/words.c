/* SPDX-License-Identifier: Apache-2.0 */
#include "report/words.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- members ---- */

const json_t *member(const json_t *object, const char *name)
{
	return json_object_get(object, name);
}

const char *member_text(const json_t *object, const char *name)
{
	const char *text = json_string_value(member(object, name));

	return text ? text : "";
}

long long member_int(const json_t *object, const char *name)
{
	return json_integer_value(member(object, name));
}

uint64_t member_count(const json_t *object, const char *name)
{
	double n = json_number_value(member(object, name));

	if (json_is_integer(member(object, name)))
		return member_int(object, name) > 0 ? (uint64_t)member_int(object, name) : 0;
	return n > 0 && n < 1e18 ? (uint64_t)n : 0;
}

double member_number(const json_t *object, const char *name)
{
	double n = json_number_value(member(object, name));

	return n > 0 ? n : 0;
}

bool has_number(const json_t *object, const char *name)
{
	return json_is_number(member(object, name));
}

/* ---- numbers ---- */

const char *words_count(char *ret, uint64_t n)
{
	char digits[24];
	size_t len = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), at = 0;

	for (size_t i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			ret[at++] = ',';
		ret[at++] = digits[i];
	}
	ret[at] = '\0';
	return ret;
}

const char *words_bytes(char *ret, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double n = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(ret, WORDS_MAX, "%llu byte%s", (unsigned long long)bytes, bytes == 1 ? "" : "s");
		return ret;
	}
	for (; n >= 1024 && unit < 5; unit++)
		n /= 1024;
	snprintf(ret, WORDS_MAX, n < 100 && n != (double)(uint64_t)n ? "%.1f %s" : "%.0f %s", n, units[unit]);
	return ret;
}

const char *words_ms(char *ret, double ms)
{
	if (ms < 1000)
		snprintf(ret, WORDS_MAX, ms < 100 && ms != (double)(uint64_t)ms ? "%.1f ms" : "%.0f ms", ms);
	else if (ms < 120000)
		snprintf(ret, WORDS_MAX, "%.2f s", ms / 1000);
	else
		snprintf(ret, WORDS_MAX, "%.0f min %.0f s", (double)(uint64_t)(ms / 60000),
			 (double)((uint64_t)(ms / 1000) % 60));
	return ret;
}

const char *words_some(char *ret, uint64_t n, const char *one, const char *many)
{
	char number[WORDS_MAX];

	snprintf(ret, WORDS_MAX, "%s %s", words_count(number, n), n == 1 ? one : many);
	return ret;
}

/* "2026-11-30T11:36:27.123456789Z": milliseconds are what a person compares, the record has the rest. */
const char *words_time(char *ret, const char *time)
{
	static const char shape[] = "dddd-dd-ddTdd:dd:dd";
	size_t i;

	for (i = 0; shape[i]; i++)
		if (shape[i] == 'd' ? time[i] < '0' || time[i] > '9' : time[i] != shape[i])
			break;
	if (shape[i] || (time[i] != '.' && time[i] != 'Z'))
		return time;
	snprintf(ret, WORDS_MAX, "%.10s %.*s", time, time[i] == '.' && strlen(time) > i + 4 ? 12 : 8, time + 11);
	return ret;
}

/* ---- the sentence ---- */

static void say(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(FILE *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(out, fmt, ap);
	va_end(ap);
}

/* Of one kind of verdict, when all attempts had it. */
static const char *shared_verdict(uint64_t attempts, uint64_t denied, uint64_t allowed, uint64_t would_deny)
{
	return denied == attempts	? "denied"
	       : allowed == attempts	? "allowed"
	       : would_deny == attempts ? "let through and only recorded, where an enforced policy would have denied"
					: NULL;
}

static void say_mixed(FILE *out, uint64_t denied, uint64_t allowed, uint64_t would_deny)
{
	const char *before = ": ";

	if (denied) {
		say(out, "%s%s denied", before, COUNT(denied));
		before = ", ";
	}
	if (would_deny) {
		say(out, "%s%s let through that an enforced policy would have denied", before, COUNT(would_deny));
		before = ", ";
	}
	if (allowed)
		say(out, "%s%s allowed", before, COUNT(allowed));
}

static void say_attempts(FILE *out, const json_t *run)
{
	const json_t *egress = member(run, "egress");
	uint64_t attempts = member_count(egress, "attempts"), denied = member_count(egress, "denied"),
		 allowed = member_count(egress, "allowed"), would_deny = member_count(egress, "would_deny");
	const char *policy = member_text(run, "policy"), *all = shared_verdict(attempts, denied, allowed, would_deny);
	bool changed = json_array_size(member(run, "policy_changes")) > 0, exact = !json_is_false(member(egress, "exact"));

	if (!attempts) {
		say(out, "No attempt to reach the network%s", exact ? "" : " is recorded so far");
		return;
	}
	say(out, "%s to reach the network%s", SOME(attempts, "attempt", "attempts"), exact ? "" : " so far");
	if (all)
		say(out, ", %s%s", attempts == 1 ? "" : attempts == 2 ? "both " : "all ", all);
	if (policy[0] && changed)
		say(out, "%s by the policies in force, %s first", all ? "" : ", judged", policy);
	else if (policy[0])
		say(out, "%s by policy %s", all ? "" : ", judged", policy);
	if (!all)
		say_mixed(out, denied, allowed, would_deny);
}

static char *sentence(void (*write)(FILE *out, const json_t *run), const json_t *run)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	bool bad;

	if (!out)
		return NULL;
	write(out, run);
	bad = ferror(out);
	if (fclose(out) != 0 || bad) {
		free(text);
		return NULL;
	}
	return text;
}

static void say_verdict(FILE *out, const json_t *run)
{
	uint64_t inbound = member_count(member(run, "egress"), "inbound"),
		 own = member_count(member(member(run, "target"), "canary"), "attempts");

	say_attempts(out, run);
	if (own)
		say(out, "; %s of them Weir’s own, to try the policy", COUNT(own));
	if (inbound)
		say(out, "; %s from outside refused", SOME(inbound, "packet", "packets"));
	say(out, ".");
}

char *words_verdict(const json_t *run)
{
	return sentence(say_verdict, run);
}

/* How a run ended, or a window of the record of something that was there before. */
static const struct {
	const char *reason, *words;
} endings[] = {
    {"exit", "It ended by itself"},
    {"signal", "It was ended by a signal"},
    {"timeout", "It was stopped at its deadline"},
    {"memory", "It was stopped: it needed more memory than it may have"},
    {"output", "It was stopped: it wrote more output than it may"},
    {"cancelled", "It was stopped: its client cancelled it or left"},
    {"broken", "It did not run to an end: Weir could not go on with it"},
    {"hour", "This part of the record ends after an hour; the next goes on from there"},
    {"full", "This part of the record ends since its list was nearly full; the next goes on from there"},
    {"policy", "This part of the record ends where another policy came into force"},
    {"detached", "It ends where the policy was taken off"},
    {"removed", "It ends where the cgroup was removed"},
    {"stopped", "This part of the record ends where the service stopped; what the policy enforces stayed"},
};

static void say_ending(FILE *out, const json_t *run)
{
	const json_t *end = member(run, "termination");
	const char *reason = member_text(end, "reason"), *state = member_text(run, "state"), *words = NULL;

	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
		if (!strcmp(reason, endings[i].reason))
			words = endings[i].words;
	if (!strcmp(state, "interrupted")) {
		say(out,
		    "It has no end on record: Weir itself stopped while it ran, and what it did after the last record is not "
		    "known.");
		return;
	}
	if (!json_is_object(end)) {
		say(out, "It has not ended%s.", strcmp(state, "running") ? "" : ": it was running when this report was made");
		return;
	}
	/* The usual end of one, and its processes are killed as in every other. */
	if (json_is_true(member(run, "session")) && !strcmp(reason, "cancelled")) {
		say(out, "It ended when it was closed, or its client left.");
		return;
	}
	if (words)
		say(out, "%s", words);
	else
		say(out, "It ended for a reason that this version of Weir does not know (%s)", reason);
	if (member_text(end, "signal")[0])
		say(out, ", %s", member_text(end, "signal"));
	if (json_is_integer(member(run, "exit_code")))
		say(out, ", exit code %lld", member_int(run, "exit_code"));
	if (member_text(end, "detail")[0])
		say(out, " (%s)", member_text(end, "detail"));
	say(out, ".");
}

char *words_ending(const json_t *run)
{
	return sentence(say_ending, run);
}
