# SPDX-License-Identifier: Apache-2.0
"""What a run leaves in its working directory: what comes back, what is passed over, and that nothing in there stops, fools or
outlives the one who reads it. Links, pipes, holes, names, depths and modes are the program's to choose."""
import base64
import concurrent.futures
import errno
import glob
import importlib.util
import json
import os
import re
import stat
import tempfile
import time
import unittest

from lib import SLOW, Service, weir

UID_COLLECTOR = 0x70000003
CAP_DAC_READ_SEARCH = 1 << 2


def got(answer):
    """Path -> bytes of the files in an answer; the sizes told are those sent, and base64 is the plain one."""
    found = {}
    for f in answer["files"]:
        content = base64.b64decode(f["content_base64"], validate=True)
        assert base64.b64encode(content).decode() == f["content_base64"] and len(content) == f["size"], f["path"]
        found[f["path"]] = content
    assert len(found) == len(answer["files"]), "a path twice"
    return found


def skipped(answer):
    return {f["path"]: f["reason"] for f in answer["files_skipped"]}


def settles(condition):
    """Whether it comes true within ten seconds."""
    deadline = time.monotonic() + 10 * SLOW
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def setUpModule():
    WithService.service = Service()


def tearDownModule():
    WithService.service.stop()


class WithService(unittest.TestCase):
    service = None

    def run_code(self, code, **fields):
        answer = self.service.run(code, **fields)
        self.assertEqual((answer["exit_code"], answer["stderr"]), (0, ""), answer)
        return answer

    def collector(self):
        """Its pid: the child of the service with that uid."""
        for status in glob.glob("/proc/[0-9]*/status"):
            try:
                with open(status) as f:
                    text = f.read()
            except OSError:
                continue
            if re.search(r"^PPid:\t%d$" % self.service.process.pid, text, re.M) and re.search(r"^Uid:\t%d\t" % UID_COLLECTOR, text, re.M):
                return int(status.split("/")[2])
        raise AssertionError("no collector")


class Kinds(WithService):
    """Regular files come back, and nothing else does."""

    def test_links_are_never_followed(self):
        answer = self.run_code(
            "import os\n"
            "for i, to in enumerate(('/etc/passwd', '/proc/self/environ', '../../secret', '/', '..', '.', 'real', 'loop6', 'real/x')):\n"
            "    os.symlink(to, 'loop%d' % i)\n"
            "os.mkdir('real'); open('real/x', 'w').write('1'); os.symlink('/etc', 'real/etc'); open('out.txt', 'w').write('2')"
        )
        self.assertEqual(got(answer), {"real/x": b"1", "out.txt": b"2"})
        self.assertEqual(skipped(answer), dict({"loop%d" % i: "symlink" for i in range(9)}, **{"real/etc": "symlink"}))

    def test_pipes_and_sockets_block_nobody(self):
        answer = self.run_code(
            "import os, socket\n"
            "os.mkfifo('report.csv')\n"
            "if os.fork() == 0:\n"
            "    open('report.csv', 'w')\n"  # waits for a reader, for ever
            "s = socket.socket(socket.AF_UNIX); s.bind('result.json'); s.listen(); open('result.json.txt', 'w').write('1')"
        )
        self.assertEqual((got(answer), skipped(answer)), ({"result.json.txt": b"1"}, {"report.csv": "fifo", "result.json": "socket"}))

    def test_holes_are_not_read(self):
        pid = self.collector()
        before = self.memory(pid)
        answer = self.run_code("open('pib', 'wb').truncate(1 << 50)\nfor i in range(64): open('%02d' % i, 'wb').truncate(8 << 20)")
        self.assertEqual(list(got(answer)), ["00", "01"])  # 16 MiB together
        self.assertEqual(skipped(answer), dict({"%02d" % i: "too large" for i in range(2, 64)}, pib="too large"))
        self.assertEqual([f["size"] for f in answer["files_skipped"] if f["path"] == "pib"], [1 << 50])
        self.assertLess(self.memory(pid), before + 4096)

    @staticmethod
    def memory(pid):
        with open("/proc/%d/status" % pid) as f:
            return int(re.search(r"^VmRSS:\s+(\d+) kB", f.read(), re.M).group(1))

    def test_hard_links_are_ordinary_files(self):
        answer = self.run_code("import os\nopen('a', 'w').write('1'); os.link('a', 'b'); os.link('main.py', 'script')")
        self.assertEqual({k: v for k, v in got(answer).items() if k != "script"}, {"a": b"1", "b": b"1"})
        self.assertIn("script", got(answer))  # under another name it is another file

    def test_modes_and_attributes_stay_behind(self):
        answer = self.run_code(
            "import os\nopen('suid', 'w').write('1'); os.chmod('suid', 0o6777)\n"
            "try: os.setxattr('suid', 'user.x', b'y')\n"
            "except OSError: pass"
        )
        self.assertEqual(answer["files"], [{"path": "suid", "size": 1, "content_base64": "MQ==", "media_type": "application/octet-stream"}])

    def test_permissions_taken_away(self):
        """Whatever the owner has done to it, what he left is given."""
        answer = self.run_code(
            "import os\n"
            "open('secret', 'w').write('1'); os.chmod('secret', 0)\n"
            "for name, mode in (('closed', 0), ('passage', 0o111), ('listed', 0o444)):\n"
            "    os.makedirs(name + '/deep'); open(name + '/deep/inside', 'w').write(name); os.chmod(name + '/deep', 0); os.chmod(name, mode)"
        )
        self.assertEqual(got(answer), {"secret": b"1", "closed/deep/inside": b"closed", "passage/deep/inside": b"passage", "listed/deep/inside": b"listed"})
        self.assertEqual(skipped(answer), {})

    def test_no_droppings_of_the_library(self):
        answer = self.run_code(
            "import os, pathlib, tempfile, sqlite3, helper\n"
            "home = pathlib.Path.home(); (home / '.cache').mkdir(exist_ok=True); (home / '.cache' / 'x').write_text('x')\n"
            "tempfile.NamedTemporaryFile(delete=False).write(b'x')\nprint(helper.x)\nif os.fork() == 0: os.abort()\nos.wait()",
            files=[{"path": "helper.py", "content": "x = 1"}],
        )
        self.assertEqual((answer["files"], answer["files_skipped"]), ([], []))


