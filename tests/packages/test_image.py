# SPDX-License-Identifier: Apache-2.0
"""snippet.image: a sandbox whose root is a directory, or an OCI image, and everything that must hold there too."""
import concurrent.futures
import json
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
import time
import unittest

import image_roots
from image_roots import SITE, STDLIB, VERSION, Layout, tar, write
from lib import SLOW, TOP, WEIR, WEIR_HOOKS, Service, cgroup2_mount, weir

UID_IMAGE = 0x70000004
top = None  # the folder that holds the root and the layout


def setUpModule():
    global top
    top = tempfile.mkdtemp(prefix="weir-test-image-")
    image_roots.make_root(top + "/root")
    layout = Layout(top + "/layout")
    # Two layers, two ways of packing, two machines, an index in an index: as registries hand them out.
    below = tar(top + "/root", changes=[("./opt/taken-away", b"x"), ("./opt/changed", b"below")])
    above = tar(changes=[("opt/.wh.taken-away", b""), ("opt/changed", b"above")])
    image = layout.image([(below, "gzip"), (above, "zstd" if shutil.which("zstd") else "")], platform={"os": "linux", "architecture": "amd64"})
    other = layout.image([(above, "")], architecture="arm64", platform={"os": "linux", "architecture": "arm64"})
    index = layout.document({"schemaVersion": 2, "manifests": [other, image]}, image_roots.INDEX)
    layout.index(dict(index, annotations={"org.opencontainers.image.ref.name": "latest"}), dict(other, annotations={"org.opencontainers.image.ref.name": "arm"}))


def tearDownModule():
    shutil.rmtree(top)


