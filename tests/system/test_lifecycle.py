# SPDX-License-Identifier: Apache-2.0
"""How runs end: deadlines, memory, limits, hang-ups. Whatever a snippet does, nothing of it is alive when the answer is here."""
import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import time
import unittest

from footprint import UID_BASE, Watch, identity, left_of, members, parent, pids, read, uid_of
from lib import SLOW, TOKEN, Service

MIB = 1 << 20

# What each hostile snippet starts with: the line that must be in the answer although the run was killed, and the uid by
# which the host is searched afterwards.
HEAD = "import os, sys, signal, time, threading, subprocess, ctypes, resource\nprint('up', os.getuid())\n"

# A BPF filter for prctl(PR_SET_SECCOMP): `body` is a list of (code, jt, jf, k).
FILTER = """
def install(rows):
    import struct
    class Prog(ctypes.Structure):
        _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
    raw = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *r) for r in rows))
    prog = Prog(len(rows), ctypes.cast(raw, ctypes.c_void_p))
    # Weir may refuse it (a filter is code in the kernel's memory): then the program goes on without, which ends no differently.
    print('filter', ctypes.CDLL(None, use_errno=True).prctl(22, 2, ctypes.byref(prog), 0, 0), ctypes.get_errno())
LOAD, JEQ, RET = 0x20, 0x15, 0x06
ALLOW, ERRNO, TRAP, KILL_THREAD = 0x7fff0000, 0x00050000, 0x00030000, 0
"""

# Machine code in the interpreter itself: no system call of libc's in the way.
MACHINE = """
def machine(code):
    import mmap
    area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(code)
    globals().setdefault('kept', []).append(area)
    return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(area)))
"""

