# SPDX-License-Identifier: Apache-2.0
"""What a policy says of a destination: a second opinion.

Written from docs/policy.md and the RFCs, with Python's ipaddress, and without a look at how Weir does it: nothing is sorted or
compiled, every rule is asked about every destination. The one thing taken from Weir is what the named sets hold, which
`weir policy sets --json` prints.
"""
import ipaddress
import json

PROTOCOLS = {"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "dccp": 33, "gre": 47, "esp": 50, "ah": 51, "icmpv6": 58, "sctp": 132, "udplite": 136}
WITH_PORTS = {6, 17, 33, 132, 136}
LOOPBACK4, LOOPBACK6 = ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_address("::1")
NAT64 = [ipaddress.ip_network(n) for n in ("64:ff9b::/96", "64:ff9b:1::/48")]
COMPATIBLE, TRANSLATED = ipaddress.ip_network("::/96"), ipaddress.ip_network("::ffff:0:0:0/96")
FAMILIES = {"any": ("0.0.0.0/0", "::/0")}


def listed(value):
    return value if isinstance(value, list) else [value]


def ipv4(number):
    return ipaddress.IPv4Address(number & 0xFFFFFFFF)


def rfc6052(address, network):
    """The IPv4 address in an IPv6 one: behind the prefix, in bytes that are not byte 8 (section 2.2)."""
    data = address.packed
    places = [i for i in range(network.prefixlen // 8, 16) if i != 8][:4]
    return ipaddress.IPv4Address(bytes(data[i] for i in places))


def carried(address, configured):
    """[(kind, IPv4 address)] of what an IPv6 address carries, in the order of the documents."""
    found, number = [], int(address)
    if address.ipv4_mapped is not None:
        found.append(("mapped", address.ipv4_mapped))
    elif address in COMPATIBLE and number > 1:
        found.append(("compatible", ipv4(number)))
    elif address in TRANSLATED:
        found.append(("translated", ipv4(number)))
    elif any(address in network for network in NAT64):
        found.append(("nat64", ipv4(number)))
    elif address.sixtofour is not None:
        found.append(("6to4", address.sixtofour))
    elif address.teredo is not None:
        server, client = address.teredo
        found += [("teredo_server", server), ("teredo_client", client)]
    for network in configured:
        if address in network:
            found.append(("nat64_configured", rfc6052(address, network)))
            break
    # RFC 5214 section 6.1, with the universal/local bit either way.
    if (number >> 32) & 0xFFFFFFFF in (0x00005EFE, 0x02005EFE):
        found.append(("isatap", ipv4(number)))
    return found


class Rule:
    def __init__(self, number, rule, sets):
        self.number = number
        self.name = rule.get("name", "rule-%d" % number)
        self.allows = rule["verdict"] == "allow"
        self.networks = []
        for place in listed(rule["to"]):
            for text in FAMILIES.get(place) or (sets[place] if place.startswith("@") else [place]):
                self.networks.append(ipaddress.ip_network(text))
        # The same as numbers: `in` of ipaddress is right and very slow.
        self.plain = [(n.version, n.max_prefixlen - n.prefixlen, int(n.network_address) >> (n.max_prefixlen - n.prefixlen), n.prefixlen) for n in self.networks]
        named = listed(rule["protocol"]) if "protocol" in rule else [None]
        self.protocols = [PROTOCOLS.get(p, p) for p in named]
        self.ranges = [self.range_of(p) for p in listed(rule["ports"])] if "ports" in rule else [None]

    @staticmethod
    def range_of(text):
        low, _, high = str(text).partition("-")
        return int(low), int(high or low)

    def matches(self, version, number, protocol, port):
        """How particularly it matches: tuples that sort before those of a rule that gives way."""
        for place_version, shift, place, length in self.plain:
            if place_version != version or number >> shift != place:
                continue
            for own in self.protocols:
                if own is not None and own != protocol:
                    continue
                for ports in self.ranges:
                    if ports is None:
                        width = 65536
                    elif port is None:
                        # Nobody sees the port: it may be one that is denied, and is not known to be one that is allowed.
                        if self.allows:
                            continue
                        width = ports[1] - ports[0] + 1
                    elif ports[0] <= port <= ports[1]:
                        width = ports[1] - ports[0] + 1
                    else:
                        continue
                    yield (-length, own is None, width, self.allows, self.number)


class Policy:
    """`sets`: {"@private": ["10.0.0.0/8", …], …}, the dynamic ones too."""

    def __init__(self, document, sets):
        doc = json.loads(document)
        self.allows = doc["default"] == "allow"
        self.monitor = doc.get("mode") == "monitor"
        self.loopback = doc.get("loopback", "rules")
        packets = doc.get("packets", {})
        self.permits = {word: packets.get(key) == "allow" for word, key in (("ipv4_options", "ipv4_options"), ("routing_header", "routing_headers"), ("fragment", "fragments"))}
        self.configured = [ipaddress.ip_network(n) for n in doc.get("nat64_prefixes", [])]
        self.rules = [Rule(i + 1, r, sets) for i, r in enumerate(doc.get("rules", []))]

    def by_rules(self, address, protocol, port):
        """(allowed, reason, name of the rule)"""
        version, number = address.version, int(address)
        best = min((m for rule in self.rules for m in rule.matches(version, number, protocol, port)), default=None)
        if best is None:
            return self.allows, "default", "-"
        rule = self.rules[best[-1] - 1]
        return rule.allows, "rule", rule.name

    def judge(self, address, protocol, port=0, words=()):
        """(verdict, reason, rule, kind of decoding) as `weir policy explain --batch` prints them."""
        address, kind = ipaddress.ip_address(address), "-"
        if address.version == 6 and address.ipv4_mapped is not None and "packet" not in words:
            address, kind = address.ipv4_mapped, "mapped"  # what a socket makes of it
        verdict, reason, rule, inside = self.decide(address, protocol, port, words)
        kind = inside if inside != "-" else kind
        return ("allowed" if verdict else "would_deny" if self.monitor else "denied", reason, rule, kind)

    def decide(self, address, protocol, port, words):
        for word in ("ipv4_options", "routing_header", "fragment"):
            if word in words and not self.permits[word]:
                return False, word, "-", "-"
        port = None if "fragment" in words else port if protocol in WITH_PORTS else 0
        unspecified = int(address) == 0
        loopback = address in LOOPBACK4 if address.version == 4 else address == LOOPBACK6
        if self.loopback != "rules" and (unspecified or loopback):
            return self.loopback == "self", "loopback", "-", "-"
        written = self.by_rules(address, protocol, port) + ("-",)
        if not written[0]:
            return written
        if unspecified:
            others = [("unspecified", LOOPBACK6 if address.version == 6 else ipaddress.ip_address("127.0.0.1"))]
        else:
            others = carried(address, self.configured) if address.version == 6 else []
        for kind, other in others:
            judged = self.by_rules(other, protocol, port)
            if not judged[0]:
                return judged + (kind,)
        return written

    def most_pairs(self):
        """The most pairs of protocol and port range that hold for one address: what Weir has a limit for."""
        networks = {n for rule in self.rules for n in rule.networks}
        most = 0
        for network in networks:
            pairs = 0
            for rule in self.rules:
                around = sum(1 for n in set(rule.networks) if n.version == network.version and network.subnet_of(n))
                pairs += around * len(rule.protocols) * len(rule.ranges)
            most = max(most, pairs)
        return most
