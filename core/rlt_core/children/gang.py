"""The Workload (scheduling.k8s.io/v1alpha1): the default scheduler starts all pods of a job, or none.

An alpha API of Kubernetes 1.35 (features GenericWorkload and GangScheduling). Pods refer to it in spec.workloadRef,
which RayClusters support since KubeRay 1.6. Source: https://github.com/kubernetes/enhancements/issues/4671, and
scheduling/v1alpha1/types.go in k8s.io/api 0.35.
"""

from __future__ import annotations

from rlt_api.rules.queues import KUBERNETES_SCHEDULER
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.job import Job, Manifest

POD_GROUP = "ray"
"""Head and workers are one group: a head without workers would only occupy its node."""


def uses_kubernetes_gang(spec: RLTrainingJobSpec) -> bool:
    """Whether the default scheduler of Kubernetes starts the gang."""
    return spec.scheduling.gang and spec.scheduling.scheduler_name == KUBERNETES_SCHEDULER


def build_gang(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the Workload of the job."""
    policy = {"gang": {"minCount": _count_pods(spec)}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": build_metadata(job, _workload_name(job, spec)),
        "spec": {"podGroups": [{"name": POD_GROUP, "policy": policy}]},
    }


def build_gang_reference(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the reference to the Workload in the spec of every pod. Empty without one."""
    return (
        {"workloadRef": {"name": _workload_name(job, spec), "podGroup": POD_GROUP}}
        if uses_kubernetes_gang(spec)
        else {}
    )


def _count_pods(spec: RLTrainingJobSpec) -> int:
    return 1 + sum(group.replicas for group in spec.cluster.workers)


def _workload_name(job: Job, spec: RLTrainingJobSpec) -> str:
    """The name includes the number of pods: podGroups are immutable, and a suspended job can be resized."""
    return names.gang(job.name, _count_pods(spec))
