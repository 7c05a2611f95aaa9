# SPDX-License-Identifier: Apache-2.0
"""
Moves the tools of an agent into sandboxes: finds every one, in whatever a framework keeps them, and exchanges its function for a
proxy. Frameworks are known by what their objects have, so none of them has to be installed.
"""

import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple, TypeVar

from . import _locate, _marks, _proxy, _run, _settings, _signature, _swap, adk, errors
from ._client import client
from ._locate import Place, Unmovable
from .errors import ToolIsolationError, ToolProblem

T = TypeVar("T")

DESCRIBE = "weir:describe"
DESCRIBE_S = 30

WARNING = """weir: WARNING: TOOL_SANDBOX=false
weir: WARNING: the tools of this agent run in its own process, next to its keys and within its network.
weir: WARNING: nothing isolates them: the SDK only does what the variable says, it can't hold anybody to it.
"""

KEEP = "keep the tools in a list that stays the same: `self.tools = […]`"

# What an agent, or what holds one, keeps its tools and other agents in.
HOLDS_TOOLS = ("tools", "tools_by_name", "functions")
HOLDS_AGENTS = ("sub_agents", "handoffs", "root_agent", "agent", "agents")
# Where there may be some, among steps of other kinds: LangChain's sequences and bindings, LangGraph's nodes, CrewAI's tasks.
MAY_HOLD = ("bound", "runnable", "steps", "tasks", "nodes")


class Found(NamedTuple):
    """One tool: where it is listed, and how something else is put there."""

    agent: str
    tool: str
    function: Any
    put: Callable[[Any], Any]
    pair: bool = False


class Row(NamedTuple):
    """What becomes of one tool."""

    agent: str
    tool: str
    becomes: str
    problem: Optional[ToolProblem] = None


def _name(x: Any) -> str:
    for name in (getattr(x, "name", None), getattr(x, "__name__", None)):
        if isinstance(name, str) and name:
            return name
    return type(x).__name__


def _set(holder: Any, attribute: str) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        try:
            setattr(holder, attribute, value)
        except (AttributeError, TypeError, ValueError):  # a model that does not know the attribute, or is frozen
            object.__setattr__(holder, attribute, value)

    return put


