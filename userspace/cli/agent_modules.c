/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/agent_modules.h"

#include <dirent.h>
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

#define PLACE_MAX 512
#define PLACES_MAX 48
#define PTH_FILES_MAX 64
#define HOMES_MAX 8 /* as toolcall.py looks at them */
#define SHOWN 6

/* Directories inside of the image, in the order in which Python looks. */
struct places {
	int root;
	char path[PLACES_MAX][PLACE_MAX];
	size_t count;
	bool hidden; /* something there may add more when it is run */
};

/* Below the image's root, whatever links there are. */
static int open_inside(int root, const char *path, int flags)
{
	struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};

	return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

static bool is_kind(int root, const char *path, mode_t kind)
{
	_cleanup_fd_ int fd = open_inside(root, path, O_PATH);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == kind;
}

static DIR *open_directory(int root, const char *path)
{
	int fd = open_inside(root, path, O_RDONLY | O_DIRECTORY);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		close(fd);
	return d;
}

static void add(struct places *p, const char *path)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	if (path[0] != '/' || len >= PLACE_MAX || p->count == PLACES_MAX)
		return;
	for (size_t i = 0; i < p->count; i++)
		if (strlen(p->path[i]) == len && !memcmp(p->path[i], path, len))
			return;
	snprintf(p->path[p->count], PLACE_MAX, "%.*s", (int)len, path);
	if (is_kind(p->root, p->path[p->count], S_IFDIR))
		p->count++;
}

/* ---- where Python looks ---- */

static void read_pth(struct places *p, const char *site, const char *name)
{
	char path[PLACE_MAX + 260], line[PLACE_MAX + 260], full[2 * PLACE_MAX + 300];
	struct stat st;
	int fd;
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", site, name);
	fd = open_inside(p->root, path, O_RDONLY | O_NONBLOCK);
	f = fd < 0 ? NULL : fdopen(fd, "r");
	if (!f) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (int n = 0; fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && n < 256 && fgets(line, sizeof line, f); n++) {
		line[strcspn(line, "\r\n")] = 0;
		if (!strncmp(line, "import ", 7) || !strncmp(line, "import\t", 7))
			p->hidden = true;
		else if (line[0] && line[0] != '#')
			add(p, line[0] == '/' ? line : (snprintf(full, sizeof full, "%s/%s", site, line), full));
	}
	fclose(f);
}

/* A directory of packages, with what its .pth files name. Of these one comes with every setuptools and adds nothing. */
static void add_site(struct places *p, const char *site)
{
	size_t before = p->count;
	struct dirent *de;
	int files = 0;
	DIR *d;

	add(p, site);
	d = p->count > before ? open_directory(p->root, site) : NULL;
	while (d && (de = readdir(d)) && files < PTH_FILES_MAX) {
		const char *dot = strrchr(de->d_name, '.');

		if (!dot || strcmp(dot, ".pth") != 0 || !strcmp(de->d_name, "distutils-precedence.pth"))
			continue;
		files++;
		read_pth(p, site, de->d_name);
	}
	if (d)
		closedir(d);
}

static void add_pythonpath(struct places *p, const struct image_entry *image)
{
	static const char name[] = "PYTHONPATH=";

	for (const char *at = NULL; (at = image_variables_next(image->variables, image->variables_len, at));) {
		char part[PLACE_MAX];

		if (strncmp(at, name, sizeof name - 1) != 0)
			continue;
		for (const char *s = at + sizeof name - 1; *s; s += strcspn(s, ":"), s += *s == ':') {
			snprintf(part, sizeof part, "%.*s", (int)strcspn(s, ":"), s);
			/* An archive can't be looked into from here. */
			p->hidden = p->hidden || is_kind(p->root, part, S_IFREG);
			add(p, part);
		}
	}
}

static void add_user_site(struct places *p, const char *home, const char *version)
{
	char path[PLACE_MAX];

	snprintf(path, sizeof path, "%.300s/.local/lib/python%s/site-packages", home, version);
	add_site(p, path);
}

static void add_user_sites(struct places *p, const char *version)
{
	DIR *d = open_directory(p->root, "/home");
	struct dirent *de;
	int n = 0;

	add_user_site(p, "/root", version);
	while (d && (de = readdir(d)) && n < HOMES_MAX) {
		char home[PLACE_MAX];

		if (de->d_name[0] == '.')
			continue;
		n++;
		snprintf(home, sizeof home, "/home/%s", de->d_name);
		add_user_site(p, home, version);
	}
	if (d)
		closedir(d);
}

static void find_places(struct places *p, const struct image_entry *image)
{
	const struct python *py = &image->python;
	char version[16], path[PLACE_MAX];
	const char *minor = strchr(py->version, '.');

	snprintf(version, sizeof version, "%.*s",
		 minor ? (int)(minor - py->version + 1 + (long)strspn(minor + 1, "0123456789")) : 0, py->version);
	add(p, image->workdir[0] && is_kind(p->root, image->workdir, S_IFDIR) ? image->workdir : "/");
	add_pythonpath(p, image);
	add(p, py->stdlib);
	snprintf(path, sizeof path, "%s/lib-dynload", py->platlib);
	add(p, path);
	add_user_sites(p, version);
	add_site(p, py->site);
	snprintf(path, sizeof path, "%s/lib/python%s/site-packages", py->prefix, version);
	add_site(p, path);
	snprintf(path, sizeof path, "%s/local/lib/python%s/dist-packages", py->prefix, version);
	add_site(p, path);
	snprintf(path, sizeof path, "%s/lib/python3/dist-packages", py->prefix);
	add_site(p, path);
}

