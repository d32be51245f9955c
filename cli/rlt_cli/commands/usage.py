"""rlt usage: the accelerator hours of jobs."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import click

from rlt.kube_context import KubeContext
from rlt_cli.connection import connect, run
from rlt_cli.duration import Duration, parse_duration
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, get_width, output_option, print_message
from rlt_cli.pages.usage import GROUPS, add_bills, format_bills, name_accelerator, select_jobs
from rlt_core.job import Manifest


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


@click.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="Add up the jobs of all namespaces.")
@click.option("-l", "--selector", help="Add up only jobs that match this label selector, such as team=a.")
@click.option(
    "--since",
    type=parse_duration,
    metavar="DURATION",
    help="Only jobs that held accelerators in this time, such as 7d, with all they used.",
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
@kube_context_options
@output_option()
def command(
    all_namespaces: bool,
    selector: str | None,
    since: Duration | None,
    by: str,
    prices: tuple[tuple[str, float], ...],
    kube_context: KubeContext,
    output: str,
) -> None:
    """Show the accelerator hours of jobs, and what the accelerators did.

    The hours are what the pods of a job held. They are part of the job: deleted jobs are not counted.
    """
    jobs = run(_list_jobs(all_namespaces, selector, kube_context))
    used = select_jobs(jobs, datetime.now(UTC) - timedelta(seconds=since.seconds) if since else None)
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


async def _list_jobs(all_namespaces: bool, selector: str | None, kube_context: KubeContext) -> list[Manifest]:
    async with connect(kube_context) as connection:
        return await connection.list_jobs(all_namespaces=all_namespaces, selector=selector)
