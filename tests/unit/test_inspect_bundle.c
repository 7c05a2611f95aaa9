/* SPDX-License-Identifier: Apache-2.0 */
/* What an OCI bundle's config.json says of a container that does not run yet. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/inspect_priv.h"

/* A harmless container, and what a row puts in its place. */
#define DOCUMENT(process, namespaces, os, rest)                                                                                \
	"{\"ociVersion\": \"1.0.2\", \"root\": {\"path\": \"rootfs\"}, \"process\": {" process                                 \
	"}, \"linux\": {\"namespaces\": [" namespaces "]" os "}" rest "}"
#define USER "\"noNewPrivileges\": true, \"user\": {\"uid\": 1000}"
#define NO_NNP "\"user\": {\"uid\": 1000}"
#define CAPS(sets) ", \"capabilities\": {" sets "}"
#define SET(name, caps) "\"" name "\": [" caps "]"
#define ALL(caps) CAPS(SET("bounding", caps) ", " SET("effective", caps) ", " SET("permitted", caps))
#define NS(type) "{\"type\": \"" type "\"}"
#define NS_AT(type, path) "{\"type\": \"" type "\", \"path\": \"" path "\"}"
#define OWN NS("pid") ", " NS("network") ", " NS("mount") ", " NS("cgroup")
#define SECCOMP(more) ", \"seccomp\": {" more "}"
#define MOUNT(type, source, options)                                                                                           \
	", \"mounts\": [{\"destination\": \"/x\", \"type\": \"" type "\", \"source\": \"" source "\", \"options\": [" options  \
	"]}]"

static struct policy *policy_of(const char *more)
{
	struct policy *p = NULL;
	struct err e = {0};
	char text[1024];
	int n = snprintf(text, sizeof text, "{\"name\": \"t\", \"default\": \"deny\"%s}", more);

	if (policy_parse(text, (size_t)n, &p, &e) < 0)
		fail_msg("%s: %s", e.where, e.msg);
	return p;
}

static void names_of(const struct coverage_found *f, char *ret, size_t size)
{
	size_t n = 0;

	ret[0] = '\0';
	for (int w = 0; w < WEAKNESSES; w++)
		if (f->weak & 1u << w)
			n += (size_t)snprintf(ret + n, size - n, "%s%s", n ? " " : "", weakness_rows[w].name);
}

struct row {
	const char *what, *text, *found; /* found: the weaknesses, in the table's order */
};

static void try_rows(const struct row *rows, size_t count, const char *policy)
{
	struct policy *p = policy_of(policy);

	for (size_t i = 0; i < count; i++) {
		static struct bundle_seen seen;
		struct err e = {0};
		char found[256];

		if (inspect_bundle_text(rows[i].text, strlen(rows[i].text), p, NULL, "", &seen, &e) < 0)
			fail_msg("%s: %s", rows[i].what, e.msg);
		names_of(&seen.found, found, sizeof found);
		if (strcmp(found, rows[i].found) != 0)
			fail_msg("%s (%s): \"%s\" instead of \"%s\"", rows[i].what, policy, found, rows[i].found);
	}
	policy_free(p);
}
#define TRY(rows, policy) try_rows(rows, sizeof(rows) / sizeof((rows)[0]), policy)

