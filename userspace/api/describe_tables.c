/* SPDX-License-Identifier: Apache-2.0 */
/* What the routes answer, field by field. */
#include "api/describe_priv.h"
#include "ipc/ipc.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define FIELD(path_, type_, description_)                                                                                      \
	{                                                                                                                      \
		.path = (path_), .type = (type_), .description = (description_)                                                \
	}
#define MAYBE(path_, type_, description_)                                                                                      \
	{                                                                                                                      \
		.path = (path_), .type = (type_), .description = (description_), .optional = true                              \
	}
#define ONE_OF(path_, names_, description_)                                                                                    \
	{                                                                                                                      \
		.path = (path_), .type = "string", .description = (description_), .values = (names_),                          \
		.value_count = COUNT(names_)                                                                                   \
	}

static const char *const verdicts[] = {"denied", "allowed", "would_deny"};
static const char *const run_states[] = {"running", "ended", "interrupted"};
static const char *const session_states[] = {"idle", "busy", "ended"};
static const char *const ok[] = {"ok"}, *const ready[] = {"ready"};

#define TERMINATION                                                                                                            \
	FIELD("termination", "object", "what ended it, as the supervisor saw it"),                                             \
	    {.path = "termination.reason",                                                                                     \
	     .type = "string",                                                                                                 \
	     .description = "how it ended",                                                                                    \
	     .values = run_end_names,                                                                                          \
	     .value_count = RUN_END_BROKEN},                                                                                   \
	    FIELD("termination.signal", "string?", "the signal's name, such as SIGSEGV"),                                      \
	    FIELD("termination.detail", "string", "words, or nothing")

#define FIGURE(path, words)                                                                                                    \
	FIELD(path, "object", words), FIELD(path ".value", "number?", "the figure, null when it could not be had"),            \
	    FIELD(path ".source", "string?", "where the figure comes from"),                                                   \
	    FIELD(path ".checked", "object?", "what another source says; null without one"),                                   \
	    FIELD(path ".checked.value", "number?", "the other figure"),                                                       \
	    FIELD(path ".checked.source", "string", "where it comes from, and of what it is the figure")

#define FIGURES                                                                                                                \
	FIGURE("usage.cpu_ms", "CPU time"), FIGURE("usage.memory_peak_bytes", "the highest use of memory"),                    \
	    FIGURE("usage.output_bytes", "both streams"), FIGURE("usage.net_bytes", "packets that were allowed to leave")

#define EGRESS                                                                                                                 \
	FIELD("egress", "object", "what it tried on the network; the counts are exact"),                                       \
	    FIELD("egress.attempts", "integer", "the sum of denied, allowed and would_deny"),                                  \
	    FIELD("egress.denied", "integer", "attempts that were refused"),                                                   \
	    FIELD("egress.allowed", "integer", "attempts that were let through"),                                              \
	    FIELD("egress.would_deny", "integer", "let through by a policy that only watches, and denies them"),               \
	    FIELD("egress.inbound", "integer", "packets from outside that were refused; no attempts"),                         \
	    FIELD("egress.lost", "integer", "attempts that no destination accounts for")

/* What every run has, between its ids and its files. */
#define RUN_OUTPUT                                                                                                             \
	FIELD("stdout", "string", "what it wrote; invalid UTF-8 is replaced once over the whole"),                             \
	    FIELD("stderr", "string", "the same of standard error"),                                                           \
	    FIELD("exit_code", "integer", "CPython's own; 128 + n for signal n; -1 when the deadline killed it"),              \
	    FIELD("duration_ms", "integer", "wall time of the run, not of waiting"), TERMINATION,                              \
	    FIELD("truncated", "boolean", "whether output was cut"),                                                           \
	    FIELD("stdout_bytes", "integer", "how much was written to standard output"),                                       \
	    FIELD("stderr_bytes", "integer", "how much was written to standard error"),                                        \
	    FIELD("usage", "object", "what it used"), FIGURES, FIELD("usage.stages", "object", "where the time went"),         \
	    FIELD("usage.stages.queue_ms", "number", "waiting for a sandbox"),                                                 \
	    FIELD("usage.stages.send_ms", "number", "handing the request over"),                                               \
	    FIELD("usage.stages.run_ms", "number", "the run")

/* What is told of every run beside what it used. */
#define RUN_ACCOUNT                                                                                                            \
	FIELD("processes", "integer?", "processes it had; null: not known"),                                                   \
	    FIELD("refused_syscalls", "object?", "system calls that its filter refused; null: not known"),                     \
	    FIELD("refused_syscalls.count", "integer", "how many calls that were; the record has which")
