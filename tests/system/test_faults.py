# SPDX-License-Identifier: Apache-2.0
"""Every set-up step made to fail in turn: a 500 that names the layer, `ran` false, no user code ran, nothing left.

The cases are generated from `weir-hooks serve --list-steps`: a new step is tested by being in the table. All of them can be made
to fail on every host, since the failure is put before the step's own work, also where the step has nothing to do (v1 cgroups on
a pure v2 host and the other way round).
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from footprint import UID_BASE, UID_END, Footprint, cgroups_of, pids, read, settled, uid_of
from lib import SLOW, WEIR_HOOKS, Service

WIDTH = 4
OF_TOOLS = {"WAY_OUT", "TAP", "CARRY", "LOAD"}  # no snippet takes these: tests/agents/test_call_faults.py


def steps():
    done = subprocess.run([WEIR_HOOKS, "serve", "--list-steps"], stdout=subprocess.PIPE, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def witness(step):
    """Code that can not run unseen: a name asked for is an event of the kernel's and stands in the record, whatever the answer is."""
    name = "ran-%s.witness.example" % step.lower().replace("_", "-")
    return name, "import socket\ntry: socket.getaddrinfo(%r, 1)\nexcept OSError: pass\nprint('ran')" % name


def record_of(state):
    """Everything that the state directory's files hold."""
    text = b""
    for base, _, files in os.walk(state):
        for name in files:
            with open(os.path.join(base, name), "rb") as f:
                text += f.read()
    return text


def strays(instance):
    """Processes of sandboxes that belong to this instance, by cgroup; there is no other place they could be."""
    return [p for p in pids() if UID_BASE <= (uid_of(p) or 0) < UID_END and "/weir/%s/" % instance in read("/proc/%d/cgroup" % p)]


class Outcome:
    pass


def try_fault(step):
    """Everything seen of one service whose `step` fails."""
    seen = Outcome()
    state = tempfile.mkdtemp(prefix="weir-test-state-")
    name, code = witness(step)
    service = None
    try:
        service = Service("--test-fault", step, binary=WEIR_HOOKS, state=state, ready=False, pool=1)
        seen.answer = service.execute(code)
        seen.instance = service.name()
        # Asked again: the second time is no different from the first.
        seen.again = service.execute(code)
        deadline = time.monotonic() + 5 * SLOW
        while True:
            seen.readyz = service.request("GET", "/readyz", token=None)
            if b"layer" in seen.readyz.body or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        seen.healthz = service.request("GET", "/healthz", token=None)
        seen.pool = service.pool()
        # What a failed attempt leaves while the service lives: nothing, between two attempts.
        deadline = time.monotonic() + 5 * SLOW
        while True:
            seen.alive = (sorted(service.sandboxes()), strays(seen.instance))
            if seen.alive == ([], []) or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        seen.pins = len(os.listdir(service.pins()))
        began = time.monotonic()
        seen.status = service.stop()
        seen.stop_seconds = time.monotonic() - began
        seen.log = service.last_log
        seen.left = {
            "cgroups": cgroups_of(seen.instance),
            "processes": strays(seen.instance),
            "pins": os.path.exists("/sys/fs/bpf/weir/" + seen.instance),
            "run directory": os.path.exists("/run/weir/" + seen.instance),
        }
        seen.record = record_of(state)
        seen.witness = name.encode()
    finally:
        if service:
            service.stop()
        shutil.rmtree(state, ignore_errors=True)
    return seen


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.table = steps()
        cls.steps = [row for row in cls.table if row[0] not in OF_TOOLS]
        cls.before = Footprint("none")
        with concurrent.futures.ThreadPoolExecutor(WIDTH) as pool:
            jobs = {name: pool.submit(try_fault, name) for name, _, _ in cls.steps}
            cls.seen = {name: job for name, job in jobs.items()}

    def each(self, check):
        for name, layer, actor in self.steps:
            with self.subTest(name):
                check(name, layer, self.seen[name].result())

    def test_the_table_is_whole(self):
        self.assertGreaterEqual(len(self.steps), 38)
        self.assertEqual(len(self.table) - len(self.steps), len(OF_TOOLS))
        self.assertEqual({actor for _, _, actor in self.steps}, {"SUP", "INIT", "PAY"})
        self.assertEqual({layer for _, layer, _ in self.steps} - {""}, {layer for _, layer, _ in self.steps})

    def test_the_answer_names_the_layer(self):
        def check(name, layer, seen):
            for answer in (seen.answer, seen.again):
                self.assertEqual(answer.status, 500, answer)
                error = answer.json()["error"]
                self.assertEqual(set(error), {"code", "message", "hint", "ran"})
                self.assertEqual(error["code"], "sandbox_failed")
                self.assertIn("failed at layer %s:" % layer, error["message"])
                self.assertIs(error["ran"], False)
                self.assertTrue(error["hint"])

        self.each(check)

    def test_the_log_names_the_step(self):
        def check(name, layer, seen):
            self.assertIn("layer %s, step %s:" % (layer, name), seen.log)

        self.each(check)

    def test_readiness_says_why(self):
        def check(name, layer, seen):
            self.assertEqual(seen.readyz.status, 503, seen.readyz)
            self.assertIn("layer %s" % layer, seen.readyz.json()["error"]["message"])
            # Alive it is.
            self.assertEqual(seen.healthz.status, 200)
            self.assertEqual((seen.pool["warm"], seen.pool["served"]), (0, 0))

        self.each(check)

    def test_no_user_code_ran(self):
        def check(name, layer, seen):
            self.assertNotIn(seen.witness, seen.record)
            self.assertNotIn(b"witness.example", seen.record)
            for answer in (seen.answer, seen.again):
                self.assertNotIn("stdout", answer.json())

        self.each(check)

    def test_nothing_is_left(self):
        def check(name, layer, seen):
            self.assertEqual(seen.alive, ([], []))
            self.assertGreater(seen.pins, 0)  # there was something that had to go
            self.assertEqual(seen.left, {"cgroups": [], "processes": [], "pins": False, "run directory": False})
            self.assertEqual(seen.status, 0, seen.log)
            self.assertLess(seen.stop_seconds, 10 * SLOW)

        self.each(check)

    def test_nothing_is_left_of_all_of_them(self):
        for name, _, _ in self.steps:
            self.seen[name].result()
        difference = settled(self.before, lambda: Footprint("none"))
        self.assertEqual(difference, {})


class Witness(unittest.TestCase):
    """The counter-proof: on a service without a fault the same code runs, and the same search finds its trace."""

    def test_the_witness_speaks(self):
        state = tempfile.mkdtemp(prefix="weir-test-state-")
        name, code = witness("NONE")
        try:
            with Service(binary=WEIR_HOOKS, state=state, pool=1) as service:
                self.assertEqual(service.run(code)["stdout"], "ran\n")
            self.assertIn(name.encode(), record_of(state))
        finally:
            shutil.rmtree(state, ignore_errors=True)

    def test_only_hooks_can_fault(self):
        # The program that people install knows none of this.
        from lib import WEIR

        for option in (["--test-fault", "SECCOMP"], ["--test-skip", "SECCOMP"], ["--list-steps"]):
            done = subprocess.run([WEIR, "serve", *option], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr.decode(), re.compile("unrecognized|unknown", re.I))
            done = subprocess.run([WEIR, "run", *option, "-c", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
            self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
