"""rlt wait: for scripts, with an exit code."""

from __future__ import annotations

import asyncio
import re

import click

from rlt_operator.cli.connection import Place, connected, place_options, run
from rlt_operator.cli.job_page import can_come, condition, has, line
from rlt_operator.cli.output import TABLE, emit, output_option, say
from rlt_operator.observation import Manifest

EXIT_FAILED, EXIT_TIMEOUT = 1, 2


@click.command()
@click.argument("name")
@click.option(
    "--for", "wanted", default="Succeeded", show_default=True, metavar="CONDITION", help="Until this is True."
)
@click.option("--timeout", default="24h", show_default=True, help="How long, such as 90s, 30m or 2h.")
@place_options
@output_option
def command(
    name: str,
    wanted: str,
    timeout: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Wait until a condition of the job NAME is True.

    Exit codes: 0 it is, 1 it never will be (the job has ended otherwise, or is deleted), 2 not in time.
    """
    place = Place(namespace, context, kubeconfig)
    detached = f"detached; the job goes on. Back: {place.rlt(f'watch {name}')}"
    code, job = run(follow(name, wanted, timeout, place), detached=detached)
    if job and output != TABLE:
        emit(job, output)
    raise click.exceptions.Exit(code)


async def follow(name: str, wanted: str, timeout: str, place: Place) -> tuple[int, Manifest | None]:
    """Wait, and say on standard error what for at each change. Returns the exit code and the job as it is then."""
    job = None
    try:
        async with asyncio.timeout(seconds(timeout)), connected(place) as connection:
            said = ""
            async for job in connection.changes(name):
                if has(job, wanted):
                    say(f"{name}: {wanted}. {condition(job, wanted).get('message', '')}".strip())
                    return 0, job
                if not can_come(job, wanted):
                    say(f"{name}: {line(job)}")
                    say(f"next: {place.rlt(f'status {name}')}")
                    return EXIT_FAILED, job
                if (now := f"waiting for {wanted}: {line(job)}") != said:
                    said = now
                    say(said)
            say(f"{name} was deleted")
            return EXIT_FAILED, None
    except TimeoutError:
        say(f"{name}: not {wanted} within {timeout}. {said}")
        say(f"next: {place.rlt(f'status {name}')}")
        return EXIT_TIMEOUT, job


def seconds(text: str) -> float:
    """ "90s", "30m", "2h" or "90" in seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d)?", text)
    if found is None:
        raise click.BadParameter(f"{text}: write a time such as 90s, 30m or 2h", param_hint="--timeout")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2] or "s"]
