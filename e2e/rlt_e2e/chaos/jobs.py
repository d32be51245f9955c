"""The learning jobs into which faults are injected. Without a fault, one takes about a minute."""

from __future__ import annotations

from rlt_e2e.jobs import Job, build_learning_job

STEPS = 60
SAVE_FREQ = 4
FAULT_AFTER = 10
"""The fault happens after this step: the latest checkpoint is then two steps old."""


def build_job(name: str, *, workers: int = 2, separate: bool = False) -> Job:
    """Train workers with an engine each.

    `separate`: one train worker, and one rollout worker in its own pod.
    """
    job = build_learning_job(name, steps=STEPS, save_freq=SAVE_FREQ, workers=workers)
    spec = job["spec"]
    spec["failurePolicy"] = {"maxRestarts": 2}
    if separate:
        (group,) = spec["cluster"]["workers"]
        spec["rollout"] |= {"mode": "separate", "workerGroup": "rollout"}
        spec["cluster"]["workers"] = [{**group, "name": name, "replicas": 1} for name in ("train", "rollout")]
    return job
