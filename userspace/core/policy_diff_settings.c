/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a policy that are no rules, each as a list of words that can be compared. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cidr.h"
#include "core/policy_diff_priv.h"

/* A list under way. */
struct words {
	char **list;
	size_t count;
	bool failed;
};

static void add(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct words *w, const char *fmt, ...)
{
	char **more = reallocarray(w->list, w->count + 1, sizeof *more), *text = NULL;
	va_list ap;

	if (more)
		w->list = more;
	va_start(ap, fmt);
	if (!more || vasprintf(&text, fmt, ap) < 0)
		w->failed = true;
	else
		w->list[w->count++] = text;
	va_end(ap);
}

static void free_words(char **list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(list[i]);
	free(list);
}

static void add_permission(struct words *w, bool allowed)
{
	add(w, allowed ? "allow" : "deny");
}

static void mode(const struct policy *p, struct words *w)
{
	add(w, p->monitor ? "monitor" : "enforce");
}

static void loopback(const struct policy *p, struct words *w)
{
	add(w, p->loopback == WEIR_LOOPBACK_SELF ? "self" : p->loopback == WEIR_LOOPBACK_DENY ? "deny" : "rules");
}

static void inbound(const struct policy *p, struct words *w)
{
	add_permission(w, p->inbound);
}

static void listening(const struct policy *p, struct words *w)
{
	add_permission(w, p->listen);
}

static void ipv4_options(const struct policy *p, struct words *w)
{
	add_permission(w, p->ipv4_options);
}

static void routing_headers(const struct policy *p, struct words *w)
{
	add_permission(w, p->routing_headers);
}

static void fragments(const struct policy *p, struct words *w)
{
	add_permission(w, p->fragments);
}

static void nat64_prefixes(const struct policy *p, struct words *w)
{
	for (size_t i = 0; i < p->nat64_count; i++) {
		struct cidr c = {.family = 6, .len = p->nat64[i].len};
		char text[CIDR_TEXT_MAX];

		memcpy(c.addr, p->nat64[i].addr, sizeof c.addr);
		cidr_text(text, &c, false);
		add(w, "%s", text);
	}
}

/* Names of single bits, the lowest first. */
static void add_bits(struct words *w, uint32_t bits, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bits >> i & 1)
			add(w, "%s", names[i]);
}

static void families(const struct policy *p, struct words *w)
{
	static const char *const names[] = {"unix", "inet", "inet6", "netlink", "packet", "vsock"};

	add_bits(w, p->sockets.families, names, sizeof names / sizeof *names);
}

static void types(const struct policy *p, struct words *w)
{
	static const char *const names[] = {"stream", "dgram", "seqpacket", "raw"};

	add_bits(w, p->sockets.types, names, sizeof names / sizeof *names);
}

static void protocols(const struct policy *p, struct words *w)
{
	static const char *const names[] = {"tcp", "udp", "icmp", "udplite", "sctp", "dccp", "mptcp"};

	add_bits(w, p->sockets.protocols, names, sizeof names / sizeof *names);
}

static void syscalls(const struct policy *p, struct words *w)
{
	for (size_t i = 0; i < p->syscall_count; i++) {
		const struct policy_syscall_rule *r = &p->syscalls[i];
		const char *name = strerrorname_np(r->error);

		if (r->kill)
			add(w, "%s (kills)", r->name);
		else if (name)
			add(w, "%s (%s)", r->name, name);
		else
			add(w, "%s (errno %d)", r->name, r->error);
	}
}

static void add_limit(struct words *w, uint64_t value)
{
	if (value)
		add(w, "%llu", (unsigned long long)value);
	else
		add(w, "none of its own");
}

static void memory_bytes(const struct policy *p, struct words *w)
{
	add_limit(w, p->limits.memory_bytes);
}

static void cpu_percent(const struct policy *p, struct words *w)
{
	add_limit(w, p->limits.cpu_percent);
}

static void processes(const struct policy *p, struct words *w)
{
	add_limit(w, p->limits.processes);
}

static void open_files(const struct policy *p, struct words *w)
{
	add_limit(w, p->limits.open_files);
}

static void datagram_sockets(const struct policy *p, struct words *w)
{
	add_limit(w, p->limits.datagram_sockets ? p->limits.datagram_sockets : WEIR_SOCKETS_PER_SANDBOX);
}

static void audit_allowed(const struct policy *p, struct words *w)
{
	add(w, p->list_allowed ? "true" : "false");
}

static const struct {
	const char *key;
	void (*words)(const struct policy *p, struct words *w);
} keys[] = {
    {"mode", mode},
    {"loopback", loopback},
    {"inbound", inbound},
    {"listen", listening},
    {"packets.ipv4_options", ipv4_options},
    {"packets.routing_headers", routing_headers},
    {"packets.fragments", fragments},
    {"nat64_prefixes", nat64_prefixes},
    {"sockets.families", families},
    {"sockets.types", types},
    {"sockets.protocols", protocols},
    {"syscalls", syscalls},
    {"limits.memory_bytes", memory_bytes},
    {"limits.cpu_percent", cpu_percent},
    {"limits.processes", processes},
    {"limits.open_files", open_files},
    {"limits.datagram_sockets", datagram_sockets},
    {"audit.allowed", audit_allowed},
};
#define KEYS (sizeof keys / sizeof *keys)

/* The order does not matter in any of the lists but that of system calls, where a change of order alone is worth a look. */
static bool same_words(const struct words *a, const struct words *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (strcmp(a->list[i], b->list[i]) != 0)
			return false;
	return true;
}

int policy_diff_settings(struct policy_diff *d, struct err *e)
{
	d->settings = calloc(KEYS, sizeof *d->settings);
	if (!d->settings)
		return err_set(e, ENOMEM, "", "no memory to compare the policies");
	for (size_t i = 0; i < KEYS; i++) {
		struct words old = {0}, new = {0};

		keys[i].words(d->old, &old);
		keys[i].words(d->new, &new);
		if (!old.failed && !new.failed && !same_words(&old, &new)) {
			d->settings[d->setting_count++] =
			    (struct setting){keys[i].key, old.list, new.list, old.count, new.count};
			continue;
		}
		free_words(old.list, old.count);
		free_words(new.list, new.count);
		if (old.failed || new.failed)
			return err_set(e, ENOMEM, "", "no memory to compare the policies");
	}
	return 0;
}

void policy_diff_free_settings(struct policy_diff *d)
{
	for (size_t i = 0; i < d->setting_count; i++) {
		free_words(d->settings[i].old, d->settings[i].old_count);
		free_words(d->settings[i].new, d->settings[i].new_count);
	}
	free(d->settings);
}
