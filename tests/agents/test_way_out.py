# SPDX-License-Identifier: Apache-2.0
"""The way out of tools: to the public internet and nowhere else, by a process that is as small as it can be.

In a fake internet of namespaces that the test makes. First the way alone (tests/agents/carry.c): the gateway, one carrier, and a
command in a network namespace as a sandbox has it, under no policy of its own. So what is refused there, the carrier's own
policy refuses. Then with the whole service and a tool in it.
"""
import functools
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import fixture
from fixture import Agents
from internet import CLIENT4, CLIENT6, MNT, Ears, Internet, Resolver, in_netns, plain_listener
from lib import BUILD, IP_PKTINFO, SLOW, Service, cgroup_mounts, enter_netns, local_address

CARRY = os.path.join(BUILD, "agents", "carry")
PUBLIC4, PUBLIC6 = "93.184.216.34", "2606:2800:220:1::1946"
CARRIER_UIDS = range(0x7F100000, 0x8E100000)
AT_ONCE_MS = 50
ECHO, HOARD, STRANGE, SILENT, NOBODY = 7001, 7002, 7100, 9999, 4444
NAMES = {
    "www.public.example": [PUBLIC4], "v6.public.example": [PUBLIC6], "private.example": ["10.1.2.3"],
    "rebind.example": [[PUBLIC4], ["10.1.2.3"]], "rebind-meta.example": [[PUBLIC4], ["169.254.169.254"]],
}
ALLOW_ALL = {"name": "allow-all", "default": "allow"}
# Destination and the rule that must decide.
FORBIDDEN = [
    ("169.254.169.254", 80, "metadata"), ("fd00:ec2::254", 80, "metadata"), ("10.1.2.3", SILENT, "private"), ("172.16.9.9", SILENT, "private"),
    ("192.168.0.1", SILENT, "private"), ("100.64.1.1", SILENT, "private"), ("fd12:3456::1", SILENT, "private"), (CLIENT4, SILENT, "this-host"),
    (CLIENT6, SILENT, "this-host"),
]

# What both kinds of tests run in there. Every attempt is timed where it is made.
TOOLS = r'''
import errno, fcntl, hashlib, os, socket, struct, threading, time, urllib.request

timed = []

class Timed(socket.socket):
    def _note(self, address, call):
        began, error = time.monotonic(), None
        try:
            return call()
        except OSError as e:
            error = type(e).__name__ + ":" + errno.errorcode.get(e.errno, "")
            raise
        finally:
            timed.append({"to": address[0], "port": address[1], "error": error, "ms": (time.monotonic() - began) * 1000})

    def connect(self, address):
        return self._note(address, lambda: socket._socket.socket.connect(self, address))

    def sendto(self, data, address):
        return self._note(address, lambda: socket._socket.socket.sendto(self, data, address))

socket.socket = Timed


def fetch(url, timeout=5):
    try:
        with urllib.request.urlopen(url, timeout=timeout) as r:
            return {"page": r.read().decode(), "timed": timed}
    except OSError as e:
        e = getattr(e, "reason", e)
        return {"error": type(e).__name__, "timed": timed}


def connect(host, port, timeout=3, say=""):
    began = time.monotonic()
    try:
        with socket.create_connection((host, port), timeout=timeout) as s:
            s.sendall(say.encode())
            how = "connected"
    except OSError as e:
        how = type(e).__name__ + ":" + errno.errorcode.get(e.errno, "")
    return {"how": how, "ms": (time.monotonic() - began) * 1000}


def connect_all(places, timeout=3):
    return [connect(host, port, timeout) for host, port in places]


def udp(host, port, timeout=3):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(timeout)
        try:
            s.sendto(b"weir way out", (host, port))
            return s.recv(100).decode()
        except OSError as e:
            return type(e).__name__ + ":" + errno.errorcode.get(e.errno, "")


def gather(host, port, text, seconds):
    """Sends one datagram from a socket that is not connected: everything that comes back, and from whom."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(seconds)
        s.sendto(text.encode(), (host, port))
        try:
            while True:
                data, sender = s.recvfrom(1000)
                found.append([data.decode(), *sender])
        except TimeoutError:
            return sorted(found)


def many_datagrams(host, port, count):
    """From as many sockets at once: how many are answered."""
    held, answered = [], 0
    for _ in range(count):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.connect((host, port))
        s.settimeout(0.2)
        held.append(s)
        s.send(b"?")
        try:
            answered += s.recv(10) == b"?"
        except OSError:
            pass
    return {"answered": answered, "connect": connect(host, port)["how"]}


def names(host):
    began = time.monotonic()
    try:
        found = sorted({a[4][0] for a in socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)})
    except OSError as e:
        found = type(e).__name__
    return {"found": found, "ms": (time.monotonic() - began) * 1000}


def echo(host, port, size):
    """Both ways at once, whole; and the end of one direction while the other goes on."""
    data, got = os.urandom(1 << 20) * (size >> 20), hashlib.sha256()
    with socket.create_connection((host, port), timeout=30) as s:
        writer = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        began = time.monotonic()
        writer.start()
        while chunk := s.recv(1 << 16):
            got.update(chunk)
        writer.join()
    return {"same": got.digest() == hashlib.sha256(data).digest(), "s": time.monotonic() - began}


def unsent(host, port):
    """What a connection takes of somebody who reads nothing, and holds himself: the kernel's word for it (SIOCOUTQ)."""
    with socket.create_connection((host, port), timeout=30) as s:
        s.setblocking(False)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            try:
                s.send(bytes(1 << 20))
            except BlockingIOError:
                time.sleep(0.01)
        return struct.unpack("i", fcntl.ioctl(s, 0x5411, bytes(4)))[0]


def crowd(host, port, count):
    """At once, each with a text of its own, held until all are there."""
    ok, errors, gate = [], [], threading.Barrier(count)

    def one(i):
        text = (b"%d " % i) * 500
        try:
            with socket.create_connection((host, port), timeout=30) as s:
                gate.wait(30)
                s.sendall(text)
                s.shutdown(socket.SHUT_WR)
                back = b""
                while chunk := s.recv(65536):
                    back += chunk
            ok.append(back == text)
        except Exception as e:
            errors.append(repr(e))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return {"ok": len(ok), "all": all(ok), "errors": errors[:3]}


def hoard(host, port, count):
    """As many connections as it gets, with every buffer on the way full in both directions; then one more, and one after that."""
    held, errors, block = [], {}, b"x" * (1 << 20)
    for _ in range(count):
        s = socket.socket()
        s.settimeout(10)
        try:
            s.connect((host, port))
            s.setblocking(False)
            held.append(s)
        except OSError as e:
            errors[errno.errorcode.get(e.errno)] = errors.get(errno.errorcode.get(e.errno), 0) + 1
            s.close()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        for s in held:
            try:
                s.send(block)
            except BlockingIOError:
                pass
        time.sleep(0.1)
    count = len(held)
    for s in held:
        s.close()
    time.sleep(0.5)
    return {"held": count, "errors": errors, "after": connect(host, port)["how"]}


def wait_for_name(host, seconds):
    """Again and again until it is found: how long it took."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if names(host)["found"] not in ("gaierror", []):
            return time.monotonic() - began
        time.sleep(0.1)
    return None


def latency(host, port, count):
    found = []
    for _ in range(count):
        began = time.monotonic()
        socket.create_connection((host, port), timeout=5).close()
        found.append((time.monotonic() - began) * 1000)
    return sorted(found)


def listen(port, seconds):
    """How many connections came to any address of this sandbox."""
    heard, end = 0, time.monotonic() + seconds
    with socket.create_server(("0.0.0.0", port)) as s:
        s.settimeout(0.05)
        while time.monotonic() < end:
            try:
                s.accept()
                heard += 1
            except TimeoutError:
                pass
    return heard


def resolv_conf():
    with open("/etc/resolv.conf") as f:
        return [line.split()[1] for line in f if line.startswith("nameserver")]
'''


