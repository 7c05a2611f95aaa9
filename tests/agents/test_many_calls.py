# SPDX-License-Identifier: Apache-2.0
"""A thousand tool calls, eight at a time, that end in every way: each answer is right, and nothing is left of any of them."""
import collections
import concurrent.futures
import os
import re
import subprocess
import threading
import time
import unittest

from fixture import Agents
from footprint import Footprint, settled
from lib import SLOW

CALLS = int(os.environ.get("WEIR_CALLS", "1000"))
CONCURRENCY = 8
MIB = 1 << 20

TOOLS = '''
import asyncio, os, socket, sys, threading, time

state = {"calls": 0}


def add(a, b=2, *, c=0):
    return a + b + c


async def later(n):
    await asyncio.sleep(0.001)
    return {"n": n, "list": [None, True, 1.5, "\\u00e9"]}


def once(mark):
    """Whoever finds the mark of another call says so."""
    state["calls"] += 1
    found = [name for folder in ("/tmp", "/box", "/dev/shm") for name in os.listdir(folder) if name.startswith("mark-")]
    for folder in ("/tmp", "/box", "/dev/shm"):
        open("%s/mark-%s" % (folder, mark), "w").close()
    return [state["calls"], found, [p for p in os.listdir("/proc") if p.isdigit() and p not in ("1", "2")]]


def raises(text):
    raise LookupError(text)


def leaves(code):
    os._exit(code)


def dies():
    os.kill(os.getpid(), 11)


def prints(text, n):
    print(text * n, end="")
    print(text, end="", file=sys.stderr)
    return len(text) * n


def denied(address):
    s = socket.socket()
    s.settimeout(2)
    began = time.monotonic()
    try:
        s.connect((address, 80))
        return "connected"
    except OSError as e:
        return [type(e).__name__, time.monotonic() - began < 1]


def leaves_others():
    threading.Thread(target=time.sleep, args=(60,)).start()
    if os.fork() == 0:
        time.sleep(60)
    return os.getpid()


def large(n):
    return "x" * n


def sleeps():
    time.sleep(60)
'''


class Wrong(Exception):
    pass


def same(got, want):
    if got != want:
        raise Wrong("%.300r, not %.300r" % (got, want))


def value(answer):
    if "result" not in answer:
        raise Wrong("no result: %.600r" % (answer,))
    same((answer["exit_code"], answer["termination"]["reason"]), (0, "exit"))
    return answer["result"]


def failed(answer, kind, reason="exit"):
    if "error" not in answer or "result" in answer:
        raise Wrong("no error: %.600r" % (answer,))
    same((answer["error"]["type"], answer["termination"]["reason"]), (kind, reason))
    return answer["error"]["message"]


def adds(call, i):
    same(value(call("add", {"a": i, "c": 2**60})), i + 2 + 2**60)


def awaits(call, i):
    same(value(call("tools:later", {"n": i})), {"n": i, "list": [None, True, 1.5, "\u00e9"]})


def finds_nothing(call, i):
    same(value(call("once", {"mark": str(i)})), [1, [], []])


def raised(call, i):
    same(failed(call("raises", {"text": "text %d" % i}), "LookupError"), "text %d" % i)


def left(call, i):
    answer = call("leaves", {"code": i % 200})
    failed(answer, "ToolEndedError")
    same(answer["exit_code"], i % 200)


def died(call, i):
    answer = call("dies")
    failed(answer, "ToolEndedError", "signal")
    same((answer["termination"]["signal"], answer["exit_code"]), ("SIGSEGV", 139))


def printed(call, i):
    text = "line %d\n" % i
    answer = call("prints", {"text": text, "n": 1000})
    same(value(answer), len(text) * 1000)
    same((answer["stdout"], answer["stderr"]), (text * 1000, text))


def refused(call, i):
    answer = call("denied", {"address": ("169.254.169.254", "10.0.0.1", "127.0.0.1", "192.168.7.7")[i % 4]})
    same(value(answer), ["PermissionError", True])
    same((answer["egress"]["denied"], answer["egress"]["allowed"]), (1, 0))


def others_are_ended(call, i):
    same(value(call("leaves_others")), 2)


def returned_much(call, i):
    same(value(call("large", {"n": 300_000})), "x" * 300_000)


