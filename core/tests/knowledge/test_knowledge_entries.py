"""The knowledge base is valid, complete, and part of the wheel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from rlt_api.crd import build_job_crd
from rlt_core.knowledge.entries import check_entries, load_entries, parse_entry
from rlt_core.knowledge.page import TITLES, build_troubleshooting_page
from rlt_core.knowledge.pattern import compile_pattern

CORE = Path(__file__).parents[2]
FIELD = re.compile(r"\bspec((?:\.[a-z][A-Za-z0-9]*)+)")
ENTRY = {"code": "Full", "patterns": ["disk is full"], "message": "Full.", "remedy": "Clean.", "source": "https://a.b"}


def test_it_has_at_least_150_failures_with_patterns() -> None:
    assert sum(bool(entry.patterns) for entry in load_entries()) >= 150


def test_every_field_that_a_remedy_names_exists() -> None:
    schema = build_job_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    named = {(entry.code, path) for entry in load_entries() for path in FIELD.findall(entry.remedy)}
    assert len(named) > 100
    missing = [(code, path) for code, path in sorted(named) if not has_field(schema, path[1:].split("."))]
    assert missing == []


def has_field(schema: Any, path: list[str]) -> bool:
    for name in path:
        schema = schema.get("items", schema)
        schema = schema.get("properties", {}).get(name)
        if schema is None:
            return False
    return True


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"remedy": " "}, "remedy is empty"),
        ({"source": ""}, "source is empty"),
        ({"source": "the manual"}, "not an https URL"),
        ({"patterns": []}, "neither patterns nor an observation"),
        ({"patterns": ["disk <<(>> full"]}, "is not valid"),
        ({"patterns": ["disk<<s?>>"]}, "contains no whole word"),
        ({"severity": "fatal"}, "severity fatal is not one of"),
        ({"cause": "x"}, "cause: not a field"),
    ],
)
def test_an_invalid_entry_is_rejected(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        parse_entry(ENTRY | change, "storage", 50)
    assert "storage.toml, entry Full" in str(caught.value)


def test_codes_are_unique_and_below_names_one() -> None:
    with pytest.raises(ValueError, match="codes of several entries: Full"):
        check_entries([parse_entry(ENTRY, "a", 1), parse_entry(ENTRY, "b", 1)])
    with pytest.raises(ValueError, match="entry Full: below: Missing: not a code"):
        check_entries([parse_entry(ENTRY | {"below": ["Missing"]}, "a", 1)])


@pytest.mark.parametrize(
    ("pattern", "line", "matches"),
    [
        ("rank … died", "rank 3 died", True),
        ("rank … died", "rank died", True),
        ("rank … died", "ranks 3 died", False),
        ("rank … died", "rank 3 diedx", False),
        ("port <<\\d+>> is used", "port  80\tis used", True),
        ("port <<\\d+>> is used", "port x is used", False),
    ],
)
def test_a_pattern_matches_text_with_gaps(pattern: str, line: str, matches: bool) -> None:
    assert bool(compile_pattern(pattern).regex.search(line)) is matches


def test_the_wheel_contains_the_entries() -> None:
    metadata = ProjectMetadata(str(CORE), PluginManager())
    builder = WheelBuilder(str(CORE), metadata=metadata)
    included = {file.distribution_path for file in builder.recurse_included_files()}
    data = {str(path.relative_to(CORE)) for path in (CORE / "rlt_core/knowledge").rglob("*.toml")}
    assert len(data) > 15
    assert data <= included


def test_the_page_has_every_entry_once() -> None:
    page = build_troubleshooting_page()
    assert {entry.topic for entry in load_entries()} == TITLES.keys()
    assert sorted(re.findall("^### (.*)$", page, re.MULTILINE)) == sorted(entry.code for entry in load_entries())
