/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/inforce.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blobs.h"
#include "core/cleanup.h"
#include "core/limits.h"

#define WHERE "--policy"
#define EMBEDDED_DEFAULT "snippet"

/* ---- the document ---- */

struct text {
	char *data; /* owned */
	size_t len;
};

/* It may have been meant as the name of one that is part of the program. */
static int no_such(const char *path, struct err *e)
{
	char names[160] = "";
	size_t used = 0;

	for (size_t i = 0; blob_policy_names[i] && used < sizeof names; i++)
		used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", blob_policy_names[i]);
	return err_set(e, ENOENT, WHERE, "open %.150s: No such file or directory (and the shipped ones are %s)", path, names);
}

static int read_file(const char *path, struct text *ret, struct err *e)
{
	_cleanup_free_ char *data = NULL;
	_cleanup_fd_ int fd = -1;
	struct stat st;
	size_t n = 0;
	ssize_t got;

	/* O_NONBLOCK: a FIFO without a writer must not hang us; it is refused below. */
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return no_such(path, e);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, WHERE, "open %.150s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, WHERE, "%.150s is not a regular file", path);
	data = malloc(LIMIT_POLICY_BYTES + 1);
	if (!data)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	while (n <= LIMIT_POLICY_BYTES) {
		got = read(fd, data + n, LIMIT_POLICY_BYTES + 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_errno(e, errno, WHERE, "read %.150s", path);
		if (got == 0)
			break;
		n += (size_t)got;
	}
	if (n > LIMIT_POLICY_BYTES)
		return err_set(e, E2BIG, WHERE, "%.150s is over %d bytes", path, (int)LIMIT_POLICY_BYTES);
	ret->data = TAKE_PTR(data);
	ret->len = n;
	return 0;
}

/* file:line:column, as editors jump to it; or the file and a JSON pointer. */
static int at_place(const char *name, struct err *e)
{
	struct err inner = *e;
	size_t n = strlen(name), room = 100;

	/* Of a long path the end says more than the beginning. */
	return err_set(e, inner.code, WHERE, "%s%s%s%s: %s", n > room ? "..." : "", n > room ? name + n - room : name,
		       inner.where[0] ? ":" : "", inner.where, inner.msg);
}

int inforce_at_place(const struct inforce *f, struct err *e)
{
	return at_place(f->path[0] ? f->path : f->policy->name, e);
}

static int copy_blob(const struct blob *shipped, struct text *ret, struct err *e)
{
	ret->data = malloc(shipped->len + 1);
	if (!ret->data)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	memcpy(ret->data, shipped->data, shipped->len);
	ret->len = shipped->len;
	return 0;
}

static int read_document(struct inforce *f, struct err *e)
{
	const char *name = f->path[0] ? f->path : EMBEDDED_DEFAULT;
	struct err inner = {0};
	struct blob shipped;
	struct text text = {0};
	int rc = blob_policy(name, &shipped) ? copy_blob(&shipped, &text, e) : read_file(name, &text, e);

	if (rc < 0)
		return rc;
	f->text = text.data;
	f->text_len = text.len;
	rc = policy_parse(text.data, text.len, &f->policy, &inner);
	if (rc < 0 && e) {
		*e = inner;
		at_place(name, e);
	}
	return rc;
}

/*
 * As it is when it names a shipped policy; a file's path made absolute, so that a reload reads the same one after a chdir.
 * Links are kept: what they lead to may be another file by then.
 */
static int name_document(char *ret, size_t size, const char *policy, struct err *e)
{
	char cwd[4096];
	struct blob unused;
	int n;

	if (policy && !policy[0])
		return err_set(e, EINVAL, WHERE, "is empty: give a file or the name of a shipped policy");
	if (!policy || policy[0] == '/' || blob_policy(policy, &unused))
		n = snprintf(ret, size, "%s", policy ? policy : "");
	else if (!getcwd(cwd, sizeof cwd))
		return err_errno(e, errno, WHERE, "find the working directory");
	else
		n = snprintf(ret, size, "%s/%s", cwd, policy);
	return n < 0 || (size_t)n >= size ? err_set(e, ENAMETOOLONG, WHERE, "the path is too long") : 0;
}

/* ---- in force ---- */

static struct policy_env seen_by(const struct inforce *f, const struct netenv *net, struct cidr room[RESOLVCONF_SERVERS])
{
	struct policy_env env = net->env;

	if (f->named_count) {
		memcpy(room, f->named, sizeof f->named);
		env.resolver_count = f->named_count;
		env.resolvers = room;
	} else if (f->servers) {
		env.resolver_count = f->servers(net, room);
		env.resolvers = room;
	}
	return env;
}

struct policy_env inforce_env(const struct inforce *f, struct cidr room[RESOLVCONF_SERVERS])
{
	return seen_by(f, &f->net, room);
}

static int compile(const struct inforce *f, const struct netenv *net, struct policy_image **ret, struct err *e)
{
	struct cidr servers[RESOLVCONF_SERVERS];
	struct policy_env env = seen_by(f, net, servers);
	struct err inner = {0};
	int rc = image_compile(f->policy, &env, ret, &inner);

	if (rc < 0 && e) {
		*e = inner;
		inforce_at_place(f, e);
	}
	return rc;
}

static void override(const struct inforce *f)
{
	uint32_t *sockets = &f->policy->limits.datagram_sockets;

	if (f->quiet)
		f->policy->list_allowed = false;
	if (f->datagram_sockets && (!*sockets || *sockets > f->datagram_sockets))
		*sockets = f->datagram_sockets;
}

/* Fills in everything but `path`, and nothing of it on failure. */
static int load(struct inforce *f, struct err *e)
{
	int rc = read_document(f, e);

	if (rc == 0)
		override(f);
	if (rc == 0)
		rc = netenv_read(&f->net, NULL, e);
	if (rc == 0)
		rc = compile(f, &f->net, &f->image, e);
	if (rc < 0)
		inforce_clear(f);
	return rc;
}

int inforce_load(struct inforce *ret, const char *policy, struct err *e)
{
	return inforce_load_seeing(ret, policy, NULL, 0, e);
}

int inforce_load_seeing(struct inforce *ret, const char *policy, const struct cidr *servers, size_t count, struct err *e)
{
	struct inforce f = {.named_count = count};
	int rc = name_document(f.path, sizeof f.path, policy, e);

	for (size_t i = 0; i < count && i < RESOLVCONF_SERVERS; i++)
		f.named[i] = servers[i];
	if (rc == 0)
		rc = load(&f, e);
	if (rc == 0)
		*ret = f;
	return rc;
}

void inforce_clear(struct inforce *f)
{
	if (!f)
		return;
	f->policy = policy_free(f->policy);
	f->image = image_free(f->image);
	netenv_clear(&f->net);
	memset(&f->net, 0, sizeof f->net);
	free(f->text);
	f->text = NULL;
	f->text_len = 0;
	f->generation = 0;
}

int inforce_see(struct inforce *f, size_t (*servers)(const struct netenv *host, struct cidr ret[RESOLVCONF_SERVERS]),
		struct err *e)
{
	size_t (*before)(const struct netenv *host, struct cidr ret[RESOLVCONF_SERVERS]) = f->servers;
	struct policy_image *image = NULL;
	int rc;

	f->servers = servers;
	rc = compile(f, &f->net, &image, e);
	if (rc < 0) {
		f->servers = before;
		return rc;
	}
	image_free(f->image);
	f->image = image;
	return 0;
}

int inforce_behind(const struct inforce *f, uint32_t slot, uint32_t datagram_sockets, struct inforce *ret, struct err *e)
{
	struct inforce fresh = {.slot = slot, .quiet = true, .datagram_sockets = datagram_sockets};
	int rc;

	memcpy(fresh.path, f->path, sizeof fresh.path);
	rc = load(&fresh, e);
	if (rc < 0)
		return rc;
	if (memcmp(fresh.policy->hash, f->policy->hash, sizeof fresh.policy->hash) != 0) {
		inforce_clear(&fresh);
		return err_set(e, EAGAIN, WHERE, "%.150s was written while it was read: try again", f->path);
	}
	*ret = fresh;
	return 0;
}

int inforce_apply(struct inforce *f, struct guard *g, uint32_t slot, struct err *e)
{
	uint32_t generation;
	int rc = guard_set_policy(g, slot, f->image, &generation, e);

	if (rc < 0)
		return rc;
	f->slot = slot;
	f->generation = generation;
	return 0;
}

int inforce_resume(struct inforce *f, struct guard *g, uint32_t slot, uint32_t generation, struct err *e)
{
	uint32_t there = guard_get_generation(g, slot);
	int rc;

	if (there != generation)
		return err_set(e, ESTALE, "policy", "generation %u of the policy is in force, and not %u", there, generation);
	rc = guard_renew_policy(g, slot, f->image, e);
	if (rc < 0)
		return rc;
	f->slot = slot;
	f->generation = generation;
	return 0;
}

int inforce_reread(const struct inforce *f, struct inforce *ret, struct err *e)
{
	struct inforce fresh = {.slot = f->slot,
				.servers = f->servers,
				.named_count = f->named_count,
				.quiet = f->quiet,
				.datagram_sockets = f->datagram_sockets};
	int rc;

	memcpy(fresh.named, f->named, sizeof fresh.named);
	memcpy(fresh.path, f->path, sizeof fresh.path);
	rc = load(&fresh, e);
	if (rc == 0)
		*ret = fresh;
	return rc;
}

int inforce_swap(struct inforce *f, struct inforce *fresh, struct guard *g, struct err *e)
{
	int rc = inforce_apply(fresh, g, f->slot, e);

	if (rc == 0) {
		inforce_clear(f);
		*f = *fresh;
		*fresh = (struct inforce){0};
	}
	return rc;
}

int inforce_refresh(struct inforce *f, struct guard *g, struct err *e)
{
	struct policy_image *image = NULL;
	struct netenv net = {0};
	bool swap;
	int rc = netenv_read(&net, NULL, e);

	if (rc < 0)
		return rc;
	if (netenv_equal(&net, &f->net)) {
		netenv_clear(&net);
		return 0;
	}
	rc = compile(f, &net, &image, e);
	/* Most policies name no set that holds them: nothing changes for those. */
	swap = rc == 0 && !image_equal(image, f->image);
	if (swap)
		rc = guard_renew_policy(g, f->slot, image, e);
	if (rc < 0 || !swap) {
		image_free(image);
	} else {
		image_free(f->image);
		f->image = image;
	}
	if (rc < 0) {
		netenv_clear(&net);
		return rc;
	}
	netenv_clear(&f->net);
	f->net = net;
	return swap;
}
