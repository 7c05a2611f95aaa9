/* SPDX-License-Identifier: Apache-2.0 */
/* Proof before release: what the kernel says of a sandbox, not what we believe to have set up. */
#include "supervisor/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/keyline.h"
#include "verdict.h"

static const struct {
	const char *name, *address;
	uint8_t protocol;
} probes[PLAN_PROBES] = {
    {"UDP over IPv4", PROBE_IPV4, IPPROTO_UDP},
    {"UDP over IPv6", PROBE_IPV6, IPPROTO_UDP},
    {"TCP over IPv4", PROBE_IPV4, IPPROTO_TCP},
    {"TCP over IPv6", PROBE_IPV6, IPPROTO_TCP},
};

/* What the policy in force says of a probe: whether the kernel has to refuse it. A policy that only watches refuses nothing. */
static bool is_refused(const struct inforce *f, int probe)
{
	struct err unused;
	struct cidr to;
	struct weir_dest d;
	bool mapped;

	if (f->policy->monitor || cidr_parse_addr(probes[probe].address, strlen(probes[probe].address), &to, &unused) < 0)
		return false;
	d = dest_of_call(&to, probes[probe].protocol, PROBE_PORT, &mapped);
	return weir_verdict_of(image_judge(f->image, &d)) != WEIR_ALLOW;
}

/* Over the way out of a tool, on a host that has no IPv6 for it: the kernel finds no route, and judges no packet. */
static bool is_unrouted(const struct supervisor *s, const struct box *b, int probe)
{
	return b->way.wanted && !s->way_host.ipv6 && probes[probe].protocol == IPPROTO_UDP &&
	       strchr(probes[probe].address, ':');
}

int verify_probes(struct supervisor *s, struct box *b, const int32_t probe_errno[PLAN_PROBES], struct err *e)
{
	uint64_t sent = 0, refused = 0;
	struct weir_sandbox c;
	bool counted;
	int rc;

	for (int i = 0; i < PLAN_PROBES; i++) {
		bool deny = is_refused(&s->inforce[b->t->slot], i);

		if (probe_errno[i] == EAFNOSUPPORT || (probe_errno[i] == ENETUNREACH && is_unrouted(s, b, i)))
			continue; /* no IPv6 in the kernel, or beyond it: nothing can leave that way */
		sent++;
		refused += deny;
		if (deny && probe_errno[i] != EPERM)
			return err_set(e, EPERM, "policy",
				       "a %s probe that the policy denies was not refused (%s): is the policy in force?",
				       probes[i].name, probe_errno[i] ? strerror(probe_errno[i]) : "it was sent");
		if (!deny && probe_errno[i] == EPERM)
			return err_set(e, EPERM, "policy", "a %s probe that the policy allows was refused", probes[i].name);
	}
	rc = guard_get_sandbox(s->guard, b->cgroup.id, &c, e);
	if (rc < 0)
		return rc;
	/* One of a kind is at least one count; of no kind, none. */
	counted = sent && c.probes >= sent && c.probes_denied >= refused && c.probes - c.probes_denied >= sent - refused &&
		  (refused || !c.probes_denied) && (refused < sent || c.probes_denied == c.probes);
	if (!counted)
		return err_set(e, EPERM, "policy",
			       "%" PRIu64 " probes were sent, %" PRIu64 " of them to be denied; the kernel counted %" PRIu64
			       " and denied %" PRIu64,
			       sent, refused, (uint64_t)c.probes, (uint64_t)c.probes_denied);
	return 0;
}

