/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter of a command of the host (filter_host.h) as a seccomp profile for container runtimes: the `linux.seccomp` object
 * of the OCI runtime specification, as Docker, Podman and Kubernetes' localhostProfile take it. What it refuses, and with which
 * errno, is the same, from the same tables; where the form can't say it, more is refused (see the .c).
 *
 * A runtime has one profile for a container, so this one takes the place of its own: it refuses what those refuse to a
 * container without further capabilities, too.
 */
#ifndef WEIR_RUNNER_FILTER_HOST_OCI_H
#define WEIR_RUNNER_FILTER_HOST_OCI_H

#include <jansson.h>
#include <stddef.h>

#include "core/err.h"
#include "core/policy.h"

#define FILTER_HOST_OCI_NOTES 4

struct filter_host_oci {
	json_t *profile;			  /* owned */
	const char *notes[FILTER_HOST_OCI_NOTES]; /* sentences: what of the policy is not in it, or will surprise */
	size_t note_count;
};

/* e->where as that of filter_host_compile(). */
int filter_host_oci(const struct policy *p, struct filter_host_oci *ret, struct err *e);
void filter_host_oci_clear(struct filter_host_oci *o);

/* Refused because runtimes' own profiles refuse them: with EPERM. `personality` may only be asked for its usual values. */
extern const char *const filter_host_oci_besides[];
extern const size_t filter_host_oci_besides_count;

#endif
