# SPDX-License-Identifier: Apache-2.0
"""Tasks that are slow to die: a killed one first ends the system call that it is in."""
import os
import threading
import time
import unittest

from lib import SLOW, Service, cgroup_mounts

# Each call reads 2 GB of a file's holes, and looks at no signal until it has: about half a second of CPU time.
SLOW_TO_DIE = (
    "import os, threading, time\n"
    "fd = os.open('/tmp/sparse', os.O_RDWR | os.O_CREAT)\n"
    "os.ftruncate(fd, 1 << 40)\n"
    "buffers = [bytearray(2 << 20)] * 1000\n"
    "def work():\n"
    "    while True: os.preadv(fd, buffers, 0)\n"
    "for _ in range(10): threading.Thread(target=work, daemon=True).start()\n"
    "print('before')\n"
    "time.sleep(60)"
)


class Dying(unittest.TestCase):
    def test_what_dies_is_not_held_to_its_share(self):
        """Else ten threads would share the time of one CPU while they die, and a few hundred would take minutes."""
        with Service(pool=1) as service:
            box, pid = service.warm_box()
            files = [os.path.join(m, "weir", service.name(), box, n) for m in cgroup_mounts() for n in ("cpu.cfs_quota_us", "cpu.max")]
            files = [f for f in files if os.path.exists(f)]
            self.assertTrue(files)
            seen, done = set(), threading.Event()

            def watch():
                while not done.is_set():
                    for f in files:
                        try:
                            with open(f) as text:
                                seen.add(text.read().split()[0])
                        except OSError:
                            return
                    time.sleep(0.002)

            thread = threading.Thread(target=watch)
            thread.start()
            try:
                answer = service.run(SLOW_TO_DIE, timeout_s=1)
            finally:
                done.set()
                thread.join()
            self.assertEqual((answer["sandbox_id"], answer["stdout"], answer["exit_code"]), (box, "before\n", -1))
            self.assertEqual(answer["termination"]["reason"], "timeout")
            self.assertEqual(seen & {"-1", "max"}, seen - {"100000"})
            self.assertTrue(seen & {"-1", "max"}, seen)
            service.wait_warm()


if __name__ == "__main__":
    unittest.main()
