/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of a run's content: hashed in pieces of any size, it is what it is in one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <sys/stat.h>

#include "api/content.h"
#include "api/payload.h"
#include "core/limits.h"

static void assert_hash(const struct content_told *t, enum content_kind kind, const void *data, size_t len)
{
	uint8_t want[32];

	assert_int_equal(gnutls_hash_fast(GNUTLS_DIG_SHA256, data, len, want), 0);
	assert_true(t->told & 1u << kind);
	assert_int_equal(t->of[kind].kept, len);
	assert_memory_equal(t->of[kind].sha256, want, sizeof want);
}

static const struct payload_file files[] = {
    {.path = "a.txt", .path_len = 5, .content = "alpha", .len = 5},
    {.path = "empty", .path_len = 5, .content = "", .len = 0},
    {.path = "d/b", .path_len = 3, .content = "\0\n", .len = 2},
};
static const char files_bytes[] = "a.txt\0alpha"
				  "empty\0"
				  "d/b\0\0\n";
#define FILES_LEN (sizeof files_bytes - 1)

static struct payload payload_of(const char *stdin_text, bool call, size_t file_count)
{
	const struct payload_parts parts = {.call = call,
					    .code = "print(1)",
					    .code_len = 8,
					    .stdin_text = stdin_text,
					    .stdin_len = stdin_text ? strlen(stdin_text) : 0,
					    .env = call ? NULL : "SECRET=x",
					    .env_len = call ? 0 : 9,
					    .files = files,
					    .file_count = file_count};
	struct payload p;

	assert_int_equal(payload_make(&p, &parts), 0);
	return p;
}

static void feed(struct content *c, const struct payload *p, size_t piece)
{
	struct request_header h;

	memcpy(&h, p->data, sizeof h);
	for (size_t at = 0; at < p->len; at += piece) {
		size_t n = p->len - at < piece ? p->len - at : piece;
		char *copy = malloc(n); /* a byte too far is found by the sanitizer */

		memcpy(copy, p->data + at, n);
		content_request(c, &h, at, copy, n);
		free(copy);
	}
}

static void a_request_in_pieces(void **state)
{
	struct payload p = payload_of("in", false, 3);

	(void)state;
	for (size_t piece = 1; piece <= p.len; piece++) {
		struct content c = {0};
		struct content_told t;

		feed(&c, &p, piece);
		content_sum_up(&c, &t);
		assert_hash(&t, CONTENT_CODE, "print(1)", 8);
		assert_hash(&t, CONTENT_ARGUMENTS, "in", 2);
		assert_hash(&t, CONTENT_FILES_IN, files_bytes, FILES_LEN);
		assert_int_equal(t.told, 1u << CONTENT_CODE | 1u << CONTENT_ARGUMENTS | 1u << CONTENT_FILES_IN);
		assert_int_equal(t.stored, 0);
		assert_true(content_memfd(&c) < 0);
		content_clear(&c);
	}
	payload_clear(&p);
}

static void what_there_is_none_of(void **state)
{
	struct payload p = payload_of(NULL, false, 0), empty = payload_of("", false, 0), call = payload_of("{}", true, 0);
	struct content c = {0};
	struct content_told t;

	(void)state;
	feed(&c, &p, 7);
	content_sum_up(&c, &t);
	assert_int_equal(t.told, 1u << CONTENT_CODE);
	content_clear(&c);

	feed(&c, &empty, 1000);
	content_sum_up(&c, &t);
	assert_hash(&t, CONTENT_ARGUMENTS, "", 0);
	content_clear(&c);

	feed(&c, &call, 1);
	content_sum_up(&c, &t);
	assert_hash(&t, CONTENT_ARGUMENTS, "{}", 2);
	content_clear(&c);
	payload_clear(&p);
	payload_clear(&empty);
	payload_clear(&call);
}

/* Sent to another sandbox, from its beginning. */
static void from_the_beginning_again(void **state)
{
	struct payload p = payload_of("in", false, 3);
	struct content c = {.keep = true};
	struct content_told t;
	struct request_header h;

	(void)state;
	memcpy(&h, p.data, sizeof h);
	content_request(&c, &h, 0, p.data, p.len - 1);
	content_add(&c, CONTENT_STDOUT, "lost", 4);
	content_restart(&c);
	assert_true(c.keep);
	feed(&c, &p, 5);
	content_sum_up(&c, &t);
	assert_hash(&t, CONTENT_FILES_IN, files_bytes, FILES_LEN);
	assert_false(t.told & 1u << CONTENT_STDOUT);
	content_clear(&c);
	payload_clear(&p);
}

static void counted_and_not_kept(void **state)
{
	struct content c = {0};
	struct content_told t;

	(void)state;
	content_add(&c, CONTENT_STDOUT, "abc", 3);
	content_count(&c, CONTENT_STDOUT, 100);
	content_open(&c, CONTENT_STDERR);
	content_sum_up(&c, &t);
	assert_hash(&t, CONTENT_STDOUT, "abc", 3);
	assert_int_equal(t.of[CONTENT_STDOUT].bytes, 103);
	assert_hash(&t, CONTENT_STDERR, "", 0);
	content_clear(&c);
}

/* The first of each, one kind behind the other, where nobody can change it any more. */
static void what_is_stored(void **state)
{
	static char big[LIMIT_AUDIT_CONTENT_BYTES + 10], text[2 * sizeof big];
	struct content c = {.keep = true};
	struct content_told t;
	struct stat st;
	int fd;

	(void)state;
	memset(big, 'o', sizeof big);
	content_add(&c, CONTENT_RESULT, "result", 6);
	content_add(&c, CONTENT_CODE, "code", 4);
	content_add(&c, CONTENT_STDOUT, big, 100);
	content_add(&c, CONTENT_STDOUT, big + 100, sizeof big - 100);
	content_sum_up(&c, &t);
	assert_hash(&t, CONTENT_STDOUT, big, sizeof big);
	assert_int_equal(t.stored, 1u << CONTENT_CODE | 1u << CONTENT_STDOUT | 1u << CONTENT_RESULT);
	assert_int_equal(t.of[CONTENT_CODE].stored, 4);
	assert_int_equal(t.of[CONTENT_STDOUT].stored, LIMIT_AUDIT_CONTENT_BYTES);
	assert_int_equal(t.of[CONTENT_STDERR].stored, 0);
	fd = content_memfd(&c);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 4 + LIMIT_AUDIT_CONTENT_BYTES + 6);
	assert_int_equal(pread(fd, text, sizeof text, 0), st.st_size);
	assert_memory_equal(text, "codeoooo", 8);
	assert_memory_equal(text + st.st_size - 6, "result", 6);
	assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	close(fd);
	content_clear(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_request_in_pieces),	cmocka_unit_test(what_there_is_none_of),
	    cmocka_unit_test(from_the_beginning_again), cmocka_unit_test(counted_and_not_kept),
	    cmocka_unit_test(what_is_stored),
	};

	return cmocka_run_group_tests_name("content", tests, NULL, NULL);
}
