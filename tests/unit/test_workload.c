/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a cgroup is, by its path. The paths are those that the runtimes and kubelet document; none of containerd, CRI-O, Docker
 * and a systemd as pid 1 was run to make them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/workload.h"

#define A "a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90"
#define B "b1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90"
#define P "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"
#define UID "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
#define UID_ "0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9"
#define UID2 "1a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
#define UID2_ "1a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9"
#define STATIC "00112233445566778899aabbccddeeff"
#define BURST "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_ ".slice"
#define KIND                                                                                                                   \
	"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod" UID_ ".slic" \
	"e"
#define USER "/user.slice/user-1000.slice/user@1000.service/user.slice"
#define QUADLET "/system.slice/web.service/libpod-payload-"

struct row {
	const char *path; /* "<" stands after the pod's directory, ">" after the container's */
	const char *runtime, *container, *pod;
	bool monitor;
};

static const struct row rows[] = {
    /* Kubernetes with containerd */
    {BURST "</cri-containerd-" A ".scope>", "containerd", A, UID, false},
    {BURST "</cri-containerd-" A ".scope>/init.scope", "containerd", A, UID, false},
    {BURST "<", "", "", UID, false},
    {"/kubepods.slice/kubepods-burstable.slice", "", "", "", false},
    {"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" UID_ ".slice</cri-containerd-" A ".scope>",
     "containerd", A, UID, false},
    {"/kubepods.slice/kubepods-pod" UID_ ".slice</cri-containerd-" A ".scope>", "containerd", A, UID, false},
    {"/kubepods/burstable/pod" UID "</" A ">", "", A, UID, false},
    {"/kubepods/besteffort/pod" UID "</" A ">", "", A, UID, false},
    {"/kubepods/pod" UID "</" A ">/sub", "", A, UID, false},
    {"/kubepods/pod" UID "<", "", "", UID, false},
    /* static pods: no UUID */
    {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" STATIC ".slice</cri-containerd-" A ".scope>",
     "containerd", A, STATIC, false},
    {"/kubepods/burstable/pod" STATIC "</" A ">", "", A, STATIC, false},
    /* CRI-O, OpenShift */
    {BURST "</crio-" A ".scope>", "cri-o", A, UID, false},
    {BURST "</crio-" A ".scope>/container", "cri-o", A, UID, false},
    {BURST "</crio-conmon-" A ".scope", "", "", UID, true},
    {"/system.slice/crio-conmon-" A ".scope", "", "", "", true},
    {"/kubepods/burstable/pod" UID "</crio-" A ">", "cri-o", A, UID, false},
    {"/kubepods/burstable/pod" UID "</crio-conmon-" A, "", "", UID, true},
    {"/crio/crio-" A ">", "cri-o", A, "", false},
    /* Docker */
    {"/system.slice/docker-" A ".scope>", "docker", A, "", false},
    {"/system.slice/docker-" A ".scope>/system.slice/nginx.service", "docker", A, "", false},
    {"/docker/" A ">", "docker", A, "", false},
    {"/docker-" A ".scope>", "docker", A, "", false},
    {"/mine.slice/docker-" A ".scope>", "docker", A, "", false},
    {"/mine/" A ">", "", A, "", false},
    {USER "/docker-" A ".scope>", "docker", A, "", false},
    {BURST "</docker-" A ".scope>", "docker", A, UID, false},
    /* containerd by itself */
    {"/default/" A ">", "containerd", A, "", false},
    {"/k8s.io/" A ">", "containerd", A, "", false},
    {"/system.slice/nerdctl-" A ".scope>", "containerd", A, "", false},
    {USER "/nerdctl-" A ".scope>", "containerd", A, "", false},
    {"/system.slice/cri-containerd-" A ".scope>", "containerd", A, "", false},
    /* Podman */
    {"/machine.slice/libpod-" A ".scope>", "podman", A, "", false},
    {"/machine.slice/libpod-" A ".scope>/container", "podman", A, "", false},
    {"/machine.slice/libpod-conmon-" A ".scope", "", "", "", true},
    {"/machine.slice/machine-libpod_pod_" P ".slice</libpod-" A ".scope>/container", "podman", A, P, false},
    {"/machine.slice/machine-libpod_pod_" P ".slice</libpod-conmon-" A ".scope", "podman", "", P, true},
    {"/machine.slice/machine-libpod_pod_" P ".slice<", "podman", "", P, false},
    {"/libpod_parent/libpod-" A ">", "podman", A, "", false},
    {"/libpod_parent/conmon", "", "", "", true},
    {"/libpod_parent/" P "</libpod-" A ">", "podman", A, P, false},
    {"/libpod_parent/" P "</conmon", "podman", "", P, true},
    {"/libpod_parent/" P "<", "podman", "", P, false},
    {USER "/libpod-" A ".scope>/container", "podman", A, "", false},
    {USER "/user-libpod_pod_" P ".slice</libpod-" A ".scope>", "podman", A, P, false},
    {"/user.slice/user-1000.slice/session-3.scope/libpod_parent/libpod-" A ">", "podman", A, "", false},
    {"/mine/libpod-" A ">", "podman", A, "", false},
    {"/mine/" P "</libpod-" A ">", "podman", A, P, false},
    {QUADLET A ">", "podman", A, "", false},
    {QUADLET A ">/container", "podman", A, "", false},
    {"/system.slice/web.service/supervisor", "", "", "", false},
    /* kind, k3d, k3s: one in the other, and the inner one counts */
    {"/docker/" B ">/kubelet/kubepods/burstable/pod" UID "</" A "", "", A, UID, false},
    {"/docker/" B ">/kubelet/kubepods/burstable/pod" UID "<", "", B, UID, false},
    {"/docker/" B ">/kubelet", "docker", B, "", false},
    {"/system.slice/docker-" B ".scope" KIND "</cri-containerd-" A ".scope>", "containerd", A, UID, false},
    {"/machine.slice/libpod-" B ".scope/container" KIND "</cri-containerd-" A ".scope>", "containerd", A, UID, false},
    {KIND "</cri-containerd-" A ".scope>", "containerd", A, UID, false},
    {"/system.slice/k3s.service/kubepods/burstable/pod" UID "</" A ">", "", A, UID, false},
    {"/system.slice/k3s.service/kubepods.slice/kubepods-pod" UID_ ".slice</cri-containerd-" A ".scope>", "containerd", A, UID,
     false},
    {"/docker/" B "/kubepods/pod" UID "</" A ">", "", A, UID, false},
    {BURST "</cri-containerd-" B ".scope/docker/" A ">", "docker", A, UID, false},
    {BURST "</cri-containerd-" B ".scope>/kubepods/burstable/pod" UID2 "<", "", B, UID2, false},
    {"/machine.slice/libpod-" B ".scope/container/machine.slice/libpod-" A ".scope>", "podman", A, "", false},
    {"/docker/" B "/libpod_parent/libpod-" A ">", "podman", A, "", false},
    {"/docker/" B "/docker/" A ">", "docker", A, "", false},
    /* one driver's path as the other's name: the pod has no directory */
    {"/kubepods-burstable-pod" UID_ ".slice:cri-containerd:" A ">", "containerd", A, UID, false},
    {"/system.slice/containerd.service/kubepods-burstable-pod" UID_ ".slice:cri-containerd:" A ">", "containerd", A, UID,
     false},
    {BURST "/cri-containerd-" B ".scope/kubepods-pod" UID2_ ".slice:cri-containerd:" A ">", "containerd", A, UID2, false},
    {"/system.slice:docker:" A ">", "docker", A, "", false},
    {"/machine.slice:libpod:" A ">", "podman", A, "", false},

    /* ---- what only looks like one ---- */
    {"", "", "", "", false},
    {"/", "", "", "", false},
    {"/system.slice/ssh.service", "", "", "", false},
    {"/user.slice/user-1000.slice/session-3.scope", "", "", "", false},
    /* an id that is too short, too long, in capitals, or no number */
    {"/docker/a1b2c3d4e5f6", "", "", "", false},
    {"/docker/" A "0", "", "", "", false},
    {"/system.slice/docker-" A "0.scope", "", "", "", false},
    {"/docker/A1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90", "", "", "", false},
    {"/docker/g1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90", "", "", "", false},
    {"/process_api/" STATIC, "", "", "", false},
    /* a pod without UID, with one that is none, or in the wrong place */
    {"/kubepods/burstable/pod", "", "", "", false},
    {"/kubepods/burstable/podcast", "", "", "", false},
    {"/kubepods/burstable/pod" UID_, "", "", "", false},
    {"/kubepods/burstable/pod" UID "0", "", "", "", false},
    {"/kubepods/other/pod" UID, "", "", "", false},
    {"/burstable/pod" UID, "", "", "", false},
    {"/pod" UID, "", "", "", false},
    {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID ".slice", "", "", "", false},
    {"/kubepods-burstable-pod" UID_ ".slice", "", "", "", false},
    {"/kubepods.slice/kubepods-burstable-pod" UID_ ".slice", "", "", "", false},
    {"/other.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_ ".slice", "", "", "", false},
    {"/mykubepods.slice/mykubepods-pod" UID_ ".slice", "", "", "", false},
    {"/kubepods.slice/kubepods-other.slice/kubepods-other-pod" UID_ ".slice", "", "", "", false},
    {"/machine-libpod_pod_" P ".slice", "", "", "", false},
    {"/machine.slice/machine-libpod_pod_" P "0.slice", "", "", "", false},
    /* directories that somebody made inside a container */
    {"/docker/" B ">/" A, "docker", B, "", false},
    {"/docker/" B ">/mine/" A, "docker", B, "", false},
    {"/docker/" B ">/mine/crio-" A, "docker", B, "", false},
    {"/docker/" B ">/libpod-" A, "docker", B, "", false},
    {"/docker/" B ">/pod" UID, "docker", B, "", false},
    {"/docker/" B ">/docker-" A ".scope", "docker", B, "", false},
    {"/system.slice/docker-" B ".scope>/docker-" A ".scope", "docker", B, "", false},
    {"/system.slice/docker-" B ".scope>/mine/cri-containerd-" A ".scope", "docker", B, "", false},
    {BURST "</cri-containerd-" B ".scope>/kubepods-burstable-pod" UID2_ ".slice", "containerd", B, UID, false},
    {BURST "</cri-containerd-" B ".scope>/pod" UID2 "/" A, "containerd", B, UID, false},
    {BURST "</cri-containerd-" B ".scope>/crio-conmon-" A, "containerd", B, UID, false},
    /* names that are almost a runtime's */
    {"/system.slice/dockerd-" A ".scope", "", "", "", false},
    {"/system.slice/docker-" A ".service", "", "", "", false},
    {"/system.slice/docker-" A, "", "", "", false},
    {"/system.slice/xdocker-" A ".scope", "", "", "", false},
    {"/mine/docker-" A ".scope", "", "", "", false},
    {"/mine/libpod-payload-" A, "", "", "", false},
    {"/system.slice:other:" A, "", "", "", false},
    {"/system.slice:libpod-conmon:" A, "", "", "", false},
    {"/system:docker:" A, "", "", "", false},
    {"/system.slice:docker:" A ":", "", "", "", false},
};

static void check_row(const struct row *row)
{
	size_t n = 0, pod = 0, container = 0;
	struct workload w;
	char path[1024];

	for (const char *p = row->path; *p; p++) {
		if (*p == '<')
			pod = n;
		else if (*p == '>')
			container = n;
		else
			path[n++] = *p;
	}
	path[n] = '\0';
	/* An id at the very end needs no mark. */
	if (row->container[0] && n >= 64 && !strcmp(path + n - 64, row->container))
		container = n;
	workload_of_path(path, &w);
	if (strcmp(w.runtime, row->runtime) != 0 || strcmp(w.container, row->container) != 0 || strcmp(w.pod, row->pod) != 0 ||
	    w.monitor != row->monitor || w.pod_len != pod || w.container_len != container)
		fail_msg("%s: runtime \"%s\", container \"%s\" %zu (not %zu), pod \"%s\" %zu (not %zu)%s", path, w.runtime,
			 w.container, w.container_len, container, w.pod, w.pod_len, pod, w.monitor ? ", monitor" : "");
}

static void test_paths(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		check_row(&rows[i]);
}

/* An empty name and a slash at the end change nothing; the lengths count in the text as it is. */
static void test_slashes(void **state)
{
	struct workload w;

	(void)state;
	workload_of_path("//docker///" A "//x/", &w);
	assert_string_equal(w.container, A);
	assert_int_equal(w.container_len, strlen("//docker///" A));
	workload_of_path("docker/" A, &w);
	assert_int_equal(w.container_len, strlen("docker/" A));
}

static void test_no_directory_of_the_pod(void **state)
{
	struct workload w;

	(void)state;
	workload_of_path("/kubepods-burstable-pod" UID_ ".slice:cri-containerd:" A, &w);
	assert_string_equal(w.pod, UID);
	assert_int_equal(w.pod_len, 0);
}

/* What lies deeper than anybody's layout is not looked at, and costs nothing. */
static void test_deep(void **state)
{
	static char path[3 * 70 + 256];
	struct workload w;
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 62; i++)
		n += (size_t)snprintf(path + n, sizeof path - n, "/d");
	snprintf(path + n, sizeof path - n, "/docker/" A);
	workload_of_path(path, &w);
	assert_string_equal(w.container, A);
	snprintf(path + n, sizeof path - n, "/d/docker/" A);
	workload_of_path(path, &w);
	assert_string_equal(w.container, "");
}

