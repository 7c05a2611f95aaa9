# SPDX-License-Identifier: Apache-2.0
"""Every known way around a network policy, tried under `weir exec` in the fake internet, layer by layer.

The whole table runs once without Weir, where everything arrives, and once under each policy of POLICIES; what a row expects
under one is in the row. So each layer is seen to refuse, and each attempt is seen to get through when its layer is gone.
"""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

import vector_rows
from internet import MNT, VECTOR, Ears, Internet, in_netns
from lib import SLOW, HostState
from vector_rows import BASE, EVERY_SOCKET, NOT_PRODUCED, POLICIES, PORT, RULES, Seen, Told, told

# What a socket() says that this kernel does not have: nothing to refuse here.
ABSENT = {"socket EPROTONOSUPPORT", "socket ESOCKTNOSUPPORT", "socket EAFNOSUPPORT"}
GROUPS = ("224.0.0.251", "ff02::fb", *("239.1.2.%d" % i for i in range(3, 12)))
LOOPBACK_PORTS = tuple(range(9001, 9009))


def how_it_ended(result):
    step, how = result["steps"][-1]
    return "ok" if all(h == "ok" for _, h in result["steps"]) else "%s %s" % (step, how)


def run_rows(rows, run):
    """Tries rows (number -> row) by run(command, text); number -> result."""
    lines = ["v%03d %s %s %d %s" % (i, r.way, r.to, r.port, r.other or r.word) for i, r in rows.items()]
    done = run([VECTOR, "-"], "\n".join(lines) + "\n")
    if done.returncode or done.stderr.strip():
        raise AssertionError("vector ended with %d: %s" % (done.returncode, done.stderr))
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return {int(r["label"][1:]): r for r in results}


def events_of(record):
    """The audit's events as Told."""
    found = []
    for e in record.events:
        decode = e.get("decode")
        found.append(Told(e["verdict"], e["reason"], e["rule_name"], e["hook"], e["protocol"], e["address"], e["port"], e["count"],
                          e.get("decode_kind"), decode[1] if decode else None, e["dns_name"]))
    return found


def is_same(want, got):
    """None in a count or in `inner` means whatever."""
    return all(w == g or (f in ("count", "inner") and w is None) for f, w, g in zip(Told._fields, want, got))


