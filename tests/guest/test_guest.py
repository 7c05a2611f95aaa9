# SPDX-License-Identifier: Apache-2.0
"""The core on a stock kernel with pure cgroup v2, in an emulated machine: few tests, each decisive (`make test-vm`)."""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "containers"))
import boxes
from lib import HostState, Service, SLOW, WEIR, cgroup2_mount, weir


class Kernel(unittest.TestCase):
    """The kernel programs by themselves: which rule a real socket meets, and the kernel's verdict beside user space's."""

    def run_program(self, name, **env):
        done = subprocess.run(["build/bpf/" + name], env=dict(os.environ, **env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout.decode("utf-8", "replace")[-3000:])

    def test_rules(self):
        self.run_program("test_rules")

    def test_judge(self):
        self.run_program("test_judge", WEIR_PAIRS="3000", WEIR_MANY="3")


class Exec(unittest.TestCase):
    """A command of the host under a policy, where cgroup2 has every controller."""

    @classmethod
    def tearDownClass(cls):
        weir("uninstall")

    def exec_python(self, policy, code):
        with tempfile.NamedTemporaryFile("w", suffix=".json", dir="/run") as f:
            json.dump(policy, f)
            f.flush()
            done = weir("exec", "--policy", f.name, "--user", "nobody", "--", "/usr/bin/python3", "-c", code, timeout=60)
        return done.stdout.decode(), done.stderr.decode(), done.returncode

    def test_rules(self):
        policy = {"name": "guest", "default": "allow", "rules": [{"name": "documentation", "verdict": "deny", "to": "192.0.2.0/24"}]}
        out, err, status = self.exec_python(policy, (
            "import errno, os, socket\n"
            "for a in ('192.0.2.7', '198.51.100.7'):\n"
            "    try: socket.create_connection((a, 443), 2)\n"
            "    except OSError as e: print(errno.errorcode[e.errno])\n"
            "print(os.getuid(), open('/proc/self/cgroup').read().count('weir/exec-'))\n"
            "raise SystemExit(7)"
        ))
        self.assertEqual((out.split(), status), (["EPERM", "ENETUNREACH", "65534", "1"], 7), err)
        self.assertIn("tcp 192.0.2.7:443  rule documentation  x1", err)

    def test_memory_limit(self):
        policy = {"name": "guest", "default": "deny", "limits": {"memory_bytes": 64 << 20}}
        out, err, status = self.exec_python(policy, "x = bytearray(300 << 20)\nprint('went on')")
        self.assertEqual((out, status), ("", 137), err)


class Attach(unittest.TestCase):
    """Containers made by podman and crun, where cgroup2 is all there is."""

    @classmethod
    def setUpClass(cls):
        cls.host = boxes.Host(runtime="crun")

    @classmethod
    def tearDownClass(cls):
        cls.host.close()

    def test_attach_deny_detach(self):
        ways, heard = self.host.ways(), self.host.heard
        denied, allowed = [ways.denied_tcp, ways.denied6_udp], [ways.allowed_tcp, ways.allowed_dns]
        box = self.host.run("talk", *denied, *allowed)
        heard.moving(*denied, *allowed)
        service = Service("--policy-only")
        self.addCleanup(service.stop)
        a = boxes.attach("--policy", "tool-call", "--container", box.id)
        self.assertEqual((a["state"], a["coverage"], a["canary"]["proven"], a["target"]["runtime"]), ("in force", "full", True, "podman"), a)
        boxes.end_at_once(service)
        heard.still(*denied, seconds=0.1)
        heard.moving(*allowed)
        code, out = box.exec("try", "inside", ways.denied_tcp, ways.denied_udp)
        self.assertEqual(code, boxes.NONE_GOT_OUT, out)
        self.assertEqual(boxes.status(a["id"])[a["id"]]["state"], "in force")
        boxes.detach("--container", box.id)
        heard.moving(*denied, *allowed, seconds=20)

    def test_hook_and_nothing_left(self):
        """crun runs the hook before the container's first instruction too; the cgroup it removes takes all with it."""
        ways = self.host.ways()
        create = {"createRuntime": [{"path": WEIR, "args": ["weir", "oci-hook", "create"], "timeout": 60}]}
        for label, hooks, code in (("free", {}, 0), ("hooked", create, boxes.NONE_GOT_OUT)):
            done = self.host.start_bundle(self.host.bundle(["try", label, ways.denied_tcp, ways.denied_udp], {"weir.dev/policy": "tool-call"}, hooks))
            self.assertEqual(done.returncode, code, done)
        boxes.until(lambda: "free" in self.host.labels_heard(), 2, "heard without the hook")
        self.assertNotIn("hooked", self.host.labels_heard())
        gone = [a for a in boxes.status().values() if self.host.owns(a["target"]["cgroup"])]
        self.assertEqual([(a["state"], os.path.exists(os.path.join(boxes.ATTACHED_PINS, a["id"]))) for a in gone if "bundle" in a["target"]["cgroup"]], [("gone", False)])


class Guest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.before = HostState()
        cls.service = Service(pool=1)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def test_1_forty_two(self):
        answer = self.service.run("print(6*7)")
        self.assertEqual((answer["stdout"], answer["exit_code"]), ("42\n", 0))
        self.assertEqual(answer["usage"]["cpu_ms"]["source"], "cgroup2 cpu.stat")
        self.assertEqual(answer["usage"]["memory_peak_bytes"]["source"], "cgroup2 memory.peak")

    def test_2_dns_is_denied_and_named(self):
        answer = self.service.run(
            "import socket, os\n"
            "for f in (lambda: socket.getaddrinfo('leak.example', 80), lambda: socket.create_connection(('192.0.2.7', 443)),\n"
            "          lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('2001:db8::7', 9))):\n"
            "    try: f(); print('out')\n"
            "    except OSError as e: print(type(e).__name__)\n"
            "print(os.getpid())\n"
        )
        self.assertEqual(answer["stdout"].split(), ["gaierror", "PermissionError", "PermissionError", "2"])
        self.assertEqual((answer["egress"]["attempts"], answer["egress"]["denied"]), (3, 3))
        events = self.service.audit(answer["run_id"])["events"]
        self.assertIn(("udp", 53, "leak.example", "denied", 2), {(e["protocol"], e["port"], e["dns_name"], e["verdict"], e["pid"]) for e in events})
        self.assertIn(("tcp", "192.0.2.7", 443, "denied"), {(e["protocol"], e["address"], e["port"], e["verdict"]) for e in events})
        self.assertIn(("udp", "2001:db8::7", 9, "denied"), {(e["protocol"], e["address"], e["port"], e["verdict"]) for e in events})

    def test_2_accounted_and_chained(self):
        code = (
            "import ctypes, subprocess, sys, time\n"
            "end = time.process_time() + 1\n"
            "while time.process_time() < end: pass\n"
            "for _ in range(3): ctypes.CDLL(None).unshare(0x20000000)\n"
            "subprocess.run(['/bin/true'])\n"
        )
        answer = self.service.run(code, timeout_s=60)
        usage, record = answer["usage"], self.service.audit(answer["run_id"])
        cpu, checked = usage["cpu_ms"]["value"], usage["cpu_ms"]["checked"]
        self.assertGreaterEqual(cpu, 1000)
        self.assertEqual(checked["source"], "sched_process_exit")
        self.assertLess(abs(checked["value"] - cpu), max(5, 0.02 * cpu))
        self.assertIn(("unshare", "EPERM", 3), [(c["name"], c["errno"], c["count"]) for c in record["refused_syscalls"]["calls"]])
        self.assertIn("/bin/true", [p["path"] for p in record["execs"]["programs"]])
        self.assertEqual(len(answer["audit_hash"]), 64)
        done = weir("audit", "verify", "--state-dir", self.service.state, "--expect", answer["audit_hash"], timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout.decode() + done.stderr.decode())

    def test_3_memory_limit(self):
        answer = self.service.run("x = []\nwhile True: x.append(bytearray(8 << 20))", timeout_s=60)
        self.assertEqual((answer["termination"]["reason"], answer["exit_code"]), ("memory", 137))
        self.assertIn("memory limit of 512 MiB exceeded", answer["termination"]["detail"])

    def test_4_memory_limit_of_a_child(self):
        code = (
            "import subprocess, sys\n"
            "subprocess.run([sys.executable, '-c', 'x = bytearray(700 << 20)'])\n"
            "print('the parent went on')\n"
        )
        answer = self.service.run(code, timeout_s=60)
        self.assertEqual((answer["termination"]["reason"], answer["stdout"]), ("memory", ""))

    def test_5_pids_limit(self):
        code = (
            "import os, time\n"
            "n = 1\n"
            "try:\n"
            "    while n < 400:\n"
            "        if os.fork() == 0: time.sleep(60)\n"
            "        n += 1\n"
            "except BlockingIOError: pass\n"
            "print(n)\n"
        )
        self.assertEqual(self.service.run(code, timeout_s=60)["stdout"], "256\n")

    def test_6_cpu_limit(self):
        code = (
            "import os, time\n"
            "for _ in range(3): os.fork()\n"
            "end = time.monotonic() + 4\n"
            "while time.monotonic() < end: pass\n"
        )
        answer = self.service.run(code, timeout_s=60)
        # Eight busy processes for four seconds on two CPUs: one CPU's worth, with a period of slack.
        self.assertLess(answer["usage"]["cpu_ms"]["value"], 1.25 * answer["duration_ms"])

    def test_7_deadline(self):
        answer = self.service.run("import os\nprint('before')\nos.fork()\nwhile True: pass", timeout_s=2)
        self.assertEqual((answer["termination"]["reason"], answer["exit_code"], answer["stdout"]), ("timeout", -1, "before\n"))
        self.assertTrue(answer["stderr"].endswith("timed out after 2s"))

    def test_8_what_a_snippet_is(self):
        answer = self.service.run("print(open('/proc/self/status').read())\nprint(open('/proc/self/cgroup').read())")
        for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "0::/\n"):
            self.assertIn(line, answer["stdout"])

    def test_8_files_and_input(self):
        answer = self.service.run(
            "import os, sys\nopen('out.txt', 'w').write(open('in.txt').read() + sys.stdin.read() + os.environ['E'])\nos.symlink('/etc/passwd', 'link')\nos.chmod('out.txt', 0)",
            files=[{"path": "in.txt", "content": "one "}], stdin="two ", env={"E": "three"}, timeout_s=60)
        self.assertEqual([(f["path"], f["size"]) for f in answer["files"]], [("out.txt", 13)], answer)
        self.assertEqual(answer["files_skipped"], [{"path": "link", "reason": "symlink"}])

    def test_8_session(self):
        # The freezer, the renewed memory peak and the limits of this kernel's own controllers, over the life of one sandbox.
        session = self.service.request("POST", "/v1/sessions", {}).json()["session_id"]
        big = self.service.run("x = 41\na = bytearray(b'x') * (200 << 20)\ndel a", session_id=session, timeout_s=60)
        small = self.service.run("print(x + 1)", session_id=session, timeout_s=60)
        self.assertEqual((small["stdout"], small["session_ended"]), ("42\n", False))
        self.assertGreater(big["usage"]["memory_peak_bytes"]["value"], 200 << 20)
        stuck = self.service.run("import time\nwhile True: time.sleep(0.1)", session_id=session, timeout_s=2)
        self.assertEqual((stuck["termination"]["reason"], stuck["session_ended"]), ("timeout", False))
        denied = self.service.run("import socket\ntry: socket.create_connection(('192.0.2.9', 443))\nexcept OSError as e: print(e.errno)", session_id=session, timeout_s=60)
        self.assertEqual((denied["stdout"], denied["egress"]["denied"]), ("1\n", 1))
        over = self.service.run("a = []\nwhile True: a.append(bytearray(b'x') * (8 << 20))", session_id=session, timeout_s=60)
        self.assertEqual((over["termination"]["reason"], over["session_ended"]), ("memory", True))

    def test_9_doctor_and_nothing_left(self):
        self.service.stop()
        done = weir("doctor", "--json", timeout=60)
        result = json.loads(done.stdout)
        self.assertEqual([c for c in result["checks"] if c["result"] == "FAIL"], [])
        self.assertEqual(done.returncode, 0)
        self.assertEqual(weir("uninstall").returncode, 0)
        for _ in range(40):  # the kernel takes a network namespace down a little later, and this machine is slow
            left = self.before.difference(HostState())
            left.pop("temporary files", None)  # the host's /tmp shines through, and others write there
            if not left:
                break
            time.sleep(0.25)
        self.assertEqual(left, {})
        self.assertFalse(os.path.exists(os.path.join(cgroup2_mount(), "weir")))


if __name__ == "__main__":
    unittest.main()
