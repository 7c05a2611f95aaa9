/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One policy on one cgroup that Weir did not make, and its traces on disk:
 *
 *   /sys/fs/bpf/weir/attached/<id>/   links and maps: what enforces, whether a Weir process lives or not
 *   /run/weir/attached/<id>/          attachment.json (this struct), policy.json (the document as it was)
 *   /run/weir/attached/lock           held by whoever attaches, detaches or clears up
 *   /run/weir/attached/making         shared by those who load programs already, and have yet to wait for the lock
 *   /run/weir/attached/drain          held, with its pid inside, by the service that writes the events
 *
 * Files are replaced whole. They are root's; a damaged one is an error that names it, and never a reason to enforce less.
 */
#ifndef WEIR_ATTACH_ATTACHMENT_H
#define WEIR_ATTACH_ATTACHMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach/canary.h"
#include "attach/inspect.h"
#include "attach/preflight.h"
#include "attach/target.h"
#include "core/coverage.h"
#include "ipc/ipc.h"

#define ATTACHED_DIR "/run/weir/attached"
#define ATTACHED_PINS "/sys/fs/bpf/weir/attached"
#define ATTACHED_MAX 512		    /* attachments of one host */
#define ATTACHED_GONE_KEPT_S (24 * 60 * 60) /* how long it is remembered that a cgroup that is gone had a policy */
#define ATTACHED_RESOLVERS 3

/* Where they are: the two above. Tests have places of their own. */
extern const char *attachment_dir, *attachment_pins;

struct attachment {
	char id[IPC_ID_MAX];   /* "attached-" and 10 of a-z0-9 */
	struct target target;  /* fd is -1 */
	bool parent;	       /* TARGET_PARENT: no policy of its own, unknown cgroups below it are .. */
	bool unknown_passes;   /* .. recorded and let through, else denied */
	char policy[PATH_MAX]; /* as it was asked for: a path or a shipped name; "" of a parent */
	char policy_name[IPC_POLICY_MAX];
	uint8_t policy_hash[32];
	uint32_t generation; /* of the policy: 1, and one more for each that replaced it */
	char resolvers[ATTACHED_RESOLVERS][46];
	size_t resolver_count;
	bool force;
	struct coverage_found found;
	enum coverage coverage;
	struct canary canary;
	uint64_t attached_ns;	       /* CLOCK_REALTIME */
	uint64_t gone_ns;	       /* when its cgroup was found gone; 0: it is there, as far as we know */
	uint32_t record;	       /* number of its record in the audit, see supervisor/attached.h; 0: none was begun */
	unsigned foreign[FOREIGN_MAX]; /* ids of others' programs that were there: what comes later is news */
	size_t foreign_count;
	/* What was open, for the audit: in the file, not in the list that attachment_list() gives. */
	struct open_socket *sockets;
	size_t socket_count, sockets_beyond;
};

void attachment_clear(struct attachment *a);

/* The file, as text and back. The text is the caller's. An error says which member is wrong, and how. */
char *attachment_text(const struct attachment *a);
int attachment_parse(const char *text, size_t len, bool with_sockets, struct attachment *ret, struct err *e);

/* Takes the lock of all changes; closing *ret_fd lets go of it. Waits, at most `ms` (-1: for ever). */
int attachment_lock(int ms, int *ret_fd, struct err *e);

/* Says that pins without a record are being made, as long as *ret_fd is open: the kernel checks programs of several at once. */
int attachment_making(int *ret_fd, struct err *e);
bool attachment_being_made(void);
/* Whether somebody holds the lock: what does not fit together may be about to. */
bool attachment_being_changed(void);

/* All of them, in the order of their age. A directory that can't be read is a problem of its own: see `broken`. */
struct attachment_list {
	struct attachment *each;
	size_t count;
	struct {
		char id[IPC_ID_MAX], why[256];
	} * broken;
	size_t broken_count;
};
int attachment_list(struct attachment_list *ret, struct err *e);
/* The same for who holds the lock: pins without a record are then none that somebody is making. */
int attachment_list_locked(struct attachment_list *ret, struct err *e);
void attachment_list_clear(struct attachment_list *l);

int attachment_load(const char *id, struct attachment *ret, struct err *e); /* with its sockets */
/* Writes attachment.json, and policy.json when `document` is there. Under the lock. */
int attachment_save(const struct attachment *a, const char *document, size_t len, struct err *e);
/* Removes its directory below ATTACHED_DIR, not its pins. Under the lock. */
int attachment_forget(const char *id, struct err *e);

/* Pid of the service that writes events of attachments, 0 when there is none. */
int attachment_drained_by(void);

#endif
