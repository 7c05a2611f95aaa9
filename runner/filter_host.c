/* SPDX-License-Identifier: Apache-2.0 */
#include "filter_host.h"
#include "filter_host_tables.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "filter_syscalls.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define LOW32 0xffffffffu /* the kernel takes these arguments as 32 bits */

/* ---- what would let the command leave its policy ---- */

const struct filter_host_call filter_host_refused[] = {
    /* its view of the file system has the cgroups and pins read-only: that must stay */
    {"mount", 165, EPERM},
    {"umount2", 166, EPERM},
    {"pivot_root", 155, EPERM},
    {"chroot", 161, EPERM},
    {"move_mount", 429, EPERM},
    {"open_tree", 428, EPERM},
    {"open_tree_attr", 467, EPERM},
    {"fsopen", 430, EPERM},
    {"fsconfig", 431, EPERM},
    {"fsmount", 432, EPERM},
    {"fspick", 433, EPERM},
    {"mount_setattr", 442, EPERM},
    {"setns", 308, EPERM},
    {"open_by_handle_at", 304, EPERM},
    /* the programs that judge it, and others that could be put before them */
    {"bpf", 321, EPERM},
    {"perf_event_open", 298, EPERM},
    /* processes that are not under the policy: their memory, their sockets */
    {"ptrace", 101, EPERM},
    {"process_vm_readv", 310, EPERM},
    {"process_vm_writev", 311, EPERM},
    {"pidfd_getfd", 438, EPERM},
    {"userfaultfd", 323, EPERM},
    /* keys: the kernel starts a program of its own to fetch one, by DNS among others */
    {"add_key", 248, EPERM},
    {"request_key", 249, EPERM},
    {"keyctl", 250, EPERM},
    /* the kernel itself */
    {"init_module", 175, EPERM},
    {"finit_module", 313, EPERM},
    {"delete_module", 176, EPERM},
    {"kexec_load", 246, EPERM},
    {"kexec_file_load", 320, EPERM},
    /* system calls that a filter can't see into; callers do without */
    {"io_uring_setup", 425, ENOSYS},
    {"io_uring_enter", 426, ENOSYS},
    {"io_uring_register", 427, ENOSYS},
    {"clone3", 435, ENOSYS},
};
const size_t filter_host_refused_count = COUNT(filter_host_refused);

const uint64_t filter_host_namespaces[] = {CLONE_NEWNS,	  CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
					   CLONE_NEWUSER, CLONE_NEWPID,	   CLONE_NEWNET};
const size_t filter_host_namespace_count = COUNT(filter_host_namespaces);

const uint32_t filter_host_ioctls[] = {
    /* Putting bytes into a terminal's input: the caller's shell would run them, outside of it. */
    TIOCSTI,
    TIOCLINUX,
    /* Packets from a tunnel device or a virtual machine's ring are no socket's: nobody would judge them. */
    0x400454ca /* TUNSETIFF */,
    0x400454d9 /* TUNSETQUEUE */,
    0x4008af30 /* VHOST_NET_SET_BACKEND */,
    0x4008af60 /* VHOST_VSOCK_SET_GUEST_CID */,
};
const size_t filter_host_ioctl_count = COUNT(filter_host_ioctls);

/* ---- which sockets, as a program of our own ---- */

const struct filter_host_number filter_host_families[] = {{POLICY_AF_UNIX, AF_UNIX},	 {POLICY_AF_INET, AF_INET},
							  {POLICY_AF_INET6, AF_INET6},	 {POLICY_AF_NETLINK, AF_NETLINK},
							  {POLICY_AF_PACKET, AF_PACKET}, {POLICY_AF_VSOCK, AF_VSOCK}};
const size_t filter_host_family_count = COUNT(filter_host_families);

const struct filter_host_number filter_host_types[] = {{POLICY_SOCK_STREAM, SOCK_STREAM},
						       {POLICY_SOCK_DGRAM, SOCK_DGRAM},
						       {POLICY_SOCK_SEQPACKET, SOCK_SEQPACKET},
						       {POLICY_SOCK_RAW, SOCK_RAW}};
const size_t filter_host_type_count = COUNT(filter_host_types);

