# SPDX-License-Identifier: Apache-2.0
"""The configuration file: which one is read, what wins, what is refused and how; and a service that is configured by it."""
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from lib import SLOW, TOP, WEIR, Answer, Service, free_port, weir


def certificate(folder, name="tls", days="2"):
    """A self-signed certificate for loopback: NAME.crt, NAME.key."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-days", days,
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", name + ".key", "-out", name + ".crt"],
        cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.chmod(os.path.join(folder, name + ".key"), 0o600)


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weir-test-config-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.file = os.path.join(self.folder, "weir.json")

    def write(self, document, mode=0o644):
        with open(self.file, "w") as f:
            f.write(document if isinstance(document, str) else json.dumps(document))
        os.chmod(self.file, mode)

    def check(self, *options, status=0, config=True):
        done = weir("serve", "--check-config", *(["--config", self.file] if config else []), *options)
        self.assertEqual(done.returncode, status, done)
        return done.stdout.decode() if status == 0 else done.stderr.decode()


class Check(Folder):
    """`weir serve --check-config`: nothing is started."""

    def test_file_options_and_defaults(self):
        self.write({"listen": "unix:run.sock", "policy": "my-policy.json", "pool": {"size": 5}, "snippet": {"python": "python3"}, "state_dir": "../state", "audit": {"keep_days": 90, "project_mib": 100}})
        shutil.copy(os.path.join(TOP, "policies", "snippet.json"), os.path.join(self.folder, "my-policy.json"))
        found = json.loads(self.check("--json", "--pool", "7", "--plaintext", "--audit-keep-days", "7"))
        self.assertEqual(
            found["configuration"],
            {"listen": "unix:%s/run.sock" % self.folder, "plaintext": True, "tls": {"certificate": None, "key": None}, "state_dir": self.folder + "/../state",
             "policy": self.folder + "/my-policy.json", "pool": {"size": 7}, "snippet": {"python": "python3", "image": None},
             "tool_calls": {"allow_internet_egress": True, "policy": "tool-call"},
             "audit": {"keep_days": 7, "max_mib": 1024, "project_mib": 100, "content": False}, "metrics": {"bpf_run_time": False}},
        )
        self.assertEqual(found["file"], self.file)
        self.assertEqual(
            found["sources"],
            {"/listen": "file", "/plaintext": "option", "/tls/certificate": "default", "/tls/key": "default", "/state_dir": "file", "/policy": "file",
             "/pool/size": "option", "/snippet/python": "file", "/snippet/image": "default", "/tool_calls/allow_internet_egress": "default",
             "/tool_calls/policy": "default", "/audit/keep_days": "option", "/audit/max_mib": "default", "/audit/project_mib": "file",
             "/audit/content": "default", "/metrics/bpf_run_time": "default"},
        )
        text = self.check()
        self.assertIn("file: " + self.file, text)
        self.assertRegex(text, r'(?m)^/pool/size +file +5$')
        self.assertFalse(os.path.exists(self.folder + "/../state"))
        # A shipped policy's name stays one, whatever stands in the directory.
        self.write({"policy": "tool-call"})
        self.assertEqual(json.loads(self.check("--json"))["configuration"]["policy"], "tool-call")

    def test_way_out_of_tools(self):
        """What is in force is told: without a way out the policy that denies everything, whatever the configured one is."""
        shutil.copy(os.path.join(TOP, "policies", "snippet.json"), os.path.join(self.folder, "mine.json"))
        mine = self.folder + "/mine.json"
        said = "tools have no way out: the policy that they are under is \"snippet\", which denies everything"
        for group, options, egress, source, policy in (
            ({}, (), True, "default", "tool-call"),
            ({"tool_calls": {"policy": "mine.json"}}, (), True, "default", mine),
            ({"tool_calls": {"allow_internet_egress": False, "policy": "mine.json"}}, (), False, "file", "snippet"),
            ({"toolCalls": {"allowInternetEgress": False}}, (), False, "file", "snippet"),
            ({"tool_calls": {"allow_internet_egress": True}}, ("--no-internet-egress",), False, "option", "snippet"),
            ({}, ("--tool-policy", mine), True, "default", mine),
            ({}, ("--tool-policy", mine, "--no-internet-egress"), False, "option", "snippet"),
        ):
            with self.subTest(group=group, options=options):
                self.write(group)
                found = json.loads(self.check("--json", *options))
                self.assertEqual(found["configuration"]["tool_calls"]["allow_internet_egress"], egress)
                self.assertEqual(found["sources"]["/tool_calls/allow_internet_egress"], source)
                self.assertEqual(found["tool_policy_in_force"], policy)
                self.assertEqual(said in self.check(*options), not egress)
        # A mistake in what is not used is told all the same.
        self.write({"tool_calls": {"allow_internet_egress": False, "policy": "none.json"}})
        self.assertIn('at "/tool_calls/policy"', self.check(status=1))
        self.write({})
        self.assertIn("--tool-policy: ", self.check("--tool-policy", "./none.json", status=1))

    def test_what_is_wrong_is_named_with_its_place(self):
        certificate(self.folder)
        certificate(self.folder, "other")
        pair = {"certificate": "tls.crt", "key": "tls.key"}
        for document, where, words in (
            ("{", "", "expected"),
            ({"pool": {"size": 0}}, "/pool/size", "from 1 to 512, found 0"),
            ({"pool": {"sise": 3}}, "/pool/sise", "no such key; those here are size"),
            ('{"listen": "h:1", "listen": "h:1"}', "/listen", "twice"),
            ({"listen": "192.0.2.1:80"}, "/listen", "say --tls-cert and --tls-key"),
            ({"policy": "not-there.json"}, "/policy", "not-there.json: No such file"),
            ({"tool_calls": {"policy": "not-there.json"}}, "/tool_calls/policy", "not-there.json: No such file"),
            ({"tool_calls": {}, "toolCalls": {}}, "/toolCalls", 'this is "/tool_calls" in another spelling'),
            ({"snippet": {"python": "./none"}}, "/snippet/python", "none: No such file"),
            ({"snippet": {"python": "python-none"}}, "/snippet/python", 'no program "python-none" on PATH'),
            ({"snippet": {"python": "/usr"}}, "/snippet/python", "/usr is no regular file"),
            ({"snippet": {"image": "none"}}, "/snippet/image", "none: No such file"),
            ({"snippet": {"image": "/dev/null"}}, "/snippet/image", "is no directory"),
            ({"snippet": {"image": "/usr:1"}}, "/snippet/image", "is no OCI image layout"),
            ({"snippet": {"image": "/usr", "python": "/bin/none"}}, "/snippet/python", "there is no /bin/none in the image /usr"),
            ({"state_dir": "/tmp"}, "/state_dir", "must belong to root and be writable by nobody else"),
            ({"state_dir": "weir.json"}, "/state_dir", "is no directory"),
            ({"state_dir": "weir.json/a/b"}, "/state_dir", "Not a directory"),
            ({"listen": "unix:/tmp"}, "/listen", "and no socket"),
            ({"listen": "unix:/none/s"}, "/listen", "the directory /none: No such file"),
            ({"tls": {"certificate": "tls.crt", "key": "other.key"}}, "/tls/key", "is not the key of"),
            ({"tls": {"certificate": "weir.json", "key": "tls.key"}}, "/tls/certificate", "no certificate and key"),
            ({"tls": {"certificate": "none", "key": "tls.key"}}, "/tls/certificate", "No such file"),
            ({"tls": {"key": "tls.key"}}, "/tls", '"certificate" is missing'),
            ({"plaintext": True, "tls": pair}, "/plaintext", "take out one of the two"),
            ({"audit": {"keep_days": 0}}, "/audit/keep_days", "from 1 to 3650, found 0"),
            ({"audit": {"max_mib": 64, "project_mib": 65}}, "/audit/project_mib", "more of the record (65 MiB) than there is in all (64 MiB)"),
        ):
            with self.subTest(document=document):
                self.write(document)
                said = self.check(status=1)
                self.assertIn(self.file, said)
                self.assertIn(words, said)
                if where:
                    self.assertIn('at "%s"' % where, said)
        # Reason and mend are there however long the paths are.
        self.folder, plain = os.path.join(self.folder, *["d" * 250] * 4), self.folder
        os.makedirs(self.folder)
        self.file = os.path.join(self.folder, "weir.json")
        for document, end in (
            ({"tls": {"certificate": "none", "key": "tls.key"}}, "/none: No such file or directory\n"),
            ({"listen": "192.0.2.1:80"}, "put a TLS proxy in front of a loopback address, or say --plaintext\n"),
            ({"state_dir": "weir.json"}, "/weir.json is no directory\n"),
        ):
            self.write(document)
            said = self.check(status=1)
            self.assertTrue(said.endswith(end), said)
            self.assertIn('/weir.json: at "/', said)
        self.folder, self.file = plain, os.path.join(plain, "weir.json")
        # The same of an option names the option.
        self.write({})
        # What a policy says and can't do is told, with the place that it is configured at.
        said = weir("serve", "--check-config", "--tool-policy", "monitor-only").stderr.decode()
        self.assertIn("weir: warning: /tool_calls/policy: policy monitor-only: /mode: monitor blocks nothing", said)
        self.assertNotIn("/policy: policy snippet", said)
        self.assertIn("/nope: No such file or directory (and the shipped ones are snippet, tool-call, ", weir("serve", "--check-config", "--policy", "nope").stderr.decode())
        self.assertIn("--pool: expected an integer", weir("serve", "--check-config", "--pool", "0").stderr.decode())
        self.assertIn("--tls-cert: a certificate and its key come together: say --tls-key too", self.check("--tls-cert", "x", status=1))
        self.assertIn("--audit-max-mib: expected an integer from 16 to 1048576, found 1", self.check("--audit-max-mib", "1", status=64))
        self.assertIn("--listen: 192.0.2.1 is not a loopback address", self.check("--listen", "192.0.2.1:80", status=1))
        self.assertIn("--dev-token: 192.0.2.1 is not a loopback address", self.check("--listen", "192.0.2.1:80", "--plaintext", "--dev-token", "x", status=1))
        self.write({"listen": "192.0.2.1:80", "tls": pair})
        self.check()
        os.chmod(os.path.join(self.folder, "tls.key"), 0o644)
        self.assertIn("chmod 600", self.check(status=1))
        os.chmod(os.path.join(self.folder, "tls.key"), 0o640)
        self.check()

    def test_documents(self):
        """The example of docs/configuration.md is what the manual has, means what is printed below it, and every key is told."""
        with open(os.path.join(TOP, "docs", "configuration.md")) as f:
            page = f.read()
        with open(os.path.join(TOP, "docs", "man", "weir.json.5")) as f:
            manual = f.read()
        example, printed = re.search(r"```json\n(.*?)```", page, re.S).group(1), re.search(r"```\n(file: .*?)```", page, re.S).group(1)
        self.assertIn(example, manual)
        certificate(self.folder, "weir")
        shutil.copy(os.path.join(TOP, "policies", "snippet.json"), os.path.join(self.folder, "policy.json"))
        image, here = "/srv/images/data-science", os.path.join(self.folder, "image")
        os.mkdir(here)
        self.write(example.replace(image, here))
        self.assertEqual(self.check().replace(here, image).replace(self.folder, "/etc/weir"), printed)
        for pointer in json.loads(self.check("--json"))["sources"]:
            self.assertIn("| `%s` |" % pointer[1:].replace("/", "."), page)
            self.assertIn(".It Dv %s\n" % pointer.split("/")[1], manual)

    def test_files_that_are_not_read(self):
        self.assertIn("No such file", self.check(status=1))
        os.mkfifo(self.file)
        self.assertIn("not a regular file", self.check(status=1))
        os.unlink(self.file)
        self.write({}, 0o646)
        self.assertIn("chmod go-w", self.check(status=1))
        os.chmod(self.file, 0o664)
        self.check()  # its group is root's
        os.chown(self.file, 0, 33)
        self.assertIn("chmod go-w", self.check(status=1))
        self.write({})
        os.chown(self.file, 12345, 12345)
        self.assertIn("belongs to uid 12345, neither to root nor to who runs this", self.check(status=1))
        for uid, status in (("12345", 0), ("12346", 1), ("", 1), ("12345x", 1)):
            done = subprocess.run([WEIR, "serve", "--check-config", "--config", self.file], env=dict(os.environ, SUDO_UID=uid), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.assertEqual(done.returncode, status, uid)
        os.chown(self.file, 0, 0)
        self.write("{}" + " " * 65536)
        self.assertIn("over 65536 bytes", self.check(status=1))

    def test_state_directory_is_named(self):
        """Of every command that looks into one: of --config, and in what it says when nothing is there."""
        state = os.path.join(self.folder, "state")
        self.write({"state_dir": "state"})
        for command, words in (
            (("token", "ls"), "no tokens in %s; `weir token mint --project NAME --state-dir %s`" % (state, state)),
            (("audit", "ls"), "can't open %s/audit: No such file or directory: no service has kept a record there; --state-dir or --config" % state),
        ):
            self.assertIn(words, weir(*command, "--config", self.file).stderr.decode())
        os.mkdir(state, 0o700)
        self.assertIn("`weir token mint --project NAME --state-dir %s` makes one" % state, weir("doctor", "--config", self.file).stdout.decode())

    def test_default_file(self):
        """/etc/weir/weir.json is read when it is there, by the commands that look into a service's state too."""
        script = """
            set -e
            mount -t tmpfs none "$1/tmp"
            mkdir "$1/tmp/upper" "$1/tmp/work"
            mount -t overlay -o "lowerdir=/etc,upperdir=$1/tmp/upper,workdir=$1/tmp/work" none /etc
            mkdir -p /etc/weir
            echo "{\\"state_dir\\": \\"$1/state\\", \\"pool\\": {\\"size\\": 9}}" >/etc/weir/weir.json
            "$2" serve --check-config
            "$2" token mint --project demo >/dev/null
            "$2" token ls --json
            test -e "$1/state/tokens"
            ! "$2" audit ls
            "$2" serve --check-config --config "$1/weir.json"
            echo '{"pool": 9}' >/etc/weir/weir.json
            ! "$2" token ls
            ! "$2" serve --check-config
        """
        os.mkdir(os.path.join(self.folder, "tmp"))
        self.write({"pool": {"size": 2}})
        done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", self.folder, WEIR], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = done.stdout.decode(), done.stderr.decode()
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("file: /etc/weir/weir.json", out)
        self.assertRegex(out, r"(?m)^/pool/size +file +9$")
        self.assertIn('"project": "demo"', out)
        self.assertIn(self.folder + "/state/audit", err)
        self.assertIn("file: %s/weir.json" % self.folder, out)
        self.assertRegex(out, r"(?m)^/pool/size +file +2$")
        self.assertEqual(err.count('/etc/weir/weir.json: at "/pool": expected an object, found a number'), 2)


