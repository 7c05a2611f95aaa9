/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of a tool's sandbox: a tap that init makes, and a process outside that carries its packets, which the gateway
 * starts. Here is the cgroup of that process, with its limits and its policy, and what sandboxes are told of the host's
 * network.
 */
#include "supervisor/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "gateway/gateway.h"

#define CARRIER_PIDS 1

/* ---- what sandboxes are told ---- */

static struct cidr prefix(const char *text)
{
	struct cidr c = {0};

	(void)cidr_parse(text, strlen(text), &c, NULL);
	return c;
}

/* Whether a sandbox can ask it by its own address: not one that means another host there, or needs a device of this one. */
static bool is_reachable(const struct cidr *server, const struct netenv *host)
{
	static const char tap[] = TAP_NET4 "/24";
	const char *const not_outside[] = {"127.0.0.0/8", "0.0.0.0/8", "::/127", "fe80::/10", tap};

	for (size_t i = 0; i < sizeof not_outside / sizeof not_outside[0]; i++) {
		struct cidr c = prefix(not_outside[i]);

		if (cidr_contains(&c, server))
			return false;
	}
	return server->family == 4 || host->ipv6_out;
}

/* One that stands for the first of its family, which is the one that libslirp puts in its place. */
static bool is_first(const struct netenv *host, size_t server)
{
	for (size_t i = 0; i < server; i++)
		if (host->servers[i].family == host->servers[server].family)
			return false;
	return true;
}

size_t wayout_servers(const struct netenv *host, struct cidr ret[RESOLVCONF_SERVERS])
{
	size_t n = 0;

	for (size_t i = 0; i < host->server_count; i++) {
		const struct cidr *server = &host->servers[i];

		if (is_reachable(server, host))
			ret[n++] = *server;
		else if (is_first(host, i))
			ret[n++] = prefix(server->family == 4 ? TAP_RESOLVER4 : TAP_RESOLVER6);
	}
	return n;
}

static struct way_host look(const struct netenv *host)
{
	struct way_host w = {.known = true, .ipv6 = host->ipv6_out};
	struct cidr servers[RESOLVCONF_SERVERS];
	size_t n = wayout_servers(host, servers);

	for (size_t i = 0; i < n; i++) {
		char text[CIDR_TEXT_MAX];

		cidr_text(text, &servers[i], true);
		snprintf(w.resolvers[i], sizeof w.resolvers[i], "%.45s", text);
	}
	return w;
}

/* One that has not begun its call was told of a network that is another now. */
static void end_waiting(struct supervisor *s)
{
	struct box *b, *next;

	for (b = TAILQ_FIRST(&s->boxes); b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (b->way.wanted && b->state < BOX_CLAIMED)
			box_event(s, b, BOX_KILL);
	}
}

void wayout_look(struct supervisor *s)
{
	struct way_host now;

	if (!s->inforce[SLOT_CARRIER].policy)
		return;
	now = look(&s->inforce[SLOT_CARRIER].net);
	if (s->way_host.known && !memcmp(&now, &s->way_host, sizeof now))
		return;
	if (s->way_host.known)
		log_info("the host's name servers or its way out over IPv6 changed: tools' sandboxes that wait are made anew");
	s->way_host = now;
	end_waiting(s);
}

void wayout_plan(const struct supervisor *s, const struct box *b, struct init_plan *plan)
{
	_Static_assert(sizeof plan->resolvers == sizeof s->way_host.resolvers, "as many, as long");

	if (!b->way.wanted)
		return;
	plan->way_out = 1;
	plan->ipv6 = s->way_host.ipv6;
	memcpy(plan->resolvers, s->way_host.resolvers, sizeof plan->resolvers);
}

/* ---- its cgroup ---- */

static int make_cgroup(struct supervisor *s, struct box *b, struct err *e)
{
	static const struct cgroup_limits limits = {.memory_bytes = LIMIT_WAY_OUT_MEMORY_BYTES,
						    .cpu_percent = LIMIT_WAY_OUT_CPU_PERCENT,
						    .cpu_weight = POOL_WEIGHT_BUILDING,
						    .pids = CARRIER_PIDS};
	char name[sizeof b->way.cgroup.name];
	int rc;

	snprintf(name, sizeof name, "%s.out", b->id);
	rc = cgroup_box_make_v2(&b->way.cgroup, &s->cgroups, name, e);
	if (rc == 0)
		rc = cgroup_box_limit_v2(&b->way.cgroup, &s->cgroups, &limits, e);
	return rc == 0 ? cgroup_box_make_v1(&b->way.cgroup, &s->cgroups, &limits, e) : rc;
}

