"""rlt logs: show the log of a job's program or of one of its pods, also after they have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime

import click

from rlt.kept_files import list_kept_files
from rlt.kube_context import KubeContext
from rlt.pods import find_container, find_pod
from rlt.program_log import follow_program_log, get_kept_file, get_program_log, take_last_lines
from rlt_cli.connection import connect, detached_message, run
from rlt_cli.duration import Duration, parse_duration
from rlt_cli.kube_context import kube_context_options
from rlt_cli.log_lines import PROGRAM, LogLines
from rlt_cli.output import TABLE, emit_result, get_width, output_option
from rlt_cli.table import format_table
from rlt_core.children.attempt_directory import PROGRAM_LOG
from rlt_core.kubernetes import api_paths


@click.command()
@click.argument("name")
@click.option("--pod", metavar="POD", help="Show the log of this pod.")
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="Show the log of worker pod N, from 0.")
@click.option("--head", is_flag=True, help="Show the log of the head pod, which is Ray's own log.")
@click.option("-c", "--container", metavar="CONTAINER", help="Show this container's log.  [default: Ray's]")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until it ends.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Show only the last N lines.")
@click.option(
    "--since",
    type=parse_duration,
    metavar="DURATION",
    help="Show only lines of a pod that are newer than 5s, 2m or 3h.",
)
@click.option("-p", "--previous", is_flag=True, help="Show the log of a pod's previous container, before its restart.")
@click.option("--step", metavar="STEP", help="Show the log of this framework.prepare step.")
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
    container: str | None,
    follow: bool,
    tail: int | None,
    since: Duration | None,
    previous: bool,
    step: str | None,
    attempt: int | None,
    file: str | None,
    list_files: bool,
    kube_context: KubeContext,
    output: str,
) -> None:
    """Show the log of a job or of one of its pods.

    Without --pod, --worker or --head this is the output of the job's program, or of a step before it. -o json prints
    one object per line: {"source": "program", "line": …}, or for a pod {"pod": …, "time": …, "line": …}.

    Without a Ray cluster, and with --attempt, --file or --list, the log comes from the volume of the job. A pod that
    mounts it read-only is created for some seconds.
    """
    kept = attempt is not None or file is not None
    if (pod is not None) + (worker is not None) + (step is not None) + head + list_files + kept > 1:
        raise click.UsageError("--pod, --worker, --head, --step, --list and --attempt or --file are mutually exclusive")
    if follow and (list_files or kept):
        raise click.UsageError("--follow shows the log of a running program, not kept files")
    of_pod = pod is not None or worker is not None or head
    if (since or previous or container is not None) and not of_pod:
        raise click.UsageError(
            "--container, --since and --previous show a pod's log: add --head, --worker N or --pod POD. The program's "
            "output has no times; --attempt N is its log before a restart"
        )
    if previous and follow:
        raise click.UsageError("--previous is the log of a container that has ended: omit --follow")
    if list_files:
        run(_print_kept_files(name, kube_context, output))
        return
    if kept:
        path = f"{attempt}/{file or PROGRAM_LOG}" if attempt else file or PROGRAM_LOG
        run(_print_kept_file(name, path, tail, kube_context, output))
        return
    detached = detached_message(kube_context.command_line(f"logs {name} --follow"))
    if not of_pod:
        run(_print_program_log(name, step, follow, tail, kube_context, output), detached=detached)
        return
    query = {"follow": str(follow).lower(), "timestamps": str(output != TABLE).lower()}
    query |= {"tailLines": str(tail)} if tail is not None else {}
    query |= {"sinceSeconds": str(max(1, round(since.seconds)))} if since else {}
    query |= {"previous": "true"} if previous else {}
    run(_print_pod_log(name, pod, worker, container, query, kube_context, output), detached=detached)


async def _print_program_log(
    name: str, step: str | None, follow: bool, tail: int | None, kube_context: KubeContext, output: str
) -> None:
    """`step`: print the output of this step instead of the program's."""
    lines = LogLines(PROGRAM, output)
    async with connect(kube_context) as connection:
        if follow:
            async for text in follow_program_log(connection, name, tail, step):
                lines.write(text)
        else:
            lines.write(take_last_lines(await get_program_log(connection, name, step), tail))
    lines.end()


async def _print_kept_files(name: str, kube_context: KubeContext, output: str) -> None:
    async with connect(kube_context) as connection:
        files = await list_kept_files(connection, name)
    rows = [(each.size, f"{datetime.fromtimestamp(each.time, UTC):%FT%TZ}", each.path) for each in files]
    table = format_table(("BYTES", "CHANGED", "FILE"), rows, get_width())
    emit_result(table, [asdict(each) for each in files], output)


async def _print_kept_file(name: str, path: str, tail: int | None, kube_context: KubeContext, output: str) -> None:
    async with connect(kube_context) as connection:
        text = await get_kept_file(connection, name, path)
    lines = LogLines({"file": text.path}, output)
    lines.write(take_last_lines(text.text, tail))
    lines.end()


async def _print_pod_log(
    name: str,
    pod: str | None,
    worker: int | None,
    container: str | None,
    query: Mapping[str, str],
    kube_context: KubeContext,
    output: str,
) -> None:
    """`query`: the parameters of the API server's log request."""
    async with connect(kube_context) as connection:
        manifest = await find_pod(connection, name, pod, worker)
        container = find_container(connection, name, manifest, container)
        lines = LogLines({"pod": manifest["metadata"]["name"]}, output, timed=output != TABLE)
        path = api_paths.log(connection.namespace, manifest["metadata"]["name"])
        async for line in connection.api.stream_lines(path, {**query, "container": container}):
            lines.write(f"{line}\n")
