/* SPDX-License-Identifier: Apache-2.0 */
/* Attachments for machines: the one shape of `weir attach --json`, `weir detach --json` and `weir status --json`. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "cli/attach_show.h"
#include "cli/attach_words.h"
#include "core/cleanup.h"
#include "core/event.h"
#include "core/utf8.h"

/* Names of processes and cgroups are any bytes. */
static json_t *text_json(const char *text)
{
	size_t len = 0;
	_cleanup_free_ char *fit = utf8_replace(text, strlen(text), &len);

	return fit ? json_stringn(fit, len) : NULL;
}

static void put(json_t *j, const char *key, json_t *value)
{
	json_object_set_new(j, key, value ? value : json_null());
}

static json_t *target_json(const struct target *t)
{
	json_t *j = json_object();

	put(j, "kind", json_string(target_kind_names[t->kind]));
	put(j, "ref", text_json(t->ref));
	put(j, "cgroup", text_json(t->path));
	put(j, "cgroup_id", event_u64(t->id));
	put(j, "level", json_integer(t->level));
	put(j, "runtime", t->workload.runtime && t->workload.runtime[0] ? json_string(t->workload.runtime) : NULL);
	put(j, "container", t->workload.container[0] ? text_json(t->workload.container) : NULL);
	put(j, "pod", t->workload.pod[0] ? text_json(t->workload.pod) : NULL);
	return j;
}

static json_t *policy_json(const struct attachment *a)
{
	char hex[2 * sizeof a->policy_hash + 1];
	json_t *j;

	if (a->parent)
		return NULL;
	j = json_object();
	put(j, "name", text_json(a->policy_name));
	put(j, "source", text_json(a->policy));
	put(j, "sha256", json_string(attach_hex(hex, a->policy_hash, sizeof a->policy_hash)));
	put(j, "generation", json_integer(a->generation));
	return j;
}

static json_t *reasons_json(const struct coverage_found *f)
{
	json_t *all = json_array();

	for (unsigned w = 0; w < WEAKNESSES; w++) {
		json_t *j;

		if (!(f->weak & 1u << w))
			continue;
		j = json_object();
		put(j, "name", json_string(weakness_rows[w].name));
		put(j, "detail", text_json(f->detail[w]));
		put(j, "text", json_string(weakness_rows[w].text));
		put(j, "mend", json_string(weakness_rows[w].mend));
		json_array_append_new(all, j);
	}
	return all;
}

static json_t *problems_json(const struct attach_check *c)
{
	json_t *all = json_array();

	for (size_t i = 0; c && i < c->problem_count; i++) {
		json_t *j = json_object();

		put(j, "name", text_json(c->problems[i].name));
		put(j, "text", text_json(c->problems[i].text));
		json_array_append_new(all, j);
	}
	return all;
}

static json_t *counters_json(const struct weir_sandbox *s)
{
	json_t *j = json_object();

	put(j, "attempts", event_u64(s->attempts));
	put(j, "denied", event_u64(s->denied));
	put(j, "allowed", event_u64(s->allowed));
	put(j, "would_deny", event_u64(s->would_deny));
	put(j, "inbound", event_u64(s->inbound));
	put(j, "unlisted", event_u64(s->unlisted));
	put(j, "packets", event_u64(s->packets));
	put(j, "bytes", event_u64(s->bytes));
	return j;
}

static json_t *foreign_json(const struct preflight *p)
{
	json_t *all = json_array();

	for (size_t i = 0; p && i < p->count; i++) {
		json_t *j = json_object();

		put(j, "prog", text_json(p->foreign[i].prog));
		put(j, "hook", json_string(p->foreign[i].hook));
		put(j, "cgroup", text_json(p->foreign[i].path));
		put(j, "effect", json_string(foreign_effect_names[p->foreign[i].effect]));
		json_array_append_new(all, j);
	}
	return all;
}

static json_t *canary_json(const struct canary *c)
{
	json_t *j = json_object();

	put(j, "proven", json_boolean(c->proven));
	put(j, "attempts", json_integer(c->attempts));
	put(j, "denied", json_integer(c->denied));
	put(j, "would_deny", json_integer(c->would_deny));
	put(j, "leaf", text_json(c->leaf));
	put(j, "why", text_json(c->why));
	return j;
}

