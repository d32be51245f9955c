"""The head's HTTP servers: Ray's job API and the trainer's /progress.

Inside the cluster they are called by the head's service, outside through the API server's service proxy.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from rlt_api.driver_report import METRICS_PORT
from rlt_api.training_config import ProgressReport
from rlt_operator import api_paths, names
from rlt_operator.kubernetes_api import ApiError, KubernetesApi
from rlt_operator.observation import Job, Ray, RayJob, RayPreflight
from rlt_operator.progress import parse_report
from rlt_operator.verdict import Submission

TIMEOUT = aiohttp.ClientTimeout(total=10, connect=3)

Send = Callable[[Job, str, int, str, dict[str, Any] | None], Awaitable[tuple[int, str]]]
"""(job, method, port, path, body) -> status and text. Raises UnreachableError."""


class UnreachableError(Exception):
    """The head did not answer; the text says why."""


class RayRefusedError(Exception):
    """Ray answered with an error; the text is its own."""


def through_service(session: aiohttp.ClientSession) -> Send:
    """Directly to the head's service, from a pod of the same cluster."""

    async def send(job: Job, method: str, port: int, path: str, body: dict[str, Any] | None) -> tuple[int, str]:
        url = f"http://{names.head_service(job.name)}.{job.namespace}.svc:{port}{path}"
        try:
            async with session.request(method, url, json=body, timeout=TIMEOUT) as response:
                return response.status, await response.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_plain(error)) from error

    return send


def through_api_server(api: KubernetesApi) -> Send:
    """By way of the API server, from anywhere. The operator's role in the cluster does not allow it."""

    async def send(job: Job, method: str, port: int, path: str, body: dict[str, Any] | None) -> tuple[int, str]:
        return await ask(api, job.namespace, job.name, method, port, path, body)

    return send


async def ask(
    api: KubernetesApi,
    namespace: str,
    job: str,
    method: str,
    port: int,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    timeout: aiohttp.ClientTimeout = TIMEOUT,
) -> tuple[int, str]:
    """Status and text of what a job's head answers, by way of the API server. Raises UnreachableError."""
    proxy = api_paths.service_proxy(namespace, names.head_service(job), port)
    try:
        status, text = await api.send(method, proxy + path, body=body, timeout=timeout)
    except ApiError as error:
        raise UnreachableError(str(error)) from error
    if status >= 400 and '"kind":"Status"' in text:  # the API server's own answer
        raise UnreachableError(str(json.loads(text).get("message", text)))
    return status, text


async def observe(send: Send, job: Job, submission_id: str, *, preflight_id: str | None = None) -> Ray:
    """What the head says of the Ray job: its state, the trainer's report while it runs, then its output.

    As long as it does not know that job, the same of the checks that come before, if there are any.
    """
    try:
        ray_job = await _ray_job(send, job, submission_id)
        if ray_job is None:
            checks = await _ray_job(send, job, preflight_id) if preflight_id else None
            if checks is None:
                return Ray()
            assert preflight_id
            return Ray(preflight=RayPreflight(checks, await _log(send, job, preflight_id, checks)))
        report = await _progress(send, job) if ray_job.status == "RUNNING" else None
        return Ray(job=ray_job, log=await _log(send, job, submission_id, ray_job), progress=report)
    except UnreachableError as error:
        return Ray(unreachable=str(error))


async def submit(send: Send, job: Job, submission: Submission) -> None:
    """Submit the Ray job; a second time does no harm. Raises RayRefusedError, UnreachableError."""
    body = {
        "entrypoint": submission.entrypoint,
        "submission_id": submission.id,
        "metadata": submission.metadata,
        "entrypoint_num_cpus": 0,  # the driver runs on the head, which has none to give
    }
    status, text = await send(job, "POST", names.DASHBOARD_PORT, "/api/jobs/", body)
    if status >= 400 and "already exists" not in text:
        raise RayRefusedError(_last_line(text) or f"HTTP {status}")


async def stop(send: Send, job: Job, submission_id: str) -> None:
    """Ask Ray to stop the job: SIGTERM, and SIGKILL RAY_JOB_STOP_WAIT_TIME_S later. Asking again changes nothing."""
    await send(job, "POST", names.DASHBOARD_PORT, f"/api/jobs/{submission_id}/stop", None)


async def _ray_job(send: Send, job: Job, submission_id: str) -> RayJob | None:
    status, text = await send(job, "GET", names.DASHBOARD_PORT, f"/api/jobs/{submission_id}", None)
    if status == 404 and text.startswith(f"Job {submission_id} does not exist"):
        return None
    return _parse(status, text)


async def _log(send: Send, job: Job, submission_id: str, ray_job: RayJob) -> str | None:
    """The output of a Ray job that has ended."""
    if ray_job.status in ("PENDING", "RUNNING"):
        return None
    status, text = await send(job, "GET", names.DASHBOARD_PORT, f"/api/jobs/{submission_id}/logs", None)
    return str(json.loads(text)["logs"]) if status == 200 else None


async def _progress(send: Send, job: Job) -> ProgressReport | None:
    try:
        status, text = await send(job, "GET", METRICS_PORT, "/progress", None)
    except UnreachableError:  # the program is not so far yet
        return None
    return parse_report(text) if status == 200 else None


def _parse(status: int, text: str) -> RayJob:
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


def _plain(error: BaseException) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
