# SPDX-License-Identifier: Apache-2.0
"""HTTP to the service: connections that are kept, time-outs that fit what is asked, retries only where they can't run anything twice."""

import http.client
import json
import os
import select
import socket
import ssl
import threading
import time
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import urlsplit

from . import errors
from ._settings import options

MARGIN_S = 15  # for what is around waiting and running
POOL_WAIT_S = 30  # for a warm sandbox, or for the turn in a session
CALL_WAIT_S = 140  # for the project's turn (30 s), then for a tool's sandbox to be made ready (110 s)
KEEP_IDLE_S = 20
KEEP_MOST = 16
RETRY_WITHIN_S = 60  # of the first try: who has waited that long is told
READ_BYTES = 1 << 18
CONNECT_HINT = "SANDBOX_URL says where it is; does it run (`sudo weir serve`), and there? another address: `weir agent env NAME --url …`"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Address:
    """SANDBOX_URL, taken apart."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.unix = url[5:] if url.startswith("unix:") else ""
        self.prefix = ""
        if self.unix and "\0" not in url:
            self.unix = "/" + self.unix.lstrip("/")
            return
        if not url.isascii() or not url.isprintable() or " " in url:
            raise errors.ConfigurationError("SANDBOX_URL has a character that no URL has; others than ASCII are written as %XX, in a host's name as xn--…")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as e:
            raise errors.ConfigurationError("SANDBOX_URL is not valid: %s" % e) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username is not None:
            raise errors.ConfigurationError("SANDBOX_URL must be http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH")
        self.tls, self.host, self.port = parts.scheme == "https", parts.hostname, port
        self.prefix = parts.path.rstrip("/")
        self.context = ssl.create_default_context() if self.tls else None

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        if self.unix:
            return _UnixConnection(self.unix, timeout)
        if self.tls:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.context)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)


def readable(sock: socket.socket) -> bool:
    """Whether there is something to be read, the end included."""
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


class Cancelled(Exception):
    """The one who asked does not want the answer any more."""


class Handle:
    """One request that can be given up from another thread: its connection is closed, which ends its run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: Optional[socket.socket] = None
        self.cancelled = threading.Event()

    def use(self, sock: Optional[socket.socket]) -> None:
        with self._lock:
            self._socket = sock
        if self.cancelled.is_set():
            raise Cancelled()

    def cancel(self) -> None:
        self.cancelled.set()
        with self._lock:
            if self._socket:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it is closed already


