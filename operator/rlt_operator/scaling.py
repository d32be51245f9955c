"""The number of pods in the group that only generates: spec.rolloutReplicas or autoscale, while the job runs. Pure.

KubeRay deletes any pod of a group whose replicas are lowered, so the operator names those to delete. KubeRay 1.6 keeps
the names in the RayCluster, and the operator removes them when the pods are gone: until then they tell apart the pods
that it has removed from lost ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.replaceable_pods import find_replaceable_group
from rlt_core.job import Manifest
from rlt_operator.manifests import parse_ray_cluster
from rlt_operator.observation import GroupSize, Observed, Pod, is_in


@dataclass(frozen=True)
class Scaling:
    """A change of a group in the RayCluster."""

    cluster_uid: str
    before: GroupSize
    """What the change was decided for."""
    replicas: int
    delete: tuple[str, ...] = ()
    """The pods that KubeRay deletes, and those that it has deleted and that have not ended yet."""


def plan_scaling(observed: Observed) -> Scaling | None:
    """The change that the RayCluster needs; None if it needs none, or cannot have more pods now."""
    cluster = observed.owned_cluster
    group = _find_elastic_group(observed)
    size = _find_size(observed, group)
    if cluster is None or group is None or size is None or cluster.deleting or not is_scalable(observed):
        return None
    # KubeRay may have deleted a pod whose end the cache does not have yet, so that its name stays until it is gone.
    ending = tuple(pod.name for pod in observed.pods if pod.name in size.deleting)
    if group.replicas > size.replicas:
        return Scaling(cluster.uid, size, group.replicas, ending) if _has_room(observed) else None
    if group.replicas < size.replicas:
        pods = [pod for pod in observed.cluster_pods if is_in(group, pod) and pod.name not in ending]
        chosen = choose_pods(pods, len(pods) - group.replicas)
        return Scaling(cluster.uid, size, group.replicas, (*ending, *chosen))
    return Scaling(cluster.uid, size, size.replicas) if size.deleting and not ending else None


def choose_pods(pods: Sequence[Pod], count: int) -> list[str]:
    """Choose the pods to delete: those that generate the least so far. First those that are not ready or have no node,
    then the newest."""

    def order(pod: Pod) -> tuple[bool, bool, float, str]:
        created = pod.created.timestamp() if pod.created else 0.0
        return pod.ready, pod.node is not None, -created, pod.name

    return [pod.name for pod in sorted(pods, key=order)[: max(0, count)]]


def wants_more_pods(observed: Observed) -> bool:
    """Whether the group has fewer pods in the RayCluster than the job wants."""
    group = _find_elastic_group(observed)
    size = _find_size(observed, group)
    return group is not None and size is not None and size.replicas < group.replicas


def choose_replicas(observed: Observed) -> int | None:
    """The new number for a group with autoscale: what a broken rule proposes, within the group's bounds.

    A rule needs its number of steps with the same pods, so that a number that has not been reached, and a report from
    before the last change, change nothing.
    """
    group = _find_elastic_group(observed)
    report = observed.ray.progress if observed.ray else None
    if group is None or not group.autoscale or report is None or not is_scalable(observed):
        return None
    proposed = next((each.proposed for each in report.broken_rules if each.pods == group.replicas), None)
    if proposed is None or group.min_replicas is None or group.max_replicas is None:
        return None
    chosen = min(max(proposed, group.min_replicas), group.max_replicas)
    return None if chosen == group.replicas else chosen


def is_scalable(observed: Observed) -> bool:
    """Whether the number of pods can change. Kueue, which sets spec.suspend, evicts a RayCluster that is not elastic:
    it has no elastic jobs."""
    cluster = observed.owned_cluster
    return cluster is not None and (cluster.suspend is None or (cluster.elastic and not cluster.suspend))


def build_patch(cluster: Manifest, scaling: Scaling) -> list[Manifest] | None:
    """Build the JSON Patch (RFC 6902) of the RayCluster as it was read, which fails if it has changed since then.

    None if it is another RayCluster, or if its group is not as the change was decided for: the cache was behind.
    """
    metadata = cluster["metadata"]
    sizes = parse_ray_cluster(cluster).groups
    if metadata["uid"] != scaling.cluster_uid or scaling.before not in sizes:
        return None
    path = f"/spec/workerGroupSpecs/{sizes.index(scaling.before)}"
    return [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "replace", "path": f"{path}/replicas", "value": scaling.replicas},
        {"op": "add", "path": f"{path}/scaleStrategy", "value": {"workersToDelete": list(scaling.delete)}},
    ]


def _find_elastic_group(observed: Observed) -> WorkerGroup | None:
    group = find_replaceable_group(observed.job.spec) if observed.job.spec else None
    return group if group and group.max_replicas else None


def _find_size(observed: Observed, group: WorkerGroup | None) -> GroupSize | None:
    sizes = observed.owned_cluster.groups if observed.owned_cluster else ()
    return next((each for each in sizes if group and each.name == group.name), None)


def _has_room(observed: Observed) -> bool:
    return observed.namespace_use is None or observed.namespace_use.fits
