"""Tools: calls in a turn, responses in the chat template, real MCP servers, and what counts as a failure."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlt_api.blocks.data import Data
from rlt_api.blocks.functions import PythonFunction
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.encoding import tokenize
from rlt_trainer.data.prompt import Example, Prompt
from rlt_trainer.environments.conversation import ConversationLimits, Episode, converse
from rlt_trainer.environments.conversations import Conversations
from rlt_trainer.environments.function_tool import describe_function
from rlt_trainer.environments.session import SessionError
from rlt_trainer.environments.tool import Tool
from rlt_trainer.environments.tool_calls import InvalidCall, ToolCall, parse_calls
from rlt_trainer.environments.tool_session import ToolSession, shorten
from rlt_trainer.environments.toolbox import describe_tools, open_tools
from rlt_trainer.rollout.engine import Sampling

TOKENIZER = build_byte_tokenizer()
EOS = 257
HERE = Path(__file__).parent
SERVER = str(HERE / "mcp_server.py")
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=500, stop_token_ids=(EOS,))
STDIO = {"mcp": {"command": [sys.executable, SERVER, "stdio"]}}


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of tools can import tool_functions."""
    modules = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(modules))


def multi_turn(*tools: dict[str, Any], **changes: Any) -> MultiTurn:
    return MultiTurn.model_validate({"tools": list(tools), **changes})


def use(given: MultiTurn, run: Callable[[dict[str, Tool]], Awaitable[Any]]) -> Any:
    async def opened() -> Any:
        async with open_tools(given) as tools:
            return await run(tools)

    return asyncio.run(opened())


def call(given: MultiTurn, tool: str, /, **arguments: Any) -> Any:
    """Return the response of one call of a tool."""
    return use(given, lambda tools: tools[tool].call(arguments))


def write_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class Turns:
    """A Sampler with fixed turns."""

    def __init__(self, *turns: str) -> None:
        self._turns = iter(turns)
        self.contexts: list[list[int]] = []

    async def sample(self, prompt: Any, *, seed: int, sampling: Sampling, max_tokens: int | None = None) -> Any:
        from rlt_trainer.batches.response import Response

        self.contexts.append(list(prompt))
        tokens = [*next(self._turns).encode(), EOS]
        return Response(tuple(tokens), tuple(-0.5 for _ in tokens))


def talk(given: MultiTurn, *turns: str, prompt: Prompt | None = None) -> tuple[Episode, Turns]:
    sampler = Turns(*turns)
    (made,) = tokenize([Example("q", "", "", "test")], TOKENIZER, tools=[{"function": {"name": "t"}}])

    async def run(tools: dict[str, Tool]) -> Episode:
        return await converse(
            sampler,
            ToolSession(tools, given),
            prompt or made,
            seed=1,
            sampling=SAMPLING,
            tokenizer=TOKENIZER,
            limits=ConversationLimits(max_turns=4, max_response_length=2000),
        )

    return use(given, run), sampler


# Calls in the text of a turn


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("The answer is 5.", []),
        ('<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call>', [ToolCall("a", {"x": 1})]),
        ('think <tool_call>\n{"name": "a"}\n</tool_call>', [ToolCall("a", {})]),
        ('<tool_call>{"name": "a"}</tool_call> <tool_call>{"name": "b"}', [ToolCall("a", {}), ToolCall("b", {})]),
        ('<tool_call>{"name": "a", "arguments": "{\\"x\\": 1}"}</tool_call>', [ToolCall("a", {"x": 1})]),
    ],
)
def test_hermes_calls_are_parsed(text: str, calls: list[ToolCall]) -> None:
    assert parse_calls(text, "hermes") == calls


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{'name': 'a'}", "the call is not JSON: Expecting property name"),
        ("[1]", 'the call is not an object with "name"'),
        ('{"name": 3}', 'the call is not an object with "name"'),
        ('{"name": "a", "arguments": [1]}', "the arguments of a are not an object"),
        ('{"name": "a", "arguments": "x"}', "the arguments of a are not JSON"),
        ("[" * 100_000, "the call is not JSON"),
    ],
)
def test_a_malformed_call_is_described(body: str, message: str) -> None:
    (found,) = parse_calls(f"<tool_call>{body}</tool_call>", "hermes")
    assert isinstance(found, InvalidCall)
    assert message in found.message


