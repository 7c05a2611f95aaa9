# SPDX-License-Identifier: Apache-2.0
"""The SDK against a service that runs nothing. test_sdk.py runs this file with every Python of the machine."""
import asyncio
import contextlib
import functools
import gc
import importlib
import inspect
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import typing
import unittest
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
SDK = os.path.join(HERE, "..", "..", "..", "sdk", "python")
sys.path[:0] = [HERE, SDK]

import frameworks  # noqa: E402
import sdk_app  # noqa: E402
import stub_service  # noqa: E402
from stub_service import TOKEN, error, executed  # noqa: E402

import weir  # noqa: E402
import weir.adk  # noqa: E402
from weir import _client, _conversation, _files, _marks, _run, _settings, _signature, agent, isolation  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        self.service = stub_service.Service()
        self.addCleanup(self.service.stop)
        self.use(self.service)
        os.environ.pop("TOOL_SANDBOX", None)
        self.addCleanup(frameworks.remember(sdk_app, sdk_app.Station, sdk_app.station))

    def use(self, service):
        os.environ.update(SANDBOX_URL=service.url, SANDBOX_TOKEN=TOKEN)
        weir.configure(url=None, token=None, save_files=None, tool_timeout_s=30, retries=2)

    def session_mode(self, timeout_s=20):
        before = _run.interpreter
        _run.interpreter = weir.adk.interpreter = _settings.Interpreter(timeout_s, True)
        self.addCleanup(lambda: (setattr(_run, "interpreter", before), setattr(weir.adk, "interpreter", before)))

    def refused(self, *tools, **more):
        """The problems of a start with these tools; nothing may have been replaced or called."""
        listed = list(tools)
        with self.assertRaises(weir.ToolIsolationError) as raised:
            isolation.relocate(frameworks.OpenAIAgent("the_agent", listed, **more), ["sdk_app"])
        self.assertEqual(listed, list(tools))
        self.assertEqual(self.service.calls(), [])
        for p in raised.exception.problems:
            self.assertIn(p.reason, str(raised.exception))
            self.assertIn(p.mend, str(raised.exception))
            self.assertTrue(p.mend)
            self.assertEqual(p.agent, "the_agent")
        return raised.exception.problems

    def moved(self, *tools):
        listed = list(tools)
        self.assertIs(isolation.relocate(listed, ["sdk_app"]), listed)
        return listed


class Running(Case):
    def test_what_a_framework_sees_of_run_python(self):
        signature = inspect.signature(weir.run_python)
        self.assertEqual(list(signature.parameters), ["code"])
        self.assertEqual(typing.get_type_hints(weir.run_python), {"code": str, "return": dict})
        self.assertIs(signature.parameters["code"].annotation, str)
        self.assertIs(signature.return_annotation, dict)
        self.assertTrue(inspect.isfunction(weir.run_python))
        self.assertFalse(inspect.iscoroutinefunction(weir.run_python))
        self.assertTrue(inspect.iscoroutinefunction(weir.run_python_async))
        for function in (weir.run_python, weir.run_python_async, weir.adk.run_python):
            self.assertEqual(function.__name__, "run_python")
            for words in ("20 seconds", "no network", "packages", "starts from nothing", "Args:", "code:", "Returns:"):
                self.assertIn(words, " ".join(function.__doc__.split()))
            self.assertLess(max(map(len, function.__doc__.splitlines())), 130)
        self.assertEqual(list(inspect.signature(weir.adk.run_python).parameters), ["code", "tool_context"])

    def test_a_run(self):
        self.assertEqual(weir.run_python("print(1)"), {"stdout": "ran print(1)\n", "stderr": "", "exit_code": 0, "files": []})
        self.assertEqual(asyncio.run(weir.run_python_async("x"))["stdout"], "ran x\n")
        self.assertEqual(self.service.asked[0], ("POST", "/v1/execute", {"code": "print(1)", "timeout_s": 20}))
        with self.assertRaises(TypeError):
            weir.run_python(7)
        self.assertEqual(len(self.service.asked), 2)

    def test_what_the_model_could_not_see_is_a_note(self):
        self.service.answers = [
            (200, executed(exit_code=137, termination={"reason": "memory", "signal": "SIGKILL", "detail": "memory limit of 512 MiB exceeded"})),
            (200, executed(stderr="timed out after 20s", exit_code=-1, termination={"reason": "timeout", "signal": "SIGKILL", "detail": "timed out after 20s"})),
            (200, executed(truncated=True, stdout_bytes=5000000, stderr_bytes=0)),
            (200, executed(files_skipped=[{"path": "link", "reason": "symlink"}])),
        ]
        self.assertEqual(weir.run_python("")["note"], "memory limit of 512 MiB exceeded")
        self.assertNotIn("note", weir.run_python(""))
        self.assertIn("5000000 bytes of stdout", weir.run_python("")["note"])
        self.assertIn("file link was not kept: symlink", weir.run_python("")["note"])

    def test_headers_for_clients_of_ones_own(self):
        from crusoe_core.adapter import internal_caller_headers

        self.assertEqual(internal_caller_headers(), {"Authorization": "Bearer " + TOKEN})
        weir.configure(token="another")
        self.assertEqual(weir.internal_caller_headers(), {"Authorization": "Bearer another"})

    def test_missing_and_wrong_variables(self):
        for name in ("SANDBOX_URL", "SANDBOX_TOKEN"):
            value = os.environ.pop(name)
            with self.assertRaisesRegex(weir.ConfigurationError, name + " is not set .*weir agent env NAME"):
                weir.run_python("1")
            with self.assertRaisesRegex(weir.ConfigurationError, name + ".*weir agent env NAME"):
                self.moved(sdk_app.weather)
            os.environ[name] = value
        for url in ("ftp://x", "localhost:80", "http://", "http://x:port", "http://user@x", "http://x?y", "http://x/\u00fc", "http://\u2603", "http://x/a b", " http://x", "http://x\x7f"):
            os.environ["SANDBOX_URL"] = url
            with self.assertRaisesRegex(weir.ConfigurationError, "SANDBOX_URL"):
                weir.run_python("1")
        for token in ("a b", "a\nX: y", "ü"):
            weir.configure(token=token)
            with self.assertRaisesRegex(weir.ConfigurationError, "SANDBOX_TOKEN") as raised:
                weir.run_python("1")
            self.assertNotIn(token, str(raised.exception))
        for wrong in ({"tool_timeout_s": 0}, {"tool_timeout_s": 121}, {"tool_timeout_s": 1.5}, {"tool_timeout_s": {"a": 500}}, {"retries": -1}, {"token": 5}, {"url": b"http://x"}):
            with self.assertRaises(ValueError):
                weir.configure(**wrong)

    def test_the_deadline_is_read_when_the_agent_starts(self):
        def start(**variables):
            environment = dict(PATH=os.environ["PATH"], PYTHONPATH=SDK, **variables)
            command = [sys.executable, "-c", "import weir; print(weir.run_python.__doc__)"]
            return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

        done = start(CODE_INTERPRETER_TIMEOUT_S="119", CODE_INTERPRETER_SESSION="true")
        self.assertIn("119 seconds", done.stdout)
        self.assertIn("share one interpreter", done.stdout)
        done = start(CODE_INTERPRETER_TIMEOUT_S="121")
        self.assertEqual(done.returncode, 1)
        self.assertIn("CODE_INTERPRETER_TIMEOUT_S must be a whole number of seconds from 1 to 120", done.stderr.splitlines()[-1])

        read = _settings.Interpreter.read
        for variables, want in (({}, (20, False)), ({"CODE_INTERPRETER_TIMEOUT_S": "1"}, (1, False)), ({"CODE_INTERPRETER_TIMEOUT_S": "60"}, (60, False))):
            self.assertEqual(read(variables), want)
        self.assertEqual(read({"CODE_INTERPRETER_TIMEOUT_S": "120", "CODE_INTERPRETER_SESSION": "true"}), (120, True))
        for value in ("0", "121", "-5", "+5", "20.0", "1e1", " 20", "abc", "٢٠", "9" * 5000):
            with self.assertRaisesRegex(weir.ConfigurationError, "CODE_INTERPRETER_TIMEOUT_S must be a whole number of seconds from 1 to 120"):
                read({"CODE_INTERPRETER_TIMEOUT_S": value, "CODE_INTERPRETER_SESSION": "true"})
        with self.assertRaisesRegex(weir.ConfigurationError, "needs CODE_INTERPRETER_SESSION=true"):
            read({"CODE_INTERPRETER_TIMEOUT_S": "61"})
        with self.assertRaisesRegex(weir.ConfigurationError, 'CODE_INTERPRETER_SESSION must be "true" or "false", not "yes"'):
            read({"CODE_INTERPRETER_SESSION": "yes"})


