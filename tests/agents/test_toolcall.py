# SPDX-License-Identifier: Apache-2.0
"""runner/toolcall.py, driven directly: sockets and pipes in the sandbox's place, every Python from 3.8 on that this machine has.

What the service makes of it is test_call_api.py's; here is what a tool can be, what it can return and raise, and what it can do
to the interpreter without an honest result being lost or a wrong one told.
"""
import concurrent.futures
import fcntl
import glob
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import textwrap
import time
import unittest

from lib import SLOW, TOP

TOOLCALL = os.path.join(TOP, "runner", "toolcall.py")
VALUE, ERROR, UNKNOWN = 1, 2, 3
AT_ONCE = 3
SECONDS = 60


def find_pythons():
    """{(3, 12): path} of what is on PATH, in /usr/bin, and what pyenv has."""
    folders = os.environ.get("PATH", "").split(":") + ["/usr/bin"]
    root = os.environ.get("PYENV_ROOT")
    if not root and shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], stdout=subprocess.PIPE, text=True).stdout.strip()
    if root:
        folders += sorted(glob.glob(os.path.join(root, "versions", "*", "bin")))
    found = {}
    for folder in folders:
        for path in glob.glob(os.path.join(folder, "python3.[0-9]*")):
            if not re.fullmatch(r"python3\.\d+", os.path.basename(path)):
                continue
            done = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            if done.returncode == 0:
                found.setdefault(tuple(int(n) for n in done.stdout.split()), path)
    return {v: p for v, p in sorted(found.items()) if v >= (3, 8)}


PYTHONS = find_pythons()


class Said:
    """What came of one call: .kind of its frame (None without), .value, .out, .err, .status (negative: by a signal), .loaded."""

    def __init__(self, data, out, err, status, loaded):
        self.data, self.out, self.err, self.status, self.loaded = data, out, err, status, loaded
        self.kind = self.value = None
        if data:
            magic, self.kind, length = struct.unpack("<4sIQ", data[:16])
            if magic != b"WRES" or length != len(data) - 16:
                raise AssertionError("no single frame: %r" % data[:200])
            if self.kind != UNKNOWN:
                self.value = json.loads(data[16:])
            elif length:
                raise AssertionError("more than nothing: %r" % data[:200])

    def __repr__(self):
        return "<kind %s, value %.2000r, out %.500r, err %.2000r, status %s>" % (self.kind, self.value, self.out, self.err, self.status)


def high(fd):
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)


class Started:
    """A harness that waits for its first word."""

    def __init__(self, python, modules, workdir, variables=None, before=()):
        """`before`: arguments of `python` that come first, when it is a program that starts one."""
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) + socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.request, request, self.gate, gate = ends
        self.result, result = os.pipe()
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        null = os.open("/dev/null", os.O_RDONLY)
        inside = [null, self.out.fileno(), self.err.fileno(), request.fileno(), gate.fileno(), result]
        moved = [high(fd) for fd in inside]
        env = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"}
        try:
            self.pid = os.posix_spawn(
                python,
                [python, *before, "-s", "-u", "-X", "weir=call:%s:%s" % (modules, workdir), TOOLCALL],
                dict(env, **(variables or {})),
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate(moved)],
                setsid=True,
                setsigdef=[signal.SIGPIPE],
            )
        finally:
            for fd in moved + [null, result]:
                os.close(fd)
            request.close()
            gate.close()
        self.gate.settimeout(SECONDS * SLOW)
        self.status = None

    def word(self):
        return self.gate.recv(16)

    def load(self):
        """'R' heard, 'L' said: the report that follows, (letter, value), or None when it ends without one."""
        if self.word() != b"R" + bytes(11):
            raise AssertionError("it is not ready")
        self.gate.send(b"L")
        word = self.word()
        return (word[:1].decode(), struct.unpack("<i", word[4:8])[0]) if word else None

    def send(self, name, arguments):
        code = name.encode()
        text = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
        self.request.sendall(struct.pack("<4sIIIIIQ32x", b"WEIR", 4, len(code), len(text), 0, 0, 0) + code + text)
        self.request.shutdown(socket.SHUT_WR)

    def finish(self, loaded):
        """Reads the result until the process has ended and everything that it left is dead."""
        parts, deadline = [], time.monotonic() + SECONDS * SLOW
        while self.status is None:
            if select.select([self.result], [], [], 0.01)[0]:
                part = os.read(self.result, 1 << 20)
                parts.append(part)
                if not part:
                    self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                    break
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise AssertionError("it does not end")
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        while True:
            part = os.read(self.result, 1 << 20)
            if not part:
                break
            parts.append(part)
        self.out.seek(0)
        self.err.seek(0)
        return Said(b"".join(parts), self.out.read().decode(), self.err.read().decode("utf-8", "replace"), self.status, loaded)

    def close(self):
        if self.status is None:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        for thing in (self.request, self.gate, self.out, self.err):
            thing.close()
        os.close(self.result)


def call(python, folder, name, arguments, modules="app", variables=None):
    started = Started(python, modules, folder, variables)
    try:
        loaded = started.load()
        if loaded is None:
            return started.finish(None)
        started.send(name, arguments)
        started.gate.send(b"G")
        return started.finish(loaded)
    finally:
        started.close()


class Harness(unittest.TestCase):
    FILES = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="weir-test-toolcall-")
        for name, text in cls.FILES.items():
            path = os.path.join(cls.folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write(textwrap.dedent(text))
        cls.pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)

    @classmethod
    def tearDownClass(cls):
        cls.pool.shutdown()
        shutil.rmtree(cls.folder)

    def everywhere(self, rows, since=(3, 8), **more):
        """Rows (tool, arguments, check): each in every Python. `check` is a value, or a function of (self, what was said)."""
        waiting = []
        for row in rows:
            for version, python in PYTHONS.items():
                if version >= since:
                    waiting.append((row, version, self.pool.submit(call, python, self.folder, row[0], row[1], **more)))
        for (name, arguments, check), version, future in waiting:
            with self.subTest(name, python="%d.%d" % version, arguments=str(arguments)[:80]):
                said = future.result()
                if callable(check):
                    check(said)
                else:
                    self.assertEqual((said.kind, said.status), (VALUE, 0), said)
                    self.assertEqual(said.value, check)
                    self.assertIs(type(said.value), type(check))

    def error(self, kind, message, *in_trace, status=1, absent=()):
        """A check: an error of this type; `message` is a pattern that its message has to match whole."""

        def check(said):
            self.assertEqual((said.kind, said.status), (ERROR, status), said)
            self.assertEqual(sorted(said.value), ["message", "traceback", "type"])
            self.assertEqual(said.value["type"], kind, said)
            self.assertRegex(said.value["message"], re.compile("^(?:%s)$" % message, re.S))
            for text in in_trace:
                self.assertIn(text, said.value["traceback"])
            for text in ("toolcall.py", "frozen importlib", "asyncio/base_events", *absent):
                self.assertNotIn(text, said.value["traceback"])
            self.assertLessEqual(len(said.value["message"].encode()), 8192)
            self.assertLessEqual(len(said.value["traceback"].encode()), 65536)

        return check

    def unknown(self, said):
        self.assertEqual((said.kind, said.status), (UNKNOWN, 1), said)


