# SPDX-License-Identifier: Apache-2.0
"""`weir audit export`: every record as a line, in order; and every attempt as an event of OCSF."""
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import unittest

from dns_corpus import CORPUS, MALFORMED, address_of, snippet
from lib import WEIR, Service, weir

HOSTNAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$")
ATTEMPTS = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor port in range(%d, %d):\n    try: s.sendto(b'x', ('192.0.2.1', port))\n    except OSError: pass\n"
PTRACE = "import ctypes\nctypes.CDLL(None).syscall(101, 0, 0, 0, 0)\n"


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.state = tempfile.mkdtemp(prefix="weir-test-state-")
        cls.addClassCleanup(shutil.rmtree, cls.state, ignore_errors=True)
        cls.policy = os.path.join(cls.state, "p.json")
        with open(cls.policy, "w") as f:
            rules = [{"name": "corpus", "verdict": "allow", "to": ["203.0.113.7/32"]}]
            json.dump({"name": "exported", "default": "deny", "rules": rules}, f)
        with Service("--policy", cls.policy, state=cls.state, pool=1) as service:
            cls.runs = [service.run(ATTEMPTS % (9000, 9003) + PTRACE)["run_id"] for _ in range(3)]
            cls.names = service.run(snippet(), timeout_s=60)["run_id"]
            cls.allowed = service.run(
                "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor i in range(3): s.sendto(b'12345', ('203.0.113.7', 7))"
            )["run_id"]
            cls.audit = {run: service.audit(run) for run in cls.runs + [cls.names, cls.allowed]}

    def export(self, *options, status=0):
        done = weir("audit", "export", "--state-dir", self.state, *options)
        self.assertEqual(done.returncode, status, done.stderr)
        done.stdout.decode("ascii")  # nothing but
        return [json.loads(line) for line in done.stdout.decode().splitlines()], done.stderr.decode()

    # ---- ndjson ----

    def test_every_record_in_order(self):
        records, complaint = self.export()
        self.assertEqual(complaint, "")
        numbers = [r["seq"] for r in records]
        self.assertEqual(numbers, list(range(1, numbers[-1] + 1)))
        self.assertEqual(list(dict.fromkeys(r["run_id"] for r in records if r["run_id"])), self.runs + [self.names, self.allowed])
        mine = [r for r in records if r["run_id"] == self.runs[0]]
        kinds = [r["type"] for r in mine]
        self.assertEqual(kinds[0], "run_begin")
        self.assertEqual((kinds.count("egress"), kinds.count("flow"), kinds.count("syscall"), kinds.count("run_end")), (3, 3, 1, 1))
        self.assertEqual(next(r for r in mine if r["type"] == "syscall")["name"], "ptrace")

    def test_goes_on_where_it_ended(self):
        whole, _ = self.export("--format", "ndjson")
        middle = whole[len(whole) // 2]
        first, _ = self.export("--until", middle["time"])
        second, _ = self.export("--since", middle["time"])
        # Records of one moment are in one of the two, and none is in neither.
        self.assertEqual(sorted(r["seq"] for r in first + second), [r["seq"] for r in whole])

    def test_some_of_them(self):
        self.assertEqual(self.export("--project", "nobody")[0], [])
        mine, _ = self.export("--project", "dev")
        self.assertEqual({r["project"] for r in mine}, {"dev"})
        found, _ = self.export("--destination", "192.0.2.1")
        self.assertEqual({r["address"] for r in found}, {"192.0.2.1"})

    # ---- ocsf ----

    def test_every_attempt_once(self):
        events, complaint = self.export("--format", "ocsf")
        self.assertEqual(complaint, "")
        self.assertEqual(len({e["metadata"]["uid"] for e in events}), len(events))
        for run, record in self.audit.items():
            mine = [e for e in events if e["unmapped"]["run_id"] == run]
            self.assertEqual(len(mine), len(record["events"]))
            self.assertEqual(sum(e["count"] for e in mine), record["egress"]["attempts"])
            self.assertEqual(sum(e["count"] for e in mine if e["disposition_id"] == 2), record["egress"]["denied"])
        for e in events:
            self.assertEqual((e["class_uid"], e["category_uid"], e["type_uid"]), (4001, 4, 400100 + e["activity_id"]))
            for name in ("severity_id", "time", "metadata", "src_endpoint", "dst_endpoint", "connection_info"):
                self.assertIn(name, e)
            self.assertEqual(e["policy"]["name"], "exported")

    def test_an_allowed_one(self):
        events, _ = self.export("--format", "ocsf", "--verdict", "allowed")
        (event,) = events
        self.assertEqual((event["activity_id"], event["disposition_id"], event["status_id"], event["count"]), (6, 1, 1, 3))
        self.assertEqual(event["firewall_rule"]["name"], "corpus")
        self.assertEqual(event["traffic"]["bytes_out"], 3 * 33)
        self.assertEqual(event["actor"]["process"]["name"], self.audit[self.allowed]["events"][0]["command"])

    def test_names_that_strangers_wrote(self):
        events, _ = self.export("--format", "ocsf")
        by_address = {e["dst_endpoint"].get("ip"): e for e in events if e["unmapped"]["run_id"] == self.names}
        for i, (label, _, text) in enumerate(CORPUS):
            with self.subTest(label):
                event = by_address[address_of(i)]
                self.assertEqual(event["unmapped"].get("dns_name"), text)
                hostname = event["dst_endpoint"].get("hostname")
                self.assertEqual(hostname, text if text and HOSTNAME.match(text) else None)
                if label in MALFORMED:
                    self.assertTrue(event["unmapped"]["dns_malformed"])

    # ---- where it goes ----

    def test_a_file(self):
        directory = tempfile.mkdtemp(prefix="weir-test-export-")
        self.addCleanup(shutil.rmtree, directory)
        path = os.path.join(directory, "out.ndjson")
        with open(path, "w") as f:
            f.write("x" * 1000000)
        self.assertEqual(self.export("-o", path)[0], [])
        with open(path) as f:
            self.assertEqual([json.loads(line)["seq"] for line in f], [r["seq"] for r in self.export()[0]])
        new = os.path.join(directory, "new")
        self.export("-o", new)
        self.assertEqual(stat.S_IMODE(os.stat(new).st_mode), 0o600)
        # What a link names stays as it is; so does a file when there is no record.
        link = os.path.join(directory, "link")
        os.symlink(new, link)
        before = os.stat(new).st_mtime_ns
        self.export("-o", link, status=1)
        done = weir("audit", "export", "--state-dir", directory, "-o", new)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(os.stat(new).st_mtime_ns, before)

    def test_a_full_disk_is_no_success(self):
        done = subprocess.run([WEIR, "audit", "export", "--state-dir", self.state, "-o", "/dev/full"], stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"not whole", done.stderr)

    def test_formats(self):
        done = weir("audit", "export", "--state-dir", self.state, "--format", "xml")
        self.assertEqual(done.returncode, 64)


class Running(unittest.TestCase):
    def test_what_runs_is_left_out_and_said(self):
        with Service(pool=1) as service:
            done = service.run(ATTEMPTS % (9000, 9001))["run_id"]
            session = service.request("POST", "/v1/sessions", {}).json()["session_id"]
            out = weir("audit", "export", "--state-dir", service.state, "--format", "ocsf")
            self.assertEqual(out.returncode, 0)
            self.assertEqual([json.loads(line)["unmapped"]["run_id"] for line in out.stdout.splitlines()], [done])
            self.assertIn(b"1 runs have not ended", out.stderr)
            service.request("DELETE", "/v1/sessions/" + session)


if __name__ == "__main__":
    unittest.main()
