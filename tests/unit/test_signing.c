/* SPDX-License-Identifier: Apache-2.0 */
/* The record's key and its signatures: against vectors, and against whatever is not quite one of them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/signing.h"

/* RFC 8032, section 7.1, TEST 1 and TEST 2: the seed, wrapped as RFC 8410 has it; and the public key. */
static const char *const seeds[2] = {
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE "
    "KEY-----\n",
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n-----END PRIVATE "
    "KEY-----\n",
};
static const char *const publics[2] = {
    "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
};
/* Made by `openssl pkeyutl -sign -rawin` with the first key, over SHA-256 of "weir". */
static const char digest_hex[] = "9e1bd4e58bdc27cb9abf4c558b21963a3f3fb6b08c715e8e2bb6c795162994bc";
static const char signature_hex[2][2 * CHAIN_HASH + 1] = {
    "72fc2c90cc0b45a0cbb6158c2904b37251efba56e13247879ba893c0284fce4f",
    "9acaf684776b44249059346d47a4ea5193c5641988f5c6b98f4ab06ff43b7706",
};
static const char public_pem[] =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";

static struct signing_key *load(int i)
{
	struct signing_key *k = NULL;
	struct err e = {0};

	if (signing_load(&k, seeds[i], strlen(seeds[i]), &e) < 0)
		fail_msg("%s", e.msg);
	return k;
}

static void test_vectors(void **state)
{
	uint8_t pub[SIGNING_PUBLIC], expected[CHAIN_SIGNATURE], digest[CHAIN_HASH], signature[CHAIN_SIGNATURE];
	struct signing_key *k;
	struct err e = {0};

	(void)state;
	for (int i = 0; i < 2; i++) {
		k = load(i);
		signing_public(k, pub);
		assert_int_equal(chain_from_hex(publics[i], expected), 0);
		assert_memory_equal(pub, expected, sizeof pub);
		signing_free(k);
	}
	k = load(0);
	assert_int_equal(chain_from_hex(digest_hex, digest), 0);
	assert_int_equal(chain_from_hex(signature_hex[0], expected), 0);
	assert_int_equal(chain_from_hex(signature_hex[1], expected + CHAIN_HASH), 0);
	assert_int_equal(signing_sign(k, digest, signature, &e), 0);
	assert_memory_equal(signature, expected, sizeof signature);
	signing_free(k);
}

static void test_flipped_bits(void **state)
{
	uint8_t pub[SIGNING_PUBLIC], digest[CHAIN_HASH] = {1, 2, 3}, signature[CHAIN_SIGNATURE];
	struct signing_key *k = load(0), *other = load(1);
	struct signing_checker *c = NULL;
	struct err e = {0};

	(void)state;
	signing_public(k, pub);
	assert_int_equal(signing_sign(k, digest, signature, &e), 0);
	assert_int_equal(signing_verify(pub, digest, signature), 0);
	assert_int_equal(signing_checker_new(&c, pub, &e), 0);
	assert_int_equal(signing_check(c, digest, signature), 0);
	for (int bit = 0; bit < 8 * CHAIN_SIGNATURE; bit += 5) {
		signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(signing_check(c, digest, signature), -EBADMSG);
		signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (int bit = 0; bit < 8 * CHAIN_HASH; bit += 5) {
		digest[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(signing_check(c, digest, signature), -EBADMSG);
		digest[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	/* Another key's, and no key at all. */
	signing_public(other, pub);
	assert_int_equal(signing_verify(pub, digest, signature), -EBADMSG);
	memset(pub, 0xff, sizeof pub);
	assert_int_equal(signing_verify(pub, digest, signature), -EBADMSG);
	signing_checker_free(c);
	signing_free(k);
	signing_free(other);
}

static void test_new_keys(void **state)
{
	uint8_t pub[2][SIGNING_PUBLIC], id[2][CHAIN_HASH];
	struct err e = {0};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct signing_key *k = NULL;
		char *pem = NULL;
		size_t len;

		assert_int_equal(signing_generate(&pem, &len, &e), 0);
		assert_non_null(memmem(pem, len, "-----BEGIN PRIVATE KEY-----", 27));
		assert_int_equal(signing_load(&k, pem, len, &e), 0);
		signing_public(k, pub[i]);
		signing_key_id(pub[i], id[i]);
		free(pem);
		signing_free(k);
	}
	assert_memory_not_equal(pub[0], pub[1], sizeof pub[0]);
	assert_memory_not_equal(id[0], id[1], sizeof id[0]);
}

static void test_public_pem(void **state)
{
	uint8_t pub[SIGNING_PUBLIC], expected[CHAIN_HASH];
	struct err e = {0};
	char pem[512];

	(void)state;
	assert_int_equal(chain_from_hex(publics[0], expected), 0);
	assert_int_equal(signing_public_read(public_pem, strlen(public_pem), pub, &e), 0);
	assert_memory_equal(pub, expected, sizeof pub);
	assert_int_equal(signing_public_pem(pub, pem, sizeof pem, &e), 0);
	assert_string_equal(pem, public_pem);
	assert_int_equal(signing_public_pem(pub, pem, strlen(public_pem), &e), -ENOBUFS);
	assert_string_equal(e.where, "audit key");
}

/* What is no Ed25519 key is none, whatever else it may be. */
static void test_other_texts(void **state)
{
	static const char ec[] =
	    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEDHJ0I3oDTkPEvHhmxZBBYyH0YKzO\n"
	    "3bDJGGUNK0CpGDpbRGFhnPzB3SeAXqCrFpMqcAhAqWeWeCA+tl5ETGk6Hg==\n-----END PUBLIC KEY-----\n";
	const char *const texts[] = {"", "x", ec, public_pem, "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n"};
	struct signing_key *k = NULL;
	uint8_t pub[SIGNING_PUBLIC];
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		memset(&e, 0, sizeof e);
		assert_true(signing_load(&k, texts[i], strlen(texts[i]), &e) < 0);
		assert_null(k);
		assert_string_equal(e.where, "audit key");
		if (texts[i] != public_pem)
			assert_true(signing_public_read(texts[i], strlen(texts[i]), pub, &e) < 0);
	}
	assert_true(signing_public_read(seeds[0], strlen(seeds[0]), pub, &e) < 0);
	assert_null(signing_free(NULL));
	assert_null(signing_checker_free(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_vectors),    cmocka_unit_test(test_flipped_bits), cmocka_unit_test(test_new_keys),
	    cmocka_unit_test(test_public_pem), cmocka_unit_test(test_other_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
