"""YAML parsed as kubectl parses it: differences from PyYAML, lines of fields, and invalid files."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from rlt.manifest_files import Document, parse_documents
from rlt.yaml_text import to_yaml


def read(text: str | bytes) -> list[Document]:
    return list(parse_documents("job.yaml", text.encode() if isinstance(text, str) else text))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-6", 1e-6),
        ("1_000", 1000),
        ("010", 8),
        ("0x1F", 31),
        ("08", 8.0),
        ("99999999999999999999999", 1e23),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("y", True),
        ("Off", False),
        ("~", None),
        (".5", 0.5),
        ("1e999", "1e999"),
        ("'8'", "8"),
        ("!!str 8", "8"),
    ],
)
def test_scalars_are_converted_as_in_kubectl(written: str, value: object) -> None:
    (document,) = read(f"a: {written}")
    assert document.manifest == {"a": value}
    assert type(document.manifest["a"]) is type(value)


def test_every_field_has_a_line() -> None:
    (_, document) = read("a: 1\n---\nspec:\n  workers:\n  - name: x\n    replicas: 2\n  data: {preset: y}\n")
    assert document.line == 3
    assert document.lines["spec.workers[0].replicas"] == 6
    assert document.line_of("spec.workers[0].accelerator.count") == 5
    assert document.line_of("spec.data.path") == 7
    assert document.line_of("metadata") == 3


def test_merge_keys_and_aliases_are_expanded() -> None:
    (document,) = read("x: &pool {cpu: 1, memory: 2}\ny: {<<: *pool, cpu: 4}\nz: [*pool]")
    assert document.manifest["y"] == {"memory": 2, "cpu": 4}
    assert document.manifest["z"] == [{"cpu": 1, "memory": 2}]


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("rollout:\n  n: 8", "rollout.n", "is false in YAML, not a string"),
        ("on: 8", "on", "is true in YAML, not a string"),
        ("nodeSelector: {1.10: a}", "nodeSelector.1.10", "is 1.1 in YAML, not a string"),
        ("~: 8", "~", "is null in YAML, not a string"),
        ("a: 1\nb: 2\na: 3", "a", "is set twice; first on line 1"),
    ],
)
def test_keys_that_are_not_strings_are_findings(text: str, field: str, message: str) -> None:
    (document,) = read(text)
    assert [(finding.field, finding.message) for finding in document.findings] == [(field, message)]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: [1\nb: 2", "line 2, column 2", "did not find expected ',' or ']'"),
        ("a: *nothing", "line 1, column 4", "undefined alias"),
        ("a: \x00", "byte 3", "does not allow"),
        (b"a: \xff\xfe", "byte 3", "not UTF-8"),
        ("[" * 100_000, "after line 1", "nested deeper than 100 levels"),
        ("a: &a [*a]", "after line 1", "contains itself"),
        ("- 1", "line 1", "not an object"),
    ],
)
def test_an_invalid_document_is_a_finding_with_its_place(text: str | bytes, place: str, message: str) -> None:
    (document,) = read(text)
    (finding,) = document.findings
    assert document.manifest == {}
    assert finding.field == place
    assert message in finding.message


def test_aliases_that_expand_exponentially_are_rejected() -> None:
    letters = "abcdefgh"
    lists: list[Any] = [f"a: &a [{','.join('1' * 10)}]"]
    lists += [f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]" for a, b in pairwise(letters)]
    (document,) = read("\n".join(lists))
    assert "expands to more than" in document.findings[0].message


@pytest.mark.parametrize(
    "text", ["1e-6", "y", "No", "0x1F", "1_000", "1.10", "~", "", "010", "a: b", "x\ny", "$A", "null"]
)
def test_printed_strings_are_strings_for_kubectl(text: str) -> None:
    (document,) = parse_documents("f", to_yaml({"a": [text], "n": 1e-6}).encode())
    assert document.manifest == {"a": [text], "n": 1e-6}
