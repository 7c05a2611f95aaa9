/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OCI image layouts (a directory with oci-layout, index.json and blobs/sha256) as root directories. An image is unpacked
 * once, into a directory named after its manifest's digest, by a child that is as confined as an unprivileged process can be:
 * it sees the layout (read-only) and an empty directory of its own, no network, no other process, a short list of system
 * calls. Each blob is checked against the digest that names it. What it unpacks belongs to uid UID_IMAGE (unpack.h says what is
 * taken over of modes and kinds).
 */
#ifndef WEIR_RUNNER_OCI_H
#define WEIR_RUNNER_OCI_H

#include <limits.h>
#include <stdbool.h>

#include "core/err.h"
#include "oci_doc.h"

/* Whether the directory says of itself that it is one. */
bool oci_is_layout(const char *path);

struct oci_unpacked {
	char digest[OCI_HEX + 1];		     /* of the manifest, without the algorithm's name */
	char root[PATH_MAX];			     /* `images`/`digest` */
	bool fresh;				     /* it was not there before */
	unsigned long long bytes, entries, left_out; /* fresh: see unpack.h */
};

/*
 * `layout`: absolute path; it must be readable for others than its owner. `ref`: name of one of its images, or NULL. `images`:
 * directory for what is unpacked, made if it is missing; only one process unpacks there at a time, the others wait, and what a
 * dead one had begun is removed. The caller is root. An image that is there already is not looked at again.
 */
int oci_unpack(const char *layout, const char *ref, const char *images, struct oci_unpacked *ret, struct err *e);

#endif
