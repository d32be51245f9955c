"""rlt logs: show the log of a job's program or of one of its pods, also after they have ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime

import click

from rlt_cli.connection import RETRY_S, Connection, connect, detached_message, run
from rlt_cli.failure import Failure
from rlt_cli.job_page import NOT_RECONCILED, can_become_true, summarize
from rlt_cli.kept_files import Text, has_kept_files, list_kept_files, read_kept_file
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.log_lines import PROGRAM, LogLines, take_last_lines
from rlt_cli.output import TABLE, emit_result, format_table, output_option, print_message
from rlt_cli.pods import find_pod
from rlt_core.children.attempt_directory import PROGRAM_LOG
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError
from rlt_core.names import DASHBOARD_PORT, head_service


@click.command()
@click.argument("name")
@click.option("--pod", metavar="POD", help="Show the log of this pod.")
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="Show the log of worker pod N, from 0.")
@click.option("--head", is_flag=True, help="Show the log of the head pod, which is Ray's own log.")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until it ends.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Show only the last N lines.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Show the kept log of attempt N.")
@click.option("--file", metavar="PATH", help="Show this kept file of the latest attempt or of --attempt.")
@click.option("--list", "list_files", is_flag=True, help="List the kept files of all attempts.")
@kube_context_options
@output_option()
def command(
    name: str,
    pod: str | None,
    worker: int | None,
    head: bool,
    follow: bool,
    tail: int | None,
    attempt: int | None,
    file: str | None,
    list_files: bool,
    kube_context: KubeContext,
    output: str,
) -> None:
    """Show the log of a job or of one of its pods.

    Without --pod, --worker or --head this is the output of the job's program. -o json prints one object per line:
    {"source": "program", "line": …}, or for a pod {"pod": …, "time": …, "line": …}.

    Without a Ray cluster, and with --attempt, --file or --list, the log comes from the volume of the job. A pod that
    mounts it read-only is created for some seconds.
    """
    kept = attempt is not None or file is not None
    if (pod is not None) + (worker is not None) + head + list_files + kept > 1:
        raise click.UsageError("--pod, --worker, --head, --list and --attempt or --file are mutually exclusive")
    if follow and (list_files or kept):
        raise click.UsageError("--follow shows the log of a running program, not kept files")
    if list_files:
        run(_print_kept_files(name, kube_context, output))
        return
    if kept:
        path = f"{attempt}/{file or PROGRAM_LOG}" if attempt else file or PROGRAM_LOG
        run(_print_kept_file(name, path, tail, kube_context, output))
        return
    detached = detached_message(kube_context.command_line(f"logs {name} --follow"))
    if pod is None and worker is None and not head:
        run(_print_program_log(name, follow, tail, kube_context, output), detached=detached)
    else:
        run(_print_pod_log(name, pod, worker, follow, tail, kube_context, output), detached=detached)


async def _print_program_log(name: str, follow: bool, tail: int | None, kube_context: KubeContext, output: str) -> None:
    lines = LogLines(PROGRAM, output)
    async with connect(kube_context) as connection:
        if follow:
            async for text in _follow_program_log(connection, name, tail):
                lines.write(text)
        else:
            lines.write(take_last_lines(await _get_program_log(connection, name), tail))
    lines.end()


async def _print_kept_files(name: str, kube_context: KubeContext, output: str) -> None:
    async with connect(kube_context) as connection:
        files = await list_kept_files(connection, name)
    rows = [(each.size, f"{datetime.fromtimestamp(each.time, UTC):%FT%TZ}", each.path) for each in files]
    emit_result(format_table(("BYTES", "CHANGED", "FILE"), rows), [asdict(each) for each in files], output)


async def _print_kept_file(name: str, path: str, tail: int | None, kube_context: KubeContext, output: str) -> None:
    async with connect(kube_context) as connection:
        text = await _get_kept_file(connection, name, path)
    lines = LogLines({"file": text.path}, output)
    lines.write(take_last_lines(text.text, tail))
    lines.end()


async def _get_kept_file(connection: Connection, name: str, path: str) -> Text:
    text = await read_kept_file(connection, name, path)
    start = f", its last {text.shown} of {text.size} bytes" if text.shown < text.size else ""
    print_message(f"attempts/{text.path} in the volume of job {name}{start}")
    return text


async def _print_pod_log(
    name: str,
    pod: str | None,
    worker: int | None,
    follow: bool,
    tail: int | None,
    kube_context: KubeContext,
    output: str,
) -> None:
    query = {"follow": str(follow).lower(), "timestamps": str(output != TABLE).lower()}
    query |= {"tailLines": str(tail)} if tail is not None else {}
    async with connect(kube_context) as connection:
        manifest = await find_pod(connection, name, pod, worker)
        query["container"] = manifest["spec"]["containers"][0]["name"]  # the Ray container in KubeRay's pods
        lines = LogLines({"pod": manifest["metadata"]["name"]}, output, timed=output != TABLE)
        path = api_paths.log(connection.namespace, manifest["metadata"]["name"])
        async for line in connection.api.stream_lines(path, query):
            lines.write(f"{line}\n")


async def _get_program_log(connection: Connection, name: str) -> str:
    job = await connection.get_job(name)
    id = _ray_job_id(job)
    if id is None and has_kept_files(job):
        return (await _get_kept_file(connection, name, PROGRAM_LOG)).text
    if id is None:
        message = job.get("status", {}).get("message") or NOT_RECONCILED
        status_command = connection.kube_context.command_line(f"status {name}")
        raise Failure(f"The program of job {name} is not running. {message}", next=status_command)
    return str(json.loads(await connection.get_from_head(name, DASHBOARD_PORT, f"/api/jobs/{id}/logs"))["logs"])


async def _follow_program_log(connection: Connection, name: str, tail: int | None) -> AsyncIterator[str]:
    """Wait until the program starts, then yield its output until it ends."""
    id = await _wait_for_start(connection, name)
    path = api_paths.service_proxy(connection.namespace, head_service(name), DASHBOARD_PORT)
    received, printed = 0, ""
    if tail is not None:
        text = await _get_program_log(connection, name)
        yield take_last_lines(text, tail)
        received = len(text)
    while True:
        skip = received  # a new connection sends the log from its beginning
        try:
            headers = await connection.get_token_headers(name)
            async with connection.api.web_socket(f"{path}/api/jobs/{id}/logs/tail", headers) as socket:
                async for message in socket:
                    text = str(message.data)
                    new, skip = text[skip:], max(0, skip - len(text))
                    received += len(new)
                    yield new
        except ApiError as error:
            if str(error) != printed:
                printed = str(error)
                print_message(f"waiting for the head of job {name}: {printed}")
        job = await connection.get_job(name)
        if _ray_job_id(job) != id or not can_become_true(job, "Running"):
            return
        await asyncio.sleep(RETRY_S)


async def _wait_for_start(connection: Connection, name: str) -> str:
    """Wait until the Ray job exists. Returns its id."""
    printed = ""
    async for job in connection.watch_job(name):
        if id := _ray_job_id(job):
            return id
        if not can_become_true(job, "Running"):
            status_command = connection.kube_context.command_line(f"status {name}")
            raise Failure(f"Job {name} has ended: {summarize(job)}", next=status_command)
        if (text := f"waiting for job {name} to start: {summarize(job)}") != printed:
            printed = text
            print_message(printed)
    raise Failure(f"Job {name} was deleted.", next=connection.kube_context.command_line("get"))


def _ray_job_id(job: Manifest) -> str | None:
    id: str | None = job.get("status", {}).get("rayCluster", {}).get("jobId")
    return id
