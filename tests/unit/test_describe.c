/* SPDX-License-Identifier: Apache-2.0 */
/* What the service says of itself: complete, well-formed, and true of what it answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/answer.h"
#include "api/describe.h"
#include "api/server.h"
#include "core/limits.h"

static json_t *get(const json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);

	if (!value)
		fail_msg("no member %s", name);
	return value;
}

static const char *text(const json_t *object, const char *name)
{
	const char *s = json_string_value(get(object, name));

	assert_non_null(s);
	return s;
}

/* The document of the routes that the service really has. */
static json_t *document(void)
{
	size_t count;
	const struct route *routes = route_table(&count);
	struct described_route *described = calloc(count, sizeof *described);
	json_t *doc;

	for (size_t i = 0; i < count; i++)
		described[i] = (struct described_route){.method = routes[i].method,
							.pattern = routes[i].pattern,
							.summary = routes[i].summary,
							.scopes = routes[i].scopes,
							.max_body = routes[i].max_body};
	doc = describe_openapi(described, count);
	free(described);
	assert_non_null(doc);
	return doc;
}

/* "#/a/b/c" */
static const json_t *resolve(const json_t *doc, const char *ref)
{
	char part[96];

	assert_memory_equal(ref, "#/", 2);
	for (ref += 2; *ref; ref += *ref == '/') {
		size_t n = strcspn(ref, "/");

		snprintf(part, sizeof part, "%.*s", (int)n, ref);
		doc = get(doc, part);
		ref += n;
	}
	return doc;
}

/* Every reference in the document leads somewhere. */
static unsigned walk_refs(const json_t *doc, json_t *at)
{
	unsigned refs = 0;
	const char *name;
	json_t *value;
	size_t i;

	json_object_foreach(at, name, value)
	{
		if (!strcmp(name, "$ref")) {
			assert_true(json_is_object(resolve(doc, json_string_value(value))));
			refs++;
		}
		refs += walk_refs(doc, value);
	}
	json_array_foreach(at, i, value) refs += walk_refs(doc, value);
	return refs;
}

static void every_ref_resolves(void **state)
{
	json_t *doc = document();

	(void)state;
	assert_int_equal(strncmp(text(doc, "openapi"), "3.1.", 4), 0);
	assert_true(*text(get(doc, "info"), "title") && *text(get(doc, "info"), "version"));
	assert_true(walk_refs(doc, doc) > 50);
	json_decref(doc);
}

static const json_t *operation(const json_t *doc, const struct route *r)
{
	char method[16] = "";

	for (size_t i = 0; r->method[i]; i++)
		method[i] = (char)tolower((unsigned char)r->method[i]);
	return get(get(get(doc, "paths"), r->pattern), method);
}

static bool allows(const json_t *security, const char *scope)
{
	size_t i;
	json_t *one;

	json_array_foreach(security, i, one)
	{
		const json_t *roles = get(one, "bearer");

		assert_int_equal(json_array_size(roles), 1);
		if (!strcmp(json_string_value(json_array_get(roles, 0)), scope))
			return true;
	}
	return false;
}

static void check_parameters(const json_t *op, const char *pattern)
{
	const char *brace = strchr(pattern, '{');
	const json_t *list = json_object_get(op, "parameters"), *p;
	unsigned route = !strcmp(pattern, "/v1/audit") ? FIND_SEARCH : !strcmp(pattern, "/v1/audit/stream") ? FIND_STREAM : 0;
	size_t count, of_query = 0;
	const struct find_parameter *table = find_parameters(&count);
	const char *name;

	for (size_t i = 0; i < count; i++)
		if (table[i].routes & route) {
			p = json_array_get(list, of_query++);
			assert_string_equal(text(p, "name"), table[i].name);
			assert_string_equal(text(p, "in"), "query");
			assert_true(*text(p, "description") && json_is_object(get(p, "schema")));
		}
	assert_int_equal(json_array_size(list), of_query + (brace != NULL));
	if (!brace)
		return;
	p = json_array_get(list, 0);
	name = text(p, "name");
	assert_memory_equal(brace + 1, name, strlen(name));
	assert_int_equal(brace[1 + strlen(name)], '}');
	assert_string_equal(text(p, "in"), "path");
	assert_true(json_is_true(get(p, "required")));
	assert_true(json_is_object(get(p, "schema")));
}

