"""Shards of the operator: each process reconciles the jobs in its namespaces.

The Leases contain all that processes with other numbers of shards need to know (ADR 24).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

MAX_SHARDS = 10
"""The chart's Role names ten Leases, and the names of the ports have one digit."""


@dataclass(frozen=True)
class Shard:
    """One of `total` shares of the namespaces; `number` counts from 0."""

    number: int = 0
    total: int = 1

    def has(self, namespace: str) -> bool:
        """Whether jobs of the namespace belong to the shard."""
        return choose_shard(namespace, self.total) == self.number

    @property
    def group(self) -> str:
        """Holder of the operator's Lease while processes with this number of shards reconcile, such as `4-shards`.

        Not the identity of a process, which contains `_`.
        """
        return f"{self.total}-shards"


ALL = Shard()
"""All namespaces."""


def choose_shard(namespace: str, total: int) -> int:
    """The number of the namespace's shard, the same in every process and version."""
    return int.from_bytes(hashlib.sha256(namespace.encode()).digest()[:8]) % total


def name_lease(operator: str, number: int) -> str:
    """Name of a shard's Lease. `operator`: name of the operator's Lease."""
    return f"{operator}-{number}"


def parse_shard(text: str) -> Shard:
    """Parse `i/n`. Raises ValueError."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    shard = Shard(int(found[1]), int(found[2])) if found else None
    if shard is None or not shard.number < shard.total <= MAX_SHARDS:
        raise ValueError(f"{text}: use i/n, the shard i from 0 to n-1 of n shards, at most {MAX_SHARDS}, such as 0/4")
    return shard


def parse_group(holder: str | None) -> int | None:
    """The number of shards by the holder of the operator's Lease; None if a single process holds it, or none."""
    found = re.fullmatch(r"([1-9]\d*)-shards", holder or "")
    return int(found[1]) if found else None
