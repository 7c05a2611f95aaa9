/* SPDX-License-Identifier: Apache-2.0 */
/* Agents as people and machines read them. Values of their variables are shown by `weir agent env` alone. */
#ifndef WEIR_CLI_AGENT_SHOW_H
#define WEIR_CLI_AGENT_SHOW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/tokens.h"
#include "registry/agents.h"

/* What a list is made of; all borrowed. */
struct agent_list {
	const struct agent_table *agents;
	const struct image_table *images;
	const struct tokens_file *tokens; /* NULL: none */
	const char *project;		  /* NULL: of all */
	int64_t now_s;
};

size_t agent_list_count(const struct agent_list *l);

/* Both print to standard output; a list without agents is its heading alone, or none. */
int agent_show_list(const struct agent_list *l, bool json, struct err *e);
int agent_show_added(const struct agent_entry *a, const struct image_entry *image, bool json, struct err *e);

#endif
