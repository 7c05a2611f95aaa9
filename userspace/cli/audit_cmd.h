/* SPDX-License-Identifier: Apache-2.0 */
/* `weir audit ls | show ID`: reads the record files of a state directory; needs no running service. */
#ifndef WEIR_CLI_AUDIT_CMD_H
#define WEIR_CLI_AUDIT_CMD_H

/*
 * argv[0] is "audit". Prints to stdout, complaints to stderr. Returns the exit status: 0, 1 for an unknown run or a
 * record that can't be read, 64 (EX_USAGE) for arguments that make no sense.
 */
int audit_cmd(int argc, char **argv);

#endif
