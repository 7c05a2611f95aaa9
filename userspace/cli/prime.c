/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/prime.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch.h"
#include "core/base64.h"
#include "core/cleanup.h"
#include "core/limits.h"
#include "core/log.h"
#include "oci.h"
#include "python.h"
#include "registry/store.h"
#include "unpack.h"

#define IMAGES IMAGES_DIR
#define CACHES "caches"
#define PRIME_S 60		      /* deadline of the run that makes caches */
#define PRIME_ANSWER_BYTES (16 << 20) /* its answer: files in base64, and what is around them */

extern char **environ;

/* ---- the image ---- */

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Makes the state directory if it is missing, and finds its path. */
static int find_state(const char *given, char ret[PATH_MAX], struct err *e)
{
	_cleanup_fd_ int state = -1;
	int rc = launch_state_dir(given, &state, e);

	if (rc < 0)
		return rc;
	return realpath(given, ret) ? 0 : err_errno(e, errno, "image", "%s", given);
}

static void say_waiting(const struct oci_progress *p, void *ctx)
{
	(void)ctx;
	if (p->waiting)
		log_info("waiting for another image to be unpacked");
}

static int unpack(const char *layout, const char *ref, const char *given, struct image_place *ret, struct err *e)
{
	char images[PATH_MAX], state_dir[PATH_MAX];
	struct oci_request request = {.path = layout, .archive_fd = -1, .ref = ref, .images = images, .progress = say_waiting};
	struct oci_unpacked u;
	int rc = find_state(given, state_dir, e);

	if (rc < 0)
		return rc;
	if ((size_t)snprintf(images, sizeof images, "%s/" IMAGES, state_dir) >= sizeof images)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", state_dir);
	rc = oci_import(&request, &u, e);
	if (rc < 0)
		return rc;
	if (u.fresh)
		log_info("unpacked image sha256:%s: %llu entries, %llu MiB%s", u.digest, u.entries, u.bytes >> 20,
			 u.left_out ? "; devices, pipes and sockets in it were left out" : "");
	snprintf(ret->root, sizeof ret->root, "%s", u.root);
	return 0;
}

static int find_root(const char *image, const char *given, struct image_place *ret, struct err *e)
{
	char layout[PATH_MAX];
	const char *colon = strrchr(image, ':');

	if (is_directory(image)) {
		if (oci_is_layout(image))
			return unpack(image, NULL, given, ret, e);
		return realpath(image, ret->root) ? 0 : err_errno(e, errno, "image", "%s", image);
	}
	if (colon && colon[1] && (size_t)snprintf(layout, sizeof layout, "%.*s", (int)(colon - image), image) < sizeof layout &&
	    is_directory(layout)) {
		if (oci_is_layout(layout))
			return unpack(layout, colon + 1, given, ret, e);
		return err_set(e, EINVAL, "image",
			       "%s is no OCI image layout (it has no file oci-layout), so there is no \"%s\" in it", layout,
			       colon + 1);
	}
	return err_set(e, ENOENT, "image", "%s is no directory", image);
}

/* ---- whose cache it is ---- */

#define IDENTITY_BYTES 8192

