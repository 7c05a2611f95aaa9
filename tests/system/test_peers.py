# SPDX-License-Identifier: Apache-2.0
"""What the test suites of services like this one hold them to, held against ours where it means anything here.

Numbers are those of the survey of their suites. A behaviour is a row below, or COVERED names the test that has it. Not here are
those of other products' features (charts as objects, a choice of interpreter, merged streams).
"""
import base64
import concurrent.futures
import importlib
import os
import sys
import unittest

from lib import SLOW, TOP, Service

sys.path.append(os.path.join(TOP, "tests", "crash"))

MIB = 1 << 20

COVERED = {
    2: "test_lifecycle.Deadline.test_nothing_outlives_the_deadline",
    3: "test_lifecycle.Limits.test_memory_over_the_limit_ends_the_run",
    5: "test_lifecycle.Limits.test_processes",
    6: "test_lifecycle.Deadline.test_nothing_outlives_the_deadline",
    7: "test_inside.OrdinaryPython.test_works",
    9: "test_inside.FileSystem.test_nothing_else_can_be_written",
    10: "test_lifecycle.Limits.test_disks_are_sized",
    11: "test_contract.Contract.test_files_are_regular_and_new_or_changed_by_content",
    12: "test_contract.Contract.test_files_are_regular_and_new_or_changed_by_content",
    14: "test_files.Kinds.test_holes_are_not_read",
    15: "test_files.Many.test_deeper_than_any_path",
    16: "test_contract.Contract.test_body_not_as_described_names_the_field",
    19: "test_execute.Execute.test_output_over_the_cap_ends_the_run",
    21: "test_network.Denied.test_destinations",
    24: "test_lifecycle.Deadline.test_deadline_is_on_time",
    25: "test_lifecycle.Limits.test_disks_are_sized",
    27: "test_lifecycle.Deadline.test_nothing_outlives_the_deadline",
    28: "test_soak.Soak.test_every_answer_is_right",
    30: "test_execute.Execute.test_output_over_the_cap_ends_the_run",
    42: "test_contract.Contract.test_what_a_run_printed_before_a_kill_is_there",
    43: "test_lifecycle.MainExit.test_answer_comes_at_once_with_mains_code",
    44: "test_lifecycle.MainExit.test_answer_comes_at_once_with_mains_code",
    47: "test_lifecycle.HangUp.test_run_is_cancelled",
    51: "test_lifecycle.HangUp.test_run_is_cancelled",
    52: "test_crash.Helpers.test_api_killed",
    53: "test_lifecycle.Outside.test_a_run_that_is_killed",
    56: "test_files.Kinds.test_links_are_never_followed",
    61: "test_network.Denied.test_ways_to_send",
    64: "test_sessions.Sessions.test_a_file_through_a_link",
    65: "test_leaks.EightAtOnce.test_pairwise",
    67: "test_execute.Execute.test_signals_by_name",
    68: "test_lifecycle.Deadline.test_nothing_outlives_the_deadline",
    71: "test_inside.FileSystem.test_environment",
}

