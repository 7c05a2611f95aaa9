/* SPDX-License-Identifier: Apache-2.0 */
/* The documents of an OCI layout: which image is chosen, and what is refused. */
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
		int rc = oci_index_choose(rows[i].text, strlen(rows[i].text), rows[i].ref, &b, &e);

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

static void test_others(void **state)
{
	static const struct {
		int (*check)(const char *, size_t, struct err *);
		const char *text;
		int rc;
	} rows[] = {
	    {oci_config_check, "{\"os\": \"linux\", \"architecture\": \"amd64\"}", 0},
	    {oci_config_check, "{\"os\": \"linux\", \"architecture\": \"arm64\"}", -EINVAL},
	    {oci_config_check, "{\"os\": \"windows\", \"architecture\": \"amd64\"}", -EINVAL},
	    {oci_config_check, "{}", -EINVAL},
	    {oci_config_check, "", -EINVAL},
	    {oci_layout_check, "{\"imageLayoutVersion\": \"1.0.0\"}", 0},
	    {oci_layout_check, "{\"imageLayoutVersion\": \"2.0.0\"}", -EINVAL},
	    {oci_layout_check, "{}", -EINVAL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = {0};

		if (rows[i].check(rows[i].text, strlen(rows[i].text), &e) != rows[i].rc)
			fail_msg("%s: %s", rows[i].text, e.msg);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_choose), cmocka_unit_test(test_manifest),
					   cmocka_unit_test(test_others)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
