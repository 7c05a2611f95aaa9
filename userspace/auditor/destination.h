/* SPDX-License-Identifier: Apache-2.0 */
/* What a record says that its run tried to reach, as it is searched for: the same for who writes the table and who checks it.
 */
#ifndef WEIR_AUDITOR_DESTINATION_H
#define WEIR_AUDITOR_DESTINATION_H

#include <jansson.h>
#include <stdbool.h>

#define DESTINATION_NAME_MAX 1100 /* 255 bytes of a name, escaped */

struct destination {
	int verdict;							 /* enum weir_verdict */
	const char *address;						 /* "" for none; the record's */
	char name[DESTINATION_NAME_MAX], mirrored[DESTINATION_NAME_MAX]; /* in lower case; the same backwards */
};

/* False: it says nothing of the kind. What came from outside does not: its address is a sender's. */
bool destination_of(const json_t *record, struct destination *ret);

#endif
