"""The search for one pattern in the text of a log: in each line, and in messages that were wrapped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice

from rlt_core.knowledge.entries import Entry
from rlt_core.knowledge.line_words import ChunkWords, remove_digits
from rlt_core.knowledge.lines import MAX_LENGTH, Line, parse_line, split_tag
from rlt_core.knowledge.neighbors import parse_at, read_continuation
from rlt_core.knowledge.pattern import Pattern

MAX_LINES = 4
"""Maximum number of lines of a wrapped message."""
INTERLEAVED = 12
"""Lines of other processes between two lines of a message."""
NEARBY = 2000
"""Bytes before and after a line that can contain the other lines of its message."""
HARMLESS = ("NCCL INFO", "ERROR: 0 ", " 0 errors", "Retrying in ", "retrying...", ", retrying")
"""Texts of lines that report no failure, or an attempt that is repeated."""
MAX_WRAPPED = 200
"""Maximum number of lines of a log that a pattern is compared with together with the lines around them."""
ADVICE = re.compile(
    r"\b(?:if|in case|whether|unless|look(?:ing)? for|check(?:ing)? for|search for)\b(?:(?![.!?;]\s).){0,200}\Z",
    re.IGNORECASE,
)
"""The beginning of a sentence that names a failure as a possibility."""
MAX_ADVICE = 220
"""Maximum length of this beginning. What is before it is not searched again for each match of a line."""
FAILED_CHECK = re.compile(
    r"\b(?:failed|unable|could not|couldn't|cannot|error)\b[^.!?;:,]{0,40}"
    r"\b(?:to|checking|determining|verifying|check|determine|verify)\s{1,9}\Z",
    re.IGNORECASE,
)
"""What is before "if" in the message of a failed check, whose reason follows a colon: "failed to check if the image
exists: no space left on device"."""
LETTERS = re.compile(r"[A-Za-z_]{2}")
MIN_WRAPPED = 60
"""Minimum number of characters of a line that is continued on the next one."""
EVIDENCE_BEFORE = 200
"""Maximum number of characters before the match in the evidence."""
EVIDENCE_AFTER = 300
"""Maximum number of characters after the match in the evidence."""
MAX_RANKS = 4096
"""Maximum number of lines of a chunk that an entry compares."""


class PatternSearch:
    """The search for one pattern in a log."""

    def __init__(self, entry: Entry, pattern: Pattern) -> None:
        self.entry = entry
        self.pattern = pattern
        self.words = remove_digits(pattern.words)
        self.wrapped_left = MAX_WRAPPED

    def search(self, text: bytes, words: ChunkWords, begin: int = 0) -> Iterator[tuple[int, str, str]]:
        """Find the first line from `begin` that matches; all lines for an entry that compares ranks.

        Yields the position, the line and the evidence.
        """
        if not self.wrapped_left and not any(self.words <= each for each in words.lines):
            return
        word = next((each for each in self.pattern.words if each in text), self.pattern.words[0])
        position = text.find(word, begin)
        position = _find_split_word(text, word, begin) if position < 0 else position
        matches = 0
        while position >= 0 and matches < (MAX_RANKS if self.entry.compares_ranks else 1):
            start = text.rfind(b"\n", 0, position) + 1
            end = text.find(b"\n", position)
            end = len(text) if end < 0 else end
            line = text[max(start, position - MAX_LENGTH) : min(end, position + MAX_LENGTH)]
            if (evidence := self._match(text, start, end, line, words.split)) is not None:
                above = _decode(text[max(0, start - NEARBY) : start])
                if not _is_excluded(_decode(line), above, self.entry):
                    matches += 1
                    yield start, _decode(line), self._continue(text, start, evidence)
            position = text.find(word, max(end, position + 1))

    def _continue(self, text: bytes, start: int, evidence: str) -> str:
        if not self.entry.continued:
            return evidence
        process, _ = split_tag(parse_at(text, start)[1])
        return f"{evidence} {read_continuation(text, start, process)}".strip()

    def _match(self, text: bytes, start: int, end: int, line: bytes, split: frozenset[bytes]) -> str | None:
        evidence = None
        if all(word in line for word in self.pattern.words):
            evidence = _match_line(_decode(line), self.pattern)
        if evidence is None and self.wrapped_left and _has_words_nearby(text, start, end, self.pattern, split):
            self.wrapped_left -= 1
            evidence = _match_wrapped(text, start, end, _decode(line), self.pattern)
        return evidence