class Machine(unittest.TestCase):
    def test_pythons(self):
        self.assertTrue(PYTHONS)
        print("    of toolcall.py: Python %s" % ", ".join("%d.%d" % v for v in PYTHONS))

    def test_same_limits_as_the_table(self):
        with open(os.path.join(TOP, "userspace/core/limits.h")) as f:
            table = dict(re.findall(r"LIMIT\((\w+), ([^,]+),", f.read()))
        with open(TOOLCALL) as f:
            text = f.read()
        for name in ("RESULT_BYTES", "RESULT_DEPTH", "JSON_DIGITS", "ERROR_TYPE_BYTES", "ERROR_MESSAGE_BYTES", "ERROR_TRACEBACK_BYTES"):
            row = next(line for line in text.splitlines() if name in line.split("=")[0])
            names, values = row.split("#")[0].split("=")
            value = dict(zip([n.strip() for n in names.split(",")], [v.strip() for v in values.split(",")]))[name]
            self.assertEqual(eval(value), eval(table[name].replace("LL", "")), name)

    def test_same_numbers_as_the_headers(self):
        with open(os.path.join(TOP, "runner/plan.h")) as f:
            plan = f.read()
        with open(os.path.join(TOP, "userspace/ipc/ipc.h")) as f:
            ipc = f.read()
        self.assertEqual(re.findall(r"PAYLOAD_FD_(REQUEST|GATE|RESULT) (\d)", plan), [("REQUEST", "3"), ("GATE", "4"), ("RESULT", "5")])
        self.assertEqual([n for n in re.findall(r"^\tRESULT_(\w+),", ipc, re.M)], ["NONE", "VALUE", "ERROR", "UNKNOWN", "KINDS"])
        self.assertIn("#define RESULT_MAGIC 0x%xu" % int.from_bytes(b"WRES", "little"), ipc)


class Kinds(Harness):
    """What a tool can be."""

    FILES = {
        "app.py": """
            from __future__ import annotations

            import contextlib
            import functools
            import os
            import sys
            import types
            from math import pow as power

            def no_arguments(): return "ok"
            def defaults(a, b=2, *, c=3, **rest): return [a, b, c, rest]
            def positional(a, b=2, c=3, /, d=4, **rest): return [a, b, c, d, rest]
            def takes_all(*args, **kwargs): return [list(args), kwargs]
            def annotated(a: NotThere, b: os.nothing.such = 1) -> AlsoNot: return a + b
            def generator(): yield 1
            async def agenerator(): yield 1
            def decorate(f):
                @functools.wraps(f)
                def inner(*args, **kwargs): return ["decorated", f(*args, **kwargs)]
                return inner
            @decorate
            def decorated(a, b=1): return [a, b]
            @decorate
            def decorated_positional(a, b=1, /, c=2): return [a, b, c]
            def decorate_async(f):
                @functools.wraps(f)
                async def inner(*args, **kwargs): return ["decorated", await f(*args, **kwargs)]
                return inner
            @decorate_async
            async def decorated_async(a): return a
            async def plain_async(a): return ["async", a]
            class Counted:
                def __init__(self, func): self.func = func; self.calls = 0
                def __call__(self, *args, **kwargs): self.calls += 1; return [self.calls, self.func(*args, **kwargs)]
            @Counted
            def counted(a): return a
            @contextlib.contextmanager
            def managed(): yield 1

            class Weather:
                units = ["C", "F"]
                def __init__(self, city): self.city = city
                def at(self, day, /, hour=12): return [self.city, day, hour]
                async def later(self, day): return [self.city, day]
                @classmethod
                def known(cls, name): return [cls.__name__, name]
                @staticmethod
                def fixed(a): return a
                def __call__(self, a): return ["called", a]
                @property
                def broken(self): raise RuntimeError("no such luck")
            weather = Weather("Oslo")
            nested = types.SimpleNamespace(inner=types.SimpleNamespace(weather=weather, os=os))
            partial = functools.partial(defaults, 1, c=5)
            partial_positional = functools.partial(positional, 1)
            lambda_ = lambda a: a

            class Described:
                name, description = "described", "of a framework"
                def __init__(self, func=None, coroutine=None): self.func, self.coroutine = func, coroutine
                async def run_async(self, args): raise RuntimeError("not that way")
            class Invoked(Described):
                def invoke(self, args): raise RuntimeError("not that way")
                def __call__(self, text): raise RuntimeError("not that way")
            adk = Described(defaults)
            langchain = Invoked(defaults)
            langchain_async = Invoked(None, plain_async)
            class Fn: pass
            fn = Fn(); fn.fn = defaults
            only_wrapped = Fn(); only_wrapped.__wrapped__ = defaults
            def make_openai(the_func):
                async def impl(ctx, text): return the_func(text)
                async def invoke(ctx, text): return await impl(ctx, text)
                tool = Fn(); tool.name, tool.on_invoke_tool = the_func.__name__, invoke
                return tool
            openai = make_openai(defaults)
            class Invoker:
                def __init__(self, f):
                    async def impl(ctx, text): return f(text)
                    def the_func_of(the_func):
                        async def inner(ctx, text): return the_func(text)
                        return inner
                    self._invoke_tool_impl = the_func_of(f)
                async def __call__(self, ctx, text): return None
            openai_new = Fn(); openai_new.on_invoke_tool = Invoker(defaults)

            LIMIT = 7
            print("at load")
            def print(a): return ["mine", a]
            def twice(): return 1
            def twice(): return 2
            _private = no_arguments
            """,
        "awaits.py": """
            import asyncio, types

            async def coroutine(a): return [a, (await asyncio.sleep(0.01, "slept"))]
            async def reads_loop(): return asyncio.get_running_loop() is asyncio.get_event_loop()
            def returns_coroutine(a): return coroutine(a)
            def runs_a_loop(a): return asyncio.run(coroutine(a))
            @types.coroutine
            def old_style(): yield from asyncio.sleep(0.01).__await__(); return "old"
            class Awaited:
                def __await__(self): return asyncio.sleep(0.01, "awaited").__await__()
            def awaitable(): return Awaited()

            """,
        "pkg/__init__.py": "def at_top(): return 'top'\nfrom . import sub\n",
        "pkg/sub.py": "def below(): return 'below'\n",
        "pkg/lazy.py": "def late(): return 'late'\n",
        "pkg/broken.py": "import nothing_of_that_name\n",
        "pkg/__main__.py": "raise SystemExit('ran the main module')\n",
        "other.py": "def no_arguments(): return 'of other'\ndef only_here(): return 'other'\n",
        "notmine.py": "def f(): return 1\n",
    }

    def test_calls(self):
        self.everywhere(
            [
                ("no_arguments", {}, "ok"),
                ("app:no_arguments", {}, "ok"),
                ("app:_private", {}, "ok"),
                ("app:defaults", {"a": 1}, [1, 2, 3, {}]),
                ("app:defaults", {"c": 9, "a": None, "x": 1, "class": 2, "self": 3, "print": 4, "not-an-identifier": 5, "é": 6, "": 7, "name": 8}, [None, 2, 9, {"x": 1, "class": 2, "self": 3, "print": 4, "not-an-identifier": 5, "é": 6, "": 7, "name": 8}]),
                ("app:positional", {"a": 1}, [1, 2, 3, 4, {}]),
                ("app:positional", {"a": 1, "c": 9, "x": 0}, [1, 2, 9, 4, {"x": 0}]),
                ("app:positional", {"d": 5, "b": 0, "a": 1}, [1, 0, 3, 5, {}]),
                ("app:takes_all", {"args": [1], "kwargs": {}}, [[], {"args": [1], "kwargs": {}}]),
                ("app:annotated", {"a": 1}, 2),
                ("app:decorated", {"a": 1}, ["decorated", [1, 1]]),
                ("app:decorated_positional", {"a": 1, "c": 5}, ["decorated", [1, 1, 5]]),
                ("app:decorated_async", {"a": 1}, ["decorated", 1]),
                ("app:counted", {"a": 1}, [1, 1]),
                ("app:weather.at", {"day": "mon"}, ["Oslo", "mon", 12]),
                ("app:weather.later", {"day": "mon"}, ["Oslo", "mon"]),
                ("app:weather", {"a": 1}, ["called", 1]),
                ("app:nested.inner.weather.at", {"day": "mon", "hour": 1}, ["Oslo", "mon", 1]),
                ("app:Weather.known", {"name": "x"}, ["Weather", "x"]),
                ("app:Weather.fixed", {"a": [1]}, [1]),
                ("app:weather.fixed", {"a": {}}, {}),
                ("weather.known", {"name": "x"}, ["Weather", "x"]),
                ("app:partial", {"b": 7}, [1, 7, 5, {}]),
                ("app:partial_positional", {"b": 7, "d": 8}, [1, 7, 3, 8, {}]),
                ("app:power", {"x": 2, "y": 3}, 8.0),
                ("app:lambda_", {"a": "x"}, "x"),
                ("app:adk", {"a": 1}, [1, 2, 3, {}]),
                ("app:langchain", {"a": 1}, [1, 2, 3, {}]),
                ("app:langchain_async", {"a": 1}, ["async", 1]),
                ("app:fn", {"a": 1}, [1, 2, 3, {}]),
                ("app:only_wrapped", {"a": 1}, [1, 2, 3, {}]),
                ("app:openai", {"a": 1}, [1, 2, 3, {}]),
                ("app:openai_new", {"a": 1}, [1, 2, 3, {}]),
                ("print", {"a": 1}, ["mine", 1]),
                ("twice", {}, 2),
            ]
        )

    def test_awaits(self):
        self.everywhere(
            [
                ("awaits:coroutine", {"a": 1}, [1, "slept"]),
                ("awaits:reads_loop", {}, True),
                ("awaits:returns_coroutine", {"a": 1}, [1, "slept"]),
                ("awaits:runs_a_loop", {"a": 1}, [1, "slept"]),
                ("awaits:old_style", {}, "old"),
                ("awaits:awaitable", {}, "awaited"),
            ],
            modules="awaits",
        )

    def test_arguments_stay_exact(self):
        long = "9" * 4300
        text = b'{"a": [%s, 1180591620717411303424, 0.1, 1e308, "\\u00e9\\ud83d\\ude00\\u0000\\uffff", null, true, -0]}' % long.encode()
        self.everywhere([("app:lambda_", text, [int(long), 2**70, 0.1, 1e308, "é😀\0\uffff", None, True, 0])], variables={"PYTHONINTMAXSTRDIGITS": "640"})
        big = {"a": {"x" * 100: list(range(100000)), "t": "é" * 200000}}
        self.everywhere([("app:lambda_", big, big["a"])])

    def test_wrong_arguments_have_pythons_own_words(self):
        e = self.error
        self.everywhere(
            [
                ("app:no_arguments", {"a": 1}, e("TypeError", r"no_arguments\(\) got an unexpected keyword argument 'a'.*")),
                ("app:defaults", {}, e("TypeError", r"defaults\(\) missing 1 required positional argument: 'a'")),
                ("app:positional", {"b": 1, "c": 2}, e("TypeError", r"positional\(\) missing 1 required positional argument: 'a'")),
                ("app:weather.at", {"day": 1, "self": 2}, e("TypeError", r"(Weather\.)?at\(\) got (an unexpected keyword|multiple values for|some positional-only) argument.*'self'.*")),
                ("app:Weather.at", {"day": 1}, e("TypeError", r"(Weather\.)?at\(\) missing 2 required positional arguments: 'self' and 'day'")),
                ("app:decorated", {"b": 1}, e("TypeError", r"decorated\(\) missing 1 required positional argument: 'a'", "in inner")),
            ]
        )

    def test_what_is_no_tool(self):
        names = ["nothing", "app:nothing", "app:weather.nothing", "nobody:f", "notmine:f", "os:system", "app:os", "app:os.system", "os.system", "app:sys.exit", "app:nested.inner.os.getpid", "app:",
                 ":x", "app:__name__", "app:__builtins__", "app:defaults.__globals__", "app:defaults.__call__", "app:defaults.<locals>.x", "app:no_arguments:x", "app.no_arguments", "len", "eval",
                 "app:weather .at", "builtins:eval", "sys:exit", "__main__:f", "app.os:getpid", "app.__init__:f", "weir-tool:_main", "weir:other"]  # fmt: skip

        missing = r"^(module \S* is none of the agent's \(app\)|module app of the image has no \S.*|\S+ is a module|there is no module app\.os in the image|.+ is no name that a tool can have|none of the agent's modules \(app\) has .+)$"

        def check(said):
            self.assertEqual([(r["name"], r["reason"]) for r in said.value["tools"] if not re.match(missing, r["reason"])], [])
            self.assertEqual(len(said.value["tools"]), len(names))

        # All at once, and a few as they are called.
        self.everywhere([("weir:describe", {"tools": [{"name": n, "signature": ""} for n in names]}, check)])
        self.everywhere([(name, {}, self.unknown) for name in names[:3] + ["os:system", "app:os.system", "app:", "weir:other"]])

    def test_not_callable(self):
        e = self.error
        self.everywhere(
            [
                ("app:LIMIT", {}, e("ToolLoadError", "app:LIMIT is no tool: it is of type int")),
                ("Weather.units", {}, e("ToolLoadError", "Weather.units is no tool: it is of type list")),
                ("app:weather.broken", {}, e("RuntimeError", "no such luck", "in broken", 'raise RuntimeError("no such luck")')),
                ("app:generator", {}, e("ToolResultError", "the tool is a generator function: .* list")),
                ("app:agenerator", {}, e("ToolResultError", "the tool is a generator function: .* list")),
                ("app:managed", {}, e("ToolResultError", r".*\$: contextlib\._GeneratorContextManager \(a context manager is no value\)")),
            ]
        )

    def test_packages_and_several_modules(self):
        e = self.error
        self.everywhere(
            [
                ("no_arguments", {}, "of other"),
                ("app:no_arguments", {}, "ok"),
                ("twice", {}, 2),
                ("at_top", {}, "top"),
                ("pkg:at_top", {}, "top"),
                ("pkg.sub:below", {}, "below"),
                ("pkg.lazy:late", {}, "late"),
                ("pkg:sub.below", {}, self.unknown),
                ("pkg.nothing:f", {}, self.unknown),
                ("pkg.sub.nothing:f", {}, self.unknown),
                ("pkg.__main__:f", {}, self.unknown),
                ("pkg.broken:f", {}, e("ToolLoadError", "module pkg.broken could not be imported: ModuleNotFoundError: No module named 'nothing_of_that_name'", "pkg/broken.py", "line 1")),
                ("pkgs:f", {}, self.unknown),
            ],
            modules="other,app,pkg",
        )