/* One line: a path of the image and what stat() says of it. Another one later, or none, is another image. */
static void identify(char *text, const char *root, const char *path)
{
	size_t n = strlen(text);
	char host[PATH_MAX];
	struct stat st;

	if ((size_t)snprintf(host, sizeof host, "%s%s", root, path) >= sizeof host || lstat(host, &st) < 0)
		snprintf(text + n, IDENTITY_BYTES - n, "- %s\n", path);
	else
		snprintf(text + n, IDENTITY_BYTES - n, "%llu.%llu.%lld.%lld.%09ld %s\n", (unsigned long long)st.st_dev,
			 (unsigned long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
			 path);
}

static void identify_all(char text[IDENTITY_BYTES], const char *root, const struct python *py)
{
	static const char *const always[] = {"",
					     "/usr/share/fonts",
					     "/usr/share/fonts/truetype",
					     "/usr/share/fonts/opentype",
					     "/usr/share/fonts/type1",
					     "/usr/local/share/fonts"};

	text[0] = 0;
	for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
		identify(text, root, always[i]);
	identify(text, root, py->executable);
	identify(text, root, py->stdlib);
	identify(text, root, py->site);
	if (py->matplotlib[0])
		identify(text, root, py->matplotlib);
}

/* Whether every line of `text` is what identify() says now. */
static bool still_so(const char *text, const char *root)
{
	while (*text) {
		size_t n = strcspn(text, "\n");
		char line[PATH_MAX + 128], now[IDENTITY_BYTES] = "";
		const char *path;

		if (!text[n] || n + 2 > sizeof line)
			return false;
		snprintf(line, sizeof line, "%.*s", (int)n + 1, text);
		path = strchr(line, ' ');
		if (!path)
			return false;
		line[n] = 0;
		identify(now, root, path + 1);
		line[n] = '\n';
		if (strcmp(now, line) != 0)
			return false;
		text += n + 1;
	}
	return true;
}

/* Each root and interpreter has a directory; its name need only differ. */
static int cache_dir(const struct image_wish *w, const char *state_dir, const char *root, char ret[PATH_MAX], struct err *e)
{
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
	const char *const parts[] = {root, "\n", w->python ? w->python : ""};

	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		for (const char *p = parts[i]; *p; p++)
			hash = (hash ^ (unsigned char)*p) * 0x100000001b3ull;
	if ((size_t)snprintf(ret, PATH_MAX, "%s/" CACHES "/%016llx", state_dir, (unsigned long long)hash) >= PATH_MAX - 64)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", state_dir);
	return 0;
}

static bool cache_valid(const char *dir, const char *root)
{
	char path[PATH_MAX], text[IDENTITY_BYTES];
	_cleanup_file_ FILE *f = NULL;
	size_t n;

	if ((size_t)snprintf(path, sizeof path, "%s/identity", dir) >= sizeof path || !(f = fopen(path, "re")))
		return false;
	n = fread(text, 1, sizeof text - 1, f);
	text[n] = 0;
	return n > 0 && still_so(text, root);
}

/* ---- the run that makes them ---- */

static const char prime_code[] = "import glob, shutil, matplotlib, matplotlib.font_manager\n"
				 "for name in glob.glob(matplotlib.get_cachedir() + '/fontlist-*.json'):\n"
				 "    shutil.copy(name, '/box')\n";

/* An empty configuration, so that the one of this host has no say in it. */
static int no_configuration(void)
{
	static const char nothing[] = "{}\n";
	int fd = memfd_create("weir.json", MFD_CLOEXEC);

	if (fd >= 0 && (fchmod(fd, 0600) < 0 || write(fd, nothing, sizeof nothing - 1) != (ssize_t)sizeof nothing - 1))
		close(TAKE_FD(fd));
	return fd;
}

#define CONFIG_FD 3 /* of the run */

static int start_run(const struct image_wish *w, const char *root, int out, pid_t *ret)
{
	_cleanup_fd_ int config = no_configuration();
	char timeout[16], file[32];
	char *argv[16] = {"weir",	"run",	     "--config", file, "--json",	  "--image",
			  (char *)root, "--timeout", timeout,	 "-c", (char *)prime_code};
	int n = 11, rc;
	posix_spawn_file_actions_t fa;

	if (config < 0)
		return -errno;
	snprintf(timeout, sizeof timeout, "%d", PRIME_S);
	snprintf(file, sizeof file, "/proc/self/fd/%d", CONFIG_FD);
	if (w->python) {
		argv[n++] = "--python";
		argv[n++] = (char *)w->python;
	}
	argv[n] = NULL;
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, out, 1);
	posix_spawn_file_actions_adddup2(&fa, config, CONFIG_FD);
	rc = posix_spawn(ret, "/proc/self/exe", &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	return -rc;
}

/* Runs it in a sandbox of the image, like any snippet. *ret is the answer, malloc'd. */
static int run(const struct image_wish *w, const char *root, char **ret, struct err *e)
{
	_cleanup_free_ char *text = malloc(PRIME_ANSWER_BYTES);
	_cleanup_fd_ int out = -1;
	int p[2], rc, status;
	bool whole;
	pid_t pid = -1, got;

	if (!text)
		return err_set(e, ENOMEM, "image", "out of memory");
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_errno(e, errno, "image", "make a pipe");
	out = p[0];
	rc = start_run(w, root, p[1], &pid);
	close(p[1]);
	if (rc < 0)
		return err_errno(e, -rc, "image", "start `weir run`");
	/* The run has its own deadline; twice as long is for what is around it. */
	whole = python_read_all(out, text, PRIME_ANSWER_BYTES, python_now_ms() + 2 * PRIME_S * 1000);
	if (!whole && pid > 0)
		kill(pid, SIGTERM);
	do
		got = waitpid(pid, &status, 0);
	while (got < 0 && errno == EINTR);
	if (!whole || got != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(e, EIO, "image",
			       "a run that should have made them failed (try: weir run --image %.100s -c 'import "
			       "matplotlib.font_manager')",
			       root);
	*ret = TAKE_PTR(text);
	return 0;
}

/* ---- what it left ---- */

/* fontlist-, letters, digits, dots and dashes, .json: what the image's own program calls it. */
static bool is_font_list(const char *name)
{
	static const char head[] = "fontlist-", tail[] = ".json";
	size_t n = strlen(name);

	return n < 64 && n > sizeof head + sizeof tail - 2 && !strncmp(name, head, sizeof head - 1) &&
	       !strcmp(name + n - sizeof tail + 1, tail) && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == n;
}

static int write_file(int dir, const char *name, const void *data, size_t len, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, data, len) != (ssize_t)len || fsync(fd) < 0)
		return err_errno(e, errno, "image", "write %s", name);
	return 0;
}

