# SPDX-License-Identifier: Apache-2.0
"""What a service does for policies on cgroups that others made: it writes what the kernel saw, says when one does not hold any
more, clears up, and takes nothing with it when it ends, however it ends.

Real cgroups, in network namespaces of the test's own where somebody listens at every address; a /run and a bpffs of its own.
"""
import ctypes
import errno
import glob
import json
import os
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from attached import Apart, Cgroup, Folder, Network, Workload
from lib import BUILD, SLOW, TOKEN, WEIR, WEIR_HOOKS, Service, cgroup_mounts, libc, weir

DENIED, ALLOWED, OTHER = "10.1.2.3", "198.51.100.7", "203.0.113.9"
CGPROG = os.path.join(BUILD, "progs", "cgprog")
NR_BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
BPF_OBJ_GET, BPF_LINK_DETACH = 7, 34
WITHIN = 10  # seconds in which whatever is broken is told

# Datagrams to one address after the other, as fast as they go; a line when there are enough, and then the next when asked.
FLOOD = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent = 0
print("up", flush=True)
for line in sys.stdin:
    count, addresses = map(int, line.split())
    for i in range(count):
        try:
            s.sendto(b"x", ("10.%d.%d.%d" % (9 + (i % addresses) // 65536, (i % addresses) // 256 % 256, i % addresses % 256), 443))
        except PermissionError:
            sent += 1
    print(sent, flush=True)
"""


def rules(*addresses):
    return [{"name": "web-%d" % i, "verdict": "allow", "protocol": ["tcp", "udp"], "to": a, "ports": 443} for i, a in enumerate(addresses)]


def setUpModule():
    global apart, network, folder, first, second, wrapped, wrapped_hooks
    apart, network, folder = Apart(), Network(), Folder()
    never = {"name": "never", "verdict": "deny", "to": "10.0.0.0/8"}
    first = folder.put("first.json", {"name": "first", "default": "deny", "rules": rules(ALLOWED) + [never]})
    second = folder.put("second.json", {"name": "second", "default": "deny", "rules": rules(ALLOWED, OTHER) + [never]})
    wrapped, wrapped_hooks = wrapper("weir", WEIR), wrapper("weir-hooks", WEIR_HOOKS)


def tearDownModule():
    apart.close()
    network.close()
    folder.close()


def wrapper(name, binary):
    """A program of that kind that sees what the test's commands see."""
    path = folder.put(name, "#!/bin/sh\nexec nsenter --mount=/proc/%d/ns/mnt -- %s \"$@\"\n" % (apart.holder.pid, binary))
    os.chmod(path, 0o755)
    return path


def service(*options, hooks=False, **kw):
    return Service(*options, binary=wrapped_hooks if hooks else wrapped, **kw)


def inside(path):
    """A path of theirs, as this process sees it."""
    return "/proc/%d/root%s" % (apart.holder.pid, path)


def until(what, seconds=WITHIN, step=0.05):
    """What it returns as soon as that is true; its last value when time is up."""
    deadline = time.monotonic() + seconds * SLOW
    while True:
        value = what()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(step)


def detach_link(path):
    name = ctypes.create_string_buffer(path.encode())
    attr = ctypes.create_string_buffer(struct.pack("=QII", ctypes.addressof(name), 0, 0).ljust(128, b"\0"), 128)
    fd = libc.syscall(NR_BPF, BPF_OBJ_GET, attr, 128)
    if fd < 0:
        raise OSError(ctypes.get_errno(), path)
    attr = ctypes.create_string_buffer(struct.pack("=I", fd).ljust(128, b"\0"), 128)
    rc = libc.syscall(NR_BPF, BPF_LINK_DETACH, attr, 128)
    os.close(fd)
    if rc < 0:
        raise OSError(ctypes.get_errno(), "detach " + path)


class Flood:
    """A process of the cgroup's that sends what the policy denies, and counts what was refused."""

    def __init__(self, directory):
        def join():
            with open(os.path.join(directory, "cgroup.procs"), "w") as f:
                f.write("0")

        self.process = subprocess.Popen(["nsenter", "--net=/proc/%d/ns/net" % network.pid, "--", "/usr/bin/python3", "-c", FLOOD],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=join, cwd="/")
        self.process.stdout.readline()

    def start(self, count, addresses=1):
        self.process.stdin.write("%d %d\n" % (count, addresses))
        self.process.stdin.flush()

    def wait(self):
        """How many were refused since it began."""
        return int(self.process.stdout.readline())

    def send(self, count, addresses=1):
        self.start(count, addresses)
        return self.wait()

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10 * SLOW)


class Case(unittest.TestCase):
    def setUp(self):
        self.cgroup = Cgroup()
        self.addCleanup(self.tidy)

    def tidy(self):
        apart.weir("detach", "--all")
        self.cgroup.remove()
        self.assertEqual(apart.pins(), [])

    def serve(self, *options, **kw):
        s = service("--policy-only", *options, **kw)
        self.addCleanup(s.stop)
        return s

    def path(self, name="app"):
        self.cgroup.make(name)
        return self.cgroup.full(name)

    def attach(self, name="app", *options, policy=None):
        self.cgroup.make(name)
        return apart.json("attach", "--policy", policy or first, "--cgroup", self.cgroup.full(name), *options)

    def workload(self, name="app"):
        w = Workload(self.path(name), network)
        self.addCleanup(w.stop)
        return w

    def flood(self, name="app"):
        f = Flood(self.path(name))
        self.addCleanup(f.stop)
        return f

    # -- what is in the record --
    def record(self, s, a, number=1, token=TOKEN):
        answer = s.request("GET", "/v1/runs/%s.%d/audit" % (a["id"], number), token=token)
        return answer.json() if answer.status == 200 else None

    def begun(self, s, a, number=1):
        r = until(lambda: self.record(s, a, number))
        self.assertTrue(r, "no record %s.%d:\n%s" % (a["id"], number, s.log_text()))
        return r

    def ended(self, s, a, number=1):
        r = until(lambda: (lambda r: r and r["termination"] and r)(self.record(s, a, number)))
        self.assertTrue(r, "record %s.%d has no end:\n%s" % (a["id"], number, s.log_text()))
        return r

    def event(self, s, a, number=1, **wanted):
        def found():
            r = self.record(s, a, number)
            return r and next((e for e in r["events"] if all(e[k] == v for k, v in wanted.items())), None)

        e = until(found)
        self.assertTrue(e, "no event %r: %r" % (wanted, self.record(s, a, number)))
        return e

    def counters(self, a):
        return apart.json("status", a["id"])["attachments"][0]["counters"]


class Records(Case):
    def test_what_an_attached_cgroup_tries(self):
        w = self.workload()
        self.assertEqual(w.tcp(OTHER), 0)  # open before: in the inventory, and denied by the policy
        s = self.serve()
        a = self.attach()
        self.assertEqual(w.tcp(DENIED), errno.EPERM)
        self.assertEqual(w.tcp(ALLOWED), 0)
        denied = self.event(s, a, address=DENIED)
        self.assertEqual((denied["verdict"], denied["rule_name"], denied["host_pid"], denied["uid"], denied["port"]), ("denied", "never", w.pid, 65534, 443))
        self.assertTrue(denied["command"].startswith("python3"), denied)
        allowed = self.event(s, a, address=ALLOWED, verdict="allowed")
        self.assertEqual((allowed["rule_name"], allowed["policy_generation"]), ("web-0", 1))
        r = self.record(s, a)
        self.assertEqual((r["project"], r["policy"], r["state"], r["gaps"], r["drift"]), ("attached", "first", "running", [], []))
        self.assertEqual(r["policy_hash"], a["policy"]["sha256"])
        target = r["target"]
        self.assertEqual((target["kind"], target["cgroup"], target["cgroup_id"], target["level"]),
                         ("cgroup", a["target"]["cgroup"], a["target"]["cgroup_id"], 2))
        self.assertEqual((target["coverage"], [x["name"] for x in r["reasons"]]), (a["coverage"], [x["name"] for x in a["reasons"]]))
        self.assertEqual((target["canary"]["proven"], target["canary"]["denied"]), (a["canary"]["proven"], a["canary"]["denied"]))
        there = [x for x in r["sockets"] if x["remote"] == OTHER]
        self.assertEqual([(x["pid"], x["protocol"], x["state"], x["remote_port"], x["verdict"], x["elsewhere"]) for x in there],
                         [(w.pid, "tcp", "established", 443, "denied", False)], r["sockets"])

    def test_names_that_are_asked_for(self):
        """Over UDP a packet is judged whole: a name is told though nobody answers."""
        s = self.serve()
        a = self.attach()
        query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06secret\x07example\x03com\x00\x00\x01\x00\x01"
        code = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.sendto(%r, ('%s', 53))" % (query, DENIED)
        procs = os.path.join(self.path(), "cgroup.procs")

        def join():
            with open(procs, "w") as f:
                f.write("0")

        done = subprocess.run(["nsenter", "--net=/proc/%d/ns/net" % network.pid, "--", "/usr/bin/python3", "-c", code], preexec_fn=join,
                              stderr=subprocess.PIPE, text=True)
        self.assertIn("PermissionError", done.stderr)
        e = self.event(s, a, dns_name="secret.example.com")
        self.assertEqual((e["verdict"], e["rule_name"], e["dns_type"]), ("denied", "never", "A"))

    def test_the_command_shows_it(self):
        s = self.serve()
        a = self.attach()
        w = self.workload()
        w.tcp(DENIED)
        self.event(s, a, address=DENIED)
        done = apart.weir("audit", "show", a["id"] + ".1", "--state-dir", s.state)
        self.assertEqual(done.returncode, 0, done.stderr)
        for wanted in ("target   cgroup", a["target"]["cgroup"], "coverage ", "tcp %s:443" % DENIED, "rule never", "project attached"):
            self.assertIn(wanted, done.stdout)
        self.assertNotIn("deadline", done.stdout)

    def test_windows_follow_each_other(self):
        s = self.serve("--test-window", "2", hooks=True)
        a = self.attach()
        f = self.flood()
        before, sent = self.counters(a)["attempts"], f.send(300)
        r = self.ended(s, a)
        sums = [r["egress"]["attempts"]]
        self.assertEqual((r["termination"]["reason"], r["target"]["canary"]["proven"]), ("hour", True))
        self.begun(s, a, 2)
        sent = f.send(200)
        sums += [self.ended(s, a, n)["egress"]["attempts"] for n in (2, 3)]
        self.assertEqual(sum(sums), before + sent, sums)
        r = self.record(s, a, 2)
        # What was there before is told once; nothing was missed between the two.
        self.assertEqual((r["sockets"], r["gaps"], r["egress"]["exact"]), ([], [], True))
        # The number is in the file before the window begins, so none is ever used twice.
        with open(inside("/run/weir/attached/%s/attachment.json" % a["id"])) as f:
            number = json.load(f)["record"]
        self.assertGreaterEqual(number, 3)
        self.begun(s, a, number)

    def test_a_list_that_is_nearly_full(self):
        """1,024 flows are listed: a new window has room for as many again. Nothing is counted twice or not at all."""
        s = self.serve("--test-window", "3", hooks=True)
        a = self.attach()
        before = self.counters(a)["attempts"]
        f = self.flood()
        f.send(900, 900)
        r = self.ended(s, a)
        self.assertEqual(r["termination"]["reason"], "full")
        self.assertEqual((r["egress"]["lost"], len([e for e in r["events"] if e["address"].startswith("10.")]) >= 900), (0, True))
        sent = f.send(900, 900)
        r = self.ended(s, a, 2)
        self.assertEqual(r["egress"]["lost"], 0)
        self.assertEqual(sum(self.ended(s, a, n)["egress"]["attempts"] for n in (1, 2, 3)), before + sent)

    def test_more_than_the_list_holds(self):
        """.. is counted, and said to be lost."""
        s = self.serve("--test-window", "3", hooks=True)
        a = self.attach()
        base = self.counters(a)["attempts"]
        sent = self.flood().send(5000, 5000)
        r = self.ended(s, a)
        now = self.counters(a)
        self.assertEqual(now["attempts"], base + sent)
        self.assertGreaterEqual(now["unlisted"], 5000 - 2048)  # it may have come in two windows
        lost = r["egress"]["lost"] + (self.ended(s, a, 2)["egress"]["lost"])
        self.assertEqual(lost, now["unlisted"])

    def test_replacing_the_policy(self):
        s = self.serve()
        a = self.attach()
        w = self.workload()
        self.assertEqual(w.tcp(OTHER), errno.EPERM)
        self.event(s, a, address=OTHER, verdict="denied")
        again = self.attach(policy=second)
        self.assertEqual((again["id"], again["policy"]["generation"]), (a["id"], 2))
        self.assertEqual(w.tcp(OTHER), 0)
        r = self.ended(s, a)
        self.assertEqual((r["termination"]["reason"], r["policy"], r["policy_generation"]), ("policy", "first", 1))
        r = self.begun(s, a, 2)
        self.assertEqual((r["policy"], r["policy_generation"], r["policy_hash"]), ("second", 2, again["policy"]["sha256"]))
        # Tried at once, before the file said so: the rule has its name all the same.
        e = self.event(s, a, 2, address=OTHER)
        self.assertEqual((e["verdict"], e["rule_name"], e["policy_generation"]), ("allowed", "web-1", 2))

    def test_detaching(self):
        s = self.serve()
        a = self.attach()
        w = self.workload()
        w.tcp(DENIED)
        self.event(s, a, address=DENIED)
        done = apart.weir("detach", "--id", a["id"])
        self.assertEqual(done.returncode, 0, done.stderr)
        # At once, though the service has every link of it open.
        self.assertEqual(w.tcp(DENIED), 0)
        r = self.ended(s, a)
        self.assertEqual((r["termination"]["reason"], r["egress"]["denied"] >= 1, r["egress"]["exact"]), ("detached", True, True))
        self.assertEqual(s.request("GET", "/readyz", token=None).status, 200)

    def test_a_cgroup_that_is_removed(self):
        s = self.serve()
        a = self.attach()
        w = self.workload()
        w.tcp(DENIED)
        w.process.kill()
        w.process.wait()
        os.rmdir(self.cgroup.full("app"))
        self.assertTrue(until(lambda: not apart.pins(), 5), "pins stay")
        r = self.ended(s, a)
        self.assertEqual(r["termination"]["reason"], "removed")
        self.assertTrue(any(e["address"] == DENIED for e in r["events"]), r["events"])
        links = subprocess.run(["bpftool", "-j", "link"], stdout=subprocess.PIPE, text=True).stdout
        self.assertNotIn('"cgroup_id":%d,' % a["target"]["cgroup_id"], links)
        self.assertEqual(s.request("GET", "/readyz", token=None).status, 200)

    def test_one_that_comes_and_goes(self):
        """Short as a container may live: what it tried is in the record, whoever is first to see that it is gone."""
        s = self.serve()
        for i in range(4):
            name = "short-%d" % i
            s.process.send_signal(signal.SIGSTOP)  # it has not seen any of it
            try:
                a = self.attach(name)
                w = Workload(self.path(name), network)
                w.tcp(DENIED)
                w.process.kill()
                w.stop()
                os.rmdir(self.cgroup.full(name))
                if i % 2:
                    apart.weir("status")
            finally:
                s.process.send_signal(signal.SIGCONT)
            r = self.ended(s, a)
            self.assertEqual((r["termination"]["reason"], [e["address"] for e in r["events"] if e["host_pid"] == w.pid]), ("removed", [DENIED]))
        self.assertTrue(until(lambda: not apart.pins(), 5))

    def test_a_parent(self):
        """What has no policy of its own below it is denied, and told."""
        s = self.serve()
        self.cgroup.make("all/stranger")
        a = apart.json("attach", "--parent", self.cgroup.full("all"), "--unknown", "deny")
        w = self.workload("all/stranger")
        self.assertEqual(w.tcp(ALLOWED), errno.EPERM)
        e = self.event(s, a, address=ALLOWED)
        self.assertEqual((e["verdict"], e["reason"], e["host_pid"]), ("denied", "no_entry", w.pid))
        r = self.record(s, a)
        self.assertEqual((r["target"]["unknown"], r["target"]["kind"], r["policy"]), ("deny", "parent", ""))
        # Who it was, by a name that the next command takes, and by the number that the kernel has.
        stranger = self.cgroup.full("all/stranger")
        self.assertEqual((e["cgroup"], e["cgroup_id"]), ("/%s/all/stranger" % self.cgroup.name, os.stat(stranger).st_ino))
        shown = apart.weir("audit", "show", a["id"] + ".1", "--state-dir", s.state).stdout
        self.assertIn("in /%s/all/stranger (id %d)" % (self.cgroup.name, e["cgroup_id"]), shown)
        self.assertEqual(apart.weir("detach", "--id", a["id"]).returncode, 0)
        r = self.ended(s, a)
        self.assertGreaterEqual(r["egress"]["denied"], 1)

    def test_a_parent_that_denies_what_it_let_through(self):
        """Each record says one thing of what has no policy, and has only what was judged so."""
        s = self.serve()
        self.cgroup.make("all/stranger")
        a = apart.json("attach", "--parent", self.cgroup.full("all"), "--unknown", "allow")
        w = self.workload("all/stranger")
        w.tcp(ALLOWED)
        self.assertEqual(self.event(s, a, address=ALLOWED)["verdict"], "would_deny")
        apart.json("attach", "--parent", self.cgroup.full("all"), "--unknown", "deny")
        r = self.ended(s, a)
        self.assertEqual((r["target"]["unknown"], r["termination"]["reason"]), ("allow", "policy"))
        self.assertEqual(w.tcp(ALLOWED), errno.EPERM)
        self.assertEqual(self.event(s, a, 2, address=ALLOWED)["verdict"], "denied")
        self.assertEqual(self.record(s, a, 2)["target"]["unknown"], "deny")
        # Without a number: the windows there are.
        shown = apart.weir("audit", "show", a["id"], "--state-dir", s.state)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        for number in (1, 2):
            self.assertIn("%s.%d " % (a["id"], number), shown.stdout)
        self.assertIn("weir audit show %s.2" % a["id"], shown.stdout)
        listed = json.loads(apart.weir("audit", "show", a["id"], "--json", "--state-dir", s.state).stdout)
        self.assertEqual([r["run_id"] for r in listed["runs"]], ["%s.%d" % (a["id"], n) for n in (1, 2)])
        self.assertIn("parent " + r["target"]["ref"], apart.weir("audit", "ls", "--state-dir", s.state).stdout)
        self.assertEqual(apart.weir("audit", "show", a["id"][:-1], "--state-dir", s.state).returncode, 1)


class Deaths(Case):
    def setUp(self):
        super().setUp()
        state = tempfile.TemporaryDirectory(prefix="weir-test-state-")
        self.addCleanup(state.cleanup)
        os.chmod(state.name, 0o700)
        self.state = state.name

    def test_killed_under_a_flood(self):
        """Nothing that is enforced changes. The next service says since when nobody wrote, and its sums are the kernel's."""
        s = self.serve(state=self.state)
        a = self.attach()
        base = self.counters(a)["attempts"]
        f, w = self.flood(), self.workload()
        self.begun(s, a)
        f.start(20000, 40)
        time.sleep(0.2)
        killed = time.time()
        s.kill9()
        self.assertEqual((w.tcp(DENIED), w.tcp(ALLOWED)), (errno.EPERM, 0))
        self.assertEqual(apart.json("status")["events"]["written"], False)
        sent = f.wait()
        sent = f.send(100)  # while nobody is there
        mine = self.counters(a)["attempts"] - base
        self.assertEqual(mine, sent + 2)
        s = self.serve(state=self.state)
        r = self.begun(s, a, 2)
        self.assertEqual(len(r["gaps"]), 1, r)
        gap = r["gaps"][0]
        self.assertEqual((gap["kind"], gap["unfinished"]), ("undrained", 1))
        since = time.mktime(time.strptime(gap["since"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
        self.assertLess(abs(since - killed), 4 * SLOW)
        # What it had counted when it was looked at last, at most two seconds before, is not of the gap.
        self.assertGreaterEqual(gap["attempts"], 100)
        self.assertLessEqual(gap["attempts"], mine)
        more = f.send(50) + 2
        status = s.stop()
        self.assertEqual(status, 0, s.last_log)
        r = apart.json("audit", "show", a["id"] + ".2", "--state-dir", self.state)
        # The one before has no end, so all that it counted is in this sum.
        self.assertEqual((r["termination"]["reason"], r["egress"]["attempts"], r["egress"]["lost"]), ("stopped", base + more, 0))
        listed = {e["address"]: e["count"] for e in r["events"] if e["address"].startswith("10.")}
        self.assertEqual(sum(listed.values()), more - 1, listed)  # all but the one to ALLOWED
        self.assertEqual(apart.json("audit", "show", a["id"] + ".1", "--state-dir", self.state)["state"], "interrupted")

    def test_stopped_in_order(self):
        s = self.serve(state=self.state)
        a = self.attach()
        w = self.workload()
        w.tcp(DENIED)
        self.event(s, a, address=DENIED)
        pins = sorted(os.listdir(inside("/sys/fs/bpf/weir/attached/" + a["id"])))
        self.assertEqual(s.stop(), 0, s.last_log)
        self.assertIn("stay in force", s.last_log)
        self.assertEqual(sorted(os.listdir(inside("/sys/fs/bpf/weir/attached/" + a["id"]))), pins)
        self.assertEqual((w.tcp(DENIED), w.tcp(ALLOWED)), (errno.EPERM, 0))
        self.assertEqual(apart.json("status")["attachments"][0]["state"], "in force")
        one = apart.json("audit", "show", a["id"] + ".1", "--state-dir", self.state)
        self.assertEqual((one["termination"]["reason"], one["state"]), ("stopped", "ended"))
        s = self.serve(state=self.state)
        r = self.begun(s, a, 2)
        self.assertEqual((r["gaps"][0]["unfinished"], r["gaps"][0]["attempts"]), (None, 2))
        self.event(s, a, 2, address=DENIED)  # the ring has kept it
        s.stop()
        two = apart.json("audit", "show", a["id"] + ".2", "--state-dir", self.state)
        self.assertEqual(one["egress"]["attempts"] + two["egress"]["attempts"], self.counters(a)["attempts"])

    def test_nobody_was_there_at_all(self):
        a = self.attach()
        w = self.workload()
        w.tcp(DENIED)
        time.sleep(6)
        s = self.serve(state=self.state)
        r = self.begun(s, a)
        self.assertEqual((r["gaps"][0]["since"][:19], r["gaps"][0]["unfinished"]), (a["attached"][:19], None))
        self.assertEqual(r["gaps"][0]["attempts"], self.counters(a)["attempts"])
        self.event(s, a, address=DENIED)

    def test_where_it_was_is_lost(self):
        """The file that says how far the record is can be gone: that is said, and sums are those since the beginning."""
        s = self.serve(state=self.state)
        a = self.attach()
        self.flood().send(50)
        self.begun(s, a)
        s.kill9()
        os.unlink(inside("/run/weir/attached/drained"))
        s = self.serve(state=self.state)
        r = self.begun(s, a, 2)
        self.assertIsNone(r["gaps"][0]["since"])
        self.assertIn("not known any more", r["gaps"][0]["text"])
        self.assertEqual(r["gaps"][0]["attempts"], self.counters(a)["attempts"])

    def test_two_services(self):
        """One writes. The other looks, and goes on with it when the first is gone."""
        s = self.serve(state=self.state)
        a = self.attach()
        self.begun(s, a)
        other = self.serve()
        self.assertEqual(other.request("GET", "/readyz", token=None).status, 200)
        self.workload().tcp(DENIED)
        self.event(s, a, address=DENIED)
        self.assertIsNone(self.record(other, a))
        self.assertEqual(apart.json("status")["events"]["by_pid"], s.process.pid)
        s.kill9()
        r = self.begun(other, a, 2)
        self.assertEqual(len(r["gaps"]), 1)
        self.assertEqual(apart.json("status")["events"]["by_pid"], other.process.pid)

    def test_an_ordinary_service_does_it_too(self):
        """In the host's own /run: a service that has sandboxes takes whoever has no lock there for dead."""
        def command(*args):
            done = weir(*args, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        if json.loads(weir("status", "--json").stdout)["events"]["written"]:
            self.skipTest("a service of this host's writes events of attachments already")
        s = Service(state=self.state, pool=1)
        self.addCleanup(s.stop)
        a = command("attach", "--policy", first, "--cgroup", self.path())
        self.addCleanup(weir, "detach", "--id", a["id"])
        self.workload().tcp(DENIED)
        self.event(s, a, address=DENIED)
        self.assertEqual(s.run("print(42)")["stdout"], "42\n")
        s.kill9()
        # What its successor sweeps is its own.
        s = Service(state=self.state, pool=1)
        self.addCleanup(s.stop)
        self.assertEqual(command("status", a["id"])["attachments"][0]["state"], "in force")
        self.begun(s, a, 2)
        s.stop()
        self.assertNotIn("instance attached", s.last_log)
        self.assertEqual(command("status", a["id"])["attachments"][0]["state"], "in force")


class Drift(Case):
    """Whatever happens to it is in status, in the log, in the record, and in what readiness says, within ten seconds; and so is
    its end."""

    def setUp(self):
        super().setUp()
        self.s = self.serve()
        self.a = self.attach()
        self.begun(self.s, self.a)
        until(lambda: self.s.request("GET", "/readyz", token=None).status == 200)

    def pin(self, name):
        return inside("/sys/fs/bpf/weir/attached/%s/%s" % (self.a["id"], name))

    def status(self):
        done = apart.weir("status", "--json")
        return json.loads(done.stdout)["attachments"][0]

    def assertTold(self, name, in_force=False, number=1):
        started = time.monotonic()
        drift = until(lambda: [d for d in self.record(self.s, self.a, number)["drift"] if d["name"] == name and not d["over"]])
        took = time.monotonic() - started
        self.assertTrue(drift, "%s is not in the record:\n%s" % (name, self.s.log_text()))
        self.assertLess(took, WITHIN * SLOW)
        self.assertIn(name, [p["name"] for p in self.status()["problems"]])
        self.assertRegex(self.s.log_text(), r"error: %s .*%s" % (self.a["id"], name))
        ready = until(lambda: (lambda r: r if (r.status == 200) == in_force else None)(self.s.request("GET", "/readyz", token=None)))
        self.assertTrue(ready)
        if not in_force:
            self.assertIn(self.a["id"], ready.json()["error"]["message"])
        self.assertEqual(self.s.request("GET", "/healthz", token=None).status, 200)

    def assertOver(self, name):
        over = until(lambda: [d for d in self.record(self.s, self.a)["drift"] if d["name"] == name and d["over"]], 12)
        self.assertTrue(over, self.record(self.s, self.a)["drift"])
        told = [d for d in self.record(self.s, self.a)["drift"] if d["name"] == name]
        self.assertEqual(len(told), 2, told)  # once when it began, once when it was over
        self.assertTrue(until(lambda: self.s.request("GET", "/readyz", token=None).status == 200))

    def test_a_link_that_is_detached(self):
        detach_link(self.pin("link_egress"))
        self.assertTold("detached")

    def test_a_pin_that_is_removed(self):
        os.unlink(self.pin("link_connect4"))
        self.assertTold("pin")
        # The service has the link: it holds as long as that lives.
        self.assertEqual(self.workload().tcp(DENIED), errno.EPERM)

    def test_a_foreign_program_that_comes_and_goes(self):
        p = subprocess.Popen([CGPROG, self.cgroup.dir, "egress", "multi", "allow", "stranger"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(p.stdout.close)
        p.stdout.readline()
        try:
            self.assertTold("foreign", in_force=True)
        finally:
            p.stdin.close()
            p.wait()
        self.assertOver("foreign")

    def test_a_cgroup_that_is_made_anew(self):
        os.rmdir(self.cgroup.full("app"))
        self.cgroup.make("app")
        self.assertTold("recreated")

    def test_mended_by_attaching_again(self):
        detach_link(self.pin("link_egress"))
        self.assertTold("detached")
        again = self.attach()
        self.assertEqual(again["state"], "in force")
        self.a = again
        self.assertTrue(until(lambda: self.s.request("GET", "/readyz", token=None).status == 200, 12), self.s.log_text())
        self.workload().tcp(DENIED)
        number = 1 if self.record(self.s, again, 2) is None else 2
        self.event(self.s, again, number, address=DENIED)


class PolicyOnly(Case):
    def test_routes(self):
        s = self.serve()
        for method, path, body in (("POST", "/v1/execute", {"code": "1"}), ("POST", "/v1/sessions", {})):
            answer = s.request(method, path, body)
            error = answer.json()["error"]
            self.assertEqual((answer.status, error["ran"], error["code"]), (500, False, "policy_only"), path)
            self.assertIn("--policy-only", error["message"])
        answer = s.request("POST", "/v1/execute", {"code": 1})
        self.assertEqual(answer.status, 400)  # what is wrong with a request is said first
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "1"}}}
        text = s.request("POST", "/mcp", call, headers={"Accept": "application/json, text/event-stream"}).body.decode()
        self.assertIn("--policy-only", text)
        self.assertEqual(s.request("GET", "/v1/sessions").json(), {"sessions": []})
        pool = s.request("GET", "/v1/pool").json()
        self.assertEqual((pool["size"], pool["warm"], pool["starting"]), (0, 0, 0))
        self.assertEqual(s.request("GET", "/v1/limits").status, 200)
        self.assertIn("policy_only", json.dumps(s.request("GET", "/openapi.json").json()))
        self.assertEqual(s.request("GET", "/v1/runs/attached-0000000000.1/audit").status, 404)

    def test_it_makes_nothing_for_sandboxes(self):
        s = self.serve()
        locks = [p for p in glob.glob(inside("/run/weir/serve*/lock")) if self.text(p).strip() == str(s.process.pid)]
        self.assertEqual(len(locks), 1)
        name = os.path.basename(os.path.dirname(locks[0]))
        self.assertFalse(os.path.exists(inside("/sys/fs/bpf/weir/" + name)))
        self.assertFalse(any(os.path.exists(os.path.join(m, "weir", name)) for m in cgroup_mounts()))
        children = [p for p in glob.glob("/proc/[0-9]*/stat") if self.text(p).rpartition(")")[2].split()[1:2] == [str(s.process.pid)]]
        self.assertEqual(len(children), 2, children)  # api and auditor
        self.assertEqual(s.stop(), 0)
        self.assertFalse(os.path.exists(os.path.dirname(locks[0])))

    @staticmethod
    def text(path):
        try:
            with open(path) as f:
                return f.read()
        except OSError:
            return ""

    def test_options_of_sandboxes(self):
        for option in (["--pool", "2"], ["--policy", "snippet"], ["--python", "python3"], ["--no-internet-egress"]):
            done = apart.weir("serve", "--policy-only", *option)
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn("--policy-only", done.stderr)
        done = apart.weir("serve", "--policy-only", "--check-config", "--json", "--state-dir", "/tmp/weir-test-none")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIs(json.loads(done.stdout)["policy_only"], True)

    def test_whose_records_they_are(self):
        """A reviewer sees them; a project's token does not, and none can be had for the name they are kept under."""
        state = tempfile.TemporaryDirectory(prefix="weir-test-state-")
        self.addCleanup(state.cleanup)

        def mint(*options):
            return apart.weir("token", "mint", "--state-dir", state.name, *options)

        project = mint("--project", "demo").stdout.strip()
        reviewer = mint("--project", "demo", "--scope", "reviewer").stdout.strip()
        done = mint("--project", "attached")
        self.assertEqual(done.returncode, 64)
        self.assertIn("reviewers alone", done.stderr)
        s = self.serve(state=state.name)
        a = self.attach()
        self.begun(s, a)
        self.assertTrue(self.record(s, a, token=reviewer))
        answer = s.request("GET", "/v1/runs/%s.1/audit" % a["id"], token=project)
        self.assertEqual(answer.status, 404)

    def test_a_reload_looks_again(self):
        s = self.serve()
        a = self.attach()
        self.begun(s, a)
        s.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        self.assertEqual(s.request("GET", "/readyz", token=None).status, 200)

    def test_a_file_that_is_damaged(self):
        """An error that names it, and never a reason to enforce less."""
        s = self.serve()
        a = self.attach()
        self.begun(s, a)
        w = self.workload()
        path = inside("/run/weir/attached/%s/attachment.json" % a["id"])
        whole = open(path).read()
        with open(path, "w") as f:
            f.write("{")
        self.assertTrue(until(lambda: a["id"] in s.log_text()))
        self.assertEqual((w.tcp(DENIED), w.tcp(ALLOWED)), (errno.EPERM, 0))
        s.kill9()
        s = service("--policy-only", ready=False)
        self.addCleanup(s.stop)
        # Before that it says that it does not know yet.
        self.assertTrue(until(lambda: (lambda r: r.status == 503 and a["id"] in r.json()["error"]["message"])(s.request("GET", "/readyz", token=None))))
        with open(path, "w") as f:
            f.write(whole)
        self.assertTrue(until(lambda: s.request("GET", "/readyz", token=None).status == 200, 15))


class Many(Case):
    COUNT = int(os.environ.get("WEIR_ATTACHED", "20"))

    def cpu_ns(self, pid):
        return sum(int(open(p).read().split()[0]) for p in glob.glob("/proc/%d/task/*/schedstat" % pid))

    def test_what_they_cost_at_rest(self):
        s = self.serve()
        pid = s.process.pid
        fds = len(os.listdir("/proc/%d/fd" % pid))
        every = [self.attach("n%d" % i) for i in range(self.COUNT)]
        for a in every:
            self.begun(s, a)
        time.sleep(3)
        held = len(os.listdir("/proc/%d/fd" % pid)) - fds
        before = self.cpu_ns(pid)
        time.sleep(10)
        percent = (self.cpu_ns(pid) - before) / 10e7
        print("  %d attachments at rest: %.3f %% of a core, %.1f descriptors each" % (self.COUNT, percent, held / self.COUNT), flush=True)
        self.assertLess(percent, 0.2 + 0.02 * self.COUNT)
        self.assertLess(held, 22 * self.COUNT + 8)
        # One of them floods: the others, and the api, do not wait for it.
        f, quiet = self.flood("n0"), self.workload("n1")
        f.start(30000, 3000)
        started = time.monotonic()
        quiet.tcp(DENIED)
        self.event(s, every[1], address=DENIED)
        self.assertLess(time.monotonic() - started, 3 * SLOW)
        slowest = 0
        for _ in range(20):
            started = time.monotonic()
            s.request("GET", "/healthz", token=None)
            slowest = max(slowest, time.monotonic() - started)
        self.assertLess(slowest, 1 * SLOW)
        f.wait()
        for i, a in enumerate(every):
            if i % 4 == 0:
                self.assertEqual(apart.weir("detach", "--id", a["id"]).returncode, 0)
                self.ended(s, a)
        left = len(every) - len(every[::4])
        self.assertTrue(until(lambda: len(os.listdir("/proc/%d/fd" % pid)) - fds < 22 * left + 8))

    def test_with_few_descriptors(self):
        """More attachments than can be held open: each in its turn, and nothing is missed."""
        script = folder.put("few", "#!/bin/sh\nulimit -n 340\nexec %s \"$@\"\n" % wrapped)
        os.chmod(script, 0o755)
        s = Service("--policy-only", binary=script)
        self.addCleanup(s.stop)
        every = [self.attach("n%d" % i) for i in range(7)]
        for i, a in enumerate(every):
            self.begun(s, a)
            self.workload("n%d" % i).tcp(DENIED)
        for a in every:
            self.event(s, a, address=DENIED)
        self.assertLess(len(os.listdir("/proc/%d/fd" % s.process.pid)), 200)
        self.assertEqual(s.request("GET", "/readyz", token=None).status, 200)

    def test_nothing_is_left(self):
        before = apart.pins(), sorted(os.listdir(inside("/run/weir/attached")) if os.path.isdir(inside("/run/weir/attached")) else [])
        s = self.serve()
        for i in range(3):
            self.attach("n%d" % i)
        self.assertEqual(apart.weir("detach", "--all").returncode, 0)
        self.assertTrue(until(lambda: len(os.listdir("/proc/%d/fd" % s.process.pid)) < 60))
        self.assertEqual(s.stop(), 0, s.last_log)
        self.assertEqual(apart.pins(), [])
        after = [n for n in os.listdir(inside("/run/weir/attached")) if n.startswith("attached-")]
        self.assertEqual((after, before[0]), ([], []))


if __name__ == "__main__":
    unittest.main(verbosity=2)
