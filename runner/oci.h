/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images as root directories. One is unpacked once, into a directory named after its digest, by a child that is as confined as
 * an unprivileged process can be: it sees what it reads (read-only), an empty directory of its own, for an archive another one
 * for what is in it; no network, no other process, a short list of system calls. Where an image states digests, its blobs and
 * layers are checked against them. What is unpacked belongs to uid UID_IMAGE (unpack.h says what is taken over of modes and
 * kinds).
 *
 *   an OCI layout        a directory with oci-layout, index.json and blobs/sha256; the digest is the manifest's
 *   its archive          a tar of one, which may be compressed
 *   a docker archive     what `docker save` and `podman save` write; the digest is the configuration's (the image's ID)
 *   a directory          is copied; the digest is one of its content (oci_tree.c)
 */
#ifndef WEIR_RUNNER_OCI_H
#define WEIR_RUNNER_OCI_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "oci_doc.h"

/* Whether the directory says of itself that it is one. */
bool oci_is_layout(const char *path);

struct oci_unpacked {
	char digest[OCI_HEX + 1];		     /* without the algorithm's name */
	char root[PATH_MAX];			     /* where it is: `images`/`digest` */
	bool fresh;				     /* it was not there before */
	unsigned long long bytes, entries, left_out; /* fresh: see unpack.h */
	unsigned long long hidden;		     /* of a directory: what only its owner may read, and was left out */
	char first_hidden[160];			     /* .. the first of it */
	const char *kind;			     /* as in struct image_entry */
	char name[OCI_NAME_MAX];		     /* what the image is called where it was; "" nothing */
	char workdir[IMAGE_WORKDIR_MAX];	     /* of its configuration */
	char variables[LIMIT_IMAGE_VARIABLES_BYTES]; /* a block (registry/images.h), credentials and all */
	size_t variables_len;
};

/* How far an unpacking is. Layer 0 of 0: what comes before layers. Bytes: total 0: nobody knows. */
struct oci_progress {
	unsigned layer, layers;
	unsigned long long done, total;
	bool waiting; /* for another import: nothing else of this is set */
};

struct oci_request {
	const char
	    *path;	 /* absolute: a directory; NULL: an archive, open as `archive_fd`. A directory is readable for others */
	int archive_fd;	 /* a file, or a pipe; the caller's */
	const char *ref; /* which of several images, or NULL */
	const char *images; /* directory for what is unpacked, made if it is missing */
	/* The last word on an image that is whole, before it gets its name, or that is there already. `root`: where it is now.
	 */
	int (*vet)(const char *root, const struct oci_unpacked *u, void *ctx, struct err *e);
	void (*progress)(const struct oci_progress *p, void *ctx); /* may be NULL, as may `vet` */
	void *ctx;
	const volatile sig_atomic_t *stop; /* set by a signal handler: then it ends with ECANCELED. NULL: nobody does */
};

/*
 * Unpacks an image that is not there yet. Only one is unpacked in `images` at a time, the others wait; what a dead process had
 * begun is removed, and after an error nothing is left. The caller is root.
 */
int oci_import(const struct oci_request *r, struct oci_unpacked *ret, struct err *e);

/* What of an unpacked image can be counted: files' bytes, and entries. As far as it gets. */
void oci_measure(const char *root, unsigned long long *ret_bytes, unsigned long long *ret_entries);

/*
 * Removes an unpacked image, whole: whoever is killed in the middle leaves none under that name. 0 also when there is none.
 */
int oci_remove(const char *images, const char *digest, struct err *e);

/* Whether a process runs sandboxes in it and holds a shared lock on it for that (cli/prime.c). */
bool oci_is_used(const char *images, const char *digest);

/* Whether it is there. */
bool oci_is_unpacked(const char *images, const char *digest);

#endif
