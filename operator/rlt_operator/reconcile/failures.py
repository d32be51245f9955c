"""Failures of the operator's own requests: when to retry, and their report in the status of the job.

`plan` reports an action that fails (`Observed.rejection`). This module reports what fails before or after it: a read of
what belongs to the job, the status write, and exceptions. It changes the stored status in nothing but Stalled,
Reconciling and the message, so that the report is accepted even if the CRD or a limit of size rejects the new status.
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
from rlt_api.validation.resolved_spec import get_resolved_spec
from rlt_api.validation.size import is_too_large
from rlt_core.job import Job, Manifest, parse_status
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
from rlt_operator.reconcile.status_patch import build_status_patch
from rlt_operator.work_queue import Key, Result

DescribeCrds = Callable[[], Awaitable[str | None]]
"""Returns which fields the installed CRDs lack now; None if they lack none."""

MAX_QUARANTINE_S = 600.0
"""Maximum delay of a job that the operator cannot plan, or whose reconciliations block the event loop."""
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
        self._quarantine = Backoff(MAX_QUARANTINE_S)
        self._logged: dict[tuple[Key, str], float] = {}

    def count_wait(self, key: Key) -> float | None:
        """Seconds until the job may be reconciled again; None if it may be now, or if its user has changed it."""
        failure = self._quarantine.get(key) or self._backoff.get(key)
        if failure is None:
            return None
        manifest = self._cache.get_job(key)
        if manifest is None:
            return None
        changed = manifest["metadata"]["resourceVersion"] != failure.resource_version
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
        self.log(key, f"cannot {what}: {error}")
        if rejection is not None:
            message = f"The operator cannot {what}: {truncate(str(error))}"
            if hint := await self._describe_crds():
                message = f"{message.rstrip('.')}. {hint}"
            try:
                stored = await self._write(key, replace(rejection, message=message), now)
                if stored:
                    self._backoff.set_resource_version(key, stored)
            except ApiError as second:
                metrics.UNREPORTED_FAILURES.inc()
                self.log(key, f"cannot report the failure in the status: {second}")
        failure = self._backoff.get(key)
        return Result(failure.delay if failure else 0)

    async def report_exception(self, key: Key, error: Exception) -> Result:
        """Report that the operator cannot plan the job. Returns when to retry."""
        failure = self._quarantine.fail(key)
        now = datetime.now(UTC)
        cause = f"{type(error).__name__}: {truncate(str(error))}"
        rejection = Rejection(
            f"The operator has failed on this job, and on no other: {cause}",
            Reason.INTERNAL_ERROR,
            retry_at=now + timedelta(seconds=failure.delay),
        )
        stored = await self._write_internal(key, rejection, now)
        if stored:
            self._quarantine.set_resource_version(key, stored)
        return Result(failure.delay)

    async def report_blocking(self, key: Key, seconds: float) -> Result:
        """Delay a job whose reconciliation has blocked the event loop, and report it from the second time on.

        A change by its user does not end the delay.
        """
        failure = self._quarantine.fail(key)
        now = datetime.now(UTC)
        if failure.count > 1:
            rejection = Rejection(
                f"The operator needs {seconds:.1f} s for each reconciliation of this job, which delays all jobs: "
                "shorten the texts and lists of its spec.",
                Reason.INTERNAL_ERROR,
                stalled=False,
                retry_at=now + timedelta(seconds=failure.delay),
            )
            await self._write_internal(key, rejection, now)
        return Result(failure.delay)

    def end_quarantine(self, key: Key) -> None:
        """The job was reconciled without an exception, and in time."""
        self._quarantine.clear(key)

    async def _write_internal(self, key: Key, rejection: Rejection, now: datetime) -> str | None:
        """Write the report. Returns the job's new resourceVersion; None if the report was not written."""
        metrics.REQUEST_FAILURES.labels(reason=rejection.reason.value).inc()
        try:
            return await self._write(key, rejection, now)
        except ApiError as error:
            metrics.UNREPORTED_FAILURES.inc()
            self.log(key, f"cannot report the failure in the status: {error}")
            return None

    def clear(self, key: Key) -> None:
        """The job was reconciled, or no longer exists."""
        self._backoff.clear(key)
        if self._logged:
            self._logged = {known: at for known, at in self._logged.items() if known[0] != key}

    async def _write(self, key: Key, rejection: Rejection, now: datetime) -> str | None:
        """Returns the job's new resourceVersion; None if the job is gone or not the operator's. Raises ApiError."""
        manifest = await self._api.get(api_paths.job(*key))
        if manifest is None or "deletionTimestamp" in manifest["metadata"]:
            return None
        job = _identify(manifest)
        if job.managed_by != OPERATOR:
            return None
        message = mask_text(add_retry(rejection.message, rejection), set(list_secrets(job)))
        try:
            status = manifest.get("status")
            reported = build_report(status or {}, job, replace(rejection, message=message), now)
            patch = build_status_patch(job.resource_version, status, reported)
            stored = await self._api.patch(f"{api_paths.job(*key)}/status", patch)
            self._cache.put(stored)
        finally:  # without the status, the event is the only report that the user sees
            await self._events.write(job, [Event("Warning", rejection.reason, message)], now)
        version: str = stored["metadata"]["resourceVersion"]
        return version

    def log(self, key: Key, message: str, error: Exception | None = None) -> None:
        """Log the failure of the job, unless it was logged in the last LOG_INTERVAL_S."""
        kind = (key, re.sub(r"\d+", "#", message))
        now = time.monotonic()
        if now - self._logged.get(kind, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged[kind] = now
            log.error(message, extra={"job": "/".join(key)}, exc_info=error)


def _identify(manifest: Manifest) -> Job:
    """The job without its spec, whose validation may be what fails."""
    metadata = manifest["metadata"]
    status = parse_status(manifest)
    submitted = manifest.get("spec", {})
    return Job(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata["generation"],
        resource_version=metadata["resourceVersion"],
        deleting=False,
        spec=None,
        status=status,
        submitted_spec={} if is_too_large(submitted) else submitted,
        resolved_spec=get_resolved_spec(manifest),
        managed_by=submitted.get("managedBy") or OPERATOR,
    )


def build_report(stored: Manifest, job: Job, rejection: Rejection, now: datetime) -> Manifest:
    """Build the stored status with the failure in it."""
    status = job.status
    ended = is_true(status, ConditionType.SUCCEEDED) or is_true(status, ConditionType.FAILED)
    failed = is_true(status, ConditionType.FAILED)
    message = rejection.message
    updates: ConditionUpdates = build_rejected(rejection.reason, message, stalled=rejection.stalled or failed)
    generation = status.observed_generation or job.generation
    conditions = merge_updates(status, updates, generation=generation, now=now)
    return {
        "phase": Phase.PENDING.value,
        **stored,
        "conditions": [condition.to_json() for condition in conditions],
        **({} if ended else {"message": message}),
    }
