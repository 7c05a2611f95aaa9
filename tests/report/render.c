/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record as a page, without a record: `render run FILE` or `render period FILE`, the page on stdout. FILE holds {"run": …,
 * "policies": …}, or {"runs": […], "period": …}.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"

static const struct report_about about = {
    .version = "test", .made = "2026-11-30T12:00:00.000000000Z", .place = "/var/lib/weir/audit"};

static char *period_page(const json_t *input, size_t *ret_len)
{
	struct report_period *p = report_period_new();
	const json_t *run;
	char *page = NULL;
	size_t i;
	int r = p ? 0 : -ENOMEM;

	json_array_foreach(json_object_get(input, "runs"), i, run)
	{
		if (r == 0)
			r = report_period_add(p, run);
	}
	if (r == 0)
		page = report_period_page(p, json_object_get(input, "period"), &about, ret_len);
	report_period_free(p);
	return page;
}

int main(int argc, char **argv)
{
	json_error_t error;
	json_t *input = argc == 3 ? json_load_file(argv[2], 0, &error) : NULL;
	size_t len = 0;
	char *page;

	if (!input) {
		fprintf(stderr, "render run|period FILE%s%s\n", argc == 3 ? ": " : "", argc == 3 ? error.text : "");
		return 2;
	}
	page = strcmp(argv[1], "run")
		   ? period_page(input, &len)
		   : report_run(json_object_get(input, "run"), json_object_get(input, "policies"), &about, &len);
	if (!page || fwrite(page, 1, len, stdout) != len || fflush(stdout) != 0) {
		perror("render");
		return 1;
	}
	free(page);
	json_decref(input);
	return 0;
}
