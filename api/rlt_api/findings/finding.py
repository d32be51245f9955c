"""A validation error of a manifest, with its fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any

from pydantic import JsonValue

from rlt_api.findings.masking import MAX_SEARCHED, mask_text

MAX_LENGTH = 100
"""Maximum number of characters in a value or key that a finding repeats."""


Edit = Mapping[str, JsonValue]
"""A change of a manifest: path of a field -> its new value. None removes the field."""


@dataclass(frozen=True)
class Finding:
    """One error in a manifest. The first four fields are the text of the finding, in its order."""

    field: str
    """Path of the field, such as spec.training.trainBatchSize."""
    value: str
    """Its value; "none" if it is not given."""
    message: str
    """What is wrong with the value."""
    fix: str
    """What to do."""
    _: KW_ONLY
    rule: str = "schema"
    """Name of the rule, such as batch-divisibility; schema for types, bounds and unknown fields."""
    involved: tuple[str, ...] = ()
    """Paths of the other fields that the rule reads. Without the job's runtime, a finding counts only if the job itself
    gives all of them. For a misspelled field, the field that is meant."""
    edits: tuple[Edit, ...] = ()
    """The alternatives in `fix`, each of which resolves the finding. Empty if the fix needs a decision of the user."""

    def __str__(self) -> str:
        return f"{self.field}: {self.value}: {self.message}; {self.fix}"

    def to_json(self) -> dict[str, Any]:
        """Return all fields but `involved`."""
        return {key: value for key, value in asdict(self).items() if key != "involved"}


def use(field: str, *values: JsonValue) -> tuple[Edit, ...]:
    """Build the edits that give the field one of these values."""
    return tuple({field: value} for value in values)


def remove(*fields: str) -> tuple[Edit, ...]:
    """Build the edits that each remove one of these fields."""
    return tuple({field: None} for field in fields)


def keep_one(*fields: str) -> tuple[Edit, ...]:
    """Build the edits that each keep one of these fields and remove the others."""
    return tuple({other: None for other in fields if other != field} for field in fields)


def child_path(path: str, key: str | int) -> str:
    """Return the path of a child below `path` as Kubernetes writes it: a.b, a[0], a[example.com/b]."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", key):
        return f"{path}.{key}"
    return f"{path}[{printable(key)}]"


def printable(value: str) -> str:
    """Return the text as one printable line of at most MAX_LENGTH characters, with its secrets masked."""
    value = mask_text(value[:MAX_SEARCHED])
    short = value if len(value) <= MAX_LENGTH else value[: MAX_LENGTH - 1] + "…"
    return short if short.isprintable() else ascii(short)[1:-1]
