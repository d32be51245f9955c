"""Plain-text secrets in the spec of a job or a runtime: where they are, and a warning for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rlt_api.finding import child_path
from rlt_api.masking import MASK, MAX_DEPTH, find_in_text, find_options, is_secret, is_variable

MAX_WARNINGS = 5
"""Maximum number of warnings about secrets: the API server returns at most 4096 bytes of warnings."""


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
    if depth == MAX_DEPTH:
        return
    if isinstance(value, Mapping):
        if is_variable(value) and is_secret(value["name"], value["value"]):
            yield PlainSecret(f"{path}.value", value["name"], value["value"])
            return
        for key, each in value.items():
            yield from find_secrets(each, child_path(path, str(key)), depth + 1)
    elif isinstance(value, list):
        options = find_options(value)
        for index, each in enumerate(value):
            if index in options:
                yield PlainSecret(child_path(path, index), options[index], each)
            else:
                yield from find_secrets(each, child_path(path, index), depth + 1)
    elif isinstance(value, str):
        yield from (PlainSecret(path, None, secret) for secret in find_in_text(value))


def warn_plain_secrets(spec: Mapping[str, Any], path: str = "spec") -> Iterator[str]:
    """Yield one sentence for each plain-text secret, with its field first."""
    for found in islice(find_secrets(spec, path), MAX_WARNINGS):
        what = f"{found.name} has a plain-text value" if found.name else "contains a plain-text secret"
        yield (
            f"{found.field}: {MASK}: {what}, which everyone who can read the object can read; "
            "put it in a Secret and use secretKeyRef in spec.cluster.env"
        )
