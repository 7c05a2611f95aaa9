/* SPDX-License-Identifier: Apache-2.0 */
/* A policy document and what it compiles to. Pure: no kernel, no files. */
#ifndef WEIR_CORE_POLICY_H
#define WEIR_CORE_POLICY_H

#include <stddef.h>

#include "abi.h"
#include "core/err.h"

#define POLICY_NAME_MAX 64

struct policy {
	char name[POLICY_NAME_MAX];
	struct weir_policy image; /* present = 1, generation = 0: ready for the policies map */
};

/*
 * Parses a policy document (JSON, `len` bytes, need not be terminated). Unknown and duplicate keys are errors; syntax
 * errors carry line:column in e->where, errors of meaning a JSON pointer.
 */
int policy_parse(const char *text, size_t len, struct policy *ret, struct err *e);

/* The embedded default: denies everything, DNS and loopback included. */
const struct policy *policy_snippet(void);

#endif
