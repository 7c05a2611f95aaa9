/* SPDX-License-Identifier: Apache-2.0 */
#include "api/content.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/limits.h"

void content_open(struct content *c, enum content_kind kind)
{
	gnutls_hash_hd_t hash;

	if (c->of[kind].hash || c->failed)
		return;
	if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) < 0)
		c->failed = true;
	else
		c->of[kind].hash = hash;
}

/* The beginning of each, as far as there is memory: what is stored is never more than a part. */
static void store(struct content *c, enum content_kind kind, const void *data, size_t len)
{
	size_t have = c->of[kind].stored_len, room = LIMIT_AUDIT_CONTENT_BYTES - have;
	char *grown;

	if (len > room)
		len = room;
	if (!c->keep || len == 0)
		return;
	grown = realloc(c->of[kind].stored, have + len);
	if (!grown)
		return;
	memcpy(grown + have, data, len);
	c->of[kind].stored = grown;
	c->of[kind].stored_len = have + len;
}

void content_add(struct content *c, enum content_kind kind, const void *data, size_t len)
{
	content_open(c, kind);
	if (c->failed)
		return;
	if (len > 0 && gnutls_hash(c->of[kind].hash, data, len) < 0)
		c->failed = true;
	store(c, kind, data, len);
	c->of[kind].bytes += len;
	c->of[kind].kept += len;
}

void content_count(struct content *c, enum content_kind kind, uint64_t bytes)
{
	content_open(c, kind);
	c->of[kind].bytes += bytes;
}

/* ---- of a request ---- */

/* One step through the files: what belongs to one thing. Returns how much that was. */
static size_t file_step(struct content *c, const char *data, size_t len)
{
	struct content_place *p = &c->place;
	const size_t sizes[] = {
	    [CONTENT_AT_HEAD] = sizeof p->head, [CONTENT_AT_PATH] = p->head.path_len, [CONTENT_AT_DATA] = p->head.size};
	size_t left = sizes[p->in] - p->got, n = len < left ? len : left;

	if (p->in == CONTENT_AT_HEAD)
		memcpy((char *)&p->head + p->got, data, n);
	else
		content_add(c, CONTENT_FILES_IN, data, n);
	p->got += n;
	if (n < left)
		return n;
	if (p->in == CONTENT_AT_PATH)
		content_add(c, CONTENT_FILES_IN, "", 1);
	p->got = 0;
	p->in = p->in == CONTENT_AT_DATA ? CONTENT_AT_HEAD : p->in + 1;
	if (p->in == CONTENT_AT_DATA && p->head.size == 0)
		p->in = CONTENT_AT_HEAD;
	return n;
}

/* What of [from, from + len) lies in a part that begins at `at`: added. */
static void add_part(struct content *c, enum content_kind kind, size_t at, size_t part_len, size_t from, const char *data,
		     size_t len)
{
	size_t begin = from > at ? from : at;
	size_t end = from + len < at + part_len ? from + len : at + part_len;

	if (begin < end)
		content_add(c, kind, data + (begin - from), end - begin);
}

void content_request(struct content *c, const struct request_header *h, size_t from, const char *data, size_t len)
{
	const size_t code = sizeof *h, arguments = code + h->code_len, files = arguments + h->stdin_len + h->env_len;

	content_open(c, CONTENT_CODE);
	if (h->flags & (REQUEST_STDIN | REQUEST_CALL))
		content_open(c, CONTENT_ARGUMENTS);
	if (h->file_count)
		content_open(c, CONTENT_FILES_IN);
	add_part(c, CONTENT_CODE, code, h->code_len, from, data, len);
	add_part(c, CONTENT_ARGUMENTS, arguments, h->stdin_len, from, data, len);
	if (from + len <= files)
		return;
	if (from < files) {
		data += files - from;
		len -= files - from;
	}
	while (len > 0) {
		size_t n = file_step(c, data, len);

		data += n;
		len -= n;
	}
}

static void forget(struct content *c, enum content_kind kind)
{
	if (c->of[kind].hash)
		gnutls_hash_deinit(c->of[kind].hash, NULL);
	free(c->of[kind].stored);
	memset(&c->of[kind], 0, sizeof c->of[kind]);
}

void content_restart(struct content *c)
{
	for (int kind = 0; kind < CONTENT_KINDS; kind++)
		forget(c, (enum content_kind)kind);
	c->place = (struct content_place){0};
}

/* ---- the sums ---- */

void content_sum_up(struct content *c, struct content_told *ret)
{
	memset(ret, 0, sizeof *ret);
	for (int kind = 0; kind < CONTENT_KINDS && !c->failed; kind++) {
		if (!c->of[kind].hash)
			continue;
		gnutls_hash_deinit(c->of[kind].hash, ret->of[kind].sha256);
		c->of[kind].hash = NULL;
		ret->told |= 1u << kind;
		ret->of[kind].bytes = c->of[kind].bytes;
		ret->of[kind].kept = c->of[kind].kept;
		ret->of[kind].stored = c->of[kind].stored_len;
		if (c->of[kind].stored_len)
			ret->stored |= 1u << kind;
	}
}

static int write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
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

int content_memfd(const struct content *c)
{
	_cleanup_fd_ int fd = -1;
	size_t all = 0;

	for (int kind = 0; kind < CONTENT_KINDS && !c->failed; kind++)
		all += c->of[kind].stored_len;
	if (all == 0)
		return -ENODATA;
	fd = memfd_create("weir-content", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	for (int kind = 0; kind < CONTENT_KINDS; kind++) {
		int r = write_all(fd, c->of[kind].stored, c->of[kind].stored_len);

		if (r < 0)
			return r;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	return TAKE_FD(fd);
}

void content_clear(struct content *c)
{
	content_restart(c);
	c->failed = false;
}
