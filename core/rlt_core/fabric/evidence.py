"""Who says what of a node, and what follows where they differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """One witness: a fact, its value, and where that is written."""

    fact: str
    value: str
    source: str

    def __str__(self) -> str:
        return f"{self.fact} {self.value}: {self.source}"


def resolve_fact(
    fact: str, witnesses: list[Evidence], evidence: list[Evidence], contradictions: list[str]
) -> str | None:
    """The value that the first witness gives; those who say something else make a contradiction."""
    evidence += witnesses
    values = list(dict.fromkeys(item.value for item in witnesses))
    if len(values) > 1:
        said = "; ".join(f"{item.value} by {item.source}" for item in witnesses)
        contradictions.append(f"{fact} is {' and '.join(values)} at once ({said})")
    return values[0] if values else None
