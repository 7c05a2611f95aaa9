# SPDX-License-Identifier: Apache-2.0
"""Real containers and pods on the fake internet, for tests of policies on what already runs.

    host = shared()
    ways = host.ways()                      # addresses that no other test has
    box = host.run("talk", ways.denied_tcp, ways.allowed_tcp)
    host.heard.moving(ways.denied_tcp)

All containers have one root directory, with one static program in it: tests/containers/probe.c. Podman's storage, its cgroup
and its network are the tests' own. A process in the background waits for the end of this one, however that comes, and then
removes all of it.
"""
import atexit
import collections
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from footprint import tree
from internet import Ears, Internet, Resolver
from lib import BUILD, SLOW, WEIR, bpftool, cgroup2_mount, cgroup_mounts, weir

PROBE = os.path.join(BUILD, "containers", "probe")
IMAGE = "localhost/weir-test-probe:1"
PORT = 9999
NONE_GOT_OUT = 42  # exit status of `probe try`: each way was refused with EPERM
ATTACHED_PINS, ATTACHED_RUN = "/sys/fs/bpf/weir/attached", "/run/weir/attached"

# As distributions ship it: without NET_RAW, which is Podman's own default and Docker's.
CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
default_capabilities = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"]
log_driver = "k8s-file"
[engine]
runtime = "{runtime}"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
"""
# With the end of its standard input everything goes. Cgroups are tried again: the kernel needs a moment after the last process.
# Pods are in a cgroup that every podman of the host shares: only theirs are touched, and the whole when it is empty and new.
SWEEPER = r"""
trap '' INT TERM HUP
echo
read -r end
pods=$({podman} pod ls -q --no-trunc)
{podman} pod rm -f -a -t 0
{podman} rm -f -a -t 0
for id in $({runtime} --root {dir}/bundles list -q); do {runtime} --root {dir}/bundles delete -f "$id"; done
for again in 1 2 3 4 5 6 7 8 9 10; do
	left=
	for mount in {mounts}; do
		for parent in {parent} $(printf '/libpod_parent/%s ' $pods); do
			[ -d "$mount$parent" ] || continue
			find "$mount$parent" -depth -type d -exec rmdir {{}} + 2>/dev/null
			[ ! -d "$mount$parent" ] || left=1
		done
	done
	[ -n "$left" ] || break
	sleep 0.2
done
for mount in {mounts}; do
	for shared in {shared}; do rmdir "$mount$shared" 2>/dev/null; done
