/* SPDX-License-Identifier: Apache-2.0 */
/* The smaller parts of a policy document. */
#include "core/policy_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"

/* ---- nat64_prefixes ---- */

static int read_nat64_prefix(const json_t *v, const struct spot *at, struct weir_nat64 *ret, struct err *e)
{
	static const char lengths[] = {32, 40, 48, 56, 64, 96};
	struct err inner;
	struct cidr c;

	if (!json_is_string(v))
		return spot_wrong_kind(at, e, "an IPv6 prefix such as \"2001:db8:64::/96\"", v);
	if (cidr_parse(json_string_value(v), json_string_length(v), &c, &inner) < 0)
		return spot_fail(at, e, inner.code, "%s", inner.msg);
	if (c.family != 6)
		return spot_fail(at, e, EINVAL, "must be an IPv6 prefix: IPv4 addresses are carried in it");
	if (!memchr(lengths, c.len, sizeof lengths))
		return spot_fail(at, e, EINVAL, "must have length 32, 40, 48, 56, 64 or 96 (RFC 6052 section 2.2), and has %u",
				 (unsigned)c.len);
	if (c.addr[8] != 0)
		return spot_fail(at, e, EINVAL, "must have bits 64 to 71 zero (RFC 6052 section 2.2)");
	*ret = (struct weir_nat64){.len = c.len};
	memcpy(ret->addr, c.addr, sizeof ret->addr);
	return 0;
}

/* The place of an earlier prefix that holds this one or lies in it, or `count`. Two layouts for one address would hide one. */
static size_t overlaps(const struct weir_nat64 *all, size_t count)
{
	const struct weir_nat64 *n = &all[count];
	size_t i;

	for (i = 0; i < count; i++)
		if (!memcmp(all[i].addr, n->addr, (all[i].len < n->len ? all[i].len : n->len) / 8))
			break;
	return i;
}

int policy_read_nat64(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	struct policy *p = field;

	(void)key;
	if (!json_is_array(v))
		return spot_wrong_kind(at, e, "a list of IPv6 prefixes", v);
	if (json_array_size(v) > WEIR_NAT64_MAX)
		return spot_fail(at, e, E2BIG, "has %zu prefixes; one policy may have %d", json_array_size(v), WEIR_NAT64_MAX);
	for (size_t i = 0; i < json_array_size(v); i++) {
		struct spot here = {.up = at, .index = i};
		int rc = read_nat64_prefix(json_array_get(v, i), &here, &p->nat64[i], e);

		if (rc < 0)
			return rc;
		if (overlaps(p->nat64, i) < i)
			return spot_fail(
			    &here, e, EINVAL,
			    "overlaps /nat64_prefixes/%zu: an address of both would be decoded in one way only; name the one "
			    "that your translator uses",
			    overlaps(p->nat64, i));
		p->nat64_count++;
	}
	return 0;
}

/* ---- packets, sockets, limits, audit: objects of plain values ---- */

static const struct word allow_or_deny[] = {{"allow", 1}, {"deny", 0}, {NULL, 0}};

static const struct key packet_keys[] = {
    {"ipv4_options", false, read_word, offsetof(struct policy, ipv4_options), allow_or_deny},
    {"routing_headers", false, read_word, offsetof(struct policy, routing_headers), allow_or_deny},
    {"fragments", false, read_word, offsetof(struct policy, fragments), allow_or_deny},
};

int policy_read_packets(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	(void)key;
	return read_object(v, at, "\"packets\"", packet_keys, READ_COUNT(packet_keys), field, e);
}

