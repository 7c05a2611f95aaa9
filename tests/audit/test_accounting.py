# SPDX-License-Identifier: Apache-2.0
"""What a run used, by both sources, against what it knows of itself: CPU time over threads and children, memory, bytes written in
every way there is, programs; of single runs, of sessions' cells, of runs that were killed, and of commands of the host.
"""
import json
import os
import shutil
import tempfile
import time
import unittest

from lib import SLOW, Service, weir

MIB = 1 << 20
# A process can't measure its own end: what the kernel takes then to give its memory back, so much for each MiB at most.
TEARDOWN_MS_PER_MIB = 0.25

# What every workload begins and ends with: its own figures, as the last line of standard error.
PRELUDE = """
import time
began = time.process_time()
import ctypes, json, os, resource, sys, threading
libc = ctypes.CDLL(None, use_errno=True)

def burn(seconds, clock=time.thread_time):
    until = clock() + seconds
    while clock() < until:
        pass

def told(**more):
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = time.process_time() - began + children.ru_utime + children.ru_stime
    os.write(2, (json.dumps(dict(more, cpu_ms=cpu * 1000)) + "\\n").encode())
"""

THREADS_AND_CHILDREN = PRELUDE + """
threads = [threading.Thread(target=burn, args=(0.05,)) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
for _ in range(8):
    if os.fork() == 0:
        burn(0.02)
        os._exit(0)
    os.wait()
burn(0.1)
told()
%s
"""
AT_ONCE = "os._exit(0)"  # what an interpreter does at its end is its own, and not the workload's

# One write of each kind, and more than one where the kernel takes less; `wrote` is what the calls said that they took.
WRITES = PRELUDE + """
wrote = {}

class Vec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("len", ctypes.c_size_t)]

def vecs(*texts):
    return (Vec * len(texts))(*[Vec(t, len(t)) for t in texts])

def call(*args):
    rc = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if rc < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return rc

wrote["write"] = os.write(1, b"w" * 1001)
wrote["writev"] = os.writev(1, [b"v" * 2001, b"v" * 1000])
two = vecs(b"p" * 501, b"p" * 500)
wrote["pwritev2"] = call(328, 1, two, 2, -1, -1, 0)
with open("data", "wb+") as f:
    f.write(b"s" * 4001)
    f.flush()
    wrote["sendfile"] = os.sendfile(1, f.fileno(), 0, 4001)
for name, make in (("splice", lambda r: os.splice(r, 1, 3001)), ("tee", lambda r: call(276, r, 1, 701, 0))):
    r, w = os.pipe()
    os.write(w, b"x" * (3001 if name == "splice" else 701))
    try:
        wrote[name] = make(r)
    except PermissionError:
        wrote[name] = 0
try:
    wrote["vmsplice"] = call(278, 1, vecs(b"m" * 601), 1, 0)
except PermissionError:
    wrote["vmsplice"] = 0
fd = os.dup(1)
wrote["dup"] = os.write(fd, b"d" * 11)
wrote["reopened"] = os.write(os.open("/dev/stdout", os.O_WRONLY), b"r" * 13)
if os.fork() == 0:
    os.write(1, b"c" * 17)
    os._exit(0)
os.wait()
wrote["child"] = 17
sys.stdout.write("p" * 19)
sys.stdout.flush()
wrote["print"] = 19
told(wrote=wrote)
"""
READ_BY_SPLICE = ("splice", "tee", "vmsplice")  # the kernel does not count them as written by the process


def own(answer):
    return json.loads(answer["stderr"].strip().splitlines()[-1])


def sources(figure):
    return figure["value"], figure["checked"]["value"]


class Figures(unittest.TestCase):
    def cpu_is(self, usage, ms, teardown_ms=0):
        """Both sources within 2 % or 5 ms of what it measured, but for what it can't measure; and of each other."""
        value, checked = sources(usage["cpu_ms"])
        slack = max(0.02 * ms, 5) * SLOW
        self.assertEqual((usage["cpu_ms"]["source"], usage["cpu_ms"]["checked"]["source"]), ("cgroup2 cpu.stat", "sched_process_exit"))
        for figure in (value, checked):
            self.assertGreaterEqual(figure, ms - slack)
            self.assertLessEqual(figure, ms + slack + teardown_ms * SLOW)
        self.assertLessEqual(abs(value - checked), slack)