const struct filter_host_protocol filter_host_protocols[] = {
    {POLICY_PROTO_TCP, IPPROTO_TCP, POLICY_SOCK_STREAM},
    {POLICY_PROTO_UDP, IPPROTO_UDP, POLICY_SOCK_DGRAM},
    {POLICY_PROTO_ICMP, IPPROTO_ICMP, 0},
    {POLICY_PROTO_ICMP, IPPROTO_ICMPV6, 0},
    {POLICY_PROTO_UDPLITE, IPPROTO_UDPLITE, 0},
    {POLICY_PROTO_SCTP, IPPROTO_SCTP, POLICY_SOCK_SEQPACKET},
    {POLICY_PROTO_DCCP, IPPROTO_DCCP, 0},
    {POLICY_PROTO_MPTCP, IPPROTO_MPTCP, 0},
};
const size_t filter_host_protocol_count = COUNT(filter_host_protocols);

struct program {
	struct sock_filter at[1024];
	unsigned short n;
};

static void emit(struct program *p, unsigned short code, uint32_t k, unsigned char jt, unsigned char jf)
{
	p->at[p->n++] = (struct sock_filter){code, jt, jf, k};
}

static void emit_return(struct program *p, uint32_t value)
{
	emit(p, BPF_RET | BPF_K, value, 0, 0);
}

/* The low half of an argument: all that the kernel takes of an int. */
static void emit_arg(struct program *p, unsigned arg)
{
	emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t)), 0, 0);
}

/* What follows up to end_if() is for that value alone, and ends in a return. */
static unsigned short begin_if(struct program *p, uint32_t value)
{
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
	emit(p, BPF_JMP | BPF_JA, 0, 0, 0);
	return p->n;
}

static void end_if(struct program *p, unsigned short body)
{
	p->at[body - 1].k = (uint32_t)(p->n - body);
}

static void emit_if_return(struct program *p, uint32_t value, uint32_t verdict)
{
	unsigned short body = begin_if(p, value);

	emit_return(p, verdict);
	end_if(p, body);
}

bool filter_host_is_internet(int family)
{
	return family == AF_INET || family == AF_INET6;
}

static void emit_protocols(struct program *p, const struct policy_sockets *s, uint32_t type_bit, uint32_t refuse)
{
	bool zero = false;

	emit_arg(p, 2);
	for (size_t i = 0; i < COUNT(filter_host_protocols); i++) {
		if (!(s->protocols & filter_host_protocols[i].bit))
			continue;
		emit_if_return(p, filter_host_protocols[i].number, SECCOMP_RET_ALLOW);
		zero = zero || (filter_host_protocols[i].by_default & type_bit);
	}
	if (zero)
		emit_if_return(p, 0, SECCOMP_RET_ALLOW);
	emit_return(p, refuse ? refuse : SECCOMP_RET_ERRNO | EPROTONOSUPPORT);
}

bool filter_host_type_is_allowed(const struct policy_sockets *s, int family, uint32_t bit)
{
	/* The kernel makes no difference between the two there, and libraries use either. */
	if (family == AF_NETLINK && (bit & (POLICY_SOCK_RAW | POLICY_SOCK_DGRAM)))
		return s->types & (POLICY_SOCK_RAW | POLICY_SOCK_DGRAM);
	return s->types & bit;
}

/* `refuse`: what takes the place of every errno, or 0. */
static void emit_types(struct program *p, const struct policy_sockets *s, int family, uint32_t refuse)
{
	unsigned short body;

	emit_arg(p, 1);
	emit(p, BPF_ALU | BPF_AND | BPF_K, FILTER_HOST_TYPE_BITS, 0, 0);
	for (size_t i = 0; i < COUNT(filter_host_types); i++) {
		if (!filter_host_type_is_allowed(s, family, filter_host_types[i].bit))
			continue;
		body = begin_if(p, (uint32_t)filter_host_types[i].number);
		if (filter_host_is_internet(family))
			emit_protocols(p, s, filter_host_types[i].bit, refuse);
		else
			emit_return(p, SECCOMP_RET_ALLOW);
		end_if(p, body);
	}
	/* DCCP has a type of its own, which goes with the protocol. */
	if (filter_host_is_internet(family) && (s->protocols & POLICY_PROTO_DCCP)) {
		body = begin_if(p, SOCK_DCCP);
		emit_arg(p, 2);
		emit_if_return(p, 0, SECCOMP_RET_ALLOW);
		emit_if_return(p, IPPROTO_DCCP, SECCOMP_RET_ALLOW);
		emit_return(p, refuse ? refuse : SECCOMP_RET_ERRNO | EPROTONOSUPPORT);
		end_if(p, body);
	}
	emit_return(p, refuse ? refuse : SECCOMP_RET_ERRNO | EPERM);
}

