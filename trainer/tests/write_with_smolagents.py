"""A program of smolagents with one tool, in an environment without the trainer. The task is its standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from smolagents import OpenAIModel, ToolCallingAgent, tool


def write(path: str, text: str) -> str:
    """Write a file.

    Args:
        path: The file.
        text: Its text.
    """
    Path(path).write_text(text)
    return "The file is written."


model = OpenAIModel("policy", tool_choice="auto")  # the default is a guaranteed call
print(ToolCallingAgent([tool(write)], model).run(sys.stdin.read()))
