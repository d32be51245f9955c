"""rlt status: show everything about a job."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import click

from rlt.kube_context import KubeContext
from rlt.runs.records import get_latest_history
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, get_width, output_option
from rlt_cli.pages.job import format_page


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, kube_context: KubeContext, output: str) -> None:
    """Show everything about a job on one page.

    The page contains progress, times, conditions, pods, metrics and problems. After the end of the program, the metrics
    are from the record that the operator keeps.
    """
    job, pods, history = run(_get_status(name, kube_context))
    if output == TABLE:
        click.echo(format_page(job, pods, history, datetime.now(UTC), get_width()))
    else:
        emit({"job": job, "pods": pods, "metrics": history}, output)


async def _get_status(name: str, kube_context: KubeContext) -> tuple[Any, list[Any], list[Any]]:
    async with connect(kube_context) as connection:
        job = await connection.get_job(name)
        pods, (history, _) = await asyncio.gather(connection.list_pods(name), get_latest_history(connection, job))
        return job, pods, history
