/* SPDX-License-Identifier: Apache-2.0 */
#include "oci_child.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <locale.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confined.h"
#include "core/cleanup.h"
#include "kernel/confine.h"
#include "unpack.h"

#define IN "/in"
#define OUT "/out"
#define NESTED_MAX 4 /* indices in indices */
#define CHUNK (256 << 10)
#define MEMORY_BYTES (1LL << 30) /* address space: a zstd window is up to 128 MiB */

static const int allowed[] = {
    /* reading the layout, writing the image */
    SCMP_SYS(openat),
    SCMP_SYS(openat2),
    SCMP_SYS(close),
    SCMP_SYS(read),
    SCMP_SYS(pwrite64),
    SCMP_SYS(lseek),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(ftruncate),
    SCMP_SYS(mkdirat),
    SCMP_SYS(symlinkat),
    SCMP_SYS(linkat),
    SCMP_SYS(unlinkat),
    SCMP_SYS(fchmod),
    SCMP_SYS(utimensat),
    SCMP_SYS(getdents64),
    SCMP_SYS(fcntl),
    /* the parent */
    SCMP_SYS(sendto),
    SCMP_SYS(recvfrom),
    /* the C library: memory, time, the end */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getrandom),
    SCMP_SYS(futex),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

static const int fatal[] = {
    SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(clone),  SCMP_SYS(clone3),  SCMP_SYS(fork),		 SCMP_SYS(vfork),
    SCMP_SYS(socket), SCMP_SYS(connect),  SCMP_SYS(ptrace), SCMP_SYS(bpf),     SCMP_SYS(unshare),	 SCMP_SYS(setns),
    SCMP_SYS(mount),  SCMP_SYS(chroot),	  SCMP_SYS(mknod),  SCMP_SYS(mknodat), SCMP_SYS(io_uring_setup),
};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static int confine(const char *layout, const char *into, int report, struct err *e)
{
	static const struct confine_calls calls = {allowed, COUNT(allowed), fatal, COUNT(fatal), NULL, 0};
	const struct confined_dir dirs[] = {{layout, "in", false}, {into, "out", true}};
	const struct rlimit memory = {MEMORY_BYTES, MEMORY_BYTES};
	bool skipped;
	int rc;

	umask(022);
	/* Names in an archive may be UTF-8; the library turns them into the locale's bytes. */
	(void)setlocale(LC_CTYPE, "C.UTF-8");
	rc = confined_root(dirs, COUNT(dirs), e);
	if (rc == 0)
		rc = confined_drop(&report, 1, e);
	if (rc == 0 && setrlimit(RLIMIT_AS, &memory) < 0)
		rc = err_errno(e, errno, "image", "limit the memory of the process that unpacks");
	return rc < 0 ? rc : confine_syscalls("image", &calls, &skipped, e);
}

/* ---- blobs ---- */

struct blob_reader {
	int fd;
	gnutls_hash_hd_t hash;
	uint64_t left;	/* by its descriptor */
	bool too_short; /* the file ends before */
	char chunk[CHUNK];
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
	if (gnutls_hash(r->hash, r->chunk, (size_t)n) < 0)
		return -EIO;
	*ret = r->chunk;
	return n;
}

