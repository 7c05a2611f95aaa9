/* SPDX-License-Identifier: Apache-2.0 */
#include "oci_doc.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define OS "linux"
#define ARCHITECTURE "amd64"
#define REF_NAME "org.opencontainers.image.ref.name"

enum kind { KIND_INDEX, KIND_MANIFEST, KIND_CONFIG, KIND_LAYER };

static const struct {
	const char *media_type;
	enum kind kind;
} kinds[] = {
    {"application/vnd.oci.image.index.v1+json", KIND_INDEX},
    {"application/vnd.docker.distribution.manifest.list.v2+json", KIND_INDEX},
    {"application/vnd.oci.image.manifest.v1+json", KIND_MANIFEST},
    {"application/vnd.docker.distribution.manifest.v2+json", KIND_MANIFEST},
    {"application/vnd.oci.image.config.v1+json", KIND_CONFIG},
    {"application/vnd.docker.container.image.v1+json", KIND_CONFIG},
    {"application/vnd.oci.image.layer.v1.tar", KIND_LAYER},
    {"application/vnd.oci.image.layer.v1.tar+gzip", KIND_LAYER},
    {"application/vnd.oci.image.layer.v1.tar+zstd", KIND_LAYER},
    {"application/vnd.oci.image.layer.nondistributable.v1.tar", KIND_LAYER},
    {"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", KIND_LAYER},
    {"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", KIND_LAYER},
    {"application/vnd.docker.image.rootfs.diff.tar", KIND_LAYER},
    {"application/vnd.docker.image.rootfs.diff.tar.gzip", KIND_LAYER},
    {"application/vnd.docker.image.rootfs.diff.tar.zstd", KIND_LAYER},
};

/* For messages: printable, and not longer than they need. */
static const char *shown(const char *text)
{
	static char out[96];
	size_t n = text ? strnlen(text, sizeof out - 1) : 0;

	for (size_t i = 0; i < n; i++)
		out[i] = (char)(text[i] < ' ' || text[i] > '~' || text[i] == '"' ? '?' : text[i]);
	out[n] = 0;
	return out;
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static json_t *load(const char *text, size_t len, const char *what, struct err *e)
{
	json_error_t error;
	json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);

	if (json_is_object(j))
		return j;
	if (j)
		err_set(e, EINVAL, "image", "the image's %s is not a JSON object", what);
	else
		err_set(e, EINVAL, "image", "the image's %s is not JSON: line %d: %s", what, error.line, shown(error.text));
	json_decref(j);
	return NULL;
}

/* A descriptor: whose kind must be `want`, or that and KIND_INDEX. */
static int read_blob(const json_t *d, enum kind want, bool or_index, struct oci_blob *ret, struct err *e)
{
	static const char *const words[] = {"index", "manifest", "configuration", "layer"};
	static const char algorithm[] = "sha256:";
	const char *media_type = text_of(d, "mediaType"), *digest = text_of(d, "digest");
	const json_t *size = json_object_get(d, "size");
	struct oci_blob b = {0};
	bool known = false;

	for (size_t i = 0; media_type && !known && i < sizeof kinds / sizeof kinds[0]; i++)
		if (!strcmp(kinds[i].media_type, media_type)) {
			b.index = kinds[i].kind == KIND_INDEX;
			known = kinds[i].kind == want || (or_index && b.index);
		}
	if (!known)
		return err_set(e, EINVAL, "image", "the image has a %s of the kind \"%s\", which is not known here",
			       words[want], shown(media_type));
	if (!digest || strncmp(digest, algorithm, sizeof algorithm - 1) != 0 ||
	    strspn(digest + sizeof algorithm - 1, "0123456789abcdef") != OCI_HEX ||
	    strlen(digest) != sizeof algorithm - 1 + OCI_HEX)
		return err_set(e, EINVAL, "image",
			       "the digest of the image's %s is \"%s\", not sha256: and 64 hexadecimal digits", words[want],
			       shown(digest));
	if (!json_is_integer(size) || json_integer_value(size) < 0)
		return err_set(e, EINVAL, "image", "the size of the image's %s is no number of bytes", words[want]);
	snprintf(b.sha256, sizeof b.sha256, "%s", digest + sizeof algorithm - 1);
	b.size = (uint64_t)json_integer_value(size);
	*ret = b;
	return 0;
}

/* Without a platform it may be for any: its configuration will tell. */
static bool for_this_machine(const json_t *d)
{
	const json_t *platform = json_object_get(d, "platform");
	const char *os = text_of(platform, "os"), *architecture = text_of(platform, "architecture");

	return !platform || (os && architecture && !strcmp(os, OS) && !strcmp(architecture, ARCHITECTURE));
}

