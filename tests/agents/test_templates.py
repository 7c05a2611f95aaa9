# SPDX-License-Identifier: Apache-2.0
"""What the supervisor keeps for agents: sandboxes ready ahead, and for how long; what a registry that changes does to them; how
the import of modules may go wrong; and whose record what they try meanwhile is in."""
import concurrent.futures
import hashlib
import json
import os
import re
import signal
import time
import unittest

from fixture import Agents, run_weir
from footprint import map_entries, parent, pids, uid_of
from lib import SLOW, WEIR_HOOKS, cgroup_mounts

READY = 2  # kept for an agent that is being called
LOADING = 4  # of one agent that are being made ready at once

# Nobody's: a documentation address, which the policy of tools denies.
TRIES = "import socket\ntry: socket.create_connection(('192.0.2.7', %d), 1)\nexcept OSError: pass\n"


def tools_of(service):
    """Names of the sandboxes of tools -> pids. Each has a cgroup beside its own for what carries its packets."""
    found = service.sandboxes()
    return {name: pids for name, pids in found.items() if name + ".out" in found and pids}


def resting(service):
    """Those of them that wait for a call: imported, and the kernel says that nothing in them moves."""
    found = []
    for name in tools_of(service):
        try:
            with open(os.path.join(service.cgroup(), name, "cgroup.events")) as f:
                found += [name] if "frozen 1" in f.read() else []
        except OSError:
            pass  # gone while we looked
    return found


def carriers_of(service):
    return {name: pids for name, pids in service.sandboxes().items() if name.endswith(".out")}


def weights_of(service):
    """Of the CPU, as a part of what a process has that nobody weighs."""
    found = []
    for mount in cgroup_mounts():
        for name in tools_of(service):
            for file, whole in (("cpu.weight", 100), ("cpu.shares", 1024)):
                try:
                    with open(os.path.join(mount, "weir", service.name(), name, file)) as f:
                        found.append(int(f.read()) / whole)
                except OSError:
                    pass  # kept in the other hierarchy, or gone
    return found


def stages_of(service):
    """Mounts of the supervisor's own: one tmpfs for each image that it makes sandboxes of."""
    with open("/proc/%d/mountinfo" % service.process.pid) as f:
        return [m for line in f for m in [line.split()[4]] if re.search(r"/stage\d+$", m)]


def until(look, want, seconds=10):
    """The last thing seen, which is `want` unless time was up; `want` may be a function."""
    deadline = time.monotonic() + seconds * SLOW
    while True:
        seen = look()
        if (want(seen) if callable(want) else seen == want) or time.monotonic() > deadline:
            return seen
        time.sleep(0.02)


def agents(files, *options, **more):
    return Agents(files, options=("--pool", "1") + options, binary=WEIR_HOOKS, **more)


def stages(answer):
    return answer["usage"]["stages"]


