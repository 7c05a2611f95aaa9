/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an id, a process or a path to a directory, in trees that the test builds: plain directories and files after what kubelet
 * and the runtimes document for both drivers, on a host that has cgroup2 alone and on one that has version 1 beside it. None of
 * containerd, CRI-O, Docker and a systemd as pid 1 was run to make them. The last tests use a cgroup of this host, where there
 * may be one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "attach/target.h"
#include "kernel/cgroup.h"

#define A "a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90"
#define LIKE_A "a1b2c3d4e5f60718293a4b5c6d7e8f90ffffffffffffffffffffffffffffffff" /* its first 12 and more are A's */
#define B "b1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90"
#define P "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"
#define UID "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
#define UID_ "0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9"
#define NEXT "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f8"
#define NEXT_ "0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f8"
#define STATIC "00112233445566778899aabbccddeeff"
#define BURST "/kubepods.slice/kubepods-burstable.slice"
#define BURST_POD BURST "/kubepods-burstable-pod" UID_ ".slice"
#define KIND_BURST "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"
#define KIND_POD KIND_BURST "/kubelet-kubepods-burstable-pod" UID_ ".slice"
#define USER "/user.slice/user-1000.slice/user@1000.service/user.slice"

/* ---- trees ---- */

static char base[64];
static char cgroup2[128], proc[128];
static struct target_roots roots = {.cgroup2 = cgroup2, .proc = proc};
static struct err e;

static int drop(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	return remove(path);
}

static void clear(void)
{
	if (base[0])
		nftw(base, drop, 16, FTW_DEPTH | FTW_PHYS);
}

/* With its parents. */
static void make_dir(const char *path)
{
	char part[PATH_MAX];

	snprintf(part, sizeof part, "%s", path);
	for (char *p = part + 1; *p; p++)
		if (*p == '/') {
			*p = '\0';
			mkdir(part, 0755);
			*p = '/';
		}
	mkdir(part, 0755);
}

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void cgroup(const char *path)
{
	char full[2 * PATH_MAX];

	snprintf(full, sizeof full, "%s%s", cgroup2, path);
	make_dir(full);
}

static void cgroup_with(const char *path, const char *pids)
{
	char full[2 * PATH_MAX];

	cgroup(path);
	snprintf(full, sizeof full, "%s%s/cgroup.procs", cgroup2, path);
	write_text(full, pids);
}

static void process_file(const char *pid, const char *file, const char *text)
{
	char full[2 * PATH_MAX];

	snprintf(full, sizeof full, "%s/%s", proc, pid);
	make_dir(full);
	snprintf(full, sizeof full, "%s/%s/%s", proc, pid, file);
	write_text(full, text);
}

/* A process whose /proc/PID/cgroup is `cgroups`. */
static void process(const char *pid, char state, unsigned flags, const char *tgid, const char *cgroups)
{
	char text[512];

	snprintf(text, sizeof text, "%s (a ) 0 Z (b) %c 1 1 1 0 -1 %u 0 0", pid, state, flags);
	process_file(pid, "stat", text);
	snprintf(text, sizeof text, "Name:\ta\nTgid:\t%s\nPid:\t%s\n", tgid, pid);
	process_file(pid, "status", text);
	process_file(pid, "cgroup", cgroups);
}

static void process_in(const char *pid, const char *path)
{
	char text[PATH_MAX + 128];

	snprintf(text, sizeof text, "4:memory:%s\n1:name=systemd:/x\n0::%s\n", path, path);
	process(pid, 'S', 0x400100, pid, text);
}

