/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec_report.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/confine.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "ipc/ipc.h"
#include "kernel/confine.h"
#include "supervisor/governed.h"
#include "supervisor/supervisor.h"

#define ANSWER_S 10	     /* for the auditor to have the run's end and to answer */
#define ANSWER_MAX (8 << 20) /* some thousand events, each a kilobyte */
#define CONTROL_S 3600	     /* one wait for the root process, of as many as it takes */
#define LINES_MAX 16
#define CELL_MAX 1100

/* ---- asking the auditor ---- */

/* 1 when it is, 0 when not yet, or when somebody should look at the clock. */
static int wait_readable(int fd, uint64_t until_ns)
{
	uint64_t now = clock_now_ns();
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int n = now >= until_ns ? 0 : poll(&p, 1, (int)((until_ns - now) / 1000000) + 1);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n;
}

/* The text of an answer, from the message or the file that came with it. */
static int answer_text(const char *inside, size_t inside_len, int file, size_t len, char **ret)
{
	_cleanup_free_ char *text = NULL;
	size_t done = 0;

	if (len > ANSWER_MAX || (file < 0 && inside_len != len))
		return -EBADMSG;
	text = malloc(len + 1);
	if (!text)
		return -ENOMEM;
	if (file < 0)
		memcpy(text, inside, done = len);
	while (done < len) {
		ssize_t n = pread(file, text + done, len - done, (off_t)done);

		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG;
		done += (size_t)n;
	}
	text[len] = 0;
	*ret = TAKE_PTR(text);
	return 0;
}

static int receive_answer(int fd, uint64_t req, uint64_t until_ns, char **ret, size_t *ret_len)
{
	static char buf[sizeof(struct answer) + ANSWER_INLINE_MAX];
	struct answer head;

	for (;;) {
		int rc = wait_readable(fd, until_ns);
		int file = -1;
		size_t files = 1;
		ssize_t n;

		if (rc < 0)
			return rc;
		if (clock_now_ns() >= until_ns)
			return -ETIMEDOUT;
		n = ipc_recv(fd, buf, sizeof buf, &file, &files);
		if (n == -EAGAIN)
			continue;
		if (n < (ssize_t)sizeof head)
			return n < 0 ? (int)n : -EPIPE;
		memcpy(&head, buf, sizeof head);
		rc = head.status ? -(int)head.status
				 : answer_text(buf + sizeof head, (size_t)n - sizeof head, files ? file : -1, head.len, ret);
		if (files)
			close(file);
		if (head.req != req)
			continue;
		*ret_len = head.len;
		return rc;
	}
}

static int ask(const struct exec_report *r, enum query_type type, uint64_t req, uint64_t until_ns, json_t **ret)
{
	struct query q = {.type = type, .req = req};
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	int rc;

	snprintf(q.run_id, sizeof q.run_id, "%s", r->run_id);
	rc = ipc_send(r->auditor_fd, &q, sizeof q, NULL, 0);
	if (rc == 0)
		rc = receive_answer(r->auditor_fd, req, until_ns, &text, &len);
	if (rc < 0)
		return rc;
	*ret = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	return *ret ? 0 : -EBADMSG;
}

/*
 * The whole record. Its end is on its way to the auditor on another socket and may be a moment late, for which a summary waits.
 * That we have nothing to add to the record is what completes it.
 */
static int whole_record(const struct exec_report *r, json_t **ret)
{
	uint64_t until = clock_now_ns() + ANSWER_S * SECOND_NS, req = 1;
	json_t *summary = NULL;
	int rc;

	do
		rc = ask(r, QUERY_SUMMARY, req++, until, &summary);
	while (rc == -ETIMEDOUT && clock_now_ns() < until);
	json_decref(summary);
	return rc < 0 ? rc : ask(r, QUERY_RUN, req, until, ret);
}

/* ---- the record, one JSON object a line ---- */

static int write_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_line(int fd, const char *type, const json_t *members)
{
	json_t *line = json_pack("{s:s}", "type", type);
	_cleanup_free_ char *text = NULL;
	int rc;

	if (line && json_object_update_missing(line, (json_t *)members) == 0)
		text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(12) | JSON_ENSURE_ASCII);
	json_decref(line);
	if (!text)
		return -ENOMEM;
	rc = write_all(fd, text, strlen(text));
	return rc < 0 ? rc : write_all(fd, "\n", 1);
}