class Loading(Harness):
    FILES = {
        "app.py": """
            import os, sys, threading
            print("at load, out")
            print("at load, err", file=sys.stderr)
            os.write(1, b"raw\\n")
            sys.stdout = open(1, "w", closefd=False)   # its own buffer
            sys.stdout.write("kept back")
            SEEN = [sys.argv[:], sys.path[0], sys.modules["__main__"].__dict__.get("__file__"), sorted(vars(sys.modules["__main__"])), sys._xoptions.get("weir"), [n for n in sys.modules if "toolcall" in n or "weir-tool" in n]]
            FDS = sorted(int(n) for n in os.listdir("/proc/self/fd"))
            def seen(): return SEEN
            def fds():
                print("called")
                now = sorted(int(n) for n in os.listdir("/proc/self/fd"))
                return [FDS, now]
            def stdin(): return sys.stdin.read()
            def variables(): return sorted(os.environ)
            def stack():
                f, names = sys._getframe(), []
                while f: names.append(f.f_globals.get("__name__")); f = f.f_back
                return names
            """,
        "raises.py": "\n\ndef helper():\n    raise ValueError('at load')\n\nhelper()\ndef tool(): return 1\n",
        "exits.py": "import sys\nsys.exit(3)\n",
        "syntax.py": "def tool(:\n    return 1\n",
        "needs.py": "import requests_of_nobody\n",
        "fine.py": "def tool(): return 'fine'\ndef other(): return 'o'\n",
        "hard.py": "import os\nos._exit(7)\n",
        "forks.py": "import os\nif os.fork() == 0:\n    pass\ndef tool(): return os.getpid() == int(open('/proc/self/stat').read().split()[0])\n",
        "later.py": "async def later(a):\n    return [a]\n",
        "threads.py": "import threading, time\nt = threading.Thread(target=time.sleep, args=(60,), daemon=False)\nt.start()\ndef tool(): return t.is_alive()\n",
        "closes.py": "import os\nos.closerange(3, 256)\ndef tool(): return 'still'\n",
        "needs_twice.py": "import raises\n",
        "replaced.py": "import sys\nclass Lazy:\n    def tool(self): return 'lazy'\nsys.modules[__name__] = Lazy()\n",
    }

    def test_surroundings(self):
        def seen(said):
            self.assertEqual(said.loaded, ("L", 0))
            self.assertEqual((said.out, said.err), ("", ""))
            argv, path, file, main, mark, ours = said.value
            self.assertEqual((argv, path, file, mark, ours), (["weir-tool"], self.folder, None, "call", []))
            self.assertEqual(main, ["__builtins__", "__doc__", "__loader__", "__name__", "__package__", "__spec__"])

        def fds(said):
            # 3 is the listing's own. What else is low the runner of the tests has handed down.
            self.assertEqual([n for n in said.value[0] if n < 6], [0, 1, 2, 3], said)
            self.assertEqual([n for n in said.value[1] if n < 6], [0, 1, 2, 3], said)
            self.assertEqual(said.out, "called\n")

        self.everywhere([("app:seen", {}, seen), ("app:fds", {}, fds), ("app:stdin", {}, "")])

    def test_variables_of_an_image(self):
        """What an image's author may have set for the interpreter: none of it is in the way of a call."""
        quiet = {"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2", "PYTHONINSPECT": "1", "PYTHONUTF8": "0", "LC_ALL": "POSIX", "PYTHONNOUSERSITE": "1", "PYTHONBREAKPOINT": "0"}
        loud = {"PYTHONDEVMODE": "1", "PYTHONASYNCIODEBUG": "1", "PYTHONMALLOC": "debug", "PYTHONTRACEMALLOC": "5", "PYTHONSTARTUP": "/nowhere", "LANG": "C"}
        for variables in (quiet, loud):
            self.everywhere([("later", {"a": "é"}, ["é"])], modules="later", variables=variables)

    def test_few_descriptors(self):
        """As few as a policy may leave: the result's is still one that nobody counts up to, and there."""
        for version, python in PYTHONS.items():
            for limit in (40, 41, 50, 64) if version == max(PYTHONS) else (40,):
                started = None
                with self.subTest(python=version, limit=limit):
                    try:
                        started = Started("/usr/bin/prlimit", "fine", self.folder, before=["--nofile=%d" % limit, python])
                        self.assertEqual(started.load(), ("L", 0))
                        started.send("fine:tool", {})
                        started.gate.send(b"G")
                        said = started.finish(("L", 0))
                        self.assertEqual((said.kind, said.value), (VALUE, "fine"), said)
                    finally:
                        if started:
                            started.close()

    def test_path_of_modules(self):
        self.everywhere([("fine:tool", {}, "fine")], modules="fine", variables={"PYTHONPATH": self.folder})
        self.everywhere([("fine:tool", {}, "fine")], modules="fine", variables={"PYTHONSAFEPATH": "1"})

        def first(said):
            self.assertEqual(said.value[1], "/", said)

        for version, python in PYTHONS.items():
            said = [call(python, folder, "app:seen", {}, variables={"PYTHONPATH": self.folder}) for folder in ("", "/nowhere/at/all")]
            with self.subTest(python=version):
                first(said[0])
                first(said[1])

    def test_failed_load(self):
        e = self.error

        def after(letter, check):
            def both(said):
                self.assertEqual(said.loaded, letter)
                check(said)

            return both

        bad = ("L", 1)
        rows = [
            ("raises", "tool", e("ToolLoadError", "module raises could not be imported: ValueError: at load", 'raises.py", line 6, in <module>', 'raises.py", line 4, in helper', "raise ValueError('at load')")),
            ("raises", "raises:tool", e("ToolLoadError", "module raises could not be imported: ValueError: at load")),
            ("exits", "exits:tool", e("ToolLoadError", "module exits could not be imported: SystemExit: 3", 'exits.py", line 2')),
            ("syntax", "syntax:tool", e("ToolLoadError", r"module syntax could not be imported: SyntaxError: invalid syntax.*|.*SyntaxError.*", 'syntax.py", line 1', "def tool(:")),
            ("needs", "needs:tool", e("ToolLoadError", "module needs could not be imported: ModuleNotFoundError: No module named 'requests_of_nobody'", 'needs.py", line 1')),
            ("needs_twice", "tool", e("ToolLoadError", "module needs_twice could not be imported: ValueError: at load", 'needs_twice.py", line 1', 'raises.py", line 4')),
            ("nowhere_to_be_found", "tool", e("ToolLoadError", "module nowhere_to_be_found could not be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'")),
            # One that fails does not take the others along, but a bare name might have been its.
            ("needs,fine", "fine:tool", lambda said: self.assertEqual(said.value, "fine")),
            ("needs,fine", "tool", e("ToolLoadError", "module needs could .*")),
            ("fine,needs", "tool", lambda said: self.assertEqual(said.value, "fine")),
            ("fine,needs", "nothing", e("ToolLoadError", "module needs could .*")),
        ]
        for modules, name, check in rows:
            self.everywhere([(name, {}, after(bad, check))], modules=modules)

    def test_load_that_goes_its_own_way(self):
        def ended(said):
            self.assertEqual((said.loaded, said.kind, said.status), (None, None, 7), said)

        self.everywhere([("hard:tool", {}, ended)], modules="hard")
        self.everywhere([("forks:tool", {}, True)], modules="forks")
        self.everywhere([("threads:tool", {}, True)], modules="threads")
        self.everywhere([("closes:tool", {}, "still")], modules="closes")
        self.everywhere([("replaced:tool", {}, "lazy")], modules="replaced")

    def test_a_client_that_goes_away(self):
        for version, python in PYTHONS.items():
            with self.subTest(python=version):
                started = Started(python, "fine", self.folder)
                try:
                    self.assertEqual(started.load(), ("L", 0))
                    started.request.close()
                    said = started.finish(None)
                    self.assertEqual((said.kind, said.status), (None, 124), said)
                finally:
                    started.close()
                # The gate does not open.
                started = Started(python, "fine", self.folder)
                try:
                    self.assertEqual(started.load(), ("L", 0))
                    started.send("fine:tool", {})
                    started.gate.close()
                    said = started.finish(None)
                    self.assertEqual((said.kind, said.status), (None, 124), said)
                finally:
                    started.close()


