# SPDX-License-Identifier: Apache-2.0
"""A service and the way out of its tools: hosts that have none, services that want none, and the process that makes it."""
import os
import shutil
import signal
import tempfile
import time
import unittest

from fixture import Agents
from lib import SLOW, WEIR

APP = {"app.py": "def add(a, b):\n    return a + b\n"}


class HostWithoutTaps(unittest.TestCase):
    """One with nothing in /dev/net, as many containers are."""

    def setUp(self):
        folder = tempfile.mkdtemp(prefix="weir-test-agents-")
        self.addCleanup(shutil.rmtree, folder)
        self.weir = os.path.join(folder, "weir")
        with open(self.weir, "w") as f:
            f.write("#!/bin/sh\nexec unshare -m sh -c 'mount -t tmpfs none /dev/net && exec \"$@\"' sh %s \"$@\"\n" % WEIR)
        os.chmod(self.weir, 0o755)

    def test_snippets_run_and_calls_are_refused_with_their_layer(self):
        """Nothing is run without what was asked for; and the log of the start says it first."""
        with Agents(APP, binary=self.weir, options=("--pool", "1")) as agents:
            self.assertIn("tools: no call will run, since this host can't give one a way out: ", agents.service.log_text())
            self.assertEqual(agents.service.run("print(42)")["stdout"], "42\n")
            answer = agents.request("add", {"a": 1, "b": 2})
            self.assertEqual((answer.status, answer.json()["error"]["ran"]), (500, False), answer)
            self.assertIn("layer network", answer.json()["error"]["message"])
            self.assertIn("/dev/net/tun", answer.json()["error"]["message"])

    def test_tools_that_get_no_way_out_need_none(self):
        with Agents(APP, binary=self.weir, options=("--pool", "1", "--no-internet-egress")) as agents:
            self.assertIn("tools: no way out (/tool_calls/allow_internet_egress is off), policy snippet", agents.service.log_text())
            self.assertEqual(agents.result("add", {"a": 1, "b": 2}), 3)


def roots_children(pid):
    """Those of a process's children that are root, the oldest first."""
    found = []
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        numbers = [int(n) for n in f.read().split()]
    for child in numbers:
        try:
            with open("/proc/%d/stat" % child) as f:
                started = int(f.read().rsplit(")", 1)[1].split()[19])
            if os.stat("/proc/%d" % child).st_uid == 0:
                found.append((started, child))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return [child for _, child in sorted(found)]


class Gateway(unittest.TestCase):
    def test_the_service_ends_with_it(self):
        """As with any of its processes: with 125, and every sandbox dead."""
        with Agents(APP, options=("--pool", "1")) as agents:
            self.assertEqual(agents.result("add", {"a": 1, "b": 2}), 3)
            process, log = agents.service.process, agents.service.log_text
            # The only one of the service's own that is root still, and older than any sandbox that is being made.
            os.kill(roots_children(process.pid)[0], signal.SIGKILL)
            self.assertEqual(process.wait(30 * SLOW), 125)
            self.assertIn("gateway", log())

    def test_there_is_none_where_tools_have_no_way_out(self):
        with Agents(APP, options=("--pool", "1", "--no-internet-egress")) as agents:
            self.assertEqual(agents.result("add", {"a": 1, "b": 2}), 3)
            deadline = time.monotonic() + 5 * SLOW
            while time.monotonic() < deadline:
                roots = roots_children(agents.service.process.pid)
                if not roots:
                    break
                time.sleep(0.05)  # a sandbox that is being made is root's for a moment
            self.assertEqual(roots, [])


if __name__ == "__main__":
    unittest.main()
