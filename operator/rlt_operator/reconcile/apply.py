"""All the writing: what a plan asks for, then one status, then its events."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import datetime

from rlt_api.crd import GROUP, KIND, VERSION
from rlt_core import names
from rlt_core.children.pod_template import TemplateDryRun
from rlt_core.job import Job, Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.ray_http import Send, UnreachableError
from rlt_operator.conditions import Event, timestamp
from rlt_operator.observation import Observed
from rlt_operator.reconcile import ray_jobs
from rlt_operator.reconcile.plan import Plan, plan
from rlt_operator.reconcile.ray_jobs import RayRefusedError

MAX_EVENT_LENGTH = 1000
"""Characters of an event's message (the API server takes 1024 bytes)."""


async def apply(api: KubernetesApi, send: Send, observed: Observed, now: datetime) -> Plan:
    """Carry out the plan for what is observed. Returns it, or the plan that tells why it was refused.

    Raises ApiError, with status 409 if the job has changed since it was observed: look again.
    """
    decided = plan(observed, now)
    refusal = await _act(api, send, observed.job, decided)
    if refusal is not None:
        decided = plan(replace(observed, refusal=refusal), now)
    if decided.delete_job:
        await api.delete(api_paths.job(observed.job.namespace, observed.job.name), uid=observed.job.uid)
    if decided.status is not None:
        await _write_status(api, observed.job, decided)
        for event in decided.events:
            path = api_paths.events(observed.job.namespace)
            await api.create(path, event_manifest(observed.job, event, now))
    return decided


async def _act(api: KubernetesApi, send: Send, job: Job, plan: Plan) -> str | None:
    try:
        for check in plan.check:
            await _ask(api, job, check)
        for manifest in plan.apply:
            await api.apply(api_paths.path_of(manifest), manifest)
        if plan.submit:
            await ray_jobs.submit(send, job, plan.submit)
    except (RayRefusedError, UnreachableError) as error:
        return str(error)  # if Ray has taken the job all the same, the next look sees it
    except ApiError as error:
        if error.refused:
            return str(error)
        raise
    if plan.stop:
        with contextlib.suppress(UnreachableError):  # its pods are deleted next
            await ray_jobs.stop(send, job, plan.stop)
    if plan.delete_cluster:
        path = api_paths.ray_cluster(job.namespace, names.ray_cluster(job.name))
        await api.delete(path, uid=plan.delete_cluster)
    return None


async def _ask(api: KubernetesApi, job: Job, check: TemplateDryRun) -> None:
    """Raises ApiError with the API server's words if it would refuse the pods."""
    try:
        await api.dry_run(api_paths.pod_templates(job.namespace), check.manifest)
    except ApiError as error:
        raise ApiError(error.status, f"{check.field}: {error}") from error


async def _write_status(api: KubernetesApi, job: Job, plan: Plan) -> None:
    """Only onto the very version that was observed: an old look never overwrites a newer status."""
    assert plan.status
    manifest = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
            "resourceVersion": job.resource_version,
        },
        "status": plan.status.to_json(),
    }
    await api.apply(f"{api_paths.job(job.namespace, job.name)}/status", manifest)


def event_manifest(job: Job, event: Event, now: datetime) -> Manifest:
    """A core/v1 Event on the job."""
    return {
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
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
        "source": {"component": names.FIELD_OWNER},
        "reportingComponent": names.FIELD_OWNER,
    }