class Runs(Figures):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=1)
        cls.addClassCleanup(cls.service.stop)

    def run_whole(self, code, **fields):
        answer = self.service.run(code, **fields)
        return answer, self.service.audit(answer["run_id"])

    def test_cpu_of_threads_and_children(self):
        answer, record = self.run_whole(THREADS_AND_CHILDREN % AT_ONCE)
        self.assertEqual(answer["exit_code"], 0, answer)
        self.cpu_is(answer["usage"], own(answer)["cpu_ms"])
        self.assertEqual(answer["processes"], 9)
        self.assertEqual((record["processes"], record["threads"]), (9, 13))

    def test_what_an_empty_run_has(self):
        answer, record = self.run_whole("pass")
        self.assertEqual((answer["processes"], record["threads"], record["execs"]["count"]), (1, 1, 0))
        self.assertEqual(record["execs"]["programs"], [])
        self.assertLess(answer["usage"]["cpu_ms"]["checked"]["value"], 100 * SLOW)
        self.assertEqual(record["oom_victims"], 0)

    def test_memory(self):
        code = PRELUDE + "x = bytearray(%d)\nfor i in range(0, len(x), 4096): x[i] = 1\ntold()\n" + AT_ONCE
        without, _ = self.run_whole(code.replace("%d", str(4096)))
        answer, _ = self.run_whole(code.replace("%d", str(200 * MIB)))
        grown = [a - b for a, b in zip(sources(answer["usage"]["memory_peak_bytes"]), sources(without["usage"]["memory_peak_bytes"]))]
        for bytes_more in grown:
            self.assertLessEqual(abs(bytes_more - 200 * MIB), 0.02 * 200 * MIB, grown)
        self.cpu_is(answer["usage"], own(answer)["cpu_ms"], TEARDOWN_MS_PER_MIB * 200)

    def test_bytes_written_in_every_way(self):
        answer, record = self.run_whole(WRITES)
        self.assertEqual(answer["exit_code"], 0, answer)
        wrote = own(answer)["wrote"]
        self.assertEqual(answer["stdout_bytes"], sum(wrote.values()), wrote)
        self.assertEqual(len(answer["stdout"]), answer["stdout_bytes"])
        self.assertEqual(answer["stderr_bytes"], len(answer["stderr"]))
        output = answer["usage"]["output_bytes"]
        self.assertEqual((output["value"], output["source"]), (answer["stdout_bytes"] + answer["stderr_bytes"], "pipe reader"))
        # Everything that all of its processes wrote to anything: the file and the pipes are in it, what was spliced is not.
        spliced = sum(wrote[name] for name in READ_BY_SPLICE)
        self.assertGreaterEqual(output["checked"]["value"], output["value"] - spliced + 4001 + 3001 + 701)
        self.assertEqual(record["usage"]["output_bytes"]["checked"]["value"], output["checked"]["value"])

    def test_a_run_that_is_killed_at_its_deadline(self):
        """What it had printed by then is exact, and so is what it had spent."""
        code = PRELUDE + "n = 0\nwhile True:\n    burn(0.01)\n    n += os.write(1, b'%09d\\n' % int((time.process_time() - began) * 1e6))\n"
        answer, _ = self.run_whole(code, timeout_s=1)
        self.assertEqual(answer["termination"]["reason"], "timeout")
        lines = answer["stdout"].splitlines()
        self.assertEqual(answer["stdout_bytes"], 10 * len(lines))
        last = int(lines[-1]) / 1000
        for value in sources(answer["usage"]["cpu_ms"]):
            self.assertGreaterEqual(value, last - 1)
            self.assertLessEqual(value, last + 10 + max(0.02 * last, 5) * SLOW)

    def test_a_run_that_is_killed_for_its_memory(self):
        answer, record = self.run_whole("x = bytearray(4 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1")
        self.assertEqual(answer["termination"]["reason"], "memory")
        self.assertEqual(record["oom_victims"], 1)
        value, checked = sources(answer["usage"]["memory_peak_bytes"])
        limit = record["limits"]["memory_bytes"]
        self.assertLessEqual(abs(value - limit), 0.02 * limit)
        # What the interpreter shares with others is not charged to it: the process is larger than its cgroup by that.
        self.assertGreaterEqual(checked, 0.98 * limit)
        self.assertLessEqual(checked, limit + 64 * MIB)

    def test_its_timeline(self):
        _, record = self.run_whole(PRELUDE + "burn(0.3)\nx = bytearray(64 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(0.2)\n")
        samples = record["timeline"]
        self.assertGreaterEqual(len(samples), 3)
        for key in ("at_ms", "cpu_ms", "attempts", "denied", "refused"):
            self.assertEqual([s[key] for s in samples], sorted(s[key] for s in samples), key)
        self.assertLessEqual(abs(samples[-1]["cpu_ms"] - record["usage"]["cpu_ms"]["value"]), 2 * SLOW)
        self.assertGreaterEqual(max(s["memory_bytes"] for s in samples), 64 * MIB)
        self.assertEqual(max(s["processes"] or 0 for s in samples), 1)

    def test_attempts_in_its_timeline(self):
        _, record = self.run_whole(
            "import socket, time\ntime.sleep(0.15)\nfor i in range(5):\n    try: socket.socket(2, 2).sendto(b'x', ('10.0.0.1', 9))\n    except OSError: pass\n")
        self.assertEqual((record["timeline"][0]["attempts"], record["timeline"][-1]["attempts"], record["timeline"][-1]["denied"]), (0, 5, 5))
        self.assertEqual(record["packets"]["denied"]["packets"], 5)

    def test_its_beginning_names_its_limits(self):
        _, record = self.run_whole("pass", timeout_s=7)
        limits = record["limits"]
        self.assertEqual(limits["timeout_s"], 7)
        for name in ("memory_bytes", "cpu_percent", "processes", "open_files", "output_bytes"):
            self.assertGreater(limits[name], 0, name)
        with open("/proc/sys/kernel/random/boot_id") as f:
            self.assertEqual(record["boot_id"], f.read().strip())