class KeptReady(unittest.TestCase):
    """One service; its agent is called, changed, left alone."""

    @classmethod
    def setUpClass(cls):
        cls.agents = agents({"app.py": "import os\ndef which(): return 1\ndef pid(): return os.getpid()\n"}, "--test-agent-idle", "3")
        cls.service = cls.agents.service

    @classmethod
    def tearDownClass(cls):
        cls.agents.stop()

    def wait_ready(self, count=READY):
        seen = until(lambda: len(tools_of(self.service)), count)
        self.assertEqual(seen, count, self.service.log_text())

    def test_1_nothing_before_the_first_call(self):
        self.assertEqual((tools_of(self.service), len(stages_of(self.service))), ({}, 1))
        first = self.agents.call("which")
        self.assertGreater(stages(first)["waited_ms"], 0)
        self.assertGreater(stages(first)["build_ms"], 0)
        self.assertGreater(stages(first)["load_ms"], 0)
        self.wait_ready()
        self.assertEqual(len(stages_of(self.service)), 2)

    def test_2_ready_made_are_handed_out_at_once(self):
        self.agents.call("which")
        before = set(until(lambda: resting(self.service), lambda found: len(found) == READY))
        for _ in range(READY):
            answer = self.agents.call("which")
            self.assertIn(answer["sandbox_id"], before)
            self.assertEqual(stages(answer)["waited_ms"], 0)
            before.discard(answer["sandbox_id"])  # single use
        # The pool that answers of GET /v1/pool speak of is that of snippets.
        pool = self.service.wait_warm()
        self.assertEqual((pool["size"], pool["warm"], pool["served"]), (1, 1, 0))

    def test_3_a_record_names_agent_and_image(self):
        answer = self.agents.call("which")
        with_agent = self.service.audit(answer["run_id"])
        self.assertEqual((with_agent["agent"], with_agent["project"], with_agent["policy"]), ("weather", "demo", "tool-call"))
        self.assertRegex(with_agent["image"], r"^sha256:[0-9a-f]{64}$")
        self.assertEqual((with_agent["audit_hash"], with_agent["chain"]["hash"]), (answer["audit_hash"],) * 2)
        self.assertEqual(with_agent["content"]["code"]["sha256"], hashlib.sha256(b"which").hexdigest())
        snippet = self.service.run("print(1)")
        self.assertNotIn("agent", self.service.audit(snippet["run_id"]))

    def test_4_another_image_is_used_at_once(self):
        self.agents.call("which")
        self.wait_ready()
        old = set(tools_of(self.service))
        self.agents.add("weather", {"app.py": "def which(): return 2\n"})
        self.assertEqual(self.agents.result("which"), 2)
        # Nothing of the old one is left, whether anybody calls or not.
        self.assertEqual(until(lambda: old & set(tools_of(self.service)), set()), set())
        self.agents.add("weather", {"app.py": "def which(): return 3\n"})
        new = set(tools_of(self.service))
        self.assertEqual(until(lambda: new & set(tools_of(self.service)), set(), 5), set(), "found out without a call")
        self.assertEqual(self.agents.result("which"), 3)
        self.assertEqual(until(lambda: len(stages_of(self.service)), 2), 2)

    def test_5_a_removed_agent_is_gone(self):
        self.agents.add("short", {"app.py": "def which(): return 4\n"})
        self.assertEqual(self.agents.result("which", agent="short"), 4)
        run_weir("agent", "rm", "short", "--project", "demo", state=self.agents.state)
        answer = self.agents.request("which", agent="short")
        self.assertIn(answer.status, (401, 403, 404), answer)
        self.assertLessEqual(until(lambda: len(stages_of(self.service)), lambda n: n <= 2), 2)

    def test_6_an_idle_agent_gives_its_sandboxes_back(self):
        self.agents.call("which")
        self.wait_ready()
        self.assertEqual(until(lambda: tools_of(self.service), {}), {})
        self.assertEqual(until(lambda: carriers_of(self.service), {}), {})
        self.assertEqual(until(lambda: len(stages_of(self.service)), 1), 1)
        # And is there again when it is called.
        self.agents.call("which")
        self.wait_ready()

    def test_7_what_is_stopped_leaves_nothing(self):
        self.agents.call("which")
        self.wait_ready()
        name, pids = self.service.name(), sum(self.service.sandboxes().values(), [])
        self.assertEqual(self.service.stop(), 0, getattr(self.service, "last_log", ""))
        self.assertEqual([p for p in pids if os.path.exists("/proc/%d" % p)], [])
        self.assertFalse(os.path.exists("/run/weir/" + name))


