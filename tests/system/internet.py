# SPDX-License-Identifier: Apache-2.0
"""A fake internet: two network namespaces and a cable. In one of them every address there is, is its own.

The client's namespace has addresses of both families, a default route through a gateway, and files of its own (resolv.conf,
nsswitch.conf, and a tmpfs at /mnt for whatever a test needs). Behind the gateway, everything is local: whoever listens there
listens at 8.8.8.8, at 10.1.2.3, at 169.254.169.254 and at fd00:ec2::254. Nothing can leave the host, as no device does.

Both namespaces live as long as one process each, and those end when this process does, however it does. No name, no mount and
no device of it exists anywhere else.
"""
import collections
import functools
import http.server
import json
import os
import select
import selectors
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.parse

from lib import BUILD, SLOW, WEIR, Capture, IP_PKTINFO, enter_netns, local_address

VECTOR = os.path.join(BUILD, "progs", "vector")
FLOOD = os.path.join(BUILD, "progs", "flood")
CLIENT4, CLIENT6 = "10.244.1.5", "fd00:244::5"
GATEWAY4, GATEWAY6 = "10.244.1.1", "fd00:244::1"
NEIGHBOUR6 = "fe80::a9fe:a9fe"  # the one link-local address that answers
# Where files of the client are: for it, and for this process.
MNT = "/mnt"

ETH_P_ALL, SO_RCVBUFFORCE = 3, 33
IPV6_FREEBIND, IPPROTO_UDPLITE, IPPROTO_MPTCP = 78, 136, 262

WAN = """
link set lo up
link add wan address 02:00:00:00:00:01 type veth peer name eth0 address 02:00:00:00:00:02 netns {client}
link set wan up
addr add 10.244.1.1/24 dev wan
addr add fd00:244::1/64 dev wan nodad
addr add fe80::a9fe:a9fe/64 dev wan nodad
route add 10.244.1.0/24 dev wan table local
route add local 0.0.0.0/0 dev lo table local
route add fd00:244::/64 dev wan table local
route add local ::/0 dev lo table local
"""
ETH0 = """
link set lo up
link set eth0 up
addr add 10.244.1.5/24 brd + dev eth0
addr add fd00:244::5/64 dev eth0 nodad
addr add fe80::5/64 dev eth0 nodad
route add default via 10.244.1.1 dev eth0
route add default via fd00:244::1 dev eth0
"""
# Before any device is up. Early data in the first SYN, without a cookie, from everyone to everyone.
SETTINGS = {
    "client": {"ipv4/tcp_fastopen": "5", "ipv4/tcp_fastopen_blackhole_timeout_sec": "0", "ipv4/ping_group_range": "0 2147483647"},
    "internet": {"ipv4/tcp_fastopen": "1538", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
                 "ipv4/conf/all/accept_local": "1", "ipv4/conf/default/accept_local": "1", "ipv4/icmp_ratelimit": "0",
                 "ipv4/conf/all/accept_source_route": "1", "ipv4/conf/default/accept_source_route": "1",
                 "ipv4/icmp_msgs_per_sec": "100000"},
    "both": {"ipv6/conf/default/accept_dad": "0", "ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/router_solicitations": "0",
             "ipv6/conf/default/accept_ra": "0", "ipv6/conf/all/seg6_enabled": "1", "ipv6/conf/default/seg6_enabled": "1",
             "ipv6/conf/default/mldv2_unsolicited_report_interval": "0", "ipv6/conf/default/addr_gen_mode": "1"},
}


def in_netns(pid, fn):
    """What fn() returns, called in that network namespace: by a thread, which leaves it by ending. Sockets stay where they were made."""
    box = {}

    def body():
        try:
            enter_netns(pid)
            box["value"] = fn()
        except BaseException as e:
            box["error"] = e

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(20)
    if "error" in box:
        raise box["error"]
    return box["value"]


