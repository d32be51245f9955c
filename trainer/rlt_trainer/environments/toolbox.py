"""The tools of a job, by name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from rlt_api.blocks.rollout import MultiTurn
from rlt_api.spec.pod_variables import API_KEY, tool_prefix
from rlt_trainer.environments.calculator import format_result
from rlt_trainer.environments.function_tool import FunctionTool
from rlt_trainer.environments.mcp_tools import McpConnection
from rlt_trainer.environments.python_tool import PythonTool
from rlt_trainer.environments.sandboxed_mcp import SandboxedMcp
from rlt_trainer.environments.sandboxed_python import SandboxedPython
from rlt_trainer.environments.session import SessionError
from rlt_trainer.environments.tool import SandboxedTool, Tool, ToolSchema, build_schema
from rlt_trainer.pod_variables import read_variable, read_variables
from rlt_trainer.sandboxes.pool import SandboxPool, check_pool, open_pool

TOOLS = "rollout.multiTurn.tools"


class CalculatorTool:
    """The tool calculator."""

    schema = build_schema(
        "calculator",
        "Evaluate an expression of numbers, + - * / // % ** and parentheses.",
        {"expression": "The expression, such as (2 + 3) * 4."},
    )

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """See Tool."""
        expression = arguments.get("expression")
        if not isinstance(expression, str):
            return 'error: calculator requires the text argument "expression"'
        return format_result(expression[:200])


@asynccontextmanager
async def open_tools(
    multi_turn: MultiTurn, pool: SandboxPool | None = None
) -> AsyncIterator[dict[str, Tool | SandboxedTool]]:
    """Open the tools of a job: name -> tool. They belong to the current event loop. `pool`: for MCP servers.

    Raises ValueError for a tool that cannot be loaded, for an MCP server that does not answer, and for two tools of one
    name.
    """
    found: dict[str, Tool | SandboxedTool] = {}
    async with AsyncExitStack() as stack:
        for index, tool in enumerate(multi_turn.tools):
            field = f"{TOOLS}[{index}]"
            opened: list[Tool | SandboxedTool] = []
            if tool.name == "calculator":
                opened.append(CalculatorTool())
            elif tool.name == "python" and multi_turn.sandbox is not None:
                opened.append(SandboxedPython(multi_turn.timeout_seconds))
            elif tool.name == "python":
                python = PythonTool(multi_turn.timeout_seconds)
                stack.callback(python.close)
                opened.append(python)
            elif tool.function is not None:
                timeout_s = multi_turn.timeout_seconds
                function = FunctionTool(tool.function, field=f"{field}.function", timeout_s=timeout_s)
                stack.callback(function.close)
                opened.append(function)
            elif tool.mcp is not None:
                prefix = tool_prefix(index)
                variables = read_variables(tool.mcp.env, prefix=prefix, field=f"{field}.mcp.env")
                timeout_s = multi_turn.timeout_seconds
                try:
                    if tool.mcp.sandbox:
                        assert pool is not None, "a rule requires the sandbox"
                        sandboxed = SandboxedMcp(tool.mcp, variables, name=str(index), timeout_s=timeout_s)
                        opened += await sandboxed.list_tools(pool)
                    else:
                        key = read_variable(prefix + API_KEY, f"{field}.mcp.apiKey") if tool.mcp.api_key else None
                        connection = McpConnection(tool.mcp, variables=variables, api_key=key, timeout_s=timeout_s)
                        stack.push_async_callback(connection.close)
                        opened += await connection.list_tools()
                except SessionError as error:
                    raise ValueError(
                        f"{field}.mcp: {error}. Check the server, and that the pods can connect to it or run it."
                    ) from error
            for each in opened:
                name = each.schema["function"]["name"]
                if name in found:
                    raise ValueError(f"{field}: the tool {name} exists twice. Remove one of them.")
                found[name] = each
        yield found


def describe_tools(multi_turn: MultiTurn | None) -> list[ToolSchema]:
    """Return the descriptions of a job's tools for the chat template. Raises ValueError as open_tools does, and if no
    sandbox of the job works."""

    async def describe(multi_turn: MultiTurn) -> list[ToolSchema]:
        pool = open_pool(multi_turn)
        if pool is not None:
            programs = (multi_turn.agent.command if multi_turn.agent else None) or ["python3"]
            await check_pool(pool, programs[0])
        async with open_tools(multi_turn, pool) as tools:
            return [tool.schema for tool in tools.values()]

    return asyncio.run(describe(multi_turn)) if multi_turn is not None else []
