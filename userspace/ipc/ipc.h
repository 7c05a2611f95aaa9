/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between Weir's processes: fixed-size structs over SOCK_SEQPACKET, file descriptors beside them.
 *
 *   client (api or `weir run`)  -- struct ask -->   supervisor    <-- struct tell --
 *   supervisor                  -- struct note -->  auditor       <-- struct sign_ask --
 *   client                      -- struct query --> auditor       <-- struct answer (+ text) --
 *   client                      -- struct collect --> collector   <-- struct collected (+ memfds) --
 *   supervisor                  -- struct carry -->   gateway     <-- struct carrying --
 *
 * All of them come from the same binary, so there is no version field; a message of another size or an unknown type ends
 * the connection. Strings are NUL-terminated inside their arrays; a receiver checks that (ipc_text_ok).
 */
#ifndef WEIR_IPC_IPC_H
#define WEIR_IPC_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi.h"

#define IPC_ID_MAX 48	   /* sandbox-xxxxxxxxxxxxx, and .N for a session's cells */
#define IPC_PROJECT_MAX 64 /* [a-z0-9-], checked by the client side */
#define IPC_POLICY_MAX 64  /* names of policies and rules */
#define IPC_CALLER_MAX 48  /* who asked: caller_ok() (ipc/decode.h) */
#define IPC_COMMAND_MAX 256
#define IPC_FDS_MAX 5

/* ---- client -> supervisor ---- */
enum ask_type {
	ASK_NONE,
	ASK_SANDBOX, /* I want a sandbox; answered by TELL_GRANT or TELL_FAIL when there is one (the client keeps the wait
			limit). With `session` it is kept for many cells: `req` then names it for its whole life. With `agent`
			it is one made of that agent's image, for one tool call */
	ASK_START,   /* the request is written to the sandbox's socket: open the gate, arm the deadline. Of a session: its next
			cell */
	ASK_KILL,    /* end this run for `reason`; also withdraws an unanswered ASK_SANDBOX (then there is no answer). Of a
			session: its running cell is interrupted, and the session ended only when that does not help */
	ASK_COLLECTED, /* the files of a session's cell have been read: let it go on */
	ASK_CLOSE,     /* end a session, whatever it does */
	ASK_POOL,      /* answered by TELL_POOL */
	ASK_METRICS,   /* answered by TELL_METRICS */
	ASK_USAGE,     /* what `run_id` has used so far; answered by TELL_USAGE. Whose run it is, the asker has found out */
};

/* What ended a run. The order is not a protocol; names are in run_end_names[]. */
enum run_end {
	RUN_END_EXIT,
	RUN_END_SIGNAL,
	RUN_END_TIMEOUT,
	RUN_END_MEMORY,
	RUN_END_OUTPUT,
	RUN_END_CANCELLED,
	RUN_END_BROKEN, /* ended before its gate opened, or by a failure of Weir: not a result, an error */
	RUN_END_COUNT,
};

struct ask {
	uint32_t type;
	uint32_t timeout_s;	       /* ASK_START: checked again by the supervisor against the limits table */
	uint64_t req;		       /* chosen by the client, unique among its open requests */
	uint32_t reason;	       /* ASK_KILL: RUN_END_OUTPUT or RUN_END_CANCELLED */
	uint32_t session;	       /* ASK_SANDBOX: 1 for a session */
	char project[IPC_PROJECT_MAX]; /* ASK_SANDBOX: for the audit, and with `agent` whose agent it is */
	char agent[IPC_PROJECT_MAX];   /* ASK_SANDBOX: name of an agent of `project`; "": a snippet's. Never with `session` */
	/*
	 * ASK_SANDBOX, ASK_START: who asks, for the audit: "token:tok-xxxxxxxx" (the token's public id), "token:dev" (the one
	 * of
	 * --dev-token), "uid:0", "uid:0,sudo:1000" (as sudo says). A session is its opener's, each of its cells its own
	 * asker's.
	 */
	char caller[IPC_CALLER_MAX];
	char run_id[IPC_ID_MAX]; /* ASK_USAGE */
};

