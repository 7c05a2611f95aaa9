/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the record is what was written: each entry of the chain, each signature, and everything that an entry has a digest
 * of. Reads the database by itself and shares nothing with who wrote it but core/chain.h: what it believes is the public key,
 * and what the keeper of the key remembers. Never changes anything; one snapshot of the database, however much is written
 * meanwhile.
 */
#ifndef WEIR_AUDITOR_VERIFY_H
#define WEIR_AUDITOR_VERIFY_H

#include <jansson.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/signing.h"
#include "ipc/ipc.h"

#define VERIFY_EXPECT_MAX 64
#define VERIFY_LISTED_MAX 500 /* findings, and things worth knowing, that are told one by one; of the rest, how many */

/* Something that should not be so. Names are in verify_kind_names[]. */
enum verify_kind {
	VERIFY_CHANGED,	      /* an entry, a record or a column is not what was hashed */
	VERIFY_REMOVED,	      /* an entry or records are gone, and no prune says so */
	VERIFY_REORDERED,     /* an entry stands where another was */
	VERIFY_INSERTED,      /* something is there that was not */
	VERIFY_TRUNCATED,     /* the end is cut off */
	VERIFY_ROLLED_BACK,   /* the whole of it is an earlier state */
	VERIFY_UNSIGNED,      /* an entry should have its signature by now */
	VERIFY_BAD_SIGNATURE, /* .. has one that is not the key's over this */
	VERIFY_BROKEN,	      /* a break entry: an auditor found entries gone or changed when it started */
	VERIFY_DAMAGED,	      /* SQLite can't read it, or it is at odds with itself */
	VERIFY_OTHER_KEY,     /* it is another key's */
	VERIFY_EXPECTED,      /* the hash that should be there is not */
	VERIFY_KINDS,
};
extern const char *const verify_kind_names[VERIFY_KINDS];

/* What is no finding, and worth knowing. Names are in verify_note_names[]. */
enum verify_note {
	NOTED_LATE,    /* records of a run that came after its sum was made: no entry vouches for them */
	NOTED_WAITING, /* an entry that is too young to be signed */
	NOTED_ADOPTED, /* entries that a start found unsigned and took over: nobody vouches for who wrote them */
	NOTED_PRUNED,  /* what was removed, as prune entries say */
	NOTED_NO_HEAD, /* what the keeper of the key remembers was not there to compare with */
	NOTED_SKIPPED, /* older than what was asked for: signatures and records were not looked at */
	NOTED_COPY,    /* how it was opened, where that matters */
	NOTED_NOTES,
};
extern const char *const verify_note_names[NOTED_NOTES];

struct verify_opts {
	const uint8_t *public_key;	     /* SIGNING_PUBLIC bytes; NULL: there is none, and then nothing may be signed */
	const struct chain_head *head;	     /* as it was read before the database was opened; NULL: it was not there */
	const uint8_t (*expect)[CHAIN_HASH]; /* hashes that must be entries' */
	size_t expect_count;		     /* VERIFY_EXPECT_MAX at most */
	uint64_t
	    since_ns; /* CLOCK_REALTIME: records of runs that ended before, and their signatures, are left out; 0: none are */
	uint64_t now_ns; /* CLOCK_REALTIME */
	bool alive;	 /* an auditor writes it: then the newest entries may wait for their signatures */
};

struct verify_report;
struct verify_report *verify_report_new(void);
struct verify_report *verify_report_free(struct verify_report *r); /* NULL-safe, returns NULL */

/* One finding from outside, for example that the database can't be opened. `n` 0 and run_id NULL: of none in particular. */
void verify_find(struct verify_report *r, enum verify_kind kind, uint64_t n, const char *run_id, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

void verify_note(struct verify_report *r, enum verify_note kind, uint64_t n, const char *run_id, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/*
 * Checks everything. Findings are no errors; an error says that it could not be checked (no memory, signatures without a key to
 * check them with).
 */
int verify_record(sqlite3 *db, const struct verify_opts *opts, struct verify_report *r, struct err *e);

/*
 * {"intact", "findings": [{"kind", "n", "run_id", "text"}], "findings_omitted", "notes": [likewise], "notes_omitted",
 * "entries", "signed", "adopted", "runs", "records", "first", "last": {"n", "hash", "signed"}, "head", "key_id", "expected":
 * [{"hash", "n", "run_id", "pruned_by"}], "unvouched": {"running", "ended", "records", "late"} (what is under no hash: runs
 * that go on, runs that have ended, records of no run, records behind a run's sum), "cannot": [..]}. NULL without memory. The
 * caller's.
 */
json_t *verify_report_json(const struct verify_report *r);
bool verify_intact(const struct verify_report *r);

#endif
