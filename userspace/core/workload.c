/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A path is read from the outside in, and the innermost container and pod that are found are the answer: a cluster in a
 * container (kind, k3d), a Docker in a pod and a Podman under a systemd in a container are layouts inside layouts.
 *
 * Whoever may write a cgroup tree of their own can give a directory any name, so a name alone is never enough:
 *
 *   pod, systemd driver     ...kubepods[-burstable|-besteffort]-pod<UID>.slice, each slice in the one that its name says, as
 *                           systemd keeps them
 *   pod, cgroupfs           pod<UID> in kubepods, or in burstable or besteffort in kubepods
 *   Podman's pod            ...-libpod_pod_<id>.slice, slices as above; <id> in libpod_parent
 *   container, a scope      <runtime>-<id>.scope directly in a slice, or at the top
 *   container, cgroupfs     <id> or crio-<id> in a pod; <id> in docker, default or k8s.io; libpod-<id> in libpod_parent or in a
 *                           pod of Podman's; libpod-payload-<id> in a unit (Podman's --cgroups=split)
 *   drivers that disagree   <slice>:<runtime>:<id>, what a runtime makes of the other driver's path. Its pod has no directory
 *   --cgroup-parent         <id>, crio-<id> and libpod-<id> anywhere, but not inside a container
 *
 * An id is 64 hexadecimal digits and nothing else is; a pod's UID is a UUID, or 32 digits (static pods). What is left: inside
 * a container that may write its cgroups, a whole layout can be feigned, and nothing in a path tells it from a real one. Those
 * who look a container up take what is outside of containers first.
 */
#include "core/workload.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PARTS_MAX 64 /* what lies deeper is nobody's layout */
#define ID_LEN 64
#define UUID_LEN 36
#define HASH_LEN 32   /* a static pod's UID */
#define PREFIX_LEN 12 /* of an id, as the tools print it */
#define DASHES_IN_UUID 4

struct part {
	const char *text;
	size_t len;
};

struct reading {
	struct workload *w;
	struct part parts[PARTS_MAX];
	const char *path;
	bool podman_pod; /* w->pod is one of Podman's */
	bool anonymous;	 /* w->container is an id in a directory that says nothing */
};

/* ---- words ---- */

static bool is_hex(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isdigit((unsigned char)text[i]) && (text[i] < 'a' || text[i] > 'f'))
			return false;
	return len > 0;
}

static bool is(const struct part *p, const char *word)
{
	return p && p->len == strlen(word) && !memcmp(p->text, word, p->len);
}

static bool ends(const struct part *p, const char *word)
{
	size_t n = strlen(word);

	return p && p->len > n && !memcmp(p->text + p->len - n, word, n);
}

/* Takes `word` off the front, or the end, when it stands there. */
static bool take(struct part *p, const char *word)
{
	size_t n = strlen(word);

	if (p->len < n || memcmp(p->text, word, n))
		return false;
	p->text += n;
	p->len -= n;
	return true;
}

static bool take_end(struct part *p, const char *word)
{
	if (!ends(p, word))
		return false;
	p->len -= strlen(word);
	return true;
}

static bool is_id(const struct part *p)
{
	return p && p->len == ID_LEN && is_hex(p->text, p->len);
}

static void keep(char ret[WORKLOAD_ID_MAX], const struct part *p)
{
	memcpy(ret, p->text, p->len);
	ret[p->len] = '\0';
}

/* A pod's UID, whose parts stand between `dash`es in a directory's name. */
static bool read_uid(const struct part *p, char dash, char ret[WORKLOAD_ID_MAX])
{
	static const size_t at[DASHES_IN_UUID] = {8, 13, 18, 23};
	char uid[UUID_LEN + 1];
	size_t from = 0;

	if (p->len == HASH_LEN && is_hex(p->text, p->len)) {
		keep(ret, p);
		return true;
	}
	if (p->len != UUID_LEN)
		return false;
	memcpy(uid, p->text, UUID_LEN);
	uid[UUID_LEN] = '\0';
	for (size_t i = 0; i <= DASHES_IN_UUID; i++) {
		size_t to = i < DASHES_IN_UUID ? at[i] : UUID_LEN;

		if (!is_hex(uid + from, to - from) || (i < DASHES_IN_UUID && uid[to] != dash))
			return false;
		if (i < DASHES_IN_UUID)
			uid[to] = '-';
		from = to + 1;
	}
	memcpy(ret, uid, sizeof uid);
	return true;
}

