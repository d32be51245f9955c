"""A real kube-apiserver with a controller manager and no nodes, the CRDs, and the operator as a separate process."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import observed as o
import pytest
import yaml
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes, Operator, Webhook
from apiserver.ray_head import RayHead, find_address

from rlt_e2e.api_objects import delete_object
from rlt_e2e.cluster import Cluster
from rlt_e2e.ports import free_port, free_ports

NUMBERS = itertools.count(1)
"""Make the names of namespaces unique, because names of tests are truncated."""
CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """The API server, with the CRDs of rlt and KubeRay."""
    cluster = Cluster.up(nodes=0, state=tmp_path_factory.mktemp("kubernetes") / "state", first_port=free_ports(6))
    try:
        cluster.kubectl("apply", "--server-side", "-f", CRDS)
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=300s")
        yield Kubernetes(cluster)
    finally:
        cluster.down()


@pytest.fixture
def namespace(kubernetes: Kubernetes, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test."""
    prefix = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).removeprefix("test-")
    name = f"{prefix[:50].strip('-')}-{next(NUMBERS)}"
    kubernetes.create_namespace(name)
    yield name
    delete_object(kubernetes.cluster, "", "namespace", name)


@pytest.fixture
def rlt(kubernetes: Kubernetes, namespace: str) -> Rlt:
    """`rlt ARGUMENTS` in the test's namespace, as cluster administrator."""
    return Rlt(kubernetes.cluster.kubeconfig, namespace)


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    """A file with the job `sum`, without a namespace."""
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}, "spec": o.SPEC}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(manifest))
    return str(tmp_path / "job.yaml")


@pytest.fixture(scope="module")
def operator_process(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """`rlt-operator run`, outside the cluster. Tests use it through `operator`."""
    running = Operator(kubernetes.cluster.kubeconfig, tmp_path_factory.mktemp("operator") / "operator.log")
    running.start()
    yield running
    running.stop()


@pytest.fixture
def operator(kubernetes: Kubernetes, operator_process: Operator) -> Iterator[Operator]:
    """The operator, which the tests of a module share, without jobs of earlier tests."""
    if not operator_process.is_running():  # a failed test ended it
        operator_process.start()
    yield operator_process
    kubernetes.delete_jobs()


@pytest.fixture(scope="module")
def webhook(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """The admission webhook, which the API server calls before it stores an object. An operator has its certificate."""
    port = free_port()
    kubernetes.cluster.apply(webhook_configuration(port))
    folder = tmp_path_factory.mktemp("webhook")
    kubeconfig = kubernetes.cluster.kubeconfig
    options = ("--webhook-secret=default/webhook", "--webhook-configuration=rlt")
    operator = Operator(kubeconfig, folder / "operator.log", options)
    served = (f"--port={port}", "--secret=default/webhook", "--configuration=rlt")
    server = Operator(kubeconfig, folder / "webhook.log", served, command="webhook")
    webhook = Webhook(kubernetes, server, port)
    try:
        operator.start()
        server.start()
        webhook.wait()
        yield webhook
    finally:
        server.stop()
        operator.stop()
        kubernetes.kubectl("delete", "validatingwebhookconfiguration", "rlt")
        kubernetes.kubectl("delete", "secret", "webhook", "-n", "default", "--ignore-not-found")


def webhook_configuration(port: int) -> dict[str, object]:
    """As in the chart, but with an address of this machine, and fail-closed so that every object is reviewed."""
    rule = {
        "apiGroups": ["rlt.dev"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["rltrainingjobs", "rlruntimes"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "rlt"},
        "webhooks": [
            {
                "name": "validate.rlt.dev",
                "clientConfig": {"url": f"https://127.0.0.1:{port}/validate"},
                "rules": [rule],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 5,
            }
        ],
    }


@pytest.fixture(scope="module")
def ray() -> Iterator[RayHead]:
    """`ray start --head`."""
    head = RayHead(find_address(), cpus=2)
    head.start()
    yield head
    head.stop()
