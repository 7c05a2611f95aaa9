/* SPDX-License-Identifier: Apache-2.0 */
#include "api/describe.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "api/describe_priv.h"
#include "api/request.h"
#include "core/limits.h"
#include "core/tokens.h"
#include "version.h"

#define SCHEMAS "#/components/schemas/"

/*
 * Everything here is put together with functions that take a reference and fail on NULL; one flag remembers that some memory
 * was missing, and is looked at once, at the end.
 */
struct maker {
	bool failed;
};

static void put(struct maker *m, json_t *object, const char *name, json_t *value)
{
	if (json_object_set_new(object, name, value) < 0)
		m->failed = true;
}

static void add(struct maker *m, json_t *array, json_t *value)
{
	if (json_array_append_new(array, value) < 0)
		m->failed = true;
}

/* The member `name` of an object, an empty object when it was not there. Borrowed. */
static json_t *member(struct maker *m, json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);

	if (value)
		return value;
	put(m, object, name, json_object());
	return json_object_get(object, name);
}

/* The same of an array. */
static json_t *list(struct maker *m, json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);

	if (value)
		return value;
	put(m, object, name, json_array());
	return json_object_get(object, name);
}

static void lower_case(const char *text, char *ret, size_t size)
{
	snprintf(ret, size, "%s", text);
	for (; *ret; ret++)
		*ret = (char)tolower((unsigned char)*ret);
}

/* ---- GET /v1/limits ---- */

static const struct {
	const char *name;
	long long value;
	const char *unit, *why;
} limits[] = {
#define LIMIT(name, value, unit, why) {#name, (value), (unit), (why)},
    WEIR_LIMITS(LIMIT)
#undef LIMIT
};

json_t *describe_limits(void)
{
	struct maker m = {0};
	json_t *root = json_object(), *array = list(&m, root, "limits");

	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		char name[64];

		lower_case(limits[i].name, name, sizeof name);
		add(&m, array,
		    json_pack("{s:s, s:I, s:s, s:s}", "name", name, "value", (json_int_t)limits[i].value, "unit",
			      limits[i].unit, "why", limits[i].why));
	}
	if (!m.failed)
		return root;
	json_decref(root);
	return NULL;
}

/* ---- schemas of bodies: from the parser's own table ---- */

static json_t *object_schema(struct maker *m, const struct request_member *table, size_t count);

static void describe_string(struct maker *m, const struct request_member *r, json_t *s)
{
	if (r->max)
		put(m, s, "maxLength", json_integer(r->max)); /* of bytes; a character has one at least */
	if (r->base64)
		put(m, s, "contentEncoding", json_string("base64"));
	if (r->value) {
		put(m, s, "const", json_string(r->value));
		put(m, s, "default", json_string(r->value));
	}
}

static json_t *member_schema(struct maker *m, const struct request_member *r)
{
	json_t *s = json_pack("{s:s}", "description", r->description);

	if (strcmp(r->type, "*") != 0)
		put(m, s, "type", json_string(r->type));
	if (!strcmp(r->type, "string"))
		describe_string(m, r, s);
	if (!strcmp(r->type, "integer")) {
		put(m, s, "minimum", json_integer(r->min));
		put(m, s, "maximum", json_integer(r->max));
		put(m, s, "default", json_integer(r->preset));
	}
	if (!strcmp(r->type, "array")) {
		put(m, s, "maxItems", json_integer(r->max));
		put(m, s, "items", object_schema(m, r->items, r->item_count));
	}
	if (!strcmp(r->type, "object")) {
		if (r->max)
			put(m, s, "maxProperties", json_integer(r->max));
		if (!r->any)
			put(m, s, "additionalProperties", json_pack("{s:s}", "type", "string"));
	}
	return s;
}

static json_t *object_schema(struct maker *m, const struct request_member *table, size_t count)
{
	json_t *s = json_pack("{s:s, s:b}", "type", "object", "additionalProperties", 0);

	for (size_t i = 0; i < count; i++) {
		put(m, member(m, s, "properties"), table[i].name, member_schema(m, &table[i]));
		if (table[i].required)
			add(m, list(m, s, "required"), json_string(table[i].name));
		if (table[i].one_of)
			add(m, list(m, s, "oneOf"), json_pack("{s:[s]}", "required", table[i].name));
	}
	return s;
}

static json_t *body_schema(struct maker *m, enum request_body body)
{
	size_t count;
	const struct request_member *table = request_members(body, &count);
	json_t *s = object_schema(m, table, count);

	/* The one rule that takes two members: a cell may have a deadline that is too long for a run of its own. */
	if (body == REQUEST_BODY_EXECUTE) {
		put(m, s, "if", json_pack("{s:{s:[s]}}", "not", "required", "session_id"));
		put(m, s, "then", json_pack("{s:{s:{s:i}}}", "properties", "timeout_s", "maximum", (int)LIMIT_TIMEOUT_MAX_S));
	}
	return s;
}

