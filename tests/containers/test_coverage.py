# SPDX-License-Identifier: Apache-2.0
"""What can't be held on a real container is said; and it is true that it can't."""
import json
import unittest

from boxes import NONE_GOT_OUT, PORT, attach, until
from internet import CLIENT4
from lib import weir
from test_attach import Case

GATEWAY_MAC = "02:00:00:00:00:01"


class Coverage(Case):
    def names(self, answer):
        return {r["name"] for r in answer["reasons"]}

    def test_raw_frames(self):
        box = self.start("pause", options=["--cap-add", "NET_RAW"])
        a = attach("--policy", "tool-call", "--container", box.id, "--force")
        self.assertEqual(a["coverage"], "partial")
        self.assertIn("net_raw", self.names(a))
        self.refused(box, "sockets")
        # Below the hooks: this is what the reason is about.
        code, out = box.exec("frame", "eth0", GATEWAY_MAC, CLIENT4, self.ways.denied_address, str(PORT), "a-frame")
        self.assertEqual((code, out), (0, "frame ok\n"))
        until(lambda: "a-frame" in self.host.labels_heard(), 3, "the frame arrived")

    def test_no_raw_frames_without_the_capability(self):
        box = self.start("pause")
        a = attach("--policy", "tool-call", "--container", box.id)
        self.assertEqual((a["coverage"], a["reasons"]), ("full", []))
        code, out = box.exec("frame", "eth0", GATEWAY_MAC, CLIENT4, self.ways.denied_address, str(PORT), "no-frame")
        self.assertEqual((code, out), (NONE_GOT_OUT, "frame EPERM\n"))

    def test_privileged(self):
        box = self.start("pause", options=["--privileged"])
        done = weir("attach", "--policy", "tool-call", "--container", box.id, "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["coverage"]), (1, "refused"), done)
        self.assertIn(b"--force", done.stderr)
        self.assertEqual(box.exec("try", "unharmed", *self.ways.denied)[0], 0)
        a = attach("--policy", "tool-call", "--container", box.id, "--force")
        self.assertEqual(a["coverage"], "partial")
        self.assertIn("privileged", self.names(a))
        self.refused(box, "privileged")

    def test_require_full(self):
        box = self.start("pause", options=["--cap-add", "NET_RAW"])
        done = weir("attach", "--policy", "tool-call", "--container", box.id, "--require-full")
        self.assertEqual(done.returncode, 1, done)
        code, out = box.exec("try", "not-attached", *self.ways.denied)
        self.assertEqual(code, 0, out)

    def test_limits(self):
        """Limits of the container that are as tight as the policy's are the policy's."""
        policy = self.host.put("limited.json", {"name": "limited", "default": "deny", "limits": {"memory_bytes": 128 << 20, "processes": 64}})
        loose, tight = self.start("pause"), self.start("pause", options=["--memory", "64m", "--memory-swap", "64m", "--pids-limit", "50"])
        a = attach("--policy", policy, "--container", loose.id)
        self.assertEqual(a["coverage"], "partial")
        self.assertIn("limits", self.names(a))
        b = attach("--policy", policy, "--container", tight.id)
        self.assertNotIn("limits", self.names(b))


if __name__ == "__main__":
    unittest.main()