class Holder:
    """A process that keeps namespaces alive, until it is closed or this process is no more (its stdin ends)."""

    def __init__(self, *namespaces):
        self.process = subprocess.Popen(["unshare", *namespaces, "--", "sh", "-c", "echo; read end"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.pid = self.process.pid
        if self.process.stdout.readline() != b"\n":
            self.close()
            raise AssertionError("no namespaces (%s): root?" % " ".join(namespaces))

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Wire(Capture):
    """Every packet that arrives at a device: `wan` hears what left the client by its cable, the client's `lo` what it told itself."""

    def __init__(self, pid, device):
        self.device = device
        super().__init__(pid)

    def _open(self, pid):
        try:
            enter_netns(pid)
            s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
            s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
            s.bind((self.device, ETH_P_ALL))
            s.setblocking(False)
            self.socket = s
        except OSError as e:
            self.error = e

    def packets(self):
        found = []
        while True:
            try:
                data, where = self.socket.recvfrom(1 << 17)
            except BlockingIOError:
                return [Packet(d) for d in found]
            if where[2] != self.OUTGOING and where[1] in (0x0800, 0x86DD):
                found.append(data)


class Packet:
    """An IP packet as it arrived: .to and .protocol of its outermost header, .port where there is one, .data everything."""

    def __init__(self, data):
        self.data, self.port = data, None
        if data[0] >> 4 == 4:
            head, self.protocol, self.to = (data[0] & 15) * 4, data[9], socket.inet_ntop(socket.AF_INET, data[16:20])
            self.source = socket.inet_ntop(socket.AF_INET, data[12:16])
            later = struct.unpack("!H", data[6:8])[0] & 0x1FFF
        else:
            head, self.protocol, self.to = 40, data[6], socket.inet_ntop(socket.AF_INET6, data[24:40])
            self.source = socket.inet_ntop(socket.AF_INET6, data[8:24])
            later = 0
        self.body = data[head:]
        if self.protocol in (6, 17, 33, 132, 136) and len(self.body) >= 4 and not later:
            self.port = struct.unpack("!H", self.body[2:4])[0]

    def is_chatter(self):
        """What kernels tell each other unasked: neighbours, routers, memberships."""
        kind = self.body[0] if self.body else None
        return self.protocol == 2 or (self.protocol == 58 and kind in (130, 131, 132, 133, 134, 135, 136, 137, 143)) or (
            self.protocol == 0 and self.data[0] >> 4 == 6 and self.to.startswith("ff02::"))

    def __repr__(self):
        return "<%d to %s port %s: %r>" % (self.protocol, self.to, self.port, self.data[-48:])


class Heard:
    """One datagram, or one connection with everything that has come over it so far."""

    def __init__(self, kind, address, port, data=b""):
        self.kind, self.address, self.port, self.data = kind, address, port, bytearray(data)

    def __repr__(self):
        return "<%s %s %d: %r>" % (self.kind, self.address, self.port, bytes(self.data[:60]))


def plain_listener(kind, port, family, protocol=0):
    """A listening socket on every address of a family, that may answer from any of them."""
    s = socket.socket(family, kind, protocol)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if kind == socket.SOCK_DGRAM and family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    elif kind == socket.SOCK_DGRAM:
        s.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    s.bind(("", port) if family == socket.AF_INET else ("::", port))
    if kind == socket.SOCK_STREAM:
        s.listen(64)
    s.setblocking(False)
    return s


class Ears:
    """Listens at every address of a namespace: UDP, UDP-Lite, TCP and MPTCP. Says nothing back over TCP."""

    def __init__(self, pid, udp_ports, tcp_ports, groups=()):
        self.heard, self.stopping = [], False
        self.groups = groups  # multicast, joined at the client's only device
        self.selector = selectors.DefaultSelector()
        self.wake, waker = socket.socketpair()
        self.waker = waker
        for kind, ports, protocols in ((socket.SOCK_DGRAM, udp_ports, (0, IPPROTO_UDPLITE)),
                                       (socket.SOCK_STREAM, tcp_ports, (IPPROTO_MPTCP,))):
            for port in ports:
                for protocol in protocols:
                    for family in (socket.AF_INET, socket.AF_INET6):
                        s = in_netns(pid, functools.partial(plain_listener, kind, port, family, protocol))
                        if kind == socket.SOCK_DGRAM:
                            self._join(pid, s, family)
                        take = self._datagram if kind == socket.SOCK_DGRAM else self._connection
                        self.selector.register(s, selectors.EVENT_READ, (take, port))
        self.selector.register(self.wake, selectors.EVENT_READ, None)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _join(self, pid, s, family):
        index = in_netns(pid, lambda: socket.if_nametoindex("eth0")) if self.groups else 0
        for group in self.groups:
            if (":" in group) != (family == socket.AF_INET6):
                continue
            address = socket.inet_pton(family, group)
            if family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, address + struct.pack("=I", index))
            else:
                s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, address + struct.pack("=4sI", bytes(4), index))

    def _datagram(self, s, port):
        data, control, _, _ = s.recvmsg(65536, 256)
        kind = "udplite" if s.proto == IPPROTO_UDPLITE else "udp"
        self.heard.append(Heard(kind, local_address(control), port, data))

    def _connection(self, s, port):
        c, _ = s.accept()
        c.setblocking(False)
        entry = Heard("tcp", c.getsockname()[0].split("%")[0], port)
        self.heard.append(entry)
        self.selector.register(c, selectors.EVENT_READ, (self._bytes, entry))

    def _bytes(self, s, entry):
        try:
            data = s.recv(65536)
        except ConnectionError:
            data = b""
        entry.data += data
        if not data:
            self.selector.unregister(s)
            s.close()

    def _serve(self):
        while not self.stopping:
            for key, _ in self.selector.select():
                if key.data:
                    try:
                        key.data[0](key.fileobj, key.data[1])
                    except OSError:
                        pass

    def close(self):
        self.stopping = True
        self.waker.close()
        self.thread.join(10)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()


