# SPDX-License-Identifier: Apache-2.0
"""`weir exec`: a command of the host under a policy, inside a network namespace of the test's where every address is local.

Each promise has a row that fails without the layer that keeps it: build/weir-hooks can leave a step out (--test-skip).
"""
import ctypes
import errno
import glob
import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import termios
import time
import unittest

from footprint import cgroups_of, of_uid
from internet import in_netns
from lib import SLOW, WEIR, WEIR_HOOKS, Listener, cgroup2_mount, cgroup_mounts, weir

NOBODY = 65534
PYTHON = "/usr/bin/python3"  # one that every user may start
RULES = [
    {"name": "web", "verdict": "allow", "to": "198.51.100.0/24", "protocol": ["tcp", "udp"], "ports": [80, 9999]},
    {"name": "never", "verdict": "deny", "to": "10.0.0.0/8"},
]
POLICY = {"name": "test", "default": "deny", "rules": RULES, "packets": {}}

# Run by the command: rows of [family, kind, address, port] in, their errnos out.
CONNECT = """
import json, socket, sys
for kind, address, port in json.loads(sys.argv[1]):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, getattr(socket, kind))
    s.settimeout(5)
    try:
        if kind == "SOCK_DGRAM":
            s.sendto(b"x", (address, port))
        else:
            s.connect((address, port))
        print(0)
    except OSError as e:
        print(e.errno)
"""

# Run by the command: system calls by number in, their errnos out.
CALLS = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for nr, *args in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    rc = libc.syscall(ctypes.c_long(nr), *[ctypes.c_ulong(a & (1 << 64) - 1) for a in args])
    print(ctypes.get_errno() if rc == -1 else 0)
