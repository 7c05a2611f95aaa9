# SPDX-License-Identifier: Apache-2.0
"""Agents are kept apart: a token reaches the one agent it names, and tells nothing of any other, not even that there is one."""
import json
import os
import re
import statistics
import time
import unittest

from fixture import Agents, run_weir
from lib import SLOW

# Each image has its own answer, a file of its own, and eyes for everything that is somebody else's.
APP = '''
import importlib, os

def who():
    return %r

def own():
    with open("/app/%s.txt") as f:
        return f.read()

def forecast(city):
    print("asked for", city)
    return {"city": city, "by": %r}

def look(paths, modules):
    """What of these can be had from in here."""
    found = [p for p in paths if os.path.lexists(p)]
    for module in modules:
        try:
            importlib.import_module(module)
            found.append(module)
        except ImportError:
            pass
    return found

def environment():
    """Everything that could hold a variable of anybody's: our own, and that of whatever process can be read."""
    texts = [repr(sorted(os.environ.items()))]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("environ", "cmdline"):
            try:
                with open("/proc/%%s/%%s" %% (pid, name), "rb") as f:
                    texts.append(repr(f.read()))
            except OSError:
                pass
    return texts
'''


def app(who):
    return APP % (who, who, who)


SECRET = "value-that-no-tool-may-see"


