# SPDX-License-Identifier: Apache-2.0
"""`weir audit verify`: a record that nobody touched is intact, and each thing that can be done to one is found and told apart."""
import concurrent.futures
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest

from audit_record import Key, Record, chain_hash, dumps, records_digest, signature_fits
from lib import Service, weir

ATTEMPT = """
import socket
for i in range(3):
    try: socket.create_connection(("192.0.2.%d" % i, 443), 1)
    except OSError: pass
print("done")
"""


def verify(state, *options):
    """Status and what --json prints."""
    done = weir("audit", "verify", "--json", "--state-dir", state, *options)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()


def setUpModule():
    """Two states of one record: `early` is what it was at a stop in the middle."""
    for name in ("state", "early"):
        setattr(Case, name, tempfile.mkdtemp(prefix="weir-test-state-"))
        unittest.addModuleCleanup(shutil.rmtree, getattr(Case, name))
    Case.answers = serve(Case.state, 3)
    subprocess.run(["cp", "-a", Case.state + "/.", Case.early], check=True)
    Case.answers += serve(Case.state, 4)


def serve(state, count):
    with Service(state=state, pool=1) as service:
        answers = [service.run(ATTEMPT) for _ in range(count)]
        # While it runs, too.
        status, report = verify(state, "--expect", answers[-1]["audit_hash"])
        if status != 0 or report["expected"][0]["run_id"] != answers[-1]["run_id"]:
            raise AssertionError(report)
    return answers


class Case(unittest.TestCase):
    def setUp(self):
        self.record = Record(self, self.state)

    def verify(self, *options):
        return verify(self.record.state, *options)

    def found(self, *expected, n=None, options=()):
        """Exactly these kinds; with n, the first finding is of that entry."""
        status, report = self.verify(*options)
        kinds = sorted({f["kind"] for f in report["findings"]})
        self.assertEqual(kinds, sorted(set(expected)), report["findings"])
        self.assertEqual((status, report["intact"]), (1, False) if expected else (0, True))
        if n:
            self.assertEqual(report["findings"][0]["n"], n, report["findings"])
        return report

    def logged(self, service, text):
        deadline = time.monotonic() + 20
        while text not in service.log_text():
            self.assertLess(time.monotonic(), deadline, service.log_text())
            time.sleep(0.05)

    def notes(self, report):
        return sorted({n["kind"] for n in report["notes"]})