/* ---- schemas of answers ---- */

/* The schema that the last part of `path` belongs to, and that part's name. */
static json_t *holder(json_t *schema, const char *path, const char **ret_name)
{
	for (;;) {
		size_t n = strcspn(path, ".[");
		char name[64];

		if (path[n] == 0) {
			*ret_name = path;
			return schema;
		}
		snprintf(name, sizeof name, "%.*s", (int)n, path);
		schema = json_object_get(json_object_get(schema, "properties"), name);
		if (path[n] == '[') {
			schema = json_object_get(schema, "items");
			n += 2;
		}
		path += n + 1;
	}
}

static void add_field(struct maker *m, json_t *schema, const struct answer_field *f)
{
	const char *name;
	json_t *into = holder(schema, f->path, &name), *s = json_pack("{s:s}", "description", f->description);
	size_t n = strcspn(f->type, "?");
	bool nullable = f->type[n];

	if (!strcmp(f->type, "*"))
		; /* whatever there is */
	else if (nullable)
		put(m, s, "type", json_pack("[s%, s]", f->type, n, "null"));
	else
		put(m, s, "type", json_string(f->type));
	if (!strcmp(f->type, "array"))
		put(m, s, "items", json_pack("{s:s}", "type", "object"));
	for (size_t i = 0; i < f->value_count; i++)
		if (f->values[i])
			add(m, list(m, s, "enum"), json_string(f->values[i]));
	put(m, member(m, into, "properties"), name, s);
	if (!f->optional)
		add(m, list(m, into, "required"), json_string(name));
}

static void describe_schemas(struct maker *m, json_t *schemas)
{
	for (size_t i = 0; i < described_answer_count; i++) {
		const struct answer_schema *a = described_answers[i].schema;
		const struct body_schema *body = described_answers[i].body;
		json_t *s;

		if (body && !json_object_get(schemas, body->name))
			put(m, schemas, body->name, body_schema(m, body->body));
		if (a->media_type || json_object_get(schemas, a->name))
			continue;
		s = json_pack("{s:s, s:s}", "type", "object", "description", a->description);
		for (size_t k = 0; k < a->count; k++)
			add_field(m, s, &a->fields[k]);
		put(m, schemas, a->name, s);
	}
}

static json_t *error_schema(struct maker *m)
{
	json_t *codes = json_array();

	for (int k = ERROR_NONE + 1; k < ERROR_CASES; k++)
		if (strcmp(error_row((enum error_case)(k - 1))->code, error_row((enum error_case)k)->code) != 0)
			add(m, codes,
			    json_string(error_row((enum error_case)k)->code)); /* those that share one are neighbours */
	return json_pack(
	    "{s:s, s:[s], s:{s:{s:s, s:[s,s,s,s], s:{s:{s:s, s:s, s:o}, s:{s:s, s:s}, s:{s:s, s:s}, s:{s:s, s:s}}}}}", "type",
	    "object", "required", "error", "properties", "error", "type", "object", "required", "code", "message", "hint",
	    "ran", "properties", "code", "type", "string", "description", "stable, for programs", "enum", codes, "message",
	    "type", "string", "description", "what is wrong, for people", "hint", "type", "string", "description",
	    "what would mend it", "ran", "type", "boolean", "description",
	    "whether any code of the request may have run: whether a retry could run it twice");
}

/* ---- operations ---- */

/* Errors that no route has for itself, by what makes them possible. */
enum possible { ALWAYS, WITH_TOKEN, WITH_BODY };
static const struct {
	enum error_case kase;
	enum possible possible;
} common_errors[] = {
    {ERROR_INVALID_REQUEST, WITH_BODY}, {ERROR_FRAMING, ALWAYS},	 {ERROR_UNAUTHORIZED, WITH_TOKEN},
    {ERROR_FORBIDDEN, WITH_TOKEN},	{ERROR_SLOW_REQUEST, WITH_BODY}, {ERROR_TOO_LARGE, ALWAYS},
    {ERROR_MEDIA_TYPE, WITH_BODY},	{ERROR_HEADERS, ALWAYS},	 {ERROR_QUOTA, WITH_BODY},
    {ERROR_SANDBOX, WITH_BODY},		{ERROR_POLICY_ONLY, WITH_BODY},	 {ERROR_CANCELLED, WITH_BODY},
    {ERROR_INTERNAL, ALWAYS},		{ERROR_NO_SANDBOX, WITH_BODY},	 {ERROR_OVERLOADED, ALWAYS},
    {ERROR_STOPPING, ALWAYS},
};

