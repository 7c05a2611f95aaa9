/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeper of the record's key, and of where its chain ends. Both are root's, in the state directory (keyfiles.h), which the
 * auditor cannot touch: so that a record that was set back to an earlier state, or whose end was cut off, is found, and an
 * auditor gone bad can't have another past signed.
 *
 * What is signed is the next entry and no other; its hash is computed here, from the remembered one before it and the digest of
 * its body. Several supervisors may share a state directory: each reads the head again, under a lock, before it signs.
 */
#ifndef WEIR_SUPERVISOR_SIGNER_H
#define WEIR_SUPERVISOR_SIGNER_H

#include <stdbool.h>

#include "core/err.h"

struct supervisor;

/*
 * Loads the key, or makes it the first time, and tells the auditor who writes from here on (NOTE_START) and where the chain
 * ends (NOTE_HEAD). Without a directory for it (s->config.key_dir_fd < 0) there is no key: nothing is signed, and the record
 * says so.
 */
int signer_open(struct supervisor *s, struct err *e);
/*
 * A struct sign_ask has come, or the auditor's end closed: reads all there is, signs what can be, writes the head once and
 * answers each. Returns 0 or a negative errno: it is no peer (-EPROTO), it is gone (-EPIPE), or the key's files failed.
 */
int signer_hear(struct supervisor *s);
/* Now and then: the head goes to the journal when it has moved, at most once a minute. `last`: in any case. */
void signer_tell(struct supervisor *s, bool last);
void signer_close(struct supervisor *s);

#endif
