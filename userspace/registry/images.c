/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/images.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/cleanup.h"
#include "core/envname.h"
#include "core/policy_read.h"

#define VERSION 1
#define DEPTH 8
#define HEX_LEAST 12 /* digits that name an image when they fit one */

/* ---- names and places ---- */

static bool is_hex(const char *text, size_t n)
{
	return strspn(text, "0123456789abcdef") == n && !text[n];
}

bool image_digest_ok(const char *digest)
{
	return is_hex(digest, IMAGE_HEX);
}

bool image_name_ok(const char *name)
{
	size_t n = strlen(name);
	bool inside = false; /* a letter or digit stands before, so that a separator may follow */

	if (!n || n >= IMAGE_NAME_MAX || !strncmp(name, "sha256:", 7) || (n >= HEX_LEAST && is_hex(name, n)))
		return false;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)name[i];
		bool plain = c < 0x80 && isalnum(c);

		/* "__" and "--" occur in real names; ".." and "//" are no part of one. */
		if (!plain && !(strchr("_-", c) ? i > 0 : inside && strchr("./:", c)))
			return false;
		inside = plain || (c == '_' || c == '-');
	}
	return inside;
}

/* Of text that a terminal may get to see. */
static bool is_clean(const char *text)
{
	for (const char *p = text; *p; p++) {
		unsigned char c = (unsigned char)*p;

		if (c < 0x20 || c == 0x7f || (c == 0xc2 && (unsigned char)p[1] >= 0x80 && (unsigned char)p[1] < 0xa0))
			return false;
	}
	return true;
}

static bool leads_up(const char *path)
{
	for (const char *p = path; (p = strstr(p, "/..")); p += 3)
		if (p[3] == '/' || !p[3])
			return true;
	return false;
}

bool image_workdir_ok(const char *workdir)
{
	return workdir[0] == '/' && strlen(workdir) < IMAGE_WORKDIR_MAX && is_clean(workdir) && !leads_up(workdir);
}

/* ---- credentials ---- */

enum part {
	WORD,	/* between underscores */
	ENDING, /* of such a word */
	ANYWHERE,
};

bool image_variable_is_secret(const char *name, size_t len)
{
	static const struct {
		const char *text;
		enum part part;
	} rows[] = {
	    {"KEY", ENDING},
	    {"KEYS", ENDING},
	    {"TOKEN", ENDING},
	    {"SECRET", ANYWHERE},
	    {"PASSWORD", ANYWHERE},
	    {"PASSWD", ANYWHERE},
	    {"PASS", ENDING},
	    {"PWD", WORD},
	    {"PASSPHRASE", ANYWHERE},
	    {"CREDENTIAL", ANYWHERE},
	    {"CREDS", ENDING},
	    {"AUTH", WORD},
	    {"AUTHORIZATION", WORD},
	    {"COOKIE", ENDING},
	    {"PRIVATE", WORD},
	    {"JWT", WORD},
	    {"PAT", WORD},
	    {"DSN", WORD},
	    {"WEBHOOK", WORD},
	    {"CONNECTION_STRING", ANYWHERE},
	    {"CONNSTR", ANYWHERE},
	    {"SAS", WORD},
	};
	/* What a shell sets for itself. */
	if ((len == 3 && !memcmp(name, "PWD", 3)) || (len == 6 && !memcmp(name, "OLDPWD", 6)))
		return false;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		size_t n = strlen(rows[i].text);

		for (size_t at = 0; at + n <= len; at++) {
			bool begins = at == 0 || !isalnum((unsigned char)name[at - 1]);
			bool ends = at + n == len || !isalnum((unsigned char)name[at + n]);

			if (!strncasecmp(name + at, rows[i].text, n) &&
			    (rows[i].part == ANYWHERE || (ends && (rows[i].part == ENDING || begins))))
				return true;
		}
	}
	return false;
}

