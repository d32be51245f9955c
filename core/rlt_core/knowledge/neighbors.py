"""The lines of one process around a line of a chunk. Lines of other processes are between them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rlt_core.knowledge.lines import MAX_LENGTH, Line, parse_line, split_tag

NEAR = 40
"""Maximum number of lines above or below that are read."""
CONTINUATION = 3
"""Maximum number of lines after the first one of a message."""
NEXT_MESSAGE = ("Traceback", "During handling", "The above exception", 'File "')
"""The beginning of lines that do not continue a message."""


def parse_at(text: bytes, start: int) -> tuple[str, Line]:
    """The line at a position: raw, and parsed."""
    end = text.find(b"\n", start)
    raw = text[start : min(end if end >= 0 else len(text), start + MAX_LENGTH)].decode("utf-8", "replace")
    return raw, parse_line(raw)


def read_above(text: bytes, start: int, process: str) -> Iterator[str]:
    """What the process printed above a line, the nearest first."""
    end = start - 1
    for _ in range(NEAR):
        if end <= 0:
            return
        start = text.rfind(b"\n", 0, end) + 1
        found, content = split_tag(parse_at(text, start)[1])
        if found == process and content.strip():
            yield content
        end = start - 1


def read_continuation(text: bytes, start: int, process: str) -> str:
    """The next lines of a message, joined."""
    return " ".join(each.strip() for each in islice(_read_below(text, start, process), CONTINUATION))


def _read_below(text: bytes, start: int, process: str) -> Iterator[str]:
    for _ in range(NEAR):
        start = text.find(b"\n", start) + 1
        if not 0 < start < len(text):
            return
        found, content = split_tag(parse_at(text, start)[1])
        if found != process:
            continue
        if not content.strip() or content.lstrip().startswith(NEXT_MESSAGE):
            return
        yield content
