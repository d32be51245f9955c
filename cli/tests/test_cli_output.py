"""-o: every command has the output formats table, JSON and YAML.

- the offline commands are run in each format;
- streams are one JSON object per line, or YAML documents.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from rlt.program_log import take_last_lines
from rlt_cli.log_lines import PROGRAM, LogLines
from rlt_cli.main import COMMANDS, cli
from rlt_cli.output import FORMATS, emit_item

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


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("help", "dashboard", "ui", "exec")])
def test_every_command_has_the_three_formats(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command
    (option,) = [each for each in command.params if "-o" in each.opts]
    assert isinstance(option.type, click.Choice)
    assert set(FORMATS) <= set(option.type.choices)


@pytest.mark.parametrize("arguments", OFFLINE, ids=" ".join)
def test_json_and_yaml_are_the_same_data(arguments: tuple[str, ...]) -> None:
    as_json = rlt(*arguments, "-o", "json")
    as_yaml = rlt(*arguments, "-o", "yaml")
    assert (as_json.exit_code, as_yaml.exit_code) == (0, 0), as_json.stderr
    data = json.loads(as_json.stdout)
    documents = list(yaml.safe_load_all(as_yaml.stdout))
    assert documents == (data["items"] if isinstance(data, dict) and data.get("kind") == "List" else [data])


def test_the_table_of_a_manifest_is_its_kind_and_name() -> None:
    assert rlt("init", "-o", "table").stdout.split() == [
        "KIND",
        "NAMESPACE",
        "NAME",
        "RLTrainingJob",
        "arithmetic-grpo",
    ]
    lines = rlt("render", EXAMPLE, "-o", "table").stdout.splitlines()
    kinds = ("ConfigMap", "PodDisruptionBudget", "Secret", "NetworkPolicy", "RayCluster")
    assert [line.split()[:2] for line in lines[1:]] == [[kind, "default"] for kind in kinds]


def test_a_completion_script_is_the_same_in_json() -> None:
    assert json.loads(rlt("completion", "zsh", "-o", "json").stdout)["script"] == rlt("completion", "zsh").stdout


def test_a_stream_is_one_line_or_document_per_item(capsys: pytest.CaptureFixture[str]) -> None:
    data = [{"a": 1, "b": "x\ny"}, {"a": 2}]
    for each in data:
        emit_item(each, "json")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == data
    for each in data:
        emit_item(each, "yaml")
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == data


def test_lines_of_a_log_can_arrive_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LogLines(PROGRAM, "json")
    for part in ("one\ntw", "o\n\n", "fo", "ur"):
        lines.write(part)
    lines.end()
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [{"source": "program", "line": line} for line in ("one", "two", "", "four")]


def test_a_log_as_text_is_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LogLines(PROGRAM, "table")
    lines.write("10%\r20%")
    assert capsys.readouterr().out == "10%\r20%"
    lines.end()
    assert capsys.readouterr().out == ""


def test_the_time_of_a_line_is_a_separate_key(capsys: pytest.CaptureFixture[str]) -> None:
    LogLines({"pod": "p"}, "json", timed=True).write("2026-01-02T03:04:05.6Z step:1 - a:1\n")
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"pod": "p", "time": "2026-01-02T03:04:05.6Z", "line": "step:1 - a:1"}


def test_color_codes_are_removed_from_data(capsys: pytest.CaptureFixture[str]) -> None:
    LogLines(PROGRAM, "json").write("\x1b[36m(TaskRunner pid=7)\x1b[0m step:1\n")
    assert json.loads(capsys.readouterr().out)["line"] == "(TaskRunner pid=7) step:1"


@pytest.mark.parametrize(
    ("count", "kept"), [(None, "a\nb\nc\n"), (0, ""), (1, "c\n"), (2, "b\nc\n"), (3, "a\nb\nc\n"), (9, "a\nb\nc\n")]
)
def test_last_lines(count: int | None, kept: str) -> None:
    assert take_last_lines("a\nb\nc\n", count) == kept
    assert take_last_lines("a\nb\nc", count) == kept.removesuffix("\n")


def test_a_template_of_kubectl_is_rejected_with_the_kubectl_command() -> None:
    result = rlt("get", "-o", "jsonpath={.items[*].status.phase}")
    assert result.exit_code == 2
    assert "kubectl get rltrainingjobs -o 'jsonpath={.items[*].status.phase}'" in " ".join(result.output.split())
