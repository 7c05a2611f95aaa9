/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a policy says of one destination. Pure, and the only place where it is decided: the kernel programs and user space
 * (`weir policy explain`, the tests) compile the same lines. The includer defines
 *
 *	WEIR_IMAGE			what names a compiled policy (its number in the kernel, a pointer in user space)
 *	weir_image_head(image)		its const struct weir_image *, or NULL
 *	weir_image_find(image, key)	the const struct weir_list * of the longest prefix that holds `key`, or NULL
 *	WEIR_SUBPROGRAM			what a function of its own looks like: in the kernel it is verified once, not per caller
 *
 * Order: what the packet is (options, routing header, fragment), loopback, the rules for the address as written, then the
 * rules for each address it carries; the first denial decides. Nothing that is missing or full allows.
 */
#ifndef WEIR_BPF_JUDGE_H
#define WEIR_BPF_JUDGE_H

#include "carried.h"
#include "judge_types.h"

WEIR_INLINE int weir_atom_matches(const struct weir_atom *a, const struct weir_dest *d)
{
	if (!(a->flags & WEIR_ATOM_ANY_PROTOCOL) && a->protocol != d->protocol)
		return 0;
	if (a->flags & WEIR_ATOM_ANY_PORT)
		return 1;
	/* A port nobody can see: may be one that is denied, is none that is allowed. */
	if (d->flags & WEIR_DEST_HEADLESS)
		return a->verdict != WEIR_ALLOW;
	return a->port_lo <= d->port && d->port <= a->port_hi;
}

/* `addr`: sixteen bytes with family 6, four with 4. */
WEIR_SUBPROGRAM weir_judgement weir_judge_rules(WEIR_IMAGE image, const struct weir_prefix *key, const struct weir_dest *d)
{
	const struct weir_image *head;
	const struct weir_list *list;
	__u32 i, n;

	if (!key || !d)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY);
	head = weir_image_head(image);
	list = weir_image_find(image, key);
	if (!head || !list)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY);
	n = list->count;
	for (i = 0; i < WEIR_LIST_ATOMS; i++) {
		const struct weir_atom *a = &list->atoms[i];

		if (i >= n)
			break;
		if (weir_atom_matches(a, d))
			return weir_judgement_by_rule(a->verdict == WEIR_ALLOW ? WEIR_ALLOW : WEIR_DENY, a->rule);
	}
	return weir_judgement_of(head->default_verdict == WEIR_ALLOW ? WEIR_ALLOW : WEIR_DENY, WEIR_REASON_DEFAULT);
}

WEIR_INLINE void weir_key_family(struct weir_prefix *key, __u8 family)
{
	key->len = WEIR_PREFIX_FAMILY_BITS + 128;
	key->family[0] = key->family[1] = key->family[2] = 0;
	key->family[3] = family;
}

/* The judgement on one address that `d` carries; an allowance of it changes nothing. */
WEIR_INLINE weir_judgement weir_judge_carried(WEIR_IMAGE image, const __u8 v4[4], const struct weir_dest *d, __u8 via)
{
	struct weir_prefix key = {};

	weir_key_family(&key, 4);
	__builtin_memcpy(key.addr, v4, 4);
	return weir_judgement_via(weir_judge_rules(image, &key, d), via);
}

/* Which address of `addr` is carried in the way `slot` stands for; NONE when there is none. Four ways, so four slots. */
#define WEIR_CARRIED_SLOTS 4
WEIR_INLINE __u8 weir_carried_in(const struct weir_image *head, const __u8 addr[16], __u32 slot, __u8 v4[4])
{
	__u32 i;

	switch (slot) {
	case 0:
		return weir_carried_by_prefix(addr, v4);
	case 1:
		if (weir_carried_by_prefix(addr, v4) != WEIR_VIA_TEREDO_SERVER)
			return WEIR_VIA_NONE;
		weir_teredo_client(addr, v4);
		return WEIR_VIA_TEREDO_CLIENT;
	case 2:
		for (i = 0; i < WEIR_NAT64_MAX; i++)
			if (i < head->nat64_count && weir_carried_nat64(addr, &head->nat64[i], v4))
				return WEIR_VIA_NAT64_CONFIGURED;
		return WEIR_VIA_NONE;
	default:
		return weir_carried_isatap(addr, v4) ? WEIR_VIA_ISATAP : WEIR_VIA_NONE;
	}
}