int verify_workdir(const struct box *b, struct err *e)
{
	const uint64_t size = b->t->call ? LIMIT_CALL_TMPFS_BYTES : LIMIT_TMPFS_BYTES;
	struct statx st;
	struct statfs fs;

	if (statx(b->workdir, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) < 0 || fstatfs(b->workdir, &fs) < 0)
		return err_errno(e, errno, "verify", "look at the working directory");
	/* The root of a mount of its own, in memory, that belongs to this sandbox alone. */
	if (fs.f_type != TMPFS_MAGIC || !(st.stx_attributes & STATX_ATTR_MOUNT_ROOT) || st.stx_uid != b->uid ||
	    st.stx_gid != b->uid || (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize != size)
		return err_set(e, EPERM, "verify", "the working directory is not the file system that was made for it");
	return 0;
}

/* The value of one line of /proc/PID/status, without the blanks around it. */
static int status_line(const char *status, const char *key, char *ret, size_t size)
{
	const char *p = keyline_find(status, key, ':');

	if (!p)
		return -ENOENT;
	p += strspn(p, " \t");
	snprintf(ret, size, "%.*s", (int)strcspn(p, "\n"), p);
	return 0;
}

static int expect(const char *status, const char *key, const char *want, struct err *e)
{
	char got[128];

	if (status_line(status, key, got, sizeof got) < 0)
		return err_set(e, ENOENT, "verify", "/proc does not say %s", key);
	if (strcmp(got, want))
		return err_set(e, EPERM, "verify", "%s is %s, should be %s", key, got, want);
	return 0;
}

/* That process `pid` is `uid` and nothing more: for pid 1 of the sandbox as well as for pid 2. */
static int verify_status(pid_t pid, uint32_t uid, struct err *e)
{
	static const char none[] = "0000000000000000";
	static const char *const sets[] = {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"};
	char path[64], status[4096], ids[64];
	_cleanup_file_ FILE *f = NULL;
	size_t n;
	int rc;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	f = fopen(path, "re");
	n = f ? fread(status, 1, sizeof status - 1, f) : 0;
	if (!n)
		return err_set(e, ENOENT, "verify", "can't read %s", path);
	status[n] = 0;
	snprintf(ids, sizeof ids, "%u\t%u\t%u\t%u", uid, uid, uid, uid);
	rc = expect(status, "Uid", ids, e);
	if (rc == 0)
		rc = expect(status, "Gid", ids, e);
	if (rc == 0)
		rc = expect(status, "Groups", "", e);
	for (size_t i = 0; rc == 0 && i < sizeof sets / sizeof sets[0]; i++)
		rc = expect(status, sets[i], none, e);
	if (rc == 0)
		rc = expect(status, "NoNewPrivs", "1", e);
	if (rc == 0)
		rc = expect(status, "Seccomp", "2", e);
	return rc;
}

static int verify_namespaces(const struct box *b, struct err *e)
{
	static const char *const names[] = {"pid", "mnt", "net", "ipc", "uts", "cgroup"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		char path[64], ours[64] = "", theirs[64] = "";

		snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
		if (readlink(path, ours, sizeof ours - 1) < 0)
			return err_errno(e, errno, "verify", "read %s", path);
		snprintf(path, sizeof path, "/proc/%d/ns/%s", b->payload_pid, names[i]);
		if (readlink(path, theirs, sizeof theirs - 1) < 0)
			return err_errno(e, errno, "verify", "read the payload's %s namespace", names[i]);
		if (!strcmp(ours, theirs))
			return err_set(e, EPERM, "verify", "the payload is in the host's %s namespace", names[i]);
	}
	return 0;
}

/*
 * The file that the interpreter is reading while a snippet's harness waits: site.py closes it before the script starts. A
 * tool's harness is the script.
 */
static bool is_harness_file(const struct box *b, const char *fd)
{
	char path[64], target[256];
	static const char want[] = "/_weir_harness.pth";
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/fd/%.10s", b->payload_pid, fd);
	n = readlink(path, target, sizeof target);
	return n > (ssize_t)sizeof want && !memcmp(target + n - (sizeof want - 1), want, sizeof want - 1);
}

static int verify_descriptors(const struct box *b, struct err *e)
{
	char path[64];
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	const int last = b->t->call ? PAYLOAD_FD_RESULT : PAYLOAD_FD_GATE;
	int seen = 0;

	snprintf(path, sizeof path, "/proc/%d/fd", b->payload_pid);
	d = opendir(path);
	if (!d)
		return err_errno(e, errno, "verify", "list the payload's descriptors");
	while ((de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		if (!b->t->call && is_harness_file(b, de->d_name))
			continue;
		if (atoi(de->d_name) > last)
			return err_set(e, EPERM, "verify", "the payload holds descriptor %s", de->d_name);
		seen++;
	}
	if (seen != last + 1)
		return err_set(e, EPERM, "verify", "the payload holds %d descriptors, should hold %d", seen, last + 1);
	return 0;
}

/* Nothing of what it was started with, and what refused calls are told to exactly where they are counted. */
static int verify_init_descriptors(const struct box *b, struct err *e)
{
	static const char want[] = "anon_inode:seccomp notify";
	const int last = refused_is_counted(b) ? INIT_KEPT_LISTENER : INIT_KEPT_SIGNALS;
	char path[64], target[64] = "";
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;

	snprintf(path, sizeof path, "/proc/%d/fd", b->init_pid);
	d = opendir(path);
	if (!d)
		return err_errno(e, errno, "verify", "list its descriptors");
	while ((de = readdir(d)))
		if (de->d_name[0] != '.' && (atoi(de->d_name) < INIT_KEPT_CONTROL || atoi(de->d_name) > last))
			return err_set(e, EPERM, "verify", "it holds descriptor %s", de->d_name);
	if (!refused_is_counted(b))
		return 0;
	snprintf(path, sizeof path, "%d", INIT_KEPT_LISTENER);
	if (readlinkat(dirfd(d), path, target, sizeof target - 1) < 0 || strcmp(target, want))
		return err_set(e, EPERM, "verify", "refused system calls are told to nobody");
	return 0;
}

/* In the right cgroup of every hierarchy that limits it: the kernel's list of the cgroup names the process. */
static int verify_cgroups(const struct supervisor *s, const struct box *b, struct err *e)
{
	char path[64], line[512];
	_cleanup_file_ FILE *f = NULL;
	int seen = 0, want = 1 + s->cgroups.v1_count;
	char suffix[160];
	size_t n = (size_t)snprintf(suffix, sizeof suffix, "/" CGROUP_TOP "/%s/%s\n", s->instance, b->id);

	snprintf(path, sizeof path, "/proc/%d/cgroup", b->payload_pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f)) {
		size_t len = strlen(line);

		if (len >= n && !strcmp(line + len - n, suffix))
			seen++;
	}
	if (seen < want)
		return err_set(e, EPERM, "verify", "the payload is in %d of %d of its cgroups", seen, want);
	return 0;
}

int verify_payload(struct supervisor *s, struct box *b, struct err *e)
{
	int rc;

	if (!b->probed)
		return err_set(e, EPERM, "verify", "the policy was never proven from inside the sandbox");
	rc = verify_status(b->init_pid, UID_INIT, e);
	if (rc == 0)
		rc = verify_init_descriptors(b, e);
	if (rc < 0)
		return err_wrap(e, "init");
	rc = verify_status(b->payload_pid, b->uid, e);
	if (rc == 0)
		rc = verify_namespaces(b, e);
	if (rc == 0)
		rc = verify_descriptors(b, e);
	if (rc == 0)
		rc = verify_cgroups(s, b, e);
	return rc;
}
