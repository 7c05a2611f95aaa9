/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/image_import.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/image_show.h"
#include "cli/image_try.h"
#include "cli/launch.h"
#include "cli/token_show.h"
#include "core/cleanup.h"
#include "core/utf8.h"
#include "oci.h"
#include "python.h"
#include "registry/store.h"

#define QUIET_MS 1000 /* before anything is said of progress */

struct import {
	const struct image_import *r;
	int state; /* directory */
	char images[PATH_MAX];

	/* What it comes from. */
	char path[PATH_MAX]; /* without a ref */
	char ref[OCI_NAME_MAX];
	char absolute[PATH_MAX]; /* a directory's */
	int archive;

	struct oci_unpacked unpacked;
	struct image_entry entry; /* being made; without names */
	bool known;		  /* the table had it all along */

	long long began_ms;
	bool told; /* a line of progress */
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

/* ---- where it is ---- */

/* Most of the argument is the path: a ref may have colons as well. Whether there is such a file. */
static bool split(struct import *im, const char *source)
{
	size_t n = strlen(source);
	struct stat st;

	for (;;) {
		bool whole = !source[n];

		if (n && n < sizeof im->path && (whole || (source[n + 1] && strlen(source + n + 1) < sizeof im->ref))) {
			snprintf(im->path, sizeof im->path, "%.*s", (int)n, source);
			snprintf(im->ref, sizeof im->ref, "%s", whole ? "" : source + n + 1);
			if (stat(im->path, &st) == 0)
				return true;
		}
		while (n && source[n - 1] != ':')
			n--;
		if (!n)
			return false;
		n--;
	}
}

static int find_directory(struct import *im, const struct stat *st, struct err *e)
{
	struct stat host;

	if (!realpath(im->path, im->absolute))
		return err_errno(e, errno, "", "%s", im->path);
	if (stat("/", &host) == 0 && host.st_dev == st->st_dev && host.st_ino == st->st_ino)
		return err_set(e, EINVAL, "", "%s is the host's own root: tools would see all of the host", im->path);
	if (im->ref[0] && !oci_is_layout(im->absolute))
		return err_set(e, EINVAL, "",
			       "%s is no OCI image layout (it has no file oci-layout), so there is no \"%s\" in it", im->path,
			       im->ref);
	return 0;
}

static int find_source(struct import *im, struct err *e)
{
	const char *source = im->r->source;
	struct stat st;

	if (!strcmp(source, IMAGE_IMPORT_STDIN)) {
		im->archive = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		if (im->archive < 0 || fstat(im->archive, &st) < 0)
			return err_errno(e, errno, "", "read standard input");
		if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode))
			return err_set(e, EINVAL, "", "standard input is no archive: give it one, like `docker save NAME |`");
		return 0;
	}
	if (!split(im, source))
		return err_set(e, ENOENT, "", "there is no file and no directory %s", source);
	if (stat(im->path, &st) < 0)
		return err_errno(e, errno, "", "%s", im->path);
	if (S_ISDIR(st.st_mode))
		return find_directory(im, &st, e);
	if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))
		return err_set(e, EINVAL, "", "%s is neither a file nor a directory", im->path);
	im->archive = open(im->path, O_RDONLY | O_CLOEXEC);
	return im->archive < 0 ? err_errno(e, errno, "", "open %s", im->path) : 0;
}

/* ---- what it is called ---- */

/* The last part of a path, without what says of a file that it is an archive, in letters that a name may have. */
static void base_name(const char *path, char ret[IMAGE_NAME_MAX])
{
	static const char *const endings[] = {".gz", ".zst", ".xz", ".bz2", ".tgz", ".tar", ".oci", ".docker"};
	const char *base = strrchr(path, '/');

	snprintf(ret, IMAGE_NAME_MAX, "%.*s", IMAGE_NAME_MAX - 1, base ? base + 1 : path);
	for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
		size_t n = strlen(ret), k = strlen(endings[i]);

		if (n > k && !strcmp(ret + n - k, endings[i]))
			ret[n - k] = 0;
	}
	for (char *c = ret; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c))
			*c = '-';
	while (*ret && strchr("._-", ret[strlen(ret) - 1]))
		ret[strlen(ret) - 1] = 0;
	memmove(ret, ret + strspn(ret, "._-"), strlen(ret + strspn(ret, "._-")) + 1);
}

