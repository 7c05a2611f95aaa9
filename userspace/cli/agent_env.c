/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/agent_env.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "core/cleanup.h"
#include "core/listen.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define TIMEOUT 20 /* LIMIT_TIMEOUT_DEFAULT_S, as text */
_Static_assert(TIMEOUT == LIMIT_TIMEOUT_DEFAULT_S, "what run_python takes without being told");

/* ---- where the service is ---- */

/* An address that stands for all of a host's is nothing to connect to. */
static const char *reachable(const char *host)
{
	if (!strcmp(host, "0.0.0.0"))
		return "127.0.0.1";
	return !strcmp(host, "::") ? "::1" : host;
}

int agent_env_url(const struct config *c, char **ret, struct err *e)
{
	struct listen_address a;
	int rc = listen_parse(c->listen, &a, e), n;
	const char *host;

	if (rc < 0)
		return rc;
	if (a.is_unix) {
		n = asprintf(ret, "unix:%s", a.path);
	} else {
		if (strspn(a.port, "0") == strlen(a.port))
			return err_set(e, EINVAL, "/listen",
				       "the service takes any free port (%s): say where it listens with --url", c->listen);
		host = reachable(a.host);
		n = asprintf(ret, strchr(host, ':') ? "%s://[%s]:%s" : "%s://%s:%s", c->tls_key ? "https" : "http", host,
			     a.port);
	}
	return n < 0 ? err_set(e, ENOMEM, "", "out of memory") : 0;
}

bool agent_env_url_ok(const char *url)
{
	static const char *const starts[] = {"http://", "https://", "unix:/"};
	bool ok = false;

	for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
		ok = ok || (!strncmp(url, starts[i], strlen(starts[i])) && url[strlen(starts[i])]);
	for (const char *p = url; ok && *p; p++)
		ok = *p > 0x20 && *p < 0x7f && (*url == 'u' || !strchr("@?#", *p));
	return ok;
}

/* ---- one line ---- */

static int print_shell(const char *name, const char *value)
{
	printf("export %s='", name);
	for (const char *p = value; *p; p++)
		if (*p == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*p);
	puts("'");
	return 0;
}

/* Safe without quotes, whoever reads it. */
static bool is_plain(const char *value)
{
	return value[strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:@%,=")] == 0;
}

static int print_dotenv(const char *name, const char *value)
{
	printf(is_plain(value) ? "%s=%s\n" : "%s='%s'\n", name, value);
	return 0;
}

/* Between single quotes readers of such files agree but for these. */
static bool fits_dotenv(const char *value)
{
	bool ok = !strstr(value, "${");

	for (const char *p = value; ok && *p; p++)
		ok = (unsigned char)*p >= 0x20 && *p != 0x7f && *p != '\'' && *p != '\\';
	return ok;
}

/* ---- all of them ---- */

/* Calls `each` for every variable of the agent's own; stops at the first that returns non-zero. */
static int for_each(const struct agent_entry *a, int (*each)(const char *name, const char *value, void *ctx), void *ctx)
{
	for (const char *p = a->variables; p && *p; p += strlen(p) + 1) {
		_cleanup_free_ char *name = strndup(p, strcspn(p, "="));
		int rc = name ? each(name, p + strlen(name) + 1, ctx) : -ENOMEM;

		if (rc)
			return rc;
	}
	return 0;
}

static int check_one(const char *name, const char *value, void *ctx)
{
	if (fits_dotenv(value))
		return 0;
	return err_set(
	    ctx, EINVAL, "--dotenv",
	    "%s holds what programs read differently in such a file (a quote, a backslash, ${ or a control character): "
	    "take --json",
	    name);
}

int agent_env_check(const struct agent_entry *a, enum agent_env_form form, struct err *e)
{
	int rc = form == AGENT_ENV_DOTENV ? for_each(a, check_one, e) : 0;

	return rc == -ENOMEM ? err_set(e, ENOMEM, "", "out of memory") : rc;
}

static int print_one(const char *name, const char *value, void *ctx)
{
	return *(const enum agent_env_form *)ctx == AGENT_ENV_DOTENV ? print_dotenv(name, value) : print_shell(name, value);
}

static int put_one(const char *name, const char *value, void *ctx)
{
	return json_object_set_new(ctx, name, json_string(value)) < 0 ? -ENOMEM : 0;
}

int agent_env_print(const struct agent_entry *a, const char *url, const char *token, enum agent_env_form form, struct err *e)
{
	const char *const platform[][2] = {{"SANDBOX_URL", url},
					   {"SANDBOX_TOKEN", token},
					   {"CODE_INTERPRETER_SESSION", "false"},
					   {"CODE_INTERPRETER_TIMEOUT_S", STRING(TIMEOUT)},
					   {"TOOL_SANDBOX", "true"}};
	json_t *object = form == AGENT_ENV_JSON ? json_object() : NULL;
	int (*each)(const char *name, const char *value, void *ctx) = object ? put_one : print_one;
	void *ctx = object ? (void *)object : (void *)&form;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sizeof platform / sizeof platform[0]; i++)
		rc = each(platform[i][0], platform[i][1], ctx);
	if (rc == 0)
		rc = for_each(a, each, ctx);
	if (rc == 0 && object && (json_dumpf(object, stdout, JSON_INDENT(2)) < 0 || putchar('\n') == EOF))
		rc = -EIO;
	json_decref(object);
	if (rc < 0)
		return err_errno(e, -rc, "", "print the variables");
	return cli_flush(e);
}
