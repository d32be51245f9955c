"""Two replicas of the operator: one leads, the other takes over, and a former leader writes nothing.

The API server's audit log shows who wrote: the user agent of a replica contains its identity.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import observed as o
import pytest
from apiserver.audit_log import read_writes
from apiserver.conftest import webhook_configuration
from apiserver.holding_proxy import HoldingProxy
from apiserver.in_cluster import PODS, Kubernetes, Operator, Webhook
from apiserver.waiting import DEADLINE_S, eventually

from rlt_e2e.ports import free_port
from rlt_operator.leader_election import RETRY_PERIOD_S

pytestmark = pytest.mark.apiserver

LEASE = "rlt-operator"


@dataclass
class Replicas:
    """Two replicas that share a Lease in the namespace."""

    kubernetes: Kubernetes
    namespace: str
    leader: Operator
    standby: Operator
    proxy: HoldingProxy
    """Between the leader and the API server."""

    def lease(self) -> dict[str, Any]:
        """The content of the Lease."""
        found = self.kubernetes.get(self.namespace, "lease", LEASE)
        spec: dict[str, Any] = (found or {}).get("spec", {})
        return spec

    def await_takeover(self, before: dict[str, Any]) -> dict[str, Any]:
        """Wait until the standby leads. Returns the content of the Lease."""
        eventually("a takeover", lambda: self.lease().get("holderIdentity") not in (None, before["holderIdentity"]))
        eventually("the standby leads", self.standby.leads)
        return self.lease()

    def list_writes(self, identity: str, *, since: datetime | None = None) -> list[str]:
        """Verbs and paths of a replica's writes that the API server has received, without writes to the Lease."""
        return [
            f"{entry['verb']} {entry['requestURI']}"
            for entry in read_writes(self.kubernetes, identity)
            if since is None or parse_time(entry["requestReceivedTimestamp"]) >= since
        ]


@pytest.fixture
def replicas(kubernetes: Kubernetes, namespace: str, tmp_path: Path) -> Iterator[Replicas]:
    options = (f"--leader-election-lease={namespace}/{LEASE}",)
    with HoldingProxy(kubernetes.cluster.kubeconfig, tmp_path) as proxy:
        first = Operator(proxy.kubeconfig, tmp_path / "first.log", options)
        second = Operator(kubernetes.cluster.kubeconfig, tmp_path / "second.log", options)
        try:
            first.start()
            eventually("a leader", first.leads)
            second.start()
            yield Replicas(kubernetes, namespace, first, second, proxy)
        finally:
            for each in (first, second):
                if each.is_running():
                    each.send_signal(signal.SIGCONT)
                    each.kill()


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_one_replica_reconciles_and_both_are_ready(replicas: Replicas) -> None:
    kubernetes = replicas.kubernetes
    namespace = replicas.namespace
    kubernetes.create_job(namespace, o.SPEC)
    eventually("Pending", lambda: kubernetes.status(namespace).get("phase") == "Pending")
    assert (replicas.leader.leads(), replicas.standby.leads()) == (True, False)
    assert replicas.standby.fetch("/readyz") == replicas.standby.fetch("/healthz") == "ok\n"
    assert replicas.standby.reconciliations() == 0
    assert "rlt_job_info{" not in replicas.standby.fetch("/metrics")


def test_the_standby_takes_over_from_a_killed_leader(replicas: Replicas) -> None:
    kubernetes = replicas.kubernetes
    namespace = replicas.namespace
    kubernetes.create_job(namespace, o.SPEC)
    created = kubernetes.ray_cluster(namespace)
    eventually("Pending", lambda: kubernetes.status(namespace).get("phase") == "Pending")
    replicas.leader.kill()
    before = replicas.lease()
    kubernetes.play_kuberay(namespace, {PODS[0]: {"phase": "Pending"}})
    after = replicas.await_takeover(before)
    eventually("Provisioning", lambda: kubernetes.status(namespace).get("phase") == "Provisioning")
    taken_s = (parse_time(after["acquireTime"]) - parse_time(before["renewTime"])).total_seconds()
    assert taken_s <= before["leaseDurationSeconds"] + 2 * RETRY_PERIOD_S
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1
    kept = kubernetes.ray_cluster(namespace)
    assert kept["metadata"]["uid"] == created["metadata"]["uid"]
    assert kubernetes.events(namespace) == []
    replicas.leader.start()
    assert (replicas.leader.leads(), replicas.standby.leads()) == (False, True)


