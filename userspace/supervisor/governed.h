/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root process around a command of the host: one instance, one cgroup, one command. It forwards signals, keeps the policy
 * current, hands what the kernel saw to the auditor, and leaves nothing behind. It reads nothing that the command wrote.
 */
#ifndef WEIR_SUPERVISOR_GOVERNED_H
#define WEIR_SUPERVISOR_GOVERNED_H

#include <stdbool.h>

#include "core/err.h"
#include "core/tokens.h"
#include "kernel/inforce.h"
#include "supervisor/command.h"

#define GOVERNED_PROJECT PROJECT_EXEC /* what its runs are listed under */
#define GOVERNED_INSTANCE "exec-"     /* what the names of its instances begin with */
#define GOVERNED_KEEP "k"	      /* the message to the keeper that brings the kill file */

struct governed_config {
	const char *instance;	       /* also the run's id */
	struct inforce *policy;	       /* loaded, not applied; taken, whatever comes of it */
	const struct command *command; /* its filter is of that policy */
	/*
	 * A SEQPACKET socket to the keeper, which is not ours: a process that holds `cgroup.kill` of the command's cgroup, sent
	 * here as one message of one byte, and writes to it when the other end of this socket closes without a word.
	 */
	int keeper_fd;
	int key_dir_fd;	    /* as in struct supervisor_config */
	const char *caller; /* as in struct ask */
};

struct governed;

/* What a command of the host can't have: `loopback: self`, and packet sockets with the capability that makes them work. */
int governed_check(const struct inforce *policy, const struct command *c, struct err *e);

/* Blocks the signals that governed_wait() takes. To be called before anything is forked. */
void governed_block_signals(void);

/*
 * Everything up to the running command. A signal that asked us to stop meanwhile is an error too, EINTR. On failure nothing is
 * left and no command was started. Takes auditor_fd.
 */
int governed_new(struct governed **ret, const struct governed_config *config, int auditor_fd, struct err *e);

/* Whether the command can't be kept from reaching into other processes of its user: the kernel has no Landlock for it. */
bool governed_unshielded(const struct governed *g);

/*
 * Until the command has ended, every process it left has been killed, and its connections hold nothing any more that the
 * kernel would send; the run's end is then with the auditor. `*ret_status`
 * as from waitpid(). An error means that Weir could not go on, and ended the command.
 */
int governed_wait(struct governed *g, int *ret_status, struct err *e);

/* Removes everything. NULL-safe. */
int governed_free(struct governed *g, struct err *e);

#endif
