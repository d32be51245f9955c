"""Which responses go through the model together. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def balanced_parts(lengths: Sequence[int], parts: int, *, equal: bool = False) -> list[list[int]]:
    """Row numbers of each part so that the parts' sums of `lengths` are close: the longest first, each to the part
    with the least so far. The rows of a part are in ascending order.

    equal: every part has the same number of rows, which `parts` must divide (what verl calls balance_batch). Without
    it this is Graham's rule: the largest part is at most 4/3 of the best. With it there is no such bound.
    """
    assert not equal or len(lengths) % parts == 0, f"{len(lengths)} rows cannot be shared equally by {parts}"
    room = len(lengths) // parts if equal else len(lengths)
    open_parts = [(0, part) for part in range(parts)]
    rows: list[list[int]] = [[] for _ in range(parts)]
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        load, part = heapq.heappop(open_parts)
        rows[part].append(row)
        if len(rows[part]) < room:
            heapq.heappush(open_parts, (load + lengths[row], part))
    return [sorted(part) for part in rows]


def passes_within(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """As few balanced passes as keep each within `budget` tokens. A row longer than that goes alone."""
    for parts in range(max(1, -(-sum(lengths) // budget)), len(lengths)):
        rows = balanced_parts(lengths, parts)
        if all(sum(lengths[row] for row in part) <= budget for part in rows):
            return rows
    return [[row] for row in range(len(lengths))]


def split_to(passes: Sequence[Sequence[int]], lengths: Sequence[int], count: int) -> list[list[int]]:
    """The same rows in `count` passes, none longer than before: the longest that can be is halved, again and again.

    Where there are fewer rows than passes, the last passes are empty.
    """
    result = [list(part) for part in passes]
    while len(result) < count:
        longest = max(result, key=lambda part: (len(part) > 1, sum(lengths[row] for row in part)))
        if len(longest) < 2:
            return [*result, *([] for _ in range(count - len(result)))]
        result.remove(longest)
        halves = balanced_parts([lengths[row] for row in longest], 2)
        result.extend([longest[place] for place in half] for half in halves)
    return result
