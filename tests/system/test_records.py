# SPDX-License-Identifier: Apache-2.0
"""What answers and records say of a policy's judgement: the rule by name, the way an address was read, what is not listed."""
import json
import os
import tempfile
import unittest

from lib import Service, weir

CONNECT = """
import socket
for a in %r:
    with socket.socket(socket.AF_INET6 if ":" in a else socket.AF_INET) as s: print(a, s.connect_ex((a, 9)))
"""


def rule(name, place, verdict, **more):
    return dict(more, name=name, to=place, verdict=verdict)


class Policed(unittest.TestCase):
    def start(self, **members):
        members.setdefault("name", "records")
        self.dir = tempfile.TemporaryDirectory(prefix="weir-test-policy-")
        self.addCleanup(self.dir.cleanup)
        self.path = os.path.join(self.dir.name, "p.json")
        with open(self.path, "w") as f:
            json.dump(members, f)
        self.service = Service("--policy", self.path, pool=1)
        self.addCleanup(self.service.stop)

    def connect(self, *addresses):
        answer = self.service.run(CONNECT % (addresses,))
        self.assertEqual(answer["stderr"], "")
        ends = dict(line.split() for line in answer["stdout"].splitlines())
        return {a: int(n) for a, n in ends.items()}, answer, self.service.audit(answer["run_id"])


class Decode(Policed):
    def test_the_path_to_the_address_that_decided(self):
        self.start(default="allow", rules=[rule("inner", "10.0.0.0/8", "deny"), rule("loop", ["127.0.0.0/8", "::1"], "deny")],
                   nat64_prefixes=["2001:db8:64::/96", "2001:db8:48::/48"])  # fmt: skip
        rows = {
            "::ffff:10.1.2.3": ("mapped", "::ffff:10.1.2.3", "10.1.2.3"),
            "::a01:203": ("compatible", "::a01:203", "10.1.2.3"),
            "::ffff:0:a01:203": ("translated", "::ffff:0:a01:203", "10.1.2.3"),
            "64:ff9b::a01:203": ("nat64", "64:ff9b::a01:203", "10.1.2.3"),
            "2002:a01:203::1": ("6to4", "2002:a01:203::1", "10.1.2.3"),
            "2001:0:a01:203::1": ("teredo_server", "2001:0:a01:203::1", "10.1.2.3"),
            "2001:0:808:808::f5fe:fdfc": ("teredo_client", "2001:0:808:808::f5fe:fdfc", "10.1.2.3"),
            "2001:db8:64::a01:203": ("nat64_configured", "2001:db8:64::a01:203", "10.1.2.3"),
            "2001:db8:48:a01:2:300::": ("nat64_configured", "2001:db8:48:a01:2:300::", "10.1.2.3"),
            "2001:db8::5efe:a01:203": ("isatap", "2001:db8::5efe:a01:203", "10.1.2.3"),
            "0.0.0.0": ("unspecified", "0.0.0.0", "127.0.0.1"),
            "::": ("unspecified", "::", "::1"),
        }
        ends, answer, audit = self.connect(*rows, "10.1.2.3", "2001:db8::1")
        self.assertEqual(ends.pop("2001:db8::1"), 111)
        self.assertEqual(set(ends.values()), {1}, ends)
        events = {tuple(e.get("decode") or [e["address"]]): e for e in audit["events"]}
        for kind, outer, inner in rows.values():
            e = events.pop((outer, inner))
            self.assertEqual((e["decode_kind"], e["reason"], e["verdict"]), (kind, "rule", "denied"), e)
            self.assertEqual((e["rule"], e["rule_name"]), (2, "loop") if kind == "unspecified" else (1, "inner"), e)
        self.assertEqual(set(events), {("10.1.2.3",), ("2001:db8::1",)})
        self.assertTrue(all("decode_kind" not in e for e in events.values()))
        self.assertEqual(audit["egress"]["denied"], len(rows) + 1)
        shown = weir("audit", "show", answer["run_id"], "--state-dir", self.service.state)
        self.assertIn(b"rule inner, read as nat64_configured: 2001:db8:64::a01:203 -> 10.1.2.3", shown.stdout)

    def test_what_a_carried_address_allows_changes_nothing(self):
        self.start(default="deny", rules=[rule("inner", "10.0.0.0/8", "allow")])
        ends, _, audit = self.connect("64:ff9b::a01:203", "::ffff:10.1.2.3")
        self.assertEqual(ends, {"64:ff9b::a01:203": 1, "::ffff:10.1.2.3": 111})
        denied = next(e for e in audit["events"] if e["verdict"] == "denied")
        self.assertEqual((denied["reason"], denied["rule"], denied.get("decode_kind")), ("default", None, None))


class Listed(Policed):
    def test_what_the_policy_does_not_list_is_counted_and_not_lost(self):
        self.start(default="allow", audit={"allowed": False}, rules=[rule("documentation", "192.0.2.0/24", "deny")])
        _, answer, audit = self.connect("192.0.2.1", "198.51.100.1", "198.51.100.2")
        egress = answer["egress"]
        self.assertEqual((egress["attempts"], egress["denied"], egress["allowed"], egress["lost"]), (3, 1, 2, 0), egress)
        self.assertEqual([(d["address"], d["rule"], d["reason"]) for d in egress["destinations"]], [("192.0.2.1", "documentation", "rule")])
        self.assertEqual([e["address"] for e in audit["events"]], ["192.0.2.1"])

    def test_monitor_on_the_command_line(self):
        self.start(default="allow", mode="monitor", name="watching", rules=[rule("documentation", "192.0.2.0/24", "deny")])
        _, answer, _ = self.connect("192.0.2.1")
        listed = weir("audit", "ls", "--state-dir", self.service.state).stdout.decode().splitlines()
        self.assertRegex(listed[0], r"ATTEMPTS +DENIED +WOULD +LOST$")
        self.assertRegex(listed[1], r" 1 +0 +1 +0$")
        shown = weir("audit", "show", answer["run_id"], "--state-dir", self.service.state).stdout.decode()
        self.assertIn("1 attempt: 0 denied, 0 allowed, 1 would be denied; 0 lost", shown)
        self.assertIn("rule documentation", shown)
        self.assertRegex(shown, r"policy   watching, generation 1 \([0-9a-f]{16}\)")


class Probes(unittest.TestCase):
    """A sandbox is released when its probes met what the policy says of them, whatever that is."""

    def test_each_mixture(self):
        v4, v6 = "192.0.2.0/24", "2001:db8::/32"
        rows = [
            dict(default="allow"),
            dict(default="deny", rules=[rule("a", v4, "allow")]),
            dict(default="deny", rules=[rule("a", v6, "allow", protocol="tcp")]),
            dict(default="deny", rules=[rule("a", "any", "allow", protocol="udp", ports=9)]),
            dict(default="deny", rules=[rule("a", "any", "allow", protocol="udp", ports=10)]),
            dict(default="allow", rules=[rule("a", v4, "deny", protocol="udp"), rule("b", v6, "deny", protocol="tcp")]),
            dict(default="allow", mode="monitor", rules=[rule("a", [v4, v6], "deny")]),
            dict(default="deny", mode="monitor"),
            dict(default="deny", limits={"datagram_sockets": 1}),
        ]
        for row in rows:
            with self.subTest(row), tempfile.TemporaryDirectory(prefix="weir-test-policy-") as d:
                path = os.path.join(d, "p.json")
                with open(path, "w") as f:
                    json.dump(dict(row, name="probes"), f)
                done = weir("run", "--policy", path, "-c", "print('ran')")
                self.assertEqual((done.returncode, done.stdout), (0, b"ran\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