/* What is no JSON has a type of its own, and no shape. */
static bool check_other_type(const char *status, const json_t *response)
{
	static const char *const types[] = {"text/plain", "text/event-stream"};
	const json_t *content = get(response, "content");

	for (size_t i = 0;
	     i < sizeof types / sizeof *types && status[0] == '2' && !json_object_get(content, "application/json"); i++)
		if (json_object_get(content, types[i])) {
			assert_int_equal(json_object_size(content), 1);
			assert_string_equal(text(get(get(content, types[i]), "schema"), "type"), "string");
			return true;
		}
	return false;
}

static void check_response(const char *status, const json_t *response)
{
	const json_t *schema = get(get(get(response, "content"), "application/json"), "schema");
	bool good = status[0] == '2';

	assert_true(*text(response, "description"));
	assert_int_equal(strlen(status), 3);
	if (good)
		assert_string_not_equal(text(schema, "$ref"), "#/components/schemas/Error");
	else
		assert_string_equal(text(schema, "$ref"), "#/components/schemas/Error");
	if (!strcmp(status, "429") || !strcmp(status, "503"))
		assert_non_null(json_object_get(get(response, "headers"), "Retry-After"));
}

/* Where a refusal can have either shape, and where there is no body. Returns whether it is such a status. */
static bool check_message_response(const char *status, const json_t *response)
{
	static const char *const either[] = {"400", "403", "404", "406"};
	const json_t *any;

	assert_true(*text(response, "description"));
	if (!strcmp(status, "202")) {
		assert_null(json_object_get(response, "content"));
		return true;
	}
	for (size_t i = 0; i < sizeof either / sizeof *either; i++) {
		if (strcmp(status, either[i]) != 0)
			continue;
		any = get(get(get(get(response, "content"), "application/json"), "schema"), "anyOf");
		assert_int_equal(json_array_size(any), 2);
		assert_string_equal(text(json_array_get(any, 0), "$ref"), "#/components/schemas/McpAnswer");
		assert_string_equal(text(json_array_get(any, 1), "$ref"), "#/components/schemas/Error");
		return true;
	}
	return false;
}

/* Each route of the table: token, parameters, body, and answers that it has been given a schema for. */
static void every_route_is_there(void **state)
{
	size_t count, operations = 0;
	const struct route *routes = route_table(&count);
	json_t *doc = document(), *value, *ids = json_object();
	const char *name;

	(void)state;
	for (size_t i = 0; i < count; i++) {
		const json_t *op = operation(doc, &routes[i]), *responses = get(op, "responses");
		bool succeeds = false;

		assert_string_equal(text(op, "summary"), routes[i].summary);
		assert_null(json_object_get(ids, text(op, "operationId")));
		json_object_set_new(ids, text(op, "operationId"), json_true());
		assert_int_equal(allows(get(op, "security"), "project"), !!(routes[i].scopes & SCOPE_PROJECT));
		assert_int_equal(allows(get(op, "security"), "agent"), !!(routes[i].scopes & SCOPE_AGENT));
		assert_int_equal(allows(get(op, "security"), "operator"), !!(routes[i].scopes & SCOPE_OPERATOR));
		assert_int_equal(allows(get(op, "security"), "reviewer"), !!(routes[i].scopes & SCOPE_REVIEWER));
		check_parameters(op, routes[i].pattern);
		assert_int_equal(json_object_get(op, "requestBody") != NULL, routes[i].max_body > 0);
		json_object_foreach((json_t *)responses, name, value)
		{
			if (!strcmp(routes[i].pattern, "/mcp") && check_message_response(name, value))
				continue;
			if (!check_other_type(name, value))
				check_response(name, value);
			succeeds = succeeds || name[0] == '2';
		}
		if (!succeeds)
			fail_msg("%s %s: no answer", routes[i].method, routes[i].pattern);
		assert_int_equal(json_object_get(responses, "401") != NULL, routes[i].scopes != 0);
		assert_int_equal(json_object_get(responses, "415") != NULL, routes[i].max_body > 0);
	}
	json_object_foreach(get(doc, "paths"), name, value) operations += json_object_size(value);
	assert_int_equal(operations, count);
	json_decref(ids);
	json_decref(doc);
}