/* ---- supervisor -> client ---- */
enum tell_type {
	TELL_NONE,
	TELL_GRANT, /* four fds: request socket (SOCK_STREAM, write the request here), stdout, stderr (read ends, non-blocking),
		       working directory (O_PATH: good for the collector, and nothing to be read through it before TELL_END).
		       Of an agent's a fifth: the result (read end, non-blocking), see struct result_header */
	TELL_FAIL,  /* no sandbox: could not be built (layer, text). `code` ENOENT with layer "agent": there is no such agent;
		       ETIMEDOUT: not ready within LIMIT_CALL_READY_S, and `text` names what took so long */
	TELL_END,   /* the run is over. `over`: every process of it is dead, the pipes hold what is left of its output and then
		       EOF. Else it was a session's cell: everything in it is frozen until ASK_COLLECTED, and the pipes hold what
		       it wrote, without an end */
	TELL_POOL,
	TELL_METRICS, /* one fd: a sealed memfd with a struct metrics */
	TELL_USAGE,
	TELL_STATE, /* sent once after connecting and when it changes: pool counts and whether the policy is verified in force
		     */
};

struct tell_grant {
	char sandbox_id[IPC_ID_MAX];
	char run_id[IPC_ID_MAX];
	char python[32]; /* version that will run, e.g. "3.12.1" */
	/* An agent's: what its making took, and how much of that this request had to wait for (0: it was ready) */
	uint64_t build_us; /* first step to verified */
	uint64_t load_us;  /* import of its modules */
	uint64_t waited_us;
};

#define FAIL_POLICY_ONLY "policy-only" /* the service has no sandboxes at all, and never will */
struct tell_fail {
	uint32_t code; /* errno */
	uint32_t pad;
	char layer[24]; /* e.g. "mounts", "seccomp": from the plan's step table; or FAIL_POLICY_ONLY */
	char step[32];
	char text[256]; /* a sentence for the operator and the client */
};

/*
 * What eBPF has counted of a run, beside what its cgroup's files say (which is what answers give first): the second source each
 * figure is checked against. Differences, as everything in struct tell_end.
 */
struct tell_meter {
	uint32_t there;		 /* 1: this was measured; 0: nothing of the meter's own is known (why: the log says) */
	uint32_t execs_unlisted; /* programs that were started and have no NOTE_EXEC */
	uint64_t cpu_us;	 /* sched_process_exit; of what still lives, as far as it has come */
	uint64_t peak_rss;	 /* bytes, of the largest single process */
	uint64_t written_bytes;	 /* by write() and its kin, to whatever */
	uint64_t processes, threads, execs;
	uint64_t oom_victims;	       /* mark_victim */
	uint64_t oom_kills;	       /* as its memory cgroup says */
	uint64_t rusage_cpu_us;	       /* of main and what it has waited for, as init saw it; 0: not known */
	uint64_t syscalls_refused;     /* by its filter, those that are told by number */
	uint64_t syscalls_interrupted; /* .. times that such a call was interrupted before it was; UINT64_MAX: not known */
	/* The packet hook's, out of its cgroup; net_bytes is what was let out. */
	uint64_t packets, denied_packets, denied_bytes, watched_packets, watched_bytes;
	uint64_t events_lost; /* numbers of events that never came: their attempts are counted, and among the unlisted */
	uint32_t
	    incomplete; /* tasks that the meter could not follow: cpu_us lacks what their ends took, peak_rss is not exact */
	uint32_t details_dropped; /* FLOW, SYSCALL and SAMPLES that the auditor, far behind, was not sent: sums have them */
};