/* "scheme://user:password@host". */
static bool has_password(const char *value)
{
	for (const char *p = value; (p = strstr(p, "://")); p += 3) {
		size_t n = strcspn(p + 3, "/?#@ ");
		const char *colon = memchr(p + 3, ':', n);

		if (p[3 + n] == '@' && colon && colon + 1 < p + 3 + n)
			return true;
	}
	return false;
}

/* ---- blocks of variables ---- */

/* An empty one is a NUL. Appends `text` and its NUL before that. */
static int block_append(char **block, size_t *len, const char *text, size_t text_len)
{
	size_t used = *len ? *len - 1 : 0;
	char *more = realloc(*block, used + text_len + 2);

	if (!more)
		return -ENOMEM;
	if (text_len) {
		memcpy(more + used, text, text_len);
		used += text_len;
		more[used++] = 0;
	}
	more[used++] = 0;
	*block = more;
	*len = used;
	return 0;
}

const char *image_variables_next(const char *block, size_t len, const char *at)
{
	const char *next = at ? at + strlen(at) + 1 : block;

	return next && len && next < block + len - 1 ? next : NULL;
}

static void block_remove(char *block, size_t *len, const char *entry)
{
	size_t n = strlen(entry) + 1, before = (size_t)(entry - block);

	memmove(block + before, block + before + n, *len - before - n);
	*len -= n;
}

/* Length of the name in "NAME=VALUE", or 0 for what is none. */
static size_t name_of(const char *text, size_t len)
{
	const char *equals = memchr(text, '=', len);
	size_t n = equals ? (size_t)(equals - text) : 0;
	enum envname_problem problem = envname_check(text, n);

	return memchr(text, 0, len) || (problem != ENVNAME_OK && problem != ENVNAME_RESERVED) ? 0 : n;
}

int image_variables_add(char **block, size_t *len, const char *text, size_t text_len)
{
	size_t n = name_of(text, text_len);

	if (!n)
		return -EINVAL;
	for (const char *at = NULL; (at = image_variables_next(*block, *len, at));)
		if (!strncmp(at, text, n + 1)) {
			block_remove(*block, len, at);
			break;
		}
	if ((*len ? *len : 1) + text_len + 1 > LIMIT_IMAGE_VARIABLES_BYTES)
		return -E2BIG;
	return block_append(block, len, text, text_len);
}

bool image_variables_ok(const char *block, size_t len)
{
	const char *at = NULL, *last = block;

	if (!len || len > LIMIT_IMAGE_VARIABLES_BYTES || block[len - 1] || (len > 1 && block[len - 2]))
		return false;
	while ((at = image_variables_next(block, len, at))) {
		if (!name_of(at, strlen(at)))
			return false;
		last = at + strlen(at) + 1;
	}
	return last == block + len - 1;
}

int image_variables_share(const char *block, size_t len, char **ret_given, size_t *ret_given_len, char **ret_withheld,
			  size_t *ret_withheld_len)
{
	_cleanup_free_ char *given = NULL, *withheld = NULL;
	size_t given_len = 0, withheld_len = 0;
	int rc = block_append(&given, &given_len, "", 0);

	if (rc == 0)
		rc = block_append(&withheld, &withheld_len, "", 0);
	for (const char *at = NULL; rc == 0 && (at = image_variables_next(block, len, at));) {
		size_t n = name_of(at, strlen(at));

		if (!n)
			return -EINVAL;
		if (envname_check(at, n) == ENVNAME_RESERVED || image_variable_is_secret(at, n) || has_password(at + n))
			rc = block_append(&withheld, &withheld_len, at, n);
		else
			rc = block_append(&given, &given_len, at, strlen(at));
	}
	if (rc < 0)
		return rc;
	*ret_given = TAKE_PTR(given);
	*ret_given_len = given_len;
	*ret_withheld = TAKE_PTR(withheld);
	*ret_withheld_len = withheld_len;
	return 0;
}

/* ---- from JSON ---- */

struct text_rule {
	size_t size; /* of the field */
	bool empty;  /* may be */
	bool (*ok)(const char *text);
	const char *what; /* it must be */
};

