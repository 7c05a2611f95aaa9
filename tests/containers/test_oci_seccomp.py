# SPDX-License-Identifier: Apache-2.0
"""The seccomp profile that `weir policy export` writes, on real containers: runc applies it, and Python in the container asks.

Every question is put three times: without a profile, where the kernel answers; with it; and to `weir exec` under the same
policy, whose filter the profile is to be. tests/unit/test_filter_host_oci.c compares the two over all names and arguments.
crun applies profiles by the same library, and refuses hosts that have hierarchies of cgroup version 1: it is not run here.
"""
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from boxes import shared
from lib import WEIR, weir

PYTHON = "/usr/bin/python3"
NUMBERS = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"]
X32 = 0x40000000
HIGH = 1 << 32
NOTHING = 2**64 - 1  # what no system call can make anything of

# Reads questions, {what: [number, arguments]}, and prints what each came to: 0, an errno, or minus the signal that ended the caller.
ASK = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def ask(nr, args):
    pid = os.fork()
    if pid == 0:
        rc = libc.syscall(ctypes.c_long(nr), *[ctypes.c_ulong(a) for a in args])
        os._exit(ctypes.get_errno() if rc < 0 else 0)
    status = os.waitpid(pid, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
print(json.dumps({what: ask(nr, args) for what, (nr, args) in json.load(open(sys.argv[1])).items()}))
"""

# What people write: threads, processes, files, sockets, an event loop, a database.
ORDINARY = """
import asyncio, concurrent.futures, ctypes, mmap, multiprocessing, os, select, signal, socket, sqlite3, ssl, subprocess, sys, tempfile, threading, time
def twice(n): return 2 * n
async def talk():
    async def answer(r, w):
        w.write((await r.readline()).upper()); await w.drain(); w.close()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname())
    w.write(b"hello\\n"); await w.drain()
    return await r.readline()
assert asyncio.run(talk()) == b"HELLO\\n"
a, b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
a.bind(("127.0.0.1", 0)); b.sendto(b"x", a.getsockname()); assert a.recv(9) == b"x"
assert socket.getaddrinfo("127.0.0.1", 80)
left, right = socket.socketpair(); left.send(b"y"); assert right.recv(9) == b"y"
with concurrent.futures.ThreadPoolExecutor(4) as pool: assert sum(pool.map(twice, range(4))) == 12
with multiprocessing.Pool(2) as pool: assert sum(pool.map(twice, range(4))) == 12
assert subprocess.run([sys.executable, "-c", "print(6 * 7)"], stdout=subprocess.PIPE, check=True).stdout == b"42\\n"
with tempfile.NamedTemporaryFile() as f:
    db = sqlite3.connect(f.name); db.execute("create table t (n)"); db.execute("insert into t values (42)"); db.commit()
    n = db.execute("select n from t").fetchone()[0]
