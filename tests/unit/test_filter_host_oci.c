/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seccomp profile for container runtimes against the filter of a command of the host, which it says again: a profile is
 * compiled as runc compiles it, and both are asked the same questions by a small interpreter. What must be different is a
 * table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "filter_host.h"
#include "filter_host_oci.h"

#define HIGH (1ul << 32)
#define POLICY(more) "{\"name\": \"t\", \"default\": \"allow\"" more "}"

/* ---- both sides ---- */

static uint32_t load(const struct seccomp_data *d, uint32_t at)
{
	uint32_t v;

	assert_true(at + sizeof v <= sizeof *d);
	memcpy(&v, (const char *)d + at, sizeof v);
	return v;
}

/* What a filter says: the instructions that seccomp programs are made of. */
static uint32_t run(const struct sock_filter *code, size_t len, const struct seccomp_data *d)
{
	uint32_t a = 0;

	for (size_t pc = 0; pc < len; pc++) {
		const struct sock_filter *i = &code[pc];
		bool yes;

		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			a = load(d, i->k);
			continue;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= i->k;
			continue;
		case BPF_RET | BPF_K:
			return i->k;
		case BPF_JMP | BPF_JA:
			pc += i->k;
			continue;
		case BPF_JMP | BPF_JEQ | BPF_K:
			yes = a == i->k;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			yes = a > i->k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			yes = a >= i->k;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			yes = a & i->k;
			break;
		default:
			fail_msg("an instruction of kind %#x", i->code);
			return 0;
		}
		pc += yes ? i->jt : i->jf;
	}
	fail_msg("no verdict");
	return 0;
}

struct sides {
	struct filter_host filter;
	struct filter_host_oci profile;
	struct sock_filter *code; /* of the profile */
	size_t len;
	bool monitor;
};

static uint32_t action_of(const char *name, json_int_t error)
{
	static const struct {
		const char *name;
		uint32_t action;
	} actions[] = {{"SCMP_ACT_ALLOW", SCMP_ACT_ALLOW},
		       {"SCMP_ACT_LOG", SCMP_ACT_LOG},
		       {"SCMP_ACT_KILL_PROCESS", SCMP_ACT_KILL_PROCESS}};

	for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
		if (!strcmp(actions[i].name, name))
			return actions[i].action;
	assert_string_equal(name, "SCMP_ACT_ERRNO");
	return SCMP_ACT_ERRNO((uint32_t)error);
}

/* As runc does it: a name that the library does not know is passed over, and so is a rule that says what the default says. */
static void compile_rule(scmp_filter_ctx ctx, uint32_t otherwise, json_t *rule)
{
	json_t *name, *arg, *args = json_object_get(rule, "args");
	uint32_t action = action_of(json_string_value(json_object_get(rule, "action")),
				    json_integer_value(json_object_get(rule, "errnoRet")));
	struct scmp_arg_cmp cmp[6];
	unsigned seen = 0;
	size_t i, n = 0;

	assert_int_not_equal(action, otherwise);
	json_array_foreach(args, i, arg)
	{
		unsigned index = (unsigned)json_integer_value(json_object_get(arg, "index"));

		/* Two for one argument would be "or" to some runtimes, and "and" to others. */
		assert_false(seen & 1u << index);
		seen |= 1u << index;
		assert_string_equal(json_string_value(json_object_get(arg, "op")), "SCMP_CMP_MASKED_EQ");
		cmp[n++] = SCMP_CMP64(index, SCMP_CMP_MASKED_EQ, (uint64_t)json_integer_value(json_object_get(arg, "value")),
				      (uint64_t)json_integer_value(json_object_get(arg, "valueTwo")));
	}
	json_array_foreach(json_object_get(rule, "names"), i, name)
	{
		int nr = seccomp_syscall_resolve_name(json_string_value(name));

		if (nr == __NR_SCMP_ERROR)
			continue;
		if (seccomp_rule_add_array(ctx, action, nr, (unsigned)n, cmp) < 0)
			fail_msg("%s: the library refuses a rule", json_string_value(name));
	}
}

