"""Logs on standard output: as they come, or an object for each line."""

from __future__ import annotations

from collections.abc import Mapping

import click

from rlt_cli.output import TABLE, emit_next

PROGRAM = {"source": "program"}
"""Whose lines they are where they are the job's own program's."""


class LogLines:
    """Prints what a log says, piece by piece. As data, each line is an object: whose it is, its time, the line."""

    def __init__(self, whose: Mapping[str, str], output: str, *, timed: bool = False) -> None:
        """`timed`: each line begins with its time and a space."""
        self._whose = whose
        self._output = output
        self._timed = timed
        self._rest = ""

    def write(self, text: str) -> None:
        """Take what comes next; lines may come in pieces."""
        if self._output == TABLE:
            click.echo(text, nl=False)
            return
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._emit(line)

    def end(self) -> None:
        """Nothing more comes: what is left is a line, too."""
        if self._rest:
            self._emit(self._rest)

    def _emit(self, line: str) -> None:
        time, _, words = line.partition(" ") if self._timed else ("", "", line)
        timed = {"time": time} if self._timed else {}
        emit_next({**self._whose, **timed, "line": click.unstyle(words)}, self._output)  # Ray colours its own


def last_lines(text: str, count: int | None) -> str:
    """The last lines of a text; all if there is no count."""
    if count is None:
        return text
    lines = text.split("\n")
    kept = count + (lines[-1] == "")  # after the last line's end there is no line
    return "\n".join(lines[-kept:]) if count else ""
