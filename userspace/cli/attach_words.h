/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of an attachment in words, the same for people and machines. */
#ifndef WEIR_CLI_ATTACH_WORDS_H
#define WEIR_CLI_ATTACH_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach/inspect.h"
#include "core/netaddr.h"

/* `ret` holds two digits a byte and a NUL. Returns it. */
char *attach_hex(char *ret, const uint8_t *bytes, size_t count);

/* "10.0.0.1:443", "[2001:db8::1]:443"; "*:53" for one without an address. Returns `ret`. */
#define ATTACH_ENDPOINT (NETADDR_TEXT_MAX + 10)
char *attach_endpoint(char ret[ATTACH_ENDPOINT], const struct open_socket *s, bool remote);

/* "tcp", "packet". Returns a literal or `room`. */
const char *attach_protocol(char room[NETPROTO_TEXT_MAX], const struct open_socket *s);

/* "established"; "unknown" for a number that is none of TCP's. */
const char *attach_tcp_state(uint8_t state);

/* Whether the policy says something of it: it has a remote address. Of one made elsewhere that is only what it would say. */
bool attach_judged(const struct open_socket *s);

#endif
