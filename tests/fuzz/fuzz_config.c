/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer on config_parse(): whatever comes in, the contract of config.h holds; what is taken can be merged and checked.
 * Seeds: corpus/config.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "core/limits.h"
#include "core/listen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

/* What ends up on terminals and in logs. */
static void must_be_text(const char *text, size_t size)
{
	size_t n = strnlen(text, size);

	must(n < size);
	for (size_t i = 0; i < n; i++)
		must((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

static void must_be_error(const struct err *e, int rc)
{
	must(rc < 0 && e->code == -rc);
	must_be_text(e->where, sizeof e->where);
	must_be_text(e->msg, sizeof e->msg);
	must(e->msg[0] != '\0');
	must(e->where[0] == '\0' || e->where[0] == '/');
}

static void must_be_config(const struct config *c)
{
	struct listen_address address;

	for (enum config_key key = 0; key < CONFIG_KEYS; key++) {
		const char *text = config_text(c, key);

		must(c->from[key] == CONFIG_DEFAULT || c->from[key] == CONFIG_FILE);
		must(!text || c->from[key] == CONFIG_FILE);
		if (text) {
			must_be_text(text, 4096);
			must(text[0] != '\0');
		}
	}
	must(c->pool_size == 0 || c->from[CONFIG_POOL_SIZE] == CONFIG_FILE);
	must(c->pool_size <= LIMIT_SANDBOXES / 2);
	must(!c->listen || listen_parse(c->listen, &address, NULL) == 0);
	must(!c->tls_certificate == !c->tls_key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config c = {0}, none = {0};
	struct err e = {.code = -1};
	int rc = config_parse((const char *)data, size, &c, &e);

	if (rc < 0) {
		must_be_error(&e, rc);
	} else {
		must(e.code == -1 && size <= LIMIT_CONFIG_BYTES);
		must_be_config(&c);
		must(config_merge(&c, &none, &e) == 0);
		must(c.listen && c.state_dir && c.policy && c.tool_policy && c.pool_size >= 1);
		must(c.tool_egress || c.from[CONFIG_TOOL_EGRESS] == CONFIG_FILE);
		must(c.tool_egress || strcmp(config_tool_policy(&c), "snippet") == 0);
		rc = config_check(&c, &e);
		must(rc == 0 || (c.plaintext && c.tls_key));
	}
	config_clear(&c);
	return 0;
}
