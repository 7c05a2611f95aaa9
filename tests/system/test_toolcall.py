# SPDX-License-Identifier: Apache-2.0
"""The shipped tool-call policy in the fake internet: what is public works by plain urllib, nothing else is ever reached.

A Python program runs in the client, under `weir exec --policy tool-call`, and is told what to try. Every connect() and sendto()
of it is timed where it is made. The same program without Weir reaches all of it.
"""
import ipaddress
import json
import statistics
import subprocess
import sys
import threading
import time
import unittest

from internet import CLIENT4, CLIENT6, GATEWAY4, MNT, Ears, Internet, Resolver
from lib import SLOW

AT_ONCE_MS = 50
TRIES = 3  # what is slow once may be this machine's doing

CLIENT = r'''
import errno, json, socket, sys, time, urllib.request

timed = []

class Timed(socket.socket):
    """Notes how each connect() and sendto() ended, and when."""

    def _note(self, what, address, call):
        began, error = time.monotonic(), None
        try:
            return call()
        except OSError as e:
            error = errno.errorcode.get(e.errno, type(e).__name__)
            raise
        finally:
            timed.append({"call": what, "to": address[0], "port": address[1], "error": error, "ms": (time.monotonic() - began) * 1000})

    def connect(self, address):
        return self._note("connect", address, lambda: socket._socket.socket.connect(self, address))

    def sendto(self, data, address):
        return self._note("sendto", address, lambda: socket._socket.socket.sendto(self, data, address))

socket.socket = Timed


def get(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT) as r:
        return r.read().decode()


def tcp(host, port):
    with socket.create_connection((host, port), timeout=TIMEOUT) as s:
        return s.getpeername()[0]


def udp(host, port):
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        return s.sendto(b"weir tool call", address)


def names(host, _=None):
    return sorted({a[4][0] for a in socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)})


def dns_tcp(server, port):
    query = b"ab\1\0\0\1\0\0\0\0\0\0\3www\6public\7example\0\0\1\0\1"
    with socket.create_connection((server, port), timeout=TIMEOUT) as s:
        s.sendall(len(query).to_bytes(2, "big") + query)
        size = int.from_bytes(s.recv(2, socket.MSG_WAITALL), "big")
        return socket.inet_ntoa(s.recv(size, socket.MSG_WAITALL)[-4:])


def again(host, port):
    """For ever, every 10 ms, until stdin ends."""
    import threading
    done = []
    threading.Thread(target=lambda: done.append(sys.stdin.read()), daemon=True).start()
    while not done:
        try:
            with socket.create_connection((host, port), timeout=TIMEOUT):
                how = "ok"
        except OSError as e:
            how = errno.errorcode.get(e.errno, type(e).__name__)
        print(how, flush=True)
        time.sleep(0.01)


TIMEOUT = float(sys.argv[1])
for line in [sys.stdin.readline()] if len(sys.argv) > 2 else sys.stdin:
    way, *args = json.loads(line)
    timed.clear()
    try:
        value, error = globals()[way](*args), None
    except OSError as e:
        while isinstance(getattr(e, "reason", None), OSError):
            e = e.reason  # urllib wraps what it got
        value, error = None, errno.errorcode.get(e.errno, type(e).__name__)
    print(json.dumps({"value": value, "error": error, "timed": timed}), flush=True)
'''

PUBLIC4, PUBLIC6 = "93.184.216.34", "2606:2800:220:1::1946"

