"""Arguments that are jobs of the cluster or run directories."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rlt.kube_context import KubeContext
from rlt.runs.run import Run, load_run, read_run
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.output import print_message


def find_directory(argument: str) -> Path | None:
    """The directory of an argument. None for the name of a job. Raises Failure for a path that is not a directory."""
    path = Path(argument)
    if path.is_dir():
        return path
    if "/" in argument:
        raise Failure(f"{argument} is not a directory.", next=f"ls {shlex.quote(str(path.parent))}")
    return None


def load_runs(arguments: Sequence[str], kube_context: KubeContext) -> list[Run]:
    """The runs of the arguments, in their order: of a directory, or of a job. Raises RltError and Failure.

    What is missing is printed. Without a job, no cluster is needed.
    """
    directories = {each: find_directory(each) for each in arguments}
    names = [each for each, directory in directories.items() if directory is None]
    jobs = run(_load_jobs(names, kube_context)) if names else {}
    runs = [read_run(directory) if (directory := directories[each]) else jobs[each] for each in arguments]
    for found in runs:
        for note in found.notes:
            print_message(f"note: {found.name}: {note}")
    return runs


async def _load_jobs(names: Sequence[str], kube_context: KubeContext) -> dict[str, Run]:
    async with connect(kube_context) as connection:
        return {name: await load_run(connection, name) for name in dict.fromkeys(names)}
