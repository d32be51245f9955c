"""A real kube-apiserver with a controller manager and no nodes, the CRDs, and the operator as a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apiserver.in_cluster import Kubernetes, Operator

from cluster import Cluster

CRD = Path(__file__).parents[3] / "crds" / "rltrainingjobs.rlt.dev.yaml"


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """The API server, with the CRDs of rlt and KubeRay."""
    cluster = Cluster.up(nodes=0, state=tmp_path_factory.mktemp("kubernetes") / "state", first_port=17440)
    try:
        cluster.kubectl("apply", "--server-side", "-f", CRD)
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield Kubernetes(cluster)
    finally:
        cluster.down()


@pytest.fixture
def namespace(kubernetes: Kubernetes, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    name = request.node.name.replace("_", "-").removeprefix("test-")[:50].rstrip("-")
    kubernetes.kubectl("create", "namespace", name)
    yield name
    kubernetes.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def operator(kubernetes: Kubernetes, tmp_path: Path) -> Iterator[Operator]:
    """`rlt-operator run`, outside the cluster."""
    running = Operator(kubernetes.cluster.kubeconfig, tmp_path / "operator.log")
    running.start()
    yield running
    running.stop()
