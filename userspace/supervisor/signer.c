/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/signer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "supervisor/internal.h"
#include "supervisor/keyfiles.h"
#include "version.h"

#define ASKS_MAX 64	   /* signed with one lock and one write */
#define ASKS_TURN 4	   /* .. and so often in one turn: clients wait for ours */
#define OPEN_LOCK_MS 10000 /* the other one may be making the key */
#define SIGN_LOCK_MS 50	   /* the other one is signing. Longer, and it hangs: the auditor asks again */
#define TELL_NS (60 * SECOND_NS)

struct signer {
	struct signing_key *key; /* NULL: none */
	int dir_fd, head_fd;	 /* dir_fd: borrowed */
	struct signed_head head;
	uint64_t told_ns, told_n, busy_ns;
};

static void tell_start(struct supervisor *s)
{
	_cleanup_file_ FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	struct utsname host;
	struct note n;

	note_init(&n, NOTE_START, NULL);
	snprintf(n.start.instance, sizeof n.start.instance, "%s", s->instance);
	snprintf(n.start.version, sizeof n.start.version, "%s", WEIR_VERSION);
	if (uname(&host) == 0)
		snprintf(n.start.kernel, sizeof n.start.kernel, "%.*s", (int)sizeof n.start.kernel - 1, host.release);
	if (f && fgets(n.start.boot_id, sizeof n.start.boot_id, f))
		n.start.boot_id[strcspn(n.start.boot_id, "\n")] = 0;
	notes_push(s, &n);
}

static void tell_head(struct supervisor *s)
{
	const struct signed_head *head = &s->signer->head;
	struct note n;

	note_init(&n, NOTE_HEAD, NULL);
	if (s->signer->key) {
		n.head.n = head->n;
		memcpy(n.head.hash, signed_hash(head, head->n), sizeof n.head.hash);
		memcpy(n.head.key_id, head->key_id, sizeof n.head.key_id);
	}
	notes_push(s, &n);
}

static int open_key(struct signer *k, int dir, struct err *e)
{
	int lock = keyfiles_lock(dir, OPEN_LOCK_MS), rc;

	k->dir_fd = dir;
	if (lock < 0)
		return err_errno(e, -lock, "audit key", "can't lock the state directory%s",
				 lock == -EAGAIN ? " (another Weir holds it: is it stopped?)" : "");
	rc = keyfiles_open(dir, &k->key, &k->head, &k->head_fd, e);
	keyfiles_unlock(lock);
	k->told_n = k->head.n;
	return rc;
}

int signer_open(struct supervisor *s, struct err *e)
{
	struct signer *k;
	int rc = 0;

	if (s->auditor_src.fd < 0)
		return 0;
	k = calloc(1, sizeof *k);
	if (!k)
		return err_set(e, ENOMEM, "audit key", "out of memory");
	k->dir_fd = k->head_fd = -1;
	s->signer = k;
	if (s->config.key_dir_fd >= 0)
		rc = open_key(k, s->config.key_dir_fd, e);
	if (rc < 0)
		return rc;
	tell_start(s);
	tell_head(s);
	return 0;
}

/* ---- signing ---- */

/* How much is missing is what the entry itself says, and who reads it: its text is a stranger's here. */
static void say_break(const struct signed_head *head, const struct sign_ask *ask)
{
	if (ask->after_break == SIGN_ADOPTED) {
		log_warn("audit: the record's chain was signed up to n=%llu, and has entries beyond it that were there at this "
			 "start: they "
			 "are taken over as such, behind n=%llu. Whoever was killed while it wrote leaves a few; `weir audit "
			 "verify` "
			 "tells which",
			 (unsigned long long)head->n, (unsigned long long)ask->n);
		return;
	}
	log_error(
	    "audit: the record's chain was signed up to n=%llu, and what is there now is not that: entries are missing or "
	    "changed, %llu at least; a break is signed as n=%llu, and `weir audit verify` tells what it is about",
	    (unsigned long long)head->n, (unsigned long long)(ask->n - head->n > 1 ? ask->n - head->n - 1 : 1),
	    (unsigned long long)ask->n);
}

/* Nothing could ever follow an entry whose number is out of all reason. A new key may come to a record of any length. */
static bool is_too_far(const struct signed_head *head, const struct sign_ask *ask)
{
	const uint64_t most = head->n ? head->n + CHAIN_AHEAD : CHAIN_N_MAX - CHAIN_AHEAD;

	if (ask->n <= most && ask->n < CHAIN_N_MAX)
		return false;
	log_error("audit: the auditor asked for a signature of entry n=%llu, and the chain is at n=%llu: refused",
		  (unsigned long long)ask->n, (unsigned long long)head->n);
	return true;
}

/*
 * What entry ask->n must have as its hash. False when it is not to be signed: it is neither the next one nor one that was
 * signed already, as what it was then.
 */
