"""The knowledge base is valid, complete, and part of the wheel."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from rlt_api.rules.environment import PREFIXES, known_names
from rlt_api.schema.crd import build_job_crd
from rlt_core.knowledge.entries import Entry, check_entries, load_entries, parse_entry
from rlt_core.knowledge.page import TITLES, build_troubleshooting_pages
from rlt_core.knowledge.pattern import compile_pattern

ROOT = Path(__file__).parents[3]
FIELD = re.compile(r"\bspec(?:\.[a-z]\w*(?:\[\])?)+")
"""The path of a field. [] follows the name of a list whose items have the next field: spec.rewards[].judge."""
FIELD_VALUE = re.compile(rf"({FIELD.pattern}): (\w+)")
VARIABLE = re.compile(rf"\b(?:{'|'.join(PREFIXES)})_\w+")
OTHER_VARIABLES = {"VLLM_ASCEND_ENABLE_NZ", "VLLM_ATTENTION_BACKEND"}
"""Variables of the plugin vllm-ascend, and of vLLM before the version of known_environment.txt."""
ENTRY = {"code": "Full", "patterns": ["disk is full"], "message": "Full.", "remedy": "Clean.", "source": "https://a.b"}


def test_it_has_at_least_150_failures_with_patterns() -> None:
    assert sum(bool(entry.patterns) for entry in load_entries()) >= 150


def test_every_field_in_a_text_exists() -> None:
    named = {(entry.code, path) for entry in load_entries() for path in FIELD.findall(join_texts(entry))}
    assert len(named) > 100
    assert [each for each in sorted(named) if find_schema(each[1]) is None] == []


def test_every_value_for_a_field_is_one_of_its_values() -> None:
    given = {(entry.code, *found) for entry in load_entries() for found in FIELD_VALUE.findall(join_texts(entry))}
    assert len(given) > 10
    assert [each for each in sorted(given) if not accepts(find_schema(each[1]), each[2])] == []


def test_every_variable_in_a_text_is_spelled_as_its_library_does() -> None:
    named = {(entry.code, name) for entry in load_entries() for name in VARIABLE.findall(join_texts(entry))}
    assert len(named) > 20
    assert [each for each in sorted(named) if each[1] not in known_names() | OTHER_VARIABLES] == []


def join_texts(entry: Entry) -> str:
    return "\n".join((entry.message, entry.remedy, entry.observation))


def find_schema(path: str) -> Any:
    """The schema of a field in the CRD; None if the field does not exist."""
    node: Any = load_crd_schema()
    for part in path.split("."):
        name = part.removesuffix("[]")
        node = node.get("properties", {}).get(name)
        node = node.get("items") if node and name != part else node
        if node is None:
            return None
    return node


@cache
def load_crd_schema() -> Any:
    return build_job_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def accepts(schema: Any, value: str) -> bool:
    if schema["type"] == "boolean":
        return value in ("true", "false")
    return value in schema["enum"] if "enum" in schema else schema["type"] in ("string", "integer", "number")


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


def test_codes_are_unique() -> None:
    with pytest.raises(ValueError, match="codes of several entries: Full"):
        check_entries([parse_entry(ENTRY, "a", 1), parse_entry(ENTRY, "b", 1)])


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
    metadata = ProjectMetadata(str(ROOT), PluginManager())
    builder = WheelBuilder(str(ROOT), metadata=metadata)
    included = {file.distribution_path for file in builder.recurse_included_files()}
    data = {str(path.relative_to(ROOT / "core")) for path in (ROOT / "core/rlt_core/knowledge").rglob("*.toml")}
    assert len(data) > 15
    assert data <= included


def test_the_pages_have_every_entry_once() -> None:
    pages = build_troubleshooting_pages()
    index = pages.pop("index.md")
    topics = {name.removesuffix(".md"): re.findall("^## (.*)$", page, re.MULTILINE) for name, page in pages.items()}
    codes = {topic: [entry.code for entry in load_entries() if entry.topic == topic] for topic in TITLES}
    assert topics == codes
    links = re.findall(r"^- \[(\w+)\]\((\w+)\.md#(\w+)\): .", index, re.MULTILINE)
    assert links == [(code, topic, code.lower()) for topic in TITLES for code in codes[topic]]
    assert {entry.topic for entry in load_entries()} == TITLES.keys()
    assert not [name for name, page in pages.items() if "<<" in page]
