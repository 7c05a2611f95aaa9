/* SPDX-License-Identifier: Apache-2.0 */
/* `weir uninstall`: what Weir ever made, away. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "attach/attach.h"
#include "cli/cli.h"
#include "cli/config_load.h"
#include "cli/instance.h"
#include "cli/prime.h"
#include "cli/tokenfile.h"
#include "core/cleanup.h"
#include "registry/store.h"
#include "supervisor/keyfiles.h"
#include "supervisor/supervisor.h"

#define ATTACHED_NAME "attached" /* last part of ATTACHED_DIR */

struct options {
	const char *state_dir, *config;
	bool keep_state;
};

enum { KEY_CONFIG = 256 };

static const struct argp_option option_table[] = {
    {"state-dir", 's', "DIR", 0,
     "the state directory to remove (default: what the configuration says, else " DEFAULT_STATE_DIR ")", 0},
    {"config", KEY_CONFIG, "FILE", 0,
     "the configuration whose state directory is meant (default: " CONFIG_FILE_DEFAULT ", if it is there)", 0},
    {"keep-state", 'k', 0, 0, "keep it: audit records, tokens, agents and images stay", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 's':
		o->state_dir = arg;
		return 0;
	case KEY_CONFIG:
		o->config = arg;
		return 0;
	case 'k':
		o->keep_state = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const char doc[] =
    "Remove every pin, cgroup, mount and file that Weir ever made on this host, audit records, tokens, agents and images "
    "included, and take every policy off that was attached to something."
    "\vStop running services first: an instance that is alive is left alone, and this then fails.\n"
    "Configuration in /etc/weir was written by you, and stays.\n\n"
    "Exit status: 0; 125 when an instance is alive or something could not be removed; 64 for arguments that make no sense.";
static const struct argp argp = {option_table, parse, NULL, doc, NULL, NULL, NULL};

/*
 * Removes what we make and no more: `levels` of directories, plain files in them. Anything deeper or busy (a mount, say) is an
 * error: this must never walk into something that only stands there.
 */
static int remove_tree(const char *path, int levels)
{
	_cleanup_dir_ DIR *d = opendir(path);
	struct dirent *de;

	while (d && (de = readdir(d))) {
		char sub[PATH_MAX];
		int rc;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if ((size_t)snprintf(sub, sizeof sub, "%s/%s", path, de->d_name) >= sizeof sub)
			return -ENAMETOOLONG;
		if (de->d_type == DT_DIR)
			rc = levels > 0 ? remove_tree(sub, levels - 1) : rmdir(sub) < 0 ? -errno : 0;
		else
			rc = unlink(sub) < 0 ? -errno : 0;
		if (rc < 0 && rc != -ENOENT)
			return rc;
	}
	return rmdir(path) < 0 && errno != ENOENT ? -errno : 0;
}

/* What Weir makes in it, by name: a mistyped --state-dir must not cost anybody a file. */
static int remove_state(const char *dir, struct err *e)
{
	static const char *const ours[] = {
	    "audit/audit.db",	"audit/audit.db-wal", "audit/audit.db-shm",
	    "audit/audit.lock", "audit/audit.ndjson", "audit/audit.ndjson.1", /* as it was before it was a database */
	    KEYFILES_HEAD,	KEYFILES_KEY,	      KEYFILES_PUBLIC,
	    KEYFILES_NEW,	TOKENFILE_TABLE,      TOKENFILE_USED};
	_cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_errno(e, errno, "--state-dir", "open %s", dir);
	for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
		if (unlinkat(fd, ours[i], 0) < 0 && errno != ENOENT)
			return err_errno(e, errno, "", "remove %s/%s", dir, ours[i]);
	if (unlinkat(fd, "audit", AT_REMOVEDIR) < 0 && errno != ENOENT && errno != ENOTEMPTY)
		return err_errno(e, errno, "", "remove %s/audit", dir);
	rc = registry_remove(fd, e);
	if (rc == 0)
		rc = prime_remove(fd, e);
	if (rc < 0)
		return rc;
	if (rmdir(dir) < 0 && errno != ENOENT) {
		if (errno != ENOTEMPTY && errno != EBUSY)
			return err_errno(e, errno, "", "remove %s", dir);
		printf("left %s: it holds files that are not Weir's\n", dir);
	}
	return 0;
}

/* Nothing but the kernel's own two entries. */
static bool bpffs_is_empty(void)
{
	_cleanup_dir_ DIR *d = opendir(BPFFS);
	struct dirent *de;
	bool empty = d != NULL;

	while (d && (de = readdir(d)))
		empty =
		    empty && (de->d_name[0] == '.' || !strcmp(de->d_name, "maps.debug") || !strcmp(de->d_name, "progs.debug"));
	return empty;
}

/* A bpffs that was mounted for our pins, and in which nobody else has pinned anything since. */
static int remove_pins(struct err *e)
{
	if (rmdir(ATTACHED_PINS) < 0 && errno != ENOENT && errno != ENOTDIR)
		return err_errno(e, errno, "policy", "remove " ATTACHED_PINS);
	if (rmdir(PIN_DIR) < 0 && errno != ENOENT && errno != ENOTDIR)
		return err_errno(e, errno, "policy", "remove " PIN_DIR);
	if (access(BPFFS_NOTE, F_OK) == 0 && bpffs_is_empty() && umount(BPFFS) < 0 && errno != EBUSY && errno != EINVAL)
		return err_errno(e, errno, "policy", "unmount " BPFFS);
	return 0;
}

/* The directory of attachments has a lock too, which whoever changes one holds. */
static bool is_live_instance(const struct dirent *de)
{
	return de->d_name[0] != '.' && de->d_type == DT_DIR && strcmp(de->d_name, ATTACHED_NAME) != 0 &&
	       instance_is_alive(de->d_name);
}

static bool any_is_alive(void)
{
	_cleanup_dir_ DIR *d = opendir(RUN_DIR);
	struct dirent *de;
	bool alive = false;

	while (d && (de = readdir(d)))
		alive = alive || is_live_instance(de);
	return alive;
}

/* Which they are, for who has to stop them. Under supervisor_lock(). */
static void name_live(void)
{
	_cleanup_dir_ DIR *d = opendir(RUN_DIR);
	struct dirent *de;

	while (d && (de = readdir(d))) {
		char pid[32], state[PATH_MAX];

		if (!is_live_instance(de))
			continue;
		instance_line(de->d_name, "lock", pid, sizeof pid);
		instance_line(de->d_name, "state-dir", state, sizeof state);
		fprintf(stderr, "weir:   %s%s%s%s%s%s\n", de->d_name, pid[0] ? ", pid " : "", pid,
			state[0] ? ", state directory " : "", state, pid[0] ? ": kill it to stop it in order" : "");
	}
}

int uninstall_cmd(int argc, char **argv)
{
	struct options o = {0};
	_cleanup_free_ char *state_dir = NULL;
	struct sweep_result r = {0};
	_cleanup_fd_ int lock = -1;
	unsigned attached = 0;
	int rc;
	struct err e = {0};

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	/* Held to the end: a weir that starts meanwhile must not lose what it has just made. */
	if (cli_need_root(&e) < 0 || (!o.keep_state && config_state_dir(o.state_dir, o.config, &state_dir, &e) < 0) ||
	    supervisor_lock(&lock, &e) < 0)
		return cli_fail(&e);
	/* While something is alive nothing is taken off what it looks after: this is about to fail. */
	if ((!any_is_alive() && attach_remove_all(&attached, &e) < 0) || supervisor_sweep_all(&r, &e) < 0)
		return cli_fail(&e);
	if (r.live) {
		err_set(&e, EBUSY, "", "%u instance(s) of Weir are running; stop them first", r.live);
		cli_fail(&e);
		name_live();
		return EXIT_WEIR;
	}
	if (remove_pins(&e) < 0 || (!o.keep_state && remove_state(state_dir, &e) < 0))
		return cli_fail(&e);
	rc = remove_tree(RUN_DIR, 1);
	if (rc < 0) {
		err_errno(&e, -rc, "", "remove " RUN_DIR);
		return cli_fail(&e);
	}
	printf("removed: %u attachment(s), %u dead instance(s), %u sandbox(es), %u process(es)", attached, r.instances,
	       r.sandboxes, r.processes);
	if (o.keep_state)
		printf("; the state directory stays\n");
	else
		printf("; the state directory was %s\n", state_dir);
	return cli_flush(&e) < 0 ? cli_fail(&e) : 0;
}
