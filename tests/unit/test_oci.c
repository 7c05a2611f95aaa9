/* SPDX-License-Identifier: Apache-2.0 */
/* The documents of an OCI layout and of a docker archive: which image is chosen, what is read, and what is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oci_doc.h"

#define INDEX "application/vnd.oci.image.index.v1+json"
#define MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define CONFIG "application/vnd.oci.image.config.v1+json"
#define LAYER "application/vnd.oci.image.layer.v1.tar+gzip"
#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

#define DESCRIPTOR(type, hex, more) "{\"mediaType\": \"" type "\", \"digest\": \"sha256:" hex "\", \"size\": 7" more "}"
#define NAMED(name) ", \"annotations\": {\"org.opencontainers.image.ref.name\": \"" name "\"}"
#define FULL(name, tag)                                                                                                        \
	", \"annotations\": {\"io.containerd.image.name\": \"" name "\", \"org.opencontainers.image.ref.name\": \"" tag "\"}"
#define PLATFORM(os, arch) ", \"platform\": {\"os\": \"" os "\", \"architecture\": \"" arch "\"}"
#define LIST(items) "{\"schemaVersion\": 2, \"manifests\": [" items "]}"

static void test_choose(void **state)
{
	static const struct {
		const char *what, *text, *ref;
		int rc;
		const char *expected; /* the digest's first letter, or words of the error */
	} rows[] = {
	    {"the only one", LIST(DESCRIPTOR(MANIFEST, A, "")), NULL, 0, "a"},
	    {"by name", LIST(DESCRIPTOR(MANIFEST, A, NAMED("one")) ", " DESCRIPTOR(MANIFEST, B, NAMED("two"))), "two", 0, "b"},
	    {"by its whole name", LIST(DESCRIPTOR(MANIFEST, A, FULL("r.example/one:2", "2"))), "r.example/one:2", 0, "a"},
	    {"by its tag", LIST(DESCRIPTOR(MANIFEST, A, FULL("r.example/one:2", "2"))), "2", 0, "a"},
	    {"no such name", LIST(DESCRIPTOR(MANIFEST, A, NAMED("one"))), "two", -ENOENT, "it has: one"},
	    {"several, none named", LIST(DESCRIPTOR(MANIFEST, A, NAMED("one")) ", " DESCRIPTOR(MANIFEST, B, NAMED("two"))),
	     NULL, -EINVAL, "add : and one of one, two"},
	    {"this machine's",
	     LIST(DESCRIPTOR(MANIFEST, A, PLATFORM("linux", "arm64")) ", " DESCRIPTOR(MANIFEST, B, PLATFORM("linux", "amd64"))),
	     NULL, 0, "b"},
	    {"not a build's note",
	     LIST(DESCRIPTOR(MANIFEST, A, PLATFORM("unknown", "unknown")) ", " DESCRIPTOR(MANIFEST, B,
											  PLATFORM("linux", "amd64"))),
	     NULL, 0, "b"},
	    {"other machines'",
	     LIST(DESCRIPTOR(MANIFEST, A, PLATFORM("linux", "arm64")) ", " DESCRIPTOR(MANIFEST, B,
										      PLATFORM("windows", "amd64"))),
	     NULL, -ENOENT, "it has: linux/arm64, windows/amd64"},
	    {"the first of two variants",
	     LIST(DESCRIPTOR(MANIFEST, A, PLATFORM("linux", "amd64")) ", " DESCRIPTOR(MANIFEST, B, PLATFORM("linux", "amd64"))),
	     NULL, 0, "a"},
	    {"an index", LIST(DESCRIPTOR(INDEX, A, "")), NULL, 0, "a"},
	    {"docker's kind", LIST(DESCRIPTOR("application/vnd.docker.distribution.manifest.v2+json", A, "")), NULL, 0, "a"},
	    {"an unknown kind", LIST(DESCRIPTOR("application/x", A, "")), NULL, -EINVAL, "\"application/x\""},
	    {"a layer", LIST(DESCRIPTOR(LAYER, A, "")), NULL, -EINVAL, "not known here"},
	    {"none", LIST(""), NULL, -ENOENT, "no image for linux/amd64"},
	    {"no list", "{}", NULL, -EINVAL, "no list `manifests`"},
	    {"a list of something else", LIST("1, null, \"x\", []"), NULL, -EINVAL, ""},
	    {"not JSON", "{", NULL, -EINVAL, "not JSON"},
	    {"no object", "[]", NULL, -EINVAL, "not a JSON object"},
	    {"twice the same", "{\"manifests\": [], \"manifests\": []}", NULL, -EINVAL, "not JSON"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct oci_blob b = {0};
		struct err e = {0};
		int rc = oci_index_choose(rows[i].text, strlen(rows[i].text), rows[i].ref, &b, NULL, &e);

		if (rc != rows[i].rc)
			fail_msg("%s: %d, not %d: %s", rows[i].what, rc, rows[i].rc, e.msg);
		if (rc < 0 ? !strstr(e.msg, rows[i].expected)
			   : b.sha256[0] != rows[i].expected[0] || strlen(b.sha256) != OCI_HEX)
			fail_msg("%s: %s%s", rows[i].what, e.msg, b.sha256);
		if (rc == 0)
			assert_int_equal(b.index, strstr(rows[i].text, INDEX) != NULL);
	}
}

