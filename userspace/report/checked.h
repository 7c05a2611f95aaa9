/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was found when the record was checked while a page was made ("checked": verify.h's report as JSON, or {"problem": why it
 * was not; nothing: it was not}). Inside of report/.
 */
#ifndef WEIR_REPORT_CHECKED_H
#define WEIR_REPORT_CHECKED_H

#include <jansson.h>
#include <stdbool.h>

#include "report/html.h"

enum checked { CHECKED_NOT, CHECKED_GOOD, CHECKED_BAD };
enum checked checked_result(const json_t *checked);
/* Why it was not; of CHECKED_NOT. */
const char *checked_problem(const json_t *checked);

/*
 * Above everything else on a page, when something was found: each finding that is about `run`, and how many there are beside.
 * Without a run all of them are this page's.
 */
void part_findings(struct html *h, const json_t *checked, const json_t *run);

#endif
