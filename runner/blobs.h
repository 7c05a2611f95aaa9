/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are part of the program: one binary is all there is to install. */
#ifndef WEIR_RUNNER_BLOBS_H
#define WEIR_RUNNER_BLOBS_H

#include <stdbool.h>
#include <stddef.h>

struct blob {
	const char *data;
	size_t len;
};

struct blob blob_init(void);	 /* the static program that is pid 1 of a sandbox */
struct blob blob_harness(void);	 /* harness.py */
struct blob blob_place(void);	 /* place.py */
struct blob blob_session(void);	 /* session.py */
struct blob blob_toolcall(void); /* toolcall.py */
struct blob blob_snippet(void);	 /* policies/snippet.json, as the other shipped policies .. */
struct blob blob_tool_call(void);
struct blob blob_web_client_allowlist(void);
struct blob blob_monitor_only(void);
struct blob blob_groups(void); /* policies/groups.json */

/* The document of a shipped policy; false when there is none of that name. */
bool blob_policy(const char *name, struct blob *ret);

/* Their names, NULL at the end. */
extern const char *const blob_policy_names[];

#endif