# ---- names ----

A, AAAA = 1, 28


class Resolver:
    """Answers names from a table, over UDP and TCP, at every address of a namespace or at one.

    names: name -> list of addresses, or a list of such lists: one for each time the name is asked, the last again and again.
    .asked: names in the order they came.
    """

    def __init__(self, pid, names, address4="", address6="::", port=53):
        self.names, self.asked, self.counts, self.stopping = names, [], collections.Counter(), False
        self.sockets = []
        for family, address in ((socket.AF_INET, address4), (socket.AF_INET6, address6)):
            if address is None:
                continue
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                self.sockets.append(in_netns(pid, functools.partial(self._open, kind, family, address, port)))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @staticmethod
    def _open(kind, family, address, port):
        s = socket.socket(family, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            s.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
        else:
            s.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        s.bind((address, port))
        if kind == socket.SOCK_STREAM:
            s.listen(16)
        return s

    def _addresses(self, name):
        """Of both kinds of question, those of one round get the same answer."""
        entry = self.names.get(name)
        if entry is None:
            return None
        if entry and isinstance(entry[0], (list, tuple)):
            entry = entry[min(self.counts[name], len(entry) - 1)]
        return entry

    def answer(self, query):
        at, labels = 12, []
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1").lower())
            at += 1 + query[at]
        name, kind = ".".join(labels), struct.unpack("!H", query[at + 1 : at + 3])[0]
        self.asked.append(name)
        found = self._addresses(name)
        records = [socket.inet_pton(socket.AF_INET6 if ":" in a else socket.AF_INET, a) for a in found or ()
                   if (kind, ":" in a) in ((A, False), (AAAA, True))]
        if records:
            self.counts[name] += 1
        head = query[:2] + struct.pack("!HHHHH", 0x8180 | (3 if found is None else 0), 1, len(records), 0, 0)
        rows = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(r)) + r for r in records)
        return head + query[12 : at + 5] + rows

    def _udp(self, s):
        query, control, _, peer = s.recvmsg(4096, 256)
        reply = self.answer(query)
        # From the address that was asked; the device does not matter.
        source = []
        for level, kind, data in control:
            if level == socket.IPPROTO_IP:
                source = [(level, kind, bytes(4) + data[8:12] + bytes(4))]
            elif level == socket.IPPROTO_IPV6:
                source = [(level, kind, data[:16] + bytes(4))]
        s.sendmsg([reply], source, 0, peer)

    def _tcp(self, s):
        c, _ = s.accept()
        with c:
            c.settimeout(2)
            size = struct.unpack("!H", c.recv(2, socket.MSG_WAITALL))[0]
            reply = self.answer(c.recv(size, socket.MSG_WAITALL))
            c.sendall(struct.pack("!H", len(reply)) + reply)

    def _serve(self):
        while not self.stopping:
            for s in select.select(self.sockets, [], [], 0.05)[0]:
                try:
                    (self._udp if s.type == socket.SOCK_DGRAM else self._tcp)(s)
                except (OSError, IndexError, struct.error):
                    pass  # a question nobody can read gets no answer

    def close(self):
        self.stopping = True
        self.thread.join(10)
        for s in self.sockets:
            s.close()


