/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The payload's environment: a fixed one, of a tool with what its image brings on top. Nothing of the starter's own is in it.
 */
#include "init_steps.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/envname.h"

enum owner {
	IMAGE_MAY, /* the image's own value takes its place */
	OURS,	   /* it does not: the image was made for a machine where it is another, or answers depend on it */
};

/* `call` NULL: the same. A row without `text` is one that an image can't set. */
static const struct {
	enum owner owner;
	const char *name, *text, *call;
} rows[] = {
    {IMAGE_MAY, "PATH", "PATH=/usr/local/bin:/usr/bin:/bin", NULL},
    {OURS, "HOME", "HOME=" SANDBOX_HOME, NULL},
    {OURS, "USER", "USER=" SANDBOX_USER, NULL},
    {OURS, "LOGNAME", "LOGNAME=" SANDBOX_USER, NULL},
    {OURS, "SHELL", "SHELL=/bin/sh", NULL},
    {IMAGE_MAY, "LANG", "LANG=C.UTF-8", NULL},
    {IMAGE_MAY, "LC_ALL", "LC_ALL=C.UTF-8", NULL},
    {IMAGE_MAY, "TZ", "TZ=UTC", NULL},
    {OURS, "TMPDIR", "TMPDIR=/tmp", NULL},
    {OURS, "XDG_CACHE_HOME", "XDG_CACHE_HOME=" SANDBOX_HOME "/.cache", NULL},
    {OURS, "MPLCONFIGDIR", "MPLCONFIGDIR=" SANDBOX_HOME "/.config/matplotlib", NULL},
    {IMAGE_MAY, "MPLBACKEND", "MPLBACKEND=Agg", NULL},
    /* A run has the time of so many CPUs, and libraries start a thread for each that they find. */
    {IMAGE_MAY, "OMP_NUM_THREADS", "OMP_NUM_THREADS=1", "OMP_NUM_THREADS=2"},
    {IMAGE_MAY, "PYTHON_CPU_COUNT", "PYTHON_CPU_COUNT=1", "PYTHON_CPU_COUNT=2"},
    {IMAGE_MAY, "SSL_CERT_FILE", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", NULL},
    {IMAGE_MAY, "PYTHONUTF8", "PYTHONUTF8=1", NULL},
    {OURS, "PYTHONIOENCODING", "PYTHONIOENCODING=utf-8", NULL},		  /* what was printed is read as that */
    {OURS, "PYTHONDONTWRITEBYTECODE", "PYTHONDONTWRITEBYTECODE=1", NULL}, /* no __pycache__ among the results */
    /* These make an interpreter talk while it starts, when nobody listens yet. */
    {OURS, "PYTHONVERBOSE", NULL, NULL},
    {OURS, "PYTHONPROFILEIMPORTTIME", NULL, NULL},
    {OURS, "PYTHONDEBUG", NULL, NULL},
};
#define ROWS (sizeof rows / sizeof rows[0])

/* Every variable has a name, "=" and a terminator at least. */
static char *environment[ROWS + LIMIT_IMAGE_VARIABLES_BYTES / 3 + 1];

static bool names(const char *variable, const char *name, size_t len)
{
	return !strncmp(variable, name, len) && variable[len] == '=';
}

static bool may_be_the_images(const char *variable, size_t len)
{
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].owner == OURS && names(variable, rows[i].name, strlen(rows[i].name)))
			return false;
	/* What the platform tells an agent must not be told to its tools by somebody else. */
	return envname_check(variable, len) == ENVNAME_OK;
}

/* Puts one of the image's in, where a variable of that name is or at the end. */
static size_t put(char *variable, size_t len, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (names(environment[i], variable, len)) {
			environment[i] = variable;
			return count;
		}
	environment[count] = variable;
	return count + 1;
}

char **init_environment(const struct init_plan *p)
{
	size_t count = 0, len;

	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].text)
			environment[count++] = (char *)(p->call && rows[i].call ? rows[i].call : rows[i].text);
	for (const char *v = p->variables; p->call && *v; v += strlen(v) + 1) {
		len = strcspn(v, "=");
		if (may_be_the_images(v, len))
			count = put((char *)v, len, count);
	}
	environment[count] = NULL;
	return environment;
}
