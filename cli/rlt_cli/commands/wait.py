"""rlt wait: wait until a condition has a status, or until the job is deleted. For scripts."""

from __future__ import annotations

from dataclasses import dataclass

import click

from rlt import lifecycle
from rlt.errors import JobFailedError, UnknownConditionError, WaitTimeoutError
from rlt.job_state import Job, get_condition, summarize
from rlt.kube_context import KubeContext
from rlt.wanted_condition import DELETION, WantedCondition, parse_wanted_condition
from rlt_api.findings.spelling import find_nearest_word
from rlt_cli.connection import connect, detached_message, run
from rlt_cli.duration import Duration, parse_duration
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, output_option, print_message
from rlt_core.job import Manifest

EXIT_FAILED = 1
EXIT_TIMEOUT = 2
SUCCEEDED = WantedCondition("Succeeded")


def parse_condition(text: str) -> WantedCondition | str:
    """Parse the value of --for: its click `type`. Returns DELETION for `delete`. Raises BadParameter."""
    if text.lower() == DELETION:
        return DELETION
    try:
        return parse_wanted_condition(text)
    except UnknownConditionError as error:
        is_deletion = find_nearest_word(text.lower(), [DELETION], max_distance=2)
        message = f"No job has a condition {text!r}: did you mean {DELETION}?" if is_deletion else error.message
        raise click.BadParameter(message) from error


@click.command()
@click.argument("name")
@click.option(
    "--for",
    "wanted",
    type=parse_condition,
    default="Succeeded",
    show_default=True,
    metavar="CONDITION",
    help="The condition to wait for: TYPE, or kubectl's condition=TYPE, condition=TYPE=STATUS and delete.",
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
def command(
    name: str, wanted: WantedCondition | str, timeout: Duration, kube_context: KubeContext, output: str
) -> None:
    """Wait until a condition of a job is True, or until the job is deleted.

    Exit codes: 0 the condition is True, 1 it cannot become True (the job has ended or was deleted), 2 timeout, or no
    job has the condition. --for=delete ends with 0 if the job does not exist.
    """
    detached = detached_message(kube_context.command_line(f"watch {name}"))
    if isinstance(wanted, WantedCondition):
        waiting = wait_for_condition(name, wanted, timeout, kube_context)
    else:
        waiting = _wait_for_deletion(name, timeout, kube_context)
    code, job = run(waiting, detached=detached)
    if job and output != TABLE:
        emit(job, output)
    raise click.exceptions.Exit(code)


async def wait_for_condition(
    name: str, wanted: WantedCondition, timeout: Duration, kube_context: KubeContext
) -> tuple[int, Manifest | None]:
    """Wait, and print each change to standard error. Returns the exit code and the latest job object."""
    printer = _Printer(name, str(wanted), str(wanted), timeout)
    async with connect(kube_context) as connection:
        try:
            job = await lifecycle.wait_for_condition(connection, name, wanted, timeout.seconds, printer.show)
        except JobFailedError as error:
            print_message(error.message)
            if error.job and timeout.seconds:
                print_message(f"next: {error.next}")
            return EXIT_FAILED, dict(error.job) if error.job else None
        except WaitTimeoutError as error:
            return EXIT_TIMEOUT, printer.show_timeout(error)
    print_message(f"{name}: {wanted}. {get_condition(job, wanted.type).get('message', '')}".strip())
    return 0, job


async def _wait_for_deletion(name: str, timeout: Duration, kube_context: KubeContext) -> tuple[int, Manifest | None]:
    """As `wait_for_condition`, until the job no longer exists."""
    printer = _Printer(name, "deletion", "deleted", timeout)
    async with connect(kube_context) as connection:
        try:
            job = await lifecycle.wait_for_deletion(connection, name, timeout.seconds, printer.show)
        except WaitTimeoutError as error:
            return EXIT_TIMEOUT, printer.show_timeout(error)
    print_message(f"{name}: {'deleted' if job else f'does not exist in namespace {connection.namespace}'}")
    return 0, job


@dataclass
class _Printer:
    """Prints the state of a job to standard error."""

    name: str
    wanted: str
    state: str
    """Of the job if it has what is wanted."""
    timeout: Duration
    printed: str = ""

    def show(self, job: Job) -> None:
        """Print a state that differs from the previous one."""
        if self.timeout.seconds and (text := self._describe(job)) != self.printed:
            self.printed = text
            print_message(text)

    def show_timeout(self, error: WaitTimeoutError) -> Manifest | None:
        """Print the last state and the next command. Returns the job."""
        latest = self._describe(error.job) if error.job else ""
        if self.timeout.seconds:
            print_message(f"{self.name}: not {self.state} within {self.timeout.text}. {latest}".strip())
            print_message(f"next: {error.next}")
        else:
            print_message(f"{self.name}: {latest}")
        return dict(error.job) if error.job else None

    def _describe(self, job: Job) -> str:
        return f"waiting for {self.wanted}: {summarize(job)}"