HOSTILE = {
    "spins": "while True: pass",
    "ignores every signal": (
        "for s in range(1, 65):\n"
        "    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
        "while True: pass"
    ),
    "handles every signal": (
        "for s in range(1, 65):\n"
        "    try: signal.signal(s, lambda *a: os.fork())\n"
        "    except (OSError, ValueError): pass\n"
        "while True: time.sleep(0.01)"
    ),
    "stops its group": "os.kill(0, signal.SIGSTOP)\ntime.sleep(60)",
    "stops its children and itself": (
        "for i in range(10):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid(); os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(60)"
    ),
    "forks without end": "while True:\n    try: os.fork()\n    except OSError: pass",
    "forks daemons that fork again": (
        "def bomb():\n"
        "    for s in range(1, 65):\n"
        "        try: signal.signal(s, signal.SIG_IGN)\n"
        "        except (OSError, ValueError): pass\n"
        "    while True:\n"
        "        try:\n"
        "            if os.fork() == 0: os.setsid()\n"
        "        except OSError: pass\n"
        "bomb()"
    ),
    "double-forked daemons": (
        "for i in range(20):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork(): os._exit(0)\n"
        "        for s in range(1, 65):\n"
        "            try: signal.signal(s, signal.SIG_IGN)\n"
        "            except (OSError, ValueError): pass\n"
        "        os.chdir('/'); os.closerange(0, 3)\n"
        "        while True: time.sleep(60)\n"
        "while True: time.sleep(60)"
    ),
    "threads": (
        "def spin():\n    while True: pass\n"
        "for i in range(200):\n    threading.Thread(target=spin).start()\n"
        "while True: pass"
    ),
    "holds the GIL in pow": "3 ** (3 ** 17)\npow(7, 10 ** 8)\nwhile True: pass",
    "holds the GIL in a regular expression": "import re\nre.match('(a+)+$', 'a' * 64 + 'b')",
    "holds the GIL in sum": "sum(range(10 ** 12))",
    "masks signals in C": (
        "signal.alarm(0)\nlibc = ctypes.PyDLL(None)\nfull = (ctypes.c_ulong * 16)(*[2 ** 64 - 1] * 16)\n"
        "libc.sigprocmask(0, full, None)\nlibc.sleep(60)"
    ),
    "deadlocks": "lock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "waits for nothing": "import select\nselect.select([], [], [])",
    "sleeps for ever": "time.sleep(1e9)",
    "sleeps in atexit": "import atexit\natexit.register(time.sleep, 60)",
    "closes its descriptors": "os.closerange(0, 65536)\nwhile True: time.sleep(60)",
    "blocks in a fifo": "os.mkfifo('f')\nopen('f')",
    "waits in a vfork": (
        MACHINE
        # mov eax, 58 (vfork); syscall; test eax, eax; jnz out; again: mov eax, 34 (pause); syscall; jmp again; out: ret
        + "machine(bytes.fromhex('b83a0000000f0585c07509b8220000000f05ebf7c3'))()"
    ),
    "seccomp: exit fails": (
        FILTER + "install([(LOAD, 0, 0, 0), (JEQ, 0, 2, 231), (RET, 0, 0, ERRNO | 1), (RET, 0, 0, ALLOW), (JEQ, 0, 1, 60), (RET, 0, 0, ERRNO | 1), (RET, 0, 0, ALLOW)])\n"
        "while True: pass"
    ),
    "seccomp: everything fails": (
        FILTER + "install([(RET, 0, 0, ERRNO | 1)])\nwhile True: pass"
    ),
    "seccomp: every thread but one is killed": (
        FILTER + "t = threading.Thread(target=time.sleep, args=(60,)); t.start()\n"
        "def other():\n    install([(RET, 0, 0, KILL_THREAD)])\n    time.sleep(1)\n"
        "threading.Thread(target=other).start()\ntime.sleep(60)"
    ),
    "changes its limits": (
        "for r in range(16):\n"
        "    try: resource.setrlimit(r, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "    except (OSError, ValueError): pass\n"
        "for r in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK, resource.RLIMIT_AS):\n"
        "    try: resource.setrlimit(r, (0, 0))\n"
        "    except (OSError, ValueError): pass\n"
        "try: os.nice(19)\nexcept OSError: pass\n"
        "try: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nexcept OSError: pass\n"
        "while True: pass"
    ),
    "floods the network": (
        "import socket\ndef flood(n):\n    s = socket.socket(2, 2)\n    i = 0\n    while True:\n        i += 1\n"
        "        try: s.sendto(b'x' * 100, ('192.0.2.%d' % (i % 250 + 1), i % 60000 + 1))\n        except OSError: pass\n"
        "for n in range(4): threading.Thread(target=flood, args=(n,)).start()\nflood(5)"
    ),
    "asks for names without end": (
        "import socket\nfor n in range(10 ** 9):\n    try: socket.getaddrinfo('n%d.flood.example' % n, 80)\n    except OSError: pass"
    ),
    "kills what it can": (
        "for pid in (1, 0, -1):\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    try: os.kill(pid, signal.SIGTERM)\n    except OSError: pass\n"
        "try: os.kill(1, signal.SIGKILL)\nexcept PermissionError: print('init is out of reach')\n"
        "while True: time.sleep(60)"
    ),
    "becomes a shell that traps": "os.execv('/bin/sh', ['sh', '-c', 'trap \"\" TERM INT HUP QUIT; while :; do :; done'])",
    "executes itself for ever": "os.execv(sys.executable, [sys.executable, '-c', 'import os, sys; os.execv(sys.executable, sys.orig_argv)'])",
    "adopts orphans": (
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
        "for i in range(20):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork(): os._exit(0)\n"
        "        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0); time.sleep(60)\n"
        "while True: time.sleep(60)"
    ),
}


def brief(answer):
    """An answer for a message: what a snippet wrote may be megabytes."""
    return {k: v[:300] + " [...] " + v[-300:] if isinstance(v, str) and len(v) > 700 else v for k, v in answer.items()}


def uid_in(answer):
    found = re.search(r"^up (\d+)$", answer["stdout"], re.M)
    return int(found.group(1)) if found else None


def together(jobs, width=4):
    """Runs callables side by side; their results in order."""
    with concurrent.futures.ThreadPoolExecutor(width) as pool:
        return [f.result() for f in [pool.submit(job) for job in jobs]]


