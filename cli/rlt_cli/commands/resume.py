"""rlt resume: a suspended job goes on."""

from __future__ import annotations

import click

from rlt_cli.commands.suspend import set_suspend
from rlt_cli.connection import run
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import output_option, say, tell


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """Continue the suspended job NAME from its latest checkpoint."""
    place = KubeContext(namespace, context, kubeconfig)
    job = run(set_suspend(name, False, place))
    tell(f"{name} resumed", job, output)
    say(f"next: {place.rlt(f'watch {name}')}")
