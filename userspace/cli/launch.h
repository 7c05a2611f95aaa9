/* SPDX-License-Identifier: Apache-2.0 */
/* Starting Weir's processes around a supervisor: shared by `serve`, `run` and `doctor`. */
#ifndef WEIR_CLI_LAUNCH_H
#define WEIR_CLI_LAUNCH_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "auditor/auditor.h"
#include "core/err.h"
#include "supervisor/supervisor.h"

/* The sockets between supervisor, client, auditor and collector; -1 once handed over. */
struct wiring {
	int sup_client, client_sup;		/* run protocol */
	int sup_auditor, auditor_sup;		/* notes */
	int client_auditor, auditor_client;	/* queries */
	int client_collector, collector_client; /* working directories */
};

int wiring_make(struct wiring *w, struct err *e);
void wiring_close(struct wiring *w);
/* For a service that has no working directories. */
void wiring_no_collector(struct wiring *w);

/* Forks the auditor on state directory `dir_fd`. Its ends are closed here. */
int launch_auditor(struct wiring *w, int dir_fd, const struct audit_opts *opts, pid_t *ret, struct err *e);

/* Forks the collector, which dies with us. Before supervisor_new(), from whose mounts it stays away. Its end is closed here. */
int launch_collector(struct wiring *w, pid_t *ret, struct err *e);

/*
 * Forks the process that gives tools their way out, which dies with us: as above. *ret_fd is the supervisor's end of struct
 * carry.
 */
int launch_gateway(struct wiring *w, int *ret_fd, pid_t *ret, struct err *e);

/* Blocks SIGTERM, SIGINT, SIGHUP and SIGCHLD, as supervisor_run() expects. Children of ours undo it. */
void launch_block_signals(void);
void launch_unblock_signals(void);

/* Makes the directory (0700, and its parents) if it is missing, and opens it. */
int launch_state_dir(const char *path, int *ret_fd, struct err *e);

/* Whether what stat() said of `path` fits a state directory: one that is root's, and nobody else's to write. */
int launch_state_dir_fit(const struct stat *st, const char *path, struct err *e);

/* A directory in memory that no path leads to: it is gone with its last descriptor. `layer` is for errors. */
int launch_memory_dir(const char *layer, int *ret_fd, struct err *e);

/* The same file when the working directory is another. NULL stays NULL. `buf` holds the result. */
const char *launch_absolute(const char *path, char *buf, size_t size);

/*
 * Loads the policy of sandboxes: a file, the name of a shipped one, or NULL for the embedded default. One that asks for what no
 * sandbox can have is an error; `tools`: of an agent's sandboxes, whose limits are wider.
 */
int launch_policy(const char *policy, bool tools, struct inforce *ret, struct err *e);

/* Parses a step's name for the test switches; an unknown one is an error that lists them. */
int launch_step(const char *name, enum plan_step *ret, struct err *e);

#endif