static bool is_path(const char *text)
{
	return text[0] == '/' && is_clean(text) && !leads_up(text);
}

static bool is_kind(const char *text)
{
	static const char *const kinds[] = {"oci-layout", "oci-archive", "docker-archive", "directory"};

	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (!strcmp(text, kinds[i]))
			return true;
	return false;
}

static const char *read_string(const json_t *v, const struct spot *at, const struct text_rule *rule, struct err *e)
{
	const char *text = json_string_value(v);
	size_t n = json_string_length(v);

	if (!text) {
		spot_wrong_kind(at, e, "a string", v);
		return NULL;
	}
	if (n >= rule->size) {
		spot_fail(at, e, EINVAL, "has %zu bytes; at most %zu are allowed", n, rule->size - 1);
		return NULL;
	}
	if (!(rule->empty && !n) && !rule->ok(text)) {
		spot_fail(at, e, EINVAL, "must be %s", rule->what);
		return NULL;
	}
	return text;
}

static int read_text(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	const char *text = read_string(v, at, key->arg, e);

	if (!text)
		return -EINVAL;
	memcpy(field, text, strlen(text) + 1);
	return 0;
}

static int read_time(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	static const struct range any = {0, INT64_MAX};
	uint64_t t = 0;
	int rc = read_number(v, at, &any, &t, e);

	(void)key;
	*(int64_t *)field = (int64_t)t;
	return rc;
}

/* Into the block at `field`, whose length stands behind it. */
static int read_variables(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	struct image_entry *entry = field; /* its offset is 0: two members belong together */
	size_t i;
	json_t *item;
	int rc;

	(void)key;
	if (!json_is_array(v))
		return spot_wrong_kind(at, e, "a list of \"NAME=VALUE\"", v);
	rc = block_append(&entry->variables, &entry->variables_len, "", 0);
	json_array_foreach((json_t *)v, i, item)
	{
		struct spot here = {.up = at, .index = i};
		size_t before = entry->variables_len;

		if (rc == 0 && !json_is_string(item))
			return spot_wrong_kind(&here, e, "a string", item);
		if (rc == 0)
			rc = image_variables_add(&entry->variables, &entry->variables_len, json_string_value(item),
						 json_string_length(item));
		if (rc == -EINVAL)
			return spot_fail(&here, e, EINVAL, "must be \"NAME=VALUE\"");
		if (rc == -E2BIG)
			return spot_fail(&here, e, E2BIG, "makes over %d bytes with those before it",
					 LIMIT_IMAGE_VARIABLES_BYTES);
		if (rc == 0 && entry->variables_len != before + json_string_length(item) + 1)
			return spot_fail(&here, e, EINVAL, "names a variable that is there already");
	}
	return rc < 0 ? err_set(e, ENOMEM, "", "out of memory") : 0;
}

static int read_withheld(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	struct image_entry *entry = field;
	size_t i;
	json_t *item;
	int rc;

	(void)key;
	if (!json_is_array(v))
		return spot_wrong_kind(at, e, "a list of names", v);
	rc = block_append(&entry->withheld, &entry->withheld_len, "", 0);
	json_array_foreach((json_t *)v, i, item)
	{
		struct spot here = {.up = at, .index = i};
		const char *name = json_string_value(item);
		size_t n = json_string_length(item);

		if (rc == 0 && !json_is_string(item))
			return spot_wrong_kind(&here, e, "a string", item);
		if (rc == 0 && envname_check(name, n) != ENVNAME_OK && envname_check(name, n) != ENVNAME_RESERVED)
			return spot_fail(&here, e, EINVAL, "must be the name of a variable");
		if (rc == 0 && entry->withheld_len + n + 1 > LIMIT_IMAGE_VARIABLES_BYTES)
			return spot_fail(&here, e, E2BIG, "makes over %d bytes with those before it",
					 LIMIT_IMAGE_VARIABLES_BYTES);
		if (rc == 0)
			rc = block_append(&entry->withheld, &entry->withheld_len, name, n);
	}
	return rc < 0 ? err_set(e, ENOMEM, "", "out of memory") : 0;
}

