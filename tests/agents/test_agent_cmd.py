# SPDX-License-Identifier: Apache-2.0
"""`weir agent`: what is added is pinned and listed, what env prints starts an agent's process, what is wrong is refused in words."""
import json
import os
import shutil
import stat
import subprocess
import tempfile
import unittest

from lib import TOP, WEIR, Service, weir

FIRST, SECOND = "ab" * 32, "cd" * 32
PLATFORM = {"CODE_INTERPRETER_SESSION": "false", "CODE_INTERPRETER_TIMEOUT_S": "20", "TOOL_SANDBOX": "true"}
NASTY = "a 'b' \"c\" $HOME `id` \\ \n\té!*"


def image(digest, *names):
    """An image as the registry's file has it: this command asks it for digest and version alone."""
    python = {"version": "3.12.1", "executable": "/usr/bin/python3", "prefix": "/usr", "stdlib": "/usr/lib/python3.12", "platlib": "/usr/lib/python3.12",
              "site": "/usr/lib/python3/dist-packages", "matplotlib": "", "slow": "", "modules": 1, "compiled": 1}
    return {"digest": digest, "names": list(names), "kind": "directory", "source": "/srv/" + digest[:2], "imported": 1800000000, "bytes": 1, "entries": 1,
            "left_out": 0, "python": python, "workdir": "", "variables": [], "withheld": []}