# ---- the web ----


class WebHandler(http.server.BaseHTTPRequestHandler):
    """`/` is a page that says where it is; `/go?URL` sends to URL. Everything is noted in server.heard."""

    protocol_version = "HTTP/1.1"
    timeout = 5

    def do_GET(self):
        here = self.connection.getsockname()[0]
        self.server.heard.append(Heard("http", here, self.server.server_port, self.path.encode()))
        path, _, rest = self.path.partition("?")
        body = ("page of %s\n" % here).encode()
        self.send_response(302 if path == "/go" else 200)
        if path == "/go":
            self.send_header("Location", urllib.parse.unquote(rest))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Web:
    """HTTP and HTTPS at every address of a namespace; .heard of both."""

    def __init__(self, pid, ports=((80, None), (443, "tls")), tls=None):
        self.servers, self.heard = [], []
        for port, kind in ports:
            for family in (socket.AF_INET, socket.AF_INET6):
                server = http.server.ThreadingHTTPServer(("", port), WebHandler, bind_and_activate=False)
                server.socket.close()
                server.socket = in_netns(pid, functools.partial(plain_listener, socket.SOCK_STREAM, port, family))
                server.socket.setblocking(True)
                if kind == "tls":
                    # The handshake belongs to the connection's own thread.
                    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
                server.server_port, server.heard, server.daemon_threads = port, self.heard, True
                server.handle_error = lambda *_: None
                threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
                self.servers.append(server)

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()


def make_certificates(folder, names):
    """A CA and a server's certificate for `names`: ca.pem, server.pem, server.key."""
    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=fake internet CA", "-days", "2",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=%s" % names[0])
    with open(os.path.join(folder, "ext"), "w") as f:
        f.write("subjectAltName=%s\n" % ",".join("DNS:" + n for n in names))
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem",
            "-days", "2", "-extfile", "ext")


# ---- the whole ----


