"""Shell scripts: the commands that run, with the values of their words, and what is not followed.

The reader follows POSIX's and bash's grammar (grammar.py) and expansions (expansion.py): functions with their
arguments, loops over known words, conditions that the script itself decides. Nothing is executed.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace
from fnmatch import fnmatchcase

from rlt.convert.assignments import (
    ASSIGNMENT,
    DECLARING,
    assign,
    declare,
    expand_value,
    mark_unknown,
    read_variables,
    unset,
)
from rlt.convert.conditions import describe_condition, find_status
from rlt.convert.expansion import expand, expand_text
from rlt.convert.grammar import (
    Case,
    Function,
    Group,
    If,
    Item,
    List,
    Loop,
    Node,
    Simple,
    parse_script,
)  # fmt: skip
from rlt.convert.recorder import Recorder
from rlt.convert.script_content import Command, Script, Skipped
from rlt.convert.text import is_known, reveal, show
from rlt.convert.words import Word

__all__ = ["Command", "Script", "Skipped", "read_script", "reveal"]

MAX_DEPTH = 12
"""Maximum number of functions and scripts inside each other."""
MAX_RUNS = 256
"""Maximum number of times that the body of a loop is read."""


class _Ended(Exception):
    """The script ends here."""


def read_script(
    text: str,
    variables: dict[str, str] | None = None,
    first_line: int = 1,
    followed: Collection[tuple[int, int]] = (),
    directory: str = "",
    positional: Collection[str] = (),
) -> Script:
    """Read a script. `variables` are set before it. Parts whose line and position are in `followed` are read although
    their condition is unknown. Raises ConvertError for quotes and commands that are not closed."""
    script = Script()
    script.scope.variables.update(variables or {})
    script.scope.directory = directory
    script.scope.positional = list(positional)
    reader = _Reader(script, text, followed)
    with contextlib.suppress(_Ended):
        reader.run_list(parse_script(text, first_line))
    for name, function in script.scope.functions.items():
        if name not in reader.called:
            raw = reader.get_source(function)
            script.notes.append((raw, "the function is not called", function.line))
    for assignment in script.assignments:
        if not assignment.is_read and assignment.name not in script.exported:
            value = f": {assignment.value}" if assignment.value else ""
            script.notes.append((assignment.what, f"nothing in the job uses it{value}", assignment.line))
    for written, line in dict.fromkeys(script.scope.empty):
        why = "the job has no arguments of a script: add them to the command"
        script.notes.append((f'"{written}"', why, line))
    for line in dict.fromkeys(script.scope.folder):
        why = "it is the working directory here: set spec.framework.workingDirectory to it"
        script.notes.append(("the folder of the script", why, line))
    return script


class _Reader(Recorder):
    def __init__(self, script: Script, text: str, followed: Collection[tuple[int, int]]) -> None:
        super().__init__(script, text)
        self.followed = followed
        self.called: set[str] = set()
        self.depth = 0
        self.runs = 0
        self.branches = 0
        """Number of conditions around a command."""

    def run_list(self, commands: List) -> None:
        status: bool | None = True
        for item in commands.items:
            text = f"{item.connector} {self.get_source(item)}"
            if item.connector and status is None and not self.is_followed(item):
                self.skip(item, text, "it depends on the command before it: it is not followed", item.line)
                continue
            if item.connector and status is not None and status != (item.connector == "&&"):
                self.skip(item, text, "the command before it decides that it does not run", item.line)
                continue
            self.branches += bool(item.connector)
            status = self.run_item(item)
            self.branches -= bool(item.connector)

    def is_followed(self, node: Node) -> bool:
        return (node.line, node.start) in self.followed

    def run_item(self, item: Item) -> bool | None:
        outer = self.background
        self.background = outer or item.background
        for index, command in enumerate(item.commands):
            self.run(command, piped=index > 0)
        self.background = outer
        last = item.commands[-1]
        is_test = isinstance(last, Simple) and bool(last.words) and last.words[0].text in ("[", "[[", "test", "false")
        is_test = is_test or (isinstance(last, Simple) and bool(last.words) and last.words[0].text.startswith("(("))
        is_probe = isinstance(last, Simple) and bool(last.words) and last.words[0].text in ("command", "which", "grep")
        return find_status(item, self.scope) if is_test else None if is_probe else True

    def run(self, node: Node, piped: bool = False) -> None:
        if isinstance(node, Simple):
            self.run_simple(node, piped)
        elif isinstance(node, Group):
            self.run_group(node)
        elif isinstance(node, If):
            self.run_if(node)
        elif isinstance(node, Loop):
            self.run_loop(node)
        elif isinstance(node, Case):
            self.run_case(node)
        elif isinstance(node, Function):
            self.scope.functions[node.name] = node

    def run_group(self, node: Group) -> None:
        outer = self.output
        self.output = " ".join(filter(None, (self.show_redirects(node.redirects), outer)))
        if node.subshell:
            directory = self.scope.directory
            variables = dict(self.scope.variables)
            self.run_list(node.body)
            self.scope.directory = directory
            self.scope.variables = variables
        else:
            self.run_list(node.body)
        self.output = outer

    def run_if(self, node: If) -> None:
        self.branches += 1
        self.run_branches(node)
        self.branches -= 1

    def run_branches(self, node: If) -> None:
        keyword = "if"
        taken = False
        for condition, body in node.branches:
            written = f"{keyword} {self.get_source(condition)}"
            keyword = "elif"
            if taken:
                self.skip(body, f"{written}; then {self.get_source(body)}", "another branch is taken", condition.line)
                continue
            status = find_status(condition, self.scope)
            shown = describe_condition(condition, self.scope)
            if self.is_followed(body):
                why = f"it depends on the machine: {shown}: the training is in this branch"
                self.note(written, why, condition.line)
                taken = True
                self.run_list(body)
            elif status is None:
                mark_unknown(self, body, f"the condition in line {condition.line}")
                why = f"it depends on the machine: {shown}: it is not followed"
                self.skip(body, f"{written}; then {self.get_source(body)}", why, condition.line)
                taken = taken or keyword == ""
                if node.otherwise is not None:
                    mark_unknown(self, node.otherwise, f"the condition in line {condition.line}")
                for other, inner in node.branches[node.branches.index((condition, body)) + 1 :]:
                    self.skip(inner, f"elif {self.get_source(other)}; then {self.get_source(inner)}", why, other.line)
                    if self.is_followed(inner):
                        self.run_list(inner)
                if node.otherwise is not None:
                    self.skip_or_follow(node.otherwise, why)
                return
            elif status:
                self.note(written, f"it is true with the values of the script: {shown}", condition.line)
                taken = True
                self.run_list(body)
            else:
                why = f"it is false with the values of the script: {shown}"
                self.skip(body, f"{written}; then {self.get_source(body)}", why, condition.line)
        if node.otherwise is not None:
            if taken:
                text = f"else {self.get_source(node.otherwise)}"
                self.skip(node.otherwise, text, "another branch is taken", node.otherwise.line)
            else:
                self.run_list(node.otherwise)

    def skip_or_follow(self, body: List, why: str) -> None:
        if self.is_followed(body):
            self.run_list(body)
        else:
            self.skip(body, f"else {self.get_source(body)}", why, body.line)

    def run_case(self, node: Case) -> None:
        value = expand_text(node.word.text, node.line, self.scope, in_test=True)
        taken = False
        head = f"case {node.word.text} in"
        for patterns, body in node.branches:
            text = f"{head} {'|'.join(each.text for each in patterns)}) {self.get_source(body)}"
            if is_known(value):
                texts = [reveal(expand_text(each.text, each.line, self.scope)) for each in patterns]
                matches = not taken and any(fnmatchcase(reveal(value), each) for each in texts if each.count("*") < 4)
            else:
                matches = self.is_followed(body)
            if matches:
                taken = True
                written = "|".join(each.text for each in patterns)
                self.note(f"{head} {written})", f"it is {show(value)}: this branch is taken", node.line)
                self.branches += 1
                self.run_list(body)
                self.branches -= 1
            else:
                if not is_known(value):
                    mark_unknown(self, body, f"the case in line {node.line}")
                why = (
                    f"it is {show(value)}: another branch is taken" if is_known(value) else "it depends on the machine"
                )
                self.skip(body, text, why, patterns[0].line if patterns else node.line)

    def run_loop(self, node: Loop) -> None:
        items = None
        if node.words is not None:
            items = [each for word in node.words for each in expand(word, self.scope)]
            items = items if all(map(is_known, items)) else None
        status = None
        if node.condition is not None:
            status = find_status(node.condition, self.scope)
            status = status if status is None or not node.until else not status
        if items and self.runs + len(items) <= MAX_RUNS:
            self.run_iterations(node, items)
        elif items == [] or status is False:
            self.skip(node, self.get_source(node), "its body does not run with the values of the script", node.line)
        elif self.is_followed(node):
            self.note(node.head, "the training is in this loop: its body is read once", node.line)
            if node.name:
                self.scope.unknown[node.name] = f"the loop in line {node.line}"
            self.run_list(node.body)
        else:
            mark_unknown(self, node.body, f"the loop in line {node.line}")
            self.skip(node, self.get_source(node), "a loop whose values are not in the script", node.line)

    def run_iterations(self, node: Loop, items: list[str]) -> None:
        outer = self.loop
        shown = ", ".join(map(show, items))
        self.note(f"loop over {node.name} in {shown}", "each value has its own commands", node.line)
        for item in items:
            self.runs += 1
            self.scope.variables[node.name] = item
            self.scope.arrays.pop(node.name, None)
            self.scope.unknown.pop(node.name, None)
            self.loop = outer or (node.name, show(item), node.line)
            self.run_list(node.body)
        self.loop = outer

    def run_simple(self, node: Simple, piped: bool) -> None:
        words = list(node.words)
        environment: dict[str, str] = {}
        assignments: list[tuple[Word, re.Match[str]]] = []
        while words and (match := ASSIGNMENT.fullmatch(words[0].text)):
            assignments.append((words.pop(0), match))
        if not words:
            for word, match in assignments:
                assign(self, word, match)
            if node.redirects:
                self.note(self.get_source(node), "a file of the machine", node.line)
            return
        if words[0].text in DECLARING:
            declare(self, words, node)
            return
        for word, match in assignments:
            environment[match[1]] = expand_value(self, match[4], word.line)
        before = len(self.scope.empty)
        expanded = [each for word in words for each in expand(word, self.scope)]
        if not expanded:
            return
        if expanded[0] in self.scope.functions and self.depth < MAX_DEPTH:
            self.call(expanded, environment, node)
            return
        self.run_builtin(node, expanded, environment, piped, before)

    def run_builtin(
        self, node: Simple, words: list[str], environment: dict[str, str], piped: bool, before: int
    ) -> None:
        name = words[0]
        text = self.get_source(node)
        document = self.get_document(node.redirects)
        if name in (":", "true"):
            self.note(text, "it sets defaults, and runs nothing", node.line)
        elif name in ("[", "[[", "test", "false") or name.startswith("(("):
            condition = describe_condition(List(node.line, 0, 0, (Item(node.line, 0, 0, (node,)),)), self.scope)
            self.note(text, f"a condition: {condition}", node.line)
        elif name in ("cd", "pushd") and is_known(words[-1]) and len(words) > 1:
            target = posixpath.normpath(posixpath.join(self.scope.directory, reveal(words[-1])))
            self.scope.directory = target if target.startswith("/") else ""
            self.note(" ".join(map(show, words)), "a folder of the machine", node.line)
        elif name in ("cd", "pushd"):
            self.scope.directory = ""
            self.note(" ".join(map(show, words)), "a folder of the machine", node.line)
        elif name == "unset":
            unset(self, words, node.line)
        elif name in ("exit", "return") and self.depth == 0 and self.loop is None and not self.background:
            if self.branches and words[1:] != ["0"]:
                why = "the script ends here without these values: the job needs them"
                self.note(" ".join(map(show, words)), why, node.line)
                return
            self.note(" ".join(map(show, words)), "the script ends here", node.line)
            raise _Ended
        elif name == "shift":
            count = int(words[1]) if len(words) > 1 and words[1].isdigit() else 1
            self.scope.positional = self.scope.positional[count:]
            self.note(" ".join(map(show, words)), "the job has no arguments of a script", node.line)
        elif name == "set" and len(words) > 1 and words[1] == "--":
            self.scope.positional = words[2:]
            self.note(" ".join(map(show, words)), "arguments that the script sets", node.line)
        elif name in ("read", "mapfile", "readarray"):
            read_variables(self, words, document, node)
        elif name == "eval":
            inner = read_script(reveal(" ".join(words[1:])), self.get_values(), node.line, (), self.scope.directory)
            self.note(text, "its commands are read", node.line)
            self.adopt(inner, self.show_redirects(node.redirects))
        else:
            self.record(node, words, environment, piped, document)

    def call(self, words: list[str], environment: dict[str, str], node: Simple) -> None:
        """Run a function with its arguments."""
        function = self.scope.functions[words[0]]
        self.called.add(words[0])
        positional = self.scope.positional
        read = self.scope.read
        self.scope.positional = words[1:]
        self.scope.read = set()
        self.depth += 1
        first = len(self.script.commands)
        before = deepcopy(self.scope.variables)
        self.scope.variables.update(environment)
        if isinstance(function.body, Group):
            self.run_list(function.body.body)
        else:
            self.run(function.body)
        for name in environment:
            if name in before:
                self.scope.variables[name] = before[name]
            else:
                self.scope.variables.pop(name, None)
        output = self.show_redirects(node.redirects)
        for index in range(first, len(self.script.commands)):
            command = self.script.commands[index]
            self.script.commands[index] = replace(
                command,
                environment={**environment, **command.environment},
                background=command.background or self.background,
                redirects=" ".join(filter(None, (command.redirects, output))),
            )
        self.depth -= 1
        unread = [show(word) for number, word in enumerate(words[1:], 1) if number not in self.scope.read]
        if unread:
            self.note(f"{words[0]} {' '.join(unread)}", "the function does not read these arguments", node.line)
        self.scope.positional = positional
        self.scope.read = read
