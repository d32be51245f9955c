"""rlt wait: for scripts, with an exit code."""

from __future__ import annotations

import asyncio

import click

from rlt_cli.connection import connected, run
from rlt_cli.duration import Duration, duration
from rlt_cli.job_page import can_come, condition, has, line
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit, output_option, say
from rlt_core.job import Manifest

EXIT_FAILED, EXIT_TIMEOUT = 1, 2


@click.command()
@click.argument("name")
@click.option(
    "--for", "wanted", default="Succeeded", show_default=True, metavar="CONDITION", help="Until this is True."
)
@click.option(
    "--timeout",
    type=duration,
    default="24h",
    show_default=True,
    help="How long, such as 90s, 30m or 1h30m; 0 looks once.",
)
@kube_context_options
@output_option()
def command(
    name: str,
    wanted: str,
    timeout: Duration,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Wait until a condition of the job NAME is True.

    Exit codes: 0 it is, 1 it never will be (the job has ended otherwise, or is deleted), 2 not in time.
    """
    place = KubeContext(namespace, context, kubeconfig)
    detached = f"detached; the job goes on. Back: {place.rlt(f'watch {name}')}"
    code, job = run(follow(name, wanted, timeout, place), detached=detached)
    if job and output != TABLE:
        emit(job, output)
    raise click.exceptions.Exit(code)


async def follow(name: str, wanted: str, timeout: Duration, place: KubeContext) -> tuple[int, Manifest | None]:
    """Wait, and say on standard error what for at each change. Returns the exit code and the job as it is then."""
    job, said = None, ""
    async with connected(place) as connection:
        if timeout.seconds == 0:
            job = await connection.job(name)
            code, said = judged(job, wanted)
            say(f"{name}: {said}")
            return EXIT_TIMEOUT if code is None else code, job
        try:
            async with asyncio.timeout(timeout.seconds):
                async for job in connection.changes(name):
                    code, now = judged(job, wanted)
                    if code is not None:
                        say(f"{name}: {now}")
                        if code:
                            say(f"next: {place.rlt(f'status {name}')}")
                        return code, job
                    if now != said:
                        said = now
                        say(said)
        except TimeoutError:
            say(f"{name}: not {wanted} within {timeout.text}. {said}".strip())
            say(f"next: {place.rlt(f'status {name}')}")
            return EXIT_TIMEOUT, job
    say(f"{name} was deleted")
    return EXIT_FAILED, None


def judged(job: Manifest, wanted: str) -> tuple[int | None, str]:
    """The exit code, None while the condition may still come, and where the job is."""
    if has(job, wanted):
        return 0, f"{wanted}. {condition(job, wanted).get('message', '')}".strip()
    if not can_come(job, wanted):
        return EXIT_FAILED, line(job)
    return None, f"waiting for {wanted}: {line(job)}"
