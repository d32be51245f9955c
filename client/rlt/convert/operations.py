"""What ${NAME…} makes of a value: a part, other text in it, upper and lower case (POSIX XCU 2.6.2, bash(1))."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate

from rlt.convert.substitutions import compute
from rlt.convert.text import is_known, reveal


def change(value: str, operation: re.Match[str], expand: Callable[[str], str]) -> str | None:
    """${NAME#…}, ${NAME%…}, ${NAME/…/…}, ${NAME:…}, ${NAME,,} and ${NAME^^} of a known value.

    `expand` expands a text in them.
    """
    if not is_known(value):
        return None
    operator = operation[1]
    argument = operation[2]
    if operator in ("^^", ",,"):
        return value.upper() if operator == "^^" else value.lower()
    if operator in ("^", ","):
        return (value[:1].upper() if operator == "^" else value[:1].lower()) + value[1:]
    if operator == ":":
        bounds = [compute(expand(each)) for each in argument.split(":")]
        if None in bounds or len(bounds) > 2:
            return None
        numbers = [int(each) for each in bounds if each is not None]
        rest = value[numbers[0] :]
        return rest[: numbers[1]] if len(numbers) == 2 else rest
    if operator in ("/", "//"):
        pattern, _, replacement = argument.partition("/")
        found = _translate(expand(pattern))
        new = expand(replacement)
        return re.sub(found, lambda _: new, value, count=0 if operator == "//" else 1) if found else None
    found = _translate(expand(argument))
    if found is None:
        return None
    positions = range(len(value) + 1)
    if operator.startswith("#"):
        ends = [end for end in positions if re.fullmatch(found, value[:end])]
        return value[(max(ends) if operator == "##" else min(ends)) :] if ends else value
    starts = [start for start in positions if re.fullmatch(found, value[start:])]
    return value[: (min(starts) if operator == "%%" else max(starts))] if starts else value


def _translate(pattern: str) -> str | None:
    """A pattern of the shell as a regular expression. None with unknown parts, or for one with many stars."""
    if not is_known(pattern) or pattern.count("*") > 3:
        return None
    return translate(reveal(pattern)).removesuffix(r"\Z").removesuffix(r"\z")
