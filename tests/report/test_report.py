# SPDX-License-Identifier: Apache-2.0
"""`weir audit report` in a real browser: accessible in both themes, on paper and on a narrow screen; whole without scripts; fetches
nothing; and what programs chose to be called or to ask for is text and nothing else.

What looks (Chromium, driven by browser/look.mjs; axe-core, html-validate) is installed below build/ once. Pictures of every page
are left in build/report/pictures. Fixtures have the shape of `weir audit show ID --json`; one page is made from a real run."""
import contextlib
import copy
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest

import dns_corpus
from lib import BUILD, TOP, WEIR, weir

HERE = os.path.join(TOP, "tests", "report")
INSTALLED = os.path.join(BUILD, "report", "browser")
PICTURES = os.path.join(BUILD, "report", "pictures")
RENDER = os.path.join(BUILD, "report", "render")
VIEWS = ("light", "dark", "narrow", "print")
HOSTILE = "</td></title></svg><evil a=\"\"' onload=evil()>&#60;evil&lt; --><script>evil()</script>\u202egpj.exe\x1b[31m"


def install():
    """The packages as the lock file has them, once; what is there already is taken."""
    files = ("package.json", "package-lock.json")
    wanted = "".join(pathlib.Path(HERE, "browser", name).read_text() for name in files)
    stamp = pathlib.Path(INSTALLED, "installed")
    os.makedirs(INSTALLED, exist_ok=True)
    shutil.copy(os.path.join(HERE, "browser", "look.mjs"), INSTALLED)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    for name in files:
        shutil.copy(os.path.join(HERE, "browser", name), INSTALLED)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", os.path.join(BUILD, "agents", "npm-cache")],
                   cwd=INSTALLED, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, timeout=240)
    stamp.write_text(wanted)


