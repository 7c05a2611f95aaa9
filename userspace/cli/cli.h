/* SPDX-License-Identifier: Apache-2.0 */
/* Subcommands. Each takes its own argv (argv[0] is "weir <name>") and returns the exit status. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include <signal.h>
#include <sys/types.h>

#include "core/err.h"

#define DEFAULT_STATE_DIR "/var/lib/weir"
#define DEFAULT_LISTEN "127.0.0.1:8380"

/* Exit statuses beside a snippet's own. */
#define EXIT_DEADLINE 124
#define EXIT_WEIR 125 /* Weir itself failed: nothing, or not all, ran */

int serve_cmd(int argc, char **argv);
int run_cmd(int argc, char **argv);
int exec_cmd(int argc, char **argv);
int attach_cmd(int argc, char **argv);
int detach_cmd(int argc, char **argv);
int status_cmd(int argc, char **argv);
int oci_hook_cmd(int argc, char **argv);
int image_cmd(int argc, char **argv);
int agent_cmd(int argc, char **argv);
int token_cmd(int argc, char **argv);
int doctor_cmd(int argc, char **argv);
int uninstall_cmd(int argc, char **argv);

/* What we were started with and have changed since (main.c): a command of the caller's gets it back. */
struct cli_caller {
	mode_t umask;
	sigset_t mask;
	void (*chld)(int), (*pipe)(int), (*xfsz)(int); /* dispositions */
};
extern struct cli_caller cli_caller;

/* Prints "weir: <layer>: <message>" and returns EXIT_WEIR. */
int cli_fail(const struct err *e);

/* Writes out what was printed to standard output. An error when not all of it could be written, then or before. */
int cli_flush(struct err *e);

/* 0, or an error that says that this needs root. */
int cli_need_root(struct err *e);

#endif
