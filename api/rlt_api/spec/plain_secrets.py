"""Plain-text secrets in the spec of a job or a runtime: where they are, and a warning for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any

from rlt_api.findings.finding import child_path
from rlt_api.findings.masking import MASK, MAX_DEPTH, find_in_text, find_options, is_secret, is_variable

MAX_WARNINGS = 5
"""Maximum number of warnings about secrets: the API server returns at most 4096 bytes of warnings."""


Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class PlainSecret:
    """A secret in a spec."""

    field: str
    """Path of the field."""
    name: str | None
    """The variable or option. None if the shape of the value shows that it is a secret."""
    value: str


def find_secrets(value: Any, path: str, depth: int = 0) -> Iterator[PlainSecret]:
    """Yield each plain-text secret in a part of a spec, as JSON, down to MAX_DEPTH: validation rejects deeper specs."""
    for keys, name, secret in _find(value, depth):
        yield PlainSecret(reduce(child_path, keys, path), name, secret)


def _find(value: Any, depth: int) -> Iterator[tuple[Keys, str | None, str]]:
    """Yield the keys that lead to each secret, its name and its value. Most specs have none, and need no path."""
    if depth == MAX_DEPTH:
        return
    if isinstance(value, dict):
        if is_variable(value) and is_secret(value["name"], value["value"]):
            yield ("value",), value["name"], value["value"]
            return
        for key, each in value.items():
            for keys, name, secret in _find(each, depth + 1):
                yield (str(key), *keys), name, secret
    elif isinstance(value, list):
        options = find_options(value)
        for index, each in enumerate(value):
            if index in options:
                yield (index,), options[index], each
            else:
                for keys, name, secret in _find(each, depth + 1):
                    yield (index, *keys), name, secret
    elif isinstance(value, str):
        yield from (((), None, secret) for secret in find_in_text(value))


def warn_plain_secrets(spec: Mapping[str, Any], path: str = "spec") -> Iterator[str]:
    """Yield one sentence for each plain-text secret, with its field first."""
    for found in islice(find_secrets(spec, path), MAX_WARNINGS):
        what = f"{found.name} has a plain-text value" if found.name else "contains a plain-text secret"
        yield (
            f"{found.field}: {MASK}: {what}, which everyone who can read the object can read; "
            "put it in a Secret and use secretKeyRef in spec.cluster.env"
        )
