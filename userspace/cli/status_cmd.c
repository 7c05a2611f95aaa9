/* SPDX-License-Identifier: Apache-2.0 */
/* `weir status`: what is attached, whether it holds, and whether somebody writes its events. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach.h"
#include "cli/attach_pick.h"
#include "cli/attach_show.h"
#include "cli/cli.h"

#define EXIT_NOT_IN_FORCE 1
#define EXIT_USAGE 2
#define WATCH_MS 2000

struct options {
	bool json, watch;
	char **ids;
	size_t id_count;
};

static const struct argp_option option_table[] = {
    {"json", 'j', 0, 0, "print it for machines; with --watch, one line each time", 0},
    {"watch", 'w', 0, 0, "look again every 2 seconds, until interrupted", 0},
    {0},
};

static const char doc[] =
    "Say what is attached on this host, whether the kernel would still run it, and what it has counted. With an ID, "
    "everything that is known of that one."
    "\vExamples:\n"
    "  sudo weir status\n"
    "  sudo weir status attached-x3k9q2ab7c\n"
    "  sudo weir status --json\n"
    "  sudo weir status --watch\n\n"
    "Nothing of what is attached is changed. What belongs to a cgroup that is gone is cleared up.\n\n"
    "Exit status: 0 when all of it is in force; 1 when something is not, or there is no such ID; 2 for "
    "arguments that make no sense; 125 when Weir failed.";

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'j':
		o->json = true;
		return 0;
	case 'w':
		o->watch = true;
		return 0;
	case ARGP_KEY_ARG:
		o->ids[o->id_count++] = (char *)pick_filled("ID", arg, "one that `weir status` prints, or none for all", state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* What one look finds. */
struct look {
	const struct options *o;
	struct attachment_list list;
	struct attach_check *check; /* of one after the other: it is large */
	struct attach_row *rows;
	size_t row_count;
	json_t *each;
	bool all_hold, first;
	size_t hidden; /* of those that are gone, the older ones: not in the table */
};

#define GONE_SHOWN 5

static bool wanted(const struct options *o, const char *id)
{
	for (size_t i = 0; i < o->id_count; i++)
		if (!strcmp(o->ids[i], id))
			return true;
	return !o->id_count;
}

/* With an ID: its record again, whole. Without one the list has all that is shown. */
static int look_at_whole(struct look *l, const struct attachment *listed, struct err *e)
{
	struct attachment *whole = calloc(1, sizeof *whole);
	int rc = whole ? attachment_load(listed->id, whole, e) : err_set(e, ENOMEM, "", "out of memory");
	const struct attach_view view = {.a = whole, .check = l->check, .with_sockets = true};

	if (rc == 0) {
		if (l->o->json) {
			json_array_append_new(l->each, attach_show_json(&view));
		} else {
			if (!l->first)
				putchar('\n');
			attach_show_text(stdout, &view);
		}
		l->first = false;
		attachment_clear(whole);
	}
	free(whole);
	return rc;
}

static int look_at(struct look *l, const struct attachment *a, struct err *e)
{
	const struct attach_view view = {.a = a, .check = l->check};
	int rc;

	attach_check(a, l->check);
	/* A cgroup that was removed has nothing in it that could be outside its policy. */
	if (l->check->state != ATTACH_IN_FORCE && l->check->state != ATTACH_GONE)
		l->all_hold = false;
	if (l->o->id_count)
		return look_at_whole(l, a, e);
	if (l->o->json) {
		json_array_append_new(l->each, attach_show_json(&view));
		return 0;
	}
	if (a->gone_ns && l->hidden) {
		l->hidden--;
		return 0;
	}
	rc = attach_row_fill(&l->rows[l->row_count], a, l->check, e);
	l->row_count += rc == 0;
	return rc;
}

/* A host that starts containers all day has hundreds of them. The list has the oldest first. */
static size_t count_hidden(const struct look *l)
{
	size_t gone = 0;

	for (size_t i = 0; i < l->list.count; i++)
		gone += l->list.each[i].gone_ns != 0;
	return gone > GONE_SHOWN ? gone - GONE_SHOWN : 0;
}

static json_t *broken_json(const struct look *l)
{
	json_t *all = json_array();

	for (size_t i = 0; i < l->list.broken_count; i++) {
		char id[IPC_ID_MAX], why[sizeof l->list.broken[i].why];

		if (!wanted(l->o, l->list.broken[i].id))
			continue;
		json_array_append_new(all, json_pack("{s:s, s:s}", "id", attach_plain(id, sizeof id, l->list.broken[i].id),
						     "why", attach_plain(why, sizeof why, l->list.broken[i].why)));
	}
	return all;
}

static void show_broken(const struct look *l)
{
	for (size_t i = 0; i < l->list.broken_count; i++) {
		char id[IPC_ID_MAX], why[sizeof l->list.broken[i].why];

		if (wanted(l->o, l->list.broken[i].id))
			printf("%s: its record can't be read: %s; what is pinned goes on, and `weir detach --id %s` takes it "
			       "off\n",
			       attach_plain(id, sizeof id, l->list.broken[i].id),
			       attach_plain(why, sizeof why, l->list.broken[i].why), id);
	}
}

