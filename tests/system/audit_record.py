# SPDX-License-Identifier: Apache-2.0
"""The record's files, for tests: copies of them, what may be done to a copy, and its hashes computed from the words of the documents."""
import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile

KEYS = ("audit-key.pub", "audit-head")


class Record:
    """A copy of what a state directory has of the record, in a directory that goes with the test."""

    def __init__(self, case, state):
        self.state = tempfile.mkdtemp(prefix="weir-test-record-")
        case.addCleanup(shutil.rmtree, self.state)
        self.put(state)

    def put(self, state):
        """In the place of what is there."""
        shutil.rmtree(self.dir, ignore_errors=True)
        subprocess.run(["cp", "-a", os.path.join(state, "audit"), self.dir], check=True)
        for name in KEYS:
            shutil.copy(os.path.join(state, name), self.state)

    @property
    def dir(self):
        return os.path.join(self.state, "audit")

    @property
    def file(self):
        return os.path.join(self.dir, "audit.db")

    @contextlib.contextmanager
    def sql(self):
        """A connection that writes; the files stay their owner's."""
        owner = os.stat(self.file)
        db = sqlite3.connect(self.file, isolation_level=None)
        try:
            yield db
        finally:
            db.close()
            for name in os.listdir(self.dir):
                os.chown(os.path.join(self.dir, name), owner.st_uid, owner.st_gid)

    def do(self, *statements):
        with self.sql() as db:
            for s in statements:
                done = db.execute(*s) if isinstance(s, tuple) else db.execute(s)
                assert done.rowcount != 0, s

    def rows(self, statement, *values):
        with self.sql() as db:
            return db.execute(statement, values).fetchall()

    def entries(self):
        return self.rows("SELECT n, kind, run_id, body, body_digest, before, hash, signature FROM chain ORDER BY n")

    def flip(self, table, column, where, bit=3):
        """One bit of one value; of a text's middle, so that it stays a text."""
        with self.sql() as db:
            ((value,),) = db.execute("SELECT %s FROM %s WHERE %s" % (column, table, where)).fetchall()
            text = isinstance(value, str)
            data = bytearray(value.encode() if text else value)
            at = data.index(b'"', len(data) // 2) + 1 if text else len(data) // 2
            data[at] ^= 1 if text else 1 << bit
            db.execute("UPDATE %s SET %s = ? WHERE %s" % (table, column, where), (data.decode() if text else bytes(data),))


def chain_hash(n, before, body_digest):
    return hashlib.sha256(b"weir-audit-chain-1\0" + n.to_bytes(8, "big") + before + body_digest).digest()


def records_digest(bodies):
    all_of_them = hashlib.sha256()
    for body in bodies:
        all_of_them.update(len(body.encode()).to_bytes(8, "big") + body.encode())
    return all_of_them.hexdigest()


def dumps(body):
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


class Key:
    """A key of its own, by another program than Weir's."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "test-key.pem")
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.path], check=True, capture_output=True)

    def public(self, path):
        subprocess.run(["openssl", "pkey", "-in", self.path, "-pubout", "-out", path], check=True)

    def sign(self, digest):
        with tempfile.NamedTemporaryFile() as f:
            f.write(digest)
            f.flush()
            return subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.path, "-in", f.name], check=True, stdout=subprocess.PIPE).stdout


def signature_fits(public, digest, signature):
    with tempfile.NamedTemporaryFile() as d, tempfile.NamedTemporaryFile() as s:
        d.write(digest)
        d.flush()
        s.write(signature)
        s.flush()
        return subprocess.run(["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", public, "-in", d.name, "-sigfile", s.name], capture_output=True).returncode == 0
