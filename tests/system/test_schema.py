# SPDX-License-Identifier: Apache-2.0
"""policies/schema.json and the parser agree: on what is shipped, and on a table of good and bad documents.

The schema is walked by the few lines below, which know just the keywords it uses; where Python's jsonschema is installed it is
asked as well, so that those lines are right too. The parser is asked by `weir policy check`.
"""
import copy
import glob
import json
import os
import re
import subprocess
import tempfile
import unittest

from lib import TOP, WEIR

POLICIES = os.path.join(TOP, "policies")
NOT_POLICIES = ("schema.json", "groups.json")


# ---- the schema ----

def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool}[name])


def same(a, b):
    return a == b and isinstance(a, bool) == isinstance(b, bool)


class Schema:
    ANNOTATIONS = {"$schema", "$defs", "title", "description", "default"}

    def __init__(self, root):
        self.root = root

    def ok(self, value, schema=None):
        schema = self.root if schema is None else schema
        for keyword, arg in schema.items():
            if keyword in self.ANNOTATIONS or keyword in ("then",):
                continue
            check = getattr(self, "on_" + keyword.replace("$", ""), None)
            if check is None:
                raise NotImplementedError("keyword %s" % keyword)
            if not check(value, arg, schema):
                return False
        return True

    def on_ref(self, value, arg, schema):
        target = self.root
        for part in arg[2:].split("/"):
            target = target[part]
        return self.ok(value, target)

    def on_type(self, value, arg, schema):
        return is_type(value, arg)

    def on_enum(self, value, arg, schema):
        return any(same(value, a) for a in arg)

    def on_const(self, value, arg, schema):
        return same(value, arg)

    def on_pattern(self, value, arg, schema):
        return not isinstance(value, str) or re.search(arg.replace("$", r"\Z"), value) is not None

    def on_minimum(self, value, arg, schema):
        return not is_type(value, "integer") or value >= arg

    def on_maximum(self, value, arg, schema):
        return not is_type(value, "integer") or value <= arg

    def on_minItems(self, value, arg, schema):
        return not isinstance(value, list) or len(value) >= arg

    def on_maxItems(self, value, arg, schema):
        return not isinstance(value, list) or len(value) <= arg

    def on_items(self, value, arg, schema):
        return not isinstance(value, list) or all(self.ok(v, arg) for v in value)

    def on_required(self, value, arg, schema):
        return not isinstance(value, dict) or all(k in value for k in arg)

    def on_properties(self, value, arg, schema):
        return not isinstance(value, dict) or all(self.ok(value[k], s) for k, s in arg.items() if k in value)

    def on_additionalProperties(self, value, arg, schema):
        assert arg is False
        return not isinstance(value, dict) or set(value) <= set(schema["properties"])

    def on_anyOf(self, value, arg, schema):
        return any(self.ok(value, s) for s in arg)

    def on_oneOf(self, value, arg, schema):
        return sum(self.ok(value, s) for s in arg) == 1

    def on_not(self, value, arg, schema):
        return not self.ok(value, arg)

    def on_if(self, value, arg, schema):
        return not self.ok(value, arg) or self.ok(value, schema["then"])


# ---- the table ----

BASE = {"name": "x", "default": "deny"}
RULE = {"verdict": "allow", "to": "10.0.0.0/8"}


def doc(**more):
    return {**BASE, **more}


def rule(**more):
    return doc(rules=[{**RULE, **more}])


def entry(**more):
    return doc(syscalls=[{"names": ["ptrace"], **more}])


