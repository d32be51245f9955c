"""Paths of objects, and the resource that a path belongs to."""

from __future__ import annotations

import pytest

from rlt_core.kubernetes import api_paths


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        (api_paths.pods(None), "pods"),
        (api_paths.pods("demo"), "pods"),
        (api_paths.log("demo", "sum-head-a"), "pods/log"),
        (api_paths.NODES, "nodes"),
        (api_paths.jobs(None), "rltrainingjobs"),
        (f"{api_paths.job('demo', 'sum')}/status", "rltrainingjobs/status"),
        (api_paths.ray_cluster("demo", "sum"), "rayclusters"),
        (api_paths.RAY_CLUSTER_CRD, "customresourcedefinitions"),
        ("/api/v1/namespaces/demo", "namespaces"),
        (api_paths.KUEUE, ""),
    ],
)
def test_the_resource_of_a_path(path: str, resource: str) -> None:
    assert api_paths.resource_of(path) == resource
