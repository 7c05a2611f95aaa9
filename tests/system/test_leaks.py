# SPDX-License-Identifier: Apache-2.0
"""Many runs of every kind on one service: afterwards the host is what it was, and no two runs had anything in common."""
import collections
import concurrent.futures
import http.client
import itertools
import json
import os
import random
import re
import shutil
import tempfile
import threading
import time
import unittest

from footprint import Footprint, Watch, identity, settled, slabs
from lib import SLOW, TOKEN, Service, cgroup_mounts

CONCURRENCY = 8
MIB = 1 << 20

# What every snippet starts with: who it is, whether it finds anything of another run, and a mark for the next to find.
HEAD = r"""
import os, sys, time, json
def look():
    found = [d + '/' + n for d in ('/box', '/tmp', '/dev/shm') for n in os.listdir(d) if (d, n) not in (('/box', 'main.py'), ('/tmp', 'home'))]
    found += ['/tmp/home/' + n for n in os.listdir('/tmp/home')]
    found += ['process ' + p for p in os.listdir('/proc') if p.isdigit() and p not in ('1', '2')]
    found += open('/proc/self/net/unix').read().splitlines()[1:] + open('/proc/self/net/tcp').read().splitlines()[1:] + open('/proc/self/net/udp').read().splitlines()[1:]
    return found
here = {'uid': os.getuid(), 'began': time.clock_gettime(time.CLOCK_MONOTONIC), 'found': look(), 'ns': [os.readlink('/proc/self/ns/' + n) for n in ('pid', 'mnt', 'net', 'ipc', 'uts', 'cgroup')]}
for d in ('/box', '/tmp', '/dev/shm', '/tmp/home'): open(d + '/mark', 'w').write(str(here['uid']))
print('HERE ' + json.dumps(here))
"""
STREAMS = r"""
import random, uuid, secrets, ctypes, hashlib, tempfile, threading
sample = {
    'os.urandom': os.urandom(16).hex(), 'getrandom': os.getrandom(16).hex(), '/dev/urandom': open('/dev/urandom', 'rb').read(16).hex(), '/dev/random': open('/dev/random', 'rb').read(16).hex(),
    'random.random': random.random(), 'random.getrandbits': random.getrandbits(64), 'uuid4': str(uuid.uuid4()), 'secrets': secrets.token_hex(), 'hash of text': hash('weir'), 'hash of bytes': hash(b'weir'),
    'temporary name': tempfile.mktemp(),
    # Where things are: the layout of the address space.
    'id of an object': id(object()), 'id of a list': id([]), 'address of libc': ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value,
    'maps': hashlib.sha256(open('/proc/self/maps', 'rb').read()).hexdigest(), 'stack': [l.split()[0] for l in open('/proc/self/maps') if '[stack]' in l][0],
    'vdso': [l.split()[0] for l in open('/proc/self/maps') if '[vdso]' in l][0],
}
print('SAMPLE ' + json.dumps(sample))
"""

