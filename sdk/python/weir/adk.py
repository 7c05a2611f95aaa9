# SPDX-License-Identifier: Apache-2.0
"""run_python for Google ADK: the conversation is that of ADK's session."""

import sys
from typing import Any, Hashable, Optional

from ._run import interpreter, publish, run


def _conversation_of(tool_context: Any) -> Optional[Hashable]:
    """ADK's session, as its tool context has it; None when there is none."""
    session = getattr(tool_context, "session", None)
    if session is None:
        session = getattr(getattr(tool_context, "_invocation_context", None), "session", None)
    session_id = getattr(session, "id", None)
    if not session_id:
        return None
    return ("adk", getattr(session, "app_name", None), getattr(session, "user_id", None), session_id)


def run_python(code: str, tool_context: Any = None) -> dict:  # type: ignore[type-arg]
    return run(code, _conversation_of(tool_context) if interpreter.session else None)


publish(run_python)


def is_agent(agent: Any) -> bool:
    return any((c.__module__ or "").startswith("google.adk.") for c in type(agent).__mro__)


async def prompt_loop(agent: Any) -> None:
    """Reads a line, lets the agent answer, until the end of standard input. For trying an agent out: one user, one session."""
    from google.adk.runners import InMemoryRunner  # type: ignore
    from google.genai import types  # type: ignore

    runner = InMemoryRunner(agent=agent, app_name="weir")
    session = await runner.session_service.create_session(app_name="weir", user_id="user")
    while True:
        if sys.stdin.isatty():
            print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if not line.strip():
            continue
        message = types.Content(role="user", parts=[types.Part(text=line.strip())])
        async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message):
            for part in (event.content.parts or []) if event.content else []:
                if part.text:
                    print(part.text, flush=True)
