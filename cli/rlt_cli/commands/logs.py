"""rlt logs: what a job's program or its pods say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import click

from rlt_cli.connection import RETRY_S, Connection, connected, is_head, run
from rlt_cli.failure import Failure
from rlt_cli.job_page import can_come, line
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.log_lines import PROGRAM, LogLines, last_lines
from rlt_cli.output import TABLE, output_option, say
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError
from rlt_core.names import DASHBOARD_PORT, head_service


@click.command()
@click.argument("name")
@click.option("--pod", metavar="POD", help="The log of this pod of the job.")
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="The log of the Nth worker's pod, from 0.")
@click.option("--head", is_flag=True, help="The log of the head's pod, where Ray itself speaks.")
@click.option("-f", "--follow", is_flag=True, help="Go on to the end, or until Ctrl-C.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@kube_context_options
@output_option()
def command(
    name: str,
    pod: str | None,
    worker: int | None,
    head: bool,
    follow: bool,
    tail: int | None,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Show what the program of the job NAME has printed so far; with --pod, --worker or --head, what a pod has.

    -o json is an object for each line, in a line of its own: {"source": "program", "line": …}, or of a pod {"pod": …,
    "time": …, "line": …}.
    """
    if (pod is not None) + (worker is not None) + head > 1:
        raise click.UsageError("--pod, --worker and --head are each the log of one pod: give one of them")
    place = KubeContext(namespace, context, kubeconfig)
    detached = f"detached; the job goes on. Back: {place.rlt(f'logs {name} --follow')}"
    if pod is None and worker is None and not head:
        run(_log(name, follow, tail, place, output), detached=detached)
    else:
        run(_pod_log(name, pod, worker, follow, tail, place, output), detached=detached)


async def _log(name: str, follow: bool, tail: int | None, place: KubeContext, output: str) -> None:
    lines = LogLines(PROGRAM, output)
    async with connected(place) as connection:
        if follow:
            async for text in _followed(connection, name, tail):
                lines.write(text)
        else:
            lines.write(last_lines(await _program_log(connection, name), tail))
    lines.end()


async def _pod_log(
    name: str, pod: str | None, worker: int | None, follow: bool, tail: int | None, place: KubeContext, output: str
) -> None:
    query = {"follow": str(follow).lower(), "timestamps": str(output != TABLE).lower()}
    query |= {"tailLines": str(tail)} if tail is not None else {}
    async with connected(place) as connection:
        manifest = await _pod(connection, name, pod, worker)
        query["container"] = manifest["spec"]["containers"][0]["name"]  # Ray's, in KubeRay's pods
        lines = LogLines({"pod": manifest["metadata"]["name"]}, output, timed=output != TABLE)
        path = api_paths.log(connection.namespace, manifest["metadata"]["name"])
        async for line in connection.api.lines(path, query):
            lines.write(f"{line}\n")


async def _program_log(connection: Connection, name: str) -> str:
    job = await connection.job(name)
    id = _ray_job(job)
    if id is None:
        words = job.get("status", {}).get("message") or "The operator has not looked at it yet."
        raise Failure(f"{name}'s program is not running. {words}", next=connection.place.rlt(f"status {name}"))
    return str(json.loads(await connection.head(name, DASHBOARD_PORT, f"/api/jobs/{id}/logs"))["logs"])


async def _followed(connection: Connection, name: str, tail: int | None) -> AsyncIterator[str]:
    """The program's output as it comes, once it has begun, to its end."""
    id = await _begun(connection, name)
    path = api_paths.service_proxy(connection.namespace, head_service(name), DASHBOARD_PORT)
    seen, said = 0, ""
    if tail is not None:
        text = await _program_log(connection, name)
        yield last_lines(text, tail)
        seen = len(text)
    while True:
        skip = seen  # Ray sends it from its beginning each time
        try:
            async with connection.api.web_socket(f"{path}/api/jobs/{id}/logs/tail") as socket:
                async for message in socket:
                    text = str(message.data)
                    new, skip = text[skip:], max(0, skip - len(text))
                    seen += len(new)
                    yield new
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


async def _pod(connection: Connection, name: str, pod: str | None, worker: int | None) -> Manifest:
    pods = await connection.pods(name)
    if not pods:
        await connection.job(name)  # says so if there is none
    next = connection.place.rlt(f"status {name}")
    if pod is not None:
        for each in pods:
            if each["metadata"]["name"] == pod:
                return each
        names = ", ".join(each["metadata"]["name"] for each in pods) or "none"
        raise Failure(f"{name} has no pod {pod}. Its pods: {names}.", next=next)
    pods, place = [each for each in pods if is_head(each) == (worker is None)], worker or 0
    if place >= len(pods):
        what = "no head" if worker is None else f"{len(pods)} workers, and no worker {worker}"
        raise Failure(f"{name} has {what}.", next=next)
    return pods[place]
