/* SPDX-License-Identifier: Apache-2.0 */
/* `weir detach`: takes policies off again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"
#include "cli/attach_pick.h"
#include "cli/attach_show.h"
#include "cli/cli.h"
#include "core/cleanup.h"

#define EXIT_NONE 1
#define EXIT_USAGE 2
#define ID_PREFIX "attached-"
#define ID_DIGITS 10

struct options {
	struct pick pick;
	const char *id;
	bool all, json;
};

enum { KEY_ID = PICK_KEY_END, KEY_ALL, KEY_JSON };

static const struct argp_option option_table[] = {
    PICK_OPTIONS,
    {"id", KEY_ID, "ID", 0, "an attachment, as `weir status` names it", 0},
    {"all", KEY_ALL, 0, 0, "every one on this host", 0},
    {"json", KEY_JSON, 0, 0, "print what was taken off for machines", 0},
    {0},
};

static const char doc[] =
    "Take a policy off what it was attached to. What runs there goes on, under no policy of Weir's."
    "\vExamples:\n"
    "  sudo weir detach --container 3f2a1b0c9d8e\n"
    "  sudo weir detach --id attached-x3k9q2ab7c\n"
    "  sudo weir detach --parent /sys/fs/cgroup/kubepods.slice\n"
    "  sudo weir detach --all\n\n"
    "A target that is gone, or whose cgroup was made anew, is found by what was remembered of it.\n\n"
    "Exit status: 0; 1 when nothing was attached there; 2 for arguments that make no sense; 125 when Weir failed.";

/* ---- arguments ---- */

static bool is_id(const char *text)
{
	size_t n = strlen(ID_PREFIX);

	return !strncmp(text, ID_PREFIX, n) && strlen(text + n) == ID_DIGITS &&
	       strspn(text + n, "abcdefghijklmnopqrstuvwxyz0123456789") == ID_DIGITS;
}

