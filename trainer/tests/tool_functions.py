"""User-defined tools of the tests."""

from __future__ import annotations

import time


def look_up(word: str, limit: int = 3) -> dict[str, int]:
    """Look up a word.

    Args:
        word: The word.
        limit: Maximum number of results.
    """
    if word == "raise":
        raise KeyError("no such word")
    if word == "hang":
        time.sleep(3600)
    return {word: limit}


def undescribed(word):  # type: ignore[no-untyped-def]
    return word
