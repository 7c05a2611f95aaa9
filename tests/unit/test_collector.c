/* SPDX-License-Identifier: Apache-2.0 */
/* Reading working directories: what is given, what is passed over and why, and that nothing in one can stop the reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/payload.h"
#include "api/runclient.h"
#include "collector/collector.h"
#include "collector/confine.h"
#include "collector/walk.h"
#include "core/clock.h"
#include "core/limits.h"

#define MIB (1 << 20)

/* ---- a directory to fill ---- */

static char base[64];
static int dir; /* O_PATH, as the collector gets it */

static void remove_all(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *de;
	DIR *d;

	if (fd < 0) {
		unlinkat(parent, name, 0);
		return;
	}
	d = fdopendir(fd);
	while ((de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			remove_all(fd, de->d_name);
	closedir(d);
	unlinkat(parent, name, AT_REMOVEDIR);
}

static int setup(void **state)
{
	(void)state;
	/* In memory where there is such a place: holes are free there. */
	snprintf(base, sizeof base, "%s/weir-test-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(base))
		return -1;
	dir = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return dir < 0;
}

static int teardown(void **state)
{
	(void)state;
	close(dir);
	remove_all(AT_FDCWD, base);
	return 0;
}

static void put(const char *path, const void *data, size_t len)
{
	int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
}

static void put_text(const char *path, const char *text)
{
	put(path, text, strlen(text));
}

/* Full of holes. */
static void put_hole(const char *path, off_t size)
{
	int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

static void make_dir(const char *path)
{
	assert_int_equal(mkdirat(dir, path, 0755), 0);
}

/* ---- one walk, read back ---- */

static struct collect job;
static struct collected got;
static struct run_files files;
static int manifest = -1;

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void forget(void)
{
	free(files.data);
	files = (struct run_files){0};
}

static void read_back(int fd)
{
	const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, got.len);
	assert_int_equal(fcntl(fd, F_GET_SEALS), seals);
	files = (struct run_files){.data = malloc(got.len + 1), .len = got.len, .skipped_unlisted = got.skipped_unlisted};
	assert_int_equal(pread(fd, files.data, got.len, 0), got.len);
	close(fd);
	assert_true(run_files_ok(files.data, files.len));
}

static int walk_with(uint64_t deadline_ns)
{
	int data = -1, next = -1, before, r;

	forget();
	before = open_fds();
	r = walk_until(deadline_ns, dir, &job, job.have_manifest ? manifest : -1, &got, &data, &next);
	assert_int_equal(open_fds(), before + (data >= 0) + (next >= 0));
	if (manifest >= 0)
		close(manifest);
	manifest = next;
	assert_int_equal(next >= 0, r == 0 && job.want_manifest);
	if (r == 0)
		read_back(data);
	return r;
}

static void walk(void)
{
	/* Long: a busy machine must not change what these tests see. */
	assert_int_equal(walk_with(clock_now_ns() + 60 * SECOND_NS), 0);
}

static void fresh_job(void)
{
	memset(&job, 0, sizeof job);
	if (manifest >= 0)
		close(manifest);
	manifest = -1;
}

static void job_knows(const char *path, const void *content, size_t len)
{
	payload_digest(&job.digests[job.digest_count++], path, strlen(path), content, len);
}

/* The kind of what is listed under this path, -1 for nothing. `ret_content` may be NULL. */
static int kind_of(const char *path, uint64_t *ret_size, const char **ret_content)
{
	struct collected_entry e;
	const char *p, *content;

	for (size_t at = 0; run_files_next(&files, &at, &e, &p, &content);)
		if (e.path_len == strlen(path) && !memcmp(p, path, e.path_len)) {
			if (ret_size)
				*ret_size = e.size;
			if (ret_content)
				*ret_content = content;
			return (int)e.kind;
		}
	return -1;
}

static void assert_file(const char *path, const void *content, size_t len)
{
	const char *found = NULL;
	uint64_t size = 0;

	assert_int_equal(kind_of(path, &size, &found), COLLECTED_FILE);
	assert_int_equal(size, len);
	assert_memory_equal(found, content, len);
}

static void assert_kind(const char *path, enum collected_kind kind)
{
	if (kind_of(path, NULL, NULL) != (int)kind)
		print_error("%s\n", path);
	assert_int_equal(kind_of(path, NULL, NULL), (int)kind);
}

/* ---- what is given ---- */

/* Byte for byte; in the order of paths as bytes, whatever order the directory has. */
static void files_come_whole_and_in_order(void **state)
{
	static const char *const order[] = {".hidden", "a-b", "a.txt", "a/.x", "a/b", "a0", "all", "empty", "z/y/x"};
	unsigned char all[256];
	struct collected_entry e;
	const char *path, *content;
	size_t i = 0;

	(void)state;
	fresh_job();
	for (size_t b = 0; b < sizeof all; b++)
		all[b] = (unsigned char)b;
	make_dir("z");
	make_dir("z/y");
	make_dir("a");
	make_dir("nothing-in-it");
	for (size_t k = sizeof order / sizeof *order; k-- > 0;)
		put_text(order[k], order[k]);
	put("all", all, sizeof all);
	put("empty", "", 0);
	walk();
	for (size_t at = 0; run_files_next(&files, &at, &e, &path, &content); i++) {
		assert_true(i < sizeof order / sizeof *order);
		assert_int_equal(e.path_len, strlen(order[i]));
		assert_memory_equal(path, order[i], e.path_len);
	}
	assert_int_equal(i, sizeof order / sizeof *order);
	assert_int_equal(got.files, i);
	assert_int_equal(got.skipped, 0);
	assert_file("all", all, sizeof all);
	assert_file("empty", "", 0);
	assert_file("z/y/x", "z/y/x", 5);
}

/* Content decides and nothing else: neither size nor time, which are the program's to set. */
static void only_what_is_new_or_changed(void **state)
{
	const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

	(void)state;
	fresh_job();
	job_knows("in.txt", "same", 4);
	job_knows("changed.txt", "before", 6);
	job_knows("longer.txt", "x", 1);
	job_knows("deleted.txt", "gone", 4);
	job_knows("empty", "", 0);
	put_text("in.txt", "same");
	put_text("changed.txt", "after!");
	put_text("longer.txt", "xy");
	put_text("copy.txt", "same");
	put("empty", "", 0);
	put("empty2", "", 0);
	assert_int_equal(utimensat(dir, "changed.txt", old, 0), 0);
	walk();
	assert_int_equal(got.files, 4);
	assert_file("changed.txt", "after!", 6);
	assert_file("longer.txt", "xy", 2);
	assert_file("copy.txt", "same", 4);
	assert_file("empty2", "", 0);
}

/* An input that is something else now is that, and no unchanged file. */
static void replaced_inputs(void **state)
{
	(void)state;
	fresh_job();
	job_knows("a", "content", 7);
	job_knows("b", "content", 7);
	job_knows("c", "content", 7);
	make_dir("a");
	put_text("a/inside", "x");
	assert_int_equal(symlinkat("elsewhere", dir, "b"), 0);
	assert_int_equal(mkfifoat(dir, "c", 0644), 0);
	walk();
	assert_file("a/inside", "x", 1);
	assert_kind("b", COLLECTED_SYMLINK);
	assert_kind("c", COLLECTED_FIFO);
	assert_int_equal(got.files, 1);
	assert_int_equal(got.skipped, 2);
}

static void manifests(void **state)
{
	struct stat st;

	(void)state;
	fresh_job();
	job.want_manifest = 1;
	put_text("kept", "1");
	put_text("changing", "1");
	put_text("going", "1");
	put_hole("large", LIMIT_FILE_OUT_BYTES + 1);
	walk();
	assert_int_equal(got.files, 3);
	assert_int_equal(fstat(manifest, &st), 0);
	assert_int_equal(st.st_size, 4 * sizeof(struct file_digest)); /* that of the large one too */
	assert_true(fcntl(manifest, F_GET_SEALS) & F_SEAL_WRITE);
	assert_kind("large", COLLECTED_TOO_LARGE);

	job.have_manifest = 1;
	walk(); /* nothing has happened */
	assert_int_equal(got.files, 0);
	assert_int_equal(got.skipped, 0);

	put_text("changing", "2");
	put_text("new", "1");
	assert_int_equal(unlinkat(dir, "going", 0), 0);
	walk();
	assert_int_equal(got.files, 2);
	assert_file("changing", "2", 1);
	assert_file("new", "1", 1);

	put_text("going", "1"); /* as it once was: but it was not there a cell ago */
	put_text("changing", "1");
	job_knows("put", "by the request", 14);
	put_text("put", "by the request");
	walk();
	assert_int_equal(got.files, 2);
	assert_file("going", "1", 1);
	assert_file("changing", "1", 1);
	job.digest_count = 0;
	walk();
	assert_int_equal(got.files, 0);
}

/* What did not fit into an answer has been there all the same: the next cell did not make it. */
static void manifests_hold_what_had_no_room(void **state)
{
	char name[32];

	(void)state;
	fresh_job();
	job.want_manifest = 1;
	for (int i = 0; i < LIMIT_FILES_OUT + 10; i++) {
		snprintf(name, sizeof name, "%04d", i);
		put_text(name, name);
	}
	walk();
	assert_int_equal(got.files, LIMIT_FILES_OUT);
	assert_int_equal(got.skipped, 10);
	job.have_manifest = 1;
	put_text("0260", "changed");
	walk();
	assert_int_equal(got.files, 1);
	assert_int_equal(got.skipped, 0);
	assert_file("0260", "changed", 7);
}

/* A manifest comes back from a client: it is looked at before it is believed. */
static void bad_manifests(void **state)
{
	int p[2];

	(void)state;
	fresh_job();
	job.have_manifest = 1;
	manifest = memfd_create("odd", MFD_CLOEXEC);
	assert_int_equal(write(manifest, "short", 5), 5);
	assert_int_equal(walk_with(clock_now_ns() + SECOND_NS), -EINVAL);
	manifest = memfd_create("huge", MFD_CLOEXEC);
	assert_int_equal(ftruncate(manifest, (off_t)sizeof(struct file_digest) << 30), 0);
	assert_int_equal(walk_with(clock_now_ns() + SECOND_NS), -EINVAL);
	assert_int_equal(pipe(p), 0); /* nobody will ever write to it */
	manifest = p[0];
	assert_int_equal(walk_with(clock_now_ns() + SECOND_NS), -EINVAL);
	close(p[1]);
	manifest = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(walk_with(clock_now_ns() + SECOND_NS), -EINVAL);
	fresh_job();
}

/* ---- what is passed over ---- */

static void kinds(void **state)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	fresh_job();
	make_dir("real");
	put_text("real/file", "1");
	assert_int_equal(symlinkat("/etc/passwd", dir, "passwd"), 0);
	assert_int_equal(symlinkat("real/file", dir, "to-file"), 0);
	assert_int_equal(symlinkat("real", dir, "to-dir"), 0);
	assert_int_equal(symlinkat("/", dir, "root"), 0);
	assert_int_equal(symlinkat("nowhere", dir, "dangling"), 0);
	assert_int_equal(symlinkat("loop", dir, "loop"), 0);
	assert_int_equal(mkfifoat(dir, "report.csv", 0644), 0);
	snprintf(sa.sun_path, sizeof sa.sun_path, "%s/listening", base);
	assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof sa), 0);
	assert_int_equal(linkat(dir, "real/file", dir, "second-name", 0), 0);
	walk();
	for (const char *const *p = (const char *const[]){"passwd", "to-file", "to-dir", "root", "dangling", "loop", NULL}; *p;
	     p++)
		assert_kind(*p, COLLECTED_SYMLINK);
	assert_kind("report.csv", COLLECTED_FIFO);
	assert_kind("listening", COLLECTED_SOCKET);
	assert_file("real/file", "1", 1);
	assert_file("second-name", "1", 1);
	assert_int_equal(got.files, 2);
	assert_int_equal(got.skipped, 8);
	close(s);
}

