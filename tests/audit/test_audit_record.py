# SPDX-License-Identifier: Apache-2.0
"""The record of each kind of run: complete, chained, signed, in one shape; and whatever an answer vouched for is in it, whoever was
killed in between.
"""
import concurrent.futures
import hashlib
import json
import os
import signal
import sqlite3
import tempfile
import time
import unittest

from lib import SLOW, Service, weir

UID_AUDITOR = 0x70000002
WITHIN = 10  # seconds in which whatever must come is there
RUN = {
    "run_id", "sandbox_id", "project", "caller", "policy", "policy_hash", "policy_generation", "policy_changes", "timeout_s", "python", "began", "ended",
    "ran", "exit_code", "duration_ms", "termination", "egress", "records_unwritten", "events_omitted", "usage", "processes", "threads", "execs",
    "refused_syscalls", "oom_victims", "oom_kills", "packets", "limits", "content", "boot_id", "oom_killed", "timeline", "state", "gaps",
    "chain", "audit_hash", "events",
}  # fmt: skip
EVENT = {
    "seq", "time", "hook", "verdict", "reason", "rule", "rule_name", "policy_generation", "policy_hash", "protocol", "address", "port", "dns_name",
    "dns_type", "pid", "host_pid", "uid", "command", "attribution", "event_seq", "errno", "requested_address", "requested_port", "socket_cookie",
    "boot_ns", "first", "last", "count", "bytes",
}  # fmt: skip
USAGE = {"cpu_ms", "memory_peak_bytes", "output_bytes", "net_bytes"}
LIMITS = {"timeout_s", "memory_bytes", "cpu_percent", "processes", "open_files", "output_bytes"}
MOMENT = {"at_ms", "cpu_ms", "memory_bytes", "processes", "attempts", "denied", "refused"}
PROGRAM = {"time", "path", "path_cut", "pid", "host_pid", "uid", "command", "seq", "cgroup", "event_seq"}

TRIES = """
import socket, subprocess, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for port in (53, 99):
        try: s.sendto(b"x", ("10.1.2.3", port))
        except OSError as e: print(e.errno)
subprocess.run([sys.executable, "-c", "pass"])
print("done", file=sys.stderr)
"""


def until(what, seconds=WITHIN):
    """What it returns as soon as that is true; its last value when time is up."""
    deadline = time.monotonic() + seconds * SLOW
    while True:
        value = what()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.03)


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def setUpModule():
    global service
    service = Service(pool=1)


def tearDownModule():
    service.stop()


class Shapes(unittest.TestCase):
    def check(self, run, extra=frozenset()):
        """A finished record in the shapes that everybody reads."""
        self.assertEqual(set(run), RUN | set(extra))
        self.assertEqual(set(run["usage"]), USAGE)
        for name, figure in run["usage"].items():
            self.assertEqual(set(figure), {"value", "source", "checked"}, name)
            if figure["checked"] is not None:
                self.assertEqual(set(figure["checked"]), {"value", "source"}, name)
        self.assertEqual(set(run["packets"]), {"allowed", "denied", "would_deny"})
        self.assertEqual(set(run["limits"]), LIMITS)
        self.assertEqual(set(run["chain"]), {"n", "hash", "signed"})
        self.assertEqual(run["audit_hash"], run["chain"]["hash"])
        self.assertRegex(run["audit_hash"], "^[0-9a-f]{64}$")
        self.assertEqual((run["state"], run["records_unwritten"], run["events_omitted"], run["egress"]["lost"]), ("ended", 0, 0, 0))
        self.assertEqual(run["egress"]["events_missing"], 0)
        for e in run["events"]:
            self.assertLessEqual(EVENT, set(e))
            self.assertEqual(e["policy_hash"], run["policy_hash"])
        for p in run["execs"]["programs"]:
            self.assertEqual(set(p), PROGRAM)
        for m in run["timeline"]:
            self.assertEqual(set(m), MOMENT)

    def signed(self, s, run_id):
        self.assertTrue(until(lambda: s.audit(run_id)["chain"]["signed"]), "%s is not signed:\n%s" % (run_id, s.log_text()))


