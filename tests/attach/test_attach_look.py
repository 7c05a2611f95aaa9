# SPDX-License-Identifier: Apache-2.0
"""What Weir sees of a cgroup before it puts a policy there: processes, their rights, their sockets, and other people's programs.

Everything is real: processes in cgroups of the test's own, in a network namespace of its own, with programs attached by
build/progs/cgprog as others attach theirs. Where something is called a way round a policy, the test goes that way.
"""
import array
import errno
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from lib import BUILD, SLOW, cgroup2_mount, cgroup_mounts, enter_netns

LOOK = os.path.join(BUILD, "progs", "look")
CGPROG = os.path.join(BUILD, "progs", "cgprog")
PYTHON = "/usr/bin/python3"
NOBODY = 65534
ID = "5e" * 32  # of a container that does not exist
FAR = "198.51.100.7"
AF_VSOCK, AF_XDP = 40, 44
GIVEN = 200  # the descriptor of what a process is born with
POLICY = {"name": "test", "default": "deny", "rules": [
    {"name": "web", "verdict": "allow", "to": ["198.51.100.0/24", "2001:db8::/32"], "protocol": ["tcp", "udp"], "ports": 7777}]}
NETWORK = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && ip -6 route add local ::/0 dev lo && sysctl -qw net.ipv4.ping_group_range='0 65535' && echo up && read end"
WAIT = "\nimport sys\nprint('up', flush=True)\nsys.stdin.read(1)\n"
SETUP = "import os, socket, sys\n"


def give(what):
    """In the child that becomes a process: what it is born with."""
    os.dup2(what.fileno(), GIVEN)


class Tree:
    """Cgroups of the test's own: names below one directory, which is gone in the end with whatever runs there."""

    def __init__(self):
        self.mount = cgroup2_mount()
        self.name = "weir-test-look-%d.slice" % os.getpid()
        self.made = []
        self.add("")

    def path(self, name):
        """Below the hierarchy's root."""
        return "/" + self.name + ("/" + name if name else "")

    def dir(self, name):
        return self.mount + self.path(name)

    def add(self, name):
        os.makedirs(self.dir(name), exist_ok=True)
        return name

    def join(self, name):
        with open(self.dir(name) + "/cgroup.procs", "w") as f:
            f.write("0")

    def close(self):
        top = self.dir("")
        if not os.path.isdir(top):
            return
        with open(top + "/cgroup.kill", "w") as f:
            f.write("1")
        for _ in range(400):
            for path, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass
            if not os.path.isdir(top):
                return
            time.sleep(0.01)
        raise AssertionError("cgroups stay behind below " + top)


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.net = subprocess.Popen(["unshare", "--net", "sh", "-c", NETWORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if cls.net.stdout.readline() != b"up\n":
            raise AssertionError("no network namespace")
        cls.scratch = tempfile.mkdtemp(prefix="weir-test-look-")
        os.chmod(cls.scratch, 0o755)
        cls.policy = os.path.join(cls.scratch, "policy.json")
        with open(cls.policy, "w") as f:
            json.dump(POLICY, f)

    @classmethod
    def tearDownClass(cls):
        cls.net.stdin.close()
        cls.net.wait()
        cls.net.stdout.close()
        shutil.rmtree(cls.scratch)

    def setUp(self):
        self.tree = Tree()
        self.addCleanup(self.tree.close)
        self.tree.add("t")

    def start(self, script, cgroup="t", prefix=(), net=True, before=None, pass_fds=()):
        """Starts a process in a cgroup; returns when its script has come to the end. It ends with the test."""
        def prepare():
            if before:
                before()
            self.tree.join(cgroup)
            if net:
                enter_netns(self.net.pid)

        command = list(prefix) + [PYTHON, "-I", "-c", SETUP + script + WAIT]
        if GIVEN in pass_fds:  # the place is for `before` to fill, and must be open to be passed on
            os.dup2(2, GIVEN)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=prepare, pass_fds=pass_fds, cwd="/")
        if GIVEN in pass_fds:
            os.close(GIVEN)
        self.addCleanup(self.end, process)
        self.assertEqual(process.stdout.readline(), b"up\n", "the process could not do what it was for")
        return process

    def wait_for(self, true):
        deadline = time.monotonic() + 10 * SLOW
        while not true():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)

    @staticmethod
    def end(process):
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()

    def look(self, cgroup="t", policy=None, own=(), inside=False):
        command = [LOOK, self.tree.path(cgroup)] + (["--policy", policy] if policy else [])
        for program in own:
            command += ["--own", str(program)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW,
                              preexec_fn=(lambda: self.tree.join(cgroup)) if inside else None)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)


# Somebody without any right, as a container that was described well.
HARMLESS = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
            "--no-new-privs"]


def with_cap(cap, *more):
    """Nobody with one capability."""
    return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--bounding-set=-all,+" + cap,
            "--inh-caps=+" + cap, "--ambient-caps=+" + cap] + list(more)


def could_have(cap, *more):
    """Nobody without it, but it is in the bounding set."""
    return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--bounding-set=-all,+" + cap,
            "--inh-caps=-all"] + list(more)


# With a root of its own, as a container has one: the host's programs, in another file system.
IMAGE = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
         "mount -t tmpfs none /mnt && cd /mnt && for d in usr etc proc sys dev; do mkdir $d && mount --rbind /$d $d || exit; done && "
         "for d in bin sbin lib lib64; do ln -s usr/$d $d; done && exec chroot . \"$@\"", "sh"]