static void devices(void **state)
{
	(void)state;
	if (mknodat(dir, "null", S_IFCHR | 0666, makedev(1, 3)) < 0 ||
	    mknodat(dir, "disk", S_IFBLK | 0666, makedev(7, 0)) < 0) {
		print_message("skip: making a device takes root\n");
		skip();
	}
	fresh_job();
	walk();
	assert_kind("null", COLLECTED_DEVICE);
	assert_kind("disk", COLLECTED_DEVICE);
}

/* A name that is no text is passed over under that reason, whatever it names, and nothing else is lost with it. */
static void names(void **state)
{
	(void)state;
	fresh_job();
	put_text("\xc3.txt", "1");
	make_dir("\xff");
	put_text("\xff/inside", "1");
	assert_int_equal(symlinkat("x", dir, "\xed\xa0\x80"), 0);
	put_text("na\xc3\xafve \xf0\x9f\x8e\x89\n\x1b.txt", "1");
	put_text("back\\slash", "1");
	put_text("ok", "1");
	walk();
	assert_kind("\xc3.txt", COLLECTED_NAME);
	assert_kind("\xff", COLLECTED_NAME);
	assert_kind("\xed\xa0\x80", COLLECTED_NAME);
	assert_kind("na\xc3\xafve \xf0\x9f\x8e\x89\n\x1b.txt", COLLECTED_FILE);
	assert_kind("back\\slash", COLLECTED_FILE);
	assert_kind("ok", COLLECTED_FILE);
	assert_int_equal(got.files, 3);
	assert_int_equal(got.skipped, 3);
}

