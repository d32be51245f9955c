"""The head's HTTP servers: Ray's job API and the trainer's /progress."""

from __future__ import annotations

import json

from rlt_api.driver_report import METRICS_PORT
from rlt_api.training_config import ProgressReport
from rlt_core import names
from rlt_core.job import Job
from rlt_core.ray_http import Send, UnreachableError
from rlt_operator.diagnosis.progress import parse_report
from rlt_operator.lifecycle.verdict import Submission
from rlt_operator.observation import Ray, RayJob, RayPreflight


class RayRejectedError(Exception):
    """Ray responded with an error. The text is the last line of the response."""


async def observe_ray(send: Send, job: Job, submission_id: str, *, preflight_id: str | None = None) -> Ray:
    """The Ray job's state, the trainer's report while it runs, and its output when it has ended.

    Without that job on the head: the state and output of the preflight checks, if `preflight_id` is set.
    """
    try:
        ray_job = await _get_job(send, job, submission_id)
        if ray_job is None:
            return Ray(preflight=await _get_preflight(send, job, preflight_id) if preflight_id else None)
        report = await _get_progress(send, job) if ray_job.status == "RUNNING" else None
        return Ray(job=ray_job, log=await _get_log(send, job, submission_id, ray_job), progress=report)
    except UnreachableError as error:
        return Ray(unreachable=str(error))


async def submit_job(send: Send, job: Job, submission: Submission) -> None:
    """Submit the Ray job. A repeated call has no effect. Raises RayRejectedError, UnreachableError."""
    body = {
        "entrypoint": submission.entrypoint,
        "submission_id": submission.id,
        "metadata": submission.metadata,
        "entrypoint_num_cpus": 0,  # the driver runs on the head, which offers no CPUs to Ray
    }
    status, text = await send(job, "POST", names.DASHBOARD_PORT, "/api/jobs/", body)
    if status >= 400 and "already exists" not in text:
        raise RayRejectedError(_last_line(text) or f"HTTP {status}")


async def stop_job(send: Send, job: Job, submission_id: str) -> None:
    """Ask Ray to stop the job: SIGTERM, and SIGKILL after RAY_JOB_STOP_WAIT_TIME_S. A repeated call has no effect."""
    await send(job, "POST", names.DASHBOARD_PORT, f"/api/jobs/{submission_id}/stop", None)


async def _get_job(send: Send, job: Job, submission_id: str) -> RayJob | None:
    status, text = await send(job, "GET", names.DASHBOARD_PORT, f"/api/jobs/{submission_id}", None)
    if status == 404 and text.startswith(f"Job {submission_id} does not exist"):
        return None
    return _parse_job(status, text)


async def _get_preflight(send: Send, job: Job, preflight_id: str) -> RayPreflight | None:
    ray_job = await _get_job(send, job, preflight_id)
    return RayPreflight(ray_job, await _get_log(send, job, preflight_id, ray_job)) if ray_job else None


async def _get_log(send: Send, job: Job, submission_id: str, ray_job: RayJob) -> str | None:
    """The output of a Ray job that has ended."""
    if ray_job.status in ("PENDING", "RUNNING"):
        return None
    status, text = await send(job, "GET", names.DASHBOARD_PORT, f"/api/jobs/{submission_id}/logs", None)
    return str(json.loads(text)["logs"]) if status == 200 else None


async def _get_progress(send: Send, job: Job) -> ProgressReport | None:
    try:
        status, text = await send(job, "GET", METRICS_PORT, "/progress", None)
    except UnreachableError:  # the program has not started its server yet
        return None
    return parse_report(text) if status == 200 else None


def _parse_job(status: int, text: str) -> RayJob:
    if status != 200:
        raise UnreachableError(f"HTTP {status}: {_last_line(text)}")
    details = json.loads(text)
    return RayJob(
        status=details["status"],
        message=details.get("message") or "",
        start_ms=details.get("start_time"),
        end_ms=details.get("end_time"),
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