struct tell_end {
	uint32_t end;	      /* enum run_end */
	int32_t exit_code;    /* contract: CPython's own, 128+n for signal n, 137 memory/output kill, -1 deadline */
	int32_t signal;	      /* signal number, 0 for none */
	uint32_t ran;	      /* whether the gate was opened */
	uint64_t duration_us; /* gate open to main's end */
	uint64_t cpu_us;
	uint64_t memory_peak;				/* bytes */
	char cpu_source[24], memory_source[24];		/* e.g. "cgroup2 cpu.stat", "v1 memory.max_usage"; "" when unknown */
	uint64_t attempts, denied, allowed, would_deny; /* attempts = the other three */
	uint64_t inbound; /* packets from outside that the policy refused: no attempts of the run's */
	uint64_t unlisted, net_bytes;
	struct tell_meter meter;
	char layer[24];	  /* BROKEN: which layer failed; "" when it was none */
	char detail[128]; /* words, e.g. "memory limit of 512 MiB exceeded"; may be empty */
	uint32_t cell;	  /* of a session: which, from 1; 0: none ran (a session that ended while it waited), or no session */
	uint32_t over;	  /* the sandbox is gone. Always 1 but for a cell that its session survived */
	uint32_t refused_errno; /* the harness could not place file `refused_index` of the request; 0: it could. Nothing ran */
	uint32_t refused_index;
};

/* Of a run that is under way: its figures so far. */
struct tell_usage {
	struct tell_end end; /* how it will end is not known: usage and counters alone. `detail` is empty */
	uint64_t flow_bytes; /* of the flows that are listed: what `net_bytes` is checked against; UINT64_MAX: not known */
	uint32_t there;	     /* 0: no such run is under way, and nothing else here says anything */
	uint32_t pad;
};

struct tell_pool {
	uint32_t size, warm, starting, in_use, waiting;
	uint32_t ready; /* 1: policy verified in force and the pool has been filled */
	uint64_t served, misses;
	char not_ready[192]; /* why not, in words; "" when ready */
};

struct tell {
	uint32_t type;
	uint32_t pad;
	uint64_t req;
	union {
		struct tell_grant grant;
		struct tell_fail fail;
		struct tell_end end;
		struct tell_usage usage;
		struct tell_pool pool;
	};
};

/*
 * What the client writes to a sandbox's request socket: this header, then `code_len` bytes of code, `stdin_len` of standard
 * input, `env_len` of "NAME=VALUE" strings that each end in NUL, and `file_count` times a struct request_file with its path
 * and content (`files_len` bytes in all, those structs included). The harness reads it whole before the gate opens.
 * Little-endian as the host is; `magic` guards against a client that lost its place. A session's every cell is one of these.
 */
#define REQUEST_MAGIC 0x52494557u /* "WEIR" */
enum request_flag {
	REQUEST_SESSION = 1, /* a cell: more will follow */
	REQUEST_STDIN = 2,   /* standard input was given, be it empty; without it, it is at its end */
	REQUEST_CALL = 4, /* a tool call: the code is the tool's name, standard input its arguments (a JSON object). No more */
};
struct request_header {
	uint32_t magic;
	uint32_t flags;
	uint32_t code_len, stdin_len, env_len, file_count;
	uint64_t files_len;
	uint32_t reserved[8]; /* zero */
};
struct request_file {
	uint32_t path_len, size; /* bytes */
};

/*
 * What a tool call's harness writes to the result pipe, once: this header and `len` bytes of UTF-8. Whoever wrote the tool can
 * write here too, so the client believes exactly one frame that is whole, within its limits and nothing but what its kind
 * says, followed by the end of the stream; anything else is an error of the call.
 */
#define RESULT_MAGIC 0x53455257u /* "WRES" */
enum result_kind {
	RESULT_NONE,
	RESULT_VALUE,	/* one JSON value, at most LIMIT_RESULT_BYTES and LIMIT_RESULT_DEPTH */
	RESULT_ERROR,	/* a JSON object: "type", "message", "traceback", strings all of them */
	RESULT_UNKNOWN, /* there is no such tool; nothing was called. The rest is empty */
	RESULT_KINDS,
};
struct result_header {
	uint32_t magic, kind;
	uint64_t len;
};

