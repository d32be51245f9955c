"""The commands of a task as a launch script, with the lines of the file that they are from."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import Any

from rlt.convert.draft import ConvertError, Draft
from rlt.convert.environment import apply_environment
from rlt.convert.launch import list_launches
from rlt.convert.preparation import apply_others
from rlt.convert.reader import Json, write_number
from rlt.convert.script import NO_PROGRAM, convert_script
from rlt.convert.shell import read_script

NODES = "the number of nodes"
"""A comment of convert_script."""


@dataclass
class TaskScript:
    """A script, and for each of its lines the line of the file."""

    text: list[str] = field(default_factory=list)
    lines: list[int | None] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """The variables of the task."""
    assigned: set[str] = field(default_factory=set)
    """The variables of the scheduler."""

    def assign(self, name: str, value: Any) -> None:
        """Set a variable of the scheduler, whose value the task gives."""
        if isinstance(value, int):
            self.assigned.add(name)
            self._append(f"{name}={value}", None)

    def export(self, name: str, value: Any, line: int | None) -> None:
        """Set a variable of the task."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        text = write_number(value) if isinstance(value, float) else text
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            self.variables[name] = text
            self._append(f"export {name}={shlex.quote(text)}", line)

    def add(self, text: str, line: int | None) -> None:
        """Add commands. A block of several lines begins below its key."""
        rows = text.rstrip("\n").split("\n")
        below = 1 if text.endswith("\n") else 0
        for index, row in enumerate(rows):
            self.text.append(row)
            self.lines.append(line + below + index if line else None)

    def find_line(self, number: int | None) -> int | None:
        """The line of the file."""
        return self.lines[number - 1] if number and number <= len(self.lines) else None

    def _append(self, text: str, line: int | None) -> None:
        for row in text.split("\n"):
            self.text.append(row)
            self.lines.append(line)


def apply_script(draft: Draft, script: TaskScript, key: str, to: str) -> None:
    """Convert the commands as a launch script, and merge the result into the job. What the task gives stays."""
    try:
        found = convert_script("\n".join(script.text), to)
    except ConvertError as error:
        _explain(draft, script, key, str(error))
        return
    _add_notes(draft, found, script)
    draft.name = draft.name or found.name
    draft.spec = _merge(found.spec, draft.spec)


def _explain(draft: Draft, script: TaskScript, key: str, error: str) -> None:
    """A task without a training is its cluster. Other errors are the source's."""
    match = re.match(r"line (\d+): (.*)", error, re.DOTALL)
    if match is None or not match[2].startswith(NO_PROGRAM):
        line = script.find_line(int(match[1])) if match else None
        raise ConvertError(f"line {line or 1}: in {key}: {match[2] if match else error}")
    apply_environment(draft, script.variables, {})
    draft.leave_out("the program", f"{key} has no training that is known: set spec.framework.command")
    found = Draft()
    read = read_script("\n".join(script.text))
    apply_others(found, [(each, True) for each in list_launches(read)], "verl")  # runtimeEnv needs a command
    for what, why, line in read.notes:
        found.leave_out(what, why, line or None)
    _add_notes(draft, found, script)
    draft.spec = _merge(found.spec, draft.spec)


def _add_notes(draft: Draft, found: Draft, script: TaskScript) -> None:
    for note in found.left_out:
        if note.what.partition("=")[0] in script.assigned or note.what == NODES:
            continue  # they are the scheduler's, and the task gives the nodes
        draft.leave_out(note.what, note.why, script.find_line(note.line))


def _merge(base: Json, changes: Json) -> Json:
    """Merge two objects: the values of `changes`, and of lists of objects the first ones."""
    merged = dict(base)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = _merge(before, value)
        elif key == "workers" and isinstance(before, list):
            merged[key] = [_merge(before[0], value[0]), *before[1:]]
        else:
            merged[key] = value
    return merged
