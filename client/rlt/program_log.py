"""The log of a job's program, or of a framework.prepare step. After it has ended, the volume has it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

from rlt.bucket_results import LOGS, describe_bucket
from rlt.connection import RETRY_S, Connection
from rlt.errors import NotFoundError, UnavailableError
from rlt.job_state import NOT_RECONCILED, can_become_true, summarize
from rlt.kept_files import Text, has_kept_files, read_kept_file
from rlt_core.children.attempt_directory import PROGRAM_LOG, step_log
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError
from rlt_core.names import DASHBOARD_PORT, head_service, step_id, submission_id


async def get_program_log(connection: Connection, name: str, step: str | None = None) -> str:
    """The whole log of the program or of a step. Raises UnavailableError if it has not run."""
    job = await connection.get_job(name)
    job_id = _ray_job_id(job, step)
    file = step_log(step) if step else PROGRAM_LOG
    if job_id is None and has_kept_files(job):
        return (await get_kept_file(connection, name, file)).text
    if job_id is None:
        message = job.get("status", {}).get("message") or NOT_RECONCILED
        status_command = connection.kube_context.command_line(f"status {name}")
        program = f"Step {step}" if step else "The program"
        message = f"{program} of job {name} is not running. {message}"
        raise UnavailableError(f"{message}{describe_bucket(job, *LOGS)}", next=status_command)
    try:
        answer = await connection.get_from_head(name, DASHBOARD_PORT, f"/api/jobs/{job_id}/logs")
    except UnavailableError as error:
        if can_become_true(job, "Running") or not has_kept_files(job):
            raise UnavailableError(f"{error.message}{describe_bucket(job, *LOGS)}", next=error.next) from None
        return (await get_kept_file(connection, name, file)).text  # its Ray cluster is being released
    return str(json.loads(answer)["logs"])


async def follow_program_log(
    connection: Connection, name: str, tail: int | None, step: str | None = None
) -> AsyncGenerator[str]:
    """Wait until the program or the step starts, then yield its output until it ends."""
    job_id = await _wait_for_start(connection, name, step)
    path = api_paths.service_proxy(connection.namespace, head_service(name), DASHBOARD_PORT)
    received = 0
    printed = ""
    if tail is not None:
        text = await get_program_log(connection, name, step)
        yield take_last_lines(text, tail)
        received = len(text)
    while True:
        skip = received  # a new connection sends the log from its beginning
        try:
            headers = await connection.get_token_headers(name)
            async with connection.api.web_socket(f"{path}/api/jobs/{job_id}/logs/tail", headers) as socket:
                async for message in socket:
                    text = str(message.data)
                    new = text[skip:]
                    skip = max(0, skip - len(text))
                    received += len(new)
                    yield new
        except ApiError as error:
            if str(error) != printed:
                printed = str(error)
                connection.notify(f"waiting for the head of job {name}: {printed}")
        job = await connection.get_job(name)
        if _ray_job_id(job, step) != job_id or not can_become_true(job, "Running") or _is_prepared(job, step):
            return
        await asyncio.sleep(RETRY_S)


async def _wait_for_start(connection: Connection, name: str, step: str | None) -> str:
    """Wait until the Ray job exists. Returns its id."""
    printed = ""
    async for job in connection.watch_job(name):
        if job_id := _ray_job_id(job, step):
            return job_id
        if step and step not in [each["name"] for each in job["spec"].get("framework", {}).get("prepare", [])]:
            status_command = connection.kube_context.command_line(f"status {name}")
            raise NotFoundError(f"Job {name} has no step {step} in spec.framework.prepare.", next=status_command)
        if not can_become_true(job, "Running"):
            status_command = connection.kube_context.command_line(f"status {name}")
            raise UnavailableError(f"Job {name} has ended: {summarize(job)}", next=status_command)
        if (text := f"waiting for job {name} to start: {summarize(job)}") != printed:
            printed = text
            connection.notify(printed)
    raise NotFoundError(f"Job {name} was deleted.", next=connection.kube_context.command_line("get"))


def _ray_job_id(job: Manifest, step: str | None) -> str | None:
    """Id of the Ray job for the program or a step, if the current head has it."""
    status = job.get("status", {})
    cluster = status.get("rayCluster", {})
    attempt = status.get("currentAttempt", {})
    if step is None or not cluster:
        job_id: str | None = cluster.get("jobId")
        return job_id
    heads = {each["headPodUid"] for each in status.get("prepared", []) if each["name"] == step}
    if attempt.get("prepareStep") != step and attempt.get("headPodUid") not in heads:
        return None
    program = submission_id(
        job["metadata"]["name"], ray_cluster_uid=attempt["rayClusterUid"], execution=attempt.get("execution", 1)
    )
    return step_id(program, step)


def _is_prepared(job: Manifest, step: str | None) -> bool:
    """Whether the step has succeeded."""
    return step in [each["name"] for each in job.get("status", {}).get("prepared", [])]


async def get_kept_file(connection: Connection, name: str, path: str) -> Text:
    """A file of an attempt, with a notice of its path and size."""
    text = await read_kept_file(connection, name, path)
    start = f", its last {text.shown} of {text.size} bytes" if text.shown < text.size else ""
    connection.notify(f"attempts/{text.path} in the volume of job {name}{start}")
    return text


def take_last_lines(text: str, count: int | None) -> str:
    """The last `count` lines of a text. None: all lines."""
    if count is None:
        return text
    lines = text.split("\n")
    kept = count + (lines[-1] == "")  # the newline of the last line does not begin another line
    return "\n".join(lines[-kept:]) if count else ""
