/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real api process between real HTTP clients and a fake supervisor, auditor and collector: everything of it but the kernel
 * features. The fakes are one more process, never a thread, since a process with threads must not fork; what they do is set
 * through `struct rig`'s fields, which all of them share, and, per run, by the first words of the code:
 *
 *   echo              the whole code on stdout, exit 0        raw          bytes 0 to 255 on stdout
 *   out N | err N     N bytes on that stream, exit 0          both N       N bytes on each
 *   flood             writes until it is killed               hold         waits until it is killed
 *   exit N | signal N | timeout | memory | broken | lost      that ending; "lost" is broken after its gate opened
 *   partial X         X on stderr, then the deadline          sleep MS     exit 0 after so long
 *   refuse E I        could not place file I: errno E         cat          standard input, then environment, on stdout
 *   stall N           N bytes on each, then as hold
 *   say MS oHEX eHEX …   every MS ms the next bytes on stdout or stderr; exit 0, or after a last word `hold` or `timeout`
 *
 * and in a session, where a killed cell leaves its session alive:
 *
 *   stubborn          as hold, but its kill ends the session  die          exit 3, and the session is over
 *   late X            exit 0; X on stdout before the next cell   after     exit 0; the session ends before the next cell
 *
 * A tool call is obeyed by the first word of the tool's name; besides those above, what it writes to its result pipe, after
 * which it exits with 0, or with N:
 *
 *   value [N] | error [N]   one frame of that kind with the arguments     unknown    an empty frame that says so
 *   kind K                  of kind K                                     large N    a value of N bytes, all told
 *   says L                  its header says L, the arguments follow       twice      two frames
 *   bytes HEX               only these bytes                              flood-result   until nobody reads
 *   open                    a value, but no end of the stream
 *
 * The agents `none`, `slow`, `crash` and `many` get no sandbox: what the supervisor says of those.
 *
 * Before that word there may be lines `file NAME SIZE`: such a file is left in the working directory, which is a real one and
 * holds the request's files as well, and the collector's real walk reads it. The fakes insist on the protocol: an order out of
 * turn ends the test.
 */
#ifndef WEIR_TESTS_API_RIG_H
#define WEIR_TESTS_API_RIG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/ipc.h"

#define RIG_TOKEN "test-token-0123456789"
#define RIG_HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

enum rig_grant {
	RIG_GRANT,
	RIG_NEVER,
	RIG_FAIL,
	RIG_DEAF,  /* grants, but nobody reads the request, and the end follows at once */
	RIG_STALL, /* grants, but nobody reads the request */
};
enum rig_audit { RIG_ANSWER, RIG_MEMFD, RIG_ERROR, RIG_SILENT };
enum rig_collect { RIG_COLLECT, RIG_COLLECT_ERROR, RIG_COLLECT_SILENT, RIG_COLLECT_NONSENSE };

struct rig {
	pid_t api, fake;
	int port;
	const char *tls_cert; /* the service's; NULL: plain HTTP */
	_Atomic bool hang_up_supervisor, hang_up_auditor, hang_up_collector, talk_nonsense;
	_Atomic bool deaf; /* the fakes do nothing any more, but do not hang up either */
	_Atomic bool stop;
	_Atomic bool state_due, ready; /* rig_tell_state() */
	_Atomic bool end_sessions; /* every session that waits for a cell ends, as at its idle limit; then it is false again */
	char not_ready[192];
	_Atomic enum rig_grant grant;
	_Atomic enum rig_audit audit;
	_Atomic enum rig_collect collect;
	/* what was seen */
	_Atomic unsigned asked, granted, started, killed_cancelled, killed_output, withdrawn, open;
	_Atomic unsigned last_timeout_s;
	_Atomic unsigned sessions; /* open ones */
	_Atomic unsigned cells, cells_collected, closed;
	_Atomic unsigned collections;	    /* jobs that the collector was given */
	char last_project[IPC_PROJECT_MAX]; /* of the last QUERY_RUN, SEARCH or FOLLOW; "-" before */
	struct find last_find;		    /* .. of the last two of these */
	struct content_told last_content;   /* of the last QUERY_SUMMARY */
	_Atomic unsigned following;	    /* QUERY_FOLLOWs that wait */
	_Atomic uint64_t records;	    /* in the record that is followed, numbered from 1 .. */
	_Atomic unsigned record_bytes;	    /* .. each about that large */
	_Atomic unsigned scrapes;
	_Atomic bool slow_metrics, short_metrics;
	char last_run_id[IPC_ID_MAX];	  /* of the last QUERY_SUMMARY */
	char last_agent[IPC_PROJECT_MAX]; /* of the last ASK_SANDBOX, and whose it was asked for */
	char last_asked_for[IPC_PROJECT_MAX];
	char last_caller[IPC_CALLER_MAX];  /* of the last ASK_SANDBOX, and .. */
	char last_starter[IPC_CALLER_MAX]; /* .. of the last ASK_START */
	_Atomic unsigned usages;	   /* ASK_USAGEs */
	_Atomic bool slow_usage;
	/* the fakes' own */
	int supervisor, auditor, collector;
	char base_path[64]; /* directory of working directories */
	struct query parked[16];
	struct fake_run *runs;
	unsigned next_id;
};

struct rig_options {
	bool ready;			/* a ready pool is told at once */
	const struct tokens *tokens;	/* shared memory; NULL: only the development token */
	const char *tls_cert, *tls_key; /* PEM; NULL: plain HTTP */
	unsigned files;			/* the api's RLIMIT_NOFILE; 0: as it is */
};

/* Starts all of it; asserts that it works. */
struct rig *rig_start_with(const struct rig_options *options);
struct rig *rig_start(bool ready);
/* Returns when it has been told. */
void rig_tell_state(struct rig *r, bool ready, const char *why);
/* SIGTERM, waits, frees. Returns the api's exit status, or 128 + signal. */
int rig_stop(struct rig *r);
/* Waits for the api's end without telling it to; then as rig_stop(). */
int rig_wait(struct rig *r);
/* Polls until *counter >= want; asserts that it happens within `ms`. */
void rig_await(_Atomic unsigned *counter, unsigned want, int ms);

#endif