/* Every status of the contract that a run can be answered with. */
static void statuses_of_execute(void **state)
{
	static const char *const statuses[] = {"200", "400", "401", "403", "404", "408", "409",
					       "413", "415", "429", "431", "500", "502", "503"};
	json_t *doc = document(), *op = get(get(get(doc, "paths"), "/v1/execute"), "post");

	(void)state;
	assert_int_equal(json_object_size(get(op, "responses")), sizeof statuses / sizeof *statuses);
	for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
		(void)get(get(op, "responses"), statuses[i]);
	assert_non_null(strstr(text(get(get(op, "responses"), "502"), "description"), "file path escapes working directory"));
	assert_non_null(get(get(get(get(op, "responses"), "200"), "content"), "text/event-stream"));
	json_decref(doc);
}

static size_t times_in(const json_t *strings, const char *wanted)
{
	size_t n = 0;

	for (size_t i = 0; i < json_array_size(strings); i++)
		n += !strcmp(json_string_value(json_array_get(strings, i)), wanted);
	return n;
}

static void every_error_code_is_there(void **state)
{
	json_t *doc = document();
	const json_t *schema = resolve(doc, "#/components/schemas/Error/properties/error/properties/code"),
		     *codes = get(schema, "enum");

	(void)state;
	for (int k = ERROR_NONE + 1; k < ERROR_CASES; k++)
		assert_int_equal(times_in(codes, error_row((enum error_case)k)->code), 1);
	json_decref(doc);
}

/* ---- a small JSON Schema validator: what these schemas use ---- */

static const char *type_name(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return "object";
	case JSON_ARRAY:
		return "array";
	case JSON_STRING:
		return "string";
	case JSON_INTEGER:
		return "integer";
	case JSON_REAL:
		return "number";
	case JSON_NULL:
		return "null";
	default:
		return "boolean";
	}
}

static bool type_fits(const json_t *type, const json_t *v)
{
	const char *name = json_string_value(type);
	size_t i;
	json_t *one;

	if (name)
		return !strcmp(name, type_name(v)) || (!strcmp(name, "number") && json_is_integer(v));
	json_array_foreach(type, i, one) if (type_fits(one, v)) return true;
	return false;
}

static bool valid(const json_t *doc, const json_t *schema, const json_t *v);

static bool listed(const json_t *list, const json_t *v)
{
	size_t i;
	json_t *one;

	json_array_foreach(list, i, one) if (json_equal(one, v)) return true;
	return false;
}

static bool object_valid(const json_t *doc, const json_t *schema, const json_t *v)
{
	const json_t *properties = json_object_get(schema, "properties"),
		     *others = json_object_get(schema, "additionalProperties");
	const json_t *most = json_object_get(schema, "maxProperties");
	const char *name;
	json_t *one;
	size_t i;

	if (most && json_object_size(v) > (size_t)json_integer_value(most))
		return false;
	json_array_foreach(json_object_get(schema, "required"), i,
			   one) if (!json_object_get(v, json_string_value(one))) return false;
	json_object_foreach((json_t *)v, name, one)
	{
		const json_t *s = json_object_get(properties, name);

		if (!s && json_is_false(others))
			return false;
		if (!s && json_is_object(others))
			s = others;
		if (s && !valid(doc, s, one))
			return false;
	}
	return true;
}

static bool combined_valid(const json_t *doc, const json_t *schema, const json_t *v)
{
	const json_t *any = json_object_get(schema, "oneOf"), *condition = json_object_get(schema, "if");
	size_t i, fits = 0;
	json_t *one;

	json_array_foreach(any, i, one) fits += valid(doc, one, v);
	if (any && fits != 1)
		return false;
	if (json_object_get(schema, "not") && valid(doc, json_object_get(schema, "not"), v))
		return false;
	return !condition || !valid(doc, condition, v) || valid(doc, get(schema, "then"), v);
}