def is_harmless(raw: str) -> bool:
    """Whether a line reports no failure."""
    return any(each in raw for each in HARMLESS)


def _is_excluded(raw: str, above: str, entry: Entry) -> bool:
    excluded = is_harmless(raw) or any(each in raw for each in entry.unless)
    return excluded or any(each in above for each in entry.unless_above)


def _match_line(raw: str, pattern: Pattern) -> str | None:
    """The line if it matches; the part around the match if the line is long."""
    match = _find_statement(raw, pattern)
    return match and raw[max(0, match.start() - EVIDENCE_BEFORE) : match.end() + EVIDENCE_AFTER].strip()


def _find_statement(text: str, pattern: Pattern) -> re.Match[str] | None:
    """The first match that is not in advice: "if the state is OOMKilled, raise the limit" reports no failure."""
    for match in pattern.regex.finditer(text):
        begin = max(0, match.start() - MAX_ADVICE)
        advice = ADVICE.search(text, begin, match.start())
        if advice is None or (": " in advice[0] and FAILED_CHECK.search(text, begin, advice.start())):
            return match
    return None


def find_ends(text: bytes, entries: Iterable[Entry]) -> dict[str, int]:
    """Code -> position of the last line that shows that the failure is over."""
    ends = {entry.code: max(text.rfind(each.encode()) for each in entry.until) for entry in entries if entry.until}
    return {code: position for code, position in ends.items() if position >= 0}


def _find_split_word(text: bytes, word: bytes, begin: int) -> int:
    """The position of a word that a line break splits."""
    regex = re.compile(rb"\n?".join(re.escape(word[i : i + 1]) for i in range(len(word))))
    match = regex.search(text, begin)
    return match.start() if match else -1


def _has_words_nearby(text: bytes, start: int, end: int, pattern: Pattern, split: frozenset[bytes]) -> bool:
    """Whether the lines around a line have all words. `split`: the words of the chunk that a line break splits."""
    first = max(0, start - NEARBY)
    last = end + NEARBY
    missing = [word for word in pattern.words if text.find(word, first, last) < 0]
    if not missing or not remove_digits(missing) <= split:
        return not missing
    joined = text[first:last].replace(b"\n", b"")
    return all(word in joined for word in missing)


def _match_wrapped(text: bytes, start: int, end: int, raw: str, pattern: Pattern) -> str | None:
    """The match in the line together with the lines of the same process around it, if they are one wrapped message.

    The first of its lines may be the only one with prefixes.
    """
    line = parse_line(raw)
    lines = [line]
    if not line.starts_message:
        above = reversed(text[max(0, start - NEARBY) : start].splitlines())
        for each in _get_lines(above, lambda each: each.process.startswith(line.process)):
            if len(each.raw) < MIN_WRAPPED:
                break
            lines.insert(0, each)
            if each.starts_message:
                break
    if len(raw) >= MIN_WRAPPED:
        below = text[end + 1 : end + NEARBY].splitlines()
        for each in _get_lines(below, lambda each: line.process.startswith(each.process)):
            if each.starts_message:
                break
            lines.append(each)
            if len(each.raw) < MIN_WRAPPED:
                break
    parts = [each.text for each in lines]
    return _match_parts(parts, "", pattern) or _match_parts([each.strip() for each in parts], " ", pattern)


def _get_lines(neighbors: Iterable[bytes], belongs: Callable[[Line], bool]) -> Iterator[Line]:
    """The nearest lines that belong to the message."""
    near = (parse_line(_decode(each[:MAX_LENGTH])) for each in islice(neighbors, INTERLEAVED))
    return islice(filter(belongs, near), MAX_LINES - 1)


def _match_parts(parts: Sequence[str], separator: str, pattern: Pattern) -> str | None:
    """The match in the joined parts, if it is in several of them and begins with a word."""
    text = separator.join(parts)
    match = _find_statement(text, pattern) if len(parts) > 1 else None
    if match is None:
        return None
    ends = accumulate(len(part) + len(separator) for part in parts[:-1])
    first = next((end for end in ends if match.start() < end), len(text))
    return match[0] if first < match.end() and LETTERS.search(text[match.start() : first]) else None


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")
