/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/mcp_priv.h"
#include "core/base64.h"
#include "core/cleanup.h"
#include "core/jtext.h"
#include "core/limits.h"

/* One message being read. Members that are not there have a NULL text. */
struct reading {
	const struct mcp_headers *headers;
	struct mcp_plan *plan;
	struct mcp_call *call; /* once its id is known */
	struct jtext method, params;
	struct jtext version; /* of the params' _meta */
	bool capabilities;    /* the _meta says what the client can do */
	bool modern;
};

/* ---- replies ---- */

/* `value` is taken. */
static char *envelope(const struct mcp_call *call, const char *kind, json_t *value, size_t *ret_len)
{
	size_t inner_len;
	_cleanup_free_ char *inner = value ? answer_text(value, &inner_len) : NULL;
	char *text = NULL;
	int n = -1;

	json_decref(value);
	if (inner) /* without its newline */
		n = asprintf(&text, "{\"jsonrpc\": \"2.0\", \"id\": %s, \"%s\": %.*s}\n", call ? call->id : "null", kind,
			     (int)inner_len - 1, inner);
	if (n < 0)
		return NULL;
	*ret_len = (size_t)n;
	return text;
}

char *mcp_error(const struct mcp_call *call, enum mcp_error code, const char *message, json_t *data, size_t *ret_len)
{
	json_t *error = json_pack("{s:i, s:s}", "code", (int)code, "message", message);

	if (data && json_object_set_new(error, "data", data) < 0) {
		json_decref(error);
		error = NULL;
	}
	return envelope(call, "error", error, ret_len);
}

json_t *mcp_result_extras(const struct mcp_call *call)
{
	if (!call->modern)
		return json_object();
	return json_pack("{s:s, s:{s:o}}", "resultType", "complete", "_meta", MCP_META "serverInfo", mcp_about_server());
}

char *mcp_result(const struct mcp_call *call, json_t *result, size_t *ret_len)
{
	json_t *extras = mcp_result_extras(call), *meta = json_object_get(result, "_meta");
	bool ok = result && extras;

	if (ok && meta) /* both have one */
		ok = json_object_update_missing(meta, json_object_get(extras, "_meta")) == 0 || !call->modern;
	ok = ok && json_object_update_missing(result, extras) == 0;
	json_decref(extras);
	if (!ok) {
		json_decref(result);
		result = NULL;
	}
	return envelope(call, "result", result, ret_len);
}

/* What is refused as a message. The reply's words may quote the client: api_error keeps them short and valid. Returns -1. */
static int __attribute__((format(printf, 4, 5)))
refuse(struct reading *r, int status, enum mcp_error code, const char *fmt, ...)
{
	struct api_error words, version;
	char text[sizeof words.message];
	json_t *data = NULL;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	error_set(&words, ERROR_INVALID_REQUEST, "%s", text);
	if (code == MCP_UNSUPPORTED_VERSION) {
		error_set(&version, ERROR_INVALID_REQUEST, "%.32s", r->headers->version);
		data = json_pack("{s:o, s:s}", "supported", mcp_about_versions(), "requested", version.message);
	}
	r->plan->step = MCP_REPLY;
	r->plan->status = status;
	r->plan->text = mcp_error(r->call, code, words.message, data, &r->plan->text_len);
	return -1;
}

static void reply(struct reading *r, json_t *result)
{
	r->plan->step = MCP_REPLY;
	r->plan->status = 200;
	r->plan->text = mcp_result(r->call, result, &r->plan->text_len);
}

/* ---- members ---- */

/* A string's text for a comparison or a message: its beginning, when it is long, and up to a NUL. */
static const char *text_of(const struct jtext *value, char *ret, size_t size)
{
	size_t len = 0;
	_cleanup_free_ char *text = value->text ? jtext_string(value, &len) : NULL;

	snprintf(ret, size, "%s", text ? text : "");
	return ret;
}

enum { NONE_ELSE, ANY_ELSE };
/* The members of `object` that are called as in `names`. Returns the place of one that is there twice or unknown, or -1. */
static int find_members(const struct jtext *object, const char *const *names, size_t count, int else_, struct jtext *ret,
			char *ret_name, size_t size)
{
	struct jtext name = {.kind = JTEXT_STRING}, value;
	const char *at = NULL;

	memset(ret, 0, count * sizeof *ret);
	while (jtext_next(object, &at, &name, &value)) {
		size_t i = 0;

		while (i < count && !jtext_is(&name, names[i]))
			i++;
		if (i == count && else_ == ANY_ELSE)
			continue;
		if (i == count || ret[i].text) {
			text_of(&name, ret_name, size);
			return (int)i;
		}
		ret[i] = value;
	}
	return -1;
}

