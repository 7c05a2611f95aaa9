# SPDX-License-Identifier: Apache-2.0
"""docs/agents.md from its beginning to its end, as it stands there; and the examples of the documents that the platform's users have.

What the page takes for granted on a machine is stood in for where it may be missing: sudo, docker, a model. Its port is exchanged
for one that is free, its state directory for one of the test's.
"""
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from fixture import Agents
from lib import SLOW, TOP, WEIR, free_port

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sdk")
sys.path.insert(0, HERE)

from model import KEY, Model  # noqa: E402

PAGE = os.path.join(TOP, "docs", "agents.md")
EXAMPLE = os.path.join(TOP, "sdk", "python", "examples", "bare_loop")
PORT = "8380"


def blocks():
    """(line, language, text, what it prints or None) of each block that is run or written to a file."""
    with open(PAGE) as f:
        page = f.read()
    for m in re.finditer(r"^```(sh|python|Dockerfile)\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", page, re.M | re.S):
        yield page.count("\n", 0, m.start()) + 1, m.group(1), m.group(2), m.group(3)


def like(want, got):
    return re.fullmatch(re.escape(want.strip()).replace("…", ".*"), got.strip(), re.S)


class Machine:
    """A working directory, and the commands that the page calls."""

    def __init__(self, folder):
        self.folder, self.work, self.port, self.server = folder, folder + "/work", free_port(), folder + "/serve.pid"
        for path in ("work", "bin", "state"):
            os.mkdir(os.path.join(folder, path))
        with open(folder + "/exports", "w"):
            pass
        os.chmod(folder + "/state", 0o700)
        os.symlink(os.path.join(TOP, "sdk"), self.work + "/sdk")
        self.command("sudo", 'exec "$@"')
        self.command("docker", 'exec "%s" "%s" "$@"' % (sys.executable, os.path.join(HERE, "docker_stand_in.py")))
        self.command(
            "weir",
            'state="--state-dir %s/state"\n'
            'case "$1 $2" in\n'
            '"serve "*) echo $$ >%s; exec %s "$@" $state --listen 127.0.0.1:%d >%s/log 2>&1;;\n'
            "esac\n"
            'exec %s "$@" $state' % (folder, self.server, WEIR, self.port, folder, WEIR),
        )
        self.environment = {"PATH": folder + "/bin:" + os.environ["PATH"], "HOME": self.work, "PYTHONDONTWRITEBYTECODE": "1"}

    def command(self, name, text):
        path = os.path.join(self.folder, "bin", name)
        with open(path, "w") as f:
            f.write("#!/bin/sh\n%s\n" % text)
        os.chmod(path, stat.S_IRWXU)

    def sh(self, text):
        """Runs a block. What it exports is there for those that follow, as in one terminal."""
        text = ". ../exports\n%s\nexport -p >../exports" % text.replace(":" + PORT, ":%d" % self.port)
        return subprocess.run(
            ["sh", "-ec", text], cwd=self.work, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=120 * SLOW
        )

    def stop(self):
        """The service, which the page started and leaves running."""
        if not os.path.exists(self.server):
            return
        with open(self.server) as f:
            pid = int(f.read())
        try:
            os.kill(pid, 15)
            deadline = time.monotonic() + 15 * SLOW
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.05)
            os.kill(pid, 9)
        except ProcessLookupError:
            pass


class Walkthrough(unittest.TestCase):
    def test_the_page_from_beginning_to_end(self):
        folder = tempfile.mkdtemp(prefix="weir-test-walk-")
        self.addCleanup(shutil.rmtree, folder, True)
        machine, written, ran = Machine(folder), [], 0
        self.addCleanup(machine.stop)
        with Model() as model:
            machine.environment.update(MODEL_URL=model.url, MODEL_KEY=KEY)
            for line, language, text, want in blocks():
                name = re.match(r"# (tools\.py|app\.py|Dockerfile)\n", text)
                if name:
                    with open(os.path.join(machine.work, name.group(1)), "w") as f:
                        f.write(text)
                    written.append(name.group(1))
                    continue
                if language == "python":
                    with open(os.path.join(machine.work, "block.py"), "w") as f:
                        f.write(text)
                    text = "venv/bin/python block.py"
                done = machine.sh(text)
                ran += 1
                self.assertEqual(done.returncode, 0, "%s:%d\n%s%s" % (PAGE, line, done.stdout, done.stderr))
                if want:
                    self.assertTrue(like(want, done.stdout), "%s:%d\n%s\nis not like\n%s" % (PAGE, line, done.stdout, want))
        self.assertEqual(written, ["tools.py", "app.py", "Dockerfile"])
        self.assertGreaterEqual(ran, 11)
        with open(PAGE) as f:
            self.assertIn("The 40th Fibonacci number is 102334155.", f.read())

    def test_the_example_is_the_pages(self):
        with open(PAGE) as f:
            page = f.read()
        for name in ("tools.py", "app.py", "Dockerfile"):
            with open(os.path.join(EXAMPLE, name)) as f:
                self.assertIn(f.read(), page)