# From the registries themselves and the vendors' documents, not from Weir's table: prefix -> rule that must decide.
DENIED = {
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10"),
    "special-purpose": (
        "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
        "192.88.99.0/24",
        "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128",
        "64:ff9b:1::/48",
        "100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16",
        "fe80::/10", "ff00::/8"),
    "metadata": (
        "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.253", "169.254.169.123", "168.63.129.16", "100.100.100.200",
        "192.0.0.192",
        "169.254.42.42", "169.254.0.23", "fd00:ec2::254", "fd00:ec2::23", "fd00:ec2::253", "fd20:ce::254", "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
        "fe80::a9fe:a9fe"),
    "this-host": (CLIENT4, CLIENT6, "127.0.0.1", "127.255.255.255", "fe80::5"),
}
# An address inside an address: the rule of the inner one, unless the outer one has its own.
SPELLED = {
    "::ffff:10.1.2.3": ("private", None), "::ffff:169.254.169.254": ("metadata", None), "64:ff9b::10.1.2.3": ("private", "nat64"),
    "64:ff9b::169.254.169.254": ("metadata", "nat64"), "64:ff9b::" + CLIENT4: ("this-host", "nat64"),
    "2a00:1450::5efe:10.1.2.3": ("private", "isatap"),
    "2a00:1450::200:5efe:169.254.169.254": ("metadata", "isatap"), "2002:a01:203::1": ("special-purpose", None),
    "::10.1.2.3": ("special-purpose", None),
    "::ffff:0:10.1.2.3": ("special-purpose", None),
}
NAMES = {
    "www.public.example": [PUBLIC4, PUBLIC6], "v4.public.example": [PUBLIC4], "v6.public.example": [PUBLIC6],
    "nat64.example": ["64:ff9b::5db8:d822"],
    "rebind.example": [[PUBLIC4], ["10.1.2.3"]], "rebind-meta.example": [[PUBLIC4], ["169.254.169.254"]],
    "rebind6.example": [[PUBLIC6], ["fd00:ec2::254"]],
    "private.example": ["10.1.2.3"], "private6.example": ["fd12:3456::1"], "meta.example": ["169.254.169.254"],
    "meta6.example": ["fd00:ec2::254"],
    "azure.example": ["168.63.129.16"], "host.example": [CLIENT4], "loop.example": ["127.0.0.1"], "loop6.example": ["::1"],
    "zero.example": ["0.0.0.0"],
    "mapped.example": ["::ffff:10.1.2.3"], "carried.example": ["64:ff9b::a01:203"], "gateway.example": [GATEWAY4],
    "shared.example": ["100.64.1.1"],
}
RULE_OF_NAME = {"private": "private", "private6": "private", "meta": "metadata", "meta6": "metadata", "azure": "metadata",
                "host": "this-host",
                "loop": "this-host", "loop6": "special-purpose", "zero": "special-purpose", "mapped": "private", "carried": "private",
                "gateway": "private",
                "shared": "private"}


