# SPDX-License-Identifier: Apache-2.0
"""The pool: what is handed out is alive and up to date, the counts are exact, and whose turn it is is not a matter of luck."""
import contextlib
import os
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
import unittest

from clients import execute, mint
from footprint import read
from lib import SLOW, Service, pid_ns_inside

# When a snippet began, by a clock that all sandboxes share.
NOW = "import time; print(time.clock_gettime_ns(time.CLOCK_MONOTONIC))"


@contextlib.contextmanager
def stopped(service):
    """The supervisor is stopped meanwhile: what is asked then is what it finds all at once afterwards."""
    os.kill(service.process.pid, signal.SIGSTOP)
    try:
        yield
        time.sleep(0.15 * SLOW)  # the api has passed it on
    finally:
        os.kill(service.process.pid, signal.SIGCONT)


class DeadBeforeUse(unittest.TestCase):
    """A warm sandbox may die of anything (the host's memory, an operator's mistake): no request is the worse for it."""

    def setUp(self):
        self.service = Service(pool=3)
        self.addCleanup(self.service.stop)

    def warm(self, inside):
        """Host pids of the warm ones' interpreters (inside=2) or inits (inside=1)."""
        self.service.wait_warm()
        found = []
        for pids in self.service.sandboxes().values():
            with contextlib.suppress(OSError):
                found += [p for p in pids if pid_ns_inside(p) == inside]
        return found

    def test_killed_and_asked_for_at_once(self):
        seen = set()
        for i in range(16):
            victims = self.warm(inside=1 if i % 4 == 3 else 2)
            self.assertEqual(len(victims), 3)
            for pid in victims[: 1 + i % 3] if i % 2 else victims:
                os.kill(pid, signal.SIGKILL)
            answer = self.service.execute("print(%d)" % i)
            self.assertEqual(answer.status, 200, answer)
            self.assertEqual((answer.json()["stdout"], answer.json()["exit_code"]), ("%d\n" % i, 0))
            seen.add(answer.json()["sandbox_id"])
        self.assertEqual(len(seen), 16)
        state = self.service.wait_warm()
        self.assertEqual((state["warm"], state["starting"], state["in_use"], state["waiting"], state["served"]), (3, 0, 0, 0, 16))

    def test_stopped(self):
        """One that somebody has stopped would do nothing until its deadline."""
        for pid in self.warm(inside=2):
            os.kill(pid, signal.SIGSTOP)
            while "(stopped)" not in read("/proc/%d/status" % pid):
                time.sleep(0.01)
        answer = self.service.run("print('awake')", timeout_s=5)
        self.assertEqual(answer["stdout"], "awake\n")

    def test_not_yet_heard_of(self):
        """The supervisor finds the deaths and the request in the same moment: it looks before it hands out."""
        for inside in (2, 1):
            with self.subTest(inside=inside):
                victims = self.warm(inside)
                with stopped(self.service):
                    post = execute(self.service, "print('fresh')")
                    for pid in victims:
                        os.kill(pid, signal.SIGKILL)
                answer = post.answer()
                self.assertEqual(answer.status, 200, answer)
                self.assertEqual(answer.json()["stdout"], "fresh\n")


class StaleBeforeUse(unittest.TestCase):
    def test_an_upgraded_interpreter_is_the_next_one_used(self):
        """Files of the image replaced, as an upgrade does it: a quarter of a second later nobody gets the old ones."""
        prefix = tempfile.mkdtemp(prefix="weir-test-prefix-")
        self.addCleanup(shutil.rmtree, prefix, True)
        program, version = self.make_prefix(prefix)
        code = "import sys, os; print(os.stat(sys.executable).st_size); import json"
        size = os.path.getsize(program)
        with Service("--python", program, pool=3) as service:
            self.assertEqual(service.run(code)["stdout"], "%d\n" % size)
            service.wait_warm()
            for more in (1, 2):
                shutil.copy2(program, program + ".new")
                with open(program + ".new", "ab") as f:
                    f.write(b"\0")
                os.rename(program + ".new", program)
                time.sleep(0.3)
                # All three that wait are of yesterday, and none of them is handed out.
                answers = [execute(service, code) for _ in range(3)]
                self.assertEqual([a.answer().json()["stdout"] for a in answers], ["%d\n" % (size + more)] * 3)
            state = service.wait_warm()
            self.assertEqual((state["warm"], state["in_use"], state["served"]), (3, 0, 7))
            self.assertEqual(service.log_text().count("building it anew"), 2)

    @staticmethod
    def make_prefix(prefix):
        """A copy of a Python that is ours to change; the least of its library that it starts with."""
        executable, stdlib, version = os.path.realpath(sys.executable), sysconfig.get_path("stdlib"), "%d.%d" % sys.version_info[:2]
        program = os.path.join(prefix, "bin", "python" + version)
        os.makedirs(os.path.dirname(program))
        shutil.copy2(executable, program)
        skip = shutil.ignore_patterns("test", "tests", "__pycache__", "site-packages", "dist-packages", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "config-*")
        shutil.copytree(stdlib, os.path.join(prefix, "lib", "python" + version), ignore=skip, symlinks=True)
        os.makedirs(os.path.join(prefix, "lib", "python" + version, "site-packages"), exist_ok=True)
        return program, version


