"""Patterns of messages: literal text with gaps, and the words that a log must contain for a match."""

from __future__ import annotations

import re
from dataclasses import dataclass

GAP = "…"
"""Any text of one message, in a pattern."""
GAP_LENGTH = 400
"""Maximum number of characters in a gap."""
PARTS = re.compile(rf"{GAP}|<<.*?>>")
WORD = re.compile(r"\w+", re.ASCII)
"""A word of a pattern, and of a log."""
SEPARATORS = bytes(c if c < 0x80 and WORD.match(chr(c)) else ord(" ") for c in range(256))
"""Table of `bytes.translate` that replaces what is not part of a word with a space."""


@dataclass(frozen=True)
class Pattern:
    """A message with variable parts."""

    text: str
    """As in the knowledge base."""
    regex: re.Pattern[str]
    words: tuple[bytes, ...]
    """The whole words of the literal parts, the longest first. A text without one of them does not match."""


def compile_pattern(text: str) -> Pattern:
    """Compile a pattern: literal text, in which … is a gap and <<…>> is a regular expression.

    White space matches any white space, and none beside a gap. Words beside a gap, and the first and the last word, are
    whole words. Raises ValueError if the pattern is not valid or contains no whole word.
    """
    regex = ""
    words = set[str]()
    end = 0
    before = GAP
    for part in [*PARTS.finditer(text), None]:
        after = part[0] if part else GAP
        literal = text[end : part.start() if part else len(text)]
        literal = literal.lstrip() if before == GAP else literal
        literal = literal.rstrip() if after == GAP else literal
        regex += _compile_literal(literal, starts_word=before == GAP, ends_word=after == GAP)
        words |= _find_whole_words(literal, cut_start=before != GAP, cut_end=after != GAP)
        if part:
            regex += f".{{0,{GAP_LENGTH}}}?" if after == GAP else f"(?:{after[2:-2]})"
            end = part.end()
        before = after
    if not words:
        raise ValueError(f"pattern {text!r} contains no whole word: add one")
    try:
        compiled = re.compile(regex, re.ASCII)
    except re.error as error:
        raise ValueError(f"pattern {text!r} is not valid: {error}") from None
    return Pattern(
        text, compiled, tuple(sorted((word.encode() for word in words), key=lambda each: (-len(each), each)))
    )


def _compile_literal(literal: str, *, starts_word: bool, ends_word: bool) -> str:
    escaped = r"\s+".join(map(re.escape, re.split(r"\s+", literal)))
    start = r"(?<!\w)" if starts_word and WORD.match(literal) else ""
    end = r"(?!\w)" if ends_word and literal and WORD.match(literal[-1]) else ""
    return start + escaped + end


def _find_whole_words(literal: str, *, cut_start: bool, cut_end: bool) -> set[str]:
    """The words of a literal part. A regular expression beside it may continue its first or last word."""
    return {
        match[0]
        for match in WORD.finditer(literal)
        if not (cut_start and match.start() == 0) and not (cut_end and match.end() == len(literal))
    }
