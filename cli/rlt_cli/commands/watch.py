"""rlt watch: follow a job until it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from rlt.connection import Connection
from rlt.job_state import is_true, summarize
from rlt.kube_context import KubeContext
from rlt.runs.records import get_latest_history
from rlt_cli.commands.wait import EXIT_FAILED
from rlt_cli.connection import connect, detached_message, run
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit_item, output_option, print_message
from rlt_cli.pages.job import format_watch_page
from rlt_core.job import Manifest


@click.command()
@click.argument("name")
@kube_context_options
@output_option()
def command(name: str, kube_context: KubeContext, output: str) -> None:
    """Follow a job until it ends.

    On a terminal, this updates a page with the start-up checklist, the steps, rates, metrics and findings; otherwise it
    prints one line per change. -o json prints the job
    as one line per change, -o yaml as one document. Ctrl-C detaches; the job continues. Exit codes as in `wait`.
    """
    detached = detached_message(kube_context.command_line(f"watch {name}"))
    raise click.exceptions.Exit(run(watch(name, kube_context, output), detached=detached))


async def watch(name: str, kube_context: KubeContext, output: str) -> int:
    """Show the job until it ends. Returns the exit code."""
    console = Console()
    async with connect(kube_context) as connection:
        if output != TABLE:
            code = await _watch_with(connection, name, lambda job: emit_item(job, output))
        elif sys.stdout.isatty() and not console.is_dumb_terminal:
            code = await _watch_page(connection, name, console)
        else:
            code = await _watch_with(connection, name, _LinePrinter())
    if code is None:
        print_message(f"{name} was deleted")
    return EXIT_FAILED if code is None else code


async def _watch_page(connection: Connection, name: str, console: Console) -> int | None:
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        async for job in connection.watch_job(name):
            history, _ = await get_latest_history(connection, job)
            page = format_watch_page(job, history, datetime.now(UTC), console.width)
            live.update(Text.from_ansi(page, no_wrap=True, overflow="ellipsis"), refresh=True)
            if (code := _exit_code(job)) is not None:
                return code
    return None


async def _watch_with(connection: Connection, name: str, show: Callable[[Manifest], None]) -> int | None:
    async for job in connection.watch_job(name):
        show(job)
        if (code := _exit_code(job)) is not None:
            return code
    return None


class _LinePrinter:
    """Prints the summary of a job if it differs from the previous one."""

    printed = ""

    def __call__(self, job: Manifest) -> None:
        if (text := summarize(job, bar=20)) != self.printed:
            self.printed = text
            click.echo(text)


def _exit_code(job: Manifest) -> int | None:
    """The exit code if the job has ended, else None."""
    return 0 if is_true(job, "Succeeded") else EXIT_FAILED if is_true(job, "Failed") else None
