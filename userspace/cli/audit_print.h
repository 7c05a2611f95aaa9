/* SPDX-License-Identifier: Apache-2.0 */
/* How `weir audit` prints what a record has. */
#ifndef WEIR_CLI_AUDIT_PRINT_H
#define WEIR_CLI_AUDIT_PRINT_H

#include <jansson.h>
#include <stddef.h>

/*
 * A value as text that is safe on a terminal: the record is ASCII already, but a file may hold anything, and a terminal obeys
 * control characters. "-" for what has no such form. Returns buf.
 */
const char *audit_cell(char *buf, size_t size, const json_t *value);
#define CELL(value) audit_cell((char[1100]){0}, 1100, (value))
#define GET(object, name) CELL(json_object_get(object, name))

/* A run, as view_run() made it: whole. */
void audit_print_run(const json_t *run);

/* A table of runs: its first line, and one for each. */
void audit_print_header(void);
void audit_print_row(const json_t *run);

/* 0 or -EIO. */
int audit_print_json(const json_t *json);

/* ---- parts of audit_print_run() ---- */
/* audit_print_attached.c: of what had a policy put on it while it ran, what others don't have. */
void audit_print_attached(const json_t *run);
/* audit_print_use.c: what it used, ran, was refused, and what its record is vouched for by. */
void audit_print_use(const json_t *run);

#endif
