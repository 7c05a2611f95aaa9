# SPDX-License-Identifier: Apache-2.0
"""A run that attempts as fast as it can: every attempt is counted, what is not listed is told, and nobody else's is lost.

A native program does it (build/progs/storm, static, from a memory file inside the sandbox) and counts for itself. It goes on for two
seconds, WEIR_FLOOD_S=10 for ten, and until whoever is to be beside it has been. The rate is printed and never asserted.
"""
import base64
import itertools
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from lib import BUILD, WEIR, Service

SECONDS = float(os.environ.get("WEIR_FLOOD_S", "2"))
LONGEST = 50  # seconds, if nobody ends it
STORM = os.path.join(BUILD, "progs", "storm")
PORTS = 20000
LISTED = 1024  # flows of one run, bpf/abi.h
FLOODED = "198.51.100.7"

CODE = """
import os, subprocess
fd = os.memfd_create("storm")
os.write(fd, open("storm", "rb").read())
print(subprocess.run(["/proc/self/fd/%%d" %% fd, %r, %r, %r, %r], pass_fds=[fd], capture_output=True, text=True).stdout, end="")
"""

# 50 destinations, a datagram and a stream to each other one.
BESIDE = """
import errno, socket
for i in range(50):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if i % 2 else socket.SOCK_DGRAM) as s:
        try:
            s.connect(("203.0.113.%d" % (i + 1), 7000 + i)) if i % 2 else s.sendto(b"beside", ("203.0.113.%d" % (i + 1), 7000 + i))
        except OSError as e:
            print(errno.errorcode[e.errno])
"""

POLICY = {
    "name": "one-way",
    "default": "deny",
    "mode": "enforce",
    "rules": [{"name": "flooded", "verdict": "allow", "to": [FLOODED]}],
}


class Flood:
    """A storm in a run of its own, and what came of it."""

    def __init__(self, service, way):
        with open(STORM, "rb") as f:
            content = base64.b64encode(f.read()).decode()
        self.service, self.answer = service, None
        self.code = CODE % (way, str(LONGEST * 1000), str(PORTS), FLOODED)
        self.files = [{"path": "storm", "content_base64": content}]
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        self.answer = self.service.execute(self.code, files=self.files, timeout_s=LONGEST + 10)

    def processes(self):
        """Host pids of the storm itself."""
        found = []
        for pid in itertools.chain(*self.service.sandboxes().values()):
            try:
                with open("/proc/%d/comm" % pid) as f:
                    if f.read() == "storm\n":
                        found.append(pid)
            except OSError:
                pass  # gone meanwhile
        return found

    def end(self):
        """(the answer, the program's own count)"""
        time.sleep(max(0, self.began + SECONDS - time.monotonic()))
        for pid in self.processes():
            os.kill(pid, signal.SIGTERM)
        self.thread.join()
        answer = self.answer.json()
        if self.answer.status != 200 or answer["exit_code"] != 0:
            raise AssertionError(answer)
        return answer, json.loads(answer["stdout"])


def attempts_so_far(service):
    """Of every sandbox that there is, as the kernel counts it."""
    done = subprocess.run(["bpftool", "-j", "map", "dump", "pinned", os.path.join(service.pins(), "sandboxes")],
                          capture_output=True, text=True, check=True)
    return sum(int(entry["formatted"]["value"]["attempts"]) for entry in json.loads(done.stdout))


