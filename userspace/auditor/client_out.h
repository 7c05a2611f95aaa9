/* SPDX-License-Identifier: Apache-2.0 */
/* A client's answers on their way out. For client.c alone. */
#ifndef WEIR_AUDITOR_CLIENT_OUT_H
#define WEIR_AUDITOR_CLIENT_OUT_H

#include "auditor/client.h"

/* Whether another answer may be put: there is room for at least one more of any size. */
bool client_has_room(const struct client *c);

/*
 * Puts an answer behind the others; `text` (copied) may be NULL with len 0. Without memory for it the status says ENOMEM;
 * without even that, -ENOMEM: the connection must be closed.
 */
int client_put(struct client *c, uint64_t req, uint32_t status, const char *text, size_t len);
/* The same; takes json, NULL: there was no memory for it. */
int client_put_json(struct client *c, uint64_t req, json_t *json);

/* Sends what the connection takes. Returns 0, or a negative errno when it must be closed. */
int client_flush(struct client *c, int64_t now_ms);

void client_drop_answers(struct client *c);

#endif
