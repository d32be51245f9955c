"""The page of what is not supported yet names each mark in the types, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import pytest

from rlt_api import schema
from rlt_api.crd import structural_schema
from rlt_api.model import NOT_YET, ApiModel, NotYet
from rlt_api.schema import not_yet
from rlt_api.spec import RLTrainingJobSpec

PAGE = Path(__file__).parents[2] / "docs/reference/not-supported-yet.md"


class Marked(ApiModel):
    """A block with fields and values that have no reader."""

    whole: Annotated[bool, NOT_YET] = False
    """Nothing but the default."""
    partly: Annotated[Literal["a", "b"], NotYet("b")] = "a"
    """Not this value."""


def test_what_is_marked_is_refused_by_rules_and_crd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "schema_of", schema.make_schema)  # it has no generated file
    given = {"whole": True, "partly": "b"}
    assert [finding.field for finding in schema.unsupported(given, Marked, "spec")] == ["spec.whole", "spec.partly"]
    assert list(schema.unsupported({"whole": False, "partly": "a"}, Marked, "spec")) == []
    fields = structural_schema(Marked)["properties"]
    rules = {name: field["x-kubernetes-validations"][0]["rule"] for name, field in fields.items()}
    assert rules == {"whole": "self == false", "partly": '!(self in ["b"])'}


def test_the_committed_page_has_the_marks_of_the_types() -> None:
    rows = re.findall(r"^\| `(spec\.[^`]+)` \| (.*?) \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    marks = not_yet(RLTrainingJobSpec)
    assert [path for path, _ in rows] == list(marks)
    for path, refused in rows:
        values = re.findall(r"`([^`]+)`", refused)
        assert values == marks[path] or refused.startswith("everything"), path
