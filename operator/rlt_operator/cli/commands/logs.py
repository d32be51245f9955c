"""rlt logs: what a job's program or its pods say."""

from __future__ import annotations

import json

import click

from rlt_operator import kubernetes_api
from rlt_operator.cli.connection import Connection, Place, connected, is_head, place_options, run
from rlt_operator.cli.failure import Failure
from rlt_operator.cli.main import program
from rlt_operator.names import DASHBOARD_PORT


@click.command()
@click.argument("name")
@click.option("--worker", type=int, metavar="N", help="The log of the Nth worker's pod, from 0.")
@click.option("--head", is_flag=True, help="The log of the head's pod, where Ray itself speaks.")
@click.option("-f", "--follow", is_flag=True, help="With --worker or --head: go on until Ctrl-C.")
@click.option("--tail", type=int, metavar="LINES", help="Only the last lines.")
@place_options
def command(
    name: str,
    worker: int | None,
    head: bool,
    follow: bool,
    tail: int | None,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
) -> None:
    """Show what the program of the job NAME has printed so far; with --worker or --head, what a pod has."""
    if follow and worker is None and not head:
        raise click.UsageError("--follow goes with --worker or --head")
    place = Place(namespace, context, kubeconfig)
    run(_logs(name, worker, head, follow, tail, place), detached="detached; the job goes on")


async def _logs(name: str, worker: int | None, head: bool, follow: bool, tail: int | None, place: Place) -> None:
    async with connected(place) as connection:
        if worker is None and not head:
            text = await _program_log(connection, name)
            click.echo("\n".join(text.splitlines()[-tail:] if tail else text.splitlines()))
            return
        pod = await _pod(connection, name, worker)
        query = ({"follow": "true"} if follow else {}) | ({"tailLines": str(tail)} if tail else {})
        async for line in connection.api.lines(kubernetes_api.log(connection.namespace, pod), query):
            click.echo(line)


async def _program_log(connection: Connection, name: str) -> str:
    job = await connection.job(name)
    id = job.get("status", {}).get("rayCluster", {}).get("jobId")
    if id is None:
        words = job.get("status", {}).get("message") or "The operator has not looked at it yet."
        raise Failure(f"{name}'s program is not running. {words}", next=f"{program()} status {name}")
    return str(json.loads(await connection.head(name, DASHBOARD_PORT, f"/api/jobs/{id}/logs"))["logs"])


async def _pod(connection: Connection, name: str, worker: int | None) -> str:
    pods = [pod for pod in await connection.pods(name) if is_head(pod) == (worker is None)]
    place = worker or 0
    if place >= len(pods):
        what = "no head" if worker is None else f"{len(pods)} workers, and no worker {worker}"
        raise Failure(f"{name} has {what}.", next=f"{program()} status {name}")
    return str(pods[place]["metadata"]["name"])
