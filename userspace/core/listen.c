/* SPDX-License-Identifier: Apache-2.0 */
#include "core/listen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool port_ok(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n > 0 && n <= 5 && !text[n] && atoi(text) <= 65535;
}

static int parse_unix(const char *path, struct listen_address *ret, struct err *e)
{
	if (!*path)
		return err_set(e, EINVAL, "", "\"unix:\" needs a path behind it, as in unix:/run/weir.sock");
	if (strlen(path) >= sizeof ret->path)
		return err_set(e, ENAMETOOLONG, "", "a unix socket's path has at most %zu bytes", sizeof ret->path - 1);
	memset(ret, 0, sizeof *ret);
	ret->is_unix = true;
	snprintf(ret->path, sizeof ret->path, "%s", path);
	return 0;
}

int listen_parse(const char *text, struct listen_address *ret, struct err *e)
{
	const char *colon = strrchr(text, ':'), *host = text;
	size_t n = colon ? (size_t)(colon - text) : 0;
	bool bracketed = n > 2 && text[0] == '[' && text[n - 1] == ']';

	if (!strncmp(text, "unix:", 5))
		return parse_unix(text + 5, ret, e);
	if (bracketed) {
		host++;
		n -= 2;
	}
	/* Colons without brackets: where the address ends and the port begins would be a guess. */
	if (!colon || !n || n >= sizeof ret->host || !port_ok(colon + 1) || (!bracketed && memchr(host, ':', n)) ||
	    memchr(host, '[', n) || memchr(host, ']', n))
		return err_set(e, EINVAL, "", "\"%.100s\" is not ADDR:PORT, [V6]:PORT (port 0 to 65535, 0: any) or unix:/path",
			       text);
	memset(ret, 0, sizeof *ret);
	memcpy(ret->host, host, n);
	snprintf(ret->port, sizeof ret->port, "%s", colon + 1);
	return 0;
}
