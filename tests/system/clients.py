# SPDX-License-Identifier: Apache-2.0
"""Clients of a service that send without waiting: many requests at once from one thread, and a token for each project."""
import http.client
import json
import socket
import subprocess
import time

from lib import SLOW, TOKEN, WEIR, Answer


def mint(service, project, *options):
    """A token of `project` for a service that runs."""
    done = subprocess.run([WEIR, "token", "mint", "--state-dir", service.state, "--project", project, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30 * SLOW)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    return done.stdout.decode().split()[0]


class Post:
    """One POST of an object on a connection of its own: sent at once, answered when asked for."""

    def __init__(self, service, path, body, token=TOKEN, timeout=130):
        self.socket = socket.create_connection(("127.0.0.1", service.port), timeout * SLOW)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = "POST %s HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path, token, len(raw))
        try:
            self.socket.sendall(head.encode() + raw)
        except OSError:
            self.socket.close()
            raise

    def answer(self):
        try:
            response = http.client.HTTPResponse(self.socket, method="POST")
            response.begin()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            self.socket.close()

    def hang_up(self):
        self.socket.close()


def execute(service, code, token=TOKEN, **fields):
    return Post(service, "/v1/execute", dict(fields, code=code), token)


class Follower:
    """GET /v1/audit/stream: .response, and next(wanted) for the next event (id, type, record) of one of these types; comments are left out."""

    def __init__(self, service, query="", token=TOKEN, headers=None, timeout=30):
        self.connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=timeout * SLOW)
        self.connection.request("GET", "/v1/audit/stream" + query, headers=dict(headers or {}, Authorization="Bearer " + token))
        self.response = self.connection.getresponse()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.response.close()
        self.connection.close()

    def event(self):
        """The next event that has data: (id or None, type, record)."""
        found = {}
        while line := self.response.readline().decode().rstrip("\n") if not self.response.isclosed() else None:
            name, _, value = line.partition(": ")
            found[name] = value
        if "data" in found:
            return found.get("id"), found["event"], json.loads(found["data"])
        if not found and (self.response.isclosed() or not self.response.fp):
            raise EOFError
        return None

    def next(self, *wanted, timeout=20):
        deadline = time.monotonic() + timeout * SLOW
        while time.monotonic() < deadline:
            event = self.event()
            if event and (not wanted or event[1] in wanted):
                return event
        raise AssertionError("none of %r came" % (wanted,))
