# SPDX-License-Identifier: Apache-2.0
"""The table of named sets (userspace/core/netset.c) against Python's ipaddress: what that calls not global is in a set, and what is in a set is not global. Where the two differ, it is written
here with the reason."""
import ipaddress
import os
import random
import re
import unittest

from lib import TOP

ROW = re.compile(r'\{NETSET_(\w+),\s*"([^"]+)",\s*"([^"]+)",\s*((?:IANA[46]\s*)?"[^"]+")\}')

# Prefix -> why Python's answer is not ours. Its tables follow the registries' "globally reachable" column, as of its release.
SET_BUT_GLOBAL = {
    "192.0.0.0/24": "kept for protocols; Pythons before 3.11.10 and 3.12.4 know only parts of it",
    "192.0.0.9/32": "anycast of the nearest router: reachable, and part of this network",
    "192.0.0.10/32": "anycast, the same",
    "192.31.196.0/24": "AS112: swallows queries for private names", "192.175.48.0/24": "AS112",
    "192.52.193.0/24": "AMT relays: a tunnel", "192.88.99.0/24": "6to4 relays: a tunnel, deprecated",
    "224.0.0.0/4": "multicast is nobody's host", "ff00::/8": "multicast is nobody's host",
    "168.63.129.16/32": "Azure's platform has an address out of public space",
    "2001:1::1/128": "anycast", "2001:1::2/128": "anycast", "2001:1::3/128": "anycast",
    "2001:3::/32": "AMT: a tunnel", "2001:4:112::/48": "AS112", "2620:4f:8000::/48": "AS112",
    "2001:20::/28": "ORCHIDv2: names, not places", "2001:30::/28": "identities of drones",
    "2001::/23": "parent of the above; older Pythons call some of it global",
    "2002::/16": "6to4: decoded and judged, and nobody needs it; older Pythons call it global",
    "100:0:0:1::/64": "RFC 9780, newer than most Pythons", "3fff::/20": "RFC 9637, newer than most Pythons", "5f00::/16": "RFC 9602, newer than most Pythons",
    "64:ff9b:1::/48": "RFC 8215; older Pythons do not know it",
    "::/96": "IPv4-compatible: what it carries may be anything", "::ffff:0:0:0/96": "IPv4-translated: the same",
    "::ffff:0.0.0.0/96": "IPv4-mapped: some Pythons answer for the IPv4 address inside",
    "fec0::/10": "site-local, deprecated; some Pythons call it global",
}
NOT_GLOBAL_BUT_NO_SET = {
    "64:ff9b::/96": "NAT64: decoded, and judged as the IPv4 address inside",
}


def rows():
    with open(os.path.join(TOP, "userspace/core/netset.c")) as f:
        found = ROW.findall(f.read())
    return [(kind.lower().replace("_", "-"), ipaddress.ip_network(prefix), prefix, what) for kind, prefix, what, _ in found]


def neighbours(net):
    """First, last, one before, one after."""
    first, last = int(net.network_address), int(net.broadcast_address)
    most = (1 << net.max_prefixlen) - 1
    make = type(net.network_address)
    return [make(n) for n in (first, last, first - 1, last + 1) if 0 <= n <= most]


class NetsetTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = rows()
        cls.excused = [ipaddress.ip_network(p) for p in SET_BUT_GLOBAL]
        cls.outside = [ipaddress.ip_network(p) for p in NOT_GLOBAL_BUT_NO_SET]

    def in_set(self, addr):
        best = None
        for kind, net, _, _ in self.rows:
            if addr.version == net.version and addr in net and (best is None or net.prefixlen > best[1].prefixlen):
                best = (kind, net)
        return best and best[0]

    def agree(self, addr):
        ours, public = self.in_set(addr) is not None, addr.is_global
        if ours != public:
            return
        listed = self.excused if ours else self.outside
        self.assertTrue(any(addr.version == n.version and addr in n for n in listed), "%s: Python says is_global=%s, we say %s" % (addr, public, self.in_set(addr)))

    def test_all_rows_are_read(self):
        with open(os.path.join(TOP, "userspace/core/netset.c")) as f:
            self.assertEqual(len(self.rows), f.read().count("{NETSET_"))
        self.assertGreater(len(self.rows), 70)
        for prefix in SET_BUT_GLOBAL:
            self.assertIn(prefix, [text for _, _, text, _ in self.rows], "an excuse for no row")

    def test_edges(self):
        for _, net, _, _ in self.rows:
            for addr in neighbours(net):
                self.agree(addr)
        for net in self.outside:
            self.assertIsNone(self.in_set(net.network_address))
            self.assertIsNone(self.in_set(net.broadcast_address))

    def test_pythons_own_tables(self):
        """Everything that Python lists as private or reserved, edges and inside."""
        for constants in (ipaddress._IPv4Constants, ipaddress._IPv6Constants):
            nets = [n for name in dir(constants) if name.startswith("_") and not name.startswith("__") for n in (lambda v: v if isinstance(v, list) else [v])(getattr(constants, name))
                    if isinstance(n, (ipaddress.IPv4Network, ipaddress.IPv6Network))]
            self.assertGreater(len(nets), 10)
            for net in nets:
                for addr in neighbours(net) + [net[net.num_addresses // 2]]:
                    self.agree(addr)

    def test_at_random(self):
        rng = random.Random(20240607)
        for _ in range(30000):
            self.agree(ipaddress.IPv4Address(rng.getrandbits(32)))
        for _ in range(15000):
            # All of public IPv6 is in 2000::/3; the rest is reserved, which Python 3.11 calls global or not as it likes.
            self.agree(ipaddress.IPv6Address(1 << 125 | rng.getrandbits(125)))

    def test_private_is_private(self):
        for kind, net, text, _ in self.rows:
            if kind == "private" and text != "fec0::/10":
                self.assertFalse(net.is_global, text)
                self.assertTrue(net.is_private or text == "100.64.0.0/10", text)  # 100.64.0.0/10 is neither, by its RFC


if __name__ == "__main__":
    unittest.main()