int wayout_make(struct supervisor *s, struct box *b, struct err *e)
{
	int rc;

	if (!b->way.wanted)
		return 0;
	rc = make_cgroup(s, b, e);
	if (rc == 0) {
		rc = guard_set_sandbox(s->guard, b->way.cgroup.id, SLOT_CARRIER, 0, e);
		b->way.guarded = rc == 0;
	}
	return rc == 0 ? guard_verify(s->guard, b->way.cgroup.v2_fd, e) : rc;
}

void wayout_kill(struct box *b)
{
	int rc = b->way.cgroup.v2_fd >= 0 ? cgroup_box_kill(&b->way.cgroup) : 0;

	if (rc < 0 && rc != -ENOENT)
		log_error("%s: kill the cgroup of its way out: %s", b->id, strerror(-rc));
}

int wayout_remove(struct supervisor *s, struct box *b)
{
	struct err e;
	int rc;

	/* What the gateway started after the kill, since it had been asked before it. Without an entry it may send nothing. */
	wayout_kill(b);
	if (b->way.guarded && guard_del_sandbox(s->guard, b->way.cgroup.id, &e) < 0)
		log_error("%s: the policy entry of its way out stays: %s", b->id, e.msg);
	b->way.guarded = false;
	rc = cgroup_box_remove(&b->way.cgroup, &s->cgroups);
	if (rc == -EBUSY)
		cgroup_box_unleash(&b->way.cgroup, &s->cgroups);
	return rc;
}

/* ---- the gateway ---- */

static int ask_gateway(struct supervisor *s, struct box *b, int tap, struct err *e)
{
	const struct carry job = {.req = b->way.cgroup.id, /* nobody else's, now or later */
				  .uid = UID_CARRIER_FIRST + (b->uid - UID_SANDBOX_FIRST),
				  .nofile = CARRIER_FDS_OWN + LIMIT_WAY_OUT_SOCKETS};
	int fds[2 + CG_CONTROLLERS] = {b->way.cgroup.v2_fd, tap};
	int tasks = cgroup_box_tasks(&b->way.cgroup, fds + 2, e), rc;
	struct carry send = job;

	_Static_assert(sizeof fds / sizeof fds[0] <= IPC_FDS_MAX, "all of them go in one message");
	if (tasks < 0)
		return tasks;
	send.v1_count = (uint32_t)tasks;
	rc = ipc_send(s->gateway_src.fd, &send, sizeof send, fds, 2 + (size_t)tasks);
	for (int i = 0; i < tasks; i++)
		close(fds[2 + i]);
	if (rc < 0)
		return err_errno(e, -rc, "network", "ask for somebody to carry its packets");
	b->way.asked = true;
	return 0;
}

int wayout_carry(struct supervisor *s, struct box *b, int tap, struct err *e)
{
	_cleanup_fd_ int taken = tap;

	if (!b->way.wanted || b->way.asked || taken < 0)
		return err_set(e, EBADMSG, "network", "init sent a device that nobody asked for");
	if (s->gateway_src.fd < 0)
		return err_set(e, ENOTCONN, "network", "there is nobody to carry a tool's packets");
	return ask_gateway(s, b, taken, e);
}

static struct box *box_by_carry(const struct supervisor *s, uint64_t req)
{
	struct box *b;

	TAILQ_FOREACH (b, &s->boxes, link)
		if (b->state == BOX_BUILDING && b->way.asked && !b->way.ready && b->way.cgroup.id == req)
			return b;
	return NULL; /* it ended in the meantime */
}

static void on_gateway(struct supervisor *s, struct source *src, uint32_t events)
{
	struct carrying c;
	ssize_t n = ipc_recv(src->fd, &c, sizeof c, NULL, NULL);
	struct box *b;

	(void)events;
	if (n == -EAGAIN)
		return;
	if (n != (ssize_t)sizeof c || !ipc_text_ok(c.text, sizeof c.text)) {
		/* Its process is watched: that it is gone ends the service. Until then no tool's sandbox can be made. */
		log_error("the gateway %s: its connection is closed", n == 0 ? "hung up" : "sent what is no answer");
		source_close(s, src);
		return;
	}
	b = box_by_carry(s, c.req);
	if (!b)
		return;
	if (c.status < 0) {
		box_fail(s, b, STEP_CARRY, -c.status, c.text);
		return;
	}
	b->way.ready = true;
	box_carried(s, b);
}

int wayout_open(struct supervisor *s, struct err *e)
{
	int rc;

	s->gateway_src = (struct source){.fn = on_gateway, .fd = s->config.gateway_fd};
	s->config.gateway_fd = -1;
	if (s->gateway_src.fd < 0)
		return 0;
	rc = source_add(s, &s->gateway_src, EPOLLIN);
	return rc < 0 ? err_errno(e, -rc, "network", "listen to the gateway") : 0;
}

void wayout_close(struct supervisor *s)
{
	source_close(s, &s->gateway_src);
}
