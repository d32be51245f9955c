"""The PodDisruptionBudgets (policy/v1) of a job: no pod is evicted voluntarily whose end would end the attempt.

minAvailable is the number of the pods that the program needs: all but those that only generate for rlt's trainer. These
have their own budget if their group has minReplicas. For pods of a controller without a scale subresource, such as a
RayCluster, Kubernetes supports no maxUnavailable:
https://kubernetes.io/docs/tasks/run-application/configure-pdb/#arbitrary-controllers-and-selectors
A budget has no effect on pods that are pending, ended or terminating, so that it blocks nothing without a cluster. The
operator creates them when Ray has the first Ray job of an attempt.
"""

from __future__ import annotations

from rlt_api.frameworks.replaceable_pods import find_replaceable_group
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.job import Job, Manifest


def build_disruption_budgets(job: Job, spec: RLTrainingJobSpec) -> tuple[Manifest, ...]:
    """Build the PodDisruptionBudgets of the job: of the pods that the program needs, and of a group with minReplicas.

    Pods that are not ready may be evicted: the program does not run.
    """
    replaceable = find_replaceable_group(spec)
    protected = [group for group in spec.cluster.workers if group is not replaceable]
    selector: Manifest = {"matchLabels": {names.JOB_LABEL: job.name}}
    if replaceable:
        others = {"key": names.RAY_GROUP_LABEL, "operator": "NotIn", "values": [replaceable.name]}
        selector["matchExpressions"] = [others]
    needed = 1 + sum(group.replicas for group in protected)
    budgets = [_build_budget(job, names.disruption_budget(job.name), needed, selector)]
    if replaceable and replaceable.min_replicas:
        labels = {names.JOB_LABEL: job.name, names.RAY_GROUP_LABEL: replaceable.name}
        name = names.rollout_disruption_budget(job.name)
        budgets.append(_build_budget(job, name, replaceable.min_replicas, {"matchLabels": labels}))
    return tuple(budgets)


def _build_budget(job: Job, name: str, minimum: int, selector: Manifest) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(job, name),
        "spec": {"minAvailable": minimum, "selector": selector, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    }
