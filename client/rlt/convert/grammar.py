"""The commands of a shell script as a tree (POSIX XCU 2.9, with bash's functions, [[ and arithmetic loops)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rlt.convert.draft import ConvertError
from rlt.convert.words import Word, split_words

CLOSING = frozenset(("then", "else", "elif", "fi", "do", "done", "esac", "}"))
"""Reserved words that end a list of commands."""
SEPARATORS = (";", "\n", "&")
FUNCTION_NAME = re.compile(r"[A-Za-z_][\w:.-]*")


@dataclass(frozen=True)
class Redirect:
    operator: Word
    target: Word | None
    descriptor: str = ""


@dataclass(frozen=True)
class Node:
    """A part of a script, from `start` to `end`."""

    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Simple(Node):
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True)
class Item(Node):
    """A pipeline in a list."""

    commands: tuple[Node, ...]
    connector: str = ""
    """&& or || before it."""
    negated: bool = False
    background: bool = False


@dataclass(frozen=True)
class List(Node):
    items: tuple[Item, ...]


@dataclass(frozen=True)
class If(Node):
    branches: tuple[tuple[List, List], ...]
    otherwise: List | None


@dataclass(frozen=True)
class Loop(Node):
    """for NAME in WORDS, for ((…)), while or until. `words` is None without a list of words."""

    head: str
    """The loop without its body."""
    body: List
    name: str = ""
    words: tuple[Word, ...] | None = None
    condition: List | None = None
    until: bool = False


@dataclass(frozen=True)
class Case(Node):
    word: Word
    branches: tuple[tuple[tuple[Word, ...], List], ...]


@dataclass(frozen=True)
class Function(Node):
    name: str
    body: Node


@dataclass(frozen=True)
class Group(Node):
    body: List
    subshell: bool
    redirects: tuple[Redirect, ...] = ()


def parse_script(text: str, first_line: int = 1) -> List:
    """Parse a script. Raises ConvertError with the line of what is not closed or not expected."""
    parser = _Parser(text, split_words(text, first_line))
    found = parser.read_list()
    if (word := parser.peek()) is not None:
        raise ConvertError(
            f"line {word.line}: {word.text.strip() or 'a line'} is not expected here: correct the script."
        )
    return found


class _Parser:
    def __init__(self, text: str, words: list[Word]) -> None:
        self.text = text
        self.words = words
        self.index = 0

    def peek(self, offset: int = 0) -> Word | None:
        index = self.index + offset
        return self.words[index] if index < len(self.words) else None

    def is_operator(self, *texts: str) -> bool:
        word = self.peek()
        return word is not None and word.operator and word.text in texts

    def is_word(self, *texts: str) -> bool:
        word = self.peek()
        return word is not None and not word.operator and word.text in texts

    def take(self) -> Word:
        word = self.words[self.index]
        self.index += 1
        return word

    def expect(self, text: str, opening: Word) -> Word:
        word = self.peek()
        if word is None or word.text != text:
            raise ConvertError(f"line {opening.line}: {opening.text} has no {text}: correct the script.")
        return self.take()

    def skip_lines(self) -> None:
        while self.is_operator("\n"):
            self.take()

    def read_list(self) -> List:
        """Commands up to a word or operator that closes the list."""
        items: list[Item] = []
        connector = ""
        first = self.peek()
        while True:
            while self.is_operator("\n", ";"):
                self.take()
            word = self.peek()
            if word is None or self.is_operator(")", ";;", ";&", ";;&") or self.is_word(*CLOSING):
                break
            item = self.read_pipeline(connector)
            connector = ""
            if self.is_operator("&"):
                background = self.take()
                item = Item(item.line, item.start, background.end, item.commands, item.connector, item.negated, True)
            elif self.is_operator("&&", "||"):
                connector = self.take().text
                self.skip_lines()
            items.append(item)
        line = first.line if first else 1
        start = items[0].start if items else 0
        return List(line, start, items[-1].end if items else start, tuple(items))

    def read_pipeline(self, connector: str) -> Item:
        first = self.peek()
        assert first is not None
        negated = False
        while self.is_word("!", "time"):
            if self.take().text == "!":
                negated = not negated
        commands = [self.read_command(first)]
        while self.is_operator("|", "|&"):
            pipe = self.take()
            self.skip_lines()
            commands.append(self.read_command(pipe))
        return Item(first.line, first.start, commands[-1].end, tuple(commands), connector, negated)

    def read_command(self, before: Word) -> Node:
        word = self.peek()
        if word is None or (word.operator and word.text in (")", "|", "|&", "&&", "||", "&", ";", ";;", "\n")):
            raise ConvertError(f"line {before.line}: a command is missing after {before.text}: correct the script.")
        if word.operator and word.text == "(":
            self.take()
            body = self.read_list()
            return self.finish(Group(word.line, word.start, self.expect(")", word).end, body, subshell=True))
        if not word.operator:
            if word.text == "{":
                self.take()
                body = self.read_list()
                return self.finish(Group(word.line, word.start, self.expect("}", word).end, body, subshell=False))
            readers: dict[str, Callable[[Word], Node]] = {
                "if": self.read_if, "for": self.read_for, "select": self.read_for, "case": self.read_case,
                "while": self.read_while, "until": self.read_while, "function": self.read_function,
            }  # fmt: skip
            if reader := readers.get(word.text):
                return self.finish(reader(self.take()))
            following = self.peek(1)
            closing = self.peek(2)
            if (
                following and closing and following.operator and following.text == "("
                and closing.operator and closing.text == ")" and FUNCTION_NAME.fullmatch(word.text)
            ):  # fmt: skip
                return self.read_function(word)
        return self.read_simple(word)

    def finish(self, node: Node) -> Node:
        """Read the redirections after a compound command."""
        redirects = self.read_redirects()
        if redirects and isinstance(node, Group):
            end = (redirects[-1].target or redirects[-1].operator).end
            return Group(node.line, node.start, end, node.body, node.subshell, redirects)
        return node

    def read_redirects(self) -> tuple[Redirect, ...]:
        found = []
        while (redirect := self.read_redirect()) is not None:
            found.append(redirect)
        return tuple(found)

    def read_redirect(self) -> Redirect | None:
        word = self.peek()
        following = self.peek(1)
        descriptor = ""
        is_number = word is not None and not word.operator and word.text.isdigit()
        if word and following and is_number and word.end == following.start and set(following.text) & set("<>"):
            descriptor = self.take().text
            word = following
        if word is None or not word.operator or not set(word.text) & set("<>"):
            return None
        operator = self.take()
        target = self.peek()
        if target is None or target.operator:
            return Redirect(operator, None, descriptor)
        return Redirect(operator, self.take(), descriptor)

    def read_simple(self, first: Word) -> Node:
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            if (redirect := self.read_redirect()) is not None:
                redirects.append(redirect)
                continue
            word = self.peek()
            if word is None or word.operator:
                break
            words.append(self.take())
        if not words and not redirects:
            word = self.peek()
            what = word.text if word else "the end"
            raise ConvertError(f"line {first.line}: {what} is not expected here: correct the script.")
        ends = [word.end for word in words] + [(each.target or each.operator).end for each in redirects]
        return Simple(first.line, first.start, max(ends), tuple(words), tuple(redirects))

    def read_if(self, opening: Word) -> Node:
        branches = []
        condition = self.read_list()
        self.expect("then", opening)
        branches.append((condition, self.read_list()))
        otherwise = None
        while self.is_word("elif"):
            self.take()
            condition = self.read_list()
            self.expect("then", opening)
            branches.append((condition, self.read_list()))
        if self.is_word("else"):
            self.take()
            otherwise = self.read_list()
        return If(opening.line, opening.start, self.expect("fi", opening).end, tuple(branches), otherwise)

    def read_for(self, opening: Word) -> Node:
        name = self.peek()
        if name is None or name.operator:
            raise ConvertError(f"line {opening.line}: {opening.text} has no variable: correct the script.")
        self.take()
        words: list[Word] | None = None
        self.skip_lines()
        if self.is_word("in"):
            self.take()
            words = []
            while (word := self.peek()) is not None and not word.operator:
                words.append(self.take())
        head_end = self.words[self.index - 1].end
        while self.is_operator(";", "\n"):
            self.take()
        closing = "}" if self.is_word("{") else "done"
        self.expect("{" if closing == "}" else "do", opening)
        body = self.read_list()
        end = self.expect(closing, opening).end
        head = self.text[opening.start : head_end]
        listed = None if words is None else tuple(words)
        return Loop(opening.line, opening.start, end, head, body, name.text, listed)

    def read_while(self, opening: Word) -> Node:
        condition = self.read_list()
        self.expect("do", opening)
        body = self.read_list()
        end = self.expect("done", opening).end
        head = self.text[opening.start : condition.end]
        return Loop(opening.line, opening.start, end, head, body, condition=condition, until=opening.text == "until")

    def read_case(self, opening: Word) -> Node:
        word = self.peek()
        if word is None or word.operator:
            raise ConvertError(f"line {opening.line}: case has no word: correct the script.")
        self.take()
        self.skip_lines()
        self.expect("in", opening)
        branches = []
        self.skip_lines()
        while not self.is_word("esac"):
            if self.is_operator("("):
                self.take()
            patterns = []
            while (pattern := self.peek()) is not None and not (pattern.operator and pattern.text == ")"):
                self.take()
                if not pattern.operator:
                    patterns.append(pattern)
            self.expect(")", opening)
            branches.append((tuple(patterns), self.read_list()))
            if self.is_operator(";;", ";&", ";;&"):
                self.take()
            self.skip_lines()
            if self.peek() is None:
                break
        return Case(opening.line, opening.start, self.expect("esac", opening).end, word, tuple(branches))

    def read_function(self, first: Word) -> Node:
        name = first
        if first.text == "function":
            found = self.peek()
            if found is None or found.operator:
                raise ConvertError(f"line {first.line}: function has no name: correct the script.")
            name = found
        self.take()
        if self.is_operator("("):
            self.take()
            self.expect(")", first)
        self.skip_lines()
        body = self.read_command(first)
        return Function(first.line, first.start, body.end, name.text, body)
