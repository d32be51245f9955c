"""Changes of a job's state: cancel, suspend, resume, scale, delete; and the wait for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from rlt.connection import Connection
from rlt.errors import InvalidJobError, JobFailedError, NotFoundError, UnavailableError, WaitTimeoutError
from rlt.job_state import get_condition, is_true, summarize
from rlt.wanted_condition import WantedCondition
from rlt_api.frameworks.elastic_rules import validate_rollout_replicas
from rlt_api.status.conditions import Reason
from rlt_api.validation.resolved_spec import get_resolved_spec
from rlt_core.job import Manifest, parse_job
from rlt_core.kubernetes import api_paths
from rlt_core.names import CANCEL_ANNOTATION


async def cancel_job(connection: Connection, name: str) -> Manifest:
    """Stop a job permanently, or release the cluster that a failed job keeps. Returns the stored job.

    Raises UnavailableError if the job has ended.
    """
    job = await connection.get_job(name)
    for final in ("Succeeded", "Failed"):
        if is_true(job, final) and get_condition(job, "ClusterReady").get("reason") != Reason.KEPT:
            delete = connection.kube_context.command_line(f"delete {name}")
            raise UnavailableError(f"Job {name} has already ended: {final}.", next=delete)
    patch = {"metadata": {"annotations": {CANCEL_ANNOTATION: "true"}}}
    return await connection.patch_job(name, patch, field_manager="rlt-cancel")


async def set_suspend(connection: Connection, name: str, suspend: bool) -> Manifest:
    """Set spec.suspend. Returns the stored job.

    A job that a rule has paused resumes with any change of its spec: its suspend is set to true in between.
    """
    job = await connection.get_job(name)
    field_manager = "rlt-suspend" if suspend else "rlt-resume"
    if not suspend and job.get("status", {}).get("pause") and not job["spec"].get("suspend"):
        await connection.patch_job(name, {"spec": {"suspend": True}}, field_manager=field_manager)
    return await connection.patch_job(name, {"spec": {"suspend": suspend}}, field_manager=field_manager)


async def scale_job(connection: Connection, name: str, replicas: int, *, group: str | None = None) -> Manifest:
    """Set spec.rolloutReplicas: the number of pods that only generate. Returns the stored job.

    `group`: the worker group that is meant. Raises UnavailableError if the job has ended, and InvalidJobError if its
    accepted spec does not allow this number.
    """
    job = await connection.get_job(name)
    status = connection.kube_context.command_line(f"status {name}")
    if final := next((final for final in ("Succeeded", "Failed") if is_true(job, final)), None):
        raise UnavailableError(f"Job {name} has already ended: {final}.", next=status)
    patch = {"spec": {"rolloutReplicas": replicas}}
    spec = parse_job({**job, "spec": job["spec"] | patch["spec"]}).spec if get_resolved_spec(job) else None
    if spec is not None:
        if findings := tuple(validate_rollout_replicas(spec)):
            raise InvalidJobError(f"{name}: {findings[0]}", next=status, findings=findings)
        if group not in (None, spec.rollout.worker_group):
            fix = f"use --group {spec.rollout.worker_group}, the group that only generates"
            raise InvalidJobError(f"{name}: --group {group}: its number of pods cannot change; {fix}", next=status)
    return await connection.patch_job(name, patch, field_manager="rlt-scale")


async def delete_jobs(connection: Connection, *names: str) -> list[Manifest]:
    """Delete jobs. If one does not exist, none is deleted. Returns the jobs before the deletion."""
    jobs = [await connection.get_job(name) for name in names]
    for job in jobs:
        await delete_job(connection, job)
    return jobs


async def delete_job(connection: Connection, job: Manifest) -> None:
    """Delete the stored job and its cluster."""
    metadata = job["metadata"]
    await connection.api.delete(api_paths.job(metadata["namespace"], metadata["name"]), uid=metadata["uid"])


async def wait_for_condition(
    connection: Connection,
    name: str,
    wanted: WantedCondition,
    timeout_s: float | None,
    show: Callable[[Manifest], None] = lambda job: None,
) -> Manifest:
    """Wait until a condition of a job has a status, and show the job after each change. Returns the job.

    Raises JobFailedError if it cannot have it, and WaitTimeoutError. A timeout of 0 reads the job once.
    """
    status_command = connection.kube_context.command_line(f"status {name}")
    job = None
    try:
        async with asyncio.timeout(timeout_s or None):
            async with aclosing(_observe(connection, name, once=timeout_s == 0)) as jobs:
                async for job in jobs:
                    if wanted.is_met(job):
                        return job
                    if not wanted.can_be_met(job):
                        raise JobFailedError(f"{name}: {wanted.explain(job)}", job=job, next=status_command)
                    show(job)
    except TimeoutError:
        pass
    else:
        if timeout_s != 0:
            raise JobFailedError(f"{name} was deleted", job=None, next=connection.kube_context.command_line("get"))
    state = summarize(job) if job else ""
    message = f"{name}: not {wanted} within {timeout_s:g} s. {state}".strip()
    raise WaitTimeoutError(message, job=job, next=status_command)


async def wait_for_deletion(
    connection: Connection,
    name: str,
    timeout_s: float | None,
    show: Callable[[Manifest], None] = lambda job: None,
) -> Manifest | None:
    """Wait until a job no longer exists, and show it after each change. Returns its last state.

    Returns None if it does not exist at first, as kubectl does. Raises WaitTimeoutError. A timeout of 0 reads the job
    once.
    """
    job = None
    try:
        async with asyncio.timeout(timeout_s or None):
            async with aclosing(_observe(connection, name, once=timeout_s == 0)) as jobs:
                async for job in jobs:
                    show(job)
        if timeout_s != 0:
            return job
    except NotFoundError:
        return None
    except TimeoutError:
        pass
    message = f"{name}: not deleted within {timeout_s:g} s. {summarize(job) if job else ''}".strip()
    raise WaitTimeoutError(message, job=job, next=connection.kube_context.command_line(f"status {name}"))


async def _observe(connection: Connection, name: str, *, once: bool) -> AsyncGenerator[Manifest]:
    if once:
        yield await connection.get_job(name)
        return
    async for job in connection.watch_job(name):
        yield job