/* A host anew; `hybrid`: cgroup2 stands beside hierarchies of version 1. */
static void host(bool hybrid)
{
	char v1[2 * PATH_MAX];

	clear();
	/* In memory where there is such a place: one test makes 65,536 directories. */
	snprintf(base, sizeof base, "%s/weir-target-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(base));
	snprintf(cgroup2, sizeof cgroup2, hybrid ? "%s/cgroup/unified" : "%s/cgroup", base);
	snprintf(proc, sizeof proc, "%s/proc", base);
	make_dir(cgroup2);
	make_dir(proc);
	if (hybrid) {
		/* The same names there are nobody's business. */
		snprintf(v1, sizeof v1, "%s/cgroup/memory/docker/" A, base);
		make_dir(v1);
	}
	process_file("self", "cgroup", hybrid ? "4:memory:/\n0::/\n" : "0::/\n");
	e = (struct err){0};
}

static char own[PATH_MAX]; /* directory of the cgroup that tests make on this host */
static pid_t child = -1;   /* in it */

static int teardown(void **state)
{
	char in[PATH_MAX + 8];

	(void)state;
	clear();
	/* After a test that failed. */
	if (child > 0)
		kill(child, SIGKILL);
	snprintf(in, sizeof in, "%s/in", own);
	for (int i = 0; own[0] && i < 200 && rmdir(in) < 0 && errno == EBUSY; i++)
		usleep(5000);
	if (own[0])
		rmdir(own);
	return 0;
}

static int find(enum target_kind kind, const char *ref, struct target *t)
{
	e = (struct err){0};
	memset(t, 0xAA, sizeof *t);
	return target_find(t, kind, ref, &roots, &e);
}

static void found(enum target_kind kind, const char *ref, const char *path, const char *whole)
{
	struct target t;

	if (find(kind, ref, &t) != 0)
		fail_msg("%s %s: %s (looked for %s)", target_kind_options[kind], ref, e.msg, path);
	if (strcmp(t.path, path) != 0 || strcmp(t.ref, whole) != 0 || t.fd != -1 || t.kind != kind)
		fail_msg("%s %s: %s as %s, not %s as %s", target_kind_options[kind], ref, t.path, t.ref, path, whole);
}

static void refused(enum target_kind kind, const char *ref, int code, const char *words)
{
	struct target t;

	if (find(kind, ref, &t) != -code || e.code != code || strcmp(e.where, target_kind_options[kind]) != 0 ||
	    !strstr(e.msg, words))
		fail_msg("%s %s: %d %s: %s (not %d %s)", target_kind_options[kind], ref, e.code, e.where, e.msg, code, words);
}

/* ---- layouts ---- */

struct layout {
	const char *name;
	const char *container; /* directory of A */
	const char *pod;       /* that holds it; NULL: none */
	const char *pod_id;    /* as the tools print it */
	const char *runtime;   /* as the path says */
	const char *process;   /* where a process of it is, if not in the container's own directory */
	const char *decoys[6]; /* beside it */
};

static const struct layout layouts[] = {
    {"Kubernetes, containerd, systemd driver, burstable",
     BURST_POD "/cri-containerd-" A ".scope",
     BURST_POD,
     UID,
     "containerd",
     NULL,
     {BURST_POD "/cri-containerd-" B ".scope", BURST "/kubepods-burstable-pod" NEXT_ ".slice/cri-containerd-" LIKE_A ".scope",
      "/system.slice/containerd.service"}},
    {"Kubernetes, containerd, systemd driver, guaranteed",
     "/kubepods.slice/kubepods-pod" UID_ ".slice/cri-containerd-" A ".scope",
     "/kubepods.slice/kubepods-pod" UID_ ".slice",
     UID,
     "containerd",
     NULL,
     {"/kubepods.slice/kubepods-pod" NEXT_ ".slice/cri-containerd-" B ".scope", "/kubepods.slice/kubepods-podcast.slice"}},
    {"Kubernetes, containerd, cgroupfs, besteffort",
     "/kubepods/besteffort/pod" UID "/" A,
     "/kubepods/besteffort/pod" UID,
     UID,
     "",
     NULL,
     {"/kubepods/besteffort/pod" UID "/" B, "/kubepods/besteffort/pod" NEXT "/" LIKE_A, "/kubepods/besteffort/pod",
      "/other/pod" UID}},
    {"Kubernetes, containerd, cgroupfs, guaranteed",
     "/kubepods/pod" UID "/" A,
     "/kubepods/pod" UID,
     UID,
     "",
     "/kubepods/pod" UID "/" A "/own",
     {"/kubepods/pod" NEXT, "/kubepods/burstable"}},
    {"Kubernetes, a static pod",
     BURST "/kubepods-burstable-pod" STATIC ".slice/cri-containerd-" A ".scope",
     BURST "/kubepods-burstable-pod" STATIC ".slice",
     STATIC,
     "containerd",
     NULL,
     {BURST "/kubepods-burstable-pod00112233445566778899aabbccddeef0.slice"}},
    {"Kubernetes, a static pod, cgroupfs",
     "/kubepods/burstable/pod" STATIC "/" A,
     "/kubepods/burstable/pod" STATIC,
     STATIC,
     "",
     NULL,
     {"/kubepods/burstable/pod00112233445566778899aabbccddeef0"}},
    {"Kubernetes, CRI-O, systemd driver; OpenShift",
     BURST_POD "/crio-" A ".scope",
     BURST_POD,
     UID,
     "cri-o",
     NULL,
     {BURST_POD "/crio-conmon-" A ".scope", "/system.slice/crio-conmon-" A ".scope",
      BURST "/kubepods-burstable-pod" NEXT_ ".slice/crio-" LIKE_A ".scope"}},
    {"Kubernetes, CRI-O with crun, systemd driver",
     BURST_POD "/crio-" A ".scope",
     BURST_POD,
     UID,
     "cri-o",
     BURST_POD "/crio-" A ".scope/container",
     {BURST_POD "/crio-conmon-" A ".scope"}},
    {"Kubernetes, CRI-O, cgroupfs",
     "/kubepods/burstable/pod" UID "/crio-" A,
     "/kubepods/burstable/pod" UID,
     UID,
     "cri-o",
     NULL,
     {"/kubepods/burstable/pod" UID "/crio-conmon-" A, "/kubepods/burstable/pod" NEXT "/crio-" LIKE_A}},
    {"Docker, systemd driver",
     "/system.slice/docker-" A ".scope",
     NULL,
     NULL,
     "docker",
     "/system.slice/docker-" A ".scope/init.scope",
     {"/system.slice/docker-" LIKE_A ".scope", "/system.slice/docker.service", "/system.slice/docker-a1b2c3d4e5f6.scope"}},
    {"Docker, cgroupfs",
     "/docker/" A,
     NULL,
     NULL,
     "docker",
     NULL,
     {"/docker/" LIKE_A, "/docker/a1b2c3d4e5f6", "/docker/buildkit"}},
    {"Docker, --cgroup-parent, systemd driver",
     "/mine.slice/mine-own.slice/docker-" A ".scope",
     NULL,
     NULL,
     "docker",
     NULL,
     {"/mine.slice/mine-own.slice/docker-" LIKE_A ".scope"}},
    {"Docker, --cgroup-parent, cgroupfs", "/mine/" A, NULL, NULL, "", NULL, {"/mine/" LIKE_A}},
    {"Docker, rootless", USER "/docker-" A ".scope", NULL, NULL, "docker", NULL, {USER "/docker-" LIKE_A ".scope"}},
    {"containerd, cgroupfs", "/default/" A, NULL, NULL, "containerd", NULL, {"/default/" LIKE_A, "/default/redis"}},
    {"containerd, k8s.io", "/k8s.io/" A, NULL, NULL, "containerd", NULL, {"/k8s.io/" LIKE_A}},
    {"nerdctl, systemd driver",
     "/system.slice/nerdctl-" A ".scope",
     NULL,
     NULL,
     "containerd",
     NULL,
     {"/system.slice/nerdctl-" LIKE_A ".scope"}},
    {"Podman, systemd driver",
     "/machine.slice/libpod-" A ".scope",
     NULL,
     NULL,
     "podman",
     "/machine.slice/libpod-" A ".scope/container",
     {"/machine.slice/libpod-conmon-" A ".scope", "/machine.slice/libpod-" LIKE_A ".scope"}},
    {"Podman, cgroupfs",
     "/libpod_parent/libpod-" A,
     NULL,
     NULL,
     "podman",
     NULL,
     {"/libpod_parent/libpod-" LIKE_A, "/libpod_parent/conmon"}},
    {"Podman, rootless",
     USER "/libpod-" A ".scope",
     NULL,
     NULL,
     "podman",
     USER "/libpod-" A ".scope/container",
     {USER "/libpod-conmon-" A ".scope"}},
    {"Podman, Quadlet",
     "/system.slice/web.service/libpod-payload-" A,
     NULL,
     NULL,
     "podman",
     NULL,
     {"/system.slice/web.service/supervisor"}},
    {"Podman's pod, systemd driver",
     "/machine.slice/machine-libpod_pod_" P ".slice/libpod-" A ".scope",
     "/machine.slice/machine-libpod_pod_" P ".slice",
     P,
     "podman",
     "/machine.slice/machine-libpod_pod_" P ".slice/libpod-" A ".scope/container",
     {"/machine.slice/machine-libpod_pod_" P ".slice/libpod-conmon-" A ".scope",
      "/machine.slice/machine-libpod_pod_" P ".slice/libpod-" B ".scope"}},
    {"Podman's pod, cgroupfs",
     "/libpod_parent/" P "/libpod-" A,
     "/libpod_parent/" P,
     P,
     "podman",
     NULL,
     {"/libpod_parent/" P "/conmon", "/libpod_parent/" P "/libpod-" B}},
    {"Podman's pod, rootless",
     USER "/user-libpod_pod_" P ".slice/libpod-" A ".scope",
     USER "/user-libpod_pod_" P ".slice",
     P,
     "podman",
     NULL,
     {USER "/user-libpod_pod_" P ".slice/libpod-conmon-" A ".scope"}},
    {"kind, systemd driver",
     "/system.slice/docker-" B ".scope" KIND_POD "/cri-containerd-" A ".scope",
     "/system.slice/docker-" B ".scope" KIND_POD,
     UID,
     "containerd",
     NULL,
     {"/system.slice/docker-" B ".scope" KIND_BURST "/kubelet-kubepods-burstable-pod" NEXT_ ".slice/cri-containerd-" LIKE_A
      ".scope",
      "/system.slice/docker-" B ".scope/system.slice/containerd.service"}},
    {"kind, cgroupfs",
     "/docker/" B "/kubelet/kubepods/burstable/pod" UID "/" A,
     "/docker/" B "/kubelet/kubepods/burstable/pod" UID,
     UID,
     "",
     NULL,
     {"/docker/" B "/kubelet/kubepods/burstable/pod" NEXT "/" LIKE_A, "/docker/" B "/mine"}},
    {"k3s",
     "/system.slice/k3s.service/kubepods/burstable/pod" UID "/" A,
     "/system.slice/k3s.service/kubepods/burstable/pod" UID,
     UID,
     "",
     NULL,
     {"/system.slice/k3s.service/kubepods/burstable/pod" NEXT}},
};

static void test_layouts(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2 * sizeof layouts / sizeof *layouts; i++) {
		const struct layout *l = &layouts[i / 2];
		struct target t;
		bool prefix_fits_two = false;

		host(i % 2);
		cgroup(l->process ? l->process : l->container);
		process_in("812", l->process ? l->process : l->container);
		for (size_t d = 0; d < 6 && l->decoys[d]; d++) {
			cgroup(l->decoys[d]);
			prefix_fits_two = prefix_fits_two || strstr(l->decoys[d], LIKE_A);
		}
		found(TARGET_CONTAINER, A, l->container, A);
		if (prefix_fits_two)
			refused(TARGET_CONTAINER, "a1b2c3d4e5f6", ENOTUNIQ, "2 cgroups");
		else
			found(TARGET_CONTAINER, "a1b2c3d4e5f6", l->container, A);
		found(TARGET_PID, "812", l->pod ? l->pod : l->container, "812");
		found(TARGET_CGROUP, l->container, l->container, l->container);
		assert_int_equal(find(TARGET_CONTAINER, A, &t), 0);
		if (strcmp(t.workload.runtime, l->runtime) != 0)
			fail_msg("%s: runtime %s", l->name, t.workload.runtime);
		assert_string_equal(t.workload.container, A);
		assert_string_equal(t.workload.pod, l->pod ? l->pod_id : "");
		if (l->pod)
			found(TARGET_POD, l->pod_id, l->pod, l->pod_id);
		else
			refused(TARGET_POD, UID, ENOENT, "no cgroup below");
	}
}