/* Without the capability that the collector has, it is told; as root there is nothing to see. */
static void no_permission(void **state)
{
	bool root = geteuid() == 0;

	(void)state;
	fresh_job();
	put_text("secret", "1");
	make_dir("closed");
	put_text("closed/inside", "1");
	make_dir("passage");
	put_text("passage/inside", "1");
	assert_int_equal(fchmodat(dir, "secret", 0, 0), 0);
	assert_int_equal(fchmodat(dir, "closed", 0, 0), 0);
	assert_int_equal(fchmodat(dir, "passage", 0111, 0), 0);
	put_text("ok", "1");
	walk();
	assert_kind("secret", root ? COLLECTED_FILE : COLLECTED_UNREADABLE);
	assert_kind(root ? "closed/inside" : "closed", root ? COLLECTED_FILE : COLLECTED_UNREADABLE);
	assert_kind(root ? "passage/inside" : "passage", root ? COLLECTED_FILE : COLLECTED_UNREADABLE);
	assert_kind("ok", COLLECTED_FILE);
	assert_int_equal(fchmodat(dir, "closed", 0755, 0), 0);
	assert_int_equal(fchmodat(dir, "passage", 0755, 0), 0);
}

/* A frozen process can't give its lease up: whoever waited for that would wait for ever. */
static void leases(void **state)
{
	int fd;

	(void)state;
	fresh_job();
	put_text("leased", "1");
	put_text("ok", "1");
	signal(SIGIO, SIG_IGN);
	fd = openat(dir, "leased", O_RDWR | O_CLOEXEC);
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0) {
		print_message("skip: no leases on this file system: %s\n", strerror(errno));
		skip();
	}
	walk();
	assert_kind("leased", COLLECTED_UNREADABLE);
	assert_kind("ok", COLLECTED_FILE);
	close(fd);
	signal(SIGIO, SIG_DFL);
}

