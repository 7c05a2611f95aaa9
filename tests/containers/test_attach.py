# SPDX-License-Identifier: Apache-2.0
"""A policy on a container and on a pod that run already, while they talk."""
import os
import shutil
import time
import unittest

import boxes
from boxes import NONE_GOT_OUT, attach, detach, end_at_once, links, links_of, shared, status, traces, until, weir_json
from lib import SLOW, Service

GAP = 0.5  # seconds of silence on a way that says something every 20 ms: more is a gap


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.host = shared()

    def setUp(self):
        self.ways = self.host.ways()
        self.heard = self.host.heard
        self.addCleanup(boxes.detach_all_of, self.host)

    def start(self, *command, **kw):
        box = self.host.run(*command, **kw)
        self.addCleanup(self.host.podman_done, "rm", "-f", "-t", "0", box.name)
        return box

    def talker(self, **kw):
        """A container that talks over every way there is, and is heard."""
        box = self.start("talk", *self.ways.denied, *self.ways.allowed, **kw)
        self.heard.moving(*self.ways.denied, *self.ways.allowed)
        return box

    def holds(self, since, denied=None):
        """What is denied is silent, what is allowed goes on and has not paused since."""
        self.heard.still(*(denied or self.ways.denied))
        self.heard.moving(*self.ways.allowed)
        for way in self.ways.allowed:
            self.assertLess(self.heard.gap(way, since), GAP * SLOW, way)

    def refused(self, box, label):
        """A process that podman starts inside now gets nowhere that is denied, and everywhere that is allowed."""
        code, out = box.exec("try", label + "-denied", *self.ways.denied)
        self.assertEqual(code, NONE_GOT_OUT, out)
        code, out = box.exec("try", label + "-allowed", *self.ways.allowed)
        self.assertEqual(code, 0, out)
        until(lambda: label + "-allowed" in self.host.labels_heard(), 3, "what is allowed is heard")
        self.assertNotIn(label + "-denied", self.host.labels_heard())


class Container(Case):
    def test_streams_stop_and_come_back(self):
        box = self.talker()
        since = time.monotonic()
        a = attach("--policy", "tool-call", "--container", box.id)
        self.holds(since)
        self.assertEqual((a["state"], a["coverage"], a["reasons"], a["problems"]), ("in force", "full", [], []))
        self.assertEqual((a["target"]["kind"], a["target"]["container"], a["target"]["runtime"]), ("container", box.id, "podman"))
        self.assertTrue(box.cgroup.endswith(a["target"]["cgroup"]))
        self.assertEqual(a["target"]["cgroup_id"], os.stat(box.cgroup).st_ino)
        self.assertTrue(a["canary"]["proven"], a["canary"])
        self.refused(box, "attached")
        now = status(a["id"])[a["id"]]
        self.assertEqual(now["state"], "in force")
        self.assertGreater(now["counters"]["denied"], a["canary"]["denied"])
        self.assertGreater(now["counters"]["allowed"], 0)
        kernel = links_of(a["id"])
        self.assertGreaterEqual(len(kernel), 8)

        # The layer away: the same flows get through again, the connection that stood still too.
        detach("--container", box.id[:12])
        self.heard.moving(*self.ways.denied, seconds=20)
        self.assertEqual((traces(a["id"]), kernel & links()), ([], set()))
        detach("--container", box.id, expect=1)

    def test_open_sockets_are_in_the_inventory(self):
        box = self.talker()
        a = attach("--policy", "tool-call", "--container", box.id[:12])
        found = {(s["protocol"], s["remote"]): s for s in a["sockets"]}
        for word, verdict in (("denied", "denied"), ("allowed", "allowed")):
            for address in (getattr(self.ways, word + "_address"), getattr(self.ways, word + "6")):
                remote = ("[%s]:%d" if ":" in address else "%s:%d") % (address, boxes.PORT)
                s = found.get(("tcp", remote))
                self.assertIsNotNone(s, (remote, a["sockets"]))
                self.assertEqual((s["comm"], s["state"], s["elsewhere"], s["verdict"]), ("probe", "established", False, verdict))
        self.assertEqual(sum(s["protocol"] == "udp" for s in a["sockets"]), 6)
        self.assertEqual(a["sockets_beyond"], 0)

    def test_its_own_name_servers(self):
        """Port 53 of a private address, and nothing else there, when the operator says that it is the container's resolver."""
        box = self.talker()
        rest = [w for w in self.ways.denied if w != self.ways.denied_dns]
        a = attach("--policy", "tool-call", "--container", box.id, "--resolver", self.ways.denied_address)
        self.assertEqual(a["resolvers"], [self.ways.denied_address])
        self.heard.still(*rest)
        self.heard.moving(self.ways.denied_dns)
        # Without: the name server is a private address like any other.
        attach("--policy", "tool-call", "--container", box.id)
        self.heard.still(*self.ways.denied)

    def test_death_of_every_weir_process_changes_nothing(self):
        box = self.talker()
        service = Service("--policy-only")
        self.addCleanup(service.stop)
        since = time.monotonic()
        a = attach("--policy", "tool-call", "--container", box.id)
        self.holds(since)
        until(lambda: weir_json("status")["events"]["written"], 10, "events are written")
        end_at_once(service)
        self.holds(since)
        self.refused(box, "dead")
        now = weir_json("status", a["id"])
        self.assertEqual(now["attachments"][0]["state"], "in force")
        self.assertNotEqual(now["events"]["by_pid"], service.process.pid)
        # The layer away: without the pins, which nobody holds open now, it is as if there had never been a policy.
        shutil.rmtree(os.path.join(boxes.ATTACHED_PINS, a["id"]))
        self.heard.moving(*self.ways.denied, seconds=20)
        self.assertNotEqual(weir_json("status", a["id"], expect=1)["attachments"][0]["state"], "in force")

    def test_removed_without_a_service(self):
        box = self.start("pause")
        a = attach("--policy", "tool-call", "--container", box.id)
        kernel = links_of(a["id"])
        box.remove()
        weir_json("status", expect=(0, 1))  # any command of these clears up
        self.assertFalse(os.path.exists(os.path.join(boxes.ATTACHED_PINS, a["id"])))
        self.assertEqual(kernel & links(), set())

    def test_removed_with_a_service(self):
        service = Service("--policy-only")
        self.addCleanup(service.stop)
        box = self.start("pause")
        a = attach("--policy", "tool-call", "--container", box.id)
        kernel = links_of(a["id"])
        self.assertTrue(kernel)
        box.remove()
        until(lambda: not os.path.exists(os.path.join(boxes.ATTACHED_PINS, a["id"])) and not kernel & links(), 10, "no link, no pin")

    def test_restarted_container_is_told(self):
        box = self.talker()
        a = attach("--policy", "tool-call", "--container", box.id)
        self.heard.still(*self.ways.denied)
        self.host.podman("restart", "-t", "1", box.name)
        # The cgroup is another, of the same name, and nothing of ours is on it ..
        self.heard.moving(*self.ways.denied)
        found = weir_json("status", expect=1)
        now = next(x for x in found["attachments"] if x["id"] == a["id"])
        self.assertEqual(now["state"], "recreated", now)
        self.assertIn("recreated", [p["name"] for p in now["problems"]])
        # .. until somebody puts it there.
        box.look()
        attach("--policy", "tool-call", "--container", box.id)
        self.heard.still(*self.ways.denied)
        self.refused(box, "again")

    def test_several_at_once(self):
        """Each has a policy of its own: what one may, the other may not."""
        one, other = self.talker(), self.start("pause")
        attach("--policy", "tool-call", "--container", one.id)
        attach("--policy", "snippet", "--container", other.id)
        self.refused(one, "one")
        code, out = other.exec("try", "other", *self.ways.allowed)
        self.assertEqual(code, NONE_GOT_OUT, out)
        detach("--container", other.id)
        code, out = other.exec("try", "free", *self.ways.allowed)
        self.assertEqual(code, 0, out)
        self.refused(one, "still-one")