# name -> (how many, code, timeout_s, what the answer must say: (reason, exit code or None))
KINDS = {
    "ok": (250, STREAMS, 20, ("exit", 0)),
    "output on both": (30, "for i in range(2000): print('x' * 100); print('e' * 50, file=sys.stderr)", 20, ("exit", 0)),
    "error exit": (40, "sys.exit(3)", 20, ("exit", 3)),
    "exception": (20, "1 / 0", 20, ("exit", 1)),
    "signal": (30, "import ctypes\nctypes.string_at(0)", 20, ("signal", 139)),
    "kills itself": (10, "os.kill(os.getpid(), 9)", 20, ("signal", 137)),
    "timeout": (6, "while True: pass", 1, ("timeout", -1)),
    "stopped": (3, "os.kill(0, 19)\ntime.sleep(60)", 1, ("timeout", -1)),
    "memory": (6, "a = []\nwhile True: a.append(bytearray(b'x') * (16 << 20))", 20, ("memory", 137)),
    "memory of a child": (3, "if os.fork() == 0:\n    a = []\n    while True: a.append(bytearray(b'x') * (16 << 20))\nos.wait()", 20, ("memory", 137)),
    "output cap": (10, "while True: os.write(1, b'y' * 65536)", 20, ("output", 137)),
    "fork bomb": (6, "try:\n    while True:\n        if os.fork() == 0: time.sleep(60)\nexcept OSError: os._exit(4)", 20, ("exit", 4)),
    "daemons left": (24, "for i in range(5):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork(): os._exit(0)\n        time.sleep(600)\nos._exit(5)", 20, ("exit", 5)),
    "full disks": (6, "for d in ('/box', '/tmp', '/dev/shm'):\n    try: open(d + '/f', 'wb').write(b'x' * (70 << 20))\n    except OSError: pass", 20, ("exit", 0)),
    "ipc left": (10, "import ctypes, mmap\nl = ctypes.CDLL(None)\nfor i in range(5): l.shmget(0, 1 << 20, 0o1600); l.semget(0, 1, 0o1600); l.msgget(0, 0o1600)\nos.memfd_create('x')\nos.mkfifo('f')", 20, ("exit", 0)),
    "egress": (30, "import socket\nfor f in (lambda: socket.getaddrinfo('leak-%d.example' % here['uid'], 80), lambda: socket.create_connection(('192.0.2.1', 443), 1), lambda: socket.socket(2, 2).sendto(b'x', ('198.51.100.7', 9))):\n    try: f(); print('LET OUT')\n    except OSError: pass", 20, ("exit", 0)),
    "sockets left": (16, "import socket\nkeep = [socket.socketpair() for i in range(100)] + [socket.socket(2, 2) for i in range(100)]\ns = socket.socket(socket.AF_UNIX); s.bind('\\0leak'); s.listen()\nos._exit(6)", 20, ("exit", 6)),
}
CANCELLED = 20  # and so many whose client hangs up
TOTAL = sum(row[0] for row in KINDS.values()) + CANCELLED


