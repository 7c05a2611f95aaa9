# SPDX-License-Identifier: Apache-2.0
"""One project floods the record with runs, another's runs beside it have every detail, and their answers are not late for it.

What the flood loses is its own, and counted: attempts in all, and what of them is listed or told to be missing.
"""
import threading
import time
import unittest

from clients import execute, mint
from lib import SLOW, Service

# As many destinations as one run can list, each with a name as long as names get.
FLOOD = """
import os, socket, struct
s = socket.socket(2, 2)
for i in range(1100):
    name = b"".join(bytes([63]) + os.urandom(63) for _ in range(3)) + bytes([61]) + os.urandom(61) + b"\\0"
    try: s.sendto(struct.pack(">HHHHHH", i, 0x100, 1, 0, 0, 0) + name + struct.pack(">HH", 1, 1), ("10.0.%d.%d" % (i >> 8, i & 255), 53))
    except OSError: pass
"""
QUIET = """
import os, socket
for i in range(200):
    try: socket.socket(2, 2).sendto(b"x", ("192.0.2.%d" % i, 1000 + i))
    except OSError: pass
for i in range(20): os.spawnv(os.P_WAIT, "/proc/self/exe", ["x", "-c", ""])
"""
FLOODERS = 16
BESIDE = 3


class Shares(unittest.TestCase):
    def setUp(self):
        self.service = Service(pool=3)
        self.addCleanup(self.service.stop)
        self.loud, self.quiet = mint(self.service, "loud"), mint(self.service, "quiet")
        self.stop, self.flooded = threading.Event(), []

    def flood(self):
        while not self.stop.is_set():
            self.flooded.append(execute(self.service, FLOOD, self.loud).answer())

    def test_another_projects_details_are_all_there(self):
        threads = [threading.Thread(target=self.flood) for _ in range(FLOODERS)]
        for t in threads:
            t.start()
        try:
            deadline = time.monotonic() + 30 * SLOW
            while len(self.flooded) < FLOODERS and time.monotonic() < deadline:
                time.sleep(0.05)
            answers = [execute(self.service, QUIET, self.quiet).answer() for _ in range(BESIDE)]
        finally:
            self.stop.set()
            for t in threads:
                t.join()
        self.assertGreaterEqual(len(self.flooded), FLOODERS)
        for answer in answers:
            self.assertEqual(answer.status, 200, answer)
            answer = answer.json()
            record = self.service.audit(answer["run_id"])
            self.assertEqual((answer["egress"]["denied"], answer["egress"]["lost"]), (200, 0))
            self.assertIsNotNone(answer["audit_hash"])
            self.assertEqual((len(record["events"]), record["egress"]["lost"], record["egress"]["events_missing"]), (200, 0, 0))
            self.assertEqual((record["execs"]["count"], len(record["execs"]["programs"])), (20, 20))
            self.assertNotIn("details_dropped", record)
        for answer in self.flooded:
            self.assertEqual(answer.json()["egress"]["attempts"], 1100)
        self.assertEqual(self.service.request("GET", "/readyz").status, 200)


if __name__ == "__main__":
    unittest.main()
