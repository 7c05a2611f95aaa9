/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DNS names as untrusted programs put them on the wire, made safe to print.
 *
 * The text is ASCII without control characters, quotes or spaces: every byte of a label that is not a letter, digit,
 * `_` or `-` becomes \DDD, three decimal digits, as zone files write it (RFC 1035 section 5.1). So a dot inside a label
 * is \046 and only label boundaries are dots. No dot at the end; the root alone is ".". Case is kept: it can carry data.
 *
 * Where a name goes on with something that is no label, the text ends with that: @N is a compression pointer to byte N of the
 * message (@? when its second byte is missing), !N a reserved label type, N its byte. Neither character stands for itself
 * elsewhere.
 */
#ifndef WEIR_CORE_DNSNAME_H
#define WEIR_CORE_DNSNAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DNSNAME_WIRE_MAX 255
#define DNSNAME_TEXT_MAX 1024 /* every byte escaped, dots and terminator included */

struct dnsname {
	char text[DNSNAME_TEXT_MAX];
	bool malformed; /* text holds what could be read before the fault, and what stopped it; it may be empty */
};

/*
 * Decodes `len` bytes. Malformed: empty, no root at the end, bytes after the root, a label that runs past the end, a
 * compression pointer or reserved label type (told, never followed), more than 255 bytes. Never fails.
 */
void dnsname_decode(struct dnsname *ret, const uint8_t *wire, size_t len);

#define DNSTYPE_TEXT_MAX 16
/* Mnemonic of a query type, or "TYPE<n>" (RFC 3597) written to buf. Returns a literal or buf. */
const char *dnstype_text(char buf[DNSTYPE_TEXT_MAX], uint16_t type);

#endif
