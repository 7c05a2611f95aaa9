/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one limits table: every resource that a client or a sandboxed program can make grow.
 * LIMIT(NAME, value, unit, why) feeds the enum here, the checks, the documents and the boundary tests.
 */
#ifndef WEIR_CORE_LIMITS_H
#define WEIR_CORE_LIMITS_H

#define WEIR_LIMITS(LIMIT)                                                                                                     \
	LIMIT(TIMEOUT_DEFAULT_S, 20, "s", "what a snippet gets when it names no deadline")                                     \
	LIMIT(TIMEOUT_MIN_S, 1, "s", "the shortest deadline that still means something")                                       \
	LIMIT(TIMEOUT_MAX_S, 60, "s", "no snippet holds a sandbox for longer")                                                 \
	LIMIT(MEMORY_BYTES, 512LL << 20, "bytes", "memory of one sandbox, no swap; tmpfs pages count")                         \
	LIMIT(CPU_PERCENT, 100, "% of one CPU", "bandwidth; over it a run is slowed, not ended")                               \
	LIMIT(PIDS, 256, "processes and threads", "fork bombs end in EAGAIN")                                                  \
	LIMIT(OPEN_FILES, 1024, "files per process", "RLIMIT_NOFILE")                                                          \
	LIMIT(TMPFS_BYTES, 64LL << 20, "bytes", "each of the working directory, /tmp and /dev/shm: a full disk is ENOSPC")     \
	LIMIT(TMPFS_INODES, 16384, "inodes", "each of the three")                                                              \
	LIMIT(OUTPUT_BYTES, 4LL << 20, "bytes", "stdout and stderr each; over it the run ends")                                \
	LIMIT(BODY_BYTES, 16LL << 20, "bytes", "one HTTP request body")                                                        \
	LIMIT(CODE_BYTES, 1LL << 20, "bytes", "the code of one request")                                                       \
	LIMIT(HEADER_BYTES, 16384, "bytes", "request line and headers of one HTTP request")                                    \
	LIMIT(JSON_DEPTH, 64, "levels", "nesting of a request body")                                                           \
	LIMIT(CONNECTIONS, 1024, "connections", "open HTTP connections")                                                       \
	LIMIT(CONNECTION_IDLE_S, 30, "s", "a client that sends nothing, or reads nothing")                                     \
	LIMIT(PROJECT_RUNNING, 64, "runs", "of one project at once")                                                           \
	LIMIT(PROJECT_WAITING, 256, "runs", "of one project waiting for a sandbox; over it 429")                               \
	LIMIT(POOL_WAIT_S, 30, "s", "for a warm sandbox; after it 503")                                                        \
	LIMIT(POOL_WAITING, 8192, "requests", "of all projects that wait for a sandbox")                                       \
	LIMIT(HANDOVER_S, 60, "s",                                                                                             \
	      "from the grant of a sandbox to the order to start: a client that does neither gets neither")                    \
	LIMIT(POOL_SIZE, 3, "sandboxes", "kept warm")                                                                          \
	LIMIT(SANDBOXES, 1024, "sandboxes", "alive at once, whatever their state")                                             \
	LIMIT(READY_S, 20, "s", "from the first step of a sandbox to a ready interpreter")                                     \
	LIMIT(EGRESS_DESTINATIONS, 16, "destinations", "listed in an answer; the audit has the rest")                          \
	LIMIT(AUDIT_FLOWS, 1024, "flows", "listed per run; over it attempts are counted, not listed")                          \
	LIMIT(AUDIT_READS, 8, "requests", "whole audit records being read at once; over it 429")                               \
	LIMIT(AUDIT_FILE_BYTES, 256LL << 20, "bytes", "one record file; two are kept")                                         \
	LIMIT(POLICY_BYTES, 1LL << 20, "bytes", "one policy document")                                                         \
	LIMIT(POLICY_DEPTH, 16, "levels", "nesting of a policy document")                                                      \
	LIMIT(POLICY_RULES, 1024, "rules", "of one policy")                                                                    \
	LIMIT(POLICY_PREFIXES, 10000, "prefixes", "written in one policy; named sets add theirs")                              \
	LIMIT(POLICY_PORTS, 32, "port ranges", "of one rule")                                                                  \
	LIMIT(POLICY_PROTOCOLS, 16, "protocols", "of one rule")                                                                \
	LIMIT(POLICY_CHANGES, 64, "changes", "of the policy that are listed for a run; the rest are counted")                  \
	LIMIT(POLICY_SYSCALLS, 256, "names", "of system calls and groups in one policy")

enum weir_limit_value {
#define LIMIT(name, value, unit, why) LIMIT_##name = (value),
	WEIR_LIMITS(LIMIT)
#undef LIMIT
};

#endif
