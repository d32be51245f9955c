"""The learning jobs that the faults meet: example 01 with fewer steps. Without a fault, one takes about a minute."""

from __future__ import annotations

from jobs import Job, load_example

STEPS = 40
SAVE_EVERY = 4
FAULT_AFTER = 10
"""The fault happens after this step: the latest checkpoint is then two steps old."""


def build_job(name: str, *, steps: int = STEPS, separate: bool = False) -> Job:
    """Two train workers with an engine each; `separate`: one train worker, and one rollout worker in a pod of its own.

    Steps are deterministic, also after a resumption: the same job always ends with the same weights.
    """
    job = load_example("01-arithmetic-grpo.yaml")
    spec = job["spec"]
    job["metadata"]["name"] = name
    spec["training"] |= {"totalSteps": steps, "warmup": {**spec["training"]["warmup"], "steps": 20}}
    spec["rollout"] |= {"engine": "transformers"}
    spec |= {
        "checkpoint": {"saveFreq": SAVE_EVERY},
        "failurePolicy": {"maxRestarts": 2},
    }
    if separate:
        (workers,) = spec["cluster"]["workers"]
        spec["rollout"] |= {"mode": "separate", "workerGroup": "rollout"}
        spec["cluster"]["workers"] = [{**workers, "name": group, "replicas": 1} for group in ("train", "rollout")]
    return job