#define IMAGE(config, layers) "{\"schemaVersion\": 2, \"config\": " config ", \"layers\": [" layers "]}"

static void test_manifest(void **state)
{
	static const char good[] = IMAGE(DESCRIPTOR(CONFIG, A, ""), DESCRIPTOR(LAYER, A, "") ", " DESCRIPTOR(LAYER, B, ""));
	static const char *const bad[] = {
	    "{}",
	    IMAGE("null", ""),
	    IMAGE(DESCRIPTOR(LAYER, A, ""), ""),
	    IMAGE(DESCRIPTOR(CONFIG, A, ""), "null"),
	    IMAGE(DESCRIPTOR(CONFIG, A, ""), DESCRIPTOR(CONFIG, A, "")),
	    IMAGE(DESCRIPTOR(CONFIG, A, ""), DESCRIPTOR("application/vnd.oci.image.layer.v1.tar+encrypted", A, "")),
	    /* What would name a file somewhere else. */
	    IMAGE(DESCRIPTOR(CONFIG, "../../../../../../../../../../../../../../../../../../../etc/passwd", ""), ""),
	    IMAGE(DESCRIPTOR(CONFIG, "aaaa", ""), ""),
	    IMAGE(DESCRIPTOR(CONFIG, A "a", ""), ""),
	    IMAGE(DESCRIPTOR(CONFIG, "AAAAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", ""), ""),
	    IMAGE("{\"mediaType\": \"" CONFIG "\", \"digest\": \"sha512:" A A "\", \"size\": 1}", ""),
	    IMAGE("{\"mediaType\": \"" CONFIG "\", \"digest\": \"sha256:" A "\", \"size\": -1}", ""),
	    IMAGE("{\"mediaType\": \"" CONFIG "\", \"digest\": \"sha256:" A "\", \"size\": 1.5}", ""),
	    IMAGE("{\"mediaType\": \"" CONFIG "\", \"digest\": \"sha256:" A "\"}", ""),
	};
	static struct oci_manifest m;
	struct err e = {0};
	char *many = malloc(200 * (LIMIT_IMAGE_LAYERS + 2));

	(void)state;
	assert_int_equal(oci_manifest_read(good, strlen(good), &m, &e), 0);
	assert_int_equal(m.layer_count, 2);
	assert_string_equal(m.config.sha256, A);
	assert_string_equal(m.layers[1].sha256, B);
	assert_int_equal(m.layers[1].size, 7);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (oci_manifest_read(bad[i], strlen(bad[i]), &m, &e) != -EINVAL)
			fail_msg("taken: %s", bad[i]);
	/* As many layers as there may be, and one more. */
	for (int more = 0; more < 2; more++) {
		size_t n;

		assert_non_null(many);
		n = (size_t)sprintf(many, "{\"config\": " DESCRIPTOR(CONFIG, A, "") ", \"layers\": [");
		for (int i = 0; i < LIMIT_IMAGE_LAYERS + more; i++)
			n += (size_t)sprintf(many + n, "%s" DESCRIPTOR(LAYER, B, ""), i ? "," : "");
		n += (size_t)sprintf(many + n, "]}");
		assert_int_equal(oci_manifest_read(many, n, &m, &e), more ? -EINVAL : 0);
	}
	free(many);
}