class Files(Case):
    ANSWER = [{"path": "out/a.txt", "content_base64": "aGVsbG8=", "size": 5, "media_type": "text/plain"}, {"path": "b.bin", "content_base64": "AP8=", "size": 2}]

    def answer(self, files, run="sandbox-run1"):
        self.service.answers.append((200, executed(files=files, run_id=run)))

    def test_into_a_directory(self):
        with tempfile.TemporaryDirectory() as d:
            weir.configure(save_files=d)
            self.answer(self.ANSWER)
            self.assertEqual(weir.run_python("")["files"], ["out/a.txt", "b.bin"])
            with open(os.path.join(d, "sandbox-run1", "out", "a.txt"), "rb") as f:
                self.assertEqual(f.read(), b"hello")
            with open(os.path.join(d, "sandbox-run1", "b.bin"), "rb") as f:
                self.assertEqual(f.read(), b"\0\xff")
            self.answer(self.ANSWER, "sandbox-run2")  # files of another run never take their place
            weir.run_python("")
            self.assertEqual(sorted(os.listdir(d)), ["sandbox-run1", "sandbox-run2"])
            self.answer(self.ANSWER, "sandbox-run2")
            self.assertIn("could not be saved: File exists", weir.run_python("")["note"])

    def test_to_a_function(self):
        got = []
        weir.configure(save_files=got.append)
        self.answer(self.ANSWER)
        weir.run_python("")
        self.assertEqual(got[0], weir.SavedFile("out/a.txt", b"hello", "text/plain", "sandbox-run1"))
        self.assertEqual(len(got), 2)

    def test_a_name_that_leads_elsewhere_writes_nothing(self):
        for path in ("/etc/x", "../x", "a/../../x", "a//b", "./a", "", ".", "..", "a/", "a\0b"):
            with tempfile.TemporaryDirectory() as d:
                weir.configure(save_files=os.path.join(d, "in"))
                self.answer([dict(self.ANSWER[0]), dict(self.ANSWER[0], path=path)])
                with self.assertRaises(weir.ServiceError) as raised:
                    weir.run_python("")
                self.assertIs(raised.exception.ran, True)
                self.assertEqual(os.listdir(d), [], path)
            self.assertFalse(_files.name_ok(path))
        self.answer([dict(self.ANSWER[0], content_base64="a b")])
        self.assertRaises(weir.ServiceError, weir.run_python, "")
        self.answer(self.ANSWER, "../up")
        self.assertRaises(weir.ServiceError, weir.run_python, "")

    def test_a_directory_that_is_there_already_is_not_used(self):
        with tempfile.TemporaryDirectory() as d:
            os.mkdir(os.path.join(d, "elsewhere"))
            os.symlink("elsewhere", os.path.join(d, "sandbox-run1"))
            weir.configure(save_files=d)
            self.answer(self.ANSWER)
            self.assertIn("file b.bin could not be saved", weir.run_python("")["note"])
            self.assertEqual(os.listdir(os.path.join(d, "elsewhere")), [])
            self.answer([dict(self.ANSWER[0], path="\ud800"), self.ANSWER[1]], "sandbox-run2")
            result = weir.run_python("")
            self.assertEqual((result["note"].count("could not be saved"), os.listdir(os.path.join(d, "sandbox-run2"))), (1, ["b.bin"]))

    def test_a_link_that_somebody_has_put_there_is_not_followed(self):
        with tempfile.TemporaryDirectory() as d:
            os.makedirs(os.path.join(d, "in", "sandbox-run1"))
            os.symlink(os.path.join(d, "target"), os.path.join(d, "in", "sandbox-run1", "b.bin"))
            weir.configure(save_files=os.path.join(d, "in"))
            self.answer(self.ANSWER[1:])
            self.assertIn("could not be saved", weir.run_python("")["note"])
            self.assertFalse(os.path.exists(os.path.join(d, "target")))


class Errors(Case):
    def test_each_status(self):
        rows = [
            (400, "invalid_timeout", weir.RequestError),
            (401, "unauthorized", weir.AuthenticationError),
            (403, "forbidden", weir.AuthenticationError),
            (404, "unknown_tool", weir.NotFoundError),
            (409, "session_busy", weir.BusyError),
            (413, "too_large", weir.RequestError),
            (415, "unsupported_media_type", weir.RequestError),
            (500, "sandbox_failed", weir.ServiceError),
            (502, "path_escapes", weir.RequestError),
        ]
        for status, code, kind in rows:
            before = len(self.service.asked)
            self.service.answers = [(status, error(code, "the message", False, "the hint"))]
            with self.assertRaises(kind) as raised:
                weir.run_python("")
            e = raised.exception
            self.assertIsInstance(e, weir.WeirError)
            self.assertEqual((e.status, e.code, e.message, e.hint, e.ran), (status, code, "the message", "the hint", False))
            self.assertEqual(str(e), "the message (the hint)")
            self.assertEqual(len(self.service.asked), before + 1)

    def test_what_is_none_of_the_services_answers(self):
        for again in ("\u00b2", "9" * 5000, "-1"):
            self.service.answers = [(503, error("x", "later"), {"Retry-After": again})]
            weir.configure(retries=0)
            with self.assertRaises(weir.BusyError) as raised:
                weir.run_python("")
            self.assertIsNone(raised.exception.retry_after)
        self.service.answers = [(200, b"[" * 200000)]
        self.assertRaises(weir.ServiceError, weir.run_python, "")
        for status, body in ((502, b"<html>bad gateway</html>"), (200, b"[1]"), (200, b"no json"), (500, {"error": "x"}), (418, {"error": {"message": 1}})):
            self.service.answers = [(status, body)]
            with self.assertRaises(weir.ServiceError) as raised:
                weir.run_python("")
            self.assertIsNone(raised.exception.ran)

    def test_again_only_when_nothing_ran_and_the_service_said_later(self):
        for status in (429, 503):
            self.service.answers = [(status, error("x", "later"), {"Retry-After": "0"})] * 2
            before = len(self.service.asked)
            self.assertEqual(weir.run_python("y")["stdout"], "ran y\n")
            self.assertEqual(len(self.service.asked), before + 3)
        self.service.answers = [(503, error("x", "later"), {"Retry-After": "0"})] * 9
        before = len(self.service.asked)
        with self.assertRaises(weir.BusyError) as raised:
            weir.run_python("y")
        self.assertEqual((len(self.service.asked) - before, raised.exception.retry_after), (3, 0))
        self.service.answers = []
        once = (
            (503, error("x", "it ran", True), {"Retry-After": "0"}),
            (500, error("x", "no"), {"Retry-After": "0"}),
            (409, error("x", "no"), {"Retry-After": "0"}),
            (503, {"error": {"code": "x", "message": "nobody knows"}}, {"Retry-After": "0"}),
            (503, error("x", "much later"), {"Retry-After": "3600"}),
        )
        for answer in once:
            before = len(self.service.asked)
            self.service.answers = [answer]
            self.assertRaises(weir.WeirError, weir.run_python, "y")
            self.assertEqual(len(self.service.asked), before + 1, answer)
        weir.configure(retries=0)
        self.service.answers = [(503, error("x", "later"), {"Retry-After": "0"})]
        self.assertRaises(weir.BusyError, weir.run_python, "y")

    def test_the_pause_is_what_was_asked_for(self):
        class Handle(_client.Handle):
            def __init__(self):
                super().__init__()
                self.pauses, self.cancelled.wait = [], lambda seconds: self.pauses.append(seconds)

        handle = Handle()
        self.service.answers = [(503, error("x", "later"), {"Retry-After": "7"}), (503, error("x", "later"))]
        _client.client().execute("y", 20, None, handle)
        self.assertEqual(handle.pauses, [7, 1])

    def test_nobody_there(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            os.environ["SANDBOX_URL"] = "http://127.0.0.1:%d" % s.getsockname()[1]
        with self.assertRaisesRegex(weir.UnreachableError, "can't connect.*SANDBOX_URL") as raised:
            weir.run_python("")
        self.assertIs(raised.exception.ran, False)
        self.assertIsInstance(raised.exception, ConnectionError)

    def test_a_connection_that_breaks_is_not_tried_again(self):
        self.service.answers = [lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)]
        with self.assertRaises(weir.UnreachableError) as raised:
            weir.run_python("")
        self.assertIsNone(raised.exception.ran)
        self.assertEqual(len(self.service.asked), 1)

    def test_time_out(self):
        wait = _client.POOL_WAIT_S, _client.MARGIN_S
        self.addCleanup(lambda: (setattr(_client, "POOL_WAIT_S", wait[0]), setattr(_client, "MARGIN_S", wait[1])))
        self.assertEqual(wait, (30, 15))
        _client.POOL_WAIT_S, _client.MARGIN_S = 0, -19.8
        let_go = threading.Event()
        self.service.answers = [lambda handler: let_go.wait(10) and None]
        began = time.monotonic()
        with self.assertRaises(weir.ServiceTimeoutError) as raised:
            weir.run_python("")
        let_go.set()
        self.assertLess(time.monotonic() - began, 3)
        self.assertIsNone(raised.exception.ran)
        self.assertIsInstance(raised.exception, TimeoutError)
        self.assertEqual(len(self.service.asked), 1)

    def test_time_out_of_an_answer_that_comes_in_drops(self):
        def drip(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            for _ in range(40):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.05)

        client = _client.client()
        self.service.answers = [drip]
        began = time.monotonic()
        self.assertRaises(weir.ServiceTimeoutError, client.ask, "POST", "/v1/execute", {}, 0.3)
        self.assertLess(time.monotonic() - began, 1.5)

    def test_the_token_is_in_no_message(self):
        client = _client.client()
        self.assertNotIn(TOKEN, repr(client) + repr(weir._options))
        self.service.answers = [(500, error("x", "y"))]
        try:
            weir.run_python("")
        except weir.WeirError as e:
            self.assertNotIn(TOKEN, str(e) + repr(e) + repr(vars(e)))


