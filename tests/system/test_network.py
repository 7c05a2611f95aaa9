# SPDX-License-Identifier: Apache-2.0
"""What a snippet can send: nothing. It learns that at once, and the audit has every attempt.

A row is one way out: how it is tried inside, and what the audit must say of it. Each table of rows runs twice: under the
default policy, where a capture and listeners in the sandbox's own network namespace hear nothing; and under allow-all,
where the same packets arrive. So a row that tries nothing at all fails in the second.
"""
import collections
import errno
import ipaddress
import json
import os
import socket
import struct
import threading
import time
import unittest

from lib import TOP, Capture, Listener, Service, SLOW, bpftool
from network_rows import INSIDE, UNKNOWN_NAME, destination_rows, library_rows, name_rows, way_rows

ALLOW_ALL = os.path.join(TOP, "tests", "policies", "allow-all.json")
AT_ONCE_MS = 50
MAIN_PID = 2  # of the interpreter, as it sees itself
UDP_PORTS, TCP_PORTS = (53, 5353, 5355, 9999), (53, 80, 443, 853, 8080)

# ---- one run, watched ----

Seen = collections.namedtuple("Seen", "answer audit tries packets heard box host_pid uid command")


def transport_of(packet):
    """(protocol, destination, port, payload, TCP flags) of an IP packet."""
    if packet[0] >> 4 == 4:
        header, protocol, to = (packet[0] & 15) * 4, packet[9], socket.inet_ntop(socket.AF_INET, packet[16:20])
    else:
        header, protocol, to = 40, packet[6], socket.inet_ntop(socket.AF_INET6, packet[24:40])
        if protocol == socket.IPPROTO_ROUTING:
            header, protocol = header + (packet[header + 1] + 1) * 8, packet[header]
    body = packet[header:]
    port = struct.unpack("!H", body[2:4])[0] if len(body) >= 4 else None
    if protocol == socket.IPPROTO_UDP:
        return "udp", to, port, body[8:], 0
    if protocol == socket.IPPROTO_TCP:
        return "tcp", to, port, body[(body[12] >> 4) * 4 :], body[13]
    return "ip-proto-%d" % protocol, to, port, body, 0


def first_packets(packets):
    """What was sent on purpose: datagrams and opening SYNs; not the kernel's own answers and acknowledgements."""
    found = []
    for protocol, to, port, payload, flags in map(transport_of, packets):
        if protocol == "udp" or (protocol == "tcp" and flags & 0x12 == 0x02):
            found.append((protocol, to, port, payload if protocol == "udp" else b""))
    return found


def watch(service, code, settle=0.05, **fields):
    """Runs a snippet in the warm sandbox, with a capture and listeners in its network namespace."""
    box, pid = service.warm_box()
    with open("/proc/%d/comm" % pid) as f:
        command = f.read().strip()
    uid = os.stat("/proc/%d" % pid).st_uid
    capture, listener = Capture(pid), Listener(pid, UDP_PORTS, TCP_PORTS)
    try:
        answer = service.run("open('tries.py', 'w').write(%r)\nfrom tries import *\n%s" % (INSIDE, code), **fields)
        time.sleep(settle)  # for what might still be under way
        packets, audit = capture.packets(), service.audit(answer["run_id"])
    finally:
        capture.stop()
        listener.stop()
    if answer["sandbox_id"] != box:
        raise AssertionError("watched %s, but the run got %s" % (box, answer["sandbox_id"]))
    tries = [json.loads(line) for line in answer["stdout"].splitlines()]
    return Seen(answer, audit, tries, packets, list(listener.heard), box, pid, uid, command)


