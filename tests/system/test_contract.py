# SPDX-License-Identifier: Apache-2.0
"""The contract of /v1/execute, sessions and pool, row by row: each test is named after the row that it holds the service to.

Strings in here are the contract's own. The limits are tried at their value and at one over, from the service's own table.
"""
import base64
import http.client
import json
import os
import re
import subprocess
import tempfile
import unittest

from lib import SLOW, TOKEN, TOP, WEIR, Answer, Service

MIB = 1 << 20


def mint(state, *options):
    done = subprocess.run([WEIR, "token", "mint", "--state-dir", state, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout.decode().strip()


class Contract(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=3)
        try:
            cls.limits = {row["name"]: row["value"] for row in cls.service.request("GET", "/v1/limits").json()["limits"]}
            state = cls.service.state
            cls.tokens = {
                "project": mint(state, "--project", "alpha"),
                "other": mint(state, "--project", "beta"),
                "agent": mint(state, "--project", "alpha", "--scope", "agent", "--agent", "helper"),
                "operator": mint(state, "--project", "ops", "--scope", "operator"),
                "reviewer": mint(state, "--project", "sec", "--scope", "reviewer"),
            }
        except BaseException:
            cls.service.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def call(self, who, method, path, body=None):
        return self.service.request(method, path, body, token=self.tokens[who])

    def assert_error(self, answer, status, message=None, ran=False):
        self.assertEqual(answer.status, status, answer)
        error = answer.json()["error"]
        self.assertEqual(sorted(error), ["code", "hint", "message", "ran"])
        self.assertIs(error["ran"], ran)
        if message is not None:
            self.assertEqual(error["message"], message)
        return error

    def session(self, **fields):
        answer = self.service.request("POST", "/v1/sessions", fields or {})
        self.assertEqual(answer.status, 201, answer)
        return answer.json()["session_id"]

    # -- routes --
    def test_routes_and_their_scopes(self):
        run = self.call("project", "POST", "/v1/execute", {"code": "1"})
        self.assertEqual(run.status, 200, run)
        run_id = run.json()["run_id"]
        code = {"code": "1"}
        rows = (
            # method, path, body, who may
            ("POST", "/v1/execute", code, {"project", "agent", "other"}),
            ("GET", "/v1/pool", None, {"operator"}),
            ("GET", "/v1/sessions", None, {"project", "agent", "other"}),
            ("GET", "/v1/runs/" + run_id, None, {"project", "agent", "reviewer"}),
            ("GET", "/v1/runs/" + run_id + "/audit", None, {"project", "agent", "reviewer"}),
            ("GET", "/v1/audit", None, {"reviewer"}),
            ("GET", "/metrics", None, {"operator"}),
            ("GET", "/v1/limits", None, set(self.tokens)),
            ("GET", "/openapi.json", None, set(self.tokens)),
        )
        for method, path, body, allowed in rows:
            for who in self.tokens:
                with self.subTest(route=method + " " + path, who=who):
                    answer = self.call(who, method, path, body)
                    if who in allowed:
                        self.assertEqual(answer.status, 200, answer)
                    elif "/runs/" in path and who == "other":
                        self.assert_error(answer, 404)
                    else:
                        self.assert_error(answer, 403, "missing or invalid project token")
        for who in self.tokens:  # this service knows no agent: what one is answered is in tests/agents/test_call_api.py
            with self.subTest(route="POST /v1/call", who=who):
                answer = self.call(who, "POST", "/v1/call", {"name": "x", "arguments": {}})
                self.assert_error(answer, *((404, "there is no such agent") if who == "agent" else (403, "missing or invalid project token")))

    def test_anything_else_is_404_and_another_method_405(self):
        for path in ("/", "/v1", "/v1/execute/", "/v1/executes", "/v1/runs", "/V1/execute", "/v1/limits/x", "/.well-known/x"):
            self.assert_error(self.service.request("GET", path), 404)
        for path, wrong, allow in (("/v1/execute", "GET", "POST"), ("/v1/pool", "POST", "GET"), ("/v1/limits", "DELETE", "GET"), ("/v1/sessions", "PUT", "POST"), ("/healthz", "POST", "GET")):
            answer = self.service.request(wrong, path, b"" if wrong != "GET" else None)
            self.assert_error(answer, 405)
            self.assertIn(allow, answer.headers["Allow"])

    def test_authentication_before_routing_and_parsing(self):
        for method, path, body in (("GET", "/nothing", None), ("POST", "/v1/execute", b"{broken"), ("PATCH", "/v1/pool", b"x")):
            answer = self.service.request(method, path, body, token=None)
            self.assert_error(answer, 401, "missing or invalid project token")
        for header in ("", "Bearer", "Bearer ", "bearer x y", "Basic " + TOKEN, TOKEN, "Bearer " + TOKEN + "x"):
            self.assert_error(self.service.request("GET", "/v1/pool", token=None, headers={"Authorization": header}), 401, "missing or invalid project token")

    def test_tokens_are_revoked_without_restart(self):
        token = mint(self.service.state, "--project", "gamma")
        self.assertEqual(self.service.request("GET", "/v1/limits", token=token).status, 200)
        listed = json.loads(subprocess.run([WEIR, "token", "ls", "--state-dir", self.service.state, "--json"], stdout=subprocess.PIPE, check=True).stdout)
        rows = listed["tokens"] if isinstance(listed, dict) else listed
        self.assertNotIn(token, json.dumps(rows))
        mine = next(row for row in rows if row["project"] == "gamma")
        subprocess.run([WEIR, "token", "revoke", "--state-dir", self.service.state, mine["id"]], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answer = self.service.request("GET", "/v1/limits", token=token)
        error = self.assert_error(answer, 401, "missing or invalid project token")
        self.assertIn("redeploy the agent to get a current one", error["hint"])

    def test_openapi_lists_every_route(self):
        document = self.service.request("GET", "/openapi.json").json()
        for path in ("/v1/execute", "/v1/call", "/mcp", "/v1/pool", "/v1/sessions", "/v1/sessions/{session_id}", "/v1/runs/{run_id}", "/v1/runs/{run_id}/audit", "/v1/audit", "/v1/audit/stream", "/metrics", "/v1/limits", "/openapi.json", "/healthz", "/readyz"):
            names = [re.sub(r"\{\w+\}", "{}", p) for p in document["paths"]]
            self.assertIn(re.sub(r"\{\w+\}", "{}", path), names)
        answer = document["paths"]["/v1/execute"]["post"]["responses"]
        self.assertLessEqual({"200", "400", "401", "403", "413", "429", "500", "502", "503"}, set(answer))

    # -- errors --
    def test_body_not_as_described_names_the_field(self):
        rows = (
            (b"", ""), (b"x", ""), (b"[]", ""), (b"null", ""), (b"{}", "/code"), (b'{"code": 1}', "/code"), (b'{"code": null}', "/code"),
            (b'{"code": "1", "codes": "2"}', "/codes"), (b'{"code": "1", "code": "2"}', "/code"), (b'{"code": "1", "\\u0063ode": "2"}', "/code"),
            (b'{"code": "1", "a\\u0000b": 1}', ""), (b'{"code": "\\ud800"}', "/code"), (b'{"code": "1", "stdin": 5}', "/stdin"),
            (b'{"code": "1", "env": []}', "/env"), (b'{"code": "1", "env": {"A": 1}}', "/env/A"), (b'{"code": "1", "env": {"A": "1", "A": "2"}}', "/env/A"),
            (b'{"code": "1", "files": {}}', "/files"), (b'{"code": "1", "files": [1]}', "/files/0"), (b'{"code": "1", "files": [{}]}', "/files/0"),
            (b'{"code": "1", "files": [{"path": "a"}]}', "/files/0"), (b'{"code": "1", "files": [{"path": "a", "content": "b", "content_base64": "Yg=="}]}', "/files/0"),
            (b'{"code": "1", "files": [{"path": "a", "content": "b", "mode": 7}]}', "/files/0/mode"), (b'{"code": "1", "files": [{"path": "a", "content": "b"}, {"path": "./a", "content": "b"}]}', "/files/1/path"),
            (b'{"code": "1", "files": [{"path": "a/b", "content": "b"}, {"path": "a", "content": "b"}]}', "/files/1/path"),
            (b'{"code": "1", "session_id": 7}', "/session_id"), (b'{"code": "1"} x', ""), (b'\xef\xbb\xbf{"code": "1"}', ""), (b'{"code": "\xff"}', "/code"),
        )  # fmt: skip
        for body, pointer in rows:
            with self.subTest(body=body):
                self.assertIn(pointer, self.assert_error(self.service.request("POST", "/v1/execute", body), 400)["message"])

    def test_language_other_than_python(self):
        for name in ("ruby", "Python", "python3", ""):
            self.assert_error(self.service.execute("1", language=name), 400, 'unsupported language "%s"' % name)
        self.assertEqual(self.service.run("1", language="python")["exit_code"], 0)

    def test_timeout_is_refused_never_clamped(self):
        for value in (0, 61, 120, -1, 1.5, "20", None, True):
            self.assert_error(self.service.execute("1", timeout_s=value), 400, "timeout_s must be between 1 and 60")
        for value in (1, 60):
            self.assertEqual(self.service.run("1", timeout_s=value)["exit_code"], 0)
        session = self.session()
        self.assert_error(self.service.execute("1", timeout_s=121, session_id=session), 400, "timeout_s must be between 1 and 120")
        self.assertEqual(self.service.run("1", timeout_s=120, session_id=session)["exit_code"], 0)

    def test_reserved_names_of_the_environment(self):
        for name in ("SANDBOX_X", "SANDBOX_", "TOOL_SANDBOX", "CODE_INTERPRETER_TIMEOUT_S"):
            self.assert_error(self.service.execute("1", env={name: "x"}), 400, name + " is reserved by the platform")
        code = "import os\nprint(os.environ['TOOL_SANDBOXES'], os.environ['sandbox_x'], os.environ['SANDBOX'])"
        self.assertEqual(self.service.run(code, env={"TOOL_SANDBOXES": "1", "sandbox_x": "2", "SANDBOX": "3"})["stdout"], "1 2 3\n")

    def test_file_path_escapes_working_directory(self):
        for path in ("/etc/passwd", "../x", "a/../../x", "/"):
            self.assert_error(self.service.execute("1", files=[{"path": path, "content": ""}]), 502, "file path escapes working directory")
        session = self.session()
        self.service.run("import os\nos.symlink('/tmp', 'link')\nos.symlink('/tmp/f', 'name')", session_id=session)
        for path in ("link/x", "name"):
            self.assert_error(self.service.execute("1", files=[{"path": path, "content": "x"}], session_id=session), 502, "file path escapes working directory")
        self.assertEqual(self.service.run("import os\nprint(os.listdir('/tmp/'))", session_id=session)["stdout"], "['home']\n")

    def test_body_over_its_limit(self):
        room = self.limits["body_bytes"] - len('{"code": ""}')
        at = self.service.request("POST", "/v1/execute", '{"code": "%s"}' % ("#" * room))
        self.assertIn("code", self.assert_error(at, 413)["message"])  # the body is fine, the code in it is not
        over = self.service.request("POST", "/v1/execute", '{"code": "%s"}' % ("#" * (room + 1)))
        self.assertIn(str(self.limits["body_bytes"]), self.assert_error(over, 413)["message"])

    def test_another_projects_object_is_404(self):
        run = self.call("project", "POST", "/v1/execute", {"code": "1"}).json()["run_id"]
        session = self.call("project", "POST", "/v1/sessions", {}).json()["session_id"]
        for method, path, body in (
            ("GET", "/v1/runs/" + run, None), ("GET", "/v1/runs/%s/audit" % run, None), ("GET", "/v1/sessions/" + session, None),
            ("DELETE", "/v1/sessions/" + session, None), ("POST", "/v1/execute", {"code": "1", "session_id": session}),
        ):  # fmt: skip
            foreign = self.call("other", method, path, body)
            none = self.call("other", method, path.replace(run, "sandbox-none000000000").replace(session, "sandbox-none000000000"), dict(body, session_id="sandbox-none000000000") if body else None)
            self.assert_error(foreign, 404)
            self.assertEqual(foreign.json(), none.json())
        self.assertEqual(self.call("project", "DELETE", "/v1/sessions/" + session).status, 200)

    # -- the answer --
    def test_answer_has_every_field(self):
        answer = self.service.run("open('a.txt', 'w').write('x')\nprint(1)")
        self.assertLessEqual(
            {"sandbox_id", "run_id", "stdout", "stderr", "exit_code", "duration_ms", "files", "files_skipped", "termination", "truncated", "stdout_bytes", "stderr_bytes", "usage", "egress", "python",
             "processes", "refused_syscalls", "audit_hash"},
            set(answer),
        )
        self.assertRegex(answer["audit_hash"], r"^[0-9a-f]{64}$")
        self.assertRegex(answer["sandbox_id"], r"^sandbox-[a-z0-9]{5,}$")
        self.assertEqual(answer["run_id"], answer["sandbox_id"])
        self.assertEqual(sorted(answer["termination"]), ["detail", "reason", "signal"])
        self.assertLessEqual({"cpu_ms", "memory_peak_bytes", "output_bytes", "net_bytes", "stages"}, set(answer["usage"]))
        self.assertLessEqual({"attempts", "denied", "allowed", "lost", "destinations"}, set(answer["egress"]))
        self.assertEqual(answer["files"], [{"path": "a.txt", "size": 1, "content_base64": "eA==", "media_type": "text/plain"}])
        self.assertNotIn("session_ended", answer)

    def test_files_are_regular_and_new_or_changed_by_content(self):
        files = [{"path": n, "content": "one"} for n in ("same", "touched", "changed", "deleted", "rewritten")]
        code = "import os\nos.utime('touched', (1, 1))\nopen('changed', 'w').write('two')\nos.utime('changed', (1, 1))\nos.remove('deleted')\nopen('rewritten', 'w').write('one')\nos.makedirs('d/e')\nopen('d/e/new', 'wb').write(bytes(range(256)))\nopen('.hidden', 'w').write('h')\nopen('main.py', 'a').write('# more')"
        answer = self.service.run(code, files=files)
        got = {f["path"]: base64.b64decode(f["content_base64"]) for f in answer["files"]}
        self.assertEqual(list(got), sorted(got))
        self.assertEqual({k: got[k] for k in got if k != "main.py"}, {"changed": b"two", "d/e/new": bytes(range(256)), ".hidden": b"h"})
        self.assertEqual(got["main.py"].decode(), code + "# more")
        self.assertEqual(answer["files_skipped"], [])

    def test_files_skipped_names_the_reason(self):
        code = (
            "import os, socket\nos.symlink('/etc/passwd', 'link')\nos.symlink('/', 'dirlink')\nos.mkfifo('report.csv')\ns = socket.socket(socket.AF_UNIX); s.bind('sock')\n"
            "open('big', 'wb').truncate(9 << 20)\nopen(b'\\xc3.txt', 'w').write('x')\nos.makedirs('/'.join('d' * 40)); open('ok.txt', 'w').write('ok')"
        )
        answer = self.service.run(code)
        self.assertEqual([f["path"] for f in answer["files"]], ["ok.txt"])
        skipped = {f["path"]: f["reason"] for f in answer["files_skipped"]}
        deep = [p for p in skipped if p.startswith("d/")]
        self.assertEqual((len(deep), skipped.pop(deep[0])), (1, "too deep"))
        self.assertEqual(skipped, {"link": "symlink", "dirlink": "symlink", "report.csv": "fifo", "sock": "socket", "big": "too large", "\\xc3.txt": "name"})

    def test_what_a_run_printed_before_a_kill_is_there(self):
        answer = self.service.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('f', 'w').write('x')\nwhile True: pass", timeout_s=1)
        self.assertEqual((answer["stdout"], answer["stderr"], answer["exit_code"]), ("out\n", "err\ntimed out after 1s", -1))
        self.assertEqual(answer["termination"], {"reason": "timeout", "signal": "SIGKILL", "detail": "timed out after 1s"})
        self.assertEqual([f["path"] for f in answer["files"]], ["f"])

    def test_memory_in_words(self):
        answer = self.service.run("a = []\nwhile True: a.append(bytearray(b'x') * (8 << 20))")
        self.assertEqual((answer["exit_code"], answer["termination"]["reason"], answer["termination"]["detail"]), (137, "memory", "memory limit of 512 MiB exceeded"))

    def test_network_of_a_snippet(self):
        code = (
            "import socket, time\n"
            "def t(f):\n    b = time.monotonic()\n    try: f(); print('through')\n    except Exception as e: print(type(e).__module__, type(e).__name__, time.monotonic() - b < %r)\n"
            "t(lambda: socket.getaddrinfo('name.example', 443))\nt(lambda: socket.create_connection(('192.0.2.7', 443)))\nt(lambda: socket.socket(2, 2).sendto(b'x', ('192.0.2.7', 53)))"
        ) % (0.05 * max(SLOW, 4))
        answer = self.service.run(code)
        self.assertEqual(answer["stdout"], "socket gaierror True\nbuiltins PermissionError True\nbuiltins PermissionError True\n")
        self.assertIn("name.example", [d["dns_name"] for d in answer["egress"]["destinations"]])

    # -- streaming --
    def stream(self, body, who=TOKEN):
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60 * SLOW)
        connection.request("POST", "/v1/execute", json.dumps(body), {"Authorization": "Bearer " + who, "Content-Type": "application/json", "Accept": "text/event-stream"})
        response = connection.getresponse()
        text = response.read().decode()
        events = []
        for block in text.split("\n\n") if response.status == 200 else ():
            lines = [l for l in block.split("\n") if l and not l.startswith(":")]
            if lines:
                events.append((lines[0].split(": ", 1)[1], json.loads("\n".join(l[6:] for l in lines[1:]))))
        return Answer(response.status, dict(response.getheaders()), text.encode()), events

    def test_streams_end_in_the_plain_answer(self):
        answer, events = self.stream({"code": "import sys, time\nfor i in range(3):\n    print('é', i)\n    print('fehler', i, file=sys.stderr)\n    time.sleep(0.05)\nopen('f', 'w').write('x')\nsys.exit(3)"})
        self.assertEqual((answer.status, answer.headers["Content-Type"].split(";")[0]), (200, "text/event-stream"))
        result = events[-1]
        self.assertEqual(result[0], "result")
        for name in ("stdout", "stderr"):
            parts = [data["text"] for event, data in events if event == name]
            self.assertEqual("".join(parts), result[1][name])
            self.assertGreater(len(parts), 1)
        self.assertEqual((result[1]["exit_code"], [f["path"] for f in result[1]["files"]]), (3, ["f"]))
        plain = self.service.run("1")
        self.assertEqual(set(result[1]), set(plain))
        answer, events = self.stream({"code": "print('a')\nwhile True: pass", "timeout_s": 1})
        self.assertEqual("".join(d["text"] for e, d in events if e == "stderr"), "timed out after 1s")

    def test_a_refusal_is_no_stream(self):
        answer, events = self.stream({"code": "1", "timeout_s": 99})
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (400, "application/json"))

    # -- sessions --
    def test_one_interpreter_for_one_conversation(self):
        session = self.session()
        first = self.service.run("x = 41\ndef f(): return x + 1", session_id=session)
        second = self.service.run("print(f())", session_id=session)
        self.assertEqual((second["stdout"], second["session_ended"]), ("42\n", False))
        self.assertEqual(first["sandbox_id"], second["sandbox_id"])
        self.assertEqual([first["run_id"], second["run_id"]], [first["sandbox_id"] + ".1", first["sandbox_id"] + ".2"])
        listed = self.service.request("GET", "/v1/sessions").json()["sessions"]
        self.assertIn(session, [s["session_id"] for s in listed])
        self.assertEqual(self.service.request("GET", "/v1/sessions/" + session).json()["cells"], 2)
        self.assertEqual(self.service.request("DELETE", "/v1/sessions/" + session).status, 200)
        self.assert_error(self.service.execute("1", session_id=session), 404)
        self.assert_error(self.service.request("GET", "/v1/sessions/" + session), 404)

    def test_a_cells_timeout_interrupts_first(self):
        session = self.session()
        answer = self.service.run("x = 1\nprint('a')\nwhile True: pass", timeout_s=1, session_id=session)
        self.assertEqual((answer["exit_code"], answer["termination"]["reason"], answer["session_ended"], answer["stdout"]), (-1, "timeout", False, "a\n"))
        self.assertTrue(answer["stderr"].endswith("timed out after 1s"), answer["stderr"])
        self.assertEqual(self.service.run("print(x)", session_id=session)["stdout"], "1\n")
        answer = self.service.run("import time\nwhile True:\n    try:\n        while True: time.sleep(0.2)\n    except BaseException: pass", timeout_s=1, session_id=session)
        self.assertEqual((answer["exit_code"], answer["termination"]["reason"], answer["session_ended"]), (-1, "timeout", True))
        self.assert_error(self.service.execute("1", session_id=session), 404)

    def test_the_main_process_takes_its_session_along(self):
        for code, exit_code in (("import os\nos._exit(3)", 3), ("import ctypes\nctypes.string_at(0)", 139)):
            answer = self.service.run(code, session_id=self.session())
            self.assertEqual((answer["exit_code"], answer["session_ended"]), (exit_code, True))

    def test_sessions_of_a_project_are_limited(self):
        most = self.limits["sessions"]
        token = mint(self.service.state, "--project", "crowd")
        opened = []
        try:
            for i in range(most):
                answer = self.service.request("POST", "/v1/sessions", {}, token=token)
                self.assertEqual(answer.status, 201, (i, answer))
                opened.append(answer.json()["session_id"])
            over = self.service.request("POST", "/v1/sessions", {}, token=token)
            self.assertIn(str(most), self.assert_error(over, 429)["message"])
            self.assertIn("Retry-After", over.headers)
            self.service.request("DELETE", "/v1/sessions/" + opened.pop(), token=token)
            again = self.service.request("POST", "/v1/sessions", {}, token=token)
            self.assertEqual(again.status, 201, again)
            opened.append(again.json()["session_id"])
        finally:
            for session in opened:
                self.service.request("DELETE", "/v1/sessions/" + session, token=token)

    # -- limits: at the value, and one over --
    def test_limits_of_a_request(self):
        n = self.limits
        files = lambda count: [{"path": "f%d" % i, "content": ""} for i in range(count)]
        deep = lambda levels: [{"path": "/".join(["d"] * (levels - 1) + ["f"]), "content": "x"}]
        env = lambda count: {"N%03d" % i: "" for i in range(count)}
        rows = (
            ("code_bytes", {"code": "#" * n["code_bytes"]}, {"code": "#" * (n["code_bytes"] + 1)}),
            ("stdin_bytes", {"code": "1", "stdin": "x" * n["stdin_bytes"]}, {"code": "1", "stdin": "x" * (n["stdin_bytes"] + 1)}),
            ("env_names", {"code": "1", "env": env(n["env_names"])}, {"code": "1", "env": env(n["env_names"] + 1)}),
            ("env_bytes", {"code": "1", "env": {"A": "x" * (n["env_bytes"] - 3)}}, {"code": "1", "env": {"A": "x" * (n["env_bytes"] - 2)}}),
            ("files_in", {"code": "1", "files": files(n["files_in"])}, {"code": "1", "files": files(n["files_in"] + 1)}),
            ("files_in_bytes", {"code": "1", "files": [{"path": "f", "content": "x" * n["files_in_bytes"]}]}, {"code": "1", "files": [{"path": "f", "content": "x" * (n["files_in_bytes"] + 1)}]}),
            ("files_in_depth", {"code": "1", "files": deep(n["files_in_depth"])}, {"code": "1", "files": deep(n["files_in_depth"] + 1)}),
        )
        for name, at, over in rows:
            with self.subTest(name):
                self.assertEqual(self.service.run(**at)["exit_code"], 0)
                answer = self.service.execute(**over)
                self.assertIn(str(n[name]), self.assert_error(answer, 413)["message"])

    def test_limits_of_what_comes_out(self):
        n = self.limits
        sizes = lambda answer: {f["path"]: f["size"] for f in answer["files"]}
        skipped = lambda answer: {f["path"]: f["reason"] for f in answer["files_skipped"]}
        answer = self.service.run("open('at', 'wb').truncate(%d)\nopen('over', 'wb').truncate(%d)" % (n["file_out_bytes"], n["file_out_bytes"] + 1))
        self.assertEqual((sizes(answer), skipped(answer)), ({"at": n["file_out_bytes"]}, {"over": "too large"}))
        answer = self.service.run("for i in range(%d): open('%%03d' %% i, 'w').write('x')" % (n["files_out"] + 1))
        self.assertEqual((len(sizes(answer)), skipped(answer)), (n["files_out"], {"%03d" % n["files_out"]: "too many"}))
        answer = self.service.run("open('a', 'wb').truncate(%d)\nopen('b', 'wb').truncate(%d)\nopen('c', 'w').write('x')" % (n["file_out_bytes"], n["files_out_bytes"] - n["file_out_bytes"]))
        self.assertEqual((len(sizes(answer)), skipped(answer)), (2, {"c": "too large"}))
        deep = n["files_out_depth"]
        answer = self.service.run("import os\nfor levels in (%d, %d):\n    p = '/'.join(['d'] * (levels - 1)); os.makedirs(p, exist_ok=True); open(p + '/f', 'w').write('x')" % (deep, deep + 1))
        self.assertEqual(list(sizes(answer)), ["/".join(["d"] * (deep - 1) + ["f"])])
        self.assertEqual(list(skipped(answer).values()), ["too deep"])

    def test_limits_of_output(self):
        most = self.limits["output_bytes"]
        for fd, name in ((1, "stdout"), (2, "stderr")):
            answer = self.service.run("import os\nn = os.write(%d, b'x' * %d)\nwhile n < %d: n += os.write(%d, b'x' * (%d - n))" % (fd, most, most, fd, most))
            self.assertEqual((answer["exit_code"], answer["truncated"], answer[name + "_bytes"]), (0, False, most))
            answer = self.service.run("import os, time\nn = 0\nwhile n < %d: n += os.write(%d, b'x' * (%d - n))\ntime.sleep(9)" % (most + 1, fd, most + 1))
            self.assertEqual((answer["exit_code"], answer["truncated"], len(answer[name]), answer["termination"]["reason"]), (137, True, most, "output"))
            self.assertEqual(answer["termination"]["detail"], "%s limit of 4 MiB exceeded" % name)

    def test_pool_status(self):
        state = self.service.pool()
        self.assertLessEqual({"size", "warm", "starting", "in_use", "waiting", "served", "misses", "wait_ms"}, set(state))
        self.assertEqual(state["size"], 3)
        self.assertLessEqual({"p50", "p90", "p99"}, set(state["wait_ms"]))
        before = state["served"]
        self.service.run("1")
        self.assertEqual(self.service.pool()["served"], before + 1)


class NotBuilt(unittest.TestCase):
    def test_a_sandbox_that_cannot_be_built_names_the_layer(self):
        with Service(pool=1) as service:
            service.wait_warm()
            with open(os.path.join(service.cgroup(), "cgroup.max.descendants"), "w") as f:
                f.write("0")
            self.assertEqual(service.run("1")["exit_code"], 0)  # the warm one
            answer = service.execute("1")
            self.assertEqual(answer.status, 500, answer)
            error = answer.json()["error"]
            self.assertIn("cgroup", error["message"])
            self.assertIs(error["ran"], False)

    def test_a_harness_that_fails_is_no_run(self):
        # A policy that takes away what handing standard input over needs; its own exit status must not pass for the code's.
        with tempfile.TemporaryDirectory(prefix="weir-test-") as d:
            path = os.path.join(d, "policy.json")
            with open(os.path.join(TOP, "policies", "snippet.json")) as f, open(path, "w") as out:
                json.dump(dict(json.load(f), syscalls=[{"names": ["dup2", "dup3"]}]), out)
            with Service("--policy", path, pool=1) as service:
                self.assertEqual(service.run("print(1)")["stdout"], "1\n")
                answer = service.execute("print(2)", stdin="x")
                self.assertEqual(answer.status, 500, answer)
                error = answer.json()["error"]
                self.assertIn("interpreter", error["message"])
                self.assertIs(error["ran"], False)
                self.assertEqual(service.run("print(3)")["stdout"], "3\n")


if __name__ == "__main__":
    unittest.main()
