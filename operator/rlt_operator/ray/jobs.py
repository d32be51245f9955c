"""The head's HTTP servers: Ray's job API and the trainer's /progress."""

from __future__ import annotations

from urllib.parse import urlencode

from rlt_api.spec.training_config import ProgressReport
from rlt_core import names
from rlt_core.ray_http import MAX_LOG_BYTES, MAX_RESPONSE_BYTES, Head, Request, Send, UnreachableError
from rlt_core.run_record import MAX_ENCODED_BYTES
from rlt_operator.observation import Ray, RayJob, RayPreflight, RayStacks, RayStep
from rlt_operator.ray.answers import MAX_DESCRIPTION_LENGTH, JobAnswer, parse_answer
from rlt_operator.verdict import Submission
from rlt_pod.command.run_record import RECORD_SUFFIX
from rlt_pod.report.download_report import read_progress
from rlt_pod.report.driver_report import METRICS_PORT

MAX_LOG_LINES = 2000
"""Lines at the end of a program's output that are requested."""
RAY_LOGS = ("gcs_server.out", "raylet.out")
"""Ray's logs on the node of the driver: which nodes and workers of the cluster ended, and why."""
MAX_RAY_LOG_LINES = 500
"""Lines at the end of each of them that are requested."""
MAX_PROGRESS_LINES = 5
"""Lines at the end of a running step's output that are requested."""
FINISHED_STAGE = "finished"
"""The stage of a trainer that is about to exit."""


class RayRejectedError(Exception):
    """Ray responded with an error. The text is the last line of the response."""


async def observe_ray(
    send: Send,
    head: Head,
    submission_id: str,
    *,
    step_id: str | None = None,
    preflight_id: str | None = None,
    stacks_id: str | None = None,
    before: Ray | None = None,
) -> Ray:
    """The Ray job's state, the trainer's report while it runs, and the end of its output when it has ended.

    When it has ended, also the record of the run; if it failed, also the ends of Ray's own logs.

    Without that job on the head: the state and output of the Ray job `step_id`, else of the preflight checks, if
    `preflight_id` is set. While it runs: of the Ray job that writes the stacks, if `stacks_id` is set. `before` is the
    previous answer: while the program of a running job reports its progress, its state is not requested.
    A head with an invalid answer counts as one that does not answer.
    """
    try:
        if before and before.job and before.job.status == "RUNNING" and before.progress and stacks_id is None:
            report = await _get_progress(send, head)
            if report and report.stage != FINISHED_STAGE:
                return Ray(job=before.job, progress=report)
        ray_job = await _get_job(send, head, submission_id)
        if ray_job is None and step_id:
            step = await _get_with_log(send, head, step_id)
            download = await _get_download(send, head, step_id, step[0]) if step else None
            return Ray(step=RayStep(step_id, *step, download) if step else None)
        if ray_job is None:
            preflight = await _get_with_log(send, head, preflight_id) if preflight_id else None
            return Ray(preflight=RayPreflight(*preflight) if preflight else None)
        last = before.progress if before else None
        if ray_job.status == "RUNNING":
            stacks = await _get_with_log(send, head, stacks_id) if stacks_id else None
            progress = await _get_progress(send, head) or last
            return Ray(job=ray_job, progress=progress, stacks=RayStacks(*stacks) if stacks else None)
        log = await _get_log(send, head, submission_id, ray_job)
        ray_logs = await _get_ray_logs(send, head, ray_job) if ray_job.status == "FAILED" else ()
        record = await _get_record(send, head, submission_id, ray_job)
        return Ray(job=ray_job, log=log, ray_logs=ray_logs, record=record, progress=last)
    except UnreachableError as error:
        return Ray(unreachable=str(error))


async def submit_job(send: Send, head: Head, submission: Submission) -> None:
    """Submit the Ray job. A repeated call has no effect. Raises RayRejectedError, UnreachableError."""
    body = {
        "entrypoint": submission.entrypoint,
        "submission_id": submission.id,
        "metadata": submission.metadata,
        "runtime_env": submission.runtime_env,
        "entrypoint_num_cpus": 0,  # the driver runs on the head, which offers no CPUs to Ray
    }
    status, text = await send(head, Request("POST", names.DASHBOARD_PORT, "/api/jobs/", body))
    if status >= 300 and "already exists" not in text:
        raise RayRejectedError(_last_line(text) or f"HTTP {status}")