def run(image, code, *options, **more):
    """`weir run`: (exit status, standard output, standard error)."""
    done = weir("run", "--image", image, *options, "-c", code, **more)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Inside:
    """What holds in both kinds."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service("--image", cls.image())

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def data(self, code, **fields):
        answer = self.service.run(code, **fields)
        self.assertEqual((answer["exit_code"], answer["stderr"]), (0, ""), answer)
        return json.loads(answer["stdout"])

    def expect(self, table):
        """Rows (expression, expected value); an OSError is its errno's name."""
        code = (
            "import os, sys, errno, json, socket, subprocess\nout = []\n"
            "for text in json.loads(%r):\n"
            "    try: got = eval(text)\n"
            "    except OSError as e: got = errno.errorcode.get(e.errno, str(e))\n"
            "    except Exception as e: got = repr(e)\n"
            "    out.append(got)\n"
            "print(json.dumps(out, default=repr))" % json.dumps([row[0] for row in table])
        )
        for (text, want), got in zip(table, self.data(code)):
            with self.subTest(text):
                self.assertEqual(got, want)

    def test_mounts(self):
        found = self.data("import json\nprint(json.dumps([open('/proc/self/mountinfo').read(), open('/proc/1/mountinfo').read(), open('/proc/self/cgroup').read(), open('/proc/self/mounts').read()]))")
        self.assertEqual(found[0], found[1])
        mounts = {}
        for line in found[0].splitlines():
            left, right = line.split(" - ")
            fields = left.split()
            self.assertEqual(fields[3], "/", line)
            self.assertFalse([f for f in fields if f.startswith(("shared:", "master:"))], line)
            mounts[fields[4]] = (right.split()[0], set(fields[5].split(",")))
        self.assertEqual({p: t for p, (t, _) in mounts.items()}, {"/": "overlay", "/etc": "overlay", "/dev": "tmpfs", "/dev/shm": "tmpfs", "/tmp": "tmpfs", "/box": "tmpfs", "/proc": "proc"})
        for path, (_, flags) in mounts.items():
            self.assertIn("nosuid", flags, path)
            self.assertEqual("rw" in flags, path in ("/box", "/tmp", "/dev/shm"), path)
            self.assertEqual("nodev" in flags, path != "/dev", path)
        self.assertEqual({line.split(":", 2)[2] for line in found[2].splitlines()}, {"/"})
        # No word in there is a path of the host.
        for word in set(re.findall(r"(?<![\w.])/[\w./+-]+", found[0] + found[3])):
            self.assertIn(word.split("/")[1], ("box", "dev", "etc", "proc", "tmp"), word)
        for text in found:
            self.assertNotIn(os.path.basename(top), text)
            self.assertNotIn(self.service.state, text)

    def test_identity(self):
        code = (
            "import os, json\ns = dict(l.rstrip('\\n').split(':', 1) for l in open('/proc/self/status'))\n"
            "print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), [s[k].strip() for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')], sorted(int(n) for n in os.listdir('/proc/self/fd'))[:3], os.getpid(), os.uname().nodename]))"
        )
        uid, gid, groups, rest, fds, pid, node = self.data(code)
        self.assertGreaterEqual(uid[0], 0x70000000 + 1000)
        self.assertEqual((uid, gid, groups), ([uid[0]] * 3, [uid[0]] * 3, []))
        self.assertEqual(rest, ["0000000000000000"] * 5 + ["1", "2"])
        self.assertEqual((fds, pid, node), ([0, 1, 2], 2, "sandbox"))

    def test_what_is_there(self):
        self.expect(
            [
                ("sys.version_info[:2]", [int(n) for n in VERSION[6:].split(".")]),
                ("sys.executable", "/usr/bin/python3"),
                ("__import__('imagepkg').VALUE", 42),
                ("[n for n in sys.modules if 'weir' in n]", []),
                ("sys.path[0]", "/box"),
                ("sorted(os.listdir('/box')), os.getcwd()", [["main.py"], "/box"]),
                ("sorted(os.listdir('/dev'))", ["fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"]),
                ("os.listdir('/tmp'), os.listdir('/dev/shm')", [["home"], []]),
                ("sorted(n for n in os.listdir('/proc') if not n.isdigit())", ["self", "thread-self"]),
                ("os.listdir('/sys')", ["devices"]),
                ("os.cpu_count()", 1),
                ("subprocess.check_output('id -un; cat /etc/image-note; ls -d /usr/bin/id', shell=True, text=True).split()", ["sandbox", "of", "the", "image", "/usr/bin/id"]),
                ("__import__('zoneinfo').ZoneInfo('Etc/UTC').key", "Etc/UTC"),
                ("len(__import__('ssl').create_default_context().get_ca_certs()) > 50", True),
                ("os.environ['SSL_CERT_FILE'], os.environ['MPLBACKEND'], os.environ['HOME']", ["/etc/ssl/certs/ca-certificates.crt", "Agg", "/tmp/home"]),
            ]
        )

    def test_etc_is_ours_over_the_images(self):
        self.expect(
            [
                ("[l.split(':')[0] for l in open('/etc/passwd')]", ["sandbox"]),
                ("open('/etc/resolv.conf').read().split()[:2], os.path.islink('/etc/resolv.conf')", [["nameserver", "127.0.0.1"], False]),
                ("socket.gethostbyname('localhost')", "127.0.0.1"),
                ("os.readlink('/etc/alternatives/python3'), os.path.realpath('/usr/bin/python3')", ["/usr/bin/" + VERSION] * 2),
                ("open('/etc/image-note').read()", "of the image\n"),
                # Where the image has its own that serve as well, they stay.
                ("socket.getservbyname('image-service')", 4711),
                ("os.path.islink('/etc/ssl/certs/ca-certificates.crt')", False),
                ("open('/etc/x', 'w')", "EROFS"),
                ("open('/etc/passwd', 'a')", "EROFS"),
                ("os.unlink('/etc/image-note')", "EROFS"),
            ]
        )

    def test_nothing_can_be_written(self):
        code = r"""
import os, json, stat, errno
WRITABLE = ('/box', '/tmp', '/dev/shm')
went, count, odd = [], 0, []
def attempt(what, path, fn, *a):
    global count
    count += 1
    try: fn(*a)
    except OSError as e:
        if e.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.EXDEV, errno.ETXTBSY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENXIO): return
        went.append([what, path, errno.errorcode[e.errno]])
        return
    went.append([what, path, 'succeeded'])
open('/box/x', 'w').close()
for base, ds, fs in os.walk('/'):
    ds[:] = [d for d in ds if (base, d) != ('/', 'proc') and os.path.join(base, d) not in WRITABLE and not os.path.islink(os.path.join(base, d))]
    attempt('create', base, os.open, base + '/weir-x', os.O_CREAT | os.O_WRONLY)
    attempt('mkdir', base, os.mkdir, base + '/weir-d')
    attempt('rename into', base, os.rename, '/box/x', base + '/weir-x')
    attempt('tmpfile', base, os.open, base, os.O_TMPFILE | os.O_RDWR)
    attempt('chmod', base, os.chmod, base, 0o777)
    for name in fs:
        path = os.path.join(base, name)
        st = os.lstat(path)
        if not stat.S_ISREG(st.st_mode): continue
        attempt('append', path, os.open, path, os.O_WRONLY | os.O_APPEND)
        attempt('unlink', path, os.unlink, path)
        attempt('rename', path, os.rename, path, '/box/stolen')
        attempt('link', path, os.link, path, '/box/linked')
print(json.dumps([went, count]))
"""
        went, count = self.data(code, timeout_s=60)
        self.assertEqual(went, [])
        self.assertGreater(count, 2000)

    def test_what_an_image_may_bring_is_harmless(self):
        rows = [
            ("subprocess.check_output(['/opt/suid-id', '-u'], text=True).strip() == str(os.getuid())", True),
            ("open('/opt/everybody', 'w')", "EROFS"),
            ("open('/opt/everybody').read()", "as it was"),
            ("open('/opt/everybodys-dir/x', 'w')", "EROFS"),
            ("os.path.exists('/tmp/of-the-image') or os.path.exists('/dev/of-the-image') or os.path.exists('/proc/of-the-image') or os.path.exists('/sys/of-the-image')", False),
        ]
        self.expect(rows + self.own_rows())

    def test_the_host_is_not_there(self):
        needles = [TOP, top, self.service.state, "/run/weir", "/sys/fs/bpf", cgroup2_mount()]
        self.expect([("[p for p in %r if os.path.exists(p)]" % needles, [])] + [("os.path.exists('/%s')" % n, False) for n in ("root/.bashrc", "home", "var/lib/dpkg", "boot", "base0", "image", "r")])
        # No way back through the directory that was given, nor through what is left of the stage.
        self.expect(
            [
                ("os.listdir('/proc/self/root') == os.listdir('/')", True),
                ("os.path.samefile('/..', '/')", True),
                ("os.path.realpath('/proc/self/cwd')", "/box"),
            ]
        )

    def test_two_do_not_meet(self):
        """flock() on everything that two sandboxes of one image have in common."""
        paths = ["/", "/usr", "/etc", "/dev", "/proc", "/usr/bin/python3", "/etc/image-note", "/etc/passwd", "/etc/ssl/certs/ca-certificates.crt", "/dev/null", "/opt/everybody", STDLIB + "/os.py", SITE + "/imagepkg/__init__.py", "/bin/sh"]
        hold = (
            "import fcntl, os, json, time, sys\nfds = [os.open(p, os.O_RDONLY) for p in %r]\n"
            "for fd in fds: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n" % paths
        )
        look = "met = []\nfor p in %r:\n    try: fcntl.flock(os.open(p, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)\n    except BlockingIOError: met.append(p)\n" % paths
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = pool.submit(self.data, hold + "open('/box/up', 'w').close()\ntime.sleep(1.5)\nprint(json.dumps(time.time()))", timeout_s=20)
            time.sleep(0.6 * SLOW)
            met, when = self.data("import fcntl, os, json, time\n" + look + "print(json.dumps([met, time.time()]))")
            self.assertLess(when, first.result(), "the first was gone before the second had looked")
        self.assertEqual(met, [])
        # The counter-proof: within one sandbox they meet at every one of them.
        self.assertEqual(self.data(hold + look + "print(json.dumps(met))"), paths)

    def test_ordinary_work(self):
        code = (
            "import multiprocessing as mp, json, sqlite3, tempfile, subprocess, sys, os, asyncio\ndef f(x): return x * x\n"
            "if __name__ == '__main__':\n"
            "    for how in ('fork', 'spawn'):\n"
            "        with mp.get_context(how).Pool(2) as p: assert p.map(f, range(10)) == [i * i for i in range(10)]\n"
            "    sqlite3.connect('/box/x.db').execute('create table t(a)')\n"
            "    with tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').write('y')\n"
            "    assert subprocess.check_output([sys.executable, '-c', 'print(6*7)']) == b'42\\n'\n"
            "    asyncio.run(asyncio.sleep(0.01))\n    os.remove('/box/x.db')\n    open('/box/out.txt', 'w').write('done')\n    print(json.dumps('ok'))"
        )
        answer = self.service.run(code)
        self.assertEqual((answer["stdout"], answer["stderr"], answer["exit_code"]), ('"ok"\n', "", 0))
        self.assertEqual([f["path"] for f in answer["files"]], ["out.txt"])
        self.assertEqual(answer["python"].split(".")[:2], VERSION[6:].split("."))

    def test_network_is_as_closed(self):
        self.expect([("socket.create_connection(('192.0.2.1', 80), 5)", "EPERM"), ("socket.getaddrinfo('example.invalid', 80)", "EAI_AGAIN")][:1])


