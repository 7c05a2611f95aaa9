/* SPDX-License-Identifier: Apache-2.0 */
#include "elfdeps.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <glob.h>
#include <libelf.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"

#define LIBS_MAX 512
#define DIRS_MAX 64
#define CONF_DEPTH 4

struct lib {
	char soname[128];
	char path[PATH_MAX];
};

struct elfdeps {
	struct lib *libs[LIBS_MAX];
	size_t count;
	char *dirs[DIRS_MAX]; /* the loader's search path: ld.so.conf, then its defaults */
	size_t dir_count;
	char loader[256];
};

static void add_dir(struct elfdeps *d, const char *dir)
{
	if (d->dir_count < DIRS_MAX && dir[0] == '/') {
		char *copy = strdup(dir);

		if (copy)
			d->dirs[d->dir_count++] = copy;
	}
}

/* ld.so.conf: a directory a line, `include GLOB`, comments from '#'. */
static void read_conf(struct elfdeps *d, const char *path, int depth)
{
	_cleanup_file_ FILE *f = fopen(path, "re");
	char line[PATH_MAX];

	if (!f || depth > CONF_DEPTH)
		return;
	while (fgets(line, sizeof line, f)) {
		char *s = line + strspn(line, " \t");
		glob_t g = {0};

		s[strcspn(s, "#\r\n")] = 0;
		for (size_t n = strlen(s); n && (s[n - 1] == ' ' || s[n - 1] == '\t'); n--)
			s[n - 1] = 0;
		if (strncmp(s, "include", 7) || (s[7] != ' ' && s[7] != '\t')) {
			add_dir(d, s);
			continue;
		}
		if (glob(s + 8, 0, NULL, &g) == 0)
			for (size_t i = 0; i < g.gl_pathc; i++)
				read_conf(d, g.gl_pathv[i], depth + 1);
		globfree(&g);
	}
}

struct elfdeps *elfdeps_new(void)
{
	static const char *const defaults[] = {
	    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
	struct elfdeps *d = calloc(1, sizeof *d);

	if (!d || elf_version(EV_CURRENT) == EV_NONE)
		return elfdeps_free(d);
	read_conf(d, "/etc/ld.so.conf", 0);
	for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
		add_dir(d, defaults[i]);
	return d;
}

struct elfdeps *elfdeps_free(struct elfdeps *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->count; i++)
		free(d->libs[i]);
	for (size_t i = 0; i < d->dir_count; i++)
		free(d->dirs[i]);
	free(d);
	return NULL;
}

static bool known(const struct elfdeps *d, const char *soname)
{
	for (size_t i = 0; i < d->count; i++)
		if (!strcmp(d->libs[i]->soname, soname))
			return true;
	return false;
}

/* Only a file of our own word size will do: multilib hosts have namesakes. */
static bool is_elf64(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned char ident[EI_NIDENT];

	return fd >= 0 && pread(fd, ident, sizeof ident, 0) == (ssize_t)sizeof ident && !memcmp(ident, ELFMAG, SELFMAG) &&
	       ident[EI_CLASS] == ELFCLASS64;
}

