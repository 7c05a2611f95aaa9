# SPDX-License-Identifier: Apache-2.0
"""Puts things in others' places, so that all of it can be taken back; and finds the tables in which an author's code looks tools up."""

import os
import sys
import sysconfig
import types
from typing import Any, Callable, Dict, Iterable, Iterator, List, Set, Tuple

DEPTH = 4  # of tables within tables: {"fetch": {"call": fetch}}
SEQUENCES = (tuple, set, frozenset)


def _key(x: Any) -> Tuple[int, ...]:
    """Identity; a method is made anew each time it is asked for."""
    return (id(x.__self__), id(x.__func__)) if isinstance(x, types.MethodType) else (id(x),)


class CantPut(Exception):
    pass


class Swap:
    def __init__(self) -> None:
        self._undo: List[Tuple[Callable[[Any], Any], Any]] = []
        self._new: Dict[Tuple[int, ...], Any] = {}
        self._holding: List[Any] = []  # so that no id is used twice

    def put(self, put: Callable[[Any], Any], old: Any, new: Any) -> None:
        try:
            put(new)
        except Exception as e:  # whatever somebody else's attribute or table raises
            raise CantPut(str(e) or type(e).__name__) from e
        self._undo.append((put, old))

    def takes_its_place(self, old: Any, new: Any) -> None:
        """From now on tables() puts `new` where `old` is."""
        self._new.setdefault(_key(old), new)
        self._holding.append(old)

    def restore(self) -> None:
        while self._undo:
            put, old = self._undo.pop()
            put(old)

    def _value(self, x: Any, depth: int) -> Any:
        """What is to be in its place: itself, most often."""
        if not depth:
            return x
        new = self._new.get(_key(x))
        if new is not None:
            return new
        kind = type(x)  # not isinstance(): a proxy of another library may not like to be asked
        if issubclass(kind, (dict, list)):
            for key, held in list(x.items() if issubclass(kind, dict) else enumerate(x)):
                new = self._value(held, depth - 1)
                if new is not held:
                    self.put(lambda value, x=x, key=key: x.__setitem__(key, value), held, new)  # type: ignore[misc]
        elif kind in SEQUENCES:
            items = list(x)
            changed = [self._value(held, depth - 1) for held in items]
            if any(a is not b for a, b in zip(items, changed)):
                return kind(changed)
        return x

    def tables(self, owner: Any, itself: bool) -> None:
        """In what the names of an object, class or module hold. `itself`: a function that is held under a name of its own, too."""
        for name, held in list(getattr(owner, "__dict__", {}).items()):
            if not name.startswith("__") and (itself or issubclass(type(held), (dict, list) + SEQUENCES)):
                new = self._value(held, DEPTH)
                if new is not held:
                    self.put(lambda value, name=name: _set(owner, name, value), held, new)  # type: ignore[misc]


    def attribute(self, owner: Any, name: str, new: Any) -> None:
        """OWNER.NAME is `new` from now on: for methods of an object, and for what a class has without one."""
        if isinstance(owner, type):
            if isinstance(vars(owner).get(name), (classmethod, staticmethod)):
                self.put(lambda value: setattr(owner, name, value), vars(owner)[name], staticmethod(new))
        elif hasattr(owner, "__dict__") and not isinstance(owner, types.ModuleType):
            held = vars(owner)
            self.put(lambda value: held.pop(name) if value is self else held.__setitem__(name, value), held.get(name, self), new)  # `self`: nothing was there


def _set(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, (type, types.ModuleType)):
        setattr(owner, name, value)
    else:
        vars(owner)[name] = value  # frozen or not


def modules(packages: Iterable[str]) -> Iterator[types.ModuleType]:
    """Those of the author: of these packages, and all that are not installed."""
    wanted: Set[str] = {p.partition(".")[0] for p in packages}
    installed = tuple(os.path.join(sysconfig.get_path(p), "") for p in ("stdlib", "platstdlib", "purelib", "platlib"))
    for name, module in list(sys.modules.items()):
        root = name.partition(".")[0]
        if not issubclass(type(module), types.ModuleType):
            continue
        file = vars(module).get("__file__")
        if root != "weir" and (root in wanted or (isinstance(file, str) and not file.startswith(installed))):
            yield module
