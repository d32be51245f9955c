"""Failures of the operator's own requests: when to retry, and their report in the status of the job.

`plan` reports an action that fails (`Observed.rejection`). This module reports what fails before or after it: a read of
what belongs to the job, and the status write. It changes the stored status in nothing but Stalled, Reconciling and the
message, so that the report is accepted even if the CRD or a limit of size rejects the new status.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rlt_api.findings.masking import mask_text
from rlt_api.spec.job_spec import OPERATOR
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Phase
from rlt_core.job import Job, Manifest, parse_job, parse_status
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import metrics
from rlt_operator.cache.cache import Cache
from rlt_operator.conditions import ConditionUpdates, Event, is_true, merge_updates
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.lifecycle.masking import list_secrets
from rlt_operator.lifecycle.rejections import add_retry, build_rejected
from rlt_operator.observation import Rejection
from rlt_operator.reconcile.backoff import Backoff
from rlt_operator.reconcile.events import EventWriter
from rlt_operator.reconcile.status import build_status_manifest
from rlt_operator.work_queue import Key, Result

DescribeCrds = Callable[[], Awaitable[str | None]]
"""Returns which fields the installed CRDs lack now; None if they lack none."""

LOG_INTERVAL_S = 600.0
"""Minimum interval between log lines about the same failure of a job."""

log = logging.getLogger("rlt_operator")


class Failures:
    """The failures of all jobs."""

    def __init__(self, api: KubernetesApi, cache: Cache, events: EventWriter, describe_crds: DescribeCrds) -> None:
        self._api = api
        self._cache = cache
        self._events = events
        self._describe_crds = describe_crds
        self._backoff = Backoff()
        self._logged: dict[tuple[Key, str], float] = {}

    def count_wait(self, key: Key) -> float | None:
        """Seconds until the job may be reconciled again; None if it may be now, or if its user has changed it."""
        failure = self._backoff.get(key)
        if failure is None:
            return None
        manifest = self._cache.get_job(key)
        changed = manifest is None or manifest["metadata"]["resourceVersion"] != failure.resource_version
        return None if failure.resource_version and changed else max(0.0, failure.retry_at - time.monotonic())

    def add(self, key: Key, rejection: Rejection, now: datetime) -> Rejection | None:
        """Count an action that failed. Returns it with the time of the retry; None if it is not reported yet.

        The first failure that a retry may fix, such as a single timeout, is not reported.
        """
        failure = self._backoff.fail(key)
        metrics.REQUEST_FAILURES.labels(reason=rejection.reason.value).inc()
        if not rejection.stalled and rejection.reason == Reason.REQUEST_FAILED and failure.count == 1:
            return None
        return replace(rejection, retry_at=now + timedelta(seconds=failure.delay))

    def wait(self, key: Key, resource_version: str) -> Result:
        """The result of a reconciliation whose failure the status with this resourceVersion reports."""
        self._backoff.set_resource_version(key, resource_version)
        failure = self._backoff.get(key)
        return Result(failure.delay if failure else 0)

    async def report(self, key: Key, what: str, error: ApiError) -> Result:
        """Report in the job's status that the operator could not do something. Returns when to retry."""
        now = datetime.now(UTC)
        rejection = self.add(key, Rejection(str(error), stalled=error.rejected), now)
        self._log(key, f"cannot {what}: {error}")
        if rejection is not None:
            message = f"The operator cannot {what}: {truncate(str(error))}"
            if hint := await self._describe_crds():
                message = f"{message.rstrip('.')}. {hint}"
            try:
                await self._write(key, replace(rejection, message=message), now)
            except ApiError as second:
                metrics.UNREPORTED_FAILURES.inc()
                self._log(key, f"cannot report the failure in the status: {second}")
        failure = self._backoff.get(key)
        return Result(failure.delay if failure else 0)

    def clear(self, key: Key) -> None:
        """The job was reconciled, or no longer exists."""
        self._backoff.clear(key)
        if self._logged:
            self._logged = {known: at for known, at in self._logged.items() if known[0] != key}

    async def _write(self, key: Key, rejection: Rejection, now: datetime) -> None:
        manifest = await self._api.get(api_paths.job(*key))
        if manifest is None or "deletionTimestamp" in manifest["metadata"]:
            return
        job = parse_job(manifest)
        if job.managed_by != OPERATOR:
            return
        message = mask_text(add_retry(rejection.message, rejection), set(list_secrets(job)))
        try:
            report = build_report(manifest, job, message, stalled=rejection.stalled, now=now)
            stored = await self._api.apply(f"{api_paths.job(*key)}/status", report)
            self._cache.put(stored)
            self._backoff.set_resource_version(key, stored["metadata"]["resourceVersion"])
        finally:  # without the status, the event is the only report that the user sees
            await self._events.write(job, [Event("Warning", Reason.REQUEST_FAILED, message)], now)

    def _log(self, key: Key, message: str) -> None:
        """Log the failure of the job, unless it was logged in the last LOG_INTERVAL_S."""
        kind = (key, re.sub(r"\d+", "#", message))
        now = time.monotonic()
        if now - self._logged.get(kind, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged[kind] = now
            log.error(message, extra={"job": "/".join(key)})


def build_report(manifest: Manifest, job: Job, message: str, *, stalled: bool, now: datetime) -> Manifest:
    """Build the stored status with the failure in it, for server-side apply."""
    status = parse_status(manifest)
    ended = is_true(status, ConditionType.SUCCEEDED) or is_true(status, ConditionType.FAILED)
    failed = is_true(status, ConditionType.FAILED)
    updates: ConditionUpdates = build_rejected(Reason.REQUEST_FAILED, message, stalled=stalled or failed)
    generation = status.observed_generation or job.generation
    conditions = merge_updates(status, updates, generation=generation, now=now)
    stored = manifest.get("status", {})
    reported = {
        "phase": Phase.PENDING.value,
        **stored,
        "conditions": [condition.to_json() for condition in conditions],
        **({} if ended else {"message": message}),
    }
    return build_status_manifest(job, reported)
