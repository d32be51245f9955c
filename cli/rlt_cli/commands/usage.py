"""rlt usage: the accelerator hours of jobs."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import click

from rlt.deleted_jobs import OPERATOR_NAMESPACE, list_deleted_jobs
from rlt.job_state import Job
from rlt.kube_context import KubeContext
from rlt.usage import GROUPS, MAX_DAYS, add_bills, find_first_day, merge_deleted, name_accelerator, select_jobs
from rlt_cli.connection import connect, run
from rlt_cli.duration import Duration, parse_duration
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, get_width, output_option, print_message
from rlt_cli.pages.usage import format_bills

DAY_S = 24 * 3600


def parse_price(text: str) -> tuple[str, float]:
    """Parse h100=2.5. Raises BadParameter."""
    name, _, number = text.partition("=")
    try:
        price = float(number)
    except ValueError:
        price = math.nan
    if not name or not math.isfinite(price) or price < 0:
        raise click.BadParameter(f"{text!r} is not ACCELERATOR=PRICE: use the price of an hour, such as h100=2.5.")
    return name.lower(), price


def parse_since(text: str) -> Duration:
    """Parse 7d. Raises BadParameter."""
    since = parse_duration(text)
    if since.seconds > MAX_DAYS * DAY_S:
        raise click.BadParameter(f"{text!r} is too long: use at most {MAX_DAYS}d, as jobs keep {MAX_DAYS + 1} days.")
    return since


@click.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="Add up the jobs of all namespaces.")
@click.option("-l", "--selector", help="Add up only jobs that match this label selector, such as team=a.")
@click.option(
    "--since",
    type=parse_since,
    metavar="DURATION",
    help=f"Only what was used in this time, such as 7d, from the start of the first day (UTC); at most {MAX_DAYS}d.",
)
@click.option("--by", type=click.Choice(GROUPS), default="job", show_default=True, help="What a row adds up.")
@click.option(
    "--price",
    "prices",
    multiple=True,
    type=parse_price,
    metavar="ACCELERATOR=PRICE",
    help="Price of an accelerator hour, such as h100=2.5. Can be repeated.",
)
@click.option(
    "--operator-namespace",
    default=OPERATOR_NAMESPACE,
    show_default=True,
    metavar="NAMESPACE",
    help="Namespace of the operator, which has the usage of deleted jobs.",
)
@kube_context_options
@output_option()
def command(
    all_namespaces: bool,
    selector: str | None,
    since: Duration | None,
    by: str,
    prices: tuple[tuple[str, float], ...],
    operator_namespace: str,
    kube_context: KubeContext,
    output: str,
) -> None:
    """Show the accelerator hours of jobs, also of deleted ones, and what the accelerators did.

    The hours are what the pods of a job held. With a selector, deleted jobs are left out: their record has no labels.
    """
    records = None if selector else operator_namespace
    jobs = run(_list_jobs(all_namespaces, selector, records, kube_context))
    first = find_first_day(datetime.now(UTC), timedelta(seconds=since.seconds)) if since else None
    used = select_jobs(jobs, first)
    if first:
        print_message(f"used since {first} 00:00 UTC")
    bills = add_bills(used, by, dict(prices))
    if prices and (missing := {name_accelerator(job) for job in used} - {name for name, _ in prices}):
        names = ", ".join(sorted(missing))
        print_message(f"warning: no price for {names}: add --price {min(missing)}=PRICE")
    if output != TABLE:
        emit([bill.to_json() for bill in bills], output)
    elif bills:
        click.echo(format_bills(bills, by, priced=bool(prices), width=get_width()))
    else:
        print_message("no job has held accelerators")


async def _list_jobs(
    all_namespaces: bool, selector: str | None, records: str | None, kube_context: KubeContext
) -> list[Job]:
    """The jobs, with the deleted ones if the namespace of their records is given."""
    async with connect(kube_context) as connection:
        jobs = await connection.list_jobs(all_namespaces=all_namespaces, selector=selector)
        if records is None:
            return [*jobs]
        deleted = await list_deleted_jobs(connection, records, _warn, all_namespaces=all_namespaces)
        return merge_deleted(jobs, deleted)


def _warn(text: str) -> None:
    print_message(f"warning: {text}")
