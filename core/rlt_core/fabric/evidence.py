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


def settle(fact: str, witnesses: list[Evidence], claims: list[Evidence], contradictions: list[str]) -> str | None:
    """The value that the first witness gives; those who say something else make a contradiction."""
    claims += witnesses
    values = list(dict.fromkeys(claim.value for claim in witnesses))
    if len(values) > 1:
        said = "; ".join(f"{claim.value} by {claim.source}" for claim in witnesses)
        contradictions.append(f"{fact} is {' and '.join(values)} at once ({said})")
    return values[0] if values else None
