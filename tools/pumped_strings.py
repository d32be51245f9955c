"""Strings on which a regular expression that backtracks is slow, made from its own literals and character classes.

A string is a prefix, a part repeated many times, and a suffix after which the match fails. The part is a run of
consecutive elements of the pattern, or of a group within it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

Tree = list[tuple[Any, Any]]

VARIANTS = 4
"""Number of examples of an element: each takes another character of a class and another alternative of a choice."""
MAX_EXAMPLE = 200
"""Maximum length of a repeated part."""
SUFFIXES = ("", "\0", "\n ")
SHORT = (8, 14, 20)
"""Repetitions of strings that show exponential growth before it takes long. One ratio of two times can be large where a
bounded repetition begins or ends, two in a row cannot."""
LENGTHS = (32, 128, 512, 2048, 8192)
"""Characters of the strings. Each is four times as long as the one before."""
MAX_RATIO = 8
"""Maximum ratio of the times for the last two lengths: 4 if linear, 16 if quadratic. Between shorter ones, a bounded
repetition has other ratios."""
MAX_STEEP_RATIO = 30
"""Maximum ratio of the times for two pairs of SHORT, 2 if linear and 64 if 2**n, and for two pairs of LENGTHS, 64 if
cubic: longer texts would take minutes."""
RUNS = 7
"""Number of runs of a measurement that seems slow. The fastest one counts."""
CATEGORIES = {
    constants.CATEGORY_DIGIT: "0",
    constants.CATEGORY_SPACE: " ",
    constants.CATEGORY_WORD: "a",
    constants.CATEGORY_NOT_DIGIT: "a",
    constants.CATEGORY_NOT_SPACE: "a",
    constants.CATEGORY_NOT_WORD: "-",
}
ANY = "a -\\0/"
"""Characters to try where a pattern accepts most of them."""

MIN_S = 1e-6
"""Shortest time of a search: a kernel that samples the clock of a thread can show none."""


def find_slow_text(pattern: re.Pattern[Any], method: str = "finditer") -> str | None:
    """Return a description of a text for which the time of `pattern.method(text)` grows faster than linearly.

    `method` is finditer, match or fullmatch.
    """
    convert: Callable[[str], Any] = str if isinstance(pattern.pattern, str) else lambda text: text.encode("latin-1")

    def measure(pumped: tuple[str, str, str], count: int) -> float:
        prefix, part, suffix = pumped
        text = convert(prefix + part * count + suffix)
        start = time.thread_time()
        found = getattr(pattern, method)(text)
        if method == "finditer":
            for _ in found:
                pass
        return max(time.thread_time() - start, MIN_S)

    def compare(pumped: tuple[str, str, str], short: int, long: int) -> float:
        """The ratio of the times, at most by chance below the ratio of one run."""
        once = measure(pumped, long) / measure(pumped, short)
        if once <= MAX_RATIO:
            return once
        runs = [(measure(pumped, short), measure(pumped, long)) for _ in range(RUNS)]
        return min(long for _, long in runs) / min(short for short, _ in runs)

    def is_slow(pumped: tuple[str, str, str]) -> bool:
        if all(compare(pumped, short, long) > MAX_STEEP_RATIO for short, long in pairwise(SHORT)):
            return True
        counts = [max(1, length // len(pumped[1])) for length in LENGTHS]
        ratio = 0.0
        for short, long in pairwise(counts):
            before = ratio
            ratio = compare(pumped, short, long)
            if min(before, ratio) > MAX_STEEP_RATIO:
                return True
        return ratio > MAX_RATIO

    for pumped in list_pumped(pattern):
        if is_slow(pumped):
            prefix, part, suffix = pumped
            return f"{prefix!r} + n * {part!r} + {suffix!r}"
    return None


def list_pumped(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield prefixes, repeated parts and suffixes, each combination once."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = list(parser.parse(text, pattern.flags & ~re.UNICODE & ~re.DEBUG))
    parts = dict.fromkeys(_list_parts(tree, ""))
    for (prefix, part), suffix in product(parts, SUFFIXES):
        yield prefix, part, suffix


def _list_parts(tree: Tree, before: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a sequence and of the groups in it. `before` is an example of what precedes the sequence."""
    elements = _join_literals(tree)
    for variant in range(VARIANTS):
        examples = [_build_example([each], variant) for each in elements]
        for start in range(len(examples)):
            prefix = before + "".join(examples[:start])
            for end in range(start + 1, len(examples) + 1):
                part = "".join(examples[start:end])
                if 0 < len(part) <= MAX_EXAMPLE:
                    yield from {("", part), (prefix, part)}
    for index, element in enumerate(elements):
        prefix = before + "".join(_build_example([each], 0) for each in elements[:index])
        for child in _list_children(element):
            yield from _list_parts(child, prefix)


