/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* What is allocated for that many bytes: a power of two, so that what grows is not copied each time. */
static size_t room_for(size_t len)
{
	size_t room = 64;

	while (room <= len)
		room *= 2;
	return room;
}

static void grow(char **text, size_t *len, const char *more, size_t n)
{
	if (*len == 0 || room_for(*len) != room_for(*len + n))
		*text = realloc(*text, room_for(*len + n));
	memcpy(*text + *len, more, n);
	*len += n;
	(*text)[*len] = 0;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
	struct reply *r = ctx;

	grow(&r->body, &r->body_len, data, size * n);
	return size * n;
}

static size_t on_head(char *data, size_t size, size_t n, void *ctx)
{
	struct reply *r = ctx;

	grow(&r->head, &r->head_len, data, size * n);
	return size * n;
}

/* Set up but not performed. `*headers` is the caller's to free. */
static CURL *prepare(struct rig *r, const struct call *c, struct reply *reply, struct curl_slist **headers)
{
	CURL *curl = curl_easy_init();
	char text[1024];

	*headers = NULL;
	snprintf(text, sizeof text, "%s://127.0.0.1:%d%s", r->tls_cert ? "https" : "http", r->port, c->path);
	if (r->tls_cert) {
		struct curl_blob blob = {(void *)r->tls_cert, strlen(r->tls_cert), CURL_BLOB_NOCOPY};

		curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &blob);
	}
	curl_easy_setopt(curl, CURLOPT_URL, text);
	curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, 100L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_head);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, reply);
	if (!c->token || *c->token) {
		snprintf(text, sizeof text, "Authorization: Bearer %s", c->token ? c->token : RIG_TOKEN);
		*headers = curl_slist_append(*headers, text);
	}
	for (size_t i = 0; i < 4; i++)
		if (c->header[i])
			*headers = curl_slist_append(*headers, c->header[i]);
	if (c->body) {
		curl_easy_setopt(curl, CURLOPT_POST, 1L);
		if (!c->header[0])
			*headers = curl_slist_append(*headers, "Content-Type: application/json");
		if (c->chunked)
			*headers = curl_slist_append(*headers, "Transfer-Encoding: chunked");
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(c->body_len ? c->body_len : strlen(c->body)));
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, c->body);
	}
	if (!strcmp(c->method, "HEAD"))
		curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, c->method);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
	return curl;
}

static void take_reply(CURL *curl, struct reply *reply)
{
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply->status);
	curl_easy_getinfo(curl, CURLINFO_TOTAL_TIME, &reply->seconds);
	if (reply->body)
		reply->json = json_loadb(reply->body, reply->body_len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
}

struct reply call(struct rig *r, struct call c)
{
	struct reply reply = {0};
	struct curl_slist *headers;
	CURL *curl = prepare(r, &c, &reply, &headers);

	reply.error = curl_easy_perform(curl);
	take_reply(curl, &reply);
	curl_easy_cleanup(curl);
	curl_slist_free_all(headers);
	return reply;
}

void reply_free(struct reply *reply)
{
	json_decref(reply->json);
	free(reply->body);
	free(reply->head);
	*reply = (struct reply){0};
}

char *execute_body(const char *code, size_t len, const char *more)
{
	json_t *value = json_stringn(code, len);
	char *quoted = json_dumps(value, JSON_ENCODE_ANY), *body;

	assert_true(asprintf(&body, "{\"code\": %s%s}", quoted, more) > 0);
	free(quoted);
	json_decref(value);
	return body;
}

struct reply execute(struct rig *r, const char *code)
{
	char *body = execute_body(code, strlen(code), "");
	struct reply reply = call(r, (struct call){.method = "POST", .path = "/v1/execute", .body = body});

	free(body);
	return reply;
}

static json_t *find(const json_t *json, const char *path)
{
	char name[64];
	json_t *at = (json_t *)json;

	while (*path) {
		size_t n = strcspn(path, ".");

		snprintf(name, sizeof name, "%.*s", (int)n, path);
		at = json_object_get(at, name);
		if (!at)
			fail_msg("no \"%s\" in the answer", name);
		path += n + (path[n] == '.');
	}
	return at;
}

