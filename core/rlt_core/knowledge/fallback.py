"""What a log shows that no entry explains: its first exception, else its last fatal line, or a stall at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rlt_core.knowledge.entries import Entry
from rlt_core.knowledge.fatal_lines import FatalLine, find_fatal_line
from rlt_core.knowledge.progress import find_last_progress
from rlt_core.knowledge.search import MAX_LINES, is_harmless
from rlt_core.knowledge.stalls import find_stall
from rlt_core.knowledge.tracebacks import Incident, TracebackReader, find_exception_lines

EXCEPTION = "UnknownException"
FATAL_LINE = "UnknownFatalLine"
UNKNOWN = frozenset({EXCEPTION, FATAL_LINE})
"""Codes of failures that no entry explains."""
STALL = "RepeatedLastLine"
MAX_BEFORE = 200
"""Maximum number of lines before the last progress of a chunk that are read."""
CONTINUED = 3
"""Number of later lines of level INFO after which a process has handled its exception."""

LONG_ENOUGH = 20
"""Number of characters that two parts of a message have in common."""


@dataclass(frozen=True)
class Unknown:
    """A finding without patterns."""

    entry: Entry
    raw: str
    evidence: str
    line: int
    process: str
    detail: str
    """What the message adds to the entry's."""


@dataclass
class Fallback:
    """Collects what a log shows beside known failures, chunk by chunk."""

    tracebacks: TracebackReader = field(default_factory=TracebackReader)
    fatal_line: FatalLine | None = None
    _continued: dict[str, int] = field(default_factory=dict)
    """Process with an exception -> number of its later lines of level INFO."""

    def read(self, text: bytes, start: int, number: int) -> None:
        """Read the lines of a chunk from the position `start`, whose number is `number`.

        What was found before the last progress is forgotten: the program has continued.
        """
        lines = find_exception_lines(text, start)
        fatal = find_fatal_line(text, start, number)
        if not (lines or fatal or self.fatal_line or self.tracebacks.incidents or self.tracebacks.failed):
            return
        progress = max(find_last_progress(text), start)
        if progress > start:
            before = [each for each in lines if each < progress][-MAX_BEFORE:]
            self.tracebacks.read(text, before, start, number)
            self.tracebacks.forget()
            self.fatal_line = None
            self._continued.clear()
            number += text.count(b"\n", start, progress)
        self._count_continued(text, progress)
        self.tracebacks.read(text, [each for each in lines if each >= progress], progress, number)
        if fatal and fatal.line >= number:
            self.fatal_line = fatal

    def find(self, entries: Sequence[Entry], known: Mapping[int, str], tail: str, lines: int) -> list[Unknown]:
        """What the log shows, at most an exception or a fatal line, and a stall.

        `known`: number of the line -> evidence of each known failure. `lines`: number of the last line.
        """
        by_code = {entry.code: entry for entry in entries}
        if EXCEPTION not in by_code:
            return []
        unknown = [each for each in self._find_failure(by_code) if not _is_part_of_known(each, known)]
        return [*unknown, *_find_stall(by_code, tail, lines)]

    def _find_failure(self, entries: Mapping[str, Entry]) -> list[Unknown]:
        for each in self.tracebacks.incidents:
            each.handled |= self._continued.get(each.process, 0) >= CONTINUED
        incident = self.tracebacks.choose()
        if incident:
            if is_explained(incident.text, entries.values()):
                return []
            return [_describe_exception(entries[EXCEPTION], incident)]
        line = self.fatal_line
        if line is None or is_explained(line.raw, entries.values()):
            return []
        return [Unknown(entries[FATAL_LINE], line.raw, line.text, line.line, line.process, "")]

    def _count_continued(self, text: bytes, start: int) -> None:
        """Count the lines of processes whose exception is in an earlier chunk."""
        for process in {each.process for each in self.tracebacks.incidents if each.process}:
            count = text.count(f"({process}) INFO ".encode(), start)
            self._continued[process] = self._continued.get(process, 0) + count


def is_explained(text: str, entries: Iterable[Entry]) -> bool:
    """Whether a known failure explains the text, or it is harmless."""
    return is_harmless(text) or any(
        pattern.regex.search(text)
        for entry in entries
        if not entry.at_end and not any(each in text for each in entry.unless)
        for pattern in entry.patterns
    )


def _is_part_of_known(unknown: Unknown, known: Mapping[int, str]) -> bool:
    """Whether a known failure has the line as a part of its wrapped message."""
    nearby = (known.get(unknown.line + offset, "") for offset in range(-MAX_LINES, MAX_LINES + 1))
    end = unknown.evidence[-LONG_ENOUGH:]
    return any(each and (end in each or each in unknown.evidence) for each in nearby)


def _describe_exception(entry: Entry, incident: Incident) -> Unknown:
    where = f" in {incident.frame}" if incident.frame else ""
    detail = f"{incident.name}{where}."
    return Unknown(entry, incident.raw, incident.text, incident.line, incident.process, detail)


def _find_stall(entries: Mapping[str, Entry], tail: str, lines: int) -> list[Unknown]:
    if (stall := find_stall(tail)) is None:
        return []
    raw, breaks = stall
    return [Unknown(entries[STALL], raw, raw, lines - breaks, "", "")]