static bool hash_of(struct signed_head *head, const struct sign_ask *ask, uint8_t ret[CHAIN_HASH])
{
	const uint8_t *before = ask->n && !ask->after_break ? signed_hash(head, ask->n - 1) : signed_hash(head, head->n);
	const uint8_t *same = signed_hash(head, ask->n);

	if (!before || (ask->after_break ? ask->n <= head->n : ask->n > head->n + 1))
		return false;
	if (ask->n > head->n && is_too_far(head, ask))
		return false;
	chain_hash(ask->n, before, ask->body, ret);
	if (ask->n <= head->n)
		return same && memcmp(same, ret, CHAIN_HASH) == 0;
	if (ask->after_break)
		say_break(head, ask);
	signed_add(head, ask->n, ret);
	return true;
}

/* Returns 1: signed, 0: not to be signed; or a negative errno. */
static int sign(struct signer *k, const struct sign_ask *ask, struct note *ret, struct err *e)
{
	uint8_t hash[CHAIN_HASH];
	int rc;

	if (!hash_of(&k->head, ask, hash))
		return 0;
	note_init(ret, NOTE_SIGNED, NULL);
	ret->is_signed.n = ask->n;
	memcpy(ret->is_signed.hash, hash, sizeof hash);
	rc = signing_sign(k->key, hash, ret->is_signed.signature, e);
	return rc < 0 ? rc : 1;
}

static void answer(struct supervisor *s, const struct note *notes, const int *is_signed, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (is_signed[i] > 0)
			notes_push(s, &notes[i]);
		else
			tell_head(s);
	}
}

/* Under the lock. The head is written before any answer goes out: what is signed is remembered. */
static int sign_all(struct signer *k, const struct sign_ask *asks, size_t count, struct note *notes, int *ret, struct err *e)
{
	uint64_t before;
	int rc = keyfiles_head_reread(k->head_fd, &k->head, e);

	before = k->head.n;
	for (size_t i = 0; rc == 0 && i < count; i++) {
		ret[i] = sign(k, &asks[i], &notes[i], e);
		rc = ret[i] < 0 ? ret[i] : 0;
	}
	return rc == 0 && k->head.n != before ? keyfiles_head_write(k->head_fd, &k->head, e) : rc;
}

static int take(struct supervisor *s, const struct sign_ask *asks, size_t count)
{
	struct signer *k = s->signer;
	int is_signed[ASKS_MAX] = {0}, lock, rc = 0;
	struct note *notes;
	struct err e = {0};

	if (!k || !k->key) {
		answer(s, NULL, is_signed, k ? count : 0);
		return 0;
	}
	lock = keyfiles_lock(k->dir_fd, SIGN_LOCK_MS);
	if (lock < 0) {
		if (now_ns() - k->busy_ns > TELL_NS)
			log_warn(
			    "audit key: another Weir holds the state directory's lock: entries of the record are signed later");
		k->busy_ns = now_ns();
		answer(s, NULL, is_signed, count);
		return 0;
	}
	notes = calloc(count, sizeof *notes);
	rc = notes ? sign_all(k, asks, count, notes, is_signed, &e) : err_set(&e, ENOMEM, "audit key", "out of memory");
	keyfiles_unlock(lock);
	if (rc == 0)
		answer(s, notes, is_signed, count);
	else
		s->fatal = err_set(&s->fatal_err, e.code, e.where, "%s", e.msg);
	free(notes);
	return rc;
}

int signer_hear(struct supervisor *s)
{
	for (int turn = 0; turn < ASKS_TURN; turn++) {
		struct sign_ask asks[ASKS_MAX];
		size_t count = 0;
		ssize_t n = 0;
		int rc;

		while (count < ASKS_MAX &&
		       (n = ipc_recv(s->auditor_src.fd, &asks[count], sizeof asks[0], NULL, NULL)) == sizeof asks[0])
			count++;
		if (count && (rc = take(s, asks, count)) < 0)
			return rc;
		if (count == ASKS_MAX)
			continue;
		if (n == 0)
			return -EPIPE;
		return n == -EAGAIN ? 0 : n < 0 && n != -EMSGSIZE ? (int)n : -EPROTO;
	}
	return 0;
}

/* ---- telling ---- */

void signer_tell(struct supervisor *s, bool last)
{
	struct signer *k = s->signer;
	char hex[2 * CHAIN_HASH + 1];

	if (!k || !k->key || s->chain_untold || k->head.n == k->told_n ||
	    (!last && k->told_ns && now_ns() - k->told_ns < TELL_NS))
		return;
	chain_hex(signed_hash(&k->head, k->head.n), hex);
	log_info("audit: the chain is at n=%llu, hash %s", (unsigned long long)k->head.n, hex);
	k->told_n = k->head.n;
	k->told_ns = now_ns();
}

void signer_close(struct supervisor *s)
{
	if (!s->signer)
		return;
	signer_tell(s, true);
	signing_free(s->signer->key);
	cleanup_fdp(&s->signer->head_fd);
	free(s->signer);
	s->signer = NULL;
}
