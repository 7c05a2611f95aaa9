# SPDX-License-Identifier: Apache-2.0
"""What is born below a carried parent while no Weir process lives."""
import os
import time
import unittest

from boxes import NONE_GOT_OUT, attach, detach, end_at_once, links, links_of, status
from lib import Service, cgroup2_mount
from test_attach import Case


class Parent(Case):
    def setUp(self):
        super().setUp()
        # As an operator's slice of containers: podman is told to make them there.
        self.parent = "%s/%s" % (self.host.parent, self.host.name())
        self.directory = cgroup2_mount() + self.parent
        os.makedirs(self.directory)

    def born(self, *command):
        return self.start(*command, options=["--cgroup-parent", self.parent])

    def test_unknown_is_denied(self):
        covered = self.born("talk", *self.ways.denied, *self.ways.allowed)
        self.heard.moving(*self.ways.denied, *self.ways.allowed)
        attach("--policy", "tool-call", "--container", covered.id)
        since = time.monotonic()
        service = Service("--policy-only")
        self.addCleanup(service.stop)
        p = attach("--parent", self.directory, "--unknown", "deny")
        self.assertEqual((p["state"], p["unknown"], p["policy"]), ("in force", "deny", None))
        end_at_once(service)

        # One that was attached goes on as it was; one that is born now gets nowhere, be it allowed or not to others.
        self.holds(since)
        others = self.host.ways()
        unknown = self.born("talk", *others.denied, *others.allowed)
        self.heard.still(*others.denied, *others.allowed)
        code, out = unknown.exec("try", "unknown", *others.denied, *others.allowed)
        self.assertEqual(code, NONE_GOT_OUT, out)
        self.refused(covered, "covered")
        self.assertGreater(status(p["id"])[p["id"]]["unknown_counters"]["denied"], 0)

        # The layer away: the same container talks.
        kernel = links_of(p["id"])
        detach("--parent", self.directory)
        self.heard.moving(*others.denied, *others.allowed)
        self.assertEqual(kernel & links(), set())
        self.holds(since)

    def test_unknown_is_recorded_and_passes(self):
        p = attach("--parent", self.directory, "--unknown", "allow")
        box = self.born("talk", *self.ways.denied, *self.ways.allowed)
        self.heard.moving(*self.ways.denied, *self.ways.allowed)
        counters = status(p["id"])[p["id"]]["unknown_counters"]
        self.assertGreater(counters["would_deny"], 0)
        self.assertEqual(counters["denied"], 0)
        # A policy of its own counts more than what is said of the unknown.
        attach("--policy", "tool-call", "--container", box.id)
        self.heard.still(*self.ways.denied)
        self.heard.moving(*self.ways.allowed)

    def test_a_policy_lets_an_unknown_one_out(self):
        """Denied as unknown, then attached: what its policy allows gets through from then on."""
        attach("--parent", self.directory, "--unknown", "deny")
        box = self.born("talk", *self.ways.denied, *self.ways.allowed)
        self.heard.still(*self.ways.denied, *self.ways.allowed)
        attach("--policy", "tool-call", "--container", box.id)
        self.heard.moving(*self.ways.allowed)
        self.heard.still(*self.ways.denied)
        # And without it, it is unknown again.
        detach("--container", box.id)
        self.heard.still(*self.ways.denied, *self.ways.allowed)

    def test_podman_stays_in_business(self):
        """Start, exec, restart and removal work below a parent that denies the unknown."""
        attach("--parent", self.directory, "--unknown", "deny")
        box = self.born("pause")
        self.host.podman("restart", "-t", "1", box.name)
        self.assertEqual(box.look().exec("try", "restarted", *self.ways.allowed)[0], NONE_GOT_OUT)
        box.remove()
        self.assertFalse(os.path.exists(box.cgroup))


if __name__ == "__main__":
    unittest.main()
