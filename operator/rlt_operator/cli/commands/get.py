"""rlt get: the jobs of a namespace."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from rlt_operator.cli.connection import Place, connected, place_options, run
from rlt_operator.cli.job_page import COLUMNS, row
from rlt_operator.cli.output import TABLE, emit, emit_table, output_option, say
from rlt_operator.observation import Manifest


@click.command()
@click.argument("name", required=False)
@place_options
@output_option
def command(name: str | None, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """List the jobs, or show NAME."""
    jobs, namespace = run(_jobs(name, Place(namespace, context, kubeconfig)))
    if output != TABLE:
        emit(jobs[0] if name else jobs, output)
    elif jobs:
        now = datetime.now(UTC)
        emit_table(COLUMNS, [row(job, now) for job in jobs])
    else:
        say(f"no jobs in namespace {namespace}")


async def _jobs(name: str | None, place: Place) -> tuple[list[Manifest], str]:
    async with connected(place) as connection:
        return [await connection.job(name)] if name else await connection.jobs(), connection.namespace