static void test_rights(void **state)
{
	static const struct row rows[] = {
	    {"harmless", DOCUMENT(USER, OWN, "", ""), ""},
	    {"Docker's usual", DOCUMENT(NO_NNP ALL("\"CAP_CHOWN\", \"CAP_NET_BIND_SERVICE\", \"CAP_NET_RAW\""), OWN, "", ""),
	     "net_raw"},
	    {"in small letters", DOCUMENT(USER ALL("\"cap_net_raw\", \"cap_sys_admin\""), OWN, "", ""), "net_raw privileged"},
	    {"only to be had", DOCUMENT(NO_NNP CAPS(SET("bounding", "\"CAP_NET_RAW\"")), OWN, "", ""), "net_raw"},
	    {"not to be had", DOCUMENT(USER CAPS(SET("bounding", "\"CAP_NET_RAW\"")), OWN, "", ""), ""},
	    {"from outside", DOCUMENT(USER CAPS(SET("ambient", "\"CAP_NET_RAW\"")), OWN, "", ""), "net_raw"},
	    {"inheritable alone", DOCUMENT(USER CAPS(SET("inheritable", "\"CAP_NET_RAW\"")), OWN, "", ""), ""},
	    {"NET_ADMIN", DOCUMENT(USER ALL("\"CAP_NET_ADMIN\""), OWN, "", ""), "net_admin"},
	    {"SYS_ADMIN", DOCUMENT(USER ALL("\"CAP_SYS_ADMIN\""), OWN, "", ""), "privileged"},
	    {"BPF", DOCUMENT(USER ALL("\"CAP_BPF\""), OWN, "", ""), "privileged"},
	    {"ptrace among its own", DOCUMENT(USER ALL("\"CAP_SYS_PTRACE\""), OWN, "", ""), ""},
	    {"ptrace of the host's", DOCUMENT(USER ALL("\"CAP_SYS_PTRACE\""), NS("network"), "", ""), "privileged"},
	    {"unknown words", DOCUMENT(USER ALL("\"CAP_OF_TOMORROW\", \"\""), OWN, "", ""), ""},
	    {"a user namespace", DOCUMENT(USER ALL("\"CAP_SYS_ADMIN\", \"CAP_NET_RAW\""), OWN ", " NS("user"), "", ""),
	     "net_raw"},
	    {"a user namespace, and the host's network", DOCUMENT(USER ALL("\"CAP_NET_RAW\""), NS("user"), "", ""),
	     "host_network"},
	    {"a user namespace in a pod's network",
	     DOCUMENT(USER ALL("\"CAP_NET_RAW\""), NS("user") ", " NS_AT("network", "/n"), "", ""), ""},
	    {"both a pod's", DOCUMENT(USER ALL("\"CAP_NET_RAW\""), NS_AT("user", "/u") ", " NS_AT("network", "/n"), "", ""),
	     "net_raw"},
	};

	(void)state;
	TRY(rows, "");
}

static void test_places(void **state)
{
	static const struct row rows[] = {
	    {"no network of its own", DOCUMENT(USER, NS("pid"), "", ""), "host_network"},
	    {"a path is for who opens it", DOCUMENT(USER, NS_AT("network", "/run/netns/x"), "", ""), ""},
	    {"an empty path is none", DOCUMENT(USER, NS_AT("network", ""), "", ""), ""},
	    {"no linux at all", "{\"process\": {" USER "}}", "host_network"},
	    {"its own cgroups", DOCUMENT(NO_NNP, OWN, "", MOUNT("cgroup", "cgroup", "\"rw\"")), ""},
	    {"the host's cgroups", DOCUMENT(NO_NNP, NS("network"), "", MOUNT("cgroup", "cgroup", "\"nosuid\"")), "privileged"},
	    {".. to read", DOCUMENT(NO_NNP, NS("network"), "", MOUNT("cgroup2", "cgroup", "\"nosuid\", \"ro\"")), ""},
	    {".. bound", DOCUMENT(NO_NNP, OWN, "", MOUNT("bind", "/sys/fs/cgroup/", "\"rbind\"")), "privileged"},
	    {".. a part of them", DOCUMENT(NO_NNP, OWN, "", MOUNT("bind", "/sys/fs/cgroup/unified", "\"rbind\", \"rw\"")),
	     "privileged"},
	    {".. with all of /sys", DOCUMENT(NO_NNP, OWN, "", MOUNT("bind", "/sys", "\"rbind\", \"rw\"")), "privileged"},
	    {".. with the whole host", DOCUMENT(NO_NNP, OWN, "", MOUNT("bind", "/", "\"rbind\", \"rw\"")), "privileged"},
	    {".. which it may only read", DOCUMENT(NO_NNP, OWN, "", MOUNT("bind", "/", "\"rbind\", \"rro\"")), ""},
	    {"the pins", DOCUMENT(NO_NNP, OWN, "", MOUNT("bind", "/sys/fs/bpf", "\"rw\"")), "privileged"},
	    {"by somebody who is not root and never will be", DOCUMENT(USER, OWN, "", MOUNT("bind", "/sys/fs/bpf", "\"rw\"")),
	     ""},
	    {"from a user namespace", DOCUMENT(NO_NNP, OWN ", " NS("user"), "", MOUNT("bind", "/sys/fs/bpf", "\"rw\"")), ""},
	    {"from one with the host's root in it",
	     DOCUMENT(NO_NNP, OWN ", " NS("user"), ", \"uidMappings\": [{\"containerID\": 0, \"hostID\": 0, \"size\": 9}]",
		      MOUNT("bind", "/sys/fs/bpf", "\"rw\"")),
	     "privileged"},
	    {"another place with such a name", DOCUMENT(NO_NNP, OWN, "", MOUNT("bind", "/sys/fs/bpfilter", "\"rw\"")), ""},
	    {"its own files", DOCUMENT(NO_NNP, OWN, "", MOUNT("bind", "/var/lib/x", "\"rw\"")), ""},
	};

	(void)state;
	TRY(rows, "");
}

