# SPDX-License-Identifier: Apache-2.0
"""GET /metrics as Prometheus' own parser reads it: every figure is described, counts what happened and never goes back; and the
alert rules and docs/metrics.md speak of figures that there are."""
import contextlib
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time
import unittest

from clients import Post, mint
from lib import TOKEN, TOP, Service

PYTHON = "/usr/bin/python3"  # the distribution's has the parser
RULES = os.path.join(TOP, "deploy", "prometheus", "weir.rules.yml")
PARSE = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families as parse
print(json.dumps([[f.name, f.type, f.documentation, [[s.name, s.labels, s.value] for s in f.samples]] for f in parse(sys.stdin.read())]))
"""


class Figures:
    """One scrape: .families {name: (type, help)}, .samples {(name, labels): value}."""

    def __init__(self, service, token=TOKEN):
        answer = service.request("GET", "/metrics", token=token)
        if answer.status != 200:
            raise AssertionError(repr(answer))
        self.headers, self.text = answer.headers, answer.body.decode()
        done = subprocess.run([PYTHON, "-c", PARSE], input=self.text, stdout=subprocess.PIPE, text=True, check=True)
        self.families, self.samples = {}, {}
        for name, kind, words, samples in json.loads(done.stdout):
            self.families[name] = (kind, words)
            for sample, labels, value in samples:
                self.samples[sample, tuple(sorted(labels.items()))] = value

    def value(self, name, **labels):
        return self.samples[name, tuple(sorted(labels.items()))]


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service("--metrics-bpf-run-time")

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def test_form(self):
        figures = Figures(self.service)
        self.assertEqual(figures.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertTrue(figures.text.endswith("\n"))
        names = re.findall(r"^# TYPE (\S+) (\S+)$", figures.text, re.M)
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual([name for name, _ in names], re.findall(r"^# HELP (\S+) \S.*$", figures.text, re.M))
        samples = {re.match(r"\w+", line).group() for line in figures.text.splitlines() if line[0] != "#"}
        described = {name + end for name, kind in names for end in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))}
        self.assertEqual(samples - described, set())
        for name, kind in names:
            with self.subTest(metric=name):
                self.assertRegex(name, r"^weir_[a-z0-9_]+$")
                self.assertEqual(kind == "counter", name.endswith("_total"))
                self.assertNotRegex(name, r"_(ms|us|ns|kib|mib|kb|mb|percent)(_|$)")  # units are seconds and bytes

    def test_what_happened_is_counted_and_nothing_goes_back(self):
        before = Figures(self.service)
        runs = [self.service.run("import socket\nfor p in 1, 2, 3:\n  try: socket.create_connection(('10.1.2.3', p))\n  except OSError: pass\n"
                         "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ntry: s.sendto(b'x' * 100, ('10.1.2.3', 9))\nexcept OSError: pass")]
        runs.append(self.service.run("import time; time.sleep(9)", timeout_s=1))
        session = self.service.request("POST", "/v1/sessions", {}).json()["session_id"]
        runs.append(self.service.run("print(1)", session_id=session))
        self.assertEqual(Figures(self.service).value("weir_sessions"), 1)
        self.service.request("DELETE", "/v1/sessions/" + session)
        self.assertEqual(self.service.execute("1", timeout_s=0).status, 400)
        self.assertEqual(self.service.request("GET", "/metrics", token="no").status, 401)
        # A session ends a moment after it was asked to.
        deadline = time.monotonic() + 10
        while (ended := self.service.audit(session))["state"] != "ended" and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(ended["state"], "ended")
        after = Figures(self.service)
        for key, grown in (
            (("weir_runs_total", dict(kind="run", end="exit")), 1), (("weir_runs_total", dict(kind="run", end="timeout")), 1),
            (("weir_runs_total", dict(kind="cell", end="exit")), 1), (("weir_runs_total", dict(kind="call", end="exit")), 0),
            (("weir_egress_attempts_total", dict(of="runs", verdict="denied")), 4), (("weir_egress_attempts_total", dict(of="runs", verdict="allowed")), 0),
            (("weir_egress_packets_total", dict(of="runs", verdict="denied")), 1), (("weir_egress_bytes_total", dict(of="runs", verdict="denied")), 128),
            (("weir_refused_requests_total", dict(status="400")), 1), (("weir_refused_requests_total", dict(status="401")), 1),
            (("weir_stage_seconds_count", dict(stage="run")), 3), (("weir_stage_seconds_count", dict(stage="queue")), 2),
            (("weir_stage_seconds_count", dict(stage="build")), 3), (("weir_stage_seconds_count", dict(stage="load")), 0),
            (("weir_pool_served_total", {}), 3), (("weir_audit_gaps_total", None), 0),
        ):
            if key[1] is None:
                continue
            with self.subTest(metric=key):
                self.assertEqual(after.value(key[0], **key[1]) - before.value(key[0], **key[1]), grown)
        self.assertGreater(after.value("weir_audit_records_written_total"), before.value("weir_audit_records_written_total"))
        self.assertGreaterEqual(after.value("weir_audit_chain_entries") - before.value("weir_audit_chain_entries"), 3)
        spent = sum(run["usage"]["cpu_ms"]["value"] for run in runs + [ended]) / 1000
        self.assertAlmostEqual(after.value("weir_run_cpu_seconds_total") - before.value("weir_run_cpu_seconds_total"), spent, places=5)
        for (name, labels), value in before.samples.items():
            kind = next((k for n, (k, _) in before.families.items() if name in (n, n + "_total", n + "_bucket", n + "_sum", n + "_count")), None)
            if kind in ("counter", "histogram"):
                self.assertGreaterEqual(after.samples[name, labels], value, (name, labels))

    def test_states(self):
        figures = Figures(self.service)
        for name in ("weir_ready", "weir_policy_in_force", "weir_bpf_run_time_measured"):
            self.assertEqual(figures.value(name), 1, name)
        for process in ("supervisor", "auditor", "collector"):
            self.assertEqual(figures.value("weir_process_up", process=process), 1)
        self.assertEqual(figures.value("weir_pool_size"), 3)
        self.assertEqual(figures.value("weir_policy_generation", of="snippet"), 1)
        self.assertEqual(figures.value("weir_audit_limit_bytes"), 1 << 30)
        for state in ("in_force", "drift", "recreated", "gone"):
            figures.value("weir_attachments", state=state)
        programs = {dict(labels)["program"]: value for (name, labels), value in figures.samples.items() if name == "weir_bpf_program_memory_bytes"}
        self.assertGreaterEqual(len(programs), 8)
        self.assertTrue(all(programs.values()))
        self.service.run("import socket\ntry: socket.create_connection(('10.1.2.3', 1))\nexcept OSError: pass")
        figures = Figures(self.service)
        self.assertGreater(figures.value("weir_bpf_runs_total", program="weir_connect4"), 0)
        self.assertGreater(figures.value("weir_bpf_run_seconds_total", program="weir_connect4"), 0)

    def test_buckets_add_up(self):
        self.service.run("pass")
        figures = Figures(self.service)
        for stage in ("queue", "send", "run", "collect", "build", "load"):
            buckets = [(float(dict(labels)["le"]), value) for (name, labels), value in figures.samples.items()
                       if name == "weir_stage_seconds_bucket" and dict(labels)["stage"] == stage]
            values = [value for _, value in sorted(buckets)]
            self.assertEqual(values, sorted(values))
            self.assertEqual(values[-1], figures.value("weir_stage_seconds_count", stage=stage))

    def test_rules_and_documents_speak_of_what_there_is(self):
        there = set()
        for name, (kind, _) in Figures(self.service).families.items():
            there |= {name + "_total"} if kind == "counter" else {name} | ({name + end for end in ("_bucket", "_sum", "_count")} if kind == "histogram" else set())
        with open(RULES) as f:
            rules = f.read()
        expressions = re.findall(r"^ +expr: (.*(?:\n {10,}.*)*)", rules, re.M)
        self.assertGreater(len(expressions), 15)
        for text in expressions:
            self.assertEqual(set(re.findall(r"\bweir_\w+", text)) - there, set(), text)
        self.assertEqual(len(re.findall(r"- alert: ", rules)), len(re.findall(r"^ +runbook: \S", rules, re.M)))
        with open(os.path.join(TOP, "docs", "metrics.md")) as f:
            page = f.read()
        told = {name for row in re.findall(r"^\| (`weir_.*?) \| (?:gauge|counter|histogram) \|", page, re.M) for name in re.findall(r"`(weir_\w+)`", row)}
        self.assertEqual(told, {name for name in there if not re.search(r"_(bucket|sum|count)$", name)})

    def test_nothing_a_client_chooses_is_a_label(self):
        token = mint(self.service, "a-project-of-a-client")
        answer = self.service.request("POST", "/v1/execute", {"code": "print(1)"}, token=token)
        self.assertEqual(answer.status, 200)
        text = Figures(self.service).text
        for word in ("a-project-of-a-client", answer.json()["run_id"]):
            self.assertNotIn(word, text)

    def test_many_scrapes_at_once(self):
        """They share an answer, and runs go on beside them."""
        raw = ("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n" % TOKEN).encode()
        run = Post(self.service, "/v1/execute", {"code": "print(6 * 7)"})
        scrapes = []
        for _ in range(50):
            s = socket.create_connection(("127.0.0.1", self.service.port), 20)
            s.sendall(raw)
            scrapes.append(s)
        for s in scrapes:
            text = b""
            while part := s.recv(65536):
                text += part
            self.assertIn(b"200 OK", text)
            self.assertIn(b'weir_process_up{process="supervisor"} 1\n', text)
            s.close()
        self.assertEqual(run.answer().json()["stdout"], "42\n")

    if os.environ.get("WEIR_PROMTOOL"):  # on demand: the program, of the distribution's package prometheus

        def test_promtool(self):
            tool, text = os.environ["WEIR_PROMTOOL"], Figures(self.service).text
            subprocess.run([tool, "check", "rules", RULES], check=True, stdout=subprocess.DEVNULL)
            done = subprocess.run([tool, "check", "metrics"], input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual((done.returncode, done.stdout), (0, ""))


def head_of(state):
    with open(os.path.join(state, "audit-head"), "rb") as f:
        return f.read()


def change(state, sql):
    with contextlib.closing(sqlite3.connect(os.path.join(state, "audit", "audit.db"))) as db:
        db.executescript(sql)


class Chain(unittest.TestCase):
    """What became of the chain while nobody looked is said when a service starts, and stays to be seen."""

    def setUp(self):
        self.state = tempfile.mkdtemp(prefix="weir-test-metrics-")
        self.addCleanup(shutil.rmtree, self.state)
        os.chmod(self.state, 0o711)

    def serve(self):
        service = Service(state=self.state, pool=1)
        self.addCleanup(service.stop)
        return service

    def figures(self, service):
        figures = Figures(service)
        return figures.value("weir_audit_chain_breaks"), figures.value("weir_audit_chain_adopted")

    def test_a_record_that_was_cut(self):
        with self.serve() as service:
            for _ in range(2):
                service.run("1")
            self.assertEqual(self.figures(service), (0, 0))
        change(self.state, "DELETE FROM chain WHERE n = (SELECT max(n) FROM chain)")
        for _ in range(2):  # and a restart does not make it unseen
            with self.serve() as service:
                self.assertEqual(self.figures(service), (1, 0))

    def test_entries_that_nobody_had_signed(self):
        with self.serve() as service:
            service.run("1")
        head = head_of(self.state)
        with self.serve() as service:
            service.run("1")
        self.assertNotEqual(head_of(self.state), head)
        with open(os.path.join(self.state, "audit-head"), "wb") as f:
            f.write(head)
        change(self.state, "UPDATE chain SET signature = NULL WHERE n > 1")
        with self.serve() as service:
            self.assertEqual(self.figures(service), (0, 1))


class Apart(unittest.TestCase):
    def test_off_by_default_and_without_sandboxes(self):
        service = Service("--policy-only")
        self.addCleanup(service.stop)
        figures = Figures(service)
        self.assertEqual(figures.value("weir_bpf_run_time_measured"), 0)
        self.assertNotIn("weir_bpf_run_seconds", figures.families)
        self.assertEqual((figures.value("weir_pool_size"), figures.value("weir_policy_in_force"), figures.value("weir_ready")), (0, 0, 1))
        self.assertNotIn(("weir_process_up", (("process", "collector"),)), figures.samples)

    def test_a_flood_shows(self):
        """What has no event any more is counted: here beyond the flows that are listed for one run."""
        service = Service()
        self.addCleanup(service.stop)
        before = Figures(service)
        run = service.run("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor p in range(1, 1501):\n  try: s.sendto(b'', ('10.1.2.3', p))\n  except OSError: pass")
        after = Figures(service)
        self.assertEqual(run["egress"]["denied"], 1500)
        self.assertGreater(run["egress"]["lost"], 400)
        grown = lambda name: sum(after.samples[k] - before.samples[k] for k in after.samples if k[0] == name)
        self.assertEqual(grown("weir_attempts_beyond_list_total"), run["egress"]["lost"])
        self.assertEqual(grown("weir_events_lost_total"), 0)  # nobody else has lost anything: no alarm
        self.assertGreaterEqual(after.value("weir_attempts_unlisted_total", of="runs"), run["egress"]["lost"])


if __name__ == "__main__":
    unittest.main()