def serve_echo(listener, hold=False):
    """Sends back what comes, until its end; or (hold) as much as is taken, and reads nothing."""
    held = []

    def one(c):
        try:
            while data := c.recv(1 << 16):
                c.sendall(data)
            c.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        c.close()

    def stuff(c):
        c.setblocking(False)
        held.append(c)
        try:
            while True:
                c.send(b"y" * (1 << 20))
        except OSError:
            pass

    while True:
        try:
            c, _ = listener.accept()
        except OSError:
            return
        c.setblocking(True)
        threading.Thread(target=stuff if hold else one, args=(c,), daemon=True).start()


STRANGERS = ["10.1.2.3", "169.254.169.254", "8.8.4.4", "192.168.7.7"]


def strangers(port, peer):
    """Datagrams to where one came from, of others than the one it was sent to; and of that one, from another port."""
    for address in STRANGERS:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.bind((address, port))
            s.sendto(b"stranger", peer)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind((PUBLIC4, port + 1))
        s.sendto(b"stranger", peer)


def serve_datagrams(world, s):
    """Sends back what comes. To "strangers" others answer first."""
    while True:
        try:
            data, control, _, peer = s.recvmsg(65536, 256)
        except OSError:
            return
        if not data:
            return
        source = socket.inet_aton(local_address(control))
        if data == b"strangers":
            in_netns(world, functools.partial(strangers, STRANGE, peer))
        s.sendmsg([data], [(socket.IPPROTO_IP, IP_PKTINFO, bytes(4) + source + bytes(4))], 0, peer)


class World(Internet):
    """The fake internet with everything that these tests talk to."""

    def __init__(self, resolv_conf="nameserver 8.8.8.8\n"):
        super().__init__(resolv_conf)
        self.http = self.web(["*.example"])
        self.dns = self.resolver(NAMES)
        self.far = self.ears(udp_ports=(SILENT,), tcp_ports=(SILENT,))
        self.near = self.add(Ears(self.client.pid, (SILENT,), (SILENT,)))
        self.plain = []
        for port, hold in ((ECHO, False), (HOARD, True)):
            s = self.listener(socket.SOCK_STREAM, port)
            s.listen(1024)
            threading.Thread(target=serve_echo, args=(s, hold), daemon=True).start()
        threading.Thread(target=serve_datagrams, args=(self.world.pid, self.listener(socket.SOCK_DGRAM, ECHO)), daemon=True).start()

    def listener(self, kind, port):
        s = in_netns(self.world.pid, functools.partial(plain_listener, kind, port, socket.AF_INET))
        s.setblocking(True)
        self.plain.append(s)
        return s

    def local_resolver(self, address="127.0.0.53", names=None):
        """On the host itself, as systemd-resolved does it."""
        return self.add(Resolver(self.client.pid, names or NAMES, address4=address, address6=None))

    def forget(self):
        self.http.heard.clear()
        self.far.heard.clear()
        self.near.heard.clear()
        self.dns.counts.clear()

    def heard(self):
        time.sleep(0.05)
        return [h for h in self.http.heard + self.far.heard + self.near.heard]

    def close(self):
        for s in self.plain:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()
        super().close()


