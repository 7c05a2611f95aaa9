# SPDX-License-Identifier: Apache-2.0
"""Weir for agents: run_python for the model, and the agent's own tools in sandboxes.

run_python(code) is a tool; list it. `python -m weir.agent MODULE:AGENT` starts an agent with all its tools in sandboxes;
isolate(agent) does the same from within a program.
"""

import sys
from typing import Any, Dict, Mapping, Optional, TypeVar, Union

from . import _guard
from ._conversation import conversation, end_conversation
from ._run import run_python, run_python_async
from ._settings import SavedFile, SaveFiles, in_sandbox
from ._settings import options as _options
from ._settings import set_options as _set_options
from .errors import (
    AuthenticationError,
    BusyError,
    ConfigurationError,
    NoConversationError,
    NotFoundError,
    RequestError,
    ServiceError,
    ServiceTimeoutError,
    ToolEndedError,
    ToolError,
    ToolIsolationError,
    ToolLoadError,
    ToolProblem,
    ToolResultError,
    ToolTimeoutError,
    UnreachableError,
    WeirError,
)

__version__ = "0.1.0"

if not in_sandbox():
    _guard.inherit()

_UNSET: Any = object()

T = TypeVar("T")


def isolate(agent_or_tools: T) -> T:
    """
    Makes every tool of an agent and of its sub-agents run in sandboxes; returns the agent, or for a single function what is to
    be listed in its place. Lists and objects are changed in place. Raises ToolIsolationError, and changes nothing, when one of
    them can't be moved. In a sandbox it does nothing.

    With TOOL_SANDBOX=false it warns and moves nothing.
    """
    if in_sandbox():
        return agent_or_tools
    from .isolation import relocate

    return relocate(agent_or_tools, [sys._getframe(1).f_globals.get("__name__", "")])


def configure(
    *,
    url: Optional[str] = _UNSET,
    token: Optional[str] = _UNSET,
    save_files: Optional[SaveFiles] = _UNSET,
    tool_timeout_s: Union[int, Mapping[str, int]] = _UNSET,
    retries: int = _UNSET,
) -> None:
    """Settings of this process; what is left out stays as it is.

    url, token: in place of SANDBOX_URL and SANDBOX_TOKEN; None for the variables again.
    save_files: where files of the model's code go. A directory: DIRECTORY/RUN/NAME, a new RUN for every run. A function: it is
        called with a SavedFile for each. None (as it is at first): only their names are in the result.
    tool_timeout_s: deadline of a tool call, 1 to 120 (at first 30): one for all, or {tool name: seconds}.
    retries: how often a request that was refused for now (429 or 503, nothing ran) is sent again, 0 to 10 (at first 2).
    """
    given = {"url": url, "token": token, "save_files": save_files, "tool_timeout_s": tool_timeout_s, "retries": retries}
    _set_options({k: v for k, v in given.items() if v is not _UNSET})


def internal_caller_headers() -> Dict[str, str]:
    """The headers by which the service knows this agent, for HTTP clients of your own."""
    return {"Authorization": "Bearer " + _options.bearer()}


__all__ = [
    "AuthenticationError",
    "BusyError",
    "ConfigurationError",
    "NoConversationError",
    "NotFoundError",
    "RequestError",
    "SavedFile",
    "ServiceError",
    "ServiceTimeoutError",
    "ToolEndedError",
    "ToolError",
    "ToolIsolationError",
    "ToolLoadError",
    "ToolProblem",
    "ToolResultError",
    "ToolTimeoutError",
    "UnreachableError",
    "WeirError",
    "configure",
    "conversation",
    "end_conversation",
    "internal_caller_headers",
    "isolate",
    "run_python",
    "run_python_async",
]
