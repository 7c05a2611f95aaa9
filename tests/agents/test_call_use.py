# SPDX-License-Identifier: Apache-2.0
"""What a tool call used: its modules' programs are its own though they ran before it, their CPU time is not."""
import json
import unittest

from fixture import SLOW, Agents

# Importing takes long and starts a program; the call takes something of its own, and says how much.
APP = """
import subprocess, sys, time

def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

burn(0.4)
subprocess.run([sys.executable, "-I", "-c", "pass"])

def work():
    before = time.process_time()
    burn(0.2)
    return (time.process_time() - before) * 1000
"""


class Use(unittest.TestCase):
    def test_a_call(self):
        with Agents({"app.py": APP}) as agents:
            answer = agents.call("work")
            spent = answer["result"]
            record = agents.service.request("GET", "/v1/runs/%s/audit" % answer["run_id"]).json()
        usage = record["usage"]["cpu_ms"]
        self.assertEqual(usage["checked"]["source"], "sched_process_exit")
        for value in (usage["value"], usage["checked"]["value"]):
            self.assertGreaterEqual(value, spent - max(0.02 * spent, 5))
            # With the way there and back, and the interpreter's end; nothing of the 400 ms before.
            self.assertLessEqual(value, spent + 100 * SLOW, json.dumps(record["usage"]))
        self.assertLessEqual(abs(usage["value"] - usage["checked"]["value"]), max(0.02 * usage["value"], 5) * SLOW)
        self.assertEqual((record["execs"]["count"], len(record["execs"]["programs"])), (1, 1))
        self.assertTrue(record["execs"]["programs"][0]["command"].startswith("python"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
