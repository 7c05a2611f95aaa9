/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of images, honest and hostile: what ends up in the directory, and that nothing ends up anywhere else. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "unpack.h"

#define ROOM (4 << 20)

/* One entry of a layer. `link`: target of a symbolic link, or of a hard link when the kind is 0. */
struct item {
	const char *name;
	mode_t kind;
	const char *content, *link;
	mode_t mode;
	time_t mtime;
};

struct layer {
	char *data;
	size_t len, at;
};

static const struct unpack_limits wide = {.bytes = 1 << 20, .entries = 100};

static char outside[64]; /* holds `root`, the directory that is unpacked to, and `secret` */
static int root = -1;

static int set_up(void **state)
{
	char path[96];
	FILE *f;

	(void)state;
	snprintf(outside, sizeof outside, "/tmp/weir-test-unpack-XXXXXX");
	assert_non_null(mkdtemp(outside));
	snprintf(path, sizeof path, "%s/secret", outside);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs("mine", f);
	fclose(f);
	snprintf(path, sizeof path, "%s/root", outside);
	assert_int_equal(mkdir(path, 0755), 0);
	root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(root >= 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	close(root);
	assert_int_equal(unpack_remove(AT_FDCWD, outside), 0);
	assert_int_equal(access(outside, F_OK), -1);
	return 0;
}

/* ---- making layers ---- */

static void add_item(struct archive *a, const struct item *it)
{
	struct archive_entry *entry = archive_entry_new();

	archive_entry_set_pathname(entry, it->name);
	archive_entry_set_mtime(entry, it->mtime ? it->mtime : 1000000000, 0);
	archive_entry_set_perm(entry, it->mode ? it->mode : 0644);
	archive_entry_set_uid(entry, 4242);
	if (it->kind) {
		archive_entry_set_filetype(entry, it->kind);
		archive_entry_set_size(entry, it->kind == AE_IFREG && it->content ? (int64_t)strlen(it->content) : 0);
		if (it->kind == AE_IFLNK)
			archive_entry_set_symlink(entry, it->link);
		if (it->kind == AE_IFCHR)
			archive_entry_set_rdev(entry, 0x103);
	} else {
		archive_entry_set_filetype(entry, AE_IFREG);
		archive_entry_set_hardlink(entry, it->link);
	}
	assert_true(archive_write_header(a, entry) >= ARCHIVE_WARN); /* a name may be no UTF-8 */
	if (it->kind == AE_IFREG && it->content)
		assert_int_equal(archive_write_data(a, it->content, strlen(it->content)), strlen(it->content));
	archive_entry_free(entry);
}

static struct layer make_layer(const struct item *items, size_t count, const char *filter)
{
	struct layer l = {.data = malloc(ROOM)};
	struct archive *a = archive_write_new();

	assert_true(l.data && a);
	assert_int_equal(archive_write_set_format_pax_restricted(a), ARCHIVE_OK);
	if (filter)
		assert_int_equal(archive_write_add_filter_by_name(a, filter), ARCHIVE_OK);
	assert_int_equal(archive_write_open_memory(a, l.data, ROOM, &l.len), ARCHIVE_OK);
	for (size_t i = 0; i < count; i++)
		add_item(a, &items[i]);
	if (archive_write_close(a) != ARCHIVE_OK)
		fail_msg("%s", archive_error_string(a));
	archive_write_free(a);
	return l;
}

/* In odd pieces: an archive does not come in blocks of its own. */
static ssize_t read_piece(void *ctx, const void **ret)
{
	struct layer *l = ctx;
	size_t n = l->len - l->at < 777 ? l->len - l->at : 777;

	*ret = l->data + l->at;
	l->at += n;
	return (ssize_t)n;
}

static ssize_t read_badly(void *ctx, const void **ret)
{
	struct layer *l = ctx;

	return l->at > 1000 ? -EIO : read_piece(ctx, ret);
}

static int unpack_one(struct unpack *u, const struct item *items, size_t count, struct err *e)
{
	struct layer l = make_layer(items, count, NULL);
	int rc = unpack_layer(u, read_piece, &l, e);

	free(l.data);
	return rc;
}

/* Unpacks two layers (the second may be empty), within `limits`. */
static int unpack_two(const struct item *a, size_t na, const struct item *b, size_t nb, const struct unpack_limits *limits,
		      struct unpack_tally *tally, struct err *e)
{
	struct unpack *u = NULL;
	int rc = unpack_new(&u, root, limits, e);

	assert_int_equal(rc, 0);
	rc = unpack_one(u, a, na, e);
	if (rc == 0 && nb)
		rc = unpack_one(u, b, nb, e);
	if (tally)
		*tally = *unpack_tally(u);
	unpack_free(u);
	return rc;
}

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define UNPACK(a, e) unpack_two((a), COUNT(a), NULL, 0, &wide, NULL, (e))
#define UNPACK2(a, b, e) unpack_two((a), COUNT(a), (b), COUNT(b), &wide, NULL, (e))

static const char *content(const char *path)
{
	static char text[256];
	_cleanup_fd_ int fd = openat(root, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	text[n < 0 ? 0 : n] = 0;
	return n < 0 ? NULL : text;
}

static bool there(const char *path)
{
	return faccessat(root, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode;
}

/* What is beside the root is as it was. */
static void nothing_outside(void)
{
	char path[96];
	struct stat st;

	snprintf(path, sizeof path, "%s/secret", outside);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 4);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(stat(outside, &st), 0);
	assert_int_equal(st.st_nlink, 3); /* only `root` is a directory in it */
	snprintf(path, sizeof path, "%s/evil", outside);
	assert_int_equal(access(path, F_OK), -1);
}

/* ---- honest ---- */

static void test_kinds(void **state)
{
	static const struct item items[] = {
	    {"./", AE_IFDIR, NULL, NULL, 0700, 0},
	    {"./usr/", AE_IFDIR, NULL, NULL, 0700, 1234567890},
	    {"usr/bin/tool", AE_IFREG, "run me", NULL, 04755, 1111111111},
	    {"etc/shadow", AE_IFREG, "x", NULL, 0600, 0},
	    {"usr/private", AE_IFDIR, NULL, NULL, 0700, 0},
	    {"bin", AE_IFLNK, NULL, "usr/bin", 0, 0},
	    {"away", AE_IFLNK, NULL, "/etc/passwd", 0, 0},
	    {"usr/bin/same", 0, NULL, "usr/bin/tool", 0, 0},
	    {"usr/bin/link-to-link", 0, NULL, "away", 0, 0},
	    {"dev/null", AE_IFCHR, NULL, NULL, 0666, 0},
	    {"run/fifo", AE_IFIFO, NULL, NULL, 0666, 0},
	    {"na\xc3\xafve/\xe6\xbc\xa2", AE_IFREG, "utf-8", NULL, 0, 0},
	};
	static const char *const filters[] = {NULL, "gzip", "zstd"};
	struct unpack_tally tally;
	struct err e = {0};
	struct stat st;

	(void)state;
	for (size_t i = 0; i < COUNT(filters); i++) {
		struct layer l = make_layer(items, COUNT(items), filters[i]);
		struct unpack *u = NULL;

		assert_int_equal(unpack_new(&u, root, &wide, &e), 0);
		if (unpack_layer(u, read_piece, &l, &e) < 0)
			fail_msg("%zu: %s", i, e.msg);
		tally = *unpack_tally(u);
		unpack_free(u);
		free(l.data);
	}
	assert_int_equal(tally.entries, COUNT(items));
	assert_int_equal(tally.left_out, 2);
	assert_int_equal(tally.bytes, strlen("run me") + strlen("x") + strlen("utf-8"));
	assert_string_equal(content("usr/bin/tool"), "run me");
	assert_int_equal(mode_of("usr/bin/tool"), S_IFREG | 0755); /* no set-id bit */
	assert_int_equal(mode_of("etc/shadow"), S_IFREG | 0644);
	assert_int_equal(mode_of("usr/private"), S_IFDIR | 0755);
	assert_int_equal(mode_of("bin") & S_IFMT, S_IFLNK);
	assert_int_equal(mode_of("usr/bin/link-to-link") & S_IFMT, S_IFLNK);
	assert_string_equal(content("na\xc3\xafve/\xe6\xbc\xa2"), "utf-8");
	assert_false(there("dev/null") || there("run/fifo"));
	assert_int_equal(fstatat(root, "usr/bin/same", &st, 0), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(st.st_mtime, 1111111111); /* bytecode is checked against it */
	assert_int_equal(st.st_uid, getuid());
	assert_int_equal(fstatat(root, "usr", &st, 0), 0);
	assert_int_equal(st.st_mtime, 1234567890); /* though files came into it later */
	nothing_outside();
}

static void test_layers(void **state)
{
	static const struct item below[] = {
	    {"keep", AE_IFREG, "1", NULL, 0, 0},	   {"gone", AE_IFREG, "1", NULL, 0, 0},
	    {"tree/a/b", AE_IFREG, "1", NULL, 0, 0},	   {"tree/link", AE_IFLNK, NULL, "/keep", 0, 0},
	    {"opaque/old", AE_IFREG, "1", NULL, 0, 0},	   {"opaque/sub/old", AE_IFREG, "1", NULL, 0, 0},
	    {"opaque/both/x", AE_IFREG, "1", NULL, 0, 0},  {"was-file", AE_IFREG, "1", NULL, 0, 0},
	    {"was-dir/x", AE_IFREG, "1", NULL, 0, 0},	   {"lib", AE_IFLNK, NULL, "usr/lib", 0, 0},
	    {"usr/lib/old", AE_IFREG, "1", NULL, 0, 0},	   {"changed", AE_IFREG, "before", NULL, 0755, 0},
	    {"link-now-dir", AE_IFLNK, NULL, "usr", 0, 0}, {"kept-dir/x", AE_IFREG, "1", NULL, 0, 0},
	};
	static const struct item above[] = {
	    {".wh.gone", AE_IFREG, "", NULL, 0, 0},
	    {".wh.tree", AE_IFREG, "", NULL, 0, 0},
	    {".wh.never-was", AE_IFREG, "", NULL, 0, 0},
	    {".wh..wh.plnk", AE_IFREG, "", NULL, 0, 0},
	    /* Before and after the whiteout: both are of this layer, and stay. */
	    {"opaque/new1", AE_IFREG, "2", NULL, 0, 0},
	    {"opaque/both/y", AE_IFREG, "2", NULL, 0, 0},
	    {"opaque/.wh..wh..opq", AE_IFREG, "", NULL, 0, 0},
	    {"opaque/new2", AE_IFREG, "2", NULL, 0, 0},
	    {"was-file", AE_IFDIR, NULL, NULL, 0, 0},
	    {"was-file/in", AE_IFREG, "2", NULL, 0, 0},
	    {"was-dir", AE_IFREG, "2", NULL, 0, 0},
	    /* Through a link of the layer below, as a program would. */
	    {"lib/new", AE_IFREG, "2", NULL, 0, 0},
	    {"changed", AE_IFREG, "after", NULL, 0, 0},
	    {"link-now-dir/", AE_IFDIR, NULL, NULL, 0, 0},
	    {"link-now-dir/z", AE_IFREG, "2", NULL, 0, 0},
	    {"kept-dir/", AE_IFDIR, NULL, NULL, 0, 0},
	};
	struct err e = {0};

	(void)state;
	if (UNPACK2(below, above, &e) < 0)
		fail_msg("%s", e.msg);
	assert_string_equal(content("keep"), "1");
	assert_false(there("gone") || there("tree") || there(".wh.gone") || there(".wh..wh.plnk"));
	assert_false(there("opaque/old") || there("opaque/sub") || there("opaque/both/x") || there("opaque/.wh..wh..opq"));
	assert_string_equal(content("opaque/new1"), "2");
	assert_string_equal(content("opaque/both/y"), "2");
	assert_string_equal(content("opaque/new2"), "2");
	assert_string_equal(content("was-file/in"), "2");
	assert_string_equal(content("was-dir"), "2");
	assert_string_equal(content("usr/lib/new"), "2");
	assert_string_equal(content("usr/lib/old"), "1");
	assert_string_equal(content("changed"), "after");
	assert_int_equal(mode_of("changed"), S_IFREG | 0644);
	assert_int_equal(mode_of("link-now-dir"), S_IFDIR | 0755);
	assert_string_equal(content("link-now-dir/z"), "2");
	assert_false(there("usr/z"));
	assert_string_equal(content("kept-dir/x"), "1");
}

static void test_sparse(void **state)
{
	struct layer l = {.data = malloc(ROOM)};
	struct archive *a = archive_write_new();
	struct archive_entry *entry = archive_entry_new();
	struct unpack *u = NULL;
	struct err e = {0};
	struct stat st;
	_cleanup_fd_ int fd = -1;

	(void)state;
	assert_true(l.data && a && entry);
	archive_write_set_format_pax(a);
	archive_write_open_memory(a, l.data, ROOM, &l.len);
	archive_entry_set_pathname(entry, "holes");
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_entry_set_perm(entry, 0644);
	archive_entry_set_size(entry, 1000000);
	archive_entry_sparse_add_entry(entry, 500000, 3);
	assert_int_equal(archive_write_header(a, entry), ARCHIVE_OK);
	for (size_t i = 0; i < 1000; i++) {
		static char block[1000];

		block[0] = i == 500 ? 'a' : 0;
		assert_true(archive_write_data(a, block, sizeof block) >= 0);
	}
	archive_entry_free(entry);
	archive_write_close(a);
	archive_write_free(a);
	assert_int_equal(unpack_new(&u, root, &wide, &e), 0);
	if (unpack_layer(u, read_piece, &l, &e) < 0)
		fail_msg("%s", e.msg);
	/* Holes count: the limit is of what a reader sees. */
	assert_int_equal(unpack_tally(u)->bytes, 1000000);
	l.at = 0;
	assert_int_equal(unpack_layer(u, read_piece, &l, &e), -E2BIG);
	unpack_free(u);
	free(l.data);
	fd = openat(root, "holes", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_size == 1000000 || st.st_size == 500003 || st.st_size == 0); /* cut off at the second time */
}

/* ---- hostile ---- */

/* Refused, or done inside: never outside. */
static void test_escapes(void **state)
{
	char secret[96];
	const struct {
		const char *what;
		struct item items[4];
		size_t count;
		int rc;		    /* what is expected: 0, or the first error */
		const char *inside; /* where it went instead */
	} rows[] = {
	    {"up", {{"../evil", AE_IFREG, "x", NULL, 0, 0}}, 1, -EINVAL, NULL},
	    {"up in the middle", {{"a/../../evil", AE_IFREG, "x", NULL, 0, 0}}, 1, -EINVAL, NULL},
	    {"up as a whiteout", {{"../.wh.secret", AE_IFREG, "", NULL, 0, 0}}, 1, -EINVAL, NULL},
	    {"whiteout of the directory above", {{".wh...", AE_IFREG, "", NULL, 0, 0}}, 1, 0, NULL},
	    {"whiteout of itself", {{".wh..", AE_IFREG, "", NULL, 0, 0}}, 1, 0, NULL},
	    {"whiteout of nothing", {{".wh.", AE_IFREG, "", NULL, 0, 0}}, 1, 0, NULL},
	    {"absolute", {{"/evil", AE_IFREG, "x", NULL, 0, 0}}, 1, 0, "evil"},
	    {"through an absolute link",
	     {{"d", AE_IFLNK, NULL, outside, 0, 0}, {"d/evil", AE_IFREG, "x", NULL, 0, 0}},
	     2,
	     -EEXIST,
	     NULL},
	    {"through a link up",
	     {{"d", AE_IFLNK, NULL, "../../..", 0, 0}, {"d/evil", AE_IFREG, "x", NULL, 0, 0}},
	     2,
	     0,
	     "evil"},
	    {"over a link", {{"f", AE_IFLNK, NULL, secret, 0, 0}, {"f", AE_IFREG, "evil", NULL, 0, 0}}, 2, 0, "f"},
	    {"whiteout through a link",
	     {{"d", AE_IFLNK, NULL, "..", 0, 0}, {"d/.wh.secret", AE_IFREG, "", NULL, 0, 0}},
	     2,
	     0,
	     NULL},
	    {"opaque through a link",
	     {{"d", AE_IFLNK, NULL, "..", 0, 0}, {"d/.wh..wh..opq", AE_IFREG, "", NULL, 0, 0}},
	     2,
	     0,
	     NULL},
	    {"hard link up", {{"h", 0, NULL, "../secret", 0, 0}}, 1, -EINVAL, NULL},
	    {"hard link to an absolute name", {{"h", 0, NULL, secret, 0, 0}}, 1, -ENOENT, NULL},
	    {"hard link through a link",
	     {{"d", AE_IFLNK, NULL, "..", 0, 0}, {"h", 0, NULL, "d/secret", 0, 0}},
	     2,
	     -ENOENT,
	     NULL},
	    {"write through a hard link to a link",
	     {{"s", AE_IFLNK, NULL, secret, 0, 0}, {"h", 0, NULL, "s", 0, 0}, {"h", AE_IFREG, "evil", NULL, 0, 0}},
	     3,
	     0,
	     "h"},
	    {"hard link to a directory", {{"d", AE_IFDIR, NULL, NULL, 0, 0}, {"h", 0, NULL, "d", 0, 0}}, 2, -EINVAL, NULL},
	    {"hard link to the root", {{"h", 0, NULL, "/", 0, 0}}, 1, -ENOENT, NULL},
	    {"a link in a circle",
	     {{"a", AE_IFLNK, NULL, "b", 0, 0}, {"b", AE_IFLNK, NULL, "a", 0, 0}, {"a/x", AE_IFREG, "x", NULL, 0, 0}},
	     3,
	     -ELOOP,
	     NULL},
	    {"a file on the way", {{"f", AE_IFREG, "x", NULL, 0, 0}, {"f/x", AE_IFREG, "x", NULL, 0, 0}}, 2, -ENOTDIR, NULL},
	    {"a link onto itself as a directory",
	     {{"d", AE_IFLNK, NULL, "/", 0, 0}, {"d/d/d/x", AE_IFREG, "x", NULL, 0, 0}},
	     2,
	     0,
	     "x"},
	    {"the ground pulled away",
	     {{"a/b/c", AE_IFREG, "x", NULL, 0, 0}, {"a", AE_IFLNK, NULL, "..", 0, 0}, {"a/b/evil", AE_IFREG, "x", NULL, 0, 0}},
	     3,
	     0,
	     "b/evil"},
	    {"an empty name in the middle", {{"a//.//b", AE_IFREG, "x", NULL, 0, 0}}, 1, 0, "a/b"},
	};

	(void)state;
	snprintf(secret, sizeof secret, "%s/secret", outside);
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct err e = {0};
		int rc = unpack_two(rows[i].items, rows[i].count, NULL, 0, &wide, NULL, &e);

		if (rc != rows[i].rc)
			fail_msg("%s: %d, not %d: %s", rows[i].what, rc, rows[i].rc, e.msg);
		if (rows[i].inside && !there(rows[i].inside))
			fail_msg("%s: no %s", rows[i].what, rows[i].inside);
		nothing_outside();
		/* A root of its own for the next one. */
		close(root);
		assert_int_equal(chdir(outside), 0);
		assert_int_equal(unpack_remove(AT_FDCWD, "root"), 0);
		assert_int_equal(mkdir("root", 0755), 0);
		root = open("root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(root >= 0);
		assert_int_equal(chdir("/"), 0);
	}
}

static void test_limits(void **state)
{
	static const struct item items[] = {
	    {"a", AE_IFREG, "12345", NULL, 0, 0}, {"b", AE_IFREG, "12345", NULL, 0, 0}, {"c", AE_IFDIR, NULL, NULL, 0, 0}};
	struct err e = {0};

	(void)state;
	assert_int_equal(unpack_two(items, 3, NULL, 0, &(struct unpack_limits){10, 3}, NULL, &e), 0);
	assert_int_equal(unpack_two(items, 3, NULL, 0, &(struct unpack_limits){9, 3}, NULL, &e), -E2BIG);
	assert_int_equal(unpack_two(items, 3, NULL, 0, &(struct unpack_limits){10, 2}, NULL, &e), -E2BIG);
	/* Over all layers, not of each. */
	assert_int_equal(unpack_two(items, 2, items, 2, &(struct unpack_limits){19, 10}, NULL, &e), -E2BIG);
	assert_int_equal(unpack_two(items, 2, items, 2, &(struct unpack_limits){20, 4}, NULL, &e), 0);
	assert_int_equal(unpack_two(items, 2, items, 2, &(struct unpack_limits){20, 3}, NULL, &e), -E2BIG);
}

/* A megabyte of nothing in a kilobyte: it ends at the limit, and no more than that is on the disk. */
static void test_bomb(void **state)
{
	static char zeros[(3 << 20) + 1];
	const struct item items[] = {{"bomb", AE_IFREG, zeros, NULL, 0, 0}};
	static const char *const filters[] = {"gzip", "zstd"};

	(void)state;
	memset(zeros, '0', sizeof zeros - 1);
	for (size_t i = 0; i < COUNT(filters); i++) {
		struct layer l = make_layer(items, 1, filters[i]);
		struct unpack *u = NULL;
		struct err e = {0};
		struct stat st;

		assert_true(l.len < 50000);
		assert_int_equal(unpack_new(&u, root, &wide, &e), 0);
		assert_int_equal(unpack_layer(u, read_piece, &l, &e), -E2BIG);
		assert_non_null(strstr(e.msg, "1048576 bytes"));
		unpack_free(u);
		free(l.data);
		assert_int_equal(fstatat(root, "bomb", &st, 0), 0);
		assert_true(st.st_size <= (off_t)wide.bytes);
	}
}

static void test_names(void **state)
{
	static char long_name[300], long_path[6000], deep[400];
	const struct item items[] = {{long_name, AE_IFREG, "x", NULL, 0, 0}}, path[] = {{long_path, AE_IFREG, "x", NULL, 0, 0}},
			  levels[] = {{deep, AE_IFDIR, NULL, NULL, 0, 0}};
	struct err e = {0};

	(void)state;
	memset(long_name, 'n', 256);
	assert_int_equal(UNPACK(items, &e), -ENAMETOOLONG);
	long_name[255] = 0;
	assert_int_equal(UNPACK(items, &e), 0);
	for (size_t i = 0; i < sizeof long_path - 1; i++)
		long_path[i] = i % 100 == 99 ? '/' : 'p';
	assert_int_equal(UNPACK(path, &e), -ENAMETOOLONG);
	for (size_t i = 0; i < 128; i++)
		memcpy(deep + 2 * i, "d/", 2);
	assert_int_equal(UNPACK(levels, &e), 0);
	memcpy(deep + 256, "d/", 3);
	assert_int_equal(UNPACK(levels, &e), -ENAMETOOLONG);
}

static void test_damaged(void **state)
{
	static const struct item items[] = {{"a", AE_IFREG, "some content", NULL, 0, 0}, {"b", AE_IFREG, "more", NULL, 0, 0}};
	static char garbage[4096];
	struct layer l = make_layer(items, 2, "gzip"), junk = {.data = garbage, .len = sizeof garbage},
		     none = {.data = garbage};
	struct layer big = make_layer(items, 2, NULL);
	struct unpack *u = NULL;
	struct err e = {0};

	(void)state;
	memset(garbage, 'g', sizeof garbage);
	assert_int_equal(unpack_new(&u, root, &wide, &e), 0);
	assert_int_equal(unpack_layer(u, read_piece, &junk, &e), -EINVAL);
	assert_int_equal(unpack_layer(u, read_piece, &none, &e), 0); /* a layer may be empty */
	l.len -= 20;
	assert_int_equal(unpack_layer(u, read_piece, &l, &e), -EINVAL);
	assert_int_equal(unpack_layer(u, read_badly, &big, &e), -EIO);
	assert_non_null(strstr(e.msg, "read a layer"));
	unpack_free(u);
	free(l.data);
	free(big.data);
}

/* More than kinds: set-id bits, attributes, a capability. Nothing of it is there afterwards. */
static void test_attributes(void **state)
{
	struct layer l = {.data = malloc(ROOM)};
	struct archive *a = archive_write_new();
	struct archive_entry *entry = archive_entry_new();
	struct unpack *u = NULL;
	struct err e = {0};

	(void)state;
	assert_true(l.data && a && entry);
	archive_write_set_format_pax(a);
	archive_write_open_memory(a, l.data, ROOM, &l.len);
	archive_entry_set_pathname(entry, "tool");
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_entry_set_perm(entry, 06755);
	archive_entry_set_size(entry, 0);
	archive_entry_xattr_add_entry(entry, "user.note", "x", 1);
	archive_entry_xattr_add_entry(entry, "security.capability", "\1\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
	assert_int_equal(archive_write_header(a, entry), ARCHIVE_OK);
	archive_entry_free(entry);
	archive_write_close(a);
	archive_write_free(a);
	assert_int_equal(unpack_new(&u, root, &wide, &e), 0);
	if (unpack_layer(u, read_piece, &l, &e) < 0)
		fail_msg("%s", e.msg);
	unpack_free(u);
	free(l.data);
	assert_int_equal(mode_of("tool"), S_IFREG | 0755);
	assert_int_equal(fchdir(root), 0);
	assert_int_equal(listxattr("tool", NULL, 0), 0);
	assert_int_equal(chdir("/"), 0);
}

/* Hostile all the same, but with an end that is no error. */
static void test_harmless(void **state)
{
	static const struct item below[] = {
	    {"a/b/c", AE_IFREG, "1", NULL, 0, 0}, {"d", AE_IFREG, "1", NULL, 0, 0}, {"e/f", AE_IFLNK, NULL, "/d", 0, 0}};
	static const struct item above[] = {
	    /* Everything away, what is there only after it stays; twice the same name: the last one counts. */
	    {".wh..wh..opq", AE_IFREG, "", NULL, 0, 0},	  {".wh.a", AE_IFREG, "", NULL, 0, 0},
	    {"twice", AE_IFREG, "first", NULL, 0755, 0},  {"twice", AE_IFREG, "second", NULL, 0, 0},
	    {"turn", AE_IFDIR, NULL, NULL, 0, 0},	  {"turn/in", AE_IFREG, "x", NULL, 0, 0},
	    {"turn", AE_IFREG, "a file now", NULL, 0, 0}, {"turn", AE_IFDIR, NULL, NULL, 0, 0},
	    {"self", AE_IFLNK, NULL, "self", 0, 0},	  {"odd\xff\xfe\n name", AE_IFREG, "bytes", NULL, 0, 0},
	};
	struct err e = {0};

	(void)state;
	if (UNPACK2(below, above, &e) < 0)
		fail_msg("%s", e.msg);
	assert_false(there("a") || there("d") || there("e") || there("turn/in"));
	assert_string_equal(content("twice"), "second");
	assert_int_equal(mode_of("twice"), S_IFREG | 0644);
	assert_int_equal(mode_of("turn"), S_IFDIR | 0755);
	assert_string_equal(content("odd\xff\xfe\n name"), "bytes");
	nothing_outside();
}

/* ---- archives of images, directories ---- */

static bool only_small(const char *path, int64_t size)
{
	return size <= 4 && strcmp(path, "unwanted") != 0;
}

static void test_archive(void **state)
{
	static const struct item items[] = {
	    {"manifest.json", AE_IFREG, "[]", NULL, 0, 0},
	    {"unwanted", AE_IFREG, "[]", NULL, 0, 0},
	    {"a/layer.tar", AE_IFREG, "a layer", NULL, 0, 0},
	    {"b/layer.tar", AE_IFLNK, NULL, "../a/layer.tar", 0, 0},
	};
	static const char *const filters[] = {NULL, "gzip", "zstd", "xz", "bzip2"};

	(void)state;
	for (size_t i = 0; i < COUNT(filters); i++)
		for (int all = 0; all < 2; all++) {
			struct layer l = make_layer(items, COUNT(items), filters[i]);
			struct unpack *u = NULL;
			struct err e = {0};

			assert_int_equal(unpack_new(&u, root, &wide, &e), 0);
			if (unpack_archive(u, read_piece, &l, all ? NULL : only_small, &e) < 0)
				fail_msg("%zu: %s", i, e.msg);
			unpack_free(u);
			free(l.data);
			assert_string_equal(content("manifest.json"), "[]");
			assert_int_equal(there("unwanted") && there("a/layer.tar"), all);
			assert_true(there("b/layer.tar"));
			assert_int_equal(unpack_remove(root, "a"), 0);
			assert_int_equal(unpack_remove(root, "unwanted"), 0);
		}
}

/* A layer may only be compressed as layers are. */
static void test_archive_only(void **state)
{
	static const struct item items[] = {{"x", AE_IFREG, "[]", NULL, 0, 0}};
	struct layer l = make_layer(items, COUNT(items), "xz");
	struct unpack *u = NULL;
	struct err e = {0};

	(void)state;
	assert_int_equal(unpack_new(&u, root, &wide, &e), 0);
	assert_int_equal(unpack_layer(u, read_piece, &l, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "a layer is damaged, or no tar archive"));
	l.at = 0;
	l.len -= 40;
	assert_int_equal(unpack_archive(u, read_piece, &l, NULL, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "the archive is damaged, or no tar archive"));
	unpack_free(u);
	free(l.data);
}

static int put(struct unpack *u, const char *path, mode_t kind, const char *text, struct err *e)
{
	struct layer l = {.data = (char *)text, .len = text ? strlen(text) : 0};
	const struct unpack_entry entry = {.path = path,
					   .kind = kind,
					   .executable = true,
					   .mtime = {.tv_sec = 1111111111},
					   .target = text,
					   .read = read_piece,
					   .ctx = &l};

	return unpack_put(u, &entry, e);
}

static void test_put(void **state)
{
	static char zeros[100000];
	struct layer hole = {.data = zeros, .len = sizeof zeros};
	const struct unpack_entry sparse = {.path = "hole", .kind = S_IFREG, .read = read_piece, .ctx = &hole};
	const struct unpack_limits limits = {.bytes = 100020, .entries = 10};
	struct unpack *u = NULL;
	struct err e = {0};
	struct stat st;

	(void)state;
	assert_int_equal(unpack_new(&u, root, &limits, &e), 0);
	assert_int_equal(put(u, "d", S_IFDIR, NULL, &e), 0);
	assert_int_equal(put(u, "d/tool", S_IFREG, "run me", &e), 0);
	assert_int_equal(put(u, "d/.wh.tool", S_IFREG, "a name", &e), 0); /* no whiteout here */
	assert_int_equal(put(u, "away", S_IFLNK, outside, &e), 0);
	assert_int_equal(put(u, "pipe", S_IFIFO, NULL, &e), 0);
	assert_int_equal(put(u, "../evil", S_IFREG, "x", &e), -EINVAL);
	assert_int_equal(unpack_put(u, &sparse, &e), 0);
	assert_int_equal(put(u, "more", S_IFREG, "123456789", &e), -E2BIG);
	assert_int_equal(put(u, "d/tool", S_IFREG, "new", &e), 0);
	assert_int_equal(put(u, "away/evil", S_IFREG, "x", &e), -EEXIST); /* it leads nowhere inside */
	assert_int_equal(put(u, "eleven", S_IFREG, "", &e), -E2BIG);
	assert_non_null(strstr(e.msg, "the directory has more than 10 entries"));
	unpack_finish(u);
	assert_int_equal(unpack_tally(u)->left_out, 1);
	unpack_free(u);
	assert_string_equal(content("d/tool"), "new");
	assert_string_equal(content("d/.wh.tool"), "a name");
	assert_int_equal(fstatat(root, "d", &st, 0), 0);
	assert_int_equal(st.st_mtime, 1111111111);
	assert_int_equal(fstatat(root, "hole", &st, 0), 0);
	assert_int_equal(st.st_size, sizeof zeros);
	assert_true(st.st_blocks * 512 < (blkcnt_t)sizeof zeros);
	nothing_outside();
}

/* ---- removing ---- */

/* Somebody else removes the same. */
static void test_remove_together(void **state)
{
	char path[64];
	pid_t children[2];

	(void)state;
	for (int i = 0; i < 400; i++) {
		snprintf(path, sizeof path, "busy%d", i % 20);
		(void)mkdirat(root, path, 0755);
		snprintf(path, sizeof path, "busy%d/%d", i % 20, i);
		assert_int_equal(mkdirat(root, path, 0755), 0);
	}
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] == 0) {
			int rc = 0;

			for (int k = 0; rc == 0 && k < 20; k++) {
				snprintf(path, sizeof path, "busy%d", k);
				rc = unpack_remove(root, path);
			}
			_exit(rc == 0 ? 0 : 1);
		}
	}
	for (int i = 0; i < 2; i++) {
		int status = -1;

		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
	}
	assert_false(there("busy0") || there("busy19"));
}

static void test_remove(void **state)
{
	_cleanup_fd_ int dir = -1;
	int fd;

	(void)state;
	assert_int_equal(unpack_remove(root, "never-was"), 0);
	assert_int_equal(symlinkat(outside, root, "link"), 0);
	assert_int_equal(unpack_remove(root, "link"), 0);
	nothing_outside();
	/* Deeper than any path can say, with names in the way of what removing does, and links out. */
	assert_int_equal(mkdirat(root, "deep", 0755), 0);
	dir = openat(root, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(dir, "..moved.0", 0755), 0);
	assert_int_equal(mkdirat(dir, "..moved.0/x", 0755), 0);
	assert_int_equal(close(openat(dir, "..moved.1", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	for (int i = 0; i < 3000; i++) {
		assert_int_equal(mkdirat(dir, "d", 0755), 0);
		assert_int_equal(symlinkat("..", dir, "up"), 0);
		fd = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(fd >= 0);
		close(dir);
		dir = fd;
	}
	assert_int_equal(unpack_remove(root, "deep"), 0);
	assert_false(there("deep"));
	nothing_outside();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
	    TEST(test_kinds),	TEST(test_layers),	 TEST(test_sparse),  TEST(test_escapes),	 TEST(test_limits),
	    TEST(test_bomb),	TEST(test_names),	 TEST(test_damaged), TEST(test_attributes),	 TEST(test_harmless),
	    TEST(test_archive), TEST(test_archive_only), TEST(test_put),     TEST(test_remove_together), TEST(test_remove),
	};

	umask(022);
	(void)setlocale(LC_CTYPE, "C.UTF-8");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
