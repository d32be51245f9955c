"""The reservation of pods in the Ray cluster. The functions import Ray themselves, as in actors.py."""

from __future__ import annotations

import time
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
    import ray
    from ray.util.placement_group import placement_group

    bundle = pods.bundle()
    group: PlacementGroup = placement_group([bundle] * pods.count, strategy="SPREAD")
    deadline = time.monotonic() + RESOURCES_TIMEOUT_S
    while not wait([group.ready()], timeout=10)[0]:
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        available = {name: amount for name, amount in resources.items() if name in bundle}
        if time.monotonic() > deadline:
            raise TrainingError(
                f"Ray could not schedule {pods.count} {pods.role} workers of {bundle} within {RESOURCES_TIMEOUT_S} s: "
                f"the cluster has {available}. Check the worker pods: each must provide the resources in the spec."
            )
        print(f"[preparing] waiting for {pods.count} {pods.role} workers of {bundle}; Ray has {available}", flush=True)
    return group


def find_hosts(group: PlacementGroup) -> list[str]:
    """Return the host of each bundle, also of nodes that Ray has lost."""
    import ray
    from ray.util.placement_group import placement_group_table

    nodes: dict[int, str] = placement_group_table(group)["bundles_to_node_id"]
    hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
    return [hosts[nodes[index]] for index in sorted(nodes)]