class Isolation(unittest.TestCase):
    """demo/weather, demo/mail and other/weather: one name in two projects, two agents in one."""

    @classmethod
    def setUpClass(cls):
        cls.agents = Agents({"app.py": app("demo-weather"), "demo-weather.txt": "1", "deep.py": "VALUE = 1\n"}, tools=["app"])
        cls.addClassCleanup(cls.agents.stop)
        cls.service = cls.agents.service
        cls.agents.add("mail", {"app.py": app("mail"), "mail.txt": "2", "post.py": "def send():\n    return 'sent'\n"}, more=("--env", "MODEL_KEY=" + SECRET))
        cls.agents.import_image("their-weather", {"app.py": app("other-weather"), "other-weather.txt": "3"})
        demo = cls.agents.tokens["weather"]
        cls.agents.register("weather", "their-weather", ["app"], project="other")
        cls.tokens = {"demo/weather": demo, "demo/mail": cls.agents.tokens["mail"], "other/weather": cls.agents.tokens["weather"]}
        for name, args in (
            ("other/mail", ("--project", "other", "--scope", "agent", "--agent", "mail")),  # there is one of that name, elsewhere
            ("other/none", ("--project", "other", "--scope", "agent", "--agent", "none")),  # there is none anywhere
            ("other", ("--project", "other")),
            ("operator", ("--project", "other", "--scope", "operator")),
            ("reviewer", ("--project", "other", "--scope", "reviewer")),
        ):
            cls.tokens[name] = run_weir("token", "mint", *args, state=cls.agents.state).strip()

    def call(self, who, name, arguments=None, **fields):
        body = dict(fields, name=name, arguments=arguments or {})
        return self.service.request("POST", "/v1/call", body, token=self.tokens[who], timeout=160 * SLOW)

    def result(self, who, name, arguments=None):
        answer = self.call(who, name, arguments)
        self.assertEqual(answer.status, 200, answer)
        self.assertIn("result", answer.json())
        return answer.json()["result"]

    def get(self, who, path):
        return self.service.request("GET", path, token=self.tokens[who])

    # -- whose image runs --
    def test_a_token_runs_the_image_of_the_one_agent_it_names(self):
        for who, expected, content in (("demo/weather", "demo-weather", "1"), ("demo/mail", "mail", "2"), ("other/weather", "other-weather", "3")):
            self.assertEqual(self.result(who, "who"), expected)
            self.assertEqual(self.result(who, "app:own"), content)

    def test_minted_by_hand_it_is_the_same(self):
        token = run_weir("token", "mint", "--project", "demo", "--scope", "agent", "--agent", "mail", state=self.agents.state).strip()
        answer = self.service.request("POST", "/v1/call", {"name": "who", "arguments": {}}, token=token)
        self.assertEqual((answer.status, answer.json().get("result")), (200, "mail"))

    def test_a_request_cannot_name_another_agent_or_image(self):
        for field, value in (("agent", "weather"), ("agent", "mail"), ("image", "their-weather"), ("image", "weather"), ("project", "demo")):
            answer = self.call("other/weather", "who", **{field: value})
            self.assertEqual(answer.status, 400, answer)
            self.assertIn("/" + field, answer.body.decode())
            self.assertIs(answer.json()["error"]["ran"], False)

    def test_only_agents_tokens_call(self):
        for who in ("other", "operator", "reviewer"):
            answer = self.call(who, "who")
            self.assertEqual((answer.status, answer.json()["error"]["ran"]), (403, False), answer)

    # -- what is not there, and what is somebody else's --
    def test_a_foreign_agent_is_as_one_that_is_none(self):
        """To the byte but for the name that the token itself has, and without anything being built."""
        self.result("demo/mail", "who")
        foreign, missing = self.call("other/mail", "who"), self.call("other/none", "who")
        self.assertEqual((foreign.status, missing.status), (404, 404), (foreign, missing))
        self.assertEqual(foreign.body.replace(b"mail", b"none"), missing.body)
        headers = [{k: v for k, v in a.headers.items() if k not in ("Date", "Content-Length")} for a in (foreign, missing)]
        self.assertEqual(*headers)
        self.assertNotRegex(self.service.log_text(), r"agent (mail|none) of project other: ready")
        self.assertRegex(self.service.log_text(), r"agent mail of project demo: ready")

    def test_nor_does_time_tell(self):
        """Calls of an agent that is ready elsewhere, and of one that is nowhere, take the same time."""
        self.result("demo/mail", "who")
        took = {"other/mail": [], "other/none": []}
        for _ in range(40):
            for who, times in took.items():
                started = time.monotonic()
                self.assertEqual(self.call(who, "who").status, 404)
                times.append(time.monotonic() - started)
        foreign, missing = (statistics.median(times) for times in took.values())
        self.assertLess(abs(foreign - missing), max(foreign, missing) / 2 + 0.002 * SLOW, took)

    def test_tools_of_another_agent_are_unknown(self):
        """Whatever another image holds: a tool of it is answered as one that exists nowhere."""
        self.assertEqual(self.result("demo/mail", "post:send"), "sent")
        for who, foreign, missing in (("demo/weather", "post:send", "none:send"), ("other/weather", "post:send", "none:send"), ("demo/weather", "send", "none")):
            found = [self.call(who, name) for name in (foreign, missing)]
            self.assertEqual([a.status for a in found], [404, 404], found)
            self.assertIn('unknown tool "%s"' % foreign, found[0].json()["error"]["message"])
            self.assertEqual(*(re.sub(rb"sandbox-\w+", b"", answer.body.replace(name.encode(), b"*")) for answer, name in zip(found, (foreign, missing))))
        # Nor a module that the image has, and that was not registered.
        self.assertEqual(self.call("demo/weather", "deep:VALUE").status, 404)

    # -- what runs left behind --
    def test_runs_and_their_audit_are_the_projects_alone(self):
        run = self.call("demo/weather", "forecast", {"city": "Bonn"}).json()["run_id"]
        for path in ("/v1/runs/%s", "/v1/runs/%s/audit"):
            self.assertEqual(self.get("demo/weather", path % run).status, 200)
            for who in ("other/weather", "other/none", "other", "demo/mail"):
                foreign, missing = self.get(who, path % run), self.get(who, path % ("sandbox-" + "z" * 13))
                self.assertEqual((foreign.status, missing.status), (404, 404), (who, foreign, missing))
                self.assertEqual(foreign.body.replace(run.encode(), b"*"), missing.body.replace(b"sandbox-" + b"z" * 13, b"*"))
        # Who may see every project's runs still can, and sees whose it was.
        seen = self.get("reviewer", "/v1/runs/%s/audit" % run)
        self.assertEqual(seen.status, 200, seen)
        self.assertIn('"demo"', seen.body.decode())
        self.assertIn("weather", seen.body.decode())
        # The command line says so too.
        self.assertIn("call     of a tool of agent weather, image %s\n" % seen.json()["image"], run_weir("audit", "show", run, state=self.agents.state))
        self.assertRegex(run_weir("audit", "ls", state=self.agents.state), r"RUN +PROJECT +AGENT +BEGAN[^\n]*\n(.*\n)*%s +demo +weather " % run)

    def test_a_session_is_the_agents_that_opened_it(self):
        """Of the project's agents, only the one whose token opened it finds it; the project's own token finds all of its sessions."""
        opened = self.service.request("POST", "/v1/sessions", {}, token=self.tokens["demo/mail"])
        self.assertEqual(opened.status, 201, opened)
        path = "/v1/sessions/" + opened.json()["session_id"]
        try:
            cell = {"code": "x = 41", "session_id": opened.json()["session_id"]}
            self.assertEqual(self.service.request("POST", "/v1/execute", cell, token=self.tokens["demo/mail"]).status, 200)
            project = run_weir("token", "mint", "--project", "demo", state=self.agents.state).strip()
            for token, status, listed in ((self.tokens["demo/weather"], 404, 0), (self.tokens["other"], 404, 0), (self.tokens["demo/mail"], 200, 1), (project, 200, 1)):
                self.assertEqual(self.service.request("GET", path, token=token).status, status)
                self.assertEqual(self.service.request("POST", "/v1/execute", dict(cell, code="print(x)"), token=token).status, status)
                self.assertEqual(len(self.service.request("GET", "/v1/sessions", token=token).json()["sessions"]), listed)
                if status == 404:
                    self.assertEqual(self.service.request("DELETE", path, token=token).status, 404)
        finally:
            self.assertEqual(self.service.request("DELETE", path, token=self.tokens["demo/mail"]).status, 200)

    def test_what_every_project_is_shown_names_no_agent(self):
        self.result("demo/mail", "who")
        for who, path in (("other/weather", "/v1/limits"), ("other/weather", "/openapi.json"), ("other", "/v1/sessions")):
            answer = self.get(who, path)
            self.assertEqual(answer.status, 200, answer)
            self.assertNotIn(b"mail", answer.body.lower().replace(b"e-mail", b""))
        for path in ("/v1/pool", "/metrics", "/v1/audit", "/v1/audit/stream"):
            self.assertIn(self.get("other/weather", path).status, (403, 404), path)

    # -- from inside --
    def test_a_tool_sees_nothing_of_another_agent_or_of_the_service(self):
        digests = [a["digest"].split(":")[1] for a in json.loads(run_weir("agent", "ls", "--json", state=self.agents.state))["agents"]]
        paths = ["/app/demo-weather.txt", "/app/other-weather.txt", self.agents.state, "/var/lib/weir", "/run/weir", "/sys/fs/bpf/weir", "/etc/weir"]
        paths += [os.path.join(self.agents.state, "images", d) for d in digests] + [os.path.join(self.agents.state, n) for n in ("agents.json", "images.json", "tokens")]
        self.assertEqual(self.result("demo/mail", "look", {"paths": paths + ["/app/mail.txt"], "modules": ["deep", "post"]}), ["/app/mail.txt", "post"])

    def test_what_env_sets_reaches_no_tool(self):
        """It is printed for the agent's process, and is in no variable, argument or process that a tool can read."""
        self.assertEqual(self.agents.environment("mail")["MODEL_KEY"], SECRET)
        texts = self.result("demo/mail", "environment")
        self.assertGreater(len(texts), 2)
        for text in texts:
            self.assertNotIn(SECRET, text)
            self.assertNotRegex(text, r"MODEL_KEY|SANDBOX_|CODE_INTERPRETER_|TOOL_SANDBOX|weir_[\w-]{43}")

    # -- the end of a token --
    def test_a_removed_agent_is_gone_with_its_tokens(self):
        token = self.agents.tokens["mail"]
        self.agents.register("short", "mail", ["app"])
        first = self.agents.tokens.pop("short")
        body = {"name": "who", "arguments": {}}
        self.assertEqual(self.service.request("POST", "/v1/call", body, token=first).status, 200)
        run_weir("agent", "rm", "short", state=self.agents.state)
        self.assertEqual(self.service.request("POST", "/v1/call", body, token=first).status, 401)
        # One of that name that comes later does not bring the old token back.
        self.agents.register("short", "mail", ["app"])
        self.assertEqual(self.service.request("POST", "/v1/call", body, token=first).status, 401)
        self.assertEqual(self.service.request("POST", "/v1/call", body, token=self.agents.tokens.pop("short")).status, 200)
        self.assertEqual(self.service.request("POST", "/v1/call", body, token=token).status, 200)
        run_weir("agent", "rm", "short", state=self.agents.state)


if __name__ == "__main__":
    unittest.main()
