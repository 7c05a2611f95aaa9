# SPDX-License-Identifier: Apache-2.0
"""Tokens: who may do what, from when and until when; and the table they are kept in, whatever became of it."""
import concurrent.futures
import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

from lib import SLOW, WEIR, Service, weir

SLOTS = 4096  # LIMIT_TOKENS
# struct tokens_head and struct token_slot of core/tokens.h
HEAD = struct.Struct("<III244x")
SLOT = struct.Struct("<II32s16s64s64s48sqqq")
MAGIC = 0x4B4F5457
FREE, ACTIVE, REVOKED = 0, 1, 2


def pack_slot(n, word=ACTIVE, text=None, expires=0, revoked=0, created=1000, project=b"demo"):
    digest = hashlib.sha256((text or "token %d" % n).encode()).digest()
    return SLOT.pack(word, 1, digest, b"tok-%08d" % n, project, b"", b"", created, expires, revoked)


def write_table(state, slots, used=None):
    """A table with these slots, and no time of use."""
    with open(os.path.join(state, "tokens"), "wb", opener=private) as f:
        f.write(HEAD.pack(MAGIC, 1, len(slots) if used is None else used) + b"".join(slots))
        f.truncate(HEAD.size + SLOTS * SLOT.size)


def private(path, flags):
    return os.open(path, flags, 0o600)


