"""Which rank was late when a collective timed out: the ranks that waited report the timeout, and it does not. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlt_core.knowledge.scan import Match

OPERATION = re.compile(r"SeqNum=(\d+), OpType=(\w+)")
MAX_NAMED = 8
"""Maximum number of ranks in a message."""


def describe_late_ranks(matches: Sequence[Match], world_size: int) -> str:
    """One sentence about the ranks that did not take part in the collective; "" if the lines name no rank.

    Without `world_size` (0), the ranks of other lines and those below the highest rank are known.
    """
    timed_out: dict[int, str] = {}
    for match in matches:
        if match.entry.compares_ranks:
            timed_out |= {rank: line for rank, line in match.lines_by_rank.items() if rank not in timed_out}
    if not timed_out:
        return ""
    operation = next((found for line in timed_out.values() if (found := OPERATION.search(line))), None)
    name = f" in {operation[2]} {operation[1]}" if operation else ""
    seen = {match.rank for match in matches if match.rank is not None}
    known = seen | set(range(max(world_size, *timed_out)))
    if late := sorted(known - timed_out.keys()):
        return f"{_name(sorted(timed_out))} timed out{name}; {_name(late)} did not take part."
    sequence = {rank: int(found[1]) for rank, line in timed_out.items() if (found := OPERATION.search(line))}
    if len(set(sequence.values())) > 1:
        behind = [rank for rank, number in sequence.items() if number == min(sequence.values())]
        return f"{_name(sorted(behind))} is behind the others: collective {min(sequence.values())}."
    return f"{_name(sorted(timed_out))} timed out{name}."


def _name(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:MAX_NAMED]))
    return f"Rank{'s' * (len(ranks) > 1)} {shown}" + (f" and {len(ranks) - MAX_NAMED} more" * (len(ranks) > MAX_NAMED))
