# SPDX-License-Identifier: Apache-2.0
"""Who is alive and what is there, as the kernel tells it: seen from the host, of one instance of Weir.

lib.HostState counts what the whole host holds. These classes say whose it is, so that a test that runs beside another
service (or beside whatever else the host does) neither fails for the neighbour's sandboxes nor is blind to its own.
"""
import collections
import glob
import json
import os
import re
import subprocess
import threading
import time

from lib import SLOW, cgroup_mounts

UID_BASE = 0x70000000  # userspace/supervisor/supervisor.h
UID_SANDBOX_FIRST = UID_BASE + 1000
UID_CARRIER_FIRST = UID_BASE + 0x0F100000
UID_END = UID_CARRIER_FIRST + UID_SANDBOX_FIRST - UID_BASE + 0x0F000000


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read().decode("utf-8", "replace")
    except OSError:
        return ""


def pids():
    return [int(p) for p in os.listdir("/proc") if p.isdigit()]


def identity(pid):
    """(pid, start time): what a pid that was used again does not share. None when there is no such process."""
    stat = read("/proc/%d/stat" % pid)
    return (pid, int(stat.rsplit(")", 1)[1].split()[19])) if stat else None


def parent(pid):
    stat = read("/proc/%d/stat" % pid)
    return int(stat.rsplit(")", 1)[1].split()[1]) if stat else None


def uid_of(pid):
    """Real uid, of zombies too."""
    found = re.search(r"^Uid:\s+(\d+)", read("/proc/%d/status" % pid), re.M)
    return int(found.group(1)) if found else None


def of_uid(uid):
    return [p for p in pids() if uid_of(p) == uid]


def tree(pid):
    """`pid` and everything below it."""
    children = collections.defaultdict(list)
    for p in pids():
        children[parent(p)].append(p)
    found, todo = [], [pid]
    while todo:
        p = todo.pop()
        found.append(p)
        todo += children[p]
    return sorted(found)


def cgroups_of(instance):
    """Every cgroup directory of an instance, in every hierarchy, its own included."""
    found = []
    for mount in cgroup_mounts():
        for base, _, _ in os.walk(os.path.join(mount, "weir", instance)):
            found.append(base)
    return sorted(found)


def members(instance, sandbox):
    """Pids in a sandbox's cgroups, in every hierarchy."""
    found = set()
    for mount in cgroup_mounts():
        for name in ("cgroup.procs", "tasks"):
            found |= {int(n) for n in read(os.path.join(mount, "weir", instance, sandbox, name)).split()}
    return found


class Watch:
    """Remembers every process that was ever seen in a sandbox of a service, as (pid, start time)."""

    def __init__(self, service, every=0.02):
        self.instance, self.base, self.every = service.name(), service.cgroup(), every
        self.seen = collections.defaultdict(set)
        self.comms = {}
        self.stopping = False
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _loop(self):
        while not self.stopping:
            try:
                for entry in os.listdir(self.base):
                    known = {pid for pid, _ in self.seen[entry]}
                    for pid in read(os.path.join(self.base, entry, "cgroup.procs")).split():
                        if int(pid) not in known:
                            who = identity(int(pid))
                            if who:
                                self.seen[entry].add(who)
                                self.comms[who] = None
            except OSError:
                pass
            time.sleep(self.every)

    def alive(self, sandbox):
        """Of the processes that were seen there: those that still exist, be it as zombies. Asked once, no patience."""
        return [who for who in self.seen[sandbox] if identity(who[0]) == who]

    def stop(self):
        self.stopping = True
        self.thread.join(5)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()


def left_of(watch, sandbox, uid=None):
    """What is left of a sandbox at this moment, in words; empty when nothing is."""
    found = []
    inside = members(watch.instance, sandbox)
    if inside:
        found.append("in its cgroups: %s" % sorted(inside))
    alive = watch.alive(sandbox)
    if alive:
        found.append("seen there and still alive: %s" % [(p, read("/proc/%d/status" % p)[:200]) for p, _ in alive])
    if uid is not None:
        stray = of_uid(uid)
        if stray:
            found.append("of uid %d: %s" % (uid, stray))
    return found


# ---- BPF ----


