# SPDX-License-Identifier: Apache-2.0
"""The set-up steps that only a tool's sandbox takes, made to fail and left out in turn; the rest of the table is tried with
snippets, in tests/system/test_faults.py and test_inside.py."""
import os
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

from fixture import Agents
from footprint import Footprint, cgroups_of, settled
from lib import SLOW, WEIR_HOOKS, Service
from test_faults import OF_TOOLS, steps, strays
from test_templates import carriers_of, resting, tools_of, until

APP = """
import socket

def ok():
    return 1

def reach(address, port):
    s = socket.socket()
    s.settimeout(2)
    try:
        s.connect((address, port))
        return "connected"
    except OSError as e:
        return type(e).__name__
"""

# What a call meets when a step is left out: a later layer that refuses the sandbox, or (the word, an answer's error or result).
LEFT_OUT = {
    "WAY_OUT": ("layer", "network"),  # CARRY: there is no cgroup for the carrier to be born in
    "TAP": ("layer", "policy"),  # PROBE_COUNT: no route is no verdict
    "CARRY": ("nowhere", "policy"),  # a device goes with who holds it: PROBE_COUNT finds no route any more, or the call does
    "LOAD": ("ended", None),  # the harness waits for the word to load, and takes no other
}


class Once:
    """One state directory with an agent; a service on it for each step."""

    def __init__(self):
        self.agents = Agents({"app.py": APP}, options=("--pool", "1"), binary=WEIR_HOOKS)
        self.agents.service.stop()

    def start(self, option, step):
        self.agents.service = Service(option, step, state=self.agents.state, binary=WEIR_HOOKS, pool=1)
        return self.agents.service


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.before = Footprint("none")
        cls.once = Once()

    @classmethod
    def tearDownClass(cls):
        cls.once.agents.stop()

    def test_the_table_has_them(self):
        table = {name: layer for name, layer, _ in steps()}
        self.assertLessEqual(OF_TOOLS, set(table))
        self.assertEqual(OF_TOOLS, set(LEFT_OUT))

    def test_each_made_to_fail(self):
        layers = {name: layer for name, layer, _ in steps()}
        for step in sorted(OF_TOOLS):
            with self.subTest(step):
                service = self.once.start("--test-fault", step)
                try:
                    for _ in range(2):
                        answer = self.once.agents.request("ok")
                        self.assertEqual(answer.status, 500, answer)
                        error = answer.json()["error"]
                        self.assertIs(error["ran"], False)
                        self.assertIn("Input/output error" if step == "TAP" else "made to fail by a test", error["message"])
                    self.assertIn("layer %s, step %s:" % (layers[step], step), service.log_text())
                    # Snippets take none of these steps.
                    self.assertEqual(service.run("print(1)")["stdout"], "1\n")
                    self.assertEqual(service.request("GET", "/readyz", token=None).status, 200)
                    self.assertEqual(until(lambda: (tools_of(service), carriers_of(service)), ({}, {})), ({}, {}))
                    name = service.name()
                finally:
                    status = service.stop()
                self.assertEqual(status, 0, service.last_log)
                # A process that is dead is there until its parent has taken note.
                self.assertEqual(until(lambda: (cgroups_of(name), strays(name)), ([], [])), ([], []))
        self.assertEqual(settled(self.before, lambda: Footprint("none")), {})

    def test_each_left_out(self):
        for step, (kind, want) in LEFT_OUT.items():
            with self.subTest(step):
                service = self.once.start("--test-skip", step)
                try:
                    # A public address: what the policy allows.
                    answer = self.once.agents.request("reach", {"address": "1.1.1.1", "port": 9})
                    log = service.log_text()
                finally:
                    self.assertEqual(service.stop(), 0)
                if kind == "layer":
                    self.assertEqual(answer.status, 500, answer)
                    self.assertIn("no sandbox: layer %s" % want, log)
                elif kind == "nowhere" and answer.status == 500:
                    self.assertIn("no sandbox: layer %s" % want, log)
                elif kind == "nowhere":
                    self.assertEqual(answer.json().get("result"), "OSError", answer)
                else:
                    self.assertNotIn("result", answer.json(), answer)


class Killed(unittest.TestCase):
    """The gateway or a carrier that dies takes with it what depends on it, and nothing runs on without being told."""

    def test_a_supervisor_that_dies_leaves_the_next_what_it_needs(self):
        with Agents({"app.py": "import socket\ntry: socket.create_connection(('192.0.2.7', 7001), 1)\nexcept OSError: pass\ndef ok(): return 1\n"}, options=("--pool", "1")) as a:
            self.assertEqual(a.call("ok")["result"], 1)
            waiting = until(lambda: resting(a.service), lambda found: len(found) == 2)
            pids = sum(a.service.sandboxes().values(), [])
            a.service.kill9()
            self.assertEqual(until(lambda: [p for p in pids if os.path.exists("/proc/%d" % p)], []), [])
            a.service = Service("--pool", "1", state=a.state)
            self.assertIn("sandboxes", a.service.log_text())
            # Three of its own: two of the agent's, one of snippets; their carriers are none.
            self.assertRegex(a.service.log_text(), r"swept what instance \S+ left: 3 sandboxes")
            for sandbox in waiting:
                run = a.service.audit(sandbox)
                self.assertEqual((run["state"], run["project"]), ("interrupted", "demo"))
                self.assertEqual([e["port"] for e in run["events"]], [7001])
            self.assertEqual(a.call("ok")["result"], 1)


if __name__ == "__main__":
    unittest.main()
