"""rlt get: list jobs."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from rlt.kube_context import KubeContext
from rlt_api.schema.crd import GROUP, KIND
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, get_width, output_option, print_message
from rlt_cli.pages.job_table import format_job_table
from rlt_core.job import Manifest

WIDE = "wide"
NAME = "name"


@click.command()
@click.argument("name", required=False)
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", help="List only jobs that match this label selector, such as team=a,stage!=test.")
@kube_context_options
@output_option(WIDE, NAME)
def command(
    name: str | None, all_namespaces: bool, selector: str | None, kube_context: KubeContext, output: str
) -> None:
    """List jobs, or show one job. The columns are the same as in `kubectl get`; -o wide adds the others, -o name
    prints names for kubectl."""
    if name and (all_namespaces or selector):
        raise click.UsageError("NAME selects one job: omit --all-namespaces and --selector")
    jobs, namespace = run(_get_jobs(name, all_namespaces, selector, kube_context))
    if output == NAME:
        click.echo("\n".join(f"{KIND.lower()}.{GROUP}/{job['metadata']['name']}" for job in jobs), nl=bool(jobs))
    elif output not in (TABLE, WIDE):
        emit(jobs[0] if name else jobs, output)
    elif jobs:
        table = format_job_table(
            jobs, datetime.now(UTC), wide=output == WIDE, namespaces=all_namespaces, width=get_width()
        )
        click.echo(table)
    else:
        labels = f" with labels {selector}" if selector else ""
        print_message(f"no jobs{labels} in {'any namespace' if all_namespaces else f'namespace {namespace}'}")


async def _get_jobs(
    name: str | None, all_namespaces: bool, selector: str | None, kube_context: KubeContext
) -> tuple[list[Manifest], str]:
    async with connect(kube_context) as connection:
        if name:
            return [await connection.get_job(name)], connection.namespace
        return await connection.list_jobs(all_namespaces=all_namespaces, selector=selector), connection.namespace
