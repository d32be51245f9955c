"""The page of fields and values that have their place and are refused, because nothing honours them yet."""

from __future__ import annotations

import json

from rlt_api.mapping import field
from rlt_api.schema import not_yet
from rlt_api.spec import RLTrainingJobSpec

INTRODUCTION = """\
These fields of an RLTrainingJob have their place and no reader yet. Giving one is refused with "not supported yet",
by the API server, the webhook and `rlt validate` alike; its default may be given. See
[ADR 5](../adr/0005-not-supported-yet.md)."""
NOTHING = """\
Nothing: every field of an RLTrainingJob is honoured. One that gets its place before its reader is refused with "not
supported yet", and listed here. See [ADR 5](../adr/0005-not-supported-yet.md)."""


def not_supported_yet() -> str:
    """The page docs/reference/not-supported-yet.md: one row for each mark in the types."""
    rows = [_row(path, values) for path, values in not_yet(RLTrainingJobSpec).items()]
    table = ["", "| field | what is refused | what it is |", "|---|---|---|", *rows] if rows else []
    lines = [
        "<!-- Generated from crds/rlt_api by `make generate`. Do not edit. -->",
        "# Not supported yet",
        "",
        INTRODUCTION if rows else NOTHING,
        *table,
    ]
    return "\n".join(lines) + "\n"


def _row(path: str, values: list[str]) -> str:
    schema = field(path)
    assert schema is not None, path
    default = schema.get("default")
    refused = ", ".join(f"`{value}`" for value in values) or (
        "everything" if default in (None, [], {}) else f"everything but `{json.dumps(default)}`"
    )
    description = " ".join(schema.get("description", "").split()).replace("|", "\\|")
    return f"| `{path}` | {refused} | {description} |"
