# SPDX-License-Identifier: Apache-2.0
"""What an attached cgroup used in a window of its record: CPU time by both sources, programs, bytes, and what it was before."""
import os
import subprocess
import unittest

from attached import Apart, Cgroup, Folder
from lib import SLOW, TOKEN, WEIR, WEIR_HOOKS, Service

import test_attached_service as services

# A line in: so many milliseconds to burn, and how many programs to start. A line out: the CPU time of all that so far, and what was written.
BURN = """
import os, resource, subprocess, sys, time
print(0, 0, flush=True)
for line in sys.stdin:
    ms, programs = map(int, line.split())
    until = time.process_time() + ms / 1000
    while time.process_time() < until:
        pass
    for _ in range(programs):
        subprocess.run(["/bin/true"])
    used = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    print(sum(u.ru_utime + u.ru_stime for u in used) * 1000, flush=True)
"""


def setUpModule():
    services.setUpModule()


def tearDownModule():
    services.tearDownModule()


class Burner:
    def __init__(self, directory):
        def join():
            with open(os.path.join(directory, "cgroup.procs"), "w") as f:
                f.write("0")

        self.process = subprocess.Popen(["/usr/bin/python3", "-I", "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=join, cwd="/")
        self.pid = self.process.pid
        self.process.stdout.readline()
        self.used = self.total(0)

    def total(self, ms, programs=0):
        self.process.stdin.write("%d %d\n" % (ms, programs))
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def burn(self, ms, programs=0):
        """What that took, milliseconds."""
        before, self.used = self.used, self.total(ms, programs)
        return self.used - before

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10 * SLOW)


class Use(services.Case):
    def burner(self):
        b = Burner(self.path())
        self.addCleanup(b.stop)
        return b

    def cpu_is(self, record, ms):
        usage = record["usage"]["cpu_ms"]
        self.assertEqual((usage["source"], usage["checked"]["source"]), ("cgroup2 cpu.stat", "sched_process_exit"), usage)
        for value in (usage["value"], usage["checked"]["value"]):
            # A look at the cgroup, and the program's own talk, are in it.
            self.assertLessEqual(abs(value - ms), max(0.02 * ms, 5) * SLOW, (usage, ms))

    def test_windows_have_what_was_used_in_them(self):
        """What was burnt before the service came, and what lives on, is in none of them twice; together they have all of it."""
        b = self.burner()
        b.burn(200)
        a = self.attach()
        s = self.serve("--test-window", "3", hooks=True)
        self.begun(s, a)
        spent = b.burn(300, 5)
        r = self.ended(s, a)
        if r["execs"]["count"] == 5:
            self.cpu_is(r, spent)
        else:
            self.cpu_is_in_two(s, a, r, spent)
        programs = [p for n in (1, 2) for p in self.ended(s, a, n)["execs"]["programs"]]
        self.assertEqual([(p["path"], p["command"]) for p in programs], [("/bin/true", "true")] * 5)
        self.assertGreaterEqual(r["processes"], 1)
        with open("/proc/sys/kernel/random/boot_id") as f:
            self.assertEqual(r["boot_id"], f.read().strip())

    def cpu_is_in_two(self, s, a, first, spent):
        """The window ended in the middle of it."""
        both = [r["usage"]["cpu_ms"] for r in (first, self.ended(s, a, 2))]
        for figures in ([u["value"] for u in both], [u["checked"]["value"] for u in both]):
            self.assertLessEqual(abs(sum(figures) - spent), max(0.02 * spent, 10) * SLOW, (both, spent))

    def test_figures_of_an_open_window(self):
        """What it has used so far, while it goes on; and nothing of it when it has ended."""
        b = self.burner()
        a = self.attach()
        s = self.serve()
        self.begun(s, a)
        spent = b.burn(200, 3)

        def now():
            return s.request("GET", "/v1/runs/%s.1" % a["id"]).json()

        r = services.until(lambda: (lambda r: r.get("live") and r["usage"]["cpu_ms"]["checked"] and r["usage"]["cpu_ms"]["checked"]["value"] > spent / 2 and r)(now()))
        self.assertTrue(r, now())
        self.assertEqual((r["state"], r["termination"], r["egress"]["exact"]), ("running", None, True))
        self.assertGreaterEqual(r["processes"], 4)
        self.assertGreater(r["usage"]["cpu_ms"]["value"], spent / 2)
        self.assertIsNone(r["usage"]["net_bytes"]["checked"])
        b.stop()
        self.cgroup.remove("app")
        self.assertNotIn("live", self.ended(s, a))
        self.assertNotIn("live", now())

    def test_a_cgroup_that_is_gone(self):
        """What its tasks had used is known, whatever became of its files."""
        a = self.attach()
        s = self.serve()
        self.begun(s, a)
        b = self.burner()
        spent = b.burn(150)
        b.stop()
        self.cgroup.remove("app")
        r = self.ended(s, a)
        self.assertEqual(r["termination"]["reason"], "removed")
        self.assertGreaterEqual(r["usage"]["cpu_ms"]["checked"]["value"], spent - 5)
        self.assertEqual(r["processes"], 1)
        self.assertEqual([p["command"] for p in r["execs"]["programs"]][-1:], ["python3"] if r["execs"]["programs"] else [])

    def test_without_the_right_to_trace(self):
        """It goes on with what it is for, says so at the start, and in each window."""
        a = self.attach()
        few = "sys_admin,perfmon"
        script = services.folder.put("no-tracing", "#!/bin/sh\nexec setpriv --bounding-set=-%s --inh-caps=-%s %s \"$@\"\n" % (
            few.replace(",", ",-"), few.replace(",", ",-"), WEIR))
        os.chmod(script, 0o755)
        wrapped = services.wrapper("no-tracing-there", script)
        s = Service("--policy-only", binary=wrapped)
        self.addCleanup(s.stop)
        self.begun(s, a)
        self.assertIn("meter: ", s.log_text())
        s.stop()
        self.assertIn("windows of attachments have no", s.last_log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