static int read_names(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	static const struct text_rule rule = {IMAGE_NAME_MAX, false, image_name_ok, "a name of letters, digits and ._-/:"};
	struct image_entry *entry = field;
	size_t i;
	json_t *item;

	(void)key;
	if (!json_is_array(v))
		return spot_wrong_kind(at, e, "a list of names", v);
	if (json_array_size(v) > IMAGE_NAMES)
		return spot_fail(at, e, EINVAL, "has %zu names; at most %d are allowed", json_array_size(v), IMAGE_NAMES);
	json_array_foreach((json_t *)v, i, item)
	{
		struct spot here = {.up = at, .index = i};
		const char *name = read_string(item, &here, &rule, e);

		if (!name)
			return -EINVAL;
		memcpy(entry->names[i], name, strlen(name) + 1);
		entry->name_count = i + 1;
	}
	return 0;
}

#define TEXT(field_size, may_be_empty, check, words)                                                                           \
	&(const struct text_rule)                                                                                              \
	{                                                                                                                      \
		(field_size), (may_be_empty), (check), (words)                                                                 \
	}
#define PYTHON(member, may_be_empty, check, words)                                                                             \
	{                                                                                                                      \
#member, true, read_text, offsetof(struct python, member),                                                     \
		    TEXT(sizeof((struct python *)0)->member, may_be_empty, check, words)                                       \
	}

static const struct range any_u32 = {0, UINT32_MAX}, any_u64 = {0, INT64_MAX};

static const struct key python_keys[] = {
    PYTHON(version, false, is_clean, "a version"),
    PYTHON(executable, false, is_path, "an absolute path"),
    PYTHON(prefix, false, is_path, "an absolute path"),
    PYTHON(stdlib, false, is_path, "an absolute path"),
    PYTHON(platlib, false, is_path, "an absolute path"),
    PYTHON(site, false, is_path, "an absolute path"),
    PYTHON(matplotlib, true, is_path, "an absolute path, or empty"),
    PYTHON(slow, true, is_clean, "text without control characters"),
    {"modules", true, read_u32, offsetof(struct python, modules), &any_u32},
    {"compiled", true, read_u32, offsetof(struct python, compiled), &any_u32},
};

static int read_python(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	(void)key;
	return read_object(v, at, "an interpreter", python_keys, READ_COUNT(python_keys), field, e);
}

#define ENTRY(member, may_be_empty, check, words)                                                                              \
	{                                                                                                                      \
#member, true, read_text, offsetof(struct image_entry, member),                                                \
		    TEXT(sizeof((struct image_entry *)0)->member, may_be_empty, check, words)                                  \
	}

static const struct key entry_keys[] = {
    ENTRY(digest, false, image_digest_ok, "64 hexadecimal digits of lower case"),
    {"names", true, read_names, 0, NULL},
    ENTRY(kind, false, is_kind, "\"oci-layout\", \"oci-archive\", \"docker-archive\" or \"directory\""),
    ENTRY(source, true, is_clean, "text without control characters"),
    {"imported", true, read_time, offsetof(struct image_entry, imported_s), NULL},
    {"bytes", true, read_u64, offsetof(struct image_entry, bytes), &any_u64},
    {"entries", true, read_u64, offsetof(struct image_entry, entries), &any_u64},
    {"left_out", true, read_u64, offsetof(struct image_entry, left_out), &any_u64},
    {"python", true, read_python, offsetof(struct image_entry, python), NULL},
    ENTRY(workdir, true, image_workdir_ok, "an absolute path without \"..\", or empty"),
    {"variables", true, read_variables, 0, NULL},
    {"withheld", true, read_withheld, 0, NULL},
};

static int read_entry(const json_t *v, const struct spot *at, struct image_entry *entry, struct err *e)
{
	return read_object(v, at, "an image", entry_keys, READ_COUNT(entry_keys), entry, e);
}

