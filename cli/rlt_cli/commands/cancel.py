"""rlt cancel: a job ends for good, and stays to be looked at."""

from __future__ import annotations

import click

from rlt_cli.connection import connected, run
from rlt_cli.failure import Failure
from rlt_cli.job_page import has
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import output_option, say, tell
from rlt_core.job import Manifest


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """End the job NAME for good: it fails with DeadlineExceeded, its cluster goes, its status and its files stay.

    What it does is to set spec.activeDeadlineSeconds (and pendingDeadlineSeconds) to 1.
    """
    place = KubeContext(namespace, context, kubeconfig)
    job = run(_cancel(name, place))
    tell(f"{name} cancelled", job, output)
    say(f"next: {place.rlt(f'status {name}')}")


async def _cancel(name: str, place: KubeContext) -> Manifest:
    async with connected(place) as connection:
        job = await connection.job(name)
        for final in ("Succeeded", "Failed"):
            if has(job, final):
                raise Failure(f"{name} has ended already: {final}.", next=place.rlt(f"delete {name}"))
        return await connection.patch_spec(
            name, {"suspend": False, "activeDeadlineSeconds": 1, "pendingDeadlineSeconds": 1}, by="rlt-cancel"
        )
