# SPDX-License-Identifier: Apache-2.0
"""The containers of deploy/kubernetes, started by podman with what their manifests give them: it is enough for what they do, and each
arrangement that looks odd is needed. No cluster: see as_pod.py."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from lib import SLOW, TOP

sys.path += [os.path.join(TOP, "tests", "containers"), os.path.join(TOP, "tests", "agents")]
import fixture  # noqa: E402 (images of agents)
from as_pod import AsPod  # noqa: E402
from boxes import detach_all_of, shared, status, traces  # noqa: E402
from test_manifests import DEPLOY, check, install  # noqa: E402


def documents():
    """The main pod spec of each kustomization, by its folder; and the configuration of the service."""
    install()
    found = [f["document"] for f in check([os.path.join(DEPLOY, "node", "daemonset.yaml"), os.path.join(DEPLOY, "service", "deployment.yaml"),
                                           os.path.join(DEPLOY, "service", "configmap.yaml")])]
    return {"node": found[0]["spec"]["template"]["spec"], "service": found[1]["spec"]["template"]["spec"], "weir.json": found[2]["data"]["weir.json"]}


class Node(unittest.TestCase):
    """The DaemonSet's container: what it is given is enough for the whole life of a policy."""

    def setUp(self):
        self.host, self.spec = shared(), documents()["node"]
        self.addCleanup(detach_all_of, self.host)
        self.state = tempfile.mkdtemp(prefix="weir-test-node-")
        self.addCleanup(shutil.rmtree, self.state, True)

    def start(self, **more):
        pod = AsPod(self.host, self.spec, {"state": self.state}, **more)
        self.addCleanup(pod.stop)
        return pod

    def test_policy_from_attach_to_detach(self):
        host, ways = self.host, self.host.ways()
        box = host.run("talk", *ways.denied, *ways.allowed)
        self.addCleanup(box.remove)
        host.heard.moving(*ways.denied, *ways.allowed)
        pod = self.start()
        pod.probe("startupProbe")
        said = json.loads(pod.run("weir", "attach", "--policy", "tool-call", "--container", box.id, "--json"))
        self.assertTrue(said["canary"]["proven"], said)
        self.assertNotIn("unreadable", [r["name"] for r in said["reasons"]])
        host.heard.still(*ways.denied)
        host.heard.moving(*ways.allowed)
        pod.probe("readinessProbe")
        self.assertEqual(json.loads(pod.run("weir", "status", said["id"], "--json"))["attachments"][0]["state"], "in force")
        # Evicted: it holds, and so it does when the next one has come.
        pod.kill()
        host.heard.still(*ways.denied)
        self.assertEqual(status(said["id"])[said["id"]]["state"], "in force")
        after = self.start()
        after.probe("readinessProbe")
        host.heard.still(*ways.denied)
        host.heard.moving(*ways.allowed)
        after.run("weir", "detach", "--id", said["id"])
        host.heard.moving(*ways.denied)
        self.assertEqual(traces(said["id"]), [])

    def test_without_the_capability_to_look_it_says_so(self):
        box = self.host.run("talk", self.host.ways().allowed_tcp)
        self.addCleanup(box.remove)
        pod = self.start(without=["SYS_PTRACE", "DAC_READ_SEARCH", "DAC_OVERRIDE"], cgroupns="host")
        pod.probe("startupProbe")
        done = pod.done("weir", "attach", "--policy", "tool-call", "--container", box.id, "--json")
        self.assertTrue(done.returncode or "unreadable" in [r["name"] for r in json.loads(done.stdout)["reasons"]], done)

    def test_a_cgroup_namespace_of_its_own_is_refused_without_the_hosts_processes(self):
        spec = {k: v for k, v in self.spec.items() if k != "hostPID"}
        pod = AsPod(self.host, spec, {"state": self.state})
        self.addCleanup(pod.stop)
        self.assertNotEqual(pod.process.wait(30 * SLOW), 0)
        self.assertIn("cgroup namespace", pod.said())

    def test_init_container_wants_a_bpf_file_system(self):
        script = self.spec["initContainers"][0]["command"]
        with tempfile.TemporaryDirectory() as other:
            for path, code in (("/sys/fs/bpf", 0), (other, 1)):
                done = subprocess.run([w.replace("/sys/fs/bpf", path) for w in script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual((done.returncode, bool(done.stderr)), (code, bool(code)))


class Served(unittest.TestCase):
    """The Deployment's container: sandboxes for snippets and tools, with the listed capabilities and the runtime's own filter."""

    def setUp(self):
        found = documents()
        self.spec, self.host = found["service"], shared()
        self.top = tempfile.mkdtemp(prefix="weir-test-service-")
        self.addCleanup(shutil.rmtree, self.top, True)
        for name in ("state", "config", "tls", "images"):
            os.mkdir(os.path.join(self.top, name), 0o700)
        with open(self.top + "/config/weir.json", "w") as f:
            f.write(found["weir.json"])
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=weir.weir-service.svc",
                        "-keyout", self.top + "/tls/tls.key", "-out", self.top + "/tls/tls.crt"], stderr=subprocess.PIPE, check=True)
        os.chmod(self.top + "/tls/tls.key", 0o400)

    def start(self, **more):
        pod = AsPod(self.host, self.spec, {name: os.path.join(self.top, name) for name in ("state", "config", "tls")}, extra=["-v", self.top + "/images:/images:ro"], **more)
        self.addCleanup(pod.stop)
        pod.probe("startupProbe")
        return pod

    def post(self, pod, path, token, body):
        return json.loads(pod.run("curl", "-sk", "https://127.0.0.1:8443" + path, "-H", "Authorization: Bearer " + token, "-H", "Content-Type: application/json", "-d", json.dumps(body)))

    def test_snippets_and_tools(self):
        fixture.make_layout(self.top + "/images/app", {"app.py": "def add(a: int, b: int) -> int:\n    return a + b\n"})
        subprocess.run(["chmod", "-R", "a+rX", self.top + "/images"], check=True)
        os.chmod(self.top + "/images", 0o755)
        pod = self.start()
        pod.probe("readinessProbe")
        pod.probe("livenessProbe")
        token = pod.run("weir", "token", "mint", "--project", "example").strip()
        answer = self.post(pod, "/v1/execute", token, {"code": "open('out.txt', 'w').write('x')\nprint(6*7)"})
        self.assertEqual((answer["stdout"], [f["path"] for f in answer["files"]]), ("42\n", ["out.txt"]), answer)
        pod.run("weir", "image", "import", "/images/app", "--name", "app", timeout=120)
        pod.run("weir", "agent", "add", "helper", "--project", "example", "--image", "app", "--tools", "app")
        agent = json.loads(pod.run("weir", "agent", "env", "helper", "--project", "example", "--json"))["SANDBOX_TOKEN"]
        answer = self.post(pod, "/v1/call", agent, {"name": "add", "arguments": {"a": 40, "b": 2}})
        self.assertEqual(answer.get("result"), 42, answer)
        # Tokens and agents are in the state directory: another pod on it knows them.
        pod.kill()
        again = self.start()
        self.assertEqual(self.post(again, "/v1/execute", token, {"code": "print(6*7)"})["stdout"], "42\n")
        again.stop()

    def test_tools_need_the_settings_of_their_network(self):
        """Why the Deployment begins with a mount: without it the sandbox of a tool is not built, and says at which layer."""
        fixture.make_layout(self.top + "/images/app", {"app.py": "def add(a: int, b: int) -> int:\n    return a + b\n"})
        subprocess.run(["chmod", "-R", "a+rX", self.top + "/images"], check=True)
        os.chmod(self.top + "/images", 0o755)
        words = self.spec["containers"][0]["command"]
        self.assertIn("mount -o remount,bind,rw /proc/sys && ", words[-1])
        pod = self.start(command=words[:-1] + [words[-1].replace("mount -o remount,bind,rw /proc/sys && ", "")])
        pod.run("weir", "image", "import", "/images/app", "--name", "app", timeout=120)
        pod.run("weir", "agent", "add", "helper", "--project", "example", "--image", "app", "--tools", "app")
        agent = json.loads(pod.run("weir", "agent", "env", "helper", "--project", "example", "--json"))["SANDBOX_TOKEN"]
        answer = self.post(pod, "/v1/call", agent, {"name": "add", "arguments": {"a": 40, "b": 2}})
        self.assertIn("network", answer["error"]["message"], answer)


if __name__ == "__main__":
    unittest.main()