class Client:
    """Safe to be used by many threads at once; a forked child gets one of its own."""

    def __init__(self, url: str, token: str) -> None:
        self.address = Address(url)
        self._token = token
        self._lock = threading.Lock()
        self._idle: List[Tuple[float, http.client.HTTPConnection]] = []
        self._retired = False

    # ---- what is asked ----

    def execute(self, code: str, timeout_s: int, session_id: Optional[str] = None, handle: Optional[Handle] = None) -> Dict[str, Any]:
        body: Dict[str, Any] = {"code": code, "timeout_s": timeout_s}
        if session_id:
            body["session_id"] = session_id
        return self.ask("POST", "/v1/execute", body, POOL_WAIT_S + timeout_s + MARGIN_S, handle)

    def call(self, name: str, arguments: Dict[str, Any], timeout_s: int, handle: Optional[Handle] = None) -> Dict[str, Any]:
        body = {"name": name, "arguments": arguments, "timeout_s": timeout_s}
        return self.ask("POST", "/v1/call", body, CALL_WAIT_S + timeout_s + MARGIN_S, handle)

    def open_session(self, handle: Optional[Handle] = None) -> str:
        session_id = self.ask("POST", "/v1/sessions", {}, POOL_WAIT_S + MARGIN_S, handle).get("session_id")
        if not isinstance(session_id, str) or "/" in session_id:
            raise errors.ServiceError("the answer has no session_id", code="bad_answer", ran=False)
        return session_id

    def end_session(self, session_id: str, timeout: float = MARGIN_S) -> None:
        self._once("DELETE", "/v1/sessions/" + session_id, None, time.monotonic() + timeout, Handle())

    # ---- how ----

    def ask(self, method: str, path: str, body: Any, timeout: float, handle: Optional[Handle] = None) -> Dict[str, Any]:
        """The answer's object. `timeout`: seconds for each try."""
        # Bytes as they are, so that a text counts what it has; what UTF-8 can't say is left to an escape, and refused there.
        try:
            data = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            data = json.dumps(body, allow_nan=False).encode()
        handle = handle or Handle()
        left, until = options.retries, time.monotonic() + RETRY_WITHIN_S
        while True:
            try:
                return self._once(method, path, data, time.monotonic() + timeout, handle)
            except errors.BusyError as e:
                pause = e.retry_after if e.retry_after is not None else 1
                if left <= 0 or e.ran is not False or e.status not in (429, 503) or time.monotonic() + pause > until:
                    raise
            left -= 1
            if handle.cancelled.wait(pause):
                raise Cancelled()

    def _once(self, method: str, path: str, data: Optional[bytes], deadline: float, handle: Handle) -> Dict[str, Any]:
        connection = self._take(deadline, handle)
        keep = False
        try:
            status, headers, text = self._exchange(connection, method, path, data, deadline, handle)
            keep = connection.sock is not None
        except (OSError, http.client.HTTPException) as e:
            if handle.cancelled.is_set():
                raise Cancelled() from None
            if isinstance(e, socket.timeout):
                raise errors.ServiceTimeoutError("no answer from the service in time", code="no_answer", hint="whether anything ran is not known", ran=None) from e
            raise errors.UnreachableError(
                "the connection to the service broke: %s" % (e or type(e).__name__), code="no_answer", hint="whether anything ran is not known", ran=None
            ) from e
        finally:
            try:
                handle.use(None)
            finally:
                self._give(connection, keep)
        return self._answer(status, headers, text)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, data: Optional[bytes], deadline: float, handle: Handle
    ) -> Tuple[int, Any, bytes]:
        headers = {"Authorization": "Bearer " + self._token, "Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        self._wait_until(connection, deadline)
        try:
            connection.request(method, self.address.prefix + path, body=data, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # what is refused by its headers alone is answered before it is read: the answer may be there
        pieces = []
        self._wait_until(connection, deadline)
        response = connection.getresponse()
        while True:
            self._wait_until(connection, deadline)
            piece = response.read1(READ_BYTES)  # what is there, so that the deadline holds for an answer in drops too
            if not piece:
                break
            pieces.append(piece)
        response.read()  # nothing any more; now every version of the library knows that it is over
        return response.status, response.headers, b"".join(pieces)

    @staticmethod
    def _wait_until(connection: http.client.HTTPConnection, deadline: float) -> None:
        if connection.sock is not None:
            connection.sock.settimeout(max(deadline - time.monotonic(), 0.001))

    @staticmethod
    def _answer(status: int, headers: Any, text: bytes) -> Dict[str, Any]:
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if not 200 <= status < 300:
            raise errors.from_answer(status, body, headers.get("Retry-After"))
        if not isinstance(body, dict):
            raise errors.ServiceError("the answer is not a JSON object", code="bad_answer", ran=None, status=status)
        return body

    def _take(self, deadline: float, handle: Handle) -> http.client.HTTPConnection:
        """A connection that is open: one that was kept, or a new one."""
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                # What can be read while nothing was asked is its end.
                if time.monotonic() - since < KEEP_IDLE_S and connection.sock and not readable(connection.sock):
                    break
                connection.close()
            else:
                connection = self.address.connection(max(deadline - time.monotonic(), 0.001))
        try:
            if connection.sock is None:
                connection.connect()
            handle.use(connection.sock)
            return connection
        except (OSError, ValueError) as e:
            connection.close()
            if handle.cancelled.is_set():
                raise Cancelled() from None
            raise errors.UnreachableError("can't connect to the service at %s: %s" % (self.address.url, e), code="unreachable", hint=CONNECT_HINT) from e
        except Cancelled:
            connection.close()
            raise

    def _give(self, connection: http.client.HTTPConnection, keep: bool) -> None:
        with self._lock:
            if keep and not self._retired and len(self._idle) < KEEP_MOST:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def retire(self) -> None:
        """Another has taken its place: no connection is kept any more."""
        with self._lock:
            self._retired, idle, self._idle = True, self._idle, []
        for _, connection in idle:
            connection.close()


_lock = threading.Lock()
_client: Optional[Client] = None
_made_of: Tuple[str, str] = ("", "")


def client() -> Client:
    """The client for SANDBOX_URL and SANDBOX_TOKEN (or what configure() says) as they are now."""
    global _client, _made_of
    now = (options.address(), options.bearer())
    with _lock:
        if _client is None or now != _made_of:
            fresh = Client(*now)
            if _client is not None:
                _client.retire()
            _client, _made_of = fresh, now
        return _client


def _forked() -> None:
    """In the child: the connections are the parent's, and a lock may be held by a thread that there is not."""
    global _lock, _client
    if _client is not None:
        for _, connection in _client._idle:
            connection.close()  # this process's end alone
    _lock, _client = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
