/* SPDX-License-Identifier: Apache-2.0 */
/* Media types from names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/media_type.h"

static void by_extension(void **state)
{
	static const struct {
		const char *path, *type;
	} rows[] = {
	    {"plot.png", "image/png"},
	    {"out/data.CSV", "text/csv"},
	    {"a.b/report.pdf", "application/pdf"},
	    {"archive.tar.gz", "application/gzip"},
	    {"notes.txt", "text/plain"},
	    {"page.html", "text/html"},
	    {"r.json", "application/json"},
	    {"x.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
	    {".hidden.svg", "image/svg+xml"},
	    /* no extension, or none that is known */
	    {"Makefile", "application/octet-stream"},
	    {".png", "application/octet-stream"},
	    {"a.png/data", "application/octet-stream"},
	    {"a.png/.csv", "application/octet-stream"},
	    {"x.", "application/octet-stream"},
	    {"x.pngg", "application/octet-stream"},
	    {"x.pn", "application/octet-stream"},
	    {"png", "application/octet-stream"},
	    {"", "application/octet-stream"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(media_type(rows[i].path, strlen(rows[i].path)), rows[i].type);
	/* The length counts, not a terminator. */
	assert_string_equal(media_type("a.pngx", 5), "image/png");
	assert_string_equal(media_type("a.png", 4), "application/octet-stream");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(by_extension)};

	return cmocka_run_group_tests_name("media_type", tests, NULL, NULL);
}
