"""Shards of the operator: two replicas of two processes each, and changes of the number of shards.

The API server's audit log shows who wrote: the user agent of a process contains its identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import observed as o
import pytest
from apiserver.audit_log import read_writes
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

from rlt_core.names import SHARD_LABEL
from rlt_core.shards import choose_shard, name_lease

pytestmark = pytest.mark.apiserver

LEASE = "rlt-operator"
TOTAL = 2


@dataclass
class Processes:
    """Processes of the operator that share the Lease in a namespace. One that ends starts again, as in a pod."""

    kubernetes: Kubernetes
    namespace: str
    logs: Path
    running: list[Operator] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self, *options: str) -> Operator:
        """Start a process and wait until it is ready."""
        log = self.logs / f"operator-{next(self.numbers)}.log"
        lease = f"--leader-election-lease={self.namespace}/{LEASE}"
        operator = Operator(self.kubernetes.cluster.kubeconfig, log, (lease, *options))
        operator.start()
        self.running.append(operator)
        return operator

    def start_replica(self) -> list[Operator]:
        """Start a process for each shard."""
        return [self.start(f"--shard={number}/{TOTAL}") for number in range(TOTAL)]

    def kill(self, *ended: Operator) -> None:
        """End processes as in a crash. They do not start again."""
        for each in ended:
            self.running.remove(each)
            if each.is_running():
                each.kill()

    def wait(self, what: str, read: Callable[[], Any]) -> None:
        """Wait until `read` is true."""

        def restart_and_read() -> Any:
            for each in self.running:
                if not each.is_running():
                    each.launch()
            return read()

        eventually(what, restart_and_read)

    def holder(self, lease: str) -> str | None:
        found: dict[str, Any] = self.kubernetes.get(self.namespace, "lease", lease) or {}
        holder: str | None = found.get("spec", {}).get("holderIdentity")
        return holder

    def suspend(self, namespaces: list[str], suspended: bool) -> None:
        """Suspend or resume the jobs, and wait until the operator has done it."""
        for name in namespaces:
            self.kubernetes.suspend(name, suspended)
        expected = "True" if suspended else "False"
        for name in namespaces:
            read = partial(self.kubernetes.condition, name, "Suspended")
            self.wait(f"{name}: Suspended is {expected}", lambda: read()[0] == expected)  # noqa: B023


@pytest.fixture
def processes(kubernetes: Kubernetes, namespace: str, tmp_path: Path) -> Iterator[Processes]:
    found = Processes(kubernetes, namespace, tmp_path)
    yield found
    found.kill(*found.running)


@contextmanager
def namespaces_of_each_shard(kubernetes: Kubernetes, prefix: str) -> Iterator[list[str]]:
    """Two namespaces of each shard."""
    found: dict[int, list[str]] = {number: [] for number in range(TOTAL)}
    for number in itertools.count():
        name = f"{prefix}-{number}"
        of_shard = found[choose_shard(name, TOTAL)]
        if len(of_shard) < 2:
            of_shard.append(name)
        if all(len(each) == 2 for each in found.values()):
            break
    names = [name for each in found.values() for name in each]
    for name in names:
        kubernetes.create_namespace(name)
    try:
        yield names
    finally:
        kubernetes.delete_jobs()
        kubernetes.kubectl("delete", "namespace", *names, "--wait=false")


def list_writers(kubernetes: Kubernetes, namespace: str) -> set[str]:
    """User agents of the operator's processes that have written in the namespace."""
    return {
        entry["userAgent"]
        for entry in read_writes(kubernetes, "rlt-operator/")
        if entry["objectRef"].get("namespace") == namespace
    }


def test_jobs_of_all_namespaces_go_on_when_a_replica_is_killed(kubernetes: Kubernetes, processes: Processes) -> None:
    leases = [name_lease(LEASE, number) for number in range(TOTAL)]
    first = processes.start_replica()
    processes.wait("each shard has a leader", lambda: all(map(processes.holder, leases)))
    processes.start_replica()
    with namespaces_of_each_shard(kubernetes, processes.namespace) as names:
        for name in names:
            kubernetes.create_job(name, o.SPEC)
        for name in names:
            processes.wait("a RayCluster", lambda: kubernetes.get(name, "raycluster", "sum"))  # noqa: B023
            labels = kubernetes.ray_cluster(name)["metadata"]["labels"]
            assert labels[SHARD_LABEL] == str(choose_shard(name, TOTAL))
        before = {name: list_writers(kubernetes, name) for name in names}
        processes.kill(*first)
        processes.suspend(names, True)
        after = {name: list_writers(kubernetes, name) for name in names}
        assert processes.holder(LEASE) == f"{TOTAL}-shards"
        assert all(after[name] > before[name] for name in names)
        of_shards = [
            set().union(*(after[name] for name in names if choose_shard(name, TOTAL) == n)) for n in range(TOTAL)
        ]
        assert not set.intersection(*of_shards)


def test_processes_with_another_number_of_shards_wait_for_each_other(
    kubernetes: Kubernetes, processes: Processes
) -> None:
    single = processes.start()
    eventually("the process without shards leads", single.leads)
    with namespaces_of_each_shard(kubernetes, processes.namespace) as names:
        for name in names:
            kubernetes.create_job(name, o.SPEC)
        processes.suspend(names, True)
        shards = processes.start_replica()
        processes.suspend(names, False)
        assert not any(each.leads() for each in shards)
        processes.running.remove(single)
        assert single.stop() == 0
        processes.suspend(names, True)
        assert processes.holder(LEASE) == f"{TOTAL}-shards"

        again = processes.start()
        processes.kill(shards[0])
        processes.suspend([name for name in names if choose_shard(name, TOTAL) == 1], False)
        assert not again.leads()
        processes.kill(shards[1])
        processes.suspend([name for name in names if choose_shard(name, TOTAL) == 0], False)
        assert again.leads()
