"""rlt resume: a suspended job goes on."""

from __future__ import annotations

import click

from rlt_operator.cli.commands.suspend import set_suspend
from rlt_operator.cli.connection import Place, place_options, run
from rlt_operator.cli.main import program
from rlt_operator.cli.output import say


@click.command()
@click.argument("name")
@place_options
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Continue the suspended job NAME from its latest checkpoint."""
    run(set_suspend(name, False, Place(namespace, context, kubeconfig)))
    click.echo(f"{name} resumed")
    say(f"next: {program()} watch {name}")
