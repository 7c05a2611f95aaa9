/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/asking.h"

#include <errno.h>
#include <string.h>

static void push(struct asking *a, uint64_t n)
{
	a->on_way[(a->first + a->count++) % ASKING_MAX] = n;
}

/* What an answer is to; 0 when nothing was asked. */
static uint64_t pop(struct asking *a)
{
	uint64_t n = a->count ? a->on_way[a->first] : 0;

	a->first = (a->first + (a->count > 0)) % ASKING_MAX;
	a->count -= a->count > 0;
	return n;
}

/* The next ones that fit: by halves, not one look for each. */
static void look_on(struct asking *a, int64_t now_ms)
{
	if (a->count <= ASKING_MAX / 2)
		a->look = true;
	if (!a->again || a->count)
		return;
	a->again = false;
	a->asked = 0;
	a->not_before_ms = now_ms + ASKING_AGAIN_MS;
}

int asking_head(struct asking *a, struct store *s, const struct chain_head *head, int64_t now_ms, struct err *e)
{
	static const uint8_t none[sizeof head->key_id];
	uint64_t n = pop(a);

	a->key = memcmp(head->key_id, none, sizeof none) != 0;
	/* One before the keeper's end that it does not sign has another hash than the one that it remembers. */
	if (n && n <= head->n && a->settled < n)
		a->settled = n;
	else if (n > head->n)
		a->again = true;
	look_on(a, now_ms);
	return store_check_head(s, head, e);
}

int asking_signed(struct asking *a, struct store *s, const struct note *note, int64_t now_ms, struct err *e)
{
	int r = store_signed(s, note->is_signed.n, note->is_signed.hash, note->is_signed.signature, e);

	(void)pop(a);
	if (r < 0 && r != -EBADMSG)
		a->again = true;
	look_on(a, now_ms);
	return r;
}

void asking_lost(struct asking *a, int64_t now_ms)
{
	a->again = true;
	look_on(a, now_ms);
}

void asking_send(struct asking *a, struct store *s, int supervisor, int64_t now_ms)
{
	const uint64_t after = a->asked > a->settled ? a->asked : a->settled;
	struct sign_ask asks[ASKING_MAX];
	size_t n;

	if (!a->key || !a->look || a->again || now_ms < a->not_before_ms || a->count == ASKING_MAX)
		return;
	a->look = false;
	n = store_unsigned(s, after, asks, ASKING_MAX - a->count);
	for (size_t i = 0; i < n; i++) {
		if (ipc_send(supervisor, &asks[i], sizeof asks[i], NULL, 0) < 0) {
			/* No room, or it is gone, which its end of stream tells. */
			a->not_before_ms = now_ms + ASKING_AGAIN_MS;
			a->look = true;
			return;
		}
		a->asked = asks[i].n;
		push(a, asks[i].n);
	}
}

int64_t asking_deadline(const struct asking *a)
{
	return a->key && a->look && !a->again && a->count < ASKING_MAX ? a->not_before_ms : INT64_MAX;
}

bool asking_waits(const struct asking *a)
{
	return a->key && (a->look || a->again || a->count);
}