class Untouched(Case):
    def test_is_intact(self):
        report = self.found()
        self.assertGreaterEqual(report["entries"], len(self.answers))
        self.assertEqual(report["signed"], report["entries"])
        self.assertEqual(report["notes"], [])
        self.assertEqual((report["first"], report["last"]["n"], report["head"]["n"]), (1, report["entries"], report["entries"]))
        self.assertEqual(report["last"]["hash"], report["head"]["hash"])
        self.assertGreaterEqual(report["runs"], len(self.answers))

    def test_in_words(self):
        done = weir("audit", "verify", "--state-dir", self.record.state)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"Nothing was found", done.stdout)
        self.assertIn(b"What this can't tell:\n  - who is root on this host", done.stdout)

    def test_by_another_program(self):
        """Hashes, digests and signatures, computed from what the documents say."""
        before = bytes(32)
        for n, kind, run_id, body, digest, told_before, told, signature in self.record.entries():
            self.assertEqual(digest, hashlib.sha256(body.encode()).digest())
            self.assertEqual(told_before, before)
            before = chain_hash(n, before, digest)
            self.assertEqual(told, before)
            self.assertTrue(signature_fits(self.record.state + "/audit-key.pub", told, signature))
            self.assertEqual(body, dumps(json.loads(body)) if kind != "run" else body)
            if kind == "run":
                bodies = [b for (b,) in self.record.rows("SELECT body FROM record WHERE run = (SELECT id FROM run WHERE run_id = ?) ORDER BY seq", run_id)]
                self.assertEqual((json.loads(body)["records"], json.loads(body)["records_sha256"]), (len(bodies), records_digest(bodies)))
        read = subprocess.run(["openssl", "pkey", "-pubin", "-in", self.record.state + "/audit-key.pub", "-text", "-noout"], stdout=subprocess.PIPE)
        self.assertIn(b"ED25519 Public-Key", read.stdout)

    def test_answers_carry_hashes_of_the_record(self):
        hashes = {run_id: h.hex() for _, _, run_id, _, _, _, h, _ in self.record.entries()}
        for a in self.answers:
            self.assertEqual(hashes[a["run_id"]], a["audit_hash"])
            report = self.found(options=("--expect", a["audit_hash"].upper()))
            self.assertEqual(report["expected"][0]["run_id"], a["run_id"])
        report = self.found(options=("--expect", self.answers[0]["audit_hash"], "--expect", self.answers[1]["audit_hash"]))
        self.assertEqual([x["run_id"] for x in report["expected"]], [a["run_id"] for a in self.answers[:2]])
        self.found("expected-missing", options=("--expect", "0" * 64, "--expect", self.answers[1]["audit_hash"]))
        report = self.found("expected-missing", options=("--expect", "0" * 64))
        self.assertIn("0" * 64, report["findings"][0]["text"])

    def test_since(self):
        report = self.found(options=("--since", "1h"))
        self.assertEqual((report["notes"], report["runs"] > 0), ([], True))
        report = self.found(options=("--since", "2100-01-01"))
        self.assertEqual((self.notes(report), report["runs"]), (["skipped"], 0))

    def test_read_only_copy(self):
        """Root's, and nobody can write there: read by nobody in particular."""
        subprocess.run(["chown", "-R", "0:0", self.record.state], check=True)
        os.chmod(self.record.dir, 0o755)
        os.chmod(self.record.file, 0o444)
        os.chmod(self.record.state, 0o755)
        self.assertEqual(self.notes(self.found()), ["copy"])

    def test_root_does_not_read_it(self):
        os.chown(self.record.file, 0, 0)
        self.refused()

    def refused(self):
        """It can't be read, and that is all that is said of it: not that it is gone, and what to do."""
        for command in (("verify",), ("ls",), ("show", self.answers[0]["run_id"])):
            done = weir("audit", *command, "--state-dir", self.record.state)
            self.assertEqual((done.returncode, done.stdout), (2 if command[0] == "verify" else 1, b""), command)
            self.assertRegex(done.stderr.decode(), r"can't read .*/audit: Permission denied: .*chown -R \d+:\d+ ")

    def test_a_copy_of_roots(self):
        subprocess.run(["chown", "-R", "0:0", self.record.state], check=True)
        self.refused()
        os.unlink(self.record.state + "/audit-head")
        self.refused()
        # As it says.
        said = weir("audit", "verify", "--state-dir", self.record.state).stderr.decode()
        subprocess.run(said[said.index("chown") :].split(), check=True)
        self.found()

    def test_with_a_public_key_alone(self):
        os.rename(self.record.state + "/audit-key.pub", self.record.state + "/other")
        status, text = self.verify()
        self.assertEqual(status, 2, text)
        self.assertIn("--public-key", text)
        self.found(options=("--public-key", self.record.state + "/other"))
        os.unlink(self.record.state + "/audit-head")
        self.assertEqual(self.notes(self.found(options=("--public-key", self.record.state + "/other"))), ["no-head"])

    def test_no_record(self):
        with tempfile.TemporaryDirectory(prefix="weir-test-none-") as nothing:
            self.assertEqual(verify(nothing)[0], 2)

    def test_killed_while_it_writes(self):
        """SIGKILL of every process in the middle of many runs: what was answered is there, signed at the latest by the next start."""
        answers = []

        def run(service):
            while True:
                try:
                    answers.append(service.run("print(1)"))
                except (OSError, AssertionError, ValueError):
                    return
                except Exception:
                    return

        with tempfile.TemporaryDirectory(prefix="weir-test-state-") as state:
            service = Service(state=state, pool=2)
            try:
                with concurrent.futures.ThreadPoolExecutor(3) as pool:
                    for _ in range(3):
                        pool.submit(run, service)
                    while len(answers) < 15:
                        time.sleep(0.01)
                    service.kill9()
            finally:
                service.stop()
            status, report = verify(state)
            # Nobody lives who would have the newest ones signed, and nobody can tell who wrote them.
            self.assertLessEqual({f["kind"] for f in report["findings"]}, {"unsigned"}, report["findings"])
            self.assertEqual(status, 1 if report["findings"] else 0)
            with Service(state=state, pool=1) as service:
                service.run("print(2)")
            status, report = verify(state, *[o for a in answers[-20:] for o in ("--expect", a["audit_hash"])])
            self.assertEqual((status, report["findings"]), (0, []))
            self.assertLessEqual(set(self.notes(report)), {"adopted"})
            self.assertEqual(report["signed"] + report["adopted"], report["entries"])


