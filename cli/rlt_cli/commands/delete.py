"""rlt delete: jobs and their clusters."""

from __future__ import annotations

import sys

import click

from rlt_cli.connection import connected, run
from rlt_cli.failure import Failure
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import output_option, say, tell
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@kube_context_options
@output_option()
def command(
    names: tuple[str, ...], yes: bool, namespace: str | None, context: str | None, kubeconfig: str | None, output: str
) -> None:
    """Delete jobs with their clusters. What they wrote into their volumes stays."""
    place = KubeContext(namespace, context, kubeconfig)
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("Deletion asks, and there is no terminal.", next=place.rlt(f"delete {' '.join(names)} --yes"))
        click.confirm(f"Delete {', '.join(names)}?", abort=True, err=True)
    jobs = run(_delete(names, place))
    tell("\n".join(f"{name} deleted" for name in names), jobs, output)
    say("what they wrote lies in their volumes still")


async def _delete(names: tuple[str, ...], place: KubeContext) -> list[Manifest]:
    async with connected(place) as connection:
        jobs = [await connection.job(name) for name in names]
        for job in jobs:
            metadata = job["metadata"]
            await connection.api.delete(api_paths.job(connection.namespace, metadata["name"]), uid=metadata["uid"])
        return jobs