static const char *name_of(const json_t *d)
{
	return text_of(json_object_get(d, "annotations"), REF_NAME);
}

/* "a, b, c": names, or platforms, of what an index holds. */
static const char *list(const json_t *manifests, bool names)
{
	static char text[160];
	size_t n = 0, i;
	json_t *d;

	text[0] = 0;
	json_array_foreach((json_t *)manifests, i, d)
	{
		const json_t *platform = json_object_get(d, "platform");
		const char *name = name_of(d), *os = text_of(platform, "os");
		char word[96];

		if (names && !name)
			continue;
		if (names)
			snprintf(word, sizeof word, "%s", shown(name));
		else if (os)
			snprintf(word, sizeof word, "%.20s/%.40s", os, shown(text_of(platform, "architecture")));
		else
			continue;
		if (n < sizeof text - 1)
			n += (size_t)snprintf(text + n, sizeof text - n, "%s%.40s", n ? ", " : "", shown(word));
	}
	return text[0] ? text : "no name";
}

int oci_index_choose(const char *text, size_t len, const char *ref, struct oci_blob *ret, struct err *e)
{
	json_t *j = load(text, len, "index", e), *manifests, *d, *chosen = NULL;
	size_t i, fitting = 0, named = 0;
	int rc;

	if (!j)
		return -EINVAL;
	manifests = json_object_get(j, "manifests");
	json_array_foreach(manifests, i, d)
	{
		const char *name = name_of(d);

		if (ref && (!name || strcmp(name, ref) != 0))
			continue;
		named++;
		if (!for_this_machine(d))
			continue;
		if (!fitting++)
			chosen = d;
	}
	if (!json_is_array(manifests))
		rc = err_set(e, EINVAL, "image", "the image's index has no list `manifests`");
	else if (ref && !named)
		rc =
		    err_set(e, ENOENT, "image", "no image \"%s\" in the layout; it has: %s", shown(ref), list(manifests, true));
	else if (!fitting)
		rc = err_set(e, ENOENT, "image", "no image for " OS "/" ARCHITECTURE " in the layout; it has: %s",
			     list(manifests, false));
	/* Several under one name are variants of one machine: the first is the one that runs on all. */
	else if (fitting > 1 && !ref && name_of(chosen))
		rc = err_set(e, EINVAL, "image", "the layout holds %zu images: add : and one of %s", fitting,
			     list(manifests, true));
	else
		rc = read_blob(chosen, KIND_MANIFEST, true, ret, e);
	json_decref(j);
	return rc;
}

int oci_manifest_read(const char *text, size_t len, struct oci_manifest *ret, struct err *e)
{
	json_t *j = load(text, len, "manifest", e), *layers, *d;
	size_t i;
	int rc;

	if (!j)
		return -EINVAL;
	layers = json_object_get(j, "layers");
	*ret = (struct oci_manifest){0};
	if (!json_is_array(layers) || json_array_size(layers) > LIMIT_IMAGE_LAYERS)
		rc = err_set(e, EINVAL, "image", "the image's manifest has no list of layers, or more than %d of them",
			     LIMIT_IMAGE_LAYERS);
	else
		rc = read_blob(json_object_get(j, "config"), KIND_CONFIG, false, &ret->config, e);
	json_array_foreach(layers, i, d)
	{
		if (rc < 0)
			break;
		rc = read_blob(d, KIND_LAYER, false, &ret->layers[i], e);
		ret->layer_count = i + 1;
	}
	json_decref(j);
	return rc;
}

int oci_config_check(const char *text, size_t len, struct err *e)
{
	json_t *j = load(text, len, "configuration", e);
	const char *os, *architecture;
	int rc = 0;

	if (!j)
		return -EINVAL;
	os = text_of(j, "os");
	architecture = text_of(j, "architecture");
	if (!os || !architecture || strcmp(os, OS) != 0 || strcmp(architecture, ARCHITECTURE) != 0) {
		char word[64];

		snprintf(word, sizeof word, "%s", shown(os));
		rc = err_set(e, EINVAL, "image", "the image is for %s/%s; this machine runs " OS "/" ARCHITECTURE, word,
			     shown(architecture));
	}
	json_decref(j);
	return rc;
}

int oci_layout_check(const char *text, size_t len, struct err *e)
{
	json_t *j = load(text, len, "file oci-layout", e);
	const char *version;
	int rc = 0;

	if (!j)
		return -EINVAL;
	version = text_of(j, "imageLayoutVersion");
	if (!version || strncmp(version, "1.", 2) != 0)
		rc = err_set(e, EINVAL, "image", "the image layout's version is \"%s\", not 1.0.0", shown(version));
	json_decref(j);
	return rc;
}
