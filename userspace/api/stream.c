/* SPDX-License-Identifier: Apache-2.0 */
#include "api/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/escape.h"
#include "core/utf8.h"

/* Of output in one event. As JSON it may be six times that. */
#define TEXT_MAX 8192

static const char *const stream_names[RUN_STREAMS] = {[RUN_STDOUT] = "stdout", [RUN_STDERR] = "stderr"};

/* ---- what comes in ---- */

static void add_turn(struct stream *st, unsigned which, size_t len)
{
	size_t last = (st->first + st->count + STREAM_TURNS - 1) % STREAM_TURNS;

	if (st->count > 0 && st->turns[last].which == which) {
		st->turns[last].len += len;
	} else if (st->count < STREAM_TURNS) {
		last = (st->first + st->count++) % STREAM_TURNS;
		st->turns[last].which = which;
		st->turns[last].len = len;
	} else { /* full: turns alternate, so the one before the last is of this stream */
		st->turns[(last + STREAM_TURNS - 1) % STREAM_TURNS].len += len;
	}
}

void stream_note(struct stream *st, const struct run_result *so_far)
{
	st->live = so_far;
	for (unsigned i = 0; i < RUN_STREAMS; i++)
		if (so_far->out_len[i] > st->noted[i]) {
			add_turn(st, i, so_far->out_len[i] - st->noted[i]);
			st->noted[i] = so_far->out_len[i];
		}
}

void stream_finish(struct stream *st, struct run_result *result, const char *event, struct answer_body *body)
{
	stream_note(st, result);
	for (unsigned i = 0; i < RUN_STREAMS; i++)
		add_turn(st, i, 0); /* what is held now comes to nothing more */
	answer_own(body, result);
	st->live = NULL;
	st->body = body;
	st->state = STREAM_ENDING;
	st->last_event = event;
	st->broken = st->broken || body->count == 0;
}

void stream_keep_alive(struct stream *st)
{
	st->keep_alive = true;
}

/* ---- what goes out ---- */

static void free_piece(struct stream *st)
{
	free(st->piece);
	st->piece = NULL;
	st->at = NULL;
	st->left = 0;
}

static const char *unshown(const struct stream *st, unsigned which)
{
	const char *out = st->live ? st->live->out[which] : st->body->out[which];

	return out ? out + st->shown[which] : "";
}

/* How many of `len` bytes can be shown without splitting what the bytes after them may turn into a character. */
static size_t whole_characters(const char *text, size_t len)
{
	size_t at = 0;

	while (at < len) {
		bool valid;
		size_t n = utf8_next(text + at, len - at, &valid);

		if (!valid && at + n == len && (unsigned char)text[at] >= 0xc2 && (unsigned char)text[at] <= 0xf4)
			break;
		at += n;
	}
	return at;
}

static void make_event(struct stream *st, unsigned which, size_t len)
{
	size_t n, used;

	st->piece = malloc(len * ESCAPE_MAX + 64);
	if (!st->piece) {
		st->broken = true;
		return;
	}
	n = (size_t)sprintf(st->piece, "event: %s\ndata: {\"text\": \"", stream_names[which]);
	n += escape_json(st->piece + n, len * ESCAPE_MAX, unshown(st, which), len, &used);
	n += (size_t)sprintf(st->piece + n, "\"}\n\n");
	st->shown[which] += len;
	st->at = st->piece;
	st->left = n;
}

/* The next event of output, if there is enough for one. */
static void next_output(struct stream *st)
{
	while (st->count > 0 && !st->piece && !st->broken) {
		unsigned which = st->turns[st->first].which;
		size_t all = st->held[which] + st->turns[st->first].len;
		size_t len = all < TEXT_MAX ? all : TEXT_MAX;
		bool at_end = st->state != STREAM_OPEN && len == all && st->shown[which] + all == st->noted[which];

		if (!at_end)
			len = whole_characters(unshown(st, which), len);
		if (len > 0)
			make_event(st, which, len);
		st->held[which] = 0;
		st->turns[st->first].len = all - len;
		if (len > 0 && len < all)
			continue;
		st->held[which] = all - len; /* a character's beginning, or nothing: its turn is over */
		st->first = (st->first + 1) % STREAM_TURNS;
		st->count--;
	}
}

