/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way in which a report is written: markup is a literal of this program, everything else is an argument and is escaped.
 * Nothing that a sandboxed program chose can become a tag, an attribute or an entity, since there is no function that writes a
 * string as it is: html() takes nothing but a string literal as its template (another one does not compile). Pure.
 */
#ifndef WEIR_REPORT_HTML_H
#define WEIR_REPORT_HTML_H

#include <stdbool.h>
#include <stddef.h>

/* A document under way. Zeroed is an empty one. */
struct html {
	char *text; /* owned */
	size_t len, room;
	bool failed; /* no memory, or a template that asks for what there is not; then nothing more is written */
};

/*
 * Writes the template. Of printf's conversions there are %s (NULL: nothing), %d, %u, %zu, %lld, %llu and %.Nf, each escaped for
 * text and for a value in double quotes alike: &, <, > and the quotes as entities; control characters, line ends among them,
 * what turns the direction of writing and what has no shape as \u{202e}; bytes that are no UTF-8 as U+FFFD.
 */
#define html(h, template, ...) html_template_((h), "" template "", ##__VA_ARGS__)

/* A literal without conversions: a style sheet is full of per cent signs. */
#define html_literal(h, literal) html_literal_((h), "" literal "")

/* As one %s that keeps line ends and tabs: for the inside of <pre>. */
void html_lines(struct html *h, const char *text);

/* The document, NUL-terminated, the caller's; NULL when writing failed. *h is empty afterwards. `ret_len` may be NULL. */
char *html_take(struct html *h, size_t *ret_len);

/* Behind the macros, not to be called by their names. */
void html_literal_(struct html *h, const char *literal);
void html_template_(struct html *h, const char *template, ...) __attribute__((format(printf, 2, 3)));

#endif
