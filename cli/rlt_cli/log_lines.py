"""Logs on standard output: as plain text, or one object per line."""

from __future__ import annotations

from collections.abc import Mapping

import click

from rlt_cli.output import TABLE, emit_item

PROGRAM = {"source": "program"}
"""The source of lines that the job's own program printed."""


class LogLines:
    """Prints a log as it arrives. As data, each line is an object with its source, its time and the line."""

    def __init__(self, source: Mapping[str, str], output: str, *, timed: bool = False) -> None:
        """`timed`: each line begins with its time and a space."""
        self._source = source
        self._output = output
        self._timed = timed
        self._incomplete = ""

    def write(self, text: str) -> None:
        """Print the next part of the log, which may end within a line."""
        if self._output == TABLE:
            click.echo(text, nl=False)
            return
        *lines, self._incomplete = (self._incomplete + text).split("\n")
        for line in lines:
            self._emit(line)

    def end(self) -> None:
        """Print the last line if it has no newline."""
        if self._incomplete:
            self._emit(self._incomplete)

    def _emit(self, line: str) -> None:
        time, _, text = line.partition(" ") if self._timed else ("", "", line)
        timed = {"time": time} if self._timed else {}
        # Ray adds color codes.
        emit_item({**self._source, **timed, "line": click.unstyle(text)}, self._output)
