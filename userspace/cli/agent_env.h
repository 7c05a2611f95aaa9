/* SPDX-License-Identifier: Apache-2.0 */
/* The environment that an agent's process is started with, as `weir agent env` prints it. */
#ifndef WEIR_CLI_AGENT_ENV_H
#define WEIR_CLI_AGENT_ENV_H

#include "core/config.h"
#include "core/err.h"
#include "registry/agents.h"

enum agent_env_form {
	AGENT_ENV_SHELL,  /* `export NAME='VALUE'` */
	AGENT_ENV_DOTENV, /* NAME=VALUE, without what readers of such files take differently */
	AGENT_ENV_JSON,	  /* one object */
	AGENT_ENV_FORMS,
};

/*
 * Where clients find the service of a merged configuration: http or https, or unix:/PATH; of an address that stands for all of
 * the host's, its loopback one. malloc'd into *ret. Port 0 is an error: nobody knows it beforehand.
 */
int agent_env_url(const struct config *c, char **ret, struct err *e);

/* Whether a text can be an address of the service: http://, https:// or unix:/, printable, without blanks, user, query or
 * fragment. */
bool agent_env_url_ok(const char *url);

/* Whether this agent's variables can be printed in that form. */
int agent_env_check(const struct agent_entry *a, enum agent_env_form form, struct err *e);

/* Prints the platform's variables and then the agent's own to standard output. */
int agent_env_print(const struct agent_entry *a, const char *url, const char *token, enum agent_env_form form, struct err *e);

#endif