/* ---- limits, at their value and one over ---- */

static void size_of_one(void **state)
{
	uint64_t size = 0;

	(void)state;
	fresh_job();
	put_hole("at", LIMIT_FILE_OUT_BYTES);
	put_hole("over", LIMIT_FILE_OUT_BYTES + 1);
	if (strstr(base, "/shm"))
		put_hole("pib", (off_t)1 << 50);
	walk();
	assert_kind("at", COLLECTED_FILE);
	assert_int_equal(kind_of("over", &size, NULL), COLLECTED_TOO_LARGE);
	assert_int_equal(size, LIMIT_FILE_OUT_BYTES + 1);
	if (strstr(base, "/shm")) {
		assert_int_equal(kind_of("pib", &size, NULL), COLLECTED_TOO_LARGE);
		assert_int_equal(size, (uint64_t)1 << 50);
	}
}

/* An input that no answer has room for is not in the answer while it is as it came; its size alone says nothing. */
static void large_inputs(void **state)
{
	const size_t len = LIMIT_FILE_OUT_BYTES + 1;
	char *content = calloc(1, len), name[32];

	(void)state;
	assert_non_null(content);
	fresh_job();
	job_knows("in", content, len);
	put("in", content, len);
	walk();
	assert_int_equal(got.files, 0);
	assert_int_equal(got.skipped, 0);

	for (int i = 0; i < LIMIT_FILES_SKIPPED; i++) { /* beyond what is listed it is not counted either */
		snprintf(name, sizeof name, "00%04d", i);
		assert_int_equal(symlinkat("x", dir, name), 0);
	}
	walk();
	assert_int_equal(got.skipped, LIMIT_FILES_SKIPPED);
	assert_int_equal(got.skipped_unlisted, 0);
	for (int i = 0; i < LIMIT_FILES_SKIPPED; i++) {
		snprintf(name, sizeof name, "00%04d", i);
		assert_int_equal(unlinkat(dir, name, 0), 0);
	}

	put("moved", content, len);
	content[len - 1] = 1;
	put("in", content, len);
	put_text("link.txt", "1");
	assert_int_equal(symlinkat("x", dir, "link"), 0);
	walk();
	assert_int_equal(got.skipped, 3);
	assert_kind("in", COLLECTED_TOO_LARGE);
	assert_kind("moved", COLLECTED_TOO_LARGE);
	assert_kind("link", COLLECTED_SYMLINK);
	assert_file("link.txt", "1", 1);
	free(content);
}

/* Told once for each change. */
static void large_files_of_cells(void **state)
{
	const size_t len = LIMIT_FILE_OUT_BYTES + 1;
	char *content = calloc(1, len);

	(void)state;
	assert_non_null(content);
	fresh_job();
	job.want_manifest = 1;
	for (int change = 0; change < 2; change++) {
		content[0] = (char)change;
		put("large", content, len);
		walk();
		job.have_manifest = 1;
		assert_int_equal(got.skipped, 1);
		assert_kind("large", COLLECTED_TOO_LARGE);
		for (int again = 0; again < 2; again++) {
			walk();
			assert_int_equal(got.skipped, 0);
		}
	}
	free(content);
}

