# SPDX-License-Identifier: Apache-2.0
"""`weir attach`, `weir detach`, `weir status`: what they take, what they say, and what they leave.

Whether a policy holds is the matter of tests/containers; here it is looked at where it can be seen that something was attached.
"""
import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
import unittest

from attached import ALLOWED, DENIED, KEYS, NOBODY, POLICY, Apart, AttachedCase, Cgroup, Folder, Network, Workload
from lib import SLOW, TOP, WEIR, cgroup_mounts

ID = re.compile(r"attached-[a-z0-9]{10}")
NOT_WRITTEN = "events are not being written: counters and enforcement go on; start `weir serve --policy-only`"
CGPROG = os.path.join(TOP, "build", "progs", "cgprog")
DOCKER = "docker/%s" % ("ab" * 32)


def setUpModule():
    global apart, network, folder, policy
    apart, network, folder = Apart(), Network(), Folder()
    AttachedCase.apart = apart
    policy = folder.put("policy.json", POLICY)


def tearDownModule():
    network.close()
    apart.close()
    folder.close()


class Case(AttachedCase):
    def workload(self, path="app", **kw):
        self.cgroup.make(path)
        w = Workload(self.cgroup.full(path), network, **kw)
        self.addCleanup(w.stop)
        return w

    def attach(self, path="app", *options, with_policy=None):
        return apart.json("attach", "--policy", with_policy or policy, "--cgroup", self.cgroup.make(path), *options)

    def status(self, expect=0):
        return {a["id"]: a for a in apart.json("status", expect=expect)["attachments"]}


