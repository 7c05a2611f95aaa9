# SPDX-License-Identifier: Apache-2.0
"""The Python SDK: against a service that runs nothing, with every Python of the machine; and against the real one, with tools of
every kind in an image.
"""
import asyncio
import concurrent.futures
import functools
import glob
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from fixture import Agents, run_weir
from lib import SLOW, TOP

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sdk")
SDK = os.path.join(TOP, "sdk", "python")
VERSIONS = ["3.%d" % minor for minor in range(9, 14)]


@functools.lru_cache()
def pythons():
    """version -> program, of those that the SDK is for: on PATH, the system's, and what pyenv has."""
    candidates = [shutil.which("python" + v) for v in VERSIONS] + ["/usr/bin/python" + v for v in VERSIONS] + [sys.executable, "/usr/bin/python3"]
    roots = [os.environ.get("PYENV_ROOT")]
    if shutil.which("pyenv"):
        roots.append(subprocess.run(["pyenv", "root"], stdout=subprocess.PIPE, universal_newlines=True).stdout.strip())
    for root in filter(None, roots):
        candidates += sorted(glob.glob(os.path.join(root, "versions", "3.*", "bin", "python3")))
    found = {}
    for program in filter(None, candidates):
        if not os.access(program, os.X_OK):
            continue
        ask = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
        done = subprocess.run([program, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
        version, _, executable = done.stdout.strip().partition(" ")
        if done.returncode == 0 and version in VERSIONS:
            found.setdefault(version, executable)
    return found


def sources(*files):
    """Files of the SDK's package and of tests/agents/sdk, for an image."""
    wanted = {"weir/" + os.path.basename(p): p for p in glob.glob(os.path.join(SDK, "weir", "*.py"))}
    wanted.update({name: os.path.join(HERE, name) for name in files})
    return {name: open(path, encoding="utf-8").read() for name, path in wanted.items()}


class EveryPython(unittest.TestCase):
    def test_against_a_service_that_runs_nothing(self):
        found = pythons()
        self.assertIn("%d.%d" % sys.version_info[:2], list(found) + ["3.8", "3.14"])

        def run(program):
            command = [program, "-W", "error::ResourceWarning", os.path.join(HERE, "units.py")]
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOX_", "CODE_INTERPRETER_", "TOOL_SANDBOX"))}
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
            return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=240 * SLOW)

        with concurrent.futures.ThreadPoolExecutor(len(found)) as pool:
            for version, done in zip(found, pool.map(run, found.values())):
                with self.subTest(python=version):
                    self.assertEqual(done.returncode, 0, done.stdout)
                    self.assertGreater(int(re.search(r"Ran (\d+) tests", done.stdout).group(1)), 60)


class RealService(unittest.TestCase):
    """One service, and one agent whose image has tools of every kind."""

    @classmethod
    def setUpClass(cls):
        cls.before, cls.path, cls.modules = dict(os.environ), list(sys.path), set(sys.modules)
        cls.addClassCleanup(cls.restore)
        cls.agents = Agents(sources("frameworks.py", "sdk_app.py"), tools=["sdk_app"], agent="every-kind")
        cls.addClassCleanup(cls.agents.stop)
        os.environ.update(cls.agents.environment())
        sys.path[:0] = [HERE, SDK]
        cls.weir, cls.app = importlib.import_module("weir"), importlib.import_module("sdk_app")
        cls.frameworks = importlib.import_module("frameworks")

    def setUp(self):
        self.addCleanup(self.frameworks.remember(self.app, self.app.Station, self.app.station))

    @classmethod
    def restore(cls):
        os.environ.clear()
        os.environ.update(cls.before)
        sys.path[:] = cls.path
        for name in set(sys.modules) - cls.modules:
            if name.partition(".")[0] in ("weir", "sdk_app", "frameworks", "crusoe_adk", "crusoe_core", "google", "agents", "langchain_core"):
                del sys.modules[name]

    def tearDown(self):
        self.weir.configure(url=None, token=None, save_files=None, tool_timeout_s=30, retries=2)

    def moved(self, *tools):
        return self.isolate(list(tools))

    def isolate(self, tools):
        relocate = importlib.import_module("weir.isolation").relocate
        return relocate(tools, ["sdk_app"])

    def test_kinds_of_tools(self):
        app = self.app
        plain = [app.weather, app.forecast, app.annotated_as_text, app.positional, app.wrapped, app.decorated, app.cached, app.retried, app.station.read]
        plain += [app.station.read_async, app.Station.kinds, app.Station.version, app.half, app.multiply, app.pid]
        weather, forecast, text, positional, wrapped, decorated, cached, retried, read, read_async, kinds, version, half, multiply, pid = self.moved(*plain)
        self.assertEqual(weather("Bern", 2, units="f", lang="de"), {"city": "Bern", "days": 2, "units": "f", "more": {"lang": "de"}})
        self.assertEqual(weather("ß\U0001f600\0", days=2**70), {"city": "ß\U0001f600\0", "days": 2**70, "units": "c", "more": {}})
        self.assertEqual(text("x", when=("a",)), {"city": "x", "when": ["a"]})
        self.assertEqual(positional(1, 5, c=6), [1, 5, 6])
        self.assertEqual([f(3) for f in (wrapped, decorated, cached, retried)], [["wrapped", 3], ["decorated", 3], 6, ["retried", 3]])
        self.assertEqual([read(), kinds(2), version(), half("x")["days"], multiply(6, b=7)], [["north", "c"], ["Station", 2], "1", 1, 42])
        self.assertNotEqual(pid(), os.getpid())

        async def main():
            return await asyncio.gather(forecast("a", hours=[1]), forecast("b"), read_async("k"))

        self.assertEqual(asyncio.run(main()), [["a", [1]], ["b", None], ["north", "k"]])

    def test_tools_of_frameworks(self):
        app = self.app
        tools = [app.structured, app.structured_async, app.pair, app.class_tool, app.openai_tool, app.openai_tool_async]
        self.moved(*tools)
        self.assertTrue(app.structured.func.__weir_tool__ == "sdk_app:structured" and app.class_tool._run.__weir_tool__ == "sdk_app:class_tool._run")
        self.assertEqual(app.structured.invoke({"q": "x"}), "structured x")
        self.assertEqual(asyncio.run(app.structured_async.ainvoke({"q": "x"})), "structured async x")
        self.assertEqual(app.pair.invoke({"q": "x"}), ("content", "x"))
        self.assertEqual(app.class_tool.invoke({"q": "x"}), "class x")
        self.assertEqual(asyncio.run(app.openai_tool.on_invoke_tool(None, '{"q": "x"}')), "openai x")
        self.assertEqual(asyncio.run(app.openai_tool_async.on_invoke_tool(None, '{"q": "x"}')), "openai async x")

    def test_no_key_and_no_private_address(self):
        variables, connect = self.moved(self.app.variables, self.app.connect)
        os.environ["MODEL_KEY"] = "key-of-the-model"
        seen = variables()
        self.assertEqual([n for n in seen if n.startswith(("SANDBOX", "TOOL_SANDBOX", "CODE_INTERPRETER", "MODEL"))], [])
        self.assertNotIn(os.environ["SANDBOX_TOKEN"], str(seen))
        for host in ("169.254.169.254", "10.0.0.1", "192.168.0.1", "172.16.0.1", "127.0.0.1"):
            with self.assertRaisesRegex(self.weir.ToolError, "^PermissionError: "):
                connect(host)

    def test_errors_of_tools(self):
        weir = self.weir
        boom, leave, bad_result, sleep, weather = self.moved(self.app.boom, self.app.leave, self.app.bad_result, self.app.sleep, self.app.weather)
        with self.assertRaises(weir.ToolError) as raised:
            boom("x")
        self.assertEqual(str(raised.exception), "ValueError: no good: x")
        self.assertRegex(raised.exception.traceback, r'File "/app/sdk_app.py", line \d+, in boom')
        with self.assertRaisesRegex(weir.ToolEndedError, r"without returning a value \(exit code 3\)"):
            leave()
        with self.assertRaisesRegex(weir.ToolResultError, r"\$\.rows\[1\]: set \(return a list\)"):
            bad_result()
        weir.configure(tool_timeout_s={"sleep": 1})
        with self.assertRaisesRegex(weir.ToolTimeoutError, "timed out after 1s") as raised:
            sleep(30)
        self.assertEqual(raised.exception.exit_code, -1)
        with self.assertRaisesRegex(weir.RequestError, "1 MiB|1048576|limit") as raised:
            weather("x" * (1 << 20))
        self.assertIs(raised.exception.ran, False)
        self.assertRaises(TypeError, weather)

    def test_many_at_once(self):
        weather, sleep_async = self.moved(self.app.weather, self.app.sleep_async)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual([r["city"] for r in pool.map(weather, map(str, range(16)))], [str(i) for i in range(16)])

        async def main():
            began = time.monotonic()
            await asyncio.gather(*(sleep_async(0.5) for _ in range(4)))
            return time.monotonic() - began

        asyncio.run(main())

    def test_a_cancelled_task_ends_its_call(self):
        (sleep_async,) = self.moved(self.app.sleep_async)

        def newest():
            """The last run that the record has."""
            return next(iter(json.loads(run_weir("audit", "ls", "--json", "--limit", "1", state=self.agents.state))["runs"]), {"run_id": None})

        async def main():
            before, deadline = newest()["run_id"], time.monotonic() + 20 * SLOW
            task = asyncio.ensure_future(sleep_async(100))
            while newest()["run_id"] == before and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            while newest()["state"] == "running" and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
            return newest()

        self.assertEqual(asyncio.run(main())["termination"]["reason"], "cancelled")

    def test_what_the_image_lacks_stops_the_start(self):
        weir = self.weir
        for name, files, words in (
            ("older", {"sdk_app.py": "def weather(city): return 1"}, r"out of date: there it takes \(city\), here \(city, days=, \*, units=, \*\*more\)"),
            ("broken", {"sdk_app.py": "import does_not_exist"}, "No module named 'does_not_exist'"),
            ("other", {"another.py": "x = 1"}, "not in the agent's image"),
        ):
            self.agents.add(name, files)
            weir.configure(token=self.agents.tokens[name])
            listed = [self.app.weather]
            with self.assertRaisesRegex(weir.ToolIsolationError, words):
                self.isolate(listed)
            self.assertEqual(listed, [self.app.weather])

    def test_run_python(self):
        with tempfile.TemporaryDirectory() as d:
            self.weir.configure(save_files=d)
            result = self.weir.run_python("import os; os.mkdir('out'); open('out/a.txt', 'w').write('hi'); print(6 * 7)")
            self.assertEqual(result, {"stdout": "42\n", "stderr": "", "exit_code": 0, "files": ["out/a.txt"]})
            (path,) = glob.glob(d + "/*/out/a.txt")
            with open(path) as f:
                self.assertEqual(f.read(), "hi")
        result = self.weir.run_python("import os; print(sorted(n for n in os.environ if 'TOKEN' in n or 'SANDBOX' in n)); 1 / 0")
        self.assertEqual((result["stdout"], result["exit_code"]), ("[]\n", 1))
        self.assertIn("ZeroDivisionError", result["stderr"])
        result = self.weir.run_python("x = [bytearray(1 << 20) for _ in range(4000)]")
        self.assertIn("memory", result.get("note", "") + result["stderr"].lower())

    def test_sessions(self):
        code = """
import weir, threading
try:
    weir.run_python("1")
except weir.NoConversationError as e:
    print("none", e.ran)
with weir.conversation("a"):
    print(weir.run_python("x = 40"))
    print(weir.run_python("print(x + 2)")["stdout"], end="")
    with weir.conversation("b"):
        print(weir.run_python("print('x' in globals())")["stdout"], end="")
    print(weir.run_python("import os; os._exit(1)")["note"][:8])
    print(weir.run_python("print('x' in globals())")["stdout"], end="")
    client = weir._conversation.interpreter("a").client
    client.end_session(weir._conversation.interpreter("a").session_id)
    print(weir.run_python("1").get("note", "")[:40])
print(client.ask("GET", "/v1/sessions", None, 10))
"""
        environment = dict(os.environ, PYTHONPATH=SDK, CODE_INTERPRETER_SESSION="true", CODE_INTERPRETER_TIMEOUT_S="90")
        done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=60 * SLOW)
        want = ["none False", "{'stdout': '', 'stderr': '', 'exit_code': 0, 'files': []}", "42", "False"]
        want += ["this run", "False", "the interpreter of this conversation was", "{'sessions': []}"]
        self.assertEqual(done.stdout.splitlines(), want)

    def test_the_command_with_every_python(self):
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "app.py"), "w") as f:
                f.write(
                    "import sdk_app, weir\n"
                    "class Agent:\n"
                    "    tools = [sdk_app.weather, sdk_app.pid, weir.run_python]\n"
                    "    def main(self, city):\n"
                    "        weather, pid, run_python = self.tools\n"
                    "        return weather(city)['city'], pid(), run_python('print(6 * 7)')['stdout']\n"
                    "root_agent = Agent()\n"
                )
            environment = dict(os.environ, PYTHONPATH=SDK + os.pathsep + HERE, PYTHONDONTWRITEBYTECODE="1")

            def run(program):
                command = [program, "-m", "weir.agent", "app:root_agent", "Bern"]
                return subprocess.run(command, cwd=d, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=60 * SLOW)

            found = pythons()
            with concurrent.futures.ThreadPoolExecutor(len(found)) as pool:
                for version, done in zip(found, pool.map(run, found.values())):
                    with self.subTest(python=version):
                        self.assertRegex(done.stdout, r"^\('Bern', \d, '42\\n'\)\n$")


if __name__ == "__main__":
    unittest.main()
