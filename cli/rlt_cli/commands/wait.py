"""rlt wait: wait until a condition is True. For scripts."""

from __future__ import annotations

import click

from rlt import lifecycle
from rlt.errors import JobFailedError, UnknownConditionError, WaitTimeoutError
from rlt.job_state import Job, get_condition, summarize
from rlt.kube_context import KubeContext
from rlt.wanted_condition import WantedCondition, parse_wanted_condition
from rlt_cli.connection import connect, detached_message, run
from rlt_cli.duration import Duration, parse_duration
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, output_option, print_message
from rlt_core.job import Manifest

EXIT_FAILED = 1
EXIT_TIMEOUT = 2
SUCCEEDED = WantedCondition("Succeeded")


def parse_condition(text: str) -> WantedCondition:
    """Parse the value of --for: its click `type`. Raises BadParameter."""
    try:
        return parse_wanted_condition(text)
    except UnknownConditionError as error:
        raise click.BadParameter(error.message) from error


@click.command()
@click.argument("name")
@click.option(
    "--for",
    "wanted",
    type=parse_condition,
    default="Succeeded",
    show_default=True,
    metavar="CONDITION",
    help="The condition to wait for: TYPE, or kubectl's condition=TYPE and condition=TYPE=STATUS.",
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
def command(name: str, wanted: WantedCondition, timeout: Duration, kube_context: KubeContext, output: str) -> None:
    """Wait until a condition of a job is True.

    Exit codes: 0 the condition is True, 1 it cannot become True (the job has ended or was deleted), 2 timeout, or no
    job has the condition.
    """
    detached = detached_message(kube_context.command_line(f"watch {name}"))
    code, job = run(wait_for_condition(name, wanted, timeout, kube_context), detached=detached)
    if job and output != TABLE:
        emit(job, output)
    raise click.exceptions.Exit(code)


async def wait_for_condition(
    name: str, wanted: WantedCondition, timeout: Duration, kube_context: KubeContext
) -> tuple[int, Manifest | None]:
    """Wait, and print each change to standard error. Returns the exit code and the latest job object."""
    printed = ""

    def show(job: Manifest) -> None:
        nonlocal printed
        if timeout.seconds and (text := _describe(job, wanted)) != printed:
            printed = text
            print_message(printed)

    async with connect(kube_context) as connection:
        try:
            job = await lifecycle.wait_for_condition(connection, name, wanted, timeout.seconds, show)
        except JobFailedError as error:
            print_message(error.message)
            if error.job and timeout.seconds:
                print_message(f"next: {error.next}")
            return EXIT_FAILED, dict(error.job) if error.job else None
        except WaitTimeoutError as error:
            state = _describe(error.job, wanted) if error.job else ""
            if timeout.seconds:
                print_message(f"{name}: not {wanted} within {timeout.text}. {state}".strip())
                print_message(f"next: {error.next}")
            else:
                print_message(f"{name}: {state}")
            return EXIT_TIMEOUT, dict(error.job) if error.job else None
    print_message(f"{name}: {wanted}. {get_condition(job, wanted.type).get('message', '')}".strip())
    return 0, job


def _describe(job: Job, wanted: WantedCondition) -> str:
    return f"waiting for {wanted}: {summarize(job)}"
