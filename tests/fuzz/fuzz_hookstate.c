/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that a container runtime gives its hooks: refused with a reason, or read into what can be used as it is: a pid, an
 * absolute path, and a policy's name that leads out of no directory. Seeds: corpus/hookstate.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/hook_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct hook_state s;
	struct err e = {0};

	memset(&s, 0, sizeof s);
	if (hook_state_read((const char *)data, size, &s, &e) < 0) {
		if (!e.code || !e.msg[0] || s.pid || s.id[0])
			abort();
		return 0;
	}
	if (s.pid < 1 || s.bundle[0] != '/' || strlen(s.bundle) >= sizeof s.bundle || !s.id[0] || strlen(s.id) >= sizeof s.id)
		abort();
	for (const char *p = s.id; *p; p++)
		if (*p <= ' ' || *p > '~')
			abort();
	if (s.labelled && (!hook_policy_name_ok(s.policy) || strpbrk(s.policy, "/.\n")))
		abort();
	if (!s.labelled && s.policy[0])
		abort();
	return 0;
}
