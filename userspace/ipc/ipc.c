/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/ipc.h"

#include "ipc/metrics.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const char *const run_end_names[RUN_END_COUNT] = {
    [RUN_END_EXIT] = "exit",	 [RUN_END_SIGNAL] = "signal",	    [RUN_END_TIMEOUT] = "timeout", [RUN_END_MEMORY] = "memory",
    [RUN_END_OUTPUT] = "output", [RUN_END_CANCELLED] = "cancelled", [RUN_END_BROKEN] = "broken",
};
const char *const policy_change_names[POLICY_CHANGE_COUNT] = {
    [POLICY_CHANGE_RELOAD] = "reload",
    [POLICY_CHANGE_ADDRESSES] = "addresses",
};
const char *const window_end_names[WINDOW_ENDS] = {
    [WINDOW_HOUR] = "hour",	    [WINDOW_FULL] = "full",	  [WINDOW_POLICY] = "policy",
    [WINDOW_DETACHED] = "detached", [WINDOW_REMOVED] = "removed", [WINDOW_STOPPED] = "stopped",
};
const char *const metrics_kind_names[METRICS_KINDS] = {[METRICS_RUN] = "run", [METRICS_CALL] = "call", [METRICS_CELL] = "cell"};
const char *const content_names[CONTENT_KINDS] = {
    [CONTENT_CODE] = "code",	       [CONTENT_ARGUMENTS] = "arguments", [CONTENT_FILES_IN] = "files_in",
    [CONTENT_STDOUT] = "stdout",       [CONTENT_STDERR] = "stderr",	  [CONTENT_RESULT] = "result",
    [CONTENT_FILES_OUT] = "files_out",
};
const char *const skip_names[COLLECTED_KINDS] = {
    [COLLECTED_SYMLINK] = "symlink",	 [COLLECTED_FIFO] = "fifo",
    [COLLECTED_SOCKET] = "socket",	 [COLLECTED_DEVICE] = "device",
    [COLLECTED_TOO_LARGE] = "too large", [COLLECTED_TOO_MANY] = "too many",
    [COLLECTED_TOO_DEEP] = "too deep",	 [COLLECTED_UNREADABLE] = "unreadable",
    [COLLECTED_NAME] = "name",
};

int ipc_pair(int ret[2], int bytes)
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv) < 0)
		return -errno;
	for (int i = 0; i < 2; i++)
		/* Best effort: without CAP_NET_ADMIN over the host the kernel's own ceiling applies, and a short buffer only
		 * means -EAGAIN sooner. */
		if (setsockopt(sv[i], SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) < 0)
			(void)setsockopt(sv[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
	ret[0] = sv[0];
	ret[1] = sv[1];
	return 0;
}

int ipc_send(int sock, const void *msg, size_t len, const int *fds, size_t nfds)
{
	union {
		char buf[CMSG_SPACE(IPC_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = (void *)msg, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (nfds > IPC_FDS_MAX)
		return -EINVAL;
	if (nfds) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof control);
		mh.msg_control = control.buf;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	do
		n = sendmsg(sock, &mh, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	return 0;
}

ssize_t ipc_recv(int sock, void *buf, size_t len, int *fds, size_t *nfds)
{
	union {
		char buf[CMSG_SPACE(IPC_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof control.buf};
	size_t room = nfds ? *nfds : 0, got = 0;
	ssize_t n;

	do
		n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (nfds)
		*nfds = 0;
	if (n < 0)
		return errno == ECONNRESET ? 0 : -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
		size_t count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
			if (got < room)
				fds[got++] = fd;
			else
				close(fd);
		}
	}
	if (mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		while (got)
			close(fds[--got]);
		return -EMSGSIZE;
	}
	if (nfds)
		*nfds = got;
	return n;
}

bool ipc_text_ok(const char *text, size_t size)
{
	return memchr(text, 0, size) != NULL;
}