static void compile_profile(struct sides *s)
{
	json_t *rule, *p = s->profile.profile;
	uint32_t otherwise = action_of(json_string_value(json_object_get(p, "defaultAction")),
				       json_integer_value(json_object_get(p, "defaultErrnoRet")));
	scmp_filter_ctx ctx = seccomp_init(otherwise);
	int fd = memfd_create("profile", MFD_CLOEXEC);
	struct stat st;
	size_t i;

	assert_non_null(ctx);
	assert_int_equal(otherwise, SCMP_ACT_ERRNO(ENOSYS));
	json_array_foreach(json_object_get(p, "syscalls"), i, rule) compile_rule(ctx, otherwise, rule);
	assert_int_equal(seccomp_export_bpf(ctx, fd), 0);
	assert_int_equal(fstat(fd, &st), 0);
	s->len = (size_t)st.st_size / sizeof *s->code;
	assert_true(s->len < BPF_MAXINSNS);
	s->code = malloc((size_t)st.st_size);
	assert_int_equal(pread(fd, s->code, (size_t)st.st_size, 0), st.st_size);
	close(fd);
	seccomp_release(ctx);
}

static struct sides of(const char *document)
{
	struct policy *p = NULL;
	struct sides s = {.code = NULL};
	struct err e = {0};

	if (policy_parse(document, strlen(document), &p, &e) < 0 || filter_host_compile(p, &s.filter, &e) < 0 ||
	    filter_host_oci(p, &s.profile, &e) < 0)
		fail_msg("%s: %s: %s", document, e.where, e.msg);
	s.monitor = p->monitor;
	policy_free(p);
	compile_profile(&s);
	return s;
}

static void drop(struct sides *s)
{
	filter_host_clear(&s->filter);
	filter_host_oci_clear(&s->profile);
	free(s->code);
}

static struct seccomp_data call(int nr, uint64_t a, uint64_t b, uint64_t c)
{
	return (struct seccomp_data){.nr = nr, .arch = AUDIT_ARCH_X86_64, .args = {a, b, c}};
}

/* Of several programs the strictest counts, then the last; the kernel's order of actions. */
static uint32_t ask_filter(const struct sides *s, const struct seccomp_data *d)
{
	uint32_t worst = SECCOMP_RET_ALLOW;

	for (int i = 0; i < FILTER_HOST_PARTS; i++) {
		uint32_t got = run(s->filter.code[i], s->filter.len[i], d);

		if ((int32_t)(got & SECCOMP_RET_ACTION_FULL) <= (int32_t)(worst & SECCOMP_RET_ACTION_FULL))
			worst = got;
	}
	return worst;
}

static uint32_t ask_profile(const struct sides *s, const struct seccomp_data *d)
{
	return run(s->code, s->len, d);
}

