"""rlt status: everything about one job, on a page."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import click

from rlt_api.training_config import METRICS_PORT
from rlt_operator.cli.connection import Connection, Place, connected, place_options, run
from rlt_operator.cli.failure import Failure
from rlt_operator.cli.job_page import page
from rlt_operator.cli.output import TABLE, emit, output_option


@click.command()
@click.argument("name")
@place_options
@output_option
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """Everything about the job NAME: progress, conditions, pods, metrics, findings."""
    job, pods, history = run(_look(name, Place(namespace, context, kubeconfig)))
    if output == TABLE:
        click.echo(page(job, pods, history, datetime.now(UTC)))
    else:
        emit({"job": job, "pods": pods, "metrics": history}, output)


async def _look(name: str, place: Place) -> tuple[Any, list[Any], list[Any]]:
    async with connected(place) as connection:
        job = await connection.job(name)
        pods, history = await asyncio.gather(connection.pods(name), metric_history(connection, name))
        return job, pods, history


async def metric_history(connection: Connection, name: str) -> list[dict[str, float]]:
    """The metrics of each step so far; empty where there is nobody to ask."""
    try:
        text = await connection.head(name, METRICS_PORT, "/history")
    except Failure:  # no cluster, or a program that keeps no history: the page shows what there is
        return []
    return [json.loads(each) for each in text.splitlines()]
