"""MCP servers in sandboxes, whose servers are processes here: a real one, and hostile ones."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
from sandbox_servers import KEY, start_server
from tool_conversations import SERVER, multi_turn

from rlt_api.blocks.rollout import McpServer
from rlt_trainer.environments import mcp_tools
from rlt_trainer.environments.sandboxed_mcp import SandboxedMcp, SandboxedMcpTool
from rlt_trainer.environments.session import SessionError
from rlt_trainer.environments.tool import SandboxedTool, Tool, build_schema
from rlt_trainer.environments.toolbox import open_tools
from rlt_trainer.sandboxes.claim import Claim
from rlt_trainer.sandboxes.pool import SandboxPool
from rlt_trainer.sandboxes.sandbox import SandboxError

COMMAND = [sys.executable, SERVER, "stdio"]
HOSTILE = {
    "garbage": "while True: print('garbage')",
    "a_line": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "bytes": "while True: print('[' * 60000)",
    "silence": "import time; time.sleep(120)",
    "end": "import sys; sys.exit('no such module')",
    "closed_pipes": "import os, time; os.close(0); os.close(1); time.sleep(120)",
    "pings": """
import sys
sys.stdin.readline()
number = 0
while True:
    number += 1
    print('{"jsonrpc": "2.0", "id": %d, "method": "ping"}' % number)
""",
}
"""Servers that do not answer."""
KILL_OTHERS = """
import os, signal
from contextlib import suppress
for pid in set(filter(str.isdigit, os.listdir("/proc"))) - {str(os.getpid())}:
    with suppress(OSError), open(f"/proc/{pid}/stat") as stat:
        if int(stat.read().rpartition(")")[2].split()[1]) == os.getppid():
            os.kill(int(pid), signal.SIGKILL)
"""
"""Ends the other programs of a sandbox."""


@asynccontextmanager
async def open_pool(count: int) -> AsyncIterator[SandboxPool]:
    with ExitStack() as stack:
        pods = [stack.enter_context(start_server()) for _ in range(count)]

        async def find() -> Sequence[tuple[str, int]]:
            return [("127.0.0.1", port) for process, port in pods if process.poll() is None]

        yield SandboxPool(find, KEY, size=count, timeout_s=20.0)


@asynccontextmanager
async def open_job(pods: int, **changes: Any) -> AsyncIterator[tuple[SandboxPool, dict[str, Tool | SandboxedTool]]]:
    """The tools of a job with the server of the tests. Their description needs a pod, too."""
    variables = [{"name": "TASK", "value": "7"}]
    given = multi_turn({"mcp": {"command": COMMAND, "sandbox": True, "env": variables}}, sandbox={}, **changes)
    async with open_pool(pods + 1) as pool, open_tools(given, pool) as tools:
        yield pool, tools


async def call(tools: dict[str, Tool | SandboxedTool], claim: Claim, name: str, /, **arguments: Any) -> str:
    tool = tools[name]
    assert isinstance(tool, SandboxedTool)
    return await tool.open_in(claim).call(arguments)


async def test_each_conversation_has_a_server_in_its_sandbox() -> None:
    async with open_job(2) as (pool, tools), Claim(pool, 60.0) as one, Claim(pool, 60.0) as other:
        products = await asyncio.gather(
            call(tools, one, "multiply", a=6, b=7),
            call(tools, one, "multiply", a=2, b=3),
            call(tools, other, "multiply", a=3, b=3),
        )
        assert list(products) == ["42", "6", "9"]
        assert await call(tools, one, "read_variable", name="TASK") == "7"
        assert "13 is unlucky" in await call(tools, one, "multiply", a=13, b=1)


async def test_a_server_that_ended_is_a_response_and_the_next_call_starts_another() -> None:
    """By its tool, or by a program of the policy in the same sandbox."""
    async with open_job(1) as (pool, tools), Claim(pool, 60.0) as claim:
        assert (await call(tools, claim, "leave")).startswith("error: MCP server")
        assert await call(tools, claim, "multiply", a=2, b=2) == "4"
        sandbox = await claim.get()
        assert (await sandbox.run(["python3", "-c", KILL_OTHERS], timeout_s=60.0)).exit_code == 0
        assert (await call(tools, claim, "multiply", a=2, b=3)).startswith("error: MCP server")
        assert await call(tools, claim, "multiply", a=2, b=4) == "8"


async def test_a_call_that_hangs_is_a_response() -> None:
    async with open_job(1, timeoutSeconds=20.0) as (pool, tools), Claim(pool, 60.0) as claim:
        assert "hang did not end within 20 s" in await call(tools, claim, "hang")
        assert await call(tools, claim, "multiply", a=2, b=4) == "8"


async def test_a_lost_pod_is_a_failure_of_the_conversation() -> None:
    async with open_job(1) as (pool, tools), Claim(pool, 60.0) as claim:
        assert await call(tools, claim, "multiply", a=2, b=4) == "8"
        sandbox = await claim.get()
        lose = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"
        with pytest.raises(SandboxError):
            await sandbox.run(["python3", "-c", lose], timeout_s=60.0)
        with pytest.raises(SessionError, match="was lost"):
            await call(tools, claim, "multiply", a=2, b=4)


async def test_hostile_servers_do_not_disturb_another_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_tools, "START_TIMEOUT_S", 20.0)
    schema = build_schema("multiply", "", {})

    async def call_hostile(pool: SandboxPool, program: str) -> str:
        server = McpServer(command=["python3", "-u", "-c", program], sandbox=True)
        hostile = SandboxedMcp(server, {}, name="0", timeout_s=20.0)
        async with Claim(pool, 60.0) as claim:
            return await SandboxedMcpTool(hostile, schema).open_in(claim).call({})

    async with open_job(1 + len(HOSTILE)) as (pool, tools), Claim(pool, 60.0) as claim:
        assert await call(tools, claim, "multiply", a=1, b=1) == "1"
        hostile = asyncio.gather(*(call_hostile(pool, program) for program in HOSTILE.values()))
        products = [await call(tools, claim, "multiply", a=2, b=each) for each in range(4)]
        assert products == ["0", "2", "4", "6"]
        answers = dict(zip(HOSTILE, await hostile, strict=True))
    assert all(answer.startswith("error: MCP server python3 -u -c") for answer in answers.values()), answers
    assert "no such module" in answers["end"]
    for name in ("garbage", "a_line", "bytes", "pings"):
        assert "it printed more than" in answers[name], answers[name]