static const char *words(uint32_t verdict)
{
	static char text[2][64];
	static int turn;
	char *to = text[turn ^= 1];

	if (verdict == SECCOMP_RET_ALLOW || verdict == SECCOMP_RET_LOG)
		return verdict == SECCOMP_RET_ALLOW ? "allowed" : "logged";
	if ((verdict & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO)
		snprintf(to, sizeof text[0], "%s", strerror((int)(verdict & SECCOMP_RET_DATA)));
	else
		snprintf(to, sizeof text[0], "%#x", verdict);
	return to;
}

static void agree(const struct sides *s, const char *what, const struct seccomp_data *d)
{
	uint32_t a = ask_filter(s, d), b = ask_profile(s, d);

	if (a != b)
		fail_msg("%s(%#llx, %#llx, %#llx): the filter says %s, the profile %s", what, (unsigned long long)d->args[0],
			 (unsigned long long)d->args[1], (unsigned long long)d->args[2], words(a), words(b));
}

/* ---- documents ---- */

static const char *const documents[] = {
    POLICY(""),
    POLICY(", \"listen\": \"deny\""),
    POLICY(
	", \"sockets\": {\"families\": [\"unix\", \"inet\", \"inet6\", \"netlink\", \"packet\", \"vsock\"], \"types\": "
	"[\"stream\", \"dgram\", \"seqpacket\", \"raw\"], \"protocols\": [\"tcp\", \"udp\", \"icmp\", \"udplite\", \"sctp\", "
	"\"dccp\", \"mptcp\"]}"),
    POLICY(", \"sockets\": {\"families\": [\"inet\", \"netlink\"], \"types\": [\"dgram\"], \"protocols\": [\"icmp\"]}"),
    POLICY(", \"sockets\": {\"families\": [], \"types\": [], \"protocols\": []}"),
    POLICY(", \"sockets\": {\"families\": [\"inet6\"], \"types\": [\"stream\"], \"protocols\": [\"dccp\"]}"),
    POLICY(", \"syscalls\": [{\"names\": [\"@debug\", \"personality\"]}, {\"names\": [\"execveat\"], \"action\": \"kill\"}, "
	   "{\"names\": [\"@clock\", \"mount\"], \"errno\": \"ENOSYS\"}, {\"names\": [\"sync\"], \"errno\": \"EIO\"}]"),
    POLICY(", \"syscalls\": [{\"names\": [\"socket\", \"clone\", \"ioctl\", \"unshare\", \"listen\"], \"errno\": \"EACCES\"}]"),
    POLICY(", \"syscalls\": [{\"names\": [\"socketpair\", \"clone\"], \"action\": \"kill\"}]"),
    POLICY(", \"mode\": \"monitor\""),
    POLICY(", \"mode\": \"monitor\", \"listen\": \"deny\", \"sockets\": {\"families\": [\"inet\"], \"types\": [\"stream\"], "
	   "\"protocols\": [\"tcp\"]}"),
    POLICY(
	", \"mode\": \"monitor\", \"syscalls\": [{\"names\": [\"@debug\", \"socket\", \"clone\", \"ioctl\", \"personality\", "
	"\"sync\", \"mount\"]}]"),
    POLICY(
	", \"mode\": \"monitor\", \"sockets\": {\"families\": [\"packet\"], \"types\": [\"raw\"], \"protocols\": [\"sctp\"]}"),
};
#define DOCUMENTS (sizeof documents / sizeof *documents)

/* ---- every name ---- */

static bool is_besides(const char *name)
{
	for (size_t i = 0; i < filter_host_oci_besides_count; i++)
		if (!strcmp(filter_host_oci_besides[i], name))
			return true;
	return false;
}

/* Refused by the profile alone: the table of such calls, and no more. */
static void check_besides(const struct sides *s, const char *name, int nr)
{
	struct seccomp_data d = call(nr, 0, 0, 0);
	uint32_t a = ask_filter(s, &d), b = ask_profile(s, &d);

	/* A policy that says something of it is heard, but a profile does not let through what it refuses anyway. */
	if (a == SECCOMP_RET_ALLOW || a == SECCOMP_RET_LOG)
		assert_int_equal(b, SECCOMP_RET_ERRNO | EPERM);
	else if (a != b)
		fail_msg("%s: the filter says %s, the profile %s", name, words(a), words(b));
}

static void test_every_name(void **state)
{
	(void)state;
	for (size_t i = 0; i < DOCUMENTS; i++) {
		struct sides s = of(documents[i]);
		unsigned asked = 0, besides = 0;

		for (int nr = 0; nr < 1000; nr++) {
			char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, nr);
			struct seccomp_data d = call(nr, 0, 0, 0);

			if (!name) {
				/* No call of that number, or a newer one: the library that writes the profile must know it. */
				uint32_t got = ask_profile(&s, &d);

				if (got != (SECCOMP_RET_ERRNO | ENOSYS))
					fail_msg("number %d: %s", nr, words(got));
				continue;
			}
			asked++;
			if (is_besides(name)) {
				besides++;
				check_besides(&s, name, nr);
			} else {
				agree(&s, name, &d);
			}
			free(name);
		}
		assert_true(asked > 340);
		assert_int_equal(besides, filter_host_oci_besides_count);
		drop(&s);
	}
}

