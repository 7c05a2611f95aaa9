/* SPDX-License-Identifier: Apache-2.0 */
/* What all pages are made of. Inside of report/. */
#ifndef WEIR_REPORT_PAGE_H
#define WEIR_REPORT_PAGE_H

#include <jansson.h>
#include <stdbool.h>

#include "report/html.h"
#include "report/report.h"
#include "report/words.h"

/* The whole style of a page: the inside of its <style>. */
void page_style(struct html *h);

/* From the doctype to the beginning of <main>, and back. The header is between the two. */
void page_open(struct html *h, const char *title);
void page_main(struct html *h);
void page_close(struct html *h, const struct report_about *about);

/* A part of the page with a heading of its own; `id` and `title` are ours. */
void section_open(struct html *h, const char *id, const char *title);
void section_close(struct html *h);

/*
 * A table that may be wider than the page, with its heads; the cells are the caller's. `heads`: a NULL ends them; one that
 * begins with '#' is a column of numbers.
 */
void table_open(struct html *h, const char *caption, const char *const *heads);
void table_close(struct html *h);

/* A row of a <dl>. Nothing is written of a value that is NULL or empty. */
void fact(struct html *h, const char *name, const char *value);
void fact_code(struct html *h, const char *name, const char *value); /* a hash, an id, a command */

/* "denied", "allowed", "would be denied" with a sign beside the word, so that the colour says nothing that is not said. */
void verdict_badge(struct html *h, const char *verdict);
/* An element for a moment: the record's own text as its value, milliseconds to look at. */
void moment(struct html *h, const char *time);
/* The same without its date, when that is the date of `day`, another moment. */
void moment_of_day(struct html *h, const char *time, const char *day);

#endif