class Shadowed(Harness):
    """An agent's own module has the name of one that makes tracebacks."""

    FILES = {
        "app.py": "def outer(): return inner()\ndef inner():\n    try:\n        1 / 0\n    except ZeroDivisionError as e:\n        raise ValueError('no') from e\ndef empty(): raise ValueError\ndef fine(): return 1\n",
        "traceback.py": "raise RuntimeError('not that traceback')\n",
        "syntax.py": "def tool(:\n    return 1\n",
    }

    def test_tracebacks(self):
        self.everywhere(
            [
                ("app:outer", {}, self.error("ValueError", "no", 'app.py", line 1, in outer', "return inner()", "ZeroDivisionError", "direct cause", "raise ValueError('no') from e", "ValueError: no")),
                ("app:fine", {}, 1),
            ]
        )
        self.everywhere([("syntax:tool", {}, self.error("ToolLoadError", ".*SyntaxError.*", 'syntax.py", line 1', "def tool(:"))], modules="syntax")


class Results(Harness):
    FILES = {
        "app.py": r"""
            import collections, dataclasses, datetime, decimal, enum, fractions, gc, pathlib, sys, uuid

            class Text(str):
                def __str__(self): return "not this"
                def __len__(self): return 3
                def encode(self, *a): return b"nor this"
            class Whole(int):
                def __repr__(self): return "0; drop"
                __str__ = __repr__
            class Real(float):
                def __repr__(self): return "NaN"
            class Level(enum.IntEnum): LOW = 1
            class Colour(str, enum.Enum): RED = "red"
            class Plain(enum.Enum): A = 1
            class Listed(list):
                def __iter__(self): return iter(["not", "these"])
                def __len__(self): return 99
            class Mapped(dict):
                def items(self): return [("not", "these")]
                def __iter__(self): return iter(["nor"])
                def keys(self): return ["nor"]
            Pair = collections.namedtuple("Pair", "a b")
            class Liar:
                @property
                def __class__(self): return str
            @dataclasses.dataclass
            class Row: a: int = 1
            class Meta(type):
                def __getattribute__(cls, name): raise RuntimeError("hostile")
            class Hostile(metaclass=Meta): pass
            def nested(n):
                value = 1
                for _ in range(n): value = [value] if n % 2 else {"a": value}
                return value
            def loop(kind):
                value = [] if kind == "list" else {}
                (value.append(value) if kind == "list" else value.update(again={"x": [value]}))
                return value
            def shared(): a = [1]; return [a, a, {"a": a, "b": a}]
            def bomb():
                value = ["x"] * 10
                for _ in range(12): value = [value] * 10
                return value
            def strings(): return ["x" * (1 << 20)] * 100000
            def numbers(): return [10 ** 4299] * 4000000
            def sized(n): return "x" * (n - 2)
            def sized_wide(n): return "é" * ((n - 2) // 2)
            def sized_list(n): return [1] * ((n - 1) // 2)
            def escaped(): return "\0" * (2 << 20)
            def memory():
                import resource
                value = "x" * (300 << 20)
                now = int(open("/proc/self/statm").read().split()[0]) * 4096
                resource.setrlimit(resource.RLIMIT_AS, (now + (64 << 20), now + (64 << 20)))
                return value
            class Model:
                def model_dump(self): return {}
            def by(expression): return eval(expression)
            def many(expressions): return [eval(e) for e in expressions]
            def refusals(expressions):
                # What the harness would say of each: taken from where it is not to be found.
                harness = next(o for o in gc.get_objects() if type(o) is dict and o.get("__name__") == "weir-tool")
                said = []
                for e in expressions:
                    try: said.append(["made", harness["_value_text"](eval(e)).decode()])
                    except harness["_Failed"] as error: said.append([error.kind, error.message])
                return said
            def generator():
                return (n for n in range(3))
            async def agen_object():
                async def g(): yield 1
                return g()
            def fast():
                import time
                rows = [{"id": n, "name": "row %d" % n, "value": n / 7, "flags": [True, None]} for n in range(60000)]
                time.perf_counter()
                return rows
            """
    }

    def by(self, expression, check):
        return ("app:by", {"expression": expression}, check)

    def refused(self, expression, pattern):
        return self.by(expression, self.error("ToolResultError", "the result can't be JSON: " + pattern))

    def test_values(self):
        rows = [
            ("None", None),
            ("False", False),
            ("True", True),
            ("0", 0),
            ("-0.0", -0.0),
            ("1e300", 1e300),
            ("5e-324", 5e-324),
            ("2**64 + 1", 2**64 + 1),
            ("-2**200", -(2**200)),
            ("10**4299", 10**4299),
            ("''", ""),
            ("[]", []),
            ("()", []),
            ("{}", {}),
            ("(1, (2,), [3])", [1, [2], [3]]),
            ("{'a': (None, [True])}", {"a": [None, [True]]}),
            ("'\\x00\\x1f\\x7f\\u2028\\ufffe\\uffff\\\"\\\\/😀'", '\x00\x1f\x7f\u2028\ufffe\uffff"\\/😀'),
            ("{'\\x00': 1, '': 2, 'é': 3}", {"\x00": 1, "": 2, "é": 3}),
            ("[[], {}, [[]], {'a': {}}]", [[], {}, [[]], {"a": {}}]),
            ("Text('kept')", "kept"),
            ("[Text('kept'), 1]", ["kept", 1]),
            ("{Text('key'): Text('kept')}", {"key": "kept"}),
            ("[Whole(7), Level.LOW, Colour.RED, Real(1.5)]", [7, 1, "red", 1.5]),
            ("Listed([1, [2]])", [1, [2]]),
            ("Mapped(a=1, b=[Mapped(c=2)])", {"a": 1, "b": [{"c": 2}]}),
            ("Pair(1, Pair(2, 3))", [1, [2, 3]]),
            ("collections.OrderedDict(a=1)", {"a": 1}),
            ("collections.Counter('aab')", {"a": 2, "b": 1}),
            ("collections.defaultdict(list, a=[1])", {"a": [1]}),
            # Other keys, as json.dumps names them
            ("{1: 'a', None: 'b', True: 'c', 2.5: 'd'}", {"1": "c", "null": "b", "2.5": "d"}),
            ("{0: 'a', False: 'b'}", {"0": "b"}),
            ("{Level.LOW: 1, Whole(5): 2, Colour.RED: 3}", {"1": 1, "5": 2, "red": 3}),
            # Surrogates
            ("'\\ud800'", "\ufffd"),
            ("['a\\udfffb', {'\\udc00k': '\\ud83d\\ude00'}]", ["a\ufffdb", {"\ufffdk": "😀"}]),
            ("{'a\\ud800': Text('\\udfff')}", {"a\ufffd": "\ufffd"}),
        ]

        def check(said):
            self.assertEqual(said.kind, VALUE, said)
            for (expression, value), got in zip(rows, said.value):
                self.assertEqual((expression, got, type(got)), (expression, value, type(value)))

        # Those with surrogates take another way, so once without them; and some alone.
        self.everywhere([("app:many", {"expressions": [e for e, _ in some]}, check) for some in (rows[:-3], rows)])
        self.everywhere([self.by(*rows[n]) for n in (0, 1, 3, 11, 12, 20, 33)])
        self.everywhere([("app:shared", {}, [[1], [1], {"a": [1], "b": [1]}])])
        self.everywhere([("app:nested", {"n": n}, lambda said: self.assertEqual(said.kind, VALUE)) for n in (1, 2, 59, 60)])

    def test_refused(self):
        rows = [
            (r"float('nan')", r"\$: nan is no number in JSON"),
            (r"[1.0, 2.0, float('-inf')]", r"\$\[2\]: -inf is no number in JSON"),
            (r"{'a': [{'b': float('inf')}]}", r"\$\.a\[0\]\.b: inf is no number in JSON"),
            (r"Real('nan')", r"\$: nan is no number in JSON"),
            (r"10**4300", r"\$: an int of more than 4300 digits"),
            (r"[1, -10**4300]", r"\$\[1\]: an int of more than 4300 digits"),
            (r"{'rows': [1, 2, 3, {'when': datetime.datetime(2020, 1, 1)}]}", r"\$\.rows\[3\]\.when: datetime\.datetime \(return \.isoformat\(\)\)"),
            (r"b'x'", r"\$: bytes \(.*base64\)"),
            (r"{'a': bytearray()}", r"\$\.a: bytearray \(.*base64\)"),
            (r"{1}", r"\$: set \(return a list\)"),
            (r"decimal.Decimal('1')", r"\$: decimal\.Decimal \(.*\)"),
            (r"fractions.Fraction(1)", r"\$: fractions\.Fraction \(.*\)"),
            (r"pathlib.PurePosixPath('/x')", r"\$: pathlib\S*\.PurePosixPath \(return str\(\) of it\)"),
            (r"uuid.UUID(int=0)", r"\$: uuid\.UUID \(.*\)"),
            (r"Plain.A", r"\$: app\.Plain \(return its \.value\)"),
            (r"Row()", r"\$: app\.Row \(return dataclasses\.asdict\(\) of it\)"),
            (r"[Model()]", r"\$\[0\]: app\.Model \(return \.model_dump\(\) of it\)"),
            (r"1j", r"\$: complex \(.*\)"),
            (r"range(3)", r"\$: range \(return a list\)"),
            (r"iter([])", r"\$: list_iterator \(a tool returns its values.*\)"),
            (r"map(str, [])", r"\$: map \(a tool returns its values.*\)"),
            (r"generator()", r"\$: generator \(a tool returns its values.*\)"),
            (r"{}.keys()", r"\$: dict_keys \(.*\)"),
            (r"object()", r"\$: object \(.*\)"),
            (r"len", r"\$: builtin_function_or_method \(.*\)"),
            (r"Liar()", r"\$: app\.Liar \(.*\)"),
            (r"Hostile", r"\$: app\.Meta \(.*\)"),
            (r"[Hostile.__new__(Hostile) if 0 else object.__new__(Hostile)]", r"\$\[0\]: app\.Hostile \(.*\)"),
            (r"collections.UserDict(a=1)", r"\$: collections\.UserDict \(.*\)"),
            (r"{'a b': {'c\"d': [{}, b'']}}", r'\$\["a b"\]\["c\\"d"\]\[1\]: bytes \(.*\)'),
            (r"{1: 'a', '1': 'b'}", r'\$: two keys become the name "1"'),
            (r"{'x': {None: 1, 'null': 2}}", r'\$\.x: two keys become the name "null"'),
            (r"{True: 1, 'true': 2}", r'\$: two keys become the name "true"'),
            (r"{1.5: 1, '1.5': 2}", r'\$: two keys become the name "1\.5"'),
            (r"{'\ud800': 1, '\udfff': 2}", r'\$: two keys become the name "\ufffd"'),
            (r"{(1, 2): 3}", r"\$: a key is tuple"),
            (r"{Pair(1, 2): 3}", r"\$: a key is app\.Pair"),
            (r"{b'a': 3}", r"\$: a key is bytes"),
            (r"{float('nan'): 3}", r"\$: nan is no number in JSON"),
            (r"[1] * 10 + [[[datetime.date(2020, 1, 1)]]]", r"\$\[10\]\[0\]\[0\]: datetime\.date \(return \.isoformat\(\)\)"),
        ]

        def check(said):
            self.assertEqual(said.kind, VALUE, said)
            for (expression, pattern), (kind, message) in zip(rows, said.value):
                self.assertEqual((expression, kind), (expression, "ToolResultError"), message)
                self.assertRegex(message, "^the result can't be JSON: %s$" % pattern)
            self.assertEqual(len(rows), len(said.value))

        self.everywhere([("app:refusals", {"expressions": [e for e, _ in rows]}, check)])
        self.everywhere([self.refused(*rows[n]) for n in (0, 6, 27, 30)])
        self.everywhere(
            [
                ("app:loop", {"kind": "list"}, self.error("ToolResultError", r"the result can't be JSON: \$\[0\]: list that contains itself")),
                ("app:loop", {"kind": "dict"}, self.error("ToolResultError", r"the result can't be JSON: \$\.again\.x\[0\]: dict that contains itself")),
                ("app:nested", {"n": 61}, self.error("ToolResultError", ".*nested more than 60 levels deep")),
                ("app:nested", {"n": 100000}, self.error("ToolResultError", ".*nested more than 60 levels deep")),
                ("app:agen_object", {}, self.error("ToolResultError", r".*\$: async_generator \(a tool returns its values.*\)")),
            ]
        )

    def test_size(self):
        limit = 8 << 20
        fits = lambda n: lambda said: self.assertEqual((said.kind, len(said.data)), (VALUE, n + 16))  # noqa: E731
        large = lambda n: self.error("ToolResultError", r"the result is too large \(%s\)" % n)  # noqa: E731
        self.everywhere(
            [
                ("app:sized", {"n": limit}, fits(limit)),
                ("app:sized", {"n": limit + 1}, large("8388609 bytes; the limit is 8388608")),
                ("app:sized_wide", {"n": limit}, fits(limit)),
                ("app:sized_wide", {"n": limit + 2}, large("8388610 bytes; the limit is 8388608")),
                ("app:sized_list", {"n": limit - 1}, fits(limit - 1)),
                ("app:sized_list", {"n": limit + 1}, large("8388609 bytes; the limit is 8388608")),
                ("app:escaped", {}, large(r"12582914 bytes; the limit is 8388608")),
            ]
        )

    def test_memory_is_bounded(self):
        large = self.error("ToolResultError", r"the result is too large \(more than 8388608 bytes\)")
        self.everywhere([("app:bomb", {}, large), ("app:strings", {}, large), ("app:numbers", {}, large), ("app:memory", {}, large)])

    def test_plain_data_is_fast(self):
        rows = 60000
        began = time.monotonic()
        said = call(list(PYTHONS.values())[-1], self.folder, "app:fast", {})
        self.assertEqual((said.kind, len(said.value)), (VALUE, rows), said)
        self.assertLess(time.monotonic() - began, 5 * SLOW)