/* ---- client -> collector, and back ---- */

/* A file as it was: its size, and SHA-256 over its path, a NUL and its content. */
struct file_digest {
	uint64_t size;
	uint8_t sha256[32];
};
#define COLLECT_DIGESTS_MAX (256 + 1) /* LIMIT_FILES_IN and the script */

/*
 * Read what is new or changed in a working directory. fds: the directory, then (with `have_manifest`) the manifest of the cell
 * before. A file is unchanged when its digest is among the request's or in that manifest.
 */
struct collect {
	uint64_t req;
	uint32_t have_manifest, want_manifest;
	uint32_t digest_count;
	uint32_t pad;
	struct file_digest digests[COLLECT_DIGESTS_MAX];
};

/*
 * fds: a sealed memfd of `len` bytes, a sequence of struct collected_entry, each followed by its path and, of a file, its
 * content; then (with want_manifest) another, an array of struct file_digest, for the next struct collect.
 */
struct collected {
	uint64_t req;
	uint64_t len;
	uint32_t status; /* 0, or an errno: nothing could be collected, no fds */
	uint32_t files, skipped;
	uint32_t skipped_unlisted; /* beyond LIMIT_FILES_SKIPPED */
};

/* What a path in a working directory turned out to be. Names of what is skipped, as answers have them, are in skip_names[]. */
enum collected_kind {
	COLLECTED_FILE,
	COLLECTED_SYMLINK,
	COLLECTED_FIFO,
	COLLECTED_SOCKET,
	COLLECTED_DEVICE,
	COLLECTED_TOO_LARGE,
	COLLECTED_TOO_MANY,
	COLLECTED_TOO_DEEP,
	COLLECTED_UNREADABLE,
	COLLECTED_NAME, /* not UTF-8 */
	COLLECTED_KINDS,
};
struct collected_entry {
	uint32_t kind;
	uint32_t path_len; /* bytes, as the kernel has them; relative to the working directory */
	uint64_t size;	   /* of a file: that many bytes of content follow the path. Else what stat() said, nothing follows */
};

extern const char *const skip_names[COLLECTED_KINDS];

/* ---- supervisor -> auditor ---- */
enum note_type {
	NOTE_NONE,
	NOTE_RUN_BEGIN, /* gate opened */
	NOTE_EVENT,	/* first attempt of a flow */
	NOTE_FLOW,	/* final count of a flow, sent before NOTE_RUN_END */
	NOTE_RUN_END,
	NOTE_GAP,    /* an earlier instance died: what was found and swept */
	NOTE_POLICY, /* another policy is in force from here on: once for everybody, and once for each run under way */
	/* Of a cgroup that somebody else made (attach/): its record is a row of windows, each a run of its own */
	NOTE_TARGET,	 /* what it is, after NOTE_RUN_BEGIN */
	NOTE_PLACE,	 /* .. where it is: texts of any length */
	NOTE_WEAKNESS,	 /* .. what of the policy does not hold on it, one each */
	NOTE_SOCKET,	 /* one that was open when the policy came */
	NOTE_DRIFT,	 /* something of it is not as it should be, or is again */
	NOTE_UNDRAINED,	 /* there was nobody to write its events for a while */
	NOTE_CGROUP,	 /* one below a carried parent that has no policy: before its first event */
	NOTE_WINDOW_END, /* in the place of NOTE_RUN_END */
	/* Of any run, before its end: */
	NOTE_EXEC,    /* a program was started in it, or a process was chosen to be killed for want of memory */
	NOTE_SYSCALL, /* a system call that its filter refused: its final count, once for each number */
	NOTE_SAMPLES, /* how its use went: a few moments of it */
	/* Of nobody's: */
	NOTE_START,	  /* the first: who writes from here on */
	NOTE_POLICY_TEXT, /* a part of a policy's document, before the first record that names its hash */
	NOTE_HEAD, /* where the signed chain ends as its key's keeper knows it; also the answer to a sign_ask that is not signed
		    */
	NOTE_SIGNED, /* the answer to one that is */
	NOTE_FLUSH,  /* shut down: make everything durable, then close */
};

