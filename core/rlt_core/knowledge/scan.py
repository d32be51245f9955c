"""The search for the patterns of the knowledge base in a log of any size: one pass, with bounded memory.

A chunk is reduced to the words that patterns contain. A pattern is searched for only if the chunk has all of its words,
and only around the lines with its longest word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import BinaryIO

from rlt_core.knowledge.entries import Entry
from rlt_core.knowledge.fallback import Fallback
from rlt_core.knowledge.last_line import TAIL, find_last_line
from rlt_core.knowledge.line_words import WORD_BYTES, ChunkWords, LineWords
from rlt_core.knowledge.lines import clean_bytes, find_node, find_process, find_rank, find_time, parse_line
from rlt_core.knowledge.progress import find_last_progress
from rlt_core.knowledge.ranks import RankLines
from rlt_core.knowledge.search import INTERLEAVED, MAX_LINES, MAX_RANKS, NEARBY, PatternSearch, find_ends
from rlt_core.knowledge.socket_fallback import CODE, SocketFallback

CHUNK = 256 * 1024
"""Bytes read at once."""
WORLD_WORDS = (b"world_size", b"nranks", b"WORLD_SIZE")
"""Words of the lines that state the number of ranks: torch's, vLLM's and NCCL's."""
WORLD_SIZES = tuple(re.compile(word + rb"['\" ]?[=: ]{1,2}(\d{1,6})\b") for word in WORLD_WORDS)
"""A regular expression that begins with a literal is searched for several times as fast as alternatives are."""
NODE_FAILURE = 85
"""Minimum priority of failures of hardware and nodes, which can have an effect after some steps."""


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
    node: str
    """Address or name of the node that the line names."""
    time: str | None
    """Date and time, if the line has them."""
    detail: str = ""
    """What the message adds to the entry's."""
    lines_by_rank: dict[int, str] = field(default_factory=dict)
    """Rank -> its first line that matches."""

    def add_rank(self, other: Match) -> None:
        """Add the line of another rank."""
        if len(self.lines_by_rank) < MAX_RANKS:
            self.lines_by_rank = other.lines_by_rank | self.lines_by_rank


@dataclass(frozen=True)
class ScannedLog:
    """What a log contains."""

    matches: Sequence[Match]
    """The first match of each entry that has one, in the order of their lines."""
    world_size: int
    """The largest number of ranks that a line states; 0 if none does."""
    ranks: RankLines


def scan_log(
    stream: BinaryIO, entries: Sequence[Entry], log: int = 0, *, expects_rdma: bool = False, failed: bool = False
) -> ScannedLog:
    """Search a log for all entries. `log` is its index among several."""
    scan = LogScan(entries, log, SocketFallback(expects_rdma))
    for number, text, kept in _read_chunks(stream):
        scan.read(text, kept, number)
    return scan.finish(failed)


