"""rlt get: the jobs of a namespace."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from rlt_cli.connection import connected, run
from rlt_cli.job_table import job_table
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit, output_option, say
from rlt_core.job import Manifest

WIDE = "wide"


@click.command()
@click.argument("name", required=False)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="The jobs of all namespaces.")
@click.option("-l", "--selector", help="Only jobs with these labels, such as team=a,stage!=test.")
@kube_context_options
@output_option(WIDE)
def command(
    name: str | None,
    everywhere: bool,
    selector: str | None,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """List the jobs, or show NAME. The columns are those of `kubectl get`; -o wide has more of them."""
    if name and (everywhere or selector):
        raise click.UsageError("NAME is one job: give it without --all-namespaces and --selector")
    jobs, namespace = run(_jobs(name, everywhere, selector, KubeContext(namespace, context, kubeconfig)))
    if output not in (TABLE, WIDE):
        emit(jobs[0] if name else jobs, output)
    elif jobs:
        click.echo(job_table(jobs, datetime.now(UTC), wide=output == WIDE, namespaces=everywhere))
    else:
        which = f" with labels {selector}" if selector else ""
        say(f"no jobs{which} in {'any namespace' if everywhere else f'namespace {namespace}'}")


async def _jobs(
    name: str | None, everywhere: bool, selector: str | None, place: KubeContext
) -> tuple[list[Manifest], str]:
    async with connected(place) as connection:
        if name:
            return [await connection.job(name)], connection.namespace
        return await connection.jobs(everywhere=everywhere, selector=selector), connection.namespace