class Directory(Inside, unittest.TestCase):
    @classmethod
    def image(cls):
        return top + "/root"

    def own_rows(self):
        return [
            ("os.stat('/opt/suid-id').st_mode & 0o6000", 0o6000),
            ("os.stat('/opt/zero').st_rdev", os.makedev(1, 5)),
            ("open('/opt/zero', 'rb').read(1)", "EACCES"),  # nodev
            ("os.stat('/usr/bin/env').st_uid", 0),
        ]

    def test_a_changed_image_is_noticed(self):
        """Packages that were added while the service runs, though nobody should: new sandboxes have them, none is mixed."""
        folder = top + "/root" + SITE
        self.assertEqual(self.service.run("import added")["exit_code"], 1)
        write(folder + "/added.py", "VALUE = 7\n")
        try:
            deadline = time.monotonic() + 20 * SLOW
            while "building it anew" not in self.service.log_text():  # it looks when somebody asks, now and then
                self.assertLess(time.monotonic(), deadline)
                self.assertEqual(self.service.run("import added\nprint(added.VALUE)")["stdout"], "7\n")
                time.sleep(0.1)
        finally:
            os.unlink(folder + "/added.py")

    def test_nothing_to_warn_of(self):
        self.assertNotIn("warning", self.service.log_text())

    def test_it_is_left_as_it_was(self):
        """Nothing is written into the operator's directory."""
        # Directories on the way get no mount points, files, caches.
        self.assertEqual(sorted(os.listdir(top + "/root")), sorted(["bin", "dev", "etc", "lib", "lib64", "opt", "proc", "sbin", "sys", "tmp", "usr"]))
        self.assertEqual(os.listdir(top + "/root" + SITE), ["imagepkg"])
        self.assertFalse(os.path.exists(top + "/root/usr/share/weir"))


