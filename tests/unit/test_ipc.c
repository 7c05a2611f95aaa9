/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and descriptors over the sockets between Weir's processes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/err.h"
#include "core/keyline.h"
#include "ipc/ipc.h"
#include "plan.h"

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void descriptors_arrive_once(void **state)
{
	int sv[2], p[2], before = open_fds(), fds[IPC_FDS_MAX];
	size_t n = IPC_FDS_MAX;
	struct ask a = {.type = ASK_POOL, .req = 7}, b;
	char byte = 0;

	(void)state;
	assert_int_equal(ipc_pair(sv, 1 << 20), 0);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(ipc_send(sv[0], &a, sizeof a, p, 2), 0);
	close(p[0]);
	assert_int_equal(ipc_recv(sv[1], &b, sizeof b, fds, &n), sizeof b);
	assert_int_equal(n, 2);
	assert_memory_equal(&a, &b, sizeof a);
	assert_int_equal(fcntl(fds[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	assert_int_equal(byte, 'x');
	close(p[1]);
	close(fds[0]);
	close(fds[1]);
	close(sv[0]);
	close(sv[1]);
	assert_int_equal(open_fds(), before);
}

static void unwanted_descriptors_are_closed(void **state)
{
	int sv[2], p[2], before = open_fds(), fds[1];
	size_t n = 1;
	char byte;

	(void)state;
	assert_int_equal(ipc_pair(sv, 1 << 16), 0);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(ipc_send(sv[0], "a", 1, p, 2), 0);
	assert_int_equal(ipc_send(sv[0], "b", 1, p, 2), 0);
	assert_int_equal(ipc_recv(sv[1], &byte, 1, NULL, NULL), 1);
	assert_int_equal(ipc_recv(sv[1], &byte, 1, fds, &n), 1);
	assert_int_equal(n, 1);
	close(fds[0]);
	close(p[0]);
	close(p[1]);
	close(sv[0]);
	close(sv[1]);
	assert_int_equal(open_fds(), before);
}

static void sizes_and_ends(void **state)
{
	int sv[2];
	char big[64] = {0}, small[8];

	(void)state;
	assert_int_equal(ipc_pair(sv, 1 << 16), 0);
	assert_int_equal(ipc_recv(sv[1], small, sizeof small, NULL, NULL), -EAGAIN);
	assert_int_equal(ipc_send(sv[0], big, sizeof big, NULL, 0), 0);
	assert_int_equal(ipc_recv(sv[1], small, sizeof small, NULL, NULL), -EMSGSIZE);
	close(sv[0]);
	assert_int_equal(ipc_recv(sv[1], small, sizeof small, NULL, NULL), 0);
	assert_int_equal(ipc_send(sv[1], big, sizeof big, NULL, 0), -EPIPE);
	close(sv[1]);
	assert_int_equal(ipc_send(sv[1], big, sizeof big, (int[]){0, 0, 0, 0, 0}, IPC_FDS_MAX + 1), -EINVAL);
	assert_true(ipc_text_ok("abc", 4));
	assert_false(ipc_text_ok("abc", 3));
}

static void a_slow_peer_is_told(void **state)
{
	int sv[2], rc = 0, sent = 0;
	struct note n = {0};

	(void)state;
	assert_int_equal(ipc_pair(sv, 1 << 16), 0);
	while ((rc = ipc_send(sv[0], &n, sizeof n, NULL, 0)) == 0 && sent < 100000)
		sent++;
	assert_int_equal(rc, -EAGAIN);
	assert_true(sent > 0);
	close(sv[0]);
	close(sv[1]);
}

/* Of structs that processes of one program send each other: what both ends, and the harness in Python, count on. */
static void requests_are_laid_out_as_the_harness_reads_them(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct request_header), 64);
	assert_int_equal(offsetof(struct request_header, flags), 4);
	assert_int_equal(offsetof(struct request_header, code_len), 8);
	assert_int_equal(offsetof(struct request_header, stdin_len), 12);
	assert_int_equal(offsetof(struct request_header, env_len), 16);
	assert_int_equal(offsetof(struct request_header, file_count), 20);
	assert_int_equal(offsetof(struct request_header, files_len), 24);
	assert_int_equal(sizeof(struct request_file), 8);
	assert_int_equal(sizeof(struct gate_report), 12);
	assert_memory_equal(&(uint32_t){REQUEST_MAGIC}, "WEIR", 4);
}

/* Room for an id, a dot, and the number of any cell. */
static void a_cells_id_fits(void **state)
{
	char id[IPC_ID_MAX];

	(void)state;
	assert_true((size_t)snprintf(id, sizeof id, "sandbox-%013d.%u", 0, UINT32_MAX) < sizeof id);
}

static void four_descriptors_are_a_grant(void **state)
{
	int sv[2], p[2], fds[IPC_FDS_MAX], before = open_fds();
	size_t n = IPC_FDS_MAX;
	struct tell t = {.type = TELL_GRANT}, got;

	(void)state;
	assert_int_equal(ipc_pair(sv, 1 << 16), 0);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(ipc_send(sv[0], &t, sizeof t, (const int[]){p[0], p[1], p[0], p[1]}, 4), 0);
	assert_int_equal(ipc_recv(sv[1], &got, sizeof got, fds, &n), sizeof got);
	assert_int_equal(n, 4);
	while (n)
		close(fds[--n]);
	close(p[0]);
	close(p[1]);
	close(sv[0]);
	close(sv[1]);
	assert_int_equal(open_fds(), before);
}

static void every_kind_of_file_has_a_name(void **state)
{
	(void)state;
	for (int kind = COLLECTED_FILE + 1; kind < COLLECTED_KINDS; kind++)
		assert_true(skip_names[kind] && skip_names[kind][0]);
}

static void errors_keep_place_and_words(void **state)
{
	struct err e = {0};

	(void)state;
	assert_int_equal(err_set(&e, EINVAL, "/rules/3", "port %d is no port", 70000), -EINVAL);
	assert_string_equal(e.where, "/rules/3");
	assert_string_equal(e.msg, "port 70000 is no port");
	assert_int_equal(err_wrap(&e, "policy `%s`", "x"), -EINVAL);
	assert_string_equal(e.msg, "policy `x`: port 70000 is no port");
	assert_int_equal(err_errno(&e, ENOENT, "cgroup", "open %s", "/a"), -ENOENT);
	assert_string_equal(e.msg, "open /a: No such file or directory");
	assert_int_equal(err_set(NULL, EIO, NULL, "nobody listens"), -EIO);
}

static void keys_are_found_whole(void **state)
{
	static const char text[] = "oom 1\noom_kill 2\nx:3";

	(void)state;
	assert_string_equal(keyline_find(text, "oom", ' '), "1\noom_kill 2\nx:3");
	assert_string_equal(keyline_find(text, "oom_kill", ' '), "2\nx:3");
	assert_string_equal(keyline_find(text, "x", ':'), "3");
	assert_null(keyline_find(text, "x", ' '));
	assert_null(keyline_find(text, "oom_ki", ' '));
	assert_null(keyline_find("", "x", ' '));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(descriptors_arrive_once),
	    cmocka_unit_test(unwanted_descriptors_are_closed),
	    cmocka_unit_test(sizes_and_ends),
	    cmocka_unit_test(a_slow_peer_is_told),
	    cmocka_unit_test(requests_are_laid_out_as_the_harness_reads_them),
	    cmocka_unit_test(a_cells_id_fits),
	    cmocka_unit_test(four_descriptors_are_a_grant),
	    cmocka_unit_test(every_kind_of_file_has_a_name),
	    cmocka_unit_test(errors_keep_place_and_words),
	    cmocka_unit_test(keys_are_found_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
