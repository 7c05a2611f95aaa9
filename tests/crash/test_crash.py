# SPDX-License-Identifier: Apache-2.0
"""What holds when Weir's processes are killed: not one packet passes, nothing runs on unseen, and the next start tidies up.

The kernel objects are the test subject, so each protection has its counter-proof: with the links detached the same packets
are heard.
"""
import concurrent.futures
import contextlib
import fcntl
import glob
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from lib import SLOW, TOKEN, WEIR, Capture, Listener, Service, bpftool, cgroup2_mount, cgroup_mounts, weir

UID_API, UID_AUDITOR, UID_COLLECTOR = 0x70000001, 0x70000002, 0x70000003
ROLES = {UID_API: "api", UID_AUDITOR: "auditor", UID_COLLECTOR: "collector"}
RUN_DIR, PIN_DIR = "/run/weir", "/sys/fs/bpf/weir"

# Sends for ever, in every way that is not over at once: UDP, TCP, both families, from the main thread, another one and a child.
LOOP = """
import os, socket, threading, time

def loop(kind, address):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    while True:
        with socket.socket(family, kind) as s:
            s.settimeout(1)
            try:
                if kind == socket.SOCK_DGRAM:
                    s.sendto(b"leak", address)
                else:
                    s.connect(address)
            except OSError:
                pass

def drip():
    # A new destination every few milliseconds.
    for port in range(20000, 20900):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            try:
                s.sendto(b"leak", ("198.51.100.1", port))
            except OSError:
                pass
        time.sleep(0.004)

print("looping")
if os.fork() == 0:
    threading.Thread(target=drip).start()
    loop(socket.SOCK_DGRAM, ("2001:db8::1", 9999))
threading.Thread(target=loop, args=(socket.SOCK_STREAM, ("192.0.2.1", 8080))).start()
loop(socket.SOCK_DGRAM, ("192.0.2.1", 9999))
"""
LOOP_FLOWS = {("udp", "192.0.2.1", 9999), ("udp", "2001:db8::1", 9999), ("tcp", "192.0.2.1", 8080)}


# ---- what is there ----

def identity(pid):
    """(pid, start time) of a process that is alive, else None: a zombie has nothing left that could act."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else (pid, int(fields[19]))


def alive(identities):
    return [i for i in identities if identity(i[0]) == i]


def pids():
    return [int(p) for p in os.listdir("/proc") if p.isdigit()]


def children(pid):
    """pid -> uid of a process's children."""
    found = {}
    for p in pids():
        try:
            with open("/proc/%d/stat" % p) as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found[p] = os.stat("/proc/%d" % p).st_uid
        except OSError:
            pass
    return found


def in_cgroups(name):
    """Identities of the processes in an instance's cgroups, of any hierarchy."""
    found = set()
    for p in pids():
        try:
            with open("/proc/%d/cgroup" % p) as f:
                if "/weir/%s/" % name in f.read():
                    found.add(identity(p))
        except OSError:
            pass
    return found - {None}


def remains(name):
    """Everything that is left of an instance: directories, pins, files, processes."""
    found = [os.path.join(m, "weir", name) for m in cgroup_mounts()] + [os.path.join(d, name) for d in (RUN_DIR, PIN_DIR)]
    return [path for path in found if os.path.exists(path)] + sorted(in_cgroups(name))


def wait_for(fn, seconds, what):
    """Waits until fn() is true; returns how long that took."""
    began = time.monotonic()
    while not fn():
        if time.monotonic() - began > seconds * SLOW:
            raise AssertionError("not within %g s: %s" % (seconds * SLOW, what))
        time.sleep(0.005)
    return time.monotonic() - began


