# SPDX-License-Identifier: Apache-2.0
"""What the SDK knows agent frameworks by, as small as it can be: the frameworks themselves are not installed where the tests run.

install() puts stand-ins into sys.modules under the frameworks' own names, since contexts are known by the package they are from.
"""
import asyncio
import inspect
import json
import sys
import types


def module(name, **members):
    """A module of that name; what is a class in `members` says that it is from there."""
    made = types.ModuleType(name)
    for key, value in members.items():
        if isinstance(value, type):
            value.__module__ = name
        setattr(made, key, value)
    parent, _, leaf = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            module(parent)
        setattr(sys.modules[parent], leaf, made)
    made.__path__ = []
    sys.modules[name] = made
    return made


# ---- Google ADK ----


class ToolContext:
    def __init__(self, session):
        self.session = session


class AdkFunctionTool:
    def __init__(self, func):
        self.name, self.description, self.func = func.__name__, func.__doc__, func

    async def run_async(self, *, args, tool_context):
        known = inspect.signature(self.func).parameters
        args = dict(args)
        if "tool_context" in known:
            args["tool_context"] = tool_context
        value = self.func(**{k: v for k, v in args.items() if k in known})
        return await value if inspect.isawaitable(value) else value


class AgentTool:
    def __init__(self, agent):
        self.name, self.agent = agent.name, agent

    async def run_async(self, *, args, tool_context):
        raise NotImplementedError


class GoogleSearchTool:
    name = "google_search"

    async def run_async(self, *, args, tool_context):
        raise NotImplementedError


class Toolset:
    async def get_tools(self, readonly_context=None):
        return []


class UnsafeLocalCodeExecutor:
    pass


class BaseAgent:
    def __init__(self, name="", sub_agents=(), description=""):
        self.name, self.sub_agents, self.description = name, list(sub_agents), description


class LlmAgent(BaseAgent):
    def __init__(self, name="", tools=(), instruction="", model="", code_executor=None, **more):
        super().__init__(name, **more)
        self.tools, self.instruction, self.model, self.code_executor = list(tools), instruction, model, code_executor


# ---- LangChain ----


class CallbackManagerForToolRun:
    pass


class RunnableConfig(dict):
    pass


class BaseTool:
    name = description = ""
    response_format = "content"

    def invoke(self, arguments):
        return self._run(**arguments)

    def __call__(self, text):
        return self.invoke(text)

    async def ainvoke(self, arguments):
        return await self._arun(**arguments)

    async def _arun(self, **arguments):
        return await asyncio.to_thread(self._run, **arguments)


class StructuredTool(BaseTool):
    def __init__(self, func=None, coroutine=None, response_format="content"):
        self.name = (func or coroutine).__name__
        self.func, self.coroutine, self.response_format = func, coroutine, response_format

    def _run(self, **arguments):
        return self.func(**arguments)

    async def _arun(self, **arguments):
        return await self.coroutine(**arguments) if self.coroutine else await asyncio.to_thread(self.func, **arguments)


    @classmethod
    def from_function(cls, func):
        return cls(func)


def langchain_tool(function):
    return StructuredTool(coroutine=function) if inspect.iscoroutinefunction(function) else StructuredTool(function)


# ---- OpenAI Agents ----


class RunContextWrapper:
    pass


class OpenAIFunctionTool:
    def __init__(self, name, on_invoke_tool):
        self.name, self.on_invoke_tool = name, on_invoke_tool


class Invoker:
    """As newer versions of the framework have it: an object around the function."""

    def __init__(self, impl):
        self._invoke_tool_impl = impl

    async def __call__(self, context, text):
        try:
            return await self._invoke_tool_impl(context, text)
        except Exception as e:
            return "An error occurred while running the tool. Error: %s" % e


def function_tool(the_func=None, *, plain=False):
    def make(the_func):
        async def _on_invoke_tool_impl(context, text):
            value = the_func(**json.loads(text))
            return await value if inspect.isawaitable(value) else value

        async def _on_invoke_tool(context, text):
            return await _on_invoke_tool_impl(context, text)

        return OpenAIFunctionTool(the_func.__name__, _on_invoke_tool if plain else Invoker(_on_invoke_tool_impl))

    return make(the_func) if the_func else make


class Handoff:
    def __init__(self, on_invoke_handoff):
        self.tool_name, self.on_invoke_handoff = "transfer", on_invoke_handoff


def handoff(agent):
    async def invoke(context, text=None):
        return agent

    return Handoff(invoke)


class OpenAIAgent:
    def __init__(self, name, tools=(), handoffs=(), mcp_servers=(), instructions=""):
        self.name, self.tools, self.handoffs, self.mcp_servers = name, list(tools), list(handoffs), list(mcp_servers)


class WebSearchTool:
    name = "web_search"


class Runner:
    pass


# What it makes is known by the globals of the framework's module.
function_tool = types.FunctionType(function_tool.__code__, dict(globals(), __name__="agents.tool"), "function_tool", (None,))
function_tool.__kwdefaults__ = {"plain": False}


def remember(*owners):
    """A function that puts back what their names hold now: what was isolated stays so for its process otherwise."""
    before = [(owner, dict(vars(owner))) for owner in owners]

    def restore():
        for owner, held in before:
            for name in set(vars(owner)) - set(held):
                delattr(owner, name)
            for name, value in held.items():
                if vars(owner)[name] is not value:
                    setattr(owner, name, value)

    return restore


def install():
    module("google.adk.agents", LlmAgent=LlmAgent, BaseAgent=BaseAgent)
    module(
        "google.adk.tools",
        FunctionTool=AdkFunctionTool,
        AgentTool=AgentTool,
        ToolContext=ToolContext,
        GoogleSearchTool=GoogleSearchTool,
        Toolset=Toolset,
        UnsafeLocalCodeExecutor=UnsafeLocalCodeExecutor,
    )
    module("langchain_core.tools", StructuredTool=StructuredTool, BaseTool=BaseTool, tool=langchain_tool)
    module("langchain_core.callbacks", CallbackManagerForToolRun=CallbackManagerForToolRun)
    module("langchain_core.runnables", RunnableConfig=RunnableConfig)
    module("agents", Runner=Runner, FunctionTool=OpenAIFunctionTool, Invoker=Invoker, RunContextWrapper=RunContextWrapper, Agent=OpenAIAgent, Handoff=Handoff, function_tool=function_tool)
