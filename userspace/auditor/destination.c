/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/destination.h"

#include <ctype.h>
#include <string.h>

#include "auditor/record.h"
#include "core/event.h"

static const char *text_of(const json_t *record, const char *name)
{
	const char *text = json_string_value(json_object_get(record, name));

	return text ? text : "";
}

static int verdict_of(const json_t *record)
{
	for (int i = 0; i < WEIR_VERDICT_COUNT; i++)
		if (event_verdict_names[i] && strcmp(text_of(record, "verdict"), event_verdict_names[i]) == 0)
			return i;
	return -1;
}

bool destination_of(const json_t *record, struct destination *ret)
{
	const char *name = text_of(record, "dns_name");
	size_t n = strnlen(name, sizeof ret->name - 1);

	ret->verdict = verdict_of(record);
	if (strcmp(text_of(record, "type"), record_type_names[RECORD_EGRESS]) != 0 || ret->verdict < 0 ||
	    strcmp(text_of(record, "hook"), event_hook_names[WEIR_HOOK_INGRESS]) == 0)
		return false;
	ret->address = text_of(record, "address");
	for (size_t i = 0; i < n; i++) {
		ret->name[i] = (char)tolower((unsigned char)name[i]);
		ret->mirrored[n - 1 - i] = ret->name[i];
	}
	ret->name[n] = ret->mirrored[n] = 0;
	return true;
}
