"""The Workload (scheduling.k8s.io/v1alpha1) by which Kubernetes' own scheduler starts all pods of a job, or none.

An alpha of Kubernetes 1.35 alone (features GenericWorkload and GangScheduling); pods name it in spec.workloadRef, which
RayClusters may hold since KubeRay 1.6. Source: https://github.com/kubernetes/enhancements/issues/4671, and
scheduling/v1alpha1/types.go in k8s.io/api 0.35.
"""

from __future__ import annotations

from rlt_api.rules.queues import KUBERNETES_SCHEDULER
from rlt_api.spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.job import Job, Manifest

POD_GROUP = "ray"
"""Head and workers are one group: the head alone would hold its place in vain."""


def uses_kubernetes_gang(spec: RLTrainingJobSpec) -> bool:
    """Whether the job names Kubernetes' own scheduler for its gang."""
    return spec.scheduling.gang and spec.scheduling.scheduler_name == KUBERNETES_SCHEDULER


def build_gang(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """The Workload of the job."""
    policy = {"gang": {"minCount": _count_pods(spec)}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": build_metadata(job, _workload_name(job, spec)),
        "spec": {"podGroups": [{"name": POD_GROUP, "policy": policy}]},
    }


def build_gang_reference(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """What every pod's spec says of it."""
    return (
        {"workloadRef": {"name": _workload_name(job, spec), "podGroup": POD_GROUP}}
        if uses_kubernetes_gang(spec)
        else {}
    )


def _count_pods(spec: RLTrainingJobSpec) -> int:
    return 1 + sum(group.replicas for group in spec.cluster.workers)


def _workload_name(job: Job, spec: RLTrainingJobSpec) -> str:
    """Its groups cannot be changed: a job that is resized while it is suspended has another one."""
    return names.gang(job.name, _count_pods(spec))