def _set_item(holder: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        holder[key] = value

    return put


def _set_cell(cell: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        cell.cell_contents = value

    return put


def _handed_to(handoff: Any) -> Any:
    """The agent behind an OpenAI Agents Handoff object, which only has a function that returns it."""
    reference = getattr(handoff, "_agent_ref", None)
    if callable(reference) and reference() is not None:
        return reference()
    invoke = getattr(handoff, "on_invoke_handoff", None)
    code, cells = getattr(invoke, "__code__", None), getattr(invoke, "__closure__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), cells or ()):
        if name == "agent":
            return cell.cell_contents
    return None


class Walk:
    """Everything that the model can call through `target`."""

    def __init__(self) -> None:
        self.found: List[Found] = []
        self.kept: List[Row] = []
        self.problems: List[ToolProblem] = []
        self.holders: List[Any] = []
        self.late: List[Tuple[Callable[[Any], Any], Any, Callable[[], Any]]] = []  # once the proxies are in place: put, what is there, what is to be there
        self.replaced: Any = None  # what stands for a target that can't be changed in place
        self.saw_tools = False  # whether there was anything that tools are kept in, be it empty
        self._seen: Set[int] = set()
        self._holding: List[Any] = []  # so that no id is used twice

    def _new(self, x: Any) -> bool:
        if id(x) in self._seen:
            return False
        self._seen.add(id(x))
        self._holding.append(x)
        return True

    def _problem(self, agent: str, tool: str, reason: str, mend: str = _locate.REMOTE) -> None:
        self.problems.append(ToolProblem(tool, agent, reason, mend))

    def finish(self, target: Any, swap: _swap.Swap) -> Any:
        """What is left to do; returns what stands for the target from now on."""
        for put, old, new in self.late:
            swap.put(put, old, new())
        return target if self.replaced is None else self.replaced

    # ---- agents, and what holds them ----

    def target(self, x: Any) -> None:
        if isinstance(x, (list, tuple, Mapping)):
            self.saw_tools = True
            self.tools(x, "", lambda value: setattr(self, "replaced", value), None)
        elif self.is_holder(x):
            self.holder(x)
        else:
            self.tool(x, "", lambda value: setattr(self, "replaced", value), None)

    @staticmethod
    def is_holder(x: Any) -> bool:
        if isinstance(x, type) or _locate.is_plain(x):
            return False
        return any(getattr(x, n, None) is not None for n in HOLDS_TOOLS + HOLDS_AGENTS) or isinstance(getattr(x, "nodes", None), Mapping)

    @staticmethod
    def _may_hold(x: Any) -> bool:
        return not isinstance(x, type) and any(getattr(x, n, None) is not None for n in MAY_HOLD)

    def holder(self, x: Any) -> None:
        """An agent, or something with agents in it."""
        if not self._new(x):
            return
        self.holders.append(x)
        name = _name(x)
        for attribute in HOLDS_TOOLS:
            tools = getattr(x, attribute, None)
            if isinstance(tools, (list, tuple, Mapping)):
                self.saw_tools = True
                self.tools(tools, name, _set(x, attribute), x)
            elif tools is not None:
                self._problem(name, attribute, "the tools are a %s, which can't be looked into" % type(tools).__name__, "list them: `%s=[…]`" % attribute)
        for attribute in HOLDS_AGENTS:
            held = getattr(x, attribute, None)
            held = list(held.values()) if isinstance(held, Mapping) else held
            for agent in held if isinstance(held, (list, tuple)) else [held]:
                if not self.agent(agent, name) and (isinstance(held, (list, tuple)) or not _signature.of_framework(type(agent))):
                    self._problem(name, "%s: %s" % (attribute, _name(agent)), "a %s that can't be looked into" % type(agent).__name__, "give it its tools as `tools=[…]`, or leave it out")
        for attribute in MAY_HOLD:
            held = getattr(x, attribute, None)
            held = list(held.values()) if isinstance(held, Mapping) else held
            for step in held if isinstance(held, (list, tuple)) else [held]:
                self.agent(step, name)
        if getattr(x, "mcp_servers", None):
            self._problem(name, "mcp_servers", "tools of MCP servers run where those run, not in a sandbox")
        executor = type(getattr(x, "code_executor", None))
        if executor is not type(None) and (not _signature.of_framework(executor) or any(c.__name__ == "UnsafeLocalCodeExecutor" for c in executor.__mro__)):
            self._problem(name, "code_executor", "it runs the model's code in the agent's process", "leave it out and list weir.run_python")

    def agent(self, x: Any, above: str) -> bool:
        """Whether it was dealt with: it is no agent, or one that could be looked into."""
        if x is None or isinstance(x, (str, bytes, bool, int, type)):
            return True
        if hasattr(x, "on_invoke_handoff"):
            behind = _handed_to(x)
            if behind is None:
                self._problem(above, "handoff %s" % getattr(x, "tool_name", _name(x)), "the agent behind it can't be seen", "list the agent itself")
            else:
                self.holder(behind)
        elif self.is_holder(x) or self._may_hold(x):
            self.holder(x)
        else:
            return False
        return True

    # ---- tools ----

    def tools(self, tools: Any, agent: str, put_all: Callable[[Any], Any], holder: Any) -> None:
        if isinstance(tools, Mapping):
            fixed = not isinstance(tools, MutableMapping)
            items = dict(tools) if fixed else tools
            for key in list(items):
                self.tool(items[key], agent, _set_item(items, key), holder)
        else:
            fixed = not isinstance(tools, list)
            items = list(tools) if fixed else tools
            for i, tool in enumerate(list(items)):
                self.tool(tool, agent, _set_item(items, i), holder)
        if fixed:
            self.late.append((put_all, tools, lambda: tuple(items) if isinstance(tools, tuple) else items))

    def tool(self, x: Any, agent: str, put: Callable[[Any], Any], holder: Any) -> None:
        if _marks.is_run_python(x):
            if _run.interpreter.session and adk.is_agent(holder) and x is not adk.run_python:
                # ADK says which conversation it is to a tool that asks for its context.
                self.late.append((put, x, lambda: adk.run_python))
            self.kept.append(Row(agent, "run_python", "runs the model's code in sandboxes already"))
        elif _marks.proxied(x):
            self.kept.append(Row(agent, _name(x), "in sandboxes already, as %s" % _marks.proxied(x)))
        elif _locate.is_plain(x) or isinstance(x, type):
            self.found.append(Found(agent, _name(x), x, put))
        elif not self._framework_tool(x, agent):
            if callable(x):
                self.found.append(Found(agent, _name(x), x, put))
            else:
                self._other(x, agent)

    def _framework_tool(self, x: Any, agent: str) -> bool:
        """Whether it is a framework's object for a tool; then it is dealt with."""
        own = _locate.own_code(x)
        inner = getattr(x, "_agent_instance", None) or getattr(x, "agent", None)
        if _signature.of_framework(type(x)) and not own and not isinstance(inner, str) and (self.is_holder(inner) or adk.is_agent(inner)):
            self.holder(inner)
            self.kept.append(Row(agent, _name(x), "an agent; its own tools are dealt with"))
            return True
        functions = _locate.function_attributes(x)
        cell = None if functions else _locate.hidden_function(x)
        if not functions and cell is None:
            if not callable(getattr(x, "_run", None)):
                return self._opaque(x, agent)
            functions, own = [], [n for n in own if n not in ("_run", "_arun")]
            if not own:
                return self._method_tool(x, agent)
        if not self._new(x):
            return True
        if own:
            self._problem(
                agent, _name(x), "its class has an own `%s()`, which runs around the function in the agent's process" % own[0], "put that into the function, and use the framework's class as it is"
            )
            return True
        pair = getattr(x, "response_format", None) == "content_and_artifact"
        for attribute in functions:
            self._inner(x, getattr(x, attribute), _set(x, attribute), agent, pair)
        if cell is not None:
            self._inner(x, cell.cell_contents, _set_cell(cell), agent, pair)
        return True

    def _inner(self, tool: Any, function: Any, put: Callable[[Any], Any], agent: str, pair: bool) -> None:
        if _marks.is_run_python(function):
            self.kept.append(Row(agent, _name(tool), "runs the model's code in sandboxes already"))
        elif _marks.proxied(function):
            self.kept.append(Row(agent, _name(tool), "in sandboxes already, as %s" % _marks.proxied(function)))
        else:
            self.found.append(Found(agent, _name(tool), function, put, pair))

    def _method_tool(self, x: Any, agent: str) -> bool:
        """LangChain's tools that are classes: their _run() and, when there is one, _arun()."""
        if not self._new(x):
            return True
        pair = getattr(x, "response_format", None) == "content_and_artifact"
        self._inner(x, x._run, _set(x, "_run"), agent, pair)
        if "_arun" in _locate.own_code(x) or _marks.proxied(getattr(x, "__dict__", {}).get("_arun")):
            self._inner(x, x._arun, _set(x, "_arun"), agent, pair)
        return True

    def _opaque(self, x: Any, agent: str) -> bool:
        """Tools without a Python function that could be moved."""
        if callable(getattr(x, "get_tools", None)):
            self._problem(agent, _name(x), "a toolset: it makes its tools when the agent already runs", "list the tools themselves")
        elif callable(getattr(x, "on_invoke_tool", None)):
            self._problem(agent, _name(x), "the function behind it can't be seen", "make it with the framework's decorator from a function at the top of a module")
        elif callable(getattr(x, "run_async", None)) or callable(getattr(x, "invoke", None)):
            self._problem(agent, _name(x), "a %s of the framework, without a function of yours" % type(x).__name__)
        else:
            return False
        return True

    def _other(self, x: Any, agent: str) -> None:
        if isinstance(x, Mapping):
            inner = x.get("function")
            name = str(x.get("name") or (inner.get("name") if isinstance(inner, Mapping) else "") or x.get("type") or "dict")
            self._problem(agent, name, "a description without a function", "list the function; keep descriptions for the model elsewhere")
        else:
            self._problem(agent, _name(x), "a %s that is no function" % type(x).__name__)


# ---- what the image has ----

IMAGE_MEND = "build the image from this code, `weir image import` it, `weir agent add … --replace`"


def _described(answer: Any) -> Dict[str, Dict[str, Any]]:
    tools = answer.get("tools") if isinstance(answer, dict) else None
    if not isinstance(tools, list):
        raise errors.ServiceError("the sandbox did not say which tools it has", code="bad_answer", ran=True)
    return {t["name"]: t for t in tools if isinstance(t, dict) and isinstance(t.get("name"), str)}


def _ask_image(moves: List[Tuple[Found, Place]]) -> Dict[str, Unmovable]:
    """What stands against calling these in the agent's image, by name."""
    wanted = {}
    for found, place in moves:
        signature = _signature.of(found.function)
        wanted[place.name] = _signature.canonical(signature) if signature else ""
    request = {"tools": [{"name": name, "signature": text} for name, text in wanted.items()]}
    answer = client().call(DESCRIBE, request, DESCRIBE_S)
    if answer.get("error"):
        raise errors.from_tool(answer)
    has, against = _described(answer.get("result")), {}
    for name, text in wanted.items():
        tool = has.get(name) or {"ok": False, "reason": "the image does not know it"}
        there = tool.get("signature")
        if text and there and there != text:
            against[name] = Unmovable("the image is out of date: there it takes %s, here %s" % (there, text), IMAGE_MEND)
        elif not tool.get("ok"):
            reason = str(tool.get("reason") or "no reason was given")
            mend = "put what it imports into the image: " if "could not be imported" in reason else "name its module in `weir agent add … --tools MODULE… --replace`; or "
            against[name] = Unmovable("not in the agent's image: " + reason, mend + IMAGE_MEND)
    return against


# ---- all of it ----


class Plan:
    """What would become of every tool of `target`. Nothing is changed before apply()."""

    def __init__(self, target: Any, hints: Iterable[str], ask: bool = True) -> None:
        self.target = target
        self.walk = walk = Walk()
        walk.target(target)
        self.rows: List[Row] = list(walk.kept)
        self.problems: List[ToolProblem] = list(walk.problems)
        self.moves: List[Tuple[Found, Place]] = []
        owners = [type(target).__module__, getattr(target, "__module__", None)]
        self.hints = [*hints, *[o for o in owners if isinstance(o, str) and not _signature.of_library(o)]]
        if not (walk.found or walk.kept or walk.problems or walk.saw_tools):
            self.problems.append(ToolProblem(_name(target), "", "nothing was found in it that tools are kept in", "name the agent, or the list of its tools"))
        finder = _locate.Finder(self.hints)
        for found in walk.found:
            self._place(finder, found)
        if ask and self.moves:
            against = _ask_image(self.moves)
            for found, place in list(self.moves):
                if place.name in against:
                    self.moves.remove((found, place))
                    self._refuse(found, [against[place.name]])
        self.rows += [Row(f.agent, f.tool, "runs in sandboxes, as %s" % p.name) for f, p in self.moves]
        self.rows += [Row(p.agent, p.tool, "CAN'T BE ISOLATED: %s. Mend: %s" % (p.reason, p.mend), p) for p in self.problems]

    def _place(self, finder: _locate.Finder, found: Found) -> None:
        against = [] if isinstance(found.function, type) else _locate.check(found.function)
        try:
            place = finder.locate(found.function)
        except Unmovable as e:
            against.insert(0, e)
        if against:
            self._refuse(found, against)
        else:
            self.moves.append((found, place))

    def _refuse(self, found: Found, against: List[Unmovable]) -> None:
        for e in against:
            self.problems.append(ToolProblem(found.tool, found.agent, e.reason, e.mend))

    def apply(self) -> Any:
        """Puts the proxies in place; returns what stands for the target afterwards."""
        if self.problems:
            raise ToolIsolationError(self.problems)
        swap = _swap.Swap()
        try:
            result = self._put(swap)
            self._verify(result)
        except _swap.CantPut as e:
            swap.restore()
            raise self._stop(_name(self.target), "", "not all of its tools can be exchanged: %s" % e, KEEP) from None
        except BaseException:
            swap.restore()
            raise
        return result

    def _put(self, swap: _swap.Swap) -> Any:
        proxies: Dict[Tuple[str, bool], Any] = {}
        for found, place in self.moves:
            key = (place.name, found.pair)
            proxies[key] = proxies.get(key) or _proxy.make(found.function, place, found.pair)
            swap.put(found.put, found.function, proxies[key])
            swap.takes_its_place(found.function, proxies[key])
        result = self.walk.finish(self.target, swap)
        # An agent without a framework looks up by name what the model asks for, often in a table that was made of the same functions;
        # and a server makes an agent for each request, from the names that its module has for them.
        for found, place in self.moves:
            path, _, last = place.qualname.rpartition(".")
            swap.attribute(_locate.resolve(place.module, path) if path else None, last, proxies[place.name, found.pair])
        for holder in self.walk.holders:
            swap.tables(holder, True)
            for kind in type(holder).__mro__:
                if not _signature.of_library(kind.__module__):
                    swap.tables(kind, False)
        for module in _swap.modules([*self.hints, *[place.module for _, place in self.moves]]):
            swap.tables(module, True)
        return result

    def _verify(self, result: Any) -> None:
        """Looks once more, as the framework will: whoever hands out copies still has the functions."""
        again = Walk()
        again.target(result)
        for found in again.found:
            raise self._stop(found.tool, found.agent, "its agent makes the list of its tools anew each time it is asked for it, with the function itself", KEEP)
        if again.problems or len(again.kept) < len(self.walk.kept) + len(self.moves):
            raise self._stop(_name(self.target), "", "its tools are others each time it is asked for them", KEEP)

    @staticmethod
    def _stop(tool: str, agent: str, reason: str, mend: str) -> ToolIsolationError:
        return ToolIsolationError([ToolProblem(tool, agent, reason, mend)])


def warn_unisolated() -> None:
    sys.stderr.write(WARNING)
    sys.stderr.flush()


def unmoved(target: T) -> T:
    """With TOOL_SANDBOX=false: only what run_python needs is seen to."""
    walk = Walk()
    walk.target(target)
    result: T = walk.finish(target, _swap.Swap())
    return result


def relocate(target: T, hints: Iterable[str]) -> T:
    """weir.isolate(), for whoever knows the modules that the agent is from."""
    if not _settings.tool_sandbox():
        warn_unisolated()
        return unmoved(target)
    _run.checked()
    _settings.options.address(), _settings.options.bearer()
    moved: T = Plan(target, hints).apply()
    return moved
