"""rlt wait: wait until a condition is True. For scripts."""

from __future__ import annotations

import asyncio

import click

from rlt_cli.connection import connect, detached_message, run
from rlt_cli.duration import Duration, parse_duration
from rlt_cli.job_page import can_become_true, get_condition, is_true, summarize
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit, output_option, print_message
from rlt_core.job import Manifest

EXIT_FAILED, EXIT_TIMEOUT = 1, 2


@click.command()
@click.argument("name")
@click.option(
    "--for", "wanted", default="Succeeded", show_default=True, metavar="CONDITION", help="The condition to wait for."
)
@click.option(
    "--timeout",
    type=parse_duration,
    default="24h",
    show_default=True,
    metavar="DURATION",
    help="Maximum time, such as 90s, 30m or 1h30m. 0 reads the job once.",
)
@kube_context_options
@output_option()
def command(name: str, wanted: str, timeout: Duration, kube_context: KubeContext, output: str) -> None:
    """Wait until a condition of a job is True.

    Exit codes: 0 the condition is True, 1 it cannot become True (the job has ended or was deleted), 2 timeout.
    """
    detached = detached_message(kube_context.command_line(f"watch {name}"))
    code, job = run(wait_for_condition(name, wanted, timeout, kube_context), detached=detached)
    if job and output != TABLE:
        emit(job, output)
    raise click.exceptions.Exit(code)


async def wait_for_condition(
    name: str, wanted: str, timeout: Duration, kube_context: KubeContext
) -> tuple[int, Manifest | None]:
    """Wait, and print each change to standard error. Returns the exit code and the latest job object."""
    job, printed = None, ""
    status_command = kube_context.command_line(f"status {name}")
    async with connect(kube_context) as connection:
        if timeout.seconds == 0:
            job = await connection.get_job(name)
            code, text = evaluate(job, wanted)
            print_message(f"{name}: {text}")
            return EXIT_TIMEOUT if code is None else code, job
        try:
            async with asyncio.timeout(timeout.seconds):
                async for job in connection.watch_job(name):
                    code, text = evaluate(job, wanted)
                    if code is not None:
                        print_message(f"{name}: {text}")
                        if code:
                            print_message(f"next: {status_command}")
                        return code, job
                    if text != printed:
                        printed = text
                        print_message(printed)
        except TimeoutError:
            print_message(f"{name}: not {wanted} within {timeout.text}. {printed}".strip())
            print_message(f"next: {status_command}")
            return EXIT_TIMEOUT, job
    print_message(f"{name} was deleted")
    return EXIT_FAILED, None


def evaluate(job: Manifest, wanted: str) -> tuple[int | None, str]:
    """The exit code, or None while the condition can still become True; and the state of the job."""
    if is_true(job, wanted):
        return 0, f"{wanted}. {get_condition(job, wanted).get('message', '')}".strip()
    if not can_become_true(job, wanted):
        return EXIT_FAILED, summarize(job)
    return None, f"waiting for {wanted}: {summarize(job)}"
