# SPDX-License-Identifier: Apache-2.0
"""run_python: the tool that a model runs its own code with."""

# Annotations stay objects here: some frameworks can't read them as text.
import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Dict, Hashable, List, Optional

from . import _conversation, _marks, errors
from ._files import take
from ._settings import Interpreter, options
from ._threads import in_thread

if TYPE_CHECKING:
    from ._client import Handle

# Now, so that a wrong value stops the agent when it starts.
wrong: Optional[errors.ConfigurationError] = None
try:
    interpreter = Interpreter.read(os.environ)
except errors.ConfigurationError as e:
    if sys.argv[:1] != ["-m"]:
        raise
    # `python -m weir.agent` imports this before it can say what is wrong in a line; until it is said, nothing runs.
    interpreter, wrong = Interpreter.read({}), e


def checked() -> None:
    if wrong is not None:
        raise wrong

LOST = "the interpreter of this conversation was lost; this is a new one, without the variables, imports and files from before"
ENDED = "this run ended the interpreter: variables, imports and files are gone, the next call gets a new one"
NO_CONVERSATION = "CODE_INTERPRETER_SESSION=true, and nothing says which conversation this call belongs to"
NO_CONVERSATION_HINT = "call it within `with weir.conversation(id):`; Google ADK agents list weir.adk.run_python"

_ABOUT = (
    "{keeps} Use print() for everything that you want to see: the value of a last expression is not shown.",
    "The code has {seconds} seconds; then it is ended.",
    "There is no network, not even DNS: nothing can be downloaded or installed, and no service can be reached.",
    "There are the standard library and the packages that the operator has put there, if any: try an import to find out.",
    "Files that the code writes to its working directory are kept for the user.",
)
_SINGLE = "Every call starts from nothing: no variable, import or file of an earlier call is there."
_SHARED = "All calls in this conversation share one interpreter: variables, imports and files stay from call to call."
_DOC = """Runs Python code in an isolated sandbox and returns what it printed.

{about}

Args:
    code: The Python code: a whole script.

Returns:
    A dict: stdout and stderr (what the code printed, and its traceback), exit_code (0 when it ended well, -1 when it ran out of
    time), files (names of the files that it wrote), and sometimes note (what else there is to know).
"""


def _documentation(how: Interpreter) -> str:
    about = " ".join(_ABOUT).format(keeps=_SHARED if how.session else _SINGLE, seconds=how.timeout_s)
    return _DOC.format(about=textwrap.fill(about, 120))


def _notes(answer: Dict[str, Any]) -> List[str]:
    """What the model can't see from output and exit code."""
    notes = []
    detail = (answer.get("termination") or {}).get("detail") or ""
    if detail and detail not in answer.get("stderr", ""):
        notes.append(detail)
    if answer.get("truncated"):
        notes.append("output was cut: there were %s bytes of stdout and %s of stderr" % (answer.get("stdout_bytes"), answer.get("stderr_bytes")))
    return notes


def _result(answer: Dict[str, Any], notes: List[str]) -> Dict[str, Any]:
    names, more = take(answer, options.save_files)
    result = {"stdout": answer.get("stdout", ""), "stderr": answer.get("stderr", ""), "exit_code": answer.get("exit_code"), "files": names}
    notes = notes + _notes(answer) + more
    if notes:
        result["note"] = "; ".join(notes)
    return result


def _execute(code: str, session_id: Optional[str], handle: "Optional[Handle]") -> Dict[str, Any]:
    from ._client import client  # not before it is needed: an image's tools import this package without ever calling out

    return client().execute(code, interpreter.timeout_s, session_id, handle)


def _in_session(code: str, key: Hashable, handle: "Optional[Handle]") -> Dict[str, Any]:
    its = _conversation.interpreter(key)
    session_id, replaces = its.session(handle)
    try:
        answer = _execute(code, session_id, handle)
    except errors.NotFoundError:
        # It ended since the last call: idle, over its life, a restart of the service. Nothing of this code ran.
        its.drop(session_id, lost=True)
        session_id, replaces = its.session(handle)
        answer = _execute(code, session_id, handle)
    notes = [LOST] if replaces else []
    if answer.get("session_ended"):
        its.drop(session_id, lost=False)
        notes.append(ENDED)
    return _result(answer, notes)


def run(code: str, key: Optional[Hashable] = None, handle: "Optional[Handle]" = None) -> Dict[str, Any]:
    """run_python for the conversation `key`, when no with-block says another."""
    if not isinstance(code, str):
        raise TypeError("code must be a str, not %s" % type(code).__name__)
    checked()
    if not interpreter.session:
        return _result(_execute(code, None, handle), [])
    block = _conversation.current()
    key = block if block is not None else key
    if key is None:
        raise errors.NoConversationError(NO_CONVERSATION, code="no_conversation", hint=NO_CONVERSATION_HINT)
    return _in_session(code, key, handle)


def run_python(code: str) -> dict:  # type: ignore[type-arg]
    return run(code)


async def run_python_async(code: str) -> dict:  # type: ignore[type-arg]
    result: Dict[str, Any] = await in_thread(lambda handle: run(code, None, handle))
    return result


def publish(function: Any) -> Any:
    """Gives it the name and the words that the model gets, and makes it known as what it is."""
    function.__name__ = function.__qualname__ = "run_python"
    function.__doc__ = _documentation(interpreter)
    _marks.add_run_python(function)
    return function


publish(run_python)
publish(run_python_async)