static void test_spellings(void **state)
{
	(void)state;
	host(false);
	cgroup(BURST_POD "/cri-containerd-" A ".scope");
	cgroup("/kubepods/burstable/pod" NEXT "/" B);
	found(TARGET_POD, UID, BURST_POD, UID);
	found(TARGET_POD, UID_, BURST_POD, UID);
	found(TARGET_POD, "0A1B2C3D4E5F60718293A4B5C6D7E8F9", BURST_POD, UID);
	found(TARGET_POD, NEXT_, "/kubepods/burstable/pod" NEXT, NEXT);
	refused(TARGET_POD, "web", EINVAL, "\"web\" is no pod's UID");
	refused(TARGET_CONTAINER, "web\n\"", EINVAL, "\"web\\n\\\"\" is no container's id");
	refused(TARGET_CONTAINER, "web", EINVAL, "podman inspect --format");
	refused(TARGET_CONTAINER, UID, EINVAL, "is no container's id");
	refused(TARGET_CONTAINER, P, ENOENT, "does it run?");
}

/* Drivers that disagree: the containers can be found, the pod is told to have no directory. */
static void test_no_pod_directory(void **state)
{
	(void)state;
	host(false);
	cgroup("/system.slice/containerd.service/kubepods-burstable-pod" UID_ ".slice:cri-containerd:" A);
	cgroup("/system.slice/containerd.service/kubepods-burstable-pod" UID_ ".slice:cri-containerd:" B);
	found(TARGET_CONTAINER, A, "/system.slice/containerd.service/kubepods-burstable-pod" UID_ ".slice:cri-containerd:" A,
	      A);
	refused(TARGET_POD, UID, ENOENT, "--container ID");
}