/* Why a window ends. Names are in window_end_names[]. */
enum window_end {
	WINDOW_HOUR,	 /* it has lasted long enough */
	WINDOW_FULL,	 /* its list of flows is nearly full */
	WINDOW_POLICY,	 /* another policy is in force */
	WINDOW_DETACHED, /* the policy was taken off */
	WINDOW_REMOVED,	 /* the cgroup is gone */
	WINDOW_STOPPED,	 /* the service that writes it stops; what it enforces stays */
	WINDOW_ENDS,
};

/* A part of what the kernel has counted, as in struct weir_sandbox. */
struct note_counts {
	uint64_t attempts, denied, allowed, would_deny;
	uint64_t inbound, unlisted, net_bytes;
};

/* Why one policy took another's place. Names are in policy_change_names[]. */
enum policy_change {
	POLICY_CHANGE_RELOAD,	 /* the operator asked for it: the document was read again */
	POLICY_CHANGE_ADDRESSES, /* the host's addresses or name servers changed, which a set of the policy holds */
	POLICY_CHANGE_COUNT,
};

/* Moments of a run: sums since its beginning, but for the memory, which is that moment's. */
struct note_sample {
	uint32_t at_ms; /* since its beginning */
	uint32_t memory_kib;
	uint32_t cpu_ms;
	uint32_t processes; /* alive; 0: not known */
	uint64_t attempts, denied, refused;
};
#define NOTE_SAMPLES_MAX 8
#define NOTE_POLICY_PART 384

/* Where a chain ends. */
struct chain_head {
	uint64_t n; /* 0: nothing was ever signed */
	uint8_t hash[32];
	uint8_t key_id[32]; /* SHA-256 of the public key (its 32 bytes); zeros: there is no key, nothing will be signed */
};

/* One policy, as records name it. */
struct note_policy {
	char name[IPC_POLICY_MAX];
	uint8_t hash[32]; /* SHA-256 of the document */
	uint32_t generation;
	uint32_t quiet; /* `audit.allowed` is false: allowed attempts are counted and have no event */
};

/* What the policy that judged says of a flow's key, which names a rule by number and a prefix not at all. EVENT and FLOW. */
struct note_judged {
	char rule_name[IPC_POLICY_MAX]; /* "" without a rule, and when the policy is one of long ago */
	uint8_t carried[4];		/* with via NAT64_CONFIGURED: the address that decided */
	uint8_t has_carried;
	uint8_t pad[3];
};