class Content(WithService):
    """Which files count as new, and that their bytes are theirs."""

    def test_bytes_are_exact(self):
        contents = {"all": bytes(range(256)) * 3, "empty": b"", "one": b"\0", "two": b"\r\n", "utf16": "é\n".encode("utf-16"), "crlf.txt": b"a\r\nb\n\r", "png": b"\x89PNG\r\n\x1a\n\0", "bom": b"\xef\xbb\xbfx"}
        answer = self.run_code("for name, data in %r.items(): open(name, 'wb').write(data)" % contents)
        self.assertEqual(got(answer), contents)

    def test_bytes_go_in_and_out(self):
        data = os.urandom(100_000) + bytes(range(256))
        answer = self.run_code("data = open('d/in', 'rb').read(); open('out', 'wb').write(data)", files=[{"path": "d/in", "content_base64": base64.b64encode(data).decode()}])
        self.assertEqual(got(answer), {"out": data})

    def test_untouched_inputs_are_not_echoed(self):
        """Nor is the script; but an input is new in another place, and changed when its bytes are, whatever size and time say."""
        answer = self.run_code(
            "import os\n"
            "s = os.stat('sly'); open('sly', 'r+').write('ONE'); os.utime('sly', ns=(s.st_atime_ns, s.st_mtime_ns))\n"
            "for t in (0, -1, 4294967295): os.utime('kept', (t, t))\n"
            "open('kept', 'r+').write('one'); os.rename('moved', 'moved2'); os.chmod('mode', 0o777); os.remove('gone')\n"
            "open('replaced', 'w').write('one')",
            files=[{"path": n, "content": "one"} for n in ("sly", "kept", "moved", "mode", "gone", "replaced", "empty")] + [{"path": "e", "content": ""}],
        )
        self.assertEqual((got(answer), skipped(answer)), ({"sly": b"ONE", "moved2": b"one"}, {}))

    def test_large_inputs(self):
        """No answer has room for them; they are listed when they are changed, and only then."""
        content = base64.b64encode(bytes((8 << 20) + 1)).decode()
        for code, expected in (("1", {}), ("open('in', 'r+b').write(b'x')", {"in": "too large"})):
            answer = self.run_code(code, files=[{"path": "in", "content_base64": content}])
            self.assertEqual((got(answer), skipped(answer)), ({}, expected))

    def test_inputs_replaced_by_something_else(self):
        answer = self.run_code(
            "import os\nfor n in 'abcd': os.remove(n)\nos.mkdir('a'); open('a/b', 'w').write('1'); os.symlink('/etc/passwd', 'b'); os.mkfifo('c'); os.mkdir('d')",
            files=[{"path": n, "content": "one"} for n in "abcd"],
        )
        self.assertEqual((got(answer), skipped(answer)), ({"a/b": b"1"}, {"b": "symlink", "c": "fifo"}))

    def test_the_script_that_rewrites_itself(self):
        answer = self.run_code("open('main.py', 'w').write('raise SystemExit(9)')\nprint('went on')")
        self.assertEqual((answer["stdout"], got(answer)), ("went on\n", {"main.py": b"raise SystemExit(9)"}))

    def test_an_archive_is_a_file(self):
        """Nothing is unpacked for anybody."""
        answer = self.run_code("import zipfile\nz = zipfile.ZipFile('a.zip', 'w'); z.writestr('../../etc/x', 'x'); z.writestr('/abs', 'y'); z.close()")
        self.assertEqual((list(got(answer)), answer["files"][0]["media_type"]), (["a.zip"], "application/zip"))

    def test_files_of_a_run_that_was_ended(self):
        for code, reason in (("import ctypes; ctypes.string_at(0)", "signal"), ("while True: pass", "timeout"), ("import os\nwhile True: os.write(1, b'x' * 65536)", "output"), ("x = b'x' * (600 << 20)", "memory")):
            with self.subTest(reason):
                answer = self.service.run("open('so-far', 'w').write('1')\n" + code, timeout_s=1 if reason == "timeout" else 20)
                self.assertEqual((answer["termination"]["reason"], got(answer)), (reason, {"so-far": b"1"}))


