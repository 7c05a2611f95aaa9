/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The auditor: the unprivileged process that reads what untrusted programs made the kernel report (DNS names, command
 * names), keeps the record and answers what runs did.
 *
 *   supervisor -- struct note --> auditor <-- struct query, struct answer --> clients (api, `weir run`)
 *
 * It trusts the supervisor to be honest but not to be free of mistakes: every field of a note is checked. It trusts a
 * client with nothing but the project its query names, which the client has authenticated.
 */
#ifndef WEIR_AUDITOR_AUDITOR_H
#define WEIR_AUDITOR_AUDITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AUDITOR_CLIENTS_MAX 4
#define AUDITOR_DIR "audit"	     /* inside the state directory; owned by the auditor's uid, mode 0700 */
#define AUDITOR_SUMMARY_WAIT_MS 2000 /* QUERY_SUMMARY: how long a run's end may be late before ETIMEDOUT */
#define AUDITOR_CONTENT_WAIT_MS 5000 /* .. and how long a run that has ended is kept open for what its client has seen */
#define AUDITOR_FOLLOW_WAIT_MS 15000 /* QUERY_FOLLOW: without a record, an empty answer after so long */

/* How long and how much is kept, and what. Zeros: as the limits table says. */
struct audit_opts {
	uint64_t max_bytes, project_bytes, keep_s;
	bool content; /* store code, arguments and output too, up to LIMIT_AUDIT_CONTENT_BYTES of each */
	bool shared;  /* the record is a service's, which alone says what is kept: nothing is pruned, whatever is above */
};

struct auditor_config {
	struct audit_opts opts;
	int supervisor_fd;		     /* SEQPACKET, non-blocking: struct note comes in, struct sign_ask goes out */
	int client_fds[AUDITOR_CLIENTS_MAX]; /* SEQPACKET, non-blocking: struct query in, struct answer out */
	size_t clients;			     /* 1 .. AUDITOR_CLIENTS_MAX */
	int dir_fd;			     /* the state directory, opened O_RDONLY | O_DIRECTORY by root */
	uid_t uid;			     /* what to become; not 0 */
	gid_t gid;
};

/*
 * Runs the auditor. To be called in a forked, single-threaded process that is still root; takes over every fd of the
 * config and closes every other one above 2. Makes AUDITOR_DIR, drops to uid and gid with no groups, no capabilities,
 * no_new_privs and a seccomp allow-list, and only then opens or creates a record file.
 *
 * After NOTE_FLUSH everything is durable and then supervisor_fd is closed: its end of stream is the acknowledgement.
 * Clients are served for as long as they have the other end open, for at most a few seconds after the supervisor's end.
 * SIGINT, SIGTERM and SIGHUP are ignored: only the supervisor ends an audit.
 *
 * Returns an exit status: 0 after NOTE_FLUSH, 1 when it could not start (said on stderr), or when the supervisor went
 * without NOTE_FLUSH (what had arrived is written and durable).
 */
int auditor_main(const struct auditor_config *config);

#endif