static void test_on_version_1_alone(void **state)
{
	(void)state;
	host(true);
	refused(TARGET_CONTAINER, A, ENOENT, "version 1 alone");
	process("812", 'S', 0, "812", "4:memory:/docker/" A "\n0::/\n");
	refused(TARGET_PID, "812", EPERM, "in container " A " on cgroup version 1 alone");
	process("813", 'S', 0, "813", "4:memory:/docker/" A "\n");
	refused(TARGET_PID, "813", EPERM, "in no cgroup of version 2");
}

/* ---- what a container can do about it ---- */

/* Who is in a container cannot pass for another workload, nor keep it from being found. */
static void test_forged_inside(void **state)
{
	static const char *const forged[] = {
	    "/kubepods/burstable/pod" UID "/" A,
	    "/docker/" A,
	    "/machine.slice/libpod-" A ".scope",
	    BURST_POD "/cri-containerd-" A ".scope",
	};

	(void)state;
	host(false);
	for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
		char path[PATH_MAX];

		snprintf(path, sizeof path, "/docker/" B "%s", forged[i]);
		cgroup(path);
	}
	/* It is the only one, or one of several .. */
	refused(TARGET_CONTAINER, A, ENOTUNIQ, "fits 4 cgroups");
	refused(TARGET_POD, UID, ENOTUNIQ, "/docker/" B BURST_POD);
	/* .. until there is a real one. */
	cgroup(BURST_POD "/cri-containerd-" A ".scope");
	found(TARGET_CONTAINER, A, BURST_POD "/cri-containerd-" A ".scope", A);
	found(TARGET_CONTAINER, "a1b2c3d4e5f6", BURST_POD "/cri-containerd-" A ".scope", A);
	found(TARGET_POD, UID, BURST_POD, UID);
}

