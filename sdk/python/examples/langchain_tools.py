# SPDX-License-Identifier: Apache-2.0
"""A LangChain agent. Start it with `python -m weir.agent langchain_tools:app "QUESTION"`.

`weir agent add … --tools langchain_tools`; the image needs langchain-core and weir, since importing this module imports them.
"""

from langchain_core.tools import StructuredTool, tool
from weir import run_python


@tool
def exchange(amount: float, rate: float = 1.0) -> dict:
    """Converts an amount of money."""
    return {"amount": round(amount * rate, 2)}


@tool
async def first_words(text: str, count: int = 3) -> str:
    """Returns the first words of a text."""
    return " ".join(text.split()[:count])


class App:
    """What is started: the tools, and how a question is put to an agent that has them."""

    tools = [exchange, first_words, StructuredTool.from_function(run_python)]

    async def run(self, question: str) -> str:
        from langchain.agents import create_agent

        agent = create_agent("openai:gpt-5-mini", tools=self.tools)
        answer = await agent.ainvoke({"messages": [{"role": "user", "content": question}]})
        return answer["messages"][-1].content


app = App()
