# SPDX-License-Identifier: Apache-2.0
"""A policy replaced under a running service: it binds at once, a broken one changes nothing, and the record has both.

What a snippet meets after the swap is asked by the snippet itself, in a loop, with the host's own clock.
"""
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest

from lib import SLOW, TOKEN, WEIR, Service, weir

# One try is one line: the clock, and what became of it.
LOOP = """
import errno, socket, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: udp.connect(("192.0.2.1", 9))
except OSError: pass
end = time.monotonic() + %f
while time.monotonic() < end:
    t = time.monotonic()
    with socket.socket() as s: tcp = s.connect_ex(("192.0.2.1", 9))
    try:
        udp.send(b"?")
        sent = 0
    except OSError as e: sent = e.errno
    print(t, errno.errorcode.get(tcp, tcp), errno.errorcode.get(sent, sent), flush=True)
    time.sleep(0.002)
"""

# A stream that was there before: both ends in the sandbox, bytes counted where they arrive.
STREAM = """
import socket, threading, time
listener = socket.create_server(("127.0.0.1", 0))
out = socket.create_connection(listener.getsockname())
inner, _ = listener.accept()
arrived = []
def read():
    while True:
        data = inner.recv(65536)
        if not data: return
        arrived.append((time.monotonic(), len(data)))
threading.Thread(target=read, daemon=True).start()
out.setblocking(False)
end = time.monotonic() + %f
while time.monotonic() < end:
    try: out.send(b"x" * 100)
    except BlockingIOError: pass
    time.sleep(0.005)
print(len(arrived), arrived[0][0], arrived[-1][0], flush=True)
"""


def policy(name, **members):
    members.setdefault("default", "deny")
    return dict(name=name, **members)


def to(place, verdict, name):
    return {"name": name, "to": place, "verdict": verdict}


