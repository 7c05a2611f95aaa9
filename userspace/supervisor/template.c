/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sandboxes are made from. An agent's template is made from two files of the registry that the command line writes: which
 * image it has and which modules. They are looked at whenever somebody asks, and every other second while any agent is called,
 * so that an agent that is another now, or is no more, is so at once. Nothing of an image is run here.
 */
#include "supervisor/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"

#define IMAGE_PATIENCE 5 /* times what the last attempt took */
#define IMAGE_CHECK_NS 250000000ull
#define REGISTRY_CHECK_NS 2000000000ull
#define LAYER_AGENT "agent"
#define CALL_CPUS ((LIMIT_CALL_CPU_PERCENT + 99) / 100) /* that a tool has the time of */

_Static_assert(sizeof((struct note *)0)->begin.image > sizeof "sha256:" - 1 + IMAGE_HEX, "a record's image holds a digest");
_Static_assert(TOKEN_AGENT_MAX <= IPC_PROJECT_MAX && TOKEN_PROJECT_MAX <= IPC_PROJECT_MAX, "names of agents fit");
_Static_assert(LIMIT_AGENT_TOOLS_BYTES < sizeof((struct init_plan *)0)->modules, "a plan holds an agent's modules");
_Static_assert(LIMIT_IMAGE_VARIABLES_BYTES <= sizeof((struct init_plan *)0)->variables, "a plan holds an image's variables");

static void __attribute__((format(printf, 4, 5)))
fail(struct tell_fail *f, int code, const char *layer, const char *format, ...)
{
	va_list ap;

	memset(f, 0, sizeof *f);
	f->code = (uint32_t)code;
	snprintf(f->layer, sizeof f->layer, "%.23s", layer);
	va_start(ap, format);
	vsnprintf(f->text, sizeof f->text, format, ap);
	va_end(ap);
}

/* Whether the image of an agent is no more; *ret is then what to say to who calls. */
static bool is_away(const struct box_template *t, struct tell_fail *ret)
{
	if (!t->call || access(t->root, F_OK) == 0)
		return false;
	fail(ret, ENOENT, LAYER_AGENT,
	     "the image of agent %s (sha256:%.12s) is not in the state directory any more: bring it back with `weir image "
	     "import`",
	     t->agent, t->digest);
	return true;
}

const char *template_python(const struct box_template *t)
{
	return t->call ? t->python.version : image_python(t->image)->version;
}

unsigned template_alive(const struct box_template *t)
{
	unsigned n = 0;

	for (int i = 0; i < BOX_STATES; i++)
		n += t->counts[i];
	return n;
}

/* ---- the image ---- */

static int make_image(struct supervisor *s, struct box_template *t, struct err *e)
{
	const struct image_spec spec =
	    t->call ? (struct image_spec){.root = t->root, .known = &t->python, .cpus = CALL_CPUS}
		    : (struct image_spec){.root = s->config.image, .python = s->config.python, .caches = s->config.caches};
	struct image *fresh = NULL;
	char stage[sizeof t->stage];
	int rc;

	snprintf(stage, sizeof stage, "%.100s/stage%u", s->run_dir, s->stages + 1);
	rc = image_build(&fresh, stage, &spec, e);
	if (rc < 0)
		return rc;
	image_release(t->image);
	if (t->stage[0])
		rmdir(t->stage);
	t->image = fresh;
	s->stages++;
	snprintf(t->stage, sizeof t->stage, "%s", stage);
	return 0;
}

/* What of it nobody has yet: its image, modules or limits are to be others, or nobody is going to ask. */
static void throw_away(struct supervisor *s, struct box_template *t)
{
	struct box *b, *next;

	for (b = TAILQ_FIRST(&s->boxes); b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (b->t == t && (b->state == BOX_WARM || b->state == BOX_LOADING || b->state == BOX_BUILDING))
			box_event(s, b, BOX_KILL);
	}
}

