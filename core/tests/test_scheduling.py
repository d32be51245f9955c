"""Queues, gangs and topology: labels for KubeRay and the schedulers, and affinities of the workers."""

from __future__ import annotations

from typing import Any

import observed as o
import pytest

from rlt_core.children.build import build_children
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.job import Manifest

OPERATOR_LABELS = {"rlt.dev/job", "rlt.dev/programs", "app.kubernetes.io/managed-by"}


def ray_cluster(labels: dict[str, str] | None = None, **scheduling: Any) -> Manifest:
    """The RayCluster of a job with this scheduling."""
    job = o.job({**o.COMMAND_SPEC, "scheduling": scheduling}, labels=labels)
    assert job.findings == ()
    assert job.spec
    return build_ray_cluster(job, job.spec)


def worker_pod(**scheduling: Any) -> Manifest:
    pod: Manifest = ray_cluster(**scheduling)["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    return pod


@pytest.mark.parametrize(
    ("scheduling", "expected"),
    [
        ({}, {}),
        ({"queueName": "q"}, {"kueue.x-k8s.io/queue-name": "q"}),
        ({"queueName": "q", "gang": True}, {"kueue.x-k8s.io/queue-name": "q"}),
        ({"queueName": "q", "schedulerName": "mine"}, {"kueue.x-k8s.io/queue-name": "q"}),
        ({"schedulerName": "volcano", "gang": True}, {}),
        (
            {"queueName": "q", "schedulerName": "volcano", "priorityClassName": "high"},
            {"volcano.sh/queue-name": "q", "ray.io/priority-class-name": "high"},
        ),
        ({"queueName": "q", "schedulerName": "kai-scheduler"}, {"kai.scheduler/queue": "q"}),
        (
            {"queueName": "q", "schedulerName": "yunikorn", "gang": True},
            {
                "yunikorn.apache.org/app-id": o.UID,
                "yunikorn.apache.org/queue": "q",
                "ray.io/gang-scheduling-enabled": "true",
            },
        ),
        (
            {"schedulerName": "scheduler-plugins-scheduler", "gang": True},
            {"ray.io/gang-scheduling-enabled": "true"},
        ),
    ],
)
def test_each_scheduler_gets_only_its_labels(scheduling: Any, expected: dict[str, str]) -> None:
    labels = ray_cluster(**scheduling)["metadata"]["labels"]
    assert {key: value for key, value in labels.items() if key not in OPERATOR_LABELS} == expected


def test_all_pods_of_a_kubernetes_gang_refer_to_its_workload() -> None:
    job = o.job({**o.COMMAND_SPEC, "scheduling": {"schedulerName": "default-scheduler", "gang": True}})
    assert job.findings == ()
    assert job.spec
    manifests = {manifest["kind"]: manifest for manifest in build_children(job, job.spec)}
    workload = manifests["Workload"]
    cluster = manifests["RayCluster"]
    (group,) = workload["spec"]["podGroups"]
    assert group["policy"] == {"gang": {"minCount": 3}}
    pods = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    reference = {"name": workload["metadata"]["name"], "podGroup": group["name"]}
    assert [pod["template"]["spec"]["workloadRef"] for pod in pods] == [reference] * 2


def test_the_default_scheduler_without_gang_gets_no_workload() -> None:
    job = o.job({**o.COMMAND_SPEC, "scheduling": {"schedulerName": "default-scheduler"}})
    assert job.spec
    assert "Workload" not in {manifest["kind"] for manifest in build_children(job, job.spec)}


def test_the_queue_label_of_the_job_has_precedence() -> None:
    labels = ray_cluster({"kueue.x-k8s.io/queue-name": "mine"}, queueName="ours")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "mine"


def test_every_pod_has_the_scheduler_and_the_priority() -> None:
    spec = ray_cluster(schedulerName="volcano", priorityClassName="high")["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert (pod["schedulerName"], pod["priorityClassName"]) == ("volcano", "high")


def test_required_topology_is_a_required_pod_affinity() -> None:
    (term,) = worker_pod(topology={"key": "rack", "mode": "required"})["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["topologyKey"] == "rack"
    assert term["labelSelector"]["matchLabels"] == {"rlt.dev/job": "sum", "ray.io/node-type": "worker"}


def test_preferred_topology_is_a_preferred_pod_affinity() -> None:
    affinity = worker_pod(topology={"key": "rack"})["affinity"]["podAffinity"]
    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert (term["weight"], term["podAffinityTerm"]["topologyKey"]) == (100, "rack")
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity


def test_the_head_has_no_affinity() -> None:
    head = ray_cluster(topology={"key": "rack", "mode": "required"})["spec"]["headGroupSpec"]["template"]["spec"]
    assert "affinity" not in head