class Arguments(unittest.TestCase):
    """Each mistake: exit 2, nothing on standard output, one line that names the option and what to give instead."""

    ROWS = (
        ("attach", (), "on what? --cgroup DIR"),
        ("attach", ("--policy", "tool-call"), "on what? --cgroup DIR"),
        ("attach", ("--pid", "1"), "which policy? --policy FILE"),
        ("attach", ("--policy", "tool-call", "--pid", "1", "--cgroup", "/x"), "--pid and --cgroup: one target at a time"),
        ("attach", ("--policy", "tool-call", "--pid", "1", "--pid", "2"), "--pid and --pid: one target at a time"),
        ("attach", ("--policy", "tool-call", "--parent", "/x", "--unknown", "deny"), "--parent takes no --policy"),
        ("attach", ("--parent", "/x"), "--unknown deny or --unknown allow"),
        ("attach", ("--parent", "/x", "--unknown", "maybe"), '--unknown: "maybe" is none of deny, allow'),
        ("attach", ("--parent", "/x", "--unknown", "deny", "--unknown", "deny"), "--unknown: given twice"),
        ("attach", ("--parent", "/x", "--unknown", "deny", "--resolver", "10.0.0.1"), "--resolver: only with --policy"),
        ("attach", ("--parent", "/x", "--unknown", "deny", "--force"), "--force: only with --policy"),
        ("attach", ("--parent", "/x", "--unknown", "deny", "--require-full"), "--require-full: only with --policy"),
        ("attach", ("--policy", "tool-call", "--pid", "1", "--unknown", "deny"), "--unknown: only with --parent DIR"),
        ("attach", ("--policy", "tool-call", "--pid", "1", "--force", "--require-full"), "--force and --require-full"),
        ("attach", ("--policy", "tool-call", "--policy", "tool-call", "--pid", "1"), "--policy: given twice"),
        ("attach", ("--policy", "", "--pid", "1"), "--policy is empty: give a file, or the name of a shipped policy"),
        ("attach", ("--policy", "tool-call", "--pid", "0"), '--pid: "0" is no process id: give a number from 1 on, or self'),
        ("attach", ("--policy", "tool-call", "--pid", "-1"), '--pid: "-1" is no process id'),
        ("attach", ("--policy", "tool-call", "--pid", "01"), '--pid: "01" is no process id'),
        ("attach", ("--policy", "tool-call", "--pid", "1x"), '--pid: "1x" is no process id'),
        ("attach", ("--policy", "tool-call", "--pid", "4194305"), '--pid: "4194305" is no process id'),
        ("attach", ("--policy", "tool-call", "--pid", "99999999999999999999"), "is no process id"),
        ("attach", ("--policy", "tool-call", "--pid", ""), "--pid is empty: give a process id, or self"),
        ("attach", ("--policy", "tool-call", "--cgroup", ""), "--cgroup is empty: give a directory"),
        ("attach", ("--policy", "tool-call", "--cgroup", "/" + 512 * "x"), "--cgroup: at most 511 bytes"),
        ("attach", ("--policy", "tool-call", "--container", ""), "--container is empty: give a container's id"),
        ("attach", ("--policy", "tool-call", "--container", "web"), '--container: "web"'),
        ("attach", ("--policy", "tool-call", "--pod", ""), "--pod is empty: give a pod's UID"),
        ("attach", ("--policy", "tool-call", "--pod", "web-0"), '--pod: "web-0"'),
        ("attach", ("--policy", "tool-call", "--pid", "1", "--resolver", "dns"), '--resolver: "dns" is no IPv4 or IPv6 address'),
        ("attach", ("--policy", "tool-call", "--pid", "1", "--resolver", "10.0.0.1/8"), '--resolver: "10.0.0.1/8" is no address of one name server'),
        ("attach", ("--policy", "tool-call", "--pid", "1", "--resolver", ""), "--resolver is empty: give a name server's address"),
        ("attach", ("--policy", "tool-call", "--pid", "1") + 4 * ("--resolver", "10.0.0.1"), "--resolver: at most 3"),
        ("attach", ("--policy", "tool-call", "2558f007e1d2"), 'no argument "2558f007e1d2" is taken: name it by an option, such as --container 2558f007e1d2'),
        ("attach", ("tool-call", "2558f007e1d2"), "such as --policy tool-call --container 2558f007e1d2"),
        ("attach", ("2558f007e1d2", "./egress.json"), "such as --policy ./egress.json --container 2558f007e1d2"),
        ("attach", ("tool-call", "6f3d2c1b-0a99-4e88-8d77-665544332211"), "such as --policy tool-call --pod 6f3d2c1b-0a99-4e88-8d77-665544332211"),
        ("attach", ("/etc/web.json", "/system.slice"), "such as --policy /etc/web.json --cgroup /system.slice"),
        ("attach", ("tool-call", "--pid", "812"), "such as --policy tool-call\n"),
        ("attach", ("--policy", "tool-call", "web"), "the target by --container ID, --pod UID, --pid N or --cgroup DIR"),
        ("attach", ("--nonsense",), "--nonsense"),
        ("detach", (), "off what? --cgroup DIR"),
        ("detach", ("--all", "--id", "attached-abcdefghij"), "--id and --all: one at a time"),
        ("detach", ("--all", "--pid", "1"), "--pid and --all: one at a time"),
        ("detach", ("--id", "attached-abcdefghij", "--pid", "1"), "--pid and --id: one at a time"),
        ("detach", ("--id", "../../etc"), '--id: "../../etc" is no id of an attachment'),
        ("detach", ("--id", "attached-abcdefghi"), "is no id of an attachment"),
        ("detach", ("--id", ""), "--id is empty"),
        ("detach", ("attached-abcdefghij",), "such as --id attached-abcdefghij"),
        ("detach", ("2558f007e1d2",), "such as --container 2558f007e1d2"),
        ("detach", ("ab" * 32,), "such as --container " + "ab" * 32),
        ("detach", ("812",), "such as --pid 812"),
        ("detach", ("web",), "name it by an option: --container ID, --pod UID"),
        ("detach", ("--pid", "x"), '--pid: "x" is no process id'),
        ("detach", ("--policy", "tool-call"), "--policy"),
        ("status", ("--nonsense",), "--nonsense"),
        ("status", ("",), "ID is empty"),
    )

    def test_each_is_told_with_its_mend(self):
        for command, args, words in self.ROWS:
            with self.subTest(command=command, args=args):
                done = apart.weir(command, *args)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(words, done.stderr)
                self.assertTrue(done.stderr.startswith("weir %s: " % command), done.stderr)
                self.assertNotIn("\033", done.stderr)

    def test_without_root(self):
        program = shutil.copy(WEIR, folder.path)
        for command, args in (("attach", ("--policy", "tool-call", "--pid", "1")), ("detach", ("--all",)), ("status", ()), ("status", ("--json",))):
            with self.subTest(command=command, args=args):
                done = apart.weir(command, *args, binary=program, before=("setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"))
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (125, "", 1), done.stderr)
                self.assertRegex(done.stderr, r"^weir: this needs root: .*\(try sudo\)\n$")

    def test_manual_help_and_completion_name_the_same(self):
        with open(os.path.join(TOP, "docs", "completion", "weir.bash")) as f:
            completion = f.read()
        for command in ("attach", "detach", "status", "oci-hook"):
            with self.subTest(command=command):
                with open(os.path.join(TOP, "docs", "man", "weir-%s.1" % command)) as f:
                    manual = f.read()
                done = apart.weir(command, "--help")
                self.assertEqual((done.returncode, apart.weir(command, "-h").stdout), (0, done.stdout))
                helped = set(re.findall(r"^ +(?:-\S, +)?(--[a-z][a-z-]*)", done.stdout, re.M))
                self.assertEqual(set("-" + o for o in re.findall(r"(?:\.It |, )Fl (-[a-z][a-z-]*)", manual)), helped - {"--help", "--usage"})
                offered = self.offered(command, "--")
                self.assertEqual(offered, helped)
                self.assertIn(command, re.search(r"^\t'\'\) words='(.*)'$|^\t''\) words='(serve .*)' ;;$", completion, re.M).group(0))

    def offered(self, *words):
        """What the completion offers for the last word."""
        script = 'source %s; COMP_WORDS=(weir "$@"); COMP_CWORD=$#; _weir; printf "%%s\\n" "${COMPREPLY[@]}"' % os.path.join(TOP, "docs", "completion", "weir.bash")
        done = subprocess.run(["bash", "-c", script, "bash", *words], stdout=subprocess.PIPE, check=True, text=True)
        return set(done.stdout.split())

    def test_completion_of_values(self):
        self.assertEqual(self.offered("attach", "--unknown", ""), {"deny", "allow"})
        self.assertEqual(self.offered("oci-hook", "--unlabelled", ""), {"skip"})
        self.assertLessEqual({"tool-call", "snippet"}, self.offered("attach", "--policy", ""))
        self.assertLessEqual({"attach", "detach", "status", "oci-hook"}, self.offered(""))