const char *text_at(const json_t *json, const char *path)
{
	json_t *at = find(json, path);

	if (!json_is_string(at))
		fail_msg("%s is no string", path);
	return json_string_value(at);
}

json_int_t number_at(const json_t *json, const char *path)
{
	json_t *at = find(json, path);

	if (!json_is_integer(at))
		fail_msg("%s is no integer", path);
	return json_integer_value(at);
}

void expect_error(struct reply reply, long status, const char *code, const char *message)
{
	json_t *error = json_object_get(reply.json, "error");

	if (reply.status != status || !error)
		fail_msg("status %ld (curl %d), not %ld: %s", reply.status, reply.error, status,
			 reply.body ? reply.body : "no body");
	assert_int_equal(json_object_size(reply.json), 1);
	assert_int_equal(json_object_size(error), 4);
	assert_string_equal(text_at(error, "code"), code);
	if (message)
		assert_string_equal(text_at(error, "message"), message);
	assert_true(*text_at(error, "hint"));
	assert_true(json_is_boolean(json_object_get(error, "ran")));
	if (status == 429 || status == 503)
		assert_non_null(strcasestr(reply.head, "\r\nRetry-After: "));
	if (status == 401)
		assert_non_null(strcasestr(reply.head, "\r\nWWW-Authenticate: Bearer\r\n"));
	assert_non_null(strcasestr(reply.head, "\r\nContent-Type: application/json\r\n"));
	reply_free(&reply);
}

void execute_many(struct rig *r, const char *body, size_t count, void (*each)(void *ctx, struct reply *reply), void *ctx)
{
	struct reply *replies = calloc(count, sizeof *replies);
	struct curl_slist **headers = calloc(count, sizeof *headers);
	CURLM *multi = curl_multi_init();
	int running = 1;

	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)count);
	for (size_t i = 0; i < count; i++) {
		struct call c = {.method = "POST", .path = "/v1/execute", .body = body};
		CURL *curl = prepare(r, &c, &replies[i], &headers[i]);

		curl_easy_setopt(curl, CURLOPT_PRIVATE, (void *)i);
		curl_easy_setopt(curl, CURLOPT_PIPEWAIT, 0L);
		curl_multi_add_handle(multi, curl);
	}
	while (running) {
		CURLMsg *m;
		int left;

		assert_int_equal(curl_multi_perform(multi, &running), CURLM_OK);
		while ((m = curl_multi_info_read(multi, &left))) {
			CURL *curl = m->easy_handle;
			void *private;
			size_t i;

			curl_easy_getinfo(curl, CURLINFO_PRIVATE, &private);
			i = (size_t) private;
			replies[i].error = (int)m->data.result;
			take_reply(curl, &replies[i]);
			each(ctx, &replies[i]);
			reply_free(&replies[i]);
			curl_multi_remove_handle(multi, curl);
			curl_easy_cleanup(curl);
			curl_slist_free_all(headers[i]);
		}
		if (running)
			curl_multi_poll(multi, NULL, 0, 100, NULL);
	}
	curl_multi_cleanup(multi);
	free(replies);
	free(headers);
}

int raw_connect(struct rig *r)
{
	return raw_connect_room(r, 0);
}

int raw_connect_room(struct rig *r, int room)
{
	struct sockaddr_in address = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)r->port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (room)
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	return fd;
}

void raw_send(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

		assert_true(n > 0);
		text += n;
		len -= (size_t)n;
	}
}

char *raw_read(int fd, int ms)
{
	char *text = calloc(1, 1), part[65536];
	size_t len = 0;
	ssize_t n;

	while (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, ms) > 0 && (n = recv(fd, part, sizeof part, 0)) > 0)
		grow(&text, &len, part, (size_t)n);
	return text;
}

char *raw_request(const char *version, const char *code, const char *headers)
{
	return raw_request_more(version, code, "", headers);
}

char *raw_request_more(const char *version, const char *code, const char *more, const char *headers)
{
	char *body = execute_body(code, strlen(code), more), *text;

	assert_true(asprintf(&text,
			     "POST /v1/execute HTTP/%s\r\nHost: localhost\r\nAuthorization: Bearer " RIG_TOKEN
			     "\r\n%sContent-Length: %zu\r\n\r\n%s",
			     version, headers, strlen(body), body) > 0);
	free(body);
	return text;
}

