# SPDX-License-Identifier: Apache-2.0
"""No open window: the policy is in force before a container's first instruction, or the container does not start."""
import concurrent.futures
import fcntl
import json
import os
import re
import subprocess
import tempfile
import unittest

import boxes
from boxes import NONE_GOT_OUT, status, until, weir_json
from lib import SLOW, TOP, WEIR
from test_attach import Case

OCI = os.path.join(TOP, "deploy", "oci")
INSTALLED = "/usr/local/bin/weir"
ANNOTATION = "weir.dev/policy"
STARTS, BY_PODMAN, CONTROLS = 200, 10, 100
AT_ONCE = 4
HOOK_SECONDS = 120  # more than enough beside whatever else this machine does


def hook(*args, path=WEIR, timeout=HOOK_SECONDS):
    return {"path": path, "args": ["weir", "oci-hook", *args], "timeout": timeout}


def hooks(create):
    return {"createRuntime": [create], "poststop": [hook("stop")]}


class Hook(Case):
    def tell(self, label):
        """What the first instructions of a container do: TCP and UDP, both families, to where the policy lets nobody go."""
        return ["try", label, *self.ways.denied]

    def in_parallel(self, start, labels):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(labels, pool.map(start, labels)))

    def start(self, label, create=None, annotations=None, **kw):
        """One start by runc: CompletedProcess."""
        annotations = {ANNOTATION: "tool-call"} if annotations is None else annotations
        return self.host.start_bundle(self.host.bundle(self.tell(label), annotations, hooks(create) if create else {}), **kw)

    def packets(self):
        """To where nobody may go: what came over the wire since the last call."""
        denied = {self.ways.denied_address, self.ways.denied6}
        return [p for p in self.host.net.arrived() if p.to in denied]

    def hooks_folder(self, program=WEIR):
        """What deploy/oci has for Podman, with this tree's program."""
        folder = tempfile.mkdtemp(prefix="hooks-", dir=self.host.dir)
        for name in os.listdir(OCI):
            if name.endswith(".json"):
                with open(os.path.join(OCI, name)) as shipped, open(os.path.join(folder, name), "w") as f:
                    f.write(shipped.read().replace(INSTALLED, program))
        return folder

    def podman_run(self, label, *options, policy="tool-call", prefix=()):
        """One start by Podman, `options` before its "run": CompletedProcess."""
        command = ["nsenter", "--net=" + self.host.netns, "--", *prefix, *self.host.command, *options, "run", "--rm", *self.host.options(self.host.name()), "--annotation",
                   "%s=%s" % (ANNOTATION, policy), "--rootfs", self.host.root, "/bin/probe", *self.tell(label)]  # fmt: skip
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW, text=True, cwd=self.host.dir + "/cwd",
                              env=dict(os.environ, CONTAINERS_CONF=self.host.dir + "/containers.conf"))  # fmt: skip

    def own(self):
        """What there is of attachments, but for the memory of those whose cgroup is gone."""
        return [a for a in status().values() if self.host.owns(a["target"]["cgroup"]) and (a["state"] != "gone" or os.path.exists(os.path.join(boxes.ATTACHED_PINS, a["id"])))]


    @staticmethod
    def broken():
        return {b["id"] for b in weir_json("status", expect=(0, 1))["broken"]}


