# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes, deploy/container and docs/operations.md: every document against Kubernetes' own description of it, strictly; and
what they name exists. No cluster is here, and none is claimed; tests/containers_long shows that the privileges they give are enough.

The descriptions are npm packages (tests/containers/manifests/package.json); they are installed below build/ once."""
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

import commands
from lib import BUILD, TOP, WEIR, cgroup2_mount, weir

DEPLOY = os.path.join(TOP, "deploy", "kubernetes")
HERE = os.path.join(TOP, "tests", "containers", "manifests")
INSTALLED = os.path.join(BUILD, "containers", "manifests")
FILES = sorted(glob.glob(os.path.join(DEPLOY, "*", "*.yaml")))

# (file, what is replaced, by what, a word of the complaint): each makes a valid file wrong.
MISTAKES = [
    ("node/daemonset.yaml", "      hostPID: true", "      hostPid: true", "hostPid"),
    ("node/daemonset.yaml", "          readinessProbe:", "          readynessProbe:", "readynessProbe"),
    ("node/daemonset.yaml", "readOnlyRootFilesystem: true\n            capabilities:\n              drop: [ALL]\n              add:",
     "readOnlyRootFileSystem: true\n            capabilities:\n              drop: [ALL]\n              add:", "readOnlyRootFileSystem"),
    ("node/daemonset.yaml", "  selector:\n    matchLabels: *labels\n", "", "selector"),
    ("node/daemonset.yaml", "maxSurge: 0", "maxSurge: {}", "maxSurge"),
    ("node/daemonset.yaml", "hostPID: true", "hostPID: \"true\"", "boolean"),
    ("node/daemonset.yaml", "      hostNetwork: true", "      hostNetwork: true\n      hostNetwork: false", "unique"),
    ("node/daemonset.yaml", "type: RuntimeDefault", "type: RuntimeDefualt", "seccompProfile"),
    ("node/daemonset.yaml", "mountPropagation: HostToContainer", "mountPropagation: [HostToContainer]", "mountPropagation"),
    ("node/daemonset.yaml", "apiVersion: apps/v1", "apiVersion: apps/v7", "apps/v7"),
    ("node/namespace.yaml", "enforce: privileged", "enforce: yes", "1.1"),
    ("node/priorityclass.yaml", "value: 900000000", "value: nine", "number"),
    ("service/deployment.yaml", "replicas: 1", "replicas: \"1\"", "replicas"),
    ("service/deployment.yaml", "defaultMode: 256", "defaultMode: 0400", "1.1"),
    ("service/deployment.yaml", "httpGet: &probe {scheme: HTTPS,", "httpGet: &probe {schema: HTTPS,", "schema"),
    ("service/networkpolicy.yaml", "policyTypes: [Ingress, Egress]\n  ingress:", "policyType: [Ingress, Egress]\n  ingress:", "policyType"),
    ("service/networkpolicy.yaml", "namespaceSelector:\n            matchLabels:\n              weir", "namespaceSelectors:\n            matchLabels:\n              weir", "namespaceSelectors"),
    ("service/service.yaml", "targetPort: https", "targetPorts: https", "targetPorts"),
    ("service/service.yaml", "type: ClusterIP", "type: [ClusterIP]", "type"),
    ("example/agent.yaml", "localhostProfile:", "localHostProfile:", "localHostProfile"),
]


def install():
    """The packages as the lock file has them, once; what is there already is taken."""
    wanted = "".join(pathlib.Path(HERE, name).read_text() for name in ("package.json", "package-lock.json"))
    stamp = pathlib.Path(INSTALLED, "installed")
    os.makedirs(INSTALLED, exist_ok=True)
    shutil.copy(os.path.join(HERE, "check.mjs"), INSTALLED)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    for name in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(HERE, name), INSTALLED)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", os.path.join(BUILD, "agents", "npm-cache")],
                   cwd=INSTALLED, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, timeout=240)
    stamp.write_text(wanted)


def check(files):
    """What check.mjs finds: [{"file", "document", "errors"}]."""
    done = subprocess.run(["node", "check.mjs", *files], cwd=INSTALLED, stdout=subprocess.PIPE, check=True, timeout=120)
    return json.loads(done.stdout)


class Manifests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        install()
        cls.found = check(FILES)
        cls.documents = {}
        for f in cls.found:
            d, folder = f["document"], os.path.basename(os.path.dirname(f["file"]))
            if d and d["kind"] != "Kustomization":
                cls.documents[folder, d["kind"], d["metadata"]["name"]] = d

    def of(self, folder, kind, name="weir"):
        return self.documents[folder, kind, name]

    def pods(self):
        """(folder/kind, its pod's metadata, its pod's spec) of everything that makes pods."""
        for (folder, kind, name), d in self.documents.items():
            if kind == "Pod":
                yield "%s/%s" % (folder, name), d["metadata"], d["spec"]
            elif "template" in d.get("spec", {}):
                yield "%s/%s" % (folder, name), d["spec"]["template"]["metadata"], d["spec"]["template"]["spec"]

    def weirs(self):
        """Those that run Weir itself, with their main container."""
        return [(where, spec, spec["containers"][0]) for where, _, spec in self.pods() if spec["containers"][0]["name"] == "weir"]

    # -- form --

    def test_every_document_is_what_kubernetes_describes(self):
        self.assertGreater(len(self.found), 15)
        for f in self.found:
            with self.subTest(file=os.path.relpath(f["file"], TOP)):
                self.assertEqual(f["errors"], [])

    def test_a_mistake_in_one_is_found(self):
        with tempfile.TemporaryDirectory() as top:
            paths = []
            for i, (name, right, wrong, _) in enumerate(MISTAKES):
                with open(os.path.join(DEPLOY, name)) as f:
                    text = f.read()
                self.assertIn(right, text, name)
                paths.append(os.path.join(top, "%02d.yaml" % i))
                with open(paths[-1], "w") as f:
                    f.write(text.replace(right, wrong, 1))
            found = check(paths)
        for path, (name, _, wrong, word) in zip(paths, MISTAKES):
            with self.subTest(file=name, wrong=wrong):
                self.assertIn(word, " ".join(e for f in found if f["file"] == path for e in f["errors"]))

    def test_kustomizations_take_every_file(self):
        for f in self.found:
            if f["document"]["kind"] != "Kustomization":
                continue
            folder = os.path.dirname(f["file"])
            with self.subTest(folder=os.path.basename(folder)):
                self.assertEqual(set(f["document"]) - {"apiVersion", "kind", "namespace", "resources", "images"}, set())
                there = {os.path.basename(p) for p in glob.glob(folder + "/*.yaml")} - {"kustomization.yaml"}
                self.assertEqual(set(f["document"]["resources"]), there)
                used = {c["image"].partition(":")[0] for where, _, spec in self.pods() if where.startswith(os.path.basename(folder) + "/")
                        for c in spec.get("initContainers", []) + spec["containers"]}
                self.assertLessEqual({i["name"] for i in f["document"].get("images", [])}, used)
                spaces = {d["metadata"].get("namespace", d["metadata"]["name"]) for (where, kind, _), d in self.documents.items()
                          if where == os.path.basename(folder) and kind != "PriorityClass"}
                self.assertEqual(spaces, {f["document"]["namespace"]})

    def test_kubectl_builds_them_where_it_is_installed(self):
        if not shutil.which("kubectl"):
            return  # what it would do is checked piece by piece above
        for folder in ("node", "service", "example"):
            done = subprocess.run(["kubectl", "kustomize", os.path.join(DEPLOY, folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, b""), folder)
            self.assertEqual(len(re.findall(rb"^kind: ", done.stdout, re.M)), sum(1 for where, _, _ in self.documents if where == folder))

    # -- privileges --

    def test_nobody_gets_more_than_is_listed(self):
        for where, _, spec in self.pods():
            with self.subTest(pod=where):
                self.assertIs(spec["automountServiceAccountToken"], False)
                self.assertIn(spec["securityContext"]["seccompProfile"]["type"], ("RuntimeDefault", "Localhost"))
                self.assertEqual(spec.get("hostNetwork", False), where == "node/weir")
                self.assertFalse(spec.get("hostIPC", False))
                for c in spec.get("initContainers", []) + spec["containers"]:
                    security = c["securityContext"]
                    self.assertFalse(security.get("privileged", False))
                    self.assertIs(security["readOnlyRootFilesystem"], True)
                    self.assertEqual(security["capabilities"]["drop"], ["ALL"])
                    self.assertIn("memory", c["resources"]["limits"])
                    for cap in security["capabilities"].get("add", []):
                        with open("/usr/include/linux/capability.h") as f:
                            self.assertIn("#define CAP_%s" % cap, re.sub(r"\s+(?=\S)", " ", f.read()))

    def test_example_agents_pass_the_restricted_standard(self):
        """The controls of that level that a pod of this form can break."""
        space = self.of("example", "Namespace", "weir-example")["metadata"]["labels"]
        self.assertEqual(space["pod-security.kubernetes.io/enforce"], "restricted")
        for where, _, spec in self.pods():
            if not where.startswith("example/"):
                continue
            with self.subTest(pod=where):
                self.assertFalse(set(spec) & {"hostPID", "hostNetwork", "hostIPC"})
                self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
                self.assertGreater(spec["securityContext"]["runAsUser"], 0)
                self.assertLessEqual({k for v in spec["volumes"] for k in v} - {"name"}, {"configMap", "emptyDir", "secret", "projected", "downwardAPI", "persistentVolumeClaim"})
                for c in spec["containers"]:
                    self.assertIs(c["securityContext"]["allowPrivilegeEscalation"], False)
                    self.assertEqual(c["securityContext"]["capabilities"], {"drop": ["ALL"]})

    def test_namespaces_of_weir_say_what_they_admit(self):
        for folder, name in (("node", "weir"), ("service", "weir-service")):
            labels = self.of(folder, "Namespace", name)["metadata"]["labels"]
            self.assertEqual({labels["pod-security.kubernetes.io/" + mode] for mode in ("enforce", "audit", "warn")}, {"privileged"})

    # -- what refers to what --

    def test_volumes_and_mounts(self):
        for where, _, spec in self.pods():
            with self.subTest(pod=where):
                mounted = {m["name"] for c in spec.get("initContainers", []) + spec["containers"] for m in c["volumeMounts"]}
                self.assertEqual(mounted, {v["name"] for v in spec["volumes"]})
        for where, spec, c in self.weirs():
            with self.subTest(pod=where):
                host = {v["name"]: v["hostPath"]["path"] for v in spec["volumes"] if "hostPath" in v}
                seen = {m["mountPath"]: host.get(m["name"]) for m in c["volumeMounts"]}
                # The node's own, at their own places: pins, locks and records are shared by every Weir of the node.
                for path in ("/sys/fs/bpf", "/sys/fs/cgroup", "/run/weir"):
                    self.assertEqual(seen.get(path), path)
                self.assertTrue(spec["hostPID"])

    def test_two_weirs_share_neither_a_node_nor_a_state_directory(self):
        states = [h for _, spec, _ in self.weirs() for v in spec["volumes"] if v["name"] == "state" for h in [v["hostPath"]["path"]]]
        self.assertEqual(len(states), 2)
        self.assertEqual(len(set(states)), 2)
        term, = self.of("node", "DaemonSet")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        self.assertIn({"key": "weir.dev/service", "operator": "DoesNotExist"}, term["matchExpressions"])
        self.assertEqual(self.of("service", "Deployment")["spec"]["template"]["spec"]["nodeSelector"]["weir.dev/service"], "true")
        self.assertEqual(self.of("service", "Deployment")["spec"]["replicas"], 1)

    def test_selectors_meet_their_pods(self):
        meta = {where: m for where, m, _ in self.pods()}
        for folder, kind in (("node", "DaemonSet"), ("service", "Deployment")):
            self.assertLessEqual(self.of(folder, kind)["spec"]["selector"]["matchLabels"].items(), meta[folder + "/weir"]["labels"].items())
        service = self.of("service", "Service")["spec"]
        self.assertLessEqual(service["selector"].items(), meta["service/weir"]["labels"].items())
        self.assertEqual(service["type"], "ClusterIP")
        ports = {p["name"]: p["containerPort"] for p in self.of("service", "Deployment")["spec"]["template"]["spec"]["containers"][0]["ports"]}
        self.assertEqual([p["targetPort"] for p in service["ports"]], list(ports))
        self.assertEqual({kind for folder, kind, _ in self.documents if folder == "service"} & {"Ingress", "Gateway", "HTTPRoute"}, set())

    def test_network_policy_lets_labelled_agents_in_and_nobody_else(self):
        meta = {where: m for where, m, _ in self.pods()}
        everybody, own = self.of("service", "NetworkPolicy", "default-deny")["spec"], self.of("service", "NetworkPolicy")["spec"]
        self.assertEqual((everybody["podSelector"], sorted(everybody["policyTypes"]), set(everybody)), ({}, ["Egress", "Ingress"], {"podSelector", "policyTypes"}))
        self.assertLessEqual(own["podSelector"]["matchLabels"].items(), meta["service/weir"]["labels"].items())
        rule, = own["ingress"]
        peer, = rule["from"]  # one peer with both selectors: both must hold
        space = self.of("example", "Namespace", "weir-example")["metadata"]["labels"]
        self.assertLessEqual(peer["namespaceSelector"]["matchLabels"].items(), space.items())
        self.assertLessEqual(peer["podSelector"]["matchLabels"].items(), meta["example/client"]["labels"].items())
        self.assertFalse(peer["podSelector"]["matchLabels"].items() <= meta["example/agent"]["labels"].items())
        port, = rule["ports"]
        self.assertIn(port["port"], [p["name"] for p in self.of("service", "Deployment")["spec"]["template"]["spec"]["containers"][0]["ports"]])
        # Only the service's own node ports, cluster names and the public internet are left to go to.
        excepted = {e for r in own["egress"] for t in r["to"] for e in t.get("ipBlock", {}).get("except", [])}
        self.assertGreaterEqual(excepted, {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8", "100.64.0.0/10"})

    def test_configuration_is_one_that_weir_takes(self):
        text = self.of("service", "ConfigMap", "weir-config")["data"]["weir.json"]
        config = json.loads(text)
        where, spec, c = next(w for w in self.weirs() if w[0] == "service/weir")
        places = [m["mountPath"] for m in c["volumeMounts"]]
        self.assertIn(config["state_dir"], places)
        for key in ("certificate", "key"):
            self.assertIn(os.path.dirname(config["tls"][key]), places)
        # The names that a Secret of type kubernetes.io/tls has.
        self.assertEqual({os.path.basename(v) for v in config["tls"].values()}, {"tls.crt", "tls.key"})
        self.assertEqual(config["listen"], "0.0.0.0:%d" % c["ports"][0]["containerPort"])
        self.assertEqual(os.path.join(next(m["mountPath"] for m in c["volumeMounts"] if m["name"] == "config"), "weir.json"),
                         re.search(r"--config[= ](\S+)", commands.of_container(c)).group(1))
        with tempfile.TemporaryDirectory() as top:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=weir.weir-service.svc",
                            "-keyout", top + "/tls.key", "-out", top + "/tls.crt"], stderr=subprocess.PIPE, check=True)
            os.chmod(top + "/tls.key", 0o400)
            with open(top + "/weir.json", "w") as f:
                f.write(text.replace("/etc/weir-tls", top).replace(config["state_dir"], top + "/state"))
            done = weir("serve", "--check-config", "--json", "--config", top + "/weir.json")
            self.assertEqual(done.returncode, 0, done.stderr)

    # -- what they say of Weir --

    def test_commands_and_options_exist(self):
        seen = set()
        for path in FILES + [os.path.join(TOP, "deploy", "container", n) for n in ("Containerfile", "weir")]:
            with open(path) as f:
                text = f.read()
            for command in commands.in_text(text):
                with self.subTest(file=os.path.relpath(path, TOP), command=command):
                    self.assertIsNone(commands.problem(command))
                seen.add(command.split()[0] if command else "")
        for where, _, c in self.weirs():
            with self.subTest(pod=where):
                self.assertIsNone(commands.problem(commands.of_container(c).partition("weir ")[2] or " ".join(c["args"])))
        self.assertGreaterEqual(seen, {"attach", "detach", "status", "token", "policy"})
        # .. and the check itself sees a command that there is not.
        for wrong in ("attahc --policy tool-call", "status --jsn", "serve --policies-only", "policy exprt tool-call"):
            self.assertIsNotNone(commands.problem(wrong), wrong)

    def test_probes_ask_what_there_is(self):
        for where, _, c in self.weirs():
            for name in ("startupProbe", "readinessProbe", "livenessProbe"):
                probe = c.get(name, {})
                with self.subTest(pod=where, probe=name):
                    if "exec" in probe:
                        said = " ".join(probe["exec"]["command"])
                        found = list(commands.in_text(said))
                        self.assertEqual(len(found), 1, said)
                        self.assertIsNone(commands.problem(found[0]))
                    elif "httpGet" in probe:
                        with open(os.path.join(TOP, "docs", "api.md")) as f:
                            self.assertIn(probe["httpGet"]["path"], f.read())

    def test_policies_named_exist(self):
        for where, meta, spec in self.pods():
            policy = meta.get("annotations", {}).get("weir.dev/policy")
            if policy:
                with self.subTest(pod=where):
                    self.assertEqual(weir("policy", "check", policy).returncode, 0)
                    # The filter is that policy's.
                    self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "Localhost", "localhostProfile": "weir/%s.json" % policy})
        self.assertIn("weir.dev/policy", self.of("example", "Pod", "agent")["metadata"]["annotations"])

    # -- the image --

    def test_image_has_the_libraries_that_weir_is_linked_to(self):
        with open(os.path.join(TOP, "deploy", "container", "Containerfile")) as f:
            stages = re.split(r"^FROM .*$", f.read(), flags=re.M)
        self.assertEqual(len(stages), 3)
        there = set(stages[2].split())
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", subprocess.run(["readelf", "-d", WEIR], stdout=subprocess.PIPE, check=True, text=True).stdout)
        self.assertGreater(len(needed), 5)
        paths = dict(re.findall(r"(\S+) => (\S+)", subprocess.run(["ldd", WEIR], stdout=subprocess.PIPE, check=True, text=True).stdout))
        for library in needed:
            path = os.path.realpath(paths[library])
            for spelling in (path, re.sub("^/usr", "", path)):
                done = subprocess.run(["dpkg-query", "-S", spelling], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                if done.returncode == 0:
                    break
            with self.subTest(library=library):
                self.assertIn(done.stdout.partition(":")[0], there | {"libc6"})

    def test_image_copies_what_the_build_needs(self):
        with open(os.path.join(TOP, "deploy", "container", "Containerfile")) as f:
            copied = set(re.findall(r"^COPY (\w+)/? ", f.read(), re.M))
        with open(os.path.join(TOP, "Makefile")) as f:
            recipe = f.read()
        for folder in ("bpf", "vmlinux", "userspace", "runner", "policies", "docs", "deploy"):
            self.assertIn(folder + "/", recipe)
            self.assertIn(folder, copied)
        self.assertIn("Makefile", copied)


class Page(unittest.TestCase):
    """docs/operations.md: its commands exist, its table is the program's, its policy and its numbers are right."""

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(TOP, "docs", "operations.md")) as f:
            cls.text = f.read()

    def code(self, language):
        return re.findall(r"(?ms)^ *```%s\n(.*?)^ *```$" % language, self.text)

    def test_commands_and_options_exist(self):
        calls = [c for block in self.code("sh") + self.code("") for c in commands.in_text(block)]
        self.assertGreater(len(calls), 30)
        for call in calls + re.findall(r"`weir ([a-z][^`]*)`", self.text):
            with self.subTest(call=call):
                self.assertIsNone(commands.problem(call))

    def test_table_of_coverage_is_the_programs(self):
        with open(os.path.join(TOP, "userspace", "core", "coverage.c")) as f:
            rows = dict(re.findall(r"\[WEAK_\w+\] =\s*\{\"(\w+)\", (\w+)", f.read()))
        grades = {"PARTIAL": "partial", "REFUSED": "refused", "FORCEABLE": "refused, or `--force`"}
        there = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", self.text, re.M))
        self.assertEqual(there, {name: grades[grade] for name, grade in rows.items()})

    def test_policy_in_it_is_one(self):
        block, = self.code("json")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            f.write(block)
            f.flush()
            self.assertEqual(weir("policy", "check", f.name).returncode, 0)
            for to, verdict in (("tcp://10.96.13.37:8443", "allowed"), ("tcp://10.96.13.37:443", "denied"), ("tcp://10.96.13.38:8443", "denied"), ("tcp://8.8.8.8:443", "allowed")):
                self.assertIn(verdict, weir("policy", "explain", f.name, "--to", to).stdout.decode().splitlines()[0], to)

    def test_limits_are_the_programs(self):
        numbers = {}
        for path in glob.glob(os.path.join(TOP, "userspace", "attach", "*.h")):
            with open(path) as f:
                numbers.update(re.findall(r"^#define (\w+) (\d+)\b", f.read(), re.M))
        for name, row in (("ATTACHED_MAX", "attachments of a host"), ("ATTACHED_RESOLVERS", "name servers of one"), ("INSPECT_SOCKETS_MAX", "open sockets listed"),
                          ("INSPECT_PROCESSES_MAX", "processes looked at"), ("FOREIGN_MAX", "programs of others listed")):
            said = re.search(r"^\| %s[^|]*\| ([\d,]+)" % row, self.text, re.M)
            self.assertEqual(said and said.group(1).replace(",", ""), numbers[name], row)

    def test_order_of_carried_parents_cuts_nobody_off(self):
        """The steps for a node, on cgroups that look like its: who had a network keeps it, step by step, and at the end a newcomer has none."""
        block = next(b for b in self.code("sh") if "kubepods-besteffort.slice" in b)
        steps = [shlex.split(line, comments=True)[1:] for line in block.splitlines() if line.startswith("weir attach")]
        top = "%s/weir-test-node-%d-kubepods.slice" % (cgroup2_mount(), os.getpid())
        pods = {"agent": top + "/kubepods-besteffort.slice/pod-1", "dns": top + "/kubepods-burstable.slice/pod-2", "monitor": top + "/pod-3"}
        late = top + "/kubepods-besteffort.slice/pod-4"
        for path in pods.values():
            os.makedirs(path)

        def take_down():
            weir("detach", "--parent", top)
            for path in [*pods.values(), late, *{os.path.dirname(p) for p in pods.values()}, top]:
                weir("detach", "--cgroup", path)
                weir("detach", "--parent", path)
            subprocess.run(["find", top, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], check=True)

        def meets(path):
            """What a process there meets at an address that tool-call allows: a network that leads nowhere, or a refusal."""
            code = "import socket\ntry: socket.create_connection(('8.77.0.1', 80))\nexcept OSError as e: print(e.strerror)"
            script = 'echo $$ > "$0/cgroup.procs" && exec unshare --net setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all --no-new-privs /usr/bin/python3 -c "$1"'
            return subprocess.run(["sh", "-c", script, path, code], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()

        self.addCleanup(take_down)
        seen = []
        for step in steps:
            if "--pod" in step:
                targets = [pods["agent"]] if "tool-call" in step else [pods["dns"], pods["monitor"]]
                calls = [["attach", "--policy", step[step.index("--policy") + 1], "--cgroup", t] for t in targets]
            else:
                calls = [[w.replace("$PWD", top) for w in step]]
            for call in calls:
                done = weir(*call)
                self.assertEqual(done.returncode, 0, (call, done.stderr))
                self.assertEqual({name: meets(path) for name, path in pods.items()}, dict.fromkeys(pods, "Network is unreachable"), call)
            seen.append((step[step.index("--unknown") + 1]) if "--unknown" in step else "policy")
        self.assertEqual(seen, ["allow"] * 3 + ["policy"] * 2 + ["deny"] * 3)
        os.makedirs(late)
        self.assertEqual(meets(late), "Operation not permitted")
        self.assertEqual(weir("attach", "--policy", "tool-call", "--cgroup", late).returncode, 0)
        self.assertEqual(meets(late), "Network is unreachable")

    def test_base_specification_gets_its_hooks(self):
        """The script that turns containerd's own into one with hooks."""
        script = re.search(r"python3 -c '\n(.*?)' > /etc/containerd/weir-base.json", self.text, re.S).group(1)
        script = re.sub(r"^  ", "", script, flags=re.M)
        done = subprocess.run(["python3", "-c", script], input=b'{"ociVersion": "1.0.2"}', stdout=subprocess.PIPE, check=True)
        hooks = json.loads(done.stdout)["hooks"]
        self.assertEqual(set(hooks), {"createRuntime", "poststop"})
        for hook in (h for stage in hooks.values() for h in stage):
            self.assertEqual(hook["path"], "/usr/local/bin/weir")
            self.assertIsNone(commands.problem(" ".join(hook["args"][1:])))


if __name__ == "__main__":
    unittest.main()