class Table(unittest.TestCase):
    """`weir token` alone, without a service."""

    def setUp(self):
        self.state = tempfile.mkdtemp(prefix="weir-test-tokens-")
        self.addCleanup(shutil.rmtree, self.state)

    def token(self, command, *options, status=0):
        done = weir("token", command, "--state-dir", self.state, *options)
        self.assertEqual(done.returncode, status, done.stderr)
        self.said = done.stderr.decode()
        return done.stdout.decode()

    def mint(self, *options):
        return self.token("mint", "--project", "demo", *options).strip()

    def rows(self, *options):
        return json.loads(self.token("ls", "--json", *options))["tokens"]

    def test_mint_shows_the_token_once_and_keeps_its_digest(self):
        text = self.token("mint", "--project", "demo")
        self.assertRegex(text, r"\Aweir_[A-Za-z0-9_-]{43}\n\Z")
        self.assertIn("expires never (--expires 30d makes it expire)", self.said)
        self.assertNotIn(text.strip(), self.said)
        for name, size in (("tokens", HEAD.size + SLOTS * SLOT.size), ("tokens.used", SLOTS * 8)):
            found = os.stat(os.path.join(self.state, name))
            self.assertEqual((found.st_mode, found.st_uid, found.st_size), (0o100600, 0, size))
        with open(os.path.join(self.state, "tokens"), "rb") as f:
            table = f.read()
        self.assertNotIn(text.strip()[5:].encode(), table)
        self.assertIn(hashlib.sha256(text.strip().encode()).digest(), table)
        self.assertNotEqual(self.mint(), text.strip())

    def test_what_ls_says(self):
        self.mint("--scope", "agent", "--agent", "helper", "--note", "the \u201chelper\u201d", "--expires", "2091-01-31")
        self.token("mint", "--project", "ops", "--scope", "operator", "--scope", "reviewer", "--expires", "30d")
        agent, ops = self.rows()
        self.assertRegex(agent.pop("id"), r"^tok-[a-z0-9]{8}$")
        created = agent.pop("created")
        self.assertLess(abs(time.time() - time.mktime(time.strptime(created, "%Y-%m-%dT%H:%M:%SZ")) + time.timezone), 60 * SLOW)
        self.assertEqual(
            agent,
            {"project": "demo", "scopes": ["project", "agent"], "agent": "helper", "note": "the \u201chelper\u201d", "expires": "2091-01-31T00:00:00Z",
             "last_used": None, "revoked": None, "state": "active"},
        )
        self.assertEqual((ops["project"], ops["scopes"], ops["agent"], ops["note"]), ("ops", ["operator", "reviewer"], None, None))
        self.assertEqual([r["project"] for r in self.rows("--project", "ops")], ["ops"])
        table = self.token("ls")
        self.assertNotIn("\033", table)
        self.assertIn("operator,reviewer", table)
        minted = json.loads(self.token("mint", "--project", "demo", "--json"))
        self.assertIn(minted["id"], [r["id"] for r in self.rows()])
        self.assertTrue(minted["token"].startswith("weir_"))

    def test_nothing_there(self):
        gone = os.path.join(self.state, "none")
        for state in (self.state, gone):
            done = weir("token", "ls", "--json", "--state-dir", state)
            self.assertEqual((done.returncode, json.loads(done.stdout)), (0, {"tokens": []}))
            self.assertEqual(weir("token", "revoke", "tok-00000000", "--state-dir", state).returncode, 1)
        self.assertFalse(os.path.exists(gone))
        self.assertIn("no tokens in %s; `weir token mint --project NAME --state-dir %s`" % (gone, gone), weir("token", "ls", "--state-dir", gone).stderr.decode())

    def test_arguments_that_make_no_sense(self):
        for args, words in (
            ("", "say mint, ls or revoke ID"),
            ("forge", '"forge" is none of mint, ls, revoke'),
            ("mint", "--project NAME"),
            ("mint --project Demo", '--project: "Demo" is not a name'),
            ("mint --project " + "p" * 64, "at most 63"),
            ("mint --project p --scope root", '--scope: "root" is none of'),
            ("mint --project p --scope agent", "--agent NAME"),
            ("mint --project p --agent a", "--agent: only with --scope agent"),
            ("mint --project p --scope agent --agent A", '--agent: "A" is not a name'),
            ("mint --project p --expires soon", '--expires: "soon" is not a time from now'),
            ("mint --project p --expires 2001-01-01", "--expires: \"2001-01-01\" is not between now"),
            ("mint --project p --note " + "n" * 48, "--note: at most 47"),
            ("mint --project p more", 'mint takes no argument "more"'),
            ("ls --scope project", "ls does not take --scope"),
            ("revoke --json tok-1", "revoke does not take --json"),
            ("revoke", "revoke: say which"),
        ):
            with self.subTest(args=args):
                done = weir("token", *args.split(), *(["--state-dir", self.state] if args else []))
                self.assertEqual(done.returncode, 64, done)
                self.assertIn(words, done.stderr.decode())
        self.assertEqual(os.listdir(self.state), [])

    def test_revoke_takes_all_that_it_knows(self):
        self.mint()
        self.mint()
        first, second = (r["id"] for r in self.rows())
        out = self.token("revoke", "tok-nothing0", second, status=1)
        self.assertIn(second + " (project demo) is revoked", out)
        self.assertIn('no token "tok-nothing0"', self.said)
        self.assertEqual([r["state"] for r in self.rows()], ["active", "revoked"])
        self.assertIn("was revoked before", self.token("revoke", second))
        self.token("revoke", first)
        self.assertEqual([r["state"] for r in self.rows()], ["revoked", "revoked"])

    def test_revoke_by_the_token_itself(self):
        """It is what somebody has in hand who found it in a log. It is not printed again, known or not."""
        text, stranger = self.mint(), "weir_" + "A" * 43
        self.mint()
        out = self.token("revoke", stranger, "tok-" + "a" * 30, text, status=1)
        self.assertRegex(out, r"^tok-[a-z0-9]{8} \(project demo\) is revoked\n$")
        self.assertEqual(self.said.count("neither an ID (tok-...) nor a token of " + self.state), 2)
        self.assertEqual([r["state"] for r in self.rows()], ["revoked", "active"])
        said = self.said + weir("token", stranger).stderr.decode() + weir("token", "ls", stranger).stderr.decode()
        for secret in (stranger, text, "a" * 30):
            self.assertNotIn(secret, out + said)

    def test_minted_at_the_same_time(self):
        """Into a directory in which there is no table yet: it is made once, and nobody overwrites anybody."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            texts = list(pool.map(lambda n: weir("token", "mint", "--project", "p%d" % n, "--state-dir", self.state).stdout, range(24)))
        self.assertEqual(len(set(texts)), 24)
        self.assertEqual(sorted(r["project"] for r in self.rows()), sorted("p%d" % n for n in range(24)))
        self.assertEqual(len({r["id"] for r in self.rows()}), 24)

    def test_waits_for_another_writer(self):
        self.mint()
        with open(os.path.join(self.state, "tokens"), "rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            waiting = subprocess.Popen([WEIR, "token", "mint", "--project", "demo", "--state-dir", self.state], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            try:
                with self.assertRaises(subprocess.TimeoutExpired):
                    waiting.wait(0.2)
            finally:
                fcntl.flock(other, fcntl.LOCK_UN)
                waiting.communicate(timeout=30 * SLOW)
        self.assertEqual(waiting.returncode, 0)

    def test_full_table(self):
        write_table(self.state, [pack_slot(n) for n in range(SLOTS)])
        self.assertEqual(self.token("mint", "--project", "demo", status=1), "")
        self.assertIn("all 4096 tokens that a table holds are active: revoke one", self.said)
        self.token("revoke", "tok-00000777")
        self.mint("--note", "in its place")
        rows = self.rows()
        self.assertEqual(len(rows), SLOTS)
        self.assertNotIn("tok-00000777", [r["id"] for r in rows])
        self.token("mint", "--project", "demo", status=1)

    def test_longest_dead_goes_first(self):
        slots = [pack_slot(n) for n in range(SLOTS)]
        slots[5] = pack_slot(5, expires=5000)
        slots[6] = pack_slot(6, REVOKED, revoked=4000)
        slots[7] = pack_slot(7, REVOKED, revoked=6000)
        write_table(self.state, slots)
        for gone in ("tok-00000006", "tok-00000005", "tok-00000007"):
            self.mint()
            self.assertNotIn(gone, [r["id"] for r in self.rows()])
        self.assertEqual(len({r["id"] for r in self.rows()}), SLOTS)
        self.token("mint", "--project", "demo", status=1)

    def test_writer_that_died(self):
        """Between the slot and its state: there is no such token, and the place is the next one's. And while making the file."""
        write_table(self.state, [pack_slot(0), pack_slot(1, FREE), pack_slot(2)])
        self.assertEqual([r["id"] for r in self.rows()], ["tok-00000000", "tok-00000002"])
        self.mint()
        with open(os.path.join(self.state, "tokens"), "rb") as f:
            self.assertEqual(HEAD.unpack(f.read(HEAD.size))[2], 3)
        with open(os.path.join(self.state, "tokens"), "wb", opener=private) as f:
            f.truncate(HEAD.size + SLOTS * SLOT.size)
        self.assertEqual(self.rows(), [])
        self.mint()
        self.assertEqual(len(self.rows()), 1)

    def test_files_that_are_not_ours(self):
        whole = HEAD.size + SLOTS * SLOT.size

        def fill(path, data, mode=0o600):
            with open(path, "wb") as f:
                f.write(data)
            os.chmod(path, mode)

        good = HEAD.pack(MAGIC, 1, 0).ljust(whole, b"\0")
        for what, make, words in (
            ("short", lambda p: fill(p, good[:-1]), "cut off or somebody else's"),
            ("long", lambda p: fill(p, good + b"\0"), "cut off or somebody else's"),
            ("foreign", lambda p: fill(p, b"x" * whole), "is no table of tokens"),
            ("newer", lambda p: fill(p, HEAD.pack(MAGIC, 2, 0).ljust(whole, b"\0")), "version 2, and this Weir knows 1"),
            ("readable", lambda p: fill(p, good, 0o644), "chmod 600"),
            ("somebody's", lambda p: (fill(p, good), os.chown(p, 65534, 65534)), "must belong to root"),
            ("a link", lambda p: os.symlink("/etc/hostname", p), "open"),
            ("a directory", os.mkdir, ""),
            ("a fifo", lambda p: os.mkfifo(p, 0o600), "not a regular file"),
        ):
            with self.subTest(what=what):
                path = os.path.join(self.state, "tokens")
                make(path)
                before = os.lstat(path)
                for command in (("mint", "--project", "demo"), ("ls",), ("revoke", "tok-00000000")):
                    out = self.token(*command, status=1)
                    self.assertEqual(out, "")
                    self.assertIn(words, self.said)
                    self.assertIn(path, self.said)
                self.assertEqual(os.lstat(path).st_mtime_ns, before.st_mtime_ns)
                if os.path.isdir(path):
                    os.rmdir(path)
                else:
                    os.unlink(path)
        os.chmod(self.state, 0o777)
        self.token("mint", "--project", "demo", status=1)
        self.assertIn("writable by nobody else", self.said)

    def test_full_disk_is_an_error_and_no_crash(self):
        script = 'mount -t tmpfs -o size=512k,mode=700 none "$1" && exec "$2" token mint --project demo --state-dir "$1"'
        done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", self.state, WEIR], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (1, b""), done)
        self.assertIn(b"No space left on device", done.stderr)

    def test_token_that_nobody_saw_is_revoked(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([WEIR, "token", "mint", "--project", "demo", "--state-dir", self.state], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual([r["state"] for r in self.rows()], ["revoked"])


class Served(unittest.TestCase):
    """The same against a running service."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=2)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def token(self, command, *options):
        done = weir("token", command, "--state-dir", self.service.state, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def mint(self, project, *options):
        """(token, id)"""
        minted = json.loads(self.token("mint", "--project", project, "--json", *options))
        return minted["token"], minted["id"]

    def row(self, wanted):
        return next(r for r in json.loads(self.token("ls", "--json"))["tokens"] if r["id"] == wanted)

    def status(self, token, path="/v1/limits"):
        return self.service.request("GET", path, token=token).status

    def execute(self, token):
        return self.service.request("POST", "/v1/execute", {"code": "print(6*7)"}, token=token)

    def assert_refused(self, token):
        answer = self.service.request("GET", "/v1/limits", token=token)
        self.assertEqual(answer.status, 401, answer)
        self.assertEqual(answer.json()["error"]["message"], "missing or invalid project token")
        return answer.body

    def test_minted_used_revoked_while_serving(self):
        before = int(time.time())
        token, name = self.mint("alpha")
        self.assertIsNone(self.row(name)["last_used"])
        answer = self.execute(token)
        self.assertEqual((answer.status, answer.json()["stdout"]), (200, "42\n"))
        used = time.strptime(self.row(name)["last_used"], "%Y-%m-%dT%H:%M:%SZ")
        self.assertGreaterEqual(time.mktime(used) - time.timezone, before - 1)
        self.token("revoke", name)
        refused = self.assert_refused(token)
        # Whoever is refused does not learn why.
        self.assertEqual(refused, self.assert_refused("weir_" + "A" * 43))
        self.assertEqual(self.execute(token).status, 401)

    def test_expired(self):
        token, name = self.mint("alpha", "--expires", "1h")
        self.assertEqual(self.status(token), 200)
        with open(os.path.join(self.service.state, "tokens"), "r+b") as f:
            at = f.read().index(name.encode()) - 40
            f.seek(at + 240)
            f.write(struct.pack("<q", int(time.time()) - 1))
        self.assert_refused(token)
        self.assertEqual(self.row(name)["state"], "expired")

    def test_what_is_no_token(self):
        token, _ = self.mint("alpha")
        for wrong in ("", "weir_", token[:-1], token + "A", token[:-1] + ("A" if token[-1] != "A" else "B"), token.upper(), token[5:], "weir_" + "\u00e9" * 20, "x" * 513):
            with self.subTest(token=wrong):
                try:
                    self.assert_refused(wrong)
                except UnicodeEncodeError:
                    pass
        for header in ({"Authorization": token}, {"Authorization": "Basic " + token}, {"Authorization": "Bearer  "}, {}):
            answer = self.service.request("GET", "/v1/limits", token=None, headers=header)
            self.assertEqual(answer.status, 401, header)

    def test_scopes(self):
        tokens = {
            "project": self.mint("alpha")[0],
            "agent": self.mint("alpha", "--scope", "agent", "--agent", "helper")[0],
            "operator": self.mint("alpha", "--scope", "operator")[0],
            "reviewer": self.mint("elsewhere", "--scope", "reviewer")[0],
            "two": self.mint("alpha", "--scope", "operator", "--scope", "project")[0],
        }
        run = self.execute(tokens["project"]).json()["run_id"]
        for path, allowed in (("/v1/pool", {"operator", "two"}), ("/v1/runs/%s/audit" % run, {"project", "agent", "reviewer", "two"}), ("/v1/limits", set(tokens))):
            for who in tokens:
                with self.subTest(path=path, who=who):
                    self.assertEqual(self.status(tokens[who], path), 200 if who in allowed else 403)
        for who in tokens:
            with self.subTest(who=who, path="/v1/execute"):
                self.assertEqual(self.execute(tokens[who]).status, 200 if who in ("project", "agent", "two") else 403)

    def test_projects_do_not_see_each_other(self):
        one, other = self.mint("one")[0], self.mint("other")[0]
        run = self.execute(one).json()["run_id"]
        audit = self.service.request("GET", "/v1/runs/%s/audit" % run, token=one)
        self.assertEqual((audit.status, audit.json()["project"]), (200, "one"))
        theirs = self.service.request("GET", "/v1/runs/%s/audit" % run, token=other)
        nothing = self.service.request("GET", "/v1/runs/sandbox-0000000000000/audit", token=other)
        self.assertEqual(theirs.status, 404)
        # Not the least difference between another's and none.
        self.assertEqual((theirs.status, theirs.body.replace(run.encode(), b"?")), (nothing.status, nothing.body.replace(b"sandbox-0000000000000", b"?")))

    def test_nobody_else_has_the_table_and_the_api_cannot_write_it(self):
        """No mapping of the table may ever be made writable ("mw" of VmFlags), and the other processes have none."""
        pids = [self.service.process.pid] + [int(p) for p in open("/proc/%d/task/%d/children" % (self.service.process.pid, self.service.process.pid)).read().split()]
        found = {}
        for pid in pids:
            with open("/proc/%d/smaps" % pid) as f:
                for name, flags in re.findall(r"^[0-9a-f]+-\S+ .*?(\S*)\n(?:.*\n)*?VmFlags: (.*)$", f.read(), re.M):
                    if name.startswith(self.service.state):
                        found.setdefault(os.path.basename(name), []).append((os.stat("/proc/%d" % pid).st_uid & 0xFF, set(flags.split())))
        # The log's index of the record: the auditor's alone.
        self.assertEqual({(uid, "ex" in flags) for uid, flags in found.pop("audit.db-shm", [(2, set())])}, {(2, False)})
        self.assertEqual(sorted(found), ["tokens", "tokens.used"])
        self.assertEqual([[uid for uid, _ in rows] for rows in found.values()], [[1], [1]])
        self.assertFalse({"wr", "mw"} & found["tokens"][0][1])
        self.assertIn("wr", found["tokens.used"][0][1])

    def test_the_hosts_own_records_are_no_tenants(self):
        """`weir run`, `weir exec` and attachments have their records under names that no token gets, or opens anything with."""
        state = tempfile.mkdtemp(prefix="weir-test-tokens-")
        self.addCleanup(shutil.rmtree, state)
        os.chmod(state, 0o711)
        hosts = ("attached", "cli", "exec")
        done = weir("exec", "--policy", "snippet", "--state-dir", state, "--", "true")
        self.assertNotIn(b"chain", done.stderr)  # what a command writes there is its own
        record = json.loads(weir("audit", "ls", "--state-dir", state, "--json").stdout)["runs"][0]
        self.assertEqual(record["project"], "exec")
        text = lambda n: "weir_%043d" % n
        write_table(state, [pack_slot(i, text=text(i), project=name.encode()) for i, name in enumerate(hosts + ("demo",))])
        for name in hosts:
            done = weir("token", "mint", "--project", name, "--state-dir", state)
            self.assertEqual((done.returncode, done.stdout), (64, b""))
            self.assertIn(b"this host's own records", done.stderr)
        self.assertEqual([row["state"] for row in json.loads(weir("token", "ls", "--json", "--state-dir", state).stdout)["tokens"]], ["reserved"] * 3 + ["active"])
        with Service("--policy-only", state=state) as service:
            statuses = [service.request("GET", "/v1/runs/" + record["run_id"], token=text(i)).status for i in range(4)]
            self.assertEqual(statuses, [401, 401, 401, 404])
            for i, name in enumerate(hosts):
                self.assertIn("token tok-%08d opens nothing" % i, service.log_text())
            self.assertNotIn("tok-%08d opens" % 3, service.log_text())

    def test_another_state_directory_has_other_tokens(self):
        """Minted before the service starts, known to it alone, and the time of use is there when it is gone."""
        here, _ = self.mint("alpha")
        state = tempfile.mkdtemp(prefix="weir-test-tokens-")
        try:
            there = weir("token", "mint", "--project", "alpha", "--state-dir", state).stdout.decode().strip()
            with Service(state=state, pool=1, ready=False) as second:
                self.assertIn("1 token is active", second.log_text())
                self.assertEqual(second.request("GET", "/v1/limits", token=there).status, 200)
                self.assertEqual(second.request("GET", "/v1/limits", token=here).status, 401)
            self.assert_refused(there)
            self.assertIsNotNone(json.loads(weir("token", "ls", "--json", "--state-dir", state).stdout)["tokens"][0]["last_used"])
        finally:
            shutil.rmtree(state)


if __name__ == "__main__":
    unittest.main()