# ---- a host where whoever forwards is stopped, as Docker leaves it ----

NFT_BATCH_BEGIN, NFT_BATCH_END, NFT_NEWTABLE, NFT_NEWCHAIN, NFT_SUBSYS = 16, 17, 0, 3, 10
INET, HOOK_FORWARD, DROP = 1, 2, 0


def attribute(kind, data):
    return struct.pack("=HH", len(data) + 4, kind) + data + bytes(-len(data) % 4)


def drop_forwarding():
    """`nft add table inet filter; nft add chain inet filter forward { type filter hook forward priority 0; policy drop; }`"""
    name = attribute(1, b"filter\0")
    hook = attribute(4 | 0x8000, attribute(1, struct.pack("!I", HOOK_FORWARD)) + attribute(2, struct.pack("!i", 0)))
    chain = name + attribute(3, b"forward\0") + hook + attribute(5, struct.pack("!I", DROP)) + attribute(7, b"filter\0")
    messages = [(NFT_BATCH_BEGIN, 0, NFT_SUBSYS, b""), (NFT_SUBSYS << 8 | NFT_NEWTABLE, INET, 0, name),
                (NFT_SUBSYS << 8 | NFT_NEWCHAIN, INET, 0, chain), (NFT_BATCH_END, 0, NFT_SUBSYS, b"")]
    data = b""
    for i, (kind, family, resource_id, body) in enumerate(messages):
        flags = 1 | (0x400 | 4 if kind >= 256 else 0)  # request, create, acknowledge
        data += struct.pack("=IHHII", 20 + len(body), kind, flags, i + 1, 0) + struct.pack("!BBH", family, 0, resource_id) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as s:
        s.bind((0, 0))
        s.settimeout(5)
        s.send(data)
        for _ in range(2):
            answer = s.recv(4096)
            error = struct.unpack("=i", answer[16:20])[0]
            if error:
                raise OSError(-error, "nf_tables: " + os.strerror(-error))


def is_carrier(pid, net):
    """Of this net: there may be others."""
    try:
        with open("/proc/%s/status" % pid) as f:
            uid = int(re.search(r"^Uid:\s+(\d+)", f.read(), re.M).group(1))
        return uid in CARRIER_UIDS and os.path.samefile("/proc/%s/ns/net" % pid, "/proc/%d/ns/net" % net.client.pid)
    except OSError:
        return False  # it has ended


def looks(net):
    """What of the host a way out could have changed and left: devices, addresses, routes, forwarding; processes; cgroups."""
    ip = [net.ip(c) for c in ("-o link", "-o addr", "route show table all", "-6 route show table all", "rule")]
    forward = in_netns(net.client.pid, lambda: open("/proc/sys/net/ipv4/ip_forward").read())
    carriers = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if is_carrier(pid, net)]
    cgroups = [os.path.join(m, "weir", d) for m in cgroup_mounts() if os.path.isdir(m + "/weir") for d in os.listdir(m + "/weir") if d.startswith("run-carry-")]
    return {"ip": [re.sub(r"\d+sec", "", t) for t in ip], "forward": forward, "carriers": carriers, "cgroups": cgroups}


