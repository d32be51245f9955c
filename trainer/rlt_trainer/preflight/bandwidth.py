"""How fast an all-reduce is, as nccl-tests says it."""

from __future__ import annotations


def bus_bandwidth(bytes: int, seconds: float, ranks: int) -> float:
    """Bytes a second over the slowest link, whatever the number of ranks: 2 (n - 1) / n * bytes / seconds
    (nccl-tests, doc/PERFORMANCE.md, AllReduce)."""
    return 2 * (ranks - 1) / ranks * bytes / seconds