def bpftool(*args):
    tool = next((p for p in ("/usr/sbin/bpftool", "/sbin/bpftool") if os.path.exists(p)), "bpftool")
    done = subprocess.run([tool, "-j", "-f", *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        return json.loads(done.stdout or b"[]")
    except ValueError:
        return []


def inner_maps(instance):
    """Of a policy: what only a map of maps has, and no pin names."""
    rows = [row for outer in ("tries", "lists") for row in bpftool("map", "dump", "pinned", "/sys/fs/bpf/weir/%s/%s" % (instance, outer))]
    return {int.from_bytes(bytes(int(b, 16) for b in row["value"]), "little") for row in rows if isinstance(row, dict) and "value" in row}


def bpf_objects(foreign):
    """(kind, id, name) of every BPF object on the host, but for those of the instances in `foreign`."""
    links, progs, maps = bpftool("link", "show"), bpftool("prog", "show"), bpftool("map", "show")
    theirs = {("map", i) for instance in foreign for i in inner_maps(instance)}

    def is_theirs(o):
        return any(re.match(r"/sys/fs/bpf/weir/(%s)/" % "|".join(map(re.escape, foreign)), p) for p in o.get("pinned") or []) if foreign else False

    for link in links:
        if is_theirs(link):
            theirs |= {("link", link["id"]), ("prog", link.get("prog_id"))}
    for m in maps:
        if is_theirs(m):
            theirs.add(("map", m["id"]))
    for prog in progs:
        if is_theirs(prog) or any(("map", i) in theirs for i in prog.get("map_ids", [])):
            theirs.add(("prog", prog["id"]))
        if ("prog", prog["id"]) in theirs:
            theirs |= {("map", i) for i in prog.get("map_ids", [])}
    found = [("link", o["id"], o.get("attach_type", "")) for o in links]
    found += [("prog", o["id"], o.get("name", "")) for o in progs]
    found += [("map", o["id"], o.get("name", "")) for o in maps]
    return {o for o in found if (o[0], o[1]) not in theirs}


def map_entries(instance, name):
    """How many entries a pinned map of an instance has."""
    return len(bpftool("map", "dump", "pinned", "/sys/fs/bpf/weir/%s/%s" % (instance, name)))


def slabs():
    """Live objects of each kernel slab, where the kernel tells."""
    found = {}
    for line in read("/proc/slabinfo").splitlines()[2:]:
        name, active = line.split()[:2]
        found[name] = int(active)
    for mount in cgroup_mounts():
        dying = re.search(r"^nr_dying_descendants (\d+)", read(os.path.join(mount, "cgroup.stat")), re.M)
        if dying:
            found["dying cgroups"] = int(dying.group(1))
    return found


# ---- all of it ----


def instances():
    """Names of the instances of Weir on this host."""
    found = {os.path.basename(os.path.dirname(p)) for p in glob.glob("/run/weir/*/lock")}
    found |= {os.path.basename(p) for p in glob.glob("/sys/fs/bpf/weir/*")}
    return found


def kind_of_fd(target):
    """A descriptor's target without what differs from one sandbox, or one day, to the next."""
    return re.sub(r":?\[\d+\]$", "", re.sub(r"sandbox-[a-z0-9]+", "sandbox", target))


class Footprint:
    """Everything that a run, or a whole service, could leave behind. `instance` is whose it is.

    .things: name -> a set (or a number) to compare; .rss: role -> bytes, to be bounded, not compared.
    """

    def __init__(self, instance, service=None):
        self.things, self.rss = {}, {}
        foreign = {i for i in instances() if i != instance}
        own = tree(service.process.pid) if service else []
        stray = []
        for p in pids():
            uid = uid_of(p)
            if p in own or uid is None or not UID_BASE <= uid < UID_END:
                continue
            groups = read("/proc/%d/cgroup" % p)
            ancestors, at = set(), p
            while at and at not in ancestors:
                ancestors.add(at)
                at = parent(at)
            if "/weir/%s" % instance in groups:
                stray.append(p)
            elif not any("/weir/%s" % f in groups for f in foreign) and not any(
                read("/proc/%d/comm" % a).startswith("weir") for a in ancestors if a != p
            ):
                stray.append(p)
        self.things["stray processes"] = set(stray)
        self.things["cgroups"] = len(cgroups_of(instance))
        mounts = read("/proc/self/mountinfo").splitlines()
        self.things["mounts of the host"] = {" ".join(line.split()[3:5]) for line in mounts}
        # May be a neighbour's, who was there at one look and not at the other.
        self.shared = {" ".join(line.split()[3:5]) for line in mounts if foreign and " - bpf " in line}
        self.things["bpf objects"] = bpf_objects(foreign)
        self.things["run files"] = {os.path.join(d, n) for d, s, f in os.walk("/run/weir/%s" % instance) for n in s + f}
        self.things["pins"] = set(os.listdir("/sys/fs/bpf/weir/%s" % instance)) if os.path.isdir("/sys/fs/bpf/weir/%s" % instance) else set()
        self.things["temporary files"] = {
            n for d in ("/tmp", "/dev/shm", "/var/tmp") if os.path.isdir(d) for n in os.listdir(d) if "weir" in n and not n.startswith(("weir-test-", "weir-rig-", "weir-vm."))
        }
        if not service:
            return
        held = set()
        roles = collections.Counter()
        namespaces = collections.Counter()
        for p in own:
            comm = read("/proc/%d/comm" % p).strip()
            uid = uid_of(p)
            role = {0: "supervisor", UID_BASE: "init", UID_BASE + 1: "api", UID_BASE + 2: "auditor", UID_BASE + 3: "collector"}.get(uid, "payload")
            if uid == 0 and p != service.process.pid:
                role = "gateway"
            elif uid is not None and uid >= UID_CARRIER_FIRST:
                role = "carrier"
            roles[role] += 1
            for ns in ("pid", "mnt", "net", "ipc", "uts", "cgroup"):
                try:
                    namespaces[ns, os.readlink("/proc/%d/ns/%s" % (p, ns))] += 1
                except OSError:
                    pass
            if comm.startswith("weir") and role in ("supervisor", "api", "auditor", "collector", "gateway"):
                try:
                    kinds = collections.Counter(kind_of_fd(os.readlink(f)) for f in glob.glob("/proc/%d/fd/*" % p))
                except OSError:
                    kinds = {}
                self.things["fds of the " + role] = dict(kinds)
                for info in glob.glob("/proc/%d/fdinfo/*" % p):
                    held |= set(re.findall(r"^((?:map|prog|link)_id:\s*\d+)$", read(info), re.M))
                self.things["mounts of the " + role] = len(read("/proc/%d/mountinfo" % p).splitlines())
                found = re.search(r"^VmRSS:\s+(\d+)", read("/proc/%d/status" % p), re.M)
                self.rss[role] = int(found.group(1)) * 1024 if found else 0
        self.things["bpf objects held"] = held
        self.things["processes"] = dict(roles)
        self.things["namespaces"] = dict(collections.Counter(kind for kind, _ in namespaces))
        self.things["entries of the sandboxes map"] = map_entries(instance, "sandboxes")
        self.things["entries of the flows map"] = map_entries(instance, "flows")

    def difference(self, later):
        """key -> what is not as it was. Of sets that hold the whole host's, what went away is a neighbour's business."""
        found = {}
        for key in sorted(set(self.things) | set(later.things)):
            a, b = self.things.get(key), later.things.get(key)
            if key == "mounts of the host":
                a, b = a - self.shared - later.shared, b - self.shared - later.shared
            if a == b or (key in HOST_WIDE and b <= a):
                continue
            if isinstance(a, set) and isinstance(b, set):
                found[key] = {"gone": a - b, "new": b - a}
            else:
                found[key] = {"before": a, "after": b}
        return found


HOST_WIDE = ("bpf objects", "mounts of the host", "stray processes", "temporary files")


def settled(before, look, seconds=10.0):
    """Looks again until everything has been as in `before`, at most `seconds`: what has not.

    Each thing may settle at its own time. Of what the whole host holds, only what is there at every look is left over: a
    neighbour's that comes and goes is not.
    """
    deadline = time.monotonic() + seconds * SLOW
    open_keys = None
    while True:
        difference = before.difference(look())
        if open_keys is None:
            open_keys = difference
        for key in list(open_keys):
            if key not in difference:
                del open_keys[key]
            elif key in HOST_WIDE:
                open_keys[key]["new"] = open_keys[key]["new"] & difference[key]["new"]
                if not open_keys[key]["new"]:
                    del open_keys[key]
            else:
                open_keys[key] = difference[key]
        if not open_keys or time.monotonic() >= deadline:
            return open_keys
        time.sleep(0.1)
