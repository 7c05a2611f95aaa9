# SPDX-License-Identifier: Apache-2.0
"""The variables of an agent's process, and what configure() adds to them."""

import os
import sys
from typing import Any, Callable, Mapping, NamedTuple, Optional, Union

from .errors import ConfigurationError

TIMEOUT_DEFAULT_S = 20
TIMEOUT_MAX_S = 60  # of a single-use run
TIMEOUT_SESSION_MAX_S = 120
TOOL_TIMEOUT_DEFAULT_S = 30
TOOL_TIMEOUT_MAX_S = 120

ENV_HINT = "`weir agent env NAME` prints every variable that an agent needs"


def in_sandbox() -> bool:
    """Whether this is a tool's sandbox: there tools are called, not moved."""
    return sys._xoptions.get("weir") == "call"


def flag(environ: Mapping[str, str], name: str, default: bool) -> bool:
    value = environ.get(name, "")
    if value not in ("", "true", "false"):
        raise ConfigurationError('%s must be "true" or "false", not "%s"' % (name, value))
    return value == "true" if value else default


class Interpreter(NamedTuple):
    """How run_python runs: fixed when the agent starts, since the model is told."""

    timeout_s: int
    session: bool

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> "Interpreter":
        session = flag(environ, "CODE_INTERPRETER_SESSION", False)
        text = environ.get("CODE_INTERPRETER_TIMEOUT_S", "")
        if not text:
            return cls(TIMEOUT_DEFAULT_S, session)
        # As the service takes it: digits alone, no sign, no blanks.
        seconds = int(text) if len(text) < 10 and text.isascii() and text.isdigit() else 0
        if not 1 <= seconds <= TIMEOUT_SESSION_MAX_S:
            raise ConfigurationError('CODE_INTERPRETER_TIMEOUT_S must be a whole number of seconds from 1 to %d, not "%s"' % (TIMEOUT_SESSION_MAX_S, text))
        if seconds > TIMEOUT_MAX_S and not session:
            raise ConfigurationError("CODE_INTERPRETER_TIMEOUT_S=%d needs CODE_INTERPRETER_SESSION=true" % seconds, "without a session a run has at most %d s" % TIMEOUT_MAX_S)
        return cls(seconds, session)


def tool_sandbox() -> bool:
    return flag(os.environ, "TOOL_SANDBOX", True)


class SavedFile(NamedTuple):
    """A file that code of the model left behind, as a `save_files` callback gets it."""

    name: str  # relative, with "/" between; never absolute, never with ".."
    content: bytes
    media_type: str
    run_id: str


SaveFiles = Union[str, "os.PathLike[str]", Callable[[SavedFile], Any]]


class Options:
    """What configure() sets."""

    def __init__(self) -> None:
        self.url: Optional[str] = None
        self.token: Optional[str] = None
        self.save_files: Optional[SaveFiles] = None
        self.tool_timeout_s: Union[int, Mapping[str, int]] = TOOL_TIMEOUT_DEFAULT_S
        self.retries = 2

    def address(self) -> str:
        return self._needed("SANDBOX_URL", self.url)

    def bearer(self) -> str:
        token = self._needed("SANDBOX_TOKEN", self.token)
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigurationError("SANDBOX_TOKEN has a character that no token has", ENV_HINT)
        return token

    @staticmethod
    def _needed(name: str, given: Optional[str]) -> str:
        value = given if given is not None else os.environ.get(name, "")
        if not value:
            raise ConfigurationError("%s is not set" % name, ENV_HINT)
        return value

    def tool_timeout(self, *names: str) -> int:
        """That of the first of `names` that has one of its own."""
        if isinstance(self.tool_timeout_s, int):
            return self.tool_timeout_s
        return next((self.tool_timeout_s[n] for n in names if n in self.tool_timeout_s), TOOL_TIMEOUT_DEFAULT_S)


options = Options()


def _checked_timeout(what: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= TOOL_TIMEOUT_MAX_S:
        raise ConfigurationError("%s must be a whole number of seconds from 1 to %d, not %r" % (what, TOOL_TIMEOUT_MAX_S, value))
    return value


def set_options(given: Mapping[str, Any]) -> None:
    """All or, with an error, none."""
    ready = dict(given)
    if "tool_timeout_s" in ready:
        value = ready["tool_timeout_s"]
        if isinstance(value, Mapping):
            ready["tool_timeout_s"] = {str(k): _checked_timeout('tool_timeout_s["%s"]' % k, v) for k, v in value.items()}
        else:
            _checked_timeout("tool_timeout_s", value)
    if "retries" in ready and (type(ready["retries"]) is not int or not 0 <= ready["retries"] <= 10):
        raise ConfigurationError("retries must be a whole number from 0 to 10, not %r" % (ready["retries"],))
    for name in ("url", "token"):
        if not isinstance(ready.get(name, None), (str, type(None))):
            raise ConfigurationError("%s must be a str, not a %s" % (name, type(ready[name]).__name__))
    save = ready.get("save_files")
    if save is not None and not callable(save):
        ready["save_files"] = os.fspath(save)
    for name, value in ready.items():
        setattr(options, name, value)
