"""What the end-to-end tests run on: one cluster with the operator, a namespace a test."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from cluster import Cluster
from installation import CLAIM, install_operator, make_namespace


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster of KUBECONFIG or the embedded one, with the operator installed by Helm. It stays up afterwards."""
    handle = Cluster.connect() if "KUBECONFIG" in os.environ else Cluster.up(nodes=2)
    install_operator(handle)
    return handle


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own with the claim rlt-runs; it and all that is in it is deleted afterwards."""
    name = "t-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-").removeprefix("test-")[:40].strip("-")
    delete_namespace(cluster, name)  # an interrupted run leaves it
    make_namespace(cluster, name)
    yield name
    delete_namespace(cluster, name)


def delete_namespace(cluster: Cluster, name: str) -> None:
    """With its volume, which would stay bound to a claim that is gone."""
    cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait", "--timeout=180s")
    cluster.kubectl("delete", "persistentvolume", f"{name}-{CLAIM}", "--ignore-not-found")
