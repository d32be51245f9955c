"""rlt watch: a job to its end."""

from __future__ import annotations

import shutil
import sys

import click

from rlt_operator.cli.commands.wait import EXIT_FAILED
from rlt_operator.cli.connection import Place, connected, place_options, run
from rlt_operator.cli.job_page import has, line, progress_bar
from rlt_operator.cli.main import program
from rlt_operator.observation import Manifest


@click.command()
@click.argument("name")
@place_options
def command(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Follow the job NAME to its end: one line that changes on a terminal, else a line at each change.

    Exit codes as of `wait`. Ctrl-C detaches; the job goes on.
    """
    place = Place(namespace, context, kubeconfig)
    detached = f"detached; the job goes on. Back: {program()} watch {name}"
    raise click.exceptions.Exit(run(_watch(name, place), detached=detached))


async def _watch(name: str, place: Place) -> int:
    said = ""
    async with connected(place) as connection:
        async for job in connection.changes(name):
            if (now := _line(job)) != said:
                said = now
                _show(now)
            for final, code in (("Succeeded", 0), ("Failed", EXIT_FAILED)):
                if has(job, final):
                    _end()
                    return code
    _end()
    click.echo(f"{name} was deleted", err=True)
    return EXIT_FAILED


def _line(job: Manifest) -> str:
    progress = job.get("status", {}).get("progress")
    bar = f"{progress_bar(progress['percent'], 20)} {progress['display']}  " if progress else ""
    return bar + line(job)


def _show(text: str) -> None:
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        click.echo(f"\r\x1b[K{text[: width - 1]}", nl=False)
    else:
        click.echo(text)


def _end() -> None:
    if sys.stdout.isatty():
        click.echo()
