# SPDX-License-Identifier: Apache-2.0
"""System calls that a sandbox's filter refuses by their number: its own init counts them, and the record of the run names them.

The counter-proofs: test_inside.py (LISTENER left out: no sandbox is started), and class Deaf: below somebody else's listener
nothing can be counted; then the same calls are refused alike, and the record says that it is not known, which every test of
class Counted would take for a failure.
"""
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

from lib import SLOW, WEIR, Service, pid_ns_inside

# What every snippet here begins with. Numbers are those of x86-64.
CALL = """
import ctypes, os, signal, threading, time
PTRACE, UNSHARE, MOUNT, BPF, KEYCTL, SECCOMP, PRCTL, CLONE3, LISTEN, CHMOD = 101, 272, 165, 321, 250, 317, 157, 435, 50, 90
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *args):
    ctypes.set_errno(0)
    return 0 if libc.syscall(nr, *[ctypes.c_ulong(a) for a in args]) >= 0 else ctypes.get_errno()
"""
PTRACE = 101
# fmt: off
REFUSED = [  # snippet_refused of runner/filter.c, as far as x86-64 has them
    101, 103, 126, 134, 136, 139, 153, 154, 155, 156, 159, 161, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176, 177, 178, 179,
    180, 212, 227, 246, 248, 249, 250, 256, 272, 279, 298, 300, 301, 303, 304, 305, 308, 310, 311, 312, 313, 317, 320, 321, 323, 428, 429, 430, 431,
    432, 433, 438, 440, 442, 443, 444, 445, 446, 447, 448, 450,
]
# fmt: on


def by_name(record):
    return {entry["name"]: entry for entry in record["refused_syscalls"]["calls"]}


def counts(record):
    return {name: entry["count"] for name, entry in by_name(record).items()}


class Case(unittest.TestCase):
    POOL = 2
    POLICY = None

    @classmethod
    def setUpClass(cls):
        options = []
        if cls.POLICY:
            directory = tempfile.mkdtemp(prefix="weir-test-policy-")
            cls.addClassCleanup(shutil.rmtree, directory, ignore_errors=True)
            path = os.path.join(directory, "policy.json")
            with open(path, "w") as f:
                json.dump(cls.POLICY, f)
            options = ["--policy", path]
        cls.service = Service(*options, pool=cls.POOL)
        cls.addClassCleanup(cls.service.stop)

    def both(self, code, **fields):
        """The answer of a run and its record."""
        answer = self.service.run(CALL + code, **fields)
        return answer, self.service.audit(answer["run_id"])


