/* SPDX-License-Identifier: Apache-2.0 */
/* What the server says of itself, and of its tool: to clients, and through them to models. */
#include <stdio.h>
#include <string.h>

#include "api/mcp_priv.h"
#include "api/request_priv.h"
#include "core/limits.h"
#include "version.h"

const struct mcp_version mcp_versions[] = {
    {"2026-07-28", true},  {"2025-11-25", false}, {"2025-06-18", false},
    {"2025-03-26", false}, {"2024-11-05", false}, {NULL, false},
};

const struct mcp_version *mcp_version_find(const char *name, size_t len)
{
	for (const struct mcp_version *v = mcp_versions; v->name; v++)
		if (strlen(v->name) == len && !memcmp(v->name, name, len))
			return v;
	return NULL;
}

json_t *mcp_about_versions(void)
{
	json_t *list = json_array();

	for (const struct mcp_version *v = mcp_versions; v->name; v++)
		if (json_array_append_new(list, json_string(v->name)) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

json_t *mcp_about_server(void)
{
	return json_pack("{s:s, s:s, s:s}", "name", "weir", "title", "Weir", "version", WEIR_VERSION);
}

/* For a model that decides whether and how to use the tool. */
#define WORDS_MAX 1536
static const char *words(char ret[WORDS_MAX])
{
	snprintf(
	    ret, WORDS_MAX,
	    "Runs Python code in a sandbox of its own and returns what it wrote to standard output and standard error, and "
	    "its exit code. The code is run as a script: print() what you want to see. The sandbox is used once and then "
	    "destroyed, so nothing of an earlier call is left: no variables, no files, no installed packages. There is no "
	    "network; nothing can be downloaded or installed. The standard library is there; try to import what else you "
	    "need. The working directory, /tmp and /dev/shm are writable. Files that the code leaves in its working "
	    "directory are listed; of them, PNG, JPEG, GIF and WebP images are returned and can be seen, and of all others "
	    "only what the code prints. Limits: %d s unless timeout_s says otherwise (at most %d), %lld MiB of memory, one "
	    "CPU, %d processes and threads, %lld MiB on each of standard output and standard error.",
	    LIMIT_TIMEOUT_DEFAULT_S, LIMIT_TIMEOUT_MAX_S, (long long)LIMIT_MEMORY_BYTES >> 20, LIMIT_PIDS,
	    (long long)LIMIT_OUTPUT_BYTES >> 20);
	return ret;
}

json_t *mcp_about_initialize(const char *version)
{
	char text[WORDS_MAX];

	return json_pack("{s:s, s:{s:{}}, s:o, s:s}", "protocolVersion", version, "capabilities", "tools", "serverInfo",
			 mcp_about_server(), "instructions", words(text));
}

/* How long a client may keep what it was told: it changes only with the service's version. */
#define KEEP_MS 3600000

json_t *mcp_about_discover(void)
{
	char text[WORDS_MAX];

	return json_pack("{s:o, s:{s:{}}, s:s, s:i, s:s}", "supportedVersions", mcp_about_versions(), "capabilities", "tools",
			 "instructions", words(text), "ttlMs", KEEP_MS, "cacheScope", "private");
}

/* ---- /openapi.json ---- */

const struct request_member request_mcp_members[MCP_MEMBERS] = {
    [MCP_JSONRPC] =
	{.name = "jsonrpc", .type = "string", .required = true, .value = "2.0", .description = "JSON-RPC's version"},
    [MCP_ID] = {.name = "id", .type = "*", .description = "of a request: a string or an integer; notifications have none"},
    [MCP_METHOD] = {.name = "method",
		    .type = "string",
		    .required = true,
		    .description = "initialize, server/discover, ping, tools/list, tools/call or a notification's"},
    [MCP_PARAMS] = {.name = "params", .type = "object", .any = true, .description = "the method's"},
};

/* ---- the tool ---- */

const char *const mcp_arguments[] = {"code", "timeout_s", "stdin", "files", NULL};

static json_t *typed(const char *type, const char *description)
{
	return json_pack("{s:s, s:s}", "type", type, "description", description);
}

/* Plain types only: what models are given is translated into dialects that have no `oneOf`. */
static json_t *file_schema(void)
{
	return json_pack("{s:s, s:{s:o, s:o, s:o}, s:[s], s:b}", "type", "object", "properties", "path",
			 typed("string", "relative to the working directory; directories are made"), "content",
			 typed("string", "its text"), "content_base64",
			 typed("string", "in place of content, for what is no text: base64 with padding, without line breaks"),
			 "required", "path", "additionalProperties", 0);
}

static json_t *input_schema(void)
{
	json_t *timeout =
	    json_pack("{s:s, s:s, s:i, s:i, s:i}", "type", "integer", "description",
		      "seconds after which the code is stopped; what it printed by then is returned", "minimum",
		      (int)LIMIT_TIMEOUT_MIN_S, "maximum", (int)LIMIT_TIMEOUT_MAX_S, "default", (int)LIMIT_TIMEOUT_DEFAULT_S);
	json_t *files = json_pack("{s:s, s:s, s:i, s:o}", "type", "array", "description",
				  "files that are in the working directory when the code starts; each has either content or "
				  "content_base64",
				  "maxItems", (int)LIMIT_FILES_IN, "items", file_schema());

	return json_pack("{s:s, s:{s:o, s:o, s:o, s:o}, s:[s], s:b}", "type", "object", "properties", "code",
			 typed("string", "the Python code, run as a script"), "timeout_s", timeout, "stdin",
			 typed("string", "what the code reads from standard input; without it, there is nothing to read"),
			 "files", files, "required", "code", "additionalProperties", 0);
}

/* Everything in structuredContent; see mcp_answer.c. */
static const struct {
	const char *name, *type, *description;
} outputs[] = {
    {"stdout", "string", "what the code wrote to standard output"},
    {"stderr", "string", "what it wrote to standard error"},
    {"exit_code", "integer", "Python's own; 128 + n for signal n; -1 when the deadline stopped it"},
    {"files", "array", "paths of the files that it left in its working directory"},
    {"termination", "object", "how it ended: reason (exit, signal, timeout, memory, output, cancelled), signal, detail"},
    {"truncated", "boolean", "whether output was cut"},
    {"duration_ms", "integer", "how long it ran"},
    {"run_id", "string", "its name in the service's record"},
    {"python", "string", "the version that ran"},
};

static json_t *output_schema(void)
{
	json_t *properties = json_object(), *required = json_array();
	bool ok = true;

	for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
		json_t *s = typed(outputs[i].type, outputs[i].description);

		if (!strcmp(outputs[i].type, "array") && s)
			ok &= json_object_set_new(s, "items", json_pack("{s:s}", "type", "string")) == 0;
		ok &= json_object_set_new(properties, outputs[i].name, s) == 0;
		ok &= json_array_append_new(required, json_string(outputs[i].name)) == 0;
	}
	if (!ok) {
		json_decref(properties);
		json_decref(required);
		return NULL;
	}
	return json_pack("{s:s, s:o, s:o}", "type", "object", "properties", properties, "required", required);
}

json_t *mcp_about_tools(bool modern)
{
	char text[WORDS_MAX];
	json_t *tool =
	    json_pack("{s:s, s:s, s:s, s:o, s:o, s:{s:s, s:b, s:b, s:b, s:b}}", "name", MCP_TOOL, "title", "Run Python",
		      "description", words(text), "inputSchema", input_schema(), "outputSchema", output_schema(), "annotations",
		      "title", "Run Python", "readOnlyHint", 0, "destructiveHint", 0, "idempotentHint", 0, "openWorldHint", 0);

	if (modern)
		return json_pack("{s:[o], s:i, s:s}", "tools", tool, "ttlMs", KEEP_MS, "cacheScope", "private");
	return json_pack("{s:[o]}", "tools", tool);
}
