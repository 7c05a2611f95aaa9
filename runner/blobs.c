/* SPDX-License-Identifier: Apache-2.0 */
#include "blobs.h"

#include "core/log.h"
#include "core/policy.h"
#include "core/sysgroups.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* .incbin keeps the bytes out of the compiler: no generated source, no copy step. */
#define EMBED(name, file)                                                                                                      \
	__asm__(".pushsection .rodata\n"                                                                                       \
		".balign 16\n"                                                                                                 \
		".global blob_" #name "_start\nblob_" #name "_start:\n.incbin \"" file "\"\n"                                  \
		".global blob_" #name "_end\nblob_" #name "_end:\n.byte 0\n"                                                   \
		".popsection\n");                                                                                              \
	extern const char blob_##name##_start[], blob_##name##_end[];                                                          \
	struct blob blob_##name(void)                                                                                          \
	{                                                                                                                      \
		return (struct blob){blob_##name##_start, (uintptr_t)blob_##name##_end - (uintptr_t)blob_##name##_start};      \
	}

EMBED(init, INIT_BLOB)
EMBED(harness, "runner/harness.py")
EMBED(place, "runner/place.py")
EMBED(session, "runner/session.py")
EMBED(toolcall, "runner/toolcall.py")
EMBED(groups, "policies/groups.json")
EMBED(snippet, "policies/snippet.json")
EMBED(tool_call, "policies/tool-call.json")
EMBED(web_client_allowlist, "policies/web-client-allowlist.json")
EMBED(monitor_only, "policies/monitor-only.json")

/* A policy's name is the document's own. */
#define SHIPPED(POLICY)                                                                                                        \
	POLICY("snippet", blob_snippet)                                                                                        \
	POLICY("tool-call", blob_tool_call)                                                                                    \
	POLICY("web-client-allowlist", blob_web_client_allowlist)                                                              \
	POLICY("monitor-only", blob_monitor_only)

#define NAME(name, text) name,
const char *const blob_policy_names[] = {SHIPPED(NAME) NULL};
#undef NAME

bool blob_policy(const char *name, struct blob *ret)
{
#define TEXT(name, text) text,
	static struct blob (*const texts[])(void) = {SHIPPED(TEXT)};
#undef TEXT

	for (size_t i = 0; blob_policy_names[i]; i++) {
		if (strcmp(blob_policy_names[i], name) != 0)
			continue;
		*ret = texts[i]();
		return true;
	}
	return false;
}

/* A build that embeds something broken can't enforce anything: there is nothing to go on with. */
static _Noreturn void broken(const char *what, const struct err *e)
{
	log_error("the embedded %s is broken: %s: %s", what, e->where, e->msg);
	abort();
}

const struct policy *policy_snippet(void)
{
	static struct policy *policy;
	struct blob text = blob_snippet();
	struct err e;

	if (!policy && policy_parse(text.data, text.len, &policy, &e) < 0)
		broken("policy", &e);
	return policy;
}

const struct sysgroups *sysgroups_shipped(void)
{
	static struct sysgroups *groups;
	struct blob text = blob_groups();
	struct err e;

	if (!groups && sysgroups_parse(text.data, text.len, &groups, &e) < 0)
		broken("table of system call groups", &e);
	return groups;
}