/* ---- places ---- */

static const struct part *above(const struct reading *r, size_t at)
{
	return at > 0 ? &r->parts[at - 1] : NULL;
}

static size_t length_to(const struct reading *r, size_t at)
{
	return (size_t)(r->parts[at].text + r->parts[at].len - r->path);
}

/* Whether the directory that holds this one is the innermost pod's. */
static bool in_pod(const struct reading *r, size_t at)
{
	return r->w->pod_len && at > 0 && length_to(r, at - 1) == r->w->pod_len;
}

/* systemd keeps a-b-c.slice in a-b.slice in a.slice. */
static bool slices_in_order(const struct reading *r, size_t at)
{
	struct part stem = r->parts[at];

	if (!take_end(&stem, ".slice"))
		return false;
	for (;; at--) {
		const char *dash = memrchr(stem.text, '-', stem.len);
		struct part outer;

		if (!dash)
			return true;
		if (at == 0)
			return false;
		outer = r->parts[at - 1];
		stem.len = (size_t)(dash - stem.text);
		if (!take_end(&outer, ".slice") || outer.len != stem.len || memcmp(outer.text, stem.text, stem.len) != 0)
			return false;
		stem = outer;
	}
}

/* ---- pods ---- */

/* "…-kubepods-burstable-pod<UID>", without ".slice". */
static bool read_pod_slice(const struct part *stem, char ret[WORKLOAD_ID_MAX])
{
	static const char *const classes[] = {"kubepods", "kubepods-burstable", "kubepods-besteffort"};
	const char *dash = memrchr(stem->text, '-', stem->len);
	struct part head, tail;
	bool known = false;

	if (!dash)
		return false;
	head = (struct part){stem->text, (size_t)(dash - stem->text)};
	tail = (struct part){dash + 1, stem->len - head.len - 1};
	for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
		struct part before = head;

		known = known || is(&head, classes[i]) || (take_end(&before, classes[i]) && ends(&before, "-"));
	}
	return known && take(&tail, "pod") && read_uid(&tail, '_', ret);
}

static void found_pod(struct reading *r, size_t at, bool podman)
{
	r->w->pod_len = length_to(r, at);
	r->w->runtime = podman ? "podman" : "";
	r->podman_pod = podman;
}

static bool take_pod(struct reading *r, size_t at)
{
	struct part name = r->parts[at];
	const struct part *up = above(r, at);
	bool podman = false;

	if (is_id(&name) && is(up, "libpod_parent")) {
		keep(r->w->pod, &name);
		podman = true;
	} else if (take_end(&name, ".slice")) {
		const char *mark = memmem(name.text, name.len, "-libpod_pod_", strlen("-libpod_pod_"));

		if (!slices_in_order(r, at))
			return false;
		if (mark) {
			struct part id = {mark, (size_t)(name.text + name.len - mark)};

			if (!take(&id, "-libpod_pod_") || !is_id(&id))
				return false;
			keep(r->w->pod, &id);
			podman = true;
		} else if (!read_pod_slice(&name, r->w->pod)) {
			return false;
		}
	} else {
		bool in_class = (is(up, "burstable") || is(up, "besteffort")) && is(above(r, at - 1), "kubepods");

		if ((!is(up, "kubepods") && !in_class) || !take(&name, "pod") || !read_uid(&name, '-', r->w->pod))
			return false;
	}
	found_pod(r, at, podman);
	return true;
}

/* ---- containers ---- */