GOOD = [
    doc(), doc(default="allow"), doc(description=""), doc(mode="enforce"), doc(mode="monitor"), doc(rules=[]), doc(name="a.B-9_"), doc(name="a" * 63),
    *(doc(loopback=w) for w in ("rules", "deny", "self")), *(doc(inbound=w, listen=w) for w in ("deny", "allow")),
    *(rule(to=t) for t in ("any", "10.0.0.1", "0.0.0.0/0", "::/0", "::", "fe80::/10", "::ffff:10.0.0.1", "64:ff9b::1.2.3.4/128", "@private", "@metadata", "@special-purpose", "@host",
                           "@resolver", ["any"], ["10.0.0.0/8", "@host", "2001:db8::/32"], ["@host", "@host"])),
    *(rule(protocol=p) for p in ("tcp", "udp", "icmp", "icmpv6", "sctp", "dccp", "udplite", "igmp", "gre", "esp", "ah", 0, 255, ["tcp", 17, "tcp"], list(range(16)))),
    *(rule(protocol=p, ports=443) for p in ("tcp", "udp", "sctp", "dccp", "udplite", 6, 17, 33, 132, 136, ["tcp", "udp", 136])),
    *(rule(protocol="tcp", ports=p) for p in (0, 65535, "0-65535", "80-80", [443, "8000-8999"], list(range(32)))),
    rule(name="resolver"), doc(rules=[RULE] * 1024),
    doc(nat64_prefixes=[]), doc(nat64_prefixes=["2001:db%d::/%d" % (n, n) for n in (32, 40, 48, 56, 64, 96)]), doc(nat64_prefixes=["2001:db8:%d::/96" % n for n in range(8)]),
    doc(packets={}), doc(packets={"ipv4_options": "allow", "routing_headers": "deny", "fragments": "allow"}),
    doc(sockets={}), doc(sockets={"families": ["unix", "inet", "inet6", "netlink", "packet", "vsock"], "types": ["stream", "dgram", "seqpacket", "raw"],
                                  "protocols": ["tcp", "udp", "icmp", "udplite", "sctp", "dccp", "mptcp"]}), doc(sockets={"families": [], "types": ["raw", "raw"], "protocols": []}),
    doc(syscalls=[]), entry(), entry(action="errno"), entry(action="kill"), entry(errno="ENOSYS"), entry(errno=1), entry(errno=4095), entry(action="errno", errno="EPERM"),
    entry(names=["@debug", "mount"]), entry(names=["_sysctl", "umount2"]),
    doc(limits={}), doc(limits={"memory_bytes": 1 << 20, "cpu_percent": 1, "processes": 1, "open_files": 1, "datagram_sockets": 1}),
    doc(limits={"memory_bytes": 1 << 50, "cpu_percent": 102400, "processes": 4194304, "open_files": 1 << 20, "datagram_sockets": 65536}),
    doc(audit={}), doc(audit={"allowed": True}), doc(audit={"allowed": False}),
]

