# SPDX-License-Identifier: Apache-2.0
"""Which functions are this package's. Known by identity: what a function carries is copied along by functools.wraps()."""

import types
import weakref
from typing import Any, Optional, Tuple

_run_python: "weakref.WeakSet[types.FunctionType]" = weakref.WeakSet()
_proxies: "weakref.WeakKeyDictionary[types.FunctionType, Tuple[str, Any]]" = weakref.WeakKeyDictionary()


def add_run_python(function: Any) -> None:
    _run_python.add(function)


def add_proxy(function: types.FunctionType, name: str, original: Any) -> None:
    _proxies[function] = (name, original)


def is_run_python(x: Any) -> bool:
    return type(x) is types.FunctionType and x in _run_python


def proxied(x: Any) -> Optional[str]:
    """The name of the tool that a proxy stands for; None for what is no proxy."""
    found = _proxies.get(x) if type(x) is types.FunctionType else None
    return found[0] if found else None


def original(x: Any) -> Any:
    """What a proxy stands for; anything else itself."""
    found = _proxies.get(x) if type(x) is types.FunctionType else None
    return found[1] if found else x
