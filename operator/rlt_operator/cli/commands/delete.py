"""rlt delete: jobs and their clusters."""

from __future__ import annotations

import sys

import click

from rlt_operator import api_paths
from rlt_operator.cli.connection import connected, run
from rlt_operator.cli.failure import Failure
from rlt_operator.cli.output import output_option, say, tell
from rlt_operator.cli.place import Place, place_options
from rlt_operator.observation import Manifest


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@place_options
@output_option()
def command(
    names: tuple[str, ...], yes: bool, namespace: str | None, context: str | None, kubeconfig: str | None, output: str
) -> None:
    """Delete jobs with their clusters. What they wrote into their volumes stays."""
    place = Place(namespace, context, kubeconfig)
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("Deletion asks, and there is no terminal.", next=place.rlt(f"delete {' '.join(names)} --yes"))
        click.confirm(f"Delete {', '.join(names)}?", abort=True, err=True)
    jobs = run(_delete(names, place))
    tell("\n".join(f"{name} deleted" for name in names), jobs, output)
    say("what they wrote lies in their volumes still")


async def _delete(names: tuple[str, ...], place: Place) -> list[Manifest]:
    async with connected(place) as connection:
        jobs = [await connection.job(name) for name in names]
        for job in jobs:
            metadata = job["metadata"]
            await connection.api.delete(api_paths.job(connection.namespace, metadata["name"]), uid=metadata["uid"])
        return jobs