class Pod(Case):
    def play(self, **containers):
        name = "pod-" + self.host.name()
        pod, inside = self.host.play(name, containers)
        self.addCleanup(self.host.podman_done, "rm", "-f", "-t", "0", *["%s-%s" % (name, n) for n in containers])
        return name, pod, inside

    def test_all_of_a_pod(self):
        """Attached to the pod: its containers, one that comes later, one that is restarted, and what podman starts inside."""
        name, pod, inside = self.play(talks=["talk", *self.ways.denied, *self.ways.allowed], sidecar=["pause"])
        self.heard.moving(*self.ways.denied, *self.ways.allowed)
        since = time.monotonic()
        a = attach("--policy", "tool-call", "--pod", pod)
        self.holds(since)
        self.assertEqual((a["target"]["kind"], a["target"]["pod"], a["target"]["cgroup"].rpartition("/")[2]), ("pod", pod, pod))
        self.refused(inside["sidecar"], "sidecar")

        later = self.host.name()
        self.addCleanup(self.host.podman_done, "rm", "-f", "-t", "0", later)
        self.host.podman("run", "-d", "--pod", name, "--name", later, "--rootfs", self.host.root, "/bin/probe", "pause")
        self.refused(boxes.Container(self.host, later), "later")

        self.host.podman("restart", "-t", "1", inside["talks"].name)
        self.heard.moving(*self.ways.allowed)
        self.heard.still(*self.ways.denied)
        self.refused(inside["talks"].look(), "restarted")
        self.assertEqual(status(a["id"])[a["id"]]["state"], "in force")

        detach("--pod", pod)
        self.heard.moving(*self.ways.denied, seconds=20)

    def test_one_container_alone_is_not_the_pod(self):
        """Why it is at pod level: with the policy on one container, its neighbour goes where it likes."""
        _, pod, inside = self.play(talks=["talk", *self.ways.denied, *self.ways.allowed], sidecar=["pause"])
        attach("--policy", "tool-call", "--container", inside["talks"].id)
        self.heard.still(*self.ways.denied)
        code, out = inside["sidecar"].exec("try", "neighbour", *self.ways.denied)
        self.assertEqual(code, 0, out)

    def test_removed(self):
        name, pod, inside = self.play(only=["pause"])
        a = attach("--policy", "tool-call", "--pod", pod)
        kernel = links_of(a["id"])
        self.assertTrue(kernel)
        self.host.podman("pod", "rm", "-f", "-t", "0", name)
        self.host.remove_pod_cgroup(pod)
        weir_json("status", expect=(0, 1))
        self.assertFalse(os.path.exists(os.path.join(boxes.ATTACHED_PINS, a["id"])))
        self.assertEqual(kernel & links(), set())


if __name__ == "__main__":
    unittest.main()
