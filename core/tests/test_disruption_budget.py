"""The PodDisruptionBudgets protect the pods that an attempt needs."""

from __future__ import annotations

from typing import Any

import observed as o
import pytest

from rlt_core.children.build import build_children


@pytest.mark.parametrize("minimum", [None, 2])
def test_rollout_pods_have_a_budget_with_min_replicas(minimum: int | None) -> None:
    (group,) = o.SPEC["cluster"]["workers"]
    rollout: dict[str, Any] = {**group, "name": "rollout", "replicas": 5}
    if minimum:
        rollout["minReplicas"] = minimum
    job = o.job(
        {
            **o.SPEC,
            "rollout": {"mode": "separate", "workerGroup": "rollout"},
            "cluster": {**o.SPEC["cluster"], "workers": [{**group, "name": "train", "replicas": 2}, rollout]},
        }
    )
    assert job.spec
    children = build_children(job, job.spec)
    budgets = {each["metadata"]["name"]: each["spec"] for each in children if each["kind"] == "PodDisruptionBudget"}
    needed = budgets.pop("sum-pods")
    assert needed["minAvailable"] == 3
    assert needed["selector"]["matchExpressions"] == [
        {"key": "ray.io/group", "operator": "NotIn", "values": ["rollout"]}
    ]
    labels = {"rlt.dev/job": "sum", "ray.io/group": "rollout"}
    found = {name: (each["minAvailable"], each["selector"]) for name, each in budgets.items()}
    assert found == ({"sum-pods-rollout": (minimum, {"matchLabels": labels})} if minimum else {})
    (cluster,) = (each for each in children if each["kind"] == "RayCluster")
    assert [each["replicas"] for each in cluster["spec"]["workerGroupSpecs"]] == [2, 5]
