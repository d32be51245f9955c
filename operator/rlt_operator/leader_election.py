"""Leader election: of several replicas, the one that holds a Lease reconciles.

The algorithm is from client-go's tools/leaderelection. A replica never compares clocks of two machines: the Lease of
another holder expires when its content has not changed for its duration, on the monotonic clock of the replica that
observes it. The holder stops writing earlier, RENEW_DEADLINE_S after it sent its last successful renewal.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import metrics
from rlt_operator.leadership import Leadership

LEASE_DURATION_S = 10
"""Time without a renewal after which another replica may take the Lease."""
RENEW_DEADLINE_S = 6.0
"""Time without a renewal after which the holder stops. The rest of LEASE_DURATION_S is for its writes in flight."""
RETRY_PERIOD_S = 2.0
"""Interval of renewals, and of attempts to acquire the Lease."""
REQUEST_TIMEOUT_S = RENEW_DEADLINE_S / 2
"""Timeout of an attempt, so that the holder can try twice."""

log = logging.getLogger("rlt_operator")


@dataclass(frozen=True)
class LeaseLocation:
    """Where the Lease is."""

    namespace: str
    name: str


class LeadershipLostError(Exception):
    """The Lease could not be renewed in time. The process must end, because its state may be old."""


@dataclass(frozen=True)
class SeenLease:
    """The content of the Lease, and when this process first saw it."""

    spec: Manifest
    at: float
    """Seconds on the monotonic clock."""

    def blocks(self, identity: str, now: float) -> bool:
        """Whether another replica holds the Lease."""
        holder = self.spec.get("holderIdentity")
        expiry = self.at + (self.spec.get("leaseDurationSeconds") or LEASE_DURATION_S)
        return bool(holder) and holder != identity and now < expiry


def build_spec(previous: Manifest, identity: str, now: datetime) -> Manifest:
    """The content of a Lease that `identity` acquires or renews."""
    time = _format_micro_time(now)
    transitions = previous.get("leaseTransitions") or 0
    spec = {"holderIdentity": identity, "leaseDurationSeconds": LEASE_DURATION_S, "renewTime": time}
    if previous.get("holderIdentity") == identity:
        return {**spec, "acquireTime": previous.get("acquireTime") or time, "leaseTransitions": transitions}
    return {**spec, "acquireTime": time, "leaseTransitions": transitions + 1 if previous else 0}


def build_released_spec(previous: Manifest, now: datetime) -> Manifest:
    """The content of a Lease without a holder, which any replica can take at once."""
    return {"renewTime": _format_micro_time(now), "leaseTransitions": previous.get("leaseTransitions") or 0}


class LeaderElection:
    """This replica's part in the election."""

    def __init__(self, api: KubernetesApi, lease: LeaseLocation, leadership: Leadership, *, identity: str) -> None:
        self._api = api
        self._lease = lease
        self._leadership = leadership
        self._identity = identity
        self._seen: SeenLease | None = None

    async def run(self, *, after: asyncio.Event) -> None:
        """Acquire the Lease when `after` is set, and renew it until cancelled.

        Raises LeadershipLostError, and ApiError if the API server rejects the first attempt, for example without a
        role.
        """
        await after.wait()
        while not await self._attempt(first=self._seen is None):
            await asyncio.sleep(RETRY_PERIOD_S)
        log.info("leading", extra={"identity": self._identity})
        while self._leadership.valid:
            try:
                async with asyncio.timeout_at(self._leadership.until):
                    await asyncio.sleep(RETRY_PERIOD_S)
                    await self._attempt()
            except TimeoutError:
                break
        self._leadership.end()
        raise LeadershipLostError(f"the Lease {self._lease.name} was not renewed for {RENEW_DEADLINE_S:.0f} s")

    async def release(self) -> None:
        """Give the Lease back, after the last write. Without it the next leader waits for the expiry."""
        if not self._leadership.valid:
            return
        self._leadership.end()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                found = await self._api.get(self._path)
                spec = (found or {}).get("spec") or {}
                if found and spec.get("holderIdentity") == self._identity:
                    released = build_released_spec(spec, datetime.now(UTC))
                    await self._api.replace(self._path, {**found, "spec": released})
                    log.info("released the Lease")
        except (ApiError, TimeoutError) as error:
            log.warning("cannot release the Lease: %s", error)

    @property
    def _path(self) -> str:
        return api_paths.lease(self._lease.namespace, self._lease.name)

    async def _attempt(self, *, first: bool = False) -> bool:
        """Acquire or renew the Lease. Returns whether this replica holds it."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await self._acquire_or_renew()
        except TimeoutError:
            log.warning("no response for the Lease %s within %.0f s", self._lease.name, REQUEST_TIMEOUT_S)
        except ApiError as error:
            if first and error.rejected:
                raise ApiError(error.status, f"cannot acquire the Lease {self._lease.name}: {error}") from error
            if error.status != 409:  # another replica was faster
                log.warning("cannot acquire or renew the Lease %s: %s", self._lease.name, error)
        return False

    async def _acquire_or_renew(self) -> bool:
        found = await self._api.get(self._path)
        now = asyncio.get_running_loop().time()
        spec = ((found or {}).get("spec") or {}) if found else None
        if spec is not None and (self._seen is None or self._seen.spec != spec):
            self._seen = SeenLease(spec, now)
            metrics.LEASE_TRANSITIONS.set(spec.get("leaseTransitions") or 0)
        if self._seen and self._seen.blocks(self._identity, now):  # also after the Lease is deleted
            return False
        written = build_spec(spec or {}, self._identity, datetime.now(UTC))
        if found is None:
            metadata = {"name": self._lease.name, "namespace": self._lease.namespace}
            manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": written}
            await self._api.create(api_paths.leases(self._lease.namespace), manifest)
        else:
            await self._api.replace(self._path, {**found, "spec": written})
        self._leadership.extend(now + RENEW_DEADLINE_S)  # from before the write
        return True


def create_identity() -> str:
    """A holder name for this process: the pod's name and a random part, so that a restarted process has another."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


def _format_micro_time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
