/* SPDX-License-Identifier: Apache-2.0 */
#include "oci_doc.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"

#define OS "linux"
#define ARCHITECTURE "amd64"
#define REF_NAME "org.opencontainers.image.ref.name"
#define FULL_NAME "io.containerd.image.name"

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

/* For messages: printable, and not longer than they need. Good until the fourth call after this one. */
static const char *shown(const char *text)
{
	static char outs[4][96];
	static unsigned turn;
	char *out = outs[turn++ % 4];
	size_t n = text ? strnlen(text, sizeof outs[0] - 1) : 0;

	for (size_t i = 0; i < n; i++)
		out[i] = (char)(text[i] < ' ' || text[i] > '~' || text[i] == '"' ? '?' : text[i]);
	out[n] = 0;
	return out;
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static json_t *load_any(const char *text, size_t len, const char *what, bool list, struct err *e)
{
	json_error_t error;
	json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);

	if (list ? json_is_array(j) : json_is_object(j))
		return j;
	if (j)
		err_set(e, EINVAL, "image", "the image's %s is not a JSON %s", what, list ? "list" : "object");
	else
		err_set(e, EINVAL, "image", "the image's %s is not JSON: line %d: %s", what, error.line, shown(error.text));
	json_decref(j);
	return NULL;
}