class Loading(unittest.TestCase):
    """Modules that are slow, or fail, or end their interpreter. None of it is anybody else's trouble."""

    FILES = {
        "good.py": "def ok(): return 'ok'\n",
        "raises.py": "1 / 0\n",
        "leaves.py": "import os\nos._exit(3)\n",
        "crashes.py": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
        "eats.py": "x = bytearray(3 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1\n",
        "hangs.py": "import time\ntime.sleep(1000)\n",
        "forges.py": "import os, time\nfor fd in range(3, 10000):\n    try: os.write(fd, b'R' + bytes(11))\n    except OSError: pass\ntime.sleep(1)\n",
        "slow.py": "import time\ntime.sleep(0.5)\ndef ok(): return 'ok'\n",
    }

    @classmethod
    def setUpClass(cls):
        cls.agents = agents(cls.FILES, "--test-call-ready", "3", tools=["good"])
        cls.service = cls.agents.service
        for name in cls.FILES:
            cls.agents.register(name[:-3], "weather", [name[:-3]])

    @classmethod
    def tearDownClass(cls):
        cls.agents.stop()

    def failure(self, agent):
        answer = self.agents.request("ok", agent=agent)
        self.assertEqual(answer.status, 500, answer)
        error = answer.json()["error"]
        self.assertIs(error["ran"], False)
        return error["message"]

    def test_how_main_ended_is_said(self):
        self.assertIn("importing leaves: the interpreter ended with exit code 3", self.failure("leaves"))
        self.assertIn("importing crashes: the interpreter was ended by signal SIGSEGV", self.failure("crashes"))
        self.assertIn("importing eats: memory limit of 1024 MiB exceeded", self.failure("eats"))

    def test_nothing_is_made_ahead_of_what_cannot_be_loaded(self):
        for agent in ("raises", "leaves"):
            with self.subTest(agent):
                self.agents.request("ok", agent=agent)
                time.sleep(1.0)
                log = self.service.log_text()
                self.agents.request("ok", agent=agent)
                time.sleep(0.5)
                self.assertLessEqual(self.service.log_text().count("no sandbox:") - log.count("no sandbox:"), 1)

    def test_a_failed_import_is_the_tools_error(self):
        answer = self.agents.call("ok", agent="raises")
        self.assertEqual(answer["error"]["type"], "ToolLoadError", answer)
        self.assertIn("ZeroDivisionError", answer["error"]["message"])

    def test_too_slow_names_what_took_so_long(self):
        began = time.monotonic()
        answer = self.agents.request("ok", agent="hangs")
        self.assertEqual(answer.status, 503, answer)
        self.assertRegex(answer.json()["error"]["message"], r"importing hangs: [34] s")
        self.assertTrue(answer.headers.get("Retry-After"))
        self.assertLess(time.monotonic() - began, 6 * SLOW)

    def test_words_that_are_not_its_own_end_it(self):
        self.assertIn("sent what no harness sends", self.failure("forges"))
        self.assertEqual(self.agents.result("good:ok", agent="good"), "ok")

    def test_no_more_than_so_many_at_once(self):
        most = 0
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            jobs = [pool.submit(self.agents.result, "ok", None, "slow") for _ in range(10)]
            while not all(job.done() for job in jobs):
                most = max(most, len(tools_of(self.service)))
                # A snippet does not wait for any of them.
                began = time.monotonic()
                self.service.run("print(1)")
                self.assertLess(time.monotonic() - began, 2 * SLOW)
            self.assertEqual([job.result() for job in jobs], ["ok"] * 10)
        self.assertGreater(most, 2)
        # Those that run and those that end are beside them.
        self.assertLessEqual(most, 2 * LOADING)

    def test_an_interpreter_that_hangs_holds_up_nobody_else(self):
        """The image's own start-up code runs before the harness: as many of them as may be built at once, and nobody waits."""
        site = self.agents.call("good:ok", agent="good")["python"].rsplit(".", 1)[0]
        files = {"hung.py": "def ok(): return 1\n"}
        for place in ("/usr/lib/python%s/sitecustomize.py" % site, "/usr/local/lib/python%s/sitecustomize.py" % site, "/usr/lib/python3/dist-packages/sitecustomize.py"):
            files[place] = "import sys, time\nif str(sys._xoptions.get('weir')).startswith('call'): time.sleep(1000)\n"
        self.agents.add("hung", files, tools=["hung"])
        with concurrent.futures.ThreadPoolExecutor(LOADING) as pool:
            jobs = [pool.submit(self.agents.request, "ok", None, "hung") for _ in range(LOADING)]
            until(lambda: len(tools_of(self.service)), lambda n: n >= LOADING)
            for _ in range(3):
                self.assertEqual(self.service.run("print(1)")["stdout"], "1\n")
                self.service.wait_warm()
            self.assertEqual(self.agents.result("good:ok", agent="good"), "ok")
            messages = [job.result().json()["error"]["message"] for job in jobs]
        for message in messages:
            self.assertRegex(message, r"starting the interpreter: [34] s")