/* Looks for `soname` as the loader would: the object's own run path ($ORIGIN is its directory), then the usual ones. */
static bool find_lib(const struct elfdeps *d, const char *soname, const char *runpath, const char *origin, char ret[PATH_MAX])
{
	char list[PATH_MAX], *save = NULL;

	snprintf(list, sizeof list, "%s", runpath ? runpath : "");
	for (char *dir = strtok_r(list, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		const char *rest = !strncmp(dir, "$ORIGIN", 7) ? dir + 7 : !strncmp(dir, "${ORIGIN}", 9) ? dir + 9 : NULL;
		int n = rest ? snprintf(ret, PATH_MAX, "%s%s/%s", origin, rest, soname)
			     : snprintf(ret, PATH_MAX, "%s/%s", dir, soname);

		if (n < PATH_MAX && is_elf64(ret))
			return true;
	}
	for (size_t i = 0; i < d->dir_count; i++)
		if (snprintf(ret, PATH_MAX, "%s/%s", d->dirs[i], soname) < PATH_MAX && is_elf64(ret))
			return true;
	return false;
}

static int add_lib(struct elfdeps *d, const char *soname, const char *runpath, const char *origin, struct err *e)
{
	struct lib *lib;

	if (known(d, soname) || strchr(soname, '/'))
		return 0;
	if (d->count == LIBS_MAX)
		return err_set(e, E2BIG, "image", "more than %d shared libraries", LIBS_MAX);
	lib = calloc(1, sizeof *lib);
	if (!lib)
		return err_set(e, ENOMEM, "image", "out of memory");
	if (!find_lib(d, soname, runpath, origin, lib->path) ||
	    (size_t)snprintf(lib->soname, sizeof lib->soname, "%s", soname) >= sizeof lib->soname) {
		free(lib);
		return 0;
	}
	d->libs[d->count++] = lib;
	return elfdeps_add(d, lib->path, e);
}

static int read_dynamic(struct elfdeps *d, Elf *elf, Elf_Scn *scn, const GElf_Shdr *sh, const char *origin, struct err *e)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	const char *runpath = NULL;
	GElf_Dyn dyn;
	int rc = 0;

	for (int i = 0; data && gelf_getdyn(data, i, &dyn); i++)
		if (dyn.d_tag == DT_RUNPATH || (dyn.d_tag == DT_RPATH && !runpath))
			runpath = elf_strptr(elf, sh->sh_link, dyn.d_un.d_val);
	for (int i = 0; rc == 0 && data && gelf_getdyn(data, i, &dyn); i++) {
		const char *soname = dyn.d_tag == DT_NEEDED ? elf_strptr(elf, sh->sh_link, dyn.d_un.d_val) : NULL;

		if (soname)
			rc = add_lib(d, soname, runpath, origin, e);
	}
	return rc;
}

static void read_interp(struct elfdeps *d, Elf *elf, int fd)
{
	size_t count;
	GElf_Phdr ph;

	if (d->loader[0] || elf_getphdrnum(elf, &count) < 0)
		return;
	for (size_t i = 0; i < count; i++)
		if (gelf_getphdr(elf, (int)i, &ph) && ph.p_type == PT_INTERP && ph.p_filesz < sizeof d->loader) {
			ssize_t n = pread(fd, d->loader, ph.p_filesz, (off_t)ph.p_offset);

			d->loader[n > 0 ? n : 0] = 0;
			return;
		}
}

int elfdeps_add(struct elfdeps *d, const char *path, struct err *e)
{
	char origin[PATH_MAX];
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf_Scn *scn = NULL;
	Elf *elf;
	char *slash;
	int rc = 0;

	if (fd < 0)
		return err_errno(e, errno, "image", "open %s", path);
	snprintf(origin, sizeof origin, "%s", path);
	slash = strrchr(origin, '/');
	if (slash)
		*slash = 0;
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF) {
		elf_end(elf);
		return 0;
	}
	read_interp(d, elf, fd);
	while (rc == 0 && (scn = elf_nextscn(elf, scn))) {
		GElf_Shdr sh;

		if (gelf_getshdr(scn, &sh) && sh.sh_type == SHT_DYNAMIC)
			rc = read_dynamic(d, elf, scn, &sh, origin, e);
	}
	elf_end(elf);
	return rc;
}

int elfdeps_add_soname(struct elfdeps *d, const char *soname, struct err *e)
{
	return add_lib(d, soname, NULL, "", e);
}

const char *elfdeps_soname(const struct elfdeps *d, size_t i)
{
	return i < d->count ? d->libs[i]->soname : NULL;
}

const char *elfdeps_path(const struct elfdeps *d, size_t i)
{
	return i < d->count ? d->libs[i]->path : NULL;
}

const char *elfdeps_loader(const struct elfdeps *d)
{
	return d->loader;
}
