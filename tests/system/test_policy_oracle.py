# SPDX-License-Identifier: Apache-2.0
"""`weir policy` against a second opinion (tests/oracle) that shares no code with it. Needs no root.

WEIR_PAIRS=N: that many random pairs of policy and destination (default 20,000); WEIR_SEED=N: those of that seed.
"""
import ipaddress
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

from lib import SLOW, TOP, WEIR

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "oracle"))
import generate  # noqa: E402
import oracle  # noqa: E402

FIXED_SEED = 20260401
PER_POLICY = 100
HOST, RESOLVER = "198.18.7.7", "198.18.7.53"


def weir_policy(*args, stdin=""):
    return subprocess.run([WEIR, "policy", *args], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120 * SLOW)


def read_sets(*args):
    done = weir_policy("sets", "--json", *args)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return {name: [row["prefix"] for row in told["rows"]] for name, told in json.loads(done.stdout).items()}


def environment(hosts, resolvers):
    return [w for a in hosts for w in ("--host", a)] + [w for a in resolvers for w in ("--resolver", a)]


def ask(policy, lines, hosts=(HOST,), resolvers=(RESOLVER,)):
    """Weir's answers to destinations: [(verdict, reason, rule, kind)]; or, as text, why the policy is refused."""
    done = weir_policy("explain", policy, "--batch", *environment(hosts, resolvers), stdin="\n".join(lines) + "\n")
    if done.returncode == 2 and not done.stdout:
        return done.stderr
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


def compare_one(job):
    """One random policy and its destinations: (pairs compared, policies too long for Weir, what differs)."""
    seed, sets = job
    rng = random.Random(seed)
    case = generate.Case(rng)
    asked = [case.destination() for _ in range(PER_POLICY)]
    known = dict(sets)
    known["@host"], known["@resolver"] = case.hosts, case.resolvers
    second = oracle.Policy(case.text, known)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(case.text)
        f.flush()
        told = ask(f.name, [line for line, *_ in asked], case.hosts, case.resolvers)
    if isinstance(told, str):
        if "more than 48 pairs" in told and second.most_pairs() > 48:
            return 0, 1, None
        return 0, 0, "seed %d: refused: %s\n%s" % (seed, told, case.text)
    if len(told) != len(asked):
        return 0, 0, "seed %d: %d answers to %d questions\n%s" % (seed, len(told), len(asked), case.text)
    for (line, address, protocol, port, words), got in zip(asked, told):
        expected = second.judge(address, protocol, port, words)
        if got != expected:
            return 0, 0, "seed %d: %s: Weir says %s, the oracle %s\n%s\nhosts %s, resolvers %s" % (seed, line, got, expected, case.text, case.hosts, case.resolvers)
    return len(asked), 0, None


