"""One thing that is wrong with a manifest, said so that its author can mend it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

MAX_LENGTH = 100
"""Characters of a value or a key that a finding repeats."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    field: str
    """Path of the field, such as spec.training.trainBatchSize."""
    value: str
    """Its value; "none" if it is not given."""
    message: str
    """What is wrong with it."""
    fix: str
    """What to do."""
    rule: str = "schema"
    """Name of the rule, such as batch-divisibility; schema for type, bounds and unknown fields."""
    involved: tuple[str, ...] = ()
    """Paths of the other fields that the rule has read. Where a job's runtime is not at hand, a finding counts only if
    the job itself gives all of them."""

    def __str__(self) -> str:
        return f"{self.field}: {self.value}: {self.message}; {self.fix}"

    def to_json(self) -> dict[str, str]:
        """Everything but `involved`."""
        return {key: value for key, value in asdict(self).items() if key != "involved"}


def child(path: str, key: str | int) -> str:
    """The path of what lies in `path`, as Kubernetes writes it: a.b, a[0], a[example.com/b]."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", key):
        return f"{path}.{key}"
    return f"{path}[{shown(key)}]"


def shown(value: str) -> str:
    """A text in one printable line that is not too long."""
    short = value if len(value) <= MAX_LENGTH else value[: MAX_LENGTH - 1] + "…"
    return short if short.isprintable() else ascii(short)[1:-1]