mmap.mmap(-1, 4096).close(); ssl.create_default_context(); os.urandom(8); os.sched_getaffinity(0)
signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.02)
print(n)
"""


def sock(family, kind, protocol=0):
    return [41, [family, kind, protocol]]


TCP, UDP, RAW, SEQ = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET
INET, INET6, UNIX, NETLINK, PACKET, VSOCK, XDP = 2, 10, 1, 16, 17, 40, 44

# Question: the call, and the answer with a profile of a policy that says nothing of sockets or system calls.
QUESTIONS = {
    "an ordinary call": ([39, []], 0),
    "a number of tomorrow": ([1000, []], errno.ENOSYS),
    "mount": ([165, [0, 0, 0, 0, 0]], errno.EPERM),
    "mount, high halves set": ([165, [HIGH] * 5], errno.EPERM),
    "setns": ([308, [NOTHING, 0]], errno.EPERM),
    "bpf": ([321, [0, 0, 0]], errno.EPERM),
    "ptrace": ([101, [NOTHING, 0, 0, 0]], errno.EPERM),
    "keyctl": ([250, [NOTHING, 0, 0, 0, 0]], errno.EPERM),
    "pidfd_getfd": ([438, [NOTHING, 0, 0]], errno.EPERM),
    "clone3": ([435, [0, 0]], errno.ENOSYS),
    "io_uring_setup": ([425, [0, 0]], errno.ENOSYS),
    "clone into a user namespace": ([56, [0x10000000 | signal.SIGCHLD, 0, 0, 0, 0]], errno.EPERM),
    "unshare of users": ([272, [0x10000000]], errno.EPERM),
    "unshare of the network": ([272, [0x40000000]], errno.EPERM),
    "unshare of time": ([272, [0x80]], errno.EPERM),
    "unshare of files": ([272, [0x400]], 0),
    "TIOCSTI": ([16, [99, 0x5412, 0]], errno.EPERM),
    "TIOCSTI, high half set": ([16, [99, HIGH | 0x5412, 0]], errno.EPERM),
    "TUNSETIFF": ([16, [99, 0x400454CA, 0]], errno.EPERM),
    "the ioctl before TUNSETIFF": ([16, [99, 0x400454C9, 0]], errno.EBADF),
    "another ioctl": ([16, [99, 0x5413, 0]], errno.EBADF),
    "TCP": (sock(INET, TCP), 0),
    "TCP with flags, by number": (sock(INET6, TCP | socket.SOCK_CLOEXEC, 6), 0),
    "UDP": (sock(INET, UDP, 17), 0),
    "unix": (sock(UNIX, SEQ), 0),
    "a pair": ([53, [UNIX, TCP, 0, 0]], errno.EFAULT),
    "a pair of netlink sockets": ([53, [NETLINK, RAW, 0, 0]], errno.EAFNOSUPPORT),
    "netlink": (sock(NETLINK, RAW), errno.EAFNOSUPPORT),
    "netlink, high half set": (sock(HIGH | NETLINK, RAW), errno.EAFNOSUPPORT),
    "packet": (sock(PACKET, RAW), errno.EAFNOSUPPORT),
    "vsock": (sock(VSOCK, TCP), errno.EAFNOSUPPORT),
    "XDP": (sock(XDP, RAW), errno.EAFNOSUPPORT),
    "SOCK_PACKET": (sock(INET, 10), errno.EPERM),
    "raw": (sock(INET, RAW, 1), errno.EPERM),
    "raw, high half set": (sock(INET, HIGH | RAW, 255), errno.EPERM),
    "ping": (sock(INET, UDP, 1), errno.EPROTONOSUPPORT),
    "MPTCP": (sock(INET, TCP, 262), errno.EPROTONOSUPPORT),
    "SCTP": (sock(INET, SEQ), errno.EPROTONOSUPPORT),
    "UDP-Lite": (sock(INET6, UDP, 136), errno.EPROTONOSUPPORT),
    "x32": ([X32 | 39, []], -signal.SIGSYS),
    "x32 socket": ([X32 | 41, [PACKET, RAW, 0]], -signal.SIGSYS),
}
# The kernel itself says the same of these, in a container of this kind: no profile can be told by them.
NO_TELLING = {"an ordinary call", "a number of tomorrow", "unshare of files", "the ioctl before TUNSETIFF", "another ioctl", "TCP",
              "TCP with flags, by number", "UDP", "unix", "a pair"}


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.host = shared()
        cls.dir = tempfile.mkdtemp(prefix="oci-seccomp-", dir=cls.host.dir)
        cls.root = cls.dir + "/root"
        for name in ("bin", "dev", "etc", "lib", "lib64", "proc", "run", "sys", "tmp", "usr", "questions"):
            os.makedirs(os.path.join(cls.root, name))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir, ignore_errors=True)

    def put(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def policy(self, **more):
        return self.put("policy.json", json.dumps(dict({"name": "t", "default": "allow"}, **more)))

    def export(self, policy):
        """The profile's path, and what was said on stderr."""
        done = weir("policy", "export", "--format", "oci-seccomp", policy)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.put("profile.json", done.stdout.decode()), done.stderr.decode()

    def run_python(self, script, profile, *args, options=()):
        """CompletedProcess of a script in a container. profile: a file, or "unconfined"."""
        path = self.put("script.py", script)
        mounts = [w for d in ("/usr", "/lib", "/lib64") for w in ("-v", "%s:%s:ro" % (d, d))] + ["-v", self.dir + ":/questions:ro", "--tmpfs", "/tmp"]
        return self.host.podman_done("run", "--rm", *self.host.options(self.host.name()), "--security-opt", "seccomp=" + profile, *options, *mounts,
                                     "--rootfs", self.root, PYTHON, "/questions/" + os.path.basename(path), *args)

    def ask(self, questions, profile, **kw):
        self.put("questions.json", json.dumps(questions))
        done = self.run_python(ASK, profile, "/questions/questions.json", **kw)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def ask_exec(self, questions, policy):
        script, file = self.put("script.py", ASK), self.put("questions.json", json.dumps(questions))
        done = weir("exec", "--policy", policy, "--", PYTHON, script, file)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def differences(self, got, wanted):
        name = lambda n: errno.errorcode.get(n, n)
        return {q: "%s, not %s" % (name(got[q]), name(a)) for q, a in wanted.items() if got[q] != a}


