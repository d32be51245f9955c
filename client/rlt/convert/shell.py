"""Shell scripts: words with their lines, and the values of variables. Nothing is executed.

The reader follows POSIX's quoting (XCU 2.2), assignments, arrays of bash, ${NAME:-default} and simple arithmetic. What
it cannot compute (command substitutions, unknown variables) stays in the words as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rlt.convert.draft import ConvertError

OPERATORS = ("&&", "||", ";;", ">>", "<<", ">&", "<&", "&>", ";", "|", "&", "<", ">", "(", ")", "\n")
LITERAL = "\ue000"
"""A $ without expansion, a character that scripts do not have (private use)."""
ESCAPES = {"\n": "", "$": LITERAL}
"""Character after a backslash -> what it becomes, if it is not itself."""
ENDS = frozenset(("&&", "||", ";;", ";", "|", "&", "(", ")", "\n"))
"""Operators that end a command."""
RESERVED = ("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "{", "}", "!")
OPENING = ("if", "for", "while", "until", "case")
CLOSING = ("fi", "done", "esac")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
NAME = re.compile(r"\$([A-Za-z_]\w*|[@*#?$!0-9])")
PARAMETER = re.compile(r"([A-Za-z_]\w*)(?:(:?[-=+?])(.*))?", re.DOTALL)


@dataclass(frozen=True)
class Word:
    """A word, in which LITERAL stands for a $ that quotes protect, or an operator."""

    text: str
    line: int
    operator: bool = False


@dataclass(frozen=True)
class Command:
    """A simple command with expanded words, and the variables before it."""

    words: tuple[str, ...]
    line: int
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Script:
    """What a script contains."""

    commands: list[Command] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    exported: dict[str, int] = field(default_factory=dict)
    """Name of an exported variable -> line."""
    conditional: dict[str, int] = field(default_factory=dict)
    """Name of a variable that is set in a condition or a loop -> line."""
    loops: dict[str, int] = field(default_factory=dict)
    """Name of a loop's variable -> line. It has its first value."""


def read_script(text: str, variables: dict[str, str] | None = None, first_line: int = 1) -> Script:
    """Read a script. `variables` are set before it. Raises ConvertError for quotes that are not closed."""
    script = Script(variables=dict(variables or {}))
    depth = 0
    for words in _split_commands(list(split_words(text, first_line))):
        for word in words:
            depth += (word.text in OPENING) - (word.text in CLOSING)
            if word.text not in RESERVED:
                break
        if [each.text for each in words[:1] + words[2:3]] == ["for", "in"] and words[3:]:
            script.variables[words[1].text] = expand(words[3], script)[0]
            script.loops[words[1].text] = words[1].line
            continue
        while words and words[0].text in RESERVED:
            words = words[1:]
        _read_command(script, words, depth > 0)
    return script


def _read_command(script: Script, words: list[Word], conditional: bool) -> None:
    environment: dict[str, str] = {}
    exporting = bool(words) and words[0].text in ("export", "declare", "readonly", "local", "typeset")
    names = words[1:] if exporting else words
    for index, word in enumerate(names):
        match = ASSIGNMENT.fullmatch(word.text)
        if match is None:
            if exporting:
                if word.text in script.variables:
                    script.exported[word.text] = word.line
                continue
            expanded = [each for other in names[index:] for each in expand(other, script)]
            if expanded:
                script.commands.append(Command(tuple(expanded), names[index].line, environment))
            return
        if match[3].startswith("(") and match[3].endswith(")"):
            items = [each.text for each in split_words(match[3][1:-1], word.line) if not each.operator]
            script.arrays[match[1]] = [*(script.arrays.get(match[1], []) if match[2] else []), *items]
            continue
        value = " ".join(expand(Word(match[3], word.line), script))
        environment[match[1]] = (script.variables.get(match[1], "") if match[2] else "") + value
        if exporting and words[0].text == "export":
            script.exported[match[1]] = word.line
        if conditional:
            script.conditional[match[1]] = word.line
    for name, value in environment.items():
        if not (conditional and name in script.variables):
            script.variables[name] = value


def expand(word: Word, script: Script) -> list[str]:
    """The words that a word becomes. An array becomes several."""
    array = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word.text)
    if array and array[1] in script.arrays:
        return [each for item in script.arrays[array[1]] for each in expand(Word(item, word.line), script)]
    return [_expand_text(word.text, word.line, script)]


def _expand_text(text: str, line: int, script: Script) -> str:
    parts = []
    position = 0
    while position < len(text):
        end = position + 1
        if text.startswith("$((", position):
            end = _find_closing(text, position, line)
            expression = re.sub(r"\$?\b([A-Za-z_]\w*)", r"${\1}", text[position + 3 : end - 2])
            value = _compute(_expand_text(re.sub(r"\$\{\$\{(\w+)\}\}", r"${\1}", expression), line, script).strip())
            parts.append(text[position:end] if value is None else value)
        elif text.startswith("$(", position) or text[position] == "`":
            end = _find_closing(text, position, line)
            parts.append(text[position:end])
        elif text.startswith("${", position):
            end = _find_closing(text, position, line)
            parts.append(_expand_parameter(text[position + 2 : end - 1], line, script))
        elif match := NAME.match(text, position):
            end = match.end()
            parts.append(script.variables.get(match[1], match[0]))
        else:
            parts.append(text[position])
        position = end
    return "".join(parts)


