"""All writes: the actions of a plan, the status, and events."""

from __future__ import annotations

import contextlib
from datetime import datetime

from rlt_api.crd import GROUP, KIND, VERSION
from rlt_api.status import RLTrainingJobStatus
from rlt_core import names
from rlt_core.children.pod_template import TemplateDryRun
from rlt_core.job import Job
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.ray_http import Send, UnreachableError
from rlt_operator.conditions import Event, format_time
from rlt_operator.reconcile import ray_jobs
from rlt_operator.reconcile.plan import Plan
from rlt_operator.reconcile.ray_jobs import RayRejectedError

MAX_EVENT_LENGTH = 1000
"""Maximum number of characters of an event's message. The API server accepts 1024 bytes."""


async def apply(api: KubernetesApi, send: Send, job: Job, plan: Plan) -> str | None:
    """Carry out the actions of the plan. Returns why the API server or Ray rejected them; None if neither did.

    Raises ApiError if a retry may succeed.
    """
    try:
        for dry_run in plan.dry_run:
            await _dry_run(api, job, dry_run)
        for manifest in plan.apply:
            await api.apply(api_paths.path_of(manifest), manifest)
        if plan.submit:
            await ray_jobs.submit_job(send, job, plan.submit)
    except (RayRejectedError, UnreachableError) as error:
        return str(error)  # if Ray has the job nevertheless, the next reconciliation observes it
    except ApiError as error:
        if error.rejected:
            return str(error)
        raise
    if plan.stop:
        with contextlib.suppress(UnreachableError):  # its pods are deleted next
            await ray_jobs.stop_job(send, job, plan.stop)
    if plan.delete_cluster:
        path = api_paths.ray_cluster(job.namespace, names.ray_cluster(job.name))
        await api.delete(path, uid=plan.delete_cluster)
    if plan.delete_job:
        await api.delete(api_paths.job(job.namespace, job.name), uid=job.uid)
    return None


async def write_status(api: KubernetesApi, job: Job, status: RLTrainingJobStatus) -> None:
    """Write the status. Raises ApiError with status 409 if the job has changed since it was observed."""
    manifest = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
            "resourceVersion": job.resource_version,
        },
        "status": status.to_json(),
    }
    await api.apply(f"{api_paths.job(job.namespace, job.name)}/status", manifest)


async def create_event(api: KubernetesApi, job: Job, event: Event, now: datetime) -> None:
    """Create a core/v1 Event on the job."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{job.name}.", "namespace": job.namespace},
        "involvedObject": {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:MAX_EVENT_LENGTH],
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "count": 1,
        "source": {"component": names.FIELD_OWNER},
        "reportingComponent": names.FIELD_OWNER,
    }
    await api.create(api_paths.events(job.namespace), manifest)


async def _dry_run(api: KubernetesApi, job: Job, dry_run: TemplateDryRun) -> None:
    """Raises ApiError with the API server's message if it would reject the pods."""
    try:
        await api.dry_run(api_paths.pod_templates(job.namespace), dry_run.manifest)
    except ApiError as error:
        raise ApiError(error.status, f"{dry_run.field}: {error}") from error