WEIR_SUBPROGRAM weir_judgement weir_judge_slot(WEIR_IMAGE image, const struct weir_dest *d, __u32 slot)
{
	const struct weir_image *head;
	__u8 v4[4] = {0, 0, 0, 0}, via;

	if (!d)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY);
	head = weir_image_head(image);
	if (!head)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY);
	via = weir_carried_in(head, d->addr, slot, v4);
	if (via == WEIR_VIA_NONE)
		return weir_judgement_of(WEIR_ALLOW, WEIR_REASON_DEFAULT);
	return weir_judge_carried(image, v4, d, via);
}

/* The address as it is written. */
WEIR_INLINE weir_judgement weir_judge_written(WEIR_IMAGE image, const struct weir_dest *d)
{
	struct weir_prefix key = {};

	weir_key_family(&key, d->family);
	if (d->family == 4)
		__builtin_memcpy(key.addr, d->addr + 12, 4);
	else
		__builtin_memcpy(key.addr, d->addr, 16);
	return weir_judge_rules(image, &key, d);
}

WEIR_INLINE int weir_is_unspecified(const struct weir_dest *d)
{
	return d->family == 4 ? weir_zeros(d->addr, 12, 16) : weir_zeros(d->addr, 0, 16);
}

WEIR_INLINE int weir_is_loopback(const struct weir_dest *d)
{
	if (d->family == 4)
		return d->addr[12] == 127;
	return weir_zeros(d->addr, 0, 15) && d->addr[15] == 1;
}

/* The loopback address that the unspecified one stands for. */
WEIR_SUBPROGRAM weir_judgement weir_judge_unspecified(WEIR_IMAGE image, const struct weir_dest *d)
{
	struct weir_prefix key = {};

	if (!d)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY);
	weir_key_family(&key, d->family);
	if (d->family == 4) {
		key.addr[0] = 127;
		key.addr[3] = 1;
	} else {
		key.addr[15] = 1;
	}
	return weir_judgement_via(weir_judge_rules(image, &key, d), WEIR_VIA_UNSPECIFIED);
}

/* What the packet itself is, whoever it goes to: the reason to deny it, or DEFAULT. */
WEIR_INLINE __u8 weir_packet_reason(const struct weir_image *head, const struct weir_dest *d)
{
	if ((d->flags & WEIR_DEST_OPTIONS) && !(head->flags & WEIR_IMG_OPTIONS))
		return WEIR_REASON_OPTIONS;
	if ((d->flags & WEIR_DEST_ROUTING) && !(head->flags & WEIR_IMG_ROUTING))
		return WEIR_REASON_ROUTING;
	if ((d->flags & WEIR_DEST_HEADLESS) && !(head->flags & WEIR_IMG_FRAGMENTS))
		return WEIR_REASON_FRAGMENT;
	return WEIR_REASON_DEFAULT;
}

/* The policy's judgement: WEIR_DENY or WEIR_ALLOW, whatever its mode. `d`: family 4 or 6, filled in whole. */
WEIR_SUBPROGRAM weir_judgement weir_judge_dest(WEIR_IMAGE image, const struct weir_dest *d)
{
	const struct weir_image *head;
	weir_judgement j, inner;
	int unspecified;
	__u32 slot;
	__u8 why;

	if (!d)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY);
	head = weir_image_head(image);
	if (!head || head->present != 1)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY);
	why = weir_packet_reason(head, d);
	if (why != WEIR_REASON_DEFAULT)
		return weir_judgement_of(WEIR_DENY, why);
	unspecified = weir_is_unspecified(d);
	if (head->loopback != WEIR_LOOPBACK_RULES && (unspecified || weir_is_loopback(d)))
		return weir_judgement_of(head->loopback == WEIR_LOOPBACK_SELF ? WEIR_ALLOW : WEIR_DENY, WEIR_REASON_LOOPBACK);
	j = weir_judge_written(image, d);
	if (weir_denies(j))
		return j;
	if (unspecified) {
		inner = weir_judge_unspecified(image, d);
		return weir_denies(inner) ? inner : j;
	}
	if (d->family != 6)
		return j;
	for (slot = 0; slot < WEIR_CARRIED_SLOTS; slot++) {
		inner = weir_judge_slot(image, d, slot);
		if (weir_denies(inner))
			return inner;
	}
	return j;
}

#endif