/* What the index calls it: the whole name where there is one; nothing is "". */
static void test_names(void **state)
{
	static const struct {
		const char *text, *name;
	} rows[] = {
	    {LIST(DESCRIPTOR(MANIFEST, A, NAMED("latest"))), "latest"},
	    {LIST(DESCRIPTOR(MANIFEST, A, FULL("docker.io/library/x:latest", "latest"))), "docker.io/library/x:latest"},
	    {LIST(DESCRIPTOR(MANIFEST, A, "")), ""},
	    {LIST(DESCRIPTOR(MANIFEST, A, ", \"annotations\": [1]")), ""},
	    {LIST(DESCRIPTOR(MANIFEST, A, NAMED(A A A A))), ""}, /* longer than a name is */
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char name[OCI_NAME_MAX] = "before";
		struct oci_blob b = {0};
		struct err e = {0};

		assert_int_equal(oci_index_choose(rows[i].text, strlen(rows[i].text), NULL, &b, name, &e), 0);
		assert_string_equal(name, rows[i].name);
	}
}

static void test_layout(void **state)
{
	static const struct {
		const char *text;
		int rc;
	} rows[] = {
	    {"{\"imageLayoutVersion\": \"1.0.0\"}", 0},
	    {"{\"imageLayoutVersion\": \"2.0.0\"}", -EINVAL},
	    {"{}", -EINVAL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = {0};

		if (oci_layout_check(rows[i].text, strlen(rows[i].text), &e) != rows[i].rc)
			fail_msg("%s: %s", rows[i].text, e.msg);
	}
}

/* ---- configurations ---- */

#define MACHINE "\"os\": \"linux\", \"architecture\": \"amd64\""
#define CONFIGURED(more) "{" MACHINE ", \"config\": {" more "}}"
#define DIFFS(ids) "{" MACHINE ", \"rootfs\": {\"type\": \"layers\", \"diff_ids\": " ids "}}"

static void test_config(void **state)
{
	static const char text[] =
	    "{" MACHINE ", \"config\": {\"Env\": [\"PATH=/opt/venv/bin:/bin\", \"A=1\", \"EMPTY=\", \"A=2\"], "
	    "\"WorkingDir\": \"//app///src/\", \"User\": \"1000\"}, "
	    "\"rootfs\": {\"diff_ids\": [\"sha256:" A "\", \"sha256:" B "\"]}}";
	static const char block[] = "PATH=/opt/venv/bin:/bin\0EMPTY=\0A=2\0";
	static struct oci_config c;
	struct err e = {0};

	(void)state;
	if (oci_config_read(text, strlen(text), &c, &e) < 0)
		fail_msg("%s", e.msg);
	assert_string_equal(c.workdir, "/app/src");
	assert_int_equal(c.variables_len, sizeof block);
	assert_memory_equal(c.variables, block, sizeof block);
	assert_int_equal(c.diff_count, 2);
	assert_string_equal(c.diff_ids[1], B);
}

static void test_config_rows(void **state)
{
	static const struct {
		const char *text;
		int rc;
		const char *words; /* of the error, or the working directory */
	} rows[] = {
	    {"{" MACHINE "}", 0, ""},
	    {"{" MACHINE ", \"config\": null, \"rootfs\": null}", 0, ""},
	    {CONFIGURED("\"Env\": null, \"WorkingDir\": null"), 0, ""},
	    {CONFIGURED("\"Env\": [], \"WorkingDir\": \"\""), 0, ""},
	    {CONFIGURED("\"WorkingDir\": \"/\""), 0, "/"},
	    {CONFIGURED("\"WorkingDir\": \"//\""), 0, "/"},
	    {CONFIGURED("\"WorkingDir\": \"/..hidden/..x\""), 0, "/..hidden/..x"},
	    {CONFIGURED("\"WorkingDir\": \"app\""), -EINVAL, "WorkingDir is \"app\""},
	    {CONFIGURED("\"WorkingDir\": \"/a/../b\""), -EINVAL, "WorkingDir"},
	    {CONFIGURED("\"WorkingDir\": \"/a/..\""), -EINVAL, "WorkingDir"},
	    {CONFIGURED("\"WorkingDir\": \"/a\\nb\""), -EINVAL, "WorkingDir is \"/a?b\""},
	    {CONFIGURED("\"WorkingDir\": 7"), -EINVAL, "WorkingDir"},
	    {CONFIGURED("\"WorkingDir\": \"/" A A A A "\""), -EINVAL, "WorkingDir"},
	    {CONFIGURED("\"Env\": \"A=1\""), -EINVAL, "Env is no list"},
	    {CONFIGURED("\"Env\": [\"A=1\", \"B\"]"), -EINVAL, "entry 2 of the image's Env is \"B\""},
	    {CONFIGURED("\"Env\": [\"=1\"]"), -EINVAL, "entry 1"},
	    {CONFIGURED("\"Env\": [\"A\\u0001=1\"]"), -EINVAL, "entry 1"},
	    {CONFIGURED("\"Env\": [\"A=\\u0000\"]"), -EINVAL, "not JSON"},
	    {CONFIGURED("\"Env\": [1]"), -EINVAL, "entry 1"},
	    {DIFFS("[]"), 0, ""},
	    {DIFFS("null"), 0, ""},
	    {DIFFS("\"x\""), -EINVAL, "diff_ids"},
	    {DIFFS("[\"sha256:" A "\", \"sha512:" A "\"]"), -EINVAL, "diff_id 2"},
	    {DIFFS("[\"sha256:../../x\"]"), -EINVAL, "diff_id 1"},
	    {DIFFS("[null]"), -EINVAL, "diff_id 1"},
	    {"{\"os\": \"linux\", \"architecture\": \"arm64\"}", -EINVAL, "linux/arm64; this machine runs linux/amd64"},
	    {"{\"os\": \"windows\", \"architecture\": \"amd64\"}", -EINVAL, "windows/amd64"},
	    {"{}", -EINVAL, ""},
	    {"", -EINVAL, "not JSON"},
	    {"[]", -EINVAL, "not a JSON object"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		static struct oci_config c;
		struct err e = {0};
		int rc = oci_config_read(rows[i].text, strlen(rows[i].text), &c, &e);

		if (rc != rows[i].rc)
			fail_msg("%s: %d: %s", rows[i].text, rc, e.msg);
		if (rc < 0 ? !strstr(e.msg, rows[i].words) : strcmp(c.workdir, rows[i].words) != 0)
			fail_msg("%s: %s%s", rows[i].text, e.msg, c.workdir);
		if (rc == 0)
			assert_true(image_variables_ok(c.variables, c.variables_len));
	}
}

/* As much as there may be, and one more. */
static void test_config_bounds(void **state)
{
	static struct oci_config c;
	char *text = malloc(LIMIT_IMAGE_VARIABLES_BYTES + 200), *ids = malloc(100 * (LIMIT_IMAGE_LAYERS + 4));

	(void)state;
	assert_true(text && ids);
	for (int more = 0; more < 2; more++) {
		struct err e = {0};
		/* "A=", a NUL, and the last NUL are in it too. */
		int value = LIMIT_IMAGE_VARIABLES_BYTES - 4 + more;
		size_t n = (size_t)sprintf(text, "{" MACHINE ", \"config\": {\"Env\": [\"A=");

		memset(text + n, 'v', (size_t)value);
		strcpy(text + n + value, "\"]}}");
		assert_int_equal(oci_config_read(text, strlen(text), &c, &e), more ? -E2BIG : 0);
		n = (size_t)sprintf(ids, "{" MACHINE ", \"rootfs\": {\"diff_ids\": [");
		for (int i = 0; i < LIMIT_IMAGE_LAYERS + more; i++)
			n += (size_t)sprintf(ids + n, "%s\"sha256:" A "\"", i ? "," : "");
		strcpy(ids + n, "]}}");
		assert_int_equal(oci_config_read(ids, strlen(ids), &c, &e), more ? -EINVAL : 0);
	}
	free(text);
	free(ids);
}

/* ---- docker archives ---- */

#define SAVED(config, tags, layers) "{\"Config\": \"" config "\", \"RepoTags\": " tags ", \"Layers\": [" layers "]}"

static void test_docker(void **state)
{
	static const struct {
		const char *what, *text, *ref;
		int rc;
		const char *expected; /* name and configuration, or words of the error */
	} rows[] = {
	    {"the only one", "[" SAVED("c.json", "[\"w:2\", \"w:3\"]", "\"a/layer.tar\"") "]", NULL, 0, "w:2 c.json"},
	    {"without a tag", "[" SAVED("c.json", "null", "\"a/layer.tar\"") "]", NULL, 0, " c.json"},
	    {"by tag", "[" SAVED("a", "[\"w:2\"]", "") ", " SAVED("b", "[\"w:3\", \"x:4\"]", "") "]", "x:4", 0, "x:4 b"},
	    {"by the end of it", "[" SAVED("a", "[\"w:2\"]", "") ", " SAVED("b", "[\"w:3\"]", "") "]", "3", 0, "w:3 b"},
	    {"with a registry", "[" SAVED("a", "[\"r.example:5000/w:2\"]", "") "]", "2", 0, "r.example:5000/w:2 a"},
	    {"of two one that has no tag", "[" SAVED("a", "[]", "") ", " SAVED("b", "[\"w:3\"]", "") "]", "w:3", 0, "w:3 b"},
	    {"no such tag", "[" SAVED("a", "[\"w:2\"]", "") "]", "w:9", -ENOENT,
	     "no image \"w:9\" in the archive; it has: w:2"},
	    {"two of a tag", "[" SAVED("a", "[\"w:2\"]", "") ", " SAVED("b", "[\"x:2\"]", "") "]", "2", -EINVAL,
	     "2 images of that"},
	    {"several", "[" SAVED("a", "[\"w:2\"]", "") ", " SAVED("b", "[\"x:3\"]", "") "]", NULL, -EINVAL, "one of w:2, x:3"},
	    {"none", "[]", NULL, -ENOENT, "names no image"},
	    {"none of a tag", "[]", "x", -ENOENT, "it has: no tag"},
	    {"an object", "{}", NULL, -EINVAL, "not a JSON list"},
	    {"no JSON", "[", NULL, -EINVAL, "not JSON"},
	    {"of other things", "[1]", NULL, -EINVAL, "no list of layers"},
	    {"no configuration", "[{\"Layers\": []}]", NULL, -EINVAL, "has the configuration"},
	    {"no layers", "[{\"Config\": \"c\"}]", NULL, -EINVAL, "no list of layers"},
	    {"a configuration above", "[" SAVED("../c", "null", "") "]", NULL, -EINVAL, "the configuration \"../c\""},
	    {"an absolute one", "[" SAVED("/etc/passwd", "null", "") "]", NULL, -EINVAL, "not the name of a file"},
	    {"none at all", "[" SAVED("", "null", "") "]", NULL, -EINVAL, "not the name of a file"},
	    {"a layer above", "[" SAVED("c", "null", "\"a/b\", \"a/../../x\"") "]", NULL, -EINVAL, "the layer \"a/../../x\""},
	    {"a layer above, last", "[" SAVED("c", "null", "\"a/..\"") "]", NULL, -EINVAL, "the layer"},
	    {"a number as a layer", "[" SAVED("c", "null", "7") "]", NULL, -EINVAL, "the layer"},
	    {"a long one", "[" SAVED("c", "null", "\"" A A A A "\"") "]", NULL, -EINVAL, "the layer"},
	    {"odd tags", "[" SAVED("c", "[1, null, {}]", "") "]", NULL, 0, " c"},
	    {"a tag that is too long", "[" SAVED("c", "[\"" A A A A ":1\"]", "") "]", NULL, 0, " c"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		static struct docker_image image;
		char got[2 * OCI_NAME_MAX + 2];
		struct err e = {0};
		int rc = docker_manifest_choose(rows[i].text, strlen(rows[i].text), rows[i].ref, &image, &e);

		snprintf(got, sizeof got, "%s %s", image.name, image.config);
		if (rc != rows[i].rc)
			fail_msg("%s: %d, not %d: %s", rows[i].what, rc, rows[i].rc, e.msg);
		if (rc < 0 ? !strstr(e.msg, rows[i].expected) : strcmp(got, rows[i].expected) != 0)
			fail_msg("%s: %s", rows[i].what, rc < 0 ? e.msg : got);
	}
}

static void test_docker_layers(void **state)
{
	static struct docker_image image;
	char *text = malloc(20 * 10002);

	(void)state;
	assert_non_null(text);
	for (int round = 0; round < 3; round++) {
		static const int counts[] = {LIMIT_IMAGE_LAYERS, LIMIT_IMAGE_LAYERS + 1, 10000};
		size_t n = (size_t)sprintf(text, "[{\"Config\": \"c\", \"Layers\": [");
		struct err e = {0};

		for (int i = 0; i < counts[round]; i++)
			n += (size_t)sprintf(text + n, "%s\"l%d\"", i ? "," : "", i);
		n += (size_t)sprintf(text + n, "]}]");
		assert_int_equal(docker_manifest_choose(text, n, NULL, &image, &e), round ? -EINVAL : 0);
		if (round)
			assert_non_null(strstr(e.msg, "more than 256 of them"));
		else
			assert_string_equal(image.layers[LIMIT_IMAGE_LAYERS - 1], "l255");
	}
	free(text);
}

static void test_docker_digest(void **state)
{
	char digest[OCI_HEX + 1];

	(void)state;
	assert_true(docker_config_digest(A ".json", digest));
	assert_string_equal(digest, A);
	assert_true(docker_config_digest("blobs/sha256/" B, digest));
	assert_string_equal(digest, B);
	assert_false(docker_config_digest("config.json", digest));
	assert_false(docker_config_digest(A "a.json", digest));
	assert_false(docker_config_digest(A ".txt", digest));
	assert_false(docker_config_digest("G" A, digest));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_choose),	  cmocka_unit_test(test_manifest), cmocka_unit_test(test_names),
	    cmocka_unit_test(test_layout),	  cmocka_unit_test(test_config),   cmocka_unit_test(test_config_rows),
	    cmocka_unit_test(test_config_bounds), cmocka_unit_test(test_docker),   cmocka_unit_test(test_docker_layers),
	    cmocka_unit_test(test_docker_digest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
