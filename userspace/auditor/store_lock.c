/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of the record: open file description locks, so that they end with the process and don't follow a fork's close. */
#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "auditor/store_internal.h"

int store_lock_once(int fd, short type, off_t byte)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &fl) < 0 ? -errno : 0;
}

int store_lock_wait(int fd, short type, off_t byte)
{
	unsigned waited_us = 0, us = 200;
	int r;

	for (;;) {
		r = store_lock_once(fd, type, byte);
		if ((r != -EAGAIN && r != -EACCES) || waited_us >= STORE_LOCK_WAIT_MS * 1000)
			return r;
		(void)nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
		waited_us += us;
		/* Ever shorter: the longer somebody has waited, the likelier to be the next. */
		us = us > 50 ? us / 2 : us;
	}
}

/*
 * SQLite's own lock is only ever polled for, and whoever writes batch after batch lets go of it for a moment only: another
 * might never hit that moment. Hence a lock of ours before it, with a turnstile: the one who waits holds NEXT, and the holder
 * has to pass there first.
 */
int store_lock_for_writing(int fd)
{
	int r = store_lock_wait(fd, F_WRLCK, STORE_LOCK_NEXT);

	if (r < 0)
		return r;
	r = store_lock_wait(fd, F_WRLCK, STORE_LOCK_WRITE);
	(void)store_lock_once(fd, F_UNLCK, STORE_LOCK_NEXT);
	return r;
}
