/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ed25519 over 32-byte digests (RFC 8032, by GnuTLS). The key never leaves the process that loaded it; whoever verifies has the
 * public half alone. Errors have where "audit key".
 */
#ifndef WEIR_CORE_SIGNING_H
#define WEIR_CORE_SIGNING_H

#include <stddef.h>
#include <stdint.h>

#include "core/chain.h"
#include "core/err.h"

#define SIGNING_PUBLIC 32

struct signing_key;

/* A new one; its private half as PEM (PKCS #8), malloc'd, to be wiped by the caller. */
int signing_generate(char **ret_pem, size_t *ret_len, struct err *e);
int signing_load(struct signing_key **ret, const char *pem, size_t len, struct err *e);
struct signing_key *signing_free(struct signing_key *k); /* NULL-safe, wipes, returns NULL */

int signing_sign(const struct signing_key *k, const uint8_t digest[CHAIN_HASH], uint8_t ret[CHAIN_SIGNATURE], struct err *e);

void signing_public(const struct signing_key *k, uint8_t ret[SIGNING_PUBLIC]);
/* SHA-256 of the public key's 32 bytes: its name in records. */
void signing_key_id(const uint8_t pub[SIGNING_PUBLIC], uint8_t ret[CHAIN_HASH]);
/* PEM (SubjectPublicKeyInfo), as `openssl pkey -pubin` reads it; and back. */
int signing_public_pem(const uint8_t pub[SIGNING_PUBLIC], char *buf, size_t size, struct err *e);
int signing_public_read(const char *pem, size_t len, uint8_t ret[SIGNING_PUBLIC], struct err *e);
/* 0 when the signature is that key's over the digest, -EBADMSG when not. */
int signing_verify(const uint8_t pub[SIGNING_PUBLIC], const uint8_t digest[CHAIN_HASH],
		   const uint8_t signature[CHAIN_SIGNATURE]);

/* The same for many signatures of one key, which is read once. One thread at a time. */
struct signing_checker;
int signing_checker_new(struct signing_checker **ret, const uint8_t pub[SIGNING_PUBLIC], struct err *e);
struct signing_checker *signing_checker_free(struct signing_checker *c); /* NULL-safe, returns NULL */
int signing_check(const struct signing_checker *c, const uint8_t digest[CHAIN_HASH], const uint8_t signature[CHAIN_SIGNATURE]);

#endif
