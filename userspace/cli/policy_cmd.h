/* SPDX-License-Identifier: Apache-2.0 */
/* `weir policy check | explain | diff | export | sets`: what a policy says, without putting it in force. Needs no root. */
#ifndef WEIR_CLI_POLICY_CMD_H
#define WEIR_CLI_POLICY_CMD_H

/*
 * argv[0] is "weir policy". Results to stdout, complaints to stderr. Returns the exit status: check 0 or 1 (errors); explain 0
 * (allowed), 3 (denied) or 2 (error); diff 0 (the same), 1 (different) or 2 (error); export 0
 * or 1; 64 for arguments that make no sense.
 */
int policy_cmd(int argc, char **argv);

#endif
