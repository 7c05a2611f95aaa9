/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as a resolv.conf: at most three name servers, each a whole address that reads back as itself. Seeds: corpus/resolvconf.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/resolvconf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cidr servers[RESOLVCONF_SERVERS], again;
	size_t n = resolvconf_parse((const char *)data, size, servers);

	if (n > RESOLVCONF_SERVERS)
		abort();
	for (size_t i = 0; i < n; i++) {
		char text[CIDR_TEXT_MAX];

		cidr_text(text, &servers[i], true);
		if (cidr_parse_addr(text, strlen(text), &again, NULL) < 0 || cidr_compare(&again, &servers[i]) != 0)
			abort();
	}
	return 0;
}