static void add_event(struct heard *h, char *text)
{
	struct event *e;
	char *data = strstr(text, "\ndata: ");

	if (*text == ':') {
		h->comments++;
		return;
	}
	if (strncmp(text, "event: ", 7) != 0 || !data)
		fail_msg("no event: %s", text);
	*data = 0;
	h->events = realloc(h->events, (h->count + 1) * sizeof *h->events);
	e = &h->events[h->count++];
	snprintf(e->name, sizeof e->name, "%s", text + 7);
	e->data = json_loads(data + 7, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
	if (!e->data || strchr(data + 7, '\n'))
		fail_msg("event %s has no JSON on one line", e->name);
	for (int i = 0; i < 2; i++)
		if (!strcmp(e->name, i ? "stderr" : "stdout")) {
			json_t *piece = json_object_get(e->data, "text");

			assert_non_null(piece);
			grow(&h->text[i], &h->text_len[i], json_string_value(piece), json_string_length(piece));
		}
}

/* The chunks of a body put together, in place. Returns whether the last one was there. */
static bool join_chunks(char *body, size_t *len)
{
	char *from = body, *to = body, *end = body + *len;

	while (from < end) {
		char *line = memmem(from, (size_t)(end - from), "\r\n", 2);
		size_t n = strtoull(from, NULL, 16);

		if (!line)
			break;
		from = line + 2;
		if (n == 0) {
			*len = (size_t)(to - body);
			*to = 0;
			return end - from == 2;
		}
		if (n + 2 > (size_t)(end - from))
			break;
		memmove(to, from, n);
		to += n;
		from += n + 2;
	}
	*len = (size_t)(to - body);
	*to = 0;
	return false;
}

struct heard hear_bytes(char *bytes, size_t len)
{
	struct heard h = {.text = {calloc(1, 1), calloc(1, 1)}};
	char *body, *end;

	/* Interim answers come first. */
	while (!strncmp(bytes, "HTTP/1.1 100 ", 13) && (body = strstr(bytes, "\r\n\r\n"))) {
		len -= (size_t)(body + 4 - bytes);
		memmove(bytes, body + 4, len + 1);
	}
	body = strstr(bytes, "\r\n\r\n");
	if (!body || sscanf(bytes, "HTTP/1.%*d %ld", &h.status) != 1)
		fail_msg("no answer: %s", bytes);
	*body = 0;
	body += 4;
	len -= (size_t)(body - bytes);
	h.head = bytes;
	h.chunked = strcasestr(bytes, "\r\nTransfer-Encoding: chunked") != NULL;
	h.whole = !h.chunked || join_chunks(body, &len);
	if (!strcasestr(bytes, "\r\nContent-Type: text/event-stream")) {
		h.plain = json_loadb(body, len, JSON_ALLOW_NUL, NULL);
		return h;
	}
	while ((end = memmem(body, len, "\n\n", 2))) {
		*end = 0;
		add_event(&h, body);
		len -= (size_t)(end + 2 - body);
		body = end + 2;
	}
	h.cut = len > 0;
	return h;
}

char *raw_read_all(int fd, int ms, size_t *ret_len)
{
	char *text = calloc(1, 1), part[65536];
	ssize_t n;

	*ret_len = 0;
	while (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, ms) > 0 && (n = recv(fd, part, sizeof part, 0)) > 0)
		grow(&text, ret_len, part, (size_t)n);
	return text;
}

struct heard hear(int fd, int ms)
{
	size_t len;
	char *bytes = raw_read_all(fd, ms, &len);

	return hear_bytes(bytes, len);
}

const json_t *last_event(const struct heard *h, const char *name)
{
	if (h->count == 0 || strcmp(h->events[h->count - 1].name, name) != 0)
		fail_msg("the last event is not %s but %s", name, h->count ? h->events[h->count - 1].name : "none");
	return h->events[h->count - 1].data;
}

void heard_free(struct heard *h)
{
	for (size_t i = 0; i < h->count; i++)
		json_decref(h->events[i].data);
	free(h->events);
	free(h->text[0]);
	free(h->text[1]);
	json_decref(h->plain);
	free(h->head);
	*h = (struct heard){0};
}
