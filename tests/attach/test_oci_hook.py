# SPDX-License-Identifier: Apache-2.0
"""`weir oci-hook`: what a container runtime calls. Here with the state of containers that are none: processes in cgroups laid out
as runtimes do it; and once with a real Podman and the files of deploy/oci. Starts by the hundred are in tests/containers.
"""
import contextlib
import errno
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from attached import ALLOWED, DENIED, NOBODY, POLICY, Apart, AttachedCase, Cgroup, Folder, Network, Workload
from lib import SLOW, TOP, WEIR, cgroup_mounts

ANNOTATION = "weir.dev/policy"
CONTAINER, SIDECAR, POD = "ab" * 32, "cd" * 32, "6f3d2c1b-0a99-4e88-8d77-665544332211"
HOOKS = os.path.join(TOP, "deploy", "oci")


def setUpModule():
    global apart, network, folder, policies
    apart, network, folder = Apart(), Network(), Folder()
    AttachedCase.apart = apart
    for name in ("ours", "other"):
        folder.put("policies/%s.json" % name, {**POLICY, "name": name})
    policies = os.path.join(folder.path, "policies")
    folder.put("bundle/config.json", {"ociVersion": "1.0.2", "process": {"args": ["sh"], "cwd": "/", "capabilities": {}, "noNewPrivileges": True},
                                      "linux": {"namespaces": [{"type": t} for t in ("pid", "network", "mount", "user")]}})  # fmt: skip


def tearDownModule():
    network.close()
    apart.close()
    folder.close()


class Case(AttachedCase):
    def container(self, path="docker/" + CONTAINER):
        self.cgroup.make(path)
        w = Workload(self.cgroup.full(path), network)
        self.addCleanup(w.stop)
        return w

    def state(self, pid, asks="ours", **changes):
        s = {"ociVersion": "1.0.2", "id": "c1", "status": "creating", "pid": pid, "bundle": os.path.join(folder.path, "bundle")}
        if asks is not None:
            s["annotations"] = {ANNOTATION: asks}
        s.update(changes)
        return json.dumps({k: v for k, v in s.items() if v is not None})

    def hook(self, state, *args):
        """With an empty environment, as runtimes call it."""
        return apart.weir("oci-hook", *(args or ("create", "--policies", policies)), stdin=state, before=("env", "-i"))

    def fails(self, words, state, *args, status=1):
        done = self.hook(state, *args)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (status, "", 1), done.stderr)
        self.assertTrue(done.stderr.startswith("weir: oci-hook: "), done.stderr)
        self.assertIn(words, done.stderr)
        self.assertNotIn("\033", done.stderr)
        return done

    def works(self, state, *args):
        done = self.hook(state, *args)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def attachments(self):
        return apart.json("status")["attachments"]


