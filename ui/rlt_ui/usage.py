"""The accelerator hours of jobs as the page shows them: the bills of `rlt usage`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from rlt.job_state import Job
from rlt.usage import Bill, add_bills, find_first_day, select_jobs, sum_bills
from rlt_api.status.job_status import UsageParts
from rlt_ui.source import Json, UsageQuery

MAX_ROWS = 200
"""Maximum number of groups, the largest."""
MAX_NAME = 256
"""Maximum number of characters of a group's name."""
MAX_NOTES = 10


def build_usage(jobs: Iterable[Job], query: UsageQuery, now: datetime, notes: Sequence[str]) -> Json:
    """The bills of the largest groups, their sum over all groups, and the first day of the window."""
    first = None if query.days is None else find_first_day(now, timedelta(days=query.days))
    bills = add_bills(select_jobs(jobs, first), query.by, {})
    more = [f"Only the {MAX_ROWS} largest of {len(bills)} groups are shown."] if len(bills) > MAX_ROWS else []
    return {
        "since": first and first.isoformat(),
        "parts": list(UsageParts.model_fields),
        "bills": [_build_row(bill) for bill in bills[:MAX_ROWS]],
        "total": _build_row(sum_bills(bills)),
        "notes": [*(f"{note[:1].upper()}{note[1:]}" for note in notes[:MAX_NOTES]), *more],
    }


def _build_row(bill: Bill) -> Json:
    return {**bill.to_json(), "group": bill.group[:MAX_NAME]}
