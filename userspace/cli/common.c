/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"

struct cli_caller cli_caller;

int cli_fail(const struct err *e)
{
	fprintf(stderr, "weir: %s%s%s\n", e->where, e->where[0] ? ": " : "", e->msg);
	return EXIT_WEIR;
}

int cli_flush(struct err *e)
{
	if (fflush(stdout) == EOF || ferror(stdout))
		return err_set(e, EIO, "", "can't write to standard output");
	return 0;
}

int cli_need_root(struct err *e)
{
	if (geteuid() == 0)
		return 0;
	return err_set(e, EPERM, "", "this needs root: it loads eBPF programs and makes cgroups and namespaces (try sudo)");
}