class Policed(unittest.TestCase):
    """A service with a policy file of the test's own."""

    def start(self, document, **options):
        self.dir = tempfile.mkdtemp(prefix="weir-test-policy-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.path = os.path.join(self.dir, "p.json")
        self.write(document)
        self.service = Service("--policy", self.path, **options)
        self.addCleanup(self.service.stop)
        return self.service

    def write(self, document):
        """Into another file that takes the old one's place, as an editor or a configuration map does."""
        text = document if isinstance(document, (str, bytes)) else json.dumps(document)
        data = text if isinstance(text, bytes) else text.encode()
        with open(self.path + ".new", "wb") as f:
            f.write(data)
        os.rename(self.path + ".new", self.path)
        return hashlib.sha256(data).hexdigest()

    def hup(self, expect):
        """SIGHUP; waits for a new line of the log that holds `expect` and returns it."""
        before = len(self.service.log_text())
        self.service.process.send_signal(signal.SIGHUP)
        return self.wait_log(expect, before)

    def wait_log(self, expect, before=0):
        deadline = time.monotonic() + 10 * SLOW
        while time.monotonic() < deadline:
            for line in self.service.log_text()[before:].splitlines():
                if expect in line:
                    return line
            time.sleep(0.005)
        self.fail("the log never said %r:\n%s" % (expect, self.service.log_text()[before:]))

    def run_in_background(self, code, **fields):
        got = {}

        def go():
            try:
                got["answer"] = self.service.run(code, **fields)
            except BaseException as e:
                got["error"] = e

        thread = threading.Thread(target=go, daemon=True)
        thread.start()

        def join():
            thread.join(90 * SLOW)
            if "error" in got:
                raise got["error"]
            return got["answer"]

        return join

    def wait_running(self):
        deadline = time.monotonic() + 20 * SLOW
        while time.monotonic() < deadline and self.service.pool()["served"] == self.served:
            time.sleep(0.01)
        time.sleep(0.3 * SLOW)  # until the interpreter is at the snippet's loop

    def records(self):
        db = sqlite3.connect("file:%s?mode=ro" % os.path.join(self.service.state, "audit", "audit.db"), uri=True, timeout=10)
        try:
            return [dict(json.loads(body), seq=seq) for seq, body in db.execute("SELECT seq, body FROM record ORDER BY seq")]
        finally:
            db.close()

    def policy_records(self, count):
        """Once the auditor has written them."""
        deadline = time.monotonic() + 5 * SLOW
        while True:
            found = [r for r in self.records() if r["type"] == "policy"]
            if len(found) >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def tries(self, answer):
        rows = [line.split() for line in answer["stdout"].splitlines()]
        return [(float(t), tcp, udp) for t, tcp, udp in rows]


class Swap(Policed):
    OPEN = policy("open", default="allow", rules=[to("192.0.2.0/24", "allow", "documentation")])
    SHUT = policy("shut", default="allow", rules=[to("192.0.2.0/24", "deny", "no-documentation")])

    def test_binds_a_run_under_way_at_once(self):
        self.start(self.OPEN)
        self.served = self.service.pool()["served"]
        seconds = 3.0
        join = self.run_in_background(LOOP % (seconds * SLOW), timeout_s=60)
        self.wait_running()
        shut_hash = self.write(self.SHUT)
        asked = time.monotonic()
        line = self.hup("policy replaced (reload)")
        self.assertRegex(line, r"open, generation 1 \([0-9a-f]{16}\), now shut, generation 2 \(%s\)" % shut_hash[:16])
        shut = time.monotonic()
        time.sleep(0.5 * SLOW)
        self.write(self.OPEN)
        reopen_asked = time.monotonic()
        self.hup("policy replaced (reload)")
        reopened = time.monotonic()
        answer = join()
        rows = self.tries(answer)
        before = [r for r in rows if r[0] < asked - 0.05]
        during = [r for r in rows if shut < r[0] < reopen_asked - 0.05]
        after = [r for r in rows if r[0] > reopened]
        for part in (before, during, after):
            self.assertGreater(len(part), 5, answer["stdout"][:500])
        # The port is closed, so TCP is refused by the peer and UDP hears of it now and then: neither is EPERM.
        self.assertEqual({"EPERM"} & {x for r in before + after for x in r[1:]}, set())
        # Not one try after the swap is judged by the old policy: the connected UDP socket's neither.
        self.assertEqual({r[1:] for r in during}, {("EPERM", "EPERM")})

        egress = answer["egress"]
        self.assertEqual(egress["attempts"], egress["allowed"] + egress["denied"] + egress["would_deny"])
        self.assertEqual(egress["would_deny"], 0)
        rules = {(d["verdict"], d["reason"], d["rule"]) for d in egress["destinations"]}
        self.assertLessEqual({("denied", "rule", "no-documentation"), ("allowed", "rule", "documentation")}, rules)

        audit = self.service.audit(answer["run_id"])
        self.assertEqual((audit["policy"], audit["policy_generation"]), ("open", 1))
        self.assertEqual([(c["policy"], c["policy_generation"], c["reason"]) for c in audit["policy_changes"]],
                         [("shut", 2, "reload"), ("open", 3, "reload")])
        self.assertEqual(audit["policy_changes"][0]["policy_hash"], shut_hash)
        for event in audit["events"]:
            want = "no-documentation" if event["policy_generation"] == 2 else "documentation"
            self.assertEqual((event["rule"], event["rule_name"]), (1, want), event)
            self.assertEqual(event["verdict"], "denied" if event["policy_generation"] == 2 else "allowed", event)
        self.assertEqual({e["policy_generation"] for e in audit["events"]}, {1, 2, 3})

        everybody = [r for r in self.policy_records(4) if not r["run_id"]]
        self.assertEqual([(r["old_policy"], r["policy"], r["reason"]) for r in everybody],
                         [("open", "shut", "reload"), ("shut", "open", "reload")])
        self.assertEqual(everybody[0]["policy_hash"], shut_hash)
        self.assertEqual((everybody[0]["old_policy_generation"], everybody[0]["policy_generation"]), (1, 2))

    def test_an_established_stream_stops(self):
        self.start(policy("self", default="allow", inbound="allow"))
        self.served = self.service.pool()["served"]
        join = self.run_in_background(STREAM % (3.0 * SLOW), timeout_s=60)
        self.wait_running()
        time.sleep(0.3 * SLOW)
        self.write(policy("no-self", default="allow", inbound="allow", rules=[to("127.0.0.0/8", "deny", "loopback")]))
        asked = time.monotonic()
        self.hup("policy replaced")
        swapped = time.monotonic()
        answer = join()
        self.assertEqual(answer["stderr"], "", answer)
        count, first, last = answer["stdout"].split()
        self.assertGreater(int(count), 20, answer)
        self.assertLess(float(first), asked)
        # The reader may be woken late for what came before; without a swap the last would come seconds later.
        self.assertLess(float(last), swapped + 0.25 * SLOW, answer)
        self.assertGreater(answer["egress"]["denied"], 0)
        self.assertIn(("denied", "loopback"), {(d["verdict"], d["rule"]) for d in answer["egress"]["destinations"]})

    def test_the_next_run_names_the_policy_it_began_with(self):
        first = self.start(self.OPEN) and self.write(self.OPEN)
        run = self.service.audit(self.service.run("print(1)")["run_id"])
        self.assertEqual((run["policy"], run["policy_hash"], run["policy_generation"]), ("open", first, 1))
        second = self.write(self.SHUT)
        self.hup("policy replaced")
        run = self.service.audit(self.service.run("print(1)")["run_id"])
        self.assertEqual((run["policy"], run["policy_hash"], run["policy_generation"]), ("shut", second, 2))
        self.assertEqual(run["policy_changes"], [])

    def test_sandboxes_that_wait_stay_when_only_rules_changed(self):
        self.start(self.OPEN)
        self.service.wait_warm()
        before = set(self.service.sandboxes())
        self.write(self.SHUT)
        self.hup("policy replaced")
        time.sleep(0.3 * SLOW)
        self.service.wait_warm()
        self.assertEqual(set(self.service.sandboxes()), before)

    def test_many_swaps_are_all_taken(self):
        self.start(self.OPEN)
        self.served = self.service.pool()["served"]
        join = self.run_in_background(LOOP % (4.0 * SLOW), timeout_s=60)
        self.wait_running()
        for i in range(20):
            self.write(self.SHUT if i % 2 == 0 else self.OPEN)
            self.hup("generation %d (" % (i + 2))
            time.sleep(0.05 * SLOW)
        # More than are remembered; each is still called by its own rule's name.
        events = self.service.audit(join()["run_id"])["events"]
        self.assertGreater(len({e["policy_generation"] for e in events}), 12)
        for e in events:
            self.assertEqual(e["rule_name"], "documentation" if e["policy_generation"] % 2 else "no-documentation", e)
        answer = self.service.run("import socket\ns = socket.socket()\nprint(s.connect_ex(('192.0.2.1', 9)))")
        self.assertEqual(answer["egress"]["destinations"][0]["rule"], "documentation")
        self.assertEqual(len([r for r in self.policy_records(20) if not r["run_id"]]), 20)


class Broken(Policed):
    """Whatever is wrong with the new document: one error with its place, and what is in force is what was."""

    GOOD = policy("good", default="allow", rules=[to("192.0.2.0/24", "deny", "documentation")])
    TRY = "import socket\nfor a in ('192.0.2.1', '198.51.100.1'):\n    with socket.socket() as s: print(s.connect_ex((a, 9)))"

    def assert_in_force(self, digest):
        answer = self.service.run(self.TRY)
        self.assertEqual(answer["stdout"].split(), ["1", "111"], answer)
        run = self.service.audit(answer["run_id"])
        self.assertEqual((run["policy"], run["policy_hash"], run["policy_generation"]), ("good", digest, 1))
        self.assertEqual(self.service.request("GET", "/readyz", token=None).status, 200)

    def test_each_leaves_in_force_what_was(self):
        self.start(self.GOOD)
        digest = self.write(self.GOOD)
        self.assert_in_force(digest)
        rule = '{"to": "10.0.0.0/8", "verdict": "deny"}'
        cases = [
            ("a comma too many", '{"name": "x",\n "default": "deny",,\n}', r"p\.json:2:\d+: "),
            ("nothing", "", r"p\.json:1:\d+: |p\.json: "),
            ("no JSON at all", b"\xff\xfe\x00binary", r"p\.json:1:\d+: "),
            ("cut off", json.dumps(self.GOOD)[:-20], r"p\.json:1:\d+: "),
            ("an unknown key", '{"name": "x", "default": "deny", "ruels": []}', r"p\.json:/ruels: "),
            ("a rule without `to`", '{"name": "x", "default": "deny", "rules": [%s, {"verdict": "deny"}]}' % rule, r"p\.json:/rules/1"),
            ("a default that contradicts itself", '{"name": "x", "default": "deny", "default": "allow"}', r"p\.json:\S*: .*"),
            ("two rules of one name", '{"name": "x", "default": "deny", "rules": [%s, %s]}' % (
                rule.replace("{", '{"name": "a", '), rule.replace("{", '{"name": "a", ')), r"p\.json:/rules/1/name: "),
            ("ports of what has none", '{"name": "x", "default": "deny", "rules": [{"to": "any", "verdict": "deny", "protocol": "icmp", '
             '"ports": 80}]}', r"p\.json:/rules/0/ports: "),
            ("over 1 MiB", json.dumps(dict(self.GOOD, description="x" * (1 << 20))), r"p\.json is over 1048576 bytes"),
            ("deeply nested", '{"name": "x", "default": "deny", "rules": %s}' % ("[" * 100000 + "]" * 100000), r"p\.json:\S*: "),
            ("nested beyond the limit", '{"name": "x", "default": "deny", "rules": %s}' % ("[" * 20 + "]" * 20), r"p\.json:\S*: "),
            ("a raw socket", json.dumps(dict(self.GOOD, sockets={"types": ["stream", "raw"]})), r"p\.json:/sockets/types: .*\"raw\""),
            ("more memory than there is", json.dumps(dict(self.GOOD, limits={"memory_bytes": 1 << 40})),
             r"p\.json:/limits/memory_bytes: .*1099511627776.*536870912"),
            ("a call no sandbox starts without", json.dumps(dict(self.GOOD, syscalls=[{"names": ["execve"]}])), r"p\.json:/syscalls: .*execve"),
        ]
        for number, (what, text, place) in enumerate(cases, 1):
            with self.subTest(what):
                self.write(text)
                line = self.hup("the policy was not replaced")
                self.assertRegex(line, place)
                self.assertRegex(line, r"good, generation 1 \(%s\) stays in force; %d failed so far" % (digest[:16], number))
        with self.subTest("no file"):
            os.unlink(self.path)
            self.assertIn("No such file", self.hup("the policy was not replaced"))
        with self.subTest("no file but a directory"):
            os.mkdir(self.path)
            self.assertIn("not a regular file", self.hup("the policy was not replaced"))
            os.rmdir(self.path)
        with self.subTest("no file but a FIFO"):
            os.mkfifo(self.path)
            self.assertIn("not a regular file", self.hup("the policy was not replaced"))
            os.unlink(self.path)
        self.assert_in_force(digest)
        self.assertEqual(self.policy_records(0), [])
        # And a good one is taken again.
        self.write(policy("mended"))
        self.hup("now mended, generation 2")

    def test_a_failure_hurts_no_run_under_way(self):
        self.start(self.GOOD)
        self.served = self.service.pool()["served"]
        join = self.run_in_background(LOOP % (1.5 * SLOW), timeout_s=60)
        self.wait_running()
        self.write("{")
        self.hup("the policy was not replaced")
        answer = join()
        self.assertEqual({r[1:] for r in self.tries(answer)}, {("EPERM", "EPERM")})
        self.assertEqual(self.service.audit(answer["run_id"])["policy_changes"], [])


class Monitor(Policed):
    def test_blocks_nothing_and_counts_what_it_would_have(self):
        self.start(policy("watching", mode="monitor", rules=[to("192.0.2.0/24", "deny", "documentation"),
                                                             to("198.51.100.0/24", "allow", "more-of-it")]))
        answer = self.service.run(
            "import socket\n"
            "for a in ('192.0.2.1', '192.0.2.1', '198.51.100.1', '203.0.113.1'):\n"
            "    with socket.socket() as s: print(s.connect_ex((a, 9)))\n"
            "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "print(u.sendto(b'?', ('192.0.2.1', 9)))\n")
        self.assertEqual(answer["stdout"].split(), ["111"] * 4 + ["1"], answer)
        egress = answer["egress"]
        self.assertEqual((egress["attempts"], egress["denied"], egress["allowed"], egress["would_deny"]), (5, 0, 1, 4), egress)
        self.assertEqual(egress["lost"], 0, egress)
        rows = {(d["protocol"], d["address"]): (d["verdict"], d["rule"], d["count"]) for d in egress["destinations"]}
        self.assertEqual(rows, {("tcp", "192.0.2.1"): ("would_deny", "documentation", 2),
                                ("udp", "192.0.2.1"): ("would_deny", "documentation", 1),
                                ("tcp", "198.51.100.1"): ("allowed", "more-of-it", 1),
                                ("tcp", "203.0.113.1"): ("would_deny", None, 1)})
        # Enforced from the next packet on.
        self.write(policy("enforcing"))
        self.hup("policy replaced")
        answer = self.service.run("import socket\nwith socket.socket() as s: print(s.connect_ex(('192.0.2.1', 9)))")
        self.assertEqual((answer["stdout"].strip(), answer["egress"]["denied"], answer["egress"]["would_deny"]), ("1", 1, 0))

    def test_the_command_line_says_so(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-policy-") as d:
            path = os.path.join(d, "m.json")
            with open(path, "w") as f:
                json.dump(policy("watching", mode="monitor"), f)
            done = weir("run", "--policy", path, "-c", "import socket\nwith socket.socket() as s: print(s.connect_ex(('192.0.2.1', 9)))")
        self.assertEqual((done.returncode, done.stdout), (0, b"111\n"), done.stderr)
        self.assertIn(b"1 attempt to reach the network, 0 denied, 1 would be denied", done.stderr)


class Tightened(Policed):
    PLAIN = policy("plain")

    def test_sandboxes_that_wait_are_made_anew_and_runs_keep_what_they_have(self):
        self.start(self.PLAIN)
        self.service.wait_warm()
        before = set(self.service.sandboxes())
        self.served = self.service.pool()["served"]
        code = "import socket, time\ntime.sleep(%f)\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\nprint('listens')"
        join = self.run_in_background(code % (1.5 * SLOW), timeout_s=60)
        self.wait_running()
        self.write(policy("strict", listen="deny", limits={"memory_bytes": 64 << 20, "processes": 8, "open_files": 40},
                          sockets={"protocols": ["tcp"]}, syscalls=[{"names": ["chmod", "fchmodat"], "errno": "EROFS"}]))
        line = self.hup("made anew")
        self.assertIn("1 under way keep", line)
        self.assertEqual(join()["stdout"], "listens\n")
        self.service.wait_warm()
        self.assertFalse(before & set(self.service.sandboxes()))
        self.assertEqual(self.service.request("GET", "/readyz", token=None).status, 200)

        answer = self.service.run(
            "import errno, os, socket, resource\n"
            "s = socket.socket()\ns.bind(('127.0.0.1', 0))\n"
            "def name(f):\n"
            "    try: f()\n"
            "    except OSError as e: return errno.errorcode[e.errno]\n"
            "    return 'fine'\n"
            "print(name(s.listen))\n"
            "print(name(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))\n"
            "print(name(lambda: os.chmod('/tmp', 0o700)))\n"
            "print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
            "pids = []\n"
            "try:\n"
            "    while len(pids) < 50:\n"
            "        pid = os.fork()\n"
            "        if not pid: import time; time.sleep(30); os._exit(0)\n"
            "        pids.append(pid)\n"
            "except OSError as e: print(errno.errorcode[e.errno], len(pids) + 1)\n")
        self.assertEqual(answer["stdout"].splitlines(), ["EACCES", "EPROTONOSUPPORT", "EROFS", "(40, 40)", "EAGAIN 8"], answer)
        answer = self.service.run("x = bytearray(200 << 20)")
        self.assertEqual((answer["termination"]["reason"], answer["termination"]["detail"]),
                         ("memory", "memory limit of 64 MiB exceeded"), answer)
        # Back again: the table's own.
        self.write(self.PLAIN)
        self.hup("made anew")
        self.service.wait_warm()
        answer = self.service.run("import resource, socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
                                  "x = bytearray(200 << 20)\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))")
        self.assertEqual(answer["stdout"], "(1024, 1024)\n", answer)

    def test_cpu(self):
        code = "import time\nend = time.monotonic() + 1.0\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
        self.start(policy("slow", limits={"cpu_percent": 20}))
        self.assertLess(float(self.service.run(code)["stdout"]), 0.5)

    def test_what_no_sandbox_can_have_is_refused_at_the_start(self):
        rows = [
            ({"sockets": {"families": ["inet", "netlink"]}}, "/sockets/families", "netlink"),
            ({"sockets": {"types": ["raw"]}}, "/sockets/types", "raw"),
            ({"sockets": {"protocols": ["tcp", "sctp"]}}, "/sockets/protocols", "sctp"),
            ({"limits": {"memory_bytes": (512 << 20) + 1}}, "/limits/memory_bytes", "at most 536870912"),
            ({"limits": {"cpu_percent": 101}}, "/limits/cpu_percent", "at most 100"),
            ({"limits": {"processes": 257}}, "/limits/processes", "at most 256"),
            ({"limits": {"open_files": 1025}}, "/limits/open_files", "at most 1024"),
            ({"limits": {"open_files": 39}}, "/limits/open_files", "less than 40"),
            ({"limits": {"datagram_sockets": 1025}}, "/limits/datagram_sockets", "at most 1024"),
            ({"limits": {"memory_bytes": (16 << 20) - 1}}, "/limits/memory_bytes", "less than 16777216"),
        ]
        with tempfile.TemporaryDirectory(prefix="weir-test-policy-") as d:
            path = os.path.join(d, "p.json")
            for members, place, word in rows:
                with open(path, "w") as f:
                    json.dump(policy("impossible", **members), f)
                for command in (["run", "--policy", path, "-c", "print('ran')"],
                                ["serve", "--policy", path, "--listen", "unix:" + os.path.join(d, "s"), "--state-dir", os.path.join(d, "state")]):
                    with self.subTest(command=command[0], place=place):
                        done = weir(*command)
                        self.assertEqual((done.returncode, done.stdout), (125, b""), done.stderr)
                        self.assertIn("%s:%s: " % (path, place), done.stderr.decode())
                        self.assertIn(word, done.stderr.decode())

    def test_at_the_limit_is_fine(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-policy-") as d:
            path = os.path.join(d, "p.json")
            for limits in ({"memory_bytes": 512 << 20, "cpu_percent": 100, "processes": 256, "open_files": 1024},
                           {"memory_bytes": 16 << 20, "cpu_percent": 5, "processes": 1, "open_files": 40}):  # fmt: skip
                with open(path, "w") as f:
                    json.dump(policy("limit", limits=limits), f)
                done = weir("run", "--policy", path, "-c", "print('ran')")
                self.assertEqual((done.returncode, done.stdout), (0, b"ran\n"), done.stderr)


class Shipped(unittest.TestCase):
    def test_by_name(self):
        for name, stdout in (("snippet", b"1\n"), ("tool-call", b"111\n"), ("monitor-only", b"111\n")):
            with self.subTest(name):
                # A public address: nothing is reachable from a snippet, whatever the verdict.
                done = weir("run", "--policy", name, "-c", "import socket\nwith socket.socket() as s: print(s.connect_ex(('1.1.1.1', 9)))")
                self.assertEqual((done.returncode, done.stdout), (0, stdout), done.stderr)

    def test_a_name_of_none(self):
        done = weir("run", "--policy", "no-such-policy", "-c", "print('ran')")
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertIn(b"no-such-policy", done.stderr)


class InItsOwnNetwork(Policed):
    """A service in a network namespace that the test made, where the host's addresses are the test's to change."""

    def setUp(self):
        self.anchor = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 300"],
                                       stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.addCleanup(self.end_anchor)
        self.assertEqual(self.anchor.stdout.readline(), b"up\n")
        self.dir = tempfile.mkdtemp(prefix="weir-test-policy-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.path = os.path.join(self.dir, "p.json")

    def end_anchor(self):
        self.anchor.kill()
        self.anchor.wait()
        self.anchor.stdout.close()

    def ip(self, *args):
        subprocess.run(["nsenter", "-t", str(self.anchor.pid), "--net", "ip", *args], check=True)

    def start_inside(self, document):
        self.write(document)
        self.socket = os.path.join(self.dir, "s")
        test = self

        class Inside(Service):
            """Over a unix socket, which no network namespace separates."""

            def __init__(self):
                self.own_state, self.state = True, tempfile.mkdtemp(prefix="weir-test-state-")
                self.log = tempfile.NamedTemporaryFile(prefix="weir-test-log-", suffix=".txt", delete=False)
                self.process = subprocess.Popen(
                    ["nsenter", "-t", str(test.anchor.pid), "--net", WEIR, "serve", "--policy", test.path, "--pool", "1",
                     "--listen", "unix:" + test.socket, "--state-dir", self.state, "--dev-token", TOKEN],
                    stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
                try:
                    self.wait_until_up(True)
                except BaseException:
                    self.stop()
                    raise

            def request(self, method, path, body=None, token=TOKEN, headers=None, timeout=None):
                connection = http.client.HTTPConnection("localhost", timeout=timeout or 60 * SLOW)
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(60 * SLOW)
                try:
                    connection.sock.connect(test.socket)
                    send = {"Content-Type": "application/json"} if body is not None else {}
                    if token:
                        send["Authorization"] = "Bearer " + token
                    connection.request(method, path, body=json.dumps(body) if body is not None else None, headers=send)
                    response = connection.getresponse()
                    return type("Answer", (), {"status": response.status, "body": None, "json": lambda _, b=response.read(): json.loads(b)})()
                finally:
                    connection.close()

        self.service = Inside()
        self.addCleanup(self.service.stop)

    def connect(self, address):
        answer = self.service.run("import socket\nwith socket.socket() as s: print(s.connect_ex((%r, 9)))" % address)
        return answer["stdout"].strip(), answer["egress"]["destinations"][0]["rule"]

    def test_an_address_that_comes_and_goes(self):
        self.start_inside(policy("host", default="allow", rules=[to("@host", "deny", "this-host")]))
        self.assertEqual(self.connect("203.0.113.77"), ("111", None))
        self.ip("addr", "add", "203.0.113.77/32", "dev", "lo")
        line = self.wait_log("policy replaced (addresses)")
        self.assertRegex(line, r"host, generation 1 \(([0-9a-f]{16})\), now host, generation 1 \(\1\)")
        self.assertEqual(self.connect("203.0.113.77"), ("1", "this-host"))
        before = len(self.service.log_text())
        self.ip("addr", "del", "203.0.113.77/32", "dev", "lo")
        self.wait_log("policy replaced (addresses)", before)
        self.assertEqual(self.connect("203.0.113.77"), ("111", None))
        # That of tools names the host's addresses too.
        told = [(r["policy"], r["reason"], r["old_policy_generation"], r["policy_generation"]) for r in self.policy_records(4)]
        self.assertEqual(sorted(told), [(name, "addresses", 1, 1) for name in ("host", "host", "tool-call", "tool-call")])

    def test_a_policy_that_does_not_ask_is_left_alone(self):
        self.start_inside(policy("fixed", default="allow", rules=[to("192.0.2.0/24", "deny", "documentation")]))
        self.ip("addr", "add", "203.0.113.77/32", "dev", "lo")
        time.sleep(0.5 * SLOW)
        self.assertEqual(self.connect("203.0.113.77"), ("111", None))
        self.assertNotIn("policy replaced", self.service.log_text())


if __name__ == "__main__":
    unittest.main()
