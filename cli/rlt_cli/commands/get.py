"""rlt get: list jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from rlt.connection import Connection
from rlt.kube_context import KubeContext
from rlt_api.schema.crd import GROUP, KIND
from rlt_cli.connection import connect, run
from rlt_cli.file_arguments import FILE
from rlt_cli.job_selection import JobName, get_selected_jobs, parse_names, read_names
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, emit_item, get_width, output_option, print_message
from rlt_cli.pages.job_table import format_job_table
from rlt_core.job import Manifest

WIDE = "wide"
NAME = "name"
JobKey = tuple[str, str]
"""Namespace and name."""


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("-f", "--filename", "files", multiple=True, type=FILE, help="Show the jobs in this file, as in kubectl.")
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", help="List only jobs that match this label selector, such as team=a,stage!=test.")
@click.option("-w", "--watch", "watching", is_flag=True, help="Print each change of the jobs after the list.")
@kube_context_options
@output_option(WIDE, NAME)
def command(
    names: tuple[str, ...],
    files: tuple[str, ...],
    all_namespaces: bool,
    selector: str | None,
    watching: bool,
    kube_context: KubeContext,
    output: str,
) -> None:
    """List jobs, or show one job. The columns are the same as in `kubectl get`; -o wide adds the others, -o name
    prints names for kubectl. With --watch, the changes follow: rows, or one JSON object per line."""
    selected = (*parse_names(names, type_alone=all_namespaces or bool(selector)), *read_names(files))
    if selected and (all_namespaces or selector):
        raise click.UsageError("NAME and -f select jobs: omit --all-namespaces and --selector")
    if watching and files:
        raise click.UsageError("--watch follows the jobs of one namespace: use NAME instead of -f")
    run(_get(selected, all_namespaces, selector, watching, kube_context, output))


async def _get(
    selected: Sequence[JobName],
    all_namespaces: bool,
    selector: str | None,
    watching: bool,
    kube_context: KubeContext,
    output: str,
) -> None:
    async with connect(kube_context) as connection:
        version = ""
        if watching or not selected:
            jobs, version = await connection.list_jobs_with_version(all_namespaces=all_namespaces, selector=selector)
        if selected:
            jobs = await get_selected_jobs(connection, selected)
        if watching and output not in (TABLE, WIDE, NAME):
            for job in jobs:
                emit_item(job, output)
        elif jobs or output not in (TABLE, WIDE):
            _print_jobs(jobs, output, all_namespaces=all_namespaces, one=len(selected) == 1)
        else:
            labels = f" with labels {selector}" if selector else ""
            where = "any namespace" if all_namespaces else f"namespace {connection.namespace}"
            print_message(f"no jobs{labels} in {where}")
        if watching:
            await _watch(connection, jobs, selected, version, all_namespaces, selector, output)


def _print_jobs(jobs: Sequence[Manifest], output: str, *, all_namespaces: bool, one: bool) -> None:
    if output == NAME:
        click.echo("\n".join(map(_format_name, jobs)), nl=bool(jobs))
    elif output in (TABLE, WIDE):
        width = get_width()
        click.echo(
            format_job_table(jobs, datetime.now(UTC), wide=output == WIDE, namespaces=all_namespaces, width=width)
        )
    else:
        emit(jobs[0] if one else jobs, output)


async def _watch(
    connection: Connection,
    jobs: Sequence[Manifest],
    selected: Sequence[JobName],
    version: str,
    all_namespaces: bool,
    selector: str | None,
    output: str,
) -> None:
    """Print each change until Ctrl-C."""
    known = {_key(job): job for job in jobs}
    wanted = {(each.namespace or connection.namespace, each.name) for each in selected}
    async for job in connection.watch_jobs(version, all_namespaces=all_namespaces, selector=selector):
        if wanted and _key(job) not in wanted:
            continue
        known[_key(job)] = job
        if output in (TABLE, WIDE):
            click.echo(_format_row(job, known, wide=output == WIDE, namespaces=all_namespaces))
        elif output == NAME:
            click.echo(_format_name(job))
        else:
            emit_item(job, output)


def _format_row(job: Manifest, known: dict[JobKey, Manifest], *, wide: bool, namespaces: bool) -> str:
    """The row of a job, as wide as in a table with all known jobs."""
    others = [each for key, each in known.items() if key != _key(job)]
    table = format_job_table([*others, job], datetime.now(UTC), wide=wide, namespaces=namespaces)
    return table.splitlines()[-1]


def _format_name(job: Manifest) -> str:
    return f"{KIND.lower()}.{GROUP}/{job['metadata']['name']}"


def _key(job: Manifest) -> JobKey:
    return job["metadata"]["namespace"], job["metadata"]["name"]
