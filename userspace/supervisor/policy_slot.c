/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies in force: put there, replaced when the operator asks (SIGHUP) or the host's addresses change, and remembered for
 * a while, since what was judged by them is told later. Whatever goes wrong leaves in force what was.
 *
 * Two documents, three slots: that of carriers is the tools' document once more.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/samefile.h"
#include "supervisor/attached.h"

#define WARNINGS_MAX 16
#define RESOLV_CONF "/etc/resolv.conf"
#define REFRESH_RETRY_NS 1000000000ull
#define REFRESH_LEAST_NS 200000000ull /* between two readings, but for the first of a row */

static const char *const whose[SLOTS] = {
    [SLOT_SNIPPET] = "policy", [SLOT_TOOL] = "policy of tools", [SLOT_CARRIER] = "policy of tools' packets"};

static bool in_use(const struct supervisor *s, enum slot slot)
{
	return s->inforce[slot].policy != NULL;
}

/* ---- what was in force, by slot and generation ---- */

static void remember(struct supervisor *s, enum slot slot)
{
	if (remembered_add(&s->remembered[slot], &s->inforce[slot]))
		notes_drain_all(s);
	remembered_make_room(&s->remembered[slot]);
}

void slot_judged(const struct supervisor *s, enum slot slot, const struct weir_flow_key *k, struct note_judged *ret)
{
	remembered_judged(&s->remembered[slot], k, ret);
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
	struct cidr servers[RESOLVCONF_SERVERS];
	const struct policy_env env = inforce_env(f, servers);
	size_t n = policy_warnings(f->policy, &env, warnings, WARNINGS_MAX);

	for (size_t i = 0; i < n && i < WARNINGS_MAX; i++)
		log_warn("policy %s: %s: %s", f->policy->name, warnings[i].where, warnings[i].text);
	if (n > WARNINGS_MAX)
		log_warn("policy %s: and %zu more warnings: see `weir policy check`", f->policy->name, n - WARNINGS_MAX);
}

/* Once for everybody, and once for each run that goes on under it: its record has both policies it was judged by. */
static void note_change(struct supervisor *s, enum slot slot, const struct note_policy *old, enum policy_change why)
{
	struct note n;

	policy_text_tell(s, &s->inforce[slot]);
	note_init(&n, NOTE_POLICY, NULL);
	n.policy.old = *old;
	slot_name(&s->inforce[slot], &n.policy.now);
	n.policy.reason = why;
	notes_push(s, &n);
	notes_push_to_runs(s, slot, &n);
}

static void changed(struct supervisor *s, enum slot slot, const struct note_policy *old, enum policy_change why)
{
	char before[128], after[128];
	struct note_policy now;

	remember(s, slot);
	/* Of carriers there is nothing to tell: it is their tools' document, told with theirs. */
	if (slot == SLOT_CARRIER)
		return;
	slot_name(&s->inforce[slot], &now);
	note_change(s, slot, old, why);
	log_info("%s replaced (%s): %s, now %s", whose[slot], policy_change_names[why], in_words(old, before),
		 in_words(&now, after));
}

/* ---- in force ---- */

/*
 * Each datagram socket of a tool is one of the host's, with a port of its own, of which the host has some thousands for
 * everybody.
 */
static int behind_tools(const struct inforce *tools, struct inforce *ret, struct err *e)
{
	return inforce_behind(tools, SLOT_CARRIER, LIMIT_WAY_OUT_DATAGRAM_SOCKETS, ret, e);
}

/* What tools see of the host's name servers, and the same document for those who carry their packets. */
static int prepare_tools(struct supervisor *s, struct err *e)
{
	int rc = inforce_see(&s->inforce[SLOT_TOOL], wayout_servers, e);

	return rc < 0 ? rc : behind_tools(&s->inforce[SLOT_TOOL], &s->inforce[SLOT_CARRIER], e);
}

int slot_apply(struct supervisor *s, struct err *e)
{
	int rc = 0;

	if (in_use(s, SLOT_TOOL) && s->config.tool_egress)
		rc = prepare_tools(s, e);
	for (enum slot slot = 0; rc == 0 && slot < SLOTS; slot++) {
		if (!in_use(s, slot))
			continue;
		rc = inforce_apply(&s->inforce[slot], s->guard, slot, e);
		if (rc < 0)
			return rc;
		remember(s, slot);
		if (slot == SLOT_CARRIER)
			continue;
		policy_text_tell(s, &s->inforce[slot]);
		log_warnings(&s->inforce[slot]);
	}
	if (rc == 0)
		wayout_look(s);
	return rc;
}

/*
 * The carriers' first: until both are others, what leaves is what both of them allow. Without a place for the tools' own the
 * carriers keep the new one, which can only refuse more.
 */
