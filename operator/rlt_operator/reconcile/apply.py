"""All writes but events: the actions of a plan, and the status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_core import names
from rlt_core.children.pod_template import TemplateDryRun
from rlt_core.job import Job, Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.ray_http import Head, RayTokens, Send, UnreachableError
from rlt_core.shards import Shard
from rlt_operator.cache.cache import Cache
from rlt_operator.observation import Rejection
from rlt_operator.ray import jobs as ray_jobs
from rlt_operator.ray.jobs import RayRejectedError
from rlt_operator.reconcile.children import NameTakenError, check_head_service, write_child, write_ray_token
from rlt_operator.reconcile.plan import Plan
from rlt_operator.reconcile.run_record import store_record
from rlt_operator.reconcile.scale import scale_group
from rlt_operator.reconcile.status import carry_newer_fields
from rlt_operator.reconcile.status_patch import build_status_patch, dump_changed
from rlt_operator.work_queue import Key


def label_shard(plan: Plan, shard: Shard) -> Plan:
    """Label what the job owns with the shard. A PVC is recognized by its labels, also by another number of shards."""
    if shard.total == 1:
        return plan
    return replace(plan, apply=tuple(_label(each, shard) if _is_owned(each) else each for each in plan.apply))


def _is_owned(manifest: Manifest) -> bool:
    return "ownerReferences" in manifest["metadata"]


def _label(manifest: Manifest, shard: Shard) -> Manifest:
    labels = {**manifest["metadata"].get("labels", {}), names.SHARD_LABEL: str(shard.number)}
    return {**manifest, "metadata": {**manifest["metadata"], "labels": labels}}


async def apply(
    api: KubernetesApi, cache: Cache, send: Send, tokens: RayTokens, head: Head | None, job: Job, plan: Plan
) -> Rejection | None:
    """Carry out the actions of the plan. Returns why one failed, and skips those after it; None if none failed.

    The next reconciliation observes the written objects, because they are put into the cache.
    """
    try:
        await _write_objects(api, cache, tokens, job, plan)
        await _act(api, cache, send, head, job, plan)
    except RayRejectedError as error:
        return Rejection(str(error), Reason.SUBMISSION_REJECTED)
    except UnreachableError as error:  # if Ray has the job nevertheless, the next reconciliation observes it
        return Rejection(str(error), Reason.SUBMISSION_REJECTED, stalled=False)
    except NameTakenError as error:
        return Rejection(str(error), Reason.NAME_TAKEN)
    except ApiError as error:
        return Rejection(str(error), stalled=error.rejected)
    return None


async def _write_objects(api: KubernetesApi, cache: Cache, tokens: RayTokens, job: Job, plan: Plan) -> None:
    for dry_run in plan.dry_run:
        await _dry_run(api, job, dry_run)
    clusters = [manifest for manifest in plan.apply if manifest["kind"] == "RayCluster"]
    secrets = [manifest for manifest in plan.apply if manifest["kind"] == "Secret"]
    others = [manifest for manifest in plan.apply if manifest["kind"] not in ("RayCluster", "Secret")]
    restores = not clusters
    await _complete(
        *([check_head_service(api, job)] if clusters else []),
        *(_write_child(api, cache, job, manifest, restores=restores) for manifest in others),
        *(write_ray_token(api, job, manifest, tokens.get_key()) for manifest in secrets),
    )
    for cluster in clusters:  # last: its pods mount the others
        await _write_child(api, cache, job, cluster)


async def _act(api: KubernetesApi, cache: Cache, send: Send, head: Head | None, job: Job, plan: Plan) -> None:
    if plan.scale:
        await scale_group(api, cache, job, plan.scale)
    if plan.submit and head:
        await ray_jobs.submit_job(send, head, plan.submit)
    if plan.stop and head:
        with contextlib.suppress(UnreachableError):  # the next reconciliation stops it
            await ray_jobs.stop_job(send, head, plan.stop)
    if plan.record:
        await store_record(api, job, plan.record)
    if plan.delete_cluster:
        path = api_paths.ray_cluster(job.namespace, names.ray_cluster(job.name))
        await api.delete(path, uid=plan.delete_cluster)
    if plan.delete_job:
        await api.delete(api_paths.job(job.namespace, job.name), uid=job.uid)


async def _write_child(
    api: KubernetesApi, cache: Cache, job: Job, manifest: Manifest, *, restores: bool = False
) -> None:
    cache.put(await write_child(api, job, manifest, restores=restores))


async def _complete(*requests: Coroutine[Any, Any, None]) -> None:
    """Wait for all requests, then raise the first error."""
    for result in await asyncio.gather(*requests, return_exceptions=True):
        if result is not None:
            raise result


async def write_status(api: KubernetesApi, cache: Cache, job: Job, status: RLTrainingJobStatus) -> str:
    """Write the status. Returns the job's new resourceVersion.

    Raises ApiError with status 409 if the job has changed since it was observed.
    """
    is_new = job.status == RLTrainingJobStatus()
    before = None if is_new else dump_changed(job.status, status)
    after = carry_newer_fields(job, status.to_json() if is_new else dump_changed(status, job.status))
    return await patch_status(api, cache, (job.namespace, job.name), job.resource_version, before, after)


async def patch_status(
    api: KubernetesApi, cache: Cache, key: Key, version: str, before: Manifest | None, after: Manifest
) -> str:
    """Write what differs between two statuses, or the same parts of them. As `write_status`."""
    stored = await api.patch(f"{api_paths.job(*key)}/status", build_status_patch(version, before, after))
    cache.put(stored)
    cache.written.add(key)
    new_version: str = stored["metadata"]["resourceVersion"]
    return new_version


async def _dry_run(api: KubernetesApi, job: Job, dry_run: TemplateDryRun) -> None:
    """Raises ApiError with the API server's message if it would reject the pods."""
    try:
        await api.dry_run(api_paths.pod_templates(job.namespace), dry_run.manifest)
    except ApiError as error:
        raise ApiError(error.status, f"{dry_run.field}: {error}") from error
