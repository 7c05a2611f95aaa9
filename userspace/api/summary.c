/* SPDX-License-Identifier: Apache-2.0 */
/* The last of a run's states: what it left is hashed, the auditor is told of all that was seen, and answers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/runclient_priv.h"
#include "auditor/auditor.h"
#include "core/log.h"

/* The auditor does not keep a run open for ever for what its client has seen. */
#define CONTENT_LATEST_MS 2500
_Static_assert(CONTENT_LATEST_MS < AUDITOR_CONTENT_WAIT_MS / 2 + 1, "it has it in good time");
/* Of the files that a run left, hashed in one step. */
#define CONTENT_PIECE (1u << 20)

void summary_expect(struct run *run)
{
	run->summary_ns = clock_now_ns() + CONTENT_LATEST_MS * (SECOND_NS / 1000);
}

/* The next piece of what it left: all of it at once would keep the others waiting. Returns whether that was all. */
static bool sum_up_files(struct run *run)
{
	const struct run_files *f = &run->result.files;
	size_t budget = CONTENT_PIECE, next = run->files_at;
	struct collected_entry e;
	const char *path, *content;

	if (!f->problem && !run->result.call)
		content_open(&run->content, CONTENT_FILES_OUT);
	while (budget > 0 && run_files_next(f, &next, &e, &path, &content)) {
		size_t n = e.kind == COLLECTED_FILE ? e.size - run->file_at : 0;

		if (e.kind == COLLECTED_FILE && run->file_at == 0) {
			content_add(&run->content, CONTENT_FILES_OUT, path, e.path_len);
			content_add(&run->content, CONTENT_FILES_OUT, "", 1);
		}
		if (n > budget)
			n = budget;
		if (n > 0)
			content_add(&run->content, CONTENT_FILES_OUT, content + run->file_at, n);
		budget -= n;
		run->file_at += n;
		if (e.kind == COLLECTED_FILE && run->file_at < e.size)
			return false;
		run->files_at = next;
		run->file_at = 0;
	}
	return budget > 0;
}

/* Everything the auditor has to know is known: it sums the run up, and says what came of it. */
static void ask_summary(struct runclient *rc, struct run *run)
{
	struct query q = {.type = QUERY_SUMMARY, .req = run->req};
	int fd;

	run->asked = true;
	run->summary_ns = clock_now_ns() + RUNCLIENT_SUMMARY_MS * (SECOND_NS / 1000);
	memcpy(q.run_id, run->result.grant.run_id, sizeof q.run_id);
	memcpy(q.project, run->project, sizeof q.project);
	content_open(&run->content, CONTENT_STDOUT);
	content_open(&run->content, CONTENT_STDERR);
	content_sum_up(&run->content, &q.content);
	if (!q.content.told)
		log_error("run %s: out of memory: its record has no hashes of what it ran and wrote", q.run_id);
	fd = q.content.stored ? content_memfd(&run->content) : -ENODATA;
	if (fd < 0 && q.content.stored) {
		log_error("run %s: what it ran and wrote can't be stored: %s", q.run_id, strerror(-fd));
		q.content.stored = 0;
		for (int kind = 0; kind < CONTENT_KINDS; kind++)
			q.content.of[kind].stored = 0;
	}
	if (peer_send(rc, &rc->auditor, &q, fd < 0 ? -1 : fd) < 0) {
		log_error("run %s: no auditor to ask; its answer has counters only", q.run_id);
		run->summarised = true;
	}
}

/* Whether there is still something to wait for. */
void run_settle(struct runclient *rc, struct run *run)
{
	bool collected = run->collect == COLLECT_DONE;

	if (collected)
		run_ask_collected(rc, run);
	if (!run->asked && collected) {
		if (sum_up_files(run))
			ask_summary(rc, run);
		else
			run->summary_ns = clock_now_ns() + 1; /* the rest in the next step */
	}
	if (run->summarised && collected)
		run_complete(rc, run);
	else
		run_arm_summary(run);
}

void run_summary(struct runclient *rc, struct run *run, int status, const char *text, size_t len)
{
	struct run_result *r = &run->result;

	if (run->summarised)
		return; /* too late: the answer waits only for files by now */
	run->asked = run->summarised = true;
	if (status == 0) {
		r->summary = malloc(len + 1);
		if (r->summary) {
			memcpy(r->summary, text, len);
			r->summary[len] = 0;
			r->summary_len = len;
		}
	} else {
		log_error("run %s: the auditor has no summary: %s", r->grant.run_id, strerror(status));
	}
	run_settle(rc, run);
}

/* The auditor did not answer in time; or the collector is slow, and then the record does without the hash of the files. */
void summary_expired(struct runclient *rc, struct run *run)
{
	if (!run->asked) {
		if (run->collect != COLLECT_DONE)
			ask_summary(rc, run);
		return;
	}
	log_error("run %s: no summary from the auditor within %d ms; its answer has counters only", run->result.grant.run_id,
		  RUNCLIENT_SUMMARY_MS);
	run->summarised = true;
}
