#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a process outside any sandbox pays for a service on its host: loops of tests/bench/hostload.c and `perf bench sched pipe`.

Rounds with and without the service alternate, each beginning with the other than the round before, since a machine drifts by
more between minutes than a service costs. The loops run in the root of the cgroup tree, as everything does that nobody sandboxed.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "system"))
from lib import BUILD, Service  # noqa: E402

HOSTLOAD = os.path.join(BUILD, "bench", "hostload")
# The issue of each: what runs, in nanoseconds per operation. What ends or starts a program is looked at by the meter, and says so.
HOT, METERED = ("syscall", "fault", "pipe"), ("fork", "exec")


def loop(kind, seconds):
    return float(subprocess.run([HOSTLOAD, kind, str(seconds)], stdout=subprocess.PIPE, check=True).stdout)


def perf_pipe(_):
    text = subprocess.run(["perf", "bench", "sched", "pipe", "-l", "20000"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return float(re.search(r"([\d.]+) usecs/op", text).group(1)) * 1000


def loads():
    found = {kind: (lambda seconds, kind=kind: loop(kind, seconds)) for kind in HOT + METERED}
    if shutil.which("perf"):
        found["perf bench sched pipe"] = perf_pipe
    else:
        print("perf bench sched pipe: perf is not installed (linux-perf): skipped")
    return found


def measure(rounds, seconds):
    found = loads()
    samples = {name: {True: [], False: []} for name in found}
    for i in range(rounds):
        for serving in ((i % 2 == 0), (i % 2 != 0)):
            service = Service() if serving else None
            try:
                if service:
                    service.wait_warm()
                for name, run in found.items():
                    samples[name][serving].append(run(seconds))
            finally:
                if service:
                    service.stop()
    return samples


def spread(values):
    ordered = sorted(values)
    return ordered[len(ordered) * 3 // 4] - ordered[len(ordered) // 4]


def report(samples):
    rows = []
    for name, both in samples.items():
        without, serving = statistics.median(both[False]), statistics.median(both[True])
        # Paired: each round's own two, so that a slow minute is in both.
        change = statistics.median(100 * (b / a - 1) for a, b in zip(both[False], both[True]))
        rows.append({"what": "host: " + name, "n": len(both[True]), "without_ns": round(without, 1), "serving_ns": round(serving, 1),
                     "change_percent": round(change, 2), "spread_percent": round(100 * spread(both[False]) / without, 2),
                     "metered": name in METERED})
        print("%-52s without %12.1f ns  serving %12.1f ns  %+6.2f %%  (iqr of the floor %.1f %%)%s" % (
            rows[-1]["what"], without, serving, change, rows[-1]["spread_percent"],
            "  the meter's lookup included" if name in METERED else ""), flush=True)
    return rows


def host_rows(rounds=12, seconds=0.4):
    return report(measure(rounds, seconds))


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rounds", type=int, default=12)
    ap.add_argument("--seconds", type=float, default=0.4, help="of each loop in a round")
    ap.add_argument("--json", help="also write the rows there")
    args = ap.parse_args()
    result = host_rows(args.rounds, args.seconds)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(result, f, indent=1)
