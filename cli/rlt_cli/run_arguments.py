"""Arguments that are jobs of the cluster or run directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlt.kube_context import KubeContext
from rlt.runs.run import Run, load_run, read_run
from rlt_cli.connection import connect, run
from rlt_cli.output import print_message


def load_runs(arguments: Sequence[str], kube_context: KubeContext) -> list[Run]:
    """The runs of the arguments, in their order: of a directory if it exists, otherwise of a job. Raises RltError.

    What is missing is printed. Without a job, no cluster is needed.
    """
    names = [each for each in arguments if not Path(each).is_dir()]
    jobs = run(_load_jobs(names, kube_context)) if names else {}
    runs = [read_run(Path(each)) if Path(each).is_dir() else jobs[each] for each in arguments]
    for found in runs:
        for note in found.notes:
            print_message(f"note: {found.name}: {note}")
    return runs


async def _load_jobs(names: Sequence[str], kube_context: KubeContext) -> dict[str, Run]:
    async with connect(kube_context) as connection:
        return {name: await load_run(connection, name) for name in dict.fromkeys(names)}
