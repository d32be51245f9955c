"""The jobs of several namespaces, whose IDs are NAMESPACE/NAME."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rlt.connection import Connection, convert_api_errors
from rlt_core.job import Manifest
from rlt_ui.jobs import CACHE_S, build_row
from rlt_ui.reward_history import RewardHistory
from rlt_ui.source import Json


@dataclass
class ClusterJobs:
    """The jobs that the server can list, for all viewers."""

    connections: Sequence[Connection]
    """One for each namespace, or one for all namespaces."""
    all_namespaces: bool
    history: RewardHistory = field(default_factory=RewardHistory)
    _jobs: dict[str, Manifest] = field(default_factory=dict)
    _read: float = float("-inf")
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self) -> dict[str, Manifest]:
        """NAMESPACE/NAME -> job, at most CACHE_S old. Raises ClusterError."""
        async with self._reading:  # one reads for all viewers
            if time.monotonic() - self._read > CACHE_S:
                with convert_api_errors(self.connections[0].kube_context):
                    lists = [await each.list_jobs(all_namespaces=self.all_namespaces) for each in self.connections]
                self._jobs = {build_id(job): job for jobs in lists for job in jobs}
                self.history.record(self._jobs.values())
                self._read = time.monotonic()
            return self._jobs


def build_id(job: Manifest) -> str:
    """NAMESPACE/NAME."""
    return f"{job['metadata']['namespace']}/{job['metadata']['name']}"


def build_cluster_row(job: Manifest, rewards: Sequence[float] = ()) -> Json:
    """The row of a job in the list of all namespaces."""
    return {**build_row(job, rewards), "id": build_id(job), "name": build_id(job)}


def build_version(jobs: Iterable[Manifest]) -> str:
    """A text that changes when a job changes: the resource versions."""
    return " ".join(f"{build_id(job)}:{job['metadata'].get('resourceVersion')}" for job in jobs)
