/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Init's mounts. Everything happens below plan.root of the stage, in init's own mount namespace, before any code of a user
 * exists, so no path here can be raced. The mount points themselves are directories of our own layer: a link of the image's
 * can't lead a mount elsewhere. /etc and /dev are small file systems of this sandbox alone: a file shared with another
 * sandbox, even a read-only one, would be a place to meet by flock().
 */
#include "init_steps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define IMAGE_ETC "base0/etc" /* the image's own, when plan.etc_below */
#define OWN_ETC "etc"	      /* .. and where ours is filled to be laid over it */
#define FONT_CACHE "/usr/share/weir/cache/matplotlib"
#define FONT_CACHE_HOME SANDBOX_HOME "/.config/matplotlib" /* $MPLCONFIGDIR */
#define FONT_LISTS_MAX 4 /* of different versions; the directory may be the image's own, with any number of such names */

/*
 * One entry of a generated directory. `text` is a file's content or a link's target; %u in a file is the payload's uid. That
 * of RESOLVERS_ is for a sandbox without a way out, else the plan has it. An
 * entry of /etc is left out where the image has `unless` in its own.
 */
struct entry {
	enum { DIR_, FILE_, LINK_, CHAR_, RESOLVERS_ } kind;
	const char *path;
	const char *text;
	unsigned major, minor;
	const char *unless;
};

#define CA_BUNDLE "ssl/certs/ca-certificates.crt"

static const struct entry etc_entries[] = {
    {FILE_, "passwd", SANDBOX_USER ":x:%u:%u::" SANDBOX_HOME ":/bin/sh\n", 0, 0, NULL},
    {FILE_, "group", SANDBOX_USER ":x:%u:\n", 0, 0, NULL},
    {FILE_, "hostname", SANDBOX_HOSTNAME "\n", 0, 0, NULL},
    /* Without these lines `localhost` would go out as a DNS query. */
    {FILE_, "hosts", "127.0.0.1\tlocalhost " SANDBOX_HOSTNAME "\n::1\tlocalhost ip6-localhost\n", 0, 0, NULL},
    /* Without a way out a name goes to a resolver that is not there, is refused at the packet hook, and is in the audit. */
    {RESOLVERS_, "resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", 0, 0, NULL},
    {FILE_, "nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n", 0, 0, NULL},
    {FILE_, "services",
     "ftp 21/tcp\nssh 22/tcp\ntelnet 23/tcp\nsmtp 25/tcp\ndomain 53/tcp\ndomain 53/udp\nhttp 80/tcp www\npop3 110/tcp\n"
     "ntp 123/udp\nimap2 143/tcp imap\nldap 389/tcp\nhttps 443/tcp\nhttps 443/udp\nsubmission 587/tcp\nldaps 636/tcp\n"
     "imaps 993/tcp\npop3s 995/tcp\nmysql 3306/tcp\npostgresql 5432/tcp\nredis 6379/tcp\nhttp-alt 8080/tcp\n",
     0, 0, "services"},
    {FILE_, "protocols", "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\n", 0, 0, "protocols"},
    {FILE_, "timezone", "Etc/UTC\n", 0, 0, NULL},
    {LINK_, "localtime", "/usr/share/zoneinfo/Etc/UTC", 0, 0, NULL},
    {LINK_, "mtab", "/proc/self/mounts", 0, 0, NULL},
    {DIR_, "ssl", NULL, 0, 0, CA_BUNDLE},
    {DIR_, "ssl/certs", NULL, 0, 0, CA_BUNDLE},
    {LINK_, CA_BUNDLE, "/usr/share/weir/ca-certificates.crt", 0, 0, CA_BUNDLE},
    {LINK_, "ssl/cert.pem", "certs/ca-certificates.crt", 0, 0, CA_BUNDLE},
};

static const struct entry dev_entries[] = {
    {CHAR_, "null", NULL, 1, 3, NULL},
    {CHAR_, "zero", NULL, 1, 5, NULL},
    {CHAR_, "full", NULL, 1, 7, NULL},
    {CHAR_, "random", NULL, 1, 8, NULL},
    {CHAR_, "urandom", NULL, 1, 9, NULL},
    {LINK_, "fd", "/proc/self/fd", 0, 0, NULL},
    {LINK_, "stdin", "/proc/self/fd/0", 0, 0, NULL},
    {LINK_, "stdout", "/proc/self/fd/1", 0, 0, NULL},
    {LINK_, "stderr", "/proc/self/fd/2", 0, 0, NULL},
    {DIR_, "shm", NULL, 0, 0, NULL},
};

