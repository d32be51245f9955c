"""Reads the pools of sandbox pods, and deletes their pods that have ended: the Job controller replaces and counts them,
and nothing else deletes them.

The pods are not watched, because each conversation changes one several times. Instead, the Job is read, which has their
numbers, and the few pods that do not run.
"""

from __future__ import annotations

import asyncio
import logging

from rlt_core import names
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.cache.cache import Cache
from rlt_operator.diagnosis.sandboxes import update_pool
from rlt_operator.observation import SandboxPool, choose_progress_interval
from rlt_operator.work_queue import Key

INTERVAL_S = 10.0
"""Interval between reads and deletions: three requests for a job with sandboxes. From 200 such jobs on it grows: a read
can change the status of a job."""
ENDED = "status.phase!=Pending,status.phase!=Running"
NOT_RUNNING = "status.phase!=Running,status.phase!=Succeeded"

log = logging.getLogger("rlt_operator")


async def keep_sandbox_pools(api: KubernetesApi, cache: Cache) -> None:
    """Read the pools and delete ended pods until cancelled."""
    while True:
        await process_sandbox_pools(api, cache)
        await asyncio.sleep(max(INTERVAL_S, choose_progress_interval(len(cache.sandboxes))))


async def process_sandbox_pools(api: KubernetesApi, cache: Cache) -> None:
    """Read the pools of all jobs, and delete their pods that have ended. A pool that has changed wakes its job.

    An error is logged: the next call tries again.
    """
    for key, pool in sorted(cache.sandboxes.items()):
        namespace, name = key
        selected = f"{names.SANDBOX_LABEL}={name}"
        try:
            found = await _read(api, cache, key, pool)  # before the deletion: a failed pod shows why
            await api.delete_selected(api_paths.pods(namespace), labelSelector=selected, fieldSelector=ENDED)
        except ApiError as error:
            log.warning("cannot read or delete the sandbox pods of %s/%s: %s", namespace, name, error)
            continue
        if found != pool and cache.sandboxes.get(key) == pool:
            cache.sandboxes[key] = found
            cache.wake(key)


async def _read(api: KubernetesApi, cache: Cache, key: Key, pool: SandboxPool) -> SandboxPool:
    """The pool as it is now. Raises ApiError."""
    namespace, name = key
    job = await api.get(api_paths.batch_job(namespace, pool.name)) if pool.name else None
    if job is None:
        return SandboxPool(pool.name)
    pods: list[Manifest] = await api.list(
        api_paths.pods(namespace), labelSelector=f"{names.SANDBOX_LABEL}={name}", fieldSelector=NOT_RUNNING
    )
    return update_pool(pool, job, pods, tuple(cache.warnings.select(job["metadata"]["uid"])))