async def stop_job(send: Send, head: Head, submission_id: str) -> None:
    """Ask Ray to stop the job: SIGTERM, and SIGKILL after RAY_JOB_STOP_WAIT_TIME_S. A repeated call has no effect."""
    await send(head, Request("POST", names.DASHBOARD_PORT, f"/api/jobs/{submission_id}/stop"))


async def _get_job(send: Send, head: Head, submission_id: str) -> RayJob | None:
    status, text = await send(head, Request("GET", names.DASHBOARD_PORT, f"/api/jobs/{submission_id}"))
    if status == 404 and text.startswith(f"Job {submission_id} does not exist"):
        return None
    if status != 200:
        raise UnreachableError(f"HTTP {status}: {_last_line(text)[:MAX_DESCRIPTION_LENGTH]}")
    return parse_answer(JobAnswer, f"GET /api/jobs/{submission_id}", text).to_job()


async def _get_with_log(send: Send, head: Head, id: str) -> tuple[RayJob, str | None] | None:
    """A Ray job and, when it has ended, its output; None if Ray does not have it."""
    ray_job = await _get_job(send, head, id)
    return (ray_job, await _get_log(send, head, id, ray_job)) if ray_job else None


async def _get_log(send: Send, head: Head, submission_id: str, ray_job: RayJob) -> str | None:
    """The end of the output from a Ray job that has ended. None if it cannot be read: no result depends on it."""
    if ray_job.status in ("PENDING", "RUNNING"):
        return None
    name = f"job-driver-{submission_id}.log"
    return await _get_file(send, head, ray_job, name, lines=MAX_LOG_LINES, max_bytes=MAX_LOG_BYTES)


async def _get_record(send: Send, head: Head, submission_id: str, ray_job: RayJob) -> str | None:
    """The record that the program has written beside its output. None if it cannot be read: no result depends on it."""
    name = f"job-driver-{submission_id}{RECORD_SUFFIX}"
    return await _get_file(send, head, ray_job, name, lines=1, max_bytes=MAX_ENCODED_BYTES, tail=False) or None


async def _get_download(send: Send, head: Head, step_id: str, ray_job: RayJob) -> str | None:
    """The progress of a running download, from the end of its output; None for other programs."""
    if ray_job.status != "RUNNING":
        return None
    name = f"job-driver-{step_id}.log"
    text = await _get_file(send, head, ray_job, name, lines=MAX_PROGRESS_LINES, max_bytes=MAX_DESCRIPTION_LENGTH)
    return read_progress(text) if text else None


async def _get_ray_logs(send: Send, head: Head, ray_job: RayJob) -> tuple[str, ...]:
    """The ends of the RAY_LOGS that can be read."""
    texts = [
        await _get_file(send, head, ray_job, name, lines=MAX_RAY_LOG_LINES, max_bytes=MAX_RESPONSE_BYTES)
        for name in RAY_LOGS
    ]
    return tuple(text for text in texts if text)


async def _get_file(
    send: Send, head: Head, ray_job: RayJob, name: str, *, lines: int, max_bytes: int, tail: bool = True
) -> str | None:
    """The last lines of a file among Ray's logs on the node of the driver; None if it cannot be read.

    With `tail` a larger answer is cut to its last `max_bytes`, else it counts as none.

    Ray's job API has no limit for an output, Ray's state API has (ray/dashboard/modules/state/state_head.py).
    """
    if ray_job.node_id is None:  # the job ended before its driver started
        return None
    path = f"/api/v0/logs/file?{urlencode({'node_id': ray_job.node_id, 'filename': name, 'lines': str(lines)})}"
    try:
        status, text = await send(head, Request("GET", names.DASHBOARD_PORT, path, max_bytes=max_bytes, tail=tail))
    except UnreachableError:
        return None
    return text if status == 200 else None


async def _get_progress(send: Send, head: Head) -> ProgressReport | None:
    """The trainer's report; None without one. Raises UnreachableError for a report that is invalid."""
    try:
        status, text = await send(head, Request("GET", METRICS_PORT, "/progress"))
    except UnreachableError:  # the program has not started its server yet
        return None
    return parse_answer(ProgressReport, "GET /progress", text) if status == 200 else None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
