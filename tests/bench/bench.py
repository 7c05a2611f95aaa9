#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench`: figures of this machine, each with a floor or a peer of the same run beside it. Never a test: exits 0."""
import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from lib import Service, TOKEN  # noqa: E402
from bench_host import host_rows  # noqa: E402

CODE = "print(6*7)"
rows = []


def row(what, samples_ms, floor=None, note=""):
    samples = sorted(samples_ms)
    entry = {
        "what": what,
        "n": len(samples),
        "p50_ms": round(statistics.median(samples), 2),
        "p99_ms": round(samples[min(len(samples) - 1, int(len(samples) * 0.99))], 2),
        "spread_ms": round(samples[int(len(samples) * 0.75)] - samples[int(len(samples) * 0.25)], 2),
        "times_floor": round(statistics.median(samples) / floor, 2) if floor else None,
        "note": note,
    }
    rows.append(entry)
    print("%-52s n %-5d p50 %8.2f ms  p99 %8.2f ms  iqr %6.2f  %s %s" % (
        what, entry["n"], entry["p50_ms"], entry["p99_ms"], entry["spread_ms"],
        "%.2f x floor" % entry["times_floor"] if floor else "", note), flush=True)
    return entry["p50_ms"]


def timed(count, fn):
    out = []
    for _ in range(count):
        start = time.perf_counter()
        fn()
        out.append((time.perf_counter() - start) * 1000)
    return out


def client(service):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    body = json.dumps({"code": CODE})
    headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}

    def one():
        connection.request("POST", "/v1/execute", body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if answer.get("stdout") != "42\n":
            raise RuntimeError(answer)
        return answer

    return one


def throughput(service, clients, seconds):
    count, failed, stop = [0] * clients, [], time.monotonic() + seconds

    def loop(i):
        one = client(service)
        while time.monotonic() < stop:
            try:
                one()
                count[i] += 1
            except Exception as e:  # counted and shown, not hidden
                failed.append(repr(e)[:200])
    threads = [threading.Thread(target=loop, args=(i,)) for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    rows.append({"what": "sustained, %d clients, %d s" % (clients, seconds), "runs_per_s": sum(count) / seconds, "failed": len(failed)})
    print("%-52s %.0f runs/s, %d failed %s" % (rows[-1]["what"], rows[-1]["runs_per_s"], len(failed), failed[:1] or ""), flush=True)


def fork_floor(python, count):
    code = (
        "import os, sys, time, json\nout = []\n"
        "for _ in range(%d):\n    t = time.perf_counter()\n    pid = os.fork()\n"
        "    if not pid:\n        exec('print(6*7)'); sys.stdout.flush(); os._exit(0)\n"
        "    os.waitpid(pid, 0)\n    out.append((time.perf_counter() - t) * 1000)\nprint(json.dumps(out), file=sys.stderr)\n" % count
    )
    done = subprocess.run([python, "-I", "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    return json.loads(done.stderr)


def judgements():
    """The kernel's own count of nanoseconds for one judgement; the floor parses the packet and looks nothing up."""
    done = subprocess.run([os.path.join("build", "bench", "bench_judge")], stdout=subprocess.PIPE, check=True)
    figures = json.loads(done.stdout)
    floor = figures.pop("floor_ns")
    rows.append({"what": "judgement, floor", "ns": floor})
    print("%-52s %d ns" % ("floor: a packet parsed, no policy looked up", floor))
    for name, ns in figures.items():
        rows.append({"what": "judgement, " + name[:-3], "ns": ns, "over_floor_ns": ns - floor})
        print("%-52s %d ns, %d over the floor" % ("judgement of a packet: " + name[:-3].replace("_", " "), ns, ns - floor), flush=True)


def exec_start():
    """What `weir exec` adds to a command: programs loaded and attached, a policy compiled, a process made and proven."""
    bare = statistics.median(timed(10, lambda: subprocess.run(["true"], check=True)))
    row("weir exec --policy tool-call -- true", timed(10, lambda: subprocess.run(
        [os.path.join("build", "weir"), "exec", "--quiet", "--policy", "tool-call", "--", "true"], check=True)), note="true alone %.2f ms" % bare)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--seconds", type=int, default=10)
    ap.add_argument("--json", help="also write the rows there")
    args = ap.parse_args()
    python = os.path.realpath(sys.executable)
    floor = row("floor: os.fork() of a ready Python + the snippet", fork_floor(python, 200), note="no isolation")
    bare = row("bare python -I -c", timed(40, lambda: subprocess.run([python, "-I", "-c", CODE], stdout=subprocess.DEVNULL)), note="no isolation")
    bwrap = shutil.which("bwrap")
    if bwrap:
        command = [bwrap, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", python, "-I", "-c", CODE]
        row("peer: bubblewrap, all namespaces, + python", timed(40, lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)), floor)
    else:
        print("peer: bubblewrap is not installed: skipped")
    with Service() as service:
        one = client(service)
        one()
        hits = []
        runs = []
        for _ in range(60):
            service.wait_warm()
            start = time.perf_counter()
            answer = one()
            hits.append((time.perf_counter() - start) * 1000)
            runs.append(answer["usage"]["stages"]["run_ms"])
        row("POST /v1/execute, pool hit, one client (exec mode)", hits, floor)
        row("  of which the run itself, gate to main's end", runs, floor)
        for clients in (1, 4, 8):
            throughput(service, clients, args.seconds)
    last_hit = rows[-5]["p50_ms"]
    judgements()
    exec_start()
    rows.extend(host_rows())
    print("bare python: %.2f ms, so a hit is %.2f of starting one" % (bare, last_hit / bare))
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
