/* SPDX-License-Identifier: Apache-2.0 */
/* An OCI layout, as the child sees it at OCI_IN. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "oci_priv.h"

#define IN OCI_IN
#define NESTED_MAX 4 /* indices in indices */

/* ---- blobs ---- */

struct blob_reader {
	int fd;
	gnutls_hash_hd_t hash;
	uint64_t left;	/* by its descriptor */
	bool too_short; /* the file ends before */
	struct oci_work *w;
	char chunk[OCI_CHUNK];
};

static int blob_open(struct blob_reader *r, const struct oci_blob *b, struct err *e)
{
	char path[sizeof IN "/blobs/sha256/" + OCI_HEX];
	struct stat st;

	snprintf(path, sizeof path, IN "/blobs/sha256/%s", b->sha256);
	r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (r->fd < 0)
		return err_errno(e, errno, "image", "open blobs/sha256/%.12s… of the layout%s", b->sha256,
				 errno == EACCES ? " (chmod -R a+rX the layout)" : "");
	r->left = b->size;
	r->too_short = false;
	if (fstat(r->fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != b->size)
		return err_set(e, EINVAL, "image", "blobs/sha256/%.12s of the layout is not a file of %llu bytes", b->sha256,
			       (unsigned long long)b->size);
	if (gnutls_hash_init(&r->hash, GNUTLS_DIG_SHA256) < 0)
		return err_set(e, ENOMEM, "image", "out of memory");
	return 0;
}

static ssize_t blob_read(void *ctx, const void **ret)
{
	struct blob_reader *r = ctx;
	size_t want = r->left < sizeof r->chunk ? (size_t)r->left : sizeof r->chunk;
	ssize_t n;

	do
		n = read(r->fd, r->chunk, want);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	r->too_short = n == 0 && want;
	r->left -= (uint64_t)n;
	oci_progress(r->w, (uint64_t)n);
	if (gnutls_hash(r->hash, r->chunk, (size_t)n) < 0)
		return -EIO;
	*ret = r->chunk;
	return n;
}

/* Reads what nobody asked for, and says whether it all was what its name says. Closes. */
static int blob_finish(struct blob_reader *r, const struct oci_blob *b, struct err *e)
{
	const void *data = NULL;
	char hex[OCI_HEX + 1];
	ssize_t n;

	while ((n = blob_read(r, &data)) > 0)
		;
	oci_hash_hex(r->hash, hex);
	r->hash = NULL;
	close(TAKE_FD(r->fd));
	if (n < 0)
		return err_errno(e, (int)-n, "image", "read blobs/sha256/%.12s of the layout", b->sha256);
	if (r->too_short || strcmp(hex, b->sha256) != 0)
		return err_set(e, EINVAL, "image", "blobs/sha256/%.12s of the layout does not have the content of that digest",
			       b->sha256);
	return 0;
}

static void blob_close(struct blob_reader *r)
{
	cleanup_fdp(&r->fd);
	r->fd = -1;
	if (r->hash)
		gnutls_hash_deinit(r->hash, NULL);
	r->hash = NULL;
}

/* A document, whole and checked. *ret is malloc'd. */
static int blob_document(struct blob_reader *r, const struct oci_blob *b, char **ret, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	const void *data = NULL;
	size_t used = 0;
	ssize_t n;
	int rc;

	if (b->size > LIMIT_IMAGE_MANIFEST_BYTES)
		return err_set(e, E2BIG, "image", "a document of the image is over %d bytes", (int)LIMIT_IMAGE_MANIFEST_BYTES);
	text = malloc(b->size + 1);
	if (!text)
		return err_set(e, ENOMEM, "image", "out of memory");
	rc = blob_open(r, b, e);
	if (rc < 0)
		return rc;
	while ((n = blob_read(r, &data)) > 0 && data) {
		memcpy(text + used, data, (size_t)n); /* never more than b->size in all */
		used += (size_t)n;
	}
	rc = blob_finish(r, b, e);
	if (rc == 0)
		*ret = TAKE_PTR(text);
	return rc;
}

/* A file of the layout that no digest names. */
static int read_plain(const char *path, char **ret, size_t *ret_len, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	_cleanup_free_ char *text = malloc(LIMIT_IMAGE_MANIFEST_BYTES + 1);
	size_t used = 0;
	ssize_t n = 1;

	if (fd < 0)
		return err_errno(e, errno, "image", "open %s of the layout%s", path + sizeof IN,
				 errno == EACCES ? " (chmod -R a+rX the layout)" : "");
	if (!text)
		return err_set(e, ENOMEM, "image", "out of memory");
	while (used <= LIMIT_IMAGE_MANIFEST_BYTES && n > 0) {
		n = read(fd, text + used, LIMIT_IMAGE_MANIFEST_BYTES + 1 - used);
		if (n < 0)
			return err_errno(e, errno, "image", "read %s of the layout", path + sizeof IN);
		used += (size_t)n;
	}
	if (used > LIMIT_IMAGE_MANIFEST_BYTES)
		return err_set(e, E2BIG, "image", "%s of the layout is over %d bytes", path + sizeof IN,
			       (int)LIMIT_IMAGE_MANIFEST_BYTES);
	*ret = TAKE_PTR(text);
	*ret_len = used;
	return 0;
}

/* ---- the image ---- */

/* From the index to the manifest. */
static int find_manifest(struct blob_reader *r, const char *ref, struct oci_blob *ret, char ret_name[OCI_NAME_MAX],
			 struct err *e)
{
	_cleanup_free_ char *layout = NULL, *top = NULL;
	size_t len = 0;
	int rc = read_plain(IN "/oci-layout", &layout, &len, e);

	if (rc == 0)
		rc = oci_layout_check(layout, len, e);
	if (rc == 0)
		rc = read_plain(IN "/index.json", &top, &len, e);
	if (rc == 0)
		rc = oci_index_choose(top, len, ref, ret, ret_name, e);
	for (int i = 0; rc == 0 && ret->index; i++) {
		_cleanup_free_ char *nested = NULL;

		if (i == NESTED_MAX)
			return err_set(e, ELOOP, "image", "the layout has indices nested deeper than %d", NESTED_MAX);
		rc = blob_document(r, ret, &nested, e);
		if (rc == 0)
			rc = oci_index_choose(nested, ret->size, NULL, ret, NULL, e);
	}
	return rc;
}

static int read_manifest(struct blob_reader *r, const struct oci_blob *b, struct oci_manifest *ret, struct oci_config *config,
			 struct err *e)
{
	_cleanup_free_ char *text = NULL, *config_text = NULL;
	int rc = blob_document(r, b, &text, e);

	if (rc == 0)
		rc = oci_manifest_read(text, b->size, ret, e);
	if (rc == 0)
		rc = blob_document(r, &ret->config, &config_text, e);
	return rc < 0 ? rc : oci_config_read(config_text, ret->config.size, config, e);
}

static struct blob_reader reader = {.fd = -1};
static struct oci_manifest manifest;

int oci_layout_identify(struct oci_work *w, struct err *e)
{
	static struct oci_config config;
	struct oci_blob blob = {0};
	int rc;

	reader.w = w;
	rc = find_manifest(&reader, w->task->ref, &blob, w->report.name, e);
	if (rc == 0)
		rc = read_manifest(&reader, &blob, &manifest, &config, e);
	blob_close(&reader);
	if (rc < 0)
		return rc;
	memcpy(w->report.digest, blob.sha256, sizeof w->report.digest);
	oci_report_config(w, &config);
	return 0;
}

int oci_layout_unpack(struct oci_work *w, struct err *e)
{
	struct unpack *u = NULL;
	int rc = unpack_new(&u, w->out, &oci_limits, e);

	for (size_t i = 0; rc == 0 && i < manifest.layer_count; i++) {
		const struct oci_blob *layer = &manifest.layers[i];

		oci_progress_begin(w, i + 1, manifest.layer_count, layer->size);
		rc = blob_open(&reader, layer, e);
		if (rc == 0)
			rc = unpack_layer(u, blob_read, &reader, e);
		if (rc == 0)
			rc = blob_finish(&reader, layer, e);
		if (rc < 0)
			err_wrap(e, "layer %zu of %zu", i + 1, manifest.layer_count);
	}
	if (rc == 0)
		oci_report_tally(w, u);
	blob_close(&reader);
	unpack_free(u);
	return rc;
}