/* What a library does not know can't be tried; its name is there for one that does. */
static void test_names_of_tomorrow(void **state)
{
	struct sides s = of(documents[0]);
	char *text = json_dumps(s.profile.profile, 0);

	(void)state;
	for (size_t i = 0; i < filter_host_refused_count; i++) {
		char quoted[64];

		snprintf(quoted, sizeof quoted, "\"%s\"", filter_host_refused[i].name);
		/* ENOSYS is what everything gets that is not named. */
		if (!strstr(text, quoted) != (filter_host_refused[i].error == ENOSYS))
			fail_msg("%s", quoted);
	}
	free(text);
	drop(&s);
}

/* ---- sockets ---- */

static void test_sockets(void **state)
{
	static const int calls[] = {SYS_socket, SYS_socketpair};
	static const unsigned protocols[] = {0,	  1,   2,   5,	 6,   7,   16,	17,  18,  32,  33,  34, 58,
					     115, 131, 132, 133, 136, 137, 255, 256, 261, 262, 263, 511};
	static const uint64_t more[] = {0, SOCK_CLOEXEC, SOCK_NONBLOCK, HIGH};

	(void)state;
	for (size_t i = 0; i < DOCUMENTS; i++) {
		struct sides s = of(documents[i]);

		for (size_t c = 0; c < 2; c++)
			for (uint64_t family = 0; family < 64; family++)
				for (uint64_t type = 0; type < 16; type++)
					for (size_t p = 0; p < sizeof protocols / sizeof *protocols; p++)
						for (size_t m = 0; m < 4; m++) {
							uint64_t high = more[m] == HIGH ? HIGH : 0;
							struct seccomp_data d =
							    call(calls[c], family | high, type | more[m], protocols[p] | high);

							agree(&s, c ? "socketpair" : "socket", &d);
						}
		drop(&s);
	}
}

/* What the kernel has not: refused by both, with an errno of its own. */
static void test_sockets_out_of_range(void **state)
{
	static const struct {
		uint64_t family, type, protocol;
	} rows[] = {
	    {64, SOCK_STREAM, 0},
	    {99, SOCK_DGRAM, 0},
	    {0x10002, SOCK_STREAM, 0},
	    {0x80000002, SOCK_STREAM, 0},
	    {(uint64_t)-1, SOCK_RAW, 0},
	    {AF_INET, SOCK_STREAM, 512},
	    {AF_INET, SOCK_STREAM, 0x10006},
	    {AF_INET6, SOCK_DGRAM, 0x80000011},
	    {AF_INET, SOCK_STREAM, -1ul},
	};

	unsigned refused = 0;

	(void)state;
	for (size_t i = 0; i < DOCUMENTS; i++) {
		struct sides s = of(documents[i]);

		for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
			struct seccomp_data d = call(SYS_socket, rows[r].family, rows[r].type, rows[r].protocol);
			uint32_t got = ask_profile(&s, &d) & SECCOMP_RET_ACTION_FULL;

			/* A family that is only watched is, whatever the protocol. */
			if (got == SECCOMP_RET_ALLOW || got == SECCOMP_RET_LOG)
				agree(&s, "socket", &d);
			else
				refused++;
		}
		drop(&s);
	}
	assert_true(refused > DOCUMENTS * 5);
}

/* ---- flags and requests ---- */

