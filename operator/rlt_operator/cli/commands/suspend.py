"""rlt suspend: the job's cluster goes, its checkpoints stay."""

from __future__ import annotations

import click

from rlt_operator.cli.connection import Place, connected, place_options, run
from rlt_operator.cli.main import program
from rlt_operator.cli.output import say


@click.command()
@click.argument("name")
@place_options
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Release the cluster of the job NAME for a while; `resume` continues from the latest checkpoint."""
    run(set_suspend(name, True, Place(namespace, context, kubeconfig)))
    click.echo(f"{name} suspended")
    say(f"next: {program()} wait {name} --for Suspended, then {program()} resume {name}")


async def set_suspend(name: str, value: bool, place: Place) -> None:
    """Write spec.suspend."""
    async with connected(place) as connection:
        await connection.job(name)
        await connection.patch_spec(name, {"suspend": value})