enum where {
	SCOPE = 1, /* as <name><id>.scope, in a slice */
	POD = 2,   /* as <name><id>, in a pod */
	PODMAN = 4,
	UNIT = 8,
	ANYWHERE = 16, /* but not in a container */
};

static const struct {
	const char *name, *runtime;
	unsigned where;
	bool monitor;
} names[] = {
    {"cri-containerd-", "containerd", SCOPE, false},   {"crio-conmon-", "cri-o", SCOPE | POD | ANYWHERE, true},
    {"crio-", "cri-o", SCOPE | POD | ANYWHERE, false}, {"docker-", "docker", SCOPE, false},
    {"nerdctl-", "containerd", SCOPE, false},	       {"libpod-conmon-", "podman", SCOPE, true},
    {"libpod-payload-", "podman", UNIT, false},	       {"libpod-", "podman", SCOPE | PODMAN | ANYWHERE, false},
};

static void found_container(struct reading *r, size_t at, const struct part *id, const char *runtime)
{
	keep(r->w->container, id);
	r->w->container_len = length_to(r, at);
	r->w->runtime = runtime;
	r->anonymous = false;
}

static bool placed(const struct reading *r, size_t at, unsigned where, bool scope)
{
	const struct part *up = above(r, at);

	if (scope)
		return where & SCOPE && (!up || ends(up, ".slice"));
	return (where & POD && in_pod(r, at) && !r->podman_pod) ||
	       (where & PODMAN && (is(up, "libpod_parent") || (in_pod(r, at) && r->podman_pod))) ||
	       (where & UNIT && (ends(up, ".service") || ends(up, ".scope"))) || (where & ANYWHERE && !r->w->container[0]);
}

/* Podman's pod below a --cgroup-parent was taken for a container, until a container's directory stands in it. */
static void was_pod(struct reading *r, size_t at)
{
	struct workload *w = r->w;

	if (!r->anonymous || at == 0 || length_to(r, at - 1) != w->container_len)
		return;
	memcpy(w->pod, w->container, sizeof w->pod);
	found_pod(r, at - 1, true);
	w->container[0] = '\0';
	w->container_len = 0;
	r->anonymous = false;
}

static bool take_named(struct reading *r, size_t at)
{
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct part id = r->parts[at];
		bool scope = take_end(&id, ".scope");

		if (!take(&id, names[i].name) || !is_id(&id))
			continue;
		if (!scope && names[i].where & PODMAN)
			was_pod(r, at);
		if (!placed(r, at, names[i].where, scope))
			return false;
		if (names[i].monitor)
			r->w->monitor = true;
		else
			found_container(r, at, &id, names[i].runtime);
		return true;
	}
	return false;
}

/* "<slice>:<runtime>:<id>", the path of one driver as a name of the other's. */
static bool take_other_driver(struct reading *r, size_t at)
{
	struct part slice = r->parts[at], name, id;
	const char *first = memchr(slice.text, ':', slice.len), *second;
	char pod[WORKLOAD_ID_MAX];

	second = first ? memchr(first + 1, ':', (size_t)(slice.text + slice.len - first - 1)) : NULL;
	if (!second)
		return false;
	name = (struct part){first + 1, (size_t)(second - first - 1)};
	id = (struct part){second + 1, (size_t)(slice.text + slice.len - second - 1)};
	slice.len = (size_t)(first - slice.text);
	if (!is_id(&id) || !take_end(&slice, ".slice"))
		return false;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct part known = {names[i].name, strlen(names[i].name) - 1};

		if (names[i].monitor || !(names[i].where & SCOPE) || known.len != name.len ||
		    memcmp(known.text, name.text, name.len) != 0)
			continue;
		found_container(r, at, &id, names[i].runtime);
		if (read_pod_slice(&slice, pod)) {
			memcpy(r->w->pod, pod, sizeof pod);
			r->w->pod_len = 0;
			r->podman_pod = false;
		}
		return true;
	}
	return false;
}