class Configured(Service):
    """A service that has everything from a file, and no development token."""

    def __init__(self, folder, port):
        self.own_state, self.state, self.port, self.folder = False, os.path.join(folder, "state"), port, folder
        self.context = ssl.create_default_context(cafile=os.path.join(folder, "tls.crt"))
        self.log = tempfile.NamedTemporaryFile(prefix="weir-test-log-", suffix=".txt", delete=False)
        # Its paths count from its own directory, not from where the service is started.
        self.process = subprocess.Popen([WEIR, "serve", "--config", "weir.json"], stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder)
        try:
            self.wait_until_up(True)
        except BaseException:
            self.stop()
            raise

    def request(self, method, path, body=None, token=None, headers=None, timeout=None):
        headers = dict(headers or {}, **({"Authorization": "Bearer " + token} if token else {}), **({"Content-Type": "application/json"} if body else {}))
        request = urllib.request.Request("https://127.0.0.1:%d%s" % (self.port, path), json.dumps(body).encode() if body else None, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30 * SLOW) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as e:
            return Answer(e.code, dict(e.headers), e.read())


class Serving(Folder):
    def test_service_from_a_file(self):
        """TLS, state, policy and pool as the file says; the log says which file; SIGHUP reads the policy again and no more."""
        certificate(self.folder)
        shutil.copy(os.path.join(TOP, "policies", "snippet.json"), os.path.join(self.folder, "policy.json"))
        port = free_port()
        document = {"listen": "127.0.0.1:%d" % port, "state_dir": "state", "policy": "policy.json", "pool": {"size": 1}, "tls": {"certificate": "tls.crt", "key": "tls.key"}}
        self.write(document)
        with Configured(self.folder, port) as service:
            log = service.log_text()
            self.assertTrue(log.startswith("weir[supervisor]: info: configuration: %s\n" % self.file), log)
            self.assertIn("no token is active, so every request is refused: `weir token mint --project NAME --state-dir %s/state`" % self.folder, log)
            self.assertIn("(HTTPS)", log)
            self.assertEqual(service.request("GET", "/v1/limits", token="anything").status, 401)
            with self.assertRaises(OSError):
                urllib.request.urlopen("http://127.0.0.1:%d/healthz" % port, timeout=10 * SLOW)
            minted = weir("token", "mint", "--project", "demo", "--scope", "project", "--scope", "operator", "--config", self.file)
            token = minted.stdout.decode().strip()
            answer = service.request("POST", "/v1/execute", {"code": "print(6*7)"}, token=token)
            self.assertEqual((answer.status, answer.json()["stdout"]), (200, "42\n"), answer)
            self.assertEqual(service.request("GET", "/v1/pool", token=token).json()["size"], 1)
            self.write(dict(document, pool={"size": 2}, policy="none.json"))
            service.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 20 * SLOW
            while "policy" not in service.log_text()[len(log):]:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            self.assertNotIn("none.json", service.log_text())
            self.assertEqual(service.request("GET", "/v1/pool", token=token).json()["size"], 1)

class UnixSocket(unittest.TestCase):
    def test_only_its_own_socket_is_removed(self):
        for replaced in (False, True):
            with self.subTest(replaced=replaced), tempfile.TemporaryDirectory(prefix="weir-test-") as d:
                path = os.path.join(d, "s")
                service = subprocess.Popen([WEIR, "serve", "--listen", "unix:" + path, "--state-dir", os.path.join(d, "state"), "--dev-token", "t"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                try:
                    deadline = time.monotonic() + 20 * SLOW
                    while not os.path.exists(path) and time.monotonic() < deadline:
                        time.sleep(0.02)
                    if replaced:
                        os.unlink(path)
                        other = socket.socket(socket.AF_UNIX)
                        other.bind(path)
                finally:
                    service.terminate()
                    self.assertEqual(service.wait(20 * SLOW), 0)
                self.assertEqual(os.path.exists(path), replaced)


if __name__ == "__main__":
    unittest.main()