static void say(struct stream *st, const char *text, size_t len)
{
	st->at = text;
	st->left = len;
}

/* Sets `at` and `left` to what comes next, if anything does. */
static void next_piece(struct stream *st)
{
	static const char comment[] = ": keep-alive\n\n";

	free_piece(st);
	next_output(st);
	if (st->left > 0 || st->broken)
		return;
	switch (st->state) {
	case STREAM_OPEN:
		if (st->keep_alive)
			say(st, comment, sizeof comment - 1);
		st->keep_alive = false;
		return;
	case STREAM_ENDING:
		st->piece = malloc(64);
		st->broken = !st->piece;
		if (st->piece)
			say(st, st->piece, (size_t)snprintf(st->piece, 64, "event: %s\ndata: ", st->last_event));
		st->state = STREAM_LAST_DATA;
		return;
	case STREAM_LAST_DATA: /* is read from the body */
		return;
	case STREAM_LAST_LINE:
		say(st, "\n", 1);
		st->state = STREAM_OVER;
		return;
	case STREAM_OVER:
		return;
	}
}

/* Of what comes next, as much as fits. Returns 0 when that is nothing. */
static size_t read_some(struct stream *st, char *buf, size_t max)
{
	size_t n;

	if (st->left == 0)
		next_piece(st);
	if (st->left == 0 && st->state == STREAM_LAST_DATA && !st->broken) {
		n = answer_read(st->body, buf, max);
		if (n > 0 || max < ANSWER_READ_MIN)
			return n;
		st->state = STREAM_LAST_LINE;
		next_piece(st);
	}
	n = st->left < max ? st->left : max;
	if (n > 0)
		memcpy(buf, st->at, n);
	st->at += n;
	st->left -= n;
	return n;
}

ssize_t stream_read(struct stream *st, char *buf, size_t max)
{
	size_t done = 0, n = 1;

	while (done < max && !st->broken && n > 0) {
		n = read_some(st, buf + done, max - done);
		done += n;
	}
	if (done > 0)
		return (ssize_t)done;
	if (st->broken)
		return STREAM_READ_BROKEN;
	return st->state == STREAM_OVER ? STREAM_READ_END : 0;
}

void stream_clear(struct stream *st)
{
	free_piece(st);
	*st = (struct stream){0};
}

/* ---- Accept ---- */

/* The length of what stands before the next `stop` that is not inside a quoted string. */
static size_t span(const char *text, size_t len, char stop)
{
	bool quoted = false;
	size_t i = 0;

	for (; i < len && (quoted || text[i] != stop); i++) {
		if (quoted && text[i] == '\\' && i + 1 < len)
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
	}
	return i;
}

static void trim(const char **text, size_t *len)
{
	while (*len > 0 && (**text == ' ' || **text == '\t')) {
		(*text)++;
		(*len)--;
	}
	while (*len > 0 && ((*text)[*len - 1] == ' ' || (*text)[*len - 1] == '\t'))
		(*len)--;
}

/* "q=0", "q=0.0", …: what is so marked is not acceptable. */
static bool is_q_zero(const char *text, size_t len)
{
	trim(&text, &len);
	if (len < 3 || (text[0] | 0x20) != 'q' || text[1] != '=' || text[2] != '0')
		return false;
	for (size_t i = 3; i < len; i++)
		if (text[i] != '0' && !(i == 3 && text[i] == '.'))
			return false;
	return true;
}

static bool range_accepts(const char *text, size_t len)
{
	static const char wanted[] = "text/event-stream";
	size_t n = span(text, len, ';'), at = n;
	const char *type = text;

	trim(&type, &n);
	if (n != sizeof wanted - 1 || strncasecmp(type, wanted, n) != 0)
		return false;
	while (at < len) {
		size_t from = at + 1, part = span(text + from, len - from, ';');

		if (is_q_zero(text + from, part))
			return false;
		at = from + part;
	}
	return true;
}

bool stream_accepted(const char *accept)
{
	size_t len = strlen(accept), at = 0;

	while (at < len) {
		size_t n = span(accept + at, len - at, ',');

		if (range_accepts(accept + at, n))
			return true;
		at += n + 1;
	}
	return false;
}