/* Large files are read with what the others leave, those that may be unchanged first, and no more than 64 MiB of all. */
static void large_files_come_last(void **state)
{
	char name[32];

	(void)state;
	fresh_job();
	job.want_manifest = 1;
	put_hole("a", LIMIT_TMPFS_BYTES - 4 * MIB);
	put_hole("b", LIMIT_FILE_OUT_BYTES);
	walk();
	assert_kind("a", COLLECTED_TOO_LARGE);
	assert_kind("b", COLLECTED_FILE);
	job.have_manifest = 1;
	walk();
	assert_int_equal(got.skipped, 1);
	assert_kind("a", COLLECTED_TOO_LARGE); /* there was no budget for it */

	put_hole("a", 9 * MIB);
	put_hole("z", 10 * MIB);
	put_hole("b", 0);
	walk();
	put_hole("a", LIMIT_TMPFS_BYTES - 4 * MIB);
	walk();
	assert_int_equal(got.skipped, 1);
	assert_kind("a", COLLECTED_TOO_LARGE);

	assert_int_equal(unlinkat(dir, "a", 0), 0);
	assert_int_equal(unlinkat(dir, "z", 0), 0);
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof name, "%04d", i);
		put_hole(name, 9 * MIB);
	}
	walk();
	assert_int_equal(got.skipped, 20);
	walk();
	assert_int_equal(got.skipped, 20 - LIMIT_TMPFS_BYTES / (9 * MIB));
	assert_kind("0007", COLLECTED_TOO_LARGE);
}

static bool was_read(const char *path)
{
	struct stat st;

	assert_int_equal(fstatat(dir, path, &st, 0), 0);
	return st.st_atim.tv_sec != 1;
}

