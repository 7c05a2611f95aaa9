/* SPDX-License-Identifier: Apache-2.0 */
/* `weir image import | ls | rm`: the images that agents' tools run in, with a service running on the state directory or not. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/config_load.h"
#include "cli/image_import.h"
#include "cli/image_show.h"
#include "cli/token_show.h"
#include "core/cleanup.h"
#include "oci.h"
#include "registry/store.h"

enum { KEY_NAME = 256, KEY_STATE, KEY_CONFIG, KEY_JSON };
#define GIVEN(key) (1u << ((key)-KEY_NAME))

struct options {
	const struct command *command;
	const char *name, *state_dir, *config;
	unsigned given;
	bool json;
	char **args;
	size_t arg_count;
};

/* ---- import ---- */

static int do_import(const struct options *o, const char *dir, struct err *e)
{
	const struct image_import r = {.source = o->args[0], .name = o->name, .state_dir = dir, .json = o->json};

	return image_import(&r, e);
}

/* ---- what is there ---- */

struct registry {
	int dir, lock;
	char images[PATH_MAX];
	struct image_table table;
	struct agent_table agents;
};

static void registry_close(struct registry *r)
{
	image_table_clear(&r->table);
	agent_table_clear(&r->agents);
	cleanup_fdp(&r->lock);
	cleanup_fdp(&r->dir);
}
#define _cleanup_registry_ __attribute__((cleanup(registry_close)))

/* A directory that is not there holds nothing. `change`: nobody else does until it is closed. */
static int registry_read(struct registry *r, const char *dir, bool change, struct err *e)
{
	struct err e2 = {0};
	int rc = registry_open(dir, &r->dir, &e2);

	if (rc == -ENOENT)
		return 0;
	if (rc < 0) {
		*e = e2;
		return rc;
	}
	if ((size_t)snprintf(r->images, sizeof r->images, "%s/" IMAGES_DIR, dir) >= sizeof r->images)
		return err_set(e, ENAMETOOLONG, "--state-dir", "path too long: %s", dir);
	if (change)
		rc = registry_lock(r->dir, &r->lock, e);
	if (rc == 0)
		rc = registry_load_images(r->dir, &r->table, NULL, e);
	if (rc == 0)
		rc = registry_load_agents(r->dir, &r->agents, NULL, e);
	return rc;
}

/* ---- ls ---- */

static int do_ls(const struct options *o, const char *dir, struct err *e)
{
	_cleanup_registry_ struct registry r = {.dir = -1, .lock = -1};
	int rc = registry_read(&r, dir, false, e);

	return rc < 0 ? rc : image_list(&r.table, &r.agents, r.images, dir, o->json, e);
}

/* ---- rm ---- */

static bool is_name_of(const struct image_entry *entry, const char *ref)
{
	for (size_t i = 0; i < entry->name_count; i++)
		if (!strcmp(entry->names[i], ref))
			return true;
	return false;
}

/* One of several names: no more than that goes. */
static int remove_name(struct registry *r, const struct image_entry *entry, const char *name, const struct options *o,
		       struct err *e)
{
	char digest[IMAGE_HEX + 1];
	int rc;

	snprintf(digest, sizeof digest, "%s", entry->digest);
	image_table_unname(&r->table, name);
	rc = registry_save_images(r->dir, &r->table, e);
	if (rc < 0)
		return rc;
	if (o->json)
		return token_print_json(json_pack("{s:s+, s:s, s:b}", "digest", "sha256:", digest, "name", name, "removed", 0),
					e);
	printf("%s is no name any more; its image, sha256:%.12s, has others and stays\n", name, digest);
	return cli_flush(e);
}

/* First it is in no table any more: nobody begins to use it. Then its files go. */
static int remove_image(struct registry *r, const struct image_entry *entry, const struct options *o, struct err *e)
{
	char digest[IMAGE_HEX + 1], users[1024], size[IMAGE_SIZE_TEXT];
	size_t count = image_users(&r->agents, entry->digest, users, sizeof users);
	int rc;

	if (count)
		return err_set(e, EBUSY, "",
			       "sha256:%.12s is the image of %s %s: `weir agent rm` first, or give %s another image",
			       entry->digest, count > 1 ? "agents" : "agent", users, count > 1 ? "them" : "it");
	if (oci_is_used(r->images, entry->digest))
		return err_set(
		    e, EBUSY, "",
		    "sha256:%.12s is the image of a running service's snippets (snippet.image, --image): stop that first",
		    entry->digest);
	snprintf(digest, sizeof digest, "%s", entry->digest);
	image_size_text(size, entry->bytes);
	image_table_remove(&r->table, digest);
	rc = registry_save_images(r->dir, &r->table, e);
	if (rc == 0)
		rc = oci_remove(r->images, digest, e);
	if (rc < 0)
		return rc;
	if (o->json)
		return token_print_json(json_pack("{s:s+, s:b}", "digest", "sha256:", digest, "removed", 1), e);
	printf("sha256:%.12s is removed (%s)\n", digest, size);
	return cli_flush(e);
}