class Accounts(unittest.TestCase):
    """What modules try while they are imported is in the record of the run that gets the sandbox, or in one of its own."""

    @classmethod
    def setUpClass(cls):
        cls.agents = agents({"app.py": TRIES % 7001 + "def ok(): return 1\ndef more():\n" + "".join("    %s\n" % line for line in (TRIES % 7002).splitlines())})
        cls.service = cls.agents.service

    @classmethod
    def tearDownClass(cls):
        cls.agents.stop()

    def ports(self, run):
        return {event["port"]: event["count"] for event in run["events"]}

    def test_import_and_call_are_one_record(self):
        answer = self.agents.call("more")
        self.assertEqual((answer["egress"]["attempts"], answer["egress"]["denied"], answer["egress"]["lost"]), (2, 2, 0), answer["egress"])
        run = self.service.audit(answer["run_id"])
        self.assertEqual(self.ports(run), {7001: 1, 7002: 1})
        self.assertEqual((run["state"], run["egress"]["exact"]), ("ended", True))
        # The CPU time of the import is not the call's.
        self.assertLess(answer["usage"]["cpu_ms"]["value"], stages(answer)["load_ms"] + 40)

    def test_each_has_its_own(self):
        answers = [self.agents.call("ok") for _ in range(4)]
        for answer in answers:
            self.assertEqual(self.ports(self.service.audit(answer["run_id"])), {7001: 1})
            self.assertEqual(answer["egress"]["attempts"], 1)

    def test_what_nobody_got_is_recorded(self):
        self.agents.call("ok")
        waiting = until(lambda: resting(self.service), lambda found: len(found) == READY)
        # It is another agent now: those that wait are let go.
        self.agents.register("weather", "weather", ["app", "json"])
        self.assertEqual(until(lambda: set(waiting) & set(tools_of(self.service)), set()), set())
        for sandbox in waiting:
            run = until(lambda: self.service.audit(sandbox), lambda r: r["state"] == "ended")
            self.assertEqual((run["state"], run["ran"], run["agent"], run["project"]), ("ended", False, "weather", "demo"))
            self.assertEqual(self.ports(run), {7001: 1})
            self.assertEqual((run["egress"]["attempts"], run["egress"]["denied"], run["egress"]["exact"]), (1, 1, True))
            self.assertEqual(run["termination"]["detail"], "let go before it was called")
        # The kernel keeps no list of what is over.
        self.assertEqual(map_entries(self.service.name(), "flows"), 0)