/* The same for what the protocol lets grow: a name that is there twice is refused, one that is not known passes. */
static int find_params(struct reading *r, const struct jtext *object, const char *where, const char *const *names, size_t count,
		       struct jtext *ret)
{
	char name[64];

	memset(ret, 0, count * sizeof *ret);
	if (!object->text)
		return 0;
	if (object->kind != JTEXT_OBJECT)
		return refuse(r, 200, MCP_INVALID_PARAMS, "at \"%s\": expected an object, found %s", where,
			      jtext_kind_names[object->kind]);
	if (find_members(object, names, count, ANY_ELSE, ret, name, sizeof name) >= 0)
		return refuse(r, 200, MCP_INVALID_PARAMS, "at \"%s/%s\": expected each name once, found it again", where, name);
	return 0;
}

/* ---- the message ---- */

/* A string, or an integer in digits: kept as it is written, so that a client finds again what it sent, whatever its size. */
static int read_id(struct reading *r, const struct jtext *id)
{
	bool ok = id->kind == JTEXT_STRING || (id->kind == JTEXT_NUMBER && !memchr(id->text, '.', id->len) &&
					       !memchr(id->text, 'e', id->len) && !memchr(id->text, 'E', id->len));

	if (!ok || id->len > LIMIT_MCP_ID_BYTES)
		return refuse(r, 400, MCP_INVALID_REQUEST,
			      "at \"/id\": expected a string or an integer of at most %d bytes as JSON, found %s",
			      LIMIT_MCP_ID_BYTES, ok ? "a longer one" : jtext_kind_names[id->kind]);
	r->call = calloc(1, sizeof *r->call + id->len + 1);
	if (!r->call) {
		r->plan->status = 500;
		return -1;
	}
	memcpy(r->call->id, id->text, id->len);
	return 0;
}

/* Returns 0 for a request, 1 for what wants no answer, -1 when it is refused. */
static int read_envelope(struct reading *r, const struct jtext *root)
{
	enum { VERSION, ID, METHOD, PARAMS, RESULT, ERROR, MEMBERS };
	static const char *const names[MEMBERS] = {"jsonrpc", "id", "method", "params", "result", "error"};
	struct jtext found[MEMBERS];
	char text[64];
	int wrong;

	if (root->kind == JTEXT_ARRAY)
		return refuse(r, 400, MCP_INVALID_REQUEST,
			      "expected one message, found a batch: send each message in a request of its own");
	if (root->kind != JTEXT_OBJECT)
		return refuse(r, 400, MCP_INVALID_REQUEST, "expected a JSON-RPC message, found %s",
			      jtext_kind_names[root->kind]);
	wrong = find_members(root, names, MEMBERS, NONE_ELSE, found, text, sizeof text);
	if (found[ID].text && found[METHOD].text && read_id(r, &found[ID]) < 0)
		return -1;
	if (wrong >= 0)
		return refuse(r, 400, MCP_INVALID_REQUEST, "at \"/%s\": expected %s", text,
			      wrong < MEMBERS ? "each name once, found it again"
					      : "jsonrpc, id, method and params, found an unknown name");
	if (!found[VERSION].text || found[VERSION].kind != JTEXT_STRING || !jtext_is(&found[VERSION], "2.0"))
		return refuse(r, 400, MCP_INVALID_REQUEST, "at \"/jsonrpc\": expected the string \"2.0\"");
	/* An answer to what we never asked. */
	if (!found[METHOD].text && (found[RESULT].text || found[ERROR].text))
		return 1;
	if (!found[METHOD].text || found[METHOD].kind != JTEXT_STRING || found[RESULT].text || found[ERROR].text)
		return refuse(r, 400, MCP_INVALID_REQUEST,
			      "at \"/method\": expected a request: a string, and no result or error");
	r->method = found[METHOD];
	r->params = found[PARAMS];
	if (r->call)
		return 0;
	text_of(&r->method, text, sizeof text);
	if (!strncmp(text, "notifications/", 14))
		return 1;
	return refuse(r, 400, MCP_INVALID_REQUEST, "at \"/id\": expected the id of a request \"%s\", found none", text);
}

/* ---- which revision ---- */

static int read_meta(struct reading *r)
{
	enum { VERSION, CAPABILITIES, MEMBERS };
	static const char *const names[MEMBERS] = {MCP_META "protocolVersion", MCP_META "clientCapabilities"},
				 *const meta_name[] = {"_meta"};
	struct jtext meta, found[MEMBERS];

	if (find_params(r, &r->params, "/params", meta_name, 1, &meta) < 0 ||
	    find_params(r, &meta, "/params/_meta", names, MEMBERS, found) < 0)
		return -1;
	if (found[VERSION].text && found[VERSION].kind != JTEXT_STRING)
		return refuse(r, 400, MCP_INVALID_PARAMS,
			      "at \"/params/_meta\": expected a string as " MCP_META "protocolVersion");
	r->version = found[VERSION];
	r->capabilities = found[CAPABILITIES].text && found[CAPABILITIES].kind == JTEXT_OBJECT;
	return 0;
}

