"""A program of openai-agents with one tool, in an environment without the trainer. The task is its standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from agents import Agent, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)  # traces are sent to OpenAI


def write(path: str, text: str) -> str:
    """Write a file."""
    Path(path).write_text(text)
    return "The file is written."


agent = Agent(name="Writer", instructions="Use the tool.", tools=[function_tool(write)])
print(Runner.run_sync(agent, sys.stdin.read()).final_output)
