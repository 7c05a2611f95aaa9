/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one limits table: every resource that a client or a sandboxed program can make grow.
 * LIMIT(NAME, value, unit, why) feeds the enum here, the checks, the documents and the boundary tests.
 */
#ifndef WEIR_CORE_LIMITS_H
#define WEIR_CORE_LIMITS_H

#define WEIR_LIMITS(LIMIT)                                                                                                     \
	LIMIT(TIMEOUT_DEFAULT_S, 20, "s", "the deadline of a run whose request names none")                                    \
	LIMIT(TIMEOUT_MIN_S, 1, "s", "the shortest deadline a request may name")                                               \
	LIMIT(TIMEOUT_MAX_S, 60, "s", "the longest deadline of a run in a sandbox of its own; over it 400")                    \
	LIMIT(CELL_TIMEOUT_MAX_S, 120, "s", "the longest deadline of a session's cell; over it 400")                           \
	LIMIT(MEMORY_BYTES, 512LL << 20, "bytes",                                                                              \
	      "of one sandbox, its files in memory counted, no swap; over it the run ends")                                    \
	LIMIT(CPU_PERCENT, 100, "% of one CPU", "of one sandbox; over it a run is slowed, not ended")                          \
	LIMIT(PIDS, 256, "processes and threads", "of one sandbox at once; over it EAGAIN")                                    \
	LIMIT(OPEN_FILES, 1024, "files per process", "of one process; over it EMFILE")                                         \
	LIMIT(TMPFS_BYTES, 64LL << 20, "bytes", "each of the working directory, /tmp and /dev/shm; over it ENOSPC")            \
	LIMIT(TMPFS_INODES, 16384, "inodes", "in each of the working directory, /tmp and /dev/shm; over it ENOSPC")            \
	LIMIT(OUTPUT_BYTES, 4LL << 20, "bytes", "each of standard output and standard error; over it the run ends")            \
	LIMIT(CALL_TIMEOUT_DEFAULT_S, 30, "s", "the deadline of a tool call whose request names none")                         \
	LIMIT(CALL_TIMEOUT_MAX_S, 120, "s", "the longest deadline of a tool call; over it 400")                                \
	LIMIT(CALL_MEMORY_BYTES, 1LL << 30, "bytes", "of a tool's sandbox, as for snippets")                                   \
	LIMIT(CALL_CPU_PERCENT, 200, "% of one CPU", "of a tool's sandbox; over it a call is slowed, not ended")               \
	LIMIT(CALL_PIDS, 512, "processes and threads", "of a tool's sandbox at once; over it EAGAIN")                          \
	LIMIT(CALL_OPEN_FILES, 4096, "files per process", "of one process of a tool; over it EMFILE")                          \
	LIMIT(CALL_TMPFS_BYTES, 256LL << 20, "bytes", "each of a tool's working directory, /tmp and /dev/shm; over it ENOSPC") \
	LIMIT(CALL_TMPFS_INODES, 65536, "inodes", "in each of a tool's working directory, /tmp and /dev/shm; over it ENOSPC")  \
	LIMIT(CALL_OUTPUT_BYTES, 1LL << 20, "bytes", "each of a tool's standard output and standard error; over it it ends")   \
	LIMIT(CALL_BODY_BYTES, 1LL << 20, "bytes", "the body of one tool call; over it 413")                                   \
	LIMIT(CALL_NAME_BYTES, 255, "bytes", "the name of a tool; over it 400")                                                \
	LIMIT(RESULT_BYTES, 8LL << 20, "bytes", "a tool's result as JSON; a larger one is an error of the call")               \
	LIMIT(JSON_DIGITS, 4300, "digits", "of one integer in a tool's arguments (over it 400) or its result (an error)")      \
	LIMIT(RESULT_DEPTH, 60, "levels", "nesting of a tool's result; a deeper one is an error of the call")                  \
	LIMIT(ERROR_TYPE_BYTES, 255, "bytes", "of the type of a tool's error; the rest is cut")                                \
	LIMIT(ERROR_MESSAGE_BYTES, 8192, "bytes", "of the message of a tool's error; the rest is cut")                         \
	LIMIT(ERROR_TRACEBACK_BYTES, 65536, "bytes", "of the traceback of a tool's error; the middle is cut")                  \
	LIMIT(CALL_READY_S, 110, "s", "from the first step of a tool's sandbox to its modules being imported; then 503")       \
	LIMIT(CALL_READY_MADE, 2, "sandboxes", "kept ready for each agent that is being called")                               \
	LIMIT(CALL_LOADING, 4, "sandboxes", "of one agent that are being made ready at once")                                  \
	LIMIT(AGENTS_CALLED, 64, "agents",                                                                                     \
	      "that have sandboxes at once; one more takes the place of the one that was called longest ago")                  \
	LIMIT(AGENT_IDLE_S, 900, "s", "without a call; then an agent's ready sandboxes are let go")                            \
	LIMIT(WAY_OUT_MEMORY_BYTES, 256LL << 20, "bytes", "of the process that carries one tool's packets to the network")     \
	LIMIT(WAY_OUT_CPU_PERCENT, 100, "% of one CPU", "of that process")                                                     \
	LIMIT(WAY_OUT_SOCKETS, 512, "sockets", "of one tool call to the network at once; further connections fail")            \
	LIMIT(WAY_OUT_DATAGRAM_SOCKETS, 128, "sockets", "of those for datagrams; further ones are refused")                    \
	LIMIT(MCP_BODY_BYTES, 16LL << 20, "bytes", "one message of the Model Context Protocol; over it 413")                   \
	LIMIT(MCP_ID_BYTES, 256, "bytes", "the id of such a message, as JSON; over it 400")                                    \
	LIMIT(BODY_BYTES, 16LL << 20, "bytes", "the body of one request; over it 413")                                         \
	LIMIT(CODE_BYTES, 1LL << 20, "bytes", "the code of one request; over it 413")                                          \
	LIMIT(STDIN_BYTES, 4LL << 20, "bytes", "the standard input of one request; over it 413")                               \
	LIMIT(ENV_NAMES, 64, "names", "in the environment of one request; over it 413")                                        \
	LIMIT(ENV_BYTES, 32768, "bytes",                                                                                       \
	      "the environment of one request: names, values, and two bytes more for each; over it 413")                       \
	LIMIT(FILES_IN, 256, "files", "of one request; over it 413")                                                           \
	LIMIT(FILES_IN_BYTES, 10LL << 20, "bytes", "the content of all files of one request, decoded; over it 413")            \
	LIMIT(FILES_IN_DEPTH, 16, "levels", "of the path of a request's file, its own name counted; over it 413")              \
	LIMIT(FILE_PATH_BYTES, 1024, "bytes", "the path of a request's file; over it 413")                                     \
	LIMIT(FILE_NAME_BYTES, 255, "bytes", "one name in the path of a request's file; over it 413")                          \
	LIMIT(FILES_OUT, 256, "files", "in one answer; the rest are listed as skipped")                                        \
	LIMIT(FILE_OUT_BYTES, 8LL << 20, "bytes", "one file in an answer; a larger one is listed as skipped")                  \
	LIMIT(FILES_OUT_BYTES, 16LL << 20, "bytes", "all files of one answer; what does not fit is listed as skipped")         \
	LIMIT(FILES_OUT_DEPTH, 32, "levels", "of the path of an answer's file; what is deeper is listed as skipped")           \
	LIMIT(FILES_OUT_MS, 2000, "ms", "for reading what a run left; what is not read by then is listed as skipped")          \
	LIMIT(FILES_SKIPPED, 256, "paths", "listed as skipped in one answer; the rest are counted")                            \
	LIMIT(HEADER_BYTES, 16384, "bytes", "request line and headers of one request; over it 431")                            \
	LIMIT(JSON_DEPTH, 64, "levels", "nesting of a request's body; over it 400")                                            \
	LIMIT(CONNECTIONS, 1024, "connections", "open to one service at once")                                                 \
	LIMIT(CONNECTION_IDLE_S, 30, "s",                                                                                      \
	      "without a byte from a client, or without it reading one; then its connection is closed")                        \
	LIMIT(TRANSFER_S, 120, "s", "for a request to arrive whole, and for its answer to be read")                            \
	LIMIT(DISCARD_BYTES, 64LL << 20, "bytes",                                                                              \
	      "of a refused request that are read and thrown away, for its client to get to the answer")                       \
	LIMIT(STRANGER_BYTES, 65536, "bytes", "the same without a valid token")                                                \
	LIMIT(STRANGER_S, 5, "s", "for a request without a valid token to arrive")                                             \
	LIMIT(BODIES_BYTES, 1LL << 30, "bytes", "of request bodies held at once, all projects together")                       \
	LIMIT(PROJECT_BODIES_BYTES, 384LL << 20, "bytes", "of requests of one project that wait or arrive; over it 429")       \
	LIMIT(SMALL_BODY_BYTES, 65536, "bytes", "of a request body for which there is always room")                            \
	LIMIT(ANSWERS_BYTES, 512LL << 20, "bytes", "of unread answers in all; over it the largest holder loses its oldest")    \
	LIMIT(SESSION_BODY_BYTES, 4096, "bytes", "the request that opens a session")                                           \
	LIMIT(KEEP_ALIVE_S, 10, "s", "of silence in a stream of events; then a comment")                                       \
	LIMIT(DRAIN_S, 5, "s", "for open runs to end by themselves when the service stops; then they are cancelled")           \
	LIMIT(PROJECT_RUNNING, 64, "runs", "of one project at once; further ones wait")                                        \
	LIMIT(PROJECT_WAITING, 256, "runs", "of one project that wait for a sandbox; over it 429")                             \
	LIMIT(SESSION_IDLE_S, 900, "s", "without a cell; then a session ends")                                                 \
	LIMIT(SESSION_LIFE_S, 28800, "s", "of one session, whatever it does; then it ends")                                    \
	LIMIT(SESSIONS, 32, "sessions", "of one project at once; over it 429")                                                 \
	LIMIT(PLACING_S, 20, "s", "for a session's interpreter to take a cell and its files")                                  \
	LIMIT(COLLECT_S, 30, "s", "for a cell's files to be read while its session is frozen; then it is ended")               \
	LIMIT(SESSIONS_ALL, 512, "sessions", "of all projects at once, those that are ending included; over it 503")           \
	LIMIT(INTERRUPT_S, 2, "s", "for a cell to end when it was interrupted; then its session is ended")                     \
	LIMIT(AGENTS, 1024, "agents", "that a service knows")                                                                  \
	LIMIT(AGENT_TOOLS, 64, "modules", "with tools of one agent")                                                           \
	LIMIT(AGENT_TOOLS_BYTES, 4095, "bytes", "the names of these modules together, and one more for each but the first")    \
	LIMIT(AGENT_VARIABLES, 64, "names", "in the environment of one agent")                                                 \
	LIMIT(AGENT_VARIABLES_BYTES, 32768, "bytes", "the environment of one agent")                                           \
	LIMIT(IMAGES, 1024, "images", "that a service knows")                                                                  \
	LIMIT(IMAGE_VARIABLES_BYTES, 16384, "bytes", "of an image's own environment that its tools get")                       \
	LIMIT(REGISTRY_BYTES, 16LL << 20, "bytes", "the file with the agents, and the one with the images")                    \
	LIMIT(TOKENS, 4096, "tokens", "that a service knows, revoked ones included until their places are needed")             \
	LIMIT(POOL_WAIT_S, 30, "s", "that a request waits for a warm sandbox, or for its turn in a session; then 503, or 409") \
	LIMIT(POOL_WAITING, 8192, "requests", "of all projects that wait for a sandbox")                                       \
	LIMIT(HANDOVER_S, 60, "s",                                                                                             \
	      "from the grant of a sandbox to the order to start: a client that does neither gets neither")                    \
	LIMIT(POOL_SIZE, 3, "sandboxes", "kept warm")                                                                          \
	LIMIT(SANDBOXES, 1024, "sandboxes", "alive at once, whatever their state")                                             \
	LIMIT(READY_S, 20, "s", "from the first step of a sandbox to a ready interpreter")                                     \
	LIMIT(EGRESS_DESTINATIONS, 16, "destinations", "of network attempts, listed in one answer; the audit has the rest")    \
	LIMIT(AUDIT_FLOWS, 1024, "flows", "of network attempts, listed for one run; further ones are counted only")            \
	LIMIT(AUDIT_READS, 8, "requests", "for whole audit records, answered at once; over it 429")                            \
	LIMIT(AUDIT_BYTES, 1LL << 30, "bytes", "the record; over it whoever has most of it loses their oldest runs")           \
	LIMIT(AUDIT_PROJECT_BYTES, 256LL << 20, "bytes", "of one project's in the record; over it its oldest runs go")         \
	LIMIT(AUDIT_KEEP_S, 30 * 86400, "s", "that a run stays in the record")                                                 \
	LIMIT(AUDIT_SEARCH, 500, "runs or records", "in one answer of a search")                                               \
	LIMIT(AUDIT_STREAMS, 8, "clients", "that follow the record at once; over it 429")                                      \
	LIMIT(AUDIT_CONTENT_BYTES, 64 << 10, "bytes", "of each kind of a run's content, where content is stored at all")       \
	LIMIT(AUDIT_POLICY_BYTES, 64 << 10, "bytes", "a policy document that the record has whole; of longer ones, the hash")  \
	LIMIT(AUDIT_SAMPLES, 128, "moments", "of a run, in its timeline; a longer run has fewer of each second")               \
	LIMIT(AUDIT_SYSCALLS, 64, "system calls", "that were refused, listed for one run by name; the rest are counted")       \
	LIMIT(AUDIT_EXECS, 128, "programs", "that were started, listed for one run; the rest are counted")                     \
	LIMIT(CONFIG_BYTES, 65536, "bytes", "one configuration file")                                                          \
	LIMIT(TLS_BYTES, 262144, "bytes", "a file with a TLS certificate and its chain, or with a key")                        \
	LIMIT(IMAGE_BYTES, 16LL << 30, "bytes", "of the files of an image, all layers together")                               \
	LIMIT(IMAGE_ENTRIES, 1 << 20, "entries", "files, directories and links in the layers of an image")                     \
	LIMIT(IMAGE_LAYERS, 256, "layers", "of an image")                                                                      \
	LIMIT(IMAGE_ARCHIVE_ENTRIES, 65536, "entries", "of an archive that holds images, in which each layer is one")          \
	LIMIT(IMAGE_MANIFEST_BYTES, 4LL << 20, "bytes", "index, manifest or configuration of an image")                        \
	LIMIT(IMAGE_UNPACK_S, 1800, "s", "for unpacking an image")                                                             \
	LIMIT(IMAGE_CACHE_BYTES, 4LL << 20, "bytes", "one cache that a priming run leaves for an image")                       \
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