class LogScan:
    """The search for all entries in a log, chunk by chunk."""

    def __init__(self, entries: Sequence[Entry], log: int, sockets: SocketFallback) -> None:
        self._entries = entries
        self._log = log
        self._searches = [
            PatternSearch(each, pattern) for each in entries if not each.at_end for pattern in each.patterns
        ]
        self._line_words = LineWords([*WORLD_WORDS, *(word for each in self._searches for word in each.pattern.words)])
        self._found: dict[str, Match] = {}
        self._stale: dict[str, Match] = {}
        """What was found before the program completed a step."""
        self._world_size = 0
        self._fallback = Fallback()
        self._sockets = sockets
        self._ranks = RankLines()
        self._tail = b""
        self._lines = 0

    def read(self, text: bytes, kept: int, number: int) -> None:
        """Read a chunk. `number`: of its first line. `kept`: length of its beginning that was read before."""
        self._tail = (self._tail + text[kept:])[-TAIL:]
        self._lines = number + text.count(b"\n")
        fresh = number + text.count(b"\n", 0, kept)
        self._fallback.read(text, kept, fresh)
        self._sockets.read(text, kept, fresh)
        words = self._line_words.find(text)
        if not words.find_all().isdisjoint(WORLD_WORDS):
            self._world_size = max(self._world_size, *_find_world_sizes(text), 0)
        ends = find_ends(text, self._entries)
        for code in ends:
            self._found.pop(code, None)
        self._search(text, words, number, fresh, ends)
        if passed := [code for code, match in self._found.items() if match.entry.severity != "warning"]:
            self._set_passed_aside(passed, text, words, number)
        if any(match.entry.compares_ranks for match in self._found.values()):
            self._ranks.read(text)

    def finish(self, failed: bool) -> ScannedLog:
        """Add what the end of the log shows. `failed`: whether the program is known to have failed."""
        found = self._found
        end = self._tail.decode("utf-8", "replace")
        if last := find_last_line(end, self._entries):
            entry, line, breaks = last
            found[entry.code] = _build_match(entry, line, line, self._log, self._lines - breaks)
        found |= _find_sockets(self._sockets, self._entries, self._log)
        self._fallback.tracebacks.failed |= failed
        known = {match.line: match.evidence for match in (*self._stale.values(), *found.values())}
        for each in self._fallback.find(self._entries, known, end, self._lines):
            match = _build_match(each.entry, each.raw, each.evidence, self._log, each.line)
            found[each.entry.code] = replace(match, process=each.process or match.process, detail=each.detail)
        found = {**_recall(self._stale, found, failed), **found}
        return ScannedLog(sorted(found.values(), key=lambda each: each.line), self._world_size, self._ranks)

    def _search(
        self,
        text: bytes,
        words: ChunkWords,
        number: int,
        fresh: int,
        ends: Mapping[str, int],
        only: Sequence[str] = (),
    ) -> None:
        """Search for all entries, or for some. `ends`: code -> position from which the entry is searched for."""
        all_words = words.find_all()
        for search in self._searches:
            code = search.entry.code
            is_open = search.entry.compares_ranks or code not in self._found
            if (only and code not in only) or not is_open or not search.words <= all_words:
                continue
            for position, line, evidence in search.search(text, words, ends.get(code, 0)):
                match = _build_match(search.entry, line, evidence, self._log, number + text.count(b"\n", 0, position))
                if search.entry.compares_ranks and match.line >= fresh:
                    self._ranks.count(line)
                self._found.setdefault(code, match).add_rank(match)

    def _set_passed_aside(self, codes: Sequence[str], text: bytes, words: ChunkWords, number: int) -> None:
        """Set aside errors after which the program completed a step, and search for them after it."""
        progress = text.rfind(b"\n", 0, find_last_progress(text)) + 1
        line = number + text.count(b"\n", 0, progress)
        passed = [code for code in codes if self._found[code].line < line and not self._found[code].entry.persists]
        if progress and passed:
            for code in passed:
                self._stale[code] = self._found.pop(code)
            self._search(text, words, number, self._lines, dict.fromkeys(passed, progress), passed)


def _recall(stale: Mapping[str, Match], found: Mapping[str, Match], failed: bool) -> dict[str, Match]:
    """What was set aside and explains a failure after it: all if only wrappers follow, otherwise failures of nodes."""
    errors = any(match.entry.severity == "error" for match in found.values())
    wrappers = any(match.entry.severity == "wrapper" for match in found.values())
    if not errors:
        return dict(stale) if wrappers or failed else {}
    return {code: match for code, match in stale.items() if match.entry.priority >= NODE_FAILURE}


def _find_sockets(sockets: SocketFallback, entries: Sequence[Entry], log: int) -> dict[str, Match]:
    return {
        entry.code: _build_match(entry, sockets.raw, sockets.raw.strip(), log, sockets.line)
        for entry in entries
        if entry.code == CODE and sockets.is_found
    }


def _find_world_sizes(text: bytes) -> Iterator[int]:
    for match in chain.from_iterable(each.finditer(text) for each in WORLD_SIZES):
        if text[match.start() - 1 : match.start()] not in WORD_BYTES:
            yield int(match[1])


def _build_match(entry: Entry, line: str, evidence: str, log: int, number: int) -> Match:
    rank = find_rank(line)
    ranks = {} if rank is None else {rank: evidence}
    process = parse_line(line).process
    node = find_node(line)
    about = find_process(line) if entry.severity == "wrapper" else ""
    detail = f"It is about process {about}: its log has the cause." if about else ""
    return Match(entry, evidence, log, number, process, rank, node, find_time(line), detail, ranks)


def _read_chunks(stream: BinaryIO) -> Iterator[tuple[int, bytes, int]]:
    """Number of the first line, text, and length of its beginning that ends the chunk before: whole lines without
    colors."""
    number = 1
    kept = b""
    rest = b""
    while data := stream.read(CHUNK):
        data = rest + data
        end = data.rfind(b"\n") + 1
        if not end:
            end = len(data) if len(data) > 4 * CHUNK else 0  # a line without an end
        rest = data[end:]
        data = data[:end]
        if not data:
            continue
        text = kept + clean_bytes(data)
        yield number, text, len(kept)
        kept = _get_last_lines(text)
        number += text.count(b"\n") - kept.count(b"\n")
    if rest:
        yield number, kept + clean_bytes(rest) + b"\n", len(kept)


def _get_last_lines(text: bytes) -> bytes:
    """The last whole lines, of at most NEARBY bytes together."""
    position = len(text) - 1
    for _ in range(MAX_LINES + INTERLEAVED):
        position = text.rfind(b"\n", 0, max(position, 0))
        if position < 0:
            break
    tail = text[position + 1 :]
    return tail if len(tail) <= NEARBY else tail[-NEARBY:].partition(b"\n")[2]
