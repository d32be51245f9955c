"""The search for the patterns of the knowledge base in a log of any size: one pass, with bounded memory.

A chunk is reduced to the words that patterns contain. A pattern is searched for only if the chunk has all of its words,
and only around the lines with its longest word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import BinaryIO

from rlt_core.knowledge.entries import Entry
from rlt_core.knowledge.fallback import Fallback
from rlt_core.knowledge.last_line import TAIL, find_last_line
from rlt_core.knowledge.line_words import WORD_BYTES, LineWords
from rlt_core.knowledge.lines import clean_bytes, find_node, find_rank, find_time, parse_line
from rlt_core.knowledge.ranks import RankLines
from rlt_core.knowledge.search import INTERLEAVED, MAX_LINES, MAX_RANKS, NEARBY, PatternSearch, find_ends
from rlt_core.knowledge.socket_fallback import CODE, SocketFallback

CHUNK = 256 * 1024
"""Bytes read at once."""
WORLD_WORDS = (b"world_size", b"nranks", b"WORLD_SIZE")
"""Words of the lines that state the number of ranks: torch's, vLLM's and NCCL's."""
WORLD_SIZES = tuple(re.compile(word + rb"['\" ]?[=: ]{1,2}(\d{1,6})\b") for word in WORLD_WORDS)
"""A regular expression that begins with a literal is searched for several times as fast as alternatives are."""


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


def scan_log(stream: BinaryIO, entries: Sequence[Entry], log: int = 0, *, expects_rdma: bool = False) -> ScannedLog:
    """Search a log for all entries. `log` is its index among several."""
    searches = [PatternSearch(entry, pattern) for entry in entries if not entry.at_end for pattern in entry.patterns]
    line_words = LineWords([*WORLD_WORDS, *(word for search in searches for word in search.pattern.words)])
    found: dict[str, Match] = {}
    world_size = 0
    fallback = Fallback()
    sockets = SocketFallback(expects_rdma)
    ranks = RankLines()
    tail = b""
    lines = 0
    for number, text, kept in _read_chunks(stream):
        tail = (tail + text[kept:])[-TAIL:]
        lines = number + text.count(b"\n")
        fresh = number + text.count(b"\n", 0, kept)
        fallback.read(text, kept, fresh)
        sockets.read(text, kept, fresh)
        words = line_words.find(text)
        all_words = words.find_all()
        if not all_words.isdisjoint(WORLD_WORDS):
            world_size = max(world_size, *_find_world_sizes(text), 0)
        ends = find_ends(text, entries)
        for code in ends:
            found.pop(code, None)
        for search in searches:
            code = search.entry.code
            if search.words <= all_words and (search.entry.compares_ranks or code not in found):
                for position, line, evidence in search.search(text, words, ends.get(code, 0)):
                    match = _build_match(search.entry, line, evidence, log, number + text.count(b"\n", 0, position))
                    if search.entry.compares_ranks and match.line >= fresh:
                        ranks.count(line)
                    found.setdefault(code, match).add_rank(match)
        if any(match.entry.compares_ranks for match in found.values()):
            ranks.read(text)
    end = tail.decode("utf-8", "replace")
    if last := find_last_line(end, entries):
        entry, line, breaks = last
        found[entry.code] = _build_match(entry, line, line, log, lines - breaks)
    found |= _find_sockets(sockets, entries, log)
    known = {match.line: match.evidence for match in found.values()}
    for each in fallback.find(entries, known, end, lines):
        match = _build_match(each.entry, each.raw, each.evidence, log, each.line)
        found[each.entry.code] = replace(match, process=each.process or match.process, detail=each.detail)
    return ScannedLog(sorted(found.values(), key=lambda each: each.line), world_size, ranks)


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
    return Match(entry, evidence, log, number, process, rank, node, find_time(line), lines_by_rank=ranks)


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
