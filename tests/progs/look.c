/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Weir sees of a cgroup before it puts a policy there, as JSON: for tests of the looking itself.
 *
 *   look CGROUP [--policy FILE] [--own ID]…	CGROUP: a path below the hierarchy's root
 *   look --bundle DIR [--policy FILE]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "attach/inspect.h"
#include "attach/preflight.h"
#include "core/cidr.h"

static void fail(const char *what, const struct err *e)
{
	fprintf(stderr, "look: %s: %s: %s\n", what, e->where, e->msg);
	exit(125);
}

static struct policy *read_policy(const char *path)
{
	static char text[1 << 20];
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, sizeof text, f) : 0;
	struct policy *p = NULL;
	struct err e = {0};

	if (policy_parse(text, n, &p, &e) < 0)
		fail(path, &e);
	fclose(f);
	return p;
}

static json_t *weaknesses(const struct coverage_found *f)
{
	json_t *all = json_object();

	for (int w = 0; w < WEAKNESSES; w++)
		if (f->weak & 1u << w)
			json_object_set_new(all, weakness_rows[w].name, json_string(f->detail[w]));
	return all;
}

static json_t *address(const uint8_t addr[16], uint8_t family)
{
	struct cidr c = {.family = family, .len = family == 4 ? 32 : 128};
	char text[CIDR_TEXT_MAX];

	memcpy(c.addr, addr, sizeof c.addr);
	cidr_text(text, &c, true);
	return json_string(text);
}

static json_t *sockets(const struct inspection *i)
{
	static const char *const verdicts[] = {"deny", "allow", "would-deny"};
	json_t *all = json_array();

	for (size_t n = 0; n < i->socket_count; n++) {
		const struct open_socket *s = &i->sockets[n];

		json_array_append_new(all, json_pack("{s:i, s:s, s:i, s:i, s:i, s:o, s:i, s:o, s:i, s:b, s:b, s:s?}", "pid",
						     s->pid, "comm", s->comm, "family", s->family, "protocol", s->protocol,
						     "state", s->state, "local", address(s->local, s->family), "local_port",
						     s->local_port, "remote", address(s->remote, s->family), "remote_port",
						     s->remote_port, "elsewhere", s->elsewhere, "connected", s->connected,
						     "verdict", s->connected ? verdicts[s->verdict] : NULL));
	}
	return all;
}

static json_t *foreign(const struct preflight *p)
{
	json_t *all = json_array();

	for (size_t i = 0; i < p->count; i++)
		json_array_append_new(all, json_pack("{s:s, s:i, s:s, s:s, s:s}", "prog", p->foreign[i].prog, "id",
						     (int)p->foreign[i].id, "hook", p->foreign[i].hook, "cgroup",
						     p->foreign[i].path, "effect", foreign_effect_names[p->foreign[i].effect]));
	return all;
}

static json_t *look_at_cgroup(const char *path, const struct policy *p, const struct policy_image *image, const unsigned *own,
			      size_t own_count)
{
	static struct preflight others;
	static struct target t = {.fd = -1};
	static struct coverage_found rewrites;
	struct target_roots roots;
	struct inspection i = {0};
	struct err e = {0}, refused = {0};
	char room[256];
	json_t *all;
	int rc;

	if (target_host_roots(&roots, room, &e) < 0 || target_find(&t, TARGET_CGROUP, path, &roots, &e) < 0 ||
	    target_open(&t, &roots, &e) < 0)
		fail(path, &e);
	if (inspect_target(&t, p, image, &i, &e) < 0)
		fail("inspect", &e);
	rc = preflight_look(&t, &roots, own, own_count, &others, &refused);
	preflight_coverage(&others, &rewrites);
	all =
	    json_pack("{s:o, s:s, s:s, s:i, s:b, s:o, s:i, s:o, s:i, s:s?, s:s, s:o}", "found", weaknesses(&i.found), "grade",
		      coverage_names[coverage_grade(&i.found, false)], "forced", coverage_names[coverage_grade(&i.found, true)],
		      "processes", i.processes, "host_network", i.host_network, "sockets", sockets(&i), "beyond",
		      (int)i.sockets_beyond, "foreign", foreign(&others), "foreign_beyond", (int)others.beyond, "refused",
		      rc < 0 ? refused.msg : NULL, "where", refused.where, "rewrites", weaknesses(&rewrites));
	json_object_set_new(all, "resolvers", json_array());
	for (size_t n = 0; n < i.resolver_count; n++)
		json_array_append_new(json_object_get(all, "resolvers"), json_string(i.resolvers[n]));
	inspection_clear(&i);
	target_close(&t);
	return all;
}

static json_t *look_at_bundle(const char *bundle, const struct policy *p)
{
	struct inspection i = {0};
	struct err e = {0};
	json_t *all;

	if (inspect_bundle(bundle, p, &i, &e) < 0)
		fail(bundle, &e);
	all = json_pack("{s:o, s:s, s:b, s:o}", "found", weaknesses(&i.found), "grade",
			coverage_names[coverage_grade(&i.found, false)], "host_network", i.host_network, "resolvers",
			json_array());
	for (size_t n = 0; n < i.resolver_count; n++)
		json_array_append_new(json_object_get(all, "resolvers"), json_string(i.resolvers[n]));
	inspection_clear(&i);
	return all;
}

int main(int argc, char **argv)
{
	const char *cgroup = NULL, *bundle = NULL;
	struct policy *p = NULL;
	struct policy_image *image = NULL;
	unsigned own[64];
	size_t own_count = 0;
	struct err e = {0};
	json_t *all;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--policy") && i + 1 < argc)
			p = read_policy(argv[++i]);
		else if (!strcmp(argv[i], "--bundle") && i + 1 < argc)
			bundle = argv[++i];
		else if (!strcmp(argv[i], "--own") && i + 1 < argc && own_count < 64)
			own[own_count++] = (unsigned)strtoul(argv[++i], NULL, 10);
		else
			cgroup = argv[i];
	}
	if (p && image_compile(p, NULL, &image, &e) < 0)
		fail("policy", &e);
	if (!cgroup && !bundle)
		return 2;
	all = bundle ? look_at_bundle(bundle, p) : look_at_cgroup(cgroup, p, image, own, own_count);
	json_dumpf(all, stdout, JSON_SORT_KEYS);
	putchar('\n');
	json_decref(all);
	image_free(image);
	policy_free(p);
	return 0;
}
