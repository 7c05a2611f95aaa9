/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The images that `weir image import` has unpacked: a table in <state-dir>/images.json, read by the command line and by the
 * supervisor. What is in it was found out when the image was imported, so that nobody has to run anything of an image to use
 * it. Text to table and back is pure; files are store.c's.
 */
#ifndef WEIR_REGISTRY_IMAGES_H
#define WEIR_REGISTRY_IMAGES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"
#include "python.h"

#define IMAGE_HEX 64	   /* of a SHA-256 */
#define IMAGE_NAME_MAX 128 /* "weather" or "weather:2" or "registry.example/weather:2" */
#define IMAGE_NAMES 8	   /* of one image */
#define IMAGE_WORKDIR_MAX 256
#define IMAGE_SOURCE_MAX 256

struct image_entry {
	char
	    digest[IMAGE_HEX + 1]; /* SHA-256 in hex: of the manifest, of a docker archive's configuration, or of a directory */
	char names[IMAGE_NAMES][IMAGE_NAME_MAX]; /* a name is one image's alone; the newest import takes it */
	size_t name_count;
	char kind[16];		       /* "oci-layout", "oci-archive", "docker-archive", "directory" */
	char source[IMAGE_SOURCE_MAX]; /* as it was given, for people */
	int64_t imported_s;	       /* Unix time */
	uint64_t bytes, entries, left_out;
	struct python python;		 /* as it said of itself, once */
	char workdir[IMAGE_WORKDIR_MAX]; /* of the image's configuration; "" none */
	char *
	    variables; /* "NAME=VALUE", each ended by NUL, one more at the end; malloc'd, never NULL in a table that was read */
	size_t variables_len; /* with that last NUL */
	char *withheld;	      /* names of variables that look like credentials and are not given to tools; as above */
	size_t withheld_len;
};

struct image_table {
	struct image_entry *entries;
	size_t count;
};

/* Strict: unknown or repeated keys, wrong types and values out of their range are errors with the place in `where`. */
int image_table_parse(const char *text, size_t len, struct image_table *ret, struct err *e);
/* malloc'd text, or NULL without memory. Text in an entry must be UTF-8. */
char *image_table_text(const struct image_table *t, size_t *ret_len);
void image_table_clear(struct image_table *t);

/*
 * By name, by "sha256:HEX" or by HEX, of which 12 digits or more will do when they fit one image. A name without a tag means
 * the one with ":latest" too. NULL: none, with an error that lists what there is (at most ten).
 */
const struct image_entry *image_table_find(const struct image_table *t, const char *ref, struct err *e);

/* The one with this whole digest, or NULL. */
struct image_entry *image_table_by_digest(const struct image_table *t, const char *digest);

/*
 * Puts an entry in, or in the place of the one with its digest; whatever it owns is the table's then. -ENOSPC: there are
 * LIMIT_IMAGES. -ENOMEM. The caller's entry is its own still after an error.
 */
int image_table_put(struct image_table *t, struct image_entry *entry, struct err *e);

/* Gives it a name, which the image that has it loses. -ENOSPC: it has IMAGE_NAMES already. */
int image_table_name(struct image_table *t, const char *digest, const char *name, struct err *e);

/* Takes a name away from whoever has it. */
void image_table_unname(struct image_table *t, const char *name);

/* Takes an entry out. Whether there was one. */
bool image_table_remove(struct image_table *t, const char *digest);

void image_entry_clear(struct image_entry *entry);

/*
 * Letters, digits and, between them, any of "._-/:"; not what looks like a digest, less than IMAGE_NAME_MAX bytes.
 */
bool image_name_ok(const char *name);

/* 64 digits of lower case. */
bool image_digest_ok(const char *digest);

/* Whether a directory of an image: absolute, UTF-8 without control characters, no "..", less than IMAGE_WORKDIR_MAX bytes. */
bool image_workdir_ok(const char *workdir);

/* Whether a variable of an image's configuration looks like a credential ("…KEY", "…TOKEN", "…SECRET…", "…PASSWORD…", …): its
 * tools do not get it. */
bool image_variable_is_secret(const char *name, size_t len);

/* ---- variables as blocks: "NAME=VALUE", each ended by NUL, one more NUL at the end ---- */

/*
 * Appends one to a malloc'd block (NULL with a length of 0: a new one). What the name already stood for is replaced. -EINVAL:
 * no "=", a name that is none (core/envname.h; what the platform reserves is one here), a NUL; -E2BIG: over
 * LIMIT_IMAGE_VARIABLES_BYTES in all; -ENOMEM.
 */
int image_variables_add(char **block, size_t *len, const char *text, size_t text_len);

/* The next one after `at` (NULL: the first), or NULL. */
const char *image_variables_next(const char *block, size_t len, const char *at);

/* Whether `len` bytes are such a block, and at most LIMIT_IMAGE_VARIABLES_BYTES. */
bool image_variables_ok(const char *block, size_t len);

/*
 * Shares an image's own environment out: what its tools get, and the names of what they do not: credentials by their name or,
 * a URL with a password in it, by their value; and what the platform tells by itself. Both malloc'd.
 */
int image_variables_share(const char *block, size_t len, char **ret_given, size_t *ret_given_len, char **ret_withheld,
			  size_t *ret_withheld_len);

#endif
