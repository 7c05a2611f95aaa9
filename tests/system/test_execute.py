# SPDX-License-Identifier: Apache-2.0
"""POST /v1/execute end to end, and the routes around it, on a real service."""
import json
import os
import socket
import struct
import subprocess
import tempfile
import time
import unittest

from lib import WEIR, Service, SLOW, TOKEN, weir


class Execute(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service()

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def test_forty_two(self):
        answer = self.service.run("print(6*7)")
        self.assertEqual((answer["stdout"], answer["stderr"], answer["exit_code"]), ("42\n", "", 0))
        self.assertRegex(answer["sandbox_id"], r"^sandbox-[a-z0-9]{5,}$")
        self.assertEqual(answer["run_id"], answer["sandbox_id"])
        self.assertEqual(answer["termination"], {"reason": "exit", "signal": None, "detail": ""})
        self.assertIsInstance(answer["duration_ms"], int)
        self.assertRegex(answer["python"], r"^3\.\d+\.\d+$")

    def test_snippet_is_a_script(self):
        code = (
            "import sys, os, inspect\n"
            "def f():\n    return 1\n"
            "print(__name__, __file__, sys.argv, sys.path[0], os.getcwd(), os.listdir('.'))\n"
            "print(inspect.getsource(f) == 'def f():\\n    return 1\\n')\n"
            "print([m for m in sys.modules if 'weir' in m or 'harness' in m], sys._getframe().f_back)\n"
        )
        out = self.service.run(code)["stdout"].splitlines()
        self.assertEqual(out[0], "__main__ /box/main.py ['/box/main.py'] /box /box ['main.py']")
        self.assertEqual(out[1:], ["True", "[] None"])

    def test_traceback_is_the_users(self):
        answer = self.service.run("def f():\n    raise ValueError('x') from KeyError('y')\nf()\n")
        self.assertEqual(answer["exit_code"], 1)
        files = {line.split('"')[1] for line in answer["stderr"].splitlines() if line.startswith("  File")}
        self.assertEqual(files, {"/box/main.py"})
        self.assertIn("    raise ValueError('x') from KeyError('y')", answer["stderr"])

    def test_exit_codes(self):
        for arg, want in (("3", 3), ("'text'", 1), ("None", 0), ("-1", 255), ("256", 0), ("2**40", 0)):
            with self.subTest(arg=arg):
                answer = self.service.run("import sys\nsys.exit(%s)" % arg)
                self.assertEqual(answer["exit_code"], want)
                self.assertEqual(answer["termination"]["reason"], "exit")

    def test_signals_by_name(self):
        for name, number in (("SIGTERM", 15), ("SIGABRT", 6), ("SIGKILL", 9), ("SIGSEGV", 11)):
            with self.subTest(name=name):
                answer = self.service.run("import os, signal\nos.kill(os.getpid(), signal.%s)\nimport time\ntime.sleep(5)" % name)
                self.assertEqual(answer["termination"]["reason"], "signal")
                self.assertEqual(answer["termination"]["signal"], name)
                self.assertEqual(answer["exit_code"], 128 + number)

    def test_output_is_all_there(self):
        answer = self.service.run("import sys\nprint('x' * 300000)\nprint('e' * 70000, file=sys.stderr)\nimport os\nos._exit(7)")
        self.assertEqual((len(answer["stdout"]), len(answer["stderr"]), answer["exit_code"]), (300001, 70001, 7))

    def test_invalid_utf8_is_replaced(self):
        answer = self.service.run("import sys\nsys.stdout.buffer.write(bytes(range(256)) * 3)")
        self.assertEqual(answer["stdout"], (bytes(range(256)) * 3).decode("utf-8", "replace"))
        self.assertEqual(answer["stdout_bytes"], 768)

    def test_output_over_the_cap_ends_the_run(self):
        answer = self.service.run("import os\nwhile True: os.write(1, b'y' * 65536)", timeout_s=30)
        self.assertEqual(answer["termination"]["reason"], "output")
        self.assertEqual((answer["exit_code"], answer["truncated"], len(answer["stdout"])), (137, True, 4 << 20))
        self.assertIn("stdout", answer["termination"]["detail"])

    def test_output_at_the_cap_is_fine(self):
        answer = self.service.run("import os\nn = 4 << 20\nwhile n: n -= os.write(1, b'y' * min(n, 65536))")
        self.assertEqual((answer["termination"]["reason"], answer["truncated"], len(answer["stdout"])), ("exit", False, 4 << 20))

    def test_code_up_to_the_limit(self):
        pad = "#" * ((1 << 20) - len("print(1)\n"))
        self.assertEqual(self.service.run("print(1)\n" + pad)["stdout"], "1\n")
        self.assertEqual(self.service.execute("print(1)\n" + pad + "#").status, 413)

    def test_code_is_passed_byte_for_byte(self):
        answer = self.service.run("\ufeffprint('ä€😀\\x00', repr('\t'))\r\nprint(2)")
        self.assertEqual(answer["stdout"], "ä€😀\x00 '\\t'\n2\n")
        # What a NUL means is the interpreter's to say: an error since 3.12, before that the end of the file.
        answer = self.service.run("print(1)\x00")
        if tuple(int(n) for n in answer["python"].split(".")[:2]) >= (3, 12):
            self.assertEqual(answer["exit_code"], 1)
            self.assertIn("null byte", answer["stderr"])
        else:
            self.assertEqual((answer["exit_code"], answer["stdout"]), (0, "1\n"))

    def test_usage_is_the_runs_own(self):
        idle = self.service.run("pass")
        busy = self.service.run("import time\nt = time.process_time()\nwhile time.process_time() - t < 0.3: pass")
        self.assertLess(idle["usage"]["cpu_ms"]["value"], 60)
        self.assertAlmostEqual(busy["usage"]["cpu_ms"]["value"], 300, delta=60)
        self.assertTrue(busy["usage"]["cpu_ms"]["source"])

    def test_errors_name_field_and_fix(self):
        for body, status, text in (
            ({}, 400, "/code"),
            ({"code": 1}, 400, "/code"),
            ({"code": "1", "language": "ruby"}, 400, 'unsupported language "ruby"'),
            ({"code": "1", "timeout_s": 0}, 400, "timeout_s must be between 1 and 60"),
            ({"code": "1", "timeout_s": 61}, 400, "timeout_s must be between 1 and 60"),
            ({"code": "1", "timeout_s": 1.5}, 400, "timeout_s must be between 1 and 60"),
            ({"code": "1", "timeout_s": True}, 400, "timeout_s must be between 1 and 60"),
            ({"code": "1", "cod": 2}, 400, "/cod"),
            ("[]", 400, "object"),
            ("{", 400, "expected"),
            ('{"code": "1", "code": "2"}', 400, "/code"),
        ):
            with self.subTest(body=body):
                answer = self.service.request("POST", "/v1/execute", body)
                self.assertEqual(answer.status, status)
                error = answer.json()["error"]
                self.assertEqual(set(error), {"code", "message", "hint", "ran"})
                self.assertIn(text, error["message"])
                self.assertIs(error["ran"], False)

    def test_tokens(self):
        for token in (None, "", "wrong", "test-token-of-this-ru", "test-token-of-this-run2"):
            for path in ("/v1/execute", "/v1/pool", "/nowhere"):
                answer = self.service.request("POST", path, {"code": "1"}, token=token)
                self.assertEqual(answer.status, 401)
                self.assertEqual(answer.json()["error"]["message"], "missing or invalid project token")
                self.assertIn("redeploy the agent to get a current one", answer.json()["error"]["hint"])

    def test_routes(self):
        self.assertEqual(self.service.request("GET", "/nowhere").status, 404)
        answer = self.service.request("GET", "/v1/execute")
        self.assertEqual((answer.status, answer.headers["Allow"]), (405, "POST"))
        self.assertEqual(self.service.request("GET", "/healthz", token=None).status, 200)
        self.assertEqual(self.service.request("GET", "/readyz", token=None).status, 200)
        self.assertEqual(self.service.request("GET", "/v1/runs/sandbox-aaaaaaaaaaaaa/audit").status, 404)
        pool = self.service.wait_warm()
        self.assertEqual((pool["size"], pool["warm"]), (3, 3))


class HangUps(unittest.TestCase):
    """Many clients of one project vanish at once, some with a run, some in line for one: nothing of it is left, all goes on."""

    def test_a_crowd_hangs_up(self):
        with Service() as service:
            body = json.dumps({"code": "import time\ntime.sleep(30)", "timeout_s": 40})
            request = (
                "POST /v1/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
                "Content-Length: %d\r\n\r\n%s" % (TOKEN, len(body), body)
            ).encode()
            for _ in range(2):
                crowd = []
                for _ in range(150):
                    s = socket.create_connection(("127.0.0.1", service.port))
                    s.sendall(request)
                    crowd.append(s)
                time.sleep(0.5)
                for s in crowd:  # a reset, not an end of stream
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                for s in crowd:
                    s.close()
                time.sleep(0.3)
            gone = time.monotonic()
            self.assertEqual(service.run("print(6*7)", timeout_s=5)["stdout"], "42\n")
            self.assertEqual(service.wait_warm()["waiting"], 0)
            self.assertLess(time.monotonic() - gone, 10 * SLOW, "a run went on although its client was gone")
            self.assertIsNone(service.process.poll())


class Run(unittest.TestCase):
    def test_exit_status_and_streams(self):
        done = weir("run", "-c", "import sys\nprint(6*7)\nprint('e', file=sys.stderr)\nsys.exit(9)")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (9, b"42\n", b"e\n"))

    def test_standard_input_and_file(self):
        self.assertEqual(weir("run", "-", stdin=b"print(1)").stdout, b"1\n")
        self.assertEqual(weir("run", "/nowhere.py").returncode, 125)

    def test_deadline(self):
        done = weir("run", "--timeout", "1", "-c", "while True: pass")
        self.assertEqual(done.returncode, 124)
        self.assertTrue(done.stderr.endswith(b"timed out after 1s\n"), done.stderr)

    def test_an_interpreter_that_does_not_answer(self):
        for script in ("exec >&- 2>&-\nsleep 60", "yes", "sleep 60"):
            with self.subTest(script=script), tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False) as f:
                f.write("#!/bin/sh\n%s\n" % script)
                f.close()
                os.chmod(f.name, 0o755)
                started = time.monotonic()
                done = weir("run", "--python", f.name, "-c", "print(1)")
                os.unlink(f.name)
                self.assertEqual((done.returncode, done.stdout), (125, b""))
                self.assertIn(f.name.encode(), done.stderr)
                self.assertLess(time.monotonic() - started, 12 * SLOW)

    def test_json_is_what_execute_answers(self):
        answer = json.loads(weir("run", "--json", "-c", "import socket\ntry: socket.getaddrinfo('a.example', 1)\nexcept OSError: pass").stdout)
        self.assertEqual(answer["egress"]["destinations"][0]["dns_name"], "a.example")

    def test_output_that_can_not_be_written(self):
        for options in ((), ("--json",)):
            with self.subTest(options=options), open("/dev/full", "wb") as full:
                done = subprocess.run([WEIR, "run", *options, "-c", "print(1)"], stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 125)
                self.assertEqual(done.stderr, b"weir: can't write to standard output: No space left on device (the run itself ended with 0)\n")
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([WEIR, "run", "-c", "print(1)"], stdout=writer, stderr=subprocess.PIPE)
        os.close(writer)
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"Broken pipe", done.stderr)

    def test_what_is_not_there_is_said_in_one_line(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-") as empty:
            for options, words in (
                (("--python", "python-none"), b'--python: no program "python-none" on PATH'),
                (("--python", "/none/python"), b"--python: /none/python: No such file or directory"),
                (("--python", "/bin/sh"), b"/bin/sh is not a Python 3"),
                (("--image", "/none"), b"--image: /none: No such file or directory"),
                (("--image", empty), b"no python3 in the image"),
            ):
                with self.subTest(options=options):
                    done = weir("run", *options, "-c", "print(1)")
                    self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")), (125, b"", 1), done.stderr)
                    self.assertIn(words, done.stderr)

    def test_arguments_that_make_no_sense(self):
        for options in ((), ("--timeout", "0"), ("--env", "A"), ("--env", "SANDBOX_X=1"), ("--nonsense",)):
            with self.subTest(options=options):
                self.assertEqual(weir("run", *options, *(("-c", "print(1)") if options else ())).returncode, 64)

    def test_help_has_examples(self):
        for command in ("serve", "run", "audit", "doctor", "uninstall"):
            done = weir(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn(b"weir " + command.encode(), done.stdout)
            self.assertEqual(weir(command, "-h").stdout, done.stdout)


if __name__ == "__main__":
    unittest.main()