class Entries(Case):
    """What can be done to the chain's own table."""

    def test_a_bit_of_each_column(self):
        rows = {"body": "changed", "body_digest": "changed", "before": "changed", "hash": "changed", "signature": "bad-signature"}
        for column, kind in rows.items():
            for n in (1, 3, len(self.record.entries())):
                with self.subTest(column=column, n=n):
                    self.record.put(self.state)
                    self.record.flip("chain", column, "n = %d" % n)
                    report = self.found(kind, n=n)
                    self.assertEqual(len(report["findings"]), 1, report["findings"])

    def test_kind_and_run(self):
        self.record.do("UPDATE chain SET kind = 'prune' WHERE n = 3")
        self.found("changed", n=3)
        self.record.put(self.state)
        self.record.do("UPDATE chain SET run_id = 'sandbox-other' WHERE n = 3")
        self.found("changed", "inserted", n=3)  # and the run that was its is nobody's

    def test_a_changed_text_with_its_hashes(self):
        """All but the signature, which takes the key."""
        _, _, _, body, _, before, _, _ = self.record.entries()[2]
        body = dumps(dict(json.loads(body), exit_code=99))
        digest = hashlib.sha256(body.encode()).digest()
        self.record.do(("UPDATE chain SET body = ?, body_digest = ?, hash = ? WHERE n = 3", (body, digest, chain_hash(3, before, digest))))
        report = self.found("bad-signature", "changed")
        self.assertEqual({f["n"] for f in report["findings"]}, {3})
        self.record.do("UPDATE chain SET signature = NULL WHERE n = 3")
        self.assertEqual({f["n"] for f in self.found("changed", "unsigned")["findings"]}, {3})

    def test_signatures_gone(self):
        """Of one, of the newest, of all: what is signed once stays signed, with the head or without."""
        last = len(self.record.entries())
        for which, count in (("n = 3", 1), ("n = %d" % last, 1), ("n > 0", last)):
            self.record.put(self.state)
            self.record.do("UPDATE chain SET signature = NULL WHERE " + which)
            self.assertEqual(len(self.found("unsigned")["findings"]), count)
            os.unlink(self.record.state + "/audit-head")
            self.found("unsigned")

    def test_a_row_gone(self):
        self.record.do("DELETE FROM chain WHERE n = 3")
        self.assertEqual(len(self.found("removed", n=3)["findings"]), 1)
        self.record.do("DELETE FROM chain WHERE n = 1")
        self.assertEqual([f["n"] for f in self.found("removed")["findings"]], [1, 3])

    def test_numbers_beyond_all_reason(self):
        self.record.do("UPDATE chain SET n = 9223372036854775807 WHERE n = 3")
        self.found("changed", "removed")
        self.record.put(self.state)
        self.record.do("UPDATE chain SET n = -3 WHERE n = 3")
        self.found("changed", "removed")

    def test_a_text_gone(self):
        self.record.do("UPDATE chain SET body = NULL WHERE n = 3")
        self.found("removed", n=3)

    def test_two_exchanged(self):
        self.record.do("UPDATE chain SET n = -1 WHERE n = 3", "UPDATE chain SET n = 3 WHERE n = 5", "UPDATE chain SET n = 5 WHERE n = -1")
        report = self.found("reordered", n=3)
        self.assertEqual([(f["n"], f["text"]) for f in report["findings"]], [(3, "here is what was entry 5"), (5, "here is what was entry 3")])

    def test_two_texts_exchanged(self):
        bodies = {n: body for n, _, _, body, *_ in self.record.entries()}
        self.record.do(*[("UPDATE chain SET body = ? WHERE n = ?", (bodies[a], b)) for a, b in ((3, 4), (4, 3))])
        report = self.found("reordered", n=3)
        self.assertEqual([f["text"] for f in report["findings"]], ["its text is that of entry 4", "its text is that of entry 3"])

    def test_the_end_gone(self):
        last = len(self.record.entries())
        self.record.do("DELETE FROM chain WHERE n > %d" % (last - 2))
        report = self.found("truncated", n=last - 1)
        self.assertIn("entries %d to %d were here" % (last - 1, last), report["findings"][0]["text"])
        # And the count that the database keeps of its rows as well: then the keeper of the key knows.
        self.record.do("UPDATE sqlite_sequence SET seq = %d WHERE name = 'chain'" % (last - 2))
        self.found("rolled-back", n=last - 1)

    def test_another_end(self):
        n, _, _, body, _, before, _, _ = self.record.entries()[-1]
        body = dumps(dict(json.loads(body), exit_code=99))
        digest = hashlib.sha256(body.encode()).digest()
        self.record.do(("UPDATE chain SET body = ?, body_digest = ?, hash = ?, signature = NULL WHERE n = ?", (body, digest, chain_hash(n, before, digest), n)))
        self.found("rolled-back", "unsigned", "changed", n=n)

    def test_all_of_it_gone(self):
        self.record.do("DELETE FROM chain")
        self.found("truncated", n=1)


