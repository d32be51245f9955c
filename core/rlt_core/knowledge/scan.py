"""The search for the patterns of the knowledge base in a log of any size: one pass, with bounded memory.

A chunk is split into its set of words, which takes most of the time. A pattern is searched for only if the set contains
all of its words, and only around the lines with its longest word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from rlt_core.knowledge.entries import Entry
from rlt_core.knowledge.lines import MAX_LENGTH, Line, clean_bytes, find_rank, find_time, parse_line
from rlt_core.knowledge.pattern import Pattern, split_words

CHUNK = 256 * 1024
"""Bytes read at once."""
OVERLAP = 4
"""Lines of a message that was wrapped: it is found within this number of lines."""
INTERLEAVED = 12
"""Lines of other processes between two lines of a message."""
NEARBY = 2000
"""Bytes before and after a line that can contain the other lines of a wrapped message."""
HARMLESS = ("NCCL INFO", "ERROR: 0 ", " 0 errors", "[repeated 0x")
"""Texts of lines that report no failure."""
WORLD_SIZE = re.compile(rb"\b(?:world_size|nranks|WORLD_SIZE)['\" ]?[=: ]{1,2}(\d{1,6})\b")
WORLD_WORDS = frozenset({b"world_size", b"nranks", b"WORLD_SIZE"})
"""Words of the lines that state the number of ranks: those of torch, vLLM and NCCL."""
MAX_RANKS = 4096
MAX_ATTEMPTS = 200
"""Maximum number of lines of a chunk that a pattern is compared with after its first match."""
MAX_WRAPPED = 20
"""Maximum number of lines of a chunk that a pattern is compared with together with the lines around them."""
MIN_WRAPPED = 60
"""Minimum number of characters of a line that is continued on the next one."""
EVIDENCE_BEFORE, EVIDENCE_AFTER = 200, 300
"""Maximum numbers of characters before and after the match in the evidence."""


@dataclass
class Match:
    """The first line that matches an entry."""

    entry: Entry
    evidence: str
    """The line without colors, with its prefixes."""
    log: int
    """Index of the log."""
    line: int
    """Number of the line, from 1."""
    process: str
    rank: int | None
    time: str | None
    """Date and time, if the line has them."""
    lines_by_rank: dict[int, str] = field(default_factory=dict)
    """Rank -> its first line that matches."""


@dataclass(frozen=True)
class ScannedLog:
    """What a log contains."""

    matches: Sequence[Match]
    """The first match of each entry that has one, in the order of their lines."""
    world_size: int
    """The largest number of ranks that a line states; 0 if none does."""


def scan_log(stream: BinaryIO, entries: Sequence[Entry], log: int = 0) -> ScannedLog:
    """Search a log for all entries. `log` is its index among several."""
    found: dict[str, Match] = {}
    world_size = 0
    patterns = [(entry, pattern, frozenset(pattern.words)) for entry in entries for pattern in entry.patterns]
    for number, text in _read_chunks(stream):
        words = split_words(text)
        if not WORLD_WORDS.isdisjoint(words):
            world_size = max(world_size, *(int(size) for size in WORLD_SIZE.findall(text)), 0)
        for entry, pattern, required in patterns:
            if required <= words and (entry.compares_ranks or entry.code not in found):
                _search(text, number, entry, pattern, log, found)
    return ScannedLog(sorted(found.values(), key=lambda each: each.line), world_size)


def _read_chunks(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Number of the first line, and the text of each chunk: whole lines without colors, which begin with the last lines
    of the chunk before."""
    number, kept, rest = 1, b"", b""
    while data := stream.read(CHUNK):
        data = rest + data
        end = data.rfind(b"\n") + 1
        if not end:
            end = len(data) if len(data) > 4 * CHUNK else 0  # a line without an end
        data, rest = data[:end], data[end:]
        if not data:
            continue
        text = kept + clean_bytes(data)
        yield number, text
        kept = _get_last_lines(text)
        number += text.count(b"\n") - kept.count(b"\n")
    if rest:
        yield number, kept + clean_bytes(rest) + b"\n"


