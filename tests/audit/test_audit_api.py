# SPDX-License-Identifier: Apache-2.0
"""GET /v1/audit, the stream and what answers say of the record: what is found, in pages, as it is written; what of a run is hashed
and what is stored; and that nothing of one project gets to another, by whatever route, id, cursor or hash."""
import base64
import hashlib
import json
import socket
import sqlite3
import time
import unittest
from datetime import datetime, timezone

from clients import Follower, Post, mint
from lib import TOKEN, Service

TRY = "import socket\ntry: socket.create_connection(('%s', %d))\nexcept OSError: pass"
ASK = "import socket\ntry: socket.getaddrinfo('%s', 1)\nexcept OSError: pass"


def sha256(*parts):
    return hashlib.sha256(b"".join(p if isinstance(p, bytes) else p.encode() for p in parts)).hexdigest()


class Found(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service()
        try:
            cls.tokens = {name: mint(cls.service, name) for name in ("alpha", "beta")}
            cls.reviewer = mint(cls.service, "sec", "--scope", "reviewer")
            cls.began = time.time()
            cls.runs = {
                "quiet": cls.run_as("alpha", "print(1)"),
                "address": cls.run_as("alpha", TRY % ("10.1.2.3", 81)),
                "name": cls.run_as("beta", ASK % "Secret.Example.com"),
                "late": cls.run_as("beta", "import time; time.sleep(9)", timeout_s=1),
            }
        except BaseException:
            cls.service.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    @classmethod
    def run_as(cls, project, code, **fields):
        answer = cls.service.request("POST", "/v1/execute", dict(fields, code=code), token=cls.tokens[project])
        if answer.status != 200:
            raise AssertionError(repr(answer))
        return answer.json()

    def find(self, query=""):
        answer = self.service.request("GET", "/v1/audit" + query, token=self.reviewer)
        self.assertEqual(answer.status, 200, answer)
        return answer.json()

    def named(self, query):
        """Which of our runs are found, by our names, newest first."""
        names = {run["run_id"]: name for name, run in self.runs.items()}
        return [names[row["run_id"]] for row in self.find(query)["runs"] if row["run_id"] in names]

    def test_what_is_found(self):
        moment = lambda s: datetime.fromtimestamp(s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        for query, names in (
            ("", ["late", "name", "address", "quiet"]),
            ("?project=alpha", ["address", "quiet"]),
            ("?project=none", []),
            ("?verdict=denied", ["name", "address"]),
            ("?verdict=allowed", []),
            ("?verdict=allowed,denied&project=beta", ["name"]),
            ("?end=timeout", ["late"]),
            ("?end=exit,timeout&project=beta", ["late", "name"]),
            ("?policy=snippet", ["late", "name", "address", "quiet"]),
            ("?policy=tool-call", []),
            ("?destination=10.1.2.3", ["address"]),
            ("?destination=10.1.*", ["address"]),
            ("?destination=secret.example.com", ["name"]),
            ("?destination=*.EXAMPLE.com", ["name"]),
            ("?destination=secret.*", ["name"]),
            ("?destination=*example.co", []),
            ("?since=" + moment(self.began - 5), ["late", "name", "address", "quiet"]),
            ("?since=" + moment(self.began + 3600), []),
            ("?until=" + moment(self.began - 5), []),
        ):
            with self.subTest(query=query):
                self.assertEqual(self.named(query), names)

    def test_calls_of_one_agent(self):
        self.assertEqual(self.find("?agent=nobody")["runs"], [])

    def test_a_run_takes_no_parameter(self):
        run = self.run_as("alpha", "1")["run_id"]
        for path in ("/v1/runs/" + run, "/v1/runs/" + run + "/audit"):
            answer = self.service.request("GET", path + "?nonsense=1", token=self.reviewer)
            self.assertEqual(answer.status, 400)
            self.assertIn('at "?nonsense": there is no such parameter here', answer.json()["error"]["message"])
            self.assertEqual(self.service.request("GET", path, token=self.reviewer).status, 200)

    def test_what_is_told(self):
        row = next(r for r in self.find("?destination=10.1.2.3")["runs"] if r["run_id"] == self.runs["address"]["run_id"])
        self.assertEqual(
            {k: row[k] for k in ("project", "agent", "kind", "state", "end", "policy", "attempts", "denied", "would_deny", "lost", "audit_hash")},
            {"project": "alpha", "agent": None, "kind": "run", "state": "ended", "end": "exit", "policy": "snippet", "attempts": 1, "denied": 1,
             "would_deny": 0, "lost": 0, "audit_hash": self.runs["address"]["audit_hash"]})
        record = self.service.request("GET", "/v1/runs/" + row["run_id"], token=self.reviewer).json()
        self.assertEqual((record["audit_hash"], record["chain"]["hash"]), (row["audit_hash"], row["audit_hash"]))

    def test_pages(self):
        ids, cursor = [], None
        for _ in range(100):
            page = self.find("?limit=1" + ("&cursor=%s" % cursor if cursor else ""))
            self.assertLessEqual(len(page["runs"]), 1)
            ids += [row["run_id"] for row in page["runs"]]
            cursor = page["next"]
            if cursor is None:
                break
        whole = [row["run_id"] for row in self.find()["runs"]]
        self.assertEqual(len(ids), len(set(ids)))
        ours = {run["run_id"] for run in self.runs.values()}
        self.assertEqual([i for i in ids if i in ours], [i for i in whole if i in ours])

    def test_parameters_that_make_no_sense(self):
        for path, where in (
            ("/v1/audit?since=yesterday", "?since"), ("/v1/audit?limit=0", "?limit"), ("/v1/audit?verdict=maybe", "?verdict"),
            ("/v1/audit?project=a&project=b", "?project"), ("/v1/audit?proiect=a", "?proiect"), ("/v1/audit?cursor='%20or%201=1", "?cursor"),
            ("/v1/audit?destination=a%00b", "?destination"), ("/v1/audit/stream?end=exit", "?end"), ("/v1/audit/stream?type=all", "?type"),
        ):
            with self.subTest(path=path):
                answer = self.service.request("GET", path, token=self.reviewer)
                self.assertEqual(answer.status, 400)
                self.assertIn('at "%s": ' % where, answer.json()["error"]["message"])

    # -- the stream --
    def test_stream(self):
        with Follower(self.service, "?project=alpha&verdict=denied", token=self.reviewer) as follower:
            self.assertEqual(follower.response.status, 200)
            self.assertIsNone(follower.event())  # a comment: it is heard
            time.sleep(0.3)
            self.run_as("beta", TRY % ("10.9.9.9", 5))
            self.run_as("alpha", "print(1)")
            mine = self.run_as("alpha", TRY % ("10.9.9.9", 6))
            number, kind, record = follower.next()
            self.assertEqual((kind, record["run_id"], record["address"], record["port"]), ("egress", mine["run_id"], "10.9.9.9", 6))
            self.assertEqual(number, str(record["seq"]))
        # From there on, by either way of saying it; and all of a run is told, in order.
        for query, headers in (("?after=%s" % number, {}), ("", {"Last-Event-ID": number})):
            with Follower(self.service, query, token=self.reviewer, headers=headers) as follower:
                seen = [follower.next("flow", "run_end", "content", "egress")[1:] for _ in range(3)]
                self.assertEqual({record["run_id"] for _, record in seen}, {mine["run_id"]})
                self.assertLessEqual({"run_end", "content"}, {kind for kind, _ in seen})
                self.assertTrue(all(record["seq"] > int(number) for _, record in seen))
        with Follower(self.service, "?after=0&type=run_begin", token=self.reviewer) as follower:
            first = [follower.next() for _ in range(4)]
            self.assertEqual({kind for _, kind, _ in first}, {"run_begin"})
            self.assertEqual([int(n) for n, _, _ in first], sorted(int(n) for n, _, _ in first))

    def test_stream_of_many_records_is_whole(self):
        code = "import socket\nfor p in range(1, 301):\n  try: socket.create_connection(('10.2.0.1', p))\n  except OSError: pass"
        with Follower(self.service, "?destination=10.2.0.1&type=egress", token=self.reviewer) as follower:
            follower.event()
            time.sleep(0.3)
            run = self.run_as("beta", code)
            ports = {follower.next()[2]["port"] for _ in range(300)}
        self.assertEqual((ports, run["egress"]["denied"]), (set(range(1, 301)), 300))

    # -- who sees what --
    def test_nothing_of_one_project_gets_to_another(self):
        """Every route, with every scope that may ask it, and every name of the other project's run."""
        secret = self.run_as("beta", "print('the-secret-of-beta')\n" + ASK % "beta-only.example")
        cell = self.service.request("POST", "/v1/sessions", {}, token=self.tokens["beta"]).json()["session_id"]
        self.run_as("beta", ASK % "beta-only.example", session_id=cell)
        operator = mint(self.service, "ops", "--scope", "operator")
        agent = mint(self.service, "beta", "--scope", "agent", "--agent", "helper")
        record = self.service.request("GET", "/v1/runs/" + secret["run_id"], token=self.reviewer).json()
        names = [secret["run_id"], secret["audit_hash"], record["policy_hash"], str(record["chain"]["n"]), cell, cell + ".1", "attached-1.1"]
        page = self.find("?project=beta&limit=1")
        cursor = page["next"] or 1
        words = ("the-secret-of-beta", "beta-only.example", secret["run_id"], secret["audit_hash"], cell)
        paths = ["/v1/audit", "/v1/audit?project=beta", "/v1/audit?cursor=%s" % cursor, "/v1/audit?project=alpha&cursor=%s" % cursor, "/v1/audit/stream?after=0",
                 "/v1/sessions", "/v1/sessions/" + cell, "/v1/limits", "/openapi.json", "/v1/pool", "/metrics", "/healthz", "/readyz"]
        paths += ["/v1/runs/%s%s%s" % (name, part, query) for name in names for part in ("", "/audit") for query in ("", "?project=beta", "?after=0")]
        for who, token in (("alpha", self.tokens["alpha"]), ("operator", operator), ("agent", agent)):
            for path in paths:
                with self.subTest(who=who, path=path):
                    answer = self.service.request("GET", path, token=token, headers={"Last-Event-ID": "0"})
                    text = answer.body.decode()
                    asked = [w for w in words if w in path]
                    for word in words:
                        if word not in asked and not (who == "agent" and answer.status == 200 and "/runs/" in path):
                            self.assertNotIn(word, text)
                    if path.startswith("/v1/audit"):
                        self.assertEqual((answer.status, answer.json()["error"]["message"]), (403, "missing or invalid project token"))
                    elif "/runs/" in path and who == "alpha" and "?" in path:
                        self.assertIn(answer.status, (400, 404))  # these routes take no parameter, whatever run it is
                    elif "/runs/" in path and who == "alpha":
                        self.assertEqual((answer.status, answer.json()["error"]["message"]), (404, "not found"))
                    elif "/runs/" in path and who == "operator":
                        self.assertIn(answer.status, (403, 404))  # 404: no id is so long
        # A reviewer's scope does not run code, and the protocol for models has no way to the record.
        for path, body in (("/v1/execute", {"code": "1"}), ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}), ("/v1/sessions", {}), ("/v1/call", {"name": "x", "arguments": {}})):
            self.assertEqual(self.service.request("POST", path, body, token=self.reviewer).status, 403)
        for method, params in (("tools/list", {}), ("resources/list", {}), ("resources/read", {"uri": "weir://runs/" + secret["run_id"]}), ("tools/call", {"name": "audit", "arguments": {"run_id": secret["run_id"]}})):
            answer = self.service.request("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, token=self.tokens["alpha"])
            for word in ("the-secret-of-beta", "beta-only.example", secret["audit_hash"]):
                self.assertNotIn(word, answer.body.decode())

    def test_the_reviewer_sees_all(self):
        for name, run in self.runs.items():
            answer = self.service.request("GET", "/v1/runs/%s/audit" % run["run_id"], token=self.reviewer)
            self.assertEqual((answer.status, answer.json()["audit_hash"]), (200, run["audit_hash"]), name)
        self.assertEqual(len({run["audit_hash"] for run in self.runs.values()}), 4)

    # -- what is hashed --
    def test_hashes_of_what_went_in_and_came_out(self):
        code = "import sys\nprint(sys.stdin.read() * 2, end='')\nsys.stderr.write('oops')\nopen('b.bin', 'wb').write(bytes([0, 255]))\nopen('a.txt', 'w').write('new')"
        files = [{"path": "in/one.txt", "content": "1"}, {"path": "two", "content_base64": base64.b64encode(b"\0\xff").decode()}]
        run = self.run_as("alpha", code, stdin="words ", files=files, env={"SECRET": "none-of-this"})
        record = self.service.request("GET", "/v1/runs/" + run["run_id"], token=self.tokens["alpha"]).json()
        content = record["content"]
        for kind, text in (("code", code), ("arguments", "words "), ("stdout", "words words "), ("stderr", "oops"),
                           ("files_in", b"in/one.txt\x001two\x00\0\xff"), ("files_out", b"a.txt\0newb.bin\0\0\xff")):
            raw = text.encode() if isinstance(text, str) else text
            self.assertEqual({k: content[kind][k] for k in ("bytes", "kept", "sha256")}, {"bytes": len(raw), "kept": len(raw), "sha256": sha256(raw)}, kind)
        self.assertNotIn("result", {k for k, v in content.items() if v})
        self.assertEqual(record["audit_hash"], run["audit_hash"])

    def test_what_was_not_kept_is_counted(self):
        run = self.run_as("alpha", "import os\nos.write(1, b'\\xff' * (5 << 20))")
        content = self.service.request("GET", "/v1/runs/" + run["run_id"], token=self.tokens["alpha"]).json()["content"]
        self.assertEqual((content["stdout"]["bytes"], content["stdout"]["kept"]), (run["stdout_bytes"], 4 << 20))
        self.assertEqual(content["stdout"]["sha256"], sha256(b"\xff" * (4 << 20)))
        late = self.service.request("GET", "/v1/runs/" + self.runs["late"]["run_id"], token=self.tokens["beta"]).json()["content"]
        self.assertEqual((late["stderr"]["bytes"], late["stderr"]["sha256"]), (0, sha256("")))  # our words about the deadline are not its own

    def test_cells_streams_and_models_too(self):
        session = self.service.request("POST", "/v1/sessions", {}, token=self.tokens["alpha"]).json()["session_id"]
        cell = self.run_as("alpha", "print('in a cell')", session_id=session)
        events = self.service.request("POST", "/v1/execute", {"code": "print('streamed')"}, token=self.tokens["alpha"], headers={"Accept": "text/event-stream"})
        streamed = json.loads(events.body.decode().rpartition("data: ")[2])
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "print('by a model')"}}}
        result = self.service.request("POST", "/mcp", call, token=self.tokens["alpha"]).json()["result"]
        self.service.request("DELETE", "/v1/sessions/" + session, token=self.tokens["alpha"])
        told = result["_meta"]["weir/run"]
        self.assertNotIn("usage", result["structuredContent"])
        for run_id, audit_hash, words in (
            (cell["run_id"], cell["audit_hash"], "in a cell\n"), (streamed["run_id"], streamed["audit_hash"], "streamed\n"),
            (result["structuredContent"]["run_id"], told["audit_hash"], "by a model\n"),
        ):
            record = self.service.request("GET", "/v1/runs/" + run_id, token=self.tokens["alpha"]).json()
            self.assertEqual((record["audit_hash"], record["content"]["stdout"]["sha256"]), (audit_hash, sha256(words)))


