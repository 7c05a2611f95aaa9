# SPDX-License-Identifier: Apache-2.0
"""What a snippet finds when it looks around, and what it can not do: from main, from children, from threads.

Every important protection has its counter-proof in class LeftOut: with that one step left out (weir-hooks --test-skip), either
the attack goes through, so the test here can fail, or the next layer refuses the sandbox and says which one it was.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import tempfile
import time
import unittest

from footprint import pids, read
from lib import SLOW, TOKEN, TOP, WEIR, WEIR_HOOKS, Service, weir

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp/home",
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "TMPDIR": "/tmp",
    "XDG_CACHE_HOME": "/tmp/home/.cache",
    "MPLCONFIGDIR": "/tmp/home/.config/matplotlib",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "PYTHON_CPU_COUNT": "1",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
    "PYTHONUTF8": "1",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}
NAMESPACES = ("pid", "mnt", "net", "ipc", "uts", "cgroup")
WRITABLE = ("/box", "/tmp", "/dev/shm")

# ---- what a process says of itself, printed as JSON; the same text runs in main, in children and in threads ----
SELF = r"""
import json, os
def describe(status='/proc/thread-self/status'):
    lines = dict(l.rstrip('\n').split(':', 1) for l in open(status))
    found = {k: lines[k].split() for k in ('Uid', 'Gid', 'Groups', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp', 'Seccomp_filters')}
    me = status.rsplit('/', 1)[0]
    found['ns'] = {n: os.readlink(me + '/ns/' + n) for n in ('pid', 'mnt', 'net', 'ipc', 'uts', 'cgroup')}
    fds = set()
    for n in os.listdir('/proc/self/fd'):
        try: os.fstat(int(n)); fds.add(int(n))
        except OSError: pass  # the listing's own
    found['fds'] = sorted(fds)
    found['tty'] = int(open('/proc/self/stat').read().rsplit(')', 1)[1].split()[4])
    found['ids'] = [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getresuid(), os.getresgid(), os.getgroups()]
    found['pid'] = os.getpid()
    return found
"""


def brief(answer):
    return {k: v[:1500] if isinstance(v, str) else v for k, v in answer.items()}


class Case(unittest.TestCase):
    options = ()
    binary = WEIR

    @classmethod
    def setUpClass(cls):
        cls.service = Service(*cls.options, binary=cls.binary)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def out(self, code, **fields):
        """Standard output of a snippet that must end well."""
        answer = self.service.run(code, **fields)
        self.assertEqual((answer["exit_code"], answer["termination"]["reason"]), (0, "exit"), brief(answer))
        return answer["stdout"]

    def data(self, code, **fields):
        return json.loads(self.out(code, **fields))

    def expect(self, table, prelude="", **fields):
        """Runs (expression, expected repr) rows in one snippet: each is evaluated by itself, an OSError is its errno's name."""
        code = (
            "import os, sys, errno, ctypes, socket, json, signal, time, threading, subprocess\n"
            + prelude
            + "\nfor text in json.loads(%r):\n" % json.dumps([row[0] for row in table])
            + "    try: got = eval(text)\n"
            "    except OSError as e: got = errno.errorcode.get(e.errno, str(e))\n"
            "    except Exception as e: got = '%s: %s' % (type(e).__name__, e)\n"
            "    print(json.dumps(got if isinstance(got, (str, int, float, bool, list, type(None))) else repr(got)))\n"
        )
        lines = self.out(code, **fields).splitlines()
        self.assertEqual(len(lines), len(table))
        for (text, want), line in zip(table, lines):
            got = json.loads(line)
            with self.subTest(text):
                if isinstance(want, (set, tuple)):
                    self.assertIn(got, want)
                else:
                    self.assertEqual(got, want)


class Identity(Case):
    """Every kind of process and thread that a snippet can have."""

    WAYS = r"""
import subprocess, sys, threading, ctypes, signal
found = {'main': describe()}

def gathered(run):
    r, w = os.pipe()
    run(w)
    os.close(w)
    data = b''
    while True:
        part = os.read(r, 65536)
        if not part: break
        data += part
    os.close(r)
    return json.loads(data)

def forked(w):
    if os.fork() == 0:
        os.dup2(w, 1); os.closerange(3, 64)
        os.write(1, json.dumps(describe()).encode()); os._exit(0)
found['fork'] = gathered(forked)

def daemon(w):
    if os.fork() == 0:
        os.dup2(w, 1); os.closerange(3, 64)
        os.setsid()
        if os.fork(): os._exit(0)
        os.write(1, json.dumps(describe()).encode()); os._exit(0)
found['double fork, setsid'] = gathered(daemon)

box = []
t = threading.Thread(target=lambda: box.append(describe())); t.start(); t.join()
found['thread'] = box[0]

script = SELF + "print(json.dumps(describe()))"
found['subprocess python'] = json.loads(subprocess.check_output([sys.executable, '-c', script]))
found['subprocess without vfork'] = json.loads(subprocess.check_output([sys.executable, '-c', script], preexec_fn=lambda: None))

def spawned(w):
    os.posix_spawn(sys.executable, [sys.executable, '-c', script], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, w, 1)])
found['posix_spawn'] = gathered(spawned)

def nested(w):
    subprocess.run(['sh', '-c', 'exec sh -c \'exec "$0" -c "$1"\' "$0" "$1"', sys.executable, script], stdout=w)
found['python below two shells'] = gathered(nested)

def from_memfd(w):
    # A copy of a program in memory, run from there: no file of the image is in between.
    if os.fork() == 0:
        fd = os.memfd_create('p', 0)
        os.write(fd, open('/usr/bin/cat', 'rb').read())
        os.dup2(w, 1)
        os.execve('/proc/self/fd/%d' % fd, ['cat', '/proc/self/status'], {})
    os.wait()
def text(run):
    r, w = os.pipe(); run(w); os.close(w)
    return os.read(r, 65536).decode()
lines = dict(l.split(':', 1) for l in text(from_memfd).splitlines())
found['memfd'] = dict(found['main'], **{k: lines[k].split() for k in found['main'] if k in lines})

shell = subprocess.check_output(['sh', '-c', 'cat /proc/$$/status; echo; ls /proc/$$/fd; for n in pid mnt net ipc uts cgroup; do readlink /proc/$$/ns/$n; done; cat /proc/$$/stat; id'], text=True)
status, rest = shell.split('\n\n')
lines, rest = dict(l.split(':', 1) for l in status.splitlines()), rest.splitlines()
found['sh'] = dict(found['main'], **{k: lines[k].split() for k in found['main'] if k in lines})
found['sh']['fds'] = [int(n) for n in rest[:-8] ]
found['sh']['ns'] = dict(zip(('pid', 'mnt', 'net', 'ipc', 'uts', 'cgroup'), rest[-8:-2]))
found['sh']['tty'] = int(rest[-2].rsplit(')', 1)[1].split()[4])
found['sh']['id'] = rest[-1]
print(json.dumps(found))
"""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        code = "SELF = %r\nexec(SELF)\n" % SELF + cls.WAYS
        cls.first = json.loads(cls.service.run(code)["stdout"])
        cls.second = json.loads(cls.service.run(SELF + "print(json.dumps({'main': describe()}))")["stdout"])

    def test_every_kind_was_seen(self):
        self.assertEqual(len(self.first), 10)

    def test_uid_and_gid_are_its_own_alone(self):
        for name, me in {**self.first, "second": self.second["main"]}.items():
            with self.subTest(name):
                uid = me["Uid"][0]
                self.assertGreaterEqual(int(uid), 0x70000000 + 1000)
                self.assertEqual((me["Uid"], me["Gid"], me["Groups"]), ([uid] * 4, [uid] * 4, []))
                n = int(uid)
                self.assertEqual(me["ids"], [n, n, n, n, [n] * 3, [n] * 3, []])
        self.assertNotEqual(self.first["main"]["Uid"], self.second["main"]["Uid"])
        self.assertEqual({tuple(me["Uid"]) for me in self.first.values()}, {tuple(self.first["main"]["Uid"])})
        uid = self.first["main"]["Uid"][0]
        self.assertEqual(self.first["sh"]["id"], "uid=%s(sandbox) gid=%s(sandbox) groups=%s(sandbox)" % (uid, uid, uid))

    def test_capabilities_no_new_privs_seccomp(self):
        for name, me in self.first.items():
            with self.subTest(name):
                for which in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                    self.assertEqual(me[which], ["0000000000000000"], which)
                self.assertEqual((me["NoNewPrivs"], me["Seccomp"]), (["1"], ["2"]))

    def test_descriptors(self):
        for name, me in self.first.items():
            with self.subTest(name):
                self.assertEqual(me["fds"], [0, 1, 2])
        # What they are: nothing of the host's file system, no socket, no directory.
        table = [
            ("os.readlink('/proc/self/fd/0')", "/dev/null"),
            ("os.readlink('/proc/self/fd/1')[:5]", "pipe:"),
            ("os.readlink('/proc/self/fd/2')[:5]", "pipe:"),
            ("os.read(0, 10) == b''", True),
            ("sys.stdin.read()", ""),
            ("os.fstat(0).st_dev == os.stat('/dev/null').st_dev and os.fstat(0).st_ino == os.stat('/dev/null').st_ino", True),
            ("[n for n in range(3, 1024) if not fcntl_closed(n)]", []),
        ]
        self.expect(table, "import fcntl\ndef fcntl_closed(n):\n    try: fcntl.fcntl(n, fcntl.F_GETFD)\n    except OSError: return True\n")

    def test_no_way_back_through_a_descriptor(self):
        # CVE-2024-21626 and kin: chdir and openat through every number, from a fresh child too.
        code = (
            "import os\nfound = []\nfor fd in range(0, 1024):\n"
            "    for way in ('/proc/self/fd/%d' % fd, '/proc/self/fd/%d/../../..' % fd, '/proc/1/fd/%d' % fd, '/proc/1/root', '/proc/1/cwd', '/proc/2/root/..'):\n"
            "        try: os.chdir(way)\n        except OSError: continue\n"
            "        found.append((way, os.getcwd(), 'root' in os.listdir('/')))\n        os.chdir('/box')\n"
            "print(found)"
        )
        allowed = "('/proc/2/root/..', '/', False)"
        self.assertEqual(self.out(code).strip(), "[" + ", ".join([allowed] * 1024) + "]")

    def test_namespaces_are_its_own(self):
        host = {n: os.readlink("/proc/self/ns/" + n) for n in NAMESPACES}
        for name in NAMESPACES:
            mine = {me["ns"][name] for me in self.first.values()}
            self.assertEqual(len(mine), 1, name)
            self.assertNotIn(host[name], mine)
            self.assertNotIn(self.second["main"]["ns"][name], mine)

    def test_no_terminal(self):
        for name, me in self.first.items():
            with self.subTest(name):
                self.assertEqual(me["tty"], 0)
        table = [
            ("os.open('/dev/tty', os.O_RDWR)", ("ENOENT", "ENXIO")),
            ("os.path.exists('/dev/console') or os.path.exists('/dev/ptmx') or os.path.exists('/dev/pts')", False),
            ("[os.isatty(n) for n in range(3)]", [False] * 3),
            ("os.getsid(0)", 2),
            ("os.getpgid(0)", 2),
            ("os.openpty()", ("ENOENT", "out of pty devices")),
        ]
        self.expect(table)

    def test_pid_one(self):
        code = (
            "import os, json\nfound = {}\n"
            "for name in sorted(os.listdir('/proc/1')):\n"
            "    path = '/proc/1/' + name\n"
            "    try:\n"
            "        found[name] = os.readlink(path) if os.path.islink(path) else os.listdir(path) if os.path.isdir(path) else open(path).read()\n"
            "    except OSError as e: found[name] = e.errno\n"
            "    except UnicodeDecodeError: found[name] = 'binary'\n"
            "print(json.dumps(found))"
        )
        one = self.data(code)
        for name in ("environ", "exe", "root", "cwd", "fd", "maps", "mem", "auxv", "stack", "syscall", "personality", "map_files", "io"):
            if name in one:
                self.assertIn(one[name], (1, 13), name)
        status = dict(line.split(":", 1) for line in one["status"].splitlines())
        # Init has dropped everything too, and is nobody that a snippet can signal.
        self.assertEqual(status["Uid"].split(), [str(0x70000000)] * 4)
        for which in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(status[which].split(), ["0000000000000000"])
        self.assertEqual((status["NoNewPrivs"].split(), status["Seccomp"].split(), status["Groups"].split()), (["1"], ["2"], []))
        self.assertEqual(one["cmdline"].rstrip("\0"), "weir-init")
        table = [("os.kill(1, %d)" % s, "EPERM") for s in (0, 9, 15, 18, 19)]
        table += [
            ("signal.pidfd_send_signal(os.pidfd_open(1), 9)", "EPERM"),
            ("libc('ptrace', 16, 1, 0, 0)", "EPERM"),
            ("os.setpriority(os.PRIO_PROCESS, 1, 5)", "EPERM"),
            ("os.sched_setaffinity(1, {0})", "EPERM"),
            ("open('/proc/1/mem', 'r+b')", ("EACCES", "EROFS", "EPERM")),
            ("prlimit(1)", "EPERM"),
        ]
        self.expect(
            table,
            "import resource\nC = ctypes.CDLL(None, use_errno=True)\n"
            "def libc(name, *a):\n    if getattr(C, name)(*a) < 0: raise OSError(ctypes.get_errno(), name)\n"
            "def prlimit(pid):\n    try: resource.prlimit(pid, resource.RLIMIT_NOFILE, (10, 10))\n    except PermissionError: return 'EPERM'\n",
        )


class FileSystem(Case):
    """The walk: what is there, and that nothing but the three tmpfs can be written."""

    # A host with a name, a home and secrets that are unmistakable, so that finding nothing means something.
    SECRETS = {
        "environment": "weir-secret-in-the-environment-5e1f",
        "host name": "weir-host-name-77a0",
        "domain": "weir-domain-name-33b9",
        "home": "/weir-home-of-the-service-9c1d",
        "token": TOKEN,
    }

    @classmethod
    def setUpClass(cls):
        # The same program, started by a shell that first gives it those names, in a UTS namespace of its own.
        cls.folder = tempfile.mkdtemp(prefix="weir-test-host-")
        cls.wrapper = os.path.join(cls.folder, "weir")
        with open(cls.wrapper, "w") as f:
            f.write(
                "#!/bin/sh\nexport WEIR_TEST_SECRET=%s HOME=%s AWS_SECRET_ACCESS_KEY=%s\n"
                "exec unshare --uts sh -c 'hostname %s; echo %s >/proc/sys/kernel/domainname; exec \"$@\"' weir %s \"$@\"\n"
                % (cls.SECRETS["environment"], cls.SECRETS["home"], cls.SECRETS["environment"], cls.SECRETS["host name"], cls.SECRETS["domain"], WEIR)
            )
        os.chmod(cls.wrapper, 0o755)
        cls.service = Service(binary=cls.wrapper)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        os.unlink(cls.wrapper)
        os.rmdir(cls.folder)

    def test_the_service_does_have_those_names(self):
        environ = read("/proc/%d/environ" % self.service.process.pid)
        self.assertIn(self.SECRETS["environment"], environ)
        done = subprocess.run(["nsenter", "--uts", "-t", str(self.service.process.pid), "hostname"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.stdout.strip(), self.SECRETS["host name"])

    def needles(self):
        found = [v for v in self.SECRETS.values()] + [self.service.state, self.service.name(), TOP + "/", str(self.service.log.name), "/run/weir/", "/sys/fs/bpf/weir", "/var/lib/weir"]
        name = os.uname().nodename
        # A host that is called `a` says nothing; the service above has a name that does.
        return found + ([name] if len(name) > 5 else [])

    def test_no_file_names_the_host(self):
        """Every path, every file's content, every link, and /proc of every process, searched for what only the host knows."""
        code = (
            "import os, json, stat\nneedles = [n.encode() for n in json.loads(%r)]\n" % json.dumps(self.needles())
            + r"""
found, files, seen = [], 0, 0
def search(where, data):
    for n in needles:
        if n in data: found.append([where, n.decode()])
def walk(top):
    global files, seen
    for base, dirs, names in os.walk(top):
        for name in dirs + names:
            path = os.path.join(base, name)
            search(path, os.fsencode(path))
            st = os.lstat(path) if os.path.lexists(path) else None
            if st and stat.S_ISLNK(st.st_mode):
                try: search(path, os.fsencode(os.readlink(path)))
                except OSError: pass
            elif st and stat.S_ISREG(st.st_mode):
                try:
                    with open(path, 'rb', buffering=0) as f:
                        data = f.read(64 << 20)
                except OSError: continue
                files += 1; seen += len(data)
                search(path, data)
if os.fork() == 0:
    import time; time.sleep(20); os._exit(0)
open('/box/main.py', 'w').close()  # the needles stand in it
for top in os.listdir('/'):
    # Our own memory holds the needles, of course; so do the pages that pagemap and mem show.
    if top != 'proc': walk('/' + top)
for pid in [p for p in os.listdir('/proc') if p.isdigit()] + ['self', 'thread-self']:
    for base, dirs, names in os.walk('/proc/' + pid):
        for name in dirs + names:
            path = os.path.join(base, name)
            try:
                if os.path.islink(path): data = os.fsencode(os.readlink(path))
                elif name in ('mem', 'pagemap', 'clear_refs') or not os.path.isfile(path): continue
                else:
                    with open(path, 'rb', buffering=0) as f: data = f.read(1 << 20)
            except OSError: continue
            files += 1
            search(path, data)
print(json.dumps([found, files, seen]))
os._exit(0)
"""
        )
        found, files, seen = self.data(code, timeout_s=60)
        self.assertEqual(found, [])
        self.assertGreater(files, 1000)
        self.assertGreater(seen, 10 << 20)

    def test_etc_and_proc_name_no_path_of_the_host(self):
        code = (
            "import os, json\nfound = {}\n"
            "for path in ['/proc/self/' + n for n in ('mountinfo', 'mounts', 'cgroup', 'environ', 'cmdline', 'maps', 'cpuset', 'limits')] + \\\n"
            "        ['/proc/1/mountinfo', '/proc/1/cgroup', '/proc/1/cmdline'] + ['/etc/' + n for n in os.listdir('/etc')]:\n"
            "    try: found[path] = open(path, errors='replace').read()\n"
            "    except OSError as e: found[path] = ''\n"
            "print(json.dumps(found))"
        )
        found = self.data(code)
        for path, text in found.items():
            if path.endswith("/cgroup"):
                for line in text.splitlines():
                    self.assertEqual(line.split(":", 2)[2], "/", path)
            # Whatever looks like a path must be one of the sandbox, not one that only the host has.
            for word in set(re.findall(r"(?<![\w.])/[\w./+-]+", text)):
                top = word.split("/")[1]
                self.assertIn(top, ("usr", "bin", "lib", "lib64", "sbin", "etc", "dev", "proc", "tmp", "box", "r", "memfd", "SYSV00000000"), (path, word))
        roots = [line.split()[3:5] for line in found["/proc/self/mountinfo"].splitlines()]
        self.assertEqual([r for r in roots if r[0] != "/"], [["/r", "/"]])
        self.assertEqual(found["/proc/self/mountinfo"], found["/proc/1/mountinfo"])
        self.assertEqual(found["/proc/self/cpuset"], "/\n")

    def test_mounts_are_these(self):
        lines = self.out("print(open('/proc/self/mountinfo').read(), end='')").splitlines()
        mounts = {}
        for line in lines:
            left, right = line.split(" - ")
            mounts[left.split()[4]] = (right.split()[0], set(left.split()[5].split(",")))
        self.assertEqual({p: t for p, (t, _) in mounts.items()}, {"/": "overlay", "/etc": "tmpfs", "/dev": "tmpfs", "/dev/shm": "tmpfs", "/tmp": "tmpfs", "/box": "tmpfs", "/proc": "proc"})
        self.assertEqual(len(lines), 7)
        for path, (_, flags) in mounts.items():
            self.assertIn("nosuid", flags, path)
            self.assertEqual("rw" in flags, path in WRITABLE, path)
            self.assertEqual("nodev" in flags, path != "/dev", path)
        self.assertNotIn("shared:", "".join(lines))
        self.assertNotIn("master:", "".join(lines))

    def test_nothing_else_can_be_written(self):
        code = r"""
import os, json, stat, errno
WRITABLE = ('/box', '/tmp', '/dev/shm')
went, count = [], 0
def attempt(what, path, fn, *a, **kw):
    global count
    count += 1
    try: fn(*a, **kw)
    except OSError as e:
        if e.errno not in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.EXDEV, errno.ETXTBSY, errno.ENOSYS, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EOPNOTSUPP, errno.EINVAL, errno.ELOOP, errno.EBUSY):
            went.append([what, path, errno.errorcode[e.errno]])
        return
    went.append([what, path, 'succeeded'])
open('/box/x', 'w').close()
def directory(d):
    attempt('create', d, os.open, d + '/weir-x', os.O_CREAT | os.O_WRONLY | os.O_EXCL)
    attempt('mkdir', d, os.mkdir, d + '/weir-d')
    attempt('symlink', d, os.symlink, '/box/x', d + '/weir-l')
    attempt('mknod', d, os.mknod, d + '/weir-n')
    attempt('rename into', d, os.rename, '/box/x', d + '/weir-x')
    attempt('tmpfile', d, os.open, d, os.O_TMPFILE | os.O_RDWR)
    attempt('chmod', d, os.chmod, d, 0o777)
    attempt('utime', d, os.utime, d)
    attempt('chown', d, os.chown, d, os.getuid(), os.getgid())
    attempt('setxattr', d, os.setxattr, d, 'user.x', b'y')
def file(f):
    for name, flags in (('write', os.O_WRONLY), ('read-write', os.O_RDWR), ('append', os.O_WRONLY | os.O_APPEND), ('truncate', os.O_WRONLY | os.O_TRUNC)):
        attempt('open for ' + name, f, lambda: os.close(os.open(f, flags)))
    attempt('truncate', f, os.truncate, f, 0)
    attempt('chmod', f, os.chmod, f, 0o4777)
    attempt('utime', f, os.utime, f)
    attempt('unlink', f, os.unlink, f)
    attempt('rename', f, os.rename, f, '/box/stolen')
    attempt('link', f, os.link, f, f + '.weir')
    attempt('link out', f, os.link, f, '/box/linked')
    attempt('setxattr', f, os.setxattr, f, 'user.x', b'y')
device = []
setid = []
special = []
dirs = files = 0
for base, ds, fs in os.walk('/'):
    ds[:] = [d for d in ds if not (base == '/' and d == 'proc') and os.path.join(base, d) not in WRITABLE and not os.path.islink(os.path.join(base, d))]
    directory(base); dirs += 1
    for name in fs + ds:
        path = os.path.join(base, name)
        st = os.lstat(path)
        if st.st_mode & 0o6000: setid.append(path)
        if not (stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode) or stat.S_ISLNK(st.st_mode)):
            (device if stat.S_ISCHR(st.st_mode) else special).append([path, os.major(st.st_rdev), os.minor(st.st_rdev)])
    for name in fs:
        path = os.path.join(base, name)
        st = os.lstat(path)
        if stat.S_ISREG(st.st_mode):
            if st.st_uid or st.st_gid: special.append([path, st.st_uid, st.st_gid])
            file(path); files += 1
            caps = None
            try: caps = os.getxattr(path, 'security.capability')
            except OSError: pass
            if caps: setid.append(path)
for path, _, _ in device:
    for what, fn, a in (('chmod', os.chmod, (path, 0o777)), ('unlink', os.unlink, (path,)), ('rename', os.rename, (path, '/dev/weir'))):
        attempt(what, path, fn, *a)
# /proc: nothing in there takes a byte, of ourselves or of anybody.
procs = 0
for pid in ('self', 'thread-self', '1'):
    for base, ds, fs in os.walk('/proc/' + pid):
        for name in fs:
            path = os.path.join(base, name)
            if os.path.islink(path): continue
            procs += 1
            attempt('open for write', path, lambda: os.close(os.open(path, os.O_WRONLY)))
print(json.dumps(dict(went=went, device=sorted(device), setid=setid, special=special, dirs=dirs, files=files, procs=procs, count=count)))
"""
        found = self.data(code, timeout_s=60)
        self.assertEqual(found["went"], [])
        self.assertEqual(found["device"], [["/dev/full", 1, 7], ["/dev/null", 1, 3], ["/dev/random", 1, 8], ["/dev/urandom", 1, 9], ["/dev/zero", 1, 5]])
        self.assertEqual((found["setid"], found["special"]), ([], []))
        self.assertGreater(found["files"], 500)
        self.assertGreater(found["procs"], 100)

    def test_kernel_knobs_are_out_of_reach(self):
        table = [("open('/proc/%s', 'w')" % n, ("ENOENT", "EROFS", "EACCES", "EPERM")) for n in (
            "sys/kernel/core_pattern", "sysrq-trigger", "self/oom_score_adj", "self/uid_map", "self/gid_map", "self/setgroups", "self/loginuid",
            "self/coredump_filter", "self/autogroup", "self/timerslack_ns", "self/comm", "self/attr/current", "1/oom_score_adj", "self/clear_refs")]
        table += [("open('/proc/%s')" % n, "ENOENT") for n in (
            "kcore", "kallsyms", "keys", "key-users", "timer_list", "cmdline", "version", "cpuinfo", "meminfo", "stat", "net", "sys", "config.gz", "modules", "mounts", "sysvipc", "bus", "irq", "fs", "uptime", "loadavg", "interrupts")]
        table += [
            ("sorted(n for n in os.listdir('/proc') if not n.isdigit())", ["self", "thread-self"]),
            ("os.path.exists('/sys/firmware') or os.path.exists('/sys/fs') or os.path.exists('/sys/class') or os.path.exists('/sys/kernel')", False),
        ]
        self.expect(table)
        # /sys may hold the number of CPUs, and nothing else.
        top = self.data("import os, json\nprint(json.dumps([os.listdir('/'), [n for _, _, f in os.walk('/sys') for n in f]]))")
        self.assertEqual(set(top[0]) - {"sys"}, {"bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "tmp", "usr", "box"})
        self.assertLessEqual(set(top[1]), {"online", "possible", "present"})

    def test_setuid_is_worth_nothing(self):
        code = (
            "import os, shutil, subprocess\n"
            "for d in ('/box', '/tmp', '/dev/shm'):\n"
            "    shutil.copy('/usr/bin/id', d + '/id')\n"
            "    os.chmod(d + '/id', 0o6755)\n"
            "    print(oct(os.stat(d + '/id').st_mode), subprocess.check_output([d + '/id', '-u'], text=True).strip() == str(os.getuid()), \n"
            "          subprocess.check_output(['sh', '-c', 'grep -E \"^(Cap(Prm|Eff)|NoNewPrivs)\" /proc/self/status'], text=True).split())\n"
        )
        self.assertEqual(self.out(code).splitlines(), ["0o106755 True ['CapPrm:', '0000000000000000', 'CapEff:', '0000000000000000', 'NoNewPrivs:', '1']"] * 3)

    def test_devices_made_inside_are_dead(self):
        code = (
            "import os, stat\n"
            "for d in ('/box', '/tmp', '/dev/shm'):\n"
            "    for kind, nr in ((stat.S_IFCHR, os.makedev(1, 1)), (stat.S_IFCHR, os.makedev(5, 0)), (stat.S_IFBLK, os.makedev(254, 0))):\n"
            "        try: os.mknod(d + '/dev', kind | 0o666, nr); print('made'); open(d + '/dev', 'rb').read(1); print('opened')\n"
            "        except OSError as e: print(e.errno)\n"
        )
        self.assertEqual(set(self.out(code).split()), {"1"})

    def test_environment(self):
        self.assertEqual(self.data("import os, json\nprint(json.dumps(dict(os.environ)))"), ENVIRONMENT)
        raw = self.out("print(open('/proc/self/environ').read().replace('\\0', '\\n'), end='')")
        self.assertEqual(dict(line.split("=", 1) for line in raw.splitlines()), ENVIRONMENT)
        code = "import subprocess\nprint(subprocess.check_output(['env'], text=True), end='')"
        self.assertEqual(dict(line.split("=", 1) for line in self.out(code).splitlines()), ENVIRONMENT)

    def test_what_is_promised_is_there(self):
        table = [
            ("sorted(os.listdir('/box')), os.getcwd()", "(['main.py'], '/box')"),
            ("os.listdir('/dev/shm') + os.listdir('/tmp') + os.listdir('/tmp/home')", ["home"]),
            ("sorted(os.listdir('/dev'))", ["fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"]),
            ("len(open('/dev/urandom', 'rb').read(16)) + len(open('/dev/zero', 'rb').read(16)) + len(open('/dev/random', 'rb').read(4))", 36),
            ("open('/dev/null', 'w').write('x')", 1),
            ("os.write(os.open('/dev/full', os.O_WRONLY), b'x')", "ENOSPC"),
            ("os.access('/tmp/home', os.W_OK) and os.access('/box', os.W_OK) and os.stat('/box').st_uid == os.getuid()", True),
            ("os.stat('/box').st_mode & 0o777, os.stat('/tmp/home').st_mode & 0o777, os.stat('/tmp').st_mode & 0o7777", repr((0o700, 0o700, 0o1777))),
            ("open('/dev/stdout', 'w').write('')", 0),
            ("socket.gethostname()", "sandbox"),
            ("os.uname().nodename", "sandbox"),
            ("subprocess.check_output('hostname; ls / | head -1; echo a | sed s/a/b/ | tr b c; seq 3 | sort -r | head -1; date +%Z', shell=True, text=True).split()", ["sandbox", "bin", "c", "3", "UTC"]),
            ("subprocess.run('command -v sudo su ping curl wget ssh nc mount passwd newgrp ip', shell=True, capture_output=True, text=True).stdout", ""),
        ]
        self.expect(table)


# System calls that are refused by name (EPERM). Those from 451 on are newer than the libseccomp of some hosts, which then
# does not know the name: ENOSYS, refused as well.
REFUSED = {
    "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "move_mount": 429, "open_tree": 428,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "swapon": 167, "swapoff": 168, "quotactl": 179,
    "quotactl_fd": 443, "name_to_handle_at": 303, "open_by_handle_at": 304, "fanotify_init": 300, "fanotify_mark": 301, "add_key": 248,
    "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "ptrace": 101, "process_vm_readv": 310,
    "process_vm_writev": 311, "process_madvise": 440, "process_mrelease": 448, "pidfd_getfd": 438, "kcmp": 312, "seccomp": 317,
    "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446, "init_module": 175, "finit_module": 313,
    "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320, "create_module": 174, "query_module": 178, "get_kernel_syms": 177,
    "lookup_dcookie": 212, "syslog": 103, "reboot": 169, "acct": 163, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "vhangup": 153,
    "nfsservctl": 180, "uselib": 134, "ustat": 136, "sysfs": 139, "_sysctl": 156, "memfd_secret": 447, "sethostname": 170,
    "setdomainname": 171, "settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159, "capset": 126,
    "migrate_pages": 256, "move_pages": 279, "set_mempolicy_home_node": 450,
}
MAYBE_UNKNOWN = {"statmount": 457, "listmount": 458, "lsm_set_self_attr": 460, "open_tree_attr": 467}
# Callers of these have a fallback for ENOSYS, not for EPERM.
UNKNOWN = {"clone3": 435, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "io_setup": 206, "io_submit": 209}
# Of what came after the old numbers' end, these alone are let through.
NEW_ALLOWED = {424, 434, 436, 437, 439, 441, 449, 452}

CALLS = r"""
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_ulong(a & (2 ** 64 - 1)) for a in args])
    if r == -1: raise OSError(ctypes.get_errno(), 'syscall')
    return r
"""


class SystemCalls(Case):
    def test_named_refusals(self):
        # With arguments that mean nothing: the filter speaks before the kernel looks at them.
        table = [("call(%d, -1, -1, -1, -1, -1, -1)" % nr, "EPERM") for nr in REFUSED.values()]
        table += [("call(%d, 0, 0, 0, 0, 0, 0)" % nr, "EPERM") for nr in REFUSED.values()]
        table += [("call(%d, 0, 0, 0, 0, 0, 0)" % nr, ("EPERM", "ENOSYS")) for nr in MAYBE_UNKNOWN.values()]
        table += [("call(%d, 0, 0, 0, 0, 0, 0)" % nr, "ENOSYS") for nr in UNKNOWN.values()]
        self.expect(table, CALLS)

    def test_unknown_numbers(self):
        # 335 and 336 are for the trampolines of uprobes: kernels with them do not ask a filter, and kill whoever else calls.
        numbers = [n for n in range(424, 600) if n not in NEW_ALLOWED] + list(range(337, 424)) + [1000, 4095, 0x3FFFFFFF, 0xFFFFFFFF]
        code = "import ctypes, json, errno\n" + CALLS + (
            "found = {}\nfor n in %r:\n"
            "    try: call(n, 0, 0, 0, 0, 0, 0); found[n] = 'worked'\n"
            "    except OSError as e: found[n] = errno.errorcode[e.errno]\n"
            "print(json.dumps(found))" % (numbers,)
        )
        found = self.data(code)
        self.assertEqual({n: e for n, e in found.items() if e not in ("ENOSYS", "EPERM")}, {})
        known = set(REFUSED.values()) | set(MAYBE_UNKNOWN.values())
        self.assertEqual({n: e for n, e in found.items() if int(n) not in known and e != "ENOSYS"}, {})

    def test_namespaces_through_clone(self):
        flags = {"NEWNS": 0x20000, "NEWCGROUP": 0x2000000, "NEWUTS": 0x4000000, "NEWIPC": 0x8000000, "NEWUSER": 0x10000000, "NEWPID": 0x20000000, "NEWNET": 0x40000000}
        table = []
        for bit in flags.values():
            for extra in (17, 0, 17 | 1 << 32, 17 | 0xFFFFFFFF << 32, 17 | 0x10000000):
                table.append(("call(56, %d, 0, 0, 0, 0)" % (bit | extra), "EPERM"))
            table.append(("call(272, %d)" % bit, "EPERM"))
            table.append(("call(272, %d)" % (bit | 1 << 32), "EPERM"))
            table.append(("call(308, os.open('/proc/self/ns/net', os.O_RDONLY), %d)" % bit, "EPERM"))
        table.append(("call(435, ctypes.addressof(args), 88)", "ENOSYS"))
        table.append(("os.unshare(0x10000000) if hasattr(os, 'unshare') else 'EPERM'", "EPERM"))
        # And a plain one works, with odd high bits too: the kernel takes an int.
        table.append(("child(17)", 0))
        table.append(("child(17 | 1 << 40)", 0))
        self.expect(
            table,
            CALLS + "args = (ctypes.c_ulong * 11)(0x10000000)\n"
            "def child(flags):\n    pid = call(56, flags, 0, 0, 0, 0)\n    if pid == 0: os._exit(0)\n    return os.waitpid(pid, 0)[1]\n",
        )

    def test_high_half_of_an_int(self):
        table = []
        for high in (1 << 32, 0xFFFFFFFF << 32, 1 << 63):
            for fd in (0, 1, 2):
                table += [("call(16, %d, 0x5412 + %d, buffer)" % (fd, high), "EPERM"), ("call(16, %d, 0x541C + %d, buffer)" % (fd, high), "EPERM")]
            table += [
                ("call(41, 17 + %d, 3, 0)" % high, "EAFNOSUPPORT"),  # AF_PACKET
                ("call(41, 16 + %d, 3, 0)" % high, "EAFNOSUPPORT"),  # AF_NETLINK
                ("call(41, 40 + %d, 1, 0)" % high, "EAFNOSUPPORT"),  # AF_VSOCK
                ("call(41, 2 + %d, 3 + %d, 255)" % (high, high), "EPERM"),  # raw
                ("call(41, 2, 3 + %d, 1)" % high, "EPERM"),
                ("call(41, 2 + %d, 2, 136 + %d)" % (high, high), "EPROTONOSUPPORT"),  # UDP-Lite
                ("call(160, 4 + %d, buffer)" % high, "EPERM"),  # setrlimit(RLIMIT_CORE)
                ("call(302, 0, 4 + %d, buffer, 0)" % high, "EPERM"),  # prlimit64
                ("call(135, 0x0040000 + %d)" % high, ("EPERM", "ENOSYS")),  # personality(ADDR_NO_RANDOMIZE)
                ("call(317 + (%d & 0), 1 + %d, 0, buffer)" % (high, high), "EPERM"),
            ]
        self.expect(table, CALLS + "memory = ctypes.create_string_buffer(64)\nbuffer = ctypes.addressof(memory)\n")

    def test_terminal_requests(self):
        table = []
        for fd in (0, 1, 2, "tmp", "pipe[0]", "pair[0].fileno()", -1):
            for request in (0x5412, 0x541C, 0x540E, 0x541D, 0x5423):  # TIOCSTI, TIOCLINUX, TIOCSCTTY, TIOCCONS, TIOCSETD
                table.append(("call(16, %s, %d, buffer)" % (fd, request), "EPERM"))
        # What an ordinary program asks works, or fails as on any host.
        table += [("os.isatty(1)", False), ("os.get_terminal_size(1)", "ENOTTY"), ("len(fcntl.ioctl(pipe[0], 0x541B, b'1234'))", 4), ("call(16, 0, 0xDEADBEEF, 0)", ("ENOSYS", "ENOTTY", "EPERM"))]
        self.expect(table, CALLS + "import fcntl\nmemory = ctypes.create_string_buffer(64)\nbuffer = ctypes.addressof(memory)\ntmp = os.open('f', os.O_CREAT | os.O_RDWR)\npipe = os.pipe()\npair = socket.socketpair()\n")

    def test_core_limit_stays(self):
        """At 1 no core is written and no helper of the host's is started; a snippet must not set it to anything else."""
        prelude = CALLS + (
            "import resource, mmap\n"
            "libc.mmap.restype = ctypes.c_void_p\n"
            "libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]\n"
            # Addresses whose low or high half is zero: a comparison of one half would miss one of them.
            "low_zero = libc.mmap(0x200000000, 4096, 3, 0x100022, -1, 0)\n"
            "high_zero = libc.mmap(0x20000, 4096, 3, 0x100022, -1, 0)\n"
            "memory = ctypes.create_string_buffer(64)\nbuffer = ctypes.addressof(memory)\n"
            "def lower(which, value):\n    hard = resource.getrlimit(which)[1]\n    resource.setrlimit(which, (value, hard)); return resource.getrlimit(which)[0]\n"
            "def quiet(fn, *a):\n    try: return fn(*a)\n    except ValueError: return 'EPERM'\n"
        )
        table = [
            ("resource.getrlimit(resource.RLIMIT_CORE)", "(1, 1)"),
            ("quiet(resource.setrlimit, resource.RLIMIT_CORE, (0, 0))", "EPERM"),
            ("quiet(resource.setrlimit, resource.RLIMIT_CORE, (-1, -1))", "EPERM"),
            ("quiet(resource.prlimit, 0, resource.RLIMIT_CORE, (0, 1))", "EPERM"),
            ("call(160, 4, buffer)", "EPERM"),
            ("call(302, 0, 4, buffer, 0)", "EPERM"),
            ("call(302, 0, 4, low_zero, 0) if low_zero == 0x200000000 else 'EPERM'", "EPERM"),
            ("call(302, 0, 4, high_zero, 0) if high_zero == 0x20000 else 'EPERM'", "EPERM"),
            ("call(302, os.getpid(), 4, buffer, 0)", "EPERM"),
            ("call(302, 0, 4, 0, buffer)", 0),
            ("resource.getrlimit(resource.RLIMIT_CORE)", "(1, 1)"),
            ("lower(resource.RLIMIT_FSIZE, 1 << 20)", 1 << 20),
            ("lower(resource.RLIMIT_NOFILE, 100)", 100),
        ]
        self.expect(table, prelude)

    def test_no_core_is_written(self):
        code = (
            "import os, resource, ctypes, signal, glob, subprocess, sys\n"
            "for s in (signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT, signal.SIGSYS, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGTRAP):\n"
            "    pid = os.fork()\n"
            "    if pid == 0: signal.signal(s, signal.SIG_DFL); os.kill(os.getpid(), s); os._exit(0)\n"
            "    status = os.waitpid(pid, 0)[1]\n"
            "    print(os.WTERMSIG(status) == s, os.WCOREDUMP(status))\n"
            "for i in range(20):\n    subprocess.run([sys.executable, '-c', 'import ctypes; ctypes.string_at(0)'], stderr=-3)\n"
            "print(sorted(os.listdir('/box') + os.listdir('/tmp') + os.listdir('/dev/shm')))"
        )
        before = {d: set(os.listdir(d)) for d in ("/var/lib/systemd/coredump", "/var/crash", "/cores") if os.path.isdir(d)}
        self.assertEqual(self.out(code).splitlines(), ["True False"] * 8 + ["['home', 'main.py']"])
        self.assertEqual({d: set(os.listdir(d)) for d in before}, before)

    def test_foreign_system_call_tables(self):
        """i386 and x32 calls are another table with other numbers: whoever uses one is killed, threads and all."""
        machine = (
            "import os, sys, ctypes, mmap, json, threading\n"
            "def machine(text):\n"
            "    area = mmap.mmap(-1, 4096, prot=7)\n    area.write(bytes.fromhex(text))\n"
            "    return area, ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(area)))\n"
            "def child(fn):\n"
            "    sys.stdout.flush()\n    pid = os.fork()\n"
            "    if pid == 0:\n        fn(); os._exit(0)\n"
            "    status = os.waitpid(pid, 0)[1]\n"
            "    return [os.WIFSIGNALED(status) and os.WTERMSIG(status), os.WCOREDUMP(status)]\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
        )
        code = machine + (
            # mov eax, NR; int 0x80; ret
            "i386 = {n: machine('b8' + n.to_bytes(4, 'little').hex() + 'cd80c3') for n in (20, 1, 2, 11, 102, 120, 359, 1000)}\n"
            "x32 = [0x40000000 | n for n in (39, 0, 1, 41, 56, 59, 272, 512, 520, 547, 1000)]\n"
            # mov eax, 39; syscall; ret: the control
            "own = machine('b8270000000f05c3')\n"
            "found = {'i386 %d' % n: child(m[1]) for n, m in i386.items()}\n"
            "found.update({'x32 %#x' % n: child(lambda: libc.syscall(ctypes.c_long(n), 0, 0, 0)) for n in x32})\n"
            "def in_a_thread():\n    t = threading.Thread(target=i386[20][1]); t.start(); t.join()\n"
            "found['i386 in a thread'] = child(in_a_thread)\n"
            "found['own'] = child(own[1])\n"
            "print(json.dumps(found))"
        )
        found = self.data(code)
        self.assertEqual(found.pop("own"), [False, False])
        self.assertEqual({k: v for k, v in found.items() if v != [31, False]}, {})
        answer = self.service.run(machine + "m = machine('b814000000cd80c3')\nm[1]()\nprint('alive')")
        self.assertEqual((answer["termination"]["reason"], answer["termination"]["signal"], answer["exit_code"], answer["stdout"]), ("signal", "SIGSYS", 159, ""))

    def test_sockets(self):
        table = [("socket.socket(%d, %d, %d)" % row, error) for row, error in (
            ((17, 3, 0), "EAFNOSUPPORT"), ((17, 2, 0x0300), "EAFNOSUPPORT"), ((16, 3, 0), "EAFNOSUPPORT"), ((40, 1, 0), "EAFNOSUPPORT"), ((38, 5, 0), "EAFNOSUPPORT"),
            ((44, 3, 0), "EAFNOSUPPORT"), ((29, 3, 1), "EAFNOSUPPORT"), ((30, 5, 0), "EAFNOSUPPORT"), ((31, 1, 0), "EAFNOSUPPORT"), ((15, 3, 2), "EAFNOSUPPORT"),
            ((2, 3, 1), "EPERM"), ((2, 3, 255), "EPERM"), ((10, 3, 58), "EPERM"), ((2, 10, 3), "EPERM"), ((2, 5, 132), "EPERM"), ((2, 6, 33), "EPERM"),
            ((2, 1, 132), "EPROTONOSUPPORT"), ((2, 1, 262), "EPROTONOSUPPORT"), ((10, 1, 262), "EPROTONOSUPPORT"), ((2, 2, 136), "EPROTONOSUPPORT"), ((2, 2, 1), "EPROTONOSUPPORT"), ((10, 2, 58), "EPROTONOSUPPORT"),
        )]
        table += [("socket.socket(%d, 1, 0)" % n, ("EAFNOSUPPORT", "ENOSYS")) for n in (0, 3, 4, 5, 9, 21, 37, 43, 45, 46, 99)]
        table += [("bool(socket.socket(%d, %d))" % row, True) for row in ((1, 1), (1, 2), (1, 5), (2, 1), (2, 2), (10, 1), (10, 2))]
        table += [("bool(socket.socket(2, 1 | 0o2000000 | 0o4000))", True), ("bool(socket.socketpair())", True)]
        self.expect(table)

    def test_what_it_may_do_to_itself(self):
        table = [
            ("prctl(38, 1, 0, 0, 0)", 0),  # PR_SET_NO_NEW_PRIVS again
            ("prctl(39, 0, 0, 0, 0)", 1),
            ("prctl(4, 0, 0, 0, 0)", 0),  # PR_SET_DUMPABLE
            # A filter of its own would be code in the kernel's memory that no cgroup pays for.
            ("prctl(22, 2, ctypes.addressof(prog), 0, 0)", "EPERM"),
            ("prctl(22 + (1 << 32), 2, ctypes.addressof(prog), 0, 0)", "EPERM"),
            ("prctl(22, 1, 0, 0, 0)", "EPERM"),
            ("prctl(24, 0, 0, 0, 0)", "EPERM"),  # PR_CAPBSET_DROP needs a capability
            ("prctl(28, 0x3f, 0, 0, 0)", ("EPERM", "ENOSYS")),  # PR_SET_SECUREBITS
            ("prctl(59, 1, 0, 0, 0)", ("EPERM", "ENOSYS", "EINVAL")),  # PR_SET_SYSCALL_USER_DISPATCH
            ("os.nice(5)", 5),
            ("os.nice(-5)", ("EPERM", "EACCES")),
            ("os.setpriority(0, 0, -20)", ("EPERM", "EACCES")),
            ("os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))", "EPERM"),
            ("os.setuid(0)", "EPERM"), ("os.setgid(0)", "EPERM"), ("os.setgroups([0])", "EPERM"), ("os.setresuid(%d, -1, -1)" % 0x70000000, "EPERM"),
            ("personality(0xffffffff)", 0), ("personality(0)", 0), ("personality(0x0040000)", ("EPERM", "ENOSYS")), ("personality(8)", ("EPERM", "ENOSYS")), ("personality(0x0400000)", ("EPERM", "ENOSYS")),
            ("os.chroot('/box')", "EPERM"), ("mlock()", ("EPERM", "ENOMEM")), ("os.chown('/box', 0, 0)", "EPERM"),
        ]
        self.expect(
            table,
            "import struct\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "rows = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n"
            "prog = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 1, ctypes.addressof(rows)))\n"
            "def prctl(*a):\n    r = libc.prctl(*[ctypes.c_ulong(n) for n in a])\n    if r < 0: raise OSError(ctypes.get_errno(), '')\n    return r\n"
            "libc.personality.argtypes = [ctypes.c_ulong]\n"
            "def personality(n):\n    r = libc.personality(n)\n    if r < 0: raise OSError(ctypes.get_errno(), '')\n    return r\n"
            "def mlock():\n    big = ctypes.create_string_buffer(1 << 20)\n    if libc.mlock(big, 1 << 20) < 0: raise OSError(ctypes.get_errno(), '')\n",
        )


class Apart(Case):
    """Two sandboxes that run at the same time can not meet, although the same program inside one sandbox does."""

    # Each place to meet: what A leaves (and says whether it could), what B finds.
    PLACES = r"""
import os, sys, json, time, socket, ctypes, fcntl, signal, errno, mmap
libc = ctypes.CDLL(None, use_errno=True)
LOCKED = ['/usr/bin/python3', '/usr/bin/sh', '/usr/bin/cat', '/etc/passwd', '/etc/hosts', '/dev/null', '/dev/zero', '/dev/full', '/dev/random', '/dev/urandom', '/', '/usr', '/etc', '/dev',
          '/proc', '/proc/self/status', '/tmp', '/dev/shm', os.__file__, os.path.dirname(os.__file__), '/usr/share/zoneinfo', '/usr/share/weir/ca-certificates.crt', '/lib64/ld-linux-x86-64.so.2']
def c(name, *a):
    f = getattr(libc, name); f.restype = ctypes.c_long if name == 'syscall' else ctypes.c_int
    r = f(*a)
    if r == -1: raise OSError(ctypes.get_errno(), name)
    return r
def word(fn, *a):
    try: return fn(*a)
    except OSError as e: return errno.errorcode.get(e.errno, str(e))
    except Exception as e: return type(e).__name__
keep = []
def leave():
    made = {}
    def unix(kind, address):
        s = socket.socket(socket.AF_UNIX, kind); s.bind(address); s.setblocking(False)
        if kind != socket.SOCK_DGRAM: s.listen(5)
        keep.append(s); return True
    made['abstract stream'] = word(unix, socket.SOCK_STREAM, '\0weir-meet')
    made['abstract datagram'] = word(unix, socket.SOCK_DGRAM, '\0weir-meet-d')
    for d in ('/tmp', '/dev/shm', '/box'):
        made['socket in ' + d] = word(unix, socket.SOCK_STREAM, d + '/meet.sock')
        def put(): open(d + '/meet.txt', 'w').write('from A'); return True
        made['file in ' + d] = word(put)
        def fifo(): os.mkfifo(d + '/meet.fifo'); keep.append(os.open(d + '/meet.fifo', os.O_RDWR | os.O_NONBLOCK)); return True
        made['fifo in ' + d] = word(fifo)
    made['shm of System V'] = word(lambda: c('shmget', 0x5757, 4096, 0o1666) >= 0)
    made['semaphore of System V'] = word(lambda: c('semget', 0x5757, 1, 0o1666) >= 0)
    made['queue of System V'] = word(lambda: c('msgget', 0x5757, 0o1666) >= 0)
    made['queue of POSIX'] = word(lambda: c('mq_open', b'/weir-meet', 0o102, 0o666, None) >= 0)
    made['key'] = word(lambda: c('syscall', 248, b'user', b'weir-meet', b'secret', 6, -3) > 0)
    def lock(path):
        fd = os.open(path, os.O_RDONLY); keep.append(fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB); return True
    for path in LOCKED: made['flock ' + path] = word(lock, path)
    def posix(path):
        fd = os.open(path, os.O_RDONLY); keep.append(fd)
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB); return True
    made['lease'] = word(lambda: keep.append(os.open('/etc/hosts', os.O_RDONLY)) or fcntl.fcntl(keep[-1], fcntl.F_SETLEASE, fcntl.F_RDLCK) == 0)
    return made
def find(others):
    found = {}
    def connect(kind, address):
        s = socket.socket(socket.AF_UNIX, kind); s.connect(address); keep.append(s); s.send(b'hello'); return True
    found['abstract stream'] = word(connect, socket.SOCK_STREAM, '\0weir-meet')
    found['abstract datagram'] = word(connect, socket.SOCK_DGRAM, '\0weir-meet-d')
    for d in ('/tmp', '/dev/shm', '/box'):
        found['socket in ' + d] = word(connect, socket.SOCK_STREAM, d + '/meet.sock')
        found['file in ' + d] = word(lambda: open(d + '/meet.txt').read() == 'from A')
        found['fifo in ' + d] = word(lambda: os.open(d + '/meet.fifo', os.O_WRONLY | os.O_NONBLOCK) >= 0)
    found['shm of System V'] = word(lambda: c('shmget', 0x5757, 4096, 0o600) >= 0)
    found['semaphore of System V'] = word(lambda: c('semget', 0x5757, 1, 0o600) >= 0)
    found['queue of System V'] = word(lambda: c('msgget', 0x5757, 0o600) >= 0)
    found['queue of POSIX'] = word(lambda: c('mq_open', b'/weir-meet', 0, 0, None) >= 0)
    found['key'] = word(lambda: c('syscall', 249, b'user', b'weir-meet', None, 0) > 0)
    def lock(path):
        fd = os.open(path, os.O_RDONLY)
        try: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError: return True  # somebody else holds it: we have met
        finally: os.close(fd)
        return False
    for path in LOCKED: found['flock ' + path] = word(lock, path)
    found['processes'] = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())
    def names():
        out = []
        for p in os.listdir('/proc'):
            if p.isdigit():
                try: out.append(open('/proc/%s/cmdline' % p).read() + open('/proc/%s/comm' % p).read())
                except OSError: pass
        return 'weir-meet-A' in ''.join(out)
    found['process list'] = word(names)
    def signals():
        sent = 0
        for pid in others:
            try: os.kill(pid, signal.SIGUSR1); sent += 1
            except OSError: pass
        try: os.kill(-1, signal.SIGUSR2)
        except OSError: pass
        return sent > 0
    signal.signal(signal.SIGUSR1, signal.SIG_IGN); signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    found['signal'] = word(signals)
    found['ptrace'] = word(lambda: c('ptrace', 16, others[0] if others else 1, 0, 0) == 0)
    return found
"""

    A = PLACES + r"""
got = []
for s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM): signal.signal(s, lambda n, f: got.append(n))
made = leave()
c('prctl', 15, b'weir-meet-A', 0, 0, 0)
end = time.time() + SECONDS
heard = []
while time.time() < end:
    for s in [k for k in keep if isinstance(k, socket.socket)]:
        try:
            if s.type == socket.SOCK_DGRAM: heard.append(s.recv(100).decode())
            else: heard.append(s.accept()[0].recv(100).decode())
        except OSError: pass
    time.sleep(0.01)
print(json.dumps({'made': made, 'heard': heard, 'signals': got, 'ended': time.time()}))
"""
    B = PLACES + "print(json.dumps(dict(find(OTHERS), ended=time.time())))\n"

    def host_pid(self, comm):
        deadline = time.monotonic() + 10 * SLOW
        while time.monotonic() < deadline:
            found = [p for p in pids() if read("/proc/%d/comm" % p).strip() == comm]
            if found:
                return found[0]
            time.sleep(0.01)
        self.fail("no process called " + comm)

    def test_two_sandboxes_do_not_meet(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = pool.submit(self.data, self.A.replace("SECONDS", "2.0"), timeout_s=20)
            host = self.host_pid("weir-meet-A")
            # B is told every number by which A may be known: as A sees itself, and as the host sees it.
            b = self.data(self.B.replace("OTHERS", repr([2, 3, host, host - 1])), timeout_s=20)
            a = first.result()
        self.assertLess(b["ended"], a["ended"], "A was gone before B had looked")
        self.assertEqual((a["heard"], a["signals"]), ([], []))
        self.assertEqual(b.pop("processes"), [1, 2])
        b.pop("ended")
        # pid 2 is B itself: that signal went home, which is no meeting.
        self.assertEqual(b.pop("signal"), True)
        met = {k: v for k, v in b.items() if v is True}
        self.assertEqual(met, {})
        # A could do all of it, so there was something to find; but for the two that nobody has.
        refused = {k: v for k, v in a["made"].items() if v is not True}
        self.assertEqual(refused.pop("key"), "EPERM")
        self.assertIn(refused.pop("queue of POSIX"), ("EMFILE", "ENOSYS", "EPERM", "AttributeError"))
        refused.pop("lease", None)
        self.assertEqual(refused, {})

    def test_the_same_two_in_one_sandbox_do(self):
        """The counter-proof: as parent and child of one sandbox the two programs meet at every place."""
        code = (
            "import subprocess, sys, time, os, json\n"
            "open('a.py', 'w').write(%r)\nopen('b.py', 'w').write(%r)\n" % (self.A.replace("SECONDS", "1.5"), self.B.replace("OTHERS", "json.loads(sys.argv[1])"))
            + "a = subprocess.Popen([sys.executable, 'a.py'], stdout=subprocess.PIPE, text=True)\n"
            "while open('/proc/%d/comm' % a.pid).read().strip() != 'weir-meet-A': time.sleep(0.01)\n"
            "b = json.loads(subprocess.check_output([sys.executable, 'b.py', json.dumps([a.pid])], text=True))\n"
            "print(json.dumps([json.loads(a.communicate()[0]), b]))"
        )
        code = "import signal\nsignal.signal(signal.SIGUSR2, signal.SIG_IGN)\n" + code
        a, b = self.data(code, timeout_s=20)
        missed = {k: v for k, v in b.items() if a["made"].get(k) is True and v is not True}
        # A file of /proc is opened anew by each; there is no lock to share even inside.
        missed.pop("flock /proc/self/status", None)
        self.assertEqual(missed, {})
        self.assertEqual(len(a["heard"]), 5)
        self.assertIn(10, a["signals"])
        self.assertTrue(b["process list"] and b["signal"])

    def test_a_held_lock_does_not_delay_a_start(self):
        code = self.PLACES + "leave()\nc('prctl', 15, b'weir-meet-L', 0, 0, 0)\ntime.sleep(1.5)\nprint('{}')"
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = pool.submit(self.data, code, timeout_s=20)
            self.host_pid("weir-meet-L")
            began = time.monotonic()
            for _ in range(5):
                self.service.run("import os, fcntl\nfcntl.flock(os.open('/usr/bin/python3', os.O_RDONLY), fcntl.LOCK_EX)\nprint(1)", timeout_s=5)
            self.assertLess(time.monotonic() - began, 1.5 * SLOW)
            first.result()


class OrdinaryPython(Case):
    """What every Python user expects to work."""

    SNIPPETS = {
        "threads": "import threading\na = []\nts = [threading.Thread(target=a.append, args=(i,)) for i in range(50)]\n[t.start() for t in ts]; [t.join() for t in ts]\nassert sorted(a) == list(range(50))",
        "subprocess": "import subprocess\nassert subprocess.check_output('echo a | tr a b', shell=True) == b'b\\n'\nassert subprocess.run(['sh', '-c', 'cat; exit 3'], input=b'x', capture_output=True).returncode == 3\nassert subprocess.getoutput('echo hi') == 'hi'",
        "multiprocessing": (
            "import multiprocessing as mp\ndef f(x): return x * x\ndef g(q, l):\n    with l: q.put(1)\n"
            "if __name__ == '__main__':\n"
            "    for how in ('fork', 'spawn', 'forkserver'):\n"
            "        with mp.get_context(how).Pool(2) as p: assert p.map(f, range(10)) == [i * i for i in range(10)]\n"
            "    q, l = mp.Queue(), mp.Lock()\n    p = mp.Process(target=g, args=(q, l)); p.start(); assert q.get() == 1; p.join()\n"
            "    from multiprocessing import shared_memory\n    s = shared_memory.SharedMemory(create=True, size=1000); s.buf[0] = 7; s.close(); s.unlink()\n"
            "    with mp.Manager() as m: d = m.dict(); d['a'] = 1; assert d['a'] == 1\n"
        ),
        "concurrent.futures": (
            "import concurrent.futures as f\ndef g(x): return x + 1\nif __name__ == '__main__':\n"
            "    with f.ProcessPoolExecutor(2) as p: assert list(p.map(g, range(5))) == [1, 2, 3, 4, 5]\n"
            "    with f.ThreadPoolExecutor() as p: assert list(p.map(g, range(5))) == [1, 2, 3, 4, 5]"
        ),
        "asyncio": (
            "import asyncio, sys, signal\n"
            "async def main():\n"
            "    await asyncio.sleep(0.01)\n"
            "    p = await asyncio.create_subprocess_exec('sh', '-c', 'read a; echo $a', stdin=-1, stdout=-1)\n"
            "    out, _ = await p.communicate(b'hi\\n')\n    assert out == b'hi\\n'\n"
            "    loop = asyncio.get_running_loop()\n    assert await loop.run_in_executor(None, lambda: 5) == 5\n"
            "    got = loop.create_future()\n    loop.add_signal_handler(signal.SIGUSR1, got.set_result, 1)\n    import os; os.kill(os.getpid(), signal.SIGUSR1); await got\n"
            "    async def echo(r, w): w.write(await r.readline()); await w.drain(); w.close()\n"
            "    s = await asyncio.start_unix_server(echo, 'sock')\n    r, w = await asyncio.open_unix_connection('sock'); w.write(b'x\\n'); assert await r.readline() == b'x\\n'\n"
            "    await asyncio.wait_for(asyncio.gather(*[asyncio.sleep(0.01) for _ in range(100)]), 5)\n"
            "asyncio.run(main())"
        ),
        "sqlite": (
            "import sqlite3\nfor d in ('/box', '/tmp', '/tmp/home'):\n    c = sqlite3.connect(d + '/x.db'); assert c.execute('pragma journal_mode=wal').fetchone() == ('wal',)\n"
            "    c.execute('create table t(a)'); c.executemany('insert into t values(?)', [(i,) for i in range(1000)]); c.commit()\n"
            "    assert c.execute('select sum(a) from t').fetchone() == (499500,)"
        ),
        "tempfile": "import tempfile, os\nassert tempfile.gettempdir() == '/tmp'\nwith tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').write('y')\nwith tempfile.NamedTemporaryFile() as f: f.write(b'x')\nwith tempfile.TemporaryFile() as f: f.write(b'x')\nwith tempfile.SpooledTemporaryFile() as f: f.write(b'x')",
        "time zones": (
            "import zoneinfo, datetime, time, os\nt = datetime.datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo('Europe/Paris'))\nassert t.utcoffset().seconds == 7200 and t.tzname() == 'CEST'\n"
            "assert time.tzname == ('UTC', 'UTC') and datetime.datetime.now().astimezone().utcoffset().seconds == 0\nassert len(zoneinfo.available_timezones()) > 400\n"
            "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset(); assert time.tzname[0] == 'JST'"
        ),
        "locale": "import locale, sys\nassert locale.setlocale(locale.LC_ALL, '') == 'C.UTF-8' and locale.getpreferredencoding().lower() == 'utf-8'\ntry: locale.setlocale(locale.LC_ALL, 'xx_YY.UTF-8'); assert 0\nexcept locale.Error: pass\nassert sys.stdout.encoding == 'utf-8' and sys.getfilesystemencoding() == 'utf-8'\nprint('äöü 漢字 😀')\nopen('ä.txt', 'w').write('é'); assert open('ä.txt', 'rb').read() == b'\\xc3\\xa9'",
        "ssl": "import ssl\nc = ssl.create_default_context()\nassert len(c.get_ca_certs()) > 50 and c.verify_mode == ssl.CERT_REQUIRED\nassert ssl.get_default_verify_paths().cafile",
        "ctypes": "import ctypes, ctypes.util\nlibc = ctypes.CDLL('libc.so.6'); assert libc.abs(-3) == 3\nassert ctypes.CDLL(None).getpid() > 1\nassert ctypes.CDLL('libm.so.6').floor\nf = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x + 1); assert f(1) == 2",
        "unix sockets": (
            "import socket, threading, os, array\na, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'\n"
            "s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); s.listen()\n"
            "if os.fork() == 0:\n    c = socket.socket(socket.AF_UNIX); c.connect('/tmp/s'); c.sendall(b'hi'); os._exit(0)\n"
            "c, _ = s.accept(); assert c.recv(10) == b'hi'\n"
            "r, w = os.pipe(); socket.send_fds(a, [b'f'], [w]); _, fds, _, _ = socket.recv_fds(b, 1, 1); os.write(fds[0], b'z'); assert os.read(r, 1) == b'z'"
        ),
        "accounts": "import pwd, grp, os, getpass, pathlib\np = pwd.getpwuid(os.getuid()); assert (p.pw_name, p.pw_dir, p.pw_shell) == ('sandbox', '/tmp/home', '/bin/sh')\nassert grp.getgrgid(os.getgid()).gr_name == 'sandbox'\nassert getpass.getuser() == 'sandbox' and str(pathlib.Path.home()) == '/tmp/home' == os.path.expanduser('~')\nassert len(pwd.getpwall()) == 1\ntry: os.getlogin(); assert 0\nexcept OSError: pass",
        "names without a stall": (
            "import socket, time, uuid, logging, platform\n"
            "def quick(fn, *a, ok=()):\n"
            "    t = time.monotonic()\n    try: r = fn(*a)\n    except ok as e: r = e\n"
            "    assert time.monotonic() - t < 0.5, (fn, time.monotonic() - t)\n    return r\n"
            "assert quick(socket.gethostname) == 'sandbox'\nassert quick(socket.getfqdn)\nassert quick(socket.gethostbyname, 'localhost') == '127.0.0.1'\nassert quick(socket.gethostbyname, 'sandbox') == '127.0.0.1'\n"
            "quick(uuid.uuid1); quick(socket.getservbyname, 'https'); quick(platform.node); quick(platform.platform); quick(socket.getaddrinfo, 'localhost', 80)\n"
            "quick(socket.gethostbyaddr, '127.0.0.1'); quick(socket.getnameinfo, ('127.0.0.1', 80), 0)"
        ),
        "files": (
            "import os, fcntl, mmap, shutil, pathlib, glob\nopen('a', 'wb').write(b'x' * 100000)\nshutil.copy('a', 'b'); shutil.move('b', 'c'); os.link('a', 'd'); os.symlink('a', 'e')\n"
            "f = open('a', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); fcntl.flock(f, fcntl.LOCK_UN); m = mmap.mmap(f.fileno(), 0); m[0] = 65; m.flush(); m.close()\n"
            "os.sendfile(os.open('o', os.O_CREAT | os.O_WRONLY), f.fileno(), 0, 1000); os.setxattr('a', 'user.k', b'v') if hasattr(os, 'setxattr') and 0 else 0\n"
            "os.makedirs('x/y/z'); shutil.make_archive('t', 'gztar', 'x'); shutil.rmtree('x'); assert sorted(glob.glob('*')) == ['a', 'c', 'd', 'e', 'main.py', 'o', 't.tar.gz']\n"
            "os.sync(); os.fsync(f.fileno()); os.statvfs('/'); os.posix_fadvise(f.fileno(), 0, 0, 4); os.copy_file_range(f.fileno(), os.open('p', os.O_CREAT | os.O_WRONLY), 10)\n"
            "import subprocess; subprocess.check_call('cp -a a q; cp --reflink=auto a r; tar cf s.tar a; gzip -kc a >a.gz; xz -kc a >a.xz; install a u; mv u v; touch -d yesterday v; dd if=/dev/zero of=w count=1 2>/dev/null; stat v >/dev/null; find . -name a; du -s . >/dev/null; shuf -n1 v >/dev/null', shell=True)"
        ),
        "machine": "import os, platform, sys, time, resource, threading, signal\nassert len(os.sched_getaffinity(0)) >= 1\nplatform.uname(); platform.libc_ver(); sys.version_info; time.get_clock_info('monotonic'); resource.getrusage(0); os.times(); os.getloadavg\nassert threading.get_native_id() == os.getpid() == 2\nsignal.setitimer(signal.ITIMER_REAL, 0.01); signal.signal(signal.SIGALRM, lambda *a: None); signal.pause()",
        "memory that can be run": "import mmap, ctypes\nm = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('b82a000000c3'))\nassert ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))() == 42",
        "standard input": "import sys\nassert sys.stdin is not None and sys.stdin.read() == ''\ntry: input(); assert 0\nexcept EOFError: pass",
        "introspection": "import inspect, traceback, linecache, warnings, pickle, importlib\ndef f():\n    return 1\nassert 'return 1' in inspect.getsource(f)\nclass A: pass\nassert type(pickle.loads(pickle.dumps(A()))) is A\nopen('mod.py', 'w').write('x = 5')\nimport mod; assert mod.x == 5",
        "nothing of the host's packages": "import importlib.util, sys\nassert importlib.util.find_spec('pip') is None\nassert [p for p in sys.path if p != '/box' and not p.startswith(('/usr/lib/python3', '/usr/local/lib/python3'))] == []",
    }

    def test_works(self):
        names = sorted(self.SNIPPETS)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda n: self.service.run(self.SNIPPETS[n], timeout_s=20), names))
        for name, answer in zip(names, answers):
            with self.subTest(name):
                self.assertEqual((answer["exit_code"], answer["stderr"]), (0, ""))

    def test_cpu_count_is_what_a_run_gets(self):
        # One vCPU: whoever sizes a pool by it must not make one for the whole host.
        self.assertEqual(self.out("import os, multiprocessing\nprint(os.cpu_count(), multiprocessing.cpu_count())"), "1 1\n")

    def test_python_names_no_path_of_the_host(self):
        code = (
            "import sys, sysconfig, json, site, os\n"
            "found = {k: v for k, v in sysconfig.get_config_vars().items()}\n"
            "found.update({k: getattr(sys, k) for k in ('prefix', 'base_prefix', 'exec_prefix', 'base_exec_prefix', 'executable', '_base_executable', 'path', 'orig_argv', 'argv', '_git')})\n"
            "found['__file__'] = [getattr(m, '__file__', None) for m in sys.modules.values()]\nfound['co'] = os.walk.__code__.co_filename\n"
            "print(json.dumps({k: str(v) for k, v in found.items()}))"
        )
        homes = re.compile(r"(?<![\w.])/(?:root|home|Users)/[\w./-]+")
        found = {k: homes.findall(v) for k, v in self.data(code).items()}
        self.assertEqual({k: v[0] for k, v in found.items() if v}, {})

    def test_the_library_imports(self):
        """Every module of the standard library that imports on the host's own interpreter imports here."""
        code = (
            "import sys, importlib, warnings, json\nwarnings.simplefilter('ignore')\nbad = {}\n"
            "skip = {'antigravity', 'this', 'idlelib', 'turtledemo', 'turtle', 'lib2to3', 'msilib', 'msvcrt', 'nt', 'winreg', 'winsound', '_winapi', '_overlapped', 'ossaudiodev', 'ntpath', '_msi', '_wmi', '_scproxy', 'pyexpat', '__phello__', '_testinternalcapi', 'nturl2path'}\n"
            "for name in sorted(sys.stdlib_module_names - skip):\n"
            "    try: importlib.import_module(name)\n"
            "    except ModuleNotFoundError as e: pass\n"
            "    except BaseException as e: bad[name] = '%s: %s' % (type(e).__name__, e)\n"
            "print(json.dumps(bad))"
        )
        found = json.loads(self.service.run(code, timeout_s=30)["stdout"].splitlines()[-1])
        # Missing on the host too: an extension whose library is not installed there fails to import here as well.
        self.assertEqual({k: v for k, v in found.items() if "cannot open shared object" in v or "Permission" in v or "Operation" in v or "Error: [Errno" in v}, {})


class Inherited(unittest.TestCase):
    """Whatever Weir was started with, a sandbox is the same: the shell, the unit file or the cron that starts it decides nothing."""

    CODE = (
        "import os, json, resource, signal\n"
        "status = dict(l.rstrip().split(':', 1) for l in open('/proc/self/status'))\n"
        "print(json.dumps({\n"
        "    'umask': status['Umask'].strip(), 'blocked': status['SigBlk'].strip(), 'stdio': [os.path.exists('/proc/self/fd/%d' % n) for n in range(4)],\n"
        "    'ignored': [signal.Signals(n).name for n in range(1, 32) if int(status['SigIgn'], 16) >> (n - 1) & 1],\n"
        "    'modes': [oct(os.stat(p).st_mode) for p in ('/', '/usr', '/usr/bin/python3', '/etc', '/etc/passwd', '/dev/null', '/tmp', '/box', os.__file__)],\n"
        "    'limits': {n: resource.getrlimit(getattr(resource, n))[0] for n in ('RLIMIT_AS', 'RLIMIT_DATA', 'RLIMIT_NOFILE', 'RLIMIT_STACK', 'RLIMIT_CORE', 'RLIMIT_CPU', 'RLIMIT_MSGQUEUE')},\n"
        "    'processes': resource.getrlimit(resource.RLIMIT_NPROC)[0] >= 256,\n"
        "    'environment': sorted(os.environ), 'cwd': os.getcwd(), 'oom': open('/proc/self/oom_score_adj').read().strip(), 'nice': os.nice(0), 'scheduler': os.sched_getscheduler(0),\n"
        "    'where': id(object())}))\n"
    )

    def look(self, *prefix, shell=None, **kw):
        command = [*prefix, WEIR, "run", "-c", self.CODE]
        if shell:
            command = ["bash", "-c", shell + '\nexec "$@"', "bash"] + command
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW, **kw)
        self.assertEqual(done.returncode, 0, done.stderr.decode("utf-8", "replace")[-600:])
        return json.loads(done.stdout)

    def test_a_sandbox_is_the_same_everywhere(self):
        plain = self.look()
        where = {plain.pop("where")}
        self.assertEqual((plain["umask"], plain["blocked"], plain["stdio"][:3]), ("0022", "0" * 16, [True] * 3))
        self.assertEqual(plain["ignored"], ["SIGPIPE", "SIGXFSZ"])  # by Python itself
        self.assertEqual(plain["environment"], sorted(ENVIRONMENT))
        ways = {
            "umask 077": dict(shell="umask 077"),
            "umask 0777": dict(shell="umask 0777"),
            "no descriptors": dict(shell="exec <&- 2>&-"),
            "many descriptors": dict(shell="for i in 3 4 5 6 7 8 9 10 11 12 20 63 100 199 201 250; do eval \"exec $i</etc/shadow\"; done"),
            "no environment": dict(prefix=("env", "-i")),
            "an environment of traps": dict(prefix=("env", "PYTHONPATH=/tmp", "PYTHONSTARTUP=/tmp/x", "PYTHONHOME=/nowhere", "LD_PRELOAD=", "LANG=de_DE", "TZ=Asia/Tokyo", "HOME=" + os.environ.get("HOME", "/root"), "PYTHONINSPECT=1", "PYTHONHASHSEED=0")),
            "ignored signals": dict(shell="trap '' HUP INT QUIT PIPE TERM USR1 USR2 ALRM"),
            "ignored SIGCHLD": dict(preexec_fn=lambda: __import__("signal").signal(17, 1)),
            "blocked signals": dict(preexec_fn=lambda: __import__("signal").pthread_sigmask(0, range(1, 32))),
            "soft limits": dict(shell="ulimit -S -s 512; ulimit -S -u 200; ulimit -S -v 4000000; ulimit -S -n 256; ulimit -S -t 60; ulimit -S -d 4000000"),
            "no address randomisation": dict(prefix=("setarch", "-R")),
            "32-bit personality": dict(prefix=("setarch", "linux32")),
            "a session of its own": dict(start_new_session=True),
            "a directory that is gone": dict(shell="d=$(mktemp -d /tmp/weir-test-XXXXXX); cd $d; rmdir $d"),
            "low priority": dict(prefix=("nice", "-n", "10")),
            "batch scheduling": dict(prefix=("chrt", "-b", "0")),
            "the host's OOM killer's choice": dict(prefix=("choom", "-n", "700", "--")),
        }
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            jobs = {name: pool.submit(self.look, *way.pop("prefix", ()), **way) for name, way in ways.items()}
        for name, job in jobs.items():
            with self.subTest(name):
                found = job.result()
                place = found.pop("where")
                self.assertEqual(found, plain)
                self.assertNotIn(place, where)
                where.add(place)
        # Two without randomisation outside are as far apart as any two.
        with self.subTest("address layout"):
            self.assertNotEqual(self.look("setarch", "-R")["where"], self.look("setarch", "-R")["where"])


class LeftOut(unittest.TestCase):
    """Each set-up step left out, one at a time: the list comes from the program, so a new step without a row here fails.

    A row is either ("refused", layer, words): a later layer, or the proof before release, does not let the sandbox live; or
    ("works", code, wanted output, why): without the step the attack (or the disorder) that it is there against shows, which is
    the counter-proof of the test named.
    """

    PROBE = "import os, socket, json\n"
    ROWS = {
        # The proof of one is the next: without the directory, or the limits, there is nothing to join, and VERIFY counts.
        "CGROUP2": ("refused", "cgroup", ""),
        "CGROUP1": ("hybrid", "verify", "of its cgroups"),
        "CGROUP1_JOIN": ("hybrid", "verify", "of its cgroups"),
        "POLICY_ENTRY": ("refused", "policy", ""),  # PROBE_COUNT: no entry, no counters
        "CHANNELS": ("refused", "init", ""),
        "CGROUP_NS": ("refused", "verify", "host's cgroup namespace"),
        "NETWORK": ("refused", "policy", "probe"),  # PROBE_COUNT: no route is no verdict
        "MOUNT_PRIVATE": ("refused", "mounts", ""),
        "MOUNT_ROOT": ("refused", "mounts", ""),
        "MOUNT_DEV": ("refused", "mounts", ""),
        "PIVOT": ("refused", "interpreter", ""),  # EXEC: the host's root has no such interpreter; see test_pivot
        "FORK": ("refused", "init", ""),  # INIT_DROP: what it is to keep was made for the fork
        "STDIO": ("refused", ("seccomp", "interpreter"), ""),
        "BOUNDING": ("refused", "verify", "CapBnd"),
        "IDENTITY": ("refused", ("interpreter", "verify"), ""),  # EXEC: root without capabilities may not enter /box; else VERIFY
        "NO_NEW_PRIVS": ("refused", "seccomp", "Permission denied"),  # SECCOMP: a filter needs it
        "SECCOMP": ("refused", "seccomp", "no listener"),  # LISTENER: what was not loaded has none; VERIFY would ask the kernel
        # test_refused_calls.py: nobody would hear of them.
        "LISTENER": ("refused", "verify", "refused system calls are told to nobody"),
        "DESCRIPTORS": ("refused", "verify", "descriptor"),
        "EXEC": ("refused", "interpreter", ""),
        # Identity.test_pid_one: a pid 1 that is root and could do anything.
        "INIT_DROP": ("refused", "verify", "init: "),
        "PROBE": ("refused", "verify", "never proven"),
        # FileSystem.test_no_file_names_the_host
        "HOSTNAME": ("either", "verify", "import socket\nprint(socket.gethostname() == 'sandbox')", "False\n"),
        "MOUNT_ETC": ("either", "verify", "import os\nprint(os.path.exists('/etc/passwd'))", "False\n"),
        "MOUNT_SHM": ("either", "verify", "open('/dev/shm/x', 'w')", "EROFS"),
        "MOUNT_TMP": ("either", "verify", "open('/tmp/x', 'w')", "EROFS"),
        "MOUNT_WORK": ("refused", "verify", "working directory"),
        "MOUNT_PROC": ("either", "verify", "open('/proc/self/status')", "ENOENT"),
        # Limits.test_open_files, SystemCalls.test_no_core_is_written
        "RLIMITS": ("either", "verify", "import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE) == (1, 1), resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1] == 0)", "False False\n"),
        # Inherited.test_a_sandbox_is_the_same_everywhere
        "SCHEDULING": ("either", "verify", "print(open('/proc/self/oom_score_adj').read().strip() == '500')", "False\n"),
        # Identity.test_no_terminal
        "SESSION": ("either", "verify", "import os\nprint(os.getsid(0))", "0\n"),
        # Without these nothing is missing from inside: each is a second layer, or a proof, and the first is still there.
        "CGROUP2_LIMITS": ("v2", "verify", ""),
        "POLICY_EFFECTIVE": ("same", "PROBE_COUNT asks the same by trying"),
        "PROBE_COUNT": ("same", "the policy is in force all the same; only the proof is missing"),
        "PARENT_DEATH": ("same", "seen only when the supervisor dies; the next start sweeps"),
        "CAPABILITIES": ("same", "leaving uid 0 has emptied the sets; this step is for kernels or securebits where it does not"),
        "READY": ("same", "to hear from the harness is the step; there is nothing to leave out"),
        "VERIFY": ("same", "a proof: nothing else changes"),
        # Only a tool's sandbox takes these: tests/agents/test_call_faults.py leaves them out there.
        "WAY_OUT": ("same", "a snippet's network leads nowhere"),
        "TAP": ("same", "a snippet has no device"),
        "CARRY": ("same", "and nobody to carry its packets"),
        "LOAD": ("same", "and no modules"),
        # Nothing at all happens without these: there is no init, no plan; the set-up ends at its deadline.
        "CLONE": ("nothing",),
        "PLAN": ("nothing",),
    }

    @staticmethod
    def steps():
        done = subprocess.run([WEIR_HOOKS, "serve", "--list-steps"], stdout=subprocess.PIPE, text=True, check=True)
        return [line.split() for line in done.stdout.splitlines()]

    def run_without(self, step, code):
        return weir("run", "--json", "--test-skip", step, "-c", code, binary=WEIR_HOOKS, timeout=40)

    def test_every_step_has_a_row(self):
        self.assertEqual({name for name, _, _ in self.steps()}, set(self.ROWS))

    def test_without_it(self):
        with open("/proc/self/mountinfo") as f:
            mounts = f.read()
        hybrid = " - cgroup " in mounts
        attempt = "try:\n    %s\n    print('written')\nexcept OSError as e:\n    import errno\n    print(errno.errorcode[e.errno])"

        def one(step):
            row = self.ROWS[step]
            if row[0] == "either":
                code = row[2] if "print" in row[2] else attempt % row[2]
            elif row[0] == "nothing":
                return step, None
            else:
                code = "import os\nprint(os.getuid() > 0)"
            return step, self.run_without(step, code)

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            done = dict(pool.map(one, self.ROWS))
        for step, row in self.ROWS.items():
            result = done[step]
            with self.subTest(step):
                if row[0] == "nothing":
                    continue
                text = result.stderr.decode("utf-8", "replace")
                answer = json.loads(result.stdout) if result.returncode != 125 else None
                refusal = re.search(r"sandbox failed at layer (\w+): (.*)", text)
                kind = row[0]
                if kind == "hybrid":
                    kind = "refused" if hybrid else "same"
                if kind == "refused" or (kind == "either" and refusal) or (kind == "v2" and refusal):
                    self.assertIsNone(answer, "it ran")
                    self.assertIsNotNone(refusal, text)
                    layers = row[1] if isinstance(row[1], tuple) else (row[1],)
                    self.assertIn(refusal.group(1), layers)
                    if kind == "refused":
                        self.assertIn(row[2], refusal.group(2))
                elif kind == "either":
                    want = row[3] if row[3].endswith("\n") else row[3] + "\n"
                    self.assertEqual(answer["stdout"], want)
                else:
                    self.assertEqual(answer["stdout"], "True\n", text)

    def test_core_is_written_without_the_limit(self):
        """Counter-proof of test_no_core_is_written, where the kernel writes cores to files."""
        pattern = read("/proc/sys/kernel/core_pattern").strip()
        limit = int(re.search(r"Max core file size\s+\S+\s+(\S+)", read("/proc/self/limits").replace("unlimited", str(1 << 62))).group(1))
        if pattern.startswith(("|", "/")) or limit == 0:
            self.skipTest("this host writes no core into the working directory (core_pattern %r)" % pattern)
        code = (
            "import os, resource, signal\nresource.getrlimit(resource.RLIMIT_CORE)\npid = os.fork()\n"
            "if pid == 0: os.kill(os.getpid(), signal.SIGSEGV)\nprint(os.WCOREDUMP(os.waitpid(pid, 0)[1]))"
        )
        done = subprocess.run(
            ["sh", "-c", "ulimit -c unlimited; exec \"$@\"", "sh", WEIR_HOOKS, "run", "--json", "--test-skip", "RLIMITS", "-c", code],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW,
        )
        if done.returncode == 125:
            self.assertIn(b"layer verify", done.stderr)
        else:
            self.assertEqual(json.loads(done.stdout)["stdout"], "True\n")


if __name__ == "__main__":
    unittest.main()