static void test_several(void **state)
{
	(void)state;
	host(false);
	for (int i = 0; i < 8; i++) {
		char path[PATH_MAX];

		snprintf(path, sizeof path, "/mine%d/" A, i);
		cgroup(path);
	}
	refused(TARGET_CONTAINER, A, ENOTUNIQ, "fits 8 cgroups");
	assert_non_null(strstr(e.msg, " …"));
}

static void test_hostile_names(void **state)
{
	(void)state;
	host(false);
	cgroup("/\033[2Jx/" A);
	cgroup("/y/" A);
	refused(TARGET_CONTAINER, A, ENOTUNIQ, "\\u001B[2Jx");
	assert_null(strchr(e.msg, '\033'));
	refused(TARGET_CGROUP, "/\033[2Jy", ENOENT, "\\u001B[2Jy");
}

static void test_links_not_followed(void **state)
{
	char from[2 * PATH_MAX];

	(void)state;
	host(false);
	snprintf(from, sizeof from, "%s/elsewhere/" A, base);
	make_dir(from);
	snprintf(from, sizeof from, "%s/docker", cgroup2);
	assert_int_equal(symlink("../elsewhere", from), 0);
	refused(TARGET_CONTAINER, A, ENOENT, "no cgroup below");
	refused(TARGET_CGROUP, "/docker/" A, EINVAL, "symbolic link");
	cgroup("/real/" A);
	snprintf(from, sizeof from, "%s/link", cgroup2);
	assert_int_equal(symlink("real", from), 0);
	found(TARGET_CONTAINER, A, "/real/" A, A);
	refused(TARGET_CGROUP, "/link/" A, EINVAL, "symbolic link");
}

/* Deeper than 64 is nobody's layout, and no reason to miss what is not. */
static void test_deep_tree(void **state)
{
	char path[PATH_MAX];
	size_t n = 0;

	(void)state;
	host(false);
	for (int i = 0; i < 80; i++)
		n += (size_t)snprintf(path + n, sizeof path - n, "/d");
	snprintf(path + n, sizeof path - n, "/docker/" A);
	cgroup(path);
	refused(TARGET_CONTAINER, A, ENOENT, "no cgroup below");
	cgroup("/docker/" A);
	found(TARGET_CONTAINER, A, "/docker/" A, A);
}

/* A bound on what is looked at; a container's own directories count only when the search has to go into containers. */
static void test_many(void **state)
{
	char path[PATH_MAX];
	int top;

	(void)state;
	host(false);
	cgroup("/docker/" B);
	cgroup("/default/" A);
	snprintf(path, sizeof path, "%s/docker/" B, cgroup2);
	top = open(path, O_PATH | O_DIRECTORY);
	assert_true(top >= 0);
	for (int i = 0; i < 65536; i++) {
		char name[16];

		snprintf(name, sizeof name, "%d", i);
		assert_int_equal(mkdirat(top, name, 0755), 0);
	}
	close(top);
	found(TARGET_CONTAINER, A, "/default/" A, A);
	refused(TARGET_CONTAINER, P, E2BIG, "more than 65536 cgroups");
}

/* ---- directories ---- */

static void test_directories(void **state)
{
	char path[2 * PATH_MAX];

	(void)state;
	for (int hybrid = 0; hybrid < 2; hybrid++) {
		host(hybrid);
		cgroup("/system.slice/ssh.service");
		cgroup("/weir/serve/x");
		cgroup("/weird");
		found(TARGET_CGROUP, "/system.slice/ssh.service", "/system.slice/ssh.service", "/system.slice/ssh.service");
		found(TARGET_CGROUP, "system.slice//./ssh.service/", "/system.slice/ssh.service",
		      "system.slice//./ssh.service/");
		snprintf(path, sizeof path, "%s/system.slice/ssh.service/", cgroup2);
		found(TARGET_CGROUP, path, "/system.slice/ssh.service", path);
		found(TARGET_PARENT, path, "/system.slice/ssh.service", path);
		found(TARGET_CGROUP, "/weird", "/weird", "/weird");
		/* As systemd's own tools print it, wherever cgroup2 is. */
		found(TARGET_CGROUP, "/sys/fs/cgroup/system.slice", "/system.slice", "/sys/fs/cgroup/system.slice");
		refused(TARGET_CGROUP, "/sys/fs/cgroup/memory/x", ENOENT, "never to a hierarchy of version 1");
		refused(TARGET_CGROUP, "", EINVAL, "empty");
		refused(TARGET_CGROUP, "/", EPERM, "root");
		refused(TARGET_PARENT, "/", EPERM, "root");
		refused(TARGET_CGROUP, "/./", EPERM, "root");
		refused(TARGET_CGROUP, cgroup2, EPERM, "root");
		refused(TARGET_CGROUP, "/sys/fs/cgroup", EPERM, "root");
		refused(TARGET_CGROUP, "/system.slice/../weir", EINVAL, "..");
		refused(TARGET_CGROUP, "/weir", EPERM, "Weir's own");
		refused(TARGET_PARENT, "/weir", EPERM, "Weir's own");
		refused(TARGET_CGROUP, "/weir/serve/x", EPERM, "Weir's own");
		refused(TARGET_CGROUP, "/nowhere", ENOENT, "no cgroup /nowhere");
		snprintf(path, sizeof path, "%s/file", cgroup2);
		write_text(path, "");
		refused(TARGET_CGROUP, "/file", ENOENT, "no cgroup /file");
		memset(path, 'x', TARGET_REF_MAX);
		path[TARGET_REF_MAX] = '\0';
		refused(TARGET_CGROUP, path, ENAMETOOLONG, "longer than 511");
		path[300] = '\0';
		refused(TARGET_CGROUP, path, ENAMETOOLONG, "File name too long");
	}
}

