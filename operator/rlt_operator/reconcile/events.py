"""Kubernetes Events on jobs: one object for each kind of transition, with a count.

The name of an Event derives from the job's uid, the reason and the message without its numbers. A transition that
repeats therefore increments the count of the existing Event, as client-go's EventCorrelator does, and a bucket of
tokens for each job limits how often. An operator that ends between the status write and the Event creates it at its
first reconciliation of the job: the API server rejects the second creation of the same name.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rlt_api.schema.crd import GROUP, KIND, VERSION
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_core import names
from rlt_core.job import Job, Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import metrics
from rlt_operator.conditions import Event, format_time, list_current_events
from rlt_operator.work_queue import Key

MAX_EVENT_LENGTH = 1000
"""Maximum number of characters of an event's message. The API server accepts 1024 bytes."""
BURST = 25
"""Number of events of a job that are written without a delay (client-go's defaultSpamBurst)."""
FLUSH_S = 2.0
"""How long the end of the process waits for events that are being written."""
REFILL_S = 300.0
"""Then one event of the job is written per this time (client-go's defaultSpamQPS)."""

log = logging.getLogger("rlt_operator")


@dataclass
class _Bucket:
    tokens: float
    updated: float

    def take(self) -> bool:
        now = time.monotonic()
        self.tokens = min(BURST, self.tokens + (now - self.updated) / REFILL_S)
        self.updated = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class EventWriter:
    """Writes the events of all jobs. An error is logged: it never fails a reconciliation."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._buckets: dict[str, _Bucket] = {}
        self._restored: set[str] = set()
        self._uids: dict[Key, set[str]] = {}
        """By namespace and name: the uids of the jobs whose events this process has written."""
        self._writes: set[asyncio.Task[None]] = set()

    def start(self, job: Job, events: Sequence[Event], now: datetime) -> None:
        """Write the events in the background: the reconciliation does not wait for them."""
        if events:
            task = asyncio.create_task(self.write(job, events, now))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def flush(self) -> None:
        """Wait for the writes in the background, at most FLUSH_S."""
        if self._writes:
            await asyncio.wait(self._writes, timeout=FLUSH_S)

    async def write(self, job: Job, events: Iterable[Event], now: datetime) -> None:
        """Create the events, or increment the counts of those that exist."""
        for event in events:
            self._uids.setdefault((job.namespace, job.name), set()).add(job.uid)
            bucket = self._buckets.setdefault(job.uid, _Bucket(BURST, time.monotonic()))
            if not bucket.take():
                metrics.EVENTS_DROPPED.inc()
                continue
            try:
                if not await self._create(job, event, now):
                    await self._count(job, event, now)
            except ApiError as error:
                metrics.EVENTS_DROPPED.inc()
                self._restored.discard(job.uid)
                log.warning("cannot write an event: %s", error, extra=_about(job) | {"reason": event.reason})
            else:
                metrics.EVENTS.labels(type=event.type).inc()

    async def restore(self, job: Job, status: RLTrainingJobStatus, now: datetime) -> None:
        """Create the events of the stored status that may be missing, at the first call for the job."""
        if job.uid in self._restored:
            return
        self._restored.add(job.uid)
        self._uids.setdefault((job.namespace, job.name), set()).add(job.uid)
        for event in list_current_events(status, now):
            try:
                await self._create(job, event, now)
            except ApiError as error:
                log.warning("cannot write an event: %s", error, extra=_about(job) | {"reason": event.reason})

    def forget(self, key: Key) -> None:
        """Drop what is kept about deleted jobs of that name."""
        for uid in self._uids.pop(key, ()):
            self._buckets.pop(uid, None)
            self._restored.discard(uid)

    async def _create(self, job: Job, event: Event, now: datetime) -> bool:
        """Create the event. Returns False if it exists."""
        try:
            await self._api.create(api_paths.events(job.namespace), build_event(job, event, now))
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True

    async def _count(self, job: Job, event: Event, now: datetime) -> None:
        path = api_paths.event(job.namespace, get_event_name(job, event))
        existing = await self._api.get(path)
        if existing is None:  # it has expired since
            await self._create(job, event, now)
            return
        patch = {
            "count": existing.get("count", 1) + 1,
            "lastTimestamp": format_time(now),
            "message": event.message[:MAX_EVENT_LENGTH],
        }
        await self._api.merge(path, patch)


def get_event_name(job: Job, event: Event) -> str:
    """The name of the Event for all transitions of the job that differ in numbers only."""
    repeats = event.reason != Reason.RESTARTING  # the number of the attempt makes each restart another transition
    message = re.sub(r"(?<![0-9a-f])[a-f]*\d[0-9a-f]*", "#", event.message) if repeats else event.message
    text = "\n".join((job.uid, event.type, event.reason, message))
    return f"{job.name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def build_event(job: Job, event: Event, now: datetime) -> Manifest:
    """Build a core/v1 Event on the job."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": get_event_name(job, event), "namespace": job.namespace},
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


def _about(job: Job) -> dict[str, str]:
    return {"job": f"{job.namespace}/{job.name}"}