class Connections(Case):
    def test_are_kept(self):
        for i in range(5):
            weir.run_python(str(i))
        self.assertEqual(len(self.service.peers), 1)

    def test_one_that_was_closed_meanwhile_is_noticed(self):
        def close(handler):
            handler.close_connection = True
            return 200, executed("closed")

        self.service.answers = [close]
        self.assertEqual(weir.run_python("")["stdout"], "closed")
        (_, kept), deadline = _client.client()._idle[0], time.monotonic() + 10
        while not _client.readable(kept.sock) and time.monotonic() < deadline:
            time.sleep(0.001)
        self.assertEqual(weir.run_python("z")["stdout"], "ran z\n")
        self.assertEqual(len(self.service.peers), 2)

    def test_threads(self):
        results, proxy = [], self.moved(sdk_app.weather)[0]

        def work(i):
            results.append((weir.run_python(str(i))["stdout"] == "ran %d\n" % i, proxy(str(i))["city"] == str(i)))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(results, [(True, True)] * 32)

    def test_a_fork_does_not_share_them(self):
        weir.run_python("before")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are threads
            pid = os.fork()
        if pid == 0:
            ok = weir.run_python("child")["stdout"] == "ran child\n"
            os._exit(0 if ok else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(weir.run_python("after")["stdout"], "ran after\n")
        self.assertEqual(len(self.service.peers), 2)

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as d, stub_service.Service(unix=os.path.join(d, "s")) as service:
            for url in (service.url, service.url.replace("unix:", "unix://")):
                os.environ["SANDBOX_URL"] = url
                self.assertEqual(weir.run_python("u")["stdout"], "ran u\n")
            os.environ["SANDBOX_URL"] = "unix:" + os.path.join(d, "none")
            self.assertRaises(weir.UnreachableError, weir.run_python, "")

    def test_tls(self):
        with tempfile.TemporaryDirectory() as d:
            key, certificate = os.path.join(d, "key"), os.path.join(d, "crt")
            command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
            subprocess.run(command + ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
            with stub_service.Service(certificate=(certificate, key)) as service:
                os.environ["SANDBOX_URL"] = service.url
                with self.assertRaisesRegex(weir.UnreachableError, "(?i)certificate"):
                    weir.run_python("")
                os.environ["SSL_CERT_FILE"] = certificate
                self.addCleanup(os.environ.pop, "SSL_CERT_FILE")
                weir.configure(url=service.url + "/")
                for i in range(3):
                    self.assertEqual(weir.run_python("t")["stdout"], "ran t\n")
                self.assertEqual(len(service.asked), 3)

    def test_a_fork_does_not_wait_for_a_thread_that_is_not_there(self):
        weir.run_python("before")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _client._lock, _client.client.__globals__["_client"]._lock, _conversation._lock:
                pid = os.fork()
                if pid == 0:
                    signal.alarm(5)
                    with weir.conversation("c"):
                        ok = weir.run_python("child")["stdout"] == "ran child\n"
                    os._exit(0 if ok else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_what_utf8_does_not_have_is_left_to_the_service(self):
        weir.run_python("'\ud800'")
        self.assertEqual(self.service.asked[0][2]["code"], "'\ud800'")

    def test_a_task_that_is_cancelled_gives_its_request_up(self):
        began, ended = threading.Event(), threading.Event()

        def answer(handler):
            began.set()
            handler.connection.settimeout(5)
            ended_by = handler.connection.recv(1)
            if ended_by == b"":
                ended.set()

        self.service.answers = [answer]

        async def main():
            task = asyncio.ensure_future(weir.run_python_async("long"))
            while not began.is_set():
                await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        self.assertTrue(ended.wait(3))
        self.assertEqual(weir.run_python("z")["stdout"], "ran z\n")


    def test_an_exception_that_no_future_takes(self):
        def stop(file):
            raise StopIteration("over")

        weir.configure(save_files=stop)
        self.service.answers = [(200, executed(files=Files.ANSWER))]

        async def main():
            await asyncio.wait_for(weir.run_python_async(""), 5)

        with self.assertRaisesRegex(RuntimeError, "StopIteration") as raised:
            asyncio.run(main())
        self.assertIsInstance(raised.exception.__cause__, StopIteration)

    def test_a_coroutine_that_is_closed_gives_its_request_up(self):
        began, ended = threading.Event(), threading.Event()

        def answer(handler):
            began.set()
            handler.connection.settimeout(5)
            if handler.connection.recv(1) == b"":
                ended.set()

        self.service.answers = [answer]

        async def main():
            run = weir.run_python_async("long")
            run.send(None)
            await asyncio.get_running_loop().run_in_executor(None, began.wait, 5)
            run.close()

        asyncio.run(main())
        self.assertTrue(ended.wait(5))


class Conversations(Case):
    def setUp(self):
        super().setUp()
        self.session_mode()
        _conversation._known.clear()

    def sessions_used(self):
        return [b["session_id"] for _, p, b in self.service.asked if p == "/v1/execute"]

    def test_without_one_it_is_an_error(self):
        for call in (lambda: weir.run_python("1"), lambda: weir.adk.run_python("1"), lambda: weir.adk.run_python("1", tool_context=object())):
            with self.assertRaisesRegex(weir.NoConversationError, "CODE_INTERPRETER_SESSION=true"):
                call()
        self.assertEqual(self.service.asked, [])

    def test_single_use_does_not_care(self):
        _run.interpreter = weir.adk.interpreter = _settings.Interpreter(20, False)
        with weir.conversation("a"):
            weir.run_python("1")
        self.assertEqual(self.service.asked, [("POST", "/v1/execute", {"code": "1", "timeout_s": 20})])

    def test_opened_by_the_first_call_and_closed_at_the_end(self):
        with weir.conversation("a"):
            self.assertEqual(self.service.asked, [])
            weir.run_python("1")
            with weir.conversation("b"):
                weir.run_python("2")
            weir.run_python("3")
            self.assertEqual(len(self.service.sessions), 1)
        self.assertEqual(self.service.sessions, {})
        a, b, again = self.sessions_used()
        self.assertEqual(a, again)
        self.assertNotEqual(a, b)
        with weir.conversation(0):
            pass
        self.assertEqual([m for m, _, _ in self.service.asked].count("DELETE"), 2)
        self.assertEqual(len(_conversation._known), 0)
        self.assertRaises(ValueError, weir.conversation, "")

    def test_two_blocks_of_one_conversation(self):
        with weir.conversation("a"):
            weir.run_python("1")
            with weir.conversation("a"):
                weir.run_python("2")
            weir.run_python("3")
        self.assertEqual(len(set(self.sessions_used())), 1)
        self.assertEqual(self.service.sessions, {})

    def test_an_id_may_be_anything(self):
        for id_ in (0, ("user", 7), False):
            with weir.conversation(id_):
                weir.run_python("1")
        self.assertEqual(len(set(self.sessions_used())), 3)

    def test_left_in_another_context_it_is_closed_all_the_same(self):
        import contextvars

        block = weir.conversation("a")
        contextvars.copy_context().run(lambda: (block.__enter__(), weir.run_python("1")))
        block.__exit__(None, None, None)
        self.assertEqual(self.service.sessions, {})

    def test_an_error_in_the_block_closes_it_too(self):
        with self.assertRaises(KeyError):
            with weir.conversation("a"):
                weir.run_python("1")
                raise KeyError()
        self.assertEqual(self.service.sessions, {})

    def test_tasks_and_threads(self):
        async def one(i):
            async with weir.conversation(i):
                await weir.run_python_async("1")
                await asyncio.sleep(0.01)
                await asyncio.gather(weir.run_python_async("2"), asyncio.get_running_loop().run_in_executor(None, _in_context(), "3"))

        def _in_context():
            import contextvars

            return functools.partial(contextvars.copy_context().run, weir.run_python)

        async def main():
            await asyncio.gather(*(one(i) for i in range(1, 9)))

        asyncio.run(main())
        used = self.sessions_used()
        self.assertEqual((len(used), len(set(used))), (24, 8))
        self.assertEqual(self.service.sessions, {})

        errors = []

        def outside():
            try:
                weir.run_python("1")
            except weir.NoConversationError as e:
                errors.append(e)

        with weir.conversation("a"):
            thread = threading.Thread(target=outside)
            thread.start()
            thread.join()
        self.assertEqual(len(errors), 1)

    def test_calls_at_once_open_one_session(self):
        def work():
            with weir.conversation("shared"):
                barrier.wait()
                weir.run_python("1")
                barrier.wait()

        barrier = threading.Barrier(8)
        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(set(self.sessions_used())), 1)
        self.assertEqual(self.service.sessions, {})

    def test_one_that_was_lost_is_opened_anew_with_a_note(self):
        with weir.conversation("a"):
            self.assertNotIn("note", weir.run_python("1"))
            self.service.sessions.clear()
            self.assertIn("was lost", weir.run_python("2")["note"])
            self.assertNotIn("note", weir.run_python("3"))
        one, lost, two, three = self.sessions_used()
        self.assertEqual((one == lost, two == three, one == two), (True, True, False))

    def test_a_run_that_ends_it(self):
        with weir.conversation("a"):
            self.service.answers = [(201, {"session_id": "sandbox-x"}), (200, executed(session_ended=True, exit_code=7))]
            self.assertIn("this run ended the interpreter", weir.run_python("1")["note"])
            self.assertNotIn("note", weir.run_python("2"))

    def test_one_that_cant_be_closed_is_logged(self):
        with self.assertLogs("weir", "WARNING"), weir.conversation("a"):
            weir.run_python("1")
            self.service.answers = [(500, error("x", "y"))]

    def test_adk(self):
        class Session:
            def __init__(self, id):
                self.id, self.app_name, self.user_id = id, "app", "user"

        class Old:
            def __init__(self, session):
                self._invocation_context = frameworks.ToolContext(session)

        one, two = Session("one"), Session("two")
        for context in (frameworks.ToolContext(one), frameworks.ToolContext(two), Old(one)):
            weir.adk.run_python("1", tool_context=context)
        a, b, again = self.sessions_used()
        self.assertEqual((a == again, a == b), (True, False))
        with weir.conversation("mine"):
            weir.adk.run_python("1", tool_context=frameworks.ToolContext(one))
        self.assertNotIn(self.sessions_used()[-1], (a, b))
        weir.end_conversation(("adk", "app", "user", "one"))
        self.assertEqual(list(self.service.sessions), [b])

    def test_adk_gets_the_one_that_asks_for_its_context(self):
        agent_ = frameworks.LlmAgent("a", [weir.run_python], sub_agents=[frameworks.LlmAgent("b", [frameworks.AdkFunctionTool(weir.run_python)])])
        weir.isolate(agent_)
        self.assertIs(agent_.tools[0], weir.adk.run_python)
        listed = [weir.run_python]
        weir.isolate(listed)
        self.assertIs(listed[0], weir.run_python)

    def test_a_fork_has_interpreters_of_its_own(self):
        code = """if True:
            import os, sys, weir
            with weir.conversation("a"):
                weir.run_python("1")
                pid = os.fork()
                if pid == 0:
                    weir.run_python("2")
                    sys.exit()
                assert os.waitpid(pid, 0)[1] == 0
                weir.run_python("3")
                assert len(sys.modules["weir"]._conversation._known) == 1
            """
        environment = dict(os.environ, PYTHONPATH=SDK, CODE_INTERPRETER_SESSION="true")
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=30)
        one, two, three = self.sessions_used()
        self.assertEqual((one == three, one == two), (True, False))
        self.assertEqual([p.rpartition("/")[2] for m, p, _ in self.service.asked if m == "DELETE"], [two, one])

    def test_what_is_open_at_the_end_of_the_process_is_closed(self):
        code = "import weir\nc = weir.conversation('a')\nc.__enter__()\nweir.run_python('1')"
        environment = dict(os.environ, PYTHONPATH=SDK, CODE_INTERPRETER_SESSION="true")
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        self.assertEqual(self.service.asked[-1][0], "DELETE")
        self.assertEqual(self.service.sessions, {})


class Moving(Case):
    def test_signatures_names_words_and_kinds_stay(self):
        app = sdk_app
        rows = [app.weather, app.forecast, app.annotated_as_text, app.positional, app.wrapped, app.cached, app.station.read, app.station.read_async]
        rows += [app.Station.kinds, app.station.version, app.both_ways, app.boom]
        for function, proxy in zip(rows, self.moved(*rows)):
            self.assertIsNot(proxy, function)
            self.assertEqual(inspect.signature(proxy), inspect.signature(function))
            for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__"):
                self.assertEqual(getattr(proxy, name), getattr(function, name), (function, name))
            self.assertEqual(typing.get_type_hints(proxy), typing.get_type_hints(function), function)
            self.assertEqual(inspect.iscoroutinefunction(proxy), inspect.iscoroutinefunction(function))
            self.assertTrue(inspect.isfunction(proxy))
            self.assertIs(inspect.unwrap(proxy), proxy)  # nothing leads back to the local one
        self.assertEqual(self.moved(app.weather)[0].tag, "kept")

    def test_calls_arrive_as_python_would_bind_them(self):
        weather, positional, text = self.moved(sdk_app.weather, sdk_app.positional, sdk_app.annotated_as_text)
        self.assertEqual(weather("Bern"), {"city": "Bern", "days": 3, "units": "c", "more": {}})
        self.assertEqual(weather("Bern", 2, units="f", lang="de"), {"city": "Bern", "days": 2, "units": "f", "more": {"lang": "de"}})
        self.assertEqual(positional(1), [1, 2, 3])
        self.assertEqual(positional(1, 5, c=6), [1, 5, 6])
        self.assertEqual(text("x", when=("a", "b")), {"city": "x", "when": ["a", "b"]})
        self.assertEqual(
            self.service.calls()[1], {"name": "sdk_app:weather", "arguments": {"city": "Bern", "days": 2, "units": "f", "lang": "de"}, "timeout_s": 30}
        )
        self.assertEqual(weather(city="ß" * 3 + "\U0001f600", days=2**60)["days"], 2**60)

    def test_a_default_is_the_tools_own(self):
        (weather,) = self.moved(sdk_app.weather)
        weather("Bern", days=3)
        self.assertEqual(self.service.calls()[0]["arguments"], {"city": "Bern", "days": 3})
        (default,) = self.moved(sdk_app.object_as_default)
        self.assertEqual(default("x", sdk_app.MISSING), ["x", True])
        self.assertEqual(self.service.calls()[1]["arguments"], {"city": "x"})

    def test_wrong_arguments_never_leave(self):
        weather, positional, forecast = self.moved(sdk_app.weather, sdk_app.positional, sdk_app.forecast)
        circle = []
        circle.append(circle)
        wrong = [
            lambda: weather(),
            lambda: weather("a", "b", "c"),
            lambda: weather("a", city="b"),
            lambda: positional(a=1),
            lambda: weather(object()),
            lambda: weather(b"x"),
            lambda: weather("a", days=float("nan")),
            lambda: weather({1: "x"}),
            lambda: weather("a", days=10**4300),
            lambda: weather("a", days=-(10**5000)),
            lambda: weather({"x": [1, {2}]}),
            lambda: weather(circle),
            lambda: weather(sdk_app.Colour.RED),
            lambda: asyncio.run(forecast()),
            lambda: asyncio.run(forecast(b"")),
        ]
        for call in wrong:
            with self.assertRaisesRegex(TypeError, r"^(weather|positional|forecast)\(\) "):
                call()
        with self.assertRaisesRegex(TypeError, r"argument city\.x\[1\] is a set, which JSON does not have"):
            weather({"x": [1, {2}]})
        self.assertEqual(self.service.calls(), [])

    def test_async_tools(self):
        forecast, read = self.moved(sdk_app.forecast, sdk_app.station.read_async)

        async def main():
            return await asyncio.gather(*(forecast(str(i), hours=["1"]) for i in range(20)), read(unit="k"))

        results = asyncio.run(main())
        self.assertEqual(results, [[str(i), ["1"]] for i in range(20)] + [["north", "k"]])

    def test_methods_decorated_partials_and_objects(self):
        app = sdk_app
        wrapped, cached, retried, kinds, version, half, multiply, decorated = self.moved(
            app.wrapped, app.cached, app.retried, app.Station.kinds, app.Station.version, app.half, app.multiply, app.decorated
        )
        self.assertEqual(decorated(3), ["decorated", 3])  # a closure, but one that the module holds under a name
        self.assertEqual(wrapped(3), ["wrapped", 3])
        self.assertEqual(cached(3), 6)
        self.assertEqual(retried(3), ["retried", 3])
        self.assertEqual(kinds(), ["Station", 1])
        self.assertEqual(version(), "1")
        self.assertEqual(half("x"), {"city": "x", "days": 1, "units": "c", "more": {}})
        self.assertEqual(multiply(6, b=7), 42)
        self.assertEqual((multiply.__name__, multiply.__doc__, half.__name__), ("multiply", "Multiplies.", "half"))
        self.assertEqual(typing.get_type_hints(multiply), {"a": int, "b": int, "return": int})
        self.assertEqual({b["name"] for b in self.service.calls()} >= {"sdk_app:Station.kinds", "sdk_app:retried", "sdk_app:half"}, True)

    def test_an_error_of_the_tool(self):
        (boom,) = self.moved(sdk_app.boom)
        with self.assertRaises(weir.ToolError) as raised:
            boom("x")
        e = raised.exception
        self.assertEqual((e.type, e.tool_message, e.ran, e.exit_code), ("ValueError", "no good: x", True, 1))
        self.assertEqual(str(e), "ValueError: no good: x")
        self.assertIn('File "/app/sdk_app.py", line 7', e.traceback)
        self.assertIn(e.traceback.rstrip(), e.__notes__[0])
        if sys.version_info >= (3, 11):
            import traceback

            self.assertIn('/app/sdk_app.py", line 7', "".join(traceback.format_exception(e)))

    def test_the_services_words_for_how_it_ended(self):
        (boom,) = self.moved(sdk_app.boom)
        rows = [
            ("ToolTimeoutError", "timeout", "timed out after 30s", weir.ToolTimeoutError),
            ("ToolEndedError", "timeout", "timed out after 30s", weir.ToolTimeoutError),
            ("ToolMemoryError", "memory", "memory limit of 1 GiB exceeded", weir.ToolEndedError),
            ("ToolEndedError", "signal", "", weir.ToolEndedError),
            ("ToolResultError", "exit", "", weir.ToolResultError),
            ("ToolLoadError", "exit", "", weir.ToolLoadError),
            ("KeyError", "exit", "", weir.ToolError),
        ]
        for type_, reason, detail, kind in rows:
            answer = executed(error={"type": type_, "message": "words", "traceback": ""}, termination={"reason": reason, "signal": None, "detail": detail})
            self.service.answers = [(200, answer)]
            with self.assertRaises(weir.ToolError) as raised:
                boom("x")
            self.assertIs(type(raised.exception), kind)
            if issubclass(kind, (weir.ToolEndedError, weir.ToolTimeoutError)):
                self.assertIn(detail, str(raised.exception))
        self.service.answers = [(200, executed())]
        self.assertRaises(weir.ServiceError, boom, "x")
        self.service.answers = [(200, executed(result=None))]
        self.assertIsNone(boom("x"))
        self.service.answers = [(503, error("tool_not_ready", "not ready"), {"Retry-After": "99"})]
        self.assertRaises(weir.BusyError, boom, "x")

    def test_what_a_tool_prints_goes_to_the_log(self):
        (weather,) = self.moved(sdk_app.weather)
        with self.assertLogs("weir.tools", "INFO") as logs:
            weather("x")
        self.assertIn("stdout of weather: pid ", logs.output[0])

    def test_deadlines(self):
        weather, forecast = self.moved(sdk_app.weather, sdk_app.cached)
        weir.configure(tool_timeout_s={"weather": 90})
        weather("x"), forecast(1)
        weir.configure(tool_timeout_s={"sdk_app:weather": 7})
        weather("x")
        weir.configure(tool_timeout_s=5)
        weather("x")
        self.assertEqual([b["timeout_s"] for b in self.service.calls()], [90, 30, 7, 5])

    def test_run_python_is_left_as_it_is(self):
        listed = [weir.run_python, weir.run_python_async, sdk_app.weather]
        weir.isolate(listed)
        self.assertIs(listed[0], weir.run_python)
        self.assertIs(listed[1], weir.run_python_async)
        self.assertTrue(hasattr(listed[2], "__weir_tool__"))

    def test_containers(self):
        tools = {"w": sdk_app.weather, "r": weir.run_python}
        self.assertIs(weir.isolate(tools), tools)
        self.assertEqual(tools["w"]("x")["city"], "x")
        new = weir.isolate((sdk_app.weather, sdk_app.cached))
        self.assertEqual((type(new), new[1](2)), (tuple, 4))
        self.assertEqual(weir.isolate(sdk_app.weather)("x")["city"], "x")

        class Bare:
            tools = (sdk_app.weather,)

        bare = weir.isolate(Bare())
        self.assertEqual(bare.tools[0]("y")["city"], "y")
        before = list(tools.values())
        weir.isolate(tools)  # once more
        self.assertEqual(list(tools.values()), before)

    def test_google_adk(self):
        inner = frameworks.AdkFunctionTool(sdk_app.cached)
        leaf = frameworks.LlmAgent("leaf", [inner])
        helper = frameworks.LlmAgent("helper", [sdk_app.forecast])
        root = frameworks.LlmAgent("root", [sdk_app.weather, frameworks.AgentTool(helper), weir.run_python], sub_agents=[frameworks.BaseAgent("loop", [leaf])])
        self.assertIs(weir.isolate(root), root)
        for f in (root.tools[0], helper.tools[0], inner.func):
            self.assertTrue(f.__weir_tool__.startswith("sdk_app:"))
        self.assertEqual(asyncio.run(inner.run_async(args={"x": 4}, tool_context=None)), 8)

        class App:
            name, root_agent = "app", frameworks.LlmAgent("other", [sdk_app.weather])

        weir.isolate(App())
        self.assertTrue(hasattr(App.root_agent.tools[0], "__weir_tool__"))

    def test_langchain(self):
        app = sdk_app
        tools = [app.structured, app.structured_async, app.pair, app.class_tool]
        originals = [(t, dict(vars(t))) for t in tools]
        self.addCleanup(lambda: [(vars(t).clear(), vars(t).update(v)) for t, v in originals])
        both_ways = app.both_ways
        listed = self.moved(*tools)
        self.assertTrue(all(a is b for a, b in zip(listed, tools)))
        self.assertTrue(hasattr(app.structured.func, "__weir_tool__"))
        # A real image has the tools as they were; here they are one and the same.
        found = {"sdk_app:structured": originals[0][1]["func"], "sdk_app:both_ways": both_ways}
        found["sdk_app:structured_async"], found["sdk_app:class_tool._run"] = originals[1][1]["coroutine"], functools.partial(app.ClassTool._run, None)
        self.service.find = lambda name: found[name]
        self.assertEqual(app.structured.invoke({"q": "x"}), "structured x")
        self.assertEqual(asyncio.run(app.structured_async.ainvoke({"q": "x"})), "structured async x")
        self.assertEqual(app.pair.invoke({"q": "x"}), ("content", "x"))
        self.assertEqual(app.class_tool.invoke({"q": "x"}), "class x")

        class Node:
            def __init__(self, tool):
                self.bound = type("ToolNode", (), {"tools_by_name": {"f": tool}})()

        class Graph:
            nodes = {"tools": Node(app.structured), "start": object()}

        plan = isolation.Plan(Graph(), ["sdk_app"])
        self.assertIn("in sandboxes already", plan.rows[0].becomes)

    def test_openai_agents(self):
        app = sdk_app
        kept = [(c, c.cell_contents) for c in (isolation._locate.hidden_function(t) for t in (app.openai_tool, app.openai_tool_async))]
        self.addCleanup(lambda: [setattr(c, "cell_contents", v) for c, v in kept])
        other, third = frameworks.OpenAIAgent("other", [app.openai_tool_async]), frameworks.OpenAIAgent("third", [app.weather])
        root = frameworks.OpenAIAgent("root", [app.openai_tool, frameworks.function_tool(weir.run_python)], handoffs=[other, frameworks.handoff(third)])
        weir.isolate(root)
        self.assertTrue(hasattr(third.tools[0], "__weir_tool__"))
        found = {"sdk_app:openai_tool": kept[0][1], "sdk_app:openai_tool_async": kept[1][1]}
        self.service.find = lambda name: found[name]
        self.assertEqual(asyncio.run(app.openai_tool.on_invoke_tool(None, '{"q": "x"}')), "openai x")
        self.assertEqual(asyncio.run(app.openai_tool_async.on_invoke_tool(None, '{"q": "x"}')), "openai async x")
        self.assertEqual([b["name"] for b in self.service.calls()], ["sdk_app:openai_tool", "sdk_app:openai_tool_async"])
        self.assertEqual(asyncio.run(root.tools[1].on_invoke_tool(None, '{"code": "1"}'))["stdout"], "ran 1\n")

    def test_the_examples(self):
        sys.path.insert(0, os.path.join(SDK, "examples"))
        self.addCleanup(sys.path.remove, os.path.join(SDK, "examples"))
        for name, target in (("google_adk", "root_agent"), ("langchain_tools", "app"), ("openai_agents", "app")):
            self.service.modules = {name}
            agent_ = agent.load(name, target)
            self.addCleanup(sys.modules.pop, name)
            plan = isolation.Plan(agent_, [name])
            self.assertEqual(sorted(r.becomes.rpartition(" ")[2] for r in plan.rows), sorted(["already", name + ":exchange", name + ":first_words"]))
            self.assertIs(plan.apply(), agent_)
            self.assertTrue(plan.walk.saw_tools)
            tool = {"google_adk": lambda: agent_.tools[1], "langchain_tools": lambda: agent_.tools[0], "openai_agents": lambda: agent_.agent.tools[1]}[name]()
            self.service.answers = [(200, executed(result={"amount": 6.0}))]
            self.assertEqual(isolation._locate.unwrap(tool)(amount=3, rate=2.0), {"amount": 6.0})
            self.assertEqual(self.service.calls()[-1], {"name": name + ":exchange", "arguments": {"amount": 3, "rate": 2.0}, "timeout_s": 30})

    def test_agents_that_know_each_other(self):
        a, b = frameworks.OpenAIAgent("a", [sdk_app.weather]), frameworks.OpenAIAgent("b", [sdk_app.weather])
        a.handoffs, b.handoffs = [b], [a]
        weir.isolate(a)
        self.assertIs(a.tools[0], b.tools[0])


class Refusing(Case):
    def test_each_kind_says_why_and_what_mends_it(self):
        app = sdk_app
        rows = [
            (app.nameless, "a lambda"),
            (app.nested(), "defined inside of `nested`"),
            (app.generator, "a generator"),
            (app.async_generator, "a generator"),
            (app.starred, "`*cities`"),
            (app.adk_context, "`tool_context` is an object of the framework"),
            (app.adk_context_by_type, "`ctx` is an object of the framework"),
            (app.by_name_alone, "`tool_context` is an object of the framework"),
            (app.langchain_config, "`config` is an object of the framework"),
            (app.openai_context, "`ctx` is an object of the framework"),
            (app.takes_date, "`when` is date"),
            (app.takes_bytes, "`data` is bytes"),
            (app.takes_enum, "`colour` is Colour, an Enum"),
            (app.takes_objects, "`stations` is Station"),
            (app.takes_numbered, "`rows` is a mapping with keys of type int"),
            (app.returns_object, "returns Station"),
            (app.returns_set, "returns set"),
            (app.Station("south").read, "a method of a Station that no module holds"),
            (app.Multiply(), "a Multiply that no module holds"),
            (functools.partial(app.weather, days=2), "a partial that no module holds"),
            (app.Station, "a class"),
            (app.ORIGINAL[0], "something else than the function that was listed"),
            (app.context_tool, "`run_manager` is an object of the framework"),
            (frameworks.GoogleSearchTool(), "GoogleSearchTool of the framework"),
            (frameworks.Toolset(), "a toolset"),
            (frameworks.OpenAIFunctionTool("by_hand", asyncio.sleep), "the function behind it can't be seen"),
            (frameworks.WebSearchTool(), "a WebSearchTool that is no function"),
            ({"type": "function", "function": {"name": "described"}}, "a description without a function"),
            ("weather", "a str that is no function"),
            (frameworks.function_tool(app.nested()), "defined inside of `nested`"),
            (frameworks.StructuredTool(app.nameless), "a lambda"),
        ]
        for tool, reason in rows:
            (problem,) = self.refused(sdk_app.weather, tool)
            self.assertIn(reason, problem.reason)
        self.assertEqual(len(self.refused(*[tool for tool, _ in rows])), len(rows))

    def test_the_program_itself(self):
        code = "import weir\ndef mine(x: int) -> int:\n    return x\nweir.isolate([mine])"
        done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=SDK), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn(b"`__main__`", done.stderr)
        self.assertEqual(done.returncode, 1)

    def test_what_is_around_the_tools(self):
        (problem,) = self.refused(mcp_servers=[object()])
        self.assertEqual(problem.tool, "mcp_servers")
        (problem,) = self.refused(handoffs=[frameworks.Handoff(None)])
        self.assertIn("can't be seen", problem.reason)
        bad = frameworks.LlmAgent("a", [], code_executor=frameworks.UnsafeLocalCodeExecutor())
        with self.assertRaisesRegex(weir.ToolIsolationError, "runs the model's code in the agent's process"):
            weir.isolate(bad)

    def test_two_reasons_of_one_tool(self):
        def inside(*args, when: bytes):
            yield when

        self.assertEqual(len(self.refused(inside)), 2)

    def test_what_travels_is_not_refused(self):
        self.moved(sdk_app.either, sdk_app.annotated_as_text, sdk_app.takes_objects.__class__(sdk_app.weather.__code__, {}) and sdk_app.weather)
        ok = [int, str, "Unknown", typing.Any, None, list, typing.List[int], typing.Dict[str, typing.Any], typing.Tuple[int, ...], typing.Sequence[str], bool]
        ok += [typing.Optional[float], typing.Literal["a", 1], typing.NewType("Id", int), typing.TypeVar("T"), object, typing.Mapping[str, int], type("S", (str,), {})]
        ok += [typing.Union[str, bytes], typing.NamedTuple("N", [("a", int)]), typing.TypedDict("D", {"a": int})]
        no = [bytes, set, typing.Set[int], complex, typing.Callable[[], int], typing.Optional[bytes], typing.List[bytes], typing.Dict[str, bytes], type, typing.Iterator[int]]
        if sys.version_info >= (3, 10):
            ok.append(int | None)
            no.append(bytes | None)
        for kind in ok:
            self.assertIsNone(_signature.unfit(kind, False), kind)
        for kind in no:
            self.assertIsNotNone(_signature.unfit(kind, False), kind)

    def test_the_image_lacks_it(self):
        self.service.modules = set()
        (problem,) = self.refused(sdk_app.weather)
        self.assertIn("module sdk_app is not registered", problem.reason)
        self.assertIn("weir agent add", problem.mend)

    def test_the_image_is_out_of_date(self):
        self.service.find = lambda name: lambda city, days: None
        (problem,) = self.refused(sdk_app.weather)
        self.assertIn("there it takes (city, days), here (city, days=, *, units=, **more)", problem.reason)

    def test_the_image_does_not_answer(self):
        for answer, kind in (
            ((404, error("no_agent", "no such agent", hint="weir agent add")), weir.NotFoundError),
            ((403, error("forbidden", "missing or invalid project token")), weir.AuthenticationError),
            ((200, executed(error={"type": "ToolLoadError", "message": "app: ModuleNotFoundError", "traceback": ""})), weir.ToolLoadError),
            ((200, executed(result=[])), weir.ServiceError),
        ):
            self.service.answers = [answer]
            listed = [sdk_app.weather]
            self.assertRaises(kind, weir.isolate, listed)
            self.assertEqual(listed, [sdk_app.weather])
        os.environ["SANDBOX_URL"] = "http://127.0.0.1:1"
        self.assertRaises(weir.UnreachableError, weir.isolate, [sdk_app.weather])

    def test_canonical_signatures(self):
        def f(a, b=1, /, c=2, *, d, e=3, **g):
            pass

        self.assertEqual(_signature.canonical(inspect.signature(f)), "(a, b=, /, c=, *, d, e=, **g)")
        self.assertEqual(_signature.canonical(inspect.signature(lambda a, /: 0)), "(a, /)")
        self.assertEqual(_signature.canonical(inspect.signature(lambda *a, b: 0)), "(*a, b)")
        self.assertEqual(_signature.canonical(inspect.signature(lambda: 0)), "()")


