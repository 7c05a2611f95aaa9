/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration: every key at good and bad values, what wins over what, and where an error says it is. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/config.h"
#include "core/limits.h"
#include "core/listen.h"

static int parse(const char *text, struct config *c, struct err *e)
{
	memset(c, 0, sizeof *c);
	*e = (struct err){.code = -1};
	return config_parse(text, strlen(text), c, e);
}

/* Everything at once, each in its place. */
static void whole(void **state)
{
	static const char text[] =
	    "{\"listen\": \"[::1]:8443\", \"plaintext\": false, \"state_dir\": \"/srv/weir\",\n"
	    " \"policy\": \"tool-call\", \"pool\": {\"size\": 12},\n"
	    " \"snippet\": {\"python\": \"/opt/py/bin/python3\", \"image\": \"image\"},\n"
	    " \"tool_calls\": {\"allow_internet_egress\": false, \"policy\": \"web.json\"},\n"
	    " \"audit\": {\"keep_days\": 90, \"max_mib\": 4096, \"project_mib\": 100, \"content\": true},\n"
	    " \"metrics\": {\"bpf_run_time\": true},\n"
	    " \"tls\": {\"certificate\": \"a.crt\", \"key\": \"a.key\"}}\n";
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(parse(text, &c, &e), 0);
	assert_string_equal(c.listen, "[::1]:8443");
	assert_false(c.plaintext);
	assert_string_equal(c.state_dir, "/srv/weir");
	assert_string_equal(c.policy, "tool-call");
	assert_int_equal(c.pool_size, 12);
	assert_string_equal(c.python, "/opt/py/bin/python3");
	assert_string_equal(c.image, "image");
	assert_false(c.tool_egress);
	assert_string_equal(c.tool_policy, "web.json");
	assert_int_equal(c.audit_days, 90);
	assert_int_equal(c.audit_mib, 4096);
	assert_int_equal(c.audit_project_mib, 100);
	assert_true(c.audit_content);
	assert_true(c.bpf_run_time);
	assert_string_equal(c.tls_certificate, "a.crt");
	assert_string_equal(c.tls_key, "a.key");
	for (enum config_key key = 0; key < CONFIG_KEYS; key++)
		assert_int_equal(c.from[key], CONFIG_FILE);
	config_clear(&c);
	assert_null(c.listen);
}

static void good(void **state)
{
	static const char *const rows[] = {
	    "{}",
	    " {\n} ",
	    "{\"pool\": {}}",
	    "{\"snippet\": {}}",
	    "{\"pool\": {\"size\": 1}}",
	    "{\"pool\": {\"size\": 512}}",
	    "{\"listen\": \"127.0.0.1:0\"}",
	    "{\"listen\": \"localhost:65535\"}",
	    "{\"listen\": \"unix:run.sock\"}",
	    "{\"plaintext\": true}",
	    "{\"l\\u0069sten\": \"127.0.0.1:1\"}", /* the same name, written otherwise */
	    "{\"state_dir\": \"/srv/\\u00e9t\\u00e9\"}",
	    "{\"snippet\": {\"image\": \"layout:3.12\"}}",
	    "{\"audit\": {}}",
	    "{\"metrics\": {}}",
	    "{\"audit\": {\"keep_days\": 1, \"max_mib\": 16, \"project_mib\": 1}}",
	    "{\"audit\": {\"keep_days\": 3650, \"max_mib\": 1048576, \"project_mib\": 1048576}}",
	    "{\"tool_calls\": {}}",
	    "{\"toolCalls\": {}}",
	    "{\"tool_calls\": {\"allow_internet_egress\": true}}",
	    "{\"toolCalls\": {\"allowInternetEgress\": false, \"policy\": \"tool-call\"}}",
	    "{\"tool\\u0043alls\": {\"allowInternet\\u0045gress\": false}}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct config c;
		struct err e;

		if (parse(rows[i], &c, &e) != 0)
			fail_msg("%s: at \"%s\": %s", rows[i], e.where, e.msg);
		config_clear(&c);
	}
}

