/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of a record as people read them: numbers, sizes, times, and the sentence that says what a run did. Pure. Records are
 * taken as they come: a member that is missing or of another type is as good as none.
 */
#ifndef WEIR_REPORT_WORDS_H
#define WEIR_REPORT_WORDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define WORDS_MAX 96

/* A member: NULL, 0 or "" when it is not there. Negative numbers are 0, but for member_int()'s. */
const json_t *member(const json_t *object, const char *name);
const char *member_text(const json_t *object, const char *name);
uint64_t member_count(const json_t *object, const char *name);
long long member_int(const json_t *object, const char *name);
double member_number(const json_t *object, const char *name);
/* Whether it is a number. */
bool has_number(const json_t *object, const char *name);

/* Each writes into `ret` (WORDS_MAX) and returns it; words_time() returns what is no time as it is. The macros give it room
 * until the end of the block. */
const char *words_count(char *ret, uint64_t n);	     /* "1,204" */
const char *words_bytes(char *ret, uint64_t bytes);  /* "1.5 MiB", "312 bytes" */
const char *words_ms(char *ret, double ms);	     /* "1.204 s", "38.2 ms" */
const char *words_time(char *ret, const char *time); /* "2026-11-30 11:36:27.123", of one in RFC 3339 */
const char *words_some(char *ret, uint64_t n, const char *one, const char *many); /* "1 attempt", "3 attempts" */

#define WORDS_ROOM ((char[WORDS_MAX]){0})
#define COUNT(n) words_count(WORDS_ROOM, (n))
#define BYTES(n) words_bytes(WORDS_ROOM, (n))
#define MS(ms) words_ms(WORDS_ROOM, (ms))
#define TIME(time) words_time(WORDS_ROOM, (time))
#define SOME(n, one, many) words_some(WORDS_ROOM, (n), (one), (many))

/*
 * What the run tried and what became of it: "3 attempts to reach the network, all denied by policy snippet". And how it ended:
 * "It ended by itself, exit code 0." Of running and interrupted ones, what is known so far. malloc'd; NULL without memory.
 */
char *words_verdict(const json_t *run);
char *words_ending(const json_t *run);

#endif
