# SPDX-License-Identifier: Apache-2.0
"""A policy that is swapped under traffic: every packet is judged by one or the other, whole; and monitor mode, which only counts."""
import collections
import json
import os
import signal
import statistics
import struct
import subprocess
import threading
import time
import unittest

from internet import FLOOD, VECTOR, Internet
from lib import SLOW

A, B = "93.184.1.1", "93.184.1.2"
# Each policy denies it, one by the address as it is written, the other by the address in it: half of each lets it through.
INNER, BOTH = "93.184.77.77", "64:ff9b::5db8:4d4d"
PORT = 9999


def rule(name, verdict, to):
    return {"name": name, "verdict": verdict, "to": to}


ONE = {"name": "swap", "description": "one", "default": "deny", "rules": [
    rule("a", "allow", A), rule("b", "deny", B), rule("outer-one", "deny", "64:ff9b::/96"), rule("inner-one", "allow", INNER)]}
TWO = {"name": "swap", "description": "two", "default": "deny", "rules": [
    rule("a", "deny", A), rule("b", "allow", B), rule("outer-two", "allow", "64:ff9b::/96"), rule("inner-two", "deny", INNER)]}
# What a mixture would be: to show that it would be seen.
MIXED = {"name": "swap", "default": "deny", "rules": [
    rule("a", "allow", A), rule("b", "deny", B), rule("outer-two", "allow", "64:ff9b::/96"), rule("inner-one", "allow", INNER)]}


class Drain(threading.Thread):
    """Takes every datagram of the flood off a wire as it comes: (number, place in the list of addresses)."""

    def __init__(self, wire):
        super().__init__(daemon=True)
        self.wire, self.found, self.stopping = wire, [], False
        self.start()

    def run(self):
        while not self.stopping:
            self.take()
            time.sleep(0.005)
        self.take()

    def take(self):
        s, found = self.wire.socket, self.found
        while True:
            try:
                data = s.recv(256)
            except BlockingIOError:
                return
            # UDP with eight bytes in it.
            if len(data) == 36 and data[9] == 17 or len(data) == 56 and data[6] == 17:
                found.append(struct.unpack("!II", data[-8:]))

    def stop(self):
        self.stopping = True
        self.join(20)
        return self.found


