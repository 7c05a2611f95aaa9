/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "ipc/decode.h"

struct refused {
	int fd;
	int error;	 /* init can't count */
	uint32_t period; /* that init counts for */
};

int refused_make(struct box *b, struct err *e)
{
	_cleanup_fd_ int fd = memfd_create("weir-refused", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct refused *r;

	/* Of a fixed size: whoever shrank it would make the other's access fail. Its page is init's to pay for. */
	if (fd < 0 || ftruncate(fd, sizeof(struct refused_calls)) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return err_errno(e, errno, "channels", "make the memory that refused system calls are counted in");
	r = calloc(1, sizeof *r);
	if (!r)
		return err_errno(e, ENOMEM, "channels", "remember the refused system calls");
	r->fd = TAKE_FD(fd);
	b->refused = r;
	return 0;
}

int refused_fd(const struct box *b)
{
	return b->refused ? b->refused->fd : -1;
}

void refused_started(struct box *b, int error)
{
	static bool said;

	if (b->refused)
		b->refused->error = error;
	if (error != EBUSY || said)
		return;
	said = true;
	log_warn("refused system calls are not recorded: whatever Weir was started under listens to its system calls already "
		 "(seccomp user notification), and the kernel lets nobody listen below; they are refused all the same");
}

bool refused_is_counted(const struct box *b)
{
	return b->refused && b->refused->error != EBUSY;
}

static int begin(struct refused *r)
{
	const uint32_t next = r->period + 1;

	if (pwrite(r->fd, &next, sizeof next, offsetof(struct refused_calls, period)) != (ssize_t)sizeof next)
		return -EIO;
	r->period = next;
	return 0;
}

void refused_begin(struct box *b)
{
	if (b->refused && begin(b->refused) < 0)
		log_error("%s: what its set-up was refused is in its record", b->id);
}

/* What init has counted in this period: 0, or -EBADMSG. */
static int read_calls(const struct box *b, struct refused_calls *ret)
{
	const struct refused *r = b->refused;
	const char *why = "size";

	if (pread(r->fd, ret, sizeof *ret, 0) == (ssize_t)sizeof *ret)
		why = refused_calls_problem(ret);
	if (why) {
		log_error("%s: its refused system calls are not known: init has counted what can't be (%s)", b->id, why);
		return -EBADMSG;
	}
	/* Init takes up a new period with its first call. */
	if (ret->counted != r->period)
		ret->used = 0, ret->others = 0, ret->interrupted = 0;
	return 0;
}

static void push(struct supervisor *s, struct box *b, const struct refused_call *c)
{
	char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, (int)c->number);
	struct note n;

	note_init(&n, NOTE_SYSCALL, b);
	snprintf(n.syscall.name, sizeof n.syscall.name, "%s", name ? name : "");
	free(name);
	n.syscall.number = c->number;
	n.syscall.error = c->error;
	n.syscall.count = c->count;
	n.syscall.interrupted = c->interrupted;
	n.syscall.first_ns = c->first_ns;
	n.syscall.last_ns = c->last_ns;
	notes_push_detail(s, b, &n);
}

void refused_report(struct supervisor *s, struct box *b, struct tell_meter *ret)
{
	const bool recorded = b->begun || b->session; /* else there is no record for it */
	struct refused_calls calls;

	ret->syscalls_refused = ret->syscalls_interrupted = REFUSED_UNKNOWN;
	if (!refused_is_counted(b) || read_calls(b, &calls) < 0)
		return;
	ret->syscalls_refused = calls.others;
	ret->syscalls_interrupted = calls.interrupted;
	for (uint32_t i = 0; i < calls.used; i++) {
		const struct refused_call *c = &calls.of[i];

		ret->syscalls_refused += c->count;
		ret->syscalls_interrupted += c->interrupted;
		if (recorded && (c->count || c->interrupted))
			push(s, b, c);
	}
	if (begin(b->refused) < 0)
		log_error("%s: system calls that were refused will be told once more", b->id);
}

uint64_t refused_so_far(const struct box *b)
{
	struct refused_calls calls;
	uint64_t sum;

	if (!refused_is_counted(b) || pread(b->refused->fd, &calls, sizeof calls, 0) != (ssize_t)sizeof calls)
		return 0;
	/* Init may be at it just now; of a new period nothing is there before its first call. */
	if (calls.counted != b->refused->period || calls.used > LIMIT_AUDIT_SYSCALLS)
		return 0;
	sum = calls.others;
	for (uint32_t i = 0; i < calls.used; i++)
		sum += calls.of[i].count;
	return sum;
}

void refused_drop(struct box *b)
{
	if (!b->refused)
		return;
	cleanup_fdp(&b->refused->fd);
	free(b->refused);
	b->refused = NULL;
}
