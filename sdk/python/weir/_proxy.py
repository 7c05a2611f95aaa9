# SPDX-License-Identifier: Apache-2.0
"""What stands in a tool's place: the same name, signature, documentation and kind, and a call that goes to a sandbox."""

import functools
import inspect
import logging
import sys
import types
from typing import Any, Callable, Dict, Optional, Tuple

from . import _marks, _signature, errors
from ._client import Handle, client
from ._locate import Place
from ._settings import options
from ._threads import in_thread

log = logging.getLogger("weir.tools")

# Kinds of function that frameworks tell apart. Neither template uses a global, so each copy can have the globals of its tool,
# where the names in its annotations are looked up.


def _sync(call: Callable[..., Any]) -> Any:
    def proxy(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    return proxy


def _async(call: Callable[..., Any]) -> Any:
    async def proxy(*args: Any, **kwargs: Any) -> Any:
        return await call(args, kwargs)

    return proxy


class RemoteTool:
    """One tool, called in a sandbox."""

    def __init__(self, function: Callable[..., Any], place: Place, pair: bool) -> None:
        self.place, self.pair = place, pair
        self.label = getattr(function, "__name__", place.qualname)
        self.signature = _signature.of(function)

    def arguments(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
        """By name, as JSON has it. A TypeError here means that nothing was sent."""
        if self.signature is None:
            if args:
                raise TypeError("%s() takes its arguments by name" % self.label)
            return {k: _signature.fit(v, "%s() argument %s" % (self.label, k)) for k, v in kwargs.items()}
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as e:
            raise TypeError("%s() %s" % (self.label, e)) from None
        given: Dict[str, Any] = {}
        for name, value in bound.items():
            parameter = self.signature.parameters[name]
            if parameter.kind == parameter.VAR_KEYWORD:
                twice = next((k for k in value if k in given), None)
                if twice is not None:
                    raise TypeError("%s() got two values for %s, and arguments travel by name" % (self.label, twice))
                given.update(value)
            elif value is not parameter.default or self._travels(value):
                given[name] = value
        return {k: _signature.fit(v, "%s() argument %s" % (self.label, k)) for k, v in given.items()}

    @staticmethod
    def _travels(default: Any) -> bool:
        """A default that a framework hands back as it is may be any object: then it is left to the tool's own."""
        try:
            _signature.fit(default, "")
        except TypeError:
            return False
        return True

    def send(self, arguments: Dict[str, Any], handle: Optional[Handle]) -> Any:
        answer = client().call(self.place.name, arguments, options.tool_timeout(self.label, self.place.name), handle)
        for stream in ("stdout", "stderr"):
            if answer.get(stream):
                log.info("%s of %s: %s", stream, self.label, answer[stream].rstrip("\n"))
        if answer.get("error"):
            raise errors.from_tool(answer)
        if "result" not in answer:
            raise errors.ServiceError("the answer has neither a result nor an error", code="bad_answer", ran=True)
        result = answer["result"]
        # LangChain's (content, artifact) has to be a tuple again.
        return tuple(result) if self.pair and isinstance(result, list) else result

    def call(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        return self.send(self.arguments(args, kwargs), None)

    async def call_async(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        arguments = self.arguments(args, kwargs)
        return await in_thread(lambda handle: self.send(arguments, handle))


def _is_async(function: Any) -> bool:
    inner = function.func if isinstance(function, functools.partial) else function
    return inspect.iscoroutinefunction(inner) or (not inspect.isroutine(inner) and inspect.iscoroutinefunction(type(inner).__call__))


def make(function: Callable[..., Any], place: Place, pair: bool = False) -> Callable[..., Any]:
    """`pair`: the framework wants a two-tuple from it."""
    remote = RemoteTool(function, place, pair)
    template = _async(remote.call_async) if _is_async(function) else _sync(remote.call)
    plain = getattr(function, "__func__", function)
    world = getattr(plain, "__globals__", None) or vars(sys.modules.get(place.module, sys.modules[__name__]))
    proxy = types.FunctionType(template.__code__, world, template.__name__, None, template.__closure__)
    functools.update_wrapper(proxy, function)
    # It would lead frameworks that unwrap what they are given to the local function.
    proxy.__dict__.pop("__wrapped__", None)
    if not hasattr(function, "__name__"):
        inner = function.func if isinstance(function, functools.partial) else type(function).__call__
        proxy.__name__ = proxy.__qualname__ = place.qualname.rpartition(".")[2]
        proxy.__doc__ = inspect.getdoc(inner if isinstance(function, functools.partial) else function)
        proxy.__annotations__ = dict(getattr(inner, "__annotations__", {}))
    if remote.signature is not None:
        proxy.__signature__ = remote.signature  # type: ignore[attr-defined]
    proxy.__weir_tool__ = place.name  # type: ignore[attr-defined]  # for people; _marks is what counts
    _marks.add_proxy(proxy, place.name, function)
    return proxy