def test_llama_calls_are_a_whole_turn() -> None:
    text = '{"name": "a", "parameters": {"x": 1}}'
    assert parse_calls(f" {text}", "llama3_json") == [ToolCall("a", {"x": 1})]
    assert parse_calls(f"I call {text}", "llama3_json") == []


# A conversation


def test_the_response_of_a_tool_has_the_role_tool_and_is_not_chosen() -> None:
    turn = write_call("calculator", expression="2+3")
    episode, sampler = talk(multi_turn({"name": "calculator"}), turn, "5")
    response = episode.response
    text = str(TOKENIZER.decode(list(response.token_ids)))
    observation = "<|user|><tool_response>5</tool_response><|eos|><|assistant|>"
    assert text == f"{turn}<|eos|>{observation}5<|eos|>"
    assert response.num_turns == 2
    chosen = [token for token, is_chosen in zip(response.token_ids, response.chosen, strict=True) if is_chosen]
    assert str(TOKENIZER.decode(chosen)) == f"{turn}<|eos|>5<|eos|>"
    first, second = sampler.contexts
    assert second == [*first, *response.token_ids[: len(second) - len(first)]]
    assert (episode.reward, episode.failure) == (None, None)


def test_mistakes_of_the_policy_are_observations() -> None:
    given = multi_turn({"name": "calculator"}, maxParallelCalls=3, maxToolResponseLength=100)
    turn = "".join(
        [
            write_call("abacus"),
            "<tool_call>{broken</tool_call>",
            write_call("calculator", term="1"),
            write_call("calculator", expression="1"),
        ]
    )
    episode, _ = talk(given, turn, "5")
    text = str(TOKENIZER.decode(list(episode.response.token_ids)))
    assert episode.failure is None
    assert "error: there is no tool 'abacus'; the tools are calculator" in text
    assert "error: the call is not JSON" in text
    assert 'error: calculator requires the text argument "expression"' in text
    assert "error: the call was skipped: a turn has at most 3 calls" in text


def test_long_responses_keep_their_ends() -> None:
    assert shorten("abcdefgh", 8) == "abcdefgh"
    assert shorten("abcdefgh", 3) == "ab\n... 5 characters are left out ...\nh"


# Descriptions in the prompt


def test_tools_are_described_in_each_prompt() -> None:
    (prompt,) = tokenize(
        [Example("q", "", "", "x")], TOKENIZER, tools=describe_tools(multi_turn({"name": "calculator"}))
    )
    assert '"name": "calculator"' in prompt.text
    assert prompt.text.endswith("<|user|>q<|eos|><|assistant|>")
    assert prompt.messages == [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "does not describe tools"),
        (
            "{{ tools }}{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}{% endif %}{% endfor %}",
            "does not render messages with the role tool",
        ),
    ],
)
def test_a_chat_template_without_tools_is_rejected(template: str, problem: str) -> None:
    tools = describe_tools(multi_turn({"name": "calculator"}))
    with pytest.raises(ValueError, match=rf"rollout.multiTurn.tools: the chat template {problem}.* set data.chatT"):
        tokenize([Example("q", "", "", "x")], TOKENIZER, tools=tools, chat_template=template)


# The tool python


def test_a_program_returns_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLT_SECRET", "s3cret")
    given = multi_turn({"name": "python"})
    program = "import os\nprint(6 * 7, 'RLT_SECRET' in os.environ)\nprint(1 / 0)"
    output = call(given, "python", code=program)
    assert output.startswith("42 False\n")
    assert "ZeroDivisionError: division by zero" in output
    assert "requires the text argument" in call(given, "python", program="1")


@pytest.mark.parametrize(
    ("program", "output"),
    [
        (
            "import time; print('begin', flush=True); time.sleep(3600)",
            "begin\nerror: the program did not end within 3 s",
        ),
        ("while True: print('x' * 10_000)", "error: the output is too long"),
        ("import os; os.kill(os.getpid(), 9)", "error: the program was ended by SIGKILL"),
        ("len(bytearray(2**31))", "MemoryError"),
        ("print(", "SyntaxError"),
    ],
)
def test_a_program_that_misbehaves_ends_alone(program: str, output: str) -> None:
    timeout = 3.0 if "sleep" in program else 60.0
    assert output in call(multi_turn({"name": "python"}, timeoutSeconds=timeout), "python", code=program)