/* A cgroup that was named after what Weir's own are called, deeper down, is anybody's. */
static void test_weirs_only_at_the_top(void **state)
{
	(void)state;
	host(false);
	cgroup("/docker/weir");
	found(TARGET_CGROUP, "/docker/weir", "/docker/weir", "/docker/weir");
	cgroup("/weir/docker/" A);
	refused(TARGET_CONTAINER, A, ENOENT, "no cgroup below");
}

/* ---- processes ---- */

static void test_pids(void **state)
{
	static const char *const bad[] = {"",	 "x",	"-1",	"+1", " 1",	"1 ",	  "0",		"01",
					  "0x1", "1.0", "Self", "..", "../812", "812/fd", "9999999999", "812/task/812"};

	(void)state;
	host(false);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused(TARGET_PID, bad[i], EINVAL, "no process id");
	refused(TARGET_PID, "812", ESRCH, "there is no process 812");
	cgroup("/system.slice/ssh.service/own");
	process_in("812", "/system.slice/ssh.service/own");
	found(TARGET_PID, "812", "/system.slice/ssh.service/own", "812");
	process("813", 'S', 0, "812", "0::/system.slice/ssh.service/own\n");
	refused(TARGET_PID, "813", EINVAL, "813 is a thread of process 812: give --pid 812");
	process("814", 'Z', 0, "814", "0::/system.slice/ssh.service/own\n");
	refused(TARGET_PID, "814", ESRCH, "has ended");
	process("2", 'S', 0x208040, "2", "0::/\n");
	refused(TARGET_PID, "2", EPERM, "thread of the kernel");
	process("815", 'S', 0, "815", "4:memory:/system.slice\n0::/\n");
	refused(TARGET_PID, "815", EPERM, "systemd-run --scope");
	assert_non_null(strstr(e.msg, "weir exec"));
	process("816", 'S', 0, "816", "0::/../../system.slice/x\n");
	refused(TARGET_PID, "816", EPERM, "outside of the cgroup namespace");
	process("817", 'S', 0, "817", "0::/gone\n");
	refused(TARGET_PID, "817", ENOENT, "no cgroup /gone");
	process("818", 'S', 0, "818", "0::/weir/serve/sandbox-1\n");
	refused(TARGET_PID, "818", EPERM, "Weir's own");
	cgroup("/..x");
	process("819", 'S', 0, "819", "0::/..x\n");
	found(TARGET_PID, "819", "/..x", "819");
	process("820", 'S', 0, "820", "garbage\n0:\n\n");
	refused(TARGET_PID, "820", EPERM, "no cgroup of version 2");
	process_file("821", "cgroup", "0::/system.slice\n"); /* it ended while it was looked at */
	refused(TARGET_PID, "821", ESRCH, "has ended");
	process("self", 'R', 0, "4711", "0::/system.slice\n");
	found(TARGET_PID, "self", "/system.slice", "self");
}

static void test_pid_of_a_monitor(void **state)
{
	(void)state;
	host(false);
	cgroup("/machine.slice/libpod-conmon-" A ".scope");
	process_in("812", "/machine.slice/libpod-conmon-" A ".scope");
	refused(TARGET_PID, "812", EPERM, "--container ID");
	/* In a pod's directory it is covered by the pod. */
	cgroup(BURST_POD "/crio-conmon-" A ".scope");
	process_in("813", BURST_POD "/crio-conmon-" A ".scope");
	found(TARGET_PID, "813", BURST_POD, "813");
}

/* ---- a mount of a part of the hierarchy ---- */

