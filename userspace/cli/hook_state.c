/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/hook_state.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "core/policy_read.h"

#define DEPTH 32
#define PID_LIMIT (1 << 22) /* the kernel's own */

bool hook_policy_name_ok(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n && !name[n] && n < HOOK_POLICY_MAX;
}

static int text_of(const json_t *doc, const char *key, const char *what, const char **ret, struct err *e)
{
	const json_t *v = json_object_get(doc, key);
	char where[64];

	snprintf(where, sizeof where, "/%s", key);
	if (!v)
		return err_set(e, EINVAL, where, "is missing: %s", what);
	/* The parser refuses NUL, so that the text is as long as it looks. */
	if (!json_is_string(v) || !json_string_value(v)[0])
		return err_set(e, EINVAL, where, "must be text: %s", what);
	*ret = json_string_value(v);
	return 0;
}

static int read_version(const json_t *doc, struct err *e)
{
	const char *text = "";
	int rc = text_of(doc, "ociVersion", "the version of the OCI runtime specification", &text, e);

	if (rc < 0)
		return rc;
	if (strncmp(text, "1.", 2) != 0)
		return err_set(e, EINVAL, "/ociVersion", "is \"%.40s\": version 1 of the specification is what is known here",
			       text);
	return 0;
}

static int read_id(const json_t *doc, struct hook_state *s, struct err *e)
{
	const char *text = "";
	int rc = text_of(doc, "id", "the container's id", &text, e);

	if (rc < 0)
		return rc;
	if (strlen(text) >= sizeof s->id)
		return err_set(e, EINVAL, "/id", "is over %zu bytes", sizeof s->id - 1);
	for (const char *p = text; *p; p++)
		if (*p <= ' ' || *p > '~')
			return err_set(e, EINVAL, "/id", "holds what is no id: a space, or something that can't be printed");
	snprintf(s->id, sizeof s->id, "%s", text);
	return 0;
}

static int read_status(const json_t *doc, struct err *e)
{
	const char *text = "";
	int rc = text_of(doc, "status", "\"creating\" or \"created\"", &text, e);

	if (rc < 0)
		return rc;
	if (!strcmp(text, "creating") || !strcmp(text, "created"))
		return 0;
	if (!strcmp(text, "running") || !strcmp(text, "stopped"))
		return err_set(
		    e, EINVAL, "/status",
		    "is \"%s\": too late for a policy to hold from the first instruction on; the hook belongs to the stage "
		    "createRuntime, and `weir oci-hook stop` to poststop",
		    text);
	return err_set(e, EINVAL, "/status", "must be \"creating\" or \"created\"");
}

static int read_pid(const json_t *doc, struct hook_state *s, struct err *e)
{
	const json_t *v = json_object_get(doc, "pid");

	if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > PID_LIMIT)
		return err_set(e, EINVAL, "/pid", "must be the container's process id, a number from 1 to %d", PID_LIMIT);
	s->pid = (int)json_integer_value(v);
	return 0;
}

static int read_bundle(const json_t *doc, struct hook_state *s, struct err *e)
{
	const char *text = "";
	int rc = text_of(doc, "bundle", "the absolute path of the container's bundle", &text, e);

	if (rc < 0)
		return rc;
	if (text[0] != '/' || strlen(text) >= sizeof s->bundle)
		return err_set(e, EINVAL, "/bundle", "must be an absolute path of less than %zu bytes", sizeof s->bundle);
	snprintf(s->bundle, sizeof s->bundle, "%s", text);
	return 0;
}

static int read_annotations(const json_t *doc, struct hook_state *s, struct err *e)
{
	json_t *all = json_object_get(doc, "annotations"), *v;
	const char *key, *text;

	if (!all)
		return 0;
	if (!json_is_object(all))
		return err_set(e, EINVAL, "/annotations", "must be an object of strings");
	json_object_foreach(all, key, v)
	{
		if (!json_is_string(v))
			return err_set(e, EINVAL, "/annotations", "must be an object of strings, and one is none");
	}
	v = json_object_get(all, HOOK_ANNOTATION);
	if (!v)
		return 0;
	text = json_string_value(v);
	if (!hook_policy_name_ok(text))
		return err_set(e, EINVAL, "/annotations",
			       "\"" HOOK_ANNOTATION
			       "\" must be the name of a policy: a-z, 0-9 and -, at most %d of them, never a path",
			       HOOK_POLICY_MAX - 1);
	s->labelled = true;
	snprintf(s->policy, sizeof s->policy, "%s", text);
	return 0;
}

int hook_state_read(const char *text, size_t len, struct hook_state *ret, struct err *e)
{
	_cleanup_json_ json_t *doc = NULL;
	struct hook_state s = {.labelled = false};
	int rc;

	if (len > HOOK_STATE_MAX)
		return err_set(e, E2BIG, "", "is over %d bytes", HOOK_STATE_MAX);
	rc = read_document(text, len, DEPTH, &doc, e);
	if (rc < 0)
		return rc;
	if (!json_is_object(doc))
		return err_set(e, EINVAL, "", "must be an object");
	rc = read_version(doc, e);
	if (rc == 0)
		rc = read_id(doc, &s, e);
	if (rc == 0)
		rc = read_status(doc, e);
	if (rc == 0)
		rc = read_pid(doc, &s, e);
	if (rc == 0)
		rc = read_bundle(doc, &s, e);
	if (rc == 0)
		rc = read_annotations(doc, &s, e);
	if (rc == 0)
		*ret = s;
	return rc;
}
