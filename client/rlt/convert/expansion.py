"""The values of words: quotes, variables, arrays, arithmetic and simple substitutions (POSIX XCU 2.6, bash(1)).

What the script does not have stays in the word as an expansion. Nothing is executed.
"""

from __future__ import annotations

import re

from rlt.convert.draft import ConvertError
from rlt.convert.grammar import List, Simple, parse_script
from rlt.convert.operations import change
from rlt.convert.scope import Assignment, Scope
from rlt.convert.substitutions import compute, find_output
from rlt.convert.text import EXPANSION, SECRET, is_known, keep, protect, requote, reveal, split_fields
from rlt.convert.words import Word, find_end

NAME = re.compile(r"\$([A-Za-z_]\w*|[@*#?$!0-9-])")
INNER = re.compile(r"([A-Za-z_]\w*|[@*#?0-9]|[1-9]\d+)(?:\[([^]]+)\])?(.*)", re.DOTALL)
LENGTH = re.compile(r"#([A-Za-z_]\w*|[@*])(?:\[[@*]\])?")
OPERATION = re.compile(r"(:?[-=+?]|##?|%%?|//?|\^\^?|,,?|:)(.*)", re.DOTALL)
MACHINE = re.compile(
    r"^(SLURM_|CUDA_|CONDA_|RAY_|PBS_|LSB_|OMPI_|ARNOLD_|MLP_|PET_|KUBERNETES_|VIRTUAL_ENV|DLC_)"
    r"|^(HOME|USER|PATH|PWD|OLDPWD|HOSTNAME|UID|TMPDIR|SHELL|LD_LIBRARY_PATH|PYTHONPATH|HOST|IP)$"
    r"|(^|_)(ADDR|ADDRESS|PORT|RANK|NODELIST|WORLD_SIZE|NNODES|HOST_IP|NODE_IP|HEAD_IP)$"
)
"""Variables that the machine may set. Their values are unknown also where they are not set in the script."""
SCRIPT_FOLDER = re.compile(r"""dirname\s+(--\s+)?["']?\$(0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(\[0\])?\})["']?\s*""")
SAFE = re.compile(r"[\w./:=@%+,-]*")


def expand(word: Word, scope: Scope) -> list[str]:
    """The words that a word becomes."""
    return _Expander(scope, word.line).expand(word.text)


def expand_text(text: str, line: int, scope: Scope, in_test: bool = False) -> str:
    """The one value of a word, without splitting. `in_test`: a variable without a value is empty."""
    return " ".join(_Expander(scope, line, split=False, in_test=in_test).expand(text))


def expand_document(text: str, line: int, scope: Scope) -> str:
    """The content of a here-document."""
    return _Expander(scope, line, split=False).expand_quoted(text)