static void add_error(struct maker *m, json_t *responses, enum error_case kase)
{
	const struct error_row *row = error_row(kase);
	char status[16], words[512];
	json_t *response, *old;

	snprintf(status, sizeof status, "%d", row->status);
	response = member(m, responses, status);
	old = json_object_get(response, "description");
	snprintf(words, sizeof words, "%s%s`%s`%s%s", old ? json_string_value(old) : "", old ? "; " : "", row->code,
		 row->message ? ": " : "", row->message ? row->message : "");
	put(m, response, "description", json_string(words));
	put(m, response, "content", json_pack("{s:{s:{s:s}}}", "application/json", "schema", "$ref", SCHEMAS "Error"));
	if (row->retry_after_s)
		put(m, response, "headers",
		    json_pack("{s:{s:s, s:{s:s}}}", "Retry-After", "description", "seconds", "schema", "type", "integer"));
	if (kase == ERROR_UNAUTHORIZED)
		put(m, response, "headers",
		    json_pack("{s:{s:s, s:{s:s}}}", "WWW-Authenticate", "description", "the scheme", "schema", "type",
			      "string"));
}

static void describe_errors(struct maker *m, json_t *responses, const struct described_route *r,
			    const struct described_answer *a)
{
	const bool can[] = {[ALWAYS] = true, [WITH_TOKEN] = r->scopes != 0, [WITH_BODY] = r->max_body > 0};

	for (size_t i = 0; i < sizeof common_errors / sizeof *common_errors; i++)
		if (can[common_errors[i].possible])
			add_error(m, responses, common_errors[i].kase);
	for (size_t i = 0; a && i < DESCRIBE_ERRORS_MAX && a->errors[i] != ERROR_NONE; i++)
		add_error(m, responses, a->errors[i]);
}

static void describe_success(struct maker *m, json_t *responses, const struct described_answer *a)
{
	char status[16], ref[96];
	json_t *response, *content;

	snprintf(status, sizeof status, "%d", a ? a->status : 200);
	response = member(m, responses, status);
	put(m, response, "description", json_string(a ? a->schema->description : "it is done"));
	content = member(m, response, "content");
	if (!a) {
		put(m, content, "application/json", json_object());
		return;
	}
	if (a->schema->media_type) {
		put(m, content, a->schema->media_type, json_pack("{s:{s:s}}", "schema", "type", "string"));
		return;
	}
	snprintf(ref, sizeof ref, SCHEMAS "%s", a->schema->name);
	put(m, content, "application/json", json_pack("{s:{s:s}}", "schema", "$ref", ref));
	if (a->streams)
		put(m, content, "text/event-stream",
		    json_pack(
			"{s:{s:s, s:s}}", "schema", "type", "string", "description",
			"events `stdout` and `stderr` with {\"text\": …}, then one `result` whose data is the plain answer, "
			"or one `error`"));
	if (a->status == 201)
		put(m, response, "headers",
		    json_pack("{s:{s:s, s:{s:s}}}", "Location", "description", "its path", "schema", "type", "string"));
}

/* What is refused before there is a message has our shape, what is refused as one has the protocol's. */
static void describe_messages(struct maker *m, json_t *responses, const struct described_answer *a)
{
	static const struct {
		const char *status, *words;
	} refusals[] = {
	    {"400", "a message that is none, or of a revision that is not served"},
	    {"403", "a page of another origin"},
	    {"404", "an unknown method, where the protocol's revision has this status for it"},
	    {"406", "the client takes no application/json"},
	};
	char ref[96], words[768];

	snprintf(ref, sizeof ref, SCHEMAS "%s", a->schema->name);
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
		json_t *response = member(m, responses, refusals[i].status), *old = json_object_get(response, "description");

		snprintf(words, sizeof words, "%s%s%s", old ? json_string_value(old) : "", old ? "; " : "", refusals[i].words);
		put(m, response, "description", json_string(words));
		put(m, response, "content",
		    json_pack("{s:{s:{s:[{s:s}, {s:s}]}}}", "application/json", "schema", "anyOf", "$ref", ref, "$ref",
			      SCHEMAS "Error"));
	}
	put(m, member(m, responses, "202"), "description", json_string("a notification was taken; there is no body"));
}

static json_t *security(struct maker *m, unsigned allowed)
{
	json_t *any = json_array();

	for (size_t i = 0; i < TOKEN_SCOPES; i++)
		if (allowed & token_scope_names[i].bit)
			add(m, any, json_pack("{s:[s]}", "bearer", token_scope_names[i].name));
	return any;
}

