/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the child that unpacks share: oci_child.c, oci_layout.c, oci_docker.c, oci_tree.c. */
#ifndef WEIR_RUNNER_OCI_PRIV_H
#define WEIR_RUNNER_OCI_PRIV_H

#include <gnutls/crypto.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "oci_child.h"
#include "unpack.h"

/* In the child: what is read, and where the image goes. */
#define OCI_IN "/in"
#define OCI_OUT "/out"
#define OCI_CHUNK (256 << 10)

struct oci_work {
	const struct oci_task *task;
	int in;	 /* OCI_IN */
	int out; /* OCI_OUT */
	struct oci_report report;
	long long told_ms; /* when the parent last heard of progress */
};

/* Tells the parent how far it is, when that is worth it. `more`: bytes that were read since. */
void oci_progress(struct oci_work *w, uint64_t more);

/* Of a layer, or of all there is (0 of 0); `total` bytes are to be read, or 0: nobody knows. */
void oci_progress_begin(struct oci_work *w, size_t layer, size_t layers, uint64_t total);

/* Takes over what is reported of a configuration. */
void oci_report_config(struct oci_work *w, const struct oci_config *config);

/* Ends an unpacking: its figures are reported when it went well. */
void oci_report_tally(struct oci_work *w, const struct unpack *u);

extern const struct unpack_limits oci_limits;

/* SHA-256, as lower-case hex. */
void oci_hash_hex(gnutls_hash_hd_t hash, char ret[OCI_HEX + 1]);

/*
 * The kinds: `identify` fills the report's digest, name and configuration; `unpack` does the work, and reports its figures.
 * Both write into *w only.
 */
int oci_layout_identify(struct oci_work *w, struct err *e);
int oci_layout_unpack(struct oci_work *w, struct err *e);
int oci_tree_identify(struct oci_work *w, struct err *e);
int oci_tree_unpack(struct oci_work *w, struct err *e);
int oci_archive_identify(struct oci_work *w, struct err *e);
int oci_archive_unpack(struct oci_work *w, struct err *e);

#endif
