/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"

#define SCAN_CHUNK (1u << 20)

void segment_close(struct segment *s)
{
	if (s->fd >= 0)
		close(s->fd);
	index_clear(&s->index);
	*s = SEGMENT_NONE;
}

int segment_open(struct segment *ret, int dir, const char *name, int flags, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct stat st;

	if (fd < 0)
		return err_errno(e, errno, "audit", "can't open the record file %s", name);
	if (fstat(fd, &st) < 0)
		return err_errno(e, errno, "audit", "can't examine the record file %s", name);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "audit", "the record file %s is not a regular file; move it away", name);
	*ret = SEGMENT_NONE;
	ret->fd = TAKE_FD(fd);
	return 0;
}

void segment_added(struct segment *s, const struct record_head *head, const char *gap_kind, uint64_t offset, uint32_t len)
{
	if (head->seq > s->last_seq)
		s->last_seq = head->seq;
	if (gap_kind && strcmp(gap_kind, RECORD_GAP_INTERRUPTED) == 0)
		s->interrupted_seq = head->seq;
	if (head->run_id[0] && (offset > UINT32_MAX || index_add(&s->index, head, (uint32_t)offset, len) < 0))
		s->unindexed++;
}

static void scan_line(struct segment *s, const char *line, size_t len, uint64_t offset)
{
	struct record_head head;
	json_t *gap = NULL;

	if (!record_head_parse(&head, line, len)) {
		s->unreadable++;
		return;
	}
	if (head.type == RECORD_GAP)
		gap = json_loadb(line, len, 0, NULL);
	segment_added(s, &head, json_string_value(json_object_get(gap, "kind")), offset, (uint32_t)len);
	json_decref(gap);
}

int segment_scan(struct segment *s, uint64_t *ret_torn, struct err *e)
{
	_cleanup_free_ char *buf = NULL;
	bool skipping = false; /* inside a line too long to be ours */
	uint64_t at = s->end;  /* where buf starts in the file */
	struct stat st;
	size_t have = 0;

	if (fstat(s->fd, &st) < 0)
		return err_errno(e, errno, "audit", "can't examine a record file");
	if ((uint64_t)st.st_size < s->end)
		return err_set(e, ESTALE, "audit", "a record file has become shorter: somebody else has cut it");
	*ret_torn = 0;
	if ((uint64_t)st.st_size == s->end)
		return 0;
	buf = malloc(SCAN_CHUNK);
	if (!buf)
		return err_set(e, ENOMEM, "audit", "no memory to read a record file");
	for (;;) {
		ssize_t n = pread(s->fd, buf + have, SCAN_CHUNK - have, (off_t)(at + have));
		char *line = buf, *nl;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, errno, "audit", "can't read a record file");
		if (n == 0)
			break;
		have += (size_t)n;
		while ((nl = memchr(line, '\n', have - (size_t)(line - buf)))) {
			if (skipping || nl - line >= RECORD_LINE_MAX)
				s->unreadable++;
			else
				scan_line(s, line, (size_t)(nl - line), at + (uint64_t)(line - buf));
			skipping = false;
			line = nl + 1;
			s->end = at + (uint64_t)(line - buf);
		}
		have -= (size_t)(line - buf);
		at += (uint64_t)(line - buf);
		memmove(buf, line, have);
		if (have == SCAN_CHUNK) {
			skipping = true;
			at += have;
			have = 0;
		}
	}
	*ret_torn = at + have - s->end;
	return 0;
}

json_t *segment_read(const struct segment *s, const struct index_line *line)
{
	char buf[RECORD_LINE_MAX];
	ssize_t n;

	if (line->len > sizeof buf)
		return NULL;
	do
		n = pread(s->fd, buf, line->len, line->offset);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)line->len ? json_loadb(buf, line->len, 0, NULL) : NULL;
}