class Runs(Case):
    """What entries vouch for."""

    def setUp(self):
        super().setUp()
        self.run_id = self.answers[2]["run_id"]
        ((self.row, self.n),) = self.record.rows("SELECT id, chain_n FROM run WHERE run_id = ?", self.run_id)
        self.of = "seq = (SELECT %%s(seq) FROM record WHERE run = %d)" % self.row

    def test_a_bit_of_a_record(self):
        self.record.flip("record", "body", self.of % "max")
        report = self.found("changed", n=self.n)
        self.assertEqual(report["findings"][0]["run_id"], self.run_id)

    def test_a_record_gone(self):
        for which in ("min", "max"):
            self.record.put(self.state)
            self.record.do("DELETE FROM record WHERE " + self.of % which)
            self.found("removed", n=self.n)

    def test_two_records_exchanged(self):
        (a,), (b,) = self.record.rows("SELECT seq FROM record WHERE run = ? ORDER BY seq LIMIT 2", self.row)
        self.record.do("UPDATE record SET seq = -1 WHERE seq = %d" % a, "UPDATE record SET seq = %d WHERE seq = %d" % (a, b), "UPDATE record SET seq = %d WHERE seq = -1" % b)
        self.found("changed", n=self.n)

    def test_a_record_more(self):
        """One behind the others that the writer has counted is late; one that it has not, or of a kind that there is once, is not."""
        more = "INSERT INTO record (run, type, time_ns, body) SELECT run, type, time_ns, body FROM record WHERE run = %d AND type = '%%s'" % self.row
        self.record.do(more % "flow LIMIT 1".replace(" LIMIT 1", "' LIMIT 1 --"))
        self.found("inserted", n=self.n)
        self.record.do("UPDATE run SET records = records + 1, late = late + 1 WHERE id = %d" % self.row)
        report = self.found()
        self.assertEqual((self.notes(report), report["unvouched"]["late"]), (["late"], 1))
        self.record.do("UPDATE record SET seq = -1 WHERE " + self.of % "max")
        self.found("inserted", n=self.n)

    def test_another_end(self):
        """Whatever stands behind a run's sum: it is found, and shown beside what was summed up, not in its place."""
        for kind in ("run_begin", "run_end", "content"):
            with self.subTest(kind):
                self.record.put(self.state)
                ((body,),) = self.record.rows("SELECT body FROM record WHERE run = ? AND type = ?", self.row, kind)
                body = dumps(dict(json.loads(body), end="timeout", attempts=0, denied=0, exit_code=7, policy="other", content={}))
                self.record.do(("INSERT INTO record (run, type, time_ns, body) SELECT run, type, time_ns, ? FROM record WHERE run = ? AND type = ?", (body, self.row, kind)),
                               "UPDATE run SET records = records + 1, late = late + 1 WHERE id = %d" % self.row)  # fmt: skip
                self.found("inserted", n=self.n)
                shown = json.loads(weir("audit", "show", "--json", self.run_id, "--state-dir", self.record.state).stdout)
                self.assertEqual((shown["egress"]["attempts"], shown["egress"]["denied"], shown["exit_code"], shown["termination"]["reason"]), (3, 3, 0, "exit"))
                self.assertEqual((shown["policy"], shown["content"]["code"]["bytes"]), ("snippet", len(ATTEMPT)))
                self.assertEqual([r["type"] for r in shown["late"]], [kind])
                lines = [json.loads(line) for line in weir("audit", "export", "--state-dir", self.record.state).stdout.splitlines()]
                self.assertEqual([r["type"] for r in lines if r.get("late")], [kind])

    def test_the_run_gone(self):
        self.record.do("DELETE FROM record WHERE run = %d" % self.row, "DELETE FROM run WHERE id = %d" % self.row)
        self.found("removed", "inserted", "changed", n=self.n)  # with destinations of nobody, and a project's sum
        self.record.do("DELETE FROM destination WHERE run = %d" % self.row, "UPDATE project SET bytes = (SELECT sum(bytes) FROM run WHERE project = project.id)")
        self.found("removed", n=self.n)
        self.record.put(self.state)
        self.record.do("DELETE FROM run WHERE id = %d" % self.row)
        self.found("removed", "inserted", "changed", n=self.n)

    def changed(self, table, column, where):
        """Each way in which a column can be another: of another value, and of another kind."""
        self.record.put(self.state)
        values = ["%s || 'x'" % column, "x'ff00'"]
        if column.endswith("_ns") or self.record.rows("SELECT typeof(%s) FROM %s WHERE %s" % (column, table, where))[0][0] in ("integer", "null"):
            values = ["coalesce(%s, 0) + 1" % column, "x'31'", "'1x'"]
        for value in values:
            with self.subTest(table=table, column=column, value=value):
                self.record.put(self.state)
                try:
                    self.record.do("UPDATE %s SET %s = %s WHERE %s" % (table, column, value, where))
                except sqlite3.IntegrityError:
                    continue  # nobody can
                status, report = self.verify()
                self.assertEqual((status, report["intact"]), (1, False))

    def test_each_column_of_each_table(self):
        """Whatever the schema has: another column that is written down is one that is compared."""
        rows = {"run": "id = %d" % self.row, "record": self.of % "max", "destination": "run = %d AND address = '192.0.2.1'" % self.row,
                "project": "id = (SELECT project FROM run WHERE id = %d)" % self.row, "meta": "key = 'pruned_runs'"}  # fmt: skip
        for table, where in rows.items():
            for _, column, *_ in self.record.rows("PRAGMA table_info(%s)" % table):
                self.changed(table, '"%s"' % column, where)
        for column in ("seq", "type", "time_ns", "body"):
            self.changed("record", column, "seq = (SELECT max(seq) FROM record WHERE run IS NULL AND type = 'start')")
        self.changed("policy", "hash", "hash = (SELECT min(hash) FROM policy)")

    def test_destinations(self):
        self.record.do("DELETE FROM destination WHERE run = %d AND address = '192.0.2.1'" % self.row)
        self.found("removed", n=self.n)
        self.record.put(self.state)
        self.record.do("INSERT INTO destination SELECT run, verdict, '192.0.2.99', name, mirrored FROM destination WHERE run = %d LIMIT 1" % self.row)
        self.found("inserted", n=self.n)
        self.record.put(self.state)
        self.record.do("DELETE FROM destination")
        self.found("removed")

    def test_forged_runs(self):
        columns = "sandbox_id, kind, began_ns, ended_ns, state, project, policy, records"
        for name, claim, kinds in (("NULL", "NULL", ("inserted",)), ("NULL", "777", ("inserted",)), ("NULL", "1", ("inserted",))):
            self.record.put(self.state)
            self.record.do("INSERT INTO run (run_id, %s, chain_n) SELECT 'forged', %s, %s FROM run WHERE id = %d" % (columns, columns, claim, self.row))
            self.found(*kinds)
        self.record.put(self.state)
        self.record.do("INSERT INTO run (run_id, %s) SELECT CAST(run_id AS BLOB), %s FROM run WHERE id = %d" % (columns, columns, self.row))
        self.found("inserted")
        # With a record of its own, long ago: entries were made since, and it has none.
        self.record.put(self.state)
        self.record.do("INSERT INTO run (run_id, %s) SELECT 'forged', %s FROM run WHERE id = %d" % (columns, columns, self.row),
                       "UPDATE run SET records = 1, ended_ns = ended_ns - 3600000000000 WHERE run_id = 'forged'",
                       "INSERT INTO record (run, type, time_ns, body) SELECT (SELECT id FROM run WHERE run_id = 'forged'), type, time_ns, body FROM record WHERE type = 'run_begin' LIMIT 1")  # fmt: skip
        self.found("inserted")
        # Just now: nobody can tell, and that is said.
        self.record.do("UPDATE run SET state = 'running', ended_ns = NULL WHERE run_id = 'forged'")
        report = self.found()
        self.assertEqual(report["unvouched"]["running"], 1)
        self.assertIn(b"Under no hash: 1 runs that go on", weir("audit", "verify", "--state-dir", self.record.state).stdout)

    def test_a_row_that_is_no_text_hides_no_others(self):
        self.record.do("UPDATE run SET policy = x'ff1b' WHERE id = %d" % self.row)
        done = weir("audit", "ls", "--json", "--state-dir", self.record.state)
        self.assertEqual((done.returncode, len(json.loads(done.stdout)["runs"]) >= len(self.answers)), (0, True), done.stderr)

    def test_records_of_nobody(self):
        ((first, last),) = self.record.rows("SELECT min(seq), max(seq) FROM record WHERE run IS NULL")
        self.record.flip("record", "body", "seq = %d" % first)
        self.found("changed")
        self.record.put(self.state)
        self.record.do("DELETE FROM record WHERE seq = %d" % last)
        self.found("removed")
        self.record.put(self.state)
        self.record.do("INSERT INTO record (seq, type, time_ns, body) SELECT -5, type, time_ns, body FROM record WHERE seq = %d" % first)
        self.found("inserted")
        self.record.put(self.state)
        self.record.do("INSERT INTO record (type, time_ns, body) SELECT type, time_ns, body FROM record WHERE seq = %d" % first)
        self.assertEqual(self.found()["unvouched"]["records"], 1)  # behind the last entry: no number and no digest tells

    def test_a_policys_document(self):
        self.record.flip("policy", "text", "hash = (SELECT min(hash) FROM policy)")
        self.found("changed")
        for gone in ("DELETE FROM policy", "UPDATE policy SET text = NULL"):
            self.record.put(self.state)
            self.record.do(gone)
            self.found("removed")

    def test_schema(self):
        for change, kind in (("CREATE TRIGGER t AFTER INSERT ON record BEGIN DELETE FROM record; END", "inserted"), ("CREATE VIEW v AS SELECT 1", "inserted"),
                             ("DROP INDEX run_policy", "changed"), ("CREATE INDEX more ON run(kind)", "inserted"), ("ALTER TABLE run ADD more", "changed")):  # fmt: skip
            with self.subTest(change):
                self.record.put(self.state)
                with self.record.sql() as db:
                    db.execute(change)
                self.found(kind)
                done = weir("audit", "ls", "--state-dir", self.record.state)
                self.assertEqual(done.returncode, 1)
                self.assertIn(b"are not those that this Weir makes", done.stderr)


