"""rlt delete: delete jobs and their clusters."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from rlt.kube_context import KubeContext
from rlt.lifecycle import delete_job
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.file_arguments import FILE
from rlt_cli.job_selection import JobName, get_selected_jobs, parse_names, read_names
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import emit_result, output_option, print_message
from rlt_core.job import Manifest


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("-f", "--filename", "files", multiple=True, type=FILE, help="Delete the jobs in this file.")
@click.option("-l", "--selector", help="Delete the jobs that match this label selector, such as team=a.")
@click.option("--all", "all_jobs", is_flag=True, help="Delete all jobs of the namespace.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@kube_context_options
@output_option()
def command(
    names: tuple[str, ...],
    files: tuple[str, ...],
    selector: str | None,
    all_jobs: bool,
    yes: bool,
    kube_context: KubeContext,
    output: str,
) -> None:
    """Delete jobs and their clusters. The files in their volumes are kept.

    The command asks for confirmation, and without a terminal requires --yes.
    """
    selected = (*parse_names(names, type_alone=all_jobs or bool(selector)), *read_names(files))
    ways = [way for way, given in (("NAME or -f", selected), ("-l", selector), ("--all", all_jobs)) if given]
    if not ways:
        raise click.UsageError("Name the jobs: NAME..., -f FILE, -l SELECTOR or --all.")
    if len(ways) > 1:
        raise click.UsageError(f"{' and '.join(ways)} are mutually exclusive: each selects the jobs to delete.")
    if not yes and not sys.stdin.isatty():
        words = [*names, *(f"-f {file}" for file in files), *([f"-l {selector}"] if selector else [])]
        words += ["--all"] if all_jobs else []
        raise Failure(
            "Deletion requires confirmation, and standard input is not a terminal.",
            next=kube_context.command_line(f"delete {' '.join(words)} --yes"),
        )
    jobs = run(_delete(selected, selector, yes, kube_context))
    if not jobs:
        return
    emit_result("\n".join(f"{job['metadata']['name']} deleted" for job in jobs), jobs, output)
    print_message("the files in their volumes are kept")


async def _delete(
    selected: Sequence[JobName], selector: str | None, yes: bool, kube_context: KubeContext
) -> list[Manifest]:
    """Delete the jobs after a confirmation. If one does not exist, none is deleted.

    Without names, the jobs of the namespace that match `selector`.
    """
    async with connect(kube_context) as connection:
        if selected:
            jobs = await get_selected_jobs(connection, selected)
        else:
            jobs = await connection.list_jobs(selector=selector)
        if not jobs:
            labels = f" with labels {selector}" if selector else ""
            print_message(f"no jobs{labels} in namespace {connection.namespace}")
        elif not yes:
            click.confirm(f"Delete {', '.join(job['metadata']['name'] for job in jobs)}?", abort=True, err=True)
        for job in jobs:
            await delete_job(connection, job)
        return jobs
