/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile is an action for everything, and rules: names, an action, and for each argument at most one comparison. Two rules
 * for one call must not fit the same arguments, or it is the runtime's library that says which of them counts. So what is asked
 * of arguments is said as a partition: blocks of values, aligned to powers of two, each with its mask. Comparisons by size are
 * not used: they look at 64 bits where the kernel takes 32, and old libraries got them wrong.
 *
 * The action for everything is ENOSYS: a call or an argument that no rule names is refused, in the way that makes programs and
 * C libraries do without. This is where the profile is stricter than the filter that it says again:
 *
 *	calls that are newer than the libseccomp of the machine that wrote it, or that applies it
 *	families from 64 on and protocols from 512 on: the kernel has none there, only the errno is another
 *	filter_host_oci_besides[], and execution domains other than those that the runtimes' profiles let through
 *	calls of another ABI (32-bit, x32) end the thread, as the runtime's library has it
 */
#include "filter_host_oci.h"

#include <errno.h>
#include <seccomp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>

#include "filter_host.h"
#include "filter_host_tables.h"
#include "filter_syscalls.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define LOW32 0xffffffffu
#define FAMILY_BITS 6 /* the kernel has fewer than 64 families .. */
#define TYPE_BITS 4
#define PROTOCOL_BITS 9 /* .. and its largest protocol is 262 */
#define BLOCKS_MAX 256
#define POINTS_MAX 64
#define OTHERWISE SCMP_ACT_ERRNO(ENOSYS)

/* clang-format off */
const char *const filter_host_oci_besides[] = {
	/* the host's clock, name, swap, quotas, accounting, ports, terminals */
	"clock_settime", "settimeofday", "sethostname", "setdomainname", "swapon", "swapoff", "quotactl", "quotactl_fd",
	"acct", "ioperm", "iopl", "vhangup",
	/* other processes' memory and files, and what watches whole file systems */
	"kcmp", "process_madvise", "migrate_pages", "move_pages", "set_mempolicy_home_node", "fanotify_init", "lookup_dcookie",
	/* of another age */
	"create_module", "get_kernel_syms", "query_module", "nfsservctl", "_sysctl", "sysfs", "uselib", "ustat",
};
/* clang-format on */
const size_t filter_host_oci_besides_count = COUNT(filter_host_oci_besides);

/* What the runtimes' profiles let personality() be asked: Linux, 32 bits, uname() of 2.6, and the question itself. */
static const uint32_t personalities[] = {0, 8, 0x20000, 0x20008, LOW32};

/* A runtime puts the profile in force before it has finished the container: it needs these itself. */
static const char *const runtime_needs[] = {
    "execve",	   "exit_group",   "read",	     "write",	     "close",	  "openat",	 "fcntl",  "fstat",
    "newfstatat",  "mmap",	   "munmap",	     "brk",	     "mprotect",  "futex",	 "prctl",  "capget",
    "capset",	   "chdir",	   "setgroups",	     "setgid",	     "setuid",	  "getpid",	 "gettid", "getdents64",
    "sched_yield", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "nanosleep", "epoll_pwait",
};

/* ---- blocks of values ---- */

struct block {
	uint32_t value;
	unsigned bits; /* so many of the lowest don't count */
};

struct blocks {
	struct block at[BLOCKS_MAX];
	size_t count;
};

static bool has_point(const uint32_t *points, size_t count, struct block b)
{
	for (size_t i = 0; i < count; i++)
		if ((uint64_t)points[i] >> b.bits == (uint64_t)b.value >> b.bits)
			return true;
	return false;
}

/* All of the lowest `bits` bits, less the points: in as few blocks as there can be. */
static int without(const uint32_t *points, size_t count, unsigned bits, struct blocks *ret)
{
	uint64_t next = 0, end = (uint64_t)1 << bits;

	ret->count = 0;
	while (next < end) {
		struct block b = {(uint32_t)next, bits};

		while (b.bits > 0 && (next & (((uint64_t)1 << b.bits) - 1) || has_point(points, count, b)))
			b.bits--;
		next += (uint64_t)1 << b.bits;
		if (b.bits == 0 && has_point(points, count, b))
			continue;
		if (ret->count == BLOCKS_MAX)
			return -E2BIG;
		ret->at[ret->count++] = b;
	}
	return 0;
}