@functools.wraps(weir.run_python)
def logged(code):
    return "here " + code


class Around:
    """A tool of the author's, with an agent in it."""

    def __init__(self):
        self.agent = frameworks.OpenAIAgent("inner", [sdk_app.weather])

    def __call__(self, q: str) -> str:
        return "here"


class OwnRun(frameworks.StructuredTool):
    def _run(self, **arguments):
        return "here"


class OwnInvoke(frameworks.BaseTool):
    name = "own_invoke"

    def invoke(self, arguments):
        return "here"

    def _run(self, q: str) -> str:
        return q


class OwnRunAsync(frameworks.AdkFunctionTool):
    async def run_async(self, *, args, tool_context):
        return "here"


class OwnAgentTool(frameworks.AgentTool):
    async def run_async(self, *, args, tool_context):
        return "here"


class Holder:
    """An agent of the author's, with whatever a test gives it."""

    def __init__(self, **more):
        vars(self).update(more)


around = Around()


class NothingStays(Case):
    """Whatever a framework or an author keeps a tool in: when isolate() returns, there is no way to the function itself."""

    def not_started(self, target, words, tool=sdk_app.weather):
        with self.assertRaisesRegex(weir.ToolIsolationError, words) as raised:
            isolation.relocate(target, ["sdk_app"])
        self.assertTrue(all(p.mend for p in raised.exception.problems))
        self.assertEqual(self.service.calls(), [])

    def isolated(self, *functions):
        for f in functions:
            self.assertEqual(_marks.proxied(f), "sdk_app:" + f.__name__)

    def test_copies_are_noticed_and_nothing_is_left_behind(self):
        weather = sdk_app.weather

        class Copies:
            kept = [sdk_app.cached]
            by_name = {"cached": sdk_app.cached}
            sub_agents = (frameworks.OpenAIAgent("below", kept),)

            @property
            def tools(self):
                return [weather]

        class OtherEachTime:
            def __init__(self):
                self.asked = 0

            @property
            def tools(self):
                self.asked += 1
                return [weather] if self.asked < 3 else []

        class CantBePut:
            tools = property(lambda self: (weather,))

        before = [list(Copies.kept), dict(Copies.by_name), Copies.sub_agents[0].tools[:]]
        self.not_started(Copies(), "anew each time")
        self.assertEqual([Copies.kept, Copies.by_name, Copies.sub_agents[0].tools], before)
        self.not_started(OtherEachTime(), "others each time|anew each time")
        self.not_started(CantBePut(), "can be exchanged: ")
        listed = [weather]
        self.not_started(Holder(tools=listed, sub_agents=[CantBePut()]), "can be exchanged: ")
        self.assertEqual((listed, sdk_app.weather), ([weather], weather))

    def test_what_carries_a_copied_mark_is_a_tool_like_any_other(self):
        (proxy,) = self.moved(sdk_app.weather)

        @functools.wraps(proxy)
        def logged_proxy(*args, **kwargs):
            return proxy(*args, **kwargs)

        self.assertEqual(logged_proxy.__weir_tool__, "sdk_app:weather")
        self.not_started([logged_proxy], "something else than the function|defined inside")
        plan = isolation.Plan([logged, around], [], ask=False)
        self.assertEqual([f.function for f in plan.walk.found], [logged, around])
        self.assertEqual(plan.walk.kept, [])

    def test_code_of_the_authors_around_the_function(self):
        agent_ = frameworks.OpenAIAgent("inner", [sdk_app.weather])
        rows = [
            (OwnRun(sdk_app.weather), "own `_run"),
            (OwnInvoke(), "own `invoke"),
            (OwnRunAsync(sdk_app.weather), "own `run_async"),
            (OwnAgentTool(agent_), "without a function of yours"),
            (Around(), "no module holds"),
        ]
        tool = frameworks.function_tool(sdk_app.weather)
        invoke = tool.on_invoke_tool

        async def outside(context, text):
            return "here" if text else await invoke(context, text)

        rows.append((frameworks.OpenAIFunctionTool("wrapped", functools.wraps(invoke._invoke_tool_impl)(outside)), "can't be seen"))
        patched = frameworks.StructuredTool(sdk_app.weather)
        patched.invoke = lambda arguments: "here"
        rows.append((patched, "own `invoke"))
        for tool, words in rows:
            (problem,) = self.refused(tool)
            self.assertRegex(problem.reason, words)
        self.assertEqual(agent_.tools, [sdk_app.weather])

    def test_agents_in_unusual_places(self):
        weather, cached = sdk_app.weather, sdk_app.cached
        node = Holder(runnable=Holder(tools_by_name={"w": weather}))
        weir.isolate(Holder(nodes={"tools": node, "model": Holder(runnable=len)}))
        self.isolated(node.runnable.tools_by_name["w"])
        task = Holder(tools=[weather])
        crew = weir.isolate(Holder(agents=[Holder(tools=[cached])], tasks=[task]))
        self.isolated(task.tools[0])
        self.assertEqual(_marks.proxied(crew.agents[0].tools[0]), "sdk_app:cached")
        chain = Holder(tools=[], agent=Holder(runnable=Holder(steps=[object(), Holder(bound=Holder(tools=[weather]))])))
        weir.isolate(chain)
        self.isolated(chain.agent.runnable.steps[1].bound.tools[0])
        for held in ("sub_agents", "handoffs", "agents"):
            self.not_started(Holder(tools=[weather], **{held: [object()]}), "a object that can't be looked into")
        self.not_started(Holder(tools=[weather], agent=object()), "a object that can't be looked into")
        for nothing in (Holder(nodes={"model": len}), Holder(sub_agents=[]), Holder(agent=None, sub_agents=[frameworks.BaseAgent("x")])):
            self.not_started(nothing, "nothing was found in it")
        weir.isolate(frameworks.LlmAgent("has none", []))

    def test_tables_of_the_same_functions(self):
        weather, read = sdk_app.weather, sdk_app.station.read
        rows = (("a", weather), ["b", weather])
        module = frameworks.module("tables_of_mine", BY_NAME={"weather": {"call": weather, "of": (weather, 1)}}, ROWS=rows, ALL=frozenset([weather]), weather=weather)
        module.__file__ = "/elsewhere/tables_of_mine.py"
        self.addCleanup(sys.modules.pop, "tables_of_mine")

        class Agent:
            shared = {"weather": weather}

            def __init__(self):
                self.tools, self.by_name, self.run, self.other = [weather, read], {"w": weather, "r": sdk_app.station.read}, weather, [len]

        agent_ = weir.isolate(Agent())
        self.isolated(agent_.by_name["w"], agent_.run, Agent.shared["weather"], module.BY_NAME["weather"]["call"], module.BY_NAME["weather"]["of"][0], *module.ALL)
        self.isolated(module.ROWS[0][1], module.ROWS[1][1])
        self.assertEqual(_marks.proxied(agent_.by_name["r"]), "sdk_app:station.read")
        self.assertEqual(agent_.other, [len])

    def test_an_agent_that_is_made_later(self):
        class Agent:
            def __init__(self):
                self.tools = [sdk_app.weather, sdk_app.station.read, sdk_app.Station.kinds, sdk_app.Station.version, sdk_app.multiply, sdk_app.cached]

        first = Agent()
        raw, before = list(first.tools), dict(vars(sdk_app.Station))
        weir.isolate(first)
        for tool in Agent().tools:
            self.assertTrue(_marks.proxied(tool), tool)
        self.assertEqual(sdk_app.station.read(), ["north", "c"])
        self.assertEqual(isolation.relocate(list(raw), ["sdk_app"])[0]("x")["city"], "x")  # who has kept the functions themselves
        self.assertIsNot(vars(sdk_app.Station)["kinds"], before["kinds"])

    def test_the_models_code_in_the_agents_process(self):
        class Unsafe(frameworks.UnsafeLocalCodeExecutor):
            pass

        for executor in (Unsafe(), object()):
            self.not_started(frameworks.LlmAgent("a", [sdk_app.weather], code_executor=executor), "runs the model's code in the agent's process")
        self.not_started(Holder(tools=[], sub_agents={around}), "can't be looked into")
        swarm = weir.isolate(Holder(functions=[sdk_app.weather]))
        self.isolated(swarm.functions[0])
        self.not_started([len], "a function of Python's own")

    def test_a_package_of_the_authors_that_has_a_frameworks_name(self):
        before = sys.modules.pop("agents")
        self.addCleanup(sys.modules.__setitem__, "agents", before)
        frameworks.module("agents", mine=1)
        self.assertFalse(_signature.of_library("agents.tools"))
        sys.modules["agents"] = before
        self.assertTrue(_signature.of_library("agents.tools"))


