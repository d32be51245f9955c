"""The reservation of pods in the Ray cluster. The functions import Ray themselves, as in actors.py."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlt_trainer.cluster.actors import wait
from rlt_trainer.cluster.pods import Pods
from rlt_trainer.errors import TrainingError

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

RESOURCES_TIMEOUT_S = 600
"""How long to wait for the cluster's resources."""


def reserve_pods(pods: Pods) -> PlacementGroup:
    """Reserve one bundle for each worker pod, spread over the nodes. Wait until Ray has the resources."""
    from ray.util.placement_group import placement_group

    group: PlacementGroup = placement_group([pods.bundle()] * pods.count, strategy="SPREAD")
    _await_groups([group], pods, minimum=1)
    return group


def reserve_each(pods: Pods, *, minimum: int | None = None) -> list[PlacementGroup]:
    """Reserve each worker pod for itself, and wait until Ray has the resources of `minimum` pods. Default: all.

    Ray reserves the others when their pods join, and a pod again that replaces a lost one.
    """
    from ray.util.placement_group import placement_group

    groups: list[PlacementGroup] = [placement_group([pods.bundle()]) for _ in range(pods.count)]
    _await_groups(groups, pods, minimum=minimum or pods.count)
    return groups


def is_reserved(group: PlacementGroup) -> bool:
    """Return whether the pods of the group have joined Ray, and are not lost."""
    from ray.util.placement_group import placement_group_table

    return bool(placement_group_table(group)["state"] == "CREATED")


def _await_groups(groups: Sequence[PlacementGroup], pods: Pods, *, minimum: int) -> None:
    """Wait until Ray has the resources of `minimum` groups. Raises TrainingError after RESOURCES_TIMEOUT_S."""
    import ray

    bundle = pods.bundle()
    ready = [group.ready() for group in groups]
    deadline = time.monotonic() + RESOURCES_TIMEOUT_S
    while len(wait(ready, timeout=10, count=minimum)[0]) < minimum:
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        available = {name: amount for name, amount in resources.items() if name in bundle}
        wanted = f"{minimum if len(groups) > 1 else pods.count} {pods.role} workers of {bundle}"
        if time.monotonic() > deadline:
            raise TrainingError(
                f"Ray could not schedule {wanted} within {RESOURCES_TIMEOUT_S} s: the cluster has {available}. Check "
                "the worker pods: each must provide the resources in the spec."
            )
        print(f"[preparing] waiting for {wanted}; Ray has {available}", flush=True)


def find_hosts(group: PlacementGroup) -> list[str]:
    """Return the host of each bundle, also of nodes that Ray has lost."""
    import ray
    from ray.util.placement_group import placement_group_table

    nodes: dict[int, str] = placement_group_table(group)["bundles_to_node_id"]
    hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
    return [hosts[nodes[index]] for index in sorted(nodes)]