/* ---- rules ---- */

/* What an argument has to be. No bits in the mask: anything. */
struct argument {
	uint32_t index, mask, value;
};

static struct argument in_block(unsigned index, uint32_t all, struct block b)
{
	uint32_t mask = b.bits >= 32 ? 0 : all & ~(((uint32_t)1 << b.bits) - 1);

	return (struct argument){index, mask, b.value & mask};
}

struct profile {
	json_t *rules;
	const struct policy *policy;
	const struct filter_syscalls *refused;
	int rc;
};

static const struct {
	uint32_t action;
	const char *name;
} action_names[] = {
    {SCMP_ACT_ALLOW, "SCMP_ACT_ALLOW"},
    {SCMP_ACT_LOG, "SCMP_ACT_LOG"},
    {SCMP_ACT_KILL_PROCESS, "SCMP_ACT_KILL_PROCESS"},
};

static void add_rule(struct profile *f, json_t *names, uint32_t action, const struct argument *args, size_t count)
{
	json_t *rule, *list;
	const char *name = "SCMP_ACT_ERRNO";
	bool is_errno = true;

	if (action == OTHERWISE || json_array_size(names) == 0) {
		json_decref(names);
		return;
	}
	for (size_t i = 0; i < COUNT(action_names); i++)
		if (action_names[i].action == action) {
			name = action_names[i].name;
			is_errno = false;
		}
	rule = json_pack("{s:o, s:s}", "names", names, "action", name);
	if (is_errno)
		json_object_set_new(rule, "errnoRet", json_integer(action & 0xffff));
	list = json_array();
	for (size_t i = 0; i < count; i++)
		if (args[i].mask)
			json_array_append_new(list, json_pack("{s:i, s:I, s:I, s:s}", "index", (int)args[i].index, "value",
							      (json_int_t)args[i].mask, "valueTwo", (json_int_t)args[i].value,
							      "op", "SCMP_CMP_MASKED_EQ"));
	if (json_array_size(list) > 0)
		json_object_set(rule, "args", list);
	json_decref(list);
	if (json_array_append_new(f->rules, rule) < 0)
		f->rc = -ENOMEM;
}

static json_t *one_name(const char *name)
{
	return json_pack("[s]", name);
}

/* ---- calls by name ---- */

static uint32_t refused_by_us(const char *name)
{
	for (size_t i = 0; i < filter_host_refused_count; i++)
		if (!strcmp(filter_host_refused[i].name, name))
			return SCMP_ACT_ERRNO((uint32_t)filter_host_refused[i].error);
	for (size_t i = 0; i < filter_host_oci_besides_count; i++)
		if (!strcmp(filter_host_oci_besides[i], name))
			return SCMP_ACT_ERRNO(EPERM);
	return 0;
}

