/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guard on a scratch cgroup, and beside it a program that judges a packet on demand through the guard's own maps
 * (judge.bpf.c): what test_judge and tests/bench/bench_judge.c share. Included by one file a program.
 */
#ifndef WEIR_TESTS_BPF_JUDGE_RIG_H
#define WEIR_TESTS_BPF_JUDGE_RIG_H

/* Not every program needs all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "core/image.h"
#include "core/limits.h"
#include "core/netset.h"
#include "core/policy.h"
#include "kernel/guard.h"
#include "test_judge.skel.h"

#define ETH_HEADER 14

static struct {
	char cgroup[256], pins[64];
	int cgroup_fd;
	uint64_t id;
	struct guard *guard;
	struct test_judge_bpf *prog;
	int prog_fd;
} t;

static void must(int rc, const struct err *e)
{
	if (rc < 0)
		fail_msg("%s: %s", e->where, e->msg);
}

struct packet {
	uint8_t b[ETH_HEADER + 192];
	uint32_t len;
};

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void udp4_to(struct packet *p, uint32_t addr, unsigned port)
{
	uint8_t *h = p->b + ETH_HEADER;

	memset(p, 0, sizeof *p);
	put16(p->b + 12, 0x0800);
	h[0] = 0x45;
	h[9] = 17;
	put16(h + 16, addr >> 16);
	put16(h + 18, addr & 0xffff);
	put16(h + 22, port);
	p->len = ETH_HEADER + 28;
}

static void nat64_to(struct packet *p)
{
	static const uint8_t dst[16] = {0, 0x64, 0xff, 0x9b, [12] = 10, 0, 0, 1};
	uint8_t *h = p->b + ETH_HEADER;

	memset(p, 0, sizeof *p);
	put16(p->b + 12, 0x86dd);
	h[0] = 0x60;
	h[6] = 17;
	memcpy(h + 24, dst, 16);
	put16(h + 42, 9);
	p->len = ETH_HEADER + 48;
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint32_t kernel_judgement(const struct packet *p)
{
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = p->b, .data_size_in = p->len);

	assert_int_equal(bpf_prog_test_run_opts(t.prog_fd, &o), 0);
	return t.prog->bss->test_judgement;
}

static struct policy_image *compile(const char *text, size_t len)
{
	struct policy *p = NULL;
	struct policy_image *img = NULL;
	struct err e = {0};

	if (policy_parse(text, len, &p, &e) < 0)
		fail_msg("%s: %s\n%.*s", e.where, e.msg, (int)len, text);
	must(image_compile(p, NULL, &img, &e), &e);
	policy_free(p);
	return img;
}

static void govern(uint32_t slot)
{
	struct err e = {0};

	must(guard_set_sandbox(t.guard, t.id, slot, 0, &e), &e);
}

static int find_cgroup2(void)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[1024], mnt[192];

	while (f && fgets(line, sizeof line, f))
		if (strstr(line, " - cgroup2 ") && sscanf(line, "%*s %*s %*s %*s %191s", mnt) == 1) {
			snprintf(t.cgroup, sizeof t.cgroup, "%s/weir-judge-%d", mnt, getpid());
			fclose(f);
			return 0;
		}
	if (f)
		fclose(f);
	return -1;
}

static void clean_up(void)
{
	guard_free(t.guard);
	t.guard = NULL;
	if (t.pins[0])
		guard_unpin(t.pins, NULL);
	if (t.cgroup[0])
		rmdir(t.cgroup);
}

static void stopped(int sig)
{
	(void)sig;
	clean_up();
	_exit(124);
}

static int reuse(struct bpf_object *obj, const char *name)
{
	struct bpf_map *m = bpf_object__find_map_by_name(obj, name);
	char path[128];
	int fd, rc;

	snprintf(path, sizeof path, "%s/%s", t.pins, name);
	fd = bpf_obj_get(path);
	rc = fd < 0 ? -errno : bpf_map__reuse_fd(m, fd);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int load_program(void)
{
	static const char *const shared[] = {"sandboxes", "policies", "images", "tries", "lists"};
	struct bpf_program *p = NULL;
	size_t i;
	int rc = 0;

	t.prog = test_judge_bpf__open();
	if (!t.prog)
		return -errno;
	while ((p = bpf_object__next_program(t.prog->obj, p)))
		bpf_program__set_autoload(p, !strcmp(bpf_program__name(p), "weir_test_judge"));
	for (i = 0; i < sizeof shared / sizeof *shared && rc == 0; i++)
		rc = reuse(t.prog->obj, shared[i]);
	if (rc == 0)
		rc = test_judge_bpf__load(t.prog);
	t.prog_fd = bpf_program__fd(t.prog->progs.weir_test_judge);
	return rc;
}

static int setup_rig(void)
{
	struct guard_opts o = {.pin_dir = t.pins, .level = 1};
	struct err e = {0};
	struct stat st;

	atexit(clean_up);
	signal(SIGINT, stopped);
	signal(SIGTERM, stopped);
	snprintf(t.pins, sizeof t.pins, "/sys/fs/bpf/weir-judge-%d", getpid());
	if (find_cgroup2() < 0 || mkdir(t.cgroup, 0755) < 0)
		return -1;
	t.cgroup_fd = open(t.cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fstat(t.cgroup_fd, &st) < 0)
		return -1;
	t.id = st.st_ino;
	o.cgroup_fd = t.cgroup_fd;
	must(guard_create(&t.guard, &o, &e), &e);
	if (load_program() < 0)
		fail_msg("the test's program: %s", strerror(errno));
	t.prog->bss->test_cgroup = t.id;
	return 0;
}

#endif
