"""rlt cancel: a job ends for good, and stays to be looked at."""

from __future__ import annotations

import click

from rlt_operator.cli.connection import connected, run
from rlt_operator.cli.failure import Failure
from rlt_operator.cli.job_page import has
from rlt_operator.cli.output import output_option, say, tell
from rlt_operator.cli.place import Place, place_options
from rlt_operator.observation import Manifest


@click.command()
@click.argument("name")
@place_options
@output_option()
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """End the job NAME for good: it fails with DeadlineExceeded, its cluster goes, its status and its files stay.

    What it does is to set spec.activeDeadlineSeconds (and pendingDeadlineSeconds) to 1.
    """
    place = Place(namespace, context, kubeconfig)
    job = run(_cancel(name, place))
    tell(f"{name} cancelled", job, output)
    say(f"next: {place.rlt(f'status {name}')}")


async def _cancel(name: str, place: Place) -> Manifest:
    async with connected(place) as connection:
        job = await connection.job(name)
        for final in ("Succeeded", "Failed"):
            if has(job, final):
                raise Failure(f"{name} has ended already: {final}.", next=place.rlt(f"delete {name}"))
        return await connection.patch_spec(
            name, {"suspend": False, "activeDeadlineSeconds": 1, "pendingDeadlineSeconds": 1}, by="rlt-cancel"
        )
