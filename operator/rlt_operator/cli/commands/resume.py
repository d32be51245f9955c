"""rlt resume: a suspended job goes on."""

from __future__ import annotations

import click

from rlt_operator.cli.commands.suspend import set_suspend
from rlt_operator.cli.connection import run
from rlt_operator.cli.output import output_option, say, tell
from rlt_operator.cli.place import Place, place_options


@click.command()
@click.argument("name")
@place_options
@output_option()
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """Continue the suspended job NAME from its latest checkpoint."""
    place = Place(namespace, context, kubeconfig)
    job = run(set_suspend(name, False, place))
    tell(f"{name} resumed", job, output)
    say(f"next: {place.rlt(f'watch {name}')}")
