"""A canonical form of a world: states that differ only in names are explored once.

uids are replaced by their order of appearance, resourceVersions by their rank, and times by their distance to now.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from datetime import UTC, datetime

HORIZON_S = 3000
"""Times further away than this have the same effect."""
TOKEN = re.compile(
    r"\b(0\d{7})(?:-[a-z]+)?\b|(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)|\"resourceVersion\": \"(\d+)\""
    r"|datetime\.datetime\(([\d, ]+), tzinfo=[^)]*\)"
)

Token = str | float | int


def canonicalize(texts: Sequence[str | int], now: datetime) -> int:
    """A hash of texts and resourceVersions."""
    templates: list[int] = []
    tokens: list[Token] = []
    for text in texts:
        if isinstance(text, int):
            tokens.append(text)
        else:
            template, found = _split(text)
            templates.append(template)
            tokens += found
    ranks = {version: rank for rank, version in enumerate(sorted({each for each in tokens if isinstance(each, int)}))}
    uids: dict[str, int] = {}
    seconds = now.timestamp()
    canonical: list[object] = []
    for each in tokens:
        if isinstance(each, int):
            canonical.append(ranks[each])
        elif isinstance(each, str):
            canonical.append(("uid", uids.setdefault(each, len(uids))))
        else:
            canonical.append(("time", max(-HORIZON_S, min(HORIZON_S, round(each - seconds)))))
    return hash((tuple(templates), tuple(canonical)))


@functools.lru_cache(maxsize=200_000)
def _split(text: str) -> tuple[int, tuple[Token, ...]]:
    """The hash of the text without its tokens, and the tokens: uids, times in seconds, resourceVersions."""
    tokens: list[Token] = []

    def replace(match: re.Match[str]) -> str:
        uid, time, version, parts = match.groups()
        if uid:
            tokens.append(uid)
        elif version:
            tokens.append(int(version))
        elif time:
            tokens.append(datetime.fromisoformat(time).timestamp())
        else:
            fields = map(int, parts.split(", "))
            tokens.append(datetime(*fields, tzinfo=UTC).timestamp())  # type: ignore[arg-type, misc] # up to seconds
        return "\0"

    return hash(TOKEN.sub(replace, text)), tuple(tokens)