class Switch(Case):
    def isolate(self, value):
        os.environ["TOOL_SANDBOX"] = value
        self.addCleanup(os.environ.pop, "TOOL_SANDBOX", None)
        out = io.StringIO()
        listed = [sdk_app.weather, sdk_app.nameless]
        with contextlib.redirect_stderr(out):
            weir.isolate(listed)
        return listed, out.getvalue()

    def test_off_is_loud(self):
        for _ in range(2):
            listed, words = self.isolate("false")
            self.assertEqual(listed, [sdk_app.weather, sdk_app.nameless])
            self.assertEqual(words.count("WARNING"), 3)
        self.assertEqual(self.service.asked, [])

    def test_any_other_value_stops_the_start(self):
        for value in ("0", "no", "False", "off", "1"):
            with self.assertRaisesRegex(weir.ConfigurationError, 'TOOL_SANDBOX must be "true" or "false", not "%s"' % value):
                self.isolate(value)
        with self.assertRaises(weir.ToolIsolationError):
            self.isolate("true")
        with self.assertRaises(weir.ToolIsolationError):
            self.isolate("")

    def test_in_a_sandbox_nothing_is_done_and_nothing_needed(self):
        code = "import weir, sys\ntools = [lambda: 1]\nassert weir.isolate(tools) is tools and tools[0]() == 1\nprint('fine')"
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": SDK}
        done = subprocess.run([sys.executable, "-X", "weir=call", "-c", code], env=environment, stdout=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout, b"fine\n")


