/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The api process: HTTP, JSON and tokens in front of the run protocol. It is handed everything it may ever touch (a
 * listening socket, the supervisor, the auditor) and can open nothing else: api_main() gives up root, capabilities and all
 * system calls it does not need before it reads the first byte of a client.
 */
#ifndef WEIR_API_API_H
#define WEIR_API_API_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/log.h"
#include "core/token.h"
#include "core/tokens.h"

struct api_config {
	int listen_fd;		     /* bound and listening, TCP or unix; taken */
	int supervisor_fd;	     /* the client's end of the run protocol (ipc.h); taken */
	int auditor_fd;		     /* the client's end of the query protocol; taken; -1 without an auditor */
	int collector_fd;	     /* the client's end of the collector's protocol; taken; -1: no files in answers */
	const struct tokens *tokens; /* the table of tokens, mapped; NULL: only the development token */
	uid_t uid;		     /* who to become. Never 0. A caller that is not root must name itself */
	gid_t gid;
	bool has_dev_token;			     /* a token of project `dev` with every scope */
	uint8_t dev_token_sha256[TOKEN_DIGEST_LEN];  /* token_digest() of it: the process never holds the token itself */
	const char *tls_cert, *tls_key;		     /* PEM text, NUL-terminated, borrowed; both NULL: plain HTTP */
	bool audit_content;			     /* the auditor keeps code, arguments and output: it is given them */
	uint64_t bodies_bytes, project_bodies_bytes; /* memory for requests, in all and of one project; 0: the limits table's */
	unsigned follow_take_s; /* for a follower of the record to read what it was given; 0: half of LIMIT_CONNECTION_IDLE_S */
	enum log_level log_level;
};

/*
 * Runs the service until SIGTERM or SIGINT, in a process that was forked for it: every fd but 0-2 and those above is
 * closed, signal dispositions and the mask are changed. Returns the exit status: 0 after an orderly end, 1 when it could
 * not confine itself or start, or when the supervisor is gone (the reason is in the log).
 */
int api_main(const struct api_config *config);

#endif