static void test_runtimes(void **state)
{
#define NOTE(key, value) DOCUMENT(USER, OWN, "", ", \"annotations\": {\"" key "\": \"" value "\"}")
	static const struct row rows[] = {
	    {"nobody's", NOTE("run.oci.handler", "crun"), ""},
	    {"gVisor's", NOTE("dev.gvisor.spec.mount.x", "1"), "gvisor"},
	    {"CRI-O's handler", NOTE("io.kubernetes.cri-o.RuntimeHandler", "kata-qemu"), "kata"},
	    {"containerd's handler", NOTE("io.containerd.cri.runtime-handler", "runsc"), "gvisor"},
	    {"Kata's", NOTE("io.katacontainers.pkg.oci.container_type", "pod"), "kata"},
	    {"runc by its handler", NOTE("io.kubernetes.cri-o.RuntimeHandler", "runc"), ""},
	    {"a machine of its own", DOCUMENT(USER, OWN, "", ", \"vm\": {\"kernel\": {\"path\": \"/k\"}}"), "kata"},
	};

	(void)state;
	TRY(rows, "");
}

#define PROFILE(action, rules) SECCOMP("\"defaultAction\": \"" action "\", \"syscalls\": [" rules "]")
#define RULE(names, action) "{\"names\": [" names "], \"action\": \"" action "\"}"
#define RULE_IF(names, action, args) "{\"names\": [" names "], \"action\": \"" action "\", \"args\": [" args "]}"
#define ARG(i, v, op) "{\"index\": " i ", \"value\": " v ", \"op\": \"SCMP_CMP_" op "\"}"

