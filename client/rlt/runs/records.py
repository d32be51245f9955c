"""What the driver of a running job recorded: metrics, rollouts and spans of its steps, and the logs of its attempts."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from rlt.connection import Connection
from rlt.errors import UnavailableError
from rlt_core.job import Manifest
from rlt_pod.report.driver_report import METRICS_PORT

MAX_STEPS = 400
"""Maximum number of steps of the latest history: a long run has thousands."""

Step = dict[str, float | None]
"""A line of metrics.jsonl: `step` and the metrics. None is NaN or infinite, which JSON cannot represent."""


async def get_history(connection: Connection, name: str, since: int = 0) -> list[Step]:
    """The metrics of each step after `since`. Raises UnavailableError without a running driver."""
    return _parse(await connection.get_from_head(name, METRICS_PORT, f"/history?since={since}"))


async def get_latest_history(connection: Connection, job: Manifest) -> list[Step]:
    """The metrics of the latest steps. Empty if the job has no cluster or its program does not serve metrics."""
    since = max(0, job.get("status", {}).get("progress", {}).get("step", 0) - MAX_STEPS)
    try:
        return await get_history(connection, job["metadata"]["name"], since)
    except UnavailableError:
        return []


async def get_rollouts(connection: Connection, name: str, step: int | None = None) -> list[dict[str, Any]]:
    """Prompts, responses and rewards of a step, by default of the latest. Raises UnavailableError as `get_history`."""
    query = f"?step={step}" if step is not None else ""
    return _parse(await connection.get_from_head(name, METRICS_PORT, f"/rollouts{query}"))


async def get_spans(connection: Connection, name: str, step: int) -> list[dict[str, Any]]:
    """The spans of a step: see `select_spans`. Raises UnavailableError as `get_history`."""
    return _parse(await connection.get_from_head(name, METRICS_PORT, f"/spans?step={step}"))


async def list_logs(connection: Connection, name: str) -> list[str]:
    """The paths of all attempts' logs, such as 1/program.log. Raises UnavailableError as `get_history`."""
    return [each["path"] for each in _parse(await connection.get_from_head(name, METRICS_PORT, "/logs"))]


async def get_log(connection: Connection, name: str, path: str) -> str:
    """The end of a log from `list_logs`. Raises UnavailableError as `get_history`."""
    return await connection.get_from_head(name, METRICS_PORT, f"/logs?file={quote(path, safe='')}")


def _parse(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]
