# SPDX-License-Identifier: Apache-2.0
"""Which conversation a call belongs to, and the interpreter that each one has."""

import atexit
import contextvars
import logging
import os
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Hashable, Optional, Tuple

from . import errors
from ._threads import in_thread

if TYPE_CHECKING:
    from ._client import Client, Handle

log = logging.getLogger("weir")

KNOWN_MOST = 4096  # conversations without an end that can be seen (ADK's): the oldest are forgotten
EXIT_S = 5

_current: "contextvars.ContextVar[Optional[Hashable]]" = contextvars.ContextVar("weir_conversation", default=None)


class _Interpreter:
    """The session of one conversation, opened when it is first needed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0  # with-blocks that are open
        self.session_id: Optional[str] = None
        self.lost = False  # there was one before, which is gone
        self.client: "Optional[Client]" = None

    def session(self, handle: "Optional[Handle]") -> Tuple[str, bool]:
        """Its session, and whether that has taken the place of one that was lost."""
        from ._client import client

        with self.lock:
            replaces = False
            if self.session_id is None:
                self.client = client()
                self.session_id = self.client.open_session(handle)
                replaces, self.lost = self.lost, False
            return self.session_id, replaces

    def drop(self, session_id: str, lost: bool) -> None:
        """The session is over; unless somebody has put another in its place already."""
        with self.lock:
            if self.session_id == session_id:
                self.session_id, self.lost = None, lost

    def close(self, timeout: float = 15) -> None:
        with self.lock:
            session_id, self.session_id, self.lost = self.session_id, None, False
        if session_id is None or self.client is None:
            return
        try:
            self.client.end_session(session_id, timeout)
        except errors.NotFoundError:
            pass  # it has ended by itself
        except errors.WeirError as e:
            log.warning("session %s could not be closed, it ends when it has been idle: %s", session_id, e)


_lock = threading.Lock()
_known: "OrderedDict[Hashable, _Interpreter]" = OrderedDict()


def interpreter(key: Hashable) -> _Interpreter:
    """The interpreter of a conversation. Those that nobody has asked for longest are forgotten when there are very many."""
    with _lock:
        found = _known.get(key)
        if found is None:
            found = _known[key] = _Interpreter()
        _known.move_to_end(key)
        if len(_known) > KNOWN_MOST:
            for old, its in _known.items():
                if not its.users and old != key:
                    del _known[old]  # its session ends by itself
                    break
        return found


def current() -> Optional[Hashable]:
    return _current.get()


def end_conversation(conversation_id: Hashable) -> None:
    """Ends the interpreter of a conversation, as leaving `with weir.conversation(id)` does. One that does not exist is fine."""
    with _lock:
        found = _known.pop(conversation_id, None)
    if found:
        found.close()


class conversation:
    """`with weir.conversation(id):` (or `async with`): calls of run_python in the block belong to the conversation `id`.

    With CODE_INTERPRETER_SESSION=true they share an interpreter, which is opened by the first of them and closed at the end of
    the block; of blocks with the same id, at the end of the last. Without it every call has a sandbox of its own as ever.
    Tasks that are started in the block belong to it too; threads only when they are started with its context
    (asyncio.to_thread(), contextvars.copy_context().run).
    """

    def __init__(self, id: Hashable) -> None:
        if id is None or id == "":
            raise ValueError("a conversation needs an id")
        hash(id)
        self.id = id
        self._tokens: "list[contextvars.Token[Optional[Hashable]]]" = []

    def __enter__(self) -> "conversation":
        its = interpreter(self.id)
        with _lock:
            its.users += 1
        self._tokens.append(_current.set(self.id))
        return self

    def _leave(self) -> Optional[_Interpreter]:
        """The interpreter to be closed, when this was the last block."""
        try:
            _current.reset(self._tokens.pop())
        except ValueError:
            pass  # left in another context than it was entered in: there it never counted
        with _lock:
            its = _known.get(self.id)
            if its is None:
                return None
            its.users -= 1
            if its.users > 0:
                return None
            del _known[self.id]
            return its

    def __exit__(self, *exc: Any) -> None:
        its = self._leave()
        if its:
            its.close()

    async def __aenter__(self) -> "conversation":
        return self.__enter__()

    async def __aexit__(self, *exc: Any) -> None:
        its = self._leave()
        if its:
            close = its.close
            await in_thread(lambda _handle: close())


@atexit.register
def _close_all() -> None:
    """What is still open when the agent ends."""
    deadline = time.monotonic() + EXIT_S
    while _known and time.monotonic() < deadline:
        _, its = _known.popitem()
        its.close(timeout=max(deadline - time.monotonic(), 0.1))


def _forked() -> None:
    """In the child: the interpreters are the parent's, and a lock may be held by a thread that there is not."""
    global _lock, _known
    _lock, _known = threading.Lock(), OrderedDict()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