/*
 * An upgrade of the interpreter or a library under our feet: the image and every sandbox made from it are out of date. In the
 * middle of an upgrade there may be no working Python at all; then nothing is built, and it is tried again later.
 */
void template_check_image(struct supervisor *s, struct box_template *t)
{
	uint64_t began = now_ns();
	struct err e = {0};

	if (began < t->image_next_ns)
		return;
	t->image_next_ns = began + IMAGE_CHECK_NS;
	if (!t->image_bad && !image_stale(t->image))
		return;
	log_info("files that the image is made of have changed: building it anew");
	t->image_bad = make_image(s, t, &e) < 0;
	if (t->image_bad) {
		/* An interpreter that does not answer holds us up for seconds, and every deadline: not again at once. */
		t->image_next_ns = now_ns() + IMAGE_CHECK_NS + IMAGE_PATIENCE * (now_ns() - began);
		log_error("%s: %s", e.where, e.msg);
		if (!is_away(t, &t->last_fail))
			fail(&t->last_fail, e.code, e.where, "%.255s", e.msg);
	} else {
		t->failures = 0;
		t->retry_ns = 0;
	}
	throw_away(s, t);
}

/* ---- making and freeing ---- */

static struct box_template *add(struct supervisor *s)
{
	struct box_template *t = calloc(1, sizeof *t);

	if (t)
		TAILQ_INSERT_TAIL(&s->templates, t, link);
	return t;
}

/* No sandbox of it may be left, and nobody may wait. */
static void drop(struct supervisor *s, struct box_template *t)
{
	TAILQ_REMOVE(&s->templates, t, link);
	fair_clear(&t->fair);
	image_release(t->image);
	if (t->stage[0])
		rmdir(t->stage);
	free(t);
}

int template_open(struct supervisor *s, struct err *e)
{
	struct box_template *t = add(s);

	if (!t)
		return err_set(e, ENOMEM, "supervisor", "out of memory");
	t->slot = SLOT_SNIPPET;
	s->snippets = t;
	return make_image(s, t, e);
}

int template_open_registry(struct supervisor *s, struct err *e)
{
	/* Before we are in a mount namespace of our own: what is mounted later at that path must not hide it from us. */
	return s->inforce[SLOT_TOOL].policy && s->config.state_dir ? registry_open(s->config.state_dir, &s->state_fd, e) : 0;
}

void template_close(struct supervisor *s)
{
	while (!TAILQ_EMPTY(&s->templates))
		drop(s, TAILQ_FIRST(&s->templates));
	s->snippets = NULL;
	agent_table_clear(&s->agents);
	image_table_clear(&s->images);
	cleanup_fdp(&s->state_fd);
	s->state_fd = -1;
}

/* ---- agents ---- */

/* "a,b": false when there is no room for all of them. */
static bool join_modules(const struct agent_entry *a, char *ret, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < a->module_count; i++) {
		int n = snprintf(ret + used, size - used, "%s%s", i ? "," : "", a->modules[i]);

		if (n < 0 || (size_t)n >= size - used)
			return false;
		used += (size_t)n;
	}
	return used > 0;
}

/* What a template has from the registry; false when it has no room for all of it. */
static bool describe(struct supervisor *s, struct box_template *t, const struct agent_entry *a, const struct image_entry *im)
{
	snprintf(t->project, sizeof t->project, "%s", a->project);
	snprintf(t->agent, sizeof t->agent, "%s", a->name);
	snprintf(t->digest, sizeof t->digest, "%s", a->digest);
	snprintf(t->workdir, sizeof t->workdir, "%s", im->workdir);
	t->python = im->python;
	if (im->variables_len > sizeof t->variables)
		return false;
	memcpy(t->variables, im->variables, im->variables_len);
	return join_modules(a, t->modules, sizeof t->modules) &&
	       snprintf(t->root, sizeof t->root, "%s/" IMAGES_DIR "/%s", s->config.state_dir, a->digest) < (int)sizeof t->root;
}