class Processes(Base):
    def found(self, prefix, **options):
        process = self.start("", prefix=prefix, **options)
        seen = self.look()
        self.end(process)
        return seen

    def test_nothing_to_say(self):
        seen = self.found(HARMLESS)
        self.assertEqual((seen["found"], seen["grade"], seen["processes"], seen["host_network"]), ({}, "full", 1, False))

    def test_an_empty_cgroup(self):
        seen = self.look()
        self.assertEqual((seen["found"], seen["grade"], seen["processes"]), ({"empty": ""}, "partial", 0))

    def test_the_one_who_looks_is_left_out(self):
        """Root, and in there only to attach: a unit's ExecStartPre=. Who is there beside it counts."""
        self.assertEqual(self.look(inside=True)["found"], {"empty": ""})
        self.start("", prefix=HARMLESS)
        self.assertEqual(self.look(inside=True)["found"], {})
        self.start("")
        self.assertIn("root", self.look(inside=True)["found"])

    def test_host_network(self):
        seen = self.found(HARMLESS, net=False)
        self.assertEqual((list(seen["found"]), seen["grade"], seen["host_network"]), (["host_network"], "partial", True))

    def test_root_of_the_host(self):
        seen = self.found([])
        self.assertIn("SYS_ADMIN", seen["found"]["root"])
        self.assertEqual((seen["grade"], seen["forced"]), ("partial", "partial"))

    def test_root_in_a_container(self):
        """By what its cgroup is called, by the root directory it has, or by its pid namespace: it is none of the host's."""
        container = self.tree.add("docker-%s.scope" % ID)
        inside = "echo 0 > %s/cgroup.procs && exec \"$@\"" % self.tree.dir("t")
        for what, cgroup, seen_in, prefix in (("cgroup", container, container, []), ("root", "t", "t", IMAGE),
                                              ("pids", container, "t", ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", inside, "sh"])):
            with self.subTest(what):
                process = self.start("", cgroup=cgroup, prefix=prefix)
                seen = self.look(seen_in)
                self.assertIn("SYS_ADMIN", seen["found"].get("privileged", ""), seen)
                self.assertNotIn("root", seen["found"])
                self.assertEqual((seen["grade"], seen["forced"]), ("refused", "partial"))
                self.end(process)

    def test_a_service_with_a_tmp_of_its_own(self):
        """A mount namespace of its own alone makes no container."""
        self.assertIn("root", self.found(["unshare", "--mount"])["found"])

    def test_capabilities_row_by_row(self):
        for cap, weakness, words in (("net_raw", "net_raw", ""), ("net_admin", "net_admin", ""), ("sys_admin", "root", "has SYS_ADMIN"),
                                     ("bpf", "root", "has BPF"), ("sys_module", "root", "has SYS_MODULE"),
                                     ("dac_read_search", "root", "has DAC_READ_SEARCH"), ("sys_ptrace", "root", "has SYS_PTRACE"),
                                     ("dac_override", "root", "may write"), ("net_bind_service", None, None), ("kill", None, None)):
            with self.subTest(cap):
                seen = self.found(with_cap(cap))
                self.assertEqual(list(seen["found"]), [weakness] if weakness else [], seen)
                if weakness:
                    self.assertIn(words, seen["found"][weakness])

    def test_ptrace_without_the_hosts_processes(self):
        """The pid namespace is what makes it harmful."""
        self.tree.add("outside")
        inside = "echo 0 > %s/cgroup.procs && exec \"$@\"" % self.tree.dir("t")
        self.start("", cgroup="outside", prefix=["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", inside, "sh"] + with_cap("sys_ptrace"))
        seen = self.look()
        self.assertEqual((seen["found"], seen["processes"]), ({}, 1))

    def test_rights_it_could_get(self):
        """In an image anybody may have put a set-uid program; the host's own ask who wants something."""
        self.assertEqual(list(self.found(IMAGE + could_have("net_raw"))["found"]), ["net_raw", "privileged"])
        self.assertEqual(self.found(IMAGE + could_have("net_raw", "--no-new-privs"))["found"], {})
        for prefix in ([], ["unshare", "--mount"]):
            self.assertEqual(self.found(prefix + could_have("net_raw"))["found"], {})
        self.assertIn("by a program", self.found(IMAGE + could_have("net_raw"))["found"]["net_raw"])

    def test_a_set_uid_program_does_it(self):
        """What the row before this says is so: nobody becomes able to open a packet socket."""
        program = os.path.join(self.scratch, "raw-python")
        shutil.copy(os.path.realpath(PYTHON), program)
        os.chmod(program, 0o4755)
        try:
            attempt = [program, "-I", "-c", "import socket; socket.socket(17, 3, 0); print('open')"]
            for more, opens in (([], True), (["--no-new-privs"], False)):
                done = subprocess.run(could_have("net_raw", *more) + attempt, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual(done.stdout == b"open\n", opens, done.stderr)
        finally:
            os.unlink(program)

    def test_user_namespaces(self):
        """Every capability, over a network namespace of its own; none over the one that the test made."""
        mapped = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "unshare", "--user", "--map-root-user"]
        self.assertEqual(sorted(self.found(mapped + ["--net"])["found"]), ["net_admin", "net_raw"])
        self.assertEqual(self.found(mapped)["found"], {})

    def test_a_tree_it_may_write(self):
        """Delegation: whoever owns the directory above may leave, and does."""
        self.tree.add("outside")
        for name in ("", "t", "outside"):
            os.chown(self.tree.dir(name) + "/cgroup.procs", NOBODY, NOBODY)
        leave = "os.write(os.open(%r, os.O_WRONLY), b'0')\n" % (self.tree.dir("outside") + "/cgroup.procs")
        process = self.start("", prefix=HARMLESS)
        self.assertIn("may write to the host's cgroups", self.look()["found"]["root"])
        self.end(process)
        self.start(leave, prefix=HARMLESS)
        self.assertEqual((self.look()["processes"], self.look("outside")["processes"]), (0, 1))
        os.chown(self.tree.dir("") + "/cgroup.procs", 0, 0)
        self.start("", prefix=HARMLESS)
        self.assertEqual(self.look()["found"], {})
        self.start("try:\n    %sexcept PermissionError: pass\nelse: raise AssertionError" % leave, prefix=HARMLESS)
        self.assertEqual(self.look()["processes"], 2)

    def test_mounts_of_the_tree(self):
        """Root without a capability: what it may write to decides."""
        bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        mount = cgroup2_mount()
        hide = "mount --make-rprivate /; umount /sys/fs/bpf 2>/dev/null; "
        own = ["unshare", "--mount", "sh", "-c"]
        for script, writable in ((hide + "mount -o remount,bind,ro " + mount, False), (hide + "umount " + mount, False), (hide + ":", True)):
            with self.subTest(script):
                seen = self.found(own + [script + "; exec \"$@\"", "sh"] + bare)
                self.assertEqual("root" in seen["found"], writable, seen)
        with self.subTest("its own part of the tree"):
            script = hide + "mount --bind %s /mnt; umount %s; exec \"$@\"" % (self.tree.dir("t"), mount)
            self.assertEqual(self.found(own + [script, "sh"] + bare)["found"], {})
        with self.subTest("the pins"):
            script = "mount --make-rprivate /; umount %s; exec \"$@\"" % mount
            if subprocess.run(["mountpoint", "-q", "/sys/fs/bpf"]).returncode == 0:
                self.assertIn("pins", self.found(own + [script, "sh"] + bare)["found"]["root"])

    def test_several_and_below(self):
        self.tree.add("t/a/b")
        self.start("", prefix=HARMLESS)
        self.start("", prefix=with_cap("net_raw"), cgroup="t/a/b")
        seen = self.look()
        self.assertEqual((seen["processes"], list(seen["found"])), (2, ["net_raw"]))

    def test_a_name_of_its_own_making(self):
        """A process's name is shown, and does nothing to a terminal."""
        name = "import ctypes\nctypes.CDLL(None).prctl(15, b'a\\x1b[2Jb\\n\"', 0, 0, 0)"
        self.start(name, prefix=with_cap("net_raw"))
        self.assertRegex(self.look()["found"]["net_raw"], r'^pid \d+ \(a\?\[2Jb')

    KEEP = """
import ctypes, threading
libc = ctypes.CDLL(None, use_errno=True)
threading.Thread(target=threading.Event().wait).start()
"""

    def test_threads_have_rights_of_their_own(self):
        """The first one has given its up, and only the others have them."""
        drop = self.KEEP + """
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert libc.syscall(126, header, data) == 0
assert "CapEff:\\t0000000000000000" in open("/proc/self/status").read()
"""
        self.start(drop, prefix=with_cap("net_raw", "--no-new-privs"))
        self.assertEqual(list(self.look()["found"]), ["net_raw"])

    def test_the_first_thread_is_over(self):
        """The process goes on without it, and is not to be seen in its own directory any more."""
        process = self.start(self.KEEP + "threading.Timer(0.2, lambda: None).start()\nprint('up', flush=True)\nlibc.syscall(60, 0)",
                             prefix=with_cap("net_raw"))
        self.wait_for(lambda: "\nState:\tZ" in open("/proc/%d/status" % process.pid).read())
        seen = self.look()
        self.assertEqual((list(seen["found"]), seen["processes"]), (["net_raw"], 1))

    # Root without a capability, which can do no more than write to what is root's.
    BARE = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]

    def test_behind_a_root_directory(self):
        """What a process sees of its mounts ends at its root; what it brought along does not."""
        leave = """
tree = os.open(%r, os.O_RDONLY)
os.chroot("/usr")
os.chdir("/")
""" % self.tree.mount
        self.start(leave + "assert not os.path.exists(%r)" % self.tree.mount, prefix=["setpriv", "--bounding-set=-all,+sys_chroot", "--inh-caps=-all", "--no-new-privs"])
        self.assertEqual(self.look()["forced"], "partial")
        self.assertTrue({"root", "privileged"} & set(self.look()["found"]))

    def test_a_tree_brought_along(self):
        """Into a mount namespace without it: by a descriptor, or as the directory it stands in."""
        script = "mount --make-rprivate / && exec 9<%s && umount %s && umount /sys/fs/bpf; exec \"$@\"" % (self.tree.mount, self.tree.mount)
        rows = ((script, "open"), (script.replace("exec 9<%s" % self.tree.mount, "cd %s" % self.tree.mount).replace("umount %s " % self.tree.mount, "umount -l %s " % self.tree.mount), "is in a directory"))
        for words, why in rows:
            words = words.replace("umount %s " % self.tree.mount, "umount -l %s " % self.tree.mount)
            with self.subTest(why):
                process = subprocess.Popen(["unshare", "--mount", "sh", "-c", words, "sh"] + self.BARE + [PYTHON, "-I", "-c", SETUP + WAIT],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=lambda: self.tree.join("t"), stderr=subprocess.DEVNULL)
                self.addCleanup(self.end, process)
                self.assertEqual(process.stdout.readline(), b"up\n")
                self.assertIn(why, self.look()["found"].get("root", ""))
                self.end(process)

    def test_a_file_to_leave_by(self):
        """Opened by somebody who might: the kernel goes by the opener's rights, and the process does leave."""
        self.tree.add("outside")

        def before():
            fd = os.open(self.tree.dir("outside") + "/cgroup.procs", os.O_WRONLY)
            os.dup2(fd, GIVEN)

        self.start("", prefix=HARMLESS, before=before, pass_fds=(GIVEN,))
        self.assertIn("open", self.look()["found"]["root"])
        self.start("os.write(%d, b'0')" % GIVEN, prefix=HARMLESS, before=before, pass_fds=(GIVEN,))
        self.assertEqual(self.look("outside")["processes"], 1)

    def test_its_own_part_of_the_tree_may_be_open(self):
        def before():
            os.dup2(os.open(self.tree.dir("t") + "/cgroup.procs", os.O_WRONLY), GIVEN)

        self.start("", prefix=HARMLESS, before=before, pass_fds=(GIVEN,))
        self.assertEqual(self.look()["found"], {})

    def test_a_group_that_may_write(self):
        path = self.tree.dir("") + "/cgroup.procs"
        member = HARMLESS[:]
        member[member.index("--clear-groups")] = "--groups=7,4242,9"
        os.chown(path, 0, 4242)
        for mode, found in ((0o644, {}), (0o664, {"root"})):
            os.chmod(path, mode)
            self.assertEqual(set(self.found(member)["found"]), set(found))
            self.assertEqual(self.found(HARMLESS)["found"], {})
        os.chmod(path, 0o666)
        self.assertEqual(list(self.found(HARMLESS)["found"]), ["root"])

    def test_ways_to_become_root(self):
        for cap in ("setuid", "setgid", "setfcap", "chown", "fowner", "mknod"):
            with self.subTest(cap):
                self.assertEqual(list(self.found(with_cap(cap, "--no-new-privs"))["found"]), ["root"])

    def test_processes_that_do_not_wait(self):
        """Each lives for an instant and hands on its rights to the next."""
        chain = """
print('up', flush=True)
os.setsid()
import time
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""
        process = self.start(chain, prefix=with_cap("net_raw"))
        seen = self.look()
        self.assertTrue({"net_raw", "unreadable"} & set(seen["found"]), seen)
        self.assertEqual(seen["grade"], "partial")
        self.end(process)

    def test_threads_in_other_cgroups(self):
        """In cgroups of threads one process is in several."""
        for name in ("t/in", "t/out"):
            self.tree.add(name)
            with open(self.tree.dir(name) + "/cgroup.type", "w") as f:
                f.write("threaded")
        script = """
import threading
def away():
    open(%r, "w").write(str(threading.get_native_id()))
    ready.set()
    threading.Event().wait()
ready = threading.Event()
threading.Thread(target=away, daemon=True).start()
ready.wait()
open(%r, "w").write(str(threading.get_native_id()))
""" % (self.tree.dir("t/out") + "/cgroup.threads", self.tree.dir("t/in") + "/cgroup.threads")
        self.start(script)
        self.assertIn(self.tree.path("t/out"), self.look("t/in")["found"]["outside"])
        self.assertNotIn("outside", self.look()["found"])

    def test_zombies_are_nobody(self):
        self.start("if os.fork() == 0: os._exit(0)\nimport time\ntime.sleep(0.1)", prefix=HARMLESS)
        seen = self.look()
        self.assertEqual((seen["found"], seen["processes"]), ({}, 1))

    def test_a_root_that_does_not_answer(self):
        """Its /etc is a file system of which it is the server, and it does not serve."""
        hang = """
import ctypes
fd = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fd
if libc.mount(b"x", b"/etc", b"fuse", 6, options):
    raise OSError(ctypes.get_errno(), "mount")
libc.prctl(24, 21, 0, 0, 0)
"""
        self.start(hang, prefix=["unshare", "--mount", "--propagation", "private"])
        began = time.monotonic()
        seen = self.look()
        self.assertLess(time.monotonic() - began, 15 * SLOW)
        self.assertIn("does not let itself be looked at", seen["found"]["unreadable"])


class Machines(Base):
    """gVisor and virtual machines are known by the host's own file that runs; everything else is a name."""

    def program(self, name, owner=0):
        path = os.path.join(self.scratch, name)
        shutil.copy("/bin/sleep", path)
        os.chmod(path, 0o755)
        os.chown(path, owner, owner)
        self.addCleanup(os.unlink, path)
        return path

    def seen_of(self, name, owner=0):
        path = self.program(name, owner)
        process = subprocess.Popen(HARMLESS + [path, "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=self.enter)
        self.addCleanup(self.end, process)
        self.wait_for(lambda: os.path.basename(os.readlink("/proc/%d/exe" % process.pid)) == name)
        seen = self.look()
        self.end(process)
        return seen

    def enter(self):
        self.tree.join("t")
        enter_netns(self.net.pid)

    def test_programs(self):
        for name, kind in (("runsc", "gvisor"), ("runsc-20240101", "gvisor"), ("qemu-system-x86_64", "kata"), ("cloud-hypervisor", "kata"),
                           ("firecracker", "kata"), ("containerd-shim-kata-v2", "kata"), ("runscan", None), ("qemu", None)):
            with self.subTest(name):
                seen = self.seen_of(name)
                self.assertEqual(list(seen["found"]), [kind] if kind else [], seen)
                if kind:
                    self.assertEqual((seen["grade"], seen["forced"]), ("refused", "refused"))

    def test_a_file_of_its_own(self):
        """Not root's: the workload may have made it, to be refused, and so to go on without a policy."""
        self.assertEqual(self.seen_of("runsc", NOBODY)["found"], {})

    def test_a_file_of_its_image(self):
        """Root's, in a mount namespace where the host has no such file."""
        script = "mount --make-rprivate / && mount -t tmpfs none /mnt && cp /bin/sleep /mnt/runsc && exec \"$@\" /mnt/runsc 60"
        process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, "sh"] + HARMLESS, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   preexec_fn=self.enter)
        self.addCleanup(self.end, process)
        self.wait_for(lambda: os.readlink("/proc/%d/exe" % process.pid).endswith("/runsc"))
        self.assertEqual(self.look()["found"], {})

    def test_its_sandbox_under_another_name(self):
        """gVisor's own processes, from a binary that was installed under another name, in a mount namespace of theirs."""
        path = self.program("sandboxer")
        for word, found in (("runsc-sandbox", ["gvisor"]), ("runsc-gofer", ["gvisor"]), ("worker", [])):
            with self.subTest(word):
                script = "exec \"$@\" bash -c 'exec -a %s %s 60'" % (word, path)
                process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, "sh"] + HARMLESS, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, preexec_fn=self.enter)
                self.addCleanup(self.end, process)
                self.wait_for(lambda: os.readlink("/proc/%d/exe" % process.pid) == path)
                self.assertEqual(list(self.look()["found"]), found)
                self.end(process)

    def test_started_for_it_elsewhere(self):
        """A machine's own process is told the container's id and need not be in its cgroup."""
        cgroup = self.tree.add("docker-%s.scope" % ID)
        path = self.program("containerd-shim-kata-v2")
        self.assertEqual(self.look(cgroup)["found"], {"empty": ""})
        for told, user, found in ((ID, 0, ["empty", "kata"]), ("6f" * 32, 0, ["empty"]), (ID, 65534, ["empty"])):
            with self.subTest(told, user=user):
                process = subprocess.Popen(["bash", "-c", "exec -a \"shim -id %s\" %s 60" % (told, path)], stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, user=user)
                self.addCleanup(self.end, process)
                self.wait_for(lambda: os.readlink("/proc/%d/exe" % process.pid) == path)
                self.assertEqual(list(self.look(cgroup)["found"]), found)
                self.end(process)

    def test_the_same_container_elsewhere(self):
        cgroup = self.tree.add("a.slice/docker-%s.scope" % ID)
        other = self.tree.add("b.slice/docker-%s.scope" % ID)
        monitor = self.tree.add("b.slice/libpod-conmon-%s.scope" % ID)
        self.start("", prefix=HARMLESS, cgroup=cgroup)
        self.assertEqual(self.look(cgroup)["found"], {})
        self.start("", prefix=HARMLESS, cgroup=monitor)
        self.assertEqual(self.look(cgroup)["found"], {})
        self.start("", prefix=HARMLESS, cgroup=other)
        seen = self.look(cgroup)
        self.assertEqual((seen["found"], seen["grade"]), ({"outside": self.tree.path(other)}, "partial"))

    def test_a_part_of_a_container(self):
        cgroup = self.tree.add("docker-%s.scope/init" % ID)
        self.start("", prefix=HARMLESS, cgroup=cgroup)
        self.assertEqual(self.look(cgroup)["found"], {})
        self.start("", prefix=HARMLESS, cgroup=self.tree.add("docker-%s.scope/services" % ID))
        self.assertEqual(list(self.look(cgroup)["found"]), ["outside"])
        self.assertEqual(self.look("docker-%s.scope" % ID)["found"], {})


