"""The record of a sandbox, beside hostile programs: bounded, and of the expected types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlt_trainer.sandboxes.record import (
    MAX_COMMAND,
    MAX_FILES,
    MAX_OUTPUT,
    MAX_PATH,
    MAX_PROGRAMS,
    ProgramLog,
    read_files,
)

MAX_BYTES = 64 * 2**10


def test_the_latest_programs_are_kept_with_the_ends_of_their_outputs() -> None:
    log = ProgramLog()
    for number in range(MAX_PROGRAMS + 3):
        end = (None, "late") if number % 2 else (0, "")
        log.add(["run", str(number), "x" * MAX_COMMAND], f"{'y' * MAX_OUTPUT}{number}", *end)
    found = log.describe()
    assert found["num_programs"] == MAX_PROGRAMS + 3
    assert [each["command"].split()[1] for each in found["programs"]] == [str(each + 3) for each in range(MAX_PROGRAMS)]
    assert found["programs"][0] | {"command": "", "output": ""} == {"command": "", "problem": "late", "output": ""}
    assert found["programs"][1] | {"command": "", "output": ""} == {"command": "", "exit_code": 0, "output": ""}
    assert all(len(each["command"]) == MAX_COMMAND and len(each["output"]) == MAX_OUTPUT for each in found["programs"])
    assert found["programs"][-1]["output"].endswith(str(MAX_PROGRAMS + 2))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([{"path": "a", "size": 3, "more": "x" * MAX_BYTES}], [{"path": "a", "size": 3}]),
        ([{"path": "a" * (MAX_PATH + 1), "size": 3}, {"path": "b", "size": 3}], [{"path": "b", "size": 3}]),
        ([{"path": "a", "size": "3"}, {"path": 1, "size": 3}, {"path": "a"}, "a", None], []),
        ({"path": "a", "size": 3}, []),
        (None, []),
        ("a", []),
    ],
)
def test_files_have_paths_and_sizes(files: Any, expected: list[dict[str, Any]]) -> None:
    assert read_files({"files": files}) == expected
    assert read_files({}) == []


def test_a_record_is_bounded() -> None:
    log = ProgramLog()
    for _ in range(1000):
        log.add(["x" * 10_000] * 100, "y" * 2**20, None, "the output is too long")
    files = read_files({"files": [{"path": "z" * MAX_PATH, "size": 1}] * 10_000})
    assert len(files) == MAX_FILES
    assert len(json.dumps({**log.describe(), "files": files})) < MAX_BYTES
