# SPDX-License-Identifier: Apache-2.0
"""Reading the record costs the auditor, so who reads much of its own must leave others, and reviewers, their share."""
import threading
import time
import unittest

from clients import mint
from lib import Service

FLOOD = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(1, 1100):
    try: s.sendto(b"x", ("10.9.8.7", port))
    except OSError: pass
"""


class Share(unittest.TestCase):
    def setUp(self):
        self.service = Service()
        self.addCleanup(self.service.stop)
        self.greedy, self.other = (mint(self.service, name) for name in ("greedy", "other"))
        self.reviewer = mint(self.service, "checks", "--scope", "reviewer")

    def run_as(self, token, code):
        answer = self.service.request("POST", "/v1/execute", {"code": code}, token=token)
        self.assertEqual(answer.status, 200, answer)
        return "/v1/runs/%s/audit" % answer.json()["run_id"]

    def test_one_that_reads_without_end(self):
        heavy, light = self.run_as(self.greedy, FLOOD), self.run_as(self.other, "1")
        over, got = threading.Event(), []

        def read():
            while not over.is_set():
                got.append(self.service.request("GET", heavy, token=self.greedy).status)

        threads = [threading.Thread(target=read) for _ in range(10)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(0.2)
            others = [self.service.request("GET", light, token=self.other).status for _ in range(15)]
            reviews = [self.service.request("GET", "/v1/audit?limit=1", token=self.reviewer).status for _ in range(15)]
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertEqual((set(others), set(reviews)), ({200}, {200}))
        self.assertEqual(set(got), {200, 429})  # it was refused, and served


if __name__ == "__main__":
    unittest.main()