class OciLayout(Inside, unittest.TestCase):
    @classmethod
    def image(cls):
        return top + "/layout:latest"

    def own_rows(self):
        return [
            ("os.stat('/opt/suid-id').st_mode & 0o7777", 0o755),
            ("os.path.exists('/opt/zero') or os.path.exists('/opt/fifo')", False),
            ("os.stat('/opt/everybody').st_mode & 0o7777, os.stat('/opt/everybodys-dir').st_mode & 0o7777", [0o644, 0o755]),
            ("os.path.exists('/opt/taken-away'), open('/opt/changed').read()", [False, "above"]),
            ("{os.lstat(os.path.join(b, n)).st_uid for b, d, f in os.walk('/opt') for n in d + f} == {%d}" % UID_IMAGE, True),
        ]

    def test_unpacked_once(self):
        folder = self.service.state + "/images"
        (digest,) = [n for n in os.listdir(folder) if not n.startswith(".")]
        self.assertRegex(digest, "^[0-9a-f]{64}$")
        before = os.stat(folder + "/" + digest)
        self.assertEqual(before.st_uid, UID_IMAGE)
        self.assertIn("unpacked image sha256:" + digest, self.service.log_text())
        self.assertEqual(run(self.image(), "print(1)", "--state-dir", self.service.state), (0, "1\n", ""))
        self.assertEqual(os.stat(folder + "/" + digest).st_ctime_ns, before.st_ctime_ns)
        self.assertEqual(sorted(os.listdir(folder)), [".lock", digest])

    def test_bytecode_fits(self):
        """Times of files came along, so no run compiles."""
        code = "import json, sys, imagepkg, importlib.util, os\nst = os.stat(imagepkg.__file__)\nhead = open(importlib.util.cache_from_source(imagepkg.__file__), 'rb').read(16)\nprint(json.dumps([int.from_bytes(head[8:12], 'little') == int(st.st_mtime), int.from_bytes(head[12:], 'little') == st.st_size]))"
        self.assertEqual(self.data(code), [True, True])


