# SPDX-License-Identifier: Apache-2.0
"""Names of denied DNS queries, whatever a program puts there: in the record, and over the API, as text that does nothing."""
import json
import os
import subprocess
import unittest

from dns_corpus import CORPUS, MALFORMED, address_of, snippet
from lib import WEIR, Service

LETTERS = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.\\@!?")
NAME_MAX = 1023  # characters: 255 bytes, each as four


class Names(unittest.TestCase):
    """One run sends the whole corpus; what is kept of it is asked for in each way there is."""

    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.service = Service()
        try:
            cls.answer = cls.service.run(snippet())
            cls.raw = cls.service.request("GET", "/v1/runs/%s/audit" % cls.answer["run_id"]).body
        except BaseException:
            cls.service.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def events(self, record):
        """One event for each row, by its address."""
        found = {}
        for event in record["events"]:
            self.assertNotIn(event["address"], found, event)
            found[event["address"]] = event
        self.assertEqual(sorted(found), sorted(address_of(i) for i in range(len(CORPUS))))
        return found

    def check(self, record):
        wrong = []
        events = self.events(record)
        for i, (label, _, text) in enumerate(CORPUS):
            event = events[address_of(i)]
            said = (event.get("dns_name"), bool(event.get("dns_malformed")))
            if said != (text, label in MALFORMED):
                wrong.append((label, text, said))
            if event["verdict"] != "denied" or event["count"] != 1:
                wrong.append((label, event["verdict"], event["count"]))
        self.assertEqual(wrong, [])

    def check_bytes(self, raw):
        """Nothing that moves a cursor, ends a line or is taken for markup; whatever the JSON escapes is not of a name."""
        self.assertTrue(raw.isascii())
        self.assertFalse([c for c in raw.decode() if c < " " and c != "\n"])
        for forbidden in (b"<script", b"\\u001b", b"\\u202e", b"\x1b"):
            self.assertNotIn(forbidden, raw)

    def test_all_were_refused(self):
        self.assertEqual((self.answer["stdout"], self.answer["stderr"]), ("%d\n" % len(CORPUS), ""))
        self.assertEqual(self.answer["egress"]["denied"], len(CORPUS))
        self.assertEqual(self.answer["egress"]["lost"], 0)

    def test_api(self):
        self.check_bytes(self.raw)
        self.check(json.loads(self.raw))

    def test_only_harmless_letters(self):
        for event in json.loads(self.raw)["events"]:
            name = event.get("dns_name") or ""
            self.assertLessEqual(set(name), LETTERS, event)
            self.assertLessEqual(len(name), NAME_MAX)

    def test_record(self):
        done = subprocess.run([WEIR, "audit", "show", self.answer["run_id"], "--json", "--state-dir", self.service.state],
                              capture_output=True, timeout=30)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.check_bytes(done.stdout)
        self.check(json.loads(done.stdout))

    def test_for_people(self):
        """What a terminal is given has the same text, and no byte that a terminal obeys."""
        done = subprocess.run([WEIR, "audit", "show", self.answer["run_id"], "--state-dir", self.service.state],
                              capture_output=True, timeout=30)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertFalse([b for b in done.stdout if b < 32 and b != 10 or b > 126])
        text = done.stdout.decode()
        self.assertEqual([t for _, _, t in CORPUS if t and len(t) > 3 and t not in text], [])

    def test_texts_tell_names_apart(self):
        """Rows with different bytes of a name have different texts: what is escaped can be undone."""
        texts = [text for _, _, text in CORPUS if text is not None]
        self.assertEqual(len(set(texts)), len(texts))


if __name__ == "__main__":
    unittest.main(verbosity=2)
