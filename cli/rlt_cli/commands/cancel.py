"""rlt cancel: stop a job permanently."""

from __future__ import annotations

import click

from rlt_api.conditions import Reason
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.job_page import get_condition, is_true
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import emit_result, output_option, print_message
from rlt_core.job import Manifest
from rlt_core.names import CANCEL_ANNOTATION


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
        job = await connection.get_job(name)
        for final in ("Succeeded", "Failed"):
            if is_true(job, final) and get_condition(job, "ClusterReady").get("reason") != Reason.KEPT:
                raise Failure(
                    f"Job {name} has already ended: {final}.", next=kube_context.command_line(f"delete {name}")
                )
        patch = {"metadata": {"annotations": {CANCEL_ANNOTATION: "true"}}}
        return await connection.patch_job(name, patch, field_manager="rlt-cancel")