class Errors(Harness):
    FILES = {
        "app.py": r"""
            import os, sys

            def inner(n): return 1 // n
            def divides(): return inner(0)
            def chained():
                try:
                    inner(0)
                except ZeroDivisionError as e:
                    raise ValueError("outer") from e
            def in_handler():
                try:
                    inner(0)
                except ZeroDivisionError:
                    raise KeyError("second")
            async def in_async():
                import asyncio
                await asyncio.sleep(0)
                inner(0)
            async def cancelled():
                import asyncio
                raise asyncio.CancelledError()
            def raises(name, *args): raise __builtins__[name]
            def exits(code): sys.exit(code)
            def exits_plain(): sys.exit()
            async def exits_async(): sys.exit(4)
            def interrupted(): raise KeyboardInterrupt
            def closed(): raise GeneratorExit("g")
            def stops(): raise StopIteration(5)
            class Base(BaseException): pass
            def base(): raise Base("of its own")
            def group(): raise ExceptionGroup("several", [ValueError("one"), TypeError("two")])
            class Silent(Exception):
                def __str__(self): raise RuntimeError("no")
                __repr__ = __str__
            def silent(): raise Silent("x")
            class Fatal(Exception):
                def __str__(self): raise KeyboardInterrupt
            def fatal(): raise Fatal
            class Number(Exception):
                def __str__(self): return 5
            def number(): raise Number
            class Endless(Exception):
                def __str__(self): return str(self)
            def endless(): raise Endless
            class Long(Exception):
                def __str__(self): return "x" * (100 << 20)
            def long(): raise Long
            def long_argument(): raise ValueError("é" * 100000)
            class Sub(str):
                def __len__(self): return 3
                def encode(self, *a): return b"no"
            class Subbed(Exception):
                def __str__(self): return Sub("subbed")
            def subbed(): raise Subbed
            class Meta(type):
                @property
                def __name__(cls): raise RuntimeError("no name")
                @property
                def __module__(cls): raise RuntimeError("no module")
                def __getattribute__(cls, name):
                    if name in ("__name__", "__qualname__"): raise RuntimeError("hostile")
                    return type.__getattribute__(cls, name)
            class Named(Exception, metaclass=Meta): pass
            def named(): raise Named("of a hostile class")
            def long_name(): raise type("N" * (10 << 20), (Exception,), {})("x")
            def surrogates(): raise ValueError("\ud800x\ud83d\ude00")
            class Causes(Exception):
                __cause__ = property(lambda self: 1 / 0)
                __context__ = property(lambda self: "no")
                __traceback__ = property(lambda self: 5)
                __suppress_context__ = property(lambda self: 1 / 0)
            def causes(): raise Causes("of properties")
            def deep():
                def f(n): return f(n + 1) + 1
                return f(0)
            def chain(n):
                error = None
                for i in range(n):
                    try:
                        raise ValueError("link %d" % i) from error
                    except ValueError as e:
                        error = e
                raise error
            def circle():
                a, b = ValueError("a"), ValueError("b")
                a.__cause__, b.__cause__ = b, a
                raise a
            def long_line(): raise ValueError("on a long line") if "XXXX" else None
            def syntax(): compile("a b", "made.py", "exec")
            def evaluated(): exec(compile("\n\nraise ValueError('in made')", "made.py", "exec"))
            def memory(): raise MemoryError
            def os_error(): open("/nowhere/at/all")
            def key(): return {}["k\nl"]
            def empty(): raise ValueError
            def hard(code): os._exit(code)
            def replaced(): os.execv("/bin/true", ["true"])
            def killed(): os.kill(os.getpid(), 9)
            def prints_and_raises():
                print("before"); sys.stderr.write("e"); raise ValueError
            def recursion_limit():
                sys.setrecursionlimit(60)
                raise ValueError("narrow")
            def type_error(): return len(5)
            """.replace("XXXX", "y" * 3000)
    }

    def test_ordinary(self):
        e = self.error
        self.everywhere(
            [
                ("app:divides", {}, e("ZeroDivisionError", ".*division.* by zero", "Traceback (most recent call last):", 'app.py", line 4, in inner', "def inner(n): return 1 // n", "in divides", "ZeroDivisionError: ")),
                ("app:chained", {}, e("ValueError", "outer", "in inner", "direct cause", "in chained", "ValueError: outer")),
                ("app:in_handler", {}, e("KeyError", "'second'", "in inner", "During handling", "KeyError: 'second'")),
                ("app:in_async", {}, e("ZeroDivisionError", ".*by zero", "in inner", "in in_async")),
                ("app:cancelled", {}, e("CancelledError", "", "in cancelled")),
                ("app:syntax", {}, e("SyntaxError", ".*", 'File "made.py", line 1', "in syntax")),
                ("app:evaluated", {}, e("ValueError", "in made", 'File "made.py", line 3')),
                ("app:memory", {}, e("MemoryError", "", "in memory")),
                ("app:os_error", {}, e("FileNotFoundError", r"\[Errno 2\] No such file or directory: '/nowhere/at/all'", "in os_error")),
                ("app:key", {}, e("KeyError", r"'k\\nl'", "in key")),
                ("app:empty", {}, e("ValueError", "", "in empty")),
                ("app:type_error", {}, e("TypeError", r"object of type 'int' has no len\(\)", "in type_error")),
                ("app:surrogates", {}, e("ValueError", "\ufffdx😀", "\ufffdx")),
                ("app:recursion_limit", {}, e("ValueError", "narrow", "in recursion_limit")),
                ("app:deep", {}, e("RecursionError", "maximum recursion depth exceeded.*", "in f", "RecursionError")),
                ("app:long_line", {}, e("ValueError", "on a long line", "in long_line")),
            ]
        )

        def printed(said):
            e("ValueError", "")(said)
            self.assertEqual((said.out, said.err), ("before\n", "e"))

        self.everywhere([("app:prints_and_raises", {}, printed)])

    def test_what_stops_programs(self):
        e = self.error
        ended = "tool ended without returning a value "
        self.everywhere(
            [
                ("app:interrupted", {}, e("KeyboardInterrupt", "", "in interrupted")),
                ("app:closed", {}, e("GeneratorExit", "g", "in closed")),
                ("app:stops", {}, e("StopIteration", "5", "in stops")),
                ("app:base", {}, e("Base", "of its own", "in base", "app.Base: of its own")),
                ("app:exits", {"code": 0}, e("SystemExit", ended + r"\(sys\.exit\(0\)\)", "in exits", status=0)),
                ("app:exits", {"code": 3}, e("SystemExit", ended + r"\(sys\.exit\(3\)\)", "in exits", status=3)),
                ("app:exits", {"code": 259}, e("SystemExit", ended + r"\(sys\.exit\(259\)\)", "in exits", status=3)),
                ("app:exits", {"code": "words"}, e("SystemExit", ended + r"\(sys\.exit\(words\)\)", "in exits", status=1)),
                ("app:exits", {"code": None}, e("SystemExit", ended + r"\(sys\.exit\(\)\)", "in exits", status=0)),
                ("app:exits_plain", {}, e("SystemExit", ended + r"\(sys\.exit\(\)\)", "in exits_plain", status=0)),
                ("app:exits_async", {}, e("SystemExit", ended + r"\(sys\.exit\(4\)\)", "in exits_async", status=4)),
            ]
        )
        self.everywhere([("app:group", {}, e("ExceptionGroup", r"several \(2 sub-exceptions\)", "in group", "ValueError: one", "TypeError: two"))], since=(3, 11))

    def test_no_frame(self):
        def ended(status):
            return lambda said: self.assertEqual((said.kind, said.status), (None, status), said)

        self.everywhere([("app:hard", {"code": 0}, ended(0)), ("app:hard", {"code": 5}, ended(5)), ("app:replaced", {}, ended(0)), ("app:killed", {}, ended(-9))])

    def test_hostile(self):
        e = self.error
        cut = r"x{7000,}… \[cut: 104857600 characters in all\] …"
        self.everywhere(
            [
                ("app:silent", {}, e("Silent", "<no message: making it raised RuntimeError>", "in silent", "Silent: <no message")),
                ("app:fatal", {}, e("Fatal", "<no message: making it raised KeyboardInterrupt>", "in fatal")),
                ("app:number", {}, e("Number", "<no message: making it raised TypeError>", "in number")),
                ("app:endless", {}, e("Endless", "<no message: making it raised RecursionError>", "in endless")),
                ("app:long", {}, e("Long", cut, "in long", "[cut: 104857600 characters in all]")),
                ("app:long_argument", {}, e("ValueError", r"é{4000,}… \[cut: 100000 characters in all\] …", "in long_argument")),
                ("app:subbed", {}, e("Subbed", "subbed", "in subbed", "subbed")),
                ("app:named", {}, e("Named", "of a hostile class", "in named")),
                ("app:long_name", {}, e("N{255}", "x") if False else lambda said: self.assertEqual((said.value["type"], said.value["message"]), ("N" * 255, "x"))),
                ("app:causes", {}, e("Causes", "of properties", "in causes")),
                ("app:chain", {"n": 40}, e("ValueError", "link 39", "link 0", "link 39")),
                ("app:chain", {"n": 3000}, e("ValueError", "link 2999", "link 2999")),
                ("app:circle", {}, e("ValueError", "a", "in circle")),
            ]
        )


