/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An archive that holds images: a tar of an OCI layout, or what `docker save` and `podman save` write. Its layers are read
 * where a manifest says they are, in any order and maybe through links, so what is in it is unpacked to OCI_IN first. A file
 * is read twice: first only for its documents, which is quick, since its image may be there already.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "oci_priv.h"

#define MANIFEST "manifest.json"
#define LAYOUT "oci-layout"

/* ---- into the scratch directory ---- */

struct outer {
	struct oci_work *w;
	char chunk[OCI_CHUNK];
};

static ssize_t outer_read(void *ctx, const void **ret)
{
	struct outer *o = ctx;
	ssize_t n;

	do
		n = read(o->w->task->archive_fd, o->chunk, sizeof o->chunk);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	oci_progress(o->w, (uint64_t)n);
	*ret = o->chunk;
	return n;
}

static bool is_document(const char *path, int64_t size)
{
	(void)path;
	return size <= LIMIT_IMAGE_MANIFEST_BYTES;
}

static int extract(struct oci_work *w, bool documents, struct err *e)
{
	static const struct unpack_limits limits = {.bytes = LIMIT_IMAGE_BYTES, .entries = LIMIT_IMAGE_ARCHIVE_ENTRIES};
	static struct outer outer;
	struct unpack *u = NULL;
	struct stat st = {0};
	int rc = unpack_new(&u, w->in, &limits, e);

	if (rc < 0)
		return rc;
	oci_progress_begin(w, 0, 0, fstat(w->task->archive_fd, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
	outer.w = w;
	rc = unpack_archive(u, outer_read, &outer, documents ? is_document : NULL, e);
	unpack_free(u);
	return rc;
}

static bool is_seekable(const struct oci_work *w)
{
	return lseek(w->task->archive_fd, 0, SEEK_CUR) >= 0;
}

/* ---- what is in there ---- */

/* A file of the archive, whatever links of the archive lead to it. */
static int open_inside(const struct oci_work *w, const char *path)
{
	struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};

	return (int)syscall(SYS_openat2, w->in, path, &how, sizeof how);
}

static bool has(const struct oci_work *w, const char *path)
{
	_cleanup_fd_ int fd = open_inside(w, path);

	return fd >= 0;
}

static int open_file(const struct oci_work *w, const char *path, struct stat *ret, struct err *e)
{
	_cleanup_fd_ int fd = open_inside(w, path);

	if (fd < 0)
		return err_errno(e, errno, "image", "open %s of the archive", path);
	if (fstat(fd, ret) < 0 || !S_ISREG(ret->st_mode))
		return err_set(e, EINVAL, "image", "%s of the archive is no file", path);
	return TAKE_FD(fd);
}

/* Whole. *ret is malloc'd. */
static int read_document(const struct oci_work *w, const char *path, char **ret, size_t *ret_len, struct err *e)
{
	struct stat st = {0};
	_cleanup_fd_ int fd = open_file(w, path, &st, e);
	_cleanup_free_ char *text = NULL;
	size_t used = 0;

	if (fd < 0)
		return fd;
	if (st.st_size > LIMIT_IMAGE_MANIFEST_BYTES)
		return err_set(e, E2BIG, "image", "%s of the archive is over %lld bytes", path,
			       (long long)LIMIT_IMAGE_MANIFEST_BYTES);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return err_set(e, ENOMEM, "image", "out of memory");
	while (used < (size_t)st.st_size) {
		ssize_t n = read(fd, text + used, (size_t)st.st_size - used);

		if (n <= 0)
			return err_errno(e, n < 0 ? errno : EIO, "image", "read %s of the archive", path);
		used += (size_t)n;
	}
	*ret = TAKE_PTR(text);
	*ret_len = used;
	return 0;
}

/* ---- layers of a docker archive: known by the digest of what they are uncompressed ---- */

struct layer_reader {
	struct oci_work *w;
	int fd;
	struct archive *a; /* takes the compression off, no more */
	gnutls_hash_hd_t hash;
	uint64_t total; /* uncompressed bytes so far */
	bool ended;
	char why[128]; /* it can't be read */
	char chunk[OCI_CHUNK];
};

static la_ssize_t layer_fill(struct archive *a, void *ctx, const void **ret)
{
	struct layer_reader *r = ctx;
	ssize_t n;

	do
		n = read(r->fd, r->chunk, sizeof r->chunk);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		archive_set_error(a, errno, "%s", strerror(errno));
		return -1;
	}
	oci_progress(r->w, (uint64_t)n);
	*ret = r->chunk;
	return n;
}

