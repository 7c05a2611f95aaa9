/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures, checked beside the walk along the chain: each takes a tenth of a millisecond, and a record has a hundred
 * thousand. One batch is filled while threads, one for each processor, check the one before. Nothing else of a check knows of
 * threads.
 */
#ifndef WEIR_AUDITOR_VERIFY_SIGNATURES_H
#define WEIR_AUDITOR_VERIFY_SIGNATURES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/signing.h"

struct signatures;

/* Tells of one signature, on the caller's thread and in the order in which they were given. */
typedef void signatures_fn(void *ctx, uint64_t n, bool good);

int signatures_new(struct signatures **ret, const uint8_t pub[SIGNING_PUBLIC], signatures_fn *fn, void *ctx, struct err *e);
/* Waits for threads that run, and tells nothing any more. NULL-safe, returns NULL. */
struct signatures *signatures_free(struct signatures *s);

/* Copies both. May call fn for earlier ones. */
void signatures_add(struct signatures *s, uint64_t n, const uint8_t hash[CHAIN_HASH], const uint8_t signature[CHAIN_SIGNATURE]);
/* All that were given are told of. */
void signatures_finish(struct signatures *s);

#endif
