"""Partitions of responses into balanced shares and micro-batches. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

Cost = Callable[[int], float]
"""The time of a sequence as a function of its number of tokens, in any unit, above 0."""


def balance_parts(costs: Sequence[float], parts: int, *, equal: bool = False) -> list[list[int]]:
    """Return the row numbers of each part, ascending, so that the parts' sums of `costs` are close.

    Assigns the most expensive row first, each to the part with the smallest sum. `equal`: every part has the same
    number of rows, which must be divisible by `parts` (verl's balance_batch). Without `equal` this is Graham's LPT
    rule: the largest part is at most 4/3 of the optimum. `equal` gives no bound.
    """
    assert not equal or len(costs) % parts == 0, f"{len(costs)} rows are not divisible by {parts} parts"
    max_rows = len(costs) // parts if equal else len(costs)
    open_parts = [(0.0, part) for part in range(parts)]
    rows: list[list[int]] = [[] for _ in range(parts)]
    for row in sorted(range(len(costs)), key=lambda row: -costs[row]):
        load, part = heapq.heappop(open_parts)
        rows[part].append(row)
        if len(rows[part]) < max_rows:
            heapq.heappush(open_parts, (load + costs[row], part))
    return [sorted(part) for part in rows]


def group_micro_batches(lengths: Sequence[int], max_tokens: int, costs: Sequence[float]) -> list[list[int]]:
    """Group rows into a small number of balanced micro-batches of at most `max_tokens` tokens each.

    lengths, costs: the tokens and the cost of each row. A row that is longer is its own micro-batch.
    """
    for parts in range(max(1, -(-sum(lengths) // max_tokens)), len(lengths)):
        if rows := _fit(lengths, max_tokens, costs, parts):
            return rows
    return [[row] for row in range(len(lengths))]


def extend_micro_batches(
    micro_batches: Sequence[Sequence[int]], lengths: Sequence[int], max_tokens: int, costs: Sequence[float], count: int
) -> list[list[int]]:
    """Split the same rows into `count` micro-batches, the most expensive first.

    All ranks have the same number of micro-batches, and wait for each other in each: the order brings micro-batches of
    similar cost together. If there are fewer rows than micro-batches, the last micro-batches are empty.
    """
    result = [list(rows) for rows in micro_batches]
    if len(result) < count:
        result = _fit(lengths, max_tokens, costs, count) or _halve(result, costs, count)
    return sorted(result, key=lambda rows: -sum(costs[row] for row in rows))


def _fit(lengths: Sequence[int], max_tokens: int, costs: Sequence[float], parts: int) -> list[list[int]] | None:
    """Balance the costs, else the tokens of `parts` micro-batches. None: one of them has too many tokens either way."""
    for weights in (costs, lengths):
        rows = balance_parts(weights, parts)
        if all(sum(lengths[row] for row in part) <= max_tokens for part in rows):
            return rows
    return None


def _halve(micro_batches: Sequence[list[int]], costs: Sequence[float], count: int) -> list[list[int]]:
    """Halve the most expensive micro-batch that can be split, until there are `count`."""
    result = list(micro_batches)
    while len(result) < count:
        largest = max(result, key=lambda rows: (len(rows) > 1, sum(costs[row] for row in rows)))
        if len(largest) < 2:
            return [*result, *([] for _ in range(count - len(result)))]
        result.remove(largest)
        halves = balance_parts([costs[row] for row in largest], 2)
        result.extend([largest[index] for index in half] for half in halves)
    return result
