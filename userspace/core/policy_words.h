/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy in plain words: what somebody reads who has to say whether it is the right one, and does not know the language.
 * Pure.
 */
#ifndef WEIR_CORE_POLICY_WORDS_H
#define WEIR_CORE_POLICY_WORDS_H

#include <stddef.h>

#include "core/policy.h"

/*
 * One sentence a line, each line ended: what happens to what is denied, what no rule names, each rule in the document's order,
 * then everything else that the document decides, its defaults included. At most `places` prefixes and sets of one rule are
 * named (0: all). The description is not in it. malloc'd; NULL without memory.
 */
char *policy_words(const struct policy *p, size_t places);

#endif