#define AUDIT_HASH                                                                                                             \
	FIELD("audit_hash", "string?",                                                                                         \
	      "the hash of its entry in the audit record's chain, for `weir audit verify --expect`; null: the auditor gave "   \
	      "none")

#define DESTINATIONS                                                                                                           \
	FIELD("egress.destinations", "array", "the first 16"),                                                                 \
	    FIELD("egress.destinations[].protocol", "string", "tcp, udp, icmp or another"),                                    \
	    FIELD("egress.destinations[].address", "string?", "where to"),                                                     \
	    FIELD("egress.destinations[].port", "integer?", "null without one"),                                               \
	    FIELD("egress.destinations[].dns_name", "string?", "the name that was asked for"),                                 \
	    ONE_OF("egress.destinations[].verdict", verdicts, "what became of it"),                                            \
	    FIELD("egress.destinations[].reason", "string", "why"),                                                            \
	    FIELD("egress.destinations[].rule", "string?", "the name of the policy's rule that decided"),                      \
	    FIELD("egress.destinations[].count", "integer", "how often")

static const struct answer_field call_fields[] = {
    FIELD("sandbox_id", "string", "the sandbox it ran in; every call has its own"),
    FIELD("run_id", "string", "the call's own id"),
    MAYBE("result", "*", "what the tool returned; not there when there is an error"),
    MAYBE("error", "object", "why there is no result"),
    FIELD("error.type", "string", "the exception's, or Tool…Error: docs/api.md lists these"),
    FIELD("error.message", "string", "the exception's words"),
    FIELD("error.traceback", "string", "of the tool's own lines, or nothing"),
    RUN_OUTPUT,
    FIELD("usage.stages.build_ms", "number", "making the sandbox, before or while the call waited"),
    FIELD("usage.stages.load_ms", "number", "importing the agent's modules there"),
    FIELD("usage.stages.waited_ms", "number", "how much of these two the call had to wait for"),
    RUN_ACCOUNT,
    EGRESS,
    DESTINATIONS,
    AUDIT_HASH,
    FIELD("python", "string", "the version that ran"),
};

static const struct answer_field execute_fields[] = {
    FIELD("sandbox_id", "string", "the sandbox it ran in; every call has its own, a session keeps one"),
    FIELD("run_id", "string", "the call's own id: the sandbox's, or <sandbox_id>.<n> for the n-th cell of a session"),
    RUN_OUTPUT,
    FIELD("usage.stages.collect_ms", "number", "reading what it left"),
    RUN_ACCOUNT,
    EGRESS,
    DESTINATIONS,
    AUDIT_HASH,
    FIELD("python", "string", "the version that ran"),
    MAYBE("session_ended", "boolean", "only of a cell: whether it cost the session its life"),
    FIELD("files", "array", "regular files in the working directory that are new or changed, by path"),
    FIELD("files[].path", "string", "relative to the working directory"),
    FIELD("files[].size", "integer", "bytes"),
    FIELD("files[].content_base64", "string", "the content, as base64 with padding"),
    FIELD("files[].media_type", "string", "guessed from the name"),
    FIELD("files_skipped", "array", "what is there and not among the files"),
    FIELD("files_skipped[].path", "string", "escaped (\\xNN, \\\\) where the reason is \"name\""),
    {.path = "files_skipped[].reason",
     .type = "string",
     .description = "why it was left out",
     .values = skip_names,
     .value_count = COLLECTED_KINDS},
    MAYBE("files_skipped[].size", "integer", "of one that is too large: its bytes"),
    MAYBE("files_skipped[].detail", "string", "when nothing could be read at all: what failed"),
    MAYBE("files_skipped_unlisted", "integer", "how many more were left out"),
};

static const struct answer_field mcp_fields[] = {
    FIELD("jsonrpc", "string", "2.0"),
    FIELD("id", "*", "the request's, as it was written; null when it could not be told"),
    MAYBE("result", "object", "of a request that was served: docs/mcp.md has those of tools/call"),
    MAYBE("error", "object", "of one that was not"),
    FIELD("error.code", "integer", "JSON-RPC's or the protocol's"),
    FIELD("error.message", "string", "what is wrong"),
    MAYBE("error.data", "object", "which revisions are served, when that is what is wrong"),
};

