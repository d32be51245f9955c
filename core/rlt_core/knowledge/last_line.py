"""The line with which a log ends: some hangs show in nothing else. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlt_core.knowledge.entries import Entry
from rlt_core.knowledge.lines import parse_line

TAIL = 16 * 1024
"""Bytes at the end of a log that are searched."""
STOPPED = re.compile(
    r"""^(?:
        \s*Terminated\b | \s*\^C | \s*KeyboardInterrupt\b
      | .*\*\*\*\ SIG(?:TERM|INT)\b | .*\bSIG(?:TERM|INT)\ received\b
      | (?:slurmstepd|scancel|run_command): | rlt-progress\b
      | srun:\ (?:error|Job\ step\ aborted|Force|forcing|interrupt|got|sending)\b
    )""",
    re.VERBOSE,
)
"""Lines that report the end of a program on request: of shells, Python, Abseil, Slurm and rlt."""
TRACEBACK = "Traceback (most recent call last):"
STOPPED_TRACEBACK = "KeyboardInterrupt"
QUIET = "NCCL INFO"
"""Lines that can follow while the ranks wait, unless they match or report that NCCL has started."""
STARTED = "Init COMPLETE"


def find_last_line(tail: str, entries: Sequence[Entry]) -> tuple[Entry, str, int] | None:
    """Find the entry with `at_end` that a log's last line matches, after the lines of its end and of NCCL.

    Return the entry, the line, and the number of line breaks after it. `tail`: the end of the log without colors.
    """
    lines = tail.split("\n")
    last = _cut_end(lines)
    while last >= 0:
        text = parse_line(lines[last]).text
        for entry in entries:
            if entry.at_end and any(pattern.regex.search(text) for pattern in entry.patterns):
                return entry, lines[last].strip(), len(lines) - 1 - last
        if text.strip() and (QUIET not in text or STARTED in text):
            return None
        last -= 1
    return None


def _cut_end(lines: Sequence[str]) -> int:
    """The index of the last line before the program was ended."""
    end = next((index for index, line in enumerate(lines) if STOPPED.match(parse_line(line).text)), len(lines))
    if end < len(lines) and STOPPED_TRACEBACK in lines[end]:
        traceback = [index for index in range(end) if TRACEBACK in lines[index]]
        end = traceback[-1] if traceback else end
    return end - 1
