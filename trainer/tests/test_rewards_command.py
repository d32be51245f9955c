"""python -m rlt_trainer.rewards scores lines and reports the number of an invalid line."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from rlt_trainer.rewards.__main__ import main

LINES = '{"response": "#### 7", "ground_truth": "7"}\n{"response": "7", "ground_truth": "7"}\n'


def call(monkeypatch: pytest.MonkeyPatch, text: str, *arguments: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    return main(arguments)


def test_the_documented_command_runs() -> None:
    command = [sys.executable, "-m", "rlt_trainer.rewards", "gsm8k"]
    done = subprocess.run(command, input=LINES, capture_output=True, text=True, check=True)
    assert done.stdout == '{"score": 1.0}\n{"score": 0.0}\n'


def test_options_reach_the_rule(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, LINES, "gsm8k", "--options", '{"method": "flexible"}') == 0
    assert capsys.readouterr().out == '{"score": 1.0}\n{"score": 1.0}\n'


def test_a_failed_reward_is_printed_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, '{"response": "x", "ground_truth": "y"}\n', "builtins:print") == 0
    line = json.loads(capsys.readouterr().out)
    assert line["failed"] == "raised"
    assert "TypeError" in line["message"]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (LINES + "{", ["gsm8k"], "line 3 is not JSON"),
        (LINES + '{"response": "7"}', ["gsm8k"], 'line 3 has no text "ground_truth"'),
        (LINES + "[]", ["gsm8k"], 'line 3 has no text "response"'),
        (LINES, ["gsm"], 'did you mean "gsm8k"'),
        (LINES, ["gsm8k", "--options", "{"], "--options is not JSON"),
        (LINES, ["gsm8k", "--options", '{"x": 1}'], "options.x of rule gsm8k"),
        (LINES, ["no module:f"], "no module:f"),
    ],
)
def test_invalid_input_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], message: str
) -> None:
    assert call(monkeypatch, text, *arguments) == 1
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ('{"score": 1.0}\n{"score": 0.0}\n' if message.startswith("line 3") else "")