class Counted(Case):
    def test_by_name_with_errno_and_times(self):
        answer, record = self.both(
            "print([call(PTRACE) for i in range(3)], call(MOUNT), call(UNSHARE, 0x10000000))"
        )
        self.assertEqual(answer["stdout"], "[1, 1, 1] 1 1\n")
        self.assertEqual(answer["refused_syscalls"], {"count": 5})
        self.assertEqual(record["refused_syscalls"]["count"], 5)
        self.assertEqual(counts(record), {"ptrace": 3, "mount": 1, "unshare": 1})
        for entry in by_name(record).values():
            self.assertEqual(entry["errno"], "EPERM")
        self.assertEqual(by_name(record)["ptrace"]["number"], PTRACE)
        for name in ("ptrace", "mount"):
            entry = by_name(record)[name]
            self.assertTrue(record["began"] <= entry["first"] <= entry["last"] <= record["ended"], (record["began"], entry))
        self.assertLess(by_name(record)["ptrace"]["last"], by_name(record)["unshare"]["first"])

    def test_an_ordinary_run_has_none(self):
        answer, record = self.both(
            "import subprocess, json, socket, tempfile, concurrent.futures\n"
            "subprocess.run(['sh', '-c', 'ls / > /dev/null; cat /etc/passwd > /dev/null'])\n"
            "t = threading.Thread(target=lambda: None); t.start(); t.join()\n"
            "with tempfile.NamedTemporaryFile() as f: f.write(b'x')\n"
            "socket.socket().close()"
        )
        self.assertEqual((record["refused_syscalls"]["count"], record["refused_syscalls"]["calls"]), (0, []))
        self.assertEqual(answer["refused_syscalls"], {"count": 0})

    def test_what_is_refused_otherwise_is_not_counted(self):
        """By its arguments, as unknown, or as too new: these have their answers from the filter itself."""
        answer, record = self.both("print(call(CLONE3), call(1000), call(PRCTL, 22, 2, 0), call(41, 16, 3, 0))")
        self.assertEqual(answer["stdout"].split(), [str(n) for n in (errno.ENOSYS, errno.ENOSYS, errno.EPERM, errno.EAFNOSUPPORT)])
        self.assertEqual(record["refused_syscalls"]["count"], 0)

    def test_all_there_are(self):
        """More numbers than a list has room for are counted."""
        answer, record = self.both("print(sum(call(nr) == 1 for nr in %r))" % (REFUSED,))
        refused = record["refused_syscalls"]
        self.assertGreater(int(answer["stdout"]), 64)  # the rest is too new for this libseccomp: not known, ENOSYS
        self.assertEqual(refused["count"], int(answer["stdout"]))
        self.assertEqual(len(refused["calls"]), 64)
        self.assertEqual({entry["count"] for entry in refused["calls"]}, {1})

    def test_however_it_ends(self):
        """The counts are there for what was killed as well."""
        for end, code, fields in (
            ("timeout", "while True: pass", {"timeout_s": 1}),
            ("memory", "x = bytearray(1 << 30)", {}),
            ("output", "while True: print('x' * 65536)", {}),
            ("signal", "os.kill(os.getpid(), 9)", {}),
            ("exit", "os._exit(3)", {}),
            ("exit", "os.execv('/bin/true', ['true'])", {}),
        ):
            with self.subTest(end + ": " + code):
                answer, record = self.both("call(PTRACE); call(BPF); call(BPF)\n" + code, **fields)
                self.assertEqual(answer["termination"]["reason"], end)
                self.assertEqual(counts(record), {"ptrace": 1, "bpf": 2})

    def test_children_and_other_programs(self):
        answer, record = self.both(
            "if os.fork() == 0:\n    call(PTRACE); os._exit(0)\nos.wait()\n"
            "import subprocess, sys\n"
            "print(subprocess.run([sys.executable, '-c', 'import ctypes; print(ctypes.CDLL(None).setns(0, 0))'], capture_output=True).stdout)"
        )
        self.assertEqual(answer["stdout"], "b'-1\\n'\n")
        self.assertEqual(counts(record), {"ptrace": 1, "setns": 1})

    def test_no_listener_of_its_own(self):
        """Who is under the filter can neither have its listener nor another one, nor make it go on."""
        answer, record = self.both(
            "NEW_LISTENER, SET_FILTER = 8, 1\n"
            "program = (ctypes.c_ubyte * 8)(6, 0, 0, 0, 0, 0, 0xff, 0x7f)\n"
            "class Prog(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]\n"
            "p = Prog(1, ctypes.addressof(program))\n"
            "print(call(SECCOMP, SET_FILTER, NEW_LISTENER, ctypes.addressof(p)), call(PRCTL, 22, 2, ctypes.addressof(p)))\n"
            "def opens(path):\n    try: os.listdir(path)\n    except OSError as e: return e.errno\n    return 0\n"
            "print(opens('/proc/1/fd'), call(438, os.getpid(), 0, 0), call(PTRACE, 16, 1))\n"
            "def closed(n):\n    try: os.fstat(n)\n    except OSError: return True\n"
            "print(all(closed(n) for n in range(3, 1024)))\n"
            # A descriptor of any kind answers none of a listener's requests.
            "print(call(16, 0, 0xc0502100, 0), call(16, 0, 0xc0182101, 0))"
        )
        lines = answer["stdout"].splitlines()
        self.assertEqual(lines, ["1 1", "13 1 1", "True", "38 38"])
        self.assertEqual(counts(record), {"seccomp": 1, "pidfd_getfd": 1, "ptrace": 1})

    def test_every_call_of_many_threads(self):
        """Exactly as many as were made, and each got its answer."""
        answer, record = self.both(
            "got = []\n"
            "def hammer():\n"
            "    mine = [0, 0]\n"
            "    for i in range(20): mine[call(PTRACE) != 1] += 1\n"
            "    got.append(mine)\n"
            "threads = [threading.Thread(target=hammer) for i in range(200)]\n"
            "for t in threads: t.start()\n"
            "for t in threads: t.join()\n"
            "print(len(got), sum(m[0] for m in got), sum(m[1] for m in got))",
            timeout_s=60,
        )
        self.assertEqual(answer["stdout"], "200 4000 0\n")
        self.assertEqual(counts(record), {"ptrace": 4000})

    def test_signals_while_it_waits(self):
        """A call that a signal interrupts is never let through, nor forgotten: it was refused, or interrupted before it was."""
        answer, record = self.both(
            "seen = [0]\n"
            "def on(*a): seen[0] += 1\n"
            "signal.signal(signal.SIGALRM, on)\n"
            "got = {}\n"
            "def once():\n    e = call(PTRACE); got[e] = got.get(e, 0) + 1\n"
            "once()\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)\n"
            "for i in range(5000): once()\n"
            "signal.setitimer(signal.ITIMER_REAL, 0)\n"
            "once()\n"
            "print(set(got) <= {1, 4}, got[1], got.get(4, 0), seen[0] > 0)",
            timeout_s=60,
        )
        fine, refused, interrupted, signalled = answer["stdout"].split()
        self.assertEqual((fine, signalled), ("True", "True"))
        self.assertEqual(int(refused) + int(interrupted), 5002)
        # One that was interrupted after init had answered is among the refused.
        told = record["refused_syscalls"]
        self.assertTrue(int(refused) <= told["count"] <= int(refused) + int(interrupted), (answer["stdout"], told))
        self.assertEqual(told["count"] + told["interrupted"], 5002, (answer["stdout"], told))

    def test_killed_while_they_wait(self):
        """Processes that die in the middle of a refused call take nothing with them."""
        answer, record = self.both(
            "for round in range(20):\n"
            "    pids = []\n"
            "    for i in range(4):\n"
            "        pid = os.fork()\n"
            "        if pid == 0:\n"
            "            while True: call(KEYCTL)\n"
            "        pids.append(pid)\n"
            "    time.sleep(0.01)\n"
            "    for pid in pids: os.kill(pid, 9)\n"
            "    for pid in pids: os.waitpid(pid, 0)\n"
            "print(call(PTRACE))",
            timeout_s=60,
        )
        self.assertEqual(answer["stdout"], "1\n")
        self.assertEqual(counts(record)["ptrace"], 1)
        self.assertGreater(counts(record)["keyctl"], 0)

    def test_a_flood_is_the_sandboxs_own(self):
        """Meanwhile others run, and what their records say is theirs."""
        flood = "def hammer():\n    while True: call(PTRACE)\nfor i in range(100): threading.Thread(target=hammer, daemon=True).start()\ntime.sleep(60)"
        kept = []
        thread = threading.Thread(target=lambda: kept.append(self.both(flood, timeout_s=3)))
        thread.start()
        try:
            others = [self.both("print(call(MOUNT))") for _ in range(5)]
        finally:
            thread.join()
        for answer, record in others:
            self.assertEqual(answer["stdout"], "1\n")
            self.assertEqual(counts(record), {"mount": 1})
        answer, record = kept[0]
        self.assertEqual(answer["termination"]["reason"], "timeout")
        self.assertEqual(list(counts(record)), ["ptrace"])
        self.assertGreater(counts(record)["ptrace"], 100)

    def test_seen_from_the_host(self):
        """The listener is init's, and nobody else's."""
        name, main = self.fresh()
        pids = self.service.sandboxes()[name]
        init = next(pid for pid in pids if pid_ns_inside(pid) == 1)
        links = {fd: os.readlink("/proc/%d/fd/%s" % (init, fd)) for fd in os.listdir("/proc/%d/fd" % init)}
        self.assertEqual(set(links), {"3", "4", "5"})
        self.assertEqual(links["5"], "anon_inode:seccomp notify")
        for pid in (main, self.service.process.pid):
            for fd in os.listdir("/proc/%d/fd" % pid):
                try:
                    self.assertNotIn("seccomp", os.readlink("/proc/%d/fd/%s" % (pid, fd)))
                except FileNotFoundError:
                    pass  # closed meanwhile

    def fresh(self):
        """A sandbox that waits: its name, and the host's pid of its interpreter."""
        self.service.wait_warm()
        for name, pids in self.service.sandboxes().items():
            inside = {pid_ns_inside(pid): pid for pid in pids}
            if set(inside) == {1, 2}:
                return name, inside[2]
        raise AssertionError("no warm sandbox")

    def test_without_init_there_is_no_sandbox(self):
        name, _ = self.fresh()
        init = next(pid for pid in self.service.sandboxes()[name] if pid_ns_inside(pid) == 1)
        os.kill(init, 9)
        answer, record = self.both("print(call(PTRACE))")
        self.assertEqual(answer["stdout"], "1\n")
        self.assertEqual(counts(record), {"ptrace": 1})