/* ---- one module ---- */

enum found { NOT_FOUND, FOUND, NAMESPACE };

/* A file of that name that can be imported: source, bytecode, or an extension ("x.so", "x.cpython-312-….so"). */
static bool has_file(int root, const char *dir, const char *name, size_t len)
{
	DIR *d = open_directory(root, dir);
	struct dirent *de;
	bool found = false;

	while (d && !found && (de = readdir(d))) {
		const char *dot = strrchr(de->d_name, '.'), *rest = de->d_name + len;

		if (!dot || strncmp(de->d_name, name, len) != 0 || *rest != '.')
			continue;
		found = !strcmp(rest, ".py") || !strcmp(rest, ".pyc") || !strcmp(dot, ".so");
	}
	if (d)
		closedir(d);
	return found;
}

/* `name`: what is left of it, looked for in these directories. */
static enum found look(int root, char (*dirs)[PLACE_MAX], size_t count, const char *name)
{
	size_t len = strcspn(name, "."), portions = 0;
	char(*below)[PLACE_MAX] = calloc(count + 1, sizeof *below);
	const bool last = !name[len];
	enum found found = NOT_FOUND;

	for (size_t i = 0; below && i < count; i++) {
		char *path = below[portions];
		const int n = snprintf(path, PLACE_MAX, "%s/%.*s", dirs[i][1] ? dirs[i] : "", (int)len, name);

		if (n >= PLACE_MAX)
			continue;
		if (is_kind(root, path, S_IFDIR) && has_file(root, path, "__init__", strlen("__init__"))) {
			found = last ? FOUND : look(root, &below[portions], 1, name + len + 1);
			free(below);
			return found;
		}
		if (has_file(root, dirs[i], name, len)) {
			free(below);
			return last ? FOUND : NOT_FOUND; /* what is no package has nothing below it */
		}
		portions += is_kind(root, path, S_IFDIR);
	}
	if (portions)
		found = last ? NAMESPACE : look(root, below, portions, name + len + 1);
	free(below);
	return found;
}

/* Of a name that Python's own library has: which of the two is imported depends on what is loaded by then. */
static bool is_pythons_own(int root, const struct image_entry *image, const char *module)
{
	char first[AGENT_MODULE_MAX], library[1][PLACE_MAX];

	snprintf(first, sizeof first, "%.*s", (int)strcspn(module, "."), module);
	snprintf(library[0], PLACE_MAX, "%s", image->python.stdlib);
	return look(root, library, 1, first) == FOUND;
}

static void say_not_found(const struct places *p, const char *module)
{
	fprintf(stderr, "weir: warning: there is no module %s in the image: looked in ", module);
	for (size_t i = 0; i < p->count && i < SHOWN; i++)
		fprintf(stderr, "%s%s", i ? ", " : "", p->path[i]);
	if (p->count > SHOWN)
		fprintf(stderr, " and %zu more", p->count - SHOWN);
	fprintf(stderr,
		"%s. Calls of its tools will fail: put it there, import the image again, and add the agent with --replace\n",
		p->hidden ? " (a .pth file or an archive there may know of more)" : "");
}

void agent_modules_warn(const char *root, const struct image_entry *image, const struct agent_entry *a)
{
	struct places *p = calloc(1, sizeof *p);

	if (!p)
		return;
	p->root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (p->root < 0)
		fprintf(stderr, "weir: warning: the image's files can't be looked at (%s: %s): import it again\n", root,
			strerror(errno));
	else
		find_places(p, image);
	for (size_t i = 0; p->root >= 0 && i < a->module_count; i++) {
		const enum found found = look(p->root, p->path, p->count, a->modules[i]);

		if (found == NOT_FOUND)
			say_not_found(p, a->modules[i]);
		else if (found == NAMESPACE)
			fprintf(
			    stderr,
			    "weir: warning: %s is a directory without __init__.py in the image: Python imports it as an empty "
			    "package. Name the modules in it (--tools %s.NAME), or give it an __init__.py\n",
			    a->modules[i], a->modules[i]);
		else if (is_pythons_own(p->root, image, a->modules[i]))
			fprintf(
			    stderr,
			    "weir: warning: %s has the name of a module of Python's own library, which may be imported in its "
			    "place: give it another name\n",
			    a->modules[i]);
	}
	if (p->root >= 0)
		close(p->root);
	free(p);
}

const char *agent_module_of_file(const char *text, char *ret, size_t size)
{
	const size_t len = strlen(text);

	if (len < 4 || strcmp(text + len - 3, ".py") != 0)
		return NULL;
	text += !strncmp(text, "./", 2) ? 2 : strspn(text, "/");
	snprintf(ret, size, "%.*s", (int)(strlen(text) - 3), text);
	for (char *p = ret; *p; p++)
		*p = *p == '/' ? '.' : *p;
	return *ret ? ret : NULL;
}
