/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents of an image that anybody may have written: refused, or read into names that stay in blobs/sha256 or in the archive,
 * and into an environment that is one. The first byte says which document it is. Seeds: corpus/oci.
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

static void look_at_path(const char *path)
{
	if (!path[0] || path[0] == '/' || strlen(path) >= OCI_PATH_MAX || !strcmp(path, "..") || !strncmp(path, "../", 3) ||
	    strstr(path, "/../") || (strlen(path) > 3 && !strcmp(path + strlen(path) - 3, "/..")))
		abort();
}

static void look_at_config(const struct oci_config *c)
{
	char *given = NULL, *withheld = NULL;
	size_t given_len, withheld_len;

	if ((c->workdir[0] && !image_workdir_ok(c->workdir)) || !image_variables_ok(c->variables, c->variables_len))
		abort();
	for (size_t i = 0; i < c->diff_count; i++)
		if (!image_digest_ok(c->diff_ids[i]))
			abort();
	if (image_variables_share(c->variables, c->variables_len, &given, &given_len, &withheld, &withheld_len) < 0 ||
	    !image_variables_ok(given, given_len))
		abort();
	free(given);
	free(withheld);
}

static void look_at_image(const struct docker_image *image)
{
	char digest[OCI_HEX + 1];

	if (strnlen(image->name, sizeof image->name) == sizeof image->name || image->layer_count > LIMIT_IMAGE_LAYERS)
		abort();
	look_at_path(image->config);
	(void)docker_config_digest(image->config, digest);
	for (size_t i = 0; i < image->layer_count; i++)
		look_at_path(image->layers[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct oci_manifest manifest;
	static struct oci_config config;
	static struct docker_image image;
	const char *text = (const char *)data + 1;
	char name[OCI_NAME_MAX];
	struct oci_blob blob;
	struct err e = {0};

	if (!size)
		return 0;
	switch (data[0]) {
	case 'i':
		if (oci_index_choose(text, size - 1, NULL, &blob, name, &e) == 0)
			look_at(&blob);
		break;
	case 'r':
		if (oci_index_choose(text, size - 1, "ref", &blob, name, &e) == 0)
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
		if (oci_config_read(text, size - 1, &config, &e) == 0)
			look_at_config(&config);
		break;
	case 'd':
	case 'D':
		if (docker_manifest_choose(text, size - 1, data[0] == 'D' ? "w:2" : NULL, &image, &e) == 0)
			look_at_image(&image);
		break;
	default:
		(void)oci_layout_check(text, size - 1, &e);
	}
	return 0;
}
