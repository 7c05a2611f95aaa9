/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Init's mounts. Everything happens below `root/r` of the stage, in init's own mount namespace, before any code of a user
 * exists, so no path here can be raced. /etc and /dev are small file systems of this sandbox alone: a file shared with
 * another sandbox, even a read-only one, would be a place to meet by flock().
 */
#include "init_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define ROOT                                                                                                                   \
	"root/r" /* the part of the overlay that becomes "/"; its parent merges with the host's root and is left behind        \
		  */

/* One entry of a generated directory. `text` is a file's content or a link's target; %u in a file is the payload's uid. */
struct entry {
	enum { DIR_, FILE_, LINK_, CHAR_ } kind;
	const char *path;
	const char *text;
	unsigned major, minor;
};

static const struct entry etc_entries[] = {
    {FILE_, "passwd", SANDBOX_USER ":x:%u:%u::" SANDBOX_HOME ":/bin/sh\n", 0, 0},
    {FILE_, "group", SANDBOX_USER ":x:%u:\n", 0, 0},
    {FILE_, "hostname", SANDBOX_HOSTNAME "\n", 0, 0},
    /* Without these lines `localhost` would go out as a DNS query. */
    {FILE_, "hosts", "127.0.0.1\tlocalhost " SANDBOX_HOSTNAME "\n::1\tlocalhost ip6-localhost\n", 0, 0},
    /* A name goes to a resolver that is not there, is refused at the packet hook, and is in the audit. */
    {FILE_, "resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", 0, 0},
    {FILE_, "nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n", 0, 0},
    {FILE_, "services",
     "ftp 21/tcp\nssh 22/tcp\ntelnet 23/tcp\nsmtp 25/tcp\ndomain 53/tcp\ndomain 53/udp\nhttp 80/tcp www\npop3 110/tcp\n"
     "ntp 123/udp\nimap2 143/tcp imap\nldap 389/tcp\nhttps 443/tcp\nhttps 443/udp\nsubmission 587/tcp\nldaps 636/tcp\n"
     "imaps 993/tcp\npop3s 995/tcp\nmysql 3306/tcp\npostgresql 5432/tcp\nredis 6379/tcp\nhttp-alt 8080/tcp\n",
     0, 0},
    {FILE_, "protocols", "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\n", 0, 0},
    {FILE_, "timezone", "Etc/UTC\n", 0, 0},
    {LINK_, "localtime", "/usr/share/zoneinfo/Etc/UTC", 0, 0},
    {LINK_, "mtab", "/proc/self/mounts", 0, 0},
    {DIR_, "ssl", NULL, 0, 0},
    {DIR_, "ssl/certs", NULL, 0, 0},
    {LINK_, "ssl/certs/ca-certificates.crt", "/usr/share/weir/ca-certificates.crt", 0, 0},
    {LINK_, "ssl/cert.pem", "certs/ca-certificates.crt", 0, 0},
};

static const struct entry dev_entries[] = {
    {CHAR_, "null", NULL, 1, 3},
    {CHAR_, "zero", NULL, 1, 5},
    {CHAR_, "full", NULL, 1, 7},
    {CHAR_, "random", NULL, 1, 8},
    {CHAR_, "urandom", NULL, 1, 9},
    {LINK_, "fd", "/proc/self/fd", 0, 0},
    {LINK_, "stdin", "/proc/self/fd/0", 0, 0},
    {LINK_, "stdout", "/proc/self/fd/1", 0, 0},
    {LINK_, "stderr", "/proc/self/fd/2", 0, 0},
    {DIR_, "shm", NULL, 0, 0},
};

/* On a kernel or host where one node can't be made the step fails: a partial /dev is not what was promised. */
static int make_entry(int dir, const struct entry *e, const struct init_plan *p)
{
	char text[1024];
	int fd, n;
	ssize_t w;

	switch (e->kind) {
	case DIR_:
		return mkdirat(dir, e->path, 0755);
	case LINK_:
		return symlinkat(e->text, dir, e->path);
	case CHAR_:
		if (mknodat(dir, e->path, S_IFCHR | 0666, makedev(e->major, e->minor)) < 0)
			return -1;
		return fchmodat(dir, e->path, 0666, 0);
	case FILE_:
		break;
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the formats are the literals above */
	n = snprintf(text, sizeof text, e->text, p->uid, p->gid);
#pragma GCC diagnostic pop
	fd = openat(dir, e->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	w = write(fd, text, (size_t)n);
	close(fd);
	if (n >= (int)sizeof text || w != n) {
		errno = EIO;
		return -1;
	}
	return 0;
}

static int mount_tmpfs(const char *target, unsigned long flags, const char *options)
{
	snprintf(init_detail, sizeof init_detail, "tmpfs on %s", target + strlen(ROOT));
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
		if (make_entry(dir, &entries[i], p) < 0) {
			snprintf(init_detail, sizeof init_detail, "%s/%s", target + strlen(ROOT), entries[i].path);
			close(dir);
			return -1;
		}
	close(dir);
	return mount(NULL, target, NULL, MS_REMOUNT | MS_RDONLY | flags, NULL);
}

/* A writable one, with the sizes of the plan. */
static int mount_sized(const char *target, const struct init_plan *p, int sticky)
{
	char options[160];

	snprintf(options, sizeof options, "size=%llu,nr_inodes=%llu,mode=%s,uid=%u,gid=%u", (unsigned long long)p->tmpfs_bytes,
		 (unsigned long long)p->tmpfs_inodes, sticky ? "1777" : "0700", sticky ? 0 : p->uid, sticky ? 0 : p->gid);
	return mount_tmpfs(target, MS_NOSUID | MS_NODEV, options);
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
	return mount(ROOT, ROOT, NULL, MS_BIND, NULL);
}

int init_mount_etc(const struct init_plan *p)
{
	return mount_filled(ROOT "/etc", MS_NOSUID | MS_NODEV | MS_NOEXEC, etc_entries,
			    sizeof etc_entries / sizeof etc_entries[0], p);
}

int init_mount_dev(const struct init_plan *p)
{
	return mount_filled(ROOT "/dev", MS_NOSUID | MS_NOEXEC, dev_entries, sizeof dev_entries / sizeof dev_entries[0], p);
}

int init_mount_shm(const struct init_plan *p)
{
	return mount_sized(ROOT "/dev/shm", p, 1);
}

int init_mount_tmp(const struct init_plan *p)
{
	const char *home = ROOT SANDBOX_HOME;

	if (mount_sized(ROOT "/tmp", p, 1) < 0)
		return -1;
	if (mkdir(home, 0700) < 0)
		return -1;
	return chown(home, p->uid, p->gid);
}

int init_mount_work(const struct init_plan *p)
{
	return mount_sized(ROOT SANDBOX_WORKDIR, p, 0);
}

int init_mount_proc(const struct init_plan *p)
{
	(void)p;
	/* subset=pid leaves out everything that speaks of the host: kcore, keys, cmdline, sys, ... Read-only, so that nothing
	 * in /proc/self is a file to write either. */
	return mount("proc", ROOT "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, "subset=pid");
}

int init_pivot(const struct init_plan *p)
{
	(void)p;
	if (chdir(ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return -1;
	if (umount2(".", MNT_DETACH) < 0)
		return -1;
	return chdir("/");
}
