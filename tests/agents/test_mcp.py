# SPDX-License-Identifier: Apache-2.0
"""POST /mcp of a real service, as the official clients see it, and what plain HTTP clients may and may not do.

The clients are npm packages (tests/agents/mcp/package.json); they are installed below build/ once."""
import base64
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import unittest

from clients import mint
from lib import BUILD, SLOW, TOKEN, TOP, Service

HERE = os.path.join(TOP, "tests", "agents", "mcp")
INSTALLED = os.path.join(BUILD, "agents", "mcp")
# Of the package that most use, then of its successor: as it is, and with the revision that begins without `initialize`.
KINDS = {"sdk": "2025-11-25", "client": "2025-11-25", "client-newest": "2026-07-28"}
FIBONACCI = "a, b = 0, 1\nfor _ in range(40):\n    a, b = b, a + b\nprint(a)"
PICTURE = """
import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = b"".join(b"\\0" + bytes([x * 4, y * 4, 128]) * 1 for y in range(64) for x in range(1))
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 64, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
open("plot.png", "wb").write(png)
open("table.csv", "w").write("a,b\\n")
open("broken.png", "w").write("no picture")
import hashlib
print(hashlib.sha256(png).hexdigest())
"""


def install():
    """The packages as the lock file has them, once; what is there already is taken."""
    wanted = "".join(open(os.path.join(HERE, name)).read() for name in ("package.json", "package-lock.json"))
    stamp = os.path.join(INSTALLED, "installed")
    if os.path.exists(stamp) and open(stamp).read() == wanted:
        shutil.copy(os.path.join(HERE, "client.mjs"), INSTALLED)
        return
    os.makedirs(INSTALLED, exist_ok=True)
    for name in ("package.json", "package-lock.json", "client.mjs"):
        shutil.copy(os.path.join(HERE, name), INSTALLED)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", os.path.join(BUILD, "agents", "npm-cache")],
                   cwd=INSTALLED, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, timeout=240)
    with open(stamp, "w") as f:
        f.write(wanted)


class Mcp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=8)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()