class Kinds(Shapes):
    def test_snippet(self):
        answer = service.run(TRIES, stdin="given", timeout_s=7)
        run = service.audit(answer["run_id"])
        self.check(run)
        self.assertEqual(run["audit_hash"], answer["audit_hash"])
        content = run["content"]
        self.assertEqual((content["code"]["sha256"], content["code"]["bytes"]), (sha256(TRIES), len(TRIES)))
        self.assertEqual(content["arguments"]["sha256"], sha256("given"))
        for stream in ("stdout", "stderr"):
            self.assertEqual((content[stream]["bytes"], content[stream]["sha256"]), (len(answer[stream]), sha256(answer[stream])), stream)
        self.assertEqual(run["usage"]["output_bytes"]["value"], len(answer["stdout"] + answer["stderr"]))
        # Two flows, numbered one after the other; what was asked for is what was refused, and the program was told so.
        self.assertEqual(sorted(e["event_seq"] for e in run["events"]), [1, 2])
        for e in run["events"]:
            self.assertEqual((e["address"], e["requested_address"], e["verdict"], e["errno"]), ("10.1.2.3", "10.1.2.3", "denied", "EPERM"))
            self.assertEqual(e["requested_port"], e["port"])
            self.assertGreater(e["boot_ns"], 0)
        self.assertEqual(run["egress"]["denied"], 2)
        self.assertEqual(run["packets"]["denied"]["packets"], 2)
        self.assertEqual(run["limits"]["timeout_s"], 7)
        self.assertEqual(run["boot_id"], open("/proc/sys/kernel/random/boot_id").read().strip())
        # The interpreter that ran it is the sandbox's; the one that it started is the run's own.
        self.assertEqual((run["execs"]["count"], run["execs"]["unlisted"]), (1, 0), run["execs"])
        self.assertIn("python", run["execs"]["programs"][0]["path"])
        self.assertGreaterEqual(run["processes"], 2)
        self.assertTrue(run["timeline"])
        for name in ("cpu_ms", "memory_peak_bytes"):
            self.assertGreater(run["usage"][name]["value"], 0, name)
            self.assertGreater(run["usage"][name]["checked"]["value"], 0, name)
        self.signed(service, answer["run_id"])

    def test_what_the_policy_was(self):
        """The document itself, by its hash, once for all runs."""
        hashes = {service.audit(service.run("1")["run_id"])["policy_hash"] for _ in range(3)}
        with sqlite3.connect("file:%s?mode=ro" % os.path.join(service.state, "audit", "audit.db"), uri=True) as db:
            rows = db.execute("select hash, name, text from policy where name = 'snippet'").fetchall()
        db.close()
        self.assertEqual({h for h, _, _ in rows}, hashes)
        self.assertEqual(sha256(rows[0][2]), hashes.pop())

    def test_cells_and_their_session(self):
        session = service.request("POST", "/v1/sessions", {}).json()["session_id"]
        cells = [service.run(code, session_id=session) for code in ("x = 1", TRIES)]
        self.assertEqual(service.request("DELETE", "/v1/sessions/" + session).status, 200)
        for cell in cells:
            run = service.audit(cell["run_id"])
            self.check(run)
            self.assertEqual(run["audit_hash"], cell["audit_hash"])
            self.signed(service, cell["run_id"])
        self.assertEqual(service.audit(cells[1]["run_id"])["egress"]["denied"], 2)
        self.assertNotEqual(cells[0]["audit_hash"], cells[1]["audit_hash"])
        whole = until(lambda: (lambda r: r["chain"] and r)(service.audit(session)))
        self.check(whole)
        self.assertIsNone(whole["content"])
        self.signed(service, session)

    def test_a_run_that_is_cut_short(self):
        answer = service.run("import time\nprint('begun', flush=True)\ntime.sleep(60)", timeout_s=1)
        run = service.audit(answer["run_id"])
        self.check(run)
        self.assertEqual((run["termination"]["reason"], run["content"]["stdout"]["bytes"]), ("timeout", 6))
        self.assertEqual(run["audit_hash"], answer["audit_hash"])

    def test_command_of_the_host(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-state-") as state:
            out = os.path.join(state, "record.ndjson")
            done = weir("exec", "--policy", "tool-call", "--state-dir", state, "--json", out, "--", "/usr/bin/python3", "-c", TRIES)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(out) as f:
                run, *events = [json.loads(line) for line in f]
            self.assertEqual((run.pop("type"), len(events)), ("run", 2))
            self.check(dict(run, events=[]), {"command"})
            self.assertEqual(run["egress"]["denied"], 2)
            shown = json.loads(weir("audit", "show", run["run_id"], "--json", "--state-dir", state).stdout)
            self.assertEqual((shown["audit_hash"], shown["chain"]["signed"]), (run["audit_hash"], True))

    def test_weir_run(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-state-") as state:
            done = weir("run", "--state-dir", state, "--json", "-c", TRIES)
            answer = json.loads(done.stdout)
            shown = json.loads(weir("audit", "show", answer["run_id"], "--json", "--state-dir", state).stdout)
            self.check(shown)
            self.assertEqual((shown["audit_hash"], shown["chain"]["signed"]), (answer["audit_hash"], True))


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        return [int(p) for p in f.read().split()]


def uid_of(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(next(line for line in f if line.startswith("Uid:")).split()[1])


class Killed(unittest.TestCase):
    """Many runs, and somebody is killed in the middle of them: what an answer vouched for stays in the record, under that hash."""

    ROUNDS, AT_ONCE = 2, 6

    def client(self, s, vouched):
        while True:
            try:
                answer = s.execute("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('10.1.2.3', 9))")
            except OSError:
                return
            if answer.status == 200 and answer.json()["audit_hash"]:
                vouched[answer.json()["run_id"]] = answer.json()["audit_hash"]
            elif answer.status != 503:
                return

    def round(self, state, kill, vouched):
        s = Service(state=state, pool=4)
        try:
            with concurrent.futures.ThreadPoolExecutor(self.AT_ONCE) as pool:
                clients = [pool.submit(self.client, s, vouched) for _ in range(self.AT_ONCE)]
                before = len(vouched)
                self.assertTrue(until(lambda: len(vouched) >= before + 10), s.log_text())
                kill(s)
                for c in clients:
                    c.result(60 * SLOW)
            s.process.wait(30 * SLOW)
        finally:
            s.stop()

    def check(self, kill):
        with tempfile.TemporaryDirectory(prefix="weir-test-state-") as state:
            vouched = {}
            for _ in range(self.ROUNDS):
                self.round(state, kill, vouched)
            with Service(state=state, pool=1) as s:
                for run_id, audit_hash in vouched.items():
                    run = s.audit(run_id)
                    self.assertEqual((run["audit_hash"], run["state"]), (audit_hash, "ended"), run_id)
                last = s.run("1")
                self.assertTrue(until(lambda: s.audit(last["run_id"])["chain"]["signed"]), s.log_text())
                # Those that nobody was told of any more are in the chain too.
                listed = s.request("GET", "/v1/audit").json()["runs"]
                self.assertLessEqual(set(list(vouched)[-20:]), {r["run_id"] for r in listed})
            done = weir("audit", "verify", "--state-dir", state)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_auditor(self):
        def kill(s):
            os.kill(next(p for p in children(s.process.pid) if uid_of(p) == UID_AUDITOR), signal.SIGKILL)

        self.check(kill)

    def test_all_of_it(self):
        def kill(s):
            for pid in [s.process.pid] + children(s.process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

        self.check(kill)


if __name__ == "__main__":
    unittest.main()
