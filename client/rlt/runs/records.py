"""What a job recorded: metrics, rollouts and spans of its steps, and the logs of its attempts.

The driver serves them while the program runs. Then the record that the operator has kept has the latest metrics, and
the best and worst responses; the volume has everything.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlt.bucket_results import describe_bucket
from rlt.connection import Connection
from rlt.errors import UnavailableError
from rlt.job_state import get_phase
from rlt.kept_files import has_kept_files, read_records
from rlt.runs.directory import RunRecords, Step, is_run_directory, read_run_directory
from rlt.runs.kept_record import get_kept_record, list_record_notes, to_run_records
from rlt.runs.rollouts import Rollout
from rlt.runs.suite_results import parse_changes
from rlt_api.status.job_status import Phase
from rlt_core.job import Manifest
from rlt_pod.report.driver_report import METRICS_PORT

MAX_STEPS = 400
"""Maximum number of steps of the latest history: a long run has thousands."""
RELEASED = (Phase.SUCCEEDED, Phase.FAILED, Phase.SUSPENDED)
"""Phases of a job without a driver, unless its cluster is kept for debugging."""


async def get_history(connection: Connection, name: str, since: int = 0) -> list[Step]:
    """The metrics of each step after `since`. Raises UnavailableError without a running driver."""
    return _parse(await connection.get_from_head(name, METRICS_PORT, f"/history?since={since}"))


async def get_latest_history(connection: Connection, job: Manifest) -> tuple[list[Step], list[str]]:
    """The metrics of the latest steps, from the driver or the kept record, and notes on what is missing.

    Empty if the job has neither, or its program does not serve metrics.
    """
    since = max(0, job.get("status", {}).get("progress", {}).get("step", 0) - MAX_STEPS)
    if get_phase(job) not in RELEASED or job["status"].get("rayCluster"):
        with suppress(UnavailableError):
            return await get_history(connection, job["metadata"]["name"], since), []
    record = await get_kept_record(connection, job)
    return (record.list_steps(), list_record_notes(record, job)) if record else ([], [])


async def find_history(connection: Connection, name: str, since: int = 0) -> tuple[list[Step], list[str]]:
    """The metrics of each step after `since`, from the driver, the kept record or the volume, and notes.

    Raises UnavailableError if none has them, NotFoundError. Reading the volume creates a pod for some seconds.
    """
    try:
        return await get_history(connection, name, since), []
    except UnavailableError as error:
        records = await find_kept_records(connection, await connection.get_job(name), error)
    return [step for step in records.steps if (step["step"] or 0) > since], list(records.notes)


async def find_rollouts(
    connection: Connection, name: str, step: int | None = None
) -> tuple[int | None, list[Rollout], list[str]]:
    """The rollouts of a step, by default of the latest, with its number if it is known, and notes.

    The driver has all steps; the kept record and the volume's reader have the best and worst of the latest. Raises as
    `find_history`.
    """
    try:
        return step, list(await get_rollouts(connection, name, step)), []
    except UnavailableError as error:
        records = await find_kept_records(connection, await connection.get_job(name), error)
        if records.rollouts_step is None or step not in (None, records.rollouts_step):
            kept = f" Kept are responses of step {records.rollouts_step}." if records.rollouts_step else ""
            bucket = describe_bucket(await connection.get_job(name))
            raise UnavailableError(f"{error.message}{kept}{bucket}", next=error.next) from None
    return records.rollouts_step, list(records.rollouts), list(records.notes)


async def find_kept_records(connection: Connection, job: Manifest, error: UnavailableError) -> RunRecords:
    """The records that outlive the driver: those that the operator has kept, else those in the volume.

    Raises `error`, which explains why the driver cannot be asked, if neither has them, with the bucket of the job.
    """
    record = await get_kept_record(connection, job)
    if record is not None:
        return to_run_records(record, job)
    if not has_kept_files(job):
        raise UnavailableError(f"{error.message}{describe_bucket(job)}", next=error.next)
    return await read_volume(connection, job["metadata"]["name"])


async def read_volume(connection: Connection, name: str) -> RunRecords:
    """The records in the volume of a job, read by a pod that lives for some seconds. Raises RltError."""
    archive = base64.b64decode(await read_records(connection, name))
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            _extract(files, Path(directory))
        if not is_run_directory(Path(directory)):
            return RunRecords({}, [], [], None, (f"The volume of job {name} has no records of the run.",))
        return read_run_directory(Path(directory))


async def get_rollouts(connection: Connection, name: str, step: int | None = None) -> list[dict[str, Any]]:
    """Prompts, responses and rewards of a step, by default of the latest. Raises UnavailableError as `get_history`."""
    query = f"?step={step}" if step is not None else ""
    return _parse(await connection.get_from_head(name, METRICS_PORT, f"/rollouts{query}"))


async def get_spans(connection: Connection, name: str, step: int) -> list[dict[str, Any]]:
    """The spans of a step: see `select_spans`. Raises UnavailableError as `get_history`."""
    return _parse(await connection.get_from_head(name, METRICS_PORT, f"/spans?step={step}"))


async def get_changes(connection: Connection, name: str, notes: list[str]) -> list[dict[str, Any]]:
    """The changes of each suite: see `read_changes`. Raises UnavailableError as `get_history`."""
    text = await connection.get_from_head(name, METRICS_PORT, "/changes")
    return parse_changes(_split(text), notes)


async def list_logs(connection: Connection, name: str) -> list[str]:
    """The paths of all attempts' logs, such as 1/program.log. Raises UnavailableError as `get_history`."""
    return [each["path"] for each in _parse(await connection.get_from_head(name, METRICS_PORT, "/logs"))]


async def get_log(connection: Connection, name: str, path: str) -> str:
    """The end of a log from `list_logs`. Raises UnavailableError as `get_history`."""
    return await connection.get_from_head(name, METRICS_PORT, f"/logs?file={quote(path, safe='')}")


def _extract(archive: tarfile.TarFile, directory: Path) -> None:
    """Write the files of an archive. Links and paths out of the directory are left out."""
    for member in archive.getmembers():
        content = archive.extractfile(member)
        path = directory / member.name
        if content and member.isfile() and path.resolve().is_relative_to(directory.resolve()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())


def _parse(text: str) -> list[Any]:
    return [json.loads(line) for line in _split(text)]


def _split(text: str) -> list[str]:
    """The JSON lines of a text. A response can have other line separators: JSON does not escape U+2028."""
    return [line for line in text.split("\n") if line]
