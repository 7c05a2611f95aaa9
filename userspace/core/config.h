/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a service: what the file says, what the command line says, and what is so by default. Pure: files are
 * cli/config_load.c's.
 *
 * One table (config_keys) has every key: its place in the file, its option, what it may be and what it is without either. An
 * option wins over the file, the file over the default.
 */
#ifndef WEIR_CORE_CONFIG_H
#define WEIR_CORE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

enum config_key {
	CONFIG_LISTEN,
	CONFIG_PLAINTEXT,
	CONFIG_TLS_CERTIFICATE,
	CONFIG_TLS_KEY,
	CONFIG_STATE_DIR,
	CONFIG_POLICY,
	CONFIG_POOL_SIZE,
	CONFIG_PYTHON,
	CONFIG_IMAGE,
	CONFIG_TOOL_EGRESS, /* "tool_calls"."allow_internet_egress", and spelled "toolCalls"."allowInternetEgress" */
	CONFIG_TOOL_POLICY, /* "tool_calls"."policy" */
	CONFIG_AUDIT_DAYS,
	CONFIG_AUDIT_MIB,
	CONFIG_AUDIT_PROJECT_MIB,
	CONFIG_AUDIT_CONTENT,
	CONFIG_BPF_RUN_TIME,
	CONFIG_KEYS,
};

enum config_source { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_OPTION };
extern const char *const config_source_names[]; /* "default", "file", "option" */

enum config_kind {
	CONFIG_ADDRESS, /* core/listen.h's */
	CONFIG_FLAG,
	CONFIG_PATH,
	CONFIG_NAME_OR_PATH, /* without a slash it may be a name that means something by itself */
	CONFIG_COUNT,	     /* an integer, `min` to `max` */
};

struct config_row {
	const char *group, *name; /* the member `name` of the document, or of its member `group` */
	const char *option;	  /* "--pool" */
	enum config_kind kind;
	size_t offset;	      /* in struct config: char *, bool or unsigned */
	long min, max;	      /* COUNT */
	const char *fallback; /* as text; NULL: none */
	bool required;	      /* where its group is there, it must be there too */
};
extern const struct config_row config_keys[CONFIG_KEYS];

/* Text is malloc'd; NULL is "not said", of what has no default. */
struct config {
	char *listen, *state_dir;
	char *policy;			 /* a file, or the name of a shipped one */
	char *python;			 /* a file, or a name to be looked for on PATH */
	char *image;			 /* a directory */
	char *tool_policy;		 /* as `policy`; what is in force is config_tool_policy() */
	bool tool_egress;		 /* tools have a way out to the network */
	char *tls_certificate, *tls_key; /* files */
	bool plaintext;
	unsigned pool_size;
	unsigned audit_days, audit_mib, audit_project_mib; /* of the record: how long, how much, how much of one project */
	bool audit_content;		 /* it has code, arguments and output too, and not only their hashes */
	bool bpf_run_time;		 /* the kernel measures how long BPF programs run: all of the host's */
	unsigned char from[CONFIG_KEYS]; /* enum config_source */
	char *file;			 /* which was read; NULL: none */
};

/*
 * Reads a document into *c (empty, {0}). Strict: unknown, repeated or ill-typed keys are errors with the JSON pointer in
 * `where` and what was expected. Whatever comes of it, *c is to be cleared (config_clear).
 */
int config_parse(const char *text, size_t len, struct config *c, struct err *e);

/*
 * Sets one key from the command line; of a FLAG `text` is not looked at, its option says what the default is not. On failure
 * `where` is the option.
 */
int config_option(struct config *c, enum config_key key, const char *text, struct err *e);

/*
 * Fills what `c` does not say: from `over` what it says, then the defaults. `over` wins; it is left as it is. When its
 * image wins, the interpreter that `c` has for another root goes.
 */
int config_merge(struct config *c, const struct config *over, struct err *e);

/* What no key can be wrong in by itself: half a pair, two that contradict each other. For a merged one. */
int config_check(const struct config *c, struct err *e);

/* The value of a text key; NULL for the others, and where nothing is said. */
const char *config_text(const struct config *c, enum config_key key);

/* What tools are under: the configured policy, or without a way out the shipped one that denies everything. Borrowed. */
const char *config_tool_policy(const struct config *c);

/* "/tls/key" */
#define CONFIG_POINTER_MAX 48
void config_pointer(enum config_key key, char ret[CONFIG_POINTER_MAX]);

/* Frees what it holds and empties it. */
void config_clear(struct config *c);

static inline void cleanup_configp(struct config *c)
{
	config_clear(c);
}
#define _cleanup_config_ __attribute__((cleanup(cleanup_configp)))

#endif
