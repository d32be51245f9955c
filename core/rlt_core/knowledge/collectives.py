"""Which rank was late when a collective timed out: the ranks that waited report the timeout, and it does not. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rlt_api.findings.masking import mask_text
from rlt_core.knowledge.scan import Match

OPERATION = re.compile(r"SeqNum=(\d+), OpType=(\w+)")
MAX_NAMED = 8
"""Maximum number of ranks in a message."""
MIN_REPORTS = 3
"""Number of reports after which a single missing one is evidence against its rank."""


def describe_late_ranks(
    matches: Sequence[Match], world_size: int, last_lines: Mapping[int, str], folded: int = 0
) -> str:
    """One to three sentences about the ranks that did not take part in the collective; "" if the lines name no rank.

    `world_size`: 0 if no line states it. `last_lines`: rank -> its last line in these logs. `folded`: number of reports
    that Ray printed as a repetition of another rank's.

    A rank is accused only if these logs have lines of it, or if all others report the timeout.
    """
    timed_out: dict[int, str] = {}
    for match in matches:
        if match.entry.compares_ranks:
            timed_out |= {rank: line for rank, line in match.lines_by_rank.items() if rank not in timed_out}
    if not timed_out:
        return ""
    operation = next((found for line in timed_out.values() if (found := OPERATION.search(line))), None)
    name = f" in {operation[2]} {operation[1]}" if operation else ""
    reported = f"{_name(sorted(timed_out))} timed out{name}"
    seen = {match.rank for match in matches if match.rank is not None} | last_lines.keys()
    silent = sorted((seen | set(range(max(world_size, *timed_out)))) - timed_out.keys())
    if silent and folded:
        return (
            f"{reported}; {folded} more reports are folded, so that the rank without one is unknown (RAY_DEDUP_LOGS=0)."
        )
    late = silent if len(silent) == 1 and len(timed_out) >= MIN_REPORTS else [rank for rank in silent if rank in seen]
    if late:
        return " ".join([f"{reported}; {_name(late)} did not take part.", *_quote_last_line(late, last_lines)])
    sequence = {rank: int(found[1]) for rank, line in timed_out.items() if (found := OPERATION.search(line))}
    if len(set(sequence.values())) > 1:
        behind = [rank for rank, number in sequence.items() if number == min(sequence.values())]
        return f"{_name(sorted(behind))} is behind the others: collective {min(sequence.values())}."
    unknown = f"; these logs have no report of {_name(silent).lower()}" if silent else ""
    return f"{reported}{unknown}."


def _quote_last_line(late: Sequence[int], last_lines: Mapping[int, str]) -> Iterator[str]:
    if line := last_lines.get(late[0]):
        yield f"Last line of rank {late[0]}: {mask_text(line.strip())}"


def _name(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:MAX_NAMED]))
    return f"Rank{'s' * (len(ranks) > 1)} {shown}" + (f" and {len(ranks) - MAX_NAMED} more" * (len(ranks) > MAX_NAMED))
