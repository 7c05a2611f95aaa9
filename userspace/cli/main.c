/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/audit_cmd.h"
#include "cli/cli.h"
#include "cli/policy_cmd.h"
#include "core/log.h"
#include "version.h"

static const struct command {
	const char *name;
	int (*fn)(int argc, char **argv);
	const char *help;
} commands[] = {
    {"serve", serve_cmd, "run the service: warm sandboxes behind an HTTP API"},
    {"run", run_cmd, "run one snippet in a sandbox, no service needed"},
    {"exec", exec_cmd, "run a command of this host under a policy, on the host's own network"},
    {"attach", attach_cmd, "put a policy on what already runs: a container, a pod, a process, a cgroup"},
    {"detach", detach_cmd, "take it off again"},
    {"status", status_cmd, "what is attached, whether it holds, and what it has counted"},
    {"oci-hook", oci_hook_cmd, "attach before a container's first instruction; a container runtime calls it"},
    {"policy", policy_cmd, "check a policy, explain what it does to a destination, compare two"},
    {"audit", audit_cmd, "what runs did: every attempt to reach the network"},
    {"image", image_cmd, "import, list and remove the images that agents' tools run in"},
    {"agent", agent_cmd, "say which agents there are, and what their processes are started with"},
    {"token", token_cmd, "mint, list and revoke the tokens that clients send"},
    {"doctor", doctor_cmd, "try what this host can enforce, and say what to mend"},
    {"uninstall", uninstall_cmd, "remove every pin, cgroup, mount and file Weir ever made"},
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static void usage(FILE *to)
{
	fprintf(to, "usage: weir COMMAND [OPTION…]\n\nWeir runs untrusted Python in single-use sandboxes, and enforces and "
		    "audits what they may send.\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
	fprintf(to, "\nexamples:\n"
		    "  sudo weir run -c 'print(6*7)'\n"
		    "  sudo weir exec --policy tool-call -- pip download requests\n"
		    "  sudo weir attach --policy tool-call --container 3f2a1b0c9d8e\n"
		    "  sudo weir token mint --project demo\n"
		    "  sudo weir serve --dev-token \"$(openssl rand -hex 32)\"\n"
		    "  sudo weir doctor\n\n"
		    "`weir COMMAND --help` says more; `weir --version` prints the version.\n");
}

/*
 * What a program inherits and we must not: a umask would hide the image's files, an ignored SIGCHLD survives exec and takes
 * every exit status away, a blocked signal would never stop us.
 */
static void forget_the_caller(void)
{
	sigset_t none;
	int fd;

	/* 0, 1 and 2 exist from here on: else the next files we open would be taken for them. */
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
	cli_caller.umask = umask(022);
	cli_caller.chld = signal(SIGCHLD, SIG_DFL);
	cli_caller.pipe = signal(SIGPIPE, SIG_IGN);
	cli_caller.xfsz = signal(SIGXFSZ, SIG_IGN); /* a write over a file size limit is an error to report, not a death */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, &cli_caller.mask);
}

int main(int argc, char **argv)
{
	static char name[64], help[] = "--help";

	log_init("weir", LOG_LVL_INFO);
	forget_the_caller();
	if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? 2 : 0;
	}
	if (!strcmp(argv[1], "--version")) {
		puts("weir " WEIR_VERSION);
		return 0;
	}
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name)) {
			snprintf(name, sizeof name, "weir %s", commands[i].name);
			argv[1] = name;
			if (argc > 2 && !strcmp(argv[2], "-h"))
				argv[2] = help;
			return commands[i].fn(argc - 1, argv + 1);
		}
	fprintf(stderr, "weir: no command \"%s\"; `weir --help` lists them\n", argv[1]);
	return 2;
}
