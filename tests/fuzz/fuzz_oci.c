/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents of an image layout that anybody may have written: refused, or read into names that stay in blobs/sha256. The first
 * byte says which document it is. Seeds: corpus/oci.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "oci_doc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at(const struct oci_blob *b)
{
	if (strlen(b->sha256) != OCI_HEX || strspn(b->sha256, "0123456789abcdef") != OCI_HEX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct oci_manifest manifest;
	const char *text = (const char *)data + 1;
	struct oci_blob blob;
	struct err e = {0};

	if (!size)
		return 0;
	switch (data[0]) {
	case 'i':
		if (oci_index_choose(text, size - 1, NULL, &blob, &e) == 0)
			look_at(&blob);
		break;
	case 'r':
		if (oci_index_choose(text, size - 1, "ref", &blob, &e) == 0)
			look_at(&blob);
		break;
	case 'm':
		if (oci_manifest_read(text, size - 1, &manifest, &e) == 0) {
			look_at(&manifest.config);
			for (size_t i = 0; i < manifest.layer_count; i++)
				look_at(&manifest.layers[i]);
		}
		break;
	case 'c':
		(void)oci_config_check(text, size - 1, &e);
		break;
	default:
		(void)oci_layout_check(text, size - 1, &e);
	}
	return 0;
}
