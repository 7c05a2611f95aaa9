/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit_print.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *audit_cell(char *buf, size_t size, const json_t *value)
{
	if (json_is_string(value))
		snprintf(buf, size, "%s", json_string_value(value));
	else if (json_is_integer(value))
		snprintf(buf, size, "%lld", (long long)json_integer_value(value));
	else if (json_is_boolean(value))
		snprintf(buf, size, "%s", json_is_true(value) ? "yes" : "no");
	else
		snprintf(buf, size, "-");
	for (char *p = buf; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	return buf;
}

static void print_destination(const json_t *event)
{
	const json_t *port = json_object_get(event, "port"), *name = json_object_get(event, "dns_name");
	bool v6 = json_is_string(json_object_get(event, "address")) && strchr(GET(event, "address"), ':');

	printf("%s %s%s%s", GET(event, "protocol"), v6 && json_is_integer(port) ? "[" : "", GET(event, "address"),
	       v6 && json_is_integer(port) ? "]" : "");
	if (json_is_integer(port))
		printf(":%s", CELL(port));
	else if (json_object_get(event, "icmp_type"))
		printf(" type %s code %s", GET(event, "icmp_type"), GET(event, "icmp_code"));
	if (json_is_string(name))
		printf("  %s %s%s", GET(event, "dns_type"), CELL(name),
		       json_is_true(json_object_get(event, "dns_malformed")) ? " (malformed)" : "");
}

/* As the process sees it, and where that is another, as the host does. */
static void print_pid(const json_t *event)
{
	const json_t *pid = json_object_get(event, "pid"), *host = json_object_get(event, "host_pid");

	printf("pid %s", CELL(pid));
	if (json_is_integer(host) && !json_equal(pid, host))
		printf(", on the host %s", CELL(host));
}

/* The reason; a rule by its name, or by number when the name is gone; and how the address was read. */
static void print_why(const json_t *event)
{
	const json_t *name = json_object_get(event, "rule_name"), *decode = json_object_get(event, "decode"), *step;
	size_t i;

	printf("%s", GET(event, "reason"));
	if (json_is_integer(json_object_get(event, "rule")))
		printf(" %s", json_is_string(name) ? CELL(name) : GET(event, "rule"));
	if (json_object_get(event, "decode_kind"))
		printf(", read as %s", GET(event, "decode_kind"));
	json_array_foreach(decode, i, step)
	{
		printf("%s%s", i ? " -> " : ": ", CELL(step));
	}
	putchar('\n');
}

static void print_caller(const json_t *run)
{
	const json_t *command = json_object_get(run, "command");

	if (json_is_string(json_object_get(run, "caller")))
		printf("caller   %s\n", GET(run, "caller"));
	if (!command)
		return;
	printf("command  %s%s (SHA-256 of its arguments ", GET(command, "path"),
	       json_is_true(json_object_get(command, "path_cut")) ? "..." : "");
	printf("%.16s)\n", GET(command, "sha256"));
}

static void print_head(const json_t *run)
{
	printf("run      %s (sandbox %s, project %s)\n", GET(run, "run_id"), GET(run, "sandbox_id"), GET(run, "project"));
	if (json_object_get(run, "agent"))
		printf("call     of a tool of agent %s, image %s\n", GET(run, "agent"), GET(run, "image"));
	print_caller(run);
	printf("policy   %s, generation %s (%.16s)", GET(run, "policy"), GET(run, "policy_generation"),
	       GET(run, "policy_hash"));
	/* A command of the host's has neither. */
	if (json_string_length(json_object_get(run, "python")))
		printf("; Python %s", GET(run, "python"));
	if (json_integer_value(json_object_get(run, "timeout_s")))
		printf("; deadline %s s", GET(run, "timeout_s"));
	putchar('\n');
}

void audit_print_run(const json_t *run)
{
	const json_t *end = json_object_get(run, "termination"), *egress = json_object_get(run, "egress"), *event, *change;
	size_t i;

	if (json_object_get(run, "target"))
		audit_print_attached(run);
	else
		print_head(run);
	json_array_foreach(json_object_get(run, "policy_changes"), i, change)
	{
		printf("then     %s, generation %s (%.16s) from %s on (%s)\n", GET(change, "policy"),
		       GET(change, "policy_generation"), GET(change, "policy_hash"), GET(change, "time"),
		       GET(change, "reason"));
	}
	printf("began    %s\n", GET(run, "began"));
	printf("state    %s", GET(run, "state"));
	if (json_is_object(end) && json_object_get(run, "target"))
		printf(": %s, after %s ms%s%s", GET(end, "reason"), GET(run, "duration_ms"),
		       json_string_length(json_object_get(end, "detail")) ? "; " : "", GET(end, "detail"));
	else if (json_is_object(end))
		printf(": %s, exit code %s, after %s ms%s%s", GET(end, "reason"), GET(run, "exit_code"),
		       GET(run, "duration_ms"), json_string_length(json_object_get(end, "detail")) ? "; " : "",
		       json_string_length(json_object_get(end, "detail")) ? GET(end, "detail") : "");
	printf("\negress   %s attempt%s: %s denied, %s allowed, %s would be denied; %s lost%s\n", GET(egress, "attempts"),
	       json_integer_value(json_object_get(egress, "attempts")) == 1 ? "" : "s", GET(egress, "denied"),
	       GET(egress, "allowed"), GET(egress, "would_deny"), GET(egress, "lost"),
	       json_is_false(json_object_get(egress, "exact")) ? " (so far listed; the exact counters come with the end)" : "");
	json_array_foreach(json_object_get(run, "events"), i, event)
	{
		printf("  %-10s %6sx  ", GET(event, "verdict"), GET(event, "count"));
		print_destination(event);
		printf("\n            %s  %s (", GET(event, "time"), GET(event, "command"));
		print_pid(event);
		printf(", uid %s) at %s, ", GET(event, "uid"), GET(event, "hook"));
		print_why(event);
		if (json_object_get(event, "cgroup"))
			printf("            in %s (id %s)\n",
			       json_string_length(json_object_get(event, "cgroup")) ? GET(event, "cgroup")
										    : "a cgroup that was gone by then",
			       GET(event, "cgroup_id"));
	}
	audit_print_use(run);
}

void audit_print_header(void)
{
	printf("%-28s %-16s %-16s %-19s %-11s %-9s %8s %8s %8s %6s\n", "RUN", "PROJECT", "AGENT", "BEGAN (UTC)", "STATE", "END",
	       "ATTEMPTS", "DENIED", "WOULD", "LOST");
}

void audit_print_row(const json_t *run)
{
	const json_t *egress = json_object_get(run, "egress"), *target = json_object_get(run, "target");

	printf("%-28s %-16s %-16s %-19.19s %-11s %-9s %8s %8s %8s %6s", GET(run, "run_id"), GET(run, "project"),
	       GET(run, "agent"), GET(run, "began"), GET(run, "state"), GET(json_object_get(run, "termination"), "reason"),
	       GET(egress, "attempts"), GET(egress, "denied"), GET(egress, "would_deny"), GET(egress, "lost"));
	/* Of an attachment, whose id says nothing of what it is on. */
	if (json_object_get(target, "ref"))
		printf("  %s %s", GET(target, "kind"), GET(target, "ref"));
	putchar('\n');
}

int audit_print_json(const json_t *json)
{
	int r = json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));

	return putchar('\n') == EOF || r < 0 ? -EIO : 0;
}
