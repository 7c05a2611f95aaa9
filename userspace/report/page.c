/* SPDX-License-Identifier: Apache-2.0 */
#include "report/page.h"

#include <stdint.h>
#include <string.h>

#include "core/base64.h"
#include "core/chain.h"
#include "core/cleanup.h"

/* The style is allowed by its digest and nothing else by anything: a page that got markup into it could still fetch nothing. */
static void style_and_policy(struct html *h)
{
	struct html style = {0};
	uint8_t digest[CHAIN_HASH];
	char text[BASE64_LEN(CHAIN_HASH) + 1] = "";
	_cleanup_free_ char *sheet = NULL;
	size_t len = 0;

	page_style(&style);
	sheet = html_take(&style, &len);
	if (!sheet) {
		h->failed = true;
		return;
	}
	chain_body_digest(sheet, len, digest);
	base64_encode(text, digest, sizeof digest);
	html(h,
	     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-%s'; base-uri "
	     "'none'; "
	     "form-action 'none'\">\n<style>",
	     text);
	page_style(h);
	html(h, "</style>\n");
}

void page_open(struct html *h, const char *title)
{
	html(h, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
	html(h, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		"<meta name=\"referrer\" content=\"no-referrer\">\n"
		"<meta name=\"color-scheme\" content=\"light dark\">\n");
	html(h, "<title>%s</title>\n", title);
	style_and_policy(h);
	html(h, "</head>\n<body>\n");
}

void page_main(struct html *h)
{
	html(h, "<main>\n");
}

void page_close(struct html *h, const struct report_about *about)
{
	html(h, "</main>\n<footer>\n<p>Made by Weir %s on ", about->version);
	moment(h, about->made);
	if (about->place[0])
		html(h, " from the record in <code>%s</code>", about->place);
	html(h, ". Times are UTC. This page holds no script and fetches nothing.</p>\n</footer>\n</body>\n</html>\n");
}

void section_open(struct html *h, const char *id, const char *title)
{
	html(h, "<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">%s</h2>\n", id, id, title);
}

void section_close(struct html *h)
{
	html(h, "</section>\n");
}

void table_open(struct html *h, const char *caption, const char *const *heads)
{
	html(h,
	     "<div class=\"wide\" role=\"region\" aria-label=\"%s\" "
	     "tabindex=\"0\">\n<table>\n<caption>%s</caption>\n<thead>\n<tr>",
	     caption, caption);
	for (; *heads; heads++) {
		if (**heads == '#')
			html(h, "<th scope=\"col\" class=\"number\">%s</th>", *heads + 1);
		else
			html(h, "<th scope=\"col\">%s</th>", *heads);
	}
	html(h, "</tr>\n</thead>\n<tbody>\n");
}

void table_close(struct html *h)
{
	html(h, "</tbody>\n</table>\n</div>\n");
}

void fact(struct html *h, const char *name, const char *value)
{
	if (value && *value)
		html(h, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, value);
}

void fact_code(struct html *h, const char *name, const char *value)
{
	if (value && *value)
		html(h, "<div><dt>%s</dt><dd><code>%s</code></dd></div>\n", name, value);
}

void verdict_badge(struct html *h, const char *verdict)
{
	if (!strcmp(verdict, "denied"))
		html(h, "<span class=\"verdict denied\"><span aria-hidden=\"true\">✕</span> denied</span>");
	else if (!strcmp(verdict, "allowed"))
		html(h, "<span class=\"verdict allowed\"><span aria-hidden=\"true\">✓</span> allowed</span>");
	else if (!strcmp(verdict, "would_deny"))
		html(h, "<span class=\"verdict watched\"><span aria-hidden=\"true\">◌</span> would be denied</span>");
	else
		html(h, "<span class=\"verdict\">%s</span>", verdict);
}

void moment(struct html *h, const char *time)
{
	moment_of_day(h, time, "");
}

void moment_of_day(struct html *h, const char *time, const char *day)
{
	const char *shown = TIME(time);
	bool same_day = strlen(day) >= 10 && !strncmp(time, day, 10);
	char date[11];

	snprintf(date, sizeof date, "%s", shown);
	if (shown == time)
		html(h, "%s", time);
	else if (same_day)
		html(h, "<time datetime=\"%s\">%s</time>", time, shown + 11);
	else /* a narrow column has two lines of it */
		html(h, "<time datetime=\"%s\"><span>%s</span> <span>%s</span></time>", time, date, shown + 11);
}
