/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody else's program on a cgroup, as others attach them.
 *
 *   cgprog CGROUP-DIR HOOK none|override|multi|link allow|deny NAME
 *
 * Says "ID" when it is attached, or "errno N", and takes it off again when standard input ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>

static const struct {
	const char *name;
	enum bpf_prog_type type;
	enum bpf_attach_type attach;
} hooks[] = {
    {"connect4", BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT},
    {"sendmsg4", BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_UDP4_SENDMSG},
    {"egress", BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS},
    {"ingress", BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_INGRESS},
    {"setsockopt", BPF_PROG_TYPE_CGROUP_SOCKOPT, BPF_CGROUP_SETSOCKOPT},
};

static int load(size_t hook, int verdict, const char *name)
{
	const struct bpf_insn code[] = {
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = verdict},
	    {.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = hooks[hook].attach);

	return bpf_prog_load(hooks[hook].type, name, "GPL", code, sizeof code / sizeof code[0], &opts);
}

int main(int argc, char **argv)
{
	struct bpf_prog_info info = {0};
	unsigned len = sizeof info, flags;
	size_t hook = 0;
	int cgroup, prog, rc;
	char end;

	if (argc != 6)
		return 2;
	while (hook < sizeof hooks / sizeof hooks[0] && strcmp(hooks[hook].name, argv[2]) != 0)
		hook++;
	cgroup = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	prog = load(hook, !strcmp(argv[4], "allow"), argv[5]);
	if (cgroup < 0 || prog < 0 || bpf_obj_get_info_by_fd(prog, &info, &len) < 0) {
		perror("cgprog");
		return 125;
	}
	flags = !strcmp(argv[3], "override") ? BPF_F_ALLOW_OVERRIDE : !strcmp(argv[3], "multi") ? BPF_F_ALLOW_MULTI : 0;
	if (!strcmp(argv[3], "link"))
		rc = bpf_link_create(prog, cgroup, hooks[hook].attach, NULL);
	else
		rc = bpf_prog_attach(prog, cgroup, hooks[hook].attach, flags);
	if (rc < 0) {
		printf("errno %d\n", errno);
		return 1;
	}
	printf("%u\n", info.id);
	fflush(stdout);
	while (read(STDIN_FILENO, &end, 1) > 0)
		;
	if (strcmp(argv[3], "link") != 0)
		bpf_prog_detach2(prog, cgroup, hooks[hook].attach);
	return 0;
}