class Resolvers(Base):
    def resolvers(self, make):
        """Of a process whose /etc/resolv.conf the shell words `make` made, at $1."""
        etc = os.path.join(self.scratch, "etc")
        os.makedirs(etc)
        self.addCleanup(shutil.rmtree, etc)
        script = "cd %s && %s && mount --bind %s /etc && exec \"$@\"" % (etc, make, etc)
        self.start("", prefix=["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        return self.look()["resolvers"]

    def test_its_own(self):
        self.assertEqual(self.resolvers("printf 'nameserver 10.9.8.7\\nnameserver fd00::53\\n' > resolv.conf"), ["10.9.8.7", "fd00::53"])

    def test_a_link_stays_inside(self):
        self.assertEqual(self.resolvers("echo nameserver 10.9.8.6 > real && ln -s /etc/real resolv.conf"), ["10.9.8.6"])

    def test_no_file_of_the_host(self):
        """A link through /proc would lead out of its root."""
        secret = os.path.join(self.scratch, "secret")
        with open(secret, "w") as f:
            f.write("nameserver 10.9.8.5\n")
        self.assertEqual(self.resolvers("ln -s /proc/%d/root%s resolv.conf" % (os.getpid(), secret)), [])

    def test_what_is_no_file(self):
        self.assertEqual(self.resolvers("mkfifo resolv.conf"), [])

    def test_what_is_too_long(self):
        self.assertEqual(self.resolvers("{ echo nameserver 10.9.8.7; head -c 70000 /dev/zero; } > resolv.conf"), [])


TCP_PAIR = """
def pair(family, far, kind=socket.SOCK_STREAM, protocol=0):
    l = socket.socket(family, kind, protocol)
    if family == socket.AF_INET6:
        l.setsockopt(41, 78, 1)  # IPV6_FREEBIND: what is routed here need not be an address of a device
    l.bind((far, 7777))
    l.listen()
    c = socket.socket(family, kind, protocol)
    c.connect((far, 7777))
    return l, c, l.accept()[0]
"""


class Sockets(Base):
    def sockets(self, script, **options):
        self.start(script, prefix=HARMLESS, **options)
        return self.look(policy=self.policy)

    def test_kinds(self):
        seen = self.sockets(TCP_PAIR + """
keep = [pair(socket.AF_INET, "198.51.100.7"), pair(socket.AF_INET6, "2001:db8::7"), socket.socketpair()]
def point(family, kind, protocol, to):
    s = socket.socket(family, kind, protocol)
    s.connect(to)
    keep.append(s)
point(socket.AF_INET, socket.SOCK_DGRAM, 0, ("198.51.100.7", 7777))
point(socket.AF_INET6, socket.SOCK_DGRAM, 0, ("::ffff:10.1.2.3", 53))
point(socket.AF_INET, socket.SOCK_DGRAM, 136, ("198.51.100.9", 5))
point(socket.AF_INET, socket.SOCK_DGRAM, 1, ("198.51.100.9", 0))
keep += pair(socket.AF_INET, "198.51.100.8", protocol=262)
keep.append(socket.socket())
""")
        self.assertEqual((seen["found"], seen["beyond"]), ({}, 0))
        by = [(s["family"], s["protocol"], s["remote"], s["remote_port"], s["verdict"]) for s in seen["sockets"]]
        self.assertEqual(sorted(s["state"] for s in seen["sockets"]), [0] * 4 + [1] * 6 + [7] + [10] * 3)
        for row in ((4, 6, FAR, 7777, "allow"), (6, 6, "2001:db8::7", 7777, "allow"), (4, 17, FAR, 7777, "allow"), (4, 17, "10.1.2.3", 53, "deny"),
                    (4, 136, "198.51.100.9", 5, "deny"), (4, 1, "198.51.100.9", 0, "deny"), (4, 6, "198.51.100.8", 7777, "allow")):
            self.assertIn(row, by)
        # Three pairs are nine sockets, four datagram sockets, one that is not connected; the Unix ones are not counted.
        self.assertEqual(len(seen["sockets"]), 14)
        self.assertFalse([s for s in seen["sockets"] if s["elsewhere"]])

    def test_only_watching(self):
        watch = os.path.join(self.scratch, "watch.json")
        with open(watch, "w") as f:
            json.dump(dict(POLICY, mode="monitor"), f)
        self.start("s = socket.socket(2, 2)\ns.connect(('10.1.2.3', 5))", prefix=HARMLESS)
        self.assertEqual([s["verdict"] for s in self.look(policy=watch)["sockets"]], ["would-deny"])
        self.assertEqual([s["verdict"] for s in self.look(policy=self.policy)["sockets"]], ["deny"])

    def made_elsewhere(self, make="socket.socket()"):
        """A socket of another cgroup's, and a process of ours that inherits it."""
        self.tree.add("other")

        def before():
            self.tree.join("other")
            enter_netns(self.net.pid)
            give(eval(make))  # in the child that becomes the process

        return self.start("s = socket.socket(fileno=%d)\n" % GIVEN, prefix=HARMLESS, before=before, pass_fds=(GIVEN,))

    def test_inherited_and_not_connected(self):
        self.made_elsewhere()
        seen = self.look(policy=self.policy)
        self.assertEqual([(s["elsewhere"], s["connected"]) for s in seen["sockets"]], [(True, False)])
        self.assertRegex(seen["found"]["foreign_socket"], r"^pid \d+ \(python3.*\): tcp, made in the cgroup %s$" % self.tree.path("other"))
        self.assertEqual(seen["grade"], "partial")

    def test_it_is_judged_elsewhere(self):
        """The reason for all this: a program on our cgroup does not see that socket's connect()."""
        attempt = """
import errno
def tried(s):
    try:
        s.connect(("198.51.100.7", 7777))
        return 0
    except OSError as e:
        return e.errno
"""
        prog = subprocess.Popen([CGPROG, self.tree.dir("t"), "connect4", "link", "deny", "refuse"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(self.end, prog)
        self.assertTrue(prog.stdout.readline().strip().isdigit())
        self.tree.add("other")

        def before():
            self.tree.join("other")
            enter_netns(self.net.pid)
            give(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))

        self.start(attempt + """
assert tried(socket.socket(fileno=%d)) == 0
assert tried(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) == errno.EPERM
""" % GIVEN, prefix=HARMLESS, before=before, pass_fds=(GIVEN,))

    def test_passed_by_message(self):
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.start("""
import array
pipe = socket.socket(fileno=%d)
data, control, _, _ = pipe.recvmsg(1, 64)
got = array.array("i", control[0][2])[0]
""" % theirs.fileno() if self.send_later(ours) else "", prefix=HARMLESS, pass_fds=(theirs.fileno(),))
        theirs.close()
        seen = self.look(policy=self.policy)
        self.assertEqual([(s["protocol"], s["remote"], s["remote_port"], s["elsewhere"], s["verdict"]) for s in seen["sockets"]],
                         [(17, "127.0.0.1", 9, True, "deny")])
        self.assertRegex(seen["found"]["foreign_socket"], r"udp to 127.0.0.1:9, made in the cgroup /")

    @staticmethod
    def send_later(to):
        """A socket of the test's own, connected (nothing is sent), waiting in the queue before the process is there."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("127.0.0.1", 9))
            to.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
        return True

    def test_made_below_and_the_cgroup_is_gone(self):
        """A cgroup that was removed is still where it was."""
        self.tree.add("t/short")

        def before():
            self.tree.join("t/short")
            enter_netns(self.net.pid)
            give(socket.socket())

        self.start("s = socket.socket(fileno=%d)" % GIVEN, prefix=HARMLESS, before=before, pass_fds=(GIVEN,))
        os.rmdir(self.tree.dir("t/short"))
        seen = self.look()
        self.assertEqual((seen["found"], [s["elsewhere"] for s in seen["sockets"]]), ({}, [False]))

    def test_made_elsewhere_and_the_cgroup_is_gone(self):
        self.made_elsewhere()
        os.rmdir(self.tree.dir("other"))
        self.assertRegex(self.look()["found"]["foreign_socket"], "made in a cgroup that is gone$")

    def test_below_hooks(self):
        for family, kind, what in ((socket.AF_PACKET, "packet_socket", ""), (AF_VSOCK, "unseen_socket", "vsock"), (AF_XDP, "unseen_socket", "XDP")):
            with self.subTest(family):
                def before():
                    self.tree.join("t")
                    enter_netns(self.net.pid)
                    give(socket.socket(family, socket.SOCK_STREAM if family == AF_VSOCK else socket.SOCK_RAW))

                process = self.start("", prefix=HARMLESS, before=before, pass_fds=(GIVEN,))
                seen = self.look()
                self.assertEqual(list(seen["found"]), [kind], seen)
                self.assertIn(what, seen["found"][kind])
                self.assertEqual([s["family"] for s in seen["sockets"]], [0] if kind == "packet_socket" else [])
                self.end(process)

    def test_tun_device(self):
        def before():
            os.dup2(os.open("/dev/net/tun", os.O_RDWR), GIVEN)

        self.start("", prefix=HARMLESS, before=before, pass_fds=(GIVEN,))
        self.assertRegex(self.look()["found"]["unseen_socket"], "tun or tap device$")

    def test_a_socket_of_the_hosts_network(self):
        """It stays there when its holder goes away into a network of its own."""
        self.start("s = socket.socket()\nimport ctypes\nassert ctypes.CDLL(None).unshare(0x50000000) == 0", prefix=["setpriv", "--reuid", str(NOBODY), "--clear-groups"], net=False)
        seen = self.look()
        self.assertIn("socket of the host's network", seen["found"]["host_network"])
        self.assertTrue(seen["host_network"])

    HIDE = """
import array
def put(to, what):
    to.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [what.fileno()]))])
