/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/attach_show.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/attach_words.h"
#include "core/cidr.h"
#include "core/event.h"
#include "kernel/netenv.h"

#define WIDTH_FILE 100 /* of prose, where nothing says how wide it is */
#define WIDTH_TABLE 120
#define WIDTH_MIN 60
#define ROOM_MIN 20 /* of a table, for target and policy */
#define LABEL 13    /* "  coverage   " */
#define SOCKETS_SHOWN 16
#define FOREIGN_SHOWN 8
#define GONE_SHOWN 8
#define TARGET_WIDTH_MAX 140

enum colour { NO_COLOUR, GREEN, YELLOW, RED };

static const char *paint(const FILE *to, enum colour c)
{
	static const char *const codes[] = {"\033[0m", "\033[32m", "\033[33m", "\033[31m"};

	return isatty(fileno((FILE *)to)) && !getenv("NO_COLOR") ? codes[c] : "";
}

static size_t width_of(FILE *to, size_t otherwise)
{
	struct winsize ws;

	if (ioctl(fileno(to), TIOCGWINSZ, &ws) < 0 || !ws.ws_col)
		return otherwise;
	return ws.ws_col < WIDTH_MIN ? WIDTH_MIN : ws.ws_col < otherwise ? ws.ws_col : otherwise;
}