def _get_last_lines(text: bytes) -> bytes:
    position = len(text) - 1
    for _ in range(OVERLAP + INTERLEAVED):
        position = text.rfind(b"\n", 0, max(position, 0))
        if position < 0:
            return text[-NEARBY:]
    return text[position + 1 :][-NEARBY:]


def _search(text: bytes, number: int, entry: Entry, pattern: Pattern, log: int, found: dict[str, Match]) -> None:
    """Add the first match, and the first line of each further rank, to `found`."""
    counts = {word: text.count(word) for word in pattern.words}
    word = min(filter(counts.get, pattern.words), key=counts.__getitem__, default=None)
    position = text.find(word) if word else -1
    attempts = wrapped = 0
    while word and position >= 0 and (entry.code not in found or attempts < MAX_ATTEMPTS):
        attempts += 1
        start, end = text.rfind(b"\n", 0, position) + 1, text.find(b"\n", position)
        end = len(text) if end < 0 else end
        line = text[max(start, position - MAX_LENGTH) : min(end, position + MAX_LENGTH)]
        evidence = None
        if all(each in line for each in pattern.words):
            evidence = _match_line(_decode(line), pattern)
        elif wrapped < MAX_WRAPPED and _has_words_nearby(text, start, end, pattern):
            wrapped += 1
            evidence = _match_wrapped(text, start, end, _decode(line), pattern)
        if evidence is not None and not _is_harmless(_decode(line), entry):
            _add_match(_decode(line), evidence, number + text.count(b"\n", 0, start), entry, log, found)
            if not entry.compares_ranks:
                return
        position = text.find(word, max(end, position + 1))


def _add_match(raw: str, evidence: str, line: int, entry: Entry, log: int, found: dict[str, Match]) -> None:
    rank = find_rank(raw)
    if entry.code not in found:
        found[entry.code] = Match(entry, evidence, log, line, parse_line(raw).process, rank, find_time(raw))
    match = found[entry.code]
    if rank is not None and len(match.lines_by_rank) < MAX_RANKS:
        match.lines_by_rank.setdefault(rank, evidence)


def _is_harmless(raw: str, entry: Entry) -> bool:
    return any(each in raw for each in HARMLESS) or any(each in raw for each in entry.unless)


def _match_line(raw: str, pattern: Pattern) -> str | None:
    """The line if it matches; the part around the match if the line is long."""
    match = pattern.regex.search(raw)
    return match and raw[max(0, match.start() - EVIDENCE_BEFORE) : match.end() + EVIDENCE_AFTER].strip()


def _has_words_nearby(text: bytes, start: int, end: int, pattern: Pattern) -> bool:
    near = text[max(0, start - NEARBY) : end + NEARBY]
    joined = near.replace(b"\n", b"")
    return all(word in near or word in joined for word in pattern.words)


def _match_wrapped(text: bytes, start: int, end: int, raw: str, pattern: Pattern) -> str | None:
    """The match in the line together with the lines of the same process around it, if they are one wrapped message."""
    line = parse_line(raw)
    lines = [line]
    if not line.starts_message:
        for each in _get_lines_of(line, text[max(0, start - NEARBY) : start].splitlines()[::-1]):
            if len(each.raw) < MIN_WRAPPED:
                break
            lines.insert(0, each)
            if each.starts_message:
                break
    if len(raw) >= MIN_WRAPPED:
        for each in _get_lines_of(line, text[end + 1 : end + NEARBY].splitlines()):
            if each.starts_message:
                break
            lines.append(each)
            if len(each.raw) < MIN_WRAPPED:
                break
    if len(lines) == 1:
        return None
    matches = (pattern.regex.search(space.join(each.text for each in lines)) for space in (" ", ""))
    return next((match[0] for match in matches if match), None)


def _get_lines_of(line: Line, neighbors: list[bytes]) -> list[Line]:
    """The nearest lines of the same process. Without a process, those of no process."""
    near = (parse_line(_decode(each[:MAX_LENGTH])) for each in neighbors[:INTERLEAVED])
    return [each for each in near if each.process == line.process][: OVERLAP - 1]


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")
