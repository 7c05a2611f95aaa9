# SPDX-License-Identifier: Apache-2.0
"""A Google ADK agent with a sub-agent. Start it with `python -m weir.agent google_adk:root_agent`.

ADK's own server: `python -m weir.agent analyst.agent:root_agent --then google.adk.cli web .` (this file as analyst/agent.py).
`weir agent add … --tools google_adk`; the image needs google-adk and weir, since importing this module imports them.
"""

from crusoe_adk.tools import run_python
from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool


def exchange(amount: float, rate: float = 1.0) -> dict:
    """Converts an amount of money.

    Args:
        amount: How much.
        rate: What one unit is worth.
    """
    return {"amount": round(amount * rate, 2)}


async def first_words(text: str, count: int = 3) -> str:
    """Returns the first words of a text."""
    return " ".join(text.split()[:count])


writer = LlmAgent(name="writer", model="gemini-2.5-flash", description="Shortens texts.", tools=[FunctionTool(first_words)])

root_agent = LlmAgent(
    name="analyst",
    model="gemini-2.5-flash",
    tools=[run_python, exchange],
    sub_agents=[writer],
    instruction="When a question needs arithmetic or parsing, write Python and run it.",
)
