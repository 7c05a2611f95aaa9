# SPDX-License-Identifier: Apache-2.0
"""Starts an agent with every tool of it in sandboxes.

  python -m weir.agent [--check] MODULE[:AGENT] [ARG…]
  python -m weir.agent MODULE[:AGENT] --then MODULE [ARG…]

MODULE:AGENT names the agent: an object with `tools`, `sub_agents` or `handoffs`, or a list or dict of tools.
Without AGENT it is `root_agent`. Its tools, and those of its sub-agents, are found and moved; one that can't be
stops the start. Then the agent runs:
  --then MODULE     runs that module as `python -m MODULE ARG…` would, in this process: a framework's server
  an ADK agent      answers what is typed, line by line
  anything else     is called with ARG…, or its main() or run(); what that returns is printed

  --check           moves nothing and runs nothing: says what would become of each tool; exit status 1 when
                    one can't be moved
  --help            shows this

Examples:
  python -m weir.agent app:root_agent
  python -m weir.agent --check app:root_agent
  python -m weir.agent app:agent "What is the 40th Fibonacci number?"
  python -m weir.agent app:TOOLS --then app.server --port 8000

The variables that it needs are printed by `weir agent env NAME`:
  SANDBOX_URL, SANDBOX_TOKEN    the service, and the token of this agent
  TOOL_SANDBOX                  true; `false` runs the tools in this process, with a warning at each start
  CODE_INTERPRETER_TIMEOUT_S    the deadline of run_python, 1 to 120 (over 60 needs a session)
  CODE_INTERPRETER_SESSION      true: one interpreter for each conversation
"""

import asyncio
import importlib
import importlib.util
import inspect
import os
import runpy
import sys
from typing import Any, List, NamedTuple, Optional

from . import _guard, _run, _settings, adk, isolation
from .errors import ConfigurationError, ToolIsolationError, ToolProblem, WeirError

AGENT_DEFAULT = "root_agent"


class Usage(Exception):
    pass


class Command(NamedTuple):
    check: bool
    module: str
    attribute: str
    then: Optional[str]
    args: List[str]


def parse(argv: List[str]) -> Command:
    check, then, rest = False, None, list(argv)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--check":
            check = True
        elif option == "--then" and rest:
            then = rest.pop(0)
        elif option == "--":
            break
        else:
            raise Usage("--then needs a module" if option == "--then" else "there is no option %s" % option)
    if not rest:
        raise Usage("no agent was named")
    module, colon, attribute = rest.pop(0).partition(":")
    if rest and rest[0] == "--then" and then is None:
        if len(rest) < 2:
            raise Usage("--then needs a module")
        then, rest = rest[1], rest[2:]
    elif rest and rest[0] == "--":
        rest.pop(0)
    if not module or not all(p.isidentifier() for p in module.split(".")) or (colon and not attribute):
        raise Usage("an agent is named MODULE:AGENT, as in `app:root_agent`")
    return Command(check, module, attribute or AGENT_DEFAULT, then, rest)


def load(module: str, attribute: str) -> Any:
    """Imports the agent's module; what that raises is the author's."""
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name and (module == e.name or module.startswith(e.name + ".")):
            raise Usage("there is no module %s (looked for in %s)" % (e.name, sys.path[0] or os.getcwd())) from None
        raise
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Usage("module %s has no %s" % (module, attribute))
        found = getattr(found, part)
    return found


def _put_back(module: str, attribute: str, before: Any, after: Any) -> None:
    """Whoever imports the agent's module has to get what was isolated."""
    path, _, last = ("%s.%s" % (module, attribute)).rpartition(".")
    owner = sys.modules[module]
    for part in path[len(module) + 1 :].split(".") if len(path) > len(module) else ():
        owner = getattr(owner, part)
    try:
        if after is not before:
            setattr(owner, last, after)
        stays = getattr(owner, last) is after
    except (AttributeError, TypeError, ValueError):
        stays = False
    if not stays:
        reason = "it is another each time it is asked for: whoever imports it would have the tools themselves"
        raise ToolIsolationError([ToolProblem("%s:%s" % (module, attribute), "", reason, "give it a name at the top of a module (`root_agent = …`)")])


def isolate(module: str, attribute: str) -> None:
    """
    For the agent's module in a process that the agent has started: it has just been executed. What TOOL_SANDBOX says by now is of
    no account, an agent whose tools run in sandboxes has started it.
    """
    agent = load(module, attribute)
    _put_back(module, attribute, agent, isolation.Plan(agent, [module]).apply())


