/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who keeps the record's key: its files, what is signed and what is not, and what a start refuses. The real code on a real
 * directory; the auditor's end of the socket is the test's. Files of the key must be root's, so most of it needs root.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log.h"
#include "supervisor/headtext.h"
#include "supervisor/internal.h"
#include "supervisor/keyfiles.h"

struct place {
	char path[64];
	int dir;
};

static int set_up(void **state)
{
	struct place *p = calloc(1, sizeof *p);

	if (!p)
		return -1;
	strcpy(p->path, "/tmp/weir-test-signer-XXXXXX");
	if (!mkdtemp(p->path))
		return -1;
	p->dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = p;
	return p->dir < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	static const char *const names[] = {KEYFILES_KEY, KEYFILES_PUBLIC, KEYFILES_HEAD, KEYFILES_NEW, "away"};
	struct place *p = *state;

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		unlinkat(p->dir, names[i], 0);
	close(p->dir);
	if (rmdir(p->path) < 0)
		return -1;
	free(p);
	return 0;
}

/* A supervisor that has nothing but the way to an auditor, and its key. */
struct one {
	struct supervisor *s;
	int auditor;
};

static int one_open(struct one *o, int dir, struct err *e)
{
	int pair[2], rc;

	o->s = supervisor_alloc("serve-test");
	assert_non_null(o->s);
	assert_int_equal(ipc_pair(pair, 1 << 20), 0);
	o->auditor = pair[1];
	o->s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	o->s->config.key_dir_fd = dir;
	assert_int_equal(notes_new(o->s, pair[0], e), 0);
	rc = signer_open(o->s, e);
	return rc;
}

static void one_close(struct one *o)
{
	signer_close(o->s);
	source_close(o->s, &o->s->auditor_src);
	notes_free(o->s);
	close(o->s->epoll_fd);
	free(o->s);
	close(o->auditor);
}

static struct note heard(const struct one *o, enum note_type type)
{
	struct note n = {0};

	assert_int_equal(ipc_recv(o->auditor, &n, sizeof n, NULL, NULL), sizeof n);
	assert_int_equal(n.type, type);
	return n;
}

static void start(struct one *o, int dir)
{
	struct err e = {0};

	if (one_open(o, dir, &e) < 0)
		fail_msg("%s", e.msg);
	heard(o, NOTE_START);
}

/* The body is the number. */
static void ask(const struct one *o, uint64_t n, bool after_break, uint8_t body)
{
	struct sign_ask a = {.n = n, .after_break = after_break};

	memset(a.body, body, sizeof a.body);
	assert_int_equal(ipc_send(o->auditor, &a, sizeof a, NULL, 0), 0);
}

static void next_hash(uint64_t n, uint8_t body_byte, uint8_t hash[CHAIN_HASH])
{
	uint8_t body[CHAIN_HASH];

	memset(body, body_byte, sizeof body);
	chain_hash(n, hash, body, hash);
}

static void assert_signed(const struct one *o, uint64_t n, const uint8_t hash[CHAIN_HASH], const uint8_t pub[SIGNING_PUBLIC])
{
	struct note got = heard(o, NOTE_SIGNED);

	assert_int_equal(got.is_signed.n, n);
	assert_memory_equal(got.is_signed.hash, hash, CHAIN_HASH);
	assert_int_equal(signing_verify(pub, hash, got.is_signed.signature), 0);
}

static void public_of(int dir, uint8_t pub[SIGNING_PUBLIC])
{
	struct err e = {0};
	bool there;

	assert_int_equal(keyfiles_public(dir, &there, pub, &e), 0);
	assert_true(there);
}

static void need_root(void)
{
	if (geteuid() != 0) {
		print_message("skip: owners of files are root's to give\n");
		skip();
	}
}