class Whole(Case):
    """What can be done to the files."""

    def test_an_older_copy(self):
        shutil.copy(self.record.state + "/audit-head", self.record.state + "/newest")
        self.record.put(self.early)
        os.replace(self.record.state + "/newest", self.record.state + "/audit-head")
        report = self.found("rolled-back")
        self.assertEqual(report["findings"][0]["n"], report["entries"] + 1)
        # Where nobody remembers, a hash that a client kept does.
        os.unlink(self.record.state + "/audit-head")
        self.found(options=("--expect", self.answers[0]["audit_hash"]))
        self.found("expected-missing", options=("--expect", self.answers[-1]["audit_hash"]))

    def test_another_key(self):
        Key(self.record.state).public(self.record.state + "/audit-key.pub")
        self.found("other-key")
        os.unlink(self.record.state + "/audit-head")
        self.found("other-key")
        self.record.do("DELETE FROM meta WHERE key = 'key_id'")
        report = self.found("other-key")
        self.assertEqual(len(report["findings"]), 1)
        self.record.put(self.state)
        self.record.do("DELETE FROM meta WHERE key = 'key_id'")
        self.found("changed")

    def test_the_name_of_another_key(self):
        """Before anything is signed with it."""
        self.record.do("UPDATE meta SET value = '%s' WHERE key = 'key_id'" % ("0" * 64))
        self.found("other-key")
        self.record.put(self.state)
        with open(self.record.state + "/audit-head") as f:
            self.assertEqual(f.read(18), "weir-audit-head 1 ")
        with Service(pool=1) as other:
            shutil.copy(other.state + "/audit-head", self.record.state)
        self.found("other-key")

    def test_cut_off(self):
        size = os.path.getsize(self.record.file)
        os.truncate(self.record.file, size // 2 // 4096 * 4096)
        status, report = self.verify()
        self.assertEqual(status, 1)
        self.assertIn("damaged", {f["kind"] for f in report["findings"]}, report)

    def test_a_page_of_noise(self):
        with open(self.record.file, "r+b") as f:
            f.seek(os.path.getsize(self.record.file) // 2 // 4096 * 4096)
            f.write(os.urandom(4096))
        status, report = self.verify()
        self.assertEqual(status, 1)
        self.assertIn("damaged", {f["kind"] for f in report["findings"]}, report)

    def test_no_database(self):
        with open(self.record.file, "r+b") as f:
            f.write(b"not a database at all" * 10)
        self.found("damaged")
        os.unlink(self.record.file)
        self.found("removed")

    def test_a_service_finds_it_and_goes_on(self):
        """What was cut off before a start is a break from then on, signed and told in the log."""
        with tempfile.TemporaryDirectory(prefix="weir-test-state-") as state:
            subprocess.run(["cp", "-a", self.state + "/.", state], check=True)
            shutil.rmtree(state + "/audit")
            subprocess.run(["cp", "-a", self.early + "/audit", state], check=True)
            with Service(state=state, pool=1) as service:
                answer = service.run("print(1)")
                self.logged(service, "the record's chain was signed up to n=7, and what is there now is not that")
            status, report = verify(state, "--expect", answer["audit_hash"])
            self.assertEqual((status, {f["kind"] for f in report["findings"]}), (1, {"broken"}), report)
            self.assertIn("it had been signed up to n=7 and ended at n=3", report["findings"][0]["text"])
            self.assertEqual(report["signed"], report["entries"])


class Fabricated(Case):
    """A record of this test's own making: what a real one has only after weeks."""

    def fabricate(self, bodies, signed=lambda n: True):
        """In the place of the real one's chain: entries with these texts, and a key of its own."""
        key = Key(self.record.state)
        before, rows = bytes(32), []
        for n, body in enumerate(bodies, 1):
            digest = hashlib.sha256(dumps(body).encode()).digest()
            h = chain_hash(n, before, digest)
            rows.append((n, body["kind"], dumps(body), digest, before, h, key.sign(h) if signed(n) else None))
            before = h
        self.record.put(self.state)
        key.public(self.record.state + "/audit-key.pub")
        os.unlink(self.record.state + "/audit-head")
        read = subprocess.run(["openssl", "pkey", "-pubin", "-in", self.record.state + "/audit-key.pub", "-outform", "DER"], check=True, stdout=subprocess.PIPE).stdout
        self.record.do(("UPDATE meta SET value = ? WHERE key = 'key_id'", (hashlib.sha256(read[-32:]).hexdigest(),)), "UPDATE meta SET value = 0 WHERE key <> 'key_id' AND key <> 'schema'",
                       "DELETE FROM chain", "DELETE FROM run", "DELETE FROM record", "DELETE FROM destination", "DELETE FROM project", "DELETE FROM sqlite_sequence",
                       *[("INSERT INTO chain (n, kind, body, body_digest, before, hash, signature, added_ns) VALUES (?, ?, ?, ?, ?, ?, ?, 0)", r) for r in rows])  # fmt: skip
        return rows

    def test_unsigned(self):
        self.fabricate([{"kind": "prune", "i": i} for i in range(140)], signed=lambda n: n in (139,))
        report = self.found("unsigned")
        self.assertEqual({f["n"] for f in report["findings"]}, set(range(1, 141)) - {139})
        self.assertEqual(self.notes(report), ["no-head"])
        os.unlink(self.record.state + "/audit-key.pub")
        self.record.do("UPDATE chain SET signature = NULL WHERE signature IS NOT NULL")
        self.assertEqual(len(self.found("unsigned")["findings"]), 1)

    def test_pruned_whole(self):
        """Entries whose rows are gone while older ones are still wanted."""
        bodies = [{"kind": "prune", "i": i} for i in range(8)]
        bodies += [{"kind": "prune", "entries": [[3, 4], [6, 7]]}, {"kind": "prune", "skeletons": [[3, 4], [6, 6]]}]
        self.fabricate(bodies)
        self.record.do("DELETE FROM chain WHERE n IN (3, 4, 6)", "UPDATE chain SET body = NULL WHERE n = 7")
        self.assertEqual(self.notes(self.found()), ["no-head", "pruned"])
        self.record.do("DELETE FROM chain WHERE n = 7")
        self.found("removed", n=7)
        self.record.do("DELETE FROM chain WHERE n IN (5, 8)")
        report = self.found("removed", n=5)
        self.assertIn("3 entries are gone from here to 8", report["findings"][0]["text"])

    def test_pruned(self):
        bodies = [{"kind": "prune", "i": i} for i in range(6)]
        rows = self.fabricate(bodies)
        bodies.append({"kind": "prune", "reason": "age", "entries": [[3, 4]], "prefix": 2, "prefix_hash": rows[1][5].hex(), "runs": 4})
        rows = self.fabricate(bodies)
        self.record.do("DELETE FROM chain WHERE n <= 2", "UPDATE chain SET body = NULL WHERE n IN (3, 4)")
        report = self.found(options=("--expect", rows[3][5].hex()))
        self.assertEqual((self.notes(report), report["expected"][0]["n"], report["expected"][0]["pruned_by"]), (["no-head", "pruned"], 4, 7))
        report = self.found("expected-missing", options=("--expect", rows[0][5].hex()))
        self.assertIn("as entry 7 says", report["findings"][0]["text"])
        # No more than what it says.
        self.record.do("UPDATE chain SET body = NULL WHERE n = 5")
        self.found("removed", n=5)
        self.record.do("DELETE FROM chain WHERE n = 3")
        self.assertEqual({f["n"] for f in self.found("removed")["findings"]}, {3, 5})


    def test_a_prune_that_nobody_signed(self):
        """It has removed nothing: what is gone was removed by somebody else."""
        prune = {"kind": "prune", "reason": "age", "entries": [[3, 4]], "prefix": 2, "runs": 4, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        bodies = [{"kind": "prune", "i": i} for i in range(6)]
        rows = self.fabricate(bodies)
        bodies.append(dict(prune, prefix_hash=rows[1][5].hex()))
        self.fabricate(bodies, signed=lambda n: n < 7)
        self.record.do("DELETE FROM chain WHERE n <= 2", "UPDATE chain SET body = NULL WHERE n IN (3, 4)")
        report = self.found("removed", "unsigned")
        self.assertEqual({f["n"] for f in report["findings"] if f["kind"] == "removed"}, {1, 3, 4})


class Forged(Case):
    """What somebody who has the database and not the key adds behind its end, and what a service makes of it."""

    def append(self, kind, body, n=None, run_id=None):
        last, *_, before, _ = self.record.entries()[-1]
        n, body = n or last + 1, dumps(dict(body, kind=kind, time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())))
        digest = hashlib.sha256(body.encode()).digest()
        self.record.do(("INSERT INTO chain VALUES (?, ?, ?, ?, ?, ?, ?, NULL, 0)", (n, kind, run_id, body, digest, before, chain_hash(n, before, digest))))
        return n

    def serve(self):
        for name in ("audit-key.pem",):
            shutil.copy(os.path.join(self.state, name), self.record.state)
        with Service(state=self.record.state, pool=1) as service:
            answer = service.run("print(1)")
            self.logged(service, "audit: the record's chain was signed up to n=")
            return answer, service.log_text()

    def test_a_prune_of_all(self):
        entries = self.record.entries()
        last = len(entries)
        self.append("prune", {"entries": [[1, last]], "prefix": last, "prefix_hash": entries[-1][6].hex(), "others_pruned": {"count": 9, "to": 10**9}})
        self.record.do("DELETE FROM chain WHERE n <= %d" % last, "DELETE FROM record", "DELETE FROM destination", "DELETE FROM run", "DELETE FROM project")
        self.found("removed", "unsigned")  # nobody is deceived before ..
        answer, _ = self.serve()
        status, report = self.verify("--expect", answer["audit_hash"])
        self.assertEqual(status, 1)  # .. or after
        self.assertLessEqual({"removed"}, {f["kind"] for f in report["findings"]})

    def test_a_prune_of_one(self):
        """The service takes the entry over, as nobody's, and what the entry says it removed is still what somebody removed."""
        run_id, n = self.answers[2]["run_id"], [e for e in self.record.entries() if e[2] == self.answers[2]["run_id"]][0][0]
        self.append("prune", {"entries": [[n, n]], "runs": 1, "records": 1, "bytes": 1})
        row = "(SELECT id FROM run WHERE run_id = '%s')" % run_id
        self.record.do("DELETE FROM record WHERE run = " + row, "DELETE FROM destination WHERE run = " + row, "DELETE FROM run WHERE run_id = '%s'" % run_id,
                       "UPDATE project SET bytes = (SELECT sum(bytes) FROM run WHERE project = project.id)", "UPDATE chain SET body = NULL WHERE n = %d" % n)  # fmt: skip
        answer, log = self.serve()
        self.assertIn("has entries beyond it that were there at this start", log)
        status, report = self.verify("--expect", answer["audit_hash"])
        self.assertEqual((status, {(f["kind"], f["n"]) for f in report["findings"]}), (1, {("removed", n)}), report["findings"])
        self.assertEqual(self.notes(report), ["adopted"])

    def test_a_number_that_nothing_can_follow(self):
        self.append("break", {"reason": "missing"}, n=2**63 - 1)
        answer, _ = self.serve()
        self.assertIsNotNone(answer["audit_hash"])
        status, report = self.verify("--expect", answer["audit_hash"])
        self.assertLess(report["last"]["n"], 100)
        self.assertEqual((status, {f["kind"] for f in report["findings"]}), (1, {"inserted"}), report["findings"])

    def test_many_wrong_entries(self):
        """Each of them is found in the time of one."""
        n, kind, _, body, digest, before, h, signature = self.record.entries()[-1]
        with self.record.sql() as db:
            db.execute("BEGIN")
            db.executemany("INSERT INTO chain VALUES (?, 'prune', NULL, ?, ?, ?, ?, NULL, 0)", [(i, body + " ", digest, before, h) for i in range(n + 1, n + 20001)])
            db.execute("COMMIT")
        status, report = self.verify()
        self.assertEqual((status, report["entries"], len(report["findings"])), (1, n + 20000, 500))
        self.assertGreater(report["findings_omitted"], 20000)


class Shown(Case):
    def test_show(self):
        shown = weir("audit", "show", self.answers[0]["run_id"], "--state-dir", self.record.state).stdout.decode()
        self.assertRegex(shown, r"\nchain    n=\d+, hash %s, signed\n" % self.answers[0]["audit_hash"])
        self.assertRegex(shown, r"\ncontent  code +%d bytes, SHA-256 %s\n" % (len(ATTEMPT), hashlib.sha256(ATTEMPT.encode()).hexdigest()))
        self.assertRegex(shown, r"\ncpu +[0-9.]+ ms by .*; [0-9.]+ ms by sched_process_exit; limit 100 % of a CPU\n")
        self.assertRegex(shown, r"\nrefused  \d+ system calls?\n")

    def test_ls(self):
        def ids(*options):
            return [r["run_id"] for r in json.loads(weir("audit", "ls", "--json", "--state-dir", self.record.state, *options).stdout)["runs"]]

        every = [a["run_id"] for a in self.answers]
        self.assertEqual([i for i in ids() if i in every], every)
        self.assertEqual(ids("--limit", "2"), ids()[-2:])
        self.assertEqual(ids("--verdict", "denied", "--end", "exit", "--project", "dev", "--since", "1h", "--destination", "192.0.2.1", "-n", "0"), every)
        for nothing in (("--verdict", "allowed"), ("--end", "memory"), ("--project", "other"), ("--until", "1h"), ("--destination", "192.0.2.77"), ("--policy", "x")):
            self.assertEqual(ids(*nothing), [], nothing)
        self.assertEqual(ids("--destination", "192.0.2.*"), every)

    def test_arguments(self):
        for bad in (("verify", "--limit", "1"), ("ls", "--expect", "0" * 64), ("ls", "--since", "soon"), ("show",), ("verify", "x"), ("verify", "--expect", "12"),
                    ("ls", "--destination", "10.0.0.0/8"), ("ls", "--destination", "a*b"), ("export", "--destination", "*exfil*"), ("ls", "--destination", "*"),
                    ("ls", "--verdict", "no"), ("ls", "--end", "no"), ("export", "--format", "xml"), ("report",), ("none",), ()):  # fmt: skip
            self.assertEqual(weir("audit", *bad, "--state-dir", self.record.state).returncode, 64, bad)


if __name__ == "__main__":
    unittest.main()