class Clients(Mcp):
    @classmethod
    def setUpClass(cls):
        install()
        super().setUpClass()

    def client(self, kind, *steps, token=TOKEN):
        """What came of connecting, then of each step."""
        done = subprocess.run(["node", "client.mjs", kind, "http://127.0.0.1:%d/mcp" % self.service.port, token], cwd=INSTALLED,
                              input=json.dumps(steps).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100 * SLOW)
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)

    def every(self, *steps, token=TOKEN):
        """The same of each kind of client, at once: (kind, results)."""
        with concurrent.futures.ThreadPoolExecutor(len(KINDS)) as pool:
            return list(zip(KINDS, pool.map(lambda kind: self.client(kind, *steps, token=token), KINDS)))

    def test_connects_and_lists(self):
        for kind, (connected, listed) in self.every({"list": True}):
            self.assertEqual(connected["version"], KINDS[kind])
            self.assertEqual(connected["server"]["name"], "weir")
            self.assertEqual(list(connected["capabilities"]), ["tools"])
            self.assertIn("no network", connected["instructions"])
            (tool,) = listed["tools"]
            self.assertEqual((tool["name"], tool["inputSchema"]["required"]), ("run_python", ["code"]))
            self.assertEqual(set(tool["outputSchema"]["required"]) & {"stdout", "stderr", "exit_code", "files"}, {"stdout", "stderr", "exit_code", "files"})

    def test_the_fortieth_fibonacci_number(self):
        for _, (_, listed, ((result),)) in self.every({"list": True}, {"call": {"code": FIBONACCI}}):
            self.assertEqual(result["content"], [{"type": "text", "text": "102334155\n"}])
            self.assertEqual((result["structuredContent"]["stdout"], result["structuredContent"]["exit_code"]), ("102334155\n", 0))
            self.assertFalse(result["isError"])

    def test_an_exception_and_a_deadline(self):
        for _, (_, (failed,), (late,)) in self.every({"call": {"code": "print('so far')\n1 / 0"}}, {"call": {"code": "print('so far')\nwhile True: pass", "timeout_s": 1}}):
            self.assertTrue(failed["isError"] and late["isError"])
            texts = [block["text"] for block in failed["content"]]
            self.assertEqual(texts[0], "so far\n")
            self.assertIn("ZeroDivisionError: division by zero", texts[1])
            self.assertEqual(texts[2], "The code ended with exit code 1.")
            texts = [block["text"] for block in late["content"]]
            self.assertEqual(texts, ["so far\n", "stderr:\ntimed out after 1s", "The code was stopped after 1 s, its deadline; timeout_s can make it longer."])
            self.assertEqual((late["structuredContent"]["exit_code"], late["structuredContent"]["termination"]["reason"]), (-1, "timeout"))

    def test_a_picture_byte_for_byte(self):
        for _, (_, (result,)) in self.every({"call": {"code": PICTURE}}):
            said, words, image = result["content"]
            self.assertEqual((image["type"], image["mimeType"]), ("image", "image/png"))
            content = base64.b64decode(image["data"], validate=True)
            self.assertEqual(hashlib.sha256(content).hexdigest() + "\n", said["text"])
            self.assertEqual(words["text"], 'Files left by the code: "broken.png" (10 bytes), "plot.png" (%d bytes, below), "table.csv" (4 bytes).' % len(content))
            self.assertEqual(result["structuredContent"]["files"], ["broken.png", "plot.png", "table.csv"])

    def test_files_and_standard_input(self):
        files = [{"path": "in/a.txt", "content": "é"}, {"path": "b.bin", "content_base64": base64.b64encode(b"\0\xff").decode()}]
        code = "import sys\nprint(open('in/a.txt').read(), open('b.bin', 'rb').read(), sys.stdin.read())"
        for _, (_, (result,)) in self.every({"call": {"code": code, "files": files, "stdin": "from stdin"}}):
            self.assertEqual(result["content"][0]["text"], "é b'\\x00\\xff' from stdin\n")

    def test_twenty_calls_at_once(self):
        for _, (_, results) in self.every({"call": {"code": "import os, time\nopen('mark', 'x').close()\ntime.sleep(0.2)\nprint(sorted(os.listdir('.')))"}, "times": 20}):
            self.assertEqual([r["content"][0].get("text") for r in results], ["['main.py', 'mark']\n"] * 20, results)
            self.assertEqual(len({r["structuredContent"]["run_id"] for r in results}), 20)

    def test_wrong_arguments_are_told_to_the_model(self):
        for _, (_, (late,), (unknown,), (tool,)) in self.every({"call": {"code": "1", "timeout_s": 61}}, {"call": {"code": "1", "session_id": "s"}},
                                                              {"call": {"code": "1"}, "tool": "run_ruby"}):
            self.assertTrue(late["isError"] and unknown["isError"])
            self.assertTrue(late["content"][0]["text"].startswith("timeout_s must be between 1 and 60\nNothing ran.\n"), late)
            self.assertIn('at "/session_id"', unknown["content"][0]["text"])
            self.assertEqual(unknown["_meta"]["weir/error"]["code"], "invalid_request")
            self.assertEqual(tool["thrown"]["code"], -32602)
            self.assertIn("Unknown tool: run_ruby", tool["thrown"]["message"])

    def test_a_wrong_token(self):
        for _, (refused,) in self.every({"list": True}, token="no-token-of-ours"):
            self.assertRegex(refused["thrown"]["message"], "401|missing or invalid project token")

    def test_a_client_that_gives_up_ends_its_run(self):
        """Of the newest revision: its clients close the connection. Those of older ones let it stand, and the deadline ends the run."""
        began = time.monotonic()
        _, ((given_up),) = self.client("client-newest", {"call": {"code": "import time\ntime.sleep(50)", "timeout_s": 60}, "abort_ms": 1000})
        self.assertIn("thrown", given_up)
        self.service.wait_warm()
        self.assertLess(time.monotonic() - began, 20 * SLOW)


class Examples(Mcp):
    """docs/mcp.md: every block is run as it stands there, and prints what the page says."""

    @classmethod
    def setUpClass(cls):
        install()
        super().setUpClass()

    def run_block(self, language, text):
        environment = dict(os.environ, WEIR_URL="http://127.0.0.1:%d" % self.service.port, TOKEN=TOKEN)
        command = {"sh": ["sh", "-ec", text], "python": [sys.executable, "-c", text], "js": ["node", "example.mjs"]}[language]
        if language == "js":
            with open(os.path.join(INSTALLED, "example.mjs"), "w") as f:
                f.write(text)
        done = subprocess.run(command, cwd=INSTALLED, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60 * SLOW)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode()

    def test_every_example(self):
        with open(os.path.join(TOP, "docs", "mcp.md")) as f:
            blocks = re.findall(r"^```(sh|python|js)\n((?:(?!```).)*)^```\n```(text|json)\n(.*?)^```\n", f.read(), re.M | re.S)
        self.assertEqual([language for language, *_ in blocks], ["js", "python", "sh", "sh", "sh"])
        for language, text, kind, want in blocks:
            got = self.run_block(language, text)
            if kind == "text":
                self.assertEqual(got, want)
            else:
                pattern = re.sub(r"sandbox\\-[a-z0-9]{13}", r"sandbox-[a-z0-9]{13}", re.escape(want.strip()).replace("…", ".*"))
                self.assertTrue(re.fullmatch(pattern, got.strip(), re.S), "%s\nis not like\n%s" % (got, want))


