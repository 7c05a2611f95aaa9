/* SPDX-License-Identifier: Apache-2.0 */
/* HTTPS: the same service, and not a byte past the library. */
#include <curl/curl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client.h"
#include "core/clock.h"
#include "core/limits.h"

static char cert[8192], key[8192];
static struct rig *rig;

/* A certificate for 127.0.0.1, good for an hour, that nobody but this test trusts. */
static void make_certificate(void)
{
	static const unsigned char localhost[4] = {127, 0, 0, 1};
	gnutls_x509_privkey_t private;
	gnutls_x509_crt_t crt;
	size_t n = sizeof key;

	assert_int_equal(gnutls_x509_privkey_init(&private), 0);
	assert_int_equal(
	    gnutls_x509_privkey_generate(private, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0), 0);
	assert_int_equal(gnutls_x509_privkey_export(private, GNUTLS_X509_FMT_PEM, key, &n), 0);
	key[n] = 0;
	assert_int_equal(gnutls_x509_crt_init(&crt), 0);
	gnutls_x509_crt_set_version(crt, 3);
	gnutls_x509_crt_set_serial(crt, "\x01", 1);
	gnutls_x509_crt_set_activation_time(crt, time(NULL) - 60);
	gnutls_x509_crt_set_expiration_time(crt, time(NULL) + 3600);
	gnutls_x509_crt_set_dn(crt, "CN=localhost", NULL);
	gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, localhost, sizeof localhost, GNUTLS_FSAN_SET);
	gnutls_x509_crt_set_basic_constraints(crt, 1, -1);
	gnutls_x509_crt_set_key(crt, private);
	assert_int_equal(gnutls_x509_crt_sign2(crt, crt, private, GNUTLS_DIG_SHA256, 0), 0);
	n = sizeof cert;
	assert_int_equal(gnutls_x509_crt_export(crt, GNUTLS_X509_FMT_PEM, cert, &n), 0);
	cert[n] = 0;
	gnutls_x509_crt_deinit(crt);
	gnutls_x509_privkey_deinit(private);
}

static int begin(void **state)
{
	(void)state;
	make_certificate();
	rig = rig_start_with(&(struct rig_options){.ready = true, .tls_cert = cert, .tls_key = key});
	return 0;
}

/* The last test, since a teardown that fails would not be counted. */
static void ends_well(void **state)
{
	(void)state;
	assert_int_equal(rig_stop(rig), 0);
}

/* A connection that has shaken hands, and says what it is told to. */
struct raw_tls {
	CURL *curl;
	int fd;
};

static struct raw_tls raw_tls(const char *text)
{
	struct curl_blob blob = {cert, strlen(cert), CURL_BLOB_NOCOPY};
	struct raw_tls t = {.curl = curl_easy_init()};
	curl_socket_t fd;
	char url[64];
	size_t n;