/* First the run, then each of its events. */
static int write_record(int fd, json_t *run)
{
	json_t *events = json_incref(json_object_get(run, "events")), *event;
	size_t i;
	int rc;

	json_object_del(run, "events");
	rc = write_line(fd, "run", run);
	json_array_foreach(events, i, event)
	{
		if (rc == 0)
			rc = write_line(fd, "event", event);
	}
	(void)json_object_set_new(run, "events", events ? events : json_array());
	return rc;
}

/* ---- the summary ---- */

/* The record is ASCII already; but whoever made it read what the command wrote, and a terminal obeys control characters. */
static const char *cell(char *buf, const json_t *value)
{
	if (json_is_string(value))
		snprintf(buf, CELL_MAX, "%s", json_string_value(value));
	else if (json_is_integer(value))
		snprintf(buf, CELL_MAX, "%lld", (long long)json_integer_value(value));
	else
		snprintf(buf, CELL_MAX, "?");
	for (char *p = buf; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	return buf;
}

#define GET(object, name) cell((char[CELL_MAX]){0}, json_object_get(object, name))

static bool has(const json_t *object, const char *name)
{
	const json_t *v = json_object_get(object, name);

	return v && !json_is_null(v);
}

static bool is_denied(const json_t *event)
{
	const char *verdict = json_string_value(json_object_get(event, "verdict"));

	return verdict && (!strcmp(verdict, "denied") || !strcmp(verdict, "would_deny"));
}

static void put_destination(FILE *to, const json_t *event)
{
	const char *address = json_string_value(json_object_get(event, "address"));
	bool brackets = has(event, "port") && address && strchr(address, ':');

	/* Of what came from outside, the address is the sender's and the port our own. */
	fprintf(to, "  %s%s", GET(event, "protocol"), strcmp(GET(event, "hook"), "ingress") ? "" : " from");
	if (has(event, "address"))
		fprintf(to, " %s%s%s", brackets ? "[" : "", GET(event, "address"), brackets ? "]" : "");
	if (has(event, "port"))
		fprintf(to, ":%s", GET(event, "port"));
	else if (has(event, "icmp_type"))
		fprintf(to, " type %s", GET(event, "icmp_type"));
	if (has(event, "dns_name"))
		fprintf(to, "  %s %s", GET(event, "dns_type"), GET(event, "dns_name"));
}

static void put_reason(FILE *to, const json_t *event)
{
	const json_t *decode = json_object_get(event, "decode"), *step;
	size_t i;

	fprintf(to, "  %s", GET(event, "reason"));
	if (has(event, "rule_name") || has(event, "rule"))
		fprintf(to, " %s", has(event, "rule_name") ? GET(event, "rule_name") : GET(event, "rule"));
	if (has(event, "decode_kind"))
		fprintf(to, "  read as %s", GET(event, "decode_kind"));
	json_array_foreach(decode, i, step)
	{
		fprintf(to, "%s%s", i ? " -> " : ": ", cell((char[CELL_MAX]){0}, step));
	}
}

/* One for each way to be denied at each destination, whichever process or call it was. */
struct line {
	char *text; /* owned */
	json_int_t count;
};

static char *text_of(const json_t *event)
{
	char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);

	if (!to)
		return NULL;
	put_destination(to, event);
	put_reason(to, event);
	if (!strcmp(GET(event, "verdict"), "would_deny"))
		fprintf(to, "  (passed: mode monitor)");
	if (fclose(to) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

static size_t gather(const json_t *events, struct line *lines)
{
	size_t n = 0, i, k;
	const json_t *event;

	json_array_foreach(events, i, event)
	{
		char *text = is_denied(event) ? text_of(event) : NULL;

		if (!text)
			continue;
		for (k = 0; k < n && strcmp(lines[k].text, text) != 0; k++)
			;
		if (k == n)
			lines[n++] = (struct line){.text = text};
		else
			free(text);
		lines[k].count += json_integer_value(json_object_get(event, "count"));
	}
	return n;
}

/* Sorting that leaves equals as they came. */
static void most_first(struct line *lines, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct line x = lines[i];
		size_t k = i;

		for (; k > 0 && lines[k - 1].count < x.count; k--)
			lines[k] = lines[k - 1];
		lines[k] = x;
	}
}

static void put_summary(FILE *to, const json_t *run, const struct line *lines, size_t n)
{
	const json_t *egress = json_object_get(run, "egress");
	json_int_t denied = json_integer_value(json_object_get(egress, "denied"));
	json_int_t would = json_integer_value(json_object_get(egress, "would_deny"));
	json_int_t lost = json_integer_value(json_object_get(egress, "lost"));
	json_int_t inbound = json_integer_value(json_object_get(egress, "inbound"));

	if (denied || would || lost)
		fprintf(to, "weir: %s %lld of %lld attempts%s\n", would && !denied ? "would have denied" : "denied",
			(long long)(denied ? denied : would),
			(long long)json_integer_value(json_object_get(egress, "attempts")),
			would && denied ? ", by a policy that was in mode monitor for a while" : "");
	if (inbound)
		fprintf(to, "weir: %lld %s from outside that nobody asked for (the policy's `inbound`)\n", (long long)inbound,
			inbound == 1 ? "packet" : "packets");
	for (size_t i = 0; i < n && i < LINES_MAX; i++)
		fprintf(to, "%s  x%lld\n", lines[i].text, (long long)lines[i].count);
	if (n > LINES_MAX)
		fprintf(to, "  and %zu more; --json FILE has them all\n", n - LINES_MAX);
	if (lost)
		fprintf(to, "  %lld more are counted only: their details were lost\n", (long long)lost);
}

static int tell_summary(const json_t *run)
{
	const json_t *events = json_object_get(run, "events");
	_cleanup_free_ struct line *lines = calloc(json_array_size(events) + 1, sizeof *lines);
	_cleanup_free_ char *text = NULL;
	FILE *to = NULL;
	size_t n, len;

	if (!lines)
		return -ENOMEM;
	n = gather(events, lines);
	most_first(lines, n);
	to = open_memstream(&text, &len);
	if (to)
		put_summary(to, run, lines, n);
	for (size_t i = 0; i < n; i++)
		free(lines[i].text);
	if (!to || fclose(to) != 0)
		return -ENOMEM;
	return write_all(STDERR_FILENO, text, len);
}

static int fail(const char *what, int rc)
{
	fprintf(stderr, "weir: %s: %s\n", what, strerror(-rc));
	return 1;
}

static int tell(const struct exec_report *r)
{
	json_t *run = NULL;
	int status = 0, rc;

	if (r->quiet && r->json_fd < 0)
		return 0;
	rc = whole_record(r, &run);
	if (rc < 0)
		return fail("what was denied can't be told: no answer from the auditor", rc);
	if (r->json_fd >= 0 && (rc = write_record(r->json_fd, run)) < 0)
		status = fail("the record was not written whole", rc);
	if (!r->quiet)
		(void)tell_summary(run); /* the reader of our output may have gone */
	json_decref(run);
	return status;
}

/* ---- the process ---- */

static int confine(const struct exec_report *r, struct err *e)
{
	const int keep[] = {r->control_fd, r->auditor_fd, r->json_fd};
	int rc = confine_fds("report", keep, sizeof keep / sizeof keep[0], e);

	json_object_seed(0); /* reads a file, which is not possible later */
	/* Not to die with the root process: that is when it is needed. */
	return rc < 0 ? rc : api_confine(UID_API, UID_API, 0, e);
}

int exec_report_main(const struct exec_report *r)
{
	struct err e = {0};
	int kill_fd = -1;

	if (confine(r, &e) < 0) {
		fprintf(stderr, "weir: %s: %s\n", e.where, e.msg);
		return 1;
	}
	for (;;) {
		char what = 0;
		int fd = -1;
		size_t fds = 1;
		ssize_t n;

		if (wait_readable(r->control_fd, clock_now_ns() + CONTROL_S * SECOND_NS) < 0)
			break;
		n = ipc_recv(r->control_fd, &what, 1, &fd, &fds);
		if (n == -EAGAIN)
			continue;
		if (n == 1 && what == GOVERNED_KEEP[0] && fds == 1 && kill_fd < 0) {
			kill_fd = fd;
			continue;
		}
		if (n == 1 && what == EXEC_REPORT_TELL[0])
			return tell(r);
		break;
	}
	if (kill_fd >= 0)
		(void)!write(kill_fd, "1", 1); /* gone already when all went well */
	return 1;
}
