"""Partitions of responses into balanced shares and micro-batches. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def balance_parts(lengths: Sequence[int], parts: int, *, equal: bool = False) -> list[list[int]]:
    """Return the row numbers of each part, ascending, so that the parts' sums of `lengths` are close.

    Assigns the longest row first, each to the part with the smallest sum. `equal`: every part has the same number of
    rows, which must be divisible by `parts` (verl's balance_batch). Without `equal` this is Graham's LPT rule: the
    largest part is at most 4/3 of the optimum. With `equal` there is no such bound.
    """
    assert not equal or len(lengths) % parts == 0, f"{len(lengths)} rows are not divisible by {parts} parts"
    max_rows = len(lengths) // parts if equal else len(lengths)
    open_parts = [(0, part) for part in range(parts)]
    rows: list[list[int]] = [[] for _ in range(parts)]
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        load, part = heapq.heappop(open_parts)
        rows[part].append(row)
        if len(rows[part]) < max_rows:
            heapq.heappush(open_parts, (load + lengths[row], part))
    return [sorted(part) for part in rows]


def group_micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group rows into the smallest number of balanced micro-batches of at most `max_tokens` tokens each.

    A row that is longer is its own micro-batch.
    """
    for parts in range(max(1, -(-sum(lengths) // max_tokens)), len(lengths)):
        rows = balance_parts(lengths, parts)
        if all(sum(lengths[row] for row in part) <= max_tokens for part in rows):
            return rows
    return [[row] for row in range(len(lengths))]


def extend_micro_batches(micro_batches: Sequence[Sequence[int]], lengths: Sequence[int], count: int) -> list[list[int]]:
    """Split the same rows into `count` micro-batches: halve the longest one that can be split, until there are enough.

    If there are fewer rows than micro-batches, the last micro-batches are empty.
    """
    result = [list(rows) for rows in micro_batches]
    while len(result) < count:
        longest = max(result, key=lambda rows: (len(rows) > 1, sum(lengths[row] for row in rows)))
        if len(longest) < 2:
            return [*result, *([] for _ in range(count - len(result)))]
        result.remove(longest)
        halves = balance_parts([lengths[row] for row in longest], 2)
        result.extend([longest[index] for index in half] for half in halves)
    return result
