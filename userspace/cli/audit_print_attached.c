/* SPDX-License-Identifier: Apache-2.0 */
/* Of what had a policy put on it while it ran: its beginning differs in what there is to say; the rest does not. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/audit_print.h"

static void print_target(const json_t *run)
{
	const json_t *target = json_object_get(run, "target"), *canary = json_object_get(target, "canary"), *reason;
	size_t i;

	printf("target   %s %s: %s", GET(target, "kind"), GET(target, "ref"), GET(target, "cgroup"));
	if (json_string_length(json_object_get(target, "runtime")))
		printf(" (%s)", GET(target, "runtime"));
	printf("\n         attached %s\n", GET(target, "attached"));
	if (json_object_get(target, "unknown"))
		printf("         what has no policy of its own below it: %s\n",
		       strcmp(GET(target, "unknown"), "allow") ? "denied" : "let through and recorded");
	else
		printf("coverage %s\n", GET(target, "coverage"));
	json_array_foreach(json_object_get(run, "reasons"), i, reason)
	{
		bool more = json_string_length(json_object_get(reason, "detail")) > 0;

		printf("  %-14s %s%s%s%s\n", GET(reason, "name"), GET(reason, "text"), more ? " (" : "", GET(reason, "detail"),
		       more ? ")" : "");
	}
	if (json_is_true(json_object_get(canary, "proven")))
		printf("proven   from inside %s: %s attempts, %s denied\n", GET(target, "canary_leaf"), GET(canary, "attempts"),
		       GET(canary, "denied"));
	else if (!json_object_get(target, "unknown"))
		printf("proven   no: %s\n", GET(canary, "why"));
}

static void print_address(const json_t *socket, const char *address, const char *port)
{
	bool v6 = strchr(GET(socket, address), ':') != NULL;

	printf("%s%s%s:%s", v6 ? "[" : "", GET(socket, address), v6 ? "]" : "", GET(socket, port));
}

static void print_sockets(const json_t *run)
{
	const json_t *socket, *target = json_object_get(run, "target");
	size_t i;

	if (!json_array_size(json_object_get(run, "sockets")))
		return;
	printf("open     %s sockets when the policy came", GET(target, "sockets_open"));
	if (json_integer_value(json_object_get(target, "sockets_beyond")))
		printf(", and %s that are not listed", GET(target, "sockets_beyond"));
	putchar('\n');
	json_array_foreach(json_object_get(run, "sockets"), i, socket)
	{
		printf("  %-10s %-9s ", json_is_string(json_object_get(socket, "verdict")) ? GET(socket, "verdict") : "",
		       GET(socket, "protocol"));
		print_address(socket, "local", "local_port");
		if (json_is_string(json_object_get(socket, "remote"))) {
			printf(" -> ");
			print_address(socket, "remote", "remote_port");
		}
		printf("  %s (pid %s)%s\n", GET(socket, "command"), GET(socket, "pid"),
		       json_is_true(json_object_get(socket, "elsewhere")) ? ", made in another cgroup: not judged here" : "");
	}
}

static void print_drift(const json_t *run)
{
	const json_t *drift, *gap;
	size_t i;

	json_array_foreach(json_object_get(run, "gaps"), i, gap)
	{
		printf("gap      since %s nobody wrote events: %s attempts, %s denied", GET(gap, "since"), GET(gap, "attempts"),
		       GET(gap, "denied"));
		if (json_integer_value(json_object_get(gap, "unlisted")))
			printf(", %s of them without details", GET(gap, "unlisted"));
		printf("; %s\n", GET(gap, "text"));
	}
	json_array_foreach(json_object_get(run, "drift"), i, drift)
	{
		printf("drift    %s %s%s: %s\n", GET(drift, "time"), GET(drift, "name"),
		       json_is_true(json_object_get(drift, "over")) ? " is over" : "", GET(drift, "text"));
	}
}

void audit_print_attached(const json_t *run)
{
	printf("record   %s (attachment %s, project %s)\n", GET(run, "run_id"), GET(run, "sandbox_id"), GET(run, "project"));
	print_target(run);
	if (!json_object_get(json_object_get(run, "target"), "unknown"))
		printf("policy   %s, generation %s (%.16s)\n", GET(run, "policy"), GET(run, "policy_generation"),
		       GET(run, "policy_hash"));
	print_drift(run);
	print_sockets(run);
}
