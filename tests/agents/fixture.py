# SPDX-License-Identifier: Apache-2.0
"""What the tests of agents share: small images with an agent's modules, and a service with one agent that runs in them.

    agents = Agents({"app.py": "def add(a, b): return a + b"})
    agents.call("add", {"a": 1, "b": 2})["result"] == 3
    agents.stop()

The image is made of this host's own Python; its root directory is made once for all tests of a run.
"""
import atexit
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading

import image_roots
from image_roots import Layout, tar, write
from lib import SLOW, WEIR, Answer, Service, weir

WORKDIR = "/app"
# As small as it can be for tools that speak HTTP, start processes and await.
LEFT_OUT = (
    "test", "tests", "lib2to3", "ensurepip", "idlelib", "tkinter", "turtle*", "pydoc*", "config-*", "dist-packages", "unittest", "distutils", "curses", "wsgiref", "xmlrpc", "dbm",
    "cp[0-9]*", "iso*", "mac_*", "euc_*", "big5*", "_codecs_*", "_test*", "xml", "mailbox*", "doctest*", "__phello__*", "venv", "sqlite3", "_sqlite3*", "_curses*", "_tkinter*",
)

_lock, _made = threading.Lock(), {}


def base():
    """(root directory, the same as a tar): read only, for everybody, gone at the end of the run."""
    with _lock:
        if not _made:
            top = tempfile.mkdtemp(prefix="weir-test-base-")
            atexit.register(shutil.rmtree, top, True)
            image_roots.make_python(top + "/root", LEFT_OUT)
            with open(top + "/root.tar", "wb") as f:
                f.write(tar(top + "/root"))
            _made.update(root=top + "/root", tar=top + "/root.tar")
        return _made["root"], _made["tar"]


