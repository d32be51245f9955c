"""The readiness probe of the pods."""

from __future__ import annotations

from typing import Any

import observed as o
import pytest

from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.job import Manifest

OWN = {"exec": {"command": ["true"]}, "periodSeconds": 7}


def build_containers(**cluster: Any) -> list[Manifest]:
    """The containers of the head and of a worker."""
    job = o.job({**o.SPEC, "cluster": {**o.SPEC["cluster"], **cluster}})
    assert job.spec
    spec = build_ray_cluster(job, job.spec)["spec"]
    groups = (spec["headGroupSpec"], spec["workerGroupSpecs"][0])
    return [group["template"]["spec"]["containers"][0] for group in groups]


@pytest.mark.parametrize(("version", "has_probe"), [("2.60.0", True), ("2.53.0", True), ("2.52.1", False)])
def test_a_pod_of_a_later_ray_is_asked_at_once(version: str, *, has_probe: bool) -> None:
    for container in build_containers(rayVersion=version):
        assert ("readinessProbe" in container) == has_probe


def test_the_probe_of_the_user_replaces_it_as_a_whole() -> None:
    own = {"spec": {"containers": [{"name": "ray-head", "readinessProbe": OWN}]}}
    head, worker = build_containers(rayVersion="2.60.0", head={"podTemplate": own})
    assert head["readinessProbe"] == OWN
    assert worker["readinessProbe"]["httpGet"]["port"] == 52365
