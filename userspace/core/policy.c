/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy document is one JSON object. Each key has a row in `keys` with its reader; policy_rules.c and policy_parts.c have
 * those of the keys with parts of their own.
 */
#include "core/policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "core/limits.h"
#include "core/policy_read.h"
#include "core/utf8.h"

/* For people; nothing is made of it. It is shown on terminals, so control characters become spaces. */
static int read_description(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	char *out = field;
	size_t n;

	(void)key;
	if (!json_is_string(v))
		return spot_wrong_kind(at, e, "a string", v);
	n = utf8_cut(json_string_value(v), json_string_length(v), POLICY_TEXT_MAX - 1);
	memcpy(out, json_string_value(v), n);
	out[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)out[i] < 0x20 || out[i] == 0x7f)
			out[i] = ' ';
		else if ((unsigned char)out[i] == 0xc2 && (unsigned char)out[i + 1] >= 0x80 && (unsigned char)out[i + 1] < 0xa0)
			out[i] = out[i + 1] = ' ';
	return 0;
}

/* Which schema an editor is to check the document with. */
static int read_schema(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	(void)key;
	(void)field;
	return json_is_string(v) ? 0 : spot_wrong_kind(at, e, "a string", v);
}

static const struct word verdicts[] = {{"deny", WEIR_DENY}, {"allow", WEIR_ALLOW}, {NULL, 0}};
static const struct word deny_or_allow[] = {{"deny", 0}, {"allow", 1}, {NULL, 0}};
static const struct word modes[] = {{"enforce", 0}, {"monitor", 1}, {NULL, 0}};
static const struct word loopbacks[] = {
    {"rules", WEIR_LOOPBACK_RULES}, {"deny", WEIR_LOOPBACK_DENY}, {"self", WEIR_LOOPBACK_SELF}, {NULL, 0}};

static const struct key keys[] = {
    {"name", true, read_name, offsetof(struct policy, name), NULL},
    {"description", false, read_description, offsetof(struct policy, description), NULL},
    {"default", true, read_word, offsetof(struct policy, default_verdict), verdicts},
    {"mode", false, read_word, offsetof(struct policy, monitor), modes},
    {"rules", false, policy_read_rules, 0, NULL},
    {"nat64_prefixes", false, policy_read_nat64, 0, NULL},
    {"loopback", false, read_word, offsetof(struct policy, loopback), loopbacks},
    {"inbound", false, read_word, offsetof(struct policy, inbound), deny_or_allow},
    {"listen", false, read_word, offsetof(struct policy, listen), deny_or_allow},
    {"packets", false, policy_read_packets, 0, NULL},
    {"sockets", false, policy_read_sockets, 0, NULL},
    {"syscalls", false, policy_read_syscalls, 0, NULL},
    {"limits", false, policy_read_limits, 0, NULL},
    {"audit", false, policy_read_audit, 0, NULL},
    {"$schema", false, read_schema, 0, NULL},
};

static void set_defaults(struct policy *p)
{
	p->default_verdict = WEIR_DENY;
	p->list_allowed = true;
	p->loopback = WEIR_LOOPBACK_RULES;
	p->listen = true;
	p->sockets.families = POLICY_AF_UNIX | POLICY_AF_INET | POLICY_AF_INET6;
	p->sockets.types = POLICY_SOCK_STREAM | POLICY_SOCK_DGRAM | POLICY_SOCK_SEQPACKET;
	p->sockets.protocols = POLICY_PROTO_TCP | POLICY_PROTO_UDP;
	p->limits.datagram_sockets = WEIR_SOCKETS_PER_SANDBOX;
}

struct policy *policy_free(struct policy *p)
{
	if (p) {
		policy_free_rules(p->rules, p->rule_count);
		free(p->syscalls);
		free(p);
	}
	return NULL;
}

static void cleanup_policyp(struct policy **p)
{
	policy_free(*p);
}

int policy_parse(const char *text, size_t len, struct policy **ret, struct err *e)
{
	__attribute__((cleanup(cleanup_policyp))) struct policy *p = NULL;
	_cleanup_json_ json_t *doc = NULL;
	static const struct spot root;
	int rc;

	if (len > LIMIT_POLICY_BYTES)
		return err_set(e, EFBIG, "", "the document has %zu bytes; at most %d are allowed", len, LIMIT_POLICY_BYTES);
	rc = read_document(text, len, LIMIT_POLICY_DEPTH, &doc, e);
	if (rc < 0)
		return rc;
	if (!json_is_object(doc))
		return err_set(e, EINVAL, "", "a policy is a JSON object");
	p = calloc(1, sizeof *p);
	if (!p)
		return err_set(e, ENOMEM, "", "out of memory");
	set_defaults(p);
	rc = read_object(doc, &root, "a policy", keys, READ_COUNT(keys), p, e);
	if (rc < 0)
		return rc;
	/* Fails only where the library itself is broken: then no record could name the policy. */
	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, text, len, p->hash) < 0)
		return err_set(e, EIO, "", "no SHA-256: libgnutls does not work");
	*ret = p;
	p = NULL;
	return 0;
}