class Refused(unittest.TestCase):
    """What can't be an image, each with words that say why; nothing runs, nothing is left."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weir-test-image-")
        self.state = self.folder + "/state"
        os.mkdir(self.state, 0o700)

    def tearDown(self):
        shutil.rmtree(self.folder)

    def check(self, image, words, *options):
        status, out, err = run(image, "print('it ran')", "--state-dir", self.state, *options)
        self.assertEqual((status, out), (125, ""), err)
        self.assertRegex(err, words)
        left = os.listdir(self.state + "/images") if os.path.exists(self.state + "/images") else []
        self.assertEqual([n for n in left if n != ".lock"], [], err)

    def root_with(self, content, mode=0o755, name="usr/bin/python3"):
        """A root whose only program is that interpreter: text or bytes."""
        path = tempfile.mkdtemp(dir=self.folder)
        os.chmod(path, 0o755)
        os.makedirs(os.path.join(path, os.path.dirname(name)))
        with open(os.path.join(path, name), "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())
        os.chmod(os.path.join(path, name), mode)
        return path

    def with_sh(self, script):
        path = tempfile.mkdtemp(dir=self.folder)
        os.chmod(path, 0o755)
        image_roots.make_commands(path, "/usr/bin/sh")
        write(path + "/usr/bin/python3", "#!/bin/sh\n" + script, 0o755)
        return path

    def test_no_image(self):
        self.check(self.folder + "/none", "No such file")
        self.check("/", "the host's own root")
        self.check(self.root_with("x", name="usr/bin/cat"), "no python3 in the image: looked in")
        self.check(self.root_with("x") + ":tag", "is no OCI image layout")
        write(self.folder + "/file", "x")
        self.check(self.folder + "/file", "is no directory")

    def test_interpreters(self):
        with open("/proc/self/exe", "rb") as f:
            elf = bytearray(f.read(1 << 20))
        # aarch64's number in the header: this kernel can't run it, whatever else is in there.
        elf[18:20] = struct.pack("<H", 183)
        # An absolute link stays inside, where there is no such file.
        linked = self.root_with("x", name="usr/bin/other")
        os.symlink(os.path.realpath("/usr/bin/python3"), linked + "/usr/bin/python3")
        said = '{"version": "3.11.2", "executable": "x", "prefix": "/usr", "stdlib": "/usr/lib/x", "platlib": "/usr/lib/x", "site": "/usr/lib/x"}'
        rows = [
            (self.root_with(bytes(elf)), "not a program for this machine"),
            (self.root_with("#!/bin/sh\n", mode=0o700), "can't be executed by other users"),
            (self.root_with("#!/bin/sh\n"), "loader or program that it names is not in the image"),
            (self.root_with("x"), "there is no /usr/local/bin/python3.9", "--python", "/usr/local/bin/python3.9"),
            (self.root_with("x"), "no python3.9 in the image", "--python", "python3.9"),
            (linked, "no python3 in the image"),
            (self.with_sh("echo '%s'\n" % said.replace("3.11.2", "3.6.9")), "is Python 3.6.9; 3.8 is the oldest"),
            (self.with_sh("echo '%s'\n" % said.replace("/usr/lib/x", "/../x")), "says that its library is at"),
            (self.with_sh("echo '%s'\n" % said.replace("/usr/lib/x", "/tmp/x")), "/tmp/x lies in /tmp, where a sandbox has a file system of its own"),
            (self.with_sh("echo nonsense\n"), "says nothing of use about itself"),
            (self.with_sh("echo oh dear >&2; exit 3\n"), "not a Python that answers.*: oh dear"),
            # More than anybody has to say: ended at once, not read for ever.
            (self.with_sh("while :; do echo %s; done\n" % ("y" * 100)), "not a Python|was ended by signal"),
        ]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(self.check, *row) for row in rows]:
                done.result()

    def test_the_question_is_asked_of_a_stranger(self):
        """Before there is a sandbox the interpreter is run once: by then it must be as little as anybody."""
        script = r"""
import os, sys, errno, socket, ctypes
def word(fn, *a):
    try: fn(*a); return 'ok'
    except OSError as e: return errno.errorcode[e.errno]
libc = ctypes.CDLL(None, use_errno=True)
def raw(*a):
    if libc.syscall(*a) < 0: raise OSError(ctypes.get_errno(), '')