class Vectors(unittest.TestCase):
    """The table."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if not os.path.exists(VECTOR):
            raise AssertionError("no build/progs/vector: make progs")
        cls.internet = Internet()
        cls.ears = cls.internet.ears()
        # On the client itself: the kernel keeps a copy of what goes to a group or to all.
        cls.near = cls.internet.add(Ears(cls.internet.client.pid, (*LOOPBACK_PORTS, PORT), LOOPBACK_PORTS, groups=GROUPS))
        cls.internet.put("world", "")
        cls.internet.nsenter(cls.internet.client, ["mount", "--bind", "/proc/%d/ns/net" % cls.internet.world.pid, MNT + "/world"],
                             mounts=True)
        cls.rows = dict(enumerate(vector_rows.all_rows()))
        cls.absent = {}  # row number -> how it ended without Weir
        cls.without = cls.try_all(cls.rows, cls.internet.run)
        for i, row in cls.rows.items():
            if how_it_ended(cls.without[0][i]) in ABSENT and not how_it_ended(cls.without[0][i]) == row.runs.get("no rules",
                                                                                                                 Seen(None, None,
                                                                                                                      None)).end:
                cls.absent[i] = how_it_ended(cls.without[0][i])

    @classmethod
    def tearDownClass(cls):
        cls.internet.close()

    @classmethod
    def try_all(cls, rows, run):
        """(results, packets that arrived, what listeners heard) of one round."""
        cls.internet.arrived(0)
        cls.ears.heard.clear()
        cls.near.heard.clear()
        results = run_rows(rows, lambda command, text: run(command, input=text))
        return results, cls.internet.arrived(0.2), cls.ears.heard + cls.near.heard

    def hits(self, i, row, packets, heard):
        """Whatever there is of this row anywhere it must not be."""
        mark = b"weir v%03d" % i
        return [p for p in packets if (p.to in row.wire and p.port in (row.port, None))
                or (mark in p.data and p.to not in row.elsewhere)] + [
            h for h in heard if (h.address in row.wire and h.port == row.port) or (mark in h.data and h.address not in row.elsewhere)]

    def check(self, policy, rows, round_, record=None):
        """Ends, arrivals and records of one round, against what the rows say under `policy`."""
        results, packets, heard = round_
        wrong = []
        events = events_of(record) if record else []
        claimed = []
        for i, row in rows.items():
            want = row.runs[policy]
            end = how_it_ended(results[i])
            if end != want.end:
                wrong.append("%s: ended with %s, not %s: %r" % (row.label, end, want.end, results[i]["steps"]))
            hits = self.hits(i, row, packets, heard)
            if bool(hits) != want.arrives:
                wrong.append("%s: %s" % (row.label, "nothing arrived" if want.arrives else "arrived: %r" % hits[:2]))
            if record is None or want.told is None:
                continue
            for t in want.told:
                found = [e for e in events if is_same(t, e)]
                claimed += found
                if len(found) != 1:
                    near = [e for e in events if e.address == t.address]
                    wrong.append("%s: audit should have\n  %r\nand has of it\n  %s" % (row.label, t, "\n  ".join(map(repr, near))))
        if record is not None and all(r.runs[policy].told is not None for r in rows.values()):
            wrong += ["not explained by any row: %r" % (e,) for e in events if e not in claimed]
        if wrong:
            self.fail("\n" + "\n".join(wrong))

    def under(self, policy):
        rows = {i: r for i, r in self.rows.items() if policy in r.runs and i not in self.absent}
        record = []

        def run(command, input):
            done, r = self.internet.weir_exec(POLICIES[policy], command, "--quiet", "--keep-caps", "net_raw", input=input)
            record.append(r)
            return done

        round_ = self.try_all(rows, run)
        self.check(policy, rows, round_, record[0])
        return rows, record[0]

    def test_1_without_weir_everything_arrives(self):
        results, packets, heard = self.without
        wrong = []
        for i, row in self.rows.items():
            end = how_it_ended(results[i])
            if i in self.absent or row.way == "udp_connect_unspec":
                continue
            if not row.twin and end in {s.end for s in row.runs.values() if s.end != "ok"}:
                wrong.append("%s: ends with %s anyway" % (row.label, end))
            if row.number == 26 and not [h for h in heard if h.address in row.wire]:
                wrong.append("%s: not heard on the client itself" % row.label)
            if any(s.arrives for s in row.runs.values()) and not self.hits(i, row, packets, heard):
                wrong.append("%s: does not arrive anyway: %r" % (row.label, results[i]["steps"]))
        if wrong:
            self.fail("\n" + "\n".join(wrong))

    def test_2_whole_policy(self):
        rows, record = self.under("whole")
        self.assertGreater(len(rows), 150)
        egress = record.run["egress"]
        self.assertEqual((egress["lost"], egress["exact"]), (0, True))

    def test_3_socket_filter_taken_away(self):
        self.under("no socket filter")

    def test_4_packet_checks_taken_away(self):
        self.under("no packet checks")

    def test_5_rules_taken_away(self):
        self.under("no rules")

    def test_6_what_could_not_be_tried(self):
        """Lists it; and what is listed as absent must be the kernel's own lack."""
        lines = ["%2d %s: %s" % row for row in NOT_PRODUCED]
        lines += ["%2d %s: this kernel answers %s" % (self.rows[i].number, self.rows[i].label, end) for i,
                  end in sorted(self.absent.items())]
        print("\n".join("          not produced here: " + line for line in lines), flush=True)
        covered = {r.number for i, r in self.rows.items() if i not in self.absent}
        self.assertGreaterEqual(covered, {1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 15, 18, 22, 23, 24, 25, 26, 27, 31, 32, 33, 34, 35, 37})


