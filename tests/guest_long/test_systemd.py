# SPDX-License-Identifier: Apache-2.0
"""deploy/systemd under a real systemd: the hardened units do their work, and the drop-in puts a policy on a service.

A systemd is started as pid 1 of a pid namespace, with the cgroup tree, the kernel and the units of the emulated machine. It would
take over a machine that is no throw-away one, so nothing of this runs anywhere else."""
import glob
import json
import os
import re
import shutil
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from lib import SLOW, TOP, WEIR, weir

DEPLOY = os.path.join(TOP, "deploy", "systemd")
ETC = "/etc/systemd/system"
URL = "http://127.0.0.1:8380"
# What a start of the whole machine would bring; none of it is wanted here.
UNWANTED = [
    "systemd-udevd.service", "systemd-udev-trigger.service", "systemd-journald.service", "systemd-journal-flush.service", "systemd-tmpfiles-setup.service",
    "systemd-tmpfiles-setup-dev.service", "systemd-sysusers.service", "systemd-random-seed.service", "systemd-update-utmp.service", "systemd-journal-catalog-update.service",
    "systemd-hwdb-update.service", "ldconfig.service", "systemd-machine-id-commit.service", "systemd-firstboot.service", "systemd-modules-load.service",
    "systemd-sysctl.service", "systemd-remount-fs.service", "systemd-binfmt.service", "kmod-static-nodes.service", "keyboard-setup.service", "console-setup.service",
    "apparmor.service", "systemd-journald.socket", "systemd-journald-dev-log.socket", "systemd-journald-audit.socket", "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket", "systemd-initctl.socket", "dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "sys-fs-fuse-connections.mount", "sys-kernel-config.mount", "proc-sys-fs-binfmt_misc.mount", "getty.target", "timers.target",
]
# An agent that tries two addresses for ever; no network leads to either.
AGENT = """
import socket, time
def ask(address):
    s = socket.socket()
    try:
        s.connect((address, 80))
    except OSError as e:
        return e.strerror
    finally:
        s.close()
while True:
    print("denied:", ask("10.77.0.1"), "allowed:", ask("8.77.0.1"), flush=True)
    time.sleep(0.3)
"""
FREE = "denied: Network is unreachable allowed: Network is unreachable"
UNDER_POLICY = "denied: Operation not permitted allowed: Network is unreachable"


def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)


def inside(*command):
    """A command where systemd and its units are. systemd talks to nobody whose process it cannot see; and to a Weir on the outside the
    units would be a container."""
    with open("/run/units/pid") as f:
        return ["nsenter", "--target", f.read(), "--pid", "--mount", *command]


def systemctl(*args, expect=0):
    done = subprocess.run(inside("systemctl", "--no-pager", *args), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20 * SLOW)
    if expect is not None and done.returncode != expect:
        raise AssertionError("systemctl %s: %d\n%s%s" % (" ".join(args), done.returncode, done.stdout.decode(), said_by_weir()))
    return done.stdout.decode().strip()


def until(condition, seconds, what):
    deadline = time.monotonic() + seconds * SLOW
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(what() if callable(what) else what)
        time.sleep(0.2)
    return found


def log(unit):
    path = "/run/units/%s.log" % unit
    return open(path).read() if os.path.exists(path) else ""


def said_by_weir():
    """What `weir attach` has said to the agent's log, between its own lines."""
    return "\n".join(line for line in log("agent").splitlines() if not line.startswith("denied:"))


def ready():
    try:
        return urllib.request.urlopen(URL + "/readyz", timeout=10).status == 200
    except (urllib.error.URLError, OSError):
        return False


