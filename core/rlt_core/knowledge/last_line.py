"""The line with which a log ends: some hangs show in nothing else. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlt_core.knowledge.entries import Entry
from rlt_core.knowledge.lines import parse_line
from rlt_core.knowledge.progress import find_last_progress

TAIL = 16 * 1024
"""Bytes at the end of a log that are searched."""
STOPPED = re.compile(
    r"""^(?:
        \s*Terminated\b | \s*\^C | \s*KeyboardInterrupt\b
      | .*\*\*\*\ SIG(?:TERM|INT)\b | .*\bSIG(?:TERM|INT)\ received\b
      | (?:slurmstepd|scancel|run_command):
      | srun:\ (?:error|Job\ step\ aborted|Force|forcing|interrupt|got|sending)\b
    )""",
    re.VERBOSE,
)
"""Lines that report the end of a program on request: of shells, Python, Abseil, Slurm and rlt."""
TRACEBACK = "Traceback (most recent call last):"
STOPPED_TRACEBACK = "KeyboardInterrupt"
QUIET = "NCCL INFO"
"""Lines that can follow while the ranks wait, unless they match or report that NCCL has started."""
STARTED = re.compile(r"Init COMPLETE|Init timings|Connected all (?:rings|trees)|Connected binomial trees")
REPORT = "rlt-progress "
"""Lines of rlt that can follow while the ranks wait, until they report a step."""


def find_last_line(tail: str, entries: Sequence[Entry]) -> tuple[Entry, str, int] | None:
    """Find the entry with `at_end` that a log's last line matches, after the lines of its end and of NCCL.

    Return the entry, the line, and the number of line breaks after it. `tail`: the end of the log without colors.
    """
    lines = tail.split("\n")
    last = cut_end(lines)
    while last >= 0:
        text = parse_line(lines[last]).text
        for entry in entries:
            if entry.at_end and any(pattern.regex.search(text) for pattern in entry.patterns):
                return entry, lines[last].strip(), len(lines) - 1 - last
        if text.strip() and not _is_quiet(text):
            return None
        last -= 1
    return None


def _is_quiet(text: str) -> bool:
    """Whether a line can follow while the ranks wait for each other."""
    if text.startswith(REPORT):
        return not find_last_progress(text.encode())
    return QUIET in text and not STARTED.search(text)


def cut_end(lines: Sequence[str]) -> int:
    """The index of the last line before the program was ended. A program that continued was not ended."""
    end = next((index for index, line in enumerate(lines) if STOPPED.match(parse_line(line).text)), len(lines))
    if find_last_progress("\n".join(lines[end:]).encode()):
        return len(lines) - 1
    if end < len(lines) and STOPPED_TRACEBACK in lines[end]:
        traceback = [index for index in range(end) if TRACEBACK in lines[index]]
        end = traceback[-1] if traceback else end
    return end - 1
