/* SPDX-License-Identifier: Apache-2.0 */
/* The name servers of a resolv.conf, as the C library's resolver would take them. Pure. */
#ifndef WEIR_CORE_RESOLVCONF_H
#define WEIR_CORE_RESOLVCONF_H

#include <stddef.h>

#include "core/cidr.h"

#define RESOLVCONF_SERVERS 3 /* the resolver asks no more than the first three */

/*
 * Reads `len` bytes of a resolv.conf and returns how many name servers it names. Each is an address with its full length; a
 * mapped one is the IPv4 address that packets will carry, a zone ("%eth0") is left out. Lines that the resolver would skip are
 * skipped, as are addresses in a form other than four decimal numbers or RFC 4291's: there is no error.
 */
size_t resolvconf_parse(const char *text, size_t len, struct cidr ret[RESOLVCONF_SERVERS]);

#endif
