/* SPDX-License-Identifier: Apache-2.0 */
/* Judging by a compiled policy in user space: the kernel's own lines over a sorted array instead of a trie. */
#include <string.h>

#include "core/image.h"
#include "core/image_priv.h"

#define WEIR_IMAGE const struct policy_image *
#define WEIR_SUBPROGRAM static

static const struct weir_image *weir_image_head(const struct policy_image *img)
{
	return img ? &img->head : NULL;
}

/* How many leading bits of the two addresses agree. */
static unsigned common_bits(const struct weir_prefix *a, const struct weir_prefix *b)
{
	unsigned i = 0;

	while (i < sizeof a->addr && a->addr[i] == b->addr[i])
		i++;
	return i == sizeof a->addr ? 8 * i : 8 * i + (unsigned)__builtin_clz((unsigned)(a->addr[i] ^ b->addr[i])) - 24;
}

/* The first `bits` bits of the key's address and no more. */
static void cut_key(struct weir_prefix *key, unsigned bits)
{
	key->len = WEIR_PREFIX_FAMILY_BITS + bits;
	for (unsigned i = bits / 8; i < sizeof key->addr; i++)
		key->addr[i] = i == bits / 8 ? (uint8_t)(key->addr[i] & ~(0xffu >> bits % 8)) : 0;
}

/* The last of the sorted prefixes that is not behind `key`, or -1. */
static ptrdiff_t last_up_to(const struct policy_image *img, const struct weir_prefix *key)
{
	size_t lo = 0, hi = img->prefix_count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (image_compare_prefix(&img->prefixes[mid], key) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return (ptrdiff_t)lo - 1;
}

/*
 * The longest prefix around `key`, or -1. Every prefix around the key sorts before it and before all that lies between the two,
 * and so holds that as well: it can be no longer than what the key and its neighbour have in common. A few steps suffice.
 */
static ptrdiff_t find_prefix(const struct policy_image *img, const struct weir_prefix *key)
{
	struct weir_prefix at = *key;

	for (;;) {
		ptrdiff_t i = last_up_to(img, &at);
		const struct weir_prefix *p = i < 0 ? NULL : &img->prefixes[i];
		unsigned common, bits;

		if (!p || memcmp(p->family, at.family, sizeof p->family) != 0)
			return -1;
		common = common_bits(p, &at);
		bits = p->len - WEIR_PREFIX_FAMILY_BITS;
		if (bits <= common && p->len <= at.len)
			return i;
		cut_key(&at, common);
	}
}

static const struct weir_list *weir_image_find(const struct policy_image *img, const struct weir_prefix *key)
{
	ptrdiff_t i = find_prefix(img, key);

	return i < 0 ? NULL : &img->lists[img->list_of[i]];
}

#include "judge.h"

uint32_t image_judge(const struct policy_image *img, const struct weir_dest *d)
{
	return weir_judge_dest(img, d);
}

static struct weir_prefix key_of(const struct cidr *addr)
{
	struct weir_prefix key = {};

	weir_key_family(&key, addr->family);
	memcpy(key.addr, addr->addr + (addr->family == 4 ? 12 : 0), addr->family == 4 ? 4 : 16);
	return key;
}

uint32_t image_judge_rules(const struct policy_image *img, const struct cidr *addr, const struct weir_dest *d)
{
	struct weir_prefix key = key_of(addr);

	return weir_judge_rules(img, &key, d);
}

struct weir_dest dest_of_call(const struct cidr *addr, uint8_t protocol, uint16_t port, bool *ret_mapped)
{
	struct weir_dest d = {.port = port, .family = addr->family, .protocol = protocol};

	memcpy(d.addr, addr->addr, sizeof d.addr);
	*ret_mapped = addr->family == 6 && weir_is_mapped(addr->addr);
	if (*ret_mapped)
		d.family = 4;
	return d;
}

bool image_carried(const struct policy_image *img, const uint8_t addr[16], uint8_t via, struct cidr *ret)
{
	uint8_t v4[4];

	for (uint32_t slot = 0; slot < WEIR_CARRIED_SLOTS; slot++) {
		if (via == WEIR_VIA_NONE || weir_carried_in(&img->head, addr, slot, v4) != via)
			continue;
		*ret = (struct cidr){.addr = {[10] = 0xff, 0xff}, .family = 4, .len = 32};
		memcpy(ret->addr + 12, v4, sizeof v4);
		return true;
	}
	return false;
}

const struct weir_prefix *image_prefix_of(const struct policy_image *img, const struct weir_dest *d, uint8_t via)
{
	struct cidr addr = {.family = d->family};
	struct weir_prefix key;
	ptrdiff_t i;

	if (via == WEIR_VIA_UNSPECIFIED) {
		addr.addr[15] = 1;
		if (d->family == 4)
			addr.addr[12] = 127;
	} else if (via == WEIR_VIA_NONE) {
		memcpy(addr.addr, d->addr, sizeof addr.addr);
	} else if (!image_carried(img, d->addr, via, &addr)) {
		return NULL;
	}
	key = key_of(&addr);
	i = find_prefix(img, &key);
	return i < 0 ? NULL : &img->prefixes[i];
}