class Attach(Case):
    def test_what_it_prints(self):
        w = self.workload()
        for address in 20 * [DENIED] + 3 * [ALLOWED]:
            self.assertEqual(w.tcp(address), 0)
        done = apart.weir("attach", "--policy", policy, "--cgroup", self.cgroup.full("app"), "--resolver", "10.0.0.53")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        text = done.stdout
        self.assertRegex(text, r"^attached-[a-z0-9]{10}, attached \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n")
        self.assertIn("  on         /%s/app\n" % self.cgroup.name, text)
        self.assertIn("1 process\n", text)
        self.assertRegex(text, r"  policy     test-attach \(%s\), generation 1, SHA-256\s+[0-9a-f]{16}\.\.\.\n" % re.escape(policy))
        self.assertIn("  state      in force\n", text)
        self.assertRegex(text, r"  coverage   (full|partial)\n")
        self.assertIn("  sockets    23 were open when it was attached; 20 denied since\n", text)
        shown = re.findall(r"^ +tcp \S+ -> (\S+):443, established, pid (\d+) \(\S+\): (\w+)$", text, re.M)
        self.assertEqual(shown, 16 * [(DENIED, str(w.pid), "denied")])
        self.assertIn("and 7 more\n", text)
        self.assertRegex(text, r"  tried      from inside, in /%s/app\S*:\s+\d+\s+attempts,\s+\d+\s+denied" % self.cgroup.name)
        self.assertIn("  resolvers  10.0.0.53\n", text)
        self.assertIn(NOT_WRITTEN, text)
        self.assert_narrow(text)

    def test_other_name_servers_are_told(self):
        """The workload's own resolv.conf is the host's here: something to say only when another is given."""
        self.workload()
        with open("/etc/resolv.conf") as f:
            own = re.findall(r"(?m)^nameserver +(\S+)", f.read())[:3]
        command = ("attach", "--policy", policy, "--cgroup", self.cgroup.full("app"))
        self.assertNotIn("resolv.conf", apart.weir(*command).stdout)
        if own:
            self.assertNotIn("resolv.conf", apart.weir(*command, *(x for o in own for x in ("--resolver", o))).stdout)
            text = re.sub(r"\n +", " ", apart.weir(*command, "--resolver", "10.0.0.53").stdout)
            self.assertIn("its own resolv.conf says %s: its word, so @resolver is what was given" % ", ".join(own), text)

    def assert_narrow(self, text, width=100):
        for line in text.splitlines():
            if "events are" not in line:
                self.assertTrue(len(line) <= width or len(line.split()) <= 2, line)
        self.assertNotIn("\033", text)

    def test_allowed_sockets_come_last(self):
        w = self.workload()
        for address in (ALLOWED, DENIED):
            self.assertEqual(w.tcp(address), 0)
        self.assertEqual(w.ask("udp", DENIED, 443), 0)
        done = apart.weir("attach", "--policy", policy, "--pid", str(w.pid))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.rsplit(": ", 1)[1] for line in done.stdout.splitlines() if " -> " in line], ["denied", "denied", "allowed"])
        self.assertIn("found by pid %d\n" % w.pid, done.stdout)

    def test_json_has_all_keys(self):
        w = self.workload()
        self.assertEqual(w.tcp(DENIED), 0)
        a = self.attach("app", "--resolver", "10.0.0.53", "--resolver", "fd00::53")
        self.assertEqual(set(a), KEYS["attachment"] | KEYS["sockets"])
        self.assertRegex(a["id"], "^%s$" % ID.pattern)
        self.assertEqual(set(a["target"]), KEYS["target"])
        self.assertEqual((a["target"]["kind"], a["target"]["cgroup"]), ("cgroup", "/%s/app" % self.cgroup.name))
        self.assertEqual(a["target"]["cgroup_id"], os.stat(self.cgroup.full("app")).st_ino)
        self.assertEqual((a["target"]["container"], a["target"]["pod"], a["target"]["runtime"]), (None, None, None))
        self.assertEqual(set(a["policy"]), KEYS["policy"])
        self.assertEqual((a["policy"]["name"], a["policy"]["source"], a["policy"]["generation"]), ("test-attach", policy, 1))
        for reason in a["reasons"]:
            self.assertEqual(set(reason), KEYS["reason"])
        self.assertEqual((a["state"], a["problems"], a["foreign"], a["foreign_beyond"], a["lost"]), ("in force", [], [], 0, 0))
        self.assertEqual(set(a["counters"]), KEYS["counters"])
        self.assertEqual(set(a["canary"]), KEYS["canary"])
        self.assertTrue(a["canary"]["proven"], a["canary"])
        self.assertEqual(a["resolvers"], ["10.0.0.53", "fd00::53"])
        self.assertRegex(a["attached"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
        self.assertEqual(a["sockets_beyond"], 0)
        (socket,) = a["sockets"]
        self.assertEqual(set(socket), KEYS["socket"])
        self.assertEqual((socket["pid"], socket["protocol"], socket["remote"], socket["state"]), (w.pid, "tcp", DENIED + ":443", "established"))
        self.assertEqual((socket["elsewhere"], socket["verdict"]), (False, "denied"))

        # The same of `status`, without sockets; with its id, with them.
        everything = apart.json("status")
        self.assertEqual(set(everything), {"attachments", "broken", "events"})
        self.assertEqual((set(everything["events"]), everything["broken"]), (KEYS["events"], []))
        self.assertEqual(everything["events"], {"written": False, "by_pid": None, "text": NOT_WRITTEN})
        (listed,) = everything["attachments"]
        self.assertEqual(set(listed), KEYS["attachment"])
        (whole,) = apart.json("status", a["id"])["attachments"]
        self.assertEqual(set(whole), KEYS["attachment"] | KEYS["sockets"])
        self.assertEqual(whole["sockets"], a["sockets"])
        stays = KEYS["attachment"] - {"counters"}
        self.assertEqual({k: listed[k] for k in stays}, {k: a[k] for k in stays})
        # .. and of `detach`.
        (taken,) = apart.json("detach", "--id", a["id"])["detached"]
        self.assertEqual(set(taken), KEYS["attachment"])
        self.assertEqual(apart.json("status")["attachments"], [])

    def test_a_parent(self):
        self.cgroup.make("child")
        a = apart.json("attach", "--parent", self.cgroup.dir, "--unknown", "deny")
        self.assertEqual(set(a), KEYS["attachment"] | KEYS["sockets"] | KEYS["parent"])
        self.assertEqual((a["target"]["kind"], a["policy"], a["unknown"]), ("parent", None, "deny"))
        self.assertEqual(set(a["unknown_counters"]), KEYS["counters"])
        w = self.workload("child")
        self.assertEqual(w.tcp(ALLOWED), errno.EPERM)
        self.assertEqual(self.status()[a["id"]]["unknown_counters"]["denied"], 1)
        row = re.search(r"^%s .*$" % a["id"], apart.weir("status").stdout, re.M).group(0).split()
        self.assertEqual(row, [a["id"], "below", "/" + self.cgroup.name, "unknown:", "deny", "-", "in", "force", "1", "0", "1"])
        text = apart.weir("status", a["id"]).stdout
        self.assertIn("  below      /%s\n" % self.cgroup.name, text)
        self.assertIn("a cgroup directly below it without a policy of its own is denied everything\n", text)
        self.assertNotIn("  coverage ", text)
        self.assertIn("  tried      not from inside: it has no policy of its own\n", text)

        # Let through instead, in place: the id stays.
        again = apart.json("attach", "--parent", self.cgroup.dir, "--unknown", "allow")
        self.assertEqual((again["id"], again["unknown"]), (a["id"], "allow"))
        self.assertEqual(w.tcp(ALLOWED), 0)

        # With a policy of its own it is judged by that; and what it is without it then is said.
        self.attach("child")
        self.assertEqual((w.tcp(DENIED), w.tcp(ALLOWED)), (errno.EPERM, 0))
        done = apart.weir("detach", "--cgroup", self.cgroup.full("child"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("  it is unknown now below /%s, and recorded there\n" % self.cgroup.name, done.stdout)

    def test_again_replaces(self):
        w = self.workload()
        first = self.attach()
        self.assertEqual(w.tcp(DENIED), errno.EPERM)
        other = folder.put("other.json", {**POLICY, "name": "other", "rules": [], "default": "allow"})
        done = apart.weir("attach", "--policy", other, "--cgroup", self.cgroup.full("app"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("The policy that was there has been replaced.\n%s, " % first["id"]), done.stdout)
        self.assertIn("generation 2", done.stdout)
        self.assertEqual(w.tcp(DENIED), 0)
        self.assertEqual(len(self.status()), 1)

    def test_refused_says_what_force_would_mean(self):
        """What could take its policy off again: a container of the host's root."""
        w = self.workload(DOCKER, root=True)
        command = ("attach", "--policy", policy, "--container", "ab" * 32)
        done = apart.weir(*command)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertRegex(done.stderr, r"(?m)^weir: refused: the policy would not hold$")
        self.assertIn("  coverage   refused\n", done.stderr)
        self.assertRegex(done.stderr, r"(?m)^    privileged +\S")
        self.assertIn("Mend: ", done.stderr)
        self.assertRegex(done.stderr, "--force attaches all the same, and what is said above stays open")
        self.assertEqual(self.status(), {})
        self.assertEqual(w.tcp(DENIED), 0)

        as_json = apart.json(*command, expect=1)
        self.assertEqual(set(as_json), KEYS["attachment"])
        self.assertEqual((as_json["id"], as_json["state"], as_json["coverage"], as_json["counters"]), (None, None, "refused", None))
        self.assertIn("privileged", [r["name"] for r in as_json["reasons"]])

        forced = apart.json(*command, "--force")
        self.assertEqual((forced["coverage"], forced["target"]["container"]), ("partial", "ab" * 32))
        self.assertIn("partial (--force was given)", apart.weir("status", forced["id"]).stdout)
        self.assertEqual(w.tcp(DENIED), errno.EPERM)

    def test_require_full(self):
        self.workload()
        asks = folder.put("asks.json", {**POLICY, "limits": {"processes": 5}})
        done = apart.weir("attach", "--policy", asks, "--cgroup", self.cgroup.full("app"), "--require-full")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("weir: refused: it would be covered in part\n", done.stderr)
        self.assertIn("without --require-full it is attached", done.stderr)
        self.assertEqual(self.status(), {})
        a = self.attach(with_policy=asks)
        self.assertEqual(a["coverage"], "partial")
        self.assertIn("limits", [r["name"] for r in a["reasons"]])

    def test_what_fails_is_not_attached(self):
        for options, words in (
            (("--policy", "/nonexistent.json", "--cgroup", self.cgroup.make("app")), "--policy: open /nonexistent.json"),
            (("--policy", policy, "--cgroup", "/%s/none" % self.cgroup.name), "--cgroup: "),
            (("--policy", policy, "--pid", "4194304"), "--pid: "),
            (("--policy", policy, "--container", "cd" * 32), "--container: "),
            (("--policy", policy, "--pod", "6f3d2c1b-0a99-4e88-8d77-665544332211"), "--pod: "),
            (("--policy", folder.put("bad.json", "{"), "--cgroup", self.cgroup.make("app")), "bad.json:"),
        ):
            with self.subTest(options=options):
                done = apart.weir("attach", *options)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (125, "", 1), done.stderr)
                self.assertIn(words, done.stderr)
        self.assertEqual((self.status(), apart.pins()), ({}, []))

    def test_it_says_that_it_waits(self):
        """Somebody else's change holds the lock."""
        self.workload()
        lock = "/proc/%d/root/run/weir/attached/lock" % apart.holder.pid
        self.attach("other")
        with open(lock, "r+") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            p = subprocess.Popen(apart.enter(WEIR, "attach", "--policy", policy, "--cgroup", self.cgroup.full("app")), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            ready, _, _ = select.select([p.stderr], [], [], 5 * SLOW)
            self.assertTrue(ready and p.poll() is None)
        out, err = p.communicate(timeout=30 * SLOW)
        self.assertEqual((p.returncode, err.count("\n")), (0, 1), err)
        self.assertIn("attaching takes a moment", err)

    def foreign(self, path, mode):
        """Somebody else's program on a cgroup."""
        p = subprocess.Popen([CGPROG, self.cgroup.full(path), "egress", mode, "allow", "other_prog"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(p.communicate, timeout=10 * SLOW)
        said = p.stdout.readline().strip()
        self.assertTrue(said.isdigit(), said)
        return int(said)

    @unittest.skipUnless(os.access(CGPROG, os.X_OK), "build/progs/cgprog is not built")
    def test_others_are_named(self):
        self.cgroup.make("above/app")
        prog = self.foreign("above", "multi")
        done = apart.weir("attach", "--policy", policy, "--cgroup", self.cgroup.full("above/app"))
        self.assertEqual(done.returncode, 0, done.stderr)
        line = "  others     other_prog, program %d at egress on /%s/above: both run, and either can deny" % (prog, self.cgroup.name)
        self.assertIn(line, re.sub(r"\n {13}", " ", done.stdout))
        (a,) = self.status().values()
        self.assertEqual(a["foreign"], [{"prog": "other_prog", "hook": "egress", "cgroup": "/%s/above" % self.cgroup.name, "effect": "beside"}])

    @unittest.skipUnless(os.access(CGPROG, os.X_OK), "build/progs/cgprog is not built")
    def test_one_that_refuses_is_named(self):
        self.cgroup.make("app")
        self.foreign("app", "none")
        done = apart.weir("attach", "--policy", policy, "--cgroup", self.cgroup.full("app"))
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (125, "", 1), done.stderr)
        self.assertIn("other_prog", done.stderr)
        self.assertEqual(self.status(), {})

    def test_itself_and_its_helper_are_not_what_it_finds(self):
        """As a unit's ExecStartPre=, in the unit's own cgroup, before the unit's process is there."""
        self.cgroup.make("unit")
        join = 'echo 0 > %s/cgroup.procs && exec "$0" "$@"' % self.cgroup.full("unit")
        done = apart.weir("-c", join, WEIR, "attach", "--policy", policy, "--pid", "self", "--json", binary="sh")
        self.assertEqual(done.returncode, 0, done.stderr)
        a = json.loads(done.stdout)
        self.assertEqual(a["target"]["cgroup"], "/%s/unit" % self.cgroup.name)
        self.assertLessEqual({r["name"] for r in a["reasons"]}, {"empty"})

    def test_hostile_names(self):
        """Names that would drive a terminal, of a process and of a cgroup, are no such thing when they are printed."""
        name = "a\033[2Jb"
        w = self.workload(name)
        self.assertEqual((w.ask("name", b"\033[31mx".hex()), w.tcp(DENIED)), (0, 0))
        a = self.attach(name)
        self.assertEqual((a["target"]["cgroup"], a["sockets"][0]["comm"]), ("/%s/%s" % (self.cgroup.name, name), "?[31mx"))
        for command in (("status",), ("status", a["id"]), ("attach", "--policy", policy, "--cgroup", self.cgroup.full(name)), ("detach", "--id", a["id"])):
            with self.subTest(command=command):
                done = apart.weir(*command)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("\033", done.stdout + done.stderr)
                self.assertIn("a?[2Jb", done.stdout)


class Status(Case):
    def test_nothing(self):
        done = apart.weir("status")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("weir: nothing is attached; `weir attach", done.stderr)

    def test_table(self):
        w = self.workload("app")
        a, long = self.attach(), self.attach("x" * 100 + "/" + "y" * 100)
        c = a["canary"]
        self.assertGreater(c["denied"], 0)
        self.assertEqual((w.tcp(DENIED), w.tcp(ALLOWED)), (errno.EPERM, 0))
        done = apart.weir("status")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0].split(), ["ID", "TARGET", "POLICY", "COVERAGE", "STATE", "DENIED", "WOULD", "ATTEMPTS"])
        self.assertEqual(lines[1].split(), [a["id"], "/%s/app" % self.cgroup.name, "test-attach", a["coverage"], "in", "force", "1", "0", "2"])
        self.assertEqual(lines[2].split()[0], long["id"])
        self.assertRegex(lines[2], r" \.\.\.y+  test-attach ")
        self.assertEqual(lines[-1], NOT_WRITTEN)
        self.assertEqual({len(line) for line in lines[:3]}, {len(lines[0])})
        self.assertLessEqual(len(lines[0]), 120)
        # What was tried from inside is in the kernel's counters, and nowhere else.
        counted = self.status()[a["id"]]["counters"]
        self.assertEqual((counted["attempts"], counted["denied"]), (c["attempts"] + 2, c["denied"] + 1))
        self.assertIn("  counters   2 attempts: 1 denied, 1 allowed; ", apart.weir("status", a["id"]).stdout)

    def test_what_would_be_denied(self):
        w = self.workload("app")
        a = self.attach(with_policy=folder.put("monitor.json", {**POLICY, "mode": "monitor"}))
        self.assertGreater(a["canary"]["would_deny"], 0)
        self.assertEqual([w.tcp(x) for x in (DENIED, DENIED, ALLOWED)], [0, 0, 0])
        row = apart.weir("status").stdout.splitlines()[1].split()
        self.assertEqual(row[-3:], ["0", "2", "3"])
        self.assertIn("  counters   3 attempts: 0 denied, 1 allowed, 2 would have been denied; ", apart.weir("status", a["id"]).stdout)
        self.assertIn("  at the end: 3 attempts, 0 denied, 1 allowed, 2 would have been denied, 0 events lost\n", apart.weir("detach", "--id", a["id"]).stdout)

    def test_drift_is_told(self):
        a = self.attach()
        apart.sh("rm /sys/fs/bpf/weir/attached/%s/$(ls /sys/fs/bpf/weir/attached/%s | grep -m1 connect4)" % (a["id"], a["id"]))
        done = apart.weir("status")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^%s .* drift +\d+ +\d+ +\d+$" % a["id"])
        self.assertRegex(done.stdout, r"(?m)^%s: \S.*: " % a["id"])
        found = self.status(expect=1)[a["id"]]
        self.assertEqual(found["state"], "drift")
        self.assertTrue(found["problems"] and all(set(p) == KEYS["problem"] for p in found["problems"]))
        self.assertEqual(apart.weir("status", a["id"]).returncode, 1)
        # Attached anew it is whole.
        self.attach()
        self.assertEqual([x["state"] for x in self.status().values()], ["in force"])

    def test_gone_is_no_failure_and_is_remembered(self):
        a = self.attach()
        self.cgroup.remove("app")
        done = apart.weir("status")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^%s .* test-attach  - +gone +- +- +-$" % a["id"])
        self.assertEqual(apart.pins(), [])
        self.nothing_is_in_force(a["id"], "gone")

    def nothing_is_in_force(self, name, state):
        """What was found when it was attached is not told as if it held."""
        found = self.status(expect=0 if state == "gone" else 1)[name]
        self.assertEqual((found["state"], found["coverage"], found["counters"]), (state, None, None))
        text = apart.weir("status", name).stdout
        self.assertIn("  state      %s\n" % state, text)
        for label in ("coverage", "tried", "counters"):
            self.assertNotIn("  %s " % label, text)

    def test_recreated_is_a_failure(self):
        a = self.attach()
        self.cgroup.remove("app")
        self.cgroup.make("app")
        done = apart.weir("status")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^%s .* test-attach  - +recreated +- +- +-$" % a["id"])
        self.nothing_is_in_force(a["id"], "recreated")

    def test_unknown_id(self):
        a = self.attach()
        done = apart.weir("status", a["id"], "attached-0000000000")
        self.assertEqual(done.returncode, 1)
        self.assertIn('there is no "attached-0000000000"', done.stderr)
        self.assertIn(a["id"], done.stdout)

    def test_a_damaged_record(self):
        w = self.workload()
        a = self.attach()
        apart.sh("echo '{' > /run/weir/attached/%s/attachment.json" % a["id"])
        done = apart.weir("status")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^%s: its record can't be read: .*; .*`weir detach --id %s` takes it off$" % (a["id"], a["id"]))
        (broken,) = apart.json("status", expect=1)["broken"]
        self.assertEqual((set(broken), broken["id"]), ({"id", "why"}, a["id"]))
        # It is no reason to enforce less.
        self.assertEqual(w.tcp(DENIED), errno.EPERM)
        done = apart.weir("detach", "--id", a["id"])
        self.assertEqual((done.returncode, done.stdout), (0, "detached %s: its record could not be read\n" % a["id"]), done.stderr)
        self.assertEqual(w.tcp(DENIED), 0)

    def test_who_writes_events(self):
        """A service holds a lock with its pid in it; one that was killed leaves the pid and no lock."""
        self.attach()
        path = "/proc/%d/root/run/weir/attached/drain" % apart.holder.pid
        with open(path, "w") as f:
            f.write("%d\n" % os.getpid())
            f.flush()
            fcntl.flock(f, fcntl.LOCK_EX)
            self.assertEqual(apart.weir("status").stdout.splitlines()[-1], "events are written by pid %d" % os.getpid())
            self.assertEqual(apart.json("status")["events"], {"written": True, "by_pid": os.getpid(), "text": "events are written by pid %d" % os.getpid()})
        self.assertEqual(apart.weir("status").stdout.splitlines()[-1], NOT_WRITTEN)
        os.unlink(path)

    def watch(self, *options):
        p = subprocess.Popen(apart.enter(WEIR, "status", "--watch", *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.kill)
        return p

    def test_watch_in_a_pipe(self):
        a = self.attach()
        p = self.watch()
        lines = [p.stdout.readline() for _ in range(5)]
        p.send_signal(signal.SIGINT)
        rest, err = p.communicate(timeout=10 * SLOW)
        self.assertEqual((p.returncode, err), (0, ""))
        self.assertEqual(lines[3], "\n")
        self.assertEqual(lines[0], lines[4])
        self.assertTrue(lines[1].startswith(a["id"]))
        self.assertNotIn("\033", "".join(lines) + rest)

    def test_watch_as_lines_of_json(self):
        a = self.attach()
        p = self.watch("--json")
        looks = [json.loads(p.stdout.readline()) for _ in range(2)]
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=10 * SLOW)
        self.assertEqual([x["attachments"][0]["id"] for x in looks], 2 * [a["id"]])

    def on_terminal(self, *args, columns=100, seconds=3, env=None):
        """What is drawn on a terminal."""
        pid, fd = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, 0x5414, bytes([24, 0, columns, 0, 0, 0, 0, 0]))  # TIOCSWINSZ
            os.execvpe("nsenter", apart.enter(WEIR, *args), {**os.environ, **(env or {})})
        text, deadline = b"", time.monotonic() + seconds * SLOW
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline and select.select([fd], [], [], 0.5)[0] is not None:
                if select.select([fd], [], [], 0)[0]:
                    chunk = os.read(fd, 65536)
                    if not chunk:
                        break
                    text += chunk
                elif b"--watch" not in " ".join(args).encode() and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    break
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        os.close(fd)
        return text.decode()

    def test_terminal(self):
        self.attach("x" * 60)
        plain = os.environ.copy()
        plain.pop("NO_COLOR", None)
        text = self.on_terminal("status", "--watch", env=plain)
        self.assertGreaterEqual(text.count("\033[H\033[2J"), 2)
        self.assertIn("\033[32min force", text)
        self.assertNotIn("\033[3", self.on_terminal("status", env={"NO_COLOR": "1"}))
        # The table is as wide as the terminal, if it can be.
        narrow = re.sub(r"\033\[[0-9;]*m", "", self.on_terminal("status", columns=90, env=plain)).splitlines()
        self.assertLessEqual(max(len(line) for line in narrow[:2]), 90)


class Detach(Case):
    def test_it_says_what_it_took_off(self):
        w = self.workload()
        a = self.attach()
        self.assertGreater(a["canary"]["attempts"], a["canary"]["denied"])
        self.assertEqual((w.tcp(DENIED), w.tcp(ALLOWED)), (errno.EPERM, 0))
        done = apart.weir("detach", "--pid", str(w.pid))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(
            done.stdout,
            "detached %s: /%s/app, policy test-attach\n  at the end: 2 attempts, 1 denied, 1 allowed, 0 events lost\n" % (a["id"], self.cgroup.name),
        )
        self.assertEqual((w.tcp(DENIED), apart.pins()), (0, []))

    def test_nothing_there(self):
        self.cgroup.make("app")
        for options, words in (
            (("--cgroup", self.cgroup.full("app")), "nothing is attached to /%s/app" % self.cgroup.name),
            (("--cgroup", self.cgroup.full("none")), "nothing is attached to it: --cgroup: "),
            (("--pid", "4194304"), "nothing is attached to it: --pid: "),
            (("--container", "cd" * 32), "nothing is attached to it: --container: "),
            (("--id", "attached-0000000000"), "--id: there is no attached-0000000000"),
            (("--all",), "nothing is attached"),
        ):
            with self.subTest(options=options):
                done = apart.weir("detach", *options)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(apart.json("detach", *options, expect=1), {"detached": []})

    def test_gone_by_path_and_by_id(self):
        for by in ("path", "directory", "id"):
            with self.subTest(by=by):
                a = self.attach()
                self.cgroup.remove("app")
                option = {"path": ("--cgroup", "/%s/app/" % self.cgroup.name), "directory": ("--cgroup", self.cgroup.full("app")), "id": ("--id", a["id"])}[by]
                done = apart.weir("detach", *option)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("detached %s: " % a["id"], done.stdout)
                self.assertIn("  its cgroup is gone\n", done.stdout)
                self.assertEqual(self.status(), {})

    def test_gone_container(self):
        self.workload(DOCKER)
        a = apart.json("attach", "--policy", policy, "--container", ("ab" * 32)[:12])
        self.assertEqual((a["target"]["ref"], a["target"]["runtime"]), ("ab" * 32, "docker"))
        self.cgroup.remove(DOCKER)
        done = apart.weir("detach", "--container", ("ab" * 32)[:12])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("detached %s: container abababababab, policy test-attach\n" % a["id"], done.stdout)

    def test_recreated(self):
        a = self.attach()
        self.cgroup.remove("app")
        w = self.workload()
        done = apart.weir("detach", "--cgroup", self.cgroup.full("app"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("detached %s: " % a["id"], done.stdout)
        self.assertIn("  its cgroup was made anew since: nothing of this was on it\n", done.stdout)
        self.assertEqual((self.status(), w.tcp(DENIED)), ({}, 0))

    def test_all(self):
        ids = {self.attach(name)["id"] for name in ("a", "b")} | {apart.json("attach", "--parent", self.cgroup.dir, "--unknown", "allow")["id"]}
        taken = apart.json("detach", "--all")["detached"]
        self.assertEqual({a["id"] for a in taken}, ids)
        self.assertEqual((self.status(), apart.pins()), ({}, []))

    def test_parent_and_policy_are_told_apart(self):
        """One directory can be both: judged itself, and carried for what is below."""
        a, p = self.attach("app"), apart.json("attach", "--parent", self.cgroup.make("app"), "--unknown", "allow")
        self.assertNotEqual(a["id"], p["id"])
        self.assertEqual([x["id"] for x in apart.json("detach", "--parent", self.cgroup.full("app"))["detached"]], [p["id"]])
        self.assertEqual(list(self.status()), [a["id"]])

    def test_what_is_above_is_named(self):
        a = self.attach("pod")
        done = apart.weir("detach", "--cgroup", self.cgroup.make("pod/container"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("%s is above it, on /%s/pod: --id %s takes that off" % (a["id"], self.cgroup.name, a["id"]), done.stderr)
        self.assertEqual(list(self.status()), [a["id"]])


class Host(Case):
    def uninstall(self):
        """With no cgroup in sight but empty ones: what else uses Weir on this host is none of this test's business."""
        hide = " && ".join("mkdir -p %s/%s-hide && mount --bind %s/%s-hide %s" % (m, self.cgroup.name, m, self.cgroup.name, m) for m in cgroup_mounts())
        try:
            return apart.weir(
                "-c", hide + ' && exec "$0" uninstall --state-dir /run/none', WEIR, binary="sh", before=("unshare", "--mount", "--propagation", "private")
            )  # fmt: skip
        finally:
            for mount in cgroup_mounts():
                os.rmdir("%s/%s-hide" % (mount, self.cgroup.name))

    def test_uninstall_takes_nothing_off_while_something_lives(self):
        """It is about to fail: what a live instance looks after is not disarmed before."""
        w = self.workload()
        a = self.attach()
        apart.sh("mkdir /run/weir/alive && echo 1 > /run/weir/alive/lock")
        self.addCleanup(apart.sh, "rm -r /run/weir/alive")
        with open("/proc/%d/root/run/weir/alive/lock" % apart.holder.pid, "r+") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            done = self.uninstall()
        self.assertEqual((done.returncode, done.stdout), (125, ""))
        self.assertIn("1 instance(s) of Weir are running; stop them first", done.stderr)
        self.assertEqual((list(self.status()), w.tcp(DENIED)), ([a["id"]], errno.EPERM))

    def test_uninstall_takes_all_off(self):
        w = self.workload()
        self.attach()
        done = self.uninstall()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("removed: 1 attachment(s), 0 dead instance(s)"), done.stdout)
        self.assertEqual((w.tcp(DENIED), apart.pins()), (0, []))
        self.assertEqual(apart.sh("ls -A /run/weir /sys/fs/bpf/weir 2>/dev/null || true"), "")

    def test_doctor_tries_it(self):
        rows = {r["check"]: r for r in json.loads(apart.weir("doctor", "--json").stdout)["checks"]}
        self.assertEqual(rows["policies attached"]["result"], "PASS", rows["policies attached"])
        self.assertRegex(rows["policies attached"]["text"], "in force on a cgroup of its own; (nobody else|.* of others)")
        self.assertLessEqual(set(apart.sh("ls -A /sys/fs/bpf/weir 2>/dev/null || true").split()), {"attached"})


if __name__ == "__main__":
    unittest.main()