class Names(WithService):
    def test_what_is_no_text_is_escaped_and_loses_nothing(self):
        names = [b"\xc3.txt", b"a\xff\\b", b"\xed\xa0\x80", b"\xf0\x9f\x8e"]
        answer = self.run_code("import os\nfor n in %r: open(n, 'w').write('1')\nos.mkdir(b'd\\xff'); open(b'd\\xff/x', 'w'); open('ok', 'w').write('1')" % (names,))
        self.assertEqual(got(answer), {"ok": b"1"})
        self.assertEqual(set(skipped(answer).values()), {"name"})
        back = lambda path: re.sub(rb"\\(x[0-9a-f]{2}|\\)", lambda m: b"\\" if m.group(1) == b"\\" else bytes([int(m.group(1)[1:], 16)]), path.encode())
        self.assertEqual(sorted(map(back, skipped(answer))), sorted(names + [b"d\xff"]))

    def test_text_of_every_kind(self):
        names = ["é/ü", "🎉", "new\nline", "\x1b[2J", "quote\"'", "back\\slash", "\\xff", " ", "-rf", "...", "\u2028", "\ufeff", "a" * 255]
        answer = self.run_code("import os\nfor n in %r:\n    os.makedirs(os.path.dirname(n) or '.', exist_ok=True); open(n, 'w').write('1')" % (names,))
        self.assertEqual((sorted(got(answer)), skipped(answer)), (sorted(names), {}))
        self.assertEqual(list(got(answer)), sorted(names, key=str.encode))

    def test_order_is_that_of_paths(self):
        names = ["a-b", "a.txt", "a/b", "a/b.c/d", "a/b/c"]
        answer = self.run_code("import os\nfor n in reversed(('a-b', 'a.txt', 'a/b.c/d', 'a/b/c')):\n    os.makedirs(os.path.dirname(n) or '.', exist_ok=True); open(n, 'w').write('1')")
        self.assertEqual(list(got(answer)), sorted(set(names) - {"a/b"}))