class Internet:
    """The two namespaces. close() ends everything; so does the end of this process."""

    def __init__(self, resolv_conf="nameserver 8.8.8.8\n"):
        self.parts, self.wires = [], []
        self.world = Holder("--net")
        try:
            self.client = Holder("--net", "--mount", "--propagation", "private")
        except BaseException:
            self.world.close()
            raise
        try:
            self._build(resolv_conf)
        except BaseException:
            self.close()
            raise

    def _build(self, resolv_conf):
        self._settings(self.client, "client")
        self._settings(self.world, "internet")
        self.nsenter(self.world, ["ip", "-batch", "-"], WAN.format(client=self.client.pid))
        self.nsenter(self.client, ["ip", "-batch", "-"], ETH0)
        self._settings(self.world, "internet")  # what was set for `all` before there was a device
        self.nsenter(self.client, ["mount", "-t", "tmpfs", "-o", "size=32m,mode=755", "internet", MNT], mounts=True)
        self.put("resolv.conf", resolv_conf)
        self.put("nsswitch.conf", "hosts: files dns\n")
        for name in ("resolv.conf", "nsswitch.conf"):
            if os.path.exists("/etc/" + name):
                self.nsenter(self.client, ["mount", "--bind", "%s/%s" % (MNT, name), os.path.realpath("/etc/" + name)], mounts=True)
        self.wan, self.lo = Wire(self.world.pid, "wan"), Wire(self.client.pid, "lo")
        self.wires += [self.wan, self.lo]

    @staticmethod
    def _settings(holder, side):
        def write():
            for name, value in {**SETTINGS["both"], **SETTINGS[side]}.items():
                path = "/proc/sys/net/" + name
                if os.path.exists(path):
                    with open(path, "w") as f:
                        f.write(value)

        in_netns(holder.pid, write)

    @staticmethod
    def nsenter(holder, command, text=None, mounts=False):
        inside = ["nsenter", "--net=/proc/%d/ns/net" % holder.pid] + (["--mount=/proc/%d/ns/mnt" % holder.pid] if mounts else [])
        done = subprocess.run(inside + ["--"] + command, input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise AssertionError("%r: %s" % (command, done.stderr))
        return done.stdout

    def ip(self, command):
        """`ip COMMAND` in the client."""
        return self.nsenter(self.client, ["ip", *command.split()])

    # -- the client's files --
    def path(self, name):
        """Of a file in the client's /mnt, as this process sees it."""
        return "/proc/%d/root%s/%s" % (self.client.pid, MNT, name)

    def put(self, name, content):
        """Writes it; returns the path as the client sees it."""
        if isinstance(content, (dict, list)):
            content = json.dumps(content, indent=1)
        with open(self.path(name), "w") as f:
            f.write(content)
        return "%s/%s" % (MNT, name)

    def get(self, name):
        with open(self.path(name)) as f:
            return f.read()

    # -- who is there --
    def add(self, part):
        self.parts.append(part)
        return part

    def ears(self, udp_ports=(53, 9999), tcp_ports=(53, 853, 9999)):
        return self.add(Ears(self.world.pid, udp_ports, tcp_ports))

    def resolver(self, names, **kw):
        return self.add(Resolver(self.world.pid, names, **kw))

    def web(self, names):
        """HTTP and HTTPS; the client trusts its CA by SSL_CERT_FILE (self.ca)."""
        make_certificates(self.path(""), names)
        self.ca = MNT + "/ca.pem"
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.path("server.pem"), self.path("server.key"))
        return self.add(Web(self.world.pid, tls=tls))

    # -- what the client does --
    def command(self, command):
        return ["nsenter", "--net=/proc/%d/ns/net" % self.client.pid, "--mount=/proc/%d/ns/mnt" % self.client.pid, "--wd=/",
                "--"] + list(command)

    def start(self, command, **kw):
        return subprocess.Popen(self.command(command), **kw)

    def run(self, command, input=None, timeout=60, env=None, **kw):
        """In the client, without Weir: CompletedProcess with text."""
        return subprocess.run(self.command(command), input=input, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=timeout * SLOW, env={**os.environ, **(env or {})}, **kw)

    def exec_command(self, policy, command, *options):
        """`weir exec` of it. policy: a path, a shipped name, or a document (put into a file)."""
        if isinstance(policy, dict):
            policy = self.put(policy["name"] + ".json", policy)
        return [WEIR, "exec", "--policy", policy, "--json", MNT + "/run.json", *options, "--", *command]

    def weir_exec(self, policy, command, *options, **kw):
        """Runs it under a policy: (CompletedProcess, Record)."""
        if os.path.exists(self.path("run.json")):
            os.unlink(self.path("run.json"))
        done = self.run(self.exec_command(policy, command, *options), **kw)
        if done.returncode == 125:
            raise AssertionError("weir exec failed: " + done.stderr)
        return done, self.record()

    def record(self):
        return Record(self.get("run.json"))

    def arrived(self, settle=0.05):
        """Packets since the last call, from both wires, without the kernels' own chatter."""
        time.sleep(settle)
        return [p for wire in self.wires for p in wire.packets() if not p.is_chatter()]

    def close(self):
        for part in reversed(self.parts):
            part.close()
        for wire in self.wires:
            wire.stop()
        self.client.close()
        self.world.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Record:
    """What `weir exec --json` wrote: .run about the whole, .events one for each distinct attempt."""

    def __init__(self, text):
        lines = [json.loads(line) for line in text.splitlines()]
        self.run = next(line for line in lines if line["type"] == "run")
        self.events = [line for line in lines if line["type"] == "event"]