class Mischief(Harness):
    """What a tool can do to its interpreter."""

    FILES = {
        "app.py": r"""
            import atexit, builtins, gc, json, os, signal, sys, threading, time

            def breaks_json():
                json.dumps = json.loads = json.JSONEncoder = json.encoder.JSONEncoder = None
                json.encoder.encode_basestring = json.encoder.c_make_encoder = lambda *a: 1 / 0
                return {"a": [1, "é"]}
            def breaks_builtins():
                put, names = setattr, [n for n in vars(builtins) if not n.startswith("__")]
                for name in names: put(builtins, name, None)
                return [1, 2.5, "x", {"y": (None,)}]
            def breaks_builtins_wholly():
                builtins.__dict__.clear()
                return ["kept"]
            def breaks_sys():
                sys.stdout = sys.stderr = None
                sys.modules.clear()
                sys.path[:] = []
                return "kept"
            def breaks_posix():
                import posix
                for name in ("write", "_exit", "close", "getpid"): setattr(posix, name, lambda *a: None); setattr(os, name, lambda *a: None)
                return "kept"
            def breaks_stdout():
                class Bad:
                    def flush(self): raise SystemExit(9)
                    def __getattr__(self, name): raise KeyboardInterrupt
                sys.stdout = Bad()
                return "kept"
            def closes_stdout():
                sys.stdout.close(); os.close(2)
                return "kept"
            def traces():
                def spy(frame, *a):
                    if frame.f_code.co_name != "traces": raise RuntimeError("in a hook")
                sys.settrace(spy); sys.setprofile(spy)
                return "kept"
            def narrow():
                for limit in range(1, 60):
                    try: return [sys.setrecursionlimit(limit), {"b": [1, {"c": [[]]}]}]
                    except RecursionError: pass
            def alarm(delay):
                def late(*a): raise RuntimeError("late")
                signal.signal(signal.SIGALRM, late)
                signal.setitimer(signal.ITIMER_REAL, delay)
                return list(range(100000))
            def digits():
                if hasattr(sys, "set_int_max_str_digits"): sys.set_int_max_str_digits(640)
                return 10 ** 4000
            def counts_up():
                for fd in range(3, 1000):
                    try: os.write(fd, b"WRES" + b"\1\0\0\0" + (4).to_bytes(8, "little") + b"null")
                    except OSError: pass
                return "honest"
            def prints_frames():
                os.write(1, b"WRES\1\0\0\0\4\0\0\0\0\0\0\0null")
                print("WEIR", flush=True)
                return "honest"
            def forks():
                if os.fork() == 0: return "of the child"
                time.sleep(0.2)
                return "of the parent"
            def forks_and_raises():
                if os.fork() == 0: raise ValueError("of the child")
                time.sleep(0.2)
                return "of the parent"
            def leaves_threads():
                for _ in range(3): threading.Thread(target=time.sleep, args=(60,)).start()
                return "at once"
            def leaves_children():
                import subprocess
                subprocess.Popen(["sleep", "60"]); return "at once"
            def at_exit():
                atexit.register(time.sleep, 60); return "at once"
            def no_threads_left(): return threading.current_thread() is threading.main_thread()
            def collects(): gc.collect(); return len([o for o in gc.get_objects() if type(o) is dict and o.get("__name__") == "__main__"])
            def finds_by_gc():
                # Who looks for it finds it: what it writes is told as no result.
                for o in gc.get_objects():
                    if type(o) is dict and o.get("__name__") == "weir-tool":
                        o["_value_text"] = lambda value: b'"forged"'
                return "honest"
            class Late:
                def __del__(self): raise RuntimeError("in __del__")
            def late(): return [1 for _ in [Late()]]
            def changes():
                rows = [{"n": n} for n in range(1000)]
                def change():
                    while True:
                        for row in rows: row["n"] = b"bytes"; row["n"] = 1
                threading.Thread(target=change, daemon=True).start()
                return rows
            def main_module():
                import __main__
                return [hasattr(__main__, n) for n in ("_main", "_run", "RESULT", "__file__")]
            def spawns():
                import multiprocessing
                with multiprocessing.get_context("spawn").Pool(1) as pool: return pool.map(abs, [-1, -2])
            """,
        "awaits.py": """
            import asyncio, sys, time

            async def leaves_tasks():
                async def on():
                    try: await asyncio.sleep(60)
                    except asyncio.CancelledError: print("cancelled"); raise
                async def fails(): raise ValueError("nobody asked")
                leaves_tasks.kept = [asyncio.ensure_future(on()) for _ in range(3)] + [asyncio.ensure_future(fails())]
                await asyncio.sleep(0.01)
                return "at once"
            async def stubborn_task():
                async def on():
                    while True:
                        try: await asyncio.sleep(60)
                        except asyncio.CancelledError: pass
                stubborn_task.kept = asyncio.ensure_future(on())
                await asyncio.sleep(0.01)
                return "soon"
            async def executor():
                asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
                await asyncio.sleep(0.01)
                return "at once"
            async def open_generator():
                async def g():
                    try: yield 1
                    finally: print("closed")
                open_generator.kept = g()
                async for n in open_generator.kept: return n
            class Policy(asyncio.DefaultEventLoopPolicy if sys.version_info < (3, 14) else object):
                made = 0
                def new_event_loop(self): Policy.made += 1; return super().new_event_loop()
            def own_policy():
                asyncio.set_event_loop_policy(Policy())
                async def f(): return Policy.made
                return f()
            """
    }

    def test_honest_results(self):
        kept = ["breaks_sys", "breaks_posix", "breaks_stdout", "closes_stdout", "traces"]
        self.everywhere(
            [("app:" + name, {}, "kept") for name in kept]
            + [
                ("app:breaks_json", {}, {"a": [1, "é"]}),
                ("app:breaks_builtins", {}, [1, 2.5, "x", {"y": [None]}]),
                ("app:breaks_builtins_wholly", {}, ["kept"]),
                ("app:narrow", {}, [None, {"b": [1, {"c": [[]]}]}]),
                *[("app:alarm", {"delay": n / 1000}, lambda said: self.assertTrue(said.value == list(range(100000)) or said.value["message"] == "late", said)) for n in (1, 2, 4, 8)],
                ("app:digits", {}, 10**4000),
                ("app:counts_up", {}, "honest"),
                ("app:prints_frames", {}, "honest"),
                ("app:forks", {}, "of the parent"),
                ("app:forks_and_raises", {}, "of the parent"),
                ("app:late", {}, [1]),
                ("app:no_threads_left", {}, True),
                ("app:collects", {}, lambda said: self.assertEqual(said.kind, VALUE)),
                ("app:main_module", {}, [False] * 4),
                ("app:spawns", {}, [1, 2]),
                ("app:finds_by_gc", {}, lambda said: self.assertIn(said.value, ("honest", "forged"))),
                ("app:changes", {}, lambda said: self.assertTrue(said.kind == VALUE or said.value["type"] == "ToolResultError", said)),
            ]
        )

    def test_what_is_left_running_is_not_waited_for(self):
        for name in ("app:leaves_threads", "app:leaves_children", "app:at_exit", "awaits:executor"):
            for version, python in PYTHONS.items():
                with self.subTest(name, python=version):
                    began = time.monotonic()
                    said = call(python, self.folder, name, {}, name.partition(":")[0])
                    self.assertEqual((said.kind, said.value, said.status), (VALUE, "at once", 0), said)
                    self.assertLess(time.monotonic() - began, 10 * SLOW)

        def tasks(said):
            self.assertEqual((said.kind, said.value, said.status, said.out), (VALUE, "at once", 0, "cancelled\n" * 3), said)
            self.assertNotIn("toolcall", said.err)

        rows = [("awaits:leaves_tasks", {}, tasks), ("awaits:stubborn_task", {}, "soon"), ("awaits:own_policy", {}, 1), ("awaits:open_generator", {}, 1)]
        self.everywhere(rows, modules="awaits")


