# SPDX-License-Identifier: Apache-2.0
"""A service that runs nothing: it answers what a test has written down for it, and remembers what it was asked."""
import http.server
import importlib
import inspect
import json
import os
import socketserver
import ssl
import sys
import threading

from weir import _locate, _marks, _signature

TOKEN = "weir_stub-token"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves in one piece


    def address_string(self):
        return "local"

    def log_message(self, *args):
        pass

    def do_POST(self):
        self.handle_any()

    do_DELETE = do_GET = do_POST

    def handle_any(self):
        service = self.server.service
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        with service.lock:
            service.asked.append((self.command, self.path, body))
            service.peers.add(self.client_address or id(self.connection))
            answer = service.answers.pop(0) if service.answers else None
        if self.headers.get("Authorization") != "Bearer " + TOKEN:
            answer = (401, error("unauthorized", "missing or invalid project token"))
        if answer is None:
            answer = service.usual(self.command, self.path, body)
        if callable(answer):
            answer = answer(self)
            if answer is None:
                self.close_connection = True
                return
        status, content = answer[:2]
        headers = answer[2] if len(answer) > 2 else {}
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def error(code, message, ran=False, hint=""):
    return {"error": {"code": code, "message": message, "hint": hint, "ran": ran}}


def executed(stdout="", **more):
    answer = {"sandbox_id": "sandbox-stub", "run_id": "sandbox-stub", "stdout": stdout, "stderr": "", "exit_code": 0, "files": [], "files_skipped": []}
    answer.update(termination={"reason": "exit", "signal": None, "detail": ""}, truncated=False)
    return dict(answer, **more)


class _Threads(socketserver.ThreadingMixIn):
    daemon_threads, request_queue_size = True, 128

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients that hang up are what some tests are about
            super().handle_error(request, client_address)


class _Tcp(_Threads, http.server.HTTPServer):
    pass


class _Unix(_Threads, socketserver.UnixStreamServer):
    pass


class Service:
    """.url is what SANDBOX_URL has to be. Answers of `answers` come first, each once; then usual()."""

    def __init__(self, unix=None, certificate=None):
        self.lock, self.asked, self.peers, self.answers = threading.Lock(), [], set(), []
        self.sessions, self.modules = {}, {"sdk_app"}
        self.server = _Unix(unix, Handler) if unix else _Tcp(("127.0.0.1", 0), Handler)
        self.url = "unix:" + unix if unix else "http://127.0.0.1:%d" % self.server.server_address[1]
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = "https://localhost:%d" % self.server.server_address[1]
        self.server.service = self
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def usual(self, method, path, body):
        if path == "/v1/execute":
            if "session_id" in body and body["session_id"] not in self.sessions:
                return 404, error("not_found", "not found")
            return 200, executed("ran %s\n" % body["code"])
        if path == "/v1/sessions":
            with self.lock:
                session = "sandbox-s%d" % (len(self.asked))
                self.sessions[session] = []
            return 201, {"session_id": session}
        if method == "DELETE":
            found = self.sessions.pop(path.rsplit("/", 1)[1], None)
            return (200, {}) if found is not None else (404, error("not_found", "not found"))
        if path == "/v1/call":
            return self.call(body)
        return 404, error("not_found", "not found")

    # -- what an image would do, here --

    def find(self, name):
        module, _, qualname = name.partition(":")
        if module not in self.modules:
            raise LookupError("module %s is not registered" % module)
        found = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
        return _marks.original(_locate.unwrap(found))

    def describe(self, tool):
        try:
            signature = _signature.of(self.find(tool["name"]))
            return {"name": tool["name"], "ok": True, "reason": None, "signature": _signature.canonical(signature)}
        except (LookupError, AttributeError) as e:
            return {"name": tool["name"], "ok": False, "reason": str(e), "signature": None}

    def call(self, body):
        if body["name"] == "weir:describe":
            return 200, executed(result={"tools": [self.describe(t) for t in body["arguments"]["tools"]], "python": "3.12.1", "modules": []})
        function, arguments = self.find(body["name"]), dict(body["arguments"])
        positional = []
        for p in inspect.signature(function).parameters.values():
            if p.kind != p.POSITIONAL_ONLY or p.name not in arguments:
                break
            positional.append(arguments.pop(p.name))
        try:
            value = function(*positional, **arguments)
            if inspect.isawaitable(value):
                import asyncio

                value = asyncio.run(value)
        except Exception as e:
            text = 'Traceback (most recent call last):\n  File "/app/sdk_app.py", line 7, in boom\n%s: %s\n' % (type(e).__name__, e)
            return 200, executed(error={"type": type(e).__name__, "message": str(e), "traceback": text}, exit_code=1)
        return 200, executed(result=json.loads(json.dumps(value)), stdout="pid %d\n" % os.getpid())

    def calls(self, path="/v1/call"):
        """Bodies of what came for `path`, describe left out."""
        return [b for _, p, b in self.asked if p == path and not (b or {}).get("name", "").startswith("weir:")]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()
