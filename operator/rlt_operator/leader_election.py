"""Leader election: of several replicas, the one that holds a Lease reconciles. With shards, one for each shard.

The algorithm is from client-go's tools/leaderelection. A replica never compares clocks of two machines: the Lease of
another holder expires when its content has not changed for its duration, on the monotonic clock of the replica that
observes it. The holder stops writing earlier, RENEW_DEADLINE_S after it sent its last successful renewal.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.names import SHARD_LABEL
from rlt_core.shards import ALL, Shard, name_lease
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
CONFLICT = 409
"""HTTP status of a write to a Lease that has changed since it was read, or that exists."""

log = logging.getLogger("rlt_operator")


@dataclass(frozen=True)
class LeaseLocation:
    """Where a Lease is."""

    namespace: str
    name: str

    def of_shard(self, shard: Shard) -> LeaseLocation:
        """The Lease of the shard's leader."""
        return self if shard.total == 1 else LeaseLocation(self.namespace, name_lease(self.name, shard.number))


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


class Lease:
    """A Lease, and what this process knows of it."""

    def __init__(
        self, api: KubernetesApi, location: LeaseLocation, holder: str, labels: Mapping[str, str] | None = None
    ) -> None:
        """`labels`: of the Lease that this process creates."""
        self.name = location.name
        self.seen: SeenLease | None = None
        self._api = api
        self._location = location
        self._holder = holder
        self._labels = {"labels": dict(labels)} if labels else {}
        self._found: Manifest | None = None

    async def read(self) -> bool:
        """Read the Lease. Returns whether this process may write it: no other holder's time runs."""
        self._found = await self._api.get(self._path)
        now = asyncio.get_running_loop().time()
        spec = (self._found.get("spec") or {}) if self._found else None
        if spec is not None and (self.seen is None or self.seen.spec != spec):
            self.seen = SeenLease(spec, now)
        return not (self.seen and self.seen.blocks(self._holder, now))  # also after the Lease is deleted

    async def write(self) -> None:
        """Acquire or renew the Lease. Raises ApiError with status 409 if it has changed since it was read."""
        spec = (self._found or {}).get("spec") or {}
        written = build_spec(spec, self._holder, datetime.now(UTC))
        if self._found:
            await self._api.replace(self._path, {**self._found, "spec": written})
            return
        location = self._location
        metadata = {"name": location.name, "namespace": location.namespace, **self._labels}
        manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": written}
        await self._api.create(api_paths.leases(location.namespace), manifest)

    async def release(self) -> None:
        """Give the Lease back. Raises ApiError."""
        found = await self._api.get(self._path)
        spec = (found or {}).get("spec") or {}
        if found and spec.get("holderIdentity") == self._holder:
            await self._api.replace(self._path, {**found, "spec": build_released_spec(spec, datetime.now(UTC))})
            log.info("released the Lease %s", self.name)

    @property
    def _path(self) -> str:
        return api_paths.lease(self._location.namespace, self._location.name)


class LeaderElection:
    """This process's part in the election.

    A process without shards needs one Lease. With shards, the processes of all shards hold this Lease together, under
    the name of their number of shards, and each process needs the Lease of its shard as well (ADR 24).
    """

    def __init__(
        self, api: KubernetesApi, lease: LeaseLocation, leadership: Leadership, *, identity: str, shard: Shard = ALL
    ) -> None:
        self._leadership = leadership
        self._identity = identity
        self._shared = None
        """The Lease that all shards hold; None without shards."""
        labels = {}
        if shard.total > 1:
            self._shared = Lease(api, lease, shard.group)
            labels = {SHARD_LABEL: str(shard.number)}
        self._own = Lease(api, lease.of_shard(shard), identity, labels)
        """The Lease that this process holds alone."""

    async def run(self, *, after: asyncio.Event) -> None:
        """Acquire the Lease when `after` is set, and renew it until cancelled.

        Raises LeadershipLostError, and ApiError if the API server rejects the first attempt, for example without a
        role.
        """
        await after.wait()
        if self._shared:  # else the replica that starts first would get all shards
            await asyncio.sleep(random.uniform(0, RETRY_PERIOD_S))
        while not await self._attempt(first=self._own.seen is None):
            await asyncio.sleep(RETRY_PERIOD_S)
        log.info("leading", extra={"identity": self._identity, "lease": self._own.name})
        while self._leadership.valid:
            try:
                async with asyncio.timeout_at(self._leadership.until):
                    await asyncio.sleep(RETRY_PERIOD_S)
                    await self._attempt()
            except TimeoutError:
                break
        self._leadership.end()
        raise LeadershipLostError(f"the Lease {self._own.name} was not renewed for {RENEW_DEADLINE_S:.0f} s")

    async def release(self) -> None:
        """Give the Lease back, after the last write. Without it the next leader waits for the expiry.

        Other shards need the shared Lease further on.
        """
        if not self._leadership.valid:
            return
        self._leadership.end()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._own.release()
        except (ApiError, TimeoutError) as error:
            log.warning("cannot release the Lease: %s", error)

    async def _attempt(self, *, first: bool = False) -> bool:
        """Acquire or renew the Leases. Returns whether this process holds them."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                while True:
                    try:
                        return await self._acquire_or_renew()
                    except ApiError as error:
                        if error.status != CONFLICT:  # else another process was faster
                            raise
        except TimeoutError:
            log.warning("no response for the Lease %s within %.0f s", self._own.name, REQUEST_TIMEOUT_S)
        except ApiError as error:
            if first and error.rejected:
                raise ApiError(error.status, f"cannot acquire the Lease {self._own.name}: {error}") from error
            log.warning("cannot acquire or renew the Lease %s: %s", self._own.name, error)
        return False

    async def _acquire_or_renew(self) -> bool:
        leases = [self._own, self._shared] if self._shared else [self._own]
        free = [await lease.read() for lease in leases]
        if self._own.seen:
            metrics.LEASE_TRANSITIONS.set(self._own.seen.spec.get("leaseTransitions") or 0)
        if not all(free):
            return False
        now = asyncio.get_running_loop().time()
        for lease in leases:
            await lease.write()
        self._leadership.extend(now + RENEW_DEADLINE_S)  # from before the writes
        return True


def create_identity() -> str:
    """A holder name for this process: the pod's name and a random part, so that a restarted process has another."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


def _format_micro_time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
