"""rlt logs: show the log of a job's program or of one of its pods, also after they have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from rlt.kept_files import KeptFile, Text, list_kept_files, list_local_files, read_local_file
from rlt.kube_context import KubeContext
from rlt.pods import find_container, find_pod
from rlt.program_log import follow_program_log, get_kept_file, get_program_log, take_last_lines
from rlt.runs.bucket_copy import select_logs
from rlt_cli.connection import connect, detached_message, run
from rlt_cli.duration import Duration, parse_duration
from rlt_cli.kube_context import kube_context_options
from rlt_cli.log_lines import PROGRAM, LogLines
from rlt_cli.output import TABLE, emit_result, get_width, output_option
from rlt_cli.run_arguments import find_directory
from rlt_cli.table import format_table
from rlt_core.children.attempt_directory import PROGRAM_LOG, step_log
from rlt_core.kubernetes import api_paths


@click.command()
@click.argument("name", metavar="NAME | DIRECTORY | URL")
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
    mounts it read-only is created for some seconds. Of a run directory, or of a run in a bucket, s3://BUCKET/PREFIX,
    these logs are read without a cluster.
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
    file = file or (step_log(step) if step else PROGRAM_LOG)
    path = None if list_files else f"{attempt}/{file}" if attempt else file
    if directory := find_directory(name, select_logs(name, path)):
        if of_pod or follow:
            raise click.UsageError("a run directory or bucket has kept logs alone: --step, --attempt, --file, --list")
        _print_directory(directory, path, tail, output)
        return
    if list_files or kept:
        run(_print_kept_files(name, path, tail, kube_context, output))
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


def _print_directory(directory: Path, path: str | None, tail: int | None, output: str) -> None:
    """Print a kept file of a run directory. None: list all."""
    if path is None:
        _print_files(list_local_files(directory), output)
    else:
        _print_text(read_local_file(directory, path), tail, output)


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


async def _print_kept_files(
    name: str, path: str | None, tail: int | None, kube_context: KubeContext, output: str
) -> None:
    """Print a kept file of a job. None: list all."""
    async with connect(kube_context) as connection:
        if path is None:
            _print_files(await list_kept_files(connection, name), output)
        else:
            _print_text(await get_kept_file(connection, name, path), tail, output)


def _print_files(files: list[KeptFile], output: str) -> None:
    rows = [(each.size, f"{datetime.fromtimestamp(each.time, UTC):%FT%TZ}", each.path) for each in files]
    table = format_table(("BYTES", "CHANGED", "FILE"), rows, get_width())
    emit_result(table, [asdict(each) for each in files], output)


def _print_text(text: Text, tail: int | None, output: str) -> None:
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