/*
 * Frames that are put together by hand leave below the place where the policy judges. Nothing that only watches could see
 * them, so they are refused there as well.
 */
static void emit_frames(struct program *p, const struct policy_sockets *s)
{
	emit_arg(p, 1);
	emit(p, BPF_ALU | BPF_AND | BPF_K, FILTER_HOST_TYPE_BITS, 0, 0);
	emit_if_return(p, FILTER_HOST_TYPE_PACKET, SECCOMP_RET_ERRNO | EPERM);
	emit_arg(p, 0);
	emit_if_return(p, AF_XDP, SECCOMP_RET_ERRNO | EAFNOSUPPORT);
	if (!(s->families & POLICY_AF_PACKET))
		emit_if_return(p, AF_PACKET, SECCOMP_RET_ERRNO | EAFNOSUPPORT);
}

static void build_sockets(struct program *p, const struct policy *policy)
{
	const struct policy_sockets *s = &policy->sockets;
	const uint32_t refuse = policy->monitor ? SECCOMP_RET_LOG : 0;
	unsigned short body;

	emit(p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	emit_return(p, SECCOMP_RET_KILL_PROCESS);
	emit(p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 2, 0);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 1, 0);
	emit_return(p, SECCOMP_RET_ALLOW);
	emit_frames(p, s);
	for (size_t i = 0; i < COUNT(filter_host_families); i++) {
		if (!(s->families & filter_host_families[i].bit))
			continue;
		emit_arg(p, 0);
		body = begin_if(p, (uint32_t)filter_host_families[i].number);
		emit_types(p, s, filter_host_families[i].number, refuse);
		end_if(p, body);
	}
	emit_return(p, refuse ? refuse : SECCOMP_RET_ERRNO | EAFNOSUPPORT);
}

static int compile_sockets(const struct policy *policy, struct filter_host *f, struct err *e)
{
	struct program p = {.n = 0};

	build_sockets(&p, policy);
	f->code[FILTER_HOST_SOCKETS] = malloc(p.n * sizeof p.at[0]);
	if (!f->code[FILTER_HOST_SOCKETS])
		return err_set(e, ENOMEM, "seccomp", "out of memory");
	memcpy(f->code[FILTER_HOST_SOCKETS], p.at, p.n * sizeof p.at[0]);
	f->len[FILTER_HOST_SOCKETS] = p.n;
	return 0;
}

/* ---- everything else, with libseccomp ---- */

/* Calls that the policy refuses whole: they need no rule of ours. In mode monitor there is none. */
static bool refused_by_policy(const struct policy *p, const struct filter_syscalls *s, int nr)
{
	return !p->monitor && filter_syscalls_action(s, nr) != 0;
}

static bool refused_by_us(int nr)
{
	for (size_t i = 0; i < filter_host_refused_count; i++)
		if (filter_host_refused[i].nr == nr)
			return true;
	return false;
}

static int add_contained(scmp_filter_ctx ctx, const struct policy *p, const struct filter_syscalls *s)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < filter_host_refused_count; i++) {
		const struct filter_host_call *c = &filter_host_refused[i];

		if (!refused_by_policy(p, s, c->nr))
			rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO((uint32_t)c->error), c->nr, 0);
	}
	return rc;
}

/* One bit at a time: whichever of them is set, with whatever else. */
static int add_namespaces(scmp_filter_ctx ctx, const struct policy *p, const struct filter_syscalls *s)
{
	static const int calls[] = {SCMP_SYS(clone), SCMP_SYS(unshare)};
	int rc = 0;

	for (size_t c = 0; c < COUNT(calls); c++)
		for (size_t i = 0; rc == 0 && i < COUNT(filter_host_namespaces) && !refused_by_policy(p, s, calls[c]); i++)
			rc =
			    seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), calls[c], 1,
					     SCMP_A0(SCMP_CMP_MASKED_EQ, filter_host_namespaces[i], filter_host_namespaces[i]));
	/* In the flags of clone() this bit is part of the exit signal. */
	if (rc == 0 && !refused_by_policy(p, s, SCMP_SYS(unshare)))
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWTIME, CLONE_NEWTIME));
	return rc;
}

static int add_ioctls(scmp_filter_ctx ctx, const struct policy *p, const struct filter_syscalls *s)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < COUNT(filter_host_ioctls) && !refused_by_policy(p, s, SCMP_SYS(ioctl)); i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
				      SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, filter_host_ioctls[i]));
	return rc;
}

