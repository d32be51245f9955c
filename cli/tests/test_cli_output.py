"""-o: every command answers as a table, JSON or YAML.

- the offline ones are run in each form;
- streams are a JSON object a line, or YAML documents.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from rlt_cli.log_lines import PROGRAM, LogLines, last_lines
from rlt_cli.main import COMMANDS, cli
from rlt_cli.output import FORMATS, emit_next

EXAMPLE = str(Path(__file__).parents[2] / "examples/01-arithmetic-grpo.yaml")
OFFLINE = [
    ("init",),
    ("validate", EXAMPLE),
    ("render", EXAMPLE),
    ("explain", "topP"),
    ("explain", "--json-schema", "rltrainingjob"),
    ("version",),
    ("completion", "bash"),
    ("completion", "kubectl"),
]


def rlt(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_three_forms(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command
    (option,) = [each for each in command.params if "-o" in each.opts]
    assert isinstance(option.type, click.Choice)
    assert set(FORMATS) <= set(option.type.choices)


@pytest.mark.parametrize("arguments", OFFLINE, ids=" ".join)
def test_json_and_yaml_are_the_same_data(arguments: tuple[str, ...]) -> None:
    told, written = rlt(*arguments, "-o", "json"), rlt(*arguments, "-o", "yaml")
    assert (told.exit_code, written.exit_code) == (0, 0), told.stderr
    data, documents = json.loads(told.stdout), list(yaml.safe_load_all(written.stdout))
    assert documents == (data["items"] if isinstance(data, dict) and data.get("kind") == "List" else [data])


def test_a_manifest_as_a_table_is_its_kind_and_name() -> None:
    assert rlt("init", "-o", "table").stdout.split() == [
        "KIND",
        "NAMESPACE",
        "NAME",
        "RLTrainingJob",
        "arithmetic-grpo",
    ]
    lines = rlt("render", EXAMPLE, "-o", "table").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["ConfigMap", "default"], ["RayCluster", "default"]]


def test_a_completion_script_is_the_same_as_data() -> None:
    assert json.loads(rlt("completion", "zsh", "-o", "json").stdout)["script"] == rlt("completion", "zsh").stdout


def test_a_stream_is_a_line_or_a_document_each(capsys: pytest.CaptureFixture[str]) -> None:
    data = [{"a": 1, "b": "x\ny"}, {"a": 2}]
    for each in data:
        emit_next(each, "json")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == data
    for each in data:
        emit_next(each, "yaml")
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == data


def test_lines_of_a_log_may_come_in_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LogLines(PROGRAM, "json")
    for piece in ("one\ntw", "o\n\n", "fo", "ur"):
        lines.write(piece)
    lines.end()
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said == [{"source": "program", "line": words} for words in ("one", "two", "", "four")]


def test_a_log_for_people_is_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LogLines(PROGRAM, "table")
    lines.write("10%\r20%")
    assert capsys.readouterr().out == "10%\r20%"
    lines.end()
    assert capsys.readouterr().out == ""


def test_the_time_of_a_line_stands_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    LogLines({"pod": "p"}, "json", timed=True).write("2026-01-02T03:04:05.6Z step:1 - a:1\n")
    said = json.loads(capsys.readouterr().out)
    assert said == {"pod": "p", "time": "2026-01-02T03:04:05.6Z", "line": "step:1 - a:1"}


def test_colours_are_no_data(capsys: pytest.CaptureFixture[str]) -> None:
    LogLines(PROGRAM, "json").write("\x1b[36m(TaskRunner pid=7)\x1b[0m step:1\n")
    assert json.loads(capsys.readouterr().out)["line"] == "(TaskRunner pid=7) step:1"


@pytest.mark.parametrize(
    ("count", "kept"), [(None, "a\nb\nc\n"), (0, ""), (1, "c\n"), (2, "b\nc\n"), (3, "a\nb\nc\n"), (9, "a\nb\nc\n")]
)
def test_the_last_lines(count: int | None, kept: str) -> None:
    assert last_lines("a\nb\nc\n", count) == kept
    assert last_lines("a\nb\nc", count) == kept.removesuffix("\n")