/* Something that is one entry's alone. */
struct claim {
	const char *text;
	size_t entry;
};

static int by_text(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;
	int d = strcmp(x->text, y->text);

	return d ? d : (x->entry > y->entry) - (x->entry < y->entry);
}

/* Neither a digest nor a name is there twice. They can't be mistaken for each other (image_name_ok()). */
static int check_unique(const struct image_table *t, const struct spot *at, struct err *e)
{
	_cleanup_free_ struct claim *claims = calloc(t->count * (1 + IMAGE_NAMES) + 1, sizeof *claims);
	size_t n = 0;

	if (!claims)
		return err_set(e, ENOMEM, "", "out of memory");
	for (size_t i = 0; i < t->count; i++) {
		claims[n++] = (struct claim){t->entries[i].digest, i};
		for (size_t k = 0; k < t->entries[i].name_count; k++)
			claims[n++] = (struct claim){t->entries[i].names[k], i};
	}
	qsort(claims, n, sizeof *claims, by_text);
	for (size_t i = 1; i < n; i++) {
		struct spot here = {.up = at, .index = claims[i].entry};

		if (strcmp(claims[i].text, claims[i - 1].text) != 0)
			continue;
		return spot_fail(&here, e, EINVAL,
				 image_digest_ok(claims[i].text) ? "has the digest of another image (%.12s)"
								 : "has the name \"%s\", which is there already",
				 claims[i].text);
	}
	return 0;
}

static int read_images(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	struct image_table *t = field;
	size_t i;
	json_t *item;

	(void)key;
	if (!json_is_array(v))
		return spot_wrong_kind(at, e, "a list of images", v);
	if (json_array_size(v) > LIMIT_IMAGES)
		return spot_fail(at, e, E2BIG, "has %zu images; at most %d are allowed", json_array_size(v), LIMIT_IMAGES);
	t->entries = calloc(json_array_size(v) + 1, sizeof *t->entries);
	if (!t->entries)
		return err_set(e, ENOMEM, "", "out of memory");
	json_array_foreach((json_t *)v, i, item)
	{
		struct spot here = {.up = at, .index = i};
		int rc;

		t->count = i + 1;
		rc = read_entry(item, &here, &t->entries[i], e);
		if (rc < 0)
			return rc;
	}
	return check_unique(t, at, e);
}

static int read_version(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	static const struct range one = {VERSION, VERSION};
	uint64_t n;

	(void)key;
	(void)field;
	return read_number(v, at, &one, &n, e);
}

int image_table_parse(const char *text, size_t len, struct image_table *ret, struct err *e)
{
	static const struct key keys[] = {{"version", true, read_version, 0, NULL}, {"images", true, read_images, 0, NULL}};
	static const struct spot top = {0};
	_cleanup_json_ json_t *doc = NULL;
	struct image_table t = {0};
	int rc = len > LIMIT_REGISTRY_BYTES
		     ? err_set(e, EFBIG, "", "a table of images has at most %lld bytes", (long long)LIMIT_REGISTRY_BYTES)
		     : read_document(text, len, DEPTH, &doc, e);

	if (rc == 0)
		rc = read_object(doc, &top, "the table of images", keys, READ_COUNT(keys), &t, e);
	if (rc < 0) {
		image_table_clear(&t);
		return rc;
	}
	*ret = t;
	return 0;
}

/* ---- to JSON ---- */

/* Takes `value`; NULL is a lack of memory, or text that is no UTF-8. */
static bool put(json_t *object, const char *key, json_t *value)
{
	return json_object_set_new(object, key, value) == 0;
}

static json_t *block_json(const char *block, size_t len)
{
	json_t *list = json_array();

	for (const char *at = NULL; list && (at = image_variables_next(block, len, at));)
		if (json_array_append_new(list, json_string(at)) < 0) {
			json_decref(list);
			list = NULL;
		}
	return list;
}

