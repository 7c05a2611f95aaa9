/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle's config.json, which a runtime wrote from what anybody said: refused, or read into weaknesses that are in the table,
 * with details and paths that end. The first byte says whether a policy that asks for much is held against it. Seeds:
 * corpus/bundle.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "attach/inspect_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char asking[] =
    "{\"name\": \"p\", \"default\": \"deny\", \"listen\": \"deny\", \"syscalls\": [{\"names\": [\"ptrace\"]}],"
    " \"sockets\": {\"families\": [\"inet\"]}, \"limits\": {\"memory_bytes\": 1048576, \"cpu_percent\": 5,"
    " \"processes\": 5, \"open_files\": 5}}";

static void look_at(const struct bundle_seen *s)
{
	if (s->found.weak >> WEAKNESSES)
		abort();
	for (int w = 0; w < WEAKNESSES; w++)
		if (strnlen(s->found.detail[w], WEAKNESS_DETAIL) == WEAKNESS_DETAIL)
			abort();
	if (strnlen(s->network_path, PATH_MAX) == PATH_MAX || strnlen(s->resolv_conf, PATH_MAX) == PATH_MAX)
		abort();
	if (s->host_network != !!(s->found.weak & 1u << WEAK_HOST_NETWORK))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct bundle_seen seen;
	static struct policy *p;
	struct err e = {0};

	if (!p && policy_parse(asking, sizeof asking - 1, &p, &e) < 0)
		abort();
	if (!size)
		return 0;
	memset(&seen, 0, sizeof seen);
	if (inspect_bundle_text((const char *)data + 1, size - 1, data[0] == 'p' ? p : NULL, NULL, "", &seen, &e) == 0)
		look_at(&seen);
	else if (!e.msg[0])
		abort();
	return 0;
}
