"""rlt watch: a job to its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime

import click
from rich.live import Live
from rich.text import Text

from rlt_cli.commands.status import pods_and_history
from rlt_cli.commands.wait import EXIT_FAILED
from rlt_cli.connection import Connection, connected, run
from rlt_cli.job_page import has, line, page
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit_next, output_option, say
from rlt_core.job import Manifest


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """Follow the job NAME to its end: the page of `status`, kept up to date on a terminal, else a line at each change.

    -o json is the job in a line at each change, -o yaml a document. Exit codes as of `wait`. Ctrl-C detaches; the job
    goes on.
    """
    place = KubeContext(namespace, context, kubeconfig)
    detached = f"detached; the job goes on. Back: {place.rlt(f'watch {name}')}"
    raise click.exceptions.Exit(run(watch(name, place, output), detached=detached))


async def watch(name: str, place: KubeContext, output: str) -> int:
    """Show the job until its end. Returns the exit code."""
    async with connected(place) as connection:
        if output != TABLE:
            code = await _each(connection, name, lambda job: emit_next(job, output))
        elif sys.stdout.isatty():
            code = await _page(connection, name)
        else:
            code = await _each(connection, name, _Lines())
    if code is None:
        say(f"{name} was deleted")
    return EXIT_FAILED if code is None else code


async def _page(connection: Connection, name: str) -> int | None:
    with Live(auto_refresh=False, vertical_overflow="crop") as live:
        async for job in connection.changes(name):
            text = page(job, *await pods_and_history(connection, job), datetime.now(UTC))
            live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            if (code := _end(job)) is not None:
                return code
    return None


async def _each(connection: Connection, name: str, show: Callable[[Manifest], None]) -> int | None:
    async for job in connection.changes(name):
        show(job)
        if (code := _end(job)) is not None:
            return code
    return None


class _Lines:
    """Prints a job's line where it differs from the one before."""

    said = ""

    def __call__(self, job: Manifest) -> None:
        if (now := line(job, bar=20)) != self.said:
            self.said = now
            click.echo(now)


def _end(job: Manifest) -> int | None:
    """The exit code once the job has ended."""
    return 0 if has(job, "Succeeded") else EXIT_FAILED if has(job, "Failed") else None
