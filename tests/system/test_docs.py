# SPDX-License-Identifier: Apache-2.0
"""The documents say what the program does: generated parts are current, links lead somewhere, what they name exists."""
import glob
import os
import re
import subprocess
import sys
import unittest

from lib import TOP, WEIR

PAGES = [p for p in glob.glob(os.path.join(TOP, "*.md")) + glob.glob(os.path.join(TOP, "docs", "*.md")) + glob.glob(os.path.join(TOP, "*", "README.md"))]


def anchors(path):
    """The anchors of a page's headings, as the forges make them."""
    with open(path) as f:
        return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", h)).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)$", f.read(), re.M)}


class Docs(unittest.TestCase):
    def test_table_of_limits_is_current(self):
        done = subprocess.run([sys.executable, os.path.join(TOP, "docs", "limits-table"), "--check"], stdout=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (0, b""))

    def test_links_lead_somewhere(self):
        for page in PAGES:
            with open(page) as f:
                links = re.findall(r"\]\((?!https?:)([^)\s]+)\)", re.sub(r"(?ms)^ *```.*?^ *```$", "", f.read()))
            for link in links:
                with self.subTest(page=os.path.relpath(page, TOP), link=link):
                    path, _, anchor = link.partition("#")
                    target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
                    self.assertTrue(os.path.exists(target))
                    if anchor and target.endswith(".md"):
                        self.assertIn(anchor, anchors(target))

    def test_every_command_and_option_has_its_place_in_a_manual(self):
        commands = re.findall(r"^  (\w+) ", subprocess.run([WEIR, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode().split("examples:")[0], re.M)
        self.assertGreaterEqual(set(commands), {"serve", "run", "token", "audit"})
        for command in commands:
            manual = os.path.join(TOP, "docs", "man", "weir-%s.1" % command)
            self.assertTrue(os.path.exists(manual), manual)
            with open(manual) as f:
                text = re.sub(r"\.Fl -|\bFl -", "--", f.read().replace("\\-", "-"))
            done = subprocess.run([WEIR, command, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", done.stdout.decode())):
                if option not in ("--help", "--usage", "--version"):
                    with self.subTest(command=command, option=option):
                        self.assertIn(option, text)


if __name__ == "__main__":
    unittest.main()
