# SPDX-License-Identifier: Apache-2.0
"""numpy, pandas and matplotlib as the distribution packages them, in a configured root: they just work.

The root is made once with mmdebstrap, from the sources this machine's apt uses, and kept under build/packages.
"""
import base64
import glob
import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

from lib import BUILD, Service, weir

PACKAGES = "python3-numpy python3-pandas python3-matplotlib libopenblas0-pthread ca-certificates tzdata".split()
UNWANTED = ("/usr/include/*", "/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def sources():
    return [p for p in ["/etc/apt/sources.list"] + sorted(glob.glob("/etc/apt/sources.list.d/*")) if p.endswith((".list", ".sources")) and os.path.exists(p) and os.path.getsize(p)]


def make_root():
    """The root's path; made if there is none of these packages in these versions."""
    policy = subprocess.run(["apt-cache", "policy", "libc6", "python3", *PACKAGES], stdout=subprocess.PIPE, check=True, text=True).stdout
    candidates = [line.split()[1] for line in policy.splitlines() if line.startswith("  Candidate:")]
    key = hashlib.sha256(repr((PACKAGES, UNWANTED, candidates)).encode()).hexdigest()[:16]
    folder = os.path.join(BUILD, "packages")
    root = os.path.join(folder, key)
    if os.path.isdir(root):
        return root
    shutil.rmtree(folder, ignore_errors=True)  # of other versions, or half made
    os.makedirs(folder)
    with open("/etc/os-release") as f:
        release = dict(line.rstrip().split("=", 1) for line in f if "=" in line)
    started = time.monotonic()
    command = ["mmdebstrap", "--quiet", "--variant=apt", "--mode=root", "--format=directory", "--include=" + ",".join(PACKAGES)]
    command += ["--aptopt=Apt::Install-Recommends \"false\"", "--dpkgopt=force-unsafe-io"] + ["--dpkgopt=path-exclude=" + p for p in UNWANTED]
    done = subprocess.run(command + [release["VERSION_CODENAME"].strip('"'), root + ".new", *sources()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError("mmdebstrap: " + done.stdout[-3000:])
    os.rename(root + ".new", root)
    print("          made the root in %.0f s" % (time.monotonic() - started), flush=True)
    return root


# What a snippet does with them; prints figures as JSON on its last line.
WORK = r"""
import json, os, sys, time
found = {}
def listing():
    top = os.environ['MPLCONFIGDIR']
    return sorted((n, os.readlink(os.path.join(top, n)) if os.path.islink(os.path.join(top, n)) else os.stat(os.path.join(top, n)).st_size) for n in os.listdir(top)) if os.path.isdir(top) else None
found['before'] = listing()
def imported(name):
    start = time.monotonic()
    module = __import__(name)
    found[name] = [module.__version__, round(time.monotonic() - start, 3)]
    return module
np = imported('numpy')
pd = imported('pandas')
imported('matplotlib.pyplot')
import matplotlib, matplotlib.pyplot as plt
found['backend'] = matplotlib.get_backend()

frame = pd.DataFrame({'x': np.arange(1000), 'y': np.sin(np.arange(1000) / 50)})
frame['group'] = frame.x % 7
means = frame.groupby('group').y.mean()
a = np.random.default_rng(1).random((400, 400))
found['solved'] = bool(np.allclose(np.linalg.solve(a, a @ np.ones(400)), np.ones(400)))
frame.to_csv('table.csv', index=False)
found['rows'] = len(pd.read_csv('table.csv'))

figure, axes = plt.subplots(figsize=(6, 4))
axes.plot(frame.x, frame.y, label='sin \u03b1')
axes.set_title('A plot'); axes.legend()
start = time.monotonic()
figure.savefig('plot.png', dpi=100)
found['plot'] = round(time.monotonic() - start, 3)
plt.show()
found['after'] = listing()
print(json.dumps(found))
"""


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = make_root()
        cls.state = tempfile.mkdtemp(prefix="weir-test-state-")
        cls.service = Service("--image", cls.root, state=cls.state)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()
        shutil.rmtree(cls.state)

    def figures(self, answer):
        self.assertEqual((answer["exit_code"], answer["stderr"]), (0, ""), answer["stdout"])
        return json.loads(answer["stdout"].splitlines()[-1])

    def test_import_compute_plot(self):
        """Twice, each in a sandbox of its own: the picture comes back, and no run makes a cache."""
        for which in ("first", "second"):
            answer = self.service.run(WORK, timeout_s=60)
            found = self.figures(answer)
            print("          %s run: numpy %s in %s s, pandas %s in %s s, matplotlib in %s s, plot in %s s; %d ms in all" % (
                which, *found["numpy"], *found["pandas"], found["matplotlib.pyplot"][1], found["plot"], answer["duration_ms"]))
            self.assertEqual((found["solved"], found["rows"], found["backend"].lower()), (True, 1000, "agg"))
            # The list of fonts is a link into the read-only root, before and after: it was used as it is.
            self.assertEqual(found["before"], found["after"])
            ((name, target),) = found["after"]
            self.assertRegex(name, r"^fontlist-v\d+\.json$")
            self.assertEqual(target, "/usr/share/weir/cache/matplotlib/" + name)
            files = {f["path"]: f for f in answer["files"]}
            self.assertEqual(sorted(files), ["plot.png", "table.csv"])
            png = base64.b64decode(files["plot.png"]["content_base64"])
            self.assertEqual((png[:8], files["plot.png"]["media_type"], files["plot.png"]["size"]), (b"\x89PNG\r\n\x1a\n", "image/png", len(png)))
            self.assertEqual(struct.unpack(">II", png[16:24]), (600, 400))
            self.assertGreater(len(png), 5000)

    def test_without_the_cache_a_run_makes_its_own(self):
        """The counter-proof: what the test above looks for is there when nobody has made it beforehand."""
        done = weir("run", "--image", self.root, "--timeout", "60", "-c", WORK)
        found = json.loads(done.stdout.decode().splitlines()[-1])
        self.assertIsNone(found["before"])
        ((name, size),) = found["after"]
        self.assertGreater(size, 1000)

    def test_one_cpu_is_what_they_see(self):
        code = (
            "import os, json, ctypes, subprocess, resource, multiprocessing, concurrent.futures as cf\nimport numpy as np\n"
            "a = np.random.rand(800, 800); a @ a; np.linalg.svd(a[:200, :200])\n"
            "blas = any('openblas' in l for l in open('/proc/self/maps'))\n"
            "print(json.dumps([blas, len(os.listdir('/proc/self/task')), os.cpu_count(), multiprocessing.cpu_count(), len(os.sched_getaffinity(0)), ctypes.CDLL('libgomp.so.1').omp_get_max_threads(),\n"
            "    subprocess.check_output('nproc', text=True).strip(), resource.getrlimit(resource.RLIMIT_AS) == (-1, -1)]))"
        )
        found = self.figures(self.service.run(code))
        self.assertEqual(found, [True, 1, 1, 1, 1, 1, "1", True])
        # A caller who wants more threads of OpenMP gets them, on the one CPU.
        found = self.figures(self.service.run(code, env={"OMP_NUM_THREADS": "3"}))
        self.assertEqual(found[4:6], [1, 3])

    def test_processes(self):
        code = (
            "import multiprocessing as mp, numpy as np, json\n"
            "def f(n): return float(np.linalg.norm(np.ones(n)))\n"
            "if __name__ == '__main__':\n"
            "    out = {}\n"
            "    for how in ('fork', 'spawn', 'forkserver'):\n"
            "        with mp.get_context(how).Pool(2) as p: out[how] = p.map(f, [4, 9, 16])\n"
            "    print(json.dumps(out))"
        )
        self.assertEqual(self.figures(self.service.run(code, timeout_s=60)), {how: [2.0, 3.0, 4.0] for how in ("fork", "spawn", "forkserver")})

    def test_files_in_and_out(self):
        code = "import pandas as pd\nd = pd.read_csv('in/a.csv')\nd['z'] = d.x * d.y\nd.to_json('out.json', orient='records')\nd.to_pickle('out.pkl')"
        answer = self.service.run(code, files=[{"path": "in/a.csv", "content": "x,y\n1,2\n3,4\n"}])
        self.assertEqual((answer["exit_code"], answer["stderr"]), (0, ""))
        files = {f["path"]: f for f in answer["files"]}
        self.assertEqual(json.loads(base64.b64decode(files["out.json"]["content_base64"])), [{"x": 1, "y": 2, "z": 2}, {"x": 3, "y": 4, "z": 12}])
        self.assertIn("out.pkl", files)

    def test_a_session_keeps_them(self):
        session = self.service.request("POST", "/v1/sessions", {}).json()["session_id"]
        try:
            self.assertEqual(self.service.run("import pandas as pd\nframe = pd.DataFrame({'a': [1, 2]})", session_id=session)["exit_code"], 0)
            answer = self.service.run("import matplotlib.pyplot as plt\nframe.plot()\nplt.savefig('s.png')\nprint(len(frame))", session_id=session, timeout_s=60)
            self.assertEqual((answer["stdout"], answer["stderr"], [f["path"] for f in answer["files"]]), ("2\n", "", ["s.png"]))
        finally:
            self.service.request("DELETE", "/v1/sessions/" + session)

    def test_caches_are_made_once(self):
        self.assertIn("making the image's caches, once", self.service.log_text())
        self.assertNotIn("no bytecode", self.service.log_text())
        self.assertNotIn("not in the image", self.service.log_text())
        # Another service, on what the first has left.
        state = tempfile.mkdtemp(prefix="weir-test-state-")
        try:
            shutil.copytree(self.state + "/caches", state + "/caches")
            with Service("--image", self.root, state=state) as second:
                self.assertNotIn("making the image's caches", second.log_text())
                self.assertEqual(second.run("import os\nprint(len(os.listdir(os.environ['MPLCONFIGDIR'])))")["stdout"], "1\n")
        finally:
            shutil.rmtree(state)