#define SESSION(prefix)                                                                                                        \
	FIELD(prefix "session_id", "string", "its name, for `session_id`"),                                                    \
	    FIELD(prefix "sandbox_id", "string", "the sandbox that it is"),                                                    \
	    ONE_OF(prefix "state", session_states, "whether a cell runs"),                                                     \
	    FIELD(prefix "python", "string", "the version that runs"),                                                         \
	    FIELD(prefix "cells", "integer", "cells started so far"),                                                          \
	    FIELD(prefix "created", "string?", "when it was opened"),                                                          \
	    FIELD(prefix "last_used", "string?", "when its last cell ended"),                                                  \
	    FIELD(prefix "expires", "string?", "when it ends at the latest"),                                                  \
	    FIELD(prefix "idle_timeout_s", "integer", "seconds without a cell after which it ends")

static const struct answer_field session_fields[] = {SESSION("")};
static const struct answer_field sessions_fields[] = {FIELD("sessions", "array", "open sessions of the project, newest first"),
						      SESSION("sessions[].")};

static const struct answer_field pool_fields[] = {
    FIELD("size", "integer", "sandboxes to be kept warm"),
    FIELD("warm", "integer", "ready now"),
    FIELD("starting", "integer", "being built"),
    FIELD("in_use", "integer", "handed out, running or ending"),
    FIELD("waiting", "integer", "requests without a sandbox yet"),
    FIELD("served", "integer", "runs started since the service began"),
    FIELD("misses", "integer", "requests that found no warm sandbox"),
    FIELD("wait_ms", "object", "how long the latest requests waited for a sandbox"),
    FIELD("wait_ms.count", "integer", "how many of them the figures are made of"),
    FIELD("wait_ms.p50", "number?", "half of them waited no longer"),
    FIELD("wait_ms.p90", "number?", "nine of ten"),
    FIELD("wait_ms.p99", "number?", "99 of 100"),
    FIELD("wait_ms.max", "number?", "the longest"),
};

/* Of the record, what a reader can count on; docs/api.md has the rest. */
#define RECORD                                                                                                                 \
	FIELD("run_id", "string", "the run"), FIELD("sandbox_id", "string", "its sandbox"),                                    \
	    FIELD("project", "string", "whose it is"), MAYBE("agent", "string", "of a tool call: which of its agents"),        \
	    MAYBE("image", "string", "of a tool call: the digest of the image"),                                               \
	    MAYBE("caller", "string?", "who asked for it: `token:` and the token's public id; null: nobody"),                  \
	    MAYBE("command", "object", "of `weir exec`: path (argv[0]), path_cut, and sha256 of all arguments"),               \
	    ONE_OF("state", run_states, "interrupted: there will be no end"), FIELD("began", "string", "when"),                \
	    MAYBE("ended", "string", "once there is an end"), FIELD("policy", "string", "the policy in force when it began"),  \
	    FIELD("policy_hash", "string", "SHA-256 of its document"),                                                         \
	    FIELD("policy_generation", "integer", "how often the policy had been replaced by then, from 1"),                   \
	    FIELD("policy_changes", "array", "what took its place while the run went on"),                                     \
	    FIELD("termination", "object?", "null before the end; reason, signal and detail as in the answer to the run"),     \
	    MAYBE("exit_code", "integer", "once there is an end"), MAYBE("duration_ms", "integer", "once there is an end"),    \
	    MAYBE("usage", "object", "once there is an end, or with `live`; as in the answer to the run, without stages"),     \
	    MAYBE("limits", "object", "what it could use at most"),                                                            \
	    MAYBE("processes", "integer?", "processes it had; null: not known"),                                               \
	    MAYBE("threads", "integer?", "threads it had"), MAYBE("execs", "object?", "programs that it started"),             \
	    MAYBE("refused_syscalls", "object?", "system calls that its filter refused, by name"),                             \
	    MAYBE("oom_victims", "integer?", "processes that were chosen to be killed for want of memory"),                    \
	    MAYBE("oom_kills", "integer?", "such kills, as the memory cgroup counted them"),                                   \
	    MAYBE("oom_killed", "array", "which processes that were"),                                                         \
	    MAYBE("packets", "object?", "packets and bytes on their way out, by verdict"),                                     \
	    MAYBE("timeline", "array", "moments of it"),                                                                       \
	    MAYBE("content", "object?", "hashes and sizes of code, arguments, files and output; null: not told"),              \
	    MAYBE("boot_id", "string?", "of the kernel that it ran on"),                                                       \
	    MAYBE("chain", "object?", "its entry in the record's chain; null before it is finished"), AUDIT_HASH, EGRESS,      \
	    MAYBE("egress.events_missing", "integer?", "numbers of the kernel's events that never came"),                      \
	    MAYBE("gaps", "array", "times in which something could not be recorded"),                                          \
	    FIELD("egress.exact", "boolean", "whether the counts are the kernel's; before the end they are what is listed"),   \
	    FIELD("records_unwritten", "integer", "records that could not be written to disk"),                                \
	    FIELD("events_omitted", "integer", "events beyond those that are listed")

