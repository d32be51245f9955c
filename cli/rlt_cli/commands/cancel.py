"""rlt cancel: stop a job permanently."""

from __future__ import annotations

import click

from rlt.kube_context import KubeContext
from rlt.lifecycle import cancel_job
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import emit_result, output_option, print_message
from rlt_core.job import Manifest


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, kube_context: KubeContext, output: str) -> None:
    """Stop a job permanently and keep the job object.

    A running program gets SIGTERM and can save a checkpoint. The job then fails with reason Cancelled. Its cluster is
    released; its status and the files in its volume are kept. Of a failed job, it releases the Ray cluster that
    failurePolicy.keepClusterSeconds keeps. The command sets the annotation rlt.dev/cancel.
    """
    job = run(_cancel(name, kube_context))
    emit_result(f"{name} cancelled", job, output)
    print_message(f"next: {kube_context.command_line(f'status {name}')}")


async def _cancel(name: str, kube_context: KubeContext) -> Manifest:
    async with connect(kube_context) as connection:
        return await cancel_job(connection, name)