static int print(struct look *l, struct err *e)
{
	int by_pid = attachment_drained_by();
	char text[160];
	json_t *top;

	if (l->o->json) {
		top = json_object();
		json_object_set(top, "attachments", l->each);
		json_object_set_new(top, "broken", broken_json(l));
		json_object_set_new(top, "events", attach_events_json(by_pid));
		return attach_print_json(top, l->o->watch, e);
	}
	if (!l->list.count && !l->list.broken_count) {
		fprintf(stderr,
			"weir: nothing is attached; `weir attach --policy P --container ID` puts a policy on what runs\n");
	} else {
		attach_show_table(l->rows, l->row_count);
		if (count_hidden(l) && !l->o->id_count)
			printf("and %zu more whose cgroups are gone; --json lists them\n", count_hidden(l));
		show_broken(l);
		printf("%s\n", attach_events_text(text, by_pid));
	}
	return cli_flush(e);
}

/* Which of the ids that were asked for there are. */
static void say_unknown(struct look *l)
{
	for (size_t i = 0; i < l->o->id_count; i++) {
		char id[80];
		bool known = false;

		for (size_t k = 0; k < l->list.count; k++)
			known = known || !strcmp(l->list.each[k].id, l->o->ids[i]);
		for (size_t k = 0; k < l->list.broken_count; k++)
			known = known || !strcmp(l->list.broken[k].id, l->o->ids[i]);
		if (!known) {
			fprintf(stderr, "weir: there is no \"%s\"; `weir status` lists what is attached\n",
				attach_plain(id, sizeof id, l->o->ids[i]));
			l->all_hold = false;
		}
	}
}

static int look(const struct options *o, bool *ret_hold, struct err *e)
{
	struct look l = {.o = o, .all_hold = true, .first = true, .each = json_array(), .check = calloc(1, sizeof *l.check)};
	struct err clear_e = {0};
	int rc;

	if (!l.check || !l.each) {
		free(l.check);
		json_decref(l.each);
		return err_set(e, ENOMEM, "", "out of memory");
	}
	if (attach_clear_up(NULL, NULL, &clear_e) < 0)
		fprintf(stderr, "weir: %s\n", attach_plain(clear_e.msg, sizeof clear_e.msg, clear_e.msg));
	rc = attachment_list(&l.list, e);
	if (rc == 0) {
		l.rows = calloc(l.list.count + 1, sizeof *l.rows);
		if (!l.rows)
			rc = err_set(e, ENOMEM, "", "out of memory");
	}
	l.hidden = o->json || o->id_count ? 0 : count_hidden(&l);
	for (size_t i = 0; rc == 0 && i < l.list.count; i++)
		if (wanted(o, l.list.each[i].id))
			rc = look_at(&l, &l.list.each[i], e);
	for (size_t i = 0; i < l.list.broken_count; i++)
		if (wanted(o, l.list.broken[i].id))
			l.all_hold = false;
	if (rc == 0) {
		say_unknown(&l);
		rc = print(&l, e);
	}
	if (rc == 0)
		*ret_hold = l.all_hold;
	for (size_t i = 0; i < l.row_count; i++)
		attach_row_clear(&l.rows[i]);
	free(l.rows);
	free(l.check);
	json_decref(l.each);
	attachment_list_clear(&l.list);
	return rc;
}

static int watch(const struct options *o, bool *ret_hold, struct err *e)
{
	const struct sigaction act = {.sa_handler = on_signal};
	bool redraw = !o->json && isatty(STDOUT_FILENO);
	int rc;

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	for (;;) {
		if (redraw)
			fputs("\033[H\033[2J", stdout);
		rc = look(o, ret_hold, e);
		if (rc < 0 || interrupted)
			return rc;
		poll(NULL, 0, WATCH_MS);
		if (interrupted)
			return 0;
		if (!redraw && !o->json)
			putchar('\n');
	}
}

int status_cmd(int argc, char **argv)
{
	static const struct argp argp = {option_table, parse, "[ID…]", doc, NULL, NULL, NULL};
	struct options o = {.ids = calloc((size_t)argc, sizeof *o.ids)};
	struct err e = {0};
	bool hold = false;
	int rc;

	argp_err_exit_status = EXIT_USAGE;
	if (!o.ids)
		return EXIT_WEIR;
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (geteuid() != 0)
		rc = err_set(&e, EPERM, "", "this needs root: what is attached is nobody else's to read (try sudo)");
	else
		rc = o.watch ? watch(&o, &hold, &e) : look(&o, &hold, &e);
	free(o.ids);
	if (rc < 0) {
		(void)attach_plain(e.msg, sizeof e.msg, e.msg);
		return cli_fail(&e);
	}
	return hold ? 0 : EXIT_NOT_IN_FORCE;
}
