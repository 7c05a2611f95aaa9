/* SPDX-License-Identifier: Apache-2.0 */
/* The documents of an OCI image layout: index, manifest, configuration. Text only, which anybody may have written. */
#ifndef WEIR_RUNNER_OCI_DOC_H
#define WEIR_RUNNER_OCI_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"

#define OCI_HEX 64 /* of a SHA-256 */

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
 * Which image of an index is meant: `ref` is its name there (org.opencontainers.image.ref.name); NULL: the only one there is
 * for this machine (linux/amd64). Errors list what there is.
 */
int oci_index_choose(const char *text, size_t len, const char *ref, struct oci_blob *ret, struct err *e);

/* *ret is of no use after an error. */
int oci_manifest_read(const char *text, size_t len, struct oci_manifest *ret, struct err *e);

/* Whether an image's configuration is one for this machine. */
int oci_config_check(const char *text, size_t len, struct err *e);

/* Whether the file `oci-layout` says a version of the layout that is known here. */
int oci_layout_check(const char *text, size_t len, struct err *e);

#endif