class Case(unittest.TestCase):
    pool = 4

    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=cls.pool)
        cls.watch = Watch(cls.service)

    @classmethod
    def tearDownClass(cls):
        cls.watch.stop()
        cls.service.stop()

    def run_measured(self, code, **fields):
        """(answer, seconds, what is left the moment the answer is here)."""
        began = time.monotonic()
        answer = self.service.run(HEAD + code, **fields)
        seconds = time.monotonic() - began
        return answer, seconds, left_of(self.watch, answer["sandbox_id"], uid_in(answer))

    def assert_reason(self, answer, reason, code=None):
        self.assertEqual(answer["termination"]["reason"], reason, brief(answer))
        if code is not None:
            self.assertEqual(answer["exit_code"], code, brief(answer))


class Deadline(Case):
    def test_nothing_outlives_the_deadline(self):
        names = sorted(HOSTILE)
        self.service.wait_warm()
        results = together([lambda n=n: self.run_measured(HOSTILE[n], timeout_s=1) for n in names])
        for name, (answer, seconds, left) in zip(names, results):
            with self.subTest(name):
                self.assert_reason(answer, "timeout", -1)
                self.assertEqual(answer["termination"]["detail"], "timed out after 1s")
                self.assertTrue(answer["stderr"].endswith("timed out after 1s"), answer["stderr"][-200:])
                self.assertTrue(answer["stdout"].startswith("up "), answer["stdout"])
                self.assertGreaterEqual(answer["duration_ms"], 1000)
                # Killing and confirming: under a second, whatever it is that is killed. The queue for a sandbox is not the run's.
                self.assertLess(answer["duration_ms"], 1000 + 1000 * SLOW)
                self.assertEqual(left, [])
                # The watch can see: init and main at least were there.
                self.assertGreaterEqual(len(self.watch.seen[answer["sandbox_id"]]), 2)
        by_name = dict(zip(names, results))
        self.assertIn("init is out of reach", by_name["kills what it can"][0]["stdout"])
        self.assertRegex(by_name["seccomp: exit fails"][0]["stdout"], "filter (0 0|-1 1)\n")
        # The bombs did fork, and the daemons were there to be killed.
        for name, least in (("forks without end", 10), ("forks daemons that fork again", 10), ("double-forked daemons", 15), ("adopts orphans", 15)):
            self.assertGreaterEqual(len(self.watch.seen[by_name[name][0]["sandbox_id"]]), least, name)

    def test_deadline_is_on_time(self):
        late = []
        for n in (1, 1, 2, 1):
            self.service.wait_warm()
            answer, seconds, left = self.run_measured("while True: pass", timeout_s=n)
            self.assert_reason(answer, "timeout", -1)
            self.assertGreaterEqual(seconds, n)
            self.assertGreaterEqual(answer["duration_ms"], n * 1000)
            self.assertEqual(left, [])
            late.append(seconds - n)
        # Each is on time on a quiet machine; on a busy one a wake-up may be late, but not most of them.
        self.assertLess(sorted(late)[len(late) // 2], 0.3 * SLOW, late)
        self.assertLess(max(late), 1.0 * SLOW, late)

    def test_words_follow_what_was_written(self):
        answer = self.service.run("import sys\nsys.stderr.write('no newline')\nwhile True: pass", timeout_s=1)
        self.assertEqual(answer["stderr"], "no newline\ntimed out after 1s")
        answer = self.service.run("import sys, subprocess\nsubprocess.Popen(['sh', '-c', 'echo of a child; sleep 60'])\nprint('x', end='')\nwhile True: pass", timeout_s=1)
        self.assertEqual(sorted(answer["stdout"]), sorted("xof a child\n"))

    def test_exit_near_the_deadline_has_one_outcome(self):
        # Some end just before, some just after; each is the one or the other, here and in the record, and never half of both.
        sleeps = [0.88 + 0.005 * i for i in range(30)]
        code = "import time\nprint('x')\ntime.sleep(%r)\nprint('y')\nraise SystemExit(3)"
        answers = together([lambda s=s: self.service.run(code % s, timeout_s=1) for s in sleeps], 6)
        outcomes = set()
        for sleep, answer in zip(sleeps, answers):
            with self.subTest(sleep=sleep):
                reason = answer["termination"]["reason"]
                outcomes.add(reason)
                if reason == "exit":
                    self.assertEqual((answer["exit_code"], answer["stdout"], answer["stderr"]), (3, "x\ny\n", ""))
                    self.assertEqual(answer["termination"], {"reason": "exit", "signal": None, "detail": ""})
                else:
                    self.assertEqual((reason, answer["exit_code"], answer["stderr"]), ("timeout", -1, "timed out after 1s"))
                    self.assertTrue("x\ny\n".startswith(answer["stdout"]) and answer["stdout"].startswith("x\n"), answer["stdout"])
                record = self.service.audit(answer["run_id"])
                self.assertEqual((record["termination"], record["exit_code"]), (answer["termination"], answer["exit_code"]))
                self.assertEqual(left_of(self.watch, answer["sandbox_id"]), [])
        self.assertEqual(outcomes, {"exit", "timeout"})


class MainExit(Case):
    """When main ends the run ends, with main's own status, whatever it left running."""

    LEFT_BEHIND = {
        "a child that holds stdout": "subprocess.Popen(['sleep', '600'])",
        "a daemon that holds stdout": "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(600)",
        "a child that writes": "subprocess.Popen(['sh', '-c', 'while :; do echo y; done'], stdout=2)\ntime.sleep(0.02)",
        "a child that ignores signals": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM INT HUP; while :; do sleep 600; done'])\ntime.sleep(0.05)",
        "a stopped child": "p = subprocess.Popen(['sleep', '600'])\np.send_signal(signal.SIGSTOP)",
        "fifty children": "for i in range(50): subprocess.Popen(['sleep', '600'])",
        "a daemon thread": "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "a traced-like group": "for i in range(5):\n    if os.fork() == 0:\n        os.setpgid(0, 0); os.kill(0, signal.SIGSTOP); time.sleep(600)",
    }

    def test_answer_comes_at_once_with_mains_code(self):
        names = sorted(self.LEFT_BEHIND)
        results = together([lambda n=n: self.run_measured(self.LEFT_BEHIND[n] + "\nos._exit(5)", timeout_s=20) for n in names], 2)
        for name, (answer, seconds, left) in zip(names, results):
            with self.subTest(name):
                self.assert_reason(answer, "exit", 5)
                self.assertLess(answer["duration_ms"], 1000 * SLOW)
                self.assertEqual(left, [])

    def test_output_of_children_before_mains_end_is_there(self):
        code = "subprocess.run(['sh', '-c', 'echo one; echo two >&2'])\nos.system('echo three')\nif os.fork() == 0:\n    os.write(1, b'four\\n'); os._exit(0)\nos.wait()\nos._exit(0)"
        answer, _, _ = self.run_measured(code)
        self.assertEqual(answer["stdout"].splitlines()[1:], ["one", "three", "four"])
        self.assertEqual(answer["stderr"], "two\n")

    def test_orphans_are_reaped(self):
        # Eight hundred orphans pass through a place for 256: somebody reaps them. Each would leave with 99; main leaves with 7.
        code = (
            "for i in range(400):\n"
            "    if os.fork() == 0:\n"
            "        if os.fork() == 0: os._exit(99)\n"
            "        if os.fork() == 0: os._exit(99)\n"
            "        os._exit(0)\n"
            "    os.wait()\n"
            "time.sleep(0.05)\n"
            "print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))\n"
            "for i in range(30):\n"
            "    if os.fork() == 0:\n        time.sleep(0.005 * (i % 3)); os._exit(99)\n"
            "os._exit(7)"
        )
        answer, _, left = self.run_measured(code, timeout_s=30)
        self.assert_reason(answer, "exit", 7)
        self.assertEqual(answer["stdout"].splitlines()[1:], ["[1, 2]"])
        self.assertEqual(left, [])

    def test_zombies_count_and_change_nothing(self):
        code = (
            "n = 0\n"
            "try:\n"
            "    while n < 5000:\n"
            "        if os.fork() == 0: os._exit(99)\n"
            "        n += 1\n"
            "except BlockingIOError as e: print(n, e.errno)\n"
            "sys.exit(8)"
        )
        answer, _, left = self.run_measured(code)
        self.assert_reason(answer, "exit", 8)
        self.assertEqual(answer["stdout"].splitlines()[1:], ["255 11"])
        self.assertEqual(left, [])

    def test_main_that_became_something_else(self):
        for code, want in (
            ("os.execv('/bin/sh', ['sh', '-c', 'echo hello; exit 9'])", ("exit", 9, None)),
            ("os.execve('/bin/sh', ['x', '-c', 'echo hello; exit 2'], {})", ("exit", 2, None)),
            ("os.execve(sys.executable, [sys.executable, '-c', 'import os; os.write(1, b\"hello\"); os._exit(10)'], {})", ("exit", 10, None)),
            ("os.execv('/bin/sh', ['sh', '-c', 'echo hello; kill -9 $$'])", ("signal", 137, "SIGKILL")),
            ("print('hello'); os.close(1); os.close(2); os._exit(3)", ("exit", 3, None)),
        ):
            with self.subTest(code):
                answer, _, left = self.run_measured(code)
                end = answer["termination"]
                self.assertEqual((end["reason"], answer["exit_code"], end["signal"]), want)
                self.assertEqual(answer["stdout"].splitlines()[1:], ["hello"])
                self.assertEqual(left, [])

    def test_main_thread_leaves_others_behind(self):
        # pthread_exit of the main thread: the process lives on in the other thread, and so does the run.
        code = "def late():\n    time.sleep(0.3); print('late'); os._exit(4)\nthreading.Thread(target=late).start()\nctypes.CDLL(None).syscall(60, 0)"
        answer, _, _ = self.run_measured(code, timeout_s=5)
        self.assert_reason(answer, "exit", 4)
        self.assertIn("late", answer["stdout"])


class Limits(Case):
    MEMORY = {
        "main": "a = []\nwhile True: a.append(bytearray(b'x') * (8 << 20))",
        "a doubling bytearray": "a = bytearray(b'x' * (1 << 20))\nwhile True: a = a + a",
        "only a child, and main says all is well": (
            "pid = os.fork()\nif pid == 0:\n    a = []\n    while True: a.append(bytearray(b'x') * (8 << 20))\n"
            "os.waitpid(pid, 0)\nprint('survived')\ntime.sleep(0.2)\nos._exit(0)"
        ),
        "only a child, and main leaves at once": (
            "pid = os.fork()\nif pid == 0:\n    a = []\n    while True: a.append(bytearray(b'x') * (8 << 20))\n"
            "os.waitpid(pid, 0)\nos._exit(0)"
        ),
        "a grandchild of a daemon": (
            "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    a = []\n    while True: a.append(bytearray(b'x') * (8 << 20))\n"
            "time.sleep(30)"
        ),
        "a pool worker": (
            "import multiprocessing\ndef eat(n):\n    a = []\n    while True: a.append(bytearray(b'x') * (8 << 20))\n"
            "if __name__ == '__main__':\n    with multiprocessing.Pool(2) as p:\n        try: print(p.map(eat, [1]))\n        except Exception as e: print(e)"
        ),
        "disks and heap together": (
            "for d in ('/box', '/tmp', '/dev/shm'):\n    open(d + '/f', 'wb').write(b'x' * (60 << 20))\n"
            "a = []\nwhile True: a.append(bytearray(b'x') * (8 << 20))"
        ),
        "memfd": "fd = os.memfd_create('m')\nwhile True: os.write(fd, b'x' * (8 << 20))",
        "many small processes": (
            "for i in range(60):\n    if os.fork() == 0:\n        a = bytearray(b'x') * (16 << 20); time.sleep(30)\ntime.sleep(30)"
        ),
        "shared memory of System V": (
            "libc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n"
            "while True:\n    i = libc.shmget(0, 32 << 20, 0o1600)\n    ctypes.memset(libc.shmat(i, None, 0), 1, 32 << 20)"
        ),
    }

    def test_memory_over_the_limit_ends_the_run(self):
        names = sorted(self.MEMORY)
        results = together([lambda n=n: self.run_measured(self.MEMORY[n], timeout_s=20) for n in names], 2)
        for name, (answer, seconds, left) in zip(names, results):
            with self.subTest(name):
                self.assert_reason(answer, "memory", 137)
                self.assertEqual(answer["termination"]["signal"], "SIGKILL")
                self.assertEqual(answer["termination"]["detail"], "memory limit of 512 MiB exceeded")
                peak = answer["usage"]["memory_peak_bytes"]["value"]
                self.assertGreater(peak, 500 * MIB)
                self.assertLessEqual(peak, 512 * MIB)
                self.assertLess(answer["duration_ms"], 10000 * SLOW)
                self.assertEqual(left, [])

    def test_memory_below_the_limit_is_fine(self):
        answer, _, _ = self.run_measured("a = bytearray(b'x') * (440 << 20)\nprint(len(a))")
        self.assert_reason(answer, "exit", 0)
        self.assertGreater(answer["usage"]["memory_peak_bytes"]["value"], 440 * MIB)

    def test_processes(self):
        fork = "n = 0\ntry:\n    while n < 1000:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\nexcept OSError as e: print(n, type(e).__name__, e.errno)"
        thread = (
            "n = 0\ne = threading.Event()\ntry:\n    while n < 1000:\n        threading.Thread(target=e.wait, daemon=True).start()\n        n += 1\n"
            "except RuntimeError as x: print(n, x)\nos._exit(0)"
        )
        spawn = "n = 0\ntry:\n    while n < 1000:\n        subprocess.Popen(['sleep', '60'])\n        n += 1\nexcept OSError as e: print(n, type(e).__name__, e.errno)\nos._exit(0)"
        # 256 with main; init is not the run's. subprocess's own helper is one of them while it starts.
        for code, want in ((fork, "255 BlockingIOError 11"), (thread, "255 can't start new thread"), (spawn, "255 BlockingIOError 11")):
            answer, _, left = self.run_measured(code)
            self.assert_reason(answer, "exit", 0)
            self.assertEqual(answer["stdout"].splitlines()[1:], [want])
            self.assertEqual(left, [])

    def test_one_bomb_does_not_starve_another_run(self):
        # Process limits are the cgroup's: a neighbour at its limit costs nobody else a fork.
        bomb = "while True:\n    try: os.fork()\n    except OSError: pass"
        plain = "print([subprocess.run(['sh', '-c', 'exit 3']).returncode for i in range(20)] == [3] * 20)"
        results = together([lambda: self.run_measured(bomb, timeout_s=2), lambda: self.run_measured(bomb, timeout_s=2), lambda: (time.sleep(0.5), self.run_measured(plain))[1]])
        self.assertEqual([r[0]["termination"]["reason"] for r in results], ["timeout", "timeout", "exit"])
        self.assertEqual(results[2][0]["stdout"].splitlines()[1:], ["True"])
        self.assertEqual([r[2] for r in results], [[], [], []])

    def test_disks_are_sized(self):
        code = (
            "def fill(d):\n"
            "    n = 0\n"
            "    with open(d + '/fill', 'wb', buffering=0) as f:\n"
            "        try:\n"
            "            while n < 256 << 20: n += f.write(b'x' * 65536)\n"
            "        except OSError as e: return n, e.errno\n"
            "for d in ('/box', '/tmp', '/dev/shm'):\n"
            "    free = os.statvfs(d)\n"
            "    print(d, free.f_blocks * free.f_frsize, free.f_files, *fill(d))\n"
            "    try: os.posix_fallocate(os.open(d + '/more', os.O_CREAT | os.O_WRONLY), 0, 1 << 20)\n"
            "    except OSError as e: print(e.errno)\n"
            "    os.unlink(d + '/fill')\n"
            "    open(d + '/again', 'wb').write(b'y' * (32 << 20)); os.unlink(d + '/again')"
        )
        answer, _, _ = self.run_measured(code)
        self.assert_reason(answer, "exit", 0)
        lines = answer["stdout"].splitlines()[1:]
        for place, line, more in zip(("/box", "/tmp", "/dev/shm"), lines[::2], lines[1::2]):
            name, size, inodes, written, error = line.split()
            self.assertEqual((name, int(size), int(inodes), int(error), more), (place, 64 * MIB, 16384, 28, "28"))
            # What is there already (the script, directories) takes a page or two.
            self.assertTrue(64 * MIB - 65536 * 2 <= int(written) <= 64 * MIB, written)

    def test_inodes_are_counted(self):
        code = (
            "for d in ('/box', '/tmp', '/dev/shm'):\n"
            "    n = 0\n"
            "    try:\n"
            "        while n < 100000: os.close(os.open('%s/%d' % (d, n), os.O_CREAT)); n += 1\n"
            "    except OSError as e: print(n, e.errno)"
        )
        answer, _, _ = self.run_measured(code)
        self.assert_reason(answer, "exit", 0)
        for line in answer["stdout"].splitlines()[1:]:
            count, error = map(int, line.split())
            self.assertEqual(error, 28)
            self.assertTrue(16384 - 4 <= count <= 16384, line)

    def test_open_files(self):
        code = (
            "n = 0\ntry:\n    while n < 5000: os.dup(0); n += 1\nexcept OSError as e: print(n, e.errno)\n"
            "os.closerange(3, 2000)\n"
            "print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
            "for want in ((2048, 2048), (1024, 1 << 20)):\n"
            "    try: resource.setrlimit(resource.RLIMIT_NOFILE, want); print('raised')\n"
            "    except (ValueError, OSError): print('refused')\n"
            "print(subprocess.run(['sh', '-c', 'ulimit -n; ulimit -Hn'], capture_output=True, text=True).stdout.split())\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))"
        )
        answer, _, _ = self.run_measured(code)
        self.assertEqual(
            answer["stdout"].splitlines()[1:],
            ["1021 24", "(1024, 1024)", "refused", "refused", "['1024', '1024']", "(20, 20)"],
        )

    def test_one_cpu(self):
        # Two busy processes on a host with at least two CPUs: no more than one CPU's time in all.
        code = (
            "for i in range(4):\n    if os.fork() == 0:\n        while True: pass\n"
            "time.sleep(2)\nos._exit(0)"
        )
        answer, _, _ = self.run_measured(code)
        self.assertLess(answer["usage"]["cpu_ms"]["value"], 1.25 * answer["duration_ms"])


class HangUp(Case):
    """A client that goes away takes its run with it."""

    def post_and_leave(self, code, leave):
        """Posts, waits until the run shows itself on the host by a name, leaves; returns (sandbox, its processes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=30 * SLOW)
        mark = "left-%08x" % (id(connection) & 0xFFFFFFFF)
        name = "import ctypes\nctypes.CDLL(None).prctl(15, %r, 0, 0, 0)\n" % mark.encode()
        body = json.dumps({"code": name + code, "timeout_s": 30})
        connection.request("POST", "/v1/execute", body=body, headers={"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"})
        deadline = time.monotonic() + 10 * SLOW
        host_pid = None
        while host_pid is None and time.monotonic() < deadline:
            time.sleep(0.01)
            host_pid = next((p for p in pids() if read("/proc/%d/comm" % p).strip() == mark), None)
        self.assertIsNotNone(host_pid, "the run does not show itself")
        sandbox = next(line.rsplit("/", 1)[1] for line in read("/proc/%d/cgroup" % host_pid).splitlines() if "/weir/" in line)
        time.sleep(0.1)
        everybody = [identity(p) for p in members(self.watch.instance, sandbox)]
        leave(connection)
        return sandbox, [who for who in everybody if who]

    def assert_gone_soon(self, sandbox, everybody, within=1.0):
        began = time.monotonic()
        while time.monotonic() - began < 20 * SLOW:
            if not [w for w in everybody if identity(w[0]) == w] and not left_of(self.watch, sandbox):
                break
            time.sleep(0.01)
        self.assertEqual(left_of(self.watch, sandbox), [])
        self.assertLess(time.monotonic() - began, within * SLOW)

    def test_run_is_cancelled(self):
        def close(connection):
            connection.close()

        def reset(connection):
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sock.close()

        for leave in (close, reset):
            for code in ("while True: pass", "import subprocess, time\nfor i in range(20): subprocess.Popen(['sleep', '60'], start_new_session=True)\ntime.sleep(60)"):
                with self.subTest(leave=leave.__name__, code=code):
                    sandbox, everybody = self.post_and_leave(code, leave)
                    self.assertGreaterEqual(len(everybody), 2)
                    self.assert_gone_soon(sandbox, everybody)
                    deadline = time.monotonic() + 5 * SLOW
                    while True:
                        record = self.service.audit(sandbox)
                        if record["state"] == "ended" or time.monotonic() > deadline:
                            break
                        time.sleep(0.02)
                    self.assertEqual(record["termination"]["reason"], "cancelled", record)
        # And the slots are free.
        self.service.wait_warm()
        self.assertEqual(self.service.run("print(1)")["stdout"], "1\n")

    def test_a_client_that_stays_is_not_cancelled(self):
        # The counter-proof: the same code, by a client that waits, runs on to its end.
        answer = self.service.run("import time\ntime.sleep(1.2)\nprint('end')", timeout_s=5)
        self.assertEqual((answer["stdout"], answer["termination"]["reason"]), ("end\n", "exit"))


class Outside(Case):
    """Killed by the host, not by Weir and not by themselves."""

    def kill_warm(self, of_init):
        self.service.wait_warm()
        killed = 0
        for procs in self.service.sandboxes().values():
            for pid in procs:
                if (uid_of(pid) == UID_BASE) == of_init:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        return killed

    def test_warm_sandboxes_that_die_are_replaced(self):
        for of_init in (False, True):
            with self.subTest(of_init=of_init):
                self.assertEqual(self.kill_warm(of_init), self.pool)
                time.sleep(0.05)
                # Building works, so nobody is told that it does not.
                answer = self.service.execute("print(1)")
                self.assertEqual(answer.status, 200, answer)
                self.assertEqual(answer.json()["stdout"], "1\n")
                self.assertEqual(self.service.request("GET", "/readyz", token=None).status, 200)
                self.service.wait_warm()
        self.assertNotIn("no sandbox", self.service.log_text())

    def test_a_run_that_is_killed(self):
        for who in ("main", "init"):
            with self.subTest(who):
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    code = HEAD + "ctypes.CDLL(None).prctl(15, b'victim-%s', 0, 0, 0)\nfor i in range(3): subprocess.Popen(['sleep', '60'])\ntime.sleep(60)" % who
                    run = pool.submit(self.service.run, code)
                    deadline = time.monotonic() + 10 * SLOW
                    found = []
                    while not found and time.monotonic() < deadline:
                        found = [p for p in pids() if read("/proc/%d/comm" % p).strip() == "victim-" + who]
                    time.sleep(0.2)
                    # The counter-proof of every left_of() here: asked while it runs, it sees the run in each of its three ways.
                    sandbox = next(line.rsplit("/", 1)[1] for line in read("/proc/%d/cgroup" % found[0]).splitlines() if "/weir/" in line)
                    self.assertEqual(len(left_of(self.watch, sandbox, uid_of(found[0]))), 3)
                    os.kill(found[0] if who == "main" else parent(found[0]), signal.SIGKILL)
                    answer = run.result()
                left = left_of(self.watch, answer["sandbox_id"], uid_in(answer))
                self.assertEqual(answer["sandbox_id"], sandbox)
                self.assert_reason(answer, "signal", 137)
                self.assertEqual(answer["termination"]["signal"], "SIGKILL")
                self.assertEqual("outside" in answer["termination"]["detail"], who == "init")
                self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()
