/* SPDX-License-Identifier: Apache-2.0 */
/* The confined child that reads a layout and unpacks one of its images, and what it tells its parent. */
#ifndef WEIR_RUNNER_OCI_CHILD_H
#define WEIR_RUNNER_OCI_CHILD_H

#include <stdint.h>

#include "core/err.h"
#include "oci_doc.h"

enum oci_report_type {
	OCI_DIGEST = 1, /* it has found the image, and waits for a byte: then it unpacks. The end of the stream ends it */
	OCI_DONE,	/* all layers are unpacked, every digest was right */
	OCI_FAILED,	/* `error` */
};

/* Child -> parent, SEQPACKET. */
struct oci_report {
	uint32_t type;
	char digest[OCI_HEX + 1];
	uint64_t bytes, entries, left_out;
	struct err error;
};

/* Never returns. Begins as root in a process of confined_fork(). */
void __attribute__((noreturn)) oci_child(const char *layout, const char *into, const char *ref, int report);

#endif