static int write_file(int dir, const char *path, const char *text, size_t len)
{
	int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	ssize_t w;

	if (fd < 0)
		return -1;
	w = write(fd, text, len);
	close(fd);
	if (w == (ssize_t)len)
		return 0;
	errno = EIO;
	return -1;
}

/* What leads to the name servers of the plan. Two short tries: a call has a deadline, and a server that is gone is no news. */
static int write_resolvers(int dir, const struct entry *e, const struct init_plan *p)
{
	static const char options[] = "options edns0 timeout:2 attempts:2\n";
	char text[sizeof p->resolvers + sizeof p->resolvers / sizeof p->resolvers[0] * sizeof "nameserver \n" + sizeof options];
	size_t n = 0;

	if (!p->way_out)
		return write_file(dir, e->path, e->text, strlen(e->text));
	for (size_t i = 0; i < sizeof p->resolvers / sizeof p->resolvers[0]; i++)
		if (p->resolvers[i][0])
			n += (size_t)snprintf(text + n, sizeof text - n, "nameserver %s\n", p->resolvers[i]);
	n += (size_t)snprintf(text + n, sizeof text - n, "%s", options);
	return write_file(dir, e->path, text, n);
}

/* On a kernel or host where one node can't be made the step fails: a partial /dev is not what was promised. */
static int make_entry(int dir, const struct entry *e, const struct init_plan *p)
{
	char text[1024];
	int n;

	switch (e->kind) {
	case DIR_:
		return mkdirat(dir, e->path, 0755);
	case LINK_:
		return symlinkat(e->text, dir, e->path);
	case CHAR_:
		if (mknodat(dir, e->path, S_IFCHR | 0666, makedev(e->major, e->minor)) < 0)
			return -1;
		return fchmodat(dir, e->path, 0666, 0);
	case RESOLVERS_:
		return write_resolvers(dir, e, p);
	case FILE_:
		break;
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the formats are the literals above */
	n = snprintf(text, sizeof text, e->text, p->uid, p->gid);
#pragma GCC diagnostic pop
	if (n >= (int)sizeof text) {
		errno = EIO;
		return -1;
	}
	return write_file(dir, e->path, text, (size_t)n);
}

/* `sub` of the sandbox's root, as a path from the stage: kept until the next call. */
static const char *inside(const struct init_plan *p, const char *sub)
{
	static char path[sizeof p->root + 64];

	snprintf(path, sizeof path, "%s%s", p->root, sub);
	return path;
}

/* Opens `path` below `dir` as a program inside would, whatever links it goes through. */
static int open_below(const char *dir, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = RESOLVE_IN_ROOT};
	int top = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = top < 0 ? -1 : (int)syscall(SYS_openat2, top, path, &how, sizeof how);

	if (top >= 0)
		close(top);
	return fd;
}

static int image_has(const char *in_etc)
{
	int fd = open_below("base0", in_etc, O_PATH);

	if (fd < 0)
		return 0;
	close(fd);
	return 1;
}

static int left_out(const struct entry *e, const struct init_plan *p)
{
	char path[64];

	if (!e->unless || !p->etc_below)
		return 0;
	snprintf(path, sizeof path, "etc/%s", e->unless);
	return image_has(path);
}

static int mount_tmpfs(const char *target, unsigned long flags, const char *options)
{
	snprintf(init_detail, sizeof init_detail, "tmpfs on %s", target);
	return mount("tmpfs", target, "tmpfs", flags, options);
}

/* A tmpfs that is filled here and then turned read-only. */
static int mount_filled(const char *target, unsigned long flags, const struct entry *entries, size_t count,
			const struct init_plan *p)
{
	int dir;

	if (mount_tmpfs(target, flags, "mode=755,size=256k,nr_inodes=64") < 0)
		return -1;
	dir = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -1;
	for (size_t i = 0; i < count; i++)
		if (!left_out(&entries[i], p) && make_entry(dir, &entries[i], p) < 0) {
			snprintf(init_detail, sizeof init_detail, "%s/%s", target, entries[i].path);
			close(dir);
			return -1;
		}
	close(dir);
	return mount(NULL, target, NULL, MS_REMOUNT | MS_RDONLY | flags, NULL);
}