/* A call that a rule of ours looks into can't be logged whole as well. */
static bool looked_into(int nr)
{
	return nr == SCMP_SYS(clone) || nr == SCMP_SYS(unshare) || nr == SCMP_SYS(ioctl);
}

static int add_policy(scmp_filter_ctx ctx, const struct policy *p, const struct filter_syscalls *s)
{
	int rc = 0;

	for (int nr = 0; rc == 0 && nr < FILTER_SYSCALLS_MAX; nr++) {
		uint32_t action = filter_syscalls_action(s, nr);

		if (!action && nr == SCMP_SYS(listen) && !p->listen)
			action = SCMP_ACT_ERRNO(EACCES);
		if (!action || (p->monitor && (refused_by_us(nr) || looked_into(nr))))
			continue;
		rc = seccomp_rule_add(ctx, p->monitor ? SCMP_ACT_LOG : action, nr, 0);
	}
	return rc;
}

/* The program as an array, by way of a file: this libseccomp can write it nowhere else. */
static int export_code(scmp_filter_ctx ctx, struct sock_filter **ret, unsigned short *ret_len)
{
	_cleanup_fd_ int fd = memfd_create("weir-filter", MFD_CLOEXEC);
	_cleanup_free_ struct sock_filter *code = NULL;
	struct stat st;
	int rc = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);

	if (rc < 0)
		return rc;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size <= 0 || (size_t)st.st_size > BPF_MAXINSNS * sizeof *code)
		return -E2BIG;
	code = malloc((size_t)st.st_size);
	if (!code)
		return -ENOMEM;
	if (pread(fd, code, (size_t)st.st_size, 0) != (ssize_t)st.st_size)
		return -EIO;
	*ret_len = (unsigned short)((size_t)st.st_size / sizeof *code);
	*ret = TAKE_PTR(code);
	return 0;
}

static int compile_calls(const struct policy *p, struct filter_host *f, struct err *e)
{
	_cleanup_free_ struct filter_syscalls *s = calloc(1, sizeof *s);
	scmp_filter_ctx ctx;
	int rc;

	if (!s)
		return err_set(e, ENOMEM, "seccomp", "out of memory");
	rc = filter_syscalls_of(p, s, e);
	if (rc < 0)
		return rc;
	ctx = seccomp_init(SCMP_ACT_ALLOW);
	if (!ctx)
		return err_set(e, ENOMEM, "seccomp", "libseccomp could not start a filter");
	rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (rc == 0)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (rc == 0)
		rc = add_contained(ctx, p, s);
	if (rc == 0)
		rc = add_namespaces(ctx, p, s);
	if (rc == 0)
		rc = add_ioctls(ctx, p, s);
	if (rc == 0)
		rc = add_policy(ctx, p, s);
	if (rc == 0)
		rc = export_code(ctx, &f->code[FILTER_HOST_CALLS], &f->len[FILTER_HOST_CALLS]);
	seccomp_release(ctx);
	return rc < 0 ? err_errno(e, -rc, "seccomp", "make the system call filter") : 0;
}

/* ---- both ---- */

int filter_host_compile(const struct policy *p, struct filter_host *ret, struct err *e)
{
	struct filter_host f = {{NULL, NULL}, {0, 0}};
	int rc = compile_sockets(p, &f, e);

	if (rc == 0)
		rc = compile_calls(p, &f, e);
	if (rc < 0) {
		filter_host_clear(&f);
		return rc;
	}
	*ret = f;
	return 0;
}

void filter_host_clear(struct filter_host *f)
{
	for (int i = 0; i < FILTER_HOST_PARTS; i++)
		free(f->code[i]);
	memset(f, 0, sizeof *f);
}

bool filter_host_equal(const struct filter_host *a, const struct filter_host *b)
{
	for (int i = 0; i < FILTER_HOST_PARTS; i++)
		if (a->len[i] != b->len[i] || memcmp(a->code[i], b->code[i], a->len[i] * sizeof *a->code[i]) != 0)
			return false;
	return true;
}

int filter_host_load(const struct filter_host *f)
{
	for (int i = 0; i < FILTER_HOST_PARTS; i++) {
		const struct sock_fprog prog = {.len = f->len[i], .filter = f->code[i]};

		if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
			return -errno;
	}
	return 0;
}
