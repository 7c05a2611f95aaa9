# SPDX-License-Identifier: Apache-2.0
"""What a tool finds around itself: the environment, the file systems, the path of modules, the image's own things."""
import json
import re
import unittest

from fixture import Agents
from image_roots import VERSION

SITE = "/usr/local/lib/%s/dist-packages" % VERSION
UID_SANDBOX_FIRST = 0x70000000 + 1000
MIB = 1 << 20

APP = r"""
import json, os, resource, sys
import helper, onpath, usersite

def variables(): return dict(os.environ)
def modules(): return [helper.WHERE, onpath.WHERE, usersite.WHERE]
def path(): return sys.path
def inside():
    status = dict(line.rstrip("\n").split(":", 1) for line in open("/proc/self/status"))
    return {
        "cwd": os.getcwd(), "argv": sys.argv, "pid": os.getpid(), "node": os.uname().nodename, "box": os.listdir("/box"), "home": os.listdir(os.environ["HOME"]),
        "cpus": [os.cpu_count(), os.sysconf("SC_NPROCESSORS_ONLN"), open("/sys/devices/system/cpu/online").read(), open("/sys/devices/system/cpu/possible").read()],
        "sizes": {p: [s.f_blocks * s.f_bsize, s.f_files] for p in ("/box", "/tmp", "/dev/shm") for s in [os.statvfs(p)]},
        "files": resource.getrlimit(resource.RLIMIT_NOFILE), "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
        "status": {k: status[k].strip() for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")},
        "fds": sorted(int(n) for n in os.listdir("/proc/self/fd")), "low": {n: os.readlink("/proc/self/fd/" + n).split(":")[0] for n in ("0", "1", "2")},
        "mounts": open("/proc/self/mountinfo").read(), "cgroup": open("/proc/self/cgroup").read(),
        "resolvers": open("/etc/resolv.conf").read(), "hosts": open("/etc/hosts").read(),
    }
def writes(path):
    try:
        with open(path, "x") as f: f.write("x")
    except OSError as e: return type(e).__name__
    return "written"
def relative(): return open("data.txt").read()
def below():
    import subprocess
    return subprocess.run([sys.executable, "-c", "import sys; print(sys._xoptions, 'weir' in ''.join(sys.modules))"], stdout=subprocess.PIPE, text=True).stdout
"""

FILES = {
    "app.py": APP,
    "helper.py": "WHERE = __file__\n",
    "/opt/lib/onpath.py": "WHERE = __file__\n",
    "/root/.local/lib/%s/site-packages/usersite.py" % VERSION: "WHERE = __file__\n",
    # What comes first: the author's own, as in the container.
    "/root/.local/lib/%s/site-packages/helper.py" % VERSION: "WHERE = 'the wrong one'\n",
    "/app/data.txt": "of the image",
}
VARIABLES = {
    "PATH": "/opt/bin:/usr/local/bin:/usr/bin:/bin",
    "PYTHONPATH": "/opt/lib",
    "TZ": "Europe/Oslo",
    "EMPTY": "",
    "EQUALS": "a=b=c",
    "WIDE": "é😀",
    "OMP_NUM_THREADS": "7",
    # The platform's own
    "HOME": "/root",
    "USER": "root",
    "TMPDIR": "/var/tmp",
    "SHELL": "/bin/zsh",
    "PYTHONIOENCODING": "latin-1",
    "PYTHONVERBOSE": "1",
    "SANDBOX_URL": "http://elsewhere",
    "SANDBOX_TOKEN": "x",
    "TOOL_SANDBOX": "false",
    "CODE_INTERPRETER_SESSION": "true",
    # What looks like a credential stays in the image
    "OPENAI_API_KEY": "sk-1",
    "DB_PASSWORD": "p",
}
EXPECTED = {
    "PATH": VARIABLES["PATH"], "HOME": "/tmp/home", "USER": "sandbox", "LOGNAME": "sandbox", "SHELL": "/bin/sh", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "Europe/Oslo", "TMPDIR": "/tmp",
    "XDG_CACHE_HOME": "/tmp/home/.cache", "MPLCONFIGDIR": "/tmp/home/.config/matplotlib", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "7", "PYTHON_CPU_COUNT": "2",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt", "PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPATH": "/opt/lib", "EMPTY": "", "EQUALS": "a=b=c", "WIDE": "é😀",
}  # fmt: skip
agents = None


