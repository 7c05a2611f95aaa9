/* SPDX-License-Identifier: Apache-2.0 */
/* Imported images as people and machines read them. */
#ifndef WEIR_CLI_IMAGE_SHOW_H
#define WEIR_CLI_IMAGE_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "registry/store.h"

#define IMAGE_SIZE_TEXT 32

/* "812 KiB", "1.4 GiB". Returns `buf`. */
const char *image_size_text(char buf[IMAGE_SIZE_TEXT], uint64_t bytes);

/* The names of a block of variables, or of names, with ", " between; malloc'd, or NULL without memory. */
char *image_names_text(const char *block, size_t len);

/* What is known of an image, as `weir image ls --json` prints it: a new object, or NULL without memory. */
json_t *image_json(const struct image_entry *entry, const struct agent_table *agents, bool present);

/*
 * Prints the table, the oldest first. `images`: the directory of what is unpacked; `state_dir` is for messages.
 */
int image_list(const struct image_table *t, const struct agent_table *agents, const char *images, const char *state_dir,
	       bool json, struct err *e);

/* Which agents have an image: "project/name, project/name" (at most five, and how many more). Returns how many. */
size_t image_users(const struct agent_table *agents, const char *digest, char *ret, size_t size);

#endif
