"""The pods of a job whose loss does not end its program."""

from __future__ import annotations

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import rollout_group


def find_replaceable_group(spec: RLTrainingJobSpec) -> WorkerGroup | None:
    """Return the group that only generates for rlt's trainer, whose driver replaces lost engines; None without one."""
    return rollout_group(spec) if get_framework(spec).roles_as_resources else None


def count_needed(group: WorkerGroup) -> int:
    """Return the number of pods of a group with which the program starts."""
    return group.min_replicas or group.replicas
