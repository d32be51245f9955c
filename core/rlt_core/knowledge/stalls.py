"""A log that ends with the same line again and again, which waits for a remainder (63 of 64) or tries again. Pure."""

from __future__ import annotations

import re

from rlt_core.knowledge.last_line import cut_end
from rlt_core.knowledge.lines import parse_line

MIN_REPEATED = 3
"""Number of equal lines that make a stall."""
REMAINDER = re.compile(r"(?<![\d./:])(\d{1,9})(?: of | out of | ?/ ?)(\d{1,9})(?![\d./:])")
WAITS = re.compile(
    r"(?i)\b(?:wait|pending|not ready|outstanding|remaining|still|missing|registered|ready|(?:have |has )?"
    r"(?:joined|arrived|reported))"
)
RETRIES = re.compile(r"(?i)\bretrying\b|\bnot (?:up|ready|available|reachable) yet\b|\bwill (?:retry|try again)\b")
CHANGES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*|\b\d\d:\d\d:\d\d[.,\d]*"
    r"|(?i:elapsed|after|for)\W{1,3}(?:time\W{1,3})?[\d.]+ ?s"
)
"""Times, which differ in each line."""


def find_stall(tail: str) -> tuple[str, int] | None:
    """The last line, and the number of line breaks after it, if it waits and repeats the lines before."""
    lines = tail.split("\n")
    last = cut_end(lines)
    while last >= 0 and not lines[last].strip():
        last -= 1
    if last < 0:
        return None
    text = parse_line(lines[last]).text
    if "%|" in text or not (RETRIES.search(text) or _waits_for_remainder(text)):
        return None
    process = parse_line(lines[last]).process
    own = [line for each in lines[: last + 1] if (line := parse_line(each)).process == process and line.text.strip()]
    repeated = [CHANGES.sub("", line.text) for line in own[-MIN_REPEATED:]]
    if len(repeated) < MIN_REPEATED or len(set(repeated)) > 1:
        return None
    return lines[last].strip(), len(lines) - 1 - last


def _waits_for_remainder(text: str) -> bool:
    remainder = REMAINDER.search(text)
    return remainder is not None and int(remainder[1]) < int(remainder[2]) and WAITS.search(text) is not None