static bool take_bare(struct reading *r, size_t at)
{
	const struct part *name = &r->parts[at], *up = above(r, at);

	if (is(name, "conmon") && (is(up, "libpod_parent") || (in_pod(r, at) && r->podman_pod))) {
		r->w->monitor = true;
		return true;
	}
	if (!is_id(name))
		return false;
	if (in_pod(r, at) && !r->podman_pod) {
		found_container(r, at, name, "");
	} else if (is(up, "docker")) {
		found_container(r, at, name, "docker");
	} else if (is(up, "default") || is(up, "k8s.io")) {
		found_container(r, at, name, "containerd");
	} else if (!r->w->container[0]) {
		found_container(r, at, name, "");
		r->anonymous = true;
	} else {
		return false;
	}
	return true;
}

void workload_of_path(const char *path, struct workload *ret)
{
	struct reading r = {.w = ret, .path = path};
	size_t count = 0;

	*ret = (struct workload){.runtime = ""};
	for (const char *p = path; *p && count < PARTS_MAX;) {
		size_t len = strcspn(p, "/");

		if (len)
			r.parts[count++] = (struct part){p, len};
		p += len + (p[len] == '/');
	}
	for (size_t at = 0; at < count; at++)
		if (!take_pod(&r, at) && !take_named(&r, at) && !take_other_driver(&r, at))
			take_bare(&r, at);
}

/* ---- what somebody asks for ---- */

static bool begins(const char *whole, const char *asked)
{
	size_t n = strlen(asked);

	return n >= PREFIX_LEN && n <= strlen(whole) && !strncasecmp(whole, asked, n);
}

bool workload_is_container(const struct workload *w, const char *asked)
{
	return w->container[0] && begins(w->container, asked);
}

/* Of a UID as it may be written, the digits; false when it is no UID. */
static bool uid_digits(const char *text, char ret[HASH_LEN + 1])
{
	char lower[UUID_LEN + 1], uid[WORKLOAD_ID_MAX];
	struct part p = {lower, strlen(text)};
	size_t n = 0;

	if (p.len > UUID_LEN)
		return false;
	for (size_t i = 0; i <= p.len; i++)
		lower[i] = (char)tolower((unsigned char)text[i]);
	if (!read_uid(&p, '-', uid) && !read_uid(&p, '_', uid))
		return false;
	for (const char *c = uid; *c; c++)
		if (*c != '-')
			ret[n++] = *c;
	ret[n] = '\0';
	return true;
}

bool workload_is_pod(const struct workload *w, const char *asked)
{
	char mine[HASH_LEN + 1], theirs[HASH_LEN + 1];

	if (!w->pod[0])
		return false;
	if (strlen(w->pod) == ID_LEN)
		return begins(w->pod, asked);
	return uid_digits(w->pod, mine) && uid_digits(asked, theirs) && !strcmp(mine, theirs);
}

static bool is_id_or_beginning(const char *asked)
{
	size_t n = strlen(asked);

	for (size_t i = 0; i < n; i++)
		if (!isxdigit((unsigned char)asked[i]))
			return false;
	return n >= PREFIX_LEN && n <= ID_LEN;
}

const char *workload_id_problem(const char *asked, bool pod)
{
	char digits[HASH_LEN + 1];

	if (is_id_or_beginning(asked) || (pod && uid_digits(asked, digits)))
		return NULL;
	if (strstr(asked, "://"))
		return "has the runtime's name before the id: give what stands behind \"://\"";
	if (pod)
		return "is no pod's UID, nor the id of a pod of Podman's, all of it or its first 12 digits: kubectl get pod "
		       "NAME -o "
		       "jsonpath={.metadata.uid}, crictl pods -v or podman pod inspect --format {{.ID}} NAME print it";
	return "is no container's id, all 64 digits of it or the first 12: podman inspect --format {{.Id}} NAME, docker "
	       "inspect "
	       "--format {{.Id}} NAME, nerdctl inspect or crictl ps print it";
}
