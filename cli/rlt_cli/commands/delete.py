"""rlt delete: delete jobs and their clusters."""

from __future__ import annotations

import sys

import click

from rlt.kube_context import KubeContext
from rlt.lifecycle import delete_jobs
from rlt_cli.connection import connect, run
from rlt_cli.failure import Failure
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import emit_result, output_option, print_message
from rlt_core.job import Manifest


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@kube_context_options
@output_option()
def command(names: tuple[str, ...], yes: bool, kube_context: KubeContext, output: str) -> None:
    """Delete jobs and their clusters. The files in their volumes are kept."""
    if not yes:
        if not sys.stdin.isatty():
            raise Failure(
                "Deletion requires confirmation, and standard input is not a terminal.",
                next=kube_context.command_line(f"delete {' '.join(names)} --yes"),
            )
        click.confirm(f"Delete {', '.join(names)}?", abort=True, err=True)
    jobs = run(_delete(names, kube_context))
    emit_result("\n".join(f"{name} deleted" for name in names), jobs, output)
    print_message("the files in their volumes are kept")


async def _delete(names: tuple[str, ...], kube_context: KubeContext) -> list[Manifest]:
    async with connect(kube_context) as connection:
        return await delete_jobs(connection, *names)
