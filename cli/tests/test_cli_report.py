"""rlt report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlt_cli.main import cli


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/config.json").write_text('{"job": "sum", "training": {"totalSteps": 2}}')
    (tmp_path / "out/metrics.jsonl").write_text('{"step": 1, "critic/rewards/mean": 0.5}\n{"step": 2, "cri')
    return "out"


def rlt(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["report", *arguments])


def test_the_file_is_named_after_the_directory(run: str) -> None:
    """Two run directories of one job have different files."""
    shutil.copytree(run, "other")
    assert rlt("other").stdout == "other-report.html\n"
    done = rlt(run)
    assert (done.exit_code, done.stdout) == (0, "out-report.html\n")
    assert Path("out-report.html").read_text().startswith("<!doctype html>\n<html")
    assert "note: sum: The last line of metrics.jsonl is incomplete" in done.stderr


def test_json_names_the_file_and_what_is_missing(run: str) -> None:
    found = json.loads(rlt(run, "--file", "a.html", "-o", "json").stdout)
    assert found["file"] == "a.html"
    assert len(found["notes"]) == 2


def test_markdown_goes_to_standard_output(run: str) -> None:
    done = rlt(run, "--markdown")
    assert done.stdout.startswith("## sum\n\n**Incomplete**: 1 of 2 steps are recorded.\n")
    assert [file.name for file in Path().iterdir()] == ["out"]


def test_a_file_that_cannot_be_written_is_an_error(run: str) -> None:
    done = rlt(run, "--file", "/nonexistent/a.html")
    assert done.exit_code == 1
    assert "error: Cannot write /nonexistent/a.html: No such file or directory." in done.stderr


def test_a_rollout_shows_why_its_reward_failed(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    lost = {"reward": None, "prompt": "p", "response": "", "failure": "environment: sandbox pod a was lost"}
    lines = (lost, {"reward": 1.0, "prompt": "p", "response": "r"})
    (tmp_path / "rollouts/step-1.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = CliRunner().invoke(cli, ["rollouts", str(tmp_path)])
    assert [line for line in done.stdout.splitlines() if "failure" in line] == ["  failure   " + str(lost["failure"])]


def test_a_rollout_shows_its_side_requests(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    side = {"text": "a title\n", "learned": False, "side": True}
    line = {"reward": 1.0, "prompt": "p", "response": "r", "segments": [side, {"text": "r", "learned": True}]}
    (tmp_path / "rollouts/step-1.jsonl").write_text(json.dumps(line) + "\n")
    shown = CliRunner().invoke(cli, ["rollouts", str(tmp_path)]).stdout.splitlines()
    assert shown[1:] == ["  prompt    'p'", "  side      'a title\\n'", "  response  'r'"]


def test_a_rollout_shows_its_sandbox(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    test = {"command": "python3 -m pytest", "exit_code": 1, "output": "collected 1\n\x1b[31m1 failed\n"}
    late = {"command": "claude -p", "problem": "the program did not end within 600 s", "output": ""}
    files = [{"path": "answer.txt", "size": 2}]
    first = {"pod": "a-sandboxes-x", "programs": [late, test], "num_programs": 2, "files": files}
    lost = {"pod": "a-sandboxes-y", "programs": [], "num_programs": 0, "end": "sandbox pod a-sandboxes-y was lost"}
    records = [{"sandbox": first}, {"sandbox": lost}, {}, {"sandbox": {"programs": 3, "files": [1]}}]
    lines = ({"reward": 1.0, "prompt": "p", "response": "r", **each} for each in records)
    (tmp_path / "rollouts/step-1.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert "sandbox" not in CliRunner().invoke(cli, ["rollouts", str(tmp_path)]).stdout
    shown = CliRunner().invoke(cli, ["rollouts", str(tmp_path), "--sandbox"]).stdout.splitlines()
    assert [line for line in shown if not line.startswith(("reward", "  prompt", "  response"))] == [
        "  sandbox   pod a-sandboxes-x, 2 of 2 programs:",
        "    'claude -p': the program did not end within 600 s",
        "    'python3 -m pytest': exit code 1",
        "      'collected 1'",
        "      '\\x1b[31m1 failed'",
        "    file 'answer.txt', 2 bytes",
        "  sandbox   pod a-sandboxes-y, 0 of 0 programs:",
        "    end: sandbox pod a-sandboxes-y was lost",
        "  sandbox   none recorded",
        "  sandbox   pod None, 0 of None programs:",
    ]


@pytest.mark.parametrize("command", ["metrics", "rollouts", "report", "compare", "ui"])
def test_a_path_without_a_directory_is_an_error_without_a_cluster(tmp_path: Path, command: str) -> None:
    missing = f"{tmp_path}/none/run"
    done = CliRunner().invoke(cli, [command, missing, *([missing] if command == "compare" else [])])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"error: {missing} is not a directory.\nnext: ls {tmp_path}/none\n"


def test_a_directory_of_other_content_is_an_error(tmp_path: Path) -> None:
    done = rlt(str(tmp_path))
    assert done.exit_code == 1
    assert "is not a run directory" in done.stderr
