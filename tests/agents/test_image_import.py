# SPDX-License-Identifier: Apache-2.0
"""`weir image`: every source that an image may come from, honest and hostile; what is written, what is refused, and that a death in the middle leaves nothing that counts."""
import bz2
import fcntl
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
import threading
import time
import unittest

from fixture import Agents, app_tar, base, make_layout, run_weir
from image_roots import INDEX, VERSION, Layout, make_commands, tar, write
from lib import SLOW, TOP, WEIR, Service, weir

UID_IMAGE = 0x70000004
REF = "org.opencontainers.image.ref.name"
# What is asked says this much of itself; a program that only says it is quicker to bring in than the real one.
PYTHON = json.dumps({"version": "3.11.2", "executable": "?", "prefix": "/usr", "stdlib": "/usr/lib/python3.11", "platlib": "/usr/lib/python3.11", "site": "/usr/lib/python3/dist-packages"})
SAYS_SO = "#!/bin/sh\necho '%s'\n" % PYTHON
top = small = None  # a folder for everything; the small image as a tar


def setUpModule():
    global top, small
    top = tempfile.mkdtemp(prefix="weir-test-import-")
    os.chmod(top, 0o755)
    make_commands(top + "/small", "/usr/bin/sh")
    write(top + "/small/usr/bin/python3", SAYS_SO, 0o755)
    small = tar(top + "/small")


def tearDownModule():
    shutil.rmtree(top)


def make_directory(path, files):
    """The small image as a directory, and files in it."""
    subprocess.run(["cp", "-a", top + "/small", path], check=True)
    for name, content in files.items():
        write(path + name, content)
    return path


def sha(data):
    return hashlib.sha256(data).hexdigest()


def entry(name, kind=tarfile.REGTYPE, content=b"", mode=0o644, link="", pax=None, **more):
    """One member of a tar, as strange as one likes."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode, info.linkname = kind, len(content), mode, link
    info.pax_headers = pax or {}
    for key, value in more.items():
        setattr(info, key, value)
    return info, content


def layer(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as t:
        for info, content in entries:
            t.addfile(info, io.BytesIO(content))
    return out.getvalue()


def base_tar():
    with open(base()[1], "rb") as f:
        return f.read()


def zstd(data):
    return subprocess.run(["zstd", "-1", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


def sparse(name, size, at):
    """A file of `size` bytes with one byte of content, as GNU tar writes it."""
    pax = {"major": "0", "minor": "1", "name": name, "size": str(size), "numblocks": "1", "map": "%d,1" % at}
    return entry(name, content=b"x", pax={"GNU.sparse." + key: value for key, value in pax.items()})


def config_of(layers, **config):
    return {"os": "linux", "architecture": "amd64", "config": config, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(data) for data in layers]}}


def save(path, images, style="new", mode="w", change=None):
    """What `docker save` writes: images are (tags, layers, configuration or None). `change` alters the members, a dictionary by name."""
    members, manifest = {}, []
    for tags, layers, config in images:
        text = json.dumps(config or config_of(layers)).encode()
        name = ("blobs/sha256/%s" if style == "new" else "%s.json") % sha(text)
        members[name] = text
        paths = []
        for i, data in enumerate(layers):
            if style == "new":
                paths.append("blobs/sha256/" + sha(data))
                members[paths[-1]] = data
                continue
            ident = sha(b"%d" % i + data)
            paths.append(ident + "/layer.tar")
            members[ident + "/VERSION"] = b"1.0"
            members[ident + "/json"] = b"{}"
            twin = next((n for n, d in members.items() if d == data and n != paths[-1]), None)
            members[paths[-1]] = ("link", "../" + twin) if twin else data
        manifest.append({"Config": name, "RepoTags": tags, "Layers": paths})
    members["manifest.json"] = json.dumps(manifest).encode()
    if style == "old":
        members["repositories"] = b"{}"
    if change:
        change(members)
    with tarfile.open(path, mode) as t:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(data, tuple):
                info.type, info.linkname, data = tarfile.SYMTYPE, data[1], b""
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return path


class State(unittest.TestCase):
    """A state directory of its own, and one folder to make things in."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=top)
        os.chmod(self.folder, 0o755)
        self.state = self.folder + "/state"
        self.addCleanup(shutil.rmtree, self.folder)

    def image(self, *args, status=0, **more):
        """Runs the command: what it printed. `more`: its standard input, as subprocess.run() takes it."""
        done = subprocess.run([WEIR, "image", *args, "--state-dir", self.state], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120 * SLOW, **more)
        self.said = done.stderr.decode("utf-8", "replace")
        self.assertEqual(done.returncode, status, self.said)
        return done.stdout.decode()

    def bring(self, *args, **more):
        """Imports; the entry as --json tells it."""
        return json.loads(self.image("import", *args, "--json", **more))

    def rows(self):
        return json.loads(self.image("ls", "--json"))["images"]

    def root(self, digest):
        return os.path.join(self.state, "images", digest.replace("sha256:", ""))

    def content(self, digest, path):
        with open(self.root(digest) + path) as f:
            return f.read()

    def unpacked(self):
        folder = self.state + "/images"
        return sorted(n for n in os.listdir(folder) if n != ".lock") if os.path.exists(folder) else []

    def refused(self, source, words, *options, **more):
        """It fails with these words, and leaves everything as it was."""
        before = self.unpacked(), self.table()
        self.image("import", source, *options, status=1, **more)
        self.assertRegex(self.said, words)
        self.assertEqual((self.unpacked(), self.table()), before)
        self.assertFalse(os.path.exists(self.folder + "/evil") or os.path.exists(self.state + "/evil") or os.path.exists(self.state + "/images/evil") or os.path.exists("/evil"))

    def table(self):
        try:
            with open(self.state + "/images.json") as f:
                return f.read()
        except FileNotFoundError:
            return None


