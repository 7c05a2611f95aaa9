# SPDX-License-Identifier: Apache-2.0
"""Sessions: one interpreter, many cells, on a real service."""
import base64
import concurrent.futures
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from footprint import Footprint, identity, settled, tree
from lib import SLOW, TOKEN, WEIR, WEIR_HOOKS, Service, pid_ns_inside

# A cell's way to the descriptors that its interpreter speaks to Weir with.
GATE = """
import os
def gate(): return next(fd for fd in (1001, 201, 33) if os.path.exists('/proc/self/fd/%d' % fd))
def word(letter, value=0, index=0): return b''.join((n & 0xffffffff).to_bytes(4, 'little') for n in (ord(letter), value, index))
"""


def files_of(answer):
    return {f["path"]: base64.b64decode(f["content_base64"]) for f in answer["files"]}


class Session:
    """One session of a service: .run(code) is a cell, and what it must answer."""

    def __init__(self, service, token=TOKEN):
        self.service, self.token = service, token
        answer = service.request("POST", "/v1/sessions", {}, token=token)
        if answer.status != 201:
            raise AssertionError("%r\n%s" % (answer, service.log_text()))
        self.id = answer.json()["session_id"]

    def execute(self, code, **fields):
        return self.service.request("POST", "/v1/execute", dict(fields, code=code, session_id=self.id), token=self.token)

    def run(self, code, **fields):
        answer = self.execute(code, **fields)
        if answer.status != 200:
            raise AssertionError("%r\n%s" % (answer, self.service.log_text()))
        return answer.json()

    def out(self, code, **fields):
        """Standard output of a cell in which nothing may go wrong."""
        answer = self.run(code, **fields)
        if answer["exit_code"] or answer["stderr"]:
            raise AssertionError("%d %s" % (answer["exit_code"], answer["stderr"]))
        return answer["stdout"]

    def state(self):
        answer = self.service.request("GET", "/v1/sessions/" + self.id, token=self.token)
        return answer.json()["state"] if answer.status == 200 else answer.status

    def wait_state(self, want):
        deadline = time.monotonic() + 20 * SLOW
        while time.monotonic() < deadline:
            if self.state() == want:
                return
            time.sleep(0.01)
        raise AssertionError("the session is %s, not %s\n%s" % (self.state(), want, self.service.log_text()))

    def records(self, cells=0):
        """What the audit has of it, when it has ended, and of its first cells."""
        deadline = time.monotonic() + 20 * SLOW
        while self.service.audit(self.id)["state"] != "ended":
            if time.monotonic() > deadline:
                raise AssertionError("the session has no end\n" + self.service.log_text())
            time.sleep(0.01)
        return [self.service.audit(self.id)] + [self.service.audit("%s.%d" % (self.id, n)) for n in range(1, cells + 1)]

    def close(self):
        return self.service.request("DELETE", "/v1/sessions/" + self.id, token=self.token)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Sessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=2)
        cls.service.wait_warm()
        cls.before = Footprint(cls.service.name(), cls.service)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def session(self):
        s = Session(self.service)
        self.addCleanup(s.close)
        return s

    # ---- what a cell is ----

    def test_state_is_kept(self):
        s = self.session()
        first = s.run("import math\nx = 6\ndef f(): return x * 7\nclass C:\n    '''kept'''\n")
        self.assertEqual((first["sandbox_id"], first["run_id"]), (s.id, s.id + ".1"))
        second = s.run("print(f(), C.__doc__, math.pi > 3, __name__)")
        self.assertEqual((second["stdout"], second["stderr"], second["exit_code"]), ("42 kept True __main__\n", "", 0))
        self.assertEqual(second["run_id"], s.id + ".2")
        self.assertFalse(second["session_ended"])

    def test_a_cell_finds_nothing_of_ours(self):
        s = self.session()
        out = s.out(
            "import sys, os\n"
            "print(sorted(n for n in globals() if not n.startswith('__')), '__file__' in globals(), sys.argv, sys.path[0], os.getcwd(), os.listdir('.'))\n"
            "print([m for m in sys.modules if 'weir' in m or 'harness' in m], sys._xoptions)\n"
        ).splitlines()
        self.assertEqual(out, ["['os', 'sys'] False [''] /box /box []", "[] {}"])
        # Low numbers are free, and what a program that is started inherits are the standard three.
        self.assertEqual(s.out("import subprocess; print(os.open('/dev/null', 0)); print(subprocess.run(['sh', '-c', 'echo /proc/self/fd/*'], stdout=-1, close_fds=False).stdout.decode().split())").splitlines()[0], "3")

    def test_tracebacks_are_the_users(self):
        s = self.session()
        s.run("def f(n):\n    if n == 0:\n        raise ValueError('x') from KeyError('y')\n    f(n - 1)\n")
        error = s.run("f(2)\n")
        self.assertEqual(error["exit_code"], 1)
        frames = re.findall(r'File "([^"]*)", line (\d+)', error["stderr"])
        self.assertEqual(frames, [("<cell 2>", "1"), ("<cell 1>", "4"), ("<cell 1>", "4"), ("<cell 1>", "3")])
        self.assertIn("    raise ValueError('x') from KeyError('y')\n", error["stderr"])
        for code, want in (
            ("try:\n    f(0)\nexcept ValueError:\n    1/0\n", {"<cell 3>", "<cell 1>"}),
            ("x = (1,\n", {"<cell 4>"}),
            ("def g(): g()\ng()", {"<cell 5>"}),
            ("raise KeyboardInterrupt", {"<cell 6>"}),
        ):
            with self.subTest(code=code):
                error = s.run(code)["stderr"]
                self.assertEqual(set(re.findall(r'File "([^"]*)"', error)), want, error)
        self.assertEqual(s.out("import inspect\nprint(inspect.getsource(g))"), "def g(): g()\n\n")
        # An exception that is raised again in a later cell brings no frame of ours along.
        s.run("def h(): raise OSError('kept')\ntry: h()\nexcept OSError as e: kept = e\nraise kept")
        frames = re.findall(r'File "([^"]*)", line (\d+)', s.run("raise kept")["stderr"])
        self.assertEqual({name for name, _ in frames}, {"<cell 8>", "<cell 9>"})

    def test_hooks_of_the_cells_are_used(self):
        s = self.session()
        s.run("import sys\ndef hook(kind, e, tb): print('hook', kind.__name__, tb.tb_frame.f_code.co_filename)\nsys.excepthook = hook")
        self.assertEqual(s.run("1/0")["stdout"], "hook ZeroDivisionError <cell 2>\n")
        s.run("seen = set()\nsys.settrace(lambda f, *_: seen.add(f.f_code.co_filename))")
        s.run("def called(): pass\ncalled()")
        self.assertEqual(s.out("sys.settrace(None)\nprint(sorted(seen))"), "['<cell 4>', '<cell 5>']\n")

    def test_how_cells_end(self):
        s = self.session()
        for code, want in (
            ("import sys; sys.exit(3)", 3),
            ("sys.exit('words')", 1),
            ("sys.exit(None)", 0),
            ("sys.exit(-1)", 255),
            ("sys.exit(256)", 0),
            ("sys.exit(2**40)", 0),
            ("sys.exit(2**70)", 255),
            ("sys.exit((1, 2))", 1),
            ("exit()", 0),
            ("raise KeyboardInterrupt", 130),
            ("raise BaseException", 1),
            ("", 0),
            ("# nothing", 0),
            ("print('no end", 1),
            ("class E(Exception):\n    def __str__(self): raise E\nraise E", 1),
            ("sys.stdout = sys.stderr = None\nraise E", 1),
            ("sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__; sys.excepthook = None; 1/0", 1),
        ):
            with self.subTest(code=code):
                answer = s.run(code)
                self.assertEqual((answer["exit_code"], answer["termination"]["reason"]), (want, "exit"))
        self.assertEqual(s.run("sys.exit('words')")["stderr"], "words\n")
        self.assertEqual(s.out("print('and goes on')"), "and goes on\n")

    def test_what_goes_wrong_is_said_as_by_a_script(self):
        """The same code alone and as a cell: the same exit code and, but for the name of the file, the same words."""
        for code in (
            "import sys\nsys.excepthook = lambda *a: 1/0\nraise ValueError('v')",
            "import sys\ndel sys.excepthook\nraise ValueError('v')",
            "import sys\nsys.excepthook = None\n1/0",
            "import sys\nsys.excepthook = lambda *a: sys.exit(5)\n1/0",
            "class E:\n    def __str__(self): raise KeyError(1)\nraise SystemExit(E())",
            "raise SystemExit(1 << 70)",
            "import sys\nsys.stderr = None\nraise SystemExit('words')",
            "x = 1\nreturn 1",
            "await x",
            "def f():\n    nonlocal y\n",
            "x = (1,\n",
            "  indented",
            "'\\x'",
            "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('x')",
            "import sys\nsys.stderr = open('/dev/full', 'w')\nprint('x', file=sys.stderr)",
            "import sys\nsys.stdout = 3",
            "import sys\nsys.stdout.close()",
            "class E(Exception):\n    def __str__(self): raise E\nraise E",
            "try: 1/0\nexcept ZeroDivisionError as e: raise KeyError('k')",
            "raise ExceptionGroup('g', [ValueError(1), KeyError(2)])" if "3.11" <= self.service.run("1")["python"] else "raise ValueError",
            "import warnings\nwarnings.warn('w')",
        ):
            with self.subTest(code=code):
                alone, cell = self.service.run(code), self.session().run(code)
                self.assertEqual(cell["stderr"].replace("<cell 1>", "/box/main.py"), alone["stderr"])
                self.assertEqual(cell["exit_code"], alone["exit_code"])

    def test_standard_input_environment_and_files(self):
        s = self.session()
        self.assertEqual(s.out("import sys; print(repr(input()), repr(input()), len(sys.stdin.read()))", stdin="a\nb\n" + "x" * 70000), "'a' 'b' 70000\n")
        self.assertEqual(s.out("print(repr(sys.stdin.read()), sys.stdin.name, sys.stdin.encoding)"), "'' <stdin> utf-8\n")
        self.assertEqual(s.out("sys.stdin.close(); import os; print(os.environ['A'], os.environ['TZ'])", env={"A": "b=c", "TZ": "Asia/Tokyo"}), "b=c Asia/Tokyo\n")
        self.assertEqual(s.out("import time; print(os.environ['A'], time.tzname[0], repr(sys.stdin.read()))", stdin="new"), "b=c JST 'new'\n")
        answer = s.run("import sub.mod; print(sub.mod.x, open('data').read())", files=[{"path": "sub/mod.py", "content": "x = 5"}, {"path": "data", "content": "d"}])
        self.assertEqual((answer["stdout"], answer["files"]), ("5 d\n", []))

    def test_files_of_each_cell_alone(self):
        s = self.session()
        self.assertEqual(files_of(s.run("open('a', 'w').write('1'); open('b', 'w').write('1')")), {"a": b"1", "b": b"1"})
        self.assertEqual(files_of(s.run("open('b', 'w').write('2'); open('c', 'w').write('2')")), {"b": b"2", "c": b"2"})
        self.assertEqual(files_of(s.run("pass")), {})
        self.assertEqual(files_of(s.run("pass", files=[{"path": "a", "content": "sent"}])), {})
        self.assertEqual(s.out("print(open('a').read())"), "sent\n")
        self.assertEqual(files_of(s.run("open('a', 'w').write('1')")), {"a": b"1"})

    def test_ordinary_python_works(self):
        s = self.session()
        self.assertEqual(s.out("import asyncio\nasync def f(): await asyncio.sleep(0); return 1\nprint(asyncio.run(f()))"), "1\n")
        self.assertEqual(s.out("from multiprocessing import Pool\ndef sq(x): return x * x\nwith Pool(2) as p: print(p.map(sq, [1, 2, 3]))"), "[1, 4, 9]\n")
        self.assertEqual(s.out("import subprocess; print(subprocess.run(['echo', 'hi'], stdout=-1).stdout)"), "b'hi\\n'\n")
        self.assertEqual(s.out("from concurrent.futures import ThreadPoolExecutor as T\nwith T() as t: print(list(t.map(sq, [4])))"), "[16]\n")
        self.assertEqual(s.out("import pickle; print(pickle.loads(pickle.dumps(sq))(5), sq.__module__)"), "25 __main__\n")
        self.assertEqual(s.out("import os; print(len(os.sched_getaffinity(0)), os.cpu_count())"), "1 1\n")

    def test_what_a_cell_breaks_is_its_own(self):
        """Functions that are replaced, closed numbers, another directory: the next cell comes all the same."""
        s = self.session()
        s.run("import os, sys, builtins, posix\ndef no(*a, **k): raise RuntimeError\nos.read = os.write = os.open = os.close = posix.read = posix.open = posix.write = no")
        self.assertEqual(s.out("builtins.open = builtins.compile = builtins.exec = no; os.chdir('/tmp'); os.umask(0o777)\nprint(1)"), "1\n")
        self.assertEqual(s.out("sys.modules.pop('traceback'); os.closerange(3, 100)\nprint(os.stat('/box/d/e').st_mode & 0o777 == 0o644)", files=[{"path": "d/e", "content": ""}]), "True\n")
        self.assertEqual(s.run("1/0")["stderr"].splitlines()[-1], "ZeroDivisionError: division by zero")

    def test_a_cell_that_uses_up_its_descriptors(self):
        """It leaks what a notebook leaks: the session lives, and takes files and standard input all the same."""
        s = self.session()
        s.run("import os, sys\nkept = []\ntry:\n    while True: kept.append(os.dup(1))\nexcept OSError: pass")
        self.assertEqual(s.out("print(os.stat('/box/d/f').st_size, sys.stdin.read())", files=[{"path": "d/f", "content": "abc"}], stdin="in"), "3 in\n")
        self.assertEqual(s.out("print(len(kept) > 900)"), "True\n")

    def test_lines_of_old_cells_are_let_go(self):
        s = self.session()
        for _ in range(4):
            s.run("#\n" * 100000)
        self.assertLess(int(s.out("import linecache; print(sum(len(v[2]) for k, v in linecache.cache.items() if 'cell' in k))")), 400000)

    # ---- background ----

    def test_threads_go_on_between_cells(self):
        s = self.session()
        s.run("import threading, time\nn = 0\ndef count():\n    global n\n    while True: n += 1; time.sleep(0.001)\nthreading.Thread(target=count, daemon=True).start()")
        first = int(s.out("print(n)"))
        time.sleep(0.2)
        self.assertGreater(int(s.out("print(n)")), first)

    def test_a_child_that_falls_off_the_end(self):
        """It ends there; it neither takes the next cell nor speaks for the session."""
        s = self.session()
        answer = s.run("import os\nchild = os.fork()\nif not child: import atexit; atexit.register(print, 'child ends', flush=True)")
        self.assertEqual((answer["exit_code"], answer["session_ended"]), (0, False))
        self.assertEqual(s.out("print(os.waitpid(child, 0)[1] if child else 'child')").splitlines()[-1], "0")
        s.run("child = os.fork()\nif not child: raise SystemExit(7)")
        self.assertEqual(s.out("print(os.waitpid(child, 0)[1] >> 8)"), "7\n")
        s.run("child = os.fork()\nif not child: 1/0")
        self.assertEqual(s.run("print(os.waitpid(child, 0)[1] >> 8)")["stdout"], "1\n")

    def test_nothing_moves_while_files_are_read(self):
        """A thread writes the number of its round into one file after the other, without end: what comes back is one moment."""
        s = self.session()
        files, size = 120, 4096
        s.run(
            "import os, threading\n"
            "fds = [os.open('%%03d' %% i, os.O_RDWR | os.O_CREAT) for i in range(%d)]\n"
            "def work():\n"
            "    r = 0\n"
            "    while True:\n"
            "        r += 1\n"
            "        block = (b'%%08d' %% r) * (%d // 8)\n"
            "        for fd in fds: os.pwrite(fd, block, 0)\n"
            "threading.Thread(target=work, daemon=True).start()\n" % (files, size)
        )
        rounds = set()
        for _ in range(4):
            got = files_of(s.run("import time; time.sleep(0.02)"))
            numbers = [int(got["%03d" % i][:8]) for i in range(files)]
            self.assertTrue(all(content == content[:8] * (size // 8) for content in got.values()))
            change = [i for i in range(1, files) if numbers[i] != numbers[i - 1]]
            self.assertLessEqual(len(change), 1, numbers)
            self.assertIn(numbers[0] - numbers[-1], (0, 1))
            rounds.add(numbers[0])
        self.assertEqual(len(rounds), 4)  # and it does move in between

    # ---- what ends cells, and sessions ----

    def test_interrupted_at_the_deadline(self):
        s = self.session()
        answer = s.run("kept = 1\nimport time\nprint('before')\ntime.sleep(60)", timeout_s=1)
        self.assertEqual((answer["exit_code"], answer["termination"]["reason"], answer["termination"]["detail"]), (-1, "timeout", "timed out after 1s"))
        self.assertEqual(answer["stdout"], "before\n")
        self.assertTrue(answer["stderr"].endswith("timed out after 1s\n") or answer["stderr"].endswith("timed out after 1s"), answer["stderr"])
        self.assertIn("KeyboardInterrupt", answer["stderr"])
        self.assertFalse(answer["session_ended"])
        self.assertEqual(s.out("print(kept)"), "1\n")
        # Caught, it is a time-out all the same; and a handler of its own stays the cells'.
        answer = s.run("import signal\ndef own(*_): print('own'); raise TimeoutError\nsignal.signal(signal.SIGINT, own)\ntry: time.sleep(60)\nexcept TimeoutError: print('done')", timeout_s=1)
        self.assertEqual((answer["exit_code"], answer["stdout"], answer["session_ended"]), (-1, "own\ndone\n", False))
        self.assertEqual(s.out("print(signal.getsignal(signal.SIGINT) is own)"), "True\n")

    def test_what_can_not_be_interrupted_is_killed(self):
        s, t = self.session(), self.session()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            in_c = pool.submit(s.run, "print('before', flush=True); open('f', 'w').write('kept')\nsum(range(10**12))", timeout_s=1)
            deaf = pool.submit(t.run, "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)", timeout_s=1)
            answers = in_c.result(), deaf.result()
        for answer in answers:
            self.assertEqual((answer["exit_code"], answer["termination"]["reason"], answer["session_ended"]), (-1, "timeout", True))
        self.assertEqual((answers[0]["stdout"], files_of(answers[0])), ("before\n", {"f": b"kept"}))
        self.assertEqual((s.state(), s.execute("1").status), (404, 404))

    def test_what_ends_a_session(self):
        for code, want in (
            ("import os; os._exit(4)", ("exit", None, 4)),
            ("import os; os.kill(os.getpid(), 15)", ("signal", "SIGTERM", 143)),
            ("import ctypes; ctypes.string_at(0)", ("signal", "SIGSEGV", 139)),
            ("a = []\nwhile True: a.append(bytearray(b'x') * (16 << 20))", ("memory", "SIGKILL", 137)),
            ("import os; os.execvp('sh', ['sh', '-c', 'echo other; exit 5'])", ("exit", None, 5)),
        ):
            with self.subTest(code=code):
                s = self.session()
                s.run("x = 1")
                answer = s.run("open('left', 'w').write('1')\nprint('out')\n" + code)
                end = answer["termination"]
                self.assertEqual((end["reason"], end["signal"], answer["exit_code"]), want, answer)
                self.assertTrue(answer["session_ended"])
                self.assertEqual(answer["stdout"], "out\nother\n" if "execvp" in code else "out\n")
                self.assertEqual(files_of(answer), {"left": b"1"})
                self.assertEqual(s.state(), 404)
                if end["reason"] == "memory":
                    self.assertEqual(end["detail"], "memory limit of 512 MiB exceeded")

    def test_memory_between_cells(self):
        s = self.session()
        s.run("import threading, time\ndef eat():\n    time.sleep(0.05)\n    a = []\n    while True: a.append(bytearray(b'x') * (16 << 20))\nthreading.Thread(target=eat).start()")
        s.wait_state(404)
        self.assertEqual(s.records()[0]["termination"]["reason"], "memory")

    def test_too_much_output_interrupts(self):
        s = self.session()
        answer = s.run("x = 1\nwhile True: print('y' * 1000)")
        self.assertEqual((answer["termination"]["reason"], answer["exit_code"], answer["truncated"], answer["session_ended"]), ("output", 137, True, False))
        self.assertEqual(len(answer["stdout"]), 4 << 20)
        self.assertEqual(s.out("print(x)"), "1\n")

    def test_a_client_that_hangs_up(self):
        s = self.session()
        s.run("import time; ended = []")
        body = json.dumps({"code": "try: time.sleep(60)\nexcept KeyboardInterrupt: ended.append(1)", "session_id": s.id}).encode()
        with socket.create_connection(("127.0.0.1", self.service.port)) as c:
            c.sendall(b"POST /v1/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (TOKEN.encode(), len(body)) + body)
            s.wait_state("busy")
            time.sleep(0.1)
        self.assertEqual(s.out("print(ended)"), "[1]\n")

    def test_hung_up_at_once(self):
        """However early it comes, an interruption reaches the cell: none is lost before the cell has begun to listen."""
        s = self.session()
        for n in range(40):
            body = json.dumps({"code": "import time; time.sleep(60)", "session_id": s.id}).encode()
            with socket.create_connection(("127.0.0.1", self.service.port)) as c:
                c.sendall(b"POST /v1/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (TOKEN.encode(), len(body)) + body)
                time.sleep(n % 20 / 2000)
            if n % 8 == 7:
                self.assertEqual(s.out("print(1)"), "1\n")

    def test_closed_while_it_runs(self):
        s = self.session()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            running = pool.submit(s.execute, "import time; time.sleep(60)")
            s.wait_state("busy")
            self.assertIn(s.close().status, (200, 204))
            answer = running.result(20 * SLOW)
        self.assertEqual(s.state(), 404)
        if answer.status == 200:
            self.assertEqual((answer.json()["termination"]["reason"], answer.json()["session_ended"]), ("cancelled", True))
        else:
            self.assertEqual(answer.status, 404)

    def test_cells_take_turns(self):
        s = self.session()
        s.run("order = []")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for f in [pool.submit(s.run, "import time; order.append('in'); time.sleep(0.05); order.append('out')") for _ in range(4)]:
                f.result()
        self.assertEqual(s.out("print(order == ['in', 'out'] * 4)"), "True\n")

    # ---- who is hostile ----

    def test_a_file_through_a_link(self):
        s = self.session()
        s.run("import os\nos.symlink('/etc', 'out'); os.symlink('/tmp/x', 'x'); os.mkfifo('pipe'); os.mkfifo('read'); reader = os.open('read', os.O_RDONLY | os.O_NONBLOCK); os.mkdir('dir'); open('file', 'w').write('old')")
        for path, status in (("out/f", 502), ("x", 502), ("pipe", 409), ("read", 409), ("dir", 409), ("file/f", 409)):
            with self.subTest(path=path):
                answer = s.execute("print('ran')", files=[{"path": "new", "content": ""}, {"path": path, "content": "mine"}])
                self.assertEqual(answer.status, status, answer)
                self.assertFalse(answer.json()["error"]["ran"])
                if status == 502:
                    self.assertEqual(answer.json()["error"]["message"], "file path escapes working directory")
        self.assertEqual(s.out("print(os.path.exists('/tmp/x'), open('file').read(), os.read(reader, 9))"), "False old b''\n")

    def test_a_full_disk_destroys_no_file(self):
        s = self.session()
        s.run("with open('big', 'wb') as f: f.write(bytes(60 << 20))\nopen('z', 'w').write('old')")
        answer = s.execute("1", files=[{"path": "z", "content": "x" * (9 << 20)}])
        self.assertEqual((answer.status, answer.json()["error"]["ran"]), (409, False))
        self.assertEqual(s.out("import os; print(open('z').read(), sorted(os.listdir()))"), "old ['big', 'z']\n")

    def test_a_session_that_is_of_no_use_any_more(self):
        """Whoever has broken his interpreter is told that the session is gone, and not that Weir has failed."""
        for code in (
            "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
            "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
            "import sys; sys.modules.clear()",
            GATE + "import socket; socket.socket(fileno=os.dup(gate())).shutdown(2)",
            GATE + "os.write(gate(), word('D'))",
            GATE + "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), os.write(gate(), word('E', 17, 255)))).start()",
            GATE + "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), os.write(gate(), word('P')))).start()",
        ):
            with self.subTest(code=code):
                s = self.session()
                s.run(code)
                if "Thread" in code:
                    s.wait_state(404)
                for _ in range(2):
                    answer = s.execute("print(2)")
                    if answer.status == 200:  # it could be mended after all
                        self.assertEqual((answer.json()["stdout"], answer.json()["exit_code"]), ("2\n", 0))
                    else:
                        self.assertEqual((answer.status, answer.json()["error"]["ran"]), (404, False), answer)

    def test_a_forged_word_costs_its_own_session(self):
        for code, ran_on in (
            ("os.write(gate(), word('P'))", False),
            ("os.write(gate(), word('R'))", False),
            ("os.write(gate(), word('E', 2))", False),
            ("os.write(gate(), word('D', 256))", False),
            ("os.write(gate(), word('D', -1))", False),
            ("os.write(gate(), word('Z'))", False),
            ("os.write(gate(), word('X', 1))", False),
            ("os.write(gate(), b'')", False),
            ("os.write(gate(), b'G')", False),
            ("os.write(gate(), word('D') * 2)", False),
            ("import socket, array\nsocket.socket(fileno=os.dup(gate())).sendmsg([word('P')], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0, 1, 2]))])", False),
            ("if not os.fork(): os.write(gate(), word('D')); os._exit(0)", False),
            ("for _ in range(100): os.write(gate(), word('D', 3))", True),
            ("os.close(gate())", True),
        ):
            with self.subTest(code=code):
                s = self.session()
                answer = s.run(GATE + code + "\nimport time; time.sleep(5)" * (not ran_on))
                self.assertEqual(answer["session_ended"] or s.state() == 404 or s.execute("1").status != 200, True)
                if not ran_on:
                    self.assertEqual((answer["termination"]["reason"], answer["exit_code"], answer["session_ended"]), ("signal", 137, True))
        self.assertEqual(self.service.run("print(1)")["stdout"], "1\n")

    # ---- audit ----

    def test_each_attempt_is_in_one_record(self):
        """A thread tries without end, through cells and between them: the records together have every attempt, each once."""
        s = self.session()
        s.run(
            "import socket, threading, time\n"
            "tried, stop = 0, False\n"
            "def work():\n"
            "    global tried\n"
            "    while not stop:\n"
            "        with socket.socket() as c:\n"
            "            try: c.connect(('10.9.8.7', 443))\n"
            "            except OSError: tried += 1\n"
            "thread = threading.Thread(target=work); thread.start()\n"
        )
        for _ in range(3):
            s.run("time.sleep(0.02)")
            time.sleep(0.05)
        tried = int(s.out("stop = True; thread.join(); print(tried)"))
        s.close()
        records = s.records(5)
        counts = [r["egress"]["attempts"] for r in records]
        self.assertEqual(sum(counts), tried, counts)
        self.assertTrue(counts[0] and all(counts[2:5]), counts)
        for record in records:
            self.assertEqual((record["state"], record["egress"]["lost"], record["sandbox_id"]), ("ended", 0, s.id))
            self.assertEqual(sum(e["count"] for e in record["events"]), record["egress"]["attempts"])

    def test_a_cells_egress_is_its_own(self):
        s = self.session()
        for n in (1, 2):
            answer = s.run("import socket\ntry: socket.create_connection(('10.0.0.%d', 80))\nexcept OSError: pass" % n)
            self.assertEqual([(d["address"], d["count"]) for d in answer["egress"]["destinations"]], [("10.0.0.%d" % n, 1)])
            self.assertEqual((answer["egress"]["attempts"], answer["egress"]["denied"], answer["egress"]["lost"]), (1, 1, 0))
        self.assertEqual(s.run("pass")["egress"]["attempts"], 0)

    def test_every_cell_lists_its_own_flows(self):
        """One cell that uses up the list of attempts does not hide what the next one tries."""
        s = self.session()
        flood = s.run("import socket\nfor port in range(1, 1200):\n    with socket.socket() as c:\n        try: c.connect(('10.0.0.1', port))\n        except OSError: pass")
        self.assertEqual((flood["egress"]["attempts"], flood["egress"]["lost"]), (1199, 1199 - 1024))
        answer = s.run("with socket.socket() as c: c.connect_ex(('10.0.0.2', 80))")
        self.assertEqual((answer["egress"]["attempts"], answer["egress"]["lost"]), (1, 0))

    def test_sockets_of_earlier_cells_count(self):
        """The bound of datagram sockets holds for all cells together: what one has opened, and kept, the next can't open again."""
        s = self.session()
        s.run(
            "import os, socket, time\n"
            "def fill(n):\n"
            "    kept = []\n"
            "    for _ in range(n):\n"
            "        kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))\n"
            "        if kept[-1].connect_ex(('10.0.0.1', 9)): break\n"
            "    return kept\n"
            "r, w = os.pipe()\n"
            "if not os.fork():\n"
            "    held = fill(600); os.write(w, b'x'); time.sleep(600)\n"
            "os.read(r, 1)\n"
            "mine = fill(700)\n"
            "print(len(mine))"
        )
        first = int(s.out("print(len(mine))"))
        self.assertLess(first, 700)
        self.assertEqual(s.out("print(len(fill(10)))"), "1\n")

    def test_usage_of_each_cell(self):
        s = self.session()
        busy = s.run("t = __import__('time').process_time\nwhile t() < 0.3: pass\nbig = bytearray(80 << 20)")
        idle = s.run("del big")
        self.assertGreater(busy["usage"]["cpu_ms"]["value"], 250)
        self.assertLess(idle["usage"]["cpu_ms"]["value"], 100)
        self.assertGreater(busy["usage"]["memory_peak_bytes"]["value"], 80 << 20)
        after = s.run("pass")["usage"]["memory_peak_bytes"]
        if not after["source"].startswith("life"):
            self.assertLess(after["value"], 80 << 20)
        s.close()
        # Its own record has the times between them: nothing ran then, and what the first cell kept was there.
        between = s.records()[0]["usage"]
        self.assertLess(between["cpu_ms"]["value"], 250)
        self.assertGreater(between["memory_peak_bytes"]["value"], 80 << 20)

    def test_sessions_are_spread_over_the_cpus(self):
        """Each is shown one CPU, and two of them not the same one while another is idle."""
        deadline = time.monotonic() + 20 * SLOW
        while self.service.pool()["in_use"] and time.monotonic() < deadline:
            time.sleep(0.01)
        sessions = [self.session() for _ in range(min(2, len(os.sched_getaffinity(0))))]
        code = "import os; print(*os.sched_getaffinity(0))"
        self.assertEqual(len({s.out(code) for s in sessions}), len(sessions))

    # ---- at last ----

    def test_zz_nothing_is_left(self):
        """Of all the sessions above, and of these: closed idle, closed while it ran, ended by itself, never used."""
        sessions = [Session(self.service) for _ in range(4)]
        sessions[0].run("open('f', 'w').write('x')", files=[{"path": "g", "content": "y"}], stdin="z")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            running = pool.submit(sessions[1].execute, "import time; time.sleep(60)")
            sessions[1].wait_state("busy")
            sessions[1].close()
            running.result(20 * SLOW)
        sessions[2].run("import os; os._exit(0)")
        deadline = time.monotonic() + 10 * SLOW
        while time.monotonic() < deadline:
            left = self.service.request("GET", "/v1/sessions").json()["sessions"]
            if not left:
                break
            for session in left:
                self.service.request("DELETE", "/v1/sessions/" + session["session_id"])
        self.service.wait_warm()
        self.assertEqual(settled(self.before, lambda: Footprint(self.service.name(), self.service)), {})


class Changes(unittest.TestCase):
    def test_a_policy_that_changes_is_in_the_records(self):
        """Of the session, and of the cell that runs; not of one that was over, or began under the new one."""
        attempt = "import errno, socket\nwith socket.socket() as c: print(c.connect_ex(('10.0.0.1', 80)) == errno.EPERM)"
        first = {"name": "first", "default": "deny"}
        second = {"name": "second", "default": "deny", "rules": [{"name": "one", "to": "10.0.0.1", "verdict": "allow"}]}
        with tempfile.NamedTemporaryFile("w", prefix="weir-test-policy-", suffix=".json") as policy:
            json.dump(first, policy)
            policy.flush()
            with Service("--policy", policy.name, pool=1) as service:
                s = Session(service)
                self.assertEqual(s.out(attempt), "True\n")
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    running = pool.submit(s.run, "import os, time\nopen('/tmp/up', 'w')\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)", timeout_s=60)
                    inside = next(p for p in service.sandboxes()[s.id] if pid_ns_inside(p) == 2)
                    deadline = time.monotonic() + 10 * SLOW
                    while not os.path.exists("/proc/%d/root/tmp/up" % inside) and time.monotonic() < deadline:
                        time.sleep(0.005)
                    policy.seek(0)
                    policy.truncate()
                    json.dump(second, policy)
                    policy.flush()
                    service.process.send_signal(signal.SIGHUP)
                    while "policy replaced" not in service.log_text() and time.monotonic() < deadline:
                        time.sleep(0.005)
                    os.close(os.open("/proc/%d/root/tmp/go" % inside, os.O_WRONLY | os.O_CREAT))
                    self.assertEqual(running.result()["exit_code"], 0)
                self.assertEqual(s.out(attempt), "False\n")
                s.close()
                whole, *cells = s.records(3)
                self.assertEqual([r["policy"] for r in (whole, *cells)], ["first", "first", "first", "second"])
                self.assertEqual([[c["policy"] for c in r["policy_changes"]] for r in (whole, *cells)], [["second"], [], ["second"], []])


class Limits(unittest.TestCase):
    """With limits that a test can wait for."""

    def test_idle_and_life(self):
        with Service("--test-session-idle", "1", "--test-session-life", "3", binary=WEIR_HOOKS, pool=3) as service:
            idle, busy, used = Session(service), Session(service), Session(service)
            with concurrent.futures.ThreadPoolExecutor() as pool:
                running = pool.submit(busy.run, "import time; time.sleep(60)", timeout_s=100)
                # A cell now and then keeps a session; its life ends it all the same.
                deadline = time.monotonic() + 20 * SLOW
                while used.state() != 404:
                    self.assertLess(time.monotonic(), deadline, "it outlives its life")
                    answer = used.execute("1")
                    self.assertIn(answer.status, (200, 404))
                    time.sleep(0.2)
                answer = running.result(20 * SLOW)
            self.assertEqual((answer["termination"]["reason"], answer["session_ended"]), ("cancelled", True))
            self.assertIn("life", answer["termination"]["detail"])
            self.assertEqual(idle.state(), 404)
            records = [s.records()[0] for s in (idle, used)]
            self.assertEqual([r["termination"]["detail"] for r in records], ["the session was idle for 1s", "the session's life of 3s was over"])
            self.assertLess(records[0]["duration_ms"], 3000)
            self.assertGreaterEqual(records[1]["duration_ms"], 3000)

    def test_foreign_and_interrupted(self):
        state = tempfile.mkdtemp(prefix="weir-test-state-")
        self.addCleanup(shutil.rmtree, state, True)
        mint = [WEIR, "token", "mint", "--state-dir", state, "--project"]
        mine, other = (subprocess.run(mint + [p], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode().strip() for p in ("mine", "other"))
        service = Service(state=state, pool=1)
        try:
            s = Session(service, token=mine)
            s.run("import os")
            for method, path, body in (("GET", "/v1/sessions/" + s.id, None), ("DELETE", "/v1/sessions/" + s.id, None), ("POST", "/v1/execute", {"code": "1", "session_id": s.id})):
                self.assertEqual(service.request(method, path, body, token=other).status, 404)
            self.assertEqual(service.request("GET", "/v1/sessions", token=other).json(), {"sessions": []})
            unknown = service.request("GET", "/v1/sessions/sandbox-0000000000000", token=mine)
            self.assertEqual(unknown.body, service.request("GET", "/v1/sessions/" + s.id, token=other).body)
            self.assertEqual(s.out("print(1)"), "1\n")
        finally:
            alive = {identity(p) for p in tree(service.process.pid)}
            service.kill9()
            service.log.close()
        deadline = time.monotonic() + 10 * SLOW
        while any(who and identity(who[0]) == who for who in alive) and time.monotonic() < deadline:
            time.sleep(0.01)
        with Service(state=state, pool=1) as again:
            # As a run that nobody saw the end of; its cells had theirs.
            self.assertEqual(again.audit(s.id)["state"], "interrupted")
            self.assertEqual(again.audit(s.id + ".1")["state"], "ended")
            self.assertEqual(again.request("GET", "/v1/sessions/" + s.id, token=mine).status, 404)


if __name__ == "__main__":
    unittest.main()
