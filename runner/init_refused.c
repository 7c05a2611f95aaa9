/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Init's part in refused system calls. The payload's filter leaves the calls that it refuses by their number to a listener,
 * which is init: it counts each and answers with the errno that the filter would have given, and with nothing else: no call is
 * let through. Init is in the sandbox's own cgroup, so whoever makes a great many pays for them.
 */
#include "init_steps.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of Linux 6.6: who answers is going to sleep, so who has asked is better woken where it is. */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

struct program {
	struct sock_filter of[BPF_MAXINSNS];
	size_t len; /* instructions */
};

/* Read while the descriptors are still where the plan has them; the payload inherits all of it until it becomes another
 * program. */
static struct program own, plain, counted;
static struct filter_answers answers;
static struct refused_calls *calls; /* shared with the supervisor; NULL: nothing is counted */

/* The kernel numbers what it asks one listener, without holes: an older kernel's, or another's way, would show here. */
#define GONE_AT_ONCE_MAX (1u << 20)
static uint64_t last_id; /* 0: none was heard yet */

/* One that the supervisor was told of as refused, and that was interrupted: the same again from its thread is not another. */
static struct {
	uint32_t tid; /* 0: none */
	struct seccomp_data data;
} told;

static int read_exactly(int fd, void *to, size_t bytes, size_t at)
{
	if (pread(fd, to, bytes, (off_t)at) == (ssize_t)bytes)
		return 0;
	errno = EINVAL;
	return -1;
}

static int read_program(int fd, struct program *ret, size_t bytes, size_t at)
{
	if (!bytes || bytes > sizeof ret->of || bytes % sizeof ret->of[0]) {
		errno = EINVAL;
		return -1;
	}
	ret->len = bytes / sizeof ret->of[0];
	return read_exactly(fd, ret->of, bytes, at);
}

int init_read_filters(const struct init_plan *p)
{
	const size_t first = p->filter_len * sizeof plain.of[0], head = first + sizeof answers;
	struct stat st;

	if (fstat(INIT_FD_FILTER, &st) < 0)
		return -1;
	if (read_program(INIT_FD_OWN_FILTER, &own, p->own_filter_len * sizeof own.of[0], 0) < 0 ||
	    read_program(INIT_FD_FILTER, &plain, first, 0) < 0 ||
	    read_exactly(INIT_FD_FILTER, &answers, sizeof answers, first) < 0)
		return -1;
	return read_program(INIT_FD_FILTER, &counted, (size_t)st.st_size - head, head);
}

static int load(const struct program *p, unsigned flags)
{
	const struct sock_fprog prog = {.len = (unsigned short)p->len, .filter = (struct sock_filter *)p->of};

	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

int init_load_own_filter(void)
{
	return load(&own, 0);
}

/*
 * Nobody can have a listener below somebody else's: a host that watches Weir's own calls in this way. Then the filter refuses
 * by itself, and the record says that it is not known what was refused.
 *
 * Not WAIT_KILLABLE_RECV: who waits so for an answer can't be frozen, and init may be frozen before it has answered.
 */
int init_load_payload_filter(int *ret_listener)
{
	int fd = load(&counted, SECCOMP_FILTER_FLAG_NEW_LISTENER);

	if (fd < 0 && errno == EBUSY) {
		fd = -EBUSY;
		if (load(&plain, 0) < 0)
			return -1;
	}
	if (fd == -1)
		return -1;
	*ret_listener = fd;
	return 0;
}

int init_take_listener(int fd)
{
	uint64_t nobody = 0, flags = SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP;
	struct refused_calls *shared;

	if (fd == -EBUSY)
		return 0;
	/* No call has this number, says a listener; whatever else it were says that it does not understand. */
	if (fd < 0 || ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &nobody) == 0 || errno != ENOENT) {
		snprintf(init_detail, sizeof init_detail, "what the payload has loaded has no listener");
		errno = EPROTO;
		return -1;
	}
	(void)ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags); /* an older kernel is only slower */
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, INIT_FD_REFUSED, 0);
	if (shared == MAP_FAILED)
		return -1;
	calls = shared;
	last_id = 0;
	told.tid = 0;
	return 0;
}

