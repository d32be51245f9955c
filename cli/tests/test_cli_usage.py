"""The table of rlt usage, its groups and its prices."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Any

import pytest
from click import BadParameter

from rlt.usage import Bill, add_bills, merge_deleted, name_accelerator, select_jobs
from rlt_cli.commands.usage import parse_price, parse_since
from rlt_cli.pages.usage import describe_usage, format_bills
from rlt_core.names import CREATOR_ANNOTATION
from rlt_core.usage_record import reduce_job

PARTS = ("queued", "starting", "generate", "update", "sync", "evaluate", "idle", "lost", "unreported")


def job(
    name: str,
    namespace: str = "a",
    product: str | None = "H100",
    model: str = "Qwen3",
    creator: str | None = None,
    **by: int,
) -> dict[str, Any]:
    total = sum(by.values())
    usage = {
        "acceleratorSeconds": total,
        "by": {**dict.fromkeys(PARTS, 0), **by},
        "observedTime": "2026-01-02T00:00:00Z",
    }
    evidence = (
        [f"product {product}: label nvidia.com/gpu.product=NVIDIA-{product}-80GB-HBM3 (2 nodes)"] if product else []
    )
    workers = [{"accelerator": {"resourceName": "nvidia.com/gpu", "count": 8}}]
    annotations = {"annotations": {CREATOR_ANNOTATION: creator}} if creator else {}
    return {
        "metadata": {"namespace": namespace, "name": name, **annotations},
        "spec": {"cluster": {"workers": workers}},
        "status": {"usage": usage, "model": model, "network": {"evidence": evidence}},
    }


JOBS = [
    job("small", creator="jane", generate=1800, idle=1800),
    job("large", "b", generate=7200, update=3600, lost=3600),
    job("amd", "b", "MI300X", "Llama", "jane", unreported=7200),
]


def test_a_row_has_the_hours_the_shares_and_the_cost() -> None:
    prices = {"h100": 2.5, "mi300x": 2.0}
    header, *rows = (
        line.split() for line in format_bills(add_bills(JOBS, "job", prices), "job", priced=True).splitlines()
    )
    assert header == ["JOB", "JOBS", "HOURS", *(name.upper() for name in PARTS), "COST"]
    assert [" ".join(row) for row in rows] == [
        "b/large 1 4 50 % 25 % 25 % 10.00",
        "b/amd 1 2 100 % 4.00",
        "a/small 1 1 50 % 50 % 2.50",
        "total 3 7 36 % 14 % 7 % 14 % 29 % 16.50",
    ]


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("namespace", [("b", 2, 21600), ("a", 1, 3600)]),
        ("user", [("unknown", 1, 14400), ("jane", 2, 10800)]),
        ("model", [("Qwen3", 2, 18000), ("Llama", 1, 7200)]),
        ("accelerator", [("h100", 2, 18000), ("mi300x", 1, 7200)]),
    ],
)
def test_jobs_are_added_up_by_group(by: str, groups: list[tuple[str, int, int]]) -> None:
    bills = add_bills(JOBS, by, {})
    assert [(each.group, each.jobs, each.accelerator_seconds) for each in bills] == groups
    assert all(sum(each.by.values()) == each.accelerator_seconds for each in bills)


def test_a_missing_price_makes_the_cost_unknown() -> None:
    found = {bill.group: bill.cost for bill in add_bills(JOBS, "namespace", {"h100": 2.5})}
    assert found == {"a": 2.5, "b": None}
    assert "unknown" in format_bills([Bill("b", 1, 10, dict.fromkeys(PARTS, 0), None)], "namespace", priced=True)


def test_the_data_has_the_names_of_the_status() -> None:
    (bill,) = add_bills(JOBS[:1], "namespace", {"h100": 2.5})
    by = {**dict.fromkeys(PARTS, 0), "generate": 1800, "idle": 1800}
    assert bill.to_json() == {"group": "a", "jobs": 1, "acceleratorSeconds": 3600, "by": by, "cost": 2.5}


def test_the_accelerator_of_a_job_without_nodes_is_its_resource() -> None:
    assert name_accelerator(job("x", product=None)) == "nvidia.com/gpu"
    assert name_accelerator({"metadata": {}, "status": {}}) == "unknown"


def test_since_counts_what_was_used_from_the_start_of_its_day() -> None:
    trained = job("trained", idle=100, update=900)
    trained["status"]["usage"]["days"] = [
        {"day": "2025-12-31", "by": {"idle": 100, "update": 400}},
        {"day": "2026-01-01", "by": {"update": 300}},
        {"day": "2026-01-02", "by": {"update": 200}},
    ]
    earlier = job("earlier", update=60)
    earlier["status"]["usage"]["days"] = [{"day": "2025-12-30", "by": {"update": 60}}]
    jobs = [trained, earlier, {"metadata": {}}]
    assert select_jobs(jobs, None) == [trained, earlier]
    bills = add_bills(select_jobs(jobs, date(2026, 1, 1)), "job", {"h100": 3600})
    assert [(each.group, each.accelerator_seconds, each.cost) for each in bills] == [("a/trained", 500, 500)]
    assert +Counter(bills[0].by) == {"update": 500}
    assert select_jobs(jobs, date(2026, 1, 3)) == []


def test_a_deleted_job_counts_unless_it_exists() -> None:
    existing = job("sum", update=200)
    earlier = job("sum", update=100)
    for number, each in enumerate((existing, earlier)):
        each["metadata"]["uid"] = f"uid-{number}"
    recorded = reduce_job(existing)
    assert recorded
    stale = {**recorded, "status": {"usage": {**recorded["status"]["usage"], "acceleratorSeconds": 1}}}
    merged = merge_deleted([existing], [stale, earlier])
    assert merged == [existing, earlier]
    (bill,) = add_bills(select_jobs(merged, None), "job", {"h100": 3600})
    assert (bill.group, bill.jobs, bill.accelerator_seconds, bill.cost) == ("a/sum", 2, 300, 300)
    assert name_accelerator(recorded) == name_accelerator(existing) == "h100"


def test_a_window_is_at_most_what_jobs_keep() -> None:
    assert parse_since("30d").seconds == 30 * 86400
    with pytest.raises(BadParameter, match="use at most 30d"):
        parse_since("31d")


def test_the_line_of_a_job_that_has_used_nothing_has_no_shares() -> None:
    assert describe_usage({"acceleratorSeconds": 0, "by": {}}) == "0 accelerator hours"


@pytest.mark.parametrize("text", ["h100", "=2", "h100=", "h100=x", "h100=-1", "h100=nan", "h100=inf"])
def test_an_invalid_price_is_rejected(text: str) -> None:
    with pytest.raises(BadParameter, match=r"h100=2\.5"):
        parse_price(text)


def test_the_name_of_an_accelerator_in_a_price_has_any_case() -> None:
    assert parse_price("H100=2.5") == ("h100", 2.5)
