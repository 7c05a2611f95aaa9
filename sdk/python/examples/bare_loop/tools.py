# tools.py
"""The agent's tools: ordinary functions. Each call of one runs in a sandbox of its own, made of the agent's image."""
import os
import urllib.request


def fetch(url: str) -> str:
    """Fetches a page of the public internet and returns its text."""
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read(200_000).decode("utf-8", "replace")


def variables() -> list:
    """Returns the names of the environment variables that this agent's tools see."""
    return sorted(os.environ)
