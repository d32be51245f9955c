"""The words of patterns in the lines of a chunk. Most lines in a log repeat an earlier one with other numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from rlt_core.knowledge.pattern import SEPARATORS

DIGITS = b"0123456789"
WORD_BYTES = frozenset(bytes([byte]) for byte in SEPARATORS if byte != ord(" "))
MAX_LINES = 20_000
"""Maximum number of different lines that are kept."""
MAX_LENGTH = 1000
"""Maximum number of bytes of a line that is kept."""


@dataclass(frozen=True)
class ChunkWords:
    """The words of patterns in a chunk, without digits."""

    lines: list[frozenset[bytes]]
    """The words of each line. Lines that occur for the first time have one set together."""
    split: frozenset[bytes]
    """The words that a line break splits."""

    def find_all(self) -> frozenset[bytes]:
        """All words of the chunk."""
        return self.split.union(*self.lines)


class LineWords:
    """Finds the words in the lines of a log, chunk by chunk."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._known = remove_digits(words)
        self._longest = max(map(len, self._known), default=0)
        self._words: dict[bytes, frozenset[bytes] | None] = {}
        """Line without digits -> its words; None after its first chunk."""

    def find(self, text: bytes) -> ChunkWords:
        """Find the words of a chunk."""
        lines = text.translate(None, DIGITS).split(b"\n")
        found = set[frozenset[bytes]]()
        fresh = list[bytes]()
        for line in set(lines):
            if line in self._words:
                words = self._words[line]
                if words is None:
                    words = self._words[line] = self._find_words(line)
                found.add(words)
                continue
            fresh.append(line)
            if len(line) <= MAX_LENGTH:
                self._words[line] = None
        if len(self._words) > MAX_LINES:
            self._words.clear()
        return ChunkWords([*found, self._find_words(b"\n".join(fresh))], self._find_split(lines))

    def _find_words(self, text: bytes) -> frozenset[bytes]:
        return self._known.intersection(text.translate(SEPARATORS).split())

    def _find_split(self, lines: list[bytes]) -> frozenset[bytes]:
        size = self._longest + 1
        joined = [a[-size:] + b[:size] for a, b in pairwise(lines) if a[-1:] in WORD_BYTES and b[:1] in WORD_BYTES]
        return self._find_words(b"\n".join(joined))


def remove_digits(words: Iterable[bytes]) -> frozenset[bytes]:
    """The words without digits, and none that consists of digits."""
    return frozenset(word.translate(None, DIGITS) for word in words) - {b""}
