/* SPDX-License-Identifier: Apache-2.0 */
/* What a client has not taken yet: a ring of answers, long ones as sealed files. */
#include "auditor/client_out.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/cleanup.h"

#define DUMP_FLAGS JSON_REAL_PRECISION(12)

static void drop_first(struct client *c)
{
	struct client_answer *a = &c->out[c->out_first];

	free(a->msg);
	if (a->memfd >= 0)
		close(a->memfd);
	c->out_bytes -= a->bytes;
	c->out_first = (c->out_first + 1) % CLIENT_OUT_MAX;
	c->nout--;
}

void client_drop_answers(struct client *c)
{
	while (c->nout)
		drop_first(c);
}

bool client_has_room(const struct client *c)
{
	return c->nout < CLIENT_OUT_MAX && c->out_bytes < CLIENT_OUT_BYTES;
}

static int write_all(int fd, const char *text, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, text + done, len - done);

		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* The text as a file nobody can change any more, for the receiver to map. */
static int sealed_file(int *ret, const char *text, size_t len)
{
	_cleanup_fd_ int fd = memfd_create("weir-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0)
		return -errno;
	r = write_all(fd, text, len);
	if (r < 0)
		return r;
	if (lseek(fd, 0, SEEK_SET) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	*ret = TAKE_FD(fd);
	return 0;
}

/* Queues an answer; `text` may be NULL with len 0. Without memory for it the status says ENOMEM; without even that, closes. */
int client_put(struct client *c, uint64_t req, uint32_t status, const char *text, size_t len)
{
	struct client_answer *a = &c->out[(c->out_first + c->nout) % CLIENT_OUT_MAX];
	struct answer head = {.status = status, .req = req};
	int memfd = -1, r = 0;
	size_t inside;

	if (len > ANSWER_INLINE_MAX)
		r = sealed_file(&memfd, text, len);
	if (r < 0) {
		head.status = (uint32_t)-r;
		len = 0;
	}
	inside = memfd >= 0 ? 0 : len;
	head.len = (uint32_t)len;
	a->msg = malloc(sizeof head + inside);
	if (!a->msg) {
		if (memfd >= 0)
			close(memfd);
		return -ENOMEM;
	}
	memcpy(a->msg, &head, sizeof head);
	if (inside)
		memcpy((char *)a->msg + sizeof head, text, inside);
	a->len = sizeof head + inside;
	a->memfd = memfd;
	a->bytes = sizeof head + len;
	c->out_bytes += a->bytes;
	c->nout++;
	return 0;
}

/* The connection's buffer may be smaller than an inline answer: then the text goes by file after all. */
static int to_file(struct client *c)
{
	struct client_answer *a = &c->out[c->out_first];
	int r;

	if (a->memfd >= 0 || a->len <= sizeof(struct answer))
		return -EMSGSIZE;
	r = sealed_file(&a->memfd, (char *)a->msg + sizeof(struct answer), a->len - sizeof(struct answer));
	if (r == 0)
		a->len = sizeof(struct answer);
	return r;
}

/* Whether another memfd may be sent: not while a client that does not read has many on their way to it. */
static bool may_send_file(struct client *c)
{
	int unread;

	if (c->files < CLIENT_FILES_MAX)
		return true;
	if (ioctl(c->fd, SIOCOUTQ, &unread) < 0 || unread > 0)
		return false;
	c->files = 0;
	return true;
}

int client_flush(struct client *c, int64_t now_ms)
{
	c->retry_at_ms = 0;
	while (c->nout) {
		struct client_answer *a = &c->out[c->out_first];
		bool file = a->memfd >= 0;
		int r = -ETOOMANYREFS;

		if (!file || may_send_file(c))
			r = ipc_send(c->fd, a->msg, a->len, &a->memfd, file ? 1 : 0);
		if (r == -EMSGSIZE) {
			r = to_file(c);
		} else if (r == 0) {
			c->files += file;
			drop_first(c);
		}
		if (r == -EAGAIN)
			return 0;
		if (r == -ETOOMANYREFS || r == -ENOBUFS || r == -ENOMEM) {
			c->retry_at_ms = now_ms + CLIENT_RETRY_MS;
			return 0;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/* Takes json; NULL: there was no memory for it. */
int client_put_json(struct client *c, uint64_t req, json_t *json)
{
	char *text = json ? json_dumps(json, DUMP_FLAGS) : NULL;
	int r = text ? client_put(c, req, 0, text, strlen(text)) : client_put(c, req, ENOMEM, NULL, 0);

	free(text);
	json_decref(json);
	return r;
}