class Rows(unittest.TestCase):
    """Runs a table under self.service's policy."""

    maxDiff = 4000
    options, allowed = (), False
    slowest = {}  # label -> ms, for whoever wants the figures

    @classmethod
    def setUpClass(cls):
        cls.service = Service(*cls.options, pool=1)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def check_rows(self, rows):
        self.assertEqual(len({r.label for r in rows}), len(rows))
        code = "\n".join(r.code for r in rows)
        late = None
        # What is slow once may be this machine's doing; what is slow each time is not.
        for _ in range(3):
            seen = watch(self.service, code)
            self.assertEqual(seen.answer["stderr"], "")
            ms = {t["label"]: t["ms"] for t in seen.tries}
            self.check_ends(rows, seen)
            self.check_audit(rows, seen)
            self.check_wire(rows, seen)
            Rows.slowest.update({("allowed " if self.allowed else "denied ") + k: v for k, v in ms.items()})
            late = {k: v for k, v in ms.items() if v > AT_ONCE_MS * SLOW and (late is None or k in late)}
            if self.allowed or not late:
                return
        self.fail("not at once, three times: %r" % late)

    def check_ends(self, rows, seen):
        tries = {t["label"]: t for t in seen.tries}
        self.assertEqual(sorted(t["label"] for t in seen.tries), sorted(r.label for r in rows))
        wrong = []
        for row in rows:
            want, _ = row.per_verdict(self.allowed)
            t = tries[row.label]
            got = (t["error"], t["errno"]) if t["error"] else None
            if want is None and got or want and want[0] != "*" and got != want or want == ("*", None) and not got:
                wrong.append((row.label, "wanted", want, "got", got, t["value"]))
        self.assertEqual(wrong, [])

    def check_audit(self, rows, seen):
        verdict = "allowed" if self.allowed else "denied"
        tries = {t["label"]: t for t in seen.tries}
        want = collections.Counter()
        for row in rows:
            _, events = row.per_verdict(self.allowed)
            t = tries[row.label]
            for protocol, address, port, name, hook in events:
                who = (MAIN_PID, seen.command) if row.parent_too else (t["pid"], t["command"])
                want[(protocol, address, port, name, hook, verdict) + who] += 1 + row.parent_too
        events = seen.audit["events"]
        members = ("protocol", "address", "port", "dns_name", "hook", "verdict", "pid")
        got = [tuple(e[m] for m in members) + (unescape(e["command"]), e["count"]) for e in events]
        self.assertEqual(sorted(got, key=repr), sorted((k + (n,) for k, n in want.items()), key=repr))

        attempts = sum(want.values())
        counts = {"attempts": attempts, "denied": 0 if self.allowed else attempts, "allowed": attempts if self.allowed else 0,
                  "would_deny": 0, "inbound": 0, "lost": 0}  # fmt: skip
        self.assertEqual({k: seen.answer["egress"][k] for k in counts}, counts)
        self.assertEqual(seen.audit["egress"], dict(counts, exact=True, events_missing=0))
        self.assertEqual(seen.answer["egress"]["destinations"], destinations_of(events)[:16])

        self.assertEqual((seen.audit["sandbox_id"], seen.audit["run_id"]), (seen.box, seen.box))
        hosts = {}
        for e in events:
            options = (e["dns_name"] or "").startswith("behind-") and not self.allowed
            reason = "ipv4_options" if options else "default"
            self.assertEqual((e["uid"], e["attribution"], e["reason"]), (seen.uid, "current", reason), e)
            mapped = e["hook"] == "connect6" and "." in e["address"]
            self.assertEqual((e.get("decode_kind"), e.get("decode")),
                             ("mapped", ["::ffff:" + e["address"], e["address"]]) if mapped else (None, None), e)  # fmt: skip
            self.assertTrue(seen.audit["began"] <= e["time"] <= seen.audit["ended"], e)
            self.assertEqual(hosts.setdefault(e["pid"], e["host_pid"]), e["host_pid"], e)
        self.assertEqual(hosts[MAIN_PID], seen.host_pid)
        self.assertEqual(len(set(hosts.values())), len(hosts))
        self.assertTrue(all(isinstance(pid, int) and pid > 1 for pid in hosts.values()), hosts)

        kinds = {(e["address"], e["port"], e["dns_name"]): e for e in events}
        for row in rows:
            if row.malformed is None:
                continue
            _, address, port, name, _ = row.audit[0]
            malformed, kind = row.malformed
            self.assertEqual(kinds[address, port, name].get("dns_malformed"), malformed, row.label)
            if kind:
                self.assertEqual(kinds[address, port, name]["dns_type"], kind, row.label)

    def check_wire(self, rows, seen):
        if not self.allowed:
            self.assertEqual(list(map(transport_of, seen.packets)), [])
            self.assertEqual(seen.heard, [])
            return
        left, heard = first_packets(seen.packets), seen.heard
        want = [p for r in rows for p in r.arrives]
        self.assertEqual(shorten(left), shorten(want))
        # Whether a socket that joined no group hears a multicast is up to the kernel; the capture has it.
        heard, must = collections.Counter(shorten(heard)), collections.Counter(shorten(p for r in rows for p in r.heard))
        may = must | collections.Counter(shorten(want))
        self.assertEqual((must - heard, heard - may), (collections.Counter(), collections.Counter()))