/* Calls with rules for their arguments. */
static bool is_looked_into(const char *name)
{
	static const char *const names[] = {"socket", "socketpair", "clone", "unshare", "ioctl", "personality"};

	for (size_t i = 0; i < COUNT(names); i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* What the policy has for a call, whatever its arguments: 0, nothing. */
static uint32_t policy_action(const struct profile *f, const char *name)
{
	int nr = seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, name);
	uint32_t action = filter_syscalls_action(f->refused, nr);

	if (!action && !f->policy->listen && !strcmp(name, "listen"))
		action = SCMP_ACT_ERRNO(EACCES);
	return action && f->policy->monitor ? SCMP_ACT_LOG : action;
}

/* Mode monitor watches what the policy refuses, never what would let a program leave it. */
static uint32_t action_of(const struct profile *f, const char *name)
{
	uint32_t policy = policy_action(f, name), ours = refused_by_us(name);

	if (policy && !(f->policy->monitor && ours))
		return policy;
	return ours ? ours : SCMP_ACT_ALLOW;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Every name there is, sorted. Returns how many; the strings are the caller's. */
static size_t all_names(char *ret[FILTER_SYSCALLS_MAX])
{
	size_t count = 0;

	for (int nr = 0; nr < FILTER_SYSCALLS_MAX - 64; nr++) {
		char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, nr);

		if (name)
			ret[count++] = name;
	}
	/* Those of ours that this library does not know yet: another may. */
	for (size_t i = 0; i < filter_host_refused_count; i++)
		if (seccomp_syscall_resolve_name(filter_host_refused[i].name) == __NR_SCMP_ERROR)
			ret[count++] = strdup(filter_host_refused[i].name);
	qsort(ret, count, sizeof *ret, by_name);
	return count;
}

static void add_calls(struct profile *f)
{
	char *names[FILTER_SYSCALLS_MAX];
	uint32_t actions[FILTER_SYSCALLS_MAX];
	size_t count = all_names(names);

	for (size_t i = 0; i < count; i++)
		/* 0: done. A call that the policy refuses whole has no rules for its arguments. */
		actions[i] = is_looked_into(names[i]) && (f->policy->monitor || !policy_action(f, names[i]))
				 ? 0
				 : action_of(f, names[i]);
	for (size_t i = 0; i < count; i++) {
		uint32_t action = actions[i];
		json_t *list;

		if (!action)
			continue;
		list = json_array();
		for (size_t j = i; j < count; j++)
			if (actions[j] == action) {
				json_array_append_new(list, json_string(names[j]));
				actions[j] = 0;
			}
		add_rule(f, list, action, NULL, 0);
	}
	for (size_t i = 0; i < count; i++)
		free(names[i]);
}

/* ---- calls by arguments ---- */

/* Whether the arguments of a call count; *ret_pass: what is done with those that pass. */
static bool looks_into(const struct profile *f, const char *name, uint32_t *ret_pass)
{
	uint32_t action = policy_action(f, name);

	*ret_pass = action ? action : SCMP_ACT_ALLOW;
	return f->policy->monitor || !action;
}

static void add_namespaces(struct profile *f, const char *name, bool time)
{
	uint64_t all = time ? CLONE_NEWTIME : 0;
	struct argument arg = {0};
	uint32_t pass;

	if (!looks_into(f, name, &pass))
		return;
	for (size_t i = 0; i < filter_host_namespace_count; i++)
		all |= filter_host_namespaces[i];
	arg.mask = (uint32_t)all;
	/* In mode monitor the filter of a command does not log a call that it looks into. */
	add_rule(f, one_name(name), SCMP_ACT_ALLOW, &arg, 1);
	for (uint32_t bit = 1; bit; bit <<= 1)
		if (all & bit) {
			arg.mask = arg.value = bit;
			add_rule(f, one_name(name), SCMP_ACT_ERRNO(EPERM), &arg, 1);
		}
}

static void add_ioctls(struct profile *f)
{
	struct blocks others;
	uint32_t pass;

	if (!looks_into(f, "ioctl", &pass))
		return;
	if (without(filter_host_ioctls, filter_host_ioctl_count, 32, &others) < 0) {
		f->rc = -E2BIG;
		return;
	}
	for (size_t i = 0; i < others.count; i++) {
		struct argument arg = in_block(1, LOW32, others.at[i]);

		add_rule(f, one_name("ioctl"), SCMP_ACT_ALLOW, &arg, 1);
	}
	for (size_t i = 0; i < filter_host_ioctl_count; i++) {
		struct argument arg = {1, LOW32, filter_host_ioctls[i]};

		add_rule(f, one_name("ioctl"), SCMP_ACT_ERRNO(EPERM), &arg, 1);
	}
}

static void add_personalities(struct profile *f)
{
	uint32_t pass;

	if (!looks_into(f, "personality", &pass))
		return;
	for (size_t i = 0; i < COUNT(personalities); i++) {
		struct argument arg = {0, LOW32, personalities[i]};

		add_rule(f, one_name("personality"), pass, &arg, 1);
	}
}

/* ---- sockets ---- */

struct sockets {
	struct profile *profile;
	const struct policy_sockets *s;
	const char *names[2];	/* socket, socketpair, or both */
	uint32_t pass, refusal; /* refusal: what takes the place of an errno; 0: none does */
};

static json_t *socket_names(const struct sockets *k)
{
	return json_pack("[s*, s*]", k->names[0], k->names[1]);
}

static uint32_t refusal(const struct sockets *k, int error)
{
	return k->refusal ? k->refusal : SCMP_ACT_ERRNO((uint32_t)error);
}

static uint32_t protocol_verdict(const struct sockets *k, uint32_t type_bit, bool dccp, uint32_t protocol)
{
	if (dccp)
		return protocol == 0 || protocol == IPPROTO_DCCP ? k->pass : refusal(k, EPROTONOSUPPORT);
	for (size_t i = 0; i < filter_host_protocol_count; i++) {
		const struct filter_host_protocol *p = &filter_host_protocols[i];

		if (k->s->protocols & p->bit && (p->number == protocol || (protocol == 0 && p->by_default & type_bit)))
			return k->pass;
	}
	return refusal(k, EPROTONOSUPPORT);
}

/* What socket() gets; 0: it depends on the protocol. */
static uint32_t type_verdict(const struct sockets *k, uint32_t family, uint32_t type)
{
	const struct policy_sockets *s = k->s;
	bool listed = false;

	/* Frames leave below the place where the policy judges: in both modes. */
	if (type == FILTER_HOST_TYPE_PACKET)
		return SCMP_ACT_ERRNO(EPERM);
	if (family == AF_XDP || (family == AF_PACKET && !(s->families & POLICY_AF_PACKET)))
		return SCMP_ACT_ERRNO(EAFNOSUPPORT);
	for (size_t i = 0; i < filter_host_family_count; i++)
		listed =
		    listed || (s->families & filter_host_families[i].bit && (uint32_t)filter_host_families[i].number == family);
	if (!listed)
		return refusal(k, EAFNOSUPPORT);
	if (type == SOCK_DCCP && filter_host_is_internet((int)family) && s->protocols & POLICY_PROTO_DCCP)
		return 0;
	for (size_t i = 0; i < filter_host_type_count; i++)
		if ((uint32_t)filter_host_types[i].number == type &&
		    filter_host_type_is_allowed(s, (int)family, filter_host_types[i].bit))
			return filter_host_is_internet((int)family) ? 0 : k->pass;
	return refusal(k, EPERM);
}

static void add_protocols(const struct sockets *k, struct argument family, uint32_t type)
{
	struct argument args[3] = {family, {1, FILTER_HOST_TYPE_BITS, type}, {2, LOW32, 0}};
	const bool dccp = type == SOCK_DCCP;
	uint32_t points[POINTS_MAX], type_bit = 0;
	struct blocks others;
	size_t count = 0;

	for (size_t i = 0; i < filter_host_type_count; i++)
		if ((uint32_t)filter_host_types[i].number == type)
			type_bit = filter_host_types[i].bit;
	for (size_t i = 0; i <= filter_host_protocol_count; i++) {
		uint32_t number = i < filter_host_protocol_count ? filter_host_protocols[i].number : 0;

		if (protocol_verdict(k, type_bit, dccp, number) != k->pass)
			continue;
		points[count++] = args[2].value = number;
		add_rule(k->profile, socket_names(k), k->pass, args, 3);
	}
	if (without(points, count, PROTOCOL_BITS, &others) < 0) {
		k->profile->rc = -E2BIG;
		return;
	}
	for (size_t i = 0; i < others.count; i++) {
		args[2] = in_block(2, LOW32, others.at[i]);
		add_rule(k->profile, socket_names(k), refusal(k, EPROTONOSUPPORT), args, 3);
	}
}

/* `family`: any of the block's. */
static void add_types(const struct sockets *k, struct argument block, uint32_t family)
{
	uint32_t verdicts[1 << TYPE_BITS];
	bool done[1 << TYPE_BITS] = {false};

	for (uint32_t t = 0; t < COUNT(verdicts); t++)
		verdicts[t] = type_verdict(k, family, t);
	for (uint32_t t = 0; t < COUNT(verdicts); t++) {
		uint32_t points[1 << TYPE_BITS];
		struct blocks same;
		size_t count = 0;

		if (done[t])
			continue;
		if (!verdicts[t]) {
			add_protocols(k, block, t);
			continue;
		}
		for (uint32_t u = 0; u < COUNT(verdicts); u++) {
			if (verdicts[u] == verdicts[t])
				done[u] = true;
			else
				points[count++] = u;
		}
		/* Never too many: there are 16 values. */
		without(points, count, TYPE_BITS, &same);
		for (size_t i = 0; i < same.count; i++) {
			struct argument args[2] = {block, in_block(1, FILTER_HOST_TYPE_BITS, same.at[i])};

			add_rule(k->profile, socket_names(k), verdicts[t], args, 2);
		}
	}
}

static void add_families(const struct sockets *k)
{
	uint32_t points[POINTS_MAX];
	struct blocks others;
	size_t count = 0;

	for (size_t i = 0; i < filter_host_family_count; i++)
		points[count++] = (uint32_t)filter_host_families[i].number;
	points[count++] = AF_XDP;
	for (size_t i = 0; i < count; i++)
		add_types(k, (struct argument){0, LOW32, points[i]}, points[i]);
	if (without(points, count, FAMILY_BITS, &others) < 0)
		k->profile->rc = -E2BIG;
	for (size_t i = 0; i < others.count; i++)
		add_types(k, in_block(0, LOW32, others.at[i]), others.at[i].value);
}

static void add_sockets(struct profile *f)
{
	struct sockets k = {.profile = f, .s = &f->policy->sockets, .names = {"socket", "socketpair"}};
	uint32_t pass;
	bool one = looks_into(f, "socket", &k.pass), two = looks_into(f, "socketpair", &pass);

	k.refusal = f->policy->monitor ? SCMP_ACT_LOG : 0;
	if (one && two && k.pass == pass) {
		add_families(&k);
		return;
	}
	k.names[1] = NULL;
	if (one)
		add_families(&k);
	k.names[0] = "socketpair";
	k.pass = pass;
	if (two)
		add_families(&k);
}

/* ---- the whole ---- */

static void note(struct filter_host_oci *o, const char *text)
{
	o->notes[o->note_count++] = text;
}

static void add_notes(const struct policy *p, const struct profile *f, struct filter_host_oci *o)
{
	bool starts = true;

	for (size_t i = 0; i < COUNT(runtime_needs); i++) {
		uint32_t action = policy_action(f, runtime_needs[i]);

		starts = starts && (action == 0 || action == SCMP_ACT_LOG);
	}
	note(o, "the network rules are not in a seccomp profile: put them on the container with weir attach or weir oci-hook");
	if (!starts)
		note(o, "the policy refuses system calls that the runtime itself makes under the profile: no container may "
			"start with "
			"it");
	if (p->monitor)
		note(o, "mode monitor: what the policy refuses is done, and logged by the kernel (SCMP_ACT_LOG)");
	if (p->limits.memory_bytes || p->limits.cpu_percent || p->limits.processes || p->limits.open_files)
		note(o, "limits are not in a seccomp profile: give them to the container runtime");
}

int filter_host_oci(const struct policy *p, struct filter_host_oci *ret, struct err *e)
{
	struct filter_syscalls *refused = calloc(1, sizeof *refused);
	struct profile f = {.policy = p, .refused = refused};
	struct filter_host_oci o = {0};
	int rc;

	if (!refused)
		return err_set(e, ENOMEM, "seccomp", "out of memory");
	rc = filter_syscalls_of(p, refused, e);
	if (rc == 0) {
		f.rules = json_array();
		add_calls(&f);
		add_sockets(&f);
		add_namespaces(&f, "clone", false);
		add_namespaces(&f, "unshare", true);
		add_ioctls(&f);
		add_personalities(&f);
		add_notes(p, &f, &o);
		o.profile = json_pack("{s:s, s:i, s:[s], s:o}", "defaultAction", "SCMP_ACT_ERRNO", "defaultErrnoRet", ENOSYS,
				      "architectures", "SCMP_ARCH_X86_64", "syscalls", f.rules);
		rc = f.rc < 0 || !o.profile ? err_set(e, f.rc < 0 ? -f.rc : ENOMEM, "seccomp", "the profile could not be made")
					    : 0;
	}
	free(refused);
	if (rc < 0)
		filter_host_oci_clear(&o);
	else
		*ret = o;
	return rc;
}

void filter_host_oci_clear(struct filter_host_oci *o)
{
	json_decref(o->profile);
	*o = (struct filter_host_oci){0};
}
