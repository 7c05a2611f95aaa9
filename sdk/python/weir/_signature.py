# SPDX-License-Identifier: Apache-2.0
"""What of a tool's signature can travel as JSON, and the form of it that agent and image are compared by."""

import collections.abc
import enum
import inspect
import sys
import typing
from typing import Any, Callable, Dict, Iterable, Optional, Tuple

P = inspect.Parameter

# Packages that hand objects of theirs to a tool: contexts, configurations, stores.
FRAMEWORKS = ("google.adk", "agents", "langchain", "langchain_core", "langchain_classic", "langgraph", "mcp", "fastmcp", "pydantic_ai", "crewai", "llama_index")
# What is handed over by its name alone, whatever the annotation says.
INJECTED_NAMES = ("tool_context", "input_stream", "run_manager", "callbacks", "callback_manager")
# Their names in annotations that can't be resolved.
INJECTED_WORDS = ("ToolContext", "CallbackContext", "InvocationContext", "RunContextWrapper", "RunnableConfig", "ToolRuntime", "Injected")

DIGITS_MOST = 10**4300  # Python's own limit for an int as text, at both ends
DEPTH = 60  # levels of lists and dicts in one argument
UNION_TYPES = tuple(t for t in (typing.Union, getattr(__import__("types"), "UnionType", None)) if t is not None)
SCALARS = (str, int, float, bool)
GENERATORS = (
    collections.abc.Generator,
    collections.abc.Iterator,
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
)


def canonical(signature: inspect.Signature) -> str:
    """Names, kinds, and what has a default: "(city, days=, *, units=, **more)"."""
    parts, before = [], None
    for p in signature.parameters.values():
        if before == P.POSITIONAL_ONLY and p.kind != P.POSITIONAL_ONLY:
            parts.append("/")
        if p.kind == P.KEYWORD_ONLY and before not in (P.KEYWORD_ONLY, P.VAR_POSITIONAL):
            parts.append("*")
        stars = "*" if p.kind == P.VAR_POSITIONAL else "**" if p.kind == P.VAR_KEYWORD else ""
        parts.append(stars + p.name + ("=" if p.default is not P.empty else ""))
        before = p.kind
    if before == P.POSITIONAL_ONLY:
        parts.append("/")
    return "(%s)" % ", ".join(parts)


def of(function: Callable[..., Any]) -> Optional[inspect.Signature]:
    """None for what has none that can be seen (some built-in functions)."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def hints(function: Callable[..., Any]) -> Dict[str, Any]:
    """Annotations with their names resolved, as far as they can be."""
    try:
        return typing.get_type_hints(function, include_extras=True) if hasattr(typing, "Annotated") else typing.get_type_hints(function)
    except Exception:  # whatever the annotations of somebody else's function raise
        return dict(getattr(function, "__annotations__", {}))


def _below(module: str, packages: Iterable[str]) -> bool:
    return any(module == p or module.startswith(p + ".") for p in packages)


def framework_module(module: Any) -> bool:
    if not isinstance(module, str) or not _below(module, FRAMEWORKS):
        return False
    # `agents` is a name that an author's package may have as well.
    return module.partition(".")[0] != "agents" or hasattr(sys.modules.get("agents"), "RunContextWrapper")


def of_framework(kind: Any) -> bool:
    return framework_module(getattr(kind, "__module__", None))


def of_library(module: str) -> bool:
    """Whether no tool of an author's is there."""
    return framework_module(module) or module in ("builtins", "types", "functools")


def is_injected(annotation: Any) -> bool:
    """Whether a framework puts an object of its own there."""
    if isinstance(annotation, str):
        return any(word in annotation for word in INJECTED_WORDS)
    for extra in getattr(annotation, "__metadata__", ()):
        name = extra.__name__ if isinstance(extra, type) else type(extra).__name__
        if name.startswith("Injected"):
            return True
    origin = typing.get_origin(annotation)
    if origin in UNION_TYPES:
        return any(is_injected(a) for a in typing.get_args(annotation))
    inner = getattr(annotation, "__origin__", None) if getattr(annotation, "__metadata__", None) else None
    return is_injected(inner) if inner is not None else of_framework(origin or annotation)


def _shown(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or str(kind)


def _class(kind: type) -> Optional[str]:
    if issubclass(kind, enum.Enum):
        return "%s, an Enum" % _shown(kind)
    if kind in (object, type(None)) or issubclass(kind, SCALARS + (dict, list, tuple)):
        return None
    if kind.__module__ in ("collections.abc", "typing") and not issubclass(kind, (collections.abc.Set, collections.abc.Callable) + GENERATORS):  # type: ignore
        return None
    if getattr(kind, "_is_protocol", False):
        return None
    return _shown(kind)


def _generic(origin: Any, args: Any, back: bool) -> Optional[str]:
    if not isinstance(origin, type):
        return None
    wrong = _class(origin)
    if wrong:
        return wrong
    if issubclass(origin, collections.abc.Mapping) and len(args) == 2:
        key = args[0]
        if not back and isinstance(key, type) and not issubclass(key, str) and key is not object:
            return "a mapping with keys of type %s" % _shown(key)
        return unfit(args[1], back)
    if issubclass(origin, (collections.abc.Sequence, collections.abc.Iterable)):
        return next((u for u in (unfit(a, back) for a in args if a is not Ellipsis) if u), None)
    return None


def unfit(annotation: Any, back: bool) -> Optional[str]:
    """
    What an annotation asks for that JSON does not have, in words; None when it can travel, or when nobody can tell. `back`: it
    is what a tool returns.
    """
    if annotation is P.empty or annotation is None or annotation is Any or isinstance(annotation, (str, typing.TypeVar)):
        return None
    if getattr(annotation, "__metadata__", None):
        return unfit(annotation.__origin__, back)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in UNION_TYPES:
        arms = [unfit(a, back) for a in args if a is not type(None)]
        return arms[0] if arms and all(arms) else None
    if origin is typing.Literal:
        return next(("%s, an Enum" % _shown(type(a)) for a in args if isinstance(a, enum.Enum)), None)
    if origin is not None:
        return _generic(origin, args, back)
    if hasattr(annotation, "__supertype__"):
        return unfit(annotation.__supertype__, back)
    return _class(annotation) if isinstance(annotation, type) else None


def fit(value: Any, where: str) -> Any:
    """`value` in the types that JSON has; TypeError with the place for anything else."""
    return _fit(value, where, DEPTH, ())


def _fit(value: Any, where: str, depth: int, above: Tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        raise TypeError("%s is a %s: send its value" % (where, type(value).__name__))
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if not -DIGITS_MOST < value < DIGITS_MOST:
            raise TypeError("%s is an int of more than 4,300 digits" % where)
        return int.__int__(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise TypeError("%s is %r, which JSON does not have" % (where, float(value)))
        return float.__float__(value)
    if not isinstance(value, (list, tuple, dict)):
        raise TypeError("%s is a %s, which JSON does not have" % (where, type(value).__name__))
    if not depth or id(value) in above:
        raise TypeError("%s is nested too deeply, or within itself" % where)
    above += (id(value),)
    if isinstance(value, (list, tuple)):
        return [_fit(v, "%s[%d]" % (where, i), depth - 1, above) for i, v in enumerate(value)]
    for key in value:
        if not isinstance(key, str):
            raise TypeError("%s has a key that is a %s: keys have to be strings" % (where, type(key).__name__))
    return {str.__str__(k): _fit(v, "%s.%s" % (where, k), depth - 1, above) for k, v in value.items()}
