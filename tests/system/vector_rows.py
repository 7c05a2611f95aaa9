# SPDX-License-Identifier: Apache-2.0
"""The table of test_vectors.py: every known way around a network policy, and what must become of each.

The numbers are those of the list of ways out that Weir was built against (1 connect, 2 TCP fast open, … 40 hybrid hosts). A row
has an address that it must not reach, and mostly a twin that it may. It is tried under several policies, each of which takes a
layer away; the last one, or no policy at all, lets it through, so that a row which tries nothing fails.
"""
import collections
import ipaddress

PORT = 9999

FORBIDDEN = ["10.66.0.0/16", "10.244.1.1/32", "169.254.169.254/32", "2a0a:66::/32", "fd00:ec2::254/128"]
RULES = [
    {"name": "forbidden", "verdict": "deny", "to": FORBIDDEN},
    {"name": "loop", "verdict": "deny", "to": ["127.0.0.0/8", "::1/128"]},
    {"name": "groups", "verdict": "deny", "to": ["224.0.0.0/4", "255.255.255.255/32", "10.244.1.255/32", "ff00::/8"]},
    {"name": "link", "verdict": "deny", "to": "fe80::/10"},
    {"name": "public", "verdict": "allow", "to": ["93.184.0.0/16", "2a0b:77::/32"]},
]
NSP = ["2a0c:64::/96", "2a0c:48::/48", "2a0c:32::/32"]
EVERY_SOCKET = {"families": ["unix", "inet", "inet6", "netlink", "vsock"], "types": ["stream", "dgram", "seqpacket", "raw"],
                "protocols": ["tcp", "udp", "icmp", "udplite", "sctp", "dccp", "mptcp"]}
EVERY_PACKET = {"ipv4_options": "allow", "routing_headers": "allow", "fragments": "allow"}
BASE = {"name": "vectors", "default": "allow", "rules": RULES, "nat64_prefixes": NSP}
POLICIES = {
    "whole": BASE,
    "no socket filter": dict(BASE, name="no-socket-filter", sockets=EVERY_SOCKET),
    "no packet checks": dict(BASE, name="no-packet-checks", sockets=EVERY_SOCKET, packets=EVERY_PACKET),
    "no rules": {"name": "no-rules", "default": "allow", "sockets": EVERY_SOCKET, "packets": EVERY_PACKET},
}

# One entry of the audit, as far as it is exact. kind: None, or how the address was decoded (then inner is what decided).
Told = collections.namedtuple("Told", "verdict reason rule hook protocol address port count kind inner name")
# What is seen of a row under one policy: how its last step ended, the entries of the audit, and whether it arrives.
Seen = collections.namedtuple("Seen", "end told arrives")
Row = collections.namedtuple("Row", "number label way to port other word runs wire elsewhere twin")


def told(verdict, reason, rule, hook, protocol, address, port=PORT, count=1, kind=None, inner=None, name=None):
    return Told(verdict, reason, rule, hook, protocol, address, port, count, kind, inner, name)


def bare(address):
    return address.split("%")[0]


class Numbers:
    """Addresses nobody else in the table has."""

    def __init__(self):
        self.n = 0

    def next(self):
        self.n += 1
        return self.n


numbers = Numbers()


