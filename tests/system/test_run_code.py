# SPDX-License-Identifier: Apache-2.0
"""Every example of docs/run-code.md is run as it stands there: blocks in sh and Python, and what the page says they print."""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import unittest

from lib import SLOW, Service, TOKEN, TOP

PAGE = os.path.join(TOP, "docs", "run-code.md")


def blocks():
    """(line, language, text, what it prints or None) of each block that is run."""
    with open(PAGE) as f:
        page = f.read()
    for m in re.finditer(r"^```(sh|python)\n(.*?)^```\n(?:```(text|json)\n(.*?)^```\n)?", page, re.M | re.S):
        yield page.count("\n", 0, m.start()) + 1, m.group(1), m.group(2), (m.group(3), m.group(4))


def like(want, got):
    """Whether `got` is what the page says, which leaves things out with an ellipsis, and never says what ids are."""
    pattern = re.escape(want.strip()).replace(re.escape("…"), ".*")
    return re.search(re.sub(r"sandbox\\-[a-z0-9]{13}", r"sandbox\\-[a-z0-9]{13}", pattern), got, re.S)


class RunCode(unittest.TestCase):
    def test_every_example(self):
        with Service(pool=3) as service, tempfile.TemporaryDirectory() as work:
            environment = {"PATH": os.environ["PATH"], "WEIR_URL": "http://127.0.0.1:%d" % service.port, "TOKEN": TOKEN}

            def run(block):
                line, language, text, _ = block
                command = ["sh", "-ec", text] if language == "sh" else [sys.executable, "-c", text]
                return subprocess.run(command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60 * SLOW)

            (client,) = [b[2] for b in blocks() if b[2].startswith("# client.py\n")]
            with open(os.path.join(work, "client.py"), "w") as f:
                f.write(client)
            chosen = [b for b in blocks() if not b[2].startswith(("# client.py\n", "export "))]
            self.assertGreater(len(chosen), 12)
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                for (line, _, _, (kind, want)), done in zip(chosen, pool.map(run, chosen)):
                    got = done.stdout.decode()
                    with self.subTest(line=line):
                        self.assertEqual(done.returncode, 0, got)
                        if kind == "text" and "…" not in want:
                            self.assertEqual(got, want)
                        elif want:
                            self.assertTrue(like(want, got), "%s\nis not like\n%s" % (got, want))


if __name__ == "__main__":
    unittest.main()
