"""Normalization of a manifest as the API server does it before validation, so that both accept the same manifests.

- A null value of a known field counts as not given.
  https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting-and-nullable
- An integer may be written as 8.0 or 8e0.
- An integer in a field that takes integers and strings, such as a quantity, becomes a string.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from rlt_api.findings.finding import Finding, child_path, printable
from rlt_api.model import INT_OR_STRING, integer_to_text
from rlt_api.schema.model_schema import Schema

MAX_DEPTH = 100
"""Maximum nesting of objects and lists below spec. (The API server reads 10,000 levels; other programs do not.)"""
MAX_EXACT_INTEGER = 2**53
"""Integers below this are exact as floats."""


def normalize(value: Any, node: Schema) -> Any:
    """Return the value as the API server stores it; `node` is its schema with all references resolved."""
    if isinstance(value, Mapping):
        fields = node.get("properties", {})
        others = node.get("additionalProperties")
        every = others if isinstance(others, dict) and others else None
        if not fields and every is None:
            return value
        known = {key: fields.get(key, every) for key in value}
        return {
            key: normalize(each, known[key] or {})
            for key, each in value.items()
            if each is not None or known[key] is None
        }
    if isinstance(value, list) and "items" in node:
        return [normalize(each, node["items"]) for each in value]
    if (
        isinstance(value, float)
        and (node.get("type") == "integer" or INT_OR_STRING in node)
        and value.is_integer()
        and abs(value) < MAX_EXACT_INTEGER
    ):
        value = int(value)
    return integer_to_text(value) if INT_OR_STRING in node else value


def find_non_json(value: Any, path: str) -> Iterator[Finding]:
    """Find values that not every JSON program can process: nesting, NUL, lone surrogates, NaN and infinity."""
    waiting: list[tuple[Any, str, int]] = [(value, path, 0)]
    while waiting:
        value, path, depth = waiting.pop()
        if isinstance(value, Mapping | list):
            if depth == MAX_DEPTH:
                yield Finding(path[:300], "…", f"is nested deeper than {MAX_DEPTH} levels", "flatten it", rule="json")
                return
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            for key, each in pairs:
                if isinstance(value, Mapping):
                    yield from _find_invalid_text(key, child_path(path, str(key)), "its name")
                waiting.append((each, child_path(path, key if isinstance(key, int) else str(key)), depth + 1))
        elif isinstance(value, float):
            if not isfinite(value):
                yield Finding(path, str(value), "is not a JSON number", "use a finite number", rule="json")
        elif value is not None and not isinstance(value, bool | int):
            yield from _find_invalid_text(value, path, "the value")


def _find_invalid_text(value: object, path: str, what: str) -> Iterator[Finding]:
    if not isinstance(value, str):
        message = "is not a JSON value: text, number, true, false, null, list or object"
        yield Finding(path, printable(str(value)), message, "write it in quotes", rule="json")
    elif "\0" in value:
        message = f"{what} contains a NUL character, which files, arguments and variables cannot hold"
        yield Finding(path, printable(value), message, "remove it", rule="json")
    elif not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
        yield Finding(path, printable(value), f"{what} contains half of a surrogate pair", "remove it", rule="json")
