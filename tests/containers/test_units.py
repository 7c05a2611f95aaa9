# SPDX-License-Identifier: Apache-2.0
"""deploy/systemd: systemd's own verifier takes the units, what they call exists, and what they keep of root is enough for what they do.

No systemd runs these here: that is what tests/guest_long is for, where one can be started."""
import configparser
import glob
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import commands
from lib import TOP, WEIR, weir

UNITS = os.path.join(TOP, "deploy", "systemd")
INSTALLED = "/usr/local/bin/weir"
# No better than this, as `systemd-analyze security` counts (0 is best): what must stay open is listed in the units.
EXPOSURE = {"weir.service": 6.0, "weir-policy-only.service": 4.5}


class Words(configparser.RawConfigParser):
    """A unit: every key is kept as it is spelt, and may be there several times."""

    def __init__(self):
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#", ";"), interpolation=None)

    optionxform = staticmethod(str)


def read(name):
    unit = Words()
    unit.read(os.path.join(UNITS, name))
    return unit


class Units(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="weir-test-units-")
        self.addCleanup(shutil.rmtree, self.top)

    def put(self, name, change=lambda text: text):
        """A copy that calls the weir of here, changed: its path."""
        with open(os.path.join(UNITS, name)) as f:
            text = f.read()
        path = os.path.join(self.top, name)
        with open(path, "w") as f:
            f.write(change(text.replace(INSTALLED, WEIR)))
        return path

    def verify(self, *paths):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *paths], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return done.returncode, done.stdout.decode()

    def test_systemd_takes_them(self):
        for name in EXPOSURE:
            with self.subTest(unit=name):
                self.assertEqual(self.verify(self.put(name)), (0, ""))

    def test_systemd_would_say_what_is_wrong(self):
        for right, wrong in (("KillMode=mixed", "KillMod=mixed"), ("Type=exec", "Type=exce"), ("[Service]", "[Servce]"), ("RestartSec=1", "RestartSec=soon"),
                             ("AF_NETLINK", "AF_NETLNK"), ("@reboot", "@rebot"), (WEIR, WEIR + "-that-is-not-there")):
            with self.subTest(wrong=wrong):
                code, said = self.verify(self.put("weir-policy-only.service", lambda text: text.replace(right, wrong)))
                self.assertTrue(code or said, said)

    def test_systemd_takes_the_drop_in_with_a_service(self):
        for extra in ("", "IPAddressDeny=192.0.2.0/24\nUser=daemon\n"):
            service = os.path.join(self.top, "agent.service")
            with open(service, "w") as f:
                f.write("[Service]\nExecStart=/bin/true\n" + extra)
            os.makedirs(service + ".d", exist_ok=True)
            shutil.copy(self.put("10-weir-policy.conf"), service + ".d")
            self.assertEqual(self.verify(service), (0, ""))
            with open(service + ".d/10-weir-policy.conf", "a") as f:
                f.write("ExecStartPra=+/bin/true\n")
            self.assertIn("ExecStartPra", self.verify(service)[1])

    def test_lines_that_wait_to_be_uncommented_are_settings_too(self):
        service = os.path.join(self.top, "agent.service")
        with open(service, "w") as f:
            f.write("[Service]\nExecStart=/bin/true\n")
        os.makedirs(service + ".d")
        path = self.put("10-weir-policy.conf", lambda text: re.sub(r"^#(?=[A-Z]\w+=)", "", text, flags=re.M))
        shutil.copy(path, service + ".d")
        self.assertIn("\nRestrictAddressFamilies=", open(path).read())
        self.assertEqual(self.verify(service), (0, ""))

    def test_capabilities_are_some(self):
        """systemd passes over one that it does not know without a word."""
        with open("/usr/include/linux/capability.h") as f:
            known = set(re.findall(r"^#define (CAP_\w+)\s+\d+$", f.read(), re.M))
        for name in EXPOSURE:
            kept = read(name)["Service"]["CapabilityBoundingSet"].split()
            self.assertGreater(len(kept), 5)
            self.assertEqual(set(kept) - known, set())

    def test_exposure_stays_where_it_is(self):
        for name, most in EXPOSURE.items():
            with self.subTest(unit=name):
                done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", self.put(name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
                self.assertLessEqual(float(re.search(r"exposure level for .*: ([\d.]+)", done.stdout.decode()).group(1)), most)

    def test_commands_and_options_exist(self):
        calls = set()
        for path in glob.glob(UNITS + "/*"):
            with open(path) as f:
                for call in commands.in_text(f.read()):
                    with self.subTest(file=os.path.basename(path), call=call):
                        self.assertIsNone(commands.problem(call))
                    calls.add(call.split()[0])
        self.assertGreaterEqual(calls, {"serve", "attach"})

    def test_paths_and_policies_are_there(self):
        for name in EXPOSURE:
            unit = read(name)
            service = unit["Service"]
            with self.subTest(unit=name):
                self.assertEqual(service["ExecStart"].split()[0], INSTALLED)
                # What Weir writes: its state and records, pins, cgroups. All else is read-only.
                self.assertEqual((service["StateDirectory"], service["RuntimeDirectory"]), ("weir", "weir"))
                self.assertEqual(service["RuntimeDirectoryPreserve"], "yes")
                self.assertIn("/sys/fs/bpf", service["ReadWritePaths"].split())
                self.assertEqual(unit["Unit"]["AssertPathIsMountPoint"], "/sys/fs/bpf")
                for page in re.findall(r"man:(\S+)\((\d)\)", unit["Unit"]["Documentation"]):
                    self.assertTrue(os.path.exists(os.path.join(TOP, "docs", "man", ".".join(page))), page)
        pre = read("10-weir-policy.conf")["Service"]["ExecStartPre"]
        self.assertTrue(pre.startswith("+" + INSTALLED))
        self.assertEqual(weir("policy", "check", re.search(r"--policy (\S+)", pre).group(1)).returncode, 0)

    def test_install_puts_them_where_systemd_looks(self):
        with open(os.path.join(TOP, "Makefile")) as f:
            recipe = f.read().split("\ninstall:")[1].split("\n.PHONY")[0]
        self.assertRegex(recipe, r"deploy/systemd/\*\.service.*lib/systemd/system")
        self.assertIn("deploy/systemd/10-weir-policy.conf", recipe)


if __name__ == "__main__":
    unittest.main()