class Sources(State):
    """One image, brought in every way: the same files, its own digest, names and environment."""

    CONFIG = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONPATH=/app", "API_KEY=k-123", "DATABASE_URL=postgres://u:pw@db/x", "SANDBOX_TOKEN=t"], "WorkingDir": "/app/"}

    @classmethod
    def setUpClass(cls):
        cls.layers = [small, app_tar({"app.py": "VALUE = 1\n", "old.txt": "x"}), layer(entry("app/.wh.old.txt"), entry("app/new.txt", content=b"new"))]
        cls.config = config_of(cls.layers, **cls.CONFIG)

    def check(self, got, kind, name, digest=None):
        self.assertEqual((got["kind"], got["names"], got["fresh"]), (kind, [name], True), got)
        if digest:
            self.assertEqual(got["digest"], "sha256:" + digest)
        self.assertEqual(self.content(got["digest"], "/app/app.py"), "VALUE = 1\n")
        self.assertEqual(self.content(got["digest"], "/app/new.txt"), "new")
        self.assertFalse(os.path.exists(self.root(got["digest"]) + "/app/old.txt"))
        self.assertEqual(got["python"], {"version": "3.11.2", "executable": "/usr/bin/python3", "site": "/usr/lib/python3/dist-packages"})
        self.assertGreaterEqual(got["entries"], 10)
        self.assertGreater(got["bytes"], 1 << 20)
        self.assertEqual(self.unpacked(), [got["digest"][7:]])
        if kind != "directory":
            self.assertEqual(got["workdir"], "/app")
            self.assertEqual(got["variables"], {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": "/app"})
            self.assertEqual(got["withheld"], ["API_KEY", "DATABASE_URL", "SANDBOX_TOKEN"])
            self.assertIn("not given to tools, since they look like credentials or are the platform's own: API_KEY, DATABASE_URL, SANDBOX_TOKEN", self.said)
            self.assertNotIn("modules with tools are found in", self.said)
            self.assertNotIn("k-123", self.said + self.table())
            self.assertNotIn("pw@", self.said + self.table())

    def layout(self, name="2", how=("", "gzip", "zstd" if shutil.which("zstd") else "gzip")):
        made = Layout(self.folder + "/weather")
        image = made.image(list(zip(self.layers, how)), config=self.CONFIG)
        made.index(dict(image, annotations={REF: name}))
        return made.path, image["digest"][7:]

    def test_layout(self):
        path, digest = self.layout()
        self.check(self.bring(path), "oci-layout", "weather:2", digest)

    def test_layout_of_several(self):
        made = Layout(self.folder + "/weather")
        one = made.image([(self.layers[0], "")], config={})
        two = made.image([(data, "") for data in self.layers], config=self.CONFIG)
        nested = made.document({"schemaVersion": 2, "manifests": [two]}, INDEX)
        made.index(dict(one, annotations={REF: "one"}), dict(nested, annotations={REF: "team/two:3"}))
        self.refused(made.path, "the layout holds 2 images: add : and one of one, team/two:3")
        self.refused(made.path + ":three", 'no image "three" in the layout; it has: one, team/two:3')
        # The pinned digest is the manifest's, not the index's; a whole name needs nothing of the directory's.
        self.check(self.bring(made.path + ":team/two:3"), "oci-layout", "team/two:3", two["digest"][7:])

    def test_oci_archives(self):
        path, digest = self.layout()
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as t:
            t.add(path, arcname=".")
        packed = {"": plain.getvalue(), ".gz": gzip.compress(plain.getvalue(), 1), ".bz2": bz2.compress(plain.getvalue(), 1), ".xz": lzma.compress(plain.getvalue(), preset=0)}
        if shutil.which("zstd"):
            packed[".zst"] = zstd(plain.getvalue())
        for ending, data in packed.items():
            with self.subTest(ending):
                archive = self.folder + "/weather.tar" + ending
                with open(archive, "wb") as f:
                    f.write(data)
                self.check(self.bring(archive), "oci-archive", "weather:2", digest)
                self.image("rm", digest[:12])

    def test_docker_archives(self):
        digest = sha(json.dumps(self.config).encode())
        for style in ("new", "old"):
            with self.subTest(style):
                path = save(self.folder + "/saved.tar", [(["r.example:5000/weather:2", "weather:latest"], self.layers, self.config)], style)
                self.check(self.bring(path), "docker-archive", "r.example:5000/weather:2", digest)
                self.image("rm", digest[:12])

    def test_docker_archive_with_a_layout_in_it(self):
        """Newer versions write both: then it is what docker calls it."""
        config = json.dumps(self.config).encode()

        def both(members):
            members["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
            members["index.json"] = b'{"manifests": []}'

        path = save(self.folder + "/saved.tar", [(["weather:2"], self.layers, self.config)], change=both)
        self.check(self.bring(path), "docker-archive", "weather:2", sha(config))

    def test_docker_archive_with_shared_and_compressed_layers(self):
        """One layer twice, by a link; layers that a registry's cache has compressed are checked against what they are unpacked."""
        layers = [self.layers[0], self.layers[1], self.layers[2], self.layers[2]]
        path = save(self.folder + "/saved.tar", [(["weather:2"], layers, config_of(layers, **self.CONFIG))], "old")
        with tarfile.open(path) as t:
            self.assertEqual([m.linkname for m in t if m.issym()], ["../%s/layer.tar" % sha(b"2" + layers[2])])
        self.check(self.bring(path), "docker-archive", "weather:2")
        self.image("rm", "weather:2")

        def compress(members):
            for n, name in enumerate(sorted(m for m in members if m.startswith("blobs") and len(members[m]) > 2000)):
                members[name] = gzip.compress(members[name], 1) if n % 2 == 0 or not shutil.which("zstd") else zstd(members[name])

        path = save(self.folder + "/saved.tar", [(["weather:2"], self.layers, self.config)], change=compress)
        self.check(self.bring(path), "docker-archive", "weather:2", sha(json.dumps(self.config).encode()))

    def test_one_of_several_saved(self):
        path = save(self.folder + "/two.tar", [(["weather:1", "other:1"], self.layers[:1], None), (["weather:2"], self.layers, self.config)], "old")
        self.refused(path, "the archive holds 2 images: add : and one of weather:1, other:1, weather:2")
        self.refused(path + ":weather:3", 'no image "weather:3" in the archive; it has: weather:1, other:1, weather:2')
        self.refused(path + ":1:", "there is no file and no directory|no image")
        self.check(self.bring(path + ":2"), "docker-archive", "weather:2")
        self.assertEqual(self.bring(path + ":other:1")["names"], ["other:1"])

    def test_from_a_pipe(self):
        path = save(self.folder + "/saved.tar", [(["weather:2"], self.layers, self.config)], "old", mode="w:gz")
        with open(path, "rb") as f:
            self.check(self.bring("-", input=f.read()), "docker-archive", "weather:2")
        with open(path, "rb") as f:  # and a file, which can be read twice
            self.assertFalse(self.bring("-", stdin=f)["fresh"])

    def test_directory(self):
        path = make_directory(self.folder + "/root", {"/app/app.py": "VALUE = 1\n", "/app/new.txt": "new"})
        self.check(self.bring(path), "directory", "root")
        self.assertIn("modules with tools are found in /usr/lib/python3/dist-packages, and from / on (/app/x.py as app.x)", self.said)
        self.assertEqual(self.rows()[0]["variables"], {})
        # As an image of a service it would have the same content.
        self.assertEqual(subprocess.run(["diff", "-r", "--no-dereference", path, self.root(self.rows()[0]["digest"])], stdout=subprocess.PIPE, text=True).stdout, "")


class Again(State):
    """The same image a second time, another one under a name that is taken."""

    def setUp(self):
        super().setUp()
        self.path = save(self.folder + "/weather.tar", [(["weather:2"], [small], None)])

    def test_it_is_quick_and_adds_a_name(self):
        started = time.monotonic()
        first = self.bring(self.path)
        took = time.monotonic() - started
        before = os.stat(self.root(first["digest"]))
        started = time.monotonic()
        second = self.bring(self.path, "--name", "team/weather")
        again = time.monotonic() - started
        self.assertEqual((second["digest"], second["fresh"], second["names"]), (first["digest"], False, ["weather:2", "team/weather"]))
        self.assertLess(again, took + 0.2 * SLOW)
        self.assertEqual(os.stat(self.root(first["digest"])).st_ctime_ns, before.st_ctime_ns)
        self.assertEqual(self.bring(self.path)["names"], ["weather:2", "team/weather"])
        self.assertEqual({**first, "fresh": False}, {**self.bring(self.path), "names": ["weather:2"]})

    def test_a_name_goes_to_the_newest(self):
        old = self.bring(self.path)["digest"]
        new = self.bring(save(self.folder + "/weather.tar", [(["weather:2"], [small, app_tar({"x": "y"})], None)]))["digest"]
        self.assertIn("the name weather:2 was sha256:%s's until now" % old[7:19], self.said)
        self.assertEqual([(row["digest"], row["names"]) for row in self.rows()], [(old, []), (new, ["weather:2"])])

    def test_names(self):
        rows = [
            (None, "saved.tar", "saved"),
            (None, "my image (2).tar.gz", "my-image--2"),
            (None, ".hidden.tar.xz", "hidden"),
            (None, "-.tar", None),
            (None, "deadbeefdeadbeef.tar", None),
            (["weather:2"], "x.tar", "weather:2"),
            (["Odd Name:2"], "x.tar", "x"),
            (["no-tag"], "x.tar", "no-tag"),
            (["w" * 127], "x.tar", "w" * 127),
            (["w" * 200 + ":1"], "x.tar", "x"),
        ]
        for n, (tags, file, name) in enumerate(rows):
            with self.subTest(file=file, tags=tags):
                got = self.bring(save(self.folder + "/" + file, [(tags, [small], None)], mode="w:" + (file[-2:] if file[-2:] in ("gz", "xz") else "")))
                self.assertEqual("it has no name yet" in self.said, name is None, self.said)
                if name:
                    self.assertIn(name, got["names"])
                self.image("rm", got["digest"])
                self.assertEqual(self.rows(), [])
        for name in ("", "a b", "../x", "sha256:abc", "a" * 128, "0123456789ab", "/x", "x/", "caf\u00e9"):
            self.image("import", self.path, "--name", name, status=64)
            self.assertIn("is not a name", self.said)

    def test_text(self):
        out = self.image("import", self.path)
        self.assertRegex(out, r"\Aweather:2  sha256:[0-9a-f]{64}\n\Z")
        self.assertRegex(self.said, r"weir: imported: Python 3\.11\.2 \(/usr/bin/python3\), [0-9.]+ MiB in \d+ entries\n")
        out = self.image("import", self.path)
        self.assertIn("it was there already", self.said)
        out = self.image("ls").splitlines()
        self.assertRegex(out[0], "^NAMES +DIGEST +PYTHON +SIZE +IMPORTED \\(UTC\\) +AGENTS$")
        self.assertRegex(out[1], r"^weather:2  [0-9a-f]{12}  3\.\d+\.\d+ +[0-9.]+ MiB  20\d\d-\d\d-\d\d \d\d:\d\d  -$")
        self.assertRegex(self.image("rm", "weather:2"), r"\Asha256:[0-9a-f]{12} is removed \([0-9.]+ MiB\)\n\Z")
        self.assertEqual(self.image("ls"), "")
        self.assertIn("no images in %s; `weir image import PATH --state-dir %s` brings one in" % (self.state, self.state), self.said)

    def test_files_that_are_gone_are_brought_in_again(self):
        digest = self.bring(self.path, "--name", "mine")["digest"]
        shutil.rmtree(self.root(digest))
        self.assertEqual(self.rows()[0]["present"], False)
        self.image("ls")
        self.assertIn("are not in %s/images any more: import it again" % self.state, self.said)
        got = self.bring(self.path)
        self.assertEqual((got["digest"], got["fresh"], got["names"]), (digest, True, ["mine", "weather:2"]))
        self.assertTrue(os.path.exists(self.root(digest) + "/usr/bin/python3"))

    def test_one_that_a_service_has_unpacked(self):
        """It has a directory, but stands in no table: it is looked at, not unpacked again."""
        made = Layout(self.folder + "/layout")
        made.index(dict(made.image([(base_tar(), "")], config={}), annotations={REF: "1"}))
        self.image("ls")
        os.mkdir(self.state, 0o700)
        self.assertEqual(weir("run", "--image", made.path, "--state-dir", self.state, "-c", "print(1)").stdout, b"1\n")
        (digest,) = self.unpacked()
        before = os.stat(self.root(digest)).st_ctime_ns
        got = self.bring(made.path)
        self.assertEqual((got["digest"], os.stat(self.root(digest)).st_ctime_ns), ("sha256:" + digest, before))
        self.assertGreater(got["entries"], 300)
        self.assertGreater(got["bytes"], 10 << 20)
        self.assertEqual(len(self.rows()), 1)


class Directories(State):
    """A directory's digest is one of its content; what only its owner may read stays out."""

    def make(self, name="root"):
        return make_directory(self.folder + "/" + name, {"/app/a.py": "A = 1\n", "/app/b.py": "B = 1\n"})

    def test_the_same_tree_has_the_same_digest(self):
        path = self.make()
        digest = self.bring(path)["digest"]
        subprocess.run(["cp", "-r", path, self.folder + "/copy"], check=True)  # other times, other inodes, other order
        os.chown(self.folder + "/copy/app/a.py", 1234, 1234)
        os.chmod(self.folder + "/copy/app/a.py", 0o604)
        self.assertEqual(self.bring(self.folder + "/copy")["digest"], digest)
        self.assertEqual(self.rows()[0]["names"], ["root", "copy"])

    def test_any_other_has_another(self):
        path = self.make()
        seen = {self.bring(path)["digest"]}

        def fresh(*command):
            subprocess.run(["sh", "-c", *command], cwd=path, check=True)
            digest = self.bring(path)["digest"]
            self.assertNotIn(digest, seen, command)
            seen.add(digest)

        fresh("echo 'A = 2' > app/a.py")
        fresh("chmod +x app/a.py")
        fresh("mv app/a.py app/c.py")
        fresh("mkdir app/d")
        fresh("ln -s /app/c.py app/d/l")
        fresh("ln -sf /app/b.py app/d/l")
        fresh("mv app/d/l app/l")
        fresh("rm app/l; touch app/l")

    def test_what_is_closed_to_others_stays_out(self):
        path = self.make()
        write(path + "/etc/shadow", "secret", 0o640)
        write(path + "/root/.ssh/id", "secret", 0o644)
        os.chmod(path + "/root", 0o700)
        write(path + "/opt/list/x", "secret", 0o644)
        os.chmod(path + "/opt/list", 0o744)  # names can be read, but nobody gets at what has them
        os.mkfifo(path + "/opt/pipe")
        os.mknod(path + "/opt/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        got = self.bring(path)
        self.assertIn("left out: 2 device(s), pipe(s) or socket(s)", self.said)
        self.assertIn("left out: 3 file(s) or directories that only their owner may read (the first: etc/shadow)", self.said)
        self.assertEqual(got["left_out"], 5)
        for name in ("etc/shadow", "root", "opt/list/x", "opt/pipe", "opt/null"):
            self.assertFalse(os.path.lexists(self.root(got["digest"]) + "/" + name), name)

    def test_modes_and_links(self):
        path = self.make()
        shutil.copy(path + "/usr/bin/sh", path + "/opt-id")
        os.chmod(path + "/opt-id", 0o6755)
        write(path + "/open", "x", 0o666)
        os.symlink("/etc/shadow", path + "/away")
        os.symlink("../../../..", path + "/up")
        os.symlink("loop", path + "/loop")
        with open(path + "/app/.wh.a.py", "w"):
            pass
        with open(path.encode() + b"/odd\xff\n", "w"):
            pass
        with open(path + "/sparse", "w") as f:
            f.truncate(64 << 20)
        os.setxattr(path + "/open", "user.x", b"y")
        root = self.root(self.bring(path)["digest"])
        self.assertEqual(stat.S_IMODE(os.stat(root + "/opt-id").st_mode), 0o755)
        self.assertEqual(stat.S_IMODE(os.stat(root + "/open").st_mode), 0o644)
        self.assertEqual(os.listxattr(root + "/open"), [])
        self.assertEqual((os.readlink(root + "/away"), os.readlink(root + "/up"), os.readlink(root + "/loop")), ("/etc/shadow", "../../../..", "loop"))
        self.assertTrue(os.path.exists(root + "/app/a.py") and os.path.exists(root + "/app/.wh.a.py"))
        self.assertTrue(os.path.exists(root.encode() + b"/odd\xff\n"))
        self.assertEqual((os.stat(root + "/sparse").st_size, os.stat(root + "/sparse").st_blocks), (64 << 20, 0))
        self.assertEqual(os.stat(root + "/app/b.py").st_mtime_ns, os.stat(path + "/app/b.py").st_mtime_ns)

    def test_refused(self):
        self.refused("/", "is the host's own root")
        self.refused("/.", "is the host's own root")
        self.refused(self.folder + "/none", "there is no file and no directory")
        self.refused("/dev/null", "is neither a file nor a directory")
        path = self.make()
        self.refused(path + ":2", "is no OCI image layout .*, so there is no \"2\" in it")
        deep = self.folder + "/deep"
        os.mkdir(deep)
        here = os.open(deep, os.O_RDONLY)
        for _ in range(2000):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        self.refused(deep, "directories in each other deeper than 128")
        subprocess.run(["rm", "-r", deep], check=True)
        os.mkdir(self.folder + "/empty")
        self.refused(self.folder + "/empty", "no python3 and no python in the image: looked in its PATH")
        os.chmod(path, 0o700)
        self.refused(path, r"open the directory \(chmod -R a\+rX it")

    def test_one_that_changes_meanwhile(self):
        """Read once for the digest and once for the image: what is unpacked is what was digested, or nothing is."""
        path = self.make()
        with open(path + "/big", "wb") as f:
            for _ in range(100):
                f.write(os.urandom(1 << 20))
        stop = threading.Event()

        def write_on():
            n = 0
            while not stop.is_set():
                n += 1
                write(path + "/app/next", str(n))
                os.rename(path + "/app/next", path + "/app/changing")

        writer = threading.Thread(target=write_on)
        writer.start()
        try:
            self.refused(path, "changed while it was read|app/next: No such file|open app/next|look at app/next")
        finally:
            stop.set()
            writer.join()


class Interpreters(State):
    def venv(self, path="/opt/venv", names=("python3", "python")):
        """Layers with a virtual environment, as `python -m venv` makes it, and a package that only it has."""
        lib = "%s/lib/%s/site-packages" % (path, VERSION)
        entries = [entry(path[1:] + "/pyvenv.cfg", content=b"home = /usr/bin\ninclude-system-site-packages = false\nversion = %s.2\n" % VERSION[6:].encode())]
        entries += [entry("%s/bin/%s" % (path[1:], n), tarfile.SYMTYPE, link="/usr/bin/python3") for n in names]
        entries += [entry(lib[1:] + "/onlyhere.py", content=b"VALUE = 'of the venv'\n")]
        entries += [entry("app/app.py", content=b"import onlyhere, sys\ndef where(): return [onlyhere.VALUE, sys.prefix, sys.base_prefix, sys.executable]\n")]
        return [base_tar(), layer(*entries)]

    def bring_config(self, layers, **config):
        return self.bring(save(self.folder + "/x.tar", [(["x:1"], layers, config_of(layers, **config))]))

    def test_a_virtual_environment_on_the_path(self):
        got = self.bring_config(self.venv(), Env=["PATH=/nowhere:relative:/opt/venv/bin/:/usr/bin:/bin", "VIRTUAL_ENV=/opt/venv"], WorkingDir="/app")
        self.assertEqual(got["python"]["executable"], "/opt/venv/bin/python3")
        self.assertEqual(got["python"]["site"], "/opt/venv/lib/%s/site-packages" % VERSION)
        # A sandbox of that image starts it by that path, and finds what only it has.
        done = weir("run", "--image", self.root(got["digest"]), "--python", got["python"]["executable"], "-c", "import onlyhere, sys; print(onlyhere.VALUE, sys.prefix, sys.base_prefix)")
        self.assertEqual((done.stdout, done.returncode), (b"of the venv /opt/venv /usr\n", 0), done.stderr)

    def test_tools_run_in_it(self):
        with Agents({"app.py": "def f(): return 1"}) as agents:
            path = save(self.folder + "/x.tar", [(["venv:1"], layers := self.venv(), config_of(layers, Env=["PATH=/opt/venv/bin:/usr/bin:/bin"], WorkingDir="/app"))])
            run_weir("image", "import", path, state=agents.state)
            agents.register("venv", "venv:1", ["app"])
            self.assertEqual(agents.result("app:where", agent="venv"), ["of the venv", "/opt/venv", "/usr", "/opt/venv/bin/python3"])

    def test_order(self):
        """The image's PATH before the usual places, python3 before python in one directory, the next one when one does not answer."""
        says, fails = SAYS_SO.encode(), b"#!/bin/sh\nexit 3\n"
        more = layer(
            entry("a/python3", content=fails, mode=0o755),
            entry("b/python", content=says, mode=0o755),
            entry("c/python3", tarfile.SYMTYPE, link="../usr/bin/python3"),
            entry("c/python", content=b"x", mode=0o755),
            entry("d/python3", tarfile.DIRTYPE, mode=0o755),
            entry("e/python3", tarfile.SYMTYPE, link="/proc/self/exe"),
            entry("f/python3", content=says.replace(b"3.11.2", b"2.7.18"), mode=0o755),
            entry("f/python", content=says, mode=0o755),
        )
        for path, found in (("/a:/b:/c", "/b/python"), ("/c:/b", "/c/python3"), ("/d:/e:/a", "/usr/bin/python3"), ("/f", "/f/python"), ("b:../b::", "/usr/bin/python3")):
            with self.subTest(path):
                self.assertEqual(self.bring_config([small, more], Env=["PATH=" + path])["python"]["executable"], found)
                self.image("rm", "x:1")

    def test_none(self):
        path = save(self.folder + "/x.tar", [(["x:1"], [layer(entry("etc/x"))], None)])
        self.refused(path, r"no python3 and no python in the image: looked in its PATH \(which it does not set\), /usr/local/bin")
        layers = [layer(entry("etc/x"))]
        path = save(self.folder + "/x.tar", [(["x:1"], layers, config_of(layers, Env=["PATH=/opt/py/bin"]))])
        self.refused(path, r"looked in its PATH \(/opt/py/bin\)")
        layers = [small, layer(entry("usr/bin/.wh.python3"), entry("usr/bin/python3", content=b"#!/bin/sh\necho no such thing >&2; exit 1\n", mode=0o755))]
        self.refused(save(self.folder + "/x.tar", [(["x:1"], layers, None)]), "/usr/bin/python3 of the image is not a Python that answers to -c with its own layout: no such thing")

    def test_it_is_asked_once(self):
        """Import asks; nothing of the image runs again until a sandbox of it does."""
        script = SAYS_SO.replace("\n", "\necho asked >> /tmp/asked 2>/dev/null\n", 1).encode()
        layers = [small, layer(entry("usr/local/bin/python3", content=script, mode=0o755))]
        got = self.bring(save(self.folder + "/x.tar", [(["x:1"], layers, None)]))
        self.assertEqual(got["python"]["executable"], "/usr/local/bin/python3")
        # Whatever it tried, its root was read-only.
        self.assertFalse(os.path.exists(self.root(got["digest"]) + "/tmp/asked"))


class Hostile(State):
    """What a stranger may put in: refused with words that name it, and nothing is left; or it is harmless."""

    def archive(self, *layers, style="new", change=None, config=None):
        return save(self.folder + "/x.tar", [(["x:1"], list(layers), config)], style, change=change)

    def test_layers_refused(self):
        os.makedirs(self.folder + "/secret")
        up = "../" * 40
        rows = [
            ("up", [entry("../evil", content=b"x")], r"layer 1 of 1: an entry's name leads up: \.\./evil"),
            ("up in the middle", [entry("a/../../../evil", content=b"x")], "leads up"),
            ("up by a whiteout", [entry("../.wh.x")], "leads up"),
            ("hard link up", [entry("h", tarfile.LNKTYPE, link="../../images.json")], "leads up"),
            ("hard link out", [entry("h", tarfile.LNKTYPE, link=TOP + "/Makefile")], "h is a link to a file that is not there"),
            ("hard link through a link", [entry("d", tarfile.SYMTYPE, link=up), entry("h", tarfile.LNKTYPE, link="d/etc/passwd")], "is a link to a file that is not there"),
            ("hard link to a directory", [entry("d", tarfile.DIRTYPE), entry("h", tarfile.LNKTYPE, link="d")], "h is a hard link to something that is no file"),
            ("through a link out", [entry("d", tarfile.SYMTYPE, link=self.folder), entry("d/evil", content=b"x")], "no directory for d/evil: File exists"),
            ("through a loop", [entry("a", tarfile.SYMTYPE, link="b"), entry("b", tarfile.SYMTYPE, link="a"), entry("a/x")], "no directory for a/x: Too many levels of symbolic links"),
            ("a file on the way", [entry("f", content=b"x"), entry("f/x")], "no directory for f/x: Not a directory"),
            ("deep", [entry("d/" * 10000 + "x")], "name is too long or too deep: d/d/d/"),
            ("just too deep", [entry("d/" * 128 + "x")], "too long or too deep"),
            ("a long name", [entry("n" * 256)], "too long or too deep"),
            ("a huge file", [(self.huge(17 << 30), b"")], "the files of the image are over 17179869184 bytes together"),
            ("huge holes", [sparse("s", 1 << 44, 0)], "over 17179869184 bytes together"),
        ]
        for name, entries, words in rows:
            with self.subTest(name):
                if name == "a huge file":
                    data = layer(entry("before"))[:512] + entries[0][0].tobuf(tarfile.GNU_FORMAT)
                else:
                    data = layer(*entries)
                self.refused(self.archive(data), words)

    def huge(self, size):
        info = tarfile.TarInfo("big")
        info.size = size
        return info

    def test_layers_broken(self):
        honest = layer(entry("a", content=b"x" * 5000), entry("b", content=b"y" * 5000))
        packed = gzip.compress(honest)
        for name, data, words in (
            ("no tar", b"no tar at all " * 1000, "layer 1 of 1: a layer is damaged, or no tar archive"),
            ("cut off", honest[:3000], "a layer is damaged"),
            ("cut off in a header", honest[:5700], "a layer is damaged"),
            ("a broken checksum", honest[:150] + b"9" + honest[151:], "a layer is damaged"),
            ("random", bytes(i * 7919 % 251 for i in range(20000)), "a layer is damaged"),
        ):
            with self.subTest(name):
                self.refused(self.archive(data), words)
                made = Layout(tempfile.mkdtemp(dir=self.folder) + "/l")
                os.chmod(os.path.dirname(made.path), 0o755)
                made.index(made.image([(data, "")]))
                self.refused(made.path, words)
        # Compressed: what breaks off is told, not that a digest is wrong.
        for name, data in (("cut off", packed[:-30]), ("changed", packed[:40] + b"\0\0\0\0" + packed[44:])):
            with self.subTest("compressed, " + name):
                made = self.archive(honest, change=lambda m, data=data: m.update({"blobs/sha256/" + sha(honest): data}))
                self.refused(made, "layer 1 of 1: blobs/sha256/[0-9a-f]+ of the archive can't be read|a layer is damaged")

    def test_bombs(self):
        """A gigabyte for a megabyte, and its like: its account is looked at, what is zeros takes no room, and time and memory stay small."""
        before = shutil.disk_usage(self.folder).used
        info = tarfile.TarInfo("zeros")
        info.size = 17 << 30
        head = info.tobuf(tarfile.GNU_FORMAT)
        data = head + bytes(64 << 20)
        started = time.monotonic()
        self.refused(self.archive(data), "the files of the image are over")
        # What is behind the end of an archive is read for its digest, and no file of anybody's.
        honest = layer(entry("x"))
        tail = honest + bytes(64 << 20)
        made = self.archive(tail, change=lambda m: m.update({"blobs/sha256/" + sha(tail): gzip.compress(gzip.compress(tail, 9), 1)}))
        self.assertLess(os.path.getsize(made), 1 << 20)
        self.refused(made, "no python3 and no python in the image")
        # One in the archive itself.
        with tarfile.open(self.folder + "/bomb.tar.gz", "w:gz", compresslevel=1) as t:
            t.addfile(*[(i, io.BytesIO(c)) for i, c in [entry("manifest.json", content=b" " * (5 << 20))]][0])
        self.refused(self.folder + "/bomb.tar.gz", "has no file|open manifest.json|it has no file oci-layout")
        with open(self.folder + "/bomb.tar", "wb") as f:
            f.write(head)
        self.refused(self.folder + "/bomb.tar", "the archive is damaged|no manifest.json|the files of the archive are over")
        self.assertLess(time.monotonic() - started, 60 * SLOW)
        self.assertLess(shutil.disk_usage(self.folder).used - before, 400 << 20)

    def test_many_entries(self):
        """As many members as an archive may have, and one more."""
        path = self.folder + "/many.tar"
        block = entry(".", tarfile.DIRTYPE)[0].tobuf(tarfile.USTAR_FORMAT)
        with open(path, "wb") as f:
            f.write(block * 65537 + bytes(1024))
        self.refused(path, "the archive has more than 65536 entries")

    def test_documents(self):
        honest = [layer(entry("x"))]
        config = json.dumps(config_of(honest)).encode()
        name = "blobs/sha256/" + sha(config)
        first = "blobs/sha256/" + sha(honest[0])

        def manifest(**fields):
            return lambda m: m.update({"manifest.json": json.dumps([dict({"Config": name, "RepoTags": ["x:1"], "Layers": [first]}, **fields)]).encode()})

        def set_(member, data):
            return lambda m: m.update({member: data})

        def drop(member):
            return lambda m: m.pop(member)

        def configured(**config):
            text = json.dumps(config).encode()
            return lambda m: (m.update({"c.json": text}), manifest(Config="c.json")(m))

        machine = {"os": "linux", "architecture": "amd64"}
        diffs = {"diff_ids": ["sha256:" + sha(honest[0])]}
        rows = [
            ("10,000 layers", manifest(Layers=[first] * 10000), "no list of layers, or more than 256 of them"),
            ("no layers", manifest(Layers=None), "no list of layers"),
            ("a layer that is not there", manifest(Layers=["blobs/sha256/" + "0" * 64]), "layer 1 of 1: open blobs/sha256/0+ of the archive: No such file"),
            ("a layer above", manifest(Layers=["../../etc/passwd"]), r'has the layer "\.\./\.\./etc/passwd": not the name of a file in it'),
            ("a layer of the host", manifest(Layers=["/etc/passwd"]), 'has the layer "/etc/passwd": not the name'),
            ("a layer that leads out", lambda m: (m.update({"l": ("link", "/etc/passwd")}), manifest(Layers=["l"])(m)), "layer 1 of 1: open l of the archive: No such file"),
            ("a layer that leads to its own output", lambda m: (m.update({"l": ("link", "../out")}), manifest(Layers=["l"])(m)), "open l of the archive: No such file"),
            ("a layer in a loop", lambda m: (m.update({"l": ("link", "l")}), manifest(Layers=["l"])(m)), "open l of the archive: Too many levels"),
            ("a directory as a layer", manifest(Layers=["blobs"]), "blobs of the archive is no file"),
            ("another layer", set_(first, layer(entry("y"))), "layer 1 of 1: blobs/sha256/[0-9a-f]+ of the archive does not have the content that the configuration states"),
            ("no configuration", drop(name), "open blobs/sha256/[0-9a-f]+ of the archive: No such file"),
            ("another configuration", set_(name, config + b" "), "blobs/sha256/[0-9a-f]+ of the archive does not have the content of that digest"),
            ("a configuration that leads out", lambda m: (m.update({"c.json": ("link", "/etc/passwd")}), manifest(Config="c.json")(m)), "open c.json of the archive: No such file"),
            ("no JSON", set_("manifest.json", b"{"), "the image's manifest.json is not JSON: line 1"),
            ("nested JSON", set_("manifest.json", b"[" * 100000), "the image's manifest.json is not JSON"),
            ("a large one", set_("manifest.json", b" " * (4 << 20) + b"[]x"), "it has no file oci-layout and no manifest.json"),
            ("an object", set_("manifest.json", b"{}"), "is not a JSON list"),
            ("no image", set_("manifest.json", b"[]"), "names no image"),
            ("control characters", manifest(Config="\x1b[31mc\n"), r'has the configuration|open \?\[31mc\? of the archive'),
            ("another machine", configured(os="linux", architecture="arm64", rootfs=diffs), "the image is for linux/arm64; this machine runs linux/amd64"),
            ("no machine", configured(rootfs=diffs), "this machine runs linux/amd64"),
            ("fewer digests", configured(rootfs={"diff_ids": []}, **machine), "manifest.json has 1 layers, the image's configuration 0"),
            ("no digests", configured(**machine), "manifest.json has 1 layers, the image's configuration 0"),
            ("a digest that is none", configured(rootfs={"diff_ids": ["sha256:../x"]}, **machine), "diff_id 1 of the image's configuration"),
            ("a variable that is none", configured(rootfs=diffs, config={"Env": ["X"]}, **machine), 'entry 1 of the image\'s Env is "X", not NAME=VALUE'),
            ("a variable with a newline in its name", configured(rootfs=diffs, config={"Env": ["A=1", "X\nY=1"]}, **machine), "entry 2 of the image's Env"),
            ("too many variables", configured(rootfs=diffs, config={"Env": ["X%d=%s" % (i, "v" * 1000) for i in range(17)]}, **machine), "the image's Env is over 16384 bytes"),
            ("a working directory above", configured(rootfs=diffs, config={"WorkingDir": "/../etc"}, **machine), 'WorkingDir is "/../etc"'),
            ("a relative one", configured(rootfs=diffs, config={"WorkingDir": "app"}, **machine), 'WorkingDir is "app"'),
        ]
        for what, change, words in rows:
            with self.subTest(what):
                self.refused(self.archive(*honest, change=change), words)

    def test_layouts(self):
        honest = layer(entry("x"))

        def made(change=lambda l: None, **more):
            l = Layout(tempfile.mkdtemp(dir=self.folder) + "/l")
            os.chmod(os.path.dirname(l.path), 0o755)
            l.index(dict(l.image([(honest, "")], **more)))
            change(l.path)
            return l.path

        def blob(path, kind):
            return next(os.path.join(path, "blobs/sha256", n) for n in os.listdir(path + "/blobs/sha256") if (b"layers" in open(path + "/blobs/sha256/" + n, "rb").read(4000)) == (kind == "manifest"))

        index = {"mediaType": INDEX, "size": 1}
        rows = [
            ("no index", lambda p: os.unlink(p + "/index.json"), "open index.json of the layout: No such file"),
            ("a blob that is missing", lambda p: shutil.rmtree(p + "/blobs/sha256"), "open blobs/sha256/[0-9a-f]+.* of the layout: No such file"),
            ("a version", lambda p: write(p + "/oci-layout", '{"imageLayoutVersion": "2.0.0"}'), 'version is "2.0.0", not 1.0.0'),
            ("an index in itself", lambda p: self.loop(p), "nested deeper than 4|does not have the content of that digest|is not a file of"),
            ("an index above", lambda p: write(p + "/index.json", json.dumps({"manifests": [dict(digest="sha256:../../../../etc/passwd", **index)]})), "not sha256: and 64 hexadecimal digits"),
            ("a blob that leads out", lambda p: self.replace_blob(p), "No such file|is not a file of"),
        ]
        for what, change, words in rows:
            path = made(change)
            with self.subTest(what):
                self.refused(path, words)
                archive = self.folder + "/x.tar"
                with tarfile.open(archive, "w") as t:
                    t.add(path, arcname="")
                self.refused(archive, words)
        # Only one's owner may read it: that is said, and what mends it.
        path = made(lambda p: os.chmod(p + "/index.json", 0o600))
        self.refused(path, r"open index.json of the layout \(chmod -R a\+rX the layout\): Permission denied")
        path = made(lambda p: None, architecture="arm64")
        self.refused(path, "the image is for linux/arm64")

    def loop(self, path):
        with open(path + "/index.json") as f:
            text = f.read()
        for _ in range(6):
            digest = sha(text.encode())
            write(path + "/blobs/sha256/" + digest, text)
            text = json.dumps({"manifests": [{"mediaType": INDEX, "digest": "sha256:" + digest, "size": len(text)}]})
        write(path + "/index.json", text)

    def replace_blob(self, path):
        for name in os.listdir(path + "/blobs/sha256"):
            os.unlink(path + "/blobs/sha256/" + name)
            os.symlink("/etc/passwd", path + "/blobs/sha256/" + name)

    def test_archives_refused(self):
        for what, data, words in (
            ("empty", b"", "it has no file oci-layout and no manifest.json"),
            ("no archive", b"what is this\n" * 100, "the archive is damaged, or no tar archive"),
            ("a gzip of nothing", gzip.compress(b""), "it has no file oci-layout and no manifest.json"),
            ("a root directory", layer(entry("usr/bin/python3")), r"\(`docker export`\) are unpacked first"),
            ("names that lead up", layer(entry("../manifest.json", content=b"[]")), "an entry's name leads up: ../manifest.json"),
            ("cut off", layer(entry("manifest.json", content=b"[]" * 5000))[:3000], "the archive is damaged"),
            ("a zip", b"PK\3\4" + bytes(2000), "the archive is damaged"),
        ):
            with self.subTest(what):
                path = self.folder + "/x.tar"
                with open(path, "wb") as f:
                    f.write(data)
                self.refused(path, words)
                self.refused("-", words, input=data)

    def test_members_that_lead_out(self):
        """Links in the archive itself: followed inside, or nowhere."""
        write(self.folder + "/host.json", json.dumps([{"Config": "c", "RepoTags": [], "Layers": []}]))
        out = layer(entry("d", tarfile.SYMTYPE, link=self.folder), entry("manifest.json", tarfile.SYMTYPE, link="d/host.json"))
        with open(self.folder + "/x.tar", "wb") as f:
            f.write(out)
        self.refused(self.folder + "/x.tar", "no file oci-layout and no manifest.json")
        out = layer(entry("d", tarfile.SYMTYPE, link="/out"), entry("d/evil", content=b"x"), entry("manifest.json", content=b"[]"))
        with open(self.folder + "/x.tar", "wb") as f:
            f.write(out)
        self.refused(self.folder + "/x.tar", "no directory for d/evil: File exists|names no image")

    def test_harmless(self):
        """Strange, and no error: each ends as it would for a program inside."""
        below = layer(entry("etc", tarfile.DIRTYPE), *[entry(name, content=b"1") for name in ("gone/a", "kept", "dir-now-file/x", "file-now-dir")])
        above = layer(
            entry("/absolute", content=b"a"),
            entry("twice", content=b"first", mode=0o755),
            entry("twice", content=b"second"),
            entry("dir-now-file", content=b"file"),
            entry("file-now-dir", tarfile.DIRTYPE),
            entry("file-now-dir/in", content=b"in"),
            entry("up", tarfile.SYMTYPE, link="../" * 30 + "etc"),
            entry("up/through", content=b"t"),
            entry("gone/.wh..wh..opq"),
            entry(".wh.never-was"),
            entry(".wh..."),
            entry("suid", content=b"x", mode=0o6755, uid=0, gid=0),
            entry("sticky", tarfile.DIRTYPE, mode=0o1777),
            entry("private", content=b"x", mode=0),
            entry("cap", content=b"x", mode=0o755, pax={"SCHILY.xattr.security.capability": "\1\0\0\2\0\x20\0\0", "SCHILY.xattr.user.x": "y", "SCHILY.acl.access": "user::rwx"}),
            entry("null", tarfile.CHRTYPE, devmajor=1, devminor=3),
            entry("disk", tarfile.BLKTYPE, devmajor=8, devminor=0),
            entry("pipe", tarfile.FIFOTYPE),
            entry("loop", tarfile.SYMTYPE, link="loop"),
            entry("away", tarfile.SYMTYPE, link="/etc/shadow"),
            entry("odd\udcff\n\x1b[31m", content=b"o"),
            entry("\u00fc\u6f22", content=b"u"),
            entry("same", tarfile.LNKTYPE, link="twice"),
            entry("long/" * 100 + "x", content=b"l"),
            entry("etc/passwd", tarfile.SYMTYPE, link="/etc/shadow"),
            sparse("sparse", 1 << 30, (1 << 30) - 1),
        )
        got = self.bring(self.archive(small, below, above, style="old"))
        root = self.root(got["digest"])
        self.assertEqual(got["left_out"], 3)
        self.assertIn("left out: 3 device(s), pipe(s) or socket(s)", self.said)
        files = {"absolute": "a", "twice": "second", "same": "second", "dir-now-file": "file", "file-now-dir/in": "in", "etc/through": "t", "kept": "1", "long/" * 100 + "x": "l", "\u00fc\u6f22": "u"}
        for path, want in files.items():
            self.assertEqual(self.content(got["digest"], "/" + path), want, path)
        self.assertEqual(os.listdir(root + "/gone"), [])
        self.assertTrue(os.path.exists(root.encode() + b"/odd\xff\n\x1b[31m"))
        modes = {"suid": 0o755, "sticky": 0o755, "private": 0o644, "cap": 0o755, "twice": 0o644}
        self.assertEqual({name: stat.S_IMODE(os.stat(root + "/" + name).st_mode) for name in modes}, modes)
        self.assertEqual(os.listxattr(root + "/cap"), [])
        for name in ("null", "disk", "pipe"):
            self.assertFalse(os.path.lexists(root + "/" + name))
        self.assertEqual((os.stat(root + "/sparse").st_size, os.stat(root + "/sparse").st_blocks < 100), (1 << 30, True))
        self.assertEqual(os.readlink(root + "/away"), "/etc/shadow")
        self.assertFalse(os.path.exists("/etc/through"))
        self.assertEqual(self.rows()[0]["present"], True)
        self.image("rm", "x:1")
        self.assertEqual(self.unpacked(), [])

    def test_what_no_sandbox_can_be_made_of(self):
        """Found here, and not by the first call."""
        link = layer(
            entry("usr/etc/alternatives/python3", content=SAYS_SO.encode(), mode=0o755),
            entry("etc", tarfile.SYMTYPE, link="usr/etc"),
            entry("usr/bin/python3", tarfile.SYMTYPE, link="/etc/alternatives/python3"),
        )
        self.refused(self.archive(small, link), "/usr/bin/python3 is not in the image once our layer is laid over it")
        there = layer(entry("usr/bin/python3", content=SAYS_SO.replace("/usr/lib/python3.11", "/tmp/lib").encode(), mode=0o755))
        self.refused(self.archive(small, there), "/tmp/lib lies in /tmp, where a sandbox has a file system of its own")
        self.assertEqual([n for n in os.listdir("/run/weir") if n.startswith(".try")], [])

    def test_everything_whited_out(self):
        self.refused(self.archive(small, layer(entry(".wh..wh..opq"))), "no python3 and no python in the image")
        self.refused(self.archive(small, layer(entry(".wh.usr"))), "no python3 and no python in the image")


class Child(State):
    """What the process that unpacks can see and do, and what becomes of it."""

    def start(self, *options):
        """An import that waits for more of its archive: (weir, its child's pid)."""
        data = layer(entry("manifest.json", content=b"[]"))[:1024] + self.huge().tobuf(tarfile.GNU_FORMAT) + bytes(1 << 19)
        p = subprocess.Popen([WEIR, "image", "import", "-", "--state-dir", self.state, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(data)
        p.stdin.flush()
        self.addCleanup(lambda: (p.kill(), p.wait(), [f.close() for f in (p.stdin, p.stdout, p.stderr)]))
        child = self.wait_for(lambda: self.confined(p.pid))
        return p, child

    def huge(self):
        info = tarfile.TarInfo("big")
        info.size = 1 << 30
        return info

    def wait_for(self, what):
        deadline = time.monotonic() + 10 * SLOW
        while not (found := what()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return found

    def confined(self, parent):
        """The child once it has given everything up."""
        try:
            with open("/proc/%d/task/%d/children" % (parent, parent)) as f:
                children = f.read().split()
            for pid in children:
                with open("/proc/%s/status" % pid) as f:
                    if "Seccomp:\t2" in f.read():
                        return int(pid)
        except OSError:
            pass
        return None

    def test_it_is_nobody(self):
        p, child = self.start()
        with open("/proc/%d/status" % child) as f:
            status = dict(line.rstrip("\n").split(":", 1) for line in f)
        self.assertEqual(status["Uid"].split(), [str(UID_IMAGE)] * 4)
        self.assertEqual(status["Gid"].split(), [str(UID_IMAGE)] * 4)
        self.assertEqual(status["Groups"].split(), [])
        self.assertEqual({status[k].strip() for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}, {"0000000000000000"})
        self.assertEqual((status["NoNewPrivs"].strip(), status["Seccomp"].strip()), ("1", "2"))
        for space in ("pid", "mnt", "net", "ipc", "uts"):
            self.assertNotEqual(os.readlink("/proc/%d/ns/%s" % (child, space)), os.readlink("/proc/self/ns/" + space), space)
        self.assertEqual(sorted(os.listdir("/proc/%d/root" % child)), ["in", "out"])
        with open("/proc/%d/mountinfo" % child) as f:
            self.assertEqual(sorted(line.split()[4] for line in f), ["/", "/in", "/out"])
        # The archive, the parent, the two directories and files below them; nothing else of the host.
        links = [os.readlink("/proc/%d/fd/%s" % (child, n)) for n in os.listdir("/proc/%d/fd" % child)]
        for link in links:
            self.assertRegex(link, "^(pipe:|socket:|/in|/out|/dev/null$)", links)

    def test_killed_in_the_middle(self):
        """SIGKILL: its child dies too, nothing counts, and the next import clears it away."""
        p, child = self.start()
        self.wait_for(lambda: self.unpacked())
        p.kill()
        p.wait()
        self.wait_for(lambda: not os.path.exists("/proc/%d" % child))
        self.assertRegex(self.unpacked()[0], r"^\.new-%d$" % p.pid)
        self.assertEqual(os.stat(self.state + "/images/" + self.unpacked()[0]).st_mode & 0o7777, 0o700)
        self.assertEqual(self.rows(), [])
        digest = self.bring(save(self.folder + "/x.tar", [(["x:1"], [small], None)]))["digest"]
        self.assertEqual(self.unpacked(), [digest[7:]])

    def test_killed_while_it_is_removed(self):
        """What has begun to go is no image, whoever looks; and the next import takes the rest."""
        digest = self.bring(save(self.folder + "/x.tar", [(["x:1"], [small], None)]))["digest"]
        os.makedirs(self.state + "/images/.old-1/usr/bin")
        self.assertEqual(len(self.rows()), 1)
        self.assertFalse(self.bring(self.folder + "/x.tar")["fresh"])
        self.assertEqual(self.unpacked(), [digest[7:]])

    def test_told_to_stop(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            p, child = self.start()
            p.send_signal(number)
            self.assertEqual(p.wait(10 * SLOW), 1)
            self.assertIn(b"interrupted; nothing was changed", p.stderr.read())
            self.assertEqual((self.unpacked(), self.table()), ([], None))
            self.assertFalse(os.path.exists("/proc/%d" % child))

    def test_its_death_is_told(self):
        p, child = self.start()
        os.kill(child, signal.SIGKILL)
        self.assertEqual(p.wait(10 * SLOW), 1)
        self.assertIn(b"the process that unpacks the image has ended early", p.stderr.read())
        self.assertEqual(self.unpacked(), [])

    def test_progress(self):
        """Nothing for what is quick; a line when it takes a while."""
        self.image("import", save(self.folder + "/x.tar", [(["x:1"], [layer(entry("x"))], None)]), status=1)
        self.assertNotIn("this takes a while", self.said)
        p, child = self.start()
        data = bytes(1 << 16)
        ended = threading.Event()

        def feed():
            try:
                while not ended.is_set():
                    p.stdin.write(data)
                    p.stdin.flush()
                    time.sleep(0.1)
            except OSError:
                pass

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            self.assertEqual(p.stderr.readline(), b"weir: importing -: this takes a while\n")
        finally:
            ended.set()
            feeder.join()

    def test_no_room(self):
        """A disk that is full, in each of the two places that are written to: said, and nothing is left."""
        path = save(self.folder + "/x.tar", [(["x:1"], [small], None)])
        for size in ("2m", "4m"):  # the archive does not fit; it does, but not the image
            mount = self.folder + "/small"
            os.mkdir(mount)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700,size=" + size, "weir-test", mount], check=True)
            try:
                self.state = mount
                self.image("import", path, status=1)
                self.assertIn("No space left on device", self.said)
                self.assertEqual((self.unpacked(), self.table()), ([], None))
            finally:
                subprocess.run(["umount", mount], check=True)
                os.rmdir(mount)


class AtOnce(State):
    def test_two_imports_of_one_image(self):
        path = save(self.folder + "/x.tar", [(["x:1"], [small], None)])
        both = [subprocess.Popen([WEIR, "image", "import", path, "--name", "n%d" % i, "--json", "--state-dir", self.state], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(2)]
        answers = [json.loads(p.communicate(timeout=60 * SLOW)[0]) for p in both]
        self.assertEqual([p.returncode for p in both], [0, 0])
        self.assertEqual(sorted(a["fresh"] for a in answers), [False, True])
        (row,) = self.rows()
        self.assertEqual(sorted(row["names"]), ["n0", "n1"])
        self.assertEqual(self.unpacked(), [row["digest"][7:]])

    def test_a_slow_one_holds_nobody_up(self):
        """While one waits for the rest of its archive, others go on; what is there already needs no turn at all."""
        path = save(self.folder + "/x.tar", [(["x:1"], [small], None)])
        with subprocess.Popen([WEIR, "image", "import", "-", "--state-dir", self.state], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as slow:
            slow.stdin.write(bytes(512))
            slow.stdin.flush()
            deadline = time.monotonic() + 10 * SLOW
            while not self.unpacked():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            self.assertTrue(self.bring(path)["fresh"])
            self.assertFalse(self.bring(path)["fresh"])
            # And its room is still its own.
            self.assertEqual(len(self.unpacked()), 2)
            self.assertIsNone(slow.poll())
            slow.kill()

    def test_one_that_waits_says_so(self):
        path = save(self.folder + "/x.tar", [(["x:1"], [small], None)])
        os.makedirs(self.state + "/images", 0o700)
        os.chmod(self.state, 0o700)
        with open(self.state + "/images/.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with subprocess.Popen([WEIR, "image", "import", path, "--state-dir", self.state], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
                self.assertEqual(p.stderr.readline(), b"weir: waiting for another import to end\n")
                p.send_signal(signal.SIGTERM)
                self.assertEqual(p.wait(10 * SLOW), 1)
                self.assertIn(b"interrupted", p.stderr.read())
        self.assertEqual(self.unpacked(), [])

    def test_imports_and_removals(self):
        """Several images come and go at once: in the end every entry has its files, and all files have their entry."""
        paths = [save("%s/x%d.tar" % (self.folder, i), [(["x:%d" % i], [small, layer(entry("n", content=b"%d" % i))], None)]) for i in range(3)]
        errors = []

        def come_and_go(i):
            for _ in range(3):
                for args in (("import", paths[i]), ("rm", "x:%d" % i)):
                    done = weir("image", *args, "--state-dir", self.state)
                    if done.returncode:
                        errors.append(done.stderr)
            errors.extend(d.stderr for d in [weir("image", "import", paths[i], "--state-dir", self.state)] if d.returncode)

        threads = [threading.Thread(target=come_and_go, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(errors, [])
        rows = self.rows()
        self.assertEqual(sorted(row["names"][0] for row in rows), ["x:0", "x:1", "x:2"])
        self.assertEqual(self.unpacked(), sorted(row["digest"][7:] for row in rows))


class Removal(State):
    def setUp(self):
        super().setUp()
        self.path = save(self.folder + "/x.tar", [(["x:1"], [small, layer(entry("d/" * 120 + "f"))], None)])

    def test_by_name_and_digest(self):
        digest = self.bring(self.path)["digest"]
        self.bring(self.path, "--name", "y")
        # One name of several goes alone.
        self.assertEqual(self.image("rm", "x:1"), "x:1 is no name any more; its image, %s, has others and stays\n" % digest[:19])
        self.assertEqual(self.rows()[0]["names"], ["y"])
        self.image("rm", "x:1", status=1)
        self.assertIn('no image "x:1"; there is: y', self.said)
        self.assertEqual(json.loads(self.image("rm", "y", "--json")), {"digest": digest, "removed": True})
        self.assertEqual((self.rows(), self.unpacked()), ([], []))
        for how in (lambda d: d, lambda d: d[7:], lambda d: d[:19], lambda d: d[7:19]):
            self.bring(self.path)
            self.bring(self.path, "--name", "y")
            self.image("rm", how(digest))
            self.assertEqual((self.rows(), self.unpacked()), ([], []))
        self.image("rm", digest[7:18], status=1)
        self.assertIn("there is: none", self.said)

    def test_not_while_an_agent_has_it(self):
        digest = self.bring(self.path)["digest"]
        self.bring(self.path, "--name", "y")
        run_weir("agent", "add", "helper", "--project", "demo", "--image", "x:1", "--tools", "app", state=self.state)
        self.assertEqual(self.rows()[0]["agents"], [{"project": "demo", "name": "helper"}])
        self.assertIn("  demo/helper\n", self.image("ls"))
        self.image("rm", digest, status=1)
        self.assertIn("%s is the image of agent demo/helper: `weir agent rm` first, or give it another image" % digest[:19], self.said)
        self.image("rm", "x:1")  # a name may go: agents have the digest
        self.image("rm", "y", status=1)
        run_weir("agent", "add", "other", "--project", "demo", "--image", "y", "--tools", "app", state=self.state)
        self.image("rm", "y", status=1)
        self.assertIn("is the image of agents demo/helper, demo/other", self.said)
        self.assertTrue(os.path.exists(self.root(digest)))
        for name in ("helper", "other"):
            run_weir("agent", "rm", name, "--project", "demo", state=self.state)
        self.image("rm", "y")
        self.assertEqual((self.rows(), self.unpacked()), ([], []))

    def test_not_while_a_service_runs_snippets_in_it(self):
        """The same layout, as a service's own image and as one that was imported: there is one directory."""
        made = Layout(self.folder + "/layout")
        made.index(dict(made.image([(base_tar(), "")], config={}), annotations={REF: "1"}))
        os.mkdir(self.state, 0o700)
        with Service("--image", made.path, state=self.state, pool=1) as service:
            self.assertEqual(self.bring(made.path)["names"], ["layout:1"])
            self.image("rm", "layout:1", status=1)
            self.assertIn("is the image of a running service's snippets", self.said)
            self.assertEqual((len(self.rows()), service.run("print(1)")["stdout"]), (1, "1\n"))
        self.image("rm", "layout:1")
        self.assertEqual(self.unpacked(), [])

    def test_a_link_in_its_place(self):
        """Somebody with root put a link there: what it leads to is nobody's to remove."""
        digest = self.bring(self.path)["digest"]
        shutil.rmtree(self.root(digest))
        write(self.folder + "/precious/file", "x")
        os.symlink(self.folder + "/precious", self.root(digest))
        self.image("rm", "x:1", status=1)
        self.assertEqual(os.listdir(self.folder + "/precious"), ["file"])

    def test_uninstall_takes_all(self):
        self.bring(self.path)
        run_weir("agent", "add", "helper", "--project", "demo", "--image", "x:1", "--tools", "app", state=self.state)
        write(self.state + "/.images.json.new", "half of")
        before = set(os.listdir(self.state))
        self.assertLessEqual({"images", "images.json", "agents.json", ".images.json.new"}, before)
        # `weir uninstall` wants every service of this host stopped; only what it does with the state directory is looked at.
        done = weir("uninstall", "--state-dir", self.state)
        if b"are running; stop them first" in done.stderr:
            self.skipTest("another service runs on this host")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(os.path.exists(self.state), os.listdir(self.state) if os.path.exists(self.state) else "")


class Written(State):
    def test_modes_and_owners(self):
        digest = self.bring(save(self.folder + "/x.tar", [(["x:1"], [small, layer(entry("suid", mode=0o6777, content=b"x"))], None)]))["digest"]
        for path, mode, uid in (("", 0o40700, 0), ("/images", 0o40700, 0), ("/images.json", 0o100600, 0), ("/images/.lock", 0o100600, 0), ("/images/" + digest[7:], 0o40755, UID_IMAGE)):
            st = os.stat(self.state + path)
            self.assertEqual((oct(st.st_mode), st.st_uid, st.st_gid), (oct(mode), uid, uid), path)
        modes = set()
        for folder, names, files in os.walk(self.root(digest)):
            for name in names + files:
                st = os.lstat(os.path.join(folder, name))
                self.assertEqual((st.st_uid, st.st_gid), (UID_IMAGE, UID_IMAGE), name)
                modes.add(oct(st.st_mode))
        self.assertLessEqual(modes, {"0o100644", "0o100755", "0o40755", "0o120777"})
        self.assertEqual(sorted(os.listdir(self.state)), ["images", "images.json"])

    def test_the_table(self):
        got = self.bring(save(self.folder + "/x.tar", [(["x:1"], [small], None)]))
        table = json.loads(self.table())
        self.assertEqual((table["version"], len(table["images"])), (1, 1))
        self.assertEqual((table["images"][0]["digest"], table["images"][0]["source"]), (got["digest"][7:], self.folder + "/x.tar"))
        # A table that is not ours, or others may write to, is not believed, and stays as it is.
        os.chmod(self.state + "/images.json", 0o666)
        self.image("ls", status=1)
        self.assertIn("images.json must belong to root and be nobody else's to write to", self.said)
        self.image("import", self.folder + "/x.tar", "--name", "y", status=1)
        os.chmod(self.state + "/images.json", 0o600)
        with open(self.state + "/images.json", "w") as f:
            f.write(json.dumps(dict(table, more=1)))
        self.image("rm", "x:1", status=1)
        self.assertIn("images.json at /more: is not a key of the table of images", self.said)
        self.assertEqual(json.loads(self.table())["more"], 1)

    def test_a_state_directory_that_others_write_to(self):
        os.mkdir(self.state)
        os.chmod(self.state, 0o777)
        self.image("import", save(self.folder + "/x.tar", [(["x:1"], [small], None)]), status=1)
        self.image("ls", status=1)
        self.assertEqual(os.listdir(self.state), [])


class Arguments(State):
    def test_what_makes_no_sense(self):
        rows = [
            ((), "say import PATH, ls or rm REF"),
            (("improt", "x"), '"improt" is none of import, ls, rm'),
            (("import",), r"import: say which: PATH\[:REF\]"),
            (("rm",), "rm: say which: REF"),
            (("ls", "x"), 'ls takes no argument "x"'),
            (("import", "x", "y"), 'import takes no argument "y"'),
            (("ls", "--name", "x"), "ls does not take --name"),
        ]
        for args, words in rows:
            self.image(*args, status=64)
            self.assertRegex(self.said, words)
        self.assertFalse(os.path.exists(self.state))

    def test_help(self):
        out = self.image("--help")
        for words in ("docker save weather:2 | sudo weir image import -", "sudo weir image rm weather:2", "--state-dir=DIR", "Exit status: 0"):
            self.assertIn(words, out)

    def test_only_root(self):
        done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", WEIR, "image", "ls", "--state-dir", self.state], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode == 126 or b"Permission denied" in done.stderr:
            self.skipTest("the program is in a place that others can't read")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"this needs root", done.stderr)

    def test_standard_input_that_is_none(self):
        self.refused("-", "standard input is no archive", stdin=subprocess.DEVNULL)


class RealTools(State):
    """Archives that a real tool wrote: skopeo, which needs no daemon and writes what docker and podman write."""

    NAME = "localhost/weir-test-import:1"

    def test_written_by_one(self):
        layout = make_layout(self.folder + "/layout", {"app.py": "X = 1\n"})
        for how in ("docker-archive", "oci-archive"):
            with self.subTest(how=how):
                saved = "%s/%s" % (self.folder, how)
                subprocess.run(["skopeo", "--insecure-policy", "copy", "oci:" + layout + ":latest", "%s:%s:%s" % (how, saved, self.NAME)], stdout=subprocess.DEVNULL, check=True)
                got = self.bring(saved)
                self.assertEqual((got["names"], got["workdir"]), ([self.NAME], "/app"))
                if how == "docker-archive":
                    ident = json.loads(subprocess.run(["skopeo", "inspect", "--raw", "docker-archive:" + saved], stdout=subprocess.PIPE, check=True).stdout)["config"]["digest"]
                    self.assertEqual(got["digest"].replace("sha256:", ""), ident.replace("sha256:", ""))


if __name__ == "__main__":
    unittest.main()