static const struct word families[] = {
    {"unix", POLICY_AF_UNIX},
    {"inet", POLICY_AF_INET},
    {"inet6", POLICY_AF_INET6},
    {"netlink", POLICY_AF_NETLINK},
    {"packet", POLICY_AF_PACKET},
    {"vsock", POLICY_AF_VSOCK},
    {NULL, 0},
};
static const struct word types[] = {
    {"stream", POLICY_SOCK_STREAM},
    {"dgram", POLICY_SOCK_DGRAM},
    {"seqpacket", POLICY_SOCK_SEQPACKET},
    {"raw", POLICY_SOCK_RAW},
    {NULL, 0},
};
static const struct word protocols[] = {
    {"tcp", POLICY_PROTO_TCP},	 {"udp", POLICY_PROTO_UDP},   {"icmp", POLICY_PROTO_ICMP},   {"udplite", POLICY_PROTO_UDPLITE},
    {"sctp", POLICY_PROTO_SCTP}, {"dccp", POLICY_PROTO_DCCP}, {"mptcp", POLICY_PROTO_MPTCP}, {NULL, 0},
};

static const struct key socket_keys[] = {
    {"families", false, read_word_set, offsetof(struct policy, sockets.families), families},
    {"types", false, read_word_set, offsetof(struct policy, sockets.types), types},
    {"protocols", false, read_word_set, offsetof(struct policy, sockets.protocols), protocols},
};

int policy_read_sockets(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	(void)key;
	((struct policy *)field)->sockets_said = true;
	return read_object(v, at, "\"sockets\"", socket_keys, READ_COUNT(socket_keys), field, e);
}

/* No less than a program needs to start, no more than a machine has. 0 would mean "none", so it is not a value. */
static const struct range memory = {1 << 20, 1ULL << 50}, cpu = {1, 102400}, processes = {1, 4194304}, files = {1, 1 << 20},
			  datagram_sockets = {1, 65536};

static const struct key limit_keys[] = {
    {"memory_bytes", false, read_u64, offsetof(struct policy, limits.memory_bytes), &memory},
    {"cpu_percent", false, read_u32, offsetof(struct policy, limits.cpu_percent), &cpu},
    {"processes", false, read_u32, offsetof(struct policy, limits.processes), &processes},
    {"open_files", false, read_u32, offsetof(struct policy, limits.open_files), &files},
    {"datagram_sockets", false, read_u32, offsetof(struct policy, limits.datagram_sockets), &datagram_sockets},
};

int policy_read_limits(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	(void)key;
	return read_object(v, at, "\"limits\"", limit_keys, READ_COUNT(limit_keys), field, e);
}

static const struct key audit_keys[] = {
    {"allowed", false, read_bool, offsetof(struct policy, list_allowed), NULL},
};

int policy_read_audit(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	(void)key;
	return read_object(v, at, "\"audit\"", audit_keys, READ_COUNT(audit_keys), field, e);
}

/* ---- syscalls ---- */

/* One entry: what it does to each of its names. */
struct entry {
	const json_t *names;
	bool kill, has_errno;
	int error;
};

static int read_names(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	(void)key;
	if (!json_is_array(v))
		return spot_wrong_kind(at, e, "a list of system calls and groups", v);
	if (json_array_size(v) == 0)
		return spot_fail(at, e, EINVAL, "must not be empty; leave the entry out");
	*(const json_t **)field = v;
	return 0;
}

/* The kernel's name for a number has others beside it. */
static int errno_by_name(const char *name)
{
	static const struct word aliases[] = {{"EWOULDBLOCK", EWOULDBLOCK},
					      {"EDEADLOCK", EDEADLOCK},
					      {"ENOTSUP", ENOTSUP},
					      {"EOPNOTSUPP", EOPNOTSUPP},
					      {NULL, 0}};

	for (size_t i = 0; aliases[i].text; i++)
		if (!strcmp(aliases[i].text, name))
			return (int)aliases[i].value;
	for (int n = 1; n <= EHWPOISON; n++) {
		const char *known = strerrorname_np(n);

		if (known && !strcmp(known, name))
			return n;
	}
	return 0;
}

