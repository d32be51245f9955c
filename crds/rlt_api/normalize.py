"""What the API server makes of a manifest before it looks at it, done here as well: so that both judge the same.

- A field of the schema that is null is as if it were not given.
  https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting-and-nullable
- A whole number may be written as 8.0 or 8e0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from rlt_api.finding import Finding, child, shown
from rlt_api.schema import Schema

MAX_DEPTH = 100
"""Objects and lists within each other, below spec. (The API server reads 10,000, and other programs do not.)"""
EXACT = 2**53
"""Whole numbers below are exact as floats."""


def normalize(value: Any, node: Schema) -> Any:
    """A value as the API server has it; `node` is its schema, with all references resolved."""
    if isinstance(value, Mapping):
        fields, others = node.get("properties", {}), node.get("additionalProperties")
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
    if isinstance(value, float) and node.get("type") == "integer" and value.is_integer() and abs(value) < EXACT:
        return int(value)
    return value


def not_json(value: Any, path: str) -> Iterator[Finding]:
    """What not every program can carry on: depth, NUL, half surrogate pairs, numbers that JSON does not have."""
    waiting: list[tuple[Any, str, int]] = [(value, path, 0)]
    while waiting:
        value, path, depth = waiting.pop()
        if isinstance(value, Mapping | list):
            if depth == MAX_DEPTH:
                yield Finding(path[:300], "…", f"is nested deeper than {MAX_DEPTH} levels", "flatten it", "json")
                return
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            for key, each in pairs:
                if isinstance(value, Mapping):
                    yield from _text(key, child(path, str(key)), "its name")
                waiting.append((each, child(path, key if isinstance(key, int) else str(key)), depth + 1))
        elif isinstance(value, float):
            if not isfinite(value):
                yield Finding(path, str(value), "is no number of JSON", "give a finite number", "json")
        elif value is not None and not isinstance(value, bool | int):
            yield from _text(value, path, "it")


def _text(value: object, path: str, what: str) -> Iterator[Finding]:
    if not isinstance(value, str):
        message = "is neither text nor a number, true, false, null, a list or an object"
        yield Finding(path, shown(str(value)), message, "write it in quotes", "json")
    elif "\0" in value:
        message, fix = f"{what} holds a NUL character: no file, argument or variable can", "take it out"
        yield Finding(path, shown(value), message, fix, "json")
    elif not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
        yield Finding(path, shown(value), f"{what} holds half of a surrogate pair", "take it out", "json")