static const struct answer_field run_fields[] = {
    RECORD, MAYBE("live", "boolean", "true: it goes on, and its figures are those so far")};
static const struct answer_field audit_fields[] = {
    RECORD,
    FIELD("events", "array", "one for each flow"),
    FIELD("events[].seq", "integer", "its place in the record"),
    FIELD("events[].time", "string", "when it was seen first"),
    FIELD("events[].hook", "string", "where it was seen"),
    ONE_OF("events[].verdict", verdicts, "what became of it"),
    FIELD("events[].reason", "string", "why"),
    FIELD("events[].count", "integer", "how often"),
};

static const struct answer_field search_fields[] = {
    FIELD("runs", "array", "newest first"),
    FIELD("runs[].run_id", "string", "the run"),
    FIELD("runs[].sandbox_id", "string?", "its sandbox"),
    FIELD("runs[].project", "string", "whose it is"),
    FIELD("runs[].agent", "string?", "of a tool call: which of its agents"),
    FIELD("runs[].caller", "string?", "who asked for it"),
    FIELD("runs[].kind", "string", "run, call, session, cell, exec or attached"),
    FIELD("runs[].began", "string", "when"),
    FIELD("runs[].ended", "string?", "null before the end"),
    ONE_OF("runs[].state", run_states, "interrupted: there will be no end"),
    FIELD("runs[].end", "string?", "how it ended"),
    FIELD("runs[].policy", "string?", "the policy in force when it began"),
    FIELD("runs[].policy_hash", "string?", "SHA-256 of its document"),
    FIELD("runs[].attempts", "integer", "attempts to reach the network"),
    FIELD("runs[].denied", "integer", "of these, refused"),
    FIELD("runs[].would_deny", "integer", "let through by a policy that only watches"),
    FIELD("runs[].lost", "integer", "attempts of which the record has no detail"),
    FIELD("runs[].audit_hash", "string?", "the hash of its entry in the chain"),
    FIELD("next", "string?", "`cursor` for those that follow; null: that was all"),
};

static const struct answer_field limits_fields[] = {
    FIELD("limits", "array", "every limit of the service"),
    FIELD("limits[].name", "string", "its name in the source, in lower case"),
    FIELD("limits[].value", "integer", "the limit: this much is allowed, one more is not"),
    FIELD("limits[].unit", "string", "of what"),
    FIELD("limits[].why", "string", "what is limited"),
};
static const struct answer_field healthz_fields[] = {ONE_OF("status", ok, "it serves")};
static const struct answer_field readyz_fields[] = {ONE_OF("status", ready, "policy verified in force, pool warm")};

#define SCHEMA(name_, fields_, description_)                                                                                   \
	{                                                                                                                      \
		.name = (name_), .description = (description_), .fields = (fields_), .count = COUNT(fields_)                   \
	}
static const struct answer_schema execute_schema = SCHEMA("ExecuteAnswer", execute_fields, "the code ran, however it ended");
static const struct answer_schema call_schema = SCHEMA("CallAnswer", call_fields, "the tool was called, whatever came of it");
static const struct answer_schema mcp_schema = {.name = "McpAnswer",
						.description = "the answer to a request, or what is wrong with it",
						.fields = mcp_fields,
						.count = COUNT(mcp_fields),
						.message = true};
static const struct answer_schema session_schema = SCHEMA("Session", session_fields, "a session");
static const struct answer_schema sessions_schema = SCHEMA("Sessions", sessions_fields, "the project's sessions");
static const struct answer_schema pool_schema = SCHEMA("Pool", pool_fields, "the pool as it is");
static const struct answer_schema run_schema = SCHEMA("Run", run_fields, "a run's record without its events");
static const struct answer_schema audit_schema = SCHEMA("Audit", audit_fields, "a run's record");
static const struct answer_schema search_schema = SCHEMA("Search", search_fields, "runs that fit");
static const struct answer_schema records_schema = {
    .name = "Records",
    .description =
	"events with a record each: its number as `id`, its type as `event`, the record as JSON in `data`; the last one "
	"may be `end`, which says why and after which number to go on, or `error`",
    .media_type = "text/event-stream"};
