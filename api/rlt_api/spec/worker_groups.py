"""The worker groups of a job that train and that generate."""

from __future__ import annotations

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.spec.job_spec import RLTrainingJobSpec


def trains(spec: RLTrainingJobSpec) -> bool:
    """Whether train workers update the policy: not with evaluateOnly, whose pods have engines alone."""
    return spec.evaluate_only is None


def has_engines(spec: RLTrainingJobSpec) -> bool:
    """Whether rollout engines generate responses: not with algorithm.dpo, whose responses are in the data."""
    return spec.algorithm.dpo is None


def count_responses(spec: RLTrainingJobSpec) -> int:
    """Return the number of responses to each prompt of a batch: two in a pair."""
    return spec.rollout.responses_per_prompt if has_engines(spec) else 2


def rollout_group(spec: RLTrainingJobSpec) -> WorkerGroup | None:
    """Return the group that only generates; None unless rollout.mode is separate."""
    if spec.rollout.mode != "separate":
        return None
    return next((group for group in spec.cluster.workers if group.name == spec.rollout.worker_group), None)


def training_group(spec: RLTrainingJobSpec) -> WorkerGroup:
    """Return the group that trains: the first one that is not the rollout group."""
    generating = rollout_group(spec)
    return next((group for group in spec.cluster.workers if group is not generating), spec.cluster.workers[0])
