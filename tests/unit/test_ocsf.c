/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the record as OCSF's Network Activity. What is required is written down here from the schema itself: version 1.7.0,
 * class network_activity (4001) with its base event, objects metadata, product, network_endpoint, network_connection_info,
 * policy, firewall_rule (rule), actor, process, user; profiles host and security_control (https://schema.ocsf.io/1.7.0).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "core/ocsf.h"

#define RUN                                                                                                                    \
	"{\"run_id\": \"sandbox-a.2\", \"sandbox_id\": \"sandbox-a\", \"project\": \"p\", \"policy\": \"snippet\", "           \
	"\"policy_hash\": \"ab\", \"agent\": null, \"audit_hash\": \"cd\"}"
#define DENIED                                                                                                                 \
	"{\"seq\": 7, \"time\": \"2026-11-30T12:00:00.001999999Z\", \"hook\": \"egress\", \"verdict\": \"denied\", "           \
	"\"reason\": \"rule\", \"rule\": 3, \"rule_name\": \"no-dns\", \"policy_generation\": 2, \"protocol\": \"udp\", "      \
	"\"address\": \"192.0.2.1\", \"port\": 53, \"dns_name\": \"evil.example\", \"dns_type\": \"A\", \"pid\": 2, "          \
	"\"host_pid\": 4711, \"uid\": 1879052289, \"command\": \"py\\\\x0a\", \"attribution\": \"current\", "                  \
	"\"errno\": \"EPERM\", \"socket_cookie\": 9, \"first\": \"2026-11-30T12:00:00.001Z\", "                                \
	"\"last\": \"2026-11-30T12:00:01Z\", \"count\": 5, \"bytes\": 150}"
#define UNKNOWN                                                                                                                \
	"{\"seq\": 8, \"time\": \"2026-11-30T12:00:00Z\", \"hook\": \"egress\", \"verdict\": \"denied\", "                     \
	"\"reason\": \"malformed\", \"rule\": null, \"protocol\": null, \"address\": null, \"port\": null, \"pid\": null, "    \
	"\"host_pid\": null, \"uid\": null, \"command\": null, \"attribution\": \"unknown\", \"count\": 1, \"bytes\": null}"

static json_t *parse(const char *text)
{
	json_error_t error;
	json_t *j = json_loads(text, 0, &error);

	if (!j)
		fail_msg("%s: %s", error.text, text);
	return j;
}

/* `patch`: members of the event that are otherwise; the caller's. */
static json_t *mapped_with(const char *event, const char *patch)
{
	json_t *run = parse(RUN), *e = parse(event), *p = parse(patch), *ret;

	json_object_update(e, p);
	ret = ocsf_network_activity(run, e, "1.0");
	json_decref(run);
	json_decref(e);
	json_decref(p);
	return ret;
}

/* A member by its path, "a.b.c"; NULL when there is none. */
static const json_t *at(const json_t *j, const char *path)
{
	char name[64];

	while (j && *path) {
		size_t len = strcspn(path, ".");

		snprintf(name, sizeof name, "%.*s", (int)len, path);
		j = json_object_get(j, name);
		path += len + (path[len] == '.');
	}
	return j;
}

static void has_number(const json_t *j, const char *path, long long want)
{
	const json_t *value = at(j, path);

	if (!json_is_integer(value) || json_integer_value(value) != want)
		fail_msg("%s is %lld, should be %lld", path, (long long)json_integer_value(value), want);
}

static void has_text(const json_t *j, const char *path, const char *want)
{
	const char *value = json_string_value(at(j, path));

	if (!value || strcmp(value, want) != 0)
		fail_msg("%s is %s, should be %s", path, value ? value : "not there", want);
}

static const struct {
	const char *path;
	json_type type;
} required[] = {
    {"activity_id", JSON_INTEGER},
    {"category_uid", JSON_INTEGER},
    {"class_uid", JSON_INTEGER},
    {"severity_id", JSON_INTEGER},
    {"time", JSON_INTEGER},
    {"type_uid", JSON_INTEGER},
    {"metadata", JSON_OBJECT},
    {"metadata.version", JSON_STRING},
    {"metadata.product", JSON_OBJECT},
    {"metadata.product.vendor_name", JSON_STRING},
    {"metadata.product.name", JSON_STRING},
    {"connection_info.direction_id", JSON_INTEGER},
};

/* Of each object at least one of these. */
static const char *const at_least_one[][8] = {
    {"src_endpoint", "dst_endpoint"},
    {"src_endpoint.ip", "src_endpoint.uid", "src_endpoint.name", "src_endpoint.hostname"},
    {"dst_endpoint.ip", "dst_endpoint.uid", "dst_endpoint.name", "dst_endpoint.hostname"},
    {"policy.name", "policy.uid"},
    {"firewall_rule.name", "firewall_rule.uid"},
};

static void what_is_required_is_there(void **state)
{
	static const char *const events[] = {DENIED, UNKNOWN};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		json_t *e = mapped_with(events[i], "{}");

		assert_non_null(e);
		for (size_t k = 0; k < sizeof required / sizeof required[0]; k++)
			if (!at(e, required[k].path) || json_typeof(at(e, required[k].path)) != required[k].type)
				fail_msg("%s is missing, or of another type", required[k].path);
		for (size_t k = 0; k < sizeof at_least_one / sizeof at_least_one[0]; k++) {
			int found = 0;

			for (size_t n = 0; n < 8 && at_least_one[k][n]; n++)
				found += at(e, at_least_one[k][n]) != NULL;
			if (!found)
				fail_msg("none of %s and its like", at_least_one[k][0]);
		}
		json_decref(e);
	}
}