class Many(WithService):
    def test_a_hundred_thousand_files(self):
        """The disk has room for 16,384; the answer is bounded, the same each time, and says how much it does not say."""
        code = (
            "import os\nos.mkdir('d')\nmade = 0\n"
            "for i in range(100000):\n"
            "    try: os.mknod('%s%06d' % ('d/' if i % 2 else '', i)); made += 1\n"
            "    except OSError as e:\n"
            "        if e.errno != 28: raise\n"
            "print(made)"
        )
        answers = [self.run_code(code, timeout_s=60) for _ in range(2)]
        made = int(answers[0]["stdout"])
        self.assertGreater(made, 16000)
        for answer in answers:
            self.assertEqual(list(got(answer)), ["%06d" % (i * 2) for i in range(256)])
            self.assertEqual(list(skipped(answer)), ["%06d" % (i * 2) for i in range(256, 512)])
            self.assertEqual(set(skipped(answer).values()), {"too many"})
            self.assertEqual(answer["files_skipped_unlisted"], made - 512)

    def test_twenty_thousand_directories(self):
        answer = self.run_code("import os\nos.mkdir('z')\ntry:\n    for i in range(20000): os.mkdir('z/%d' % i)\nexcept OSError: pass\nopen('main.py', 'a').write('# room')")
        self.assertEqual((list(got(answer)), answer["files_skipped"]), (["main.py"], []))

    def test_room_behind_what_has_none(self):
        answer = self.run_code("for n, s in (('a', 8 << 20), ('b', (8 << 20) - 1), ('c', 2), ('d', 1), ('e', 1), ('f', 0)): open(n, 'wb').write(bytes(s))")
        self.assertEqual(list(got(answer)), ["a", "b", "d", "f"])
        self.assertEqual(skipped(answer), {"c": "too large", "e": "too large"})
        self.assertNotIn("files_skipped_unlisted", answer)

    def test_deeper_than_any_path(self):
        answer = self.run_code("import os\nfor i in range(300): os.mkdir('n' * 255); os.chdir('n' * 255)\nopen('x', 'w')\nos.chdir('/box'); open('ok', 'w').write('1')")
        self.assertEqual(got(answer), {"ok": b"1"})
        self.assertEqual(skipped(answer), {"/".join(["n" * 255] * 32): "too deep"})


class Concurrent(WithService):
    def test_everybody_is_dead_before_a_file_is_read(self):
        """Processes that go on rewriting, renaming and linking: each file is what one of them had written when it died."""
        code = (
            "import os, time\n"
            "for child in range(3):\n"
            "    if os.fork() == 0:\n"
            "        os.setsid()\n"
            "        if os.fork(): os._exit(0)\n"
            "        i = 0\n"
            "        while True:\n"
            "            i += 1\n"
            "            with open('t%d' % child, 'wb') as f: f.write((b'%08d' % i) * 20000)\n"
            "            os.rename('t%d' % child, 'out%d' % child)\n"
            "            try:\n"
            "                os.rename('dir%d' % child, 'moved%d' % child); os.symlink('/etc', 'dir%d' % child); os.remove('dir%d' % child); os.rename('moved%d' % child, 'dir%d' % child)\n"
            "            except OSError:\n"
            "                os.makedirs('dir%d' % child, exist_ok=True); open('dir%d/passwd' % child, 'w').write('ours')\n"
            "while not all(os.path.exists('out%d' % c) for c in range(3)): time.sleep(0.001)\n"
            "time.sleep(0.02)"
        )
        for _ in range(4):
            files = got(self.run_code(code))
            for child in range(3):
                data = files["out%d" % child]
                self.assertEqual(data, data[:8] * 20000)
            for path, data in files.items():
                self.assertIn(data[:4], (b"ours", b"0000", b""), path)

    def test_many_at_once_do_not_mix(self):
        def one(i):
            return got(self.run_code("open('f', 'w').write('%d' * 1000)\nopen('%d', 'w').write('x')" % (i, i)))

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for i, files in enumerate(pool.map(one, range(12))):
                self.assertEqual(files, {"f": b"%d" % i * 1000, str(i): b"x"})


