"""rlt suspend: the job's cluster goes, its checkpoints stay."""

from __future__ import annotations

import click

from rlt_operator.cli.connection import connected, run
from rlt_operator.cli.output import output_option, say, tell
from rlt_operator.cli.place import Place, place_options
from rlt_operator.observation import Manifest


@click.command()
@click.argument("name")
@place_options
@output_option()
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """Release the cluster of the job NAME for a while; `resume` continues from the latest checkpoint."""
    place = Place(namespace, context, kubeconfig)
    job = run(set_suspend(name, True, place))
    tell(f"{name} suspended", job, output)
    say(f"next: {place.rlt(f'wait {name} --for Suspended')}, then {place.rlt(f'resume {name}')}")


async def set_suspend(name: str, value: bool, place: Place) -> Manifest:
    """Write spec.suspend; the job as it is then."""
    async with connected(place) as connection:
        await connection.job(name)
        return await connection.patch_spec(name, {"suspend": value}, by="rlt-suspend" if value else "rlt-resume")
