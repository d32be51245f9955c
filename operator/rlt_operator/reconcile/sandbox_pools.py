"""Reads the pools of sandbox pods, and deletes their pods that have ended, which nothing else does: the Job controller
has replaced them, and agent-sandbox replaces them then.

The pods are not watched, because each conversation changes one several times. Instead, the Job is read, which has their
numbers, and the few pods that do not run. Sandboxes have no common number: all their pods are read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rlt_core import names
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.cache.cache import Cache
from rlt_operator.diagnosis.sandboxes import update_pool, update_sandboxes
from rlt_operator.observation import SandboxPool, choose_progress_interval
from rlt_operator.work_queue import Key

INTERVAL_S = 10.0
"""Interval between reads and deletions: three requests for a job with sandboxes. From 200 such jobs on it grows: a read
can change the status of a job."""
RELEASED_INTERVAL_S = 2.0
"""Interval between deletions of released pods of Sandboxes, which are replaced then. The pods that failed wait for
INTERVAL_S: one that fails at its start is not created more often."""
ENDED = "status.phase!=Pending,status.phase!=Running"
RELEASED = "status.phase=Succeeded"
NOT_RUNNING = "status.phase!=Running,status.phase!=Succeeded"

log = logging.getLogger("rlt_operator")


async def keep_sandbox_pools(api: KubernetesApi, cache: Cache) -> None:
    """Read the pools and delete ended pods until cancelled."""

    async def repeat(process: Callable[[KubernetesApi, Cache], Awaitable[None]], interval_s: float) -> None:
        while True:
            await process(api, cache)
            await asyncio.sleep(max(interval_s, choose_progress_interval(len(cache.sandboxes))))

    await asyncio.gather(repeat(process_sandbox_pools, INTERVAL_S), repeat(delete_released, RELEASED_INTERVAL_S))


async def delete_released(api: KubernetesApi, cache: Cache) -> None:
    """Delete the pods of Sandboxes whose conversation has ended. An error is logged: the next call tries again."""
    for key in [key for key, pool in cache.sandboxes.items() if pool.sandboxes]:
        with log_errors(key):
            await _delete(api, key, RELEASED)


async def process_sandbox_pools(api: KubernetesApi, cache: Cache) -> None:
    """Read the pools of all jobs, and delete their pods that have ended. A pool that has changed wakes its job.

    An error is logged: the next call tries again.
    """
    for key, pool in sorted(cache.sandboxes.items()):
        with log_errors(key):
            found = await _read(api, cache, key, pool)  # before the deletion: a failed pod shows why
            await _delete(api, key, ENDED)
            if found != pool and cache.sandboxes.get(key) == pool:
                cache.sandboxes[key] = found
                cache.wake(key)


@contextmanager
def log_errors(key: Key) -> Iterator[None]:
    """Log an error of the API server about the pods of a job."""
    try:
        yield
    except ApiError as error:
        log.warning("cannot read or delete the sandbox pods of %s/%s: %s", *key, error)


async def _delete(api: KubernetesApi, key: Key, phases: str) -> None:
    namespace, name = key
    selected = f"{names.SANDBOX_LABEL}={name}"
    await api.delete_selected(api_paths.pods(namespace), labelSelector=selected, fieldSelector=phases)


async def _read(api: KubernetesApi, cache: Cache, key: Key, pool: SandboxPool) -> SandboxPool:
    """The pool as it is now. Raises ApiError."""
    namespace, name = key
    path = api_paths.pods(namespace)
    selected = f"{names.SANDBOX_LABEL}={name}"
    pods: list[Manifest]
    if pool.name and pool.sandboxes:
        pods = await api.list(path, labelSelector=selected)
        found = {each["metadata"]["name"]: each for each in pods}
        expected = names.list_sandboxes(pool.name, pool.sandboxes)
        missing = next((each for each in expected if each not in found), None)
        without_pod = await api.get(api_paths.sandbox(namespace, missing)) if missing else None
        return update_sandboxes(pool, [found[each] for each in expected if each in found], without_pod)
    job = await api.get(api_paths.batch_job(namespace, pool.name)) if pool.name else None
    if job is None:
        return replace(pool, ready=0, claimed=0, problem=None)
    pods = await api.list(path, labelSelector=selected, fieldSelector=NOT_RUNNING)
    return update_pool(pool, job, pods, tuple(cache.warnings.select(job["metadata"]["uid"])))