static int read_errno(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	static const struct range numbers = {1, 4095};
	struct entry *entry = field;
	uint64_t number;
	int rc;

	(void)key;
	entry->has_errno = true;
	if (json_is_string(v)) {
		entry->error = errno_by_name(json_string_value(v));
		return entry->error
			   ? 0
			   : spot_fail(at, e, EINVAL, "must be an error's name such as \"EPERM\" or \"ENOSYS\", or its number");
	}
	if (!json_is_integer(v))
		return spot_wrong_kind(at, e, "an error's name such as \"EPERM\", or its number", v);
	rc = read_number(v, at, &numbers, &number, e);
	if (rc == 0)
		entry->error = (int)number;
	return rc;
}

static const struct word actions[] = {{"errno", 0}, {"kill", 1}, {NULL, 0}};

static const struct key entry_keys[] = {
    {"names", true, read_names, offsetof(struct entry, names), NULL},
    {"action", false, read_word, offsetof(struct entry, kill), actions},
    {"errno", false, read_errno, 0, NULL},
};

/* A group's name is one '@', then words with hyphens; a call's is what C takes for a name. */
static bool is_call_name(const char *s, size_t len)
{
	bool group = len > 0 && s[0] == '@';

	if (len <= (group ? 1 : 0) || len >= POLICY_NAME_MAX)
		return false;
	for (size_t i = group; i < len; i++)
		if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') || s[i] == (group ? '-' : '_')))
			return false;
	return true;
}

static int add_name(struct policy *p, const json_t *v, const struct spot *at, const struct entry *entry, size_t index,
		    struct err *e)
{
	const char *s = json_string_value(v);
	struct policy_syscall_rule *rule;

	if (!s)
		return spot_wrong_kind(at, e, "a system call's name, or a group such as \"@mount\"", v);
	if (!is_call_name(s, json_string_length(v)))
		return spot_fail(at, e, EINVAL,
				 "must be a system call's name such as \"ptrace\", or a group such as \"@mount\"");
	if (p->syscall_count == LIMIT_POLICY_SYSCALLS)
		return spot_fail(at, e, E2BIG,
				 "is one too many: one policy may name %d system calls and groups; a group holds many",
				 LIMIT_POLICY_SYSCALLS);
	rule = &p->syscalls[p->syscall_count++];
	*rule = (struct policy_syscall_rule){.kill = entry->kill, .error = entry->error, .index = (uint16_t)index};
	memcpy(rule->name, s, json_string_length(v) + 1);
	/* The entry's own place is two spots above. */
	rule->entry = (uint16_t)at->up->up->index;
	return 0;
}

static int read_entry(struct policy *p, const json_t *v, const struct spot *at, struct err *e)
{
	struct spot names = {.up = at, .key = "names"}, error = {.up = at, .key = "errno"};
	struct entry entry = {.error = EPERM};
	int rc = read_object(v, at, "an entry of \"syscalls\"", entry_keys, READ_COUNT(entry_keys), &entry, e);

	if (rc < 0)
		return rc;
	if (entry.kill && entry.has_errno)
		return spot_fail(&error, e, EINVAL, "says nothing with action \"kill\"; leave one of the two out");
	for (size_t i = 0; i < json_array_size(entry.names); i++) {
		struct spot here = {.up = &names, .index = i};

		rc = add_name(p, json_array_get(entry.names, i), &here, &entry, i, e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int policy_read_syscalls(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	struct policy *p = field;

	(void)key;
	if (!json_is_array(v))
		return spot_wrong_kind(at, e, "a list", v);
	p->syscalls = calloc(LIMIT_POLICY_SYSCALLS, sizeof *p->syscalls);
	if (!p->syscalls)
		return spot_fail(at, e, ENOMEM, "out of memory");
	for (size_t i = 0; i < json_array_size(v); i++) {
		struct spot here = {.up = at, .index = i};
		int rc = read_entry(p, json_array_get(v, i), &here, e);

		if (rc < 0)
			return rc;
	}
	return 0;
}