char *attach_plain(char *ret, size_t size, const char *text)
{
	if (ret != text)
		snprintf(ret, size, "%s", text);
	for (char *p = ret; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	return ret;
}
#define PLAIN(text) attach_plain((char[PATH_MAX]){0}, PATH_MAX, (text))

/* ---- paragraphs ---- */

/*
 * A label, and text behind it whose further lines stand under its first; a label that is longer than its column moves the text.
 * A word is never broken: a path must stay one that can be copied.
 */
static void para(FILE *to, const char *label, size_t indent, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void para(FILE *to, const char *label, size_t indent, const char *fmt, ...)
{
	static char text[3 * PATH_MAX];
	size_t width = width_of(to, WIDTH_FILE), at = indent;
	bool first = true;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	fprintf(to, "%-*s%s", (int)indent, label, strlen(label) >= indent && label[0] ? " " : "");
	if (strlen(label) >= indent)
		at = strlen(label) + 1;
	for (const char *p = text; *p;) {
		size_t word = strcspn(p, " ");

		if (!first && at + 1 + word > width) {
			fprintf(to, "\n%*s", (int)indent, "");
			at = indent;
		} else if (!first) {
			fputc(' ', to);
			at++;
		}
		fprintf(to, "%.*s", (int)word, p);
		at += word;
		first = false;
		p += word;
		p += strspn(p, " ");
	}
	fputc('\n', to);
}

/* ---- what it is on ---- */

char *attach_target_text(char ret[ATTACH_TARGET_TEXT], const struct attachment *a, size_t width)
{
	const struct target *t = &a->target;
	const struct workload *w = &t->workload;
	char path[PATH_MAX];
	const char *kind = a->parent ? "below " : "";
	size_t len, room;

	width = width < TARGET_WIDTH_MAX ? width : TARGET_WIDTH_MAX;
	if (!a->parent && w->container[0]) {
		snprintf(ret, ATTACH_TARGET_TEXT, "container %.12s", w->container);
	} else if (!a->parent && w->pod[0]) {
		snprintf(ret, ATTACH_TARGET_TEXT, "pod %.*s", (int)(width > 4 ? width - 4 : 0), w->pod);
	} else {
		attach_plain(path, sizeof path, t->path);
		len = strlen(path);
		room = width - strlen(kind);
		/* Of a long path the end says more than the beginning. */
		if (len > room)
			snprintf(ret, ATTACH_TARGET_TEXT, "%s...%.*s", kind, TARGET_WIDTH_MAX, path + len - (room - 3));
		else
			snprintf(ret, ATTACH_TARGET_TEXT, "%s%.*s", kind, TARGET_WIDTH_MAX, path);
	}
	return ret;
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static const char *plural_es(uint64_t n)
{
	return n == 1 ? "" : "es";
}

static void show_target(FILE *to, const struct attach_view *v)
{
	const struct target *t = &v->a->target;
	const struct workload *w = &t->workload;
	bool by_runtime = w->runtime && w->runtime[0];

	para(to, v->a->parent ? "  below" : "  on", LABEL, "%s", PLAIN(t->path));
	if (w->container[0])
		para(to, "", LABEL, "container %s%s%s", PLAIN(w->container), by_runtime ? ", " : "",
		     by_runtime ? w->runtime : "");
	if (w->pod[0])
		para(to, "", LABEL, "%spod %s%s%s", w->container[0] ? "of " : "", PLAIN(w->pod),
		     by_runtime && !w->container[0] ? ", " : "", by_runtime && !w->container[0] ? w->runtime : "");
	if (v->seen && !v->a->parent)
		para(to, "", LABEL, "%u process%s%s", v->seen->processes, plural_es(v->seen->processes),
		     v->seen->host_network ? ", in the host's network namespace" : "");
	if (t->kind == TARGET_PID)
		para(to, "", LABEL, "found by pid %s", PLAIN(t->ref));
}

static void show_policy(FILE *to, const struct attachment *a)
{
	char hex[2 * sizeof a->policy_hash + 1], path[PATH_MAX];

	if (a->parent) {
		para(to, "  unknown", LABEL, "%s",
		     a->unknown_passes ? "a cgroup directly below it without a policy of its own is recorded, and let through"
				       : "a cgroup directly below it without a policy of its own is denied everything");
		return;
	}
	attach_hex(hex, a->policy_hash, sizeof a->policy_hash);
	attach_plain(path, sizeof path, a->policy);
	para(to, "  policy", LABEL, "%s%s%s%s, generation %u, SHA-256 %.16s...", PLAIN(a->policy_name),
	     strcmp(a->policy, a->policy_name) ? " (" : "", strcmp(a->policy, a->policy_name) ? path : "",
	     strcmp(a->policy, a->policy_name) ? ")" : "", a->generation, hex);
}

/* ---- coverage ---- */

void attach_show_coverage(FILE *to, const struct attachment *a)
{
	static const enum colour colours[] = {GREEN, YELLOW, RED};
	char label[64];

	fprintf(to, "%-*s%s%s%s%s\n", LABEL, "  coverage", paint(to, colours[a->coverage]), coverage_names[a->coverage],
		paint(to, NO_COLOUR), a->force && a->coverage == COVERAGE_PARTIAL ? " (--force was given)" : "");
	for (unsigned w = 0; w < WEAKNESSES; w++) {
		const struct weakness_row *row = &weakness_rows[w];
		const char *detail = a->found.detail[w];

		if (!(a->found.weak & 1u << w))
			continue;
		snprintf(label, sizeof label, "    %s", row->name);
		para(to, label, LABEL + 6, "%s%s%s%s", row->text, detail[0] ? " (" : "", PLAIN(detail), detail[0] ? ")" : "");
		if (row->mend && row->mend[0])
			para(to, "", LABEL + 6, "Mend: %s", row->mend);
	}
}

/* ---- sockets ---- */

/* What most needs to be seen comes first. */
static int rank(const struct open_socket *s)
{
	if (!s->family)
		return 1;
	if (attach_judged(s) && s->verdict == WEIR_DENY)
		return s->elsewhere ? 1 : 0;
	if (s->elsewhere)
		return 2;
	if (!attach_judged(s))
		return 5;
	return s->verdict == WEIR_WOULD_DENY ? 3 : 4;
}

static int by_rank(const void *a, const void *b, void *ctx)
{
	const struct open_socket *sockets = ctx;
	size_t x = *(const size_t *)a, y = *(const size_t *)b;
	int d = rank(&sockets[x]) - rank(&sockets[y]);

	return d ? d : (x > y) - (x < y);
}

static const char *verdict_words(const struct open_socket *s)
{
	if (!s->family)
		return "packet socket: sends frames below the hooks";
	if (s->elsewhere)
		return "made in another cgroup: not judged by this policy";
	if (!attach_judged(s))
		return "judged when it sends";
	return s->verdict == WEIR_DENY ? "denied" : s->verdict == WEIR_ALLOW ? "allowed" : "would be denied";
}

static void show_socket(FILE *to, const struct open_socket *s)
{
	char local[ATTACH_ENDPOINT] = "", remote[ATTACH_ENDPOINT], room[NETPROTO_TEXT_MAX], where[3 * ATTACH_ENDPOINT] = "";
	char comm[sizeof s->comm + 1];

	if (s->family) {
		attach_endpoint(local, s, false);
		snprintf(where, sizeof where, " %s%s%s", local, s->connected ? " -> " : "",
			 s->connected ? attach_endpoint(remote, s, true) : "");
	}
	snprintf(comm, sizeof comm, "%.*s", (int)sizeof s->comm, s->comm);
	para(to, "", LABEL + 2, "%s%s%s%s, pid %d (%s): %s", attach_protocol(room, s), where,
	     s->protocol == IPPROTO_TCP && s->family ? ", " : "",
	     s->protocol == IPPROTO_TCP && s->family ? attach_tcp_state(s->state) : "", s->pid, PLAIN(comm), verdict_words(s));
}

static void show_sockets(FILE *to, const struct attachment *a)
{
	size_t *order = calloc(a->socket_count + 1, sizeof *order);
	size_t denied = 0, all = a->socket_count + a->sockets_beyond, shown;

	if (!order)
		return;
	for (size_t i = 0; i < a->socket_count; i++) {
		order[i] = i;
		denied += rank(&a->sockets[i]) == 0;
	}
	qsort_r(order, a->socket_count, sizeof *order, by_rank, a->sockets);
	shown = a->socket_count < SOCKETS_SHOWN ? a->socket_count : SOCKETS_SHOWN;
	if (!all)
		para(to, "  sockets", LABEL, "none was open when it was attached");
	else
		para(to, "  sockets", LABEL, "%zu %s open when it was attached; %zu denied since%s", all,
		     all == 1 ? "was" : "were", denied, a->sockets_beyond ? " (not all were looked at)" : "");
	for (size_t i = 0; i < shown; i++)
		show_socket(to, &a->sockets[order[i]]);
	if (all > shown)
		para(to, "", LABEL + 2, "and %zu more", all - shown);
	free(order);
}

/* ---- others, the trial, the counters ---- */

static const char *effect_words(enum foreign_effect effect)
{
	static const char *const words[FOREIGN_EFFECTS] = {
	    [FOREIGN_BESIDE] = "both run, and either can deny",
	    [FOREIGN_REFUSES] = "it keeps ours from being attached",
	    [FOREIGN_STOPPED] = "ours would stop it",
	    [FOREIGN_REWRITES] = "it may change a destination; the packet is judged as it leaves",
	};

	return effect < FOREIGN_EFFECTS ? words[effect] : "";
}

static void show_others(FILE *to, const struct preflight *p)
{
	size_t shown = p->count < FOREIGN_SHOWN ? p->count : FOREIGN_SHOWN;
	size_t more = p->count - shown + p->beyond;

	for (size_t i = 0; i < shown; i++) {
		const struct foreign *f = &p->foreign[i];
		char prog[sizeof f->prog];

		attach_plain(prog, sizeof prog, f->prog);
		para(to, i ? "" : "  others", LABEL, "%s%s%u at %s on %s: %s", prog, prog[0] ? ", program " : "program ", f->id,
		     f->hook, PLAIN(f->path), effect_words(f->effect));
	}
	if (more)
		para(to, "", LABEL, "and %zu more", more);
}

static void show_canary(FILE *to, const struct attachment *a)
{
	static const char untried[] = "not tried: ";
	const struct canary *c = &a->canary;
	const char *why = c->why;
	char would[48] = "";

	if (!strncmp(why, untried, sizeof untried - 1))
		why += sizeof untried - 1;

	if (c->would_deny)
		snprintf(would, sizeof would, ", %u would have been denied", c->would_deny);
	if (c->proven)
		para(to, "  tried", LABEL, "from inside, in %s: %u attempt%s, %u denied%s, each as the policy says",
		     PLAIN(c->leaf), c->attempts, plural(c->attempts), c->denied, would);
	else if (!strcmp(why, "not tried yet"))
		para(to, "  tried", LABEL, "not yet");
	else if (why[0])
		para(to, "  tried", LABEL, "not from inside: %s", PLAIN(why));
}

static const char *bytes_text(char ret[32], uint64_t n)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	double v = (double)n;
	size_t u = 0;

	while (v >= 1024 && u + 1 < sizeof units / sizeof units[0]) {
		v /= 1024;
		u++;
	}
	if (u)
		snprintf(ret, 32, "%.1f %s", v, units[u]);
	else
		snprintf(ret, 32, "%llu %s", (unsigned long long)n, units[0]);
	return ret;
}

#define LLU(n) ((unsigned long long)(n))

bool attach_is_on(const struct attach_check *c)
{
	return c->state == ATTACH_IN_FORCE || c->state == ATTACH_DRIFT;
}

static void take_from(__u64 *n, uint64_t less)
{
	*n = *n > less ? *n - less : 0;
}

struct weir_sandbox attach_own_counters(const struct attachment *a, const struct attach_check *c)
{
	const struct canary *tried = &a->canary;
	struct weir_sandbox s = a->parent ? c->unknown : c->counters;
	uint64_t refused = (uint64_t)tried->denied + tried->would_deny;

	if (a->parent)
		return s;
	take_from(&s.attempts, tried->attempts);
	take_from(&s.denied, tried->denied);
	take_from(&s.would_deny, tried->would_deny);
	take_from(&s.allowed, tried->attempts > refused ? tried->attempts - refused : 0);
	return s;
}

static void show_account(FILE *to, const char *label, const struct weir_sandbox *s)
{
	char size[32], would[64] = "", inbound[64] = "", unlisted[64] = "";

	if (s->would_deny)
		snprintf(would, sizeof would, ", %llu would have been denied", LLU(s->would_deny));
	if (s->inbound)
		snprintf(inbound, sizeof inbound, "; %llu packet%s from outside refused", LLU(s->inbound), plural(s->inbound));
	if (s->unlisted)
		snprintf(unlisted, sizeof unlisted, "; %llu attempt%s without detail", LLU(s->unlisted), plural(s->unlisted));
	para(to, label, LABEL, "%llu attempt%s: %llu denied, %llu allowed%s; %llu packet%s out, %s%s%s", LLU(s->attempts),
	     plural(s->attempts), LLU(s->denied), LLU(s->allowed), would, LLU(s->packets), plural(s->packets),
	     bytes_text(size, s->bytes), inbound, unlisted);
}

static void show_counters(FILE *to, const struct attachment *a, const struct attach_check *c)
{
	struct weir_sandbox own;

	if (!c->readable) {
		if (attach_is_on(c))
			para(to, "  counters", LABEL, "they can't be read");
		return;
	}
	own = attach_own_counters(a, c);
	show_account(to, "  counters", &own);
	if (c->lost)
		para(to, "", LABEL, "%llu event%s did not fit and %s lost", LLU(c->lost), plural(c->lost),
		     c->lost == 1 ? "was" : "were");
}

static enum colour state_colour(enum attach_state s)
{
	return s == ATTACH_IN_FORCE ? GREEN : s == ATTACH_GONE ? YELLOW : RED;
}

static void show_state(FILE *to, const struct attach_check *c)
{
	char label[64];

	fprintf(to, "%-*s%s%s%s\n", LABEL, "  state", paint(to, state_colour(c->state)), attach_state_names[c->state],
		paint(to, NO_COLOUR));
	for (size_t i = 0; i < c->problem_count; i++) {
		snprintf(label, sizeof label, "    %s", PLAIN(c->problems[i].name));
		para(to, label, LABEL + 6, "%s", PLAIN(c->problems[i].text));
	}
}

/* Lists of name servers have no order that matters to a policy. */
static bool all_in(const char (*some)[46], size_t count, const char (*all)[46], size_t all_count)
{
	for (size_t i = 0; i < count; i++) {
		bool found = false;

		for (size_t k = 0; k < all_count; k++)
			found = found || !strcmp(some[i], all[k]);
		if (!found)
			return false;
	}
	return true;
}

/* This host's own, as @resolver holds them; none when they can't be read. */
static size_t hosts_resolvers(char ret[RESOLVCONF_SERVERS][46])
{
	struct netenv env;
	size_t count;

	if (netenv_read(&env, NULL, NULL) < 0)
		return 0;
	count = env.server_count;
	for (size_t i = 0; i < count; i++) {
		char text[CIDR_TEXT_MAX];

		cidr_text(text, &env.servers[i], true);
		snprintf(ret[i], sizeof ret[i], "%.45s", text);
	}
	netenv_clear(&env);
	return count;
}

static void join(char *ret, size_t size, const char (*list)[46], size_t count)
{
	size_t used = 0;

	ret[0] = 0;
	for (size_t i = 0; i < count && used < size; i++)
		used += (size_t)snprintf(ret + used, size - used, "%s%s", i ? ", " : "", list[i]);
}

static void show_resolvers(FILE *to, const struct attach_view *v)
{
	const struct attachment *a = v->a;
	const struct inspection *seen = v->seen;
	char text[ATTACHED_RESOLVERS * (sizeof a->resolvers[0] + 2)], held[RESOLVCONF_SERVERS][46];
	size_t count = a->resolver_count;

	_Static_assert(sizeof a->resolvers == sizeof held && sizeof seen->resolvers == sizeof held, "lists of one kind");
	join(text, sizeof text, a->resolvers, a->resolver_count);
	if (text[0])
		para(to, "  resolvers", LABEL, "%s", PLAIN(text));
	if (a->parent || !seen || !seen->resolver_count)
		return;
	if (count)
		memcpy(held, a->resolvers, sizeof held);
	else
		count = hosts_resolvers(held);
	/* Only where the two differ is there something to decide. */
	if (all_in(seen->resolvers, seen->resolver_count, held, count) &&
	    all_in(held, count, seen->resolvers, seen->resolver_count))
		return;
	join(text, sizeof text, seen->resolvers, seen->resolver_count);
	para(to, a->resolver_count ? "" : "  resolvers", LABEL, "its own resolv.conf says %s: its word, so @resolver is %s",
	     PLAIN(text), a->resolver_count ? "what was given" : "this host's, unless --resolver says otherwise");
}

void attach_show_text(FILE *to, const struct attach_view *v)
{
	const struct attachment *a = v->a;
	bool on = !v->check || attach_is_on(v->check);
	char when[EVENT_TIME_MAX];

	event_time_text(when, a->attached_ns);
	when[strcspn(when, ".")] = 0;
	fprintf(to, "%s, attached %sZ\n", a->id, when);
	show_target(to, v);
	show_policy(to, a);
	if (v->check)
		show_state(to, v->check);
	if (!a->parent && on)
		attach_show_coverage(to, a);
	if (v->check)
		show_counters(to, a, v->check);
	if (v->with_sockets && !a->parent)
		show_sockets(to, a);
	if (v->check)
		show_others(to, &v->check->others);
	/* When nothing is on it, what was tried then says nothing of now. */
	if (on)
		show_canary(to, a);
	show_resolvers(to, v);
}

/* ---- the table ---- */

struct columns {
	int target, policy, denied, would, attempts; /* widths */
};

static const char *policy_text(char ret[IPC_POLICY_MAX], const struct attachment *a)
{
	if (a->parent)
		snprintf(ret, IPC_POLICY_MAX, "unknown: %s", a->unknown_passes ? "allow" : "deny");
	else
		attach_plain(ret, IPC_POLICY_MAX, a->policy_name);
	return ret;
}

int attach_row_fill(struct attach_row *ret, const struct attachment *a, const struct attach_check *c, struct err *e)
{
	const struct weir_sandbox s = attach_own_counters(a, c);
	struct attach_row r = {.a = a,
			       .state = c->state,
			       .on = attach_is_on(c),
			       .readable = c->readable,
			       .denied = s.denied,
			       .would_deny = s.would_deny,
			       .attempts = s.attempts};

	if (c->problem_count) {
		r.problems = calloc(c->problem_count, sizeof *r.problems);
		if (!r.problems)
			return err_set(e, ENOMEM, "", "out of memory");
		memcpy(r.problems, c->problems, c->problem_count * sizeof *r.problems);
		r.problem_count = c->problem_count;
	}
	*ret = r;
	return 0;
}

void attach_row_clear(struct attach_row *r)
{
	free(r->problems);
	r->problems = NULL;
	r->problem_count = 0;
}

static void number(char ret[24], const struct attach_row *r, uint64_t n)
{
	if (r->readable)
		snprintf(ret, 24, "%llu", LLU(n));
	else
		snprintf(ret, 24, "-");
}

static void print_row(const struct attach_row *r, const struct columns *w)
{
	const struct attachment *a = r->a;
	char target[ATTACH_TARGET_TEXT], policy[IPC_POLICY_MAX], denied[24], would[24], attempts[24];

	number(denied, r, r->denied);
	number(would, r, r->would_deny);
	number(attempts, r, r->attempts);
	printf("%-19s  %-*s  %-*.*s  %-8s  %s%-9s%s  %*s  %*s  %*s\n", a->id, w->target,
	       attach_target_text(target, a, (size_t)w->target), w->policy, w->policy, policy_text(policy, a),
	       a->parent || !r->on ? "-" : coverage_names[a->coverage], paint(stdout, state_colour(r->state)),
	       attach_state_names[r->state], paint(stdout, NO_COLOUR), w->denied, denied, w->would, would, w->attempts,
	       attempts);
}

static void widen(int *width, size_t n, size_t at_most)
{
	n = n < at_most ? n : at_most;
	*width = (int)n > *width ? (int)n : *width;
}

static void widen_number(int *width, const struct attach_row *r, uint64_t n)
{
	char text[24];

	number(text, r, n);
	widen(width, strlen(text), sizeof text);
}

static struct columns columns_of(const struct attach_row *rows, size_t count)
{
	/* The headings are the least widths. */
	struct columns w = {.target = 6, .policy = 6, .denied = 6, .would = 5, .attempts = 8};
	size_t room = width_of(stdout, WIDTH_TABLE), rest;
	char text[ATTACH_TARGET_TEXT + IPC_POLICY_MAX];

	for (size_t i = 0; i < count; i++) {
		widen_number(&w.denied, &rows[i], rows[i].denied);
		widen_number(&w.would, &rows[i], rows[i].would_deny);
		widen_number(&w.attempts, &rows[i], rows[i].attempts);
	}
	/* An id, coverage and state, the numbers, and seven gaps of two. */
	rest = 19 + 8 + 9 + (size_t)(w.denied + w.would + w.attempts) + 14;
	room = room > rest + ROOM_MIN ? room - rest : ROOM_MIN;
	for (size_t i = 0; i < count; i++)
		widen(&w.policy, strlen(policy_text(text, rows[i].a)), room / 3);
	for (size_t i = 0; i < count; i++)
		widen(&w.target, strlen(attach_target_text(text, rows[i].a, ATTACH_TARGET_TEXT - 1)), room - (size_t)w.policy);
	return w;
}

static void print_problems(const struct attach_row *r)
{
	char label[IPC_ID_MAX + 40];

	for (size_t i = 0; i < r->problem_count; i++) {
		snprintf(label, sizeof label, "%s: %s:", r->a->id, r->problems[i].name);
		para(stdout, PLAIN(label), 4, "%s", PLAIN(r->problems[i].text));
	}
}

void attach_show_table(const struct attach_row *rows, size_t count)
{
	struct columns w = columns_of(rows, count);
	size_t gone = 0;

	if (!count)
		return;
	printf("%-19s  %-*s  %-*s  %-8s  %-9s  %*s  %*s  %*s\n", "ID", w.target, "TARGET", w.policy, "POLICY", "COVERAGE",
	       "STATE", w.denied, "DENIED", w.would, "WOULD", w.attempts, "ATTEMPTS");
	for (size_t i = 0; i < count; i++)
		if (rows[i].state != ATTACH_GONE)
			print_row(&rows[i], &w);
	/* The latest of them: those are asked about. */
	for (size_t i = count; i-- > 0;)
		if (rows[i].state == ATTACH_GONE && gone++ < GONE_SHOWN)
			print_row(&rows[i], &w);
	if (gone > GONE_SHOWN)
		printf("and %zu more whose cgroup is gone; --json lists them\n", gone - GONE_SHOWN);
	for (size_t i = 0; i < count; i++)
		if (rows[i].state != ATTACH_GONE)
			print_problems(&rows[i]);
}