def test_the_standby_takes_over_at_once_from_a_stopped_leader(replicas: Replicas) -> None:
    before = replicas.lease()
    assert replicas.leader.stop() == 0
    after = replicas.await_takeover(before)
    waited_s = (parse_time(after["acquireTime"]) - parse_time(before["renewTime"])).total_seconds()
    assert waited_s < before["leaseDurationSeconds"]
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1


def test_a_frozen_leader_writes_nothing_after_it_resumes(replicas: Replicas) -> None:
    """It is frozen between two writes: when it resumes, the first has its response and the second is next."""
    kubernetes = replicas.kubernetes
    namespace = replicas.namespace
    replicas.proxy.hold_write(f"{namespace}/configmaps")
    kubernetes.create_job(namespace, o.SPEC)
    assert replicas.proxy.held.wait(DEADLINE_S)
    process = replicas.leader.process
    before = replicas.lease()
    assert process
    replicas.leader.send_signal(signal.SIGSTOP)
    after = replicas.await_takeover(before)
    kubernetes.ray_cluster(namespace)
    kubernetes.suspend(namespace, True)
    kubernetes.wait(namespace, "Suspended")
    replicas.proxy.release()
    replicas.leader.send_signal(signal.SIGCONT)
    process.join(DEADLINE_S)
    assert process.exitcode == 1
    assert "was not renewed" in replicas.leader.log.read_text()

    acquired = parse_time(after["acquireTime"])
    assert replicas.list_writes(before["holderIdentity"])
    assert replicas.list_writes(after["holderIdentity"], since=acquired)
    assert replicas.list_writes(before["holderIdentity"], since=acquired) == []
    assert kubernetes.get(namespace, "raycluster", "sum") is None


def test_all_webhooks_serve_the_certificate_that_the_leader_writes(
    kubernetes: Kubernetes, namespace: str, tmp_path: Path
) -> None:
    """All start at the same time, and later the Secret is deleted."""
    ports = free_port(), free_port()
    kubernetes.cluster.apply(webhook_configuration(ports[0]))
    kubeconfig = kubernetes.cluster.kubeconfig
    secret = f"{namespace}/webhook"
    options = (
        f"--leader-election-lease={namespace}/{LEASE}",
        f"--webhook-secret={secret}",
        "--webhook-configuration=rlt",
    )
    operators = [Operator(kubeconfig, tmp_path / f"operator-{number}.log", options) for number in range(2)]
    served = (f"--secret={secret}", "--configuration=rlt")
    webhooks = [
        Webhook(
            kubernetes,
            Operator(kubeconfig, tmp_path / f"{port}.log", (f"--port={port}", *served), command="webhook"),
            port,
        )
        for port in ports
    ]
    processes = [*operators, *(each.server for each in webhooks)]
    try:
        for process in processes:
            process.launch()
        eventually("ready", lambda: all(each.alive() and each.fetch("/readyz") == "ok\n" for each in processes))
        first = webhooks[0].serial()
        assert webhooks[1].serial() == first
        webhooks[0].wait()
        kubernetes.delete(namespace, "secret", "webhook")
        eventually("another certificate", lambda: first not in [each.serial() for each in webhooks])
        assert webhooks[0].serial() == webhooks[1].serial()
        webhooks[0].wait()
        logs = [process.log.read_text().count("created the webhook's certificate") for process in processes]
        assert sorted(logs[:2]) == [0, 2]
        assert logs[2:] == [0, 0]
    finally:
        for process in processes:
            process.kill()
        kubernetes.kubectl("delete", "validatingwebhookconfiguration", "rlt")
