/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting a policy on a cgroup that somebody else made, looking whether it still holds, and taking it off. Everything here is
 * done by whoever calls, as root, with no service: `weir attach`, the OCI hook, and `weir serve` when it looks after them.
 */
#ifndef WEIR_ATTACH_ATTACH_H
#define WEIR_ATTACH_ATTACH_H

#include "attach/attachment.h"

struct attach_request {
	enum target_kind kind;
	const char *ref;
	const char *policy;			   /* NULL with TARGET_PARENT */
	bool unknown_passes;			   /* TARGET_PARENT */
	const char *resolvers[ATTACHED_RESOLVERS]; /* the workload's name servers; none: the host's own */
	size_t resolver_count;
	bool force;	    /* what is refused and may be forced counts as partial */
	bool require_full;  /* partial is refused */
	bool no_other;	    /* one that is there with another policy (by name or path) is refused, -EEXIST, not replaced */
	const char *bundle; /* the container is being created: inspect_bundle() instead of inspect_target(); else NULL */
};

struct attach_result {
	struct attachment a;
	struct inspection seen;
	struct preflight others;
	bool again; /* it had one already: the policy was swapped in place */
};

/*
 * In this order: find, inspect, refuse what must be refused (-EPERM, e->where "coverage"; *ret is filled in as far as it was
 * known), look at who else is there, load and attach with no entry for an instant (denied), enter the policy, ask the kernel
 * whether all programs are in force on it and on every cgroup below it, try it from inside, write it down. What fails leaves
 * nothing behind, and leaves in force what was. On a cgroup that has an attachment in good order the policy is swapped in
 * place.
 *
 * Below a parent that is carried (TARGET_PARENT), a cgroup directly below it gets leave there at the end, when its own programs
 * judge it; one further down is refused (-EPERM) unless what is directly below the parent has a policy.
 */
int attach_make(const struct attach_request *r, struct attach_result *ret, struct err *e);
void attach_result_clear(struct attach_result *r);

/* Takes it off: leave at parents, entry, links, pins, files. Fine when parts are missing. */
int attach_remove(const struct attachment *a, struct err *e);
/* Every one; for uninstall. */
int attach_remove_all(unsigned *ret_count, struct err *e);

/*
 * What the kernel says of one now. It looks at every hook: whether the pin is there, the link is attached to this cgroup, and
 * its program is effective on the target and on every cgroup below.
 */
enum attach_state {
	ATTACH_IN_FORCE,
	ATTACH_DRIFT,	  /* not all of it holds: `problems` */
	ATTACH_RECREATED, /* there is a cgroup of that name, and it is another: nothing of ours is on it */
	ATTACH_GONE,	  /* the cgroup is gone */
	ATTACH_STATES
};
extern const char *const attach_state_names[ATTACH_STATES]; /* "in force", "drift", "recreated", "gone" */

#define ATTACH_PROBLEMS 16
struct attach_check {
	enum attach_state state;
	struct {
		char name[32];	/* "pin", "detached", "not effective", "entry", "parent", "foreign", "recreated" */
		char text[224]; /* what, where, and what mends it */
	} problems[ATTACH_PROBLEMS];
	size_t problem_count;
	bool readable; /* the counters below could be read */
	struct weir_sandbox counters;
	struct weir_sandbox unknown; /* of a parent: what has no entry there */
	uint64_t lost;		     /* events that did not fit the ring */
	struct preflight others;
};
void attach_check(const struct attachment *a, struct attach_check *ret);

/*
 * Removes pins whose cgroup is gone, and what has been remembered for long enough. `last`: called with each before its pins go,
 * to drain them; NULL: nothing. Returns how many it took, or a negative errno. Takes the lock; 0 when somebody else has it.
 */
int attach_clear_up(void (*last)(void *ctx, const struct attachment *a), void *ctx, struct err *e);

#endif