static void test_first_start(void **state)
{
	const struct place *p = *state;
	uint8_t pub[SIGNING_PUBLIC], id[CHAIN_HASH];
	struct note head;
	struct stat st;
	struct one o;

	need_root();
	start(&o, p->dir);
	head = heard(&o, NOTE_HEAD);
	public_of(p->dir, pub);
	signing_key_id(pub, id);
	assert_int_equal(head.head.n, 0);
	assert_memory_equal(head.head.key_id, id, sizeof id);
	assert_int_equal(fstatat(p->dir, KEYFILES_KEY, &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(fstatat(p->dir, KEYFILES_HEAD, &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(fstatat(p->dir, KEYFILES_PUBLIC, &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0644);
	assert_int_equal(faccessat(p->dir, KEYFILES_NEW, F_OK, 0), -1);
	one_close(&o);
}

static void test_no_directory(void **state)
{
	const struct place *p = *state;
	const uint8_t none[CHAIN_HASH] = {0};
	struct note head;
	struct one o;

	start(&o, -1);
	head = heard(&o, NOTE_HEAD);
	assert_memory_equal(head.head.key_id, none, sizeof none);
	ask(&o, 1, false, 1);
	assert_int_equal(signer_hear(o.s), 0);
	head = heard(&o, NOTE_HEAD);
	assert_int_equal(head.head.n, 0);
	assert_int_equal(faccessat(p->dir, KEYFILES_KEY, F_OK, 0), -1);
	one_close(&o);
}

static void test_next_one_only(void **state)
{
	static const uint64_t wrong[] = {0, 2, 5, UINT64_MAX};
	const struct place *p = *state;
	uint8_t hash[CHAIN_HASH] = {0}, pub[SIGNING_PUBLIC];
	struct one o;

	need_root();
	start(&o, p->dir);
	heard(&o, NOTE_HEAD);
	public_of(p->dir, pub);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		ask(&o, wrong[i], false, 1);
		assert_int_equal(signer_hear(o.s), 0);
		assert_int_equal(heard(&o, NOTE_HEAD).head.n, 0);
	}
	for (uint64_t n = 1; n <= 3; n++)
		ask(&o, n, false, (uint8_t)n);
	assert_int_equal(signer_hear(o.s), 0);
	for (uint64_t n = 1; n <= 3; n++) {
		next_hash(n, (uint8_t)n, hash);
		assert_signed(&o, n, hash, pub);
	}
	/* What was signed is never signed as something else. */
	ask(&o, 3, false, 99);
	ask(&o, 2, false, 99);
	assert_int_equal(signer_hear(o.s), 0);
	assert_int_equal(heard(&o, NOTE_HEAD).head.n, 3);
	assert_memory_equal(heard(&o, NOTE_HEAD).head.hash, hash, CHAIN_HASH);
	one_close(&o);
}

/* Its auditor was killed before it could keep the signature. */
static void test_lost_signature(void **state)
{
	const struct place *p = *state;
	uint8_t hash[CHAIN_HASH] = {0}, pub[SIGNING_PUBLIC];
	struct one o;

	need_root();
	start(&o, p->dir);
	for (uint64_t n = 1; n <= 3; n++)
		ask(&o, n, false, (uint8_t)n);
	assert_int_equal(signer_hear(o.s), 0);
	one_close(&o);

	start(&o, p->dir);
	public_of(p->dir, pub);
	assert_int_equal(heard(&o, NOTE_HEAD).head.n, 3);
	for (uint64_t n = 1; n <= 3; n++) {
		ask(&o, n, false, (uint8_t)n);
		assert_int_equal(signer_hear(o.s), 0);
		next_hash(n, (uint8_t)n, hash);
		assert_signed(&o, n, hash, pub);
	}
	one_close(&o);
}

static void test_break(void **state)
{
	const struct place *p = *state;
	uint8_t hash[CHAIN_HASH] = {0}, pub[SIGNING_PUBLIC];
	struct one o;

	need_root();
	start(&o, p->dir);
	heard(&o, NOTE_HEAD);
	public_of(p->dir, pub);
	log_init("test", LOG_LVL_ERROR);
	ask(&o, 1, false, 1);
	ask(&o, 1, true, 7); /* not beyond what was signed */
	ask(&o, 10, true, 7);
	ask(&o, 11, false, 8);
	assert_int_equal(signer_hear(o.s), 0);
	next_hash(1, 1, hash);
	assert_signed(&o, 1, hash, pub);
	assert_int_equal(heard(&o, NOTE_HEAD).head.n, 11); /* by the end of the batch */
	/* It follows what is remembered, not what is claimed. */
	next_hash(10, 7, hash);
	assert_signed(&o, 10, hash, pub);
	next_hash(11, 8, hash);
	assert_signed(&o, 11, hash, pub);
	one_close(&o);
}

/* A service and a `weir run` beside it. */
static void test_two_at_once(void **state)
{
	const struct place *p = *state;
	uint8_t hash[CHAIN_HASH] = {0}, pub[SIGNING_PUBLIC];
	struct one o[2];

	need_root();
	for (int i = 0; i < 2; i++) {
		start(&o[i], p->dir);
		heard(&o[i], NOTE_HEAD);
	}
	public_of(p->dir, pub);
	for (uint64_t n = 1; n <= 300; n++) {
		ask(&o[n % 2], n, false, (uint8_t)n);
		assert_int_equal(signer_hear(o[n % 2].s), 0);
		next_hash(n, (uint8_t)n, hash);
		assert_signed(&o[n % 2], n, hash, pub);
	}
	for (int i = 0; i < 2; i++)
		one_close(&o[i]);
}

static void test_no_peer(void **state)
{
	const struct place *p = *state;
	struct one o;

	start(&o, -1);
	assert_int_equal(ipc_send(o.auditor, "what", 4, NULL, 0), 0);
	assert_int_equal(signer_hear(o.s), -EPROTO);
	one_close(&o);
	start(&o, -1);
	close(o.auditor);
	o.auditor = -1;
	assert_int_equal(signer_hear(o.s), -EPIPE);
	one_close(&o);
	(void)p;
}

/* ---- what a start refuses ---- */

static void refused(int dir, int code, const char *why)
{
	struct err e = {0};
	struct one o;

	assert_int_equal(one_open(&o, dir, &e), -code);
	assert_string_equal(e.where, "audit key");
	if (!strstr(e.msg, why))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
	one_close(&o);
}

static void begin(int dir, uint64_t entries)
{
	struct one o;

	start(&o, dir);
	for (uint64_t n = 1; n <= entries; n++)
		ask(&o, n, false, 1);
	assert_int_equal(signer_hear(o.s), 0);
	one_close(&o);
}

static void test_modes(void **state)
{
	const struct place *p = *state;

	need_root();
	begin(p->dir, 1);
	assert_int_equal(fchmodat(p->dir, KEYFILES_KEY, 0640, 0), 0);
	refused(p->dir, EPERM, "audit-key.pem");
	assert_int_equal(fchmodat(p->dir, KEYFILES_KEY, 0600, 0), 0);
	assert_int_equal(fchownat(p->dir, KEYFILES_KEY, 1000, 0, 0), 0);
	refused(p->dir, EPERM, "chown root");
	assert_int_equal(fchownat(p->dir, KEYFILES_KEY, 0, 0, 0), 0);
	assert_int_equal(fchownat(p->dir, KEYFILES_HEAD, 1000, 0, 0), 0);
	refused(p->dir, EPERM, "audit-head");
	assert_int_equal(fchownat(p->dir, KEYFILES_HEAD, 0, 0, 0), 0);
	begin(p->dir, 0);
	assert_int_equal(renameat(p->dir, KEYFILES_KEY, p->dir, "away"), 0);
	assert_int_equal(symlinkat("away", p->dir, KEYFILES_KEY), 0);
	refused(p->dir, ELOOP, "audit-key.pem");
}

static void overwrite(int dir, const char *name, off_t at, const char *text, size_t len)
{
	int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, text, len, at), len);
	close(fd);
}

static void test_damaged(void **state)
{
	const struct place *p = *state;
	struct one o;

	need_root();
	begin(p->dir, 2);
	/* One of the two places, as a power cut may leave it: the other one has what was before, or is as good. */
	overwrite(p->dir, KEYFILES_HEAD, 100, "x", 1);
	start(&o, p->dir);
	assert_in_range(heard(&o, NOTE_HEAD).head.n, 0, 2);
	one_close(&o);
	overwrite(p->dir, KEYFILES_HEAD, HEADTEXT_SIZE + 100, "x", 1);
	refused(p->dir, EBADMSG, "audit-head is damaged");
	overwrite(p->dir, KEYFILES_KEY, 40, "\n\n\n\n", 4);
}

static void test_gone(void **state)
{
	const struct place *p = *state;
	uint8_t pub[SIGNING_PUBLIC], again[SIGNING_PUBLIC];

	need_root();
	begin(p->dir, 1);
	public_of(p->dir, pub);
	/* The public half is made again. */
	assert_int_equal(unlinkat(p->dir, KEYFILES_PUBLIC, 0), 0);
	begin(p->dir, 0);
	public_of(p->dir, again);
	assert_memory_equal(pub, again, sizeof pub);
	/* The rest is not. */
	assert_int_equal(renameat(p->dir, KEYFILES_HEAD, p->dir, "away"), 0);
	refused(p->dir, ENOENT, "audit-head is gone");
	assert_int_equal(renameat(p->dir, "away", p->dir, KEYFILES_HEAD), 0);
	assert_int_equal(unlinkat(p->dir, KEYFILES_KEY, 0), 0);
	refused(p->dir, ENOKEY, "audit-key.pem is gone");
	/* A head of nothing is a first start that was cut off. */
	assert_int_equal(unlinkat(p->dir, KEYFILES_HEAD, 0), 0);
	assert_int_equal(unlinkat(p->dir, KEYFILES_PUBLIC, 0), 0);
	begin(p->dir, 0);
	assert_int_equal(unlinkat(p->dir, KEYFILES_KEY, 0), 0);
	assert_int_equal(unlinkat(p->dir, KEYFILES_PUBLIC, 0), 0);
	begin(p->dir, 1);
}

static void test_other_key(void **state)
{
	const struct place *p = *state;
	struct err e = {0};
	char *pem = NULL;
	size_t len;

	need_root();
	begin(p->dir, 1);
	assert_int_equal(signing_generate(&pem, &len, &e), 0);
	overwrite(p->dir, KEYFILES_KEY, 0, pem, len);
	free(pem);
	refused(p->dir, EKEYREJECTED, "audit-head in the state directory was written with another key");
}

/* ---- the head's text ---- */

static void test_text(void **state)
{
	static struct signed_head r, back;
	static char text[HEADTEXT_PLACES * HEADTEXT_SIZE];
	uint8_t hash[CHAIN_HASH];

	(void)state;
	memset(&r, 0, sizeof r);
	r.count = 1;
	for (uint64_t n = 1; n <= 1000; n++) {
		memset(hash, (int)n, sizeof hash);
		signed_add(&r, n, hash);
		r.turn++;
		headtext_write(text + (r.turn % HEADTEXT_PLACES) * HEADTEXT_SIZE, &r);
		assert_int_equal(headtext_turn(text + (r.turn % HEADTEXT_PLACES) * HEADTEXT_SIZE), r.turn);
		assert_int_equal(headtext_read(text, n == 1 ? HEADTEXT_PLACES * HEADTEXT_SIZE : sizeof text, &back), 0);
		assert_int_equal(back.n, n);
		assert_int_equal(back.turn, n);
	}
	assert_int_equal(back.count, KEYFILES_REMEMBERED);
	for (uint64_t n = 1000; n > 1000 - KEYFILES_REMEMBERED; n--) {
		memset(hash, (int)n, sizeof hash);
		assert_memory_equal(signed_hash(&back, n), hash, sizeof hash);
	}
	assert_null(signed_hash(&back, 1000 - KEYFILES_REMEMBERED));
	assert_null(signed_hash(&back, 1001));
	/* What is not known of those between is forgotten. */
	signed_add(&r, 2000, hash);
	assert_int_equal(r.count, 1);
	assert_null(signed_hash(&r, 1000));
	headtext_write(text, &r);
	assert_int_equal(headtext_read(text, sizeof text, &back), 0);
	assert_int_equal(back.n, 1000 + (r.turn == back.turn ? 1000 : 0));
}

static void test_torn_text(void **state)
{
	static struct signed_head r, back;
	static char text[HEADTEXT_SIZE], torn[HEADTEXT_SIZE];
	const uint8_t hash[CHAIN_HASH] = {1};

	(void)state;
	memset(&r, 0, sizeof r);
	r.count = r.turn = 1;
	for (uint64_t n = 1; n <= 20; n++)
		signed_add(&r, n, hash);
	headtext_write(text, &r);
	assert_int_equal(headtext_read(text, sizeof text, &back), 0);
	for (size_t i = 0; i < sizeof text && text[i + 1] != '\n'; i++) {
		memcpy(torn, text, sizeof torn);
		torn[i] ^= 1;
		assert_int_equal(headtext_read(torn, sizeof torn, &back), -EBADMSG);
		memset(torn + i, 0, sizeof torn - i);
		assert_int_equal(headtext_read(torn, sizeof torn, &back), -EBADMSG);
	}
	assert_int_equal(headtext_read(text, sizeof text - 1, &back), -EBADMSG);
	assert_int_equal(headtext_read(text, 0, &back), -EBADMSG);
}

/* ---- what it costs; only said ---- */

static void test_cost(void **state)
{
	enum { BATCHES = 200, BATCH = 16 };
	const struct place *p = *state;
	struct timespec a, b;
	uint64_t n = 0;
	struct one o;

	need_root();
	start(&o, p->dir);
	heard(&o, NOTE_HEAD);
	for (int batch = 1; batch <= BATCH; batch *= BATCH) {
		double us;

		clock_gettime(CLOCK_MONOTONIC, &a);
		for (int i = 0; i < BATCHES; i++) {
			for (int k = 0; k < batch; k++)
				ask(&o, ++n, false, 1);
			assert_int_equal(signer_hear(o.s), 0);
			for (int k = 0; k < batch; k++)
				heard(&o, NOTE_SIGNED);
		}
		clock_gettime(CLOCK_MONOTONIC, &b);
		us = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 1e3 / (BATCHES * batch);
		print_message("%d at once: %.1f us for each entry, asked, signed, remembered and answered\n", batch, us);
	}
	one_close(&o);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
	const struct CMUnitTest tests[] = {
	    TEST(test_first_start),
	    TEST(test_no_directory),
	    TEST(test_next_one_only),
	    TEST(test_lost_signature),
	    TEST(test_break),
	    TEST(test_two_at_once),
	    TEST(test_no_peer),
	    TEST(test_modes),
	    TEST(test_damaged),
	    TEST(test_gone),
	    TEST(test_other_key),
	    TEST(test_cost),
	    cmocka_unit_test(test_text),
	    cmocka_unit_test(test_torn_text),
	};

	log_init("test", LOG_LVL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