static bool take_name(char ret[IMAGE_NAME_MAX], const char *name, const char *tag)
{
	return snprintf(ret, IMAGE_NAME_MAX, "%s%s%s", name, tag ? ":" : "", tag ? tag : "") < IMAGE_NAME_MAX &&
	       image_name_ok(ret);
}

/* The first that is a name; "" when nothing that is there will do. */
static void choose_name(const struct import *im, char ret[IMAGE_NAME_MAX])
{
	const char *said = im->unpacked.name;
	bool whole = strpbrk(said, ":/") || !strcmp(im->unpacked.kind, "docker-archive"); /* else it is no more than a tag */
	char base[IMAGE_NAME_MAX];
	bool ok = false;

	base_name(im->absolute[0] ? im->absolute : im->path, base);
	if (im->r->name)
		ok = take_name(ret, im->r->name, NULL);
	else if (whole)
		ok = take_name(ret, said, NULL);
	else if (said[0])
		ok = take_name(ret, base, said);
	if (!ok && !take_name(ret, base, NULL))
		ret[0] = 0;
}

/* As it was given, for people: valid text without control characters, cut to what there is room for. */
static int note_source(struct import *im, struct err *e)
{
	const char *source = im->r->source;
	size_t len = 0;
	_cleanup_free_ char *text = utf8_replace(source, strlen(source), &len);

	if (!text)
		return err_set(e, ENOMEM, "", "out of memory");
	snprintf(im->entry.source, sizeof im->entry.source, "%.*s", (int)utf8_cut(text, len, sizeof im->entry.source - 1),
		 text);
	for (char *c = im->entry.source; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
		else if ((unsigned char)c[0] == 0xc2 && (unsigned char)c[1] < 0xa0) /* controls of Latin-1 */
			c[0] = c[1] = '?';
	return 0;
}

/* ---- while it is unpacked ---- */

static void show_progress(const struct oci_progress *p, void *ctx)
{
	char done[IMAGE_SIZE_TEXT], total[IMAGE_SIZE_TEXT], what[48];
	bool terminal = isatty(STDERR_FILENO);
	struct import *im = ctx;

	if (p->waiting) {
		fprintf(stderr, "%sweir: waiting for another import to end\n", im->told && terminal ? "\r\033[K" : "");
		return;
	}
	if (python_now_ms() - im->began_ms < QUIET_MS || (im->told && !terminal))
		return;
	im->told = true;
	if (!terminal) {
		fprintf(stderr, "weir: importing %s: this takes a while\n", im->r->source);
		return;
	}
	if (p->layers)
		snprintf(what, sizeof what, "layer %u of %u", p->layer, p->layers);
	else
		snprintf(what, sizeof what, "reading");
	fprintf(stderr, "\r\033[Kweir: %s: %s%s%s", what, image_size_text(done, p->done), p->total ? " of " : "",
		p->total ? image_size_text(total, p->total) : "");
}

static void end_progress(const struct import *im)
{
	if (im->told && isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K");
}

static const char *path_variable(const struct oci_unpacked *u)
{
	for (const char *at = NULL; (at = image_variables_next(u->variables, u->variables_len, at));)
		if (!strncmp(at, "PATH=", 5))
			return at + 5;
	return NULL;
}

static bool is_known(const struct import *im, const char *digest)
{
	struct image_table t = {0};
	bool known = registry_load_images(im->state, &t, NULL, NULL) == 0 && image_table_by_digest(&t, digest);

	image_table_clear(&t);
	return known;
}

/* What an entry says beside its names: found out now, so that nothing of the image has to be run later. */
static int vet(const char *root, const struct oci_unpacked *u, void *ctx, struct err *e)
{
	struct import *im = ctx;
	struct image_entry *entry = &im->entry;
	unsigned long long bytes = u->bytes, entries = u->entries;
	int rc;

	im->known = !u->fresh && is_known(im, u->digest);
	if (im->known)
		return 0;
	if (!u->fresh) /* a service's snippets run in it */
		oci_measure(root, &bytes, &entries);
	rc = python_find_on(root, path_variable(u), &entry->python, e);
	if (rc == 0)
		rc = image_try(root, &entry->python, e);
	if (rc == 0)
		rc = note_source(im, e);
	if (rc == 0 && image_variables_share(u->variables, u->variables_len, &entry->variables, &entry->variables_len,
					     &entry->withheld, &entry->withheld_len) < 0)
		rc = err_set(e, ENOMEM, "", "out of memory");
	if (rc < 0)
		return rc;
	snprintf(entry->digest, sizeof entry->digest, "%s", u->digest);
	snprintf(entry->kind, sizeof entry->kind, "%s", u->kind);
	snprintf(entry->workdir, sizeof entry->workdir, "%s", u->workdir);
	entry->imported_s = time(NULL);
	entry->bytes = bytes;
	entry->entries = entries;
	entry->left_out = u->left_out + u->hidden;
	return 0;
}

static int unpack(struct import *im, struct err *e)
{
	const struct oci_request request = {
	    .path = im->archive >= 0 ? NULL : im->absolute,
	    .archive_fd = im->archive,
	    .ref = im->ref[0] ? im->ref : NULL,
	    .images = im->images,
	    .vet = vet,
	    .progress = show_progress,
	    .ctx = im,
	    .stop = &stopped,
	};
	const struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: a wait ends */
	int rc;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	im->began_ms = python_now_ms();
	rc = oci_import(&request, &im->unpacked, e);
	end_progress(im);
	return rc;
}

/* ---- into the table ---- */

/* Who loses the name, if anybody; "" nobody. */
static void find_loser(const struct image_table *t, const char *name, const char *digest, char ret[IMAGE_HEX + 1])
{
	ret[0] = 0;
	for (size_t i = 0; i < t->count; i++)
		for (size_t k = 0; k < t->entries[i].name_count; k++)
			if (!strcmp(t->entries[i].names[k], name) && strcmp(t->entries[i].digest, digest) != 0)
				snprintf(ret, IMAGE_HEX + 1, "%s", t->entries[i].digest);
}

static int change_table(struct import *im, struct image_table *t, const char *name, struct err *e)
{
	const char *digest = im->unpacked.digest;
	char loser[IMAGE_HEX + 1];
	struct image_entry *old;
	int rc = registry_load_images(im->state, t, NULL, e);

	if (rc < 0)
		return rc;
	old = image_table_by_digest(t, digest);
	if (!oci_is_unpacked(im->images, digest) || (im->known && !old))
		return err_set(e, EAGAIN, "", "sha256:%.12s was removed while it was imported: try again", digest);
	if (old && !im->unpacked.fresh)
		im->known = true; /* somebody else was a moment quicker */
	if (old && !im->known) {  /* its files were gone, and are there again */
		memcpy(im->entry.names, old->names, sizeof old->names);
		im->entry.name_count = old->name_count;
	}
	if (!im->known)
		rc = image_table_put(t, &im->entry, e);
	find_loser(t, name, digest, loser);
	if (rc == 0 && name[0])
		rc = image_table_name(t, digest, name, e);
	if (rc == 0)
		rc = registry_save_images(im->state, t, e);
	if (rc == 0 && loser[0])
		fprintf(stderr, "weir: the name %s was sha256:%.12s's until now\n", name, loser);
	return rc;
}

/* Under the lock: an image that is in no table takes room that nobody knows of. */
static void forget(const struct import *im)
{
	if (im->unpacked.fresh && !is_known(im, im->unpacked.digest))
		(void)oci_remove(im->images, im->unpacked.digest, NULL);
}

static int add(struct import *im, struct image_table *t, const char *name, struct err *e)
{
	_cleanup_fd_ int lock = -1;
	int rc = registry_lock(im->state, &lock, e);

	if (rc < 0)
		return rc;
	rc = change_table(im, t, name, e);
	if (rc < 0)
		forget(im);
	return rc;
}

/* ---- what came of it ---- */

static void show_left_out(const struct import *im, const struct image_entry *entry)
{
	const struct oci_unpacked *u = &im->unpacked;
	_cleanup_free_ char *withheld = image_names_text(entry->withheld, entry->withheld_len);

	if (u->left_out)
		fprintf(stderr, "weir: left out: %llu device(s), pipe(s) or socket(s)\n", u->left_out);
	if (u->hidden)
		fprintf(
		    stderr,
		    "weir: left out: %llu file(s) or directories that only their owner may read (the first: %s); chmod a+rX "
		    "what tools need\n",
		    u->hidden, u->first_hidden);
	if (withheld && withheld[0])
		fprintf(stderr, "weir: not given to tools, since they look like credentials or are the platform's own: %s\n",
			withheld);
}

/* Of a directory there is no more to know; others forgot to say it. */
static void show_search_path(const struct image_entry *entry)
{
	const char *at = NULL;

	while ((at = image_variables_next(entry->variables, entry->variables_len, at)))
		if (!strncmp(at, "PYTHONPATH=", 11))
			return;
	if (!entry->workdir[0])
		fprintf(stderr,
			"weir: the image names neither a working directory (WORKDIR) nor a PYTHONPATH: modules with tools are "
			"found in "
			"%s, and from / on (/app/x.py as app.x)\n",
			entry->python.site);
}

static int show(const struct import *im, const struct image_entry *entry, const char *name, struct err *e)
{
	const struct agent_table none = {0};
	char size[IMAGE_SIZE_TEXT];
	json_t *j;

	show_left_out(im, entry);
	show_search_path(entry);
	if (!name[0])
		fprintf(stderr, "weir: it has no name yet: import it again with --name NAME, or use its digest\n");
	if (im->r->json) {
		j = image_json(entry, &none, true);
		json_object_del(j, "agents");
		json_object_set_new(j, "fresh", json_boolean(im->unpacked.fresh));
		return token_print_json(j, e);
	}
	printf("%s%ssha256:%s\n", name, name[0] ? "  " : "", entry->digest);
	if (fflush(stdout) == EOF)
		return err_set(e, EIO, "", "can't write to standard output");
	fprintf(stderr, "weir: %s: Python %s (%s), %s in %llu entries\n",
		im->unpacked.fresh ? "imported" : "it was there already", entry->python.version, entry->python.executable,
		image_size_text(size, entry->bytes), (unsigned long long)entry->entries);
	return 0;
}

static int room_for_one(const struct import *im, struct err *e)
{
	struct image_table t = {0};
	int rc = registry_load_images(im->state, &t, NULL, e);

	if (rc == 0 && t.count >= LIMIT_IMAGES)
		rc = err_set(e, ENOSPC, "", "there are %d images already: remove one (`weir image ls`, `weir image rm`)",
			     LIMIT_IMAGES);
	image_table_clear(&t);
	return rc;
}

static int import(struct import *im, struct err *e)
{
	char state[PATH_MAX], name[IMAGE_NAME_MAX];
	struct image_table t = {0};
	int rc = find_source(im, e);

	if (rc == 0)
		rc = launch_state_dir(im->r->state_dir, &im->state, e);
	if (rc < 0)
		return rc;
	if (!realpath(im->r->state_dir, state))
		return err_errno(e, errno, "--state-dir", "%s", im->r->state_dir);
	if ((size_t)snprintf(im->images, sizeof im->images, "%s/" IMAGES_DIR, state) >= sizeof im->images)
		return err_set(e, ENAMETOOLONG, "--state-dir", "path too long: %s", state);
	rc = room_for_one(im, e);
	if (rc == 0)
		rc = unpack(im, e);
	if (rc < 0)
		return rc;
	choose_name(im, name);
	rc = add(im, &t, name, e);
	if (rc == 0)
		rc = show(im, image_table_by_digest(&t, im->unpacked.digest), name, e);
	image_table_clear(&t);
	return rc;
}

int image_import(const struct image_import *r, struct err *e)
{
	_cleanup_free_ struct import *im = calloc(1, sizeof *im);
	int rc;

	if (!im)
		return err_set(e, ENOMEM, "", "out of memory");
	im->r = r;
	im->state = im->archive = -1;
	rc = import(im, e);
	image_entry_clear(&im->entry);
	cleanup_fdp(&im->state);
	cleanup_fdp(&im->archive);
	return rc;
}