static bool is_same(const struct box_template *a, const struct box_template *b)
{
	return !strcmp(a->digest, b->digest) && !strcmp(a->modules, b->modules) && !strcmp(a->workdir, b->workdir) &&
	       !memcmp(a->variables, b->variables, sizeof a->variables) && !strcmp(a->root, b->root) &&
	       !strcmp(a->python.executable, b->python.executable) && !strcmp(a->python.version, b->python.version) &&
	       !strcmp(a->python.site, b->python.site) && !strcmp(a->python.stdlib, b->python.stdlib);
}

/* Whether the registry still says what it was made from. */
static bool is_current(struct supervisor *s, const struct box_template *t)
{
	const struct agent_entry *a = agent_table_find(&s->agents, t->project, t->agent);
	const struct image_entry *im = a ? image_table_by_digest(&s->images, a->digest) : NULL;
	struct box_template *now = im ? calloc(1, sizeof *now) : NULL;
	bool same = now && describe(s, now, a, im) && is_same(t, now);

	free(now);
	return same;
}

/* Those who wait for one of its sandboxes get one of what the agent is now, or hear that there is none. */
static void retire(struct supervisor *s, struct box_template *t)
{
	struct box_template *now = NULL;
	struct tell_fail f;

	log_info("agent %s of project %s is another now, or was removed: its sandboxes are let go", t->agent, t->project);
	t->retired = true;
	if (t->fair.waiting) {
		now = template_of(s, t->project, t->agent, &f);
		pool_move(s, t, now, &f);
	}
	throw_away(s, t);
}

static void retire_changed(struct supervisor *s)
{
	struct box_template *t, *next;

	/* What is made for those who wait is added at the end, and current. */
	for (t = TAILQ_FIRST(&s->templates); t; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->call && !t->retired && !is_current(s, t))
			retire(s, t);
	}
}

/* What cannot be read changes nothing. -errno only when there is nothing to go by. */
static int read_registry(struct supervisor *s, struct err *e)
{
	struct agent_table agents = {0};
	struct image_table images = {0};
	struct stat agents_seen, images_seen;
	int rc = registry_load_agents(s->state_fd, &agents, &agents_seen, e);

	if (rc == 0 && (rc = registry_load_images(s->state_fd, &images, &images_seen, e)) < 0)
		agent_table_clear(&agents);
	if (rc < 0)
		return rc;
	agent_table_clear(&s->agents);
	image_table_clear(&s->images);
	s->agents = agents;
	s->images = images;
	s->agents_seen = agents_seen;
	s->images_seen = images_seen;
	return 0;
}

static void refresh(struct supervisor *s)
{
	uint64_t now = now_ns();
	struct err e = {0};

	s->registry_checked_ns = now;
	if (now < s->registry_retry_ns || (!registry_changed(s->state_fd, AGENTS_FILE, &s->agents_seen) &&
					   !registry_changed(s->state_fd, IMAGES_FILE, &s->images_seen)))
		return;
	s->registry_retry_ns = 0;
	if (read_registry(s, &e) < 0) {
		log_error("the agents stay what they were: %s: %s", e.where, e.msg);
		s->registry_retry_ns = now + REGISTRY_CHECK_NS;
		return;
	}
	retire_changed(s);
}

static struct box_template *find(const struct supervisor *s, const char *project, const char *agent)
{
	struct box_template *t;

	for (t = TAILQ_FIRST(&s->templates); t; t = TAILQ_NEXT(t, link))
		if (t->call && !t->retired && !strcmp(t->agent, agent) && !strcmp(t->project, project))
			return t;
	return NULL;
}

/* Nothing of it does more than wait for a call, or will when it is made. */
static bool is_resting(const struct box_template *t)
{
	return !t->fair.waiting && template_alive(t) == t->counts[BOX_WARM] + t->counts[BOX_ENDING] + pool_making(t);
}

