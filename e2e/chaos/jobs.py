"""The learning jobs that the faults meet. Without a fault, one takes about a minute."""

from __future__ import annotations

from jobs import Job, build_learning_job

STEPS = 60
SAVE_FREQ = 4
FAULT_AFTER = 10
"""The fault happens after this step: the latest checkpoint is then two steps old."""


def build_job(name: str, *, separate: bool = False) -> Job:
    """Two train workers with an engine each.

    `separate`: one train worker, and one rollout worker in a pod of its own.
    """
    job = build_learning_job(name, steps=STEPS, save_freq=SAVE_FREQ)
    spec = job["spec"]
    spec["failurePolicy"] = {"maxRestarts": 2}
    if separate:
        (workers,) = spec["cluster"]["workers"]
        spec["rollout"] |= {"mode": "separate", "workerGroup": "rollout"}
        spec["cluster"]["workers"] = [{**workers, "name": group, "replicas": 1} for group in ("train", "rollout")]
    return job
