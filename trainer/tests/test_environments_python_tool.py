"""The tool python, and tools that are functions of the user."""

from __future__ import annotations

import asyncio
import os

import pytest
from process_end import await_end
from tool_conversations import (
    HERE,
    call,
    multi_turn,
    use,
)

from rlt_api.blocks.functions import PythonFunction
from rlt_trainer.environments.function_tool import describe_function
from rlt_trainer.environments.tool import Tool
from rlt_trainer.environments.toolbox import describe_tools


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of tools can import tool_functions."""
    modules = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(modules))


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
        ("import os; os.kill(os.getpid(), 40)", "error: the program was ended by signal 40"),
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
    await_end(int(output))


def test_a_function_is_described_and_called() -> None:
    given = multi_turn({"function": {"name": "tool_functions:look_up"}}, timeoutSeconds=3.0)
    (schema,) = describe_tools(given)
    assert schema["function"]["name"] == "look_up"
    assert schema["function"]["parameters"]["properties"]["word"] == {"type": "string", "description": "The word."}

    async def run(tools: dict[str, Tool]) -> list[str]:
        tool = tools["look_up"]
        good = await tool.call({"word": "a"})
        bad: list[dict[str, object]] = [{"word": "raise"}, {"wrong": 1}, {"word": "hang"}]
        return [good, *await asyncio.gather(*(tool.call(arguments) for arguments in bad))]

    good, *bad = use(given, run)
    assert good == '{"a": 3}'
    for message, expected in zip(bad, ("KeyError: 'no such word'", "TypeError", "did not end within 3 s"), strict=True):
        assert message.startswith("error: ")
        assert expected in message


def test_a_function_without_a_description_is_rejected() -> None:
    function = PythonFunction(name="tool_functions:undescribed")
    with pytest.raises(ValueError, match=r"tools\[0\].function: .* cannot be described .* Add type annotations"):
        describe_function(function, field="rollout.multiTurn.tools[0].function")
