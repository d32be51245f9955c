"""The pods of a job whose loss does not end its program."""

from __future__ import annotations

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import rollout_group


def find_replaceable_group(spec: RLTrainingJobSpec) -> WorkerGroup | None:
    """Return the group that only generates for rlt's trainer, whose driver replaces lost engines; None without one."""
    return rollout_group(spec) if get_framework(spec).roles_as_resources else None


def apply_rollout_replicas(spec: RLTrainingJobSpec) -> RLTrainingJobSpec:
    """Return the spec with rolloutReplicas as the replicas of its group. A number outside of the group's bounds, which
    only an API server without the rules stores, counts as the nearest bound."""
    group = find_replaceable_group(spec)
    wanted = spec.rollout_replicas
    if wanted is None or group is None or group.min_replicas is None or group.max_replicas is None:
        return spec
    scaled = group.model_copy(update={"replicas": min(max(wanted, group.min_replicas), group.max_replicas)})
    workers = [scaled if each is group else each for each in spec.cluster.workers]
    return spec.model_copy(update={"cluster": spec.cluster.model_copy(update={"workers": workers})})


def count_needed(group: WorkerGroup) -> int:
    """Return the number of pods of a group with which the program starts."""
    return group.min_replicas or group.replicas