APP = '''
import os
import sys

import weir

{imports}
def double(x: int) -> int:
    """Doubles."""
    return [x * 2, os.getpid()]


class Agent:
    name = "the agent"
    tools = [double, weir.run_python]

    def __call__(self, *args):
        return "%s %r %s" % (self.tools[0](21)[0], args, hasattr(self.tools[0], "__weir_tool__"))


class Runs:
    tools = [double]

    async def run(self, *args):
        return "async %d" % self.tools[0](4)[0]


root_agent = Agent()
runs = Runs()
TOOLS = [double]
BAD = [double, lambda: 1]
def function(): pass
'''


class Starting(Case):
    def setUp(self):
        super().setUp()
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.write("my_app.py", APP.format(imports=""))
        self.write("my_server.py", "import sys, my_app\nprint('server', sys.argv[1:], __name__, my_app.TOOLS[0](2)[0], hasattr(my_app.TOOLS[0], '__weir_tool__'))\n")
        self.service.modules = {"my_app", "adk_app"}
        sys.path.insert(0, self.directory.name)
        self.addCleanup(sys.path.remove, self.directory.name)
        for name in ("my_app", "my_server", "adk_app"):
            self.addCleanup(sys.modules.pop, name, None)

    def write(self, name, text):
        with open(os.path.join(self.directory.name, name), "w") as f:
            f.write(text)

    def start(self, *args, stdin="", **variables):
        environment = dict(os.environ, PYTHONPATH=SDK + os.pathsep + HERE, **variables)
        command = [sys.executable, "-m", "weir.agent", *args]
        done = subprocess.run(
            command, cwd=self.directory.name, env=environment, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    def here(self, *args, **variables):
        """The same in this process, which is faster: for what does not get as far as running an agent."""
        before = dict(os.environ)
        sys.modules.pop("my_app", None)
        out, err = io.StringIO(), io.StringIO()
        try:
            os.environ.update(variables)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = agent.main(list(args))
        finally:
            os.environ.clear()
            os.environ.update(before)
        return code, out.getvalue(), err.getvalue()

    def test_the_agent_is_called(self):
        self.assertEqual(self.start("my_app"), (0, "42 () True\n", ""))
        self.assertEqual(self.start("my_app:root_agent", "a", "--b", "--", "c"), (0, "42 ('a', '--b', '--', 'c') True\n", ""))
        self.assertEqual(self.start("my_app:runs"), (0, "async 8\n", ""))

    def test_another_module_runs_it(self):
        code, out, err = self.start("my_app:TOOLS", "--then", "my_server", "--port", "1")
        self.assertEqual((code, out, err), (0, "server ['--port', '1'] __main__ 4 True\n", ""))
        self.assertEqual(self.start("--then", "my_server", "my_app:TOOLS", "x")[1], "server ['x'] __main__ 4 True\n")

    # ---- whoever else has the agent's module ----

    def test_what_cant_be_changed_in_place_is_exchanged_in_its_module(self):
        self.write("my_app.py", APP.format(imports="") + "TOOLS = (double,)\nALL = {'double': TOOLS}\n")
        self.write("my_server.py", "import my_app\nfrom weir import _marks\nprint(_marks.proxied(my_app.TOOLS[0]), _marks.proxied(my_app.ALL['double'][0]))\n")
        self.assertEqual(self.start("my_app:TOOLS", "--then", "my_server"), (0, "my_app:double my_app:double\n", ""))
        self.assertEqual(self.start("my_app:TOOLS", "--then", "my_server", TOOL_SANDBOX="false")[:2], (0, "None None\n"))
        self.write("my_app.py", APP.format(imports="") + "class Makes:\n    @property\n    def agent(self): return Agent()\nmakes = Makes()\n")
        code, out, err = self.start("my_app:makes.agent")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("another each time it is asked for", err)

    def test_the_agents_own_module_is_no_program(self):
        self.write("my_app.py", APP.format(imports="") + "if __name__ == '__main__':\n    print('ran')\n")
        for module in ("my_app", "my_link"):
            if module == "my_link":
                os.symlink("my_app.py", os.path.join(self.directory.name, "my_link.py"))
            code, out, err = self.start("my_app", "--then", module)
            self.assertEqual((code, out), (1, ""))
            self.assertIn("--then would execute my_app a second time", err)
            self.assertIn("a module of its own", err)

    PRINTS = "print(my_app.root_agent(), flush=True)"

    def test_processes_that_are_started_anew(self):
        server = """
import multiprocessing, subprocess, sys
from concurrent.futures import ProcessPoolExecutor

def work(_=None):
    import my_app
    return my_app.root_agent()

if __name__ == "__main__":
    import my_app
    for how in ("spawn", "forkserver", "fork"):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(how)) as pool:
            print(how, pool.submit(work).result(30), pool.submit(my_app.root_agent).result(30), flush=True)
    subprocess.run([sys.executable, "-c", "import my_app; " + sys.argv[1]], check=True)
    subprocess.run([sys.executable, "-E", "-c", "import sys; sys.path[:0] = %r; import weir, my_app; " % sys.path + sys.argv[1]], check=True)
"""
        self.write("my_server.py", server)
        code, out, err = self.start("my_app", "--then", "my_server", self.PRINTS)
        self.assertEqual((code, out), (0, "".join("%s 42 () True 42 () True\n" % how for how in ("spawn", "forkserver", "fork")) + "42 () True\n" * 2), err)

    def test_a_process_that_cant_isolate_does_not_get_the_module(self):
        server = """
import os, subprocess, sys
import my_app
path = "import sys; sys.path[:0] = %r; " % sys.path
rows = (["-c", "import my_app; print('has it')"], {"SANDBOX_TOKEN": "weir_wrong"}), (["-I", "-c", path + "import my_app; print('has it')"], {}), (["-c", "import pkg.my_app; print('has it')"], {})
for args, more in rows:
    done = subprocess.run([sys.executable] + args, env=dict(os.environ, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    print(done.returncode, done.stdout, done.stderr.splitlines()[-1])
"""
        self.write("my_server.py", server)
        os.mkdir(os.path.join(self.directory.name, "pkg"))
        os.symlink("../my_app.py", os.path.join(self.directory.name, "pkg", "my_app.py"))
        code, out, err = self.start("my_app", "--then", "my_server")
        self.assertEqual((code, err), (0, ""))
        self.assertNotIn("has it", out)
        wrong, isolated_mode, second = [line for line in out.splitlines() if line]
        self.assertRegex(wrong, "^1  .*missing or invalid project token")
        self.assertRegex(isolated_mode, "^1 ")
        self.assertRegex(second, "^1 ")

    def test_a_module_that_is_loaded_again(self):
        again = "import importlib, sys, my_app\nimportlib.reload(my_app)\n%s\ndel sys.modules['my_app']\nimport my_app\n%s\n" % (self.PRINTS, self.PRINTS)
        self.write("my_server.py", again + "try:\n    import pkg.my_app\nexcept Exception as e:\n    print(e)\n")
        os.mkdir(os.path.join(self.directory.name, "pkg"))
        os.symlink("../my_app.py", os.path.join(self.directory.name, "pkg", "my_app.py"))
        code, out, err = self.start("my_app", "--then", "my_server")
        self.assertEqual((code, err), (0, ""))
        self.assertTrue(out.startswith("42 () True\n" * 2), out)
        self.assertIn("imported a second time, as `pkg.my_app`", out)

    def test_other_processes_are_as_ever(self):
        hidden = os.path.join(self.directory.name, "hidden")
        os.mkdir(hidden)
        self.write("hidden/sitecustomize.py", "print('theirs')\n")
        self.write("my_server.py", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', \"import sys; print([m for m in sys.modules if m.partition('.')[0] == 'weir'])\"])\n")
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([SDK, HERE, hidden]))
        done = subprocess.run([sys.executable, "-m", "weir.agent", "my_app", "--then", "my_server"], cwd=self.directory.name, env=environment, stdout=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.stdout, "theirs\ntheirs\n[]\n")

    def test_check(self):
        code, out, err = self.start("--check", "my_app")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"(?m)^double +the agent +runs in sandboxes, as my_app:double$")
        self.assertRegex(out, r"(?m)^run_python +the agent +runs the model's code in sandboxes already$")
        code, out, err = self.start("--check", "my_app:BAD")
        self.assertEqual(code, 1)
        self.assertRegex(out, r"(?m)^<lambda> +- +CAN'T BE ISOLATED: a lambda \(.*my_app\.py, line \d+\)\. Mend: ")
        code, out, err = self.start("--check", "my_app", SANDBOX_URL="")
        self.assertEqual(code, 0)
        self.assertIn("image was not asked", out)
        self.assertEqual(self.service.calls(), [])

    def test_what_stops_the_start(self):
        rows = [
            (("my_app:BAD",), {}, 1, "a lambda"),
            (("my_app",), {"SANDBOX_URL": ""}, 1, "weir agent env NAME"),
            (("my_app",), {"SANDBOX_TOKEN": ""}, 1, "weir agent env NAME"),
            (("my_app",), {"SANDBOX_TOKEN": "weir_wrong"}, 1, "missing or invalid project token"),
            (("my_app",), {"SANDBOX_URL": "http://127.0.0.1:1"}, 1, "can't connect"),
            (("my_app",), {"TOOL_SANDBOX": "no"}, 1, 'TOOL_SANDBOX must be "true" or "false"'),
            (("my_app:function",), {}, 2, "without `tools`"),
            (("my_app:nobody",), {}, 2, "module my_app has no nobody"),
            (("no_such_module",), {}, 2, "there is no module no_such_module"),
            ((), {}, 2, "no agent was named"),
            (("--what", "my_app"), {}, 2, "no option --what"),
            (("my_app", "--then"), {}, 2, "--then needs a module"),
            (("my app",), {}, 2, "MODULE:AGENT"),
        ]
        done = self.start("my_app", CODE_INTERPRETER_TIMEOUT_S="0")
        self.assertEqual((done[0], done[1]), (1, ""))
        self.assertRegex(done[2], "^weir: the agent does not start: CODE_INTERPRETER_TIMEOUT_S must be .*\n$")
        self.assertEqual(self.start(*rows[0][0])[0], 1)
        for args, variables, code, words in rows:
            got = self.here(*args, **variables)
            self.assertEqual((got[0], got[1]), (code, ""), got)
            self.assertIn(words, got[2])
        self.assertEqual(self.service.calls(), [])

    def test_the_switch_is_of_who_starts_the_process(self):
        self.write("my_app.py", "import os\nos.environ['TOOL_SANDBOX'] = 'false'\n" + APP.format(imports=""))
        self.write("my_server.py", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import my_app; ' + sys.argv[1]])")
        self.assertEqual(self.start("my_app"), (0, "42 () True\n", ""))
        # (The service imports it as well, here.)
        self.addCleanup(os.environ.pop, "TOOL_SANDBOX", None)
        self.assertEqual(self.start("my_app", "--then", "my_server", self.PRINTS, TOOL_SANDBOX=""), (0, "42 () True\n", ""))

    def test_off_is_said_at_each_start(self):
        code, out, err = self.start("my_app", TOOL_SANDBOX="false", SANDBOX_URL="")
        self.assertEqual((code, out), (0, "42 () False\n"))
        self.assertEqual(err.count("WARNING"), 3)

    def test_an_error_of_the_authors_is_shown_as_it_is(self):
        self.write("my_app.py", "import does_not_exist_either\n")
        code, out, err = self.start("my_app")
        self.assertEqual(code, 1)
        self.assertIn("No module named 'does_not_exist_either'", err)

    def test_help(self):
        code, out, err = self.start("--help")
        self.assertEqual(code, 0)
        for words in ("--check", "--then", "Examples:", "SANDBOX_URL", "TOOL_SANDBOX"):
            self.assertIn(words, out)
        self.assertLess(max(map(len, out.splitlines())), 120)

    def test_an_adk_agent_answers_line_by_line(self):
        self.write(
            "adk_app.py",
            """
import frameworks
frameworks.install()

from google.adk.agents import LlmAgent
from crusoe_adk.tools import run_python


class Part:
    def __init__(self, text):
        self.text = text


class Content:
    def __init__(self, role="", parts=()):
        self.parts = list(parts)


class Event:
    def __init__(self, text):
        self.content = Content(parts=[Part(text)])


class Sessions:
    async def create_session(self, app_name, user_id):
        return type("Session", (), {"id": "s"})


class InMemoryRunner:
    def __init__(self, agent, app_name):
        self.agent, self.session_service = agent, Sessions()

    async def run_async(self, user_id, session_id, new_message):
        yield Event(self.agent.tools[0](new_message.parts[0].text)["stdout"].strip())


frameworks.module("google.adk.runners", InMemoryRunner=InMemoryRunner)
frameworks.module("google.genai.types", Content=Content, Part=Part)
root_agent = LlmAgent(name="analyst", tools=[run_python])
""",
        )
        self.assertEqual(self.start("adk_app:root_agent", stdin="one\n\ntwo\n"), (0, "ran one\nran two\n", ""))

    def test_parsing(self):
        Command = agent.Command
        self.assertEqual(agent.parse(["a.b"]), Command(False, "a.b", "root_agent", None, []))
        self.assertEqual(agent.parse(["a:b.c", "x"]), Command(False, "a", "b.c", None, ["x"]))
        self.assertEqual(agent.parse(["--check", "a:b"]), Command(True, "a", "b", None, []))
        self.assertEqual(agent.parse(["a:b", "--", "--then", "x"]), Command(False, "a", "b", None, ["--then", "x"]))
        for wrong in ([], ["--then"], ["a:"], [":b"], ["a b"], ["a-b:c"]):
            self.assertRaises(agent.Usage, agent.parse, wrong)


def tearDownModule():
    gc.collect()


if __name__ == "__main__":
    unittest.main(verbosity=int(os.environ.get("VERBOSITY", "1")))
