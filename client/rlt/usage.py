"""The accelerator hours of jobs from status.usage, added up for `rlt usage` and the page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from rlt.job_state import Job
from rlt_api.status.job_status import MAX_USAGE_DAYS, UsageParts
from rlt_core.names import CREATOR_ANNOTATION
from rlt_core.usage_record import PRODUCT

SECONDS_PER_HOUR = 3600
MAX_DAYS = MAX_USAGE_DAYS - 1
"""Days before today in the days of a job."""
GROUPS = ("job", "namespace", "user", "model", "accelerator")
"""What a bill adds up."""


@dataclass(frozen=True)
class Bill:
    """What the jobs of one group used."""

    group: str
    jobs: int
    accelerator_seconds: int
    by: Mapping[str, int]
    """Parts of status.usage.by -> accelerator seconds."""
    cost: float | None
    """None if a price is missing."""

    def to_json(self) -> dict[str, Any]:
        """The fields under the names of status.usage."""
        return {
            "group": self.group,
            "jobs": self.jobs,
            "acceleratorSeconds": self.accelerator_seconds,
            "by": dict(self.by),
            "cost": self.cost,
        }


def get_usage(job: Job) -> Mapping[str, Any] | None:
    """status.usage; None if the job has held no accelerators."""
    usage: Mapping[str, Any] | None = job.get("status", {}).get("usage")
    return usage


def name_accelerator(job: Job) -> str:
    """The model of the accelerators, such as h100, from the labels of the nodes; otherwise the name of the resource."""
    status = job.get("status", {})
    for fact in (status.get("network") or {}).get("evidence", []):
        if fact.startswith(PRODUCT):
            return str(fact.removeprefix(PRODUCT).partition(":")[0].lower())
    workers = (job.get("spec", {}).get("cluster") or {}).get("workers", [])
    names = (each["accelerator"].get("resourceName") for each in workers if each.get("accelerator"))
    return next((name for name in names if name), "unknown")


def list_parts(usage: Mapping[str, Any]) -> dict[str, int]:
    """The parts of status.usage or one of its days, in the order of the API. A part of a newer operator is left out."""
    return {name: usage["by"].get(name, 0) for name in UsageParts.model_fields}


def merge_deleted(jobs: Sequence[Job], deleted: Iterable[Job]) -> list[Job]:
    """The jobs and the deleted ones. A job that still exists counts as it is now."""
    existing = {job["metadata"]["uid"] for job in jobs}
    return [*jobs, *(job for job in deleted if job["metadata"]["uid"] not in existing)]


def select_jobs(jobs: Iterable[Job], since: date | None) -> list[Job]:
    """The jobs that have held accelerators. With a day, those that have since, with what they used from its start."""
    used = [(job, usage) for job in jobs if (usage := get_usage(job))]
    if since is None:
        return [job for job, _ in used]
    windows = ((job, _cut_usage(usage, since)) for job, usage in used)
    return [{**job, "status": {**job["status"], "usage": cut}} for job, cut in windows if cut["acceleratorSeconds"]]


def _cut_usage(usage: Mapping[str, Any], since: date) -> dict[str, Any]:
    days = [list_parts(each) for each in usage.get("days", []) if each["day"] >= since.isoformat()]
    by = {name: sum(each[name] for each in days) for name in UsageParts.model_fields}
    return {**usage, "acceleratorSeconds": sum(by.values()), "by": by}


def add_bills(jobs: Iterable[Job], by: str, prices: Mapping[str, float]) -> list[Bill]:
    """One bill for each group, the largest first. `prices`: accelerator -> price of an accelerator hour."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(_name_group(job, by), []).append(job)
    bills = [_add_up(group, members, prices) for group, members in groups.items()]
    return sorted(bills, key=lambda each: (-each.accelerator_seconds, each.group))


def sum_bills(bills: Sequence[Bill]) -> Bill:
    """The bill of all groups. Its cost is None if a price is missing."""
    return Bill(
        "total",
        sum(each.jobs for each in bills),
        sum(each.accelerator_seconds for each in bills),
        {name: sum(each.by[name] for each in bills) for name in UsageParts.model_fields},
        None if any(each.cost is None for each in bills) else sum(each.cost or 0 for each in bills),
    )


def find_first_day(now: datetime, since: timedelta) -> date:
    """The first day of a window that ends now: windows have whole days, in UTC."""
    return (now.astimezone(UTC) - since).date()


def _name_group(job: Job, by: str) -> str:
    metadata = job["metadata"]
    if by == "namespace":
        return str(metadata["namespace"])
    if by == "user":
        return (metadata.get("annotations") or {}).get(CREATOR_ANNOTATION) or "unknown"
    if by == "model":
        return str(job["status"].get("model") or job["status"].get("algorithm") or "unknown")
    return name_accelerator(job) if by == "accelerator" else f"{metadata['namespace']}/{metadata['name']}"


def _add_up(group: str, jobs: Sequence[Job], prices: Mapping[str, float]) -> Bill:
    usages = [job["status"]["usage"] for job in jobs]
    parts = [list_parts(usage) for usage in usages]
    costs = [
        None if (price := prices.get(name_accelerator(job))) is None else price * each["acceleratorSeconds"]
        for job, each in zip(jobs, usages, strict=True)
    ]
    known = [cost for cost in costs if cost is not None]
    return Bill(
        group,
        len(jobs),
        sum(each["acceleratorSeconds"] for each in usages),
        {name: sum(each[name] for each in parts) for name in UsageParts.model_fields},
        sum(known) / SECONDS_PER_HOUR if len(known) == len(costs) else None,
    )