class RandomPairs(unittest.TestCase):
    def compare(self, seed, pairs):
        sets = read_sets()
        jobs = ((seed * 1000003 + i, sets) for i in range(1, 1 + 2 * pairs // PER_POLICY))
        compared = long = 0
        with multiprocessing.Pool(min(4, os.cpu_count() or 1)) as pool:
            for n, too_long, problem in pool.imap_unordered(compare_one, jobs, chunksize=8):
                if problem:
                    pool.terminate()
                    self.fail("base seed %d (WEIR_SEED=%d repeats it): %s" % (seed, seed, problem))
                compared += n
                long += too_long
                if compared >= pairs:
                    pool.terminate()
                    break
        self.assertGreaterEqual(compared, pairs, "%d policies were too long" % long)
        self.assertLess(long, compared // PER_POLICY // 3 + 3, "too many policies that Weir has no room for")
        return compared

    def test_same_answers_fixed_seed(self):
        self.compare(FIXED_SEED, 20000)

    def test_same_answers_new_seed(self):
        seed = int(os.environ.get("WEIR_SEED", random.SystemRandom().randrange(1 << 31)))
        pairs = int(os.environ.get("WEIR_PAIRS", "20000"))
        started = time.monotonic()
        compared = self.compare(seed, pairs)
        print("          %d pairs agree, seed %d, %.1f s" % (compared, seed, time.monotonic() - started), flush=True)


class Boundaries(unittest.TestCase):
    """First, last, one before and one after every row of the fixed sets."""

    @classmethod
    def setUpClass(cls):
        cls.sets = read_sets("--host", HOST, "--resolver", RESOLVER)

    def destinations(self, names):
        for name in names:
            for row in self.sets[name]:
                net = ipaddress.ip_network(row)
                first, last = int(net.network_address), int(net.broadcast_address)
                kind = type(net.network_address)
                for number in (first, last, first - 1, last + 1):
                    if 0 <= number < 1 << net.max_prefixlen:
                        yield kind(number)

    def compare(self, policy, document, addresses):
        second = oracle.Policy(document, self.sets)
        asked = []
        for address in addresses:
            for words in ([], ["packet"]):
                for protocol, number, port in (("tcp", 6, 443), ("udp", 17, 53), ("icmp", 1, None)):
                    text = "[%s]" % address if address.version == 6 else str(address)
                    line = " ".join(["%s://%s%s" % (protocol, text, "" if port is None else ":%d" % port)] + words)
                    asked.append((line, address, number, port or 0, words))
        told = ask(policy, [line for line, *_ in asked])
        self.assertNotIsInstance(told, str, told)
        self.assertEqual(len(told), len(asked))
        verdicts = set()
        for (line, address, number, port, words), got in zip(asked, told):
            self.assertEqual(got, second.judge(address, number, port, words), "%s under %s" % (line, policy))
            verdicts.add(got[0])
        return verdicts

    def test_shipped_policies(self):
        addresses = list(self.destinations(["@private", "@metadata", "@special-purpose"]))
        self.assertGreater(len(addresses), 250)
        for name in ("snippet", "tool-call", "web-client-allowlist", "monitor-only"):
            with self.subTest(name), open(os.path.join(TOP, "policies", name + ".json")) as f:
                self.compare(name, f.read(), addresses)

    def test_each_set_alone(self):
        for name in ("@private", "@metadata", "@special-purpose"):
            for default, verdict in (("allow", "deny"), ("deny", "allow")):
                document = json.dumps({"name": "one", "default": default, "rules": [{"verdict": verdict, "to": name}]})
                with self.subTest(set=name, default=default), tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                    f.write(document)
                    f.flush()
                    verdicts = self.compare(f.name, document, list(self.destinations([name])))
                    self.assertEqual(verdicts, {"allowed", "denied"})

    def test_what_python_calls_not_global_is_denied(self):
        """Python has its own copy of IANA's registries: tool-call lets nothing through that it says is not global."""
        rng = random.Random(FIXED_SEED)
        addresses = [a for a in self.destinations(["@private", "@special-purpose"]) if not a.is_global or a.is_multicast]
        networks = [n for constants in ("_IPv4Constants", "_IPv6Constants") for n in getattr(getattr(ipaddress, constants, None), "_private_networks", [])]
        for net in networks:
            first, last = int(net.network_address), int(net.broadcast_address)
            kind = type(net.network_address)
            addresses += [a for a in (kind(first), kind(last), kind(rng.randint(first, last))) if not a.is_global]
        self.assertGreater(len(addresses), 100)
        told = ask("tool-call", ["tcp://%s:443" % ("[%s]" % a if a.version == 6 else a) for a in addresses])
        self.assertEqual(len(told), len(addresses))
        for address, got in zip(addresses, told):
            self.assertEqual(got[0], "denied", str(address))


class Diff(unittest.TestCase):
    """What `weir policy diff` says holds: destinations in and around the places it names change as it says, and no others."""

    def diff(self, old, new, hosts, resolvers, may_be_long=False):
        done = weir_policy("diff", old, new, "--json", *environment(hosts, resolvers))
        if may_be_long and done.returncode == 2 and "more than 48 pairs" in done.stderr:
            return None
        self.assertIn(done.returncode, (0, 1), done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual(told["same"], done.returncode == 0)
        return told

    @staticmethod
    def parse_networks(told):
        for change in told["changes"]:
            change["networks"] = [(ipaddress.ip_network(to["prefix"]), [ipaddress.ip_network(x) for x in to["except"]]) for to in change["to"]]

    @staticmethod
    def says(told, address, protocol, port, fragment):
        """"reachable", "unreachable" or None: what becomes of a destination as it is written."""
        names = {"ip-proto-%d" % protocol} | {name for name, number in oracle.PROTOCOLS.items() if number == protocol}
        found = None
        for change in told["changes"]:
            if change["carried"]:
                continue
            for prefix, exceptions in change["networks"]:
                if address not in prefix or any(address in x for x in exceptions):
                    continue
                for what in change["what"]:
                    if "protocols" in what and not names & set(what["protocols"]) or names & set(what.get("protocols_except", ())):
                        continue
                    if what["fragments"] != fragment and not (fragment and what["ports"] is None):
                        continue
                    if not fragment and what["ports"] and not what["ports"][0] <= port <= what["ports"][1]:
                        continue
                    if found not in (None, change["becomes"]):
                        raise AssertionError("both ways: %s" % address)
                    found = change["becomes"]
        return found

    def test_exact(self):
        rng = random.Random(int(os.environ.get("WEIR_SEED", FIXED_SEED)))
        sets, changed, total = read_sets(), 0, 0
        for _ in range(100):
            cases = [generate.Case(rng), generate.Case(rng)]
            for other in cases[1].document.get("rules", []):
                if rng.random() < 0.5:
                    cases[0].document["rules"].append(other)
            rng.shuffle(cases[0].document["rules"])
            cases[0].document["rules"] = cases[0].document["rules"][:25]
            for case in cases:
                case.document.pop("mode", None)
                case.document["packets"] = {"fragments": "allow"}
            known = dict(sets)
            known["@host"], known["@resolver"] = cases[0].hosts, cases[0].resolvers
            with tempfile.TemporaryDirectory() as folder:
                files, seconds = [], []
                for i, case in enumerate(cases):
                    files.append(os.path.join(folder, "%d.json" % i))
                    text = json.dumps(case.document)
                    with open(files[-1], "w") as f:
                        f.write(text)
                    seconds.append(oracle.Policy(text, known))
                told = self.diff(*files, cases[0].hosts, cases[0].resolvers, may_be_long=True)
            if told is None:
                self.assertGreater(max(p.most_pairs() for p in seconds), 48)
                continue
            said = json.dumps(told)
            self.parse_networks(told)
            for _ in range(60):
                _, address, protocol, port, words = rng.choice(cases).destination()
                # Only what is written: what an address carries is compared where it is written itself.
                if address.version == 6:
                    address = ipaddress.IPv6Address(int(address)) if not oracle.carried(address, [n for p in seconds for n in p.configured]) else None
                if address is None:
                    continue
                words = [w for w in words if w == "fragment"]
                verdicts = [p.judge(address, protocol, port, words)[0] for p in seconds]
                expected = None if verdicts[0] == verdicts[1] else "reachable" if verdicts[1] == "allowed" else "unreachable"
                got = self.says(told, address, protocol, port, bool(words))
                self.assertEqual(got, expected, "%s %s %s %s: %s\n%s" % (address, protocol, port, words, [json.dumps(c.document) for c in cases], said))
                total += 1
                changed += expected is not None
        self.assertGreater(total, 1000)
        self.assertGreater(changed, total // 10)

    def test_same(self):
        told = self.diff("tool-call", "tool-call", [HOST], [RESOLVER])
        self.assertEqual(told, {"same": True, "changes": [], "settings": []})
        done = weir_policy("diff", "tool-call", "tool-call")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_words(self):
        old = {"name": "a", "default": "deny"}
        new = {"name": "b", "default": "deny", "listen": "deny", "rules": [{"name": "web", "verdict": "allow", "to": "203.0.113.0/24", "protocol": "tcp", "ports": 443}]}
        with tempfile.TemporaryDirectory() as folder:
            for name, document in (("old", old), ("new", new)):
                with open(os.path.join(folder, name), "w") as f:
                    json.dump(document, f)
            done = weir_policy("diff", os.path.join(folder, "old"), os.path.join(folder, "new"))
            back = weir_policy("diff", os.path.join(folder, "new"), os.path.join(folder, "old"))
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines()[:2], ["becomes reachable: tcp 443 to 203.0.113.0/24 (new rule web; was denied by default)", "listen: allow -> deny"])
        self.assertEqual(back.stdout.splitlines()[0], "becomes unreachable: tcp 443 to 203.0.113.0/24 (by default; was allowed by rule web)")

    def test_many_prefixes(self):
        """10,000 prefixes against none: within two seconds, and none of them forgotten."""
        nets = ["%d.%d.%d.0/24" % (11 + i // 62500, i // 250 % 250, i % 250) for i in range(0, 20000, 2)]
        document = {"name": "many", "default": "deny", "rules": [{"verdict": "allow", "to": nets[i : i + 500]} for i in range(0, 10000, 500)]}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(document, f)
            f.flush()
            started = time.monotonic()
            told = self.diff("snippet", f.name, [HOST], [RESOLVER])
            took = time.monotonic() - started
        covered = sum(ipaddress.ip_network(t["prefix"]).num_addresses - sum(ipaddress.ip_network(x).num_addresses for x in t["except"]) for c in told["changes"] for t in c["to"])
        self.assertEqual(covered, 256 * len(set(nets)))
        self.assertLess(took, 2 * SLOW)


class Commands(unittest.TestCase):
    def test_batch_is_fast(self):
        lines = ["tcp://10.%d.%d.%d:443" % (i >> 16 & 255, i >> 8 & 255, i & 255) for i in range(100000)]
        started = time.monotonic()
        told = ask("tool-call", lines)
        took = time.monotonic() - started
        self.assertEqual(len(told), len(lines))
        self.assertEqual({t[0] for t in told}, {"denied"})
        self.assertLess(took, 10 * SLOW, "fewer than 10,000 lines a second")

    def test_batch_goes_on_after_a_bad_line(self):
        done = weir_policy("explain", "tool-call", "--batch", stdin="tcp://1.1.1.1:443\nnonsense\n\ntcp://1.1.1.1:443 sideways\ntcp://1.1.1.1:443\n")
        self.assertEqual(done.returncode, 2)
        self.assertEqual([line.split("\t")[0] for line in done.stdout.splitlines()], ["allowed", "error", "error", "error", "allowed"])

    def test_exit_codes(self):
        for args, code in (
            (("explain", "tool-call", "--to", "tcp://1.1.1.1:443"), 0),
            (("explain", "tool-call", "--to", "tcp://10.1.1.1:443"), 3),
            (("explain", "monitor-only", "--to", "tcp://10.1.1.1:443"), 3),
            (("explain", "tool-call", "--to", "tcp://example.org:443"), 2),
            (("explain", "/nonexistent", "--to", "tcp://1.1.1.1:443"), 2),
            (("explain", "tool-call"), 64),
            (("explain", "--to", "tcp://1.1.1.1:443"), 64),
            (("check", "tool-call", "snippet"), 0),
            (("check", "tool-call", "/nonexistent"), 1),
            (("check",), 64),
            (("diff", "tool-call", "tool-call"), 0),
            (("diff", "tool-call", "snippet"), 1),
            (("diff", "tool-call", "/nonexistent"), 2),
            (("diff", "tool-call"), 64),
            (("nonsense",), 64),
            ((), 64),
            (("--help",), 0),
        ):
            with self.subTest(args):
                self.assertEqual(weir_policy(*args).returncode, code)

    def test_explain_says_all_of_it(self):
        done = weir_policy("explain", "tool-call", "--to", "udp://[64:ff9b::a9fe:a9fe]:53", "--json", *environment([HOST], [RESOLVER]))
        self.assertEqual(done.returncode, 3, done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual((told["verdict"], told["reason"], told["rule"]["name"], told["rule"]["pointer"]), ("denied", "rule", "metadata", "/rules/1"))
        self.assertEqual((told["decode"], told["decode_kind"]), (["64:ff9b::a9fe:a9fe", "169.254.169.254"], "nat64"))
        self.assertEqual((told["prefix"], told["set"]["name"], told["hook"], told["errno"]), ("169.254.169.254", "@metadata", "egress", "EPERM"))
        self.assertIn("AWS", told["set"]["what"])
        self.assertTrue(told["set"]["source"])
        self.assertEqual(told["sets"], {"@host": [HOST], "@resolver": [RESOLVER]})
        text = weir_policy("explain", "tool-call", "--to", "udp://[64:ff9b::a9fe:a9fe]:53", *environment([HOST], [RESOLVER])).stdout
        for part in ("denied    udp://[64:ff9b::a9fe:a9fe]:53", "metadata (/rules/1)", "64:ff9b::a9fe:a9fe -> 169.254.169.254 (nat64)", "@metadata", "EPERM", RESOLVER):
            self.assertIn(part, text)
        self.assertNotIn("\033", text)

    def test_environment_decides(self):
        for resolver, code in (("10.0.0.53", 0), ("10.0.0.54", 3)):
            done = weir_policy("explain", "tool-call", "--to", "udp://10.0.0.53:53", *environment([HOST], [resolver]))
            self.assertEqual(done.returncode, code, done.stdout)
        for host, code in (("8.8.8.8", 3), ("8.8.4.4", 0)):
            done = weir_policy("explain", "tool-call", "--to", "tcp://8.8.8.8:53", *environment([host], [RESOLVER]))
            self.assertEqual(done.returncode, code, done.stdout)

    def test_check_names_the_place(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "p.json")
            for text, place in (
                ('{"name": "x",\n "default" "deny"}', ":2:"),
                ('{"name": "x", "default": "deny", "colour": 1}', ":/colour: "),
                ('{"name": "x", "default": "deny", "rules": [{"verdict": "deny", "to": "10.0.0.1/8"}]}', ":/rules/0/to"),
                ('{"name": "x", "default": "deny", "syscalls": [{"names": ["no_such_call"]}]}', ":/syscalls/0/names/0: "),
            ):
                with open(path, "w") as f:
                    f.write(text)
                done = weir_policy("check", path)
                self.assertEqual(done.returncode, 1)
                self.assertIn(path + place, done.stderr)
                told = json.loads(weir_policy("check", path, "--json").stdout)
                self.assertEqual([t["ok"] for t in told], [False])
                self.assertTrue((path + ":" + told[0]["error"]["where"]).startswith(path + place.rstrip(": ")))

    def test_list_full(self):
        """49 pairs for one address are one too many, and the rule that is too many is named."""
        for count, code in ((48, 0), (49, 1)):
            rules = [{"verdict": "allow", "to": "10.0.0.0/8", "protocol": "tcp", "ports": 2 * i} for i in range(count)]
            with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                json.dump({"name": "x", "default": "deny", "rules": rules}, f)
                f.flush()
                done = weir_policy("check", f.name)
                self.assertEqual(done.returncode, code, done.stderr)
                if code:
                    self.assertIn(f.name + ":/rules/48: more than 48 pairs", done.stderr)
