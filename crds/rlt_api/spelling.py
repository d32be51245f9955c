"""Did you mean: the nearest of some words, without a library."""

from __future__ import annotations

from collections.abc import Iterable


def nearest_word(word: str, words: Iterable[str], *, most: int) -> str | None:
    """The word at the least distance from `word`, if it is at most `most`; the first of several."""
    best, found = most + 1, None
    for each in words:
        if (far := distance(word, each, most=best)) < best:
            best, found = far, each
    return found


def distance(one: str, other: str, *, most: int) -> int:
    """Insertions, deletions, substitutions and swaps of neighbours that make `other` out of `one`, or `most` if more.

    Optimal string alignment: https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance
    """
    if abs(len(one) - len(other)) >= most:
        return most
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
        if min(*before, *last) >= most:
            return most
    return min(last[-1], most)
