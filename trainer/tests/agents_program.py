"""A program of openai-agents, in an environment without the trainer: `python agents_program.py QUESTION`.

The first run uses Responses, the default of openai-agents, the second one Chat Completions. The server and the key are
in the environment.
"""

from __future__ import annotations

import asyncio
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

set_tracing_disabled(True)  # traces are sent to OpenAI


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def main(question: str) -> None:
    agent = Agent(name="Calculator", instructions="Use the tools.", tools=[function_tool(add), function_tool(multiply)])
    print((await Runner.run(agent, question)).final_output)
    set_default_openai_api("chat_completions")
    streamed = Runner.run_streamed(agent, "Say goodbye.")
    async for _ in streamed.stream_events():
        pass
    print(streamed.final_output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