class Describe(Harness):
    FILES = {
        "app.py": """
            def weather(city: Nowhere, days: int = 3, /, *, units="C", **more): return 1
            def keyword(a, *, b): return 1
            def all_of(a, /, *rest, k=1): return 1
            def none(): return 1
            def generator(): yield 1
            async def later(a, b=None): return 1
            class Tool:
                def run(self, query): return 1
                @classmethod
                def made(cls, a): return 1
            tool = Tool()
            LIMIT = 1
            """.replace("city: Nowhere", "city: 'Nowhere'"),
        "broken.py": "import nothing_of_that_name\n",
    }

    def test_describe(self):
        signatures = [
            ("app:weather", "(city, days=, /, *, units=, **more)"),
            ("app:keyword", "(a, *, b)"),
            ("app:all_of", "(a, /, *rest, k=)"),
            ("app:none", "()"),
            ("app:later", "(a, b=)"),
            ("app:tool.run", "(query)"),
            ("app:Tool.made", "(a)"),
        ]
        asked = [{"name": n, "signature": s} for n, s in signatures] + [{"name": n, "signature": ""} for n, _ in signatures]
        asked += [{"name": n, "signature": s} for n, s in (("app:none", "(a)"), ("app:nothing", "()"), ("app:LIMIT", ""), ("app:generator", "()"), ("broken:f", "()"), ("other:f", ""))]

        def check(said):
            self.assertEqual((said.kind, said.loaded), (VALUE, ("L", 1)), said)
            self.assertEqual(sorted(said.value), ["modules", "python", "tools"])
            self.assertEqual(said.value["modules"], ["app", "broken"])
            rows = said.value["tools"]
            self.assertEqual([r["name"] for r in rows], [a["name"] for a in asked])
            for row, (_, signature) in zip(rows[:14], signatures * 2):
                self.assertEqual((row["ok"], row["reason"], row["signature"]), (True, None, signature))
            reasons = [(r["ok"], r["reason"]) for r in rows[14:]]
            for (ok, reason), pattern in zip(reasons, (r"its parameters are \(\) in the image, and \(a\) here.*", "module app of the image has no nothing", "app:LIMIT is no tool.*", "it is a generator.*", "module broken could not.*nothing_of_that_name'",
                                                      r"module other is none of the agent's \(app, broken \(which can't be imported: .*nothing_of_that_name'\)\)")):
                self.assertFalse(ok)
                self.assertRegex(reason, "^%s$" % pattern)

        self.everywhere([("weir:describe", {"tools": asked}, check)], modules="app,broken")
        self.everywhere([("weir:describe", {}, lambda said: self.assertEqual(said.value["tools"], []))], modules="app")


if __name__ == "__main__":
    unittest.main()
