/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer on policy_parse(): whatever comes in, the contract of policy.h holds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = {.code = -1};
	struct policy p, before;
	int rc;

	memset(&p, 0x5a, sizeof p);
	before = p;
	rc = policy_parse((const char *)data, size, &p, &e);
	if (rc == 0) {
		must(e.code == -1);
		must(strnlen(p.name, sizeof p.name) < sizeof p.name && p.name[0]);
		must(p.image.present == 1 && p.image.generation == 0);
		must(p.image.default_verdict == WEIR_DENY || p.image.default_verdict == WEIR_ALLOW);
		must(size <= LIMIT_POLICY_BYTES);
	} else {
		must(rc < 0 && e.code == -rc);
		must(!memcmp(&p, &before, sizeof p));
		must(strnlen(e.where, sizeof e.where) < sizeof e.where);
		must(strnlen(e.msg, sizeof e.msg) < sizeof e.msg && e.msg[0]);
	}
	return 0;
}