class Sessions(WithService):
    def setUp(self):
        answer = self.service.request("POST", "/v1/sessions", {})
        self.assertEqual(answer.status, 201, answer)
        self.session = answer.json()["session_id"]

    def tearDown(self):
        self.service.request("DELETE", "/v1/sessions/" + self.session)

    def cell(self, code, **fields):
        answer = self.run_code(code, session_id=self.session, **fields)
        self.assertIs(answer["session_ended"], False)
        return answer

    def test_each_cell_gives_what_it_changed(self):
        self.assertEqual(got(self.cell("open('a', 'w').write('1'); open('b', 'w').write('1')")), {"a": b"1", "b": b"1"})
        self.assertEqual(got(self.cell("1")), {})
        self.assertEqual(got(self.cell("import os; open('a', 'w').write('2'); os.utime('b', (1, 1))")), {"a": b"2"})
        self.assertEqual(got(self.cell("os.remove('b'); open('a', 'w').write('1')", files=[{"path": "in", "content": "x"}])), {"a": b"1"})
        self.assertEqual(got(self.cell("open('b', 'w').write('1'); open('in', 'a').write('y')")), {"b": b"1", "in": b"xy"})

    def test_what_had_no_room_is_no_news_later(self):
        self.assertEqual(len(got(self.cell("for i in range(300): open('%03d' % i, 'w').write('x')"))), 256)
        self.assertEqual(got(self.cell("open('299', 'w').write('y')")), {"299": b"y"})

    def test_large_files_are_told_once(self):
        """One that no answer has room for is listed when it is new or changed, and an input of that size is neither."""
        size = (8 << 20) + 1
        big = {"path": "in.bin", "content_base64": base64.b64encode(bytes(size)).decode()}
        self.assertEqual(skipped(self.cell("1", files=[big])), {})
        self.assertEqual(skipped(self.cell("open('own.bin', 'wb').write(bytes(%d))" % size)), {"own.bin": "too large"})
        self.assertEqual(skipped(self.cell("1")), {})
        self.assertEqual(skipped(self.cell("open('in.bin', 'r+b').write(b'x')")), {"in.bin": "too large"})
        self.assertEqual(skipped(self.cell("1")), {})

    def test_a_full_disk_leaves_the_file_as_it_was(self):
        self.cell(
            "import os\nopen('z', 'w').write('old'); os.chmod('z', 0o700); open('ok', 'w').write('old')\n"
            "with open('/box/fill', 'wb') as f:\n    for i in range(60): f.write(bytes(1 << 20))"
        )
        big = base64.b64encode(bytes(9 << 20)).decode()
        for path in ("z", "new"):
            files = [{"path": "ok", "content": "new"}, {"path": path, "content_base64": big}, {"path": "later", "content": "x"}]
            answer = self.service.request("POST", "/v1/execute", {"code": "print('ran')", "session_id": self.session, "files": files})
            self.assertEqual((answer.status, answer.json()["error"]["code"]), (409, "file_conflict"), answer)
            self.assertIn(os.strerror(errno.ENOSPC), answer.json()["error"]["message"])
        code = "print(sorted(os.listdir()), open('z').read(), open('ok').read())"
        self.assertEqual(self.cell(code)["stdout"], "['fill', 'ok', 'z'] old new\n")
        code = "print(os.path.getsize('z'), oct(os.stat('z').st_mode), sorted(os.listdir()))"
        answer = self.run_code("os.remove('fill')\n" + code, session_id=self.session)
        self.assertEqual(answer["stdout"], "3 0o100700 ['ok', 'z']\n")
        answer = self.cell(code, files=[{"path": "z", "content_base64": big}])
        self.assertEqual(answer["stdout"], "%d 0o100700 ['ok', 'z']\n" % (9 << 20))

    def test_nothing_changes_while_it_is_read(self):
        """What goes on between cells stands still while the files are read, and goes on afterwards; a lease holds nobody up."""
        answer = self.cell(
            "import os, fcntl, time, signal\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n"
            "if os.fork() == 0:\n"
            "    os.chdir('/box'); i = 0\n"
            "    while True:\n"
            "        i += 1; open('new', 'w').write('%08d' % i * 1000); os.rename('new', 'count')\n"
            "open('leased', 'w').write('1'); fd = os.open('leased', os.O_RDWR)\n"
            "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
            "while not os.path.exists('count'): time.sleep(0.001)"
        )
        self.assertEqual(skipped(answer), {"leased": "unreadable"})
        seen = set()
        for _ in range(4):
            data = got(self.cell("time.sleep(0.02)"))["count"]
            self.assertEqual(data, data[:8] * 1000)
            seen.add(data)
        self.assertEqual(len(seen), 4)