class Arguments(Case):
    def test_each_is_told_with_its_mend(self):
        for args, words in (
            (("start",), '"start" is none of create, stop'),
            (("create", "stop"), 'no second argument "stop"'),
            (("--policy", ""), "--policy is empty"),
            (("--policy", "mine.json"), '--policy: "mine.json" is no absolute path, and a hook is called in any directory'),
            (("--policies", "policies"), '--policies: "policies" is no absolute path'),
            (("--policies", ""), "--policies is empty"),
            (("--policy", "tool-call", "--policies", "/etc/weir"), "--policy and --policies"),
            (("--resolver", "dns"), '--resolver: "dns"'),
            (("--unlabelled", "allow"), '--unlabelled: "allow" is not skip'),
            (("stop", "--policy", "tool-call"), "stop takes no options"),
            (("--force",), "--force"),
        ):
            with self.subTest(args=args):
                done = self.hook("{}", *args)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(words, done.stderr)

    def test_states_that_are_none(self):
        pid = self.container().pid
        for words, state in (
            ("the container's state on standard input: 1:", ""),
            ("/pid must be", self.state(0)),
            ("/pid must be", self.state(-5)),
            ("/pid must be", self.state("1")),
            ("/status is \"running\": too late", self.state(pid, status="running")),
            ("/bundle must be an absolute path", self.state(pid, bundle="bundle")),
            ("/annotations must be an object of strings", self.state(pid, annotations={"a": 1})),
            ("/ociVersion is missing", self.state(pid, ociVersion=None)),
            ("is over 1048576 bytes", self.state(pid, x="y" * (1 << 20))),
            ("", self.state(pid)[:-1]),
        ):  # fmt: skip
            with self.subTest(words=words):
                self.fails(words, state)
        self.assertEqual(self.attachments(), [])
        # As long as it may be is fine, and so is what nobody knows yet.
        self.works(self.state(pid, x="y" * ((1 << 20) - 1000), y=[{"z": None}]))

    def test_somebody_at_a_terminal(self):
        done = subprocess.run(apart.enter("script", "-qec", WEIR + " oci-hook", "/dev/null"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=20 * SLOW, text=True)
        self.assertIn("a container runtime calls this", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_a_state_that_never_ends(self):
        for begins in ("", "{"):
            with self.subTest(begins=begins):
                p = subprocess.Popen(apart.enter(WEIR, "oci-hook"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.addCleanup(p.communicate)
                self.addCleanup(p.kill)
                p.stdin.write(begins)
                p.stdin.flush()
                started = time.monotonic()
                self.assertEqual(p.wait(timeout=15 * SLOW), 1)
                self.assertGreater(time.monotonic() - started, 8)
                self.assertIn("did not end within 10 s", p.stderr.read())

    def test_without_root(self):
        program = shutil.copy(WEIR, folder.path)
        done = apart.weir("oci-hook", stdin="{}", binary=program, before=("setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "^weir: oci-hook: this needs root")


class Create(Case):
    def test_a_container(self):
        w = self.container()
        self.assertEqual(w.tcp(DENIED), 0)
        self.works(self.state(w.pid))
        (a,) = self.attachments()
        self.assertEqual((a["target"]["container"], a["target"]["pod"], a["policy"]["name"]), (CONTAINER, None, "ours"))
        self.assertEqual((a["policy"]["source"], a["state"]), (policies + "/ours.json", "in force"))
        self.assertEqual((w.tcp(DENIED), w.tcp(ALLOWED)), (errno.EPERM, 0))

    def test_create_is_the_default(self):
        w = self.container()
        self.works(self.state(w.pid), "--policies", policies)
        self.assertEqual(w.tcp(DENIED), errno.EPERM)

    def test_a_pod(self):
        """The policy is the pod's: a sidecar that comes later is under it, whether the hook is called for it or not."""
        pod = "kubepods/burstable/pod%s" % POD
        w = self.container("%s/%s" % (pod, CONTAINER))
        self.works(self.state(w.pid))
        (a,) = self.attachments()
        self.assertEqual((a["target"]["cgroup"], a["target"]["pod"]), ("/%s/%s" % (self.cgroup.name, pod), POD))
        sidecar = self.container("%s/%s" % (pod, SIDECAR))
        self.assertEqual((w.tcp(DENIED), sidecar.tcp(DENIED), sidecar.tcp(ALLOWED)), (errno.EPERM, errno.EPERM, 0))
        # Its own hook finds what is there; the policy's file may have changed meanwhile.
        folder.put("policies/ours.json", {**POLICY, "name": "ours", "rules": []})
        self.addCleanup(folder.put, "policies/ours.json", {**POLICY, "name": "ours"})
        self.works(self.state(sidecar.pid))
        self.assertEqual([x["id"] for x in self.attachments()], [a["id"]])
        self.assertEqual(w.tcp(ALLOWED), errno.EPERM)

    def test_a_pod_has_one_policy(self):
        pod = "kubepods/pod%s" % POD
        w, sidecar = (self.container("%s/%s" % (pod, c)) for c in (CONTAINER, SIDECAR))
        self.works(self.state(w.pid))
        (a,) = self.attachments()
        self.fails("%s/ours.json" % policies, self.state(sidecar.pid, "other"))
        self.fails("%s/other.json" % policies, self.state(sidecar.pid, "other"))
        (still,) = self.attachments()
        self.assertEqual((still["id"], still["policy"]), (a["id"], a["policy"]))

    def test_two_of_a_pod_at_once(self):
        """One of them is first; the other is refused. Neither takes the other's place."""
        pod = "kubepods/pod%s" % POD
        pids = [self.container("%s/%s" % (pod, c)).pid for c in (CONTAINER, SIDECAR)]
        running = []
        for pid, name in zip(pids, ("ours", "other")):
            p = subprocess.Popen(apart.enter(WEIR, "oci-hook", "--policies", policies), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            p.stdin.write(self.state(pid, name))
            running.append((name, p))
        for _, p in running:
            p.stdin.close()
            p.stdin = None
        ended = {name: (p.communicate(timeout=60 * SLOW), p.returncode) for name, p in running}
        self.assertEqual(sorted(status for _, status in ended.values()), [0, 1], ended)
        (a,) = self.attachments()
        self.assertEqual(ended[a["policy"]["name"]][1], 0)
        self.assertEqual(a["policy"]["generation"], 1)

    def test_shipped_policies(self):
        w = self.container()
        self.works(self.state(w.pid, "tool-call"))
        self.assertEqual([(a["policy"]["name"], a["policy"]["source"]) for a in self.attachments()], [("tool-call", "tool-call")])

    def test_a_file_comes_before_a_shipped_policy(self):
        path = folder.put("policies/snippet.json", {**POLICY, "name": "in-place-of-it"})
        self.addCleanup(os.unlink, path)
        w = self.container()
        self.works(self.state(w.pid, "snippet"))
        self.assertEqual([a["policy"]["name"] for a in self.attachments()], ["in-place-of-it"])

    def test_a_file_that_can_not_be_read_is_not_taken_for_none(self):
        path = os.path.join(policies, "tool-call.json")
        os.symlink("/nonexistent", path)
        self.addCleanup(os.unlink, path)
        self.fails("tool-call.json", self.state(self.container().pid, "tool-call"))
        self.assertEqual(self.attachments(), [])

    def test_a_directory_that_is_none_is_not_taken_for_an_empty_one(self):
        path = folder.put("no-directory", "")
        self.fails("--policies: look at %s/tool-call.json: Not a directory" % path, self.state(self.container().pid, "tool-call"), "--policies", path)

    def test_no_such_policy(self):
        self.fails('there is no policy "none": no %s/none.json, and no shipped one' % policies, self.state(self.container().pid, "none"))

    def test_an_annotation_is_never_a_path(self):
        pid = self.container().pid
        folder.put("outside.json", POLICY)
        for name in ("../outside", "/" + folder.path + "/outside", "ours.json", "./ours", "", "OURS", "a" * 64, "ours\n"):
            with self.subTest(name=name):
                self.fails("never a path", self.state(pid, name))
        self.assertEqual(self.attachments(), [])

    def test_without_an_annotation(self):
        w = self.container()
        for state in (self.state(w.pid, None), self.state(w.pid, None, annotations={"io.x/y": "z"})):
            self.fails('it has no annotation "weir.dev/policy"', state)
        self.fails(r'"when": {"annotations": {"^weir\\.dev/policy$": ".*"}}', self.state(w.pid, None))
        self.works(self.state(w.pid, None), "create", "--unlabelled", "skip")
        self.assertEqual((self.attachments(), w.tcp(DENIED)), ([], 0))
        # What it is given counts for those that have one all the same.
        self.works(self.state(w.pid), "create", "--policies", policies, "--unlabelled", "skip")
        self.assertEqual(w.tcp(DENIED), errno.EPERM)

    def test_policy_for_all(self):
        w = self.container()
        self.works(self.state(w.pid, None), "create", "--policy", policies + "/other.json", "--resolver", "10.0.0.53")
        self.assertEqual([(a["policy"]["name"], a["resolvers"]) for a in self.attachments()], [("other", ["10.0.0.53"])])

    def test_policy_for_all_is_stronger_than_an_annotation(self):
        w = self.container()
        self.works(self.state(w.pid, "ours"), "create", "--policy", "snippet")
        self.assertEqual([a["policy"]["name"] for a in self.attachments()], ["snippet"])
        self.assertEqual(w.tcp(ALLOWED), errno.EPERM)

    def test_a_policy_that_is_none(self):
        path = folder.put("policies/broken.json", "{")
        self.addCleanup(os.unlink, path)
        self.fails("container c1: --policy: %s:1:" % path, self.state(self.container().pid, "broken"))

    def test_a_process_that_is_gone(self):
        self.fails("--pid", self.state(4194304))

    def test_a_bundle_that_is_none(self):
        self.fails("", self.state(self.container().pid, bundle="/nonexistent"))
        self.assertEqual(self.attachments(), [])

    def test_a_container_that_no_policy_would_hold(self):
        """It could take the policy off again: said by its bundle, before any of it runs."""
        caps = ["CAP_SYS_ADMIN", "CAP_BPF", "CAP_NET_ADMIN"]
        folder.put("mighty/config.json", {"ociVersion": "1.0.2", "process": {"args": ["sh"], "cwd": "/", "capabilities": {k: caps for k in ("bounding", "effective", "permitted")}},
                                          "linux": {"namespaces": [{"type": "mount"}]}})  # fmt: skip
        w = self.container()
        done = self.fails("coverage: refused: ", self.state(w.pid, bundle=os.path.join(folder.path, "mighty")))
        self.assertNotIn("--force", done.stderr)
        self.assertEqual((self.attachments(), w.tcp(DENIED)), ([], 0))


class Stop(Case):
    def test_it_clears_up(self):
        w = self.container()
        self.works(self.state(w.pid))
        self.works("", "stop")
        self.assertEqual((len(apart.pins()), w.tcp(DENIED)), (1, errno.EPERM))
        self.cgroup.remove("docker")
        # Runtimes say "stopped", with no pid; what it says makes no difference.
        for state in (self.state(0, status="stopped"), "", "x" * (2 << 20)):
            self.works(state, "stop")
            self.assertEqual(apart.pins(), [])


class Files(Case):
    """deploy/oci, as Podman and CRI-O read it: hooks 1.0.0 of containers-common."""

    @staticmethod
    def read(name):
        with open(os.path.join(HOOKS, name)) as f:
            return json.load(f)

    def test_shape(self):
        stages = {}
        for path in glob.glob(os.path.join(HOOKS, "*.json")):
            with self.subTest(path=path):
                h = self.read(path)
                self.assertEqual((set(h), h["version"]), ({"version", "hook", "when", "stages"}, "1.0.0"))
                self.assertEqual((set(h["hook"]), set(h["when"])), ({"path", "args", "timeout"}, {"annotations"}))
                self.assertTrue(os.path.exists(h["hook"]["path"]) or h["stages"] == ["poststop"], "passed over where it is missing")
                command = h["hook"]["args"]
                if h["hook"]["path"] == "/bin/sh":
                    self.assertEqual((command[:2], len(command)), (["sh", "-c"], 3))
                    command = command[2].removeprefix("exec /usr/local/bin/").split()
                self.assertEqual((command[:2], len(command)), (["weir", "oci-hook"], 3))
                ((key, value),) = h["when"]["annotations"].items()
                self.assertTrue(re.search(key, ANNOTATION) and not re.search(key, ANNOTATION + "x") and not re.search(key, "weir-dev/policy"))
                self.assertTrue(re.search(value, "") and re.search(value, "tool-call"))
                stages[command[2]] = h["stages"]
        self.assertEqual(stages, {"create": ["createRuntime"], "stop": ["poststop"]})

    def test_manual_shows_the_file(self):
        with open(os.path.join(TOP, "docs", "man", "weir-oci-hook.1")) as f:
            shown = re.search(r"^\.Bd -literal -offset indent\n(.*?)^\.Ed", f.read(), re.M | re.S).group(1)
        self.assertEqual(json.loads(shown.replace("\\e", "\\")), self.read("weir.json"))

    def podman(self, *args):
        return subprocess.run(apart.enter("podman", "--root", self.storage + "/root", "--runroot", self.storage + "/run", "--tmpdir", self.storage + "/tmp", "--runtime", "runc",
                               "--cgroup-manager", "cgroupfs", "--hooks-dir", self.storage + "/hooks", *args),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120 * SLOW, text=True)  # fmt: skip

    def no_cgroups(self):
        """Podman's monitor has a cgroup beside the container's, on every hierarchy, and leaves it a moment later."""
        deadline = time.monotonic() + 10 * SLOW
        for top in ("%s/%s" % (m, self.cgroup.name) for m in cgroup_mounts()):
            while os.path.isdir(top):
                for where, _, _ in os.walk(top, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(where)
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)

    @unittest.skipUnless(shutil.which("podman") and shutil.which("runc"), "no podman with runc here")
    def test_podman_with_these_files(self):
        self.storage = tempfile.mkdtemp(prefix="weir-test-podman-")
        self.addCleanup(shutil.rmtree, self.storage, ignore_errors=True)
        self.addCleanup(self.no_cgroups)
        os.makedirs(self.storage + "/hooks")
        for name in ("weir.json", "weir-stop.json"):
            with open(os.path.join(HOOKS, name)) as shipped, open("%s/hooks/%s" % (self.storage, name), "w") as f:
                f.write(shipped.read().replace("/usr/local/bin/weir", WEIR))
        root = self.storage + "/image"
        for d in ("bin", "proc", "dev", "sys", "etc", "run", "tmp", "usr", "lib", "lib64"):
            os.makedirs(os.path.join(root, d))
        mounts = [x for d in ("/bin", "/usr", "/lib", "/lib64") for x in ("-v", "%s:%s:ro" % (os.path.realpath(d), d))]
        first = "import socket, sys\ntry:\n socket.create_connection(('127.0.0.1', 9), 3)\nexcept OSError as e:\n print(e.errno)"
        run = ["run", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000", "--cgroup-parent", "/" + self.cgroup.name, *mounts]
        what = ["--rootfs", root, "/usr/bin/python3", "-c", first]

        done = self.podman(*run, *what)
        self.assertEqual((done.returncode, done.stdout), (0, "%d\n" % errno.ECONNREFUSED), done.stderr)
        done = self.podman(*run, "--annotation", ANNOTATION + "=snippet", *what)
        self.assertEqual((done.returncode, done.stdout), (0, "%d\n" % errno.EPERM), done.stderr)
        done = self.podman(*run, "--annotation", ANNOTATION + "=none", *what)
        self.assertEqual(done.stdout, "")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("weir: oci-hook: ", done.stderr)
        self.assertIn('there is no policy "none"', done.stderr)
        # poststop has cleared up already, or a moment from now.
        deadline = time.monotonic() + 10 * SLOW
        while apart.pins():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main()