class Agents(unittest.TestCase):
    def setUp(self):
        self.state = tempfile.mkdtemp(prefix="weir-test-agents-")
        self.addCleanup(shutil.rmtree, self.state)
        self.images(image(FIRST, "weather:latest", "weather:1"), image(SECOND, "other:latest"))

    def images(self, *images):
        path = os.path.join(self.state, "images.json")
        with open(path, "w") as f:
            json.dump({"version": 1, "images": list(images)}, f)
        os.chmod(path, 0o600)

    def agent(self, *args, status=0):
        done = weir("agent", *args, "--state-dir", self.state)
        self.assertEqual(done.returncode, status, done)
        return done.stdout.decode() if status == 0 else done.stderr.decode()

    def add(self, name="weather", *args, project="demo", image="weather", tools=("app.tools",), status=0):
        return self.agent("add", name, "--project", project, "--image", image, "--tools", *tools, *args, status=status)

    def listed(self, *args):
        return json.loads(self.agent("ls", "--json", *args))["agents"]

    def tokens(self):
        return json.loads(weir("token", "ls", "--json", "--state-dir", self.state).stdout)["tokens"]

    def active(self):
        return [t["id"] for t in self.tokens() if t["state"] == "active"]

    # -- add, ls --
    def test_digest_is_pinned_and_printed(self):
        said = self.add()
        for words in ("weather", "project demo", "sha256:" + FIRST, "Python 3.12.1", "app.tools"):
            self.assertIn(words, said)
        # The name goes to another image: the agent stays where it was.
        self.images(image(FIRST, "weather:1"), image(SECOND, "weather:latest"))
        self.assertEqual([a["digest"] for a in self.listed()], ["sha256:" + FIRST])
        self.assertIn("weather", self.agent("ls"))
        self.assertIn("sha256:" + SECOND, self.add("weather", "--replace"))
        found, = self.listed()
        self.assertEqual((found["digest"], found["image"], found["tools"], found["image_present"]), ("sha256:" + SECOND, "weather", ["app.tools"], True))
        # An image that is gone is told.
        self.images(image(FIRST, "weather:1"))
        self.assertFalse(self.listed()[0]["image_present"])
        self.assertIn("image is gone", self.agent("ls"))
        mode = os.stat(os.path.join(self.state, "agents.json"))
        self.assertEqual((stat.S_IMODE(mode.st_mode), mode.st_uid), (0o600, 0))

    def test_tools_in_every_form(self):
        for words in (("a", "b.c", "d"), ("a,b.c,d",), ("a b.c", "d"), ("a,", "b.c,", "d"), ("a", "--tools", "b.c", "--tools=d")):
            self.add("one", "--replace", "--json", tools=words)
            self.assertEqual(self.listed()[0]["tools"], ["a", "b.c", "d"], words)
        # The name may stand between options, as long as it is before --tools or behind another option's value.
        self.agent("add", "--project", "demo", "--image", "weather", "two", "--tools", "t", "u")
        self.agent("add", "--tools", "t", "u", "--image", "weather", "--project", "demo", "three")
        self.assertEqual([(a["name"], a["tools"]) for a in self.listed()[1:]], [("two", ["t", "u"]), ("three", ["t", "u"])])

    def test_names_of_files_are_refused(self):
        for text, module in (("tools.py", "tools"), ("./tools.py", "tools"), ("app/tools.py", "app.tools"), ("/app/tools.py", "app.tools"), ("a,tools.py", "tools")):
            self.assertIn("is a file's name; what is wanted is the module's: %s\n" % module, self.add(tools=(text,), status=64), text)
        self.assertEqual(self.listed(), [])

    def test_modules_that_are_not_there_are_told(self):
        """Where Python will look: nothing of the image is run for it, and no link leads out of it."""
        root = os.path.join(self.state, "images", FIRST)
        site, pth = "usr/lib/python3/dist-packages", "usr/local/lib/python3.12/dist-packages"
        for path in ("app/one.py", "app/package/__init__.py", "app/package/inner.py", "app/space/part.py", "app/bare/README", "src/more.py", "opt/lib/linked.py",
                     site + "/installed/__init__.py", "usr/lib/python3.12/lib-dynload/_fast.cpython-312-x86_64-linux-gnu.so", pth + "/x.pth", "editable/edited.py",
                     "root/.local/lib/python3.12/site-packages/users.py", "app/cached.pyc"):
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w") as f:
                f.write("/editable\n" if path.endswith(".pth") else "raise SystemExit\n")
        os.symlink("/opt/lib", os.path.join(root, "lib2"))
        outside = os.path.join(self.state, "outside")
        os.makedirs(outside)
        with open(outside + "/secret.py", "w"):
            pass
        os.symlink("../../../../" + outside, os.path.join(root, "out"))
        entry = image(FIRST, "weather")
        entry.update(workdir="/app", variables=["PATH=/bin", "PYTHONPATH=src:/src:/lib2:/out:/gone"])
        self.images(entry)

        def said(*tools):
            done = weir("agent", "add", "weather", "--project", "demo", "--image", "weather", "--replace", "--state-dir", self.state, "--tools", *tools)
            self.assertEqual(done.returncode, 0, done)
            return [line for line in done.stderr.decode().splitlines() if "warning" in line]

        self.assertEqual(said("one", "package", "package.inner", "space.part", "more", "linked", "installed", "_fast", "edited", "users", "cached"), [])
        for module in ("nosuch", "on", "one.below", "package.nosuch", "secret", "README", "app"):
            line, = said(module)
            self.assertIn("there is no module %s in the image: looked in /app, /src, /lib2, /usr/lib/python3.12, " % module, line)
        for module in ("space", "bare"):
            line, = said("one", module)
            self.assertIn("%s is a directory without __init__.py" % module, line)
        for path in ("usr/lib/python3.12/token.py", "app/token.py"):
            with open(os.path.join(root, path), "w"):
                pass
        self.assertIn("token has the name of a module of Python's own library", said("token")[0])
        # What runs code when Python starts may know of more; that is said, not tried.
        with open(os.path.join(root, pth, "hook.pth"), "w") as f:
            f.write("import hook\n")
        self.assertIn("a .pth file or an archive there may know of more", said("nosuch")[0])
        shutil.rmtree(root)
        self.assertIn("import it again", said("one")[0])

    def test_images_by_name_tag_and_digest(self):
        for ref in ("weather", "weather:latest", "weather:1", FIRST, "sha256:" + FIRST, FIRST[:12]):
            self.assertEqual(json.loads(self.add("one", "--replace", "--json", image=ref))["digest"], "sha256:" + FIRST, ref)

    def test_one_name_in_several_projects(self):
        self.add(project="a")
        self.add(project="b", image="other")
        self.assertEqual([(x["project"], x["digest"]) for x in self.listed()], [("a", "sha256:" + FIRST), ("b", "sha256:" + SECOND)])
        self.assertEqual([x["project"] for x in self.listed("--project", "b")], ["b"])
        for command in ("env", "rm"):
            self.assertIn("2 projects have an agent weather: say --project (a, b)", self.agent(command, "weather", status=1))
        self.agent("rm", "weather", "--project", "a")
        self.assertEqual([x["project"] for x in self.listed()], ["b"])
        self.assertIn("SANDBOX_TOKEN", self.agent("env", "weather"))

    def test_what_exists_is_kept_unless_it_is_to_be_replaced(self):
        self.add()
        said = self.add(image="other", status=1)
        self.assertIn("project demo has an agent weather already (image weather, sha256:%s): --replace" % FIRST[:12], said)
        self.assertEqual(self.listed()[0]["digest"], "sha256:" + FIRST)

    def test_what_is_wrong_is_said(self):
        for args, status, words in (
            (("add", "weather", "--image", "weather", "--tools", "t"), 64, "--project P"),
            (("add", "weather", "--project", "demo", "--tools", "t"), 64, "--image REF"),
            (("add", "weather", "--project", "demo", "--image", "weather"), 64, "--tools MODULE"),
            (("add", "weather", "--project", "demo", "--image", "weather", "--tools", ","), 64, "--tools MODULE"),
            (("add", "--project", "demo", "--image", "weather", "--tools", "t", "weather"), 64, "its NAME, before the options"),
            (("add", "Weather", "--project", "demo", "--image", "weather", "--tools", "t"), 64, "is not a name"),
            (("add", "w" * 64, "--project", "demo", "--image", "weather", "--tools", "t"), 64, "at most 63 characters"),
            (("add", "weather", "--project", "-", "--image", "weather", "--tools", "t"), 64, "is not a name"),
            (("add", "weather", "--project", "demo", "--image", "weather", "--tools", "a-b"), 64, "is no module's name"),
            (("add", "weather", "--project", "demo", "--image", "weather", "--tools", "a:f"), 64, "is no module's name"),
            (("add", "weather", "--project", "demo", "--image", "weather", "--tools", "../a"), 64, "is no module's name"),
            (("add", "weather", "--project", "demo", "--image", "weather", "--tools", "m" * 128), 64, "less than 128 bytes"),
            (("add", "weather", "--project", "demo", "--image", "weather", "--tools", "a", "a"), 64, "twice"),
            (("add", "weather", "--project", "demo", "--image", "weather", "--tools", *["m%d" % i for i in range(65)]), 64, "at most 64 modules"),
            (("add", "weather", "--project", "demo", "--image", "weather", "--tools", "a", "--rotate"), 64, "add does not take --rotate"),
            (("add", "weather", "--project", "demo", "--image", "none", "--tools", "a"), 1, "no image \"none\""),
            (("ls", "weather"), 64, "takes no argument"),
            (("rm",), 64, "say which agent"),
            (("rm", "none"), 1, "there is no agent none in " + self.state),
            (("env", "none", "--project", "demo"), 1, "there is no agent none of project demo"),
            (("list",), 64, "is none of add, ls, rm, env"),
            ((), 64, "say add, ls, rm or env"),
        ):
            with self.subTest(args=args[:8]):
                self.assertIn(words, self.agent(*args, status=status))
        self.assertEqual(self.listed(), [])
        self.add(tools=["m%d" % i for i in range(64)])
        self.assertIn("needs root", subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", WEIR, "agent", "ls"], stderr=subprocess.PIPE).stderr.decode())

    def test_reserved_names(self):
        """The words are the contract's."""
        for name in ("SANDBOX_URL", "SANDBOX_TOKEN", "SANDBOX_X", "TOOL_SANDBOX", "CODE_INTERPRETER_SESSION", "CODE_INTERPRETER_TIMEOUT_S"):
            with self.subTest(name=name):
                self.assertIn("--env: %s is reserved by the platform\n" % name, self.add("weather", "--env", name + "=x", status=64))
        for text, words in (("KEY", "NAME=VALUE"), ("=x", "no variable's name"), ("1A=x", "no variable's name"), ("A;reboot=x", "no variable's name"), ("A=" + "x" * 32768, "32768 bytes")):
            self.assertIn(words, self.add("weather", "--env", text, status=64))
        self.assertIn("A is there twice", self.add("weather", "--env", "A=1", "--env", "A=2", status=64))
        # What was put in the wrong place is not said again: it may be a secret.
        self.assertNotIn("hunter2", self.add("weather", "--env", "hunter2", status=64))
        self.assertEqual(self.listed(), [])

    def test_another_files_are_refused(self):
        self.add()
        path = os.path.join(self.state, "agents.json")
        os.chmod(path, 0o666)
        self.assertIn("nobody else's to write", self.agent("ls", status=1))
        os.chmod(path, 0o600)
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(text.replace('"app.tools"', '"app tools"'))
        self.assertIn("agents.json at /agents/0/modules/0: ", self.agent("ls", status=1))
        self.assertIn("agents.json at /agents/0/modules/0: ", self.add("more", status=1))

    # -- env --
    def test_env_starts_a_process(self):
        """A shell that evaluates it has the platform's variables, the token, and the agent's own to the byte."""
        self.add("weather", "--env", "KEY=" + NASTY, "--env", "EMPTY=")
        with open(os.path.join(self.state, "weir.json"), "w") as f:
            json.dump({"listen": "127.0.0.1:8999"}, f)
        for shell in ("sh", "bash"):
            script = 'eval "$("$1" agent env weather --state-dir "$2" --config "$2/weir.json" 2>/dev/null)" && exec env -0'
            out = subprocess.run([shell, "-c", script, shell, WEIR, self.state], stdout=subprocess.PIPE, check=True, env={"PATH": os.environ["PATH"]}).stdout.decode()
            found = dict(line.split("=", 1) for line in out.split("\0") if line)
            token = found.pop("SANDBOX_TOKEN")
            self.assertRegex(token, r"^weir_[A-Za-z0-9_-]{43}$")
            expected = dict(PLATFORM, SANDBOX_URL="http://127.0.0.1:8999", KEY=NASTY, EMPTY="")
            self.assertEqual({k: v for k, v in found.items() if k not in ("PATH", "PWD", "SHLVL", "_", "OLDPWD")}, expected)
        # Each has a token of its own, of this agent alone.
        self.assertEqual([(t["project"], t["agent"], t["scopes"], t["note"]) for t in self.tokens()], [("demo", "weather", ["project", "agent"], "weir agent env")] * 2)
        self.assertEqual(self.listed()[0]["tokens"], 2)

    def test_env_as_json_and_dotenv(self):
        self.add("weather", "--env", "KEY=" + NASTY, "--env", "PLAIN=a/b:c=d")
        found = json.loads(self.agent("env", "weather", "--json"))
        self.assertRegex(found.pop("SANDBOX_TOKEN"), "^weir_")
        self.assertEqual(found, dict(PLATFORM, SANDBOX_URL="http://127.0.0.1:8380", KEY=NASTY, PLAIN="a/b:c=d"))
        before = len(self.tokens())
        self.assertIn("KEY holds what programs read differently", self.agent("env", "weather", "--dotenv", status=1))
        self.assertEqual(len(self.tokens()), before)  # nothing was minted for nobody
        self.add("weather", "--env", "PLAIN=a/b:c=d", "--env", "BLANKS=a b #c", "--replace")
        lines = self.agent("env", "weather", "--dotenv").splitlines()
        self.assertEqual(lines[0], "SANDBOX_URL=http://127.0.0.1:8380")
        self.assertEqual(lines[2:], ["CODE_INTERPRETER_SESSION=false", "CODE_INTERPRETER_TIMEOUT_S=20", "TOOL_SANDBOX=true", "PLAIN=a/b:c=d", "BLANKS='a b #c'"])
        self.assertIn("one of the two", self.agent("env", "weather", "--dotenv", "--json", status=64))

    def test_env_knows_where_the_service_is(self):
        self.add()
        config = os.path.join(self.state, "weir.json")
        tls = {"certificate": "c.pem", "key": "k.pem"}
        for document, url in (
            ({}, "http://127.0.0.1:8380"),
            ({"listen": "[::1]:81"}, "http://[::1]:81"),
            ({"listen": "host.example:443", "tls": tls}, "https://host.example:443"),
            ({"listen": "0.0.0.0:443", "tls": tls}, "https://127.0.0.1:443"),
            ({"listen": "[::]:80", "plaintext": True}, "http://[::1]:80"),
            ({"listen": "unix:/run/weir.sock"}, "unix:/run/weir.sock"),
            ({"listen": "unix:weir.sock"}, "unix:%s/weir.sock" % self.state),
        ):
            with open(config, "w") as f:
                json.dump(document, f)
            self.assertEqual(json.loads(self.agent("env", "weather", "--json", "--config", config))["SANDBOX_URL"], url)
        with open(config, "w") as f:
            json.dump({"listen": "127.0.0.1:0"}, f)
        before = len(self.tokens())
        self.assertIn("say where it listens with --url", self.agent("env", "weather", "--config", config, status=1))
        self.assertEqual(len(self.tokens()), before)
        self.assertEqual(json.loads(self.agent("env", "weather", "--json", "--url", "https://weir.example/", "--config", config))["SANDBOX_URL"], "https://weir.example/")
        for url in ("weir.example", "ftp://x", "http://", "http://a b", "unix:x", "http://a:b@h", "http://h/?q", "https://h#f"):
            self.assertIn("--url: ", self.agent("env", "weather", "--url", url, status=64))

    def test_env_asks_the_running_service(self):
        """Whatever it was started with: the agent is told where it does listen. Without one, in words, where it would."""
        self.add()
        with Service(state=self.state) as service:
            done = weir("agent", "env", "weather", "--json", "--state-dir", self.state)
            self.assertEqual(json.loads(done.stdout)["SANDBOX_URL"], "http://127.0.0.1:%d" % service.port)
            self.assertNotIn(b"no service runs", done.stderr)
            run, = [d for d in os.listdir("/run/weir") if os.path.isfile("/run/weir/%s/url" % d) and service.process.pid == int(open("/run/weir/%s/url" % d).read().split()[0])]
            self.assertEqual(json.loads(self.agent("env", "weather", "--json", "--url", "http://10.0.0.1:1"))["SANDBOX_URL"], "http://10.0.0.1:1")
            # A second one says who is there, and has touched nothing.
            second = weir("serve", "--listen", "127.0.0.1:0", "--state-dir", self.state)
            self.assertEqual(second.returncode, 125)
            self.assertIn(b"another weir already runs on this state directory (instance %s, pid %d): stop it (kill" % (run.encode(), service.process.pid), second.stderr)
            self.assertNotIn(b"supervisor lost", second.stderr)
        self.assertFalse(os.path.exists("/run/weir/" + run))
        # What one that was killed has left is nobody's address.
        os.makedirs("/run/weir/" + run)
        self.addCleanup(shutil.rmtree, "/run/weir/" + run, True)
        for name, text in (("lock", "1\n"), ("url", "1 http://127.0.0.1:1\n")):
            with open("/run/weir/%s/%s" % (run, name), "w") as f:
                f.write(text)
        done = weir("agent", "env", "weather", "--json", "--state-dir", self.state)
        self.assertEqual(json.loads(done.stdout)["SANDBOX_URL"], "http://127.0.0.1:8380")
        self.assertIn(("no service runs on %s: SANDBOX_URL is http://127.0.0.1:8380" % self.state).encode(), done.stderr)

    def test_rotate_and_expiry(self):
        self.add()
        self.add("other")
        for name in ("weather", "weather", "other"):
            self.agent("env", name)
        for name, known in (("weather", True), ("weahter", False)):
            done = weir("token", "mint", "--project", "demo", "--scope", "agent", "--agent", name, "--state-dir", self.state)
            self.assertEqual(b"project demo has no agent weahter yet" in done.stderr, not known)
        weir("token", "mint", "--project", "demo", "--state-dir", self.state)
        for options, words in (((), b"4 tokens of this agent are good now; --rotate ends the earlier ones"), (("--rotate", "--expires", "30d"), b"4 earlier tokens are revoked")):
            done = weir("agent", "env", "weather", "--state-dir", self.state, *options)
            self.assertIn(words, done.stderr)
        left = [(t["agent"], t["expires"] is not None) for t in self.tokens() if t["state"] == "active"]
        self.assertEqual(left, [("other", False), ("weahter", False), (None, False), ("weather", True)])
        self.assertIn("--expires: ", self.agent("env", "weather", "--expires", "soon", status=64))

    def test_a_token_that_nobody_got_does_not_stay(self):
        self.add()
        self.agent("env", "weather")
        before = self.active()
        with open("/dev/full", "w") as full:
            done = subprocess.run([WEIR, "agent", "env", "weather", "--rotate", "--state-dir", self.state], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.active(), before)  # the earlier one is still good

    # -- rm --
    def test_rm_revokes_the_agents_tokens(self):
        self.add()
        self.add(project="b")
        self.add("other")
        for name, project in (("weather", "demo"), ("weather", "demo"), ("weather", "b"), ("other", "demo")):
            self.agent("env", name, "--project", project)
        self.assertIn("2 of its tokens are revoked", self.agent("rm", "weather", "--project", "demo"))
        self.assertEqual([(t["project"], t["agent"]) for t in self.tokens() if t["state"] == "active"], [("b", "weather"), ("demo", "other")])
        self.assertEqual([(a["project"], a["name"]) for a in self.listed()], [("b", "weather"), ("demo", "other")])
        self.assertIn("there is no agent weather of project demo", self.agent("rm", "weather", "--project", "demo", status=1))

    def test_writers_at_once(self):
        """Eight at a time: none is lost, and the file is whole."""
        running = [subprocess.Popen([WEIR, "agent", "add", "a%d" % i, "--project", "p", "--image", "weather", "--tools", "t", "--state-dir", self.state],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(8)]
        self.assertEqual([p.wait() for p in running], [0] * 8)
        self.assertEqual(sorted(a["name"] for a in self.listed()), ["a%d" % i for i in range(8)])

    # -- what else knows of them --
    def test_a_running_service_takes_its_token_at_once(self):
        """And knows it as a token of that project; `rm` ends it with the next request."""
        with Service(state=self.state) as service:
            self.add()
            token = json.loads(self.agent("env", "weather", "--json"))["SANDBOX_TOKEN"]
            self.assertEqual(service.request("GET", "/v1/limits", token=token).status, 200)
            self.assertEqual(service.request("GET", "/v1/pool", token=token).status, 403)
            self.agent("rm", "weather")
            self.assertEqual(service.request("GET", "/v1/limits", token=token).status, 401)

    def test_help_says_that_env_is_not_for_tools(self):
        said = " ".join(weir("agent", "--help").stdout.decode().split())
        self.assertIn("it never reaches a tool", said)
        for example in ("weir agent add weather --project demo --image weather --tools app.tools", "weir agent rm weather"):
            self.assertIn(example, said)
        self.assertTrue(os.path.exists(os.path.join(TOP, "docs", "man", "weir-agent.1")))


if __name__ == "__main__":
    unittest.main()
