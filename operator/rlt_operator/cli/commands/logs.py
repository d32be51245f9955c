"""rlt logs: what a job's program or its pods say."""

from __future__ import annotations

import asyncio
import json

import click

from rlt_operator import kubernetes_api
from rlt_operator.cli.connection import RETRY_S, Connection, Place, connected, is_head, place_options, run
from rlt_operator.cli.failure import Failure
from rlt_operator.cli.job_page import can_come, line
from rlt_operator.cli.output import say
from rlt_operator.kubernetes_api import ApiError
from rlt_operator.names import DASHBOARD_PORT, head_service
from rlt_operator.observation import Manifest


@click.command()
@click.argument("name")
@click.option("--worker", type=int, metavar="N", help="The log of the Nth worker's pod, from 0.")
@click.option("--head", is_flag=True, help="The log of the head's pod, where Ray itself speaks.")
@click.option("-f", "--follow", is_flag=True, help="Go on to the end, or until Ctrl-C.")
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
    place = Place(namespace, context, kubeconfig)
    detached = f"detached; the job goes on. Back: {place.rlt(f'logs {name} --follow')}"
    run(_logs(name, worker, head, follow, tail, place), detached=detached)


async def _logs(name: str, worker: int | None, head: bool, follow: bool, tail: int | None, place: Place) -> None:
    async with connected(place) as connection:
        if worker is None and not head:
            if follow:
                await _follow_program(connection, name, tail)
                return
            text = await _program_log(connection, name)
            click.echo("\n".join(text.splitlines()[-tail:] if tail else text.splitlines()))
            return
        pod = await _pod(connection, name, worker)
        query = ({"follow": "true"} if follow else {}) | ({"tailLines": str(tail)} if tail else {})
        async for line in connection.api.lines(kubernetes_api.log(connection.namespace, pod), query):
            click.echo(line)


async def _program_log(connection: Connection, name: str) -> str:
    job = await connection.job(name)
    id = _ray_job(job)
    if id is None:
        words = job.get("status", {}).get("message") or "The operator has not looked at it yet."
        raise Failure(f"{name}'s program is not running. {words}", next=connection.place.rlt(f"status {name}"))
    return str(json.loads(await connection.head(name, DASHBOARD_PORT, f"/api/jobs/{id}/logs"))["logs"])


async def _follow_program(connection: Connection, name: str, tail: int | None) -> None:
    """The program's output as it comes, once it has begun, to its end."""
    id = await _begun(connection, name)
    path = kubernetes_api.service_proxy(connection.namespace, head_service(name), DASHBOARD_PORT)
    seen, said = 0, ""
    if tail:
        text = await _program_log(connection, name)
        click.echo("".join(text.splitlines(keepends=True)[-tail:]), nl=False)
        seen = len(text)
    while True:
        skip = seen  # Ray sends it from its beginning each time
        try:
            async with connection.api.web_socket(f"{path}/api/jobs/{id}/logs/tail") as socket:
                async for message in socket:
                    text = str(message.data)
                    new, skip = text[skip:], max(0, skip - len(text))
                    seen += len(new)
                    click.echo(new, nl=False)
        except ApiError as error:
            if str(error) != said:
                said = str(error)
                say(f"waiting for {name}'s head: {said}")
        job = await connection.job(name)
        if _ray_job(job) != id or not can_come(job, "Running"):
            return
        await asyncio.sleep(RETRY_S)


async def _begun(connection: Connection, name: str) -> str:
    """The id of the Ray job, as soon as there is one."""
    said = ""
    async for job in connection.changes(name):
        if id := _ray_job(job):
            return id
        if not can_come(job, "Running"):
            raise Failure(f"{name} has ended: {line(job)}", next=connection.place.rlt(f"status {name}"))
        if (now := f"waiting for {name} to start: {line(job)}") != said:
            said = now
            say(said)
    raise Failure(f"{name} was deleted.", next=connection.place.rlt("get"))


def _ray_job(job: Manifest) -> str | None:
    id: str | None = job.get("status", {}).get("rayCluster", {}).get("jobId")
    return id


async def _pod(connection: Connection, name: str, worker: int | None) -> str:
    pods = [pod for pod in await connection.pods(name) if is_head(pod) == (worker is None)]
    place = worker or 0
    if place >= len(pods):
        what = "no head" if worker is None else f"{len(pods)} workers, and no worker {worker}"
        raise Failure(f"{name} has {what}.", next=connection.place.rlt(f"status {name}"))
    return str(pods[place]["metadata"]["name"])
