"""Arguments that are jobs of the cluster, run directories, or runs in a bucket."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from rlt.kube_context import KubeContext
from rlt.runs.bucket_copy import BucketCopy, Select, select_records
from rlt.runs.run import Run, load_run, read_run
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.output import print_message
from rlt_pod.download.bucket import SCHEME


def find_directory(argument: str, select: Select | None = None) -> Path | None:
    """The directory of an argument: of a URL s3://BUCKET/PREFIX, a copy of the objects that `select` names, by default
    what a report reads. None for the name of a job. Raises Failure for a path that is not a directory, and
    UnavailableError for a URL.
    """
    if argument.startswith(SCHEME):
        return update_copy(open_bucket(argument), select or select_records(argument))
    path = Path(argument)
    if path.is_dir():
        return path
    if "/" in argument:
        raise Failure(f"{argument} is not a directory.", next=f"ls {shlex.quote(str(path.parent))}")
    return None


def open_bucket(url: str) -> BucketCopy:
    """A copy of a run in a bucket, which is still empty. It is removed when the command ends."""
    folder = click.get_current_context().with_resource(TemporaryDirectory(prefix="rlt-"))
    return BucketCopy(url, Path(folder))


def update_copy(copy: BucketCopy, select: Select) -> Path:
    """Copy what has changed, and print what is left out. Returns the run directory. Raises UnavailableError."""
    for note in copy.update(select):
        print_message(f"note: {copy.url}: {note}")
    return copy.path


def load_runs(arguments: Sequence[str], kube_context: KubeContext) -> list[Run]:
    """The runs of the arguments, in their order: of a directory, a URL, or a job. Raises RltError and Failure.

    What is missing is printed. Without a job, no cluster is needed.
    """
    directories = {each: find_directory(each) for each in arguments}
    names = [each for each, directory in directories.items() if directory is None]
    jobs = run(_load_jobs(names, kube_context)) if names else {}
    runs = [
        replace(read_run(directory), source=each) if (directory := directories[each]) else jobs[each]
        for each in arguments
    ]
    for found in runs:
        for note in found.notes:
            print_message(f"note: {found.name}: {note}")
    return runs


async def _load_jobs(names: Sequence[str], kube_context: KubeContext) -> dict[str, Run]:
    async with connect(kube_context) as connection:
        return {name: await load_run(connection, name) for name in dict.fromkeys(names)}