def shorten(packets):
    """Sorted and comparable; a query's id is random when the C library has made it."""
    return sorted((p, str(ipaddress.ip_address(a)), n, (payload[2:] if n == 53 else payload)[:80], len(payload)) for p, a, n, payload in packets)


def pinned_entries(service, name):
    return len(bpftool("map", "dump", "pinned", os.path.join(service.pins(), name)))


def destinations_of(events):
    """What an answer lists: events by what people see of a destination, in the order in which they first came."""
    found = {}
    for e in events:
        key = tuple(e[k] for k in ("protocol", "address", "port", "dns_name", "verdict", "reason", "rule_name"))
        found[key] = found.get(key, 0) + e["count"]
    members = ("protocol", "address", "port", "dns_name", "verdict", "reason", "rule")
    return [dict(zip(members, key), count=count) for key, count in found.items()]


def unescape(command):
    r"""The audit writes what is not printable as \xNN."""
    return command.encode().decode("unicode_escape") if command else command


class Denied(Rows):
    def test_destinations(self):
        self.check_rows(destination_rows())

    def test_names(self):
        self.check_rows(name_rows())

    def test_ways_to_send(self):
        self.check_rows(way_rows())


    def test_names_of_the_library(self):
        self.check_rows(library_rows(every=not self.allowed))

    def test_both_families_at_once(self):
        """getaddrinfo() without a family asks twice if it can; how often it tries when it can't is the C library's choice."""
        seen = watch(self.service, "attempt('both', lambda: socket.getaddrinfo('both.attacker.example', 443))")
        events = seen.audit["events"]
        self.assertEqual((seen.tries[0]["error"], seen.tries[0]["errno"]), UNKNOWN_NAME)
        self.assertEqual({(e["dns_name"], e["address"], e["port"], e["pid"]) for e in events}, {("both.attacker.example", "127.0.0.1", 53, 2)})
        self.assertIn(sum(e["count"] for e in events), (2,) if self.allowed else (1, 2))
        self.assertEqual(seen.answer["egress"]["attempts"], sum(e["count"] for e in events))
        self.assertEqual(len(seen.heard), 2 if self.allowed else 0)


class Allowed(Denied):
    """The same rows under allow-all: everything that was denied above does arrive."""

    options, allowed = ("--policy", ALLOW_ALL), True


class Sockets(unittest.TestCase):
    """Families, types and protocols that a snippet can't have at all: they fail before there is anything to send."""

    FAMILIES = {0: "UNSPEC", 3: "AX25", 4: "IPX", 5: "APPLETALK", 9: "X25", 15: "KEY", 16: "NETLINK", 17: "PACKET", 21: "RDS", 29: "CAN",
                30: "TIPC", 31: "BLUETOOTH", 33: "RXRPC", 36: "IEEE802154", 38: "ALG", 39: "NFC", 40: "VSOCK", 41: "KCM", 42: "QIPCRTR",
                43: "SMC", 44: "XDP", 45: "MCTP", 46: "46", 255: "255", 65535: "65535"}
    INET = (
        (2, 1, "ping"), (2, 58, "ping6"), (1, 132, "SCTP"), (5, 132, "SCTP packets"), (6, 33, "DCCP"), (2, 33, "DCCP datagrams"),
        (2, 136, "UDP-Lite"), (1, 262, "MPTCP"), (1, 256, "SMC"), (2, 115, "L2TP"), (3, 0, "raw"), (3, 1, "raw ICMP"), (3, 6, "raw TCP"),
        (3, 17, "raw UDP"), (3, 58, "raw ICMPv6"), (3, 255, "raw IP"), (1, 17, "stream of UDP"), (2, 6, "datagrams of TCP"),
        (4, 0, "RDM"), (5, 0, "SEQPACKET"), (10, 0, "obsolete PACKET"), (1, 99, "99"), (2, 99, "99"),
    )
    CODE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