class Sessions(Case):
    def setUp(self):
        self.session_id = self.service.request("POST", "/v1/sessions", {}).json()["session_id"]
        self.addCleanup(lambda: self.service.request("DELETE", "/v1/sessions/" + self.session_id))

    def cell(self, code, **fields):
        answer = self.service.request("POST", "/v1/execute", dict(fields, code=code, session_id=self.session_id))
        self.assertEqual(answer.status, 200, answer)
        return answer.json(), self.service.audit(answer.json()["run_id"])

    def test_each_cell_has_its_own(self):
        self.cell(CALL)
        _, first = self.cell("call(PTRACE), call(MOUNT)")
        _, second = self.cell("1")
        _, third = self.cell("call(PTRACE), call(PTRACE)")
        self.assertEqual([counts(r) for r in (first, second, third)], [{"ptrace": 1, "mount": 1}, {}, {"ptrace": 2}])
        entry = by_name(third)["ptrace"]
        self.assertGreater(entry["first"], by_name(first)["ptrace"]["last"])

    def test_between_cells(self):
        self.cell(CALL + "def later():\n    go.wait(); call(KEYCTL)\ngo = threading.Event()\nt = threading.Thread(target=later); t.start()")
        _, record = self.cell("threading.Timer(0.3, go.set).start()")
        self.assertEqual(counts(record), {})
        # It is over before this cell begins, or it is this one's: in one record it is.
        _, record = self.cell("t.join()")
        self.service.request("DELETE", "/v1/sessions/" + self.session_id)
        whole = self.service.audit(self.session_id)
        self.assertEqual(counts(record).get("keyctl", 0) + counts(whole).get("keyctl", 0), 1)

    def test_frozen_in_the_middle_of_it(self):
        """A session freezes while its threads do nothing but make refused calls, init in the midst of an answer."""
        self.cell(
            CALL + "made, stop = [0], []\n"
            "def hammer():\n"
            "    while not stop:\n"
            "        if call(PTRACE) == 1: made[0] += 1\n"
            "t = threading.Thread(target=hammer); t.start()"
        )
        total = 0
        for i in range(25):
            answer, record = self.cell("time.sleep(0.02); print('on')")
            self.assertEqual(answer["stdout"], "on\n")
            total += counts(record).get("ptrace", 0)
        self.assertGreater(total, 0)
        answer, record = self.cell("stop.append(1); t.join(); print(call(PTRACE), made[0])")
        self.assertEqual(answer["stdout"].split()[0], "1")

    def test_frozen_while_many_hold_the_listener(self):
        """A session freezes again and again while two dozen of its processes do nothing but make refused calls."""
        self.cell(
            CALL + "children = []\n"
            "for i in range(24):\n"
            "    pid = os.fork()\n"
            "    if not pid:\n"
            "        while True: libc.syscall(PTRACE, 0, 0, 0, 0)\n"
            "    children.append(pid)\n"
        )
        for i in range(40):
            answer, record = self.cell("time.sleep(0.01); print(call(MOUNT))", timeout_s=20)
            self.assertEqual(answer["stdout"], "1\n")
            self.assertEqual(counts(record).get("mount"), 1)
        answer, record = self.cell("for pid in children: os.kill(pid, 9)\nfor pid in children: os.waitpid(pid, 0)\nprint(call(MOUNT))")
        self.assertEqual(answer["stdout"], "1\n")