static json_t *names_json(const struct image_entry *entry)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < entry->name_count; i++)
		if (json_array_append_new(list, json_string(entry->names[i])) < 0) {
			json_decref(list);
			list = NULL;
		}
	return list;
}

static json_t *python_json(const struct python *py)
{
	json_t *j = json_object();

	if (put(j, "version", json_string(py->version)) && put(j, "executable", json_string(py->executable)) &&
	    put(j, "prefix", json_string(py->prefix)) && put(j, "stdlib", json_string(py->stdlib)) &&
	    put(j, "platlib", json_string(py->platlib)) && put(j, "site", json_string(py->site)) &&
	    put(j, "matplotlib", json_string(py->matplotlib)) && put(j, "slow", json_string(py->slow)) &&
	    put(j, "modules", json_integer(py->modules)) && put(j, "compiled", json_integer(py->compiled)))
		return j;
	json_decref(j);
	return NULL;
}

static json_t *entry_json(const struct image_entry *entry)
{
	json_t *j = json_object();

	if (put(j, "digest", json_string(entry->digest)) && put(j, "names", names_json(entry)) &&
	    put(j, "kind", json_string(entry->kind)) && put(j, "source", json_string(entry->source)) &&
	    put(j, "imported", json_integer(entry->imported_s)) && put(j, "bytes", json_integer((json_int_t)entry->bytes)) &&
	    put(j, "entries", json_integer((json_int_t)entry->entries)) &&
	    put(j, "left_out", json_integer((json_int_t)entry->left_out)) && put(j, "python", python_json(&entry->python)) &&
	    put(j, "workdir", json_string(entry->workdir)) &&
	    put(j, "variables", block_json(entry->variables, entry->variables_len)) &&
	    put(j, "withheld", block_json(entry->withheld, entry->withheld_len)))
		return j;
	json_decref(j);
	return NULL;
}

char *image_table_text(const struct image_table *t, size_t *ret_len)
{
	_cleanup_json_ json_t *top = json_object();
	json_t *list = json_array();
	bool whole = put(top, "version", json_integer(VERSION));
	char *text;

	for (size_t i = 0; i < t->count; i++)
		whole = json_array_append_new(list, entry_json(&t->entries[i])) == 0 && whole;
	whole = put(top, "images", list) && whole;
	text = whole ? json_dumps(top, JSON_INDENT(1)) : NULL;
	if (text)
		*ret_len = strlen(text);
	return text;
}

/* ---- the table ---- */

void image_entry_clear(struct image_entry *entry)
{
	free(entry->variables);
	free(entry->withheld);
	*entry = (struct image_entry){0};
}

void image_table_clear(struct image_table *t)
{
	for (size_t i = 0; i < t->count; i++)
		image_entry_clear(&t->entries[i]);
	free(t->entries);
	*t = (struct image_table){0};
}

struct image_entry *image_table_by_digest(const struct image_table *t, const char *digest)
{
	for (size_t i = 0; i < t->count; i++)
		if (!strcmp(t->entries[i].digest, digest))
			return &t->entries[i];
	return NULL;
}

int image_table_put(struct image_table *t, struct image_entry *entry, struct err *e)
{
	struct image_entry *place = image_table_by_digest(t, entry->digest), *more;

	if (!place && t->count >= LIMIT_IMAGES)
		return err_set(e, ENOSPC, "", "there are %d images already: remove one (`weir image ls`, `weir image rm`)",
			       LIMIT_IMAGES);
	if (!place) {
		more = reallocarray(t->entries, t->count + 1, sizeof *more);
		if (!more)
			return err_set(e, ENOMEM, "", "out of memory");
		t->entries = more;
		place = &more[t->count++];
	} else {
		image_entry_clear(place);
	}
	*place = *entry;
	*entry = (struct image_entry){0};
	return 0;
}

static void drop_name(struct image_entry *entry, const char *name)
{
	for (size_t i = 0; i < entry->name_count; i++)
		if (!strcmp(entry->names[i], name)) {
			memmove(entry->names[i], entry->names[i + 1], (entry->name_count - i - 1) * sizeof entry->names[0]);
			entry->name_count--;
			return;
		}
}

