"""The table of `rlt get`, with the printer columns of the CRD. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rlt.job_state import Job, get_phase
from rlt_api.schema.crd import PRINTER_COLUMNS
from rlt_cli.age import format_age
from rlt_cli.table import format_table


def format_job_table(
    jobs: Sequence[Job], now: datetime, *, wide: bool = False, namespaces: bool = False, width: int | None = None
) -> str:
    """One line per job, if `width` permits. `wide`: all columns. `namespaces`: also the namespace."""
    names = ["namespace", "name"] if namespaces else ["name"]
    columns = [column for column in PRINTER_COLUMNS if wide or not column.get("priority")]
    rows = [
        (*(job["metadata"][name] for name in names), *(_cell(job, column, now) for column in columns)) for job in jobs
    ]
    titles = [title.upper() for title in (*names, *(column["name"] for column in columns))]
    return format_table(titles, rows, width)


def _cell(job: Job, column: Mapping[str, Any], now: datetime) -> object:
    if column["jsonPath"] == ".status.phase":
        return get_phase(job)
    value: Any = job
    for name in column["jsonPath"].removeprefix(".").split("."):
        value = value.get(name, {})
    if value == {}:
        return None
    return format_age(value, now) if column["type"] == "date" else value