static void test_system_calls(void **state)
{
	static const struct row rows[] = {
	    {"no filter", DOCUMENT(USER, OWN, "", ""), "seccomp"},
	    {"an empty one", DOCUMENT(USER, OWN, SECCOMP(""), ""), "seccomp"},
	    {"one that refuses it", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ALLOW", RULE("\"ptrace\"", "SCMP_ACT_ERRNO")), ""),
	     ""},
	    {"one that kills for it",
	     DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ALLOW", RULE("\"bpf\", \"ptrace\"", "SCMP_ACT_KILL_PROCESS")), ""), ""},
	    {"a list that lacks it", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ERRNO", RULE("\"read\"", "SCMP_ACT_ALLOW")), ""),
	     ""},
	    {"a list that has it", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ERRNO", RULE("\"ptrace\"", "SCMP_ACT_ALLOW")), ""),
	     "seccomp"},
	    {"only noted", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ALLOW", RULE("\"ptrace\"", "SCMP_ACT_LOG")), ""), "seccomp"},
	    {"allowed now and then",
	     DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ERRNO", RULE_IF("\"ptrace\"", "SCMP_ACT_ALLOW", ARG("0", "1", "EQ"))), ""),
	     "seccomp"},
	    {"refused now and then",
	     DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ALLOW", RULE_IF("\"ptrace\"", "SCMP_ACT_ERRNO", ARG("0", "1", "EQ"))), ""),
	     "seccomp"},
	    {"an unknown action", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ALLOW", RULE("\"ptrace\"", "SCMP_ACT_TOMORROW")), ""),
	     "seccomp"},
	    {"nonsense instead of names",
	     DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ALLOW", "1, {\"names\": {}}, {\"names\": [1, null]}"), ""), "seccomp"},
	};
	static const struct row listens[] = {
	    {"no filter", DOCUMENT(USER, OWN, "", ""), "listen"},
	    {"a filter", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ALLOW", RULE("\"listen\"", "SCMP_ACT_ERRNO")), ""), ""},
	};

	(void)state;
	TRY(rows, ", \"syscalls\": [{\"names\": [\"ptrace\"]}]");
	TRY(listens, ", \"listen\": \"deny\"");
}

static void test_sockets(void **state)
{
#define FAMILIES(list) RULE_IF("\"socket\"", "SCMP_ACT_ALLOW", list)
#define STREAMS ARG("0", "1", "EQ") ", {\"index\": 1, \"value\": 15, \"valueTwo\": 1, \"op\": \"SCMP_CMP_MASKED_EQ\"}"
#define REST "\"read\", \"listen\""
	static const struct row rows[] = {
	    {"no filter", DOCUMENT(USER, OWN, "", ""), "seccomp"},
	    {"no socket at all", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ERRNO", RULE(REST, "SCMP_ACT_ALLOW")), ""), ""},
	    {"every socket", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ERRNO", RULE("\"socket\"", "SCMP_ACT_ALLOW")), ""),
	     "seccomp"},
	    {"the family that may be, with types that may not",
	     DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ERRNO", FAMILIES(ARG("0", "1", "EQ"))), ""), "seccomp"},
	    {"another family", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ERRNO", FAMILIES(ARG("0", "17", "EQ"))), ""), "seccomp"},
	    {"any family but one", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ERRNO", FAMILIES(ARG("0", "40", "NE"))), ""),
	     "seccomp"},
	    {"not through io_uring",
	     DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ERRNO", FAMILIES(STREAMS) ", " RULE("\"io_uring_setup\"", "SCMP_ACT_ALLOW")),
		      ""),
	     "seccomp"},
	    {"not through the old way in",
	     DOCUMENT(USER, OWN,
		      SECCOMP("\"defaultAction\": \"SCMP_ACT_ERRNO\", \"architectures\": [\"SCMP_ARCH_X86_64\", "
			      "\"SCMP_ARCH_X86\"], \"syscalls\": [" RULE("\"socketcall\"", "SCMP_ACT_ALLOW") "]"),
		      ""),
	     "seccomp"},
	    {"a flag beside the type", DOCUMENT(USER, OWN, PROFILE("SCMP_ACT_ERRNO", FAMILIES(STREAMS)), ""), ""},
	    {"another type",
	     DOCUMENT(USER, OWN,
		      PROFILE("SCMP_ACT_ERRNO",
			      FAMILIES(ARG(
				  "0", "1",
				  "EQ") ", {\"index\": 1, \"value\": 15, \"valueTwo\": 3, \"op\": \"SCMP_CMP_MASKED_EQ\"}")),
		      ""),
	     "seccomp"},
	};

	(void)state;
	TRY(rows, ", \"sockets\": {\"families\": [\"unix\"], \"types\": [\"stream\", \"dgram\", \"seqpacket\"]}");
	/* A document without `sockets` asks for nothing here. */
	static const struct row none[] = {{"no filter", DOCUMENT(USER, OWN, "", ""), ""}};
	TRY(none, "");
}

