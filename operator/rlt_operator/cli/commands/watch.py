"""rlt watch: a job to its end."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click
from rich.live import Live
from rich.text import Text

from rlt_operator.cli.commands.status import pods_and_history
from rlt_operator.cli.commands.wait import EXIT_FAILED
from rlt_operator.cli.connection import Connection, Place, connected, place_options, run
from rlt_operator.cli.job_page import has, line, page, progress_bar
from rlt_operator.cli.output import say
from rlt_operator.observation import Manifest


@click.command()
@click.argument("name")
@place_options
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Follow the job NAME to its end: the page of `status`, kept up to date on a terminal, else a line at each change.

    Exit codes as of `wait`. Ctrl-C detaches; the job goes on.
    """
    place = Place(namespace, context, kubeconfig)
    detached = f"detached; the job goes on. Back: {place.rlt(f'watch {name}')}"
    raise click.exceptions.Exit(run(watch(name, place), detached=detached))


async def watch(name: str, place: Place) -> int:
    """Show the job until its end. Returns the exit code."""
    async with connected(place) as connection:
        code = await (_page if sys.stdout.isatty() else _lines)(connection, name)
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


async def _lines(connection: Connection, name: str) -> int | None:
    said = ""
    async for job in connection.changes(name):
        if (now := _line(job)) != said:
            said = now
            click.echo(now)
        if (code := _end(job)) is not None:
            return code
    return None


def _line(job: Manifest) -> str:
    progress = job.get("status", {}).get("progress")
    bar = f"{progress_bar(progress['percent'], 20)} {progress['display']}  " if progress else ""
    return bar + line(job)


def _end(job: Manifest) -> int | None:
    """The exit code once the job has ended."""
    return 0 if has(job, "Succeeded") else EXIT_FAILED if has(job, "Failed") else None