static void test_namespaces(void **state)
{
	static const uint64_t flags[] = {CLONE_NEWNS,	CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
					 CLONE_NEWUSER, CLONE_NEWPID,	 CLONE_NEWNET, CLONE_NEWTIME};
	static const uint64_t others[] = {
	    0, SIGCHLD, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD, CLONE_FILES, HIGH, ~0ul << 32};

	(void)state;
	for (size_t i = 0; i < DOCUMENTS; i++) {
		struct sides s = of(documents[i]);

		for (unsigned set = 0; set < 256; set++)
			for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
				uint64_t value = others[o];
				struct seccomp_data d;

				for (size_t f = 0; f < 8; f++)
					value |= set & 1u << f ? flags[f] : 0;
				d = call(SYS_clone, value, 0, 0);
				agree(&s, "clone", &d);
				d = call(SYS_unshare, value, 0, 0);
				agree(&s, "unshare", &d);
			}
		drop(&s);
	}
}

static void test_ioctls(void **state)
{
	static const uint64_t around[] = {TIOCSTI, TIOCLINUX, 0x400454ca, 0x400454d9, 0x4008af30, 0x4008af60};
	unsigned seed = (unsigned)time(NULL);

	(void)state;
	for (size_t i = 0; i < DOCUMENTS; i++) {
		struct sides s = of(documents[i]);
		struct seccomp_data d;

		for (size_t a = 0; a < sizeof around / sizeof *around; a++) {
			for (int by = -3; by <= 3; by++) {
				d = call(SYS_ioctl, 99, around[a] + (uint64_t)by, 0);
				agree(&s, "ioctl", &d);
				d.args[1] |= HIGH;
				agree(&s, "ioctl", &d);
			}
			for (int bit = 0; bit < 64; bit++) {
				d = call(SYS_ioctl, 99, around[a] ^ (1ul << bit), 0);
				agree(&s, "ioctl", &d);
			}
		}
		for (int n = 0; n < 20000; n++) {
			d = call(SYS_ioctl, 99, (uint64_t)(unsigned)rand_r(&seed) << 8 ^ (unsigned)rand_r(&seed), 0);
			agree(&s, "ioctl", &d);
		}
		drop(&s);
	}
}

/* As the runtimes' own profiles have it: the filter of a command takes any. */
static void test_personality(void **state)
{
	static const uint64_t usual[] = {0, 8, 0x20000, 0x20008, 0xffffffff, HIGH};
	static const uint64_t others[] = {1, 0x40000, 0x400000, 0x20001, 0x0008 | 0x40000};
	struct sides s = of(documents[0]);

	(void)state;
	for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
		struct seccomp_data d = call(SYS_personality, usual[i], 0, 0);

		agree(&s, "personality", &d);
	}
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		struct seccomp_data d = call(SYS_personality, others[i], 0, 0);

		assert_int_equal(ask_profile(&s, &d), SECCOMP_RET_ERRNO | ENOSYS);
	}
	drop(&s);
}

/* ---- what it looks like ---- */

static void test_shape(void **state)
{
	struct sides s = of(documents[0]);
	json_t *p = s.profile.profile, *rule;
	size_t i;

	(void)state;
	assert_int_equal(json_object_size(p), 4);
	assert_int_equal(json_array_size(json_object_get(p, "architectures")), 1);
	assert_string_equal(json_string_value(json_array_get(json_object_get(p, "architectures"), 0)), "SCMP_ARCH_X86_64");
	json_array_foreach(json_object_get(p, "syscalls"), i, rule)
	{
		const char *key;
		json_t *value;

		assert_true(json_array_size(json_object_get(rule, "names")) > 0);
		json_object_foreach(rule, key, value) assert_true(!strcmp(key, "names") || !strcmp(key, "action") ||
								  !strcmp(key, "errnoRet") || !strcmp(key, "args"));
		/* Without it a runtime says EPERM. */
		assert_int_equal(!strcmp(json_string_value(json_object_get(rule, "action")), "SCMP_ACT_ERRNO"),
				 json_object_get(rule, "errnoRet") != NULL);
	}
	print_message("%zu rules, %zu instructions\n", json_array_size(json_object_get(p, "syscalls")), s.len);
	drop(&s);
}