class PlainHttp(Mcp):
    PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

    def post(self, message, **headers):
        send = {"Accept": "application/json, text/event-stream"}
        send.update((name.replace("_", "-"), value) for name, value in headers.items())
        return self.service.request("POST", "/mcp", message, headers=send)

    def call(self, **arguments):
        answer = self.post({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "run_python", "arguments": arguments}})
        self.assertEqual(answer.status, 200, answer)
        return answer.json()["result"]

    def test_methods(self):
        for method in ("GET", "DELETE", "PUT"):
            answer = self.service.request(method, "/mcp", headers={"Accept": "text/event-stream"})
            self.assertEqual((answer.status, answer.headers["Allow"]), (405, "POST"), method)

    def test_scopes(self):
        for scope, status in (("project", 200), ("operator", 403), ("reviewer", 403)):
            token = mint(self.service, "scopes", "--scope", scope)
            self.assertEqual(self.service.request("POST", "/mcp", self.PING, token=token).status, status, scope)

    def test_notifications_have_no_answer(self):
        answer = self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, MCP_Protocol_Version="2025-06-18")
        self.assertEqual((answer.status, answer.body), (202, b""))

    def test_headers(self):
        for headers, status in (
            ({}, 200),
            ({"Accept": "text/event-stream"}, 406),
            ({"Content_Type": "text/plain"}, 415),
            ({"Content_Encoding": "gzip"}, 415),
            ({"MCP_Protocol_Version": "2025-03-26"}, 200),
            ({"MCP_Protocol_Version": "2024-01-01"}, 400),
            ({"Origin": "http://localhost:6274"}, 200),
            ({"Origin": "https://example.com"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "http://rebound.example:8380", "Host": "rebound.example:8380"}, 403),
        ):
            with self.subTest(headers=headers):
                self.assertEqual(self.post(self.PING, **headers).status, status)
        self.assertEqual(self.service.request("POST", "/mcp", self.PING, token=None).status, 401)

    def test_errors_of_the_protocol(self):
        for message, status, code in (
            ("{", 400, -32700),
            ('{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}', 400, -32700),
            ([self.PING], 400, -32600),
            ('{"jsonrpc": "2.0", "id": 1, "id": 1, "method": "ping"}', 400, -32600),
            ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, 400, -32600),
            ({"jsonrpc": "2.0", "id": 1, "method": "prompts/list"}, 200, -32601),
            ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "rm"}}, 200, -32602),
        ):
            with self.subTest(message=message):
                answer = self.post(message)
                self.assertEqual((answer.status, answer.json()["error"]["code"]), (status, code))

    def test_ids_come_back_as_they_were(self):
        for written in ("0", "-5", "12345678901234567890123", '"\\u0061 b"'):
            answer = self.post('{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": ""}}}' % written)
            self.assertIn(b'"id": %s, "result"' % written.encode(), answer.body)

    def test_a_call_is_a_run_like_any_other(self):
        """Single use, in the record of the token's project, and no more of it is left than of a run of /v1/execute."""
        result = self.call(code="import socket\ntry: socket.getaddrinfo('secret.example.com', 443)\nexcept OSError as e: print(type(e).__name__)")
        self.assertEqual([block["text"] for block in result["content"]], ["gaierror\n", "1 attempt to reach the network was refused."])
        record = self.service.audit(result["structuredContent"]["run_id"])
        self.assertEqual((record["project"], record["state"], record["egress"]["denied"]), ("dev", "ended", 1))
        self.assertEqual([e["dns_name"] for e in record["events"] if e.get("dns_name")], ["secret.example.com"])
        self.call(code="open('/tmp/left', 'w').close()")
        self.assertEqual(self.call(code="import os; print(os.listdir('/tmp'))")["structuredContent"]["stdout"].find("left"), -1)

    def test_memory_and_output(self):
        memory = self.call(code="x = bytearray(1 << 30)")
        self.assertIn("The code was stopped: memory limit of 512 MiB exceeded (exit code 137).", [b["text"] for b in memory["content"]])
        output = self.call(code="while True: print('x' * 1000)")
        self.assertTrue(output["content"][-1]["text"].startswith("The code was stopped: stdout limit of 4 MiB exceeded (exit code 137).\nOnly the first 4194304 of "))
        self.assertTrue(output["structuredContent"]["truncated"])

    def test_hanging_up_ends_the_run(self):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "import time\ntime.sleep(60)", "timeout_s": 60}}})
        with socket.create_connection(("127.0.0.1", self.service.port)) as s:
            s.sendall(("POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (TOKEN, len(body), body)).encode())
            deadline = time.monotonic() + 10 * SLOW
            while not self.service.pool()["in_use"]:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
        began = time.monotonic()
        self.service.wait_warm()
        self.assertLess(time.monotonic() - began, 10 * SLOW)


if __name__ == "__main__":
    unittest.main()