static void test_asked_container(void **state)
{
	static const struct {
		const char *asked;
		bool is;
	} asked[] = {
	    {A, true},
	    {"a1b2c3d4e5f6", true},
	    {"A1B2C3D4E5F6", true},
	    {"a1b2c3d4e5f60718", true},
	    {"a1b2c3d4e5f", false}, /* too short to be meant */
	    {"", false},
	    {"a1b2c3d4e5f7", false},
	    {"b2c3d4e5f607", false},
	    {A "0", false},
	    {B, false},
	};
	struct workload w;

	(void)state;
	workload_of_path("/docker/" A, &w);
	for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
		assert_int_equal(workload_is_container(&w, asked[i].asked), asked[i].is);
		assert_false(workload_is_pod(&w, asked[i].asked));
	}
	workload_of_path("/system.slice", &w);
	assert_false(workload_is_container(&w, ""));
	assert_false(workload_is_pod(&w, ""));
}

static void test_asked_pod(void **state)
{
	static const struct {
		const char *path, *asked;
		bool is;
	} asked[] = {
	    {BURST, UID, true},
	    {BURST, UID_, true},
	    {BURST, "0a1b2c3d4e5f60718293a4b5c6d7e8f9", true},
	    {BURST, "0A1B2C3D-4E5F-6071-8293-A4B5C6D7E8F9", true},
	    {BURST, "0a1b2c3d-4e5f_6071-8293-a4b5c6d7e8f9", false},
	    {BURST, "0a1b2c3d4e5f-6071-8293-a4b5c6d7e8f9", false},
	    {BURST, "0a1b2c3d-4e5f", false}, /* Kubernetes prints no beginnings */
	    {BURST, "0a1b2c3d4e5f", false},
	    {BURST, UID2, false},
	    {BURST, UID "0", false},
	    {BURST, "", false},
	    {"/kubepods/pod" STATIC, STATIC, true},
	    {"/kubepods/pod" STATIC, "00112233-4455-6677-8899-aabbccddeeff", true},
	    {"/libpod_parent/" P, P, true},
	    {"/libpod_parent/" P, "0f1e2d3c4b5a", true},
	    {"/libpod_parent/" P, "0f1e2d3c4b5", false},
	    {"/libpod_parent/" P, A, false},
	};
	struct workload w;

	(void)state;
	for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
		workload_of_path(asked[i].path, &w);
		if (workload_is_pod(&w, asked[i].asked) != asked[i].is)
			fail_msg("%s as \"%s\"", asked[i].path, asked[i].asked);
	}
}