def app_tar(files, workdir=WORKDIR):
    """The layer with the author's own files: text or bytes by path; a path that is not absolute is below `workdir`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(os.path.join(workdir, name).lstrip("/"))
            info.size, info.mode = len(data), 0o644
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def configuration(variables=None, workdir=WORKDIR):
    """As `docker build` writes it."""
    env = dict({"PATH": "/usr/local/bin:/usr/bin:/bin"}, **(variables or {}))
    return {"Env": ["%s=%s" % pair for pair in env.items()], "WorkingDir": workdir, "Cmd": ["python3"]}


def make_directory(path, files, workdir=WORKDIR):
    """A root directory. It has no configuration: modules are found from "/" on, or by PYTHONPATH."""
    subprocess.run(["cp", "-al", base()[0], path], check=True)  # nobody writes to an image's files
    for name, content in files.items():
        to = path + os.path.join(workdir, name)
        if isinstance(content, bytes):
            os.makedirs(os.path.dirname(to), exist_ok=True)
            with open(to, "wb") as f:
                f.write(content)
        else:
            write(to, content)
    return path


def make_layout(path, files, variables=None, workdir=WORKDIR, name="latest"):
    """An OCI layout, a directory: the base, and one layer over it."""
    layout = Layout(path)
    with open(base()[1], "rb") as f:
        below = f.read()
    image = layout.image([(below, ""), (app_tar(files, workdir), "gzip")], config=configuration(variables, workdir))
    return layout.index(dict(image, annotations={"org.opencontainers.image.ref.name": name}))


def make_docker_archive(path, files, variables=None, workdir=WORKDIR, name="weir-test:latest"):
    """What `docker save` writes, in its old form: the one that podman and every tool still read."""
    with open(base()[1], "rb") as f:
        layers = [("base/layer.tar", f.read()), ("app/layer.tar", app_tar(files, workdir))]
    config = {"os": "linux", "architecture": "amd64", "config": configuration(variables, workdir), "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(data).hexdigest() for _, data in layers]}}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": [n for n, _ in layers]}]
    with tarfile.open(path, "w") as t:
        for member, data in layers + [("config.json", json.dumps(config).encode()), ("manifest.json", json.dumps(manifest).encode())]:
            info = tarfile.TarInfo(member)
            info.size, info.mode = len(data), 0o644
            t.addfile(info, io.BytesIO(data))
    return path


MAKERS = {"layout": make_layout, "docker": make_docker_archive}


def run_weir(*args, state, **more):
    """A weir command on a state directory that must succeed: what it printed."""
    done = weir(*args, "--state-dir", state, **more)
    if done.returncode != 0:
        raise AssertionError("weir %s: %d\n%s" % (" ".join(args), done.returncode, done.stderr.decode("utf-8", "replace")))
    return done.stdout.decode()


class Agents:
    """A service with a state directory of its own and one agent, whose image is made of `files`.

    tools: the modules to register; default: every file "x.py" at the top. More agents: add().
    """

    def __init__(self, files, tools=None, kind="layout", variables=None, workdir=WORKDIR, agent="weather", project="demo", options=(), binary=WEIR):
        self.folder = tempfile.mkdtemp(prefix="weir-test-agents-")
        self.state, self.project, self.agent, self.binary = self.folder + "/state", project, agent, binary
        self.tokens, self.service = {}, None
        os.mkdir(self.state, 0o700)
        try:
            self.service = Service(*options, state=self.state, binary=binary)
            self.add(agent, files, tools, kind, variables, workdir)
        except BaseException:
            self.stop()
            raise

    def import_image(self, name, files, kind="layout", variables=None, workdir=WORKDIR):
        """Makes an image and imports it under `name`."""
        path = tempfile.mkdtemp(dir=self.folder) + "/image"
        if kind == "directory":
            make_directory(path, files, workdir)
        else:
            MAKERS[kind](path, files, variables, workdir)
        try:
            return run_weir("image", "import", path, "--name", name, state=self.state, timeout=300)
        finally:
            shutil.rmtree(os.path.dirname(path))

    def add(self, agent, files, tools=None, kind="layout", variables=None, workdir=WORKDIR, project=None, more=()):
        """One more agent, or the same with another image. Its token is in .tokens."""
        self.import_image(agent, files, kind, variables, workdir)
        self.register(agent, agent, tools or [n[:-3] for n in files if n.endswith(".py") and "/" not in n], project, more)

    def register(self, agent, image, tools, project=None, more=()):
        project = project or self.project
        run_weir("agent", "add", agent, "--project", project, "--image", image, "--replace", "--tools", *tools, *more, state=self.state)
        self.tokens[agent] = self.environment(agent, project)["SANDBOX_TOKEN"]

    def environment(self, agent=None, project=None):
        """What the agent's own process is started with, a fresh token in it."""
        url = "http://127.0.0.1:%d" % self.service.port
        return json.loads(run_weir("agent", "env", agent or self.agent, "--project", project or self.project, "--url", url, "--json", state=self.state))

    def request(self, name, arguments=None, agent=None, timeout=None, **fields):
        """POST /v1/call; the Answer whatever its status."""
        body = dict(fields, name=name, arguments={} if arguments is None else arguments)
        return self.service.request("POST", "/v1/call", body, token=self.tokens[agent or self.agent], timeout=timeout or 160 * SLOW)

    def call(self, name, arguments=None, agent=None, **fields):
        """The answer's object of a call that must be answered with 200."""
        answer = self.request(name, arguments, agent, **fields)
        if answer.status != 200:
            raise AssertionError("%r\n%s" % (answer, self.service.log_text()))
        return answer.json()

    def result(self, name, arguments=None, agent=None, **fields):
        """The result of a call that must have one."""
        answer = self.call(name, arguments, agent, **fields)
        if "result" not in answer:
            raise AssertionError("%s: %s" % (name, json.dumps(answer, indent=1)))
        return answer["result"]

    def stop(self):
        status = self.service.stop() if self.service else None
        shutil.rmtree(self.folder, ignore_errors=True)
        return status

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()


__all__ = ["Agents", "Answer", "WORKDIR", "app_tar", "base", "configuration", "make_directory", "make_docker_archive", "make_layout", "run_weir"]