"""


class Namespace:
    """A network namespace in which everything is local; commands are run in it."""

    SETUP = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && ip -6 route add local ::/0 dev lo && echo up && read end"

    def __init__(self):
        self.process = subprocess.Popen(["unshare", "--net", "sh", "-c", self.SETUP], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        if self.process.stdout.readline() != b"up\n":
            raise AssertionError("no network namespace")

    def enter(self, *command):
        return ["nsenter", "--net=/proc/%d/ns/net" % self.pid, "--", *command]

    def sh(self, script):
        subprocess.run(self.enter("sh", "-c", script), check=True)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def setUpModule():
    global namespace, directory, listener
    namespace = Namespace()
    listener = Listener(namespace.pid, udp_ports=(53, 80, 9999))
    directory = tempfile.mkdtemp(prefix="weir-test-exec-")
    os.chmod(directory, 0o755)


def tearDownModule():
    listener.stop()
    namespace.stop()
    shutil.rmtree(directory)


def policy_file(name=None, **changes):
    """A file of its own for each policy, unless the name is given: then it is written anew."""
    text = json.dumps({**POLICY, **changes})
    path = os.path.join(directory, name or "policy-%s.json" % hashlib.sha256(text.encode()).hexdigest()[:16])
    with open(path, "w") as f:
        f.write(text)
    return path


def command_line(*command, policy=None, options=(), binary=WEIR, before=()):
    return namespace.enter(*before, binary, "exec", "--policy", policy or policy_file(), *options, "--", *command)


def run(*command, policy=None, options=("--user", "nobody"), binary=WEIR, env=None, stdin=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    environment.update(env or {})
    process = subprocess.Popen(
        command_line(*command, policy=policy, options=options, binary=binary),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True, cwd="/",
    )  # fmt: skip
    Clean.started.add(process.pid)
    try:
        out, err = process.communicate(stdin, timeout=60 * SLOW)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class Running:
    """A command that goes on while the test looks, and talks in lines."""

    def __init__(self, *command, policy=None, options=("--user", "nobody"), before=()):
        self.process = subprocess.Popen(
            command_line(*command, policy=policy, options=options, before=before),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip
        Clean.started.add(self.process.pid)

    @property
    def pid(self):
        """nsenter becomes weir, so this is weir's."""
        return self.process.pid

    def line(self):
        ready, _, _ = select.select([self.process.stdout], [], [], 20 * SLOW)
        if not ready:
            raise AssertionError("no line")
        return self.process.stdout.readline().strip()

    def ask(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.line()

    def error_until(self, pattern):
        """Standard error up to a line that matches."""
        text = ""
        while not re.search(pattern, text):
            ready, _, _ = select.select([self.process.stderr], [], [], 20 * SLOW)
            piece = os.read(self.process.stderr.fileno(), 65536).decode() if ready else ""
            if not piece:
                raise AssertionError("%r is not in %r" % (pattern, text))
            text += piece
        return text

    def instance(self):
        found = glob.glob("/run/weir/exec-%d-*" % self.pid)
        return os.path.basename(found[0]) if found else None

    def finish(self):
        """(status, the rest of standard error)"""
        _, errors = self.process.communicate(timeout=30 * SLOW)
        return self.process.returncode, errors

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        """In order: what is killed is left to the next start to sweep."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.communicate(timeout=20 * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


# Answers each "address port" on its standard input with the errno of a connection there.
DIALOGUE = """
import socket, sys
print("up", flush=True)
for line in sys.stdin:
    address, port = line.split()
    s = socket.socket()
    s.settimeout(5)
    try:
        s.connect((address, int(port)))
        print(0, flush=True)
    except OSError as e:
        print(e.errno, flush=True)
    s.close()
"""


def left_behind(pids):
    """What is there of the instances that these processes were: run directories, cgroups, pins, processes; and the mounts."""
    found = []
    for pid in pids:
        name = "exec-%d-*" % pid
        for base in ["/run/weir", "/sys/fs/bpf/weir"] + [m + "/weir" for m in cgroup_mounts()]:
            found += glob.glob(os.path.join(base, name))
    for pid in (p for p in os.listdir("/proc") if p.isdigit()):
        try:
            with open("/proc/%s/cgroup" % pid) as f:
                instance = re.search(r"/weir/exec-(\d+)-", f.read())
        except OSError:
            continue
        if instance and int(instance.group(1)) in pids:
            found.append("process " + pid)
    return found


def host_mounts():
    with open("/proc/self/mountinfo") as f:
        return sorted(line for line in f if " - cgroup" in line or " - bpf " in line)


class Clean(unittest.TestCase):
    """Whatever a test does, nothing of it is there afterwards."""

    started = set()

    def setUp(self):
        Clean.started.clear()
        self.mounts = host_mounts()
        listener.heard.clear()

    def tearDown(self):
        deadline = time.monotonic() + 10 * SLOW
        while left_behind(Clean.started) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(left_behind(Clean.started), [])
        self.assertEqual(host_mounts(), self.mounts)

    def heard(self, count):
        """What arrived at the listeners, sorted; waits for as much as should, and then for what should not."""
        deadline = time.monotonic() + 5 * SLOW
        while len(listener.heard) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        return sorted((kind, address, port) for kind, address, port, _ in listener.heard)

    def connect(self, rows, **more):
        done = run(PYTHON, "-c", CONNECT, json.dumps(rows), **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [int(line) for line in done.stdout.split()], done.stderr


class Network(Clean):
    ROWS = (  # kind, address, port, errno
        ("SOCK_STREAM", "198.51.100.7", 80, 0),
        ("SOCK_DGRAM", "198.51.100.7", 9999, 0),
        ("SOCK_STREAM", "198.51.100.7", 443, errno.EPERM),
        ("SOCK_STREAM", "198.51.101.7", 80, errno.EPERM),
        ("SOCK_DGRAM", "198.51.100.7", 53, errno.EPERM),
        ("SOCK_STREAM", "10.1.1.1", 80, errno.EPERM),
        ("SOCK_STREAM", "::ffff:10.1.1.1", 80, errno.EPERM),
        ("SOCK_STREAM", "::ffff:198.51.100.7", 80, 0),
        ("SOCK_STREAM", "2001:db8::1", 80, errno.EPERM),
        ("SOCK_STREAM", "127.0.0.1", 80, errno.EPERM),
        ("SOCK_DGRAM", "::1", 9999, errno.EPERM),
    )

    def test_allowed_and_denied(self):
        record = os.path.join(directory, "record.ndjson")
        got, errors = self.connect([r[:3] for r in self.ROWS], options=("--user", "nobody", "--json", record))
        self.assertEqual(got, [r[3] for r in self.ROWS])
        heard = self.heard(3)
        self.assertEqual(heard, [("tcp", "198.51.100.7", 80)] * 2 + [("udp", "198.51.100.7", 9999)])
        self.assertEqual([line for line in errors.splitlines() if "warning" not in line], [
            "weir: denied 8 of 11 attempts",
            "  tcp 198.51.100.7:443  default  x1",
            "  tcp 198.51.101.7:80  default  x1",
            "  udp 198.51.100.7:53  default  x1",
            "  tcp 10.1.1.1:80  rule never  x1",
            "  tcp 10.1.1.1:80  rule never  read as mapped: ::ffff:10.1.1.1 -> 10.1.1.1  x1",
            "  tcp [2001:db8::1]:80  default  x1",
            "  tcp 127.0.0.1:80  default  x1",
            "  udp [::1]:9999  default  x1",
        ])  # fmt: skip
        with open(record) as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual([x["type"] for x in lines], ["run"] + ["event"] * 11)
        self.assertEqual({k: lines[0]["egress"][k] for k in ("attempts", "denied", "allowed", "lost")},
                         {"attempts": 11, "denied": 8, "allowed": 3, "lost": 0})  # fmt: skip
        self.assertEqual((lines[0]["policy"], lines[0]["project"], lines[0]["exit_code"]), ("test", "exec", 0))
        self.assertEqual({x["rule_name"] for x in lines[1:] if x["verdict"] == "allowed"}, {"web"})
        self.assertEqual({x["uid"] for x in lines[1:]}, {NOBODY})
        self.assertEqual(os.stat(record).st_mode & 0o777, 0o600)

    def test_without_the_entry_in_the_policy_map(self):
        """A cgroup that no policy names reaches nothing: what is allowed above comes from the policy."""
        rows = [r[:3] for r in self.ROWS]
        got, _ = self.connect(rows, binary=WEIR_HOOKS, options=("--test-skip", "policy-entry", "--user", "nobody"))
        self.assertEqual(set(got), {errno.EPERM})

    def test_allow_all_reaches_them(self):
        """The same rows get there when a policy says so: it is the policy that refuses."""
        got, _ = self.connect([r[:3] for r in self.ROWS], policy=policy_file(default="allow", rules=[]))
        self.assertEqual(got, [0] * len(self.ROWS))
        self.assertEqual(len(self.heard(len(self.ROWS))), len(self.ROWS))

    def test_monitor(self):
        rows = [r[:3] for r in self.ROWS]
        got, errors = self.connect(rows, policy=policy_file(mode="monitor"))
        self.assertEqual(got, [0] * len(rows))
        self.assertIn("weir: would have denied 8 of 11 attempts\n", errors)

    def test_many_destinations_are_cut(self):
        rows = [("SOCK_STREAM", "10.0.0.%d" % i, 80) for i in range(20)] + [("SOCK_STREAM", "10.0.0.19", 80)] * 2
        _, errors = self.connect(rows)
        lines = [line for line in errors.splitlines() if line.startswith("  ")]
        self.assertEqual(len(lines), 17)
        self.assertEqual(lines[0], "  tcp 10.0.0.19:80  rule never  x3")
        self.assertEqual(lines[16], "  and 4 more; --json FILE has them all")

    def test_names_are_shown_as_text(self):
        """A name on the wire may hold anything; a terminal must not."""
        query = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(%r, ('10.9.9.9', 53))" % (
            b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + b"\x06\x1b[31mx\x07example\x00" + b"\x00\x01\x00\x01")  # fmt: skip
        done = run(PYTHON, "-c", query)
        self.assertIn("  udp 10.9.9.9:53  A \\027\\09131mx.example  rule never  x1\n", done.stderr)

    def test_nobody_reads_standard_error(self):
        """The command has filled it, and is over: so is weir, whatever it would have liked to say."""
        read, write = os.pipe()
        fill = ("import os, socket\nos.set_blocking(2, False)\n"
                "try:\n    while True: os.write(2, b'x' * 4096)\nexcept BlockingIOError: pass\n"
                "os.set_blocking(2, True)\n"  # it is weir's too, as far as the command knows
                "socket.socket().connect_ex(('10.0.0.1', 80))")  # fmt: skip
        process = subprocess.Popen(command_line(PYTHON, "-c", fill), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=write, cwd="/")
        Clean.started.add(process.pid)
        try:
            os.close(write)
            self.assertEqual(process.wait(timeout=12 * SLOW), 0)
        finally:
            process.kill()
            process.wait()
            os.close(read)

    def test_quiet(self):
        _, errors = self.connect([("SOCK_STREAM", "10.0.0.1", 80)], options=("--quiet",))
        self.assertEqual(errors, "")

    def test_state_dir(self):
        state = tempfile.mkdtemp(prefix="weir-test-state-")
        try:
            self.connect([("SOCK_STREAM", "10.0.0.1", 80)], options=("--state-dir", state))
            runs = json.loads(weir("audit", "ls", "--json", "--state-dir", state).stdout)["runs"]
            self.assertEqual([(r["project"], r["egress"]["denied"], r["state"]) for r in runs], [("exec", 1, "ended")])
        finally:
            shutil.rmtree(state)

    def test_own_addresses_are_kept_current(self):
        """Not where everything is local, and so everything this host: there nothing would be left to reach."""
        policy = policy_file(default="allow", rules=[{"verdict": "deny", "to": "@host", "name": "host"}])
        with Running(PYTHON, "-c", DIALOGUE, policy=policy) as r:
            self.assertEqual(r.line(), "up")
            self.assertEqual(r.ask("198.51.100.9 80"), str(errno.EPERM))
            try:
                namespace.sh("ip route del local 0.0.0.0/0 dev lo && ip route add unreachable 0.0.0.0/0")
                r.error_until("policy replaced")
                self.assertEqual(r.ask("198.51.100.9 80"), str(errno.EHOSTUNREACH))
                namespace.sh("ip addr add 198.51.100.9/32 dev lo")
                r.error_until("policy replaced")
                self.assertEqual(r.ask("198.51.100.9 80"), str(errno.EPERM))
                namespace.sh("ip addr del 198.51.100.9/32 dev lo")
                r.error_until("policy replaced")
                self.assertEqual(r.ask("198.51.100.9 80"), str(errno.EHOSTUNREACH))
            finally:
                namespace.sh("ip route del unreachable 0.0.0.0/0; ip route add local 0.0.0.0/0 dev lo")


    def test_name_servers_are_kept_current(self):
        """With a resolv.conf of the test's own, in a mount namespace of its own."""
        policy = policy_file(rules=[{"name": "dns", "verdict": "allow", "to": "@resolver", "protocol": "tcp", "ports": 80}])
        servers = os.path.join(directory, "resolv.conf")
        with open(servers, "w") as f:
            f.write("nameserver 198.51.100.53\n")
        script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        with Running(PYTHON, "-c", DIALOGUE, policy=policy, before=("unshare", "--mount", "sh", "-c", script, servers)) as r:
            self.assertEqual(r.line(), "up")
            self.assertEqual([r.ask(a + " 80") for a in ("198.51.100.53", "198.51.100.54")], ["0", str(errno.EPERM)])
            with open(servers, "w") as f:
                f.write("# another\nnameserver 198.51.100.54\n")
            r.error_until("policy replaced")
            self.assertEqual([r.ask(a + " 80") for a in ("198.51.100.53", "198.51.100.54")], [str(errno.EPERM), "0"])


class Ends(Clean):
    def test_exit_codes(self):
        for command, want in (
            (("true",), 0),
            (("sh", "-c", "exit 7"), 7),
            (("sh", "-c", "exit 125"), 125),
            (("sh", "-c", "kill -TERM $$"), 128 + signal.SIGTERM),
            (("sh", "-c", "kill -KILL $$"), 128 + signal.SIGKILL),
            (("no-such-program-anywhere",), 127),
            (("/etc/passwd",), 126),
            (("/",), 126),
        ):
            self.assertEqual(run(*command, options=("--quiet",)).returncode, want, command)

    def test_what_is_asked_for_wrongly(self):
        for arguments, words in (
            ((), "which policy"),
            (("--policy", "snippet"), "what to run"),
            (("--policy", "/no/such/file", "--", "true"), "/no/such/file"),
            (("--policy", "snippet", "--user", "no-such-user", "--", "true"), 'no user "no-such-user"'),
            (("--policy", "snippet", "--user", "4294967295", "--", "true"), "no user"),
            (("--policy", "snippet", "--keep-caps", "net_raw,fly", "--", "true"), 'no capability "fly"'),
            (("--policy", "snippet", "--json", "/no/such/dir/x", "--", "true"), "--json"),
            (("--policy", policy_file(loopback="self"), "--", "true"), "127.0.0.0/8 and ::1"),
            (("--policy", policy_file(sockets={"families": ["packet"]}), "--keep-caps", "net_raw", "--", "true"), "packet"),
            (("--policy", policy_file(name="bad.json", rules=3), "--", "true"), "bad.json:/rules"),
        ):
            done = weir("exec", *arguments)
            self.assertEqual(done.returncode, 125, (arguments, done.stderr))
            self.assertIn(words, done.stderr.decode(), arguments)

    def test_help(self):
        done = weir("exec", "--help")
        self.assertEqual(done.returncode, 0)
        for words in (b"Examples:", b"--keep-caps", b"It is not a sandbox"):
            self.assertIn(words, done.stdout)

    def test_options_of_the_command_are_its_own(self):
        done = subprocess.run(namespace.enter(WEIR, "exec", "--policy", policy_file(), "--quiet", "echo", "--help", "-x"),
                              stdout=subprocess.PIPE, timeout=60)  # fmt: skip
        self.assertEqual((done.returncode, done.stdout), (0, b"--help -x\n"))

    def test_streams(self):
        done = run("sh", "-c", "cat; echo E >&2", options=("--quiet",), stdin="in")
        self.assertEqual((done.stdout, done.stderr), ("in", "E\n"))

    def test_leftovers_are_killed(self):
        marker = "31%d" % os.getpid()
        done = run("sh", "-c", "setsid sleep %s >/dev/null 2>&1 & (sleep %s >/dev/null 2>&1 &) ; exit 3" % (marker, marker))
        self.assertEqual(done.returncode, 3)
        self.assertEqual([p for p in of_uid(NOBODY) if marker in open("/proc/%d/cmdline" % p).read()], [])

    def test_signals_are_passed_on(self):
        code = "import signal, sys, time\nheard = []\n" + "".join(
            "signal.signal(signal.SIG%s, lambda *a: (heard.append(1), print('%s', flush=True)))\n" % (n, n) for n in ("TERM", "INT", "QUIT", "USR1", "USR2", "WINCH", "HUP")
        )
        with Running(PYTHON, "-c", code + "print('up', flush=True)\nwhile len(heard) < 6: time.sleep(0.01)") as r:
            self.assertEqual(r.line(), "up")
            # HUP is for Weir: the command must not hear it.
            r.process.send_signal(signal.SIGHUP)
            for name in ("TERM", "INT", "QUIT", "USR1", "USR2", "WINCH"):
                r.process.send_signal(getattr(signal, "SIG" + name))
                self.assertEqual(r.line(), name)
            self.assertEqual(r.finish()[0], 0)

    def test_the_callers_signals_and_umask(self):
        """Ignored signals stay ignored, and what Weir changes for itself is given back."""
        code = "import os, re; print('%o' % os.umask(0), *re.findall('Sig(?:Blk|Ign):\\t(\\w+)', open('/proc/self/status').read()))"

        def before():
            os.umask(0o057)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

        want = subprocess.run([PYTHON, "-c", code], preexec_fn=before, stdout=subprocess.PIPE).stdout
        got = subprocess.run(command_line(PYTHON, "-c", code), preexec_fn=before, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        self.assertEqual(got, want)
        self.assertIn(b"57 ", want)

    def test_terminal(self):
        """In a terminal ^C comes once, and the command can read: it is in the foreground group."""
        pid, terminal = pty.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that starts the tests in the background has it ignored
            script = "trap 'echo caught; exit 9' INT; read x; echo got $x; while :; do sleep 0.1; done"
            line = command_line("sh", "-c", script, options=("--quiet",))
            os.execvp(line[0], line)
        try:
            # Else the terminal throws away what is on its way out after it has sent the signal: sometimes the answer to it.
            attributes = termios.tcgetattr(terminal)
            attributes[3] |= termios.NOFLSH
            termios.tcsetattr(terminal, termios.TCSANOW, attributes)
            os.write(terminal, b"hello\n")
            text = self.read_until(terminal, b"got hello")
            os.write(terminal, b"\x03")
            text = self.read_until(terminal, b"caught")
            _, status = os.waitpid(pid, 0)
            pid = 0
            self.assertEqual(os.waitstatus_to_exitcode(status), 9)
            self.assertEqual(text.count(b"caught"), 1)
        finally:
            os.close(terminal)
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def read_until(self, terminal, words):
        text = b""
        while words not in text:
            if not select.select([terminal], [], [], 20 * SLOW)[0]:
                self.fail("%r is not in %r" % (words, text))
            text += os.read(terminal, 4096)
        return text

    def test_killed_weir_takes_its_command_along(self):
        """And what the kernel still holds is swept by the next start. Nothing is unjudged at any time."""
        marker = "32%d" % os.getpid()
        with Running("sh", "-c", "setsid sleep %s & echo up; sleep %s" % (marker, marker)) as r:
            self.assertEqual(r.line(), "up")
            name = r.instance()
            self.assertTrue(cgroups_of(name))
            r.process.kill()
            r.process.wait()
            deadline = time.monotonic() + 5 * SLOW
            while [p for p in of_uid(NOBODY) if marker in open("/proc/%d/cmdline" % p).read()]:
                self.assertLess(time.monotonic(), deadline, "the command lives on")
                time.sleep(0.01)
        self.assertEqual(run("true").returncode, 0)
        self.assertEqual(cgroups_of(name), [])
        self.assertFalse(os.path.exists("/sys/fs/bpf/weir/" + name))

    def test_verdicts_outlive_all_of_weir(self):
        """Root process, auditor and report process killed together: what is left of the command is still judged."""
        code = DIALOGUE.replace("print(\"up\"", "import ctypes; ctypes.CDLL(None).prctl(1, 0)\nprint(\"up\"")  # no PDEATHSIG
        with Running(PYTHON, "-c", code) as r:
            self.assertEqual(r.line(), "up")
            name = r.instance()
            children = [int(p) for p in open("/proc/%d/task/%d/children" % (r.pid, r.pid)).read().split()]
            ours = [p for p in children if os.readlink("/proc/%d/exe" % p) == os.path.realpath(WEIR)]
            self.assertEqual(len(ours), 2)
            os.kill(r.pid, signal.SIGSTOP)
            for pid in ours + [r.pid]:
                os.kill(pid, signal.SIGKILL)
            r.process.wait()
            self.assertEqual(r.ask("10.1.1.1 80"), str(errno.EPERM))
            self.assertEqual(r.ask("198.51.100.7 80"), "0")
            self.assertEqual(run("true").returncode, 0)  # sweeps
            self.assertEqual(cgroups_of(name), [])

    def test_lost_auditor_and_lost_report(self):
        """Without them nothing goes on unseen or unkept: the command ends, and Weir says why."""
        for index, words in ((0, "auditor is gone"), (1, "keeps the command's cgroup is gone")):
            with Running("sh", "-c", "echo up; exec sleep 1000") as r:
                self.assertEqual(r.line(), "up")
                children = sorted(int(p) for p in open("/proc/%d/task/%d/children" % (r.pid, r.pid)).read().split())
                os.kill(children[index], signal.SIGKILL)
                status, errors = r.finish()
                self.assertEqual(status, 125, errors)
                self.assertIn(words, errors)

    def test_detached_programs_end_the_command(self):
        """Somebody takes the pins and links away: the command does not go on unjudged."""
        with Running("sh", "-c", "echo up; exec sleep 1000") as r:
            self.assertEqual(r.line(), "up")
            base = os.path.join(cgroup2_mount(), "weir", r.instance())
            tool = next(p for p in ("/usr/sbin/bpftool", "/sbin/bpftool") if os.path.exists(p))
            for pin in glob.glob("/sys/fs/bpf/weir/%s/link*" % r.instance()):
                subprocess.run([tool, "link", "detach", "pinned", pin], check=True, stdout=subprocess.DEVNULL)
            self.assertTrue(os.path.isdir(base))
            status, errors = r.finish()
            self.assertEqual(status, 125, errors)
            self.assertIn("weir: policy: the command was ended", errors)


# Leaves a connection to "address port" with so many bytes in it, and exits (or waits to be killed).
POST = """
import socket, sys, time
address, port, size, options, wait = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
s.connect((address, port))
if options:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes.fromhex(options))
s.setblocking(False)
print(s.send(b"x" * size), flush=True)
time.sleep(float(wait))
"""

ANSWER = """
import socket, sys
s = socket.socket()
s.bind(("0.0.0.0", int(sys.argv[1])))
s.listen()
print("up", flush=True)
c, _ = s.accept()
c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
c.setblocking(False)
print(c.send(b"x" * (1 << 20)), flush=True)
"""
RECORD_ROUTE = "0707040000000001"


class Connections(Clean):
    """What a command's connections hold when it is gone: delivered while the policy is in force, or never."""

    PORT = 9999  # TCP: nobody else listens there

    def setUp(self):
        super().setUp()
        self.server = in_netns(namespace.pid, socket.socket)
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.server.bind(("0.0.0.0", self.PORT))
        self.server.listen(4)
        self.server.settimeout(20 * SLOW)

    def tearDown(self):
        self.server.close()
        super().tearDown()

    def left(self, port=PORT, local=False):
        """The states of connections to (or from) that port, but TIME_WAIT."""
        with open("/proc/%d/net/tcp" % namespace.pid) as f:
            rows = [line.split() for line in f][1:]
        return [r[3] for r in rows if int(r[1 if local else 2].split(":")[1], 16) == port and r[3] not in ("06", "0A")]

    def post(self, size, options="", wait=0, **more):
        return Running(PYTHON, "-c", POST, "198.51.100.7", str(self.PORT), str(size), options, str(wait), **more)

    def drain(self, peer):
        """How much comes until the end; None when there is none but a reset, or nothing more."""
        peer.settimeout(10 * SLOW)
        total = 0
        try:
            while piece := peer.recv(65536):
                total += len(piece)
        except OSError:
            return None
        return total

    def test_what_is_allowed_is_delivered(self):
        with self.post(1 << 20) as r:
            sent = int(r.line())
            peer, _ = self.server.accept()
            time.sleep(1)
            self.assertIsNone(r.process.poll(), "the end did not wait")
            with peer:
                self.assertEqual(self.drain(peer), sent)
            status, errors = r.finish()
            self.assertEqual(status, 0)
            self.assertNotIn("lost", errors)
        self.assertGreater(sent, 100000)

    def test_what_nobody_takes_is_destroyed(self):
        """A peer that stands still, and packets that the policy stops for their form."""
        for size, options in ((1 << 20, ""), (1000, RECORD_ROUTE)):
            with self.post(size, options) as r:
                self.assertGreater(int(r.line()), 0)
                peer, _ = self.server.accept()
                began = time.monotonic()
                with peer:
                    status, errors = r.finish()
                    self.assertGreater(time.monotonic() - began, 4)
                    self.assertEqual(status, 0)
                    self.assertIn("1 connections that the command left still held data: closed, it is lost", errors)
                    self.assertEqual(self.left(), [])
                    if options:
                        peer.settimeout(2)
                        self.assertRaises(OSError, peer.recv, 1)

    def test_what_is_denied_is_destroyed_at_once(self):
        """Allowed when it was connected, and no more when the command ends."""
        path = policy_file(name="left.json")
        code = POST.replace("time.sleep(float(wait))", "sys.stdin.readline()")
        with Running(PYTHON, "-c", code, "198.51.100.7", str(self.PORT), str(1 << 20), "", "0", policy=path) as r:
            r.line()
            peer, _ = self.server.accept()
            with peer:
                policy_file(name="left.json", rules=RULES[1:])
                r.process.send_signal(signal.SIGHUP)
                r.error_until("policy replaced")
                began = time.monotonic()
                status, errors = r.finish()
                self.assertEqual((status, self.left()), (0, []))
                self.assertLess(time.monotonic() - began, 3 * SLOW)
                self.assertNotIn("is lost", errors)

    def test_asked_to_stop_it_does_not_wait(self):
        with self.post(1 << 20) as r:
            r.line()
            peer, _ = self.server.accept()
            with peer:
                time.sleep(1)
                r.process.terminate()
                began = time.monotonic()
                self.assertIn("it is lost", r.finish()[1])
                self.assertLess(time.monotonic() - began, 3 * SLOW)
                self.assertEqual(self.left(), [])

    def test_only_watched_is_left_alone(self):
        with self.post(1 << 20, policy=policy_file(mode="monitor", default="deny", rules=[])) as r:
            sent = int(r.line())
            peer, _ = self.server.accept()
            with peer:
                self.assertEqual(r.finish()[0], 0)
                self.assertEqual(self.left(), ["04"])  # FIN_WAIT1
                self.assertEqual(self.drain(peer), sent)

    def test_answers_of_what_it_accepted(self):
        """They go to where no rule allows anything."""
        policy = policy_file(inbound="allow", rules=[])
        with Running(PYTHON, "-c", ANSWER, "9998", policy=policy) as r:
            self.assertEqual(r.line(), "up")
            peer = in_netns(namespace.pid, socket.socket)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(("198.51.100.7", 9998))
            sent = int(r.line())
            time.sleep(1)
            with peer:
                self.assertEqual(self.drain(peer), sent)
            self.assertEqual(r.finish()[0], 0)

    def test_killed_weir_leaves_them_to_the_sweep(self):
        with self.post(1 << 20, wait=1000) as r:
            r.line()
            peer, _ = self.server.accept()
            with peer:
                r.process.kill()
                r.process.wait()
                deadline = time.monotonic() + 5 * SLOW
                while self.left() != ["04"] and time.monotonic() < deadline:
                    time.sleep(0.01)
                self.assertEqual(self.left(), ["04"])
                self.assertEqual(run("true").returncode, 0)
                self.assertEqual(self.left(), [])


class StandardStreams(Clean):
    def test_network_sockets_are_refused(self):
        """They are the caller's, and judged by nobody."""
        kinds = [(socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET6, socket.SOCK_DGRAM),
                 (socket.AF_NETLINK, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW)]  # fmt: skip
        for family, kind in kinds:
            for name, words in (("stdin", "standard input"), ("stdout", "standard output")):
                with in_netns(namespace.pid, lambda f=family, k=kind: socket.socket(f, k)) as s:
                    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, name: s}
                    done = subprocess.run(command_line("true"), timeout=60, **streams)
                self.assertEqual(done.returncode, 125, (family, name))
                self.assertIn(("weir: descriptors: %s is a network socket" % words).encode(), done.stderr)
        with in_netns(namespace.pid, socket.socket) as s:
            self.assertEqual(subprocess.run(command_line("true"), stdin=subprocess.DEVNULL, stderr=s, timeout=60).returncode, 125)

    def test_unix_sockets_may_stay(self):
        ours, its = socket.socketpair()
        with ours, its:
            done = subprocess.run(command_line("cat", options=("--quiet",)), stdin=subprocess.DEVNULL, stdout=its, timeout=60)
            self.assertEqual(done.returncode, 0)
            done = subprocess.run(command_line("echo", "hello", options=("--quiet",)), stdin=its, stdout=its, stderr=its, timeout=60)
            self.assertEqual((done.returncode, ours.recv(100)), (0, b"hello\n"))


class Reload(Clean):
    def test_sighup(self):
        path = policy_file(name="reload.json")
        with Running(PYTHON, "-c", DIALOGUE, policy=path) as r:
            self.assertEqual(r.line(), "up")
            self.assertEqual(r.ask("198.51.100.7 80"), "0")
            self.assertEqual(r.ask("198.51.101.7 80"), str(errno.EPERM))
            swapped = [dict(RULES[0], to="198.51.101.0/24"), RULES[1]]
            policy_file(name="reload.json", rules=swapped)
            r.process.send_signal(signal.SIGHUP)
            r.error_until("policy replaced")
            self.assertEqual(r.ask("198.51.100.7 80"), str(errno.EPERM))
            self.assertEqual(r.ask("198.51.101.7 80"), "0")
            for changes, words in (
                ({"rules": 3}, "reload.json:/rules"),
                ({"default": "perhaps"}, "reload.json:/default"),
                ({"loopback": "self"}, "loopback"),
                ({"no-such-key": 1}, "no-such-key"),
            ):
                policy_file(name="reload.json", **changes)
                r.process.send_signal(signal.SIGHUP)
                self.assertIn(words, r.error_until("stays in force.*\n"), changes)
                self.assertEqual(r.ask("198.51.100.7 80"), str(errno.EPERM))
                self.assertEqual(r.ask("198.51.101.7 80"), "0")
            policy_file(name="reload.json", rules=swapped, listen="deny", limits={"processes": 10})
            r.process.send_signal(signal.SIGHUP)
            said = r.error_until("policy replaced")
            self.assertIn("keeps the system call filter it was started with", said)
            self.assertIn("keeps the limits it was started with", said)


class Who(Clean):
    SHOW = "import os, re; print(os.getresuid()[1], os.getresgid()[1], sorted(os.getgroups()), os.environ.get('HOME'), os.environ.get('USER'), *re.findall('(?:Cap\\w+|NoNewPrivs|Seccomp):\\t(\\w+)', open('/proc/self/status').read()))"
    NONE = ["0" * 16] * 5 + ["1", "2"]

    def show(self, *options, env=None):
        done = run(PYTHON, "-c", self.SHOW, options=("--quiet", *options), env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_users(self):
        nobody = "65534 65534 [65534] /nonexistent nobody " + " ".join(self.NONE)
        self.assertEqual(self.show("--user", "nobody"), nobody)
        self.assertEqual(self.show("--user", "65534"), nobody)
        self.assertEqual(self.show(env={"SUDO_UID": "65534", "SUDO_GID": "65534"}), nobody)
        self.assertEqual(self.show("--user", "54321"), "54321 54321 [] None None " + " ".join(self.NONE))
        self.assertEqual(self.show(env={"SUDO_UID": "54321", "SUDO_GID": "12345"}), "54321 12345 [] None None " + " ".join(self.NONE))
        self.assertEqual(self.show("--user", "root", env={"SUDO_UID": "65534", "SUDO_GID": "65534", "HOME": "/x", "USER": "y"}).split(" [")[0], "0 0")
        self.assertEqual(self.show(env={"HOME": "/x", "USER": "y"}).split("] ")[1], "/x y " + " ".join(self.NONE))

    def test_bad_sudo(self):
        done = run("true", options=(), env={"SUDO_UID": "-1"})
        self.assertEqual(done.returncode, 125)
        self.assertIn("SUDO_UID", done.stderr)

    def test_root_is_told(self):
        self.assertIn("runs as root", run("true", options=()).stderr)
        self.assertNotIn("runs as root", run("true", options=("--quiet",)).stderr)
        self.assertNotIn("runs as root", run("true").stderr)

    def test_kept_capabilities(self):
        bit = "%016x" % (1 << 10 | 1 << 13)
        for user in ("nobody", "root"):
            got = self.show("--user", user, "--keep-caps", "net_bind_service,CAP_NET_RAW").split()
            self.assertEqual(got[-7:], [bit] * 5 + ["1", "2"], user)
        bind = "import socket; socket.socket().bind(('127.0.0.1', 79))"
        self.assertEqual(run(PYTHON, "-c", bind, options=("--user", "nobody", "--keep-caps", "net_bind_service")).returncode, 0)
        self.assertIn("Permission denied", run(PYTHON, "-c", bind).stderr)

    REFUSED = """sys_admin bpf perfmon net_admin sys_ptrace sys_module sys_rawio sys_boot sys_chroot sys_resource sys_pacct syslog
        dac_override dac_read_search chown fowner fsetid setfcap mknod linux_immutable setuid setgid setpcap kill ipc_owner
        mac_override mac_admin audit_control checkpoint_restore""".split()
    KEPT = """net_bind_service net_raw net_broadcast ipc_lock sys_nice sys_time sys_tty_config lease audit_write audit_read
        wake_alarm block_suspend""".split()

    def test_every_capability_is_decided(self):
        with open("/proc/sys/kernel/cap_last_cap") as f:
            self.assertLessEqual(int(f.read()) + 1, len(self.REFUSED) + len(self.KEPT))
        self.assertEqual(len(set(self.REFUSED) | set(self.KEPT)), 41)
        for name in self.REFUSED:
            done = weir("exec", "--policy", "snippet", "--keep-caps", name, "--", "true")
            self.assertEqual(done.returncode, 125)
            self.assertIn("%s can't be kept: it can " % name, done.stderr.decode())
        self.assertEqual(run("true", options=("--user", "nobody", "--keep-caps", ",".join(self.KEPT))).returncode, 0)

    def test_descriptors(self):
        show = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd')))"
        with open("/etc/passwd") as f:
            os.set_inheritable(f.fileno(), True)
            done = subprocess.run(command_line(PYTHON, "-c", show), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, close_fds=False, timeout=60)
        self.assertEqual(done.stdout, b"[0, 1, 2, 3]\n")  # 3 is the listing itself

    def test_limits(self):
        policy = policy_file(limits={"memory_bytes": 64 << 20, "processes": 20, "open_files": 33, "cpu_percent": 50})
        done = run(PYTHON, "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)); x = bytearray(200 << 20)", policy=policy)
        self.assertEqual(done.stdout, "(33, 33)\n")
        self.assertNotEqual(done.returncode, 0)
        done = run("sh", "-c", "i=0; while [ $i -lt 40 ]; do sleep 1 & i=$((i+1)); done", policy=policy)
        self.assertRegex(done.stderr, "(?i)fork")
        done = run(PYTHON, "-c", "x = bytearray(200 << 20); print(len(x))")
        self.assertEqual(done.stdout, "%d\n" % (200 << 20))


class Contained(Clean):
    """What would let a command leave its policy, tried as root without a user of its own to hide behind."""

    EPERM_CALLS = {
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "move_mount": 429, "open_tree": 428, "open_tree_attr": 467, "fsopen": 430,
        "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "setns": 308, "open_by_handle_at": 304, "bpf": 321,
        "perf_event_open": 298, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_getfd": 438, "userfaultfd": 323,
        "add_key": 248, "request_key": 249, "keyctl": 250, "init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246,
        "kexec_file_load": 320,
    }  # fmt: skip
    ENOSYS_CALLS = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "clone3": 435}
    NEW = {"mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}

    def calls(self, rows, **more):
        done = run(PYTHON, "-c", CALLS, json.dumps(rows), **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [int(line) for line in done.stdout.split()]

    def test_calls(self):
        names = list(self.EPERM_CALLS) + list(self.ENOSYS_CALLS)
        rows = [[{**self.EPERM_CALLS, **self.ENOSYS_CALLS}[n], 0, 0, 0, 0, 0] for n in names]
        rows += [[56, flag | 17, 0, 0, 0, 0] for flag in self.NEW.values()] + [[272, flag, 0, 0, 0, 0] for flag in self.NEW.values()]
        want = [errno.EPERM] * len(self.EPERM_CALLS) + [errno.ENOSYS] * 4 + [errno.EPERM] * 2 * len(self.NEW)
        for options in (("--quiet",), ("--quiet", "--user", "nobody")):
            for policy in (policy_file(), policy_file(mode="monitor")):
                got = self.calls(rows, options=options, policy=policy)
                self.assertEqual(got, want, [n for n, g, w in zip(names, got, want) if g != w])

    def test_calls_without_the_filter(self):
        """Without it a user without any capability gets a namespace, a ring and a trace."""
        rows = [[272, self.NEW["user"]], [425, 1, 0], [101, 0, 0, 0, 0], [310, 0, 0, 0, 0, 0, 0]]
        options = ("--quiet", "--user", "nobody", "--test-skip", "seccomp")
        got = self.calls(rows, options=options, binary=WEIR_HOOKS)
        self.assertFalse({errno.EPERM} & set(got), got)
        self.assertEqual(self.calls(rows, options=("--quiet", "--user", "nobody")), [errno.EPERM, errno.ENOSYS, errno.EPERM, errno.EPERM])

    def test_foreign_abi(self):
        done = run(PYTHON, "-c", "import ctypes; ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 + 39))")
        self.assertEqual(done.returncode, 128 + signal.SIGSYS)

    def test_typing(self):
        code = "import fcntl, termios, os; fcntl.ioctl(0, termios.TIOCSTI, b'x')"
        leader, follower = pty.openpty()
        try:
            done = subprocess.run(command_line(PYTHON, "-c", code, options=("--quiet",)), stdin=follower, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=60)  # fmt: skip
        finally:
            os.close(leader)
            os.close(follower)
        self.assertIn(b"PermissionError: [Errno 1]", done.stderr)

    def test_sockets(self):
        code = "import socket, sys\nfor a in %r:\n try: socket.socket(*a); print(0)\n except OSError as e: print(e.errno)"
        rows = [(2, 1, 0), (10, 2, 17), (1, 1, 0), (16, 3, 0), (17, 3, 0), (2, 3, 1), (2, 10, 0), (2, 2, 1), (2, 1, 262), (40, 1, 0), (44, 3, 0)]
        done = run(PYTHON, "-c", code % rows, options=("--quiet", "--keep-caps", "net_raw"))
        self.assertEqual([int(x) for x in done.stdout.split()], [
            0, 0, 0, errno.EAFNOSUPPORT, errno.EAFNOSUPPORT, errno.EPERM, errno.EPERM, errno.EPROTONOSUPPORT, errno.EPROTONOSUPPORT,
            errno.EAFNOSUPPORT, errno.EAFNOSUPPORT])  # fmt: skip
        wide = policy_file(sockets={"families": ["inet", "netlink", "unix"], "types": ["stream", "dgram", "raw"], "protocols": ["icmp"]})
        done = run(PYTHON, "-c", code % rows, policy=wide, options=("--quiet", "--keep-caps", "net_raw"))
        self.assertEqual([int(x) for x in done.stdout.split()][:6],
                         [errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, 0, 0, errno.EAFNOSUPPORT, 0])  # fmt: skip
        # Frames leave below the policy: also when it only watches.
        done = run(PYTHON, "-c", code % [(17, 3, 0), (2, 10, 0)], policy=policy_file(mode="monitor"),
                   options=("--quiet", "--keep-caps", "net_raw"))  # fmt: skip
        self.assertEqual([int(x) for x in done.stdout.split()], [errno.EAFNOSUPPORT, errno.EPERM])

    def test_raw_socket_is_judged(self):
        policy = policy_file(sockets={"types": ["raw", "dgram", "stream"], "protocols": ["udp", "icmp"]})
        code = "import socket\nfor a in ('10.1.1.1', '198.51.100.7'):\n try: socket.socket(2, 3, 17).sendto(b'\\0\\x50\\0\\x50\\0\\x08\\0\\0', (a, 0)); print(0)\n except OSError as e: print(e.errno)"
        done = run(PYTHON, "-c", code, policy=policy, options=("--keep-caps", "net_raw"))
        self.assertEqual([int(x) for x in done.stdout.split()], [errno.EPERM, 0])
        self.assertEqual(self.heard(1), [("udp", "198.51.100.7", 80)])
        self.assertIn("  udp 10.1.1.1:80  rule never  x1", done.stderr)

    def test_listen_and_syscalls(self):
        listen = "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0))\ntry: s.listen(); print(0)\nexcept OSError as e: print(e.errno)"
        self.assertEqual(run(PYTHON, "-c", listen).stdout, "0\n")
        self.assertEqual(run(PYTHON, "-c", listen, policy=policy_file(listen="deny")).stdout, "%d\n" % errno.EACCES)
        kill = policy_file(syscalls=[{"names": ["getpgid"], "action": "kill"}, {"names": ["getsid"], "errno": "EBUSY"}])
        self.assertEqual(self.calls([[124, 0]], policy=kill), [errno.EBUSY])
        self.assertEqual(run(PYTHON, "-c", CALLS, json.dumps([[121, 0]]), policy=kill).returncode, 128 + signal.SIGSYS)

    # -- files that move a process out of its cgroup, and that hold the programs --
    WRITES = """
import os, sys
for path in sys.argv[1:]:
    try:
        fd = os.open(path, os.O_WRONLY)
        os.write(fd, str(os.getpid()).encode())
        print(0)
    except OSError as e:
        print(e.errno)
try:
    name = os.listdir("/sys/fs/bpf/weir")[0]
    os.rename("/sys/fs/bpf/weir/" + name, "/sys/fs/bpf/weir/x")
    os.rename("/sys/fs/bpf/weir/x", "/sys/fs/bpf/weir/" + name)
    print(0)
except OSError as e:
    print(e.errno)
print(open("/proc/self/cgroup").read().split("0::")[1].split()[0])
"""

    def write(self, *options, binary=WEIR):
        """[errno of each cgroup.procs, errno of a pin's renaming, cgroup that it is in then]"""
        procs = [m + "/cgroup.procs" for m in cgroup_mounts()]
        done = run(PYTHON, "-c", self.WRITES, *procs, options=("--quiet", *options), binary=binary)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    def test_cgroups_and_pins_are_read_only(self):
        *errnos, cgroup = self.write()
        self.assertEqual(set(errnos), {str(errno.EROFS)})
        self.assertRegex(cgroup, "^/weir/exec-.*/exec-")

    def test_cgroups_and_pins_without_the_layer(self):
        """Root owns them: it is the mounts that stop it. (This command has left its policy.)"""
        *errnos, cgroup = self.write("--test-skip", "read-only", "--test-skip", "verify", binary=WEIR_HOOKS)
        self.assertIn("0", errnos)
        self.assertEqual((errnos[-1], cgroup), ("0", "/"))

    # -- processes outside --
    REACH = """
import os, sys
pid = sys.argv[1]
for path, flags in (("mem", os.O_RDWR), ("root/sys/fs/cgroup", os.O_RDONLY), ("cwd", os.O_RDONLY), ("fd/0", os.O_RDONLY), ("environ", os.O_RDONLY)):
    try:
        fd = os.open("/proc/%s/%s" % (pid, path), flags)
        if path == "environ":
            os.read(fd, 1)
        print(0)
    except OSError as e:
        print(e.errno)
os.rename("/tmp/weir-test-%s/a" % pid, "/tmp/weir-test-%s/b/a" % pid)
"""

    def reach(self, *options, binary=WEIR):
        outside = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "sleep", "100"],
                                   stdin=subprocess.DEVNULL, cwd="/")  # fmt: skip
        place = "/tmp/weir-test-%d" % outside.pid
        try:
            time.sleep(0.2)
            os.makedirs(place + "/b")
            open(place + "/a", "w").close()
            for path in (place, place + "/b", place + "/a"):
                os.chown(path, NOBODY, NOBODY)
            done = run(PYTHON, "-c", self.REACH, str(outside.pid), options=("--quiet", "--user", "nobody", *options), binary=binary)
            self.assertEqual(done.returncode, 0, done.stderr)  # files go where they went before
            return [int(x) for x in done.stdout.split()]
        finally:
            outside.kill()
            outside.wait()
            shutil.rmtree(place)

    def test_processes_outside_are_out_of_reach(self):
        got = self.reach()
        self.assertEqual(len(got), 5)
        self.assertLessEqual(set(got), {errno.EACCES, errno.EPERM})

    def test_processes_outside_without_the_layer(self):
        got = self.reach("--test-skip", "landlock", binary=WEIR_HOOKS)
        self.assertIn(0, got)


class Faults(Clean):
    """Each step in turn: made to fail, or left out where another check sees it."""

    STEPS = re.findall(r"^\tSTEP\((\w+), (\S+),", open(os.path.join(os.path.dirname(WEIR), "..", "userspace/supervisor/command.h")).read(), re.M)

    def test_failing_steps(self):
        self.assertGreater(len(self.STEPS), 18)
        for step, layer in self.STEPS:
            if step in ("EXEC", "CLONE"):
                continue  # not steps that can be made to fail on the way
            marker = os.path.join(directory, "started")
            option = step.lower().replace("_", "-")
            done = run("touch", marker, binary=WEIR_HOOKS, options=("--quiet", "--test-fault", option))
            self.assertEqual(done.returncode, 125, (step, done.stderr))
            self.assertIn("weir: %s: " % layer.strip('"'), done.stderr, step)
            self.assertFalse(os.path.exists(marker), step)

    def test_missing_steps_are_noticed(self):
        for step, user in (
            ("read-only", "root"),
            ("bounding", "root"),
            ("identity", "nobody"),
            ("capabilities", "root"),
            ("no-new-privs", "root"),
        ):
            done = run("true", binary=WEIR_HOOKS, options=("--quiet", "--user", user, "--test-skip", step))
            self.assertEqual(done.returncode, 125, (step, done.stderr))
            # Landlock is the first to miss no_new_privs.
            self.assertIn("weir: landlock: " if step == "no-new-privs" else "weir: verify: ", done.stderr, step)


if __name__ == "__main__":
    unittest.main()