@contextlib.contextmanager
def killed(service):
    """SIGKILL of the supervisor. Until the block ends no other start on this host sweeps what it leaves: the test looks like its heir."""
    name = service.name()
    with open(os.path.join(RUN_DIR, "lock"), "a") as starts, open(os.path.join(RUN_DIR, name, "lock"), "a") as instance:
        fcntl.flock(starts, fcntl.LOCK_EX)
        service.kill9()
        fcntl.flock(instance, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(starts, fcntl.LOCK_UN)
        yield


def links_of(pins):
    """Link ids pinned in a directory."""
    return [bpftool("link", "show", "pinned", path)["id"] for path in sorted(glob.glob(os.path.join(pins, "link_*")))]


def attempts_of(pins, cgroup):
    """The kernel's own counter of one sandbox: third field of struct weir_sandbox (bpf/abi.h)."""
    for entry in bpftool("map", "dump", "pinned", os.path.join(pins, "sandboxes")):
        key, value = (bytes(int(b, 16) for b in entry[k]) for k in ("key", "value"))
        if int.from_bytes(key, "little") == os.stat(cgroup).st_ino:
            return int.from_bytes(value[8:16], "little")
    raise AssertionError("no entry of %s" % cgroup)


def records(state):
    db = sqlite3.connect("file:%s?mode=ro" % os.path.join(state, "audit", "audit.db"), uri=True, timeout=10)
    try:
        return [dict(json.loads(body), seq=seq) for seq, body in db.execute("SELECT seq, body FROM record ORDER BY seq")]
    finally:
        db.close()


def flows_of(audit):
    return {(e["protocol"], e["address"], e["port"]) for e in audit["events"]}


class Case(unittest.TestCase):
    def setUp(self):
        self.cleanups = contextlib.ExitStack()
        self.addCleanup(self.cleanups.close)

    def state_dir(self):
        path = tempfile.mkdtemp(prefix="weir-test-state-")
        self.cleanups.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def service(self, *options, **kw):
        service = Service(*options, **kw)
        self.cleanups.callback(self.tidy, service, service.name())
        self.cleanups.callback(self.stop_now, service)
        service.roles = {ROLES[uid]: pid for pid, uid in children(service.process.pid).items() if uid in ROLES}
        return service

    @staticmethod
    def tidy(service, name):
        """What a killed one left is its heir's to remove, also when the test did not get so far."""
        if remains(name):
            Service(pool=1, state=service.state).stop()
            shutil.rmtree(service.state, ignore_errors=True)

    def post(self, service, code, **fields):
        """Posts in the background; the future has the Answer, or the exception that the client met."""
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.cleanups.callback(pool.shutdown)
        return pool.submit(service.execute, code, **fields)

    def stop_now(self, service):
        """A stop that does not wait for what runs: asked twice."""
        service.process.terminate()
        time.sleep(0.1)
        return service.stop()

    def loop(self, service):
        """Starts LOOP in the warm sandbox, watched; returns when each of its flows has been denied at least once."""
        box, pid = service.warm_box()
        capture, listener = Capture(pid), Listener(pid)
        self.cleanups.callback(capture.stop)
        self.cleanups.callback(listener.stop)
        request = self.post(service, LOOP, timeout_s=60)

        def seen():
            answer = service.request("GET", "/v1/runs/%s/audit" % box)
            return answer.status == 200 and flows_of(answer.json()) >= LOOP_FLOWS

        wait_for(seen, 10, "every flow of the loop in the audit")
        return box, capture, listener, request

    def assert_no_success(self, request):
        """Whatever the client of a run that was cut short got, it can't be taken for a result."""
        try:
            answer = request.result(30 * SLOW)
        except Exception as e:  # noqa: BLE001: a connection that broke off says it, too
            self.assertNotIsInstance(e, (AssertionError, concurrent.futures.TimeoutError))
            return None
        body = answer.json()
        if answer.status == 200:
            self.assertEqual(body["termination"]["reason"], "cancelled")
            self.assertNotEqual(body["exit_code"], 0)
        else:
            self.assertGreaterEqual(answer.status, 500)
        return answer


# ---- a process of the test's, in a cgroup of the instance's ----

STRANGER = """
import errno, json, socket, sys, threading
udp, tcp = int(sys.argv[1]), int(sys.argv[2])
ends = {}

def once(kind, port):
    # A new socket each time: the one it was made in is the cgroup that a socket answers to.
    with socket.socket(socket.AF_INET, kind) as s:
        s.settimeout(1)
        try:
            s.connect(("127.0.0.1", port))
            s.send(b"stranger")
            return "sent"
        except OSError as e:
            return errno.errorcode.get(e.errno, str(e))

def loop():
    while True:
        ends["udp"], ends["tcp"] = once(socket.SOCK_DGRAM, udp), once(socket.SOCK_STREAM, tcp)
        ends["rounds"] = ends.get("rounds", 0) + 1

threading.Thread(target=loop, daemon=True).start()
for line in sys.stdin:
    print(json.dumps(ends), flush=True)
"""


class Stranger:
    """Sends to sockets of the test on the host's loopback, all the time."""

    def __init__(self):
        self.udp, self.tcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
        for s in (self.udp, self.tcp):
            s.bind(("127.0.0.1", 0))
            s.settimeout(0.1)
        self.tcp.listen(64)
        self.counts, self.stopping = {"udp": 0, "tcp": 0}, False
        self.threads = [threading.Thread(target=fn, daemon=True) for fn in (self._hear_udp, self._hear_tcp)]
        for t in self.threads:
            t.start()
        ports = [str(s.getsockname()[1]) for s in (self.udp, self.tcp)]
        self.process = subprocess.Popen([sys.executable, "-c", STRANGER] + ports, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.cgroup = None

    def _hear_udp(self):
        while not self.stopping:
            with contextlib.suppress(TimeoutError):
                self.udp.recv(100)
                self.counts["udp"] += 1

    def _hear_tcp(self):
        while not self.stopping:
            with contextlib.suppress(TimeoutError):
                self.tcp.accept()[0].close()
                self.counts["tcp"] += 1

    def ends(self):
        """How its tries end: of two whole rounds that began after this call."""
        first = self._ask().get("rounds", 0)
        wait_for(lambda: self._ask().get("rounds", 0) >= first + 2, 10, "two rounds of the stranger")
        return {k: v for k, v in self._ask().items() if k != "rounds"}

    def _ask(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def heard(self):
        """What has arrived since the last call."""
        time.sleep(0.05)
        counts, self.counts = self.counts, {"udp": 0, "tcp": 0}
        return counts

    def enter(self, directory):
        os.makedirs(directory, exist_ok=True)
        self.cgroup = directory
        with open(os.path.join(directory, "cgroup.procs"), "w") as f:
            f.write(str(self.process.pid))

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.stopping = True
        for t in self.threads:
            t.join()
        self.udp.close()
        self.tcp.close()
        if self.cgroup:
            with contextlib.suppress(OSError):
                os.rmdir(self.cgroup)


SILENCE, SENT = {"udp": 0, "tcp": 0}, {"udp": "sent", "tcp": "sent"}
REFUSED = {"udp": "EPERM", "tcp": "EPERM"}


class Supervisor(Case):
    """SIGKILL of the supervisor while a snippet loops on sendto() and connect()."""

    figures = {}

    def test_killed_while_a_snippet_sends(self):
        state = self.state_dir()
        service = self.service(pool=1, state=state)
        name, pins = service.name(), service.pins()
        box, capture, listener, request = self.loop(service)
        own = {identity(p) for p in service.roles.values()} - {None}
        links = links_of(pins)
        self.assertGreaterEqual(len(links), 5)

        # What it can't read any more waits in the pinned ring.
        os.kill(service.process.pid, signal.SIGSTOP)
        time.sleep(0.3)
        run = in_cgroups(name)
        with killed(service):
            self.figures["processes of the run gone, s"] = wait_for(lambda: not alive(run | in_cgroups(name)), 2, "the run's processes dead")
            self.figures["api and auditor gone, s"] = wait_for(lambda: not alive(own), 6, "api and auditor gone")
            self.assert_no_success(request)
            # Then and later: what was under way, resent or queued would be heard by now.
            time.sleep(1.0)
            self.assertEqual((capture.packets(), listener.heard), ([], []))
            # Nobody is left to hold the links, and they are still there; so are the counters.
            self.assertEqual(links_of(pins), links)
            attempts = attempts_of(pins, os.path.join(cgroup2_mount(), "weir", name, box))
            leftover = subprocess.Popen(["sleep", "60"])
            self.cleanups.callback(leftover.wait)
            self.cleanups.callback(leftover.kill)
            for cgroup in glob.glob(os.path.join(cgroup2_mount(), "weir", name, "sandbox-*")):
                with open(os.path.join(cgroup, "cgroup.procs"), "w") as f:
                    f.write(str(leftover.pid))
                with open(os.path.join(cgroup, "cgroup.freeze"), "w") as f:
                    f.write("1")

        began = time.monotonic()
        service = self.service(pool=1, state=state)
        self.figures["restart until ready, s"] = time.monotonic() - began
        self.assertEqual(service.name(), name)
        self.assertIsNotNone(leftover.poll())
        self.assertEqual(set(links) & {link["id"] for link in bpftool("link", "show")}, set())
        self.assertNotIn(box, os.listdir(os.path.join(cgroup2_mount(), "weir", name)))
        self.assertEqual(service.run("print(6*7)")["stdout"], "42\n")

        audit = service.audit(box)
        self.assertEqual((audit["state"], audit["termination"]), ("interrupted", None))
        dripped = sorted(port for _, address, port in flows_of(audit) if address == "198.51.100.1")
        self.assertEqual(dripped, list(range(20000, 20000 + len(dripped))))
        self.assertEqual({f for f in flows_of(audit) if f[1] != "198.51.100.1"}, LOOP_FLOWS)
        self.assertEqual({(e["verdict"], e["reason"]) for e in audit["events"]}, {("denied", "default")})
        self.assertGreater(attempts, 1000)
        self.assertEqual((audit["egress"]["attempts"], sum(e["count"] for e in audit["events"])), (attempts, attempts))
        gaps = [r for r in records(state) if r["type"] == "gap"]
        sweep = [g for g in gaps if g["kind"] == "sweep"]
        self.assertEqual(len(sweep), 1, gaps)
        self.assertEqual((sweep[0]["instance"], sweep[0]["processes"]), (name, 1))
        self.assertGreaterEqual(sweep[0]["sandboxes"], 1)
        self.assertGreater(sweep[0]["events"], 10)
        self.assertGreaterEqual(len(flows_of(audit)), sweep[0]["events"])
        self.assertEqual(len([g for g in gaps if g["kind"] == "interrupted"]), 1, gaps)
        listed = json.loads(weir("audit", "ls", "--json", "--state-dir", state).stdout)["runs"]
        self.assertEqual([r["state"] for r in listed if r["run_id"] == box], ["interrupted"])
        self.assertEqual(service.stop(), 0, service.last_log)
        self.assertEqual(remains(name), [])

    def test_programs_outlive_their_supervisor(self):
        state = self.state_dir()
        service = self.service(pool=1, state=state)
        name, pins, stranger = service.name(), service.pins(), Stranger()
        self.cleanups.callback(stranger.stop)
        self.assertEqual(stranger.ends(), SENT)  # counter-proof: outside it is heard
        self.assertTrue(all(stranger.heard().values()))

        stranger.enter(os.path.join(service.cgroup(), "stranger"))
        self.assertEqual(stranger.ends(), REFUSED)
        stranger.heard()  # what it had sent before

        with killed(service):
            self.assertEqual(stranger.ends(), REFUSED)
            # Nor where nobody was before, and not where a snippet was to be.
            base = os.path.dirname(stranger.cgroup)
            for cgroup in [os.path.join(base, "later")] + glob.glob(os.path.join(base, "sandbox-*")):
                stranger.enter(cgroup)
                self.assertEqual(stranger.ends(), REFUSED)
            time.sleep(1.0)
            self.assertEqual(stranger.ends(), REFUSED)
            self.assertEqual(stranger.heard(), SILENCE)
            # Counter-proof: the pins are what holds the links now. Without them the same loop is heard.
            for path in glob.glob(os.path.join(pins, "link_*")):
                os.unlink(path)
            wait_for(lambda: stranger.ends() == SENT, 5, "packets pass when the links are gone")
            self.assertTrue(all(stranger.heard().values()))

        # Half the pins are missing now; that must not keep the next start from sweeping the rest.
        service = self.service(pool=1, state=state)
        self.assertIsNotNone(stranger.process.poll())
        self.assertFalse(os.path.exists(stranger.cgroup))
        self.assertEqual(service.run("print(6*7)")["stdout"], "42\n")
        self.assertEqual(service.stop(), 0, service.last_log)
        self.assertEqual(remains(name), [])

    def test_detached_links_are_heard_and_nothing_starts_without_them(self):
        service = self.service(pool=1)
        name = service.name()
        _, capture, listener, request = self.loop(service)
        self.assertEqual((capture.packets(), listener.heard), ([], []))
        for link in links_of(service.pins()):
            bpftool("link", "detach", "id", str(link))
        wait_for(lambda: {(k, a, p) for k, a, p, _ in listener.heard} == LOOP_FLOWS, 5, "the loop's packets are heard")
        # The service notices by itself, without a request.
        wait_for(lambda: service.request("GET", "/readyz", token=None).status == 503, 5, "/readyz says so")
        # Neither the sandbox that was warm already nor a new one: there is nothing to prove a policy with.
        for _ in range(3):
            answer = service.execute("print('ran')", timeout_s=5)
            self.assertEqual(answer.status, 500, answer)
            error = answer.json()["error"]
            self.assertIs(error["ran"], False)
            self.assertIn("layer policy", error["message"])
        self.assertEqual(service.request("GET", "/readyz", token=None).status, 503)
        self.assertEqual(self.stop_now(service), 0, service.last_log)
        self.assert_no_success(request)
        self.assertEqual(remains(name), [])

    def test_killed_at_any_moment_of_its_start(self):
        state = self.state_dir()
        with self.service(pool=3, state=state) as service:
            name = service.name()
        for ms in (5, 20, 60, 100, 150, 200, 260, 330, 420):
            log = os.path.join(state, "log")
            with open(log, "w") as f:
                process = subprocess.Popen([WEIR, "serve", "--listen", "127.0.0.1:0", "--state-dir", state, "--dev-token", TOKEN], stdout=f, stderr=f)
            time.sleep(ms / 1000 * SLOW)
            own = {identity(p) for p in children(process.pid)} - {None}
            process.kill()
            process.wait()
            wait_for(lambda: not alive(own | in_cgroups(name)), 6, "everything dead after a kill at %d ms" % ms)
        service = self.service(pool=1, state=state)
        self.assertEqual(service.run("print(6*7)")["stdout"], "42\n")
        self.assertEqual(service.stop(), 0, service.last_log)
        self.assertEqual(remains(name), [])

    def test_killed_at_any_moment_of_its_runs(self):
        state = self.state_dir()
        for ms in (0, 8, 25, 60, 120):
            service = self.service(pool=2, state=state)
            name = service.name()
            requests = [self.post(service, LOOP, timeout_s=60) for _ in range(4)]
            time.sleep(ms / 1000 * SLOW)
            everything = in_cgroups(name) | ({identity(p) for p in service.roles.values()} - {None})
            service.kill9()
            wait_for(lambda: not alive(everything | in_cgroups(name)), 6, "everything dead after a kill at %d ms" % ms)
            for request in requests:
                self.assert_no_success(request)
        service = self.service(pool=1, state=state)
        self.assertEqual(service.run("print(6*7)")["stdout"], "42\n")
        runs = json.loads(weir("audit", "ls", "--json", "--limit", "0", "--state-dir", state).stdout)["runs"]
        cut = [r for r in runs if r["state"] != "ended"]
        self.assertEqual({r["state"] for r in cut}, {"interrupted"})
        self.assertEqual([r for r in runs if r["egress"]["allowed"]], [])
        self.assertEqual(service.stop(), 0, service.last_log)
        self.assertEqual(remains(name), [])


class Helpers(Case):
    """SIGKILL of one of the two processes beside the supervisor: the service ends, in order, and says why."""

    def check(self, victim, words):
        service = self.service(pool=1)
        name = service.name()
        _, capture, listener, request = self.loop(service)
        everything = in_cgroups(name) | {identity(p) for p in service.roles.values()}
        os.kill(service.roles[victim], signal.SIGKILL)
        took = wait_for(lambda: service.process.poll() is not None, 8, "the service ends")
        self.assertNotEqual(service.process.returncode, 0)
        self.assert_no_success(request)
        wait_for(lambda: not alive(everything), 2, "its processes are gone")
        self.assertEqual(remains(name), [])
        self.assertEqual((capture.packets(), listener.heard), ([], []))
        self.assertRegex(service.log_text(), words)
        Supervisor.figures["service gone after its %s, s" % victim] = took

    def test_api_killed(self):
        self.check("api", r"the api process ended \(signal 9\)")

    def test_auditor_killed(self):
        self.check("auditor", r"the auditor (is gone|process ended \(signal 9\))")

    def test_collector_killed(self):
        self.check("collector", r"the collector process ended \(signal 9\)")


class Run(Case):
    """`weir run`: five processes, each of which may die first."""

    def start(self, code=LOOP, timeout="20"):
        command = [WEIR, "run", "--timeout", timeout, "-c", code]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.cleanups.callback(process.communicate)
        self.cleanups.callback(process.kill)
        mine = []

        def looping():
            mine[:] = [os.path.basename(p) for p in glob.glob(os.path.join(RUN_DIR, "run-%d-*" % process.pid))]
            boxes = mine and glob.glob(os.path.join(cgroup2_mount(), "weir", mine[0], "sandbox-*", "cgroup.procs"))
            # Init, main and its child.
            return any(len(read_lines(b)) >= 3 for b in boxes)

        wait_for(looping, 10, "the snippet runs")
        roles = {{0: "supervisor", **ROLES}[uid]: pid for pid, uid in children(process.pid).items()}
        self.assertEqual(set(roles), {"supervisor", "api", "auditor", "collector"})
        roles["client"] = roles.pop("api")
        roles["parent"] = process.pid
        return process, mine[0], roles

    def check_kill(self, victim, **how):
        process, name, roles = self.start(**how)
        everything = in_cgroups(name) | {identity(p) for p in roles.values()}
        os.kill(roles[victim], signal.SIGKILL)
        process.wait(30 * SLOW)
        took = wait_for(lambda: not alive(everything | in_cgroups(name)), 2, "every process gone after the %s" % victim)
        Supervisor.figures["weir run gone after its %s, s" % victim] = took
        self.assertNotEqual(process.returncode, 0)
        done = weir("run", "-c", "print(6*7)")
        self.assertEqual((done.returncode, done.stdout), (0, b"42\n"), done.stderr)
        self.assertEqual(remains(name), [])

    def test_parent_killed(self):
        self.check_kill("parent")

    def test_supervisor_killed(self):
        self.check_kill("supervisor")

    def test_client_killed(self):
        self.check_kill("client")

    def test_auditor_killed(self):
        self.check_kill("auditor")

    def test_collector_killed(self):
        # What it would have read is missed only at the end.
        self.check_kill("collector", timeout="2")

    def check_signal(self, number):
        process, name, roles = self.start()
        everything = in_cgroups(name) | {identity(p) for p in roles.values()}
        began = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=30 * SLOW)
        self.assertLess(time.monotonic() - began, 2 * SLOW)
        self.assertEqual((process.returncode, out), (137, b"looping\n"), err)
        self.assertEqual((alive(everything), remains(name)), ([], []))

    def test_sigterm(self):
        self.check_signal(signal.SIGTERM)

    def test_sigint(self):
        self.check_signal(signal.SIGINT)


def read_lines(path):
    try:
        with open(path) as f:
            return f.read().split()
    except OSError:
        return []


class Stop(Case):
    def test_sigterm_drains_within_bounds(self):
        """What ends soon is answered, what does not is cancelled and says so, what waits is sent away; then it is gone."""
        service = self.service(pool=2)
        name = service.name()
        service.wait_warm()
        soon = self.post(service, "import time\ntime.sleep(1)\nprint('done')")
        never = self.post(service, "print('begun', flush=True)\nwhile True: pass", timeout_s=60)
        wait_for(lambda: service.pool()["in_use"] == 2, 10, "both run")
        time.sleep(0.2)
        began = time.monotonic()
        status = service.stop(timeout=30)
        took = time.monotonic() - began
        Supervisor.figures["drain with a run that never ends, s"] = took
        self.assertEqual(status, 0, service.last_log)
        self.assertLess(took, 10 * SLOW)
        answer = soon.result(1)
        self.assertEqual((answer.status, answer.json()["stdout"], answer.json()["exit_code"]), (200, "done\n", 0))
        answer = self.assert_no_success(never)
        if answer and answer.status == 200:
            self.assertEqual(answer.json()["stdout"], "begun\n")
        self.assertEqual(remains(name), [])
        with self.assertRaises(OSError):
            service.request("GET", "/healthz", token=None)

    def test_second_sigterm_does_not_wait(self):
        service = self.service(pool=1)
        name = service.name()
        _, capture, listener, request = self.loop(service)
        began = time.monotonic()
        status = self.stop_now(service)
        self.assertLess(time.monotonic() - began, 3 * SLOW)
        self.assertEqual(status, 0, service.last_log)
        self.assert_no_success(request)
        self.assertEqual((remains(name), capture.packets(), listener.heard), ([], [], []))


class Neighbours(Case):
    def test_two_services_do_not_disturb_each_other(self):
        one, two = self.service(pool=1, state=self.state_dir()), self.service(pool=1)
        self.assertNotEqual(one.name(), two.name())
        run = self.post(two, "import time\ntime.sleep(2.5)\nprint('undisturbed')")
        wait_for(lambda: two.pool()["in_use"] == 1, 10, "the second's run")
        _, capture, listener, request = self.loop(one)
        name = one.name()
        with killed(one):
            wait_for(lambda: not in_cgroups(name), 2, "the first's sandboxes gone")
        self.assert_no_success(request)
        self.assertEqual(two.run("print(6*7)")["stdout"], "42\n")
        # The start of a third, and of the dead one's heir, leave the living one alone.
        with self.service(pool=1):
            self.assertEqual(two.run("print(6*7)")["stdout"], "42\n")
        heir = self.service(pool=1, state=one.state)
        self.assertEqual((heir.name(), heir.run("print(6*7)")["stdout"]), (name, "42\n"))
        self.assertEqual(heir.stop(), 0, heir.last_log)
        self.assertEqual(remains(name), [])
        self.assertEqual(run.result(20 * SLOW).json()["stdout"], "undisturbed\n")
        self.assertEqual(two.stop(), 0, two.last_log)
        self.assertEqual((capture.packets(), listener.heard), ([], []))

    def test_another_states_start_leaves_the_record_to_the_heir(self):
        """It ends what is left of a dead instance, but what the kernel still knows goes into that instance's own record."""
        state, other_state = self.state_dir(), self.state_dir()
        service = self.service(pool=1, state=state)
        name = service.name()
        box, capture, listener, request = self.loop(service)
        os.kill(service.process.pid, signal.SIGSTOP)
        time.sleep(0.3)
        service.kill9()
        other = self.service(pool=1, state=other_state)
        wait_for(lambda: not in_cgroups(name), 2, "the sandboxes gone")
        self.assert_no_success(request)
        self.assertEqual(other.stop(), 0, other.last_log)
        self.assertEqual([r for r in records(other_state) if r["run_id"] == box], [])
        service = self.service(pool=1, state=state)
        self.assertGreater(len(service.audit(box)["events"]), len(LOOP_FLOWS) + 10)
        self.assertEqual(service.stop(), 0, service.last_log)
        self.assertEqual((remains(name), capture.packets(), listener.heard), ([], [], []))

    def test_second_on_the_same_state_is_refused(self):
        state = self.state_dir()
        first = self.service(pool=1, state=state)
        box, capture, listener, request = self.loop(first)
        links = links_of(first.pins())
        with self.assertRaises(RuntimeError) as refused:
            Service(pool=1, state=state)
        self.assertIn("another weir already runs on this state directory", str(refused.exception))
        # The first goes on: its run, its record, its kernel objects.
        self.assertEqual(links_of(first.pins()), links)
        self.assertEqual(first.run("print(6*7)")["stdout"], "42\n")
        self.assertFalse(request.done())
        self.assertEqual(first.audit(box)["state"], "running")
        self.assertEqual([r for r in records(state) if r["type"] == "gap"], [])
        self.assertEqual(self.stop_now(first), 0, first.last_log)
        self.assertEqual((capture.packets(), listener.heard), ([], []))


class Uninstall(Case):
    def others(self):
        """Instances that are alive on this host and not ours."""
        found = []
        for lock in glob.glob(os.path.join(RUN_DIR, "*", "lock")):
            with contextlib.suppress(OSError), open(lock) as f:
                try:
                    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    found.append(lock)
        return found

    def skip_beside_others(self, left):
        """On a host where others use Weir as well, this test has to wait for its turn; in the test run it is alone."""
        if left and self.others():
            self.skipTest("other instances of Weir are running on this host: %r" % self.others())

    def uninstall_alone(self, state):
        deadline = time.monotonic() + 10 * SLOW
        while True:
            done = weir("uninstall", "--state-dir", state)
            if done.returncode == 0 or b"are running" not in done.stderr or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        self.skip_beside_others(done.returncode)
        return done

    def test_uninstall(self):
        state = self.state_dir()
        service = self.service(pool=1, state=state)
        name = service.name()
        _, capture, listener, request = self.loop(service)
        links = links_of(service.pins())
        done = weir("uninstall", "--state-dir", state)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"instance\(s\) of Weir are running; stop them first")
        self.assertIn(", pid %d, state directory %s: kill it" % (service.process.pid, os.path.realpath(state)), done.stderr.decode())
        self.assertEqual((links_of(service.pins()), request.done()), (links, False))
        self.assertEqual(service.run("print(6*7)")["stdout"], "42\n")

        # One that was killed: uninstall is what tidies up after it. Its registry goes along.
        with killed(service):
            wait_for(lambda: not in_cgroups(name), 2, "the sandboxes gone")
        self.assert_no_success(request)
        registry = [os.path.join(state, n) for n in ("agents.json", "images.json", ".agents.json.new", "images/%s/app.py" % ("ab" * 32))]
        os.makedirs(os.path.dirname(registry[-1]))
        for path in registry:
            open(path, "w").close()
        done = self.uninstall_alone(state)
        self.assertEqual(done.returncode, 0, done.stderr)
        places = [RUN_DIR, PIN_DIR, os.path.join(state, "audit"), os.path.join(state, "images")] + registry + [os.path.join(m, "weir") for m in cgroup_mounts()]
        left = [p for p in places if os.path.exists(p)]
        self.skip_beside_others(left)
        self.assertEqual(left, [])
        self.assertEqual(set(links) & {link["id"] for link in bpftool("link", "show")}, set())
        self.assertEqual((capture.packets(), listener.heard), ([], []))
        # Again, with nothing there; and from nothing, as on the first day.
        self.assertEqual(weir("uninstall", "--state-dir", state).returncode, 0)
        self.assertEqual(weir("run", "-c", "print(6*7)").stdout, b"42\n")


if __name__ == "__main__":
    unittest.main()
