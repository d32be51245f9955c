"""The values of commands that only compute: integers, folders and names, and sequences. Nothing is executed."""

from __future__ import annotations

import posixpath
import re

from rlt.convert.text import EXPANSION, reveal

INLINE = ("date", "seq", "echo", "printf", "basename", "dirname", "realpath", "uuidgen", "nproc", "expr", "whoami")
"""Commands whose substitutions have their value in the pods, too."""
CALCULATION = re.compile(r"[0-9+*/%()<>=!&|\s-]+")
MAX_ITEMS = 4096
"""Maximum number of words of a sequence, and of items of an array."""


def find_output(words: list[str], directory: str) -> str | None:
    """The output of a command that only computes."""
    program = words[0]
    arguments = [each for each in words[1:] if each != "--"]
    if program == "echo" and not any(each.startswith("-") for each in arguments[:1]):
        return " ".join(arguments)
    if program == "pwd" and directory:
        return directory
    if program == "basename" and len(arguments) in (1, 2) and not arguments[0].startswith("-"):
        name = posixpath.basename(arguments[0].rstrip("/"))
        return name.removesuffix(arguments[1]) if len(arguments) == 2 else name
    if program == "dirname" and len(arguments) == 1:
        return posixpath.dirname(arguments[0].rstrip("/")) or "."
    if program == "expr":
        return compute(" ".join(arguments))
    if program == "seq" and all(re.fullmatch(r"-?\d{1,6}", each) for each in arguments) and 1 <= len(arguments) <= 3:
        numbers = [int(each) for each in arguments]
        first = numbers[0] if len(numbers) > 1 else 1
        step = numbers[1] if len(numbers) == 3 else 1
        items = range(first, numbers[-1] + (1 if step > 0 else -1), step) if step else range(0)
        return "\n".join(map(str, items)) if len(items) <= MAX_ITEMS else None
    return None


def compute(text: str) -> str | None:
    """The value of an expression with integers. None if it is another expression."""
    text = reveal(text).strip()
    if not CALCULATION.fullmatch(text) or re.search(
        r"\*\*|<<|>>|\d{19}|(?<![<>=!])=(?!=)|(?<!&)&(?!&)|(?<!\|)\|(?!\|)", text
    ):
        return None
    python = text.replace("/", "//").replace("&&", " and ").replace("||", " or ")
    python = re.sub(r"\b0+(?=\d)", "", re.sub(r"!(?!=)", " not ", python))
    try:
        return str(int(eval(python, {"__builtins__": {}})))  # digits and operators alone
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError, TypeError, ValueError):
        return None


def is_inline(value: str) -> bool:
    """Whether each expansion of a value has its value in the pods, too: a date, and not what the machine has."""
    for _, expansion in EXPANSION.findall(value):
        if expansion.startswith("$((") or not expansion.startswith("$("):
            continue
        inner = expansion.removeprefix("$(").removesuffix(")")
        first = inner.split()[:1]
        if not first or first[0] not in INLINE or "BASH_SOURCE" in inner or "$0" in inner:
            return False
    return True
