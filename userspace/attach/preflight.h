/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who else has programs where ours go, or want to: on every cgroup from the root down to the target, on the target, and on
 * those below it. The kernel's rules for several programs on one hook are in preflight.c.
 */
#ifndef WEIR_ATTACH_PREFLIGHT_H
#define WEIR_ATTACH_PREFLIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "attach/target.h"
#include "core/coverage.h"

enum foreign_effect {
	FOREIGN_BESIDE,	  /* both run, and either can deny */
	FOREIGN_REFUSES,  /* the kernel will not let ours be attached */
	FOREIGN_STOPPED,  /* ours would keep it from running below the target: so ours is not attached */
	FOREIGN_REWRITES, /* runs beside ours and may change a destination: see WEAK_REWRITE */
	FOREIGN_EFFECTS
};
extern const char *const foreign_effect_names[FOREIGN_EFFECTS];

struct foreign {
	char prog[17]; /* its name in the kernel: "sd_fw_egress"; "" unnamed */
	unsigned id;
	const char *hook;    /* "connect4", "egress" … */
	char path[PATH_MAX]; /* of the cgroup it is attached to; "/" the root */
	enum foreign_effect effect;
};

#define FOREIGN_MAX 64

struct preflight {
	struct foreign foreign[FOREIGN_MAX];
	size_t count, beyond; /* beyond: how many more there are */
};

/*
 * `own`, `own_count`: ids of Weir's own programs, which are nobody's surprise. An error (where = "policy") when a program
 * refuses ours or would be stopped by it: names program, cgroup, who it seems to be (systemd's sd_*, Cilium's cil_*), and the
 * mend. *ret is filled in all the same.
 */
int preflight_look(const struct target *t, const struct target_roots *roots, const unsigned *own, size_t own_count,
		   struct preflight *ret, struct err *e);

/* What of it weakens coverage. */
void preflight_coverage(const struct preflight *p, struct coverage_found *f);

#endif