class Apart(unittest.TestCase):
    """Ways out that need somebody else's help, or a moment: each on its own."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.internet = Internet()
        cls.ears = cls.internet.ears()

    @classmethod
    def tearDownClass(cls):
        cls.internet.close()

    def setUp(self):
        self.internet.arrived(0)
        self.ears.heard.clear()

    def try_one(self, policy, way, to, word="", options=(), **kw):
        """One try under a policy (None: without Weir): (steps, packets to `to` or with its mark, events)."""
        command = [VECTOR, "one", way, to, str(PORT)] + ([word] if word else [])
        events = []
        if policy is None:
            done = self.internet.run(command, **kw)
        else:
            done, record = self.internet.weir_exec(policy, command, "--quiet", *options, **kw)
            events = events_of(record)
        self.assertEqual(done.returncode, 0, done.stderr)
        arrived = [p for p in self.internet.arrived() if p.to == to or b"weir one" in p.data]
        return json.loads(done.stdout)["steps"], arrived, events

    def start(self, policy, way, to, word="", options=(), **kw):
        command = [VECTOR, "one", way, to, str(PORT)] + ([word] if word else [])
        command = self.internet.command(self.internet.exec_command(policy, command, "--quiet", *options) if policy else command)
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)

    # -- 19: sockets that are older than the policy --

    def swapped(self, way, to):
        """Opens under a policy that allows, swaps it for one that does not, sends again: (steps, events, heard later)."""
        policy = {"name": "early", "default": "allow"}
        process = self.start(policy, way, to)
        try:
            self.assertEqual(process.stderr.readline(), b"open\n")
            self.assertTrue(self.internet.arrived())
            before = sum(len(h.data) for h in self.ears.heard)
            self.internet.put("early.json", dict(policy, rules=[r for r in RULES if r["name"] == "forbidden"]))
            self.reload(process)
            out, err = process.communicate(b"go\n", 20 * SLOW)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(process.returncode, 0, err)
        record = self.internet.record()
        after = self.internet.arrived()
        return json.loads(out)["steps"], record, after, sum(len(h.data) for h in self.ears.heard) - before

    def reload(self, process):
        """SIGHUP, and a moment; what has been swapped shows in the record's policy_changes."""
        os.kill(process.pid, signal.SIGHUP)  # nsenter has become weir
        time.sleep(0.3 * SLOW)

    def test_19_datagram_socket_older_than_the_policy(self):
        steps, record, after, more = self.swapped("early_udp", "10.66.1.1")
        self.assertEqual(steps[-1], ["send later", "EPERM"])
        self.assertEqual((after, more), ([], 0))
        self.assertIn(told("denied", "rule", "forbidden", "egress", "udp", "10.66.1.1"), events_of(record))

    def test_19_stream_older_than_the_policy(self):
        steps, record, after, more = self.swapped("early_tcp", "10.66.1.2")
        self.assertEqual(steps[-1], ["send later", "ok"])
        self.assertEqual(([p for p in after if b"late" in p.data], more), ([], 0))
        denied = [e for e in events_of(record) if e.verdict == "denied"]
        self.assertEqual({(e.reason, e.rule, e.hook, e.protocol, e.address, e.port) for e in denied},
                         {("rule", "forbidden", "egress", "tcp", "10.66.1.2", PORT)})

    def test_19_without_the_swap_both_go_on(self):
        for way, to in (("early_udp", "10.66.1.3"), ("early_tcp", "10.66.1.4")):
            process = self.start({"name": "early", "default": "allow"}, way, to)
            self.assertEqual(process.stderr.readline(), b"open\n")
            self.internet.arrived()
            out, _ = process.communicate(b"go\n", 20 * SLOW)
            self.assertEqual(json.loads(out)["steps"][-1], ["send later", "ok"])
            self.assertTrue(self.internet.arrived(), way)

    def test_19_what_a_stream_left_behind(self):
        """The command is gone, its unsent data is not: nobody lets it out."""
        self.swapped("early_tcp_orphan", "10.66.1.5")
        began = time.monotonic()
        while time.monotonic() < began + 2.5:  # resent after 0.2 s, 0.4 s, 0.8 s ..
            time.sleep(0.1)
            self.assertNotIn(b"late", b"".join(h.data for h in self.ears.heard))

    # -- 20, 21: sockets that somebody else made --

    def stranger(self, kind=socket.SOCK_DGRAM):
        """A socket of the client's namespace, made by this process: in a cgroup that no policy governs."""
        return in_netns(self.internet.client.pid, lambda: socket.socket(socket.AF_INET, kind))

    def test_20_inherited_descriptor(self):
        with self.stranger() as s:
            os.set_inheritable(s.fileno(), True)
            steps, arrived, _ = self.try_one(None, "inherited_other", "10.66.2.1", pass_fds=[s.fileno()])
            self.assertEqual((steps, bool(arrived)), ([["sendto", "ok"]], True))
            steps, arrived, _ = self.try_one(BASE, "inherited_other", "10.66.2.2", pass_fds=[s.fileno()])
            self.assertEqual((steps, arrived), ([["find", "ENOENT"]], []))

    def test_20_a_socket_as_standard_input(self):
        """It would be whose it was; so the command does not start."""
        command = [VECTOR, "one", "inherited", "10.66.2.5", str(PORT)]
        with self.stranger() as s:
            subprocess.run(self.internet.command(command), stdin=s, stdout=subprocess.DEVNULL, check=True)
            self.assertTrue(self.internet.arrived())
            done = subprocess.run(self.internet.command(self.internet.exec_command(BASE, command)), stdin=s, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stdout, self.internet.arrived()), (125, "", []))
            self.assertIn("socket", done.stderr)

    def donate(self, path):
        """Hands a stranger's socket to whoever connects."""
        server = socket.socket(socket.AF_UNIX)
        server.bind(self.internet.path(path))
        server.listen(1)
        gift = self.stranger()

        def serve():
            with server, gift:
                c, _ = server.accept()
                with c:
                    socket.send_fds(c, [b"x"], [gift.fileno()])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        return thread

    def test_21_handed_over_by_a_process_outside(self):
        """Not held without LSM hooks, and written down as such: what is sent is the giver's doing. See DESIGN.md."""
        self.donate("donor")
        steps, arrived, events = self.try_one(BASE, "scm", "10.66.2.6", MNT + "/donor")
        self.assertEqual((steps[-1], bool(arrived), events), (["sendto", "ok"], True, []))

    def test_21_taken_out_of_another_process(self):
        """pidfd_getfd() is refused; without Weir it is how to get any socket of the same user."""
        with self.stranger() as s:
            word = "%d:%d" % (os.getpid(), s.fileno())
            steps, arrived, _ = self.try_one(None, "pidfd_getfd", "10.66.2.3", word)
            self.assertEqual((steps[-1], bool(arrived)), (["sendto", "ok"], True))
            steps, arrived, _ = self.try_one(BASE, "pidfd_getfd", "10.66.2.4", word)
            self.assertEqual((steps[-1], arrived), (["pidfd_getfd", "EPERM"], []))

    # -- 8: subflows that the kernel opens by itself --

    def test_8_mptcp_subflow_to_an_address_the_peer_names(self):
        self.internet.nsenter(self.internet.world, ["ip", "mptcp", "limits", "set", "subflow", "4", "add_addr_accepted", "4"])
        self.internet.nsenter(self.internet.world, ["ip", "mptcp", "endpoint", "add", "10.66.3.1", "signal"])
        self.internet.ip("mptcp limits set subflow 4 add_addr_accepted 4")
        try:
            wide = dict(BASE, sockets=EVERY_SOCKET)
            for policy, arrives in ((None, True), (wide, False), (dict(wide, rules=[]), True)):
                self.setUp()
                done = self.internet.run([VECTOR, "one", "mptcp_join", "93.184.3.1", str(PORT)]) if policy is None else None
                events = []
                if policy is not None:
                    done, record = self.internet.weir_exec(policy, [VECTOR, "one", "mptcp_join", "93.184.3.1", str(PORT)], "--quiet")
                    events = events_of(record)
                self.assertEqual(json.loads(done.stdout)["steps"][-1], ["send", "ok"])
                arrived = self.internet.arrived()
                self.assertTrue([p for p in arrived if p.to == "93.184.3.1"])
                self.assertEqual(bool([p for p in arrived if p.to == "10.66.3.1"]), arrives, policy)
                if policy is wide:
                    denied = [e for e in events if e.address == "10.66.3.1"]
                    self.assertEqual({(e.verdict, e.rule, e.protocol, e.hook in ("connect4", "egress")) for e in denied},
                                     {("denied", "forbidden", "tcp", True)})
        finally:
            self.internet.nsenter(self.internet.world, ["ip", "mptcp", "endpoint", "flush"])

    # -- 14, 28 --

    def test_14_unix_sockets_not_in_the_policy(self):
        server = in_netns(self.internet.client.pid, lambda: socket.socket(socket.AF_UNIX))
        with server:
            server.bind(self.internet.path("stream"))
            server.listen(4)
            steps, _, _ = self.try_one(BASE, "unix", "0.0.0.0", MNT + "/stream")
            self.assertEqual(steps[-1], ["send", "ok"])
            only_inet = dict(BASE, sockets={"families": ["inet", "inet6"], "types": ["stream", "dgram"], "protocols": ["tcp", "udp"]})
            steps, _, _ = self.try_one(only_inet, "unix", "0.0.0.0", MNT + "/stream")
            self.assertEqual(steps, [["socket", "EAFNOSUPPORT"]])

    def call_in(self, policy, port):
        """A server under a policy, called from the internet: (its steps, what the caller got, events)."""
        command = [VECTOR, "one", "accept", "10.244.1.5", str(port)]
        process = subprocess.Popen(self.internet.command(self.internet.exec_command(policy, command, "--quiet")), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        got = None
        try:
            if process.stderr.readline() == b"listening\n":
                with in_netns(self.internet.world.pid, lambda: socket.socket()) as s:
                    s.settimeout(0.8)
                    s.bind(("10.66.4.4", 0))  # whom the rules forbid
                    try:
                        s.connect(("10.244.1.5", port))
                        got = s.recv(100)
                    except OSError as e:
                        got = type(e).__name__
            out, err = process.communicate(timeout=20 * SLOW)
        finally:
            process.kill()
            process.wait()
        return json.loads(out)["steps"], got, events_of(self.internet.record())

    def test_28_connections_from_outside(self):
        steps, got, events = self.call_in(dict(BASE, name="in"), 9101)
        self.assertEqual((steps[-1], got), (["accept", "EAGAIN"], "TimeoutError"))
        self.assertEqual({(e.verdict, e.reason, e.rule, e.hook, e.protocol, e.address) for e in events},
                         {("denied", "inbound", None, "ingress", "tcp", "10.66.4.4")})
        # Taken in, it is answered, whoever it is.
        steps, got, events = self.call_in(dict(BASE, name="in", inbound="allow"), 9102)
        self.assertEqual((steps[-1], got), (["send", "ok"], b"weir one"))
        self.assertEqual([e for e in events if e.verdict == "denied"], [])

    def test_28_listening_refused(self):
        steps, got, _ = self.call_in(dict(BASE, name="in", listen="deny", inbound="allow"), 9103)
        self.assertEqual((steps[-1], got), (["listen", "EACCES"], None))

    # -- 27: this host by no address --

    def test_27_no_address_means_the_one_the_socket_has(self):
        """The call says 0.0.0.0, which the policy takes for loopback; the packet says what it really is."""
        own = dict(BASE, rules=[{"name": "own", "verdict": "deny", "to": ["10.244.1.5", "fd00:244::5"]}])
        near = Ears(self.internet.client.pid, (PORT,), (PORT,))
        try:
            for to, source in (("0.0.0.0", "10.244.1.5"), ("::", "fd00:244::5")):
                for way, denied in (("tcp_bound", ["connect", "ETIMEDOUT"]), ("udp_bound", ["sendto", "EPERM"])):
                    near.heard.clear()
                    steps, _, _ = self.try_one(None, way, to, source)
                    if to == "::" and not [h for h in near.heard if h.address == source]:
                        continue  # IPv6 goes to ::1, whatever the socket has
                    self.assertEqual((steps[-1][1], [h.address for h in near.heard]), ("ok", [source]))
                    near.heard.clear()
                    steps, _, events = self.try_one(own, way, to, source)
                    self.assertEqual((steps[-1], near.heard), (denied, []))
                    self.assertEqual([(e.address, e.rule, e.hook) for e in events if e.verdict == "denied"], [(source, "own", "egress")])
        finally:
            near.close()

    # -- 36: out of the cgroup --

    def test_36_leaving_the_cgroup(self):
        with open("/proc/self/mountinfo") as f:
            root = next(line.split()[4] for line in f if " - cgroup2 " in line) + "/cgroup.procs"
        steps, arrived, _ = self.try_one(None, "leave_cgroup", "10.66.5.1", root)
        self.assertEqual((steps[-1], bool(arrived)), (["sendto", "ok"], True))
        steps, arrived, _ = self.try_one(BASE, "leave_cgroup", "10.66.5.2", root)
        self.assertIn(steps[-1], (["open", "EROFS"], ["open", "EACCES"], ["write", "EPERM"]))
        self.assertEqual(arrived, [])


class Leftovers(unittest.TestCase):
    def test_nothing_stays(self):
        for _ in range(3):  # somebody else may be at work on this host
            before = HostState()
            with Internet() as internet:
                internet.ears()
                internet.weir_exec(BASE, ["true"], "--quiet")
            left = before.difference(HostState())
            if not left:
                return
        self.fail("left behind: %r" % left)

    def test_a_test_that_dies_leaves_nothing(self):
        """The namespaces, and a command under way in them, end with whoever made them."""
        code = """
import os, signal, sys
sys.path.insert(0, %r)
from internet import Internet
n = Internet()
n.ears()
print(n.world.pid, n.client.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
        done = subprocess.run([sys.executable, "-c", code % os.path.dirname(os.path.abspath(__file__))], stdout=subprocess.PIPE)
        self.assertEqual(done.returncode, -signal.SIGKILL)
        holders = done.stdout.split()
        self.assertEqual(len(holders), 2)
        deadline = time.monotonic() + 5 * SLOW
        while any(os.path.exists("/proc/%s/ns/net" % p.decode()) for p in holders):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