s = socket.socket()
sys.stderr.write(' '.join(map(str, ['uid', os.getuid(), os.getgid(), len(os.getgroups()), 'pid', os.getpid(), os.getppid(), os.listdir('/proc') == ['of-the-image'],
    word(os.mkdir, '/x'), word(os.mkdir, '/tmp/x'), word(s.connect, ('127.0.0.1', 80)), word(os.setuid, 0), word(raw, 425, 1, 0), word(os.chroot, '/usr'),
    word(os.open, '/opt/zero', 0), [n for n in range(64) if word(os.fstat, n) == 'ok' and not os.fstat(n).st_mode & 0o100000], os.environ.get('WEIR_TEST_SECRET')])))
sys.exit(1)
"""
        path = self.folder + "/root"
        shutil.copytree(top + "/root", path, symlinks=True, ignore=lambda d, names: [n for n in names if d.endswith("/opt")] if d.endswith("/opt") else [])
        os.mknod(path + "/opt/zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        write(path + "/usr/bin/asked", "#!/usr/bin/%s -S\n%s" % (VERSION, script), 0o755)
        os.environ["WEIR_TEST_SECRET"] = "x"
        try:
            status, out, err = run(path, "print('it ran')", "--python", "/usr/bin/asked")
        finally:
            del os.environ["WEIR_TEST_SECRET"]
        self.assertEqual((status, out), (125, ""))
        said = err.split("layout: ", 1)[1].splitlines()[0].rstrip()
        self.assertEqual(said, ("uid %d %d 0 pid 1 0 True EROFS EROFS ENETUNREACH EPERM ENOSYS EPERM EACCES [0, 1, 2] None" % (UID_IMAGE, UID_IMAGE))[:100].rstrip())

    # ---- layouts ----

    def layout(self, *layers, **more):
        made = Layout(tempfile.mkdtemp(dir=self.folder) + "/l")
        os.chmod(os.path.dirname(made.path), 0o755)
        made.index(made.image(layers, **more))
        return made

    def test_layouts(self):
        honest = tar(changes=[("usr/bin/python3", b"#!/bin/sh\n")])
        self.check(self.layout((honest, ""), architecture="arm64").path, "the image is for linux/arm64; this machine runs linux/amd64")
        self.check(self.layout((honest, "")).path + ":none", 'no image "none" in the layout; it has: no name')
        self.check(top + "/layout:arm", "no image for linux/amd64|the image is for linux/arm64")
        self.check(self.layout((b"no tar at all" * 100, "")).path, "layer 1 of 1: a layer is damaged, or no tar archive")
        self.check(self.layout((honest, ""), (tar(changes=[("../evil", b"x")]), "gzip")).path, "layer 2 of 2: an entry's name leads up: ../evil")
        self.assertFalse(os.path.exists(self.folder + "/evil") or os.path.exists(self.state + "/evil") or os.path.exists(self.state + "/images/evil"))
        for name, damage in (("a blob with another content", lambda d: d[:-1] + bytes([d[-1] ^ 1])), ("a shorter one", lambda d: d[:-512])):
            made = self.layout((honest, ""))
            for blob in os.listdir(made.path + "/blobs/sha256"):
                path = made.path + "/blobs/sha256/" + blob
                with open(path, "rb") as f:
                    data = f.read()
                if len(data) >= 10240:  # the layer
                    with open(path, "wb") as f:
                        f.write(damage(data))
            with self.subTest(name):
                self.check(made.path, "does not have the content of that digest|is not a file of [0-9]+ bytes")
        made = self.layout((honest, ""))
        os.unlink(made.path + "/index.json")
        self.check(made.path, "open index.json of the layout: No such file")
        made = self.layout((honest, ""))
        os.chmod(made.path + "/blobs/sha256", 0o700)
        self.check(made.path, r"chmod -R a\+rX the layout")
        # A link out of the layout leads nowhere: the child sees nothing else.
        made = self.layout((honest, ""))
        os.unlink(made.path + "/index.json")
        write(self.folder + "/index.json", json.dumps({"manifests": []}))
        os.symlink(self.folder + "/index.json", made.path + "/index.json")
        self.check(made.path, "open index.json of the layout: No such file")

    def test_what_a_dead_one_left_is_removed(self):
        images = self.state + "/images"
        os.makedirs(images + "/.new-1234/deep/er")
        write(images + "/.new-1234/deep/er/file", "x")
        status, out, err = run(top + "/layout:latest", "print(open('/opt/changed').read())", "--state-dir", self.state)
        self.assertEqual((status, out), (0, "above\n"), err)
        self.assertEqual([n for n in os.listdir(images) if n.startswith(".new")], [])

    def test_two_at_once_unpack_one(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            both = list(pool.map(lambda _: run(top + "/layout:latest", "print(1)", "--state-dir", self.state), range(2)))
        self.assertEqual([b[:2] for b in both], [(0, "1\n")] * 2, both)
        self.assertEqual(sum("unpacked image" in b[2] for b in both), 1, both)


class Caches(unittest.TestCase):
    """matplotlib's list of fonts, with a package of that name that is quicker to copy."""

    MATPLOTLIB = """
import os
def get_cachedir():
    os.makedirs(os.environ['MPLCONFIGDIR'], exist_ok=True)
    return os.environ['MPLCONFIGDIR']
"""
    FONT_MANAGER = """
import os, matplotlib
for name, content in (('fontlist-v1.json', 'fonts of the image'), ('fontlist-other.txt', 'x'), ('fontlist-;rm.json', 'x')):
    path = os.path.join(matplotlib.get_cachedir(), name)
    if not os.path.exists(path): open(path, 'w').write(content)
"""
    LOOK = "import os, json\ntop = os.environ['MPLCONFIGDIR']\nprint(json.dumps({n: [os.readlink(top + '/' + n), open(top + '/' + n).read()] for n in os.listdir(top)} if os.path.isdir(top) else None))"

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="weir-test-image-") + "/root"
        subprocess.run(["cp", "-al", top + "/root", self.root], check=True)
        self.package = self.root + SITE + "/matplotlib"
        self.state = tempfile.mkdtemp(prefix="weir-test-state-")

    def tearDown(self):
        shutil.rmtree(os.path.dirname(self.root))
        shutil.rmtree(self.state)

    def seen(self, makes):
        """What a fresh sandbox finds; `makes`: whether this start makes caches."""
        with Service("--image", self.root, state=self.state, pool=1) as service:
            self.assertEqual("making the image's caches, once" in service.log_text(), makes, service.log_text())
            return json.loads(service.run(self.LOOK)["stdout"]), service.log_text()

    def test_made_once_for_an_image(self):
        write(self.package + "/__init__.py", self.MATPLOTLIB)
        write(self.package + "/font_manager.py", self.FONT_MANAGER)
        want = {"fontlist-v1.json": ["/usr/share/weir/cache/matplotlib/fontlist-v1.json", "fonts of the image"]}
        self.assertEqual(self.seen(True)[0], want)
        self.assertEqual(self.seen(False)[0], want)
        # `weir run` uses what a service has made.
        self.assertEqual(json.loads(run(self.root, self.LOOK, "--state-dir", self.state)[1]), want)
        # Another version of the package is another image.
        os.unlink(self.package + "/font_manager.py")
        write(self.package + "/font_manager.py", self.FONT_MANAGER.replace("fonts of", "more fonts of"))
        os.utime(self.package)
        self.assertEqual(self.seen(True)[0]["fontlist-v1.json"][1], "more fonts of the image")

    def test_none_is_no_error(self):
        self.assertEqual(self.seen(False)[0], None)

    def test_failing_is_a_warning(self):
        write(self.package + "/__init__.py", "raise SystemExit(3)\n")
        found, log = self.seen(True)
        self.assertEqual(found, None)
        self.assertRegex(log, "warning: no cache of fonts, so every run that plots makes its own, which may take seconds: a run that should have made them failed")


