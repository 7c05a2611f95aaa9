/* SPDX-License-Identifier: Apache-2.0 */
#include "blobs.h"

#include "core/policy.h"
#include "core/log.h"

#include <stdint.h>
#include <stdlib.h>

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
EMBED(snippet, "policies/snippet.json")

const struct policy *policy_snippet(void)
{
	static struct policy policy;
	struct blob text = blob_snippet();
	struct err e;

	if (!policy.image.present && policy_parse(text.data, text.len, &policy, &e) < 0) {
		/* A build that embeds a broken default can't enforce anything: there is nothing to go on with. */
		log_error("the embedded snippet policy is broken: %s: %s", e.where, e.msg);
		abort();
	}
	return &policy;
}
