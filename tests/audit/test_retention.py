# SPDX-License-Identifier: Apache-2.0
"""What the record forgets, and that it says so: by age, and a flood costs the one who floods. With a real service."""
import json
import os
import shutil
import sqlite3
import tempfile
import time
import unittest

from clients import execute, mint
from lib import SLOW, Service, weir

DAY_NS = 86400 * 10**9
LOUD = "import sys\nprint('x' * 65000)\nprint('y' * 65000, file=sys.stderr)\n#" + "z" * 65000


def rows(state, sql):
    """Of the record as it is now, read beside whoever writes it."""
    db = sqlite3.connect("file:%s?mode=ro" % os.path.join(state, "audit", "audit.db"), uri=True, timeout=10)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def prunes(state):
    return [json.loads(body) for (body,) in rows(state, "SELECT body FROM chain WHERE kind = 'prune' ORDER BY n")]


def verify(state, *options):
    done = weir("audit", "verify", "--json", "--state-dir", state, *options)
    return done.returncode, json.loads(done.stdout)


def until(what, reason):
    deadline = time.monotonic() + 40 * SLOW
    while not what():
        if time.monotonic() > deadline:
            raise AssertionError(reason)
        time.sleep(0.1)


class Age(unittest.TestCase):
    def test_old_runs_go_and_the_chain_says_so(self):
        state = tempfile.mkdtemp(prefix="weir-test-state-")
        self.addCleanup(shutil.rmtree, state)
        with Service(state=state, pool=1) as service:
            old = [service.run("print(%d)" % i) for i in range(3)]
        # Time passes.
        db = sqlite3.connect(os.path.join(state, "audit", "audit.db"))
        db.execute("UPDATE run SET ended_ns = ended_ns - ?, began_ns = began_ns - ?", (31 * DAY_NS, 31 * DAY_NS))
        db.commit()
        db.close()
        with Service(state=state, pool=1) as service:
            until(lambda: prunes(state), "nothing was pruned")
            new = service.run("print('new')")
            for answer in old:
                self.assertEqual(service.request("GET", "/v1/runs/%s/audit" % answer["run_id"]).status, 404)
            self.assertEqual(service.audit(new["run_id"])["audit_hash"], new["audit_hash"])
            listed = [run["run_id"] for run in json.loads(weir("audit", "ls", "--json", "--state-dir", state).stdout)["runs"]]
            self.assertEqual(listed, [new["run_id"]])
            (entry,) = prunes(state)
        self.assertEqual((entry["reason"], entry["runs"], entry["project"]), ("age", 3, None))
        # Their numbers, hashes and signatures went, too: all of it was signed, and nothing before it is left.
        self.assertEqual(entry["prefix"], 3)
        self.assertEqual(rows(state, "SELECT count(*) FROM chain WHERE n <= 3"), [(0,)])
        self.assertEqual(rows(state, "SELECT count(*) FROM chain WHERE signature IS NULL"), [(0,)])
        status, report = verify(state, "--expect", new["audit_hash"])
        self.assertEqual(status, 0, report)


class Beside(unittest.TestCase):
    def test_who_writes_beside_a_service_prunes_nothing(self):
        """How long a record is kept is the service's: `weir run` and `weir exec` have no figures of it."""
        state = tempfile.mkdtemp(prefix="weir-test-state-")
        self.addCleanup(shutil.rmtree, state)
        with Service("--audit-keep-days", "365", state=state, pool=1) as service:
            old = service.run("print(1)")
        db = sqlite3.connect(os.path.join(state, "audit", "audit.db"))
        db.execute("UPDATE run SET ended_ns = ended_ns - ?, began_ns = began_ns - ?", (60 * DAY_NS, 60 * DAY_NS))
        db.commit()
        db.close()
        self.assertEqual(weir("run", "--state-dir", state, "-c", "print(2)").returncode, 0)
        self.assertEqual(weir("exec", "--policy", "snippet", "--state-dir", state, "--", "true").returncode, 0)
        self.assertEqual(prunes(state), [])
        listed = [run["run_id"] for run in json.loads(weir("audit", "ls", "--json", "--state-dir", state).stdout)["runs"]]
        self.assertEqual(len(listed), 3)
        self.assertIn(old["run_id"], listed)


class Flood(unittest.TestCase):
    def test_a_flood_evicts_its_own_alone(self):
        options = "--audit-content", "--audit-project-mib", "1", "--audit-max-mib", "16"
        with Service(*options, pool=4) as service:
            quiet, flood = mint(service, "quiet"), mint(service, "flood")
            kept = [execute(service, "print(%d)" % i, quiet).answer().json() for i in range(3)]
            # Each about 200 kB with its content: three times what a project may have.
            loud = []
            for _ in range(4):
                loud += [p.answer().json() for p in [execute(service, LOUD, flood) for _ in range(4)]]
            self.assertEqual({a["termination"]["reason"] for a in loud}, {"exit"})
            until(lambda: rows(service.state, "SELECT max(bytes) FROM project")[0][0] <= 1 << 20, "the flood stays")
            for answer in kept:
                self.assertEqual(service.request("GET", "/v1/runs/%s/audit" % answer["run_id"], token=quiet).status, 200)
            entries = prunes(service.state)
            self.assertEqual({(e["reason"], e["project"]) for e in entries}, {("project", "flood")})
            left = rows(service.state, "SELECT count(*) FROM run JOIN project p ON p.id = project WHERE p.name = 'flood'")[0][0]
            self.assertEqual(sum(e["runs"] for e in entries) + left, len(loud))
            self.assertGreater(left, 2)
            # Whole: nothing of their content stayed.
            self.assertEqual(rows(service.state, "SELECT count(*) FROM content WHERE run NOT IN (SELECT id FROM run)"), [(0,)])
            gone = [a for a in loud if service.request("GET", "/v1/runs/%s/audit" % a["run_id"], token=flood).status == 404]
            self.assertEqual(len(gone), len(loud) - left)
            status, report = verify(service.state, "--expect", kept[0]["audit_hash"])
            self.assertEqual(status, 0, report)
            # What is gone is known to have been there.
            status, report = verify(service.state, "--expect", gone[0]["audit_hash"])
            self.assertEqual(status, 0, report)


if __name__ == "__main__":
    unittest.main()
