/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unprivileged half of `weir exec`: it tells what the command was denied, from the auditor's answer, which is made of what
 * the command wrote. And it is the keeper: it holds the kill file of the command's cgroup, and uses it when the root process
 * goes away, so that a `weir exec` that was killed takes its command along.
 */
#ifndef WEIR_CLI_EXEC_REPORT_H
#define WEIR_CLI_EXEC_REPORT_H

#include <stdbool.h>

#include "core/err.h"

struct exec_report {
	int control_fd; /* SEQPACKET from the root process: GOVERNED_KEEP with the kill file, then EXEC_REPORT_TELL */
	int auditor_fd; /* queries */
	int json_fd;	/* where the record goes; -1: nowhere */
	bool quiet;	/* no summary */
	const char *run_id;
};

#define EXEC_REPORT_TELL "t" /* the run is over, and with the auditor */

/* Gives up root for good, and serves until the root process is gone or everything is told. Returns an exit status. */
int exec_report_main(const struct exec_report *r);

#endif
