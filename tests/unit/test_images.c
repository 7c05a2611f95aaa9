/* SPDX-License-Identifier: Apache-2.0 */
/* The table of images: to text and back, what is refused, how one is found; its file, and who may write it when. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "registry/store.h"
#include "unpack.h"

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define PYTHON                                                                                                                 \
	"{\"version\": \"3.12.1\", \"executable\": \"/opt/venv/bin/python3\", \"prefix\": \"/usr/local\", "                    \
	"\"stdlib\": \"/usr/local/lib/python3.12\", \"platlib\": \"/usr/local/lib/python3.12\", "                              \
	"\"site\": \"/opt/venv/lib/python3.12/site-packages\", \"matplotlib\": \"\", \"slow\": \"\", \"modules\": 900, "       \
	"\"compiled\": 880}"
#define REST                                                                                                                   \
	"\"kind\": \"docker-archive\", \"source\": \"w.tar\", \"imported\": 1795996800, \"bytes\": 7, \"entries\": 3, "        \
	"\"left_out\": 1, \"python\": " PYTHON ", \"workdir\": \"/app\""
#define ENTRY(digest, names)                                                                                                   \
	"{\"digest\": \"" digest "\", \"names\": [" names "], " REST ", \"variables\": [\"PATH=/bin\", \"X=a=b\"], "           \
	"\"withheld\": [\"API_KEY\"]}"
#define TABLE(entries) "{\"version\": 1, \"images\": [" entries "]}"

static int parse(const char *text, struct image_table *t, struct err *e)
{
	*e = (struct err){0};
	*t = (struct image_table){0};
	return image_table_parse(text, strlen(text), t, e);
}

static struct image_table table_of(const char *text)
{
	struct image_table t;
	struct err e;

	if (parse(text, &t, &e) < 0)
		fail_msg("at \"%s\": %s", e.where, e.msg);
	return t;
}

/* ---- text ---- */

static void test_round(void **state)
{
	struct image_table t = table_of(TABLE(ENTRY(A, "\"w:2\", \"r.example:5000/team/w_x--1.0:latest\"") "," ENTRY(B, "")));
	static const char block[] = "PATH=/bin\0X=a=b\0";
	const struct image_entry *a = &t.entries[0];
	char *text, *again;
	size_t len = 0, len2 = 0;
	struct image_table t2;
	struct err e;

	(void)state;
	assert_int_equal(t.count, 2);
	assert_string_equal(a->digest, A);
	assert_int_equal(a->name_count, 2);
	assert_string_equal(a->names[1], "r.example:5000/team/w_x--1.0:latest");
	assert_string_equal(a->kind, "docker-archive");
	assert_string_equal(a->source, "w.tar");
	assert_int_equal(a->imported_s, 1795996800);
	assert_int_equal(a->bytes, 7);
	assert_int_equal(a->entries, 3);
	assert_int_equal(a->left_out, 1);
	assert_string_equal(a->python.executable, "/opt/venv/bin/python3");
	assert_int_equal(a->python.compiled, 880);
	assert_string_equal(a->workdir, "/app");
	assert_int_equal(a->variables_len, sizeof block);
	assert_memory_equal(a->variables, block, sizeof block);
	assert_memory_equal(a->withheld, "API_KEY\0", 9);
	text = image_table_text(&t, &len);
	assert_non_null(text);
	assert_int_equal(parse(text, &t2, &e), 0);
	again = image_table_text(&t2, &len2);
	assert_string_equal(text, again);
	assert_int_equal(len, len2);
	free(text);
	free(again);
	image_table_clear(&t);
	image_table_clear(&t2);
}

