/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/attach_words.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "abi.h"

char *attach_hex(char *ret, const uint8_t *bytes, size_t count)
{
	ret[0] = 0;
	for (size_t i = 0; i < count; i++)
		snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
	return ret;
}

static bool is_any(const uint8_t addr[16], uint8_t family)
{
	static const uint8_t zeros[16];

	return family == 4 ? !memcmp(addr + 12, zeros, 4) : !memcmp(addr, zeros, 16);
}

char *attach_endpoint(char ret[ATTACH_ENDPOINT], const struct open_socket *s, bool remote)
{
	const uint8_t *addr = remote ? s->remote : s->local;
	unsigned port = remote ? s->remote_port : s->local_port;
	char text[NETADDR_TEXT_MAX];

	netaddr_text(text, addr, s->family);
	if (is_any(addr, s->family))
		snprintf(ret, ATTACH_ENDPOINT, "*:%u", port);
	else
		snprintf(ret, ATTACH_ENDPOINT, s->family == 6 ? "[%s]:%u" : "%s:%u", text, port);
	return ret;
}

const char *attach_protocol(char room[NETPROTO_TEXT_MAX], const struct open_socket *s)
{
	return s->family ? netproto_text(room, s->protocol) : "packet";
}

/* The kernel's numbers are part of its interface: /proc/net/tcp prints them. */
const char *attach_tcp_state(uint8_t state)
{
	static const char *const names[] = {"unknown",	 "established", "syn_sent",    "syn_recv",   "fin_wait1",
					    "fin_wait2", "time_wait",	"close",       "close_wait", "last_ack",
					    "listen",	 "closing",	"new_syn_recv"};

	return state < sizeof names / sizeof names[0] ? names[state] : names[0];
}

bool attach_judged(const struct open_socket *s)
{
	return s->connected && s->family && s->verdict < WEIR_VERDICT_COUNT;
}