class Policies(Case):
    POOL = 1
    POLICY = {
        "name": "refusing",
        "default": "deny",
        "listen": "deny",
        "syscalls": [
            {"names": ["chmod"], "action": "errno", "errno": "EROFS"},
            {"names": ["ptrace"], "action": "kill"},
            {"names": ["sendmsg", "sendmmsg", "recvmsg"]},
        ],
    }

    def test_what_the_policy_refuses(self):
        answer, record = self.both("print(call(LISTEN, 99, 1), call(CHMOD, 0, 0), call(CHMOD, 0, 0), call(MOUNT))")
        self.assertEqual(answer["stdout"].split(), [str(n) for n in (errno.EACCES, errno.EROFS, errno.EROFS, errno.EPERM)])
        found = {name: (entry["errno"], entry["count"]) for name, entry in by_name(record).items()}
        self.assertEqual(found, {"listen": ("EACCES", 1), "chmod": ("EROFS", 2), "mount": ("EPERM", 1)})

    def test_what_it_kills_for(self):
        answer, record = self.both("call(MOUNT)\ncall(PTRACE)")
        self.assertEqual(answer["termination"]["signal"], "SIGSYS")
        self.assertEqual(counts(record), {"mount": 1})


DEAF = r"""
import ctypes, os, sys
class Prog(ctypes.Structure): _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
allow = (ctypes.c_ubyte * 8)(6, 0, 0, 0, 0, 0, 0xff, 0x7f)
p = Prog(1, ctypes.addressof(allow))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
fd = libc.syscall(317, 1, 8, ctypes.byref(p))
assert fd >= 0, ctypes.get_errno()
os.set_inheritable(fd, True)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Deaf(unittest.TestCase):
    """Weir under somebody's listener, which asks for no call at all: the kernel lets nobody have another below."""

    def test_it_is_not_known_and_said(self):
        code = CALL + "print(call(PTRACE), call(MOUNT), call(CLONE3))"
        done = subprocess.run([sys.executable, "-c", DEAF, WEIR, "run", "--json", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["stdout"].split(), [str(n) for n in (errno.EPERM, errno.EPERM, errno.ENOSYS)])
        self.assertIsNone(answer["refused_syscalls"])
        self.assertEqual(done.stderr.count(b"refused system calls are not recorded"), 1, done.stderr)

    def test_the_same_without_it(self):
        done = subprocess.run([WEIR, "run", "--json", "-c", CALL + "call(PTRACE)"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW)
        self.assertEqual(json.loads(done.stdout)["refused_syscalls"], {"count": 1})
        self.assertEqual(done.stderr, b"")


if __name__ == "__main__":
    unittest.main()