static void test_problems(void **state)
{
	static const char *const containers[] = {A, "a1b2c3d4e5f6", "A1B2C3D4E5F6"};
	static const char *const pods[] = {UID, UID_, STATIC, P, "0f1e2d3c4b5a"};
	static const char *const bad[] = {"", "web", "a1b2c3d4e5f", A "0", "a1b2c3d4e5fg", "../a1b2c3d4e5f6", "a1b2c3d4e5f6 "};

	(void)state;
	for (size_t i = 0; i < sizeof containers / sizeof *containers; i++)
		assert_null(workload_id_problem(containers[i], false));
	for (size_t i = 0; i < sizeof pods / sizeof *pods; i++)
		assert_null(workload_id_problem(pods[i], true));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_non_null(strstr(workload_id_problem(bad[i], false), "podman inspect --format {{.Id}}"));
		assert_non_null(strstr(workload_id_problem(bad[i], true), "kubectl get pod"));
	}
	assert_non_null(workload_id_problem(UID, false));
	assert_non_null(strstr(workload_id_problem("containerd://" A, false), "behind"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_paths),
	    cmocka_unit_test(test_slashes),
	    cmocka_unit_test(test_no_directory_of_the_pod),
	    cmocka_unit_test(test_deep),
	    cmocka_unit_test(test_asked_container),
	    cmocka_unit_test(test_asked_pod),
	    cmocka_unit_test(test_problems),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
