"""Evidence for the facts of a node, and contradictions in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """A value of a fact, with its source."""

    fact: str
    value: str
    source: str

    def __str__(self) -> str:
        return f"{self.fact} {self.value}: {self.source}"


def resolve_fact(fact: str, found: list[Evidence], evidence: list[Evidence], contradictions: list[str]) -> str | None:
    """Return the value of the first item in `found`. Extends `evidence`, and `contradictions` if values differ."""
    evidence += found
    values = list(dict.fromkeys(item.value for item in found))
    if len(values) > 1:
        sources = "; ".join(f"{item.value} by {item.source}" for item in found)
        contradictions.append(f"{fact} is both {' and '.join(values)} ({sources})")
    return values[0] if values else None
