/* SPDX-License-Identifier: Apache-2.0 */
/* What a run used against what it might, each figure with the source that it was checked against; programs; refused calls;
 * proof. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/audit_print.h"

/* A figure's unit. */
enum unit { UNIT_BYTES, UNIT_MS };

static void print_value(const json_t *value, enum unit unit)
{
	double n = json_number_value(value);

	if (!json_is_number(value))
		printf("not known");
	else if (unit == UNIT_MS)
		printf("%.3f ms", n);
	else if (n >= 1 << 20)
		printf("%.1f MiB (%.0f bytes)", n / (1 << 20), n);
	else
		printf("%.0f byte%s", n, n == 1 ? "" : "s");
}

static void print_figure(const json_t *run, const char *label, const char *name, enum unit unit, const char *limit)
{
	const json_t *figure = json_object_get(json_object_get(run, "usage"), name),
		     *checked = json_object_get(figure, "checked");
	const json_t *most = limit ? json_object_get(json_object_get(run, "limits"), limit) : NULL;

	if (!figure)
		return;
	printf("%-8s ", label);
	print_value(json_object_get(figure, "value"), unit);
	if (json_is_string(json_object_get(figure, "source")))
		printf(" by %s", GET(figure, "source"));
	if (json_is_object(checked)) {
		printf("; ");
		print_value(json_object_get(checked, "value"), unit);
		printf(" by %s", GET(checked, "source"));
	}
	if (json_is_number(most)) {
		printf("; limit ");
		if (unit == UNIT_BYTES)
			print_value(most, unit);
		else
			printf("%s %% of a CPU", CELL(most));
	}
	putchar('\n');
}

static void print_packets(const json_t *run)
{
	static const struct {
		const char *name, *words;
	} verdicts[] = {{"allowed", "allowed"}, {"denied", "denied"}, {"would_deny", "would be denied"}};
	const json_t *packets = json_object_get(run, "packets");

	if (!json_is_object(packets))
		return;
	printf("packets ");
	for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; i++) {
		const json_t *one = json_object_get(packets, verdicts[i].name);

		printf("%s %s %s (%s bytes)", i ? "," : "", GET(one, "packets"), verdicts[i].words, GET(one, "bytes"));
	}
	putchar('\n');
}

static void print_omitted(const json_t *in, const char *name, const char *what)
{
	if (json_integer_value(json_object_get(in, name)) > 0)
		printf("  and %s more %s that are not listed\n", GET(in, name), what);
}

static void print_programs(const json_t *run)
{
	const json_t *execs = json_object_get(run, "execs"), *one;
	size_t i;

	if (!json_is_integer(json_object_get(execs, "count")))
		return;
	printf("programs %s started", GET(execs, "count"));
	if (json_is_integer(json_object_get(run, "processes")))
		printf("; %s processes with %s threads", GET(run, "processes"), GET(run, "threads"));
	if (json_is_integer(json_object_get(json_object_get(run, "limits"), "processes")))
		printf("; limit %s at once", GET(json_object_get(run, "limits"), "processes"));
	if (json_integer_value(json_object_get(run, "oom_victims")))
		printf("; %s killed for want of memory", GET(run, "oom_victims"));
	putchar('\n');
	json_array_foreach(json_object_get(execs, "programs"), i, one)
	{
		printf("  %s  %s%s (%s, pid %s", GET(one, "time"), json_is_true(json_object_get(one, "path_cut")) ? "..." : "",
		       GET(one, "path"), GET(one, "command"), GET(one, "pid"));
		if (json_is_integer(json_object_get(one, "host_pid")) &&
		    !json_equal(json_object_get(one, "pid"), json_object_get(one, "host_pid")))
			printf(", on the host %s", GET(one, "host_pid"));
		printf(", uid %s)\n", GET(one, "uid"));
	}
	print_omitted(execs, "unlisted", "programs");
}

static void print_refused(const json_t *run)
{
	const json_t *refused = json_object_get(run, "refused_syscalls"), *one;
	size_t i;

	if (json_is_null(refused)) {
		printf("refused  system calls were not counted\n");
		return;
	}
	if (!json_is_object(refused))
		return;
	printf("refused  %s system call%s\n", GET(refused, "count"),
	       json_integer_value(json_object_get(refused, "count")) == 1 ? "" : "s");
	json_array_foreach(json_object_get(refused, "calls"), i, one)
	{
		printf("  %-16s %6sx  %s", json_is_string(json_object_get(one, "name")) ? GET(one, "name") : GET(one, "number"),
		       GET(one, "count"), GET(one, "errno"));
		if (json_is_string(json_object_get(one, "first")))
			printf("  from %s to %s", GET(one, "first"), GET(one, "last"));
		putchar('\n');
	}
}

static void print_content(const json_t *run)
{
	const json_t *content = json_object_get(run, "content"), *one;
	const char *name;

	json_object_foreach((json_t *)content, name, one)
	{
		printf("%-9s%-10s %s bytes", name == json_object_iter_key(json_object_iter((json_t *)content)) ? "content" : "",
		       name, GET(one, "bytes"));
		if (!json_equal(json_object_get(one, "bytes"), json_object_get(one, "kept")))
			printf(" (%s kept)", GET(one, "kept"));
		printf(", SHA-256 %s%s\n", GET(one, "sha256"),
		       json_is_integer(json_object_get(one, "stored")) ? ", stored" : "");
	}
}

static void print_chain(const json_t *run)
{
	const json_t *chain = json_object_get(run, "chain");

	if (json_is_object(chain))
		printf("chain    n=%s, hash %s, %s\n", GET(chain, "n"), GET(chain, "hash"),
		       json_is_true(json_object_get(chain, "signed")) ? "signed" : "not signed yet");
	else if (chain)
		printf("chain    not in it yet: its record is not complete\n");
}

void audit_print_use(const json_t *run)
{
	print_figure(run, "cpu", "cpu_ms", UNIT_MS, "cpu_percent");
	print_figure(run, "memory", "memory_peak_bytes", UNIT_BYTES, "memory_bytes");
	print_figure(run, "output", "output_bytes", UNIT_BYTES, "output_bytes");
	print_figure(run, "network", "net_bytes", UNIT_BYTES, NULL);
	print_packets(run);
	print_programs(run);
	print_refused(run);
	print_content(run);
	print_chain(run);
}