/* Whether a header says what the message says: as it is, or as the base64 of what no header could carry. */
static bool header_says(const char *header, const struct jtext *value)
{
	static const char prefix[] = "=?base64?", suffix[] = "?=";
	size_t p = sizeof prefix - 1, s = sizeof suffix - 1, len = strlen(header), text_len = 0;
	_cleanup_free_ char *text = jtext_string(value, &text_len), *plain = NULL;
	ssize_t n;

	if (len >= p + s && !memcmp(header, prefix, p) && !memcmp(header + len - s, suffix, s)) {
		n = base64_decoded_len(header + p, len - p - s);
		plain = n >= 0 ? malloc((size_t)n + 1) : NULL;
		if (!plain)
			return false;
		base64_decode(plain, header + p, len - p - s);
		header = plain;
		len = (size_t)n;
	}
	return text && len == text_len && !memcmp(header, text, len);
}

static int check_header(struct reading *r, const char *header, const char *called, const struct jtext *value, const char *where)
{
	if (!header)
		return refuse(r, 400, MCP_HEADER_MISMATCH, "header %s is missing", called);
	if (!value->text || value->kind != JTEXT_STRING || !header_says(header, value))
		return refuse(r, 400, MCP_HEADER_MISMATCH, "header %s does not say what the message says at \"%s\"", called,
			      where);
	return 0;
}

/* What requests of a modern revision have to bring along. */
static int check_modern(struct reading *r)
{
	static const char *const names[] = {"name"};
	struct jtext name;

	if (!r->version.text)
		return refuse(r, 400, MCP_INVALID_PARAMS, "at \"/params/_meta\": expected " MCP_META "protocolVersion");
	if (!r->capabilities)
		return refuse(r, 400, MCP_INVALID_PARAMS,
			      "at \"/params/_meta\": expected an object as " MCP_META "clientCapabilities");
	if (check_header(r, r->headers->method, "Mcp-Method", &r->method, "/method") < 0)
		return -1;
	if (!jtext_is(&r->method, "tools/call"))
		return 0;
	if (find_params(r, &r->params, "/params", names, 1, &name) < 0)
		return -1;
	return check_header(r, r->headers->name, "Mcp-Name", &name, "/params/name");
}

/* The revision that the header names; NULL with 0 when there is no header. */
static int check_said(struct reading *r, const struct mcp_version **ret)
{
	const char *header = r->headers->version;

	*ret = header ? mcp_version_find(header, strlen(header)) : NULL;
	if (header && !*ret)
		return refuse(r, 400, MCP_UNSUPPORTED_VERSION, "this revision of the protocol is not served: %.32s", header);
	return 0;
}

static int check_version(struct reading *r)
{
	const char *header = r->headers->version;
	const struct mcp_version *said, *meant = NULL;
	char text[32];

	if (check_said(r, &said) < 0 || read_meta(r) < 0)
		return -1;
	if (r->version.text) {
		text_of(&r->version, text, sizeof text);
		meant = mcp_version_find(text, strlen(text));
	}
	r->modern = (said && said->modern) || (meant && meant->modern) || (r->version.text && !meant);
	if (!r->modern)
		return 0;
	if (r->call)
		r->call->modern = true;
	if (r->version.text &&
	    check_header(r, header, "MCP-Protocol-Version", &r->version, "/params/_meta/" MCP_META "protocolVersion") < 0)
		return -1;
	return check_modern(r);
}

/* ---- methods ---- */

static void do_initialize(struct reading *r)
{
	static const char *const names[] = {"protocolVersion"};
	const struct mcp_version *v = NULL;
	struct jtext wanted;
	char text[32];

	if (find_params(r, &r->params, "/params", names, 1, &wanted) < 0)
		return;
	if (!wanted.text || wanted.kind != JTEXT_STRING) {
		refuse(r, 200, MCP_INVALID_PARAMS, "at \"/params/protocolVersion\": expected a string");
		return;
	}
	text_of(&wanted, text, sizeof text);
	v = mcp_version_find(text, strlen(text));
	if (!v || v->modern) /* the newest that begins like this: the client takes it or leaves */
		for (v = mcp_versions; v->modern;)
			v++;
	reply(r, mcp_about_initialize(v->name));
}

