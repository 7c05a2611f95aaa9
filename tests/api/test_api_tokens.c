/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of several projects and scopes; and what the service says about itself to any of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/server.h"
#include "client.h"
#include "core/limits.h"

enum who { A, A_AGENT, B, OPERATOR, REVIEWER, EXPIRED, DEV, WHO_COUNT };
static const struct {
	const char *token, *project, *agent;
	unsigned scopes;
	int64_t expires_s; /* from now; 0: never */
} who[WHO_COUNT] = {
    [A] = {"token-of-a", "a", "", SCOPE_PROJECT, 0},
    [A_AGENT] = {"token-of-an-agent", "a", "helper", SCOPE_PROJECT | SCOPE_AGENT, 0},
    [B] = {"token-of-b", "b", "", SCOPE_PROJECT, 3600},
    [OPERATOR] = {"token-of-the-operator", "ops", "", SCOPE_OPERATOR, 0},
    [REVIEWER] = {"token-of-the-reviewer", "audit", "", SCOPE_REVIEWER, 0},
    [EXPIRED] = {"token-of-yesterday", "a", "", SCOPE_ALL, -1},
    [DEV] = {RIG_TOKEN, "dev", "", SCOPE_ALL, 0},
};

static struct rig *rig;
static struct tokens tokens;
static struct tokens_file *file;

static int begin(void **state)
{
	int64_t now = time(NULL);

	(void)state;
	file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	file->head.magic = TOKENS_MAGIC;
	file->head.version = TOKENS_VERSION;
	tokens.file = file;
	tokens.used = mmap(NULL, sizeof *tokens.used, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < DEV; i++) {
		struct token_slot slot = {.scopes = who[i].scopes, .created_s = now - 10};

		token_digest(who[i].token, strlen(who[i].token), slot.sha256);
		snprintf(slot.id, sizeof slot.id, "tok-%08d", i);
		snprintf(slot.project, sizeof slot.project, "%s", who[i].project);
		snprintf(slot.agent, sizeof slot.agent, "%s", who[i].agent);
		slot.expires_s = who[i].expires_s ? now + who[i].expires_s : 0;
		assert_int_equal(tokens_add(file, tokens.used, &slot, now), i);
	}
	rig = rig_start_with(&(struct rig_options){.ready = true, .tokens = &tokens});
	return 0;
}

/* The last test, since a teardown that fails would not be counted. */
static void ends_well(void **state)
{
	(void)state;
	assert_int_equal(rig_stop(rig), 0);
	munmap(file, sizeof *file);
	munmap(tokens.used, sizeof *tokens.used);
}

static struct reply as(enum who w, const char *method, const char *path, const char *body)
{
	return call(rig, (struct call){.method = method, .path = path, .body = body, .token = who[w].token});
}