static void test_limits(void **state)
{
#define RESOURCES(more) ", \"resources\": {" more "}"
	static const struct row rows[] = {
	    {"none", DOCUMENT(USER, OWN, "", ""), "limits"},
	    {"all",
	     DOCUMENT(USER ", \"rlimits\": [{\"type\": \"RLIMIT_NOFILE\", \"soft\": 5, \"hard\": 100}]", OWN,
		      RESOURCES("\"memory\": {\"limit\": 2097152}, \"pids\": {\"limit\": 10}, \"cpu\": {\"quota\": 50000, "
				"\"period\": 100000}"),
		      ""),
	     ""},
	    {"by the names of version 2",
	     DOCUMENT(
		 USER ", \"rlimits\": [{\"type\": \"RLIMIT_NOFILE\", \"soft\": 5, \"hard\": 100}]", OWN,
		 RESOURCES("\"unified\": {\"memory.max\": \"2097152\", \"pids.max\": \"10\", \"cpu.max\": \"50000 100000\"}"),
		 ""),
	     ""},
	    {"which say none",
	     DOCUMENT(USER ", \"rlimits\": [{\"type\": \"RLIMIT_NOFILE\", \"soft\": 5, \"hard\": 100}]", OWN,
		      RESOURCES("\"memory\": {\"limit\": 2097152}, \"pids\": {\"limit\": 10}, \"cpu\": {\"quota\": 50000}, "
				"\"unified\": {\"memory.max\": \"max\"}"),
		      ""),
	     "limits"},
	    {"one too many",
	     DOCUMENT(USER ", \"rlimits\": [{\"type\": \"RLIMIT_NOFILE\", \"soft\": 5, \"hard\": 101}]", OWN,
		      RESOURCES("\"memory\": {\"limit\": 2097152}, \"pids\": {\"limit\": 10}, \"cpu\": {\"quota\": 50000}"),
		      ""),
	     "limits"},
	    {"endless",
	     DOCUMENT(USER ", \"rlimits\": [{\"type\": \"RLIMIT_NOFILE\", \"soft\": 5, \"hard\": 18446744073709551615}]", OWN,
		      RESOURCES("\"memory\": {\"limit\": -1}, \"pids\": {\"limit\": 0}, \"cpu\": {\"quota\": -1}"), ""),
	     "limits"},
	    {"a little over half a CPU",
	     DOCUMENT(USER ", \"rlimits\": [{\"type\": \"RLIMIT_NOFILE\", \"soft\": 5, \"hard\": 100}]", OWN,
		      RESOURCES("\"memory\": {\"limit\": 2097152}, \"pids\": {\"limit\": 10}, \"cpu\": {\"quota\": 50001}"),
		      ""),
	     "limits"},
	};
	static const struct row none[] = {{"nothing asked", DOCUMENT(USER, OWN, "", ""), ""}};

	(void)state;
	TRY(rows, ", \"limits\": {\"memory_bytes\": 2097152, \"processes\": 10, \"cpu_percent\": 50, \"open_files\": 100}");
	TRY(none, ", \"limits\": {\"datagram_sockets\": 5}");
}