class Placing(unittest.TestCase):
    """The harness's own function, in a directory of ours: the old content or the new, whatever fails and when."""

    def setUp(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../runner/place.py")
        spec = importlib.util.spec_from_file_location("place", source)
        self.place = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.place)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.box = self.place._WORK = directory.name

    def path(self, name):
        return os.path.join(self.box, name)

    def put(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)

    def text(self, name):
        with open(self.path(name)) as f:
            return f.read()

    def fails(self, name, number):
        with self.assertRaises(OSError) as raised:
            self.place._place(name.encode(), b"new content")
        self.assertEqual(raised.exception.errno, number)

    def test_old_or_new(self):
        self.put("old", "old")
        os.chmod(self.path("old"), 0o751)
        for name in ("old", "fresh", "d/fresh"):
            self.place._place(name.encode(), b"new")
            self.assertEqual(self.text(name), "new")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("old")).st_mode), 0o751)
        self.assertEqual(sorted(os.listdir(self.box)), ["d", "fresh", "old"])

    def test_a_write_that_fails_half_way(self):
        self.put("old", "old")
        real, written = self.place.write, []

        def write(fd, data):
            self.assertEqual(self.text("old"), "old")  # at every moment
            if written:
                raise OSError(errno.ENOSPC, "full")
            written.append(real(fd, data[:4]))
            return written[0]

        self.place.write = write
        for name in ("old", "fresh"):
            written.clear()
            self.fails(name, errno.ENOSPC)
            self.assertEqual((os.listdir(self.box), self.text("old")), (["old"], "old"))

    def test_a_rename_that_fails(self):
        self.put("old", "old")

        def rename(*args, **fields):
            raise OSError(errno.EPERM, "refused")

        self.place.rename = rename
        self.fails("old", errno.EPERM)
        self.assertEqual((os.listdir(self.box), self.text("old")), (["old"], "old"))

    def test_what_is_no_file_stays(self):
        self.put("target", "old")
        os.symlink("target", self.path("link"))
        os.symlink("nothing", self.path("dangling"))
        os.mkdir(self.path("dir"))
        os.mkfifo(self.path("fifo"))
        os.mkfifo(self.path("read"))
        reader = os.open(self.path("read"), os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        before = {n: os.lstat(self.path(n)).st_ino for n in os.listdir(self.box)}
        for name, number in (("link", errno.ELOOP), ("dangling", errno.ELOOP), ("dir", errno.EISDIR), ("fifo", errno.ENXIO), ("read", errno.EEXIST)):
            with self.subTest(name):
                self.fails(name, number)
        self.assertEqual({n: os.lstat(self.path(n)).st_ino for n in os.listdir(self.box)}, before)
        self.assertEqual(self.text("target"), "old")


class Collector(WithService):
    """The process that reads strangers' files has nothing to lose."""

    def test_what_it_is(self):
        self.run_code("open('x', 'w')")
        pid = self.collector()
        with open("/proc/%d/status" % pid) as f:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        self.assertEqual(status["Uid"].split(), [str(UID_COLLECTOR)] * 4)
        self.assertEqual(status["Gid"].split(), [str(UID_COLLECTOR)] * 4)
        self.assertEqual(status["Groups"].strip(), "")
        caps = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
        self.assertEqual(caps, {"CapInh": 0, "CapPrm": CAP_DAC_READ_SEARCH, "CapEff": CAP_DAC_READ_SEARCH, "CapBnd": 0, "CapAmb": 0})
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        self.assertEqual(os.stat("/proc/%d/mem" % pid).st_uid, 0)  # not to be looked into by its own uid
        self.assertEqual(os.listdir("/proc/%d/root/" % pid), [])
        self.assertEqual(os.listdir("/proc/%d/cwd/" % pid), [])
        # What it has just answered it closes a moment after.
        self.assertTrue(settles(lambda: len(os.listdir("/proc/%d/fd" % pid)) == 4), os.listdir("/proc/%d/fd" % pid))
        fds = {fd: os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)}
        own = [to for fd, to in fds.items() if int(fd) > 2]
        self.assertEqual(len(own), 1, fds)
        self.assertTrue(own[0].startswith("socket:"), fds)

    def test_it_keeps_nothing(self):
        """Not even what it has just answered: it closes that right after."""
        pid = self.collector()
        for _ in range(3):
            self.run_code("import os\nfor i in range(300): open(str(i), 'w').write('x' * 1000)\nos.makedirs('/'.join('d' * 40))")
        self.assertTrue(settles(lambda: len(os.listdir("/proc/%d/fd" % pid)) == 4), os.listdir("/proc/%d/fd" % pid))


