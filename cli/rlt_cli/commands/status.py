"""rlt status: everything about one job, on a page."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import click

from rlt_api.driver_report import METRICS_PORT
from rlt_cli.connection import Connection, connected, run
from rlt_cli.failure import Failure
from rlt_cli.job_page import page
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit, output_option
from rlt_core.job import Manifest

LATEST_STEPS = 400
"""So many steps are drawn: a run of thousands need not send all of them."""


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """Everything about the job NAME: progress, conditions, pods, metrics, findings."""
    job, pods, history = run(_look(name, KubeContext(namespace, context, kubeconfig)))
    if output == TABLE:
        click.echo(page(job, pods, history, datetime.now(UTC)))
    else:
        emit({"job": job, "pods": pods, "metrics": history}, output)


async def _look(name: str, place: KubeContext) -> tuple[Any, list[Any], list[Any]]:
    async with connected(place) as connection:
        job = await connection.job(name)
        return job, *await pods_and_history(connection, job)


async def pods_and_history(connection: Connection, job: Manifest) -> tuple[list[Manifest], list[Any]]:
    """What the page shows besides the job itself."""
    pods, history = await asyncio.gather(connection.pods(job["metadata"]["name"]), metric_history(connection, job))
    return pods, history


async def metric_history(connection: Connection, job: Manifest) -> list[dict[str, float | None]]:
    """The metrics of the latest steps; empty where there is nobody to ask."""
    since = max(0, job.get("status", {}).get("progress", {}).get("step", 0) - LATEST_STEPS)
    try:
        text = await connection.head(job["metadata"]["name"], METRICS_PORT, f"/history?since={since}")
    except Failure:  # no cluster, or a program that keeps no history: the page shows what there is
        return []
    return [json.loads(each) for each in text.splitlines()]
