"""rlt resume: resume a suspended job."""

from __future__ import annotations

import click

from rlt.kube_context import KubeContext
from rlt_cli.commands.suspend import set_suspend
from rlt_cli.connection import run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import emit_result, output_option, print_message


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, kube_context: KubeContext, output: str) -> None:
    """Resume a suspended job from its latest checkpoint."""
    job = run(set_suspend(name, False, kube_context))
    emit_result(f"{name} resumed", job, output)
    print_message(f"next: {kube_context.command_line(f'watch {name}')}")
