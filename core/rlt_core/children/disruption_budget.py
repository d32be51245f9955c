"""The PodDisruptionBudget (policy/v1) of a job: no pod is evicted voluntarily whose end would end the whole program.

minAvailable is the number of these pods: all but those that only generate for rlt's trainer. For pods of a controller
without a scale subresource, such as a RayCluster, Kubernetes supports no maxUnavailable:
https://kubernetes.io/docs/tasks/run-application/configure-pdb/#arbitrary-controllers-and-selectors
A budget has no effect on pods that are pending, ended or terminating, so that it blocks nothing without a cluster. The
operator creates it when Ray has the first Ray job of an attempt.
"""

from __future__ import annotations

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.job import Job, Manifest
from rlt_core.replaceable_pods import find_replaceable_group


def build_disruption_budget(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the PodDisruptionBudget of the job. Pods that are not ready may be evicted: the program does not run."""
    replaceable = find_replaceable_group(spec)
    protected = [group for group in spec.cluster.workers if group is not replaceable]
    selector: Manifest = {"matchLabels": {names.JOB_LABEL: job.name}}
    if replaceable:
        others = {"key": names.RAY_GROUP_LABEL, "operator": "NotIn", "values": [replaceable.name]}
        selector["matchExpressions"] = [others]
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(job, names.disruption_budget(job.name)),
        "spec": {
            "minAvailable": 1 + sum(group.replicas for group in protected),
            "selector": selector,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