def v4(n, twin=False):
    return "%s.%d.%d" % ("93.184" if twin else "10.66", 8 + n // 250, n % 250 + 1)


def v6(n, twin=False):
    return str(ipaddress.ip_address("2a0b:77::" if twin else "2a0a:66::") + n)


def connect_hook(address):
    return "connect6" if ":" in address else "connect4"


def make(number, label, way, address, last, hook, protocol, *, twin=None, port=PORT, other=None, word="", wire=None, wire_twin=None,
         count=1,
         kind=None, inner=None, rule="forbidden", refused=None, elsewhere=(), reason=None, told_port=PORT, told_address=None, name=None,
         more=()):
    """A row and, with `twin`, the same with an address that is allowed.

    last: how it ends where the rules refuse it. refused: how it ends at the socket filter, under the whole policy; then the rules
    are met when that is taken away. reason: a check of the packet, met before the rules. kind, inner: how the address is read.
    wire: what the packet's destination is, when it is not the address. more: other entries of the audit that belong to it.
    """
    wire = wire or [bare(address)]
    by_rule = told("denied", "rule", rule, hook, protocol, told_address or (wire[0] if kind != "unspecified" else bare(address)),
                   told_port, count, kind, inner, name)
    ended = Seen(last, [*more, by_rule], False)
    through = Seen("ok", None, True)
    runs = {"no rules": through}
    if reason:
        ended = Seen(last, [*more, by_rule._replace(reason=reason, rule=None)], False)
        runs["no packet checks"] = Seen(last, [*more, by_rule], False)
    if refused:
        runs["whole"] = Seen(refused, [], False)
        runs["no socket filter"] = ended
    else:
        runs["whole"] = ended
    rows = [Row(number, label, way, address, port, other, word, runs, wire, list(elsewhere), False)]
    if twin:
        wire_twin = wire_twin or [bare(twin)]
        allowed = by_rule._replace(verdict="allowed", reason="rule", rule="public", address=wire_twin[0], inner=wire_twin[0]
                                   if kind else None)
        seen = Seen("ok", [allowed], True)
        policy = "no packet checks" if reason else "no socket filter" if refused else "whole"
        rows.append(Row(number, label + " (allowed)", way, twin, port, other, word, {policy: seen}, wire_twin, list(elsewhere), True))
    return rows


# ---- 1 to 4, 8: streams and datagrams by every call ----


def stream_rows():
    rows = []
    for way, step, number in (("tcp", "connect", 1), ("tfo_sendto", "sendto", 2), ("tfo_sendmsg", "sendmsg", 2),
                              ("tfo_sendmmsg", "sendmmsg", 2),
                              ("tfo_connect", "connect", 2)):
        for family in (v4, v6):
            n = numbers.next()
            address = family(n)
            rows += make(number, "%s, %s" % (way, "v6" if family is v6 else "v4"), way, address, step + " EPERM", connect_hook(address),
                         "tcp", twin=family(n, True))
    for way, step in (("mptcp", "connect"), ("mptcp_tfo", "sendto")):
        for family in (v4, v6):
            n = numbers.next()
            address = family(n)
            rows += make(8, "%s, %s" % (way, "v6" if family is v6 else "v4"), way, address, step + " EPERM", connect_hook(address), "tcp",
                         twin=family(n, True), refused="socket EPROTONOSUPPORT")
    for family, public in ((v4, "93.184.0.1"), (v6, "2a0b:77::ffff")):
        n = numbers.next()
        first = told("allowed", "rule", "public", connect_hook(public), "tcp", public, PORT, None)
        rows += make(1, "tcp, connected elsewhere before, " + ("v6" if family is v6 else "v4"), "tcp_reconnect", family(n), "connect EPERM",
                     connect_hook(family(n)), "tcp", other=public, elsewhere=[public], more=[first])
    n = numbers.next()
    rows += make(33, "tcp, bound to a device", "tcp_bindtodevice", v4(n), "connect EPERM", "connect4", "tcp", twin=v4(n, True), word="eth0")
    return rows


def datagram_rows():
    rows = []
    for way, step, number in (("udp", "sendto", 4), ("udp_connected", "send", 3), ("udp_write", "write", 3), ("udp_splice", "splice", 3),
                              ("udp_sendmsg", "sendmsg", 4), ("udp_more", "sendto", 4), ("udp_big", "sendto", 32),
                              ("udp_segments", "sendto", 4)):
        for family in (v4, v6):
            n = numbers.next()
            rows += make(number, "%s, %s" % (way, "v6" if family is v6 else "v4"), way, family(n), step + " EPERM", "egress", "udp",
                         twin=family(n, True))
    for family, public in ((v4, "93.184.0.1"), (v6, "2a0b:77::ffff")):
        kind = "v6" if family is v6 else "v4"
        first = told("allowed", "rule", "public", "egress", "udp", public, PORT, None)
        for way, step, count, more, number in (("udp_sendmmsg", "second", 2, [first], 4), ("udp_elsewhere", "sendto", 1, [], 4),
                                               ("udp_reconnect", "send", 1, [first], 3)):
            n = numbers.next()
            rows += make(number, "%s, %s" % (way, kind), way, family(n), step + " EPERM", "egress", "udp", other=public,
                         elsewhere=[public], count=count, more=more)
    # A sockaddr of another family than the socket's.
    for way, step in (("udp_unspec", "sendto"), ("udp_v4_on_v6", "sendto"), ("udp_v4_on_v6_connected", "send")):
        n = numbers.next()
        rows += make(4, way, way, v4(n), step + " EPERM", "egress", "udp", twin=v4(n, True))
    n = numbers.next()
    # Disconnects, so there is no destination: the kernel's own error, with and without Weir.
    gone = Seen("send EDESTADDRREQ", [], False)
    rows.append(Row(4, "udp, connected to AF_UNSPEC", "udp_connect_unspec", v4(n), PORT, None, "", {"whole": gone, "no rules": gone},
                    [v4(n)], [], False))
    n = numbers.next()
    rows += make(33, "udp, bound to a device", "udp_bindtodevice", v4(n), "sendto EPERM", "egress", "udp", twin=v4(n, True), word="eth0")
    for family in (v4, v6):
        n = numbers.next()
        rows += make(33, "udp, marked, " + ("v6" if family is v6 else "v4"), "udp_mark", family(n), "sendto EPERM", "egress", "udp",
                     twin=family(n, True))
    n = numbers.next()
    # Whatever the rules say of where it goes: errors about it would go to that other address, with its bytes.
    refused = Seen("transparent EPERM", [], False)
    for address in (v4(n), v4(n, True)):
        rows.append(Row(33, "udp, from another's address, to " + address, "udp_foreign_source", address, PORT, "9.9.9.9", "",
                        {"whole": refused, "no rules": refused}, [address], [], False))
    return rows


# ---- 5, 9, 10, 32: protocols that the socket filter refuses, and the packet hook behind it ----


def protocol_rows():
    rows = []
    for way, step, protocol, number, port in (("udplite", "sendto", "udplite", 5, PORT), ("udplite_connected", "send", "udplite", 5, PORT),
                                              ("ping", "sendto", "icmp", 9, None), ("ping_connected", "send", "icmp", 9, None)):
        for family in (v4, v6):
            n = numbers.next()
            kind = protocol if family is v4 or protocol != "icmp" else "icmpv6"
            # The kernel does not tell the sender of an IPv6 echo that it was dropped.
            last = "ok" if kind == "icmpv6" else step + " EPERM"
            rows += make(number, "%s, %s" % (way, "v6" if family is v6 else "v4"), way, family(n), last, "egress", kind,
                         twin=family(n, True),
                         refused="socket EPROTONOSUPPORT", told_port=port)
    for number, way, protocol in ((6, "sctp", "sctp"), (7, "dccp", "dccp")):
        n = numbers.next()
        rows += make(number, way, way, v4(n), "connect ETIMEDOUT", "egress", protocol, twin=v4(n, True), count=None,
                     refused="socket %s" % ("EPROTONOSUPPORT" if way == "sctp" else "EPERM"))
    for family in (v4, v6):
        kind = "v6" if family is v6 else "v4"
        for way, step, protocol, port in (("raw_icmp", "sendto", "icmp" if family is v4 else "icmpv6", None),
                                          ("raw_udp", "sendto", "udp", PORT),
                                          ("raw_connected", "send", "udp", PORT)):
            n = numbers.next()
            rows += make(10, "%s, %s" % (way, kind), way, family(n), step + " EPERM", "egress", protocol, twin=family(n, True),
                         refused="socket EPERM", told_port=port)
        # A protocol that a policy has no name for can't be had by any.
        n = numbers.next()
        unnamed = Seen("socket EPROTONOSUPPORT", [], False)
        rows.append(Row(10, "raw_other, " + kind, "raw_other", family(n), PORT, None, "", {
            "whole": Seen("socket EPERM", [], False), "no socket filter": unnamed, "no rules": unnamed}, [family(n)], [], False))
    for way, family, reason, number in (
        ("raw_hdrincl", v4, None, 10), ("raw6", v6, None, 10), ("raw_options", v4, "ipv4_options", 24),
        ("raw_first_fragment", v4, None, 32),
        ("raw_later_fragment", v4, "fragment", 32), ("raw6_first_fragment", v6, None, 32), ("raw6_later_fragment", v6, "fragment", 32),
        ("raw6_hopopts", v6, None, 25), ("raw6_chain", v6, None, 25),
    ):
        n = numbers.next()
        rows += make(number, way, way, family(n), "sendto EPERM", "egress", "udp", twin=family(n, True), refused="socket EPERM",
                     reason=reason,
                     told_port=0 if reason == "fragment" else PORT)
    for way, family, public in (("raw_lie", v4, "93.184.0.1"), ("raw6_lie", v6, "2a0b:77::ffff")):
        n = numbers.next()
        rows += make(10, way, way, family(n), "sendto EPERM", "egress", "udp", other=public, refused="socket EPERM")
    # What can't be read to its ports is denied under any policy.
    n = numbers.next()
    broken = Seen("sendto EPERM", [told("denied", "malformed", None, "egress", "udp", None, 0)], False)
    rows.append(Row(32, "raw_tiny_fragment", "raw_tiny_fragment", v4(n), PORT, None, "", {
        "whole": Seen("socket EPERM", [], False), "no socket filter": broken, "no rules": broken}, [v4(n)], [], False))
    n = numbers.next()
    address = "::ffff:" + v4(n)
    rows += make(22, "raw6, mapped on the wire", "raw6_lie", address, "sendto EPERM", "egress", "udp", other="2a0b:77::ffff",
                 refused="socket EPERM",
                 kind="mapped", inner=v4(n))
    n = numbers.next()
    rows += make(25, "raw6_rthdr0", "raw6_rthdr0", v6(n), "sendto EPERM", "egress", "udp", other=v6(n, True), twin=v6(n, True),
                 refused="socket EPERM",
                 reason="routing_header")
    return rows


# ---- 22, 23: one address in another ----


def hex4(address):
    return "%02x%02x:%02x%02x" % tuple(ipaddress.ip_address(address).packed)


def flipped(address):
    return hex4(str(ipaddress.ip_address(bytes(b ^ 255 for b in ipaddress.ip_address(address).packed))))


def embedded(prefix, address):
    """RFC 6052 section 2.2."""
    network = ipaddress.ip_network(prefix)
    out = bytearray(network.network_address.packed)
    at = network.prefixlen // 8
    for byte in ipaddress.ip_address(address).packed:
        if at == 8:
            at += 1
        out[at] = byte
        at += 1
    return str(ipaddress.ip_address(bytes(out)))


# Where the other Teredo address or the rest must be harmless, it is.
SPELLINGS = (
    ("nat64", lambda a: "64:ff9b::" + hex4(a)),
    ("nat64", lambda a: "64:ff9b:1:aa::" + hex4(a)),
    ("6to4", lambda a: "2002:%s::1" % hex4(a)),
    ("teredo_server", lambda a: "2001:0:%s:0:0:%s" % (hex4(a), flipped("93.184.7.7"))),
    ("teredo_client", lambda a: "2001:0:%s:0:0:%s" % (hex4("93.184.7.7"), flipped(a))),
    ("compatible", lambda a: "::" + a),
    ("translated", lambda a: "::ffff:0:" + hex4(a)),
    ("isatap", lambda a: "2a0e::5efe:" + hex4(a)),
    ("isatap", lambda a: "2a0e::200:5efe:" + hex4(a)),
    ("nat64_configured", lambda a: embedded(NSP[0], a)),
    ("nat64_configured", lambda a: embedded(NSP[1], a)),
    ("nat64_configured", lambda a: embedded(NSP[2], a)),
)


def carried_rows():
    rows = []
    for protocol, way, step in (("tcp", "tcp", "connect"), ("udp", "udp", "sendto")):
        n = numbers.next()
        rows += make(22, "mapped, " + protocol, way, "::ffff:" + v4(n), step + " EPERM", "connect6" if way == "tcp" else "egress", protocol,
                     twin="::ffff:" + v4(n, True), wire=[v4(n)], wire_twin=[v4(n, True)], kind="mapped" if way == "tcp" else None,
                     inner=v4(n) if way == "tcp" else None)
        n = numbers.next()
        if way == "udp":
            rows += make(22, "mapped, udp connected", "udp_connected", "::ffff:" + v4(n), "send EPERM", "egress", "udp",
                         twin="::ffff:" + v4(n, True),
                         wire=[v4(n)], wire_twin=[v4(n, True)])
        for i, (kind, spell) in enumerate(SPELLINGS):
            n = numbers.next()
            rows += make(23, "%s %d, %s" % (kind, i, protocol), way, str(ipaddress.ip_address(spell(v4(n)))), step + " EPERM",
                         "connect6" if way == "tcp" else "egress", protocol, kind=kind, inner=v4(n))
            # What carries an allowed address is allowed, by default: the address around it has no rule.
            address = str(ipaddress.ip_address(spell(v4(n, True))))
            seen = told("allowed", "default", None, "connect6" if way == "tcp" else "egress", protocol, address)
            rows.append(Row(23, "%s %d, %s (allowed)" % (kind, i, protocol), way, address, PORT, None, "",
                            {"whole": Seen("ok", [seen], True)}, [address], [], True))
    return rows


# ---- 24, 25: what a packet carries ----


def option_rows():
    rows = []
    for way, step in (("udp_lsrr", "sendto"), ("udp_lsrr_cmsg", "sendmsg")):
        n = numbers.next()
        # The call names a place that is allowed; the packet goes to the hop.
        rows += make(24, way, way, v4(n, True), step + " EPERM", "egress", "udp", other=v4(n), wire=[v4(n)], reason="ipv4_options")
    n = numbers.next()
    rows += make(24, "udp_ssrr", "udp_ssrr", v4(n, True), "sendto EPERM", "egress", "udp", other="10.244.1.1", wire=["10.244.1.1"],
                 reason="ipv4_options")
    n = numbers.next()
    rows += make(24, "udp_record_route", "udp_record_route", v4(n), "sendto EPERM", "egress", "udp", other=v4(n, True), twin=v4(n, True),
                 reason="ipv4_options")
    n = numbers.next()
    asked = told("allowed", "rule", "public", "connect4", "tcp", v4(n, True))
    rows += make(24, "tcp_lsrr", "tcp_lsrr", v4(n, True), "connect ETIMEDOUT", "egress", "tcp", other=v4(n), wire=[v4(n)],
                 reason="ipv4_options", more=[asked])
    n = numbers.next()
    rows += make(25, "udp_rthdr", "udp_rthdr", v6(n, True), "sendto EPERM", "egress", "udp", other=v6(n), wire=[v6(n)],
                 reason="routing_header")
    n = numbers.next()
    # The other way about: the first hop is harmless, and sends it on to where it must not go.
    last = told("denied", "routing_header", None, "egress", "udp", v6(n, True))
    through = told("allowed", "rule", "public", "egress", "udp", v6(n, True))
    rows.append(Row(25, "udp_rthdr, forbidden at the end", "udp_rthdr", v6(n), PORT, v6(n, True), "", {
        "whole": Seen("sendto EPERM", [last], False), "no packet checks": Seen("ok", [through], True)}, [v6(n, True)], [], False))
    n = numbers.next()
    asked = told("allowed", "rule", "public", "connect6", "tcp", v6(n, True))
    rows += make(25, "tcp_rthdr", "tcp_rthdr", v6(n, True), "connect ETIMEDOUT", "egress", "tcp", other=v6(n), wire=[v6(n)],
                 reason="routing_header", more=[asked])
    for way, step in (("udp_hopopts", "sendto"), ("udp_dstopts", "sendto"), ("udp_dstopts_cmsg", "sendmsg")):
        n = numbers.next()
        rows += make(25, way, way, v6(n), step + " EPERM", "egress", "udp", twin=v6(n, True))
    return rows


# ---- 26, 27, 31: special destinations ----


def place_rows():
    rows = []
    for label, way, address, rule in (
        ("limited broadcast", "udp_broadcast", "255.255.255.255", "groups"),
        ("subnet broadcast", "udp_broadcast", "10.244.1.255", "groups"),
        ("multicast", "udp", "224.0.0.251", "groups"),
        ("multicast, v6", "udp", "ff02::fb%eth0", "groups"),
    ):
        # IPv4: the packet hook is too late for the kernel's own copy to this host, so the address hook refuses.
        rows += make(26, label, way, address, "sendto EPERM", "egress" if ":" in address else "sendmsg4", "udp", rule=rule)
    for address, protocol in (("239.1.2.3", "igmp"), ("ff0e::beef", "icmpv6")):
        # Joining is refused before anything is sent: the kernel would report it, with the group's address.
        rows += make(26, "multicast, joined, " + protocol, "udp_join", address, "join EPERM", "setsockopt", protocol, rule="groups", told_port=None)
    for label, way, address, last, hook in (
        ("multicast, connected", "udp_connected", "239.1.2.4", "connect EPERM", "connect4"),
        ("multicast, v4 on v6", "udp_v4_on_v6", "239.1.2.5", "sendto EPERM", "sendmsg4"),
        ("multicast, v4 on v6, connected", "udp_v4_on_v6_connected", "239.1.2.6", "connect EPERM", "connect4"),
        ("multicast, AF_UNSPEC", "udp_unspec", "239.1.2.7", "sendto EPERM", "sendmsg4"),
        ("multicast, more to come", "udp_more", "239.1.2.8", "sendto more EPERM", "sendmsg4"),
    ):
        rows += make(26, label, way, address, last, hook, "udp", rule="groups")
    for label, way, address, last, hook in (
        ("multicast, mapped", "udp", "239.1.2.9", "sendto EPERM", "sendmsg4"),
        ("multicast, mapped, connected", "udp_connected", "239.1.2.10", "connect EPERM", "connect6"),
    ):
        kind = "mapped" if hook == "connect6" else None
        rows += make(26, label, way, "::ffff:" + address, last, hook, "udp", rule="groups", wire=[address], kind=kind,
                     inner=address if kind else None)
    rows += make(26, "multicast, UDP-Lite", "udplite", "239.1.2.11", "sendto EPERM", "sendmsg4", "udplite", rule="groups",
                 refused="socket EPROTONOSUPPORT")
    rows += make(1, "link-local, tcp", "tcp", "fe80::a9fe:a9fe%eth0", "connect EPERM", "connect6", "tcp", rule="link")
    rows += make(4, "link-local, udp", "udp", "fe80::a9fe:a9fe%eth0", "sendto EPERM", "egress", "udp", rule="link")
    for address, inner in (("0.0.0.0", "127.0.0.1"), ("::", "::1")):
        rows += make(27, "unspecified %s, tcp" % address, "tcp", address, "connect EPERM", connect_hook(address), "tcp", rule="loop",
                     kind="unspecified", inner=inner,
                     wire=[inner], port=9001, told_port=9001)
        rows += make(27, "unspecified %s, udp" % address, "udp", address, "sendto EPERM", "egress", "udp", rule="loop", wire=[inner],
                     port=9002, told_port=9002)
        rows += make(27, "loopback %s, tcp" % inner, "tcp", inner, "connect EPERM", connect_hook(inner), "tcp", rule="loop", port=9003,
                     told_port=9003)
        rows += make(27, "loopback %s, udp" % inner, "udp", inner, "sendto EPERM", "egress", "udp", rule="loop", port=9004, told_port=9004)
    for label, address, port in (("no address", "::ffff:0.0.0.0", 9005), ("loopback", "::ffff:127.0.0.1", 9007)):
        # Read twice: as the IPv4 address, and that as this host.
        kind = "unspecified" if label == "no address" else "mapped"
        rows += make(27, "mapped %s, tcp" % label, "tcp", address, "connect EPERM", "connect6", "tcp", rule="loop", kind=kind,
                     inner="127.0.0.1",
                     wire=["127.0.0.1"], port=port, told_port=port, told_address=address[7:])
        rows += make(27, "mapped %s, udp" % label, "udp", address, "sendto EPERM", "egress", "udp", rule="loop", wire=["127.0.0.1"],
                     port=port + 1, told_port=port + 1)
    for family in (v4, v6):
        kind = "v6" if family is v6 else "v4"
        n = numbers.next()
        rows += make(31, "dns over udp, " + kind, "dns", family(n), "sendto EPERM", "egress", "udp", port=53, told_port=53,
                     name="secret.weir", twin=family(n, True))
        n = numbers.next()
        rows += make(31, "dns over tcp, " + kind, "dns_tcp", family(n), "connect EPERM", connect_hook(family(n)), "tcp", port=53,
                     told_port=53, twin=family(n, True))
        n = numbers.next()
        rows += make(31, "dns over tls, " + kind, "tcp", family(n), "connect EPERM", connect_hook(family(n)), "tcp", port=853,
                     told_port=853, twin=family(n, True))
    return rows


# ---- 11 to 18: other families, other tables ----

FAMILIES = (
    (12, "AF_XDP", "44:3"), (13, "AF_VSOCK", "40:1"), (15, "AF_NETLINK", "16:3"), (16, "AF_ALG", "38:5"), (17, "AF_KEY", "15:3"),
    (17, "AF_TIPC", "30:5"), (17, "AF_RDS", "21:5"), (17, "AF_SMC", "43:1"), (17, "AF_RXRPC", "33:2"), (17, "AF_KCM", "41:5"),
    (17, "AF_LLC", "26:2"),
    (17, "AF_CAN", "29:3"), (17, "AF_QRTR", "42:2"), (17, "AF_BLUETOOTH", "31:3"), (17, "AF_IB", "27:3"), (17, "AF_PHONET", "35:2"),
    (17, "AF_X25", "9:5"),
    (17, "AF_NFC", "39:5"), (17, "AF_IEEE802154", "36:3"),
)
NAMED = {"AF_VSOCK", "AF_NETLINK"}


def family_rows():
    rows = []
    for number, label, word in FAMILIES:
        runs = {"whole": Seen("socket EAFNOSUPPORT", [], False)}
        if label in NAMED:
            runs["no socket filter"] = Seen("ok", [], False)
        rows.append(Row(number, label, "family", "0.0.0.0", 0, None, word, runs, [], [], False))
    rows.append(Row(11, "SOCK_PACKET", "family", "0.0.0.0", 0, None, "2:10",
                    {"whole": Seen("socket EPERM", [], False), "no rules": Seen("socket EPERM", [], False)}, [], [], False))
    # Below the packet hook: `weir exec` gives no command both the family and CAP_NET_RAW.
    for way in ("packet_dgram", "packet_raw"):
        n = numbers.next()
        refused = Seen("socket EAFNOSUPPORT", [], False)
        rows.append(Row(11, way, way, v4(n), PORT, None, "", {"whole": refused, "no rules": refused}, [v4(n)], [], False))
    return rows


def call_rows():
    """What the system call filter refuses under every policy: taken away only with Weir itself."""
    def row(number, label, way, end, word="", n=None):
        to = v4(numbers.next())
        runs = {p: Seen(end, [], False) for p in ("whole", "no rules")}
        return Row(number, label, way, to, PORT, None, word, runs, [to], [], False)

    return [
        row(18, "io_uring, tcp", "uring_tcp", "io_uring_setup ENOSYS"), row(18, "io_uring, udp", "uring_udp", "io_uring_setup ENOSYS"),
        row(18, "io_uring, packet socket", "uring_packet", "io_uring_setup ENOSYS"),
        row(13, "32-bit table, udp", "int80_udp", "signal SIGSYS"), row(13, "32-bit table, packet socket", "int80_packet", "signal SIGSYS"),
        row(13, "x32 table, packet socket", "x32_packet", "signal SIGSYS"),
        row(34, "network namespace of its own", "newnet", "unshare EPERM"),
        row(34, "another's network namespace", "setns", "setns EPERM", "/mnt/world"),
        row(35, "tun device", "tun", "TUNSETIFF EPERM"), row(37, "kernel asks for a name", "request_key", "request_key EPERM"),
    ]


def all_rows():
    rows = stream_rows() + datagram_rows() + protocol_rows() + carried_rows() + option_rows() + place_rows() + family_rows() + call_rows()
    assert len({r.label for r in rows}) == len(rows), collections.Counter(r.label for r in rows).most_common(3)
    return rows


# Known, and not in the table.
NOT_PRODUCED = (
    (12, "AF_XDP, sending", "needs a program, a map and a driver's queue; that its socket can't be made is a row"),
    (14, "AF_UNIX to a proxy or daemon of the host",
     "no network of its own: the mount namespace decides which sockets can be named; families without `unix` are a row of test_vectors"),
    (17, "AF_RDS, AF_SMC and others, sending", "made by kernel threads; refused as families, which is a row where the kernel has them"),
    (25, "routing header as ancillary data", "the kernel takes only type 2 there, with CONFIG_IPV6_MIP6"),
    (21, "a descriptor that a process outside hands over", "not held without LSM hooks; test_vectors shows it"),
    (26, "the copy of IPv4 multicast that the kernel keeps for listeners on this host: of raw, ping and connected UDP-Lite sockets",
     "not held: made before the packet hook, and no address hook sees these; they are refused unless a policy names them"),
    (26, "the same of a UDP socket that was connected to a group while that was allowed", "not held: no address hook sees it send"),
    (26, "IGMP and MLD reports of groups that are left, sources in them", "the kernel's own packets; only joining is judged"),
    (29, "RST, TIME_WAIT acknowledgements, ICMP errors", "the kernel's own packets: no payload of the sender's"),
    (30, "a resolver behind address translation (127.0.0.11)",
     "needs netfilter NAT in the client; a resolver at 127.0.0.53 is in test_toolcall"),
    (31, "DNS over HTTPS or QUIC", "is port 443 like any other: only an allow-list helps"),
    (33, "privileged ports, SCTP's and ping's own bind", "no way out by themselves"),
    (35, "forwarding, WireGuard, veth", "need CAP_NET_ADMIN over the host's namespace, which a command does not keep"),
    (37, "NFS, CIFS and 9p mounts, modprobe, core_pattern",
     "need CAP_SYS_ADMIN or settings of the whole host, which a test may not change"),
    (38, "gVisor, Kata, Firecracker", "not to be had here"),
    (39, "sidecar meshes", "not to be had here"),
    (40, "sockets of hybrid hosts before 5.15", "not this kernel"),
)
