# SPDX-License-Identifier: Apache-2.0
"""Random policies, and destinations that are hard for them: prefixes nest and tie, destinations lie on their edges."""
import ipaddress
import json

PROTOCOLS = ["tcp", "udp", "icmp", "icmpv6", "sctp", "dccp", "udplite", "igmp", "gre", "esp", "ah", 0, 3, 103, 255]
PORTED = ["tcp", "udp", "sctp", "dccp", "udplite"]
NUMBERS = {"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "dccp": 33, "gre": 47, "esp": 50, "ah": 51, "icmpv6": 58, "sctp": 132, "udplite": 136}
FIXED_SETS = ["@private", "@metadata", "@special-purpose"]
PORTS = [0, 1, 22, 53, 79, 80, 81, 442, 443, 444, 1023, 1024, 8000, 8443, 65534, 65535]
NAT64_LENGTHS = [32, 40, 48, 56, 64, 96]
WORDS = ["ipv4_options", "routing_header", "fragment"]
BASES = ["10.0.0.0", "127.0.0.1", "169.254.169.254", "192.168.1.1", "203.0.113.7", "8.8.8.8", "255.255.255.255", "0.0.0.0", "::", "::1", "2001:db8::1", "fd00::1", "64:ff9b::a00:1", "2002:a00:1::", "2001:0:a00:1::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe80::5efe:a00:1", "::ffff:10.0.0.1"]


def network_of(rng, address):
    """A prefix around the address, of a length that others are likely to have as well."""
    width = address.max_prefixlen
    length = rng.choice([0, 1, 8, 16, 24, 31, 32] if width == 32 else [0, 1, 16, 32, 48, 64, 96, 127, 128])
    if rng.random() < 0.3:
        length = rng.randint(0, width)
    kind = ipaddress.IPv4Address if width == 32 else ipaddress.IPv6Address
    return ipaddress.ip_network("%s/%d" % (kind(int(address) >> (width - length) << (width - length)), length))


def nearby(rng, pool):
    """An address of the pool, or one that has its first bits."""
    address = rng.choice(pool)
    if rng.random() < 0.5:
        return address
    flip = rng.getrandbits(rng.choice([1, 4, 8, 16]))
    return type(address)(int(address) ^ flip)


def ports(rng):
    low = rng.choice(PORTS)
    high = rng.choice(PORTS)
    if rng.random() < 0.4:
        return low
    return "%d-%d" % (min(low, high), max(low, high))


class Case:
    """One random policy: .text, .hosts, .resolvers; destinations() as lines for `weir policy explain --batch`."""

    def __init__(self, rng):
        self.rng = rng
        self.pool = [ipaddress.ip_address(a) for a in rng.sample(BASES, 5)]
        self.pool += [ipaddress.IPv4Address(rng.getrandbits(32)), ipaddress.IPv6Address(rng.getrandbits(128))]
        self.networks = []
        self.nat64 = []
        self.hosts = [str(nearby(rng, self.pool)) for _ in range(rng.randint(1, 3))]
        self.resolvers = [str(nearby(rng, self.pool)) for _ in range(rng.randint(1, 2))]
        self.document = self.make()
        self.text = json.dumps(self.document)

    def place(self):
        rng, dice = self.rng, self.rng.random()
        if dice < 0.08:
            return "any"
        if dice < 0.16:
            return rng.choice(FIXED_SETS)
        if dice < 0.24:
            return rng.choice(["@host", "@resolver"])
        if self.networks and dice < 0.5:
            return str(rng.choice(self.networks))
        made = network_of(rng, nearby(rng, self.pool))
        self.networks.append(made)
        return str(made)

    def rule(self):
        rng = self.rng
        rule = {"verdict": rng.choice(["allow", "deny"]), "to": self.place() if rng.random() < 0.6 else [self.place() for _ in range(rng.randint(1, 3))]}
        dice = rng.random()
        if dice < 0.35:
            rule["protocol"] = rng.choice(PORTED)
        elif dice < 0.45:
            rule["protocol"] = rng.sample(PORTED, 2)
        elif dice < 0.6:
            rule["protocol"] = rng.choice(PROTOCOLS)
        if dice < 0.45 and rng.random() < 0.8:
            rule["ports"] = ports(rng) if rng.random() < 0.7 else [ports(rng), ports(rng)]
        return rule

    def make(self):
        rng = self.rng
        doc = {"name": "random", "default": rng.choice(["allow", "deny"])}
        if rng.random() < 0.1:
            doc["mode"] = "monitor"
        if rng.random() < 0.3:
            doc["loopback"] = rng.choice(["rules", "deny", "self"])
        if rng.random() < 0.5:
            doc["packets"] = {k: rng.choice(["allow", "deny"]) for k in ("ipv4_options", "routing_headers", "fragments")}
        if rng.random() < 0.4:
            for _ in range(rng.randint(1, 3)):
                length = rng.choice(NAT64_LENGTHS)
                number = rng.choice([0x20010DB8 << 96, 0xFD << 120, rng.getrandbits(128)]) >> (128 - length) << (128 - length)
                number &= ~(0xFF << 56)  # byte 8
                made = ipaddress.ip_network("%s/%d" % (ipaddress.IPv6Address(number), length))
                if not any(made.overlaps(other) for other in self.nat64):
                    self.nat64.append(made)
            doc["nat64_prefixes"] = [str(n) for n in self.nat64]
        doc["rules"] = [self.rule() for _ in range(rng.randint(0, 40) if rng.random() < 0.8 else rng.randint(0, 4))]
        return doc

    def edge(self):
        """An address on, or next to, the edge of a prefix that the policy names."""
        rng = self.rng
        if not self.networks or rng.random() < 0.2:
            return ipaddress.ip_address(rng.choice([str(nearby(rng, self.pool))] + self.hosts + self.resolvers))
        chosen = rng.choice(self.networks)
        last = (1 << chosen.max_prefixlen) - 1
        first_of, last_of = int(chosen.network_address), int(chosen.broadcast_address)
        number = rng.choice([first_of, last_of, max(first_of - 1, 0), min(last_of + 1, last), rng.randint(first_of, last_of)])
        return type(chosen.network_address)(number)

    def spell(self, v4):
        """An IPv6 address that carries `v4`."""
        rng, n = self.rng, int(v4)
        spellings = [
            0xFFFF << 32 | n,
            n,
            0xFFFF << 48 | n,
            0x64FF9B << 96 | n,
            0x64FF9B0001 << 80 | rng.getrandbits(48) << 32 | n,
            0x2002 << 112 | n << 80 | rng.getrandbits(80),
            0x20010000 << 96 | n << 64 | rng.getrandbits(64),
            0x20010000 << 96 | rng.getrandbits(64) << 32 | n ^ 0xFFFFFFFF,
            rng.getrandbits(64) << 64 | rng.choice([0x5EFE, 0x02005EFE]) << 32 | n,
        ]
        for prefix in self.nat64:
            data = bytearray(ipaddress.IPv6Address(int(prefix.network_address)).packed)
            for i, byte in zip([i for i in range(prefix.prefixlen // 8, 16) if i != 8], v4.packed):
                data[i] = byte
            spellings.append(int.from_bytes(bytes(data), "big"))
        return ipaddress.IPv6Address(rng.choice(spellings))

    def destination(self):
        """(line, address, protocol, port, words)"""
        rng = self.rng
        address = self.edge()
        if address.version == 4 and rng.random() < 0.4:
            address = self.spell(address)
        protocol = rng.choice(PORTED[:2] + PROTOCOLS)
        number = NUMBERS.get(protocol, protocol)
        port = rng.choice(PORTS) if protocol in PORTED else 0
        words = [w for w in WORDS if rng.random() < 0.08]
        if rng.random() < 0.4:
            words.append("packet")
        name = protocol if isinstance(protocol, str) else "ip-proto-%d" % protocol
        text = "[%s]" % address if address.version == 6 else str(address)
        line = "%s://%s%s" % (name, text, ":%d" % port if protocol in PORTED else "")
        return " ".join([line] + words), address, number, port, words
