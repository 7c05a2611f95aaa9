/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/client.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auditor/auditor.h"
#include "auditor/client_out.h"
#include "auditor/record.h"
#include "auditor/view.h"
#include "core/cleanup.h"

#define READ_BATCH 64 /* queries taken in one go, so that one busy client does not keep the others waiting */
#define WANT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

void client_init(struct client *c, int fd, bool store_content)
{
	memset(c, 0, sizeof *c);
	c->fd = fd;
	c->store_content = store_content;
}

static void drop_content(struct client *c, struct client_parked *p)
{
	if (!p->content)
		return;
	(void)munmap((void *)p->content, p->content_len);
	p->content = NULL;
	c->ncontents--;
}

void client_close(struct client *c)
{
	client_drop_answers(c);
	for (size_t i = 0; i < c->nparked; i++)
		drop_content(c, &c->parked[i]);
	c->nparked = c->nslow = c->nfollows = 0;
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static const char *find_problem(const struct find *f)
{
	if (!ipc_text_ok(f->project, sizeof f->project))
		return "find.project";
	if (!ipc_text_ok(f->policy, sizeof f->policy))
		return "find.policy";
	if (!ipc_text_ok(f->caller, sizeof f->caller))
		return "find.caller";
	if (!ipc_text_ok(f->agent, sizeof f->agent))
		return "find.agent";
	return ipc_text_ok(f->destination, sizeof f->destination) ? NULL : "find.destination";
}

const char *client_query_problem(const struct query *q)
{
	const char *problem;

	if (!ipc_text_ok(q->run_id, sizeof q->run_id))
		return "run_id";
	if (!ipc_text_ok(q->project, sizeof q->project))
		return "project";
	if (!ipc_text_ok(q->agent, sizeof q->agent))
		return "agent";
	problem = find_problem(&q->find);
	return problem ? problem : record_content_problem(&q->content);
}

/* One project can't tell another's run from one that never was, nor one agent a call of another's. */
static bool visible(const struct view *v, const struct query *q)
{
	const char *project = view_project(v), *agent = view_agent(v);

	if (q->agent[0] && agent && strcmp(agent, q->agent) != 0)
		return false;
	return q->project[0] == 0 || (project && strcmp(project, q->project) == 0);
}

/* ---- summaries, which complete a run's record ---- */

static json_t *summary_json(const struct store *store, const char *run_id, const struct view *v)
{
	uint8_t hash[CHAIN_HASH];
	char hex[2 * CHAIN_HASH + 1];
	bool chained = store_run_hash(store, run_id, hash) == 0;

	if (chained)
		chain_hex(hash, hex);
	return json_pack("{s:o, s:s?}", "egress", view_summary(v), "audit_hash", chained ? hex : NULL);
}

static int answer_run(struct client *c, const struct store *store, const struct query *q)
{
	struct view *v = NULL;
	int r = store_run(store, q->run_id, &v);

	if (r == 0 && !visible(v, q))
		r = -ENOENT;
	if (r < 0)
		r = client_put(c, q->req, (uint32_t)-r, NULL, 0);
	else if (q->type == QUERY_SUMMARY)
		r = client_put_json(c, q->req, summary_json(store, q->run_id, v));
	else
		r = client_put_json(c, q->req, view_run(v, store_state_names[store_state(store, q->run_id)]));
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

static bool is_due(const struct client_parked *p, const struct store *store)
{
	return !p->completed && summary_ready(store, &p->query);
}

bool client_completes(struct client *c, const struct store *store, uint64_t ends)
{
	if (c->seen_ends == ends)
		return false;
	c->seen_ends = ends;
	for (size_t i = 0; i < c->nparked; i++)
		if (is_due(&c->parked[i], store))
			return true;
	return false;
}

size_t client_complete(struct client *c, struct store *store)
{
	uint8_t hash[CHAIN_HASH];
	size_t late = 0;

	for (size_t i = 0; i < c->nparked; i++) {
		struct client_parked *p = &c->parked[i];

		if (!is_due(p, store))
			continue;
		p->completed = true;
		/* What was told of it once stands. */
		if (store_run_hash(store, p->query.run_id, hash) == 0) {
			late += p->query.content.told != 0;
			continue;
		}
		if (p->query.content.told)
			store_append_content(store, p->query.run_id, &p->query.content, p->content);
		(void)store_finish(
		    store, p->query.run_id); /* the answer has no hash then; who looks for those that are left says why */
	}
	return late;
}

/* Answers what can be answered. Returns how many that were, or a negative errno. */
static int answer_parked(struct client *c, struct store *store, int64_t now_ms)
{
	size_t kept = 0, before = c->nparked;
	int r = 0;

	for (size_t i = 0; i < before; i++) {
		struct client_parked *p = &c->parked[i];
		bool late = now_ms >= p->deadline_ms;

		if (r < 0 || !client_has_room(c) || (!p->completed && !late)) {
			if (kept++ != i)
				c->parked[kept - 1] = *p;
			continue;
		}
		r = p->completed ? answer_run(c, store, &p->query) : client_put(c, p->query.req, ETIMEDOUT, NULL, 0);
		drop_content(c, p);
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
			int sent = client_flush(c, now_ms);

			r = sent < 0 ? sent : r;
		}
	} while (r > 0);
	return r;
}

/* ---- taking queries ---- */

/* Maps what is to be stored, as it can't be changed any more. -EINVAL: it is not what the query says it is. */
static int map_content(struct client_parked *p, int fd)
{
	const struct content_told *told = &p->query.content;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	size_t want = 0;
	void *at;

	for (int kind = 0; kind < CONTENT_KINDS; kind++)
		want += told->stored >> kind & 1 ? told->of[kind].stored : 0;
	if (seals < 0 || (seals & WANT_SEALS) != WANT_SEALS || fstat(fd, &st) < 0 || st.st_size != (off_t)want)
		return -EINVAL;
	if (!want)
		return 0;
	at = mmap(NULL, want, PROT_READ, MAP_PRIVATE, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	p->content = at;
	p->content_len = want;
	return 0;
}

static int park_summary(struct client *c, const struct query *q, int fd, int64_t now_ms)
{
	struct client_parked *p = &c->parked[c->nparked];
	int r = 0;

	*p = (struct client_parked){.query = *q, .deadline_ms = now_ms + AUDITOR_SUMMARY_WAIT_MS};
	if ((fd >= 0) != (q->content.stored != 0))
		r = -EINVAL;
	else if (fd >= 0)
		r = map_content(p, fd);
	if (r < 0)
		return client_put(c, q->req, (uint32_t)-r, NULL, 0);
	c->nparked++;
	c->seen_ends = 0;
	c->ncontents += p->content != NULL;
	if (!c->store_content) {
		/* The record says no more was stored than was. */
		drop_content(c, p);
		p->query.content.stored = 0;
	}
	return 0;
}

static int park_follow(struct client *c, const struct query *q, int64_t now_ms)
{
	if (c->nfollows == CLIENT_FOLLOWS_MAX)
		return client_put(c, q->req, EAGAIN, NULL, 0);
	c->follows[c->nfollows++] = (struct client_parked){.query = *q, .deadline_ms = now_ms + AUDITOR_FOLLOW_WAIT_MS};
	return 0;
}

/* Borrows fd, -1 for none. */
static int take(struct client *c, const struct query *q, int fd, int64_t now_ms)
{
	if (client_query_problem(q) || (fd >= 0 && q->type != QUERY_SUMMARY))
		return client_put(c, q->req, EINVAL, NULL, 0);
	if (q->type == QUERY_SUMMARY)
		return park_summary(c, q, fd, now_ms);
	if (q->type == QUERY_FOLLOW)
		return park_follow(c, q, now_ms);
	if (c->nslow == CLIENT_SLOW_MAX)
		return client_put(c, q->req, EAGAIN, NULL, 0);
	c->slow[c->nslow++] = *q;
	return 0;
}

static bool may_read(const struct client *c)
{
	return client_has_room(c) && c->nparked < CLIENT_PARKED_MAX && c->ncontents < CLIENT_CONTENTS_MAX;
}

int client_read(struct client *c, int64_t now_ms)
{
	struct query q;

	for (int i = 0; i < READ_BATCH && may_read(c); i++) {
		_cleanup_fd_ int fd = -1;
		size_t fds = 1;
		ssize_t n = ipc_recv(c->fd, &q, sizeof q, &fd, &fds);
		int r;

		if (n == -EAGAIN)
			return 0;
		if (n == 0)
			return -EPIPE;
		if (n < 0)
			return (int)n;
		if (n != sizeof q || q.type == QUERY_NONE || q.type >= QUERY_TYPES)
			return -EPROTO;
		r = take(c, &q, fds ? fd : -1, now_ms);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- what takes long ---- */

static int answer_found(struct client *c, uint64_t req, int r, json_t *found)
{
	return r < 0 ? client_put(c, req, (uint32_t)-r, NULL, 0) : client_put_json(c, req, found);
}

static int answer_slow(struct client *c, struct store *store, const struct query *q)
{
	json_t *found = NULL;
	int r;

	if (q->type == QUERY_RUN)
		return answer_run(c, store, q);
	if (q->type == QUERY_SEARCH)
		r = store_search(store, &q->find, q->project, q->agent, &found);
	else
		r = store_figures(store, &found);
	return answer_found(c, q->req, r, found);
}

static bool follow_is_due(const struct client_parked *p, uint64_t last_seq, int64_t now_ms)
{
	return p->query.find.after == UINT64_MAX || p->looked != last_seq || now_ms >= p->deadline_ms;
}

static json_t *from_now_on(uint64_t last_seq)
{
	return json_pack("{s:[], s:I}", "records", "cursor", (json_int_t)last_seq);
}

/* Looks for records after the cursor. 1 answered, 0 there is none yet. */
static int follow(struct client *c, struct store *store, struct client_parked *p, uint64_t last_seq, int64_t now_ms)
{
	const uint64_t end = store_last_seq(store);
	struct find *f = &p->query.find;
	json_t *found = NULL;
	int r = 0;

	if (f->after == UINT64_MAX)
		found = from_now_on(last_seq);
	else
		r = store_follow(store, f, p->query.project, p->query.agent, &found);
	if (r == 0 && f->after != UINT64_MAX && now_ms < p->deadline_ms &&
	    !json_array_size(json_object_get(found, "records"))) {
		/* What was looked at is not looked at again; what was not is, without waiting for something new. */
		f->after = (uint64_t)json_integer_value(json_object_get(found, "cursor"));
		if (f->after >= end)
			p->looked = last_seq;
		json_decref(found);
		return 0;
	}
	r = answer_found(c, p->query.req, r, found);
	return r < 0 ? r : 1;
}

static int answer_follow(struct client *c, struct store *store, uint64_t last_seq, int64_t now_ms)
{
	for (size_t i = 0; i < c->nfollows; i++) {
		size_t at = (c->next_follow + i) % c->nfollows;
		int r;

		if (!follow_is_due(&c->follows[at], last_seq, now_ms))
			continue;
		r = follow(c, store, &c->follows[at], last_seq, now_ms);
		c->next_follow = at + 1;
		if (r > 0)
			c->follows[at] = c->follows[--c->nfollows];
		return r < 0 ? r : 1;
	}
	return 0;
}

static bool follow_waits(const struct client *c, uint64_t last_seq, int64_t now_ms)
{
	for (size_t i = 0; i < c->nfollows; i++)
		if (follow_is_due(&c->follows[i], last_seq, now_ms))
			return true;
	return false;
}

bool client_slow_waits(const struct client *c, uint64_t last_seq, int64_t now_ms)
{
	return c->fd >= 0 && client_has_room(c) && (c->nslow || follow_waits(c, last_seq, now_ms));
}

int client_answer_slow(struct client *c, struct store *store, uint64_t last_seq, int64_t now_ms)
{
	int r;

	if (!client_slow_waits(c, last_seq, now_ms))
		return 0;
	/* In turns, so that neither kind waits for the other's end. */
	c->follows_turn = !c->follows_turn;
	if (!c->nslow || (c->follows_turn && follow_waits(c, last_seq, now_ms)))
		return answer_follow(c, store, last_seq, now_ms);
	r = answer_slow(c, store, &c->slow[0]);
	memmove(c->slow, c->slow + 1, --c->nslow * sizeof c->slow[0]);
	return r < 0 ? r : 1;
}

/* ---- when to come back ---- */

uint32_t client_events(const struct client *c)
{
	uint32_t events = c->nout && !c->retry_at_ms ? EPOLLOUT : 0;

	return events | (may_read(c) ? EPOLLIN : 0);
}

static int64_t earliest(int64_t first, const struct client_parked *of, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (of[i].deadline_ms < first)
			first = of[i].deadline_ms;
	return first;
}

int64_t client_deadline(const struct client *c)
{
	int64_t first = c->retry_at_ms ? c->retry_at_ms : INT64_MAX;

	/* Without room nothing can be answered, however late: EPOLLOUT will wake us. */
	if (!client_has_room(c))
		return first;
	return earliest(earliest(first, c->parked, c->nparked), c->follows, c->nfollows);
}