static int swap(struct supervisor *s, enum slot slot, struct inforce *fresh, struct inforce *behind, struct err *e)
{
	struct note_policy unused = {0};
	int rc = 0;

	if (behind->policy) {
		rc = inforce_swap(&s->inforce[SLOT_CARRIER], behind, s->guard, e);
		if (rc == 0)
			changed(s, SLOT_CARRIER, &unused, POLICY_CHANGE_RELOAD);
	}
	return rc == 0 ? inforce_swap(&s->inforce[slot], fresh, s->guard, e) : rc;
}

/* Tools' document is seldom the one that was written: what is as it was need not be put in force, nor told. */
static bool is_unchanged(const struct supervisor *s, enum slot slot, const struct inforce *fresh)
{
	const struct inforce *f = &s->inforce[slot];

	return slot == SLOT_TOOL && !memcmp(f->policy->hash, fresh->policy->hash, sizeof f->policy->hash) &&
	       image_equal(f->image, fresh->image);
}

/* 1 replaced, 0 it is as it was, negative errno. */
static int reload(struct supervisor *s, enum slot slot, struct err *e)
{
	struct inforce fresh = {0}, behind = {0};
	int rc = inforce_reread(&s->inforce[slot], &fresh, e);

	if (rc < 0)
		return rc;
	if (is_unchanged(s, slot, &fresh)) {
		inforce_clear(&fresh);
		return 0;
	}
	if (slot == SLOT_TOOL && in_use(s, SLOT_CARRIER))
		rc = behind_tools(&fresh, &behind, e);
	if (rc == 0 && s->admit)
		rc = s->admit(s, slot, &fresh, e);
	if (rc == 0)
		rc = swap(s, slot, &fresh, &behind, e);
	inforce_clear(&behind);
	if (rc < 0)
		inforce_clear(&fresh);
	if (s->admitted)
		s->admitted(s, slot, rc == 0);
	return rc < 0 ? rc : 1;
}

static void reload_one(struct supervisor *s, enum slot slot)
{
	struct note_policy old;
	struct err e = {0};
	char text[128];
	int rc;

	slot_name(&s->inforce[slot], &old);
	rc = reload(s, slot, &e);
	if (rc == 0)
		return;
	if (rc < 0) {
		s->failed_reloads++;
		log_error("the %s was not replaced (%s: %s); %s stays in force; %u failed so far", whose[slot], e.where, e.msg,
			  in_words(&old, text), s->failed_reloads);
		return;
	}
	changed(s, slot, &old, POLICY_CHANGE_RELOAD);
	log_warnings(&s->inforce[slot]);
}

void slot_reload(struct supervisor *s)
{
	if (in_use(s, SLOT_SNIPPET))
		reload_one(s, SLOT_SNIPPET);
	if (in_use(s, SLOT_TOOL))
		reload_one(s, SLOT_TOOL);
}

static int refresh(struct supervisor *s, enum slot slot, struct err *e)
{
	struct note_policy old;
	int rc;

	slot_name(&s->inforce[slot], &old);
	rc = inforce_refresh(&s->inforce[slot], s->guard, e);
	if (rc > 0) {
		changed(s, slot, &old, POLICY_CHANGE_ADDRESSES);
		if (s->admitted && slot != SLOT_CARRIER)
			s->admitted(s, slot, true);
	}
	return rc;
}

void slot_refresh(struct supervisor *s)
{
	struct err e = {0};
	int rc = 0;

	s->refresh_ns = 0;
	s->refreshed_ns = now_ns();
	attached_refresh(s);
	for (enum slot slot = 0; rc >= 0 && slot < SLOTS; slot++)
		if (in_use(s, slot))
			rc = refresh(s, slot, &e);
	if (rc >= 0) {
		s->refresh_problem[0] = '\0';
		wayout_look(s);
		return;
	}
	/* Addresses that are new may be missing from @host until it works. */
	if (strncmp(s->refresh_problem, e.msg, sizeof s->refresh_problem - 1) != 0) /* once, not every second */
		log_error("the policy does not know the host's new addresses yet (%s: %s)", e.where, e.msg);
	snprintf(s->refresh_problem, sizeof s->refresh_problem, "%.255s", e.msg);
	s->refresh_ns = now_ns() + REFRESH_RETRY_NS;
}

/* ---- when to look ---- */

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

static struct stat look_at(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? (struct stat){0} : st;
}

void slot_check_resolvers(struct supervisor *s)
{
	struct stat now = look_at(RESOLV_CONF);

	if (same_file(&now, &s->resolv_conf))
		return;
	s->resolv_conf = now;
	slot_refresh(s);
}

int slot_watch(struct supervisor *s, struct err *e)
{
	int rc;

	s->resolv_conf = look_at(RESOLV_CONF);
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
	policy_text_free(s);
	for (enum slot slot = 0; slot < SLOTS; slot++) {
		remembered_clear(&s->remembered[slot]);
		inforce_clear(&s->inforce[slot]);
	}
}