class Counts(unittest.TestCase):
    """`GET /v1/pool` tells what is, not about what."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=3)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def test_each_request_is_a_hit_or_a_miss(self):
        before = self.service.wait_warm()
        for _ in range(4):
            self.service.wait_warm()
            self.service.run("pass")
        state = self.service.wait_warm()
        self.assertEqual((state["misses"] - before["misses"], state["served"] - before["served"]), (0, 4))
        # All at once: three are warm, the last of them is not for the same project's third; so two hits.
        with stopped(self.service):
            posts = [execute(self.service, "pass") for _ in range(7)]
        self.assertEqual([p.answer().status for p in posts], [200] * 7)
        state = self.service.wait_warm()
        self.assertEqual((state["misses"] - before["misses"], state["served"] - before["served"]), (5, 11))

    def test_starting_in_use_and_waiting(self):
        before = self.service.wait_warm()
        code = "import time; time.sleep(2)"
        with stopped(self.service):
            posts = [execute(self.service, code) for _ in range(8)]
        seen = []
        deadline = time.monotonic() + 20 * SLOW
        while time.monotonic() < deadline:
            state = self.service.pool()
            seen.append(state)
            # Whatever else happens, nobody is counted twice or forgotten.
            self.assertLessEqual(state["in_use"] + state["waiting"] + state["served"] - before["served"], 16)
            self.assertLessEqual(state["in_use"], 8)
            self.assertLessEqual(state["starting"], 4)
            self.assertLessEqual(state["warm"], 3)
            if state["in_use"] + state["waiting"] == 0:
                break
        self.assertEqual([p.answer().status for p in posts], [200] * 8)
        self.assertTrue(any(s["waiting"] for s in seen), seen[:3])
        self.assertTrue(any(s["starting"] for s in seen))
        self.assertEqual(max(s["in_use"] for s in seen), 8)
        # While eight ran for a second the pool was made whole beside them: taken means refilled.
        self.assertTrue(any(s["in_use"] == 8 and s["warm"] == 3 and not s["waiting"] and not s["starting"] for s in seen))
        self.assertEqual(seen[-1]["served"] - before["served"], 8)

    def test_a_session_is_in_use(self):
        before = self.service.wait_warm()
        session = self.service.request("POST", "/v1/sessions", {})
        self.assertIn(session.status, (200, 201), session)
        deadline = time.monotonic() + 10 * SLOW
        state = self.service.pool()
        while state["warm"] < 3 and time.monotonic() < deadline:
            state = self.service.pool()
        self.assertEqual((state["in_use"], state["warm"], state["waiting"]), (1, 3, 0))
        # Single runs go on beside it; to its project the last one is not open, and there is always another.
        for i in range(5):
            self.assertEqual(self.service.run("print(%d)" % i)["stdout"], "%d\n" % i)
        self.service.request("DELETE", "/v1/sessions/" + session.json()["session_id"])
        state = self.service.wait_warm()
        self.assertEqual((state["in_use"], state["misses"] - before["misses"] <= 5), (0, True))

    def test_withdrawn_is_not_waiting(self):
        before = self.service.wait_warm()
        with stopped(self.service):
            posts = [execute(self.service, "import time; time.sleep(0.5)") for _ in range(12)]
            time.sleep(0.1)
            for post in posts:
                post.hang_up()
        state = self.service.wait_warm()
        self.assertEqual((state["waiting"], state["in_use"]), (0, 0))
        self.assertLessEqual(state["served"] - before["served"], 12)


class Turns(unittest.TestCase):
    """The order in which requests get their sandbox."""

    def answers(self, pool, requests):
        """[(name, answer)] of requests that are all there at once, in the order of their runs' beginnings by their own clocks."""
        with Service(pool=pool) as service:
            tokens = {name: mint(service, name) for name in sorted(set(requests))}
            service.wait_warm()
            with stopped(service):
                posts = [(name, execute(service, NOW, tokens[name])) for name in requests]
            answers = [(name, post.answer().json()) for name, post in posts]
        return sorted(answers, key=lambda a: int(a[1]["stdout"]))

    def test_turn_by_turn(self):
        order = [name for name, _ in self.answers(1, ["a"] * 12 + ["b"] * 3 + ["c"])]
        # a b c a b a b a ..: two may begin in another order than they were granted in, on a busy machine; with FIFO c is last.
        self.assertLessEqual(order.index("c"), 5, order)
        self.assertLessEqual(order.index("b"), 4, order)
        self.assertLessEqual(max(i for i, n in enumerate(order) if n == "b"), 10, order)

    def test_the_last_warm_one_is_for_who_has_none(self):
        """Two warm ones for the flood that was there first, and the third for the one that came alone."""
        answers = self.answers(3, ["flood"] * 20 + ["single"])
        waits = sorted((answer["usage"]["stages"]["queue_ms"], name) for name, answer in answers)
        # It came last and was granted in the same moment as the first two.
        self.assertLessEqual([name for _, name in waits].index("single"), 2, waits)

    def test_a_flood_alone_is_served_to_the_end(self):
        self.assertEqual(len(self.answers(2, ["flood"] * 30)), 30)


if __name__ == "__main__":
    unittest.main()
