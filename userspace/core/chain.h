/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chain of the record: one entry for each run that has ended, each thing that was pruned and each break, every one tied by
 * its hash to the one before.
 *
 *   hash(n) = SHA-256("weir-audit-chain-1" NUL, n as 8 bytes big-endian, hash(n - 1), SHA-256(body of n))
 *
 * with 32 zero bytes as hash(0), and an Ed25519 signature over these 32 bytes. Pure: hashing only; keys are core/signing.h's.
 */
#ifndef WEIR_CORE_CHAIN_H
#define WEIR_CORE_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#define CHAIN_HASH 32
#define CHAIN_SIGNATURE 64
#define CHAIN_N_MAX (1ull << 53) /* numbers of entries are below it: JSON has them whole */
#define CHAIN_AHEAD (1ull << 20) /* a break is at most so far beyond the last entry that was signed */

/* What an entry says. Names are in chain_kind_names[]; the body is a JSON object whose member "kind" is that name. */
enum chain_kind {
	CHAIN_RUN,   /* a run's summary, with the number of its records and a digest over them */
	CHAIN_PRUNE, /* what was removed for its age or for room, and why */
	CHAIN_BREAK, /* entries before it were gone or others when an auditor started */
	CHAIN_KINDS,
};
extern const char *const chain_kind_names[CHAIN_KINDS];

void chain_body_digest(const void *body, size_t len, uint8_t ret[CHAIN_HASH]);
void chain_hash(uint64_t n, const uint8_t before[CHAIN_HASH], const uint8_t body[CHAIN_HASH], uint8_t ret[CHAIN_HASH]);

/* Lower-case hex with a NUL; and back: 0, or -EINVAL. */
void chain_hex(const uint8_t hash[CHAIN_HASH], char ret[2 * CHAIN_HASH + 1]);
int chain_from_hex(const char *text, uint8_t ret[CHAIN_HASH]);

/*
 * The digest over a run's records: an incremental SHA-256 over, for each in the order of seq, its length in bytes as 8 bytes
 * big-endian and its body text. Zeroed is none; chain_records_end() frees, also after a failure. Returns 0 or -ENOMEM.
 */
struct chain_records {
	void *hash; /* owned */
	uint64_t count;
};
int chain_records_add(struct chain_records *r, const char *body, size_t len);
int chain_records_end(struct chain_records *r, uint8_t ret[CHAIN_HASH]);

#endif