void image_table_unname(struct image_table *t, const char *name)
{
	for (size_t i = 0; i < t->count; i++)
		drop_name(&t->entries[i], name);
}

int image_table_name(struct image_table *t, const char *digest, const char *name, struct err *e)
{
	struct image_entry *entry = image_table_by_digest(t, digest);

	if (!entry || !image_name_ok(name))
		return err_set(e, EINVAL, "", "\"%s\" is no name for an image", name);
	for (size_t i = 0; i < entry->name_count; i++)
		if (!strcmp(entry->names[i], name))
			return 0;
	if (entry->name_count == IMAGE_NAMES)
		return err_set(e, ENOSPC, "", "this image has %d names already (%s, …): no more fit", IMAGE_NAMES,
			       entry->names[0]);
	image_table_unname(t, name);
	snprintf(entry->names[entry->name_count++], IMAGE_NAME_MAX, "%s", name);
	return 0;
}

bool image_table_remove(struct image_table *t, const char *digest)
{
	struct image_entry *entry = image_table_by_digest(t, digest);
	size_t i;

	if (!entry)
		return false;
	i = (size_t)(entry - t->entries);
	image_entry_clear(entry);
	memmove(entry, entry + 1, (t->count - i - 1) * sizeof *entry);
	t->count--;
	return true;
}

/* ---- finding ---- */

static const struct image_entry *by_name(const struct image_table *t, const char *name)
{
	for (size_t i = 0; i < t->count; i++)
		for (size_t k = 0; k < t->entries[i].name_count; k++)
			if (!strcmp(t->entries[i].names[k], name))
				return &t->entries[i];
	return NULL;
}

/* What has a tag has a colon in its last component. */
static const struct image_entry *by_latest(const struct image_table *t, const char *name)
{
	const char *slash = strrchr(name, '/');
	char latest[IMAGE_NAME_MAX];

	if (strchr(slash ? slash : name, ':') || (size_t)snprintf(latest, sizeof latest, "%s:latest", name) >= sizeof latest)
		return NULL;
	return by_name(t, latest);
}

/* "weather:2, other, 3f2a10bc94de": the first ten. */
static void list_images(const struct image_table *t, char *ret, size_t size)
{
	size_t used = 0;

	snprintf(ret, size, "none");
	for (size_t i = 0; i < t->count && i < 10 && used < size; i++) {
		const struct image_entry *entry = &t->entries[i];
		int cut = entry->name_count ? IMAGE_NAME_MAX : HEX_LEAST;

		used += (size_t)snprintf(ret + used, size - used, "%s%.*s", i ? ", " : "", cut,
					 entry->name_count ? entry->names[0] : entry->digest);
	}
	if (t->count > 10 && used < size)
		snprintf(ret + used, size - used, ", …");
}

const struct image_entry *image_table_find(const struct image_table *t, const char *ref, struct err *e)
{
	const char *hex = !strncmp(ref, "sha256:", 7) ? ref + 7 : ref;
	const struct image_entry *found = by_name(t, ref);
	size_t n = strlen(hex), fitting = 0;
	char list[800];

	if (!found)
		found = by_latest(t, ref);
	if (found)
		return found;
	if (n >= HEX_LEAST && n <= IMAGE_HEX && is_hex(hex, n))
		for (size_t i = 0; i < t->count; i++)
			if (!strncmp(t->entries[i].digest, hex, n)) {
				found = &t->entries[i];
				fitting++;
			}
	if (fitting == 1)
		return found;
	if (fitting > 1) {
		err_set(e, EINVAL, "", "%zu images have a digest that begins with %.64s: give more of it", fitting, hex);
		return NULL;
	}
	list_images(t, list, sizeof list);
	err_set(e, ENOENT, "", "no image \"%.128s\"; there is: %s", ref, list);
	return NULL;
}
