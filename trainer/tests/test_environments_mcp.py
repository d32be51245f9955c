"""Real MCP servers over HTTP and stdio, and what counts as a failure of a conversation."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tool_conversations import (
    SAMPLING,
    SERVER,
    STDIO,
    TOKENIZER,
    Turns,
    call,
    finish,
    multi_turn,
    talk,
    use,
    write_call,
)

from rlt_api.blocks.data import Data
from rlt_api.blocks.rollout import MultiTurn
from rlt_e2e.ports import free_port
from rlt_trainer.data.encoding import tokenize
from rlt_trainer.data.prompt import Example
from rlt_trainer.environments.conversations import Conversations
from rlt_trainer.environments.session import SessionError
from rlt_trainer.environments.tool import Tool
from rlt_trainer.environments.toolbox import describe_tools


@pytest.fixture(scope="module")
def http_server() -> Iterator[tuple[str, str]]:
    """The URL and the token of a real server."""
    with start_server(token := "t0ken", free_port()) as (url, _):
        yield url, token


class start_server:
    """Starts a server over HTTP, and ends it."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self._port = port

    def __enter__(self) -> tuple[str, subprocess.Popen[bytes]]:
        self._process = subprocess.Popen([sys.executable, SERVER, "http", str(self._port), self._token])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
                return f"http://127.0.0.1:{self._port}/mcp", self._process
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise AssertionError("the server does not start")

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()


def over_http(url: str, **changes: Any) -> MultiTurn:
    return multi_turn({"mcp": {"url": url, "apiKey": {"name": "search", "key": "token"}}}, **changes)


def test_tools_of_a_server_over_http(http_server: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    url, token = http_server
    monkeypatch.setenv("RLT_TOOL_0_API_KEY", token)
    given = over_http(url)
    schemas = {schema["function"]["name"]: schema["function"] for schema in describe_tools(given)}
    assert set(schemas) == {"multiply", "hang", "leave", "read_variable"}
    assert schemas["multiply"]["description"] == "Multiply two numbers."
    assert set(schemas["multiply"]["parameters"]["properties"]) == {"a", "b"}
    episode, _ = talk(given, write_call("multiply", a=6, b=7), write_call("multiply", a=13, b=7), "42")
    text = str(TOKENIZER.decode(list(episode.response.token_ids)))
    assert "<tool_response>42</tool_response>" in text
    assert "error: " in text
    assert "13 is unlucky" in text
    assert episode.failure is None


def test_invalid_arguments_are_an_observation(http_server: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    url, token = http_server
    monkeypatch.setenv("RLT_TOOL_0_API_KEY", token)
    assert call(over_http(url), "multiply", a="x").startswith("error: ")


def test_a_rejected_token_and_a_missing_one_are_errors(
    http_server: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = http_server
    with pytest.raises(ValueError, match=r"tools\[0\].mcp.apiKey: the variable RLT_TOOL_0_API_KEY has no value"):
        describe_tools(over_http(url))
    monkeypatch.setenv("RLT_TOOL_0_API_KEY", "wr0ng-t0ken")
    with pytest.raises(
        ValueError, match=r"rollout.multiTurn.tools\[0\].mcp: MCP server http.* Check the server"
    ) as error:
        describe_tools(over_http(url))
    assert "wr0ng-t0ken" not in str(error.value)


def test_tools_of_a_server_over_stdio() -> None:
    server = {**STDIO["mcp"], "env": [{"name": "COLOR", "value": "red"}]}
    assert call(multi_turn({"mcp": server}), "read_variable", name="COLOR") == "red"


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"url": "http://127.0.0.1:1/mcp"}, "MCP server http://127.0.0.1:1/mcp: "),
        ({"command": ["/no/such/program"]}, "MCP server /no/such/program: "),
        ({"command": [sys.executable, "-c", ""]}, "MCP server "),
    ],
    ids=["no listener", "no program", "program that exits"],
)
def test_a_server_that_is_gone_is_rejected_before_the_training(server: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"rollout.multiTurn.tools\[0\].mcp: .* Check the server") as error:
        describe_tools(multi_turn({"mcp": server}))
    assert message in str(error.value)