/* Of the caller, which token it was; whoever has no such credential is named beside the schema alone. */
static void who_asked(void **state)
{
	json_error_t error;
	json_t *event = json_loads(DENIED, 0, &error), *run = json_pack("{s:s, s:s}", "run_id", "r", "caller", "token:tok-1"),
	       *e;

	(void)state;
	e = ocsf_network_activity(run, event, "1");
	has_text(e, "actor.user.credential_uid", "tok-1");
	has_text(e, "unmapped.caller", "token:tok-1");
	json_decref(e);
	json_object_set_new(run, "caller", json_string("uid:0,sudo:1000"));
	e = ocsf_network_activity(run, event, "1");
	assert_null(at(e, "actor.user.credential_uid"));
	has_text(e, "unmapped.caller", "uid:0,sudo:1000");
	json_decref(e);
	/* A user that is nothing but a credential is none of the schema's. */
	json_object_set_new(run, "caller", json_string("token:tok-1"));
	json_object_del(event, "uid");
	e = ocsf_network_activity(run, event, "1");
	assert_null(at(e, "actor.user"));
	json_decref(e);
	json_decref(event);
	json_decref(run);
}

static void a_denied_attempt(void **state)
{
	json_t *e = mapped_with(DENIED, "{}");

	(void)state;
	has_number(e, "class_uid", 4001);
	has_number(e, "category_uid", 4);
	has_number(e, "activity_id", 5);
	has_number(e, "type_uid", 400105);
	has_number(e, "time", 1796040000001);
	has_number(e, "end_time", 1796040001000);
	has_number(e, "status_id", 2);
	has_number(e, "action_id", 2);
	has_number(e, "disposition_id", 2);
	has_number(e, "count", 5);
	has_number(e, "dst_endpoint.port", 53);
	has_number(e, "connection_info.protocol_num", 17);
	has_number(e, "connection_info.protocol_ver_id", 4);
	has_number(e, "connection_info.direction_id", 2);
	has_number(e, "actor.process.pid", 4711);
	has_number(e, "unmapped.pid", 2);
	has_text(e, "actor.process.name", "py\\x0a");
	has_text(e, "actor.user.uid", "1879052289");
	has_text(e, "status_code", "EPERM");
	has_text(e, "dst_endpoint.ip", "192.0.2.1");
	has_text(e, "dst_endpoint.hostname", "evil.example");
	has_text(e, "src_endpoint.uid", "sandbox-a");
	has_text(e, "firewall_rule.name", "no-dns");
	has_text(e, "firewall_rule.uid", "3");
	has_text(e, "policy.name", "snippet");
	has_text(e, "metadata.uid", "sandbox-a.2/7");
	has_text(e, "metadata.version", OCSF_VERSION);
	has_text(e, "message", "udp to 192.0.2.1 port 53, asking for evil.example: denied (rule)");
	assert_true(json_is_true(at(e, "is_alert")));
	assert_null(at(e, "traffic")); /* nothing of it went anywhere */
	assert_null(at(e, "unmapped.agent"));
	json_decref(e);
}

