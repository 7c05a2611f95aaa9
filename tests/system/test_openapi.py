# SPDX-License-Identifier: Apache-2.0
"""What the service answers is what its /openapi.json says: every route of the document is asked, and each answer is checked
against the schema that the document has for that status. Where Python's jsonschema is installed, it is asked as well."""
import unittest

from clients import Follower, mint
from lib import Service, TOKEN

try:
    import jsonschema
except ImportError:
    jsonschema = None

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
# The record of a run has more than the document names; docs/api.md has all of it.
MORE_THAN_NAMED = ("policy_changes", "events", "termination", "usage", "timeout_s", "python", "ran", "policy_changes_omitted")


def is_type(value, name):
    if name in ("integer", "number"):
        return isinstance(value, int if name == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def problems(document, schema, value, where="", known_only=True):
    """What is wrong with `value`, as lines; with `known_only`, members that the schema does not name are wrong too."""
    if "$ref" in schema:
        target = document
        for part in schema["$ref"].split("/")[1:]:
            target = target[part]
        return problems(document, target, value, where, known_only)
    wrong = []
    if "anyOf" in schema:
        return min((problems(document, one, value, where, known_only) for one in schema["anyOf"]), key=len)
    types = schema.get("type")
    if types is not None and not any(is_type(value, t) for t in ([types] if isinstance(types, str) else types)):
        return ["%s: %r is no %s" % (where, value, types)]
    if "enum" in schema and value not in schema["enum"]:
        wrong.append("%s: %r is none of %s" % (where, value, schema["enum"]))
    if isinstance(value, dict):
        wrong += ["%s: no %s" % (where, name) for name in schema.get("required", []) if name not in value]
        for name, inner in value.items():
            if name in schema.get("properties", {}):
                wrong += problems(document, schema["properties"][name], inner, where + "/" + name, known_only and name not in MORE_THAN_NAMED)
            elif known_only and "properties" in schema and name not in MORE_THAN_NAMED:
                wrong.append("%s: %s is not in the document" % (where, name))
    if isinstance(value, list):
        for i, inner in enumerate(value):
            wrong += problems(document, schema.get("items", {}), inner, "%s/%d" % (where, i), known_only)
    return wrong


class OpenApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service()
        cls.document = cls.service.request("GET", "/openapi.json").json()
        cls.asked = set()

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()

    def ask(self, status, method, path, body=None, pattern=None, token=TOKEN, headers=None):
        pattern = pattern or path
        answer = self.service.request(method, path, body, token=token, headers=headers)
        with self.subTest(route=method + " " + pattern, status=status):
            self.assertEqual(answer.status, status, answer)
            operation = self.document["paths"][pattern][method.lower()]
            schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
            self.assertEqual(problems(self.document, schema, answer.json()), [])
            if jsonschema:
                jsonschema.Draft202012Validator(dict(schema, components=self.document["components"])).validate(answer.json())
        self.asked.add((method.lower(), pattern))
        return answer.json()

    def test_answers_are_what_the_document_says(self):
        run = self.ask(200, "POST", "/v1/execute", {"code": "import os, socket, sys\nopen('a.txt', 'w').write('x')\nos.mkfifo('f')\nsys.stderr.write('e')\ntry: socket.getaddrinfo('x.example', 1)\nexcept OSError: pass\nos.abort()"})
        self.assertEqual([run["files"][0]["path"], run["files_skipped"][0]["path"], run["termination"]["signal"]], ["a.txt", "f", "SIGABRT"])
        self.assertTrue(run["egress"]["destinations"])
        self.ask(200, "GET", "/v1/runs/" + run["run_id"], pattern="/v1/runs/{run_id}")
        record = self.ask(200, "GET", "/v1/runs/%s/audit" % run["run_id"], pattern="/v1/runs/{run_id}/audit")
        self.assertTrue(record["events"])
        one = self.ask(201, "POST", "/v1/sessions", {})
        name = {"path": "/v1/sessions/" + one["session_id"], "pattern": "/v1/sessions/{session_id}"}
        cell = self.ask(200, "POST", "/v1/execute", {"code": "x = 1", "session_id": one["session_id"]})
        self.assertIs(cell["session_ended"], False)
        self.ask(200, "GET", "/v1/sessions")
        self.ask(200, "GET", **name)
        self.ask(200, "DELETE", **name)
        self.ask(404, "GET", **name)
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "1 / 0"}}}
        self.ask(200, "POST", "/mcp", call)
        self.ask(200, "POST", "/mcp", dict(call, method="of tomorrow"))
        self.ask(400, "POST", "/mcp", [call])
        self.ask(403, "POST", "/mcp", call, headers={"Origin": "https://example.com"})
        self.ask(406, "POST", "/mcp", call, headers={"Accept": "text/html"})
        for path in ("/v1/pool", "/v1/limits", "/openapi.json", "/healthz", "/readyz"):
            self.ask(200, "GET", path)
        self.ask(403, "POST", "/v1/call", {"name": "x", "arguments": {}})  # what an agent is answered: tests/agents/test_call_api.py
        for status, body, headers in ((400, {}, {}), (404, {"code": "", "session_id": "x"}, {}), (502, {"code": "", "files": [{"path": "..", "content": ""}]}, {}), (413, {"code": " " * (1 << 20 | 1)}, {}), (415, "x", {"Content-Type": "text/plain"})):
            self.ask(status, "POST", "/v1/execute", body, headers=headers)
        self.ask(401, "POST", "/v1/execute", {}, token=None)
        self.assertTrue(self.ask(200, "GET", "/v1/audit?limit=500", pattern="/v1/audit")["runs"])
        self.ask(400, "GET", "/v1/audit?limit=501", pattern="/v1/audit")
        self.asked |= {("get", "/metrics"), ("get", "/v1/audit/stream")}  # test_what_is_no_json
        every = {(method, path) for path, methods in self.document["paths"].items() for method in methods}
        self.assertEqual(every - self.asked, set())

    def test_what_is_no_json(self):
        """The document names the type, and the answer has it."""
        paths = self.document["paths"]
        for path, kind in (("/metrics", "text/plain"), ("/v1/audit/stream", "text/event-stream")):
            self.assertEqual(list(paths[path]["get"]["responses"]["200"]["content"]), [kind])
        self.assertTrue(self.service.request("GET", "/metrics").headers["Content-Type"].startswith("text/plain;"))
        with Follower(self.service) as follower:
            self.assertEqual(follower.response.getheader("Content-Type"), "text/event-stream")
        for path in ("/v1/audit", "/v1/audit/stream"):
            told = {p["name"] for p in paths[path]["get"]["parameters"]}
            answer = self.service.request("GET", path + "?nothing=1")
            self.assertEqual(answer.status, 400)
            self.assertEqual(told, set(answer.json()["error"]["message"].partition("those are ")[2].split(", ")))

    def test_hints_fit_what_was_asked(self):
        project = mint(self.service, "hints")
        for method, path, body, token, status, words in (
            ("GET", "/v1/execute/", None, TOKEN, 404, "/openapi.json"),
            ("GET", "/v1/runs/sandbox-none", None, TOKEN, 404, "`run_id`"),
            ("GET", "/v1/sessions/sandbox-none", None, TOKEN, 404, "open a new one with POST /v1/sessions"),
            ("POST", "/v1/execute", {"code": "", "session_id": "sandbox-none"}, TOKEN, 404, "open a new one with POST /v1/sessions"),
            ("POST", "/v1/execute", {"code": "", "files": [{"path": "a", "content": ""}, {"path": "/b", "content": ""}]}, TOKEN, 502, 'at "/files/1/path"'),
            ("GET", "/v1/pool", None, project, 403, "scope operator"),
            ("POST", "/v1/call", {"name": "x", "arguments": {}}, project, 403, "scope agent"),
            ("POST", "/v1/call", {"name": "x", "arguments": {}}, TOKEN, 403, "weir agent env NAME"),
            ("GET", "/v1/limits", None, "no", 401, "Authorization: Bearer TOKEN"),
            ("GET", "/v1/limits", None, "no", 401, "weir agent env NAME"),
        ):
            with self.subTest(path=path, status=status):
                answer = self.service.request(method, path, body, token=token)
                self.assertEqual(answer.status, status)
                self.assertIn(words, answer.json()["error"]["hint"])
        opened = [self.service.request("POST", "/v1/sessions", {}, token=project).json()["session_id"] for _ in range(32)]
        refused = self.service.request("POST", "/v1/sessions", {}, token=project)
        self.assertEqual((refused.status, refused.headers["Retry-After"]), (429, "30"))
        self.assertIn("DELETE /v1/sessions/{session_id}", refused.json()["error"]["hint"])
        for session in opened:
            self.service.request("DELETE", "/v1/sessions/" + session, token=project)

    def test_a_stranger_does_not_get_the_document(self):
        for path in ("/openapi.json", "/v1/limits"):
            self.assertEqual(self.service.request("GET", path, token=None).status, 401)


if __name__ == "__main__":
    unittest.main()
