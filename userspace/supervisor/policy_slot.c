/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy in force: put there, replaced when the operator asks (SIGHUP) or the host's addresses change, and remembered for
 * a while, since what was judged by it is told later. Whatever goes wrong leaves in force what was.
 */
#include "supervisor/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/log.h"

#define WARNINGS_MAX 16
#define REFRESH_RETRY_NS 1000000000ull
#define REFRESH_LEAST_NS 200000000ull /* between two readings, but for the first of a row */

/* ---- what was in force, by generation ---- */

static void forget(struct remembered_policy *r)
{
	free(r->rule_names);
	memset(r, 0, sizeof *r);
}

static void put_down(struct remembered_policy *r, const struct inforce *f)
{
	r->generation = f->generation;
	r->head = f->image->head;
	r->rule_names = calloc(f->policy->rule_count + 1, sizeof *r->rule_names);
	if (!r->rule_names) {
		log_warn("out of memory: rules of policy generation %u will be recorded by number only", f->generation);
		return;
	}
	r->rule_count = f->policy->rule_count;
	for (size_t i = 0; i < r->rule_count; i++)
		snprintf(r->rule_names[i], sizeof r->rule_names[i], "%s", f->policy->rules[i].name);
}

/* The place for the next is always empty: what the oldest judged and the ring still holds is told while both have a name. */
static void remember(struct supervisor *s, const struct inforce *f)
{
	struct remembered_policy *oldest;

	put_down(&s->remembered[s->next_remembered], f);
	s->next_remembered = (s->next_remembered + 1) % REMEMBERED_POLICIES;
	oldest = &s->remembered[s->next_remembered];
	if (oldest->generation)
		notes_drain_all(s);
	forget(oldest);
}

static const struct remembered_policy *recall(const struct supervisor *s, uint32_t generation)
{
	for (unsigned i = 0; generation && i < REMEMBERED_POLICIES; i++)
		if (s->remembered[i].generation == generation)
			return &s->remembered[i];
	return NULL;
}

void slot_judged(const struct supervisor *s, const struct weir_flow_key *k, struct note_judged *ret)
{
	const struct remembered_policy *r = recall(s, k->generation);
	struct cidr carried;

	memset(ret, 0, sizeof *ret);
	if (!r)
		return;
	if (k->rule >= 1 && k->rule <= r->rule_count)
		snprintf(ret->rule_name, sizeof ret->rule_name, "%s", r->rule_names[k->rule - 1]);
	if (k->via == WEIR_VIA_NAT64_CONFIGURED) {
		/* Only the head is asked for its prefixes. */
		const struct policy_image image = {.head = r->head};

		if (image_carried(&image, k->daddr, k->via, &carried)) {
			memcpy(ret->carried, carried.addr + 12, sizeof ret->carried);
			ret->has_carried = 1;
		}
	}
}

void slot_name(const struct inforce *f, struct note_policy *ret)
{
	memset(ret, 0, sizeof *ret);
	snprintf(ret->name, sizeof ret->name, "%s", f->policy->name);
	memcpy(ret->hash, f->policy->hash, sizeof ret->hash);
	ret->generation = f->generation;
	ret->quiet = !f->policy->list_allowed;
}

/* ---- telling ---- */

/* "name, generation N (0123456789abcdef)": enough of the hash to tell two documents apart. */
static const char *in_words(const struct note_policy *p, char ret[128])
{
	int n = snprintf(ret, 128, "%s, generation %u (", p->name, p->generation);

	for (int i = 0; i < 8; i++)
		n += snprintf(ret + n, 128 - (size_t)n, "%02x", p->hash[i]);
	snprintf(ret + n, 128 - (size_t)n, ")");
	return ret;
}

static void log_warnings(const struct inforce *f)
{
	struct policy_warning warnings[WARNINGS_MAX];
	size_t n = policy_warnings(f->policy, &f->net.env, warnings, WARNINGS_MAX);

	for (size_t i = 0; i < n && i < WARNINGS_MAX; i++)
		log_warn("policy %s: %s: %s", f->policy->name, warnings[i].where, warnings[i].text);
	if (n > WARNINGS_MAX)
		log_warn("policy %s: and %zu more warnings: see `weir policy check`", f->policy->name, n - WARNINGS_MAX);
}