def stored(service):
    """What the record itself has of content: {kind: bytes}."""
    with sqlite3.connect("file:%s/audit/audit.db?mode=ro" % service.state, uri=True) as db:
        return dict(db.execute("select kind, bytes from content"))


class Stored(unittest.TestCase):
    CODE = "print('what was printed')"

    def test_nothing_unless_asked_for(self):
        with Service(pool=1) as service:
            service.run(self.CODE, stdin="what came in")
            self.assertEqual(stored(service), {})

    def test_the_beginning_of_each(self):
        with Service("--audit-content", pool=1) as service:
            run = service.run(self.CODE + "\nimport os\nos.write(2, b'e' * 100000)", stdin="what came in")
            self.assertRegex(run["audit_hash"], "^[0-9a-f]{64}$")
            found = stored(service)
            values = [v if isinstance(v, bytes) else v.encode() for v in found.values()]
            for text in (b"what was printed\n", b"what came in", b"e" * 65536):
                self.assertIn(text, values)
            record = service.audit(run["run_id"])["content"]
            self.assertEqual((record["stderr"]["bytes"], record["stderr"]["stored"]), (100000, 65536))


class Leaving(unittest.TestCase):
    def test_followers_are_told_that_the_service_stops(self):
        service = Service(pool=1)
        follower = Follower(service)
        follower.event()
        service.stop()
        number, kind, data = follower.next("end", "error")
        self.assertEqual((kind, data["reason"]), ("end", "stopping"))
        follower.close()

    def test_the_service_ends_with_its_auditor(self):
        """Nobody vouches for what nobody wrote: no hash is told any more, and nothing more runs unseen."""
        service = Service(pool=1)
        self.addCleanup(service.stop)
        import glob
        import os
        import signal
        children = [int(p) for p in open("/proc/%d/task/%d/children" % (service.process.pid, service.process.pid)).read().split()]
        run = Post(service, "/v1/execute", {"code": "import time; time.sleep(0.5); print('done')"})
        time.sleep(0.2)
        for pid in children:
            names = {os.path.basename(os.path.realpath(fd)) for fd in glob.glob("/proc/%d/fd/*" % pid)}
            if "audit.db" in names:
                os.kill(pid, signal.SIGKILL)
        answer = run.answer()
        self.assertNotIn(b'"audit_hash": "', answer.body)
        self.assertEqual(service.process.wait(20), 125)


if __name__ == "__main__":
    unittest.main()
