"""rlt suspend: release a job's cluster and keep its checkpoints."""

from __future__ import annotations

import click

from rlt import lifecycle
from rlt.kube_context import KubeContext
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import emit_result, output_option, print_message
from rlt_core.job import Manifest


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, kube_context: KubeContext, output: str) -> None:
    """Release the cluster of a job and keep its checkpoints. `resume` continues from the latest one."""
    job = run(set_suspend(name, True, kube_context))
    emit_result(f"{name} suspended", job, output)
    wait, resume = (kube_context.command_line(each) for each in (f"wait {name} --for Suspended", f"resume {name}"))
    print_message(f"next: {wait}, then {resume}")


async def set_suspend(name: str, suspend: bool, kube_context: KubeContext) -> Manifest:
    """Set spec.suspend. Returns the stored job."""
    async with connect(kube_context) as connection:
        return await lifecycle.set_suspend(connection, name, suspend)