def wrong_arguments(call, i):
    failed(call("add", {"b": i}), "TypeError")


def timed_out(call, i):
    answer = call("sleeps", timeout_s=1)
    failed(answer, "ToolTimeoutError", "timeout")
    same(answer["exit_code"], -1)


KINDS = [adds, awaits, finds_nothing, raised, left, died, printed, refused, others_are_ended, returned_much, wrong_arguments]
SLOW_KINDS = {100: timed_out}  # every hundredth


def network():
    """Interfaces, routes and firewall rules of the namespace that the service is in."""
    found = {"interfaces": sorted(os.listdir("/sys/class/net"))}
    for table in ("route", "ipv6_route"):
        with open("/proc/net/" + table) as f:
            found[table] = sorted(" ".join(line.split()[:1] + line.split()[1:4]) for line in f.read().splitlines()[table == "route" :])
    for tool in ("nft list ruleset", "iptables-save"):
        try:
            done = subprocess.run(tool.split(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            found[tool] = re.sub(r"#.*|\[\d+:\d+\]|counter packets \d+ bytes \d+", "", done.stdout)
        except OSError:
            found[tool] = "no such program"
    with open("/proc/sys/net/ipv4/ip_forward") as f:
        found["forwarding"] = f.read()
    return found


class ManyCalls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.agents = Agents({"tools.py": TOOLS})
        cls.service = cls.agents.service
        try:
            cls.measure()
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.agents.stop()

    @classmethod
    def look(cls):
        return Footprint(cls.service.name(), cls.service)

    @classmethod
    def measure(cls):
        for _ in range(12):  # what grows once has grown
            cls.agents.result("add", {"a": 1})
        cls.settle()
        cls.network = network()
        cls.before = cls.look()
        cls.wrong, cls.ids, cls.kinds, cls.lock = [], [], collections.Counter(), threading.Lock()
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
            list(pool.map(cls.one, range(CALLS)))
        cls.seconds = time.monotonic() - began
        cls.settle()
        cls.after = cls.look()
        print("          %d calls in %.1f s (%.0f/s at %d clients), %d wrong" % (CALLS, cls.seconds, CALLS / cls.seconds, CONCURRENCY, len(cls.wrong)), flush=True)

    @classmethod
    def settle(cls):
        """Until the agent's ready sandboxes are there again, and no more."""
        deadline = time.monotonic() + 20 * SLOW
        last, since = None, time.monotonic()
        while time.monotonic() < deadline:
            now = sorted(os.listdir(cls.service.cgroup()))
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > 0.7:
                return
            time.sleep(0.05)

    @classmethod
    def one(cls, i):
        kind = SLOW_KINDS[100] if i % 100 == 99 else KINDS[i % len(KINDS)]

        def call(name, arguments=None, **fields):
            answer = cls.agents.call(name, arguments, **fields)
            with cls.lock:
                cls.ids.append(answer["sandbox_id"])
            return answer

        try:
            kind(call, i)
        except Exception as e:
            with cls.lock:
                cls.wrong.append("%d %s: %s: %s" % (i, kind.__name__, type(e).__name__, e))
        with cls.lock:
            cls.kinds[kind.__name__] += 1

    def test_every_answer_is_right(self):
        self.assertEqual(self.wrong[:5], [], "%d of %d" % (len(self.wrong), CALLS))
        self.assertEqual(sum(self.kinds.values()), CALLS)

    def test_each_had_a_sandbox_of_its_own(self):
        self.assertEqual(len(set(self.ids)), len(self.ids))
        self.assertGreaterEqual(len(self.ids), CALLS * 9 // 10)

    def test_nothing_is_left(self):
        self.assertEqual(settled(self.before, self.look), {})

    def test_the_hosts_network_is_as_before(self):
        self.assertEqual(network(), self.network)

    def test_nobody_grew(self):
        """A megabyte for ten thousand calls; for fewer, what an allocator keeps."""
        grown = {role: self.after.rss[role] - self.before.rss[role] for role in ("api", "supervisor", "collector", "gateway")}
        print("          grown, KiB: %s" % {role: n // 1024 for role, n in grown.items()}, flush=True)
        for role, n in grown.items():
            self.assertLess(n, max(1, CALLS / 10000) * MIB + MIB, role)


if __name__ == "__main__":
    unittest.main()