static uint64_t number(json_t *arg, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(arg, key));
}

/* Whether some arguments fit both rules: for each that both look at, where both look. */
static bool overlap(json_t *a, json_t *b)
{
	json_t *x, *y;
	size_t i, j;

	json_array_foreach(json_object_get(a, "args"), i, x) json_array_foreach(json_object_get(b, "args"), j, y)
	{
		if (number(x, "index") == number(y, "index") &&
		    (number(x, "valueTwo") ^ number(y, "valueTwo")) & number(x, "value") & number(y, "value"))
			return false;
	}
	return true;
}

static bool has_name(json_t *rule, const char *name)
{
	json_t *one;
	size_t i;

	json_array_foreach(json_object_get(rule, "names"), i, one) if (!strcmp(json_string_value(one), name)) return true;
	return false;
}

static bool same_outcome(json_t *a, json_t *b)
{
	return json_equal(json_object_get(a, "action"), json_object_get(b, "action")) &&
	       (!json_object_get(a, "errnoRet") || json_equal(json_object_get(a, "errnoRet"), json_object_get(b, "errnoRet")));
}

/* Which of two rules that fit counts is the library's to say: so never do two that say different things. */
static void test_no_two_rules_fit(void **state)
{
	(void)state;
	for (size_t d = 0; d < DOCUMENTS; d++) {
		struct sides s = of(documents[d]);
		json_t *a, *b, *name, *rules = json_object_get(s.profile.profile, "syscalls");
		size_t i, j, n;

		json_array_foreach(rules, i, a) json_array_foreach(rules, j, b)
		{
			if (j <= i || !overlap(a, b) || same_outcome(a, b))
				continue;
			json_array_foreach(json_object_get(a, "names"), n, name)
			{
				if (has_name(b, json_string_value(name)))
					fail_msg("document %zu: rules %zu and %zu are both for %s", d, i, j,
						 json_string_value(name));
			}
		}
		drop(&s);
	}
}

static bool has_note(const struct sides *s, const char *word)
{
	for (size_t i = 0; i < s->profile.note_count; i++)
		if (strstr(s->profile.notes[i], word))
			return true;
	return false;
}

static void test_notes(void **state)
{
	static const struct {
		const char *document, *word;
	} rows[] = {
	    {POLICY(", \"mode\": \"monitor\""), "mode monitor"},
	    {POLICY(", \"syscalls\": [{\"names\": [\"execve\"]}]"), "no container may start"},
	    {POLICY(", \"limits\": {\"processes\": 5}"), "limits"},
	};
	struct sides plain = of(documents[0]);

	(void)state;
	assert_int_equal(plain.profile.note_count, 1);
	assert_true(has_note(&plain, "weir attach"));
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct sides s = of(rows[i].document);

		assert_true(has_note(&s, rows[i].word));
		assert_false(has_note(&plain, rows[i].word));
		drop(&s);
	}
	drop(&plain);
}

static void test_refused(void **state)
{
	const char *document = POLICY(", \"syscalls\": [{\"names\": [\"@none\"]}]");
	struct policy *p = NULL;
	struct filter_host_oci o;
	struct err e = {0};

	(void)state;
	assert_int_equal(policy_parse(document, strlen(document), &p, &e), 0);
	assert_int_equal(filter_host_oci(p, &o, &e), -EINVAL);
	assert_string_equal(e.where, "/syscalls/0/names/0");
	policy_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_name),	     cmocka_unit_test(test_names_of_tomorrow),
	    cmocka_unit_test(test_sockets),	     cmocka_unit_test(test_sockets_out_of_range),
	    cmocka_unit_test(test_namespaces),	     cmocka_unit_test(test_ioctls),
	    cmocka_unit_test(test_personality),	     cmocka_unit_test(test_shape),
	    cmocka_unit_test(test_no_two_rules_fit), cmocka_unit_test(test_notes),
	    cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