SOCKET, SOCKETPAIR = 41, 53

def made(nr, *args):
    fds = (ctypes.c_int * 2)()
    fd = libc.syscall(ctypes.c_long(nr), *(ctypes.c_ulong(a) for a in args), fds)
    return fd if fd < 0 else os.close(fd) or 0

for family, kind, protocol in %r:
    for high in (0, 1 << 32, 1 << 63):  # the kernel reads 32 bits; a filter that reads 64 lets these through
        for flags in (0, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC):
            attempt("%%d/%%d/%%d %%x %%x" %% (family, kind, protocol, high, flags),
                    lambda: check(made(SOCKET, family | high, kind | flags | high, protocol | high)))
    attempt("%%d/%%d/%%d pair" %% (family, kind, protocol), lambda: check(made(SOCKETPAIR, family, kind, protocol)))
"""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=1)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def test_refused(self):
        wanted = [(f, k, 0) for f in self.FAMILIES for k in (1, 2, 3, 5)] + [(f, k, p) for f in (2, 10) for k, p, _ in self.INET]
        # The counter-proof: this kernel has a good part of them, so it is the sandbox that refuses.
        here = [w for w in wanted if self.can_make(*w)]
        self.assertGreaterEqual({f for f, _, _ in here}, {16, 17, 2, 10})
        self.assertGreaterEqual(len(here), 10, here)
        seen = watch(self.service, self.CODE % (wanted,), timeout_s=30)
        self.assertEqual(seen.answer["stderr"], "")
        self.assertEqual(len(seen.tries), 7 * len(wanted))
        self.assertEqual([t for t in seen.tries if t["error"] is None or t["ms"] > AT_ONCE_MS * SLOW], [])
        errnos = {errno.errorcode[t["errno"]] for t in seen.tries}
        self.assertLessEqual(errnos, {"EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ENOSYS"})
        self.assertEqual((seen.audit["egress"]["attempts"], seen.packets, seen.heard), (0, [], []))

    @staticmethod
    def can_make(family, kind, protocol):
        try:
            socket.socket(family, kind, protocol).close()
            return True
        except OSError:
            return False

    def test_unix_sockets_among_its_own(self):
        """They work, by path, abstract name and pair, and reach nothing of the host."""
        name = "\0weir-test-%d" % os.getpid()
        with socket.socket(socket.AF_UNIX) as host:
            host.bind(name)
            host.listen(4)
            host.settimeout(0.2)
            with socket.socket(socket.AF_UNIX) as other:
                other.connect(name)  # the counter-proof: here it can be reached
                host.accept()[0].close()
            seen = watch(self.service, """
def own(name):
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(name)
        server.listen()
        client.connect(name)
        with server.accept()[0] as s:
            client.send(b"hello")
            return s.recv(9).decode()

def to(name):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(name)

attempt("path", lambda: own("/tmp/own"))
attempt("abstract", lambda: own("\\0own"))
attempt("host", lambda: to(%r))
for path in ("dbus/system_bus_socket", "nscd/socket", "systemd/resolve/io.systemd.Resolve", "docker.sock", "containerd/containerd.sock", "weir.sock"):
    attempt(path, lambda: to("/run/" + path))
""" % name)
            with self.assertRaises(TimeoutError):
                host.accept()
        ends = {t["label"]: (t["value"], t["error"]) for t in seen.tries}
        self.assertEqual((ends.pop("path"), ends.pop("abstract")), (("hello", None), ("hello", None)))
        self.assertEqual(ends.pop("host"), (None, "ConnectionRefusedError"))
        self.assertEqual(set(ends.values()), {(None, "FileNotFoundError")})
        self.assertEqual(seen.audit["egress"]["attempts"], 0)

    def test_own_server_on_loopback(self):
        """Listening works; connecting to oneself is an attempt like any other, and fails at once instead of hanging."""
        seen = watch(self.service, """
async def serve_and_connect():
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 8000)
    await async_connect(("127.0.0.1", 8000))

