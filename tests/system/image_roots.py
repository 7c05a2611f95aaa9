# SPDX-License-Identifier: Apache-2.0
"""Small root directories and OCI layouts for tests, made of this host's own files; nothing is downloaded."""
import glob
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import tarfile

PYTHON = os.path.realpath("/usr/bin/python3")
VERSION = os.path.basename(PYTHON)  # "python3.11"
STDLIB = "/usr/lib/" + VERSION
SITE = "/usr/lib/python3/dist-packages"
COMMANDS = ("sh", "cat", "id", "ls", "env")
# What nobody needs for a test, and takes most of the time.
LEFT_OUT = (
    "test", "tests", "lib2to3", "ensurepip", "idlelib", "tkinter", "turtle*", "pydoc*", "config-*", "dist-packages", "unittest", "distutils", "curses", "wsgiref", "xmlrpc", "dbm",
    "cp[0-9]*", "iso*", "mac_*", "euc_*", "big5*", "_codecs_*", "_test*", "xml", "email", "http", "mailbox*", "doctest*", "tarfile*", "_py*", "__phello__*", "venv",
)


def libraries(*programs):
    """Shared objects that they need, by the path the loader knows them by."""
    found = set()
    for program in programs:
        done = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        found |= set(re.findall(r"(/\S+) \(0x", done.stdout))
    return sorted(found)


def copy(source, top, target=None):
    """Copies a file's content to the same place below `top`, through whatever links lead there on the host."""
    to = top + os.path.realpath(os.path.dirname(target or source)) + "/" + os.path.basename(target or source)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copy2(os.path.realpath(source), to)


def write(path, text="", mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)


def make_commands(top, *programs):
    """The directories of a usr-merged system, programs of the host, and the libraries they need."""
    for name in ("bin", "lib", "lib64", "sbin"):
        os.makedirs(os.path.join(top, "usr", name), exist_ok=True)
        os.symlink("usr/" + name, os.path.join(top, name))
    for program in programs:
        copy(program, top)
    for library in libraries(*[os.path.realpath(p) for p in programs]):
        copy(library, top)


def make_python(top, left_out=LEFT_OUT):
    """A Debian in small: a few commands, Python with what of its library is not left out, certificates, one time zone."""
    make_commands(top, PYTHON, *["/usr/bin/" + c for c in COMMANDS])
    shutil.copytree(STDLIB, top + STDLIB, symlinks=False, ignore=shutil.ignore_patterns(*left_out))
    for library in libraries(*glob.glob(STDLIB + "/lib-dynload/*.so")) + glob.glob("/usr/lib/x86_64-linux-gnu/libgcc_s.so.1"):
        copy(library, top)
    copy("/etc/ssl/certs/ca-certificates.crt", top)
    os.makedirs(top + "/usr/share/zoneinfo/Etc")
    copy("/usr/share/zoneinfo/Etc/UTC", top)

    # An absolute link through /etc, as Debian's alternatives are.
    os.makedirs(top + "/etc/alternatives")
    os.symlink("/usr/bin/" + VERSION, top + "/etc/alternatives/python3")
    os.symlink("/etc/alternatives/python3", top + "/usr/bin/python3")


def make_root(top):
    """The same with one of everything that an image may have and a sandbox must cope with."""
    make_python(top)
    # /etc: some that a sandbox has of its own, one that shows through, a link that leads nowhere inside.
    write(top + "/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nimage-user:x:1000:1000::/home/u:/bin/sh\n")
    write(top + "/etc/shadow", "root:secret-of-the-image\n", 0o640)
    write(top + "/etc/image-note", "of the image\n")
    write(top + "/etc/services", "image-service 4711/tcp\n")
    os.symlink("../run/resolvconf/resolv.conf", top + "/etc/resolv.conf")
    # Where a sandbox has file systems of its own.
    write(top + "/tmp/of-the-image", "x")
    write(top + "/proc/of-the-image", "x")
    write(top + "/dev/of-the-image", "x")
    write(top + "/sys/of-the-image", "x")
    # What must be harmless.
    write(top + "/opt/everybody", "as it was", 0o666)
    os.makedirs(top + "/opt/everybodys-dir")
    os.chmod(top + "/opt/everybodys-dir", 0o1777)
    copy("/usr/bin/id", top, "/opt/suid-id")
    os.chmod(top + "/opt/suid-id", 0o6755)
    os.mknod(top + "/opt/zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    os.mkfifo(top + "/opt/fifo", 0o666)
    # A package.
    write(top + SITE + "/imagepkg/__init__.py", "VALUE = 42\n")
    compile_all(top, SITE + "/imagepkg")


def compile_all(top, *folders):
    subprocess.run(["chroot", top, "/usr/bin/" + VERSION, "-m", "compileall", "-q", *folders], check=True)


# ---- OCI layouts ----

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


class Layout:
    """An OCI layout in the making."""

    def __init__(self, path):
        self.path = path
        os.makedirs(os.path.join(path, "blobs", "sha256"))
        write(os.path.join(path, "oci-layout"), '{"imageLayoutVersion": "1.0.0"}')

    def blob(self, data, kind, **more):
        digest = hashlib.sha256(data).hexdigest()
        with open(os.path.join(self.path, "blobs", "sha256", digest), "wb") as f:
            f.write(data)
        return dict(mediaType=kind, digest="sha256:" + digest, size=len(data), **more)

    def document(self, value, kind, **more):
        return self.blob(json.dumps(value).encode(), kind, **more)

    def image(self, layers, architecture="amd64", config=None, **more):
        """Layers are (bytes of a tar, compression or ""). `config`: what it says of how to start it."""
        packed = []
        for data, how in layers:
            if how == "gzip":
                data = gzip.compress(data, 1)
            elif how == "zstd":
                data = subprocess.run(["zstd", "-1", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
            packed.append(self.blob(data, LAYER + ("+" + how if how else "")))
        document = {"os": "linux", "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(data).hexdigest() for data, _ in layers]}}
        config = self.document(dict(document, config=config) if config else document, CONFIG)
        return self.document({"schemaVersion": 2, "config": config, "layers": packed}, MANIFEST, **more)

    def index(self, *images):
        with open(os.path.join(self.path, "index.json"), "w") as f:
            json.dump({"schemaVersion": 2, "manifests": list(images)}, f)
        return self.path


def tar(*folders, changes=()):
    """A tar of `folders` (a directory as the root, another one over it, ..) and (name, content) of `changes`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for folder in folders:
            t.add(folder, arcname=".")
        for name, content in changes:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o755
            t.addfile(info, io.BytesIO(content))
    return out.getvalue()
