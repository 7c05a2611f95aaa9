# SPDX-License-Identifier: Apache-2.0
"""What the system tests share: a real service on this host, and what this host looks like before and after."""
import ctypes
import glob
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("WEIR_BUILD", "build"))
WEIR = os.path.join(BUILD, "weir")
WEIR_HOOKS = os.path.join(BUILD, "weir-hooks")
TOKEN = "test-token-of-this-run"
# Everything here is slower under emulation.
SLOW = float(os.environ.get("WEIR_SLOW", "1"))

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Answer:
    """One HTTP answer: .status, .headers, .body (bytes), .json()."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return "<%d %s>" % (self.status, self.body[:400])


class Service:
    """`weir serve` on a free loopback port with a state directory of its own.

    With state= the directory is the caller's and stays: for restarts.
    """

    def __init__(self, *options, binary=WEIR, state=None, ready=True, pool=None):
        self.own_state = state is None
        self.state = state or tempfile.mkdtemp(prefix="weir-test-state-")
        self.port = free_port()
        self.log = tempfile.NamedTemporaryFile(prefix="weir-test-log-", suffix=".txt", delete=False)
        command = [binary, "serve", "--listen", "127.0.0.1:%d" % self.port, "--state-dir", self.state, "--dev-token", TOKEN]
        if pool:
            command += ["--pool", str(pool)]
        self.process = subprocess.Popen(command + list(options), stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            self.wait_until_up(ready)
        except BaseException:
            self.stop()
            raise

    def log_text(self):
        with open(self.log.name, errors="replace") as f:
            return f.read()

    def wait_until_up(self, ready):
        deadline = time.monotonic() + 30 * SLOW
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError("weir serve ended with %d:\n%s" % (self.process.returncode, self.log_text()))
            try:
                answer = self.request("GET", "/readyz" if ready else "/healthz", token=None)
                if answer.status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise RuntimeError("weir serve is not ready:\n" + self.log_text())

    def request(self, method, path, body=None, token=TOKEN, headers=None, timeout=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout or 130 * SLOW)
        try:
            send = dict(headers or {})
            if token is not None:
                send.setdefault("Authorization", "Bearer " + token)
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            if body is not None:
                send.setdefault("Content-Type", "application/json")
            connection.request(method, path, body=body, headers=send)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def execute(self, code, **fields):
        """Posts a snippet; returns the Answer whatever its status."""
        return self.request("POST", "/v1/execute", dict(fields, code=code))

    def run(self, code, **fields):
        """Posts a snippet that must run; returns the answer's object."""
        answer = self.execute(code, **fields)
        if answer.status != 200:
            raise AssertionError("%r\n%s" % (answer, self.log_text()))
        return answer.json()

    def audit(self, run_id):
        answer = self.request("GET", "/v1/runs/%s/audit" % run_id)
        if answer.status != 200:
            raise AssertionError(repr(answer))
        return answer.json()

    def pool(self):
        return self.request("GET", "/v1/pool").json()

    def wait_warm(self, count=None):
        deadline = time.monotonic() + 30 * SLOW
        while time.monotonic() < deadline:
            state = self.pool()
            if state["warm"] >= (count or state["size"]) and not state["starting"] and not state["in_use"]:
                return state
            time.sleep(0.02)
        raise AssertionError("the pool does not fill: %r" % (state,))

    # -- what the kernel knows of it --
    def cgroup(self):
        """The instance's cgroup2 directory."""
        for path in glob.glob(os.path.join(cgroup2_mount(), "weir", "serve*")):
            if self.name() == os.path.basename(path):
                return path
        raise AssertionError("no cgroup of this instance")

    def name(self):
        """The instance's name: the lock in /run/weir that our process holds."""
        for lock in glob.glob("/run/weir/*/lock"):
            try:
                inode = os.stat(lock).st_ino
            except FileNotFoundError:
                continue  # a neighbour's, that has just stopped
            with open("/proc/locks") as f:
                for line in f:
                    fields = line.split()
                    if fields[1] == "FLOCK" and int(fields[4]) == self.process.pid and int(fields[5].rsplit(":", 1)[1]) == inode:
                        return os.path.basename(os.path.dirname(lock))
        raise AssertionError("this instance holds no lock:\n" + self.log_text())

    def pins(self):
        return os.path.join("/sys/fs/bpf/weir", self.name())

    def sandboxes(self):
        """Names of the sandbox cgroups -> host pids in them."""
        found = {}
        base = self.cgroup()
        for entry in os.listdir(base):
            procs = os.path.join(base, entry, "cgroup.procs")
            if os.path.exists(procs):
                try:
                    with open(procs) as f:
                        found[entry] = [int(line) for line in f]
                except OSError:
                    pass  # removed while we looked
        return found

    def warm_box(self):
        """(name, host pid of the interpreter) of the one warm sandbox: of a service with pool=1, the next run gets it."""
        self.wait_warm()
        deadline = time.monotonic() + 10 * SLOW
        while time.monotonic() < deadline:
            boxes = [(name, pids) for name, pids in self.sandboxes().items() if pids]
            if len(boxes) == 1 and len(boxes[0][1]) == 2:
                name, pids = boxes[0]
                return name, next(pid for pid in pids if pid_ns_inside(pid) == 2)
            time.sleep(0.02)
        raise AssertionError("no single warm sandbox: %r" % boxes)

    def stop(self, timeout=15):
        """SIGTERM and wait; returns the exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(timeout * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.log.close()
        if os.path.exists(self.log.name):
            self.last_log = self.log_text()
            os.unlink(self.log.name)
        if self.own_state:
            shutil.rmtree(self.state, ignore_errors=True)
        return status

    def kill9(self):
        """SIGKILL of the supervisor alone. The state directory stays."""
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()


def weir(*args, binary=WEIR, stdin=None, timeout=120):
    """Runs a weir command to its end: CompletedProcess with bytes."""
    return subprocess.run([binary, *args], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout * SLOW)


def cgroup2_mount():
    with open("/proc/self/mountinfo") as f:
        for line in f:
            if " - cgroup2 " in line:
                return line.split()[4]
    raise AssertionError("no cgroup2 mount")


def cgroup_mounts():
    with open("/proc/self/mountinfo") as f:
        return [line.split()[4] for line in f if " - cgroup2 " in line or " - cgroup " in line]


def pid_ns_inside(pid):
    """Pid of a process as its innermost pid namespace sees it."""
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"^NSpid:.*?(\d+)$", f.read(), re.M).group(1))


def enter_netns(pid):
    """Moves the calling thread into the network namespace of `pid`."""
    fd = os.open("/proc/%d/ns/net" % pid, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(fd)


IP_PKTINFO = 8  # <linux/in.h>; Python's socket module does not have it


def local_address(control):
    """The address a datagram was sent to, from the ancillary data that came with it."""
    for level, kind, data in control:
        if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):
            return socket.inet_ntop(socket.AF_INET, data[8:12])
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            return socket.inet_ntop(socket.AF_INET6, data[:16])
    return None


class Capture:
    """Every packet that leaves through any device of a sandbox's network namespace, whatever its protocol or port."""

    OUTGOING = 4  # PACKET_OUTGOING: loopback shows each packet twice, leaving and arriving

    def __init__(self, pid):
        self.socket = self.error = None
        thread = threading.Thread(target=self._open, args=(pid,), daemon=True)
        thread.start()
        thread.join(10)
        if not self.socket:
            raise AssertionError("no capture: %r" % (self.error,))

    def _open(self, pid):
        """In a thread of its own, which leaves its namespace by ending; the socket stays where it was made."""
        try:
            enter_netns(pid)
            s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))  # ETH_P_ALL
            s.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
            s.setblocking(False)
            self.socket = s
        except OSError as e:
            self.error = e

    def packets(self):
        """The packets since the last call, oldest first, from the IP header on."""
        found = []
        while True:
            try:
                data, where = self.socket.recvfrom(1 << 17)
            except BlockingIOError:
                return found
            if where[2] == self.OUTGOING:
                found.append(data)

    def stop(self):
        self.socket.close()


