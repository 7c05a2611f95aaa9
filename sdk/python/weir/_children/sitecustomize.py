# SPDX-License-Identifier: Apache-2.0
"""Python imports this when it starts, in processes that an agent's process has started: see weir/_guard.py."""

import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


def execute(spec: Any) -> Any:
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def hidden() -> None:
    """The sitecustomize that would have been imported without this one."""
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        execute(spec)


word = os.environ.get("WEIR_AGENT", "")
if word and sys._xoptions.get("weir") != "call":
    execute(importlib.util.spec_from_file_location("_weir_guard", os.path.join(os.path.dirname(HERE), "_guard.py"))).install(word)
hidden()
