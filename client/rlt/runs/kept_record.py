"""The record of a run that the operator has kept in a ConfigMap of the job, for when its Ray cluster is released."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlt.connection import Connection
from rlt.runs.directory import RunRecords
from rlt_core import names
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.run_record import RunRecord, read_record_map


async def get_kept_record(connection: Connection, job: Manifest) -> RunRecord | None:
    """The record of a job; None if it has none, or one that cannot be read. Raises ApiError."""
    metadata = job["metadata"]
    path = api_paths.config_map(connection.namespace, names.run_record(metadata["name"]))
    config_map = await connection.api.get(path)
    try:
        return read_record_map(config_map, metadata["uid"]) if config_map else None
    except ValueError:  # of another version, or changed by a user
        return None


def list_record_notes(record: RunRecord, job: Mapping[str, Any]) -> list[str]:
    """What the record leaves out."""
    done = job.get("status", {}).get("progress", {}).get("step", 0)
    last = record.steps[-1] if record.steps else 0
    older = [f"The kept record ends at step {last}, and the job has completed step {done}."] if last < done else []
    return [*record.notes, *older]


def to_run_records(record: RunRecord, job: Mapping[str, Any]) -> RunRecords:
    """The record as the records of a run."""
    notes = tuple(list_record_notes(record, job))
    return RunRecords({}, record.list_steps(), list(record.rollouts), record.rollouts_step, notes)