static void test_mount_of_a_part(void **state)
{
	char text[3 * PATH_MAX];

	(void)state;
	host(false);
	snprintf(text, sizeof text,
		 "30 1 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
		 "31 1 0:29 / %s rw shared:1 - tmpfs tmpfs rw\n"
		 "32 1 0:30 /kubepods.slice/kubepods-burst\\141ble.slice %s rw,relatime shared:1 - cgroup2 cgroup2 rw\n",
		 cgroup2, cgroup2);
	process_file("self", "mountinfo", text);
	cgroup("/kubepods-burstable-pod" UID_ ".slice/cri-containerd-" A ".scope");
	cgroup("/cri-containerd-" B ".scope");
	process_in("812", BURST_POD "/cri-containerd-" A ".scope");
	found(TARGET_POD, UID, "/kubepods-burstable-pod" UID_ ".slice", UID);
	found(TARGET_CONTAINER, A, "/kubepods-burstable-pod" UID_ ".slice/cri-containerd-" A ".scope", A);
	found(TARGET_PID, "812", "/kubepods-burstable-pod" UID_ ".slice", "812");
	process_in("813", "/system.slice/ssh.service");
	refused(TARGET_PID, "813", ENOENT, "only what lies below " BURST);
	process_in("814", BURST);
	refused(TARGET_PID, "814", ENOENT, "only what lies below " BURST);
}

/* ---- processes of a target ---- */

struct seen {
	char text[4096];
	int stop_at;
};

static int see(void *ctx, int pid, const char *path)
{
	struct seen *s = ctx;
	size_t n = strlen(s->text);

	snprintf(s->text + n, sizeof s->text - n, "%d %s\n", pid, path);
	return pid == s->stop_at ? 42 : 0;
}

/* A target of the fixture, which target_open() would refuse. */
static struct target opened(const char *path)
{
	struct target t;
	char full[2 * PATH_MAX];

	assert_int_equal(find(TARGET_CGROUP, path, &t), 0);
	snprintf(full, sizeof full, "%s%s", cgroup2, t.path);
	t.fd = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(t.fd >= 0);
	return t;
}

static void test_each_process(void **state)
{
	struct seen s = {.stop_at = -1};
	struct target t;
	char path[PATH_MAX];

	(void)state;
	host(false);
	cgroup_with("/a", "10\n11\n");
	cgroup_with("/a/b", "");
	cgroup_with("/a/b/c", "12\n0\n");
	cgroup_with("/ab", "13\n");
	cgroup("/a/gone");
	t = opened("/a");
	assert_int_equal(target_each_process(&t, see, &s, &e), 0);
	assert_string_equal(s.text, "10 /a\n11 /a\n12 /a/b/c\n0 /a/b/c\n");
	s = (struct seen){.stop_at = 11};
	assert_int_equal(target_each_process(&t, see, &s, &e), 42);
	assert_string_equal(s.text, "10 /a\n11 /a\n");
	s = (struct seen){.stop_at = 12};
	assert_int_equal(target_each_process(&t, see, &s, &e), 42);
	/* Through no link. */
	snprintf(path, sizeof path, "%s/a/link", cgroup2);
	assert_int_equal(symlink("../ab", path), 0);
	s = (struct seen){.stop_at = -1};
	assert_int_equal(target_each_process(&t, see, &s, &e), 0);
	assert_null(strstr(s.text, "13"));
	target_close(&t);
	assert_int_equal(t.fd, -1);
	target_close(&t);
}

/* Here what lies too deep may not be passed over: it could hold processes. */
static void test_each_process_too_deep(void **state)
{
	struct seen s = {.stop_at = -1};
	char path[PATH_MAX] = "/a";
	struct target t;
	size_t n = 2;

	(void)state;
	host(false);
	for (int i = 0; i < 64; i++)
		n += (size_t)snprintf(path + n, sizeof path - n, "/d");
	cgroup(path);
	cgroup_with("/a", "10\n");
	t = opened("/a");
	assert_int_equal(target_each_process(&t, see, &s, &e), 0);
	snprintf(path + n, sizeof path - n, "/d");
	cgroup(path);
	assert_int_equal(target_each_process(&t, see, &s, &e), -E2BIG);
	assert_non_null(strstr(e.msg, "64 deep"));
	target_close(&t);
}

static void test_open_refuses_what_is_no_cgroup(void **state)
{
	struct target t;

	(void)state;
	host(false);
	cgroup("/a");
	assert_int_equal(find(TARGET_CGROUP, "/a", &t), 0);
	assert_int_equal(target_open(&t, &roots, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "no cgroup of version 2"));
	assert_int_equal(t.fd, -1);
	clear();
	assert_true(target_open(&t, &roots, &e) < 0);
}

/* ---- a real hierarchy ---- */

