# SPDX-License-Identifier: Apache-2.0
"""The name by which an image finds a tool again, MODULE:QUALNAME; or why there is none, and what would mend it."""

import builtins
import functools
import inspect
import sys
import types
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional

from . import _marks, _signature

REMOTE = "leave it out, or write a function of your own that does the same and list that"
AT_TOP = "define it with `def` at the top of a module, outside of any other function"


class Unmovable(Exception):
    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(reason)
        self.reason, self.mend = reason, mend


class Place(NamedTuple):
    module: str
    qualname: str

    @property
    def name(self) -> str:
        return "%s:%s" % self


def hidden_function(tool: Any) -> Optional["types.CellType"]:
    """
    The cell that holds the function of an OpenAI Agents FunctionTool: its schema and its handling of errors stay as they are when
    that is exchanged.
    """
    invoke = getattr(tool, "on_invoke_tool", None)
    return _cell(invoke, 3) if callable(invoke) else None


def _cell(function: Any, depth: int) -> Optional["types.CellType"]:
    inside = getattr(function, "_invoke_tool_impl", None)
    if inside is not None and _signature.of_framework(type(function)):
        function = inside
    # By its globals: what the author has put around it runs here, even when it says (functools.wraps) that it is the framework's.
    if not inspect.isfunction(function) or not depth or not _signature.framework_module(function.__globals__.get("__name__")):
        return None
    cells = list(zip(function.__code__.co_freevars, function.__closure__ or ()))
    for name, cell in cells:
        if name == "the_func":
            return cell
    for _, cell in cells:
        try:
            found = _cell(cell.cell_contents, depth - 1)
        except ValueError:  # not filled yet
            continue
        if found:
            return found
    return None


RUNS = ("_run", "_arun", "run", "arun", "invoke", "ainvoke", "run_async", "call", "acall", "forward", "__call__")


def own_code(x: Any) -> List[str]:
    """Of the methods by which frameworks call a tool, those that are the author's: what is in them runs around its function."""
    found = []
    for name in RUNS:
        held = next((c for c in type(x).__mro__ if name in vars(c)), None)
        own = getattr(x, "__dict__", {}).get(name)
        if (held is not None and not _signature.of_framework(held)) or (own is not None and _marks.proxied(own) is None):
            found.append(name)
    return found


def is_plain(x: Any) -> bool:
    return inspect.isroutine(x) or isinstance(x, functools.partial)


def function_attributes(x: Any) -> List[str]:
    """
    Where a tool of Google ADK or LangChain has its function. Not in whatever else has a `func` and can be called: a decorator of
    the author's own does something around it.
    """
    if callable(x) and not (hasattr(x, "invoke") or hasattr(x, "run_async")):
        return []
    return [n for n in ("func", "coroutine") if callable(getattr(x, n, None))]


def unwrap(x: Any) -> Any:
    """The function in what a framework has put in its place; the harness in the sandbox does the same."""
    for _ in range(4):
        if is_plain(x):
            return x
        names, cell = function_attributes(x), hidden_function(x)
        if names:
            x = getattr(x, names[0])
        elif cell is not None:
            x = cell.cell_contents
        else:
            return x
    return x


def same(a: Any, b: Any) -> bool:
    """Whether `a`, or what is behind it when it is a proxy, is `b`."""
    a = _marks.original(a)
    if inspect.ismethod(a) and inspect.ismethod(b):
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    return a is b


def resolve(module: str, qualname: str) -> Any:
    """What is there, or None."""
    found = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


