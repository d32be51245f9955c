"""The variables and arrays that a script sets: NAME=VALUE, NAME+=VALUE, NAME=(…), NAME[…]=VALUE, export and declare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from rlt.convert.expansion import expand, expand_text
from rlt.convert.grammar import Case, Group, If, List, Loop, Node, Simple
from rlt.convert.recorder import Recorder
from rlt.convert.scope import Assignment
from rlt.convert.substitutions import MAX_ITEMS, is_inline
from rlt.convert.text import EXPANSION, SECRET, requote, reveal, show, show_source
from rlt.convert.words import Word, split_words

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^]]*)\])?(\+?)=(.*)", re.DOTALL)
DECLARING = ("export", "declare", "readonly", "local", "typeset")
MAX_LENGTH = 65536
"""Maximum length of a value."""


def declare(recorder: Recorder, words: list[Word], node: Simple) -> None:
    """export, declare, readonly, local and typeset."""
    kind = words[0].text
    options = [word.text for word in words[1:] if word.text.startswith("-")]
    exporting = kind == "export" or any("x" in option for option in options)
    if kind != "export" or options:
        recorder.note(recorder.get_source(node), "a declaration: the value is read", node.line)
    for word in words[1:]:
        match = ASSIGNMENT.fullmatch(word.text)
        if match is not None:
            assign(recorder, word, match)
            if exporting:
                recorder.script.exported[match[1]] = word.line
        elif re.fullmatch(r"[A-Za-z_]\w*", word.text) and exporting:
            recorder.script.exported[word.text] = word.line
            if word.text not in recorder.scope.variables and word.text not in recorder.scope.unknown:
                recorder.note(
                    f"export {word.text}", "its value is not in the script: set it in spec.cluster.env", word.line
                )


def expand_value(recorder: Recorder, text: str, line: int) -> str:
    return requote(expand_text(text, line, recorder.scope), quoted=True)


def assign(recorder: Recorder, word: Word, match: re.Match[str]) -> None:
    name = match[1]
    value = match[4]
    what = show_source(f"{name}={'…' if SECRET.search(name) else value}")
    if value.startswith("(") and value.endswith(")"):
        _assign_array(recorder, name, value, bool(match[3]), word)
    elif match[2] is not None:
        _assign_item(recorder, name, match[2], value, word)
    else:
        _assign_text(recorder, name, value, bool(match[3]), word)
    assignment = Assignment(name, what, word.line)
    if match[3] and (before := recorder.scope.assignments.get(name)):
        assignment.is_read = False
        before.is_read = True
    items = recorder.scope.arrays.get(name, [])
    is_whole = any(EXPANSION.fullmatch(each) for each in items)
    if recorder.scope.variables.get(name) == "" or recorder.scope.arrays.get(name) == []:
        recorder.note(what, "it is empty", word.line)
    if name in recorder.scope.unknown or is_whole or not all(map(is_inline, items)):
        recorder.note(what, "the machine of the script computes it: it is not in the script", word.line)
        assignment.is_read = True
    shown = show(recorder.scope.variables.get(name, "")[:MAX_LENGTH])
    assignment.value = shown if "$" in what and shown != value else ""
    recorder.script.assignments.append(assignment)
    recorder.scope.assignments[name] = assignment


def _assign_array(recorder: Recorder, name: str, value: str, is_added: bool, word: Word) -> None:
    before = recorder.scope.arrays.get(name, []) if is_added else []
    items: list[str] = []
    for each in split_words(value[1:-1], word.line):
        if not each.operator:
            keyed = re.fullmatch(r"\[[^]]+\]=(.*)", each.text, re.DOTALL)
            items += expand(replace(each, text=keyed[1]) if keyed else each, recorder.scope)
    recorder.scope.variables.pop(name, None)
    if len(before) + len(items) > MAX_ITEMS:
        recorder.scope.arrays.pop(name, None)
        recorder.scope.unknown[name] = f"line {word.line}: an array with {len(before) + len(items)} items"
        return
    recorder.scope.arrays[name] = [*before, *items]
    recorder.scope.unknown.pop(name, None)


def _assign_item(recorder: Recorder, name: str, index: str, value: str, word: Word) -> None:
    items = recorder.scope.arrays.setdefault(name, [])
    number = reveal(expand_text(index, word.line, recorder.scope))
    text = expand_value(recorder, value, word.line)
    if number.isdigit() and int(number) <= len(items):
        items[int(number) : int(number) + 1] = [text]
    else:
        recorder.scope.arrays.pop(name)
        recorder.scope.unknown[name] = f"line {word.line}: {show(word.text)}"


def _assign_text(recorder: Recorder, name: str, value: str, is_added: bool, word: Word) -> None:
    text = expand_value(recorder, value, word.line)
    if is_added and name in recorder.scope.arrays:
        recorder.scope.arrays[name] = [*recorder.scope.arrays[name], text]
        return
    if is_added:
        text = recorder.scope.variables.get(name, "") + text
    recorder.scope.arrays.pop(name, None)
    own = [expansion for _, expansion in EXPANSION.findall(text)]
    refers_to_itself = any(re.fullmatch(rf"\$\{{?{name}\b.*", each) for each in own)
    if is_inline(text) and not refers_to_itself and len(text) <= MAX_LENGTH:
        recorder.scope.variables[name] = text
        recorder.scope.unknown.pop(name, None)
    else:
        recorder.scope.variables.pop(name, None)
        recorder.scope.unknown[name] = f"line {word.line}: {show(value[:MAX_LENGTH])}"


def read_variables(recorder: Recorder, words: list[str], document: str | None, node: Simple) -> None:
    """read NAME: from a here-document, or unknown."""
    names = [each for each in words[1:] if re.fullmatch(r"[A-Za-z_]\w*", each)]
    for index, name in enumerate(names):
        if document is not None and len(names) == 1 and words[0] == "read":
            recorder.scope.variables[name] = document.strip()
            recorder.scope.unknown.pop(name, None)
        else:
            recorder.scope.unknown[name] = f"line {node.line}: {show(' '.join(words))}"
        if index == len(names) - 1:
            recorder.scope.assignments.pop(name, None)
    known = document is not None and len(names) == 1
    why = f"its text is the value of {names[0]}" if known else "it reads variables"
    recorder.note(recorder.get_source(node), why, node.line)


def unset(recorder: Recorder, words: list[str], line: int) -> None:
    """unset NAME …"""
    for each in words[1:]:
        scope = recorder.scope
        for values in (scope.variables, scope.arrays, scope.unknown, recorder.script.exported):
            values.pop(each, None)
    recorder.note(" ".join(map(show, words)), "the variables are not set in the job", line)


def mark_unknown(recorder: Recorder, body: List, source: str) -> None:
    """Variables without a value that a branch sets have an unknown one."""
    for word in list_assignments(body):
        match = ASSIGNMENT.fullmatch(word.text)
        if match and match[1] not in recorder.scope.variables and match[1] not in recorder.scope.arrays:
            recorder.scope.unknown[match[1]] = source


def list_assignments(node: Node) -> Iterator[Word]:
    """The words that set variables in a part of a script."""
    if isinstance(node, List):
        for item in node.items:
            for command in item.commands:
                yield from list_assignments(command)
    elif isinstance(node, Simple):
        start = 1 if node.words and node.words[0].text in DECLARING else 0
        for word in node.words[start:]:
            if not ASSIGNMENT.fullmatch(word.text):
                return
            yield word
    elif isinstance(node, Group | Loop):
        yield from list_assignments(node.body)
    elif isinstance(node, If):
        for _, body in node.branches:
            yield from list_assignments(body)
        if node.otherwise is not None:
            yield from list_assignments(node.otherwise)
    elif isinstance(node, Case):
        for _, body in node.branches:
            yield from list_assignments(body)