static int save_file(int dir, const json_t *file, struct err *e)
{
	const json_t *content = json_object_get(file, "content_base64");
	const char *name = json_string_value(json_object_get(file, "path")), *text = json_string_value(content);
	_cleanup_free_ char *data = NULL;
	ssize_t len;

	if (!name || !text || !is_font_list(name))
		return 0;
	len = base64_decoded_len(text, json_string_length(content));
	if (len < 0 || len > LIMIT_IMAGE_CACHE_BYTES)
		return err_set(e, EINVAL, "image", "%s is over %d bytes", name, (int)LIMIT_IMAGE_CACHE_BYTES);
	data = malloc((size_t)len + 1);
	if (!data)
		return err_set(e, ENOMEM, "image", "out of memory");
	base64_decode(data, text, json_string_length(content));
	return write_file(dir, name, data, (size_t)len, e);
}

static int save_files(int dir, const char *answer, struct err *e)
{
	json_t *j = json_loads(answer, 0, NULL), *file;
	int rc = 0;
	size_t i;

	json_array_foreach(json_object_get(j, "files"), i, file)
	{
		if (rc == 0)
			rc = save_file(dir, file, e);
	}
	json_decref(j);
	return rc;
}

/* Makes `path` anew, with the files in matplotlib/ and the identity last: without that, nothing in it counts. */
static int save(const char *path, const char *answer, const char *identity, struct err *e)
{
	_cleanup_fd_ int dir = -1, sub = -1, above = -1;
	char parent[PATH_MAX];
	const char *name = strrchr(path, '/') + 1;
	int rc;

	snprintf(parent, sizeof parent, "%.*s", (int)(name - 1 - path), path);
	if (mkdir(parent, 0700) < 0 && errno != EEXIST)
		return err_errno(e, errno, "image", "make %s", parent);
	above = open(parent, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (above < 0)
		return err_errno(e, errno, "image", "open %s", parent);
	rc = unpack_remove(above, name);
	if (rc < 0)
		return err_errno(e, -rc, "image", "remove %s", path);
	if (mkdirat(above, name, 0700) < 0 || (dir = openat(above, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
	    mkdirat(dir, "matplotlib", 0755) < 0 || (sub = openat(dir, "matplotlib", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return err_errno(e, errno, "image", "make %s", path);
	if (answer)
		rc = save_files(sub, answer, e);
	return rc < 0 ? rc : write_file(dir, "identity", identity, strlen(identity), e);
}

static void prime(const struct image_wish *w, const char *dir, struct image_place *place)
{
	_cleanup_free_ char *answer = NULL;
	char identity[IDENTITY_BYTES];
	struct python py;
	struct err e = {0};

	/* What is wrong with it the supervisor will say, in full. */
	if (python_find_inside(place->root, w->python, &py, &e) < 0)
		return;
	identify_all(identity, place->root, &py);
	if (py.matplotlib[0])
		log_info("making the image's caches, once: this takes some seconds");
	if ((py.matplotlib[0] && run(w, place->root, &answer, &e) < 0) || save(dir, answer, identity, &e) < 0)
		log_warn("no cache of fonts, so every run that plots makes its own, which may take seconds: %s", e.msg);
	else
		snprintf(place->caches, sizeof place->caches, "%s", dir);
}

/*
 * As long as this process lives, `weir image rm` leaves the image alone (oci_is_used()). Of ours only this one keeps the
 * descriptor: all others close what they inherit.
 */
static void hold(const char *root)
{
	static int held = -1;

	cleanup_fdp(&held);
	held = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (held >= 0)
		(void)flock(held, LOCK_SH | LOCK_NB); /* an operator's directory may be where there are no locks */
}

int place_image(const struct image_wish *wish, struct image_place *ret, struct err *e)
{
	const char *given = wish->state_dir ? wish->state_dir : DEFAULT_STATE_DIR;
	char state_dir[PATH_MAX], dir[PATH_MAX];
	int rc;

	*ret = (struct image_place){0};
	if (!wish->image)
		return 0;
	rc = find_root(wish->image, given, ret, e);
	if (rc == 0)
		hold(ret->root);
	if (rc == 0 && wish->prime)
		rc = find_state(given, state_dir, e);
	else if (rc == 0 && !realpath(given, state_dir))
		return 0; /* nothing was ever made there */
	if (rc == 0)
		rc = cache_dir(wish, state_dir, ret->root, dir, e);
	if (rc < 0)
		return rc;
	if (cache_valid(dir, ret->root))
		snprintf(ret->caches, sizeof ret->caches, "%s", dir);
	else if (wish->prime)
		prime(wish, dir, ret);
	return 0;
}

int prime_remove(int state_dir, struct err *e)
{
	static const char *const ours[] = {IMAGES, CACHES};

	for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
		int rc = unpack_remove(state_dir, ours[i]);

		if (rc < 0)
			return err_errno(e, -rc, "", "remove %s", ours[i]);
	}
	return registry_remove(state_dir, e);
}
