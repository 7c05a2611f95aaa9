/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client half of the run protocol alone. One thread is both sides: it starts runs, and it plays supervisor, harness,
 * auditor and collector, message by message; so every order of events is a test's to choose. Time is, too: the monotonic
 * clock is moved, never waited for.
 */
#ifndef WEIR_TESTS_API_RUNCLIENT_RIG_H
#define WEIR_TESTS_API_RUNCLIENT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/runclient.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"

/* How far the clock is ahead. */
extern uint64_t skew_ns;

extern struct runclient *rc;
extern int sup, aud, col; /* the peers' ends */
extern unsigned idle_calls, gone_calls;
extern struct session *last_idle;

/* One sandbox, the peer's side. */
struct box {
	uint64_t req;
	bool session;
	int request, out, err, dir;
	int result; /* of a call; -1 */
};

/* What a run's callbacks have told. */
struct seen {
	struct run_request request;
	uint64_t req;
	unsigned granted, progressed, done;
	size_t progress_len;
	struct run_result result;
	char out[RUN_PIPES][256];
	char files[256];	      /* "kind path size, …" */
	struct session *next_cell_on; /* done() starts a cell there */
	struct seen *next_cell;
	int next_result;
};

/* What a session's opening has told. */
struct opened {
	uint64_t req;
	unsigned calls;
	struct session *s;
	enum run_outcome outcome;
	struct tell_fail fail;
	bool close_at_once;
};

struct job {
	struct collect c;
	int dir, manifest;
};
int count_fds(void);

/* For cmocka. The teardown insists that no descriptor is left. */
int setup(void **state);
int setup_without_collector(void **state);
int teardown(void **state);
void step(void);
void pass_ms(uint64_t ms);

/* The done callback of a struct seen. */
void on_done(void *ctx, struct run_result *r);

/* A request with a file, standard input and a variable. */
struct payload payload_of(const char *code, bool session);

/* try_start() returns what runclient_start() does; the others insist on 0. */
int try_start(struct seen *seen, const char *project, struct session *s, const char *code);
void start_run(struct seen *seen, const char *project);
void start_cell(struct seen *seen, struct session *s, const char *code);
void start_call(struct seen *seen, const char *project, const char *agent);

/* The next message to the supervisor, which has to be of this type; or that there is none. */
struct ask heard(uint32_t type);
void heard_nothing(void);
void tell(const struct tell *t, const int *fds, size_t nfds);

/* Answers an ASK_SANDBOX, for a run or a session; grant() the next one, grant_call() a call's, with its fifth descriptor. */
struct box grant_to(uint64_t req, bool session, const char *id);
struct box grant(void);
struct box grant_call(const char *id);
void box_close(struct box *b);

/* The processes are dead: the pipes have no writer. */
void box_dies(struct box *b);
void say(const struct box *b, int stream, const char *text);

/* What was written to the request socket; takes_request() is the whole of it, and the order to start. */
size_t take_request(const struct box *b, char *text, size_t room);
struct ask takes_request(const struct box *b);

/* The word that it has ended, to be changed; ends() says it. */
struct tell ending(const struct box *b, uint32_t cell, bool over);
void ends(struct box *b, uint32_t cell, bool over);

/* ---- the auditor's and the collector's ---- */
struct query asked_auditor(void);
void auditor_not_asked(void);
void auditor_answers(uint64_t req);
/* Both of the last run whose files are there. */
struct query summed_up(void);
struct job asked_collector(void);
void collector_not_asked(void);
void job_close(struct job *j);
int memfd_of(const void *data, size_t len);
size_t entry(char *text, enum collected_kind kind, const char *path, const char *content);

/* One file `name`, and with `manifest` that text as the manifest. */
void collector_answers(uint64_t req, const char *name, const char *manifest);

/* The rest of an ended run: the collector is asked and answers, then the auditor. */
void finish(const char *name, const char *manifest);

/* ---- sessions ---- */
int try_open(struct opened *o, const char *project);
struct box open_session(struct opened *o, const char *project, const char *id);

/* A whole cell that leaves one file. */
void whole_cell(const struct box *b, struct session *s, uint32_t n, const char *manifest);

/* It has ended well, and its files could not be read. */
void without_files(const struct seen *seen);
bool same_file(int a, int b);

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* What is said about it is said to nobody. */
#define RUN_TESTS(name, tests) (log_init("test", (enum log_level) - 1), cmocka_run_group_tests_name(name, tests, NULL, NULL))

#endif