class Warned(unittest.TestCase):
    def test_what_an_image_lacks(self):
        folder = tempfile.mkdtemp(prefix="weir-test-image-")
        try:
            root = folder + "/root"
            subprocess.run(["cp", "-al", top + "/root", root], check=True)
            subprocess.run(["find", root + "/usr/lib", "-name", "__pycache__", "-exec", "rm", "-r", "{}", "+"], check=True)
            shutil.rmtree(root + "/etc/ssl")
            shutil.rmtree(root + "/usr/share/zoneinfo")
            os.unlink(root + "/usr/bin/sh")
            with Service("--image", root, pool=1) as service:
                log = service.log_text()
                self.assertEqual(service.run("print(1)")["stdout"], "1\n")
            for words in ("not in the image: CA certificates", "not in the image: time zones", "not in the image: /bin/sh"):
                self.assertIn(words, log)
            # The command that mends the last one does.
            found = re.search(r"warning: \d+ of \d+ modules of the image have no bytecode, so every run compiles what it imports; mend it with: (.*)", log)
            self.assertTrue(found, log)
            subprocess.run(found.group(1), shell=True, check=True)
            self.assertTrue(os.path.exists("%s%s/__pycache__/os.cpython-%s.pyc" % (root, STDLIB, VERSION[6:].replace(".", ""))))
            self.assertTrue(os.path.exists(root + SITE + "/imagepkg/__pycache__"))
        finally:
            shutil.rmtree(folder)


