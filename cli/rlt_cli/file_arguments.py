"""The files of a command, as arguments or with kubectl's -f."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rlt_cli.failure import Failure

FILE = click.Path(allow_dash=True)
"""A file argument, which shells complete. - is standard input. Existence is checked on read."""
SUFFIXES = (".yaml", ".yml", ".json")
"""Names of the files that kubectl reads in a directory."""

Command = Callable[..., Any]


def files_argument(command: Command) -> Command:
    """Add FILE... and -f to a command, which receives the files, also from directories, as `files`."""

    @functools.wraps(command)
    def with_files(files: tuple[str, ...], filenames: tuple[str, ...], **others: Any) -> Any:
        if not files and not filenames:
            raise click.UsageError("Missing argument 'FILE...'.")
        return command(files=tuple(path for file in (*files, *filenames) for path in list_files(file)), **others)

    argument = click.argument("files", nargs=-1, type=FILE, metavar="FILE...")
    option = click.option("-f", "--filename", "filenames", multiple=True, type=FILE, help="A FILE, as in kubectl.")
    return argument(option(with_files))


def file_argument(command: Command) -> Command:
    """Add FILE and -f to a command, which receives the one file as `file`."""

    @functools.wraps(command)
    def with_file(file: str | None, filename: str | None, **others: Any) -> Any:
        if (file is None) == (filename is None):
            raise click.UsageError("Missing argument 'FILE'." if file is None else "FILE and -f cannot be combined.")
        return command(file=file or filename, **others)

    argument = click.argument("file", required=False, type=FILE, metavar="FILE")
    option = click.option("-f", "--filename", type=FILE, help="The FILE, as in kubectl.")
    return argument(option(with_file))


def list_files(file: str) -> list[str]:
    """Return the manifests of a directory, ordered by name, or the file itself. Raises Failure for an empty one."""
    folder = Path(file)
    if not folder.is_dir():
        return [file]
    found = sorted(str(path) for path in folder.iterdir() if path.suffix in SUFFIXES)
    if not found:
        raise Failure(f"{file}: no file of type {', '.join(SUFFIXES)} in the directory.", next=f"ls {file}")
    return found
