"""The table of rlt usage, its groups and its prices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from click import BadParameter

from rlt_cli.commands.usage import parse_price
from rlt_cli.pages.usage import Bill, add_bills, describe_usage, format_bills, name_accelerator, select_jobs

PARTS = ("queued", "starting", "generate", "update", "sync", "evaluate", "idle", "lost", "unreported")


def job(
    name: str, namespace: str = "a", product: str | None = "H100", model: str = "Qwen3", **by: int
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
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"cluster": {"workers": workers}},
        "status": {"usage": usage, "model": model, "network": {"evidence": evidence}},
    }


JOBS = [
    job("small", generate=1800, idle=1800),
    job("large", "b", generate=7200, update=3600, lost=3600),
    job("amd", "b", "MI300X", "Llama", unreported=7200),
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


def test_since_selects_jobs_that_held_accelerators() -> None:
    assert select_jobs([*JOBS, {"metadata": {}}], None) == JOBS
    assert select_jobs(JOBS, datetime(2026, 1, 1, tzinfo=UTC)) == JOBS
    assert select_jobs(JOBS, datetime(2026, 1, 3, tzinfo=UTC)) == []


def test_the_line_of_a_job_that_has_used_nothing_has_no_shares() -> None:
    assert describe_usage({"acceleratorSeconds": 0, "by": {}}) == "0 accelerator hours"


@pytest.mark.parametrize("text", ["h100", "=2", "h100=", "h100=x", "h100=-1", "h100=nan", "h100=inf"])
def test_an_invalid_price_is_rejected(text: str) -> None:
    with pytest.raises(BadParameter, match=r"h100=2\.5"):
        parse_price(text)


def test_the_name_of_an_accelerator_in_a_price_has_any_case() -> None:
    assert parse_price("H100=2.5") == ("h100", 2.5)