static void test_refused(void **state)
{
	static const struct {
		const char *text, *where, *words;
	} rows[] = {
	    {"", "1:0", "ends too early"},
	    {"[]", "", "must be an object"},
	    {"{}", "", "\"version\" is missing"},
	    {"{\"version\": 2, \"images\": []}", "/version", "must be from 1 to 1"},
	    {"{\"version\": 1}", "", "\"images\" is missing"},
	    {"{\"version\": 1, \"images\": [], \"more\": 1}", "/more", "is not a key"},
	    {"{\"version\": 1, \"images\": [], \"images\": []}", "1:37", "twice"},
	    {"{\"version\": 1, \"images\": {}}", "/images", "must be a list of images"},
	    {TABLE("{}"), "/images/0", "\"digest\" is missing"},
	    {TABLE("7"), "/images/0", "must be an object"},
	    {TABLE(ENTRY("../../etc", "")), "/images/0/digest", "64 hexadecimal digits"},
	    {TABLE(ENTRY("A" A, "")), "/images/0/digest", "at most 64"},
	    {TABLE(ENTRY(A, "") "," ENTRY(A, "")), "/images/1", "the digest of another image"},
	    {TABLE(ENTRY(A, "\"w\"") "," ENTRY(B, "\"w\"")), "/images/1", "\"w\", which is there already"},
	    {TABLE(ENTRY(A, "\"w\", \"w\"")), "/images/0", "\"w\", which is there already"},
	    {TABLE(ENTRY(A, "\"w\", 7")), "/images/0/names/1", "must be a string"},
	    {TABLE(ENTRY(A, "\"../w\"")), "/images/0/names/0", "a name of letters"},
	    {TABLE(ENTRY(A, "\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"")), "/images/0/names", "at most 8"},
	    {TABLE("{\"digest\": \"" A "\", \"names\": [], \"odd\": 1, " REST ", \"variables\": [], \"withheld\": []}"),
	     "/images/0/odd", "is not a key of an image"},
	    {TABLE("{\"digest\": \"" A "\", \"names\": [], " REST ", \"variables\": [\"X\"], \"withheld\": []}"),
	     "/images/0/variables/0", "NAME=VALUE"},
	    {TABLE("{\"digest\": \"" A "\", \"names\": [], " REST ", \"variables\": [\"X=1\", \"X=2\"], \"withheld\": []}"),
	     "/images/0/variables/1", "there already"},
	    {TABLE("{\"digest\": \"" A "\", \"names\": [], " REST ", \"variables\": {}, \"withheld\": []}"),
	     "/images/0/variables", "must be a list"},
	    {TABLE("{\"digest\": \"" A "\", \"names\": [], " REST ", \"variables\": [], \"withheld\": [\"A=B\"]}"),
	     "/images/0/withheld/0", "the name of a variable"},
	    {TABLE("{\"digest\": \"" A "\", \"names\": [], " REST ", \"variables\": [], \"withheld\": [\"\"]}"),
	     "/images/0/withheld/0", "the name of a variable"},
	    {TABLE("{\"digest\": \"" A "\", \"names\": [], " REST ", \"variables\": []}"), "/images/0",
	     "\"withheld\" is missing"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct image_table t;
		struct err e;

		if (parse(rows[i].text, &t, &e) == 0)
			fail_msg("taken: %s", rows[i].text);
		if (strcmp(e.where, rows[i].where) != 0 || !strstr(e.msg, rows[i].words))
			fail_msg("%s: at \"%s\": %s", rows[i].text, e.where, e.msg);
	}
}

/* Each value of an entry, replaced by one that must not be. */
static void test_values(void **state)
{
	static const struct {
		const char *from, *to, *where;
	} rows[] = {
	    {"docker-archive", "zip", "/images/0/kind"},
	    {"\"docker-archive\"", "null", "/images/0/kind"},
	    {"w.tar", "w\\u001b[31m", "/images/0/source"},
	    {"w.tar", "w\\u0085", "/images/0/source"},
	    {"1795996800", "-1", "/images/0/imported"},
	    {"1795996800", "1.5", "/images/0/imported"},
	    {"\"bytes\": 7", "\"bytes\": \"7\"", "/images/0/bytes"},
	    {"\"entries\": 3", "\"entries\": -3", "/images/0/entries"},
	    {"\"left_out\": 1", "\"left_out\": true", "/images/0/left_out"},
	    {"\"/app\"", "\"app\"", "/images/0/workdir"},
	    {"\"/app\"", "\"/app/../..\"", "/images/0/workdir"},
	    {"/opt/venv/bin/python3", "python3", "/images/0/python/executable"},
	    {"/opt/venv/bin/python3", "/../x", "/images/0/python/executable"},
	    {"\"prefix\": \"/usr/local\"", "\"prefix\": \"\"", "/images/0/python/prefix"},
	    {"\"slow\": \"\"", "\"slow\": \"\\u0007\"", "/images/0/python/slow"},
	    {"\"modules\": 900", "\"modules\": 4294967296", "/images/0/python/modules"},
	    {"\"compiled\": 880", "\"compiled\": 880, \"more\": 1", "/images/0/python/more"},
	    {PYTHON, "[]", "/images/0/python"},
	};
	static const char whole[] = TABLE(ENTRY(A, "\"w\""));

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *at = strstr(whole, rows[i].from);
		struct image_table t;
		char text[4096];
		struct err e;

		assert_non_null(at);
		snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, rows[i].to, at + strlen(rows[i].from));
		if (parse(text, &t, &e) == 0)
			fail_msg("taken: %s", rows[i].to);
		if (strcmp(e.where, rows[i].where) != 0)
			fail_msg("%s: at \"%s\": %s", rows[i].to, e.where, e.msg);
	}
}

/* ---- names, credentials ---- */

static void test_names(void **state)
{
	static const char *const good[] = {
	    "w",       "weather", "weather:2",	  "r.example:5000/a/b_c:1.0-rc.1", "A", "localhost/w:latest", "0123456789a",
	    "a__b--c", "a-:1",	  "0123456789abg"};
	static const char *const bad[] = {"",	      "-w",   "_w",	  ".w",		  "w.",	 "w:",	 "w/",
					  "/w",	      "a//b", "a..b",	  "a/../b",	  "a b", "a\nb", "a@b",
					  "\xc3\xa9", "w$",   "sha256:x", "0123456789ab", A,	 "a:/b", "a/.b"};
	char name[IMAGE_NAME_MAX + 1];

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		if (!image_name_ok(good[i]))
			fail_msg("refused: %s", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (image_name_ok(bad[i]))
			fail_msg("taken: %s", bad[i]);
	memset(name, 'n', sizeof name);
	name[IMAGE_NAME_MAX] = 0;
	assert_false(image_name_ok(name));
	name[IMAGE_NAME_MAX - 1] = 0;
	assert_true(image_name_ok(name));
}

static void test_secrets(void **state)
{
	static const char *const secret[] = {"API_KEY",
					     "APIKEY",
					     "OPENAI_API_KEY",
					     "AWS_ACCESS_KEY_ID",
					     "AWS_SECRET_ACCESS_KEY",
					     "GITHUB_TOKEN",
					     "token",
					     "npm_config__authToken",
					     "SESSION_SECRET",
					     "SecretThing",
					     "PGPASSWORD",
					     "DB_PASS",
					     "DB_PWD",
					     "MYSQL_ROOT_PASSWORD",
					     "SSH_PRIVATE_KEY",
					     "GOOGLE_APPLICATION_CREDENTIALS",
					     "SENTRY_DSN",
					     "AZURE_STORAGE_CONNECTION_STRING",
					     "NPM_AUTH",
					     "SLACK_WEBHOOK_URL",
					     "JWT",
					     "GITHUB_PAT",
					     "SSH_KEYS",
					     "PASSPHRASE",
					     "HTTP_AUTHORIZATION",
					     "SERVICE_CREDS"};
	static const char *const plain[] = {"PATH",
					    "PYTHONPATH",
					    "PWD",
					    "OLDPWD",
					    "LANG",
					    "HOME",
					    "KEYBOARD",
					    "PATIENT",
					    "AUTHOR",
					    "MAX_TOKENS",
					    "TOKENIZERS_PARALLELISM",
					    "PYTHON_VERSION",
					    "VIRTUAL_ENV",
					    "LD_LIBRARY_PATH",
					    "TZ",
					    "COMPASSION",
					    ""};

	(void)state;
	for (size_t i = 0; i < sizeof secret / sizeof *secret; i++)
		if (!image_variable_is_secret(secret[i], strlen(secret[i])))
			fail_msg("given to tools: %s", secret[i]);
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
		if (image_variable_is_secret(plain[i], strlen(plain[i])))
			fail_msg("withheld: %s", plain[i]);
	assert_false(image_variable_is_secret("PATH_KEY", 4)); /* as long as it says */
}

static void test_shared_out(void **state)
{
	static const char *const rows[] = {"PATH=/opt/venv/bin:/bin",
					   "API_KEY=k",
					   "SANDBOX_TOKEN=t",
					   "PYTHONPATH=/app",
					   "DATABASE_URL=postgres://me:pw@db/x",
					   "INDEX_URL=https://me@pypi.example/simple",
					   "PROXY=http://a.example:80/x@y",
					   "TOOL_SANDBOX=1",
					   "EMPTY="};
	static const char given[] = "PATH=/opt/venv/bin:/bin\0PYTHONPATH=/app\0INDEX_URL=https://me@pypi.example/simple\0"
				    "PROXY=http://a.example:80/x@y\0EMPTY=\0";
	static const char withheld[] = "API_KEY\0SANDBOX_TOKEN\0DATABASE_URL\0TOOL_SANDBOX\0";
	char *block = NULL, *to = NULL, *kept = NULL;
	size_t len = 0, to_len = 0, kept_len = 0;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_int_equal(image_variables_add(&block, &len, rows[i], strlen(rows[i])), 0);
	assert_int_equal(image_variables_share(block, len, &to, &to_len, &kept, &kept_len), 0);
	assert_int_equal(to_len, sizeof given);
	assert_memory_equal(to, given, sizeof given);
	assert_int_equal(kept_len, sizeof withheld);
	assert_memory_equal(kept, withheld, sizeof withheld);
	free(block);
	free(to);
	free(kept);
}

static void test_blocks(void **state)
{
	static const struct {
		const char *block;
		size_t len;
		bool ok;
	} rows[] = {
	    {"", 1, true},	   {"", 0, false},	   {"A=1\0", 5, true},	   {"A=1\0", 4, false},
	    {"A=1\0\0", 6, false}, {"A=1\0B\0", 7, false}, {"A=1\0B=\0", 8, true}, {"=1\0", 4, false},
	    {"A\n=1\0", 6, false}, {"A=1x", 4, false},	   {"\0A=1\0", 6, false},
	};
	char *block = NULL, *big = malloc(LIMIT_IMAGE_VARIABLES_BYTES + 8);
	size_t len = 0;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (image_variables_ok(rows[i].block, rows[i].len) != rows[i].ok)
			fail_msg("row %zu", i);
	/* The last one of a name counts; a name that only begins like it is another. */
	assert_int_equal(image_variables_add(&block, &len, "A=1", 3), 0);
	assert_int_equal(image_variables_add(&block, &len, "AB=2", 4), 0);
	assert_int_equal(image_variables_add(&block, &len, "A=3", 3), 0);
	assert_int_equal(len, 10);
	assert_memory_equal(block, "AB=2\0A=3\0", 10);
	assert_int_equal(image_variables_add(&block, &len, "A=\0", 3), -EINVAL);
	assert_int_equal(image_variables_add(&block, &len, "A", 1), -EINVAL);
	/* As much as there may be, and one more. */
	assert_non_null(big);
	memset(big, 'v', LIMIT_IMAGE_VARIABLES_BYTES + 8);
	memcpy(big, "V=", 2);
	assert_int_equal(image_variables_add(&block, &len, big, LIMIT_IMAGE_VARIABLES_BYTES - 10), -E2BIG);
	assert_int_equal(image_variables_add(&block, &len, big, LIMIT_IMAGE_VARIABLES_BYTES - 11), 0);
	assert_int_equal(len, LIMIT_IMAGE_VARIABLES_BYTES);
	assert_true(image_variables_ok(block, len));
	free(block);
	free(big);
}

/* ---- finding and changing ---- */

#define C "aaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static void test_find(void **state)
{
	static const struct {
		const char *ref, *digest, *words;
	} rows[] = {
	    {"w:2", A, NULL},
	    {"w", B, NULL}, /* w:latest */
	    {"r.example:5000/x", C, NULL},
	    {"x:1", NULL, "no image \"x:1\"; there is: w:2, w:latest, r.example:5000/x:latest"},
	    {"w:latest:latest", NULL, "no image"},
	    {B, B, NULL},
	    {"sha256:" B, B, NULL},
	    {"sha256:bbbbbbbbbbbb", B, NULL},
	    {"bbbbbbbbbbb", NULL, "no image"},
	    {"aaaaaaaaaaaa", NULL, "2 images have a digest that begins with aaaaaaaaaaaa"},
	    {"aaaaaaaaaaaaa", A, NULL},
	    {"BBBBBBBBBBBB", NULL, "no image"},
	    {"", NULL, "no image"},
	    {B "b", NULL, "no image"},
	};
	struct image_table t =
	    table_of(TABLE(ENTRY(A, "\"w:2\"") "," ENTRY(B, "\"w:latest\"") "," ENTRY(C, "\"r.example:5000/x:latest\"")));
	struct image_table none = {0};
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct image_entry *found = image_table_find(&t, rows[i].ref, &e);

		if (rows[i].digest ? !found || strcmp(found->digest, rows[i].digest) != 0 : found != NULL)
			fail_msg("%s: %s", rows[i].ref, found ? found->digest : e.msg);
		if (!found && !strstr(e.msg, rows[i].words))
			fail_msg("%s: %s", rows[i].ref, e.msg);
	}
	assert_null(image_table_find(&none, "w", &e));
	assert_string_equal(e.msg, "no image \"w\"; there is: none");
	image_table_clear(&t);
}

static struct image_entry entry_of(const char *digest)
{
	struct image_table t = table_of(TABLE(ENTRY(A, "")));
	struct image_entry entry = t.entries[0];

	snprintf(entry.digest, sizeof entry.digest, "%s", digest);
	t.entries[0] = (struct image_entry){0};
	image_table_clear(&t);
	return entry;
}

static void test_change(void **state)
{
	struct image_table t = {0};
	struct image_entry a = entry_of(A), b = entry_of(B), again = entry_of(A);
	struct err e = {0};
	char name[16];

	(void)state;
	assert_int_equal(image_table_put(&t, &a, &e), 0);
	assert_null(a.variables); /* the table's now */
	assert_int_equal(image_table_put(&t, &b, &e), 0);
	again.bytes = 99;
	assert_int_equal(image_table_put(&t, &again, &e), 0);
	assert_int_equal(t.count, 2);
	assert_int_equal(image_table_by_digest(&t, A)->bytes, 99);
	/* A name moves to the newest. */
	assert_int_equal(image_table_name(&t, A, "w", &e), 0);
	assert_int_equal(image_table_name(&t, A, "w", &e), 0);
	assert_int_equal(image_table_by_digest(&t, A)->name_count, 1);
	assert_int_equal(image_table_name(&t, A, "v", &e), 0);
	assert_int_equal(image_table_name(&t, B, "w", &e), 0);
	assert_string_equal(image_table_find(&t, "w", &e)->digest, B);
	assert_int_equal(image_table_by_digest(&t, A)->name_count, 1);
	assert_string_equal(image_table_by_digest(&t, A)->names[0], "v");
	image_table_unname(&t, "v");
	assert_int_equal(image_table_by_digest(&t, A)->name_count, 0);
	for (int i = 0; i < IMAGE_NAMES; i++) {
		snprintf(name, sizeof name, "n%d", i);
		assert_int_equal(image_table_name(&t, A, name, &e), 0);
	}
	assert_int_equal(image_table_name(&t, A, "w", &e), -ENOSPC);
	assert_string_equal(image_table_find(&t, "w", &e)->digest, B); /* it has not lost it for that */
	assert_int_equal(image_table_name(&t, A, "no name", &e), -EINVAL);
	assert_true(image_table_remove(&t, A));
	assert_false(image_table_remove(&t, A));
	assert_int_equal(t.count, 1);
	assert_string_equal(t.entries[0].digest, B);
	image_table_clear(&t);
}

static void test_full(void **state)
{
	struct image_table t = {0}, t2;
	struct image_entry one;
	struct err e = {0};
	char digest[IMAGE_HEX + 1], *text;
	size_t len = 0;

	(void)state;
	for (int i = 0; i <= LIMIT_IMAGES; i++) {
		snprintf(digest, sizeof digest, "%064x", i);
		one = entry_of(digest);
		assert_int_equal(image_table_put(&t, &one, &e), i < LIMIT_IMAGES ? 0 : -ENOSPC);
	}
	image_entry_clear(&one); /* still ours */
	text = image_table_text(&t, &len);
	assert_true(text && len < LIMIT_REGISTRY_BYTES);
	assert_int_equal(parse(text, &t2, &e), 0);
	assert_int_equal(t2.count, LIMIT_IMAGES);
	free(text);
	image_table_clear(&t);
	image_table_clear(&t2);
}

/* ---- the file ---- */

static char folder[64];
static int dir = -1;

static int set_up(void **state)
{
	(void)state;
	snprintf(folder, sizeof folder, "/tmp/weir-test-images-XXXXXX");
	assert_non_null(mkdtemp(folder));
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	close(dir);
	assert_int_equal(unpack_remove(AT_FDCWD, folder), 0);
	return 0;
}

static void write_file(const char *name, const char *text, mode_t mode)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static int load(struct image_table *t, struct stat *seen, struct err *e)
{
	*e = (struct err){0};
	*t = (struct image_table){0};
	return registry_load_images(dir, t, seen, e);
}

static void test_file(void **state)
{
	struct image_table t = table_of(TABLE(ENTRY(A, "\"w\""))), t2;
	struct stat seen, st;
	struct err e;

	(void)state;
	assert_int_equal(load(&t2, &seen, &e), 0);
	assert_int_equal(t2.count, 0);
	assert_false(registry_changed(dir, IMAGES_FILE, &seen));
	assert_int_equal(registry_save_images(dir, &t, &e), 0);
	assert_true(registry_changed(dir, IMAGES_FILE, &seen));
	assert_int_equal(load(&t2, &seen, &e), 0);
	assert_int_equal(t2.count, 1);
	assert_string_equal(t2.entries[0].names[0], "w");
	assert_false(registry_changed(dir, IMAGES_FILE, &seen));
	assert_int_equal(fstatat(dir, IMAGES_FILE, &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	/* The same content is another file all the same: whoever looks reads it again. */
	assert_int_equal(registry_save_images(dir, &t, &e), 0);
	assert_true(registry_changed(dir, IMAGES_FILE, &seen));
	/* What a writer that was killed has left is in nobody's way, and goes with the rest. */
	write_file("." IMAGES_FILE ".new", "half of", 0600);
	assert_int_equal(registry_save_images(dir, &t, &e), 0);
	write_file("." AGENTS_FILE ".new", "half of", 0600);
	assert_int_equal(registry_remove(dir, &e), 0);
	assert_int_equal(registry_remove(dir, &e), 0);
	assert_int_equal(fstatat(dir, "." AGENTS_FILE ".new", &st, 0), -1);
	assert_int_equal(fstatat(dir, IMAGES_FILE, &st, 0), -1);
	assert_true(registry_changed(dir, IMAGES_FILE, &seen));
	image_table_clear(&t);
	image_table_clear(&t2);
}

static void test_file_refused(void **state)
{
	struct image_table t;
	struct err e;
	int fd;

	(void)state;
	write_file(IMAGES_FILE, TABLE(""), 0620);
	assert_int_equal(load(&t, NULL, &e), -EPERM);
	assert_non_null(strstr(e.msg, "chmod 600"));
	write_file(IMAGES_FILE, TABLE(""), 0644);
	assert_int_equal(load(&t, NULL, &e), 0);
	image_table_clear(&t);
	write_file(IMAGES_FILE, TABLE("{}"), 0600);
	assert_int_equal(load(&t, NULL, &e), -EINVAL);
	assert_string_equal(e.msg, IMAGES_FILE " at /images/0: \"digest\" is missing");
	assert_string_equal(e.where, "registry");
	assert_int_equal(renameat(dir, IMAGES_FILE, dir, "elsewhere"), 0);
	assert_int_equal(symlinkat("elsewhere", dir, IMAGES_FILE), 0);
	assert_int_equal(load(&t, NULL, &e), -ELOOP);
	assert_int_equal(unlinkat(dir, IMAGES_FILE, 0), 0);
	assert_int_equal(mkfifoat(dir, IMAGES_FILE, 0600), 0);
	assert_int_equal(load(&t, NULL, &e), -EINVAL); /* and does not wait for a writer */
	assert_int_equal(unlinkat(dir, IMAGES_FILE, 0), 0);
	fd = openat(dir, IMAGES_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, LIMIT_REGISTRY_BYTES + 1), 0);
	close(fd);
	assert_int_equal(load(&t, NULL, &e), -EFBIG);
}

static void test_directory(void **state)
{
	struct err e = {0};
	int fd = -1;

	(void)state;
	assert_int_equal(registry_open("/tmp/weir-test-no-such-directory", &fd, &e), -ENOENT);
	assert_int_equal(registry_open(folder, &fd, &e), 0);
	close(fd);
	assert_int_equal(chmod(folder, 0770), 0);
	assert_int_equal(registry_open(folder, &fd, &e), -EPERM);
	assert_int_equal(chmod(folder, 0700), 0);
}

/* Several at once, each adds a name: none is lost, and no reader ever sees half a table. */
static void test_lock(void **state)
{
	struct image_table t = table_of(TABLE(ENTRY(A, "")));
	pid_t children[IMAGE_NAMES];
	struct err e = {0};

	(void)state;
	assert_int_equal(registry_save_images(dir, &t, &e), 0);
	for (int i = 0; i < IMAGE_NAMES; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] == 0) {
			char name[16];
			int lock = -1, rc;

			snprintf(name, sizeof name, "n%d", i);
			rc = load(&t, NULL, &e); /* without the lock */
			if (rc == 0)
				rc = registry_lock(dir, &lock, &e);
			if (rc == 0)
				rc = load(&t, NULL, &e);
			usleep(2000);
			if (rc == 0)
				rc = image_table_name(&t, A, name, &e);
			if (rc == 0)
				rc = registry_save_images(dir, &t, &e);
			_exit(rc == 0 ? 0 : 1);
		}
	}
	for (int i = 0; i < IMAGE_NAMES; i++) {
		int status = -1;

		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
	}
	image_table_clear(&t);
	assert_int_equal(load(&t, NULL, &e), 0);
	assert_int_equal(t.entries[0].name_count, IMAGE_NAMES);
	image_table_clear(&t);
}

int main(void)
{
#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_round),  cmocka_unit_test(test_refused), cmocka_unit_test(test_values),
	    cmocka_unit_test(test_names),  cmocka_unit_test(test_secrets), cmocka_unit_test(test_shared_out),
	    cmocka_unit_test(test_blocks), cmocka_unit_test(test_find),	   cmocka_unit_test(test_change),
	    cmocka_unit_test(test_full),   FILE_TEST(test_file),	   FILE_TEST(test_file_refused),
	    FILE_TEST(test_directory),	   FILE_TEST(test_lock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