class Listener:
    """UDP and TCP listeners inside a sandbox's own network namespace, on every address there (all of them are local).

    They are sockets of the test, not of the sandbox: what they hear has really left the sandbox's socket.
    .heard: list of (kind, local address, port, payload).
    """

    def __init__(self, pid, udp_ports=(53, 5353, 9999), tcp_ports=(53, 80, 443, 8080)):
        self.heard, self.stopping, self.up, self.error = [], False, threading.Event(), None
        self.thread = threading.Thread(target=self._serve, args=(pid, udp_ports, tcp_ports), daemon=True)
        self.thread.start()
        if not self.up.wait(10) or self.error:
            raise AssertionError("no listener: %r" % (self.error,))

    def _serve(self, pid, udp_ports, tcp_ports):
        sockets = []
        try:
            enter_netns(pid)
            for family, any_address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                for kind, ports in ((socket.SOCK_DGRAM, udp_ports), (socket.SOCK_STREAM, tcp_ports)):
                    for port in ports:
                        s = socket.socket(family, kind)
                        if family == socket.AF_INET6:
                            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
                        else:
                            s.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
                        s.bind((any_address, port))
                        if kind == socket.SOCK_STREAM:
                            s.listen(16)
                        s.setblocking(False)
                        sockets.append((s, kind, port))
        except OSError as e:
            self.error = e
            self.up.set()
            return
        self.up.set()
        import select

        poll = select.poll()
        by_fd = {}
        for s, kind, port in sockets:
            poll.register(s, select.POLLIN)
            by_fd[s.fileno()] = (s, kind, port)
        while not self.stopping:
            for fd, _ in poll.poll(50):
                s, kind, port = by_fd[fd]
                try:
                    if kind == socket.SOCK_DGRAM:
                        payload, control, _, _ = s.recvmsg(65536, 256)
                        self.heard.append(("udp", local_address(control), port, payload))
                    else:
                        connection, _ = s.accept()
                        self.heard.append(("tcp", connection.getsockname()[0], port, b""))
                        connection.close()
                except OSError:
                    pass
        for s, _, _ in sockets:
            s.close()

    def stop(self):
        self.stopping = True
        self.thread.join(10)