a, b = socket.socketpair()
"""

    def test_in_a_queue(self):
        """A packet socket that nobody holds, until somebody takes it out."""
        def before():
            enter_netns(self.net.pid)
            give(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))

        self.start(self.HIDE + "put(a, socket.socket(fileno=%d))\nos.close(%d) if os.path.exists('/proc/self/fd/%d') else None" % (GIVEN, GIVEN, GIVEN),
                   prefix=HARMLESS, before=before, pass_fds=(GIVEN,))
        seen = self.look()
        self.assertEqual((sorted(seen["found"]), seen["sockets"]), (["packet_socket", "unseen_socket"], []))
        self.assertIn("nobody holds", seen["found"]["packet_socket"])

    def test_a_packet_socket_of_somebody_elses(self):
        """Whoever listens in its network from outside is none of its own."""
        def outside():
            enter_netns(self.net.pid)

        listener = subprocess.Popen([PYTHON, "-I", "-c", SETUP + "s = socket.socket(17, 3, 0)" + WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    preexec_fn=outside)
        self.addCleanup(self.end, listener)
        self.assertEqual(listener.stdout.readline(), b"up\n")
        self.start("", prefix=HARMLESS)
        self.assertEqual(self.look()["found"], {})

    def test_queues(self):
        """Its own, one whose end is in another queue, and that of a connection that was not accepted."""
        for what, script, found in (
                ("nothing", "a.send(b'x')", []),
                ("own", "put(a, sys.stdin)", ["unseen_socket"]),
                ("the other end's", "put(a, sys.stdin)\nc, d = socket.socketpair()\nput(c, b)\nb.close()", ["unseen_socket"]),
                ("not accepted", "l = socket.socket(socket.AF_UNIX)\nl.bind('\\0look-%d')\nl.listen()\nc = socket.socket(socket.AF_UNIX)\n"
                 "c.connect('\\0look-%d')\nput(c, sys.stdin)\nc.close()" % (os.getpid(), os.getpid()), ["unseen_socket"])):
            with self.subTest(what):
                process = self.start(self.HIDE + script, prefix=HARMLESS)
                self.assertEqual(list(self.look()["found"]), found)
                self.end(process)

    def test_registered_with_io_uring(self):
        ring = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))
assert ring >= 0, ctypes.get_errno()
"""
        register = "files = (ctypes.c_int * 1)(a.fileno())\nassert libc.syscall(427, ring, 2, files, 1) == 0, ctypes.get_errno()"
        process = self.start(self.HIDE + ring, prefix=HARMLESS)
        self.assertEqual(self.look()["found"], {})
        self.end(process)
        self.start(self.HIDE + ring + register, prefix=HARMLESS)
        self.assertIn("io_uring", self.look()["found"]["unseen_socket"])

    def test_a_threads_own_table(self):
        """Descriptors that the process's own directory in /proc does not list."""
        seen = self.sockets("""
import ctypes, threading
ready = threading.Event()
def hide():
    assert ctypes.CDLL(None).unshare(0x400) == 0
    s = socket.socket(2, 2)
    s.connect(("198.51.100.7", 7777))
    ready.set()
    threading.Event().wait()
threading.Thread(target=hide, daemon=True).start()
ready.wait()
""")
        self.assertEqual([s["remote"] for s in seen["sockets"]], [FAR])

    def test_shared_by_several(self):
        seen = self.sockets("s = socket.socket()\nfor _ in range(5):\n    if os.fork() == 0:\n        sys.stdin.read(1); os._exit(0)")
        self.assertEqual((len(seen["sockets"]), seen["processes"]), (1, 6))

    def test_more_than_are_listed(self):
        made = 1100
        seen = self.sockets("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (%d, %d))\nkeep = [socket.socket(2, 2) for _ in range(%d)]"
                            % (min(4096, self.hard_files()), min(4096, self.hard_files()), made))
        self.assertEqual((len(seen["sockets"]), seen["beyond"]), (1024, made - 1024))

    @staticmethod
    def hard_files():
        import resource
        return resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def test_others_are_not_looked_at(self):
        self.tree.add("other")
        self.start("s = socket.socket()", prefix=HARMLESS, cgroup="other")
        self.assertEqual(self.look()["sockets"], [])


