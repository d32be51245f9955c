"""Suggestions for misspelled names, with the standard library alone."""

from __future__ import annotations

from collections.abc import Iterable


def find_nearest_word(word: str, words: Iterable[str], *, max_distance: int) -> str | None:
    """Return the word with the smallest edit distance to `word`, the first of several; None above `max_distance`."""
    best = max_distance + 1
    found = None
    for each in words:
        if (distance := edit_distance(word, each, limit=best)) < best:
            best = distance
            found = each
    return found


def edit_distance(one: str, other: str, *, limit: int) -> int:
    """Count the insertions, deletions, substitutions and swaps of neighbors between two words, up to `limit`.

    Optimal string alignment: https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance
    """
    if abs(len(one) - len(other)) >= limit:
        return limit
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before = last
        last = row
        if min(*before, *last) >= limit:
            return limit
    return min(last[-1], limit)