/* One row a route: the status for each token. */
static void who_may_do_what(void **state)
{
	static const struct {
		const char *method, *path, *body;
		long status[WHO_COUNT];
	} rows[] = {
	    /*                                                                         a  agent    b   op  rev  old  dev */
	    {"POST", "/v1/execute", "{\"code\": \"exit 0\"}", {200, 200, 200, 403, 403, 401, 200}},
	    {"GET", "/v1/sessions", NULL, {200, 200, 200, 403, 403, 401, 200}},
	    {"GET", "/v1/sessions/sandbox-x", NULL, {404, 404, 404, 403, 403, 401, 404}},
	    {"DELETE", "/v1/sessions/sandbox-x", NULL, {404, 404, 404, 403, 403, 401, 404}},
	    {"POST", "/v1/call", "{\"name\": \"value\", \"arguments\": {}}", {403, 200, 403, 403, 403, 401, 403}},
	    {"GET", "/v1/pool", NULL, {403, 403, 403, 200, 403, 401, 200}},
	    {"GET", "/v1/runs/sandbox-known.7", NULL, {200, 200, 200, 403, 200, 401, 200}},
	    {"GET", "/v1/runs/sandbox-known.7/audit", NULL, {200, 200, 200, 403, 200, 401, 200}},
	    {"GET", "/v1/audit", NULL, {403, 403, 403, 403, 200, 401, 200}},
	    {"GET", "/v1/audit?project=b", NULL, {403, 403, 403, 403, 200, 401, 200}},
	    {"GET", "/v1/audit/stream?x", NULL, {403, 403, 403, 403, 400, 401, 400}},
	    {"GET", "/metrics", NULL, {403, 403, 403, 200, 403, 401, 200}},
	    {"GET", "/v1/limits", NULL, {200, 200, 200, 200, 200, 401, 200}},
	    {"GET", "/openapi.json", NULL, {200, 200, 200, 200, 200, 401, 200}},
	    {"GET", "/healthz", NULL, {200, 200, 200, 200, 200, 200, 200}},
	    {"GET", "/nothing", NULL, {404, 404, 404, 404, 404, 401, 404}},
	    {"PATCH", "/v1/pool", NULL, {405, 405, 405, 405, 405, 401, 405}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (int w = 0; w < WHO_COUNT; w++) {
			struct reply reply = as((enum who)w, rows[i].method, rows[i].path, rows[i].body);

			if (reply.status != rows[i].status[w])
				fail_msg("%s %s as %s: %ld, not %ld", rows[i].method, rows[i].path, who[w].token, reply.status,
					 rows[i].status[w]);
			if (reply.status == 401 || reply.status == 403)
				assert_string_equal(text_at(reply.json, "error.message"), "missing or invalid project token");
			reply_free(&reply);
		}
}

/* What is another project's does not exist. */
static void projects_do_not_see_each_other(void **state)
{
	struct reply reply = as(A, "POST", "/v1/sessions", "");
	char id[64], path[128], body[256];

	(void)state;
	assert_int_equal(reply.status, 201);
	snprintf(id, sizeof id, "%s", text_at(reply.json, "session_id"));
	reply_free(&reply);
	snprintf(path, sizeof path, "/v1/sessions/%s", id);
	snprintf(body, sizeof body, "{\"code\": \"echo\", \"session_id\": \"%s\"}", id);
	for (int w = 0; w < 2; w++) { /* another project, and the one with every scope */
		enum who other = w ? DEV : B;

		expect_error(as(other, "GET", path, NULL), 404, "not_found", "not found");
		expect_error(as(other, "DELETE", path, NULL), 404, "not_found", "not found");
		expect_error(as(other, "POST", "/v1/execute", body), 404, "not_found", "not found");
		reply = as(other, "GET", "/v1/sessions", NULL);
		assert_string_equal(reply.body, "{\"sessions\": []}\n");
		reply_free(&reply);
	}
	/* An agent finds what it has opened itself, and no session of its project's. */
	expect_error(as(A_AGENT, "POST", "/v1/execute", body), 404, "not_found", "not found");
	reply = as(A, "DELETE", path, NULL);
	assert_int_equal(reply.status, 200);
	reply_free(&reply);
}

static void whose_record_is_asked_for(void **state)
{
	static const struct {
		enum who w;
		const char *project;
	} rows[] = {{A, "a"}, {A_AGENT, "a"}, {B, "b"}, {REVIEWER, ""}, {DEV, ""}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		static const char *const paths[] = {"/v1/runs/sandbox-known.7", "/v1/runs/sandbox-known.7/audit"};

		for (int k = 0; k < 2; k++) {
			struct reply reply = as(rows[i].w, "GET", paths[k], NULL);

			assert_int_equal(reply.status, 200);
			assert_string_equal(rig->last_project, rows[i].project);
			reply_free(&reply);
		}
	}
}

/* Quotas are a project's: 32 sessions of one leave room for the other's. */
static void quotas_are_per_project(void **state)
{
	struct reply reply;

	(void)state;
	for (int i = 0; i < LIMIT_SESSIONS; i++) {
		reply = as(i % 2 ? A_AGENT : A, "POST", "/v1/sessions", "");
		assert_int_equal(reply.status, 201);
		reply_free(&reply);
	}
	expect_error(as(A, "POST", "/v1/sessions", ""), 429, "quota_exceeded", "project a is over its quota of 32 sessions");
	reply = as(B, "POST", "/v1/sessions", "");
	assert_int_equal(reply.status, 201);
	reply_free(&reply);
}

/* With the next request. Its uses are noted. */
static void revoked_at_once(void **state)
{
	struct reply reply = as(B, "GET", "/v1/limits", NULL);

	(void)state;
	assert_int_equal(reply.status, 200);
	reply_free(&reply);
	assert_in_range(tokens.used->last_s[B], time(NULL) - 5, time(NULL));
	assert_int_equal(tokens.used->last_s[EXPIRED], 0);
	tokens_revoke(file, B, time(NULL));
	expect_error(as(B, "GET", "/v1/limits", NULL), 401, "unauthorized", "missing or invalid project token");
	reply = as(A, "GET", "/v1/limits", NULL);
	assert_int_equal(reply.status, 200);
	reply_free(&reply);
}

static void limits_are_the_table(void **state)
{
	static const struct {
		const char *name, *unit;
		json_int_t value;
	} table[] = {
#define LIMIT(name, value, unit, why) {#name, unit, value},
		WEIR_LIMITS(LIMIT)
#undef LIMIT
	};
	struct reply reply = as(A, "GET", "/v1/limits", NULL);
	json_t *list = json_object_get(reply.json, "limits");

	(void)state;
	assert_int_equal(reply.status, 200);
	assert_int_equal(json_array_size(list), sizeof table / sizeof *table);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		json_t *row = json_array_get(list, i);

		assert_true(!strcasecmp(text_at(row, "name"), table[i].name));
		assert_int_equal(number_at(row, "value"), table[i].value);
		assert_string_equal(text_at(row, "unit"), table[i].unit);
		assert_true(*text_at(row, "why"));
	}
	reply_free(&reply);
}

static void the_description_has_every_route(void **state)
{
	struct reply reply = as(A, "GET", "/openapi.json", NULL);
	size_t count, found = 0;
	const struct route *routes = route_table(&count);
	json_t *paths = json_object_get(reply.json, "paths"), *item;
	const char *path;

	(void)state;
	assert_int_equal(reply.status, 200);
	assert_memory_equal(text_at(reply.json, "openapi"), "3.", 2);
	assert_true(count >= 12);
	for (size_t i = 0; i < count; i++) {
		char method[16];
		size_t n = 0;

		for (; routes[i].method[n]; n++)
			method[n] = (char)(routes[i].method[n] | 0x20);
		method[n] = 0;
		if (!json_object_get(json_object_get(paths, routes[i].pattern), method))
			fail_msg("no %s %s", routes[i].method, routes[i].pattern);
	}
	/* And nothing else. */
	json_object_foreach(paths, path, item)
	{
		static const char *const methods[] = {"get", "put", "post", "delete", "patch", "head", "options"};

		for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
			found += json_object_get(item, methods[i]) != NULL;
	}
	assert_int_equal(found, count);
	reply_free(&reply);
}

/* The record without its events; and a record that can't be read is nobody's. */
static void one_run(void **state)
{
	struct reply reply = as(A, "GET", "/v1/runs/sandbox-known.7", NULL);

	(void)state;
	assert_string_equal(text_at(reply.json, "run_id"), "sandbox-known.7");
	assert_null(json_object_get(reply.json, "events"));
	assert_int_equal(number_at(reply.json, "events_omitted"), 0);
	reply_free(&reply);
	reply = as(A, "GET", "/v1/runs/sandbox-known.7/audit", NULL);
	assert_int_equal(json_array_size(json_object_get(reply.json, "events")), 1);
	reply_free(&reply);
	reply = as(A, "GET", "/v1/runs/sandbox-big", NULL);
	assert_int_equal(number_at(reply.json, "big"), 1);
	reply_free(&reply);
	expect_error(as(A, "GET", "/v1/runs/sandbox-other", NULL), 404, "not_found", "not found");
	rig->audit = RIG_ERROR;
	expect_error(as(A, "GET", "/v1/runs/sandbox-known.7", NULL), 500, "audit_unavailable",
		     "the end of this run has not been recorded");
	rig->audit = RIG_ANSWER;
}

/* The supervisor is asked when the auditor has said that the asker may know, and that it goes on. */
static void a_run_that_goes_on(void **state)
{
	struct reply reply = as(A, "GET", "/v1/runs/sandbox-live", NULL);
	unsigned asked = rig->usages;

	(void)state;
	assert_int_equal(asked, 1);
	assert_true(json_is_true(json_object_get(reply.json, "live")));
	assert_int_equal(number_at(reply.json, "egress.attempts"), 4);
	assert_int_equal(number_at(reply.json, "usage.net_bytes.checked.value"), 5);
	reply_free(&reply);
	expect_error(as(B, "GET", "/v1/runs/sandbox-live", NULL), 404, "not_found", "not found");
	reply = as(A, "GET", "/v1/runs/sandbox-known.7", NULL);
	assert_null(json_object_get(reply.json, "live"));
	reply_free(&reply);
	assert_int_equal(rig->usages, asked);
	/* What has ended meanwhile, or is not told of, is answered as the auditor has it. */
	rig->slow_usage = true;
	for (const char *const *path = (const char *const[]){"/v1/runs/sandbox-live", "/v1/runs/sandbox-ended-now", NULL};
	     *path; path++) {
		reply = as(REVIEWER, "GET", *path, NULL);
		assert_int_equal(reply.status, 200);
		assert_null(json_object_get(reply.json, "live"));
		assert_int_equal(number_at(reply.json, "egress.attempts"), 1);
		reply_free(&reply);
		rig->slow_usage = false;
	}
}

/* Which token it was, over each route; of a session its opener's, of its cell the one who asked for that. */
static void who_asked(void **state)
{
	struct reply reply = as(A, "POST", "/v1/execute", "{\"code\": \"1\"}");
	char cell[128], path[96];

	(void)state;
	reply_free(&reply);
	assert_string_equal(rig->last_caller, "token:tok-00000000");
	assert_string_equal(rig->last_starter, "token:tok-00000000");
	reply = as(DEV, "POST", "/v1/execute", "{\"code\": \"1\"}");
	reply_free(&reply);
	assert_string_equal(rig->last_caller, "token:dev");
	reply = as(A_AGENT, "POST", "/v1/sessions", "{}");
	snprintf(path, sizeof path, "/v1/sessions/%s", text_at(reply.json, "session_id"));
	snprintf(cell, sizeof cell, "{\"code\": \"1\", \"session_id\": \"%s\"}", text_at(reply.json, "session_id"));
	reply_free(&reply);
	assert_string_equal(rig->last_caller, "token:tok-00000001");
	reply = as(A, "POST", "/v1/execute", cell);
	assert_int_equal(reply.status, 200);
	reply_free(&reply);
	assert_string_equal(rig->last_starter, "token:tok-00000000");
	reply = as(A, "DELETE", path, NULL);
	assert_int_equal(reply.status, 200);
	reply_free(&reply);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(who_asked),
	    cmocka_unit_test(who_may_do_what),
	    cmocka_unit_test(projects_do_not_see_each_other),
	    cmocka_unit_test(whose_record_is_asked_for),
	    cmocka_unit_test(quotas_are_per_project),
	    cmocka_unit_test(limits_are_the_table),
	    cmocka_unit_test(the_description_has_every_route),
	    cmocka_unit_test(one_run),
	    cmocka_unit_test(a_run_that_goes_on),
	    cmocka_unit_test(revoked_at_once),
	    cmocka_unit_test(ends_well),
	};

	return cmocka_run_group_tests_name("api_tokens", tests, begin, NULL);
}
