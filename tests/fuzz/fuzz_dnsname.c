/* SPDX-License-Identifier: Apache-2.0 */
/* Wire bytes -> text: bounded, terminated, only the characters that dnsname.h promises. Seeds: corpus/dnsname. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/dnsname.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char type[DNSTYPE_TEXT_MAX];
	struct dnsname name;

	dnsname_decode(&name, data, size);
	if (!memchr(name.text, 0, sizeof name.text))
		abort();
	for (const char *p = name.text; *p; p++)
		if (*p <= ' ' || *p > '~' || strchr("\"'<>&`", *p))
			abort();
	if (!name.malformed && !name.text[0])
		abort();
	if (size >= 2 && !dnstype_text(type, (uint16_t)(data[0] << 8 | data[1]))[0])
		abort();
	return 0;
}
