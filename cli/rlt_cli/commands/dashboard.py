"""rlt dashboard: open the Ray dashboard of a job on this machine."""

from __future__ import annotations

import asyncio

import click

from rlt.kube_context import KubeContext
from rlt_cli.connection import connect, run
from rlt_cli.dashboard_server import serve_dashboard
from rlt_cli.failure import Failure
from rlt_cli.kube_context import kube_context_options
from rlt_core.names import DASHBOARD_PORT


@click.command()
@click.argument("name")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=DASHBOARD_PORT,
    show_default=True,
    help="The port on this machine. 0 selects a free one.",
)
@kube_context_options
def command(name: str, port: int, kube_context: KubeContext) -> None:
    """Open the Ray dashboard of a job on this machine.

    The command serves it on the loopback interface until Ctrl-C, read-only, with your rights in the cluster and the
    job's token. You need the verb get for services/proxy and for the Secret with the token.
    """
    run(_serve(name, port, kube_context), detached="stopped; the job continues")


async def _serve(name: str, port: int, kube_context: KubeContext) -> None:
    async with connect(kube_context) as connection:
        await connection.get_job(name)
        await connection.get_from_head(name, DASHBOARD_PORT, "/api/version")
        try:
            async with serve_dashboard(connection, name, port) as url:
                click.echo(f"Ray dashboard of job {name}: {url} (Ctrl-C ends it)")
                await asyncio.Event().wait()
        except OSError as error:
            retry = kube_context.command_line(f"dashboard {name} --port 0")
            raise Failure(f"--port {port}: {error.strerror or error}.", next=retry) from error
