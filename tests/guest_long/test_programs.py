# SPDX-License-Identifier: Apache-2.0
"""Guards of attachments and the canary on a stock kernel: many programs to load, each of which takes seconds there."""
import subprocess
import unittest


class Programs(unittest.TestCase):
    def run_program(self, name):
        done = subprocess.run(["build/bpf/" + name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=400)
        self.assertEqual(done.returncode, 0, done.stdout.decode("utf-8", "replace")[-3000:])

    def test_attached(self):
        self.run_program("test_attached")

    def test_meter(self):
        self.run_program("test_meter")

    def test_canary(self):
        """Here cgroup2 has controllers: a cgroup with some switched on takes no process of its own."""
        self.run_program("test_canary")


if __name__ == "__main__":
    unittest.main()
