# SPDX-License-Identifier: Apache-2.0
"""What an attached container used, by both sources, against what its own program measures."""
import json
import os
import unittest

import boxes
from boxes import attach, detach, shared, until
from lib import SLOW, TOKEN, Service

# Burns when it is told to, by a file, and says what that took: its threads, a child, and memory that it touches.
WORK = """
import json, os, resource, subprocess, threading, time

def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass

def used():
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))) * 1000

while not os.path.exists("/tell/go"):
    time.sleep(0.01)
before = used()
threads = [threading.Thread(target=burn, args=(0.1,)) for _ in range(2)]
for t in threads: t.start()
for t in threads: t.join()
subprocess.run(["/usr/bin/true"])
if os.fork() == 0:
    burn(0.1)
    os._exit(0)
os.wait()
x = bytearray(64 << 20)
for i in range(0, len(x), 4096): x[i] = 1
with open("/tell/said.new", "w") as f:
    json.dump({"cpu_ms": used() - before, "maxrss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}, f)
os.rename("/tell/said.new", "/tell/said")
time.sleep(1000)
"""


class Use(unittest.TestCase):
    def setUp(self):
        self.host = shared()
        self.addCleanup(boxes.detach_all_of, self.host)

    def worker(self):
        """A container that works, and the directory in which it is told to."""
        name, tell = self.host.name(), self.host.dir + "/tell"
        os.mkdir(tell)
        mounts = [o for d in ("/usr", "/lib", "/lib64") if os.path.exists(d) for o in ("-v", "%s:%s:ro" % (os.path.realpath(d), d))]
        self.host.podman("run", "-d", *self.host.options(name), *mounts, "-v", tell + ":/tell", "--rootfs", self.host.root, "/usr/bin/python3", "-I", "-c", WORK)
        self.addCleanup(self.host.podman_done, "rm", "-f", "-t", "0", name)
        return boxes.Container(self.host, name), tell

    def record(self, service, a):
        answer = service.request("GET", "/v1/runs/%s.1/audit" % a["id"], token=TOKEN)
        return answer.json() if answer.status == 200 else {}

    def test_a_container(self):
        box, tell = self.worker()
        service = Service("--policy-only")
        self.addCleanup(service.stop)
        a = attach("--policy", "tool-call", "--container", box.id)
        until(lambda: self.record(service, a), 10, "its record begins")
        open(tell + "/go", "w").close()
        until(lambda: os.path.exists(tell + "/said"), 30, "it has worked")
        with open(tell + "/said") as f:
            said = json.load(f)
        detach("--container", box.id)
        until(lambda: self.record(service, a).get("termination"), 10, "its record ends")
        record = self.record(service, a)
        cpu = record["usage"]["cpu_ms"]
        self.assertEqual((cpu["source"], cpu["checked"]["source"]), ("cgroup2 cpu.stat", "sched_process_exit"))
        # While it waited it looked for the file a hundred times a second, which is in the window and not in what it says.
        for value in (cpu["value"], cpu["checked"]["value"]):
            self.assertGreaterEqual(value, said["cpu_ms"] - max(0.02 * said["cpu_ms"], 5) * SLOW)
            self.assertLessEqual(value, said["cpu_ms"] + 30 + max(0.02 * said["cpu_ms"], 5) * SLOW)
        self.assertLessEqual(abs(cpu["value"] - cpu["checked"]["value"]), max(0.02 * cpu["value"], 5) * SLOW)
        memory = record["usage"]["memory_peak_bytes"]["checked"]
        self.assertLessEqual(abs(memory["value"] - said["maxrss"]), 0.02 * said["maxrss"])
        self.assertIn("/usr/bin/true", [p["path"] for p in record["execs"]["programs"]])
        self.assertGreaterEqual(record["processes"], 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