static json_t *load(const char *text, size_t len, const char *what, struct err *e)
{
	return load_any(text, len, what, false, e);
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
	if (!digest || strncmp(digest, algorithm, sizeof algorithm - 1) != 0 || !image_digest_ok(digest + sizeof algorithm - 1))
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

static int no_such_image(const char *ref, const char *where, const char *names, struct err *e)
{
	return err_set(e, ENOENT, "image", "no image \"%s\" in the %s; it has: %s", shown(ref), where, names);
}

/* The whole name where there is one: a ref alone may be no more than a tag. */
static void note_name(const json_t *d, char ret[OCI_NAME_MAX])
{
	const char *name = text_of(json_object_get(d, "annotations"), FULL_NAME);

	if (!name)
		name = name_of(d);
	if (!name || (size_t)snprintf(ret, OCI_NAME_MAX, "%s", name) >= OCI_NAME_MAX)
		ret[0] = 0;
}

static bool is_called(const json_t *d, const char *ref)
{
	const char *name = name_of(d), *full = text_of(json_object_get(d, "annotations"), FULL_NAME);

	return (name && !strcmp(name, ref)) || (full && !strcmp(full, ref));
}

int oci_index_choose(const char *text, size_t len, const char *ref, struct oci_blob *ret, char ret_name[OCI_NAME_MAX],
		     struct err *e)
{
	json_t *j = load(text, len, "index", e), *manifests, *d, *chosen = NULL;
	size_t i, fitting = 0, named = 0;
	int rc;

	if (!j)
		return -EINVAL;
	manifests = json_object_get(j, "manifests");
	json_array_foreach(manifests, i, d)
	{
		if (ref && !is_called(d, ref))
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
		rc = no_such_image(ref, "layout", list(manifests, true), e);
	else if (!fitting)
		rc = err_set(e, ENOENT, "image", "no image for " OS "/" ARCHITECTURE " in the layout; it has: %s",
			     list(manifests, false));
	/* Several under one name are variants of one machine: the first is the one that runs on all. */
	else if (fitting > 1 && !ref && name_of(chosen))
		rc = err_set(e, EINVAL, "image", "the layout holds %zu images: add : and one of %s", fitting,
			     list(manifests, true));
	else
		rc = read_blob(chosen, KIND_MANIFEST, true, ret, e);
	if (rc == 0 && ret_name)
		note_name(chosen, ret_name);
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

/* ---- the configuration ---- */

static int check_machine(const json_t *j, struct err *e)
{
	const char *os = text_of(j, "os"), *architecture = text_of(j, "architecture");

	if (os && architecture && !strcmp(os, OS) && !strcmp(architecture, ARCHITECTURE))
		return 0;
	return err_set(e, EINVAL, "image", "the image is for %s/%s; this machine runs " OS "/" ARCHITECTURE, shown(os),
		       shown(architecture));
}

/* Without doubled slashes and one at the end. */
static int read_workdir(const json_t *v, char ret[IMAGE_WORKDIR_MAX], struct err *e)
{
	const char *text = json_string_value(v);
	size_t used = 0;

	ret[0] = 0;
	if (!v || json_is_null(v) || (text && !text[0]))
		return 0;
	if (!text || !image_workdir_ok(text))
		return err_set(
		    e, EINVAL, "image",
		    "the image's WorkingDir is \"%s\": not an absolute path without \"..\" and control characters, of "
		    "less than %d bytes",
		    shown(text), IMAGE_WORKDIR_MAX);
	for (const char *p = text; *p; p++)
		if (*p != '/' || (p[1] != '/' && (p[1] || !used)))
			ret[used++] = *p;
	ret[used] = 0;
	return 0;
}

static int read_variables(const json_t *v, struct oci_config *ret, struct err *e)
{
	_cleanup_free_ char *block = NULL;
	size_t len = 0, i;
	json_t *item;

	ret->variables[0] = 0;
	ret->variables_len = 1;
	if (!v || json_is_null(v))
		return 0;
	if (!json_is_array(v))
		return err_set(e, EINVAL, "image", "the image's Env is no list");
	json_array_foreach((json_t *)v, i, item)
	{
		const char *text = json_string_value(item);
		int rc = text ? image_variables_add(&block, &len, text, json_string_length(item)) : -EINVAL;

		if (rc == -EINVAL)
			return err_set(e, EINVAL, "image", "entry %zu of the image's Env is \"%s\", not NAME=VALUE", i + 1,
				       shown(text));
		if (rc == -E2BIG)
			return err_set(e, E2BIG, "image", "the image's Env is over %d bytes", LIMIT_IMAGE_VARIABLES_BYTES);
		if (rc < 0)
			return err_set(e, ENOMEM, "image", "out of memory");
	}
	if (len) {
		memcpy(ret->variables, block, len);
		ret->variables_len = len;
	}
	return 0;
}

static int read_diff_ids(const json_t *v, struct oci_config *ret, struct err *e)
{
	static const char algorithm[] = "sha256:";
	size_t i;
	json_t *item;

	ret->diff_count = 0;
	if (!v || json_is_null(v))
		return 0;
	if (!json_is_array(v) || json_array_size(v) > LIMIT_IMAGE_LAYERS)
		return err_set(e, EINVAL, "image",
			       "the diff_ids of the image's configuration are no list, or more than %d of them",
			       LIMIT_IMAGE_LAYERS);
	json_array_foreach((json_t *)v, i, item)
	{
		const char *text = json_string_value(item);

		if (!text || strncmp(text, algorithm, sizeof algorithm - 1) != 0 ||
		    !image_digest_ok(text + sizeof algorithm - 1))
			return err_set(e, EINVAL, "image",
				       "diff_id %zu of the image's configuration is \"%s\", not sha256: and 64 hexadecimal "
				       "digits",
				       i + 1, shown(text));
		memcpy(ret->diff_ids[i], text + sizeof algorithm - 1, OCI_HEX + 1);
		ret->diff_count = i + 1;
	}
	return 0;
}

int oci_config_read(const char *text, size_t len, struct oci_config *ret, struct err *e)
{
	json_t *j = load(text, len, "configuration", e), *config;
	int rc;

	if (!j)
		return -EINVAL;
	config = json_object_get(j, "config");
	rc = check_machine(j, e);
	if (rc == 0)
		rc = read_workdir(json_object_get(config, "WorkingDir"), ret->workdir, e);
	if (rc == 0)
		rc = read_variables(json_object_get(config, "Env"), ret, e);
	if (rc == 0)
		rc = read_diff_ids(json_object_get(json_object_get(j, "rootfs"), "diff_ids"), ret, e);
	json_decref(j);
	return rc;
}

/* ---- a docker archive ---- */

/* Into char[OCI_PATH_MAX]. */
static int read_path(const json_t *v, const char *what, char *ret, struct err *e)
{
	const char *text = json_string_value(v);
	bool up = false;

	for (const char *p = text; p && *p; p += strspn(p, "/")) {
		size_t n = strcspn(p, "/");

		up = up || (n == 2 && !memcmp(p, "..", 2));
		p += n;
	}
	if (!text || !text[0] || text[0] == '/' || up || strlen(text) >= OCI_PATH_MAX)
		return err_set(e, EINVAL, "image", "the archive's manifest.json has %s \"%s\": not the name of a file in it",
			       what, shown(text));
	memcpy(ret, text, strlen(text) + 1);
	return 0;
}

/* "weather:2" is meant by that, and by "2". */
static bool has_tag(const json_t *image, const char *ref, const char **ret)
{
	json_t *tag;
	size_t i;

	json_array_foreach(json_object_get(image, "RepoTags"), i, tag)
	{
		const char *text = json_string_value(tag), *colon = text ? strrchr(text, ':') : NULL;

		if (text && (!ref || !strcmp(text, ref) || (colon && !strcmp(colon + 1, ref)))) {
			*ret = text;
			return true;
		}
	}
	return false;
}

static const char *list_tags(const json_t *images)
{
	static char text[160];
	size_t n = 0, i, k;
	json_t *image, *tag;

	text[0] = 0;
	json_array_foreach((json_t *)images, i, image)
	{
		json_array_foreach(json_object_get(image, "RepoTags"), k, tag)
		{
			if (n < sizeof text - 1)
				n += (size_t)snprintf(text + n, sizeof text - n, "%s%.60s", n ? ", " : "",
						      shown(json_string_value(tag)));
		}
	}
	return text[0] ? text : "no tag";
}

static int read_image(const json_t *image, struct docker_image *ret, struct err *e)
{
	const json_t *layers = json_object_get(image, "Layers");
	json_t *layer;
	size_t i;
	int rc;

	if (!json_is_array(layers) || json_array_size(layers) > LIMIT_IMAGE_LAYERS)
		return err_set(e, EINVAL, "image", "the archive's manifest.json has no list of layers, or more than %d of them",
			       LIMIT_IMAGE_LAYERS);
	rc = read_path(json_object_get(image, "Config"), "the configuration", ret->config, e);
	json_array_foreach((json_t *)layers, i, layer)
	{
		if (rc < 0)
			break;
		rc = read_path(layer, "the layer", ret->layers[i], e);
		ret->layer_count = i + 1;
	}
	return rc;
}

int docker_manifest_choose(const char *text, size_t len, const char *ref, struct docker_image *ret, struct err *e)
{
	json_t *j = load_any(text, len, "manifest.json", true, e), *image, *chosen = NULL;
	const char *tag = NULL, *its_tag = "";
	size_t i, fitting = 0;
	int rc;

	if (!j)
		return -EINVAL;
	json_array_foreach(j, i, image)
	{
		if (!has_tag(image, ref, &tag) && ref)
			continue;
		if (!fitting++) {
			chosen = image;
			its_tag = tag ? tag : "";
		}
	}
	if (!fitting && ref)
		rc = no_such_image(ref, "archive", list_tags(j), e);
	else if (!fitting)
		rc = err_set(e, ENOENT, "image", "the archive's manifest.json names no image");
	else if (fitting > 1)
		rc = err_set(e, EINVAL, "image", "the archive holds %zu images%s: add : and one of %s", fitting,
			     ref ? " of that name" : "", list_tags(j));
	else {
		*ret = (struct docker_image){0};
		if ((size_t)snprintf(ret->name, sizeof ret->name, "%s", its_tag) >= sizeof ret->name)
			ret->name[0] = 0;
		rc = read_image(chosen, ret, e);
	}
	json_decref(j);
	return rc;
}

bool docker_config_digest(const char *path, char ret[OCI_HEX + 1])
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (strlen(name) < OCI_HEX || (name[OCI_HEX] && strcmp(name + OCI_HEX, ".json") != 0))
		return false;
	memcpy(ret, name, OCI_HEX);
	ret[OCI_HEX] = 0;
	return image_digest_ok(ret);
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
