"""The chart with cert-manager, which makes and renews the webhook's certificate and has the API server trust it."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Operator, Webhook, eventually, free_port

from cluster.cert_manager import cert_manager

pytestmark = pytest.mark.apiserver

CHART = Path(__file__).parents[3] / "charts/rlt-operator"
HERE = "rlt-system"
NAME = "rlt-operator-webhook"
"""Of the Certificate and its Secret, as the chart calls them."""
WRONG = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}}


@dataclass(frozen=True)
class Mount:
    """The Secret as the operator's pod sees it, in a folder."""

    kubernetes: Kubernetes
    folder: Path

    def secret(self) -> dict[str, str]:
        found = self.kubernetes.get(HERE, "secret", NAME) or {}
        return {name: base64.b64decode(text).decode() for name, text in found.get("data", {}).items()}

    def update(self) -> bool:
        """What the kubelet does now and then."""
        for name, text in (files := self.secret()).items():
            (self.folder / name).write_text(text)
        return "tls.crt" in files


@pytest.fixture(scope="module")
def mount(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """cert-manager and the chart, whose Secret has been filled. Its Deployment has no node to run on."""
    values = ("--set", "webhook.certificates=cert-manager,webhook.failurePolicy=Fail")
    mount = Mount(kubernetes, tmp_path_factory.mktemp("certificates"))
    with cert_manager(kubernetes.cluster):
        kubernetes.cluster.helm(
            "install", "rlt-operator", CHART, "-n", HERE, "--create-namespace", "--skip-crds", *values
        )
        try:
            eventually("a certificate", mount.update, 60)
            yield mount
        finally:
            kubernetes.cluster.helm("uninstall", "rlt-operator", "-n", HERE)
            kubernetes.kubectl("delete", "namespace", HERE, "--wait=false")


@pytest.fixture(scope="module")
def webhook(mount: Mount, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """The operator as its pod would run it, behind the chart's Service."""
    port = free_port()
    mount.kubernetes.cluster.apply(endpoints(port))
    options = (f"--webhook-port={port}", f"--webhook-certificates={mount.folder}")
    operator = Operator(mount.kubernetes.cluster.kubeconfig, tmp_path_factory.mktemp("webhook") / "log", options)
    webhook = Webhook(mount.kubernetes, operator, port)
    try:
        operator.start()
        webhook.wait()
        yield webhook
    finally:
        operator.stop()


def endpoints(port: int) -> dict[str, object]:
    """The Service leads to this machine: to an address of its own, for loopback is refused."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.255.255.255", 1))  # sends nothing: it tells this machine's address
        address = probe.getsockname()[0]
    labels = {"kubernetes.io/service-name": "rlt-operator"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "rlt-operator-here", "namespace": HERE, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
    }


def authorities(kubernetes: Kubernetes) -> str:
    """What the API server trusts the webhook by (PEM)."""
    found = kubernetes.get(HERE, "validatingwebhookconfiguration", "rlt-operator")
    assert found
    (each,) = found["webhooks"]
    return base64.b64decode(each["clientConfig"]["caBundle"]).decode()


def renew(kubernetes: Kubernetes) -> None:
    """`cmctl renew`."""
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test"}
    patch = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": issuing}])
    options = ("--subresource=status", "--type=json", "--patch", patch)
    kubernetes.kubectl("patch", "certificate", NAME, "-n", HERE, *options)


def test_the_api_server_trusts_the_webhook_by_cert_managers_authority(webhook: Webhook, mount: Mount) -> None:
    assert authorities(webhook.kubernetes) == mount.secret()["ca.crt"] != mount.secret()["tls.crt"]
    said = webhook.refusal(WRONG)
    assert 'The RLTrainingJob "asked" is invalid' in said
    assert "spec.training.trainBatchSize: " in said
    assert webhook.refusal(o.SPEC) == ""


def test_a_renewed_certificate_is_trusted_before_and_served_without_a_restart(webhook: Webhook, mount: Mount) -> None:
    trusted, serial, process = authorities(webhook.kubernetes), webhook.serial(), webhook.operator.process
    renew(webhook.kubernetes)

    def renewed() -> bool:
        mount.update()
        assert "is invalid" in webhook.refusal(WRONG)  # at every moment
        return webhook.serial() != serial

    eventually("a new certificate", renewed, 60)
    assert authorities(webhook.kubernetes) == trusted
    assert webhook.operator.process is process
    assert webhook.operator.alive()
