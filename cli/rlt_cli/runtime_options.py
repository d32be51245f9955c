"""The options of commands that complete jobs with RLRuntimes from files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rlt_cli.file_arguments import FILE

Command = TypeVar("Command", bound=Callable[..., Any])


def runtime_options(command: Command) -> Command:
    """Add --runtime and --default-runtime to a command, as `runtimes` and `default_runtime`."""
    default = click.option(
        "--default-runtime",
        metavar="NAME",
        help="RLRuntime of jobs without runtimeRef: the label rlt.dev/default-runtime of their namespace.",
    )
    files = click.option(
        "--runtime", "runtimes", multiple=True, type=FILE, metavar="FILE", help="RLRuntimes that the jobs name."
    )
    return files(default(command))
