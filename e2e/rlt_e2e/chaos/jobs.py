"""The learning jobs into which faults are injected. Without a fault, one takes about a minute."""

from __future__ import annotations

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
    min_rollout_pods: int | None = None,
    restart_policy: str = "Recreate",
) -> Job:
    """Train workers with an engine each.

    `rollout_pods`: one train worker instead, and this number of engines in their own pods. `min_rollout_pods`:
    minReplicas of their group.
    """
    job = build_learning_job(name, steps=STEPS, save_freq=SAVE_FREQ, workers=workers)
    spec = job["spec"]
    spec["failurePolicy"] = {"maxRestarts": 2, "restartPolicy": restart_policy}
    if rollout_pods:
        (group,) = spec["cluster"]["workers"]
        spec["rollout"] |= {"mode": "separate", "workerGroup": "rollout"}
        pods = {"train": 1, "rollout": rollout_pods}
        spec["cluster"]["workers"] = [{**group, "name": name, "replicas": count} for name, count in pods.items()]
    if min_rollout_pods:
        spec["cluster"]["workers"][1]["minReplicas"] = min_rollout_pods
    return job
