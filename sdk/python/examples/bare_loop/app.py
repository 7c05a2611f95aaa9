# app.py
"""An agent without a framework: a loop around a model with an OpenAI-compatible endpoint."""
import inspect
import json
import os
import urllib.request

from tools import fetch, variables
from weir import run_python

JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}


def described(tool):
    """A tool as the model is told of it."""
    parameters = inspect.signature(tool).parameters
    schema = {
        "type": "object",
        "properties": {name: {"type": JSON_TYPES.get(p.annotation, "string")} for name, p in parameters.items()},
        "required": [name for name, p in parameters.items() if p.default is p.empty],
    }
    return {"type": "function", "function": {"name": tool.__name__, "description": inspect.getdoc(tool), "parameters": schema}}


def ask_model(messages, tools):
    body = {"model": os.environ.get("MODEL", "default"), "messages": messages, "tools": [described(t) for t in tools]}
    request = urllib.request.Request(
        os.environ["MODEL_URL"] + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["MODEL_KEY"]},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["choices"][0]["message"]


def use(tools, function):
    """What a tool answers, as the model gets it; an error is an answer too: the model may try something else."""
    try:
        named = {tool.__name__: tool for tool in tools}
        return json.dumps(named[function["name"]](**json.loads(function["arguments"])))
    except Exception as error:
        return json.dumps({"error": str(error)})


class Agent:
    name = "analyst"
    tools = [run_python, fetch, variables]

    def __call__(self, question):
        messages = [{"role": "user", "content": question}]
        while True:
            message = ask_model(messages, self.tools)
            messages.append(message)
            if not message.get("tool_calls"):
                return message["content"]
            for call in message["tool_calls"]:
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": use(self.tools, call["function"])})


root_agent = Agent()