static bool valid(const json_t *doc, const json_t *schema, const json_t *v)
{
	const json_t *ref = json_object_get(schema, "$ref"), *type = json_object_get(schema, "type"), *bound;
	size_t i;
	json_t *one;

	if (ref)
		return valid(doc, resolve(doc, json_string_value(ref)), v);
	if (type && !type_fits(type, v))
		return false;
	if (json_object_get(schema, "enum") && !listed(json_object_get(schema, "enum"), v))
		return false;
	if (json_object_get(schema, "const") && !json_equal(json_object_get(schema, "const"), v))
		return false;
	if (json_is_integer(v) && ((bound = json_object_get(schema, "minimum"))) &&
	    json_integer_value(v) < json_integer_value(bound))
		return false;
	if (json_is_integer(v) && ((bound = json_object_get(schema, "maximum"))) &&
	    json_integer_value(v) > json_integer_value(bound))
		return false;
	if (json_is_array(v) && ((bound = json_object_get(schema, "maxItems"))) &&
	    json_array_size(v) > (size_t)json_integer_value(bound))
		return false;
	json_array_foreach(v, i,
			   one) if (json_object_get(schema, "items") && !valid(doc, get(schema, "items"), one)) return false;
	return (!json_is_object(v) || object_valid(doc, schema, v)) && combined_valid(doc, schema, v);
}

/* Bodies that the parser takes and bodies that it refuses: the document says the same. */
static void bodies_as_the_parser_has_them(void **state)
{
	static const struct {
		const char *body;
		bool good;
	} rows[] = {
	    {"{\"code\": \"\"}", true},
	    {"{\"code\": \"\", \"language\": \"python\", \"timeout_s\": 60, \"stdin\": \"\", \"env\": {\"A\": \"b\"}, "
	     "\"files\": []}",
	     true},
	    {"{\"code\": \"\", \"timeout_s\": 61}", false},
	    {"{\"code\": \"\", \"timeout_s\": 61, \"session_id\": \"s\"}", true},
	    {"{\"code\": \"\", \"timeout_s\": 120, \"session_id\": \"s\"}", true},
	    {"{\"code\": \"\", \"timeout_s\": 121, \"session_id\": \"s\"}", false},
	    {"{\"code\": \"\", \"timeout_s\": 0}", false},
	    {"{\"code\": \"\", \"timeout_s\": \"5\"}", false},
	    {"{\"timeout_s\": 5}", false},
	    {"{\"code\": 1}", false},
	    {"{\"code\": \"\", \"language\": \"ruby\"}", false},
	    {"{\"code\": \"\", \"colour\": \"red\"}", false},
	    {"{\"code\": \"\", \"env\": {\"A\": 1}}", false},
	    {"{\"code\": \"\", \"env\": []}", false},
	    {"{\"code\": \"\", \"files\": [{\"path\": \"a\", \"content\": \"\"}, {\"path\": \"b\", \"content_base64\": \"\"}]}",
	     true},
	    {"{\"code\": \"\", \"files\": [{\"path\": \"a\"}]}", false},
	    {"{\"code\": \"\", \"files\": [{\"content\": \"\"}]}", false},
	    {"{\"code\": \"\", \"files\": [{\"path\": \"a\", \"content\": \"\", \"content_base64\": \"\"}]}", false},
	    {"{\"code\": \"\", \"files\": [{\"path\": \"a\", \"content\": \"\", \"mode\": 1}]}", false},
	    {"{\"code\": \"\", \"files\": {}}", false},
	    {"[]", false},
	};
	json_t *doc = document();
	const json_t *schema = resolve(doc, "#/components/schemas/ExecuteRequest");

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char body[256];
		struct execute_request request = {0};
		struct api_error e;
		json_t *value = json_loads(rows[i].body, 0, NULL);

		memcpy(body, rows[i].body, strlen(rows[i].body) + 1);
		assert_int_equal(request_parse_execute(body, strlen(body), &request, &e), rows[i].good ? 0 : -1);
		payload_clear(&request.payload);
		if (valid(doc, schema, value) != rows[i].good)
			fail_msg("%s", rows[i].body);
		json_decref(value);
	}
	json_decref(doc);
}

/* Every value at every depth is one that the schema knows by name. */
static void all_known(const json_t *schema, const json_t *v, const char *where)
{
	const char *name;
	json_t *one;
	size_t i;

	json_object_foreach((json_t *)v, name, one)
	{
		const json_t *s = json_object_get(json_object_get(schema, "properties"), name);

		if (!s)
			fail_msg("%s.%s is in the answer and not in the document", where, name);
		all_known(s, one, name);
	}
	json_array_foreach(v, i, one) all_known(get(schema, "items"), one, where);
}

