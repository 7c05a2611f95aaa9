/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel programs report, as JSON. Pure: checks, names, conversion.
 *
 * Everything in a struct weir_event may be under the control of an untrusted program; what comes out is ASCII, bounded,
 * and unambiguous. Functions that build JSON add members to `into` (borrowed) and return 0, or -ENOMEM with `into` in
 * an unspecified state.
 */
#ifndef WEIR_CORE_EVENT_H
#define WEIR_CORE_EVENT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#define EVENT_TIME_MAX 40
#define EVENT_COMM_TEXT_MAX (4 * WEIR_COMM_LEN + 1)

/* Moments on two clocks, taken together: turns boot times into wall times. */
struct event_clock {
	uint64_t wall_ns; /* CLOCK_REALTIME */
	uint64_t boot_ns; /* CLOCK_BOOTTIME */
};

/* NULL when every enum, length and family is in range, else a literal that names the field. */
const char *event_key_problem(const struct weir_flow_key *key);
const char *event_problem(const struct weir_event *event);

/*
 * hook, verdict, reason, rule (its number, or null), policy_generation, protocol, address, port (null where the protocol has
 * none), icmp_type and icmp_code (ICMP only), cgroup, name_hash. When it was not the address as written that decided:
 * decode_kind, and decode, the path from the one to the other (["64:ff9b::a9fe:a9fe", "169.254.169.254"]; left out for a prefix
 * that only the policy knows, see event_carried_json).
 */
int event_key_json(json_t *into, const struct weir_flow_key *key);

/* Sets decode from an IPv4 address that somebody who has the policy decoded. */
int event_carried_json(json_t *into, const struct weir_flow_key *key, const uint8_t v4[4]);

/*
 * The key's members, then event_seq, errno, requested_address, requested_port (what the program named in connect() or
 * sendmsg(), before anything rewrote it as far as it was seen; null when it is not known), pid, host_pid, uid, command,
 * attribution, len, socket_cookie and, when the packet held a question, dns_name, dns_type and dns_malformed (only when
 * true). Ids of an unknown task are null.
 */
int event_json(json_t *into, const struct weir_event *event);

/* What the refused call returned, by name ("EPERM"); NULL when nothing was returned to the caller. */
const char *event_errno_name(const struct weir_event *event);

/* The key's members, then count, bytes, first, last (RFC 3339). */
int event_flow_json(json_t *into, const struct weir_flow_key *key, const struct weir_flow *flow, struct event_clock now);

/* The wall time of a moment in boot time; the clock's own when the moment is 0 or after it. */
uint64_t event_wall_ns(struct event_clock now, uint64_t boot_ns);

/* "2025-01-31T12:00:00.000000001Z" */
void event_time_text(char ret[EVENT_TIME_MAX], uint64_t wall_ns);

/*
 * Copies at most `max` bytes up to a NUL, with everything but printable ASCII and the backslash itself as \xNN. Output is
 * cut at a whole character when ret (`size` > 0 bytes) is too small; 4 * max + 1 never is.
 */
void event_safe_text(char *ret, size_t size, const char *text, size_t max);

/* json_int_t is signed: larger values become its maximum. */
json_t *event_u64(uint64_t value);

extern const char *const event_hook_names[WEIR_HOOK_COUNT];
extern const char *const event_verdict_names[WEIR_VERDICT_COUNT];
extern const char *const event_reason_names[WEIR_REASON_COUNT];
extern const char *const event_via_names[WEIR_VIA_COUNT];
extern const char *const event_attribution_names[3];

#endif