def _files_of(module: str) -> List[str]:
    """What `python -m MODULE` would run; nothing when there is no such module, which is said by who runs it."""
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(module + ".__main__")
    except (ImportError, AttributeError, ValueError):
        return []
    return [os.path.realpath(spec.origin)] if spec is not None and spec.origin and spec.has_location else []


def _check_then(command: Command, plan: isolation.Plan) -> None:
    """A module that runs as a program is executed a second time, with functions of its own."""
    if not command.then:
        return
    for name in [command.module] + [place.module for _, place in plan.moves]:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and os.path.realpath(file) in _files_of(command.then):
            reason = "--then would execute %s a second time, with tools of its own that run in this process" % name
            raise ToolIsolationError([ToolProblem("--then " + command.then, "", reason, "put what runs the agent into a module of its own, which imports %s" % command.module)])


def _plan(agent: Any, command: Command, ask: bool) -> isolation.Plan:
    plan = isolation.Plan(agent, [command.module], ask)
    if not (plan.walk.saw_tools or plan.walk.problems):
        raise Usage(
            "%s:%s is a %s without `tools`, `sub_agents` or `handoffs`: name the agent, or the list with its tools"
            % (command.module, command.attribute, type(agent).__name__)
        )
    return plan


def check(agent: Any, command: Command, sandbox: bool) -> int:
    """The table of --check."""
    ask, why_not = True, ""
    try:
        _settings.options.address(), _settings.options.bearer()
    except ConfigurationError as e:
        ask, why_not = False, str(e)
    if not sandbox:
        isolation.warn_unisolated()
    plan = _plan(agent, command, ask)
    rows = [("tool", "agent", "what becomes of it")] + [(r.tool, r.agent or "-", r.becomes) for r in plan.rows]
    widths = [max(len(r[i]) for r in rows) for i in (0, 1)]
    for tool, of, becomes in rows:
        print("%-*s  %-*s  %s" % (widths[0], tool, widths[1], of, becomes))
    if not ask:
        print("The agent's image was not asked whether it has them: %s" % why_not)
    return 1 if plan.problems else 0


def _finish(value: Any) -> None:
    """Waits for a coroutine, prints what is not None."""
    if inspect.isawaitable(value):

        async def wait() -> Any:
            return await value

        value = asyncio.run(wait())
    if value is not None:
        print(value)


def run(agent: Any, command: Command) -> None:
    if command.then:
        sys.argv[1:] = command.args
        runpy.run_module(command.then, run_name="__main__", alter_sys=True)
        return
    if adk.is_agent(agent) and not command.args:
        asyncio.run(adk.prompt_loop(agent))
        return
    for entry in [agent] + [getattr(agent, n, None) for n in ("main", "run")]:
        if callable(entry) and not isinstance(entry, type):
            _finish(entry(*command.args))
            return
    raise Usage("a %s can't be called and has no main() or run(): name a module that runs it with --then" % type(agent).__name__)


def main(argv: Optional[List[str]] = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0] in ("-h", "--help"):
        print(__doc__, end="")
        return 0
    try:
        command = parse(argv)
        _run.checked()
        sandbox = _settings.tool_sandbox()  # now: it is for who starts the process, not for what the author's code loads
        if not command.check and not _settings.in_sandbox() and sandbox:
            _settings.options.address(), _settings.options.bearer()  # before the author's code, which may take its time
        agent = load(command.module, command.attribute)
        if command.check:
            return check(agent, command, sandbox)
        if not sandbox:
            isolation.warn_unisolated()
            _plan(agent, command, ask=False)
            before, agent = agent, isolation.unmoved(agent)
            if before is not agent:
                _put_back(command.module, command.attribute, before, agent)
        else:
            plan = _plan(agent, command, ask=True)
            _check_then(command, plan)
            before, agent = agent, plan.apply()
            _put_back(command.module, command.attribute, before, agent)
            _guard.announce(command.module, command.attribute)
    except Usage as e:
        print("weir: %s\nweir: `python -m weir.agent --help` shows how it is used" % e, file=sys.stderr)
        return 2
    except WeirError as e:
        print("weir: the agent does not start: %s" % e, file=sys.stderr)
        return 1
    try:
        run(agent, command)
    except Usage as e:
        print("weir: %s" % e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