static int layer_broken(struct layer_reader *r)
{
	const char *why = archive_error_string(r->a);

	snprintf(r->why, sizeof r->why, "%s", why ? why : "no reason given");
	for (char *c = r->why; *c; c++)
		*c = (char)(*c < ' ' || *c > '~' ? '?' : *c);
	return -EBADMSG;
}

static int layer_open(struct layer_reader *r, const char *path, struct err *e)
{
	struct archive_entry *entry;
	struct stat st = {0};
	int result;

	r->ended = false;
	r->why[0] = 0;
	r->total = 0;
	r->fd = open_file(r->w, path, &st, e);
	if (r->fd < 0)
		return r->fd;
	r->w->report.total = (uint64_t)st.st_size;
	r->a = archive_read_new();
	if (!r->a || gnutls_hash_init(&r->hash, GNUTLS_DIG_SHA256) < 0)
		return err_set(e, ENOMEM, "image", "out of memory");
	archive_read_support_filter_gzip(r->a);
	archive_read_support_filter_zstd(r->a);
	archive_read_support_format_raw(r->a);
	archive_read_support_format_empty(r->a);
	result = archive_read_open(r->a, r, NULL, layer_fill, NULL);
	if (result == ARCHIVE_OK)
		result = archive_read_next_header(r->a, &entry);
	r->ended = result == ARCHIVE_EOF; /* it is empty */
	if (result == ARCHIVE_OK || r->ended)
		return 0;
	layer_broken(r);
	return err_set(e, EINVAL, "image", "%s of the archive can't be read: %s", path, r->why);
}

static ssize_t layer_read(void *ctx, const void **ret)
{
	struct layer_reader *r = ctx;
	size_t len = 0;
	la_int64_t at;
	int result;

	if (r->ended)
		return 0;
	do /* a block may be empty */
		result = archive_read_data_block(r->a, ret, &len, &at);
	while (result == ARCHIVE_OK && !len);
	r->ended = result == ARCHIVE_EOF;
	if (r->ended)
		return 0;
	if (result != ARCHIVE_OK)
		return layer_broken(r);
	r->total += len;
	/* As much as an image may have, and what its headers take. */
	if (r->total > LIMIT_IMAGE_BYTES + LIMIT_IMAGE_ENTRIES * 4096ull)
		return -E2BIG;
	return gnutls_hash(r->hash, *ret, len) < 0 ? -EIO : (ssize_t)len;
}

static void layer_close(struct layer_reader *r)
{
	cleanup_fdp(&r->fd);
	r->fd = -1;
	archive_read_free(r->a);
	r->a = NULL;
	if (r->hash)
		gnutls_hash_deinit(r->hash, NULL);
	r->hash = NULL;
}

/* Reads what nobody asked for, and says whether it all was what it should be. */
static int layer_finish(struct layer_reader *r, const char *path, const char *diff_id, struct err *e)
{
	const void *data = NULL;
	char hex[OCI_HEX + 1];
	ssize_t n;

	while ((n = layer_read(r, &data)) > 0)
		;
	if (r->why[0])
		return err_set(e, EINVAL, "image", "%s of the archive can't be read: %s", path, r->why);
	if (n < 0)
		return err_errno(e, (int)-n, "image", "read %s of the archive", path);
	oci_hash_hex(r->hash, hex);
	r->hash = NULL;
	if (strcmp(hex, diff_id) != 0)
		return err_set(e, EINVAL, "image",
			       "%s of the archive does not have the content that the configuration states (%.12s…)", path,
			       diff_id);
	return 0;
}