/* An answer with everything in it: all of it is in the document, and what the document requires is in it. */
static void answers_as_they_are_made(void **state)
{
	static char out[] = "42\n", summary[] =
					"{\"audit_hash\": \"00ff\", \"egress\": {\"attempts\": 1, \"denied\": 1, \"allowed\": "
					"0, \"would_deny\": 0, \"inbound\": 0, "
					"\"lost\": 0, \"destinations\": [{\"protocol\": \"udp\", \"address\": \"127.0.0.1\", "
					"\"port\": 53, \"dns_name\": null, \"verdict\": \"denied\", \"reason\": \"default\", "
					"\"rule\": null, \"count\": 1}]}}";
	struct collected_entry kept = {.kind = COLLECTED_FILE, .path_len = 5, .size = 2},
			       left = {.kind = COLLECTED_FIFO, .path_len = 1};
	char files[2 * sizeof(struct collected_entry) + 8], *at = files;
	struct run_result r = {
	    .outcome = RUN_DONE,
	    .grant = {.sandbox_id = "sandbox-abcde", .run_id = "sandbox-abcde.1", .python = "3.12.1"},
	    .end = {.end = RUN_END_EXIT, .ran = 1, .cpu_us = 1500, .cpu_source = "x", .meter = {.there = 1, .processes = 1}},
	    .session = true,
	    .out = {out, NULL},
	    .out_len = {3, 0},
	    .out_bytes = {3, 0},
	    .summary = summary,
	    .summary_len = sizeof summary - 1};
	json_t *doc = document(), *answer;
	const json_t *schema = resolve(doc, "#/components/schemas/ExecuteAnswer");
	size_t len;

	(void)state;
	at = mempcpy(mempcpy(at, &kept, sizeof kept), "a.txtOK", 7);
	at = mempcpy(mempcpy(at, &left, sizeof left), "f", 1);
	for (int round = 0; round < 3; round++) {
		char *answer_bytes;

		r.files = (struct run_files){.data = files, .len = (size_t)(at - files), .skipped_unlisted = 3};
		if (round == 1)
			r.files = (struct run_files){.problem = "no collector"};
		if (round == 2)
			r.summary = NULL;
		answer_bytes = answer_result(&r, &len);
		answer = json_loadb(answer_bytes, len, 0, NULL);
		assert_non_null(answer);
		all_known(schema, answer, "answer");
		assert_true(valid(doc, schema, answer));
		json_object_del(get(answer, "usage"), "stages");
		assert_false(valid(doc, schema, answer)); /* the validator sees what is missing */
		json_decref(answer);
		free(answer_bytes);
	}
	json_decref(doc);
}

static void limits_as_the_table_has_them(void **state)
{
	static const struct {
		const char *name;
		long long value;
	} rows[] = {
#define LIMIT(name, value, unit, why) {#name, (value)},
		WEIR_LIMITS(LIMIT)
#undef LIMIT
	};
	json_t *body = describe_limits(), *list = get(body, "limits"), *one;
	size_t i;

	(void)state;
	assert_int_equal(json_object_size(body), 1);
	assert_int_equal(json_array_size(list), sizeof rows / sizeof *rows);
	json_array_foreach(list, i, one)
	{
		assert_int_equal(json_object_size(one), 4);
		assert_int_equal(strcasecmp(text(one, "name"), rows[i].name), 0);
		for (const char *c = text(one, "name"); *c; c++)
			assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_');
		assert_int_equal(json_integer_value(get(one, "value")), rows[i].value);
		assert_true(*text(one, "unit") && *text(one, "why"));
	}
	json_decref(body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_ref_resolves),
	    cmocka_unit_test(every_route_is_there),
	    cmocka_unit_test(statuses_of_execute),
	    cmocka_unit_test(every_error_code_is_there),
	    cmocka_unit_test(bodies_as_the_parser_has_them),
	    cmocka_unit_test(answers_as_they_are_made),
	    cmocka_unit_test(limits_as_the_table_has_them),
	};

	return cmocka_run_group_tests_name("describe", tests, NULL, NULL);
}
