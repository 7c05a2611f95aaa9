/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The documents of policies into the record, in parts, before the first record that names their hash; and once a day from there
 * on while they are in force, as the record lets go of what it has not heard of for as long as it keeps runs.
 */
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "supervisor/internal.h"

/* More policies than a service has at once. One that is forgotten is told once more, which the record does not mind. */
#define TOLD_MAX 1024
#define AGAIN_NS (86400 * SECOND_NS) /* the record keeps a document a day longer than what names it */

struct told_policies {
	struct {
		uint8_t hash[32];
		uint64_t at_ns; /* CLOCK_BOOTTIME */
	} of[TOLD_MAX];
	size_t count, next;
};

/* Whether it was told within a day. If not, it is noted as told now. */
static bool is_told(struct told_policies *t, const uint8_t hash[32], uint64_t now)
{
	size_t at = 0;

	while (at < t->count && memcmp(t->of[at].hash, hash, sizeof t->of[at].hash) != 0)
		at++;
	if (at < t->count && now - t->of[at].at_ns < AGAIN_NS)
		return true;
	if (at == t->count) {
		at = t->next;
		t->next = (t->next + 1) % TOLD_MAX;
		t->count += t->count < TOLD_MAX;
		memcpy(t->of[at].hash, hash, sizeof t->of[at].hash);
	}
	t->of[at].at_ns = now;
	return false;
}

static void push_part(struct supervisor *s, const struct inforce *f, size_t offset, size_t len)
{
	struct note n;

	note_init(&n, NOTE_POLICY_TEXT, NULL);
	memcpy(n.text.hash, f->policy->hash, sizeof n.text.hash);
	memcpy(n.text.name, f->policy->name, sizeof n.text.name);
	n.text.offset = (uint32_t)offset;
	n.text.len = (uint32_t)len;
	n.text.total = (uint32_t)f->text_len;
	if (len)
		memcpy(n.text.text, f->text + offset, len);
	(void)notes_push(s, &n); /* without room the service ends, and says so */
}

void policy_text_tell(struct supervisor *s, const struct inforce *f)
{
	if (!f->policy || !f->text || !s->notes)
		return;
	/* Without memory for it, it is told each time. */
	if (!s->told_policies)
		s->told_policies = calloc(1, sizeof *s->told_policies);
	if (s->told_policies && is_told(s->told_policies, f->policy->hash, clock_boot_ns()))
		return;
	if (f->text_len > LIMIT_AUDIT_POLICY_BYTES) {
		push_part(s, f, 0, 0);
		return;
	}
	for (size_t at = 0; at < f->text_len; at += NOTE_POLICY_PART) {
		size_t rest = f->text_len - at;

		push_part(s, f, at, rest < NOTE_POLICY_PART ? rest : NOTE_POLICY_PART);
	}
}

void policy_text_tick(struct supervisor *s)
{
	for (enum slot slot = 0; s->told_policies && slot < SLOTS; slot++)
		if (slot != SLOT_CARRIER) /* that of its tools */
			policy_text_tell(s, &s->inforce[slot]);
}

void policy_text_free(struct supervisor *s)
{
	free(s->told_policies);
	s->told_policies = NULL;
}
