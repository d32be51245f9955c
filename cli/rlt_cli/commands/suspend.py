"""rlt suspend: the job's cluster goes, its checkpoints stay."""

from __future__ import annotations

import click

from rlt_cli.connection import connected, run
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import output_option, say, tell
from rlt_core.job import Manifest


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """Release the cluster of the job NAME for a while; `resume` continues from the latest checkpoint."""
    place = KubeContext(namespace, context, kubeconfig)
    job = run(set_suspend(name, True, place))
    tell(f"{name} suspended", job, output)
    say(f"next: {place.rlt(f'wait {name} --for Suspended')}, then {place.rlt(f'resume {name}')}")


async def set_suspend(name: str, value: bool, place: KubeContext) -> Manifest:
    """Write spec.suspend; the job as it is then."""
    async with connected(place) as connection:
        await connection.job(name)
        return await connection.patch_spec(name, {"suspend": value}, by="rlt-suspend" if value else "rlt-resume")
