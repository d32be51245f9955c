"""Measure the time to choose a profile for a fleet: milliseconds for 500 nodes, and the cost per node as the fleet
grows. Run it with `.venv/bin/python bench/profile_choice.py`.
"""

from __future__ import annotations

import time
from typing import Any

from rlt_core.fabric.decision import explain_fabric
from rlt_core.fabric.demand import Demand

LIMIT_MS = 50.0
"""Limit for 500 nodes, from the JSON of the API server to the decision."""
FEW, MANY = 50, 500
UNRELATED = {f"label-{number}.example.com/name": "value" for number in range(30)}
"""Labels without meaning for the fabric. A node of a real cluster has about fifty labels, most of them unrelated."""
ROUNDS = 20


def build_node(number: int, kinds: int) -> dict[str, Any]:
    """Build a node with eight GPUs as the API server returns it, with one of `kinds` drivers."""
    labels = {
        "kubernetes.io/hostname": f"node-{number}",
        "topology.kubernetes.io/zone": f"zone-{number % 8}",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/cuda.driver-version.full": f"570.{number % kinds}",
        "feature.node.kubernetes.io/pci-0207_15b3.present": "true",
        "feature.node.kubernetes.io/rdma.available": "true",
    }
    allocatable = {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "8"}
    return {
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "labels": labels | UNRELATED},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def measure_ms(nodes: list[dict[str, Any]]) -> float:
    """Return the milliseconds of the fastest round."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        explain_fabric(nodes, Demand("nvidia.com/gpu", 8, 2))
        best = min(best, time.perf_counter() - start)
    return best * 1000


def main() -> None:
    """Print a line for each number of kinds."""
    for kinds in (1, 10, 50):
        few, many = (measure_ms([build_node(number, kinds) for number in range(size)]) for size in (FEW, MANY))
        growth = (many / MANY) / (few / FEW)
        print(
            f"{MANY} nodes of {kinds} kind{'s' * (kinds > 1)}: {many:.1f} ms, {many / LIMIT_MS:.2f} of the limit; "
            f"{growth:.2f} times the cost per node of {FEW} nodes"
        )


if __name__ == "__main__":
    main()