class Answers(Case):
    CALLS = {q: call for q, (call, _) in QUESTIONS.items()}
    WANTED = {q: answer for q, (_, answer) in QUESTIONS.items()}

    def test_refused_as_said(self):
        profile, _ = self.export(self.policy())
        self.assertEqual(self.differences(self.ask(self.CALLS, profile), self.WANTED), {})
        # With no_new_privs the runtime puts the filter in force at another place.
        self.assertEqual(self.differences(self.ask(self.CALLS, profile, options=["--security-opt", "no-new-privileges"]), self.WANTED), {})

    def test_same_as_exec(self):
        self.assertEqual(self.differences(self.ask_exec(self.CALLS, self.policy()), self.WANTED), {})

    def test_only_with_the_profile(self):
        """Without one the kernel answers something else: these questions can tell."""
        got = self.ask({q: c for q, c in self.CALLS.items() if q not in NO_TELLING}, "unconfined",
                       options=["--cap-add", "NET_RAW", "--cap-add", "SYS_ADMIN", "--cap-add", "SYS_PTRACE"])
        # A kernel may lack a family, a protocol or x32, and then says so itself.
        lacking = {q for q in got if self.CALLS[q][0] & ~X32 in (41, 53) or self.CALLS[q][0] & X32 or q in ("io_uring_setup", "bpf", "unshare of time")}
        same = {q for q in got if got[q] == self.WANTED[q]}
        self.assertEqual(same - lacking, set())
        for kind in ("packet", "netlink", "raw", "raw, high half set", "ping"):
            self.assertEqual(got[kind], 0, kind)

    def test_every_name_that_is_refused(self):
        """By number, in a container that has every capability, so that nothing else refuses."""
        with open(next(p for p in NUMBERS if os.path.exists(p))) as f:
            text = f.read()
        numbers = {name: int(nr) for name, nr in re.findall(r"#define __NR_(\w+) (\d+)", text)}
        profile, _ = self.export(self.policy())
        with open(profile) as f:
            rules = json.load(f)["syscalls"]
        wanted = {n: r["errnoRet"] for r in rules if r["action"] == "SCMP_ACT_ERRNO" and "args" not in r for n in r["names"] if n in numbers}
        self.assertGreater(len(wanted), 50)
        got = self.ask({n: [numbers[n], [NOTHING] * 6] for n in wanted}, profile, options=["--cap-add", "ALL"])
        # One that this machine's library does not know is not applied, and refused with what everything unknown gets.
        new = {n for n in wanted if n in ("open_tree_attr",) and got[n] == errno.ENOSYS}
        self.assertEqual(self.differences({n: a for n, a in got.items() if n not in new}, {n: a for n, a in wanted.items() if n not in new}), {})