class Floods(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        if not os.path.exists(STORM):
            raise AssertionError("no build/progs/storm: make progs")

    def beside(self, service, flood):
        """The other run, while the storm is seen to rage before it begins and has not ended when it ends."""
        while flood.thread.is_alive() and attempts_so_far(service) < 10 * LISTED:
            time.sleep(0.01)
        answer = service.run(BESIDE)
        self.assertTrue(flood.processes(), "the storm did not last")
        return answer

    def check_beside(self, service, answer):
        """All 50, each with everything that is told of an attempt."""
        record = service.audit(answer["run_id"])
        self.assertEqual(answer["stdout"], "EPERM\n" * 50)
        self.assertEqual((answer["egress"]["denied"], answer["egress"]["lost"], record["egress"]["lost"]), (50, 0, 0))
        events = {e["address"]: e for e in record["events"]}
        self.assertEqual(len(record["events"]), 50)
        for i in range(50):
            event = events["203.0.113.%d" % (i + 1)]
            told = {k: event[k] for k in ("protocol", "port", "verdict", "count", "hook", "errno", "requested_address", "requested_port", "attribution", "command")}
            self.assertEqual(told, {
                "protocol": "tcp" if i % 2 else "udp", "port": 7000 + i, "verdict": "denied", "count": 1, "hook": "connect4" if i % 2 else "egress",
                "errno": "EPERM", "requested_address": event["address"], "requested_port": 7000 + i, "attribution": "current", "command": event["command"],
            })
            self.assertTrue(event["pid"] and event["host_pid"] and event["command"] and event["socket_cookie"] and event["boot_ns"])
        self.assertEqual(sorted(e["event_seq"] for e in record["events"]), list(range(1, 51)))

    def check_flood(self, service, way, verdict, answer, said):
        """The kernel's count is the program's own; what is listed and what is told to be missing make up all of it."""
        egress, record = answer["egress"], service.audit(answer["run_id"])
        print("          %s, %s: %d attempts in %d ms, %.0f/s" % (way, verdict, said["attempts"], said["ms"], said["attempts"] * 1000 / said["ms"]), flush=True)
        # (A stream that is let through to nobody is refused by the destination, not by us.)
        self.assertEqual(said["refused"], said["attempts"] if verdict == "denied" else 0, said)
        for known in (egress, record["egress"]):
            self.assertEqual((known["attempts"], known[verdict]), (said["attempts"], said["attempts"]))
            self.assertGreater(known["lost"], 0)
        listed = [e for e in record["events"] if e["address"] == FLOODED]
        self.assertEqual(len(listed), LISTED)
        self.assertEqual(sum(e["count"] for e in listed) + record["egress"]["lost"], said["attempts"])
        self.assertEqual(sorted(e["event_seq"] for e in listed), list(range(1, LISTED + 1)))
        return egress["lost"]

    def test_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "policy.json")
            with open(path, "w") as f:
                json.dump(dict(POLICY, rules=[]), f)
            service = Service("--policy", path, pool=3)
            try:
                lost = {}
                for way, hook in (("connect", "connect4"), ("sendto", "egress")):
                    flood = Flood(service, way)
                    other = self.beside(service, flood)
                    lost[hook] = self.check_flood(service, way, "denied", *flood.end())
                    self.check_beside(service, other)
                self.check_metrics(service, lost)
                self.check_told(service)
            finally:
                service.stop()

    def check_metrics(self, service, lost):
        text = service.request("GET", "/metrics").body.decode()
        for hook, count in lost.items():
            found = re.search(r'^weir_attempts_beyond_list_total\{hook="%s"\} (\d+)$' % hook, text, re.M)
            self.assertIsNotNone(found, text)
            self.assertEqual(int(found.group(1)), count)

    def check_told(self, service):
        """Whoever reads the record is told that details are missing."""
        ls = subprocess.run([WEIR, "audit", "ls", "--json", "--state-dir", service.state], capture_output=True, text=True, timeout=30)
        self.assertEqual(ls.returncode, 0, ls.stderr)
        runs = json.loads(ls.stdout)["runs"]
        self.assertEqual(len([r for r in runs if r["egress"]["lost"] > 0]), 2, ls.stdout)

    def test_allowed(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "policy.json")
            with open(path, "w") as f:
                json.dump(POLICY, f)
            service = Service("--policy", path, pool=3)
            try:
                flood = Flood(service, "sendto")
                other = self.beside(service, flood)
                self.check_flood(service, "sendto", "allowed", *flood.end())
                self.check_beside(service, other)
            finally:
                service.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