static void begin_period(uint32_t period)
{
	memset(calls->of, 0, sizeof calls->of);
	calls->used = 0;
	calls->others = 0;
	calls->interrupted = 0;
	__atomic_store_n(&calls->counted, period, __ATOMIC_RELEASE);
}

/* Where a call of that number is counted; NULL: there is no room for one more. */
static struct refused_call *find(uint32_t number, uint32_t error)
{
	struct refused_call *c = calls->of;

	for (; c < calls->of + calls->used; c++)
		if (c->number == number)
			return c;
	if (calls->used == LIMIT_AUDIT_SYSCALLS)
		return NULL;
	*c = (struct refused_call){.number = number, .error = error};
	calls->used++;
	return c;
}

static bool is_over(void)
{
	return __atomic_load_n(&calls->period, __ATOMIC_RELAXED) != calls->counted;
}

static void keep_up(void)
{
	if (is_over())
		begin_period(__atomic_load_n(&calls->period, __ATOMIC_RELAXED));
}

static void count(uint32_t number, uint32_t error)
{
	struct refused_call *c = find(number, error);
	struct timespec now;

	if (!c) {
		calls->others++;
		return;
	}
	clock_gettime(CLOCK_BOOTTIME, &now);
	c->last_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	if (!c->count++ && !c->interrupted)
		c->first_ns = c->last_ns;
}

/* What was counted had no answer. */
static void uncount(uint32_t number)
{
	struct refused_call *c = calls->of;

	for (; c < calls->of + calls->used; c++)
		if (c->number == number) {
			c->count -= c->count > 0;
			c->interrupted++;
			return;
		}
	calls->others -= calls->others > 0;
	calls->interrupted++;
}

/* Numbers that the kernel gave and that never came here: interrupted before we looked. */
static uint64_t gone_before(uint64_t id)
{
	const uint64_t gone = last_id ? id - last_id - 1 : 0;

	last_id = id;
	return gone <= GONE_AT_ONCE_MAX ? gone : 0;
}

static bool was_told(const struct seccomp_notif *n)
{
	if (!told.tid || told.tid != n->pid)
		return false;
	told.tid = 0;
	return memcmp(&told.data, &n->data, sizeof told.data) == 0;
}

/* Frozen between the count and the answer, and accounted meanwhile: the count stands, and it comes again. */
static void remember_told(const struct seccomp_notif *n)
{
	told.tid = n->pid;
	told.data = n->data;
}

/* Frozen while it waits for the listener's lock, it is to be sent again. */
static int send_answer(int listener, struct seccomp_notif_resp *r)
{
	int rc;

	do {
		rc = ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, r);
	} while (rc < 0 && errno == EINTR);
	return rc;
}

int init_answer(int listener)
{
	struct seccomp_notif n;
	struct seccomp_notif_resp r;
	uint32_t number, error;
	uint64_t gone;
	bool before;

	memset(&n, 0, sizeof n);
	memset(&r, 0, sizeof r);
	/* Gone: its thread was killed, or a signal came, before we looked. */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
		return errno == ENOENT || errno == EINTR ? 0 : -1;
	number = (uint32_t)n.data.nr;
	error = number < FILTER_NUMBERS && answers.error[number] ? answers.error[number] : EPERM;
	gone = gone_before(n.id);
	before = was_told(&n);
	/* Counted first: what goes on with its answer and ends its cell has its call in that cell's record. */
	do {
		keep_up();
		calls->interrupted += gone;
		if (!before)
			count(number, error);
	} while (is_over()); /* frozen and accounted in the midst of this: it was not there yet */
	r.id = n.id;
	r.error = -(int32_t)error;
	if (send_answer(listener, &r) == 0)
		return 0;
	if (errno != ENOENT)
		return -1;
	if (before || is_over())
		remember_told(&n);
	else
		uncount(number);
	return 0;
}