static void verdicts_and_ways(void **state)
{
	static const struct {
		const char *patch;
		int activity, disposition, action, direction;
	} rows[] = {
	    {"{\"verdict\": \"allowed\", \"protocol\": \"tcp\"}", 1, 1, 1, 2},
	    {"{\"verdict\": \"allowed\"}", 6, 1, 1, 2},
	    {"{\"verdict\": \"would_deny\", \"protocol\": \"tcp\"}", 1, 17, 3, 2},
	    {"{\"hook\": \"ingress\"}", 5, 2, 2, 1},
	    {"{\"hook\": \"setsockopt\"}", 99, 2, 2, 2},
	    {"{\"verdict\": \"of tomorrow\"}", 5, 2, 2, 2}, /* what is not known is not said to be allowed */
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		json_t *e = mapped_with(DENIED, rows[i].patch);

		has_number(e, "activity_id", rows[i].activity);
		has_number(e, "type_uid", 400100 + rows[i].activity);
		has_number(e, "disposition_id", rows[i].disposition);
		has_number(e, "action_id", rows[i].action);
		has_number(e, "connection_info.direction_id", rows[i].direction);
		has_text(e, rows[i].direction == 1 ? "src_endpoint.ip" : "dst_endpoint.ip", "192.0.2.1");
		has_text(e, rows[i].direction == 1 ? "dst_endpoint.uid" : "src_endpoint.uid", "sandbox-a");
		assert_int_equal(at(e, "traffic.bytes_out") != NULL, rows[i].disposition != 2);
		json_decref(e);
	}
}

/* Only what can be a host's name is said to be one; what was asked for is there all the same. */
static void names_that_are_none(void **state)
{
	static const struct {
		const char *name;
		int hostname;
	} rows[] = {{"a.example", 1},
		    {"_ldap._tcp.example", 1},
		    {"xn--bcher-kva.example", 1},
		    {".", 0},
		    {"", 0},
		    {"a..b", 0},
		    {"a\\\\000b.example", 0},
		    {"a\\\\010.invalid", 0},
		    {"a@12", 0},
		    {"-a.b", 0},
		    {"<script>.x", 0},
		    {"a.example.", 0},
		    {"two words", 0}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char patch[200];
		json_t *e;

		snprintf(patch, sizeof patch, "{\"dns_name\": \"%s\"}", rows[i].name);
		e = mapped_with(DENIED, patch);
		if ((at(e, "dst_endpoint.hostname") != NULL) != rows[i].hostname)
			fail_msg("\"%s\" %s a host's name", rows[i].name, rows[i].hostname ? "is not" : "is");
		assert_non_null(at(e, "unmapped.dns_name"));
		json_decref(e);
	}
}

static void an_event_without_a_moment_is_none(void **state)
{
	(void)state;
	assert_null(mapped_with(DENIED, "{\"time\": null}"));
	assert_null(mapped_with(DENIED, "{\"time\": \"yesterday\"}"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_required_is_there), cmocka_unit_test(who_asked),
	    cmocka_unit_test(a_denied_attempt),		 cmocka_unit_test(verdicts_and_ways),
	    cmocka_unit_test(names_that_are_none),	 cmocka_unit_test(an_event_without_a_moment_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
