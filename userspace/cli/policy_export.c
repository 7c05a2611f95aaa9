/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/policy_export.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "filter_host_oci.h"

const char *const policy_export_formats[] = {"oci-seccomp", NULL};

bool policy_export_knows(const char *format)
{
	for (const char *const *known = policy_export_formats; *known; known++)
		if (!strcmp(*known, format))
			return true;
	return false;
}

/* Members on lines of their own, and of a list of objects each element: a profile has hundreds of rules. */
static int print_profile(json_t *profile)
{
	const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT;
	const char *key;
	json_t *value;
	bool first = true;
	int rc = 0;

	putchar('{');
	json_object_foreach(profile, key, value)
	{
		const bool listed = json_is_array(value) && json_is_object(json_array_get(value, 0));

		printf("%s\n\t\"%s\": ", first ? "" : ",", key);
		first = false;
		if (!listed)
			rc |= json_dumpf(value, stdout, flags);
		for (size_t i = 0; listed && i < json_array_size(value); i++) {
			fputs(i ? ",\n\t\t" : "[\n\t\t", stdout);
			rc |= json_dumpf(json_array_get(value, i), stdout, flags);
		}
		if (listed)
			fputs("\n\t]", stdout);
	}
	fputs("\n}\n", stdout);
	return rc;
}

int policy_export(const char *name, const struct policy *p, const char *format)
{
	struct filter_host_oci o;
	struct err e;
	int rc;

	(void)format; /* there is one */
	rc = filter_host_oci(p, &o, &e);
	if (rc < 0) {
		fprintf(stderr, "%s%s%s: %s\n", name, e.where[0] ? ":" : "", e.where, e.msg);
		return 1;
	}
	rc = print_profile(o.profile);
	for (size_t i = 0; rc == 0 && i < o.note_count; i++)
		fprintf(stderr, "%s: note: %s\n", name, o.notes[i]);
	filter_host_oci_clear(&o);
	if (rc < 0)
		fputs("weir policy export: can't write the profile\n", stderr);
	return rc < 0 ? 1 : 0;
}
