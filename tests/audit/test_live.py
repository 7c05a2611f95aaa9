# SPDX-License-Identifier: Apache-2.0
"""GET /v1/runs/{run_id} of a run that goes on: what it has used and tried so far, from both sources, and nothing of anybody else's."""
import time
import unittest

from clients import Post, mint
from lib import SLOW, Service

# For three seconds or so: uses the processor, writes, tries to get out, starts a process now and then.
WORK = """
import os, socket, time
until = time.monotonic() + 3
said = 0
while time.monotonic() < until:
    try: socket.create_connection(("10.1.2.3", 81), 1)
    except OSError: pass
    print("x" * 99, flush=True)
    said += 1
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    stop = time.thread_time() + 0.02
    while time.thread_time() < stop: pass
print(said)
"""


class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=2)
        try:
            cls.tokens = {name: mint(cls.service, name) for name in ("alpha", "beta", "gamma")}
            cls.reviewer = mint(cls.service, "sec", "--scope", "reviewer")
        except BaseException:
            cls.service.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def get(self, path, token):
        return self.service.request("GET", path, token=token)

    def record(self, run_id, token):
        answer = self.get("/v1/runs/" + run_id, token)
        self.assertEqual(answer.status, 200, answer)
        return answer.json()

    def until(self, what, fn):
        deadline = time.monotonic() + 20 * SLOW
        while time.monotonic() < deadline:
            found = fn()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError("no %s" % what)

    def running(self, project, but=()):
        """The run of the project's that goes on."""

        def look():
            rows = self.get("/v1/audit?limit=9&project=" + project, self.reviewer).json()["runs"]
            return [row["run_id"] for row in rows if row["state"] == "running" and row["run_id"] not in but]

        return self.until("run that goes on", look)[0]

    def figures(self, run):
        return {
            "cpu": run["usage"]["cpu_ms"]["value"],
            "cpu by task": run["usage"]["cpu_ms"]["checked"]["value"],
            "output": run["usage"]["output_bytes"]["value"],
            "written": run["usage"]["output_bytes"]["checked"]["value"],
            "attempts": run["egress"]["attempts"],
            "denied": run["egress"]["denied"],
            "processes": run["processes"],
            "duration": run["duration_ms"],
        }

    def test_figures_grow_to_those_of_the_end(self):
        post = Post(self.service, "/v1/execute", {"code": WORK, "timeout_s": 20}, token=self.tokens["alpha"])
        run = self.running("alpha")
        seen = []

        def look():
            record = self.record(run, self.tokens["alpha"])
            if not record.get("live") or not record["usage"]["cpu_ms"]["checked"]:
                return record["state"] != "running"
            self.assertEqual(record["state"], "running")
            self.assertTrue(record["egress"]["exact"])
            self.assertIsNone(record["termination"])
            self.assertGreater(record["usage"]["memory_peak_bytes"]["value"], 1 << 20)
            seen.append(self.figures(record))
            # Nobody else's business, however it is asked for.
            self.assertEqual(self.get("/v1/runs/" + run, self.tokens["beta"]).status, 404)
            return len(seen) > 2 and all(seen[-1][name] > seen[0][name] for name in seen[0])

        try:
            self.until("growth of every figure", look)
        except AssertionError as e:
            raise AssertionError("%s: %r" % (e, seen[:1] + seen[-1:])) from e
        self.assertGreater(len(seen), 2)
        for name in seen[0]:
            self.assertEqual([one[name] for one in seen], sorted(one[name] for one in seen), name)
            self.assertGreater(seen[-1][name], seen[0][name], name)
        self.assertEqual(self.record(run, self.reviewer)["live"], True)  # who sees all projects

        answer = post.answer().json()
        said = int(answer["stdout"].split()[-1])
        end = self.record(run, self.tokens["alpha"])
        self.assertNotIn("live", end)
        self.assertEqual(end["state"], "ended")
        self.assertEqual(end["egress"]["attempts"], said)
        self.assertEqual(end["egress"]["denied"], said)
        self.assertEqual(end["processes"], said + 1)
        self.assertEqual(end["usage"]["output_bytes"]["value"], len(answer["stdout"]))
        for name, value in self.figures(end).items():
            self.assertGreaterEqual(value, seen[-1][name], name)

    def test_a_session_and_its_cell(self):
        token = self.tokens["gamma"]
        session = self.service.request("POST", "/v1/sessions", {}, token=token).json()["session_id"]
        done = self.service.request("POST", "/v1/execute", {"code": WORK.replace("+ 3", "+ 0.2"), "session_id": session}, token=token).json()
        said = int(done["stdout"].split()[-1])
        self.assertNotIn("live", self.record(done["run_id"], token))
        # The session goes on between its cells, and so do the figures of its own record, which are of these times.
        idle = self.record(session, token)
        self.assertTrue(idle["live"])
        self.assertIsNotNone(idle["usage"]["cpu_ms"]["value"])
        self.assertEqual(idle["egress"]["attempts"], 0)
        post = Post(self.service, "/v1/execute", {"code": WORK, "timeout_s": 20, "session_id": session}, token=token)
        cell = self.running("gamma", but=(session, done["run_id"]))

        def attempts():
            record = self.record(cell, token)
            return record.get("live") and record["egress"]["attempts"]

        self.assertGreater(self.until("attempts", attempts), 0)
        self.assertEqual(self.record(session, token)["egress"]["attempts"], 0)
        self.assertEqual(self.get("/v1/runs/" + cell, self.tokens["beta"]).status, 404)
        self.service.request("DELETE", "/v1/sessions/" + session, token=token)
        post.answer()
        self.assertGreater(said, 0)
        for ended in (session, cell):
            self.assertNotIn("live", self.until("end", lambda: (lambda r: r["state"] == "ended" and r)(self.record(ended, token))))


if __name__ == "__main__":
    unittest.main()