class Cells(Figures):
    """A session's: each has what it used itself, though its interpreter lives on, and so may what it started."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=1)
        cls.addClassCleanup(cls.service.stop)

    def setUp(self):
        answer = self.service.request("POST", "/v1/sessions", {})
        self.assertIn(answer.status, (200, 201), answer)
        self.session = answer.json()["session_id"]

    def cell(self, code):
        answer = self.service.run(code, session_id=self.session)
        self.assertEqual(answer["exit_code"], 0, answer)
        return answer

    def close(self):
        self.assertIn(self.service.request("DELETE", "/v1/sessions/" + self.session).status, (200, 204))
        deadline = time.monotonic() + 10 * SLOW
        while time.monotonic() < deadline:
            record = self.service.audit(self.session)
            if record.get("ended"):
                return record
            time.sleep(0.02)
        raise AssertionError(record)

    def test_cells(self):
        self.cell(PRELUDE)
        busy = self.cell(PRELUDE + "burn(0.3)\ntold()\n")
        self.cpu_is(busy["usage"], own(busy)["cpu_ms"])
        self.assertEqual(busy["processes"], 1)
        idle = self.cell("pass")
        self.assertLess(max(sources(idle["usage"]["cpu_ms"])), 50 * SLOW)
        many = self.cell(THREADS_AND_CHILDREN % "")
        self.cpu_is(many["usage"], own(many)["cpu_ms"])
        self.assertEqual(many["processes"], 9)
        # What its cells used is theirs alone: in the session's own record is what was between them, and that is nothing.
        record = self.close()
        self.assertLess(max(sources(record["usage"]["cpu_ms"])), 100 * SLOW)
        self.assertEqual((record["processes"], record["execs"]["count"]), (1, 0))

    def test_no_figure_is_in_two_records(self):
        """Of a session's records, its own and its cells', each has its part: sums count nothing twice."""
        send = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ntry: s.sendto(b'x' * %d, ('10.1.2.3', 9))\nexcept OSError: pass"
        self.cell(send % 50)
        self.cell("x = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ndel x")
        own = self.close()
        first = self.service.audit(self.session + ".1")
        self.assertEqual((first["egress"]["attempts"], first["packets"]["denied"]), (1, {"packets": 1, "bytes": 78}))
        self.assertEqual((own["egress"]["attempts"], own["packets"]["denied"]), (0, {"packets": 0, "bytes": 0}))
        for peak in sources(own["usage"]["memory_peak_bytes"]):
            self.assertLess(peak, 100 * MIB)

    def test_memory_is_the_cells_own(self):
        self.cell(PRELUDE)
        large = self.cell("x = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ndel x")
        small = self.cell("pass")
        self.assertGreaterEqual(sources(large["usage"]["memory_peak_bytes"])[1], 200 * MIB)
        self.assertLess(sources(small["usage"]["memory_peak_bytes"])[1], 100 * MIB)

    def test_bytes(self):
        self.cell("pass")
        answer = self.cell(WRITES)
        wrote = own(answer)["wrote"]
        self.assertEqual(answer["stdout_bytes"], sum(wrote.values()), wrote)
        self.assertEqual(len(answer["stdout"]), answer["stdout_bytes"])

    def test_what_goes_on_between_cells_is_the_sessions(self):
        self.cell("import os, time\nif os.fork() == 0:\n    end = time.monotonic() + 20\n    while time.process_time() < 0.4 and time.monotonic() < end: pass\n    os._exit(0)\n")
        time.sleep(0.7 * SLOW)
        self.cell("import os\nos.wait()")
        record = self.close()
        for cpu in sources(record["usage"]["cpu_ms"]):
            self.assertGreaterEqual(cpu, 350)


class Commands(Figures):
    """Of `weir exec`: the host's own programs, with what they start."""

    def setUp(self):
        self.state = tempfile.mkdtemp(prefix="weir-test-accounting-")
        self.addCleanup(shutil.rmtree, self.state, ignore_errors=True)

    def exec(self, *command):
        done = weir("exec", "--state-dir", self.state, "--policy", "tool-call", "--", *command)
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = json.loads(weir("audit", "ls", "--state-dir", self.state, "--json").stdout)["runs"]
        record = json.loads(weir("audit", "show", "--state-dir", self.state, "--json", runs[0]["run_id"]).stdout)
        return done, record

    def test_programs_in_order(self):
        done, record = self.exec("/bin/sh", "-c", "/bin/true; /usr/bin/env true; ./no-such-program; exit 0")
        programs = record["execs"]["programs"]
        self.assertEqual([p["path"].rsplit("/", 1)[1] for p in programs], ["sh", "true", "env", "true"])
        self.assertEqual([p["command"] for p in programs], ["sh", "true", "env", "true"])
        self.assertEqual([p["event_seq"] for p in programs], [1, 2, 3, 4])
        self.assertEqual((record["execs"]["count"], record["execs"]["unlisted"]), (4, 0))
        self.assertEqual(programs[2]["host_pid"], programs[3]["host_pid"])

    def test_more_programs_than_are_listed(self):
        _, record = self.exec("/bin/sh", "-c", "i=0; while [ $i -lt 150 ]; do /bin/true; i=$((i+1)); done")
        self.assertEqual((record["execs"]["count"], len(record["execs"]["programs"]), record["execs"]["unlisted"]), (151, 128, 23))

    def test_paths_that_are_no_text(self):
        where = tempfile.mkdtemp(prefix="weir-test-\x1b[31m\u202e<b>-", dir="/tmp")
        self.addCleanup(shutil.rmtree, where)
        shutil.copy("/bin/true", os.path.join(where.encode(), b"\xff\n"))
        os.chmod(where, 0o755)
        _, record = self.exec("/usr/bin/python3", "-I", "-c", "import os, sys\nos.execv(os.fsencode(sys.argv[1]) + b'/\\xff\\n', [b'x'])", where)
        last = record["execs"]["programs"][-1]["path"]
        self.assertTrue(last.isascii() and last.isprintable(), last)
        self.assertIn("<b>", last)

    def test_cpu(self):
        done, record = self.exec("/usr/bin/python3", "-I", "-c", THREADS_AND_CHILDREN % AT_ONCE)
        told = next(json.loads(line) for line in done.stderr.splitlines() if line.startswith(b"{"))
        began = 80 * SLOW  # the interpreter's own start, which it does not count
        for value in sources(record["usage"]["cpu_ms"]):
            self.assertGreaterEqual(value, told["cpu_ms"] - 5)
            self.assertLessEqual(value, told["cpu_ms"] + began)
        value, checked = sources(record["usage"]["cpu_ms"])
        self.assertLessEqual(abs(value - checked), max(0.02 * value, 5) * SLOW)


if __name__ == "__main__":
    unittest.main()