def _join_literals(tree: Tree) -> Tree:
    """Join adjacent literal characters to one element (None, text)."""
    joined: Tree = []
    for kind, value in tree:
        if kind is constants.LITERAL and joined and joined[-1][0] is None:
            joined[-1] = (None, joined[-1][1] + chr(value))
        else:
            joined.append((None, chr(value)) if kind is constants.LITERAL else (kind, value))
    return joined


def _list_children(element: tuple[Any, Any]) -> list[Tree]:
    """Sequences within an element."""
    kind, value = element
    if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
        return [list(value[2])]
    if kind is constants.SUBPATTERN:
        return [list(value[3])]
    if kind is constants.BRANCH:
        return [list(each) for each in value[1]]
    if kind in (constants.ASSERT, constants.ASSERT_NOT):
        return [list(value[1])]
    if kind is constants.ATOMIC_GROUP:
        return [list(value)]
    return []


def _build_example(tree: Tree, variant: int) -> str:
    return "".join(_build_element(kind, value, variant) for kind, value in tree)


def _build_element(kind: Any, value: Any, variant: int) -> str:
    if kind is None:
        return str(value)
    if kind is constants.LITERAL:
        return chr(value)
    if kind is constants.NOT_LITERAL:
        choices = ANY.replace(chr(value), "")
        return choices[variant % len(choices)]
    if kind is constants.ANY:
        return ANY[variant % len(ANY)]
    if kind is constants.IN:
        choices = _list_characters(value)
        return choices[variant % len(choices)]
    if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
        least, most, body = value
        return _build_example(list(body), variant) * int(min(max(least, 1), most))
    children = _list_children((kind, value))
    if not children or kind in (constants.ASSERT, constants.ASSERT_NOT):
        return ""
    return _build_example(children[variant % len(children)], variant)


def _list_characters(items: list[tuple[Any, Any]]) -> str:
    """Characters of a class: the first one of each range, and one for each category."""
    if items[0][0] is constants.NEGATE:
        class_ = re.compile(_write_class(items[1:]))
        return "".join(each for each in f"{ANY}\n\"'bc" if not class_.match(each)) or "\x7f"
    found = ""
    for kind, value in items:
        if kind is constants.LITERAL:
            found += chr(value)
        elif kind is constants.RANGE:
            found += chr(value[0])
        else:
            found += CATEGORIES[value]
    return found


def _write_class(items: list[tuple[Any, Any]]) -> str:
    """Write the items of a class as a pattern."""
    names = {
        constants.CATEGORY_DIGIT: r"\d",
        constants.CATEGORY_SPACE: r"\s",
        constants.CATEGORY_WORD: r"\w",
        constants.CATEGORY_NOT_DIGIT: r"\D",
        constants.CATEGORY_NOT_SPACE: r"\S",
        constants.CATEGORY_NOT_WORD: r"\W",
    }
    parts = {
        constants.LITERAL: lambda value: re.escape(chr(value)),
        constants.RANGE: lambda value: f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}",
        constants.CATEGORY: names.__getitem__,
    }
    return "[" + "".join(parts[kind](value) for kind, value in items) + "]"