/* For one more: the one that was called longest ago, of those that nobody uses, gives its place. */
static bool make_place(struct supervisor *s)
{
	const unsigned most = s->config.agents_called ? s->config.agents_called : LIMIT_AGENTS_CALLED;
	struct box_template *t, *oldest = NULL;
	unsigned n = 0;

	for (t = TAILQ_FIRST(&s->templates); t; t = TAILQ_NEXT(t, link)) {
		if (!t->call || t->retired)
			continue;
		n++;
		if (is_resting(t) && (!oldest || t->used_ns < oldest->used_ns))
			oldest = t;
	}
	if (n < most)
		return true;
	if (!oldest)
		return false;
	oldest->retired = true;
	throw_away(s, oldest);
	return true;
}

static void say_what_is_odd(const struct box_template *t)
{
	const char *text;

	for (size_t i = 0; (text = image_warning(t->image, i)); i++)
		log_warn("agent %s of project %s: %s", t->agent, t->project, text);
}

static struct box_template *make(struct supervisor *s, const struct agent_entry *a, const struct image_entry *im,
				 struct tell_fail *ret)
{
	struct box_template *t = add(s);
	struct err e = {0};

	if (!t) {
		fail(ret, ENOMEM, "supervisor", "out of memory");
		return NULL;
	}
	t->call = true;
	t->slot = SLOT_TOOL;
	t->used_ns = now_ns();
	if (!describe(s, t, a, im)) {
		fail(ret, E2BIG, LAYER_AGENT, "agent %s has more modules or variables than a sandbox takes", a->name);
	} else if (is_away(t, ret)) {
		log_warn("%s", ret->text);
	} else {
		/* One that can't be made is kept, and tried again in a while: not for each who calls. */
		t->image_bad = make_image(s, t, &e) < 0;
		if (t->image_bad) {
			log_error("agent %s of project %s: %s: %s", a->name, a->project, e.where, e.msg);
			fail(&t->last_fail, e.code, e.where, "%.255s", e.msg);
			t->image_next_ns = now_ns() + IMAGE_CHECK_NS;
		} else {
			say_what_is_odd(t);
		}
		return t;
	}
	drop(s, t);
	return NULL;
}

struct box_template *template_of(struct supervisor *s, const char *project, const char *agent, struct tell_fail *ret)
{
	const struct agent_entry *a;
	const struct image_entry *im;
	struct box_template *t;

	if (s->state_fd < 0) {
		fail(ret, ENOENT, LAYER_AGENT, "there are no tool calls here");
		return NULL;
	}
	refresh(s);
	t = find(s, project, agent);
	if (t) {
		t->used_ns = now_ns();
		return t;
	}
	a = agent_table_find(&s->agents, project, agent);
	if (!a) {
		fail(ret, ENOENT, LAYER_AGENT,
		     "no agent \"%s\" in project \"%s\": `weir agent add %s --project %s --image IMAGE --tools MODULE` adds it",
		     agent, project, agent, project);
		return NULL;
	}
	im = image_table_by_digest(&s->images, a->digest);
	if (!im) {
		fail(ret, ENOENT, LAYER_AGENT,
		     "the image of agent %s (%s) is not known any more: bring it back with `weir image import`", a->name,
		     a->image);
		return NULL;
	}
	if (!make_place(s)) {
		fail(ret, EAGAIN, "pool", "as many agents are being called as can be at once");
		return NULL;
	}
	return make(s, a, im, ret);
}

void template_tend(struct supervisor *s)
{
	struct box_template *t, *next;
	uint64_t now = now_ns();

	if (s->state_fd < 0)
		return;
	if (now - s->registry_checked_ns >= REGISTRY_CHECK_NS)
		refresh(s);
	for (t = TAILQ_FIRST(&s->templates); t; t = next) {
		bool over = t->retired || (template_is_idle(s, t, now) && !t->fair.waiting);

		next = TAILQ_NEXT(t, link);
		if (!t->call || !over)
			continue;
		throw_away(s, t);
		if (!template_alive(t) && !t->fair.waiting)
			drop(s, t);
	}
}