BAD = [
    [], None, "deny", 7, {}, {"name": "x"}, {"default": "deny"},
    *(doc(name=n) for n in ("", "a b", "-x", ".x", "a/b", "é", "a" * 64, 1, None, "x\n")),
    *(doc(default=d) for d in ("Deny", "", None, False, ["deny"])), doc(description=3), doc(mode="watch"), doc(mode=None), doc(loopback="allow"), doc(inbound=True), doc(listen="self"),
    doc(unknown=1), doc(Name="x"), doc(rule=[]), doc(rules={}), doc(rules=[7]), doc(rules=[{}]), doc(rules=[{"verdict": "deny"}]), doc(rules=[{"to": "any"}]), doc(rules=[RULE] * 1025),
    rule(verdict="drop"), rule(verdict=0), rule(more=1), rule(port=53), rule(name="a b"), rule(name=1),
    *(rule(to=t) for t in ("", [], 7, None, {}, "all", "@", "@privat", "private", "example.com", "10.0.0.0/33", "10/8", "10.0.0.0/8 ", "10.0.0.0/08", "::/129", "::/008", "[::1]", "fe80::1%eth0",
                           "10.0.0.1:80", ["10.0.0.0/8", 1], [["any"]])),
    *(rule(protocol=p) for p in ("any", "TCP", "6", "", 256, -1, [], None, True, ["tcp", "x"], list(range(17)))),
    rule(ports=53), *(rule(protocol=p, ports=53) for p in ("icmp", "gre", 0, 1, ["tcp", "icmp"])),
    *(rule(protocol="tcp", ports=p) for p in ("443", "", "1-", "-1", "1 - 2", "1-2-3", "a-b", 65536, -1, [], None, True, [True], ["1"], list(range(33)))),
    *(doc(nat64_prefixes=n) for n in ("64:ff9b::/96", [1], ["10.0.0.0/8"], ["2001:db8::/33"], ["2001:db8::"], ["2001:db8::/128"], ["2001:db8::/96"] * 9)),
    doc(packets=[]), doc(packets={"options": "deny"}), doc(packets={"fragments": True}), doc(packets={"fragments": "yes"}),
    doc(sockets=[]), doc(sockets={"domains": []}), doc(sockets={"families": "unix"}), doc(sockets={"families": ["ipv4"]}), doc(sockets={"types": [1]}), doc(sockets={"protocols": ["igmp"]}),
    doc(syscalls={}), doc(syscalls=["ptrace"]), doc(syscalls=[{}]), entry(names=[]), entry(names="ptrace"), entry(names=[""]), entry(names=["@"]), entry(names=["a b"]), entry(names=["Ptrace"]),
    entry(names=["@a_b"]), entry(names=[5]), entry(names=["a" * 64]), entry(action="log"), entry(errno="eperm"), entry(errno=""), entry(errno=0), entry(errno=4096), entry(errno=None),
    entry(action="kill", errno="EPERM"), entry(more=1), entry(names=["bpf"] * 257),
    doc(limits=[]), doc(limits={"memory": 1}), doc(limits={"memory_bytes": (1 << 20) - 1}), doc(limits={"memory_bytes": (1 << 50) + 1}), doc(limits={"memory_bytes": "1G"}),
    *(doc(limits={k: v}) for k in ("cpu_percent", "processes", "open_files", "datagram_sockets") for v in (0, -1, 1 << 31, "1", None, True)),
    doc(audit=True), doc(audit={"allowed": "false"}), doc(audit={"allowed": 0}), doc(audit={"denied": True}),
]

# What a schema can't say, and where the parser says it. 1.0 is a whole number to JSON Schema.
ONLY_PARSER = [
    (rule(to="10.0.0.1/8"), "/rules/0/to"), (rule(to="010.0.0.1"), "/rules/0/to"), (rule(to="256.0.0.0"), "/rules/0/to"), (rule(to="1::2::3"), "/rules/0/to"), (rule(to=":::"), "/rules/0/to"),
    (rule(to="1:2"), "/rules/0/to"), (rule(protocol="tcp", ports="9-8"), "/rules/0/ports"), (rule(protocol="tcp", ports=[1, "1-65536"]), "/rules/0/ports/1"),
    (doc(rules=[{**RULE, "name": "a"}, RULE, {**RULE, "name": "a"}]), "/rules/2/name"), (doc(rules=[RULE, {**RULE, "name": "rule-1"}]), "/rules/1/name"),
    (doc(rules=[{**RULE, "to": ["@host"] * 5000}] * 2 + [RULE]), "/rules/2/to"),
    (doc(nat64_prefixes=["2001:db8::1/96"]), "/nat64_prefixes/0"), (doc(nat64_prefixes=["2001:db8:0:0:100::/96"]), "/nat64_prefixes/0"),
    (entry(errno="EFOO"), "/syscalls/0/errno"), (entry(names=["ptracee"]), "/syscalls/0/names/0"), (entry(names=["mount", "@nothing"]), "/syscalls/0/names/1"),
    (doc(syscalls=[{"names": ["bpf"] * 200}, {"names": ["bpf"] * 57}]), "/syscalls/1/names/56"),
]
ONLY_PARSER_TEXT = [
    ('{"name":"x","default":"deny","limits":{"processes":1.0}}', "/limits/processes"),
    ('{"name":"x","default":"deny","rules":[{"verdict":"deny","to":"any","protocol":6.0}]}', "/rules/0/protocol"),
]


class SchemaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(POLICIES, "schema.json")) as f:
            cls.root = json.load(f)
        cls.schema = Schema(cls.root)
        try:
            import jsonschema
            cls.library = jsonschema.Draft202012Validator(cls.root)
            jsonschema.Draft202012Validator.check_schema(cls.root)
        except (ImportError, AttributeError):
            cls.library = None

    def check(self, texts):
        """What `weir policy check` says of each: None, or (where, message)."""
        with tempfile.TemporaryDirectory() as d:
            paths = [os.path.join(d, "%d.json" % i) for i in range(len(texts))]
            for path, text in zip(paths, texts):
                with open(path, "w") as f:
                    f.write(text)
            done = subprocess.run([WEIR, "policy", "check", "--json", *paths], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        said = json.loads(done.stdout)
        self.assertEqual([os.path.basename(s["file"]) for s in said], [os.path.basename(p) for p in paths])
        return [None if s["ok"] else (s["error"]["where"], s["error"]["message"]) for s in said]

    def valid(self, document):
        mine = self.schema.ok(document)
        # The library takes "$" as Python does, which also means "before a last newline"; a schema's "$" does not.
        if self.library and "\\n" not in json.dumps(document):
            self.assertEqual(mine, self.library.is_valid(document), document)
        return mine

    def test_shipped(self):
        paths = [p for p in glob.glob(POLICIES + "/*.json") if os.path.basename(p) not in NOT_POLICIES] + glob.glob(TOP + "/tests/policies/*.json")
        self.assertGreaterEqual(len(paths), 5)
        for path in paths:
            with open(path) as f:
                text = f.read()
            self.assertTrue(self.valid(json.loads(text)), path)
            self.assertEqual(self.check([text]), [None], path)

    def test_good(self):
        for document, said in zip(GOOD, self.check([json.dumps(d) for d in GOOD])):
            self.assertTrue(self.valid(document), document)
            self.assertIsNone(said, document)

    def test_bad(self):
        for document, said in zip(BAD, self.check([json.dumps(d) for d in BAD])):
            self.assertFalse(self.valid(document), document)
            self.assertIsNotNone(said, document)

    def test_only_parser(self):
        texts = [(json.dumps(d), where) for d, where in ONLY_PARSER] + ONLY_PARSER_TEXT
        for document, _ in ONLY_PARSER:
            self.assertTrue(self.valid(document), document)
        for (text, where), said in zip(texts, self.check([t for t, _ in texts])):
            self.assertIsNotNone(said, text)
            self.assertEqual(said[0], where, said)

    def test_every_key(self):
        """Each key of the schema is one that the parser knows, and at its place none is that the schema does not have."""
        def objects(schema, path):
            for name, sub in schema.get("properties", {}).items():
                target = self.root["$defs"][sub["$ref"].rpartition("/")[2]] if "$ref" in sub else sub
                if target.get("type") == "object":
                    yield path + (name,), target
                    yield from objects(target, path + (name,))
                elif target.get("type") == "array" and "$ref" in target["items"] and "properties" in self.root["$defs"][target["items"]["$ref"].rpartition("/")[2]]:
                    item = self.root["$defs"][target["items"]["$ref"].rpartition("/")[2]]
                    yield path + (name, 0), item

        places = [((), self.root), *objects(self.root, ())]
        self.assertEqual(len(places), 7)  # the policy, a rule, packets, sockets, an entry of syscalls, limits, audit
        texts, expected = [], []
        for path, schema in places:
            document = copy.deepcopy(BASE)
            at = document
            for i, part in enumerate(path):
                child = [{}] if i + 1 < len(path) and path[i + 1] == 0 else {}
                if part == 0:
                    at = at[0]
                    continue
                at[part] = child
                at = at[part]
            at["zzz"] = 1
            texts.append(json.dumps(document))
            expected.append(("/" + "/".join(map(str, path + ("zzz",))), ", ".join(schema["properties"])))
        for (where, keys), said in zip(expected, self.check(texts)):
            self.assertEqual(said[0], where)
            self.assertEqual(said[1].rpartition("its keys are ")[2], keys)


if __name__ == "__main__":
    unittest.main()