# (number, what, the request, what must hold)
ROWS = [
    (1, "prints", {"code": "print('test')"}, {"stdout": "test\n", "exit_code": 0}),
    (4, "imports a supplied file", {"code": "import lib, pkg.sub\nprint(lib.x, pkg.sub.y)", "files": [{"path": "lib.py", "content": "x = 1"}, {"path": "pkg/__init__.py", "content": ""}, {"path": "pkg/sub.py", "content": "y = 2"}]}, {"stdout": "1 2\n", "files": []}),
    (8, "shared memory up to its size", {"code": "from multiprocessing import shared_memory as s\nm = s.SharedMemory(create=True, size=64 << 20)\nm.buf[:] = b'x' * (64 << 20)\nprint(len(m.buf)); m.close(); m.unlink()"}, {"stdout": "%d\n" % (64 * MIB), "exit_code": 0}),
    (8, "shared memory over its size", {"code": "from multiprocessing import shared_memory as s\nimport mmap\nm = s.SharedMemory(create=True, size=65 << 20)\nfor i in range(0, 65 << 20, mmap.PAGESIZE): m.buf[i] = 1"}, lambda a: a["exit_code"] == 135 and a["termination"] == {"reason": "signal", "signal": "SIGBUS", "detail": ""}),
    (8, "a mapping larger than memory", {"code": "import mmap\nm = mmap.mmap(-1, 2 << 30); m[5] = 1\nprint('mapped')"}, {"stdout": "mapped\n"}),
    (13, "a hundred links to one file", {"code": "import os\nopen('big', 'wb').write(b'x' * (4 << 20))\nfor i in range(100): os.symlink('big', 'l%03d' % i)"}, lambda a: [f["path"] for f in a["files"]] == ["big"] and [f["reason"] for f in a["files_skipped"]] == ["symlink"] * 100),
    (17, "a NUL in the code", {"code": "print(1)\n\0print(2)"}, lambda a: a["exit_code"] == 1 and "null bytes" in a["stderr"]),
    (18, "a lone surrogate", {"code": "print('a')\nprint('\\ud800')"}, lambda a: a["exit_code"] == 1 and a["stdout"] == "a\n" and "UnicodeEncodeError" in a["stderr"]),
    (18, "bytes that are no text, by another interpreter", {"code": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import os; os.write(1, bytes([0xed, 0xa0, 0x80, 65]))'], env={})"}, lambda a: a["exit_code"] == 0 and a["stdout"].endswith("A") and "\ufffd" in a["stdout"]),
    (23, "paths that stay inside", {"code": "import os\nprint(sorted(os.path.join(d, f)[2:] for d, _, fs in os.walk('.') for f in fs if f != 'main.py'))", "files": [{"path": p, "content": "x"} for p in ("./0.jpg", "folder/../hm", "folder/./to/./x", "a/b/../c/../d", "back\\slash", "..\\x", "a\\0b")]}, {"stdout": "%r\n" % sorted(["0.jpg", "hm", "folder/to/x", "a/d", "back\\slash", "..\\x", "a\\0b"])}),
    (29, "asks for a page", {"code": "import urllib.request, time\nt = time.monotonic()\ntry: urllib.request.urlopen('http://example.com/', timeout=10)\nexcept OSError as e: print(type(e).__name__, time.monotonic() - t < 2)"}, {"stdout": "URLError True\n"}),
    (33, "logs", {"code": "import logging\nlogging.basicConfig(level=logging.INFO)\nlogging.info('hello')\nprint('out')"}, {"stdout": "out\n", "stderr": "INFO:root:hello\n", "exit_code": 0}),
    (33, "fails half-way", {"code": "print('before')\nraise RuntimeError('why')\nprint('after')"}, lambda a: a["stdout"] == "before\n" and "RuntimeError: why" in a["stderr"] and a["exit_code"] == 1),
    (37, "exit code 7 and words on both streams", {"code": "import sys\nprint('o')\nprint('e', file=sys.stderr)\nsys.exit(7)"}, {"stdout": "o\n", "stderr": "e\n", "exit_code": 7}),
    (41, "256 KiB on both streams", {"code": "import os\nos.write(1, b'o' * 262144) and os.write(2, b'e' * 262144)"}, lambda a: (a["stdout_bytes"], a["stderr_bytes"], a["truncated"]) == (262144, 262144, False) and a["stdout"] == "o" * 262144 and a["stderr"] == "e" * 262144),
    (45, "echoes its input", {"code": "import sys\nsys.stdout.write(sys.stdin.read())", "stdin": "héllo\nwörld"}, {"stdout": "héllo\nwörld"}),
    (54, "reads and writes where it may", {"code": "import os\nos.listdir('/bin'); open('/dev/null', 'w').write('x')\ntry: open('/usr/x', 'w'); print('wrote')\nexcept OSError as e: print(e.errno)\nprint([l.split()[1] for l in open('/proc/self/status') if l.startswith('NoNewPrivs')])"}, {"stdout": "30\n['1']\n"}),
    (55, "reaches out through a shell", {"code": "import subprocess, time\nt = time.monotonic()\nfor c in ('exec 3<>/dev/tcp/192.0.2.1/80', 'exec 3<>/dev/udp/192.0.2.1/53; echo x >&3'):\n    print(subprocess.run(['bash', '-c', c], capture_output=True).returncode != 0)\nprint(time.monotonic() - t < 3)"}, {"stdout": "True\nTrue\nTrue\n"}),
    (57, "an argument over 128 KiB", {"code": "import subprocess\ntry: subprocess.run(['true', 'x' * 140000])\nexcept OSError as e: print(e.errno)"}, {"stdout": "7\n"}),
    (66, "a coroutine from another thread", {"code": "import asyncio, threading, time\nl = asyncio.new_event_loop(); threading.Thread(target=l.run_forever, daemon=True).start()\nt = time.monotonic(); print(asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01, 5), l).result(), time.monotonic() - t < 0.5)"}, {"stdout": "5 True\n"}),
    (66, "workers of every kind", {"code": "import concurrent.futures as f, multiprocessing as m\nif __name__ == '__main__':\n    for k in ('fork', 'spawn', 'forkserver'):\n        with f.ProcessPoolExecutor(2, mp_context=m.get_context(k)) as p: print(list(p.map(abs, [-1, 2])))\n    m.Semaphore().acquire()"}, {"stdout": "[1, 2]\n" * 3}),
]

# 31: fifty times each, and each time the same.
FIFTY = {
    "base64": ("import base64\nprint(base64.b64encode(b'weir').decode())", "d2Vpcg==\n"),
    "json": ("import json\nprint(json.dumps({'a': [1, None, 'é']}))", '{"a": [1, null, "\\u00e9"]}\n'),
    "zoneinfo": ("import zoneinfo, datetime\nprint(datetime.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo('Asia/Shanghai')).isoformat())", "2024-01-01T00:00:00+08:00\n"),
}


class Peers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=4)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def test_what_covers_a_behaviour_exists(self):
        for number, name in COVERED.items():
            with self.subTest(number=number, name=name):
                module, kind, test = name.split(".")
                self.assertTrue(callable(getattr(getattr(importlib.import_module(module), kind), test, None)), name)

    def test_rows(self):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda row: self.service.run(**row[2]), ROWS))
        for (number, what, _, want), answer in zip(ROWS, answers):
            with self.subTest(number=number, what=what):
                shown = {k: v[:200] if isinstance(v, str) else v for k, v in answer.items()}
                if callable(want):
                    self.assertTrue(want(answer), shown)
                else:
                    self.assertEqual({k: answer[k] for k in want}, want, shown)

    def test_22_three_at_once_have_three_memories(self):
        code = "a = bytearray(b'x') * (300 << 20)\nprint(len(a) >> 20)"
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda i: self.service.run(code), range(3)))
        self.assertEqual([(a["stdout"], a["exit_code"]) for a in answers], [("300\n", 0)] * 3)

    def test_26_the_second_run_finds_nothing_of_the_first(self):
        code = "import os\nfor d in ('/dev/shm', '/run/lock', '/tmp', '/var/tmp', '/box', os.environ['HOME']):\n    try: print(d, [f for f in os.listdir(d) if f == 'mark']); open(d + '/mark', 'w').close()\n    except OSError: pass"
        first, second = self.service.run(code), self.service.run(code)
        self.assertEqual(first["stdout"], second["stdout"])
        self.assertNotIn("'mark'", second["stdout"])
        self.assertIn("/tmp []", second["stdout"])

    def test_31_fifty_times_the_same(self):
        jobs = [(name, code, want) for name, (code, want) in FIFTY.items() for _ in range(50)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda job: self.service.run(job[1]), jobs))
        bad = [(name, a["stdout"], a["stderr"], a["termination"]) for (name, _, want), a in zip(jobs, answers) if (a["stdout"], a["stderr"], a["exit_code"]) != (want, "", 0)]
        self.assertEqual(bad, [])

    def test_32_304487_bytes_five_times(self):
        for _ in range(5):
            answer = self.service.run("import sys\nsys.stdout.write(''.join(chr(33 + i % 90) for i in range(304487)))")
            self.assertEqual(answer["stdout"], "".join(chr(33 + i % 90) for i in range(304487)))

    def test_46_a_lone_surrogate_as_input_starts_nothing(self):
        before = self.service.pool()["served"]
        answer = self.service.request("POST", "/v1/execute", b'{"code": "print(1)", "stdin": "\\ud800"}')
        self.assertEqual(answer.status, 400, answer)
        self.assertEqual(self.service.pool()["served"], before)

    def test_23_media_types_and_methods(self):
        self.assertEqual(self.service.request("POST", "/v1/execute", b'{"code": "1"}', headers={"Content-Type": "text/plain"}).status, 415)
        answer = self.service.request("OPTIONS", "/v1/execute")
        self.assertEqual((answer.status, answer.headers["Allow"]), (405, "POST"))
        for bad in ("9", "1="):
            error = self.service.execute("1", files=[{"path": "f", "content_base64": bad}]).json()["error"]
            self.assertIn("/files/0/content_base64", error["message"])
        self.assertEqual(base64.b64decode(self.service.run("open('f', 'wb').write(bytes(256))")["files"][0]["content_base64"]), bytes(256))


if __name__ == "__main__":
    unittest.main()