def setUpModule():
    global agents
    agents = Agents(FILES, tools=["app"], variables=VARIABLES)


def tearDownModule():
    agents.stop()


class Inside(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = agents.result("inside")

    def test_environment(self):
        self.assertEqual(agents.result("variables"), EXPECTED)

    def test_modules(self):
        self.assertEqual(agents.result("modules"), ["/app/helper.py", "/opt/lib/onpath.py", "/root/.local/lib/%s/site-packages/usersite.py" % VERSION])
        self.assertEqual(agents.result("path")[:2], ["/app", "/opt/lib"])

    def test_place(self):
        self.assertEqual((self.found["cwd"], self.found["argv"], self.found["pid"], self.found["node"], self.found["box"], self.found["home"]), ("/box", ["weir-tool"], 2, "sandbox", [], []))

    def test_two_cpus(self):
        self.assertEqual(self.found["cpus"], [2, 2, "0-1\n", "0-1\n"])

    def test_sizes(self):
        self.assertEqual(self.found["sizes"], {p: [256 * MIB, 65536] for p in ("/box", "/tmp", "/dev/shm")})
        self.assertEqual((self.found["files"], self.found["core"]), ([4096, 4096], 1))

    def test_nobody(self):
        uid, gid, groups = self.found["ids"]
        self.assertGreaterEqual(uid[0], UID_SANDBOX_FIRST)
        self.assertEqual((uid, gid, groups), ([uid[0]] * 3, [uid[0]] * 3, []))
        status = self.found["status"]
        self.assertEqual({status.pop(k) for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}, {"0" * 16})
        self.assertEqual(status, {"NoNewPrivs": "1", "Seccomp": "2"})

    def test_descriptors(self):
        # Standard streams, the listing's own, and the result, where nobody counts up to.
        self.assertEqual((self.found["fds"][:4], len(self.found["fds"])), ([0, 1, 2, 3], 5))
        self.assertGreater(self.found["fds"][4], 1000)
        self.assertEqual(self.found["low"], {"0": "/dev/null", "1": "pipe", "2": "pipe"})

    def test_mounts(self):
        mounts = {}
        for line in self.found["mounts"].splitlines():
            left, right = line.split(" - ")
            mounts[left.split()[4]] = (right.split()[0], set(left.split()[5].split(",")))
        self.assertEqual({p: kind for p, (kind, _) in mounts.items()}, {"/": "overlay", "/etc": "overlay", "/dev": "tmpfs", "/dev/shm": "tmpfs", "/tmp": "tmpfs", "/box": "tmpfs", "/proc": "proc"})
        for path, (_, flags) in mounts.items():
            self.assertIn("nosuid", flags, path)
            self.assertEqual("rw" in flags, path in ("/box", "/tmp", "/dev/shm"), path)
        for text in (self.found["mounts"], self.found["cgroup"]):
            self.assertNotIn(agents.state, text)
        self.assertEqual({line.split(":", 2)[2] for line in self.found["cgroup"].splitlines()}, {"/"})

    def test_name_servers(self):
        lines = self.found["resolvers"].splitlines()
        self.assertEqual(lines[-1], "options edns0 timeout:2 attempts:2")
        self.assertTrue(lines[:-1])
        for line in lines[:-1]:
            self.assertRegex(line, r"^nameserver [0-9a-f.:]+$")
            self.assertNotRegex(line, r" (127\.|::1$)")
        self.assertIn("127.0.0.1\tlocalhost", self.found["hosts"])

    def test_what_can_be_written(self):
        for path, want in (("/box/a", "written"), ("/tmp/a", "written"), ("/dev/shm/a", "written"), ("/tmp/home/a", "written"), ("/app/a", "OSError"), ("/etc/a", "OSError"), ("/a", "OSError"), (SITE + "/a", "OSError")):
            with self.subTest(path):
                self.assertEqual(agents.result("writes", {"path": path}), want)

    def test_each_call_is_the_first(self):
        seen = [agents.call("writes", {"path": "/box/once"}) for _ in range(4)]
        self.assertEqual([s["result"] for s in seen], ["written"] * 4)
        self.assertEqual(len({s["sandbox_id"] for s in seen}), 4)

    def test_working_directory_is_not_the_images(self):
        answer = agents.call("relative")
        self.assertEqual(answer["error"]["type"], "FileNotFoundError")
        self.assertIn('File "/app/app.py"', answer["error"]["traceback"])

    def test_children_are_ordinary_interpreters(self):
        self.assertEqual(agents.result("below"), "{} False\n")

    def test_describe(self):
        found = agents.result("weir:describe", {"tools": [{"name": "app:writes", "signature": "(path)"}, {"name": "app:gone", "signature": ""}]})
        self.assertEqual([(t["ok"], t["signature"]) for t in found["tools"]], [(True, "(path)"), (False, None)])
        self.assertEqual(found["modules"], ["app"])
        self.assertTrue(re.fullmatch(r"3\.\d+\.\d+", found["python"]), found)

    def test_a_large_result(self):
        agents.add("large", {"big.py": "def sized(n): return 'x' * (n - 2)\n"})
        self.assertEqual(len(agents.result("sized", {"n": 8 * MIB}, agent="large")), 8 * MIB - 2)
        answer = agents.call("sized", {"n": 8 * MIB + 1}, agent="large")
        self.assertEqual(answer["error"], {"type": "ToolResultError", "message": "the result is too large (8388609 bytes; the limit is 8388608)", "traceback": ""})


class Kinds(unittest.TestCase):
    """The same from what else an image can be."""

    def test_docker_archive(self):
        agents.add("docker", {"dock.py": "import sys\ndef where(): return [__file__, sys.path[0]]\n"}, kind="docker")
        self.assertEqual(agents.result("where", agent="docker"), ["/app/dock.py", "/app"])

    def test_directory(self):
        # It has no configuration, so a container would start in "/".
        # Neither is what it has where Weir keeps its lists of fonts any reason to fail.
        fonts = {"/usr/share/weir/cache/matplotlib/fontlist-%d.json" % n: "{}" for n in range(40)}
        source = "import sys, os\ndef where(): return [__file__, sys.path[0], os.environ['PATH']]\ndef fonts(): return len(os.listdir(os.environ['MPLCONFIGDIR']))\n"
        agents.add("folder", dict(fonts, **{"flat.py": source}), tools=["flat"], kind="directory", workdir="/")
        self.assertEqual(agents.result("where", agent="folder"), ["/flat.py", "/", "/usr/local/bin:/usr/bin:/bin"])
        self.assertEqual(agents.result("fonts", agent="folder"), 4)

    def test_snippets_are_as_they_were(self):
        code = "import os, json\nprint(json.dumps([dict(os.environ), os.cpu_count(), sorted(int(n) for n in os.listdir('/proc/self/fd')), open('/etc/resolv.conf').read(), os.statvfs('/box').f_files]))"
        variables, cpus, fds, resolvers, inodes = json.loads(agents.service.run(code)["stdout"])
        own = {k: v for k, v in EXPECTED.items() if k not in ("PYTHONPATH", "EMPTY", "EQUALS", "WIDE")}
        self.assertEqual(variables, dict(own, PATH="/usr/local/bin:/usr/bin:/bin", TZ="UTC", OMP_NUM_THREADS="1", PYTHON_CPU_COUNT="1"))
        self.assertEqual((cpus, fds, resolvers, inodes), (1, [0, 1, 2, 3], "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", 16384))


if __name__ == "__main__":
    unittest.main()