class Trouble(unittest.TestCase):
    """Modules that go on after they were imported, a carrier that dies, a gateway that hangs, a tool that lies about itself."""

    APP = """
import os, socket, struct, threading, time
count, gate = 0, None
for name in os.listdir("/proc/self/fd"):
    try:
        kept = socket.socket(fileno=os.dup(int(name)))
        gate = kept if kept.type == socket.SOCK_SEQPACKET else gate
    except OSError:
        pass

def tick():
    global count
    while True:
        count += 1

threading.Thread(target=tick, daemon=True).start()

def ticks():
    before = count
    time.sleep(0.2)
    return [before, count]

def say(word):
    gate.send(struct.pack("<IiI", ord(word), 5 if word in "XE" else 0, 0))
    time.sleep(5)
    return "went on"
"""

    @classmethod
    def setUpClass(cls):
        cls.agents = agents({"app.py": cls.APP})
        cls.service = cls.agents.service

    @classmethod
    def tearDownClass(cls):
        cls.agents.stop()

    def test_nothing_moves_until_somebody_calls(self):
        self.agents.call("ticks")
        self.assertEqual(until(lambda: len(resting(self.service)), READY), READY)
        time.sleep(1)
        answer = self.agents.call("ticks")
        self.assertEqual(stages(answer)["waited_ms"], 0)
        before, after = answer["result"]
        self.assertGreater(after, before)  # it goes on, and ..
        # .. has not been at it all the time: a second of it is many times what it did until it was imported.
        self.assertLess(before, 5 * (after - before) + 1)

    def test_a_call_that_ran_is_never_said_not_to_have(self):
        for word in "XERLPD":
            with self.subTest(word):
                answer = self.agents.request("say", {"word": word})
                self.assertEqual(answer.status, 200, answer)
                found = answer.json()
                self.assertEqual((found["termination"]["reason"], found["termination"]["detail"]), ("signal", "its interpreter said what no harness says"))
                self.assertIs(self.service.audit(found["run_id"])["ran"], True)

    def test_a_sandbox_without_its_carrier_is_not_handed_out(self):
        self.agents.call("ticks")
        until(lambda: len(resting(self.service)), READY)
        cut = set(tools_of(self.service))
        for pid in sum(carriers_of(self.service).values(), []):
            os.kill(pid, signal.SIGKILL)
        until(lambda: sum(carriers_of(self.service).values(), []), [])
        for _ in range(READY):
            self.assertNotIn(self.agents.call("ticks")["sandbox_id"], cut)

    def test_a_gateway_that_hangs_stops_no_snippet(self):
        self.agents.call("ticks")
        gateway = [p for p in pids() if parent(p) == self.service.process.pid and uid_of(p) == 0]
        self.assertEqual(len(gateway), 1)
        os.kill(gateway[0], signal.SIGSTOP)
        try:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                jobs = [pool.submit(self.agents.request, "ticks") for _ in range(8)]
                until(lambda: len(carriers_of(self.service)), lambda n: n >= LOADING)
                for _ in range(4):
                    self.assertEqual(self.service.run("print(1)")["stdout"], "1\n")
                os.kill(gateway[0], signal.SIGCONT)
                self.assertEqual([job.result().status for job in jobs], [200] * 8)
        finally:
            os.kill(gateway[0], signal.SIGCONT)


class Missing(unittest.TestCase):
    """What is not there is said with the next step. Each test has an agent of its own, of one image."""

    @classmethod
    def setUpClass(cls):
        cls.agents = agents({"app.py": "def ok(): return 1\n"})
        cls.images = cls.agents.state + "/images"
        cls.image = cls.images + "/" + next(n for n in os.listdir(cls.images) if len(n) == 64)

    @classmethod
    def tearDownClass(cls):
        cls.agents.stop()

    def agent(self, name):
        self.agents.register(name, "weather", ["app"])
        return lambda: self.agents.request("ok", agent=name)

    def test_an_image_that_was_taken_away(self):
        call = self.agent("away")
        os.rename(self.image, self.images + "/away")
        answer = call()
        self.assertEqual(answer.status, 404, answer)
        self.assertIn("weir image import", answer.body.decode())
        os.rename(self.images + "/away", self.image)
        self.assertEqual(call().status, 200)
        # Those that wait were made before it went; whoever calls must not learn a path of the host's either.
        os.rename(self.image, self.images + "/away")
        time.sleep(0.3)
        answer = call()
        self.assertEqual(answer.status, 404, answer)
        self.assertNotIn(self.images, answer.body.decode())
        os.rename(self.images + "/away", self.image)
        self.assertEqual(until(lambda: call().status, 200), 200)

    def test_an_image_that_does_not_work_is_not_tried_for_each_who_calls(self):
        call = self.agent("broken")
        places = (self.image + os.path.realpath("/usr/bin/python3"), self.image + "/usr/bin/python3")
        python = next(p for p in places if os.path.exists(p))
        said = self.agents.service.log_text()
        os.rename(python, python + ".away")
        began = time.monotonic()
        for _ in range(20):
            self.assertEqual(call().status, 500)
        said = self.agents.service.log_text()[len(said):]
        tries = said.count("agent broken of project demo: ") + said.count("building it anew")
        self.assertLessEqual(tries, 2 + (time.monotonic() - began) / 0.25)
        os.rename(python + ".away", python)
        self.assertEqual(until(lambda: call().status, 200), 200)

    def test_a_registry_that_cannot_be_read_changes_nothing(self):
        call, path = self.agent("unread"), self.agents.state + "/agents.json"
        self.assertEqual(call().status, 200)
        with open(path) as f:
            good = f.read()
        with open(path, "w") as f:
            f.write("{" + good)
        self.assertEqual(call().status, 200)
        self.assertIn("the agents stay what they were", self.agents.service.log_text())
        with open(path, "w") as f:
            f.write(good)
        self.assertEqual(call().status, 200)
        self.assertEqual(until(lambda: self.agent("new")().status, 200), 200)  # it is tried again in a while