def _expand_parameter(inner: str, line: int, script: Script) -> str:
    """The value of ${INNER}. Other forms than NAME, NAME:-WORD and NAME:+WORD stay as they are."""
    match = PARAMETER.fullmatch(inner)
    if match is None:
        return f"${{{inner}}}"
    name = match[1]
    operator = match[2] or ""
    other = re.sub("[\"']", "", match[3] or "")
    value = script.variables.get(name)
    given = value is not None and (bool(value) or not operator.startswith(":"))
    if operator.endswith("+"):
        return _expand_text(other, line, script) if given else ""
    if given:
        return value or ""
    return _expand_text(other, line, script) if operator.endswith(("-", "=")) else f"${{{inner}}}"


def reveal(text: str) -> str:
    """The text with its literal $."""
    return text.replace(LITERAL, "$")


def _compute(text: str) -> str | None:
    """The value of an expression with integers. None if it is another expression."""
    if not re.fullmatch(r"[0-9+*/%() -]+", text) or "**" in text:
        return None
    try:
        return str(int(eval(text.replace("/", "//"), {"__builtins__": {}})))  # digits and operators alone
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _split_commands(words: list[Word]) -> Iterator[list[Word]]:
    """The words of each simple command, without redirections."""
    current: list[Word] = []
    skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word.operator and word.text in ENDS:
            yield current
            current = []
        elif word.operator:
            skip = True
            if current and current[-1].text.isdigit() and index:
                current.pop()  # the file descriptor of 2>file
        else:
            current.append(word)
    yield current


def split_words(text: str, first_line: int) -> Iterator[Word]:
    """The words and operators of a script, without comments and here-documents. Quotes are removed."""
    position = 0
    line = first_line
    pending: list[str] = []
    while position < len(text):
        char = text[position]
        if text.startswith("\\\n", position):
            position += 2
            line += 1
        elif char in " \t\r":
            position += 1
        elif char == "#":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif operator := next((each for each in OPERATORS if text.startswith(each, position)), None):
            position += len(operator)
            yield Word(operator, line, operator=True)
            if operator == "\n":
                line += 1
                for mark in pending:
                    last = re.compile(rf"^[ \t]*{re.escape(mark)}[ \t\r]*$", re.MULTILINE).search(text, position)
                    stop = last.end() if last else len(text)
                    line += text.count("\n", position, stop)
                    position = stop
                pending = []
            elif operator == "<<":
                found = re.compile(r"-?\s*['\"]?(\w+)['\"]?").match(text, position)
                if found:
                    pending.append(found[1])
        else:
            word, position, line = _read_word(text, position, line)
            yield word


def _read_word(text: str, position: int, line: int) -> tuple[Word, int, int]:
    start_line = line
    parts = []
    while position < len(text):
        char = text[position]
        if char == "\\" and position + 1 < len(text):
            parts.append(ESCAPES.get(text[position + 1], text[position + 1]))
            line += text[position + 1] == "\n"
            position += 2
        elif char in "'\"":
            end = _find_quote(text, position, line)
            inner = text[position + 1 : end]
            line += inner.count("\n")
            if char == '"':
                inner = re.sub(r'\\([$`"\\\n])', lambda match: ESCAPES.get(match[1], match[1]), inner)
            else:
                inner = inner.replace("$", LITERAL)
            parts.append(inner)
            position = end + 1
        elif text.startswith(("$(", "`", "${"), position) or (char == "(" and parts and parts[-1].endswith("=")):
            end = _find_closing(text, position, line)
            parts.append(text[position:end])
            line += text.count("\n", position, end)
            position = end
        elif char in " \t\r\n;|&<>()":
            break
        else:
            parts.append(char)
            position += 1
    return Word("".join(parts), start_line), position, line


def _find_quote(text: str, position: int, line: int) -> int:
    """Position of the closing quote."""
    quote = text[position]
    end = position + 1
    while end < len(text) and text[end] != quote:
        end += 2 if quote == '"' and text[end] == "\\" else 1
    if end >= len(text):
        raise ConvertError(f"line {line}: the quote {quote} is not closed: close it, or remove the lines after it.")
    return end


def _find_closing(text: str, position: int, line: int) -> int:
    """Position after a substitution or an array: `$(…)`, `${…}`, `(…)` or backticks."""
    if text[position] == "`":
        end = text.find("`", position + 1)
        if end < 0:
            raise ConvertError(f"line {line}: ` is not closed: close it, or remove the lines after it.")
        return end + 1
    position += text[position] == "$"
    opening = text[position]
    closing = ")" if text[position] == "(" else "}"
    depth = 0
    while position < len(text):
        char = text[position]
        if char in "'\"":
            position = _find_quote(text, position, line)
        depth += (char == opening) - (char == closing)
        position += 1
        if depth == 0:
            return position
    raise ConvertError(f"line {line}: {opening} is not closed: close it, or remove the lines after it.")
