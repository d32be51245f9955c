"""The chart with cert-manager, which issues and renews the webhook's certificate and sets the caBundle."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Operator, Webhook
from apiserver.waiting import eventually

from rlt_e2e.cluster.cert_manager import cert_manager
from rlt_e2e.ports import free_port

pytestmark = pytest.mark.apiserver

CHART = Path(__file__).parents[3] / "charts/rlt-operator"
NAMESPACE = "rlt-system"
NAME = "rlt-operator-webhook"
"""Name of the Certificate and its Secret in the chart."""
INVALID = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}}


@dataclass(frozen=True)
class Mount:
    """The Secret in a directory, as the operator's pod mounts it."""

    kubernetes: Kubernetes
    folder: Path

    def secret(self) -> dict[str, str]:
        found = self.kubernetes.get(NAMESPACE, "secret", NAME) or {}
        return {name: base64.b64decode(text).decode() for name, text in found.get("data", {}).items()}

    def update(self) -> bool:
        """Write the Secret to the directory, as the kubelet does periodically."""
        for name, text in (files := self.secret()).items():
            (self.folder / name).write_text(text)
        return "tls.crt" in files


@pytest.fixture(scope="module")
def mount(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """cert-manager and the chart, with the Secret issued. There is no node for the Deployment."""
    values = ("--set", "webhook.certificates=cert-manager,webhook.failurePolicy=Fail")
    mount = Mount(kubernetes, tmp_path_factory.mktemp("certificates"))
    with cert_manager(kubernetes.cluster):
        kubernetes.cluster.helm(
            "install", "rlt-operator", CHART, "-n", NAMESPACE, "--create-namespace", "--skip-crds", *values
        )
        try:
            eventually("a certificate", mount.update)
            yield mount
        finally:
            kubernetes.cluster.helm("uninstall", "rlt-operator", "-n", NAMESPACE)
            kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def webhook(mount: Mount, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """The webhook with the options of its pod, behind the chart's Service."""
    port = free_port()
    mount.kubernetes.cluster.apply(endpoints(port))
    options = (f"--port={port}", f"--certificates={mount.folder}")
    log = tmp_path_factory.mktemp("webhook") / "log"
    server = Operator(mount.kubernetes.cluster.kubeconfig, log, options, command="webhook")
    webhook = Webhook(mount.kubernetes, server, port)
    try:
        server.start()
        webhook.wait()
        yield webhook
    finally:
        server.stop()


def endpoints(port: int) -> dict[str, object]:
    """Let the Service forward to this machine. Endpoints cannot have a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.255.255.255", 1))  # sends nothing, but selects this machine's address
        address = probe.getsockname()[0]
    labels = {"kubernetes.io/service-name": "rlt-operator-webhook"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "rlt-operator-webhook-local", "namespace": NAMESPACE, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
    }


def authorities(kubernetes: Kubernetes) -> str:
    """The certificate authorities that the API server trusts for the webhook (PEM)."""
    found = kubernetes.get(NAMESPACE, "validatingwebhookconfiguration", "rlt-operator")
    assert found
    (each,) = found["webhooks"]
    return base64.b64decode(each["clientConfig"]["caBundle"]).decode()


def renew(kubernetes: Kubernetes) -> None:
    """`cmctl renew`."""
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test"}
    patch = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": issuing}])
    options = ("--subresource=status", "--type=json", "--patch", patch)
    kubernetes.kubectl("patch", "certificate", NAME, "-n", NAMESPACE, *options)


def test_the_api_server_trusts_the_authority_of_cert_manager(webhook: Webhook, mount: Mount) -> None:
    assert authorities(webhook.kubernetes) == mount.secret()["ca.crt"] != mount.secret()["tls.crt"]
    message = webhook.rejection(INVALID)
    assert 'The RLTrainingJob "reviewed" is invalid' in message
    assert "spec.training.trainBatchSize: " in message
    assert webhook.rejection(o.SPEC) == ""


def test_a_renewed_certificate_is_served_without_a_restart(webhook: Webhook, mount: Mount) -> None:
    trusted = authorities(webhook.kubernetes)
    serial = webhook.serial()
    process = webhook.server.process
    renew(webhook.kubernetes)

    def renewed() -> bool:
        mount.update()
        assert "is invalid" in webhook.rejection(INVALID)  # at any time
        return webhook.serial() != serial

    eventually("a new certificate", renewed)
    assert authorities(webhook.kubernetes) == trusted
    assert webhook.server.process is process
    assert webhook.server.alive()
