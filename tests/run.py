#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Weir's tests and ends on one line, `N passed, N failed` (`, N skipped` when a test had to be).

  tests/run.py unit            cmocka programs under build/unit (no root)
  tests/run.py bpf api         cmocka programs under build/bpf, build/api
  tests/run.py system          tests/system/test_*.py: the real program on the real kernel (root)
  tests/run.py audit           tests/audit: what runs used, and the record of it (root)
  tests/run.py attach          tests/attach: policies on cgroups that somebody else made (root)
  tests/run.py containers      tests/containers: real containers and pods, the files in deploy/ (root)
  tests/run.py -k PATTERN …    only tests whose name contains PATTERN
  tests/run.py san:unit san:api   the same programs from the sanitizer build, build/san
  tests/run.py guest           inside the emulated machine (tests/vm/run)

With MUST_WORK=1 a skipped test is a failure: for machines where nothing may skip.
"""
import argparse
import concurrent.futures
import glob
import itertools
import os
import re
import subprocess
import sys
import time
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
C_GROUPS = ("unit", "bpf", "api")
# Of `bpf`, only when asked for by name (-k): they are run with the suite that they belong to.
APART = ("bpf/test_attached", "bpf/test_canary")
PROGRAM_SECONDS = 300
LONG = ("test_api_clients", "test_guard", "test_judge")
PROGRAMS_AT_ONCE = 3  # most of what they do is wait


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, name, verdict, seconds=None, text=""):
        setattr(self, verdict, getattr(self, verdict) + 1)
        took = "" if seconds is None else " (%.2f s)" % seconds
        print("  %-7s %s%s" % (verdict.upper(), name, took), flush=True)
        if text:
            print("".join("          %s\n" % line for line in text.rstrip().splitlines()), end="", flush=True)


def run_program(path):
    """One cmocka program: exit status, what it said, how long it took."""
    started = time.monotonic()
    try:
        done = subprocess.run([path], cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PROGRAM_SECONDS)
        text, code = done.stdout.decode("utf-8", "replace"), done.returncode
    except subprocess.TimeoutExpired as e:
        text, code = (e.stdout or b"").decode("utf-8", "replace") + "\ntimed out", -1
    return code, text, time.monotonic() - started


def count_program(group, path, tally, code, text, seconds):
    """Its own lines are counted one by one."""
    name = group + " " + os.path.basename(path)
    passed = len(re.findall(r"^\[       OK \]", text, re.M))
    skipped = re.findall(r"^\[  SKIPPED \] (\S+)$", text, re.M)
    tally.passed += max(passed - 1, 0) if not code and passed else passed
    if code == 0 and passed:
        tally.add("%s: %d tests" % (name, passed), "passed", seconds)
    else:
        tally.add("%s: exit %d" % (name, code), "failed", seconds, text[-6000:])
    for test in skipped:
        tally.add("%s: %s" % (name, test), "skipped", None, "\n".join(re.findall(r"^skip: .*$", text, re.M)))


def run_programs(groups, tally, pattern):
    """Those of all groups, a few at a time, the long ones first: told as they end."""
    chosen = []
    for group in groups:
        tree, _, name = group.rpartition(":")
        found = [p for p in glob.glob(os.path.join(TOP, "build", tree, name, "test_*")) if os.access(p, os.X_OK) and "." not in os.path.basename(p)]
        if not found:
            tally.add("%s: nothing built" % group, "failed")
        chosen += [(group, p) for p in sorted(found) if pattern in os.path.basename(p) and (pattern or not p.endswith(APART))]
    chosen.sort(key=lambda c: (os.path.basename(c[1]) not in LONG, c))
    with concurrent.futures.ThreadPoolExecutor(PROGRAMS_AT_ONCE) as pool:
        running = {pool.submit(run_program, path): (group, path) for group, path in chosen}
        for done in concurrent.futures.as_completed(running):
            count_program(*running[done], tally, *done.result())


class Result(unittest.TestResult):
    def __init__(self, tally):
        super().__init__()
        self.tally = tally

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def _add(self, test, verdict, text=""):
        self.tally.add(test.id(), verdict, time.monotonic() - getattr(self, "started", time.monotonic()), text)

    def addSuccess(self, test):
        self._add(test, "passed")

    def addFailure(self, test, err):
        self._add(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._add(subtest, "failed", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        if os.environ.get("MUST_WORK") == "1":
            self._add(test, "failed", "may not skip here: " + reason)
        else:
            self._add(test, "skipped", reason)


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def run_python(folder, tally, pattern):
    sys.path[:0] = [os.path.join(TOP, "tests", folder), os.path.join(TOP, "tests", "system")]
    suite = unittest.defaultTestLoader.discover(os.path.join(TOP, "tests", folder), "test_*.py")
    # Grouped by class, so that what a class starts once is started once.
    chosen = [t for t in flatten(suite) if not pattern or pattern in t.id()]
    for module, tests in itertools.groupby(chosen, lambda t: type(t).__module__):
        started = time.monotonic()
        unittest.TestSuite(tests).run(Result(tally))
        print("  %6.1f s  %s" % (time.monotonic() - started, module), flush=True)


def run_modules(folder, tally, at_once):
    """Each module in a process of its own, some at a time: for tests that have their own /run and their own names."""
    # The largest first: they take longest, roughly.
    paths = sorted(glob.glob(os.path.join(TOP, "tests", folder, "test_*.py")), key=os.path.getsize, reverse=True)
    modules = [os.path.basename(p)[:-3] for p in paths]

    def one(module):
        return subprocess.run([sys.executable, os.path.abspath(__file__), folder, "-k", module + "."],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode("utf-8", "replace")

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for done in concurrent.futures.as_completed([pool.submit(one, m) for m in modules]):
            text, _, last = done.result().rstrip().rpartition("\n")
            found = re.match(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", last)
            print(text if found else text + "\n" + last, flush=True)
            if found:
                tally.passed += int(found.group(1))
                tally.failed += int(found.group(2))
                tally.skipped += int(found.group(3) or 0)
            else:
                tally.add("%s: a module did not get to its end" % folder, "failed")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("groups", nargs="+", metavar="GROUP")
    ap.add_argument("-k", dest="pattern", default="")
    ap.add_argument("--at-once", type=int, default=1, metavar="N", help="Python modules run N at a time")
    args = ap.parse_args()
    tally = Tally()
    run_programs([g for g in args.groups if g.rpartition(":")[2] in C_GROUPS], tally, args.pattern)
    for group in args.groups:
        if group.rpartition(":")[2] not in C_GROUPS:
            print("%s:" % group, flush=True)
            if args.at_once > 1:
                run_modules(group, tally, args.at_once)
            else:
                run_python(group, tally, args.pattern)
    line = "%d passed, %d failed" % (tally.passed, tally.failed)
    print(line + (", %d skipped" % tally.skipped if tally.skipped else ""), flush=True)
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