static void do_ping(struct reading *r)
{
	reply(r, json_object());
}

static void do_discover(struct reading *r)
{
	reply(r, mcp_about_discover());
}

static void do_list(struct reading *r)
{
	static const char *const names[] = {"cursor"};
	struct jtext cursor;

	if (find_params(r, &r->params, "/params", names, 1, &cursor) < 0)
		return;
	if (cursor.text)
		refuse(r, 200, MCP_INVALID_PARAMS, "at \"/params/cursor\": there is one page, and no cursor was given out");
	else
		reply(r, mcp_about_tools(r->modern));
}

static void refuse_argument(struct reading *r, const char *name)
{
	struct api_error e;

	error_set(&e, ERROR_INVALID_REQUEST, "at \"/%s\": expected one of code, timeout_s, stdin, files, found an unknown name",
		  name);
	r->plan->step = MCP_REPLY;
	r->plan->status = 200;
	r->plan->text = mcp_answer_error(r->call, &e, &r->plan->text_len);
}

static void do_call(struct reading *r)
{
	enum { NAME, ARGUMENTS, MEMBERS };
	static const char *const names[MEMBERS] = {"name", "arguments"};
	static char none[] = "{}";
	struct jtext found[MEMBERS], name = {.kind = JTEXT_STRING}, value;
	const char *at = NULL;
	char text[64];

	if (find_params(r, &r->params, "/params", names, MEMBERS, found) < 0)
		return;
	if (!found[NAME].text || found[NAME].kind != JTEXT_STRING) {
		refuse(r, 200, MCP_INVALID_PARAMS, "at \"/params/name\": expected a tool's name");
		return;
	}
	if (!jtext_is(&found[NAME], MCP_TOOL)) {
		refuse(r, 200, MCP_INVALID_PARAMS, "Unknown tool: %s", text_of(&found[NAME], text, sizeof text));
		return;
	}
	if (found[ARGUMENTS].text && found[ARGUMENTS].kind != JTEXT_OBJECT) {
		refuse(r, 200, MCP_INVALID_PARAMS, "at \"/params/arguments\": expected an object, found %s",
		       jtext_kind_names[found[ARGUMENTS].kind]);
		return;
	}
	while (found[ARGUMENTS].text && jtext_next(&found[ARGUMENTS], &at, &name, &value)) {
		size_t i = 0;

		while (mcp_arguments[i] && !jtext_is(&name, mcp_arguments[i]))
			i++;
		if (!mcp_arguments[i]) { /* also one that POST /v1/execute knows: here is no session and no environment */
			refuse_argument(r, text_of(&name, text, sizeof text));
			return;
		}
	}
	r->plan->step = MCP_RUN;
	r->plan->arguments = found[ARGUMENTS].text ? (char *)found[ARGUMENTS].text : none;
	r->plan->arguments_len = found[ARGUMENTS].text ? found[ARGUMENTS].len : sizeof none - 1;
	r->plan->call = TAKE_PTR(r->call);
}

static const struct {
	const char *name;
	bool legacy, modern; /* in which revisions there is such a method */
	void (*handle)(struct reading *r);
} methods[] = {
    {"tools/call", true, true, do_call},	   {"tools/list", true, true, do_list},
    {"initialize", true, false, do_initialize},	   {"ping", true, false, do_ping},
    {"server/discover", false, true, do_discover},
};

static void dispatch(struct reading *r)
{
	char text[64];

	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
		if ((r->modern ? methods[i].modern : methods[i].legacy) && jtext_is(&r->method, methods[i].name)) {
			methods[i].handle(r);
			return;
		}
	refuse(r, r->modern ? 404 : 200, MCP_METHOD_NOT_FOUND, "Method not found: %s", text_of(&r->method, text, sizeof text));
}

void mcp_read(char *body, size_t len, const struct mcp_headers *headers, struct mcp_plan *ret)
{
	struct reading r = {.headers = headers, .plan = ret};
	const struct mcp_version *said;
	struct err e = {0};
	struct jtext root;
	int kind;

	*ret = (struct mcp_plan){.step = MCP_REPLY, .status = 500};
	if (jtext_check(body, len, LIMIT_JSON_DEPTH, &e) < 0) {
		refuse(&r, 400, e.code == E2BIG ? MCP_INVALID_REQUEST : MCP_PARSE_ERROR, "at \"%s\": %s", e.where, e.msg);
		return;
	}
	root = jtext_root(body, len);
	kind = read_envelope(&r, &root);
	if (kind == 0 && check_version(&r) == 0)
		dispatch(&r);
	else if (kind == 1 && check_said(&r, &said) == 0)
		ret->step = MCP_ACCEPT;
	free(r.call);
}