class Asked(Base):
    """What the policy asks for beyond the network."""

    def with_policy(self, **keys):
        path = os.path.join(self.scratch, "asked.json")
        with open(path, "w") as f:
            json.dump(dict(POLICY, **keys), f)
        return {name: detail for name, detail in self.look(policy=path)["found"].items() if name != "empty"}

    def test_filters(self):
        self.assertEqual(self.with_policy(), {})
        self.assertEqual(self.with_policy(sockets={"families": ["inet"]}), {"seccomp": '"sockets"'})
        self.assertEqual(self.with_policy(syscalls=[{"names": ["ptrace"]}]), {"seccomp": '"syscalls"'})
        self.assertEqual(self.with_policy(listen="deny"), {"listen": ""})
        self.assertEqual(self.with_policy(inbound="allow"), {})

    def test_open_files(self):
        self.start("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))", prefix=HARMLESS)
        self.assertEqual(self.with_policy(limits={"open_files": 200}), {})
        self.assertEqual(self.with_policy(limits={"open_files": 199}), {"limits": "open_files (200 for 199)"})

    def test_limits(self):
        """Wherever the host has the controllers: here the same path on version 1, or the cgroup itself."""
        found = self.with_policy(limits={"memory_bytes": 1 << 28, "processes": 50})
        self.assertEqual(found, {"limits": "memory_bytes, processes"})
        trees = self.limit_files()
        process = self.start("", prefix=HARMLESS)
        for directory, file, value in trees:
            if directory != self.tree.dir("t"):
                with open(os.path.join(directory, "cgroup.procs"), "w") as f:
                    f.write(str(process.pid))
            with open(os.path.join(directory, file), "w") as f:
                f.write(value)
        self.assertEqual(self.with_policy(limits={"memory_bytes": 1 << 28, "processes": 50}), {})
        self.assertEqual(self.with_policy(limits={"memory_bytes": (1 << 28) - 1, "processes": 49}),
                         {"limits": "memory_bytes (268435456 for 268435455), processes (50 for 49)"})

    def limit_files(self):
        """(directory, file, value) of a limit of memory and of processes, made where the controllers are."""
        rows = []
        for controller, files, value in (("memory", ("memory.max", "memory.limit_in_bytes"), str(1 << 28)), ("pids", ("pids.max", "pids.max"), "50")):
            with open(self.tree.mount + "/cgroup.controllers") as f:
                if controller in f.read().split():
                    for name in ("", self.tree.path("")):
                        with open(self.tree.mount + name + "/cgroup.subtree_control", "w") as c:
                            c.write("+" + controller)
                    rows.append((self.tree.dir("t"), files[0], value))
                    continue
            mount = next(m for m in cgroup_mounts() if os.path.exists(os.path.join(m, "memory.limit_in_bytes" if controller == "memory" else "pids.max")) or
                         os.path.basename(m) == controller)
            directory = mount + self.tree.path("t")
            os.makedirs(directory)
            self.addCleanup(self.remove_v1, mount)
            rows.append((directory, files[1], value))
        return rows

    def remove_v1(self, mount):
        # The processes in it have been ended, and leave in a moment.
        for path in (mount + self.tree.path("t"), mount + self.tree.path("")):
            for _ in range(400):
                try:
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)