def bpftool(*args):
    """What `bpftool -j ARGS` prints, decoded."""
    tool = next((p for p in ("/usr/sbin/bpftool", "/sbin/bpftool") if os.path.exists(p)), "bpftool")
    out = subprocess.run([tool, "-j", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout
    return json.loads(out) if out.strip() else []


class HostState:
    """Counts of everything that a run could leave behind, on the whole host."""

    def __init__(self, service=None):
        self.counts = {
            "processes": self._processes(),
            "cgroups": sum(sum(len(d) for _, d, _ in os.walk(os.path.join(m, "weir"))) for m in cgroup_mounts()),
            "mounts": sum(1 for _ in open("/proc/self/mountinfo")),
            "network namespaces": len({self._link(p, "net") for p in self._pids()}),
            "bpf objects": self._bpf(),
            "run files": sum(len(f) + len(d) for _, d, f in os.walk("/run/weir")),
            "temporary files": len([n for n in os.listdir("/tmp") if not n.startswith(("weir-test-", "tmp"))]),
        }
        if service:
            for pid in self._tree(service.process.pid):
                comm = open("/proc/%d/comm" % pid).read().strip()
                if comm == "weir":
                    key = "fds of weir process %d" % sorted(self._tree(service.process.pid)).index(pid)
                    self.counts[key] = len(os.listdir("/proc/%d/fd" % pid))

    @staticmethod
    def _pids():
        return [int(p) for p in os.listdir("/proc") if p.isdigit()]

    @staticmethod
    def _link(pid, ns):
        try:
            return os.readlink("/proc/%d/ns/%s" % (pid, ns))
        except OSError:
            return None

    @classmethod
    def _processes(cls):
        """Every process of Weir's or of a sandbox: by name and by uid."""
        n = 0
        for pid in cls._pids():
            try:
                if os.stat("/proc/%d" % pid).st_uid >= 0x70000000 or open("/proc/%d/comm" % pid).read().strip() in ("weir", "weir-init"):
                    n += 1
            except OSError:
                pass
        return n

    @classmethod
    def _tree(cls, pid):
        found = [pid]
        for p in cls._pids():
            try:
                with open("/proc/%d/stat" % p) as f:
                    if int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                        found.append(p)
            except OSError:
                pass
        return found

    @staticmethod
    def _bpf():
        tool = next((p for p in ("/usr/sbin/bpftool", "/sbin/bpftool") if os.path.exists(p)), "bpftool")
        total = 0
        for kind in ("prog", "map", "link"):
            out = subprocess.run([tool, "-j", kind, "show"], stdout=subprocess.PIPE, check=True).stdout
            total += len(json.loads(out or b"[]"))
        return total

    def difference(self, other):
        return {k: (self.counts[k], other.counts.get(k)) for k in self.counts if self.counts[k] != other.counts.get(k)}
