/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "auditor/auditor.h"
#include "auditor/record.h"
#include "auditor/view.h"
#include "core/cleanup.h"

#define READ_BATCH 64 /* queries taken in one go, so that one busy client does not keep the others waiting */
#define DUMP_FLAGS JSON_REAL_PRECISION(12)

void client_init(struct client *c, int fd)
{
	memset(c, 0, sizeof *c);
	c->fd = fd;
}

static void answer_drop(struct client *c)
{
	struct client_answer *a = &c->out[c->out_first];

	free(a->msg);
	if (a->memfd >= 0)
		close(a->memfd);
	c->out_bytes -= a->bytes;
	c->out_first = (c->out_first + 1) % CLIENT_OUT_MAX;
	c->nout--;
}

void client_close(struct client *c)
{
	while (c->nout)
		answer_drop(c);
	c->nparked = c->nruns = 0;
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

const char *client_query_problem(const struct query *q)
{
	if (!ipc_text_ok(q->run_id, sizeof q->run_id))
		return "run_id";
	if (!ipc_text_ok(q->project, sizeof q->project))
		return "project";
	return ipc_text_ok(q->agent, sizeof q->agent) ? NULL : "agent";
}

static bool has_room(const struct client *c)
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
static int answer(struct client *c, uint64_t req, uint32_t status, const char *text, size_t len)
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

static int flush(struct client *c, int64_t now_ms)
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
			answer_drop(c);
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

/* One project can't tell another's run from one that never was, nor one agent a call of another's. */
static bool visible(const struct view *v, const struct query *q)
{
	const char *project = view_project(v), *agent = view_agent(v);

	if (q->agent[0] && agent && strcmp(agent, q->agent) != 0)
		return false;
	return q->project[0] == 0 || (project && strcmp(project, q->project) == 0);
}

static int answer_json(struct client *c, uint64_t req, json_t *json)
{
	char *text = json ? json_dumps(json, DUMP_FLAGS) : NULL;
	int r = text ? answer(c, req, 0, text, strlen(text)) : answer(c, req, ENOMEM, NULL, 0);

	free(text);
	json_decref(json);
	return r;
}

static int answer_run(struct client *c, const struct store *store, const struct query *q)
{
	struct view *v = NULL;
	int r = store_run(store, q->run_id, &v);

	if (r == 0 && !visible(v, q))
		r = -ENOENT;
	if (r < 0)
		r = answer(c, q->req, (uint32_t)-r, NULL, 0);
	else if (q->type == QUERY_SUMMARY)
		r = answer_json(c, q->req, view_summary(v));
	else
		r = answer_json(c, q->req, view_run(v, store_state_names[store_state(store, q->run_id)]));
	view_free(v);
	return r;
}

/* Whether this summary can be had now. Another project's run looks like one whose end never comes. */
static bool summary_ready(const struct store *store, const struct query *q)
{
	char project[IPC_PROJECT_MAX];

	if (!store_run_ended(store, q->run_id))
		return false;
	return q->project[0] == 0 || (store_run_project(store, q->run_id, project) == 0 && strcmp(project, q->project) == 0);
}

static int take(struct client *c, struct store *store, const struct query *q, int64_t now_ms)
{
	if (client_query_problem(q))
		return answer(c, q->req, EINVAL, NULL, 0);
	if (q->type == QUERY_RUN) {
		if (c->nruns == CLIENT_RUNS_MAX)
			return answer(c, q->req, EAGAIN, NULL, 0);
		c->runs[c->nruns++] = *q;
		return 0;
	}
	if (q->type != QUERY_SUMMARY)
		return -EPROTO;
	if (summary_ready(store, q))
		return answer_run(c, store, q);
	c->parked[c->nparked++] = (struct client_parked){.query = *q, .deadline_ms = now_ms + AUDITOR_SUMMARY_WAIT_MS};
	return 0;
}

int client_read(struct client *c, struct store *store, int64_t now_ms)
{
	struct query q;

	for (int i = 0; i < READ_BATCH && has_room(c) && c->nparked < CLIENT_PARKED_MAX; i++) {
		ssize_t n = ipc_recv(c->fd, &q, sizeof q, NULL, NULL);
		int r;

		if (n == -EAGAIN)
			return 0;
		if (n == 0)
			return -EPIPE;
		if (n < 0)
			return (int)n;
		if (n != sizeof q || q.type == QUERY_NONE || q.type > QUERY_RUN)
			return -EPROTO;
		r = take(c, store, &q, now_ms);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Answers what can be answered. Returns how many that were, or a negative errno. */
static int answer_parked(struct client *c, struct store *store, int64_t now_ms)
{
	size_t kept = 0, before = c->nparked;
	int r = 0;

	for (size_t i = 0; i < before; i++) {
		const struct client_parked *p = &c->parked[i];
		bool late = now_ms >= p->deadline_ms;

		if (r == 0 && has_room(c) && summary_ready(store, &p->query))
			r = answer_run(c, store, &p->query);
		else if (r == 0 && has_room(c) && late)
			r = answer(c, p->query.req, ETIMEDOUT, NULL, 0);
		else
			c->parked[kept++] = *p;
	}
	c->nparked = kept;
	return r < 0 ? r : (int)(before - kept);
}

int client_pump(struct client *c, struct store *store, int64_t now_ms)
{
	int r;

	/* Sending makes room for more answers, and an empty queue would wake nobody to look again. */
	do {
		r = answer_parked(c, store, now_ms);
		if (r >= 0) {
			int sent = flush(c, now_ms);

			r = sent < 0 ? sent : r;
		}
	} while (r > 0);
	return r;
}

bool client_run_waits(const struct client *c)
{
	return c->fd >= 0 && c->nruns && has_room(c);
}

int client_answer_run(struct client *c, struct store *store)
{
	int r;

	if (!client_run_waits(c))
		return 0;
	r = answer_run(c, store, &c->runs[0]);
	memmove(c->runs, c->runs + 1, --c->nruns * sizeof c->runs[0]);
	return r < 0 ? r : 1;
}

uint32_t client_events(const struct client *c)
{
	uint32_t events = c->nout && !c->retry_at_ms ? EPOLLOUT : 0;

	return events | (has_room(c) && c->nparked < CLIENT_PARKED_MAX ? EPOLLIN : 0);
}

int64_t client_deadline(const struct client *c)
{
	int64_t first = c->retry_at_ms ? c->retry_at_ms : INT64_MAX;

	/* Without room nothing can be answered, however late: EPOLLOUT will wake us. */
	for (size_t i = 0; has_room(c) && i < c->nparked; i++)
		if (c->parked[i].deadline_ms < first)
			first = c->parked[i].deadline_ms;
	return first;
}
