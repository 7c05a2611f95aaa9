/* SPDX-License-Identifier: Apache-2.0 */
/* What the mcp_*.c files share. */
#ifndef WEIR_API_MCP_PRIV_H
#define WEIR_API_MCP_PRIV_H

#include "api/mcp.h"

#define MCP_TOOL "run_python"
#define MCP_META "io.modelcontextprotocol/"

/* A revision of the protocol. Modern ones have no `initialize`. */
struct mcp_version {
	const char *name;
	bool modern;
};
/* Newest first, up to a NULL name. */
extern const struct mcp_version mcp_versions[];
/* The one with that name, or NULL. */
const struct mcp_version *mcp_version_find(const char *name, size_t len);

/* Arguments of the tool, up to NULL. */
extern const char *const mcp_arguments[];

/* Bodies of results. New references, NULL when out of memory. */
json_t *mcp_about_initialize(const char *version);
json_t *mcp_about_discover(void);
json_t *mcp_about_tools(bool modern);
/* {"name", "title", "version"} */
json_t *mcp_about_server(void);
/* ["2026-07-28", …] */
json_t *mcp_about_versions(void);

/* A result, which is taken; a modern one says what it is. malloc'd, NULL when there is no memory. */
char *mcp_result(const struct mcp_call *call, json_t *result, size_t *ret_len);
/* The members that modern results have besides their own; an empty object for others. As above. */
json_t *mcp_result_extras(const struct mcp_call *call);

#endif