/* A large file is not looked into when no known one has its size. */
static void large_files_of_no_known_size(void **state)
{
	const struct timespec times[] = {{.tv_sec = 1}, {.tv_sec = 1}};
	const char *const names[] = {"control", "other"};

	(void)state;
	fresh_job();
	job_knows("in", "", 0);
	job.digests[0].size = 9 * MIB;
	put_hole("control", 9 * MIB);
	put_hole("other", 9 * MIB + 1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(utimensat(dir, names[i], times, 0), 0);
	walk();
	assert_int_equal(got.skipped, 2);
	if (!was_read("control")) {
		print_message("skip: no times of access here\n");
		skip();
	}
	assert_false(was_read("other"));
}

/* In the order of paths; what still fits behind one that does not is given. */
static void size_of_all(void **state)
{
	(void)state;
	fresh_job();
	put_hole("a", LIMIT_FILES_OUT_BYTES / 2);
	put_hole("b", LIMIT_FILES_OUT_BYTES / 2);
	walk();
	assert_int_equal(got.files, 2);
	put_hole("b", LIMIT_FILES_OUT_BYTES / 2 - 1);
	put_hole("c", 2);
	put_hole("d", 1);
	put_hole("e", 1);
	put_hole("f", 0);
	walk();
	assert_kind("c", COLLECTED_TOO_LARGE);
	assert_kind("d", COLLECTED_FILE);
	assert_kind("e", COLLECTED_TOO_LARGE);
	assert_kind("f", COLLECTED_FILE);
}

static void number_of_files(void **state)
{
	char name[32];

	(void)state;
	fresh_job();
	for (int i = 0; i < LIMIT_FILES_OUT; i++) {
		snprintf(name, sizeof name, "%04d", i);
		put_text(name, name);
	}
	/* Unchanged files are no part of an answer. */
	job_knows("0000", "0000", 4);
	put_text("9999", "the last");
	walk();
	assert_int_equal(got.files, LIMIT_FILES_OUT);
	assert_int_equal(got.skipped, 0);
	fresh_job();
	walk();
	assert_int_equal(got.files, LIMIT_FILES_OUT);
	assert_int_equal(got.skipped, 1);
	assert_kind("9999", COLLECTED_TOO_MANY);
	/* A known file behind the last that fits is not missing. */
	job_knows("9999", "the last", 8);
	walk();
	assert_int_equal(got.skipped, 0);
}

/* As many names as a working directory has room for: an answer of bounded size, the same each time. */
static void full_directory(void **state)
{
	char name[32];

	(void)state;
	fresh_job();
	make_dir("d");
	for (int i = 0; i < LIMIT_TMPFS_INODES; i++) {
		snprintf(name, sizeof name, "%s%05d", i & 1 ? "d/" : "", i);
		if (i < 2)
			put_text(name, "x");
		else /* as good, and faster */
			assert_int_equal(linkat(dir, i & 1 ? "d/00001" : "00000", dir, name, 0), 0);
	}
	walk();
	assert_int_equal(got.files, LIMIT_FILES_OUT);
	assert_int_equal(got.skipped, LIMIT_FILES_SKIPPED);
	assert_int_equal(got.skipped_unlisted, LIMIT_TMPFS_INODES - LIMIT_FILES_OUT - LIMIT_FILES_SKIPPED);
	assert_kind("00000", COLLECTED_FILE);
	assert_kind("00510", COLLECTED_FILE);
	assert_kind("00512", COLLECTED_TOO_MANY);
	assert_kind("01022", COLLECTED_TOO_MANY);
	assert_int_equal(kind_of("01024", NULL, NULL), -1);
}

static void depth(void **state)
{
	char path[1024] = "";
	size_t len = 0;

	(void)state;
	fresh_job();
	for (int i = 1; i < LIMIT_FILES_OUT_DEPTH; i++) {
		len += (size_t)snprintf(path + len, sizeof path - len, "%sd", i > 1 ? "/" : "");
		make_dir(path);
	}
	snprintf(path + len, sizeof path - len, "/file");
	put_text(path, "at the limit");
	snprintf(path + len, sizeof path - len, "/empty");
	make_dir(path);
	snprintf(path + len, sizeof path - len, "/full");
	make_dir(path);
	snprintf(path + len, sizeof path - len, "/full/file");
	put_text(path, "one over");
	walk();
	snprintf(path + len, sizeof path - len, "/file");
	assert_kind(path, COLLECTED_FILE);
	snprintf(path + len, sizeof path - len, "/full");
	assert_kind(path, COLLECTED_TOO_DEEP);
	assert_int_equal(got.files, 1);
	assert_int_equal(got.skipped, 1);
}

/* Deeper than any path can say, with the longest names there are. */
static void beyond_path_max(void **state)
{
	char name[256];
	struct collected_entry e;
	const char *path, *content;
	int at = dup(dir);
	size_t i = 0;

	(void)state;
	fresh_job();
	memset(name, 'n', 255);
	name[255] = 0;
	for (int k = 0; k < 60; k++) {
		int next;

		assert_int_equal(mkdirat(at, name, 0755), 0);
		next = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
	}
	close(at);
	put_text("zz", "1");
	walk();
	assert_int_equal(got.files, 1);
	assert_int_equal(got.skipped, 1);
	run_files_next(&files, &i, &e, &path, &content);
	run_files_next(&files, &i, &e, &path, &content);
	assert_int_equal(e.kind, COLLECTED_TOO_DEEP);
	assert_int_equal(e.path_len, LIMIT_FILES_OUT_DEPTH * 256 - 1);
}

/* Out of time: what is left is told by name, and nothing of it counts as known. */
static void out_of_time(void **state)
{
	(void)state;
	fresh_job();
	job.want_manifest = 1;
	put_text("a", "1");
	make_dir("d");
	put_text("d/inside", "1");
	put_text("\xff", "1");
	assert_int_equal(walk_with(1), 0);
	assert_int_equal(got.files, 0);
	assert_int_equal(got.skipped, 3);
	assert_kind("a", COLLECTED_TOO_MANY);
	assert_kind("d", COLLECTED_TOO_MANY);
	assert_kind("\xff", COLLECTED_NAME);
	job.have_manifest = 1;
	walk();
	assert_int_equal(got.files, 2);
}

/* Files with holes look like more than the disk holds: the reading of them has an end. */
static void holes_are_not_read_for_ever(void **state)
{
	char name[32];

	(void)state;
	fresh_job();
	job.want_manifest = 1; /* each would have to be read */
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "%04d", i);
		put_hole(name, LIMIT_FILE_OUT_BYTES);
	}
	put_text("9999", "small");
	walk();
	assert_int_equal(got.files, LIMIT_FILES_OUT_BYTES / LIMIT_FILE_OUT_BYTES);
	assert_kind("0002", COLLECTED_TOO_LARGE); /* read for the manifest, and no room */
	assert_kind("0008", COLLECTED_TOO_MANY);  /* 64 MiB have been read */
}

/* ---- somebody goes on changing it: can't be, but must do no harm ---- */

