/* SPDX-License-Identifier: Apache-2.0 */
/* A service's TLS certificate and key, read as root before anybody gives that up. */
#ifndef WEIR_CLI_TLSFILE_H
#define WEIR_CLI_TLSFILE_H

#include "core/err.h"

/* PEM text, malloc'd; both or neither. */
struct tlsfile {
	char *certificate, *key;
};

/*
 * Reads and checks both: they are PEM, belong together, and the key has no password. A key that everybody may read, or that
 * others than its owner may write, is refused. *ret_warning (static text, or NULL) says that the certificate is not valid at
 * this time. *ret is the caller's (tlsfile_clear), touched only on success.
 */
int tlsfile_load(const char *certificate, const char *key, struct tlsfile *ret, const char **ret_warning, struct err *e);

/* Overwrites and frees. An empty one is fine. */
void tlsfile_clear(struct tlsfile *t);

#endif
