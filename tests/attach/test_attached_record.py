# SPDX-License-Identifier: Apache-2.0
"""The record of a cgroup that somebody else made: each window of it complete, chained and signed as it ends, with what was used in it."""
import errno
import os
import sqlite3
import time
import unittest

from attached import Apart, Cgroup, Folder, Network, Workload
from lib import SLOW, WEIR, Service

DENIED, ALLOWED = "10.1.2.3", "198.51.100.7"
WITHIN = 10


def until(what):
    deadline = time.monotonic() + WITHIN * SLOW
    while True:
        value = what()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.05)


class Windows(unittest.TestCase):
    def setUp(self):
        self.apart, self.network, self.folder, self.cgroup = Apart(), Network(), Folder(), Cgroup()
        for undo in (self.folder.close, self.network.close, self.apart.close, self.cgroup.remove):
            self.addCleanup(undo)
        web = {"name": "web", "verdict": "allow", "protocol": "tcp", "to": ALLOWED, "ports": 443}
        self.policy = self.folder.put("policy.json", {"name": "first", "default": "deny", "rules": [web]})
        weir = self.folder.put("weir", "#!/bin/sh\nexec nsenter --mount=/proc/%d/ns/mnt -- %s \"$@\"\n" % (self.apart.holder.pid, WEIR))
        os.chmod(weir, 0o755)
        self.service = Service("--policy-only", binary=weir)
        self.addCleanup(self.service.stop)

    def record(self, run_id):
        answer = self.service.request("GET", "/v1/runs/%s/audit" % run_id)
        return answer.json() if answer.status == 200 else None

    def test_a_window(self):
        self.cgroup.make("app")
        a = self.apart.json("attach", "--policy", self.policy, "--cgroup", self.cgroup.full("app"))
        first = a["id"] + ".1"
        self.assertTrue(until(lambda: self.record(first)), self.service.log_text())
        workload = Workload(self.cgroup.full("app"), self.network)
        self.addCleanup(workload.stop)
        self.assertEqual((workload.tcp(DENIED), workload.tcp(ALLOWED)), (errno.EPERM, 0))
        self.assertTrue(until(lambda: {e["address"] for e in self.record(first)["events"]} >= {DENIED, ALLOWED}), self.record(first))
        running = self.record(first)
        self.assertEqual((running["chain"], running["audit_hash"]), (None, None))
        # Its next window begins where this one ends, which is complete then and there.
        other = self.folder.put("other.json", {"name": "second", "default": "deny"})
        self.apart.json("attach", "--policy", other, "--cgroup", self.cgroup.full("app"))
        run = until(lambda: (lambda r: r["chain"] and r["chain"]["signed"] and r)(self.record(first)))
        self.assertTrue(run, self.service.log_text())
        self.assertEqual((run["state"], run["termination"]["reason"], run["audit_hash"]), ("ended", "policy", run["chain"]["hash"]))
        self.assertEqual((run["egress"]["lost"], run["egress"]["events_missing"]), (0, 0))
        self.assertEqual(set(run["usage"]), {"cpu_ms", "memory_peak_bytes", "output_bytes", "net_bytes"})
        self.assertIsNone(run["content"])
        self.assertIn(workload.pid, [p["host_pid"] for p in run["execs"]["programs"]])
        denied = next(e for e in run["events"] if e["address"] == DENIED)
        self.assertEqual((denied["errno"], denied["requested_address"], denied["policy_hash"]), ("EPERM", DENIED, a["policy"]["sha256"]))
        db = sqlite3.connect("file:%s?mode=ro" % os.path.join(self.service.state, "audit", "audit.db"), uri=True)
        self.addCleanup(db.close)
        self.assertEqual(db.execute("select name from policy where hash = ?", (a["policy"]["sha256"],)).fetchone(), ("first",))


if __name__ == "__main__":
    unittest.main()