/* A writable one, with the sizes of the plan. */
static int mount_sized(const char *sub, const struct init_plan *p, int sticky)
{
	char options[160];

	snprintf(options, sizeof options, "size=%llu,nr_inodes=%llu,mode=%s,uid=%u,gid=%u", (unsigned long long)p->tmpfs_bytes,
		 (unsigned long long)p->tmpfs_inodes, sticky ? "1777" : "0700", sticky ? 0 : p->uid, sticky ? 0 : p->gid);
	return mount_tmpfs(inside(p, sub), MS_NOSUID | MS_NODEV, options);
}

int init_mount_private(const struct init_plan *p)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	return chdir(p->stage);
}

int init_mount_root(const struct init_plan *p)
{
	if (mount("weir", "root", "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, p->overlay) < 0) {
		snprintf(init_detail, sizeof init_detail, "overlay of the image");
		return -1;
	}
	/* The host's image is a part of its overlay, which merges with the host's root and is left behind. */
	return strcmp(p->root, "root") ? mount(p->root, p->root, NULL, MS_BIND, NULL) : 0;
}

int init_mount_etc(const struct init_plan *p)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
	const size_t count = sizeof etc_entries / sizeof etc_entries[0];

	if (!p->etc_below)
		return mount_filled(inside(p, "/etc"), flags, etc_entries, count, p);
	if (mount_filled(OWN_ETC, flags, etc_entries, count, p) < 0)
		return -1;
	snprintf(init_detail, sizeof init_detail, "overlay on /etc");
	return mount("weir", inside(p, "/etc"), "overlay", flags | MS_RDONLY,
		     "metacopy=off,redirect_dir=nofollow,lowerdir=" OWN_ETC ":" IMAGE_ETC);
}

int init_mount_dev(const struct init_plan *p)
{
	return mount_filled(inside(p, "/dev"), MS_NOSUID | MS_NOEXEC, dev_entries, sizeof dev_entries / sizeof dev_entries[0],
			    p);
}

int init_mount_shm(const struct init_plan *p)
{
	return mount_sized("/dev/shm", p, 1);
}

static int own_dir(const struct init_plan *p, const char *sub)
{
	const char *path = inside(p, sub);

	return mkdir(path, 0700) < 0 || chown(path, p->uid, p->gid) < 0 ? -1 : 0;
}

/* matplotlib looks for its list of fonts where it may write; one that was made beforehand saves a run the time to make it. */
static int link_font_cache(const struct init_plan *p)
{
	int fd = open_below(p->root, FONT_CACHE, O_RDONLY | O_DIRECTORY), rc = 0, count = 0;
	struct dirent *de;
	DIR *d;

	if (fd < 0)
		return 0;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -1;
	}
	rc = own_dir(p, SANDBOX_HOME "/.config");
	if (rc == 0)
		rc = own_dir(p, FONT_CACHE_HOME);
	while (rc == 0 && count < FONT_LISTS_MAX && (de = readdir(d))) {
		char from[sizeof FONT_CACHE + 256], to[sizeof FONT_CACHE_HOME + sizeof p->root + 256];

		if (strncmp(de->d_name, "fontlist-", 9) != 0)
			continue;
		snprintf(from, sizeof from, FONT_CACHE "/%s", de->d_name);
		snprintf(to, sizeof to, "%s" FONT_CACHE_HOME "/%s", p->root, de->d_name);
		rc = symlink(from, to) < 0 || lchown(to, p->uid, p->gid) < 0 ? -1 : 0;
		count++;
	}
	closedir(d);
	if (rc < 0)
		snprintf(init_detail, sizeof init_detail, "links to the font cache");
	return rc;
}

int init_mount_tmp(const struct init_plan *p)
{
	if (mount_sized("/tmp", p, 1) < 0 || own_dir(p, SANDBOX_HOME) < 0)
		return -1;
	return link_font_cache(p);
}

int init_mount_work(const struct init_plan *p)
{
	return mount_sized(SANDBOX_WORKDIR, p, 0);
}

int init_mount_proc(const struct init_plan *p)
{
	/* subset=pid leaves out everything that speaks of the host: kcore, keys, cmdline, sys, ... Read-only, so that nothing
	 * in /proc/self is a file to write either. */
	return mount("proc", inside(p, "/proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, "subset=pid");
}

int init_pivot(const struct init_plan *p)
{
	if (chdir(p->root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return -1;
	if (umount2(".", MNT_DETACH) < 0)
		return -1;
	return chdir("/");
}
