/* SPDX-License-Identifier: Apache-2.0 */
/* The confined child that reads an image, wherever it is, and unpacks it; and what it tells its parent. */
#ifndef WEIR_RUNNER_OCI_CHILD_H
#define WEIR_RUNNER_OCI_CHILD_H

#include <stdint.h>

#include "core/err.h"
#include "oci_doc.h"

enum oci_kind {
	OCI_KIND_LAYOUT, /* a directory with an OCI layout */
	OCI_KIND_DIRECTORY,
	OCI_KIND_ARCHIVE,	 /* not known yet which; once it is: */
	OCI_KIND_OCI_ARCHIVE,	 /* .. of an OCI layout */
	OCI_KIND_DOCKER_ARCHIVE, /* .. what `docker save` writes */
	OCI_KINDS,
};

struct oci_task {
	enum oci_kind kind;  /* one of the first three */
	const char *source;  /* LAYOUT, DIRECTORY: absolute path */
	int archive_fd;	     /* ARCHIVE: a file or a pipe */
	const char *scratch; /* ARCHIVE: an empty directory of UID_IMAGE's, for what is in the archive */
	const char *into;    /* an empty directory of UID_IMAGE's, for the image */
	const char *ref;     /* which of several; NULL: the only one */
	int report_fd;
};

enum oci_report_type {
	OCI_DIGEST = 1, /* it has found the image, and waits for a byte: then it unpacks. The end of the stream ends it */
	OCI_DONE,	/* all is unpacked, every digest was right */
	OCI_FAILED,	/* `error` */
	OCI_PROGRESS,	/* now and then */
};

/* Child -> parent, SEQPACKET. All text is terminated, and a stranger's. */
struct oci_report {
	uint32_t type;
	/* DIGEST */
	uint32_t kind; /* enum oci_kind: a known one */
	char digest[OCI_HEX + 1];
	char name[OCI_NAME_MAX]; /* what the image is called where it was; "" nothing */
	char workdir[IMAGE_WORKDIR_MAX];
	char variables[LIMIT_IMAGE_VARIABLES_BYTES];
	uint64_t variables_len;
	/* DONE. `hidden`: of a directory, what its owner alone may read, and is not in the image; the first of it by name */
	uint64_t bytes, entries, left_out, hidden;
	char first_hidden[160];
	/* PROGRESS: which layer of how many, or 0 of 0; bytes read so far, and in all, or 0 */
	uint32_t layer, layers;
	uint64_t done, total;
	struct err error;
};

/* Never returns. Begins as root in a process of confined_fork(). */
void __attribute__((noreturn)) oci_child(const struct oci_task *task);

#endif
