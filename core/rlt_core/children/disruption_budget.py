"""The PodDisruptionBudget (policy/v1) of a job: no pod is evicted voluntarily, because one pod ends the whole program.

minAvailable is the number of all pods. For pods of a controller without a scale subresource, such as a RayCluster,
Kubernetes supports no maxUnavailable:
https://kubernetes.io/docs/tasks/run-application/configure-pdb/#arbitrary-controllers-and-selectors
A budget has no effect on pods that are pending, ended or terminating, so that it blocks nothing without a cluster. The
operator creates it when Ray has the first Ray job of an attempt.
"""

from __future__ import annotations

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.job import Job, Manifest


def build_disruption_budget(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the PodDisruptionBudget of the job. Pods that are not ready may be evicted: the program does not run."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(job, names.disruption_budget(job.name)),
        "spec": {
            "minAvailable": 1 + sum(group.replicas for group in spec.cluster.workers),
            "selector": {"matchLabels": {names.JOB_LABEL: job.name}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