/* Several values stand in one, with commas between. */
static json_t *parameter_schema(struct maker *m, const struct find_parameter *p)
{
	json_t *one = json_pack("{s:s}", "type", p->type);

	if (p->format)
		put(m, one, "format", json_string(p->format));
	if (p->max) {
		put(m, one, "minimum", json_integer(p->min));
		put(m, one, "maximum", json_integer(p->max));
	}
	if (!p->values)
		return one;
	for (size_t i = 0; i < p->value_count; i++)
		if (p->values[i])
			add(m, list(m, one, "enum"), json_string(p->values[i]));
	return json_pack("{s:s, s:o}", "type", "array", "items", one);
}

static void describe_parameters(struct maker *m, json_t *operation, unsigned routes)
{
	size_t count;
	const struct find_parameter *table = find_parameters(&count);

	for (size_t i = 0; i < count; i++) {
		json_t *p;

		if (!(table[i].routes & routes))
			continue;
		p = json_pack("{s:s, s:s, s:s, s:o}", "name", table[i].name, "in", "query", "description", table[i].description,
			      "schema", parameter_schema(m, &table[i]));
		if (table[i].values) {
			put(m, p, "style", json_string("form"));
			put(m, p, "explode", json_false());
		}
		add(m, list(m, operation, "parameters"), p);
	}
}

static void describe_request(struct maker *m, json_t *operation, const struct described_route *r,
			     const struct described_answer *a)
{
	for (const char *p = r->pattern; (p = strchr(p, '{')); p++) {
		size_t n = strcspn(p + 1, "}");

		add(m, list(m, operation, "parameters"),
		    json_pack("{s:s%, s:s, s:b, s:{s:s}}", "name", p + 1, n, "in", "path", "required", 1, "schema", "type",
			      "string"));
	}
	if (a && a->parameters)
		describe_parameters(m, operation, a->parameters);
	if (a && a->body) {
		char ref[96];

		snprintf(ref, sizeof ref, SCHEMAS "%s", a->body->name);
		put(m, operation, "requestBody",
		    json_pack("{s:b, s:{s:{s:{s:s}}}}", "required", a->body->required, "content", "application/json", "schema",
			      "$ref", ref));
	}
}

static void describe_route(struct maker *m, json_t *paths, const struct described_route *r)
{
	const struct described_answer *answer = NULL;
	char method[16], id[96];
	json_t *operation, *responses;
	size_t n;

	for (size_t i = 0; i < described_answer_count && !answer; i++)
		if (!strcmp(described_answers[i].method, r->method) && !strcmp(described_answers[i].pattern, r->pattern))
			answer = &described_answers[i];
	lower_case(r->method, method, sizeof method);
	operation = member(m, member(m, paths, r->pattern), method);
	n = (size_t)snprintf(id, sizeof id, "%s", method);
	for (const char *p = r->pattern; *p && n < sizeof id - 1; p++)
		if (isalnum((unsigned char)*p) || (*p == '/' && n > 0))
			id[n++] = *p == '/' ? '_' : *p;
	id[n] = 0;
	put(m, operation, "operationId", json_string(id));
	put(m, operation, "summary", json_string(r->summary));
	put(m, operation, "security", security(m, r->scopes));
	describe_request(m, operation, r, answer);
	responses = member(m, operation, "responses");
	describe_success(m, responses, answer);
	describe_errors(m, responses, r, answer);
	if (answer && answer->schema->message)
		describe_messages(m, responses, answer);
}

json_t *describe_openapi(const struct described_route *routes, size_t count)
{
	struct maker m = {0};
	json_t *root = json_pack(
	    "{s:s, s:{s:s, s:s, s:s}}", "openapi", "3.1.0", "info", "title", "Weir", "version", WEIR_VERSION, "description",
	    "Runs untrusted code in sandboxes. Made from the tables that the service works by; docs/api.md "
	    "and docs/run-code.md say more.");
	json_t *paths = member(&m, root, "paths"), *components = member(&m, root, "components");
	json_t *schemas = member(&m, components, "schemas");

	for (size_t i = 0; i < count; i++)
		describe_route(&m, paths, &routes[i]);
	describe_schemas(&m, schemas);
	put(&m, schemas, "Error", error_schema(&m));
	put(&m, components, "securitySchemes",
	    json_pack("{s:{s:s, s:s, s:s}}", "bearer", "type", "http", "scheme", "bearer", "description",
		      "a token of `weir token mint`; the names beside it are the scopes that will do"));
	if (!m.failed)
		return root;
	json_decref(root);
	return NULL;
}
