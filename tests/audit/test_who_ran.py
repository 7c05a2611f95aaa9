# SPDX-License-Identifier: Apache-2.0
"""Who asked for a run, as its record says: which token of a project, over every route; of the command line which user, and of
`weir exec` which command. So that what a token did can be listed after it has leaked, and been revoked."""
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from clients import mint
from lib import SLOW, TOKEN, WEIR, Service, weir


def listed(state, caller):
    """Ids of the runs that `weir audit ls --caller` has, and their rows."""
    done = weir("audit", "ls", "--state-dir", state, "--json", "--limit", "0", "--caller", caller)
    if done.returncode:
        raise AssertionError(done.stderr)
    return {row["run_id"]: row for row in json.loads(done.stdout)["runs"]}


def shown(state, run_id, *options):
    done = weir("audit", "show", "--state-dir", state, run_id, *options)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout.decode()


class Tokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=2)
        try:
            cls.tokens, cls.callers = zip(*[cls.minted("alpha") for _ in range(2)])
            cls.reviewer = mint(cls.service, "sec", "--scope", "reviewer")
        except BaseException:
            cls.service.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    @classmethod
    def ids(cls):
        done = weir("token", "ls", "--state-dir", cls.service.state, "--json")
        return {row["id"] for row in json.loads(done.stdout)["tokens"]}

    @classmethod
    def minted(cls, project):
        """A token, and what records call whoever has it."""
        before = cls.ids()
        token = mint(cls.service, project)
        (one,) = cls.ids() - before
        return token, "token:" + one

    def ask(self, path, body, token, status=200, **headers):
        answer = self.service.request("POST", path, body, token=token, headers=headers)
        self.assertEqual(answer.status, status, answer)
        return answer.json()

    def record(self, run_id, token=None):
        answer = self.service.request("GET", "/v1/runs/" + run_id, token=token or self.reviewer)
        self.assertEqual(answer.status, 200, answer)
        return answer.json()

    def found(self, caller):
        answer = self.service.request("GET", "/v1/audit?caller=" + caller, token=self.reviewer)
        self.assertEqual(answer.status, 200, answer)
        return [row["run_id"] for row in answer.json()["runs"]]

    def test_tokens_of_one_project(self):
        runs = [self.ask("/v1/execute", {"code": "print(1)"}, token)["run_id"] for token in self.tokens]
        self.assertNotEqual(*self.callers)
        for token, caller, run, other in zip(self.tokens, self.callers, runs, reversed(runs)):
            self.assertEqual(self.record(run)["caller"], caller)
            self.assertEqual(self.record(run, token)["caller"], caller)  # its project may know
            self.assertIn(run, self.found(caller))
            self.assertNotIn(other, self.found(caller))
            rows = listed(self.service.state, caller)
            self.assertEqual(rows[run]["caller"], caller)
            self.assertNotIn(other, rows)
            self.assertIn("caller   %s\n" % caller, shown(self.service.state, run))
        self.assertEqual(self.found("token:tok-"), [])  # whole, or nothing

    def test_a_revoked_one_is_found(self):
        token, caller = self.minted("alpha")
        run = self.ask("/v1/execute", {"code": "print(1)"}, token)["run_id"]
        done = weir("token", "revoke", "--state-dir", self.service.state, caller.split(":")[1])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.service.request("GET", "/v1/limits", token=token).status, 401)
        self.assertEqual(self.found(caller), [run])

    def test_each_cell_has_its_own(self):
        session = self.ask("/v1/sessions", {}, self.tokens[0], 201)["session_id"]
        cells = [self.ask("/v1/execute", {"code": "1", "session_id": session}, self.tokens[i])["run_id"] for i in (1, 0)]
        self.assertEqual(self.record(session)["caller"], self.callers[0])
        self.assertEqual([self.record(cell)["caller"] for cell in cells], [self.callers[1], self.callers[0]])
        self.service.request("DELETE", "/v1/sessions/" + session, token=self.tokens[0])

    def test_model_context_protocol(self):
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "print(1)"}}}
        before = set(self.found(self.callers[1]))
        self.ask("/mcp", call, self.tokens[1], Accept="application/json, text/event-stream")
        self.assertEqual(len(set(self.found(self.callers[1])) - before), 1)

    def test_the_development_token(self):
        run = self.ask("/v1/execute", {"code": "print(1)"}, TOKEN)["run_id"]
        self.assertEqual(self.record(run)["caller"], "token:dev")

    def test_who_asks_in_exports(self):
        code = "import socket\ntry: socket.create_connection(('10.1.2.3', 81))\nexcept OSError: pass"
        run = self.ask("/v1/execute", {"code": code}, self.tokens[0])["run_id"]
        done = weir("audit", "export", "--state-dir", self.service.state, "--format", "ocsf", "--caller", self.callers[0])
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        (event,) = [e for e in events if e["metadata"]["correlation_uid"] == run]
        self.assertEqual(event["actor"]["user"]["credential_uid"], self.callers[0].split(":")[1])
        self.assertEqual({e["unmapped"]["caller"] for e in events}, {self.callers[0]})
        done = weir("audit", "export", "--state-dir", self.service.state, "--caller", self.callers[0])
        records = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertIn(run, {r["run_id"] for r in records})
        self.assertEqual({r["caller"] for r in records if r["type"] == "run_begin"}, {self.callers[0]})
        self.assertEqual({r["run_id"] for r in records}, {r["run_id"] for r in records if r["type"] == "run_begin"})


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.state = tempfile.mkdtemp(prefix="weir-test-state-")
        self.addCleanup(shutil.rmtree, self.state, ignore_errors=True)

    def weir(self, *args, **env):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
        return subprocess.run([WEIR, *args], env=dict(kept, **env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW)

    def only(self, caller):
        (row,) = listed(self.state, caller).values()
        return row["run_id"]

    def test_run(self):
        runs = {}
        for env, caller in (({}, "uid:0"), ({"SUDO_UID": "1000"}, "uid:0,sudo:1000"), ({"SUDO_UID": "0,token:a"}, "uid:0")):
            with self.subTest(caller=caller, env=env):
                done = self.weir("run", "--state-dir", self.state, "-c", "print(1)", **env)
                self.assertEqual(done.returncode, 0, done.stderr)
                runs[caller] = runs.get(caller, 0) + 1
                self.assertEqual(len(listed(self.state, caller)), runs[caller])

    def test_exec(self):
        argv = ["/bin/sh", "-c", "exit 3", "a secret", ""]
        done = self.weir("exec", "--policy", "monitor-only", "--state-dir", self.state, "--user", "root", "--", *argv, SUDO_UID="1000")
        self.assertEqual(done.returncode, 3, done.stderr)
        run = self.only("uid:0,sudo:1000")
        command = json.loads(shown(self.state, run, "--json"))["command"]
        whole = b"".join(arg.encode() + b"\0" for arg in argv)
        self.assertEqual(command, {"path": "/bin/sh", "path_cut": False, "sha256": hashlib.sha256(whole).hexdigest()})
        text = shown(self.state, run)
        self.assertIn("\ncaller   uid:0,sudo:1000\n", text)
        self.assertIn("\ncommand  /bin/sh (", text)
        self.assertNotIn("Python", text)
        self.assertNotIn("a secret", text)

    def test_exec_as_it_is_called(self):
        os.symlink("/bin/true", os.path.join(self.state, "a\nb"))
        for argv, path, cut in (([os.path.join(self.state, "a\nb")], os.path.join(self.state, "a\\x0ab"), False), (["./" * 150 + "bin/true"], ("./" * 150)[:255], True)):
            with self.subTest(path=path):
                state = tempfile.mkdtemp(prefix="weir-test-state-")
                self.addCleanup(shutil.rmtree, state, ignore_errors=True)
                done = subprocess.run([WEIR, "exec", "--policy", "monitor-only", "--state-dir", state, "--user", "root", "--", *argv], cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW)
                self.assertEqual(done.returncode, 0, done.stderr)
                (run,) = json.loads(weir("audit", "ls", "--state-dir", state, "--json").stdout)["runs"]
                command = json.loads(shown(state, run["run_id"], "--json"))["command"]
                self.assertEqual((command["path"], command["path_cut"]), (path, cut))
                self.assertEqual(command["sha256"], hashlib.sha256(argv[0].encode() + b"\0").hexdigest())


if __name__ == "__main__":
    unittest.main()
