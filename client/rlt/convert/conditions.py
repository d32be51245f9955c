"""The conditions of a script: [ …, [[ … and ((…)), with three values. None is unknown: it depends on the machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from rlt.convert.expansion import MACHINE, expand_text
from rlt.convert.grammar import Group, Item, List, Node, Simple
from rlt.convert.scope import Scope
from rlt.convert.substitutions import compute
from rlt.convert.text import is_known, reveal, show
from rlt.convert.words import Word

NUMBERS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
OPERATORS = ("=", "==", "!=", "=~", "<", ">", *NUMBERS)
FILES = re.compile(r"-[abcdefghkprstuwxGLNOS]")


class _Unreadable(ValueError):
    """A test in another form."""


def find_status(node: Node, scope: Scope) -> bool | None:
    """Whether commands succeed, as far as the script alone shows it."""
    if isinstance(node, List):
        status: bool | None = True
        for item in node.items:
            status = _join(status, item, scope)
        return status
    if isinstance(node, Group):
        return find_status(node.body, scope)
    if isinstance(node, Item):
        status = find_status(node.commands[-1], scope) if len(node.commands) == 1 else None
        return status if status is None or not node.negated else not status
    if isinstance(node, Simple) and node.words:
        return _find_command_status(node.words, scope)
    return None


def _join(status: bool | None, item: Item, scope: Scope) -> bool | None:
    found = find_status(item, scope)
    if item.connector == "&&":
        return False if status is False or found is False else None if None in (status, found) else True
    if item.connector == "||":
        return True if status is True or found is True else None if None in (status, found) else False
    return found


def _find_command_status(words: Sequence[Word], scope: Scope) -> bool | None:
    first = words[0].text
    if first in ("true", ":"):
        return True
    if first == "false":
        return False
    if first.startswith("((") and len(words) == 1:
        text = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\}?", r"${\1}", first[2:-2])
        value = compute(expand_text(text, words[0].line, scope, in_test=True))
        return None if value is None else value not in ("0", "False")
    closing = {"[": "]", "[[": "]]"}.get(first)
    if closing is None and first != "test":
        return None
    inner = words[1:-1] if closing and words[-1].text == closing else words[1:]
    try:
        return _Test(list(inner), scope, is_pattern=first == "[[").read_all()
    except _Unreadable:
        return None


def describe_condition(node: List, scope: Scope) -> str:
    """The condition with the values of the script, for a comment."""
    words = [word for item in node.items for each in item.commands for word in getattr(each, "words", ())]
    return " ".join(show(expand_text(word.text, word.line, scope, in_test=True)) or "''" for word in words)


class _Test:
    def __init__(self, words: list[Word], scope: Scope, is_pattern: bool) -> None:
        self.words = words
        self.scope = scope
        self.is_pattern = is_pattern
        self.index = 0

    def read_all(self) -> bool | None:
        if not self.words:
            return False
        value = self.read_or()
        if self.index < len(self.words):
            raise _Unreadable
        return value

    def peek(self) -> str:
        return self.words[self.index].text if self.index < len(self.words) else ""

    def read_or(self) -> bool | None:
        value = self.read_and()
        while self.peek() in ("||", "-o"):
            self.index += 1
            other = self.read_and()
            value = True if value is True or other is True else None if None in (value, other) else False
        return value

    def read_and(self) -> bool | None:
        value = self.read_not()
        while self.peek() in ("&&", "-a"):
            self.index += 1
            other = self.read_not()
            value = False if value is False or other is False else None if None in (value, other) else True
        return value

    def read_not(self) -> bool | None:
        if self.peek() == "!":
            self.index += 1
            value = self.read_not()
            return None if value is None else not value
        if self.peek() in ("(", r"\("):
            self.index += 1
            value = self.read_or()
            if self.peek() not in (")", r"\)"):
                raise _Unreadable
            self.index += 1
            return value
        return self.read_primary()

    def take(self) -> Word:
        if self.index >= len(self.words):
            raise _Unreadable
        self.index += 1
        return self.words[self.index - 1]

    def expand(self, word: Word) -> str:
        return expand_text(word.text, word.line, self.scope, in_test=True)

    def read_primary(self) -> bool | None:
        first = self.take()
        following = self.peek()
        if first.text in ("-z", "-n"):
            if not following or following in ("&&", "||", "-a", "-o"):
                return first.text == "-z"
            value = self.expand(self.take())
            return (not value) == (first.text == "-z") if is_known(value) else None
        if first.text == "-v" and following:
            name = self.take().text
            return True if self.scope.get(name) is not None else None if MACHINE.search(name) else False
        if FILES.fullmatch(first.text) and following and following not in OPERATORS:
            self.take()
            return None
        if following in OPERATORS:
            operator = self.take().text
            other = self.take()
            while operator == "=~" and self.peek() and self.peek() not in ("&&", "||"):
                self.take()
                operator = "unknown"
            return self.compare(self.expand(first), operator, other)
        value = self.expand(first)
        return bool(value) if is_known(value) else None

    def compare(self, value: str, operator: str, word: Word) -> bool | None:
        other = self.expand(word)
        if not is_known(value) or not is_known(other):
            return None
        if operator in NUMBERS:
            left = compute(value)
            right = compute(other)
            if left is None or right is None:
                return None
            return compute(f"{left} {NUMBERS[operator]} {right}") == "1"
        left_text = reveal(value)
        right_text = reveal(other)
        if operator in ("=", "==", "!="):
            is_glob = self.is_pattern and not word.text.startswith(("'", '"'))
            equal = (
                fnmatchcase(left_text, right_text) if is_glob and right_text.count("*") < 4 else left_text == right_text
            )
            return equal == (operator != "!=")
        if operator == "=~" and re.fullmatch(r"\^?[\w.,/|() \[\]-]{0,40}[+*]?\$?", right_text):
            try:
                return re.search(right_text, left_text) is not None
            except re.error:
                return None
        return None