static const struct answer_schema metrics_schema = {.name = "Metrics",
						    .description =
							"Prometheus' text format 0.0.4; docs/metrics.md has all of them",
						    .media_type = "text/plain"};
static const struct answer_schema limits_schema = SCHEMA("Limits", limits_fields, "the limits table");
static const struct answer_schema openapi_schema = {.name = "OpenApi", .description = "this document"};
static const struct answer_schema healthz_schema = SCHEMA("Health", healthz_fields, "it serves");
static const struct answer_schema readyz_schema = SCHEMA("Ready", readyz_fields, "it takes requests");

static const struct body_schema execute_body = {"ExecuteRequest", REQUEST_BODY_EXECUTE, true};
static const struct body_schema call_body = {"CallRequest", REQUEST_BODY_CALL, true};
static const struct body_schema mcp_body = {"McpMessage", REQUEST_BODY_MCP, true};
static const struct body_schema session_body = {"SessionRequest", REQUEST_BODY_SESSION, false};

const struct described_answer described_answers[] = {
    {"POST",
     "/v1/execute",
     &execute_body,
     200,
     &execute_schema,
     true,
     {ERROR_UNSUPPORTED_LANGUAGE, ERROR_TIMEOUT_RANGE, ERROR_RESERVED_NAME, ERROR_NOT_FOUND, ERROR_SESSION_BUSY,
      ERROR_FILE_CONFLICT, ERROR_PATH_ESCAPES},
     0},
    {"POST",
     "/v1/call",
     &call_body,
     200,
     &call_schema,
     false,
     {ERROR_TIMEOUT_RANGE, ERROR_NO_AGENT, ERROR_UNKNOWN_TOOL, ERROR_TOOLS, ERROR_TOOL_NOT_READY},
     0},
    {"POST", "/mcp", &mcp_body, 200, &mcp_schema, false, {ERROR_NONE}, 0},
    {"POST", "/v1/sessions", &session_body, 201, &session_schema, false, {ERROR_UNSUPPORTED_LANGUAGE}, 0},
    {"GET", "/v1/sessions", NULL, 200, &sessions_schema, false, {ERROR_NONE}, 0},
    {"GET", "/v1/sessions/{session_id}", NULL, 200, &session_schema, false, {ERROR_NOT_FOUND}, 0},
    {"DELETE", "/v1/sessions/{session_id}", NULL, 200, &session_schema, false, {ERROR_NOT_FOUND}, 0},
    {"GET", "/v1/pool", NULL, 200, &pool_schema, false, {ERROR_SANDBOX}, 0},
    {"GET",
     "/v1/runs/{run_id}",
     NULL,
     200,
     &run_schema,
     false,
     {ERROR_PARAMETER, ERROR_NO_RUN, ERROR_AUDIT_READS, ERROR_AUDITOR},
     0},
    {"GET",
     "/v1/runs/{run_id}/audit",
     NULL,
     200,
     &audit_schema,
     false,
     {ERROR_PARAMETER, ERROR_NO_RUN, ERROR_AUDIT_READS, ERROR_AUDITOR},
     0},
    {.method = "GET",
     .pattern = "/v1/audit",
     .status = 200,
     .schema = &search_schema,
     .parameters = FIND_SEARCH,
     .errors = {ERROR_PARAMETER, ERROR_AUDIT_READS, ERROR_AUDITOR}},
    {.method = "GET",
     .pattern = "/v1/audit/stream",
     .status = 200,
     .schema = &records_schema,
     .parameters = FIND_STREAM,
     .errors = {ERROR_PARAMETER, ERROR_AUDIT_READS, ERROR_AUDITOR}},
    {.method = "GET", .pattern = "/metrics", .status = 200, .schema = &metrics_schema},
    {"GET", "/v1/limits", NULL, 200, &limits_schema, false, {ERROR_NONE}, 0},
    {"GET", "/openapi.json", NULL, 200, &openapi_schema, false, {ERROR_NONE}, 0},
    {"GET", "/healthz", NULL, 200, &healthz_schema, false, {ERROR_NONE}, 0},
    {"GET", "/readyz", NULL, 200, &readyz_schema, false, {ERROR_NOT_READY}, 0},
};
const size_t described_answer_count = COUNT(described_answers);
