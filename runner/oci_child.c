/* SPDX-License-Identifier: Apache-2.0 */
#include "oci_child.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confined.h"
#include "kernel/confine.h"
#include "oci_priv.h"
#include "python.h"

#define MEMORY_BYTES (1LL << 30) /* address space: a zstd window is up to 128 MiB */
#define TELL_MS 200		 /* between two reports of progress */

static const int allowed[] = {
    /* reading the layout, writing the image */
    SCMP_SYS(openat),
    SCMP_SYS(openat2),
    SCMP_SYS(close),
    SCMP_SYS(read),
    SCMP_SYS(pwrite64),
    SCMP_SYS(lseek),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(readlinkat),
    SCMP_SYS(ftruncate),
    SCMP_SYS(mkdirat),
    SCMP_SYS(symlinkat),
    SCMP_SYS(linkat),
    SCMP_SYS(unlinkat),
    SCMP_SYS(fchmod),
    SCMP_SYS(utimensat),
    SCMP_SYS(getdents64),
    SCMP_SYS(fcntl),
    /* the parent */
    SCMP_SYS(sendto),
    SCMP_SYS(recvfrom),
    /* the C library: memory, time, the end */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getrandom),
    SCMP_SYS(futex),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

static const int fatal[] = {
    SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(clone),  SCMP_SYS(clone3),  SCMP_SYS(fork),		 SCMP_SYS(vfork),
    SCMP_SYS(socket), SCMP_SYS(connect),  SCMP_SYS(ptrace), SCMP_SYS(bpf),     SCMP_SYS(unshare),	 SCMP_SYS(setns),
    SCMP_SYS(mount),  SCMP_SYS(chroot),	  SCMP_SYS(mknod),  SCMP_SYS(mknodat), SCMP_SYS(io_uring_setup),
};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

const struct unpack_limits oci_limits = {.bytes = LIMIT_IMAGE_BYTES, .entries = LIMIT_IMAGE_ENTRIES};

static int confine(const struct oci_task *t, struct err *e)
{
	static const struct confine_calls calls = {allowed, COUNT(allowed), fatal, COUNT(fatal), NULL, 0};
	bool archive = t->kind == OCI_KIND_ARCHIVE;
	const struct confined_dir dirs[] = {{archive ? t->scratch : t->source, OCI_IN + 1, archive},
					    {t->into, OCI_OUT + 1, true}};
	const struct rlimit memory = {MEMORY_BYTES, MEMORY_BYTES};
	const int keep[] = {t->report_fd, t->archive_fd};
	bool skipped;
	int rc;

	umask(022);
	/* Names in an archive may be UTF-8; the library turns them into the locale's bytes. */
	(void)setlocale(LC_CTYPE, "C.UTF-8");
	rc = confined_root(dirs, COUNT(dirs), e);
	if (rc == 0)
		rc = confined_drop(keep, COUNT(keep), e);
	if (rc == 0 && setrlimit(RLIMIT_AS, &memory) < 0)
		rc = err_errno(e, errno, "image", "limit the memory of the process that unpacks");
	return rc < 0 ? rc : confine_syscalls("image", &calls, &skipped, e);
}

/* ---- the parent ---- */

static void tell(struct oci_work *w, enum oci_report_type type)
{
	w->report.type = type;
	if (send(w->task->report_fd, &w->report, sizeof w->report, MSG_NOSIGNAL) < 0)
		_exit(125);
}

void oci_progress_begin(struct oci_work *w, size_t layer, size_t layers, uint64_t total)
{
	w->report.layer = (uint32_t)layer;
	w->report.layers = (uint32_t)layers;
	w->report.done = 0;
	w->report.total = total;
}

void oci_progress(struct oci_work *w, uint64_t more)
{
	long long now = python_now_ms();

	w->report.done += more;
	if (now - w->told_ms < TELL_MS)
		return;
	w->told_ms = now;
	tell(w, OCI_PROGRESS);
}

void oci_report_config(struct oci_work *w, const struct oci_config *config)
{
	memcpy(w->report.workdir, config->workdir, sizeof w->report.workdir);
	memcpy(w->report.variables, config->variables, config->variables_len);
	w->report.variables_len = config->variables_len;
}

void oci_report_tally(struct oci_work *w, const struct unpack *u)
{
	w->report.bytes = unpack_tally(u)->bytes;
	w->report.entries = unpack_tally(u)->entries;
	w->report.left_out = unpack_tally(u)->left_out;
}

void oci_hash_hex(gnutls_hash_hd_t hash, char ret[OCI_HEX + 1])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t digest[OCI_HEX / 2];

	gnutls_hash_deinit(hash, digest);
	for (size_t i = 0; i < sizeof digest; i++) {
		ret[2 * i] = digits[digest[i] >> 4];
		ret[2 * i + 1] = digits[digest[i] & 15];
	}
	ret[OCI_HEX] = 0;
}

/* ---- the work ---- */

static const struct {
	int (*identify)(struct oci_work *w, struct err *e);
	int (*unpack)(struct oci_work *w, struct err *e);
} kinds[] = {
    [OCI_KIND_LAYOUT] = {oci_layout_identify, oci_layout_unpack},
    [OCI_KIND_DIRECTORY] = {oci_tree_identify, oci_tree_unpack},
    [OCI_KIND_ARCHIVE] = {oci_archive_identify, oci_archive_unpack},
};

static int open_both(struct oci_work *w, struct err *e)
{
	w->in = open(OCI_IN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->in < 0)
		return err_errno(e, errno, "image", "open the directory%s",
				 errno == EACCES ? " (chmod -R a+rX it: only what everybody may read can be in an image)" : "");
	w->out = open(OCI_OUT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return w->out < 0 ? err_errno(e, errno, "image", "open the image's directory") : 0;
}

void oci_child(const struct oci_task *task)
{
	static struct oci_work w = {.in = -1, .out = -1};
	struct err *e = &w.report.error;
	char go;
	int rc;

	w.task = task;
	w.told_ms = python_now_ms();
	w.report.kind = task->kind;
	w.report.variables_len = 1; /* an empty block */
	rc = confine(task, e);
	if (rc == 0)
		rc = open_both(&w, e);
	if (rc == 0)
		rc = kinds[task->kind].identify(&w, e);
	if (rc == 0) {
		tell(&w, OCI_DIGEST);
		if (recv(task->report_fd, &go, 1, 0) != 1)
			_exit(0); /* it is there already */
		rc = kinds[task->kind].unpack(&w, e);
	}
	tell(&w, rc == 0 ? OCI_DONE : OCI_FAILED);
	_exit(0);
}
