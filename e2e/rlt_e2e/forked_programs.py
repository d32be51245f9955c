"""Run `rlt` and `rlt-operator` in processes that fork from one that has imported their modules.

The imports take longer than most commands, and than the start of the operator.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import rlt_cli.commands
from rlt_cli.main import main

TIMEOUT_S = 1800.0
"""The longest command waits for a job."""
IMPORTS = [
    *(f"rlt_cli.commands.{module.name}" for module in pkgutil.iter_modules(rlt_cli.commands.__path__)),
    "rlt_operator.main",
]


def run_rlt_forked(arguments: Sequence[str | Path], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `rlt` without an input until it ends. Return its exit code and output, as subprocess.run does.

    Raises AssertionError if it runs longer than TIMEOUT_S.
    """
    command = ["rlt", *map(str, arguments)]
    with tempfile.TemporaryDirectory(prefix="rlt-") as folder:
        output = Path(folder, "output")
        errors = Path(folder, "errors")
        process = start_forked(main, command, environment, output, errors)
        process.join(TIMEOUT_S)
        exit_code = process.exitcode
        process.kill()
        process.join()
        assert exit_code is not None, f"{' '.join(command)} did not end within {TIMEOUT_S:.0f} s"
        return subprocess.CompletedProcess(command, exit_code, output.read_text(), errors.read_text())


def start_forked(
    program: Callable[[], None],
    command: Sequence[str],
    environment: Mapping[str, str],
    output: Path,
    errors: Path,
    folder: Path | None = None,
) -> BaseProcess:
    """Start a program, which reads `command` from sys.argv. Its output and errors are appended to files.

    `folder` is its working directory. Default: this process's.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTS)
    process = context.Process(
        target=_run, args=(program, list(command), dict(environment), output, errors, folder or Path.cwd())
    )
    process.start()
    return process


def _run(
    program: Callable[[], None],
    command: list[str],
    environment: dict[str, str],
    output: Path,
    errors: Path,
    folder: Path,
) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in ((1, output), (2, errors)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    program()
