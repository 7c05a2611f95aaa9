/* SPDX-License-Identifier: Apache-2.0 */
/* What verify*.c share: verify.c (the whole), verify_chain.c (entries), verify_runs.c (what they vouch for), verify_report.c.
 */
#ifndef WEIR_AUDITOR_VERIFY_INTERNAL_H
#define WEIR_AUDITOR_VERIFY_INTERNAL_H

#include "auditor/verify.h"
#include "auditor/verify_signatures.h"

/* A hash that must be there, and where it was found. */
struct verify_expected {
	uint8_t hash[CHAIN_HASH];
	uint64_t n;	    /* 0: not found */
	uint64_t pruned_by; /* the entry that says that its body was removed; 0: it was not */
	char run[IPC_ID_MAX];
};

struct verify_report {
	json_t *findings, *notes; /* NULL: no memory */
	uint64_t findings_omitted, notes_omitted, found[VERIFY_KINDS];
	uint64_t entries, signatures, adopted, runs, records;
	uint64_t running, ended, nobodys, late; /* what is under no hash */
	bool has_key, has_head;
	uint8_t key_id[CHAIN_HASH];
	struct chain_head head;
	uint64_t first, last; /* numbers of entries; 0: there is none */
	uint8_t last_hash[CHAIN_HASH];
	bool last_signed;
	struct verify_expected expected[VERIFY_EXPECT_MAX];
	size_t expected_count;
};

/* Entries from..to, as entry `by` says. Ordered, and no two with one in common, after verify_claims(). */
struct verify_ranges {
	struct verify_range {
		uint64_t from, to, by;
	} * of; /* owned */
	size_t count, room;
};

struct verify {
	sqlite3 *db;
	const struct verify_opts *opts;
	struct verify_report *report;
	struct signing_checker *checker; /* NULL: no key */
	struct signatures *signatures;	 /* likewise */
	struct verify_ranges bodies;	 /* of these the texts were removed */
	struct verify_ranges rows;	 /* .. and of these all */
	struct verify_ranges adopted;	 /* these were found unsigned at a start */
	struct verify_digests {
		struct verify_digest {
			uint64_t first, last, count, by;
			char sha256[2 * CHAIN_HASH + 1];
		} * of; /* owned */
		size_t count, room;
	} digests;	      /* over records of nobody, as entries have them */
	uint64_t last_signed; /* the last entry that has a signature, whatever it is worth */
	uint64_t newest_ns;   /* as the entries say themselves, as far as the walk has come */
	uint64_t pruned[3];   /* runs, records, bytes: as the last prune that was carried out says */
	bool blind;	      /* an entry's text is gone or changed: what it had a digest of is not known */
	bool nameless;	      /* it names no key */
	bool pending;	      /* one is not carried out yet */
	json_t *misplaced;    /* ids of runs whose row names another entry than their own: it was said why; owned */
	char document[2 * CHAIN_HASH + 1]; /* the last one that was looked for and found */
	uint64_t max_n, keyless, searches; /* keyless: entries without a signature where there is no key */
	uint64_t prefix;		   /* entries up to it are gone, as entry prefix_by says; 0: none */
	uint64_t prefix_by;
	uint8_t prefix_hash[CHAIN_HASH];
	uint64_t others_pruned;						     /* records of nobody up to this seq were removed */
	uint64_t good, bad;						     /* signatures */
	uint64_t bad_n[VERIFY_LISTED_MAX];				     /* the first of those */
	sqlite3_stmt *records, *run_row, *stored, *destinations, *documents; /* kept for the walk; owned */
};

/* One entry as the walk sees it. Borrowed texts, valid until the next. */
struct verify_entry {
	uint64_t n, place;	   /* place: where it was, which is elsewhere when it was moved */
	const char *kind, *run_id; /* run_id NULL: of none */
	const char *body;	   /* NULL: it was removed */
	size_t body_len;
	json_t *json; /* the body parsed; NULL when it is none */
};

/* A statement, or NULL with a finding: the database has not what it should. */
sqlite3_stmt *verify_prepare(struct verify *v, const char *sql, const char *what);
/* The next row: true. False at the end, and after a failure, which becomes a finding. */
bool verify_step(struct verify *v, sqlite3_stmt *st, const char *what);
/* The first number that a statement gives, or `otherwise`. */
uint64_t verify_number(struct verify *v, const char *sql, uint64_t otherwise, const char *what);
const char *verify_text(sqlite3_stmt *st, int column); /* NULL for null and for what is no text */
bool verify_hash(sqlite3_stmt *st, int column, size_t size, uint8_t *ret);

/* The one that has n; NULL: none. */
const struct verify_range *verify_range_of(const struct verify_ranges *r, uint64_t n);

/* verify_claims.c: what signed entries say is gone, or was found unsigned. Negative errno: no memory. */
int verify_claims(struct verify *v, struct err *e);
uint64_t verify_member(const json_t *object, const char *name); /* a number above 0; else 0 */
/* Where the first range after n begins, or `otherwise`. */
uint64_t verify_next_range(const struct verify_ranges *r, uint64_t n, uint64_t otherwise);

/* verify_chain.c: every entry in its order. Negative errno: it can't be checked. */
int verify_chain(struct verify *v, struct err *e);

/* verify_runs.c: a run's row, and what its entry vouches for beside its records. */
void verify_run(struct verify *v, const struct verify_entry *entry);

/* verify_records.c: a run's records, and what follows from them. */
struct verify_records {
	uint64_t should; /* so many, the first of them, are under the digest; 0: none is */
	const char *sha256;
	bool chained;	    /* it has an entry */
	uint64_t there;	    /* .. as found */
	uint64_t last_seq;  /* of the last one under the digest */
	uint64_t late_once; /* of those behind it: of a type that a run has once, and before its end */
	uint32_t verdicts;
};
/* Columns of each against its text, and the destinations. False: the records are not those that were hashed, and it is said. */
bool verify_records(struct verify *v, uint64_t n, const char *run_id, sqlite3_int64 id, struct verify_records *r);
/* Whether type and time of a record are what its text says. `json` may be NULL: then it is no record. */
bool verify_record_columns(const json_t *json, const char *type, uint64_t time_ns);
json_t *verify_record_json(sqlite3_stmt *st, int column); /* NULL: it is no JSON, or too long for one */

/* verify_others.c: records of no run. */
void verify_digests_add(struct verify *v, const struct verify_entry *entry);
void verify_others(struct verify *v);

/* verify_rest.c: what no entry vouches for, and the other tables. */
void verify_rest(struct verify *v);

#endif