static struct docker_image image;
static struct oci_config config;

static int docker_identify(struct oci_work *w, struct err *e)
{
	_cleanup_free_ char *text = NULL, *config_text = NULL;
	char stated[OCI_HEX + 1];
	gnutls_hash_hd_t hash;
	size_t len = 0;
	int rc = read_document(w, MANIFEST, &text, &len, e);

	if (rc == 0)
		rc = docker_manifest_choose(text, len, w->task->ref, &image, e);
	if (rc == 0)
		rc = read_document(w, image.config, &config_text, &len, e);
	if (rc < 0)
		return rc;
	if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) < 0 || gnutls_hash(hash, config_text, len) < 0)
		return err_set(e, ENOMEM, "image", "out of memory");
	oci_hash_hex(hash, w->report.digest);
	if (docker_config_digest(image.config, stated) && strcmp(stated, w->report.digest) != 0)
		return err_set(e, EINVAL, "image", "%s of the archive does not have the content of that digest", image.config);
	rc = oci_config_read(config_text, len, &config, e);
	if (rc < 0)
		return rc;
	if (config.diff_count != image.layer_count)
		return err_set(e, EINVAL, "image", "the archive's manifest.json has %zu layers, the image's configuration %zu",
			       image.layer_count, config.diff_count);
	memcpy(w->report.name, image.name, sizeof w->report.name);
	oci_report_config(w, &config);
	return 0;
}

static int docker_layer(struct layer_reader *r, struct unpack *u, size_t i, struct err *e)
{
	const char *path = image.layers[i];
	int rc = layer_open(r, path, e), rc2;

	if (rc == 0) {
		rc = unpack_layer(u, layer_read, r, e);
		/* A stream that breaks off is the better reason. */
		if (rc == 0 || r->why[0]) {
			rc2 = layer_finish(r, path, config.diff_ids[i], e);
			rc = rc < 0 ? rc : rc2;
		}
	}
	layer_close(r);
	return rc < 0 ? err_wrap(e, "layer %zu of %zu", i + 1, image.layer_count) : 0;
}

static int docker_unpack(struct oci_work *w, struct err *e)
{
	static struct layer_reader r = {.fd = -1};
	struct unpack *u = NULL;
	int rc = unpack_new(&u, w->out, &oci_limits, e);

	r.w = w;
	for (size_t i = 0; rc == 0 && i < image.layer_count; i++) {
		oci_progress_begin(w, i + 1, image.layer_count, 0);
		rc = docker_layer(&r, u, i, e);
	}
	if (rc == 0)
		oci_report_tally(w, u);
	unpack_free(u);
	return rc;
}

/* ---- both ---- */

int oci_archive_identify(struct oci_work *w, struct err *e)
{
	int rc = extract(w, is_seekable(w), e);

	if (rc < 0)
		return rc;
	if (has(w, MANIFEST)) {
		w->report.kind = OCI_KIND_DOCKER_ARCHIVE;
		return docker_identify(w, e);
	}
	if (has(w, LAYOUT)) {
		w->report.kind = OCI_KIND_OCI_ARCHIVE;
		return oci_layout_identify(w, e);
	}
	return err_set(e, EINVAL, "image",
		       "the archive is neither an OCI layout nor what `docker save` writes: it has no file oci-layout and no "
		       "manifest.json. The files of a root directory (`docker export`) are unpacked first: then name the "
		       "directory");
}

int oci_archive_unpack(struct oci_work *w, struct err *e)
{
	int rc = 0;

	/* A pipe was unpacked whole the first time. */
	if (is_seekable(w)) {
		if (lseek(w->task->archive_fd, 0, SEEK_SET) < 0)
			return err_errno(e, errno, "image", "read the archive again");
		rc = extract(w, false, e);
	}
	if (rc < 0)
		return rc;
	return w->report.kind == OCI_KIND_DOCKER_ARCHIVE ? docker_unpack(w, e) : oci_layout_unpack(w, e);
}