class Links(unittest.TestCase):
    def test_none_leads_out_of_the_image(self):
        """Links where our layer, a mount or a cache goes: they are followed inside, or hidden."""
        folder = tempfile.mkdtemp(prefix="weir-test-image-")
        try:
            root = folder + "/root"
            subprocess.run(["cp", "-al", top + "/root", root], check=True)
            os.mkdir(folder + "/secret")
            write(folder + "/secret/passwd", "of the host")
            write(folder + "/secret/weir-note", "of the host")
            # What a sandbox mounts over: each leads to a directory of the host.
            for name in ("etc", "tmp", "dev", "proc", "sys"):
                shutil.rmtree(os.path.join(root, name))
                os.symlink(folder + "/secret", os.path.join(root, name))
            os.symlink(folder + "/secret", root + "/box")
            # Where the harness goes: by an absolute link to another place of the image.
            os.makedirs(root + "/opt/lib/" + VERSION)
            os.makedirs(root + "/usr/local")
            os.symlink("/opt/lib", root + "/usr/local/lib")
            os.rename(root + "/usr/share", root + "/opt/share")
            os.symlink("../opt/share", root + "/usr/share")
            code = (
                "import os\nprint([n for n in ('etc', 'tmp', 'dev', 'proc', 'sys', 'box') if 'weir-note' in os.listdir('/' + n) or os.path.islink('/' + n)],\n"
                "    open('/etc/passwd').read().split(':')[0], os.path.realpath('/usr/local/lib'), os.path.exists('/usr/share/zoneinfo/Etc/UTC'))"
            )
            status, out, err = run(root, code, "--python", "/usr/bin/" + VERSION)
            self.assertEqual((status, out), (0, "[] sandbox /opt/lib True\n"), err)
            self.assertEqual(sorted(os.listdir(folder + "/secret")), ["passwd", "weir-note"])
        finally:
            shutil.rmtree(folder)


class LeftBehind(unittest.TestCase):
    def test_nothing_is(self):
        """Of a run that worked, and of one whose interpreter is none."""
        for options, end in (((), 0), (("--python", "/opt/everybody"), 125)):
            command = [WEIR, "run", "--image", top + "/root", *options, "-c", "print(1)"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
                self.assertEqual(p.wait(30 * SLOW), end)
            with self.subTest(options):
                self.assertEqual(self.processes(top.encode()), [])
                self.assertEqual([n for n in os.listdir("/run/weir") if n.startswith("run-%d-" % p.pid)], [])
        with open("/proc/self/mountinfo") as f:
            self.assertNotIn(top, f.read())

    def test_a_question_dies_with_who_asks(self):
        """The supervisor is killed while the interpreter is asked what it is."""
        write(top + "/root/opt/slow", "#!/bin/sh\nwhile :; do :; done\n", 0o755)
        try:
            command = [WEIR, "run", "--image", top + "/root", "--python", "/opt/slow", "-c", "print(1)"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
                asked = self.wait_for(lambda: self.processes(b"/opt/slow\0-I"))[0]
                with open("/proc/%s/stat" % asked) as f:
                    asker = int(f.read().rsplit(")", 1)[1].split()[1])
                os.kill(asker, 9)
                self.wait_for(lambda: not self.processes(b"/opt/slow\0-I"))
                self.assertEqual(p.wait(30 * SLOW), 125)
        finally:
            os.unlink(top + "/root/opt/slow")

    def wait_for(self, what):
        deadline = time.monotonic() + 5 * SLOW
        while not (found := what()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return found

    def processes(self, *marks):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as f:
                    line = f.read()
            except OSError:
                continue
            if any(m in line for m in marks):
                found.append(pid)
        return found

    def test_a_step_that_fails_names_its_layer(self):
        for step in ("MOUNT_ROOT", "MOUNT_ETC"):
            status, out, err = run(top + "/root", "print('it ran')", "--test-fault", step, binary=WEIR_HOOKS)
            self.assertEqual((status, out), (125, ""))
            self.assertIn("mounts", err)
