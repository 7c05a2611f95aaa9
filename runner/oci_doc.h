/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The documents of images: an OCI layout's index, manifest and configuration, a docker archive's manifest. Text only, which
 * anybody may have written.
 */
#ifndef WEIR_RUNNER_OCI_DOC_H
#define WEIR_RUNNER_OCI_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"

#include "registry/images.h"

#define OCI_HEX 64 /* of a SHA-256 */
#define OCI_NAME_MAX 256
#define OCI_PATH_MAX 256 /* of a file in a docker archive */

struct oci_blob {
	char sha256[OCI_HEX + 1]; /* lower case; names its file in blobs/sha256 */
	uint64_t size;		  /* bytes */
	bool index;		  /* is another index, not a manifest */
};

struct oci_manifest {
	struct oci_blob config;
	struct oci_blob layers[LIMIT_IMAGE_LAYERS]; /* from the bottom up */
	size_t layer_count;
};

/*
 * Which image of an index is meant: `ref` is its name there (org.opencontainers.image.ref.name, or what containerd notes
 * beside it); NULL: the only one there is for this machine (linux/amd64). Errors list what there is. `ret_name` (may be NULL):
 * what the index calls it, "" when it doesn't.
 */
int oci_index_choose(const char *text, size_t len, const char *ref, struct oci_blob *ret, char ret_name[OCI_NAME_MAX],
		     struct err *e);

/* *ret is of no use after an error. */
int oci_manifest_read(const char *text, size_t len, struct oci_manifest *ret, struct err *e);

/* What is used of an image's configuration. */
struct oci_config {
	char workdir[IMAGE_WORKDIR_MAX];	     /* "" none */
	char variables[LIMIT_IMAGE_VARIABLES_BYTES]; /* a block as in registry/images.h */
	size_t variables_len;
	char diff_ids[LIMIT_IMAGE_LAYERS][OCI_HEX + 1]; /* SHA-256 of the layers, uncompressed, from the bottom up */
	size_t diff_count;
};

/* Refused: what is not for this machine, or malformed in what is used of it. *ret is of no use after an error. */
int oci_config_read(const char *text, size_t len, struct oci_config *ret, struct err *e);

/* Whether the file `oci-layout` says a version of the layout that is known here. */
int oci_layout_check(const char *text, size_t len, struct err *e);

/* One image of what `docker save` and `podman save` write: names of files in the archive, none of which leads up. */
struct docker_image {
	char name[OCI_NAME_MAX]; /* its tag: the one that was asked for, else the first; "" none */
	char config[OCI_PATH_MAX];
	char layers[LIMIT_IMAGE_LAYERS][OCI_PATH_MAX]; /* from the bottom up */
	size_t layer_count;
};

/*
 * Which image of a manifest.json is meant: `ref` is one of its tags ("weather:2", or "2" alone); NULL: the only one there is.
 * Errors list what there is. *ret is of no use after an error.
 */
int docker_manifest_choose(const char *text, size_t len, const char *ref, struct docker_image *ret, struct err *e);

/* The digest that the name of a configuration states ("HEX.json", "blobs/sha256/HEX"): whether it states one. */
bool docker_config_digest(const char *path, char ret[OCI_HEX + 1]);

#endif
