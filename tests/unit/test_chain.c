/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes of the record's chain, against values that another program computed from the words of core/chain.h (Python's hashlib;
 * tests/audit/test_audit_verify.py does so again, on real records).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/chain.h"

static void assert_hash(const uint8_t hash[CHAIN_HASH], const char *expected)
{
	char hex[2 * CHAIN_HASH + 1];

	chain_hex(hash, hex);
	assert_string_equal(hex, expected);
}

static void test_entries(void **state)
{
	uint8_t body[CHAIN_HASH], one[CHAIN_HASH], other[CHAIN_HASH];
	const uint8_t zeros[CHAIN_HASH] = {0};

	(void)state;
	chain_body_digest("{\"kind\":\"run\"}", 14, body);
	chain_hash(1, zeros, body, one);
	assert_hash(one, "7906f1c3084e9cbdb1f98aa262495915d5f3bd26ce40afcb651b17efe51aa129");
	/* Every byte of the number counts, in its order. */
	chain_body_digest("", 0, body);
	assert_hash(body, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	chain_hash(0x0102030405060708, one, body, other);
	assert_hash(other, "5ef59f9cfba245736df28455d51b613bab21dd736a849aa4db4ef6189f1c34d0");
}

static void test_every_part_counts(void **state)
{
	uint8_t before[CHAIN_HASH] = {0}, body[CHAIN_HASH] = {0}, hash[CHAIN_HASH], other[CHAIN_HASH];

	(void)state;
	chain_hash(7, before, body, hash);
	for (int bit = 0; bit < 8 * CHAIN_HASH; bit++) {
		before[bit / 8] ^= (uint8_t)(1 << bit % 8);
		chain_hash(7, before, body, other);
		assert_memory_not_equal(hash, other, CHAIN_HASH);
		before[bit / 8] ^= (uint8_t)(1 << bit % 8);
		body[bit / 8] ^= (uint8_t)(1 << bit % 8);
		chain_hash(7, before, body, other);
		assert_memory_not_equal(hash, other, CHAIN_HASH);
		body[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (int bit = 0; bit < 64; bit++) {
		chain_hash(7ull ^ 1ull << bit, before, body, other);
		assert_memory_not_equal(hash, other, CHAIN_HASH);
	}
}

static void test_records(void **state)
{
	struct chain_records r = {0}, shifted = {0};
	uint8_t hash[CHAIN_HASH], other[CHAIN_HASH];
	char long_body[300];

	(void)state;
	memset(long_body, 'x', sizeof long_body);
	assert_int_equal(chain_records_add(&r, "{\"a\":1}", 7), 0);
	assert_int_equal(chain_records_add(&r, "", 0), 0);
	assert_int_equal(chain_records_add(&r, long_body, sizeof long_body), 0);
	assert_int_equal(r.count, 3);
	assert_int_equal(chain_records_end(&r, hash), 0);
	assert_hash(hash, "d4362f9e79ab0e77d55bd53128355428e0ce0099f8a6803a5896c9d833d206ed");
	assert_null(r.hash);
	assert_int_equal(r.count, 0);

	/* Where one ends and the next begins counts, too. */
	assert_int_equal(chain_records_add(&r, "ab", 2), 0);
	assert_int_equal(chain_records_add(&r, "c", 1), 0);
	assert_int_equal(chain_records_add(&shifted, "a", 1), 0);
	assert_int_equal(chain_records_add(&shifted, "bc", 2), 0);
	assert_int_equal(chain_records_end(&r, hash), 0);
	assert_int_equal(chain_records_end(&shifted, other), 0);
	assert_memory_not_equal(hash, other, CHAIN_HASH);

	/* None at all. */
	assert_int_equal(chain_records_end(&r, hash), 0);
	assert_hash(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void test_hex(void **state)
{
	static const char *const bad[] = {
	    "",
	    "7906f1c3084e9cbdb1f98aa262495915d5f3bd26ce40afcb651b17efe51aa12",
	    "7906f1c3084e9cbdb1f98aa262495915d5f3bd26ce40afcb651b17efe51aa1290",
	    "7906F1c3084e9cbdb1f98aa262495915d5f3bd26ce40afcb651b17efe51aa129",
	    "7906f1c3084e9cbdb1f98aa262495915d5f3bd26ce40afcb651b17efe51aa12g",
	    " 906f1c3084e9cbdb1f98aa262495915d5f3bd26ce40afcb651b17efe51aa129",
	};
	const char *good = "7906f1c3084e9cbdb1f98aa262495915d5f3bd26ce40afcb651b17efe51aa129";
	uint8_t hash[CHAIN_HASH], untouched[CHAIN_HASH];

	(void)state;
	assert_int_equal(chain_from_hex(good, hash), 0);
	assert_hash(hash, good);
	memcpy(untouched, hash, sizeof hash);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(chain_from_hex(bad[i], hash), -EINVAL);
		assert_memory_equal(hash, untouched, sizeof hash);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_entries),
	    cmocka_unit_test(test_every_part_counts),
	    cmocka_unit_test(test_records),
	    cmocka_unit_test(test_hex),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