class Command(unittest.TestCase):
    """`weir run` with files, standard input and environment."""

    def test_files_stdin_env(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "data.csv")
            with open(path, "wb") as f:
                f.write(b"\xff\0x")
            os.chmod(path, stat.S_IRUSR)
            code = "import os, sys\nprint(open('data.csv', 'rb').read(), os.environ['A'], os.environ['B'], sys.stdin.read())\nopen('out', 'wb').write(bytes(3000)); os.symlink('x', 'l')"
            done = weir("run", "--file", path, "--stdin", "-", "--env", "A=1", "--env", "B=x=y", "-c", code, stdin=b"typed")
        self.assertEqual((done.returncode, done.stdout), (0, b"b'\\xff\\x00x' 1 x=y typed\n"), done)
        self.assertEqual(done.stderr, b"weir: 1 file left in the working directory: out (3 KiB); 1 skipped (--json has their content)\n")

    def test_names_do_not_reach_the_terminal_raw(self):
        done = weir("run", "-c", "open('\\x1b[2J\\x9b1m\\n', 'w').write('x')")
        self.assertEqual(done.stderr, b"weir: 1 file left in the working directory: \\x1b[2J\\xc2\\x9b1m\\x0a (1 bytes) (--json has their content)\n")

    def test_json_is_the_services_answer(self):
        done = weir("run", "--json", "-c", "open('a.txt', 'w').write('x')")
        answer = json.loads(done.stdout)
        self.assertEqual(done.stdout.count(b"\n"), 1)
        self.assertEqual(answer["files"], [{"path": "a.txt", "size": 1, "content_base64": "eA==", "media_type": "text/plain"}])
        self.assertEqual(answer["files_skipped"], [])

    def test_arguments_that_make_no_sense(self):
        with tempfile.TemporaryDirectory() as d:
            for name, size in (("main.py", 1), ("twice", 1), ("sub/twice", 1), ("big", (10 << 20) + 1), ("big-in", (4 << 20) + 1)):
                os.makedirs(os.path.dirname(os.path.join(d, name)), exist_ok=True)
                with open(os.path.join(d, name), "wb") as f:
                    f.truncate(size)
            rows = (
                (("--file", d + "/missing"), 125, b"No such file"),
                (("--file", d + "/main.py"), 64, b"main.py is the snippet's own name"),
                (("--file", d + "/twice", "--file", d + "/sub/twice"), 64, b"two files would be called twice"),
                (("--file", d + "/big"), 125, b"over 10485760 bytes"),
                (("--file", d), 125, b"directory"),
                (("--file", d + "/"), 64, b"does not end in the name of a file"),
                (("--stdin", d + "/big-in"), 125, b"over 4194304 bytes"),
                (("--env", "SANDBOX_X=1"), 64, b"SANDBOX_X is reserved by the platform"),
                (("--env", "TOOL_SANDBOX=false"), 64, b"TOOL_SANDBOX is reserved by the platform"),
                (("--env", "X"), 64, b"expected NAME=VALUE"),
                (("--env", "=1"), 64, b"expected NAME=VALUE"),
                (("--env", "A=1", "--env", "A=2"), 64, b"A is given twice"),
                (("--env", "A=" + "x" * 32766), 64, b"over 32768 bytes"),
                (("--stdin", "-", "--file", "-"), 64, b"standard input can be read once"),
                (("--env", "A=1") * 65, 64, b"no more than 64 variables"),
                (("--file", "x") * 257, 64, b"no more than 256 files"),
            )
            for args, status, words in rows:
                with self.subTest(args[:4]):
                    done = weir("run", *args, "-c", "print('ran')")
                    self.assertEqual((done.returncode, done.stdout), (status, b""), done)
                    self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
