"""The table of `rlt get`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rlt_api.schema.crd import PRINTER_COLUMNS
from rlt_cli.pages.job_table import format_job_table

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
METADATA = {"namespace": "demo", "name": "sum", "creationTimestamp": "2026-01-02T03:01:05Z"}
STATUS: dict[str, Any] = {
    "phase": "Running",
    "gpus": 0,
    "message": "The Ray job is running.",
    "progress": {"step": 45, "display": "45%", "eta": "3m10s", "reward": 0.4, "metrics": {"reward": 0.5, "kl": 0.001}},
}
JOB = {"metadata": METADATA, "status": STATUS}


def test_the_columns_equal_kubectls() -> None:
    header, row = format_job_table([JOB], NOW).splitlines()
    assert header.split() == ["NAME", "PHASE", "STEP", "PROGRESS", "REWARD", "ETA", "GPUS", "AGE"]
    assert row.split() == ["sum", "Running", "45", "45%", "0.4", "3m10s", "0", "3m"]


def test_wide_adds_the_other_columns() -> None:
    header, row = format_job_table([JOB], NOW, wide=True).splitlines()
    assert header.split() == ["NAME", *(column["name"].upper() for column in PRINTER_COLUMNS)]
    assert row.endswith("The Ray job is running.")


def test_all_namespaces_adds_a_namespace_column() -> None:
    header, row = format_job_table([JOB], NOW, namespaces=True).splitlines()
    assert header.split()[:2] == ["NAMESPACE", "NAME"]
    assert row.split()[:2] == ["demo", "sum"]


def test_a_missing_value_is_an_empty_cell() -> None:
    assert format_job_table([{"metadata": METADATA}], NOW).splitlines()[1].split() == ["sum", "Pending", "3m"]