static void refuse_plain(const char *arg, const struct argp_state *state)
{
	const char *option = !strncmp(arg, ID_PREFIX, strlen(ID_PREFIX)) ? "--id" : pick_option_of(arg);

	if (option)
		argp_error(state, "no argument \"%s\" is taken: name it by an option, such as %s %s", arg, option, arg);
	argp_error(state,
		   "no argument \"%s\" is taken: name it by an option: --container ID, --pod UID, --pid N, --cgroup DIR, "
		   "--parent DIR or --id ID",
		   arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	if (key >= PICK_KEY && key < PICK_KEY_END) {
		pick_take(&o->pick, key, arg, state);
		return 0;
	}
	switch (key) {
	case KEY_ID:
		if (o->id)
			argp_error(state, "--id: given twice; one at a time");
		(void)pick_filled("--id", arg, "an id, as `weir status` prints them", state);
		if (!is_id(arg))
			argp_error(state,
				   "--id: \"%s\" is no id of an attachment: " ID_PREFIX
				   " and %d of a-z0-9, as `weir status` prints them",
				   arg, ID_DIGITS);
		o->id = arg;
		return 0;
	case KEY_ALL:
		o->all = true;
		return 0;
	case KEY_JSON:
		o->json = true;
		return 0;
	case ARGP_KEY_ARG:
		refuse_plain(arg, state);
		return 0;
	case ARGP_KEY_END:
		if (!o->pick.ref + !o->id + !o->all == 3)
			argp_error(
			    state,
			    "off what? --cgroup DIR, --pid N, --container ID, --pod UID, --parent DIR, --id ID, or --all");
		if (!o->pick.ref + !o->id + !o->all < 2)
			argp_error(state, "%s and %s: one at a time", o->pick.ref ? target_kind_options[o->pick.kind] : "--id",
				   o->pick.ref && o->id ? "--id" : "--all");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- the work ---- */

struct work {
	const struct options *o;
	struct attachment_list list;
	struct target_roots roots;
	bool have_roots, have_target;
	struct target target; /* where the picked one is now */
	struct attach_check *check;
	json_t *taken;
	size_t count;
};

/* Where it is now. That it is nowhere is no error: what was remembered of it is looked at then. */
static void look_for(struct work *w, struct err *why)
{
	static char room[256];

	w->target.fd = -1;
	if (!w->o->pick.ref)
		return;
	w->have_roots = target_host_roots(&w->roots, room, why) == 0;
	w->have_target = w->have_roots && target_find(&w->target, w->o->pick.kind, w->o->pick.ref, &w->roots, why) == 0;
}

static bool wanted(const struct work *w, const struct attachment *a)
{
	if (w->o->all)
		return true;
	if (w->o->id)
		return !strcmp(a->id, w->o->id);
	return pick_matches(&w->o->pick, w->have_target ? &w->target : NULL, w->have_roots ? &w->roots : NULL, a);
}

/* The parent that is carried right above it, and is not taken off as well. */
static const struct attachment *parent_of(const struct work *w, const struct attachment *a)
{
	const char *path = a->target.path, *end = strrchr(path, '/');

	for (size_t i = 0; end && i < w->list.count; i++) {
		const struct attachment *p = &w->list.each[i];

		if (p->parent && !wanted(w, p) && strlen(p->target.path) == (size_t)(end - path) &&
		    !strncmp(p->target.path, path, (size_t)(end - path)))
			return p;
	}
	return NULL;
}

static void say(const struct work *w, const struct attachment *a, const struct attach_check *c, FILE *to)
{
	const struct weir_sandbox s = attach_own_counters(a, c);
	const struct attachment *above = c->state == ATTACH_IN_FORCE || c->state == ATTACH_DRIFT ? parent_of(w, a) : NULL;
	char target[ATTACH_TARGET_TEXT], policy[IPC_POLICY_MAX], path[PATH_MAX], would[48] = "";

	if (s.would_deny)
		snprintf(would, sizeof would, ", %llu would have been denied", (unsigned long long)s.would_deny);
	fprintf(to, "detached %s: %s, %s%s\n", a->id, attach_target_text(target, a, ATTACH_TARGET_TEXT - 1),
		a->parent ? (a->unknown_passes ? "unknown: allow" : "unknown: deny") : "policy ",
		a->parent ? "" : attach_plain(policy, sizeof policy, a->policy_name));
	if (c->readable)
		fprintf(to, "  at the end: %llu attempt%s, %llu denied, %llu allowed%s, %llu event%s lost\n",
			(unsigned long long)s.attempts, s.attempts == 1 ? "" : "s", (unsigned long long)s.denied,
			(unsigned long long)s.allowed, would, (unsigned long long)c->lost, c->lost == 1 ? "" : "s");
	if (c->state == ATTACH_GONE)
		fprintf(to, "  its cgroup is gone\n");
	if (c->state == ATTACH_RECREATED)
		fprintf(to, "  its cgroup was made anew since: nothing of this was on it\n");
	if (above)
		fprintf(to, "  it is unknown now below %s, and %s\n", attach_plain(path, sizeof path, above->target.path),
			above->unknown_passes ? "recorded there" : "denied everything there");
}

/* Read before it goes: afterwards there is nothing to read. */
static void look_last(struct work *w, const struct attachment *a, FILE *to)
{
	const struct attach_view view = {.a = a, .check = w->check};

	attach_check(a, w->check);
	if (w->o->json)
		json_array_append_new(w->taken, attach_show_json(&view));
	else
		say(w, a, w->check, to);
}

static void look_last_broken(struct work *w, const char *id, FILE *to)
{
	char plain[IPC_ID_MAX];

	if (w->o->json)
		json_array_append_new(w->taken, json_pack("{s:s}", "id", attach_plain(plain, sizeof plain, id)));
	else
		fprintf(to, "detached %s: its record could not be read\n", attach_plain(plain, sizeof plain, id));
}

/* One whose record can't be read: its pins are still there, and its id says where. */
static int remove_broken(const char *id, struct err *e)
{
	struct attachment *a = calloc(1, sizeof *a);
	int rc;

	if (!a)
		return err_set(e, ENOMEM, "", "out of memory");
	a->target.fd = -1;
	snprintf(a->id, sizeof a->id, "%s", id);
	rc = attach_remove(a, e);
	free(a);
	return rc;
}

/* Those that were picked, also when one of them fails: the first error is returned. */
static int take_off_picked(struct work *w, FILE *to, struct err *e)
{
	int rc = 0, one;

	for (size_t i = 0; i < w->list.count; i++) {
		const struct attachment *a = &w->list.each[i];

		if (!wanted(w, a))
			continue;
		look_last(w, a, to);
		one = attach_remove(a, rc == 0 ? e : NULL);
		w->count += one == 0;
		rc = rc == 0 ? one : rc;
	}
	for (size_t i = 0; w->o->id && i < w->list.broken_count; i++) {
		if (strcmp(w->list.broken[i].id, w->o->id) != 0)
			continue;
		look_last_broken(w, w->o->id, to);
		one = remove_broken(w->o->id, rc == 0 ? e : NULL);
		w->count += one == 0;
		rc = rc == 0 ? one : rc;
	}
	return rc;
}

static int take_off_all(struct work *w, FILE *to, struct err *e)
{
	unsigned count;

	for (size_t i = 0; i < w->list.count; i++)
		look_last(w, &w->list.each[i], to);
	for (size_t i = 0; i < w->list.broken_count; i++)
		look_last_broken(w, w->list.broken[i].id, to);
	w->count = w->list.count + w->list.broken_count;
	return w->count ? attach_remove_all(&count, e) : 0;
}

/* What was taken off is told once it is. */
static int take_off(struct work *w, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);
	int rc;

	if (!to)
		return err_set(e, ENOMEM, "", "out of memory");
	rc = w->o->all ? take_off_all(w, to, e) : take_off_picked(w, to, e);
	fclose(to);
	if (rc == 0 && text)
		fwrite(text, 1, len, stdout);
	return rc;
}

/* A pod's policy is on the pod, and a container in it has none of its own. */
static void hint_above(const struct work *w)
{
	for (size_t i = 0; w->have_target && i < w->list.count; i++) {
		const struct attachment *a = &w->list.each[i];
		size_t n = strlen(a->target.path);
		char target[ATTACH_TARGET_TEXT];

		if (!a->parent && !strncmp(a->target.path, w->target.path, n) && w->target.path[n] == '/')
			fprintf(stderr, "weir: %s is above it, on %s: --id %s takes that off\n", a->id,
				attach_target_text(target, a, ATTACH_TARGET_TEXT - 1), a->id);
	}
}

static int none(const struct work *w, const struct err *why)
{
	const struct options *o = w->o;
	char msg[sizeof why->msg];

	if (o->all)
		fprintf(stderr, "weir: nothing is attached\n");
	else if (o->id)
		fprintf(stderr, "weir: --id: there is no %s; `weir status` lists what is attached\n", o->id);
	else if (!w->have_target)
		fprintf(stderr, "weir: nothing is attached to it: %s: %s; `weir status` lists what is attached\n",
			target_kind_options[o->pick.kind], attach_plain(msg, sizeof msg, why->msg));
	else
		fprintf(stderr, "weir: nothing is attached to %s; `weir status` lists what is attached\n",
			attach_plain(msg, sizeof msg, w->target.path));
	hint_above(w);
	return EXIT_NONE;
}

static int detach(struct work *w, struct err *e)
{
	struct err why = {0}, unused = {0};
	json_t *top;
	int rc;

	rc = attachment_list(&w->list, e);
	if (rc < 0)
		return rc;
	look_for(w, &why);
	rc = take_off(w, e);
	(void)attach_clear_up(NULL, NULL, &unused);
	if (rc < 0)
		return rc;
	if (w->o->json) {
		top = json_object();
		json_object_set(top, "detached", w->taken);
		rc = attach_print_json(top, false, e);
	} else {
		rc = cli_flush(e);
	}
	return rc < 0 ? rc : w->count ? 0 : none(w, &why);
}

int detach_cmd(int argc, char **argv)
{
	static const struct argp argp = {option_table, parse, NULL, doc, NULL, NULL, NULL};
	struct options o = {0};
	struct work w = {.o = &o, .taken = json_array(), .check = calloc(1, sizeof *w.check)};
	struct err e = {0};
	int rc;

	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	rc = cli_need_root(&e);
	if (rc == 0 && (!w.check || !w.taken))
		rc = err_set(&e, ENOMEM, "", "out of memory");
	if (rc == 0)
		rc = detach(&w, &e);
	attachment_list_clear(&w.list);
	free(w.check);
	json_decref(w.taken);
	if (rc >= 0)
		return rc;
	(void)attach_plain(e.msg, sizeof e.msg, e.msg);
	return cli_fail(&e);
}