class Preflight(Base):
    """Against the kernel's own answers: whether a link is let in, and whether the other program still runs."""

    def setUp(self):
        super().setUp()
        self.tree.add("t/c")

    def attach(self, cgroup, hook, mode, verdict="allow", name="foreign"):
        """The program's id, or a negative errno; stays until the test is over."""
        process = subprocess.Popen([CGPROG, self.tree.dir(cgroup), hook, mode, verdict, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(self.detach, process)
        said = process.stdout.readline().decode().split()
        self.last = process
        return -int(said[1]) if said[0] == "errno" else int(said[0])

    @staticmethod
    def detach(process):
        if not process.stdin.closed:
            process.stdin.close()
        process.wait()
        process.stdout.close()

    def connects(self, cgroup="t/c"):
        """Whether UDP connect() is let through, by all the programs there are."""
        def prepare():
            self.tree.join(cgroup)
            enter_netns(self.net.pid)

        code = "import socket\nsocket.socket(2, 2).connect(('198.51.100.7', 7777))"
        return subprocess.run([PYTHON, "-I", "-c", code], preexec_fn=prepare, stderr=subprocess.DEVNULL).returncode == 0

    # where the other is, how it is attached -> what the kernel lets us do, and to whom
    ROWS = [
        ("", "none", "refuses"), ("", "override", "stopped"), ("", "multi", "rewrites"), ("", "link", "rewrites"),
        ("t", "none", "refuses"), ("t", "override", "refuses"), ("t", "multi", "rewrites"), ("t", "link", "rewrites"),
        ("t/c", "none", "beside"), ("t/c", "override", "beside"), ("t/c", "multi", "beside"), ("t/c", "link", "beside"),
    ]

    def test_modes_and_places(self):
        for where, mode, effect in self.ROWS:
            with self.subTest(where=where, mode=mode):
                try:
                    other = self.attach(where, "connect4", mode, "deny")
                    theirs = self.last
                    self.assertGreater(other, 0)
                    self.assertFalse(self.connects(), "the other program does not run")
                    seen = self.look()
                    self.assertEqual([(f["prog"], f["id"], f["hook"], f["cgroup"], f["effect"]) for f in seen["foreign"]],
                                     [("foreign", other, "connect4", self.tree.path(where), effect)])
                    self.assertEqual(seen["refused"] is not None, effect in ("refuses", "stopped"))
                    self.assertEqual("rewrite" in seen["rewrites"], effect == "rewrites")
                    if seen["refused"]:
                        self.assertEqual(seen["where"], "policy")
                        self.assertIn('"foreign"', seen["refused"])
                        self.assertIn(self.tree.path(where), seen["refused"])
                    # What the kernel says to ours.
                    ours = self.attach("t", "connect4", "link", "allow", "ours")
                    mine = self.last
                    self.assertEqual(ours == -errno.EPERM, effect == "refuses", ours)
                    # Whether theirs goes on, where ours are in.
                    self.assertEqual(self.connects(), effect == "stopped")
                    self.detach(mine)
                    self.detach(theirs)
                    self.assertTrue(self.connects())
                    self.assertEqual(self.look()["foreign"], [])
                finally:
                    self.doCleanups_of_programs()

    def doCleanups_of_programs(self):
        if not self.last.stdin.closed:
            self.detach(self.last)

    def test_packets_have_no_destination_to_change(self):
        for where, effect in (("", "beside"), ("t", "beside")):
            with self.subTest(where):
                self.attach(where, "egress", "multi")
                seen = self.look()
                self.assertEqual([(f["hook"], f["effect"]) for f in seen["foreign"]], [("egress", effect)])
                self.assertEqual(seen["rewrites"], {})
                self.detach(self.last)

    def test_one_in_between(self):
        """A program of many above ours lets us in whatever is further up, and that did not run for us before either."""
        self.tree.add("t/c/d")
        self.attach("t", "connect4", "multi", "allow", "between")
        self.attach("", "connect4", "none", "deny", "far")
        self.assertTrue(self.connects("t/c/d"))
        seen = self.look("t/c/d")
        self.assertEqual([(f["prog"], f["effect"]) for f in seen["foreign"]], [("between", "rewrites")])
        self.assertIsNone(seen["refused"])
        self.assertGreater(self.attach("t/c/d", "connect4", "link", "allow", "ours"), 0)

    def test_the_nearest_decides(self):
        """Two of them overridable: the nearer one runs, and is the one that would be stopped."""
        self.attach("", "connect4", "override", "deny", "far")
        self.attach("t", "connect4", "override", "deny", "near")
        seen = self.look("t/c")
        self.assertEqual([(f["prog"], f["effect"]) for f in seen["foreign"]], [("near", "stopped")])

    def test_when_ours_are_there(self):
        """Somebody who comes later and alone, above: the kernel lets it, ours go on, and it does not run for us."""
        ours = self.attach("t", "connect4", "link", "deny", "ours")
        self.assertGreater(self.attach("", "connect4", "none", "allow", "late"), 0)
        self.assertFalse(self.connects())
        seen = self.look(own=[ours])
        self.assertEqual([(f["prog"], f["effect"]) for f in seen["foreign"]], [("late", "stopped")])

    def test_who_it_seems_to_be(self):
        for name, who, mend in (("sd_fw_egress", "systemd", "Delegate=yes"), ("cil_sock4_conn", "Cilium", "socketLB"), ("calico_connect", "Calico", ""),
                                ("mine", "its name does not say", "bpftool cgroup tree")):
            with self.subTest(name):
                self.attach("t", "egress", "none", "allow", name)
                said = self.look()["refused"]
                for words in (name, who, mend, "egress", self.tree.path("t")):
                    self.assertIn(words, said)
                self.detach(self.last)

    def test_own_and_pinned(self):
        """Weir's programs are known by their pins. The name alone proves nothing."""
        program = self.attach("t", "connect4", "link", "allow", "weir_connect4")
        self.assertEqual([f["prog"] for f in self.look()["foreign"]], ["weir_connect4"])
        self.assertEqual(self.look(own=[program])["foreign"], [])
        pins = "/sys/fs/bpf/weir/test-look-%d" % os.getpid()
        if not os.path.ismount("/sys/fs/bpf"):
            subprocess.run(["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"], check=True)
            self.addCleanup(subprocess.run, ["umount", "/sys/fs/bpf"], check=True)
        links = json.loads(subprocess.run(["bpftool", "-j", "link"], stdout=subprocess.PIPE, check=True).stdout)
        link = next(entry["id"] for entry in links if entry.get("prog_id") == program)
        os.makedirs(pins, mode=0o700)
        try:
            subprocess.run(["bpftool", "link", "pin", "id", str(link), pins + "/link_connect4"], check=True)
            self.assertEqual(self.look()["foreign"], [])
        finally:
            if os.path.exists(pins + "/link_connect4"):
                os.unlink(pins + "/link_connect4")
            os.rmdir(pins)

    def test_more_than_fit(self):
        """What refuses is told also when the list is full."""
        for where in ("", "t"):
            for _ in range(33):
                self.attach(where, "egress", "link")
        self.attach("t", "setsockopt", "none", "allow", "alone")
        seen = self.look()
        self.assertEqual((len(seen["foreign"]), seen["foreign_beyond"]), (64, 3))
        self.assertIn('"alone"', seen["refused"])


class Bundle(Base):
    """A bundle as runc itself describes one; the rest is in the unit tests."""

    def look_at(self, change=lambda config: None, policy=None):
        bundle = tempfile.mkdtemp(dir=self.scratch)
        subprocess.run(["runc", "spec", "--bundle", bundle], check=True)
        with open(bundle + "/config.json") as f:
            config = json.load(f)
        change(config)
        with open(bundle + "/config.json", "w") as f:
            json.dump(config, f)
        done = subprocess.run([LOOK, "--bundle", bundle] + (["--policy", policy] if policy else []), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr.decode()

    def test_runcs_own(self):
        seen = self.look_at(policy=self.policy)
        self.assertEqual((seen["found"], seen["grade"]), ({}, "full"))

    def test_host_network_by_path(self):
        def network(path):
            def change(config):
                next(n for n in config["linux"]["namespaces"] if n["type"] == "network")["path"] = path
            return change

        self.assertEqual(list(self.look_at(network("/proc/self/ns/net"))["found"]), ["host_network"])
        self.assertEqual(self.look_at(network("/proc/%d/ns/net" % self.net.pid))["found"], {})

    def test_resolvers(self):
        path = os.path.join(self.scratch, "resolv.conf")
        with open(path, "w") as f:
            f.write("nameserver 10.9.8.7\n")
        self.assertEqual(self.look_at(lambda c: c["mounts"].append({"destination": "/etc/resolv.conf", "type": "bind", "source": path}))["resolvers"],
                         ["10.9.8.7"])

    def test_a_tree_by_another_name(self):
        """As it is, not as it is written: a link, a way round, what is mounted further in."""
        link = os.path.join(self.scratch, "link")
        os.symlink("/sys/fs/cgroup", link)
        around = "/proc/%d/root" % os.getpid()
        for source, found in (("/sys//fs/cgroup", True), ("/sys/fs/../fs/cgroup/", True), (link, True), (around + "/sys/fs/cgroup", True), (around, True),
                              (cgroup2_mount(), True), (os.path.relpath("/sys/fs/cgroup", "/"), False), (self.scratch, False), ("/nowhere", False)):
            with self.subTest(source):
                def change(config):
                    config["mounts"].append({"destination": "/h", "type": "bind", "source": source, "options": ["rbind", "rw"]})
                self.assertEqual("privileged" in self.look_at(change)["found"], found)
        os.unlink(link)

    def test_damaged(self):
        self.assertIn("/process must be an object", self.look_at(lambda c: c.update(process=[])))


if __name__ == "__main__":
    unittest.main()
