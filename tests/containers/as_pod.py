# SPDX-License-Identifier: Apache-2.0
"""A container of a manifest, started by podman with what the manifest gives it and no more: capabilities, namespaces, mounts, a root
that cannot be written. Not a cluster: nobody admits, schedules or probes it, and its image is this host's own files.

    with AsPod(host, spec, volumes={"state": directory}) as pod:
        pod.run("weir", "status")
"""
import os
import subprocess
import tempfile
import time

from lib import SLOW, TOP, WEIR

WRAPPER = os.path.join(TOP, "deploy", "container", "weir")


def host_process():
    """A process in the host's cgroup namespace that may be looked at: pid 1, or where even root may not, this one."""
    try:
        os.readlink("/proc/1/ns/cgroup")
        return 1
    except PermissionError:
        return os.getpid()


class AsPod:
    """volumes: name -> a directory of the test's in place of a ConfigMap, a Secret or a directory of the node."""

    def __init__(self, host, spec, volumes, without=(), command=None, extra=(), cgroupns="private"):
        self.host, self.name, self.log = host, host.name(), tempfile.TemporaryFile()
        self.container = spec["containers"][0]
        args = ["run", "--rm", "--name", self.name, "--cgroup-parent", host.parent, "--cgroupns", cgroupns, "--rootfs"]
        args[2:2] = self._options(spec, volumes, without) + ["--network", "ns:" + host.netns if spec.get("hostNetwork") else "none"] + list(extra)
        words = command or (self.container.get("command") or ["weir"]) + self.container.get("args", [])
        self.process = subprocess.Popen(host.command + args + ["/:O"] + words, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=host.dir + "/cwd",
                                        env=dict(os.environ, CONTAINERS_CONF=host.dir + "/containers.conf"))

    def _options(self, spec, volumes, without):
        security = self.container["securityContext"]
        options = ["--cap-drop", "all"]
        for cap in security["capabilities"].get("add", []):
            options += [] if cap in without else ["--cap-add", cap]
        if security["readOnlyRootFilesystem"]:
            options += ["--read-only", "--read-only-tmpfs=false"]
        if spec.get("hostPID"):
            options += ["--pid", "host", "--env", "WEIR_HOST_PROCESS=%d" % host_process()]
        paths = {v["name"]: volumes.get(v["name"]) or v.get("hostPath", {}).get("path") for v in spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            path = paths[mount["name"]]
            if path:  # what is optional and not given is not there
                options += ["-v", "%s:%s%s" % (path, mount["mountPath"], ":ro" if mount.get("readOnly") else "")]
        return options + ["-v", "%s:/usr/local/libexec/weir:ro" % WEIR, "-v", "%s:/usr/local/bin/weir:ro" % WRAPPER]

    def done(self, *command, timeout=60):
        return self.host.podman_done("exec", self.name, *command, timeout=timeout)

    def run(self, *command, timeout=60):
        """As `kubectl exec`: what it printed. It must succeed."""
        done = self.done(*command, timeout=timeout)
        if done.returncode:
            raise AssertionError("%s: %d\n%s%s\n%s" % (" ".join(command), done.returncode, done.stdout, done.stderr, self.said()))
        return done.stdout

    def said(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")

    def probe(self, name, seconds=30):
        """Waits until the probe of that name succeeds, asked as a kubelet would, from inside of the pod's network."""
        get = self.container[name]["httpGet"]
        port = get["port"] if isinstance(get["port"], int) else next(p["containerPort"] for p in self.container["ports"] if p["name"] == get["port"])
        url = "%s://127.0.0.1:%d%s" % (get.get("scheme", "HTTP").lower(), port, get["path"])
        deadline = time.monotonic() + seconds * SLOW
        while (done := self.done("curl", "-skf", url)).returncode:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError("%s %s: %s%s\n%s" % (name, url, done.stdout, done.stderr, self.said()))
            time.sleep(0.1)

    def kill(self):
        """All of it at once, as when a pod is evicted and its node is in a hurry."""
        self.host.podman_done("kill", "-s", "KILL", self.name)
        self.process.wait(30 * SLOW)

    def stop(self):
        if self.process.poll() is None:
            self.host.podman_done("stop", "-t", "20", self.name)
        self.process.wait(30 * SLOW)
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()