def edges(prefix):
    """First, middle and last address of a prefix, written so that a link-local one has a device."""
    network = ipaddress.ip_network(prefix)
    found = sorted({network[0], network[network.num_addresses // 2], network[-1]})
    return [str(a) + ("%eth0" if a.version == 6 and a.is_link_local else "") for a in found]


def denied_addresses():
    """address -> rule. A host's own address, or a cloud's, has a longer prefix than the range around it."""
    found = {a: rule for rule in ("private", "special-purpose") for p in DENIED[rule] for a in edges(p)}
    for rule in ("metadata", "this-host"):
        found.update({edges(a)[0]: rule for a in DENIED[rule]})
    return found


class ToolCall(unittest.TestCase):
    maxDiff = None
    late, all_ms = {}, []

    @classmethod
    def setUpClass(cls):
        cls.internet = Internet("nameserver 8.8.8.8\n")
        cls.internet.put("client.py", CLIENT)
        cls.web = cls.internet.web(["*.example", "*.public.example", "public.example"])
        cls.resolver = cls.internet.resolver(NAMES)
        cls.ears = cls.internet.ears(udp_ports=(9999,), tcp_ports=(9999,))
        # In the client, outside of any policy: what a connection to the host itself would find.
        cls.near = cls.internet.add(Ears(cls.internet.client.pid, (9999,), (80, 9999)))

    @classmethod
    def tearDownClass(cls):
        cls.internet.close()
        if cls.all_ms:
            print("          refused after: median %.2f ms, worst %.2f ms, of %d" % (statistics.median(cls.all_ms), max(cls.all_ms),
                                                                                     len(cls.all_ms)), flush=True)

    def setUp(self):
        self.internet.put("resolv.conf", "nameserver 8.8.8.8\n")
        self.resolver.counts.clear()
        self.forget()

    def forget(self):
        self.internet.arrived(0)
        self.web.heard.clear()
        self.ears.heard.clear()
        self.near.heard.clear()

    def run_client(self, tasks, policy="tool-call", timeout=2.0):
        """What each task gave, and the audit's events."""
        command = [sys.executable, "-I", MNT + "/client.py", str(timeout)]
        text = "".join(json.dumps(t) + "\n" for t in tasks)
        env = {"SSL_CERT_FILE": self.internet.ca}
        if policy is None:
            done, events = self.internet.run(command, input=text, env=env), []
        else:
            done, record = self.internet.weir_exec(policy, command, "--quiet", input=text, env=env)
            events = record.events
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        results = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(results), len(tasks))
        return results, events

    def check_denied(self, tasks, rules, at_least=None):
        """
        Every task ends in EPERM at once, nothing of its last destination arrives, and the audit has it with its rule.
        rules: for each task (address as the audit writes it, port, rule, decode kind).
        """
        late = None
        for _ in range(TRIES):
            self.resolver.counts.clear()
            self.forget()
            results, events = self.run_client(tasks)
            arrived = self.internet.arrived()
            wrong = []
            told = {}
            for e in events:
                if e["verdict"] == "denied":
                    told.setdefault((str(ipaddress.ip_address(e["address"])), e["port"], e["protocol"]), []).append(e)
            for task, (address, port, rule, kind), result in zip(tasks, rules, results):
                protocol = "udp" if task[0] == "udp" else "tcp"
                if result["error"] != "EPERM" or not result["timed"] or result["timed"][-1]["error"] != "EPERM":
                    wrong.append("%r: %r" % (task, result))
                found = told.get((str(ipaddress.ip_address(address)), port, protocol), [])
                if [(e["reason"], e["rule_name"]) for e in found] != [("rule", rule)] or kind and found[0].get("decode_kind") != kind:
                    wrong.append("%r: audit has %r, not %s" % (task, [(e["reason"], e["rule_name"], e.get("decode_kind")) for e in found],
                                                               rule))
                if [p for p in arrived if ipaddress.ip_address(p.to) == ipaddress.ip_address(address) and p.port == port]:
                    wrong.append("%r: arrived" % (task,))
            if wrong:
                self.fail("\n" + "\n".join(wrong))
            ms = {json.dumps(t): r["timed"][-1]["ms"] for t, r in zip(tasks, results)}
            late = {k for k, v in ms.items() if v > AT_ONCE_MS * SLOW and (late is None or k in late)}
            if not late:
                ToolCall.all_ms += ms.values()
                return results
        self.fail("not at once, %d times: %r" % (TRIES, late))

    # -- what works --

    def test_public_http_and_https_by_name(self):
        tasks = [["get", scheme + "://" + name + "/"] for scheme in ("http", "https")
                 for name in ("www.public.example", "v4.public.example", "v6.public.example")]
        tasks += [["get", "http://v4.public.example/go?https://v6.public.example/"], ["names", "www.public.example"],
                  ["get", "http://nat64.example/"]]
        results, events = self.run_client(tasks)
        self.assertEqual([r["error"] for r in results], [None] * len(tasks))
        values = [r["value"] for r in results]
        one_of = {"page of %s\n" % PUBLIC4, "page of %s\n" % PUBLIC6}
        self.assertTrue(set(values[0:1] + values[3:4]) <= one_of, values)
        self.assertEqual([values[1], values[2], values[4], values[5], values[6]],
                         ["page of %s\n" % a for a in (PUBLIC4, PUBLIC6, PUBLIC4, PUBLIC6, PUBLIC6)])
        self.assertEqual(values[7], sorted([PUBLIC4, PUBLIC6]))
        self.assertEqual({e["verdict"] for e in events}, {"allowed"})
        asked = {e["dns_name"] for e in events if e["port"] == 53}
        self.assertEqual(asked, {"www.public.example", "v4.public.example", "v6.public.example", "nat64.example"})
        self.assertEqual({(e["reason"], e["rule_name"]) for e in events if e["port"] == 53}, {("rule", "resolver")})
        self.assertEqual({(e["reason"], e["rule_name"]) for e in events if e["port"] in (80, 443)}, {("default", None)})

    # -- what never does --

    def test_every_address(self):
        addresses = denied_addresses()
        self.assertGreater(len(addresses), 100)
        tasks, rules = [], []
        for address, rule in addresses.items():
            plain = address.split("%")[0]
            tasks.append(["tcp", address, 9999])
            rules.append((plain, 9999, rule, None))
            if plain not in ("0.0.0.0", "::"):  # there the packet says 127.0.0.1 or ::1
                tasks.append(["udp", address, 9999])
                rules.append((plain, 9999, rule, None))
        self.check_denied(tasks, rules)
        self.assertEqual((self.ears.heard, self.near.heard), ([], []))

    def test_every_address_without_weir(self):
        """Nothing but Weir stops them: what the kernel can route at all does arrive."""
        addresses = [a for a in denied_addresses() if not ipaddress.ip_address(a.split("%")[0]).is_multicast]
        self.run_client([["udp", a, 9999] for a in addresses if a != "255.255.255.255"], policy=None)
        to = {ipaddress.ip_address(p.to) for p in self.internet.arrived() if p.port == 9999}
        own = {"0.0.0.0", "::", "fe80::", "255.255.255.255", "127.255.255.255"}  # other spellings of this host, anycast, broadcast
        missing = [a for a in addresses if ipaddress.ip_address(a.split("%")[0]) not in to and a.split("%")[0] not in own
                   and not a.startswith("fe8") and not a.startswith("feb")]
        self.assertEqual(missing, [])

    def test_other_spellings(self):
        tasks, rules = [], []
        for address, (rule, kind) in SPELLED.items():
            inner = str(ipaddress.ip_address(address).ipv4_mapped or address)
            for way in ("tcp", "udp"):
                tasks.append([way, address, 9999])
                rules.append((inner, 9999, rule, kind))
        # A mapped address and the same one as NAT64 would be one flow each; so are tcp and udp.
        self.check_denied(tasks, rules)

    def test_by_name(self):
        names = sorted(RULE_OF_NAME)
        rules = []
        for port, scheme in ((80, "http"), (443, "https")):
            for name in names:
                address = ipaddress.ip_address(NAMES[name + ".example"][0])
                address = getattr(address, "ipv4_mapped", None) or address
                rules.append((str(address), port, RULE_OF_NAME[name], "nat64" if name == "carried" else None))
        tasks = [["get", "%s://%s.example/" % (scheme, name)] for scheme in ("http", "https") for name in names]
        # Two names of one address are one flow.
        seen = {}
        for task, rule in zip(tasks, rules):
            seen.setdefault((rule[0], rule[1]), (task, rule))
        self.check_denied([t for t, _ in seen.values()], [r for _, r in seen.values()])
        self.assertEqual(self.web.heard, [])

    def test_after_a_redirect(self):
        places = {"http://10.1.2.3/": ("10.1.2.3", 80, "private"), "http://169.254.169.254/latest/": ("169.254.169.254", 80, "metadata"),
                  "http://[fd00:ec2::254]/": ("fd00:ec2::254", 80, "metadata"), "https://127.0.0.1/": ("127.0.0.1", 443, "this-host"),
                  "http://[::1]/": ("::1", 80, "special-purpose"), "http://shared.example/": ("100.64.1.1", 80, "private"),
                  "http://%s/" % CLIENT4: (CLIENT4, 80, "this-host"),
                  "http://[64:ff9b::a9fe:a9fe]/": ("64:ff9b::a9fe:a9fe", 80, "metadata"),
                  "http://0/": ("0.0.0.0", 80, "special-purpose"), "http://2130706434/": ("127.0.0.2", 80, "special-purpose"),
                  "http://0x7f.3/": ("127.0.0.3", 80, "special-purpose")}
        tasks = [["get", "http://v4.public.example/go?" + url] for url in places]
        results = self.check_denied(tasks, [place + (None,) for place in places.values()])
        # They were sent there: the first of the two connections was made.
        self.assertEqual({r["timed"][-2]["to"] for r in results if len(r["timed"]) > 1}, {PUBLIC4})
        self.assertEqual({h.address for h in self.web.heard}, {PUBLIC4})

    def test_after_rebinding(self):
        for name, first, second, rule in (("rebind.example", PUBLIC4, "10.1.2.3", "private"),
                                          ("rebind-meta.example", PUBLIC4, "169.254.169.254", "metadata"),
                                          ("rebind6.example", PUBLIC6, "fd00:ec2::254", "metadata")):
            self.resolver.counts.clear()
            self.forget()
            results, events = self.run_client([["get", "http://%s/" % name]] * 2)
            self.assertEqual([(r["value"], r["error"]) for r in results], [("page of %s\n" % first, None), (None, "EPERM")])
            self.assertLess(results[1]["timed"][-1]["ms"], AT_ONCE_MS * SLOW * 2)
            denied = [(e["address"], e["port"], e["rule_name"], e["count"]) for e in events if e["verdict"] == "denied"]
            self.assertEqual(denied, [(second, 80, rule, 1)])
            self.assertEqual([h.address for h in self.web.heard], [first])
            self.assertEqual([p for p in self.internet.arrived() if p.to == second], [])

    def test_without_weir_names_redirects_and_rebinding_work(self):
        results, _ = self.run_client([["get", "http://private.example/"], ["get", "http://meta6.example/"],
                                      ["get", "http://azure.example/"],
                                      ["get", "http://v4.public.example/go?http://169.254.169.254/"], ["get", "http://rebind.example/"],
                                      ["get", "http://rebind.example/"]], policy=None)
        self.assertEqual([r["value"] for r in results], ["page of %s\n" % a for a in ("10.1.2.3", "fd00:ec2::254", "168.63.129.16",
                                                                                      "169.254.169.254", PUBLIC4, "10.1.2.3")])

    # -- the resolver, by address, port and protocol only --

    def check_resolver(self, server, rule, others):
        self.internet.put("resolv.conf", "nameserver %s\n" % server)
        tasks = [["names", "www.public.example"], ["get", "http://v4.public.example/"], ["dns_tcp", server, 53], ["tcp", server, 80],
                 ["udp", server, 80],
                 ["tcp", server, 54], ["udp", server, 54]] + [["udp", other, 53] for other in others]
        results, events = self.run_client(tasks)
        self.assertEqual([r["value"] for r in results[:3]], [sorted([PUBLIC4, PUBLIC6]), "page of %s\n" % PUBLIC4, PUBLIC4])
        self.assertEqual([r["error"] for r in results[3:]], ["EPERM"] * (4 + len(others)))
        got = {(e["protocol"], e["address"], e["port"], e["verdict"], e["rule_name"]) for e in events if e["address"] != PUBLIC4}
        want = {(p, server, 53, "allowed", "resolver") for p in ("udp", "tcp")}
        want |= {(p, server, port, "denied", rule) for p in ("tcp", "udp") for port in (54, 80)}
        self.assertEqual({g for g in got if g[1] == server}, want)
        self.assertEqual({g[:4] for g in got if g[1] != server}, {("udp", other, 53, "denied") for other in others})
        self.assertEqual([p for p in self.internet.arrived() if p.to == server and p.port != 53], [])

    def test_resolver_of_a_cluster(self):
        self.check_resolver("10.96.0.10", "private", ["10.96.0.11", "169.254.169.254"])

    def test_resolver_is_the_metadata_address(self):
        self.check_resolver("169.254.169.254", "metadata", ["10.96.0.10", "169.254.169.253"])

    def test_resolver_over_ipv6(self):
        self.check_resolver("fd00:ec2::253", "metadata", ["fd00:ec2::254"])

    def test_resolver_on_loopback(self):
        near = Resolver(self.internet.client.pid, NAMES, address4="127.0.0.53", address6=None)
        try:
            self.check_resolver("127.0.0.53", "special-purpose", ["127.0.0.54", "10.96.0.10"])
        finally:
            near.close()

    def test_public_resolver_is_like_any_public_host(self):
        results, _ = self.run_client([["names", "v4.public.example"], ["tcp", "8.8.8.8", 80]])
        self.assertEqual([r["error"] for r in results], [None, None])

    # -- the host's own addresses, kept current --

    def test_an_address_the_host_gets(self):
        for address, plain in (("9.9.9.77/32", "9.9.9.77"), ("2a0d:99::77/128", "2a0d:99::77")):
            with self.subTest(address):
                self.check_new_address(address, plain)

    def check_new_address(self, address, plain):
        command = self.internet.exec_command("tool-call", [sys.executable, "-I", MNT + "/client.py", "0.2", "one"], "--quiet")
        process = subprocess.Popen(self.internet.command(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def until(how):
            """Seconds until a try ends so; and how those before ended."""
            began, others = time.monotonic(), set()
            for line in process.stdout:
                if line.strip() == how:
                    return time.monotonic() - began, others
                others.add(line.strip())
                self.assertLess(time.monotonic() - began, 10 * SLOW, others)
            self.fail("the client ended: %r" % others)

        guard = threading.Timer(30 * SLOW, process.kill)
        guard.start()
        try:
            process.stdin.write(json.dumps(["again", plain, 9999]) + "\n")
            process.stdin.flush()
            self.assertEqual(until("ok")[1], set())
            change = "addr %%s %s dev eth0%s" % (address, " nodad" if ":" in address else "")
            self.internet.ip(change % "add")
            took, meanwhile = until("EPERM")
            self.assertLess(took, 1.0 * SLOW)
            self.assertLessEqual(meanwhile, {"ok", "ECONNREFUSED"})
            print("          %s: denied %.0f ms after it became the host's own" % (plain, took * 1000), flush=True)
            self.internet.ip(change.replace(" nodad", "") % "del")
            self.assertLess(until("ok")[0], 1.0 * SLOW)
            process.stdin.close()
            for _ in process.stdout:
                pass
            self.assertEqual(process.wait(10 * SLOW), 0)
        finally:
            guard.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
        events = self.internet.record().events
        self.assertEqual({(e["verdict"], e["reason"], e["rule_name"]) for e in events if e["address"] == plain},
                         {("allowed", "default", None), ("denied", "rule", "this-host")})