struct note {
	uint32_t type;
	uint32_t pad;
	char run_id[IPC_ID_MAX]; /* "" of nobody's, an EVENT nobody claims, and the POLICY for everybody */
	char sandbox_id[IPC_ID_MAX];
	char project[IPC_PROJECT_MAX];
	uint64_t wall_ns; /* CLOCK_REALTIME when the supervisor wrote this */
	uint64_t boot_ns; /* CLOCK_BOOTTIME, the same moment */
	struct note_judged judged;
	union {
		struct {
			struct note_policy policy;
			uint32_t timeout_s;
			char python[32];
			char agent[IPC_PROJECT_MAX]; /* of a tool call; "" */
			char image[72];		     /* digest of its image */
			char boot_id[37];	     /* of the kernel that it runs on */
			/* What it may use at most; 0: no bound of its own */
			uint64_t memory_bytes, output_bytes;
			uint32_t cpu_percent, processes, open_files;
			/* As in struct ask; "": nobody, as of an attachment's window */
			char caller[IPC_CALLER_MAX];
			struct {
				uint32_t known, path_cut;
				char path[IPC_COMMAND_MAX]; /* argv[0] as given: any bytes; of a longer one its beginning */
				uint8_t sha256[32]; /* of the arguments, argv[0] among them, each with a NUL behind it */
			} command;		    /* of the host's, under `weir exec` */
		} begin;
		struct weir_event event;
		struct {
			struct weir_flow_key key;
			struct weir_flow count;
		} flow;
		struct tell_end end;
		struct {
			uint32_t sandboxes, processes; /* found alive and killed */
			uint32_t events;	       /* drained from the old ring */
			uint32_t pad;
			uint64_t ring_lost;    /* events the old ring could not take */
			uint64_t last_boot_ns; /* time of the newest drained event, 0 for none */
			char instance[32];
			char text[160];
		} gap;
		struct {
			struct note_policy old, now;
			uint32_t reason; /* enum policy_change */
			uint32_t pad;
		} policy;
		struct {
			uint64_t cgroup, attached_ns; /* its id; CLOCK_REALTIME */
			uint32_t level, coverage;     /* depth below the hierarchy's root; enum coverage */
			uint32_t parent, passes; /* it carries programs for those below it; what has no policy there passes */
			uint32_t sockets, sockets_beyond; /* that were open; how many more are not listed */
			uint32_t proven, canary_attempts, canary_denied;
			uint32_t pad;
			char kind[16], runtime[16];
			char container[65], pod[65];
			char why[126]; /* not proven: why */
		} target;
		struct {
			uint32_t which; /* enum note_place */
			uint32_t pad;
			char text[352]; /* of a longer one its end, after "..." */
		} place;
		struct {
			uint64_t id;
			char path[352]; /* as a place's; "": it was gone by then */
		} cgroup;
		struct {
			uint32_t weakness; /* enum weakness */
			uint32_t pad;
			char detail[192];
		} weak;
		struct {
			int32_t pid;
			uint8_t family, protocol, state, verdict; /* as in struct open_socket */
			uint8_t elsewhere, connected;
			uint16_t local_port, remote_port;
			uint8_t pad[2];
			uint8_t local[16], remote[16];
			char comm[16];
		} socket;
		struct {
			uint32_t over; /* it is as it should be again */
			uint32_t pad;
			char name[32], text[224];
		} drift;
		struct {
			uint64_t since_ns; /* CLOCK_REALTIME; 0: not known */
			uint64_t ring_lost;
			struct note_counts counts; /* of that time */
			uint32_t
			    unfinished; /* number of the record before, which has no end: what it had counted is in this one */
			uint32_t pad;
			char text[160];
		} undrained;
		struct {
			uint32_t why;	     /* enum window_end */
			uint32_t unreadable; /* the kernel's counters could not be read: `counts` says nothing */
			uint64_t duration_us;
			struct note_counts counts;
			uint64_t dropped; /* events and flows that did not get to the auditor */
			char detail[128];
			/* Of that time, as in struct tell_end; an empty source: not measured */
			uint64_t cpu_us, memory_peak;
			char cpu_source[24], memory_source[24];
			struct tell_meter meter;
		} window;
		struct weir_meter_event exec;
		struct {
			char name[32];		     /* "ptrace"; "" when this version knows no name for it */
			uint32_t number, error;	     /* error: the errno it was refused with */
			uint64_t count, interrupted; /* apart, see struct refused_calls */
			uint64_t first_ns, last_ns;  /* CLOCK_BOOTTIME; 0: not known */
		} syscall;
		struct {
			uint32_t count, pad;
			struct note_sample of[NOTE_SAMPLES_MAX];
		} samples;
		struct {
			char instance[64], boot_id[37], kernel[65], version[65];
		} start;
		struct {
			uint8_t hash[32]; /* SHA-256 of the whole document */
			char name[IPC_POLICY_MAX];
			uint32_t offset, len,
			    total; /* bytes; total over LIMIT_AUDIT_POLICY_BYTES: none of it is sent, len is 0 */
			uint32_t pad;
			char text[NOTE_POLICY_PART];
		} text;
		struct chain_head head;
		struct {
			uint64_t n;
			uint8_t hash[32], signature[64];
		} is_signed;
	};
};