def browser():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def look(pages):
    """What look.mjs finds: {name: {"grammar": […], view: {…}}}. `pages`: as its job has them."""
    job = {"chromium": browser(), "pictures": PICTURES, "pages": pages}
    done = subprocess.run(["node", "look.mjs"], cwd=INSTALLED, input=json.dumps(job).encode(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=180)
    if done.returncode:
        raise AssertionError(done.stderr.decode("utf-8", "replace")[-3000:])
    return json.loads(done.stdout)


def fixture(name):
    with open(os.path.join(HERE, "fixtures", name + ".json"), encoding="utf-8") as f:
        return json.load(f)


def strings_replaced(value, text):
    """A copy in which every string is another; of objects only the values."""
    if isinstance(value, dict):
        return {k: strings_replaced(v, text) for k, v in value.items()}
    if isinstance(value, list):
        return [strings_replaced(v, text) for v in value]
    return text if isinstance(value, str) else value


def hostile_period():
    """A run's id is the one string that no two runs share."""
    whole = strings_replaced(fixture("period"), HOSTILE)
    for i, run in enumerate(whole["runs"]):
        run["run_id"] = "\"><evil id=%d>" % i
    return whole


def corpus_run():
    """The record of a run that asked for every name of the corpus, as the record has names: escaped by the auditor."""
    whole = fixture("tool-call")
    model = next(e for e in whole["run"]["events"] if e["dns_name"])
    whole["run"]["events"] = [dict(copy.deepcopy(model), address="198.51.100.%d" % (i + 1), dns_name=text)
                              for i, (_, _, text) in enumerate(dns_corpus.CORPUS)]
    return whole


def render(kind, content, folder, name):
    source, page = os.path.join(folder, name + ".json"), os.path.join(folder, name + ".html")
    with open(source, "w", encoding="utf-8") as f:
        json.dump(content, f)
    with open(page, "wb") as f:
        subprocess.run([RENDER, kind, source], stdout=f, check=True, timeout=30)
    return page


def contrast(a, b):
    """WCAG 2: the ratio of two colours' relative luminances."""
    def luminance(colour):
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def palettes(page):
    """{"light": {name: colour}, "dark": …, "print": …}: each block of custom properties, over those of light."""
    blocks = re.findall(r":root\{([^}]*)\}", page)
    found = [dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{3,6})", b)) for b in blocks]
    for f in found:
        f.update({k: "#" + "".join(2 * c for c in v[1:]) for k, v in f.items() if len(v) == 4})
    return dict(zip(("light", "dark", "print"), [{**found[0], **f} for f in found]))


def page(name, file, views=("light",), **wanted):
    return {"name": name, "file": file, "views": views, **wanted}


EVERYTHING = {"axe": True, "keyboard": True, "grammar": True}
FILES, FOUND = {}, {}


def make_pages(folder):
    """Every page that there is to look at, and how closely: most of the time goes into axe and into pictures."""
    for name in ("tool-call", "lost", "attached"):
        FILES[name] = render("run", fixture(name), folder, name)
    FILES["period"] = render("period", fixture("period"), folder, "period")
    FILES["hostile"] = render("run", strings_replaced(fixture("tool-call"), HOSTILE), folder, "hostile")
    FILES["hostile-period"] = render("period", hostile_period(), folder, "hostile-period")
    FILES["corpus"] = render("run", corpus_run(), folder, "corpus")
    return [
        page("tool-call", FILES["tool-call"], VIEWS, picture=True, **EVERYTHING),
        page("period", FILES["period"], VIEWS, picture=True, **EVERYTHING),
        page("lost", FILES["lost"], ("dark", "light"), **EVERYTHING),
        page("attached", FILES["attached"], **EVERYTHING),
        page("hostile", FILES["hostile"], keyboard=True, grammar=True),
        page("hostile-period", FILES["hostile-period"], keyboard=True, grammar=True),
        page("corpus", FILES["corpus"], ("light", "narrow"), grammar=True),
    ]


def setUpModule():
    """One browser for all that is looked at."""
    if not browser():
        return
    install()
    os.makedirs(PICTURES, exist_ok=True)
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    pages = make_pages(folder.name)
    FOUND.update(look(pages + Mistakes.make_pages(folder.name, pathlib.Path(FILES["tool-call"]).read_text(encoding="utf-8"))))


@unittest.skipUnless(browser(), "no Chromium here: deploy/install-packages report")
class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = FILES
        cls.found = {name: FOUND[name] for name in FILES}

    def each(self):
        """Every page in every view that it was looked at in."""
        return [(name, view, page[view]) for name, page in self.found.items() for view in VIEWS if view in page]

    def text(self, name):
        return pathlib.Path(self.files[name]).read_text(encoding="utf-8")

    def test_accessible(self):
        looked = [(name, view, seen["axe"]) for name, view, seen in self.each() if "axe" in seen]
        self.assertEqual({view for _, view, _ in looked}, set(VIEWS))
        for name, view, seen in looked:
            with self.subTest(page=name, view=view):
                self.assertEqual(seen["violations"], [])
                self.assertGreater(seen["passes"], 20)

    def test_themes_are_what_was_asked_for(self):
        backgrounds = {view: seen["background"] for name, view, seen in self.each() if name == "tool-call"}
        self.assertEqual(len(set(backgrounds.values())), 3, backgrounds)
        self.assertEqual(backgrounds["print"], "rgb(255, 255, 255)")

    def test_fetches_nothing(self):
        for name, view, seen in self.each():
            with self.subTest(page=name, view=view):
                self.assertEqual(seen["requests"], [pathlib.Path(self.files[name]).as_uri()])
                self.assertEqual(seen["complaints"], [])
                self.assertEqual(seen["scripts"], 0)

    def test_grammar(self):
        for name, page in self.found.items():
            with self.subTest(page=name):
                self.assertEqual(page["grammar"], [])

    def test_keyboard_reaches_everything_in_order(self):
        for name, page in self.found.items():
            if "keyboard" not in page["light"]:
                continue
            with self.subTest(page=name):
                seen = page["light"]["keyboard"]
                self.assertGreater(len(seen["wanted"]), 5)
                self.assertEqual(seen["reached"], seen["wanted"])
                self.assertEqual(seen["unseen"], [], "focus that can't be seen")

    def test_fits_a_narrow_screen(self):
        for name, view, seen in self.each():
            if view == "narrow":
                with self.subTest(page=name):
                    self.assertLessEqual(seen["width"], 320)

    def test_paper_folds_nothing_away(self):
        self.assertGreater(self.found["tool-call"]["light"]["folded"], 0)
        for name, view, seen in self.each():
            if view == "print":
                with self.subTest(page=name):
                    self.assertEqual(seen["media"], ["print"])
                    self.assertEqual(seen["folded"], 0)

    def test_structure(self):
        for name, view, seen in self.each():
            with self.subTest(page=name, view=view):
                self.assertEqual(seen["lang"], "en")
                self.assertTrue(seen["title"])
                self.assertEqual(seen["tables"], 0, "tables without a caption, or heads without a scope")
                self.assertEqual(seen["headings"].count(1), 1)
                for before, after in zip([0] + seen["headings"], seen["headings"]):
                    self.assertLessEqual(after, before + 1)

    def test_contrast(self):
        """What axe leaves open (text on drawings, behind clipped tables) is settled by the palette itself."""
        found = palettes(self.text("tool-call"))
        for theme, c in found.items():
            with self.subTest(theme=theme):
                for ink in ("ink", "soft", "link", "denied", "allowed", "watched", "lost"):
                    for paper in ("paper", "raised", "watched-wash"):
                        self.assertGreaterEqual(contrast(c[ink], c[paper]), 4.5, (ink, paper))
                self.assertGreaterEqual(contrast(c["fill"], c["paper"]), 3)
                self.assertGreaterEqual(contrast(c["fill"], c["track"]), 3)
                self.assertGreaterEqual(contrast(c["denied"], c["track"]), 3)

    def test_hostile_text_is_text(self):
        """Every string of the record at once: no element, no attribute and no request more than ordinary pages have."""
        for name, ordinary in (("hostile", ("tool-call", "attached", "lost")), ("hostile-period", ("period",))):
            with self.subTest(page=name):
                seen = self.found[name]["light"]
                for what in ("tags", "attributes"):
                    known = {x for o in ordinary for x in self.found[o]["light"][what]}
                    self.assertLessEqual(set(seen[what]), known)
                self.assertIn(HOSTILE.replace("\u202e", "\\u{202e}").replace("\x1b", "\\u{1b}"), seen["text"])
                self.assertNotIn("\u202e", seen["text"])

    def test_names_on_the_wire_are_text(self):
        """Every name of the corpus of DNS queries is on the page as the record has it."""
        seen = self.found["corpus"]["light"]
        self.assertGreater(len(dns_corpus.CORPUS), 50)
        for label, _, text in dns_corpus.CORPUS:
            with self.subTest(query=label):
                if text is not None:
                    self.assertIn(text, seen["text"])
        self.assertLessEqual(set(seen["tags"]), set(self.found["tool-call"]["light"]["tags"]))


@unittest.skipUnless(browser(), "no Chromium here: deploy/install-packages report")
class Mistakes(unittest.TestCase):
    """The same looks at pages with a mistake in them: each is found, so a page without findings means something."""

    MISTAKES = [
        ("contrast", "--soft:#565d64", "--soft:#c9c9c9", "axe"),
        ("language", '<html lang="en">', "<html>", "axe"),
        ("landmark", "<main>", "<div>", "axe"),
        ("picture", 'aria-labelledby="chart-cpu chart-cpu-text">\n<title id="chart-cpu">CPU</title>', ">", "axe"),
        ("focus", ".wide:focus-visible{outline:3px", ".wide:focus-visible{outline:0 none;border:3px", "keyboard"),
        ("caption", "<caption>", "<caption hidden>"),
        ("tag", "<h1>", "<h1><b>", "grammar"),
        ("scope", '<th scope="col">Who</th>', "<th>Who</th>"),
        ("width", "<h1>", '<h1 class="keep">' + "x" * 90),
        ("picture from elsewhere", "<h1>", '<h1><img alt="" src="http://127.0.0.1:9/x.png">'),
        ("script", "<h1>", "<h1><script>document.title = 'evil'</script>"),
        ("style", "<h1>", '<h1 style="color:red">'),
    ]

    @classmethod
    def make_pages(cls, folder, text):
        pages = []
        for name, before, after, *wanted in cls.MISTAKES:
            assert before in text, before
            # A style that is another one has another digest: it may come, or nothing of it would be seen.
            changed = text.replace(before, after)
            if "--soft" in before or "outline" in before:
                changed = re.sub(r"style-src 'sha256-[^']*'", "style-src 'unsafe-inline'", changed)
            file = os.path.join(folder, "mistake-" + name.replace(" ", "-") + ".html")
            pathlib.Path(file).write_text(changed, encoding="utf-8")
            pages.append(page("mistake " + name, file, ["narrow" if name == "width" else "light"], **{w: True for w in wanted}))
        return pages

    @staticmethod
    def found(name):
        return FOUND["mistake " + name]

    def seen(self, name):
        return self.found(name)["narrow" if name == "width" else "light"]

    def test_accessibility(self):
        for name, rule in (("contrast", "color-contrast"), ("language", "html-has-lang"), ("landmark", "landmark-one-main"),
                           ("picture", "svg-img-alt")):
            with self.subTest(mistake=name):
                self.assertIn(rule, " ".join(self.seen(name)["axe"]["violations"]))

    def test_the_rest(self):
        self.assertNotEqual(self.seen("focus")["keyboard"]["unseen"], [])
        self.assertNotEqual(self.found("tag")["grammar"], [])
        self.assertGreater(self.seen("scope")["tables"], 0)
        self.assertGreater(self.seen("width")["width"], 320)

    def test_the_page_may_fetch_nothing(self):
        """What got into a page all the same can do nothing: the browser refuses it on the page's own word."""
        for name in ("picture from elsewhere", "script", "style"):
            with self.subTest(mistake=name):
                self.assertIn("Content Security Policy", " ".join(self.seen(name)["complaints"]))
        self.assertNotEqual(self.seen("script")["title"], "evil")
        self.assertEqual(len([r for r in self.seen("picture from elsewhere")["requests"] if "file:" in r]), 1)


@unittest.skipUnless(os.geteuid() == 0, "runs are root's")
class Command(unittest.TestCase):
    """`weir audit report` itself, on the record of a real run."""

    @classmethod
    def setUpClass(cls):
        cls.state = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.state.cleanup)
        # The record is an unprivileged user's, who has to get at it.
        os.chmod(cls.state.name, 0o755)
        done = weir("run", "--state-dir", cls.state.name, "--json", "-c", dns_corpus.snippet())
        cls.answer = json.loads(done.stdout)
        cls.run_id = cls.answer["run_id"]

    def report(self, *args):
        return weir("audit", "report", *args, "--state-dir", self.state.name)

    def test_one_run(self):
        done = self.report(self.run_id)
        self.assertEqual(done.returncode, 0, done.stderr)
        page = done.stdout.decode("utf-8")
        self.assertIn("<h1>%s</h1>" % self.run_id, page)
        count = self.answer["egress"]["attempts"]
        self.assertIn("%d attempts to reach the network, all denied by policy snippet. It ended by itself, exit code 0." % count, page)
        for label, _, text in dns_corpus.CORPUS:
            with self.subTest(query=label):
                if text is not None:
                    self.assertIn("<code>%s</code>" % text, page)

    def test_evidence_is_that_of_the_chain(self):
        page = self.report(self.run_id).stdout.decode("utf-8")
        facts = dict(re.findall(r"<div><dt>([^<]*)</dt><dd><code>([^<]*)</code></dd></div>", page.partition('id="evidence"')[2]))
        self.assertEqual(facts["Hash of the entry"], self.answer["audit_hash"])
        done = weir("audit", "verify", "--state-dir", self.state.name, "--expect", facts["Hash of the entry"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # The signature is over the hash, by the key that is named: somebody else's tool says so.
        key = os.path.join(self.state.name, "audit-key.pub")
        der = subprocess.run(["openssl", "pkey", "-pubin", "-in", key, "-outform", "DER"], stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(facts["Key’s SHA-256"], hashlib.sha256(der[-32:]).hexdigest())
        with tempfile.TemporaryDirectory() as folder:
            for name, fact in (("hash", "Hash of the entry"), ("signature", "Signature, bytes")):
                pathlib.Path(folder, name).write_bytes(bytes.fromhex(facts[fact]))
            done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key, "-rawin", "-in", os.path.join(folder, "hash"),
                                   "-sigfile", os.path.join(folder, "signature")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertIn(b"Signature Verified Successfully", done.stdout)
        with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % os.path.join(self.state.name, "audit", "audit.db"), uri=True)) as db:
            bodies = [b for b, in db.execute("SELECT body FROM record WHERE run = (SELECT id FROM run WHERE run_id = ?) ORDER BY seq", (self.run_id,))]
        digest = hashlib.sha256(b"".join(len(b.encode()).to_bytes(8, "big") + b.encode() for b in bodies)).hexdigest()
        self.assertEqual(facts["Digest over them"], digest)
        self.assertIn("<dt>Records</dt><dd>%s</dd>" % format(len(bodies), ","), page)

    def test_into_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            done = self.report(self.run_id, "-o", path)
            self.assertEqual((done.returncode, done.stdout), (0, b""), done.stderr)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            self.assertTrue(pathlib.Path(path).read_text(encoding="utf-8").endswith("</html>\n"))
            self.assertEqual(os.listdir(folder), ["page.html"])
            os.symlink(path, os.path.join(folder, "link"))
            self.assertEqual(self.report(self.run_id, "-o", os.path.join(folder, "link")).returncode, 1)

    def test_a_file_is_whole_or_as_it_was(self):
        """Whatever goes wrong: an earlier file keeps its content, and there is no empty one and no half of one."""
        for command in (["report", self.run_id], ["report", "--since", "1h"], ["export"]):
            with self.subTest(command=command[0]), tempfile.TemporaryDirectory() as folder:
                earlier = pathlib.Path(folder, "earlier")
                earlier.write_text("what was there")
                earlier.chmod(0o644)
                for name in ("earlier", "new"):
                    done = weir("audit", *command, "--state-dir", folder, "-o", os.path.join(folder, name))
                    self.assertEqual((done.returncode, done.stdout), (1, b""), done.stderr)
                    self.assertEqual((os.listdir(folder), earlier.read_text()), (["earlier"], "what was there"))
                done = weir("audit", *command, "--state-dir", self.state.name, "-o", str(earlier))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotEqual(earlier.read_text(), "what was there")
                self.assertEqual(earlier.stat().st_mode & 0o777, 0o600)
                self.assertEqual(os.listdir(folder), ["earlier"])

    def test_no_room_for_the_file(self):
        """A disk that is full in the midst of it: one of two pages, of which an earlier file has one."""
        script = """mount -t tmpfs -o size=8k tmpfs "$1" && cd "$1" && printf 'what was there' > earlier || exit
                    for name in earlier new; do
                        "$2" audit export --state-dir "$3" -o $name
                        echo $? $(ls -A) $(cat earlier)
                    done"""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", folder, WEIR, self.state.name],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.stdout.decode(), "1 earlier what was there\n" * 2, done.stderr)
        self.assertEqual(done.stderr.count(b"No space left on device"), 2, done.stderr)

    def test_interrupted_while_it_writes(self):
        """A signal to the process that was started ends the one that writes, and nothing is left."""
        with tempfile.TemporaryDirectory() as folder, \
                contextlib.closing(sqlite3.connect(os.path.join(self.state.name, "audit", "audit.db"), isolation_level=None)) as db:
            # Whoever reads has to wait.
            db.execute("PRAGMA locking_mode=EXCLUSIVE")
            db.execute("BEGIN EXCLUSIVE")
            process = subprocess.Popen([WEIR, "audit", "report", "--since", "1h", "--state-dir", self.state.name, "-o", os.path.join(folder, "page.html")],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            while not os.listdir(folder) and process.poll() is None:
                time.sleep(0.005)
            process.terminate()
            _, complaints = process.communicate(timeout=60)
            self.assertEqual(process.returncode, -signal.SIGTERM, complaints)
            self.assertEqual(os.listdir(folder), [])
            db.execute("ROLLBACK")

    def test_a_pipe_is_written_to_as_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pipe")
            os.mkfifo(path)
            reader = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
            self.assertEqual(self.report(self.run_id, "-o", path).returncode, 0)
            self.assertTrue(reader.communicate(timeout=60)[0].endswith(b"</html>\n"))
            self.assertEqual(os.listdir(folder), ["pipe"])

    def changed(self):
        """A copy of the record in which the run's records are others."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        copy_of = os.path.join(folder.name, "copy")
        subprocess.run(["cp", "-a", self.state.name, copy_of], check=True)
        with contextlib.closing(sqlite3.connect(os.path.join(copy_of, "audit", "audit.db"))) as db:
            db.execute("UPDATE record SET body = replace(body, 'snippet', 'sn1ppet')")
            db.commit()
        for name in os.listdir(os.path.join(copy_of, "audit")):
            shutil.chown(os.path.join(copy_of, "audit", name), os.stat(os.path.join(copy_of, "audit")).st_uid)
        return copy_of

    def test_the_record_is_checked(self):
        good = self.report(self.run_id).stdout.decode("utf-8")
        self.assertIn("nothing was found", good)
        self.assertNotIn("not what was written", good)
        copy_of = self.changed()
        for args in ([self.run_id], ["--since", "1h"]):
            with self.subTest(args=args):
                done = weir("audit", "report", *args, "--state-dir", copy_of)
                self.assertEqual(done.returncode, 0, done.stderr)
                page = done.stdout.decode("utf-8")
                self.assertIn("The record is not what was written", page)
                self.assertIn("<strong>changed</strong>, entry 1, run %s" % self.run_id, page)
                self.assertNotIn("Nothing is known to be missing", page)
        os.unlink(os.path.join(copy_of, "audit-key.pub"))
        page = weir("audit", "report", self.run_id, "--state-dir", copy_of).stdout.decode("utf-8")
        self.assertIn("was not checked when this page was made", page)

    def test_unknown_run(self):
        done = self.report("sandbox-nosuchrun")
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b'no record of "sandbox-nosuchrun"', done.stderr)

    def test_many_runs(self):
        done = self.report("--since", "1h")
        self.assertEqual(done.returncode, 0, done.stderr)
        page = done.stdout.decode("utf-8")
        self.assertIn("1 run made %d attempts to reach the network: %d denied, 0 allowed." % (2 * (self.answer["egress"]["attempts"],)), page)
        self.assertIn('href="#run-%s"' % self.run_id, page)
        self.assertIn('id="run-%s"' % self.run_id, page)

    def test_no_runs(self):
        done = self.report("--since", "1h", "--project", "nobody")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("No run of this time is on record", done.stdout.decode("utf-8"))
        self.assertNotIn("Nothing is known to be missing", done.stdout.decode("utf-8"))


if __name__ == "__main__":
    unittest.main()