static void test_refused(void **state)
{
	static const struct row rows[] = {
	    {"nothing", "", "not JSON"},
	    {"no object", "[]", "must be an object"},
	    {"half of one", "{\"process\": {", "not JSON"},
	    {"no process", "{}", "/process must be there"},
	    {"process", "{\"process\": 1}", "/process must be an object"},
	    {"user", "{\"process\": {\"user\": []}}", "/process/user must be an object"},
	    {"uid", "{\"process\": {\"user\": {\"uid\": \"0\"}}}", "/process/user/uid must be a whole number"},
	    {"half a uid", "{\"process\": {\"user\": {\"uid\": 0.5}}}", "/process/user/uid must be a whole number"},
	    {"no_new_privs", "{\"process\": {\"noNewPrivileges\": 1}}", "/process/noNewPrivileges must be true or false"},
	    {"capabilities", "{\"process\": {\"capabilities\": []}}", "/process/capabilities must be an object"},
	    {"a set", "{\"process\": {\"capabilities\": {\"bounding\": {}}}}", "/process/capabilities/bounding must be a list"},
	    {"a capability", "{\"process\": {\"capabilities\": {\"bounding\": [1]}}}",
	     "/process/capabilities/bounding must be a list of strings"},
	    {"linux", "{\"process\": {}, \"linux\": []}", "/linux must be an object"},
	    {"namespaces", "{\"process\": {}, \"linux\": {\"namespaces\": {}}}", "/linux/namespaces must be a list"},
	    {"a namespace", "{\"process\": {}, \"linux\": {\"namespaces\": [1]}}",
	     "/linux/namespaces must be a list of objects"},
	    {"its type", "{\"process\": {}, \"linux\": {\"namespaces\": [{\"type\": 1}]}}",
	     "/linux/namespaces/type must be a string"},
	    {"seccomp", "{\"process\": {}, \"linux\": {\"seccomp\": true}}", "/linux/seccomp must be an object"},
	    {"mounts", "{\"process\": {}, \"mounts\": {}}", "/mounts must be a list"},
	    {"options", "{\"process\": {}, \"mounts\": [{\"options\": [1]}]}", "/mounts/options must be a list of strings"},
	    {"annotations", "{\"process\": {}, \"annotations\": {\"a\": 1}}", "/annotations must be an object of strings"},
	    {"limits", "{\"process\": {}, \"linux\": {\"resources\": {\"memory\": {\"limit\": \"1\"}}}}",
	     "/linux/resources/memory/limit must be a whole number"},
	    {"the same key twice", "{\"process\": {}, \"process\": {}}", "not JSON"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		static struct bundle_seen seen;
		struct err e = {0};
		int rc = inspect_bundle_text(rows[i].text, strlen(rows[i].text), NULL, NULL, "", &seen, &e);

		if (rc != -EINVAL || !strstr(e.msg, rows[i].found))
			fail_msg("%s: %d, \"%s\" instead of \"%s\"", rows[i].what, rc, e.msg, rows[i].found);
	}
}

static void test_size(void **state)
{
	static struct bundle_seen seen;
	const size_t most = 4 << 20;
	char *text = calloc(1, most + 2);
	struct err e = {0};

	(void)state;
	assert_non_null(text);
	memset(text, ' ', most + 1);
	memcpy(text, "{\"process\": {}}", 15);
	assert_int_equal(inspect_bundle_text(text, most, NULL, NULL, "", &seen, &e), 0);
	assert_int_equal(inspect_bundle_text(text, most + 1, NULL, NULL, "", &seen, &e), -EFBIG);
	/* As deep as anybody likes: an error, and no more. */
	memset(text, '[', most);
	assert_int_equal(inspect_bundle_text(text, most, NULL, NULL, "", &seen, &e), -EINVAL);
	free(text);
}

static void test_what_the_caller_opens(void **state)
{
	static const char text[] =
	    DOCUMENT(USER, NS_AT("network", "/run/netns/x"), "",
		     ", \"mounts\": [{\"destination\": \"/etc/resolv.conf\", \"type\": \"bind\", \"source\": \"/r\"}]");
	static struct bundle_seen seen;
	struct err e = {0};

	(void)state;
	assert_int_equal(inspect_bundle_text(text, sizeof text - 1, NULL, NULL, "", &seen, &e), 0);
	assert_string_equal(seen.network_path, "/run/netns/x");
	assert_string_equal(seen.resolv_conf, "/r");
	assert_false(seen.host_network);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_rights),	 cmocka_unit_test(test_places),	 cmocka_unit_test(test_runtimes),
	    cmocka_unit_test(test_system_calls), cmocka_unit_test(test_sockets), cmocka_unit_test(test_limits),
	    cmocka_unit_test(test_refused),	 cmocka_unit_test(test_size),	 cmocka_unit_test(test_what_the_caller_opens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
