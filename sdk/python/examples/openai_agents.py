# SPDX-License-Identifier: Apache-2.0
"""An agent of the OpenAI Agents SDK with a handoff. Start it with `python -m weir.agent openai_agents:app "QUESTION"`.

`weir agent add … --tools openai_agents`; the image needs openai-agents and weir, since importing this module imports them.
"""

from agents import Agent, Runner, function_tool
from weir import run_python_async


@function_tool
def exchange(amount: float, rate: float = 1.0) -> dict:
    """Converts an amount of money."""
    return {"amount": round(amount * rate, 2)}


@function_tool
async def first_words(text: str, count: int = 3) -> str:
    """Returns the first words of a text."""
    return " ".join(text.split()[:count])


writer = Agent(name="writer", instructions="Shorten texts.", tools=[first_words])
analyst = Agent(
    name="analyst",
    instructions="When a question needs arithmetic or parsing, write Python and run it.",
    tools=[function_tool(run_python_async), exchange],
    handoffs=[writer],
)


class App:
    """What is started: the agents, and how a question is put to them."""

    agent = analyst

    async def run(self, question: str) -> str:
        return (await Runner.run(self.agent, question)).final_output


app = App()