def test_child_processes_of_a_program_are_killed() -> None:
    program = "import subprocess; print(subprocess.Popen(['sleep', '3600'], stdout=subprocess.DEVNULL).pid)"
    output = call(multi_turn({"name": "python"}, timeoutSeconds=60), "python", code=program)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and runs(int(output)):
        time.sleep(0.01)
    assert not runs(int(output))


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# User-defined functions


def test_a_function_is_described_and_called() -> None:
    given = multi_turn({"function": {"name": "tool_functions:look_up"}}, timeoutSeconds=3.0)
    (schema,) = describe_tools(given)
    assert schema["function"]["name"] == "look_up"
    assert schema["function"]["parameters"]["properties"]["word"] == {"type": "string", "description": "The word."}

    async def run(tools: dict[str, Tool]) -> list[str]:
        tool = tools["look_up"]
        good, *bad = [{"word": "a"}, {"word": "raise"}, {"wrong": 1}, {"word": "hang"}]
        return [await tool.call(good), *await asyncio.gather(*(tool.call(each) for each in bad))]

    good, *bad = use(given, run)
    assert good == '{"a": 3}'
    for message, expected in zip(bad, ("KeyError: 'no such word'", "TypeError", "did not end within 3 s"), strict=True):
        assert message.startswith("error: ")
        assert expected in message


def test_a_function_without_a_description_is_rejected() -> None:
    function = PythonFunction(name="tool_functions:undescribed")
    with pytest.raises(ValueError, match=r"tools\[0\].function: .* cannot be described .* Add type annotations"):
        describe_function(function, field="rollout.multiTurn.tools[0].function")


# MCP servers


@pytest.fixture(scope="module")
def http_server() -> Iterator[tuple[str, str]]:
    """The URL and the token of a real server."""
    with start_server(token := "t0ken") as (url, _):
        yield url, token


class start_server:
    """Starts a server over HTTP, and ends it."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __enter__(self, port: int = 0) -> tuple[str, subprocess.Popen[bytes]]:
        if not port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
        self._process = subprocess.Popen([sys.executable, SERVER, "http", str(port), self._token])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return f"http://127.0.0.1:{port}/mcp", self._process
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
    log, data = tmp_path / "starts", Data(preset="digits", max_response_length=2000)
    script = f'echo start >> {log}; exec "$@"'
    given = multi_turn({"mcp": {"command": ["sh", "-c", script, "sh", sys.executable, SERVER, "stdio"]}}, maxTurns=2)
    multiply, leave = write_call("multiply", a=6, b=7), write_call("leave")
    (prompt,) = tokenize([Example("q", "", "", "test")], TOKENIZER, tools=[{"function": {"name": "t"}}])

    async def run_batches() -> list[str | None]:
        conversations = Conversations(given, data, TOKENIZER)

        async def run(call: str) -> str | None:
            async with conversations.open() as converse:
                return (await converse(Turns(call, "42"), prompt, seed=1, sampling=SAMPLING)).failure

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
    first, second = start_server("t0ken"), start_server("t0ken")
    url, process = first.__enter__()

    async def run(tools: dict[str, Tool]) -> list[Any]:
        good = await tools["multiply"].call({"a": 2, "b": 3})
        process.kill()
        process.wait()
        (failed,) = await asyncio.gather(tools["multiply"].call({"a": 2, "b": 3}), return_exceptions=True)
        second.__enter__(port=int(url.rpartition(":")[2].partition("/")[0]))
        return [good, failed, await tools["multiply"].call({"a": 2, "b": 4})]

    good, failed, again = use(over_http(url), run)
    second.__exit__()
    assert isinstance(failed, SessionError)
    assert (good, again) == ("6", "8")


def test_a_failure_of_a_server_is_a_failure_of_the_conversation() -> None:
    episode, _ = talk(multi_turn(STDIO), write_call("leave"), "5")
    assert "MCP server" in str(episode.failure)
    assert episode.response.finish_reason == "abort"


def test_a_call_of_a_server_that_hangs_is_a_failure() -> None:
    with pytest.raises(SessionError, match=r"hang did not end within 0.5 s"):
        call(multi_turn(STDIO, timeoutSeconds=0.5), "hang")


def test_two_tools_of_one_name_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"tools\[1\]: the tool calculator exists twice. Remove one"):
        describe_tools(multi_turn({"name": "calculator"}, {"name": "calculator"}))
