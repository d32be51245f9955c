"""The words and operators of a shell script, with their quotes, lines and positions (POSIX XCU 2.3)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlt.convert.draft import ConvertError

OPERATORS = (
    "&>>", "<<-", "<<<", ";;&", "&&", "||", ";;", ";&", "|&", ">>", "<<", ">&", "<&", "&>", ">|", "<>", ";", "|", "&",
    "<", ">", "(", ")", "\n",
)  # fmt: skip
ENDS = frozenset(("&&", "||", ";;", ";&", ";;&", ";", "|", "|&", "&", "(", ")", "\n"))
"""Operators that end a command. The others redirect."""
STARTING = frozenset(("if", "then", "else", "elif", "while", "until", "do", "{", "!", "time", "for"))
"""Words after which a command starts, or the (( of an arithmetic loop."""
ARRAY = re.compile(r"(?<!\w)[A-Za-z_]\w*\+?=")


@dataclass(frozen=True)
class Word:
    """A word as it is written, or an operator."""

    text: str
    line: int
    start: int
    end: int
    operator: bool = False
    document: str | None = None
    """The content of the here-document after << or <<-."""
    literal: bool = False
    """Whether the here-document is not expanded."""


def split_words(text: str, first_line: int = 1) -> list[Word]:
    """The words and operators of a script, without comments. Raises ConvertError for quotes that are not closed."""
    return _Lexer(text, first_line).read_all()


class _Lexer:
    def __init__(self, text: str, line: int, position: int = 0) -> None:
        self.text = text
        self.line = line
        self.position = position
        self.words: list[Word] = []
        self.starts = True
        self.in_test = False
        self.pending: list[int] = []

    def read_all(self, until_closing: bool = False) -> list[Word]:
        """Read to the end, or to the ) that closes a substitution or an array."""
        depth = 0
        while self.position < len(self.text):
            char = self.text[self.position]
            if self.text.startswith("\\\n", self.position):
                self.position += 2
                self.line += 1
            elif char in " \t\r":
                self.position += 1
            elif char == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            elif self.in_test and char == "\n":
                self.position += 1
                self.line += 1
            elif self.starts and (arithmetic := self._find_arithmetic_end()):
                self._add(arithmetic)
            elif not self.in_test and (operator := self._find_operator()):
                if until_closing and operator == ")" and depth == 0:
                    self.position += 1
                    return self.words
                depth += (operator == "(") - (operator == ")" and depth > 0)
                self._add_operator(operator)
            else:
                start_line = self.line
                start = self.position
                self.position = self._find_word_end()
                self._append(Word(self.text[start : self.position], start_line, start, self.position))
        if until_closing:
            raise ConvertError(f"line {self.line}: ( is not closed: close it, or remove the lines after it.")
        return self.words

    def _find_operator(self) -> str | None:
        return next((each for each in OPERATORS if self.text.startswith(each, self.position)), None)

    def _find_arithmetic_end(self) -> int | None:
        if not self.text.startswith("((", self.position):
            return None
        end = self.text.find("))", self.position)
        return end + 2 if end > 0 and "\n\n" not in self.text[self.position : end] else None

    def _add(self, end: int) -> None:
        text = self.text[self.position : end]
        self._append(Word(text, self.line, self.position, end))
        self.line += text.count("\n")
        self.position = end

    def _append(self, word: Word) -> None:
        self.words.append(word)
        if self.starts and word.text == "[[":
            self.in_test = True
        elif word.text == "]]":
            self.in_test = False
        self.starts = word.text in STARTING or (self.starts and ARRAY.match(word.text) is not None)
        redirect = self.words[-2] if len(self.words) > 1 else None
        if redirect and redirect.operator and redirect.text in ("<<", "<<-"):
            self.pending.append(len(self.words) - 2)

    def _add_operator(self, operator: str) -> None:
        self.words.append(Word(operator, self.line, self.position, self.position + len(operator), operator=True))
        self.position += len(operator)
        self.starts = operator in ENDS
        if operator == "\n":
            self.line += 1
            for index in self.pending:
                self._read_document(index)
            self.pending = []

    def _read_document(self, index: int) -> None:
        """Read the here-document of an operator, whose mark is the word after it."""
        operator = self.words[index]
        mark = self.words[index + 1].text
        tabs = "\t*" if operator.text == "<<-" else ""
        plain = re.sub(r"[\\'\"]", "", mark)
        last = re.compile(rf"^[ \t]*{re.escape(plain)}[ \t\r]*$", re.MULTILINE).search(self.text, self.position)
        content = self.text[self.position : last.start() if last else len(self.text)]
        stop = last.end() if last else len(self.text)
        self.line += self.text.count("\n", self.position, stop)
        self.position = stop
        content = re.sub(rf"^{tabs}", "", content, flags=re.MULTILINE) if tabs else content
        self.words[index] = Word(
            operator.text, operator.line, operator.start, operator.end, True, content, literal=plain != mark
        )

    def _find_word_end(self) -> int:
        """Position after the word that starts here. Counts its lines."""
        start = self.position
        position = start
        text = self.text
        while position < len(text):
            char = text[position]
            if char == "\\" and position + 1 < len(text):
                self.line += text[position + 1] == "\n"
                position += 2
            elif char in "'\"" or text.startswith(("$(", "`", "${"), position):
                end = find_end(text, position, self.line)
                self.line += text.count("\n", position, end)
                position = end
            elif char == "(" and (ARRAY.fullmatch(text[start:position]) or text[position - 1] in "@?*+!"):
                lexer = _Lexer(text, self.line, position + 1)
                lexer.read_all(until_closing=True)
                self.line = lexer.line
                position = lexer.position
            elif char in " \t\r\n" or (char in ";|&<>()" and (not self.in_test or text[start:position] == "]]")):
                break
            else:
                position += 1
        return max(position, start + 1)


def find_end(text: str, position: int, line: int) -> int:
    """Position after the quotes, `$(…)`, `$((…))`, `${…}` or backticks that start here. Raises ConvertError."""
    char = text[position]
    if char == "'":
        end = text.find("'", position + 1)
        return end + 1 if end >= 0 else _fail(line, "the quote '")
    if char == "`":
        end = text.find("`", position + 1)
        return end + 1 if end >= 0 else _fail(line, "`")
    if char == '"':
        return _find_quote_end(text, position, line)
    if text.startswith("$((", position):
        end = _find_balanced(text, position + 1, "(", ")", line)
        if text[end - 2 : end] == "))":
            return end
    if text.startswith("$(", position):
        lexer = _Lexer(text, line, position + 2)
        lexer.read_all(until_closing=True)
        return lexer.position
    return _find_balanced(text, position + 1, "{", "}", line)


def _find_quote_end(text: str, position: int, line: int) -> int:
    end = position + 1
    while end < len(text) and text[end] != '"':
        if text[end] == "\\":
            end += 2
        elif text.startswith(("$(", "${"), end) or text[end] == "`":
            end = find_end(text, end, line)
        else:
            end += 1
    return end + 1 if end < len(text) else _fail(line, 'the quote "')


def _find_balanced(text: str, position: int, opening: str, closing: str, line: int) -> int:
    depth = 0
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 1
        elif char in "'\"" and depth:
            position = find_end(text, position, line) - 1
        depth += (char == opening) - (char == closing)
        position += 1
        if depth == 0:
            return position
    return _fail(line, opening)


def _fail(line: int, what: str) -> int:
    raise ConvertError(f"line {line}: {what} is not closed: close it, or remove the lines after it.")