class _Expander:
    def __init__(self, scope: Scope, line: int, split: bool = True, in_test: bool = False) -> None:
        self.scope = scope
        self.line = line
        self.split = split
        self.in_test = in_test
        self.fields: list[str] = []
        self.current: list[str] | None = None

    def expand(self, text: str) -> list[str]:
        self._read(text)
        self._finish_field()
        return self.fields

    def expand_quoted(self, text: str) -> str:
        self._read(text, quoted=True)
        return "".join(self.current or [])

    def _append(self, text: str) -> None:
        if self.current is None:
            self.current = []
        self.current.append(text)

    def _finish_field(self) -> None:
        if self.current is not None:
            self.fields.append("".join(self.current))
        self.current = None

    def _read(self, text: str, quoted: bool = False) -> None:
        position = 0
        if not quoted and (text == "~" or text.startswith("~/")):
            self._append_unknown("$HOME", quoted=True)
            position = 1
        while position < len(text):
            char = text[position]
            end = position + 1
            if char == "\\" and end < len(text):
                end += 1
                following = text[position + 1]
                if quoted and following not in '$`"\\\n':
                    self._append("\\" + following)
                elif following != "\n":
                    self._append(protect(following))
            elif char == "'" and not quoted:
                end = find_end(text, position, self.line)
                self._append(protect(text[position + 1 : end - 1]))
            elif text.startswith("$'", position) and not quoted:
                end = find_end(text, position + 1, self.line)
                self._append(protect(text[position + 2 : end - 1].replace("\\n", "\n").replace("\\'", "'")))
            elif char == '"' and not quoted:
                end = find_end(text, position, self.line)
                inner = text[position + 1 : end - 1]
                if inner not in ("$@", "${@}", "${@:1}") and not re.fullmatch(r"\$\{\w+\[@\]\S*\}", inner):
                    self._append("")
                self._read(inner, quoted=True)
            elif text.startswith(("$(", "${"), position) or char == "`":
                end = find_end(text, position, self.line)
                self._expand_braces(text[position:end], quoted)
            elif char == "$" and (match := NAME.match(text, position)):
                end = match.end()
                self._expand_name(match[1], match[0], quoted)
            else:
                self._append(protect(char))
            position = end

    def _append_value(self, value: str, quoted: bool) -> None:
        """A known value: split into words unless it is in quotes."""
        if quoted or not self.split:
            self._append(requote(value, quoted))
            return
        parts = split_fields(value)
        if value[:1].isspace() and parts:
            self._finish_field()
        for index, part in enumerate(parts):
            if index:
                self._finish_field()
            self._append(requote(part, False))
        if value[-1:].isspace() and parts:
            self._finish_field()

    def _append_items(self, items: list[str], quoted: bool) -> None:
        for index, item in enumerate(items):
            if index:
                self._finish_field() if self.split else self._append(" ")
            if quoted:
                self._append(item)
            else:
                self._append_value(item, quoted)

    def _append_unknown(self, text: str, quoted: bool) -> None:
        self._append(keep(text, quoted))

    def _expand_name(self, name: str, written: str, quoted: bool) -> None:
        if name in "@*":
            self._append_arguments(self.scope.positional, f"${name}", quoted)
        elif name == "#":
            self._append(str(len(self.scope.positional)))
        elif name.isdigit() and name != "0":
            self._append_value(self._get_argument(int(name), f"${name}"), quoted)
        elif name in "?$!-0":
            self._append_unknown(written, quoted)
        elif (value := self._get(name)) is not None:
            self._append_value(value, quoted)
        else:
            self._append_unknown(written, quoted)

    def _get(self, name: str) -> str | None:
        value = self.scope.get(name)
        if value is None and self.in_test and name not in self.scope.unknown:
            return None if MACHINE.search(name) or SECRET.search(name) else ""
        return value

    def _get_argument(self, number: int, written: str) -> str:
        if number <= len(self.scope.positional):
            self.scope.read.add(number)
            return self.scope.positional[number - 1]
        if not self.in_test:
            self.scope.empty.append((written, self.line))
        return ""

    def _append_arguments(self, items: list[str], written: str, quoted: bool) -> None:
        self.scope.read.update(range(1, len(self.scope.positional) + 1))
        if not items and not self.in_test:
            self.scope.empty.append((written, self.line))
        self._append_items(items, quoted)

    def _expand_braces(self, text: str, quoted: bool) -> None:
        """$((…)), $(…), `…` or ${…}."""
        if text.startswith("$((") and text.endswith("))"):
            written = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\}?", r"${\1}", text[3:-2])
            inner = expand_text(written, self.line, self.scope, self.in_test)
            value = compute(inner)
            if value is not None:
                self._append(value)
            else:
                self._append_unknown(f"$(({reveal(inner)}))", quoted)
        elif text.startswith("${"):
            self._expand_parameter(text, quoted)
        else:
            inner = text[1:-1] if text[0] == "`" else text[2:-1]
            value = self._substitute(inner)
            if value is not None:
                self._append_value(value, quoted)
            else:
                self._append_unknown(f"$({self._rewrite(inner)})", quoted)

    def _substitute(self, inner: str) -> str | None:
        """The output of a substitution that needs no machine. None for others."""
        if (
            document := re.fullmatch(r"\s*cat\s*<<-?\s*(['\"]?)(\w+)\1\n(.*)\n[ \t]*\2\s*", inner, re.DOTALL)
        ) is not None:
            content = document[3]
            return protect(content) if document[1] else expand_document(content, self.line, self.scope)
        if SCRIPT_FOLDER.fullmatch(inner.strip()):
            self.scope.folder.append(self.line)
            return "."
        try:
            parsed = parse_script(inner, self.line)
        except (ConvertError, RecursionError):
            return None
        command = _get_only_command(parsed)
        if command is None:
            return None
        words = [each for word in command.words for each in expand(word, self.scope)]
        if not words or not all(map(is_known, words)):
            return None
        return find_output(words, self.scope.directory)

    def _rewrite(self, inner: str) -> str:
        """A substitution with the values of the script's variables, which the pods do not have."""

        def replace(match: re.Match[str]) -> str:
            value = self.scope.get(match[1] or match[2])
            return reveal(value) if value is not None and SAFE.fullmatch(reveal(value)) else match[0]

        parts = re.split(r"('[^']*')", inner)
        return "".join(
            part if part.startswith("'") else re.sub(r"\$(?:(\w+)|\{(\w+)\})", replace, part) for part in parts
        )

    def _expand_parameter(self, text: str, quoted: bool) -> None:
        inner = text[2:-1]
        if length := LENGTH.fullmatch(inner):
            self._append_length(length[1], text, quoted)
            return
        match = INNER.fullmatch(inner)
        if match is None:
            self._append_unknown(text, quoted)
            return
        name = match[1]
        index = match[2]
        rest = match[3]
        operation = OPERATION.fullmatch(rest) if rest else None
        if rest and operation is None:
            self._append_unknown(text, quoted)
        elif index in ("@", "*") or name in "@*":
            self._expand_items(name, index or name, text, operation, quoted)
        elif operation is not None and operation[1].lstrip(":") in ("-", "=", "+", "?"):
            self._expand_default(name, index, text, operation, quoted)
        else:
            value = self._find(name, index)
            changed = value if value is None or operation is None else change(value, operation, self._expand_inner)
            if changed is None:
                self._append_unknown(text if value is None else self._inline(text, name, value), quoted)
            else:
                self._append_value(changed, quoted)

    def _expand_inner(self, text: str) -> str:
        return expand_text(text, self.line, self.scope)

    def _inline(self, text: str, name: str, value: str) -> str:
        expansions = EXPANSION.findall(value)
        return expansions[0][1] if len(expansions) == 1 and EXPANSION.fullmatch(value) else text

    def _find(self, name: str, index: str | None) -> str | None:
        if name.isdigit() and name != "0":
            return self._get_argument(int(name), f"${name}")
        if index is None:
            return self._get(name)
        items = self.scope.get_items(name)
        number = expand_text(index, self.line, self.scope)
        number = compute(number) or number
        if items is None or not re.fullmatch(r"-?\d+", number) or any(not is_known(each) for each in items):
            return None
        position = int(number)
        return items[position] if -len(items) <= position < len(items) else ""

    def _append_length(self, name: str, text: str, quoted: bool) -> None:
        items = self.scope.positional if name in "@*" else self.scope.get_items(name)
        if items is None or not all(map(is_known, items)):
            self._append_unknown(text, quoted)
        elif name in self.scope.arrays or name in "@*":
            self._append(str(len(items)))
        else:
            self._append(str(len(items[0])))

    def _expand_items(self, name: str, index: str, text: str, operation: re.Match[str] | None, quoted: bool) -> None:
        items = self.scope.positional if name in "@*" else self.scope.get_items(name)
        if items is None:
            self._append_unknown(text, quoted)
            return
        if operation is not None and operation[1] in (":-", "-", ":+", "+"):
            wanted = (not items) == (operation[1][-1] == "-")
            if wanted:
                self._read(operation[2], quoted)
            elif operation[1][-1] == "-":
                self._append_items(items, quoted)
            return
        if operation is not None:
            bounds = [compute(expand_text(each, self.line, self.scope)) for each in operation[2].split(":")]
            if operation[1] != ":" or None in bounds:
                self._append_unknown(text, quoted)
                return
            numbers = [int(each) for each in bounds if each is not None]
            start = numbers[0] - (name in "@*" and numbers[0] > 0)
            items = items[start:] if len(numbers) == 1 else items[start : start + numbers[1]]
        if name in "@*":
            self._append_arguments(items, f"${{{text[2:-1]}}}", quoted)
        elif index == "*" and quoted:
            self._append(" ".join(items))
        else:
            self._append_items(items, quoted)

    def _expand_default(self, name: str, index: str | None, text: str, operation: re.Match[str], quoted: bool) -> None:
        operator = operation[1]
        if name in self.scope.unknown or SECRET.search(name):
            self._append_unknown(text, quoted)
            return
        is_missing = name.isdigit() and int(name) > len(self.scope.positional)
        value = None if is_missing else self._find(name, index)
        given = value is not None and (bool(value) or not operator.startswith(":"))
        if operator.endswith("+"):
            if given:
                self._read(operation[2], quoted)
        elif given:
            self._append_value(value or "", quoted)
        elif operator.endswith("?"):
            self._append_unknown(f"${{{name}}}", quoted)
        elif operator.endswith("="):
            default = expand_text(operation[2], self.line, self.scope)
            self.scope.variables[name] = default
            self.scope.assignments[name] = Assignment(name, text, self.line, is_read=True)
            self._append_value(default, quoted)
        elif quoted:
            self._read(operation[2].replace('"', ""), quoted)
        else:
            self._append_value(expand_text(operation[2], self.line, self.scope), quoted) if self.split else self._read(
                operation[2]
            )


def _get_only_command(parsed: List) -> Simple | None:
    """The command, if the script is one without redirections."""
    if len(parsed.items) == 1 and len(parsed.items[0].commands) == 1:
        command = parsed.items[0].commands[0]
        if isinstance(command, Simple) and not command.redirects:
            return command
    return None