# Word for word, from the platform's guide.
GUIDE_AGENT = '''# agent.py
from google.adk.agents import LlmAgent
from crusoe_adk.tools import run_python

root_agent = LlmAgent(
    name="analyst",
    tools=[run_python],
    instruction="When a question needs arithmetic or parsing, write Python and run it.",
)
'''
GUIDE_CLIENT = '''import os, httpx
from crusoe_core.adapter import internal_caller_headers

r = httpx.post(
    f"{os.environ['SANDBOX_URL'].rstrip('/')}/v1/execute",
    json={"language": "python", "code": "print(6*7)", "timeout_s": 20},
    headers=internal_caller_headers(),   # the project's own internal token
    timeout=30.0,
)
print(r.json()["stdout"])   # 42
'''
# As in "Security and limits"; the header is what that page does without.
LIMITS_CURL = r'''curl -s -X POST "$SANDBOX/v1/execute" \
-H "Content-Type: application/json" -H "Authorization: Bearer $SANDBOX_TOKEN" \
-d '{"code":"import urllib.request\nurllib.request.urlopen(\"https://example.com\", timeout=5)","timeout_s":15}'
'''

HTTPX = '''
import json, urllib.request


class Response:
    def __init__(self, data):
        self.data = data

    def json(self):
        return json.loads(self.data)


def post(url, *, json, headers, timeout):
    request = urllib.request.Request(url, __import__("json").dumps(json).encode(), {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return Response(answer.read())
'''


class DocumentsExamples(unittest.TestCase):
    """Unchanged, against the alias modules."""

    @classmethod
    def setUpClass(cls):
        cls.agents = Agents({"tools.py": "def nothing(): pass"}, agent="analyst")
        cls.addClassCleanup(cls.agents.stop)
        cls.folder = tempfile.mkdtemp(prefix="weir-test-documents-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        sdk = os.path.join(TOP, "sdk", "python")
        cls.environment = dict(os.environ, PYTHONPATH=sdk, PYTHONDONTWRITEBYTECODE="1", **cls.agents.environment())

    def run_in(self, command, *paths, **variables):
        environment = dict(self.environment, PYTHONPATH=os.pathsep.join([self.environment["PYTHONPATH"], *paths]), **variables)
        done = subprocess.run(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=60 * SLOW)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_the_client(self):
        paths = []
        if subprocess.run(["/usr/bin/python3", "-c", "import httpx"], stderr=subprocess.DEVNULL).returncode:
            os.makedirs(self.folder + "/stand_in", exist_ok=True)
            with open(self.folder + "/stand_in/httpx.py", "w") as f:
                f.write(HTTPX)
            paths.append(self.folder + "/stand_in")
        self.assertEqual(self.run_in(["/usr/bin/python3", "-c", GUIDE_CLIENT], *paths), "42\n\n")

    def test_the_agent(self):
        with open(self.folder + "/agent.py", "w") as f:
            f.write(GUIDE_AGENT)
        with open(self.folder + "/ask.py", "w") as f:
            f.write("import agent\n(tool,) = agent.root_agent.tools\nprint(tool('a, b = 0, 1\\nfor _ in range(40): a, b = b, a + b\\nprint(a)'), tool.__name__)\n")
        # Google ADK itself is not here: its class has a stand-in of the same name.
        command = "import frameworks; frameworks.install(); from weir import agent; raise SystemExit(agent.main(['agent:root_agent', '--then', 'ask']))"
        out = self.run_in([sys.executable, "-c", command], HERE)
        self.assertEqual(out, "{'stdout': '102334155\\n', 'stderr': '', 'exit_code': 0, 'files': []} run_python\n")

    def test_the_fetch_that_fails(self):
        out = self.run_in(["sh", "-ec", LIMITS_CURL], SANDBOX=self.environment["SANDBOX_URL"])
        self.assertIn("urllib.error.URLError: <urlopen error", out)
        self.assertIn('"exit_code": 1', out)


if __name__ == "__main__":
    unittest.main()
