/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record's key and head: files of root's in the state directory, which the auditor cannot touch.
 *
 * The head file has two places for the same kind of text, written in turn, so that a reader always finds a whole one and
 * nothing need be flushed for it: each says where the chain ends, and what hashes the entries before had, the newest first, so
 * that a signature which got lost on its way can be given again and never for anything else. A power cut may set it back by
 * moments.
 *
 * Errors have where "audit key".
 */
#ifndef WEIR_SUPERVISOR_KEYFILES_H
#define WEIR_SUPERVISOR_KEYFILES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/signing.h"
#include "ipc/ipc.h"

#define KEYFILES_KEY "audit-key.pem"	/* 0600 */
#define KEYFILES_PUBLIC "audit-key.pub" /* what `openssl pkey -pubin` reads */
#define KEYFILES_HEAD "audit-head"
#define KEYFILES_NEW "audit-key.new" /* while one is made; a crash may leave it, and the next start takes it away */
#define KEYFILES_REMEMBERED 128	     /* more than an auditor has asked for at once */

struct signed_head {
	uint64_t turn;	/* how often the file was written */
	uint64_t n;	/* of the newest entry; 0: none yet */
	uint32_t count; /* of them, at most KEYFILES_REMEMBERED and n + 1: hash(0) is one, too */
	uint8_t key_id[CHAIN_HASH];
	uint8_t hash[KEYFILES_REMEMBERED][CHAIN_HASH]; /* of entry i at [i % KEYFILES_REMEMBERED] */
};

/* The hash of entry n, or NULL when it is not remembered. Borrowed. */
const uint8_t *signed_hash(const struct signed_head *r, uint64_t n);
/* The next entry is n, beyond r->n. What is not known of those between is forgotten. */
void signed_add(struct signed_head *r, uint64_t n, const uint8_t hash[CHAIN_HASH]);

/*
 * Nobody else reads or writes a key or a head of the directory until keyfiles_unlock(). Waits for at most `wait_ms`; another
 * one holds it for far less than a millisecond. Returns a descriptor, or a negative errno (-EAGAIN: it took too long).
 */
int keyfiles_lock(int dir, unsigned wait_ms);
void keyfiles_unlock(int fd);

/*
 * Under the lock: loads the key, making all three files when there is none yet, and reads the head. Refuses what can't be
 * trusted: files that are not root's alone, a head without its key or of another one, a key without its head.
 */
int keyfiles_open(int dir, struct signing_key **ret, struct signed_head *ret_head, int *ret_head_fd, struct err *e);

/* Reads the head again, under the lock, unless nobody has written it since; writes it, likewise. 0 or a negative errno. */
int keyfiles_head_reread(int fd, struct signed_head *r, struct err *e);
int keyfiles_head_write(int fd, struct signed_head *r, struct err *e);

/* For whoever verifies, without a lock: a file that is not there is no error, and *ret_there says so. */
int keyfiles_public(int dir, bool *ret_there, uint8_t ret[SIGNING_PUBLIC], struct err *e);
int keyfiles_head(int dir, bool *ret_there, struct chain_head *ret, struct err *e);

#endif
