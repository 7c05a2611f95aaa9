# SPDX-License-Identifier: Apache-2.0
"""One project floods with 200 requests while another sends one: that one hardly notices."""
import statistics
import time
import unittest

from clients import execute, mint
from lib import SLOW, Service

FLOOD = 200
SAMPLES = 12  # of the single request, idle and beside the flood
# What the promise is made of: at most twice an idle wait. What is added is the measure's own grain. A wait of a tenth of a
# millisecond is a measure of the moment's scheduling; the longest that the supervisor does in one piece is one clone of a
# sandbox, and the longest that another process keeps it from a CPU is a slice of the scheduler's: milliseconds both, and on a
# busy machine several of them. In one line for all it would be the flood's own length: hundreds of milliseconds.
TIMES = 2
WAIT_GRAIN_MS = 8 * SLOW
WHOLE_GRAIN_MS = 40 * SLOW


class Fair(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(pool=3)
        try:
            cls.flooder, cls.single = mint(cls.service, "flooder"), mint(cls.service, "single")
            cls.service.wait_warm()
            for _ in range(3):
                cls.sample()
        except BaseException:
            cls.service.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    @classmethod
    def sample(cls):
        """(wait for a sandbox, from the request to its answer) of a single request, in ms."""
        began = time.monotonic()
        answer = execute(cls.service, "print(6 * 7)", cls.single).answer()
        whole = (time.monotonic() - began) * 1000
        assert answer.status == 200 and answer.json()["stdout"] == "42\n", answer
        return answer.json()["usage"]["stages"]["queue_ms"], whole

    def beside_a_flood(self, code, flood):
        """Samples taken while at least a few of the flood's requests still wait, and the flood's answers."""
        samples, answers = [], []
        while len(samples) < SAMPLES:
            posts = [execute(self.service, code, self.flooder) for _ in range(flood)]
            while self.service.pool()["waiting"] > 4 and len(samples) < SAMPLES:
                samples.append(self.sample())
                time.sleep(0.08)
            answers += [post.answer() for post in posts]
        return samples, answers

    def compare(self, code, flood):
        """What else the machine does only adds to what is measured: so one good look of three will do, and a bad queue has none."""
        for _ in range(3):
            wait, whole = self.measure(code, flood)
            good = wait[1] <= TIMES * wait[0] + WAIT_GRAIN_MS and whole[1] <= TIMES * whole[0] + WHOLE_GRAIN_MS
            if good:
                return
        self.assertLessEqual(wait[1], TIMES * wait[0] + WAIT_GRAIN_MS)
        self.assertLessEqual(whole[1], TIMES * whole[0] + WHOLE_GRAIN_MS)

    def measure(self, code, flood):
        """((wait idle, beside a flood), (whole request idle, beside a flood)), medians in ms."""
        idle = []
        for _ in range(SAMPLES):
            self.service.wait_warm()
            time.sleep(0.03)
            idle.append(self.sample())
        beside, answers = self.beside_a_flood(code, flood)
        self.assertEqual({a.status for a in answers}, {200})
        self.assertEqual({a.json()["stdout"] for a in answers}, {"flood\n"})
        wait, whole = ([statistics.median(s[i] for s in samples) for samples in (idle, beside)] for i in (0, 1))
        print("          wait for a sandbox: %.2f ms idle, %.2f beside a flood of %d; whole request: %.1f and %.1f ms" % (*wait, flood, *whole), flush=True)
        return wait, whole

    def test_beside_a_flood_of_short_runs(self):
        self.compare("print('flood')", FLOOD)

    def test_beside_a_flood_of_work(self):
        """As many at once as a project may have, each of which would take a CPU for itself: the single one has its share of it."""
        self.compare("for i in range(1000000): pass\nprint('flood')", 100)


if __name__ == "__main__":
    unittest.main()