static bool real_host(struct target_roots *r, char room[256])
{
	if (target_host_roots(r, room, &e) < 0) {
		print_message("skip: no cgroup2 that could be used here: %s\n", e.msg);
		return false;
	}
	snprintf(own, sizeof own, "%s/weir-test-target-%d", r->cgroup2, (int)getpid());
	if (mkdir(own, 0755) < 0) {
		print_message("skip: no cgroup can be made here: %s\n", strerror(errno));
		return false;
	}
	return true;
}

static void test_real_cgroup(void **state)
{
	struct seen s = {.stop_at = -1};
	struct target_roots r;
	char room[256], name[64], path[PATH_MAX + 64], text[64];
	struct target t;
	struct stat st;
	int fd;

	(void)state;
	if (!real_host(&r, room))
		skip();
	snprintf(name, sizeof name, "/weir-test-target-%d", (int)getpid());
	snprintf(path, sizeof path, "%s/in", own);
	assert_int_equal(mkdir(path, 0755), 0);
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	snprintf(path, sizeof path, "%s/in/cgroup.procs", own);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	snprintf(text, sizeof text, "%d", (int)child);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);

	assert_int_equal(target_find(&t, TARGET_CGROUP, own, &r, &e), 0);
	assert_string_equal(t.path, name);
	assert_int_equal(target_open(&t, &r, &e), 0);
	assert_int_equal(t.level, 1);
	/* On a kernel of 64 bits an inode's number is the id. */
	assert_int_equal(fstat(t.fd, &st), 0);
	assert_int_equal(t.id, st.st_ino);
	assert_int_equal(target_each_process(&t, see, &s, &e), 0);
	snprintf(path, sizeof path, "%d %s/in\n", (int)child, name);
	assert_string_equal(s.text, path);
	target_close(&t);

	assert_int_equal(target_find(&t, TARGET_PID, text, &r, &e), 0);
	snprintf(path, sizeof path, "%s/in", name);
	assert_string_equal(t.path, path);
	assert_int_equal(target_open(&t, &r, &e), 0);
	assert_int_equal(t.level, 2);

	kill(child, SIGKILL);
	/* Not reaped yet. */
	while (waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT) < 0)
		;
	assert_int_equal(target_find(&t, TARGET_PID, text, &r, &e), -ESRCH);
	assert_int_equal(waitpid(child, NULL, 0), child);
	child = -1;
	assert_int_equal(target_find(&t, TARGET_PID, text, &r, &e), -ESRCH);

	/* Gone: no error for who walks, -ENOENT for who opens. */
	snprintf(path, sizeof path, "%s/in", own);
	while (rmdir(path) < 0 && errno == EBUSY)
		usleep(1000);
	s = (struct seen){.stop_at = -1};
	assert_int_equal(target_each_process(&t, see, &s, &e), 0);
	assert_string_equal(s.text, "");
	target_close(&t);
	assert_int_equal(target_open(&t, &r, &e), -ENOENT);
	assert_int_equal(t.fd, -1);
	assert_int_equal(rmdir(own), 0);
}

/* A cgroup of threads lists no processes; its process is listed where its domain is. */
static void test_real_threads(void **state)
{
	struct seen s = {.stop_at = -1};
	struct target_roots r;
	char room[256], path[PATH_MAX + 64];
	struct target t;
	FILE *f;

	(void)state;
	if (!real_host(&r, room))
		skip();
	snprintf(path, sizeof path, "%s/in", own);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof path, "%s/in/cgroup.type", own);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("threaded", f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(target_find(&t, TARGET_CGROUP, own, &r, &e), 0);
	assert_int_equal(target_open(&t, &r, &e), 0);
	assert_int_equal(target_each_process(&t, see, &s, &e), 0);
	target_close(&t);
	snprintf(path, sizeof path, "%s/in", own);
	assert_int_equal(target_find(&t, TARGET_CGROUP, path, &r, &e), 0);
	assert_int_equal(target_open(&t, &r, &e), 0);
	assert_int_equal(target_each_process(&t, see, &s, &e), 0);
	target_close(&t);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(own), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_layouts),
	    cmocka_unit_test(test_spellings),
	    cmocka_unit_test(test_no_pod_directory),
	    cmocka_unit_test(test_on_version_1_alone),
	    cmocka_unit_test(test_forged_inside),
	    cmocka_unit_test(test_several),
	    cmocka_unit_test(test_hostile_names),
	    cmocka_unit_test(test_links_not_followed),
	    cmocka_unit_test(test_deep_tree),
	    cmocka_unit_test(test_many),
	    cmocka_unit_test(test_directories),
	    cmocka_unit_test(test_weirs_only_at_the_top),
	    cmocka_unit_test(test_pids),
	    cmocka_unit_test(test_pid_of_a_monitor),
	    cmocka_unit_test(test_mount_of_a_part),
	    cmocka_unit_test(test_each_process),
	    cmocka_unit_test(test_each_process_too_deep),
	    cmocka_unit_test(test_open_refuses_what_is_no_cgroup),
	    cmocka_unit_test(test_real_cgroup),
	    cmocka_unit_test(test_real_threads),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
