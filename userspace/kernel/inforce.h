/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One policy in force in one slot of a guard: where it came from, what it compiled to, and its replacement while workloads run
 * under it. Whatever fails leaves in force what was in force.
 */
#ifndef WEIR_KERNEL_INFORCE_H
#define WEIR_KERNEL_INFORCE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/image.h"
#include "core/policy.h"
#include "kernel/guard.h"
#include "kernel/netenv.h"

struct inforce {
	char path[4096];       /* absolute, or a shipped policy's name; "": the embedded default */
	struct policy *policy; /* owned, also when it is a copy of the embedded one */
	struct policy_image *image;
	struct netenv net;
	uint32_t slot;
	uint32_t generation; /* what guard_set_policy() gave; 0 before inforce_apply() */
	/* The name servers of those it is for, when they see others than this host does. NULL: the host's own. Kept for good.
	 */
	size_t (*servers)(const struct netenv *host, struct cidr ret[RESOLVCONF_SERVERS]);
	struct cidr named[RESOLVCONF_SERVERS]; /* .. or these, whatever the host's are, when there are any. Kept for good */
	size_t named_count;
	char *text; /* the document as it was read */
	size_t text_len;
	bool quiet;		   /* what is allowed is not listed, whatever the document says. Kept for good */
	uint32_t datagram_sockets; /* at most so many, whatever the document says; 0: what it says. Kept for good */
};

/*
 * Reads and compiles a policy: a path, the name of a shipped one ("tool-call"), or NULL for the embedded default. Touches no
 * kernel map. Errors: where = "--policy", the message names file and place.
 */
int inforce_load(struct inforce *ret, const char *policy, struct err *e);
/* The same for those whose name servers are these; none: the host's own. */
int inforce_load_seeing(struct inforce *ret, const char *policy, const struct cidr *servers, size_t count, struct err *e);
void inforce_clear(struct inforce *f);
#define _cleanup_inforce_ __attribute__((cleanup(inforce_clear)))

/* Turns an error about the document (a JSON pointer in e->where) into one as above: file, place, sentence. Returns its code. */
int inforce_at_place(const struct inforce *f, struct err *e);

/* Compiles it anew for those who see other name servers. Before it is in force; on failure it is as it was. */
int inforce_see(struct inforce *f, size_t (*servers)(const struct netenv *host, struct cidr ret[RESOLVCONF_SERVERS]),
		struct err *e);

/*
 * The same document for another slot: quiet, with the host's own name servers, and with at most `datagram_sockets`. EAGAIN: the
 * document has become another.
 */
int inforce_behind(const struct inforce *f, uint32_t slot, uint32_t datagram_sockets, struct inforce *ret, struct err *e);

/* Puts it into `slot`. */
int inforce_apply(struct inforce *f, struct guard *g, uint32_t slot, struct err *e);

/*
 * The same document is in `slot` already, as `generation`, put there by another process at another time: what its dynamic sets
 * hold here and now is put in its place. -ESTALE: the slot's generation is another. The caller sees to it that nobody replaces
 * the policy meanwhile.
 */
int inforce_resume(struct inforce *f, struct guard *g, uint32_t slot, uint32_t generation, struct err *e);

/*
 * The two halves of a reload (SIGHUP), so that the new document can be looked at before it is in force. What inforce_reread()
 * gives is the caller's; inforce_swap() takes it on success and leaves both as they were on failure.
 */
int inforce_reread(const struct inforce *f, struct inforce *ret, struct err *e);
int inforce_swap(struct inforce *f, struct inforce *fresh, struct guard *g, struct err *e);

/* What the dynamic sets of its policy hold. */
struct policy_env inforce_env(const struct inforce *f, struct cidr room[RESOLVCONF_SERVERS]);

/* The host's addresses or name servers may have changed: compiles anew and swaps when they have; the
 * generation stays. 1 swapped, 0 as before. */
int inforce_refresh(struct inforce *f, struct guard *g, struct err *e);

#endif