class Policies(Case):
    def test_what_a_policy_says(self):
        more = {
            "listen": "deny",
            "sockets": {"families": ["inet", "netlink"], "types": ["dgram"], "protocols": ["udp", "icmp"]},
            "syscalls": [{"names": ["sync"], "action": "errno", "errno": "EIO"}, {"names": ["memfd_create"], "action": "kill"}, {"names": ["@clock"]}],
        }
        calls = {
            "listen": ([50, [99, 1]], errno.EACCES),
            "ping": (sock(INET, UDP, 1), 0),
            "UDP": (sock(INET, UDP), 0),
            "TCP": (sock(INET, TCP), errno.EPERM),
            "UDP-Lite": (sock(INET, UDP, 136), errno.EPROTONOSUPPORT),
            "IPv6": (sock(INET6, UDP), errno.EAFNOSUPPORT),
            "unix": (sock(UNIX, TCP), errno.EAFNOSUPPORT),
            "netlink": (sock(NETLINK, RAW), 0),
            "sync": ([162, []], errno.EIO),
            "memfd_create": ([319, [0, 0]], -signal.SIGSYS),
            "adjtimex": ([159, [0]], errno.EPERM),
        }
        asked, wanted = {q: c for q, (c, _) in calls.items()}, {q: a for q, (_, a) in calls.items()}
        policy = self.policy(**more)
        profile, _ = self.export(policy)
        self.assertEqual(self.differences(self.ask(asked, profile), wanted), {})
        # On the host the kernel may keep ping sockets to some groups.
        del asked["ping"], wanted["ping"]
        self.assertEqual(self.differences(self.ask_exec(asked, policy), wanted), {})

    def test_monitor(self):
        """What the policy would refuse is done; what would let a program leave it is not."""
        policy = self.policy(mode="monitor", listen="deny", syscalls=[{"names": ["getpgid", "mount"]}])
        calls = {
            "netlink": (sock(NETLINK, RAW), 0),
            "listen": ([50, [99, 1]], errno.EBADF),
            "getpgid": ([121, [0]], 0),
            "packet": (sock(PACKET, RAW), errno.EAFNOSUPPORT),
            "packet, high half set": (sock(HIGH | PACKET, RAW), errno.EAFNOSUPPORT),
            "SOCK_PACKET": (sock(INET, 10), errno.EPERM),
            "mount": ([165, [0, 0, 0, 0, 0]], errno.EPERM),
            "unshare of users": ([272, [0x10000000]], errno.EPERM),
        }
        asked, wanted = {q: c for q, (c, _) in calls.items()}, {q: a for q, (_, a) in calls.items()}
        profile, said = self.export(policy)
        self.assertIn("mode monitor", said)
        self.assertEqual(self.differences(self.ask(asked, profile), wanted), {})
        self.assertEqual(self.differences(self.ask_exec(asked, policy), wanted), {})

    def test_ordinary_python(self):
        for policy in ("tool-call", self.policy()):
            profile, said = self.export(policy)
            self.assertIn("weir attach", said)
            done = self.run_python(ORDINARY, profile)
            self.assertEqual((done.returncode, done.stdout), (0, "42\n"), done.stderr)

    def test_what_no_container_starts_with(self):
        profile, said = self.export(self.policy(syscalls=[{"names": ["execve"]}]))
        self.assertIn("no container may start", said)
        self.assertNotEqual(self.run_python("print(1)", profile).returncode, 0)


class Command(unittest.TestCase):
    def test_without_root_from_stdin(self):
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", WEIR, "policy", "export", "--format", "oci-seccomp"],
                              input=b'{"name": "t", "default": "deny"}', stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["defaultErrnoRet"], errno.ENOSYS)
        self.assertTrue(done.stderr.startswith(b"-: note: "))

    def test_refused(self):
        for args, status, words in (
            (["tool-call"], 64, "say which format"),
            (["--format", "toml", "tool-call"], 64, 'no format "toml"'),
            (["--format", "oci-seccomp", "tool-call", "snippet"], 64, "too many arguments"),
            (["--format", "oci-seccomp", "/nowhere.json"], 1, "can't open it"),
        ):
            done = weir("policy", "export", *args)
            self.assertEqual(done.returncode, status, args)
            self.assertIn(words, done.stderr.decode())
            self.assertEqual(done.stdout, b"")
        done = subprocess.run([WEIR, "policy", "export", "--format", "oci-seccomp", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              input=b'{"name": "t", "default": "deny", "syscalls": [{"names": ["@none"]}]}')
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"-:/syscalls/0/names/0: ", done.stderr)

    def test_full_disk(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([WEIR, "policy", "export", "--format", "oci-seccomp", "tool-call"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