/* ---- auditor -> supervisor ---- */

/*
 * Sign entry `n` of the chain, whose body has this digest. The supervisor computes the entry's hash itself, from what it
 * remembers of entry n - 1 (core/chain.h), so that an auditor gone bad can neither go back nor write another past. Answered in
 * order, by NOTE_SIGNED or, when it is not the next one, by NOTE_HEAD. With `after_break` n may be further on: entries are
 * missing, this one says so, and it follows what the supervisor remembers; that is logged as the error that it is. So far and
 * no further: CHAIN_AHEAD entries at most.
 */
enum sign_after {
	SIGN_NEXT,    /* it follows the one before it */
	SIGN_BREAK,   /* what is between is missing, or changed */
	SIGN_ADOPTED, /* what is between was found unsigned at a start */
};
struct sign_ask {
	uint64_t n;
	uint32_t after_break; /* enum sign_after: it follows what the keeper remembers, whatever is between */
	uint32_t pad;
	uint8_t body[32];
};

/* Which text of a target's a NOTE_PLACE has. */
enum note_place {
	PLACE_CGROUP, /* below the hierarchy's root */
	PLACE_REF,    /* as it was asked for */
	PLACE_PROVEN, /* the cgroup in which it was tried */
	PLACES,
};

/* ---- client -> auditor, and back ---- */
enum query_type {
	QUERY_NONE,
	/*
	 * What a run's answer says of its record: {"egress": …, "audit_hash": "hex"}. Waits for the run's NOTE_RUN_END.
	 * `content` is what the client itself saw of the run; with it the record is complete: summed up, chained, and kept
	 * before the answer is given. With `content.stored` a sealed memfd comes along.
	 */
	QUERY_SUMMARY,
	QUERY_RUN,    /* the whole record of one run, for GET /v1/runs/{run_id}/audit */
	QUERY_SEARCH, /* runs by `find`, newest first: {"runs": […], "next": "cursor" or null} */
	QUERY_FOLLOW, /* records after `find.after`, oldest first; waits up to AUDITOR_FOLLOW_WAIT_MS for one: {"records": […],
			 "cursor": N}. after UINT64_MAX: from now on (answered at once, with no records) */
	QUERY_STATS,  /* the auditor's own figures, for metrics */
	QUERY_TYPES,
};

/* What of a run only its client sees. Outputs: what the program wrote (`bytes`) and what of it was kept (`kept`, hashed). */
enum content_kind {
	CONTENT_CODE,	   /* of a tool call: the tool's name */
	CONTENT_ARGUMENTS, /* standard input; of a tool call its arguments, as sent */
	CONTENT_FILES_IN,  /* the files that came with it: path, NUL, content, one after the other */
	CONTENT_STDOUT,
	CONTENT_STDERR,
	CONTENT_RESULT,	   /* of a tool call */
	CONTENT_FILES_OUT, /* likewise */
	CONTENT_KINDS,
};
struct content_told {
	uint32_t told; /* bit 1 << enum content_kind: there is such a thing, and what follows is known of it */
	uint32_t
	    stored; /* likewise: its kept bytes are in the memfd, one kind after the other (LIMIT_AUDIT_CONTENT_BYTES each) */
	struct {
		uint64_t bytes, kept, stored;
		uint8_t sha256[32];
	} of[CONTENT_KINDS];
};
extern const char *const content_names[CONTENT_KINDS]; /* "code", "arguments", "files", "stdout", … */

