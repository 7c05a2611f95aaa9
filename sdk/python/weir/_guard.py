# SPDX-License-Identifier: Apache-2.0
"""
Other processes of an agent, and other copies of its module. A process that is started anew (multiprocessing's spawn and
forkserver, a reloader, a server's workers) imports the agent's module again, with tools that nobody has moved. So an agent's
process leaves a word in its environment, and Python itself, by way of sitecustomize, puts a hook into each Python that inherits
it: right after the agent's module has been executed its tools are moved; where that fails, so does the import.

sitecustomize reads this file by its path, in processes most of which have nothing to do with the agent: the package is imported
only when the agent's module is.
"""

import importlib
import os
import sys
from typing import Any

VARIABLE = "WEIR_AGENT"  # MODULE:AGENT and, after a blank, the module's file
HERE = os.path.dirname(os.path.abspath(__file__))
CHILDREN = os.path.join(HERE, "_children")


class Guard:
    """One of sys.meta_path."""

    def __init__(self, word: str) -> None:
        self.weir_word = word
        agent, _, self.file = word.partition(" ")
        self.module, _, self.attribute = agent.partition(":")
        self.leaf = self.module.rpartition(".")[2]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.rpartition(".")[2] != self.leaf:
            return None
        spec = self._others(name, path, target)
        if spec is None:
            return None
        if name == self.module:
            self._watch(spec.loader)
        elif self.file and spec.has_location and os.path.realpath(spec.origin) == self.file:
            raise self.refused("it is imported a second time, as `%s`: the tools of that copy would run in this process" % name, "import it by its one name, `%s`" % self.module)
        return spec

    @staticmethod
    def _others(name: str, path: Any, target: Any) -> Any:
        for finder in list(sys.meta_path):
            find = None if hasattr(finder, "weir_word") else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        """Where the loader does not allow it, this raises: then the module is not imported."""
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            if module.__name__ == self.module:
                package("agent").isolate(self.module, self.attribute)

        loader.exec_module = exec_module

    def refused(self, reason: str, mend: str) -> Exception:
        errors = package("errors")
        error: Exception = errors.ToolIsolationError([errors.ToolProblem(self.module, self.attribute, reason, mend)])
        return error


def package(name: str) -> Any:
    """A module of this package, which need not be on the path of a process that is somebody else's."""
    above = os.path.dirname(HERE)
    if "weir" not in sys.modules and above not in sys.path:
        sys.path.append(above)
    return importlib.import_module("weir." + name)


def installed(word: str) -> bool:
    return any(getattr(f, "weir_word", None) == word for f in sys.meta_path)


def install(word: str) -> None:
    if not installed(word):
        sys.meta_path.insert(0, Guard(word))


def announce(module: str, attribute: str) -> None:
    """To this process and to all that it starts: whose tools run in sandboxes alone."""
    file = getattr(sys.modules[module], "__file__", None)
    path = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != CHILDREN]
    os.environ[VARIABLE] = "%s:%s %s" % (module, attribute, os.path.realpath(file) if file else "")
    os.environ["PYTHONPATH"] = os.pathsep.join([CHILDREN] + path)
    install(os.environ[VARIABLE])


def inherit() -> None:
    """For a process that has the word and where sitecustomize did not see to it: python -E, -I or -S."""
    word = os.environ.get(VARIABLE, "")
    if not word or installed(word):
        return
    guard = Guard(word)
    if guard.module in sys.modules:
        raise guard.refused("a process that the agent has started imports it before anything could move its tools", "start Python there without -E, -I and -S")
    install(word)
