"""Keeps the usage of deleted jobs: notes each deletion, and adds it to the record of its namespace.

Every replica notes what is deleted, and the leader writes. A replica that takes over writes what it has noted: a job
has one entry, so that it counts once. A job that is deleted while no replica runs is not recorded.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_core.job import Manifest, parse_status
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.usage_record import build_record, merge_jobs, name_record, parse_record, reduce_job
from rlt_operator.memory.usage import end_usage

MAX_NOTED = 5000
"""Deleted jobs that are noted: a standby keeps the latest ones, which the leader has recorded."""
BATCH_S = 5.0
"""Time in which deletions are collected: a sweep is deleted with few writes."""
RETRY_S = 30.0
"""Delay after a request that failed."""

log = logging.getLogger("rlt_operator")


class DeletedJobs:
    """The jobs whose deletion this process has observed, and which are not in a record as far as it knows."""

    def __init__(self, operator: str | None) -> None:
        """`operator`: the namespace of the records. None: there are none."""
        self._operator = operator
        self._noted: dict[str, Manifest] = {}
        """By uid."""
        self._changed = asyncio.Event()

    def note(self, job: Manifest) -> None:
        """Note a job that no longer exists, in its last known state."""
        kept = reduce_job(_end(job, datetime.now(UTC))) if self._operator else None
        if kept is None:
            return
        uid = kept["metadata"]["uid"]
        self._noted.pop(uid, None)
        self._noted[uid] = kept
        if len(self._noted) > MAX_NOTED:
            del self._noted[next(iter(self._noted))]
        self._changed.set()

    async def record(self, api: KubernetesApi) -> None:
        """Write until cancelled, and then once more."""
        try:
            while True:
                await self._changed.wait()
                await asyncio.sleep(BATCH_S)
                if not await self.flush(api):
                    await asyncio.sleep(RETRY_S)
                    self._changed.set()
        finally:
            await self.flush(api)

    async def flush(self, api: KubernetesApi) -> bool:
        """Write what is noted. Returns whether no request failed."""
        self._changed.clear()
        written = True
        for namespace in {job["metadata"]["namespace"] for job in self._noted.values()}:
            noted = {uid: job for uid, job in self._noted.items() if job["metadata"]["namespace"] == namespace}
            try:
                await self._write(api, namespace, list(noted.values()))
            except (ApiError, ValueError) as error:
                written = False
                log.warning("cannot record the usage of deleted jobs of namespace %s: %s", namespace, error)
            else:
                self._noted = {uid: job for uid, job in self._noted.items() if noted.get(uid) is not job}
        return written

    async def _write(self, api: KubernetesApi, namespace: str, deleted: list[Manifest]) -> None:
        assert self._operator
        path = api_paths.config_map(self._operator, name_record(namespace))
        found = await api.get(path)
        # The event loop answers others: a full record takes tenths of a second.
        record = await asyncio.to_thread(_add_to_record, self._operator, namespace, found, deleted)
        await api.apply(path, record)


def _add_to_record(operator: str, namespace: str, found: Manifest | None, deleted: list[Manifest]) -> Manifest:
    return build_record(operator, namespace, merge_jobs(parse_record(found), deleted), found)


def _end(job: Manifest, now: datetime) -> Manifest:
    """The job with the usage until now: its pods end with it."""
    usage = parse_status(job).usage
    if usage is None:
        return job
    ended = RLTrainingJobStatus(usage=end_usage(usage, now)).to_json()["usage"]
    return {**job, "status": {**job["status"], "usage": ended}}
