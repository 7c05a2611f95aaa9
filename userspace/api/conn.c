/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection beside libmicrohttpd, which owns it: deadlines that a client can't push on byte by byte, and hang-ups.
 *
 * Hanging up. While a run is open its connection is suspended and nobody reads from it. A client that goes away closes its
 * socket; one that has said all it wants to say may shut down only its sending half and still wait for the answer. Both look
 * alike here: a FIN. Cancelling on it would rob the second client, ignoring it would let abandoned runs hold sandboxes. So the
 * client is asked: an interim `100 Continue`, which every HTTP/1.1 client must be ready to read and skip before a final
 * answer. A client that is there skips it; of one that is gone, the kernel answers with a reset, and that ends the run. The
 * question is repeated, since a half-closed client that leaves later sends nothing more. HTTP/1.0 knows no interim answers:
 * there only a reset counts, and an abandoned run ends at its deadline. On a unix socket a full close is told apart at once.
 *
 * Once the answer has begun, as a stream of events, the question is a comment in that stream. Under TLS nothing can be said
 * past the library, and nobody half-closes: there a FIN means that the client is gone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/answer.h"
#include "api/server.h"
#include "core/cleanup.h"
#include "core/limits.h"
#include "core/log.h"

#define PROBE_AGAIN_S 2

struct conn *conn_new(struct server *s, int fd)
{
	struct conn *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->source = SOURCE_CONN;
	c->since_ns = clock_now_ns();
	c->server = s;
	c->fd = fd;
	c->next = s->conns;
	if (c->next)
		c->next->prev = c;
	s->conns = c;
	s->conn_count++;
	return c;
}

void conn_free(struct conn *c)
{
	conn_unwatch(c);
	if (c->exchange)
		c->exchange->conn = NULL;
	*(c->prev ? &c->prev->next : &c->server->conns) = c->next;
	if (c->next)
		c->next->prev = c->prev;
	c->server->conn_count--;
	free(c);
}

/* So many places are kept free, when there are many. */
#define PLACES_FREE 32
/* What has just come is heard first. */
#define STRANGER_FIRST_S 1

void conns_make_room(struct server *s, uint64_t now)
{
	unsigned places_free = s->conns_max / 8 < PLACES_FREE ? s->conns_max / 8 : PLACES_FREE;
	unsigned count = s->conn_count;

	while (count + places_free > s->conns_max) {
		struct conn *oldest = NULL;

		for (struct conn *c = s->conns; c; c = c->next)
			if (!c->known && !c->leaving && c->since_ns + STRANGER_FIRST_S * SECOND_NS <= now)
				oldest = c;
		if (!oldest)
			return;
		oldest->leaving = true;
		(void)shutdown(oldest->fd, SHUT_RDWR); /* the daemon reads the end of it and closes */
		count--;
	}
}

void conn_watch(struct conn *c)
{
	/* Edges, since a half-closed connection would be ready all the time. A FIN that came before is told at once. */
	struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = c};

	if (c->watched)
		return;
	if (epoll_ctl(c->server->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) < 0)
		log_warn("a client's hanging up can't be noticed: %s", strerror(errno));
	else
		c->watched = true;
	c->probe_ns = 0;
}

void conn_unwatch(struct conn *c)
{
	if (c->watched)
		(void)epoll_ctl(c->server->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL); /* the fd is still open: it can't fail */
	c->watched = false;
	c->probe_ns = 0;
}

static void hung_up(struct conn *c)
{
	struct exchange *x = c->exchange;

	conn_unwatch(c);
	if (!x || (x->state != EXCHANGE_WAIT && x->state != EXCHANGE_STREAM))
		return;
	x->gone = true;
	if (x->follow)
		follow_hung_up(x);
	else if (x->run)
		runclient_cancel(c->server->runs, x->run);
	else
		execute_answer_waiting(c->server, x, ERROR_CANCELLED, NULL);
}

static void probe(struct conn *c, uint64_t now)
{
	static const char question[] = "HTTP/1.1 100 Continue\r\n\r\n";

	c->probe_ns = now + PROBE_AGAIN_S * SECOND_NS;
	if (!c->exchange)
		return;
	if (c->server->config->tls_cert) {
		hung_up(c);
		return;
	}
	if (c->exchange->state == EXCHANGE_STREAM) {
		exchange_stream_probe(c->exchange);
		return;
	}
	if (c->exchange->state != EXCHANGE_WAIT || c->exchange->http10)
		return;
	/* Not one byte of the answer has been sent, so this can't fall into the middle of anything. */
	if (send(c->fd, question, sizeof question - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN && errno != EINTR)
		hung_up(c);
}

void conn_event(struct conn *c, uint32_t events)
{
	if (!c->watched)
		return;
	if (events & (EPOLLHUP | EPOLLERR))
		hung_up(c);
	else if (events & EPOLLRDHUP)
		probe(c, clock_now_ns());
}

void conn_abort(struct conn *c, const struct api_error *e)
{
	const struct error_row *row = error_row(e->kase);
	json_t *body = error_json(e);
	_cleanup_free_ char *text = NULL;
	char head[256];
	size_t len = 0;
	int n;

	text = answer_text(body, &len);
	json_decref(body);
	n = snprintf(head, sizeof head,
		     "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
		     row->status, MHD_get_reason_phrase_for((unsigned)row->status), len);
	/* Best effort, in one piece or not at all: the client is slow or wrong, and nothing may wait for it. */
	if (text && !c->server->config->tls_cert && send(c->fd, head, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE) == n)
		(void)!send(c->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)shutdown(c->fd, SHUT_RDWR); /* the daemon reads the end of it and closes */
}

void conn_sweep(struct conn *c, uint64_t now)
{
	if (c->probe_ns && c->probe_ns <= now)
		probe(c, now);
	if (c->exchange)
		execute_sweep(c->server, c->exchange, now);
	if (!c->deadline_ns || c->deadline_ns > now)
		return;
	c->deadline_ns = 0;
	if (c->receiving) {
		struct api_error e;

		error_set(&e, ERROR_SLOW_REQUEST, NULL);
		conn_abort(c, &e);
	} else {
		(void)shutdown(c->fd, SHUT_RDWR);
	}
}