done
for part in $(sed -n 's#^[^ ]* [^ ]* [^ ]* [^ ]* \({dir}[^ ]*\) .*#\1#p' /proc/self/mountinfo | sort -r); do umount "$part"; done
rm -rf --one-file-system {dir} {dir}.log
# What is attached still; and what Weir would remember of these containers for a day.
for word in {parent} $pods; do
	for record in $(grep -l "/${{word#/}}" {records}/*/attachment.json); do
		id=$(basename "$(dirname "$record")")
		if [ -d "{pins}/$id" ]; then {weir} detach --id "$id"; fi
		rm -rf "{records}/$id"
	done
done
"""


class Arrivals:
    """When what arrived, by way (as `probe` spells it)."""

    def __init__(self):
        self.times = collections.defaultdict(list)

    def note(self, way):
        self.times[way].append(time.monotonic())

    def count(self, way):
        return len(self.times[way])

    def moving(self, *ways, more=5, seconds=10):
        """Waits until each has brought something again, at the pace of one that flows."""
        before, deadline = {w: self.count(w) for w in ways}, time.monotonic() + seconds * SLOW
        while still := [w for w in ways if self.count(w) < before[w] + more]:
            if time.monotonic() > deadline:
                raise AssertionError("nothing comes any more: %s" % still)
            time.sleep(0.01)

    def still(self, *ways, seconds=0.6):
        """Nothing comes, for so long."""
        before = {w: self.count(w) for w in ways}
        time.sleep(seconds * SLOW)
        came = [w for w in ways if self.count(w) != before[w]]
        if came:
            raise AssertionError("it still comes: %s" % came)

    def gap(self, way, since):
        """The longest silence from `since` until now, in seconds."""
        marks = [since] + [t for t in list(self.times[way]) if t > since] + [time.monotonic()]
        return max(b - a for a, b in itertools.pairwise(marks))


class Listeners(Ears):
    """Notes the arrival of each datagram, connection and piece of a stream; .heard has them whole."""

    def __init__(self, arrivals, pid, ports):
        self.arrivals = arrivals
        super().__init__(pid, ports, ports)

    def _datagram(self, s, port):
        super()._datagram(s, port)
        self._note(self.heard[-1])

    def _connection(self, s, port):
        super()._connection(s, port)
        self._note(self.heard[-1])

    def _bytes(self, s, entry):
        super()._bytes(s, entry)
        self._note(entry)

    def _note(self, entry):
        self.arrivals.note("%s:%s:%d" % (entry.kind, entry.address, entry.port))


class Names(Resolver):
    """Notes each question by the name without its number: two ways that ask different servers ask for different names."""

    def __init__(self, arrivals, pid):
        self.arrivals = arrivals
        super().__init__(pid, {})

    def answer(self, query):
        reply = super().answer(query)
        self.arrivals.note("dns:" + self.asked[-1].partition(".")[2])
        return reply


class Ways:
    """Addresses of one test: what `tool-call` denies, and what it allows."""

    def __init__(self, number):
        self.denied_address, self.allowed_address = "10.77.%d.%d" % divmod(number, 256), "8.77.%d.%d" % divmod(number, 256)
        self.denied6, self.allowed6 = "fd77::%x:1" % number, "2600:77::%x:1" % number
        for kind in ("tcp", "udp"):
            for word in ("denied", "allowed"):
                setattr(self, "%s_%s" % (word, kind), "%s:%s:%d" % (kind, getattr(self, word + "_address"), PORT))
                setattr(self, "%s6_%s" % (word, kind), "%s:%s:%d" % (kind, getattr(self, word + "6"), PORT))
        self.denied_dns = "dns:%s:denied-%d.example" % (self.denied_address, number)
        self.allowed_dns = "dns:%s:allowed-%d.example" % (self.allowed_address, number)
        self.denied = [self.denied_tcp, self.denied_udp, self.denied6_tcp, self.denied6_udp, self.denied_dns]
        self.allowed = [self.allowed_tcp, self.allowed_udp, self.allowed6_tcp, self.allowed6_udp, self.allowed_dns]


class Heard:
    """Arrivals, asked for by ways."""

    def __init__(self, arrivals):
        self._arrivals = arrivals

    @staticmethod
    def _key(way):
        return "dns:" + way.rpartition(":")[2] if way.startswith("dns:") else way

    def __getattr__(self, name):
        method = getattr(self._arrivals, name)

        def call(*ways, **kw):
            rest = [w for w in ways if not isinstance(w, str)]
            return method(*[self._key(w) for w in ways if isinstance(w, str)], *rest, **kw)

        return call


class Container:
    def __init__(self, host, name):
        self.host, self.name = host, name
        self.look()

    def look(self):
        """Asks again who it is: after a restart."""
        self.id, pid = self.host.podman("inspect", "--format", "{{.Id}} {{.State.Pid}}", "--type", "container", self.name).split()
        self.pid = int(pid)
        self.cgroup = cgroup_of(self.pid)
        return self

    def exec(self, *command):
        """(exit status, output) of the probe, started inside by podman."""
        done = self.host.podman_done("exec", self.name, "/bin/probe", *command)
        return done.returncode, done.stdout

    def remove(self):
        self.host.podman("rm", "-f", "-t", "0", self.name)


def cgroup_of(pid):
    """The directory of a process's cgroup2."""
    with open("/proc/%d/cgroup" % pid) as f:
        return cgroup2_mount() + next(line[3:].strip() for line in f if line.startswith("0::"))


class Host:
    """Podman and runc, and a network that they have to themselves."""

    _numbers = itertools.count(1)

    def __init__(self, runtime="runc"):
        self.dir = tempfile.mkdtemp(prefix="weir-test-containers-", dir="/run")
        self.runtime, self.pods = runtime, []
        self.parent = "/weir-test-containers-%d-%d" % (os.getpid(), next(self._numbers))
        self.root = self.dir + "/rootfs"
        for name in ("bin", "dev", "etc", "proc", "run", "sys", "tmp"):
            os.makedirs(os.path.join(self.root, name))
        shutil.copy(PROBE, self.root + "/bin/probe")
        os.mkdir(self.dir + "/cwd")
        with open(self.dir + "/containers.conf", "w") as f:
            f.write(CONTAINERS_CONF.format(runtime=runtime))
        self.command = ["podman", "--root", self.dir + "/storage", "--runroot", self.dir + "/run", "--tmpdir", self.dir + "/tmp", "--storage-driver", "vfs"]
        self._watch()
        try:
            self.net = Internet()
            arrivals = Arrivals()
            self.heard = Heard(arrivals)
            self.ears = self.net.add(Listeners(arrivals, self.net.world.pid, (PORT,)))
            self.net.add(Names(arrivals, self.net.world.pid))
            self.netns = "/proc/%d/ns/net" % self.net.client.pid
        except BaseException:
            self.close()
            raise

    def _watch(self):
        script = SWEEPER.format(
            podman="CONTAINERS_CONF=%s/containers.conf %s" % (self.dir, " ".join(self.command)),
            dir=self.dir,
            runtime=self.runtime,
            mounts=" ".join(cgroup_mounts()),
            parent=self.parent,
            shared="" if any(os.path.isdir(m + "/libpod_parent") for m in cgroup_mounts()) else "/libpod_parent/conmon /libpod_parent",
            weir=WEIR,
            pins=ATTACHED_PINS,
            records=ATTACHED_RUN,
        )
        self.log = open(self.dir + ".log", "wb")
        self.sweeper = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, start_new_session=True, cwd="/")
        self.sweeper.stdout.readline()

    def close(self):
        """Ends everything that was started here."""
        self.sweeper.stdin.close()
        if hasattr(self, "net"):
            self.net.close()
        self.sweeper.stdout.read()
        self.sweeper.wait()
        self.log.close()

    def owns(self, cgroup):
        """Whether a cgroup's path, from the hierarchy's root, is of a container or pod that was started here."""
        return cgroup.startswith(self.parent) or any("/%s" % pod in cgroup for pod in self.pods)

    # -- who talks to whom --
    def ways(self):
        return Ways(next(self._numbers))

    def labels_heard(self):
        """Of everything that arrived and was no number: the words."""
        return {word.decode("latin-1") for entry in list(self.ears.heard) for word in bytes(entry.data).split() if not word.isdigit()}

    # -- podman --
    def podman_done(self, *args, stdin=None, timeout=60):
        # In the client's network: with hostNetwork a container, and what `podman exec` starts in it, is where podman is.
        command = ["nsenter", "--net=" + self.netns, "--", *self.command, *args]
        return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout * SLOW, text=True, cwd=self.dir + "/cwd",
                              env=dict(os.environ, CONTAINERS_CONF=self.dir + "/containers.conf"))

    def podman(self, *args, **kw):
        done = self.podman_done(*args, **kw)
        if done.returncode:
            raise AssertionError("podman %s: %d\n%s" % (" ".join(args), done.returncode, done.stderr))
        return done.stdout.strip()

    def options(self, name):
        return ["--name", name, "--cgroup-parent", self.parent, "--network", "ns:" + self.netns]

    def name(self):
        return "box-%d" % next(self._numbers)

    def run(self, *command, options=(), name=None):
        """A container in the background, with the probe in it."""
        name = name or self.name()
        self.podman("run", "-d", *self.options(name), *options, "--rootfs", self.root, "/bin/probe", *command)
        return Container(self, name)

    def run_to_end(self, *command, options=()):
        """CompletedProcess of a container that ends by itself."""
        return self.podman_done("run", "--rm", *self.options(self.name()), *options, "--rootfs", self.root, "/bin/probe", *command)

    def image(self):
        """The root directory as an image, for `kube play`, which takes nothing else."""
        if self.podman_done("image", "exists", IMAGE).returncode:
            archive = self.dir + "/image.tar"
            subprocess.run(["tar", "-C", self.root, "-cf", archive, "."], check=True)
            self.podman("import", "-c", 'CMD ["/bin/probe", "pause"]', archive, IMAGE)
        return IMAGE

    def play(self, name, containers, annotations=None):
        """`podman kube play` of a pod: name of a container -> the probe's arguments. Containers by name, and the pod's id."""
        spec = [{"name": n, "image": self.image(), "command": ["/bin/probe", *args], "imagePullPolicy": "Never"} for n, args in containers.items()]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or {}}, "spec": {"hostNetwork": True, "containers": spec}}
        # Podman's pods cannot join a namespace; but what it takes for the host's is the one that it is in.
        self.podman("kube", "play", "--network", "host", "-", stdin=json.dumps(pod))
        pod = self.podman("pod", "inspect", "--format", "{{.Id}}", name)
        self.pods.append(pod)
        return pod, {n: Container(self, "%s-%s" % (name, n)) for n in containers}

    def remove_pod_cgroup(self, pod):
        """Of a pod that is gone. On a host with v1 hierarchies podman forgets the one of cgroup2."""
        for mount in cgroup_mounts():
            if os.path.isdir("%s/libpod_parent/%s" % (mount, pod)):
                os.rmdir("%s/libpod_parent/%s" % (mount, pod))

    def put(self, name, document):
        """A file of the test's: its path."""
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            json.dump(document, f)
        return path

    # -- the runtime by itself --
    def bundle(self, args, annotations=None, hooks=None):
        """A directory with a config.json: (path, id)."""
        name = "bundle-%d" % next(self._numbers)
        path = os.path.join(self.dir, name)
        os.mkdir(path)
        kinds = ("pid", "mount", "ipc", "uts")
        config = {
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/probe", *args], "env": ["PATH=/bin"], "cwd": "/", "noNewPrivileges": True, "capabilities": {}},
            "root": {"path": self.root, "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
            ],
            "annotations": annotations or {},
            "hooks": hooks or {},
            "linux": {"cgroupsPath": "%s/%s" % (self.parent, name), "namespaces": [{"type": k} for k in kinds] + [{"type": "network", "path": self.netns}]},
        }
        with open(path + "/config.json", "w") as f:
            json.dump(config, f)
        return path, name

    def start_bundle(self, bundle, prefix=(), timeout=60):
        """Runs it to its end: CompletedProcess."""
        path, name = bundle
        command = ["nsenter", "--net=" + self.netns, "--", *prefix, self.runtime, "--root", self.dir + "/bundles", "run", "--bundle", path, name]
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout * SLOW, text=True)


# ---- what Weir says ----


def until(condition, seconds, what):
    deadline = time.monotonic() + seconds * SLOW
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("not within %g s: %s" % (seconds, what() if callable(what) else what))
        time.sleep(0.05)


def end_at_once(service):
    """SIGKILL of every process of a service."""
    everyone = tree(service.process.pid)
    for pid in everyone:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    service.process.wait()
    until(lambda: not any(os.path.exists("/proc/%d" % p) for p in everyone), 5, "the service's processes are gone")


def weir_json(*args, expect=0):
    """What `weir ARGS --json` prints. expect: exit statuses that may be, one or several."""
    done = weir(*args, "--json")
    if done.returncode not in (expect if isinstance(expect, tuple) else (expect,)):
        raise AssertionError("weir %s: %d\n%s%s" % (" ".join(args), done.returncode, done.stdout.decode(), done.stderr.decode()))
    return json.loads(done.stdout) if done.stdout.strip() else None


def attach(*args, **kw):
    return weir_json("attach", *args, **kw)


def detach(*args, **kw):
    return weir_json("detach", *args, **kw)


def status(*ids):
    """Of the attachments with these ids, by id; of all without one. Others on this host may be in any state."""
    found = {a["id"]: a for a in weir_json("status", expect=(0, 1))["attachments"]}
    return {i: found.get(i) for i in ids} if ids else found


def detach_all_of(host):
    """Takes off what a test has left on this host's cgroups."""
    for a in status().values():
        if host.owns(a["target"]["cgroup"]):
            detach("--id", a["id"], expect=(0, 1))


def traces(attachment_id):
    """What is left of an attachment on disk: pins, and its record's directory."""
    return [p for p in (os.path.join(ATTACHED_PINS, attachment_id), os.path.join(ATTACHED_RUN, attachment_id)) if os.path.exists(p)]


def links_of(attachment_id):
    """Ids of its links in the kernel, by its pins."""
    return {link["id"] for link in bpftool("-f", "link", "show") if any(("/attached/%s/" % attachment_id) in p for p in link.get("pinned") or [])}


def links():
    return {link["id"] for link in bpftool("link", "show")}


_lock, _shared = threading.Lock(), []


def shared():
    """The one of this run of tests."""
    with _lock:
        if not _shared:
            _shared.append(Host())
            atexit.register(_shared[0].close)
        return _shared[0]
