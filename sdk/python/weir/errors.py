# SPDX-License-Identifier: Apache-2.0
"""What can go wrong. Nothing here ever leads to a local run."""

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional


class WeirError(Exception):
    """The base of all of them.

    `code` is for programs, `message` and `hint` for people. `ran` says whether any code of yours may have run: False means that
    sending the same again can't run it twice; None means that nobody knows (the answer was lost). `status` is the HTTP status,
    `retry_after` the seconds that the service asked for; both None when there was no such answer.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "error",
        hint: str = "",
        ran: Optional[bool] = False,
        status: Optional[int] = None,
        retry_after: Optional[int] = None,
    ) -> None:
        super().__init__("%s (%s)" % (message, hint) if hint else message)
        self.message = message
        self.code = code
        self.hint = hint
        self.ran = ran
        self.status = status
        self.retry_after = retry_after


class ConfigurationError(WeirError, ValueError):
    """A variable or setting is missing or wrong."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, code="configuration", hint=hint)


class NoConversationError(WeirError):
    """CODE_INTERPRETER_SESSION=true, and nothing says which conversation this call belongs to."""


class UnreachableError(WeirError, ConnectionError):
    """There is no answer from the service: it can't be connected to, or the connection broke."""


class ServiceTimeoutError(UnreachableError, TimeoutError):
    """The answer did not come in the time that waiting and running may take together."""


class ServiceError(WeirError):
    """The service failed: 500, or an answer that is none of its own."""


class RequestError(WeirError):
    """The request was refused as it is; sending it again changes nothing: 400, 405, 413, 415, 502."""


class AuthenticationError(WeirError):
    """401 or 403."""


class NotFoundError(WeirError):
    """404."""


class BusyError(WeirError):
    """409, 429 or 503, after the retries that were allowed."""


class ToolError(WeirError):
    """A tool raised an exception in its sandbox.

    `type` is the name of the exception there, `traceback` the text of its traceback, `stdout` and `stderr` what the tool printed,
    `exit_code` and `termination` how its process ended.
    """

    def __init__(self, type: str, message: str, *, traceback: str = "", answer: Optional[Dict[str, Any]] = None, code: str = "tool_error") -> None:
        super().__init__("%s: %s" % (type, message) if message else type, code=code, ran=True)
        answer = answer or {}
        self.type = type
        self.tool_message = message
        self.traceback = traceback
        self.stdout: str = answer.get("stdout") or ""
        self.stderr: str = answer.get("stderr") or ""
        self.exit_code: Optional[int] = answer.get("exit_code")
        self.termination: Dict[str, Any] = answer.get("termination") or {}
        self.run_id: Optional[str] = answer.get("run_id")
        if traceback:
            # What BaseException.add_note() does from Python 3.11 on: the traceback is shown with the exception.
            self.__notes__: List[str] = ["In the sandbox:\n" + traceback.rstrip("\n")]


class ToolTimeoutError(ToolError, TimeoutError):
    """A tool was ended at its deadline."""


class ToolEndedError(ToolError):
    """A tool's process ended before the tool returned: a crash, os._exit(), too much memory."""


class ToolResultError(ToolError):
    """What a tool returned can't travel: no JSON, or too large."""


class ToolLoadError(ToolError):
    """A module with tools can't be imported in the image."""


class ToolProblem(NamedTuple):
    """Why one tool can't be isolated."""

    tool: str
    agent: str  # "" when the tools were given without one
    reason: str
    mend: str


class ToolIsolationError(WeirError):
    """At least one tool can't be isolated; `problems` has them all. Nothing was replaced."""

    def __init__(self, problems: Iterable[ToolProblem]) -> None:
        self.problems = list(problems)
        many = len(self.problems) != 1
        lines = ["%d tool%s can't be isolated:" % (len(self.problems), "s" if many else "")]
        for p in self.problems:
            lines.append("  %s%s: %s" % (p.tool, " of agent %s" % p.agent if p.agent else "", p.reason))
            lines.append("      %s" % p.mend)
        super().__init__("\n".join(lines), code="tool_isolation")


_BY_STATUS = {401: AuthenticationError, 403: AuthenticationError, 404: NotFoundError, 409: BusyError, 429: BusyError, 503: BusyError}


def from_answer(status: int, body: Any, retry_after: Optional[str]) -> WeirError:
    """The exception for an answer that is an error."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return ServiceError("answer %d is none of the service's own" % status, code="bad_answer", hint="is there a proxy in between?", ran=None, status=status)
    kind = _BY_STATUS.get(status, RequestError if status < 500 or status == 502 else ServiceError)
    ran = error.get("ran")
    return kind(
        error["message"],
        code=str(error.get("code") or "error"),
        hint=str(error.get("hint") or ""),
        ran=ran if isinstance(ran, bool) else None,
        status=status,
        retry_after=int(retry_after) if retry_after and re.fullmatch("[0-9]{1,9}", retry_after) else None,
    )


# Types that the service and its harness give; every other is the tool's own.
_BY_TYPE = {
    "ToolTimeoutError": ToolTimeoutError,
    "ToolEndedError": ToolEndedError,
    "ToolMemoryError": ToolEndedError,
    "ToolOutputError": ToolEndedError,
    "ToolCancelledError": ToolEndedError,
    "ToolResultError": ToolResultError,
    "ToolLoadError": ToolLoadError,
}


def from_tool(answer: Dict[str, Any]) -> ToolError:
    """The exception for a call whose tool failed."""
    error = answer["error"]
    type_, message = str(error.get("type") or "Error"), str(error.get("message") or "")
    termination = answer.get("termination") or {}
    detail, kind, code = termination.get("detail") or "", _BY_TYPE.get(type_, ToolError), "tool_error"
    if termination.get("reason") == "timeout":
        kind, code = ToolTimeoutError, "tool_timeout"
    if detail and detail not in message and kind in (ToolEndedError, ToolTimeoutError):
        message = "%s: %s" % (message, detail) if message else detail
    return kind(type_, message, traceback=str(error.get("traceback") or ""), answer=answer, code=code)