	snprintf(url, sizeof url, "https://127.0.0.1:%d", rig->port);
	curl_easy_setopt(t.curl, CURLOPT_URL, url);
	curl_easy_setopt(t.curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(t.curl, CURLOPT_CONNECT_ONLY, 1L);
	curl_easy_setopt(t.curl, CURLOPT_CAINFO_BLOB, &blob);
	assert_int_equal(curl_easy_perform(t.curl), CURLE_OK);
	assert_int_equal(curl_easy_getinfo(t.curl, CURLINFO_ACTIVESOCKET, &fd), CURLE_OK);
	t.fd = fd;
	assert_int_equal(curl_easy_send(t.curl, text, strlen(text), &n), CURLE_OK);
	assert_int_equal(n, strlen(text));
	return t;
}

/* What comes on the wire until it ends, as it is there: records of TLS, never a word of HTTP. */
static size_t wire(int fd, int ms)
{
	size_t len;
	char *bytes = raw_read_all(fd, ms, &len);

	for (size_t at = 0; at < len;) {
		assert_true(len - at >= 5);
		assert_in_range(bytes[at], 20, 23);
		assert_int_equal(bytes[at + 1], 3);
		at += 5 + ((size_t)(unsigned char)bytes[at + 3] << 8) + (unsigned char)bytes[at + 4];
	}
	free(bytes);
	return len;
}

/* Too slow without a token, since the first test: over TLS the connection ends, and nothing is written into it. */
static struct raw_tls stranger;
static uint64_t stranger_since;

static void the_same_service(void **state)
{
	struct reply reply;

	stranger_since = clock_now_ns();
	stranger = raw_tls("POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
	reply = call(rig, (struct call){.method = "GET", .path = "/healthz", .token = ""});

	(void)state;
	if (reply.status != 200)
		fail_msg("curl %d", reply.error);
	reply_free(&reply);
	expect_error(call(rig, (struct call){.method = "GET", .path = "/v1/pool", .token = "wrong"}), 401, "unauthorized",
		     NULL);
	reply = execute(rig, "echo over TLS");
	assert_int_equal(reply.status, 200);
	assert_string_equal(text_at(reply.json, "stdout"), "echo over TLS");
	reply_free(&reply);
	reply = execute(rig, "both 4194304");
	assert_int_equal(reply.status, 200);
	assert_int_equal(strlen(text_at(reply.json, "stdout")), LIMIT_OUTPUT_BYTES);
	reply_free(&reply);
	reply = execute(rig, "sleep 1200"); /* past a sweep */
	assert_int_equal(reply.status, 200);
	reply_free(&reply);
}

static void large_requests(void **state)
{
	char *body = malloc(LIMIT_BODY_BYTES + 2);
	size_t n = (size_t)sprintf(body, "{\"code\": \"exit 3\"}");

	(void)state;
	memset(body + n, ' ', LIMIT_BODY_BYTES + 1 - n);
	for (int over = 0; over < 2; over++) {
		struct reply reply = call(rig, (struct call){.method = "POST",
							     .path = "/v1/execute",
							     .body = body,
							     .body_len = (size_t)(LIMIT_BODY_BYTES + over),
							     .header = {"Expect:", "Content-Type: application/json"}});

		if (over) {
			expect_error(reply, 413, "too_large", NULL);
			continue;
		}
		assert_int_equal(reply.status, 200);
		reply_free(&reply);
	}
	free(body);
}

static void events(void **state)
{
	struct reply reply = call(rig, (struct call){.method = "POST",
						     .path = "/v1/execute",
						     .header = {"Accept: text/event-stream", "Content-Type: application/json"},
						     .body = "{\"code\": \"say 200 o61f0 e62 o9f9880 o63\"}"});
	size_t len = reply.head_len + reply.body_len;
	char *all = malloc(len + 1);
	struct heard h;

	(void)state;
	/* curl has put the chunks together. */
	snprintf(all, len + 1, "HTTP/1.1 %ld OK\r\nContent-Type: text/event-stream\r\n\r\n%s", reply.status, reply.body);
	h = hear_bytes(all, strlen(all));
	assert_string_equal(h.text[0], "a\xf0\x9f\x98\x80"
				       "c");
	assert_string_equal(h.text[1], "b");
	assert_string_equal(text_at(last_event(&h, "result"), "stdout"), h.text[0]);
	heard_free(&h);
	reply_free(&reply);
}

static struct raw_tls start_run(const char *code, const char *headers)
{
	char *request = raw_request("1.1", code, headers);
	unsigned before = rig->started;
	struct raw_tls t = raw_tls(request);

	free(request);
	rig_await(&rig->started, before + 1, 2000);
	return t;
}

/* Nobody half-closes under TLS: a FIN is a hang-up, and no question is put on the wire. */
static void hanging_up_cancels(void **state)
{
	static const char *const headers[] = {"", "Accept: text/event-stream\r\n"};

	(void)state;
	for (int how = 0; how < 6; how++) {
		unsigned before = rig->killed_cancelled;
		struct raw_tls t = start_run(how % 2 ? "say 1 o61 hold" : "hold", headers[how % 2]);

		usleep(20000);
		if (how < 2)
			shutdown(t.fd, SHUT_WR);
		else if (how < 4)
			setsockopt(t.fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
		if (how >= 2)
			curl_easy_cleanup(t.curl);
		rig_await(&rig->killed_cancelled, before + 1, 1000);
		if (how < 2) {
			wire(t.fd, 2000);
			curl_easy_cleanup(t.curl);
		}
	}
}

static void a_slow_stranger(void **state)
{
	(void)state;
	wire(stranger.fd, 9000);
	assert_true(clock_now_ns() - stranger_since < (LIMIT_STRANGER_S + 3) * SECOND_NS);
	curl_easy_cleanup(stranger.curl);
}

static void who_does_not_speak_tls(void **state)
{
	static const char get[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
	int fd = raw_connect(rig);

	(void)state;
	raw_send(fd, get, sizeof get - 1);
	wire(fd, 3000); /* at most an alert */
	close(fd);
	/* Nor one who trusts nobody. */
	{
		CURL *curl = curl_easy_init();
		char url[64];

		snprintf(url, sizeof url, "https://127.0.0.1:%d/healthz", rig->port);
		curl_easy_setopt(curl, CURLOPT_URL, url);
		curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
		assert_int_equal(curl_easy_perform(curl), CURLE_PEER_FAILED_VERIFICATION);
		curl_easy_cleanup(curl);
	}
	{
		struct reply reply = execute(rig, "echo");

		assert_int_equal(reply.status, 200);
		reply_free(&reply);
	}
}

static void orderly_end(void **state)
{
	struct rig *own = rig_start_with(&(struct rig_options){.ready = true, .tls_cert = cert, .tls_key = key});
	struct rig *keep = rig;
	struct raw_tls t;

	(void)state;
	rig = own;
	t = start_run("sleep 300", "");
	kill(own->api, SIGTERM);
	assert_true(wire(t.fd, 3000) > 500); /* its answer */
	assert_int_equal(rig_wait(own), 0);
	curl_easy_cleanup(t.curl);
	rig = keep;
}

static void a_key_of_another_certificate(void **state)
{
	char old[sizeof cert];
	struct rig *own;

	(void)state;
	memcpy(old, cert, sizeof cert);
	make_certificate();
	own = rig_start_with(&(struct rig_options){.tls_cert = old, .tls_key = key});
	assert_int_equal(rig_wait(own), 1);
	memcpy(cert, old, sizeof cert);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_same_service),
	    cmocka_unit_test(large_requests),
	    cmocka_unit_test(events),
	    cmocka_unit_test(hanging_up_cancels),
	    cmocka_unit_test(who_does_not_speak_tls),
	    cmocka_unit_test(orderly_end),
	    cmocka_unit_test(a_key_of_another_certificate),
	    cmocka_unit_test(a_slow_stranger),
	    cmocka_unit_test(ends_well),
	};

	return cmocka_run_group_tests_name("api_tls", tests, begin, NULL);
}
