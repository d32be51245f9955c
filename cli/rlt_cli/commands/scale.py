"""rlt scale: change the number of pods that only generate."""

from __future__ import annotations

import click

from rlt.kube_context import KubeContext
from rlt.lifecycle import scale_job
from rlt_cli.connection import connect, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import emit_result, output_option, print_message
from rlt_core.job import Manifest


@click.command()
@click.argument("name")
@click.argument("replicas", type=click.IntRange(min=1))
@click.option("--group", metavar="NAME", help="The worker group.  [default: the group of rollout.workerGroup]")
@kube_context_options
@output_option()
def command(name: str, replicas: int, group: str | None, kube_context: KubeContext, output: str) -> None:
    """Change the number of pods that only generate, while the job runs.

    The number is from minReplicas to maxReplicas of the group of rollout.workerGroup. A new pod serves from the next
    weight sync on. The requests of a removed pod go to the others. The training waits for neither. The command sets
    spec.rolloutReplicas, which a later attempt uses as well.
    """
    job = run(_scale(name, replicas, group, kube_context))
    emit_result(f"{name} scaled to {replicas} rollout pods", job, output)
    print_message(f"next: {kube_context.command_line(f'status {name}')}")


async def _scale(name: str, replicas: int, group: str | None, kube_context: KubeContext) -> Manifest:
    async with connect(kube_context) as connection:
        return await scale_job(connection, name, replicas, group=group)
