"""python -m rlt_trainer.rewards scores lines, and names the one that is broken."""

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


def test_the_command_as_it_is_documented() -> None:
    command = [sys.executable, "-m", "rlt_trainer.rewards", "gsm8k"]
    done = subprocess.run(command, input=LINES, capture_output=True, text=True, check=True)
    assert done.stdout == '{"score": 1.0}\n{"score": 0.0}\n'


def test_rules_take_options(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, LINES, "gsm8k", "--options", '{"method": "flexible"}') == 0
    assert capsys.readouterr().out == '{"score": 1.0}\n{"score": 1.0}\n'


def test_a_failed_reward_is_said_to_have_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, '{"response": "x", "ground_truth": "y"}\n', "builtins:print") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["failed"] == "raised"
    assert "TypeError" in said["message"]


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
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
def test_what_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], words: str
) -> None:
    assert call(monkeypatch, text, *arguments) == 1
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ('{"score": 1.0}\n{"score": 0.0}\n' if words.startswith("line 3") else "")
