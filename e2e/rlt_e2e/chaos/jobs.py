"""The learning jobs into which faults are injected. Without a fault, one takes about a minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlt_e2e.jobs import Job, build_learning_job

STEPS = 60
SAVE_FREQ = 4
FAULT_AFTER = 10
"""The fault happens after this step: the latest checkpoint is then two steps old."""


def build_job(
    name: str,
    *,
    workers: int = 2,
    rollout_pods: int = 0,
    rollout_group: Mapping[str, Any] | None = None,
    restart_policy: str = "Recreate",
) -> Job:
    """Train workers with an engine each.

    `rollout_pods`: one train worker instead, and this number of engines in their own pods. `rollout_group`: fields of
    their group. With autoscale, a rule proposes more pods some steps after FAULT_AFTER.
    """
    job = build_learning_job(name, steps=STEPS, save_freq=SAVE_FREQ, workers=workers)
    spec = job["spec"]
    spec["failurePolicy"] = {"maxRestarts": 2, "restartPolicy": restart_policy}
    if rollout_pods:
        (group,) = spec["cluster"]["workers"]
        spec["rollout"] |= {"mode": "separate", "workerGroup": "rollout"}
        pods = {"train": 1, "rollout": rollout_pods}
        train, rollout = ({**group, "name": name, "replicas": count} for name, count in pods.items())
        small = {**group["resources"], "cpu": "500m"}  # so that four of them fit on the nodes
        spec["cluster"]["workers"] = [train, {**rollout, "resources": small, **(rollout_group or {})}]
        always = {"threshold": 0.01, "steps": FAULT_AFTER + 2}
        spec["observability"] = {"metricRules": {"generationBound": always}}
    return job