class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "WEIR_VM" not in os.environ:
            raise unittest.SkipTest("only in the emulated machine: a systemd of its own would take over this one")
        shutil.copy(WEIR, "/usr/local/bin/weir")
        for unit in glob.glob(DEPLOY + "/*.service"):
            shutil.copy(unit, "/usr/local/lib/systemd/system/" if os.path.isdir("/usr/local/lib/systemd/system") else ETC)
        for path in glob.glob(ETC + "/*.wants"):
            shutil.rmtree(path)
        for unit in UNWANTED:
            if not os.path.lexists(os.path.join(ETC, unit)):
                os.symlink("/dev/null", os.path.join(ETC, unit))
        put("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
        put(ETC + "/idle.target", "[Unit]\nDefaultDependencies=no\n")
        for unit in ("weir", "weir-policy-only", "agent"):
            put("%s/%s.service.d/log.conf" % (ETC, unit), "[Service]\nStandardOutput=append:/run/units/%s.log\nStandardError=append:/run/units/%s.log\n" % (unit, unit))
        os.makedirs("/run/units", exist_ok=True)
        put("/run/units/agent.py", AGENT)
        put(ETC + "/agent.service", "[Service]\nExecStart=/usr/bin/python3 /run/units/agent.py\nUser=daemon\n")
        if not os.path.ismount("/sys/fs/bpf"):
            subprocess.run(["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"], check=True)
        cls.systemd = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--propagation", "shared", "/lib/systemd/systemd", "--system", "--unit=idle.target",
             "--show-status=no", "--log-target=null"],
            env={"container": "other", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, stdin=subprocess.DEVNULL)
        child = "/proc/%d/task/%d/children" % (cls.systemd.pid, cls.systemd.pid)
        put("/run/units/pid", until(lambda: open(child).read().strip(), 10, "unshare started nothing"))
        until(lambda: systemctl("is-system-running", expect=None) in ("running", "degraded", "starting"), 10, "systemd did not start")

    @classmethod
    def tearDownClass(cls):
        if hasattr(cls, "systemd"):
            weir("detach", "--all")
            cls.systemd.kill()
            cls.systemd.wait()
            weir("uninstall")

    def drop_in(self, change=lambda text: text, extra=""):
        with open(DEPLOY + "/10-weir-policy.conf") as f:
            put(ETC + "/agent.service.d/10-weir-policy.conf", change(f.read()))
        put(ETC + "/agent.service.d/20-more.conf", "[Service]\n" + extra)
        systemctl("daemon-reload")

    def agent_says(self, what):
        """Its next lines, whole ones: all of them."""
        before = log("agent").count("denied:")
        until(lambda: log("agent").count("denied:") >= before + 3, 10, lambda: "the agent says nothing\n" + log("agent"))
        self.assertEqual(set(log("agent").splitlines()[-2:]), {what})

    def attached(self):
        said = json.loads(weir("status", "--json").stdout)
        return [a for a in said["attachments"] if a["state"] != "gone"], said["events"]

    def test_service_is_hardened_and_serves(self):
        systemctl("start", "weir")
        until(ready, 20, lambda: log("weir"))
        token = weir("token", "mint", "--project", "demo").stdout.decode().strip()
        code = "import os\nos.makedirs('d')\nopen('d/out.txt', 'w').write(open('in.txt').read())\nos.chmod('d/out.txt', 0)\nprint(6*7)"
        body = {"code": code, "files": [{"path": "in.txt", "content": "x"}]}
        request = urllib.request.Request(URL + "/v1/execute", json.dumps(body).encode(), {"Authorization": "Bearer " + token, "Content-Type": "application/json"})
        answer = json.loads(urllib.request.urlopen(request, timeout=10 * SLOW).read())
        self.assertEqual((answer["stdout"], [f["path"] for f in answer["files"]]), ("42\n", ["d/out.txt"]), answer)
        systemctl("reload", "weir")
        systemctl("kill", "--kill-who=main", "--signal=KILL", "weir")
        until(lambda: systemctl("show", "-P", "NRestarts", "weir") == "1" and ready(), 20, lambda: log("weir"))
        systemctl("stop", "weir")
        self.assertEqual((systemctl("show", "-P", "Result", "weir"), systemctl("show", "-P", "ActiveState", "weir")), ("success", "inactive"))
        self.assertIn("stopped", log("weir").splitlines()[-1])

    def test_a_policy_on_a_service(self):
        self.addCleanup(systemctl, "stop", "agent", "weir-policy-only", expect=None)
        systemctl("start", "agent")
        self.agent_says(FREE)
        systemctl("start", "weir-policy-only")
        until(ready, 10, lambda: log("weir-policy-only"))
        self.drop_in()
        systemctl("restart", "agent")
        self.agent_says(UNDER_POLICY)
        until(lambda: self.attached()[1]["written"], 10, "nobody writes events")
        (one,), _ = self.attached()
        self.assertEqual((one["state"], one["target"]["cgroup"], one["policy"]["name"]), ("in force", "/system.slice/agent.service", "tool-call"))
        # Nobody of Weir is left: it holds.
        systemctl("kill", "--kill-who=all", "--signal=KILL", "weir-policy-only")
        systemctl("stop", "weir-policy-only")
        self.agent_says(UNDER_POLICY)
        self.assertTrue(glob.glob("/sys/fs/bpf/weir/attached/*"))
        systemctl("start", "weir-policy-only")
        until(ready, 10, lambda: log("weir-policy-only"))
        # With the service the policy goes, and leaves nothing.
        systemctl("stop", "agent")
        until(lambda: not glob.glob("/sys/fs/bpf/weir/attached/*"), 10, lambda: str(self.attached()))

    def test_a_service_that_cannot_have_its_policy_does_not_start(self):
        self.addCleanup(systemctl, "stop", "agent", expect=None)
        self.drop_in(change=lambda text: text.replace("--policy tool-call", "--policy there-is-none"))
        systemctl("start", "agent", expect=1)
        self.assertEqual(systemctl("show", "-P", "ActiveState", "agent"), "failed")

    def test_systemds_own_programs_run_beside_weirs(self):
        self.addCleanup(systemctl, "stop", "agent", expect=None)
        for more in ("", "Delegate=yes\n"):
            self.drop_in(extra="IPAddressDeny=8.77.0.0/24\n" + more)
            systemctl("restart", "agent")
            self.agent_says(UNDER_POLICY)
            (one,), _ = self.attached()
            self.assertEqual(one["state"], "in force")
            self.assertEqual({(f["prog"], f["effect"]) for f in one["foreign"]}, {("sd_fw_egress", "beside"), ("sd_fw_ingress", "beside")})

    def test_lines_that_wait_to_be_uncommented(self):
        """What is left to be said of a service that has them all."""
        self.addCleanup(systemctl, "stop", "agent", expect=None)
        def uncomment(text):
            return re.sub(r"^#(?!Delegate)(?=[A-Z]\w+=)", "", text.replace("User=agent", "User=daemon"), flags=re.M)

        for change, extra, left in ((str, "User=root\n", {"root", "net_raw", "net_admin", "host_network"}), (uncomment, "", {"host_network"})):
            self.drop_in(change, extra)
            systemctl("restart", "agent")
            self.agent_says(UNDER_POLICY)
            (one,), _ = self.attached()
            self.assertEqual({r["name"] for r in one["reasons"]}, {"empty"})
            done = subprocess.run(inside("/usr/local/bin/weir", "attach", "--policy", "tool-call", "--cgroup", "/system.slice/agent.service", "--json"),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20 * SLOW)
            again = json.loads(done.stdout)
            self.assertEqual({r["name"] for r in again["reasons"]}, left)
            self.agent_says(UNDER_POLICY)


if __name__ == "__main__":
    unittest.main()
