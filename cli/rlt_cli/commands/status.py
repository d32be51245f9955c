"""rlt status: show everything about a job."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import click

from rlt_api.driver_report import METRICS_PORT
from rlt_cli.connection import Connection, connect, run
from rlt_cli.failure import Failure
from rlt_cli.job_page import format_page
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit, output_option
from rlt_core.job import Manifest

MAX_STEPS = 400
"""Maximum number of steps to fetch: a long run has thousands."""


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, kube_context: KubeContext, output: str) -> None:
    """Show everything about a job on one page. The page contains progress, conditions, pods, metrics and problems."""
    job, pods, history = run(_get_status(name, kube_context))
    if output == TABLE:
        click.echo(format_page(job, pods, history, datetime.now(UTC)))
    else:
        emit({"job": job, "pods": pods, "metrics": history}, output)


async def _get_status(name: str, kube_context: KubeContext) -> tuple[Any, list[Any], list[Any]]:
    async with connect(kube_context) as connection:
        job = await connection.get_job(name)
        return job, *await get_pods_and_history(connection, job)


async def get_pods_and_history(connection: Connection, job: Manifest) -> tuple[list[Manifest], list[Any]]:
    """What the page shows in addition to the job object."""
    pods, history = await asyncio.gather(connection.list_pods(job["metadata"]["name"]), get_history(connection, job))
    return pods, history


async def get_history(connection: Connection, job: Manifest) -> list[dict[str, float | None]]:
    """The metrics of the latest steps. Empty if the job has no cluster or its program does not serve metrics."""
    since = max(0, job.get("status", {}).get("progress", {}).get("step", 0) - MAX_STEPS)
    try:
        text = await connection.get_from_head(job["metadata"]["name"], METRICS_PORT, f"/history?since={since}")
    except Failure:
        return []
    return [json.loads(line) for line in text.splitlines()]
