# SPDX-License-Identifier: Apache-2.0
"""Tools of every kind, as an author writes them."""
import asyncio
import datetime
import enum
import functools
import os
import socket
import time
from typing import Any, Dict, List, Optional, Sequence, Union

import frameworks

frameworks.install()

from agents import RunContextWrapper, function_tool  # noqa: E402
from google.adk.tools import ToolContext  # noqa: E402
from langchain_core.runnables import RunnableConfig  # noqa: E402
from langchain_core.tools import BaseTool, StructuredTool, tool  # noqa: E402


def weather(city: str, days: int = 3, *, units: str = "c", **more: str) -> Dict[str, Any]:
    """Tells the weather.

    Args:
        city: where
    """
    return {"city": city, "days": days, "units": units, "more": more}


weather.tag = "kept"


async def forecast(city: str, hours: Optional[List[int]] = None) -> list:
    """Tells it for hours."""
    return [city, hours]


def annotated_as_text(city: "Optional[str]" = None, when: "Sequence[str]" = ()) -> "Dict[str, List[str]]":
    return {"city": city, "when": list(when)}


def positional(a, b=2, /, c=3):
    return [a, b, c]


MISSING = object()


def object_as_default(city: str, when: Any = MISSING) -> list:
    return [city, when is MISSING]


def plain_decorator(function):
    def inner(x: int):
        return ["decorated", function(x)]

    return inner


@plain_decorator
def decorated(x: int) -> int:
    return x


def wrapping_decorator(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return ["wrapped", function(*args, **kwargs)]

    return inner


@wrapping_decorator
def wrapped(x: int) -> list:
    """Is wrapped."""
    return x


@functools.lru_cache()
def cached(x: int) -> int:
    return x * 2


class Retry:
    """A decorator that is a class."""

    def __init__(self, func):
        self.func, self.__doc__ = func, func.__doc__

    def __call__(self, x: int) -> list:
        return ["retried", self.func(x)]


@Retry
def retried(x: int) -> int:
    return x


class Station:
    def __init__(self, name):
        self.name = name

    def read(self, unit: str = "c") -> list:
        """Reads it."""
        return [self.name, unit]

    async def read_async(self, unit: str = "c") -> list:
        return [self.name, unit]

    @classmethod
    def kinds(cls, most: int = 1) -> list:
        return [cls.__name__, most]

    @staticmethod
    def version() -> str:
        return "1"


station = Station("north")
half = functools.partial(weather, days=1)


class Multiply:
    """Multiplies."""

    def __call__(self, a: int, b: int) -> int:
        return a * b


multiply = Multiply()


def boom(text: str) -> str:
    raise ValueError("no good: " + text)


def pid() -> int:
    return os.getpid()


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


async def sleep_async(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def leave() -> int:
    os._exit(3)


def bad_result() -> dict:
    return {"rows": [1, {2}]}


def variables() -> Dict[str, str]:
    return dict(os.environ)


def connect(host: str, port: int = 80) -> str:
    socket.create_connection((host, port), 5).close()
    return "connected"


# ---- as frameworks wrap them ----


@tool
def structured(q: str) -> str:
    """Asks."""
    return "structured " + q


@tool
async def structured_async(q: str) -> str:
    return "structured async " + q


def both_ways(q: str) -> tuple:
    return ("content", q)


pair = StructuredTool(both_ways, response_format="content_and_artifact")


class ClassTool(BaseTool):
    name = "class_tool"

    def _run(self, q: str) -> str:
        return "class " + q


class_tool = ClassTool()


@function_tool
def openai_tool(q: str) -> str:
    return "openai " + q


@function_tool(plain=True)
async def openai_tool_async(q: str) -> str:
    return "openai async " + q


# ---- what can't be moved ----


class Colour(enum.Enum):
    RED = 1


nameless = lambda x: x  # noqa: E731


def nested():
    def inside(x: int) -> int:
        return x

    return inside


def generator(n: int):
    yield n


async def async_generator(n: int):
    yield n


def starred(*cities: str) -> str:
    return ""


def adk_context(city: str, tool_context: ToolContext = None) -> str:
    return ""


def adk_context_by_type(city: str, ctx: Optional[ToolContext] = None) -> str:
    return ""


def by_name_alone(city: str, tool_context=None) -> str:
    return ""


def langchain_config(city: str, config: RunnableConfig) -> str:
    return ""


def openai_context(ctx: RunContextWrapper, city: str) -> str:
    return ""


def takes_date(when: datetime.date) -> str:
    return ""


def takes_bytes(data: Optional[bytes] = None) -> str:
    return ""


def takes_enum(colour: Colour) -> str:
    return ""


def takes_objects(stations: List[Station]) -> str:
    return ""


def takes_numbered(rows: Dict[int, str]) -> str:
    return ""


def returns_object(x: int) -> Station:
    return station


def returns_set(x: int) -> set:
    return {x}


def either(x: Union[int, datetime.date]) -> int:
    """One of the two can travel."""
    return 1


def hidden_original(x: int) -> int:
    return x


ORIGINAL = [hidden_original]


def hidden_original(x: int) -> int:  # noqa: F811
    return -x


class ContextTool(BaseTool):
    name = "context_tool"

    def _run(self, q: str, run_manager=None) -> str:
        return q


context_tool = ContextTool()