static json_t *resolvers_json(const struct attachment *a)
{
	json_t *all = json_array();

	for (size_t i = 0; i < a->resolver_count; i++)
		json_array_append_new(all, text_json(a->resolvers[i]));
	return all;
}

static json_t *time_json(uint64_t wall_ns)
{
	char text[EVENT_TIME_MAX];

	event_time_text(text, wall_ns);
	return json_string(text);
}

static json_t *socket_json(const struct open_socket *s)
{
	char local[ATTACH_ENDPOINT], remote[ATTACH_ENDPOINT], name[NETPROTO_TEXT_MAX];
	json_t *j = json_object();

	put(j, "pid", json_integer(s->pid));
	put(j, "comm", text_json(s->comm));
	put(j, "protocol", json_string(attach_protocol(name, s)));
	put(j, "local", s->family ? json_string(attach_endpoint(local, s, false)) : NULL);
	put(j, "remote", s->connected ? json_string(attach_endpoint(remote, s, true)) : NULL);
	put(j, "state", s->protocol == IPPROTO_TCP ? json_string(attach_tcp_state(s->state)) : NULL);
	put(j, "elsewhere", json_boolean(s->elsewhere));
	put(j, "verdict", attach_judged(s) ? json_string(event_verdict_names[s->verdict]) : NULL);
	return j;
}

static json_t *sockets_json(const struct attachment *a)
{
	json_t *all = json_array();

	for (size_t i = 0; i < a->socket_count; i++)
		json_array_append_new(all, socket_json(&a->sockets[i]));
	return all;
}

json_t *attach_show_json(const struct attach_view *v)
{
	const struct attachment *a = v->a;
	const struct attach_check *c = v->check;
	const struct attach_check *counted = c && c->readable ? c : NULL; /* .. and NULL when nothing could be read */
	json_t *j = json_object();

	put(j, "id", a->id[0] ? json_string(a->id) : NULL);
	put(j, "target", target_json(&a->target));
	put(j, "policy", policy_json(a));
	if (a->parent)
		put(j, "unknown", json_string(a->unknown_passes ? "allow" : "deny"));
	put(j, "coverage", c && !attach_is_on(c) ? NULL : json_string(coverage_names[a->coverage]));
	put(j, "reasons", reasons_json(&a->found));
	put(j, "state", c ? json_string(attach_state_names[c->state]) : NULL);
	put(j, "problems", problems_json(c));
	put(j, "counters", counted ? counters_json(&counted->counters) : NULL);
	if (a->parent)
		put(j, "unknown_counters", counted ? counters_json(&counted->unknown) : NULL);
	put(j, "lost", counted ? event_u64(counted->lost) : NULL);
	put(j, "foreign", foreign_json(c ? &c->others : NULL));
	put(j, "foreign_beyond", json_integer(c ? (json_int_t)c->others.beyond : 0));
	put(j, "canary", canary_json(&a->canary));
	put(j, "resolvers", resolvers_json(a));
	put(j, "attached", a->attached_ns ? time_json(a->attached_ns) : NULL);
	if (v->with_sockets) {
		put(j, "sockets", sockets_json(a));
		put(j, "sockets_beyond", json_integer((json_int_t)a->sockets_beyond));
	}
	return j;
}

const char *attach_events_text(char ret[160], int by_pid)
{
	if (by_pid > 0)
		snprintf(ret, 160, "events are written by pid %d", by_pid);
	else
		snprintf(ret, 160,
			 "events are not being written: counters and enforcement go on; start `weir serve --policy-only`");
	return ret;
}

json_t *attach_events_json(int by_pid)
{
	char text[160];
	json_t *j = json_object();

	put(j, "written", json_boolean(by_pid > 0));
	put(j, "by_pid", by_pid > 0 ? json_integer(by_pid) : NULL);
	put(j, "text", json_string(attach_events_text(text, by_pid)));
	return j;
}

int attach_print_json(json_t *j, bool one_line, struct err *e)
{
	int rc = j ? json_dumpf(j, stdout, one_line ? JSON_COMPACT : JSON_INDENT(2)) : -1;

	json_decref(j);
	if (putchar('\n') == EOF || fflush(stdout) == EOF || rc < 0)
		return err_set(e, EIO, "", "can't write to standard output");
	return 0;
}