class Places(unittest.TestCase):
    """So many agents have sandboxes at once; one more takes the place of the one that was called longest ago."""

    def test_the_one_called_longest_ago_gives_its_place(self):
        with agents({"app.py": "import time\ndef ok(): return 1\ndef rest(s): time.sleep(s)\n"}, "--test-agents-called", "2") as a:
            for agent in ("one", "two", "three"):
                a.register(agent, "weather", ["app"])
            for agent in ("one", "two", "one"):
                self.assertEqual(a.result("ok", agent=agent), 1)
            self.assertEqual(until(lambda: len(tools_of(a.service)), 2 * READY), 2 * READY)
            self.assertEqual(len(stages_of(a.service)), 3)
            self.assertEqual(a.result("ok", agent="three"), 1)
            self.assertEqual(until(lambda: len(stages_of(a.service)), 3), 3)
            self.assertEqual(until(lambda: len(tools_of(a.service)), 2 * READY), 2 * READY)
            # While those that have the places are at work, nobody takes them.
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                busy = [pool.submit(a.call, "rest", {"s": 2}, agent) for agent in ("one", "three", "one")]
                # Three of a project weigh together what two of another's would, whichever agents' they are.
                self.assertEqual(until(lambda: weights_of(a.service).count(0.5), 3), 3, weights_of(a.service))
                answer = a.request("ok", agent="two")
                self.assertEqual(answer.status, 503, answer)
                for job in busy:
                    self.assertEqual(job.result()["termination"]["reason"], "exit")
            self.assertEqual(until(lambda: a.request("ok", agent="two").status, 200), 200)


class Tightened(unittest.TestCase):
    """A policy of tools may ask for less than a tool's sandbox has, not for more."""

    def policy(self, path, **limits):
        with open(os.path.join(os.path.dirname(__file__), "..", "..", "policies", "tool-call.json")) as f:
            policy = json.load(f)
        policy["limits"] = limits
        with open(path, "w") as f:
            json.dump(policy, f)
        return path

    def test_limits_and_their_reload(self):
        code = "import resource\ndef files(): return resource.getrlimit(resource.RLIMIT_NOFILE)[1]\ndef eat(n):\n    return len(bytearray(n << 20))\n"
        path = "/tmp/weir-test-tools-%d.json" % os.getpid()
        try:
            self.policy(path, open_files=300, memory_bytes=200 << 20)
            config = path + ".config"
            with open(config, "w") as f:
                json.dump({"tool_calls": {"policy": path}}, f)
            with agents({"app.py": code}, "--config", config) as a:
                self.assertEqual(a.result("files"), 300)
                self.assertEqual(a.call("eat", {"n": 400})["termination"]["reason"], "memory")
                self.assertEqual(a.service.run("import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[1])")["stdout"], "1024\n")
                until(lambda: len(tools_of(a.service)), READY)
                # Over what a snippet has, below what a tool has.
                self.policy(path, open_files=2000)
                a.service.process.send_signal(signal.SIGHUP)
                until(lambda: "made anew" in a.service.log_text(), True)
                self.assertEqual(a.result("files"), 2000)
                self.assertEqual(a.result("eat", {"n": 400}), 400 << 20)
                # More than a tool has: refused, and what was in force stays.
                self.policy(path, open_files=5000)
                a.service.process.send_signal(signal.SIGHUP)
                until(lambda: "was not replaced" in a.service.log_text(), True)
                self.assertEqual(a.result("files"), 2000)
        finally:
            for name in (path, path + ".config"):
                if os.path.exists(name):
                    os.unlink(name)


if __name__ == "__main__":
    unittest.main()
