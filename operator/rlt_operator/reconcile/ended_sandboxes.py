"""The sandbox pods that have ended. The Job controller replaces and counts them, and nothing else deletes them."""

from __future__ import annotations

import asyncio
import logging

from rlt_core import names
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.cache.cache import Cache

INTERVAL_S = 10.0
"""Interval between deletions, each with one request for a job with sandboxes."""
ENDED = "status.phase!=Pending,status.phase!=Running"

log = logging.getLogger("rlt_operator")


async def keep_deleting_ended_sandboxes(api: KubernetesApi, cache: Cache) -> None:
    """Delete them until cancelled."""
    while True:
        await delete_ended_sandboxes(api, cache)
        await asyncio.sleep(INTERVAL_S)


async def delete_ended_sandboxes(api: KubernetesApi, cache: Cache) -> None:
    """Delete the ended sandbox pods of all jobs. An error is logged: the next call tries again."""
    for namespace, name in sorted(cache.sandboxed):
        selected = f"{names.SANDBOX_LABEL}={name}"
        try:
            await api.delete_selected(api_paths.pods(namespace), labelSelector=selected, fieldSelector=ENDED)
        except ApiError as error:
            log.warning("cannot delete the ended sandbox pods of %s/%s: %s", namespace, name, error)