/* A file of changing size, and two names each that are by turns what they seem and a link to the host's. */
static void __attribute__((noreturn)) keep_changing(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0;; i++) {
		int fd = openat(dir, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		if (fd >= 0) {
			(void)!ftruncate(fd, (off_t)(i % 7) * 100000);
			(void)!pwrite(fd, "data", 4, (off_t)(i % 5) * 90000);
			close(fd);
		}
		if (i % 3 == 0)
			unlinkat(dir, "f", 0);
		for (int k = 0; k < 20; k++) {
			renameat2(dir, "file", dir, "to-file", RENAME_EXCHANGE);
			renameat2(dir, "d", dir, "to-d", RENAME_EXCHANGE);
			renameat2(dir, "small", dir, "fifo", RENAME_EXCHANGE);
		}
	}
}

/* Nobody can, when a directory is read. Were it otherwise: nothing of the host's, no waiting, and never a length that lies. */
static void changes_under_the_walk(void **state)
{
	struct collected_entry e;
	const char *path, *content;
	pid_t pid;

	(void)state;
	fresh_job();
	make_dir("d");
	put_text("d/mine", "1");
	put_text("file", "1");
	put_text("small", "1");
	assert_int_equal(symlinkat("/etc/passwd", dir, "to-file"), 0);
	assert_int_equal(symlinkat("/etc", dir, "to-d"), 0);
	assert_int_equal(mkfifoat(dir, "fifo", 0644), 0);
	pid = fork();
	if (pid == 0)
		keep_changing();
	for (int i = 0; i < 1000; i++) {
		walk();
		for (size_t at = 0; run_files_next(&files, &at, &e, &path, &content);)
			if (e.kind == COLLECTED_FILE && !(e.path_len == 1 && path[0] == 'f'))
				assert_true(e.size == 1 && content[0] == '1');
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- the process ---- */

static pid_t start(int *ret_client)
{
	int sv[2];
	pid_t pid;

	assert_int_equal(ipc_pair(sv, 1 << 20), 0);
	pid = fork();
	if (pid == 0) {
		const struct collector_config config = {.client_fd = sv[1], .empty_dir = -1};

		(void)!freopen("/dev/null", "w", stderr);
		close(sv[0]);
		_exit(collector_main(&config));
	}
	close(sv[1]);
	*ret_client = sv[0];
	return pid;
}

static int status_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void ask(int client, const int *fds, size_t count)
{
	assert_int_equal(ipc_send(client, &job, sizeof job, fds, count), 0);
}

static size_t answer(int client, int fds[2])
{
	struct pollfd p = {.fd = client, .events = POLLIN};
	size_t count = 2;

	assert_int_equal(poll(&p, 1, 30000), 1);
	assert_int_equal(ipc_recv(client, &got, sizeof got, fds, &count), sizeof got);
	assert_int_equal(got.req, job.req);
	return count;
}

/* Whether it soon holds nothing but its standard streams and the client. Its answer leaves before it closes what it answered.
 */
static bool lets_go_of_all(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/fd", pid);
	for (int i = 0; i < 1000; i++) {
		DIR *d = opendir(path);
		int n = -2;

		if (!d)
			return true; /* only root may look */
		while (readdir(d))
			n++;
		closedir(d);
		if (n == 4)
			return true;
		usleep(1000);
	}
	return false;
}

static void jobs_one_after_the_other(void **state)
{
	int client, fds[2];
	pid_t pid;

	(void)state;
	if (!strstr(base, "/shm")) {
		print_message("skip: /dev/shm is not there, and only file systems in memory are read\n");
		skip();
	}
	fresh_job();
	put_text("a", "1");
	pid = start(&client);
	for (job.req = 1; job.req < 200; job.req++) {
		job.want_manifest = job.have_manifest = job.req > 1;
		if (job.req == 2) {
			job.have_manifest = 0;
			ask(client, &dir, 1);
		} else {
			ask(client, (const int[]){dir, manifest}, job.have_manifest ? 2 : 1);
		}
		assert_int_equal(answer(client, fds), job.want_manifest ? 2 : 1);
		assert_int_equal(got.status, 0);
		assert_int_equal(got.files, job.req <= 2 ? 1 : 0);
		forget();
		read_back(fds[0]);
		if (manifest >= 0)
			close(manifest);
		manifest = job.want_manifest ? fds[1] : -1;
	}
	fresh_job();
	assert_true(lets_go_of_all(pid));
	close(client);
	assert_int_equal(status_of(pid), 0);
}

/* The client is the process that strangers talk to: it gets nothing read that is not a run's. */
static void other_places_are_not_read(void **state)
{
	int client, fds[2], proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC), file;
	pid_t pid = start(&client);

	(void)state;
	fresh_job();
	job.req = 7;
	ask(client, &proc, 1);
	assert_int_equal(answer(client, fds), 0);
	assert_int_equal(got.status, EXDEV);
	put_text("file", "1");
	file = openat(dir, "file", O_RDONLY | O_CLOEXEC);
	ask(client, &file, 1);
	assert_int_equal(answer(client, fds), 0);
	assert_true(got.status == ENOTDIR || got.status == EXDEV);
	close(proc);
	close(file);
	close(client);
	assert_int_equal(status_of(pid), 0);
}

static void what_is_no_job_ends_it(void **state)
{
	int client;
	pid_t pid;

	(void)state;
	fresh_job();
	pid = start(&client);
	assert_int_equal(ipc_send(client, "hello", 5, NULL, 0), 0);
	assert_int_equal(status_of(pid), 1);
	close(client);
	pid = start(&client);
	ask(client, NULL, 0);
	assert_int_equal(status_of(pid), 1);
	close(client);
	pid = start(&client);
	ask(client, (const int[]){dir, dir}, 2);
	assert_int_equal(status_of(pid), 1);
	close(client);
	pid = start(&client);
	job.digest_count = COLLECT_DIGESTS_MAX + 1;
	ask(client, &dir, 1);
	assert_int_equal(status_of(pid), 1);
	close(client);
	fresh_job();
}

/* One system call after it has confined itself: its errno as the status, 0 for none, or the signal that it cost. */
static int call_confined(long number, long a, long b, long c)
{
	int sv[2];
	pid_t pid;

	assert_int_equal(ipc_pair(sv, 1 << 16), 0);
	pid = fork();
	if (pid == 0) {
		const struct collector_config config = {.client_fd = sv[1], .empty_dir = -1};
		struct err e;

		if (collector_confine(&config, &e) < 0)
			_exit(255);
		_exit(syscall(number, a, b, c, 0, 0, 0) < 0 ? errno : 0);
	}
	close(sv[0]);
	close(sv[1]);
	return status_of(pid);
}

static void system_calls(void **state)
{
	static const long fatal[] = {SYS_open_by_handle_at,
				     SYS_name_to_handle_at,
				     SYS_linkat,
				     SYS_execve,
				     SYS_clone,
				     SYS_socket,
				     SYS_ptrace,
				     SYS_bpf,
				     SYS_mount,
				     SYS_chroot,
				     SYS_unshare,
				     SYS_io_uring_setup,
				     SYS_pidfd_getfd};
	static const long refused[] = {SYS_openat, SYS_mknodat,	  SYS_symlinkat, SYS_unlinkat, SYS_renameat2,
				       SYS_kill,   SYS_setresuid, SYS_capset,	 SYS_prctl,    SYS_fchmod,
				       SYS_fchown, SYS_fsconfig,  SYS_mkdirat,	 SYS_ioctl,    SYS_sendfile};

	(void)state;
#ifndef __SANITIZE_ADDRESS__ /* which runs without the filter */
	assert_int_equal(call_confined(SYS_getpid, 0, 0, 0), 0);
	for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
		assert_int_equal(call_confined(fatal[i], -1, -1, -1), 256 + SIGSYS);
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		assert_int_equal(call_confined(refused[i], -1, -1, -1), EPERM);
	/* No memory that can be run. */
	assert_int_equal(call_confined(SYS_mmap, 0, 4096, PROT_READ | PROT_EXEC), EPERM);
#else
	(void)fatal;
	(void)refused;
	(void)call_confined;
#endif
}

int main(void)
{
#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    ROW(files_come_whole_and_in_order),
	    ROW(only_what_is_new_or_changed),
	    ROW(replaced_inputs),
	    ROW(manifests),
	    ROW(manifests_hold_what_had_no_room),
	    ROW(bad_manifests),
	    ROW(kinds),
	    ROW(devices),
	    ROW(names),
	    ROW(no_permission),
	    ROW(leases),
	    ROW(size_of_one),
	    ROW(large_inputs),
	    ROW(large_files_of_cells),
	    ROW(large_files_come_last),
	    ROW(large_files_of_no_known_size),
	    ROW(size_of_all),
	    ROW(number_of_files),
	    ROW(full_directory),
	    ROW(depth),
	    ROW(beyond_path_max),
	    ROW(out_of_time),
	    ROW(holes_are_not_read_for_ever),
	    ROW(changes_under_the_walk),
	    ROW(jobs_one_after_the_other),
	    ROW(other_places_are_not_read),
	    ROW(what_is_no_job_ends_it),
	    ROW(system_calls),
	};
	int failed = cmocka_run_group_tests_name("collector", tests, NULL, NULL);

	forget();
	return failed;
}