static void bad(void **state)
{
	static const struct {
		const char *text, *where, *part; /* of the message */
	} rows[] = {
	    {"", "", "it is empty"},
	    {"[]", "", "expected an object, found an array"},
	    {"null", "", "expected an object, found null"},
	    {"{\"listen\": \"127.0.0.1:1\",}", "/listen", "expected a member's name in double quotes at byte 25"},
	    {"{} {}", "", "expected"},
	    {"{\"listen\": 8380}", "/listen", "expected a string, found a number"},
	    {"{\"listen\": null}", "/listen", "expected a string, found null"},
	    {"{\"listen\": \"\"}", "/listen", "it is empty"},
	    {"{\"listen\": \"8380\"}", "/listen", "is not ADDR:PORT"},
	    {"{\"listen\": \"::1:80\"}", "/listen", "is not ADDR:PORT"},
	    {"{\"listen\": \"h:65536\"}", "/listen", "is not ADDR:PORT"},
	    {"{\"plaintext\": \"true\"}", "/plaintext", "expected true or false, found a string"},
	    {"{\"plaintext\": 1}", "/plaintext", "expected true or false, found a number"},
	    {"{\"plaintext\": null}", "/plaintext", "expected true or false, found null"},
	    {"{\"state_dir\": \"\"}", "/state_dir", "it is empty"},
	    {"{\"state_dir\": \"a\\u0000b\"}", "/state_dir", "NUL"},
	    {"{\"state_dir\": \"a\\nb\"}", "/state_dir", "control character"},
	    {"{\"state_dir\": [\"a\"]}", "/state_dir", "expected a string, found an array"},
	    {"{\"policy\": {}}", "/policy", "expected a string, found an object"},
	    {"{\"policy\": \"\"}", "/policy", "it is empty"},
	    {"{\"pool\": 3}", "/pool", "expected an object, found a number"},
	    {"{\"pool\": {\"size\": 0}}", "/pool/size", "from 1 to 512, found 0"},
	    {"{\"pool\": {\"size\": 513}}", "/pool/size", "from 1 to 512, found 513"},
	    {"{\"pool\": {\"size\": -1}}", "/pool/size", "from 1 to 512, found -1"},
	    {"{\"pool\": {\"size\": 3.0}}", "/pool/size", "from 1 to 512, found 3.0"},
	    {"{\"pool\": {\"size\": 3e0}}", "/pool/size", "from 1 to 512"},
	    {"{\"pool\": {\"size\": 4294967299}}", "/pool/size", "from 1 to 512"},
	    {"{\"pool\": {\"size\": \"3\"}}", "/pool/size", "expected an integer, found a string"},
	    {"{\"pool\": {\"sise\": 3}}", "/pool/sise", "there is no such key; those here are size"},
	    {"{\"pool\": {\"size\": 3, \"size\": 3}}", "/pool/size", "twice"},
	    {"{\"pool\": {}, \"pool\": {}}", "/pool", "twice"},
	    {"{\"listen\": \"h:1\", \"lis\\u0074en\": \"h:1\"}", "/listen", "twice"},
	    {"{\"audit\": {\"keep_days\": 0}}", "/audit/keep_days", "from 1 to 3650, found 0"},
	    {"{\"audit\": {\"keep_days\": 3651}}", "/audit/keep_days", "from 1 to 3650, found 3651"},
	    {"{\"audit\": {\"max_mib\": 15}}", "/audit/max_mib", "from 16 to 1048576, found 15"},
	    {"{\"audit\": {\"max_mib\": 1048577}}", "/audit/max_mib", "from 16 to 1048576, found 1048577"},
	    {"{\"audit\": {\"project_mib\": 0}}", "/audit/project_mib", "from 1 to 1048576, found 0"},
	    {"{\"audit\": {\"content\": 1}}", "/audit/content", "expected true or false"},
	    {"{\"audit\": {\"bytes\": 1}}", "/audit/bytes", "those here are keep_days, max_mib, project_mib, content"},
	    {"{\"metrics\": {\"bpf_run_time\": \"yes\"}}", "/metrics/bpf_run_time", "expected true or false"},
	    {"{\"snippet\": {\"python\": \"\"}}", "/snippet/python", "it is empty"},
	    {"{\"snippet\": {\"image\": 1}}", "/snippet/image", "expected a string, found a number"},
	    {"{\"tls\": {}}", "/tls", "\"certificate\" is missing"},
	    {"{\"tls\": {\"certificate\": \"c\"}}", "/tls", "\"key\" is missing"},
	    {"{\"tls\": {\"key\": \"k\"}}", "/tls", "\"certificate\" is missing"},
	    {"{\"size\": 3}", "/size",
	     "there is no such key; those here are listen, plaintext, tls, state_dir, policy, pool, snippet, tool_calls"},
	    {"{\"Listen\": \"h:1\"}", "/Listen", "no such key"},
	    {"{\"\": 1}", "/", "no such key"},
	    {"{\"a/b~\": 1}", "/a~1b~0", "no such key"},
	    {"{\"tool_calls\": true}", "/tool_calls", "expected an object, found true"},
	    {"{\"tool_calls\": {\"allow_internet_egress\": \"false\"}}", "/tool_calls/allow_internet_egress",
	     "expected true or false, found a string"},
	    {"{\"toolCalls\": {\"allowInternetEgress\": 0}}", "/toolCalls/allowInternetEgress",
	     "expected true or false, found a number"},
	    {"{\"tool_calls\": {\"policy\": \"\"}}", "/tool_calls/policy", "it is empty"},
	    /* Each spelling in its own group. */
	    {"{\"tool_calls\": {\"allowInternetEgress\": false}}", "/tool_calls/allowInternetEgress",
	     "no such key; those here are allow_internet_egress, policy"},
	    {"{\"toolCalls\": {\"allow_internet_egress\": false}}", "/toolCalls/allow_internet_egress",
	     "no such key; those here are allowInternetEgress, policy"},
	    {"{\"tool_calls\": {}, \"tool_calls\": {}}", "/tool_calls", "twice"},
	    {"{\"toolCalls\": {}, \"toolCalls\": {}}", "/toolCalls", "twice"},
	    {"{\"toolCalls\": {\"allowInternetEgress\": false, \"allowInternetEgress\": false}}",
	     "/toolCalls/allowInternetEgress", "twice"},
	    /* Both places are named, whichever comes first. */
	    {"{\"tool_calls\": {\"allow_internet_egress\": false}, \"toolCalls\": {\"allowInternetEgress\": false}}",
	     "/toolCalls", "this is \"/tool_calls\" in another spelling, and that is there too: keep one of the two"},
	    {"{\"toolCalls\": {\"allowInternetEgress\": false}, \"listen\": \"h:1\", \"tool_calls\": {}}", "/tool_calls",
	     "this is \"/toolCalls\" in another spelling"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct config c;
		struct err e;
		int rc = parse(rows[i].text, &c, &e);

		config_clear(&c);
		if (rc != -EINVAL || e.code != EINVAL || strcmp(e.where, rows[i].where) != 0 || !strstr(e.msg, rows[i].part))
			fail_msg("%s: %d, at \"%s\": %s", rows[i].text, rc, e.where, e.msg);
	}
}

static void at_the_limits(void **state)
{
	static char text[LIMIT_CONFIG_BYTES + 2];
	char *path;
	struct config c = {0};
	struct err e;

	(void)state;
	memset(text, ' ', LIMIT_CONFIG_BYTES + 1);
	memcpy(text, "{}", 2);
	assert_int_equal(config_parse(text, LIMIT_CONFIG_BYTES, &c, &e), 0);
	assert_int_equal(config_parse(text, LIMIT_CONFIG_BYTES + 1, &c, &e), -EFBIG);
	/* The longest path, and one byte more. */
	path = text + sprintf(text, "{\"policy\": \"");
	memset(path, 'p', 4096);
	strcpy(path + 4095, "\"}");
	assert_int_equal(config_parse(text, strlen(text), &c, &e), 0);
	config_clear(&c);
	path[4095] = 'p';
	strcpy(path + 4096, "\"}");
	assert_int_equal(config_parse(text, strlen(text), &c, &e), -ENAMETOOLONG);
	config_clear(&c);
	assert_int_equal(parse("{\"pool\": [[[[[[[[1]]]]]]]]}", &c, &e), -E2BIG);
	config_clear(&c);
}

static void what_wins(void **state)
{
	_cleanup_config_ struct config file, options = {0}, none = {0};
	struct err e;

	(void)state;
	/* Nothing said. */
	assert_int_equal(config_merge(&none, &options, &e), 0);
	assert_string_equal(none.listen, "127.0.0.1:8380");
	assert_string_equal(none.state_dir, "/var/lib/weir");
	assert_string_equal(none.policy, "snippet");
	assert_int_equal(none.pool_size, LIMIT_POOL_SIZE);
	assert_false(none.plaintext);
	assert_int_equal(none.audit_days * 86400ll, LIMIT_AUDIT_KEEP_S);
	assert_int_equal((uint64_t)none.audit_mib << 20, LIMIT_AUDIT_BYTES);
	assert_int_equal((uint64_t)none.audit_project_mib << 20, LIMIT_AUDIT_PROJECT_BYTES);
	assert_false(none.audit_content);
	assert_false(none.bpf_run_time);
	assert_true(none.tool_egress);
	assert_string_equal(none.tool_policy, "tool-call");
	assert_null(none.python);
	assert_null(none.image);
	assert_null(none.tls_certificate);
	assert_null(none.tls_key);
	for (enum config_key key = 0; key < CONFIG_KEYS; key++)
		assert_int_equal(none.from[key], CONFIG_DEFAULT);
	/* The file, and options over it. */
	assert_int_equal(parse("{\"listen\": \"h:1\", \"policy\": \"tool-call\", \"pool\": {\"size\": 5}}", &file, &e), 0);
	assert_int_equal(config_option(&options, CONFIG_LISTEN, "h:2", &e), 0);
	assert_int_equal(config_option(&options, CONFIG_LISTEN, "h:3", &e), 0); /* the last one counts */
	assert_int_equal(config_option(&options, CONFIG_POOL_SIZE, "6", &e), 0);
	assert_int_equal(config_option(&options, CONFIG_PLAINTEXT, NULL, &e), 0);
	assert_int_equal(config_merge(&file, &options, &e), 0);
	assert_string_equal(file.listen, "h:3");
	assert_string_equal(file.policy, "tool-call");
	assert_string_equal(file.state_dir, "/var/lib/weir");
	assert_int_equal(file.pool_size, 6);
	assert_true(file.plaintext);
	assert_int_equal(file.from[CONFIG_LISTEN], CONFIG_OPTION);
	assert_int_equal(file.from[CONFIG_POLICY], CONFIG_FILE);
	assert_int_equal(file.from[CONFIG_STATE_DIR], CONFIG_DEFAULT);
	assert_string_equal(options.listen, "h:3"); /* left as it is */
}

/* The interpreter of the file is in the file's root: another image has none there. */
static void interpreter_of_another_image(void **state)
{
	static const char text[] = "{\"snippet\": {\"image\": \"/a\", \"python\": \"/a/python\"}}";
	struct config file, options = {0};
	struct err e;

	(void)state;
	assert_int_equal(parse(text, &file, &e), 0);
	assert_int_equal(config_merge(&file, &options, &e), 0);
	assert_string_equal(file.python, "/a/python");
	config_clear(&file);
	assert_int_equal(parse(text, &file, &e), 0);
	assert_int_equal(config_option(&options, CONFIG_IMAGE, "/b", &e), 0);
	assert_int_equal(config_merge(&file, &options, &e), 0);
	assert_string_equal(file.image, "/b");
	assert_null(file.python);
	assert_int_equal(file.from[CONFIG_PYTHON], CONFIG_DEFAULT);
	config_clear(&file);
	assert_int_equal(parse(text, &file, &e), 0);
	assert_int_equal(config_option(&options, CONFIG_PYTHON, "/b/python", &e), 0);
	assert_int_equal(config_merge(&file, &options, &e), 0);
	assert_string_equal(file.python, "/b/python");
	config_clear(&file);
	config_clear(&options);
}

/* The switch is on unless somebody turns it off; off, nothing but the shipped policy that denies everything is in force. */
static void way_out_of_tools(void **state)
{
	static const struct {
		const char *text;
		bool option, egress;
		const char *policy;
	} rows[] = {
	    {"{}", false, true, "tool-call"},
	    {"{}", true, false, "snippet"},
	    {"{\"tool_calls\": {\"policy\": \"web.json\"}}", false, true, "web.json"},
	    {"{\"tool_calls\": {\"policy\": \"web.json\"}}", true, false, "snippet"},
	    {"{\"tool_calls\": {\"policy\": \"web.json\", \"allow_internet_egress\": true}}", true, false, "snippet"},
	    {"{\"tool_calls\": {\"policy\": \"web.json\", \"allow_internet_egress\": false}}", false, false, "snippet"},
	    {"{\"toolCalls\": {\"policy\": \"web.json\", \"allowInternetEgress\": false}}", false, false, "snippet"},
	    {"{\"toolCalls\": {\"allowInternetEgress\": true}}", false, true, "tool-call"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		_cleanup_config_ struct config c, options = {0};
		struct err e;

		assert_int_equal(parse(rows[i].text, &c, &e), 0);
		if (rows[i].option)
			assert_int_equal(config_option(&options, CONFIG_TOOL_EGRESS, NULL, &e), 0);
		assert_int_equal(config_merge(&c, &options, &e), 0);
		assert_int_equal(c.tool_egress, rows[i].egress);
		assert_string_equal(config_tool_policy(&c), rows[i].policy);
	}
}

static bool ends_in(const char *text, const char *end)
{
	return strlen(text) >= strlen(end) && !strcmp(text + strlen(text) - strlen(end), end);
}

/* Whatever stands before it, reason and mend are there. */
static void long_messages(void **state)
{
	char path[4096];
	struct err e;

	(void)state;
	memset(path, 'p', sizeof path - 1);
	path[sizeof path - 1] = 0;
	assert_int_equal(err_errno(&e, ENOENT, "", "open %s", path), -ENOENT);
	assert_memory_equal(e.msg, "open ppp", 8);
	assert_non_null(strstr(e.msg, "ppp...ppp"));
	assert_true(ends_in(e.msg, "ppp: No such file or directory"));
	assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
	assert_int_equal(err_set(&e, EPERM, "", "%s and %s are wrong: chmod 600 them", path, path), -EPERM);
	assert_true(ends_in(e.msg, "are wrong: chmod 600 them"));
	assert_int_equal(err_wrap(&e, "%s", path), -EPERM);
	assert_true(ends_in(e.msg, "are wrong: chmod 600 them"));
	/* The longest that is whole, and one byte more. */
	path[sizeof e.msg - 1] = 0;
	err_set(&e, EPERM, "", "%s", path);
	assert_string_equal(e.msg, path);
	path[sizeof e.msg - 1] = 'p';
	path[sizeof e.msg] = 0;
	err_set(&e, EPERM, "", "%s", path);
	assert_non_null(strstr(e.msg, "p...p"));
	assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
}

/* Options are held to what the file is held to, and named in the error. */
static void bad_options(void **state)
{
	static const struct {
		enum config_key key;
		const char *text, *where;
	} rows[] = {
	    {CONFIG_AUDIT_DAYS, "0", "--audit-keep-days"},
	    {CONFIG_AUDIT_MIB, "1", "--audit-max-mib"},
	    {CONFIG_AUDIT_PROJECT_MIB, "1048577", "--audit-project-mib"},
	    {CONFIG_LISTEN, "8380", "--listen"},
	    {CONFIG_POOL_SIZE, "0", "--pool"},
	    {CONFIG_POOL_SIZE, "513", "--pool"},
	    {CONFIG_POOL_SIZE, "", "--pool"},
	    {CONFIG_POOL_SIZE, "3x", "--pool"},
	    {CONFIG_POOL_SIZE, " 3", "--pool"},
	    {CONFIG_POOL_SIZE, "03", "--pool"},
	    {CONFIG_POLICY, "", "--policy"},
	    {CONFIG_STATE_DIR, "a\nb", "--state-dir"},
	    {CONFIG_TLS_KEY, "", "--tls-key"},
	    {CONFIG_IMAGE, "", "--image"},
	    {CONFIG_TOOL_POLICY, "", "--tool-policy"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		_cleanup_config_ struct config c = {0};
		struct err e = {0};

		if (config_option(&c, rows[i].key, rows[i].text, &e) != -EINVAL || strcmp(e.where, rows[i].where) != 0)
			fail_msg("%s \"%s\": at %s: %s", rows[i].where, rows[i].text, e.where, e.msg);
		assert_int_equal(c.from[rows[i].key], CONFIG_DEFAULT);
	}
}

static int check_with(const char *certificate, const char *key, bool plaintext, struct err *e)
{
	_cleanup_config_ struct config c = {0};

	if (certificate)
		assert_int_equal(config_option(&c, CONFIG_TLS_CERTIFICATE, certificate, e), 0);
	if (key)
		assert_int_equal(config_option(&c, CONFIG_TLS_KEY, key, e), 0);
	c.plaintext = plaintext;
	return config_check(&c, e);
}

static void contradictions(void **state)
{
	struct err e = {0};

	(void)state;
	assert_int_equal(check_with(NULL, NULL, false, &e), 0);
	assert_int_equal(check_with(NULL, NULL, true, &e), 0);
	assert_int_equal(check_with("c", "k", false, &e), 0);
	assert_int_equal(check_with("c", NULL, false, &e), -EINVAL);
	assert_string_equal(e.where, "--tls-cert");
	assert_non_null(strstr(e.msg, "say --tls-key too"));
	assert_int_equal(check_with(NULL, "k", false, &e), -EINVAL);
	assert_string_equal(e.where, "--tls-key");
	assert_int_equal(check_with("c", "k", true, &e), -EINVAL);
	assert_string_equal(e.where, "--plaintext");
}

/* A project's part is no more than the whole; what nobody has asked for is made to fit. */
static void parts_of_the_record(void **state)
{
	static const struct {
		const char *text;
		int rc;
	} rows[] = {
	    {"{\"audit\": {\"max_mib\": 16}}", 0},
	    {"{\"audit\": {\"max_mib\": 16, \"project_mib\": 16}}", 0},
	    {"{\"audit\": {\"max_mib\": 16, \"project_mib\": 17}}", -EINVAL},
	    {"{\"audit\": {\"project_mib\": 1025}}", -EINVAL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		_cleanup_config_ struct config c, none = {0};
		struct err e;

		assert_int_equal(parse(rows[i].text, &c, &e), 0);
		assert_int_equal(config_merge(&c, &none, &e), 0);
		assert_int_equal(config_check(&c, &e), rows[i].rc);
		if (rows[i].rc)
			assert_string_equal(e.where, "--audit-project-mib");
	}
}

static void pointers(void **state)
{
	char text[CONFIG_POINTER_MAX];

	(void)state;
	for (enum config_key key = 0; key < CONFIG_KEYS; key++) {
		config_pointer(key, text);
		assert_true(ends_in(text, config_keys[key].name));
	}
	config_pointer(CONFIG_TOOL_EGRESS, text);
	assert_string_equal(text, "/tool_calls/allow_internet_egress");
	config_pointer(CONFIG_LISTEN, text);
	assert_string_equal(text, "/listen");
	config_pointer(CONFIG_TLS_CERTIFICATE, text);
	assert_string_equal(text, "/tls/certificate");
}

static void addresses(void **state)
{
	static const struct {
		const char *text, *host, *port; /* host NULL: refused */
	} rows[] = {
	    {"127.0.0.1:8380", "127.0.0.1", "8380"},
	    {"[::1]:0", "::1", "0"},
	    {"[fe80::1%eth0]:80", "fe80::1%eth0", "80"},
	    {"localhost:65535", "localhost", "65535"},
	    {"localhost:65536", NULL, NULL},
	    {"localhost:", NULL, NULL},
	    {"localhost:-1", NULL, NULL},
	    {"localhost:+1", NULL, NULL},
	    {"localhost: 1", NULL, NULL},
	    {"localhost:000080", NULL, NULL},
	    {"localhost", NULL, NULL},
	    {":80", NULL, NULL},
	    {"[]:80", NULL, NULL},
	    {"[::1:80", NULL, NULL},
	    {"::1:80", NULL, NULL},
	    {"[[::1]]:80", NULL, NULL},
	    {"", NULL, NULL},
	    {"unix:", NULL, NULL},
	};
	char path[5 + 108 + 1] = "unix:";
	struct listen_address a;
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int rc = listen_parse(rows[i].text, &a, &e);

		if ((rc == 0) != (rows[i].host != NULL) ||
		    (rc == 0 && (a.is_unix || strcmp(a.host, rows[i].host) != 0 || strcmp(a.port, rows[i].port) != 0)))
			fail_msg("\"%s\": %d", rows[i].text, rc);
	}
	assert_int_equal(listen_parse("unix:/run/a:b.sock", &a, &e), 0);
	assert_true(a.is_unix);
	assert_string_equal(a.path, "/run/a:b.sock");
	memset(path + 5, 'p', 107);
	assert_int_equal(listen_parse(path, &a, &e), 0);
	path[5 + 107] = 'p';
	assert_int_equal(listen_parse(path, &a, &e), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whole),
	    cmocka_unit_test(good),
	    cmocka_unit_test(bad),
	    cmocka_unit_test(at_the_limits),
	    cmocka_unit_test(what_wins),
	    cmocka_unit_test(bad_options),
	    cmocka_unit_test(parts_of_the_record),
	    cmocka_unit_test(contradictions),
	    cmocka_unit_test(pointers),
	    cmocka_unit_test(addresses),
	    cmocka_unit_test(way_out_of_tools),
	    cmocka_unit_test(interpreter_of_another_image),
	    cmocka_unit_test(long_messages),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
