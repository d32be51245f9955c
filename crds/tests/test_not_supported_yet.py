"""The page of what is not supported yet names each mark in the types, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from rlt_api.schema import not_yet
from rlt_api.spec import RLTrainingJobSpec

PAGE = Path(__file__).parents[2] / "docs/reference/not-supported-yet.md"


def test_the_committed_page_has_the_marks_of_the_types() -> None:
    rows = re.findall(r"^\| `(spec\.[^`]+)` \| (.*?) \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    marks = not_yet(RLTrainingJobSpec)
    assert [path for path, _ in rows] == list(marks)
    for path, refused in rows:
        values = re.findall(r"`([^`]+)`", refused)
        assert values == marks[path] or refused.startswith("everything"), path