attempt("asyncio", lambda: asyncio.run(serve_and_connect()))
import http.server
attempt("http", lambda: http.server.HTTPServer(("127.0.0.1", 8001), None).socket.getsockname()[1])
""")
        self.assertEqual([(t["error"], t["value"]) for t in seen.tries], [("PermissionError", None), (None, 8001)])
        events = [(e["protocol"], e["address"], e["port"], e["verdict"], e["count"]) for e in seen.audit["events"]]
        self.assertEqual(events, [("tcp", "127.0.0.1", 8000, "denied", 1)])


class Flood(unittest.TestCase):
    """More attempts than anybody wants to read: counted exactly, told in bounded detail, at nobody else's cost."""

    SENDS, NAMES, PORTS, CHILDREN = 100000, 5000, 5000, 4
    LISTED = 1024  # LIMIT_AUDIT_FLOWS

    CODE = """
s = socket.socket(INET, DGRAM)
refused = 0

def send(payload, address):
    global refused
    try:
        s.sendto(payload, address)
    except PermissionError:
        refused += 1
"""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=2)
        cls.service.wait_warm()

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def run_snippet(self, code, **fields):
        answer = self.service.run("open('tries.py', 'w').write(%r)\nfrom tries import *\n%s%s" % (INSIDE, self.CODE, code), **fields)
        self.assertEqual(answer["stderr"], "")
        return answer, self.service.audit(answer["run_id"])

    def flood(self):
        return self.run_snippet("""
for _ in range(%d): send(b"x", ("192.0.2.1", 9999))
for i in range(%d):
    name = b"secret-%%d" %% i
    send(bytes(4) + bytes([0, 1]) + bytes(6) + bytes([len(name)]) + name + b"\\0\\0\\1\\0\\1", ("192.0.2.2", 53))
for i in range(%d): send(b"x", ("192.0.2.3", 10000 + i))
print(refused)
""" % (self.SENDS, self.NAMES, self.PORTS), timeout_s=60)

    def modest(self):
        """Three hundred destinations, spread over the time of the flood."""
        return self.run_snippet("""
for i in range(300):
    send(b"x", ("198.51.100.%d" % (i % 250), 9000 + i))
    time.sleep(0.003)
print(refused)
""")

    def test_flood_is_exact_and_bounded_and_costs_nobody_else(self):
        results = {}
        threads = [threading.Thread(target=lambda n=n, f=f: results.update({n: f()})) for n, f in (("flood", self.flood), ("modest", self.modest))]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120 * SLOW)
        answer, audit = results["flood"]
        total = self.SENDS + self.NAMES + self.PORTS
        self.assertEqual(answer["stdout"], "%d\n" % total)
        egress, events = answer["egress"], audit["events"]
        self.assertEqual((egress["attempts"], egress["denied"], egress["allowed"]), (total, total, 0))
        # One entry has the whole flood, the next thousand have one each; the rest is counted as what it is, lost.
        self.assertEqual(len(events), self.LISTED)
        self.assertEqual(egress["lost"], total - sum(e["count"] for e in events))
        self.assertEqual(egress["lost"], self.NAMES + self.PORTS - (self.LISTED - 1))
        self.assertEqual((events[0]["address"], events[0]["port"], events[0]["count"]), ("192.0.2.1", 9999, self.SENDS))
        self.assertEqual([e["dns_name"] for e in events[1:]], ["secret-%d" % i for i in range(self.LISTED - 1)])
        self.assertEqual({e["count"] for e in events[1:]}, {1})
        self.assertEqual(len(egress["destinations"]), 16)
        self.assertEqual((egress["destinations"][0]["address"], egress["destinations"][0]["count"]), ("192.0.2.1", self.SENDS))
        self.assertEqual([d["dns_name"] for d in egress["destinations"][1:]], ["secret-%d" % i for i in range(15)])
        self.assertEqual(audit["egress"], dict({k: egress[k] for k in ("attempts", "denied", "allowed", "would_deny", "inbound", "lost")}, exact=True, events_missing=0))

        answer, audit = results["modest"]
        self.assertEqual(answer["stdout"], "300\n")
        self.assertEqual({k: answer["egress"][k] for k in ("attempts", "denied", "lost")}, {"attempts": 300, "denied": 300, "lost": 0})
        self.assertEqual([(e["address"], e["port"], e["count"]) for e in audit["events"]],
                         [("198.51.100.%d" % (i % 250), 9000 + i, 1) for i in range(300)])

        # And nothing of it stays in the kernel's tables.
        self.service.wait_warm()
        self.assertEqual(pinned_entries(self.service, "flows"), 0)
        self.assertEqual(pinned_entries(self.service, "sandboxes"), 2)

    def test_counts_are_exact_from_several_processes_at_once(self):
        answer, audit = self.run_snippet("""
pids = []
for n in range(%d):
    pid = os.fork()
    if pid == 0:
        t = threading.Thread(target=lambda: [send(b"x", ("192.0.2.1", 9999)) for _ in range(2500)])
        t.start()
        for _ in range(2500): send(b"x", ("192.0.2.1", 9999))
        for i in range(100): send(b"x", ("192.0.2.2", 20000 + i))
        t.join()
        os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
""" % self.CHILDREN)
        total = self.CHILDREN * 5100
        self.assertEqual({k: answer["egress"][k] for k in ("attempts", "denied", "lost")}, {"attempts": total, "denied": total, "lost": 0})
        counts = {(e["address"], e["port"]): e["count"] for e in audit["events"]}
        want = {("192.0.2.2", 20000 + i): self.CHILDREN for i in range(100)}
        want["192.0.2.1", 9999] = self.CHILDREN * 5000
        self.assertEqual(counts, want)

    def test_datagram_sockets_are_bounded(self):
        """Over all processes of a run; what is over the bound is refused where it is pointed somewhere, and said so in the audit."""
        limit = 1024  # WEIR_SOCKETS_PER_SANDBOX
        answer, audit = self.run_snippet("""
kept = []

def point(n):
    try:
        for _ in range(n):
            kept.append(socket.socket(INET, DGRAM))
            kept[-1].connect(("192.0.2.1", 9999))
    except PermissionError:
        kept.pop()
    return len(kept)

ready, go = os.pipe(), os.pipe()
if os.fork() == 0:
    os.write(ready[1], b"%d" % point(700))
    os.read(go[0], 1)
    os._exit(0)
print(os.read(ready[0], 9).decode(), point(700))
os.write(go[1], b".")
os.wait()
print(point(100))  # the child's places are free again
""")
        self.assertEqual(answer["stdout"], "700 %d\n%d\n" % (limit - 700, limit - 600))
        events = [(e["address"], e["port"], e["hook"], e["reason"], e["count"], e["pid"]) for e in audit["events"]]
        self.assertEqual(events, [("192.0.2.1", 9999, "connect4", "socket_limit", 1, 2)])
        self.assertEqual(answer["egress"]["attempts"], 1)

    def test_what_is_sent_last_is_there(self):
        """However a run ends: its last attempt, and the last of a loop."""
        for how, reason in (
            ("os._exit(0)", "exit"),
            ("os.kill(os.getpid(), 9)", "signal"),
            ("while True: n += 1; send(b'x', ('192.0.2.2', 9999)); n % 1000 or print(n)", "timeout"),
        ):
            with self.subTest(how=how):
                code = "import os\nfrom socket import socket, AF_INET as INET, SOCK_DGRAM as DGRAM\n" + self.CODE.replace("socket.socket", "socket")
                code += "n = 0\nsend(b'x', ('192.0.2.1', 9999))\n" + how
                answer = self.service.run(code, timeout_s=max(1, round(SLOW / 2)))
                audit = self.service.audit(answer["run_id"])
                self.assertEqual(answer["termination"]["reason"], reason)
                counts = {e["address"]: e["count"] for e in audit["events"]}
                self.assertEqual(counts.pop("192.0.2.1"), 1)
                printed = int((answer["stdout"].split() or [0])[-1])
                self.assertEqual(sum(counts.values()) + 1, answer["egress"]["attempts"])
                self.assertTrue(printed <= sum(counts.values()) <= printed + 1000, (printed, counts))
                self.assertEqual((answer["egress"]["denied"], answer["egress"]["lost"]), (answer["egress"]["attempts"], 0))


if __name__ == "__main__":
    unittest.main()
