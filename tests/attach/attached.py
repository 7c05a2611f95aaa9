# SPDX-License-Identifier: Apache-2.0
"""What tests of attached policies share: a /run and a bpffs of their own, cgroups, and workloads that talk when they are told to."""
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from internet import Holder, in_netns
from lib import SLOW, WEIR, cgroup2_mount

NOBODY = 65534
DENIED, ALLOWED = "10.1.2.3", "198.51.100.7"  # by POLICY
POLICY = {"name": "test-attach", "default": "deny", "rules": [{"name": "web", "verdict": "allow", "to": ALLOWED, "protocol": ["tcp", "udp"], "ports": 443}]}
KEYS = {
    "attachment": {"id", "target", "policy", "coverage", "reasons", "state", "problems", "counters", "lost", "foreign", "foreign_beyond", "canary", "resolvers", "attached"},
    "sockets": {"sockets", "sockets_beyond"},
    "parent": {"unknown", "unknown_counters"},
    "target": {"kind", "ref", "cgroup", "cgroup_id", "level", "runtime", "container", "pod"},
    "policy": {"name", "source", "sha256", "generation"},
    "reason": {"name", "detail", "text", "mend"},
    "problem": {"name", "text"},
    "counters": {"attempts", "denied", "allowed", "would_deny", "inbound", "unlisted", "packets", "bytes"},
    "canary": {"proven", "attempts", "denied", "would_deny", "leaf", "why"},
    "socket": {"pid", "comm", "protocol", "local", "remote", "state", "elsewhere", "verdict"},
    "events": {"written", "by_pid", "text"},
}

# Lines in: "tcp ADDRESS PORT" or "udp ADDRESS PORT" to open one and keep it, "send N" to write on the Nth. A line out: the errno.
TALK = """
import socket, sys
kept = []
print("up", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    try:
        if word == "send":
            kept[int(rest[0])].settimeout(5)
            kept[int(rest[0])].send(b"x")
        elif word == "name":
            open("/proc/self/comm", "wb").write(bytes.fromhex(rest[0]))
        else:
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if word == "tcp" else socket.SOCK_DGRAM)
            s.settimeout(5)
            s.connect((rest[0], int(rest[1])))
            kept.append(s)
        print(0, flush=True)
    except OSError as e:
        print(e.errno or 110, flush=True)
"""

_numbers = itertools.count(1)


class Apart:
    """A mount namespace with an empty /run and a bpffs of its own: what is attached elsewhere on this host is not seen, nor touched."""

    def __init__(self):
        self.holder = Holder("--mount", "--propagation", "private")
        self.sh("mkdir -p /sys/fs/bpf && mount -t tmpfs -o mode=755 tmpfs /run && mount -t bpf -o mode=700 bpf /sys/fs/bpf")

    def enter(self, *command):
        return ["nsenter", "--mount=/proc/%d/ns/mnt" % self.holder.pid, "--", *command]

    def sh(self, script):
        return subprocess.run(self.enter("sh", "-c", script), check=True, stdout=subprocess.PIPE, text=True).stdout

    def weir(self, *args, binary=WEIR, stdin=None, env=None, timeout=60, before=()):
        """Runs a weir command to its end: CompletedProcess, with text. That it takes its time, on a busy machine, is left out."""
        done = subprocess.run(
            self.enter(*before, binary, *args), input=stdin if stdin is not None else "", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=timeout * SLOW, text=True, env=env, cwd="/",
        )  # fmt: skip
        done.stderr = re.sub("(?m)^weir: attaching takes a moment: .*\n", "", done.stderr)
        return done

    def json(self, *args, expect=0):
        done = self.weir(*args, "--json")
        if done.returncode != expect:
            raise AssertionError("weir %s: %d\n%s%s" % (" ".join(args), done.returncode, done.stdout, done.stderr))
        return json.loads(done.stdout)

    def pins(self):
        return self.sh("ls /sys/fs/bpf/weir/attached 2>/dev/null || true").split()

    def close(self):
        self.weir("detach", "--all")
        self.holder.close()


class Network:
    """A network namespace in which every address is local, and something of the test's listens on port 443 of all of them."""

    SETUP = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && echo up && read end"

    def __init__(self):
        self.process = subprocess.Popen(["unshare", "--net", "sh", "-c", self.SETUP], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        if self.process.stdout.readline() != b"up\n":
            raise AssertionError("no network namespace")
        self.sockets = in_netns(self.pid, self.listen)

    @staticmethod
    def listen():
        tcp, udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for s in (tcp, udp):
            s.bind(("0.0.0.0", 443))
        tcp.listen(1024)  # connections are never taken from the queue, and so stay open
        return tcp, udp

    def close(self):
        for s in self.sockets:
            s.close()
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Cgroup:
    """A directory of the test's at the root of the cgroup2 hierarchy, and what it is asked to make below."""

    def __init__(self):
        self.name = "weir-test-attached-%d-%d" % (os.getpid(), next(_numbers))
        self.dir = os.path.join(cgroup2_mount(), self.name)
        os.mkdir(self.dir)

    def make(self, path):
        """Its path below the hierarchy's root."""
        os.makedirs(os.path.join(self.dir, path), exist_ok=True)
        return "/%s/%s" % (self.name, path)

    def full(self, path):
        return os.path.join(self.dir, path)

    def remove(self, path=""):
        """Ends what is in it and removes it with all below."""
        top = os.path.join(self.dir, path)
        if not os.path.isdir(top):
            return
        with open(os.path.join(top, "cgroup.kill"), "w") as f:
            f.write("1")
        deadline = time.monotonic() + 10 * SLOW
        for folder, _, _ in os.walk(top, topdown=False):
            while True:
                try:
                    os.rmdir(folder)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)


class Workload:
    """A process in a cgroup, in a network namespace, without privileges unless `root`, that opens what it is told to."""

    def __init__(self, directory, network, root=False):
        drop = [] if root else ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        procs = os.path.join(directory, "cgroup.procs")

        def join():
            with open(procs, "w") as f:
                f.write("0")

        self.process = subprocess.Popen(
            ["nsenter", "--net=/proc/%d/ns/net" % network.pid, "--", *drop, "/usr/bin/python3", "-c", TALK],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=join, cwd="/",
        )  # fmt: skip
        self.pid = self.process.pid
        if self.process.stdout.readline() != "up\n":
            raise AssertionError("the workload does not start")

    def ask(self, *words):
        """The errno, 0 when it went well."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def tcp(self, address, port=443):
        return self.ask("tcp", address, port)

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10 * SLOW)


class Folder:
    """A directory for files that others may read."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="weir-test-attached-")
        os.chmod(self.path, 0o755)

    def put(self, name, content):
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def close(self):
        shutil.rmtree(self.path)


class AttachedCase(unittest.TestCase):
    """A cgroup of its own for each test; whatever was attached is taken off at its end, and nothing of it is left."""

    apart = None  # the module's: setUpModule() says which

    def setUp(self):
        self.cgroup = Cgroup()
        self.addCleanup(self.tidy)

    def tidy(self):
        self.apart.weir("detach", "--all")
        self.cgroup.remove()
        self.assertEqual(self.apart.pins(), [])
