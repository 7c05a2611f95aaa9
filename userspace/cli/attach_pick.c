/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/attach_pick.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cidr.h"

#define PID_LIMIT (1L << 22) /* the kernel's own */

const char *pick_filled(const char *option, const char *arg, const char *fix, const struct argp_state *state)
{
	if (!arg[0])
		argp_error(state, "%s is empty: give %s", option, fix);
	return arg;
}

static bool is_pid(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	long n;

	if (!strcmp(text, "self"))
		return true;
	if (!digits || text[digits] || text[0] == '0')
		return false;
	n = digits > 9 ? LONG_MAX : strtol(text, NULL, 10);
	return n <= PID_LIMIT;
}

void pick_take(struct pick *p, int key, const char *arg, const struct argp_state *state)
{
	static const char *const fixes[TARGET_KINDS] = {"a directory", "a process id, or self", "a container's id",
							"a pod's UID", "a directory"};
	enum target_kind kind = (enum target_kind)(key - PICK_KEY);
	const char *option = target_kind_options[kind], *problem = NULL;

	if (p->ref)
		argp_error(state, "%s and %s: one target at a time", target_kind_options[p->kind], option);
	(void)pick_filled(option, arg, fixes[kind], state);
	if (strlen(arg) >= TARGET_REF_MAX)
		argp_error(state, "%s: at most %d bytes", option, TARGET_REF_MAX - 1);
	if (kind == TARGET_PID && !is_pid(arg))
		argp_error(state, "%s: \"%s\" is no process id: give a number from 1 on, or self", option, arg);
	if (kind == TARGET_CONTAINER || kind == TARGET_POD)
		problem = workload_id_problem(arg, kind == TARGET_POD);
	if (problem)
		argp_error(state, "%s: \"%s\" %s", option, arg, problem);
	p->kind = kind;
	p->ref = arg;
}

void pick_resolver(const char *arg, const char *list[ATTACHED_RESOLVERS], size_t *count, const struct argp_state *state)
{
	struct cidr unused;

	if (strchr(arg, '/'))
		argp_error(state, "--resolver: \"%s\" is no address of one name server: give it without \"/\" and what follows",
			   arg);
	if (*count == ATTACHED_RESOLVERS)
		argp_error(state, "--resolver: at most %d name servers, as in resolv.conf", ATTACHED_RESOLVERS);
	if (cidr_parse_addr(pick_filled("--resolver", arg, "a name server's address, such as 10.96.0.10", state), strlen(arg),
			    &unused, NULL) < 0)
		argp_error(state, "--resolver: \"%s\" is no IPv4 or IPv6 address, such as 10.96.0.10", arg);
	list[(*count)++] = arg;
}

const char *pick_option_of(const char *arg)
{
	size_t n = strlen(arg);

	if (!workload_id_problem(arg, false))
		return target_kind_options[TARGET_CONTAINER];
	if (!workload_id_problem(arg, true))
		return target_kind_options[TARGET_POD];
	if (is_pid(arg))
		return target_kind_options[TARGET_PID];
	if (arg[0] == '/' && (n < 5 || strcmp(arg + n - 5, ".json") != 0))
		return target_kind_options[TARGET_CGROUP];
	return NULL;
}

/* Of "/sys/fs/cgroup/unified/a/b/", "/a/b" or "a/b": "a/b". A cgroup that is gone can't be asked for its name. */
static void below_root(const char *ref, const struct target_roots *roots, char ret[PATH_MAX])
{
	const char *const mounts[] = {roots ? roots->cgroup2 : "", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
	size_t n;

	for (size_t i = 0; i < sizeof mounts / sizeof mounts[0]; i++) {
		n = strlen(mounts[i]);
		if (n && !strncmp(ref, mounts[i], n) && ref[n] == '/') {
			ref += n;
			break;
		}
	}
	snprintf(ret, PATH_MAX, "%s", ref + strspn(ref, "/"));
	for (n = strlen(ret); n && ret[n - 1] == '/'; n--)
		ret[n - 1] = 0;
}

static bool is_path(const char *ref, const struct target_roots *roots, const char *path)
{
	char room[PATH_MAX];

	below_root(ref, roots, room);
	return room[0] && !strcmp(room, path + strspn(path, "/"));
}

bool pick_matches(const struct pick *p, const struct target *found, const struct target_roots *roots,
		  const struct attachment *a)
{
	if (a->parent != (p->kind == TARGET_PARENT))
		return false;
	if (found)
		return !strcmp(found->path, a->target.path);
	switch (p->kind) {
	case TARGET_CGROUP:
	case TARGET_PARENT:
		return is_path(p->ref, roots, a->target.path);
	case TARGET_PID:
		/* "self" is another each time. */
		return a->target.kind == TARGET_PID && strcmp(p->ref, "self") != 0 && !strcmp(p->ref, a->target.ref);
	case TARGET_CONTAINER:
		return workload_is_container(&a->target.workload, p->ref);
	case TARGET_POD:
		/* A container's own attachment is not its pod's. */
		return a->target.kind == TARGET_POD && workload_is_pod(&a->target.workload, p->ref);
	case TARGET_KINDS:
		break;
	}
	return false;
}