/* Reads what nobody asked for, and says whether it all was what its name says. Closes. */
static int blob_finish(struct blob_reader *r, const struct oci_blob *b, struct err *e)
{
	static const char digits[] = "0123456789abcdef";
	const void *data = NULL;
	uint8_t digest[32];
	char hex[OCI_HEX + 1];
	ssize_t n;

	while ((n = blob_read(r, &data)) > 0)
		;
	gnutls_hash_deinit(r->hash, digest);
	r->hash = NULL;
	close(TAKE_FD(r->fd));
	for (size_t i = 0; i < sizeof digest; i++) {
		hex[2 * i] = digits[digest[i] >> 4];
		hex[2 * i + 1] = digits[digest[i] & 15];
	}
	hex[OCI_HEX] = 0;
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
static int find_manifest(struct blob_reader *r, const char *ref, struct oci_blob *ret, struct err *e)
{
	_cleanup_free_ char *layout = NULL, *top = NULL;
	size_t len = 0;
	int rc = read_plain(IN "/oci-layout", &layout, &len, e);

	if (rc == 0)
		rc = oci_layout_check(layout, len, e);
	if (rc == 0)
		rc = read_plain(IN "/index.json", &top, &len, e);
	if (rc == 0)
		rc = oci_index_choose(top, len, ref, ret, e);
	for (int i = 0; rc == 0 && ret->index; i++) {
		_cleanup_free_ char *nested = NULL;

		if (i == NESTED_MAX)
			return err_set(e, ELOOP, "image", "the layout has indices nested deeper than %d", NESTED_MAX);
		rc = blob_document(r, ret, &nested, e);
		if (rc == 0)
			rc = oci_index_choose(nested, ret->size, NULL, ret, e);
	}
	return rc;
}

static int read_manifest(struct blob_reader *r, const struct oci_blob *b, struct oci_manifest *ret, struct err *e)
{
	_cleanup_free_ char *text = NULL, *config = NULL;
	int rc = blob_document(r, b, &text, e);

	if (rc == 0)
		rc = oci_manifest_read(text, b->size, ret, e);
	if (rc == 0)
		rc = blob_document(r, &ret->config, &config, e);
	return rc < 0 ? rc : oci_config_check(config, ret->config.size, e);
}

static int unpack_all(struct blob_reader *r, const struct oci_manifest *m, struct oci_report *report, struct err *e)
{
	const struct unpack_limits limits = {.bytes = LIMIT_IMAGE_BYTES, .entries = LIMIT_IMAGE_ENTRIES};
	_cleanup_fd_ int out = open(OUT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct unpack *u = NULL;
	int rc = out < 0 ? err_errno(e, errno, "image", "open the image's directory") : unpack_new(&u, out, &limits, e);

	for (size_t i = 0; rc == 0 && i < m->layer_count; i++) {
		rc = blob_open(r, &m->layers[i], e);
		if (rc == 0)
			rc = unpack_layer(u, blob_read, r, e);
		if (rc == 0)
			rc = blob_finish(r, &m->layers[i], e);
		if (rc < 0)
			err_wrap(e, "layer %zu of %zu", i + 1, m->layer_count);
	}
	if (rc == 0) {
		report->bytes = unpack_tally(u)->bytes;
		report->entries = unpack_tally(u)->entries;
		report->left_out = unpack_tally(u)->left_out;
	}
	unpack_free(u);
	return rc;
}

static void tell(int fd, const struct oci_report *r)
{
	if (send(fd, r, sizeof *r, MSG_NOSIGNAL) < 0)
		_exit(125);
}

void oci_child(const char *layout, const char *into, const char *ref, int report_fd)
{
	static struct blob_reader r = {.fd = -1};
	static struct oci_manifest manifest;
	struct oci_report report = {.type = OCI_DIGEST};
	struct oci_blob blob = {0};
	char go;
	int rc = confine(layout, into, report_fd, &report.error);

	if (rc == 0)
		rc = find_manifest(&r, ref, &blob, &report.error);
	if (rc == 0)
		rc = read_manifest(&r, &blob, &manifest, &report.error);
	if (rc == 0) {
		memcpy(report.digest, blob.sha256, sizeof report.digest);
		tell(report_fd, &report);
		if (recv(report_fd, &go, 1, 0) != 1)
			_exit(0); /* it is there already */
		rc = unpack_all(&r, &manifest, &report, &report.error);
	}
	blob_close(&r);
	report.type = rc == 0 ? OCI_DONE : OCI_FAILED;
	tell(report_fd, &report);
	_exit(0);
}
