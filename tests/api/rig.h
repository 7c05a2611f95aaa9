/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real api process between real HTTP clients and a fake supervisor and auditor: everything of it but the kernel
 * features. The fakes are one more process, never a thread, since a process with threads must not fork; what they do is set
 * through `struct rig`'s fields, which all of them share, and, per run, by the first words of the code:
 *
 *   echo              the whole code on stdout, exit 0        raw          bytes 0 to 255 on stdout
 *   out N | err N     N bytes on that stream, exit 0          both N       N bytes on each
 *   flood             writes until it is killed               hold         waits until it is killed
 *   exit N | signal N | timeout | memory | broken | lost      that ending; "lost" is broken after its gate opened
 *   partial X         X on stderr, then the deadline          sleep MS     exit 0 after so long
 */
#ifndef WEIR_TESTS_API_RIG_H
#define WEIR_TESTS_API_RIG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/ipc.h"

#define RIG_TOKEN "test-token-0123456789"

enum rig_grant { RIG_GRANT, RIG_NEVER, RIG_FAIL, RIG_DEAF /* grants, but nobody reads the request */ };
enum rig_audit { RIG_ANSWER, RIG_MEMFD, RIG_ERROR, RIG_SILENT };

struct rig {
	pid_t api, fake;
	int port;
	_Atomic bool hang_up_supervisor, hang_up_auditor, talk_nonsense;
	_Atomic bool deaf; /* the fakes do nothing any more, but do not hang up either */
	_Atomic bool stop;
	_Atomic bool state_due, ready; /* rig_tell_state() */
	char not_ready[192];
	_Atomic enum rig_grant grant;
	_Atomic enum rig_audit audit;
	/* what was seen */
	_Atomic unsigned asked, granted, started, killed_cancelled, killed_output, withdrawn, open;
	_Atomic unsigned last_timeout_s;
	char last_project[IPC_PROJECT_MAX]; /* of the last QUERY_RUN; "-" before */
	/* the fakes' own */
	int supervisor, auditor;
	struct fake_run *runs;
	unsigned next_id;
};

/* Starts all of it; asserts that it works. `start_ready`: whether a ready pool is told at once. */
struct rig *rig_start(bool start_ready);
/* Returns when it has been told. */
void rig_tell_state(struct rig *r, bool ready, const char *why);
/* SIGTERM, waits, frees. Returns the api's exit status, or 128 + signal. */
int rig_stop(struct rig *r);
/* Waits for the api's end without telling it to; then as rig_stop(). */
int rig_wait(struct rig *r);
/* Polls until *counter >= want; asserts that it happens within `ms`. */
void rig_await(_Atomic unsigned *counter, unsigned want, int ms);

#endif