class FiveHundredRuns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.state = tempfile.mkdtemp(prefix="weir-test-state-")
        cls.service = Service(state=cls.state, pool=4)
        try:
            cls.go()
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()
        shutil.rmtree(cls.state, ignore_errors=True)

    @classmethod
    def look(cls):
        return Footprint(cls.instance, cls.service)

    @classmethod
    def go(cls):
        service = cls.service
        cls.instance = service.name()
        # One of each kind first, so that whatever is made once is there before we look.
        with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
            list(pool.map(lambda row: service.execute(HEAD + row[1], timeout_s=row[2]), KINDS.values()))
        service.wait_warm()
        time.sleep(0.3)
        cls.before = cls.look()
        cls.slabs_before = slabs()

        work = [kind for kind, row in KINDS.items() for _ in range(row[0])] + [None] * CANCELLED
        random.Random(7).shuffle(work)
        cls.results, cls.hung_up = [], 0
        lock = threading.Lock()

        def one(kind):
            if kind is None:
                cls.hang_up(service)
                with lock:
                    cls.hung_up += 1
                return
            _, code, timeout, _ = KINDS[kind]
            began = time.monotonic()
            answer = service.execute(HEAD + code, timeout_s=timeout)
            with lock:
                cls.results.append((kind, answer, began, time.monotonic()))

        with Watch(service, every=0.05) as watch:
            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
                for job in [pool.submit(one, kind) for kind in work]:
                    job.result()
            cls.seconds = time.monotonic() - began
            # The last hang-ups may still be on their way.
            service.wait_warm()
            cls.watched = watch.seen
        cls.difference = settled(cls.before, cls.look)
        cls.after = cls.look()
        print("          %d runs in %.1f s; resident: %s" % (len(cls.results) + cls.hung_up, cls.seconds, {k: "%.1f -> %.1f MiB" % (cls.before.rss[k] / MIB, cls.after.rss.get(k, 0) / MIB) for k in sorted(cls.before.rss)}), flush=True)

    @staticmethod
    def hang_up(service):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30 * SLOW)
        code = HEAD + random.choice(["while True: pass", "time.sleep(60)", "for i in range(5): os.fork()\ntime.sleep(60)", "while True: print('x' * 1000)"])
        connection.request("POST", "/v1/execute", body=json.dumps({"code": code}), headers={"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"})
        time.sleep(random.choice([0, 0.02, 0.1, 0.3]))
        connection.close()

    def answers(self, kind=None):
        return [a.json() for k, a, _, _ in self.results if a.status == 200 and kind in (None, k)]

    def here(self, answer):
        found = re.search(r"^HERE (.*)$", answer["stdout"], re.M)
        return json.loads(found.group(1)) if found else None

    # -- every run ended as its kind does --

    def test_all_ran_and_ended_as_they_should(self):
        self.assertEqual(len(self.results) + self.hung_up, TOTAL)
        self.assertGreaterEqual(TOTAL, 500)
        bad = collections.Counter()
        example = {}
        for kind, answer, _, _ in self.results:
            body = answer.json()
            want = KINDS[kind][3]
            got = (body["termination"]["reason"], body["exit_code"]) if answer.status == 200 else (answer.status, body["error"]["message"])
            if got != want:
                bad[kind, got] += 1
                example[kind] = {k: str(v)[:300] for k, v in body.items()}
        self.assertEqual(bad, {}, example)
        for answer in self.answers():
            self.assertIsNotNone(self.here(answer), answer)

    def test_egress_was_denied_and_named(self):
        for answer in self.answers("egress"):
            self.assertNotIn("LET OUT", answer["stdout"])
            self.assertEqual(answer["egress"]["allowed"], 0)
            self.assertGreaterEqual(answer["egress"]["denied"], 3)
            # Its own attempts, not those of a run beside it.
            names = {d.get("dns_name") for d in answer["egress"]["destinations"] if d.get("dns_name")}
            self.assertEqual(names, {"leak-%d.example" % self.here(answer)["uid"]})
        for kind in ("ok", "error exit"):
            for answer in self.answers(kind):
                self.assertEqual(answer["egress"]["attempts"], 0)

    # -- nothing is left --

    def test_nothing_is_left(self):
        self.assertEqual(self.difference, {})

    def test_the_counts_see_something(self):
        # The counter-proof: the same look at a service with work in it finds more than it did before.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            run = pool.submit(self.service.run, "import subprocess, time\nfor i in range(3): subprocess.Popen(['sleep', '60'])\ntime.sleep(1.0)")
            time.sleep(0.4)
            difference = self.before.difference(self.look())
            run.result()
        for key in ("cgroups", "processes", "fds of the supervisor", "namespaces", "entries of the sandboxes map"):
            self.assertIn(key, difference)
        self.assertEqual(settled(self.before, self.look), {})

    def test_every_process_that_was_seen_is_dead(self):
        warm = set(self.service.sandboxes())
        left = {s: [who for who in procs if identity(who[0]) == who] for s, procs in self.watched.items() if s not in warm}
        self.assertEqual({s: p for s, p in left.items() if p}, {})
        self.assertGreaterEqual(len(left), 300)

    def test_memory_of_weir_is_bounded(self):
        for role, bound in (("supervisor", 4), ("api", 24), ("auditor", 8)):
            with self.subTest(role):
                self.assertLess(self.after.rss[role] - self.before.rss[role], bound * MIB)

    def test_kernel_objects_are_freed(self):
        # Freed a little later and in batches, by the kernel, for the whole host; what must not be is one a run.
        deadline = time.monotonic() + 20 * SLOW
        while True:
            now = slabs()
            grown = {k: now.get(k, 0) - self.slabs_before.get(k, 0) for k in ("net_namespace", "pid_namespace", "ovl_inode", "task_struct", "dying cgroups")}
            if all(n < TOTAL // 4 for n in grown.values()) or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        self.assertEqual({k: n for k, n in grown.items() if n >= TOTAL // 4}, {})

    # -- nothing was shared --

    def test_ids_are_unique(self):
        ids = [a["sandbox_id"] for a in self.answers()] + [a["run_id"] for a in self.answers() if a["run_id"] != a["sandbox_id"]]
        self.assertEqual(len(ids), len(set(ids)))
        for i in ids:
            self.assertRegex(i, r"^sandbox-[a-z0-9]{5,}$")

    def test_no_two_at_once_had_one_uid(self):
        spans = []
        for kind, answer, began, ended in self.results:
            spans.append((self.here(answer.json())["uid"], began, ended))
        clashes = [(a, b) for a, b in itertools.combinations(sorted(spans), 2) if a[0] == b[0] and a[1] < b[2] and b[1] < a[2]]
        self.assertEqual(clashes, [])
        self.assertGreater(len({uid for uid, _, _ in spans}), 0.99 * len(spans))

    def test_each_found_a_pristine_place(self):
        found = [self.here(a)["found"] for a in self.answers()]
        self.assertEqual([f for f in found if f], [])

    def test_no_two_had_one_random_stream(self):
        samples = []
        for answer in self.answers("ok"):
            samples.append(json.loads(re.search(r"^SAMPLE (.*)$", answer["stdout"], re.M).group(1)))
        self.assertGreaterEqual(len(samples), 200)
        for key in samples[0]:
            with self.subTest(key):
                values = [str(s[key]) for s in samples]
                self.assertEqual(len(set(values)), len(values))


class EightAtOnce(unittest.TestCase):
    """Eight that are alive at the same moment, from one warm pool: pairwise nothing in common."""

    def test_pairwise(self):
        with Service(pool=8) as service:
            service.wait_warm()
            # Each waits until the others are there too: half a second is long for eight that are warm.
            code = HEAD + STREAMS + "time.sleep(0.7)\nprint('END %r' % time.clock_gettime(time.CLOCK_MONOTONIC))"
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: service.run(code), range(8)))
        seen = []
        for a in answers:
            here = json.loads(re.search(r"^HERE (.*)$", a["stdout"], re.M).group(1))
            sample = json.loads(re.search(r"^SAMPLE (.*)$", a["stdout"], re.M).group(1))
            end = float(re.search(r"^END (.*)$", a["stdout"], re.M).group(1))
            seen.append((a["sandbox_id"], here, sample, end))
        # They did overlap, all of them.
        self.assertLess(max(s[1]["began"] for s in seen), min(s[3] for s in seen))
        for a, b in itertools.combinations(seen, 2):
            self.assertNotEqual(a[0], b[0])
            self.assertNotEqual(a[1]["uid"], b[1]["uid"])
            self.assertEqual(set(a[1]["ns"]) & set(b[1]["ns"]), set())
            self.assertEqual((a[1]["found"], b[1]["found"]), ([], []))
            for key in a[2]:
                self.assertNotEqual(a[2][key], b[2][key], key)


