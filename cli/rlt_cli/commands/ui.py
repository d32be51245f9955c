"""rlt ui: show runs on a local page."""

from __future__ import annotations

import asyncio

import click

from rlt.deleted_jobs import OPERATOR_NAMESPACE
from rlt.errors import RltError
from rlt.kube_context import KubeContext
from rlt.program import program_name
from rlt.runs.bucket_copy import BucketCopy, select_all
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import print_message
from rlt_cli.run_arguments import find_directory, open_bucket, update_copy
from rlt_pod.download.bucket import SCHEME

INTERVAL_S = 30.0
"""Time between two copies of changes in a bucket."""


@click.command()
@click.argument("source", required=False, metavar="[DIRECTORY | URL | NAME]")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=0,
    help="The port on this machine.  [default: a free one]",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option(
    "--operator-namespace",
    default=OPERATOR_NAMESPACE,
    show_default=True,
    metavar="NAMESPACE",
    help="Namespace of the operator, which has the usage of deleted jobs.",
)
@kube_context_options
def command(
    source: str | None, port: int, all_namespaces: bool, operator_namespace: str, kube_context: KubeContext
) -> None:
    """Show runs on a page in the browser: metrics, evaluations, rollouts, times, state and accelerator hours.

    DIRECTORY is a run directory or a folder of run directories, and URL the same in a bucket (s3://BUCKET/PREFIX), of
    which changes are copied every 30 s. NAME is a job. Without an argument, the page lists the jobs of the namespace,
    or with -A of all namespaces. The command serves the page on the loopback interface until Ctrl-C, read-only, to
    browsers with the token in its URL.
    """
    if source is not None and all_namespaces:
        raise click.UsageError("DIRECTORY or NAME selects runs: omit --all-namespaces")
    try:
        serving = _serve(source, port, all_namespaces, operator_namespace, kube_context)
        run(serving, detached="stopped; runs and jobs continue")
    except OSError as error:
        message = f"--port {port}: {error.strerror or error}."
        raise Failure(message, next=f"{program_name()} ui {source or ''}".strip()) from error


async def _serve(source: str | None, port: int, all_namespaces: bool, operator: str, kube_context: KubeContext) -> None:
    from rlt_ui.all_jobs import AllJobs
    from rlt_ui.directories import RunFolder
    from rlt_ui.jobs import JobList
    from rlt_ui.server import serve

    if source is not None and source.startswith(SCHEME):
        copy = open_bucket(source)
        await asyncio.to_thread(update_copy, copy, select_all)
        folder = RunFolder(copy.path, copy.url)
        following = asyncio.create_task(_follow(copy))
        try:
            await serve(folder, port, _announce, run=folder.only_run)
        finally:
            following.cancel()
        return
    if source is not None and (directory := find_directory(source)):
        folder = RunFolder(directory)
        await serve(folder, port, _announce, run=folder.only_run)
        return
    async with connect(kube_context) as connection:
        if source is not None:
            await connection.get_job(source)
        jobs = AllJobs(connection, operator) if all_namespaces else JobList(connection, operator)
        await serve(jobs, port, _announce, run=source)


def _announce(url: str) -> None:
    click.echo(f"{url} (Ctrl-C ends it)")


async def _follow(copy: BucketCopy) -> None:
    """Copy changes until the command ends. An error is printed, and the next copy is tried."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        try:
            await asyncio.to_thread(copy.update, select_all)
        except RltError as error:
            print_message(f"{error.message} The page has what was copied before.")