class Swap(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if not os.path.exists(FLOOD):
            raise AssertionError("no build/progs/flood: make progs")
        cls.internet = Internet()
        cls.ears = cls.internet.ears(udp_ports=(PORT,), tcp_ports=(PORT,))

    @classmethod
    def tearDownClass(cls):
        cls.internet.close()

    def setUp(self):
        self.ears.heard.clear()
        self.internet.arrived(0)

    def start(self, policy, command):
        command = self.internet.exec_command(policy, command, "--quiet")
        process = subprocess.Popen(self.internet.command(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        line = process.stderr.readline()
        self.assertEqual(line, "sending\n", line)
        return process

    def swap(self, process, policy):
        """Puts another document where the policy was, whole, and has it read."""
        self.internet.put("next.json", policy)
        os.rename(self.internet.path("next.json"), self.internet.path("swap.json"))
        process.send_signal(signal.SIGHUP)  # nsenter has become weir

    def finish(self, process):
        out, err = process.communicate(timeout=60 * SLOW)
        self.assertEqual((process.returncode, err), (0, ""))
        return json.loads(out.splitlines()[-1]), self.internet.record()

    def flood(self, policy, rate, seconds, addresses, meanwhile=lambda process, found: None):
        """(what the sender counted, record, what arrived in order)."""
        drain = Drain(self.internet.wan)
        try:
            process = self.start(policy, [FLOOD, "udp", str(rate), str(seconds), str(PORT), *addresses])
            meanwhile(process, drain.found)
            counts, record = self.finish(process)
            time.sleep(0.05)
        finally:
            found = drain.stop()
        return counts, record, found

    def check_counts(self, counts, record, found, addresses):
        """Sent is arrived, refused is denied: by address, to the packet."""
        arrived = collections.Counter(addresses[place] for _, place in found)
        self.assertEqual(counts["other"], 0, counts)
        self.assertEqual({a: arrived[a] for a in addresses}, counts["sent"])
        told = collections.Counter()
        for e in record.events:
            told[e["address"], e["verdict"]] += e["count"]
        self.assertEqual({a: told[a, "allowed"] for a in addresses}, counts["sent"])
        self.assertEqual({a: told[a, "denied"] for a in addresses}, counts["refused"])
        egress = record.run["egress"]
        total = sum(counts["sent"].values()), sum(counts["refused"].values())
        self.assertEqual((egress["allowed"], egress["denied"], egress["attempts"], egress["lost"]), (*total, sum(total), 0))

    def test_every_packet_by_one_policy_or_the_other(self):
        swaps, addresses = 50, [A, B, BOTH]
        took = []

        def meanwhile(process, found):
            for i in range(swaps):
                began = time.monotonic()
                self.swap(process, (TWO, ONE)[i % 2])
                while not found or found[-1][1] != (1, 0)[i % 2]:
                    self.assertLess(time.monotonic() - began, 5 * SLOW, "swap %d is not in force" % i)
                    time.sleep(0.002)
                took.append((time.monotonic() - began) * 1000)
                time.sleep(0.02)
            process.terminate()  # the command; it counts and ends

        counts, record, found = self.flood(ONE, 15000, int(60 * SLOW), addresses, meanwhile)
        self.assertEqual(len(took), swaps)
        rate = (sum(counts["sent"].values()) + sum(counts["refused"].values())) / counts["seconds"]
        self.assertGreater(rate, 10000 / SLOW)
        # No half of each: that would have let it through.
        self.assertEqual(counts["sent"][BOTH], 0)
        self.assertEqual([n for n, place in found if place == 2], [])
        self.check_counts(counts, record, found, addresses)

        # One sender, so the packets that arrive come in runs: A's under one policy, B's under the other. Neighbours A, B are
        # judged apart, so at a swap both or neither may pass; never elsewhere.
        self.assertEqual([n for n, _ in found], sorted(n for n, _ in found))
        runs = 1 + sum(1 for (_, p), (_, q) in zip(found, found[1:]) if p != q)
        self.assertEqual(runs, 1 + swaps)
        groups = collections.defaultdict(set)
        for n, place in found:
            groups[n // 3].add(place)
        last = max(groups)
        odd = [g for g in range(last) if groups[g] not in ({0}, {1})]
        self.assertLessEqual(len(odd), swaps)
        self.assertEqual(record.run["policy_changes"][-1]["policy_generation"], 1 + swaps)
        self.assertEqual(len(record.run["policy_changes"]), swaps)
        generations = {(e["policy_generation"], e["rule_name"], e["verdict"]) for e in record.events if e["address"] == BOTH}
        self.assertEqual({(g % 2, r, v) for g, r, v in generations}, {(1, "outer-one", "denied"), (0, "inner-two", "denied")})
        print("          %d swaps at %d packets/s: in force after %.0f ms (median), %.0f ms (worst); %d triples across a boundary"
              % (swaps, rate, statistics.median(took), max(took), len(odd)), flush=True)

    def test_a_mixture_would_be_seen(self):
        addresses = [A, B, BOTH]
        counts, record, found = self.flood(MIXED, 3000, 1, addresses)
        self.assertGreater(counts["sent"][BOTH], 500)
        self.check_counts(counts, record, found, addresses)

    # -- streams --

    def heard(self):
        return sum(len(h.data) for h in self.ears.heard if h.address == A)

    def grows(self, seconds):
        """Bytes that come in within that time."""
        before = self.heard()
        time.sleep(seconds * SLOW)
        return self.heard() - before

    def test_established_stream(self):
        """It stands still from the swap on, and goes on after the next."""
        process = self.start(ONE, [FLOOD, "tcp", str(int(5 * SLOW)), str(PORT), A])
        self.assertGreater(self.grows(0.5), 5000)
        self.swap(process, TWO)
        time.sleep(0.3 * SLOW)
        self.assertEqual(self.grows(1.0), 0)
        stopped_at = self.heard()
        self.internet.arrived(0)
        self.swap(process, ONE)
        deadline = time.monotonic() + 3 * SLOW  # it waits longer after each try
        while self.heard() == stopped_at and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertGreater(self.grows(0.5), 5000)
        counts, record = self.finish(process)
        queued = [line["queued"] for line in counts["steps"]]
        self.assertGreater(max(queued), 20000)  # no progress, as its sender sees it
        self.assertLess(queued[-1], 20000)
        self.assertEqual(self.heard(), counts["bytes"])  # and nothing is missing in the end
        denied = {(e["reason"], e["rule_name"], e["hook"], e["protocol"], e["address"], e["policy_generation"]) for e in record.events
                  if e["verdict"] == "denied"}
        self.assertEqual(denied, {("rule", "a", "egress", "tcp", A, 2)})

    # -- mode: monitor --

    def test_monitor_blocks_nothing_and_counts(self):
        addresses = [A, B, BOTH]
        watch = dict(ONE, mode="monitor")
        counts, record, found = self.flood(watch, 3000, 1, addresses)
        arrived = collections.Counter(addresses[place] for _, place in found)
        self.assertEqual((dict(arrived), counts["refused"], counts["other"]), (counts["sent"], dict.fromkeys(addresses, 0), 0))
        told = {(e["address"], e["verdict"], e["rule_name"]): e["count"] for e in record.events}
        sent = counts["sent"]
        self.assertEqual(told, {(A, "allowed", "a"): sent[A], (B, "would_deny", "b"): sent[B],
                                (BOTH, "would_deny", "outer-one"): sent[BOTH]})
        egress = record.run["egress"]
        self.assertEqual((egress["allowed"], egress["would_deny"], egress["denied"], egress["attempts"]),
                         (sent[A], sent[B] + sent[BOTH], 0, sum(sent.values())))

    def test_monitor_lets_streams_and_odd_sockets_pass(self):
        tries = [("tcp", B, "", "tcp", "connect4"), ("tfo_sendto", "93.184.1.3", "", "tcp", "connect4"),
                 ("mptcp", "93.184.1.4", "", "tcp", "connect4"),
                 ("udplite", "93.184.1.5", "", "udplite", "egress"), ("ping", "93.184.1.6", "", "icmp", "egress"),
                 ("raw_other", "93.184.1.7", "", "ip-proto-253", "egress"),
                 ("udp_lsrr", A, "93.184.1.8", "udp", "egress"), ("udp_rthdr", "2a0b:77::1", "2a0b:77::2", "udp", "egress")]
        text = "".join("m%d %s %s %d %s\n" % (i, way, to, PORT, other) for i, (way, to, other, _, _) in enumerate(tries))
        done, record = self.internet.weir_exec(dict(ONE, mode="monitor"), [VECTOR, "-"], "--quiet", "--keep-caps", "net_raw", input=text)
        results = [json.loads(line)["steps"][-1][1] for line in done.stdout.splitlines()]
        self.assertEqual(results, ["ok"] * len(tries))
        arrived = {p.to for p in self.internet.arrived()}
        wire = [other or to for _, to, other, _, _ in tries]
        self.assertEqual([a for a in wire if a not in arrived], [])
        told = {(e["address"], e["protocol"], e["hook"], e["verdict"], e["count"]) for e in record.events}
        self.assertEqual(told, {(address, protocol, hook, "would_deny", 1) for address, (_, _, _, protocol, hook) in zip(wire, tries)})
        self.assertEqual(record.run["egress"]["would_deny"], len(tries))