class Starts(Hook):
    def test_not_one_of_200_gets_through(self):
        labels = ["start-%d" % i for i in range(STARTS - BY_PODMAN)]
        by_podman = ["podman-%d" % i for i in range(BY_PODMAN)]
        folder = self.hooks_folder()

        self.packets()
        done = self.in_parallel(lambda label: self.start(label, hook("create")), labels)
        done.update(self.in_parallel(lambda label: self.podman_run(label, "--hooks-dir", folder), by_podman))
        for label, d in done.items():
            self.assertEqual(d.returncode, NONE_GOT_OUT, (label, d))
        self.assertEqual(len(done), STARTS)
        self.assertEqual(self.packets(), [])
        heard = self.host.labels_heard()
        self.assertEqual([label for label in done if label in heard], [])
        self.assertEqual(self.own(), [])

    def test_control_without_the_hook(self):
        """The same starts, the hook left out: each gets through, with the first thing it does."""
        labels = ["control-%d" % i for i in range(CONTROLS)]
        done = self.in_parallel(self.start, labels)
        for label, d in done.items():
            self.assertEqual(d.returncode, 0, (label, d))
        until(lambda: set(labels) <= self.host.labels_heard(), 5, "all are heard")
        self.assertGreaterEqual(len(self.packets()), CONTROLS)

    def test_unlabelled_is_not_touched(self):
        before = {a["id"] for a in self.own()}
        done = self.start("unlabelled", hook("create", "--unlabelled", "skip"), annotations={})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        until(lambda: "unlabelled" in self.host.labels_heard(), 3, "heard")
        self.assertEqual({a["id"] for a in self.own()}, before)

    def test_what_is_allowed_gets_through(self):
        """The policy is what the hook puts there, not a wall."""
        bundle = self.host.bundle(["try", "allowed", *self.ways.allowed], {ANNOTATION: "tool-call"}, hooks(hook("create")))
        done = self.host.start_bundle(bundle)
        self.assertEqual(done.returncode, 0, done)


    def test_the_directory_that_podman_reads(self):
        """Installed as the documentation says, with no --hooks-dir: the policy is there, and a name that means nothing stops the container."""
        with open(os.path.join(OCI, "README.md")) as f:
            read = re.search(r"install -D -m 644 -t (\S+) \S*weir.json", f.read()).group(1)
        script = """set -e; at=$0 from=$1; shift
            cp -a /usr/share/containers "$from"; mount --bind "$from/containers" /usr/share/containers; mount -t tmpfs none /etc/containers
            mkdir -p "$at"; cp "$from"/*.json "$at"; exec "$@" """

        def start(label, policy):
            return self.podman_run(label, policy=policy, prefix=["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, read, self.hooks_folder()])

        self.packets()
        done = start("default-directory", "tool-call")
        self.assertEqual(done.returncode, NONE_GOT_OUT, done)
        done = start("proof", "nosuch")
        self.assertNotIn(done.returncode, (0, NONE_GOT_OUT, 43), done)
        self.assertIn('there is no policy "nosuch"', done.stderr)
        self.assertEqual(self.packets(), [])
        self.assertFalse({"default-directory", "proof"} & self.host.labels_heard())


class Broken(Hook):
    """A hook that does not do its work stops the container: 0 of 5 start, each kind."""

    def none_starts(self, kind, create, said="", annotations=None, prefix=()):
        self.none_of(kind, lambda label: self.start(label, create, annotations, prefix=prefix), said)

    def none_of(self, kind, start, said):
        labels = ["%s-%d" % (kind, i) for i in range(5)]
        broken = self.broken()
        self.packets()
        done = self.in_parallel(start, labels)
        for label, d in done.items():
            self.assertNotIn(d.returncode, (0, NONE_GOT_OUT, 43), (label, d))
            self.assertEqual(d.stdout, "", (label, d))
            self.assertIn(said, d.stderr, (label, d))
        self.assertEqual(self.packets(), [])
        self.assertFalse(set(labels) & self.host.labels_heard())
        # A hook that was killed in the middle leaves pins behind, of a cgroup that is no more: the next command's work.
        self.assertEqual((self.own(), self.broken() - broken), ([], set()))

    def test_binary_missing(self):
        self.none_starts("missing", hook("create", path="/nonexistent/weir"), "no such file")

    def test_binary_missing_for_podman(self):
        folder = self.hooks_folder("/nonexistent/weir")
        self.none_of("missing-podman", lambda label: self.podman_run(label, "--hooks-dir", folder), "/nonexistent/weir")

    def test_podman_passes_over_a_path_that_is_missing(self):
        """Why the shipped file goes through a shell: with the program itself as the path, the container starts without a policy."""
        folder = self.hooks_folder("/nonexistent/weir")
        with open(folder + "/weir.json") as f:
            document = json.load(f)
        document["hook"] = hook("create", path="/nonexistent/weir")
        with open(folder + "/weir.json", "w") as f:
            json.dump(document, f)
        done = self.podman_run("passed-over", "--hooks-dir", folder)
        self.assertEqual(done.returncode, 0, done)
        until(lambda: "passed-over" in self.host.labels_heard(), 3, "heard")

    def test_no_label_where_one_is_needed(self):
        self.none_starts("no-label", hook("create"), ANNOTATION, annotations={})

    def test_policy_missing(self):
        self.none_starts("no-policy", hook("create"), "nonexistent", {ANNOTATION: "nonexistent"})

    def test_policy_is_no_policy(self):
        path = self.host.put("broken.json", {"name": "broken", "default": "deny", "rules": 7})
        self.none_starts("bad-policy", hook("create", "--policy", path), "rules")

    def test_it_fails(self):
        self.none_starts("exit-1", hook("create", path="/bin/false"), "exit status 1")

    def test_it_takes_too_long(self):
        """Somebody holds the lock of all changes for ever; the runtime waits a second for its hook."""
        with open(boxes.ATTACHED_RUN + "/lock", "a") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            self.none_starts("slow", hook("create", timeout=1), "hook")

    def test_pins_are_unwritable(self):
        prefix = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", 'mount -o remount,bind,ro /sys/fs/bpf && exec "$@"', "sh"]
        self.none_starts("read-only", hook("create"), "/sys/fs/bpf", prefix=prefix)
        # The same with a file system that can be written to does start.
        done = self.start("writable", hook("create"), prefix=prefix[:5] + ["sh", "-c", 'exec "$@"', "sh"])
        self.assertEqual(done.returncode, NONE_GOT_OUT, done)

    def test_coverage_is_refused(self):
        """A container that could undo its policy does not start under it."""
        path, name = self.host.bundle(self.tell("privileged"), {ANNOTATION: "tool-call"}, hooks(hook("create")))
        with open(path + "/config.json") as f:
            config = json.load(f)
        caps = ["CAP_SYS_ADMIN", "CAP_BPF", "CAP_NET_ADMIN"]
        config["process"]["capabilities"] = {k: caps for k in ("bounding", "effective", "permitted")}
        with open(path + "/config.json", "w") as f:
            json.dump(config, f)
        done = self.host.start_bundle((path, name))
        self.assertNotIn(done.returncode, (0, NONE_GOT_OUT, 43), done)
        self.assertNotIn("privileged", self.host.labels_heard())


if __name__ == "__main__":
    unittest.main()
