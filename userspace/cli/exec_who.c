/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec_who.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"

#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif

/* ---- users ---- */

static int parse_id(const char *text, unsigned *ret)
{
	char *end;
	unsigned long n;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	n = strtoul(text, &end, 10);
	/* The last one means "none" to the kernel. */
	if (*end || errno || n >= (unsigned)-1)
		return -EINVAL;
	*ret = (unsigned)n;
	return 0;
}

static int set_groups(struct who *w, struct err *e)
{
	int room = 64;

	if (!w->name[0])
		return 0;
	for (;;) {
		gid_t *bigger = reallocarray(w->groups, (size_t)room, sizeof *bigger);
		int n = room;

		if (!bigger)
			return err_set(e, ENOMEM, "--user", "out of memory");
		w->groups = bigger;
		if (getgrouplist(w->name, w->gid, w->groups, &n) >= 0) {
			w->group_count = (size_t)n;
			return 0;
		}
		room = n > room ? n : room * 2;
		if (room > 65536) /* the kernel's own limit */
			return err_set(e, E2BIG, "--user", "%s is in too many groups", w->name);
	}
}

static void take_account(struct who *w, const struct passwd *p)
{
	w->uid = p->pw_uid;
	w->gid = p->pw_gid;
	snprintf(w->name, sizeof w->name, "%s", p->pw_name);
	snprintf(w->home, sizeof w->home, "%s", p->pw_dir);
	snprintf(w->shell, sizeof w->shell, "%s", p->pw_shell);
}

static int find_named(const char *user, struct who *w, struct err *e)
{
	const struct passwd *p = getpwnam(user);
	unsigned uid;

	/* A name made of digits is a name first, as for other programs. */
	if (!p && parse_id(user, &uid) < 0)
		return err_set(e, ENOENT, "--user", "there is no user \"%.60s\"", user);
	if (!p) {
		p = getpwuid(uid);
		w->uid = w->gid = uid;
	}
	if (p)
		take_account(w, p);
	return 0;
}

/* Root set these; a value that is no number is a mistake to be told of, not to be guessed at. */
static int find_sudo(const char *sudo_uid, const char *sudo_gid, struct who *w, struct err *e)
{
	const struct passwd *p;
	unsigned uid, gid;

	if (parse_id(sudo_uid, &uid) < 0 || (sudo_gid && parse_id(sudo_gid, &gid) < 0))
		return err_set(e, EINVAL, "--user", "SUDO_UID or SUDO_GID in the environment is no number: name a user");
	p = getpwuid(uid);
	w->uid = w->gid = uid;
	if (p)
		take_account(w, p);
	if (sudo_gid)
		w->gid = gid;
	return 0;
}

int who_find(const char *user, struct who *ret, struct err *e)
{
	const char *sudo_uid = getenv("SUDO_UID");
	struct who w = {0};
	int rc;

	if (user)
		rc = find_named(user, &w, e);
	else if (sudo_uid)
		rc = find_sudo(sudo_uid, getenv("SUDO_GID"), &w, e);
	else
		rc = find_named("0", &w, e);
	if (rc == 0)
		rc = set_groups(&w, e);
	if (rc < 0) {
		who_clear(&w);
		return rc;
	}
	w.another = w.uid != getuid();
	*ret = w;
	return 0;
}

void who_clear(struct who *w)
{
	free(w->groups);
	memset(w, 0, sizeof *w);
}

static const char *const person[] = {"HOME", "USER", "LOGNAME", "SHELL"};
#define PERSON (sizeof person / sizeof person[0])

static bool is_personal(const char *entry)
{
	for (size_t i = 0; i < PERSON; i++) {
		size_t n = strlen(person[i]);

		if (!strncmp(entry, person[i], n) && entry[n] == '=')
			return true;
	}
	return false;
}

char **who_env(const struct who *w, char *const *caller)
{
	const char *const values[PERSON] = {w->home, w->name, w->name, w->shell};
	size_t count = 0, n = 0;
	char **env;

	while (caller[count])
		count++;
	env = calloc(count + PERSON + 1, sizeof *env);
	for (size_t i = 0; env && i < count; i++)
		if (!w->another || !is_personal(caller[i])) {
			env[n] = strdup(caller[i]);
			if (!env[n++])
				goto no_memory;
		}
	for (size_t i = 0; env && w->another && i < PERSON; i++)
		if (values[i][0] && asprintf(&env[n++], "%s=%s", person[i], values[i]) < 0) {
			env[n - 1] = NULL;
			goto no_memory;
		}
	return env;
no_memory:
	who_env_free(env);
	return NULL;
}

void who_env_free(char **env)
{
	for (char **p = env; p && *p; p++)
		free(*p);
	free(env);
}

/* ---- capabilities ---- */