/* Which runs, or which records. Empty members ask for nothing. */
struct find {
	uint64_t since_ns, until_ns; /* CLOCK_REALTIME of a run's beginning (of a record, its own); until is not included */
	uint64_t after;		     /* SEARCH: cursor of the answer before, 0 for the first; FOLLOW: see there */
	uint32_t limit;		     /* at most LIMIT_AUDIT_SEARCH; 0: that many */
	uint32_t verdicts;	     /* bits 1 << enum weir_verdict: it had an attempt with one of these */
	uint32_t ends;		     /* bits 1 << enum run_end; an attachment's window has none */
	uint32_t pad;
	char project[IPC_PROJECT_MAX]; /* a filter, beside what the asker may see */
	char policy[IPC_POLICY_MAX];   /* its name */
	char caller[IPC_CALLER_MAX];   /* who asked for it, whole */
	char agent[IPC_PROJECT_MAX];   /* whose tool was called; SEARCH */
	char destination[256]; /* an address, a DNS name, or a prefix of one that ends in '*' or suffix that begins with it */
};

struct query {
	uint32_t type;
	uint32_t pad;
	uint64_t req;
	char run_id[IPC_ID_MAX];
	char project[IPC_PROJECT_MAX]; /* "" sees every project; else a run of another project is not found */
	char agent[IPC_PROJECT_MAX];   /* RUN, SEARCH, FOLLOW: "" sees those of every agent; else another agent's call is not
					  there */
	struct content_told content;   /* SUMMARY */
	struct find find;	       /* SEARCH and FOLLOW */
};

/*
 * Followed in the same message by `len` bytes of JSON when it fits ANSWER_INLINE_MAX, else a memfd (sealed, `len` bytes)
 * comes along.
 */
#define ANSWER_INLINE_MAX 32768
struct answer {
	uint32_t status; /* 0, or an errno: ENOENT not found, ETIMEDOUT the run's end was never recorded */
	uint32_t len;
	uint64_t req;
};

extern const char *const run_end_names[RUN_END_COUNT];
extern const char *const policy_change_names[POLICY_CHANGE_COUNT];
extern const char *const window_end_names[WINDOW_ENDS];

/* ---- supervisor -> gateway, and back ---- */

/*
 * Carry one sandbox's packets. fds: the cgroup to be born in (a directory of cgroup2), the tap device, then the `tasks` files
 * of v1 cgroups to join. Answered once, when the process that carries them is ready or could not be made.
 */
struct carry {
	uint64_t req;
	uint32_t uid;	   /* who that process becomes: nobody else is */
	uint32_t v1_count; /* at most IPC_FDS_MAX - 2 */
	uint32_t nofile;
	uint32_t pad;
};
struct carrying {
	uint64_t req;
	int32_t status; /* 0, or a negative errno */
	int32_t pid;	/* in the host's pid namespace */
	char text[128]; /* what went wrong */
};

/* A connected SEQPACKET pair, close-on-exec, both non-blocking, with send buffers of at least `bytes`. Returns 0 or -errno. */
int ipc_pair(int ret[2], int bytes);

/*
 * Sends one message with up to IPC_FDS_MAX fds (which stay the caller's). Returns 0, -EAGAIN when the peer is slow, -EPIPE
 * when it is gone.
 */
int ipc_send(int sock, const void *msg, size_t len, const int *fds, size_t nfds);

/*
 * Receives one message into buf (at most len bytes). Returns its length, 0 at end of stream, -EAGAIN when there is none,
 * -EMSGSIZE when it was longer. *nfds: room in fds on entry, received on return; fds are close-on-exec and the caller's.
 * Fds beyond the room are closed. fds and nfds may both be NULL: then any fd is closed.
 */
ssize_t ipc_recv(int sock, void *buf, size_t len, int *fds, size_t *nfds);

/* Whether the array holds a terminator. */
bool ipc_text_ok(const char *text, size_t size);

#endif