class Finder:
    """Looks in the modules of the agent. `hints`: their names; modules of the same packages are looked at too."""

    def __init__(self, hints: Iterable[str]) -> None:
        self.hints = [h for h in hints if h and h != "__main__"]

    def _modules(self, first: Iterable[Optional[str]]) -> Iterator[str]:
        seen = set()
        packages = {h.partition(".")[0] for h in self.hints}
        for name in [*first, *self.hints, *[m for m in list(sys.modules) if m.partition(".")[0] in packages]]:
            if name and name != "__main__" and name not in seen and name in sys.modules:
                seen.add(name)
                yield name

    def _by_value(self, value: Any, first: Iterable[Optional[str]], unwrapped: bool) -> Optional[Place]:
        """The module-level name that holds it."""
        for module in self._modules(first):
            for name, held in list(vars(sys.modules[module]).items()):
                if _marks.original(held) is value or (unwrapped and not isinstance(held, types.ModuleType) and same(self._unwrapped(held), value)):
                    return Place(module, name)
        return None

    @staticmethod
    def _unwrapped(held: Any) -> Any:
        try:
            return unwrap(held)
        except Exception:  # an object of somebody else's that does not like to be asked
            return held

    def _named(self, module: Optional[str], qualname: str, function: Any) -> Optional[Place]:
        if not module or module == "__main__":
            return None
        found = resolve(module, qualname)
        return Place(module, qualname) if found is not None and same(unwrap(found), function) else None

    def _method(self, method: Any) -> Place:
        owner, name = method.__self__, method.__func__.__name__
        if isinstance(owner, type):
            place = self._named(owner.__module__, "%s.%s" % (owner.__qualname__, name), method)
            if place:
                return place
            raise Unmovable("a class method of a class that no module has at its top", AT_TOP)
        holder = self._by_value(owner, (type(owner).__module__,), False)
        if holder and same(resolve(holder.module, "%s.%s" % (holder.qualname, name)), method):
            return Place(holder.module, "%s.%s" % (holder.qualname, name))
        raise Unmovable(
            "a method of a %s that no module holds under a name: the sandbox could not find that object again" % type(owner).__name__,
            "make the object at the top of a module (`weather = Weather()`), or write the tool as a function",
        )

    def _function(self, function: Any) -> Place:
        name, qualname, module = function.__name__, function.__qualname__, function.__module__
        if name == "<lambda>":
            raise Unmovable("a lambda (%s, line %d)" % (function.__code__.co_filename, function.__code__.co_firstlineno), "give it a name: %s" % AT_TOP)
        place = self._named(module, qualname, function)
        if place is None and "<locals>" not in qualname and module == "__main__":
            raise Unmovable(
                "it is in the program that was started (`__main__`), which an image can't import",
                "start the agent with `python -m weir.agent MODULE:AGENT`, or put the tool into a module of its own",
            )
        place = place or self._by_value(function, (module,), True)
        if place:
            return place
        if "<locals>" in qualname:
            raise Unmovable("it is defined inside of `%s`: only that call has it" % qualname.partition(".<locals>")[0], AT_TOP)
        raise Unmovable(
            "`%s` of module %s is something else than the function that was listed" % (qualname, module),
            "list what the module has under that name (a decorator, or a second definition, has taken its place)",
        )

    def locate(self, function: Any) -> Place:
        if isinstance(function, type):
            raise Unmovable("a class: what it makes is no JSON", "list a function that returns a dict")
        if inspect.ismethod(function):
            return self._method(function)
        if inspect.isfunction(function):
            return self._function(function)
        if inspect.isbuiltin(function) and function.__self__ is builtins:
            raise Unmovable("a function of Python's own", "write a function of your own around it")
        if inspect.isbuiltin(function) and isinstance(function.__self__, types.ModuleType):
            return Place(function.__module__ or function.__self__.__name__, function.__qualname__)
        place = self._named(getattr(function, "__module__", None), getattr(function, "__qualname__", ""), function)
        place = place or self._by_value(function, (type(function).__module__,), False)
        if place:
            return place
        raise Unmovable(
            "a %s that no module holds under a name" % type(function).__name__,
            "give it a name at the top of a module (`NAME = …`), or write the tool as a function",
        )


def check(function: Callable[..., Any]) -> List[Unmovable]:
    """Everything about its signature that can't travel."""
    called = function if is_plain(function) else type(function).__call__
    inner = function.func if isinstance(function, functools.partial) else called
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        return [Unmovable("a generator: it returns piece by piece, a call in a sandbox returns once", "collect the pieces and return a list")]
    signature = _signature.of(function)
    if signature is None:
        return []
    found, known = [], _signature.hints(inner)
    for p in signature.parameters.values():
        annotation = known.get(p.name, p.annotation)
        if p.kind == p.VAR_POSITIONAL:
            found.append(Unmovable("parameter `*%s`: arguments travel by name" % p.name, "take a list: `%s: list`" % p.name))
        elif p.name in _signature.INJECTED_NAMES or _signature.is_injected(annotation):
            found.append(
                Unmovable(
                    "parameter `%s` is an object of the framework, with which the tool could reach the agent" % p.name,
                    "leave the parameter out; take the values that the tool needs as arguments, or do that part in a callback",
                )
            )
        else:
            wrong = _signature.unfit(annotation, False)
            if wrong:
                found.append(Unmovable("parameter `%s` is %s, which JSON does not have" % (p.name, wrong), "take a str, number, bool, list or dict, and convert it in the tool"))
    wrong = _signature.unfit(known.get("return", signature.return_annotation), True)
    if wrong:
        found.append(Unmovable("it returns %s, which JSON does not have" % wrong, "return a str, number, bool, list or dict"))
    return found
