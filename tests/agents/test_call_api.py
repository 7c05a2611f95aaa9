# SPDX-License-Identifier: Apache-2.0
"""POST /v1/call of the real service: the contract row by row, the limits at their value and at one over, and what untrusted tools
do to their results, seen from where a client stands. What the harness makes of a tool is test_toolcall's."""
import concurrent.futures
import glob
import json
import os
import re
import socket
import subprocess
import threading
import time
import unittest

from clients import mint
from fixture import Agents, run_weir
from lib import SLOW, TOKEN, TOP
from test_openapi import jsonschema, problems
from test_run_code import like

APP = r'''
import asyncio, dataclasses, datetime, json, os, signal, struct, subprocess, sys, threading, time

def echo(**arguments): return arguments
def value(v): return v
def nothing(): return None
def pair(): return (1, [2, (3,)])
def twice_named(): return {1: "a", "1": "b"}
def tuple_key(): return {(1, 2): 3}
def a_date(): return {"rows": [1, {"when": datetime.datetime(2020, 1, 1)}]}
def raw_bytes(): return b"x"
def nan(): return float("nan")
def circle():
    a = []
    a.append(a)
    return a
def deep(n):
    v = 1
    for _ in range(n): v = [v]
    return v
def surrogate(): return {"\ud800": "a\udc00b\x00￾"}
def large(n): return "x" * (n - 2)
def huge(n): return "x" * n
async def awaited(a): await asyncio.sleep(0.01); return a + 1
async def leaves_tasks():
    leaves_tasks.kept = asyncio.ensure_future(asyncio.sleep(100))
    return "done"
def runs_a_loop(): return asyncio.run(awaited(1))
def endless():
    while True: yield 1
def exits(code): os._exit(code)
def sys_exits(): sys.exit(0)
def execs(): os.execv("/bin/sh", ["sh", "-c", "exit 0"])
def kills_itself(n): os.kill(os.getpid(), n)
def interrupts(): raise KeyboardInterrupt("by hand")
class Odd(BaseException): pass
def odd(): raise Odd("one of a kind")
class Silent(Exception):
    def __str__(self): raise RuntimeError("no")
    __repr__ = __str__
def silent(): raise Silent()
def long_message(): raise ValueError("m" * (100 << 20))
def recurses(n=0): return recurses(n + 1)
def wrong(a, *, b=1, **rest): return [a, b, rest]
def positional(a, b=2, /): return [a, b]
LIMIT = 7
def print(*a): return "shadowed"
def twice(): return 1
def twice(): return 2
def writes(out, err=0):
    os.write(1, b"o" * out) if out < 65536 else sys.stdout.write("o" * out)
    sys.stderr.write("e" * err)
    return "written"
def sleeps(s): time.sleep(s); return "slept"
def spins():
    sys.stdout.write("so far\n")
    while True: pass
def eats(): return len(b"x" * (1200 << 20))
def threads_and_children():
    for _ in range(3): threading.Thread(target=time.sleep, args=(60,)).start()
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    return "at once"
def result_fd():
    """The result pipe, as anybody finds it who looks: the pipe for writing that is none of the two outputs."""
    for fd in sorted(int(n) for n in os.listdir("/proc/self/fd")):
        try:
            if fd > 2 and os.readlink("/proc/self/fd/%d" % fd).startswith("pipe:"): return fd
        except OSError: pass
def frame(body, kind=1, length=None): return struct.pack("<4sIQ", b"WRES", kind, len(body) if length is None else length) + body
def forges(what):
    fd = result_fd()
    made = {
        "before": frame(b'"forged"'), "whole": frame(b'"its own"'), "twice": frame(b"1") + frame(b"2"), "cut": frame(b"1", length=2), "junk": b"\xff" * 100,
        "names": frame(b'{"a": 1, "a": 2}'), "utf8": frame(b'"\xff"'), "nested": frame(b"[" * 100000 + b"]" * 100000), "unknown": frame(b"", 3),
        "error": frame(b'{"type": "T", "message": "m", "traceback": ""}', 2), "tail": frame(b"1") + b"x", "claims": frame(b"1", length=1 << 60),
    }[what]
    while made: made = made[os.write(fd, made[:65536]):]
    if what != "before": os._exit(0)
    return "honest"
def floods():
    fd = result_fd()
    try:
        while True: os.write(fd, b"x" * 65536)
    except BrokenPipeError: os._exit(9)
def environment(): return dict(os.environ)
def seen():
    """Everything of this process that others may read."""
    return [open("/proc/self/" + n, "rb").read().decode("utf-8", "replace") for n in ("cmdline", "environ")]
'''


class CallApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.agents = Agents({"app.py": APP, "broken.py": "import os\nimport nothing_of_that_name\n"}, tools=["app"])
        try:
            cls.service = cls.agents.service
            cls.limits = {row["name"]: row["value"] for row in cls.service.request("GET", "/v1/limits").json()["limits"]}
            cls.document = cls.service.request("GET", "/openapi.json").json()
        except BaseException:
            cls.agents.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.agents.stop()

    def assert_error(self, answer, status, message=None, code=None, ran=False):
        self.assertEqual(answer.status, status, answer)
        error = answer.json()["error"]
        self.assertEqual(sorted(error), ["code", "hint", "message", "ran"])
        self.assertIs(error["ran"], ran)
        if message is not None:
            self.assertEqual(error["message"], message)
        if code is not None:
            self.assertEqual(error["code"], code)
        return error

    def tool_error(self, kind, words, name, arguments=None, **fields):
        """The answer of a call that ends in an error of this type; `words` is a pattern for its message."""
        answer = self.agents.call(name, arguments, **fields)
        self.assertNotIn("result", answer)
        self.assertEqual(sorted(answer["error"]), ["message", "traceback", "type"])
        self.assertEqual(answer["error"]["type"], kind, answer["error"])
        self.assertRegex(answer["error"]["message"], words)
        return answer

    # -- who may, and what --
    def test_scope(self):
        body = {"name": "nothing", "arguments": {}}
        tokens = {scope: run_weir("token", "mint", "--project", "demo", "--scope", scope, state=self.agents.state).strip() for scope in ("operator", "reviewer")}
        tokens["project"] = mint(self.service, "demo")
        for scope, token in tokens.items():
            with self.subTest(scope=scope):
                error = self.assert_error(self.service.request("POST", "/v1/call", body, token=token), 403, "missing or invalid project token")
                self.assertIn("scope agent: `weir agent env NAME` prints one", error["hint"])
        error = self.assert_error(self.service.request("POST", "/v1/call", body, token=TOKEN), 403, "missing or invalid project token")
        self.assertIn("`weir agent env NAME` prints one that is", error["hint"])
        self.assert_error(self.service.request("POST", "/v1/call", body, token=None), 401, "missing or invalid project token")
        self.assert_error(self.service.request("GET", "/v1/call", token=self.agents.tokens["weather"]), 405)
        # What the project's token may do, the agent's may too.
        self.assertEqual(self.service.request("POST", "/v1/execute", {"code": "print(1)"}, token=self.agents.tokens["weather"]).json()["stdout"], "1\n")

    def test_the_agent_is_the_tokens(self):
        for key in ("agent", "image"):
            error = self.assert_error(self.service.request("POST", "/v1/call", {"name": "nothing", "arguments": {}, key: "weather"}, token=self.agents.tokens["weather"]), 400)
            self.assertIn("/" + key, error["message"])
            self.assertIn("the agent is the token's", error["hint"])
        for project in ("demo", "other"):  # of one name, and yet two
            self.agents.register("twin", "weather", ["app" if project == "demo" else "broken"], project=project)
            answer = self.agents.request("value", {"v": project}, agent="twin")
            if project == "demo":
                self.assertEqual(answer.json()["result"], "demo")
            else:
                self.assertEqual((answer.status, answer.json()["error"]["type"]), (200, "ToolLoadError"))
        run_weir("agent", "rm", "twin", "--project", "other", state=self.agents.state)
        gone = self.agents.request("value", {"v": 1}, agent="twin")
        self.assertIn(gone.status, (401, 404), gone)  # its token may have gone with it
        if gone.status == 404:
            self.assertIn("weir agent add", self.assert_error(gone, 404, code="no_agent")["hint"])

    def test_bodies_that_are_refused(self):
        rows = (
            (b"", ""), (b"x", ""), (b"[]", ""), (b"{}", "/name"), (b'{"name": "nothing"}', "/arguments"), (b'{"name": null, "arguments": {}}', "/name"), (b'{"name": "", "arguments": {}}', "/name"),
            (b'{"name": "a\\u0000b", "arguments": {}}', "/name"), (b'{"name": "a\\tb", "arguments": {}}', "/name"), (b'{"name": "nothing", "arguments": []}', "/arguments"),
            (b'{"name": "nothing", "arguments": "{}"}', "/arguments"), (b'{"name": "nothing", "arguments": {}, "timeout": 1}', "/timeout"), (b'{"name": "nothing", "arguments": {}, "arguments": {}}', "/arguments"),
            (b'{"name": "echo", "arguments": {"a": 1, "a": 2}}', "/arguments/a"), (b'{"name": "echo", "arguments": {"a": [0, {"b": 1, "\\u0062": 2}]}}', "/arguments/a/1/"),
            (b'{"name": "echo", "arguments": {"a": NaN}}', "/arguments/a"), (b'{"name": "echo", "arguments": {"a": -1e400}}', "/arguments/a"), (b'{"name": "echo", "arguments": {"a": "\\udc00"}}', "/arguments/a"),
            (b'{"name": "echo", "arguments": {"a": "\xff"}}', "/arguments/a"), (b'{"name": "echo", "arguments": ' + b'{"a":' * 100000, "levels"), (b'{"name": "echo", "arguments": {"a": ' + b"9" * 500000 + b"}}", "digits"),
        )  # fmt: skip
        for body, words in rows:
            with self.subTest(body=body[:80]):
                began = time.monotonic()
                self.assertIn(words, self.assert_error(self.service.request("POST", "/v1/call", body, token=self.agents.tokens["weather"]), 400)["message"])
                self.assertLess(time.monotonic() - began, 2 * SLOW)

    def test_no_field_opens_the_network(self):
        for extra in ({"network": "host"}, {"env": {"http_proxy": "x"}}, {"policy": "allow-all"}, {"options": "--net=host"}, {"files": []}, {"stdin": ""}, {"session_id": "x"}):
            answer = self.service.request("POST", "/v1/call", dict(extra, name="nothing", arguments={}), token=self.agents.tokens["weather"])
            self.assertIn("/" + next(iter(extra)), self.assert_error(answer, 400)["message"])

    def test_timeout_is_refused_never_clamped(self):
        for wrong in (0, 121, -1, 1.5, "30", None, True):
            self.assert_error(self.agents.request("nothing", timeout_s=wrong), 400, "timeout_s must be between 1 and 120")
        for right in (1, 120):
            self.assertIsNone(self.agents.result("nothing", timeout_s=right))
        self.assertEqual(self.limits["call_timeout_default_s"], 30)

    def test_limits_of_a_request(self):
        room = self.limits["call_body_bytes"] - len('{"name": "echo", "arguments": {"a": ""}}')
        answer = self.service.request("POST", "/v1/call", '{"name": "echo", "arguments": {"a": "%s"}}' % ("x" * room), token=self.agents.tokens["weather"])
        self.assertEqual((answer.status, len(answer.json()["result"]["a"])), (200, room))
        over = self.service.request("POST", "/v1/call", '{"name": "echo", "arguments": {"a": "%s"}}' % ("x" * (room + 1)), token=self.agents.tokens["weather"])
        self.assertIn(str(self.limits["call_body_bytes"]), self.assert_error(over, 413)["message"])
        name = "n" * self.limits["call_name_bytes"]
        self.assert_error(self.agents.request(name), 404, 'unknown tool "%s"' % name, ran=True)
        self.assertIn("/name", self.assert_error(self.agents.request(name + "n"), 400)["message"])
        digits = self.limits["json_digits"]
        for n, status in ((digits, 200), (digits + 1, 400)):
            answer = self.service.request("POST", "/v1/call", '{"name": "echo", "arguments": {"a": %s}}' % ("9" * n), token=self.agents.tokens["weather"])
            self.assertEqual(answer.status, status)
            if status == 200:
                self.assertIn(b'"result": {"a":%s}' % (b"9" * n), answer.body)

    # -- the answer --
    def test_answer_is_what_the_document_says(self):
        self.assertEqual([list(s) for s in self.document["paths"]["/v1/call"]["post"]["security"]], [["bearer"]])
        for name, arguments, status in (("echo", {"a": [1, None]}, 200), ("nothing", {}, 200), ("odd", {}, 200), ("exits", {"code": 3}, 200), ("nope", {}, 404), ("echo", [], 400)):
            with self.subTest(name=name, status=status):
                answer = self.agents.request(name, arguments)
                self.assertEqual(answer.status, status, answer)
                schema = self.document["paths"]["/v1/call"]["post"]["responses"][str(status)]["content"]["application/json"]["schema"]
                self.assertEqual(problems(self.document, schema, answer.json()), [])
                if jsonschema:
                    jsonschema.Draft202012Validator(dict(schema, components=self.document["components"])).validate(answer.json())
                    request = {"$ref": "#/components/schemas/CallRequest", "components": self.document["components"]}
                    self.assertEqual(jsonschema.Draft202012Validator(request).is_valid({"name": name, "arguments": arguments}), status != 400)

    def test_answer_has_every_field(self):
        answer = self.agents.call("writes", {"out": 5, "err": 3})
        self.assertEqual(
            sorted(answer),
            sorted(["sandbox_id", "run_id", "result", "stdout", "stderr", "exit_code", "duration_ms", "termination", "truncated", "stdout_bytes", "stderr_bytes", "usage", "egress", "python", "audit_hash", "processes", "refused_syscalls"]),
        )
        self.assertRegex(answer["sandbox_id"], r"^sandbox-[a-z0-9]{5,}$")
        self.assertEqual(answer["run_id"], answer["sandbox_id"])
        self.assertEqual((answer["stdout"], answer["stderr"], answer["exit_code"]), ("ooooo", "eee", 0))
        self.assertEqual(sorted(answer["usage"]["stages"]), ["build_ms", "load_ms", "queue_ms", "run_ms", "send_ms", "waited_ms"])
        record = self.service.request("GET", "/v1/runs/" + answer["run_id"], token=self.agents.tokens["weather"]).json()
        self.assertEqual((record["project"], record["state"]), ("demo", "ended"))

    def test_no_events_and_no_files(self):
        token = self.agents.tokens["weather"]
        answer = self.service.request("POST", "/v1/call", {"name": "value", "arguments": {"v": 1}}, token=token, headers={"Accept": "text/event-stream"})
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "application/json"))
        self.assertNotIn("files", answer.json())

    def test_every_call_has_a_sandbox_of_its_own(self):
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda n: self.agents.call("value", {"v": n}), range(12)))
        self.assertEqual([a["result"] for a in answers], list(range(12)))
        self.assertEqual(len({a["sandbox_id"] for a in answers}), 12)

    # -- what is no result --
    def test_unknown_tools(self):
        for name in ("nope", "app:nope", "os:system", "app:os.system", 'a "quoted" <name>', "é"):
            # The sandbox says so, which has imported the agent's modules: so it counts as something that ran, and has a record.
            error = self.assert_error(self.agents.request(name), 404, 'unknown tool "%s"' % name, "unknown_tool", ran=True)
            run = re.search(r"/v1/runs/(sandbox-\w+)", error["hint"]).group(1)
            self.assertEqual(self.service.request("GET", "/v1/runs/" + run, token=self.agents.tokens["weather"]).json()["agent"], "weather")

    def test_tools_that_do_not_load(self):
        self.agents.register("half", "weather", ["app", "broken"])
        for name in ("broken:anything", "nope"):  # it might be there
            answer = self.tool_error("ToolLoadError", "broken.*nothing_of_that_name", name, agent="half")
            self.assertIn("line 2", answer["error"]["traceback"])
        self.assertEqual(self.agents.result("value", {"v": 1}, agent="half"), 1)
        self.tool_error("ToolLoadError", "LIMIT is no tool", "app:LIMIT")
        self.assertEqual((self.agents.result("print"), self.agents.result("twice")), ("shadowed", 2))

    def test_describing_is_done_inside(self):
        self.agents.register("half", "weather", ["app", "broken"])
        answer = self.agents.call("weir:describe", {"tools": [{"name": "app:wrong", "signature": ""}, {"name": "broken:f", "signature": ""}]}, agent="half")
        self.assertEqual([t["ok"] for t in answer["result"]["tools"]], [True, False])
        self.assertRegex(answer["sandbox_id"], "^sandbox-")
        self.assertGreater(answer["usage"]["cpu_ms"]["value"], 0)

    def test_values_are_apart_from_no_value(self):
        for v in (None, False, 0, 0.0, "", [], {}, -1, 2**70, 1.5e-7, "\0\u2028\ufffe😀", [[{"a": [None]}]]):
            self.assertEqual(self.agents.result("value", {"v": v}), v)
        self.assertEqual(self.agents.result("pair"), [1, [2, [3]]])
        self.assertEqual(self.agents.result("surrogate"), {"\ufffd": "a\ufffdb\0\ufffe"})

    def test_results_that_are_no_json(self):
        for name, words in (
            ("twice_named", 'two keys become the name "1"'), ("tuple_key", "tuple"), ("a_date", r"\$\.rows\[1\]\.when: datetime\.datetime"), ("raw_bytes", "bytes"), ("nan", "nan"), ("circle", "contains itself"),
            ("endless", "generator"),
        ):  # fmt: skip
            self.assertEqual(self.tool_error("ToolResultError", words, name)["exit_code"], 1)
        self.assertEqual(self.agents.result("deep", {"n": self.limits["result_depth"]}), json.loads("[" * 60 + "1" + "]" * 60))
        for n in (self.limits["result_depth"] + 1, 100000):
            self.tool_error("ToolResultError", "60 levels", "deep", {"n": n})

    def test_size_of_a_result(self):
        limit = self.limits["result_bytes"]
        self.assertEqual(len(self.agents.result("large", {"n": limit})), limit - 2)
        self.tool_error("ToolResultError", "too large", "large", {"n": limit + 1})
        self.tool_error("ToolResultError", "too large", "huge", {"n": 200 << 20})
        if self._has_room():  # more than there is memory for, be it a result or not
            self.tool_error("ToolMemoryError", "memory limit of 1024 MiB exceeded", "huge", {"n": 1 << 30})

    @staticmethod
    def _has_room():
        with open("/proc/meminfo") as f:
            return int(re.search(r"MemAvailable: +(\d+)", f.read()).group(1)) > 3 << 20

    def test_ends_without_a_value(self):
        for name, arguments, words, exit_code, reason in (
            ("exits", {"code": 0}, r"tool ended without returning a value \(exit code 0\)", 0, "exit"),
            ("exits", {"code": 7}, r"tool ended without returning a value \(exit code 7\)", 7, "exit"),
            ("execs", {}, r"tool ended without returning a value \(exit code 0\)", 0, "exit"),
            ("kills_itself", {"n": 9}, r"tool ended without returning a value \(signal SIGKILL\)", 137, "signal"),
            ("kills_itself", {"n": 11}, r"tool ended without returning a value \(signal SIGSEGV\)", 139, "signal"),
        ):
            answer = self.tool_error("ToolEndedError", words, name, arguments)
            self.assertEqual((answer["exit_code"], answer["termination"]["reason"]), (exit_code, reason))
        self.tool_error("SystemExit", "tool ended without returning a value", "sys_exits")

    def test_exceptions(self):
        self.tool_error("KeyboardInterrupt", "by hand", "interrupts")
        self.assertIn("in odd", self.tool_error("Odd", "one of a kind", "odd")["error"]["traceback"])
        self.tool_error("Silent", "no message", "silent")
        self.tool_error("RecursionError", "recursion", "recurses")
        answer = self.tool_error("ValueError", "mmm", "long_message")
        self.assertLessEqual(len(answer["error"]["message"].encode()), self.limits["error_message_bytes"])
        self.assertLessEqual(len(answer["error"]["traceback"].encode()), self.limits["error_traceback_bytes"])

    def test_arguments(self):
        odd = {"self": 1, "class": 2, "print": 3, "not-an-identifier": 4, "é": 5, "": None, "n": 2**60 + 1, "deep": [[[{"x": [1.5, True]}]]], "t": "\0\ufffe😀"}
        self.assertEqual(self.agents.result("echo", odd), odd)
        self.assertEqual(self.agents.result("wrong", {"a": 1, "b": 2, "c": 3}), [1, 2, {"c": 3}])
        self.assertEqual(self.agents.result("positional", {"a": 1}), [1, 2])
        self.tool_error("TypeError", r"missing 1 required positional argument: 'a'", "wrong", {"b": 1})
        self.assertEqual(self.agents.result("awaited", {"a": 1}), 2)
        self.assertEqual((self.agents.result("leaves_tasks"), self.agents.result("runs_a_loop")), ("done", 2))

    # -- limits of a run --
    def test_output_over_its_cap_ends_the_call(self):
        cap = self.limits["call_output_bytes"]
        answer = self.agents.call("writes", {"out": cap, "err": cap})
        self.assertEqual((answer["result"], len(answer["stdout"]), len(answer["stderr"]), answer["truncated"]), ("written", cap, cap, False))
        for stream, arguments in (("stdout", {"out": cap + 1}), ("stderr", {"out": 0, "err": cap + 1})):
            answer = self.tool_error("ToolOutputError", "^%s limit of 1 MiB exceeded$" % stream, "writes", arguments)
            self.assertEqual((answer["exit_code"], answer["termination"]["reason"], answer["truncated"], len(answer[stream])), (137, "output", True, cap))

    def test_deadline(self):
        answer = self.tool_error("ToolTimeoutError", "^timed out after 1s$", "spins", timeout_s=1)
        self.assertEqual((answer["exit_code"], answer["stdout"], answer["stderr"], answer["termination"]["reason"]), (-1, "so far\n", "timed out after 1s", "timeout"))

    def test_memory(self):
        if not self._has_room():
            self.skipTest("less than 3 GiB of memory available")
        answer = self.tool_error("ToolMemoryError", "^memory limit of 1024 MiB exceeded$", "eats")
        self.assertEqual((answer["exit_code"], answer["termination"]["reason"]), (137, "memory"))

    def test_what_is_left_running_is_not_waited_for(self):
        began = time.monotonic()
        self.assertEqual(self.agents.result("threads_and_children"), "at once")
        self.assertLess(time.monotonic() - began, 10 * SLOW)

    def test_hanging_up_cancels(self):
        body = json.dumps({"name": "sleeps", "arguments": {"s": 100}, "timeout_s": 120}).encode()
        before = self._ended("cancelled")
        with socket.create_connection(("127.0.0.1", self.service.port)) as s:
            s.sendall(b"POST /v1/call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (self.agents.tokens["weather"].encode(), len(body)) + body)
            time.sleep(1.5)
        deadline = time.monotonic() + 20 * SLOW
        while self._ended("cancelled") == before:
            self.assertLess(time.monotonic(), deadline, "it still runs")
            time.sleep(0.2)

    def _ended(self, reason):
        runs = json.loads(run_weir("audit", "ls", "--json", "--limit", "0", state=self.agents.state))
        return sum((run.get("termination") or {}).get("reason") == reason for run in (runs["runs"] if isinstance(runs, dict) else runs))

    # -- a tool that lies --
    def test_forged_frames(self):
        no_result = "the result channel holds what is no result"
        for what, words in (
            ("before", "more than one frame"), ("twice", "more than one frame"), ("tail", "more than one frame"), ("cut", "cut short"), ("junk", "no frame's header"), ("names", "a name twice"), ("utf8", "UTF-8"),
            ("nested", "levels"), ("claims", "result too large"),
        ):  # fmt: skip
            with self.subTest(what=what):
                answer = self.tool_error("ToolResultError", no_result + ".*" + words, "forges", {"what": what})
                self.assertEqual((answer["exit_code"], answer["termination"]["reason"]), (0, "exit"))
        # What it may say is what it could have returned or raised; everything else is the supervisor's.
        answer = self.agents.call("forges", {"what": "whole"})
        self.assertEqual((answer["result"], answer["exit_code"], answer["termination"]["reason"]), ("its own", 0, "exit"))
        self.tool_error("T", "m", "forges", {"what": "error"})
        self.assert_error(self.agents.request("forges", {"what": "unknown"}), 404, 'unknown tool "forges"', ran=True)
        answer = self.tool_error("ToolResultError", no_result, "floods")
        self.assertEqual(answer["exit_code"], 9)

    def test_what_a_tool_prints_is_output(self):
        answer = self.agents.call("writes", {"out": 100})
        self.assertEqual((answer["result"], answer["stdout"]), ("written", "o" * 100))

    # -- secrets --
    def test_arguments_are_in_no_log(self):
        secret = "hunter2-%d-xyzzy" % os.getpid()
        for name in ("value", "nope", "wrong"):
            self.agents.request(name, {"v": secret} if name == "value" else {"b": secret})
        self.assertNotIn(secret, "".join(self.agents.result("seen")))
        running = threading.Thread(target=self.agents.request, args=("sleeps", {"s": 2, "x": secret}))
        running.start()
        time.sleep(0.5)
        lines = "".join(open(path, errors="replace").read() for path in glob.glob("/proc/[0-9]*/cmdline") if os.path.exists(path))
        running.join()
        self.assertNotIn(secret, lines)
        self.assertNotIn(secret, self.service.log_text())
        for path in glob.glob(self.agents.state + "/**/*", recursive=True):
            if os.path.isfile(path) and "/images/" not in path:
                with open(path, "rb") as f:
                    self.assertNotIn(secret.encode(), f.read(), path)

    def test_environment_is_empty_of_the_platform(self):
        found = self.agents.result("environment")
        self.assertEqual([n for n in found if re.match(r"SANDBOX_|TOOL_SANDBOX|CODE_INTERPRETER_|WEIR|(?i:\w+_proxy$)", n)], [])
        self.assertNotIn(self.agents.tokens["weather"], json.dumps(found))


class Page(unittest.TestCase):
    """The worked example of docs/api.md, as it stands there."""

    def test_worked_example(self):
        with open(os.path.join(TOP, "docs", "api.md")) as f:
            section = f.read().split("\n## POST /v1/call\n")[1].split("\n## ")[0]
        app = re.search(r"^```python\n(# app\.py\n.*?)^```", section, re.M | re.S).group(1)
        examples = re.findall(r"^```sh\n(curl.*?)^```\n```json\n(.*?)^```", section, re.M | re.S)
        self.assertEqual(len(examples), 2)
        with Agents({"app.py": app}, kind="docker") as agents:
            for command, want in examples:
                environment = dict(agents.environment(), PATH=os.environ["PATH"])
                done = subprocess.run(["sh", "-ec", command], env=environment, stdout=subprocess.PIPE, timeout=60 * SLOW)
                got = done.stdout.decode()
                self.assertTrue(like(re.sub(r"\n\s*", " ", want), got), "%s\nis not like\n%s" % (got, want))


if __name__ == "__main__":
    unittest.main()
