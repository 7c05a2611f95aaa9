/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who asks for a run on this command line, as its record names him: "uid:0", or "uid:0,sudo:1000" when sudo says who called it.
 * What sudo says is an environment variable, which root may set as it likes: it names people, and proves nothing.
 */
#ifndef WEIR_CLI_ASKED_BY_H
#define WEIR_CLI_ASKED_BY_H

#include "ipc/ipc.h"

/* Before this process becomes anybody else. */
void asked_by(char ret[IPC_CALLER_MAX]);

#endif