class Alone(unittest.TestCase):
    """Gateway and carrier, with whoever is behind the tap under no policy."""

    maxDiff = None
    figures = {}

    @classmethod
    def setUpClass(cls):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        cls.addClassCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        cls.net = World()
        cls.addClassCleanup(cls.net.close)
        cls.net.put("tools.py", TOOLS)
        cls.before = looks(cls.net)

    @classmethod
    def tearDownClass(cls):
        if cls.figures:
            print("          " + ", ".join("%s %s" % f for f in cls.figures.items()), flush=True)

    def setUp(self):
        self.net.put("resolv.conf", "nameserver 8.8.8.8\n")
        self.net.forget()

    def command(self, code, policy=None, options=()):
        if isinstance(policy, dict):
            policy = self.net.put(policy["name"] + ".json", policy)
        text = "import sys, json; sys.path.insert(0, %r); sys.dont_write_bytecode = True; from tools import *; print(json.dumps(%s))" % (MNT, code)
        return [CARRY, "-o", MNT + "/report.json", *(["-p", policy] if policy else []), *options, "--", sys.executable, "-I", "-c", text]

    def carry(self, code, policy=None, options=()):
        """What the expression is, and what the rig saw of the carrier."""
        done = self.net.run(self.command(code, policy, options), timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        report = json.loads(self.net.get("report.json"))
        self.assertTrue(report["alive"], "the carrier died")
        return json.loads(done.stdout), report

    def tearDown(self):
        self.assertEqual(looks(self.net), self.before)

    # -- what works --

    def test_pages_by_name(self):
        code = "[fetch('http://%s/' % h)['page'] for h in ('www.public.example', 'v6.public.example', '93.184.216.34')]"
        for policy in (None, "tool-call"):
            with self.subTest(policy):
                pages, report = self.carry(code, policy)
                self.assertEqual(pages, ["page of %s\n" % a for a in (PUBLIC4, PUBLIC6, PUBLIC4)])
        denied = [e for e in report["events"] if not e["allowed"]]
        self.assertEqual(denied, [])
        self.figures.update({"carry → carrying": "%.1f ms" % report["carry_ms"], "RSS": "%.1f MiB" % (report["rss_kib"] / 1024),
                             "its own": "%.1f MiB" % (report["private_kib"] / 1024)})

    def test_bytes_arrive_whole(self):
        result, _ = self.carry("echo(%r, %d, 16 << 20)" % (PUBLIC4, ECHO), "tool-call")
        self.assertTrue(result["same"])
        self.figures["both ways"] = "%.0f MiB/s each" % (16 / result["s"])

    def test_the_buffers_of_tcp_are_bounded(self):
        """Nobody is charged for them where the memory controller is v1."""
        unsent, _ = self.carry("unsent(%r, %d)" % (PUBLIC4, HOARD), "tool-call")
        self.assertLess(unsent, 768 << 10)

    def test_a_hundred_at_once(self):
        result, _ = self.carry("crowd(%r, %d, 100)" % (PUBLIC4, ECHO), "tool-call")
        self.assertEqual(result, {"ok": 100, "all": True, "errors": []})

    def test_datagrams(self):
        self.assertEqual(self.carry("udp(%r, %d)" % (PUBLIC4, ECHO), "tool-call")[0], "weir way out")

    def test_datagrams_of_strangers(self):
        """Who was sent nothing is not heard, though its datagram is taken by the host's socket: a program of the host hears it."""
        space = {}
        exec(TOOLS, space)
        here = in_netns(self.net.client.pid, lambda: space["gather"](PUBLIC4, ECHO, "strangers", 0.3))
        self.assertEqual(len(here), len(STRANGERS) + 2)
        for policy in (None, "tool-call"):
            found, _ = self.carry("gather(%r, %d, 'strangers', 0.5)" % (PUBLIC4, ECHO), policy)
            self.assertEqual(found, [["strangers", PUBLIC4, ECHO]])

    def test_nobody_listens(self):
        places = [(PUBLIC4, NOBODY), (PUBLIC6, NOBODY)]
        found, _ = self.carry("connect_all(%r)" % places, "tool-call")
        self.assertEqual([f["how"] for f in found], ["ConnectionRefusedError:ECONNREFUSED"] * 2)
        self.assertLess(max(f["ms"] for f in found), AT_ONCE_MS * SLOW)

    def test_what_a_connection_costs(self):
        here = in_netns(self.net.client.pid, lambda: [self._one_connect() for _ in range(40)])
        found, _ = self.carry("latency(%r, %d, 40)" % (PUBLIC4, ECHO), "tool-call")
        self.figures["connect"] = "%.2f ms (from the host itself %.2f ms)" % (statistics.median(found), statistics.median(here))
        self.assertLess(statistics.median(found), 10 * SLOW)

    @staticmethod
    def _one_connect():
        began = time.monotonic()
        socket.create_connection((PUBLIC4, ECHO), timeout=5).close()
        return (time.monotonic() - began) * 1000

    # -- name servers --

    def test_a_private_name_server(self):
        self.net.put("resolv.conf", "nameserver 10.0.0.53\n")
        (server, found, tcp), report = self.carry("[resolv_conf(), names('www.public.example')['found'], connect('10.0.0.53', 80)['how']]", "tool-call")
        self.assertEqual((server, found, tcp), (["10.0.0.53"], [PUBLIC4], "OSError:ENETUNREACH"))
        self.assertIn(("10.0.0.53", 53, True, "resolver"), {(e["address"], e["port"], e["allowed"], e["rule"]) for e in report["events"]})
        self.assertIn(("10.0.0.53", 80, False, "private"), {(e["address"], e["port"], e["allowed"], e["rule"]) for e in report["events"]})

    def test_a_name_server_on_the_host_itself(self):
        """127.0.0.53: the sandbox asks an address that stands for it, and reaches port 53 of it and nothing else of the host."""
        self.net.local_resolver()
        near = self.net.add(Ears(self.net.client.pid, (), (8053,)))
        self.net.put("resolv.conf", "nameserver 127.0.0.53\n")
        code = "[resolv_conf(), names('www.public.example')['found'], [connect(a, p)['how'] for a, p in (('198.18.0.3', 8053), ('198.18.0.2', 8053), ('198.18.0.3', 53))]]"
        (server, found, others), report = self.carry(code, "tool-call")
        self.assertEqual((server, found), (["198.18.0.3"], [PUBLIC4]))
        self.assertEqual(others, ["OSError:ENETUNREACH", "OSError:ENETUNREACH", "connected"])  # the last: names over TCP
        self.assertEqual({(e["address"], e["port"], e["rule"]) for e in report["events"]}, {("127.0.0.53", 53, "resolver")})
        # That is so under any policy: neither address leads to this host's loopback, but for names.
        found, _ = self.carry("connect_all([('198.18.0.3', 8053), ('198.18.0.2', 8053)])", ALLOW_ALL)
        self.assertEqual([f["how"] for f in found], ["OSError:ENETUNREACH"] * 2)
        self.assertEqual(near.heard, [])

    def test_a_name_server_on_the_link(self):
        """One that can be named only with the device of the host's that leads to it."""
        self.net.put("resolv.conf", "nameserver fe80::a9fe:a9fe%eth0\n")
        (server, found), report = self.carry("[resolv_conf(), names('www.public.example')['found']]", "tool-call")
        self.assertEqual((server, found), (["fd77:6569:7200::3"], [PUBLIC4]))
        self.assertEqual({(e["address"], e["port"], e["rule"]) for e in report["events"]}, {("fe80::a9fe:a9fe", 53, "resolver")})

    def test_the_host_changes_its_name_server(self):
        """Written anew in another file's place, as everybody does it: followed within seconds."""
        self.net.local_resolver("127.0.0.54", {"new.example": [PUBLIC4]})
        self.net.put("resolv.conf", "nameserver 127.0.0.99\n")
        running = self.net.start(self.command("wait_for_name('new.example', 15)"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        self.net.put("resolv.conf", "nameserver 127.0.0.54\n")
        out, err = running.communicate(timeout=30 * SLOW)
        self.assertEqual((running.returncode, err), (0, ""))
        self.assertLess(json.loads(out), 10 * SLOW)

    # -- what never leaves --

    def test_the_second_layer_refuses(self):
        """Nothing but the carrier's own policy is between these and who listens there."""
        code = "connect_all(%r)" % [f[:2] for f in FORBIDDEN]
        found, report = self.carry(code, "tool-call")
        self.assertEqual([f["how"] for f in found], ["OSError:ENETUNREACH"] * len(FORBIDDEN))
        self.assertLess(max(f["ms"] for f in found), AT_ONCE_MS * SLOW)
        denied = {(e["address"], e["port"], e["rule"]) for e in report["events"] if not e["allowed"]}
        self.assertEqual(denied, set(FORBIDDEN))
        self.assertEqual(self.net.heard(), [])
        # .. and without it they are all reached.
        found, report = self.carry(code, ALLOW_ALL)
        self.assertEqual([f["how"] for f in found], ["connected"] * len(FORBIDDEN))
        self.assertEqual({(h.address, h.port) for h in self.net.heard() if h.port == SILENT}, {f[:2] for f in FORBIDDEN if f[1] == SILENT})

    def test_datagrams_to_where_none_may_go(self):
        code = "[udp(a, %d, 0.1) for a in ('10.1.2.3', '169.254.169.254', %r)]" % (SILENT, CLIENT4)
        _, report = self.carry(code, "tool-call")
        self.assertEqual({(e["address"], e["rule"]) for e in report["events"] if not e["allowed"]},
                         {("10.1.2.3", "private"), ("169.254.169.254", "metadata"), (CLIENT4, "this-host")})
        self.assertEqual(self.net.heard(), [])
        self.carry(code, ALLOW_ALL)
        self.assertEqual({h.address for h in self.net.heard() if h.kind == "udp"}, {"10.1.2.3", "169.254.169.254", CLIENT4})

    # -- other hosts --

    def test_a_host_that_forwards_nothing(self):
        in_netns(self.net.client.pid, drop_forwarding)
        self.test_pages_by_name()

    def test_a_host_without_ipv6(self):
        self.net.ip("-6 route del default")
        try:
            (v6, v4, pages), _ = self.carry("[connect(%r, 80), connect(%r, 80), fetch('http://www.public.example/')['page']]" % (PUBLIC6, PUBLIC4), "tool-call")
        finally:
            self.net.ip("-6 route add default via fd00:244::1 dev eth0")
        self.assertEqual((v6["how"], v4["how"], pages), ("OSError:ENETUNREACH", "connected", "page of %s\n" % PUBLIC4))
        self.assertLess(v6["ms"], AT_ONCE_MS * SLOW)

    def test_as_many_connections_as_there_may_be(self):
        """With full buffers, which its memory must hold: it goes on, and so do later connections."""
        result, report = self.carry("hoard(%r, %d, 560)" % (PUBLIC4, HOARD), "tool-call")
        self.assertEqual((result["held"] - 512 in (0, 1), set(result["errors"]), result["after"]), (True, {"ENETUNREACH"}, "connected"), result)
        self.figures["512 full connections"] = "%.0f MiB" % (report["peak"] / 2**20)

    def test_what_a_carrier_is(self):
        """.. and that it ends with the gateway."""
        running = self.net.start(self.command("sys.stdin.read()", "tool-call"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 10 * SLOW
            while not (pid := looks(self.net)["carriers"]) and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(0.2)  # until it is what it is to be
            self.assertEqual(len(pid), 1)
            with open("/proc/%s/status" % pid[0]) as f:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
            fds = {n: os.readlink("/proc/%s/fd/%s" % (pid[0], n)) for n in os.listdir("/proc/%s/fd" % pid[0])}
            tree = sorted(os.path.join(d, n)[len("/proc/%s/root" % pid[0]):] for d, ds, fs in os.walk("/proc/%s/root" % pid[0]) for n in ds + fs)
            with open("/proc/%s/limits" % pid[0]) as f:
                files = re.search(r"Max open files\s+(\d+)\s+(\d+)", f.read()).groups()
            os.kill(int(status["PPid"]), signal.SIGKILL)
            while looks(self.net)["carriers"] and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(looks(self.net)["carriers"], [])
        finally:
            _, err = running.communicate("", timeout=30 * SLOW)
        self.assertEqual((running.returncode, err), (0, ""))
        self.assertEqual(status["Uid"], status["Gid"])
        self.assertEqual(len(set(status["Uid"].split())), 1)
        self.assertIn(int(status["Uid"].split()[0]), CARRIER_UIDS)
        self.assertEqual(status["Groups"].strip(), "")
        self.assertEqual({status[c] for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}, {"0" * 16})
        # Two filters: the gateway's is not enough.
        self.assertEqual([status[n] for n in ("NoNewPrivs", "Seccomp", "Seccomp_filters", "Threads")], ["1", "2", "2", "1"])
        self.assertEqual(sorted(fds.values()), ["/dev/net/tun"] + ["/dev/null"] * 3)
        self.assertEqual(tree, ["/etc", "/etc/resolv.conf"])
        self.assertEqual(files, ("517", "517"))


# ---- with the service ----


class Inside(Service):
    """Serves in the client of the fake internet, with its files; asked from there."""

    net = None

    def __init__(self, *options, binary=None, **kw):
        script = os.path.join(tempfile.mkdtemp(prefix="weir-test-inside-"), "weir")
        with open(script, "w") as f:
            f.write("#!/bin/sh\nexec nsenter --net=/proc/%d/ns/net --mount=/proc/%d/ns/mnt -- %s \"$@\"\n" % (self.net.client.pid, self.net.client.pid, binary))
        os.chmod(script, 0o755)
        self.script = script
        super().__init__(*options, binary=script, **kw)

    def request(self, *args, **kw):
        box = {}

        def body():
            try:
                enter_netns(self.net.client.pid)
                box["value"] = Service.request(self, *args, **kw)
            except BaseException as e:
                box["error"] = e

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        thread.join(160 * SLOW)
        if "error" in box:
            raise box["error"]
        return box["value"]

    def stop(self, *args, **kw):
        try:
            return super().stop(*args, **kw)
        finally:
            shutil.rmtree(os.path.dirname(self.script), ignore_errors=True)


def bpftool(*args):
    path = shutil.which("bpftool") or "/usr/sbin/bpftool"
    return subprocess.run([path, *args], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout


class WithTheService(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.net = World()
        cls.addClassCleanup(cls.net.close)
        cls.policy_file = os.path.join(tempfile.mkdtemp(prefix="weir-test-policy-"), "tools.json")
        cls.addClassCleanup(shutil.rmtree, os.path.dirname(cls.policy_file), True)
        with open(os.path.join(os.path.dirname(fixture.__file__), "..", "..", "policies", "tool-call.json")) as f:
            cls.tool_call = f.read()
        cls.write_policy(cls.tool_call)
        cls.before = looks(cls.net)
        patch = mock.patch.object(fixture, "Service", type("InThatNet", (Inside,), {"net": cls.net}))
        patch.start()
        cls.addClassCleanup(patch.stop)
        cls.snippets = os.path.join(os.path.dirname(cls.policy_file), "all.json")
        with open(cls.snippets, "w") as f:
            json.dump(ALLOW_ALL, f)
        cls.agents = Agents({"app.py": TOOLS}, options=("--tool-policy", cls.policy_file, "--policy", cls.snippets, "--pool", "1"))
        cls.addClassCleanup(cls.agents.stop)

    @classmethod
    def write_policy(cls, text):
        with open(cls.policy_file + ".new", "w") as f:
            f.write(text)
        os.rename(cls.policy_file + ".new", cls.policy_file)

    def setUp(self):
        self.net.forget()

    def reload(self, text):
        """The tools' policy, replaced while the service runs."""
        before = len(self.agents.service.log_text())
        self.write_policy(text)
        self.agents.service.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 10 * SLOW
        while "policy of tools replaced" not in self.agents.service.log_text()[before:]:
            if time.monotonic() > deadline:
                self.fail(self.agents.service.log_text()[before:])
            time.sleep(0.01)

    @staticmethod
    def denied(answer):
        return {(d["address"], d["port"], d["rule"]) for d in answer["egress"]["destinations"] if d["verdict"] == "denied"}

    def refused_at_once(self, found):
        self.assertEqual({f["how"] for f in found}, {"PermissionError:EPERM"})
        self.assertLess(max(f["ms"] for f in found), AT_ONCE_MS * SLOW)

    @staticmethod
    def devices(agents):
        """Of all sandboxes that are there, snippets' too."""
        agents.result("names", {"host": "localhost"})
        pids = [pids[0] for name, pids in agents.service.sandboxes().items() if pids and not name.endswith(".out")]
        # One that is just being born is still in the host's own.
        outside = os.readlink("/proc/%d/ns/net" % agents.service.process.pid)
        pids = [p for p in pids if os.path.exists("/proc/%d/ns/net" % p) and os.readlink("/proc/%d/ns/net" % p) != outside]
        lines = "".join(subprocess.run(["nsenter", "--net=/proc/%d/ns/net" % p, "ip", "-o", "link"], stdout=subprocess.PIPE, text=True).stdout for p in pids)
        return set(re.findall(r"^\d+: ([^:@]+)", lines, re.M))

    def test_a_page_by_name(self):
        self.assertEqual(self.devices(self.agents), {"lo", "eth0"})
        answer = self.agents.call("fetch", {"url": "http://www.public.example/"})
        self.assertEqual(answer["result"]["page"], "page of %s\n" % PUBLIC4)
        told = {(d["address"], d["port"], d["verdict"]) for d in answer["egress"]["destinations"]}
        self.assertEqual(told, {("8.8.8.8", 53, "allowed"), (PUBLIC4, 80, "allowed")})
        self.assertEqual(answer["egress"]["denied"], 0)
        self.assertEqual(self.agents.result("fetch", {"url": "http://v6.public.example/"})["page"], "page of %s\n" % PUBLIC6)

    def test_nowhere_else(self):
        port = self.agents.service.port
        places = [list(f[:2]) for f in FORBIDDEN] + [["127.0.0.1", port], [CLIENT4, port], ["198.18.0.2", port]]
        answer = self.agents.call("connect_all", {"places": places})
        self.refused_at_once(answer["result"])
        self.assertEqual(self.net.heard(), [])
        rules = set(FORBIDDEN) | {("127.0.0.1", port, "this-host"), (CLIENT4, port, "this-host"), ("198.18.0.2", port, "special-purpose")}
        self.assertEqual(self.denied(answer), rules)
        self.assertEqual(answer["egress"]["denied"], len(places))
        self.assertEqual((answer["egress"]["attempts"], answer["egress"]["lost"]), (len(places), 0))

    def test_by_a_name_a_redirect_and_a_name_that_turns(self):
        found = self.agents.call("fetch", {"url": "http://private.example/"})
        self.assertEqual(self.denied(found), {("10.1.2.3", 80, "private")})
        again = self.agents.call("fetch", {"url": "http://www.public.example/go?http://10.1.2.3/secret"})
        self.assertEqual(self.denied(again), {("10.1.2.3", 80, "private")})
        for answer in (found, again):
            self.assertEqual(answer["result"]["error"], "PermissionError")
            self.assertLess(answer["result"]["timed"][-1]["ms"], AT_ONCE_MS * SLOW)
        self.net.forget()
        for name, address, rule in (("rebind", "10.1.2.3", "private"), ("rebind-meta", "169.254.169.254", "metadata")):
            url = "http://%s.example/" % name
            self.assertEqual(self.agents.result("fetch", {"url": url})["page"], "page of %s\n" % PUBLIC4)
            turned = self.agents.call("fetch", {"url": url})
            self.assertEqual((turned["result"]["error"], self.denied(turned)), ("PermissionError", {(address, 80, rule)}))
        self.assertEqual({h.address for h in self.net.heard()}, {PUBLIC4})

    def test_reached_when_the_policy_allows_it(self):
        """The counter-proof: the same tool, the same listeners, another policy. And back."""
        places = [list(f[:2]) for f in FORBIDDEN]
        self.reload(json.dumps(ALLOW_ALL))
        try:
            answer = self.agents.call("connect_all", {"places": places})
        finally:
            self.reload(self.tool_call)
        self.assertEqual({f["how"] for f in answer["result"]}, {"connected"})
        self.assertEqual({(h.address, h.port) for h in self.net.heard() if h.port == SILENT}, {f[:2] for f in FORBIDDEN if f[1] == SILENT})
        self.refused_at_once(self.agents.result("connect_all", {"places": places}))

    def test_without_the_sandboxs_own_layer(self):
        """Its slot is pointed at a policy that allows everything, behind Weir's back: the carrier's refuses, and the record has it."""
        policies = self.agents.service.pins() + "/policies"
        forbidden = FORBIDDEN[:8]  # an answer lists sixteen: each of them twice, as both layers saw it
        places = [list(f[:2]) for f in forbidden]

        def value(slot):
            return json.loads(bpftool("-j", "map", "lookup", "pinned", policies, "key", "hex", "%02x" % slot, "00", "00", "00"))["value"]

        def put(slot, hexadecimal):
            bpftool("map", "update", "pinned", policies, "key", "hex", "%02x" % slot, "00", "00", "00", "value", "hex", *[v[2:] for v in hexadecimal])

        saved = value(1)
        put(1, value(0))
        try:
            answer = self.agents.call("connect_all", {"places": places})
        finally:
            put(1, saved)
        self.assertEqual({f["how"] for f in answer["result"]}, {"OSError:ENETUNREACH"})
        self.assertLess(max(f["ms"] for f in answer["result"]), AT_ONCE_MS * SLOW)
        self.assertEqual(self.net.heard(), [])
        self.assertEqual(self.denied(answer), set(forbidden))
        self.assertEqual((answer["egress"]["denied"], answer["egress"]["allowed"], answer["egress"]["lost"]), (len(forbidden), len(forbidden), 0))

    def test_a_carrier_that_dies(self):
        """The call goes on without a network; the next has one."""
        box = {}
        thread = threading.Thread(target=lambda: box.update(self.agents.call("wait_for_name", {"host": "nowhere.example", "seconds": 2})))
        thread.start()
        time.sleep(0.7 * SLOW)
        for pid in looks(self.net)["carriers"]:
            os.kill(int(pid), signal.SIGKILL)
        thread.join()
        self.assertEqual((box["termination"]["reason"], box["result"]), ("exit", None))
        for _ in range(4):  # those that waited have lost theirs too
            if "page" in self.agents.result("fetch", {"url": "http://www.public.example/"}):
                break
        self.assertIn("page", self.agents.result("fetch", {"url": "http://www.public.example/"}))

    def test_the_host_changes_its_name_server(self):
        """Sandboxes that wait are made anew: the next call finds names."""
        self.net.local_resolver("127.0.0.55", {"inside.example": [PUBLIC4]})
        try:
            self.assertEqual(self.agents.result("resolv_conf"), ["8.8.8.8"])  # so that some wait that know the old one
            self.net.put("resolv.conf", "nameserver 127.0.0.55\n")
            time.sleep(3 * SLOW)
            self.assertEqual(self.agents.result("resolv_conf"), ["198.18.0.3"])
            answer = self.agents.call("names", {"host": "inside.example"})
            self.assertEqual(answer["result"]["found"], [PUBLIC4])
            self.assertEqual({d["address"] for d in answer["egress"]["destinations"]}, {"198.18.0.3"})
        finally:
            self.net.put("resolv.conf", "nameserver 8.8.8.8\n")
            time.sleep(3 * SLOW)
        self.assertEqual(self.agents.result("resolv_conf"), ["8.8.8.8"])

    def test_no_way_out(self):
        asked = len(self.net.dns.asked)
        with Agents({"app.py": TOOLS}, options=("--no-internet-egress", "--pool", "1")) as agents:
            self.assertEqual(self.devices(agents), {"lo"})
            found = agents.call("names", {"host": "www.public.example"})
            self.assertEqual(found["result"]["found"], "gaierror")
            self.assertEqual({(d["dns_name"], d["verdict"]) for d in found["egress"]["destinations"]}, {("www.public.example", "denied")})
            self.refused_at_once(agents.result("connect_all", {"places": [[PUBLIC4, 80], [PUBLIC6, 80], ["10.1.2.3", SILENT]]}))
        self.assertEqual((self.net.heard(), len(self.net.dns.asked)), ([], asked))

    def test_nothing_stays(self):
        with Agents({"app.py": TOOLS}, options=("--pool", "1")) as agents:
            self.assertIn("page", agents.result("fetch", {"url": "http://www.public.example/"}))
            during = looks(self.net)
            self.assertEqual((during["ip"], during["forward"]), (self.before["ip"], self.before["forward"]))
            self.assertTrue(during["carriers"])
            name = agents.service.name()
        left = [os.path.join(m, "weir", name) for m in cgroup_mounts() if os.path.exists(os.path.join(m, "weir", name))]
        self.assertEqual((left, os.path.exists("/sys/fs/bpf/weir/" + name)), ([], False))

    def test_the_supervisor_is_killed(self):
        """Carriers go with it, as sandboxes do."""
        others = set(looks(self.net)["carriers"])
        agents = Agents({"app.py": TOOLS}, options=("--pool", "1"))
        try:
            self.assertIn("page", agents.result("fetch", {"url": "http://www.public.example/"}))
            its = set(looks(self.net)["carriers"]) - others
            self.assertTrue(its)
            agents.service.kill9()
            deadline = time.monotonic() + 5 * SLOW
            while (left := set(looks(self.net)["carriers"]) & its) and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertEqual(left, set())
        finally:
            agents.stop()

    @staticmethod
    def gateway(agents):
        """(pid, /proc/PID/status) of the supervisor's child that has exactly what it takes to start a carrier."""
        found = []
        with open("/proc/%d/task/%d/children" % (agents.service.process.pid, agents.service.process.pid)) as f:
            for pid in f.read().split():
                with open("/proc/%s/status" % pid) as status:
                    found.append((int(pid), dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)))
        wanted = "%016x" % sum(1 << n for n in (5, 6, 7, 8, 18))  # kill, setgid, setuid, setpcap, sys_chroot
        return [(pid, status) for pid, status in found if status["CapEff"] == status["CapPrm"] == wanted]

    def test_what_the_gateway_is(self):
        """Root, and able to make another process nobody; it ends the service when it ends."""
        agents = Agents({"app.py": TOOLS}, options=("--pool", "1"))
        try:
            self.assertIn("page", agents.result("fetch", {"url": "http://www.public.example/"}))
            [(pid, status)] = self.gateway(agents)
            self.assertEqual((status["NoNewPrivs"], status["Seccomp"], status["Threads"]), ("1", "2", "1"))
            os.kill(pid, signal.SIGKILL)
            self.assertEqual(agents.service.process.wait(10 * SLOW), 125)
            self.assertIn("gateway", agents.service.log_text())
        finally:
            agents.stop()

    def test_datagram_sockets_are_few(self):
        """Each is one of the host's few thousand ports."""
        answer = self.agents.call("many_datagrams", {"host": PUBLIC4, "port": ECHO, "count": 140})
        self.assertEqual(answer["result"], {"answered": 128, "connect": "connected"})

    def test_another_sandbox(self):
        """All have the same address, and each means itself by it: nobody hears another, whatever the policy says."""
        for text in (None, json.dumps(ALLOW_ALL)):
            if text:
                self.reload(text)
            try:
                box = {}
                ear = threading.Thread(target=lambda: box.update(heard=self.agents.result("listen", {"port": 7100, "seconds": 1.5})))
                ear.start()
                time.sleep(0.7)
                found = self.agents.result("connect_all", {"places": [["198.18.0.15", 7100], ["198.18.0.2", 7100], ["127.0.0.1", 7100]]})
                ear.join()
            finally:
                if text:
                    self.reload(self.tool_call)
            self.assertEqual(box["heard"], 0)
            self.assertNotIn("connected", {f["how"] for f in found})

    def test_a_host_that_loses_ipv6(self):
        """What waits is made anew, without a route that leads nowhere; and with one again."""
        def until(how):
            deadline = time.monotonic() + 10 * SLOW
            while (found := self.agents.result("connect", {"host": PUBLIC6, "port": 80}))["how"] != how and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertEqual(found["how"], how)
            self.assertLess(found["ms"], AT_ONCE_MS * SLOW)

        self.net.ip("-6 route del default")
        try:
            until("OSError:ENETUNREACH")
            self.assertIn("page", self.agents.result("fetch", {"url": "http://www.public.example/"}))
        finally:
            self.net.ip("-6 route add default via fd00:244::1 dev eth0")
        until("connected")


if __name__ == "__main__":
    unittest.main()