static const struct cap {
	const char *name;
	unsigned number;
	const char *refused; /* why it can't be kept; NULL: it can */
} caps[] = {
    {"net_bind_service", CAP_NET_BIND_SERVICE, NULL},
    {"net_raw", CAP_NET_RAW, NULL},
    {"net_broadcast", CAP_NET_BROADCAST, NULL},
    {"ipc_lock", CAP_IPC_LOCK, NULL},
    {"sys_nice", CAP_SYS_NICE, NULL},
    {"sys_time", CAP_SYS_TIME, NULL},
    {"sys_tty_config", CAP_SYS_TTY_CONFIG, NULL},
    {"lease", CAP_LEASE, NULL},
    {"audit_write", CAP_AUDIT_WRITE, NULL},
    {"audit_read", CAP_AUDIT_READ, NULL},
    {"wake_alarm", CAP_WAKE_ALARM, NULL},
    {"block_suspend", CAP_BLOCK_SUSPEND, NULL},
    {"sys_admin", CAP_SYS_ADMIN, "it can mount, move itself to another cgroup and detach the programs that judge it"},
    {"bpf", CAP_BPF, "it can change the programs that judge it"},
    {"perfmon", CAP_PERFMON, "it can read and trace what is not its own"},
    {"net_admin", CAP_NET_ADMIN, "it can change routes, addresses and filters, and send by a device of its own"},
    {"sys_ptrace", CAP_SYS_PTRACE, "it can act through any process that is under no policy"},
    {"sys_module", CAP_SYS_MODULE, "it can change the kernel"},
    {"sys_rawio", CAP_SYS_RAWIO, "it can write to devices and memory below every rule"},
    {"sys_boot", CAP_SYS_BOOT, "it can start another kernel"},
    {"sys_chroot", CAP_SYS_CHROOT, "it can give itself another view of the file system"},
    {"sys_resource", CAP_SYS_RESOURCE, "it can lift the policy's limits"},
    {"sys_pacct", CAP_SYS_PACCT, "it can have the kernel write to any file"},
    {"syslog", CAP_SYSLOG, "it can read where things are in the kernel"},
    {"dac_override", CAP_DAC_OVERRIDE, "it can write to any file, and so have others run what it likes"},
    {"dac_read_search", CAP_DAC_READ_SEARCH, "it can open any file, by handle those of other mounts too"},
    {"chown", CAP_CHOWN, "it can make any file its own"},
    {"fowner", CAP_FOWNER, "it can make any file writable"},
    {"fsetid", CAP_FSETID, "it can keep set-user-ID bits on files that it writes"},
    {"setfcap", CAP_SETFCAP, "it can give capabilities to programs that others start"},
    {"mknod", CAP_MKNOD, "it can make a device of any disk"},
    {"linux_immutable", CAP_LINUX_IMMUTABLE, "it can change files that are protected from root"},
    {"setuid", CAP_SETUID, "it can become any user, and act through what that user has running"},
    {"setgid", CAP_SETGID, "it can join any group"},
    {"setpcap", CAP_SETPCAP, "it can undo how its other capabilities are kept"},
    {"kill", CAP_KILL, "it can end the processes that watch it"},
    {"ipc_owner", CAP_IPC_OWNER, "it can write into memory that others share"},
    {"mac_override", CAP_MAC_OVERRIDE, "it can pass over the host's own access rules"},
    {"mac_admin", CAP_MAC_ADMIN, "it can change the host's own access rules"},
    {"audit_control", CAP_AUDIT_CONTROL, "it can switch the host's own audit off"},
    {"checkpoint_restore", CAP_CHECKPOINT_RESTORE, "it can read and replace what other processes have open"},
};
#define CAPS (sizeof caps / sizeof caps[0])

static const struct cap *find_cap(const char *name, size_t len)
{
	if (len > 4 && !strncasecmp(name, "cap_", 4)) {
		name += 4;
		len -= 4;
	}
	for (size_t i = 0; i < CAPS; i++)
		if (strlen(caps[i].name) == len && !strncasecmp(caps[i].name, name, len))
			return &caps[i];
	return NULL;
}

int who_caps(const char *list, uint64_t *ret, struct err *e)
{
	uint64_t bits = 0;

	for (const char *p = list; p;) {
		const char *comma = strchr(p, ',');
		size_t len = comma ? (size_t)(comma - p) : strlen(p);
		const struct cap *c = find_cap(p, len);

		if (!c)
			return err_set(e, EINVAL, "--keep-caps", "there is no capability \"%.*s\"", len < 40 ? (int)len : 40,
				       p);
		if (c->refused)
			return err_set(e, EPERM, "--keep-caps", "%s can't be kept: %s", c->name, c->refused);
		bits |= 1ull << c->number;
		p = comma ? comma + 1 : NULL;
	}
	*ret = bits;
	return 0;
}
