"""Fixtures of the end-to-end tests: a cluster with the operator for each pytest worker, a namespace for each test."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.installation import CLAIM, create_namespace, install_operator

LONG_FILES = tuple(f"test_{name}.py" for name in ("cli", "failures", "chaos", "interruptions", "pits", "queue"))
"""These files start first, so that no worker runs a long file at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files of the end-to-end tests. pytest-xdist distributes them in this order."""
    order = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session")
def bare_cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster of KUBECONFIG, or the embedded cluster of the worker, without the operator. It keeps running."""
    if "KUBECONFIG" in os.environ:
        return Cluster.connect()
    worker = getattr(request.config, "workerinput", {"workerid": "gw0"})["workerid"]
    layout = Layout.numbered(int(worker.removeprefix("gw")), nodes=2)
    cluster = Cluster.up(nodes=2, state=layout.state, first_port=layout.first_port, subnet=layout.subnet)
    if timings := request.config.pluginmanager.get_plugin("rlt-timings"):
        timings.nodes = [node.cgroup for node in layout.all_nodes()]
    return cluster


@pytest.fixture(scope="session")
def cluster(bare_cluster: Cluster) -> Cluster:
    """The cluster, with the operator installed by Helm."""
    install_operator(bare_cluster)
    return bare_cluster


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for the test, with the PVC rlt-runs. It is deleted afterwards."""
    name = "t-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-").removeprefix("test-")[:40].strip("-")
    delete_namespace(cluster, name)  # left by an interrupted run
    create_namespace(cluster, name)
    yield name
    delete_namespace(cluster, name)


def delete_namespace(cluster: Cluster, name: str) -> None:
    """Delete a namespace and its volume, which would stay bound to a deleted PVC."""
    cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait", "--timeout=300s")
    cluster.kubectl("delete", "persistentvolume", f"{name}-{CLAIM}", "--ignore-not-found")
