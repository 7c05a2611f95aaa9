/* SPDX-License-Identifier: Apache-2.0 */
/* What `weir run` says about a run beside its output: one line on standard error for each thing worth knowing. */
#ifndef WEIR_CLI_RUN_REPORT_H
#define WEIR_CLI_RUN_REPORT_H

#include "api/runclient.h"

/* How much was tried on the network, and the first of it; nothing for a run that tried nothing. */
void run_report_attempts(const struct run_result *r);

/* Which files were left in the working directory; nothing when there were none. */
void run_report_files(const struct run_result *r);

#endif
