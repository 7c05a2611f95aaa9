/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/leftover.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "kernel/tcpsocks.h"
#include "verdict.h"

#define STILL_S 5	/* nothing of what the policy allows was acknowledged for so long */
#define ALLOWED_S 60	/* and at most, however slowly it goes */
#define STUCK_S 150	/* the kernel itself gives up on a connection without an owner after some 100 s */
#define CLOSINGS_MAX 50 /* kernels before 6.12 go on showing what was destroyed */
#define PAUSE_MAX_MS 20

struct chooser {
	const struct policy_image *image;
	bool all; /* whatever still holds something */
};

/*
 * With `inbound` the answers of sockets that the command accepted may leave whatever the rules say, and which those are only
 * the programs know: they are given the time to let them out. For the same reason a connection to where the rules allow is not
 * simply left alone: the programs may stop it for its options, which can't be seen from here.
 */
static bool is_unwanted(const void *ctx, const struct tcpsock *s)
{
	const struct chooser *c = ctx;
	bool mapped;
	struct weir_dest d = dest_of_call(&s->to, IPPROTO_TCP, s->port, &mapped);

	if (c->all && s->queued)
		return true;
	return weir_denies(image_judge(c->image, &d)) && !(c->image->head.flags & WEIR_IMG_INBOUND);
}

static bool is_over(const struct leftover *l, uint64_t now)
{
	return now - l->moved_ns >= STILL_S * SECOND_NS || now - l->began_ns >= ALLOWED_S * SECOND_NS;
}

static int pause_ms(const struct leftover *l)
{
	return l->rounds < 5 ? 1 << l->rounds : PAUSE_MAX_MS;
}

/* It can't be closed: then the programs stay until it is gone. */
static int wait_stuck(struct leftover *l, const struct tcpsocks_result *r, bool hurry, uint64_t now)
{
	if (!hurry && now - l->began_ns < STUCK_S * SECOND_NS) {
		if (!l->told_stuck)
			log_warn(
			    "the command left %u connections that can't be closed (%s%s): waiting up to %d s for their end",
			    r->stuck, strerror(-r->error),
			    r->error == -EOPNOTSUPP ? ": this kernel has no CONFIG_INET_DIAG_DESTROY" : "", STUCK_S);
		l->told_stuck = true;
		return PAUSE_MAX_MS;
	}
	log_error("%u connections that the command left could not be closed (%s): what they hold may be sent now, unjudged",
		  r->stuck, strerror(-r->error));
	return 0;
}

int leftover_round(struct leftover *l, const struct policy_image *image, bool hurry)
{
	uint64_t now = clock_now_ns();
	struct chooser chooser = {.image = image};
	struct tcpsocks_result r;
	struct err e;

	if (image->head.flags & WEIR_IMG_MONITOR)
		return 0;
	if (!l->began_ns)
		l->began_ns = l->moved_ns = now;
	chooser.all = hurry || is_over(l, now);
	if (tcpsocks_close(l->cgroup, is_unwanted, &chooser, &r, &e) < 0) {
		log_error("what the command's connections still hold is not known (%s) and may be sent now, unjudged", e.msg);
		return 0;
	}
	if (r.closed && chooser.all && !l->closings)
		log_warn("%u connections that the command left still held data: closed, it is lost", r.closed);
	l->closings = r.closed ? l->closings + 1 : 0;
	if (r.queued < l->queued)
		l->moved_ns = now;
	l->queued = r.queued;
	l->rounds++;
	if (r.stuck)
		return wait_stuck(l, &r, hurry, now);
	return r.busy || (r.closed && l->closings < CLOSINGS_MAX) ? pause_ms(l) : 0;
}

static bool is_any(const void *ctx, const struct tcpsock *s)
{
	(void)ctx;
	(void)s;
	return true;
}

void leftover_destroy(uint64_t cgroup)
{
	struct tcpsocks_result r = {.closed = 1};
	struct err e;

	for (int i = 0; r.closed && i < CLOSINGS_MAX; i++)
		if (tcpsocks_close(cgroup, is_any, NULL, &r, &e) < 0) {
			log_warn("what the connections of a dead instance still hold is not known: %s", e.msg);
			return;
		}
	if (r.stuck)
		log_warn("%u connections of a dead instance could not be closed: %s", r.stuck, strerror(-r.error));
}