static int do_rm(const struct options *o, const char *dir, struct err *e)
{
	_cleanup_registry_ struct registry r = {.dir = -1, .lock = -1};
	const struct image_entry *entry;
	int rc = registry_read(&r, dir, true, e);

	if (rc < 0)
		return rc;
	entry = image_table_find(&r.table, o->args[0], e);
	if (!entry)
		return -e->code;
	if (entry->name_count > 1 && is_name_of(entry, o->args[0]))
		return remove_name(&r, entry, o->args[0], o, e);
	return remove_image(&r, entry, o, e);
}

/* ---- arguments ---- */

#define EVERYWHERE (GIVEN(KEY_STATE) | GIVEN(KEY_CONFIG) | GIVEN(KEY_JSON))
static const struct command {
	const char *name;
	unsigned options; /* GIVEN() of those it takes */
	const char *arg;  /* the one it takes; NULL: none */
	int (*run)(const struct options *o, const char *dir, struct err *e);
} commands[] = {
    {"import", EVERYWHERE | GIVEN(KEY_NAME), "PATH[:REF]", do_import},
    {"ls", EVERYWHERE, NULL, do_ls},
    {"rm", EVERYWHERE, "REF", do_rm},
};

static const struct argp_option option_table[] = {
    {"name", KEY_NAME, "NAME", 0, "import: what to call it (default: what it is called there, else the file's name)", 0},
    {"json", KEY_JSON, 0, 0, "print JSON", 0},
    {"state-dir", KEY_STATE, "DIR", 0,
     "the service's state directory (default: the configuration's, else " DEFAULT_STATE_DIR ")", 0},
    {"config", KEY_CONFIG, "FILE", 0, "the service's configuration (default: " CONFIG_FILE_DEFAULT ", if it is there)", 0},
    {0},
};

static const char doc[] =
    "Import, list and remove the images that agents' tools run in."
    "\vPATH is an OCI image layout, an archive of one, what `docker save` or `podman save` writes (- reads it from standard "
    "input), or a directory that is a root. REF says which of several images. An image is unpacked once, by a process that can "
    "do nothing else, and its interpreter is asked once what it is; nothing of it runs outside a sandbox after that.\n\n"
    "Examples:\n"
    "  docker save weather:2 | sudo weir image import -\n"
    "  sudo weir image import weather.tar --name weather\n"
    "  sudo weir image import ./layout:3.12\n"
    "  sudo weir image ls\n"
    "  sudo weir image rm weather:2\n\n"
    "REF of rm is a name, or a digest of which 12 digits will do. A name of several goes alone; with the last one, or by its "
    "digest, the image goes. An image that an agent has is not removed.\n\n"
    "Exit status: 0; 1 when it could not be done; 64 for arguments that make no sense.";

static void check(struct options *o, const struct argp_state *state)
{
	if (!o->command) {
		argp_error(state, "say import PATH, ls or rm REF");
		return;
	}
	for (int i = 0; option_table[i].name; i++)
		if (o->given & GIVEN(option_table[i].key) & ~o->command->options)
			argp_error(state, "%s does not take --%s", o->command->name, option_table[i].name);
	if (o->command->arg && !o->arg_count)
		argp_error(state, "%s: say which: %s", o->command->name, o->command->arg);
	if (o->arg_count > (o->command->arg ? 1 : 0))
		argp_error(state, "%s takes no argument \"%s\"", o->command->name, o->args[o->arg_count - 1]);
}

static void parse_arg(struct options *o, char *arg, const struct argp_state *state)
{
	if (o->command) {
		o->args[o->arg_count++] = arg;
		return;
	}
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
		if (!strcmp(arg, commands[i].name))
			o->command = &commands[i];
	if (!o->command)
		argp_error(state, "\"%s\" is none of import, ls, rm", arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	if (key >= KEY_NAME && key <= KEY_JSON)
		o->given |= GIVEN(key);
	switch (key) {
	case KEY_NAME:
		if (!image_name_ok(arg))
			argp_error(state,
				   "--name: \"%s\" is not a name: letters, digits and, between them, any of ._-/:, at most %d "
				   "characters, and nothing that looks like a digest",
				   arg, IMAGE_NAME_MAX - 1);
		o->name = arg;
		break;
	case KEY_STATE:
		o->state_dir = arg;
		break;
	case KEY_CONFIG:
		o->config = arg;
		break;
	case KEY_JSON:
		o->json = true;
		break;
	case ARGP_KEY_ARG:
		parse_arg(o, arg, state);
		break;
	case ARGP_KEY_END:
		check(o, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

int image_cmd(int argc, char **argv)
{
	static const struct argp argp = {option_table, parse, "import PATH[:REF]\nls\nrm REF", doc, NULL, NULL, NULL};
	_cleanup_free_ char **args = calloc((size_t)argc, sizeof *args);
	struct options o = {.args = args};
	_cleanup_free_ char *dir = NULL;
	struct err e = {0};
	int rc;

	if (!args)
		return EXIT_WEIR;
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (geteuid() != 0)
		rc = err_set(&e, EPERM, "", "this needs root: images and their table are nobody else's (try sudo)");
	else
		rc = config_state_dir(o.state_dir, o.config, &dir, &e);
	if (rc == 0)
		rc = o.command->run(&o, dir, &e);
	if (e.code)
		fprintf(stderr, "weir image: %s%s%s\n", e.where, e.where[0] ? ": " : "", e.msg);
	return rc < 0 ? 1 : 0;
}