class AfterStop(unittest.TestCase):
    """SIGTERM leaves nothing at all: measured against the host as it was before the service started."""

    def stop_and_compare(self, before, service, instance, state):
        status = service.stop()
        self.assertEqual(status, 0, service.last_log)
        self.assertEqual(settled(before, lambda: Footprint(instance)), {})
        left = [os.path.join(m, "weir", instance) for m in ("/sys/fs/bpf", "/run")] + cgroup_dirs(instance)
        self.assertEqual([p for p in left if os.path.exists(p)], [])
        # What stays is the record, and nothing else.
        self.assertEqual({n for n in os.listdir(state)}, {"audit"})

    def test_after_work(self):
        state = tempfile.mkdtemp(prefix="weir-test-state-")
        try:
            before = Footprint("none")
            service = Service(state=state, pool=4)
            try:
                instance = service.name()
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    list(pool.map(lambda k: service.execute(HEAD + KINDS[k][1], timeout_s=KINDS[k][2]), KINDS))
                self.stop_and_compare(before, service, instance, state)
            finally:
                service.stop()
        finally:
            shutil.rmtree(state, ignore_errors=True)

    def test_in_the_middle_of_work(self):
        state = tempfile.mkdtemp(prefix="weir-test-state-")
        try:
            before = Footprint("none")
            service = Service(state=state, pool=3)
            try:
                instance = service.name()
                bodies = ["while True: pass", "import os\nfor i in range(30):\n    if os.fork() == 0: break\nimport time\ntime.sleep(60)", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"]

                def client(code):
                    try:
                        return service.execute(code, timeout_s=60)
                    except (OSError, http.client.HTTPException) as e:
                        return e

                with concurrent.futures.ThreadPoolExecutor(3) as pool:
                    runs = [pool.submit(client, code) for code in bodies]
                    deadline = time.monotonic() + 10 * SLOW
                    while service.pool()["in_use"] < 3 and time.monotonic() < deadline:
                        time.sleep(0.02)
                    # Twice: asked a second time it does not wait for the runs.
                    service.process.terminate()
                    time.sleep(0.2)
                    self.stop_and_compare(before, service, instance, state)
                    for run in runs:
                        answer = run.result()
                        if not isinstance(answer, Exception) and answer.status == 200:
                            self.assertEqual(answer.json()["termination"]["reason"], "cancelled")
            finally:
                service.stop()
        finally:
            shutil.rmtree(state, ignore_errors=True)

    def test_a_cycle_of_starts_leaves_nothing(self):
        before = Footprint("none")
        for _ in range(3):
            with Service(pool=1) as service:
                self.assertEqual(service.run("print(1)")["stdout"], "1\n")
        self.assertEqual(settled(before, lambda: Footprint("none")), {})


def cgroup_dirs(instance):
    return [os.path.join(m, "weir", instance) for m in cgroup_mounts()]


if __name__ == "__main__":
    unittest.main()