def test_a_server_that_dies_fails_its_conversation_and_not_the_others() -> None:
    """The next call starts the program again."""
    given = multi_turn(STDIO, {"name": "calculator"})

    async def run(tools: dict[str, Tool]) -> list[Any]:
        leave = tools["leave"].call({})
        first = await asyncio.gather(leave, tools["calculator"].call({"expression": "1+1"}), return_exceptions=True)
        return [*first, await tools["multiply"].call({"a": 2, "b": 3})]

    left, two, six = use(given, run)
    assert isinstance(left, SessionError)
    assert (two, six) == ("2", "6")


def test_batches_share_a_connection_that_is_opened_again_after_the_server_died(tmp_path: Path) -> None:
    """The program writes a line at each start."""
    log = tmp_path / "starts"
    data = Data(preset="digits", max_response_length=2000)
    script = f'echo start >> {log}; exec "$@"'
    given = multi_turn({"mcp": {"command": ["sh", "-c", script, "sh", sys.executable, SERVER, "stdio"]}}, maxTurns=2)
    multiply = write_call("multiply", a=6, b=7)
    leave = write_call("leave")
    (prompt,) = tokenize([Example("q", "", "", "test")], TOKENIZER, tools=[{"function": {"name": "t"}}])

    async def run_batches() -> list[str | None]:
        conversations = Conversations(given, data, TOKENIZER)

        async def run(call: str) -> str | None:
            async with conversations.open() as converse:
                return (await finish(converse(Turns(call, "42"), prompt, seed=1, sampling=SAMPLING))).failure

        failures = [*await asyncio.gather(run(multiply), run(multiply)), await run(leave), await run(multiply)]
        await conversations.close()
        return failures

    first, second, left, again = asyncio.run(run_batches())
    assert first is second is again is None
    assert "MCP server" in str(left)
    assert log.read_text().splitlines() == ["start", "start"]


def test_a_call_that_hangs_does_not_end_the_calls_of_other_conversations() -> None:
    async def run(tools: dict[str, Tool]) -> list[Any]:
        hanging = asyncio.create_task(tools["hang"].call({}))
        await asyncio.sleep(0)
        good = [await tools["multiply"].call({"a": 2, "b": each}) for each in (3, 4)]
        (failed,) = await asyncio.gather(hanging, return_exceptions=True)
        return [failed, *good, await tools["multiply"].call({"a": 2, "b": 5})]

    failed, *good = use(multi_turn(STDIO, timeoutSeconds=3.0), run)
    assert isinstance(failed, SessionError)
    assert good == ["6", "8", "10"]


def test_a_server_over_http_that_is_started_again_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLT_TOOL_0_API_KEY", "t0ken")
    port = free_port()
    url, process = start_server("t0ken", port).__enter__()
    second = start_server("t0ken", port)

    async def run(tools: dict[str, Tool]) -> list[Any]:
        good = await tools["multiply"].call({"a": 2, "b": 3})
        process.kill()
        process.wait()
        (failed,) = await asyncio.gather(tools["multiply"].call({"a": 2, "b": 3}), return_exceptions=True)
        second.__enter__()
        return [good, failed, await tools["multiply"].call({"a": 2, "b": 4})]

    good, failed, again = use(over_http(url), run)
    second.__exit__()
    assert isinstance(failed, SessionError)
    assert (good, again) == ("6", "8")


def test_a_servers_failure_is_a_failure_of_the_conversation() -> None:
    episode, _ = talk(multi_turn(STDIO), write_call("leave"), "5")
    assert "MCP server" in str(episode.failure)
    assert episode.response.finish_reason == "abort"


def test_a_call_of_a_server_that_hangs_is_a_failure() -> None:
    with pytest.raises(SessionError, match=r"hang did not end within 0.5 s"):
        call(multi_turn(STDIO, timeoutSeconds=0.5), "hang")
