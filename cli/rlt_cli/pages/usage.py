"""The accelerator hours of jobs as text: a line of `rlt status`, and the table of `rlt usage`. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlt.metric_text import format_number
from rlt.usage import SECONDS_PER_HOUR, Bill, list_parts, sum_bills
from rlt_api.status.job_status import UsageParts
from rlt_cli.table import format_table


def describe_usage(usage: Mapping[str, Any]) -> str:
    """The hours, and the share of each part that is at least 1 %: 20 accelerator hours: generate 60 %, idle 40 %."""
    total = usage["acceleratorSeconds"]
    shares = [(name, round(100 * seconds / total)) for name, seconds in list_parts(usage).items()] if total else []
    text = f"{format_number(total / SECONDS_PER_HOUR)} accelerator hours"
    parts = ", ".join(f"{name} {share} %" for name, share in shares if share)
    return f"{text}: {parts}" if parts else text


def format_bills(bills: Sequence[Bill], by: str, *, priced: bool, width: int | None = None) -> str:
    """A row for each bill with the hours and the share of each part, and a row with the sums."""
    columns = (by.upper(), "JOBS", "HOURS", *(name.upper() for name in UsageParts.model_fields), *["COST"] * priced)
    rows = [
        (
            bill.group,
            bill.jobs,
            format_number(bill.accelerator_seconds / SECONDS_PER_HOUR),
            *(_format_share(seconds, bill.accelerator_seconds) for seconds in bill.by.values()),
            *["unknown" if bill.cost is None else f"{bill.cost:.2f}"] * priced,
        )
        for bill in (*bills, *[sum_bills(bills)] * (len(bills) > 1))
    ]
    return format_table(columns, rows, width)


def _format_share(seconds: int, total: int) -> str | None:
    return f"{100 * seconds / total:.0f} %" if seconds else None
