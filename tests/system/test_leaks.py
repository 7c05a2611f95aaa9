# SPDX-License-Identifier: Apache-2.0
"""Whoever runs at the same time has nothing in common, and a service that has stopped has left nothing. Runs by the thousand: test_soak."""
import concurrent.futures
import http.client
import itertools
import json
import os
import re
import shutil
import tempfile
import time
import unittest

import test_soak
from footprint import Footprint, settled
from lib import SLOW, Service, cgroup_mounts


class EightAtOnce(unittest.TestCase):
    """Eight that are alive at the same moment, from one warm pool: pairwise nothing in common."""

    def test_pairwise(self):
        with Service(pool=8) as service:
            service.wait_warm()
            # Each waits until the others are there too: half a second is long for eight that are warm.
            code = test_soak.HEAD + test_soak.STREAMS + "time.sleep(0.7)\nprint('END %r' % time.clock_gettime(time.CLOCK_MONOTONIC))"
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
        # What stays is the record with its key and head, and the table of tokens, and nothing else.
        self.assertEqual({n for n in os.listdir(state)}, {"audit", "audit-head", "audit-key.pem", "audit-key.pub", "tokens", "tokens.used"})

    def test_after_work(self):
        state = tempfile.mkdtemp(prefix="weir-test-state-")
        try:
            before = Footprint("none")
            service = Service(state=state, pool=4)
            try:
                instance = service.name()
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    list(pool.map(lambda i: test_soak.once(service, test_soak.KINDS[i][0], "stop%05d" % i), range(len(test_soak.KINDS))))
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