/* Once for everybody, and once for each run that goes on under it: its record has both policies it was judged by. */
static void note_change(struct supervisor *s, const struct note_policy *old, enum policy_change why)
{
	struct note n;

	note_init(&n, NOTE_POLICY, NULL);
	n.policy.old = *old;
	slot_name(&s->inforce, &n.policy.now);
	n.policy.reason = why;
	notes_push(s, &n);
	notes_push_to_runs(s, &n);
}

static void changed(struct supervisor *s, const struct note_policy *old, enum policy_change why)
{
	char before[128], after[128];
	struct note_policy now;

	remember(s, &s->inforce);
	slot_name(&s->inforce, &now);
	note_change(s, old, why);
	log_info("policy replaced (%s): %s, now %s", policy_change_names[why], in_words(old, before), in_words(&now, after));
}

/* ---- in force ---- */

int slot_apply(struct supervisor *s, struct err *e)
{
	int rc = inforce_apply(&s->inforce, s->guard, 0, e);

	if (rc < 0)
		return rc;
	remember(s, &s->inforce);
	log_warnings(&s->inforce);
	return 0;
}

static int reload(struct supervisor *s, struct err *e)
{
	struct inforce fresh = {0};
	int rc = inforce_reread(&s->inforce, &fresh, e);

	if (rc < 0)
		return rc;
	if (s->admit)
		rc = s->admit(s, &fresh, e);
	if (rc == 0)
		rc = inforce_swap(&s->inforce, &fresh, s->guard, e);
	if (rc < 0)
		inforce_clear(&fresh);
	if (s->admitted)
		s->admitted(s, rc == 0);
	return rc;
}

void slot_reload(struct supervisor *s)
{
	struct note_policy old;
	struct err e = {0};
	char text[128];

	slot_name(&s->inforce, &old);
	if (reload(s, &e) < 0) {
		s->failed_reloads++;
		log_error("the policy was not replaced (%s: %s); %s stays in force; %u failed so far", e.where, e.msg,
			  in_words(&old, text), s->failed_reloads);
		return;
	}
	changed(s, &old, POLICY_CHANGE_RELOAD);
	log_warnings(&s->inforce);
}

void slot_refresh(struct supervisor *s)
{
	struct note_policy old;
	struct err e = {0};
	int rc;

	s->refresh_ns = 0;
	s->refreshed_ns = now_ns();
	slot_name(&s->inforce, &old);
	rc = inforce_refresh(&s->inforce, s->guard, &e);
	if (rc >= 0)
		s->refresh_problem[0] = '\0';
	if (rc > 0) {
		changed(s, &old, POLICY_CHANGE_ADDRESSES);
		if (s->admitted)
			s->admitted(s, true);
	} else if (rc < 0) {
		/* Addresses that are new may be missing from @host until it works. */
		if (strncmp(s->refresh_problem, e.msg, sizeof s->refresh_problem - 1) != 0) /* once, not every second */
			log_error("the policy does not know the host's new addresses yet (%s: %s)", e.where, e.msg);
		snprintf(s->refresh_problem, sizeof s->refresh_problem, "%.255s", e.msg);
		s->refresh_ns = now_ns() + REFRESH_RETRY_NS;
	}
}

/* The first change at once, what follows it soon together: addresses can come and go by the hundred. */
static void on_addresses(struct supervisor *s, struct source *src, uint32_t events)
{
	(void)events;
	if (!netenv_changed(src->fd))
		return;
	if (now_ns() - s->refreshed_ns >= REFRESH_LEAST_NS)
		slot_refresh(s);
	else if (!s->refresh_ns)
		s->refresh_ns = s->refreshed_ns + REFRESH_LEAST_NS;
}

int slot_watch(struct supervisor *s, struct err *e)
{
	int rc;

	s->addresses_src.fn = on_addresses;
	rc = netenv_watch(&s->addresses_src.fd, e);
	if (rc == 0 && (rc = source_add(s, &s->addresses_src, EPOLLIN)) < 0)
		return err_errno(e, -rc, "network", "watch the host's addresses");
	/* What changed between reading them and watching. */
	if (rc == 0)
		slot_refresh(s);
	return rc;
}

void slot_free(struct supervisor *s)
{
	source_close(s, &s->addresses_src);
	for (unsigned i = 0; i < REMEMBERED_POLICIES; i++)
		forget(&s->remembered[i]);
	inforce_clear(&s->inforce);
}
